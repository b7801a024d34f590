#include "trainer/window.h"

#include <cmath>
#include <cstring>
#include <vector>

namespace starling {

std::string TrainWindow::pack() const {
  std::vector<double> numbers = scores.pack();
  numbers.insert(numbers.end(), {loss, batches});
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(double)};
}

bool TrainWindow::merge(std::string_view packed) {
  std::vector<double> numbers(packed.size() / sizeof(double));
  if (numbers.size() < 2 || packed.size() % sizeof(double) != 0) return false;
  std::memcpy(numbers.data(), packed.data(), packed.size());
  const double more_batches = numbers.back();
  const double more_loss = numbers[numbers.size() - 2];
  numbers.resize(numbers.size() - 2);
  if (!std::isfinite(more_loss) || !(more_batches >= 0) || !scores.unpack(numbers)) return false;
  loss += more_loss;
  batches += more_batches;
  return true;
}

}  // namespace starling
