// Programs as data: what a block of each stack saves, in bytes per token by hand; the strict reader; and whole runs whose reserved
// memory a machine printed.
#include <catch2/catch.hpp>

#include "base/diagnostic_codes.h"
#include "base/value_yaml.h"
#include "planner/frameworks/fsdp_walk.h"
#include "planner/frameworks/memory.h"
#include "planner/replay/built_in_programs.h"
#include "planner/replay/kernel_file.h"
#include "planner/replay/program_facts.h"
#include "planner/replay/program_file.h"
#include "planner/replay/tape.h"

namespace distsetup {
namespace {

using namespace replay;

constexpr double kGib = 1024.0 * 1024 * 1024;

Geometry llama(int64_t hidden, int64_t feed_forward, int64_t heads, int64_t kv_heads, int64_t vocabulary, int64_t layers) {
  Geometry g;
  g.num_layers = layers;
  g.hidden = hidden;
  g.feed_forward = feed_forward;
  g.num_heads = heads;
  g.num_kv_heads = kv_heads;
  g.head_size = hidden / heads;
  g.vocabulary = vocabulary;
  return g;
}

Setup torchtitan(int64_t tokens) {
  Setup s;
  s.model = llama(4096, 14336, 32, 8, 128256, 32);
  s.gpu.vendor = "nvidia";
  s.gpu.peak_fp8_flops_per_s = 1.979e15;
  s.dp_shard = 8;
  s.sequence_length = tokens;
  s.recompute = ActivationRecompute::kOpSelective;
  s.software.last_block_stays_gathered = true;
  return s;
}

// What forward of a block leaves, without its output.
int64_t saved_per_token(const Setup& s, TraceMode mode) {
  const BlockProgram* program = find_program(s.program);
  REQUIRE(program != nullptr);
  SymbolValues symbols{};
  fill_symbols(s, symbols);
  const int64_t residual = symbols[static_cast<size_t>(Symbol::kResidualBytes)] * s.model.hidden * s.tokens();
  const Trace trace = trace_section(program->block, facts_of(s), symbols, std::vector<bool>(program->block.weights.size(), true),
                                    {mode, false, residual, false});
  int64_t bytes = trace.input_freed_forward ? 0 : residual;
  for (const Event& event : trace.forward) {
    if (event.kind == Event::Kind::kAllocate && event.slot != trace.output) bytes += event.bytes;
    if (event.kind == Event::Kind::kFree) bytes -= event.bytes;
  }
  return bytes / s.tokens();
}

double gib(int64_t bytes) { return static_cast<double>(bytes) / kGib; }

}  // namespace

TEST_CASE("replay programs: torchtitan's eager block saves what its tensors come to") {
  Setup s = torchtitan(8192);
  const int64_t h = 4096, A = 2 * 32 * 128, K = 2 * 8 * 128, F = 2 * 14336, lse = 4 * 32;
  CHECK(saved_per_token(s, TraceMode::kKeepAll) == 16 * h + 4 * A + 4 * F + lse);
  CHECK(saved_per_token(s, TraceMode::kOpSelective) == 2 * h + 2 * A + K + F + 2 * h + lse);
  CHECK(saved_per_token(s, TraceMode::kFull) == 2 * h);
  s.fused_norm = true;  // its bf16 input instead of two copies; one page of statistics per norm is less than a byte per token
  CHECK(saved_per_token(s, TraceMode::kKeepAll) == 2 * 4 * h + 4 * A + 4 * F + lse + 1);
}

TEST_CASE("replay programs: a compiled block keeps no fp32 copies") {
  Setup s = torchtitan(8192);
  s.program = "torchtitan_compiled";
  const int64_t h = 4096, A = 2 * 32 * 128, K = 2 * 8 * 128, F = 2 * 14336, lse = 4 * 32, rstd = 4;
  CHECK(saved_per_token(s, TraceMode::kKeepAll) == 8 * h + 4 * A + 3 * F + lse + 2 * rstd);  // x and h1 among them
  CHECK(saved_per_token(s, TraceMode::kOpSelective) == 2 * h + 2 * A + K + F + lse);
}

TEST_CASE("replay programs: one compiled graph of a whole script keeps fp32 residuals under autocast, and 16-bit logits") {
  Setup s = torchtitan(8192);
  s.program = "unknown_compiled";
  s.compiled = true;
  s.loss = LossHead::kCompiled;
  const int64_t h = 4096, A = 2 * 32 * 128, F = 2 * 14336, lse = 4 * 32, rstd = 4;
  CHECK(saved_per_token(s, TraceMode::kKeepAll) == 8 * h + 4 * A + 3 * F + lse + 2 * rstd);
  s.software.residual_in_fp32 = true;
  CHECK(saved_per_token(s, TraceMode::kKeepAll) == 12 * h + 4 * A + 3 * F + lse + 2 * rstd);
  const auto most_in_head = [&] {
    SymbolValues symbols{};
    fill_symbols(s, symbols);
    const ProgramSection& head = find_program(s.program)->heads[static_cast<size_t>(s.loss)];
    const Trace trace = trace_section(head, facts_of(s), symbols, std::vector<bool>(head.weights.size(), true),
                                      {TraceMode::kKeepAll, false, 0, false});
    int64_t live = 0, most = 0;
    for (const auto* events : {&trace.forward, &trace.backward}) {
      for (const Event& event : *events) {
        if (event.kind == Event::Kind::kAllocate) live += event.bytes;
        if (event.kind == Event::Kind::kFree) live -= event.bytes;
        most = std::max(most, live);
      }
    }
    return most;
  };
  const int64_t alone = most_in_head();
  s.software.logits_kept = true;  // a gradient of zeros for them, and that of the loss, beside them: 6 bytes in place of 2
  CHECK(most_in_head() - alone == 4 * s.model.vocabulary * s.tokens());
}

TEST_CASE("replay programs: an MLP of two matrices keeps no gate") {
  Setup s = torchtitan(8192);
  const int64_t h = 4096, A = 2 * 32 * 128, F = 2 * 14336, lse = 4 * 32;
  s.model.gated_mlp = false;
  CHECK(saved_per_token(s, TraceMode::kKeepAll) == 16 * h + 4 * A + 2 * F + lse);
  s.program = "torchtitan_compiled";
  CHECK(saved_per_token(s, TraceMode::kKeepAll) == 8 * h + 4 * A + 2 * F + lse + 2 * 4);
}

TEST_CASE("replay programs: tensor parallelism splits heads and MLP of Transformers' modules, and neither norms nor sums") {
  Setup s = torchtitan(4096);
  s.program = "hf_eager";
  s.tp = 4;
  s.dp_shard = 2;
  const int64_t h = 4096, A = 2 * 32 * 128, K = 2 * 8 * 128, F = 2 * 14336, lse = 4 * 32;
  CHECK(saved_per_token(s, TraceMode::kKeepAll) == 16 * h + (2 * A + 2 * K + 4 * F + lse) / 4);
}

TEST_CASE("replay programs: capped logits of Hugging Face's models keep the hyperbolic tangent beside them") {
  for (const char* name : {"hf_eager", "hf_fused"}) {
    Setup s = torchtitan(4096);
    s.program = name;
    const auto kept = [&] {
      SymbolValues symbols{};
      fill_symbols(s, symbols);
      const ProgramSection& head = find_program(s.program)->heads[static_cast<size_t>(LossHead::kEager)];
      int64_t bytes = 0;
      for (const Event& event : trace_section(head, facts_of(s), symbols, std::vector<bool>(head.weights.size(), true),
                                              {TraceMode::kKeepAll, false, 2 * s.model.hidden * s.tokens(), false})
                                    .forward) {
        if (event.kind == Event::Kind::kAllocate) bytes += event.bytes;
        if (event.kind == Event::Kind::kFree) bytes -= event.bytes;
      }
      return bytes;
    };
    const int64_t as_they_are = kept();
    s.model.logit_soft_cap = 30;
    CHECK(kept() - as_they_are == 2 * s.model.vocabulary * s.tokens());
  }
}

TEST_CASE("replay programs: Hugging Face keeps kv heads as they are unless its release repeats them") {
  Setup s = torchtitan(4096);
  s.program = "hf_eager";
  const int64_t h = 4096, A = 2 * 32 * 128, K = 2 * 8 * 128, F = 2 * 14336, lse = 4 * 32;
  CHECK(saved_per_token(s, TraceMode::kKeepAll) == 16 * h + 2 * A + 2 * K + 4 * F + lse);
  s.software.kv_heads_repeated = true;
  CHECK(saved_per_token(s, TraceMode::kKeepAll) == 16 * h + 4 * A + 4 * F + lse);
}

TEST_CASE("replay programs: with adapters frozen matrices save nothing and each adapter its input") {
  Setup s = torchtitan(4096);
  s.program = "hf_eager";
  s.finetune = Finetune::kLora;
  s.lora.rank = 16;
  s.lora.query = s.lora.value = true;
  s.lora.dtype = Dtype::kBf16;
  const int64_t h = 4096, A = 2 * 32 * 128, K = 2 * 8 * 128, F = 2 * 14336, lse = 4 * 32;
  const BlockProgram* program = find_program("hf_eager");
  REQUIRE(program != nullptr);
  std::vector<bool> trained;
  for (const ProgramWeight& weight : program->block.weights) trained.push_back(weight.adapter);
  SymbolValues symbols{};
  fill_symbols(s, symbols);
  const Trace trace =
      trace_section(program->block, facts_of(s), symbols, trained, {TraceMode::kKeepAll, false, 2 * h * s.tokens(), false});
  int64_t bytes = 0, gradients = 0;
  for (const Event& event : trace.forward) {
    if (event.kind == Event::Kind::kAllocate && event.slot != trace.output) bytes += event.bytes;
    if (event.kind == Event::Kind::kFree) bytes -= event.bytes;
  }
  for (const Event& event : trace.backward) gradients += event.kind == Event::Kind::kWeightGradient ? 1 : 0;
  // two norms' fp32 copies; the normed input once for both adapters; their A's outputs; no product, no second normed input
  CHECK(bytes / s.tokens() == 2 * 4 * h + 2 * h + 2 * 2 * 16 + 2 * A + 2 * K + 3 * F + lse);
  CHECK(gradients == 4);
}

TEST_CASE("replay programs: autocast keeps a cast of every frozen matrix of another type until its backward") {
  Setup s = torchtitan(4096);
  s.program = "hf_eager";
  s.framework = Framework::kDdp;
  s.sharding = Sharding::kDdp;
  s.dp_shard = 1;
  s.recompute = ActivationRecompute::kNone;
  s.finetune = Finetune::kLora;
  s.lora.rank = 16;
  s.lora.query = s.lora.value = true;
  s.parameter_dtype = Dtype::kBf16;
  s.autocast = true;
  const auto allocated = [&](Dtype frozen) {
    s.frozen_dtype = frozen;
    return simulate_memory(s).allocated_bytes;
  };
  const int64_t block = 2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 14336 * 4096, matrices = 32 * block + 128256 * 4096;
  CHECK(gib(allocated(Dtype::kF16) - allocated(Dtype::kBf16)) == Approx(gib(2 * matrices)).epsilon(0.01));
  s.autocast = false;
  CHECK(allocated(Dtype::kF16) == allocated(Dtype::kBf16));
}

TEST_CASE("replay programs: a fused loss copies the logits without their last position until Transformers 4.49") {
  for (const char* name : {"hf_eager", "hf_fused"}) {
    Setup s = torchtitan(8192);
    s.program = name;
    s.recompute = ActivationRecompute::kFull;
    s.loss = LossHead::kFusedKernel;
    const int64_t now = simulate_memory(s).allocated_bytes;
    s.software.logits_shifted = true;
    // 8 bytes a logit; since then 6: the fp32 ones, whose gradient takes their place, and its cast
    CHECK(gib(simulate_memory(s).allocated_bytes - now) == Approx(gib(2 * int64_t{128256} * 8192)).epsilon(0.01));
  }
}

TEST_CASE("replay programs: a rank holds its own experts of Transformers' modules") {
  Setup s = torchtitan(1024);
  s.program = "hf_eager";
  s.recompute = ActivationRecompute::kFull;
  s.model.num_experts = 32;
  s.model.experts_per_token = 4;
  s.model.expert_feed_forward = 1024;
  s.software.lone_experts_apart = true;
  const auto of_experts = [&](int ep) {
    s.ep = ep;
    return bound_bytes(s);
  };
  CHECK(of_experts(8) == of_experts(1));  // a shard of all of them, or one of eight parts whole
  s.ep = 8;
  CHECK(simulate_memory(s).allocated_bytes < bound_bytes(s) + 16 * (int64_t{1} << 30));
}

TEST_CASE("replay programs: every program takes every loss that fits it and every family") {
  for (const std::string& id : program_ids()) {
    const BlockProgram* program = find_program(id);
    for (const bool gated : {true, false}) {
      for (const bool parallel : {true, false}) {
        for (size_t loss = 0; loss < program->heads.size(); ++loss) {
          if (program->heads[loss].ops.empty() || program->heads[loss].names.size() < 2) continue;
          Setup s = torchtitan(2048);
          s.program = id;
          s.loss = static_cast<LossHead>(loss);
          if (loss == static_cast<size_t>(LossHead::kVocabularyParallel)) continue;
          s.model.gated_mlp = gated;
          s.model.parallel_block = parallel && (id.starts_with("hf") || id.starts_with("litgpt"));
          s.model.norm = gated ? Norm::kRms : Norm::kLayer;
          s.model.qkv_bias = parallel;
          s.recompute = gated ? ActivationRecompute::kNone : ActivationRecompute::kFull;
          if (!gated && id.starts_with("torchtitan")) continue;
          INFO(id << " loss " << loss_name(s.loss));
          const MemoryEstimate estimate = replay_memory(s);
          CHECK(estimate.allocated_bytes > bound_bytes(s));
          CHECK(estimate.reserved_bytes >= estimate.allocated_bytes);
        }
      }
    }
  }
}

// Reserved GiB that torchtitan's log lines printed for Llama 3 8B on 8 H100 (commit messages and benchmarks of pytorch/torchtitan).
TEST_CASE("replay programs: reserved memory of published torchtitan runs") {
  Setup s = torchtitan(8192);
  s.optimizer_implementation = OptimizerImplementation::kForeach;
  s.software.expandable_segments = true;
  CHECK(gib(replay_memory(s).reserved_bytes) == Approx(49.59).epsilon(0.01));
  s.reshard_after_forward = false;
  s.software.last_block_stays_gathered = false;
  CHECK(gib(replay_memory(s).reserved_bytes) == Approx(62.18).epsilon(0.01));
  s.reshard_after_forward = true;
  s.optimizer_implementation = OptimizerImplementation::kFused;
  s.software.wrapping = UnitWrapping::kAllApart;
  CHECK(gib(replay_memory(s).reserved_bytes) == Approx(47.38).epsilon(0.01));
  s.program = "torchtitan_compiled";
  s.software.wrapping = UnitWrapping::kRoot;
  s.software.last_block_stays_gathered = true;
  CHECK(gib(replay_memory(s).reserved_bytes) == Approx(47.65).epsilon(0.01));
}

// Allocated GiB of fms-acceleration's benches (foundation-model-stack/fms-acceleration, scripts/benchmarks/refs).
TEST_CASE("replay programs: allocated memory of published Hugging Face runs") {
  Setup s;
  s.model = llama(4096, 14336, 32, 8, 32000, 32);
  s.gpu.vendor = "nvidia";
  s.program = "hf_eager";
  s.framework = Framework::kFsdp1;
  s.dp_shard = 4;
  s.sequence_length = 4096;
  s.micro_batch = 16;
  s.loss = LossHead::kLiger;
  s.recompute = ActivationRecompute::kFull;
  s.reentrant_checkpoint = true;
  s.reduce_dtype = Dtype::kBf16;
  s.optimizer_implementation = OptimizerImplementation::kForeach;
  s.software.kv_heads_repeated = true;
  s.fused_norm = true;
  CHECK(gib(replay_memory(s).allocated_bytes) == Approx(52.51).epsilon(0.002));
  s.loss = LossHead::kFusedKernel;
  s.software.logits_shifted = true;
  CHECK(gib(replay_memory(s).allocated_bytes) == Approx(53.36).epsilon(0.002));
  s.software.logits_shifted = false;

  s.framework = Framework::kDdp;
  s.sharding = Sharding::kDdp;
  s.dp_shard = 1;
  s.micro_batch = 8;
  s.fused_norm = false;
  s.loss = LossHead::kHfShift;
  s.software.low_precision_logits_kept = true;
  s.finetune = Finetune::kLora;
  s.parameter_dtype = Dtype::kBf16;
  s.lora.rank = 16;
  s.lora.query = s.lora.key = s.lora.value = s.lora.output = true;
  CHECK(gib(replay_memory(s).allocated_bytes) == Approx(36.08).epsilon(0.002));
  s.finetune = Finetune::kQlora;
  s.frozen_dtype = Dtype::kNf4Double;
  s.autocast = true;
  CHECK(gib(replay_memory(s).allocated_bytes) == Approx(26.46).epsilon(0.002));
}

TEST_CASE("replay programs: a mistake in a file is said at its place") {
  const auto kernels = std::make_shared<const KernelFile>(*kernels_from_value(
      *parse_yaml("kernels:\n  linear: {kind: gemm, reads: [x], writes: [out], weight: true, forward: \"+out\", backward: \"+dx=x "
                  "weight x<dx\"}\n  linear_quantized: {kind: gemm, reads: [x], writes: [out], weight: true, forward: \"+out\"}\n",
                  "kernels.yaml")));
  const auto problem = [&](const std::string& ops) {
    const std::string text = "embedding: {ops: []}\nblock:\n  weights: {w: {out: h, in: h}}\n  ops:\n" + ops + "head: {ops: []}\n";
    const Result<BlockProgram> program = program_from_value(*parse_yaml(text, "mine.yaml"), "mine", kernels);
    REQUIRE(!program.ok());
    REQUIRE(!program.diagnostics.empty());
    return program.diagnostics.front();
  };
  const Diagnostic unknown = problem("    - {kernel: liner, in: [x], out: [out], bytes: [h], weight: w}\n");
  CHECK(unknown.message.find("unknown kernel 'liner'") != std::string::npos);
  CHECK(unknown.location.file == "mine.yaml");
  CHECK(unknown.location.line == 5);
  CHECK(problem("    - {kernel: linear, in: [z], out: [out], bytes: [h], weight: w}\n").message == "no op before this one writes 'z'");
  CHECK(problem("    - {kernel: linear, in: [x], out: [out], bytes: [q*h], weight: w}\n").message == "size 'q*h': unknown symbol 'q'");
  CHECK(problem("    - {kernel: linear, in: [x], out: [out], weight: w}\n").message.find("found 0 sizes in 'bytes', expected 1") == 0);
  CHECK(problem("    - {kernel: linear, in: [x], out: [out], bytes: [h]}\n").message == "kernel 'linear' takes a weight");
  CHECK(problem("    - {drop: [x], when: sunny}\n").message == "unknown condition 'sunny'");
  CHECK(problem("    - {drop: [x], whem: gated}\n").code == code::kUnknownKey);
}

TEST_CASE("replay programs: sizes multiply out") {
  int64_t values[kFirstLocal + kMaxLocals] = {};
  values[static_cast<size_t>(Symbol::kHeads)] = 32;
  values[static_cast<size_t>(Symbol::kKvHeads)] = 8;
  values[static_cast<size_t>(Symbol::kTensorParallel)] = 4;
  const auto size = [&](const char* text) {
    SizeExpression out;
    std::string problem;
    INFO(text << ": " << problem);
    REQUIRE(parse_size(
        text, [](std::string_view name) { return symbol_index(name); }, out, problem));
    return out.evaluate(values);
  };
  CHECK(size("(a+2*kv)*2/t") == 24);
  CHECK(size("a-kv") == 24);
  CHECK(size("a/t/2") == 4);
  CHECK(size("7/2") == 3);
  SizeExpression out;
  std::string problem;
  CHECK(!parse_size(
      "a/(kv+t)", [](std::string_view name) { return symbol_index(name); }, out, problem));
}

}  // namespace distsetup
