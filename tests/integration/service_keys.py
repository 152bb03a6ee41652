"""service_keys.py URL DATA DISTSETUP [inline]: what each key of a request and of the configuration comes to."""
import json
import pathlib
import subprocess
import sys
import time
import urllib.error
import urllib.request

URL, DATA = sys.argv[1], pathlib.Path(sys.argv[2])


def ask(path, body=None):
    request = urllib.request.Request(URL + path, None if body is None else json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        return refused.code, json.load(refused)


def dataset(name, rows):
    assert ask("/v1/datasets", {"dataset_id": name, "source": {"type": "rows", "rows": rows}})[0] == 200


def run(kind, body):
    """The job when it has ended, with the plan that it ran."""
    code, said = ask(f"/v1/post-training/{kind}", body)
    assert code == 200, said
    until = time.monotonic() + 180
    while True:
        job = ask(f"/v1/post-training/job/status?job_uuid={body['job_uuid']}")[1]
        if job["state"] in ("completed", "failed"):
            break
        assert time.monotonic() < until, job["state"]
        time.sleep(0.2)
    folder = DATA / "jobs" / body["job_uuid"]
    assert job["state"] == "completed", (job["reason"], (folder / "log").read_text()[-2000:])
    return job, json.loads((folder / "plan.json").read_text()), folder


pairs = [{"prompt": f"{a} + {b} = ", "chosen": str(a + b), "rejected": str(a + b + 1)} for a in range(4) for b in range(4)]
dataset("pairs", pairs)
dataset("other_pairs", [{"prompt": f"{a} + 7 = ", "chosen": str(a + 7), "rejected": "0"} for a in range(3)])
questions = [{"prompt": f"{a} + {b} = ", "completion": str(a + b)} for a in range(4) for b in range(4)]
dataset("questions", questions)


def reasons(job):
    return {one["key"]: one["reason"] for one in job["plan"]["not_supported"]}


if sys.argv[4:] == ["inline"]:
    job, plan, folder = run("preference-optimize", {"job_uuid": "one", "model": "tiny", "algorithm_config": {"type": "dpo"},
                                                    "training_config": {"n_epochs": 1, "max_steps_per_epoch": 4, "data_config": {"dataset_id": "pairs", "batch_size": 1}}})
    train = plan["train"]
    assert (train["beta"], train["loss"], train["reference"], train["sequence_length"], train["weight_decay"], train["warmup_steps"]) == (0.3, "ipo", "cached", 64, 0.02, 2), train
    assert plan["recompute"]["policy"] == "full" and plan["checkpoint"]["keep"] == 1
    assert train["learning_rate"] == 1e-4, "the inline provider's own"
    log = (folder / "log").read_text()
    assert all(f"step      {n}  loss" in log for n in range(1, 5)), "logging_steps: 1"
    assert (folder / "checkpoints" / "dpo_model" / "model.safetensors").exists()
    prepared = (folder / "set" / "training.tokens").read_bytes()
    assert len(prepared) // 4 > 32 * 25, ("chat_template: its words are around each prompt", len(prepared) // 4)
    said = reasons(job)
    assert set(said) == {"model_specific_config.trust_remote_code", "model_specific_config.attn_implementation", "dataloader_num_workers", "dataloader_pin_memory",
                         "normalize_rewards", "output_router_logits", "router_aux_loss_coef", "moe_load_balancing", "auto_detect_moe", "expert_dropout"}, sorted(said)
    assert all(said.values()) and any("checkpoint_format" in note for note in job["plan"]["warnings"]), job["plan"]["warnings"]
    print("service_keys: the inline provider's, too")
    sys.exit()

# --- a job by preferences: everything that can be said, in the request and in the configuration
request = {"job_uuid": "all", "model": "tiny", "finetuned_model": "out", "checkpoint_dir": "kept", "priority": 3,
           "algorithm_config": {"type": "dpo", "reward_scale": 1.0, "reward_clip": 5.0, "epsilon": 0.1, "gamma": 0.99},
           "training_config": {"n_epochs": 2, "max_steps_per_epoch": 3, "gradient_accumulation_steps": 2, "max_validation_steps": 4, "learning_rate": 2e-3, "dtype": "fp32",
                               "data_config": {"dataset_id": "pairs", "batch_size": 1, "shuffle": True, "data_format": "instruct", "validation_dataset_id": "other_pairs"},
                               "optimizer_config": {"optimizer_type": "adamw", "lr": 2e-3},
                               "efficiency_config": {"enable_activation_checkpointing": True, "memory_efficient_fsdp_wrap": True}},
           "hyperparam_search_config": {}, "logger_config": {"project": "x"}}
job, plan, folder = run("preference-optimize", request)
train = plan["train"]
assert (train["beta"], train["loss"], train["reference"]) == (0.2, "hinge", "none"), train
assert (train["steps"], train["learning_rate"], train["weight_decay"], train["sequence_length"]) == (6, 2e-3, 0.03, 64), train
assert train["warmup_steps"] == 2, "a quarter of six steps"
assert (plan["micro_batch"], plan["gradient_accumulation"], plan["strategy"]["sharding"], plan["recompute"]["policy"]) == (1, 2, "zero2", "full")
assert plan["offload"]["optimizer"] == "host" and plan["offload"]["parameters"] == "none", plan["offload"]
assert (plan["checkpoint"]["every_steps"], plan["checkpoint"]["keep"]) == (2, 2), plan["checkpoint"]
assert plan["launch"]["init_timeout_s"] == 77, plan["launch"]
steps = {one["step"]: one["training_metrics"]["validation_loss"] for one in job["checkpoints"] if one["kind"] == "checkpoint"}
assert {4, 6} <= set(steps) <= {4, 6, min(steps, key=steps.get)}, ("the two newest, and the best", steps)
assert sorted(one.name for one in (folder / "kept").iterdir() if one.name != ".lock") == [f"checkpoint_{step}" for step in sorted(steps)] + ["fsdp_dpo_model"], list((folder / "kept").iterdir())
log = (folder / "log").read_text()
assert all(f"step      {n}  loss" in log for n in range(1, 7)), "logging_steps: 1"
described = json.loads(next(one for one in (folder / "set").iterdir() if one.suffix == ".json").read_text())
assert described["held_out"]["samples"] == 6 and described["training"]["samples"] == 32, described
assert job["evaluations"], "of the validation set"
# What has no effect is named, with a reason; nothing else is.
said = reasons(job)
assert set(said) == {"algorithm_config.reward_scale", "algorithm_config.reward_clip", "algorithm_config.epsilon", "algorithm_config.gamma", "training_config.max_validation_steps", "training_config.data_config.data_format",
                     "training_config.efficiency_config.memory_efficient_fsdp_wrap", "logger_config.project", "fsdp_config.limit_all_gathers", "fsdp_config.forward_prefetch",
                     "fsdp_config.backward_prefetch", "use_fsdp_state_dict", "compile_model", "dataloader_num_workers", "dataloader_pin_memory", "dataloader_persistent_workers",
                     "log_on_each_node"}, sorted(said)
assert all(said.values()), said
notes = "\n".join(job["plan"]["warnings"])
for word in ("cpu_offload", "checkpoint_format"):
    assert word in notes, (word, notes)

# --- the model is that of the checkpoint with the smallest loss on held-out rows: here what is learned is wrong for them, from the first step on
dataset("contrary", [{"prompt": one["prompt"], "chosen": one["rejected"], "rejected": one["chosen"]} for one in pairs])
request = {"job_uuid": "best", "model": "tiny", "algorithm_config": {"type": "dpo"},
           "training_config": {"n_epochs": 4, "max_steps_per_epoch": 2, "learning_rate": 2e-3, "data_config": {"dataset_id": "pairs", "batch_size": 1, "validation_dataset_id": "contrary"}}}
job, plan, folder = run("preference-optimize", request)
assert (plan["checkpoint"]["keep"], plan["checkpoint"]["keep_best"], plan["checkpoint"]["metric"]) == (2, 1, "held_out_loss"), plan["checkpoint"]
kept = {one["step"]: one["training_metrics"]["validation_loss"] for one in job["checkpoints"] if one["kind"] == "checkpoint"}
assert sorted(kept) == [2, 6, 8] and kept[2] < kept[6] < kept[8], kept
[model] = [one for one in job["checkpoints"] if one["kind"] == "model"]
assert model["step"] == 2 and model["training_metrics"]["validation_loss"] == kept[2] and job["progress"]["step"] == 8, (model, job["progress"])
subprocess.run([sys.argv[3], "checkpoint", "export", "checkpoints/checkpoint_2", "--output", "again", "--quiet"], cwd=folder, check=True)
weights = [(folder / where / "model.safetensors").read_bytes() for where in ("again", "checkpoints/fsdp_dpo_model")]
assert weights[0] == weights[1], "not the parameters of step 2"

# --- what memory held at the start, when it had trained, at the end: of each rank, and of the first one's host
moments = job["resources_allocated"]["memory"]["moments"]
assert [one["when"] for one in moments] == ["start", "trained", "end"], moments
for moment in moments:
    assert [(one["rank"], one["local_rank"], one["world_size"]) for one in moment["ranks"]] == [(0, 0, 2), (1, 1, 2)], moment
    assert all(0 < one["allocated_gb"] <= one["max_allocated_gb"] < 1 and one["reserved_gb"] >= one["allocated_gb"] for one in moment["ranks"]), moment
    host = moment["host"]
    assert 0 < host["available_gb"] < host["total_gb"] and abs(host["used_gb"] + host["available_gb"] - host["total_gb"]) < 1e-6 and 0 < host["percent"] < 100, host
total = int(next(line for line in pathlib.Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal")).split()[1])
assert abs(moments[0]["host"]["total_gb"] - total / 2**20) < 1e-6, (moments[0]["host"], total)
assert moments[1]["ranks"][0]["max_allocated_gb"] > moments[0]["ranks"][0]["max_allocated_gb"], "a step takes more than what is held"

# --- shuffle: false: each epoch goes through the rows as they stand. Rows grow, so a step's tokens say where it is.
dataset("growing", [{"prompt": "x ", "chosen": "1" * n, "rejected": "0" * n} for n in range(1, 13)])
request = {"job_uuid": "in_order", "model": "tiny", "algorithm_config": {"type": "dpo"},
           "training_config": {"n_epochs": 2, "data_config": {"dataset_id": "growing", "batch_size": 1, "shuffle": False, "train_split_percentage": 1}}}


def tokens_of_steps(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    sums = [0] + [one["tokens"] for one in lines if one["kind"] == "step"]
    return [after - before for before, after in zip(sums, sums[1:])]


job, plan, folder = run("preference-optimize", request)
assert plan["data"]["shuffle"] is False, plan["data"]
tokens = tokens_of_steps(folder)
assert len(tokens) == 12 and tokens[:6] == sorted(set(tokens)) and tokens[6:] == tokens[:6], tokens
request["job_uuid"], request["training_config"]["data_config"]["shuffle"] = "in_any_order", True
_, plan, folder = run("preference-optimize", request)
assert "shuffle" not in plan["data"] and tokens_of_steps(folder)[:6] != tokens[:6], tokens_of_steps(folder)

# --- of a prompt the last half of max_seq_length tokens stay, whatever its length, and the answer is trained whole
dataset("long_prompts", [{"prompt": f"{n} plus 1 is " * 40, "chosen": "yes", "rejected": "no"} for n in range(8)])
request = {"job_uuid": "long", "model": "tiny", "algorithm_config": {"type": "dpo"},
           "training_config": {"n_epochs": 1, "data_config": {"dataset_id": "long_prompts", "batch_size": 1, "train_split_percentage": 1}}}
job, plan, folder = run("preference-optimize", request)
described = json.loads((folder / "set" / "dataset.json").read_text())
assert plan["train"]["sequence_length"] == 64 and 32 < described["longest"] <= 32 + 4, described["longest"]
assert described["training"]["samples"] == 16, described

# --- by what an assistant says: LoRA, prompts that are trained, a split, float words
request = {"job_uuid": "answers", "model": "tiny", "algorithm_config": {"type": "LoRA", "lora_attn_modules": ["q_proj", "output_proj"], "apply_lora_to_mlp": True, "apply_lora_to_output": False,
                                                                         "rank": 4, "alpha": 8, "use_dora": False, "quantize_base": False},
           "training_config": {"n_epochs": 1, "gradient_accumulation_steps": 1, "data_config": {"dataset_id": "questions", "batch_size": 2, "train_on_input": True, "train_split_percentage": 0.75, "packed": True},
                               "optimizer_config": {"optimizer_type": "adam", "lr": 1e-3, "weight_decay": 0.5, "num_warmup_steps": 1}}}
job, plan, folder = run("supervised-fine-tune", request)
described = json.loads(next(one for one in (folder / "set").iterdir() if one.suffix == ".json").read_text())
counts = described["training"]
assert counts["trained_tokens"] == counts["tokens"] - counts["samples"], ("train_on_input: every token but the first, which nothing foretells", counts)
assert job["progress"]["steps"] == job["progress"]["step"] == plan["train"]["steps"] < 3, "packed: an epoch is fewer rows"
assert plan["train"]["warmup_steps"] == 1, plan["train"]
assert plan["train"]["finetune"] == "lora", plan["train"]
assert "o_proj" in json.dumps(plan) and "gate_proj" in json.dumps(plan)
request["training_config"]["data_config"].pop("train_on_input")
_, _, folder = run("supervised-fine-tune", {**request, "job_uuid": "answers_alone"})
described = json.loads(next(one for one in (folder / "set").iterdir() if one.suffix == ".json").read_text())
assert described["training"]["trained_tokens"] < described["training"]["tokens"] - described["training"]["samples"]

# --- a search: every combination is trained a little, the best trains the job
request = {"job_uuid": "searched", "model": "tiny", "algorithm_config": {"type": "dpo", "beta": 0.1},
           "training_config": {"n_epochs": 4, "learning_rate": 1e-4, "data_config": {"dataset_id": "pairs", "batch_size": 1, "validation_dataset_id": "other_pairs"}},
           "hyperparam_search_config": {"learning_rate": [1e-6, 3e-3]}}
job, plan, folder = run("preference-optimize", request)
runs = json.loads((folder / "tuning" / "runs.json").read_text())["runs"]
assert len(runs) == 2 and all("held_out_loss" in one for one in runs), runs
assert job["tuned"] == {"settings": runs[0]["settings"], "runs": 2}, job["tuned"]
assert plan["train"]["learning_rate"] == float(runs[0]["settings"]["train.learning_rate"]) != 1e-4, "not the request's own"
assert job["progress"]["step"] == plan["train"]["steps"] == 32, "trained whole with it"
assert not list((folder / "tuning").glob("*/*/")), "checkpoints of the runs are gone"
code, said = ask("/v1/post-training/preference-optimize", {**request, "job_uuid": "no_such", "hyperparam_search_config": {"learning_rat": [1, 2]}})
assert code == 400 and "learning_rat" in said["detail"], said
code, said = ask("/v1/post-training/preference-optimize", {**request, "job_uuid": "no_list", "hyperparam_search_config": {"learning_rate": 1}})
assert code == 400 and "list" in said["detail"], said

# --- refused by name
base = {"job_uuid": "refused", "model": "tiny", "algorithm_config": {"type": "dpo"}, "training_config": {"n_epochs": 1, "data_config": {"dataset_id": "pairs", "batch_size": 1}}}


def refused(change, word, kind="preference-optimize"):
    body = json.loads(json.dumps(base))
    if kind == "supervised-fine-tune":
        body["training_config"]["data_config"]["dataset_id"] = "questions"
    change(body)
    code, said = ask(f"/v1/post-training/{kind}", body)
    assert code in (400, 422) and word in json.dumps(said), (word, code, said)


refused(lambda b: b["training_config"]["data_config"].update(train_on_input=True), "data_config.train_on_input")
refused(lambda b: b["training_config"]["data_config"].update(validation_dataset_id="nothing"), "no data set 'nothing'")
refused(lambda b: b["training_config"]["data_config"].update(validation_dataset_id="questions"), "questions")
refused(lambda b: b["training_config"]["data_config"].update(validation_dataset_id="pairs", train_split_percentage=0.9), "train_split_percentage")
refused(lambda b: b["algorithm_config"].update(loss_type="kto_pair"), "loss_type")
refused(lambda b: b["training_config"].update(learning_rate=1e-3, optimizer_config={"lr": 1e-4}), "learning_rate")
refused(lambda b: b["training_config"].update(n_epoch=1), "n_epoch")
for key in ("use_dora", "apply_lora_to_output"):
    refused(lambda b, key=key: b.update(algorithm_config={"type": "LoRA", "rank": 2, "alpha": 4, key: True}), key, "supervised-fine-tune")
refused(lambda b: b.update(algorithm_config={"type": "QAT", "quantizer_name": "x", "group_size": 8}), "quantisation-aware", "supervised-fine-tune")
print("service_keys: every key acts, is refused, or is named")
