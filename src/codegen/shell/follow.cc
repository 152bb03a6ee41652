// The tree of commands is walked with the variables in hand. Functions are walked where they are called first, so that what is set
// before the call counts; the others at the end.
#include "codegen/shell/follow.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "codegen/shell/arguments.h"
#include "codegen/shell/builtins.h"
#include "codegen/shell/conditions.h"
#include "codegen/shell/cut_text.h"
#include "codegen/shell/eval_words.h"
#include "codegen/shell/expander.h"
#include "codegen/shell/job_variables.h"
#include "codegen/shell/loops.h"
#include "codegen/shell/maps.h"
#include "codegen/shell/shell_tree.h"
#include "codegen/shell/sourced.h"
#include "codegen/shell/words.h"

namespace distsetup::foreign {
namespace {

using Truth = std::optional<bool>;

class Walker {
 public:
  Walker(ShellScript& script, ReadSourced read)
      : script_(script), sourced_(std::move(read)), variables_(script.text, job_variables(script), set_by_job(script)) {
    for (const OuterVariable& one : script.outer) variables_.set_outer(one);
  }

  void run(const ShellNode& root) {
    find_functions(root, nullptr);
    root_ = &root;
    walk(root);
    for (const auto& [one, owner] : functions_in_order_) {
      if (owner == nullptr && walked_.insert(one).second) maybe([&, node = one] { walk_children(*node); });
    }
    for (auto& [one, more] : more_) std::move(more.begin(), more.end(), std::back_inserter(script_.commands));
    if (sourced_.shows_calls()) std::move(called_.begin(), called_.end(), std::back_inserter(script_.commands));
  }

 private:
  // A file that was sourced: its functions are called later.
  struct Sourced {
    std::string text;
    ShellScript script;
    ShellNode root;
  };
  using Function = std::pair<const ShellNode*, Sourced*>;  // nullptr: of the script itself

  void find_functions(const ShellNode& node, Sourced* owner) {
    if (node.kind == NodeKind::kFunction) {
      functions_[node.name] = {&node, owner};
      functions_in_order_.emplace_back(&node, owner);
    }
    for (const ShellNode& child : node.children) find_functions(child, owner);
  }

  template <class Work>
  ShellVariables::Changes apart(const Work& work) {
    variables_.begin();
    ++num_apart_;
    work();
    --num_apart_;
    return variables_.end();
  }
  template <class Work>
  void maybe(const Work& work) {
    merge({apart(work)}, true);
  }
  // Arguments that only some ways move are not known behind them.
  void merge(const std::vector<ShellVariables::Changes>& parts, bool may_be_none) {
    const bool moves = std::any_of(parts.begin(), parts.end(), [](const auto& part) { return part.count("@") > 0; });
    variables_.merge(parts, may_be_none);
    if (moves) forget_arguments(variables_);
  }

  // A list's result is that of its last command.
  Truth walk_children(const ShellNode& node) {
    Truth truth = true;
    bool has_ended = false;
    std::string joins;
    for (const ShellNode& child : node.children) {
      if (has_returned_) break;
      if (has_ended) {
        kill(child);
        continue;
      }
      has_ended = num_apart_ == 0 && &node == root_ && joins != "&&" && joins != "||" && ends_script(child, script_);
      if (child.is_inner) {
        if (is_skipped(joins, truth)) {
          kill(child);
        } else {
          apart([&] { walk_children(child); });
        }
        continue;
      }
      if (is_skipped(joins, truth)) {
        kill(child);
      } else if ((joins == "&&" || joins == "||") && !truth) {
        maybe([&] { walk(child); });
      } else {
        truth = walk(child);
        if (child.is_negated && truth) truth = !*truth;
      }
      joins = child.ends_with;
    }
    return truth;
  }
  void kill(const ShellNode& node) {
    const bool has_command = node.kind == NodeKind::kCommand || node.has_header;
    if (has_command && node.command < script_.commands.size()) script_.commands[node.command].is_dead = true;
    if (node.kind == NodeKind::kFunction) return;  // may be called all the same
    for (const ShellNode& child : node.children) kill(child);
  }

  Truth walk(const ShellNode& node) {
    switch (node.kind) {
      case NodeKind::kCommand: return command(script_.commands[node.command]);
      case NodeKind::kList: return walk_children(node);
      case NodeKind::kIf: branch(node); return std::nullopt;
      case NodeKind::kCase: choose(node); return std::nullopt;
      case NodeKind::kLoop: loop(node); return std::nullopt;
      case NodeKind::kFunction: return true;
      case NodeKind::kShell: apart([&] { walk_children(node); }); return std::nullopt;
    }
    return std::nullopt;
  }

  void branch(const ShellNode& node) {
    std::vector<ShellVariables::Changes> parts;
    bool is_settled = false;
    const size_t num = node.children.size();
    for (size_t i = 0; i < num; i += 2) {
      const bool is_else = node.has_else && i + 1 == num;
      if (is_settled) {
        kill(node.children[i]);
        if (i + 1 < num) kill(node.children[i + 1]);
        continue;
      }
      const Truth truth = is_else ? Truth(true) : walk_children(node.children[i]);
      const ShellNode* body = is_else ? &node.children[i] : i + 1 < num ? &node.children[i + 1] : nullptr;
      if (body == nullptr) break;
      if (truth == false) {
        kill(*body);
        continue;
      }
      is_settled = truth == true;
      if (is_settled && parts.empty()) {
        walk_children(*body);
        continue;
      }
      parts.push_back(apart([&] { walk_children(*body); }));
    }
    if (!parts.empty()) merge(parts, !is_settled);
  }

  // case WORD in
  void choose(const ShellNode& node) {
    ShellCommand& header = script_.commands[node.command];
    header.expanded = variables_.expand_words(header.words);
    ExpandedText subject;
    subject.is_known = false;
    if (header.words.size() > 1) subject = variables_.expand(header.words[1]);
    const bool is_known = subject.is_known && subject.is_certain;
    std::vector<ShellVariables::Changes> parts;
    bool is_settled = false, has_all = false;
    for (size_t i = 0; i < node.children.size() && i < node.patterns.size(); ++i) {
      bool matches = false, may_match = false;
      for (const ShellWord& pattern : node.patterns[i]) {
        const ExpandedText text = variables_.expand(pattern);
        const bool is_quoted = pattern.parts.size() == 1 && pattern.parts[0].quote != ShellQuote::kNone;
        has_all = has_all || pattern.text == "*";
        may_match = may_match || !is_known || !text.is_known;
        matches = matches ||
                  (is_known && text.is_known && (is_quoted ? text.text == subject.text : matches_pattern(subject.text, text.text)));
      }
      if (is_settled || (!matches && !may_match)) {
        kill(node.children[i]);
      } else if (matches && parts.empty()) {
        walk_children(node.children[i]);
        is_settled = true;
      } else {
        parts.push_back(apart([&] { walk_children(node.children[i]); }));
        is_settled = matches;
      }
    }
    if (!parts.empty()) merge(parts, !is_settled && !has_all);
  }

  void loop(const ShellNode& node) {
    ShellCommand* header = node.has_header && node.command < script_.commands.size() ? &script_.commands[node.command] : nullptr;
    const bool has_no_arguments = goes_over_no_arguments(script_, header, commands_of(node), variables_);
    if (header != nullptr) {
      header->expanded = variables_.expand_words(header->words);
      const std::vector<ShellWord>& words = header->expanded;
      const bool is_one = words.size() == 4 && words[2].text == "in" && words[3].text.find_first_of("$`*{") == std::string::npos;
      if (is_one) variables_.set_text(words[1].text, words[3].text);
      if (is_one) return walk_all(node);
      if (words.size() > 1) variables_.set_unknown(words[1].text);
    }
    std::set<std::string> outer = std::exchange(grown_, {});
    const bool was_listed = std::exchange(is_listed_, node.has_header && has_known_items(script_.commands[node.command]));
    ++num_loops_;
    const bool doubted_before = variables_.doubt_empty(node.has_header && is_over_list(script_.commands[node.command]));
    ShellVariables::Changes changes = apart([&] { walk_all(node); });
    if (has_no_arguments) leave_unset(variables_, changes);
    merge({std::move(changes)}, !is_listed_);
    is_listed_ = was_listed;
    variables_.doubt_empty(doubted_before);
    --num_loops_;
    for (const std::string& name : grown_) forget_grown(variables_, name);
    if (num_loops_ > 0) outer.insert(grown_.begin(), grown_.end());
    std::swap(grown_, outer);
  }
  void walk_all(const ShellNode& node) {
    for (const ShellNode& child : node.children) walk_children(child);
  }

  Truth command(ShellCommand& one) {
    const Truth truth = truth_of(one, variables_);
    one.expanded = words_of_eval(variables_.expand_words(one.words));
    // What a text is not known in whole of is still as it was typed: eval expands what it makes of its words.
    if (!one.words.empty() && one.words[0].text == "eval") one.expanded = variables_.expand_words(one.expanded);
    for (const ShellWord& word : one.words)
      if (one.undecided.empty()) one.undecided = variables_.undecided(word);
    if (one.depth > 0 && !one.in_substitution && here_ == nullptr)
      more_[&one] = take_apart(one, one.words.size() == 1 ? variables_.expand(one.words[0]).text : "");
    const bool is_of_shell = one.words.empty() || is_declaration(one.words[0].text);
    if (is_of_shell) {
      declare_maps(one, variables_);
      if (locals_ != nullptr) add_local_names(one, *locals_);
      for (ShellAssignment& assignment : one.assignments) {
        variables_.assign(assignment);
        if (num_loops_ > 0 && changes_each_time(assignment, grown_, is_listed_, variables_)) grown_.insert(assignment.name);
      }
    } else {
      apart([&] {
        for (ShellAssignment& assignment : one.assignments) variables_.assign(assignment);
      });
    }
    if (one.words.empty()) return Truth(true);
    const std::string& name = one.words[0].text;
    if (name == "return" && num_apart_ == apart_of_call_) has_returned_ = true;
    if (name == "read") read_into_variables(one, variables_);
    if (name == "((" || name == "let") {
      const std::vector<std::string> changed = change_by_arithmetic(one, variables_, num_loops_ == 0);
      if (num_loops_ > 0) grown_.insert(changed.begin(), changed.end());
    }
    if (moves_arguments(one)) move_arguments(one, variables_);
    if (name == "unset" || name == "mapfile" || name == "readarray" || name == "getopts") {
      for (size_t i = 1; i < one.words.size(); ++i) variables_.set_unknown(one.words[i].text);
    }
    find_written_file(one, piped_, variables_, script_);
    piped_ = piped_document(one);
    call(one);
    exports_all_ = exports_all(one, exports_all_);
    source(one);
    return truth;
  }

  // source env.sh: what it sets acts from here on. A script of its own texts is walked, with the variables of this one.
  void source(const ShellCommand& one) {
    std::optional<std::string> text = sourced_.read(one);
    if (!text && here_ == nullptr && !sourced_path(one).empty())
      script_.not_here.emplace_back(sourced_path(one), one.words.back().span);
    if (!text) return;
    Sourced& inner = files_.emplace_back();
    inner.text = std::move(*text);
    inner.script = parse_shell(inner.text, {0, inner.text.size()});
    inner.root = shell_tree(inner.script);
    find_functions(inner.root, &inner);
    const bool exports_all_before = exports_all_;
    ShellVariables::Changes changes = in_file(inner, [&] { walk(inner.root); });
    add_exported(inner.script, exports_all_before, changes, script_.outer);
    for (auto& [name, value] : changes) variables_.set(name, without_places(std::move(value)));
  }

  // What happens while places and commands are the file's.
  template <class Work>
  ShellVariables::Changes in_file(Sourced& file, const Work& work) {
    return apart([&] {
      const std::string_view outer_text = variables_.read_from(file.script.text);
      std::swap(script_, file.script);
      Sourced* const before = std::exchange(here_, &file);
      work();
      here_ = before;
      std::swap(script_, file.script);
      variables_.read_from(outer_text);
    });
  }

  void call(const ShellCommand& one) {
    const auto found = functions_.find(one.words[0].text);
    constexpr int kMaxCalls = 50;  // of one function by another
    if (found == functions_.end() || one.expanded.empty() || num_calls_ >= kMaxCalls) return;
    const auto [function, owner] = found->second;
    if (owner != nullptr && here_ == nullptr) return call_sourced(one, *function, *owner);
    if (owner != here_ || !is_news(function, one)) return;
    ++num_calls_;
    const bool is_shell_of_its_own = one.ends_with == "&" || one.ends_with == "|" || one.reads_pipe;
    apart_but_arguments(is_shell_of_its_own, [&, node = function] {
      set_arguments(variables_, given_[node]);
      const int outer = std::exchange(apart_of_call_, num_apart_);
      walk_children(*node);
      apart_of_call_ = outer;
      has_returned_ = false;
    });
    --num_calls_;
    running_.erase(function);
  }

  // A function is walked at its first call, and again where another one gives it something else: with what all of them give.
  bool is_news(const ShellNode* function, const ShellCommand& call) {
    std::vector<ShellWord> words(call.expanded.begin() + 1, call.expanded.end());
    walked_.insert(function);
    const auto [given, is_first] = given_.try_emplace(function, words);
    if (!is_first) {
      std::vector<ShellWord> common = common_arguments(given->second, words);
      const bool is_known = std::equal(common.begin(), common.end(), given->second.begin(), given->second.end(),
                                       [](const ShellWord& x, const ShellWord& y) { return x.text == y.text; });
      given->second = std::move(common);
      if (is_known) return false;
    }
    if (!running_.insert(function).second) return false;  // calls itself
    for (const size_t i : commands_of(*function)) script_.commands[i].is_dead = false;
    return true;
  }

  // A function has arguments of its own, and variables that it calls local; in a shell of its own it changes nothing outside.
  template <class Work>
  void apart_but_arguments(bool is_shell_of_its_own, const Work& work) {
    std::set<std::string> locals;
    std::set<std::string>* const outer = std::exchange(locals_, &locals);
    ShellVariables::Changes changes = apart(work);
    locals_ = outer;
    for (auto& [name, value] : changes) {
      if (!is_shell_of_its_own && !is_argument(name) && locals.count(name) == 0) variables_.set(name, std::move(value));
    }
  }

  // launch 8 train.py, where a file that was sourced has the function: what it starts with these arguments is started here.
  void call_sourced(const ShellCommand& one, const ShellNode& function, Sourced& file) {
    constexpr size_t kMostCalled = 500;  // commands
    if (called_.size() > kMostCalled) return;
    ++num_calls_;
    const TextSpan place = one.words[0].span;
    ShellVariables::Changes changes = in_file(file, [&] {
      set_arguments(variables_, {one.expanded.begin() + 1, one.expanded.end()});
      for (const size_t i : commands_of(function)) script_.commands[i].is_dead = false;
      walk_children(function);
      for (const size_t i : commands_of(function)) {
        if (!script_.commands[i].is_dead) called_.push_back(placed_at(script_.commands[i], place));
      }
    });
    for (auto& [name, value] : changes) {
      if (!is_argument(name)) variables_.set(name, without_places(std::move(value)));
    }
    --num_calls_;
  }

  ShellScript& script_;  // while a file is sourced that file
  SourcedFiles sourced_;
  ShellExpander variables_;
  std::deque<Sourced> files_;
  Sourced* here_ = nullptr;            // the file that is walked; nullptr: the script itself
  std::optional<HereDocument> piped_;  // what the command before hands on
  std::vector<ShellCommand> called_;
  std::map<const ShellCommand*, std::vector<ShellCommand>> more_;  // that a command is besides its first
  std::map<std::string, Function, std::less<>> functions_;
  std::vector<Function> functions_in_order_;
  std::set<const ShellNode*> walked_, running_;
  std::map<const ShellNode*, std::vector<ShellWord>> given_;  // to functions, by all calls alike
  int num_calls_ = 0, num_apart_ = 0;
  int apart_of_call_ = -1;                   // num_apart_ where the function that is walked begins
  bool has_returned_ = false;                // from it
  std::set<std::string>* locals_ = nullptr;  // of it
  const ShellNode* root_ = nullptr;          // of the script itself
  bool exports_all_ = false;
  int num_loops_ = 0;            // around this place
  bool is_listed_ = false;       // the loop around it is over known words
  std::set<std::string> grown_;  // what the loop around this place adds to
};

}  // namespace

ShellScript follow_shell(ShellScript script, const ReadSourced& read) {
  const ShellNode root = shell_tree(script);
  Walker(script, read).run(root);
  return script;
}

}  // namespace distsetup::foreign
