#include "service/job_json.h"

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "base/text.h"
#include "service/job_folder.h"
#include "service/job_plan.h"
#include "service/job_queue.h"
#include "service/model_lookup.h"
#include "service/run_curve.h"
#include "service/settings_file.h"

namespace distsetup {
namespace {

constexpr size_t kMostModelsShown = 200;

Json time_json(TimeMs at) { return at == 0 ? Json() : Json(utc_text(at)); }

std::string status_text(JobState state, StatusWords words) {
  if (state == JobState::kQueued && words == StatusWords::kLlamaStack) return std::string(job_state_name(JobState::kScheduled));
  return std::string(job_state_name(state));
}

// Of packed samples the plan that is run knows how many steps they make, and only then.
int64_t steps_of(const JobFolder& folder, const JobFacts& facts) {
  const Json plan = facts.is_packed ? read_json(folder.file("plan.json")) : Json();
  return plan.is_object() ? plan.value(Json::json_pointer("/train/steps"), facts.steps) : facts.steps;
}

Json progress_json(const JobRecord& job, const JobFacts& facts, const RunCurve& curve) {
  if (curve.last_step.is_null()) return nullptr;
  const int64_t step = curve.last_step.value("step", int64_t{0});
  const TimeMs end_ms = job.completed_ms != 0 ? job.completed_ms : wall_clock_ms();
  const auto left = static_cast<double>(std::max<int64_t>(0, facts.steps - step));
  return {{"step", step},
          {"steps", facts.steps},
          {"epoch", facts.steps_per_epoch > 0 ? (step + facts.steps_per_epoch - 1) / facts.steps_per_epoch : 1},
          {"epochs", facts.epochs},
          {"tokens", curve.last_step.value("tokens", int64_t{0})},
          {"elapsed_s", job.started_ms == 0 ? 0.0 : static_cast<double>(end_ms - job.started_ms) / 1000},
          {"remaining_s", is_final(job.state) ? Json(0.0) : Json(left * curve.mean_step_s)}};
}

// The trainer's table, in one form for bytes and seconds.
Json compared_rows(const Json& table) {
  Json rows = Json::array();
  for (const Json& one : table.is_object() ? table.value("comparison", Json::array()) : Json::array()) {
    const bool is_bytes = one.contains("predicted_bytes");
    const std::string unit = is_bytes ? "bytes" : "s";
    rows.push_back({{"what", one.value("what", "")},
                    {"unit", unit},
                    {"predicted", one.value("predicted_" + unit, Json())},
                    {"measured", one.value("measured_" + unit, Json())}});
  }
  return rows;
}

// report.json; of an earlier attempt it is none.
Json current_report(const JobFolder& folder, const RunCurve& curve) {
  Json report = read_json(folder.file("report.json"));
  const int64_t step = curve.last_step.is_object() ? curve.last_step.value("step", int64_t{0}) : 0;
  if (!report.is_object() || report.value("step", int64_t{0}) < step) return nullptr;
  return report;
}

// While it runs, what the first steps of this process were metered to need and the peak so far, both of rank 0; when it has ended, the
// report with the peak of every rank.
Json measured_json(const RunCurve& curve, const Json& report) {
  if (curve.num_steps == 0 && !report.is_object()) return nullptr;
  Json peak = nullptr;
  for (const Json& one : report.is_object() ? report.value("peak_allocated_bytes_by_rank", Json::array()) : Json::array()) {
    if (peak.is_null() || one > peak) peak = one;
  }
  if (peak.is_null() && curve.last_step.is_object()) peak = curve.last_step.value("peak_bytes", Json());
  const Json& table = report.is_object() ? report : curve.memory;
  Json phases = Json::array();
  for (const Json& one : table.is_object() ? table.value("phases", Json::array()) : Json::array())
    phases.push_back({{"phase", one.value("phase", "")}, {"allocated_bytes", one.value("measured_bytes", int64_t{0})}});
  return {{"step_s", curve.mean_step_s},
          {"tokens_per_s", curve.mean_tokens_per_s},
          {"peak_allocated_bytes", peak},
          {"steps", curve.num_steps},
          {"held_bytes", table.is_object() ? table.value("held_bytes", Json()) : Json()},
          {"phases", phases},
          {"rows", compared_rows(table)}};
}

double gb_of(const Json& bytes) { return bytes.is_number() ? bytes.get<double>() / (1 << 30) : 0; }

// The report's, in the provider's words and units.
Json memory_moments(const Json& report, int64_t world_size) {
  Json out = Json::array();
  for (const Json& moment : report.is_object() ? report.value("memory", Json::array()) : Json::array()) {
    Json ranks = Json::array();
    for (const Json& one : moment.value("ranks", Json::array()))
      ranks.push_back({{"rank", one.value("rank", 0)},
                       {"local_rank", one.value("local_rank", 0)},
                       {"world_size", world_size},
                       {"allocated_gb", gb_of(one.value("allocated_bytes", Json()))},
                       {"reserved_gb", gb_of(one.value("reserved_bytes", Json()))},
                       {"max_allocated_gb", gb_of(one.value("max_allocated_bytes", Json()))}});
    Json host = nullptr;
    if (const Json bytes = moment.value("host", Json()); bytes.is_object()) {
      const double total = gb_of(bytes.value("total_bytes", Json())), used = gb_of(bytes.value("used_bytes", Json()));
      host = {{"total_gb", total},
              {"available_gb", gb_of(bytes.value("available_bytes", Json()))},
              {"used_gb", used},
              {"percent", total > 0 ? Json(100 * used / total) : Json()}};
    }
    out.push_back({{"when", moment.value("when", "")}, {"ranks", std::move(ranks)}, {"host", std::move(host)}});
  }
  return out;
}

Json resources_json(const JobRecord& job, const JobFacts& facts, const Json& measured, const Json& report) {
  if (job.scheduled_ms == 0) return nullptr;
  const Json predicted = facts.plan.is_object() ? facts.plan.value("predicted", Json::object()) : Json::object();
  return {{"world_size", job.num_nodes * job.ranks_per_node},
          {"nodes", job.num_nodes},
          {"ranks_per_node", job.ranks_per_node},
          {"distributed_backend", facts.backend.empty() ? Json() : Json(facts.backend)},
          {"fsdp_strategy", facts.strategy},
          {"devices", split_words(job.devices, ',')},
          {"training_completed", job.state == JobState::kCompleted},
          {"memory",
           {{"predicted_peak_bytes", predicted.value("peak_allocated_bytes", Json())},
            {"measured_peak_bytes", measured.is_object() ? measured.value("peak_allocated_bytes", Json()) : Json()},
            {"moments", memory_moments(report, job.num_nodes * job.ranks_per_node)}}}};
}

Json line_of(Service& service, const JobRecord& job, const JobFacts& facts, StatusWords words) {
  return {{"job_uuid", job.id},
          {"status", status_text(job.state, words)},
          {"state", job_state_name(job.state)},
          {"scheduled_at", time_json(job.scheduled_ms != 0 ? job.scheduled_ms : job.created_ms)},
          {"started_at", time_json(job.started_ms)},
          {"completed_at", time_json(job.completed_ms)},
          {"created_at", time_json(job.created_ms)},
          {"reason", job.reason},
          {"attempt", job.attempt},
          {"max_retries", job.max_retries},
          {"priority", job.priority},
          {"queue_position", job.state == JobState::kQueued ? Json(service.jobs->position(job)) : Json()},
          {"method", job.method},
          {"model", job.model},
          {"finetuned_model", job.finetuned_model},
          {"dataset_id", job.dataset_id},
          {"num_rows", facts.num_rows}};
}

Json artifact_json(const JobRecord& job, const JobArtifact& one) {
  Json metrics = nullptr;
  if (one.train_loss || one.validation_loss) {
    const double loss = one.validation_loss.value_or(one.train_loss.value_or(0));
    metrics = {{"epoch", one.epoch},
               {"train_loss", one.train_loss ? Json(*one.train_loss) : Json()},
               {"validation_loss", one.validation_loss ? Json(*one.validation_loss) : Json()},
               {"perplexity", std::isfinite(std::exp(loss)) ? Json(std::exp(loss)) : Json()}};
  }
  return {{"identifier", one.identifier},
          {"created_at", utc_text(one.created_ms)},
          {"epoch", one.epoch},
          {"step", one.step},
          {"kind", one.kind},
          {"post_training_job_id", job.id},
          {"path", one.path},
          {"files", "/v1/post-training/jobs/" + job.id + "/checkpoints/" + one.identifier},
          {"training_metrics", metrics}};
}

RunCurves& known_curves() {
  static RunCurves curves;
  return curves;
}

}  // namespace

std::vector<JobArtifact> job_artifacts(Service& service, const JobRecord& job) {
  if (is_final(job.state)) return service.jobs->artifacts(job.id);
  const JobFolder folder(service.settings.data_folder, job.id);
  const std::optional<JobFacts> facts = folder.facts();
  return facts ? checkpoints_on_disk(folder, *facts, job.finetuned_model) : std::vector<JobArtifact>{};
}

Json checkpoints_json(Service& service, const JobRecord& job) {
  Json out = Json::array();
  for (const JobArtifact& one : job_artifacts(service, job)) out.push_back(artifact_json(job, one));
  return out;
}

Json job_json(Service& service, const JobRecord& job, JobDetail detail, StatusWords words) {
  const JobFolder folder(service.settings.data_folder, job.id);
  JobFacts facts = folder.facts().value_or(JobFacts{});
  facts.steps = steps_of(folder, facts);
  Json out = line_of(service, job, facts, words);
  const CurveParts parts = detail == JobDetail::kLine ? CurveParts::kNumbers : CurveParts::kAll;
  const RunCurve curve = job.attempt > 0 ? known_curves().read(folder.file("metrics.jsonl"), parts) : RunCurve{};
  out["progress"] = progress_json(job, facts, curve);
  if (detail == JobDetail::kLine) return out;
  const Json report = current_report(folder, curve), measured = measured_json(curve, report);
  out["transitions"] = Json::array();
  for (const JobTransition& one : service.jobs->transitions(job.id)) {
    out["transitions"].push_back({{"from", job_state_name(one.from)},
                                  {"to", job_state_name(one.to)},
                                  {"at", utc_text(one.at_ms)},
                                  {"attempt", one.attempt},
                                  {"reason", one.reason}});
  }
  const std::string phase = is_final(job.state) || job.attempt == 0 ? "" : keeper_phase(folder, job.attempt);
  out["phase"] = phase.empty() ? Json() : Json(phase);
  out["resources_allocated"] = resources_json(job, facts, measured, report);
  out["checkpoints"] = checkpoints_json(service, job);
  out["plan"] = facts.plan;
  out["measured"] = measured;
  out["tuned"] = read_json(folder.file(kTunedFile));
  out["losses"] = curve.steps;
  out["evaluations"] = curve.evaluations;
  return out;
}

Json queue_json(Service& service, int64_t most) {
  const ServiceSettings& settings = service.settings;
  Json out = {{"jobs", Json::array()}, {"counts", Json::object()}, {"datasets", Json::array()}, {"models", Json::array()}};
  for (const JobRecord& job : service.jobs->all(most)) out["jobs"].push_back(job_json(service, job, JobDetail::kLine));
  const std::map<JobState, int64_t> counts = service.jobs->count_by_state();
  for (const JobState state : {JobState::kQueued, JobState::kScheduled, JobState::kInProgress, JobState::kCompleted, JobState::kFailed,
                               JobState::kCancelled}) {
    const auto found = counts.find(state);
    out["counts"][std::string(job_state_name(state))] = found == counts.end() ? 0 : found->second;
  }
  for (const DatasetRecord& one : service.datasets->all())
    out["datasets"].push_back({{"dataset_id", one.id}, {"kind", one.kind}, {"num_rows", one.num_rows}});
  for (const FoundModel& one : served_models(settings)) {
    if (out["models"].size() < kMostModelsShown) out["models"].push_back(one.name);
  }
  out["mode"] = mode_name(settings.mode);
  out["device"] = settings.device;
  out["devices"] = settings.devices;
  out["devices_free"] = service.queue->free_devices();
  out["nodes"] = settings.nodes;
  out["ranks_per_node"] = settings.ranks_per_node;
  out["max_concurrent_jobs"] = settings.max_concurrent_jobs;
  out["version"] = DISTSETUP_VERSION;
  out["read_only"] = false;
  return out;
}

}  // namespace distsetup
