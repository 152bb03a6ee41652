// From fields that were read to fields that a target is written with: a plan that has them, its derived fields, and of these the ones
// whose sources are known.
#include "codegen/read/to_write.h"

#include <algorithm>

#include "codegen/read/match.h"
#include "codegen/tables/field_sources.h"
#include "plan/plan_fields.h"

namespace distsetup {
namespace {

// Puts texts of fields into the members of a plan; what does not fit a member's type is passed over (it stays a field).
struct MemberWriter {
  const Fields& fields;
  std::string prefix;

  template <class T>
  void operator()(const char* name, T& value, const T& usual) {
    value = usual;
    (*this)(name, value);
  }
  template <class T>
  void operator()(const char* name, T& value) {
    const std::string path = prefix.empty() ? name : prefix + "." + name;
    if constexpr (std::is_enum_v<T>) {
      if (const Json* found = find(path)) set_enum(field_text(*found), value);
    } else if constexpr (std::is_same_v<T, bool>) {
      if (const Json* found = find(path); found != nullptr && found->is_boolean()) value = found->get<bool>();
    } else if constexpr (std::is_arithmetic_v<T>) {
      if (const Json* found = find(path); found != nullptr && found->is_number()) value = found->get<T>();
    } else if constexpr (std::is_same_v<T, std::string>) {
      if (const Json* found = find(path); found != nullptr && found->is_string()) value = found->get<std::string>();
    } else if constexpr (requires { value.begin(); }) {
      // Lists take no part in derived fields.
    } else {
      MemberWriter inner{fields, path};
      visit(inner, value);
    }
  }

 private:
  const Json* find(const std::string& path) const {
    const auto it = fields.find(path);
    return it == fields.end() || it->second.is_null() ? nullptr : &it->second;
  }
  template <class T>
  static void set_enum(const std::string& text, T& value) {
    for (const auto& one : spellings<T>()) {
      if (one.text == text) value = one.value;
    }
  }
};

// A batch is micro-batches × their number × ranks: of two the third follows, where it is a whole number.
void complete_batch(Fields& fields) {
  const auto number = [&fields](std::string_view name) -> int64_t {
    const Json& value = fields.find(name)->second;
    return value.is_number_integer() ? value.get<int64_t>() : 0;
  };
  const auto is_open = [&fields](std::string_view name) { return fields.find(name)->second.is_null(); };
  int64_t ranks = number("mesh.dp_shard") * number("mesh.dp_replicate");
  if (ranks == 0) ranks = number("derived.world") / std::max<int64_t>(1, number("mesh.pp") * number("mesh.tp") * number("mesh.cp"));
  if (ranks < 1) return;
  const int64_t batch = number("train.global_batch"), micro = number("micro_batch"), accumulation = number("gradient_accumulation");
  constexpr int64_t kMost = 1'000'000'000;
  if (micro > kMost || accumulation > kMost || ranks > kMost) return;
  if (is_open("train.global_batch") && micro > 0 && accumulation > 0) {
    set_field(fields, "train.global_batch", micro * accumulation * ranks);
  } else if (is_open("gradient_accumulation") && micro > 0 && batch > 0 && batch % (micro * ranks) == 0) {
    set_field(fields, "gradient_accumulation", batch / (micro * ranks));
  } else if (is_open("micro_batch") && accumulation > 0 && batch > 0 && batch % (accumulation * ranks) == 0) {
    set_field(fields, "micro_batch", batch / (accumulation * ranks));
  }
}

}  // namespace

Fields fields_to_write(const ReadFields& read) {
  Fields fields = no_fields();
  for (const auto& [name, field] : read) set_field(fields, name, field.value);
  const auto known = [&fields](std::string_view name) { return !fields.find(name)->second.is_null(); };
  const auto text = [&fields](std::string_view name) { return field_text(fields.find(name)->second); };
  const auto assume = [&](std::string_view name, Json value) {
    if (!known(name)) set_field(fields, name, std::move(value));
  };
  const auto whole = [&fields](std::string_view name) { return fields.find(name)->second.get<int64_t>(); };
  assume("hardware.accelerator", "cuda");
  for (const char* name : {"offload.optimizer", "offload.parameters", "offload.activations"}) assume(name, "none");
  for (const char* axis : {"mesh.pp", "mesh.cp", "mesh.tp", "mesh.ep", "strategy.virtual_stages", "strategy.hpz"}) assume(axis, 1);
  assume("strategy.cp_method", "ring");
  assume("strategy.trainer", std::string(kNative));
  if (known("strategy.sharding")) assume("strategy.reshard_after_forward", text("strategy.sharding") == "zero3");
  if (known("hardware.gpus_per_node")) assume("hardware.nodes", 1);
  const bool is_hybrid = text("derived.hybrid") == "true";
  if (known("hardware.nodes") && known("hardware.gpus_per_node")) {
    const int64_t nodes = whole("hardware.nodes"), per_node = whole("hardware.gpus_per_node");
    if (is_hybrid) {
      assume("mesh.dp_replicate", nodes);
      assume("mesh.dp_shard", per_node);
    }
    set_field(fields, "derived.world", nodes * per_node);
    const int64_t rest = nodes * per_node / std::max<int64_t>(1, whole("mesh.pp") * whole("mesh.tp") * whole("mesh.cp"));
    if (text("strategy.sharding") == "ddp") {
      assume("mesh.dp_replicate", rest);
      assume("mesh.dp_shard", 1);
    } else if (known("strategy.sharding")) {
      assume("mesh.dp_replicate", known("mesh.dp_shard") ? rest / std::max<int64_t>(1, whole("mesh.dp_shard")) : 1);
      assume("mesh.dp_shard", rest / std::max<int64_t>(1, whole("mesh.dp_replicate")));
    }
  } else if (!is_hybrid) {
    assume("mesh.dp_replicate", 1);
  }
  complete_batch(fields);
  // Steps that are counted end a run whatever its epochs are.
  assume("options.epochs", fields.find("derived.data_epochs")->second);
  if (known("train.steps")) set_field(fields, "options.epochs", nullptr);
  if (text("train.method") != "dpo") set_field(fields, "options.preference_beta", nullptr);  // a beta of others is another number

  Plan plan;
  MemberWriter writer{fields, ""};
  visit(writer, plan);
  const Fields derived = fields_of(plan);
  for (const auto& [name, value] : derived) {
    const std::vector<std::string> sources = sources_of(name);
    if (known(name) || sources.empty() || (name.compare(0, 8, "derived.") != 0)) continue;
    if (std::all_of(sources.begin(), sources.end(), known)) set_field(fields, name, value);
  }
  // A number of steps that is known says nothing of a run's length, which these are asked with.
  if (known("checkpoint.every_steps") && whole("checkpoint.every_steps") > 0)
    assume("derived.save_interval", whole("checkpoint.every_steps"));
  if (text("train.warmup_steps") == "0") assume("derived.warmup_ratio", 0);
  if (known("micro_batch") && text("mesh.pp") == "1") assume("derived.pipeline_batch", whole("micro_batch"));
  set_field(fields, "derived.source", "options");
  assume("derived.hybrid", false);
  return fields;
}

}  // namespace distsetup
