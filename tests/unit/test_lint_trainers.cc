// What trainers refuse in files and flags that are looked at together, and names that are not theirs.
#include <catch2/catch.hpp>

#include "codegen/lint/lint.h"

using namespace distsetup;

namespace {

constexpr const char* kSilent = "";

const LintFinding* first_of(const LintReport& report, const std::string& code) {
  for (const LintFinding& one : report.findings) {
    if (one.diagnostic.code == code) return &one;
  }
  return nullptr;
}

// "error", "warning", "note", or "" when the rule says nothing.
std::string severity_of(const std::vector<LintFile>& files, const std::string& code) {
  const LintReport report = lint_files(files, {});
  const LintFinding* one = first_of(report, code);
  if (one == nullptr) return "";
  return one->diagnostic.severity == Severity::kError ? "error" : one->diagnostic.severity == Severity::kWarning ? "warning" : "note";
}

std::string advice_of(const std::string& path, const std::string& text, const std::string& code) {
  const LintReport report = lint_files({{path, text}}, {});
  const LintFinding* one = first_of(report, code);
  return one == nullptr ? "" : one->diagnostic.help;
}

struct TrainerCase {
  std::string code, said, path, text;
};

void check_trainer_cases(const std::vector<TrainerCase>& cases) {
  for (const TrainerCase& one : cases) {
    INFO(one.code << "\n" << one.text);
    CHECK(severity_of({{one.path, one.text}}, one.code) == one.said);
  }
}

}  // namespace

TEST_CASE("lint trainers: a JSON without accumulation that accelerate launch hands on", "[lint]") {
  const std::string
      file = "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config: {deepspeed_config_file: ds.json}\n",
      json = R"({"zero_optimization": {"stage": 2}, "steps_per_print": 9})",
      run =
          "accelerate launch --config_file a.yaml t.py --per_device_train_batch_size 4 --save_steps 10 --logging_steps 1 "
          "--eval_strategy no --gradient_accumulation_steps ";
  CHECK(severity_of({{"a.yaml", file}, {"ds.json", json}, {"run.sh", run + "4\n"}}, "HF003") == "error");
  CHECK(severity_of({{"a.yaml", file}, {"ds.json", json}, {"run.sh", run + "1\n"}}, "HF003").empty());
}

TEST_CASE("lint trainers: a program that loops by itself takes no TrainingArguments", "[lint]") {
  static std::string program;
  LintContext context;
  context.text_of_program = [](const std::string& path) { return path == "jobs/t.py" ? program : std::string(); };
  const std::vector<LintFile> files = {
      {"jobs/run.sh", "deepspeed t.py --deepspeed ds.json --per_device_train_batch_size 4 --gradient_accumulation_steps 4\n"},
      {"jobs/ds.json", R"({"gradient_accumulation_steps": 8, "steps_per_print": 9})"}};
  const auto severity = [&](const char* text) {
    program = text;
    for (const LintFinding& one : lint_files(files, context).findings) {
      if (one.diagnostic.code == "HF003") return one.diagnostic.severity;
    }
    return Severity::kNote;
  };
  CHECK(severity("parser.add_argument('--deepspeed')\nengine.backward(loss)\n") == Severity::kWarning);
  CHECK(severity("parser = HfArgumentParser(TrainingArguments)\n") == Severity::kError);
  CHECK(severity("from llava.train.train import train\ntrain()\n") == Severity::kError);
  CHECK(severity("") == Severity::kError);
}

TEST_CASE("lint trainers: FSDP of accelerate's file beside DeepSpeed's", "[lint]") {
  const std::string fsdp = "distributed_type: FSDP\nnum_processes: 8\nfsdp_config: {fsdp_version: 2}\n",
                    launch = "accelerate launch --config_file conf/a.yaml ", script = "t.py --output_dir o --deepspeed ds.json\n";
  const auto found = [&fsdp](const std::string& line) { return severity_of({{"a.yaml", fsdp}, {"run.sh", line}}, "ACC023"); };
  CHECK(found(launch + script) == "warning");
  CHECK(found(launch + "t.py --output_dir o\n").empty());
  CHECK(found("accelerate launch --config_file b.yaml " + script).empty());
  CHECK(found(launch + "--use_deepspeed " + script).empty());
  CHECK(found("torchrun --nproc_per_node 8 " + script).empty());
  const std::string arguments = "output_dir: o\npacking: true\nper_device_train_batch_size: 1\n";
  CHECK(severity_of({{"a.yaml", fsdp}, {"sft.yaml", arguments + "deepspeed: ds.json\n"}}, "ACC023") == "warning");
  CHECK(severity_of({{"a.yaml", fsdp}, {"sft.yaml", arguments}}, "ACC023").empty());
}

TEST_CASE("lint trainers: names of earlier releases in a script's flags", "[lint]") {
  const std::string run = "torchrun --standalone --nproc_per_node 8 t.py --output_dir o --per_device_train_batch_size 1 ";
  const std::string old = run + "--evaluation_strategy no --overwrite_output_dir\n";
  CHECK(
      advice_of("run.sh", old, "HF006") ==
      "keep to the release that it was written for, or write eval_strategy for evaluation_strategy, and remove 'overwrite_output_dir' "
      "until 5.0");
  check_trainer_cases(
      {{"HF006", "note", "run.sh", old},
       {"HF006", "warning", "run.sh", "pip install transformers==5.0.0\n" + old},
       {"HF006", kSilent, "run.sh", run + "--eval_strategy no\n"},
       {"HF006", kSilent, "run.sh", run + "--warmup_ratio 0.1\n"},  // a loop of one's own may have it
       {"HF006", kSilent, "run.sh", run + "--evaluation_strategy no --stage sft --finetuning_type lora\n"},
       {"HF006", kSilent, "run.sh", "python run_flax.py --output_dir o --per_device_train_batch_size 1 --evaluation_strategy no\n"},
       {"HF006", kSilent, "run.sh", "python t.py --evaluation_strategy no\n"}});
  CHECK(lint_files({{"run.sh", old + old}}, {}).findings.size() == lint_files({{"run.sh", old}}, {}).findings.size() + 1);  // TR004
}

TEST_CASE("lint trainers: what Axolotl wants, and names that are other tools'", "[lint]") {
  const std::string axolotl = "base_model: m\ndatasets: []\nmicro_batch_size: 1\n", rate = axolotl + "learning_rate: 1e-5\n";
  check_trainer_cases({{"AX008", "warning", "a.yaml", axolotl},  // axolotl train a.yaml --learning-rate 1e-5
                       {"AX008", "error", "a.yaml", axolotl + "lr: 1e-5\n"},
                       {"AX008", kSilent, "a.yaml", rate},
                       {"AX009", "warning", "a.yaml", rate + "sample_packing: true\nflash_attention: false\n"},
                       {"AX009", kSilent, "a.yaml", rate + "sample_packing: true\nflash_attention: false\nsdp_attention: true\n"},
                       {"AX009", kSilent, "a.yaml", rate + "sample_packing: true\nflash_attention: true\n"},
                       {"AX009", kSilent, "a.yaml", rate + "sample_packing: true\n"},
                       {"AX009", kSilent, "a.yaml", rate + "flash_attention: false\n"}});
  CHECK(severity_of({{"a.yaml", axolotl}, {"run.sh", "axolotl train a.yaml --learning-rate 1e-5\n"}}, "AX008").empty());
  CHECK(advice_of("a.yaml", axolotl + "lr: 1e-5\n", "AX004") == "did you mean 'learning_rate'");
  CHECK(advice_of("a.yaml", rate + "lr: 1e-5\n", "AX004") == "remove it: there is 'learning_rate'");
  CHECK(advice_of("a.yaml", rate + "epochs: 1\n", "AX004") == "did you mean 'num_epochs'");
  CHECK(advice_of("a.yaml", rate + "adapter: lora\nlora_rank: 8\n", "AX004") == "did you mean 'lora_r'");
}
