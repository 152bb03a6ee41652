// What was asked for last, made once: for what is made hundreds of times over the same few things.
#pragma once
#include <algorithm>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>

namespace distsetup {

// Keeps the `most` that were asked for last. Safe for several threads; one of them makes at a time.
template <class T>
class RecentlyMade {
 public:
  explicit RecentlyMade(size_t most) : most_(most) {}

  // The one that `is_it(const T&)` holds of; else what `make()` makes.
  template <class Is, class Make>
  std::shared_ptr<const T> get(Is is_it, Make make) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto known = std::find_if(kept_.begin(), kept_.end(), [&](const std::shared_ptr<const T>& one) { return is_it(*one); });
    if (known != kept_.end()) {
      std::rotate(kept_.begin(), known, known + 1);
      return kept_.front();
    }
    kept_.push_front(std::make_shared<const T>(make()));
    if (kept_.size() > most_) kept_.pop_back();
    return kept_.front();
  }

 private:
  const size_t most_;
  std::mutex mutex_;
  std::deque<std::shared_ptr<const T>> kept_;
};

}  // namespace distsetup
