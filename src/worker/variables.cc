#include "worker/variables.h"

#include <algorithm>

#include "base/check.h"

namespace starling {
namespace {

Status check(const JobOptions& job) {
  const DenseSection& dense = job.dense;
  const bool is_kept_here = dense.home == "trainer";
  if (job.train.staleness == 0) {
    if (is_kept_here || dense.sharing == "hogwild" || dense.pull_every > 1 ||
        dense.merge_steps > 1) {
      return invalid_argument(
          "train.staleness 0 needs dense.home ps, dense.sharing private, dense.pull_every 1 and "
          "dense.merge_steps 1");
    }
  }
  if (is_kept_here && dense.merge_steps > 1) {
    return invalid_argument(
        "dense.home trainer pushes no gradients: dense.merge_steps is 1, not {}",
        dense.merge_steps);
  }
  if (is_kept_here && job.cluster.trainers != 1) {
    return invalid_argument("dense.home trainer needs cluster.trainers 1, not {}",
                            job.cluster.trainers);
  }
  return absl::OkStatus();
}

DenseValues values_of(const v1::DenseOptions& variable, std::span<const float> from) {
  Tensor tensor = Tensor::allocate(DType::kFloat32, {static_cast<int64_t>(from.size())});
  std::copy(from.begin(), from.end(), tensor.mutable_values<float>().begin());
  return {.variable = variable.name(), .values = std::move(tensor)};
}

}  // namespace

Variables::Variables(const JobOptions& job, Communicator& ps, const v1::CreateOption& schema)
    : schema_(schema),
      ps_(ps),
      pull_every_(static_cast<uint64_t>(job.dense.pull_every)),
      is_kept_here_(job.dense.home == "trainer"),
      is_shared_(job.dense.sharing == "hogwild"),
      variables_(is_kept_here_ ? schema.variables_size() / 2 : schema.variables_size()) {}

StatusOr<std::unique_ptr<Variables>> Variables::make(const JobOptions& job, Communicator& ps,
                                                     const v1::CreateOption& schema,
                                                     size_t workers) {
  STARLING_RETURN_IF_ERROR(check(job));
  std::unique_ptr<Variables> made(new Variables(job, ps, schema));
  if (made->is_kept_here_) {
    for (int i = 0; i < made->variables_; ++i) {
      STARLING_ASSIGN_OR_RETURN(std::unique_ptr<DenseTable> table,
                                make_dense_table(schema.variables(i), schema.seed()));
      made->tables_.push_back(std::move(table));
    }
  }
  const size_t copies = made->is_shared_ ? 1 : workers;
  for (size_t i = 0; i < copies; ++i) {
    made->copies_.push_back(std::make_unique<Copy>(made->empty_copy(made->variables_)));
  }
  return made;
}

Variables::Copy Variables::empty_copy(int variables) const {
  Copy copy;
  for (int i = 0; i < variables; ++i) {
    const v1::DenseOptions& variable = schema_.variables(i);
    size_t elements = 1;
    for (const int64_t extent : variable.shape()) elements *= static_cast<size_t>(extent);
    copy.values.emplace_back(elements);
    copy.pulled.push_back({.variable = variable.name()});
  }
  return copy;
}

std::vector<std::span<float>> Variables::memory(size_t worker) {
  std::vector<std::span<float>> out;
  if (is_kept_here_ && is_shared_) {
    for (const auto& table : tables_) {
      // Networks only read; the table alone writes.
      out.emplace_back(const_cast<float*>(table->weights().data()), table->size());
    }
    return out;
  }
  Copy& copy = *copies_[is_shared_ ? 0 : worker];
  out.assign(copy.values.begin(), copy.values.end());
  return out;
}

Status Variables::pull(Copy& copy, Deadline deadline) const {
  STARLING_ASSIGN_OR_RETURN(copy.pulled, ps_.pull_dense(std::move(copy.pulled), deadline));
  for (size_t i = 0; i < copy.pulled.size(); ++i) {
    const std::span<const float> values = copy.pulled[i].values.values<float>();
    std::copy(values.begin(), values.end(), copy.values[i].begin());
  }
  return absl::OkStatus();
}

// The ps made the first values, or has read them from a cut.
Status Variables::take_initial(Deadline deadline) {
  const MutexLock lock(mutex_);
  if (has_initial_) return absl::OkStatus();
  Copy copy = empty_copy(schema_.variables_size());
  STARLING_RETURN_IF_ERROR(pull(copy, deadline));
  for (size_t i = 0; i < tables_.size(); ++i) {
    const std::span<const float> state = copy.values[tables_.size() + i];
    const bool is_stored = state.front() != 0;
    STARLING_RETURN_IF_ERROR(is_stored ? tables_[i]->restore(copy.values[i], state.subspan(1))
                                       : tables_[i]->set(copy.values[i]));
  }
  has_initial_ = true;
  return absl::OkStatus();
}

Status Variables::refresh(size_t worker, Deadline deadline) {
  if (is_kept_here_) {
    STARLING_RETURN_IF_ERROR(take_initial(deadline));
    if (is_shared_) return absl::OkStatus();
    Copy& copy = *copies_[worker];
    if (copy.steps++ % pull_every_ != 0) return absl::OkStatus();
    const MutexLock lock(mutex_);
    for (size_t i = 0; i < tables_.size(); ++i) {
      std::copy_n(tables_[i]->weights().data(), tables_[i]->size(), copy.values[i].begin());
    }
    return absl::OkStatus();
  }
  if (!is_shared_) {
    Copy& copy = *copies_[worker];
    return copy.steps++ % pull_every_ == 0 ? pull(copy, deadline) : absl::OkStatus();
  }
  const MutexLock lock(pull_mutex_);
  Copy& copy = *copies_.front();
  return copy.steps++ % pull_every_ == 0 ? pull(copy, deadline) : absl::OkStatus();
}

StatusOr<bool> Variables::apply(std::span<const std::span<const float>> gradients, uint64_t step) {
  if (!is_kept_here_) return false;
  STARLING_CHECK(gradients.size() == tables_.size(), "a gradient of every variable");
  const MutexLock lock(mutex_);
  for (size_t i = 0; i < tables_.size(); ++i) {
    STARLING_RETURN_IF_ERROR(tables_[i]->push(gradients[i], step));
  }
  return true;
}

Status Variables::snapshot(const std::vector<std::span<float>>& out, Deadline deadline) {
  if (!is_kept_here_) {
    Copy copy = empty_copy(variables_);
    STARLING_RETURN_IF_ERROR(pull(copy, deadline));
    for (size_t i = 0; i < out.size(); ++i) {
      std::copy(copy.values[i].begin(), copy.values[i].end(), out[i].begin());
    }
    return absl::OkStatus();
  }
  STARLING_RETURN_IF_ERROR(take_initial(deadline));
  const MutexLock lock(mutex_);
  for (size_t i = 0; i < out.size(); ++i) {
    std::copy_n(tables_[i]->weights().data(), tables_[i]->size(), out[i].begin());
  }
  return absl::OkStatus();
}

Status Variables::store(Deadline deadline) {
  if (!is_kept_here_) return absl::OkStatus();
  std::vector<DenseValues> values;
  {
    const MutexLock lock(mutex_);
    if (!has_initial_) return absl::OkStatus();
    for (int i = 0; i < variables_; ++i) {
      const DenseTable& table = *tables_[static_cast<size_t>(i)];
      std::vector<float> state{1};
      state.insert(state.end(), table.state().begin(), table.state().end());
      values.push_back(values_of(schema_.variables(i), table.weights()));
      values.push_back(values_of(schema_.variables(variables_ + i), state));
    }
  }
  return ps_.push({}, std::move(values), deadline);
}

}  // namespace starling
