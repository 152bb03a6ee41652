// `distsetup list`: the names that flags take, with what tells them apart.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <functional>

#include "base/diagnostic_codes.h"
#include "base/json.h"
#include "base/names.h"
#include "base/quantity.h"
#include "base/value_yaml.h"
#include "cli/commands/commands.h"
#include "cli/line/output.h"
#include "cli/settings/run_source.h"
#include "codegen/tables/target.h"
#include "model/count.h"
#include "planner/report/text_layout.h"
#include "planner/resolve/trainers.h"

namespace distsetup {
namespace {

// A table: its headings, and per name the cells below them. `keys` are the names of the cells in JSON.
struct Listing {
  std::vector<std::string> headings, keys;
  std::vector<std::vector<std::string>> rows;
};

Listing list_models(const Session& session) {
  Listing out{
      {"model", "parameters", "active", "layers", "hidden", "hub"}, {"name", "parameters", "active", "layers", "hidden", "hub"}, {}};
  for (const std::string& id : preset_ids(session.presets, "models")) {
    const Result<Geometry> g = find_model(session.presets, id);
    if (!g.ok()) continue;
    const ParameterCount count = count_parameters(*g);
    const std::string active = count.active < count.total ? format_short_count(static_cast<double>(count.active)) : "";
    out.rows.push_back({id, format_short_count(static_cast<double>(count.total)), active, std::to_string(g->num_layers),
                        std::to_string(g->hidden), g->hub_id});
  }
  return out;
}

Listing list_gpus(const Session& session) {
  Listing out{{"GPU", "label", "memory", "bf16", "to memory", "to others"},
              {"name", "label", "memory", "bf16_tflops", "memory_gb_per_s", "link"},
              {}};
  for (const std::string& id : preset_ids(session.presets, "gpus")) {
    const Result<GpuChoice> choice = find_gpu(session.presets, id);
    if (!choice.ok()) continue;
    const Gpu& g = choice->gpu;
    out.rows.push_back({id, g.label, format_gib(g.usable_memory_bytes),
                        g.peak_bf16_flops_per_s > 0 ? fmt::format("{:.0f} TFLOP/s", g.peak_bf16_flops_per_s * 1e-12) : "none",
                        fmt::format("{:.0f} GB/s", g.memory_bytes_per_s * 1e-9), g.link.kind});
  }
  return out;
}

Listing list_machines(const Session& session) {
  Listing out{{"machine", "GPUs", "network", "USD per GPU-hour", "label"}, {"name", "gpus", "network", "price", "label"}, {}};
  for (const std::string& id : preset_ids(session.presets, "machines")) {
    const Result<Machine> m = find_machine(session.presets, id);
    if (!m.ok()) continue;
    const double price = m->price_usd_per_hour / static_cast<double>(std::max<int64_t>(m->gpus_per_node, 1));
    out.rows.push_back({id, fmt::format("{} × {}", m->gpus_per_node, m->gpu), fmt::format("{:.0f} Gb/s", m->nic_bytes_per_s * 8e-9),
                        price > 0 ? fmt::format("{:.2f} ({})", price, m->price_date) : "", m->label});
  }
  return out;
}

Listing list_targets(const Session& session) {
  Listing out{{"target", "trainer", "what it is"}, {"name", "trainers", "describes"}, {}};
  for (const std::string& name : target_names(session.templates)) {
    const Result<TargetDescription> target = describe_target(session.templates, name, {});
    if (!target.ok()) continue;
    const Value* describes = target->root.find("describes");
    out.rows.push_back(
        {name, fmt::format("{}", fmt::join(target->search.trainers, ", ")), describes != nullptr ? describes->text : ""});
  }
  return out;
}

Listing list_trainers(const Session& session) {
  Listing out{{"trainer", "label", "splits", "has"}, {"name", "label", "shardings", "features"}, {}};
  for (const std::string& id : trainer_names(session.presets)) {
    const Result<TrainerFacts> facts = find_trainer(session.presets, id);
    if (!facts.ok()) continue;
    std::vector<std::string> shardings, features;
    for (const Sharding sharding : facts->shardings) shardings.emplace_back(name(sharding));
    for (const auto& [feature, since] : facts->features) features.push_back(feature);
    out.rows.push_back(
        {id, facts->label, fmt::format("{}", fmt::join(shardings, ", ")), fmt::format("{}", fmt::join(features, ", "))});
  }
  return out;
}

// What a program's file says of itself: its label, what it is built on, or where it is from.
Listing list_programs(const Session& session) {
  Listing out{{"program", "whose layers they are"}, {"name", "label"}, {}};
  for (const PresetFile& file : session.presets.files) {
    if (file.folder != "programs") continue;
    const Result<Value> root = file.is_embedded ? parse_yaml(file.text, file.path) : read_yaml_file(file.path);
    if (!root.ok()) continue;
    const Value *label = root->find("label"), *base = root->find("base"), *source = root->find("source");
    const std::string text = label != nullptr    ? label->text
                             : base != nullptr   ? fmt::format("a script of one's own, with layers like {}'s", base->text)
                             : source != nullptr ? source->text
                                                 : "";
    out.rows.push_back({file.id, text});
  }
  return out;
}

struct ListKind {
  std::string_view name;
  Listing (*list)(const Session&);
};
constexpr ListKind kKinds[] = {{"models", list_models},   {"gpus", list_gpus},         {"machines", list_machines},
                               {"targets", list_targets}, {"trainers", list_trainers}, {"programs", list_programs}};

std::vector<std::string> kind_names() {
  std::vector<std::string> names;
  for (const ListKind& kind : kKinds) names.emplace_back(kind.name);
  return names;
}

// Lower case without separators: "Llama-3.1" is found in llama3.1_8b.
std::string plain(std::string_view text) {
  std::string out;
  for (const char c : lower(text))
    if (std::string_view("-_. /").find(c) == std::string_view::npos) out += c;
  return out;
}

void keep_with(Listing& listing, const std::string& word) {
  std::erase_if(listing.rows, [&](const std::vector<std::string>& row) {
    return std::none_of(row.begin(), row.end(),
                        [&](const std::string& cell) { return plain(cell).find(plain(word)) != std::string::npos; });
  });
}

// Columns that hold nothing are left out; lines are cut where a terminal's, or COLUMNS', end.
std::string text_of(const Listing& listing, const TextStream& out) {
  std::vector<int> widths;
  for (size_t i = 0; i < listing.headings.size(); ++i) {
    int most = 0;
    for (const auto& row : listing.rows) most = std::max(most, display_width(row[i]));
    widths.push_back(most == 0 ? 0 : std::max(most, display_width(listing.headings[i])));
  }
  const bool is_cut = out.is_terminal || std::getenv("COLUMNS") != nullptr;
  const auto line_of = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (size_t i = 0; i < cells.size(); ++i)
      if (widths[i] > 0) line += (line.empty() ? "" : "  ") + pad_right(cells[i], widths[i]);
    while (!line.empty() && line.back() == ' ') line.pop_back();
    return (is_cut ? cut(line, out.width_columns) : line) + "\n";
  };
  std::string text = line_of(listing.headings);
  for (const auto& row : listing.rows) text += line_of(row);
  return text;
}

Json json_of(std::string_view kind, const Listing& listing) {
  Json rows = Json::array();
  for (const auto& row : listing.rows) {
    Json one = Json::object();
    for (size_t i = 0; i < row.size(); ++i) one[listing.keys[i]] = row[i];
    rows.push_back(std::move(one));
  }
  return {{"schema_version", 1}, {"kind", kind}, {"rows", rows}};
}

int run_list(const Arguments& arguments, const Terminal& terminal) {
  const std::string& wanted = arguments.positionals[0];
  const ListKind* kind = nullptr;
  for (const ListKind& one : kKinds)
    if (same_name(one.name, wanted) || same_name(one.name, wanted + "s")) kind = &one;
  if (kind == nullptr)
    return fail(arguments, terminal,
                {error(code::kUnknownValue, command_line(),
                       fmt::format("nothing is listed as '{}', expected one of {}", wanted, fmt::join(kind_names(), ", ")),
                       suggest(wanted, kind_names()))});
  const Result<Session> session = open_session(arguments);
  if (!session.ok()) return fail(arguments, terminal, session.diagnostics);
  Listing listing = kind->list(*session);
  const std::string word = arguments.positionals.size() > 1 ? arguments.positionals[1] : "";
  if (!word.empty()) keep_with(listing, word);
  if (arguments.has("json")) return print_result(terminal, dump_json(json_of(kind->name, listing)));
  if (listing.rows.empty())
    return fail(arguments, terminal,
                {error(code::kUnknownValue, command_line(), fmt::format("none of the {} has '{}' in its line", kind->name, word),
                       fmt::format("distsetup list {}", kind->name))});
  return print_result(terminal, text_of(listing, terminal.out));
}

}  // namespace

Command list_command() {
  Command command;
  command.summary = "the models, GPUs, machines, targets, trainers or programs that are known";
  command.positional = "models|gpus|machines|targets|trainers|programs [WORD]";
  command.positional_values = kind_names;
  command.min_positionals = 1;
  command.max_positionals = 2;
  command.examples = {"distsetup list models llama", "distsetup list gpus", "distsetup list machines h100"};
  command.notes = "With a word: the lines that have it, in whatever case; '-', '_' and '.' count as nothing.";
  command.flags = {presets_flag(), templates_flag()};
  command.run = run_list;
  return command;
}

}  // namespace distsetup
