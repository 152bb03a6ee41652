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
#include "cli/launch/preflight.h"
#include "cli/line/output.h"
#include "cli/settings/run_source.h"
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

// Files of the plan that are trained on, at most three; none: the plan's own text.
Result<std::string> small_data(const Plan& plan, const std::string& folder) {
  std::string paths;
  int num = 0;
  for (const DataFile& file : plan.data.files) {
    if (file.held_out || num == 3) continue;
    paths += (num++ > 0 ? "," : "") + (plan.data.root.empty() ? file.path : plan.data.root + "/" + file.path);
  }
  if (num > 0) return paths;
  const Result<Written> written = write_file_atomic(folder + "/text.json", dump_json(to_json(plan)), Overwrite::kForce);
  if (!written.ok()) return written.diagnostics;
  return folder + "/text.json";
}

Result<StandIn> stand_in(const Plan& plan, const std::string& folder) {
  StandIn out;
  Diagnostics diagnostics;
  const Location at = {"the stand-in"};
  const auto put = [&](const char* path, const std::string& text) { append(diagnostics, set(out.spec, path, text, at)); };
  const bool is_hybrid = plan.mesh.dp_replicate > 1 && plan.strategy.sharding != Sharding::kDdp;
  const int gpus = plan.hardware.accelerator == Accelerator::kCuda ? visible_gpus() : 0, wanted = is_hybrid ? 4 : 2;
  const int ranks = std::min({wanted, plan.mesh.world(), gpus > 0 ? gpus : wanted});
  out.spec.model = small_model(plan.model);
  put("hardware.gpu", gpus > 0 ? plan.hardware.gpu : "cpu");
  put("hardware.nodes", "1");
  put("hardware.gpus_per_node", std::to_string(ranks));
  put("trainer.name", "native");
  const int64_t accumulation = std::min<int64_t>(2, plan.gradient_accumulation);
  put("parallel.micro_batch", "1");
  put("parallel.gradient_accumulation", std::to_string(accumulation));
  put("train.global_batch", std::to_string(accumulation * ranks));
  put("parallel.sharding", std::string(name(plan.strategy.sharding)));
  if (plan.strategy.sharding == Sharding::kZero3)
    put("parallel.reshard_after_forward", plan.strategy.reshard_after_forward ? "true" : "false");
  if (is_hybrid && ranks == 4) {
    put("parallel.dp_replicate", "2");
    put("parallel.dp_shard", "2");
  }
  put("parallel.recompute", plan.recompute.policy == Recompute::kEveryK ? "every_k:2" : std::string(name(plan.recompute.policy)));
  put("precision.compute", plan.precision.compute == Precision::kF32 ? "fp32" : "bf16");
  put("train.sequence_length", std::to_string(kSequence));
  put("train.steps", std::to_string(kSteps));
  put("train.warmup_steps", "1");
  put("train.learning_rate", fmt::format("{}", std::max(plan.train.learning_rate, 1e-3)));
  put("train.grad_clip", fmt::format("{}", plan.train.grad_clip));
  put("train.seed", std::to_string(plan.train.seed));
  const Result<std::string> data = small_data(plan, folder);
  if (!data.ok()) return data.diagnostics;
  put("data.paths", *data);
  put("data.held_out", "0");
  put("checkpoint.directory", folder + "/checkpoints");
  put("checkpoint.every_steps", std::to_string(kSteps / 2));
  put("checkpoint.keep", "1");
  put("launch.init_timeout", "2m");
  put("launch.collective_timeout", "2m");
  for (const auto& [axis, size] : {std::pair{"tp", plan.mesh.tp}, {"cp", plan.mesh.cp}, {"pp", plan.mesh.pp}, {"ep", plan.mesh.ep}}) {
    if (size > 1) out.left_out.push_back(fmt::format("{} {}", axis, size));
  }
  if (plan.offload != OffloadPlan{}) out.left_out.emplace_back("offload");
  if (plan.strategy.trainer != "native") out.left_out.push_back("trainer " + plan.strategy.trainer);
  if (plan.train.finetune != "full") out.left_out.push_back(plan.train.finetune);
  if (plan.train.method == "dpo") out.left_out.emplace_back("preference pairs");
  if (has_error(diagnostics)) return diagnostics;
  return out;
}

// First and last loss of a run.
std::string losses(const std::string& metrics) {
  std::ifstream file(metrics);
  std::string line, first, last;
  while (std::getline(file, line)) {
    const Json json = Json::parse(line, nullptr, false);
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
  move_data_root(*made, ".", folder);
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
