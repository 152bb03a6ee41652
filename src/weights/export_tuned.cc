#include "weights/export_tuned.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "base/diagnostic_codes.h"
#include "base/json.h"
#include "plan/frozen.h"
#include "weights/frozen_source.h"
#include "weights/nf4.h"

namespace distsetup {
namespace {

Layout whole_layout(const Plan& plan) { return make_layout(plan.model, {}, Sharding::kZero3, 0, 1, tuning_of(plan.train)); }

template <class F>
void each_adapter(const Layout& layout, F f) {
  for (const UnitLayout& unit : layout.units)
    for (const Parameter& p : unit.parameters)
      if (is_adapter_name(p.name)) f(p);
}

// Conv1D's matrices are published as [in, out]; PEFT has to know.
bool is_transposed(const Layout& layout) {
  return std::any_of(layout.units.begin(), layout.units.end(), [](const UnitLayout& unit) {
    return std::any_of(unit.parameters.begin(), unit.parameters.end(), [](const Parameter& p) { return p.transposed; });
  });
}

}  // namespace

ExportedFile adapter_file(const Plan& plan) {
  ExportedFile file = {"adapter_model.safetensors", peft_name(""), {}};
  each_adapter(whole_layout(plan), [&](const Parameter& p) { file.parameters.push_back(p); });
  return file;
}

// The keys that PEFT's LoraConfig needs. all-linear becomes the modules' last names, since PEFT takes the word for all of a model.
std::string adapter_config(const Plan& plan, bool is_beside_others) {
  const Layout layout = whole_layout(plan);
  const TrainPlan& t = plan.train;
  std::set<std::string> modules(t.lora_targets.begin(), t.lora_targets.end());
  if (modules.erase(std::string(kAllLinear)) > 0) {
    each_adapter(layout, [&](const Parameter& p) {
      const std::string module = p.name.substr(0, p.name.rfind(".lora_"));
      modules.insert(module.substr(module.rfind('.') + 1));
    });
  }
  Json targets = modules;
  if (is_beside_others) {  // PEFT matches a text as a pattern of whole names
    const bool has_head = modules.erase("lm_head") > 0;
    targets = fmt::format(R"(.*\.language_model\..*\.({}){})", fmt::join(modules, "|"), has_head ? "|lm_head" : "");
  }
  std::error_code failure;
  const std::string base =
      plan.weights.files.empty() ? plan.model.hub_id : std::filesystem::weakly_canonical(plan.weights.directory, failure).string();
  return dump_json({{"base_model_name_or_path", base.empty() ? Json(nullptr) : Json(base)},
                    {"bias", "none"},
                    {"fan_in_fan_out", is_transposed(layout)},
                    {"inference_mode", true},
                    {"init_lora_weights", true},
                    {"lora_alpha", t.lora_alpha},
                    {"lora_dropout", 0.0},
                    {"modules_to_save", nullptr},
                    {"peft_type", "LORA"},
                    {"r", t.lora_rank},
                    {"target_modules", targets},
                    {"task_type", "CAUSAL_LM"},
                    {"use_dora", false},
                    {"use_rslora", t.rslora}});
}

namespace {

// Rows of a matrix out of its record.
void read_rows(const std::vector<uint8_t>& record, const Nf4Record& of, int64_t width, const Box& box, float* values) {
  const int64_t begin = box.start[0] * width, end = begin + box.size[0] * width, first = begin / kNf4Block;
  std::vector<float> blocks(static_cast<size_t>((end + kNf4Block - 1) / kNf4Block * kNf4Block - first * kNf4Block));
  read_nf4_blocks(record.data(), of, first, (end + kNf4Block - 1) / kNf4Block, blocks.data());
  for (int64_t row = 0; row < box.size[0]; ++row)
    std::copy_n(blocks.data() + begin - first * kNf4Block + row * width + box.start[1], box.size[1], values + row * box.size[1]);
}

}  // namespace

class TunedModel {
 public:
  TunedModel(const Plan& plan, std::unique_ptr<const WeightsFolder> folder, MatchedWeights matched, StoredCheckpoint& checkpoint,
             MergeBase base)
      : geometry_(plan.model),
        tuning_(tuning_of(plan.train)),
        folder_(std::move(folder)),
        matched_(std::move(matched)),
        checkpoint_(checkpoint),
        reader_(*folder_, geometry_) {
    const Layout layout = whole_layout(plan);
    each_adapter(layout, [&](const Parameter& p) { adapters_[p.name] = p; });
    for (const UnitLayout& unit : layout.units)
      for (const Parameter& p : unit.parameters)
        if (unit.is_quantized && base == MergeBase::kDequantized) quantized_.insert(p.name);
  }

  Diagnostics read(const Parameter& p, const Box& box, float* values) {
    if (checkpoint_.index().parameters.contains(p.name)) return checkpoint_.read(p.name, "", box, values);
    if (Diagnostics said = read_base(p, box, values); has_error(said)) return said;
    return adapters_.contains(adapter_name(p.name, "lora_A")) ? merge(p, box, values) : Diagnostics{};
  }

 private:
  Diagnostics read_base(const Parameter& p, const Box& box, float* values) {
    const PublishedTensor& tensor = *matched_.tensors.at(p.name);
    if (!quantized_.contains(p.name)) return reader_.read(p, tensor, box, values);
    if (p.name != record_of_) {
      Result<std::vector<uint8_t>> record = make_record(p, [&](int64_t first, int64_t rows, float* to) {
        return reader_.read(p, tensor, {{first, 0}, {rows, p.full_shape[1]}, 0}, to);
      });
      if (!record.ok()) return record.diagnostics;
      record_ = std::move(*record);
      record_of_ = p.name;
    }
    read_rows(record_, nf4_record(full_numel(p)), p.full_shape[1], box, values);
    return {};
  }

  // Rows and columns of B · A where the box is.
  Diagnostics merge(const Parameter& p, const Box& box, float* values) {
    const int64_t rank = tuning_.rank, rows = box.size[0], columns = box.size[1];
    std::vector<float> a(static_cast<size_t>(rank * columns)), b(static_cast<size_t>(rows * rank));
    Diagnostics said = checkpoint_.read(adapter_name(p.name, "lora_A"), "", {{0, box.start[1]}, {rank, columns}, 0}, a.data());
    append(said, checkpoint_.read(adapter_name(p.name, "lora_B"), "", {{box.start[0], 0}, {rows, rank}, 0}, b.data()));
    if (has_error(said)) return said;
    std::vector<float> sum(static_cast<size_t>(columns));
    for (int64_t row = 0; row < rows; ++row) {
      std::fill(sum.begin(), sum.end(), 0.0f);
      for (int64_t k = 0; k < rank; ++k)
        for (int64_t i = 0; i < columns; ++i)
          sum[static_cast<size_t>(i)] += b[static_cast<size_t>(row * rank + k)] * a[static_cast<size_t>(k * columns + i)];
      for (int64_t i = 0; i < columns; ++i)
        values[row * columns + i] += static_cast<float>(tuning_.scale) * sum[static_cast<size_t>(i)];
    }
    return {};
  }

  const Geometry geometry_;
  const Tuning tuning_;
  const std::unique_ptr<const WeightsFolder> folder_;
  const MatchedWeights matched_;  // of tensors of the folder
  StoredCheckpoint& checkpoint_;
  BoxReader reader_;
  std::map<std::string, Parameter> adapters_;
  std::set<std::string> quantized_;
  std::string record_of_;  // the parameter that was read last, of those
  std::vector<uint8_t> record_;
};

Result<std::shared_ptr<TunedModel>> open_tuned_model(const Plan& plan, const CheckpointMetadata& metadata,
                                                     StoredCheckpoint& checkpoint, MergeBase base) {
  if (!starts_from_weights(plan))
    return error(code::kWeights, {}, "the frozen parameters of this run are random values, which no folder holds",
                 "export its adapters without --merge, or train beside published weights: --weights FOLDER");
  Result<WeightsFolder> folder = read_planned_weights(plan.weights, plan.weights.directory);
  if (!folder.ok()) return folder.diagnostics;
  const Layout layout = whole_layout(plan);
  FrozenDigest digest(layout, {});
  Diagnostics said = load_frozen(*folder, layout, {},
                                 {[&](int64_t offset, std::span<const float> values) { digest.add(offset, values); },
                                  [&](int64_t offset, std::span<const uint8_t> bytes) { digest.add_bytes(offset, bytes); }});
  if (has_error(said)) return said;
  if (const std::string found = frozen_digest_text(digest.sum()); found != metadata.frozen_digest)
    return error(code::kWeights, {plan.weights.directory},
                 fmt::format("'{}' has frozen parameters of the digest {}, the checkpoint was trained beside {}",
                             plan.weights.directory, found, metadata.frozen_digest),
                 "give the folder that the run began with");
  // Tensors are looked up in the folder that the model keeps.
  auto kept = std::make_unique<WeightsFolder>(std::move(*folder));
  Result<MatchedWeights> matched = match_weights(*kept, plan.model);
  if (!matched.ok()) return matched.diagnostics;
  return std::make_shared<TunedModel>(plan, std::move(kept), std::move(*matched), checkpoint, base);
}

ReadParameter parameters_of(TunedModel& model) {
  return [&model](const Parameter& p, const Box& box, float* values) { return model.read(p, box, values); };
}

}  // namespace distsetup
