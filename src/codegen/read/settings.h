// Fields that were read, as keys of a run file.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "codegen/read/reading.h"

namespace distsetup {

// Fields derived.source_field.prompt and so on: what a file's rows call what data.fields names so.
inline constexpr std::string_view kSourceField = "derived.source_field.";

// Settings of a run file that say what the fields say, in the order of the fields.
struct ReadSetting {
  std::string path;  // "parallel.micro_batch"; "model.hidden": a key of an inline geometry
  std::string text;
  std::string key;
  Location at;
  bool is_assumed = false;
};
struct ReadSettings {
  std::vector<ReadSetting> settings;
  std::vector<LostKey> lost;  // fields of a job or of a file's own form, which a run has no key for
};
ReadSettings settings_of(const ReadFields& fields);

}  // namespace distsetup
