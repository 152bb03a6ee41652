// When each op of a step ran, on which stream: what `--profile` writes. On a device with streams these are times of the stream, found
// by events around every op (a step takes a little longer with them than without); on the CPU, of the host.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "plan/schedule.h"
#include "runtime/device/device.h"

namespace distsetup {

struct ProfiledOp {
  std::string name;  // "Forward 3/qkv micro-batch 0", "AllGather 4"
  Stream stream = Stream::kCompute;
  double begin_s = 0, seconds = 0;  // since the step began
};

class Profile {
 public:
  explicit Profile(Device& device);  // a step begins
  int begin(const Instruction& i, std::string_view program_op);
  void end(int op);
  std::vector<ProfiledOp> finish();  // waits for the device; in the order of the list

 private:
  struct Open {
    ProfiledOp op;
    int timer = -1;
  };
  Device& device_;
  std::vector<Open> ops_;
  int first_timer_ = -1;
  double first_s_ = 0;
};

// What is put on the instruction's stream in this scope; with no profile nothing happens.
class ProfileScope {
 public:
  ProfileScope(Profile* profile, const Instruction& i, std::string_view program_op = {})
      : profile_(profile), op_(profile != nullptr ? profile->begin(i, program_op) : -1) {}
  ~ProfileScope() {
    if (profile_ != nullptr) profile_->end(op_);
  }
  ProfileScope(const ProfileScope&) = delete;
  ProfileScope& operator=(const ProfileScope&) = delete;

 private:
  Profile* profile_;
  int op_;
};

}  // namespace distsetup
