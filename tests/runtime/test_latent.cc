// Latent attention: its kernels on the CPU and, emulated, those of CUDA; and models with it on several ranks. What its programs
// compute is held against Transformers in tests/integration/families_all.sh.
#include "runtime/as_one_rank.h"
#include "runtime/emulated.h"
#include "runtime/expert_cases.h"
#include "runtime/kernels/cpu/latent.h"

#include "runtime/kernels/cuda/kernels_latent.cu"

#include <catch2/catch.hpp>

namespace distsetup {
namespace {

using namespace tiny;

// No two sizes are equal, so that one taken for another is seen.
constexpr LatentHeads kSizes = {3, 5, 6, 7, 9};

TEST_CASE("latent heads: backward is the transpose of forward", "[kernels][latent]") {
  const LatentHeads& s = kSizes;
  const auto q = random_values<float>(s.q_row(), 1), kv = random_values<float>(s.kv_row(), 2),
             ckv = random_values<float>(s.latent_row(), 3);
  const auto d = random_values<float>(s.packed_row(), 4);
  std::vector<float> qkv(d.size()), dq(q.size()), dkv(kv.size()), dckv(ckv.size(), 7.f);
  cpu::join_latent_heads(q.data(), kv.data(), ckv.data(), qkv.data(), s);
  cpu::split_latent_heads(d.data(), dq.data(), dkv.data(), dckv.data(), s);
  double forward = 0, backward = 0;
  for (size_t i = 0; i < d.size(); ++i) forward += double(d[i]) * double(qkv[i]);
  for (size_t i = 0; i < q.size(); ++i) backward += double(dq[i]) * double(q[i]);
  for (size_t i = 0; i < kv.size(); ++i) backward += double(dkv[i]) * double(kv[i]);
  for (int64_t i = 0; i < s.latent_row(); ++i) {
    if (i < s.latent) CHECK(dckv[size_t(i)] == 7.f);  // the latent's own columns are not touched
    if (i >= s.latent) backward += double(dckv[size_t(i)]) * double(ckv[size_t(i)]);
  }
  CHECK(forward == Approx(backward).epsilon(1e-5));
  // the first head: its rotary elements come first, the even ones before the odd ones
  CHECK(qkv[1] == q[size_t(s.plain) + 2]);
  CHECK(qkv[size_t(s.rot / 2)] == q[size_t(s.plain) + 1]);
  CHECK(qkv[size_t(s.rot)] == q[0]);
  CHECK(qkv[size_t(2 * s.q_row() + s.value)] == 0);
}

TEMPLATE_TEST_CASE("cuda: latent heads", "[cuda_kernels][latent]", float, Bf16, F16) {
  const LatentHeads& s = kSizes;
  const int64_t T = 5;
  const auto q = random_values<TestType>(T * s.q_row(), 1), kv = random_values<TestType>(T * s.kv_row(), 2);
  const auto ckv = random_values<TestType>(T * s.latent_row(), 3), d = random_values<TestType>(T * s.packed_row(), 4);
  std::vector<TestType> qkv(d.size()), dq(q.size()), dkv(kv.size()), dckv = ckv;
  for (int64_t t = 0; t < T; ++t) {
    cpu::join_latent_heads(q.data() + t * s.q_row(), kv.data() + t * s.kv_row(), ckv.data() + t * s.latent_row(),
                           qkv.data() + t * s.packed_row(), s);
    cpu::split_latent_heads(d.data() + t * s.packed_row(), dq.data() + t * s.q_row(), dkv.data() + t * s.kv_row(),
                            dckv.data() + t * s.latent_row(), s);
  }
  same_in_both_orders([&] {
    std::vector<TestType> qkv2(qkv.size()), dq2(dq.size()), dkv2(dkv.size()), dckv2 = ckv;
    cuda::join_latent_heads(kElement<TestType>, q.data(), kv.data(), ckv.data(), qkv2.data(), T, s, nullptr);
    cuda::split_latent_heads(kElement<TestType>, d.data(), dq2.data(), dkv2.data(), dckv2.data(), T, s, nullptr);
    CHECK(difference(qkv2, qkv) == 0);
    CHECK(difference(dq2, dq) == 0);
    CHECK(difference(dkv2, dkv) == 0);
    CHECK(difference(dckv2, dckv) == 0);
    std::vector<TestType> cut(size_t(T * s.num * s.value)), back(size_t(T * s.q_row()), TestType{});
    cuda::resize_heads(kElement<TestType>, q.data(), cut.data(), T, s.num, s.size(), s.value, nullptr);
    cuda::resize_heads(kElement<TestType>, cut.data(), back.data(), T, s.num, s.value, s.size(), nullptr);
    for (int64_t i = 0; i < T * s.q_row(); ++i)
      CHECK(to_float(back[size_t(i)]) == (i % s.size() < s.value ? to_float(q[size_t(i)]) : 0.f));
    return bytes_of(qkv2, dq2, dkv2, dckv2, cut, back);
  });
}

TEST_CASE("latent attention trains on every mesh as on one rank", "[latent][all]") {
  struct Mesh {
    std::string name;
    Sharding sharding;
    int shard, cp = 1, pp = 1;
    CpMethod method = CpMethod::kAllGather;
    int tp = 1, ep = 1;
  };
  for (const std::string which : {"deepseek_v2", "deepseek_v3"})
    for (const Mesh& m :
         {Mesh{"zero3 2", Sharding::kZero3, 2}, Mesh{"zero1 2 x cp 2", Sharding::kZero1, 2, 2},
          Mesh{"ulysses 2", Sharding::kDdp, 1, 2, 1, CpMethod::kUlysses}, Mesh{"ring 2", Sharding::kDdp, 1, 2, 1, CpMethod::kRing},
          Mesh{"zero2 2 x pp 2", Sharding::kZero2, 2, 1, 2}, Mesh{"tp 2", Sharding::kZero1, 1, 1, 1, CpMethod::kAllGather, 2},
          Mesh{"zero3 2 x tp 2, ep 2", Sharding::kZero3, 2, 1, 1, CpMethod::kAllGather, 2, 2},
          Mesh{"ring 2 x tp 2", Sharding::kZero2, 1, 2, 1, CpMethod::kRing, 2},
          Mesh{"ulysses 2 x tp 2, ep 4", Sharding::kDdp, 1, 2, 1, CpMethod::kUlysses, 2, 4},
          Mesh{"pp 2 x tp 2", Sharding::kZero3, 1, 1, 2, CpMethod::kAllGather, 2}}) {
      INFO(which << " " << m.name);
      TinyOptions o;
      o.geometry = latent_geometry(which);
      o.steps = 4;
      o.accumulation = 2;
      if (m.tp > 1) o.geometry.feed_forward = 38;
      if (m.ep == 4) o.geometry.num_experts = 4, o.geometry.router_groups = o.geometry.router_groups_chosen = 1;
      o.tp = m.tp, o.ep = m.ep;
      o.sharding = m.sharding, o.shard = m.shard, o.cp = m.cp, o.pp = m.pp, o.cp_method = m.method;
      check_as_one_rank(o, {m.pp > 1 ? Recompute::kFull : Recompute::kSelective});
    }
}

TEST_CASE("adapters beside latents that tensor-parallel ranks gather train as on one rank", "[latent]") {
  for (const std::string which : {"deepseek_v2", "deepseek_v3"})
    for (const std::string target : {"kv_b_proj", "kv_a_proj_with_mqa", "o_proj"}) {
      INFO(which << " " << target);
      TinyOptions o;
      o.geometry = latent_geometry(which);
      o.geometry.feed_forward = 38;
      o.targets = {target}, o.rank = 2;
      o.steps = 4;
      o.sharding = Sharding::kZero3, o.shard = 2, o.tp = 2;
      check_as_one_rank(o, {Recompute::kSelective, Recompute::kFull});
    }
}

}  // namespace
}  // namespace distsetup
