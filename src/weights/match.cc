#include "weights/match.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/diagnostic_codes.h"
#include "plan/layout.h"
#include "plan/native_program.h"
#include "plan/published_order.h"
#include "weights/convert.h"
#include "weights/mxfp4.h"

namespace distsetup {
namespace {

constexpr size_t kMostListed = 8;  // of each kind

// What of a folder is not as the model has it, by kind.
struct Misfits {
  std::vector<std::string> missing, unexpected, misshapen, unread;

  bool empty() const { return missing.empty() && unexpected.empty() && misshapen.empty() && unread.empty(); }

  std::string text() const {
    std::string out;
    const auto add = [&out](std::string_view what, const std::vector<std::string>& all) {
      if (all.empty()) return;
      const std::vector<std::string> shown(all.begin(), all.begin() + static_cast<ptrdiff_t>(std::min(all.size(), kMostListed)));
      out += fmt::format("{}{} {}: {}", out.empty() ? "" : "; ", all.size(), what, fmt::join(shown, ", "));
      if (all.size() > shown.size()) out += fmt::format(" and {} more", all.size() - shown.size());
    };
    add("missing", missing);
    add("unexpected", unexpected);
    add("of another shape", misshapen);
    add("of a type that is not read", unread);
    return out;
  }
};

// "model.norm.weight" as AutoModel without a head writes it: "norm.weight".
std::string_view without_prefix(std::string_view name) {
  const size_t dot = name.find('.');
  return dot == std::string_view::npos ? name : name.substr(dot + 1);
}

constexpr std::string_view kTextModel = "language_model.", kModel = "model.";

class Matching {
 public:
  Matching(const WeightsFolder& folder, const Geometry& geometry)
      : folder_(folder), geometry_(geometry), layout_(make_layout(geometry, {})), names_(names()) {}

  MatchedWeights run() {
    MatchedWeights matched;
    matched.names = names_;
    for (const UnitLayout& unit : layout_.units)
      for (const Parameter& parameter : unit.parameters)
        if (const PublishedTensor* tensor = parameter.stacked_at < 0 ? take(parameter) : take_part(parameter, matched.parts))
          matched.tensors[parameter.name] = tensor;
    const TiedNames tied = tied_names(geometry_);
    if (const PublishedTensor* head = tied.head.empty() ? nullptr : find(tied.head)) {
      const PublishedTensor* embedding = matched.tensors[tied.embedding];
      taken_.insert(head->entry.name);
      if (embedding != nullptr && head->entry.shape != embedding->entry.shape)
        misfits.misshapen.push_back(fmt::format("'{}' is {}, the embedding that it is tied to {}", head->entry.name, head->entry.shape,
                                                embedding->entry.shape));
      matched.tied_head = head;
      matched.tied_to = tied.embedding;
    }
    for (const auto& [name, tensor] : folder_.tensors) {
      if (taken_.contains(name)) continue;
      if (is_of_other_part(name))
        matched.others.push_back(&tensor);
      else if (!is_buffer(name))
        misfits.unexpected.push_back(fmt::format("'{}'", name));
    }
    return matched;
  }

  Misfits misfits;

 private:
  const std::string& embedding() const { return layout_.units.front().parameters.front().name; }

  // Of all names together, by the embedding's.
  FolderNames names() const {
    using enum FolderNames;
    if (folder_.tensors.contains(embedding())) return kOwn;
    if (folder_.tensors.contains(without_prefix(embedding()))) return kWithoutPrefix;
    for (const FolderNames names : {kBesideOthers, kInsideModel})
      if (folder_.tensors.contains(name_in_folder(names, embedding()))) return names;
    return kOwn;
  }

  std::string in_folder(const std::string& name) const {
    if (names_ != FolderNames::kWithoutPrefix) return name_in_folder(names_, name);
    const std::string prefix = embedding().substr(0, embedding().size() - without_prefix(embedding()).size());
    return name.starts_with(prefix) ? std::string(without_prefix(name)) : name;
  }

  const PublishedTensor* find(const std::string& name) const {
    const auto found = folder_.tensors.find(in_folder(name));
    return found == folder_.tensors.end() ? nullptr : &found->second;
  }

  bool is_of_other_part(std::string_view name) const {
    if (names_ == FolderNames::kBesideOthers) return !name.starts_with(kTextModel);
    if (names_ == FolderNames::kInsideModel) return !name.starts_with(std::string(kModel) + std::string(kTextModel));
    return names_ == FolderNames::kOwn && name.starts_with("visual.");
  }

  const PublishedTensor* take(const Parameter& parameter) {
    const PublishedTensor* tensor = find(parameter.name);
    if (tensor == nullptr) {
      misfits.missing.push_back(fmt::format("'{}'", parameter.name));
      return nullptr;
    }
    taken_.insert(tensor->entry.name);
    const std::vector<int64_t> expected = published_shape(parameter);
    StoredType type = StoredType::kF32;
    if (tensor->entry.shape != expected)
      misfits.misshapen.push_back(fmt::format("'{}' is {}, expected {}", tensor->entry.name, tensor->entry.shape, expected));
    else if (!stored_type_of(tensor->entry.dtype, type))
      misfits.unread.push_back(fmt::format("'{}' is {}", tensor->entry.name, tensor->entry.dtype));
    return tensor;
  }

  // Of a tensor that holds those of all experts, one after the other. What is wrong with it is said of the first.
  const PublishedTensor* take_part(const Parameter& parameter, std::list<PublishedTensor>& parts) {
    const std::string name = published_name(parameter);
    const PublishedTensor* tensor = find(name);
    if (tensor == nullptr) return take_mxfp4(parameter, name, parts);
    taken_.insert(tensor->entry.name);
    std::vector<int64_t> expected = published_shape(parameter);
    StoredType type = StoredType::kF32;
    const bool is_read = stored_type_of(tensor->entry.dtype, type);
    const std::vector<int64_t>& found = tensor->entry.shape;
    if (found.size() > 1 && is_stored_straight(parameter, {found.begin() + 1, found.end()})) expected = parameter.full_shape;
    expected.insert(expected.begin(), geometry_.num_experts);
    if (parameter.stacked_at == 0 && found != expected)
      misfits.misshapen.push_back(fmt::format("'{}' is {}, expected {}", tensor->entry.name, found, expected));
    else if (parameter.stacked_at == 0 && !is_read)
      misfits.unread.push_back(fmt::format("'{}' is {}", tensor->entry.name, tensor->entry.dtype));
    if (found != expected || !is_read) return nullptr;
    parts.push_back(*tensor);
    TensorEntry& part = parts.back().entry;
    part.shape.erase(part.shape.begin());
    part.begin += parameter.stacked_at * num_elements(part.shape) * size_of(type);
    part.end = part.begin + num_elements(part.shape) * size_of(type);
    return &parts.back();
  }

  const PublishedTensor* take_mxfp4(const Parameter& parameter, const std::string& name, std::list<PublishedTensor>& parts) {
    const PublishedTensor *blocks = find(name + std::string(kMxBlocks)), *scales = find(name + std::string(kMxScales));
    const bool is_first = parameter.stacked_at == 0;
    if (blocks == nullptr || scales == nullptr) {
      if (is_first) misfits.missing.push_back(fmt::format("'{}'", blocks == nullptr ? name : name + std::string(kMxScales)));
      return nullptr;
    }
    const int64_t rows = parameter.full_shape[0], each = parameter.full_shape[1] / kMxBlock;
    const std::vector<int64_t> shape = {geometry_.num_experts, rows, each};
    bool fits = parameter.full_shape[1] % kMxBlock == 0;
    for (const PublishedTensor* tensor : {blocks, scales}) {
      std::vector<int64_t> expected = shape;
      if (tensor == blocks) expected.push_back(kMxBlockBytes);
      taken_.insert(tensor->entry.name);
      if (tensor->entry.shape == expected && tensor->entry.dtype == "U8") continue;
      fits = false;
      if (is_first)
        misfits.misshapen.push_back(
            fmt::format("'{}' is {} {}, expected U8 {}", tensor->entry.name, tensor->entry.dtype, tensor->entry.shape, expected));
    }
    if (!fits) return nullptr;
    parts.push_back(*blocks);
    const int64_t count = rows * each;
    parts.back().entry.begin += parameter.stacked_at * count * kMxBlockBytes;
    parts.back().scales = {scales->file, scales->entry.begin + parameter.stacked_at * count};
    return &parts.back();
  }

  bool is_buffer(const std::string& name) const {
    const std::vector<std::string>& buffers = native_programs(geometry_)->buffers;
    return std::any_of(buffers.begin(), buffers.end(), [&](const std::string& ending) { return name.ends_with("." + ending); });
  }

  const WeightsFolder& folder_;
  const Geometry& geometry_;
  const Layout layout_;
  const FolderNames names_;
  std::set<std::string, std::less<>> taken_;
};

}  // namespace

std::string name_in_folder(FolderNames names, const std::string& own) {
  if (names == FolderNames::kBesideOthers) return std::string(kTextModel) + own;
  if (names == FolderNames::kInsideModel && own.starts_with(kModel))
    return std::string(kModel) + std::string(kTextModel) + own.substr(kModel.size());
  return own;
}

std::string own_name(std::string_view in_folder) {
  if (in_folder.starts_with(kTextModel)) return std::string(in_folder.substr(kTextModel.size()));
  const std::string inside = std::string(kModel) + std::string(kTextModel);
  if (in_folder.starts_with(inside)) return std::string(kModel) + std::string(in_folder.substr(inside.size()));
  return std::string(in_folder);
}

TiedNames tied_names(const Geometry& geometry) {
  if (!geometry.tied_embeddings) return {};
  Geometry untied = geometry;
  untied.tied_embeddings = false;
  if (has_error(check_native(untied))) return {};
  const std::shared_ptr<const NativePrograms> tied_programs = native_programs(geometry), programs = native_programs(untied);
  const std::vector<ParameterDecl>& own = tied_programs->head.parameters;
  const std::vector<std::string>& borrowed = tied_programs->head.borrowed_slots;
  TiedNames names;
  for (const ParameterDecl& p : programs->head.parameters)
    if (std::none_of(own.begin(), own.end(), [&](const ParameterDecl& o) { return o.name == p.name; })) names.head = p.name;
  for (const ParameterDecl& p : tied_programs->embedding.parameters)
    if (std::find(borrowed.begin(), borrowed.end(), p.slot) != borrowed.end()) names.embedding = p.name;
  return names.head.empty() || names.embedding.empty() ? TiedNames{} : names;
}

Result<MatchedWeights> match_weights(const WeightsFolder& folder, const Geometry& geometry) {
  Matching matching(folder, geometry);
  MatchedWeights matched = matching.run();
  const Misfits& misfits = matching.misfits;
  if (misfits.empty()) return matched;
  const bool only_types = misfits.missing.empty() && misfits.unexpected.empty() && misfits.misshapen.empty();
  if (only_types)
    return error(code::kWeights, {folder.plan.directory},
                 fmt::format("'{}' has tensors that cannot be read, {}", folder.plan.directory, misfits.text()),
                 "F32, BF16 and F16 are read; save quantised weights as one of these first");
  return error(code::kWeights, {folder.plan.directory},
               fmt::format("the tensors of '{}' are not those of '{}': {}", folder.plan.directory, geometry.name, misfits.text()),
               "give the folder of this very model: its config.json says what the model is");
}

}  // namespace distsetup
