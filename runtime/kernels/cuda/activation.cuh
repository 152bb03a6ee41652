// Activations of one value, with their slopes. Included by one .cu file each.
#pragma once
#include "runtime/kernels/cuda/common.cuh"

namespace distsetup::cuda {
namespace {

struct ActivationPoint {
  float value, slope;
};
__device__ inline ActivationPoint activation_at(Activation f, float x) {
  switch (f) {
    case Activation::kGelu: {
      const float cdf = 0.5f * (1.0f + erff(x * 0.7071067811865475f));
      return {x * cdf, cdf + x * 0.3989422804014327f * expf(-0.5f * x * x)};
    }
    case Activation::kGeluTanh: {
      const float u = 0.7978845608028654f * (x + 0.044715f * x * x * x), s = 1.0f / (1.0f + expf(-2.0f * u));
      return {x * s, s + x * 2.0f * s * (1.0f - s) * 0.7978845608028654f * (1.0f + 3.0f * 0.044715f * x * x)};
    }
    case Activation::kRelu: return {x > 0 ? x : 0.0f, x > 0 ? 1.0f : 0.0f};
    case Activation::kRelu2: return {x > 0 ? x * x : 0.0f, x > 0 ? 2 * x : 0.0f};
    case Activation::kSilu: break;
  }
  const float s = 1.0f / (1.0f + expf(-x));
  return {x * s, s * (1.0f + x * (1.0f - s))};
}
// Of activation(g) · u, d its gradient: leaves the gradient of g in g and that of u in d.
__device__ inline void gate_gradients(Activation f, float& d, float& g, float u) {
  const ActivationPoint p = activation_at(f, g);
  g = d * u * p.slope;
  d = d * p.value;
}

}  // namespace
}  // namespace distsetup::cuda
