// Words with known variables put in, as the shell expands them.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codegen/shell/variables.h"

namespace distsetup::foreign {

// A text with known variables put in; what is not known stays as it is written.
struct ExpandedText {
  std::string text;  // of a variable that is not known the name behind it, if there is one
  bool is_known = true, is_certain = true;
};

class ShellExpander : public ShellVariables {
 public:
  // `script`: its whole text, which the places of words are in. `of_job`: what the scheduler will set, known to sums only: elsewhere
  // the name says more than the number.
  // `set_by_job`: names that have a value in the job, whatever it is: their defaults count for nothing.
  explicit ShellExpander(std::string_view script, std::map<std::string, std::string, std::less<>> of_job = {},
                         std::set<std::string, std::less<>> set_by_job = {})
      : script_(script), of_job_(std::move(of_job)), set_by_job_(std::move(set_by_job)) {}
  // Places are in another script from here on; that of before.
  std::string_view read_from(std::string_view script) { return std::exchange(script_, script); }
  bool is_set_by_job(std::string_view name) const { return find(name) == nullptr && set_by_job_.count(name) > 0; }

  void set_text(std::string_view name, std::string text);
  void set_outer(const OuterVariable& one);  // also what $(NAME) stands for, which is put in before a shell starts
  // Puts the value into the assignment too (`known`).
  void assign(ShellAssignment& assignment);
  // A text's words become the value: of a here-document, of read.
  void assign_span(std::string_view name, TextSpan span, bool expands);

  ExpandedText expand(const ShellWord& word);
  ExpandedText expand_text(std::string_view text, bool is_quoted);
  // The variable that a word is, where branches gave it different launch lines; "" of any other word.
  std::string undecided(const ShellWord& word) const;
  // What a command gets: unquoted lists split, empty words dropped.
  std::vector<ShellWord> expand_words(const std::vector<ShellWord>& words);

 private:
  bool spend(size_t bytes);  // false: enough was put in
  void add_words(const ShellWord& word, std::vector<ShellWord>& out);
  std::vector<ShellWord> split(TextSpan span, bool expands);
  ExpandedText expand_braces(std::string_view inside, bool is_quoted);
  ExpandedText expand_command(std::string_view inside);
  ExpandedText with_default(std::string_view name, std::string_view rest, bool is_quoted);
  ExpandedText value_text(std::string_view name) const;
  ExpandedText argument_text(std::string_view name, std::string_view slice) const;
  std::optional<std::string> number_text(std::string_view name) const;

  std::string_view script_;
  std::map<std::string, std::string, std::less<>> of_job_, outer_;
  std::set<std::string, std::less<>> set_by_job_;
  size_t spent_ = 0;  // bytes of values that were put in somewhere
  size_t depth_ = 0;
};

}  // namespace distsetup::foreign
