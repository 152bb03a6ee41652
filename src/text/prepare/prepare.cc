#include "text/prepare/prepare.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "base/check.h"
#include "base/diagnostic_codes.h"
#include "base/digest.h"
#include "base/quantity.h"
#include "base/splitmix.h"
#include "data/set_writer.h"
#include "text/prepare/row_samples.h"
#include "text/prepare/tokenizing_threads.h"

namespace distsetup {
namespace {

bool is_held_out(const std::vector<uint32_t>& ids, int64_t every) {
  if (every <= 0) return false;
  uint64_t sum = 0;
  for (const uint32_t id : ids) sum = splitmix(sum + id + kSplitMixStep);
  return sum % static_cast<uint64_t>(every) == 0;
}

Diagnostics mixed(const Location& at, bool is_pair, const Location& first) {
  return {error(code::kData, at,
                is_pair ? "this row is a preference pair, and those before it are none"
                        : "this row is no preference pair, and those before it are",
                "a set holds one or the other: prepare them apart"),
          note(code::kData, first, "the first row that was read")};
}

Diagnostics notes_of(const RowCounts& counts) {
  Diagnostics notes;
  for (const auto& [reason, count] : counts.dropped.by_reason)
    notes.push_back(
        warning(code::kData, counts.dropped.first.at(reason),
                fmt::format("{} of {} rows dropped, this one first: {}", format_count(count), format_count(counts.rows), reason),
                reason.starts_with("it has none of") ? "--fields prompt=KEY,completion=KEY, if they have other names" : ""));
  return notes;
}

// About as much as the row's text takes.
size_t size_of(const SourceRow& row) {
  size_t bytes = row.text.size() + row.prompt.size() + row.completion.size() + row.rejected.size() + row.ids.size() * sizeof(uint32_t);
  std::vector<const nlohmann::ordered_json*> open = {&row.chat};
  while (!open.empty()) {
    const nlohmann::ordered_json& json = *open.back();
    open.pop_back();
    if (json.is_string()) bytes += json.get_ref<const std::string&>().size();
    if (json.is_structured())
      for (const nlohmann::ordered_json& part : json) open.push_back(&part);
  }
  return bytes;
}

// Of the rows of all sources the samples, in their order.
class Preparation {
 public:
  Preparation(const PrepareRequest& request, SetWriter& writer) : request_(request), writer_(writer), threads_(request) {}

  // Of one file.
  Result<RowCounts> take(const std::string& path, const PrepareSource& source) {
    const RowOptions& options = source.rows;
    is_validation_ = source.is_validation;
    dropped_ = {};
    Result<RowCounts> counts = read_rows(path, options, [this](SourceRow row) { return take_row(std::move(row)); });
    Diagnostics said = tokenize();  // also where reading stopped: an error of an earlier row comes first
    if (has_error(said)) return said;
    if (!counts.ok()) return counts.diagnostics;
    for (auto& [reason, at] : dropped_) counts->dropped.add(reason, at);
    ++file_;
    return counts;
  }
  bool holds_pairs() const { return holds_pairs_; }
  int64_t num_texts() const { return num_texts_; }  // rows that no template ends

 private:
  struct Dropped {
    std::string reason;
    Location at;
  };

  Diagnostics take_row(SourceRow row) {
    if (++num_rows_ % 1000 == 0 && request_.shows_progress) request_.shows_progress(num_rows_);
    if (!first_) first_ = row.at, holds_pairs_ = is_pair(row);
    if (is_pair(row) != holds_pairs_) {
      Diagnostics said = tokenize();
      return has_error(said) ? said : mixed(row.at, is_pair(row), *first_);
    }
    using Kind = SourceRow::Kind;
    num_texts_ += row.kind == Kind::kText || row.kind == Kind::kPromptCompletion || row.kind == Kind::kTextPair;
    bytes_ += size_of(row);
    rows_.push_back(std::move(row));
    return rows_.size() < kMostRows * threads_.size() && bytes_ < kMostBytes ? Diagnostics{} : tokenize();
  }

  // The rows that wait.
  Diagnostics tokenize() {
    const std::vector<SourceRow> rows = std::exchange(rows_, {});
    bytes_ = 0;
    std::vector<Result<RowSamples>> made = threads_.samples_of(rows);
    for (size_t i = 0; i < rows.size(); ++i) {
      if (!made[i].ok()) return made[i].diagnostics;
      if (!made[i]->reason.empty()) dropped_.push_back({std::move(made[i]->reason), rows[i].at});
      Diagnostics said = add(made[i]->together);
      if (has_error(said)) return said;
    }
    return {};
  }

  // Samples that belong together are held out together.
  Diagnostics add(std::vector<NewSample>& together) {
    const bool held_out = is_validation_ || (!together.empty() && is_held_out(together.front().ids, request_.held_out_every));
    for (NewSample& sample : together) {
      sample.source = file_;
      Diagnostics said = writer_.add(sample, held_out ? SetSplit::kHeldOut : SetSplit::kTraining);
      if (has_error(said)) return said;
    }
    return {};
  }

  static constexpr size_t kMostRows = 64, kMostBytes = 8 << 20;  // that wait: rows of each thread; of all of them
  const PrepareRequest& request_;
  SetWriter& writer_;
  TokenizingThreads threads_;
  std::vector<SourceRow> rows_;
  size_t bytes_ = 0;
  std::vector<Dropped> dropped_;  // of this file
  uint32_t file_ = 0;
  bool is_validation_ = false;  // this file
  int64_t num_rows_ = 0, num_texts_ = 0;
  std::optional<Location> first_;
  bool holds_pairs_ = false;
};

// A text that ends without a token that says so teaches a model never to stop.
Diagnostics no_end(const PrepareRequest& request, int64_t num_texts) {
  if (request.tokenizer->eos || num_texts == 0) return {};
  return {warning(
      code::kData, {},
      fmt::format("{} texts and completions end without an end token: the tokenizer's folder names none", format_count(num_texts)),
      "\"eos_token\" in tokenizer_config.json, beside the tokenizer")};
}

// Of a mixture each source must bring something.
Diagnostics nothing_of(const PrepareSource& source) {
  return {error(code::kData, {source.path},
                fmt::format("it has a weight of {} in the mixture, and nothing of it can be trained on", source.weight),
                "leave it out, or mend it")};
}

Diagnostics nothing_at_all(const std::vector<SetSource>& sources, int64_t held_out) {
  int64_t all_rows = 0;
  for (const SetSource& source : sources) all_rows += source.rows;
  if (all_rows == 0) return {error(code::kData, {}, "nothing to train on: the sources have no rows")};
  return {error(code::kData, {},
                fmt::format("nothing to train on: of {} rows {} are held out, the others were dropped", format_count(all_rows),
                            format_count(held_out)),
                "--held-out 0, or other sources")};
}

}  // namespace

Result<Prepared> prepare(const PrepareRequest& request) {
  CHECK(request.tokenizer != nullptr, "no tokenizer");
  Result<SetWriter> writer = SetWriter::create(request.output);
  if (!writer.ok()) return writer.diagnostics;
  Prepared out;
  Preparation preparation(request, *writer);
  const auto num_trained = [&writer] { return writer->counts(SetSplit::kTraining).trained_tokens; };
  const auto refused = [&out](const Diagnostics& why) {
    Diagnostics said = out.notes;
    append(said, why);
    return said;
  };
  for (const PrepareSource& source : request.sources) {
    const int64_t before = num_trained();
    for (const std::string& path : source.files) {
      const Result<RowCounts> counts = preparation.take(path, source);
      if (!counts.ok()) return counts.diagnostics;
      append(out.notes, notes_of(*counts));
      out.set.sources.push_back({path, counts->sha256, counts->format, counts->rows, counts->dropped.by_reason});
    }
    if (source.weight <= 0) continue;
    out.set.mixture.push_back({source.path, source.weight, static_cast<int64_t>(source.files.size())});
    if (num_trained() == before) return refused(nothing_of(source));
  }
  if (num_trained() == 0) return refused(nothing_at_all(out.set.sources, writer->counts(SetSplit::kHeldOut).samples));
  append(out.notes, no_end(request, preparation.num_texts()));
  out.set.holds_pairs = preparation.holds_pairs();
  out.set.tokenizer = request.tokenizer->file;
  out.set.tokenizer_digest = request.tokenizer->digest;
  out.set.template_digest = request.chat == nullptr ? "" : sha256(request.chat->chat.source);
  out.set.vocabulary_size = static_cast<int64_t>(request.tokenizer->vocabulary_size());
  Result<SetDescription> set = writer->finish(std::move(out.set));
  if (!set.ok()) return set.diagnostics;
  out.set = std::move(*set);
  return out;
}

}  // namespace distsetup
