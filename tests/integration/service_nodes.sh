#!/usr/bin/env bash
# The job server on two nodes: an agent with NODE_RANK and MASTER_ADDR joins, as the guide has it, a job trains on both, and a cancel leaves
# no process on either; a front in front of it passes jobs on. Both nodes are this machine; they share the data folder.
# shellcheck source=tests/support/service.sh
. "${DISTSETUP_SOURCE:?}/tests/support/service.sh"
cd "$work"

cat >run_fsdp.yaml <<YAML
fsdp_config: {sharding_strategy: "FULL_SHARD", mixed_precision_policy: null}
torch_run_config: {nnodes: 2, nproc_per_node: 1, master_addr: 127.0.0.1, master_port: $(free_port)}
max_seq_length: 64
YAML
free_port >front.port
start_service head
head_port=$(cat head.port)
# A node whose --data is another folder is told so when it comes, not when a job does.
NODE_RANK=1 MASTER_ADDR=127.0.0.1 "$DISTSETUP_BIN/distsetup" serve --config run_fsdp.yaml --port "$head_port" --device cpu --data "$work/elsewhere" \
  --models models --grace 5 >other.out 2>other.log &
other_pid=$!
service_pids+=("$other_pid")
for _ in $(seq 100); do grep -q "does not take this node" other.log && break; sleep 0.1; done
has "another folder" "$(cat other.log)" "node 1 does not see this service's data folder, '$work/head.data'"
stop_service "$other_pid"
NODE_RANK=1 MASTER_ADDR=127.0.0.1 "$DISTSETUP_BIN/distsetup" serve --config run_fsdp.yaml --port "$head_port" --device cpu --data "$work/head.data" \
  --models models --grace 5 >node.out 2>node.log &
service_pids+=($!)
run "a front without a service" 5 timeout 60 "$distsetup" serve --mode front --device cpu --port "$(cat front.port)" --base-url http://127.0.0.1:1 \
  --data "$work/nothing" --config <(printf 'serve: {front_retry_delay_s: 0.1}\n')
"$DISTSETUP_BIN/distsetup" serve --mode front --device cpu --port "$(cat front.port)" --base-url "$url" --data "$work/front.data" \
  --config <(printf 'providers:\n  post_training:\n    - {provider_id: a, provider_type: "remote::trl_fsdp", config: {service_config: {health_check_interval: 1}}}\n') >front.out 2>front.log &
service_pids+=($!)
url=http://127.0.0.1:$(cat front.port)
for _ in $(seq 100); do curl -sf -o /dev/null "$url/health" && break; sleep 0.1; done

send() { curl -sS -H 'content-type: application/json' --data-binary "$2" "$url$1"; }
send /v1/datasets '{"dataset_id": "pairs", "source": {"type": "rows", "rows": [{"prompt": "1 + 1 = ", "chosen": "2", "rejected": "3"},
  {"prompt": "2 + 2 = ", "chosen": "4", "rejected": "5"}, {"prompt": "3 + 3 = ", "chosen": "6", "rejected": "7"}, {"prompt": "4 + 4 = ", "chosen": "8", "rejected": "9"}]}}' >/dev/null
job() {
  send /v1/post-training/preference-optimize "{\"job_uuid\": \"$1\", \"model\": \"tiny\", \"finetuned_model\": \"t\", \"algorithm_config\": {\"type\": \"dpo\"},
    \"training_config\": {\"n_epochs\": $2, \"learning_rate\": 1e-3, \"data_config\": {\"dataset_id\": \"pairs\", \"batch_size\": 1}}}"
}
is "a job through the front" "$(job both 2)" '{"job_uuid":"both"}'
wait_for both completed 120
has "both nodes: the ranks of the second" "$(cat head.data/jobs/both/node_1.log)" "node 1 of 2"
has "both nodes: where they ran" "$job" '"world_size":2'
is "a long job" "$(job long 10000)" '{"job_uuid":"long"}'
wait_for long in_progress 60
for _ in $(seq 300); do [[ -s head.data/jobs/long/metrics.jsonl ]] && break; sleep 0.2; done
curl -sS -X POST "$url/v1/post-training/job/cancel?job_uuid=long" >/dev/null
wait_for long cancelled 60
working_in() { find /proc -maxdepth 2 -name cwd -lname "$1" 2>/dev/null | wc -l; }  # processes in a folder
for _ in $(seq 200); do [[ $(working_in "$work/head.data/jobs/long") == 0 ]] && break; sleep 0.1; done
is "a cancel: no process is left on either node" "$(working_in "$work/head.data/jobs/long")" 0
# --- the service behind the front ends: the front says so, and what it passes on
is "a front's health" "$(curl -s -o /dev/null -w '%{http_code}' "$url/health")" 200
kill "${service_pids[0]}"
for _ in $(seq 200); do [[ $(curl -s -o /dev/null -w '%{http_code}' "$url/health") == 503 ]] && break; sleep 0.1; done
has "a front's health, alone" "$(curl -s "$url/health")" "remote service not responding"
echo "service_nodes: two nodes, and a front"
