// The order of roundings is that of bitsandbytes 0.50 in plain PyTorch (backends/default/ops.py): a full block is multiplied by the
// inverse of its largest value, a short one divided by it, and the nearest number is taken. Its CUDA kernels do the same; its CPU code
// looks the number of a scale up in a table of 65,536 rows, and where a scale lies between two numbers it may take the other one. The
// mean of the scales is summed in fp64 and rounded once; PyTorch's sum in fp32 may end at the number beside it.
#include "weights/nf4.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace distsetup {
namespace {

template <size_t N>
constexpr std::array<float, N - 1> middles(const std::array<float, N>& values) {
  std::array<float, N - 1> out{};
  for (size_t i = 0; i + 1 < N; ++i) out[i] = (values[i] + values[i + 1]) / 2;
  return out;
}
constexpr auto kWeightBounds = middles(kNf4Weights);
constexpr auto kScaleBounds = middles(kNf4Scales);

template <size_t N>
uint8_t nearest(const std::array<float, N>& bounds, float value) {
  return static_cast<uint8_t>(std::lower_bound(bounds.begin(), bounds.end(), value) - bounds.begin());
}

// Values brought into [-1, 1] by their largest one.
class ScaledBlock {
 public:
  ScaledBlock(std::span<const float> values, int64_t full_size)
      : values_(values), is_full_(static_cast<int64_t>(values.size()) == full_size) {
    constexpr float kLeast = 1e-38F;  // what zeros are divided by
    for (const float v : values) largest_ = std::max(largest_, std::fabs(v));
    divisor_ = std::max(largest_, kLeast);
    inverse_ = 1.0F / divisor_;
  }
  float at(size_t i) const { return std::clamp(is_full_ ? values_[i] * inverse_ : values_[i] / divisor_, -1.0F, 1.0F); }
  float scale() const { return is_full_ ? largest_ : divisor_; }

 private:
  const std::span<const float> values_;
  const bool is_full_;
  float largest_ = 0, divisor_ = 0, inverse_ = 0;
};

float float_at(const uint8_t* record, int64_t at) {
  float value = 0;
  std::memcpy(&value, record + at, sizeof(value));
  return value;
}

}  // namespace

Nf4Writer::Nf4Writer(int64_t numel) : record_(nf4_record(numel)), bytes_(static_cast<size_t>(record_.num_bytes), uint8_t{0}) {
  scales_.reserve(static_cast<size_t>(record_.num_scales));
}

void Nf4Writer::add_block(std::span<const float> values) {
  CHECK(static_cast<int64_t>(scales_.size()) < record_.num_scales, "more than {} weights", record_.numel);
  const ScaledBlock block(values, kNf4Block);
  uint8_t* const to = bytes_.data() + static_cast<int64_t>(scales_.size()) * kNf4Block / 2;
  for (size_t i = 0; i < values.size(); i += 2) {
    const uint8_t first = nearest(kWeightBounds, block.at(i));
    const uint8_t second = nearest(kWeightBounds, i + 1 < values.size() ? block.at(i + 1) : 0.0F);
    to[i / 2] = static_cast<uint8_t>(first << 4 | second);
  }
  scales_.push_back(block.scale());
}

void Nf4Writer::add(std::span<const float> weights) {
  constexpr auto kFull = static_cast<size_t>(kNf4Block);
  while (!weights.empty()) {
    const size_t count = std::min(kFull - rest_.size(), weights.size());
    if (count == kFull) {
      add_block(weights.first(count));
    } else {
      rest_.insert(rest_.end(), weights.begin(), weights.begin() + static_cast<std::ptrdiff_t>(count));
      if (rest_.size() == kFull) add_block(std::exchange(rest_, {}));
    }
    weights = weights.subspan(count);
  }
}

std::vector<uint8_t> Nf4Writer::finish() {
  if (!rest_.empty()) add_block(std::exchange(rest_, {}));
  CHECK(static_cast<int64_t>(scales_.size()) == record_.num_scales, "{} blocks of {}", scales_.size(), record_.num_scales);
  double sum = 0;
  for (const float s : scales_) sum += static_cast<double>(s);
  const auto mean = static_cast<float>(sum / static_cast<double>(std::max<int64_t>(1, record_.num_scales)));
  for (float& s : scales_) s -= mean;
  for (int64_t i = 0; i < record_.num_ranges; ++i) {
    const int64_t begin = i * kNf4Range, count = std::min(kNf4Range, record_.num_scales - begin);
    const ScaledBlock block({scales_.data() + begin, static_cast<size_t>(count)}, kNf4Range);
    for (int64_t k = 0; k < count; ++k)
      bytes_[static_cast<size_t>(record_.scales_at + begin + k)] = nearest(kScaleBounds, block.at(static_cast<size_t>(k)));
    const float range = block.scale();
    std::memcpy(bytes_.data() + record_.ranges_at + 4 * i, &range, sizeof(range));
  }
  std::memcpy(bytes_.data() + record_.mean_at, &mean, sizeof(mean));
  return std::move(bytes_);
}

std::vector<uint8_t> nf4_part(const std::vector<uint8_t>& whole, const Nf4Record& of_whole, const Nf4Record& of_part,
                              const std::array<int32_t, 3>& part) {
  CHECK(of_part.part_at >= 0 && of_part.num_ranges == of_whole.num_ranges && of_part.numel % kNf4Block == 0, "{} of {} weights",
        of_part.numel, of_whole.numel);
  std::vector<uint8_t> bytes(static_cast<size_t>(of_part.num_bytes), uint8_t{0});
  constexpr int64_t kNibbles = kNf4Block / 2;
  for (int64_t b = 0; b < of_part.num_scales; ++b) {
    const int64_t from = nf4_whole_block(part.data(), b);
    CHECK(from >= 0 && from < of_whole.num_scales, "block {} of {}", from, of_whole.num_scales);
    std::copy_n(whole.data() + from * kNibbles, kNibbles, bytes.data() + b * kNibbles);
    bytes[static_cast<size_t>(of_part.scales_at + b)] = whole[static_cast<size_t>(of_whole.scales_at + from)];
  }
  std::copy_n(whole.data() + of_whole.ranges_at, 4 * of_whole.num_ranges, bytes.data() + of_part.ranges_at);
  std::copy_n(whole.data() + of_whole.mean_at, 4, bytes.data() + of_part.mean_at);
  std::memcpy(bytes.data() + of_part.part_at, part.data(), sizeof(part));
  return bytes;
}

void read_nf4_blocks(const uint8_t* record, const Nf4Record& of, int64_t begin, int64_t end, float* to) {
  const float mean = float_at(record, of.mean_at);
  std::array<int32_t, 3> part = {0, 1, 1};
  if (of.part_at >= 0) std::memcpy(part.data(), record + of.part_at, sizeof(part));
  for (int64_t block = begin; block < end; ++block) {
    const float range = float_at(record, of.ranges_at + 4 * (nf4_whole_block(part.data(), block) / kNf4Range));
    const float scaled = kNf4Scales[record[of.scales_at + block]] * range;
    const float scale = scaled + mean;
    const int64_t first = block * kNf4Block, count = std::min(kNf4Block, of.numel - first);
    const uint8_t* const nibbles = record + first / 2;
    float* const out = to + (block - begin) * kNf4Block;
    for (int64_t i = 0; i < count; ++i) out[i] = kNf4Weights[i % 2 == 0 ? nibbles[i / 2] >> 4 : nibbles[i / 2] & 15] * scale;
  }
}

}  // namespace distsetup
