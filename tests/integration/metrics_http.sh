#!/usr/bin/env bash
# The numbers of a run over HTTP as OpenMetrics: read while it runs, held against metrics.jsonl and the plan; addresses that cannot be.
# shellcheck source=tests/support/job.sh
. "${DISTSETUP_SOURCE:?}/tests/support/job.sh"
need_trainer
make_job job 2 --steps 40000 --checkpoint-every 0
port=$(free_port)
"$distsetup" launch --plan "$work/job/plan.json" --threads 1 --grace 3 --metrics-address "127.0.0.1:$port" > "$work/log" 2>&1 &
launcher=$!
trap 'status=$?; kill -9 "$launcher" 2> /dev/null || true; rm -rf "$work"; exit $status' EXIT
python3 - "$port" "$work/job" << 'PY' || fail "the scrape" "$(tail -n 5 "$work/log")"
import json, pathlib, re, sys, time, urllib.error, urllib.request
port, folder = sys.argv[1], pathlib.Path(sys.argv[2])
url = f"http://127.0.0.1:{port}/metrics"

def scrape():
    with urllib.request.urlopen(url, timeout=10) as answer:
        assert answer.headers["Content-Type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8", answer.headers
        return answer.read().decode()

def values(text):
    assert text.endswith("# EOF\n") and text.count("# EOF") == 1, text
    types, samples = {}, {}
    for line in text.splitlines()[:-1]:
        if line.startswith("# "):
            word, name, rest = re.fullmatch(r"# (TYPE|HELP|UNIT) ([a-z_]+) (.+)", line).groups()
            if word == "TYPE":
                assert name not in types, name
                types[name] = rest
            if word == "UNIT":
                assert name.endswith("_" + rest), line
            continue
        name, value = re.fullmatch(r"([a-z_]+)(?:\{.*\})? (\S+)", line).groups()
        family = re.sub(r"_(total|info)$", "", name)
        assert family in types and (name.endswith("_total") == (types[family] == "counter")), line
        samples[name] = float(value)
    return samples

deadline = time.monotonic() + 60
while True:
    try:
        seen = values(scrape())
        if seen.get("distsetup_step", 0) > 20:
            break
    except urllib.error.URLError:
        pass
    assert time.monotonic() < deadline, "no answer"
    time.sleep(0.1)
lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines() if line.endswith("}")]
step = next(line for line in lines if line["kind"] == "step" and line["step"] == seen["distsetup_step"])
plan = json.loads((folder / "plan.json").read_text())
for name, expected in [("loss", step["loss"]), ("learning_rate", step["learning_rate"]), ("gradient_norm", step["gradient_norm"]),
                       ("step_seconds", step["step_s"]), ("tokens_per_second", step["tokens_per_s"]), ("tokens_total", step["tokens"]),
                       ("wait_seconds", step["wait_s"]), ("skipped_steps_total", 0), ("planned_steps", 40000),
                       ("predicted_step_seconds", plan["time"]["step_s"]),
                       ("predicted_peak_memory_bytes", plan["memory"]["peak_allocated_bytes"]),
                       ("peak_memory_bytes", plan["memory"]["peak_allocated_bytes"])]:
    assert abs(seen["distsetup_" + name] - expected) <= 1e-9 * abs(expected), (name, seen["distsetup_" + name], expected)
assert 0 < seen["distsetup_goodput_ratio"] <= 1, seen
assert seen["distsetup_held_out_loss"] == next(line["held_out_loss"] for line in lines if line["kind"] == "evaluation")
try:
    urllib.request.urlopen(f"http://127.0.0.1:{port}/other", timeout=10)
    raise SystemExit("another page is answered")
except urllib.error.HTTPError as error:
    assert error.code == 404
PY
is "it listens on loopback alone" "$(ss -ltnH "sport = :$port" | awk '{ print $4 }' | paste -sd' ')" "127.0.0.1:$port"

# --- a taken port and addresses that are none: an error before any step
make_job other 1
run "a taken port" 5 launch other --threads 1 --metrics-address "127.0.0.1:$port"
has "a taken port" "$said" "cannot listen on 127.0.0.1:$port for metrics"
run "not of this machine" 5 launch other --threads 1 --metrics-address "192.0.2.1:9400"
has "not of this machine" "$said" "cannot listen on 192.0.2.1:9400"
[[ ! -e $work/other/metrics.jsonl ]] || fail "a step was taken"
for address in 9400 127.0.0.1:0 127.0.0.1:70000 127.0.0.1:http "a b:9400"; do
  run "address '$address'" 6 launch other --threads 1 --metrics-address "$address"
  has "address '$address'" "$said" "expected HOST:PORT, as in 127.0.0.1:9400"
done
kill "$launcher"
wait "$launcher" || fail "the run that was scraped" "$(tail -n 5 "$work/log")"
run "the port is free again" 0 launch other --threads 1 --stop-after 2 --metrics-address "127.0.0.1:$port"
echo "metrics_http: all checks hold"
