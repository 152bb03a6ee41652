// A script's commands as a tree: what an if, a loop, a function holds.
#pragma once
#include <string>
#include <vector>

#include "codegen/shell/shell.h"

namespace distsetup::foreign {

enum class NodeKind { kCommand, kList, kIf, kLoop, kCase, kFunction, kShell };

struct ShellNode {
  NodeKind kind = NodeKind::kList;
  size_t command = 0;  // of kCommand; of kLoop and kCase the command with its words
  bool has_header = false, has_else = false, is_negated = false;
  std::string ends_with;
  std::string name;                              // of kFunction
  std::vector<std::vector<ShellWord>> patterns;  // of kCase, one per arm
  std::vector<ShellNode> children;               // of kIf: condition, body, condition, body, …, else; of kLoop: condition, body
};

// What is not closed ends with the script; what closes nothing is passed over.
ShellNode shell_tree(const ShellScript& script);

}  // namespace distsetup::foreign
