// `distsetup data stats`: what a prepared set holds, where it comes from, and what packing makes of it. `data export`: its ids for
// another trainer.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/diagnostic_codes.h"
#include "base/json.h"
#include "base/quantity.h"
#include "cli/commands/commands.h"
#include "cli/commands/data_text.h"
#include "cli/line/output.h"
#include "data/megatron_files.h"
#include "data/pieces.h"
#include "data/set_json.h"

namespace distsetup {
namespace {

constexpr int64_t kUsualLength = 4096;  // as plans assume

// Of one source, in the training split.
struct SourceShare {
  int64_t samples = 0, tokens = 0, trained_tokens = 0;
};
std::vector<SourceShare> shares_of(const PreparedSplit& split, size_t num_sources) {
  std::vector<SourceShare> shares(num_sources);
  for (int64_t i = 0; i < split.size(); ++i) {
    const SampleRecord& s = split.sample(i);
    if (s.source >= num_sources) continue;
    SourceShare& share = shares[s.source];
    ++share.samples;
    share.tokens += s.num_tokens;
    share.trained_tokens += num_trained(split.spans(i), 0, s.num_tokens);
  }
  return shares;
}

struct Stats {
  SetDescription set;
  std::vector<SourceShare> shares;
  int64_t sequence_length = 0;
  PackingGain gain;
  CutSamples cut;
};
Result<Stats> stats_of(const std::string& folder, int64_t sequence_length) {
  Result<SetDescription> set = read_set_description(folder);
  if (!set.ok()) return set.diagnostics;
  const Result<PreparedSplit> split = PreparedSplit::open(folder, SetSplit::kTraining);
  if (!split.ok()) return split.diagnostics;
  const Result<SetLengths> lengths = read_set_lengths(folder);
  if (!lengths.ok()) return lengths.diagnostics;
  std::vector<SourceShare> shares = shares_of(*split, set->sources.size());
  const CutSamples cut = cut_samples(*split, set->holds_pairs, sequence_length);
  return Stats{std::move(*set), std::move(shares), sequence_length, packing_gain(*lengths, sequence_length, 0), cut};
}

double fill(const PackingGain& gain, int64_t rows, int64_t sequence_length) {
  const double positions = static_cast<double>(rows) * static_cast<double>(sequence_length);
  return positions == 0 ? 0 : static_cast<double>(gain.tokens) / positions;
}

double sum_of_weights(const SetDescription& set) {
  double sum = 0;
  for (const SetPart& part : set.mixture) sum += part.weight;
  return sum;
}

std::string sources_text(const Stats& s) {
  if (s.set.sources.size() < 2) return "";
  std::string out;
  size_t source = 0;
  const auto line = [&](size_t i) {
    const SourceShare& share = s.shares[i];
    out += fmt::format("  {:>12} samples {:>14} trained tokens  {}\n", format_count(share.samples), format_count(share.trained_tokens),
                       printable(s.set.sources[i].path));
  };
  for (const SetPart& part : s.set.mixture) {
    out += fmt::format("{:.1f} % of training from {}\n", 100 * part.weight / sum_of_weights(s.set), printable(part.path));
    for (int64_t i = 0; i < part.num_sources; ++i) line(source++);
  }
  for (; source < s.set.sources.size(); ++source) line(source);
  return out;
}

std::string packing_text(const Stats& s) {
  const PackingGain& g = s.gain;
  if (g.rows_padded == 0) return fmt::format("in rows of {} tokens nothing is trained\n", format_count(s.sequence_length));
  return fmt::format("in rows of {} tokens an epoch has {} rows, {:.1f} % full; packed {}, {:.1f} % full\n",
                     format_count(s.sequence_length), format_count(g.rows_padded), 100 * fill(g, g.rows_padded, s.sequence_length),
                     format_count(g.rows_packed), 100 * fill(g, g.rows_packed, s.sequence_length));
}

std::string cut_text(const Stats& s) {
  return s.cut.kept == s.cut.trained || s.cut.kept == 0 ? "" : words_of(s.cut, s.set.holds_pairs) + "\n";
}

Json stats_json(const Stats& s) {
  Json json = set_to_json(s.set);
  for (size_t i = 0; i < s.shares.size(); ++i) {
    Json& source = json["sources"][i];
    source["samples"] = s.shares[i].samples;
    source["tokens"] = s.shares[i].tokens;
    source["trained_tokens"] = s.shares[i].trained_tokens;
  }
  json["packing"] = {{"sequence_length", s.sequence_length},
                     {"tokens", s.gain.tokens},
                     {"trained_tokens", s.cut.kept},
                     {"samples_without_trained", s.cut.without_trained},
                     {"samples_cut", s.cut.cut},
                     {"rows_padded", s.gain.rows_padded},
                     {"rows_packed", s.gain.rows_packed},
                     {"fill_padded", fill(s.gain, s.gain.rows_padded, s.sequence_length)},
                     {"fill_packed", fill(s.gain, s.gain.rows_packed, s.sequence_length)}};
  return json;
}

int run_stats(const Arguments& arguments, const Terminal& terminal) {
  const Result<int64_t> length = int_flag(arguments, "sequence-length", kUsualLength, 1, UINT32_MAX);
  if (!length.ok()) return fail(arguments, terminal, length.diagnostics);
  const Result<Stats> stats = stats_of(arguments.positionals[0], *length);
  if (!stats.ok()) return fail(arguments, terminal, stats.diagnostics);
  if (arguments.has("json")) return print_result(terminal, dump_json(stats_json(*stats)));
  return print_result(terminal, set_text(stats->set) + sources_text(*stats) + packing_text(*stats) + cut_text(*stats));
}

// The first sample of which some token is not trained; -1: none.
int64_t first_masked(const PreparedSplit& split) {
  for (int64_t i = 0; i < split.size(); ++i) {
    const auto spans = split.spans(i);
    if (spans.size() != 1 || spans[0].begin > 1 || spans[0].end != split.sample(i).num_tokens) return i;
  }
  return -1;
}

int run_export(const Arguments& arguments, const Terminal& terminal) {
  if (!arguments.has("output"))
    return fail(arguments, terminal,
                {error(code::kMissingArgument, {"command line"}, "--output is missing", "distsetup data export SET --output PREFIX")});
  const std::string folder = arguments.positionals[0];
  const Result<SetDescription> set = read_set_description(folder);
  if (!set.ok()) return fail(arguments, terminal, set.diagnostics);
  const SetSplit which = arguments.has("held-out") ? SetSplit::kHeldOut : SetSplit::kTraining;
  const Result<PreparedSplit> split = PreparedSplit::open(folder, which);
  if (!split.ok()) return fail(arguments, terminal, split.diagnostics);
  if (const int64_t masked = first_masked(*split); masked >= 0)
    return fail(arguments, terminal,
                {error(code::kUnsupportedFeature, {folder},
                       fmt::format("sample {} has tokens that are not trained, which Megatron-LM's files cannot say", masked),
                       "export sets of texts")});
  const std::string prefix = arguments.text("output");
  const Diagnostics said = write_megatron(prefix, set->vocabulary_size, split->size(), [&](int64_t i) {
    const auto ids = split->tokens(i);
    return std::vector<uint32_t>(ids.begin(), ids.end());
  });
  if (has_error(said)) return fail(arguments, terminal, said);
  return print_result(terminal, fmt::format("{} document{} in {}.bin and {}.idx\n", format_count(split->size()),
                                            split->size() == 1 ? "" : "s", prefix, prefix));
}

}  // namespace

Command data_stats_command() {
  Command command;
  command.summary = "what a prepared data set holds";
  command.positional = "SET";
  command.min_positionals = command.max_positionals = 1;
  command.examples = {"distsetup data stats chats", "distsetup data stats chats --sequence-length 2048"};
  command.flags = {{"sequence-length", {"seq-len", "seq"}, FlagKind::kValue, "N", "rows as padding and packing make them (4096)"}};
  command.run = run_stats;
  return command;
}

Command data_export_command() {
  Command command;
  command.summary = "a prepared data set as Megatron-LM's .bin and .idx";
  command.positional = "SET";
  command.min_positionals = command.max_positionals = 1;
  command.examples = {"distsetup data export books.set --output books"};
  command.notes = "A document for each sample. Sets of which only answers are trained are refused: these files cannot say so.";
  command.flags = {{"output", {"o"}, FlagKind::kValue, "PREFIX", "PREFIX.bin and PREFIX.idx are written; must not exist"},
                   {"held-out", {}, FlagKind::kSwitch, "", "the samples that are held out, not those for training"}};
  command.run = run_export;
  return command;
}

}  // namespace distsetup
