// Launch and job scripts: what they contain and what they never contain.
#include <algorithm>
#include <catch2/catch.hpp>

#include "base/diagnostic_codes.h"
#include "base/json.h"
#include "codegen/job/settings.h"
#include "codegen/shell/quote.h"
#include "codegen/tables/target.h"
#include "plan/plan_json.h"
#include "support/emitted.h"

using namespace distsetup;

namespace {

std::string sbatch(const JobOptions& options) {
  const Result<Artifacts> written = slurm_job(options);
  INFO(messages(written.diagnostics));
  REQUIRE(written.ok());
  REQUIRE(written->size() == 1);
  return written->front().text;
}

std::string refusal(const JobOptions& options, const Plan* plan = nullptr) {
  const Result<Artifacts> written = slurm_job(options, plan);
  REQUIRE_FALSE(written.ok());
  return messages(written.diagnostics);
}

JobOptions four_by_eight() {
  JobOptions options;
  options.nodes = 4;
  options.gpus_per_node = 8;
  return options;
}

std::vector<std::string> all_scripts(const Plan& plan) {
  std::vector<std::string> out;
  for (const char* target : {"native", "deepspeed", "fsdp", "slurm"}) {
    const Result<Artifacts> written = emit(plan, target);
    INFO(messages(written.diagnostics));
    REQUIRE(written.ok());
    for (const Artifact& artifact : *written) {
      if (artifact.executable) out.push_back(artifact.text);
    }
  }
  return out;
}

}  // namespace

TEST_CASE("codegen: emit writes plan.json as plan --json prints it, and the scripts of the target") {
  const Plan plan = cluster_plan();
  const auto paths = [&plan](const char* target) {
    std::string out;
    const Result<Artifacts> written = emit(plan, target);
    for (const Artifact& artifact : *written) out += artifact.path + (artifact.executable ? "* " : " ");
    return out;
  };
  CHECK(paths("native") == "plan.json launch.sh* launch_node.sh* ");
  CHECK(paths("deepspeed") == "plan.json ds_config.json launch.sh* ");
  CHECK(paths("fsdp") == "plan.json accelerate.yaml launch.sh* ");
  CHECK(paths("slurm") == "plan.json job.sbatch* ");
  CHECK(file(*emit(plan, "native"), "plan.json") == dump_json(to_json(plan)));
  const std::vector<std::string> names = target_names(embedded_templates());
  for (const char* name : {"deepspeed", "fsdp", "native", "slurm", "torchrun", "mpirun", "ssh", "kubernetes", "pbs", "lsf"})
    CHECK(std::find(names.begin(), names.end(), name) != names.end());
  for (const std::string& name : names) CHECK((name != "shared" && name[0] != '_'));
}

TEST_CASE("codegen: the header says what the files were made from, and the arithmetic") {
  EmitOptions options;
  options.command = join_command({"distsetup", "emit", "--model", "my model\nrm -rf x"});
  for (const char* target : {"native", "deepspeed", "fsdp", "slurm"}) {
    const Result<Artifacts> written = emit(cluster_plan(), target, options);
    for (const Artifact& artifact : *written) {
      if (artifact.path.size() > 5 && artifact.path.substr(artifact.path.size() - 5) == ".json") continue;
      INFO(artifact.path);
      CHECK(contains(artifact.text, "# distsetup " DISTSETUP_VERSION ", inputs " + std::string(64, 'a')));
      CHECK(contains(artifact.text, "# 4 nodes × 8 GPUs = 32 ranks\n"));
      CHECK(contains(artifact.text, "global batch 256 = micro-batch 2 × accumulation 4 × data-parallel 32"));
      CHECK(contains(artifact.text, "# command: distsetup emit --model $'my model\\nrm -rf x'\n"));
      CHECK_FALSE(contains(artifact.text, "\nrm -rf"));
    }
  }
}

TEST_CASE("codegen: same input, same bytes") {
  for (const char* target : {"native", "deepspeed", "fsdp", "slurm"})
    CHECK(*emit(cluster_plan(), target) == *emit(cluster_plan(), target));
}

TEST_CASE("codegen: regression 9: one SLURM task per GPU and no launcher inside it") {
  const std::string text = sbatch(four_by_eight());
  CHECK(contains(text, "#SBATCH --nodes=4\n"));
  CHECK(contains(text, "#SBATCH --ntasks-per-node=8\n"));
  CHECK(contains(text, "#SBATCH --gpus-per-node=8\n"));
  for (const char* never : {"torchrun", "deepspeed", "accelerate", "distsetup launch", "gpus-per-task", "gpu-bind"})
    CHECK_FALSE(contains(text, never));
}

TEST_CASE("codegen: regression 10: no node rank is fixed in a script") {
  Plan plan = cluster_plan();
  for (const std::string& text : all_scripts(plan)) {
    CHECK_FALSE(contains(text, "SLURM_PROCID"));
    CHECK_FALSE(contains(text, "SLURM_NODEID"));
    CHECK_FALSE(contains(text, "node_rank=0"));
    CHECK_FALSE(contains(text, "machine_rank 0"));
  }
  CHECK(contains(file(*emit(plan, "native"), "launch_node.sh"), "node_rank=${given[0]:-${NODE_RANK:-}}"));
}

TEST_CASE("codegen: regression 15: CUDA_DEVICE_MAX_CONNECTIONS and NCCL switches are not emitted") {
  for (const std::string& text : all_scripts(cluster_plan())) {
    for (const char* never : {"CUDA_DEVICE_MAX_CONNECTIONS", "NCCL_", "P2P", "HF_TOKEN", "WANDB_API_KEY"})
      CHECK_FALSE(contains(text, never));
  }
}

TEST_CASE("codegen: regression 28: the folder of a SLURM log is made before it is used") {
  JobOptions options = four_by_eight();
  const std::string plain = sbatch(options);
  CHECK(contains(plain, "#SBATCH --output=slurm-%j.out\n"));
  CHECK(contains(plain, "#SBATCH --error=slurm-%j.err\n"));
  CHECK_FALSE(contains(plain, "mkdir"));
  options.settings.set("output_log", "my logs/%x-%j.out");
  const std::string folder = sbatch(options);
  CHECK(contains(folder, "#SBATCH --output=slurm-%j.out\n"));
  CHECK(folder.find("mkdir -p -- 'my logs'") < folder.find("--output='my logs/%x-%j.out'"));
  CHECK(contains(folder, "--error='my logs/%x-%j.err'"));
  options.settings.set("output_log", "logs-%j/out");
  CHECK(contains(refusal(options), "pattern in its folder"));
  options.settings.set("output_log", "logs/");
  CHECK(contains(refusal(options), "names no file"));
}

TEST_CASE("codegen: nothing of a site's own is in a SLURM script unless it was given") {
  const std::string text = sbatch(four_by_eight());
  for (const char* never : {"partition", "account", "qos", "module", "source", "conda", "--mem", "reservation"}) {
    INFO(never);
    CHECK_FALSE(contains(text, never));
  }
  JobOptions options = four_by_eight();
  options.settings.set("partition", "gpu");
  options.settings.set("account", "my account");
  options.settings.set("memory_per_gpu", "32G");
  options.time_limit = "4h";
  options.settings.set("exclusive", true);
  options.settings.set("modules", Json::array({"cuda/12.2"}));
  options.settings.set("exports", Json::array({"A=b c"}));
  options.settings.set("setup", Json::array({"source ~/env/bin/activate"}));
  const std::string given = sbatch(options);
  for (const char* line :
       {"#SBATCH --partition=gpu\n", "#SBATCH --account=\"my account\"\n", "#SBATCH --mem-per-gpu=32G\n", "#SBATCH --time=04:00:00\n",
        "#SBATCH --exclusive\n", "\nmodule load cuda/12.2\n", "\nexport 'A=b c'\n", "\nsource ~/env/bin/activate\n"}) {
    INFO(line);
    CHECK(contains(given, line));
  }
  CHECK(given.find("module load") < given.find("set -euo pipefail"));  // site profiles do not survive -u
}

TEST_CASE("codegen: every directive comes before the first command") {
  JobOptions options = four_by_eight();
  options.settings.set("requeue", true);
  const std::string text = sbatch(options);
  bool commands = false;
  for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
    const std::string line = text.substr(at, text.find('\n', at) - at);
    if (line.rfind("#SBATCH", 0) == 0) CHECK_FALSE(commands);
    if (!line.empty() && line[0] != '#') commands = true;
  }
  CHECK(commands);
}

TEST_CASE("codegen: time limits, memory and signals of a SLURM script") {
  JobOptions options = four_by_eight();
  CHECK(contains(sbatch(options), "#SBATCH --time=24:00:00\n"));
  options.time_limit = "48:00:00";
  CHECK(contains(sbatch(options), "#SBATCH --time=48:00:00\n"));
  CHECK(contains(sbatch(options), "#SBATCH --signal=USR1@120\n"));
  CHECK(contains(sbatch(options), "#SBATCH --no-requeue\n"));
  options.settings.set("requeue", true);
  const std::string again = sbatch(options);
  for (const char* part : {"#SBATCH --requeue\n", "#SBATCH --open-mode=append\n", "#SBATCH --signal=B:USR1@120\n", "trap 'warned=yes",
                           "SLURM_RESTART_COUNT"}) {
    CHECK(contains(again, part));
  }
  CHECK_FALSE(contains(again, "exec \"${step"));
  options.time_limit = "fast";
  CHECK_FALSE(slurm_job(options).ok());
  options = four_by_eight();
  options.settings.set("memory_per_gpu", "many");
  CHECK_FALSE(slurm_job(options).ok());
  options.settings.set("memory_per_gpu", "32G");
  options.settings.set("memory_per_node", "0");
  CHECK(contains(refusal(options), "twice"));
}

TEST_CASE("codegen: a SLURM script without a plan waits for one, with a plan it belongs to it") {
  const std::string without = sbatch(four_by_eight());
  CHECK(contains(without, "\nPLAN=${PLAN:-plan.json}\n"));
  CHECK(without.find("no plan at") < without.find("srun"));
  const Plan plan = cluster_plan();
  const Result<Artifacts> with = slurm_job(JobOptions{}, &plan);
  REQUIRE(with.ok());
  REQUIRE(with->size() == 2);
  CHECK(with->at(0).path == "plan.json");
  CHECK(contains(with->at(1).text, "digest=" + std::string(64, 'a')));
  JobOptions options = four_by_eight();
  options.nodes = 2;
  CHECK(contains(refusal(options, &plan), "--nodes 2, but the plan has 4"));
}

TEST_CASE("codegen: a plan on CPU asks SLURM for no GPU") {
  Plan plan = make_test_plan(tiny_geometry(), PlanChoice{Sharding::kZero3, 1, 2});
  const std::string text = file(*emit(plan, "slurm"), "job.sbatch");
  CHECK_FALSE(contains(text, "#SBATCH --gpus"));
  CHECK_FALSE(contains(text, "#SBATCH --cpus-per-task"));
  CHECK(contains(text, "# 1 node × 2 processes = 2 ranks\n"));
}

TEST_CASE("codegen: text of the user's cannot leave its place in a script") {
  JobOptions options = four_by_eight();
  options.settings.set("job_name", "x\n#SBATCH --wrap=id");
  CHECK(contains(refusal(options), "control characters"));
  options = four_by_eight();
  options.settings.set("job_name", "a \"b\" $(id)");
  CHECK(contains(sbatch(options), "#SBATCH --job-name=\"a \\\"b\\\" $(id)\"\n"));
  options = four_by_eight();
  options.settings.set("exports", Json::array({"A=$(id)`id`'"}));
  CHECK(contains(sbatch(options), "\nexport 'A=$(id)`id`'\\'''\n"));
  options.settings.set("exports", Json::array({"A-B=1"}));
  CHECK(contains(refusal(options), "expected NAME=VALUE"));
}

TEST_CASE("codegen: quoting for YAML and directives") {
  CHECK(quote_yaml("no") == "'no'");
  CHECK(quote_yaml("No") == "'No'");
  CHECK(quote_yaml("1e3") == "'1e3'");
  CHECK(quote_yaml("12:30") == "'12:30'");
  CHECK(quote_yaml("a: b") == "'a: b'");
  CHECK(quote_yaml("it's") == "'it''s'");
  CHECK(quote_yaml("two\nlines") == "\"two\\nlines\"");
  CHECK(quote_yaml("LlamaDecoderLayer") == "LlamaDecoderLayer");
  CHECK(quote_yaml("") == "''");
  CHECK(quote_directive("n[1-4,7]") == "n[1-4,7]");
  CHECK(quote_directive("a#b") == "\"a#b\"");
}

namespace {

// Every target that runs on a plan of its own trainer by way of every scheduler and launcher.
std::vector<std::string> targets_with(bool starts_scripts) {
  const TemplateSet& templates = embedded_templates();
  std::vector<std::string> out;
  for (const std::string& name : target_names(templates)) {
    const Result<TargetDescription> described = describe_target(templates, name, {});
    if (starts_scripts ? target_uses(templates, name, {"job.node_script"}) : !described->node_script.empty()) out.push_back(name);
  }
  return out;
}

Plan plan_for(const std::string& target, int nodes) {
  Plan plan = cluster_plan();
  const std::vector<std::string> trainers = target_search(embedded_templates(), target)->trainers;
  plan.strategy.trainer = trainers.empty() ? "fsdp2" : trainers.front();
  plan.launch.target = target;
  plan.model.hub_id = "some/model";
  plan.hardware.nodes = nodes;
  plan.mesh.dp_shard = 8 * nodes;
  plan.train.global_batch = 2 * 4 * 8 * nodes;
  if (plan.strategy.trainer == "megatron") plan.strategy.sharding = Sharding::kZero1;
  if (target.starts_with("openrlhf") || target == "fine-tuning" || target == "training-stages") plan.train.method = "sft";
  return plan;
}

}  // namespace

TEST_CASE("codegen: every trainer is started by way of every scheduler and launcher") {
  const std::vector<std::string> trainers = targets_with(false), starters = targets_with(true);
  CHECK(trainers.size() >= 20);
  for (const char* name : {"slurm", "kubernetes", "kubernetes-jobset", "kubernetes-pytorchjob", "kubernetes-trainjob", "pbs", "lsf",
                           "skypilot", "ssh", "mpirun"}) {
    INFO(name);
    CHECK(std::find(starters.begin(), starters.end(), name) != starters.end());
  }
  for (const std::string& target : trainers) {
    for (const std::string& via : starters) {
      for (const int nodes : {1, 4}) {
        if (via == "docker-compose" && nodes > 1) continue;
        INFO(target << " by way of " << via << ", " << nodes << " nodes");
        EmitOptions options;
        options.via = via;
        options.job.program = {"train.py", "it's"};
        options.job.settings.set("container.image", "registry/name:1");
        const Result<Artifacts> alone = emit(plan_for(target, nodes), target, options.via.empty() ? options : EmitOptions{});
        if (!alone.ok()) continue;  // what the target has no form for is tested elsewhere
        const Result<Artifacts> written = emit(plan_for(target, nodes), target, options);
        INFO(messages(written.diagnostics));
        REQUIRE(written.ok());
        CHECK(written->size() == alone->size() + 1);  // the job, and no second plan.json
        CHECK(contains(file(*written, "launch.sh"), "\n  train.py\n"));
        CHECK(contains(written->back().text, "launch.sh"));
        if (nodes > 1 && (via == "kubernetes" || via == "kubernetes-jobset"))
          CHECK(contains(written->back().text, "export NODE_RANK=\"$JOB_COMPLETION_INDEX\" MASTER_ADDR="));
        for (const char* trainer : {"distsetup launch", "distsetup-train"}) CHECK_FALSE(contains(written->back().text, trainer));
      }
    }
  }
}
