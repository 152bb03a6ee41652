"""chat_templates.py BIN: TRL's chat templates over random conversations, through data render and through Transformers.

Both have to say the same text, and to find the same answers where a template marks them, or both have to refuse. Conversations have
system and developer messages, parts, reasoning, tools, their calls and answers, text that looks like HTML, like a template or like
a token, and roles in an order that many templates refuse. The seed is printed; DISTSETUP_SEED=N repeats a run."""
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import trl
from transformers.utils import logging
from transformers.utils.chat_template_utils import render_jinja_template

BIN = sys.argv[1]
CONVERSATIONS, REFUSALS = 60, 4  # of a template; those that are refused are tried one by one
SEED = int(os.environ.get("DISTSETUP_SEED") or random.randrange(1 << 31))
WORDS = ["hello", "Größe", "今日は", "🙂", "<b>&amp;\"'", "  two  blanks ", "line\nbreak\n", "x=1;{}", "{{ not }}", "\t", "", "<think>",
         "</think>", "a" * 40, "0.5", "null", "it's"]
chance = random.Random(SEED)


def text():
    return " ".join(chance.choices(WORDS, k=chance.randrange(0, 6)))


def arguments():
    values = [text(), 3, 1.5, True, None, ["a", 1], {"k": "v"}]
    return {chance.choice(["city", "n", "flag", "list"]): chance.choice(values) for _ in range(chance.randrange(3))}


def answer():
    message = {"role": "assistant", "content": text()}
    if chance.random() < 0.2:
        message["reasoning_content"] = text()
    if chance.random() < 0.1:
        message["thinking"] = text()
    return message


def turn():
    messages = [{"role": "user", "content": text() if chance.random() < 0.85 else [{"type": "text", "text": text()}]}]
    if chance.random() < 0.15:
        return messages  # the next one is a user's again
    messages.append(answer())
    if chance.random() < 0.3:
        calls = [{"type": "function", "id": f"call{chance.randrange(10**5, 10**9)}", "function": {"name": "f", "arguments": arguments()}}
                 for _ in range(chance.randrange(1, 3))]
        messages[-1]["tool_calls"] = calls
        if chance.random() < 0.3:
            messages[-1]["content"] = chance.choice([None, ""])
        messages += [{"role": "tool", "name": "f", "tool_call_id": call["id"], "content": text()} for call in calls]
        if chance.random() < 0.7:
            messages.append(answer())
    return messages


def tool():
    properties = {"city": {"type": "string", "description": text()},
                  "n": {"type": chance.choice(["integer", "number", ["string", "null"]]), "enum": [1, 2]}}
    parameters = {"type": "object", "properties": properties, "required": ["city"]}
    return {"type": "function", "function": {"name": "f", "description": text(), "parameters": parameters}}


def conversation():
    first = [{"role": chance.choice(["system", "system", "developer"]), "content": text()}] if chance.random() < 0.5 else []
    values = {"messages": first + [m for _ in range(chance.randrange(1, 4)) for m in turn()], "tools": None,
              "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    if chance.random() < 0.4:
        values["tools"] = [tool() for _ in range(chance.randrange(1, 3))]
    if chance.random() < 0.2:
        values["enable_thinking"] = chance.random() < 0.5
    return values


def transformers_render(template, values, generation_prompt):
    """The text, and where in its bytes the marked answers are. None: it refuses."""
    own = json.loads(json.dumps(values))
    messages, tools = own.pop("messages"), own.pop("tools")
    try:
        texts, marks = render_jinja_template([messages], tools=tools, chat_template=template, return_assistant_tokens_mask=True,
                                             add_generation_prompt=generation_prompt, **own)
    except Exception:  # a template raises what it likes
        return None
    byte = [0]
    for character in texts[0]:
        byte.append(byte[-1] + len(character.encode()))
    return {"text": texts[0], "trained": [[byte[begin], byte[end]] for begin, end in marks[0] if begin < end]}


def render(template, conversations, generation_prompt, folder):
    """What data render prints of them. None: it refuses."""
    path = folder / "conversations.jsonl"
    path.write_text("".join(json.dumps(values) + "\n" for values in conversations))
    line = [BIN, "data", "render", str(template), str(path), "--json"] + (["--generation-prompt"] if generation_prompt else [])
    line += ["--show-trained"] if marks_answers(template.read_text()) else []
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 3), (line, done.returncode, done.stderr[-600:])
    return json.loads(done.stdout)["conversations"] if done.returncode == 0 else None


def marks_answers(template):
    return re.search(r"\{%-?\s*generation\b", template) is not None


logging.set_verbosity_error()  # it warns of templates without marks
print(f"DISTSETUP_SEED={SEED}")
files = sorted((Path(trl.__file__).parent / "chat_templates").glob("*.jinja"))
assert len(files) >= 50, f"{len(files)} templates of trl {trl.__version__}"
equal = spans = refused = 0
with tempfile.TemporaryDirectory() as folder:
    for file in files:
        source = file.read_text()
        for generation_prompt in (False, True):
            taken, wanted, tried = [], [], 0
            for _ in range(CONVERSATIONS // 2):
                values = conversation()
                want = transformers_render(source, values, generation_prompt)
                if want is not None:
                    taken.append(values)
                    wanted.append(want)
                elif tried < REFUSALS // 2:
                    tried += 1
                    assert render(file, [values], generation_prompt, Path(folder)) is None, f"{file.name} renders what jinja2 refuses: {values}"
            refused += tried
            got = render(file, taken, generation_prompt, Path(folder)) if taken else []
            assert got is not None, f"{file.name} refuses one of {len(taken)} conversations that jinja2 renders"
            assert len(got) == len(wanted), (file.name, len(got), len(wanted))
            for values, want, have in zip(taken, wanted, got):
                assert have["text"] == want["text"], f"{file.name}: {values}\nwanted {want['text']!r}\ngot    {have['text']!r}"
                equal += 1
                if marks_answers(source):
                    assert have.get("trained", []) == want["trained"], f"{file.name}: {values}: wanted {want['trained']}, got {have.get('trained')}"
                    spans += bool(want["trained"])
assert equal > len(files) * CONVERSATIONS / 3 and spans > 100 and refused > 20, (equal, spans, refused)
print(f"{len(files)} templates of trl {trl.__version__}: {equal} texts are jinja2's, {spans} of them with marked answers; {refused} are refused by both")
