// A script's commands as a tree: what an if, a loop, a function holds.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "codegen/shell/shell.h"

namespace distsetup::foreign {

enum class NodeKind { kCommand, kList, kIf, kLoop, kCase, kFunction, kShell };

struct ShellNode {
  NodeKind kind = NodeKind::kList;
  size_t command = 0;       // of kCommand; of kLoop and kCase the command with its words
  bool has_header = false;  // of kLoop and kCase: `command` is there
  bool has_else = false, is_negated = false;
  bool is_inner = false;  // of kShell: a $( ) or bash -c in front of the command that it is part of, and no step of the list
  std::string ends_with;
  std::string name;                              // of kFunction
  std::vector<std::vector<ShellWord>> patterns;  // of kCase, one per arm
  std::vector<ShellNode> children;               // of kIf: condition, body, condition, body, …, else; of kLoop: condition, body
};

// What is not closed ends with the script; what closes nothing is passed over.
ShellNode shell_tree(const ShellScript& script);

// Behind "&&" or "||" a command is passed over, whose neighbour went like this.
bool is_skipped(const std::string& joins, std::optional<bool> truth);

// exit, exec program: behind it nothing of its list is come to.
bool ends_script(const ShellNode& node, const ShellScript& script);

// Whether two commands may be instead of one another: in two ways of an if or a case, in functions that are not the same, or behind a
// test (`[ … ] &&`).
bool may_be_alternatives(const ShellScript& script, size_t one, size_t other);

}  // namespace distsetup::foreign
