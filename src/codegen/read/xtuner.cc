#include "codegen/read/xtuner.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/diagnostic_codes.h"

namespace distsetup {
namespace {

using foreign::LaunchStage;

// Its own configurations of DeepSpeed, by their names (xtuner/configs/deepspeed of its release 0.1.23).
struct OwnFile {
  std::string_view name, sharding;
  bool offloads_optimizer = false, offloads_parameters = false;
};
constexpr std::array<OwnFile, 5> kOwnFiles = {{{"deepspeed_zero1", "zero1"},
                                               {"deepspeed_zero2", "zero2"},
                                               {"deepspeed_zero2_offload", "zero2", true},
                                               {"deepspeed_zero3", "zero3"},
                                               {"deepspeed_zero3_offload", "zero3", true, true}}};

std::string program_of(const LaunchStage& stage) {
  const auto is_python = [](const foreign::ShellWord& word) { return word.text.ends_with(".py"); };
  const auto it = std::find_if(stage.positionals.begin(), stage.positionals.end(), is_python);
  if (it != stage.positionals.end()) return it->text;
  for (const foreign::ShellWord& word : stage.positionals) {
    if (word.text != "train") return word.text;  // "internlm2_chat_7b_qlora_oasst1_e3", one of its own
  }
  return stage.value("config");
}

}  // namespace

bool is_xtuner(const LaunchStage& stage) {
  const std::string& name = stage.name;
  const std::string_view base = std::string_view(name).substr(name.rfind('/') + 1);
  const bool is_other_task = base.starts_with("test") || base.starts_with("chat") || base.find("convert") != std::string_view::npos;
  return !is_other_task && stage.program == foreign::LaunchProgram::kScript &&
         (name == "xtuner" || name.ends_with("/xtuner") || name.starts_with("xtuner/") || name.find("/xtuner/") != std::string::npos ||
          name.starts_with("xtuner."));
}

Reading reading_of_xtuner(const LaunchStage& stage, const std::vector<FoundKey>& keys, const std::string& file, const Location& at) {
  Reading out;
  out.file = file;
  out.tool = "xtuner";
  for (const FoundKey& one : keys) {
    const auto own = std::find_if(kOwnFiles.begin(), kOwnFiles.end(), [&one](const OwnFile& known) { return known.name == one.text; });
    if (one.key == "deepspeed" && own != kOwnFiles.end()) {
      out.fields["strategy.trainer"] = {Json("deepspeed"), one.key, one.at};
      out.fields["strategy.sharding"] = {Json(std::string(own->sharding)), one.key, one.at};
      if (own->offloads_optimizer) out.fields["offload.optimizer"] = {Json("host"), one.key, one.at};
      if (own->offloads_parameters) out.fields["offload.parameters"] = {Json("host"), one.key, one.at};
      continue;
    }
    out.lost.push_back({one.key, one.text, "it is set over xtuner's Python program, which is not read", one.at});
    out.lost.back().is_file = one.key == "deepspeed" && one.unknown.empty();
  }
  const std::string program = program_of(stage);
  if (!program.empty()) out.lost.push_back({"config", program, "xtuner's Python program, which is not read", at});
  Diagnostic said = error(code::kUnknownValue, at,
                          fmt::format("xtuner trains what the Python program '{}' says, which distsetup does not read", program),
                          "give --model, --micro-batch and the sequence length beside the file");
  said.severity = Severity::kWarning;
  said.length = static_cast<int>(stage.name.size());
  out.complaints.push_back({"", "", std::move(said)});
  return out;
}

}  // namespace distsetup
