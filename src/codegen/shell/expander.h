// Words with known variables put in, as the shell expands them.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codegen/shell/script_variables.h"

namespace distsetup::foreign {

class ShellExpander : public ScriptVariables {
 public:
  // `script`: its whole text, which the places of words are in; the others are of the job.
  explicit ShellExpander(std::string_view script, std::map<std::string, std::string, std::less<>> of_job = {},
                         std::set<std::string, std::less<>> set_by_job = {})
      : ScriptVariables(std::move(of_job), std::move(set_by_job)), script_(script) {}
  // Places are in another script from here on; that of before.
  std::string_view read_from(std::string_view script) { return std::exchange(script_, script); }

  // Puts the value into the assignment too (`known`).
  void assign(ShellAssignment& assignment);
  // A text's words become the value: of a here-document, of read.
  void assign_span(std::string_view name, TextSpan span, bool expands);

  ExpandedText expand(const ShellWord& word);
  ExpandedText expand_text(std::string_view text, bool is_quoted);
  ExpandedText sum_text(std::string_view inside);  // of $(( ))
  // The variable that a word is, where branches gave it different launch lines; "" of any other word.
  std::string undecided(const ShellWord& word) const;
  // What a command gets: unquoted lists split, empty words dropped.
  std::vector<ShellWord> expand_words(const std::vector<ShellWord>& words);

 private:
  bool spend(size_t bytes);  // false: enough was put in
  void add_words(const ShellWord& word, std::vector<ShellWord>& out);
  std::vector<ShellWord> printed_words(std::string_view text);  // of $(printf " %q" WORDS)
  std::vector<ShellWord> split(TextSpan span, bool expands);
  ExpandedText expand_braces(std::string_view inside, bool is_quoted);
  ExpandedText expand_command(std::string_view inside);
  ExpandedText with_default(std::string_view name, std::string_view rest, bool is_quoted);

  std::string_view script_;
  size_t spent_ = 0;  // bytes of values that were put in somewhere
  size_t depth_ = 0;
};

}  // namespace distsetup::foreign
