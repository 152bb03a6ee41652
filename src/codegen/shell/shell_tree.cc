#include "codegen/shell/shell_tree.h"

#include <algorithm>
#include <utility>

namespace distsetup::foreign {
namespace {

constexpr size_t kMaxTreeDepth = 300;

class TreeReader {
 public:
  explicit TreeReader(const ShellScript& script) : script_(script) { open_.push_back({}); }

  ShellNode read() {
    auto control = script_.controls.begin();
    for (size_t i = 0; i <= script_.commands.size(); ++i) {
      for (; control != script_.controls.end() && control->command <= i; ++control) take(*control);
      if (i == script_.commands.size()) break;
      if (i == header_) continue;  // belongs to the loop or case that is open
      ShellNode node;
      node.kind = NodeKind::kCommand;
      node.command = i;
      node.ends_with = script_.commands[i].ends_with;
      add(std::move(node));
    }
    while (open_.size() > 1) pop();
    return std::move(open_[0]);
  }

 private:
  void add(ShellNode node) {
    node.is_negated = std::exchange(is_negated_, false);
    open_.back().children.push_back(std::move(node));
    end_function();
  }
  // name() { … }: the function is the one command behind its name.
  void end_function() {
    while (open_.back().kind == NodeKind::kFunction && !open_.back().children.empty()) {
      ShellNode done = std::move(open_.back());
      open_.pop_back();
      open_.back().children.push_back(std::move(done));
    }
  }
  void push(NodeKind kind) {
    ShellNode node;
    node.kind = kind;
    node.is_negated = std::exchange(is_negated_, false);
    open_.push_back(std::move(node));
  }
  void pop(const std::string& ends_with = "") {
    ShellNode done = std::move(open_.back());
    open_.pop_back();
    done.ends_with = ends_with;
    open_.back().children.push_back(std::move(done));
    end_function();
  }
  // The list inside an if, a loop or an arm ends, and the compound command is what is open.
  bool leaves(NodeKind kind) {
    if (open_.size() > 2 && open_.back().kind == NodeKind::kList && open_[open_.size() - 2].kind == kind) {
      pop();
      return true;
    }
    return false;
  }

  void take(const ControlWord& one) {
    const std::string& w = one.word;
    if (w == "if" || w == "while" || w == "until") {
      push(w == "if" ? NodeKind::kIf : NodeKind::kLoop);
      push(NodeKind::kList);
    } else if (w == "for" || w == "case") {
      push(w == "for" ? NodeKind::kLoop : NodeKind::kCase);
      open_.back().has_header = true;
      open_.back().command = header_ = one.command;
    } else if (w == "then" || w == "elif" || w == "else") {
      if (!leaves(NodeKind::kIf)) return;
      open_.back().has_else = w == "else";
      push(NodeKind::kList);
    } else if (w == "do") {
      leaves(NodeKind::kLoop);
      push(NodeKind::kList);
    } else if (w == "arm") {
      leaves(NodeKind::kCase);
      if (open_.back().kind != NodeKind::kCase) return;
      open_.back().patterns.push_back(one.words);
      push(NodeKind::kList);
    } else if (w == ";;") {
      leaves(NodeKind::kCase);
    } else if (w == "fi" || w == "done" || w == "esac") {
      const NodeKind kind = w == "fi" ? NodeKind::kIf : w == "done" ? NodeKind::kLoop : NodeKind::kCase;
      leaves(kind);
      if (open_.size() > 1 && open_.back().kind == kind) pop(one.ends_with);
    } else if (w == "{" || w == "(" || w == "open") {
      push(w == "{" ? NodeKind::kList : NodeKind::kShell);
    } else if (w == "}" || w == ")") {
      if (open_.size() > 1 && open_.back().kind == (w == "}" ? NodeKind::kList : NodeKind::kShell)) pop(one.ends_with);
    } else if (w == "close") {
      close_shell();
    } else if (w == "function") {
      push(NodeKind::kFunction);
      if (!one.words.empty()) open_.back().name = one.words[0].text;
    } else if (w == "!") {
      is_negated_ = !is_negated_;
    }
    if (open_.size() > kMaxTreeDepth) pop();
  }

  // Of a $( ) or bash -c: whatever is open inside of it ends with it. The result of its commands is not a condition.
  void close_shell() {
    while (open_.size() > 1 && open_.back().kind != NodeKind::kShell) pop();
    if (open_.size() == 1) return;
    ShellNode done = std::move(open_.back());
    open_.pop_back();
    done.is_inner = true;
    open_.back().children.push_back(std::move(done));
  }

  const ShellScript& script_;
  std::vector<ShellNode> open_;
  size_t header_ = static_cast<size_t>(-1);
  bool is_negated_ = false;
};

// From the root to a command: the nodes on the way, and of each the number of the child that is next.
struct WayStep {
  const ShellNode* node;
  size_t child;
};
bool find_way(const ShellNode& node, size_t command, std::vector<WayStep>& way) {
  if (node.kind == NodeKind::kCommand) return node.command == command;
  for (size_t i = 0; i < node.children.size(); ++i) {
    way.push_back({&node, i});
    if (find_way(node.children[i], command, way)) return true;
    way.pop_back();
  }
  return false;
}

bool is_behind_test(const std::vector<WayStep>& way) {
  return std::any_of(way.begin(), way.end(), [](const WayStep& step) {
    if (step.child == 0 || step.node->kind == NodeKind::kIf || step.node->kind == NodeKind::kCase) return false;
    const std::string& joins = step.node->children[step.child - 1].ends_with;
    return joins == "&&" || joins == "||";
  });
}

}  // namespace

bool may_be_alternatives(const ShellScript& script, size_t one, size_t other) {
  const ShellNode root = shell_tree(script);
  std::vector<WayStep> first, second;
  if (!find_way(root, one, first) || !find_way(root, other, second)) return true;
  if (is_behind_test(first) || is_behind_test(second)) return true;
  size_t i = 0;
  while (i < first.size() && i < second.size() && first[i].child == second[i].child) ++i;
  const auto is_choice = [](const WayStep& step) { return step.node->kind == NodeKind::kIf || step.node->kind == NodeKind::kCase; };
  if (i < first.size() && i < second.size() && is_choice(first[i])) return true;
  const auto is_in_function = [&i](const std::vector<WayStep>& way) {
    return std::any_of(way.begin() + static_cast<std::ptrdiff_t>(std::min(i, way.size())), way.end(),
                       [](const WayStep& step) { return step.node->kind == NodeKind::kFunction; });
  };
  return is_in_function(first) || is_in_function(second);
}

ShellNode shell_tree(const ShellScript& script) { return TreeReader(script).read(); }

bool is_skipped(const std::string& joins, std::optional<bool> truth) {
  return (joins == "&&" && truth == false) || (joins == "||" && truth == true);
}

bool ends_script(const ShellNode& node, const ShellScript& script) {
  if (node.kind != NodeKind::kCommand || node.is_inner || node.command >= script.commands.size()) return false;
  const ShellCommand& one = script.commands[node.command];
  const bool is_joined = node.ends_with == "&&" || node.ends_with == "||" || node.ends_with == "|" || node.ends_with == "&";
  const bool is_it = !one.words.empty() && (one.words[0].text == "exit" || (one.words[0].text == "exec" && one.words.size() > 1));
  return is_it && !is_joined && !one.reads_pipe;
}

}  // namespace distsetup::foreign
