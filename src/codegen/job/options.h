// How a job runs, beyond the plan: the settings of its table by key, and what the command line and the plan say of it.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace distsetup {

// What was set, by key of the table of settings (job/settings.h). A value has the type of its row: text (also of a choice, a duration,
// a size, a rate), true or false, a whole number, a list of texts. Keys that the table has not are bugs.
class JobValues {
 public:
  void set(std::string_view key, Json value);
  bool has(std::string_view key) const;

  // The default of the row where nothing was set; without one "", nothing, false.
  std::string text(std::string_view key) const;
  std::optional<int> number(std::string_view key) const;
  bool is_on(std::string_view key) const;
  std::vector<std::string> list(std::string_view key) const;

 private:
  const Json& value(std::string_view key) const;
  std::map<std::string, Json, std::less<>> given_;
};

struct JobOptions {
  JobValues settings;
  std::optional<int> nodes, gpus_per_node;  // absent: the plan's, or one node of eight; others than the plan's are refused
  std::string time_limit;                   // as typed: 4h, 1-12:00:00, 90m; "" = 24 hours, or the site's longest job
  std::vector<std::string> program;         // words behind --: a command of one's own instead of the bundled trainer
  std::string node_script;                  // instead of either: a trainer's script, started once per node; "" = none
  std::string use;                          // what such a command runs with: deepspeed, fsdp; "" = by itself
  std::string site;                         // what headers say of the site file: its name and digest
};

}  // namespace distsetup
