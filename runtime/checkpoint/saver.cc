// See saver.h.
#include "runtime/checkpoint/saver.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/quantity.h"
#include "runtime/monitor/failure.h"

namespace distsetup {
namespace {

constexpr int kWordsPerDigest = 8;             // 32 bits each: exact in a double
constexpr size_t kSlot = kWordsPerDigest + 1;  // bytes, digest

void put_digest(const FileDigest& digest, double* slot) {
  slot[0] = static_cast<double>(digest.bytes);
  for (int w = 0; w < kWordsPerDigest; ++w)
    slot[1 + w] = static_cast<double>(std::stoul(digest.sha256.substr(static_cast<size_t>(w) * 8, 8), nullptr, 16));
}

FileDigest get_digest(const double* slot) {
  FileDigest digest = {static_cast<int64_t>(slot[0]), ""};
  for (int w = 0; w < kWordsPerDigest; ++w) digest.sha256 += fmt::format("{:08x}", static_cast<uint32_t>(slot[1 + w]));
  return digest;
}

using Digests = std::map<std::string, FileDigest>;

// Of the files of all ranks, which name theirs in order: rank_file_name(rank, 0), (rank, 1), … Every rank gets all of them.
Digests gather_digests(Communicator& communicator, const Digests& mine, const Layout& layout) {
  const auto rank = static_cast<size_t>(communicator.rank()), world = static_cast<size_t>(communicator.world());
  std::vector<double> counts(world, 0.0);
  counts[rank] = static_cast<double>(mine.size());
  communicator.control_sum(counts.data(), static_cast<int64_t>(world));
  std::vector<size_t> begins = {0};
  for (const double count : counts) begins.push_back(begins.back() + static_cast<size_t>(count));
  std::vector<double> slots(begins.back() * kSlot, 0.0);
  for (size_t k = 0; k < mine.size(); ++k)
    put_digest(mine.at(rank_file_name(communicator.rank(), k)), slots.data() + (begins[rank] + k) * kSlot);
  communicator.control_sum(slots.data(), static_cast<int64_t>(slots.size()));
  Digests files;
  size_t num_writers = 0;
  for (size_t r = 0; r < world; ++r) {
    const size_t num_files = begins[r + 1] - begins[r];
    num_writers += num_files > 0 ? 1 : 0;
    for (size_t k = 0; k < num_files; ++k)
      files[rank_file_name(static_cast<int>(r), k)] = get_digest(slots.data() + (begins[r] + k) * kSlot);
  }
  CHECK(num_writers == writer_ranks(layout).size(), "files of {} ranks", num_writers);
  return files;
}

SaveOutcome write_files(const CheckpointPlace& place, int rank, const ShardState& state, int64_t step) {
  SaveOutcome outcome;
  Result<Digests> written = write_rank_files(place.directory, step, rank, state);
  outcome.said = written.diagnostics;
  if (written.ok()) outcome.digests = std::move(*written);
  return outcome;
}

// Rank 0's: commits, then retires what is no longer needed.
SaveOutcome commit_files(const CheckpointPlace& place, const ShardState& state, const CheckpointMetadata& metadata,
                         const Digests& files) {
  SaveOutcome outcome;
  outcome.said = commit_checkpoint(place.directory, state, place.plan_digest, metadata, files);
  if (!has_error(outcome.said))
    outcome.complaints = retire_checkpoints(place.directory, metadata.step, place.retention, place.refused);
  return outcome;
}

}  // namespace

std::vector<std::string> save_checkpoint(Communicator& communicator, const CheckpointPlace& place, const ShardState& state,
                                         bool writes, const CheckpointMetadata& metadata) {
  const int rank = communicator.rank();
  const bool is_first = rank == 0;
  agree(communicator, is_first ? begin_checkpoint(place.directory, metadata.step) : Diagnostics{}, kExitFailed);

  SaveOutcome written, committed;
  if (writes) {
    CHECK(state.at == coordinates(state.layout->mesh, rank) && state.at.dp_replicate == 0, "rank {}", rank);
    written = write_files(place, rank, state, metadata.step);
  }
  try {
    agree(communicator, written.said, kExitFailed);
  } catch (const Failure&) {
    if (is_first) discard_partial(place.directory, metadata.step);
    throw;
  }
  const Digests files = gather_digests(communicator, written.digests, *state.layout);
  if (is_first) committed = commit_files(place, state, metadata, files);
  if (has_error(committed.said)) discard_partial(place.directory, metadata.step);
  agree(communicator, committed.said, kExitFailed);
  return committed.complaints;
}

void print_news(const std::vector<SaveNews>& news, bool is_first) {
  for (const SaveNews& one : news) {
    for (const std::string& complaint : one.complaints) fmt::print(stderr, "{}\n", complaint);
    if (!is_first || !one.committed) continue;
    fmt::print("step {:>6}  saved as {}, {}\n", *one.committed, checkpoint_name(*one.committed), format_duration(one.seconds));
    std::fflush(stdout);
  }
}

CheckpointSaver::CheckpointSaver(Communicator& communicator, CheckpointPlace place, std::span<float> copy)
    : communicator_(communicator), place_(std::move(place)), copy_(copy) {}

std::vector<SaveNews> CheckpointSaver::save(const ShardState& state, bool writes, const CheckpointMetadata& metadata, When when) {
  std::vector<SaveNews> news = wait();
  if (newest_ == metadata.step) return news;
  begin_s_ = now_s();
  if (when == When::kBeside && !copy_.empty()) {
    if (std::optional<SaveNews> refused = start(state, writes, metadata)) news.push_back(std::move(*refused));
    return news;
  }
  std::vector<std::string> complaints = save_checkpoint(communicator_, place_, state, writes, metadata);
  newest_ = metadata.step;
  news.push_back({newest_, now_s() - begin_s_, std::move(complaints)});
  return news;
}

ShardState CheckpointSaver::copy_of(const ShardState& state) {
  ShardState copied = state;
  size_t at = 0;
  const auto put = [&](std::span<float>& values) {
    CHECK(at + values.size() <= copy_.size(), "{} + {} values of {}", at, values.size(), copy_.size());
    std::copy(values.begin(), values.end(), copy_.begin() + static_cast<std::ptrdiff_t>(at));
    values = copy_.subspan(at, values.size());
    at += values.size();
  };
  put(copied.master);
  for (StateValues& state_values : copied.states) put(state_values.values);
  return copied;
}

// News when the save has failed already.
std::optional<SaveNews> CheckpointSaver::start(const ShardState& state, bool writes, const CheckpointMetadata& metadata) {
  metadata_ = metadata;
  outcome_ = {};
  if (communicator_.rank() == 0) outcome_.said = begin_checkpoint(place_.directory, metadata.step);
  double num_failed = has_error(outcome_.said) ? 1 : 0;
  communicator_.control_sum(&num_failed, 1);
  if (num_failed > 0) return end(outcome_, true);
  stage_ = Stage::kWriting;
  state_ = state;
  if (!writes) return std::nullopt;
  state_ = copy_of(state);
  task_ = std::async(std::launch::async,
                     [this, rank = communicator_.rank()] { return write_files(place_, rank, state_, metadata_.step); });
  return std::nullopt;
}

std::optional<SaveNews> CheckpointSaver::poll() {
  if (stage_ == Stage::kIdle) return std::nullopt;
  if (task_.valid() && task_.wait_for(std::chrono::seconds(0)) == std::future_status::ready) outcome_ = task_.get();
  double counts[2] = {task_.valid() ? 1.0 : 0.0, has_error(outcome_.said) ? 1.0 : 0.0};
  communicator_.control_sum(counts, 2);
  if (counts[0] > 0) return std::nullopt;
  const bool has_failed = counts[1] > 0;
  if (has_failed || stage_ == Stage::kCommitting) return end(std::exchange(outcome_, {}), has_failed);
  const Digests files = gather_digests(communicator_, std::exchange(outcome_, {}).digests, *state_.layout);
  stage_ = Stage::kCommitting;
  if (communicator_.rank() != 0) return std::nullopt;
  task_ = std::async(std::launch::async, [this, files] { return commit_files(place_, state_, metadata_, files); });
  return std::nullopt;
}

SaveNews CheckpointSaver::end(const SaveOutcome& mine, bool has_failed) {
  stage_ = Stage::kIdle;
  SaveNews news = {std::nullopt, now_s() - begin_s_, mine.complaints};
  if (!has_failed) {
    news.committed = newest_ = metadata_.step;
    return news;
  }
  if (communicator_.rank() == 0) discard_partial(place_.directory, metadata_.step);
  for (const Diagnostic& one : mine.said)
    news.complaints.push_back(fmt::format("{} is not saved, and training goes on: {}", checkpoint_name(metadata_.step), one.message));
  return news;
}

std::vector<SaveNews> CheckpointSaver::wait() {
  std::vector<SaveNews> news;
  while (stage_ != Stage::kIdle) {
    if (task_.valid()) task_.wait();
    if (std::optional<SaveNews> one = poll()) news.push_back(std::move(*one));
  }
  return news;
}

}  // namespace distsetup
