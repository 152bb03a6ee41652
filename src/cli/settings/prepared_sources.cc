#include "cli/settings/prepared_sources.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <utility>

#include "base/diagnostic_codes.h"
#include "base/digest.h"
#include "base/names.h"
#include "base/quantity.h"
#include "cli/settings/data_sources.h"
#include "data/synthetic_set.h"
#include "plan/plan.h"
#include "planner/resolve/named_model.h"
#include "planner/resolve/read_inputs.h"
#include "planner/resolve/resolve_training.h"
#include "weights/hub_cache.h"

namespace distsetup {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSourceSettings[] = {"data.weights", "data.fields", "data.template", "data.prompt_format", "data.cache"};

// An absolute path in a variable of the environment.
std::optional<fs::path> folder_in(const char* variable) {
  const std::optional<std::string> text = environment_variable(variable);
  return text.has_value() && fs::path(*text).is_absolute() ? std::optional<fs::path>(*text) : std::nullopt;
}

// The folder of all prepared sources: data.cache, else below the user's own cache.
Result<fs::path> sets_folder(const Spec& spec) {
  if (const auto named = spec.text("data.cache")) return fs::absolute(folder_of_setting(spec, "data.cache") / *named) / "sets";
  if (const auto cache = folder_in("XDG_CACHE_HOME")) return *cache / "distsetup" / "sets";
  if (const auto home = folder_in("HOME")) return *home / ".cache" / "distsetup" / "sets";
  return error(code::kMissingArgument, command_line(), "HOME is not set, so there is no folder to keep token ids in",
               "--data-cache FOLDER");
}

std::string file_line(const fs::path& file) {
  std::error_code none;
  const fs::path path = fs::absolute(file, none).lexically_normal();
  return fmt::format("file {} {} {}\n", path.string(), fs::file_size(path, none),
                     fs::last_write_time(path, none).time_since_epoch().count());
}

// A tokenizer or a template: a file, or a model's folder, whose weights do not count.
std::string model_lines(const std::string& path) {
  std::error_code none;
  if (!fs::is_directory(path, none)) return file_line(path);
  std::set<std::string> lines;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, none))
    if (entry.is_regular_file(none) && entry.path().extension() != ".safetensors") lines.insert(file_line(entry.path()));
  return fmt::format("{}", fmt::join(lines, ""));
}

// What a set is made of, as one text.
std::string ingredients(const PrepareInputs& inputs, int64_t held_out) {
  std::string text = fmt::format("set 1\nheld out {}\ntokenizer\n{}", held_out, model_lines(inputs.tokenizer));
  if (!inputs.chat_template.empty()) text += "template\n" + model_lines(inputs.chat_template);
  for (const PrepareSource& source : inputs.sources) {
    text += fmt::format("source {} weight {} format {}\n", source.path, source.weight, source.rows.format);
    if (const auto& format = source.rows.prompt_format)
      text += fmt::format("prompt {} {} {}\n", format->before.size(), format->before, format->after);
    for (const auto& [ours, theirs] : source.rows.fields) text += fmt::format("field {} {}\n", ours, theirs);
    for (const std::string& file : source.files) text += file_line(file);
  }
  return text;
}

// Held while one of several processes makes the set that all of them want.
class FolderLock {
 public:
  explicit FolderLock(const std::string& path) : fd_(::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666)) {
    while (fd_ >= 0 && ::flock(fd_, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock() {
    if (fd_ >= 0) ::close(fd_);
  }

 private:
  int fd_ = -1;  // -1: a file system without locks, where each writes a folder of its own and the first to be done gives it its name
};

// Settings of sources, and there are none.
Diagnostics idle_settings(const Spec& spec, bool is_synthetic) {
  Diagnostics said;
  for (const char* path : kSourceSettings)
    if (spec.find(path) != nullptr && !(is_synthetic && path == std::string_view("data.cache")))
      said.push_back(error(code::kConflict, spec.at(path), fmt::format("{} is given without data.sources, and has no effect", path),
                           "leave it out, or name the sources: --sources chats.jsonl"));
  const std::string tokenizer = spec.text("data.tokenizer").value_or("bytes");
  if (!same_name(tokenizer, "bytes") && !same_name(tokenizer, "byte") && !same_name(tokenizer, "byte_level"))
    said.push_back(
        error(code::kConflict, spec.at("data.tokenizer"),
              fmt::format("a tokenizer is named ('{}') and no data.sources: text in data.paths is read as bytes", tokenizer),
              "--sources FILE in place of --data FILE, or leave the tokenizer out"));
  return said;
}

Result<PrepareInputs> inputs_with_tokenizer(const Spec& spec) {
  Result<PrepareInputs> inputs = inputs_of_run(spec);
  if (!inputs.ok()) return inputs.diagnostics;
  if (inputs->tokenizer.empty()) inputs->tokenizer = folder_of_model(spec);
  if (inputs->tokenizer.empty())
    return error(code::kMissingKey, spec.at("data.sources"), "sources are made into token ids, and no tokenizer is named",
                 "--tokenizer MODEL-FOLDER, or give the model as its folder");
  return inputs;
}

// A set of token ids that a run needs: found by what it is made of, or made.
struct WantedSet {
  std::string made_of;
  Location at;                                          // of the setting that asks for it
  std::function<Diagnostics(const std::string&)> make;  // in a folder; at once also where somebody else was faster
};

// Errors: what prepare() refuses.
Diagnostics make_set(const Arguments& arguments, PrepareInputs inputs, int64_t held_out, const Location& at,
                     const std::string& folder) {
  const Result<ReadyInputs> ready = open_inputs(std::move(inputs));
  if (!ready.ok()) return ready.diagnostics;
  PrepareRequest request = request_of(*ready);
  request.held_out_every = held_out;
  request.output = folder;
  const bool shows = ::isatty(STDERR_FILENO) != 0 && !arguments.has("quiet");
  if (shows) request.shows_progress = [](int64_t rows) { fmt::print(stderr, "\rmaking token ids: {} rows", format_count(rows)); };
  const Result<Prepared> prepared = prepare(request);
  if (shows) fmt::print(stderr, "\r\033[K");
  Diagnostics said = prepared.ok() ? prepared->notes : prepared.diagnostics;
  for (Diagnostic& d : said)
    if (d.location.file.empty()) d.location = at;
  if (prepared.ok())
    said.push_back(
        note(code::kData, at,
             fmt::format("{} samples with {} tokens, {} of them trained, kept in {}", format_count(prepared->set.training.samples),
                         format_count(prepared->set.training.tokens), format_count(prepared->set.training.trained_tokens), folder)));
  return said;
}

Result<WantedSet> set_of_sources(const Arguments& arguments, const Spec& spec) {
  Result<PrepareInputs> inputs = inputs_with_tokenizer(spec);
  if (!inputs.ok()) return inputs.diagnostics;
  const Location at = spec.at("data.sources");
  const int64_t held_out = held_out_every(spec);
  std::string made_of = ingredients(*inputs, held_out);
  return WantedSet{std::move(made_of), at, [&arguments, inputs = std::move(*inputs), held_out, at](const std::string& folder) {
                     return make_set(arguments, inputs, held_out, at, folder);
                   }};
}

// The model's vocabulary and the run's sequences, or what they are where only the model is named.
Result<SyntheticSet> synthetic_of(const Spec& spec, const Presets& presets) {
  SyntheticSet set = {*spec.integer("data.synthetic"), spec.integer("train.sequence_length").value_or(0),
                      spec.integer("model.vocabulary").value_or(0), held_out_every(spec)};
  if (spec.model.has_value())
    if (const Value* own = spec.model->find("vocabulary")) set.vocabulary_size = std::atoll(own->text.c_str());
  if (set.vocabulary_size > 0 && set.sequence_length > 0) return set;
  const std::string folder = folder_of_model(spec);
  const Result<Geometry> model =
      named_model(presets, folder.empty() ? spec.text("model").value_or("") : folder, spec.at("data.synthetic"));
  if (!model.ok()) return model.diagnostics;
  if (set.vocabulary_size <= 0) set.vocabulary_size = model->vocabulary;
  if (set.sequence_length <= 0) set.sequence_length = assumed_sequence_length(*model);
  return set;
}

Result<WantedSet> synthetic_set(const Spec& spec, const Presets& presets) {
  const Result<SyntheticSet> set = synthetic_of(spec, presets);
  if (!set.ok()) return set.diagnostics;
  return WantedSet{fmt::format("random {} of {} below {} held out {}", set->samples, set->sequence_length, set->vocabulary_size,
                               set->held_out_every),
                   spec.at("data.synthetic"), [set = *set](const std::string& folder) {
                     const Result<SetDescription> written = write_synthetic_set(set, folder);
                     return written.ok() ? Diagnostics{} : written.diagnostics;
                   }};
}

// The folder of the set, which is made where it is not there.
Result<std::string> folder_of_set(const Spec& spec, const WantedSet& wanted) {
  const Result<fs::path> sets = sets_folder(spec);
  if (!sets.ok()) return sets.diagnostics;
  const std::string folder = (*sets / sha256(wanted.made_of).substr(0, 16)).string();
  std::error_code failure;
  fs::create_directories(*sets, failure);
  if (failure)
    return error(code::kUnwritableFile, wanted.at, fmt::format("cannot make the folder '{}': {}", sets->string(), failure.message()),
                 "--data-cache FOLDER");
  const FolderLock lock(folder + ".lock");
  Diagnostics said;
  if (!is_prepared_set(folder)) said = wanted.make(folder);
  if (has_error(said) && !is_prepared_set(folder)) return said;  // else another machine was faster
  if (has_error(said)) said.clear();
  return {folder, std::move(said)};
}

}  // namespace

Result<Spec> with_prepared_sources(const Arguments& arguments, const Presets& presets, const Spec& spec) {
  const bool is_synthetic = spec.find("data.synthetic") != nullptr, has_sources = spec.find("data.sources") != nullptr;
  if (!has_sources)
    if (Diagnostics idle = idle_settings(spec, is_synthetic); !idle.empty()) return idle;
  if (!has_sources && !is_synthetic) return spec;
  const std::string asked = is_synthetic ? "data.synthetic" : "data.sources";
  Spec out = spec;
  out.settings.erase(asked);
  out.settings.erase("data.tokenizer");
  for (const char* path : kSourceSettings) out.settings.erase(path);
  const std::string trainer = spec.text("trainer.name").value_or(std::string(kNative));
  if (trainer != kNative)
    return {std::move(out),
            {warning(code::kKeyNotRead, spec.at(asked),
                     fmt::format("{} {} not read: {} reads its own data", asked, is_synthetic ? "is" : "are", trainer))}};
  for (const char* other : {"data.sources", "data.paths"})
    if (other != asked && spec.find(other) != nullptr)
      return error(code::kConflict, spec.at(asked), fmt::format("{} and {} are given, expected one of them", asked, other),
                   is_synthetic ? "random token ids are in place of data"
                                : "sources are made into token ids first, paths are read as they are");
  const Result<WantedSet> wanted = is_synthetic ? synthetic_set(spec, presets) : set_of_sources(arguments, spec);
  if (!wanted.ok()) return wanted.diagnostics;
  Result<std::string> folder = folder_of_set(spec, *wanted);
  if (!folder.ok()) return folder.diagnostics;
  out.settings["data.paths"] = {std::vector<std::string>{*folder}, *folder, {wanted->at.file, 0, 0}};
  return {std::move(out), std::move(folder.diagnostics)};
}

}  // namespace distsetup
