// What a command reads before it does anything else, read once and passed down: presets, templates, and the flags of a training
// script behind `--`. Whoever needs a model, a target or a table takes it from here.
#pragma once
#include "cli/line/flags.h"
#include "codegen/read/flag_list.h"
#include "codegen/tables/templates.h"
#include "model/presets.h"

namespace distsetup {

struct Session {
  Presets presets;        // the built-in ones, with those of --presets DIR over them
  TemplateSet templates;  // the built-in ones, with those of --templates DIR over them
  FlagList script_flags;  // of a command that takes them (AfterDashes::kTrainerFlags); else empty
};
// Errors: a folder that cannot be read.
Result<Session> open_session(const Arguments& arguments);

}  // namespace distsetup
