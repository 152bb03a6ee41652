// See corpus.h. Files are read whole and digested from the same bytes that are trained on, so a file that changes later changes
// nothing.
#include "runtime/data/corpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/check.h"
#include "base/diagnostic_codes.h"
#include "base/digest.h"
#include "base/file.h"

namespace distsetup {
namespace {

namespace fs = std::filesystem;

const char* const kReplan = "plan again with the files as they are now: distsetup plan … --output plan.json";

std::vector<Window> windows_of(const std::string& text, int32_t document, int64_t sequence_length) {
  std::vector<Window> windows;
  const int64_t num_targets = static_cast<int64_t>(text.size()) - 1;  // the first byte is nobody's target
  for (int64_t begin = 0; begin < num_targets; begin += sequence_length) {
    windows.push_back({document, begin, static_cast<int32_t>(std::min(sequence_length, num_targets - begin))});
  }
  return windows;
}

std::string digest_of(const Plan& plan) {
  Sha256 digest;
  digest.update(fmt::format("{}\n{}\n", plan.data.tokenizer, plan.train.sequence_length));
  for (const DataFile& file : plan.data.files) {
    if (!file.held_out) digest.update(fmt::format("{} {}\n", file.sha256, file.bytes));
  }
  return digest.hex();
}

Diagnostics read_documents(const Plan& plan, const fs::path& root, Corpus& corpus) {
  Diagnostics found;
  for (const DataFile& file : plan.data.files) {
    const std::string path = (root / file.path).string();
    Result<std::string> text = read_file(path);
    if (!text.ok()) {
      found.push_back(error(code::kData, {path}, text.diagnostics.front().message, kReplan));
      continue;
    }
    if (static_cast<int64_t>(text->size()) != file.bytes) {
      found.push_back(error(code::kData, {path},
                            fmt::format("'{}' has {} bytes, expected {} as planned", path, text->size(), file.bytes), kReplan));
    } else if (const std::string digest = sha256(*text); digest != file.sha256) {
      found.push_back(error(code::kData, {path},
                            fmt::format("'{}' has the digest {:.12}…, expected {:.12}… as planned", path, digest, file.sha256),
                            kReplan));
    }
    corpus.documents.push_back(std::move(*text));
  }
  return found;
}

}  // namespace

Result<Corpus> read_corpus(const Plan& plan, const std::string& plan_directory) {
  if (plan.data.tokenizer != "bytes") {
    return error(code::kUnsupportedFeature, {}, fmt::format("tokenizer '{}' is not supported, expected 'bytes'", plan.data.tokenizer));
  }
  if (plan.data.files.empty()) {
    return error(code::kData, {}, "the plan names no data files: it can be previewed and emitted, not trained",
                 "plan again with --data PATH");
  }
  if (plan.model.vocabulary < kByteVocabulary) {
    return error(
        code::kData, {},
        fmt::format("the model's vocabulary is {}, tokenizer 'bytes' needs at least {}", plan.model.vocabulary, kByteVocabulary));
  }
  CHECK(plan.train.sequence_length > 0, "{}", plan.train.sequence_length);
  Corpus corpus;
  corpus.sequence_length = plan.train.sequence_length;
  Diagnostics found = read_documents(plan, fs::path(plan_directory) / plan.data.root, corpus);
  if (has_error(found)) return found;
  for (size_t i = 0; i < plan.data.files.size(); ++i) {
    const bool held_out = plan.data.files[i].held_out;
    for (const Window& window : windows_of(corpus.documents[i], static_cast<int32_t>(i), corpus.sequence_length)) {
      (held_out ? corpus.held_out : corpus.training).push_back(window);
      (held_out ? corpus.held_out_tokens : corpus.training_tokens) += window.valid_tokens;
    }
  }
  if (corpus.training.empty()) {
    return error(
        code::kData, {},
        fmt::format("the plan's {} data files hold nothing to train on, expected a file of two bytes or more that is not held out",
                    plan.data.files.size()));
  }
  corpus.digest = digest_of(plan);
  return corpus;
}

void fill_sequence(const Corpus& corpus, const Window& window, std::span<int64_t> ids, std::span<int64_t> targets) {
  CHECK(static_cast<int64_t>(ids.size()) == corpus.sequence_length && targets.size() == ids.size(), "{} {}", ids.size(),
        targets.size());
  std::fill(ids.begin(), ids.end(), kPaddingToken);
  std::fill(targets.begin(), targets.end(), kIgnoredTarget);
  if (window.valid_tokens == 0) return;
  const std::string& text = corpus.documents[static_cast<size_t>(window.document)];
  for (int32_t t = 0; t < window.valid_tokens; ++t) {
    const size_t at = static_cast<size_t>(window.begin) + static_cast<size_t>(t);
    ids[static_cast<size_t>(t)] = static_cast<unsigned char>(text[at]);
    targets[static_cast<size_t>(t)] = static_cast<unsigned char>(text[at + 1]);
  }
}

}  // namespace distsetup
