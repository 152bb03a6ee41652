#include "codegen/job/site.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/diagnostic_codes.h"
#include "base/digest.h"
#include "base/names.h"
#include "base/quantity.h"
#include "base/text.h"
#include "codegen/job/secrets.h"
#include "codegen/shell/quote.h"

namespace distsetup {
namespace {

char separator(JobSettingType type) { return type == JobSettingType::kLines ? '\n' : type == JobSettingType::kWords ? ' ' : ','; }

Diagnostics set_int(JobOptions& options, const JobSetting& setting, std::string_view text, const Location& at) {
  const Result<int64_t> number = as_int(scalar_value(std::string(text), at));
  if (!number.ok()) return number.diagnostics;
  if (*number < setting.minimum || *number > setting.maximum) {
    return {error(code::kOutOfRange, at,
                  fmt::format("{} {}, expected {} to {}", flag_name(setting), *number, setting.minimum, setting.maximum))};
  }
  options.settings.set(setting.key, *number);
  return {};
}

Diagnostics check_text(const JobSetting& setting, std::string& text, const Location& at) {
  if (setting.type == JobSettingType::kDuration) return parse_duration_s(text, at).diagnostics;
  if (setting.type == JobSettingType::kBytes && text != "0") return parse_bytes(text, at, BareSuffix::kBinary).diagnostics;
  if (setting.type == JobSettingType::kRate) return parse_bytes_per_s(text, at).diagnostics;
  if (setting.type != JobSettingType::kChoice) return {};
  for (const std::string& choice : setting.choices) {
    if (!same_name(choice, text)) continue;
    text = choice;
    return {};
  }
  const bool is_image = setting.key == "container.runtime" && text.find_first_of("/:.") != std::string::npos;
  return {error(code::kUnknownValue, at, fmt::format("{} '{}' is not known", flag_name(setting), text),
                is_image ? fmt::format("an image is named by --image {}, beside --container pyxis or apptainer", text)
                         : suggest(text, setting.choices))};
}

// The keys of `map` below `prefix`, in the table's order; what no key begins with is unknown.
struct SiteReader {
  JobOptions& options;
  Diagnostics diagnostics;

  void list(const JobSetting& key, const Value& value) {
    if (value.kind != Value::Kind::kList) return scalar(key, value);
    std::vector<std::string> items;
    for (const Value& item : value.items) {
      Result<std::string> text = as_text(item);
      append(diagnostics, text.diagnostics);
      if (text.ok()) items.push_back(*text);
    }
    options.settings.set(key.key, items);
  }

  void scalar(const JobSetting& key, const Value& value) {
    if (key.type == JobSettingType::kSwitch) {
      const Result<bool> is_on = as_bool(value);
      append(diagnostics, is_on.diagnostics);
      if (is_on.ok()) options.settings.set(key.key, *is_on);
      return;
    }
    if (key.type == JobSettingType::kInt) return append(diagnostics, set_job_option(options, key, value.text, value.location));
    const Result<std::string> text = as_text(value);
    append(diagnostics, text.diagnostics);
    if (text.ok()) append(diagnostics, set_job_option(options, key, *text, value.location));
  }

  void map(const Value& value, const std::string& prefix) {
    if (value.kind != Value::Kind::kMap) {
      diagnostics.push_back(error(code::kWrongType, value.location,
                                  fmt::format("found '{}' for {}, expected keys and values", value.text,
                                              prefix.empty() ? "a site" : prefix.substr(0, prefix.size() - 1))));
      return;
    }
    std::vector<std::string> known;
    if (prefix.empty()) known = {"version", "name"};
    for (const JobSetting* key : site_keys()) {
      if (key->site.compare(0, prefix.size(), prefix) == 0) known.push_back(key->site.substr(prefix.size()));
    }
    for (size_t i = 0; i < value.entries.size(); ++i) {
      const auto& [name, child] = value.entries[i];
      if (prefix.empty() && (same_name(name, "version") || same_name(name, "name"))) continue;
      const std::string path = prefix + name;
      const auto keys = site_keys();
      const auto found = std::find_if(keys.begin(), keys.end(), [&path](const JobSetting* key) { return same_name(key->site, path); });
      const bool is_section = std::any_of(keys.begin(), keys.end(), [&path](const JobSetting* key) {
        return key->site.size() > path.size() && key->site[path.size()] == '.' &&
               same_name(std::string_view(key->site).substr(0, path.size()), path);
      });
      if (found != keys.end() && is_list((*found)->type)) {
        list(**found, child);
      } else if (found != keys.end()) {
        scalar(**found, child);
      } else if (is_section) {
        map(child, path + ".");
      } else {
        Diagnostic unknown =
            error(code::kUnknownKey, value.key_locations[i], fmt::format("unknown key '{}' of a site", path), suggest(name, known));
        unknown.length = static_cast<int>(name.size());
        diagnostics.push_back(std::move(unknown));
      }
    }
  }
};

}  // namespace

Diagnostics set_job_option(JobOptions& options, const JobSetting& setting, std::string_view text, const Location& at) {
  if (setting.type == JobSettingType::kInt) return set_int(options, setting, text, at);
  if (setting.type == JobSettingType::kSwitch) {
    options.settings.set(setting.key, true);
    return {};
  }
  if (is_list(setting.type)) {
    std::vector<std::string> items = split(text, separator(setting.type));
    std::erase(items, "");
    options.settings.set(setting.key, items);
    return {};
  }
  std::string value(text);
  Diagnostics found = check_text(setting, value, at);
  if (!has_error(found)) options.settings.set(setting.key, std::move(value));
  return found;
}

Diagnostics apply_site(JobOptions& options, const Value& site, std::string_view text, const std::string& file_name) {
  SiteReader reader{options, {}};
  const Value* version = site.find("version");
  if (version == nullptr) {
    reader.diagnostics.push_back(error(code::kMissingKey, {file_name, 1, 1}, "no 'version', expected version: 1", "version: 1"));
  } else if (const Result<int64_t> number = as_int(*version); !number.ok() || *number != 1) {
    reader.diagnostics.push_back(
        error(code::kUnknownVersion, version->location, fmt::format("found version '{}', expected 1", version->text), "version: 1"));
  }
  reader.map(site, "");
  if (const std::string found = secret_in(text); !found.empty()) {
    reader.diagnostics.push_back(error(code::kSecret, {file_name},
                                       fmt::format("the site file holds what looks like a secret ({})", found),
                                       "have a line of setup read it from a file of mode 0600"));
  }
  const size_t slash = file_name.rfind('/');
  options.site =
      fmt::format("{} {}", slash == std::string::npos ? file_name : file_name.substr(slash + 1), sha256(text).substr(0, 16));
  return std::move(reader.diagnostics);
}

std::string site_yaml(const std::vector<std::pair<std::string, std::vector<std::string>>>& values) {
  std::string out = "version: 1\n", section;
  for (const JobSetting* key : site_keys()) {
    const auto found = std::find_if(values.begin(), values.end(), [key](const auto& value) { return value.first == key->site; });
    if (found == values.end() || found->second.empty()) continue;
    const size_t dot = key->site.find('.');
    const std::string in = dot == std::string::npos ? "" : key->site.substr(0, dot);
    if (!in.empty() && in != section) out += in + ":\n";
    section = in;
    const bool is_bare = key->type == JobSettingType::kSwitch || key->type == JobSettingType::kInt;
    std::string text;
    for (const std::string& item : found->second) text += (text.empty() ? "" : ", ") + (is_bare ? item : quote_yaml(item));
    out += fmt::format("{}{}: {}  # {}\n", in.empty() ? "" : "  ", key->site.substr(in.empty() ? 0 : dot + 1),
                       is_list(key->type) ? "[" + text + "]" : text, key->help);
  }
  return out;
}

}  // namespace distsetup
