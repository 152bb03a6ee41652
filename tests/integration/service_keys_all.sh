#!/usr/bin/env bash
# Every key of a request and of the provider's configuration acts, is refused by its name, or is said to have no effect: none is dropped in
# silence. What acts is looked for in the plan that was run, in the prepared set and in the log.
# shellcheck source=tests/support/service.sh
. "${DISTSETUP_SOURCE:?}/tests/support/service.sh"
cat >"$work/run_fsdp.yaml" <<'YAML'
fsdp_config: {sharding_strategy: SHARD_GRAD_OP, mixed_precision_policy: null, cpu_offload: true, limit_all_gathers: false, forward_prefetch: false, backward_prefetch: BACKWARD_POST}
torch_run_config: {nnodes: 1, nproc_per_node: 2, node_rank: 0, master_addr: localhost, master_port: 29512, max_restarts: 0, rdzv_timeout: 77}
service_config: {request_timeout: 100, health_check_interval: 10, max_concurrent_jobs: 1}
device: cpu
checkpoint_format: huggingface
use_fsdp_state_dict: false
max_seq_length: 64
gradient_checkpointing: false
activation_checkpointing: none
dpo_beta: 0.2
dpo_loss_type: hinge
use_reference_model: false
compile_model: true
dataloader_num_workers: 3
dataloader_pin_memory: false
dataloader_persistent_workers: false
log_on_each_node: true
logging_steps: 1
save_steps: 2
save_total_limit: 2
warmup_ratio: 0.25
weight_decay: 0.03
YAML
start_service service
python3 "$DISTSETUP_SOURCE/tests/integration/service_keys.py" "$url" "$work/service.data" "$distsetup" || fail "keys" "$(tail -n 5 "$work/service.log")"
has "a front's setting" "$(cat "$work/service.log")" '"key":"service_config.health_check_interval"'
stop_service "$service_pid"

# --- the inline provider's keys
cat >"$work/run_fsdp.yaml" <<'YAML'
version: "2"
image_name: trl
apis: [post_training, datasetio]
providers:
  post_training:
    - provider_id: trl
      provider_type: "inline::trl"
      config:
        device: cpu
        distributed_backend: null
        checkpoint_format: full_state
        chat_template: "Question: {prompt}\nAnswer: {response}"
        model_specific_config: {trust_remote_code: true, attn_implementation: sdpa}
        max_seq_length: 64
        gradient_checkpointing: true
        save_total_limit: 1
        logging_steps: 1
        warmup_ratio: 0.5
        weight_decay: 0.02
        dataloader_num_workers: 1
        dataloader_pin_memory: false
        dpo_beta: 0.3
        use_reference_model: true
        dpo_loss_type: ipo
        normalize_rewards: false
        label_smoothing: 0.0
        output_router_logits: false
        router_aux_loss_coef: 0.1
        moe_load_balancing: gshard
        auto_detect_moe: false
        expert_dropout: 0.1
YAML
start_service inline --mode inline
python3 "$DISTSETUP_SOURCE/tests/integration/service_keys.py" "$url" "$work/inline.data" "$distsetup" inline || fail "keys of the inline provider" "$(tail -n 5 "$work/inline.log")"
