#include "service/sibling_program.h"

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "base/json_text.h"
#include "base/own_program.h"
#include "base/subprocess.h"

namespace distsetup {
namespace {

constexpr int kMostAtOnce = 2;

// So many turns at once.
class Turns {
 public:
  bool take(double limit_s) {
    std::unique_lock lock(mutex_);
    if (!is_free_.wait_for(lock, std::chrono::duration<double>(limit_s), [this] { return num_taken_ < kMostAtOnce; })) return false;
    ++num_taken_;
    return true;
  }
  void give_back() {
    const std::lock_guard lock(mutex_);
    --num_taken_;
    is_free_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable is_free_;
  int num_taken_ = 0;
};

Turns& planning_turns() {
  static Turns turns;
  return turns;
}

}  // namespace

std::string sibling_program() { return (own_program().parent_path() / "distsetup").string(); }

Json SiblingAnswer::json() const {
  Json out = json_from_text(text);
  return out.is_discarded() ? Json() : out;
}

SiblingAnswer ask_sibling(const std::vector<std::string>& words, const std::string& folder, double limit_s) {
  if (!planning_turns().take(limit_s)) return {};
  std::vector<std::string> all = {sibling_program()};
  all.insert(all.end(), words.begin(), words.end());
  const Said said = run_program(all, limit_s, folder, Spawn::Errors::kDropped);
  planning_turns().give_back();
  return {said.started, said.code, said.text};
}

}  // namespace distsetup
