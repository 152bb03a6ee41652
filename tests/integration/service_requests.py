"""service_requests.py URL COUNT FOLDER: malformed requests, the same at every run."""
import copy
import json
import pathlib
import random
import socket
import sys
import urllib.parse

URL, COUNT, FOLDER = sys.argv[1], int(sys.argv[2]), pathlib.Path(sys.argv[3])
HOST, PORT = urllib.parse.urlsplit(URL).hostname, urllib.parse.urlsplit(URL).port
draw = random.Random(16)

TRAINING = {"job_uuid": "job", "model": "tiny", "finetuned_model": "out", "algorithm_config": {"type": "dpo", "beta": 0.1, "loss_type": "sigmoid"},
            "training_config": {"n_epochs": 1, "max_steps_per_epoch": 1, "gradient_accumulation_steps": 1, "dtype": "fp32",
                                "data_config": {"dataset_id": "pairs", "batch_size": 1, "shuffle": True, "data_format": "instruct"},
                                "optimizer_config": {"optimizer_type": "adamw", "lr": 1e-3, "weight_decay": 0.0, "num_warmup_steps": 0}}}
PLAN = {"model": "tiny", "method": "sft", "training_config": {"n_epochs": 1, "learning_rate": 1e-3}}
DATASET = {"dataset_id": "d", "purpose": "post-training/messages", "source": {"type": "rows", "rows": [{"prompt": "a", "chosen": "b", "rejected": "c"}]}}
BODIES = [("/v1/post-training/preference-optimize", TRAINING), ("/v1alpha/post-training/preference-optimize", TRAINING), ("/preference-optimize", TRAINING),
          ("/v1/plan", PLAN), ("/v1/datasets", DATASET), ("/v1beta/datasets", DATASET), ("/v1/post-training/job/cancel", {"job_uuid": "nobody"})]
WRONG = [[], {"a": {"b": []}}, "\x00", "../../etc/passwd", "a" * 70000, -1, 0.5, 1e308, 2**63, -(2**70), True, "NaN", "‮", [[[[1]]]], {"": ""}]
IDS = ["../x", "..", ".", "%2e%2e%2f", "a/b", "%00", "a%0d%0ab", "x" * 500, "%ff%fe", "a b", "<script>", "'; drop table jobs; --", "$(id)", "\\..\\"]


def ask(raw, ends=False, limit_s=10):
    """The status line and body of what comes back; nothing: the connection was closed without an answer."""
    with socket.create_connection((HOST, PORT), timeout=limit_s) as peer:
        try:
            peer.sendall(raw)
            if ends:  # nothing more will come
                peer.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it answered and closed while we were writing
        said = b""
        try:
            while part := peer.recv(65536):
                said += part
        except (ConnectionResetError, TimeoutError):
            pass  # looked at below
    head, _, body = said.partition(b"\r\n\r\n")
    return (int(head.split()[1]), head, body) if head.startswith(b"HTTP/") else (None, head, body)


def request(method, path, body=b"", headers=()):
    lines = [f"{method} {path} HTTP/1.1", f"Host: {HOST}:{PORT}", "Connection: close", *headers]
    if body or method in ("POST", "PUT"):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode("utf-8", "surrogateescape") + b"\r\n\r\n" + body


JSON = ("Content-Type: application/json",)


def places(value, at=()):
    """Every place in a body, from the outside in."""
    out = [at] if at else []
    for key, child in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        out += places(child, at + (key,))
    return out


def put(body, at, value):
    body = copy.deepcopy(body)
    inner = body
    for key in at[:-1]:
        inner = inner[key]
    inner[at[-1]] = value
    return body


def wrong_type(path, body):
    """A value of another kind in some place. Numbers stay out of numbers, texts out of texts."""
    while True:
        at = draw.choice([one for one in places(body) if "rows" not in one and one != ("source",)] or [("job_uuid",)])
        old = body
        for key in at:
            old = old[key]
        new = draw.choice(WRONG)
        number, is_text = isinstance(old, (int, float)) and not isinstance(old, bool), isinstance(old, str)
        if number and isinstance(new, (int, float)) and not isinstance(new, bool) and new not in (-1, -(2**70)):
            continue
        if at[-1] == "weight_decay" and new == -1 or is_text and isinstance(new, str) and at[-1] in ("finetuned_model", "model", "purpose", "dataset_id"):
            continue
        if isinstance(old, dict) and isinstance(new, dict) or isinstance(old, bool) and isinstance(new, bool):
            continue
        return request("POST", path, json.dumps(put(body, at, new)).encode(), JSON)


def bad_bytes(path, body):
    text = json.dumps(body).encode()
    kind = draw.randrange(8)
    if kind == 0:
        text = text[: draw.randrange(len(text))]
    elif kind == 1:
        text = text[:-1] + b", }" if draw.random() < 0.5 else b"[" * draw.randrange(100, 60000)
    elif kind == 2:
        text = b'{"a":' * draw.randrange(500, 20000) + b"1" + b"}" * 20
    elif kind == 3:
        text = text[:-1] + b', "job_uuid": "other", "job_uuid": "twice", "model": "x", "dataset_id": "y"}'
    elif kind == 4:
        text = text.replace(b'"tiny"', b'"\xff\xfe"').replace(b'"d"', b'"\xc0\xaf"').replace(b'"nobody"', b'"\xed\xa0\x80"')
    elif kind == 5:
        text = text.replace(b"1", b"NaN").replace(b"nobody", b'"') if b"1" in text else b"Infinity"
    elif kind == 6:
        return request("POST", path, text, (draw.choice(["Content-Type: text/plain", "Content-Type: application/xml", "Content-Type: multipart/form-data; boundary=x", "X-None: 1"]),))
    else:
        text = draw.randbytes(draw.randrange(1, 3000))
    return request("POST", path, text, JSON)


def unknown_key(path, body):
    at = draw.choice([()] + [one for one in places(body) if isinstance(_at(body, one), dict) and "rows" not in one])
    name = draw.choice(["n_epoch", "__proto__", "modle", "", "a" * 300, "\u0000", "learning_rat"])
    return request("POST", path, json.dumps(put(body, at + (name,), 1)).encode(), JSON)


def _at(body, at):
    for key in at:
        body = body[key]
    return body


def bad_id(*_):
    name = draw.choice(IDS)
    quoted = name if "%" in name else urllib.parse.quote(name, safe="/.")
    path = draw.choice(["/v1/post-training/job/status?job_uuid=", "/v1/post-training/job/artifacts?job_uuid=", "/jobs/", "/v1/datasets/", "/v1/datasetio/iterrows/",
                        "/static/", "/v1/post-training/jobs/x/checkpoints/", "/v1/post-training/jobs/", "/v1/models/", "/v1/providers/"])
    method = "GET"
    if draw.random() < 0.2:
        path, method = draw.choice([("/v1/post-training/job/cancel?job_uuid=", "POST"), ("/v1/datasets/", "DELETE")])
    return request(method, path + quoted.replace("$(FOLDER)", str(FOLDER)))


def bad_query(*_):
    path = draw.choice(["/v1/post-training/job/status", "/v1/post-training/job/logs", "/v1/datasetio/iterrows/d", "/jobs/x"])
    query = draw.choice(["?limit=-1", "?after=x", "?tail=1e9", "?job_uuid=a&job_uuid=b", "?%zz=%zz", "?job_uuid=", "?limit=99999999999999999999", "?no_such=1", "?rank=../x"])
    return request("GET", path + query)


def no_route(*_):
    return request(draw.choice(["GET", "POST", "DELETE", "PUT", "PATCH", "OPTIONS", "BREW"]),
                   draw.choice(["/v2/datasets", "/v1", "//", "/v1/post-training/", "/v1/plan/x", "/../../outside.txt", "/static/../../outside.txt", "/%2e%2e/outside.txt", "/etc/passwd"]))


def other_site(*_):
    """What a page of another site makes a browser send."""
    kind = draw.randrange(3)
    if kind == 0:
        return request("POST", "/v1/post-training/job/cancel?job_uuid=x", b"", ("Origin: http://evil.example",))
    if kind == 1:
        return request("POST", "/submit", b"model=tiny&action=submit", ("Origin: null", "Content-Type: application/x-www-form-urlencoded"))
    return f"GET /v1/queue HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n".encode()


def broken_http(*_):
    return draw.choice([
        b"GET\r\n\r\n", b"\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 100000 + b"\r\n\r\n",
        b"POST /v1/plan HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n", b"POST /v1/plan HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"POST /v1/plan HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"GET /" + b"a" * 20000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /v1/plan HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\nContent-Type: application/json\r\n\r\n{}", b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"".join(b"X%d: 1\r\n" % n for n in range(5000)) + b"\r\n"])


KINDS = [wrong_type] * 6 + [bad_bytes] * 5 + [unknown_key] * 3 + [bad_id] * 3 + [bad_query, no_route, other_site, broken_http]
seen, failures = {}, []
for number in range(COUNT):
    kind = draw.choice(KINDS)
    raw = kind(*draw.choice(BODIES))
    status, head, body = ask(raw, kind is broken_http)
    seen[(kind.__name__, status)] = seen.get((kind.__name__, status), 0) + 1
    why = None
    if status is None:
        why = "no answer"
    elif not 400 <= status < 500:
        why = f"answered by {status}"
    elif raw.startswith(b"HEAD "):
        pass  # no body, by its method
    else:
        try:
            if b"application/json" not in head or not json.loads(body)["detail"]:
                why = "no reason"
        except (ValueError, KeyError):
            why = f"no reason: {body[:100]}"
    if b"secret" in body:
        why = "a file of another folder"
    if why:
        failures.append(f"{number} {kind.__name__}: {why}\n    {raw[:700]!r}\n    {body[:300]!r}")
# A client that has said its last word and waits (`nc -N`), one that says two things at once, and one that is silent in the middle of a line.
assert ask(request("GET", "/health"), True)[0] == 200, "a half-closed client"
with socket.create_connection((HOST, PORT), timeout=10) as peer:
    peer.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * 3)
    said = b""
    while said.count(b'"healthy"') < 3 and (part := peer.recv(65536)):
        said += part
    assert said.count(b"HTTP/1.1 200") == 3, said
assert ask(b"GET /hea", False, 60)[0] == 400, "silent in the middle of a line"
for line in failures[:12]:
    print(line)
assert not failures, f"{len(failures)} of {COUNT}"
assert ask(request("GET", "/health"))[0] == 200
queue = json.loads(ask(request("GET", "/v1/queue"))[2])
assert queue["jobs"] == [] and queue["datasets"] == [], queue
assert not any(status == 500 for _, status in seen), seen
print(f"service_requests: {COUNT} requests", ", ".join(f"{kind} {status}: {count}" for (kind, status), count in sorted(seen.items(), key=str)))
