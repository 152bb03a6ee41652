# shellcheck shell=bash
# Sourced by tests of the job server, after job.sh's variables: a scratch folder $work with a tiny model below $work/models/tiny, words to
# start and stop a service, and $service_python, a Python with the clients' packages when service_environment has been called.
# shellcheck source=tests/support/job.sh
. "${DISTSETUP_SOURCE:?}/tests/support/job.sh"
need_trainer
[[ -x $DISTSETUP_BIN/distsetup-service ]] || { echo "not run: no distsetup-service in $DISTSETUP_BIN (needs libcpp-httplib-dev and libsqlite3-dev)"; exit 77; }
export PATH=$DISTSETUP_BIN:$PATH
# What this shell has must not speak to the jobs.
unset DISTSETUP_SERVER DISTSETUP_TOKEN_FILE NODE_RANK MASTER_ADDR WORLD_SIZE LOCAL_WORLD_SIZE CUDA_VISIBLE_DEVICES || true
export TMPDIR=$work/tmp XDG_STATE_HOME=$work/state XDG_CACHE_HOME=$work/cache OMP_NUM_THREADS=1
mkdir -p "$TMPDIR" "$work/models"
python3 "$DISTSETUP_SOURCE/tests/support/tiny_model.py" "$work/models/tiny"
service_pids=()
trap 'status=$?; stop_services; rm -rf "$work"; exit $status' EXIT

# The provider's section for two ranks on CPU, with fast steps: $work/run_fsdp.yaml
service_config() {  # for two ranks
  cat >"$work/run_fsdp.yaml" <<YAML
fsdp_config: {sharding_strategy: "FULL_SHARD", mixed_precision_policy: null}
torch_run_config: {nnodes: 1, nproc_per_node: 2}
max_seq_length: 64
gradient_checkpointing: false
activation_checkpointing: none
save_steps: 5
YAML
}

# start_service NAME [FLAGS OF serve...]: $url, $service_pid; data in $work/NAME.data, log in $work/NAME.log. The port stays the same when it
# is started again under its name.
start_service() {
  local name=$1 port
  shift
  [[ -e $work/run_fsdp.yaml ]] || service_config
  [[ -s $work/$name.port ]] || free_port >"$work/$name.port"
  port=$(cat "$work/$name.port")
  url=http://127.0.0.1:$port
  "$DISTSETUP_BIN/distsetup" serve --config "$work/run_fsdp.yaml" --host 127.0.0.1 --port "$port" --device cpu --data "$work/$name.data" \
    --models "$work/models" --grace 5 "$@" >"$work/$name.out" 2>>"$work/$name.log" &
  service_pid=$!
  service_pids+=("$service_pid")
  local try
  for ((try = 0; try < 300; ++try)); do
    if curl -sf -o /dev/null "$url/health"; then return 0; fi
    kill -0 "$service_pid" 2>/dev/null || fail "the service $name ended" "$(tail -n 20 "$work/$name.log")"
    sleep 0.1
  done
  fail "the service $name does not answer at $url" "$(tail -n 20 "$work/$name.log")"
}

# TERM, and until it is gone
stop_service() {
  kill "$1" 2>/dev/null || true
  wait "$1" 2>/dev/null || true
}

stop_services() {
  local pid
  for pid in "${service_pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${service_pids[@]}"; do
    timeout 20 tail --pid="$pid" -f /dev/null 2>/dev/null || kill -9 "$pid" 2>/dev/null || true
  done
  # what runs of this test's folder, and of no other
  while read -r pid; do
    [[ $pid == "$$" || $pid == "$BASHPID" ]] || kill -9 "$pid" 2>/dev/null || true
  done < <(grep -slF -- "$work/" /proc/[0-9]*/cmdline 2>/dev/null | cut -d/ -f3)
}

# service_environment: $service_python, made once; $client_of_0_2_12, $client_of_0_3_5 and $client_of_0_6_1 are folders for its
# PYTHONPATH.
service_environment() {
  local root=$DISTSETUP_SOURCE environment packages stamp version
  environment=$root/.deps/service
  packages=$root/tests/integration/service_packages.txt
  mkdir -p "$root/.deps"
  exec 8>"$root/.deps/service_lock"
  flock 8
  stamp="$(sha256sum <"$packages") 0.2.12 0.3.5 0.6.1"
  if [[ $(cat "$environment/stamp" 2>/dev/null) != "$stamp" ]]; then
    rm -rf "$environment"
    python3 -m venv "$environment"
    echo "making .deps/service: pip install --no-deps -r tests/integration/service_packages.txt, llama-stack-client 0.2.12, 0.3.5 and 0.6.1" >&2
    local install=("$environment/bin/python" -m pip install --quiet --no-deps --no-compile --disable-pip-version-check)
    if ! TMPDIR=/tmp "${install[@]}" -r "$packages" >&2; then echo "the packages of tests/integration/service_packages.txt could not be fetched"; exit 77; fi
    for version in 0.2.12 0.3.5 0.6.1; do  # the later ones say that they need Python 3.12, and run on 3.11
      if ! TMPDIR=/tmp "${install[@]}" --ignore-requires-python --target "$environment/client-$version" "llama-stack-client==$version" >&2; then
        echo "llama-stack-client $version could not be fetched"
        exit 77
      fi
    done
    echo "$stamp" >"$environment/stamp"
  fi
  flock -u 8
  # shellcheck disable=SC2034 # for who sources this
  service_python=$environment/bin/python client_of_0_2_12=$environment/client-0.2.12 client_of_0_3_5=$environment/client-0.3.5 client_of_0_6_1=$environment/client-0.6.1
}

# processes_of TEXT: how many processes have it on their command line
processes_of() { pgrep -fc -- "$1" || true; }

# wait_for ID STATES SECONDS: until the job is in one of them ("completed|failed"); leaves the answer in $job
wait_for() {
  local state until=$((SECONDS + $3))
  while :; do
    job=$(curl -s "$url/v1/post-training/job/status?job_uuid=$1")
    state=$(sed -n 's/.*"state": *"\([a-z_]*\)".*/\1/p' <<<"$job" | head -n 1)
    [[ $state =~ ^($2)$ ]] && return 0
    ((SECONDS < until)) || fail "$1 is '$state' after $3 s, expected $2" "$job" "$(tail -n 5 "$work"/*.log)"
    sleep 0.2
  done
}
