#include "planner/resolve/refuse_not_native.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/diagnostic_codes.h"
#include "planner/spec/spec_table.h"

namespace distsetup {
namespace {

// A trainer that has a value the bundled one has not.
std::string_view trainer_with(std::string_view value) {
  if (value == "fp8" || value == "compiled") return "fsdp2";
  return "fsdp1";  // the Trainer's optimizers and losses
}

}  // namespace

Diagnostics refuse_not_native(const Spec& spec) {
  Diagnostics said;
  for (const SpecKey& key : spec_keys()) {
    const auto value = spec.text(key.path);
    if (!value.has_value()) continue;
    const Setting* setting = spec.find(key.path);
    const bool known =
        std::any_of(key.choices.begin(), key.choices.end(), [](const SettingChoice& c) { return !c.not_native.empty(); });
    if (!known) continue;
    std::string expected;
    for (const SettingChoice& c : key.choices) {
      if (!c.refused.empty() || !c.not_native.empty()) continue;
      expected += (expected.empty() ? "" : ", ") + std::string(c.value);
    }
    for (const SettingChoice& c : key.choices) {
      if (c.value != *value || c.not_native.empty()) continue;
      Diagnostic d = error(code::kUnsupportedFeature, setting->at,
                           fmt::format("{} '{}' is not supported: {}", key.path, setting->text, c.not_native),
                           fmt::format("use one of {}, or plan for another trainer: --trainer {}", expected, trainer_with(c.value)));
      d.length = std::max<int>(1, static_cast<int>(setting->text.size()));
      said.push_back(std::move(d));
    }
  }
  for (const std::string_view path :
       {"trainer.program", "trainer.compile", "trainer.attention", "trainer.linear_attention", "trainer.transformers", "parallel.hpz",
        "parallel.sync_each_batch", "parallel.auto_wrap_policy", "parallel.backward_prefetch"}) {
    if (const Setting* setting = spec.find(path);
        setting != nullptr && !setting->is_auto() && setting->text != "1" && setting->text != "false")
      said.push_back(error(code::kUnsupportedFeature, setting->at, fmt::format("{} is a choice of other trainers", path),
                           path == "parallel.hpz"                                                        ? "--trainer deepspeed"
                           : path == "parallel.auto_wrap_policy" || path == "parallel.backward_prefetch" ? "--trainer fsdp1"
                           : path == "parallel.sync_each_batch" ? "--trainer fsdp1, ddp, or fsdp2 --code-base transformers"
                                                                : "--trainer fsdp2"));
  }
  for (const std::string_view path : {"parallel.overlap_grad_reduce", "parallel.overlap_param_gather"}) {
    if (const Setting* setting = spec.find(path); setting != nullptr && setting->text == "false")
      said.push_back(
          error(code::kUnsupportedFeature, setting->at, fmt::format("{} is a switch of Megatron's", path), "--trainer megatron"));
  }
  return said;
}

}  // namespace distsetup
