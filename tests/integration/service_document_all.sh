#!/usr/bin/env bash
# The guide of the TRL provider for Llama Stack (inline and remote FSDP), command by command against `distsetup serve`: its scripts and
# ports, its Python program with its numbers, what it says to look at, its configurations and sizes, its two machines. The model is tiny, and
# its ranks are on the processors.
# shellcheck source=tests/support/service.sh
. "${DISTSETUP_SOURCE:?}/tests/support/service.sh"
service_environment
cd "$work"
mkdir -p models/meta-llama
cp -r models/tiny models/meta-llama/Llama-2-7b-hf

# --- "Setup environment": the folder that the guide's commands are typed in
"$distsetup" emit --target llama-stack --output guide --model models/tiny --gpu a100_sxm_80 --nodes 1 --gpus 2 --method dpo --sharding zero3 --recompute full \
  --micro-batch 4 --sequence-length 256 >emit.log 2>&1 || fail "emit" "$(cat emit.log)"
cd guide
run "./scripts/prepare-env.sh" 0 ./scripts/prepare-env.sh --dry-run
[[ -s build_fsdp.yaml && -s run_fsdp.yaml ]] || fail "the guide's files" "$(ls)"

# --- "Start remote FSDP provider": terminal 1, port 8322 by default
has "port 8322" "$(cat scripts/run-remote-fsdp-server.sh)" 'PORT:-8322'
port=$(free_port)
SERVICE=distsetup PORT=$port ./scripts/run-remote-fsdp-server.sh --device cpu --models "$work/models" --data "$work/remote.data" --grace 5 >"$work/remote.out" 2>"$work/remote.log" &
service_pids+=($!)
remote=http://localhost:$port
for ((try = 0; try < 200; ++try)); do curl -sf -o /dev/null "$remote/health" && break; sleep 0.1; done
has "the server says where it listens" "$(cat "$work/remote.out")" "Server will listen on localhost:$port"
health=$(curl -s "$remote/health")
has "health" "$health" '"status":"healthy"'
has "health: provider" "$health" '"provider_type":"remote::trl_fsdp"'
has "health: ranks of all nodes" "$health" '"world_size":2'

# --- "Start Llama Stack with FSDP configuration": terminal 2; our front is in its place, port 8321 by default
front=$(free_port)
"$distsetup" serve --mode front --base-url "$remote" --host 127.0.0.1 --port "$front" --data "$work/front.data" >"$work/front.out" 2>"$work/front.log" &
service_pids+=($!)
for ((try = 0; try < 200; ++try)); do curl -sf -o /dev/null "http://127.0.0.1:$front/health" && break; sleep 0.1; done

# --- "Run distributed DPO training" and "Monitoring": the guide's program
"$service_python" "$DISTSETUP_SOURCE/tests/integration/service_document.py" "http://127.0.0.1:$front" "$remote" || fail "the guide's program" "$(tail -n 5 "$work/remote.log" "$work/front.log")"

# --- "Log files"
[[ -s $TMPDIR/trl_remote_fsdp_provider.log ]] || fail "the service's log" "$(ls "$TMPDIR")"
has "the log of ranks" "$(curl -s "$remote/v1/post-training/job/logs?job_uuid=fsdp-dpo-large-model&tail=1000")" '"rank":0'
has "jobs show says the same" "$("$distsetup" jobs show fsdp-dpo-large-model --server "$remote")" "completed"
run "jobs logs -f of a job that has ended well" 0 "$distsetup" jobs logs fsdp-dpo-large-model -f --server "$remote"
has "jobs logs" "$said" "[rank 0] step"

# --- "Inline provider": one device, refuses to be one of several
run "inline among several ranks" 2 env WORLD_SIZE=2 "$distsetup" serve --mode inline --device cpu --port "$(free_port)" --data "$work/inline.data" --models "$work/models"
has "inline among several ranks" "$said" "WORLD_SIZE"
stop_services
service_pids=()

# --- "Multi-node training": node_rank 0 here, and a worker that joins with NODE_RANK and MASTER_ADDR; they share the data folder
cat >run_fsdp.yaml <<YAML
fsdp_config: {sharding_strategy: "FULL_SHARD", mixed_precision_policy: null}
torch_run_config: {nnodes: 2, nproc_per_node: 1, node_rank: 0, master_addr: "127.0.0.1", master_port: $(free_port)}
max_seq_length: 64
gradient_checkpointing: false
activation_checkpointing: none
YAML
port=$(free_port)
SERVICE=distsetup PORT=$port ./scripts/run-remote-fsdp-server.sh --device cpu --models "$work/models" --data "$work/node0.data" --grace 5 >"$work/node0.out" 2>"$work/node0.log" &
service_pids+=($!)
export NODE_RANK=1 MASTER_ADDR=127.0.0.1
SERVICE=distsetup PORT=$port ./scripts/run-remote-fsdp-server.sh --device cpu --models "$work/models" --data "$work/node0.data" --grace 5 >"$work/node1.out" 2>"$work/node1.log" &
service_pids+=($!)
unset NODE_RANK MASTER_ADDR
url=http://localhost:$port
for ((try = 0; try < 200; ++try)); do curl -sf -o /dev/null "$url/health" && break; sleep 0.1; done
printf '{"prompt": "is %s a number? ", "chosen": "yes", "rejected": "no"}\n' 1 2 3 4 5 6 7 8 >"$work/pairs.jsonl"
cat >"$work/request.json" <<'JSON'
{"job_uuid": "two-nodes", "model": "tiny", "algorithm_config": {"type": "dpo", "reward_scale": 1.0, "reward_clip": 5.0},
 "training_config": {"n_epochs": 1, "max_steps_per_epoch": 3, "learning_rate": 1e-3, "data_config": {"dataset_id": "pairs", "batch_size": 1, "shuffle": true}}}
JSON
run "a job on two nodes" 0 "$distsetup" jobs submit "$work/request.json" --rows "$work/pairs.jsonl" --server "$url"
wait_for two-nodes "completed|failed|cancelled" 90
has "two nodes" "$job" '"state":"completed"'
has "two nodes: ranks" "$job" '"world_size":2'
has "two nodes: nodes" "$job" '"nodes":2'
echo "service_document: every command of the guide"
