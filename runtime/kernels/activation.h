// The activations of feed-forward blocks, for the kernels of every device.
#pragma once

namespace distsetup {

// gelu: x · Φ(x) by the error function; gelu_tanh: its approximation by tanh (Hendrycks and Gimpel, arXiv 1606.08415); relu2: relu
// squared.
enum class Activation { kGelu, kGeluTanh, kRelu, kRelu2, kSilu };

}  // namespace distsetup
