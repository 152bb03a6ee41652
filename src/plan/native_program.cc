#include "plan/native_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/check.h"
#include "base/diagnostic_codes.h"
#include "base/embedded.h"
#include "base/recently_made.h"
#include "model/approximate.h"
#include "model/count.h"
#include "model/rope.h"
#include "plan/chunked_loss.h"
#include "plan/context_parallel.h"
#include "plan/expert_parallel.h"
#include "plan/expert_rules.h"
#include "plan/kernel_table.h"
#include "plan/model_programs.h"
#include "plan/native_file.h"
#include "plan/nf4.h"
#include "plan/packed_rows.h"
#include "plan/preference_loss.h"
#include "plan/reference.h"

namespace distsetup {
namespace {

constexpr std::string_view kFolder = "presets/programs/native/";

std::string built_in_text(std::string_view family) {
  const std::string path = fmt::format("{}{}.yaml", kFolder, family);
  for (const EmbeddedFile& file : embedded_files())
    if (file.path == path) return std::string(file.text);
  return "";
}

constexpr std::string_view kLlama = "llama";

// The model's own file where it brings one, else that of its family. A family without one is tried as Llama: its needs say whether a
// model is like it.
Result<NativeFile> read_file_of(const Geometry& g) {
  const std::string own = g.native_program.empty() ? built_in_text(g.family) : g.native_program;
  const std::string_view name = own.empty() ? kLlama : std::string_view(g.family);
  Result<NativeFile> file =
      read_native_file(own.empty() ? built_in_text(kLlama) : own, fmt::format("{}{}.yaml", kFolder, name), built_in_text);
  if (file.ok()) file->name = name;
  return file;
}

// The one read last is kept: it serves all the ways to split a model. For made_for() alone, which locks.
const Result<NativeFile>& native_file(const Geometry& g) {
  static std::string family, program;
  static std::optional<Result<NativeFile>> kept;
  if (!kept.has_value() || family != g.family || program != g.native_program) {
    kept = read_file_of(g);
    family = g.family;
    program = g.native_program;
  }
  return *kept;
}

Diagnostic refusal(const Geometry& g, std::string_view what) {
  return error(code::kUnsupportedFeature, {}, fmt::format("the native trainer cannot run model '{}' yet: {}", g.name, what),
               "--trainer fsdp2, or choose another model: distsetup list models");
}

template <class F>
void each_op(const NativePrograms& p, F f) {
  for (const Op& op : p.embedding.forward) f(op);
  for (const Program& block : p.blocks)
    for (const Op& op : block.forward) f(op);
  for (const Op& op : p.head.forward) f(op);
}

// A model's programs, or why it has none.
struct Ready {
  Geometry geometry;
  ProgramSplit split;
  Tuning tuning;
  std::string refused;
  std::shared_ptr<const NativePrograms> programs = nullptr;    // when nothing is refused
  std::map<Recompute, std::vector<std::string>> dropped = {};  // what recomputing drops
};

// All that is known of them, for one way to split them.
struct Made {
  Geometry geometry;
  ProgramSplit split;
  Tuning tuning;
  Diagnostics refused;
  LongestSequence longest;             // of a family with a file
  std::shared_ptr<const Ready> ready;  // when nothing is refused
};

Diagnostics refused_traits(const Geometry& g) {
  Diagnostics out;
  const auto refuse = [&](bool condition, std::string_view what) {
    if (condition) out.push_back(refusal(g, what));
  };
  refuse(is_approximate(g), "an architecture that is not known");
  refuse(g.expert_hidden > 0, "experts that read a projection of the hidden state");
  refuse(g.experts_per_token > kMostExpertsPerToken,
         fmt::format("{} experts per token, it runs up to {}", g.experts_per_token, kMostExpertsPerToken));
  refuse(!g.unlike_family.empty(), g.unlike_family);
  const std::string scaling = rope_scaling_problem(g);
  refuse(!scaling.empty(), scaling);
  refuse(g.scan_channels > 0, "layers that scan (Mamba)");
  refuse(g.expert_capacity > 0 && g.mlp_bias, "experts with biases that take a part of their rows (expert_capacity)");
  return out;
}

// A model's units in order, as untuned programs have them.
struct ModelUnits {
  std::vector<const Program*> programs;
  std::vector<std::string> prefixes;
  ModelUnits(const NativePrograms& p, const Geometry& g) {
    add(p.embedding, 0);
    for (int64_t layer = 0; layer < g.num_layers; ++layer) add(p.block(layer), layer);
    add(p.head, 0);
  }

 private:
  void add(const Program& program, int64_t layer) {
    programs.push_back(&program);
    prefixes.push_back(parameter_prefix(program, layer));
  }
};

// Layers that are trained alike are of one kind.
std::shared_ptr<NativePrograms> tuned_programs(const NativeFile& file, const Geometry& g, const ProgramSplit& split,
                                               const Tuning& tuning, const NativePrograms& whole) {
  const ModelUnits model(whole, g);
  const std::vector<UnitTuning> units = tune_units(tuning, model.programs, model.prefixes);
  const auto tuned = [&](UnitKind kind, LayerForm layer, const UnitTuning& unit) {
    return program_of(file, {kind, layer, split, &tuning, &unit}, g);
  };
  NativePrograms p;
  p.file = whole.file;
  p.buffers = whole.buffers;
  p.embedding = tuned(UnitKind::kEmbedding, {}, units.front());
  p.head = tuned(UnitKind::kHead, {}, units.back());
  std::map<std::pair<LayerForm, UnitTuning>, int> kinds;
  for (int64_t layer = 0; layer < g.num_layers; ++layer) {
    const UnitTuning& unit = units[static_cast<size_t>(layer) + 1];
    const auto [kind, is_new] = kinds.try_emplace({layer_form(g, layer), unit}, static_cast<int>(kinds.size()));
    if (is_new) {
      p.blocks.push_back(tuned(UnitKind::kBlock, kind->first.first, unit));
      p.blocks.back().name += kind->second > 0 ? fmt::format(".{}", kind->second) : "";
    }
    p.kind_of_layer.push_back(kind->second);
  }
  return std::make_shared<NativePrograms>(std::move(p));
}

// A rank has whole blocks of nf4 of each matrix of a block that ranks split, and their order is one of rows.
std::string nf4_split_problem(const Geometry& g, const NativePrograms& split_programs, const Tuning& tuning,
                              const ProgramSplit& split) {
  if (!tuning.is_quantized || split.tp == 1) return "";
  const Symbols symbols = native_symbols(g, 1, 1, split);
  const std::string with = fmt::format("qlora with tensor parallelism over {} ranks", split.tp);
  for (const Program& block : split_programs.blocks) {
    for (const ParameterDecl& p : block.parameters) {
      if (p.shape.size() != 2 || p.split < 0) continue;
      if (p.parts.size() > 1)
        return fmt::format("{}: '{}' holds {} matrices, and a rank's blocks of {} weights would come from each", with, p.name,
                           p.parts.size(), kNf4Block);
      const int64_t rows = evaluate(p.shape[0], symbols), width = evaluate(p.shape[1], symbols);
      const int64_t together = p.split == 1 ? width : rows * width;
      if (together % kNf4Block != 0)
        return fmt::format("{}: nf4 takes the scale of {} weights in a row of '{}' together, and a rank has {}{}", with, kNf4Block,
                           p.name, together, p.split == 1 ? " of each row" : "");
    }
  }
  return "";
}

// What cannot be trained in part.
std::string tuning_refusal(const Geometry& g, const ProgramSplit& split, const Tuning& tuning, const NativePrograms& whole) {
  const ModelUnits model(whole, g);
  if (const std::string problem = nf4_split_problem(g, whole, tuning, split); !problem.empty()) return problem;
  for (const Program& block : whole.blocks)
    for (const ParameterDecl& p : block.parameters)
      if (tuning.is_quantized && p.order != RowOrder::kPlain)
        return fmt::format(
            "qlora: the rows of '{}' are published in another order, and bitsandbytes' blocks of {} weights go across them", p.name,
            kNf4Block);
  return unmatched(tuning, model.programs, model.prefixes);
}

std::vector<std::string> saved_tensors(const NativePrograms& programs) {
  std::vector<std::string> all;
  const auto is_passing = [](const Program& block, const std::string& name) {
    return std::any_of(block.tensors.begin(), block.tensors.end(),
                       [&](const TensorDecl& t) { return t.name == name && t.is_passing; });
  };
  for (const Program& block : programs.blocks)
    for (const std::string& name : derive(block, {}, Pass::kTrain).saved)
      if (name != "x" && !is_passing(block, name) && std::find(all.begin(), all.end(), name) == all.end()) all.push_back(name);
  std::sort(all.begin(), all.end());
  return all;
}

// All but what attention leaves, with which its backward needs no second forward.
std::vector<std::string> without_attention(std::vector<std::string> saved, const NativePrograms& programs) {
  for (const Program& block : programs.blocks)
    for (const Op& op : block.forward)
      if (op.kind == OpKind::kAttention)
        std::erase_if(saved,
                      [&](const std::string& name) { return std::find(op.writes.begin(), op.writes.end(), name) != op.writes.end(); });
  return saved;
}

// Heads and feed-forward elements go whole to ranks; the vocabulary is padded.
std::string split_refusal(const Geometry& g, const ProgramSplit& split) {
  const int tp = split.tp;
  if (const std::string problem = expert_split_problem(g, split); !problem.empty()) return problem;
  for (const auto& [what, count] : {std::pair<std::string_view, int64_t>{"heads", g.num_heads},
                                    {"key and value heads", g.num_kv_heads},
                                    {"feed-forward elements", g.feed_forward}})
    if (count % tp != 0) return fmt::format("tensor parallelism over {} ranks does not divide its {} {}", tp, count, what);
  if (const std::string problem = ulysses_problem(g, split.cp, split.cp_method); !problem.empty()) return problem;
  if (split.cp > 1 && split.cp_method == CpMethod::kUlysses && g.num_kv_heads / tp % split.cp != 0)
    return fmt::format("ulysses over cp {} does not divide the {} key and value heads{}", split.cp, g.num_kv_heads / tp,
                       tp > 1 ? " of a tensor-parallel rank" : "");
  return "";
}

Ready make_ready(const NativeFile& file, const Geometry& g, const ProgramSplit& split, const Tuning& tuning) {
  Ready ready{g, split, tuning, ""};
  auto programs = std::make_shared<NativePrograms>();
  ready.refused = model_programs(file, g, split, *programs);
  if (!ready.refused.empty() && file.name != g.family)
    ready.refused = fmt::format("it has none for '{}', and {}", g.family, ready.refused);
  if (!ready.refused.empty()) return ready;
  if (!tuning.trains_all()) {
    ready.refused = tuning_refusal(g, split, tuning, *programs);
    if (!ready.refused.empty()) return ready;
    programs = tuned_programs(file, g, split, tuning, *programs);
  }
  if (split.preference && runs_reference(*split.preference))
    programs->reference = reference_programs(*programs, keeps_reference(*split.preference));
  const std::vector<std::string> saved = saved_tensors(*programs);
  ready.dropped = {{Recompute::kNone, {}},
                   {Recompute::kSelective, file.block.selective},
                   {Recompute::kKeepAttention, without_attention(saved, *programs)},
                   {Recompute::kFull, saved},
                   {Recompute::kEveryK, saved}};
  ready.programs = std::move(programs);
  return ready;
}

// Where ranks share experts, how many do is a symbol of the programs: all such splits have the same.
std::shared_ptr<const Ready> ready_for(const NativeFile& file, const Geometry& g, ProgramSplit split, const Tuning& tuning) {
  static RecentlyMade<Ready> kept(128);
  split.ep = std::min(split.ep, 2);
  return kept.get([&](const Ready& ready) { return ready.split == split && ready.tuning == tuning && ready.geometry == g; },
                  [&] { return make_ready(file, g, split, tuning); });
}

Made make(const Geometry& geometry, const ProgramSplit& split, const Tuning& tuning) {
  Geometry g = geometry;
  if (split.preference) g.router_loss = g.router_z_loss = 0;  // they go with the loss of tokens alone
  Made made{geometry, split, tuning, refused_traits(g), {}, nullptr};
  if (!made.refused.empty()) return made;
  const Result<NativeFile>& file = native_file(g);
  if (!file.ok()) {
    made.refused = file.diagnostics;
    return made;
  }
  made.longest = longest_without(file->missing, g);
  std::string problem = split_refusal(g, split);
  if (problem.empty()) {
    made.ready = ready_for(*file, g, split, tuning);
    problem = made.ready->refused;
  }
  if (!problem.empty()) made.refused = {refusal(g, problem)};
  if (problem.starts_with(name(CpMethod::kUlysses))) made.refused.front().help = "--cp-method allgather";
  return made;
}

// Of the models asked for last: a search compiles one model's lists hundreds of times, for each way to split it.
std::shared_ptr<const Made> made_for(const Geometry& geometry, const ProgramSplit& split, const Tuning& tuning) {
  static RecentlyMade<Made> kept(512);
  return kept.get([&](const Made& made) { return made.split == split && made.tuning == tuning && made.geometry == geometry; },
                  [&] { return make(geometry, split, tuning); });
}

}  // namespace

std::shared_ptr<const NativePrograms> native_programs(const Geometry& geometry, const ProgramSplit& split, const Tuning& tuning) {
  const std::shared_ptr<const Made> made = made_for(geometry, split, tuning);
  CHECK(made->refused.empty(), "{}", format_diagnostics(made->refused));
  return made->ready->programs;
}

Diagnostics check_native(const Geometry& geometry, const ProgramSplit& split, const Tuning& tuning) {
  return made_for(geometry, split, tuning)->refused;
}

LongestSequence longest_sequence(const Geometry& geometry, const ProgramSplit& split, const Tuning& tuning) {
  return made_for(geometry, split, tuning)->longest;
}

ProgramSplit split_of(const Plan& plan) {
  ProgramSplit split = {plan.mesh.tp,      plan.mesh.cp, cp_method_of(plan.strategy.cp_method).value_or(CpMethod::kAllGather),
                        plan.data.packing, {},           plan.mesh.ep};
  if (learns_preferences(plan.train)) split.preference = plan.train.preference;
  if (is_native(plan) && plan.strategy.loss_head == kChunkedLoss) split.loss_chunks = kLossChunks;
  return split;
}

Diagnostics check_native_kernels(const Geometry& g, Accelerator accelerator) {
  const bool on_gpu = accelerator != Accelerator::kCpu;
  bool is_capped = false;  // libtorch's flash attention is built without soft caps
  each_op(*native_programs(g),
          [&](const Op& op) { is_capped = is_capped || (op.kind == OpKind::kAttention && op.attributes.soft_cap > 0); });
  Diagnostics out;
  if (is_capped && on_gpu) out.push_back(refusal(g, "CUDA has no kernel for attention with a soft cap"));
  return out;
}

Symbols native_symbols(const Geometry& g, int64_t micro_batch, int64_t sequence_length, const ProgramSplit& split) {
  const int64_t tp = split.tp, rows = sequence_length / split.cp, sequences = micro_batch * (split.preference ? 2 : 1);
  return {{"T", sequences * rows},
          {"Ts", sequences * rows / tp},
          {"numbers", split.preference ? kNumPreferenceNumbers : 1},
          {"tp", tp},
          {"cp", split.cp},
          {"S", sequence_length},
          {"Sr", rows},
          {"R", split.packed ? sequence_length : rows},
          {"B", sequences},
          {"h", g.hidden},
          {"f", g.feed_forward / tp},
          {"E", g.num_experts},
          {"k", g.experts_per_token},
          {"fe", g.expert_feed_forward},
          {"fs", g.shared_feed_forward},
          {"ep", split.ep},
          {"Te", most_expert_rows(g, sequences * rows / tp, split.ep)},
          {"Tc", g.num_experts == 0 ? 0 : sorted_rows(g.expert_capacity, sequences * rows / tp * g.experts_per_token, g.num_experts)},
          {"a", g.num_heads / tp},
          {"kv", g.num_kv_heads / tp},
          {"d", g.head_size},
          {"rot", rotated_elements(g)},
          {"rq", g.q_lora_rank},
          {"rk", g.kv_lora_rank},
          {"dn", g.qk_nope_head_size},
          {"dv", g.v_head_size},
          {"V", (g.vocabulary + tp - 1) / tp},
          {"P", g.learned_positions}};
}

int64_t ProgramInput::numel() const {
  int64_t n = 1;
  for (const int64_t d : shape) n *= d;
  return n;
}

ProgramInput program_input(std::string_view name, const Symbols& symbols) {
  if (name == "ids" || name == "targets" || name == kDocumentPositions) return {{symbols.at("T")}, Dtype::kI64};
  if (name == kDocumentStarts) return {{symbols.at("cp") * symbols.at("T") + 1}, Dtype::kI64};
  if (name == "loss") return {{symbols.at("numbers")}, Dtype::kF64};
  if (name == "loss_scale" || name == kRouterScale) return {{1}, Dtype::kF64};
  if (name == kRouterSums) return {{2, symbols.at("E")}, Dtype::kF64};
  if (name == "reference_logps" || name == "policy_logps") return {{symbols.at("B")}, Dtype::kF32};
  return {{symbols.at("R"), symbols.at("rot") / 2}, Dtype::kF32};  // tables of rotary positions
}

bool is_fed(std::string_view input) {
  return input == "ids" || input == "targets" || input == kDocumentPositions || input == kDocumentStarts;
}

bool uses_input(const NativePrograms& programs, std::string_view name) {
  bool found = false;
  each_op(programs, [&](const Op& op) {
    for (const std::vector<std::string>* operands : {&op.reads, &op.writes})
      found = found || std::find(operands->begin(), operands->end(), name) != operands->end();
  });
  return found;
}

std::vector<std::string> dropped_tensors(const Geometry& geometry, Recompute policy, const Tuning& tuning) {
  if (policy == Recompute::kNone) return {};
  const std::shared_ptr<const Made> made = made_for(geometry, {}, tuning);
  return made->refused.empty() ? made->ready->dropped.at(policy) : std::vector<std::string>{};
}

}  // namespace distsetup
