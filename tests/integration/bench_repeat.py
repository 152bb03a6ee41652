#!/usr/bin/env python3
"""tests/bench/peers.py with peers that write their results and then end badly so many times."""
import contextlib
import io
import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(os.environ["DISTSETUP_SOURCE"]) / "tests/bench"))
import peers  # noqa: E402

# Rank 1 ends badly in the first FAILURES runs, after the results are written; every run leaves a line in `runs`.
PEER = """
import json, os, pathlib, sys
results = pathlib.Path(sys.argv[2])
runs = results.with_name("runs")
if os.environ["RANK"] == "0":
    results.write_text(json.dumps([{"loss": 1.0, "step_s": 0.5}]))
    sys.exit(0)
count = len(runs.read_text().splitlines()) if runs.exists() else 0
runs.write_text("run\\n" * (count + 1))
print("peer says goodbye", flush=True)
if count < FAILURES:
    END
"""


def run(failures, end):
    """Results or the text that the bench ended with, what it said, how often the peer ran."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        peer = folder / "peer.py"
        peer.write_text(PEER.replace("FAILURES", str(failures)).replace("END", end))
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            try:
                result, _ = peers.run_peer("plan.json", str(folder / "out"), peer)
            except SystemExit as stop:
                result = str(stop.code)
        return result, said.getvalue(), len((folder / "runs").read_text().splitlines())


def expect(what, condition, found):
    if not condition:
        sys.exit(f"bench_repeat: {what}\n  found: {found}")


def main():
    aborts, fails = "os.abort()", "sys.exit(3)"
    result, said, runs = run(0, aborts)
    expect("a peer that ends well runs once, without a word", result == [{"loss": 1.0, "step_s": 0.5}] and said == "" and runs == 1, (result, said, runs))
    result, said, runs = run(2, aborts)
    expect("a peer that aborts twice is run three times", result == [{"loss": 1.0, "step_s": 0.5}] and runs == 3, (result, said, runs))
    expect("each repeat is said", said.count("peer.py: exit codes [0, -6]: a rank was ended by a signal, so this run is done again") == 2, said)
    result, said, runs = run(9, aborts)
    expect("a peer that keeps aborting ends the bench with its text", "exit codes [0, -6] in run 3 of at most 3" in result and "goodbye" in result and runs == 3, (result, runs))
    result, said, runs = run(9, fails)
    expect("a peer that fails by itself is not run again", "exit codes [0, 3] in run 1 of at most 3" in result and said == "" and runs == 1, (result, said, runs))
    print("bench_repeat: all checks hold")


if __name__ == "__main__":
    main()
