#include "runtime/monitor/watchdog.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "base/quantity.h"
#include "runtime/monitor/roll_call.h"

namespace distsetup {
namespace {

constexpr double kBeatsPerTimeout = 20, kShortestBeat_s = 0.1, kLongestBeat_s = 30;
constexpr int kBeatsBetweenReadings = 3, kBeatsOfPatience = 6;

const char* name_of(Channel channel) {
  constexpr const char* kNames[kNumChannels] = {"gather", "reduce", "control", "stages"};
  return kNames[static_cast<size_t>(channel)];
}
std::string communicator_name(Channel channel, Group group) { return fmt::format("{} {}", name_of(channel), name(group)); }

std::string instruction_text(const Instruction& i, int index) {
  std::string text = fmt::format("instruction {}: {}", index, name(i.op));
  if (i.unit >= 0) text += fmt::format(" {}", i.unit);
  if (i.micro_batch >= 0) text += fmt::format(" micro-batch {}", i.micro_batch);
  return i.group == Group::kSelf ? text : text + fmt::format(" over {}", name(i.group));
}

}  // namespace

struct Watchdog::State {
  State(Communicator& c, const Mesh& m, int64_t timeout)
      : inner(c),
        mesh(m),
        watched(c, progress),
        timeout_s(static_cast<double>(timeout)),
        beat_s(std::clamp(timeout_s / kBeatsPerTimeout, kShortestBeat_s, kLongestBeat_s)) {}

  RankStand stand() const;
  void look();
  void talk();
  void say(double waited_s, const WatchedCommunicator::Waiting& waiting);
  std::vector<RankStand> read_all() const;
  bool sleep_a_beat(std::unique_lock<std::mutex>& lock) {
    wake.wait_for(lock, std::chrono::duration<double>(beat_s), [this] { return is_over; });
    return !is_over;
  }

  Communicator& inner;
  const Mesh mesh;
  Progress progress;
  WatchedCommunicator watched;
  const double timeout_s, beat_s;

  std::mutex mutex;
  std::condition_variable wake;
  // Under the mutex.
  bool is_over = false, wants_readings = false;
  std::string phase = "rendezvous";
  double since_s = now_s();               // that the rank has not gone on
  std::vector<RankStand> earlier, later;  // readings of the store
  std::thread looks, talks;
};

// Called with the mutex.
RankStand Watchdog::State::stand() const {
  RankStand out;
  out.phase = phase;
  out.since_s = now_s() - since_s;
  const Schedule* const list = progress.list.load(std::memory_order_relaxed);
  const int index = progress.instruction.load(std::memory_order_relaxed);
  if (list != nullptr && index >= 0 && index < static_cast<int>(list->instructions.size()))
    out.at = instruction_text(list->instructions[static_cast<size_t>(index)], index);
  const WatchedCommunicator::Waiting waiting = watched.waiting();
  if (waiting.operation != nullptr) out.waits = fmt::format("{} over {}", waiting.operation, name(waiting.group));
  for (int c = 0; c < kNumChannels; ++c) {
    for (int g = 0; g < kNumGroups; ++g) {
      const int64_t begun = watched.num_begun(static_cast<Channel>(c), static_cast<Group>(g));
      if (begun > 0) out.begun[communicator_name(static_cast<Channel>(c), static_cast<Group>(g))] = begun;
    }
  }
  return out;
}

std::vector<RankStand> Watchdog::State::read_all() const {
  std::vector<RankStand> out;
  for (int r = 0; r < inner.world(); ++r) out.push_back(stand_from_text(inner.store_get(fmt::format("stands/{}", r))));
  return out;
}

void Watchdog::State::talk() {
  int64_t beat = 1;  // the first is the constructor's
  int beats_since_reading = 0;
  std::unique_lock lock(mutex);
  do {
    RankStand mine = stand();
    mine.beat = ++beat;
    const bool reads = wants_readings && later.empty() && (earlier.empty() || ++beats_since_reading >= kBeatsBetweenReadings);
    lock.unlock();
    std::vector<RankStand> read;
    try {
      inner.store_set(fmt::format("stands/{}", inner.rank()), to_text(mine));
      if (reads) read = read_all();
    } catch (const std::exception&) {
      return;  // the store is gone, and with it rank 0: others say so
    }
    lock.lock();
    if (!reads || !wants_readings) continue;
    (earlier.empty() ? earlier : later) = std::move(read);
    beats_since_reading = 0;
  } while (sleep_a_beat(lock));
}

void Watchdog::State::look() {
  int64_t count = -1;
  int beats_of_patience = 0;
  bool is_said = false;
  std::unique_lock lock(mutex);
  while (sleep_a_beat(lock)) {
    const int64_t now_at = progress.count.load(std::memory_order_relaxed);
    if (now_at != count) {
      count = now_at;
      since_s = now_s();
      is_said = wants_readings = false;
      beats_of_patience = 0;
      earlier.clear(), later.clear();
      continue;
    }
    const WatchedCommunicator::Waiting waiting = watched.waiting();
    const bool waits = waiting.operation != nullptr || progress.list.load(std::memory_order_relaxed) != nullptr;
    const double waited_s = now_s() - since_s;
    if (!waits || is_said || waited_s < timeout_s / 2) continue;
    wants_readings = true;
    if (later.empty() && ++beats_of_patience < kBeatsOfPatience) continue;
    is_said = true;
    say(waited_s, waiting);
  }
}

// Called with the mutex. One call of fputs for all: lines of several ranks do not mix.
void Watchdog::State::say(double waited_s, const WatchedCommunicator::Waiting& waiting) {
  const RankStand mine = stand();
  Awaited awaited;
  awaited.operation = mine.waits.empty() ? mine.at : mine.waits;
  if (waiting.operation != nullptr) {
    awaited.communicator = communicator_name(waiting.channel, waiting.group);
    awaited.sequence = waiting.sequence;
  }
  awaited.members = group_members(mesh, waiting.operation != nullptr ? waiting.group : Group::kWorld, inner.rank());
  std::string text;
  if (later.empty()) {
    text =
        fmt::format("rank {} has waited {} in {} ({}): the store, which rank 0 or its launcher keeps, does not answer\n", inner.rank(),
                    format_duration(waited_s), awaited.operation, mine.phase + (mine.at.empty() ? "" : ", " + mine.at));
  } else {
    text = waiting_line(inner.rank(), waited_s, awaited, earlier, later) + "\n";
    if (inner.rank() == 0) text += roll_call(earlier, later);
  }
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

Watchdog::Watchdog(Communicator& inner, const Mesh& mesh, int64_t timeout_s)
    : state_(std::make_unique<State>(inner, mesh, timeout_s)) {
  if (inner.world() < 2) return;
  RankStand first = state_->stand();
  first.beat = 1;
  inner.store_set(fmt::format("stands/{}", inner.rank()), to_text(first));
  inner.barrier();  // from here on each name is set: reading it never blocks
  state_->looks = std::thread([this] { state_->look(); });
  state_->talks = std::thread([this] { state_->talk(); });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->is_over = true;
  }
  state_->wake.notify_all();
  if (state_->looks.joinable()) state_->looks.join();
  if (state_->talks.joinable()) state_->talks.join();
}

Communicator& Watchdog::communicator() { return state_->watched; }
Progress& Watchdog::progress() { return state_->progress; }

void Watchdog::enter(const std::string& phase) {
  const std::lock_guard lock(state_->mutex);
  state_->phase = phase;
}

}  // namespace distsetup
