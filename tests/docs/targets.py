"""Compares the table between <!-- targets --> and <!-- /targets --> in README.md with templates/*/target.yaml (--update: writes it), and
holds every claim of a proof against the test that it rests on."""

import os
import pathlib
import re
import sys

ROOT = pathlib.Path(os.environ.get("DISTSETUP_SOURCE", pathlib.Path(__file__).parents[2]))
PAGE = ROOT / "README.md"
BEGIN, END = "<!-- targets -->", "<!-- /targets -->"
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


def table():
    rows = [BEGIN, "| `--target` | writes | for | proof | of |", "|---|---|---|---|---|"]
    for name, proof, of, describes, files in sorted(targets(), key=lambda row: (LEVELS.index(row[1]), row[0])):
        unique = list(dict.fromkeys(files))
        rows.append(f"| `{name}` | {', '.join(f'`{file}`' for file in unique)} | {describes} | {proof} | {of} |")
    return "\n".join([*rows, END])


def main():
    page = PAGE.read_text(encoding="utf-8")
    if BEGIN not in page or END not in page:
        sys.exit(f"README.md has no place for the table: {BEGIN} ... {END}")
    head, rest = page.split(BEGIN, 1)
    shown, tail = BEGIN + rest.split(END, 1)[0] + END, rest.split(END, 1)[1]
    if "--update" in sys.argv and shown != table():
        PAGE.write_text(head + table() + tail, encoding="utf-8")
        shown = table()
    failures = []
    if shown != table():
        failures.append("README.md's table of targets is not what templates/*/target.yaml say: tests/docs/targets.sh --update")
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
