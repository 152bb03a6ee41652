#include "planner/report/preview.h"
#include "plan/layout_cache.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/quantity.h"
#include "model/approximate.h"
#include "model/count.h"
#include "plan/chunked_loss.h"
#include "plan/host_writer.h"
#include "planner/report/text_layout.h"
#include "planner/report/words.h"
#include "planner/resolve/data_scan.h"
#include "planner/search/predictor.h"

namespace distsetup {
namespace {

constexpr int kNarrowest = 48, kWidest = 120;
constexpr size_t kMostAlternatives = 7;

class Preview {
 public:
  Preview(const Plan& plan, const PreviewOptions& options)
      : plan_(plan), options_(options), width_(std::clamp(options.width, kNarrowest, kWidest)) {}

  bool is_cpu() const { return plan_.hardware.accelerator == Accelerator::kCpu; }

  std::string verdict() {
    answer();
    return encoded();
  }

  std::string run() {
    header();
    answer();
    if (!options_.brief) line();
    strategy();
    if (options_.brief) return encoded();
    memory();
    timeline();
    speed();
    reasons();
    alternatives();
    smallest_fits();
    assumptions();
    return encoded();
  }

 private:
  // --- text

  std::string encoded() const { return options_.utf8 ? out_ : to_ascii(out_); }
  std::string paint(std::string text, std::string_view code) const {
    return options_.colour == Colour::kOn ? fmt::format("\033[{}m{}\033[0m", code, text) : text;
  }
  std::string bold(std::string text) const { return paint(std::move(text), "1"); }
  std::string dim(std::string text) const { return paint(std::move(text), "2"); }
  std::string_view verdict_colour(Verdict v) const { return v == Verdict::kFits ? "1;32" : v == Verdict::kTight ? "1;33" : "1;31"; }

  void line(std::string text = "") {
    while (!text.empty() && text.back() == ' ') text.pop_back();
    out_ += text + "\n";
  }
  void section(std::string title) {
    line();
    line(bold(std::move(title)));
  }
  // Wrapped below `indent` columns, the first line after `first`.
  void paragraph(const std::string& first, int indent, std::string_view text) {
    if (options_.brief) return line(cut(first + std::string(text), width_));
    const std::vector<std::string> lines = wrap(text, width_ - indent);
    for (size_t i = 0; i < lines.size(); ++i)
      line((i == 0 ? pad_right(first, indent) : std::string(static_cast<size_t>(indent), ' ')) + lines[i]);
  }

  // --- what and where

  bool is_guessed() const {
    const Approximation* as = approximation(plan_.model);
    return as != nullptr && as->parameters > 0;
  }
  std::string count_words(int64_t n) const { return is_guessed() ? format_short_count(static_cast<double>(n)) : format_count(n); }

  std::string parameter_words(int64_t total) const {
    if (is_guessed()) return fmt::format("about {} parameters (from its sizes)", count_words(total));
    if (!is_native(plan_) || tuning_of(plan_.train).trains_all()) return fmt::format("{} parameters", format_count(total));
    const ParameterNumbers numbers = parameter_numbers(plan_);
    const int64_t all = numbers.trained + numbers.frozen;
    return fmt::format("{} of {} parameters trained ({:.2g} %)", format_count(numbers.trained), format_count(all),
                       100.0 * static_cast<double>(numbers.trained) / static_cast<double>(all));
  }

  void header() {
    const Geometry& g = plan_.model;
    const ParameterCount count = count_parameters(g);
    const std::string active = count.active < count.total ? fmt::format(", {} active", count_words(count.active)) : "";
    line(bold(cut(fmt::format("{} · {}{}", g.name, parameter_words(count.total), active), width_)));
    for (const Diagnostic& d : plan_.diagnostics)
      if (d.code == "DS0303" && !options_.brief) paragraph("", 0, d.message);
    const HardwarePlan& h = plan_.hardware;
    line(fmt::format("{} node{} × {} {}{} = {} · {}", h.nodes, h.nodes == 1 ? "" : "s", h.gpus_per_node, is_cpu() ? "CPU rank" : "GPU",
                     h.gpus_per_node == 1 ? "" : "s", h.nodes * h.gpus_per_node, h.gpu_name));
  }

  std::string verdict_word() const { return verdict_words(plan_.verdict, plan_.memory.fit_probability); }

  // The answer in one line, before any detail.
  void answer() {
    const std::string word = verdict_word();
    std::string rest = " · " + memory_words(plan_);
    std::vector<std::string> more;
    if (plan_.time.step_s > 0)
      more = {format_duration(plan_.time.step_s) + " per step", format_count(std::llround(plan_.time.tokens_per_s)) + " tokens/s"};
    for (const std::string& text : more)
      if (display_width(word + rest + " · " + text) <= width_) rest += " · " + text;
    line(paint(word, verdict_colour(plan_.verdict)) + cut(rest, width_ - display_width(word)));
  }

  std::string precision_words() const {
    std::string words(name(plan_.precision.compute));
    if (!plan_.train.trainable.empty()) return fmt::format("{} · frozen but for {} patterns", words, plan_.train.trainable.size());
    const std::string dropout = plan_.train.lora_dropout > 0 ? fmt::format(", dropout {}", plan_.train.lora_dropout) : "";
    if (plan_.train.finetune != "full")
      return fmt::format("{} · {} of rank {}{}", words, plan_.train.finetune, plan_.train.lora_rank, dropout);
    if (plan_.precision.compute == Dtype::kF32) return words;
    return words + (plan_.precision.master == Dtype::kF32 ? " with fp32 master" : " alone, no fp32 master");
  }

  // The length before the batch: a line that is too long loses its end.
  void brief_run() {
    const TrainPlan& t = plan_.train;
    const double run_s = plan_.time.step_s * static_cast<double>(t.steps);
    line(cut(fmt::format("{} · {} step{}{} · micro-batch {} × {} × {} = {} × {}{} tokens", t.method, format_count(t.steps),
                         t.steps == 1 ? "" : "s", run_s > 0 ? " in " + format_duration(run_s) : "", plan_.micro_batch,
                         plan_.gradient_accumulation, plan_.mesh.data_parallel(), format_count(t.global_batch),
                         sequences_per_sample(plan_) == 2 ? "2 × " : "", format_count(t.sequence_length)),
             width_));
  }

  void strategy() {
    const Mesh& m = plan_.mesh;
    const TrainPlan& t = plan_.train;
    std::string how(name(plan_.strategy.sharding));
    if (m.world() == 1)
      how += fmt::format(" on one {}", rank_word(plan_.hardware));
    else if (m.dp_shard == 1 && m.dp_replicate == 1)
      how += ", one data-parallel rank";
    else if (m.dp_shard == 1)
      how += fmt::format(": {} copies, nothing split", m.dp_replicate);
    else if (m.dp_replicate == 1)
      how += fmt::format(" over {} {}s", m.dp_shard, rank_word(plan_.hardware));
    else
      how += fmt::format(": {} copies of {} shards", m.dp_replicate, m.dp_shard);
    if (!plan_.strategy.reshard_after_forward) how += ", parameters kept gathered";
    if (m.tp > 1) how += fmt::format(" · tp {}{}", m.tp, plan_.strategy.sequence_parallel ? " with sequence parallelism" : "");
    if (m.pp > 1) how += fmt::format(" · pp {}", m.pp);
    if (plan_.strategy.virtual_stages > 1) how += fmt::format(" × {} interleaved", plan_.strategy.virtual_stages);
    if (m.cp > 1) how += fmt::format(" · cp {} ({})", m.cp, plan_.strategy.cp_method);
    if (m.ep > 1) how += fmt::format(" · ep {}", m.ep);
    if (plan_.strategy.hpz > 1) how += fmt::format(" · hpZ {}", plan_.strategy.hpz);
    if (!is_native(plan_) && plan_.strategy.trainer != name(plan_.strategy.sharding)) how = plan_.strategy.trainer + ": " + how;
    how += transfer_words(plan_);
    std::string recompute(name(plan_.recompute.policy));
    if (plan_.recompute.policy == Recompute::kEveryK) recompute += fmt::format(":{}", plan_.recompute.every_k);
    if (is_native(plan_) && plan_.strategy.loss_head == kChunkedLoss) recompute += fmt::format(" · loss in {} chunks", kLossChunks);
    const std::string moved = offloads_natively(plan_) ? " · " + offload_words(plan_.offload) : "";
    paragraph("", 0, fmt::format("{} · recompute {}{} · {}", how, recompute, moved, precision_words()));
    if (options_.brief) return brief_run();
    const int64_t tokens = tokens_per_step(plan_);
    paragraph(
        "", 0,
        fmt::format("{}{} · micro-batch {} × accumulation {} × {} {}{} = {} {} of {} = {} tokens per step", t.method,
                    starts_from_weights(plan_) ? " from published weights" : "", plan_.micro_batch, plan_.gradient_accumulation,
                    m.data_parallel(), m.data_parallel() == m.world() ? std::string(rank_word(plan_.hardware)) : "data-parallel rank",
                    m.data_parallel() == 1 ? "" : "s", format_count(t.global_batch),
                    sequences_per_sample(plan_) == 2 ? "pairs of 2 sequences" : "sequences", format_count(t.sequence_length),
                    format_count(tokens)));
    if (plan_.data.files.empty()) return;
    const auto held_out =
        std::count_if(plan_.data.files.begin(), plan_.data.files.end(), [](const DataFile& f) { return f.held_out; });
    if (plan_.data.tokenizer == kPreparedTokens)
      return paragraph("", 0, fmt::format("data: a prepared set of {} tokens", format_count(train_tokens(plan_.data))));
    paragraph("", 0,
              fmt::format("data: {} files, {} of text to train on; {} files, {} held out",
                          plan_.data.files.size() - static_cast<size_t>(held_out), format_bytes(train_bytes(plan_.data)), held_out,
                          format_bytes(held_out_bytes(plan_.data))));
  }

  // --- memory

  static constexpr int kLabel = 22, kNumber = 10;
  int bar_width() const { return width_ - 2 - kLabel - kNumber - 2; }

  // Each bar begins where the one above ended: together they are the device's bytes.
  void bar_line(const std::string& label, int64_t bytes, std::string_view colour) {
    const MemoryPlan& m = plan_.memory;
    // A small model on a large device: against its own bytes, or nothing would be seen.
    const int64_t whole = m.device_bytes < m.capacity_bytes / 4 ? m.device_bytes : std::max(m.capacity_bytes, m.device_bytes);
    const double scale = static_cast<double>(bar_width()) / static_cast<double>(whole);
    const auto column = [&](int64_t at) { return static_cast<int>(std::lround(static_cast<double>(at) * scale)); };
    const int begin = std::min(column(stacked_), bar_width() - 1), end = column(stacked_ + bytes);
    stacked_ += bytes;
    std::string bar;
    for (int i = begin; i < end; ++i) bar += "█";
    if (bar.empty()) bar = "▏";
    line("  " + pad_right(cut(label, kLabel), kLabel) + pad_left(format_bytes(bytes), kNumber) + "  " +
         std::string(static_cast<size_t>(begin), ' ') + paint(std::move(bar), colour));
  }

  void memory() {
    const MemoryPlan& m = plan_.memory;
    section(fmt::format("memory per {}", rank_word(plan_.hardware)));
    for (const MemoryTerm& t : m.terms)
      if (t.bytes_at_peak > 0) bar_line(t.buffer_class, t.bytes_at_peak, "36");
    const int64_t comm = m.unconstrained_device_bytes - m.peak_reserved_bytes - plan_.hardware.context_bytes;
    if (const int64_t rounding = m.device_bytes - comm - plan_.hardware.context_bytes - m.peak_allocated_bytes; rounding > 0)
      bar_line("allocator rounding", rounding, "2");
    if (plan_.hardware.context_bytes > 0) bar_line("GPU context", plan_.hardware.context_bytes, "2");
    if (comm > 0) bar_line("communicators", comm, "2");
    const std::string word = verdict_word();
    const int64_t free = m.capacity_bytes - m.device_bytes;
    const std::string left = free >= 0 ? fmt::format("{} free", format_bytes(free)) : fmt::format("{} too much", format_bytes(-free));
    const std::string total = bold(pad_right("on the device", kLabel) + pad_left(format_bytes(m.device_bytes), kNumber));
    const std::string of = fmt::format("of {}: ", format_bytes(m.capacity_bytes)),
                      rest = paint(word, verdict_colour(plan_.verdict)) + ", " + left;
    if (4 + kLabel + kNumber + display_width(of + word + ", " + left) <= width_) {
      line("  " + total + "  " + of + rest);
    } else {
      line("  " + total);
      line("  " + of + rest);
    }
    const auto under_total = [&](const std::string& text) {
      line((2 + kLabel + display_width(text) <= width_ ? pad_right("", 2 + kLabel) : "  ") + text);
    };
    if (m.device_high_bytes > m.device_low_bytes)
      under_total(fmt::format("{} to {} in 9 runs of 10", format_gib(m.device_low_bytes), format_gib(m.device_high_bytes)));
    if (m.unconstrained_device_bytes > m.device_bytes)
      under_total(fmt::format("takes {}{} where there is room", format_gib(m.unconstrained_device_bytes),
                              between_gib(m.unconstrained_low_bytes, m.unconstrained_high_bytes)));
    if (m.host_bytes_per_node > 0) {
      const int64_t host = plan_.hardware.host_memory_bytes;
      line(fmt::format("  {}{}{}", pad_right("host memory per node", kLabel), pad_left(format_bytes(m.host_bytes_per_node), kNumber),
                       host > 0 ? fmt::format("  of {}{}", format_bytes(host), lacks_host_memory(plan_) ? ": too little" : "") : ""));
    }
    if (m.disk_bytes_per_node > 0)
      line(fmt::format("  {}{}", pad_right("local disk per node", kLabel), pad_left(format_bytes(m.disk_bytes_per_node), kNumber)));
    if (m.by_rank_class.size() > 1) {
      std::vector<std::string> stages;
      for (const MemoryPlan::RankClass& c : m.by_rank_class)
        stages.push_back(fmt::format("{} {}", c.name, format_bytes(c.device_bytes)));
      paragraph("  per stage", 2 + 12, fmt::format("{}; above is the fullest", fmt::join(stages, ", ")));
    }
    if (!is_native(plan_) && m.checkpoint_bytes > 0)
      line(fmt::format("  {}{}", pad_right("one checkpoint", kLabel), pad_left(format_bytes(m.checkpoint_bytes), kNumber)));
    if (m.peak_buffers.empty()) return;
    std::vector<std::string> buffers;
    for (const PeakBuffer& b : m.peak_buffers) buffers.push_back(fmt::format("{} {}", b.name, format_bytes(b.bytes)));
    paragraph("  peak at", 2 + 10, fmt::format("{}: {}", m.peak_instruction, fmt::join(buffers, ", ")));
  }

  void timeline() {
    const MemoryPlan& m = plan_.memory;
    if (m.by_phase.size() < 2) return;
    int64_t most = 1;
    for (const PhaseMemory& p : m.by_phase) most = std::max(most, p.allocated_bytes);
    // One unit for the whole line: that of the largest.
    const std::string largest = format_bytes(most);
    const std::string unit = largest.substr(largest.find(' ') + 1);
    const double scale = unit == "GiB"   ? 1.0 / static_cast<double>(kGiB)
                         : unit == "MiB" ? 1.0 / static_cast<double>(kMiB)
                         : unit == "KiB" ? 1.0 / 1024
                                         : 1.0;
    const bool known = unit == "GiB" || unit == "MiB" || unit == "KiB" || unit == "B";
    std::string bars = "  by phase", names;
    const auto flush = [&](const std::string& after) {
      line(pad_right(bars, 12) + after);
      line(dim(pad_right("", 12) + names));
      bars = names = "";
    };
    bars = pad_right(bars, 12);
    for (const PhaseMemory& p : m.by_phase) {
      const std::string glyph(block(static_cast<double>(p.allocated_bytes) / static_cast<double>(most)));
      const std::string bytes =
          known ? fmt::format("{:.1f}", static_cast<double>(p.allocated_bytes) * scale) : format_bytes(p.allocated_bytes);
      const int column = std::max(display_width(p.phase), 2 + display_width(bytes)) + 1;
      if (!names.empty() && 12 + display_width(names) + column + 3 > width_) {
        flush("");
        bars = pad_right("", 12);
      }
      bars += pad_right(glyph + " " + bytes, column);
      names += pad_right(p.phase, column);
    }
    flush(known ? unit : "");
  }

  // --- time

  void speed() {
    const TimePlan& t = plan_.time;
    if (t.step_s <= 0) return;
    section("time, predicted");
    paragraph("  step", 12,
              fmt::format("{} · {} tokens/s · {} per {} · MFU {:.0f} %", format_duration(t.step_s),
                          format_count(std::llround(t.tokens_per_s)), format_count(std::llround(t.tokens_per_s_per_gpu)),
                          rank_word(plan_.hardware), t.mfu * 100));
    if (t.step_high_s > t.step_low_s)
      paragraph("", 12, fmt::format("{} to {} in 9 runs of 10", format_duration(t.step_low_s), format_duration(t.step_high_s)));
    std::vector<InstructionTime> ops = t.by_instruction;
    std::stable_sort(ops.begin(), ops.end(), [](const InstructionTime& a, const InstructionTime& b) { return a.seconds > b.seconds; });
    std::vector<std::string> texts;
    for (const InstructionTime& op : ops)
      if (op.seconds >= 0.005 * t.step_s) texts.push_back(fmt::format("{} {}", op.op, format_duration(op.seconds)));
    paragraph(
        "  of it", 12,
        fmt::format("{}{}", fmt::join(texts, ", "), is_cpu() || plan_.mesh.world() == 1 ? "" : " (transfers run beside compute)"));
    paragraph("  run", 12,
              fmt::format("{} step{} = {} tokens in {}", format_count(plan_.train.steps), plan_.train.steps == 1 ? "" : "s",
                          format_short_count(static_cast<double>(plan_.train.steps * tokens_per_step(plan_))),
                          format_duration(t.step_s * static_cast<double>(plan_.train.steps))));
    if (t.cost_usd > 0)
      paragraph(
          "  cost", 12,
          fmt::format("{} GPU-hours, {} USD at {:.2f} per GPU-hour ({})", format_count(std::llround(t.gpu_hours)),
                      format_count(std::llround(t.cost_usd)), plan_.hardware.price_usd_per_gpu_hour, plan_.hardware.price_source));
    if (t.checkpoint_every_s > 0)
      paragraph("  save", 12,
                fmt::format("every {}: less often loses more to failures of {} GPUs, more often more to saving",
                            format_duration(t.checkpoint_every_s), format_count(plan_.mesh.world())));
    const double peak = plan_.hardware.peak_flops_per_s;
    paragraph("  MFU", 12,
              fmt::format("model FLOPs, causal attention counted half, over {}",
                          peak >= 1e12 ? fmt::format("{:.0f} TFLOP/s", peak * 1e-12) : fmt::format("{:.0f} GFLOP/s", peak * 1e-9)));
  }

  // --- why

  void reasons() {
    if (plan_.reasons.empty()) return;
    section(plan_.verdict == Verdict::kDoesNotFit ? "why, and what would fit" : "why this plan");
    for (const std::string& r : plan_.reasons) paragraph("  ", 2, r);
  }

  void alternatives() {
    if (plan_.alternatives.empty()) return;
    section("runners-up");
    int left = 0, right = 0;
    for (size_t i = 0; i < std::min(plan_.alternatives.size(), kMostAlternatives); ++i) {
      left = std::max(left, display_width(plan_.alternatives[i].summary));
      right = std::max(right, display_width(plan_.alternatives[i].why_not));
    }
    const int first = std::min(left, std::max(width_ - 4 - right, width_ / 2));
    for (size_t i = 0; i < std::min(plan_.alternatives.size(), kMostAlternatives); ++i) {
      const Alternative& a = plan_.alternatives[i];
      line("  " + pad_right(cut(a.summary, first), first) + "  " + cut(a.why_not, width_ - first - 4));
    }
  }

  void smallest_fits() {
    if (options_.smallest_fits.empty()) return;
    section("smallest that fits");
    for (const SmallestFit& f : options_.smallest_fits) {
      if (f.nodes == 0) {
        line("  " + pad_right(cut(f.gpu_name, 18), 18) + "   none with a sequence for each GPU");
        continue;
      }
      std::string row = "  " + pad_right(cut(f.gpu_name, 18), 18) +
                        pad_left(fmt::format("{} × {} = {}", f.nodes, f.gpus_per_node, f.total_gpus), 14);
      const std::string memory = pad_left(fmt::format("{} of {}", format_gib(f.device_bytes), format_gib(f.capacity_bytes)), 24);
      const std::string speed = pad_left(fmt::format("{} tokens/s/GPU", format_count(std::llround(f.tokens_per_s_per_gpu))), 21);
      if (display_width(row + memory) <= width_) row += memory;
      if (f.tokens_per_s_per_gpu > 0 && display_width(row + speed) <= width_) row += speed;
      line(row);
    }
  }

  void assumptions() {
    if (plan_.assumptions.empty()) return;
    section("assumed (not given)");
    paragraph("", 2, fmt::format("{}", fmt::join(plan_.assumptions, " · ")));
  }

  const Plan& plan_;
  const PreviewOptions& options_;
  const int width_;
  int64_t stacked_ = 0;
  std::string out_;
};

}  // namespace

std::string format_preview(const Plan& plan, const PreviewOptions& options) { return Preview(plan, options).run(); }

std::string verdict_line(const Plan& plan, const PreviewOptions& options) { return Preview(plan, options).verdict(); }

}  // namespace distsetup
