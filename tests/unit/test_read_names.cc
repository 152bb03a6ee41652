// Every name that a tool takes (templates/_lint/names, read off the tools) is read: it acts, or is listed with a reason. None is
// called unknown, and one that no tool has is.
#include <catch2/catch.hpp>

#include <iostream>
#include <set>

#include "base/json.h"
#include "codegen/read/read.h"
#include "codegen/tables/accepted_names.h"
#include "support/emitted.h"

using namespace distsetup;

namespace {

// A file with one key.
std::pair<std::string, std::string> file_with(TableFormat format, const std::string& name) {
  if (format == TableFormat::kDirectives) return {"job.sbatch", "#!/bin/bash\n#SBATCH --" + name + "=x\n"};
  if (format == TableFormat::kArguments) return {"arguments.txt", "--" + name + " x\n"};
  Json root = "x";
  std::string rest = name;
  for (size_t dot = rest.rfind('.'); !rest.empty(); dot = rest.rfind('.')) {
    root = Json{{rest.substr(dot == std::string::npos ? 0 : dot + 1), root}};
    rest = dot == std::string::npos ? "" : rest.substr(0, dot);
  }
  return {"config.json", root.dump()};
}

bool is_unknown(const TemplateSet& templates, const std::string& table, TableFormat format, const std::string& name) {
  const auto [path, text] = file_with(format, name);
  const Result<std::vector<Reading>> read = read_config(templates, text, path, table);
  INFO(table << " " << name << "\n" << text << messages(read.diagnostics));
  REQUIRE(read.ok());
  for (const Reading& reading : *read) {
    for (const LostKey& lost : reading.lost) {
      if (lost.why == LostKey::Why::kUnknownKey) return true;
    }
  }
  return false;
}

}  // namespace

TEST_CASE("read: every name that a tool takes is read or listed with a reason") {
  const TemplateSet templates = embedded_templates();
  size_t num_names = 0;
  std::set<std::string> lists;
  for (const auto& [path, text] : templates.files) {
    if (text.find("\naccepts: ") == std::string::npos) continue;
    Result<KeyTable> table = parse_key_table(text, path);
    INFO(path << messages(table.diagnostics));
    REQUIRE(table.ok());
    add_accepted_names(templates, *table);
    for (const AcceptedNames& one : table->accepts) lists.insert(one.file);
    const bool is_shared = path.compare(0, 12, "huggingface/") == 0;
    const std::string whole = path == "slurm/reads.yaml"                      ? "slurm/directives.yaml"
                              : is_shared                                     ? "transformers/keys.yaml"
                              : path.find("/reads.yaml") != std::string::npos ? path.substr(0, path.find('/')) + "/keys.yaml"
                                                                              : path;
    REQUIRE_FALSE(table->accepted.empty());
    for (const std::string& name : table->accepted) {
      INFO(whole << " " << name);
      CHECK_FALSE(is_unknown(templates, whole, table->format, name));
      ++num_names;
    }
    CHECK(is_unknown(templates, whole, table->format, "no_such_name_at_all"));
  }
  std::cout << "names that tools take, each read: " << num_names << "\n";
  CHECK(num_names >= 2500);
  CHECK(lists.size() >= 12);
}
