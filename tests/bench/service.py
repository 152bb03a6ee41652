"""The job server under load: parallel clients, each on a connection of its own, for a minute while two jobs train on the same machine.

usage: service.py [--clients N] [--seconds N]      (by scripts/bench service)

A client asks in turn for what people and programs ask for: a job's status, the list, its log, the page of a job, the queue's page, and plans now
and then. What counts: requests a second, how long they take (median, 99th in a hundred), errors (any is a failure: exit code 1), the most resident
memory of the server, and how much slower the jobs' steps became."""
import argparse
import http.client
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(os.environ["DISTSETUP_SOURCE"])
PROGRAMS = pathlib.Path(os.environ["DISTSETUP_BIN"])
arguments = argparse.ArgumentParser()
arguments.add_argument("--clients", type=int, default=64)
arguments.add_argument("--seconds", type=float, default=60)
arguments = arguments.parse_args()

CONFIG = """fsdp_config: {sharding_strategy: FULL_SHARD, mixed_precision_policy: null}
torch_run_config: {nnodes: 1, nproc_per_node: 1}
max_seq_length: 64
"""


def ask(connection, method, path, body=None):
    connection.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    text = answer.read()
    return answer.status, text


def ask_once(port, method, path, body=None):
    return ask(http.client.HTTPConnection("127.0.0.1", port, timeout=60), method, path, body)


def client(port, until, seen, errors, number):
    paths = ["/v1/post-training/job/status?job_uuid=first", "/v1/post-training/jobs", "/v1/post-training/job/logs?job_uuid=second&tail=50", "/jobs/first", "/", "/health"]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    turn = number
    while time.monotonic() < until:
        path = paths[turn % len(paths)]
        turn += 1
        began = time.monotonic()
        try:
            status, _ = ask(connection, "GET", path)
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            # A server closes a connection that has had its number of requests; a client that sends at that moment asks again.
            connection.close()
            try:
                status, _ = ask(connection, "GET", path)
            except OSError as failure:
                errors.append(f"{path}: {failure!r}")
                continue
        except OSError as failure:
            errors.append(f"{path}: {failure!r}")
            connection.close()
            continue
        if status != 200:
            errors.append(f"{path}: {status}")
        seen.append((path, time.monotonic() - began))


def resident_mib(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "run_fsdp.yaml").write_text(CONFIG)
        subprocess.run([sys.executable, ROOT / "tests/support/tiny_model.py", folder / "models/tiny"], check=True)
        out = open(folder / "out", "w+")
        server = subprocess.Popen([PROGRAMS / "distsetup", "serve", "--config", folder / "run_fsdp.yaml", "--host", "127.0.0.1", "--port", "0", "--device", "cpu", "--data", folder / "data",
                                   "--models", folder / "models", "--max-jobs", "2", "--grace", "5"], stdout=out, stderr=open(folder / "log", "w"))
        try:
            port = None
            while port is None:
                time.sleep(0.1)
                for line in (folder / "out").read_text().splitlines():
                    if line.startswith("Server will listen on"):
                        port = int(line.rpartition(":")[2])
            rows = [{"prompt": f"{a} + {b} = ", "chosen": str(a + b), "rejected": str(a + b + 1)} for a in range(8) for b in range(8)]
            ask_once(port, "POST", "/v1/datasets", {"dataset_id": "pairs", "purpose": "post-training/messages", "source": {"type": "rows", "rows": rows}})
            for job in ("first", "second"):
                status, text = ask_once(port, "POST", "/v1/post-training/preference-optimize", {
                    "job_uuid": job, "model": "tiny", "algorithm_config": {"type": "dpo", "beta": 0.1},
                    "training_config": {"n_epochs": 100000, "max_steps_per_epoch": 0, "learning_rate": 1e-3, "data_config": {"dataset_id": "pairs", "batch_size": 4, "shuffle": True}}})
                assert status == 200, text

            def steps():
                return [json.loads(ask_once(port, "GET", f"/v1/post-training/job/status?job_uuid={job}")[1])["progress"] for job in ("first", "second")]

            while not all(one and one["step"] > 20 for one in steps()):
                time.sleep(0.2)
            before = steps()
            time.sleep(10)
            alone = sum(b["step"] - a["step"] for a, b in zip(before, steps())) / 10
            seen, errors = [], []
            before, began = steps(), time.monotonic()
            threads = [threading.Thread(target=client, args=(port, began + arguments.seconds, seen, errors, number)) for number in range(arguments.clients)]
            for one in threads:
                one.start()
            for one in threads:
                one.join()
            took = time.monotonic() - began
            loaded = sum(b["step"] - a["step"] for a, b in zip(before, steps())) / took
            memory = resident_mib(server.pid)
        finally:
            server.terminate()
            server.wait(timeout=60)
        times = sorted(seconds for _, seconds in seen)
        print(f"{arguments.clients} clients, {took:.0f} s, load {os.getloadavg()[0]:.1f}")
        print("| requests/s | median, ms | p99, ms | slowest, ms | errors | server, MiB | jobs' steps/s alone | with the load |")
        print("|---|---|---|---|---|---|---|---|")
        print(f"| {len(seen) / took:.0f} | {1e3 * statistics.median(times):.1f} | {1e3 * times[int(0.99 * len(times))]:.0f} | {1e3 * times[-1]:.0f} | {len(errors)} | {memory:.0f} | {alone:.1f} | {loaded:.1f} |")
        for path in sorted({path for path, _ in seen}):
            own = sorted(seconds for one, seconds in seen if one == path)
            print(f"  {path}: {len(own)}, median {1e3 * statistics.median(own):.1f} ms, p99 {1e3 * own[int(0.99 * len(own))]:.0f} ms")
        for line in errors[:5]:
            print(line)
        sys.exit(bool(errors))


main()
