#!/usr/bin/env bash
# What the job server bounds, each refused with its reason while it goes on: the size of a body, rows of a data set however they come, data
# sets, requests of one client a second. And what it forgets: jobs that ended long enough ago, with their folders, and no others.
# shellcheck source=tests/support/service.sh
. "${DISTSETUP_SOURCE:?}/tests/support/service.sh"
service_config
echo 'serve: {keep_jobs_days: 0.00003, limits: {body_bytes: 4096, rows: 5, datasets: 2, queued_jobs: 2}}' >>"$work/run_fsdp.yaml"
start_service service
answer() { curl -sS -o "$work/answer" -w '%{http_code}' -H 'Content-Type: application/json' "$@"; }  # its status; what it says is in $work/answer
rows() { python3 -c "import json; print(json.dumps([{'prompt': f'{n}?', 'chosen': 'a', 'rejected': 'b'} for n in range($1)]))"; }
dataset() { answer "$url/v1/datasets" -d "{\"dataset_id\": \"$1\", \"source\": {\"type\": \"rows\", \"rows\": $(rows "$2")}}"; }
refused() { # WHAT STATUS FOUND WORDS
  is "$1" "$3" "$2"
  has "$1: why" "$(cat "$work/answer")" "$4"
}

# --- rows
is "five rows" "$(dataset pairs 5)" 200
refused "six rows" 413 "$(dataset more 6)" "this service takes 5"
refused "a row more" 413 "$(answer "$url/v1beta/datasetio/append-rows/pairs" -d "{\"rows\": $(rows 1)}")" "this service takes 5"
python3 -c "print('\n'.join('{\"prompt\": \"%d\", \"chosen\": \"a\", \"rejected\": \"b\"}' % n for n in range(6)))" >"$work/six.jsonl"
refused "a file of six" 413 "$(answer -X PUT "$url/v1/datasets/filed/file" -H 'Content-Type: application/jsonl' --data-binary "@$work/six.jsonl")" "this service takes 5"
is "the five are as they were" "$(curl -s "$url/v1/datasetio/iterrows/pairs" | grep -o '"prompt"' | wc -l)" 5

# --- data sets, bodies
is "a second data set" "$(dataset other 1)" 200
refused "a third" 429 "$(dataset third 1)" "2 data sets, which is the limit"
head -c 5000 /dev/zero | tr '\0' ' ' >"$work/large"
refused "a large body" 413 "$(answer "$url/v1/plan" --data-binary "@$work/large")" "larger than this service takes"
is "it goes on" "$(answer "$url/health")" 200

# --- jobs: a queue of two is full, and what is forgotten
job() {
  answer "$url/v1/post-training/preference-optimize" -d "{\"job_uuid\": \"$1\", \"model\": \"tiny\", \"algorithm_config\": {\"type\": \"dpo\"},
    \"training_config\": {\"n_epochs\": $2, \"data_config\": {\"dataset_id\": \"pairs\", \"batch_size\": 1}}}"
}
is "a long job" "$(job long 100000)" 200
is "one that waits" "$(job waits 1)" 200
refused "a third job" 429 "$(job third 1)" "2 jobs wait or run, which is the limit"
[[ ! -e $work/service.data/jobs/third ]] || fail "a refused job leaves its folder"
is "the one that waits is cancelled" "$(answer -X POST "$url/v1/post-training/job/cancel?job_uuid=waits")" 200
wait_for waits cancelled 20
wait_for long in_progress 60
sleep 3  # longer than 0.00003 days
stop_service "$service_pid"  # which looks again when it starts
start_service service
for _ in $(seq 100); do
  found=$(answer "$url/v1/post-training/job/status?job_uuid=waits")
  [[ $found == 404 ]] && break
  sleep 0.1
done
refused "a job that ended is forgotten" 404 "$found" "no job"
[[ ! -e $work/service.data/jobs/waits ]] || fail "its folder is left"
wait_for long "in_progress|scheduled|queued" 20
[[ -e $work/service.data/jobs/long/plan.json ]] || fail "a job that goes on has lost its folder"
is "its id is free again" "$(job waits 1)" 200
answer -X POST "$url/v1/post-training/job/cancel?job_uuid=long" >"$work/none"
wait_for long cancelled 60
stop_service "$service_pid"

# --- requests a second: a burst of four seconds, then no more than two a second
rm "$work/run_fsdp.yaml"
service_config
echo 'serve: {limits: {requests_per_s: 2}}' >>"$work/run_fsdp.yaml"
start_service slow
many=$(printf 'e,%.0s' $(seq 60))
codes=$(curl -sS -o "$work/answer" -D "$work/head" -w '%{http_code} ' "$url/v1/queu{${many%,}}")  # one program, on one connection
has "a burst is answered" "$codes" "200 200 200"
has "too many are not" "$codes" "429 429 429"
has "too many: when to come again" "$(tr -d '\r' <"$work/head")" "Retry-After: 1"
sleep 2
is "later it is answered again" "$(answer "$url/v1/queue")" 200
echo "service_limits: all checks hold"
