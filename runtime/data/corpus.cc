// See corpus.h. Files are read whole and digested from the same bytes that are trained on, so a file that changes later changes
// nothing.
#include "runtime/data/corpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <numeric>

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
    const auto length = static_cast<int32_t>(std::min(sequence_length, num_targets - begin));
    windows.push_back({document, begin, length, length});
  }
  return windows;
}

// Windows of a sample without a trained target are left out.
void add_windows(const PreparedSplit& split, int64_t first_document, int64_t sequence_length, std::vector<Window>& windows) {
  for (int64_t i = 0; i < split.size(); ++i) {
    const int64_t num_targets = static_cast<int64_t>(split.sample(i).num_tokens) - 1;
    each_piece(split.sample(i).too_long, num_targets, sequence_length, [&](int64_t begin, int64_t length) {
      const int64_t trained = num_trained(split.spans(i), begin, begin + length);
      if (trained > 0)
        windows.push_back(
            {static_cast<int32_t>(first_document + i), begin, static_cast<int32_t>(trained), static_cast<int32_t>(length)});
    });
  }
}

// Pairs of which nothing is trained, since their prompt fills a sequence, are left out.
// Positions that sample `i` takes from its start on.
int32_t length_of(const PreparedSplit& split, int64_t i, int64_t sequence_length) {
  return static_cast<int32_t>(std::clamp<int64_t>(static_cast<int64_t>(split.sample(i).num_tokens) - 1, 0, sequence_length));
}

void add_pairs(const PreparedSplit& split, int64_t first_document, int64_t sequence_length, std::vector<Window>& windows) {
  for (int64_t i = 0; i + 1 < split.size(); i += 2) {
    int64_t trained = 0;
    for (const int64_t half : {i, i + 1}) {
      const int64_t num_targets = static_cast<int64_t>(split.sample(half).num_tokens) - 1;
      trained += num_trained(split.spans(half), 0, std::min(sequence_length, num_targets));
    }
    if (trained > 0)
      windows.push_back(
          {static_cast<int32_t>(first_document + i), 0, static_cast<int32_t>(trained), length_of(split, i, sequence_length)});
  }
}

std::string digest_of(const Plan& plan) {
  Sha256 digest;
  digest.update(fmt::format("{}\n{}\n", plan.data.tokenizer, plan.train.sequence_length));
  if (plan.data.packing) digest.update("packed\n");
  if (!plan.data.shuffle) digest.update("as stored\n");
  for (const DataFile& file : plan.data.files) {
    if (!file.held_out) digest.update(fmt::format("{} {}\n", file.sha256, file.bytes));
  }
  return digest.hex();
}

// Has the size and the digest that were planned; "": the digest is not looked at.
Diagnostics check_file(const DataFile& file, const std::string& path, int64_t bytes, const std::string& digest) {
  if (bytes != file.bytes)
    return {error(code::kData, {path}, fmt::format("'{}' has {} bytes, expected {} as planned", path, bytes, file.bytes), kReplan)};
  if (!digest.empty() && digest != file.sha256)
    return {error(code::kData, {path},
                  fmt::format("'{}' has the digest {:.12}…, expected {:.12}… as planned", path, digest, file.sha256), kReplan)};
  return {};
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
    const auto bytes = static_cast<int64_t>(text->size());
    append(found, check_file(file, path, bytes, bytes == file.bytes ? sha256(*text) : ""));
    corpus.documents.push_back(std::move(*text));
  }
  return found;
}

// Windows by the parts of the set's mixture.
Diagnostics mix(const SetDescription& set, const std::string& folder, Corpus& corpus) {
  std::vector<uint32_t> sources;
  for (const Window& w : corpus.training) {
    sources.push_back(corpus.prepared[0]->sample(w.document).source);
    if (sources.back() >= set.sources.size())
      return {error(code::kData, {folder}, fmt::format("a sample is of source {}, the set has {}", sources.back(), set.sources.size()),
                    kReplan)};
  }
  corpus.mixture = parts_of(set.mixture, sources);
  for (size_t i = 0; i < corpus.mixture.size(); ++i)
    if (corpus.mixture[i].pieces.empty())
      return {error(code::kData, {folder},
                    fmt::format("'{}' has a weight of {} in the mixture, and nothing of it is trained in sequences of {} tokens",
                                set.mixture[i].path, set.mixture[i].weight, corpus.sequence_length),
                    "longer sequences, or prepare the set without it")};
  return {};
}

Diagnostics open_prepared(const Plan& plan, const fs::path& root, Verify verify, Corpus& corpus) {
  Diagnostics found;
  for (const DataFile& file : plan.data.files) {
    const std::string path = (root / file.path).string();
    std::error_code failure;
    const auto bytes = static_cast<int64_t>(fs::file_size(path, failure));
    const bool is_read = verify == Verify::kDigests || fs::path(path).filename() == kSetDescriptionFile || failure;
    const Result<std::string> digest = is_read ? sha256_of_file(path) : Result<std::string>(std::string());
    append(found, digest.ok() ? check_file(file, path, bytes, *digest) : digest.diagnostics);
  }
  if (has_error(found)) return found;
  const std::string folder = (root / plan.data.files.front().path).parent_path().string();
  for (const SetSplit split : {SetSplit::kTraining, SetSplit::kHeldOut}) {
    Result<PreparedSplit> opened = PreparedSplit::open(folder, split);
    if (!opened.ok()) return opened.diagnostics;
    corpus.prepared[static_cast<size_t>(split)] = std::move(*opened);
  }
  const Result<SetDescription> set = read_set_description(folder);
  if (!set.ok()) return set.diagnostics;
  if (set->holds_pairs != learns_preferences(plan.train))
    return {error(code::kData, {folder},
                  fmt::format("the set holds {}, and the plan's method is {}", set->holds_pairs ? "preference pairs" : "no pairs",
                              plan.train.method),
                  kReplan)};
  for (const std::optional<PreparedSplit>& split : corpus.prepared)
    if (set->holds_pairs && split->size() % 2 != 0)
      return {error(code::kData, {folder}, fmt::format("{} samples are no pairs", split->size()), "prepare it again")};
  if (set->vocabulary_size > plan.model.vocabulary)
    return {error(
        code::kData, {folder},
        fmt::format("the data's tokenizer has {} tokens, the model's vocabulary {}", set->vocabulary_size, plan.model.vocabulary),
        "prepare the data with the model's own tokenizer")};
  const PreparedSplit &training = *corpus.prepared[0], &held_out = *corpus.prepared[1];
  const auto add = corpus.sequences_per_window == 2 ? add_pairs : add_windows;
  add(training, 0, corpus.sequence_length, corpus.training);
  add(held_out, training.size(), corpus.sequence_length, corpus.held_out);
  return set->mixture.empty() ? Diagnostics{} : mix(*set, folder, corpus);
}

void cut_texts(const Plan& plan, Corpus& corpus) {
  for (size_t i = 0; i < plan.data.files.size(); ++i) {
    const bool held_out = plan.data.files[i].held_out;
    for (const Window& window : windows_of(corpus.documents[i], static_cast<int32_t>(i), corpus.sequence_length))
      (held_out ? corpus.held_out : corpus.training).push_back(window);
  }
}

// Why the plan has no data that can be trained on; empty: it does.
Diagnostics refused_data(const Plan& plan) {
  const bool is_prepared = plan.data.tokenizer == kPreparedTokens;
  if (!is_prepared && plan.data.tokenizer != kByteTokens)
    return {
        error(code::kUnsupportedFeature, {},
              fmt::format("tokenizer '{}' is not known, expected '{}' or '{}'", plan.data.tokenizer, kByteTokens, kPreparedTokens))};
  if (plan.data.files.empty())
    return {error(code::kData, {}, "the plan names no data files: it can be previewed and emitted, not trained",
                  "plan again with --data PATH")};
  if (is_prepared) return {};
  if (plan.train.method != "pretrain")
    return {error(code::kData, {},
                  fmt::format("'{}' trains on answers alone, and files of text do not say which tokens those are", plan.train.method),
                  "plan again with a prepared data set: distsetup data prepare")};
  if (plan.model.vocabulary >= kByteVocabulary) return {};
  return {
      error(code::kData, {},
            fmt::format("the model's vocabulary is {}, tokenizer 'bytes' needs at least {}", plan.model.vocabulary, kByteVocabulary))};
}

void fill_bytes(const std::string& text, const Window& window, std::span<int64_t> ids, std::span<int64_t> targets) {
  for (int32_t t = 0; t < window.valid_tokens; ++t) {
    const size_t at = static_cast<size_t>(window.begin) + static_cast<size_t>(t);
    ids[static_cast<size_t>(t)] = static_cast<unsigned char>(text[at]);
    targets[static_cast<size_t>(t)] = static_cast<unsigned char>(text[at + 1]);
  }
}

void fill_sample(const PreparedSplit& split, int64_t sample, int64_t begin, std::span<int64_t> ids, std::span<int64_t> targets) {
  const std::span<const uint32_t> tokens = split.tokens(sample);
  const int64_t end = std::min(static_cast<int64_t>(ids.size()), static_cast<int64_t>(tokens.size()) - 1 - begin);
  for (int64_t t = 0; t < end; ++t) ids[static_cast<size_t>(t)] = tokens[static_cast<size_t>(begin + t)];
  for (const TrainedSpan& span : split.spans(sample)) {  // a token is the target of the position before it
    const int64_t last = std::min<int64_t>(span.end, begin + end + 1);
    for (int64_t target = std::max<int64_t>(span.begin, begin + 1); target < last; ++target)
      targets[static_cast<size_t>(target - 1 - begin)] = tokens[static_cast<size_t>(target)];
  }
}

}  // namespace

Result<Corpus> read_corpus(const Plan& plan, const std::string& plan_directory, Verify verify) {
  Diagnostics found = refused_data(plan);
  if (has_error(found)) return found;
  CHECK(plan.train.sequence_length > 0, "{}", plan.train.sequence_length);
  const bool is_prepared = plan.data.tokenizer == kPreparedTokens;
  Corpus corpus;
  corpus.sequence_length = plan.train.sequence_length;
  corpus.sequences_per_window = sequences_per_sample(plan);
  corpus.packing = plan.data.packing ? Packing::kOn : Packing::kOff;
  corpus.order = plan.data.shuffle ? PieceOrder::kShuffled : PieceOrder::kAsStored;
  const fs::path root = fs::path(plan_directory) / plan.data.root;
  found = is_prepared ? open_prepared(plan, root, verify, corpus) : read_documents(plan, root, corpus);
  if (has_error(found)) return found;
  if (!is_prepared) cut_texts(plan, corpus);
  for (const Window& window : corpus.training) corpus.training_tokens += window.valid_tokens;
  for (const Window& window : corpus.held_out) corpus.held_out_tokens += window.valid_tokens;
  if (corpus.training.empty()) {
    return error(code::kData, {},
                 is_prepared
                     ? std::string("the prepared set holds nothing to train on")
                     : fmt::format("the plan's {} data files hold nothing to train on, expected a file of two bytes or more that is "
                                   "not held out",
                                   plan.data.files.size()));
  }
  corpus.digest = digest_of(plan);
  return corpus;
}

namespace {

std::vector<uint32_t> lengths_of(const std::vector<Window>& windows) {
  std::vector<uint32_t> lengths;
  lengths.reserve(windows.size());
  for (const Window& w : windows) lengths.push_back(static_cast<uint32_t>(w.length));
  return lengths;
}

void fill_window(const Corpus& corpus, const Window& window, std::span<int64_t> ids, std::span<int64_t> targets) {
  if (!corpus.prepared[0]) return fill_bytes(corpus.documents[static_cast<size_t>(window.document)], window, ids, targets);
  const int64_t num_training = corpus.prepared[0]->size();
  const bool held_out = window.document >= num_training;
  fill_sample(*corpus.prepared[held_out ? 1 : 0], window.document - (held_out ? num_training : 0), window.begin, ids, targets);
}

}  // namespace

std::vector<Window> rejected_windows(const Corpus& corpus, const std::vector<Window>& chosen) {
  std::vector<Window> rejected = chosen;
  for (Window& window : rejected) {
    ++window.document;
    const int64_t num_training = corpus.prepared[0]->size();
    const bool held_out = window.document >= num_training;
    window.length =
        length_of(*corpus.prepared[held_out ? 1 : 0], window.document - (held_out ? num_training : 0), corpus.sequence_length);
  }
  return rejected;
}

PackedRows training_rows(const Corpus& corpus, int64_t seed, int64_t epoch) {
  return rows_of_epoch(lengths_of(corpus.training), corpus.mixture, corpus.sequence_length, corpus.packing, seed, epoch, corpus.order);
}

PackedRows held_out_rows(const Corpus& corpus) {
  PackedRows rows;
  std::vector<uint32_t> order(corpus.held_out.size());
  std::iota(order.begin(), order.end(), 0u);
  if (corpus.packing == Packing::kOn) return pack(order, lengths_of(corpus.held_out), corpus.sequence_length, 0, 0);
  for (const uint32_t window : order) rows.pieces.push_back(window), rows.first.push_back(window + 1);
  return rows;
}

void fill_row(const Corpus& corpus, std::span<const Window> windows, const RowSpans& row) {
  const size_t length = static_cast<size_t>(corpus.sequence_length);
  CHECK(row.ids.size() == length && row.targets.size() == length, "{} {}", row.ids.size(), row.targets.size());
  std::fill(row.ids.begin(), row.ids.end(), kPaddingToken);
  std::fill(row.targets.begin(), row.targets.end(), kIgnoredTarget);
  size_t at = 0;
  const auto number = [&](size_t from, size_t count) {
    if (!row.positions.empty()) std::iota(row.positions.begin() + from, row.positions.begin() + from + count, int64_t{0});
  };
  for (const Window& window : windows) {
    const auto size = static_cast<size_t>(window.length);
    CHECK(at + size <= length, "a row of {} positions, of which {} are taken, for {}", length, at, size);
    fill_window(corpus, window, row.ids.subspan(at, size), row.targets.subspan(at, size));
    number(at, size);
    at += size;
  }
  number(at, length - at);
}

void fill_sequence(const Corpus& corpus, const Window& window, std::span<int64_t> ids, std::span<int64_t> targets) {
  fill_row(corpus, {&window, 1}, {ids, targets, {}});
}

}  // namespace distsetup
