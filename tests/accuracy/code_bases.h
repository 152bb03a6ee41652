// Which rows were run by the same code (code_bases.yaml): what is left out together, and what counts less in a fit. And what was
// predicted of a code base when it was new here (first_sight.yaml).
#pragma once
#include <map>
#include <string>
#include <vector>

#include "row.h"

namespace distsetup::accuracy {

struct CodeBase {
  std::string name;
  std::vector<std::string> blocks;      // prefixes of ids
  std::vector<std::string> frameworks;  // beginnings of framework cells; empty: any
  double weight = 1;                    // of its rows in a fit
};

struct FirstSight {
  std::string program;
  double predicted[4] = {0, 0, 0, 0};  // by Metric; 0: none
};

struct CodeBases {
  std::vector<CodeBase> all;
  std::map<std::string, FirstSight> first_sight;  // by the row's id
};

Result<CodeBases> read_code_bases(const std::string& path, const std::string& first_sight_path);

// By block and framework cell, else by framework cell alone. nullptr: none is listed, and the framework cell is its name.
const CodeBase* code_base_of(const CodeBases& bases, const Row& row);

}  // namespace distsetup::accuracy
