#include "service/job_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>

namespace distsetup {
namespace {

struct NamedState {
  JobState state;
  std::string_view name;
};
constexpr std::array<NamedState, 6> kStates = {{{JobState::kQueued, "queued"},
                                                {JobState::kScheduled, "scheduled"},
                                                {JobState::kInProgress, "in_progress"},
                                                {JobState::kCompleted, "completed"},
                                                {JobState::kFailed, "failed"},
                                                {JobState::kCancelled, "cancelled"}}};
constexpr size_t kLongestId = 128;

}  // namespace

std::string_view job_state_name(JobState state) { return kStates[static_cast<size_t>(state)].name; }

std::optional<JobState> job_state_from(std::string_view name) {
  for (const NamedState& one : kStates) {
    if (one.name == name) return one.state;
  }
  return std::nullopt;
}

bool is_final(JobState state) { return state == JobState::kCompleted || state == JobState::kFailed || state == JobState::kCancelled; }

bool may_become(JobState from, JobState to) {
  if (is_final(from) || from == to) return false;
  switch (to) {
    case JobState::kQueued: return true;  // another attempt
    case JobState::kScheduled: return from == JobState::kQueued;
    case JobState::kInProgress:
    case JobState::kCompleted: return from != JobState::kQueued && (to == JobState::kCompleted || from == JobState::kScheduled);
    case JobState::kFailed:
    case JobState::kCancelled: return true;
  }
  return false;
}

TimeMs wall_clock_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string utc_text(TimeMs at) {
  const std::time_t seconds = at / 1000;
  std::tm parts = {};
  gmtime_r(&seconds, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday,
                     parts.tm_hour, parts.tm_min, parts.tm_sec, at % 1000);
}

bool is_valid_id(std::string_view text) {
  if (text.empty() || text.size() > kLongestId || text[0] == '.') return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
  });
}

}  // namespace distsetup
