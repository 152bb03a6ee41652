#include "cli/settings/bundled_settings.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <string_view>

#include "plan/plan.h"

namespace distsetup {
namespace {

constexpr std::string_view kOfSources[] = {"data.weights",  "data.fields",   "data.tokenizer",
                                           "data.template", "data.held_out", "train.epochs"};
constexpr std::string_view kOfEvaluation[] = {"train.evaluate_every", "train.patience", "checkpoint.keep_best", "checkpoint.metric"};

bool is_one_of(std::span<const std::string_view> paths, std::string_view path) {
  return std::find(paths.begin(), paths.end(), path) != paths.end();
}

// Files and folders with commas between them.
bool are_here(const std::string& paths) {
  for (size_t at = 0; at <= paths.size();) {
    const size_t end = std::min(paths.find(',', at), paths.size());
    std::error_code ignored;
    if (!std::filesystem::exists(paths.substr(at, end - at), ignored)) return false;
    at = end + 1;
  }
  return true;
}

}  // namespace

BundledSettings::BundledSettings(const std::vector<ReadSetting>& settings, const Spec& stronger) {
  const auto names_other = [](const ReadSetting& one) { return one.path == "trainer.name" && one.text != kNative; };
  const auto has_sources = [](const ReadSetting& one) { return one.path == "data.sources" && are_here(one.text); };
  const auto named = stronger.text("trainer.name");
  is_native_ = named.has_value() ? *named == kNative : std::none_of(settings.begin(), settings.end(), names_other);
  reads_sources_ =
      is_native_ && (stronger.find("data.sources") != nullptr || std::any_of(settings.begin(), settings.end(), has_sources));
}

std::optional<LostKey> BundledSettings::lost(const ReadSetting& setting) const {
  // Of a row's key the file says what it is called there; what it is here was found out.
  const size_t sign = setting.path == "data.fields" ? setting.text.find('=') + 1 : 0;
  const auto because = [&](const char* reason) { return LostKey{setting.key, setting.text.substr(sign), reason, setting.at}; };
  const bool names_files = setting.path == "data.paths" || setting.path == "data.sources";
  if (names_files && !are_here(setting.text)) return because("there is no such file or folder here: --data");
  if (setting.path == "data.sources" && !is_native_) return because("a matter of the data: --data");
  if (is_one_of(kOfSources, setting.path) && !reads_sources_) return because("a matter of the data: --data");
  if (setting.path == "data.packing" && !reads_sources_) return because("a plan trains full sequences");
  if (is_one_of(kOfEvaluation, setting.path) && !is_native_) return because("evaluation is not planned");
  if (setting.path.starts_with("adapter.") && !is_native_) return because("it scales the adapters and costs neither memory nor time");
  return std::nullopt;
}

}  // namespace distsetup
