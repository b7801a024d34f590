#include "trainer/linear.h"

#include <sys/wait.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/generated/variable_factories.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <csignal>
#include <dnnl.hpp>
#include <thread>

#include "base/check.h"
#include "base/clock.h"

namespace starling {
namespace {

constexpr Duration kProbePatience = seconds(20);
constexpr Duration kProbeLook = milliseconds(5);

// A matrix in memory: rows of `columns` numbers, used as it is or transposed.
struct Matrix {
  const float* data;
  int64_t rows, columns;
  bool is_transposed = false;
  int64_t height() const { return is_transposed ? columns : rows; }
  int64_t width() const { return is_transposed ? rows : columns; }
};

uint16_t rounded(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return static_cast<uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

std::vector<uint16_t> halves_of(const Matrix& from) {
  std::vector<uint16_t> out(static_cast<size_t>(from.rows * from.columns));
  for (size_t i = 0; i < out.size(); ++i) out[i] = rounded(from.data[i]);
  return out;
}

dnnl::memory::desc described(const Matrix& matrix) {
  const dnnl::memory::dims strides = matrix.is_transposed ? dnnl::memory::dims{1, matrix.columns}
                                                          : dnnl::memory::dims{matrix.columns, 1};
  return {{matrix.height(), matrix.width()}, dnnl::memory::data_type::bf16, strides};
}

void multiply_bfloat16(const Matrix& a, const Matrix& b, float* out) {
  std::vector<uint16_t> left = halves_of(a), right = halves_of(b);
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  const dnnl::memory::desc result{
      {a.height(), b.width()}, dnnl::memory::data_type::f32, dnnl::memory::format_tag::ab};
  // oneDNN itself keeps what it has compiled for a shape.
  const dnnl::matmul::primitive_desc plan(dnnl::matmul::desc(described(a), described(b), result),
                                          engine);
  dnnl::stream stream(engine);
  dnnl::matmul(plan).execute(stream,
                             {{DNNL_ARG_SRC, dnnl::memory(described(a), engine, left.data())},
                              {DNNL_ARG_WEIGHTS, dnnl::memory(described(b), engine, right.data())},
                              {DNNL_ARG_DST, dnnl::memory(result, engine, out)}});
  stream.wait();
}

// out (height of a, width of b) = a b.
void multiply(const Matrix& a, const Matrix& b, Precision precision, float* out) {
  if (precision == Precision::kBFloat16) return multiply_bfloat16(a, b, out);
  const dnnl::status status =
      dnnl::sgemm(a.is_transposed ? 'T' : 'N', b.is_transposed ? 'T' : 'N', a.height(), b.width(),
                  a.width(), 1, a.data, a.columns, b.data, b.columns, 0, out, b.width());
  STARLING_CHECK(status == dnnl::status::success, "a product of matrices that fit");
}

Matrix matrix_of(const torch::Tensor& tensor, bool is_transposed = false) {
  return {tensor.data_ptr<float>(), tensor.size(0), tensor.size(1), is_transposed};
}

void add_bias(const float* bias, int64_t rows, int64_t columns, bool relu, float* y) {
  for (int64_t r = 0; r < rows; ++r, y += columns) {
    for (int64_t c = 0; c < columns; ++c) {
      const float sum = y[c] + bias[c];
      // What is not a number stays so.
      y[c] = relu && sum < 0 ? 0.0F : sum;
    }
  }
}

class FusedLinear : public torch::autograd::Function<FusedLinear> {
 public:
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x,
                               const torch::Tensor& weight, const torch::Tensor& bias, bool relu,
                               bool is_half) {
    torch::Tensor y = torch::empty({x.size(0), weight.size(0)});
    multiply(matrix_of(x), matrix_of(weight, true), precision_of(is_half), y.data_ptr<float>());
    add_bias(bias.data_ptr<float>(), y.size(0), y.size(1), relu, y.data_ptr<float>());
    context->save_for_backward({x, weight, y});
    context->saved_data["relu"] = relu;
    context->saved_data["half"] = is_half;
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const torch::autograd::variable_list saved = context->get_saved_variables();
    const torch::Tensor& x = saved[0];
    const torch::Tensor& weight = saved[1];
    const Precision precision = precision_of(context->saved_data["half"].toBool());
    torch::Tensor dy = gradients[0].contiguous();
    torch::Tensor bias = torch::zeros({weight.size(0)});
    if (context->saved_data["relu"].toBool()) {
      dy = masked(dy, saved[2], bias.data_ptr<float>());
    } else {
      bias = dy.sum(0);
    }
    torch::Tensor dx;
    if (context->needs_input_grad(0)) {
      dx = torch::empty_like(x);
      multiply(matrix_of(dy), matrix_of(weight), precision, dx.data_ptr<float>());
    }
    torch::Tensor dw = torch::empty_like(weight);
    multiply(matrix_of(dy, true), matrix_of(x), precision, dw.data_ptr<float>());
    return {dx, dw, bias, torch::Tensor(), torch::Tensor()};
  }

 private:
  static Precision precision_of(bool is_half) {
    return is_half ? Precision::kBFloat16 : Precision::kFloat32;
  }
  // The gradient where the result is not cut off, and its sums over rows.
  static torch::Tensor masked(const torch::Tensor& dy, const torch::Tensor& y, float* sums) {
    torch::Tensor out = torch::empty_like(dy);
    const float* from = dy.data_ptr<float>();
    const float* result = y.data_ptr<float>();
    float* to = out.data_ptr<float>();
    const int64_t columns = dy.size(1);
    for (int64_t r = 0; r < dy.size(0); ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        const float kept = result[c] > 0 ? from[c] : 0.0F;
        to[c] = kept;
        sums[c] += kept;
      }
      from += columns;
      result += columns;
      to += columns;
    }
    return out;
  }
};

bool is_product_right() {
  const std::vector<float> a(64 * 64, 0.5F), b(64 * 64, 2.0F);
  std::vector<float> out(64 * 64);
  multiply_bfloat16({a.data(), 64, 64}, {b.data(), 64, 64, true}, out.data());
  return std::all_of(out.begin(), out.end(), [](float x) { return std::abs(x - 64) < 0.01F; });
}

}  // namespace

torch::Tensor fused_linear(const torch::Tensor& x, const torch::Tensor& weight,
                           const torch::Tensor& bias, bool relu, Precision precision) {
  const torch::Tensor flat = x.reshape({-1, x.size(-1)}).contiguous();
  const torch::Tensor y =
      FusedLinear::apply(flat, weight, bias, relu, precision == Precision::kBFloat16);
  if (x.dim() == 2) return y;
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = weight.size(0);
  return y.view(shape);
}

Status probe_bfloat16() {
  const pid_t child = ::fork();
  if (child < 0) return unavailable("dense.precision: no process to try bfloat16 in");
  if (child == 0) {
    bool is_right = false;
    try {
      is_right = is_product_right();
    } catch (const std::exception&) {
      is_right = false;
    }
    ::_exit(is_right ? 0 : 1);
  }
  const RealClock clock{};
  const Deadline deadline = Deadline::in(clock, kProbePatience);
  int status = 0;
  while (::waitpid(child, &status, WNOHANG) == 0) {
    if (deadline.passed(clock.now())) {
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
      break;
    }
    std::this_thread::sleep_for(kProbeLook);
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return absl::OkStatus();
  return failed_precondition(
      "dense.precision: bfloat16 does not work on this machine (a child process that tried it {}); "
      "float32 does",
      WIFSIGNALED(status) ? fmt::format("died of signal {}", WTERMSIG(status))
                          : "gave a wrong product");
}

}  // namespace starling
