// test and [ ] are commands: their words have been split, and an empty one is gone. [[ ]] is syntax: its words stay as they are, and
// what stands unquoted behind == is a pattern (bash 5.2, "Conditional Constructs").
#include "codegen/shell/conditions.h"

#include <algorithm>
#include <string>
#include <vector>

#include "codegen/shell/arithmetic.h"
#include "codegen/shell/cut_text.h"
#include "codegen/shell/words.h"

namespace distsetup::foreign {
namespace {

constexpr int kMaxConditionDepth = 50;

using Truth = std::optional<bool>;

Truth negated(Truth a) { return a ? Truth(!*a) : a; }
Truth both(Truth a, Truth b) {
  if (a == false || b == false) return false;
  return a && b ? Truth(true) : std::nullopt;
}
Truth either(Truth a, Truth b) { return negated(both(negated(a), negated(b))); }

class ConditionReader {
 public:
  ConditionReader(const std::vector<ShellWord>& words, ShellExpander& variables, bool is_double)
      : words_(words), variables_(variables), is_double_(is_double) {}

  Truth read() {
    if (words_.empty()) return false;
    const Truth value = any();
    return at_ == words_.size() ? value : std::nullopt;
  }

 private:
  std::string_view word(size_t ahead = 0) const {
    return at_ + ahead < words_.size() ? std::string_view(words_[at_ + ahead].text) : std::string_view();
  }
  bool takes(std::string_view one, std::string_view other) {
    if (word() != one && word() != other) return false;
    ++at_;
    return true;
  }

  Truth any() {
    if (++depth_ > kMaxConditionDepth) return std::nullopt;
    Truth value = all();
    while (at_ < words_.size() && takes("||", "-o")) value = either(value, all());
    --depth_;
    return value;
  }
  Truth all() {
    Truth value = one();
    while (at_ < words_.size() && takes("&&", "-a")) value = both(value, one());
    return value;
  }
  Truth one() {
    const size_t left = words_.size() - at_;
    if (left > 1 && word() == "!" && !is_relation(word(1))) {
      ++at_;
      if (++depth_ > kMaxConditionDepth) return std::nullopt;
      const Truth value = negated(one());
      --depth_;
      return value;
    }
    if (left > 2 && word() == "(" && !is_relation(word(1))) {
      ++at_;
      const Truth value = any();
      return takes(")", ")") ? value : std::nullopt;
    }
    if (left > 2 && is_relation(word(1))) {
      at_ += 3;
      return relation(words_[at_ - 3], std::string(words_[at_ - 2].text), words_[at_ - 1]);
    }
    if (left > 1 && word().size() == 2 && word()[0] == '-') {
      at_ += 2;
      const char how = words_[at_ - 2].text[1];
      if (how == 'v') return variables_.find(words_[at_ - 1].text) != nullptr ? Truth(true) : std::nullopt;
      const auto text = known(words_[at_ - 1]);
      if (!text && (how == 'n' || how == 'z') && is_of_job(words_[at_ - 1])) return how == 'n';
      return text && (how == 'n' || how == 'z') ? Truth(text->empty() == (how == 'z')) : std::nullopt;
    }
    if (left == 0) return std::nullopt;
    const auto text = known(words_[at_++]);
    return text ? Truth(!text->empty()) : std::nullopt;
  }

  static bool is_relation(std::string_view word) {
    for (const std::string_view one :
         {"=", "==", "!=", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "=~", "<", ">", "-nt", "-ot", "-ef"}) {
      if (word == one) return true;
    }
    return false;
  }

  // "$PBS_NODEFILE", "${PBS_NODEFILE:-}" of a job.
  bool is_of_job(const ShellWord& word) const {
    if (word.parts.size() != 1) return false;
    std::string_view name = word.parts[0].text;
    if (name.size() < 2 || name[0] != '$') return false;
    name.remove_prefix(name[1] == '{' ? 2 : 1);
    size_t end = 0;
    while (end < name.size() && is_name_char(name[end])) ++end;
    const std::string_view rest = name.substr(end);
    return (rest.empty() || rest == "}" || rest == ":-}" || rest == "-}" || rest == "+x}") &&
           variables_.is_set_by_job(name.substr(0, end));
  }

  std::optional<std::string> known(const ShellWord& word) {
    ExpandedText text = variables_.expand(word);
    if (!text.is_known || !text.is_certain) return std::nullopt;
    return without_escapes(text.text);
  }

  // Of a pattern's parts the quoted ones mean themselves (bash manual, "Conditional Constructs").
  std::optional<std::string> pattern(const ShellWord& word) {
    std::string out;
    for (const WordPart& part : word.parts) {
      ShellWord one;
      one.text = part.text;
      one.span = part.span;
      one.parts = {part};
      const ExpandedText text = variables_.expand(one);
      if (!text.is_known || !text.is_certain) return std::nullopt;
      for (const char c : text.text) {
        if (part.quote != ShellQuote::kNone && (c == '*' || c == '?' || c == '[' || c == ']' || c == '\\')) out += '\\';
        out += c;
      }
    }
    return out;
  }

  Truth relation(const ShellWord& left_word, const std::string& how, const ShellWord& right_word) {
    const auto left = known(left_word), right = known(right_word);
    if (!left || !right) return std::nullopt;
    if (how == "=" || how == "==" || how == "!=") {
      const auto wanted = is_double_ ? pattern(right_word) : std::nullopt;
      if (is_double_ && !wanted) return std::nullopt;
      const bool are_same = is_double_ ? matches_pattern(*left, *wanted) : *left == *right;
      return are_same == (how != "!=");
    }
    if (how.size() != 3) return std::nullopt;  // -nt, <, =~
    const ValueOfName value_of = [this](std::string_view name) -> std::optional<std::string> {
      const ShellValue* value = is_double_ ? variables_.find(name) : nullptr;
      if (value == nullptr || !value->is_known || !value->is_certain) return std::nullopt;
      return value->text;
    };
    const auto a = arithmetic(*left, value_of), b = arithmetic(*right, value_of);
    if (left->empty() || right->empty() || !a || !b) return std::nullopt;
    return how == "-eq"   ? *a == *b
           : how == "-ne" ? *a != *b
           : how == "-lt" ? *a < *b
           : how == "-le" ? *a <= *b
           : how == "-gt" ? *a > *b
           : how == "-ge" ? Truth(*a >= *b)
                          : std::nullopt;
  }

  const std::vector<ShellWord>& words_;
  ShellExpander& variables_;
  bool is_double_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

std::optional<bool> truth_of(const ShellCommand& command, ShellExpander& variables) {
  if (command.words.empty() || !command.assignments.empty() || command.reads_pipe || !command.here.empty()) return std::nullopt;
  std::vector<ShellWord> words = command.words;
  const std::string first = words[0].text;
  if (words.size() == 1 && (first == "true" || first == "false" || first == ":")) return first != "false";
  if (first == "((" && words.size() == 2) {
    const auto value = arithmetic(words[1].text, [&variables](std::string_view name) -> std::optional<std::string> {
      const ShellValue* one = variables.find(name);
      if (one == nullptr || !one->is_known || !one->is_certain) return std::nullopt;
      return one->text;
    });
    return value ? Truth(*value != 0) : std::nullopt;
  }
  const bool is_double = first == "[[", is_single = first == "[";
  if (!is_double && !is_single && first != "test") return std::nullopt;
  words.erase(words.begin());
  if (is_double || is_single) {
    if (words.empty() || words.back().text != (is_double ? "]]" : "]")) return std::nullopt;
    words.pop_back();
  }
  return ConditionReader(words, variables, is_double).read();
}

}  // namespace distsetup::foreign
