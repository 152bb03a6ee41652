// Names that a tool's table does not have, where the table does not say all: releases differ, and scripts declare options of their
// own. What is misspelt is said as the table says it; what another release has, or somebody may have added, more softly.
#pragma once
#include <string>
#include <vector>

#include "codegen/lint/findings.h"

namespace distsetup::lint {

enum class NamesOf {
  kEveryRelease,    // with those of _other_releases.yaml the table is whole
  kOneRelease,      // other releases have others
  kExtendedParser,  // scripts and forks add their own
};

struct UnknownName {
  std::string name;
  TextSpan at;
  std::string near;  // what it is a slip of (misspelt.h); "" = nothing
  std::string says;  // "TRL 1.16.0 refuses 'x': it does not know it"
};

struct UnknownNames {
  std::string code, tool, bites;
  std::string table;    // in _other_releases.yaml
  std::string version;  // of the tool that is used; "" = not known
  TextSpan top;         // what holds the names: where the scripts' own are counted
  std::vector<UnknownName> all;
  bool is_own_parser = false;  // a script of somebody's own, which may mean what it says
};

// Behind what is said of the first name, the other ones: ", nor 'b' and 'c'". "" of one name.
std::string and_others(const std::vector<std::string>& names);

void report_unknown_names(const Document& d, const UnknownNames& names, NamesOf whose, Findings& report);

}  // namespace distsetup::lint
