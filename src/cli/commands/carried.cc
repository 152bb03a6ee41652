#include "cli/commands/carried.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/diagnostic_codes.h"
#include "codegen/tables/fields.h"

namespace distsetup {
namespace {

// What makes a run another run, each with other values to try.
struct SettingToTry {
  std::string_view field;
  std::vector<Json> others;  // of a number none: another number
};

const std::vector<SettingToTry>& asked_fields() {
  static const std::vector<SettingToTry> kAsked = {{"micro_batch", {}},
                                                   {"gradient_accumulation", {}},
                                                   {"train.grad_clip", {}},
                                                   {"train.learning_rate", {}},
                                                   {"train.sequence_length", {}},
                                                   {"train.weight_decay", {}},
                                                   {"train.steps", {}},
                                                   {"train.warmup_steps", {}},
                                                   {"train.lora_rank", {}},
                                                   {"mesh.tp", {}},
                                                   {"mesh.pp", {}},
                                                   {"mesh.cp", {}},
                                                   {"mesh.ep", {}},
                                                   {"precision.compute", {"bf16", "fp16", "fp32"}},
                                                   {"train.optimizer", {"adamw", "sgd", "adafactor"}},
                                                   {"train.lr_schedule", {"cosine", "linear", "constant"}}};
  return kAsked;
}

// The header names the inputs by a digest.
std::string body(const std::string& text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
    if (text[at] != '#') out += text.substr(at, end - at);
    at = end;
  }
  return out;
}

bool are_same(const Artifacts& a, const Artifacts& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Artifact& x, const Artifact& y) { return x.path == y.path && body(x.text) == body(y.text); });
}

// Refused or written differently: the target looks at it.
bool is_looked_at(const ReadFields& fields, std::string_view name, const Json& value, const Artifacts& written,
                  const WriteFields& write) {
  ReadFields other = fields;
  other[std::string(name)].value = value;
  const Result<Artifacts> changed = write(other);
  return !changed.ok() || !are_same(*changed, written);
}

bool is_carried(const ReadFields& fields, const SettingToTry& asked, const Json& value, const Artifacts& written,
                const WriteFields& write) {
  if (value.is_number_integer()) return is_looked_at(fields, asked.field, value.get<int64_t>() + 1, written, write);
  if (value.is_number()) return is_looked_at(fields, asked.field, value.get<double>() * 2 + 1, written, write);
  return std::any_of(asked.others.begin(), asked.others.end(),
                     [&](const Json& other) { return other != value && is_looked_at(fields, asked.field, other, written, write); });
}

const FieldCoverage* coverage_of(const std::vector<FieldCoverage>& coverage, std::string_view field) {
  const auto found = std::find_if(coverage.begin(), coverage.end(), [field](const FieldCoverage& one) { return one.field == field; });
  return found == coverage.end() ? nullptr : &*found;
}

// Why a number that other tools make of several is not in the files.
const char* reason_of_batch(const ReadFields& fields) {
  const auto has = [&fields](const char* field) { return fields.count(field) != 0; };
  if (!has("micro_batch") && !has("gradient_accumulation"))
    return "there it is micro-batch × accumulation × ranks, and nothing says the micro-batch";
  if (!has("hardware.gpus_per_node") && !has("derived.world"))
    return "there it is micro-batch × accumulation × ranks, and nothing says how many ranks there are: --nodes, --gpus";
  return "there it is micro-batch × accumulation × ranks, and these do not divide it";
}

// What has a form in some targets only, or together with numbers that nobody gave: left away it changes nothing.
void add_left_open(const ReadFields& fields, const std::vector<FieldCoverage>& coverage, const Artifacts& written,
                   const WriteFields& write, std::vector<LostKey>& out) {
  const bool is_whole_batch = fields.count("micro_batch") != 0 && fields.count("gradient_accumulation") != 0;
  for (const auto& [name, reason] : {std::pair{"derived.warmup_ratio", "it is a part of the steps, and nothing says how many"},
                                     {"derived.data_epochs", "epochs depend on the data: --steps"},
                                     {"options.epochs", "epochs depend on the data: --steps"},
                                     {"options.preference_beta", "how preferences become a loss is the script's matter"},
                                     {"train.global_batch", reason_of_batch(fields)}}) {
    const auto field = fields.find(name);
    const FieldCoverage* covered = coverage_of(coverage, name);
    if (field == fields.end() || field->second.is_assumed || (covered != nullptr && covered->how == Coverage::kNotApplicable))
      continue;
    if (std::string_view(name) == "train.global_batch" && is_whole_batch) continue;
    ReadFields without = fields;
    without.erase(name);
    const Result<Artifacts> same = write(without);
    if (same.ok() && are_same(*same, written))
      out.push_back({field->second.key, field_text(field->second.value), reason, field->second.at});
  }
}

}  // namespace

std::vector<LostKey> not_in_files(const std::string& target, const ReadFields& fields, const std::vector<FieldCoverage>& coverage,
                                  const WriteFields& write) {
  std::vector<LostKey> out;
  const Result<Artifacts> written = write(fields);
  if (!written.ok()) return out;
  for (const SettingToTry& asked : asked_fields()) {
    const auto field = fields.find(asked.field);
    const FieldCoverage* covered = coverage_of(coverage, asked.field);
    if (field == fields.end() || field->second.is_assumed || covered == nullptr || covered->how == Coverage::kNotApplicable) continue;
    const bool is_one = asked.field.substr(0, 5) == "mesh." && field->second.value == 1;
    if (is_one || is_carried(fields, asked, field->second.value, *written, write)) continue;
    out.push_back({field->second.key, field_text(field->second.value),
                   fmt::format("{}: its configuration file has no place for it, the training script has it", target),
                   field->second.at});
  }
  add_left_open(fields, coverage, *written, write, out);
  return out;
}

Diagnostics check_sharding_is_known(const std::string& target, const ReadFields& fields, const std::vector<LostKey>& lost,
                                    const std::vector<FieldCoverage>& coverage, const Artifacts& written, const WriteFields& write) {
  constexpr const char* kSharding = "strategy.sharding";
  const FieldCoverage* covered = coverage_of(coverage, kSharding);
  if (fields.count(kSharding) > 0 || covered == nullptr || covered->how == Coverage::kNotApplicable) return {};
  const std::string plan_it = fmt::format("or let a plan choose: distsetup emit --target {} --from FILE --model NAME", target);
  for (const LostKey& one : lost) {
    // accelerate launch --config_file FILE, too
    const bool is_strategy =
        one.key.find("deepspeed") != std::string::npos || one.key.find("fsdp") != std::string::npos || one.key == "config_file";
    if (!one.is_file || !is_strategy) continue;
    return {error(code::kUnknownValue, one.at,
                  fmt::format("'{}' names '{}', which is not here and says how the model is sharded", one.key, one.text),
                  "give that file beside this one, " + plan_it)};
  }
  // Plain data parallelism is what trainers do that are told nothing: then nothing is missing.
  ReadFields replicated = fields;
  replicated[kSharding] = {"ddp", kSharding, {"command line", 0, 0}, true, false};
  const Result<Artifacts> same = write(replicated);
  replicated[kSharding].value = "zero3";
  const Result<Artifacts> sharded = write(replicated);
  const bool is_told_apart = !sharded.ok() || !are_same(*sharded, written);
  if (same.ok() && are_same(*same, written) && is_told_apart) return {};
  return {error(code::kNoForm, {"command line", 0, 0},
                fmt::format("nothing in the files says how the model is sharded, and a file for {} has to", target),
                "give the file that says it beside this one, " + plan_it)};
}

}  // namespace distsetup
