#!/usr/bin/env python3
"""tests/data/chat_templates/make.py: renders the templates of cases.json with jinja2, set up as in transformers, and
writes what comes out beside them: `text`, `spans` of {% generation %} in bytes, or `refused: true`. Needs transformers 5.x and jinja2 3.1.6;
the tests read the file and need neither. A case is one line, so that a change is one line."""
import datetime
import json
import pathlib

import transformers.utils.chat_template_utils as chat

CASES = pathlib.Path(__file__).resolve().parent / "cases.json"


class OneDay(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2026, 3, 9, 14, 5, 7)


def answer(case):
    try:
        template = chat._cached_compile_jinja_template(case["template"])
        values = {"messages": None, "tools": None, "documents": None, "add_generation_prompt": False, **case.get("values", {})}
        text, spans = chat._render_with_assistant_indices(template, **values)
    except Exception:  # whatever it is, it refuses
        return {"refused": True}
    found = {"text": text}
    if spans:
        found["spans"] = [[len(text[:begin].encode()), len(text[:end].encode())] for begin, end in spans]
    return found


def main():
    chat.datetime = OneDay
    rows = []
    for case in json.loads(CASES.read_text(encoding="utf-8")):
        kept = {key: case[key] for key in ("about", "template", "values") if key in case}
        rows.append(json.dumps({**kept, **answer(case)}, ensure_ascii=False))
    CASES.write_text("[\n" + ",\n".join(rows) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
