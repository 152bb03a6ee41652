#include "cli/settings/bundled_settings.h"

#include <algorithm>
#include <cstdlib>
#include <span>
#include <string_view>

#include "cli/settings/data_sources.h"
#include "plan/plan.h"
#include "planner/spec/data_source.h"

namespace distsetup {
namespace {

constexpr std::string_view kOfSources[] = {"data.weights",  "data.fields",        "data.tokenizer", "data.template",
                                           "data.held_out", "data.prompt_format", "train.epochs"};
constexpr std::string_view kOfEvaluation[] = {"train.evaluate_every", "train.patience", "checkpoint.keep_best", "checkpoint.metric"};

bool is_one_of(std::span<const std::string_view> paths, std::string_view path) {
  return std::find(paths.begin(), paths.end(), path) != paths.end();
}

// Why data.paths or data.sources name something that is not here; "": all of it is.
std::string why_not_here(const std::string& text) {
  const Result<Setting> setting = sources_setting(text, {});
  if (!setting.ok()) return setting.diagnostics.front().message;
  for (const std::string& item : std::get<std::vector<std::string>>(setting->value)) {
    const Result<DataSource> source = source_of(item, {});
    if (!source.ok()) return source.diagnostics.front().message;
    if (std::string why = why_not_here(*source); !why.empty()) return why;
  }
  return "";
}

}  // namespace

BundledSettings::BundledSettings(const std::vector<ReadSetting>& settings, const Spec& stronger) {
  const auto names_other = [](const ReadSetting& one) { return one.path == "trainer.name" && one.text != kNative; };
  const auto has_sources = [](const ReadSetting& one) {
    return one.path == "data.synthetic" || (one.path == "data.sources" && why_not_here(one.text).empty());
  };
  const auto named = stronger.text("trainer.name");
  is_fsdp2_ = !named.has_value() || *named == "fsdp2";
  is_ddp_ = !named.has_value() || *named == "ddp";
  const auto names = [&named](const ReadSetting& one) {
    return one.path == "trainer.name" && named.has_value() && one.text != *named;
  };
  is_other_ = stronger.find("trainer.code_base") != nullptr || std::any_of(settings.begin(), settings.end(), names);
  is_native_ = named.has_value() ? *named == kNative : std::none_of(settings.begin(), settings.end(), names_other);
  const auto of_files =
      std::find_if(settings.begin(), settings.end(), [](const ReadSetting& one) { return one.path == "trainer.name"; });
  const std::string trainer = named.value_or(of_files == settings.end() ? std::string(kNative) : of_files->text);
  is_fsdp1_ = trainer == "fsdp1";
  is_megatron_ = trainer == "megatron";
  wraps_units_ = trainer == "fsdp1" || trainer == "fsdp2" || trainer == "unknown";
  is_accelerates_ = trainer == "fsdp1" || trainer == "fsdp2" || trainer == "ddp";
  reads_sources_ =
      is_native_ && (stronger.find("data.sources") != nullptr || std::any_of(settings.begin(), settings.end(), has_sources));
}

std::optional<LostKey> BundledSettings::lost(const ReadSetting& setting) const {
  // Of a row's key the file says what it is called there; what it is here was found out.
  const size_t sign = setting.path == "data.fields" ? setting.text.find('=') + 1 : 0;
  const auto because = [&](std::string why) { return LostKey{setting.key, setting.text.substr(sign), std::move(why), setting.at}; };
  const bool names_files = setting.path == "data.paths" || setting.path == "data.sources";
  if (std::string why = names_files ? why_not_here(setting.text) : ""; !why.empty()) return because(std::move(why));
  if (setting.path == "data.sources" && !is_native_) return because("a matter of the data: --data");
  if (setting.path == "train.epochs" && !reads_sources_) return because("epochs depend on the data: --steps");
  if (is_one_of(kOfSources, setting.path) && !reads_sources_) return because("a matter of the data: --data");
  if (setting.path == "data.synthetic" && !is_native_) return because("a matter of the data: --data");
  if (setting.path == "data.packing" && !is_native_)
    return because("a plan of another trainer counts full rows, as packing makes them");
  if (setting.path == "train.beta" && !is_native_) return because("how preferences become a loss is the script's matter");
  if (setting.path == "trainer.attention" && is_native_) return because("the bundled trainer takes the kernel that suits its GPU");
  if (setting.path == "trainer.loss_head" && is_native_)
    return because("the bundled trainer makes its loss in ways of its own: --loss-head");
  const bool is_of_ddp = setting.text == "axolotl" || setting.text == "unsloth" || setting.text == "torchtune";
  const bool is_of_fsdp2 = setting.text != "unsloth";
  if (setting.path == "trainer.code_base" && !(is_of_ddp && is_ddp_) && !(is_of_fsdp2 && is_fsdp2_))
    return because("another trainer runs it");
  if (setting.path == "launch.target" && is_other_) return because("another trainer runs it");
  if (setting.path == "data.shuffle" && !is_native_) return because("a matter of the data: --data");
  if (is_one_of(kOfEvaluation, setting.path) && !is_native_) return because("evaluation is not planned");
  if (setting.path == "trainer.compile" && !is_fsdp2_) return because("a plan of this trainer is without torch.compile");
  if (setting.path == "adapter.dropout" && is_native_ && std::strtod(setting.text.c_str(), nullptr) > 0)
    return because("the bundled trainer drops nothing of what adapters read");
  if (setting.path == "parallel.auto_wrap_policy" && setting.text == kWrapsNothing && !wraps_units_)
    return because("another trainer makes its own units");
  if (setting.path == "parallel.backward_prefetch" && setting.text != kPrefetchPre && !is_fsdp1_)
    return because("a setting of FSDP's version 1");
  const bool is_overlap = setting.path == "parallel.overlap_grad_reduce" || setting.path == "parallel.overlap_param_gather";
  if (is_overlap && setting.text == "false" && !is_megatron_) return because("a switch of Megatron's");
  if (setting.path == "parallel.sync_each_batch" && !is_accelerates_ && setting.text == "true")
    return because(is_native_ ? "the bundled trainer reduces gradients in ways of its own"
                              : "accelerate drives FSDP and DDP by it alone");
  if (setting.path == "adapter.rslora" && !is_native_) return because("it scales the adapters and costs neither memory nor time");
  return std::nullopt;
}

}  // namespace distsetup
