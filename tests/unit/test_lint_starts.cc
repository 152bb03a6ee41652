// What stops a run when it starts, and what looks like it and does not.
#include <algorithm>
#include <catch2/catch.hpp>

#include "codegen/lint/lint.h"

using namespace distsetup;

namespace {

constexpr const char* kNothing = "";

// "error", "warning", "note", or "" when the rule says nothing.
std::string said(const std::vector<LintFile>& files, const std::string& code, std::string* help = nullptr) {
  std::string out;
  for (const LintFinding& one : lint_files(files, {}).findings) {
    if (one.diagnostic.code != code) continue;
    if (help != nullptr) *help = one.diagnostic.help;
    if (one.diagnostic.severity == Severity::kError) return "error";
    if (out != "warning") out = one.diagnostic.severity == Severity::kWarning ? "warning" : "note";
  }
  return out;
}

struct Start {
  std::string code, said, path, text;
};

void check_starts(const std::vector<Start>& cases) {
  for (const Start& one : cases) {
    INFO(one.code << "\n" << one.text);
    CHECK(said({{one.path, one.text}}, one.code) == one.said);
  }
}

std::string help_of(const std::string& path, const std::string& text, const std::string& code) {
  std::string help;
  said({{path, text}}, code, &help);
  return help;
}

}  // namespace

TEST_CASE("lint starts: a name of an earlier release is said with its new one", "[lint]") {
  const std::string swift =
      "#!/bin/bash\nexport OMP_NUM_THREADS=8\nNPROC_PER_NODE=8 swift sft --model Qwen/Qwen2.5-7B --dataset x.jsonl ";
  CHECK(help_of("run.sh", swift + "--train_type full\n", "SW001") ==
        "keep to the release that it was written for, or write tuner_type for train_type");
  CHECK(help_of("run.sh", swift + "--train_type full --mini_batch_size 2\n", "SW001") ==
        "keep to the release that it was written for, or write tuner_type for train_type, and remove 'mini_batch_size' until 3.4");
  CHECK(help_of("a.json", R"({"output_dir": "o", "per_device_train_batch_size": 1, "evaluation_strategy": "steps"})", "HF006") ==
        "keep to the release that it was written for, or write eval_strategy for evaluation_strategy");
}
