#include "planner/frameworks/zero_host.h"

#include <algorithm>
#include <cmath>

#include "planner/frameworks/libraries.h"

namespace distsetup {

// zero/stage_1_and_2.py: master, its gradient and the 16-bit copy are pinned, moments are not. zero/stage3.py pins the gradient
// sub-group by sub-group, and the master not at all.
double host_optimizer_bytes(const Setup& s, double master, double moments) {
  const auto pinned = [&s](double bytes) {
    return s.offload.pin_memory ? static_cast<double>(pinned_bytes(static_cast<int64_t>(bytes))) : bytes;
  };
  const double group = std::min(master, 4 * kZeroSubGroup);
  if (s.offload.optimizer == OffloadPlace::kNvme) return pinned(4 * group);  // buffer_count 4 of the largest (offload_config.py)
  if (s.sharding != Sharding::kZero3) return 2 * pinned(master) + pinned(master / 2) + moments;
  const double groups = group > 0 ? std::floor(master / group) : 0;
  return master + groups * pinned(group) + pinned(master - groups * group) + pinned(master / 2) + moments;
}

// zero/stage3.py, _create_fp16_sub_groups and _create_fp32_partitions: parameters fill sub-groups of 1e9 elements, and the first
// int((1 - ratio) · number) of them stay. The Trainer has a group of parameters without weight decay, norms and biases: the last
// sub-group, of hardly any elements.
double optimizer_elements_on_device(const Setup& s, double share) {
  if (s.offload.optimizer == OffloadPlace::kNone || s.offload.optimizer_ratio >= 1) return 0;
  const double sub_groups = std::ceil(share / kZeroSubGroup) + (s.finetune == Finetune::kFull ? 1 : 0);
  return std::min(share, kZeroSubGroup * std::floor((1 - s.offload.optimizer_ratio) * sub_groups));
}

// zero/stage3.py, partition_grads: the rank's part of the gradient, 16-bit, comes back from the host's buffer to be added up and
// looked through, and its norm is taken in double precision, 250 million elements at a time (_constant_buffered_norm2).
double leaving_gradient_bytes(const Setup& s, double elements) {
  constexpr double kNormPiece = 2.5e8;
  if (s.sharding != Sharding::kZero3 || s.offload.optimizer == OffloadPlace::kNone) return 0;
  const double part = elements / (static_cast<double>(s.dp_shard) * s.cp);
  return bytes_of(s.parameter_dtype) * part + 8 * std::min(part, kNormPiece);
}

}  // namespace distsetup
