// A model by what people call it: a preset's name or size, a folder with config.json, or the hub's id of one that is downloaded.
#pragma once
#include <string>

#include "base/diagnostic.h"
#include "model/geometry.h"
#include "model/presets.h"

namespace distsetup {

// Presets come first, so that a plan for a published model is the same on every machine.
Result<Geometry> named_model(const Presets& presets, const std::string& name, const Location& at);

// Where a model was downloaded to; "" where `name` is no hub id, nothing was downloaded, or (`is_for_weights` is false) a preset knows
// it: a preset describes a model as well, but has no weights.
std::string downloaded_model(const Presets& presets, const std::string& name, bool is_for_weights);

// "org/name": what was read of a folder of the hub's cache is called so, and not by its revision.
void name_by_hub_id(const std::string& id, Geometry& model);

// Of a hub id that nothing is known of: the command that downloads its config.json stands in place of the presets' names.
void say_how_to_download(const std::string& name, Diagnostics& diagnostics);

}  // namespace distsetup
