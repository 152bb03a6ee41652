// The steps, in the order in which their assumptions are printed. Every rule about what a user may write together is here and in the
// resolve_*.cc beside it; what is then chosen among the legal combinations is the search's.
#include "planner/resolve/resolve_trainer.h"
#include "planner/native/plan_rates.h"
#include "planner/resolve/adapters.h"
#include "planner/time/embedded_calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/diagnostic_codes.h"
#include "base/digest.h"
#include "base/file.h"
#include "base/names.h"
#include "base/quantity.h"
#include "model/count.h"
#include "model/geometry_value.h"
#include "model/validate.h"
#include "plan/native_program.h"
#include "planner/resolve/data_scan.h"
#include "planner/resolve/named_model.h"
#include "planner/resolve/refuse_not_native.h"
#include "planner/resolve/resolve_attention.h"
#include "planner/resolve/resolve_checkpoints.h"
#include "planner/resolve/resolve_data.h"
#include "planner/resolve/resolve_guard.h"
#include "planner/resolve/resolve_hardware.h"
#include "planner/resolve/resolve_offload.h"
#include "planner/resolve/resolve_packing.h"
#include "planner/resolve/resolve_parallel.h"
#include "planner/resolve/resolve_preference.h"
#include "planner/resolve/resolve_program.h"
#include "planner/resolve/resolve_training.h"
#include "planner/spec/spec_text.h"
#include "planner/time/economics.h"
#include "weights/match.h"

namespace distsetup {
namespace {

void read_trainer(Resolving& r, std::string_view target) {
  const std::string name = r.spec.text("trainer.name").value_or(std::string(kNative));
  const std::string code_base = r.spec.text("trainer.code_base").value_or("");
  if (!code_base.empty() && !has_variant(r.presets, name, code_base == "torchtitan" ? "transformers" : code_base))
    r.fail(code::kUnsupportedFeature, "trainer.code_base", fmt::format("trainer {} does not run the layers of {}", name, code_base),
           "torchtitan, transformers, axolotl and torchtune are of --trainer fsdp2, axolotl, unsloth and torchtune of --trainer ddp; "
           "others have one program each");
  Result<TrainerFacts> facts = find_trainer(r.presets, name, r.spec.at("trainer.name"), target);
  if (!facts.ok()) return append(r.said, std::move(facts.diagnostics));
  r.problem.trainer = std::move(*facts);
  r.problem.setup = r.problem.trainer.defaults;
  r.plan().strategy.trainer = r.problem.trainer.name;
}

Location model_at(Resolving& r) { return r.spec.model.has_value() ? r.spec.model->location : r.spec.at("model"); }

Diagnostics pinned_at(Diagnostics diagnostics, const Location& at) {
  for (Diagnostic& d : diagnostics) d.location = at;
  return diagnostics;
}

void take_geometry(Resolving& r, Result<Geometry> geometry) {
  append(r.said, geometry.diagnostics);
  if (geometry.ok()) r.plan().model = std::move(*geometry);
}

// The bundled trainer's program of the model's family, from a directory of --presets where one has it: the plan carries it.
void take_native_program(Resolving& r) {
  Geometry& model = r.plan().model;
  const PresetFile* own = find_preset(r.presets, "native", model.family);
  if (own == nullptr || own->is_embedded) {
    append(r.said, pinned_at(check_native(model), model_at(r)));
    if (has_error(r.said)) return;
    const std::string& file = native_programs(model)->file;
    if (file != model.family) r.assume(fmt::format("family '{}' run as {}: it has no program of its own", model.family, file));
    return;
  }
  Result<std::string> text = read_file(own->path);
  append(r.said, text.diagnostics);
  if (!text.ok()) return;
  r.used_texts += *text;
  model.native_program = std::move(*text);
  for (Diagnostic d : check_native(model)) {
    d.location.file = own->path;
    r.said.push_back(std::move(d));
  }
}

// Sizes that a launch script gives: a key is added to no script.
void tell_what_script_lacks(Diagnostics& said) {
  for (Diagnostic& one : said) {
    const std::string& file = one.location.file;
    const bool is_of_script =
        !file.empty() && file != "command line" && !file.ends_with(".yaml") && !file.ends_with(".yml") && !file.ends_with(".json");
    if (one.code == code::kMissingKey && is_of_script)
      one.help = "the file does not say it: name the model with all its sizes, --model 8B or --model FOLDER (of its config.json)";
  }
}

void resolve_model(Resolving& r) {
  if (r.spec.model.has_value()) {
    const bool has_base = r.spec.model->find("base") != nullptr;
    take_geometry(r, has_base ? model_over_base(r.presets, *r.spec.model) : geometry_from_value(r.presets, *r.spec.model, "inline"));
    tell_what_script_lacks(r.said);
    if (has_base) r.used_texts += preset_text(r.presets, "models", r.plan().model.name);
  } else if (r.inputs.model.has_value()) {
    r.plan().model = *r.inputs.model;
    r.used_texts += r.inputs.model_text;
  } else if (const auto name = r.spec.text("model"); name.has_value()) {
    Result<Geometry> known = find_model(r.presets, *name, r.spec.at("model"));
    say_how_to_download(*name, known.diagnostics);
    take_geometry(r, std::move(known));
    r.used_texts += preset_text(r.presets, "models", r.plan().model.name);
  } else {
    r.fail(code::kMissingKey, "model", "no model given, expected a size, a preset or a directory with config.json", "add --model 8B");
  }
  if (has_error(r.said)) return;
  append(r.said, validate(r.plan().model, model_at(r)));
  if (r.native()) take_native_program(r);
  if (has_error(r.said)) return;
  if (std::optional<Diagnostic> off = label_note(r.plan().model); off.has_value()) append(r.said, pinned_at({*off}, model_at(r)));
}

void not_planned(Resolving& r, std::string_view what, std::string_view feature) {
  const std::vector<std::string> others = trainers_with(r.presets, feature);
  r.fail(code::kUnsupportedFeature, "model",
         fmt::format("'{}' has {}, which are not planned for {} yet", r.problem.base.model.name, what, r.problem.trainer.label),
         others.empty() ? "" : fmt::format("--trainer {}", others.front()));
}

void check_support(Resolving& r) {
  const Geometry& g = r.problem.base.model;
  const TrainerFacts& facts = r.problem.trainer;
  if (g.attention == Attention::kLatent && !facts.has("latent_attention")) not_planned(r, "latent attention", "latent_attention");
  if (g.num_experts == 0) return;
  for (const auto& [key, value] :
       {std::pair{"expert_capacity", g.expert_capacity}, {"router_z_loss", g.router_z_loss}, {"router_bias_rate", g.router_bias_rate}})
    if (value > 0 && !r.native())
      r.fail(code::kUnsupportedFeature, "model",
             fmt::format("model.{} is a setting of the bundled trainer; other trainers have switches of their own for it", key),
             "plan with --trainer native, or leave it out and set it where that trainer reads it");
  const bool mixed = std::find(g.expert_layer.begin(), g.expert_layer.end(), false) != g.expert_layer.end();
  if (!facts.has("experts")) {
    not_planned(r, "experts", "experts");
  } else if (mixed && !facts.has("mixed_layers")) {
    not_planned(r, "dense layers beside layers with experts", "mixed_layers");
  }
}

void resolve_precision(Resolving& r) {
  std::string compute = r.spec.text("precision.compute").value_or("");
  if (compute.empty()) {
    const AssumedCompute assumed = assumed_compute(r.spec, r.presets, r.inputs, r.native() || r.problem.trainer.has("fp16"));
    compute = name(assumed.compute);
    const char* beside = is_stored_in_16_bits(r) ? "alone, no fp32 master weights" : "with fp32 master weights";
    r.assume(assumed.compute == Dtype::kF32 ? fmt::format("fp32: {}", assumed.why)
                                            : fmt::format("{} {}{}{}", compute, beside, assumed.why.empty() ? "" : ": ", assumed.why));
  }
  PrecisionPlan& precision = r.plan().precision;
  precision.compute = compute == "fp32" ? Dtype::kF32 : compute == "fp16" ? Dtype::kF16 : compute == "fp8" ? Dtype::kF8 : Dtype::kBf16;
  LossScalePlan& scale = precision.loss_scale;
  const std::pair<const char*, int64_t*> settings[] = {{"precision.loss_scale", &scale.fixed},
                                                       {"precision.initial_scale_power", &scale.initial_power},
                                                       {"precision.loss_scale_window", &scale.window},
                                                       {"precision.hysteresis", &scale.hysteresis},
                                                       {"precision.min_loss_scale", &scale.minimum}};
  for (const auto& [path, value] : settings) {
    *value = r.spec.integer(path).value_or(*value);
    if (r.spec.find(path) == nullptr) continue;
    if (precision.compute != Dtype::kF16)
      r.fail(code::kConflict, path, fmt::format("{} is read with fp16 alone, and precision is {}", path, compute), "--precision fp16");
    else if (!r.native() && r.problem.trainer.name != "deepspeed")
      r.fail(code::kUnsupportedFeature, path,
             fmt::format("{} has a loss scale of its own, without this setting", r.problem.trainer.label),
             "--trainer native, or --trainer deepspeed");
  }
  if (precision.compute == Dtype::kF16 && scale.fixed == 0 && scale.minimum > int64_t{1} << scale.initial_power)
    r.fail(code::kConflict, "precision.min_loss_scale",
           fmt::format("the loss scale begins at 2^{} and is never below min_loss_scale {}", scale.initial_power, scale.minimum),
           "a larger initial_scale_power");
}

void take_hardware(Resolving& r) {
  if (has_error(r.said)) return;
  ResolvedHardware h = resolve_hardware(r.spec, r.presets, r.inputs, r.plan().precision.compute);
  append(r.said, std::move(h.diagnostics));
  for (std::string& text : h.assumptions) r.assume(std::move(text));
  r.used_texts += h.used_texts;
  r.plan().hardware = std::move(h.plan);
  r.problem.gpus = std::move(h.gpus);
  r.problem.node_counts = std::move(h.node_counts);
  r.problem.other_hardware = std::move(h.other);
  r.problem.compared_hardware = std::move(h.compared);
  r.problem.larger_hardware = std::move(h.larger);
  r.problem.hardware_assumed = h.assumed;
  r.problem.gpus_per_node_given = h.gpus_per_node_given;
  r.problem.nodes_given = h.nodes_given;
  r.problem.setup.host_memory_bytes_per_s = h.host_memory_bytes_per_s;
  r.problem.setup.nvme_bytes_per_s = h.nvme_bytes_per_s;
  r.per_node = r.plan().hardware.gpus_per_node;
  const auto gpu = r.problem.gpus.find(r.plan().hardware.gpu);
  if (r.native() && gpu != r.problem.gpus.end() && r.plan().hardware.accelerator == Accelerator::kCuda)
    r.plan().host = host_rates(gpu->second, h.host_memory_bytes_per_s, r.per_node, embedded_calibration());
  if (!r.native() || has_error(r.said)) return;
  append(r.said, pinned_at(check_native_kernels(r.plan().model, r.plan().hardware.accelerator), model_at(r)));
}

// Published weights, matched with the model's programs.
void take_weights(Resolving& r) {
  const auto init = r.spec.text("train.init");
  const bool has_weights = r.inputs.weights.has_value();
  if ((init.has_value() || r.spec.find("model.weights") != nullptr) && !r.native())
    return r.fail(code::kUnsupportedFeature, init.has_value() ? "train.init" : "model.weights",
                  "initial weights are a setting of the bundled trainer; other trainers have switches of their own for them",
                  "plan with --trainer native, or set it where that trainer reads it");
  if (!r.inputs.unused_weights.empty() && !init.has_value())
    r.assume(fmt::format("random initial weights (--init weights starts from those of '{}')", r.inputs.unused_weights));
  if (r.native() && !has_weights && !init.has_value() && r.plan().train.method != "pretrain")
    r.assume("random initial weights (--weights FOLDER starts from published ones)");
  if (!has_weights || !r.native() || has_error(r.said)) return;
  Result<MatchedWeights> matched = match_weights(*r.inputs.weights, r.plan().model);
  const Location at = r.spec.at(r.spec.find("model.weights") != nullptr ? "model.weights" : "model");
  append(r.said, pinned_at(std::move(matched.diagnostics), at));
  r.plan().train.init = kWeightsInit;
  r.plan().weights = r.inputs.weights->plan;
}

void take_data(Resolving& r) {
  for (const Diagnostic& d : r.inputs.notes) r.said.push_back(d);
  if (r.inputs.data.has_value()) r.plan().data = *r.inputs.data;
  r.plan().data.shuffle = r.spec.boolean("data.shuffle").value_or(true);
  if (!r.plan().data.shuffle) r.refuse_elsewhere("data.shuffle");
  if (!r.inputs.data.has_value()) return;
  const bool is_prepared = r.plan().data.tokenizer == kPreparedTokens;
  const int64_t vocabulary = r.plan().model.vocabulary;
  if (vocabulary > 0 && vocabulary < r.inputs.data_vocabulary)
    r.fail(code::kData, "data.paths",
           fmt::format("the data's tokenizer has {} tokens, '{}' a vocabulary of {}", format_count(r.inputs.data_vocabulary),
                       r.plan().model.name, format_count(vocabulary)),
           is_prepared ? "prepare the data with the model's own tokenizer: distsetup data prepare"
                       : "give the model a vocabulary of at least 256");
  if (r.native() && r.plan().train.method == "sft" && !is_prepared)
    r.fail(code::kData, "train.method", "sft trains on answers alone, and files of text do not say which tokens those are",
           "distsetup data prepare chats.jsonl --tokenizer MODEL-FOLDER --output SET, then --data SET");
  if (r.native()) check_pairs(r);
  check_data_tokens(r);
  if (is_prepared) return;  // a step reads samples, which may be shorter than its sequences
  // One token more than a step reads: targets are shifted by one.
  const int64_t batch =
      r.problem.global_batch > 0 ? r.problem.global_batch * r.plan().train.sequence_length : r.problem.global_batch_tokens;
  const int64_t tokens = train_tokens(r.plan().data);
  if (tokens < batch + 1)
    r.fail(code::kData, "data.paths",
           fmt::format("{} tokens to train on, one step reads {}", format_count(tokens), format_count(batch)),
           fmt::format("--global-batch-tokens {}, or add text", std::max<int64_t>(r.plan().train.sequence_length, tokens / 2)));
}

void take_rest(Resolving& r) {
  resolve_checkpoints(r);
  LaunchPlan& l = r.plan().launch;
  l.target = r.spec.text("launch.target").value_or(l.target);
  l.via = r.spec.text("launch.via").value_or(l.via);
  l.site = r.spec.text("launch.site").value_or(l.site);
  l.time_limit_s = r.spec.integer("launch.time_limit").value_or(l.time_limit_s);
  l.init_timeout_s = r.spec.integer("launch.init_timeout").value_or(l.init_timeout_s);
  l.collective_timeout_s = r.spec.integer("launch.collective_timeout").value_or(l.collective_timeout_s);
}

std::string inputs_digest(Resolving& r) {
  std::string text = canonical_text(r.spec) + r.used_texts;
  for (const DataFile& f : r.problem.base.data.files) text += fmt::format("{} {}\n", f.path, f.sha256);
  for (const WeightsFile& f : r.problem.base.adapter.files) text += fmt::format("{} {}\n", f.path, f.header_sha256);
  for (const WeightsFile& f : r.problem.base.weights.files) text += fmt::format("{} {}\n", f.path, f.header_sha256);
  return sha256(text);
}

// What the trainer, another than the bundled one, has to have for all that is asked of it.
void settle_trainer(Resolving& r) {
  check_support(r);
  resolve_axes(r);
  resolve_storage(r);
  resolve_program(r);
  if (!has_error(r.said)) resolve_attention_kernel(r);
  if (!has_error(r.said)) resolve_linear_attention(r);
  resolve_finetune(r);
  check_transformers_plan(r);
  resolve_optimizer(r);
  resolve_offload(r);
  narrow_to_trainer(r);
  if (!has_error(r.said)) settle_setup(r);
}

}  // namespace

Result<Problem> resolve_trainer(const Spec& spec, const Presets& presets, const Inputs& inputs, std::string_view target) {
  Resolving r{spec, presets, inputs};
  read_trainer(r, target);
  if (has_error(r.said)) return r.said;
  if (r.native())
    append(r.said, refuse_not_native(spec));
  else
    resolve_release(r);
  resolve_model(r);
  resolve_precision(r);
  take_hardware(r);
  resolve_training(r);
  resolve_preference(r);
  resolve_guard(r);
  if (r.native() && !has_error(r.said)) resolve_native_tuning(r);
  resolve_batch(r);
  resolve_parallel(r);
  if (r.native() && !has_error(r.said)) check_reference_setting(r);
  if (r.native()) resolve_native_offload(r);
  if (r.native()) resolve_native_loss(r);
  take_weights(r);
  take_data(r);
  resolve_packing(r);
  resolve_recording(r);
  take_rest(r);
  if (!r.native() && !has_error(r.said)) settle_trainer(r);
  if (has_error(r.said)) return r.said;
  r.plan().inputs_digest = inputs_digest(r);
  for (Diagnostic& d : r.said) r.plan().diagnostics.push_back(d);
  return r.problem;
}

}  // namespace distsetup
