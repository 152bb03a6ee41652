"""check_profile.py PROFILE.json RANK STEPS [--executed-only]: holds a profile to Chrome's trace format and execution to prediction.

Every event has ph, ts, pid, tid and name; slices of a row nest; rows have names. In each step execution and prediction have the same
instructions, by number and name, with the same ops, in the same order, and each op that was metered has the predicted bytes. Prints how
many."""
import collections
import json
import sys


def instructions(slices):
    """Of each step: (number, name, ops with their bytes) in the order of the list."""
    steps = collections.defaultdict(list)
    for event in slices:
        args = event["args"]
        if event["name"].startswith("wait for "):
            continue
        if event["name"].split()[0][0].isupper() and "/" not in event["name"] and not event["name"].startswith("R."):
            steps[args["step"]].append((args["instruction"], event["name"], []))
        else:
            steps[args["step"]][-1][2].append((event["name"], args.get("live_bytes")))
    return steps


def check_rows(slices):
    rows = collections.defaultdict(list)
    for event in slices:
        rows[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    slack = 1e-3  # microseconds, which is what sums of doubles lose
    for row, spans in rows.items():
        outer = []
        for begin, end in sorted(spans, key=lambda s: (s[0], -s[1])):
            while outer and outer[-1] <= begin + slack:
                outer.pop()
            assert not outer or end <= outer[-1] + slack, (row, begin, end, outer)
            outer.append(end)
    return set(rows)


def main():
    path, rank, steps = sys.argv[1], int(sys.argv[2]), [int(s) for s in sys.argv[3].split(",")]
    events = json.load(open(path))["traceEvents"]
    for event in events:
        assert {"ph", "ts", "pid", "tid", "name"} <= event.keys() and event["ph"] in "XCM" and event["ts"] >= 0, event
        assert event["pid"] == rank and isinstance(event["tid"], int), event
        assert event["ph"] != "X" or event["dur"] >= 0, event
    slices = [e for e in events if e["ph"] == "X"]
    named = {e["tid"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    assert check_rows(slices) <= named, named
    executed = instructions([e for e in slices if e["cat"] == "executed"])
    predicted = instructions([e for e in slices if e["cat"] == "predicted"])
    counters = {e["name"] for e in events if e["ph"] == "C"}
    assert sorted(executed) == steps, sorted(executed)
    if "--executed-only" in sys.argv:
        assert not predicted and counters == {"live bytes"}, counters
        return print("executed only")
    assert sorted(predicted) == steps and counters == {"live bytes", "live bytes predicted"}, counters
    metered = 0
    for step in steps:
        assert len(executed[step]) == len(predicted[step]), (len(executed[step]), len(predicted[step]))
        for ours, theirs in zip(executed[step], predicted[step]):
            assert ours[:2] == theirs[:2], (ours[:2], theirs[:2])
            assert [op for op, _ in ours[2]] == [op for op, _ in theirs[2]], (ours, theirs)
            for (op, measured), (_, expected) in zip(ours[2], theirs[2]):
                assert measured == expected, (step, ours[:2], op, measured, expected)
                metered += 1
    assert metered > 0
    print(f"{len(executed[steps[0]])} instructions, {metered} ops have the predicted bytes")


main()
