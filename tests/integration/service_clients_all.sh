#!/usr/bin/env bash
# The published clients of Llama Stack, unchanged, of all generations of the API: register data, train by preferences and by conversations with
# optimizer steps, list, ask, cancel, read what was saved. And their command line.
# shellcheck source=tests/support/service.sh
. "${DISTSETUP_SOURCE:?}/tests/support/service.sh"
service_environment
start_service service --max-jobs 2
for version in 0.2.12 0.3.5 0.6.1; do
  folder=client_of_${version//./_}
  PYTHONPATH=${!folder} "$service_python" -W error::DeprecationWarning -W ignore "$DISTSETUP_SOURCE/tests/integration/service_clients.py" "$url" "$version" ||
    fail "the client $version" "$(tail -n 15 "$work/service.log")"
done
said=$(PYTHONPATH=$client_of_0_2_12 "$service_python" -W ignore -m llama_stack_client.lib.cli.llama_stack_client --endpoint "$url" post_training list)
has "the client's command line lists" "$said" "sft-0.2.12"
has "the client's command line lists" "$said" "dpo-0.3.5"
is "no process of a job is left" "$(processes_of "$work/service.data/jobs")" 0

# --- `distsetup jobs`: exit codes are how the job ended
export DISTSETUP_SERVER=$url
printf '{"prompt": "is %s a number? ", "chosen": "yes", "rejected": "no"}\n' 1 2 3 4 5 6 7 8 >"$work/pairs.jsonl"
request() {
  cat >"$work/$1.json" <<JSON
{"job_uuid": "$1", "model": "tiny", "algorithm_config": {"type": "dpo", "beta": 0.1},
 "training_config": {"n_epochs": $2, "max_steps_per_epoch": 3, "learning_rate": 1e-3, "data_config": {"dataset_id": "pairs-of-cli", "batch_size": 1, "shuffle": true}}}
JSON
}
request short 1
run "submit and follow" 0 "$distsetup" jobs submit "$work/short.json" --rows "$work/pairs.jsonl" --follow
has "submit and follow: the log" "$said" "[rank 0] step      3"
has "submit and follow: the end" "$said" "short completed"
run "submitted twice" 1 "$distsetup" jobs submit "$work/short.json"
has "submitted twice" "$said" "short"
run "plan" 0 "$distsetup" jobs plan "$work/short.json"
is "plan" "$(head -n 1 <<<"$said")" fits
run "nearly its name" 1 "$distsetup" jobs show shrt
has "nearly its name" "$said" "did you mean 'short'"
sed 's/"n_epochs": 1/"n_epoch": 1/' "$work/short.json" >"$work/wrong.json"
run "an unknown key" 3 "$distsetup" jobs submit "$work/wrong.json" --job-id other
has "an unknown key" "$said" "n_epoch"
for job in killed cancelled; do
  request "$job" 100000
  run "$job: submit" 0 "$distsetup" jobs submit "$work/$job.json"
  is "$job: its name" "$said" "$job"
done
for job in killed cancelled; do
  for ((try = 0; try < 300; ++try)); do [[ $("$distsetup" jobs show "$job") == *loss* ]] && break; sleep 0.1; done
done
# a rank works in its job's folder
for pid in $(pgrep distsetup-train); do
  if [[ $(readlink "/proc/$pid/cwd") == "$work/service.data/jobs/killed"* ]]; then kill -9 "$pid" && break; fi
done
run "followed to a failure" 6 "$distsetup" jobs logs killed -f --tail 5
has "followed to a failure" "$said" "killed failed"
run "cancelled" 0 "$distsetup" jobs cancel cancelled --wait
has "cancelled" "$said" "cancelled cancelled"
run "cancelled again" 1 "$distsetup" jobs cancel cancelled
run "followed to a cancel" 130 "$distsetup" jobs logs cancelled -f --tail 5 --json
is "lists what failed" "$("$distsetup" jobs list --state failed | awk 'NR > 1 { print $1 }')" killed
echo "service_clients: all checks hold"
