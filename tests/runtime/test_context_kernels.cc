// Attention of ranks that share sequences against that of one rank: each has the queries of its two chunks, and keys and values that
// are packed, gathered and sorted, or come round the ranks a piece at a time, as its program does it. On the CPU, and on a GPU where
// there is one ([.gpu]).
#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "runtime/device/cpu_device.h"
#include "runtime/device/plugin.h"
#include "runtime/engine/cpu_kernels.h"
#include "runtime/engine/ops.h"
#include "runtime/values.h"

namespace distsetup {
namespace {

struct SharedShape {
  int64_t B, S, a, kv, d;  // S: of whole sequences
  int cp;
  int64_t window = 0;
};

// Runs kernels on operands that lie on the host.
class Runner {
 public:
  Runner(Device& device, Dtype compute) : device_(device), compute_(compute) {}

  OpContext context(const SharedShape& s, int cp, int index) const {
    OpContext x;
    x.B = s.B, x.S = s.S / cp, x.T = s.B * x.S, x.a = s.a, x.kv = s.kv, x.d = s.d;
    x.cp = cp, x.cp_index = index, x.compute = compute_;
    return x;
  }

  struct Operand {
    std::vector<float>* values;
    int64_t columns;
    bool f32 = false;  // whatever the compute type
  };
  void run(const std::string& kernel, const OpContext& x, const OpAttributes& attributes, const std::vector<Operand>& reads,
           const std::vector<Operand>& writes) {
    Call call;
    call.context = &x, call.attributes = &attributes;
    std::vector<std::unique_ptr<DeviceMemory>> memory;
    const auto argument = [&](const Operand& o) {
      for (size_t i = 0; i < known_.size(); ++i)
        if (known_[i].first == o.values) return known_[i].second;
      Argument a;
      a.dtype = o.f32 ? Dtype::kF32 : compute_;
      a.shape = {int64_t(o.values->size()) / o.columns, o.columns};
      memory.push_back(device_.allocate(num_bytes(a), 0));
      a.data = memory.back()->data();
      upload(*o.values, a);
      known_.push_back({o.values, a});
      return a;
    };
    for (const Operand& o : reads) call.reads.push_back(argument(o));
    for (const Operand& o : writes) call.writes.push_back(argument(o));
    const std::string why_not = device_.kernels().bind(kernel, call);
    REQUIRE(why_not == "");
    call.function(call);
    device_.synchronize();
    for (size_t i = 0; i < writes.size(); ++i) download(call.writes[i], *writes[i].values);
    known_.clear();
  }

 private:
  void upload(const std::vector<float>& values, const Argument& a) {
    if (a.dtype == Dtype::kF32) return device_.copy_to_device(a.data, values.data(), num_bytes(a));
    std::vector<Bf16> rounded(values.size());
    for (size_t i = 0; i < values.size(); ++i) from_float(values[i], &rounded[i]);
    device_.copy_to_device(a.data, rounded.data(), num_bytes(a));
    device_.synchronize();
  }
  void download(const Argument& a, std::vector<float>& values) {
    if (a.dtype == Dtype::kF32) return device_.copy_to_host(values.data(), a.data, num_bytes(a));
    std::vector<Bf16> rounded(values.size());
    device_.copy_to_host(rounded.data(), a.data, num_bytes(a));
    for (size_t i = 0; i < values.size(); ++i) values[i] = to_float(rounded[i]);
  }

  Device& device_;
  const Dtype compute_;
  std::vector<std::pair<std::vector<float>*, Argument>> known_;  // of this call: what is updated in place is one operand
};

std::vector<float> random_rows(int64_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(n));
  for (float& v : values) v = normal(random);
  return values;
}

struct AttentionResult {
  std::vector<float> att, dqkv;  // of whole sequences
};

AttentionResult of_one_rank(Runner& runner, const SharedShape& s, std::vector<float> qkv, std::vector<float> datt) {
  const OpContext x = runner.context(s, 1, 0);
  const int64_t width = (s.a + 2 * s.kv) * s.d;
  OpAttributes attributes;
  attributes.window = s.window;
  AttentionResult r{std::vector<float>(size_t(x.T * s.a * s.d)), std::vector<float>(qkv.size())};
  std::vector<float> lse(size_t(x.T * s.a));
  runner.run("attention", x, attributes, {{&qkv, width}}, {{&r.att, s.a * s.d}, {&lse, s.a, true}});
  runner.run("attention_backward", x, attributes, {{&datt, s.a * s.d}, {&qkv, width}, {&r.att, s.a * s.d}, {&lse, s.a, true}},
             {{&r.dqkv, width}});
  return r;
}

std::vector<float> rows_of(const std::vector<float>& whole, const SharedShape& s, int rank) {
  const Positions own = own_positions(s.S, s.cp, rank);
  const int64_t width = int64_t(whole.size()) / (s.B * s.S);
  std::vector<float> mine;
  for (int64_t b = 0; b < s.B; ++b)
    for (int64_t row = 0; row < own.rows; ++row) {
      const auto from = whole.begin() + (b * s.S + own.at(row)) * width;
      mine.insert(mine.end(), from, from + width);
    }
  return mine;
}
void put_rows(const std::vector<float>& mine, const SharedShape& s, int rank, std::vector<float>& whole) {
  const Positions own = own_positions(s.S, s.cp, rank);
  const int64_t width = int64_t(whole.size()) / (s.B * s.S);
  for (int64_t t = 0; t < s.B * own.rows; ++t) {
    const int64_t to = t / own.rows * s.S + own.at(t % own.rows);
    std::copy_n(mine.begin() + t * width, width, whole.begin() + to * width);
  }
}

AttentionResult of_all_ranks(Runner& runner, const SharedShape& s, const std::vector<float>& qkv, const std::vector<float>& datt) {
  const int64_t T = s.B * s.S / s.cp, width = (s.a + 2 * s.kv) * s.d, kv_width = 2 * s.kv * s.d, q_width = s.a * s.d;
  OpAttributes attributes;
  attributes.window = s.window;
  std::vector<float> kv_all;
  for (int r = 0; r < s.cp; ++r) {
    std::vector<float> mine = rows_of(qkv, s, r), kv(size_t(T * kv_width));
    runner.run("kv_pack", runner.context(s, s.cp, r), attributes, {{&mine, width}}, {{&kv, kv_width}});
    kv_all.insert(kv_all.end(), kv.begin(), kv.end());
  }
  AttentionResult result{std::vector<float>(datt.size()), std::vector<float>(qkv.size())};
  std::vector<float> dkv_sum(kv_all.size());
  std::vector<std::vector<float>> dq;
  for (int r = 0; r < s.cp; ++r) {
    const OpContext x = runner.context(s, s.cp, r);
    std::vector<float> mine = rows_of(qkv, s, r), d = rows_of(datt, s, r), kv_seq(kv_all.size()), att(size_t(T * q_width), NAN),
                       lse(size_t(T * s.a), NAN), dqkv(mine.size(), NAN), dkv_seq(kv_all.size(), NAN), dkv_all(kv_all.size());
    runner.run("kv_sort", x, attributes, {{&kv_all, kv_width}}, {{&kv_seq, kv_width}});
    runner.run("attention_shared", x, attributes, {{&mine, width}, {&kv_seq, kv_width}}, {{&att, q_width}, {&lse, s.a, true}});
    runner.run("attention_shared_backward", x, attributes,
               {{&d, q_width}, {&mine, width}, {&kv_seq, kv_width}, {&att, q_width}, {&lse, s.a, true}},
               {{&dqkv, width}, {&dkv_seq, kv_width}});
    runner.run("kv_sort_backward", x, attributes, {{&dkv_seq, kv_width}}, {{&dkv_all, kv_width}});
    for (size_t i = 0; i < dkv_sum.size(); ++i) dkv_sum[i] += dkv_all[i];
    put_rows(att, s, r, result.att);
    dq.push_back(std::move(dqkv));
  }
  for (int r = 0; r < s.cp; ++r) {
    std::vector<float> dkv(dkv_sum.begin() + r * T * kv_width, dkv_sum.begin() + (r + 1) * T * kv_width);
    std::vector<float>& dqkv = dq[size_t(r)];
    runner.run("kv_pack_backward", runner.context(s, s.cp, r), attributes, {{&dkv, kv_width}, {&dqkv, width}}, {{&dqkv, width}});
    put_rows(dqkv, s, r, result.dqkv);
  }
  return result;
}

// Step by step, all ranks at each.
AttentionResult of_a_ring(Runner& runner, const SharedShape& s, const std::vector<float>& qkv, const std::vector<float>& datt) {
  const int64_t T = s.B * s.S / s.cp, width = (s.a + 2 * s.kv) * s.d, kv_width = 2 * s.kv * s.d, q_width = s.a * s.d;
  struct RingRank {
    OpContext x;
    std::vector<float> qkv, datt, kv, sum, sum_lse, att, lse, dq, dkv, dqkv;
  };
  std::vector<RingRank> ranks(size_t(s.cp));
  OpAttributes attributes;
  attributes.window = s.window;
  for (int r = 0; r < s.cp; ++r) {
    RingRank& own = ranks[size_t(r)];
    const auto nothing = [&](int64_t columns) { return std::vector<float>(size_t(T * columns), NAN); };
    own = {runner.context(s, s.cp, r), rows_of(qkv, s, r), rows_of(datt, s, r), nothing(kv_width), nothing(q_width), nothing(s.a),
           nothing(q_width),           nothing(s.a),       nothing(q_width),    nothing(kv_width), nothing(width)};
    runner.run("kv_pack", own.x, attributes, {{&own.qkv, width}}, {{&own.kv, kv_width}});
  }
  using Operands = std::vector<Runner::Operand>;
  const auto each_rank = [&](int step, const auto& use) {
    attributes.ring_step = step;
    for (int r = 0; r < s.cp; ++r) use(ranks[size_t(r)], ranks[size_t((r - step + s.cp) % s.cp)]);
  };
  for (int step = 0; step < s.cp; ++step) {
    each_rank(step, [&](RingRank& own, RingRank& owner) {
      const bool is_last = step + 1 == s.cp;
      const Operands so_far = {{&own.sum, q_width, true}, {&own.sum_lse, s.a, true}};
      Operands reads = {{&own.qkv, width}, {&owner.kv, kv_width}};
      if (step > 0) reads.insert(reads.end(), so_far.begin(), so_far.end());
      runner.run(step == 0 ? "ring_attention_first"
                 : is_last ? "ring_attention_last"
                           : "ring_attention",
                 own.x, attributes, reads, is_last ? Operands{{&own.att, q_width}, {&own.lse, s.a, true}} : so_far);
    });
  }
  for (int step = 1; step <= s.cp; ++step) {
    each_rank(step % s.cp, [&](RingRank& own, RingRank& owner) {
      const bool is_last = step == s.cp;
      const Operands so_far = {{&own.dq, q_width, true}, {&owner.dkv, kv_width, true}};
      Operands reads = {{&own.datt, q_width}, {&own.qkv, width}, {&owner.kv, kv_width}, {&own.att, q_width}, {&own.lse, s.a, true}};
      if (step > 1) reads.insert(reads.end(), so_far.begin(), so_far.end());
      std::vector<float> dkv(own.kv.size(), NAN);
      runner.run(step == 1 ? "ring_attention_backward_first"
                 : is_last ? "ring_attention_backward_last"
                           : "ring_attention_backward",
                 own.x, attributes, reads, is_last ? Operands{{&own.dqkv, width}, {&dkv, kv_width}} : so_far);
      if (is_last) runner.run("kv_pack_backward", own.x, attributes, {{&dkv, kv_width}, {&own.dqkv, width}}, {{&own.dqkv, width}});
    });
  }
  AttentionResult result{std::vector<float>(datt.size()), std::vector<float>(qkv.size())};
  for (int r = 0; r < s.cp; ++r) {
    put_rows(ranks[size_t(r)].att, s, r, result.att);
    put_rows(ranks[size_t(r)].dqkv, s, r, result.dqkv);
  }
  return result;
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double worst = a.size() == b.size() ? 0 : 1e9, largest = 1;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    const double e = std::abs(double(a[i]) - double(b[i]));
    worst = e <= 1e9 ? std::max(worst, e) : 1e9;  // NaN too
    largest = std::max(largest, std::abs(double(b[i])));
  }
  return worst / largest;
}

void compare(Device& device, Dtype compute, const SharedShape& s, double close) {
  INFO("B " << s.B << " S " << s.S << " a " << s.a << " kv " << s.kv << " d " << s.d << " cp " << s.cp << " window " << s.window);
  Runner runner(device, compute);
  const int64_t width = (s.a + 2 * s.kv) * s.d;
  const std::vector<float> qkv = random_rows(s.B * s.S * width, 1), datt = random_rows(s.B * s.S * s.a * s.d, 2);
  const AttentionResult one = of_one_rank(runner, s, qkv, datt);
  const auto check = [&](const AttentionResult& all) {
    CHECK(largest_difference(all.att, one.att) < close);
    CHECK(largest_difference(all.dqkv, one.dqkv) < close);
  };
  if (device.host_memory() || s.window == 0 || compute != Dtype::kF32) check(of_all_ranks(runner, s, qkv, datt));  // else refused
  if (device.host_memory() || s.window == 0) check(of_a_ring(runner, s, qkv, datt));
}

// Chunks of several sizes, blocks of keys with tails, grouped queries, windows shorter and longer than a chunk.
SharedShape any_shape() {
  return GENERATE(SharedShape{1, 16, 2, 2, 8, 2}, SharedShape{3, 24, 4, 2, 16, 3}, SharedShape{2, 64, 4, 1, 8, 4},
                  SharedShape{1, 400, 6, 2, 32, 2}, SharedShape{2, 96, 4, 2, 16, 2, 7}, SharedShape{1, 256, 2, 1, 64, 4, 100},
                  SharedShape{2, 512, 4, 2, 64, 2});
}

TEST_CASE("ranks that share sequences attend as one rank does", "[cp]") {
  const SharedShape s = any_shape();
  const std::unique_ptr<Device> device = make_cpu_device();
  compare(*device, Dtype::kF32, s, 2e-6);
  compare(*device, Dtype::kBf16, s, 2e-2);
}

TEST_CASE("gpu: ranks that share sequences attend as one rank does", "[.gpu]") {
  static const std::unique_ptr<Device> device = load_cuda_device(0);
  const SharedShape s = any_shape();
  compare(*device, Dtype::kF32, s, 2e-6);
  compare(*device, Dtype::kBf16, s, 2e-2);
}

}  // namespace
}  // namespace distsetup
