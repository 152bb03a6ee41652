// A plain model with autograd, written with public operators only: what the executor is compared with.
#pragma once
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <functional>
#include <vector>

#include "plan/layout.h"
#include "runtime/tiny.h"

namespace distsetup::oracle {

using at::Tensor;
using tiny::Batch;

struct Model {
  const Geometry geometry;
  const Layout layout;
  at::ScalarType compute = at::kFloat;          // of products and what they read; norms and the loss are in fp32
  std::vector<std::vector<Tensor>> parameters;  // per unit, in layout order; leaves

  Model(const Geometry& g, const std::vector<std::vector<float>>& units) : geometry(g), layout(make_layout(g, {})) {
    for (size_t u = 0; u < layout.units.size(); ++u) {
      parameters.emplace_back();
      for (const Parameter& p : layout.units[u].parameters) {
        Tensor t = at::empty(p.shape, at::kFloat);
        std::copy_n(units[u].data() + p.offset, p.numel, t.data_ptr<float>());
        parameters.back().push_back(t.requires_grad_(true));
      }
    }
  }

  Tensor parameter(size_t unit, const std::string& suffix) const {
    const auto& list = layout.units[unit].parameters;
    for (size_t i = 0; i < list.size(); ++i) {
      if (list[i].name.ends_with(suffix)) return parameters[unit][i].to(compute);
    }
    throw std::logic_error("no parameter " + suffix);
  }

  Tensor norm(const Tensor& row, const Tensor& w) const {
    const Tensor x = row.to(at::kFloat);
    return (x * (x.pow(2).mean(-1, true) + geometry.norm_epsilon).rsqrt() * w).to(compute);
  }

  Tensor rope(const Tensor& x_BSHD) const {
    const int64_t S = x_BSHD.size(1), D = x_BSHD.size(3);
    const Tensor position = at::arange(S, at::kDouble).unsqueeze(1);
    const Tensor frequency = at::pow(geometry.rope_base, -2.0 * at::arange(D / 2, at::kDouble) / double(D)).unsqueeze(0);
    const Tensor angle = (position * frequency).unsqueeze(1);  // S, 1, D / 2
    const Tensor c = angle.cos().to(at::kFloat), s = angle.sin().to(at::kFloat), a = x_BSHD.narrow(3, 0, D / 2),
                 b = x_BSHD.narrow(3, D / 2, D / 2);
    return at::cat({a * c - b * s, b * c + a * s}, 3).to(compute);
  }

  Tensor block(size_t u, const Tensor& x) const {
    const Geometry& g = geometry;
    const int64_t B = x.size(0), S = x.size(1), d = g.head_size;
    const Tensor h = norm(x, parameter(u, "input_layernorm.weight"));
    const auto project = [&](const std::string& which, int64_t heads) {
      Tensor y = at::linear(h, parameter(u, which + "_proj.weight"));
      if (g.qkv_bias) y = y + parameter(u, which + "_proj.bias");
      return y.view({B, S, heads, d});
    };
    Tensor q = project("q", g.num_heads), k = project("k", g.num_kv_heads), v = project("v", g.num_kv_heads);
    if (g.qk_norm) {
      q = norm(q, parameter(u, "q_norm.weight"));
      k = norm(k, parameter(u, "k_norm.weight"));
    }
    q = rope(q).transpose(1, 2);
    k = rope(k).transpose(1, 2).repeat_interleave(g.num_heads / g.num_kv_heads, 1);
    v = v.transpose(1, 2).repeat_interleave(g.num_heads / g.num_kv_heads, 1);
    Tensor scores = at::matmul(q, k.transpose(2, 3)) / std::sqrt(double(d));
    scores = scores.masked_fill(at::ones({S, S}, at::kBool).triu(1), -INFINITY);
    const Tensor att = at::matmul(at::softmax(scores, -1), v).transpose(1, 2).reshape({B, S, g.num_heads * d});
    const Tensor x2 = x + at::linear(att, parameter(u, "o_proj.weight"));
    const Tensor h2 = norm(x2, parameter(u, "post_attention_layernorm.weight"));
    const Tensor m = at::silu(at::linear(h2, parameter(u, "gate_proj.weight"))) * at::linear(h2, parameter(u, "up_proj.weight"));
    return x2 + at::linear(m, parameter(u, "down_proj.weight"));
  }

  static Tensor tokens(const std::vector<int64_t>& v, int64_t S) {
    Tensor t = at::empty({int64_t(v.size()) / S, S}, at::kLong);
    std::copy(v.begin(), v.end(), t.data_ptr<int64_t>());
    return t;
  }

  // [B, S, vocabulary]
  Tensor logits(const Batch& batch, int64_t S) const {
    const size_t last = layout.units.size() - 1;
    const Tensor wte = parameter(0, "embed_tokens.weight");
    Tensor x = at::embedding(wte, tokens(batch.ids, S));
    for (size_t u = 1; u < last; ++u) x = block(u, x);
    return at::linear(norm(x, parameter(last, "model.norm.weight")),
                      geometry.tied_embeddings ? wte : parameter(last, "lm_head.weight"));
  }

  Tensor loss(const Batch& batch, int64_t S) const {
    return at::cross_entropy_loss(logits(batch, S).to(at::kFloat).reshape({-1, geometry.vocabulary}),
                                  tokens(batch.targets, S).reshape({-1}), {}, at::Reduction::Sum, -1) /
           double(batch.valid);
  }

  // Gradients per unit in the flat order of the layout; the loss.
  double gradients(const Batch& batch, int64_t S, std::vector<std::vector<float>>& out) const {
    return gradients([&] { return loss(batch, S); }, out);
  }
  double gradients(const std::function<Tensor()>& of, std::vector<std::vector<float>>& out) const {
    const c10::AutoGradMode mode(true);
    std::vector<Tensor> leaves;
    for (const auto& unit : parameters) leaves.insert(leaves.end(), unit.begin(), unit.end());
    const Tensor value = of();
    const std::vector<Tensor> g = torch::autograd::grad({value}, leaves);
    out.clear();
    size_t next = 0;
    for (size_t u = 0; u < parameters.size(); ++u) {
      out.emplace_back();
      for (size_t i = 0; i < parameters[u].size(); ++i) {
        const Tensor t = g[next++].contiguous();
        out.back().insert(out.back().end(), t.data_ptr<float>(), t.data_ptr<float>() + t.numel());
      }
    }
    return value.item<double>();
  }

  // One AdamW step as torch.optim.AdamW and clip_grad_norm_ write it. Returns loss and norm.
  struct Moments {
    std::vector<std::vector<double>> m, v;
  };
  std::pair<double, double> step(const Batch& batch, const Plan& plan, int64_t number, double rate, Moments& moments) {
    std::vector<std::vector<float>> g;
    const double value = gradients(batch, plan.train.sequence_length, g);
    return {value, update(g, plan, number, rate, moments)};
  }
  // The same with gradients that are there. Returns their norm.
  double update(const std::vector<std::vector<float>>& g, const Plan& plan, int64_t number, double rate, Moments& moments) {
    double squares = 0;
    for (const auto& unit : g) {
      for (const float e : unit) squares += double(e) * e;
    }
    const double norm = std::sqrt(squares), clip = std::min(1.0, plan.train.grad_clip / (norm + 1e-6));
    moments.m.resize(g.size());
    moments.v.resize(g.size());
    const TrainPlan& t = plan.train;
    for (size_t u = 0; u < g.size(); ++u) {
      moments.m[u].resize(g[u].size());
      moments.v[u].resize(g[u].size());
      for (size_t i = 0; i < parameters[u].size(); ++i) {
        const Parameter& p = layout.units[u].parameters[i];
        float* w = parameters[u][i].data_ptr<float>();
        for (int64_t j = 0; j < p.numel; ++j) {
          const size_t at = size_t(p.offset + j);
          const double grad = g[u][at] * clip;
          double& m = moments.m[u][at];
          double& v = moments.v[u][at];
          m = t.beta1 * m + (1 - t.beta1) * grad;
          v = t.beta2 * v + (1 - t.beta2) * grad * grad;
          const double m_hat = m / (1 - std::pow(t.beta1, double(number))), v_hat = v / (1 - std::pow(t.beta2, double(number)));
          w[j] = float(w[j] * (1 - (p.decay ? rate * t.weight_decay : 0.0)) - rate * m_hat / (std::sqrt(v_hat) + t.epsilon));
        }
      }
    }
    return norm;
  }
};

}  // namespace distsetup::oracle
