#include "transport/kind.h"

namespace starling::bench {

std::vector<Kind> kinds() {
  return {
      {.name = "grpc++", .serve = serve_fast, .call = call_fast},
      {.name = "grpc++ tcp", .serve = serve_fast_tcp, .call = call_fast_tcp},
      {.name = "grpc", .serve = serve_grpc, .call = call_grpc},
      {.name = "inproc", .call = call_inproc},
      {.name = "gRPC unary", .serve = serve_unary, .call = call_unary},
      {.name = "gRPC unary tuned", .tuned_malloc = true, .serve = serve_unary, .call = call_unary},
      {.name = "gRPC stream", .serve = serve_stream, .call = call_stream},
      {.name = "raw TCP", .serve = serve_raw, .call = call_raw},
  };
}

StatusOr<Kind> find_kind(std::string_view name) {
  std::string known;
  for (const Kind& kind : kinds()) {
    if (kind.name == name) return kind;
    known += fmt::format(" '{}'", kind.name);
  }
  return not_found("kind '{}'; known are{}", name, known);
}

}  // namespace starling::bench
