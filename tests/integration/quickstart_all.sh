#!/usr/bin/env bash
# The main job of scripts/quickstart: two ranks learn this repository's text, one rank resumes, prediction and measurement agree to the
# byte. 45 steps; quickstart_nightly.sh has all 300.
# shellcheck source=tests/support/job.sh
. "${DISTSETUP_SOURCE:?}/tests/support/job.sh"
need_trainer
steps=45 most_loss=3.0
if [[ -n ${DISTSETUP_NIGHTLY:-} ]]; then steps=300 most_loss=2.5; fi

begin=$(date +%s)
run quickstart_job 0 env QUICKSTART_DIR="$work/quickstart" QUICKSTART_STEPS=$steps "$DISTSETUP_SOURCE/scripts/quickstart_job"
echo "$said" | tail -n 60
took=$(($(date +%s) - begin))
[[ $took -lt 600 ]] || fail "the main job takes less than 10 minutes" "$took s"
has "the one-rank run resumes" "$said" "checkpoint_$steps, $steps of $((steps + steps / 10)) steps are done"
has "a loss curve is drawn" "$said" "loss: . training, o held out"

python3 - "$work/quickstart" $steps $most_loss <<'PY'
import json, pathlib, sys
root, num_steps, most_loss = pathlib.Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])

def rows(name, kind):
    return [r for r in map(json.loads, (root / name / "metrics.jsonl").read_text().splitlines()) if r["kind"] == kind]

problems = []
def expect(holds, what):
    if not holds:
        problems.append(what)

steps, held_out = rows("two_ranks", "step"), rows("two_ranks", "evaluation")
expect([r["step"] for r in steps] == list(range(1, num_steps + 1)), f"steps 1..{num_steps} are each logged once")
expect(5.3 < steps[0]["loss"] < 5.9, f"training starts near ln 256 = 5.545: {steps[0]['loss']}")
expect(5.3 < held_out[0]["held_out_loss"] < 5.9, f"held-out starts near ln 256: {held_out[0]['held_out_loss']}")
last = sum(r["loss"] for r in steps[-10:]) / 10
expect(last < most_loss, f"training loss ends below {most_loss}: {last}")
expect(held_out[-1]["held_out_loss"] < most_loss, f"held-out loss ends below {most_loss}: {held_out[-1]['held_out_loss']}")
more = rows("one_rank", "step")
expect([r["step"] for r in more] == list(range(num_steps + 1, num_steps + num_steps // 10 + 1)), f"one rank goes on with step {num_steps + 1}")
expect(sum(r["loss"] for r in more) / len(more) < most_loss + 0.1, "the resumed run keeps what was learnt")
for name in ("two_ranks", "one_rank"):
    report = json.loads((root / name / "report.json").read_text())
    plan = json.loads((root / name / "plan.json").read_text())
    expect(report["status"] == "completed", f"{name} is completed: {report['status']}")
    expect(report["measured_peak_instruction"] == plan["memory"]["peak_instruction"],
           f"{name}: peak at {report['measured_peak_instruction']}, predicted {plan['memory']['peak_instruction']}")
    for row in report["comparison"]:
        if "predicted_bytes" in row:
            slack = 65536 if row["what"] in ("workspace", "peak allocated") else 0  # what libraries take for themselves
            expect(abs(row["difference_bytes"]) <= slack, f"{name}: {row}")
print(f"training {steps[0]['loss']:.3f} -> {last:.3f}, held out {held_out[0]['held_out_loss']:.3f} -> {held_out[-1]['held_out_loss']:.3f}")
for p in problems:
    print("not so:", p)
sys.exit(1 if problems else 0)
PY
