#include "codegen/tables/target.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/diagnostic_codes.h"
#include "base/map_reader.h"
#include "base/names.h"
#include "base/value_yaml.h"
#include "codegen/shell/quote.h"
#include "codegen/tables/kind.h"
#include "plan/plan_json.h"

namespace distsetup {
namespace {

constexpr std::array<std::string_view, 4> kProofs = {"run", "parsed", "schema", "table"};

// search: {sharding: [ddp, zero3], ...}
void read_search(const Value& map, TargetSearch& search, Diagnostics& diagnostics, const Value** of = nullptr) {
  MapReader reader(map, "search", diagnostics);
  reader.get("trainer", search.trainers);
  reader.get("sharding", search.shardings);
  reader.get("recompute", search.recomputes);
  reader.get("cp_method", search.cp_methods);
  reader.get("hybrid", search.hybrid);
  reader.get("keeps_parameters", search.keeps_parameters);
  std::vector<std::string> axes;
  if (reader.get("axes", axes)) search.axes = axes;
  if (of != nullptr) *of = reader.child("of");
  reader.finish();
}

// start: [sbatch, {file: job.sbatch}]
StartWords read_start(const Value& list, Diagnostics& diagnostics) {
  StartWords words;
  if (list.kind != Value::Kind::kList)
    diagnostics.push_back(error(code::kTemplate, list.location, "expected the words of a command: [sbatch, {file: job.sbatch}]"));
  for (const Value& item : list.items) {
    if (item.kind == Value::Kind::kScalar) {
      words.push_back({StartWord::Kind::kWord, item.text});
      continue;
    }
    StartWord word;
    MapReader reader(item, "a word of start", diagnostics);
    if (reader.get("file", word.text)) word.kind = StartWord::Kind::kFile;
    if (reader.get("input", word.text)) word.kind = StartWord::Kind::kInput;
    if (reader.get("folder", word.text)) word.kind = StartWord::Kind::kFolder;
    reader.finish();
    words.push_back(std::move(word));
  }
  return words;
}

}  // namespace

std::string suggest_target(const std::string& wanted, const std::vector<std::string>& known) {
  const FileKind* kind = built_in_kinds().find(wanted);
  if (kind == nullptr || !kind->is_foreign) return suggest(wanted, known);
  return fmt::format("nothing here writes {}; {}", kind->says, suggest("", known));
}

Result<TargetDescription> describe_target(const TemplateSet& templates, const std::string& target, const Location& at) {
  const std::string path = target + "/target.yaml";
  const std::string* text = find_file(templates, path);
  if (text == nullptr)
    return error(code::kUnknownTarget, at, fmt::format("unknown target '{}'", target),
                 suggest_target(target, target_names(templates)));
  Result<Value> root = parse_yaml(*text, "templates/" + path);
  if (!root.ok()) return root.diagnostics;
  TargetDescription out;
  out.root = std::move(*root);
  Diagnostics diagnostics;
  int64_t version = 0;
  std::string describes, proof, proof_of;
  MapReader reader(out.root, "a target", diagnostics);
  for (const char* key : {"version", "describes", "proof", "files"}) reader.require(key);
  reader.get("version", version);
  reader.get("describes", describes);
  reader.get("proof", proof);
  reader.get("proof_of", proof_of);  // the tool and release that the proof is of
  reader.get("rules", out.rules);
  reader.get("node_script", out.node_script);
  reader.get("needs_words", out.needs_words);
  reader.get("without_plan", out.without_plan);
  reader.get("use_of_plan", out.use_of_plan);
  (void)reader.child("not_applicable");  // reasons for coverage.h
  out.files = reader.child("files");
  out.set = reader.child("set");
  if (const Value* search = reader.child("search")) read_search(*search, out.search, diagnostics, &out.search_of);
  if (const Value* start = reader.child("start")) out.start = read_start(*start, diagnostics);
  if (const Value* start = reader.child("start_via")) out.start_via = read_start(*start, diagnostics);
  reader.finish();
  const auto fail = [&](std::string message, std::string help = "") {
    diagnostics.push_back(error(code::kTemplate, out.root.location, std::move(message), std::move(help)));
  };
  if (version != 1) fail(fmt::format("target of version {}, expected 1", version));
  if (std::find(kProofs.begin(), kProofs.end(), proof) == kProofs.end())
    fail(fmt::format("unknown proof '{}'", proof), "known: run, parsed, schema, table");
  if (has_error(diagnostics)) return diagnostics;
  return {std::move(out), std::move(diagnostics)};
}

Result<TargetSearch> target_search(const TemplateSet& templates, std::string_view target, std::string_view trainer) {
  Result<TargetDescription> described = describe_target(templates, std::string(target), {"command line", 0, 0});
  if (!described.ok()) return described.diagnostics;
  const Value* of = described->search_of == nullptr ? nullptr : described->search_of->find(trainer);
  if (of == nullptr) return std::move(described->search);
  Diagnostics diagnostics;
  read_search(*of, described->search, diagnostics);
  if (has_error(diagnostics)) return diagnostics;
  return std::move(described->search);
}

std::string start_file(const StartWords& start) {
  const auto file = std::find_if(start.begin(), start.end(), [](const StartWord& word) {
    return word.kind == StartWord::Kind::kFile || word.kind == StartWord::Kind::kInput;
  });
  return file == start.end() ? "" : file->text;
}

std::string start_command(const StartWords& start, const std::string& directory, const std::string& file) {
  const std::string folder = directory.empty() || directory == "." ? "" : directory + (directory.back() == '/' ? "" : "/");
  const std::string started = start_file(start);
  std::string out;
  for (const StartWord& word : start) {
    if (word.kind == StartWord::Kind::kFolder) {
      if (!folder.empty()) out += (out.empty() ? "" : " ") + word.text + quote_shell(directory);
      continue;
    }
    const bool is_file = word.kind != StartWord::Kind::kWord;
    std::string text = word.text;
    if (is_file) text = folder + (text == started && !file.empty() ? file : text);
    if (is_file && out.empty() && folder.empty()) text = "./" + text;  // a shell looks for a bare name elsewhere
    out += (out.empty() ? "" : " ") + std::string(word.kind == StartWord::Kind::kInput ? "< " : "") + quote_shell(text);
  }
  return out;
}

Fields with_settings(const TargetDescription& described, Fields fields, Diagnostics& diagnostics) {
  if (described.set == nullptr) return fields;
  for (const auto& [name, value] : described.set->entries) {
    const auto found = fields.find(name);
    if (found == fields.end() || name.compare(0, 8, "options.") != 0) {
      diagnostics.push_back(
          error(code::kTemplate, value.location, fmt::format("'{}' cannot be set, expected an options.* field", name)));
    } else if (const Result<int64_t> number = as_int(value); number.ok()) {
      found->second = *number;
    } else if (const Result<bool> truth = as_bool(value); truth.ok()) {
      found->second = *truth;
    } else {
      found->second = value.text;
    }
  }
  return fields;
}

}  // namespace distsetup
