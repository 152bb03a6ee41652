// A DeepSpeed file under inspection, and the groups of its rules. Internal to lint.
#pragma once
#include <string>
#include <string_view>

#include "codegen/lint/report.h"

namespace distsetup::lint {

struct DeepspeedFile {  // one DeepSpeed file under inspection
  const Setup& setup;
  const Document& d;
  Report& report;
  const Value& root;
  int stage = 0;
  std::string consumer;
  bool is_old = false;  // before 0.19.8, where much is gone

  Span key(std::string_view path) const { return key_span(d, node(root, path)); }
  Span val(std::string_view path) const { return value_span(d, *node(root, path).value); }
  bool is_hf() const { return consumer == "hf" || consumer == "accelerate"; }
};

inline constexpr std::string_view kZero = "zero_optimization.";

int stage_of(const Value& root);                          // 0 without a section
bool offloads(const Value& root, std::string_view what);  // "offload_param" to the host or a disk

void check_deepspeed_run(const DeepspeedFile& in);  // schedules, who reads the file, other kinds of parallelism

}  // namespace distsetup::lint
