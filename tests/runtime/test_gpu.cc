// On one GPU (tag [.gpu], run by scripts/test --gpu): whole training steps of the CUDA plugin against the CPU's, with memory poisoned,
// and what every op allocates against what is declared for it.
#include "plan/workspace.h"
#include "runtime/comm/nccl_api.h"
#include "runtime/device/plugin.h"
#include "runtime/on_gpu.h"

#include <catch2/catch.hpp>

namespace distsetup {
namespace {

using namespace tiny;

TEST_CASE("gpu: a run in fp32 is the CPU's, poisoned memory changes no bit", "[.gpu]") {
  const auto recompute = GENERATE(Recompute::kNone, Recompute::kSelective, Recompute::kKeepAttention, Recompute::kFull);
  const int64_t accumulation = GENERATE(1, 2);
  const bool plain = GENERATE(true, false);
  TinyOptions o = sized(64, 16);
  o.recompute = recompute;
  o.accumulation = accumulation;
  o.geometry.tied_embeddings = o.geometry.qkv_bias = o.geometry.qk_norm = !plain;
  INFO("recompute " << name(recompute) << " accumulation " << accumulation << (plain ? "" : " tied, biases, norms of q and k"));
  const Plan plan = tiny_plan(o);
  gpu();  // before libtorch is asked for anything
  const RunResult cpu = train(plan, 10), cuda = train_on_gpu(plan, 10), poisoned = train_on_gpu(plan, 10, true);
  CHECK(cuda == poisoned);
  CHECK(difference(cuda.losses, cpu.losses) < 1e-5);
  CHECK(difference(cuda.norms, cpu.norms) < 1e-4);
  CHECK(difference(cuda.parameters, cpu.parameters) < 1e-3);
  CHECK(std::abs(cuda.held_out - cpu.held_out) < 1e-5 * cpu.held_out);
}

TEST_CASE("gpu: every optimizer trains as on the CPU", "[.gpu]") {
  TinyOptions o = sized(64, 16);
  Plan plan = tiny_plan(o);
  plan.train.optimizer = GENERATE(as<std::string>(), "sgd", "lion", "adamw_8bit", "adafactor", "muon");
  plan.train.momentum = plan.train.optimizer == "sgd" ? 0.9 : 0;
  plan.train.learning_rate /= 10;  // a sign, or a code, may be another one
  INFO(plan.train.optimizer);
  gpu();
  const RunResult cpu = train(plan, 10), cuda = train_on_gpu(plan, 10), poisoned = train_on_gpu(plan, 10, true);
  CHECK(cuda == poisoned);
  CHECK(difference(cuda.losses, cpu.losses) < 1e-4);
  CHECK(difference(cuda.norms, cpu.norms) < 1e-3);
}

TEST_CASE("gpu: a run in bf16 stays near fp32, a deterministic one has the same bits again, also in poisoned memory", "[.gpu]") {
  const int64_t head_size = GENERATE(16, 64, 128);
  TinyOptions o = sized(256, head_size);
  o.sequence_length = GENERATE(40, 192, 640);
  o.geometry.qk_norm = head_size == 64;
  o.steps = 10;
  gpu();
  const RunResult exact = train(gentle_plan(o), 10);
  o.precision = Dtype::kBf16;
  Plan plan = gentle_plan(o);
  CHECK(difference(train_on_gpu(plan, 10).losses, exact.losses) < 2e-2);
  plan.train.deterministic = true;
  const RunResult cuda = train_on_gpu(plan, 10), again = train_on_gpu(plan, 10), poisoned = train_on_gpu(plan, 10, true);
  INFO("head size " << head_size << " S " << o.sequence_length);
  CHECK(cuda == again);
  CHECK(cuda == poisoned);
  CHECK(difference(cuda.losses, exact.losses) < 2e-2);
}

TEST_CASE("gpu: run buffers and arena are allocated to the byte, ops allocate what is declared", "[.gpu]") {
  const auto precision = GENERATE(Dtype::kF32, Dtype::kBf16);
  const auto [sequence_length, hidden] = GENERATE(table<int64_t, int64_t>({{40, 64}, {256, 256}, {1024, 512}}));
  TinyOptions o = sized(hidden, hidden / 4);
  o.geometry.num_kv_heads = GENERATE(2, 4);
  o.sequence_length = sequence_length;
  o.precision = precision;
  const Plan plan = on_gpu(tiny_plan(o));
  const auto self = make_self_communicator(plan.mesh);
  Device& device = gpu();
  const MeterReading before = read_meter();
  EngineOptions options;
  options.metered_steps = 2;
  Engine engine(plan, device, *self, options);
  engine.initialize_parameters();
  engine.load();
  const Schedule& list = engine.schedule(Phase::kStep);
  const Batch batch = global_batch(plan, 0);
  for (int s = 0; s < 2; ++s) {
    const StepStats stats = engine.step({batch.ids, batch.targets, batch.valid, 1e-3});
    for (const StepAllocation& a : stats.allocations) {
      const Step& step = list.steps[size_t(a.step)];
      const int64_t declared = workspace_bytes(step, list, Accelerator::kCuda);
      INFO(name(precision) << " S " << sequence_length << " h " << hidden << " step " << a.step << " " << step.op << " " << step.kernel
                           << ": " << a.peak_bytes << " taken, " << declared << " declared, " << a.num_allocations << " allocations");
      CHECK(a.peak_bytes <= declared);
      if (s == 1) UNSCOPED_INFO("second step");
    }
  }
  const MemoryReport report = engine.memory();
  for (int c = 0; c < kNumBufferClasses; ++c)
    CHECK(report.metered_bytes[size_t(c)] - before.live_by_tag[size_t(c)] == report.run_bytes[size_t(c)]);
  CHECK(report.metered_bytes[Device::kArenaTag] - before.live_by_tag[Device::kArenaTag] == list.arena_bytes);
  UNSCOPED_INFO("undeclared bytes that stay: " << report.metered_bytes[Device::kUndeclaredTag]);
  CHECK(report.metered_bytes[Device::kUndeclaredTag] <= 40 << 20);
}

// The real library, as far as one rank goes: what is sent to oneself and summed alone arrives.
TEST_CASE("gpu: NCCL's calls with one rank", "[.gpu]") {
  Device& device = gpu();  // brings the library with libtorch
  const nccl::Api api = nccl::load("");
  nccl::UniqueId id{};
  nccl::Comm comm = nullptr;
  REQUIRE(api.get_unique_id(&id) == nccl::kSuccess);
  REQUIRE(api.comm_init_rank(&comm, 1, id, 0) == nccl::kSuccess);
  constexpr size_t kCount = 1000;
  const auto from = device.allocate(kCount * 8, Device::kArenaTag), to = device.allocate(kCount * 8, Device::kArenaTag);
  std::vector<double> values(kCount), found(kCount);
  for (size_t i = 0; i < kCount; ++i) values[i] = double(i) * 0.5;
  device.copy_to_device(from->data(), values.data(), kCount * 8);
  void* const stream = device.native_stream(Stream::kCompute);
  const auto arrives = [&](const char* what, nccl::Status status) {
    INFO(what << " with NCCL " << api.version);
    CHECK(status == nccl::kSuccess);
    device.copy_to_host(found.data(), to->data(), kCount * 8);
    CHECK(found == values);
    device.fill(to->data(), 0xff, kCount * 8);
  };
  arrives("all-gather", api.all_gather(from->data(), to->data(), kCount * 8, nccl::kUint8, comm, stream));
  arrives("sum in fp64", api.all_reduce(from->data(), to->data(), kCount, nccl::kFloat64, nccl::kSum, comm, stream));
  arrives("sum in fp32", api.all_reduce(from->data(), to->data(), kCount * 2, nccl::kFloat32, nccl::kSum, comm, stream));
  REQUIRE(api.group_start() == nccl::kSuccess);
  CHECK(api.send(from->data(), kCount * 8, nccl::kUint8, 0, comm, stream) == nccl::kSuccess);
  CHECK(api.receive(to->data(), kCount * 8, nccl::kUint8, 0, comm, stream) == nccl::kSuccess);
  arrives("send and receive", api.group_end());
  nccl::Status late = nccl::kInProgress;
  CHECK(api.comm_get_async_error(comm, &late) == nccl::kSuccess);
  CHECK(late == nccl::kSuccess);
  CHECK(api.comm_destroy(comm) == nccl::kSuccess);
}

}  // namespace
}  // namespace distsetup
