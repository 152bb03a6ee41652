"""Compares the generated tables of docs/ with what they are made from (--update: writes them), and holds every claim of a proof against
the test that it rests on. A table stands between <!-- NAME --> and <!-- /NAME -->:

  docs/targets.md   targets     templates/*/target.yaml
  docs/targets.md   coverage    distsetup emit --coverage
  docs/accuracy.md  scores      tests/accuracy/table.txt
  docs/accuracy.md  intervals   tests/accuracy/table.txt
"""

import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(os.environ.get("DISTSETUP_SOURCE", pathlib.Path(__file__).resolve().parents[2]))
PROGRAMS = pathlib.Path(os.environ.get("DISTSETUP_BIN", ROOT / "build/release/bin"))
LEVELS = ["run", "parsed", "schema", "table"]


def scalar(text, key):
    found = re.search(rf"^{key}: (.*)$", text, re.MULTILINE)
    if not found:
        return ""
    value = found.group(1).strip()
    return value[1:-1].replace("''", "'") if value[:1] in "'\"" and value[-1:] == value[:1] else value


def targets():
    for path in sorted(ROOT.glob("templates/*/target.yaml")):
        name = path.parent.name
        if name.startswith("_"):
            continue
        text = path.read_text(encoding="utf-8")
        files = [file for file in re.findall(r"(?<![a-z_])output: ([^,\s}]+)", text) if file != "plan.json"]
        yield name, scalar(text, "proof"), scalar(text, "proof_of"), scalar(text, "describes"), files


def table_of_targets():
    rows = []
    for name, proof, of, describes, files in sorted(targets(), key=lambda row: (LEVELS.index(row[1]), row[0])):
        rows.append([f"`{name}`", ", ".join(f"`{file}`" for file in dict.fromkeys(files)), describes, proof, of])
    return markdown(["`--target`", "writes", "for", "proof", "of"], rows)


def coverage():
    return subprocess.run([PROGRAMS / "distsetup", "emit", "--coverage"], check=True, capture_output=True, text=True).stdout.rstrip("\n")


def markdown(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def section(heading):
    """The lines of table.txt below a heading that begins so, up to an empty line."""
    for part in (ROOT / "tests/accuracy/table.txt").read_text(encoding="utf-8").split("\n\n"):
        lines = part.strip("\n").split("\n")
        if lines[0].startswith(heading):
            return lines[1:]
    sys.exit(f"tests/accuracy/table.txt has no section '{heading}'")


def scores():
    """A score, or one more figure of the score above, on each line."""
    rows = []
    for line in section("score "):
        name, rest = line[:42].strip(), line[42:].split()
        runs, figure, wanted, by_source, by_model, by_code = rest[0], rest[1], rest[3], rest[6], rest[7], rest[8]
        figure = {"mape": "mean error", "max": "largest error", "percent": "share of runs"}.get(figure, figure)
        rows.append([name, runs, figure, f"{wanted} %", f"{by_source} %", f"{by_model} %", f"{by_code} %"])
    head = ["score", "runs", "figure", "wanted, at most", "without the source", "without the model", "without the code base"]
    return markdown(head, rows)


def intervals():
    rows = []
    for line in section("90 % intervals"):
        name, runs, coverage, half_width = line.split()
        name = {"device": "device memory", "tokens_per_s_per_gpu": "tokens per second and GPU"}.get(name, f"{name} memory")
        rows.append([name, runs, f"{coverage} %", f"± {half_width} %"])
    return markdown(["prediction", "runs", "inside the interval", "half the width, median"], rows)


def check(name, page_name, wanted, source, update):
    """What is wrong with this part of this page; with `update` it is written."""
    path = ROOT / page_name
    page = path.read_text(encoding="utf-8")
    begin, end = f"<!-- {name} -->\n", f"\n<!-- /{name} -->"
    if begin not in page or end not in page:
        return [f"{page_name} has no place for the table: {begin.strip()} ... {end.strip()}"]
    head, rest = page.split(begin, 1)
    shown, tail = rest.split(end, 1)
    if shown == wanted:
        return []
    if update:
        path.write_text(head + begin + wanted + end + tail, encoding="utf-8")
        return []
    return [f"{page_name}: the table '{name}' differs from {source}: tests/docs/tables.sh --update"]


def main():
    update, failures = "--update" in sys.argv, []
    failures += check("targets", "docs/targets.md", table_of_targets(), "templates/*/target.yaml", update)
    failures += check("coverage", "docs/targets.md", coverage(), "distsetup emit --coverage", update)
    failures += check("scores", "docs/accuracy.md", scores(), "tests/accuracy/table.txt", update)
    failures += check("intervals", "docs/accuracy.md", intervals(), "tests/accuracy/table.txt", update)
    # A target is called parsed only where a test has the tool's parser read its files.
    parsers = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "tests/integration").glob("emit_targets*.py")))
    read = set(re.findall(r'plans\("([^"]+)"\)', parsers))
    for words in re.findall(r"for target in \(([^)]*)\):", parsers):
        read |= set(re.findall(r'"([^"]+)"', words))
    for name, proof, of, _, _ in targets():
        if proof not in LEVELS:
            failures.append(f"{name}: unknown proof '{proof}'")
        if proof == "parsed" and name not in read:
            failures.append(f"{name}: called parsed, and no tests/integration/emit_targets*.py reads it")
        if proof in ("parsed", "schema") and not of:
            failures.append(f"{name}: called {proof}, and proof_of does not say of which release")
    for failure in failures:
        print(failure)
    print(f"{len(list(targets()))} targets")
    sys.exit(1 if failures else 0)


main()
