// Files of other tools as the command line names them (`convert FILE…`, `--from FILE`): read, said, and as settings of a run.
#pragma once
#include <string>
#include <vector>

#include "cli/settings/layers.h"
#include "codegen/read/read.h"

namespace distsetup {

// Every file by its table; `as` names the table of all of them ("" = found by their keys).
Result<std::vector<Reading>> read_foreign_files(const TemplateSet& templates, const std::vector<std::string>& paths,
                                                const std::string& as, const ReadChoices& choices = {});

// A key or a value that the table does not know, as an error at its place.
Diagnostic mistake_of(const LostKey& lost);

// What was read as what, a line each.
std::string readings_text(const std::vector<Reading>& readings);
Json readings_json(const std::vector<Reading>& readings, const std::vector<LostKey>& lost);

// What follows from the layers of a model that is named: how many chunks a pipeline's stage has.
void settle_by_model(ReadFields& fields, const Presets& presets, const Spec& stronger = {});

// The settings that the files say, each with its place as origin. A setting that `stronger` has too need not be one that a run can
// take; every other one that a run refuses is an error at its place. Values that a tool merely assumes are settings of `assumed`.
struct ForeignSpec {
  Spec given, assumed;
  std::vector<LostKey> lost;
};
Result<ForeignSpec> spec_of_fields(const ReadFields& fields, const Presets& presets, const Spec& stronger);

// What a tool assumes gives way to what the user says: a warm-up within the run, an end of the cosine below its peak, a mesh of the
// sharding's own.
void give_way(Spec& assumed, const Spec& said);

// The files below a run, read.
struct ForeignFiles {
  std::vector<std::string> paths;
  std::vector<Reading> readings;
  std::vector<std::string> other_setups;  // the named set-up that was asked for, where no file has it: one of presets/recipes
};
// `choices`: what the user says of the files' parts. A command line among the files can choose a set-up too.
Result<ForeignFiles> open_foreign_files(const std::vector<std::string>& paths, const ReadChoices& choices,
                                        const TemplateSet& templates);
// What the files say, and what their tools assume. A note names every key that was not carried over.
Result<LayerSpec> read_foreign_layer(const ForeignFiles& files, const Presets& presets, const Spec& stronger);

}  // namespace distsetup
