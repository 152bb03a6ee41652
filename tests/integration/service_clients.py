"""service_clients.py URL VERSION: llama-stack-client (on PYTHONPATH) against the service at URL. Its answers are read with pydantic as strictly as
the client can: a field that its models require and that is not there is a failure."""
import datetime
import logging
import pathlib
import sys
import time

import httpx
from llama_stack_client import BadRequestError, ConflictError, LlamaStackClient, NotFoundError, UnprocessableEntityError
from llama_stack_client._models import BaseModel
from prometheus_client.openmetrics.parser import text_string_to_metric_families

logging.getLogger("httpx").setLevel(logging.WARNING)
URL, VERSION = sys.argv[1:3]
client = LlamaStackClient(base_url=URL)
post_training = client.post_training if VERSION == "0.2.12" else client.alpha.post_training
datasets = client.beta.datasets if VERSION == "0.6.1" else client.datasets


def of_job(call, job):
    """0.6.1 has no argument for the job: it goes into the query."""
    return call(extra_query={"job_uuid": job}) if VERSION == "0.6.1" else call(job_uuid=job)


def strict(answer):
    """The client builds models without checking them; this checks: fields that are required, and the types of all."""
    for one in answer if isinstance(answer, list) else [answer]:
        assert isinstance(one, BaseModel), one
        type(one).model_validate(one.to_dict(mode="python"))
    return answer


def wait(job, *states, limit_s=120):
    until = time.monotonic() + limit_s
    while True:
        status = strict(of_job(post_training.job.status, job))
        if status.status in states:
            return status
        assert status.status in ("scheduled", "in_progress"), (job, status)
        assert time.monotonic() < until, (job, status)
        time.sleep(0.2)


def refused(kind, call):
    began = time.monotonic()
    try:
        answer = call()
    except kind as refusal:
        assert refusal.body and refusal.body["detail"], refusal
        assert time.monotonic() - began < 0.4, "the client asked again"  # it repeats what is answered by 409 unless told not to
        return refusal.body["detail"]
    raise SystemExit(f"not refused: {answer}")


# --- the service
assert strict(client.inspect.health()).status == "OK"
assert strict(client.inspect.version()).version
providers = strict(client.providers.list())
assert any(one.api == "post_training" for one in providers), providers
assert strict(client.providers.retrieve(providers[0].provider_id)).provider_id == providers[0].provider_id
assert "tiny" in [one.id if VERSION == "0.6.1" else one.identifier for one in strict(client.models.list())]
assert strict(client.models.retrieve("tiny")).api_model_type == "llm"
assert any(one.route.endswith("/preference-optimize") for one in strict(client.routes.list()))

# --- data sets
pairs = f"pairs-{VERSION}"
rows = [{"prompt": f"is {a} a number? ", "chosen": "yes", "rejected": "no"} for a in range(16)]
made = strict(datasets.register(dataset_id=pairs, purpose="post-training/messages", source={"type": "rows", "rows": rows}, metadata={"of": "answers"}))
assert (made.identifier, made.type, made.metadata["of"]) == (pairs, "dataset", "answers"), made
chats = f"chats-{VERSION}"
talk = [{"messages": [{"role": "user", "content": f"What is {a} + {a}?"}, {"role": "assistant", "content": str(a + a)}]} for a in range(12)]
strict(datasets.register(dataset_id=chats, purpose="post-training/messages", source={"type": "rows", "rows": talk}))
unnamed = strict(datasets.register(purpose="post-training/messages", source={"type": "rows", "rows": talk[:1]}))
assert unnamed.identifier
assert {pairs, chats, unnamed.identifier} <= {one.identifier for one in strict(datasets.list())}
assert strict(datasets.retrieve(pairs)).purpose == "post-training/messages"
page = strict(datasets.iterrows(pairs, start_index=14, limit=5))
assert page.data == rows[14:] and page.has_more is False, page
assert strict(datasets.iterrows(pairs, limit=3)).has_more is True
assert strict(datasets.iterrows(pairs)).data == rows
if VERSION != "0.2.12":
    if VERSION == "0.6.1":
        datasets.appendrows(unnamed.identifier, body_dataset_id=unnamed.identifier, rows=talk[1:3])
    else:
        datasets.appendrows(unnamed.identifier, rows=talk[1:3])
    assert datasets.iterrows(unnamed.identifier).data == talk[:3]
datasets.unregister(unnamed.identifier)
refused(NotFoundError, lambda: datasets.retrieve(unnamed.identifier))


def training(dataset, **more):
    return {"n_epochs": 2, "max_steps_per_epoch": 4, "gradient_accumulation_steps": 1, "dtype": "fp32",
            "data_config": {"dataset_id": dataset, "batch_size": 1, "shuffle": True, "data_format": "instruct"},
            "optimizer_config": {"optimizer_type": "adamw", "lr": 5e-3, "weight_decay": 0.01, "num_warmup_steps": 0}} | more


def preferences(job, **more):
    algorithm = {"reward_scale": 1.0, "reward_clip": 5.0, "epsilon": 0.1, "gamma": 0.99} if VERSION == "0.2.12" else {"beta": 0.1, "loss_type": "sigmoid"}
    # This client has no `model`: its finetuned_model is "the model to fine-tune".
    return post_training.preference_optimize(job_uuid=job, finetuned_model="tiny", algorithm_config=algorithm, training_config=training(pairs, **more),
                                             hyperparam_search_config={}, logger_config={})


# --- preferences
dpo = f"dpo-{VERSION}"
assert strict(preferences(dpo)).job_uuid == dpo
assert dpo in [one.job_uuid for one in post_training.job.list()]
refused(ConflictError, lambda: preferences(dpo))
status = wait(dpo, "completed", "failed")
assert status.status == "completed", (status, httpx.get(f"{URL}/v1/post-training/job/logs?job_uuid={dpo}&tail=40").text)
for at in (status.scheduled_at, status.started_at, status.completed_at):
    assert isinstance(at, datetime.datetime) and at.tzinfo is not None, status
assert status.scheduled_at <= status.started_at <= status.completed_at
assert status.resources_allocated["world_size"] == 2 and status.resources_allocated["training_completed"] is True, status
everything = httpx.get(f"{URL}/v1/post-training/job/status?job_uuid={dpo}").json()
assert [line["step"] for line in everything["losses"]] == list(range(1, 9)), everything["losses"]
margins = [line["rewards/margins"] for line in everything["losses"]]
assert margins[-1] > margins[1] > margins[0], margins
artifacts = strict(of_job(post_training.job.artifacts, dpo))
assert artifacts.job_uuid == dpo and artifacts.checkpoints, artifacts
for one in artifacts.checkpoints:
    one = one if isinstance(one, dict) else one.to_dict(mode="python")
    assert pathlib.Path(one["path"]).is_dir(), one
    assert one["post_training_job_id"] == dpo and isinstance(one["epoch"], int), one

# --- conversations, all parameters and LoRA
sft = f"sft-{VERSION}"
strict(post_training.supervised_fine_tune(job_uuid=sft, model="tiny", training_config=training(chats), hyperparam_search_config={}, logger_config={}))
lora = f"lora-{VERSION}"
strict(post_training.supervised_fine_tune(
    job_uuid=lora, model="tiny", training_config=training(chats), hyperparam_search_config={}, logger_config={},
    algorithm_config={"type": "LoRA", "rank": 4, "alpha": 8, "lora_attn_modules": ["q_proj", "v_proj"], "apply_lora_to_mlp": True, "apply_lora_to_output": False}))
for job in (sft, lora):
    status = wait(job, "completed", "failed")
    assert status.status == "completed", (status, httpx.get(f"{URL}/v1/post-training/job/logs?job_uuid={job}&tail=40").text)
    losses = [line["loss"] for line in httpx.get(f"{URL}/v1/post-training/job/status?job_uuid={job}").json()["losses"]]
    assert len(losses) == 8 and losses[-1] < losses[0], losses

# --- cancelled while it runs
long = f"long-{VERSION}"
preferences(long, n_epochs=100000, max_steps_per_epoch=0)
until = time.monotonic() + 60
while not httpx.get(f"{URL}/v1/post-training/job/status?job_uuid={long}").json()["losses"]:
    assert time.monotonic() < until, "it takes no step"
    time.sleep(0.1)
# What watches a service reads its numbers by the rules of OpenMetrics.
answer = httpx.get(f"{URL}/metrics")
assert answer.headers["content-type"].startswith("application/openmetrics-text"), answer.headers
families = {one.name: one for one in text_string_to_metric_families(answer.text)}
assert {one.labels["state"]: one.value for one in families["distsetup_jobs"].samples}["in_progress"] == 1, families["distsetup_jobs"]
assert [one.labels["job_uuid"] for one in families["distsetup_job_step"].samples if one.value >= 1] == [long], families["distsetup_job_step"]
assert families["distsetup_requests"].type == "counter" and families["distsetup_requests"].samples[0].value > 10
assert families["distsetup_requests_failed"].samples[0].value == 0
assert of_job(post_training.job.cancel, long) is None
status = wait(long, "cancelled", limit_s=45)
assert status.completed_at is not None
refused(ConflictError, lambda: of_job(post_training.job.cancel, long))

# --- refused by name
refused(NotFoundError, lambda: of_job(post_training.job.status, "nobody"))
refused(NotFoundError, lambda: of_job(post_training.job.artifacts, "nobody"))
refused(NotFoundError, lambda: of_job(post_training.job.cancel, "nobody"))
refused((BadRequestError, UnprocessableEntityError), lambda: post_training.supervised_fine_tune(
    job_uuid="qat", model="tiny", training_config=training(chats), hyperparam_search_config={}, logger_config={},
    algorithm_config={"type": "QAT", "quantizer_name": "int4", "group_size": 32}))
refused((BadRequestError, UnprocessableEntityError), lambda: preferences("../../etc"))
refused((BadRequestError, UnprocessableEntityError), lambda: preferences("no-rows", data_config={"dataset_id": "nobody", "batch_size": 1, "shuffle": True, "data_format": "instruct"}))
assert not {"qat", "../../etc", "no-rows"} & {one.job_uuid for one in post_training.job.list()}
print(f"service_clients: {VERSION}: every call holds")
