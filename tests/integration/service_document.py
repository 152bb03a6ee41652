"""service_document.py FRONT REMOTE: the guide's program and its monitoring, with its names and numbers; more pairs, as it asks for. Then its sizes,
asked of the planner."""
import sys
import time

import requests

base_url, remote = sys.argv[1:3]

# Upload preference dataset (same as inline provider)
dataset_payload = {
    "dataset_id": "large-dpo-dataset",
    "purpose": "post-training/messages",
    "dataset_type": "preference",
    "source": {
        "type": "rows",
        "rows": [
            {
                "prompt": "Explain distributed training",
                "chosen": "Distributed training splits model and data across multiple GPUs to enable training of larger models.",
                "rejected": "Distributed training is just using multiple computers.",
            },
            # Add more preference pairs for better training
        ] + [{"prompt": f"Explain {word}", "chosen": f"{word} splits work.", "rejected": f"{word} is just work."} for word in
             ("sharding", "offload", "gathering", "reduction", "recompute", "a pipeline", "a bucket", "a rank", "a node", "a mesh", "a shard")],
    },
}

# Start distributed FSDP DPO training
train_payload = {
    "job_uuid": "fsdp-dpo-large-model",
    "model": "meta-llama/Llama-2-7b-hf",
    "finetuned_model": "llama-2-7b-dpo-fsdp",
    "checkpoint_dir": "./fsdp_checkpoints",
    "algorithm_config": {"type": "dpo", "reward_scale": 1.0, "reward_clip": 5.0},
    "training_config": {
        "n_epochs": 3,
        "max_steps_per_epoch": 100,
        "learning_rate": 5e-5,
        "data_config": {"dataset_id": "large-dpo-dataset", "batch_size": 4, "shuffle": True},
    },
}

response = requests.post(f"{base_url}/v1/datasets", json=dataset_payload, timeout=60)
assert response.status_code == 200, response.text
response = requests.post(f"{base_url}/v1/post-training/preference-optimize", json=train_payload, timeout=60)
print("FSDP Training Started:", response.json())
assert response.status_code == 200 and response.json() == {"job_uuid": "fsdp-dpo-large-model"}, response.text

# Monitor job status
until = time.monotonic() + 120
while True:
    response = requests.get(f"{base_url}/v1/post-training/job/status?job_uuid=fsdp-dpo-large-model", timeout=60)
    status = response.json()
    if status["status"] in ("completed", "failed"):
        break
    assert status["status"] in ("scheduled", "in_progress") and time.monotonic() < until, status
    time.sleep(0.3)
print(f"Status: {status['status']}")
print(f"Resources: {status['resources_allocated']}")
assert status["status"] == "completed", (status["reason"], requests.get(f"{remote}/v1/post-training/job/logs?job_uuid=fsdp-dpo-large-model&tail=30", timeout=60).text)
if status["checkpoints"]:
    print(f"Latest checkpoint: {status['checkpoints'][-1]['path']}")
assert "fsdp_checkpoints" in status["checkpoints"][-1]["path"], status["checkpoints"]
resources = status["resources_allocated"]
assert (resources["world_size"], resources["fsdp_strategy"], resources["training_completed"]) == (2, "FULL_SHARD", True), resources
assert resources["memory"]["measured_peak_bytes"] > 0, resources  # "Profile memory usage: check memory stats in job status"
losses = status["losses"]
# 11 or 12 rows on 2 ranks of 4: one step an epoch, three epochs; the learning rate that was asked for is the one that acts
assert len(losses) == 3, losses
assert abs(max(line["learning_rate"] for line in losses) - 5e-5) < 1e-9, losses
margins = [line["rewards/margins"] for line in losses]
assert margins[0] == 0, margins

# The same with a learning rate at which three epochs can be seen
train_payload["job_uuid"] = "fsdp-dpo-faster"
train_payload["training_config"]["n_epochs"] = 8
train_payload["training_config"]["learning_rate"] = 3e-3
response = requests.post(f"{base_url}/v1/post-training/preference-optimize", json=train_payload, timeout=60)
assert response.status_code == 200, response.text
until = time.monotonic() + 120
while (status := requests.get(f"{base_url}/v1/post-training/job/status?job_uuid=fsdp-dpo-faster", timeout=60).json())["status"] not in ("completed", "failed"):
    assert time.monotonic() < until, status
    time.sleep(0.3)
margins = [line["rewards/margins"] for line in status["losses"]]
print("Reward margins:", [round(margin, 4) for margin in margins])
assert status["status"] == "completed" and margins[-1] > margins[0] + 0.01, (status["status"], margins)
jobs = [one["job_uuid"] for one in requests.get(f"{base_url}/v1/post-training/jobs", timeout=60).json()["data"]]
assert {"fsdp-dpo-large-model", "fsdp-dpo-faster"} <= set(jobs), jobs

# "Memory optimization tips": what they say fits is asked of the planner
def plan(model, gpu, gpus, **config):
    answer = requests.post(f"{remote}/v1/plan", json={"model": model, "method": "dpo", "gpu": gpu, "nodes": 1, "gpus_per_node": gpus, "config": config}, timeout=120)
    assert answer.status_code == 200, answer.text
    return answer.json()


sharded = {"sharding_strategy": "FULL_SHARD", "mixed_precision_policy": "bf16", "cpu_offload": False}
small = plan("7B", "rtx_4090", 2, fsdp_config=sharded, max_seq_length=4096, batch_size=2)
assert small["verdict"] == "does_not_fit" and small["fixes"], small  # the guide says it does
assert small["predicted"]["device_bytes"] > small["predicted"]["capacity_bytes"], small["predicted"]
middle = plan("13B", "a100_sxm_80", 8, fsdp_config=dict(sharded, cpu_offload=True), max_seq_length=2048, batch_size=1, gradient_checkpointing=True)
assert middle["verdict"] in ("fits", "tight"), middle
large = plan("70B", "h100_sxm", 8, fsdp_config={"sharding_strategy": "FULL_SHARD", "cpu_offload": True}, activation_checkpointing="full")
assert large["recommendation"]["recommended"] == "remote", large["recommendation"]
# "Choose based on your model size"
for model, gpus, recommended in (("scratch_350m", 1, "inline"), ("1B", 2, "either"), ("8B", 8, "remote"), ("70B", 8, "remote")):
    answer = plan(model, "h100_sxm", gpus)
    assert answer["recommendation"]["recommended"] == recommended, (model, answer["recommendation"])
print("service_document: the guide's program and its sizes")
