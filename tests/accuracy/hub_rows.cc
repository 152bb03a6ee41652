// Code bases on Transformers' modules, and scripts, as their users would describe them: what the page or the script of a run says, and
// nothing that was learned from what it measured. tinyllama (whyNLP), Stanford Alpaca, FastChat, Unsloth's notebooks, gradproj,
// memopro's harness, ColossalAI's benchmark of PyTorch Lightning, OKE's benchmark, nanoGPT, a study of GPT-2.
#include "planner/resolve/releases.h"
#include "row_setup.h"

namespace distsetup::accuracy {
namespace {

// alpaca: 177.9 +- 126.4 tokens, at least 26 (tune_rows.cc).
constexpr SampleLengths kAlpaca{177.9, 126.4, 26, true};

bool begins(const Row& row, std::string_view name) { return row.text("framework").starts_with(name); }

// Kernels in the place of norms, rotation, SwiGLU and loss.
void fused_kernels(Setup& s) {
  s.fused_norm = s.fused_rope = s.fused_swiglu = true;
  s.loss = LossHead::kFusedKernel;
}

void tinyllama(Setup& s) {
  constexpr int64_t kBucket = 200000000;  // ds_config.json
  s.software.released = 202311;
  s.flash_package = 2;
  fused_kernels(s);
  if (s.framework == Framework::kDeepspeed) s.reduce_bucket_elements = kBucket;
}

// FSDP of the Trainer of 2023 over fp32 weights, under no_sync (trainer.py of 4.28, _no_sync_in_gradient_accumulation).
void chat(Setup& s, const Row& row) {
  s.software.accumulates_whole = s.gradient_accumulation > 1 && s.framework == Framework::kFsdp1;
  s.software.released = date_in(row.text("notes"));
  s.loss = LossHead::kHfShift;
  if (begins(row, "Stanford Alpaca")) s.sample_lengths = kAlpaca;
}

// Its checkpoints are kept on the host.
void unsloth(Setup& s, const Row& row) {
  fused_kernels(s);
  if (row.says("notes", "cut cross entropy")) s.loss = LossHead::kCutCrossEntropy;  // since 2024-11
  s.software.released = date_in(row.text("notes"));
  s.frozen_dtype = Dtype::kNf4Double;
  s.lora.dtype = Dtype::kBf16;
  s.offload.activations = OffloadPlace::kHost;
  s.recompute = ActivationRecompute::kFull;
  if (row.says("notes", "alpaca")) s.sample_lengths = kAlpaca;
}

void gradproj(Setup& s) {
  s.software.released = 202601;
  s.autocast = true;
  s.loss = LossHead::kEager;
  if (s.finetune != Finetune::kFull) s.frozen_dtype = Dtype::kF32;
}

void memopro(Setup& s) {
  s.software.released = 202609;
  s.autocast = false;
  s.loss = LossHead::kEager;
  s.reentrant_checkpoint = s.finetune != Finetune::kFull;
}

// Lightning's DeepSpeedStrategy: buckets of 200 million elements.
void lightning(Setup& s) {
  constexpr int64_t kBucket = 200000000, kPrefetch = 50000000;
  s.software.released = 202211;
  s.loss = LossHead::kLowPrecision;  // GPT-2 leaves its logits in 16 bits
  if (s.framework != Framework::kDeepspeed) {
    s.autocast = true;
    return;
  }
  s.reduce_bucket_elements = kBucket;
  s.prefetch_bucket_elements = kPrefetch;
  s.offload.pin_memory = s.offload == OffloadPlan{};  // Lightning's DeepSpeedStrategy leaves it off
}

}  // namespace

bool is_hub_row(const Row& row) {
  return begins_any(row, {"tinyllama (", "Stanford Alpaca", "FastChat", "Unsloth (", "gradproj", "memopro", "PL benchmark"});
}

Result<Setup> hub_row(const Row& row) {
  Result<Setup> setup = trainer_row(row);
  if (!setup) return setup;
  Setup& s = *setup;
  if (begins(row, "tinyllama")) tinyllama(s);
  if (begins(row, "Stanford Alpaca") || begins(row, "FastChat")) chat(s, row);
  if (begins(row, "Unsloth")) unsloth(s, row);
  if (begins(row, "gradproj")) gradproj(s);
  if (begins(row, "memopro")) memopro(s);
  if (begins(row, "PL benchmark")) lightning(s);
  set_release(s, built_in_releases("transformers"), s.software.released * 100 + 1);
  return setup;
}

}  // namespace distsetup::accuracy
