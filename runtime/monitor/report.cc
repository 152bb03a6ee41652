// See report.h.
#include "runtime/monitor/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <numeric>

#include "base/file.h"
#include "base/json.h"
#include "base/quantity.h"
#include "model/count.h"
#include "model/geometry.h"
#include "plan/chunked_loss.h"
#include "plan/host_writer.h"
#include "plan/schedule.h"

namespace distsetup {
namespace {

std::string format_value(Quantity quantity, double value) {
  return quantity == Quantity::kBytes ? format_count(static_cast<int64_t>(value)) + " B" : format_duration(value);
}

std::string format_difference(const Comparison& row) {
  const double difference = row.measured - row.predicted;
  if (difference == 0) return "equal";
  if (row.predicted == 0) return "not predicted";
  const double ratio = row.measured / row.predicted;
  const std::string share = ratio < 10 ? fmt::format("{:+.1f} %", 100 * (ratio - 1)) : fmt::format("{:.0f} ×", ratio);
  return row.quantity == Quantity::kBytes ? fmt::format("{:+d} B ({})", static_cast<int64_t>(difference), share) : share;
}

double predicted_of(const std::vector<MemoryTerm>& terms, std::string_view name) {
  for (const MemoryTerm& term : terms) {
    if (term.buffer_class == name) return static_cast<double>(term.bytes_max);
  }
  return 0;
}

std::string verdict_sentence(const std::vector<Comparison>& rows) {
  int num_bytes = 0, num_equal = 0;
  const Comparison *step = nullptr, *peak = nullptr;
  for (const Comparison& row : rows) {
    if (row.what == "step") step = &row;
    if (row.what == "peak allocated") peak = &row;
    if (row.quantity != Quantity::kBytes || row.what == "workspace" || row.what == "peak allocated") continue;
    ++num_bytes;
    num_equal += row.measured == row.predicted ? 1 : 0;
  }
  std::string text = num_equal == num_bytes
                         ? fmt::format("all {} kinds of buffers take the predicted bytes exactly", num_bytes)
                         : fmt::format("{} of {} kinds of buffers take the predicted bytes exactly", num_equal, num_bytes);
  if (peak != nullptr && peak->measured > 0)
    text += fmt::format("; the peak is {}, predicted {}", format_bytes(static_cast<int64_t>(peak->measured)),
                        format_bytes(static_cast<int64_t>(peak->predicted)));
  if (step != nullptr && step->measured > 0)
    text += fmt::format("; a step took {}, predicted {}", format_duration(step->measured), format_duration(step->predicted));
  return text;
}

}  // namespace

void TimeMeter::add(const StepStats& stats, double step_s) {
  Sums& sums = first_.num_steps == 0 ? first_ : rest_;
  ++sums.num_steps;
  sums.step_s += step_s;
  sums.wait_s += stats.wait_s;
  for (const auto& [name, op] : stats.by_instruction) sums.by_instruction_s[name] += op.seconds;
}

MeasuredTime TimeMeter::mean() const {
  const Sums& sums = rest_.num_steps > 0 ? rest_ : first_;
  MeasuredTime mean;
  mean.num_steps = sums.num_steps;
  if (sums.num_steps == 0) return mean;
  const double n = static_cast<double>(sums.num_steps);
  mean.step_s = sums.step_s / n;
  mean.wait_s = sums.wait_s / n;
  for (const auto& [name, seconds] : sums.by_instruction_s) mean.by_instruction_s[name] = seconds / n;
  return mean;
}

std::vector<Comparison> compare(const Plan& plan, const MemoryReport& memory, const MeasuredTime& time) {
  std::vector<Comparison> rows;
  for (int c = 0; c < kNumBufferClasses; ++c) {
    const auto which = static_cast<BufferClass>(c);
    if (which == BufferClass::kWorkspace) continue;
    const std::string what(name(which));
    const double predicted = predicted_of(plan.memory.terms, what);
    const double measured =
        static_cast<double>(memory.run_bytes[static_cast<size_t>(c)] + memory.arena_peak_bytes[static_cast<size_t>(c)]);
    if (predicted != 0 || measured != 0) rows.push_back({what, Quantity::kBytes, predicted, measured});
  }
  rows.push_back({"arena", Quantity::kBytes, static_cast<double>(plan.memory.arena_bytes), static_cast<double>(memory.arena_bytes)});
  if (memory.host_bytes > 0)
    rows.push_back(
        {"on the host", Quantity::kBytes, static_cast<double>(plan.host.host_bytes), static_cast<double>(memory.host_bytes)});
  if (memory.disk_bytes > 0)
    rows.push_back({"on a disk", Quantity::kBytes, static_cast<double>(plan.host.disk_bytes), static_cast<double>(memory.disk_bytes)});
  if (memory.metered_peak_bytes > 0) {
    rows.push_back({"workspace", Quantity::kBytes, static_cast<double>(plan.memory.workspace_bytes),
                    static_cast<double>(memory.metered_workspace_bytes)});
    rows.push_back({"peak allocated", Quantity::kBytes, static_cast<double>(plan.memory.peak_allocated_bytes),
                    static_cast<double>(memory.metered_peak_bytes)});
  }
  if (time.num_steps == 0) return rows;
  std::map<std::string, double> predicted;
  const bool is_replayed = time.by_instruction_s.contains(std::string(kReplay));  // then instructions have no times of their own
  for (const InstructionTime& instruction : plan.time.by_instruction) predicted[instruction.op] += instruction.seconds;
  for (const auto& entry : time.by_instruction_s) predicted.try_emplace(entry.first, 0);
  for (const auto& [op, seconds] : predicted) {
    if (is_replayed) break;
    const auto measured = time.by_instruction_s.find(op);
    rows.push_back({op, Quantity::kSeconds, seconds, measured == time.by_instruction_s.end() ? 0 : measured->second});
  }
  rows.push_back({"step", Quantity::kSeconds, plan.time.step_s, time.step_s});
  return rows;
}

std::string format_comparison(const std::vector<Comparison>& rows) {
  const auto line = [](const std::string& what, const std::string& predicted, const std::string& measured,
                       const std::string& difference) {
    return fmt::format("  {:<20} {:>17} {:>17}  {}\n", what, predicted, measured, difference);
  };
  std::string text = line("", "predicted", "measured", "difference");
  for (const Comparison& row : rows)
    text +=
        line(row.what, format_value(row.quantity, row.predicted), format_value(row.quantity, row.measured), format_difference(row));
  return text + verdict_sentence(rows) + "\n";
}

Json comparison_json(const std::vector<Comparison>& rows) {
  Json json = Json::array();
  for (const Comparison& row : rows) {
    if (row.quantity == Quantity::kBytes) {
      json.push_back({{"what", row.what},
                      {"predicted_bytes", static_cast<int64_t>(row.predicted)},
                      {"measured_bytes", static_cast<int64_t>(row.measured)},
                      {"difference_bytes", static_cast<int64_t>(row.measured) - static_cast<int64_t>(row.predicted)}});
    } else {
      json.push_back({{"what", row.what},
                      {"predicted_s", row.predicted},
                      {"measured_s", row.measured},
                      {"difference_s", row.measured - row.predicted}});
    }
  }
  return json;
}

Json memory_json(const Plan& plan, const MemoryReport& memory) {
  Json out = {{"held_bytes", std::accumulate(memory.run_bytes.begin(), memory.run_bytes.end(), int64_t{0})},
              {"comparison", comparison_json(compare(plan, memory, {}))},
              {"phases", Json::array()}};
  for (const PhaseMemory& phase : plan.memory.by_phase) {
    const auto measured = memory.phase_bytes.find(phase.phase);
    if (measured == memory.phase_bytes.end()) continue;
    out["phases"].push_back(
        {{"phase", phase.phase}, {"predicted_bytes", phase.allocated_bytes}, {"measured_bytes", measured->second}});
  }
  return out;
}

std::vector<double> peaks_of_all(Communicator& communicator, const MemoryReport& memory) {
  std::vector<double> peaks(static_cast<size_t>(communicator.world()), 0.0);
  peaks[static_cast<size_t>(communicator.rank())] = static_cast<double>(memory.metered_peak_bytes);
  communicator.control_sum(peaks.data(), static_cast<int64_t>(peaks.size()));
  return peaks;
}

namespace {

Json report_json(const FinishedRun& end, const std::vector<Comparison>& rows, const Plan& plan, const MemoryReport& memory,
                 const MeasuredTime& time) {
  const Json bytes = memory_json(plan, memory);
  Json report = {{"schema_version", 1},
                 {"status", end.status},
                 {"step", end.step},
                 {"steps", end.steps},
                 {"optimizer_steps", end.steps_here},
                 {"skipped_steps", end.skipped_steps},
                 {"loss", end.loss},
                 {"tokens", end.tokens},
                 {"plan_digest", end.plan_digest},
                 {"schedule_digest", end.schedule_digest},
                 {"comparison", comparison_json(rows)},
                 {"held_bytes", bytes["held_bytes"]},
                 {"phases", bytes["phases"]},
                 {"peak_allocated_bytes_by_rank", Json::array()},
                 {"predicted_peak_instruction", end.predicted_peak_instruction},
                 {"measured_peak_instruction", memory.peak_instruction},
                 {"wait_s", time.wait_s},
                 {"goodput", end.goodput},
                 {"memory", moments_json(end.memory)},
                 {"timed_steps", time.num_steps}};
  for (double peak : end.peaks) report["peak_allocated_bytes_by_rank"].push_back(static_cast<int64_t>(peak));
  if (end.loss_scale) report["loss_scale"] = end.loss_scale->scale;
  if (end.held_out_loss) report["held_out_loss"] = *end.held_out_loss;
  return report;
}

}  // namespace

Diagnostics report_end(const FinishedRun& end, const Plan& plan, const MemoryReport& memory, const MeasuredTime& time,
                       const std::string& folder) {
  const std::vector<Comparison> rows = compare(plan, memory, time);
  fmt::print("{} at step {} of {}: loss {:.4f}{}\n{}", end.status, end.step, end.steps, end.loss,
             end.held_out_loss ? fmt::format(", held-out loss {:.4f}", *end.held_out_loss) : "", format_comparison(rows));
  std::fflush(stdout);
  const Json report = report_json(end, rows, plan, memory, time);
  return write_file_atomic((std::filesystem::path(folder) / "report.json").string(), dump_json(report), Overwrite::kForce).diagnostics;
}

std::string stopped_text(int signal, int64_t steps_here, int64_t step, int64_t steps, const std::string& checkpoint) {
  const std::string why =
      signal != 0 ? fmt::format("stopped by signal {}", signal) : fmt::format("stopped after {} steps as asked", steps_here);
  return fmt::format("{} at step {} of {}{}; run the same command to go on\n", why, step, steps,
                     step > 0 ? fmt::format(", saved as {}", checkpoint) : ", nothing was trained");
}

std::string format_start(const Plan& plan, const RunFacts& facts) {
  const Mesh& mesh = plan.mesh;
  std::string recompute(name(plan.recompute.policy));
  if (plan.recompute.policy == Recompute::kEveryK) recompute = fmt::format("every_k:{}", plan.recompute.every_k);
  if (plan.strategy.loss_head == kChunkedLoss) recompute += fmt::format(" · loss in {} chunks", kLossChunks);
  std::string text = fmt::format("{} · {} parameters · {} {} · {} · {} · recompute {}\n", plan.model.name,
                                 format_count(count_parameters(plan.model).total), mesh.world(), mesh.world() == 1 ? "rank" : "ranks",
                                 name(plan.strategy.sharding), name(plan.precision.compute), recompute);
  text += fmt::format("  mesh        dp_replicate {} × dp_shard {}, {}\n", mesh.dp_replicate, mesh.dp_shard, facts.device);
  text += fmt::format("  batch       {} {} of {} tokens = {} micro × {} accumulation × {} data-parallel\n", plan.train.global_batch,
                      learns_preferences(plan.train) ? "pairs of 2 sequences" : "sequences", plan.train.sequence_length,
                      plan.micro_batch, plan.gradient_accumulation, mesh.data_parallel());
  text += fmt::format("  train       {} steps, learning rate {:g} to {:g} ({}), warm-up {}, clip {:g}, seed {}\n", plan.train.steps,
                      plan.train.learning_rate, plan.train.min_learning_rate, name(plan.train.lr_schedule), plan.train.warmup_steps,
                      plan.train.grad_clip, plan.train.seed);
  if (plan.offload != OffloadPlan{})
    text += fmt::format("  offload     {}: {} B of each rank on the host{}\n", offload_words(plan.offload),
                        format_count(plan.host.host_bytes),
                        plan.host.disk_bytes > 0 ? fmt::format(", {} B on the disk", format_count(plan.host.disk_bytes)) : "");
  if (plan.precision.compute == Dtype::kF16) {
    const LossScalePlan& s = plan.precision.loss_scale;
    text += s.fixed > 0 ? fmt::format("  loss scale  {}\n", s.fixed)
                        : fmt::format("  loss scale  2^{} at first, doubled after {} steps, halved after {} overflows, at least {}\n",
                                      s.initial_power, s.window, s.hysteresis, s.minimum);
  }
  if (learns_preferences(plan.train)) {
    const PreferencePlan& p = plan.train.preference;
    text += fmt::format("  preferences loss {}, beta {:g}, label smoothing {:g}, reference {}\n", p.loss, p.beta, p.label_smoothing,
                        p.reference);
  }
  text += fmt::format("  data        {}\n  checkpoints {}\n  start       {}\n", facts.data, facts.checkpoint, facts.start);
  text += "  predicted\n";
  for (const MemoryTerm& term : plan.memory.terms)
    text += fmt::format("    {:<20} {:>17} B\n", term.buffer_class, format_count(term.bytes_max));
  text += fmt::format("    {:<20} {:>17} B  at {}\n", "peak allocated", format_count(plan.memory.peak_allocated_bytes),
                      plan.memory.peak_instruction);
  text += fmt::format("    {:<20} {:>19}  {} tokens/s\n", "step", format_duration(plan.time.step_s),
                      format_count(std::llround(plan.time.tokens_per_s)));
  return text;
}

}  // namespace distsetup
