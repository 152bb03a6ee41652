// Sources: sinfo (partitions, generic resources, time limits), LOADEDMODULES (Environment Modules and Lmod set it), /proc/net/route
// (the interface of the default route), TMPDIR.
// Leaves out: the account, which nothing here knows reliably; InfiniBand adapters, which NCCL finds by itself.
#include "cli/commands/init_site.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "base/quantity.h"
#include "base/text.h"
#include "base/value_yaml.h"
#include "cli/deliver/deliver.h"
#include "cli/launch/sinfo.h"
#include "cli/line/output.h"
#include "codegen/job/site.h"

namespace distsetup {
namespace {

using SiteValues = std::vector<std::pair<std::string, std::vector<std::string>>>;

// The default partition if it has GPUs, or the first with GPUs, or the only one.
void detect_slurm(SiteValues& values) {
  const Said said = ask_sinfo(10);
  if (!said.started || said.code != 0) return;
  const auto has_gpus = [](const Partition& one) { return one.gres.find("gpu") != std::string::npos; };
  Partition best;
  for (Partition& one : partitions_in(said.text)) {
    const bool is_better = best.name.empty() || (has_gpus(one) && !has_gpus(best));
    if (is_better || (one.is_default && has_gpus(one))) best = std::move(one);
  }
  if (best.name.empty()) return;
  values.push_back({"partition", {best.name}});
  if (parse_duration_s(best.time_limit).ok()) values.push_back({"longest_job", {best.time_limit}});
  values.push_back({"gpus.request", {has_gpus(best) ? "gpus-per-node" : "none"}});
  if (const GresGpus gpus = gpus_in(best.gres); !gpus.type.empty()) values.push_back({"gpus.type", {gpus.type}});
}

void detect_interface(SiteValues& values) {
  std::ifstream routes("/proc/net/route");
  std::string line, name, destination;
  std::getline(routes, line);
  while (routes >> name >> destination) {
    std::getline(routes, line);
    if (destination != "00000000") continue;
    values.push_back({"network.interface", {name}});
    return;
  }
}

void ask(SiteValues& values, const std::string& key, const std::string& what) {
  const auto found = std::find_if(values.begin(), values.end(), [&key](const auto& value) { return value.first == key; });
  const std::string seen = found == values.end() ? "" : found->second.front();
  say(fmt::format("{}{}: ", what, seen.empty() ? " (none)" : " (" + seen + ")"));
  std::string answer;
  if (!std::getline(std::cin, answer) || answer.empty()) return;
  if (found == values.end()) {
    values.push_back({key, {answer}});
  } else {
    found->second = {answer};
  }
}

}  // namespace

SiteValues detect_site() {
  SiteValues values;
  detect_slurm(values);
  if (const char* loaded = std::getenv("LOADEDMODULES"); loaded != nullptr && *loaded != '\0')
    values.push_back({"modules", split(loaded, ':')});
  detect_interface(values);
  if (const char* scratch = std::getenv("TMPDIR"); scratch != nullptr && *scratch != '\0') values.push_back({"scratch", {scratch}});
  return values;
}

int run_init_site(const Arguments& arguments, const Terminal& terminal) {
  SiteValues values = detect_site();
  if (::isatty(0) != 0 && ::isatty(2) != 0 && !arguments.has("no-input")) {
    ask(values, "partition", "partition");
    ask(values, "account", "account");
  }
  const OutputPath at = output_path(arguments.text("output", "site.yaml"), "site.yaml");
  const std::string text = "# Facts of this site, for `distsetup ... --site " + at.file +
                           "` or launch.site in a run file. `distsetup schema site` has all keys.\n" + site_yaml(values);
  // What is written must read back.
  JobOptions options;
  Diagnostics mistakes;
  const Result<Value> value = parse_yaml(text, at.file);
  append(mistakes, value.diagnostics);
  if (value.ok()) append(mistakes, apply_site(options, *value, text, at.file));
  if (has_error(mistakes)) return fail(arguments, terminal, mistakes);
  Delivery delivery;
  delivery.files = {{at.file, text, false}};
  delivery.output = at.directory;
  delivery.next = "distsetup launch --plan plan.json --target slurm --site " + at.file + " --check";
  return deliver(arguments, terminal, std::move(delivery));
}

}  // namespace distsetup
