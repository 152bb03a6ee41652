// The stand-in keeps what can be wrong about a set-up: family, ties and biases of the model, the ratio of heads, what the ranks split,
// accumulation, recomputation, precision, optimizer, data. It has two blocks of width 64, sequences of 32 tokens, one node, two ranks
// (four where the plan has copies of the shard group) on the GPUs that are here, else on CPU; it saves and is evaluated once.
// Left out, and said: axes and offload that the bundled trainer does not have.
#include "cli/launch/smoke.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/diagnostic_codes.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_text.h"
#include "cli/launch/preflight.h"
#include "cli/line/output.h"
#include "cli/settings/run_source.h"
#include "plan/plan_json.h"
#include "planner/search/goal.h"

namespace distsetup {
namespace {

namespace fs = std::filesystem;

constexpr int kSteps = 4, kWidth = 64, kHeads = 4, kSequence = 32;

struct StandIn {
  Spec spec;
  std::vector<std::string> left_out;
};

Value small_model(const Geometry& model) {
  const int64_t ratio = std::max<int64_t>(1, model.num_heads / std::max<int64_t>(1, model.num_kv_heads));
  const int64_t kv_heads = ratio == 1 ? kHeads : model.num_kv_heads == 1 ? 1 : kHeads / 2;
  Value map;
  map.kind = Value::Kind::kMap;
  const auto add = [&map](const char* key, std::string text) {
    map.entries.push_back({key, scalar_value(std::move(text))});
    map.key_locations.emplace_back();
  };
  add("family", model.family);
  add("num_layers", std::to_string(std::min<int64_t>(2, model.num_layers)));
  add("hidden", std::to_string(kWidth));
  add("num_heads", std::to_string(kHeads));
  add("num_kv_heads", std::to_string(kv_heads));
  add("feed_forward", std::to_string(3 * kWidth));
  add("vocabulary", "256");
  add("max_positions", std::to_string(2 * kSequence));
  add("tied_embeddings", model.tied_embeddings ? "true" : "false");
  add("qkv_bias", model.qkv_bias ? "true" : "false");
  add("qk_norm", model.qk_norm ? "true" : "false");
  return map;
}

// Files of text that the plan trains on, at most three; none: the plan's own text.
Result<std::string> small_data(const Plan& plan, const std::string& folder) {
  std::string paths;
  int num = 0;
  for (const DataFile& file : plan.data.files) {
    if (file.held_out || num == 3 || plan.data.tokenizer != kByteTokens) continue;
    paths += (num++ > 0 ? "," : "") + (plan.data.root.empty() ? file.path : plan.data.root + "/" + file.path);
  }
  if (num > 0) return paths;
  const Result<Written> written = write_file_atomic(folder + "/text.json", dump_json(to_json(plan)), Overwrite::kForce);
  if (!written.ok()) return written.diagnostics;
  return folder + "/text.json";
}

int ranks_of(const Plan& plan, int gpus) {
  const int wanted = plan.mesh.dp_replicate > 1 && plan.strategy.sharding != Sharding::kDdp ? 4 : 2;
  return std::min({wanted, plan.mesh.world(), gpus > 0 ? gpus : wanted});
}

using PathsAndTexts = std::vector<std::pair<std::string, std::string>>;

PathsAndTexts machine_settings(const Plan& plan, int gpus, int ranks) {
  return {{"hardware.gpu", gpus > 0 ? plan.hardware.gpu : "cpu"},
          {"hardware.nodes", "1"},
          {"hardware.gpus_per_node", std::to_string(ranks)},
          {"trainer.name", std::string(kNative)},
          {"launch.init_timeout", "2m"},
          {"launch.collective_timeout", "2m"}};
}

PathsAndTexts parallel_settings(const Plan& plan, int ranks) {
  const int64_t accumulation = std::min<int64_t>(2, plan.gradient_accumulation);
  const bool is_every_k = plan.recompute.policy == Recompute::kEveryK;
  PathsAndTexts settings = {{"parallel.micro_batch", "1"},
                            {"parallel.gradient_accumulation", std::to_string(accumulation)},
                            {"train.global_batch", std::to_string(accumulation * ranks)},
                            {"parallel.sharding", std::string(name(plan.strategy.sharding))},
                            {"parallel.recompute", is_every_k ? "every_k:2" : std::string(name(plan.recompute.policy))},
                            {"precision.compute", plan.precision.compute == Dtype::kF32 ? "fp32" : "bf16"}};
  if (plan.strategy.sharding == Sharding::kZero3)
    settings.emplace_back("parallel.reshard_after_forward", plan.strategy.reshard_after_forward ? "true" : "false");
  if (is_native(plan)) {
    settings.emplace_back("trainer.loss_head", plan.strategy.loss_head);
    settings.emplace_back("parallel.prefetch", std::to_string(plan.strategy.prefetch));
    settings.emplace_back("parallel.reductions_in_flight", std::to_string(plan.strategy.reductions_in_flight));
  }
  if (ranks == 4) settings.insert(settings.end(), {{"parallel.dp_replicate", "2"}, {"parallel.dp_shard", "2"}});
  return settings;
}

PathsAndTexts training_settings(const Plan& plan, const std::string& data, const std::string& folder) {
  return {{"train.sequence_length", std::to_string(kSequence)},
          {"train.steps", std::to_string(kSteps)},
          {"train.warmup_steps", "1"},
          {"train.learning_rate", fmt::format("{}", std::max(plan.train.learning_rate, 1e-3))},
          {"train.grad_clip", fmt::format("{}", plan.train.grad_clip)},
          {"train.seed", std::to_string(plan.train.seed)},
          {"data.paths", data},
          {"data.held_out", "0"},
          {"checkpoint.directory", folder + "/checkpoints"},
          {"checkpoint.every_steps", std::to_string(kSteps / 2)},
          {"checkpoint.keep", "1"}};
}

std::vector<std::string> left_out_of(const Plan& plan) {
  std::vector<std::string> out;
  for (const auto& [axis, size] : {std::pair{"tp", plan.mesh.tp}, {"cp", plan.mesh.cp}, {"pp", plan.mesh.pp}, {"ep", plan.mesh.ep}}) {
    if (size > 1) out.push_back(fmt::format("{} {}", axis, size));
  }
  if (plan.offload != OffloadPlan{}) out.emplace_back("offload");
  if (!is_native(plan)) out.push_back("trainer " + plan.strategy.trainer);
  if (plan.train.finetune != "full") out.push_back(plan.train.finetune);
  if (plan.train.method == "dpo") out.emplace_back("preference pairs");
  return out;
}

Result<StandIn> stand_in(const Plan& plan, const std::string& folder) {
  const int gpus = plan.hardware.accelerator == Accelerator::kCuda ? visible_gpus() : 0, ranks = ranks_of(plan, gpus);
  const Result<std::string> data = small_data(plan, folder);
  if (!data.ok()) return data.diagnostics;
  StandIn out;
  out.spec.model = small_model(plan.model);
  out.left_out = left_out_of(plan);
  Diagnostics diagnostics;
  for (const PathsAndTexts& settings :
       {machine_settings(plan, gpus, ranks), parallel_settings(plan, ranks), training_settings(plan, *data, folder)}) {
    for (const auto& [path, text] : settings) append(diagnostics, set(out.spec, path, text, {"the stand-in"}));
  }
  if (has_error(diagnostics)) return diagnostics;
  return out;
}

// First and last loss of a run.
std::string losses(const std::string& metrics) {
  std::ifstream file(metrics);
  std::string line, first, last;
  while (std::getline(file, line)) {
    const Json json = json_from_text(line);
    if (!json.is_object() || !json.contains("loss") || !json.contains("gradient_norm") || !json["loss"].is_number()) continue;
    last = fmt::format("{:.4f}", json["loss"].get<double>());
    if (first.empty()) first = last;
  }
  return first.empty() ? "" : fmt::format(", loss {} to {}", first, last);
}

}  // namespace

int run_smoke(const Arguments& arguments, const Session& session, const Terminal& terminal, LaunchOptions options, const Plan& plan) {
  std::error_code failure;
  const bool is_kept = !options.output_dir.empty();
  std::string folder = options.output_dir;
  if (!is_kept) {
    folder = (fs::temp_directory_path() / "distsetup-smoke-XXXXXX").string();
    if (::mkdtemp(folder.data()) == nullptr)
      return fail(arguments, terminal, {error(code::kUnwritableFile, {folder}, "no folder for the stand-in can be made")});
  } else {
    fs::create_directories(folder, failure);
  }
  folder = fs::absolute(folder).string();
  Result<StandIn> small = stand_in(plan, folder);
  Diagnostics diagnostics = small.diagnostics;
  const auto end = [&](int code) {
    if (!is_kept && code == 0) fs::remove_all(folder, failure);
    if (!is_kept && code != 0) say(fmt::format("what the stand-in left is in {}\n", folder));
    return code;
  };
  if (!small.ok()) return end(fail(arguments, terminal, diagnostics));
  const Result<Problem> problem = read_problem(arguments, session, small->spec);
  append(diagnostics, problem.diagnostics);
  if (!problem.ok()) return end(fail(arguments, terminal, diagnostics));
  Result<Plan> made = make_plan_for_goal(*problem);
  append(diagnostics, made.diagnostics);
  if (!made.ok()) return end(fail(arguments, terminal, diagnostics));
  move_inputs(*made, ".", folder);
  const Result<Written> written = write_file_atomic(folder + "/plan.json", dump_json(to_json(*made)), Overwrite::kForce);
  if (!written.ok()) return end(fail(arguments, terminal, written.diagnostics));
  mention(terminal, fmt::format("smoke: {} steps of a stand-in of {}: {} layers of width {}, {} {}, {}, recompute {}, {}{}\n", kSteps,
                                plan.model.name, made->model.num_layers, made->model.hidden, made->mesh.world(),
                                made->hardware.accelerator == Accelerator::kCpu ? "CPU ranks" : "GPUs", name(made->strategy.sharding),
                                name(made->recompute.policy), name(made->precision.compute),
                                small->left_out.empty() ? "" : fmt::format("; without {}", fmt::join(small->left_out, ", "))));
  if (plan.data.files.empty()) mention(terminal, "smoke: the plan has no data, its own text is trained on\n");
  options.plan_path = folder + "/plan.json";
  options.output_dir = folder;
  options.node_rank = 0;
  options.master_addr.clear();
  options.master_port = 0;
  const int code = run_launch(options);
  if (code == 0) mention(terminal, fmt::format("smoke: passed{}\n", losses(folder + "/metrics.jsonl")));
  return end(code);
}

}  // namespace distsetup
