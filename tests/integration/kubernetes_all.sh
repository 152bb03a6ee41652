#!/usr/bin/env bash
# Emitted manifests against published schemas: core kinds and every pod by Kubernetes' own (kubernetes-validate), compose files by the
# Compose specification's (check-jsonschema), the kinds of JobSet and Kubeflow by tables of their fields (kubernetes.py). A mutated
# manifest of each is refused. Makes .deps/kubernetes, a Python environment (130 MB, once).
set -euo pipefail
root=${DISTSETUP_SOURCE:?}
distsetup=${DISTSETUP_BIN:?}/distsetup
environment=$root/.deps/kubernetes
packages=$root/tests/integration/kubernetes_packages.txt
stamp=$(sha256sum <"$packages")
if [[ $(cat "$environment/stamp" 2>/dev/null) != "$stamp" ]]; then
  rm -rf "$environment"
  mkdir -p "$root/.deps"
  python3 -m venv "$environment"
  echo "making .deps/kubernetes: pip install -r tests/integration/kubernetes_packages.txt" >&2
  if ! "$environment/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check -r "$packages"; then
    echo "the packages of tests/integration/kubernetes_packages.txt could not be fetched"
    exit 77
  fi
  echo "$stamp" >"$environment/stamp"
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
emitted() { # FOLDER FLAGS...
  local code=0
  "$distsetup" emit --output "$@" >/dev/null 2>"$1.log" || code=$?
  ((code == 0 || code == 4)) || { cat "$1.log" >&2; exit 1; } # 4: written, and marked as not fitting
}
plan=(--model llama3.2_1b --sharding zero3 --dp-replicate 1 --gpus 8)
# shellcheck disable=SC2016 # to arrive as they are
awkward=(--export $'A=$(B) $C "q" \'s\' # é,B=\n' -- train.py 'a b' "it's" '$(X) $Y' '"' $'two\nlines' '- x' ': y' '#' 'é🙂' 'yes' '010' '')
for kind in kubernetes kubernetes-jobset kubernetes-pytorchjob kubernetes-trainjob; do
  for nodes in 1 4; do
    emitted "$kind-$nodes" --target $kind "${plan[@]}" --nodes $nodes --image registry/name:1 --volume-claim data
  done
  emitted "$kind-own" --target $kind "${plan[@]}" --nodes 2 --image registry/name:1 --queue team --namespace train \
    --rdma-resource rdma/hca --service-account trainer --memory-per-node 64G --cpus-per-task 12 --time-limit 4h "${awkward[@]}"
  # A trainer by way of it: its files in the ConfigMap, its launch.sh on every node.
  for target in deepspeed accelerate-fsdp2 transformers; do
    emitted "$kind-via-$target" --target $target --via $kind "${plan[@]}" --nodes 2 --image registry/name:1 --volume-claim data \
      --node-selector pool=h100 --tolerations nvidia.com/gpu:NoSchedule "${awkward[@]}"
  done
done
emitted compose --target docker-compose "${plan[@]}" --nodes 1 --image registry/name:1 --mounts '/a b:/c'
emitted compose-own --target docker-compose "${plan[@]}" --nodes 1 --image registry/name:1 "${awkward[@]}"
emitted compose-cpu --target docker-compose --model llama3.2_1b --gpu cpu --gpus 2 --nodes 1 --image x:1
for file in compose*/compose.yaml; do "$environment/bin/check-jsonschema" --quiet --builtin-schema vendor.compose-spec "$file"; done
sed 's/^services:/servces:/' compose/compose.yaml >bad.yaml
if "$environment/bin/check-jsonschema" --quiet --builtin-schema vendor.compose-spec bad.yaml >/dev/null 2>&1; then
  echo "a mutated compose file was accepted" >&2
  exit 1
fi
"$environment/bin/python" "$root/tests/integration/kubernetes.py" "$work" "$environment/bin/kubernetes-validate"
