// What is known of a script's variables at a place in it.
#pragma once
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/shell/shell.h"

namespace distsetup::foreign {

// Beyond them a value is not known: A="$A $A" doubles with every line.
inline constexpr size_t kMaxValueBytes = 64 * 1024, kMaxValueWords = 2000;

struct ShellValue {
  std::string text;              // of an array its items with blanks between them
  std::vector<ShellWord> words;  // items of an array; of a text what it is split into where nothing quotes it
  bool is_array = false;
  bool is_known = true;    // false: only the running script knows; `words` may still say parts of it
  bool is_certain = true;  // false: a branch or loop that may not run has a say in it
  bool differs = false;    // branches gave it different launch lines: `words` are what they agree on
};

class ShellVariables {
 public:
  const ShellValue* find(std::string_view name) const;
  void set(std::string_view name, ShellValue value);
  // The value, to be changed and set again: a list that grows by += is not copied at each of them.
  std::optional<ShellValue> take(std::string_view name);
  void set_unknown(std::string_view name);

  // What happens between begin() and end() may happen or not: end() takes it back and returns it.
  using Changes = std::map<std::string, ShellValue, std::less<>>;
  void begin();
  Changes end();
  // One of the parts has happened, or none of them.
  void merge(const std::vector<Changes>& parts, bool may_be_none);
  // Inside a loop over a list that the script has: X="" before it says nothing of what the loop may put into X. That of before.
  bool doubt_empty(bool doubts);

 private:
  void remember(std::string_view name);  // for end()

  Changes values_;
  bool doubts_empty_ = false;
  std::vector<std::map<std::string, std::optional<ShellValue>, std::less<>>> before_;  // of each begin(): what a change has hidden
};

}  // namespace distsetup::foreign
