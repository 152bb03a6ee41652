#include "cli/deliver/job_files.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/diagnostic_codes.h"
#include "cli/deliver/targets.h"
#include "cli/settings/job_flags.h"
#include "cli/settings/run_source.h"
#include "codegen/shell/quote.h"
#include "codegen/tables/coverage.h"
#include "codegen/tables/target.h"
#include "planner/report/uncertainty.h"
#include "planner/report/words.h"

namespace distsetup {
namespace {

// What a file that is started at `output` calls itself, and the folder of all of them.
OutputPath place_of(const JobRequest& request, const StartWords& start) {
  if (request.names_file) return output_path(request.output, start_file(start));
  return {request.output.empty() ? "." : request.output, ""};
}

// Which of the user's scripts is started with what: completes the command line, for targets that start one.
std::string settle_script(Arguments& arguments, const Session& session, const JobRequest& request, Diagnostics& diagnostics) {
  std::string use = request.use;
  const bool has_script = starts_program(session.templates, request.target) && name_script(arguments, session.templates, diagnostics);
  if (!has_script && !use.empty()) {
    diagnostics.push_back(bundled_instead(use));
    use = "";
  }
  if (!use.empty()) choose_engine(arguments, session, use);
  if (use == "deepspeed") append(diagnostics, check_script(arguments));
  return use;
}

Result<JobOptions> settings_of_job(const Arguments& arguments, const Session& session, const JobRequest& request, const Plan* plan) {
  const Spec* machines = request.machines;
  const std::string site = plan != nullptr ? plan->launch.site : machines->text("launch.site").value_or("");
  const int64_t limit_s = plan != nullptr ? plan->launch.time_limit_s : machines->integer("launch.time_limit").value_or(0);
  Result<JobOptions> job = job_options(arguments, session, site_path(arguments, site));
  if (!job.ok()) return job;
  job->time_limit = time_limit(arguments, limit_s);
  if (plan == nullptr) {
    if (const auto nodes = machines->integer("hardware.nodes")) job->nodes = static_cast<int>(*nodes);
    if (const auto gpus = machines->integer("hardware.gpus_per_node")) job->gpus_per_node = static_cast<int>(*gpus);
  }
  return job;
}

// What acts with other targets or plans only.
Diagnostics idle_flags(const Arguments& arguments, const TemplateSet& templates, const Targets& targets, const Plan* plan) {
  Diagnostics idle = refuse_idle_job_flags(arguments, templates, targets.target, targets.via);
  if (targets.target != "fsdp") append(idle, refuse_idle(arguments, {"fsdp-version"}, "with --target fsdp"));
  const bool has_nvme =
      plan != nullptr && (plan->offload.optimizer == OffloadPlace::kNvme || plan->offload.parameters == OffloadPlace::kNvme);
  if (!has_nvme || is_native(*plan))
    append(idle,
           refuse_idle(arguments, {"nvme-path"},
                       has_nvme ? "with other trainers' plans: distsetup-train takes the folder that TMPDIR names, or --offload-folder"
                                : "with a plan that offloads to NVMe"));
  return idle;
}

// What was planned here, in a line.
std::string machines_text(const JobFiles& files, const std::string& preview, bool is_planned_here) {
  if (files.plan) {
    std::string text = machines_line(*files.plan) + (is_planned_here ? headline(*files.plan) + "\n" : "");
    if (!preview.empty()) {
      text += fmt::format("differs from the preview: distsetup plan shows {}, and this plan with --launch-target {}\n", preview,
                          files.plan->launch.target);
    }
    return text;
  }
  return machines_line(files.job.nodes.value_or(1), files.job.gpus_per_node.value_or(8),
                       files.job.settings.is_on("cpu_only") ? "CPU rank" : "GPU");
}

std::string next_command(const StartWords& start, const OutputPath& at) {
  if (!start.empty()) return start_command(start, at.directory, at.file);
  const std::string folder = at.directory == "." ? "" : at.directory + (at.directory.back() == '/' ? "" : "/");
  return join_command({"distsetup", "plan", "--plan", folder + "plan.json"});
}

// An error ends it, with everything that was said before.
struct JobMaker {
  Arguments arguments;
  const Session& session;
  const JobRequest& request;
  EmitOptions options;
  JobFiles files;
  Diagnostics diagnostics;
  std::string preview = {};  // PlanSource::preview
  SaidByFiles beside = {};   // PlanSource::beside

  bool read_plan() {
    const std::string use = settle_script(arguments, session, request, diagnostics);
    Result<PlanSource> source = read_or_make_plan(arguments, session, use.empty() ? request.planned_for : use);
    append(diagnostics, said_of(source));
    if (!source.ok() || has_error(diagnostics)) return false;
    files.plan = std::move(source->plan);
    preview = std::move(source->preview);
    beside = std::move(source->beside);
    options.saves = beside.saves;
    options.keeps_all = beside.keeps_all;
    options.job.use = use;
    return true;
  }

  bool settle_job(const Targets& targets) {
    const Plan* plan = files.plan ? &*files.plan : nullptr;
    Result<JobOptions> job = settings_of_job(arguments, session, request, plan);
    append(diagnostics, job.diagnostics);
    if (!job.ok()) return false;
    job->use = options.job.use;
    // A script of one's own is started as its plan says, unless a flag did.
    if (targets.description.use_of_plan && plan != nullptr && job->use.empty() && !job->program.empty()) job->use = engine_of(*plan);
    if (job->use == "deepspeed" && !job->settings.has("shape")) job->settings.set("shape", "torchrun");
    options.job = std::move(*job);
    if (Diagnostics idle = idle_flags(arguments, session.templates, targets, plan); !idle.empty()) {
      diagnostics = std::move(idle);  // alone: what was said of the plan is of no use then
      return false;
    }
    if (plan != nullptr && targets.via.empty() && starts_program(session.templates, targets.target))
      append(diagnostics, needs_program(arguments, session.templates, targets.target, *plan));
    return !has_error(diagnostics);
  }

  // What the command line says, over what the plan holds where it was made for the same target.
  LaunchPlan wanted() const {
    LaunchPlan launch = files.plan ? files.plan->launch : LaunchPlan();
    const bool is_planned_so =
        files.plan && options.job.use.empty() && request.target == request.planned_for && !arguments.has("plan");
    if (!request.target.empty() && request.target != launch.target && !is_planned_so) {
      launch.target = request.target;
      launch.via = "";
    }
    if (const std::string given = run_flag(arguments, "launch.via"); !given.empty()) launch.via = given;
    return launch;
  }

  // What the plan that is written says of its place, and of a run that is started again by itself.
  void prepare_plan(const Targets& targets, const OutputPath& at) {
    Plan& plan = *files.plan;
    move_inputs(plan, ".", at.directory);
    if (!targets.via.empty()) plan.launch.target = targets.target;
    plan.launch.via = targets.via;
    const bool is_own = plan.strategy.trainer == kUnknownProgram;  // it saves when it likes
    const bool is_trainer = !is_own && (!is_native(plan) || arguments.passed_on.empty());
    const bool again = starts_again(session.templates, targets, options.job.settings.is_on("requeue"));
    if (!again || !is_trainer || plan.checkpoint.every_steps > 0) return;
    plan.checkpoint.every_steps = steps_between_checkpoints(plan);
    diagnostics.push_back(
        note(code::kNoForm, command_line(),
             fmt::format("a run that is started again goes on from its last checkpoint: one every {} steps is written",
                         plan.checkpoint.every_steps),
             "--checkpoint-every N says how often"));
  }

  // Files of a trainer whose method is not the plan's: another training would start.
  bool is_of_other_method(const Targets& targets) {
    const bool is_own_script = starts_program(session.templates, targets.target) && !arguments.passed_on.empty();
    if (beside.other_method.empty() || !files.plan || is_own_script) return false;
    const Result<std::vector<FieldCoverage>> coverage = target_coverage(session.templates, targets.target);
    if (!coverage.ok()) return false;
    const bool says_method = std::any_of(coverage->begin(), coverage->end(), [](const FieldCoverage& one) {
      return one.field == "train.method" && one.how == Coverage::kEmitted;
    });
    if (!says_method) return false;
    const std::string& method = files.plan->train.method;
    diagnostics.push_back(error(code::kNoForm, beside.other_method_at,
                                fmt::format("{}, and the files of target '{}' would start a training of method {}",
                                            beside.other_method, targets.target, method),
                                "keep the command that starts it, or say which training these files are for: --method sft"));
    return true;
  }

  bool make() {
    if (request.machines == nullptr && !read_plan()) return false;
    const Result<Targets> targets = settle_targets(arguments, session.templates, wanted(), files.plan ? &*files.plan : nullptr);
    append(diagnostics, targets.diagnostics);
    if (!targets.ok() || is_of_other_method(*targets) || !settle_job(*targets)) return false;
    const OutputPath at = place_of(request, targets->start);
    if (files.plan) prepare_plan(*targets, at);
    options.via = targets->via;
    Result<Artifacts> artifacts = emit(files.plan ? &*files.plan : nullptr, targets->target, options);
    append(diagnostics, artifacts.diagnostics);
    if (!artifacts.ok()) return false;
    files.delivery.files = std::move(*artifacts);
    files.delivery.output = request.output;
    if (request.names_file) files.delivery.named_file = start_file(targets->start);
    files.delivery.next = next_command(targets->start, at);
    files.job = options.job;
    if (files.plan && files.plan->verdict == Verdict::kDoesNotFit) {
      diagnostics.push_back(warning(code::kNothingFits, {}, "the files are written, and the plan in them does not fit"));
      files.delivery.code = ExitCode::kNothingFits;
    }
    return true;
  }
};

}  // namespace

Result<JobFiles> job_files(const Arguments& arguments, const Session& session, const Terminal& terminal, const JobRequest& request) {
  JobMaker maker{arguments, session, request, {}, {}, {}};
  const Result<int64_t> version = int_flag(arguments, "fsdp-version", maker.options.fsdp_version, 1, 2);
  append(maker.diagnostics, version.diagnostics);
  if (has_error(maker.diagnostics)) return maker.diagnostics;
  maker.options.templates = session.templates;
  maker.options.fsdp_version = static_cast<int>(*version);
  maker.options.nvme_path = arguments.text("nvme-path");
  maker.options.command = emitted_command(arguments);
  if (!maker.make()) return maker.diagnostics;
  mention(terminal, machines_text(maker.files, maker.preview, !arguments.has("plan")));
  maker.files.delivery.diagnostics = std::move(maker.diagnostics);
  return std::move(maker.files);
}

}  // namespace distsetup
