// The optimizer rules once more, as plain float32 loops: what tests compare the vector code with.
//
// Written from the formulas, element by element, with its own 16-lane mean. Uses: base. Threads:
// any. For tests.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "table/rules.h"

namespace starling {

struct OracleRow {
  std::vector<float> w;
  std::vector<float> state;
};

// Two rules share the name paddle_adam; the dense one steps differently.
inline std::string oracle_name(const RuleOps& ops) {
  return std::string(ops.dense && !ops.sparse && ops.name == std::string("paddle_adam") ? "dense_"
                                                                                        : "") +
         ops.name;
}

inline float oracle_sum(const std::vector<float>& values) {
  float lanes[16] = {};
  for (size_t i = 0; i < values.size(); ++i) lanes[i % 16] += values[i];
  for (int half = 8; half > 0; half /= 2) {
    for (int l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  }
  return lanes[0];
}

inline float oracle_mean(const std::vector<float>& values) {
  return oracle_sum(values) / static_cast<float>(values.size());
}

inline double oracle_power(double base, int count) {
  if (count == 0) return 1;
  const double root = oracle_power(base * base, count / 2);
  return count % 2 == 0 ? root : root * base;
}

// torch.optim's family and ftrl.
inline bool oracle_plain(const std::string& name, const RuleSettings& rule, float lr,
                         const std::vector<float>& g, OracleRow& row) {
  const float* p = rule.value;
  const size_t n = g.size();
  auto& [w, s] = row;
  if (name == "rowwise_adagrad") {
    std::vector<float> squares;
    for (const float x : g) squares.push_back(x * x);
    s[0] += oracle_mean(squares);
    for (size_t i = 0; i < n; ++i) w[i] -= lr * g[i] / (std::sqrt(s[0]) + p[2]);
    return true;
  }
  if (name == "adam" || name == "adamw") s[2 * n] += 1;
  for (size_t i = 0; i < n; ++i) {
    if (name == "sgd") {
      w[i] -= lr * g[i];
    } else if (name == "momentum") {
      s[i] = p[1] * s[i] + g[i];
      w[i] -= lr * s[i];
    } else if (name == "adagrad") {
      s[i] += g[i] * g[i];
      w[i] -= lr * g[i] / (std::sqrt(s[i]) + p[2]);
    } else if (name == "adam" || name == "adamw") {
      const int t = static_cast<int>(s[2 * n]);
      if (name == "adamw") w[i] *= static_cast<float>(1 - static_cast<double>(lr) * rule.exact[4]);
      const auto size = static_cast<float>(lr / (1 - oracle_power(rule.exact[1], t)));
      const auto root = static_cast<float>(std::sqrt(1 - oracle_power(rule.exact[2], t)));
      s[i] = p[1] * s[i] + static_cast<float>(1 - rule.exact[1]) * g[i];
      s[n + i] = p[2] * s[n + i] + static_cast<float>(1 - rule.exact[2]) * (g[i] * g[i]);
      w[i] -= size * (s[i] / (std::sqrt(s[n + i]) / root + p[3]));
    } else if (name == "ftrl") {
      const float grown = s[n + i] + g[i] * g[i];
      const float sigma = (std::sqrt(grown) - std::sqrt(s[n + i])) / lr;
      s[i] += g[i] - sigma * w[i];
      s[n + i] = grown;
      const float sign = s[i] < 0 ? -1.0f : 1.0f;
      w[i] = std::abs(s[i]) <= p[2]
                 ? 0
                 : -((s[i] - sign * p[2]) / ((p[1] + std::sqrt(grown)) / lr + p[3]));
    } else if (name == "sum") {
      w[i] += g[i];
    } else if (name == "summary") {
      w[i] = w[i] * p[0] + g[i];
    } else {
      return false;
    }
  }
  return true;
}

inline void oracle_paddle_adam(const std::string& name, const RuleSettings& rule, float lr,
                               const std::vector<float>& g, OracleRow& row) {
  const float* p = rule.value;
  const size_t n = g.size();
  auto& [w, s] = row;
  const bool shared = name == "paddle_shared_adam";
  float* powers = s.data() + (shared ? 2 : 2 * n);
  const bool first = name == "dense_paddle_adam";
  if (first) powers[0] *= p[1], powers[1] *= p[2];
  const float size = lr * std::sqrt(1 - powers[1]) / (1 - powers[0]);
  const float eps = first ? p[3] * std::sqrt(1 - powers[1]) : p[3];
  const float rest1 = first ? static_cast<float>(1 - rule.exact[1]) : 1 - p[1];
  const float rest2 = first ? static_cast<float>(1 - rule.exact[2]) : 1 - p[2];
  std::vector<float> m;
  std::vector<float> v;
  for (size_t i = 0; i < n; ++i) {
    m.push_back(p[1] * s[shared ? 0 : i] + rest1 * g[i]);
    v.push_back(p[2] * s[shared ? 1 : n + i] + rest2 * (g[i] * g[i]));
    w[i] -= size * (m[i] / (std::sqrt(v[i]) + eps));
    if (!shared) s[i] = m[i], s[n + i] = v[i];
  }
  if (shared) s[0] = oracle_mean(m), s[1] = oracle_mean(v);
  if (!first) powers[0] *= p[1], powers[1] *= p[2];
}

// One step of the rule `name` (oracle_name) on `row`.
inline void oracle_step(const std::string& name, const RuleSettings& rule, float lr,
                        const std::vector<float>& g, float scale, OracleRow& row) {
  if (oracle_plain(name, rule, lr, g, row)) return;
  if (name.ends_with("adam")) return oracle_paddle_adam(name, rule, lr, g, row);
  const float* p = rule.value;
  const size_t n = g.size();
  auto& [w, s] = row;
  if (name == "adam_d2sum") {
    s[2 * n] = s[2 * n] * p[2] + 1;
    for (size_t i = 0; i < n; ++i) {
      s[i] = s[i] * p[2] + g[i] * g[i];
      const float ratio = std::sqrt((s[2 * n] + s[2 * n] * p[3]) / (s[i] + s[2 * n] * p[3]));
      s[n + i] = (s[n + i] + g[i]) * p[1] - g[i];
      w[i] += lr * s[n + i] * ratio;
    }
    return;
  }
  std::vector<float> squares;
  for (const float x : g) squares.push_back((x / scale) * (x / scale));
  if (name == "paddle_adagrad_v2") s[0] += oracle_mean(squares);
  for (size_t i = 0; i < n; ++i) {
    const float scaled = g[i] / scale;
    if (name == "paddle_adagrad") {
      w[i] -= lr * scaled * std::sqrt(p[1] / (p[1] + s[0]));
    } else if (name == "paddle_adagrad_v2") {
      w[i] -= lr * scaled / (std::sqrt(s[0]) + 1e-8f);
    } else {  // paddle_std_adagrad
      w[i] -= lr * scaled * std::sqrt(p[1] / (p[1] + s[i]));
      s[i] += scaled * scaled;
    }
  }
  if (name == "paddle_adagrad") s[0] += oracle_mean(squares);
}

}  // namespace starling
