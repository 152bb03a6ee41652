// What a command reads before it does anything else, read once and passed down: presets, templates, and the flags of a training
// script behind `--`. Whoever needs a model, a target or a table takes it from here.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "base/value.h"
#include "cli/line/flags.h"
#include "codegen/read/flag_list.h"
#include "codegen/tables/templates.h"
#include "model/presets.h"

namespace distsetup {

struct SiteFile {
  std::string text;
  Value value;
};

struct Session {
  Presets presets;        // the built-in ones, with those of --presets DIR over them
  TemplateSet templates;  // the built-in ones, with those of --templates DIR over them
  FlagList script_flags;  // of a command that takes them (AfterDashes::kTrainerFlags); else empty
  std::shared_ptr<std::map<std::string, Result<SiteFile>>> site_files =
      std::make_shared<std::map<std::string, Result<SiteFile>>>();  // what site_file() has read
};
// Errors: a folder that cannot be read.
Result<Session> open_session(const Arguments& arguments);

// Read when it is first asked for: a run takes its price from it, a job the rest.
const Result<SiteFile>& site_file(const Session& session, const std::string& path);

}  // namespace distsetup
