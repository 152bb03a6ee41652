// The bundled trainer's programs: what is derived from a family's file, for one model and for all that are built in.
#include <set>
#include <string>
#include <vector>

#include "model/count.h"
#include "model/presets.h"
#include "model/rope.h"
#include "plan/layout.h"
#include "plan/model_programs.h"
#include "plan/native_file.h"
#include "plan/native_program.h"
#include "plan/published_order.h"
#include "support/random_plan.h"

#include <catch2/catch.hpp>

namespace distsetup {
namespace {

// One op a line: "name kernel reads > writes [overlays] FLOPs".
std::string list_of(const std::vector<Op>& ops, const Symbols& symbols) {
  std::string out;
  for (const Op& op : ops) {
    out += fmt::format("{} {} {} > {}", op.name, op.kernel, fmt::join(op.reads, ","), fmt::join(op.writes, ","));
    for (const Overlay& o : op.over) out += fmt::format(" [{}/{}]", o.write, o.read);
    if (!op.flops.empty()) out += fmt::format(" {}", evaluate(op.flops, symbols));
    out += "\n";
  }
  return out;
}
// The same with FLOPs as they were written by hand: "= expression" at the end of a line.
std::string by_hand(std::string_view text, const Symbols& symbols) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    const std::string_view line = text.substr(at, end - at);
    const size_t flops = line.find(" = ");
    out += flops == std::string_view::npos ? std::string(line)
                                           : fmt::format("{} {}", line.substr(0, flops), evaluate(line.substr(flops + 3), symbols));
    out += "\n";
    at = end + 1;
  }
  return out;
}

constexpr std::string_view kLlamaBackward =
    "down_dw linear_dw dy,m > g:w2 = 2*T*h*f\n"
    "down_dx linear_dx dy,p:w2 > dm = 2*T*h*f\n"
    "swiglu_b swiglu_backward dm,gu > dgu [0/1]\n"
    "up_dw linear_dw dgu,h2 > g:w13 = 4*T*h*f\n"
    "up_dx linear_dx dgu,p:w13 > dh2 = 4*T*h*f\n"
    "norm2_b rms_norm_backward dh2,x2,r2,p:n2,dy > dx2,g:n2,ws_norm2 [0/4]\n"
    "out_dw linear_dw dx2,att > g:wo = 2*T*h*a*d\n"
    "out_dx linear_dx dx2,p:wo > datt = 2*T*h*a*d\n"
    "attention_b attention_backward datt,qkv,att,lse > dqkv = 5*T*S*a*d\n"
    "rope_b rope_backward dqkv,cos,sin > dqkv\n"
    "qkv_dw linear_dw dqkv,h1 > g:wqkv = 2*T*h*(a+2*kv)*d\n"
    "qkv_dx linear_dx dqkv,p:wqkv > dh1 = 2*T*h*(a+2*kv)*d\n"
    "norm1_b rms_norm_backward dh1,x,r1,p:n1,dx2 > dx,g:n1,ws_norm1 [0/4]\n";
// With biases and norms of q and k: between attention_b and qkv_dw.
constexpr std::string_view kQwenBackward =
    "attention_b attention_split_backward datt,qk,qkv,att,lse > dqk,dqkv = 5*T*S*a*d\n"
    "rope_b rope_backward dqk,cos,sin > dqk\n"
    "qk_norm_b qk_norm_backward dqk,qkv,rqk,p:qn,p:kn,dqkv > dqkv,g:qn,g:kn,ws_qk_norm\n"
    "bias_b bias_backward dqkv > g:bqkv,ws_bias\n";
constexpr std::string_view kHead =
    "normf rms_norm x,p:nf > h,r\n"
    "logits linear h,p:wh > z = 2*T*h*V\n"
    "loss cross_entropy z,targets,loss_scale,loss > dz,loss [0/0]\n"
    "logits_dw linear_dw dz,h > g:wh = 2*T*h*V\n"
    "logits_dx linear_dx dz,p:wh > dh = 2*T*h*V\n"
    "normf_b rms_norm_backward_first dh,x,r,p:nf > dx,g:nf,ws_normf [0/0]\n";

TEST_CASE("native programs: the derived backward is the list that was written by hand") {
  Geometry g = tiny_geometry();
  const Symbols s = native_symbols(g, 3, 16);
  const std::shared_ptr<const NativePrograms> llama = native_programs(g);
  REQUIRE(llama->blocks.size() == 1);
  CHECK(list_of(llama->blocks[0].backward, s) == by_hand(kLlamaBackward, s));
  CHECK(list_of(llama->head.forward, s) + list_of(llama->head.backward, s) == by_hand(kHead, s));
  CHECK(list_of(llama->embedding.backward, s) == "embed_dw embedding_backward ids,dy > g:wte\n");
  g.qkv_bias = g.qk_norm = true;
  const std::string qwen = list_of(native_programs(g)->blocks[0].backward, s);
  CHECK(qwen.find(by_hand(kQwenBackward, s)) != std::string::npos);
  g.tied_embeddings = true;
  CHECK(native_programs(g)->head.borrowed_slots == std::vector<std::string>{"wte"});
}

TEST_CASE("native programs: each built-in model that one runs has as many parameters as are counted") {
  const Presets presets = *load_presets();
  std::set<std::string> families;
  for (const std::string& id : preset_ids(presets, "models")) {
    if (id == "names") continue;
    const Geometry g = *find_model(presets, id);
    if (!check_native(g).empty()) continue;
    INFO(id);
    if (native_programs(g)->file == g.family) families.insert(g.family);
    CHECK(make_layout(g, {}).numel == count_parameters(g).total);
    for (const Recompute policy : {Recompute::kSelective, Recompute::kKeepAttention, Recompute::kFull})
      for (const Program& block : native_programs(g)->blocks) {
        const std::vector<std::string> dropped = dropped_tensors(g, policy);
        const ProgramVariant v = derive(block, {dropped.begin(), dropped.end()}, Pass::kTrain);
        CHECK(v.kept.size() < v.saved.size() + 1);
        const auto attends_again = std::count_if(v.backward.begin(), v.backward.end(), [](const OpInstance& op) {
          return op.recomputed && op.op->kind == OpKind::kAttention;
        });
        CHECK((attends_again > 0) == (policy == Recompute::kFull));
        if (policy == Recompute::kKeepAttention) CHECK(v.kept.size() == 3);  // x, and what attention leaves
      }
  }
  CHECK(families ==
        std::set<std::string>{
            "cohere",        "cohere2",  "deepseek_v2",     "deepseek_v3", "falcon",      "gemma",      "gemma2",
            "gemma3_text",   "glm4",     "glm4_moe",        "gpt2",        "gpt_bigcode", "gpt_neo",    "gpt_neox",
            "gpt_oss",       "gptj",     "granite",         "llama",       "minimax_m2",  "ministral3", "mistral",
            "mixtral",       "nemotron", "olmo2",           "olmo3",       "olmoe",       "opt",        "phi",
            "phi3",          "qwen2",    "qwen2_5_vl_text", "qwen2_moe",   "qwen3",       "qwen3_moe",  "qwen3_vl_moe_text",
            "qwen3_vl_text", "seed_oss", "smollm3",         "stablelm",    "starcoder2"});
}

TEST_CASE("native programs: sinks and clipped gates are run by families that have them, and refused by the others") {
  const Presets presets = *load_presets();
  Geometry g = *find_model(presets, "gpt_oss_20b");
  CHECK(count_parameters(g).total == 20'914'757'184);  // the sum of openai/gpt-oss-20b's tensors
  CHECK(check_native(g).empty());
  ProgramSplit split;
  split.cp = 2;
  CHECK(check_native(g, split).empty());
  split.cp_method = CpMethod::kUlysses;
  CHECK(format_diagnostics(check_native(g, split)).find("sinks") != std::string::npos);
  Geometry llama = tiny_geometry(4);
  CHECK(check_native(llama).empty());
  llama.attention_sinks = true;
  CHECK(format_diagnostics(check_native(llama)).find("the program of llama has no attention_sinks") != std::string::npos);
  g.attention_sinks = false;
  CHECK(format_diagnostics(check_native(g)).find("needs attention_sinks") != std::string::npos);
}

TEST_CASE("native programs: a router has no adapter and is not quantised, as for PEFT and bitsandbytes") {
  const Presets presets = *load_presets();
  for (const char* id : {"gpt_oss_20b", "mixtral_8x7b", "qwen1.5_moe_a2.7b"}) {
    INFO(id);
    const Geometry g = *find_model(presets, id);
    Tuning tuning;
    tuning.rank = 4;
    tuning.targets = {std::string(kAllLinear)};
    tuning.is_quantized = true;
    const std::shared_ptr<const NativePrograms> programs = native_programs(g, {}, tuning);
    const Program& block = programs->blocks.front();
    const auto has = [](const std::vector<ParameterDecl>& list, std::string_view part) {
      return std::any_of(list.begin(), list.end(), [&](const ParameterDecl& p) { return p.name.find(part) != std::string::npos; });
    };
    const std::string router = g.family == "gpt_oss" ? "mlp.router." : g.family == "mixtral" ? "block_sparse_moe.gate." : "mlp.gate.";
    CHECK(has(block.parameters, "o_proj.lora_A"));
    CHECK(has(block.quantized_parameters, "o_proj.weight"));
    CHECK_FALSE(has(block.parameters, router));
    CHECK_FALSE(has(block.quantized_parameters, router));
    CHECK(has(block.frozen_parameters, router));
  }
}

TEST_CASE("native programs: layers with and without a window are two programs") {
  Geometry g = tiny_geometry(4);
  g.sliding_window = 5;
  CHECK(native_programs(g)->blocks.size() == 1);
  g.global_layer_every = 2;
  const std::shared_ptr<const NativePrograms> mixed = native_programs(g);
  REQUIRE(mixed->blocks.size() == 2);
  CHECK(mixed->kind_of_layer == std::vector<int>{0, 1, 0, 1});
  const auto window = [](const Program& p) {
    for (const Op& op : p.forward)
      if (op.kind == OpKind::kAttention) return op.attributes.window;
    return int64_t{-1};
  };
  CHECK(window(mixed->block(0)) == 5);
  CHECK(window(mixed->block(1)) == 0);
  // 16 queries, 5 keys each but the first four: 5 · 16 - 10 of 4 FLOPs an element.
  const Symbols s = native_symbols(g, 1, 16);
  for (const Op& op : mixed->block(0).forward)
    if (op.kind == OpKind::kAttention) CHECK(evaluate(op.flops, s) == 2 * g.num_heads * g.head_size * 5 * (2 * 16 - 5));
}

TEST_CASE("native programs: what a file of one's own gets wrong is said") {
  const auto none = [](std::string_view) { return std::string(); };
  const auto problem_of = [&](const std::string& text) {
    const Result<NativeFile> file = read_native_file(text, "mine.yaml", none);
    NativePrograms programs;
    return file.ok() ? model_programs(*file, tiny_geometry(), {}, programs) : format_diagnostics(file.diagnostics);
  };
  CHECK_THAT(problem_of("base: nothing\n"), Catch::Matchers::Contains("mine.yaml:1:7") && Catch::Matchers::Contains("'nothing'"));
  CHECK_THAT(problem_of("attributes: {rms_norm: {epsilom: 1}}\n"), Catch::Matchers::Contains("'epsilom'"));
  CHECK_THAT(problem_of("attributes: {rms_norm: {epsilon: norm_epsilom}}\n"),
             Catch::Matchers::Contains("mine.yaml:1:34") && Catch::Matchers::Contains("'norm_epsilom'"));
  CHECK_THAT(problem_of("attributes: {rms_norm: {epsilon: activation}}\n"), Catch::Matchers::Contains("'activation'"));
  CHECK_THAT(problem_of("missing: [{kernel: x, beyond: rope_originals}]\n"),
             Catch::Matchers::Contains("mine.yaml:1:31") && Catch::Matchers::Contains("'beyond' is 'rope_originals'"));
  CHECK_THAT(problem_of("needs: [gated_mlp, not qk_nrm]\n"),
             Catch::Matchers::Contains("mine.yaml:1:20") && Catch::Matchers::Contains("found 'qk_nrm', expected a field"));
  const auto weight = [&](const std::string& rest) { return problem_of("block: {weights: [{name: w, slot: w, " + rest + "}]}\n"); };
  CHECK_THAT(weight("shape: [hh]"), Catch::Matchers::Contains("size 'hh': found no symbol 'hh'"));
  CHECK_THAT(weight("shape: ['h*']"), Catch::Matchers::Contains("size 'h*'"));
  CHECK_THAT(weight("shape: [h, h, h]"), Catch::Matchers::Contains("3 sizes, expected 1 or 2"));
  CHECK_THAT(weight("shape: [h], when: [tied, qkv_bais = 1]"), Catch::Matchers::Contains("found 'qkv_bais'"));
  CHECK_THAT(problem_of("needs: [norm = layer]\n"), Catch::Matchers::Contains("needs norm = layer, the model has norm rms"));
  const auto unit = [&](const std::string& forward) {
    return problem_of("embedding: {weights: [{name: w, slot: w, shape: [V, h]}], forward: [" + forward + "]}\n");
  };
  CHECK_THAT(unit("{op: e, kernel: embed, reads: [ids, 'p:w'], writes: [y]}"),
             Catch::Matchers::Contains("there is no kernel 'embed'"));
  CHECK_THAT(unit("{op: e, kernel: embedding_forward, reads: [ids], writes: [y]}"), Catch::Matchers::Contains("reads 2"));
  CHECK_THAT(unit("{op: e, kernel: embedding_forward, reads: [ids, 'p:v'], writes: [y]}"), Catch::Matchers::Contains("slot 'v'"));
  CHECK_THAT(unit("{op: e, kernel: bias_add, reads: [q, 'p:w'], writes: [q]}"), Catch::Matchers::Contains("nothing writes 'q'"));
}

TEST_CASE("published tensors: rows in groups and transposed ones are told apart element by element") {
  Geometry g = tiny_geometry();
  g.num_heads = 4, g.num_kv_heads = 2, g.head_size = 3;
  Parameter p;
  p.shape = p.full_shape = {8 * 3, 5};
  p.numel = 120;
  p.order = RowOrder::kGrouped;
  std::set<int64_t> seen;
  for (int64_t i = 0; i < p.numel; ++i) seen.insert(published_element(p, g, i));
  CHECK(seen.size() == 120);
  CHECK(published_element(p, g, 0) == 0);                          // q 0 is first
  CHECK(published_element(p, g, 2 * 3 * 5) == 4 * 3 * 5);          // q 2 is the first of the second group
  CHECK(published_element(p, g, 4 * 3 * 5) == 2 * 3 * 5);          // k 0 follows q 0 and q 1
  CHECK(published_element(p, g, 7 * 3 * 5 + 1) == 7 * 3 * 5 + 1);  // v 1 is last
  p.order = RowOrder::kPairs;
  g.head_size = 6, g.rotary_fraction = 0.7;  // 4 of 6 elements
  std::vector<int64_t> rows;
  for (int64_t row = 6; row < 12; ++row) rows.push_back(published_row(p, g, row));
  CHECK(rows == std::vector<int64_t>{6, 8, 7, 9, 10, 11});
  p.order = RowOrder::kPlain;
  p.transposed = true;
  CHECK(published_element(p, g, 5) == 1);
  CHECK(published_element(p, g, 1) == 24);
}

TEST_CASE("rotary positions: scaling as the papers have it") {
  Geometry g = tiny_geometry();
  g.head_size = 8;
  const RopeFrequencies plain = rope_frequencies(g, false, 50);
  REQUIRE(plain.per_pair.size() == 4);
  CHECK(plain.per_pair[0] == 1);
  CHECK(plain.per_pair[2] == Approx(0.01));
  g.rope_scaled = true, g.rope_scaling = "linear", g.rope_factor = 4;
  CHECK(rope_frequencies(g, false, 50).per_pair[2] == Approx(0.0025));
  g.rope_scaling = "llama3", g.rope_original_positions = 100;
  const RopeFrequencies bands = rope_frequencies(g, false, 50);
  CHECK(bands.per_pair[0] == 1);                  // 16 turns in 100 positions: left
  CHECK(bands.per_pair[3] == Approx(0.001 / 4));  // 0.02 turns: interpolated
  CHECK(bands.per_pair[1] == Approx(0.1 * (0.25 + 0.75 * (100 * 0.1 / (2 * 3.14159265358979) - 1) / 3)));
  g.rope_scaling = "yarn", g.rope_low_turns = 1, g.rope_high_turns = 32;
  CHECK(rope_frequencies(g, false, 50).amplitude == Approx(0.1 * std::log(4.0) + 1));
  CHECK(score_scale(g) == Approx(1 / std::sqrt(8.0)));
  g.rope_mscale = 0.5, g.rope_mscale_all = 0.8;  // DeepSeek: of scores, and what is left for cosines
  const double t = 0.08 * std::log(4.0) + 1;
  CHECK(rope_frequencies(g, false, 50).amplitude == Approx((0.05 * std::log(4.0) + 1) / t));
  CHECK(score_scale(g) == Approx(t * t / std::sqrt(8.0)));
  g.rope_scaling = "longrope";
  g.rope_short_factors = {1, 1, 2, 2}, g.rope_long_factors = {1, 2, 4, 8};
  CHECK(rope_frequencies(g, false, 100).per_pair[2] == Approx(0.01 / 2));
  CHECK(rope_frequencies(g, false, 101).per_pair[3] == Approx(0.001 / 8));
  CHECK(rope_frequencies(g, false, 101).amplitude == Approx(std::sqrt(1 + std::log(4.0) / std::log(100.0))));
  g.rope_long_amplitude = 1.25;
  CHECK(rope_frequencies(g, false, 101).amplitude == 1.25);
  g.rope_scaling = "dynamic";
  CHECK(rope_frequencies(g, false, 100).per_pair[2] == Approx(0.01));
  CHECK(rope_frequencies(g, false, 150).per_pair[2] == Approx(std::pow(10000 * std::pow(4 * 1.5 - 3, 8.0 / 6), -0.5)));
  g.local_rope_base = 100;
  CHECK(rope_frequencies(g, true, 50).per_pair[2] == Approx(0.1));
  g.rotary_fraction = 0.5;
  CHECK(rotated_elements(g) == 4);
}

}  // namespace
}  // namespace distsetup
