#!/usr/bin/env bash
# Jobs of the job server that others start: a real SLURM takes one, runs it, and cancels another; two nodes by ssh, to a real sshd.
# shellcheck source=tests/support/service.sh
. "${DISTSETUP_SOURCE:?}/tests/support/service.sh"
[[ $(id -u) == 0 ]] || { echo "not run: a SLURM on one machine needs root"; exit 77; }
unshare --mount --uts --propagation private true 2>/dev/null || { echo "not run: no CAP_SYS_ADMIN for the nodes' namespaces"; exit 77; }
sshd=$(PATH=$PATH:/usr/sbin command -v sshd) || { echo "not run: no sshd"; exit 77; }
cd "$work"

config() { # NODES RANKS SERVE
  printf 'fsdp_config: {sharding_strategy: "FULL_SHARD", mixed_precision_policy: null}\ntorch_run_config: {nnodes: %s, nproc_per_node: %s, master_addr: 127.0.0.1, master_port: %s}\nmax_seq_length: 64\nserve: %s\n' "$1" "$2" "$(free_port)" "$3" >run_fsdp.yaml
}
send() { curl -sS -H 'content-type: application/json' --data-binary "$2" "$url$1"; }
rows() {
  send /v1/datasets '{"dataset_id": "pairs", "source": {"type": "rows", "rows": [{"prompt": "1 + 1 = ", "chosen": "2", "rejected": "3"},
    {"prompt": "2 + 2 = ", "chosen": "4", "rejected": "5"}, {"prompt": "3 + 3 = ", "chosen": "6", "rejected": "7"}, {"prompt": "4 + 4 = ", "chosen": "8", "rejected": "9"}]}}' >/dev/null
}
job() {
  send /v1/post-training/preference-optimize "{\"job_uuid\": \"$1\", \"model\": \"tiny\", \"finetuned_model\": \"t\", \"algorithm_config\": {\"type\": \"dpo\"},
    \"training_config\": {\"n_epochs\": $2, \"learning_rate\": 1e-3, \"data_config\": {\"dataset_id\": \"pairs\", \"batch_size\": 1}}}"
}

# --- SLURM
"$DISTSETUP_SOURCE/tests/support/slurm_up" "$work/slurm" 1 4 >slurm.log 2>&1 || fail "slurm_up" "$(cat slurm.log)"
trap 'status=$?; stop_services; "$DISTSETUP_SOURCE/tests/support/slurm_down" "$work/slurm" >/dev/null 2>&1; rm -rf "$work"; exit $status' EXIT
# shellcheck source=/dev/null
. "$work/slurm/env.sh"
config 1 2 '{launcher: slurm}'
start_service slurm_head
rows
is "SLURM: a job" "$(job one 3)" '{"job_uuid":"one"}'
wait_for one completed 120
has "SLURM: it ran there" "$(cat slurm_head.data/jobs/one/log)" "of SLURM"
job two 10000 >/dev/null
wait_for two in_progress 60
for _ in $(seq 300); do [[ -s slurm_head.data/jobs/two/metrics.jsonl ]] && break; sleep 0.2; done
curl -sS -X POST "$url/v1/post-training/job/cancel?job_uuid=two" >/dev/null
wait_for two cancelled 60
is "SLURM: nothing is left in its queue" "$(squeue --noheader)" ""

# A keeper is killed: SLURM's job goes on, and gets another keeper at once; it is not begun twice, and a cancel reaches it.
job three 10000 >/dev/null
wait_for three in_progress 60
for _ in $(seq 300); do [[ -s slurm_head.data/jobs/three/metrics.jsonl ]] && break; sleep 0.2; done
number=$(squeue --noheader --format %A)
kill_keeper() { kill -9 "$(sed -n 's/.*"pid": *\([0-9]*\).*/\1/p' "slurm_head.data/jobs/$1/attempt_$2/keeper.json")"; }
kill_keeper three 1
for _ in $(seq 100); do [[ -s slurm_head.data/jobs/three/attempt_2/keeper.json ]] && break; sleep 0.2; done
wait_for three in_progress 30
sleep 3
is "SLURM: the same job goes on" "$(squeue --noheader --format %A)" "$number"
has "SLURM: the log says it" "$(cat slurm_head.log)" slurm_job_adopted
# The server and the keeper are killed: the next server adopts it.
kill -9 "$service_pid"
kill_keeper three 2
wait "$service_pid" || true  # until it is gone, and with it its hold of the folder
start_service slurm_head
for _ in $(seq 100); do [[ -s slurm_head.data/jobs/three/attempt_3/keeper.json ]] && break; sleep 0.2; done
[[ -s slurm_head.data/jobs/three/attempt_3/keeper.json ]] || fail "SLURM: nobody adopts the job" "$(tail -n 5 slurm_head.log)"
is "SLURM: the same job goes on still" "$(squeue --noheader --format %A)" "$number"
curl -sS -X POST "$url/v1/post-training/job/cancel?job_uuid=three" >/dev/null
wait_for three cancelled 60
is "SLURM: the cancel reached it" "$(squeue --noheader)" ""
# A job of SLURM in the folder of one that has ended is swept away when a server starts.
stop_service "$service_pid"
(cd slurm_head.data/jobs/three && sbatch --parsable --wrap 'sleep 600' >/dev/null)
start_service slurm_head
for _ in $(seq 150); do [[ -z $(squeue --noheader) ]] && break; sleep 0.2; done
is "SLURM: what nobody waits for is cancelled" "$(squeue --noheader)" ""
has "SLURM: the log says why" "$(cat slurm_head.log)" slurm_job_cancelled
stop_service "$service_pid"

# --- ssh
mkdir -p /run/sshd
ssh-keygen -q -t ed25519 -N '' -f host_key
ssh-keygen -q -t ed25519 -N '' -f user_key
port=$(free_port)
cat >sshd_config <<CONFIG
Port $port
ListenAddress 127.0.0.1
HostKey $work/host_key
AuthorizedKeysFile $work/user_key.pub
StrictModes no
UsePAM no
PidFile none
CONFIG
"$sshd" -D -e -f "$work/sshd_config" 2>sshd.log &
service_pids+=($!)
mkdir bin
printf '#!/bin/bash\nexec /usr/bin/ssh -p %s -i %q -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR "$@"\n' "$port" "$work/user_key" >bin/ssh
chmod +x bin/ssh
export PATH=$work/bin:$PATH
config 2 1 '{launcher: ssh, hosts: [127.0.0.1, localhost]}'
start_service ssh_head
rows
is "ssh: a job" "$(job one 3)" '{"job_uuid":"one"}'
wait_for one completed 120
has "ssh: the second node" "$(cat ssh_head.data/jobs/one/log)" "node 1 of 2"
job two 10000 >/dev/null
wait_for two in_progress 60
for _ in $(seq 300); do [[ -s ssh_head.data/jobs/two/metrics.jsonl ]] && break; sleep 0.2; done
curl -sS -X POST "$url/v1/post-training/job/cancel?job_uuid=two" >/dev/null
wait_for two cancelled 60
working_in() { find /proc -maxdepth 2 -name cwd -lname "$1" 2>/dev/null | wc -l; }
for _ in $(seq 100); do [[ $(working_in "$work/ssh_head.data/jobs/two") == 0 ]] && break; sleep 0.1; done
is "ssh: no process is left" "$(working_in "$work/ssh_head.data/jobs/two")" 0
echo "service_launchers: SLURM and ssh"
