// What the steps of resolve() share: what was given, the problem as far as it is settled, and what was said so far.
#pragma once
#include <string>
#include <string_view>

#include "model/presets.h"
#include "planner/resolve/problem.h"
#include "planner/resolve/read_inputs.h"

namespace distsetup {

struct Resolving {
  const Spec& spec;
  const Presets& presets;
  const Inputs& inputs;
  Problem problem = {};
  Diagnostics said = {};
  std::string used_texts = {};  // of the presets that were looked up, for the digest
  int per_node = 0;             // GPUs; 0: not known yet

  Plan& plan() { return problem.base; }
  bool native() const { return is_native(problem.base); }
  void assume(std::string text) { plan().assumptions.push_back(std::move(text)); }
  // An error at a setting.
  void fail(const char* code, std::string_view path, std::string message, std::string help = "");
  // True, and said, when the setting is there and the trainer is not the bundled one, which alone has it.
  bool refuse_elsewhere(std::string_view path);
  // False, and said, when the trainer does not have a feature; help names one that does.
  bool require(std::string_view feature, std::string_view path, std::string_view what);
};

}  // namespace distsetup
