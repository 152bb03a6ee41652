"""What pages have to keep to besides their commands (document.py): links and paths in any page of the repository lead to
something; the headers that src/README.md names are where it says; the first pages stay short."""

import os
import pathlib
import re
import sys

ROOT = pathlib.Path(os.environ.get("DISTSETUP_SOURCE", pathlib.Path(__file__).resolve().parents[2]))
MOST_LINES = {"README.md": 100, "src/planner/README.md": 120}
MOST_LINES_OF_PREVIEW = 25


def pages():
    for folder in ("docs", "src", "runtime", "tests", "presets", "templates", "scripts"):
        yield from sorted((ROOT / folder).rglob("*.md"))
    yield ROOT / "README.md"


def anchors(path):
    """The names GitHub gives to a page's headings."""
    for heading in re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE):
        yield re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def broken_links(page):
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", text)):
        if re.match(r"[a-z]+://", link):
            continue
        name, _, anchor = link.partition("#")
        target = page if not name else page.parent / name
        if not target.exists():
            yield f"{link}: no such file"
        elif anchor and anchor not in anchors(target):
            yield f"{link}: no such heading"


def lost_paths(page):
    """Files of this repository that a page names in backticks and that are not there. Pages of docs/ also name files of other programs."""
    if page.parent.name == "docs":
        return
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for path in re.findall(r"`((?:src|runtime|tests|presets|templates|scripts)/[\w./-]*)`", text):
        if not (ROOT / path).exists():
            yield f"`{path}`: no such file"


def missing_headers(page):
    """Of the rows `folder/` | ... | `header.h`: headers that are not in the row's folders."""
    for row in re.findall(r"^\| (`[^|]*/`) \|.*\| ([^|]*) \|$", page.read_text(encoding="utf-8"), re.MULTILINE):
        folders = re.findall(r"`([^`]+/)`", row[0])
        for header in re.findall(r"`([^`]+\.h)`", row[1]):
            if not any((page.parent / folder / header).exists() for folder in folders):
                yield f"{header} is not in {' or '.join(folders)}"


def main():
    failures, num_pages = [], 0
    for page in pages():
        num_pages += 1
        failures += [f"{page.relative_to(ROOT)}: {what}" for what in [*broken_links(page), *lost_paths(page)]]
    failures += [f"src/README.md: {what}" for what in missing_headers(ROOT / "src/README.md")]
    for name, most in MOST_LINES.items():
        lines = len((ROOT / name).read_text(encoding="utf-8").splitlines())
        if lines > most:
            failures.append(f"{name} has {lines} lines, at most {most} are wanted: move the rest to docs/")
    preview = re.search(r"^```console\n(.*?)^```$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    if not preview or len(preview.group(1).splitlines()) > MOST_LINES_OF_PREVIEW + 1:
        failures.append(f"README.md begins with no preview, or with one of more than {MOST_LINES_OF_PREVIEW} lines")
    for failure in failures:
        print(failure)
    print(f"{num_pages} pages, {len(failures)} failures")
    return 1 if failures else 0


sys.exit(main())
