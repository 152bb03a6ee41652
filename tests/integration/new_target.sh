#!/usr/bin/env bash
# A new target by templates/README.md alone, nothing compiled: its five steps with the copied example, word for word, and then a toy
# trainer of one's own with rules, a script, what it is searched for, what is read back and its column of the coverage.
# shellcheck source=tests/support/job.sh
. "${DISTSETUP_SOURCE:?}/tests/support/job.sh"
cd "$work"
readme=$DISTSETUP_SOURCE/templates/README.md

# The five steps. Steps 1 and 4 are commands; their words are the README's.
grep -qF "1. Copy \`_example\` to \`DIR/mytool\`" "$readme" || fail "step 1 is another in templates/README.md"
# shellcheck disable=SC2016 # backquotes of Markdown
command=$(sed -nE 's/^4\. `(distsetup emit [^`]*)`$/\1/p' "$readme")
is "step 4 is a command" "${command%% --model*}" "distsetup emit --target mytool --templates DIR"
mkdir DIR
cp -r "$DISTSETUP_SOURCE/templates/_example" DIR/mytool
read -ra words <<<"$command"
run "the copied example" 0 "$distsetup" "${words[@]:1}" --sharding zero3 --dp-replicate 1 --nodes 1
for file in plan.json config.yaml start.sh; do [[ -s run/$file ]] || fail "the copied example wrote no $file" "$said"; done
has "the copied example" "$(<run/config.yaml)" "mode: shard"
bash -n run/start.sh
run "a field without a form" 3 "$distsetup" "${words[@]:1:5}" --model 8B --nodes 1 --sharding zero1 --output no
has "a field without a form" "$said" "it has no form for zero1"

# A toy trainer: TOML, planned for FSDP2, two rules, one key that only the reader knows.
mkdir DIR/toy
cat >DIR/toy/target.yaml <<'EOF'
version: 1
describes: a toy trainer
proof: table
proof_of: toy 2.1
search: {trainer: fsdp2, sharding: [zero3], recompute: [none, full], hybrid: false, axes: [tp]}
files:
  - {output: plan.json, plan: true}
  - {output: toy.toml, keys: keys.yaml}
  - output: go.sh
    template: go.sh.mustache
    executable: true
    values:
      gpus: hardware.gpus_per_node
      nodes: hardware.nodes
      several_nodes: {switch: {derived.single_node: false}}
not_applicable:
  "strategy.*": the toy decides by itself how it computes
  "offload.*": the toy offloads nothing
  "train.*": the toy's script has its schedule
  "checkpoint.*": the toy keeps no checkpoints
  "precision.*": the toy computes in bf16
  "launch.*": the toy waits for ever
EOF
cat >DIR/toy/keys.yaml <<'EOF'
version: 1
format: toml
tool: toy 2.1
source: the toy's manual
checked: 2026-11-21
unknown_key: {"": silent}
keys:
  - {key: batch.per_rank, type: int, field: micro_batch}
  - {key: batch.times, type: int, field: gradient_accumulation}
  - {key: split.rows, type: int, field: mesh.dp_shard}
  - {key: split.columns, type: int, field: mesh.tp, unless: {mesh.tp: 1}}
  - {key: again, type: bool, field: recompute.policy, values: {none: false, full: true}}
rules:
  - unless: {strategy.sharding: zero3}
    message: "the toy shards everything, it has no form for {strategy.sharding}"
    help: plan again with --sharding zero3
  - when: {recompute.policy: [selective, every_k, keep_attention]}
    message: "the toy recomputes all or nothing, the plan says {recompute.policy}"
    help: plan again with --recompute full
  - unless: {mesh.pp: 1}
    message: "the toy has no pipeline, the plan has pp {mesh.pp}"
    help: plan again with --pp 1
  - unless: {mesh.cp: 1}
    message: "the toy has no context axis, the plan has cp {mesh.cp}"
    help: plan again with --cp 1
  - unless: {mesh.ep: 1}
    message: "the toy has no experts, the plan has ep {mesh.ep}"
    help: plan again with --ep 1
  - unless: {mesh.dp_replicate: 1}
    message: "the toy has one group, the plan has {mesh.dp_replicate} copies"
    help: plan again with --dp-replicate 1
EOF
cat >DIR/toy/reads.yaml <<'EOF'
version: 1
format: toml
tool: toy 2.1
source: the toy's manual
checked: 2026-11-21
keys: []
reads:
  - {key: trainer, absent: fsdp2, field: strategy.trainer}
  - {keys: [log.level, log.file], drop: where logs go is not planned}
EOF
cat >DIR/toy/go.sh.mustache <<'EOF'
#!/usr/bin/env bash
{{&header}}
set -euo pipefail
here=$(CDPATH='' cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")" && pwd)
{{#several_nodes}}
: "${NODE_RANK:?this plan needs several nodes: set NODE_RANK}"
{{/several_nodes}}
printf '%s\n' toy --gpus {{gpus}} --nodes {{nodes}} "$here/toy.toml" "$@"
EOF
toy=(--templates DIR --model 8B --nodes 1 --gpus 8)
run "the toy" 0 "$distsetup" emit --target toy "${toy[@]}" --micro-batch 2 --recompute full --tp 2 --output "a toy"
has "the toy is planned for its trainer" "$said" "planned for FSDP2 (torchtitan), which target toy is for"
is "the toy's file" "$(grep -v '^#' "a toy/toy.toml" | grep .)" "again = true
[batch]
per_rank = 2
times = $(grep -oE 'times = [0-9]+' "a toy/toy.toml" | grep -oE '[0-9]+')
[split]
rows = 4
columns = 2"
is "the toy's script" "$("a toy/go.sh" x 'y z' | tr '\n' '|')" "toy|--gpus|8|--nodes|1|$work/a toy/toy.toml|x|y z|"
run "what the toy cannot" 3 "$distsetup" emit --target toy "${toy[@]}" --pp 2 --output no
has "what the toy cannot" "$said" "the toy has no pipeline, the plan has pp 2"
has "the help names it" "$("$distsetup" emit --target tooy "${toy[@]}" --output no 2>&1 || true)" "toy"

printf 'again = false\n[batch]\nper_rank = 4\n[log]\nlevel = "warn"\n[other]\nx = 1\n' >mine.toml
run "the toy's file is read" 0 "$distsetup" convert --templates DIR --as toy --to run mine.toml
has "the toy's file is read" "$said" "micro_batch: 4"
has "a key that the reader drops" "$said" "log.level = warn: where logs go is not planned"
has "a key that nobody knows" "$said" "other.x = 1: not a key that toy 2.1 is known to have: it ignores unknown keys here without a word"

run "the toy's coverage" 0 "$distsetup" emit --coverage --target toy --templates DIR
has "the toy's coverage" "$said" "micro_batch"
gaps=$(grep -c '  gap' <<<"$said" || true)
is "every field has a reason" "$gaps" 0
sed -i '/"offload/d' DIR/toy/target.yaml
run "a reason is missing" 0 "$distsetup" emit --coverage --target toy --templates DIR
has "a reason is missing" "$said" "offload.parameters"
[[ $(grep -c '  gap' <<<"$said") == 3 ]] || fail "a forgotten field is a gap" "$said"
sed -i 's/field: micro_batch/field: micro_bach/' DIR/toy/keys.yaml
run "a mistake in a table" 1 "$distsetup" emit --target toy "${toy[@]}" --output no
has "a mistake in a table" "$said" "unknown field 'micro_bach'"
echo "new_target: all checks hold"
