// A rank's flat shards (master, gradient, the optimizer's states) as the host sees them: the memory itself where it is the host's,
// else copies. States that are held in 8 bits are copies too, in fp32.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "plan/optimizer.h"
#include "runtime/device/device.h"
#include "runtime/engine/bind.h"

namespace distsetup {

class HostShards {
 public:
  HostShards(const RankMemory& memory, Device& device, const StateSizes& sizes, const TrainPlan& train);
  std::span<float> of(const std::string& name) { return of(name, numel_); }  // master or gradient; valid until forget()
  std::span<float> unread(const std::string& name);  // as of(), to be written whole: nothing is copied from the device
  std::vector<StateValues> optimizer_states();       // as of()
  void clear_states();                               // zeros, where the states are
  // Room for a copy of master and states: the run buffer of that name (schedule.h), or where there is none memory of the host. Empty
  // unless the run saves beside training.
  std::span<float> checkpoint_copy(bool is_async);
  void upload();  // what has been written into copies
  void forget();  // a step changes what is on the device

 private:
  struct Mirror {
    std::unique_ptr<float[]> values;
    int64_t numel = 0;
    bool valid = false;
    std::span<float> span() const { return {values.get(), static_cast<size_t>(numel)}; }
  };
  std::span<float> of(const std::string& name, int64_t numel);
  Mirror& mirror_of(const std::string& name, int64_t numel);  // with room, of any age
  std::span<float> of_state(const OptimizerState& state);
  void download(void* to, const std::string& name, int64_t num_bytes);
  void upload(const std::string& name, const void* from, int64_t num_bytes);
  void upload_codes(const OptimizerState& state, const Mirror& mirror);
  const RankMemory& memory_;
  Device& device_;
  const StateSizes sizes_;
  const int64_t numel_;  // of the flat shard
  const std::vector<OptimizerState> states_;
  std::vector<float> checkpoint_copy_;
  std::map<std::string, Mirror, std::less<>> mirrors_;  // of states in 8 bits too
};

}  // namespace distsetup
