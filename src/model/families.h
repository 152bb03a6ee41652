// Families of models: what FSDP wraps, and how a config.json of theirs is read. One file each, presets/families/<model_type>.yaml
// (presets/README.md says how to write one). Private to src/model.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"
#include "model/presets.h"

namespace distsetup {

// One way to get a value from a config.json.
struct FamilyRule {
  Location location;
  std::vector<std::string> when;  // conditions that must all hold
  std::vector<std::string> keys;  // of config.json, the first that is there; "a.b" is key b of map a, "1/a" is one over what a says
  std::string value;              // what it is without keys, or when none of them is there; empty: one of the keys must be there
  std::string if_null;            // when the key says null; empty: as if it were not there
};

// Which layers have experts, by keys of config.json (empty = there is no such key): the layers from `first_dense` on up to `last`,
// each `every`-th of them (the first or the last of so many), without those that `dense` lists. `kinds` lists "dense" or "sparse" for
// each layer, and goes before the others.
struct ExpertLayerKeys {
  std::string first_dense, last, every, dense, kinds;
  int64_t first_dense_default = 0;  // where the key is not there
  bool at_last = false;
};

// Of a rule's key: whether its value is one over what config.json says, and the key itself.
inline bool is_reciprocal(std::string_view key) { return key.starts_with("1/"); }
inline std::string_view without_reciprocal(std::string_view key) { return is_reciprocal(key) ? key.substr(2) : key; }

// Which layers have a window where no list says it of each, by keys of config.json: those from `first` on, those before `end`.
struct WindowLayerKeys {
  std::string first, end;
  int64_t absent = 0;  // what the key says that is not there
};

// Which implementations of attention Transformers' class has, where it has not all of them (--attention's names).
struct FamilyAttention {
  std::string by_default;          // what runs where nothing says another; empty: sdpa
  std::vector<std::string> lacks;  // what no release of the class can run
};

struct Family {
  std::string name;                                       // model_type
  std::string layer_class;                                // "LlamaDecoderLayer"
  std::map<std::string, FamilyRule> values;               // for conditions and expressions, no fields of a geometry
  std::map<std::string, std::vector<FamilyRule>> fields;  // of Geometry; the first rule whose conditions hold
  // Keys that make another model where they are set; false where one begins with "not "; "key = value" (stated_unlike()).
  std::vector<std::string> refused_keys;  // of other sizes
  std::vector<std::string> unlike_keys;   // of the same sizes: it is planned, and the bundled trainer has no program of it
  // Keys that the text part of a larger model leaves out where they are as the class has them. Of this file alone, not of a base.
  std::map<std::string, std::string> text_part;
  std::map<std::string, std::string> left_out;  // key with a count -> the name of what is counted and not planned
  ExpertLayerKeys expert_layers;
  WindowLayerKeys window_layers;
  FamilyAttention attention;
  // What config.json's `layer_types` calls a layer of it; empty: it is not asked. A model with other layers, or that says nothing of
  // them, is none of this family, whatever its model_type.
  std::vector<std::string> layer_kinds;
};

// kUnsupportedArchitecture with the nearest name at `at` when there is none.
Result<Family> find_family(const Presets& presets, std::string_view model_type, const Location& at);
bool is_family(const Presets& presets, std::string_view model_type);
std::vector<std::string> family_names(const Presets& presets);
// Are the layers of a config.json those of the family that its model_type `type` names, as far as the family asks (layer_kinds)?
bool has_layers_of(const Presets& presets, const Value& type, const Value& config);
// Its layer_class alone, without reading what it is based on.
Result<std::string> family_layer_class(const Presets& presets, std::string_view model_type, const Location& at);

}  // namespace distsetup
