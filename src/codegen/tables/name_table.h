// The names that a tool accepts, as scripts/lint_keys read them off the tool: templates/_lint/names/*.yaml. lint checks names by them,
// and a reader tells by them a key that no plan holds from one that the tool does not have.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"
#include "codegen/tables/templates.h"

namespace distsetup {

struct NameEntry {
  std::string name;  // "--micro-batch-size", "zero_optimization"; "*" = any
  std::string type;  // of a section: its type; of an option: flag, int, number, text, a|b, with ? or *; "" = not looked at
};

struct NameTable {
  std::string tool;                                       // "Axolotl 0.19.0"
  std::string unknown;                                    // parse, start, silent: when an unknown name bites
  std::string code;                                       // of the rule that says so
  bool takes_prefixes = false;                            // of options: "--nproc" for "--nproc_per_node"
  std::map<std::string, std::string, std::less<>> roots;  // `kind:` of a manifest -> type
  std::map<std::string, std::vector<NameEntry>, std::less<>> types;

  const std::vector<NameEntry>* type(std::string_view name) const;  // nullptr: none
};

// "name other:type …", with blanks or lines between them.
std::vector<NameEntry> read_entries(std::string_view text);

// By the name of its file, read once. Errors: there is none, or it has a mistake.
Result<std::shared_ptr<const NameTable>> load_name_table(const TemplateSet& templates, std::string_view name);

// Of the built-in templates. A name without a table is a bug.
const NameTable& name_table(std::string_view name);

const NameEntry* find_name(const std::vector<NameEntry>& entries, std::string_view name);  // nullptr: unknown
std::vector<std::string> spellings(const std::vector<NameEntry>& entries);

// Whether an option as it is spelled ("--nodes", "-N4" of single letters) is one of them; getopt's and argparse's prefixes count when
// they are taken.
bool takes_option(const std::vector<NameEntry>& entries, std::string_view spelled, bool takes_prefixes);
std::string nearest_option(const std::vector<NameEntry>& entries, std::string_view spelled);  // "": none

// "'x' is silently ignored: Axolotl 0.19.0 does not know it", by when it bites.
std::string says_unknown(const NameTable& table, std::string_view spelled);

}  // namespace distsetup
