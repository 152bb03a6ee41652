// `distsetup init`: a run file to start from. Every key is there as a comment with what it means and what it is when left out, written
// from the table of settings, so the file cannot know a key that the reader does not.
#include <fmt/format.h>

#include "base/diagnostic_codes.h"
#include "base/json.h"
#include "base/value.h"
#include "base/value_yaml.h"
#include "cli/commands/commands.h"
#include "cli/commands/init_site.h"
#include "cli/deliver/deliver.h"
#include "cli/line/output.h"
#include "cli/settings/run_source.h"
#include "codegen/shell/quote.h"
#include "planner/spec/spec_schema.h"
#include "planner/spec/spec_table.h"

namespace distsetup {
namespace {

constexpr char kSchemaFile[] = "run.schema.json";

std::string allowed_text(const SpecKey& key) {
  std::string out;
  for (const SettingChoice& choice : key.choices) {
    if (choice.refused.empty())
      out += (out.empty() ? "" : " | ") + std::string(choice.value == "every_k" ? "every_k:2" : choice.value);
  }
  return out;
}

// A sample that would read: the default where it is a value, else one of the right type.
std::string sample(const SpecKey& key) {
  if (key.can_be_auto) return "auto";
  std::string fallback(key.fallback);
  const bool is_value = !fallback.empty() && fallback.find(' ') == std::string::npos && fallback != "none" && fallback != "required";
  if (is_value) return fallback;
  if (!key.choices.empty()) return std::string(key.choices.front().value);
  switch (key.type) {
    case SettingType::kBool: return "true";
    case SettingType::kInt: return "8";
    case SettingType::kDouble: return key.minimum > 0.1 ? fmt::format("{}", key.minimum) : "0.1";
    case SettingType::kShare: return "5%";
    case SettingType::kBytes: return "80GB";
    case SettingType::kDuration: return "4h";
    case SettingType::kList:
    case SettingType::kSources: return "[text]";
    case SettingType::kText:
    case SettingType::kEnum: break;
  }
  return key.path == "hardware.gpu" ? "h100_sxm" : "name";
}

// Bare where that reads as the same text: 8B needs no quotes, "a: b" does.
std::string as_value(const std::string& text) {
  const Result<Value> bare = parse_yaml("key: " + text, "");
  const Value* value = bare.ok() ? bare->find("key") : nullptr;
  const bool is_same = value != nullptr && value->kind == Value::Kind::kScalar && !value->quoted && value->text == text;
  return is_same ? text : quote_yaml(text);
}

std::string run_file(const std::string& model) {
  std::string text = fmt::format("# yaml-language-server: $schema=./{}\n", kSchemaFile);
  text += "# What to train, on which machines. What is not given is searched, or assumed and said: distsetup plan run.yaml\n";
  text += fmt::format("version: 1\nmodel: {}\n", as_value(model));
  std::string section;
  for (const SpecKey& key : spec_keys()) {
    const size_t dot = key.path.find('.');
    if (dot == std::string_view::npos) continue;
    const std::string_view first = key.path.substr(0, dot);
    if (first == "model") continue;  // it is said above
    std::string_view rest = key.path.substr(dot + 1);
    if (section != first) {
      section = first;
      text += fmt::format("\n# {}:\n", section);
    }
    std::string indent = "#   ";
    if (const size_t inner = rest.find('.'); inner != std::string_view::npos) {  // parallel.offload.optimizer
      if (text.find(fmt::format("#   {}:\n", rest.substr(0, inner))) == std::string::npos)
        text += fmt::format("#   {}:\n", rest.substr(0, inner));
      rest = rest.substr(inner + 1);
      indent += "  ";
    }
    const std::string allowed = allowed_text(key);
    text += fmt::format("{}{}: {}  # {}{}{}\n", indent, rest, sample(key), key.help,
                        key.unit.empty() ? "" : fmt::format(" ({})", key.unit), allowed.empty() ? "" : ": " + allowed);
  }
  return text;
}

int run_init(const Arguments& arguments, const Terminal& terminal) {
  if (arguments.has("site")) return run_init_site(arguments, terminal);
  Spec spec;
  Diagnostics diagnostics;
  for (const Arguments::RunFlag& flag : arguments.run_flags)
    append(diagnostics,
           set_flag(spec, flag.spelling, flag.value ? std::optional<std::string_view>(*flag.value) : std::nullopt, command_line()));
  if (has_error(diagnostics)) return fail(arguments, terminal, diagnostics);
  const Artifact file{"run.yaml", run_file(spec.text("model").value_or("8B")), false};
  Delivery delivery = one_file(arguments, file);
  if (arguments.has("output")) {
    const OutputPath at = output_path(arguments.text("output"), file.path);
    delivery.files.push_back({kSchemaFile, dump_json(run_schema()), false});
    delivery.next = "distsetup plan " + join_command({at.directory == "." ? at.file : at.directory + "/" + at.file});
  }
  return deliver(arguments, terminal, std::move(delivery));
}

}  // namespace

Command init_command() {
  Command command;
  command.summary = "a run file to start from, with every key explained";
  command.examples = {"distsetup init --output run.yaml", "distsetup init --model 70B | less",
                      "distsetup init --site --output site.yaml"};
  command.notes = "With --output the schema that its first line names is written beside it: editors complete and check the file.";
  command.flags = {output_flag("write it there, and run.schema.json beside it"),
                   {"site", {}, FlagKind::kSwitch, "", "a site file instead: what this machine says about its cluster (site.yaml)", 0},
                   {"no-input", {}, FlagKind::kSwitch, "", "with --site: ask nothing, even on a terminal", 0},
                   dry_run_flag(),
                   force_flag()};
  command.run_keys = {"model"};
  command.run = run_init;
  return command;
}

}  // namespace distsetup
