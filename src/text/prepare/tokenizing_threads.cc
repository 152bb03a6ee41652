#include "text/prepare/tokenizing_threads.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <thread>

namespace distsetup {
namespace {

// Processors that this process may use.
int num_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(CPU_COUNT(&set), 1) : 1;
}

}  // namespace

TokenizingThreads::TokenizingThreads(const PrepareRequest& request) {
  const int count = request.num_threads > 0 ? request.num_threads : num_processors();
  for (int i = 0; i < count; ++i) tokenizers_.push_back(std::make_unique<RowTokenizer>(request));
}

std::vector<Result<RowSamples>> TokenizingThreads::samples_of(const std::vector<SourceRow>& rows) {
  std::vector<Result<RowSamples>> made(rows.size(), RowSamples{});
  std::atomic<size_t> next = 0;
  const auto work = [&](RowTokenizer& tokenizer) {
    for (size_t i = next++; i < rows.size(); i = next++) made[i] = tokenizer.samples_of(rows[i]);
  };
  std::vector<std::jthread> others;
  for (size_t t = 1; t < std::min(tokenizers_.size(), rows.size()); ++t)
    others.emplace_back([&work, tokenizer = tokenizers_[t].get()] { work(*tokenizer); });
  work(*tokenizers_.front());
  others.clear();  // joined
  return made;
}

}  // namespace distsetup
