"""Executes every console block of README.md and compares what it prints with what the page shows.

A block is ```console: a line `$ command` is run by bash in an empty folder with the built programs on PATH; the lines up to the next
command are its standard output, where a line `…` stands for any number of lines. Commands listed in ELSEWHERE take minutes and are run
by the suite named there; here it is checked that they exist. Usage: readme.py [--update]
"""
import os, pathlib, re, subprocess, sys, tempfile

ROOT = pathlib.Path(os.environ["DISTSETUP_SOURCE"])
ELSEWHERE = {"./scripts/quickstart": "tests/integration/quickstart_all.sh", "./scripts/test": ".ci/run"}


def run(command, cwd):
    env = dict(os.environ, PATH=os.environ["DISTSETUP_BIN"] + os.pathsep + os.environ["PATH"], COLUMNS="80", LC_ALL="C.UTF-8", NO_COLOR="1")
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], cwd=cwd, env=env, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


def matches(shown, printed):
    pattern = "".join(r"(?:.*\n)*?" if line == "…" else re.escape(line) + "\n" for line in shown)
    return re.fullmatch(pattern, printed) is not None


def main():
    update = "--update" in sys.argv
    page = ROOT / "README.md"
    lines, out, failures, commands = page.read_text().split("\n"), [], 0, 0
    fences = sum(line.startswith("```") and line != "```" for line in lines)
    consoles = sum(line == "```console" for line in lines)
    pictures = sum(line == "```text" for line in lines)
    if fences != consoles + pictures:
        sys.exit("README.md: every block is ```console (executed) or ```text (a picture)")
    at = 0
    with tempfile.TemporaryDirectory() as folder:
        while at < len(lines):
            out.append(lines[at])
            if lines[at] != "```console":
                at += 1
                continue
            at += 1
            while lines[at] != "```":
                command = lines[at].removeprefix("$ ")
                if command == lines[at]:
                    sys.exit(f"README.md:{at + 1}: a console block starts with '$ command', found '{lines[at]}'")
                out.append(lines[at])
                at += 1
                shown = []
                while lines[at] != "```" and not lines[at].startswith("$ "):
                    shown.append(lines[at])
                    at += 1
                commands += 1
                if command in ELSEWHERE:
                    if not os.access(ROOT / command, os.X_OK) or not (ROOT / ELSEWHERE[command]).exists():
                        print(f"README.md: {command} or {ELSEWHERE[command]} is missing")
                        failures += 1
                    out += shown
                    continue
                code, printed, talk = run(command, folder)
                if code != 0:
                    print(f"README.md: `{command}` ended with {code}\n{talk}")
                    failures += 1
                elif not matches(shown, printed):
                    if update and "…" not in shown:
                        shown = printed.rstrip("\n").split("\n") if printed else []
                        print(f"updated: {command}")
                    else:
                        print(f"README.md: `{command}` prints\n{printed}")
                        failures += 1
                out += shown
    if update:
        page.write_text("\n".join(out))
    print(f"{commands} commands, {failures} differ")
    return 1 if failures or not commands else 0


sys.exit(main())
