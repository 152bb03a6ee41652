#include "planner/native/packed_memory.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "base/check.h"
#include "plan/expand.h"
#include "plan/host_writer.h"
#include "plan/optimizer.h"
#include "plan/pipeline_rules.h"
#include "plan/update_layout.h"
#include "plan/workspace.h"
#include "planner/native/simulate.h"
#include "planner/replay/ledger.h"
#include "planner/resolve/hardware_facts.h"

namespace distsetup {
namespace {

constexpr size_t kClasses = kNumBufferClasses;
using ByClass = std::array<int64_t, kClasses>;

size_t index(BufferClass c) { return static_cast<size_t>(c); }

std::vector<int64_t> run_buffer_bytes(const Schedule& s) {
  std::vector<int64_t> bytes;
  for (const Buffer& b : s.buffers)
    if (b.lifetime == BufferLifetime::kRun && b.place == Place::kDevice) bytes.push_back(b.bytes);
  return bytes;
}

int64_t largest_workspace(const Schedule& s, Accelerator accelerator) {
  int64_t most = 0;
  for (const Step& step : s.steps) most = std::max(most, workspace_bytes(step, s, accelerator));
  return most;
}

// Span bytes by class during each step: differences first, then sums.
std::vector<ByClass> span_bytes_by_class(const Schedule& s) {
  std::vector<ByClass> bytes(s.steps.size() + 1, ByClass{});
  for (const Buffer& b : s.buffers) {
    if (b.lifetime == BufferLifetime::kRun || b.overlay_of >= 0 || b.first_step < 0 || !is_on_device(b)) continue;
    bytes[static_cast<size_t>(b.first_step)][index(b.buffer_class)] += aligned(b.bytes);
    bytes[static_cast<size_t>(b.last_step) + 1][index(b.buffer_class)] -= aligned(b.bytes);
  }
  for (size_t n = 1; n < bytes.size(); ++n)
    for (size_t c = 0; c < kClasses; ++c) bytes[n][c] += bytes[n - 1][c];
  return bytes;
}

// What a reader calls the tensors and buffers that peaks are made of.
constexpr std::pair<std::string_view, std::string_view> kWords[] = {
    {"P", "gathered parameters"},
    {"G", "gradients"},
    {"A", "gradient accumulators"},
    {"R", "received gradients"},
    {"N", "gradients summed over a node"},
    {"S", "sums received of other nodes"},
    {"D", "gradients on their way to the host"},
    {"O", "matrices to be orthogonalised"},
    {"kept", "activations kept for backward"},
    {"x", "block inputs"},
    {"y", "block outputs"},
    {"gu", "gate and up"},
    {"m", "SwiGLU products"},
    {"h1", "normed inputs"},
    {"h1_all", "normed inputs of all tokens"},
    {"h2_all", "normed inputs of the MLP, of all tokens"},
    {"h2", "normed inputs of the MLP"},
    {"kv_all", "keys and values of all context-parallel ranks"},
    {"kv_seq", "keys and values of whole sequences"},
    {"kv", "keys and values of this rank"},
    {"att_sum", "attention outputs so far"},
    {"dq_sum", "gradients of queries so far"},
    {"dkv_seq", "gradients of keys and values of whole sequences"},
    {"qkv", "queries, keys, values"},
    {"att", "attention outputs"},
    {"z", "logits"},
    {"dz", "logit gradients"},
    {"dgu", "gradients of gate and up"},
};

// Bytes pass from tensor to tensor in place: the one that holds buffer `b` during `step`.
std::vector<int> holders_at(const Schedule& s, int step) {
  std::vector<int> holder(s.buffers.size());
  for (int b = 0; b < static_cast<int>(s.buffers.size()); ++b) holder[b] = b;
  for (int b = 0; b < static_cast<int>(s.buffers.size()); ++b) {
    const int root = root_buffer(s.buffers, b);
    if (root != b && s.buffers[b].first_step <= step && s.buffers[b].first_step > s.buffers[holder[root]].first_step) holder[root] = b;
  }
  return holder;
}

// "3/y" and "4/y" are one line, "y × 2": at a peak most bytes are many buffers of one kind.
std::vector<PeakBuffer> largest_buffers(const Schedule& s, int step) {
  struct BufferGroup {
    int64_t bytes = 0;
    int count = 0;
    std::string single;
  };
  std::map<std::string, BufferGroup> groups;
  const std::vector<int> holders = holders_at(s, step);
  for (int n = 0; n < static_cast<int>(s.buffers.size()); ++n) {
    const Buffer& b = s.buffers[n];
    if (b.lifetime == BufferLifetime::kRun || b.overlay_of >= 0 || b.first_step > step || b.last_step < step || !is_on_device(b))
      continue;
    const std::string& shown = s.buffers[holders[n]].name;
    const size_t slash = shown.find('/');
    const std::string kind = slash != std::string::npos ? shown.substr(slash + 1)
                             : b.unit >= 0              ? shown.substr(0, shown.find_first_of("0123456789"))
                                                        : shown;
    BufferGroup& g = groups[kind];
    g.bytes += aligned(b.bytes);
    g.count += 1;
    g.single = shown;
  }
  std::vector<PeakBuffer> out;
  for (const auto& [kind, g] : groups) {
    std::string text = g.count == 1 ? g.single : fmt::format("{} × {}", kind, g.count);
    for (const auto& [known, words] : kWords)
      if (known == kind) text += fmt::format(" ({})", words);
    out.push_back({std::move(text), g.bytes});
  }
  std::stable_sort(out.begin(), out.end(), [](const PeakBuffer& a, const PeakBuffer& b) { return a.bytes > b.bytes; });
  if (out.size() > 3) out.resize(3);
  return out;
}

struct Peak {
  int step = 0;
  int64_t bytes = 0;  // live + workspace
};

Peak find_peak(const Schedule& s, Accelerator accelerator) {
  Peak peak{0, -1};
  for (int n = 0; n < static_cast<int>(s.steps.size()); ++n) {
    const int64_t bytes = s.live_bytes[n] + workspace_bytes(s.steps[n], s, accelerator);
    if (bytes > peak.bytes) peak = {n, bytes};
  }
  return peak;
}

std::string describe_step(const Schedule& s, int n) {
  const Step& step = s.steps[n];
  const Instruction& i = s.instructions[step.instruction];
  std::string text(name(i.op));
  if (step.unit >= 0) text += fmt::format(" {}", step.unit);
  if (step.program_op != nullptr) text += "/" + step.op;
  if (i.micro_batch >= 0) text += fmt::format(" micro-batch {}", i.micro_batch);
  return text;
}

void fill_terms(MemoryPlan& m, const Schedule& s, const Peak& peak, int64_t max_workspace) {
  const std::vector<ByClass> span = span_bytes_by_class(s);
  for (size_t c = 0; c < kClasses; ++c) {
    const auto which = static_cast<BufferClass>(c);
    const int64_t always = run_bytes(s, which);
    MemoryTerm term{std::string(name(which)), always, -1, ""};
    if (which == BufferClass::kWorkspace) {
      term.bytes_at_peak = term.bytes_max = max_workspace;
      term.phase = s.instructions[s.steps[peak.step].instruction].phase;
    } else {
      term.bytes_at_peak += span[static_cast<size_t>(peak.step)][c];
      for (size_t n = 0; n < s.steps.size(); ++n) {
        if (always + span[n][c] <= term.bytes_max) continue;
        term.bytes_max = always + span[n][c];
        term.phase = s.instructions[s.steps[n].instruction].phase;
      }
    }
    if (term.bytes_max > 0) m.terms.push_back(std::move(term));
  }
  const int64_t packing = m.arena_bytes - s.live_bytes[peak.step];
  m.terms.push_back({"arena packing", packing, packing, s.instructions[s.steps[peak.step].instruction].phase});
}

void fill_phases(MemoryPlan& m, const Schedule& step, int64_t evaluate_bytes, Accelerator accelerator) {
  std::map<std::string, int64_t, std::less<>> by_phase;
  by_phase["load"] = m.run_bytes;
  for (size_t n = 0; n < step.steps.size(); ++n) {
    int64_t& most = by_phase[step.instructions[step.steps[n].instruction].phase];
    most = std::max(most, m.run_bytes + step.live_bytes[n] + workspace_bytes(step.steps[n], step, accelerator));
  }
  by_phase["evaluate"] = evaluate_bytes;
  by_phase["save"] = m.run_bytes;
  for (const std::string_view phase : replay::kPhaseNames)
    if (const auto it = by_phase.find(phase); it != by_phase.end()) m.by_phase.push_back({it->first, it->second});
  CHECK(m.by_phase.size() == by_phase.size(), "a phase without a place in the timeline");
}

}  // namespace

HostBytes host_bytes_of_rank(const Schedule& load, const Schedule& step, const Schedule& evaluate) {
  int64_t arena = 0;
  for (const Schedule* list : {&load, &step, &evaluate}) arena = std::max(arena, list->host_arena_bytes);
  return {host_bytes(evaluate) - evaluate.host_arena_bytes + arena, disk_bytes(evaluate)};
}

MemoryPlan packed_memory(const Plan& plan, const Schedule& step, const Schedule& evaluate) {
  const Accelerator accelerator = plan.hardware.accelerator;
  const Peak peak = find_peak(step, accelerator);
  MemoryPlan m;
  m.run_bytes = run_bytes(step);
  m.arena_bytes = std::max(step.arena_bytes, evaluate.arena_bytes);
  m.live_bytes = step.live_bytes[peak.step];
  m.workspace_bytes = largest_workspace(step, accelerator);
  m.peak_allocated_bytes = m.run_bytes + m.arena_bytes + m.workspace_bytes;
  m.device_bytes = device_bytes(plan, run_buffer_bytes(step), m.arena_bytes, m.workspace_bytes);
  const bool cpu = accelerator == Accelerator::kCpu;
  m.peak_reserved_bytes = cpu ? m.peak_allocated_bytes : m.device_bytes - plan.hardware.context_bytes - communicator_bytes(plan);
  m.capacity_bytes = plan.hardware.memory_bytes;
  m.peak_instruction = describe_step(step, peak.step);
  m.peak_buffers = largest_buffers(step, peak.step);
  fill_terms(m, step, peak, m.workspace_bytes);
  fill_phases(m, step, m.run_bytes + evaluate.live_peak_bytes + largest_workspace(evaluate, accelerator), accelerator);
  m.checkpoint_bytes = stored_bytes(plan.train, stored_sizes(*step.layout));  // without headers, some hundred bytes per tensor
  // Saving copies the shards of all ranks of a node to the host, beside training twice; on CPU they are there already.
  const int64_t copied = stored_bytes(plan.train, state_sizes(*step.layout)) * plan.hardware.gpus_per_node;
  const int copies = (plan.checkpoint.async ? 2 : 1) - (has_host_optimizer(plan) ? 1 : 0);  // saving reads it where it is
  m.host_bytes_per_node = cpu ? 0 : copies * copied;
  return m;
}

}  // namespace distsetup
