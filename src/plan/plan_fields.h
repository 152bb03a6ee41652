// Every field of a Plan, once: visited by the writer and the reader of plan.json, so neither can know a key the other does not.
#pragma once
#include <span>

#include "plan/model_fields.h"
#include "plan/plan.h"
#include "plan/plan_spellings.h"

namespace distsetup {

// clang-format off: a table, one group of fields per line
template <class V>
void visit(V& v, RatesPlan& r) {
  v("num_sm", r.num_sm);
  v("gemm_tiles", r.gemm_tiles);
  v("gemm_flops_per_s", r.gemm_flops_per_s);
  v("gemm_burst", r.gemm_burst);
  v("gemm_k_half", r.gemm_k_half);
  v("gemm_misaligned_share", r.gemm_misaligned_share);
  v("gemm_bytes_per_s", r.gemm_bytes_per_s);
  v("kernel_s", r.kernel_s);
  v("attention_forward_flops_per_s", r.attention_forward_flops_per_s);
  v("attention_backward_flops_per_s", r.attention_backward_flops_per_s);
  v("attention_half_positions", r.attention_half_positions);
  v("attention_small_head", r.attention_small_head);
  v("elementwise_bytes_per_s", r.elementwise_bytes_per_s);
  v("loss_bytes_per_logit", r.loss_bytes_per_logit);
  v("optimizer_bytes_per_s", r.optimizer_bytes_per_s);
  v("contention", r.contention);
  v("straggler", r.straggler);
}
template <class V>
void visit(V& v, HardwarePlan& h) {
  v("gpu", h.gpu);
  v("gpu_name", h.gpu_name);
  v("accelerator", h.accelerator);
  v("nodes", h.nodes);
  v("gpus_per_node", h.gpus_per_node);
  v("memory_bytes", h.memory_bytes);
  v("context_bytes", h.context_bytes);
  v("host_memory_bytes", h.host_memory_bytes);
  v("peak_flops_per_s", h.peak_flops_per_s);
  v("gemm_efficiency", h.gemm_efficiency);
  v("attention_efficiency", h.attention_efficiency);
  v("rates", h.rates);
  v("memory_bytes_per_s", h.memory_bytes_per_s);
  v("link_bytes_per_s", h.link_bytes_per_s);
  v("network_bytes_per_s", h.network_bytes_per_s);
  v("link_latency_s", h.link_latency_s);
  v("network_latency_s", h.network_latency_s);
  v("nic_kind", h.nic_kind);
  v("nic_bytes_per_s", h.nic_bytes_per_s);
  v("price_usd_per_gpu_hour", h.price_usd_per_gpu_hour);
  v("price_source", h.price_source);
}
template <class V>
void visit(V& v, Mesh& m) {
  v("pp", m.pp);
  v("dp_replicate", m.dp_replicate);
  v("dp_shard", m.dp_shard);
  v("cp", m.cp);
  v("tp", m.tp);
  v("ep", m.ep);
}
template <class V>
void visit(V& v, StrategyPlan& s) {
  v("trainer", s.trainer);
  v("program", s.program);
  v("loss_head", s.loss_head);
  v("compile", s.compile);
  v("sharding", s.sharding);
  v("reshard_after_forward", s.reshard_after_forward);
  v("prefetch", s.prefetch);
  v("reductions_in_flight", s.reductions_in_flight, 1);
  v("hierarchical_reduction", s.hierarchical_reduction, false);
  v("virtual_stages", s.virtual_stages);
  v("hpz", s.hpz);
  v("sequence_parallel", s.sequence_parallel);
  v("cp_method", s.cp_method);
  v("sync_each_batch", s.sync_each_batch, false);
  v("auto_wrap_policy", s.auto_wrap_policy, std::string(kWrapsBlocks));
  v("backward_prefetch", s.backward_prefetch, std::string(kPrefetchPre));
  v("overlap_grad_reduce", s.overlap_grad_reduce, true);
  v("overlap_param_gather", s.overlap_param_gather, true);
}
template <class V>
void visit(V& v, RecomputePlan& r) {
  v("policy", r.policy);
  v("every_k", r.every_k);
  v("dropped", r.dropped);
}
template <class V>
void visit(V& v, OffloadPlan& o) {
  v("optimizer", o.optimizer), v("optimizer_ratio", o.optimizer_ratio, 1.0), v("pin_memory", o.pin_memory, true);
  v("parameters", o.parameters);
  v("activations", o.activations);
}
template <class V>
void visit(V& v, HostPlan& h) {
  v("host_bytes", h.host_bytes);
  v("disk_bytes", h.disk_bytes, int64_t{0});
  v("copy_bytes_per_s", h.copy_bytes_per_s);
  v("update_bytes_per_s", h.update_bytes_per_s);
  v("disk_bytes_per_s", h.disk_bytes_per_s, 0.0);
}
template <class V>
void visit(V& v, PrecisionPlan& p) {
  v("compute", p.compute);
  if (p.compute == Dtype::kF16) {
    v("loss_scale", p.loss_scale.fixed);
    v("initial_scale_power", p.loss_scale.initial_power);
    v("loss_scale_window", p.loss_scale.window);
    v("hysteresis", p.loss_scale.hysteresis);
    v("min_loss_scale", p.loss_scale.minimum);
  }
  v("reduce", p.reduce);
  v("master", p.master);
  v("optimizer_state", p.optimizer_state);
}
template <class V>
void visit(V& v, TrainPlan& t) {
  v("method", t.method);
  if (learns_preferences(t)) {
    v("loss", t.preference.loss);
    v("beta", t.preference.beta);
    v("label_smoothing", t.preference.label_smoothing);
    v("reference", t.preference.reference);
  }
  v("finetune", t.finetune);
  v("init", t.init);
  v("lora_rank", t.lora_rank);
  v("lora_targets", t.lora_targets);
  v("lora_alpha", t.lora_alpha);
  v("lora_dropout", t.lora_dropout);
  v("rslora", t.rslora);
  v("trainable", t.trainable);
  v("sequence_length", t.sequence_length);
  v("global_batch", t.global_batch);
  v("steps", t.steps);
  v("optimizer", t.optimizer);
  v("lr_schedule", t.lr_schedule);
  v("learning_rate", t.learning_rate);
  v("min_learning_rate", t.min_learning_rate);
  v("warmup_steps", t.warmup_steps);
  v("lr_decay_steps", t.lr_decay_steps);
  v("lr_decay_factor", t.lr_decay_factor);
  v("weight_decay", t.weight_decay);
  v("beta1", t.beta1);
  v("beta2", t.beta2);
  v("epsilon", t.epsilon);
  if (t.optimizer == "sgd" || t.optimizer == kMuon) v("momentum", t.momentum);
  if (t.optimizer == kMuon) {
    v("nesterov", t.muon.nesterov);
    v("newton_schulz_steps", t.muon.newton_schulz_steps);
    v("adjust_lr", t.muon.adjust_lr);
    v("adam_learning_rate", t.muon.adam_learning_rate);
  }
  if (t.optimizer == kAdafactor) {
    v("beta2_decay", t.adafactor.beta2_decay);
    v("epsilon2", t.adafactor.epsilon2);
    v("clip_threshold", t.adafactor.clip_threshold);
  }
  v("grad_clip", t.grad_clip);
  v("on_nan", t.guard.on_nan);
  v("on_spike", t.guard.on_spike);
  if (t.guard.watches_spikes()) v("spike_factor", t.guard.spike_factor);
  if (t.guard.skips()) v("max_skips", t.guard.max_skips);
  v("evaluate_every", t.evaluate_every);
  v("patience", t.patience);
  v("seed", t.seed);
  v("deterministic", t.deterministic);
  v("cuda_graphs", t.cuda_graphs, false);
}
template <class V>
void visit(V& v, DataFile& f) {
  v("path", f.path);
  v("bytes", f.bytes);
  v("sha256", f.sha256);
  v("held_out", f.held_out);
}
template <class V>
void visit(V& v, DataPlan& d) {
  v("tokenizer", d.tokenizer);
  v("root", d.root);
  v("files", d.files);
  v("packing", d.packing);
  v("shuffle", d.shuffle, true);
}
template <class V>
void visit(V& v, WeightsFile& f) {
  v("path", f.path);
  v("bytes", f.bytes);
  v("header_sha256", f.header_sha256);
}
template <class V>
void visit(V& v, WeightsPlan& w) {
  v("directory", w.directory);
  v("files", w.files);
}
template <class V>
void visit(V& v, CheckpointPlan& c) {
  v("directory", c.directory);
  v("every_steps", c.every_steps);
  v("keep", c.keep);
  v("keep_every", c.keep_every);
  v("keep_best", c.keep_best);
  v("metric", c.metric);
  v("async", c.async);
}
template <class V>
void visit(V& v, LaunchPlan& l) {
  v("target", l.target);
  v("via", l.via);
  v("site", l.site);
  v("time_limit_s", l.time_limit_s);
  v("init_timeout_s", l.init_timeout_s);
  v("collective_timeout_s", l.collective_timeout_s);
}
template <class V>
void visit(V& v, MemoryTerm& t) {
  v("class", t.buffer_class);
  v("bytes_at_peak", t.bytes_at_peak);
  v("bytes_max", t.bytes_max);
  v("phase", t.phase);
}
template <class V>
void visit(V& v, PhaseMemory& p) {
  v("phase", p.phase);
  v("allocated_bytes", p.allocated_bytes);
}
template <class V>
void visit(V& v, PeakBuffer& b) {
  v("name", b.name);
  v("bytes", b.bytes);
}
template <class V>
void visit(V& v, MemoryPlan::RankClass& r) {
  v("name", r.name);
  v("device_bytes", r.device_bytes);
  v("host_bytes", r.host_bytes, int64_t{0});
}
template <class V>
void visit(V& v, MemoryPlan& m) {
  v("peak_allocated_bytes", m.peak_allocated_bytes);
  v("peak_reserved_bytes", m.peak_reserved_bytes);
  v("device_bytes", m.device_bytes);
  v("unconstrained_device_bytes", m.unconstrained_device_bytes);
  v("capacity_bytes", m.capacity_bytes);
  v("fit_probability", m.fit_probability);
  v("arena_bytes", m.arena_bytes);
  v("live_bytes", m.live_bytes);
  v("workspace_bytes", m.workspace_bytes);
  v("run_bytes", m.run_bytes);
  v("peak_instruction", m.peak_instruction);
  v("peak_buffers", m.peak_buffers);
  v("terms", m.terms);
  v("by_phase", m.by_phase);
  v("by_rank_class", m.by_rank_class);
  v("host_bytes_per_node", m.host_bytes_per_node);
  v("disk_bytes_per_node", m.disk_bytes_per_node, int64_t{0});
  v("checkpoint_bytes", m.checkpoint_bytes);
  v("device_low_bytes", m.device_low_bytes);
  v("device_high_bytes", m.device_high_bytes);
  v("unconstrained_low_bytes", m.unconstrained_low_bytes, int64_t{0});
  v("unconstrained_high_bytes", m.unconstrained_high_bytes, int64_t{0});
}
template <class V>
void visit(V& v, InstructionTime& t) {
  v("op", t.op);
  v("seconds", t.seconds);
}
template <class V>
void visit(V& v, TimePlan& t) {
  v("step_s", t.step_s);
  v("tokens_per_s", t.tokens_per_s);
  v("tokens_per_s_per_gpu", t.tokens_per_s_per_gpu);
  v("mfu", t.mfu);
  v("hfu", t.hfu);
  v("step_low_s", t.step_low_s);
  v("step_high_s", t.step_high_s);
  v("gpu_hours", t.gpu_hours);
  v("cost_usd", t.cost_usd);
  v("checkpoint_every_s", t.checkpoint_every_s);
  v("by_instruction", t.by_instruction);
}
template <class V>
void visit(V& v, Alternative& a) {
  v("summary", a.summary);
  v("verdict", a.verdict);
  v("device_bytes", a.device_bytes);
  v("fit_probability", a.fit_probability);
  v("step_s", a.step_s);
  v("why_not", a.why_not);
}
template <class V>
void visit(V& v, Location& l) {
  v("file", l.file);
  v("line", l.line);
  v("column", l.column);
}
template <class V>
void visit(V& v, Diagnostic& d) {
  v("code", d.code);
  v("severity", d.severity);
  v("location", d.location);
  v("length", d.length);
  v("message", d.message);
  v("help", d.help);
  v("replacement", d.replacement);
}
template <class V>
void visit(V& v, Plan& p) {
  v("verdict", p.verdict);
  v("model", p.model);
  v("hardware", p.hardware);
  v("mesh", p.mesh);
  v("strategy", p.strategy);
  v("micro_batch", p.micro_batch);
  v("gradient_accumulation", p.gradient_accumulation);
  v("recompute", p.recompute);
  v("offload", p.offload);
  if (offloads_natively(p)) v("host", p.host);
  v("precision", p.precision);
  v("train", p.train);
  v("weights", p.weights);
  v("adapter", p.adapter);
  v("data", p.data);
  v("checkpoint", p.checkpoint);
  v("launch", p.launch);
  v("memory", p.memory);
  v("time", p.time);
  v("alternatives", p.alternatives);
  v("reasons", p.reasons);
  v("assumptions", p.assumptions);
  v("diagnostics", p.diagnostics);
  v("inputs_digest", p.inputs_digest);
  v("schedule_digest", p.schedule_digest);
}

// clang-format on

}  // namespace distsetup
