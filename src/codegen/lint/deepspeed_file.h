// A DeepSpeed file under inspection, as its rules look at it. Internal to lint.
#pragma once
#include <string>
#include <string_view>

#include "codegen/lint/findings.h"

namespace distsetup::lint {

struct DeepspeedFile {  // one DeepSpeed file under inspection
  const LintSetup& setup;
  const Document& d;
  Findings& report;
  const Value& root;
  int stage = 0;
  std::string consumer;
  bool is_old = false;  // before 0.19.8, where much is gone

  TextSpan key(std::string_view path) const { return key_span(d, node(root, path)); }
  TextSpan val(std::string_view path) const { return value_span(d, *node(root, path).value); }
  bool is_hf() const { return consumer == "hf" || consumer == "accelerate"; }
};

inline constexpr std::string_view kZero = "zero_optimization.";

int stage_of(const Value& root);                          // 0 without a section
bool offloads(const Value& root, std::string_view what);  // "offload_param" to the host or a disk

}  // namespace distsetup::lint
