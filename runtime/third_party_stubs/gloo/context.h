// Names that ProcessGroupGloo.hpp needs complete: the deleter of unique_ptr<UnboundBuffer> and shared_ptr<Context>.
// Never construct either. See README.md.
#pragma once
#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace gloo {

namespace transport {

class UnboundBuffer {
 public:
  virtual ~UnboundBuffer() = 0;
};

}  // namespace transport

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

}  // namespace gloo
