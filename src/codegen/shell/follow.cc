// The tree of commands is walked with the variables in hand. Functions are walked where they are called first, so that what is set
// before the call counts; the others at the end.
#include "codegen/shell/follow.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

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
    const bool moves = moves_arguments(script);
    for (OuterVariable one : script.outer) {
      if (moves && is_argument(one.name)) one.is_known = false;
      variables_.set_outer(one);
    }
  }

  void run(const ShellNode& root) {
    find_functions(root);
    walk(root);
    for (const ShellNode* one : functions_in_order_) {
      if (walked_.insert(one).second) maybe([&] { walk_children(*one); });
    }
  }

 private:
  void find_functions(const ShellNode& node) {
    if (node.kind == NodeKind::kFunction) {
      functions_[node.name] = &node;
      functions_in_order_.push_back(&node);
    }
    for (const ShellNode& child : node.children) find_functions(child);
  }

  template <class Work>
  ShellVariables::Changes apart(const Work& work) {
    variables_.begin();
    work();
    return variables_.end();
  }
  template <class Work>
  void maybe(const Work& work) {
    std::vector<ShellVariables::Changes> changes;
    changes.push_back(apart(work));
    variables_.merge(changes, true);
  }

  // A list's result is that of its last command.
  Truth walk_children(const ShellNode& node) {
    Truth truth = true;
    std::string joins;
    for (const ShellNode& child : node.children) {
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
  static bool is_skipped(const std::string& joins, Truth truth) {
    return (joins == "&&" && truth == false) || (joins == "||" && truth == true);
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
    if (!parts.empty()) variables_.merge(parts, !is_settled);
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
    if (!parts.empty()) variables_.merge(parts, !is_settled && !has_all);
  }

  void loop(const ShellNode& node) {
    if (node.has_header && node.command < script_.commands.size()) {
      ShellCommand& header = script_.commands[node.command];
      header.expanded = variables_.expand_words(header.words);
      const std::vector<ShellWord>& words = header.expanded;
      const bool is_one = words.size() == 4 && words[2].text == "in" && words[3].text.find_first_of("$`*{") == std::string::npos;
      if (is_one) variables_.set_text(words[1].text, words[3].text);
      if (!is_one && words.size() > 1) variables_.set_unknown(words[1].text);
      if (is_one) {
        walk_all(node);
        return;
      }
    }
    std::set<std::string> outer;
    outer.swap(grown_);
    ++num_loops_;
    const bool doubted_before = variables_.doubt_empty(node.has_header && is_over_list(script_.commands[node.command]));
    maybe([&] { walk_all(node); });
    variables_.doubt_empty(doubted_before);
    --num_loops_;
    for (const std::string& name : grown_) forget(name);
    if (num_loops_ > 0) outer.insert(grown_.begin(), grown_.end());
    grown_ = std::move(outer);
  }
  // How often a loop runs is not known: of a list that grows in it only the options that are seen once count, of a sum nothing.
  void forget(const std::string& name) {
    const ShellValue* now = variables_.find(name);
    if (now == nullptr) return;
    ShellValue value = *now;
    value.is_known = value.is_certain = false;
    const auto is_option = [](const ShellWord& word) { return word.text.size() > 1 && word.text[0] == '-'; };
    if (std::none_of(value.words.begin(), value.words.end(), is_option)) value.words.clear();
    variables_.set(name, std::move(value));
  }
  void walk_all(const ShellNode& node) {
    for (const ShellNode& child : node.children) walk_children(child);
  }

  Truth command(ShellCommand& one) {
    const Truth truth = truth_of(one, variables_);
    one.expanded = words_of_eval(variables_.expand_words(one.words));
    for (const ShellWord& word : one.words) {
      if (one.undecided.empty()) one.undecided = variables_.undecided(word);
    }
    const bool is_of_shell = one.words.empty() || is_declaration(one.words[0].text);
    if (is_of_shell) {
      declare_maps(one, variables_);
      for (ShellAssignment& assignment : one.assignments) {
        variables_.assign(assignment);
        if (num_loops_ > 0 && (assignment.appends || names_itself(assignment))) grown_.insert(assignment.name);
      }
    } else {
      apart([&] {
        for (ShellAssignment& assignment : one.assignments) variables_.assign(assignment);
      });
    }
    if (one.words.empty()) return Truth(true);
    const std::string& name = one.words[0].text;
    if (name == "read") read(one);
    if (name == "((" || name == "let") changed_by_arithmetic(one);
    if (name == "unset" || name == "mapfile" || name == "readarray" || name == "getopts") {
      for (size_t i = 1; i < one.words.size(); ++i) variables_.set_unknown(one.words[i].text);
    }
    find_file(one);
    call(one);
    exports_all_ = exports_all(one, exports_all_);
    source(one);
    return truth;
  }

  // read -r -d '' NAME <<EOF: the document is the value. read A B <<< "x y": its words.
  void read(const ShellCommand& one) {
    std::vector<std::string> names;
    bool is_list = false, is_whole = false;
    for (size_t i = 1; i < one.words.size(); ++i) {
      const std::string& word = one.words[i].text;
      const bool is_option = word.size() > 1 && word[0] == '-';
      if (is_option && word.find('a') != std::string::npos) is_list = true;
      if (is_option && word.back() == 'd') is_whole = true;
      if (is_option && std::string_view("dnNptui").find(word.back()) != std::string_view::npos) {
        ++i;
      } else if (!is_option) {
        names.push_back(word);
      }
    }
    for (const std::string& each : names) variables_.set_unknown(each);
    if (names.empty()) return;
    const auto text =
        std::find_if(one.redirections.begin(), one.redirections.end(), [](const ShellRedirection& r) { return r.how == "<<<"; });
    if (!one.here.empty() && names.size() == 1 && is_whole) {
      variables_.assign_span(names[0], one.here[0].body, one.here[0].expands);
    } else if (text != one.redirections.end()) {
      const ExpandedText value = variables_.expand(text->target);
      if (!value.is_known) return;
      if (is_list) {
        ShellAssignment array;
        array.name = names[0];
        variables_.set_text("", value.text);
        array.is_array = true;
        array.array = variables_.find("")->words;
        variables_.assign(array);
      } else if (names.size() == 1) {
        variables_.set_text(names[0], value.text);
      }
    }
  }

  // i=$((i+1)) is an assignment; ((i++)) and let are not seen as one.
  void changed_by_arithmetic(const ShellCommand& one) {
    for (size_t i = 1; i < one.words.size(); ++i) {
      const std::string& text = one.words[i].text;
      if (text.find('=') == std::string::npos && text.find("++") == std::string::npos && text.find("--") == std::string::npos)
        continue;
      size_t end = 0;
      const size_t begin = std::min(text.find_first_not_of(" +-"), text.size());
      for (end = begin; end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) != 0 || text[end] == '_');) ++end;
      if (end <= begin) continue;
      variables_.set_unknown(text.substr(begin, end - begin));
      if (num_loops_ > 0) grown_.insert(text.substr(begin, end - begin));
    }
  }

  // cat <<EOF > file, tee file <<EOF, echo "…" > file, sbatch <<EOF
  void find_file(const ShellCommand& one) {
    constexpr size_t kMaxFiles = 20;
    const std::string& name = one.words[0].text;
    const bool is_submitted = name == "sbatch" || name == "qsub" || name == "bsub";
    const bool writes = name == "cat" || name == "tee" || name == "echo" || name == "printf" || is_submitted;
    if (!writes || script_.files.size() >= kMaxFiles) return;
    ScriptFile file;
    if (is_submitted && one.here.size() == 1) file.path = "job of " + name;
    for (const ShellRedirection& redirection : one.redirections) {
      if (redirection.how == ">" || redirection.how == ">|") file.path = variables_.expand(redirection.target).text;
    }
    if (name == "tee" && one.expanded.size() == 2) file.path = one.expanded[1].text;
    if (file.path.empty()) return;
    const bool is_here = (name == "cat" || name == "tee" || is_submitted) && one.here.size() == 1;
    const bool is_said = (name == "echo" || name == "printf") && one.words.size() == 2 && one.words[1].parts.size() == 1;
    if (!is_here && !is_said) return;
    file.body = is_here ? one.here[0].body : one.words[1].parts[0].span;
    const bool expands = is_here ? one.here[0].expands : one.words[1].parts[0].quote == ShellQuote::kDouble;
    const std::string_view body =
        is_here ? script_.text.substr(file.body.begin, file.body.end - file.body.begin) : std::string_view(one.words[1].parts[0].text);
    file.text = expands ? without_escapes(variables_.expand_text(body, true).text) : std::string(body);
    script_.files.push_back(std::move(file));
  }

  // source env.sh: what it sets acts from here on. A script of its own texts is walked, with the variables of this one.
  void source(const ShellCommand& one) {
    const std::optional<std::string> text = sourced_.read(one);
    if (!text) return;
    ShellScript inner = parse_shell(*text, {0, text->size()});
    const ShellNode root = shell_tree(inner);
    const bool exports_all_before = exports_all_;
    ShellVariables::Changes changes = apart([&] {
      const std::string_view outer_text = variables_.read_from(inner.text);
      std::swap(script_, inner);
      ++num_sources_;
      walk(root);
      --num_sources_;
      std::swap(script_, inner);
      variables_.read_from(outer_text);
    });
    add_exported(inner, exports_all_before, changes, script_.outer);
    for (auto& [name, value] : changes) variables_.set(name, without_places(std::move(value)));
  }

  void call(const ShellCommand& one) {
    const auto found = functions_.find(one.words[0].text);
    constexpr int kMaxCalls = 50;  // of one function by another
    if (found == functions_.end() || num_sources_ > 0 || num_calls_ >= kMaxCalls || !walked_.insert(found->second).second) return;
    ++num_calls_;
    std::vector<std::pair<std::string, ShellValue>> arguments;  // of the script: a function has its own
    for (const OuterVariable& outer : script_.outer) {
      const ShellValue* now = is_argument(outer.name) ? variables_.find(outer.name) : nullptr;
      if (now == nullptr) continue;
      arguments.emplace_back(outer.name, *now);
      variables_.set_unknown(outer.name);
    }
    walk_children(*found->second);
    for (auto& [name, value] : arguments) variables_.set(name, std::move(value));
    --num_calls_;
  }

  ShellScript& script_;  // while a file is sourced that file
  SourcedFiles sourced_;
  ShellExpander variables_;
  std::map<std::string, const ShellNode*, std::less<>> functions_;
  std::vector<const ShellNode*> functions_in_order_;
  std::set<const ShellNode*> walked_;
  int num_calls_ = 0;
  int num_sources_ = 0;  // files that are sourced around this place: the functions are those of the script
  bool exports_all_ = false;
  int num_loops_ = 0;            // around this place
  std::set<std::string> grown_;  // what the loop around this place adds to
};

}  // namespace

ShellScript follow_shell(ShellScript script, const ReadSourced& read) {
  const ShellNode root = shell_tree(script);
  Walker(script, read).run(root);
  return script;
}

}  // namespace distsetup::foreign
