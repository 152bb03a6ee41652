"""service_jobs.py PROGRAMS FOLDER COUNT SEED: jobs through a queue of two while what can go wrong does: jobs are cancelled at random moments,
ranks are killed, the server is killed (-9) and started again, the disk is full for a while.

In the end every job that was accepted is there and in a final state, each in the state that its story allows; none is run twice at once; a job is
"completed" only with all its optimizer steps, which its checkpoint on the disk says; no process is left."""
import collections
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

PROGRAMS, FOLDER, COUNT, SEED = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
draw = random.Random(SEED)
DATA = FOLDER / "disk" / "data"
STEPS = 6  # of a job; long ones are cancelled or killed


def free_port():
    """Below the ports that Linux hands out by itself: the server comes back to this one after each kill."""
    while True:
        port = random.randint(10000, 29999)
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)):
                return port


PORT = free_port()
URL = f"http://127.0.0.1:{PORT}"


class Server:
    process = None

    def start(self):
        log = open(FOLDER / "service.log", "ab")
        self.process = subprocess.Popen([PROGRAMS / "distsetup", "serve", "--config", FOLDER / "run_fsdp.yaml", "--host", "127.0.0.1", "--port", str(PORT), "--device", "cpu",
                                         "--data", DATA, "--models", FOLDER / "models", "--max-jobs", "2", "--grace", "5"], stdout=log, stderr=log)
        until = time.monotonic() + 60
        while True:
            try:
                return ask("GET", "/health")
            except OSError:
                assert self.process.poll() is None and time.monotonic() < until, "the server does not start"
                time.sleep(0.05)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def ask(method, path, body=None):
    """Status and answer."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(URL + path, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as refused:
        return refused.code, json.loads(refused.read() or b"null")


def processes_of(text):
    """Process ids whose command line or working folder names it."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            line = pathlib.Path(f"/proc/{entry}/cmdline").read_bytes()
            where = os.readlink(f"/proc/{entry}/cwd")
        except OSError:
            continue
        if text.encode() in line or text in where:
            found.append((int(entry), line))
    return found


def ranks_of(job):
    return [pid for pid, line in processes_of(str(DATA / "jobs" / job)) if b"distsetup-train" in line]


def request(job, is_long):
    return {"job_uuid": job, "model": "tiny", "finetuned_model": job + "-out", "algorithm_config": {"type": "dpo", "beta": 0.1, "loss_type": "sigmoid"},
            "training_config": {"n_epochs": 100000 if is_long else 1, "max_steps_per_epoch": 0 if is_long else STEPS, "gradient_accumulation_steps": 1, "dtype": "fp32",
                                "data_config": {"dataset_id": "pairs", "batch_size": 1, "shuffle": True, "data_format": "instruct"},
                                "optimizer_config": {"optimizer_type": "adamw", "lr": 1e-3, "weight_decay": 0.0, "num_warmup_steps": 0}}}


def final(state):
    return state in ("completed", "failed", "cancelled")


# The data folder is on a disk of its own where this user may mount one: then it can be full.
(FOLDER / "disk").mkdir(exist_ok=True)
has_disk = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={64 + 3 * COUNT}m", "tmpfs", FOLDER / "disk"], capture_output=True).returncode == 0
server = Server()
try:
    server.start()
    rows = [{"prompt": f"{a} + {b} = ", "chosen": str(a + b), "rejected": str(a + b + 1)} for a in range(6) for b in range(6)]
    status, _ = ask("POST", "/v1/datasets", {"dataset_id": "pairs", "purpose": "post-training/messages", "source": {"type": "rows", "rows": rows}})
    assert status == 200, status

    # What happens to which job: its story, drawn before anything runs.
    stories = {}
    for number in range(COUNT):
        stories[f"job-{number:03}"] = draw.choice(["plain"] * 4 + ["cancel queued", "cancel running", "kill a rank"])
    for number, story in enumerate(["plain", "cancel running", "kill a rank", "cancel queued"]):  # each at least once
        stories[f"job-{number:03}"] = story
    accepted, asked_to_cancel, killed, refused_full = set(), set(), set(), set()
    most_running, runs = 0, collections.defaultdict(set)
    waiting, jobs = list(stories), {}
    server_kills = max(2, COUNT // 12)
    kill_at = sorted(draw.sample(range(1, COUNT), min(server_kills, COUNT - 1)))
    full_at = {COUNT // 2} if has_disk else set()
    until = time.monotonic() + 120 + 15 * COUNT
    while True:
        assert time.monotonic() < until, f"it does not end: {jobs}"
        if waiting and sum(not final(one["state"]) for one in jobs.values()) < 5:
            job = waiting.pop(0)
            number = int(job[4:])
            if number in full_at:  # nothing more can be written for a while
                full_at.discard(number)
                ballast = FOLDER / "disk" / "ballast"
                with open(ballast, "wb") as file:
                    try:
                        while True:
                            file.write(b"\0" * (1 << 20))
                            file.flush()
                    except OSError:
                        pass
                status, answer = ask("POST", "/v1/post-training/preference-optimize", request(job, False))
                assert status in (200, 503), (status, answer)
                time.sleep(1.0)
                full_jobs = {one["job_uuid"] for one in ask("GET", "/v1/queue")[1]["jobs"] if not final(one["state"])}
                ballast.unlink()
                refused_full |= full_jobs | {job}
                if status != 200:
                    assert ask("GET", f"/v1/post-training/job/status?job_uuid={job}")[0] == 404
                    waiting.insert(0, job)
                    continue
                accepted.add(job)
            else:
                status, answer = ask("POST", "/v1/post-training/preference-optimize", request(job, stories[job] in ("cancel running", "kill a rank")))
                assert status == 200, (job, status, answer)
                assert answer["job_uuid"] == job
                accepted.add(job)
                status, _ = ask("POST", "/v1/post-training/preference-optimize", request(job, False))
                assert status == 409, (job, status)
            if stories[job] == "cancel queued":
                asked_to_cancel.add(job)
                status, _ = ask("POST", "/v1/post-training/job/cancel", {"job_uuid": job})
                assert status in (200, 409), status
        if kill_at and len(accepted) > kill_at[0]:
            kill_at.pop(0)
            time.sleep(draw.random() * 1.5)
            server.kill()
            time.sleep(draw.random())
            server.start()
        jobs = {one["job_uuid"]: one for one in ask("GET", "/v1/queue")[1]["jobs"]}
        assert accepted <= set(jobs), f"lost: {accepted - set(jobs)}"
        running = [job for job, one in jobs.items() if one["state"] == "in_progress"]
        most_running = max(most_running, len(running))
        assert len(running) <= 2, running
        for job in running:
            ranks = ranks_of(job)
            assert len(ranks) <= 2, f"{job} runs twice: {ranks}"
            runs[job].add(jobs[job]["attempt"])
            steps = (jobs[job]["progress"] or {}).get("step", 0)
            if stories[job] == "cancel running" and steps >= 2 and job not in asked_to_cancel:
                asked_to_cancel.add(job)
                assert ask("POST", "/v1/post-training/job/cancel", {"job_uuid": job})[0] in (200, 409)
            if stories[job] == "kill a rank" and steps >= 2 and ranks and job not in killed:
                killed.add(job)
                os.kill(draw.choice(ranks), signal.SIGKILL)
        if not waiting and all(final(one["state"]) for one in jobs.values()):
            break
        time.sleep(0.1)

    # --- what became of them
    ends = collections.Counter()
    for job in sorted(accepted):
        one = ask("GET", f"/v1/post-training/job/status?job_uuid={job}")[1]
        ends[(stories[job], one["state"])] += 1
        why = (job, stories[job], one["state"], one["reason"], one["transitions"])
        allowed = {"plain": {"completed"}, "cancel queued": {"cancelled", "completed"}, "cancel running": {"cancelled"}, "kill a rank": {"failed"}}[stories[job]]
        if job in refused_full:
            allowed |= {"failed"}
        assert one["state"] in allowed, why
        changes = [(change["from"], change["to"]) for change in one["transitions"]]
        assert sum(final(to) for _, to in changes) == 1 and final(changes[-1][1]), why
        assert sum(to == "in_progress" for _, to in changes) <= one["attempt"], why
        if one["state"] == "failed":
            assert one["reason"], why
        if one["state"] == "completed":
            folders = [pathlib.Path(item["path"]) for item in one["checkpoints"] if item["kind"] == "checkpoint"]
            assert folders, why
            metadata = json.loads((max(folders, key=lambda folder: int(folder.name.split("_")[-1])) / "metadata.json").read_text())
            assert metadata["step"] == STEPS == one["progress"]["step"], (why, metadata["step"])
            metrics = [json.loads(line) for line in (DATA / "jobs" / job / "metrics.jsonl").read_text().splitlines() if line.endswith("}")]
            steps = [line["step"] for line in metrics if line["kind"] == "step"]
            assert sorted(set(steps)) == list(range(1, STEPS + 1)), (why, steps)
    assert most_running >= 1
    server.process.send_signal(signal.SIGTERM)
    server.process.wait(timeout=30)
    left = processes_of(str(DATA))
    assert not left, left
    print(f"service_jobs: {COUNT} jobs, seed {SEED}, {server_kills} kills of the server, disk {'full once' if has_disk else 'never full: it cannot be mounted here'}:",
          ", ".join(f"{story} → {state}: {count}" for (story, state), count in sorted(ends.items())))
finally:
    if server.process and server.process.poll() is None:
        server.process.kill()
        server.process.wait()
    for pid, _ in processes_of(str(DATA)):
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass
    if has_disk:
        time.sleep(0.5)
        subprocess.run(["umount", "-l", FOLDER / "disk"], check=False)
