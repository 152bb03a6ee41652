// Every rule of lint by its own examples: the bad one gives the finding, the good one neither that finding nor any error; fixes are
// safe (they remove their finding and leave a file that reads) and done once.
#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "base/json.h"
#include "base/value_yaml.h"
#include "codegen/emit.h"
#include "codegen/lint/lint.h"
#include "codegen/lint/rule_table.h"
#include "plan/plan_json.h"
#include "support/every_target.h"
#include "support/random_plan.h"

using namespace distsetup;

namespace {

std::string text_of(const LintReport& report) {
  Diagnostics all = report.unreadable;
  for (const LintFinding& one : report.findings) all.push_back(one.diagnostic);
  return format_diagnostics(all);
}

bool finds(const LintReport& report, std::string_view code) {
  for (const LintFinding& one : report.findings) {
    if (one.diagnostic.code == code) return true;
  }
  return false;
}

LintReport lint(const LintExample& example) { return lint_files(example.files, example.context); }

// Needs a whole plan.json: below.
bool needs_plan(const LintRule& rule) { return rule.code == "PLAN012"; }

}  // namespace

TEST_CASE("lint: every rule's bad example gives its finding", "[lint]") {
  REQUIRE(lint_rules().size() > 170);
  for (const LintRule& rule : lint_rules()) {
    if (needs_plan(rule)) continue;
    const LintReport report = lint(rule.bad);
    INFO(rule.code << "\n" << text_of(report));
    CHECK(finds(report, rule.code));
    CHECK(report.unreadable.empty());
    for (const LintFinding& one : report.findings) {
      if (one.diagnostic.code != rule.code) continue;
      CHECK(one.diagnostic.severity == rule.severity);
      CHECK(one.diagnostic.location.line >= 1);
      CHECK_FALSE(one.diagnostic.help.empty());
      CHECK(one.diagnostic.message.back() != '.');
    }
  }
}

TEST_CASE("lint: every rule's good example is clean of it and of errors", "[lint]") {
  for (const LintRule& rule : lint_rules()) {
    if (needs_plan(rule)) continue;
    const LintReport report = lint(rule.good);
    INFO(rule.code << "\n" << text_of(report));
    CHECK_FALSE(finds(report, rule.code));
    CHECK(report.unreadable.empty());
    for (const LintFinding& one : report.findings) CHECK(one.diagnostic.severity != Severity::kError);
  }
}

TEST_CASE("lint: codes are unique and every rule says why what to do and whose word it is", "[lint]") {
  std::set<std::string> codes;
  for (const LintRule& rule : lint_rules()) {
    INFO(rule.code);
    CHECK(codes.insert(rule.code).second);
    CHECK_FALSE(rule.why.empty());
    CHECK_FALSE(rule.fix.empty());
    CHECK_FALSE(rule.source.empty());
    CHECK_FALSE(rule.title.empty());
  }
}

TEST_CASE("lint: what is silently ignored is said in those words", "[lint]") {
  // Rules about a key, a variable or a line that the tool passes over.
  for (const char* code : {"DSJ003", "DSJ005", "DSJ006", "DSJ010", "DSJ035", "FSDP003", "FSDP020", "ENV004", "AX004", "LLS005",
                           "BRG001", "ACC012", "SL005", "PBS002", "TR001", "DL002", "LN004"}) {
    const LintRule* rule = find_lint_rule(code);
    REQUIRE(rule != nullptr);
    CHECK(rule->bites == "silent");
    size_t num_said = 0;
    const LintReport report = lint(rule->bad);
    for (const LintFinding& one : report.findings) {
      if (one.diagnostic.code == code && one.diagnostic.message.find("silently ignore") != std::string::npos) ++num_said;
    }
    INFO(code << "\n" << text_of(report));
    CHECK(num_said > 0);
  }
}

TEST_CASE("lint: a fix removes its finding and nothing else", "[lint]") {
  size_t num_fixes = 0;
  for (const LintRule& rule : lint_rules()) {
    const LintReport before = lint(rule.bad);
    for (size_t i = 0; i < before.files.size(); ++i) {
      LintExample fixed = rule.bad;
      std::vector<const LintFinding*> applied;
      fixed.files[i].text = apply_fixes(before, i, fixed.files[i].text, applied);
      if (applied.empty()) {
        CHECK(fixed.files[i].text == rule.bad.files[i].text);
        continue;
      }
      const LintReport after = lint(fixed);
      INFO(rule.code << "\n" << fixed.files[i].text << "\n" << text_of(after));
      for (const LintFinding* one : applied) {
        CHECK_FALSE(finds(after, one->diagnostic.code));
        ++num_fixes;
      }
      CHECK(after.findings.size() + applied.size() <= before.findings.size());
      CHECK(after.files[i].kind == before.files[i].kind);
    }
  }
  CHECK(num_fixes > 12);
}

TEST_CASE("lint: fixing a fixed file changes nothing", "[lint]") {
  for (const LintRule& rule : lint_rules()) {
    LintExample example = rule.bad;
    const auto fix_all = [&example] {
      const LintReport report = lint(example);
      for (size_t i = 0; i < report.files.size(); ++i) {
        std::vector<const LintFinding*> applied;
        example.files[i].text = apply_fixes(report, i, example.files[i].text, applied);
      }
    };
    fix_all();
    const std::vector<LintFile> once = example.files;
    fix_all();
    INFO(rule.code);
    for (size_t i = 0; i < once.size(); ++i) CHECK(example.files[i].text == once[i].text);
  }
}

TEST_CASE("lint: the same files give the same findings in the same order", "[lint]") {
  for (const LintRule& rule : lint_rules()) {
    const LintReport one = lint(rule.bad), two = lint(rule.bad);
    INFO(rule.code);
    CHECK(text_of(one) == text_of(two));
    for (size_t i = 1; i < one.findings.size(); ++i) {
      const LintFinding &before = one.findings[i - 1], &after = one.findings[i];
      CHECK((before.file < after.file || before.diagnostic.location.line <= after.diagnostic.location.line));
    }
  }
}

TEST_CASE("lint: a plan that its target cannot express", "[lint]") {
  const LintRule* rule = find_lint_rule("PLAN012");
  REQUIRE(rule != nullptr);
  for (const bool reshard : {true, false}) {  // ZeRO-3 has no form for parameters kept between forward and backward
    PlanChoice choice;
    choice.dp_shard = 4;
    choice.reshard = reshard;
    Plan plan = make_test_plan(tiny_geometry(), choice);
    plan.launch.target = "deepspeed";
    const LintReport report = lint_files({{"plan.json", dump_json(to_json(plan))}}, {});
    INFO(text_of(report));
    CHECK(finds(report, "PLAN012") == !reshard);
  }
  // What is said when the files are made is no fault of the plan.
  for (const char* target : {"kubernetes", "kubernetes-pytorchjob", "kubernetes-jobset"}) {
    Plan plan = make_test_plan(tiny_geometry(), {});
    plan.launch.target = target;
    CHECK_FALSE(finds(lint_files({{"plan.json", dump_json(to_json(plan))}}, {}), "PLAN012"));
  }
}

TEST_CASE("lint: no cut-off example stops it", "[lint]") {
  for (const LintRule& rule : lint_rules()) {
    for (size_t cut = 1; cut < 8; ++cut) {
      LintExample example = rule.bad;
      for (LintFile& file : example.files) file.text.resize(file.text.size() * cut / 8);
      const LintReport report = lint(example);
      CHECK(report.files.size() + report.unreadable.size() >= example.files.size());
    }
  }
}

TEST_CASE("lint: what we emit has neither errors nor warnings", "[lint]") {
  for (const int nodes : {1, 4}) {
    for (const EmittedTarget& emitted : emit_every_target(nodes)) {
      std::vector<LintFile> to_lint;
      for (const Artifact& one : emitted.files) {
        if (is_for_lint(one)) to_lint.push_back({one.path, one.text});
      }
      const LintReport report = lint_files(to_lint, {});
      for (const LintFinding& one : report.findings) {
        if (one.diagnostic.code == "ORL003") continue;  // openrlhf-flags is for the branch that no release has
        INFO(emitted.target << " on " << nodes << " nodes\n" << format_diagnostics({one.diagnostic}));
        CHECK(one.diagnostic.severity == Severity::kNote);
      }
    }
  }
}

TEST_CASE("lint: a finding names the place, the key and the nearest name", "[lint]") {
  const LintReport report = lint_files({{"ds.json", "{\n  \"train_batch_size\": 8,\n  \"gradient_cliping\": 1.0\n}\n"}}, {});
  REQUIRE(finds(report, "DSJ003"));
  for (const LintFinding& one : report.findings) {
    if (one.diagnostic.code != "DSJ003") continue;
    CHECK(one.diagnostic.location == Location{"ds.json", 3, 3});
    CHECK(one.diagnostic.length == 18);
    CHECK(one.diagnostic.message == "'gradient_cliping' is silently ignored: DeepSpeed does not know it");
    CHECK(one.diagnostic.help == "did you mean 'gradient_clipping'");
    CHECK(one.bites == "silent");
  }
}

TEST_CASE("lint: early expansion in every spelling", "[lint]") {
  const auto early = [](const std::string& line) {
    return finds(lint_files({{"j", "#!/bin/bash\n#SBATCH --nodes=2\n" + line + "\n"}}, {}), "SL003");
  };
  CHECK(early("srun bash -c \"python t.py --rank $SLURM_PROCID\""));
  CHECK(early("srun bash -c \"python t.py --rank ${SLURM_PROCID}\""));
  CHECK(early("srun torchrun --node_rank $SLURM_NODEID t.py"));
  CHECK(early("srun torchrun --node_rank=\"$SLURM_NODEID\" t.py"));
  CHECK(early("RANK=$SLURM_PROCID srun python t.py"));
  CHECK(early("export RANK=$SLURM_PROCID\nsrun python t.py"));
  CHECK(early("srun bash <<EOF\npython t.py --rank $SLURM_PROCID\nEOF"));
  CHECK_FALSE(early("srun bash -c 'python t.py --rank $SLURM_PROCID'"));
  CHECK_FALSE(early("srun bash -c \"python t.py --rank \\$SLURM_PROCID\""));
  CHECK_FALSE(early("srun bash <<'EOF'\npython t.py --rank $SLURM_PROCID\nEOF"));
  CHECK_FALSE(early("srun bash -c \"python t.py --job $SLURM_JOB_ID\""));
  CHECK_FALSE(early("echo \"$SLURM_PROCID\""));
}

TEST_CASE("lint: a quote that is never closed is not rewritten", "[lint]") {
  const std::string job = "#!/bin/bash\n#SBATCH --nodes=2\nsrun bash -c \"torchrun --node_rank=$SLURM_NODEID t.py";
  for (const LintFinding& one : lint_files({{"j", job}}, {}).findings) {
    for (const LintEdit& edit : one.edits) CHECK(edit.end <= job.size());
  }
  CHECK(finds(lint_files({{"j", job}}, {}), "SL003"));
}

TEST_CASE("lint: files named together are one set-up", "[lint]") {
  const std::string job =
      "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=8\n#SBATCH --gpus-per-node=8\nsrun --kill-on-bad-exit=1 ./start.sh\n";
  const std::string start = "#!/bin/bash\naccelerate launch --config_file a.yaml --main_process_ip \"$HEAD\" train.py\n";
  const std::string config = "distributed_type: MULTI_GPU\nnum_machines: 2\nnum_processes: 8\nmachine_rank: 0\n";
  CHECK_FALSE(finds(lint_files({{"job.sbatch", job}}, {}), "SL001"));
  const LintReport together = lint_files({{"job.sbatch", job}, {"start.sh", start}, {"a.yaml", config}}, {});
  CHECK(finds(together, "SL001"));   // start.sh starts a launcher in each of the eight tasks
  CHECK(finds(together, "ACC001"));  // 8 processes, 16 GPUs
  CHECK_FALSE(finds(together, "ACC002"));
}

TEST_CASE("lint: unknown keys bite as the tables of the targets say", "[lint]") {
  // Table of a target, kind for lint, a file with a place for an unknown key.
  struct Same {
    std::string table, kind, top;
  };
  size_t num_sections = 0;
  for (const Same& one : {Same{"deepspeed/keys.yaml", "deepspeed", "\"train_batch_size\": 8"},
                          Same{"fsdp_accelerate/keys.yaml", "accelerate", "\"distributed_type\": \"FSDP\""}}) {
    const TemplateSet templates = embedded_templates();
    const auto file =
        std::find_if(templates.files.begin(), templates.files.end(), [&one](const auto& entry) { return entry.first == one.table; });
    REQUIRE(file != templates.files.end());
    const Result<Value> root = parse_yaml(file->second, one.table);
    REQUIRE(root.ok());
    const Value* unknown = root->find("unknown_key");
    REQUIRE(unknown != nullptr);
    for (const auto& [section, how] : unknown->entries) {
      std::string text = "\"zzqq\": 1";
      for (size_t end = section.size(); !section.empty();) {
        const size_t dot = section.rfind('.', end - 1);
        const size_t begin = dot == std::string::npos ? 0 : dot + 1;
        text = "\"" + section.substr(begin, end - begin) + "\": {" + text + "}";
        if (dot == std::string::npos) break;
        end = dot;
      }
      LintContext context;
      context.as = one.kind;
      const LintReport report = lint_files({{"file", "{" + one.top + ", " + text + "}"}}, context);
      INFO(one.table << " '" << section << "'\n" << text_of(report));
      size_t num_found = 0;
      for (const LintFinding& finding : report.findings) {
        if (finding.diagnostic.message.find("zzqq") == std::string::npos) continue;
        CHECK(finding.bites == (how.text == "parse error" ? "parse" : how.text == "init error" ? "start" : "silent"));
        ++num_found;
      }
      CHECK(num_found == 1);
      ++num_sections;
    }
  }
  CHECK(num_sections >= 8);
}

TEST_CASE("lint: a trap inside the task is not the batch script's", "[lint]") {
  const auto waits = [](const std::string& lines) {
    return finds(lint_files({{"j", "#!/bin/bash\n#SBATCH --nodes=2\n" + lines + "\n"}}, {}), "SL012");
  };
  CHECK(waits("trap 'echo late' USR1\nsrun python t.py"));
  CHECK_FALSE(waits("trap '' USR1\nsrun python t.py"));
  CHECK_FALSE(waits("srun bash -c 'trap \"echo late\" USR1; python t.py'"));
  CHECK_FALSE(waits("trap 'echo late' USR1\nsrun python t.py &\nwait"));
}

TEST_CASE("lint: virtual stages that a stage's layers do not split into", "[lint]") {
  const auto splits = [](const std::string& virtual_stages) {
    const std::string run =
        "torchrun --standalone --nproc_per_node=8 pretrain_gpt.py --micro-batch-size 1 --num-layers 32 --pipeline-model-parallel-size "
        "4 ";
    return !finds(lint_files({{"run.sh", run + virtual_stages + "\n"}}, {}), "PLAN005");
  };
  CHECK(splits(""));
  CHECK(splits("--num-layers-per-virtual-pipeline-stage 4"));
  CHECK_FALSE(splits("--num-layers-per-virtual-pipeline-stage 3"));
  CHECK(splits("--num-virtual-stages-per-pipeline-rank 8"));
  CHECK_FALSE(splits("--num-virtual-stages-per-pipeline-rank 3"));
}
