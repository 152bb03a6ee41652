#!/usr/bin/env bash
# The job server: a DPO job of a data set of rows on 2 CPU ranks, planned before it starts; what it says of it; cancel, a rank killed, the
# server killed in the middle, one id twice, a full queue, tokens.
# shellcheck source=tests/support/job.sh
. "${DISTSETUP_SOURCE:?}/tests/support/job.sh"
need_trainer
[[ -x $DISTSETUP_BIN/distsetup-service ]] || { echo "not run: no distsetup-service in $DISTSETUP_BIN (libcpp-httplib-dev, libsqlite3-dev)"; exit 77; }
url='' service_pid=''
export TMPDIR=$work # its log
trap 'status=$?; [[ -z $service_pid ]] || kill "$service_pid" 2>/dev/null || true; wait || true; rm -rf "$work"; exit $status' EXIT

# start_service WORDS...: on a free port
start_service() {
  rm -f "$work/service.out"
  "$distsetup" serve --port 0 "$@" >"$work/service.out" 2>>"$work/service.err" &
  service_pid=$!
  local i port=''
  for ((i = 0; i < 200; ++i)); do
    port=$(sed -n 's/^Server will listen on .*:\([0-9]*\)$/\1/p' "$work/service.out" 2>/dev/null || true)
    [[ -n $port ]] && break
    kill -0 "$service_pid" 2>/dev/null || fail "the service does not start" "$(cat "$work/service.err")"
    sleep 0.05
  done
  url=http://127.0.0.1:$port
}
stop_service() {
  kill "$service_pid"
  wait "$service_pid" || fail "the service ended with exit code $?" "$(tail -n 5 "$work/service.err")"
  service_pid=''
}

# ask METHOD PATH [BODY | -]: the body of the answer
ask() { curl -sS -X "$1" "$url$2" ${3:+-H 'content-type: application/json' --data-binary "${3/#-/@-}"}; }
code() { curl -sS -o /dev/null -w '%{http_code}' -X "$1" "$url$2" ${3:+-H 'content-type: application/json' --data-binary "${3/#-/@-}"}; }
json() { python3 -c "import json, sys; d = json.load(sys.stdin); print($1)"; }

# wait_for JOB STATE
wait_for() {
  local i state=''
  for ((i = 0; i < 600; ++i)); do
    state=$(ask GET "/v1/post-training/job/status?job_uuid=$1" | json 'd["state"]')
    [[ $state == "$2" ]] && return
    if [[ $state == failed || $state == completed || $state == cancelled ]]; then break; fi
    sleep 0.1
  done
  fail "job $1 is $state, expected $2" "$(ask GET "/v1/post-training/job/status?job_uuid=$1" | json 'd["reason"]')" \
    "$(tail -n 15 "$work/data/jobs/$1/log" 2>/dev/null)" "$(tail -n 3 "$work/service.err")"
}
# wait_for_step JOB N: until it has done so many optimizer steps
wait_for_step() {
  local i
  for ((i = 0; i < 600; ++i)); do
    [[ $(ask GET "/v1/post-training/job/status?job_uuid=$1" | json '(d["progress"] or {"step": 0})["step"]') -ge $2 ]] && return
    sleep 0.1
  done
  fail "job $1 does not reach step $2" "$(tail -n 15 "$work/data/jobs/$1/log")"
}

# models/tiny: a config.json of 26 thousand parameters and a tokenizer of single letters, without weights
make_served_model() {
  mkdir -p "$work/models/tiny"
  make_config_json "$work/models/tiny"
  sed -i 's/"vocab_size": 256/"vocab_size": 46/' "$work/models/tiny/config.json"
  python3 - "$DISTSETUP_SOURCE/docs/fine-tuning.md" "$work/models/tiny" <<'PY'
import re, sys
text = open(sys.argv[1]).read()
for name in ("tokenizer.json", "chat_template.jinja"):
    open(f"{sys.argv[2]}/{name}", "w").write(re.search(r"```\w+ " + re.escape(name) + r"\n(.*?)```", text, re.S).group(1))
PY
}
# pairs_of N: the registration of a data set of N preference pairs
pairs_of() {
  python3 -c "
import json
rows = [{'prompt': f'{a} + {b} = ', 'chosen': str(a + b), 'rejected': str(a + b + 1)} for a in range(10) for b in range(10)][:$1]
print(json.dumps({'dataset_id': 'pairs', 'purpose': 'post-training/messages', 'dataset_type': 'preference', 'source': {'type': 'rows', 'rows': rows}}))"
}
# request_for JOB EPOCHS: the guide's request, for a small model
request_for() {
  printf '{"job_uuid": "%s", "model": "tiny", "finetuned_model": "tiny-dpo", "checkpoint_dir": "./fsdp_checkpoints",
 "algorithm_config": {"type": "dpo", "reward_scale": 1.0, "reward_clip": 5.0},
 "training_config": {"n_epochs": %s, "max_steps_per_epoch": 100, "learning_rate": 1e-3,
  "data_config": {"dataset_id": "pairs", "batch_size": 2, "shuffle": true}}}' "$1" "$2"
}
cd "$work"

make_served_model
cat >serve.yaml <<'YAML'
fsdp_config: {sharding_strategy: FULL_SHARD, mixed_precision_policy: null}
torch_run_config: {nnodes: 1, nproc_per_node: 2, max_restarts: 1}
service_config: {max_concurrent_jobs: 1}
device: cpu
max_seq_length: 32
dpo_beta: 0.2
serve: {data: data, models: models, random_parameters: true, grace_s: 5, retry_delay_s: 0, limits: {queued_jobs: 3}}
YAML

# --- what it is told
printf 'fsdp_config: {sharding_strategy: FULL_SHARD}\ntorch_run_config: {nproc_per_nod: 2}\n' >bad.yaml
run "an unknown key" 3 timeout 20 "$distsetup" serve --config bad.yaml --data other --port 0
has "an unknown key: where" "$said" "bad.yaml:2:20"
has "an unknown key: the nearest" "$said" "did you mean 'torch_run_config.nproc_per_node'"
printf 'device: hpu\n' >bad.yaml
run "a device that there is not" 3 timeout 20 "$distsetup" serve --config bad.yaml --data other --port 0
has "a device that there is not" "$said" "'device: hpu' is not supported here"
printf 'serve: {grace: 3}\n' >bad.yaml
run "an unknown key of ours" 3 timeout 20 "$distsetup" serve --config bad.yaml --port 0
has "an unknown key of ours" "$said" "did you mean 'grace_s'"
run "another address without a token" 2 timeout 20 "$distsetup" serve --host 0.0.0.0 --data other --port 0
has "another address without a token" "$said" "--auth-token-file"
run "ranks in an inline service" 2 timeout 20 env WORLD_SIZE=2 "$distsetup" serve --mode inline --data other --port 0
has "ranks in an inline service" "$said" "--mode inline trains on one device"

start_service --config serve.yaml
is "health" "$(ask GET /health | json '[d["status"], d["provider_type"], d["distributed_backend"], d["world_size"]]')" \
  "['healthy', 'remote::trl_fsdp', 'gloo', 2]"
run "a second one in the same folder" 5 timeout 20 "$distsetup" serve --config serve.yaml --port 0
has "a second one in the same folder" "$said" "another service works in this data folder"

# --- data
is "rows" "$(pairs_of 60 | ask POST /v1/datasets - | json '[d["identifier"], d["kind"], d["num_rows"]]')" "['pairs', 'preference', 60]"
is "rows twice" "$(pairs_of 60 | code POST /v1/datasets -)" 409
is "a bad row" "$(echo '{"dataset_id": "bad", "source": {"type": "rows", "rows": [{"prompt": "p", "chosen": " ", "rejected": "r"}]}}' |
  ask POST /v1/datasets - | json 'd["detail"]')" "row 0: 'chosen' is blank"

# --- a plan before anything starts
is "a plan" "$(echo '{"model": "tiny", "training_config": {"data_config": {"dataset_id": "pairs", "batch_size": 2}}}' | ask POST /v1/plan - |
  json '[d["verdict"], d["steps"], d["recommendation"]["recommended"]]')" "['fits', 13, 'inline']"
has "what does not fit" "$(echo '{"model": "7B", "gpu": "rtx_4090", "gpus_per_node": 2, "config": {"max_seq_length": 4096, "batch_size": 2,
  "fsdp_config": {"sharding_strategy": "FULL_SHARD", "mixed_precision_policy": "bf16", "cpu_offload": false}}}' | ask POST /v1/plan - |
  json '[d["verdict"], d["fixes"]]')" "['does_not_fit', ['fits with"

# --- a job
is "a job" "$(request_for one 3 | ask POST /v1/post-training/preference-optimize -)" '{"job_uuid":"one"}'
is "the same id" "$(request_for one 3 | code POST /v1/post-training/preference-optimize -)" 409
wait_for one completed
ask GET "/v1/post-training/job/status?job_uuid=one" >one.json
is "a job: steps" "$(json '[d["progress"]["step"], d["progress"]["steps"], len(d["losses"])]' <one.json)" "[39, 39, 39]"
is "a job: the plan" "$(json '[d["plan"]["verdict"], d["plan"]["beta"], d["plan"]["steps"], d["plan"]["micro_batch"]]' <one.json)" "['fits', 0.2, 39, 2]"
is "a job: memory as predicted" "$(json 'd["measured"]["peak_allocated_bytes"] == d["plan"]["predicted"]["peak_allocated_bytes"]' <one.json)" True
is "a job: resources" "$(json '[d["resources_allocated"][k] for k in ("world_size", "distributed_backend", "fsdp_strategy", "training_completed")]' <one.json)" \
  "[2, 'gloo', 'FULL_SHARD', True]"
is "a job: the model" "$(json 'd["checkpoints"][-1]["identifier"]' <one.json)" tiny-dpo-fsdp-dpo-3
is "a job: the best one" "$(json 'd["checkpoints"][-1]["training_metrics"]["validation_loss"] == min(c["training_metrics"]["validation_loss"] for c in d["checkpoints"])' <one.json)" True
path=$(json 'd["checkpoints"][-1]["path"]' <one.json)
has "a job: where it is" "$path" "/fsdp_checkpoints/fsdp_dpo_model"
[[ -s $path/model.safetensors && -s $path/config.json ]] || fail "the model is not there" "$(ls -R "$path")"
margin=$(json 'd["losses"][-1]["rewards/margins"] > d["losses"][0]["rewards/margins"]' <one.json)
is "a job: the margin grows" "$margin" True
is "a job: its steps were committed" "$(json 'd["step"]' <"$work/data/jobs/one/fsdp_checkpoints/checkpoint_39/metadata.json")" 39
has "a job: logs" "$(ask GET "/v1/post-training/job/logs?job_uuid=one&tail=200")" "completed at step 39 of 39"
has "a job: an event stream" "$(ask GET "/v1/post-training/job/logs/stream?job_uuid=one")" "event: end"
is "a job: short routes" "$(ask GET "/training-job-status?job_uuid=one" | json 'd["status"]')" completed
is "a job: v1alpha, by path" "$(ask GET /v1alpha/post-training/jobs/one/status | json 'd["status"]')" completed
files=$(ask GET "/v1/post-training/jobs/one/checkpoints/tiny-dpo-fsdp-dpo-3" | json '[f["url"] for f in d["files"] if f["name"] == "config.json"][0]')
ask GET "$files" | cmp - "$path/config.json" || fail "a file of a checkpoint is another"
is "a job that has ended" "$(code POST "/v1/post-training/job/cancel?job_uuid=one")" 409

# --- supervised fine-tuning trains, too
echo '{"dataset_id": "chats", "source": {"type": "rows", "rows": [{"prompt": "1 + 1 = ", "completion": "2"}, {"prompt": "2 + 2 = ", "completion": "4"},
  {"prompt": "3 + 3 = ", "completion": "6"}, {"prompt": "4 + 4 = ", "completion": "8"}]}}' | ask POST /v1/datasets - >/dev/null
echo '{"job_uuid": "sft", "model": "tiny", "training_config": {"n_epochs": 2, "data_config": {"dataset_id": "chats", "batch_size": 1}}}' |
  ask POST /v1/post-training/supervised-fine-tune - >/dev/null
wait_for sft completed
is "fine-tuning: steps" "$(ask GET "/v1/post-training/job/status?job_uuid=sft" | json 'd["progress"]["step"]')" 4

# --- cancel, a full queue, what waits
long=$(request_for long 10000 | ask POST /v1/post-training/preference-optimize -)
is "a long job" "$long" '{"job_uuid":"long"}'
wait_for long in_progress
for name in w1 w2; do request_for $name 1 | ask POST /v1/post-training/preference-optimize - >/dev/null; done
is "a full queue" "$(request_for w3 1 | code POST /v1/post-training/preference-optimize -)" 429
is "what waits, in v1's words" "$(ask GET "/v1/post-training/job/status?job_uuid=w1" | json '[d["status"], d["state"], d["queue_position"]]')" "['scheduled', 'queued', 0]"
is "cancel what waits" "$(ask POST "/v1/post-training/job/cancel" '{"job_uuid": "w2"}' | json 'd["status"]')" cancelled
wait_for w2 cancelled
wait_for_step long 5
# Memory is measured while it runs: the peak, what it is made of, and the phases of a step, each beside its prediction.
ask GET "/v1/post-training/job/status?job_uuid=long" >long.json
[[ ! -e data/jobs/long/report.json ]] || fail "the report comes at the end"
is "while it runs: the peak" "$(json '[d["state"], d["measured"]["peak_allocated_bytes"] == d["plan"]["predicted"]["peak_allocated_bytes"] == d["resources_allocated"]["memory"]["measured_peak_bytes"] > 0]' <long.json)" "['in_progress', True]"
is "while it runs: by phase" "$(json '[p["phase"] for p in d["measured"]["phases"] if p in d["plan"]["phases"]]' <long.json)" "['forward', 'loss', 'backward', 'optimizer']"
is "while it runs: by class" "$(json 'sorted(r["what"] for r in d["measured"]["rows"] if r["unit"] == "bytes" and r["predicted"] == r["measured"] > 0)' <long.json)" \
  "['activation', 'arena', 'communication', 'gathered parameter', 'gradient', 'logits', 'optimizer state', 'parameter shard', 'peak allocated', 'workspace']"
has "while it runs: the page" "$(ask GET /jobs/long)" " so far</p>"
is "the curve has numbers alone" "$(json 'any("memory" in one for one in d["losses"])' <long.json)" False

# --- the server is killed in the middle: the job goes on, and is found again
kill -9 "$service_pid"
wait "$service_pid" 2>/dev/null || true
before=$(json 'd["pid"]' <"$work/data/jobs/long/attempt_1/keeper.json")
kill -0 "$before" || fail "the job ended with its server"
start_service --config serve.yaml
is "after a kill: it is found" "$(ask GET "/v1/post-training/job/status?job_uuid=long" | json '[d["state"], d["attempt"]]')" "['in_progress', 1]"

# --- a rank is killed: the job goes on from its checkpoint, once
wait_for_step long 60
pkill -9 -s "$before" distsetup-train || fail "no rank to kill"
for _ in $(seq 100); do [[ $(ask GET "/v1/post-training/job/status?job_uuid=long" | json 'd["attempt"]') == 2 ]] && break; sleep 0.2; done
wait_for long in_progress
is "a rank was killed: another attempt" "$(ask GET "/v1/post-training/job/status?job_uuid=long" | json 'd["attempt"]')" 2
keeper=$(json 'd["pid"]' <"$work/data/jobs/long/attempt_2/keeper.json")
ask POST "/v1/post-training/job/cancel?job_uuid=long" >/dev/null
wait_for long cancelled
[[ -z $(ps -o pid= -s "$keeper") ]] || fail "processes are left after a cancel" "$(ps -s "$keeper")"
wait_for w1 completed

# --- stopped by a signal: what runs waits for the next start
request_for held 10000 | ask POST /v1/post-training/preference-optimize - >/dev/null
wait_for_step held 3
stop_service
[[ -z $(pgrep -f "$work/data/jobs/held" || true) ]] || fail "processes are left after the service was stopped"
start_service --config serve.yaml
wait_for held in_progress
is "after a stop: it goes on" "$(ask GET "/v1/post-training/job/status?job_uuid=held" | json 'd["attempt"]')" 2
ask POST "/v1/post-training/job/cancel?job_uuid=held" >/dev/null
wait_for held cancelled
has "metrics" "$(ask GET /metrics)" 'distsetup_jobs{state="cancelled"} 3'
stop_service

# --- tokens
printf '0123456789abcdef0123\n' >token
start_service --config serve.yaml --auth-token-file token
is "health needs no token" "$(code GET /health)" 200
is "no token" "$(code GET /v1/post-training/jobs)" 401
is "a wrong token" "$(curl -s -o /dev/null -w '%{http_code}' -H 'Authorization: Bearer 0123456789abcdef0124' "$url/v1/post-training/jobs")" 401
is "a token" "$(curl -s -o /dev/null -w '%{http_code}' -H 'Authorization: Bearer 0123456789abcdef0123' "$url/v1/post-training/jobs")" 200
stop_service
has "its log" "$(cat "$work/trl_remote_fsdp_provider.log")" '"event":"job_ended"'
echo "service: jobs planned, run, cancelled, found again"
