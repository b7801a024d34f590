// The other end of the suite's tests with real processes.
//
//   net_conformance_peer serve MAKER PORT        a Parrot on two lanes; prints its port
//   net_conformance_peer call MAKER HOST PORT    sends one request to be held; prints "called"
// Both end when their standard input does.

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "net/conformance/world.h"

namespace starling::conformance {
namespace {

void wait_for_end_of_input() {
  char byte = 0;
  while (::read(STDIN_FILENO, &byte, 1) > 0) {
  }
}

int serve(const Maker& maker, uint16_t port) {
  World world(maker);
  Parrot parrot;
  Address at = world.somewhere();
  at.port = port;
  auto server = world.serve(parrot, 2, at);
  std::printf("%d\n", static_cast<int>(server->addresses()[0].port));
  std::fflush(stdout);
  wait_for_end_of_input();
  return 0;
}

int call(const Maker& maker, std::string host, uint16_t port) {
  World world(maker);
  Client client(world.network());
  Ends ends;
  client.call({.address = {.protocol = maker.protocol, .host = std::move(host), .port = port}},
              Method::kPeerCall, ask_with(kHold, 1, 100'000), Deadline::never(), ends.take(1));
  std::printf("called\n");
  std::fflush(stdout);
  wait_for_end_of_input();
  return 0;
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.size() < 3) return 2;
  for (const Maker& maker : all_makers()) {
    if (maker.name != arguments[1]) continue;
    const auto port = static_cast<uint16_t>(std::atoi(arguments.back().c_str()));
    return arguments[0] == "serve" ? serve(maker, port) : call(maker, arguments[2], port);
  }
  return 2;
}

}  // namespace
}  // namespace starling::conformance

int main(int argc, char** argv) {
  return starling::conformance::run(std::vector<std::string>(argv + 1, argv + argc));
}
