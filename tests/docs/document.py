#!/usr/bin/env python3
"""Runs the commands of a document and compares what they print with what the page shows. Usage: document.py [--update] FILE.md

What a block is stands behind its three backticks:

  console           commands, each on a line `$ command`, with its standard output below it; a line `…` stands for any number of lines
  console trainer   the same, for commands that need distsetup-train; not run where it is not built
  yaml run.yaml     a file (of any language), written to the scratch folder under that name; the text above it has to say the name, and
                    a later command has to use it
  text              a drawing, which holds no command

The commands of one document run in order in one scratch folder, with the built programs on PATH, in 80 columns. They have to succeed: a
command that is meant to fail ends with `|| echo "exit code $?"`. Those in ELSEWHERE take minutes and are run by the suite named there.
--update writes what the commands print into the page. Exit code 1: something differs; 77: nothing differs, and blocks were not run.
"""

import difflib
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(os.environ.get("DISTSETUP_SOURCE", pathlib.Path(__file__).resolve().parents[2]))
PROGRAMS = pathlib.Path(os.environ.get("DISTSETUP_BIN", ROOT / "build/release/bin"))
ELSEWHERE = {"./scripts/quickstart": "tests/integration/quickstart_all.sh", "./scripts/test": ".ci/run"}


def run(command, folder):
    """Standard output and the complaint, which is empty when the command succeeded."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("DISTSETUP_")}  # these are settings of a run
    env |= {"PATH": f"{PROGRAMS}{os.pathsep}{env['PATH']}", "COLUMNS": "80", "LC_ALL": "C.UTF-8", "NO_COLOR": "1"}
    try:
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command], cwd=folder, env=env, capture_output=True, text=True, timeout=300
        )
    except subprocess.TimeoutExpired:
        return "", "takes more than 300 seconds"
    ended_by_head = done.returncode == 141 and "| head" in command  # head has read enough: a broken pipe, as of any program
    return done.stdout, f"ends with {done.returncode}\n{done.stderr}" if done.returncode and not ended_by_head else ""


def matches(shown, printed):
    pattern = "".join(r"(?:.*\n)*?" if line == "…" else re.escape(line) + "\n" for line in shown)
    return re.fullmatch(pattern, printed) is not None


def uses(command, name):
    folder = name.rpartition("/")[0]
    return name in command or (folder and f"{folder}/" in command)


class Page:
    """A document on its way through: `out` is what --update will write."""

    def __init__(self, path, update):
        self.path, self.update = path, update
        self.lines = path.read_text(encoding="utf-8").split("\n")
        self.out, self.failures = [], []
        self.num_run, self.num_left_out = 0, 0
        self.unused_files = {}  # name -> line

    def fail(self, line, what):
        self.failures.append(f"{self.path.name}:{line}: {what}")

    def walk(self, folder):
        at, prose = 0, ""
        while at < len(self.lines):
            line = self.lines[at]
            at += 1
            self.out.append(line)
            if not line.startswith("```"):
                prose += line + "\n"
                continue
            begin = at
            while at < len(self.lines) and self.lines[at] != "```":
                at += 1
            if at == len(self.lines):
                self.fail(begin, "the block does not end")
                break
            self.block(line[3:].split(), self.lines[begin:at], begin, prose, folder)
            self.out.append("```")
            at, prose = at + 1, ""
        for name, line in self.unused_files.items():
            self.fail(line, f"no command uses the file '{name}'")

    def block(self, words, body, line, prose, folder):
        if words in (["console"], ["console", "trainer"]):
            self.commands(body, line, folder, needs_trainer=len(words) == 2)
            return
        self.out += body
        if words == ["text"]:
            if any(text.lstrip().startswith(("$ ", "distsetup ", "./scripts/")) for text in body):
                self.fail(line, "a drawing holds a command, which nothing runs: make it a console block")
        elif len(words) == 2:
            name = words[1]
            if f"`{name}`" not in prose:
                self.fail(line, f"the text above the block does not say that it is the file `{name}`")
            self.unused_files[name] = line
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("\n".join(body) + "\n", encoding="utf-8")
        else:
            self.fail(line, f"a block of a kind that nothing checks: '{' '.join(words)}'")

    def commands(self, body, line, folder, needs_trainer):
        at = 0
        while at < len(body):
            command = body[at].removeprefix("$ ")
            here = line + at + 1
            self.out.append(body[at])
            at += 1
            if command == self.out[-1]:
                self.fail(here, f"a console block begins with '$ command', found '{command}'")
                self.out += body[at:]
                return
            shown = []
            while at < len(body) and not body[at].startswith("$ "):
                shown.append(body[at])
                at += 1
            self.unused_files = {name: where for name, where in self.unused_files.items() if not uses(command, name)}
            self.out += self.command(command, shown, here, folder, needs_trainer)

    def command(self, command, shown, line, folder, needs_trainer):
        if command in ELSEWHERE:
            if not os.access(ROOT / command, os.X_OK) or not (ROOT / ELSEWHERE[command]).exists():
                self.fail(line, f"{command}, or {ELSEWHERE[command]} that runs it, is missing")
            return shown
        if needs_trainer and not os.access(PROGRAMS / "distsetup-train", os.X_OK):
            self.num_left_out += 1
            return shown
        self.num_run += 1
        printed, complaint = run(command, folder)
        if complaint:
            self.fail(line, f"`{command}` {complaint}")
        elif not matches(shown, printed):
            now = printed.rstrip("\n").split("\n") if printed else []
            if self.update and "…" not in shown:
                print(f"{self.path.name}:{line}: updated: {command}")
                return now
            difference = difflib.unified_diff(shown, now, "the page shows", f"`{command}` prints", lineterm="")
            self.fail(line, "\n".join(difference))
        return shown


def main():
    arguments = [word for word in sys.argv[1:] if word != "--update"]
    if len(arguments) != 1:
        sys.exit("usage: document.py [--update] FILE.md")
    if not os.access(PROGRAMS / "distsetup", os.X_OK):
        sys.exit(f"no distsetup in {PROGRAMS}: ./scripts/build --no-runtime, or name its folder in DISTSETUP_BIN")
    page = Page(pathlib.Path(arguments[0]), "--update" in sys.argv)
    with tempfile.TemporaryDirectory() as folder:
        page.walk(pathlib.Path(folder))
    if "--update" in sys.argv and "\n".join(page.out) != "\n".join(page.lines):
        page.path.write_text("\n".join(page.out), encoding="utf-8")
    for failure in page.failures:
        print(failure)
    print(f"{page.path.name}: {page.num_run} commands run, {len(page.failures)} failures")
    if page.failures:
        return 1
    if page.num_left_out:
        print(f"not run: {page.num_left_out} commands need distsetup-train, which is not built ({page.num_run} others agree)")
        return 77
    return 0


sys.exit(main())
