// `distsetup plan`: the preview, plan.json, or a schedule as a listing.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "base/diagnostic_codes.h"
#include "base/json.h"
#include "base/quantity.h"
#include "cli/commands/commands.h"
#include "cli/deliver/deliver.h"
#include "cli/deliver/targets.h"
#include "cli/line/output.h"
#include "cli/settings/offers_text.h"
#include "cli/settings/run_source.h"
#include "cli/settings/session.h"
#include "cli/settings/trainer_flags.h"
#include "cli/settings/why_not.h"
#include "codegen/shell/quote.h"
#include "plan/expand.h"
#include "plan/plan_json.h"
#include "plan/schedule.h"
#include "plan/schedule_text.h"
#include "planner/report/preview.h"
#include "planner/report/text_layout.h"
#include "planner/search/goal.h"
#include "planner/search/make_plan.h"

namespace distsetup {
namespace {

int verdict_code(const Plan& plan, bool is_strict) {
  if (plan.verdict == Verdict::kDoesNotFit) return ExitCode::kNothingFits;
  return plan.verdict == Verdict::kTight && is_strict ? ExitCode::kNothingFits : kDone;
}

Result<Phase> phase_flag(const Arguments& arguments) {
  const Result<std::string> text = choice_flag(arguments, "phase", "step", {"load", "step", "evaluate", "save"});
  if (!text.ok()) return text.diagnostics;
  for (const Phase phase : {Phase::kLoad, Phase::kStep, Phase::kEvaluate, Phase::kSave}) {
    if (name(phase) == *text) return phase;
  }
  return Phase::kStep;
}

int print_schedule(const Arguments& arguments, const Terminal& terminal, const Plan& plan, int code) {
  const Result<Phase> phase = phase_flag(arguments);
  const Result<int64_t> rank = int_flag(arguments, "rank", 0, 0, plan.mesh.world() - 1);
  Diagnostics diagnostics = phase.diagnostics;
  append(diagnostics, rank.diagnostics);
  if (has_error(diagnostics)) return fail(arguments, terminal, diagnostics);
  if (!is_native(plan))
    return fail(arguments, terminal,
                {error(code::kUnsupportedFeature, command_line(),
                       fmt::format("a schedule is what the bundled trainer executes, this plan is for {}", plan.strategy.trainer),
                       "leave --trainer away, or --print-schedule")});
  const Schedule schedule = compile_expanded(plan, *phase);
  if (arguments.has("rank")) {
    mention(terminal, fmt::format("rank {} of {}: every rank of this plan runs the same list\n", *rank, plan.mesh.world()));
  }
  return print_result(terminal, format_schedule(schedule), code);
}

// plan.json to --output: "wrote plan.json".
Diagnostics write_plan(const Arguments& arguments, const Terminal& terminal, Plan& plan) {
  if (!arguments.has("output")) return {};
  const OutputPath at = output_path(arguments.text("output"), "plan.json");
  move_inputs(plan, ".", at.directory);
  const Result<std::vector<WrittenFile>> written =
      write_artifacts(arguments, {{at.file, dump_json(to_json(plan)), false}}, at.directory);
  if (!written.ok()) return written.diagnostics;
  mention_written(terminal, *written);
  return {};
}

std::string next_command(const Arguments& arguments, const Plan& plan) {
  std::string flags;
  for (size_t i = 1; i < arguments.words.size(); ++i) flags += " " + join_command({arguments.words[i]});
  if (plan.verdict == Verdict::kDoesNotFit) return "distsetup explain DS0501";
  if (arguments.has("output")) {
    return fmt::format("distsetup emit --target {} --plan {} --output run", usual_target(plan),
                       join_command({arguments.text("output")}));
  }
  return fmt::format("distsetup emit --target {}{} --output run", usual_target(plan), flags);
}

std::string pareto_text(const std::vector<ParetoPoint>& points, const TextStream& stream) {
  std::string text = "  " + pad_left("per GPU", 10) + pad_left("step", 12) + pad_left("tokens/s/GPU", 14) + "  plan\n";
  for (const ParetoPoint& p : points) {
    text += cut("  " + pad_left(format_gib(p.device_bytes), 10) + pad_left(format_duration(p.step_s), 12) +
                    pad_left(format_count(std::llround(p.tokens_per_s_per_gpu)), 14) + "  " + p.summary +
                    (p.verdict == Verdict::kTight ? " (tight)" : ""),
                stream.width_columns) +
            "\n";
  }
  return text;
}

// Every plan that no other beats in memory and speed.
int print_pareto(const Arguments& arguments, const Terminal& terminal, const PlanSource& source) {
  if (!source.problem)
    return fail(arguments, terminal,
                {error(code::kConflict, command_line(), "a plan that is made has no others beside it", "leave --plan away")});
  const std::vector<ParetoPoint> points = pareto_points(*source.problem, source.plan.hardware.nodes);
  if (!arguments.has("json")) return print_result(terminal, pareto_text(points, terminal.out));
  Json rows = Json::array();
  for (const ParetoPoint& p : points) {
    rows.push_back({{"summary", p.summary},
                    {"verdict", name(p.verdict)},
                    {"device_bytes", p.device_bytes},
                    {"step_s", p.step_s},
                    {"tokens_per_s_per_gpu", p.tokens_per_s_per_gpu}});
  }
  return print_result(terminal, dump_json({{"schema_version", 1}, {"rows", rows}}));
}

int print_why_not(const Arguments& arguments, const Terminal& terminal, const Session& session, const PlanSource& source) {
  const Result<std::string> text = explain_why_not(arguments, session, source, arguments.text("why-not"));
  if (!text.ok()) return fail(arguments, terminal, text.diagnostics);
  return print_result(terminal, wrap_lines(*text, terminal.out.width_columns), verdict_code(source.plan, arguments.has("strict")));
}

// The run on every kind of GPU. 4: on none as it is wished.
int print_offers(const Arguments& arguments, const Terminal& terminal, const PlanSource& source) {
  if (!source.problem)
    return fail(arguments, terminal,
                {error(code::kConflict, command_line(), "a plan that is made has no others beside it", "leave --plan away")});
  const Result<OfferWish> wish = offer_wish(arguments);
  if (!wish.ok()) return fail(arguments, terminal, wish.diagnostics);
  const std::vector<GpuOffer> rows = offers(*source.problem, *wish);
  const bool is_met = !rows.empty() && rows.front().nodes > 0 && rows.front().misses.empty();
  const int code = is_met ? static_cast<int>(kDone) : static_cast<int>(ExitCode::kNothingFits);
  if (arguments.has("json")) return print_result(terminal, dump_json(offers_json(rows)), code);
  return print_result(terminal, offers_text(rows, *source.problem, terminal.out.width_columns), code);
}

// How many lines of a text are on the screen.
bool is_longer(const std::string& text, int rows) { return rows > 0 && std::count(text.begin(), text.end(), '\n') > rows; }

// A table, or another plan's reasons, in place of the preview: what is about that one plan says nothing.
Diagnostics idle_flags(const Arguments& arguments) {
  if (asks_for_offers(arguments))
    return refuse_idle(arguments, {"pareto", "why-not", "brief", "strict", "print-schedule", "output"},
                       "without --deadline, --budget and --compare-gpus, which print a table");
  if (arguments.has("pareto"))
    return refuse_idle(arguments, {"why-not", "brief", "strict", "print-schedule", "output", "goal"},
                       "without --pareto, which prints a table");
  if (arguments.has("why-not"))
    return refuse_idle(arguments, {"brief", "json", "print-schedule", "output"}, "without --why-not, which prints the reason");
  if (!arguments.has("print-schedule")) return refuse_idle(arguments, {"rank", "phase"}, "with --print-schedule");
  return refuse_idle(arguments, {"json"}, "without --print-schedule, which has no JSON form");
}

// A site file that nobody can read, and a time limit that ends the run early: the plan is the same, the job is not.
Diagnostics about_the_job(const Session& session, const Plan& plan) {
  Diagnostics said;
  if (!plan.launch.site.empty()) {
    for (Diagnostic d : site_file(session, plan.launch.site).diagnostics) {
      d.severity = Severity::kWarning;
      said.push_back(std::move(d));
    }
  }
  const double run_s = plan.time.step_s * static_cast<double>(plan.train.steps),
               limit_s = static_cast<double>(plan.launch.time_limit_s);
  if (limit_s > 0 && run_s > limit_s) {
    said.push_back(warning(code::kOutOfRange, {},
                           fmt::format("the run takes {}, and the time limit is {}: the job ends before it", format_duration(run_s),
                                       format_duration(limit_s)),
                           "--time-limit says a longer one; with --requeue a job of SLURM goes on from its last checkpoint"));
  }
  return said;
}

int run_plan(const Arguments& given, const Terminal& terminal) {
  const Result<Session> session = open_session(given);
  if (!session.ok()) return fail(given, terminal, session.diagnostics);
  const Result<Arguments> whole = with_trainer_flags(given, *session);
  if (!whole.ok()) return fail(given, terminal, whole.diagnostics);
  const Arguments& arguments = *whole;
  if (const Diagnostics idle = idle_flags(arguments); !idle.empty()) return fail(arguments, terminal, idle);
  Result<PlanSource> source = read_or_make_plan(arguments, *session);
  if (!source.ok()) return fail(arguments, terminal, source.diagnostics);
  Plan& plan = source->plan;
  if (asks_for_offers(arguments)) return print_offers(arguments, terminal, *source);
  mention(terminal, machines_line(plan));
  if (arguments.has("pareto")) return print_pareto(arguments, terminal, *source);
  if (arguments.has("why-not")) return print_why_not(arguments, terminal, *session, *source);
  if (const Diagnostics failed = write_plan(arguments, terminal, plan); !failed.empty()) return fail(arguments, terminal, failed);
  Diagnostics said = said_of(source);
  append(said, about_the_job(*session, plan));
  if (plan.verdict == Verdict::kTight && arguments.has("strict")) {
    said.push_back(error(code::kNothingFits, command_line(), "the plan is tight, and with '--strict' tight does not fit",
                         "leave --strict away, or pin a smaller plan, such as --micro-batch 1"));
  }
  const int code = verdict_code(plan, arguments.has("strict"));
  if (arguments.has("print-schedule") || arguments.has("json")) {
    say_diagnostics(terminal, said);
    if (arguments.has("json")) return print_result(terminal, dump_json(to_json(plan)), code);
    return print_schedule(arguments, terminal, plan, code);
  }

  PreviewOptions options;
  options.width = terminal.out.width_columns;
  options.colour = terminal.out.colour;
  options.utf8 = is_utf8_locale();
  options.brief = arguments.has("brief");
  // Five lines stay five: a terminal's are cut to fit, and what a script reads is whole.
  constexpr int kUncut = 1000;
  if (options.brief && !terminal.out.is_terminal && std::getenv("COLUMNS") == nullptr) options.width = kUncut;
  const bool show_others = !options.brief && source->problem && source->problem->hardware_assumed;
  if (show_others) options.smallest_fits = smallest_that_fits(*source->problem);
  const std::string preview = format_preview(plan, options);
  if (!options.brief) std::erase_if(said, [](const Diagnostic& d) { return d.code == code::kLabelOff; });  // the second line says it
  const int printed = print_result(terminal, preview, code);
  say_diagnostics(terminal, said);
  suggest_next(terminal, next_command(arguments, plan));
  if (is_longer(preview, terminal.out.height_rows)) print_result(terminal, verdict_line(plan, options), code);
  return printed;
}

}  // namespace

Command plan_command() {
  Command command;
  command.summary = "a plan that fits, with its memory and time before anything runs";
  command.positional = "[run.yaml]";
  command.max_positionals = 1;
  command.examples = {"distsetup plan --model 70B", "distsetup plan --model llama3_8b --nodes 1 --gpus 8xA100-80GB --global-batch 256",
                      "distsetup plan run.yaml --output plan.json", "distsetup plan run.yaml --print-schedule | less",
                      "distsetup plan --nodes 1 -- --from-scratch --model-size 7B --batch-size 4"};
  command.notes =
      "Settings come from flags, over DISTSETUP_ variables, over the run file. What is not given is searched, or assumed and "
      "said. Words behind -- are flags of a training script, which distsetup-train takes too. Exit code 4: nothing fits.";
  command.flags = {
      output_flag("write plan.json there; the preview is still printed"),
      force_flag(),
      {"brief", {"short"}, FlagKind::kSwitch, "", "five lines: model, machines, verdict, strategy, length and batch", 0},
      {"why-not", {}, FlagKind::kValue, "SETTINGS", "what another plan would have been, and the rule that decided: \"zero1 tp=8\"", 0},
      {"strict", {}, FlagKind::kSwitch, "", "tight counts as does not fit (exit code 4)", 0},
      {"print-schedule", {"schedule"}, FlagKind::kSwitch, "", "the step as a list of instructions, in place of the preview", 0},
      {"rank", {}, FlagKind::kValue, "R", "with --print-schedule: whose list", 0},
      {"phase",
       {},
       FlagKind::kValue,
       "WHICH",
       "with --print-schedule: load, step, evaluate or save",
       0,
       {"load", "step", "evaluate", "save"}},
      goal_flag(),
      {"pareto", {}, FlagKind::kSwitch, "", "all plans that no other beats in both memory and speed, as a table", 0},
      {"deadline",
       {},
       FlagKind::kValue,
       "TIME",
       "the run on every kind of GPU, done within this time (7d): machines, goodput, cost",
       0},
      {"budget", {}, FlagKind::kValue, "USD", "the same, for no more than this", 0},
      {"compare-gpus", {}, FlagKind::kSwitch, "", "the same, on the fewest machines that fit", 0},
      plan_flag(),
      config_flag(),
      presets_flag()};
  for (Flag& flag : layer_flags()) command.flags.push_back(std::move(flag));
  command.run_keys = kAllRunKeys;
  command.after_dashes = AfterDashes::kTrainerFlags;
  command.run = run_plan;
  return command;
}

}  // namespace distsetup
