// FSDP and DeepSpeed configuration files: keys, order, values; what has no form is refused.
#include <catch2/catch.hpp>

#include "base/diagnostic_codes.h"
#include "base/json.h"
#include "codegen/tables/configs.h"
#include "support/emitted.h"

using namespace distsetup;

namespace {

using Ordered = nlohmann::ordered_json;

Ordered parsed(const FsdpOptions& options) {
  const Result<Artifact> written = fsdp_config(options);
  INFO(messages(written.diagnostics));
  REQUIRE(written.ok());
  return Ordered::parse(written->text);
}

Ordered classic(FsdpOptions options = {}) {
  options.dialect = FsdpDialect::kClassic;
  return parsed(options);
}

std::vector<std::string> keys(const Ordered& json) {
  std::vector<std::string> out;
  for (const auto& item : json.items()) out.push_back(item.key());
  return out;
}

Ordered deepspeed(const DeepspeedOptions& options) {
  const Result<Artifact> written = deepspeed_config(options);
  INFO(messages(written.diagnostics));
  REQUIRE(written.ok());
  return Ordered::parse(written->text);
}

std::string refusal(const Result<Artifact>& result) {
  REQUIRE_FALSE(result.ok());
  return messages(result.diagnostics);
}

int count(const Diagnostics& diagnostics, std::string_view code) {
  int n = 0;
  for (const Diagnostic& diagnostic : diagnostics) n += diagnostic.code == code;
  return n;
}

}  // namespace

TEST_CASE("codegen: classic fsdp JSON has the eleven keys in order with their values") {
  const Ordered expected = Ordered::parse(R"({
    "fsdp_transformer_layer_cls_to_wrap": ["LlamaDecoderLayer", "MistralDecoderLayer", "GemmaDecoderLayer"],
    "fsdp_sharding_strategy": "FULL_SHARD", "fsdp_state_dict_type": "SHARDED_STATE_DICT", "fsdp_cuda_graphs": false,
    "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "fsdp_sync_module_states": true, "fsdp_use_orig_params": false,
    "fsdp_backward_prefetch_policy": "BACKWARD_PRE", "fsdp_forward_prefetch": false, "fsdp_cpu_ram_efficient_loading": true,
    "fsdp_mixed_precision": "BFLOAT16"})");
  const Ordered written = classic();
  CHECK(keys(written) == keys(expected));
  CHECK(written == expected);
}

TEST_CASE("codegen: every spelling of the fsdp flags lands on the dialect's own") {
  FsdpOptions options;
  const std::pair<const char*, const char*> kShardings[] = {
      {"FULL_SHARD", "FULL_SHARD"}, {"full-shard", "FULL_SHARD"}, {"fsdp", "FULL_SHARD"},          {"SHARD_GRAD_OP", "SHARD_GRAD_OP"},
      {"zero2", "SHARD_GRAD_OP"},   {"NO_SHARD", "NO_SHARD"},     {"HYBRID_SHARD", "HYBRID_SHARD"}};
  for (const auto& [given, written] : kShardings) {
    options.sharding_strategy = given;
    CHECK(classic(options)["fsdp_sharding_strategy"] == written);
  }
  options = {};
  const std::pair<const char*, const char*> kPrecisions[] = {{"FULL", "FULL"}, {"no", "FULL"}, {"FP16", "FP16"}, {"bf16", "BFLOAT16"}};
  for (const auto& [given, written] : kPrecisions) {
    options.mixed_precision = given;
    CHECK(classic(options)["fsdp_mixed_precision"] == written);
  }
  options = {};
  const std::pair<const char*, const char*> kCheckpoints[] = {{"FULL_CHECKPOINT", "FULL_STATE_DICT"},
                                                              {"LOCAL_CHECKPOINT", "LOCAL_STATE_DICT"}};
  for (const auto& [given, written] : kCheckpoints) {
    options.checkpoint_strategy = given;
    CHECK(classic(options)["fsdp_state_dict_type"] == written);
  }
}

TEST_CASE("codegen: regression 12: an unknown value of a choice is an error, never a default") {
  FsdpOptions options;
  options.mixed_precision = "bfloat";
  CHECK(contains(refusal(fsdp_config(options)), "--mixed-precision 'bfloat' is not known"));
  options = {};
  options.sharding_strategy = "FULL_SHRD";
  CHECK(contains(refusal(fsdp_config(options)), "did you mean 'FULL_SHARD'"));
  CHECK_FALSE(fsdp_dialect("yaml").ok());
  DeepspeedOptions stage;
  stage.zero_stage = 4;
  CHECK(contains(refusal(deepspeed_config(stage)), "expected 0, 1, 2 or 3"));
}

TEST_CASE("codegen: the classic dialect says which of its keys nobody reads") {
  FsdpOptions classic;
  classic.dialect = FsdpDialect::kClassic;
  const Result<Artifact> written = fsdp_config(classic);
  REQUIRE(written.ok());
  CHECK(count(written.diagnostics, code::kKeyNotRead) == 3);
  for (const char* key : {"fsdp_cuda_graphs", "fsdp_backward_prefetch_policy", "fsdp_mixed_precision"}) {
    CHECK(contains(messages(written.diagnostics), key));
  }
  FsdpOptions accelerate;
  accelerate.dialect = FsdpDialect::kAccelerate;
  CHECK(count(fsdp_config(accelerate).diagnostics, code::kKeyNotRead) == 0);
}

TEST_CASE("codegen: without a dialect the file is accelerate's, with the choices of the classic one under today's names") {
  CHECK(*fsdp_dialect("") == FsdpDialect::kAccelerate);
  CHECK(*fsdp_dialect("classic") == FsdpDialect::kClassic);
  CHECK(*fsdp_dialect("trainer") == FsdpDialect::kTrainer);
  FsdpOptions options;
  options.as_json = true;
  const Result<Artifact> written = fsdp_config(options);
  REQUIRE(written.ok());
  for (const Diagnostic& said : written.diagnostics) CHECK(said.severity == Severity::kNote);
  const Ordered json = Ordered::parse(written->text), old = classic();
  const Ordered& fsdp = json["fsdp_config"];
  CHECK(json["distributed_type"] == "FSDP");
  CHECK(json["mixed_precision"] == "bf16");
  CHECK(json["num_processes"] == 8);
  CHECK(fsdp["fsdp_version"] == 1);
  CHECK(fsdp["fsdp_backward_prefetch"] == old["fsdp_backward_prefetch_policy"]);
  for (const char* key : {"fsdp_sharding_strategy", "fsdp_state_dict_type", "fsdp_auto_wrap_policy", "fsdp_sync_module_states",
                          "fsdp_use_orig_params", "fsdp_forward_prefetch", "fsdp_cpu_ram_efficient_loading"}) {
    INFO(key);
    CHECK(fsdp[key] == old[key]);
  }
  CHECK_FALSE(fsdp.contains("fsdp_transformer_layer_cls_to_wrap"));  // a class that the model lacks would stop accelerate
}

TEST_CASE("codegen: accelerate YAML, FSDP version 2 and version 1") {
  FsdpOptions options;
  options.dialect = FsdpDialect::kAccelerate;
  options.version = 2;
  options.layer_classes = {"Qwen3DecoderLayer"};
  options.nodes = 2;
  options.gpus_per_node = 8;
  const std::string two = fsdp_config(options)->text;
  for (const char* line : {"distributed_type: FSDP\n", "\n  fsdp_version: 2\n", "\n  fsdp_reshard_after_forward: true\n",
                           "num_processes: 16\n", "num_machines: 2\n", "fsdp_transformer_layer_cls_to_wrap: Qwen3DecoderLayer\n",
                           "mixed_precision: bf16\n", "downcast_bf16: 'no'\n"}) {
    INFO(line);
    CHECK(contains(two, line));
  }
  for (const char* gone :
       {"fsdp_sharding_strategy", "backward_prefetch", "use_orig_params", "sync_module_states", "parallelism_config"}) {
    CHECK_FALSE(contains(two, gone));
  }
  options.version = 1;
  const std::string one = fsdp_config(options)->text;
  for (const char* line : {"\n  fsdp_version: 1\n", "\n  fsdp_sharding_strategy: FULL_SHARD\n", "\n  fsdp_sync_module_states: true\n"})
    CHECK(contains(one, line));
  CHECK_FALSE(contains(one, "reshard_after_forward"));
  options.mixed_precision = "no";
  CHECK(contains(fsdp_config(options)->text, "mixed_precision: 'no'\n"));
}

TEST_CASE("codegen: hybrid sharding under FSDP version 2 is a mesh, and needs the cluster's size") {
  FsdpOptions options;
  options.dialect = FsdpDialect::kAccelerate;
  options.version = 2;
  options.sharding_strategy = "HYBRID_SHARD";
  CHECK(contains(refusal(fsdp_config(options)), "give --nodes and --gpus"));
  options.nodes = 4;
  options.gpus_per_node = 8;
  const std::string text = fsdp_config(options)->text;
  CHECK(contains(text, "parallelism_config_dp_replicate_size: 4\n"));
  CHECK(contains(text, "parallelism_config_dp_shard_size: 8\n"));
  options.dialect = FsdpDialect::kTrainer;
  CHECK(contains(refusal(fsdp_config(options)), "no form for hybrid sharding"));
}

TEST_CASE("codegen: trainer arguments always name the FSDP version") {
  FsdpOptions options;
  options.dialect = FsdpDialect::kTrainer;
  options.layer_classes = {"LlamaDecoderLayer"};
  const Ordered json = parsed(options);
  CHECK(json["fsdp"] == true);
  CHECK(json["fsdp_config"]["version"] == 2);
  CHECK(json["fsdp_config"]["reshard_after_forward"] == true);
  CHECK(json["bf16"] == true);
  options.sharding_strategy = "NO_SHARD";
  CHECK(keys(parsed(options)) == std::vector<std::string>{"bf16", "fp16", "gradient_checkpointing"});
}

TEST_CASE("codegen: what FSDP has no form for is refused by name") {
  FsdpOptions options;
  options.sharding_strategy = "zero1";
  for (const FsdpDialect dialect : {FsdpDialect::kClassic, FsdpDialect::kAccelerate, FsdpDialect::kTrainer}) {
    options.dialect = dialect;
    CHECK(contains(refusal(fsdp_config(options)), "no form for zero1"));
  }
  options = {};
  options.dialect = FsdpDialect::kAccelerate;
  options.version = 2;
  options.checkpoint_strategy = "LOCAL_CHECKPOINT";
  CHECK(contains(refusal(fsdp_config(options)), "no local state dict"));
  options = {};
  options.dialect = FsdpDialect::kClassic;
  options.cpu_offload = true;
  CHECK(contains(refusal(fsdp_config(options)), "no key for offload"));
}

TEST_CASE("codegen: DeepSpeed JSON of the flags, key by key") {
  DeepspeedOptions options;
  options.zero_stage = 2;
  options.offload_optimizer = true;
  options.bf16 = true;
  options.gradient_accumulation_steps = 16;
  const Ordered expected = Ordered::parse(R"({
    "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": 16, "gradient_clipping": "auto",
    "zero_allow_untested_optimizer": true, "zero_force_ds_cpu_optimizer": false, "bf16": {"enabled": true},
    "zero_optimization": {"stage": 2, "contiguous_gradients": true, "overlap_comm": true, "reduce_scatter": true,
      "reduce_bucket_size": 500000000, "allgather_bucket_size": 500000000, "offload_optimizer": {"device": "cpu", "pin_memory": true}}})");
  const Ordered written = deepspeed(options);
  CHECK(written == expected);
  CHECK(keys(written) == keys(expected));
  CHECK(keys(written["zero_optimization"]) == keys(expected["zero_optimization"]));
}

TEST_CASE("codegen: DeepSpeed stages and precisions") {
  DeepspeedOptions options;
  options.zero_stage = 0;
  CHECK_FALSE(deepspeed(options).contains("zero_optimization"));
  CHECK(contains(messages(deepspeed_config(options).diagnostics), "trains in fp32"));
  options.fp16 = true;
  const Ordered fp16 = deepspeed(options)["fp16"];
  CHECK(
      fp16 ==
      Ordered::parse(
          R"({"enabled": true, "auto_cast": true, "loss_scale": 0, "loss_scale_window": 1000, "hysteresis": 2, "min_loss_scale": 1})"));
  CHECK_FALSE(deepspeed(options).contains("bf16"));
  options.zero_stage = 3;
  options.offload_param = true;
  options.micro_batch = 4;
  const Ordered three = deepspeed(options);
  CHECK(three["zero_optimization"]["offload_param"]["device"] == "cpu");
  CHECK(three["train_micro_batch_size_per_gpu"] == 4);
}

TEST_CASE("codegen: a DeepSpeed JSON with an open micro-batch leaves accumulation and clipping to the Trainer, too") {
  DeepspeedOptions options;
  options.bf16 = true;
  const Ordered open = deepspeed(options);
  for (const char* key : {"train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping"}) {
    INFO(key);
    CHECK(open[key] == "auto");
  }
  options.gradient_clipping = 0.3;
  CHECK(deepspeed(options)["gradient_clipping"] == 0.3);
  options.gradient_clipping.reset();
  options.micro_batch = 2;
  const Ordered fixed = deepspeed(options);
  CHECK(fixed["gradient_accumulation_steps"] == 1);
  CHECK(fixed["gradient_clipping"] == 1.0);
}

TEST_CASE("codegen: regression 14: integers are never written as floats") {
  DeepspeedOptions options;
  options.bf16 = true;
  const std::string text = deepspeed_config(options)->text;
  CHECK(contains(text, "\"reduce_bucket_size\": 500000000,"));
  CHECK(contains(text, "\"allgather_bucket_size\": 500000000\n"));
  CHECK_FALSE(contains(text, "e+"));
  CHECK_FALSE(contains(text, "500000000."));
}

TEST_CASE("codegen: contradictory DeepSpeed flags are refused") {
  DeepspeedOptions options;
  options.bf16 = options.fp16 = true;
  CHECK(contains(refusal(deepspeed_config(options)), "--fp16 and --bf16 are both given"));
  for (const int stage : {0, 1, 2}) {
    options = {};
    options.zero_stage = stage;
    options.offload_param = true;
    CHECK(contains(refusal(deepspeed_config(options)), "stage 3 only, the stage is " + std::to_string(stage)));
  }
  options = {};
  options.zero_stage = 0;
  options.offload_optimizer = true;
  CHECK(contains(refusal(deepspeed_config(options)), "needs ZeRO stage 1, 2 or 3"));
  options.zero_stage = 1;  // allowed, unlike in the generators that dropped it without a word
  CHECK(deepspeed(options)["zero_optimization"].contains("offload_optimizer"));
  options = {};
  options.gradient_accumulation_steps = 0;
  CHECK_FALSE(deepspeed_config(options).ok());
}

TEST_CASE("codegen: a plan's DeepSpeed JSON has numbers that agree") {
  const Result<Artifacts> written = emit(cluster_plan(), "deepspeed");
  INFO(messages(written.diagnostics));
  REQUIRE(written.ok());
  const Ordered json = Ordered::parse(file(*written, "ds_config.json"));
  CHECK(json["train_batch_size"] == 256);
  CHECK(json["train_micro_batch_size_per_gpu"].get<int>() * json["gradient_accumulation_steps"].get<int>() * 32 == 256);
  CHECK(json["zero_optimization"]["stage"] == 3);
  CHECK(json["zero_optimization"]["reduce_bucket_size"] == 4096 * 4096);
  CHECK(json["gradient_clipping"] == 1.0);
}

TEST_CASE("codegen: what a target has no form for in a plan is refused, with a way on") {
  const auto refused = [](const Plan& plan, const char* target) {
    const Result<Artifacts> written = emit(plan, target);
    REQUIRE_FALSE(written.ok());
    return messages(written.diagnostics);
  };
  Plan plan = cluster_plan();
  plan.recompute.policy = Recompute::kSelective;
  CHECK(contains(refused(plan, "deepspeed"), "--recompute full"));
  CHECK(contains(refused(plan, "fsdp"), "recompute 'selective'"));
  plan = cluster_plan();
  plan.strategy.sharding = Sharding::kZero1;
  CHECK(contains(refused(plan, "fsdp"), "no form for zero1"));
  plan = cluster_plan();
  plan.mesh.dp_replicate = 4;
  plan.mesh.dp_shard = 8;
  CHECK(contains(refused(plan, "deepspeed-hf"), "removed MiCS"));
  plan.strategy.sharding = Sharding::kZero1;
  CHECK(contains(refused(plan, "deepspeed"), "4 replicas of 8 shards"));
  plan = cluster_plan();
  plan.offload.optimizer = OffloadPlace::kHost;
  CHECK(contains(refused(plan, "fsdp"), "optimizer offload alone"));
  CHECK(contains(refused(cluster_plan(), "deepsped"), "did you mean 'deepspeed'"));
}

TEST_CASE("codegen: a hybrid plan becomes a mesh of accelerate") {
  Plan plan = cluster_plan();
  plan.mesh.dp_replicate = 4;
  plan.mesh.dp_shard = 8;
  const Result<Artifacts> written = emit(plan, "fsdp");
  REQUIRE(written.ok());
  const std::string& yaml = file(*written, "accelerate.yaml");
  CHECK(contains(yaml, "parallelism_config_dp_replicate_size: 4\n"));
  CHECK(contains(yaml, "num_processes: 32\n"));
  CHECK(contains(yaml, "fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer\n"));
}
