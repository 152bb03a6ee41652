// What is known of a script's variables in the words of its texts: of those that it sets, of its arguments, and of what the job has.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "codegen/shell/variables.h"

namespace distsetup::foreign {

// A text with known variables put in; what is not known stays as it is written.
struct ExpandedText {
  std::string text;  // of a variable that is not known the name behind it, if there is one
  bool is_known = true, is_certain = true;
};

class ScriptVariables : public ShellVariables {
 public:
  // `of_job`: what the scheduler will set, known to sums only: elsewhere the name says more than the number.
  // `set_by_job`: names that have a value in the job, whatever it is: their defaults count for nothing.
  ScriptVariables(std::map<std::string, std::string, std::less<>> of_job, std::set<std::string, std::less<>> set_by_job)
      : of_job_(std::move(of_job)), set_by_job_(std::move(set_by_job)) {}
  bool is_set_by_job(std::string_view name) const { return find(name) == nullptr && set_by_job_.count(name) > 0; }

  void set_text(std::string_view name, std::string text);
  void set_outer(const OuterVariable& one);  // also what $(NAME) stands for, which is put in before a shell starts

 protected:
  ExpandedText value_text(std::string_view name) const;
  // Of an argument, "#", or of all of them from the first of `slice` on (":2").
  ExpandedText argument_text(std::string_view name, std::string_view slice) const;
  std::optional<std::string> number_text(std::string_view name) const;

  std::map<std::string, std::string, std::less<>> of_job_, outer_;
  std::set<std::string, std::less<>> set_by_job_;
};

}  // namespace distsetup::foreign
