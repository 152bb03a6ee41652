#include "cli/commands/explanations.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/embedded.h"
#include "base/map_reader.h"
#include "base/names.h"
#include "base/value_yaml.h"
#include "codegen/lint/lint.h"
#include "codegen/lint/rule_table.h"
#include "planner/report/text_layout.h"

namespace distsetup {
namespace {

constexpr std::string_view kExplainFolder = "templates/_explain/";

// The files are our own: a mistake in one is a bug, found by the first test that runs.
PageGroup read_pages(const EmbeddedFile& file) {
  const Result<Value> root = parse_yaml(file.text, file.path);
  CHECK(root.ok(), "{}", format_diagnostics(root.diagnostics));
  PageGroup group;
  Diagnostics diagnostics;
  int64_t version = 0;
  MapReader reader(*root, "a file of explanations", diagnostics);
  reader.get("version", version);
  reader.get("heading", group.heading);
  const Value* pages = reader.child("pages");
  reader.finish();
  CHECK(version == 1 && pages != nullptr, "{}", file.path);
  for (const Value& item : pages->items) {
    Page page;
    MapReader one(item, "a page", diagnostics);
    for (const char* key : {"name", "title", "why"}) one.require(key);
    one.get("name", page.name);
    one.get("title", page.title);
    one.get("why", page.why);
    one.get("wrong", page.wrong);
    one.get("right", page.right);
    if (const Value* also = one.child("also")) {
      for (const Value& word : also->items) page.also.push_back(word.text);
    }
    one.finish();
    group.pages.push_back(std::move(page));
  }
  group.is_of_words = file.path.ends_with("/words.yaml");
  CHECK(diagnostics.empty(), "{}", format_diagnostics(diagnostics));
  return group;
}

std::string example_text(const LintExample& example) {
  std::string text;
  for (const LintFile& file : example.files) text += (example.files.size() > 1 ? fmt::format("# {}\n", file.path) : "") + file.text;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

Page page_of_rule(const LintRule& rule) {
  const std::string_view severity = rule.severity == Severity::kError     ? "error"
                                    : rule.severity == Severity::kWarning ? "warning"
                                                                          : "note";
  const std::string_view bites = rule.bites == "parse"   ? "when the tool reads the file"
                                 : rule.bites == "start" ? "when training starts"
                                 : rule.bites == "run"   ? "while it runs"
                                                         : "silently: nothing is said";
  return {rule.code,
          {},
          rule.title,
          rule.why,
          {{"bites", rule.bites}, {"fix", rule.fix}, {"source", rule.source}},
          fmt::format("{} · bites {}\nfix: {}\nsource: {}\n", severity, bites, rule.fix, rule.source),
          example_text(rule.bad),
          example_text(rule.good)};
}

std::vector<PageGroup> read_all() {
  std::vector<PageGroup> groups;
  for (const EmbeddedFile& file : embedded_files()) {
    if (file.path.substr(0, kExplainFolder.size()) == kExplainFolder) groups.push_back(read_pages(file));
  }
  PageGroup rules{"of `distsetup lint`", {}, false};
  for (const LintRule& rule : lint_rules()) rules.pages.push_back(page_of_rule(rule));
  groups.push_back(std::move(rules));
  return groups;
}

std::string example(std::string_view heading, std::string_view text) {
  if (text.empty()) return "";
  std::string out = fmt::format("\n{}\n  ", heading);
  for (const char c : text) {
    out += c;
    if (c == '\n') out += "  ";
  }
  return out + "\n";
}

}  // namespace

const std::vector<PageGroup>& explanations() {
  static const std::vector<PageGroup> kGroups = read_all();
  return kGroups;
}

const Page* find_page(std::string_view name) {
  for (const PageGroup& group : explanations()) {
    for (const Page& page : group.pages) {
      if (same_name(page.name, name)) return &page;
      for (const std::string& word : page.also)
        if (same_name(word, name)) return &page;
    }
  }
  return nullptr;
}

const Page* find_page_with(std::string_view word) {
  const auto has = [&](std::string_view text) {
    while (!text.empty()) {
      const size_t end = std::min(text.find_first_of(" /-,"), text.size());
      if (same_name(text.substr(0, end), word)) return true;
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    return false;
  };
  for (const PageGroup& group : explanations()) {
    for (const Page& page : group.pages)
      if (group.is_of_words && (has(page.name) || std::any_of(page.also.begin(), page.also.end(), has))) return &page;
  }
  return nullptr;
}

std::string page_text(const Page& page, int width) {
  std::string text = fmt::format("{}: {}\n\n", page.name, page.title);
  for (const std::string& line : wrap(page.why, width)) text += line + "\n";
  if (!page.facts_text.empty()) text += "\n" + page.facts_text;
  return text + example("wrong", page.wrong) + example("right", page.right);
}

}  // namespace distsetup
