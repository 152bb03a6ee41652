// Names that tools accept (templates/_lint/names): every table is used and sound, unknown names are found at any depth, what a tool
// takes in other ways is left alone.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "base/embedded.h"
#include "codegen/lint/lint.h"
#include "codegen/lint/rule_table.h"
#include "codegen/tables/name_table.h"

using namespace distsetup;

namespace {

std::vector<std::string> messages(const std::string& path, const std::string& text, const std::string& code,
                                  LintContext context = {}) {
  std::vector<std::string> out;
  for (const LintFinding& one : lint_files({{path, text}}, context).findings) {
    if (one.diagnostic.code == code) out.push_back(one.diagnostic.message);
  }
  return out;
}

std::string kind_of(const std::string& path, const std::string& text) {
  const LintReport report = lint_files({{path, text}}, {});
  return report.files.empty() ? "" : report.files[0].kind;
}

}  // namespace

TEST_CASE("lint names: every table has its rule and only types that it defines or that options take", "[lint]") {
  size_t num_tables = 0, num_names = 0;
  for (const EmbeddedFile& file : embedded_files()) {
    const std::string_view folder = "templates/_lint/names/";
    if (file.path.substr(0, folder.size()) != folder) continue;
    const std::string_view base = file.path.substr(folder.size());
    const NameTable& table = name_table(base.substr(0, base.size() - 5));
    INFO(file.path);
    const LintRule* rule = find_lint_rule(table.code);
    REQUIRE(rule != nullptr);
    CHECK(rule->bites == table.unknown);
    for (const auto& [kind, type] : table.roots) CHECK(table.type(type) != nullptr);
    for (const auto& [name, entries] : table.types) {
      std::set<std::string> seen;
      for (const NameEntry& one : entries) {
        INFO(name << " " << one.name << ":" << one.type);
        CHECK(seen.insert(one.name).second);
        if (one.name[0] == '-' || one.type.empty()) continue;
        CHECK(table.type(one.type) != nullptr);
      }
      num_names += entries.size();
    }
    ++num_tables;
  }
  CHECK(num_tables >= 16);
  CHECK(num_names > 3000);
}

TEST_CASE("lint names: found at any depth and below lists", "[lint]") {
  const std::string pod =
      "apiVersion: v1\nkind: Pod\nmetadata: {name: x, label: {a: b}}\nspec:\n  containers:\n    - name: a\n      image: b:1\n"
      "      resources: {limit: {nvidia.com/gpu: 8}}\n      volumeMounts: [{name: shm, mountpath: /dev/shm}]\n";
  const std::vector<std::string> found = messages("pod.yaml", pod, "K8S007");
  CHECK(found ==
        std::vector<std::string>{"Kubernetes 1.37 refuses 'metadata.label': it does not know it",
                                 "Kubernetes 1.37 refuses 'spec.containers[0].resources.limit': it does not know it",
                                 "Kubernetes 1.37 refuses 'spec.containers[0].volumeMounts[0].mountpath': it does not know it"});
  CHECK(messages("a.yaml", "base_model: m\ndatasets:\n  - path: x\n    typ: alpaca\n", "AX004") ==
        std::vector<std::string>{"'datasets[0].typ' is silently ignored: Axolotl 0.19.0 does not know it"});
}

TEST_CASE("lint names: a second document of a stream is looked at", "[lint]") {
  const std::string job = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nspec: {template: {spec: {restartPolicy: Never}}}\n";
  CHECK(messages("x.yaml", job + "---\n" + job, "K8S007").empty());
  CHECK(messages("x.yaml", job + "---\n" + job + "  backofLimit: 1\n", "FIL001").empty() == false);
  CHECK(messages("x.yaml", job + "---\napiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {clusterIp: None}\n", "K8S007")
            .size() == 1);
}

TEST_CASE("lint names: what the tool takes in another way is no finding", "[lint]") {
  CHECK(messages("a.yaml", "base_model: m\nplugins: [axolotl.integrations.liger.LigerPlugin]\nliger_rope: true\n", "AX004").empty());
  CHECK(messages("a.yaml", "base_model: m\nadapter: lora\nliger_rope: true\n", "AX004").size() == 1);
  CHECK(messages("a.yaml", "base_model: m\nfsdp_version: 2\nfsdp_config: {fsdp_offload_params: true}\n", "AX004").empty());
  CHECK(messages("t.sh", "torchrun --nproc 8 train.py --nonsense 1\n", "TR011").empty());  // a prefix; the script's own
  CHECK(messages("j", "#SBATCH --ntasks=4 -N2 --part=gpu\nsrun -n4 -l --mpi=pmix hostname\n", "SL023").empty());
  CHECK(messages("j", "#SBATCH --ntasks=4\nsrun -n4 -l --mpi=pmix --container-image=x hostname\n", "SL021").empty());
  CHECK(
      messages("k.yaml", "apiVersion: kueue.x-k8s.io/v1beta1\nkind: LocalQueue\nmetadata: {name: q}\nspec: {anything: 1}\n", "K8S007")
          .empty());
  CHECK(
      messages("run.sh", "python pretrain_mine.py --micro-batch-size 1 --num-attention-heads 8 --my-argument 1\n", "MEG010").empty());
}

TEST_CASE("lint names: an underscore where the scheduler wants a dash", "[lint]") {
  CHECK(messages("j", "#SBATCH --ntasks_per_node=4\nhostname\n", "SL023").size() == 1);
  CHECK(messages("j", "#SBATCH --ntasks=4\nsrun --ntasks_per_node=4 hostname\n", "SL021").size() == 1);
}

TEST_CASE("lint names: an option of sbatch that is near to none may be a plugin's", "[lint]") {
  for (const auto& [option, severity] :
       {std::pair{"--ntask-per-nod=4", Severity::kError}, std::pair{"--zzqq=4", Severity::kWarning}}) {
    const LintReport report = lint_files({{"j", std::string("#SBATCH ") + option + "\nhostname\n"}}, {});
    const auto found = std::find_if(report.findings.begin(), report.findings.end(),
                                    [](const LintFinding& one) { return one.diagnostic.code == "SL023"; });
    REQUIRE(found != report.findings.end());
    CHECK(found->diagnostic.severity == severity);
  }
}

TEST_CASE("lint names: kinds are told by what is in the file", "[lint]") {
  CHECK(kind_of("x", "#!/bin/bash\n#PBS -l select=1\nhostname\n") == "pbs");
  CHECK(kind_of("x", "#!/bin/bash\n#BSUB -n 4\nhostname\n") == "lsf");
  CHECK(kind_of("x", "#!/bin/bash\n#SBATCH -n 4\nhostname\n") == "sbatch");
  CHECK(kind_of("x.yaml", "output_dir: o\nlearning_rate: 1e-4\n") == "trainer");
  CHECK(kind_of("x.yaml", "output_dir: o\nlearning_rate: 1e-4\npacking: true\n") == "trl");
  CHECK(kind_of("x.yaml", "output_dir: o\nlearning_rate: 1e-4\nlogging_steps: 5\n") == "trainer");
  // A script's own format with some of the Trainer's words, and none that says how it trains.
  CHECK(kind_of("x.yaml",
                "base: m\nnum_epochs: 3\nbatch_size: 4\nlearning_rate: 1e-4\nwarmup_ratio: 0.1\nlogging_steps: 5\nsave_steps: 5\n")
            .empty());
  CHECK(kind_of("x.yaml", "train: {train_iters: 10}\nmodel: {seq_length: 128}\nrng: {seed: 1}\n") == "megatron-bridge");
  CHECK(kind_of("x.yaml", "sequence_len: 4096\nlearning_rate: 1e-4\noutput_dir: o\n") == "axolotl");
  CHECK(kind_of("x.yaml", "# a comment\n{\n\"version\": \"2\",\n\"apis\": [\"inference\"],\n\"providers\": {}\n}\n") == "llama-stack");
}

TEST_CASE("lint keys: a key is held against the release that is used", "[lint]") {
  const std::string mesh =
      "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\nparallelism_config:\n  parallelism_config_tp_size: 2\n";
  const auto found = [&mesh](const std::string& code, const std::string& release) {
    LintContext context;
    if (!release.empty()) context.tools["accelerate"] = release;
    return messages("accelerate.yaml", mesh, code, context);
  };
  CHECK(found("ACC010", "").empty());
  CHECK(found("ACC010", "1.10.0").empty());
  CHECK(found("ACC010", "1.9.0") ==
        std::vector<std::string>{"accelerate refuses 'parallelism_config': accelerate has it since 1.10.0, and 1.9.0 is used"});
  CHECK(found("FSDP020", "1.6.0").empty());
  CHECK(found("FSDP020", "1.5.2") ==
        std::vector<std::string>{"'fsdp_config.fsdp_version' is silently ignored: accelerate has it since 1.6.0, and 1.5.2 is used"});
}

TEST_CASE("lint names: which DeepSpeed reads a file follows from the tool that pins it", "[lint]") {
  const std::string json = R"({"zero_optimization": {"stage": 2, "mics_shard_size": 8}, "bf16": {"enabled": true}})";
  const auto is_told = [&json](std::map<std::string, std::string> tools) {
    LintContext context;
    context.tools = std::move(tools);
    const LintReport report = lint_files({{"ds.json", json}}, context);
    return std::any_of(report.findings.begin(), report.findings.end(),
                       [](const LintFinding& one) { return one.diagnostic.code == "DSJ048"; });  // removed by 0.19.8
  };
  const bool newest = is_told({{"deepspeed", "0.19.8"}}), old = is_told({{"deepspeed", "0.16.9"}});
  REQUIRE(newest != old);
  CHECK(is_told({{"llamafactory", "0.9.3"}}) == old);                              // which pins 0.16.9
  CHECK(is_told({{"llamafactory", "0.9.3"}, {"deepspeed", "0.19.8"}}) == newest);  // what is said counts
}

TEST_CASE("lint names: our own files are told by version and keys", "[lint]") {
  const auto unreadable = [](const std::string& text) {
    const LintReport report = lint_files({{"a.yaml", text}}, {});
    return report.unreadable.size() == 1 ? report.unreadable[0].message : "";
  };
  CHECK(unreadable("version: 1\nmodel: 7B\nhardware: {nodes: 1}\n") == "the file is a run file, which lint has no rules for");
  CHECK(unreadable("version: 1\npartition: gpu\nmodules: [cuda]\n") == "the file is a site file, which lint has no rules for");
  CHECK(unreadable("version: 2\nmodel: 7B\n").find("looks like none of the kinds") != std::string::npos);
  CHECK(unreadable("model: 7B\nhardware: {nodes: 1}\n").find("looks like none of the kinds") != std::string::npos);
}
