// A table, not code: adding a setting is a row here and a line in resolve.
#include "planner/spec/spec_table.h"

#include <algorithm>
#include <cctype>

#include "base/names.h"
#include "plan/plan.h"
#include "planner/spec/loss_choices.h"
#include "planner/spec/optimizer_choices.h"
#include "planner/spec/run_choices.h"
#include "planner/spec/spec_key_makers.h"
#include "planner/spec/spec_run_keys.h"

namespace distsetup {
namespace {

using Type = SettingType;

const std::vector<SettingChoice> kSharding = {
    {"ddp", {"no_shard", "zero0", "0", "stage0", "data_parallel"}, "every rank keeps everything", ""},
    {"zero1", {"1", "stage1"}, "optimizer state is split", ""},
    {"zero2", {"2", "stage2", "shard_grad_op"}, "and gradients", ""},
    {"zero3", {"3", "stage3", "full_shard", "fsdp", "fsdp1", "fsdp2", "fully_shard"}, "and parameters", ""},
    {"hybrid_shard", {"hsdp", "hybrid"}, "zero3 inside a node, copies across nodes", ""},
    {"hybrid_shard_zero2", {"_hybrid_shard_zero2"}, "zero2 inside a node, copies across nodes", ""},
};
const std::vector<AmbiguousChoice> kShardingAmbiguous = {
    {"zero", "ZeRO has stages: write zero1, zero2 or zero3"},
    {"deepspeed", "it names a library, not what is split: write zero1, zero2 or zero3"},
    {"megatron", "it names a library, not what is split: write zero1 for its distributed optimizer"},
    {"shard", "it does not say what is split: write zero1, zero2 or zero3"},
    {"sharded", "it does not say what is split: write zero1, zero2 or zero3"},
    {"zpg",
     "in ZeRO++ it is a second copy of the parameters inside a node, elsewhere all states stay inside a node: write zero3 with "
     "hpz: <GPUs of a node>, or hybrid_shard"},
    {"hpz",
     "in ZeRO++ it is a second copy of the parameters inside a node, elsewhere all states stay inside a node: write zero3 with "
     "hpz: <GPUs of a node>, or hybrid_shard"},
};

const std::vector<SettingChoice> kRecompute = {
    {"none", {"no", "off", "false"}, "keep all that backward reads", ""},
    {"selective", {"sac"}, "drop what is cheap to compute again: norms, activation functions, products", ""},
    {"keep_attention", {}, "keep each block's input and what attention leaves", ""},
    {"full", {"true", "yes", "on"}, "keep only each block's input", ""},
    {"every_k", {}, "every_k:<k>: one block in k in full", ""},
};

const std::vector<SettingChoice> kCompute = {
    {"bf16", {"bfloat16", "bf16_mixed", "true", "mixed", "torch.bfloat16"}, "bf16 with fp32 master weights", ""},
    {"fp32", {"f32", "float32", "float", "32", "32_true", "full", "no", "false", "torch.float32"}, "fp32 throughout", ""},
    {"fp16", {"float16", "16_mixed", "fp16_mixed", "torch.float16"}, "fp16 with fp32 master weights and a loss scale", ""},
    {"fp8", {"float8", "transformer_engine"}, "fp8 matrix products, the rest bf16", "", "the trainer has no fp8 operations yet"},
    {"bf16_true",
     {"pure_bf16"},
     "",
     "without an fp32 master, updates below 2^-9 of a weight are lost; bf16 here keeps the fp32 master"},
};
const std::vector<AmbiguousChoice> kComputeAmbiguous = {
    {"16", "it is fp16 in one tool and bf16 in another: write bf16 or fp16"},
    {"half", "it is fp16 in PyTorch and any 16-bit type elsewhere: write bf16 or fp16"},
    {"16_true", "it is fp16 in one tool and bf16 in another: write bf16 or fp16"},
};

const std::vector<SettingChoice> kStored = {
    {"fp32", {"f32", "float32", "torch.float32"}, "", ""},
    {"bf16", {"bfloat16", "torch.bfloat16"}, "", "", "the trainer keeps this in fp32: in bf16 updates below 2^-9 of a value are lost"},
};

const std::vector<SettingChoice> kFinetune = {
    {"full", {"none"}, "all parameters", ""},
    {"lora", {}, "low-rank adapters beside a frozen model", ""},
    {"qlora", {}, "low-rank adapters on a frozen 4-bit model", ""},
    {"dora", {}, "", "the trainers that are planned for have no magnitudes beside adapters; take lora"},
};

constexpr std::string_view kNotPlanned = "it is not planned for any trainer; TRL, OpenRLHF and verl train so";

const std::vector<SettingChoice> kMethods = {
    {"pretrain", {"pretraining", "from_scratch"}, "next token on all tokens", ""},
    {"sft", {"finetune", "fine_tune", "supervised"}, "next token on answers", ""},
    {"dpo", {}, "preference pairs against a frozen reference", ""},
    {"kto", {"kto_pair"}, "", kNotPlanned},
    {"orpo", {}, "", kNotPlanned},
    {"simpo", {}, "", kNotPlanned},
    {"ppo", {"rlhf"}, "", kNotPlanned},
    {"grpo", {"gspo", "dapo", "rloo"}, "", kNotPlanned},
    {"reward", {"rm", "reward_model"}, "", kNotPlanned},
};

std::vector<SpecKey> make_keys() {
  std::vector<SpecKey> keys = {
      text_key("model", {{"model", ""}, {"hf-model", ""}, {"base-model", ""}, {"model-name", ""}, {"model-name-or-path", ""}},
               "required",
               "a size (70B), a preset (llama3_8b), a directory with config.json, or the id of a downloaded model (org/name)"),
      text_key("model.weights", {{"weights", ""}}, "the model's directory",
               "with init weights: a directory with safetensors, or the id of a downloaded model (org/name)"),

      text_key("hardware.gpu", {{"gpu", ""}, {"gpu-type", ""}}, "assumed: H100 SXM 80 GB",
               "kind of GPU: h100_sxm, H100-80GB, rtx_4090, cpu"),
      number(Type::kInt, "hardware.gpus_per_node",
             {{"gpus", ""}, {"gpus-per-node", ""}, {"num-gpus-per-node", ""}, {"nproc-per-node", ""}, {"devices", ""}}, "assumed: 8",
             "GPUs", {1, 1024}, "GPUs in one node; with a kind: 8xH100-80GB"),
      searched(number(Type::kInt, "hardware.nodes", {{"nodes", ""}, {"num-nodes", ""}, {"nnodes", ""}}, "", "nodes", {1, 100000},
                      "number of nodes; auto: the fewest that fit")),
      number(Type::kInt, "hardware.total_gpus", {{"total-gpus", ""}, {"world-size", ""}}, "nodes × gpus per node", "GPUs",
             {1, 10000000}, "GPUs of all nodes together"),
      text_key("hardware.machine", {{"machine", ""}}, "none",
               "a machine preset (dgx_h100): GPU, GPUs per node and network in one name"),
      number(Type::kBytes, "hardware.memory", {{"gpu-memory", ""}, {"vram", ""}}, "the GPU's", "", {1 << 20},
             "usable memory of one GPU, in place of the preset's"),
      number(Type::kShare, "hardware.margin", {{"margin", ""}, {"memory-margin", ""}}, "0%", "", {0, 0.9},
             "share of the memory that a plan leaves free: 5%"),
      number(Type::kDouble, "hardware.price", {{"price", ""}}, "the machine's, with its date", "USD", {0, 1e6},
             "price of one GPU for one hour"),
      choice("trainer.name", {{"trainer", ""}}, trainers(), kNative, "who runs the plan: its memory and time are planned", tools()),
      text_key("trainer.program", {{"program", ""}}, "the trainer's",
               "whose operations the blocks run: a name in presets/programs (hf_eager, torchtitan_compiled, te)"),
      choice("trainer.loss_head", {{"loss-head", ""}}, loss_heads(), "the trainer's", "how logits become a loss"),
      typed(Type::kBool, text_key("trainer.compile", {{"compile", "true"}, {"torch-compile", "true"}}, "false",
                                  "blocks compiled by torch.compile")),
      choice("trainer.attention", {{"attention", ""}, {"attn-implementation", ""}, {"attn-impl", ""}}, attention_kernels(), "sdpa",
             "which kernel computes attention (not the bundled trainer)"),

      choice("train.method", {{"method", ""}}, kMethods, "pretrain", "what the training does"),
      choice("train.loss", {{"loss", ""}, {"loss-type", ""}, {"dpo-loss", ""}}, pair_losses(), "sigmoid",
             "dpo: what a pair costs (bundled trainer)"),
      number(Type::kDouble, "train.beta", {{"beta", ""}, {"dpo-beta", ""}, {"pref-beta", ""}}, "0.1", "", {1e-6, 1e6},
             "dpo: how closely the model is held to the reference (bundled trainer)"),
      number(Type::kDouble, "train.label_smoothing", {{"label-smoothing", ""}}, "0", "", {0, 0.4999999},
             "dpo, sigmoid: share of the pairs whose order is taken to be wrong (bundled trainer)"),
      choice("train.reference", {{"reference", ""}}, references(), "cached", "dpo: what the model is compared with (bundled trainer)"),
      also(choice("train.finetune", {{"finetune", ""}, {"adapter", ""}}, kFinetune, "full", "which parameters are trained"),
           {"adapter.kind"}),
      choice("train.init", {{"init", ""}},
             {{kRandomInit, {"scratch"}, "random values, from the seed", ""},
              {kWeightsInit, {"pretrained"}, "published weights: those of model.weights", ""}},
             kRandomInit,
             "initial parameters (bundled trainer); weights where they are given, and for sft and dpo of a model with some"),
      also(number(Type::kInt, "train.lora_rank", {{"lora-rank", ""}, {"lora-r", ""}}, "16 with lora", "", {1, 65536},
                  "rank of the adapters"),
           {"adapter.rank"}),
      also(typed(Type::kList,
                 text_key("train.lora_targets", {{"lora-targets", ""}, {"lora-target", ""}, {"lora-target-modules", ""}}, "all linear",
                          "modules with adapters: q_proj, v_proj, all-linear; or query, key, value, output, gate, up, down")),
           {"adapter.targets"}),
      also(typed(Type::kList, text_key("train.trainable", {{"trainable", ""}, {"unfrozen-parameters", ""}}, "all parameters",
                                       "patterns of parameter names: what none matches is frozen (bundled trainer)")),
           {"unfrozen_parameters", "train.unfrozen_parameters"}),
      number(Type::kInt, "train.sequence_length",
             {{"sequence-length", ""},
              {"seq", ""},
              {"seq-len", ""},
              {"seq-length", ""},
              {"max-seq-length", ""},
              {"max-len", ""},
              {"block-size", ""}},
             "4096", "tokens", {1, 1e7}, "tokens of one sequence; 8k is 8,192"),
      number(Type::kInt, "train.global_batch", {{"global-batch", ""}, {"global-batch-size", ""}, {"train-batch-size", ""}},
             "from global_batch_tokens", "sequences", {1, 1e9}, "sequences (dpo: pairs) per optimizer step, over all GPUs"),
      number(Type::kInt, "train.global_batch_tokens", {{"global-batch-tokens", ""}, {"tokens-per-step", ""}}, "1048576", "tokens",
             {1, 1e12}, "tokens per optimizer step, over all GPUs; of sft and dpo fewer are assumed"),
      number(Type::kInt, "train.steps", {{"steps", ""}, {"max-steps", ""}, {"train-steps", ""}}, "1000", "steps", {1, 1e12},
             "optimizer steps"),
      number(Type::kInt, "train.total_tokens", {{"total-tokens", ""}, {"tokens", ""}}, "from steps", "tokens", {1, 1e18},
             "tokens of the whole run, in place of steps: 15T"),
      number(Type::kInt, "train.samples", {{"samples", ""}, {"num-samples", ""}}, "from steps", "sequences", {1, 1e15},
             "sequences of one epoch, in place of steps"),
      number(Type::kDouble, "train.epochs", {{"epochs", ""}, {"num-epochs", ""}, {"num-train-epochs", ""}}, "1", "", {1e-6, 1e6},
             "passes over the samples, or over the text of data.paths"),
      choice("train.optimizer", {{"optimizer", ""}, {"optim", ""}}, optimizer_choices(), "adamw", "optimizer"),
      number(Type::kDouble, "train.learning_rate", {{"learning-rate", ""}, {"lr", ""}, {"max-lr", ""}}, "3e-4", "", {0, 10},
             "peak learning rate; where none is given by method: sft 2e-5, dpo 1e-6, with adapters ten times that"),
      number(Type::kDouble, "train.min_learning_rate", {{"min-learning-rate", ""}, {"min-lr", ""}},
             "cosine: a tenth of the peak; others: 0", "", {0, 10}, "where the learning rate ends, and what it never falls below"),
      choice("train.lr_schedule", {{"lr-schedule", ""}, {"lr-scheduler", ""}, {"lr-scheduler-type", ""}, {"lr-decay-style", ""}},
             {{"cosine", {"cosine_with_min_lr"}, "half a cosine from the peak down to the minimum", ""},
              {"linear", {}, "a straight line down to the minimum", ""},
              {"constant", {"constant_with_warmup"}, "the peak to the end", ""},
              {"wsd", {"warmup_stable_decay"}, "the peak, and in the last lr_decay_steps a straight line down to the minimum", ""},
              {"inverse_sqrt", {"inverse_square_root"}, "falls with the square root of the step", ""},
              {"step", {"step_lr"}, "times lr_decay_factor every lr_decay_steps", ""}},
             "cosine", "how the learning rate goes on after the warm-up"),
      number(Type::kInt, "train.lr_decay_steps", {{"lr-decay-steps", ""}, {"wsd-decay-steps", ""}},
             "wsd: a tenth of the steps; step: a third", "steps", {1, 1e12},
             "wsd: the steps at the end in which the rate falls; step: the steps between two falls"),
      number(Type::kDouble, "train.lr_decay_factor", {{"lr-decay-factor", ""}, {"lr-gamma", ""}}, "0.1", "", {0, 1},
             "step: what each fall multiplies the learning rate by"),
      number(Type::kInt, "train.warmup_steps", {{"warmup-steps", ""}, {"warmup", ""}, {"lr-warmup-steps", ""}},
             "100, at most a tenth of the steps", "steps", {0, 1e12}, "linear warm-up"),
      number(Type::kDouble, "train.warmup_ratio", {{"warmup-ratio", ""}}, "none", "", {0, 1},
             "linear warm-up as a part of the steps, in place of warmup_steps"),
      number(Type::kDouble, "train.weight_decay", {{"weight-decay", ""}}, "0.1", "", {0, 10},
             "on matrices, not on norms and biases; sft, dpo, adapters, SGD, Lion and Adafactor: 0"),
      number(Type::kDouble, "train.beta1", {{"beta1", ""}, {"adam-beta1", ""}}, "0.9", "", {0, 0.9999999}, "first decay rate"),
      number(Type::kDouble, "train.beta2", {{"beta2", ""}, {"adam-beta2", ""}}, "0.95", "", {0, 0.9999999},
             "second decay rate; sft, dpo and adapters: 0.999; Lion: 0.99"),
      number(Type::kDouble, "train.epsilon", {{"epsilon", ""}, {"adam-epsilon", ""}}, "1e-8", "", {0, 1},
             "AdamW's epsilon; adafactor: 1.1920929e-7, of its means"),
      number(Type::kDouble, "train.momentum", {{"momentum", ""}}, "0", "", {0, 0.9999999},
             "of sgd and muon, which has 0.95 where none is given (bundled trainer)"),
      typed(Type::kBool, text_key("train.nesterov", {{"nesterov", "true"}, {"no-nesterov", "false"}}, "true",
                                  "muon: the gradient counts once more beside the momentum (bundled trainer)")),
      number(Type::kInt, "train.newton_schulz_steps", {{"newton-schulz-steps", ""}, {"ns-steps", ""}}, "5", "", {1, 99},
             "muon: steps that orthogonalise a matrix (bundled trainer)"),
      choice("train.adjust_lr", {{"adjust-lr", ""}},
             {{kMatchAdamW, {"match_rms"}, "0.2 times the root of the larger side: AdamW's rates fit", ""},
              {kOriginalRate, {}, "the root of rows / columns, at least 1", ""}},
             kMatchAdamW, "muon: what the rate of a matrix is multiplied by (bundled trainer)"),
      number(Type::kDouble, "train.adam_learning_rate", {{"adam-learning-rate", ""}, {"adam-lr", ""}}, "3e-4", "", {0, 10},
             "muon: peak rate of the AdamW that has the rest; learning_rate where none is given (bundled trainer)"),
      number(Type::kDouble, "train.beta2_decay", {{"beta2-decay", ""}}, "-0.8", "", {-10, 0},
             "adafactor: step t forgets t^beta2_decay of its means (bundled trainer)"),
      number(Type::kDouble, "train.epsilon2", {{"epsilon2", ""}}, "1e-3", "", {0, 1},
             "adafactor: least size of a parameter that its update is scaled by (bundled trainer)"),
      number(Type::kDouble, "train.clip_threshold", {{"clip-threshold", ""}}, "1", "", {1, 1e9},
             "adafactor: largest root mean square of an update (bundled trainer)"),
      number(Type::kDouble, "train.grad_clip",
             {{"grad-clip", ""}, {"gradient-clipping", ""}, {"max-grad-norm", ""}, {"max-norm", ""}, {"clip", ""}}, "1.0", "",
             {0, 1e9}, "largest gradient norm; 0: no clipping"),
      choice("train.on_nan", {{"on-nan", ""}}, nan_answers(), kStop,
             "when the loss or the gradient norm is not finite (bundled trainer)"),
      choice("train.on_spike", {{"on-spike", ""}}, spike_answers(), kIgnore,
             "when the loss is spike_factor times the median of the last 64 (bundled trainer)"),
      number(Type::kDouble, "train.spike_factor", {{"spike-factor", ""}}, "2", "", {1, 1e6},
             "with on_spike: a loss above so many medians is a spike (bundled trainer)"),
      number(Type::kInt, "train.max_skips", {{"max-skips", ""}}, "10", "steps", {1, 1e9},
             "with on_nan or on_spike skip: so many skipped steps in a row end the run (bundled trainer)"),
      number(Type::kInt, "train.evaluate_every",
             {{"evaluate-every", ""}, {"eval-steps", ""}, {"eval-interval", ""}, {"eval-every", ""}}, "a tenth of the steps", "steps",
             {1, 1e12}, "steps between two evaluations of held-out data (bundled trainer)"),
      number(Type::kInt, "train.patience", {{"patience", ""}, {"early-stopping-patience", ""}}, "none", "evaluations", {1, 1e9},
             "the run ends after so many evaluations without a smaller held-out loss (bundled trainer)"),
      number(Type::kInt, "train.seed", {{"seed", ""}}, "0", "", {0, 9e15}, "seed of initial weights and data order"),
      typed(Type::kBool, text_key("train.deterministic", {{"deterministic", "true"}}, "false",
                                  "on GPUs: every run gives the same bits, attention is slower (bundled trainer)")),

      number(Type::kDouble, "adapter.alpha", {{"lora-alpha", ""}}, "twice the rank", "", {1e-6, 1e6},
             "adapters are scaled by alpha / rank (bundled trainer)"),
      typed(Type::kBool, text_key("adapter.rslora", {{"rslora", "true"}, {"use-rslora", "true"}}, "false",
                                  "adapters are scaled by alpha / sqrt(rank) (bundled trainer)")),
      choice("adapter.dropout", {{"lora-dropout", ""}}, {{"0", {"0.0", "none"}, "none", ""}}, "0",
             "dropout on adapters: there is none, so that every mesh trains alike"),
      text_key("adapter.from", {{"adapter-from", ""}, {"lora-model-dir", ""}}, "none",
               "a folder of PEFT's that the adapters start from, with its rank, alpha and targets (bundled trainer)"),

      searched(
          choice("parallel.sharding",
                 {{"sharding", ""}, {"sharding-strategy", ""}, {"fsdp-sharding-strategy", ""}, {"zero-stage", ""}, {"strategy", ""}},
                 kSharding, "", "what the data-parallel ranks split", kShardingAmbiguous)),
      searched(typed(Type::kBool, text_key("parallel.reshard_after_forward",
                                           {{"reshard-after-forward", "true"}, {"fsdp-reshard-after-forward", "true"}}, "",
                                           "zero3: free a unit's parameters after its forward"))),
      number(Type::kInt, "parallel.prefetch", {{"prefetch", ""}}, "1", "units", {0, kMostInFlight},
             "zero3: parameters gathered ahead of the unit that computes (bundled trainer)"),
      number(Type::kInt, "parallel.reductions_in_flight", {{"reductions-in-flight", ""}}, "1", "units", {1, kMostInFlight},
             "gradients under way at once while units below run backward (bundled trainer)"),
      searched(number(Type::kInt, "parallel.dp_replicate", {{"dp-replicate", ""}, {"dp-replicate-size", ""}}, "", "ranks", {1, 1e7},
                      "copies of the shard group")),
      searched(number(Type::kInt, "parallel.dp_shard", {{"dp-shard", ""}, {"dp-shard-size", ""}}, "", "ranks", {1, 1e7},
                      "ranks that split the states")),
      searched(number(Type::kInt, "parallel.cp",
                      {{"cp", ""}, {"context-parallel", ""}, {"context-parallel-size", ""}, {"ring-size", ""}, {"ring-attn-size", ""}},
                      "", "ranks", {1, 1e6}, "context parallel")),
      searched(choice("parallel.cp_method", {{"cp-method", ""}},
                      {{"ring", {}, "", ""}, {"ulysses", {}, "", ""}, {"allgather", {}, "", ""}}, "",
                      "how context-parallel ranks exchange keys and values")),
      searched(number(Type::kInt, "parallel.tp",
                      {{"tp", ""},
                       {"tensor-parallel", ""},
                       {"tensor-parallel-size", ""},
                       {"tensor-model-parallel-size", ""},
                       {"fsdp-tensor-parallel-size", ""},
                       {"tp-size", ""}},
                      "", "ranks", {1, 1e6}, "tensor parallel")),
      searched(typed(Type::kBool, text_key("parallel.sequence_parallel", {{"sequence-parallel", "true"}}, "",
                                           "with tp: split norms and residuals over the sequence"))),
      searched(number(Type::kInt, "parallel.pp",
                      {{"pp", ""}, {"pipeline-parallel", ""}, {"pipeline-parallel-size", ""}, {"pipeline-model-parallel-size", ""}},
                      "", "stages", {1, 1e6}, "pipeline parallel")),
      searched(number(Type::kInt, "parallel.virtual_stages", {{"virtual-stages", ""}}, "", "stages", {1, 1000},
                      "pipeline stages of one rank, interleaved")),
      searched(number(Type::kInt, "parallel.hpz", {{"hpz", ""}, {"zero-hpz-partition-size", ""}, {"hpz-partition-size", ""}}, "",
                      "ranks", {1, 1e6}, "DeepSpeed: ranks that share a second copy of the parameters (ZeRO++ hpZ); 1: none")),
      searched(number(Type::kInt, "parallel.ep",
                      {{"ep", ""}, {"expert-parallel", ""}, {"expert-parallel-size", ""}, {"expert-model-parallel-size", ""}}, "",
                      "ranks", {1, 1e6}, "expert parallel")),
      searched(number(Type::kInt, "parallel.micro_batch",
                      {{"micro-batch", ""},
                       {"micro-batch-size", ""},
                       {"batch-size", ""},
                       {"per-device-train-batch-size", ""},
                       {"micro-train-batch-size", ""},
                       {"train-micro-batch-size-per-gpu", ""},
                       {"mbs", ""}},
                      "", "sequences", {1, 1e9}, "sequences per GPU per forward")),
      searched(number(Type::kInt, "parallel.gradient_accumulation",
                      {{"gradient-accumulation", ""},
                       {"gradient-accumulation-steps", ""},
                       {"grad-accum-steps", ""},
                       {"accumulation", ""},
                       {"accumulate-grad-batches", ""}},
                      "", "micro-batches", {1, 1e9}, "micro-batches per optimizer step")),
      searched(choice("parallel.recompute",
                      {{"recompute", ""},
                       {"gradient-checkpointing", "full"},
                       {"activation-checkpointing", "full"},
                       {"fsdp-activation-checkpointing", "full"}},
                      kRecompute, "", "what backward computes again")),
      choice("parallel.offload.optimizer", {{"offload-optimizer", "host"}, {"adam-offload", "host"}}, offload_places(), "none",
             "where optimizer state lives"),
      number(Type::kDouble, "parallel.offload.optimizer_ratio", {{"offload-optimizer-ratio", ""}}, "1", "", {0, 1},
             "share of the optimizer state that moves (DeepSpeed stage 3)"),
      choice("parallel.offload.parameters", {{"offload-parameters", "host"}, {"offload-param", "host"}, {"offload-params", "host"}},
             offload_places(), "none", "where parameter shards live"),
      choice("parallel.offload.activations", {{"offload-activations", "host"}}, offload_places(), "none",
             "where saved activations wait"),

      choice("precision.compute",
             {{"precision", ""},
              {"compute", ""},
              {"mixed-precision", "bf16"},
              {"dtype", ""},
              {"compute-dtype", ""},
              {"bf16", "bf16"},
              {"fp16", "fp16"}},
             kCompute, "bf16", "type of activations and matrix products", kComputeAmbiguous),
      number(Type::kInt, "precision.loss_scale", {{"loss-scale", ""}}, "0", "", {0, 1e15},
             "fp16: what the loss is multiplied by; 0: it doubles and halves as gradients overflow or do not"),
      number(Type::kInt, "precision.initial_scale_power", {{"initial-scale-power", ""}}, "16", "", {0, 60},
             "fp16: the loss scale begins at two to this power"),
      number(Type::kInt, "precision.loss_scale_window", {{"loss-scale-window", ""}}, "1000", "steps", {1, 1e9},
             "fp16: so many steps without overflow double the loss scale"),
      number(Type::kInt, "precision.hysteresis", {{"hysteresis", ""}}, "2", "overflows", {1, 1e6},
             "fp16: so many overflows halve the loss scale"),
      number(Type::kInt, "precision.min_loss_scale", {{"min-loss-scale", ""}}, "1", "", {1, 1e15}, "fp16: the smallest loss scale"),
      choice("precision.reduce", {{"reduce-dtype", ""}}, kStored, "fp32", "type in which gradients are summed"),
      choice("precision.master", {{"master-dtype", ""}}, kStored, "fp32", "type of the master weights"),
      choice("precision.optimizer_state", {{"optimizer-state-dtype", ""}}, kStored, "fp32", "type of the moments"),
  };
  add_run_keys(keys);
  for (SpecKey& key : keys) {
    key.env = "DISTSETUP_";
    for (char c : key.flags.front().name) key.env += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return keys;
}

const std::vector<SpecKey>& all_keys() {
  static const std::vector<SpecKey> keys = make_keys();
  return keys;
}

}  // namespace

std::span<const SpecKey> spec_keys() { return all_keys(); }

}  // namespace distsetup
