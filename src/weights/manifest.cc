// See manifest.h.
#include "weights/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "base/diagnostic_codes.h"
#include "base/json.h"
#include "base/json_text.h"

namespace distsetup {
namespace {

// Reading throws this inside; the three readers turn it into a Diagnostic.
struct Malformed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

const Json& member(const Json& json, const char* key) {
  if (!json.is_object()) throw Malformed(fmt::format("expected an object with '{}'", key));
  const auto found = json.find(key);
  if (found == json.end()) throw Malformed(fmt::format("'{}' is missing", key));
  return *found;
}

void expect_keys(const Json& json, size_t count, const char* what) {
  if (!json.is_object() || json.size() != count) throw Malformed(fmt::format("{} has {} keys, expected {}", what, json.size(), count));
}

int64_t count(const Json& json, const char* key) {
  const Json& value = member(json, key);
  if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) ||
      value.get<int64_t>() < 0) {
    throw Malformed(fmt::format("'{}' is not a natural number", key));
  }
  return value.get<int64_t>();
}

int64_t integer(const Json& json, const char* key) {
  const Json& value = member(json, key);
  if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))) {
    throw Malformed(fmt::format("'{}' is not an integer", key));
  }
  return value.get<int64_t>();
}

double number(const Json& json, const char* key) {
  const Json& value = member(json, key);
  if (!value.is_number()) throw Malformed(fmt::format("'{}' is not a number", key));
  return value.get<double>();
}

std::string text_of(const Json& json, const char* key) {
  const Json& value = member(json, key);
  if (!value.is_string()) throw Malformed(fmt::format("'{}' is not text", key));
  return value.get<std::string>();
}

std::vector<int64_t> sizes(const Json& json, const char* key) {
  const Json& value = member(json, key);
  if (!value.is_array() || value.empty() || value.size() > 8) throw Malformed(fmt::format("'{}' is not a list of 1 to 8 sizes", key));
  std::vector<int64_t> out;
  for (const Json& item : value) {
    if (!item.is_number_unsigned() || item.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
      throw Malformed(fmt::format("'{}' holds no natural number", key));
    out.push_back(item.get<int64_t>());
  }
  return out;
}

int64_t read_format(const Json& json) {
  const int64_t format = count(json, "format");
  if (format < kOldestCheckpointFormat || format > kCheckpointFormat)
    throw Malformed(fmt::format("format {}, expected {} to {}", format, kOldestCheckpointFormat, kCheckpointFormat));
  return format;
}

// "", and behind it those of an optimizer, each another one.
std::vector<std::string> state_names(const Json& json) {
  constexpr size_t kMost = 8;
  std::vector<std::string> out;
  const Json& states = member(json, "states");
  for (const Json& state : states.is_array() && states.size() <= kMost ? states : Json::array())
    out.push_back(state.is_string() ? state.get<std::string>() : "?");
  bool is_legal = !out.empty() && out.front().empty();
  for (size_t i = 1; i < out.size(); ++i)
    is_legal = is_legal && out[i].size() > 1 && out[i][0] == '.' && std::count(out.begin(), out.end(), out[i]) == 1;
  if (!is_legal) throw Malformed("'states' are not the parameter and what an optimizer keeps of it");
  return out;
}

bool is_digest(const std::string& text) {
  return text.size() == 64 &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

int axis(const Json& json, const char* key) {
  const int64_t size = count(json, key);
  if (size < 1 || size > 1 << 20) throw Malformed(fmt::format("mesh axis '{}' is {}", key, size));
  return static_cast<int>(size);
}

StoredBox read_box(const Json& json, const std::vector<int64_t>& shape, int64_t format) {
  expect_keys(json, format == 1 ? 4 : 3, "a box");
  StoredBox box = {text_of(json, "file"), sizes(json, "start"), sizes(json, "size"), format == 1 ? text_of(json, "suffix") : ""};
  if (!is_rank_file_name(box.file))
    throw Malformed(fmt::format("a box in file '{}', expected rank_<r>.safetensors or rank_<r>.<k>.safetensors", box.file));
  if (box.start.size() != shape.size() || box.size.size() != shape.size())
    throw Malformed("a box has other dimensions than its parameter");
  for (size_t d = 0; d < shape.size(); ++d) {
    if (box.size[d] < 1 || box.start[d] > shape[d] || box.size[d] > shape[d] - box.start[d])
      throw Malformed("a box lies outside its parameter");
  }
  return box;
}

std::map<std::string, StoredParameter> read_tensors(const Json& json, const char* key, int64_t format) {
  std::map<std::string, StoredParameter> tensors;
  const Json& entries = member(json, key);
  if (!entries.is_object() || entries.empty()) throw Malformed(fmt::format("'{}' is not an object with entries", key));
  for (const auto& [name, entry] : entries.items()) {
    expect_keys(entry, 2, "a parameter");
    StoredParameter tensor;
    tensor.shape = sizes(entry, "shape");
    const Json& boxes = member(entry, "boxes");
    if (!boxes.is_array() || boxes.empty()) throw Malformed(fmt::format("parameter '{}' has no boxes", name));
    for (const Json& box : boxes) tensor.boxes.push_back(read_box(box, tensor.shape, format));
    tensors.emplace(name, std::move(tensor));
  }
  return tensors;
}

LossHistory read_losses(const Json& json) {
  expect_keys(json, 3, "'losses'");
  LossHistory losses = {{}, count(json, "skipped"), count(json, "skipped_in_a_row")};
  const Json& recent = member(json, "recent");
  if (!recent.is_array()) throw Malformed("'recent' is not a list");
  for (const Json& loss : recent) {
    if (!loss.is_number()) throw Malformed("'recent' holds no number");
    losses.recent.push_back(loss.get<double>());
  }
  return losses;
}

template <class T, class Read>
Result<T> read(std::string_view text, const std::string& path, Read&& reader) {
  const Json json = json_from_text(text);
  if (json.is_discarded()) return error(code::kCheckpoint, {path}, fmt::format("'{}' is not JSON", path));
  try {
    return reader(json);
  } catch (const Malformed& malformed) {
    return error(code::kCheckpoint, {path}, fmt::format("'{}': {}", path, malformed.what()));
  }
}

}  // namespace

const StoredParameter* CheckpointIndex::find(const std::string& parameter, std::string_view state) const {
  const bool is_regular = state.empty() || state_tensors.empty();
  const std::map<std::string, StoredParameter>& among = is_regular ? parameters : state_tensors;
  const auto found = among.find(is_regular ? parameter : parameter + std::string(state));
  return found == among.end() ? nullptr : &found->second;
}

namespace {

Json tensors_json(const std::map<std::string, StoredParameter>& tensors) {
  Json json = Json::object();
  for (const auto& [name, tensor] : tensors) {
    Json boxes = Json::array();
    for (const StoredBox& box : tensor.boxes) boxes.push_back({{"file", box.file}, {"start", box.start}, {"size", box.size}});
    json[name] = {{"shape", tensor.shape}, {"boxes", std::move(boxes)}};
  }
  return json;
}

}  // namespace

Json to_json(const CheckpointIndex& index) {
  Json parameters = tensors_json(index.parameters);
  const Mesh& mesh = index.mesh;
  Json json = {{"format", kCheckpointFormat},
               {"plan_digest", index.plan_digest},
               {"states", index.states},
               {"parameters", std::move(parameters)},
               {"mesh",
                {{"pp", mesh.pp},
                 {"dp_replicate", mesh.dp_replicate},
                 {"dp_shard", mesh.dp_shard},
                 {"cp", mesh.cp},
                 {"tp", mesh.tp},
                 {"ep", mesh.ep}}}};
  if (!index.state_tensors.empty()) json["state_tensors"] = tensors_json(index.state_tensors);
  return json;
}

Json to_json(const CheckpointMetadata& metadata) {
  Json json = {{"format", kCheckpointFormat},
               {"step", metadata.step},
               {"tokens", metadata.tokens},
               {"loss", metadata.loss},
               {"learning_rate", metadata.learning_rate},
               {"random", {{"seed", metadata.seed}}},
               {"data",
                {{"digest", metadata.data_digest},
                 {"epoch", metadata.cursor.epoch},
                 {"position", metadata.cursor.position},
                 {"sequences", metadata.cursor.sequences},
                 {"tokens", metadata.cursor.tokens}}}};
  if (!metadata.frozen_digest.empty()) json["frozen"] = {{"digest", metadata.frozen_digest}};
  const LossHistory& losses = metadata.losses;
  if (losses != LossHistory{})
    json["losses"] = {{"recent", losses.recent}, {"skipped", losses.skipped}, {"skipped_in_a_row", losses.skipped_in_a_row}};
  if (const auto& scale = metadata.loss_scale)
    json["loss_scale"] = {{"scale", scale->scale}, {"good_steps", scale->good_steps}, {"overflows_left", scale->overflows_left}};
  if (metadata.held_out) {
    json["held_out"] = {{"best", metadata.held_out->best}, {"num_worse", metadata.held_out->num_worse}};
    if (metadata.held_out_loss) json["held_out"]["loss"] = *metadata.held_out_loss;
  }
  return json;
}

Json to_json(const CheckpointCommit& commit) {
  Json files = Json::object();
  for (const auto& [name, digest] : commit.files) files[name] = {{"bytes", digest.bytes}, {"sha256", digest.sha256}};
  return {{"format", kCheckpointFormat}, {"step", commit.step}, {"files", std::move(files)}};
}

Result<CheckpointIndex> index_from_json(std::string_view text, const std::string& path) {
  return read<CheckpointIndex>(text, path, [](const Json& json) {
    const int64_t format = read_format(json);
    const bool has_tensors = json.is_object() && json.contains("state_tensors");
    expect_keys(json, has_tensors ? 6 : 5, "the index");
    CheckpointIndex index;
    index.plan_digest = text_of(json, "plan_digest");
    index.states = state_names(json);
    const Json& mesh = member(json, "mesh");
    expect_keys(mesh, 6, "'mesh'");
    index.mesh = {axis(mesh, "pp"), axis(mesh, "dp_replicate"), axis(mesh, "dp_shard"),
                  axis(mesh, "cp"), axis(mesh, "tp"),           axis(mesh, "ep")};
    index.parameters = read_tensors(json, "parameters", format);
    if (has_tensors) index.state_tensors = read_tensors(json, "state_tensors", format);
    return index;
  });
}

Result<CheckpointMetadata> metadata_from_json(std::string_view text, const std::string& path) {
  return read<CheckpointMetadata>(text, path, [](const Json& json) {
    read_format(json);
    const auto has = [&json](const char* key) { return json.is_object() && json.contains(key); };
    const bool has_frozen = has("frozen"), has_losses = has("losses"), has_held_out = has("held_out"), has_scale = has("loss_scale");
    expect_keys(json, 7u + (has_frozen ? 1 : 0) + (has_losses ? 1 : 0) + (has_held_out ? 1 : 0) + (has_scale ? 1 : 0), "the metadata");
    const Json& data = member(json, "data");
    expect_keys(data, 5, "'data'");
    CheckpointMetadata metadata;
    metadata.step = count(json, "step");
    metadata.tokens = count(json, "tokens");
    metadata.loss = number(json, "loss");
    metadata.learning_rate = number(json, "learning_rate");
    metadata.seed = integer(member(json, "random"), "seed");
    metadata.data_digest = text_of(data, "digest");
    if (has_frozen) metadata.frozen_digest = text_of(member(json, "frozen"), "digest");
    if (has_losses) metadata.losses = read_losses(member(json, "losses"));
    if (has_scale) {
      const Json& scale = member(json, "loss_scale");
      expect_keys(scale, 3, "'loss_scale'");
      metadata.loss_scale = {number(scale, "scale"), count(scale, "good_steps"), count(scale, "overflows_left")};
      if (!(metadata.loss_scale->scale > 0)) throw Malformed("the loss scale is not above 0");
    }
    if (has_held_out) {
      const Json& held_out = member(json, "held_out");
      const bool has_loss = held_out.is_object() && held_out.contains("loss");
      expect_keys(held_out, has_loss ? 3 : 2, "'held_out'");
      metadata.held_out = {number(held_out, "best"), count(held_out, "num_worse")};
      if (has_loss) metadata.held_out_loss = number(held_out, "loss");
    }
    metadata.cursor = {count(data, "epoch"), count(data, "position"), count(data, "sequences"), count(data, "tokens")};
    return metadata;
  });
}

Result<CheckpointCommit> commit_from_json(std::string_view text, const std::string& path) {
  return read<CheckpointCommit>(text, path, [](const Json& json) {
    read_format(json);
    expect_keys(json, 3, "COMMIT");
    CheckpointCommit commit;
    commit.step = count(json, "step");
    const Json& files = member(json, "files");
    if (!files.is_object()) throw Malformed("'files' is not an object");
    for (const auto& [name, entry] : files.items()) {
      expect_keys(entry, 2, "a file");
      if (name != "index.json" && name != "metadata.json" && !is_rank_file_name(name))
        throw Malformed(fmt::format("unknown file '{}'", name));
      const FileDigest digest = {count(entry, "bytes"), text_of(entry, "sha256")};
      if (!is_digest(digest.sha256)) throw Malformed(fmt::format("the digest of '{}' is not 64 hexadecimal digits", name));
      commit.files.emplace(name, digest);
    }
    if (!commit.files.contains("index.json") || !commit.files.contains("metadata.json") || commit.files.size() < 3)
      throw Malformed("files are missing");
    return commit;
  });
}

std::string rank_file_name(int rank, size_t box) {
  return box == 0 ? fmt::format("rank_{}.safetensors", rank) : fmt::format("rank_{}.{}.safetensors", rank, box);
}

bool is_rank_file_name(std::string_view name) {
  constexpr std::string_view kPrefix = "rank_", kSuffix = ".safetensors";
  if (name.size() <= kPrefix.size() + kSuffix.size() || name.size() > 40 || !name.starts_with(kPrefix) || !name.ends_with(kSuffix))
    return false;
  const auto is_number = [](std::string_view text) {
    return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  };
  const std::string_view numbers = name.substr(kPrefix.size(), name.size() - kPrefix.size() - kSuffix.size());
  const size_t dot = numbers.find('.');
  return is_number(numbers.substr(0, dot)) && (dot == std::string_view::npos || is_number(numbers.substr(dot + 1)));
}

}  // namespace distsetup
