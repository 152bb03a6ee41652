"""kubernetes.py FOLDER KUBERNETES-VALIDATE: checks every manifest below FOLDER; kubernetes_all.sh calls it.

Core kinds go to kubernetes-validate as they are. Kinds of JobSet v1alpha2, kubeflow.org/v1 and trainer.kubeflow.org/v1alpha1 are
checked by the tables here (field names and types from their custom resource definitions, kubernetes-sigs/jobset and kubeflow/trainer,
August 2026); the pods inside are wrapped into a Job and go to kubernetes-validate too.
"""
import copy
import json
import pathlib
import subprocess
import sys
import tempfile

import yaml

folder, validator = pathlib.Path(sys.argv[1]), sys.argv[2]
POD, JOB, ANY = "pod template", "job spec", "any"
QUANTITIES = {"*": (int, str)}
KINDS = {
    "JobSet": {
        "network": {"enableDNSHostnames": bool, "publishNotReadyAddresses": bool, "subdomain": str},
        "failurePolicy": {"maxRestarts": int, "restartStrategy": str, "rules": ANY},
        "replicatedJobs": [{"name": str, "replicas": int, "template": {"metadata": ANY, "spec": JOB}}],
        "suspend": bool,
        "ttlSecondsAfterFinished": int,
    },
    "PyTorchJob": {
        "nprocPerNode": str,
        "runPolicy": {
            "cleanPodPolicy": str,
            "backoffLimit": int,
            "activeDeadlineSeconds": int,
            "ttlSecondsAfterFinished": int,
            "suspend": bool,
            "schedulingPolicy": {"minAvailable": int, "queue": str, "priorityClass": str, "scheduleTimeoutSeconds": int},
        },
        "pytorchReplicaSpecs": {
            "Master": {"replicas": int, "restartPolicy": str, "template": POD},
            "Worker": {"replicas": int, "restartPolicy": str, "template": POD},
        },
    },
    "TrainJob": {
        "runtimeRef": {"name": str, "kind": str, "apiGroup": str},
        "activeDeadlineSeconds": int,
        "suspend": bool,
        "trainer": {
            "image": str,
            "command": [str],
            "args": [str],
            "env": ANY,
            "numNodes": int,
            "numProcPerNode": int,
            "resourcesPerNode": {"limits": QUANTITIES, "requests": QUANTITIES},
        },
        "runtimePatches": [
            {
                "manager": str,
                "trainingRuntimeSpec": {
                    "template": {
                        "spec": {
                            "replicatedJobs": [
                                {
                                    "name": str,
                                    "template": {
                                        "spec": {
                                            "template": {
                                                "spec": {
                                                    "serviceAccountName": str,
                                                    "containers": [{"name": str, "volumeMounts": ANY, "env": ANY, "securityContext": ANY}],
                                                    "volumes": ANY,
                                                    "nodeSelector": ANY,
                                                    "affinity": ANY,
                                                    "tolerations": ANY,
                                                }
                                            }
                                        }
                                    },
                                }
                            ]
                        }
                    }
                },
            }
        ],
    },
}
API = {"JobSet": "jobset.x-k8s.io/v1alpha2", "PyTorchJob": "kubeflow.org/v1", "TrainJob": "trainer.kubeflow.org/v1alpha1"}


def core(document):
    """What Kubernetes' own schema says against a document; empty when nothing."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(document, file)
        file.flush()
        done = subprocess.run([validator, "--strict", "-k", "1.32", file.name], capture_output=True, text=True)
    said = done.stdout + done.stderr
    return said if done.returncode != 0 or "WARN" in said else ""


def job(spec):
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}, "spec": spec}


def check(value, shape, path):
    if shape == ANY:
        return []
    if shape == JOB:
        said = core(job(value))
        return [f"{path}: {said}"] if said else []
    if shape == POD:
        said = core(job({"template": value}))
        return [f"{path}: {said}"] if said else []
    if isinstance(shape, list):
        if not isinstance(value, list):
            return [f"{path}: {value!r} is no list"]
        return [w for i, item in enumerate(value) for w in check(item, shape[0], f"{path}[{i}]")]
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return [f"{path}: {value!r} is no map"]
        wrong = []
        for key, item in value.items():
            inner = shape.get(key, shape.get("*"))
            wrong += [f"{path}.{key}: unknown"] if inner is None else check(item, inner, f"{path}.{key}")
        return wrong
    right = isinstance(value, shape) and not (isinstance(value, bool) and shape is int)
    return [] if right else [f"{path}: {value!r} is not {shape}"]


def mistakes(document):
    kind = document["kind"]
    if kind not in KINDS:
        return [said] if (said := core(document)) else []
    wrong = [] if document["apiVersion"] == API[kind] else [f"apiVersion {document['apiVersion']}"]
    wrong += [f"unknown {key}" for key in document if key not in ("apiVersion", "kind", "metadata", "spec")]
    return wrong + check(document["spec"], KINDS[kind], kind)


def mutants(document):
    spec = document.get("spec")
    if document["kind"] == "ConfigMap" or spec is None:
        return
    first = next(iter(spec))
    changed = copy.deepcopy(document)
    changed["spec"][first + "x"] = changed["spec"].pop(first)
    yield changed
    for path in (["template", "spec", "containers"], ["replicatedJobs", 0, "template", "spec", "template", "spec", "containers"],
                 ["pytorchReplicaSpecs", "Master", "template", "spec", "containers"], ["trainer", "numNodes"]):
        changed = copy.deepcopy(document)
        at = changed["spec"]
        try:
            for step in path[:-1]:
                at = at[step]
            if path[-1] in at:
                at[path[-1]] = "two"
                yield changed
        except (KeyError, IndexError, TypeError):
            pass


def expected_words():
    return ["train.py", "a b", "it's", "$(X) $Y", '"', "two\nlines", "- x", ": y", "#", "é🙂", "yes", "010", ""]


def strings(value):
    if isinstance(value, dict):
        for item in value.values():
            yield from strings(item)
    elif isinstance(value, list):
        if value and all(isinstance(item, str) for item in value):
            yield [item.replace("$$", "$") for item in value]
        for item in value:
            yield from strings(item)


num_documents = num_mutants = 0
for path in sorted(folder.glob("*/*.yaml")):
    if path.name == "accelerate.yaml":  # the trainer's
        continue
    documents = list(yaml.safe_load_all(path.read_text()))
    if path.name == "compose.yaml":
        if path.parent.name == "compose-own":
            assert any(words[-13:] == expected_words() for words in strings(documents[0])), path
        continue
    for document in documents:
        wrong = mistakes(document)
        assert not wrong, f"{path}: {wrong}"
        num_documents += 1
        for changed in mutants(document):
            assert mistakes(changed), f"{path}: a mutated {document['kind']} was accepted: {changed['spec']}"
            num_mutants += 1
        is_composed = "-via-" in path.parent.name  # another trainer's files, each as it is beside the manifest
        if document["kind"] == "ConfigMap" and is_composed:
            assert "launch.sh" in document["data"] and "plan.json" not in document["data"], path
            for name, content in document["data"].items():
                assert content == (path.parent / name).read_text(), f"{path}: {name}"
        elif document["kind"] == "ConfigMap":
            plan = json.loads(document["data"]["plan.json"])
            assert plan == json.loads((path.parent / "plan.json").read_text()), path
    if path.parent.name.endswith("-own"):
        assert any(words == expected_words() for words in strings(documents[-1])), f"{path}: the words are not as they were given"
    text = json.dumps(documents[-1])
    assert "/dev/shm" in text, path  # the default of 64 MiB is too small
    if documents[-1]["kind"] == "TrainJob" and not is_composed:
        assert "PET_" not in text and "--nnodes" not in text and "--node_rank" not in text, path  # the operator's own
    if documents[-1]["kind"] == "PyTorchJob":
        for replica in documents[-1]["spec"]["pytorchReplicaSpecs"].values():
            assert [c["name"] for c in replica["template"]["spec"]["containers"]] == ["pytorch"], path
assert num_documents >= 47 and num_mutants >= 32, (num_documents, num_mutants)
print(f"{num_documents} documents accepted, {num_mutants} mutants refused, words as given")
