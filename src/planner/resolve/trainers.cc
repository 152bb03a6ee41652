#include "planner/resolve/trainers.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "base/diagnostic_codes.h"
#include "base/map_reader.h"
#include "base/names.h"
#include "plan/plan_spellings.h"
#include "planner/resolve/setup_words.h"

namespace distsetup {
namespace {

constexpr Named<Sharding> kShardings[] = {
    {"ddp", Sharding::kDdp}, {"zero1", Sharding::kZero1}, {"zero2", Sharding::kZero2}, {"zero3", Sharding::kZero3}};
constexpr Named<ActivationRecompute> kActivations[] = {{"none", ActivationRecompute::kNone},
                                                       {"op_selective", ActivationRecompute::kOpSelective},
                                                       {"attention_only", ActivationRecompute::kAttentionOnly},
                                                       {"every_k", ActivationRecompute::kEveryK},
                                                       {"full", ActivationRecompute::kFull}};
constexpr Named<Dtype> kDtypes[] = {{"fp32", Dtype::kF32}, {"bf16", Dtype::kBf16}, {"fp16", Dtype::kF16}};

class TrainerReader {
 public:
  TrainerReader(const Presets& presets, const Value& map, TrainerFacts& facts, Diagnostics& said)
      : presets_(presets), facts_(facts), said_(said), top_(map, "", said) {}

  void run() {
    std::string text;
    top_.get("label", facts_.label);
    top_.get("variant_of", facts_.name);
    std::vector<std::string> targets;
    top_.get("targets", targets);
    for (const char* key : {"framework", "programs", "loss_heads", "shardings", "recompute", "states", "software", "source", "date"})
      top_.require(key);
    if (const Value* framework = top_.child("framework")) {
      const std::optional<Framework> found = find_framework(framework->text);
      if (found.has_value())
        facts_.defaults.framework = *found;
      else
        said_.push_back(error(code::kUnknownValue, framework->location, fmt::format("unknown value '{}'", framework->text)));
    }
    each("programs", [&](const std::string& key, const Value& value) { facts_.programs[key] = value.text; });
    each("loss_heads", [&](const std::string& key, const Value& value) {
      if (facts_.loss_heads.empty()) facts_.default_loss_head = key;
      enumeration(&value, std::span(kLossHeads), facts_.loss_heads[key]);
    });
    if (const Value* list = top_.child("shardings")) {
      for (const Value& item : list->items) enumeration(&item, std::span(kShardings), facts_.shardings.emplace_back());
    }
    each("recompute", [&](const std::string& key, const Value& value) {
      for (const auto& policy : spellings<Recompute>())
        if (policy.text == key) return enumeration(&value, std::span(kActivations), facts_.recomputes[policy.value]);
      said_.push_back(error(code::kUnknownKey, value.location, fmt::format("recompute: unknown policy '{}'", key)));
    });
    each("features", [&](const std::string& key, const Value& value) { facts_.features[key] = value.text; });
    each("later", [&](const std::string& key, const Value& value) { facts_.later[key] = value.text; });
    each("unplanned", [&](const std::string& key, const Value& value) { facts_.unplanned[key] = value.text; });
    top_.get("cp_methods", facts_.cp_methods);
    top_.get("optimizers", facts_.optimizers);
    top_.get("families", facts_.families);
    enumeration(top_.child("optimizer_implementation"), std::span(kImplementations), facts_.defaults.optimizer_implementation);
    states();
    software();
    top_.get("source", text);
    top_.get("date", text);
    top_.finish();
  }

 private:
  template <class E, size_t n>
  void enumeration(const Value* value, std::span<const Named<E>, n> names, E& out) {
    if (value == nullptr) return;
    for (const auto& one : names) {
      if (one.text != value->text) continue;
      out = one.value;
      return;
    }
    said_.push_back(error(code::kUnknownValue, value->location, fmt::format("unknown value '{}'", value->text)));
  }
  template <class F>
  void each(const char* key, F use) {
    const Value* map = top_.child(key);
    if (map == nullptr) return;
    for (const Value::Entry& entry : map->entries) use(entry.first, entry.second);
  }
  void states() {
    const Value* map = top_.child("states");
    if (map == nullptr) return;
    MapReader reader(*map, "states", said_);
    Setup& d = facts_.defaults;
    enumeration(reader.child("parameters"), std::span(kDtypes), d.parameter_dtype);
    enumeration(reader.child("gradients"), std::span(kDtypes), d.gradient_dtype);
    enumeration(reader.child("reduce"), std::span(kDtypes), d.reduce_dtype);
    enumeration(reader.child("moments"), std::span(kDtypes), d.state_dtype);
    reader.get("master_copy", d.master_copy);
    reader.finish();
  }
  void software() {
    const Value* map = top_.child("software");
    if (map == nullptr) return;
    MapReader reader(*map, "software", said_);
    Software& s = facts_.defaults.software;
    int64_t released = 0;
    reader.get("name", s.name);
    if (reader.get("released", released)) s.released = static_cast<int>(released);
    for (const Named<bool Software::*>& flag : kSoftwareFlags) reader.get(flag.text, s.*flag.value);
    enumeration(reader.child("wrapping"), std::span(kWrappings), s.wrapping);
    reader.get("day", facts_.release_day);
    bool runs_transformers = false;
    reader.get("runs_transformers", runs_transformers);
    if (runs_transformers) {
      Result<std::shared_ptr<const ReleaseTable>> releases = find_releases(presets_, "transformers", map->location);
      if (releases.ok()) facts_.transformers = *releases;
      append(said_, std::move(releases.diagnostics));
    }
    if (const Value* stack = reader.child("stack")) {
      Result<std::shared_ptr<const ReleaseTable>> releases = find_releases(presets_, stack->text, stack->location);
      if (releases.ok()) facts_.releases = *releases;
      append(said_, std::move(releases.diagnostics));
      reader.require("day");
    }
    reader.finish();
    each("older", [&](const std::string& target, const Value& value) {
      MapReader older(value, "older." + target, said_);
      auto& [name, day] = facts_.older_releases[target];
      older.get("name", name);
      older.get("day", day);
      older.finish();
    });
  }

  const Presets& presets_;
  TrainerFacts& facts_;
  Diagnostics& said_;
  MapReader top_;
};

bool is_variant(const PresetFile& file) { return file.text.find("\nvariant_of: ") != std::string_view::npos; }

// The built-in variant of a trainer for a target; nullptr: none.
const PresetFile* variant_for(const Presets& presets, std::string_view name, std::string_view target) {
  if (name.empty() || target.empty()) return nullptr;
  for (const PresetFile& file : presets.files) {
    if (file.folder != "trainers" || !is_variant(file)) continue;
    const Result<Value> value = read_preset(file);
    const Value* of = value.ok() ? value->find("variant_of") : nullptr;
    const Value* targets = value.ok() ? value->find("targets") : nullptr;
    if (of == nullptr || targets == nullptr || of->text != name) continue;
    if (std::any_of(targets->items.begin(), targets->items.end(), [&](const Value& one) { return one.text == target; })) return &file;
  }
  return nullptr;
}

}  // namespace

bool TrainerFacts::has_family(std::string_view family) const {
  return families.empty() || std::find(families.begin(), families.end(), family) != families.end();
}

bool has_variant(const Presets& presets, std::string_view name, std::string_view target) {
  return variant_for(presets, name, target) != nullptr;
}

std::vector<std::string> trainer_names(const Presets& presets) {
  std::vector<std::string> names;
  for (const std::string& id : preset_ids(presets, "trainers")) {
    if (!is_variant(*find_preset(presets, "trainers", id))) names.push_back(id);
  }
  return names;
}

Result<TrainerFacts> find_trainer(const Presets& presets, std::string_view name, const Location& at, std::string_view target) {
  const PresetFile* file = variant_for(presets, name, target);
  if (file == nullptr) file = find_preset(presets, "trainers", name);
  if (file == nullptr)
    return error(code::kUnknownValue, at, fmt::format("no trainer is called '{}'", name), suggest(name, trainer_names(presets)));
  const Result<Value> value = read_preset(*file);
  if (!value.ok()) return value.diagnostics;
  TrainerFacts facts;
  facts.name = file->id;
  Diagnostics said;
  TrainerReader(presets, *value, facts, said).run();
  if (has_error(said)) return said;
  return {std::move(facts), std::move(said)};
}

void set_software(const TrainerFacts& trainer, Setup& s) {
  if (trainer.releases == nullptr) return;
  const LossHead chosen = s.loss;
  set_release(s, *trainer.releases, trainer.release_day);
  s.loss = chosen;
}

std::vector<std::string> trainers_with(const Presets& presets, std::string_view feature) {
  std::vector<std::string> names;
  for (const std::string& id : trainer_names(presets)) {
    const Result<TrainerFacts> facts = find_trainer(presets, id);
    if (facts.ok() && facts->has(feature)) names.push_back(id);
  }
  return names;
}

}  // namespace distsetup
