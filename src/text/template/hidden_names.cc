#include "text/template/hidden_names.h"

#include <set>

namespace distsetup::jinja {
namespace {

class NameReader {
 public:
  std::vector<std::string> take(const Body& body) {
    read(body, false);
    return std::move(hidden_);
  }

 private:
  void load(const std::string& name) { seen_.insert(name); }
  void store(const std::string& name, bool is_branch) {
    if (seen_.insert(name).second && !is_branch) hidden_.push_back(name);
  }

  void read(const ExpressionPointer& expression) {
    if (!expression) return;
    if (expression->kind == ExpressionKind::kName) load(expression->name);
    for (const ExpressionPointer& part : expression->parts) read(part);
    for (const ExpressionPointer& one : expression->call.positional) read(one);
    for (const auto& [name, one] : expression->call.keywords) read(one);
    read(expression->call.star);
    read(expression->call.double_star);
  }

  void store(const Target& target, bool is_branch) {
    if (target.is_tuple) {
      for (const Target& part : target.parts) store(part, is_branch);
    } else if (!target.attribute.empty()) {
      load(target.name);
    } else {
      store(target.name, is_branch);
    }
  }

  // Bodies of loops, macros and the like have their own names and are not looked into; those of conditions have not.
  void read(const Body& body, bool is_branch) {
    for (const Statement& one : body) {
      switch (one.kind) {
        case StatementKind::kSet:
          read(one.expression);
          store(one.target, is_branch);
          break;
        case StatementKind::kSetBlock: store(one.target, is_branch); break;
        case StatementKind::kMacro: store(one.text, is_branch); break;
        case StatementKind::kIf: read_branches(one); break;
        default:
          read(one.expression);
          for (const ExpressionPointer& printed : one.expressions) read(printed);
      }
    }
  }

  void read_branches(const Statement& statement) {
    for (const Branch& branch : statement.branches) {
      read(branch.condition);
      read(branch.body, true);
    }
    read(statement.otherwise, true);
  }

  std::set<std::string> seen_;
  std::vector<std::string> hidden_;
};

}  // namespace

std::vector<std::string> hidden_names(const Body& body) { return NameReader().take(body); }

}  // namespace distsetup::jinja
