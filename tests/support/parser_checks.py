"""What a tool's own parser makes of emitted files: it has to accept them, understand by them what the plan says, and refuse mutated
ones. Shared by the tests of emitted files; `report` prints the counts and every failure."""

import contextlib
import copy
import os
import traceback

failures = []
counts = {"accepted": 0, "refused": 0}


def fail(text):
    failures.append(text)


def expect(name, found, wanted):
    if found != wanted:
        fail(f"{name}: found {found!r}, expected {wanted!r}")


def is_own_mistake(problem):
    """Not the tool refused the file: the test has a slip, for which any mutation would seem to be refused. A name that is not there; or
    what the mutation itself stopped at, before the tool saw it."""
    if isinstance(problem, NameError):
        return True
    frames = traceback.extract_tb(problem.__traceback__)
    return isinstance(problem, (AttributeError, TypeError, LookupError)) and bool(frames) and frames[-1].name in ("<lambda>", "changed")


def accept(name, function):
    try:
        result = function()
        counts["accepted"] += 1
        return result
    except BaseException as problem:  # argparse leaves with SystemExit
        fail(f"{name}: not accepted: {type(problem).__name__}: {str(problem)[-600:]}")
        return None


def refuse(name, function):
    try:
        with contextlib.redirect_stderr(open(os.devnull, "w")):  # argparse prints its usage
            function()
    except BaseException as problem:
        if is_own_mistake(problem):
            fail(f"{name}: the test itself stopped: {type(problem).__name__}: {problem}")
        else:
            counts["refused"] += 1
        return
    fail(f"{name}: a mutated file was accepted")


def changed(value, path, new):
    """A copy in which the key at the dotted path is `new`."""
    value = copy.deepcopy(value)
    node = value
    *sections, last = path.split(".")
    for section in sections:
        node = node.setdefault(section, {})
    node[last] = new
    return value


def report(what, least_accepted=1, least_refused=1):
    """The exit code."""
    print(f"{what}{counts['accepted']} files accepted and understood, {counts['refused']} mutated ones refused")
    for failure in failures:
        print("FAILED " + failure)
    enough = counts["accepted"] >= least_accepted and counts["refused"] >= least_refused
    return 1 if failures or not enough else 0
