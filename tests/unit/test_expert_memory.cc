// Models with experts under FSDP, DDP and DeepSpeed: their weights are the model's to the integer, what a block saves per row is the
// hand-made sum of the tensors its framework's source keeps, and what is not planned is refused by name. No run of these was measured.
#include <catch2/catch.hpp>

#include "model/count.h"
#include "model/presets.h"
#include "planner/frameworks/fsdp.h"
#include "planner/frameworks/fsdp_walk.h"
#include "planner/frameworks/memory.h"
#include "planner/frameworks/validate.h"
#include "planner/replay/built_in_programs.h"
#include "planner/replay/program_facts.h"
#include "planner/replay/program_file.h"
#include "planner/replay/tape.h"
#include "planner/resolve/resolve.h"
#include "planner/time/step.h"
#include "support/presets.h"

using namespace distsetup;

namespace {

Setup setup_with_experts(const std::string& model, const std::string& program, Framework framework, int ranks) {
  Setup s;
  s.model = *find_model(presets(), model);
  s.gpu = find_gpu(presets(), "h100_sxm")->gpu;
  s.framework = framework;
  s.program = program;
  s.dp_shard = ranks;
  s.sequence_length = 1024;
  return s;
}

int64_t weights_of(const replay::ProgramSection& section, const Setup& s, bool experts = true) {
  replay::SymbolValues symbols{};
  replay::fill_symbols(s, symbols);
  int64_t elements = 0;
  for (const replay::ProgramWeight& weight : section.weights) {
    if (weight.when.holds(replay::facts_of_layer(replay::facts_of(s), experts)))
      elements += weight.out.evaluate(symbols) * weight.in.evaluate(symbols);
  }
  return elements;
}

int64_t saved_by_block(const Setup& s) {
  const replay::ProgramSection& block = replay::find_program(s.program)->block;
  replay::SymbolValues symbols{};
  replay::fill_symbols(s, symbols);
  const std::vector<bool> trained(block.weights.size(), true);
  const replay::TraceOptions options{replay::TraceMode::kKeepAll, false, 2 * s.model.hidden * s.tokens(), false};
  const replay::Trace trace = replay::trace_section(block, replay::facts_of(s), symbols, trained, options);
  int64_t bytes = 0;
  for (const replay::Event& event : trace.forward) {
    if (event.kind == replay::Event::Kind::kAllocate) bytes += event.bytes;
    if (event.kind == replay::Event::Kind::kFree) bytes -= event.bytes;
  }
  return bytes;
}

constexpr const char* kPrograms[] = {"hf_eager", "torchtitan_eager", "torchtitan_compiled"};

Result<Problem> resolved(std::vector<std::pair<std::string, std::string>> flags) {
  Spec spec;
  flags.emplace_back("gpu", "h100_sxm");
  flags.emplace_back("gpus", "8");
  for (const auto& [flag, value] : flags) REQUIRE_FALSE(has_error(set_flag(spec, flag, std::string_view(value), {"test", 0, 0})));
  return resolve(spec, presets(), {});
}

}  // namespace

TEST_CASE("experts: a program's weights are the model's parameters") {
  for (const char* model : {"mixtral_8x7b", "qwen3_30b_a3b", "deepseek_v2_lite", "deepseek_v2", "deepseek_v3"}) {
    for (const char* program : kPrograms) {
      INFO(model << " " << program);
      const Setup s = setup_with_experts(model, program, Framework::kFsdp2, 8);
      const replay::BlockProgram& blocks = *replay::find_program(program);
      int64_t elements = weights_of(blocks.embedding, s) + weights_of(blocks.heads[static_cast<size_t>(s.loss)], s);
      for (int64_t layer = 0; layer < s.model.num_layers; ++layer)
        elements += weights_of(blocks.block, s, is_expert_layer(s.model, layer));
      CHECK(elements == count_parameters(s.model).total);
    }
  }
}

// torchtitan's models/deepseek_v3, fused norms, a query without a latent: the input, its norm, the joined query and key, the latent
// and its norm, what keys and values are made from, the output of attention and its row sums.
TEST_CASE("latent attention: what a block saves per token") {
  Setup s = setup_with_experts("deepseek_v2_lite", "torchtitan_eager", Framework::kFsdp2, 8);
  s.fused_norm = true;
  const auto saved = [&] {
    const replay::ProgramSection& block = replay::find_program(s.program)->block;
    replay::SymbolValues symbols{};
    replay::fill_symbols(s, symbols);
    const replay::TraceOptions options{replay::TraceMode::kKeepAll, false, 2 * s.model.hidden * s.tokens(), false};
    const replay::Trace trace = replay::trace_section(block, replay::facts_of_layer(replay::facts_of(s), false), symbols,
                                                      std::vector<bool>(block.weights.size(), true), options);
    int64_t bytes = 0;
    for (const replay::Event& event : trace.forward) {
      if (event.kind == replay::Event::Kind::kAllocate && event.slot != trace.output) bytes += event.bytes;
      if (event.kind == replay::Event::Kind::kFree) bytes -= event.bytes;
    }
    return bytes;
  };
  const Geometry& g = s.model;
  const int64_t joined = g.num_heads * (g.qk_nope_head_size + g.qk_rope_head_size), latent = g.kv_lora_rank + g.qk_rope_head_size;
  const int64_t both = g.num_heads * (g.qk_nope_head_size + g.v_head_size), out = g.num_heads * g.v_head_size;
  const int64_t attention = 2 * (g.hidden + 2 * joined + 2 * latent + both + out) + 4 * g.num_heads;
  const int64_t mlp = 2 * (2 * g.hidden + 4 * g.feed_forward);  // the sum after attention, its norm; gate, its activation, up, product
  CHECK(saved() == (attention + mlp) * s.tokens() + 3 * 4096);
}

// The unit of the experts holds what their ranks share; the other weights are split over all.
TEST_CASE("expert parallelism: a rank of FSDP2 holds the same states at any ep and gathers its own experts alone") {
  const auto term = [](const MemoryEstimate& estimate, const char* name) {
    for (const MemoryTerm& one : estimate.terms)
      if (one.buffer_class == name) return static_cast<double>(one.bytes_max);
    return 0.0;
  };
  Setup s = setup_with_experts("deepseek_v2_lite", "torchtitan_eager", Framework::kFsdp2, 64);
  const auto even = 4.0 * static_cast<double>(count_parameters(s.model).total) / 64;
  double gathered = 1e300;
  for (const int ep : {1, 4, 16, 64}) {
    INFO("ep " << ep);
    s.ep = ep;
    REQUIRE_FALSE(has_error(validate(s)));
    const MemoryEstimate estimate = simulate_memory(s);
    CHECK(term(estimate, "parameter shard") == Approx(even).epsilon(0.002));
    CHECK(term(estimate, "gathered parameter") <= gathered * (ep == 4 ? 0.6 : 1));  // the head's from there on
    gathered = term(estimate, "gathered parameter");
    CHECK(replay_memory(s).allocated_bytes >= estimate.allocated_bytes * 99 / 100);
  }
  s.dp_shard = 32, s.tp = 2, s.ep = 3;
  CHECK(has_error(validate(s)));  // 64 experts
  s.ep = 1, s.dp_shard = 8, s.cp = 4, s.tp = 2;
  CHECK_FALSE(has_error(validate(s)));
  s.ep = 4;  // experts take all context and tensor ranks
  CHECK(has_error(validate(s)));
  s.ep = 16;
  CHECK_FALSE(has_error(validate(s)));
}

// Half of the rows leave the node when the group has two: a slower network and more experts per token show.
TEST_CASE("expert parallelism: the all-to-all costs time on the network") {
  Setup s = setup_with_experts("deepseek_v2_lite", "torchtitan_eager", Framework::kFsdp2, 16);
  s.nodes = 2, s.gpus_per_node = 8, s.nic_kind = "infiniband", s.nic_bytes_per_s = 400e9;
  s.sequence_length = 8192, s.micro_batch = 4;  // gathers hide behind that much compute
  const auto exposed = [&](int ep) {
    s.ep = ep;
    return estimate_time(s).communication_exposed_s;
  };
  const double fast = exposed(16);
  CHECK(fast > 0);
  s.nic_bytes_per_s /= 8;
  const double slow = exposed(16);
  CHECK(slow > 2 * fast);
  s.model.experts_per_token *= 2;
  CHECK(exposed(16) > 1.5 * slow);
}

TEST_CASE("experts: shared experts and their gate are weights too") {
  Setup s = setup_with_experts("mixtral_8x7b", "hf_eager", Framework::kFsdp1, 8);
  s.model.num_shared_experts = 2, s.model.shared_feed_forward = 5632, s.model.shared_expert_gate = true;
  CHECK(weights_of(replay::find_program("hf_eager")->block, s) == count_parameters(s.model).per_layer);
  CHECK(replay::lacks_for(*replay::find_program("hf_eager"), s.model).empty());
  CHECK(replay::lacks_for(*replay::find_program("torchtitan_eager"), s.model) == "a gate of its shared experts");
  s.model.shared_expert_gate = false;
  CHECK(weights_of(replay::find_program("torchtitan_eager")->block, s) == count_parameters(s.model).per_layer);
  CHECK(replay::lacks_for(*replay::find_program("litgpt_eager"), s.model) == "experts");
}

TEST_CASE("experts: two matrices where they have no gate") {
  Setup s = setup_with_experts("mixtral_8x7b", "hf_eager", Framework::kFsdp1, 8);
  s.model.gated_mlp = false, s.model.num_shared_experts = 1, s.model.shared_feed_forward = 5632;
  CHECK(weights_of(replay::find_program("hf_eager")->block, s) == count_parameters(s.model).per_layer);
  CHECK(replay::lacks_for(*replay::find_program("hf_eager"), s.model).empty());
  CHECK(replay::lacks_for(*replay::find_program("torchtitan_eager"), s.model) == "experts without a gate");
}

// Per row that a token sends to an expert. Transformers: the row, gate and up in one, its activation, the product, what comes out,
// four indices, a score. torchtitan: the row in fp32 times its score, the padded row, gate, (activation,) up, product; indices and
// score.
TEST_CASE("experts: what a block saves per row") {
  for (const char* program : kPrograms) {
    INFO(program);
    Setup s = setup_with_experts("qwen3_30b_a3b", program, Framework::kFsdp2, 8);
    const int64_t h = s.model.hidden, fe = s.model.expert_feed_forward;
    const int64_t eight = saved_by_block(s);
    s.model.experts_per_token = 9;
    const int64_t indices = 4 * 8 + 4;
    const int64_t by_hand = program == std::string("hf_eager")           ? 2 * h + 4 * fe + 2 * fe + 2 * fe + 2 * h + indices
                            : program == std::string("torchtitan_eager") ? 4 * h + 2 * h + 8 * fe + indices
                                                                         : 4 * h + 2 * h + 6 * fe + indices;
    CHECK(saved_by_block(s) - eight == by_hand * s.tokens());
  }
}

TEST_CASE("experts: rows that an op-selective list does not name are exchanged again, and not kept") {
  Setup s = setup_with_experts("qwen3_30b_a3b", "torchtitan_compiled", Framework::kFsdp2, 8);
  s.recompute = ActivationRecompute::kOpSelective;
  s.compiled = true;
  s.sequence_length = 8192;
  for (const int ranks : {8, 1}) {
    s.ep = ranks;
    s.software.exchanges_recomputed = false;
    const int64_t kept = simulate_memory(s).allocated_bytes;
    const double once = estimate_time(s).communication_exposed_s;
    s.software.exchanges_recomputed = true;
    const int64_t rows = 2 * s.model.hidden * s.tokens() * s.model.experts_per_token;  // to the experts, and back
    CHECK((kept - simulate_memory(s).allocated_bytes > 1.9 * static_cast<double>(s.model.num_layers * rows)) == (ranks > 1));
    CHECK((estimate_time(s).communication_exposed_s > once) == (ranks > 1));
  }
}

TEST_CASE("Transformers' plan of tensor parallelism splits the head, and not the embedding") {
  Setup s = setup_with_experts("qwen3_32b", "hf_eager", Framework::kFsdp2, 1);
  s.tp = 4;
  const int64_t matrix = s.model.vocabulary * s.model.hidden;
  CHECK(weights_of(replay::find_program("hf_eager")->heads[static_cast<size_t>(LossHead::kEager)], s) == matrix / 4 + s.model.hidden);
  CHECK(weights_of(replay::find_program("hf_eager")->embedding, s) == matrix);
}

TEST_CASE("experts: the bound stays below the simulation and three blocks stand for all") {
  for (const char* model : {"mixtral_8x7b", "qwen3_30b_a3b", "deepseek_v2_lite"}) {
    for (const Framework framework : {Framework::kDdp, Framework::kFsdp1, Framework::kFsdp2, Framework::kDeepspeed}) {
      for (const Sharding sharding : {Sharding::kDdp, Sharding::kZero2, Sharding::kZero3}) {
        for (const int ranks : {1, 8, 48}) {
          for (const ActivationRecompute recompute : {ActivationRecompute::kNone, ActivationRecompute::kFull}) {
            const bool copies = framework == Framework::kDdp || sharding == Sharding::kDdp;
            if (framework == Framework::kDdp && sharding != Sharding::kDdp) continue;
            const char* program = framework == Framework::kFsdp2 ? "torchtitan_eager" : "hf_eager";
            Setup s = setup_with_experts(model, program, framework, copies ? 1 : ranks);
            s.dp_replicate = copies ? ranks : 1;
            s.sharding = sharding;
            s.recompute = recompute;
            INFO(model << " " << program << " ranks " << ranks << " sharding " << static_cast<int>(sharding));
            const int64_t simulated = simulate_memory(s).allocated_bytes;
            CHECK(bound_bytes(s) <= simulated);
            if (framework != Framework::kDeepspeed) CHECK(simulated == simulate_fsdp(s, Blocks::kAll).allocated_bytes);
            if (framework != Framework::kFsdp2 || copies) continue;
            s.ep = std::min(ranks, 8);
            const int64_t apart = simulate_memory(s).allocated_bytes;
            CHECK(bound_bytes(s) <= apart);
            CHECK(apart == simulate_fsdp(s, Blocks::kAll).allocated_bytes);
          }
        }
      }
    }
  }
}

TEST_CASE("experts: FSDP2 gives whole experts to ranks and FSDP1 any elements") {
  const auto shard_of = [](const Setup& s) {
    for (const MemoryTerm& term : simulate_memory(s).terms) {
      if (term.buffer_class == "parameter shard") return static_cast<double>(term.bytes_max);
    }
    return 0.0;
  };
  const Setup fsdp1 = setup_with_experts("mixtral_8x7b", "hf_eager", Framework::kFsdp1, 16);
  const Setup fsdp2 = setup_with_experts("mixtral_8x7b", "torchtitan_eager", Framework::kFsdp2, 16);
  const double even = 4.0 * static_cast<double>(count_parameters(fsdp1.model).total) / 16;
  CHECK(shard_of(fsdp1) == Approx(even).epsilon(0.001));
  CHECK(shard_of(fsdp2) > 1.9 * even);  // 8 experts on 16 ranks: one whole expert where half would do
}

TEST_CASE("experts: what is planned and what is refused by name") {
  for (const char* trainer : {"fsdp1", "fsdp2", "ddp", "deepspeed"}) {
    INFO(trainer);
    CHECK(resolved({{"trainer", trainer}, {"model", "mixtral_8x7b"}}).ok());
    CHECK(resolved({{"trainer", trainer}, {"model", "deepseek_v2_lite"}}).ok());
    const Result<Problem> parallel = resolved({{"trainer", trainer}, {"model", "mixtral_8x7b"}, {"ep", "2"}});
    CHECK(parallel.ok() == (trainer == std::string("fsdp2")));
    if (!parallel.ok()) {
      CHECK(format_diagnostics(parallel.diagnostics).find("is planned without expert parallelism") != std::string::npos);
      CHECK(format_diagnostics(parallel.diagnostics).find("--trainer ") != std::string::npos);
    }
  }
  CHECK_FALSE(resolved({{"trainer", "fsdp1"}, {"model", "mixtral_8x7b"}, {"program", "hf_fused"}}).ok());
  CHECK(resolved({{"trainer", "fsdp1"}, {"model", "mixtral_8x7b"}, {"finetune", "lora"}, {"lora-targets", "query,value"}}).ok());
}
