#include "weights/export.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "base/diagnostic_codes.h"
#include "base/json.h"
#include "base/json_text.h"
#include "model/hf_write.h"
#include "weights/export_tensors.h"
#include "weights/export_tuned.h"

namespace distsetup {
namespace {

namespace fs = std::filesystem;

// What a model's folder has of its tokenizer, how text is generated, and how pictures are prepared. Sources: Transformers,
// tokenization_utils_base.py and utils/__init__.py; Mistral's tekken.json; Qwen's qwen.tiktoken; T5's and ALBERT's spiece.model.
constexpr std::array<std::string_view, 17> kCopied = {"tokenizer.json",
                                                      "tokenizer.model",
                                                      "tokenizer_config.json",
                                                      "special_tokens_map.json",
                                                      "added_tokens.json",
                                                      "vocab.json",
                                                      "vocab.txt",
                                                      "merges.txt",
                                                      "chat_template.jinja",
                                                      "chat_template.json",
                                                      "tekken.json",
                                                      "spiece.model",
                                                      "qwen.tiktoken",
                                                      "generation_config.json",
                                                      "preprocessor_config.json",
                                                      "processor_config.json",
                                                      "video_preprocessor_config.json"};

// Parts of a config.json that are not of the text model.
constexpr std::array<const char*, 2> kOtherConfigs = {"vision_config", "audio_config"};

std::string published_type(StoredType type) {
  return type == StoredType::kF32 ? "float32" : type == StoredType::kF16 ? "float16" : "bfloat16";
}

Diagnostic unwritable_folder(const std::string& path, int number) {
  return error(code::kUnwritableFile, {path}, fmt::format("cannot write '{}', {}", path, errno_text(number)));
}

// A folder beside `output`, which is removed unless it has become `output`.
class FolderBeside {
 public:
  explicit FolderBeside(const std::string& output) : output_(output) {
    std::error_code failure;
    const fs::path parent = output_.parent_path();
    if (!parent.empty()) fs::create_directories(parent, failure);
    std::string pattern = output_.string() + ".partial-XXXXXX";
    if (failure || ::mkdtemp(pattern.data()) == nullptr) failure_ = failure ? failure.value() : errno;
    if (failure_ == 0) path_ = pattern;
  }
  FolderBeside(const FolderBeside&) = delete;
  FolderBeside& operator=(const FolderBeside&) = delete;
  ~FolderBeside() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  int failure() const { return failure_; }
  const std::string& path() const { return path_; }

  // 0 or errno. What was there is moved aside first, and removed last.
  int become_output() {
    std::error_code failure;
    fs::permissions(
        path_, fs::perms::owner_all | fs::perms::group_read | fs::perms::group_exec | fs::perms::others_read | fs::perms::others_exec,
        failure);
    const std::string before = path_ + ".before";
    const bool is_there = fs::exists(fs::symlink_status(output_, failure));
    if (is_there && ::rename(output_.c_str(), before.c_str()) != 0) return errno;
    if (::rename(path_.c_str(), output_.c_str()) != 0) {
      const int number = errno;
      if (is_there) ::rename(before.c_str(), output_.c_str());
      return number;
    }
    path_.clear();
    if (is_there) fs::remove_all(before, failure);
    return 0;
  }

 private:
  fs::path output_;
  std::string path_;
  int failure_ = 0;
};

bool is_within(const fs::path& inner, const fs::path& outer) {
  const fs::path relative = inner.lexically_relative(outer);
  return !relative.empty() && *relative.begin() != "..";
}

Diagnostics check_output(const Plan& plan, const ExportRequest& request) {
  std::error_code failure;
  const fs::path output = fs::weakly_canonical(request.output, failure);
  if (fs::exists(output, failure) && !fs::is_directory(output, failure))
    return {error(code::kFileExists, {request.output}, fmt::format("'{}' is a file, expected a folder to write", request.output))};
  for (const std::string& kept : {request.checkpoint, plan.weights.directory}) {
    if (!kept.empty() && is_within(fs::weakly_canonical(kept, failure), output))
      return {error(code::kFileExists, {request.output},
                    fmt::format("'{}' holds '{}', which is read: it cannot be replaced", request.output, kept),
                    "name another --output")};
  }
  const bool is_empty = !fs::exists(output, failure) || fs::is_empty(output, failure);
  if (is_empty || request.overwrite == Overwrite::kForce) return {};
  return {error(code::kFileExists, {request.output}, fmt::format("'{}' is not empty", request.output),
                "name another --output, or replace the folder with --force")};
}

// The source's config.json with the type that is written.
Result<std::string> config_of_source(const std::string& path, StoredType type) {
  const Result<std::string> text = read_file(path);
  if (!text.ok()) return text.diagnostics;
  Json config = json_from_text(*text);
  if (!config.is_object())
    return error(code::kWeights, {path}, fmt::format("'{}' is not strict JSON (Python's NaN and Infinity are not)", path),
                 "write these values as null, or as a large number");
  const bool is_new = config.contains("dtype") && !config.contains("torch_dtype");  // Transformers 5 spells it so
  config[is_new ? "dtype" : "torch_dtype"] = published_type(type);
  if (config.contains("dtype")) config["dtype"] = published_type(type);
  return dump_json(config);
}

struct SmallFile {
  std::string name, bytes;
};
Result<std::vector<SmallFile>> small_files(const Plan& plan, const Presets& presets, StoredType type) {
  const fs::path source = plan.weights.directory;
  std::error_code failure;
  std::vector<SmallFile> files;
  if (plan.weights.files.empty()) {
    const Result<Json> config = hf_config_of(presets, plan.model, published_type(type));
    if (!config.ok()) return config.diagnostics;
    files.push_back({"config.json", dump_json(*config)});
    return files;
  }
  Result<std::string> config = config_of_source((source / "config.json").string(), type);
  if (!config.ok()) return config.diagnostics;
  files.push_back({"config.json", std::move(*config)});
  for (const std::string_view name : kCopied) {
    if (!fs::exists(source / name, failure)) continue;
    Result<std::string> bytes = read_file((source / name).string());
    if (!bytes.ok()) return bytes.diagnostics;
    files.push_back({std::string(name), std::move(*bytes)});
  }
  return files;
}

// What the folder that the run started from has beside the text model, if its config.json says that there is more.
Result<OtherParts> other_parts(const Plan& plan) {
  if (plan.weights.files.empty()) return OtherParts{};
  const fs::path source = plan.weights.directory;
  const Result<std::string> config = read_file((source / "config.json").string());
  if (!config.ok()) return config.diagnostics;
  const Json json = json_from_text(*config);
  const bool has_more = std::any_of(kOtherConfigs.begin(), kOtherConfigs.end(), [&](const char* key) { return json.contains(key); });
  if (!has_more) return OtherParts{};
  const Result<WeightsFolder> folder = read_planned_weights(plan.weights, plan.weights.directory);
  if (!folder.ok()) return folder.diagnostics;
  const Result<MatchedWeights> matched = match_weights(*folder, plan.model);
  if (!matched.ok()) return matched.diagnostics;
  OtherParts others = {matched->names, {}};
  for (const PublishedTensor* tensor : matched->others)
    others.tensors.push_back({tensor->entry, (source / folder->plan.files[tensor->file].path).string()});
  return others;
}

struct OpenCheckpoint {
  CheckpointMetadata metadata;
  StoredCheckpoint stored;
};
Result<OpenCheckpoint> open_checkpoint(const Plan& plan, const std::string& path) {
  Result<CheckpointMetadata> metadata = verify_stored(path);
  if (!metadata.ok()) return metadata.diagnostics;
  Result<StoredCheckpoint> stored = StoredCheckpoint::open(path);
  if (!stored.ok()) return stored.diagnostics;
  if (Diagnostics said = stored->check_model(plan.model, tuning_of(plan.train)); has_error(said)) return said;
  return OpenCheckpoint{std::move(*metadata), std::move(*stored)};
}

Result<Exported> write_folder(const ExportRequest& request, const Geometry& geometry, const std::vector<ExportedFile>& files,
                              const ReadParameter& from, const std::vector<SmallFile>& small) {
  FolderBeside folder(request.output.ends_with('/') ? request.output.substr(0, request.output.size() - 1) : request.output);
  if (folder.failure() != 0) return unwritable_folder(request.output, folder.failure());
  Exported exported;
  for (const ExportedFile& file : files) {
    if (Diagnostics said = write_exported_file(file, geometry, request.type, from, folder.path()); has_error(said)) return said;
    exported.files.push_back(file.name);
    for (const Parameter& p : file.parameters) exported.num_parameters += full_numel(p);
    for (const CopiedTensor& copied : file.copied) exported.num_parameters += num_elements(copied.entry.shape);
  }
  for (const SmallFile& file : small) {
    const Result<Written> written = write_file_atomic((fs::path(folder.path()) / file.name).string(), file.bytes, Overwrite::kRefuse);
    if (!written.ok()) return written.diagnostics;
    exported.files.push_back(file.name);
  }
  if (const int number = folder.become_output(); number != 0) return unwritable_folder(request.output, number);
  return exported;
}

}  // namespace

Result<Exported> export_adapter(const Plan& plan, const ExportRequest& request) {
  if (Diagnostics said = check_output(plan, request); has_error(said)) return said;
  Result<OpenCheckpoint> checkpoint = open_checkpoint(plan, request.checkpoint);
  if (!checkpoint.ok()) return checkpoint.diagnostics;
  const Result<OtherParts> others = other_parts(plan);
  if (!others.ok()) return others.diagnostics;
  const bool is_beside_others = !others->tensors.empty();
  ExportedFile file = adapter_file(plan);
  if (is_beside_others) file.names = FolderNames::kInsideModel;  // where the classes have it, whatever the folder says
  const std::vector<SmallFile> small = {{"adapter_config.json", adapter_config(plan, is_beside_others)}};
  return write_folder(request, plan.model, {file}, parameters_of(checkpoint->stored), small);
}

Result<Exported> export_checkpoint(const Plan& plan, const Presets& presets, const ExportRequest& request) {
  const Tuning tuning = tuning_of(plan.train);
  if (request.merge && !tuning.has_adapters())
    return error(code::kConflict, {}, "nothing to merge: the run trained no adapters", "leave --merge out");
  if (tuning.has_adapters() && !request.merge) return export_adapter(plan, request);
  if (Diagnostics said = check_output(plan, request); has_error(said)) return said;
  Result<OpenCheckpoint> checkpoint = open_checkpoint(plan, request.checkpoint);
  if (!checkpoint.ok()) return checkpoint.diagnostics;
  Result<std::vector<SmallFile>> small = small_files(plan, presets, request.type);
  if (!small.ok()) return small.diagnostics;
  const Result<OtherParts> others = other_parts(plan);
  if (!others.ok()) return others.diagnostics;
  const std::vector<ExportedFile> files = exported_files(plan.model, request.type, request.max_file_bytes, *others);
  small->push_back({"model.safetensors.index.json", exported_index(files, request.type)});
  if (tuning.trains_all()) return write_folder(request, plan.model, files, parameters_of(checkpoint->stored), *small);
  const Result<std::shared_ptr<TunedModel>> model =
      open_tuned_model(plan, checkpoint->metadata, checkpoint->stored, request.merge_base);
  if (!model.ok()) return model.diagnostics;
  return write_folder(request, plan.model, files, parameters_of(**model), *small);
}

}  // namespace distsetup
