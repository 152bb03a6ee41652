# Sourced by integration tests that run jobs: a scratch folder with a small corpus, plans for a small model, and words to check with.
# Needs DISTSETUP_BIN and DISTSETUP_SOURCE. Sets: distsetup, work (removed at exit), host.
set -euo pipefail
distsetup=${DISTSETUP_BIN:?}/distsetup
host=$(hostname)
work=$(mktemp -d)
test_name=$(basename "$0" .sh)
trap 'status=$?; rm -rf "$work"; exit $status' EXIT

fail() { printf '%s: %s\n' "$test_name" "$1" >&2; shift; printf '  %s\n' "$@" >&2; exit 1; }
is() { [[ $2 == "$3" ]] || fail "$1" "found:    $2" "expected: $3"; }
has() { [[ $2 == *"$3"* ]] || fail "$1" "found:    $2" "expected: ...$3..."; }
has_not() { [[ $2 != *"$3"* ]] || fail "$1" "found:    $2" "expected no: $3"; }

# run NAME CODE COMMAND...: runs, expects that exit code, leaves all output in $said
run() {
  local name=$1 expected=$2 code=0
  shift 2
  said=$("$@" 2>&1) || code=$?
  [[ $code == "$expected" ]] || fail "$name: exit code $code, expected $expected" "command: $*" "$said"
}

need_trainer() {
  [[ -x $DISTSETUP_BIN/distsetup-train ]] || { echo "not run: no distsetup-train in $DISTSETUP_BIN (built without -DDISTSETUP_RUNTIME=ON)"; exit 77; }
}

# Documents of unequal length, the same each time: 40 steps of 256 tokens meet the ends of some six of them. The eighth and later
# ones of data/ end up held out or not as `distsetup plan` decides.
make_data() {
  mkdir -p "$work/data"
  local file count=0
  for file in "$DISTSETUP_SOURCE"/src/plan/*.h "$DISTSETUP_SOURCE"/src/base/*.h; do
    head -c $((600 + count * 1709 % 2400)) "$file" > "$work/data/$(basename "$file")"
    count=$((count + 1))
  done
}

# make_job NAME RANKS [FLAGS OF plan...]: $work/NAME/plan.json for a model of some 27 thousand parameters
make_job() {
  local name=$1 ranks=$2
  shift 2
  [[ -d $work/data ]] || make_data
  mkdir -p "$work/$name"
  cat > "$work/run.yaml" <<YAML
version: 1
model: {family: llama, num_layers: 2, hidden: 32, num_heads: 4, num_kv_heads: 2, feed_forward: 88, vocabulary: 256}
hardware: {gpu: cpu, gpus_per_node: $ranks, nodes: 1}
train: {sequence_length: 32, global_batch: 8, steps: 40, learning_rate: 3e-3, min_learning_rate: 3e-4, warmup_steps: 3, seed: 1}
parallel: {sharding: zero3}
precision: {compute: fp32}
data: {paths: [data], tokenizer: bytes}
checkpoint: {directory: checkpoints, every_steps: 7, keep: 3}
launch: {init_timeout: 60s, collective_timeout: 20s}
YAML
  (cd "$work" && "$distsetup" plan run.yaml "$@" --output "$name/plan.json" > "$name/preview.txt" 2> "$name/plan.log") ||
    fail "plan of $name" "$(cat "$work/$name/plan.log")"
}

launch() { "$distsetup" launch --plan "$work/$1/plan.json" --grace 3 "${@:2}"; }

# "step loss gradient-norm learning-rate" of every step line, as written
losses() { sed -nE 's/.*"gradient_norm":([^,]*),.*"learning_rate":([^,]*),"loss":([^,]*),.*"step":([0-9]+),.*/\4 \3 \1 \2/p' "$1"; }

# losses_agree NAME FILE FILE RELATIVE: same steps, losses within the tolerance
losses_agree() {
  paste -d' ' <(losses "$2") <(losses "$3") | awk -v tolerance="$4" '
    NF != 8 { print "line " NR " is in one file only"; bad = 1; exit }
    $1 != $5 { print "step " $1 " beside step " $5; bad = 1; exit }
    { d = $2 - $6; if (d < 0) d = -d; if (d > tolerance * $2) { print "step " $1 ": loss " $2 " and " $6; bad = 1; exit } }
    END { exit bad || NR == 0 }' > "$work/disagree" || fail "$1" "$(cat "$work/disagree")"
}

# digests of a checkpoint's tensors
tensors() { (cd "$1" && sha256sum rank_*.safetensors); }

# A port nobody listens on. Below those that Linux hands out by itself: these go to connections.
free_port() {
  local port
  while port=$((RANDOM % 20000 + 10000)); (: </dev/tcp/127.0.0.1/$port) 2>/dev/null; do :; done
  echo "$port"
}

# put_torchrun PYTHON: `torchrun` of that Python, first on PATH
put_torchrun() {
  mkdir -p "$work/bin"
  printf '#!/bin/bash\nexec %q -m torch.distributed.run "$@"\n' "$1" >"$work/bin/torchrun"
  chmod +x "$work/bin/torchrun"
  export PATH="$work/bin:$DISTSETUP_BIN:$PATH"
}

# make_config_json FOLDER: a model folder as Transformers writes it, without weights; make_job's model
make_config_json() {
  mkdir -p "$1"
  cat >"$1/config.json" <<'JSON'
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4,
 "num_key_value_heads": 2, "intermediate_size": 88, "vocab_size": 256, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
 "hidden_act": "silu", "tie_word_embeddings": false}
JSON
}
