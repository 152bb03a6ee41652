// See reference.h. Batches are dealt out as those of training are, and run through the same list as an evaluation: at the first step
// the policy's numbers have the same bits, and every reward is 0.
#include "runtime/data/reference.h"

#include <fmt/format.h>

#include <cstring>
#include <filesystem>

#include "base/check.h"
#include "base/clock.h"
#include "base/diagnostic_codes.h"
#include "base/digest.h"
#include "base/file.h"
#include "base/json.h"
#include "base/quantity.h"
#include "base/safetensors.h"
#include "plan/plan_json.h"
#include "plan/reference.h"
#include "runtime/data/sampler.h"
#include "runtime/monitor/failure.h"

namespace distsetup {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kRoundsAtOnce = 16;  // micro-batches of each rank between two sums over ranks
constexpr const char* kDigestKey = "digest";

std::vector<float> logps_of_windows(Engine& engine, Communicator& communicator, const Corpus& corpus, const std::vector<Window>& table,
                                    const Plan& plan) {
  const auto num_windows = static_cast<int64_t>(table.size());
  const int64_t at_once = kRoundsAtOnce * plan.mesh.data_parallel() * plan.micro_batch;
  const Coordinates place = engine.place();
  const bool speaks = place.tp == 0 && place.cp == 0 && place.pp + 1 == plan.mesh.pp;  // others know the same, or nothing
  std::vector<float> logps;
  for (int64_t first = 0; first < num_windows; first += at_once) {
    const int64_t count = std::min(at_once, num_windows - first);
    const Batch batch = batch_in_order(corpus, table, first, count, plan, communicator.rank());
    const std::vector<float> mine = engine.sequence_logps({batch.ids, batch.targets, std::max<int64_t>(batch.num_terms, 1)});
    CHECK(mine.size() == 2 * batch.own.size(), "{} log-probabilities of {} pairs", mine.size(), batch.own.size());
    std::vector<double> all(static_cast<size_t>(2 * count), 0.0);
    for (size_t i = 0; speaks && i < batch.own.size(); ++i) {
      if (batch.own[i] < 0) continue;
      const auto to = static_cast<size_t>(2 * (batch.own[i] - first));
      all[to] = static_cast<double>(mine[2 * i]);
      all[to + 1] = static_cast<double>(mine[2 * i + 1]);
    }
    communicator.control_sum(all.data(), static_cast<int64_t>(all.size()));  // of one number and zeros: exact
    for (const double logp : all) logps.push_back(static_cast<float>(logp));
  }
  return logps;
}

Diagnostic unusable(const std::string& path, std::string why) { return error(code::kData, {path}, std::move(why)); }

}  // namespace

ReferenceLogps settle_reference(const ReferenceTask& task, Engine& engine, Communicator& communicator) {
  if (runs_reference(task.plan.train)) return {};
  if (task.plan.train.preference.reference == "none") return no_reference(task.corpus);
  const std::string path = reference_path(task.checkpoint_directory), digest = reference_digest(task.plan, task.corpus);
  if (task.goes_on) {
    Result<ReferenceLogps> kept = read_reference(path, task.corpus, digest);
    double num_missing = kept.ok() ? 0 : 1;
    communicator.control_sum(&num_missing, 1);
    if (num_missing == 0) return std::move(*kept);
    if (communicator.rank() == 0)
      fmt::print(stderr, "reference: {}; it is found again\n", kept.ok() ? "a rank cannot read it" : kept.diagnostics.front().message);
  }
  const double begin_s = now_s();
  task.load_start();
  ReferenceLogps found = find_reference(engine, communicator, task.corpus, task.plan);
  const bool is_first = communicator.rank() == 0;
  agree(communicator, is_first ? write_reference(path, found, digest) : Diagnostics{}, kExitFailed);
  if (is_first)
    fmt::print("reference: {} pairs through the starting weights, {}\n",
               format_count(static_cast<int64_t>(task.corpus.training.size() + task.corpus.held_out.size())),
               format_duration(now_s() - begin_s));
  return found;
}

ReferenceLogps no_reference(const Corpus& corpus) {
  return {std::vector<float>(2 * corpus.training.size()), std::vector<float>(2 * corpus.held_out.size())};
}

ReferenceLogps find_reference(Engine& engine, Communicator& communicator, const Corpus& corpus, const Plan& plan) {
  return {logps_of_windows(engine, communicator, corpus, corpus.training, plan),
          logps_of_windows(engine, communicator, corpus, corpus.held_out, plan)};
}

std::string reference_digest(const Plan& plan, const Corpus& corpus) {
  Sha256 digest;
  digest.update(fmt::format("{}\n{}\n{}\n", corpus.digest, name(plan.precision.compute), to_json(plan).at("model").dump()));
  for (const DataFile& file : plan.data.files)
    if (file.held_out) digest.update(fmt::format("{} {}\n", file.sha256, file.bytes));
  if (!starts_from_weights(plan)) digest.update(fmt::format("seed {}\n", plan.train.seed));
  for (const WeightsFile& file : plan.weights.files)
    digest.update(fmt::format("{} {} {}\n", file.path, file.bytes, file.header_sha256));
  return digest.hex();
}

std::string reference_path(const std::string& checkpoint_directory) {
  return (fs::path(checkpoint_directory) / "reference.safetensors").string();
}

Diagnostics write_reference(const std::string& path, const ReferenceLogps& logps, const std::string& digest) {
  const std::string partial = path + ".partial";
  const auto rows = [](const std::vector<float>& of) { return std::vector<int64_t>{static_cast<int64_t>(of.size() / 2), 2}; };
  const Result<FileDigest> written = write_safetensors(
      partial, {{"training", rows(logps.training), logps.training.data()}, {"held_out", rows(logps.held_out), logps.held_out.data()}},
      {{kDigestKey, digest}});
  if (!written.ok()) return written.diagnostics;
  std::error_code failure;
  fs::rename(partial, path, failure);
  if (failure) return {error(code::kUnwritableFile, {path}, fmt::format("cannot give the file its name: {}", failure.message()))};
  return {};
}

Result<ReferenceLogps> read_reference(const std::string& path, const Corpus& corpus, const std::string& digest) {
  const Result<std::string> bytes = read_file(path);
  if (!bytes.ok()) return bytes.diagnostics;
  const Result<SafetensorsHeader> header = parse_safetensors(*bytes, static_cast<int64_t>(bytes->size()), path);
  if (!header.ok()) return header.diagnostics;
  const auto found = header->metadata.find(kDigestKey);
  if (found == header->metadata.end() || found->second != digest)
    return unusable(path, "these are log-probabilities of other data, or of other starting weights");
  ReferenceLogps logps = no_reference(corpus);
  for (auto [what, to] : {std::pair<const char*, std::vector<float>*>{"training", &logps.training}, {"held_out", &logps.held_out}}) {
    const auto tensor = header->tensors.find(what);
    const std::vector<int64_t> expected = {static_cast<int64_t>(to->size() / 2), 2};
    if (tensor == header->tensors.end() || tensor->second.dtype != "F32" || tensor->second.shape != expected)
      return unusable(path, fmt::format("no tensor '{}' of {} pairs", what, expected[0]));
    if (!to->empty()) std::memcpy(to->data(), bytes->data() + tensor->second.begin, to->size() * sizeof(float));
  }
  return logps;
}

std::vector<float> logps_of(const std::vector<float>& table, const std::vector<int64_t>& own) {
  std::vector<float> logps;
  if (table.empty()) return logps;  // no pairs
  for (const int64_t window : own)
    for (const int64_t half : {0, 1}) logps.push_back(window < 0 ? 0 : table[static_cast<size_t>(2 * window + half)]);
  return logps;
}

}  // namespace distsetup
