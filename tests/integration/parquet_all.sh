#!/usr/bin/env bash
# Parquet files: without the plugin it is said how to get it; with it the rows are those that pyarrow wrote, nested messages included.
set -euo pipefail
root=${DISTSETUP_SOURCE:?}
bin=${DISTSETUP_BIN:?}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
tokenizer=$root/tests/data/tokenizers/bytes_of_words
prepare() { "$bin/distsetup" data prepare "$1" --tokenizer "$tokenizer" --template "$folder/chat.jinja" --held-out 0 --output "$2"; }
echo "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %} {% endfor %}" > "$folder/chat.jinja"
echo none > "$folder/rows.parquet"
export DISTSETUP_PARQUET=$folder/plugin/lib/libdistsetup_parquet.so
! prepare "$folder/rows.parquet" "$folder/none" 2> "$folder/said" || { echo "read without the plugin"; exit 1; }
grep -q scripts/parquet_plugin "$folder/said" || { echo "how to get the plugin is not said"; cat "$folder/said"; exit 1; }
"$root/scripts/parquet_plugin" "$folder/plugin" > "$folder/log" 2>&1 || { echo "the plugin could not be built (pyarrow's wheel)"; tail -n 3 "$folder/log"; exit 77; }
"$folder/plugin/parquet/bin/python" - "$folder" << 'PYTHON'
import json, random, sys
import pyarrow as pa, pyarrow.parquet as pq
chance = random.Random(1)
say = lambda: " ".join(chance.choice("a plan that fits Größe 東京 345".split()) for _ in range(chance.randint(1, 9)))
rows = [{"id": i, "score": chance.random(), "kind": chance.choice(["x", "y"]), "system": None,
         "messages": [{"role": role, "content": say()} for _ in range(chance.randint(1, 3)) for role in ("user", "assistant")]} for i in range(500)]
table = pa.Table.from_pylist(rows)
table = table.set_column(table.schema.get_field_index("kind"), "kind", table["kind"].dictionary_encode())
pq.write_table(table, f"{sys.argv[1]}/rows.parquet", row_group_size=64, compression="zstd")
with open(f"{sys.argv[1]}/rows.jsonl", "w") as file:
    file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
PYTHON
prepare "$folder/rows.parquet" "$folder/parquet" > "$folder/said"
prepare "$folder/rows.jsonl" "$folder/jsonl" > /dev/null
for file in training.tokens training.spans training.samples; do cmp "$folder/parquet/$file" "$folder/jsonl/$file"; done
head -c 1000 "$folder/rows.parquet" > "$folder/cut.parquet"
! prepare "$folder/cut.parquet" "$folder/cut" 2> "$folder/said" || { echo "a file that is cut was read"; exit 1; }
grep -q "cannot be read" "$folder/said" || { cat "$folder/said"; exit 1; }
echo "500 rows of a parquet file are those of the same rows as .jsonl; what is cut or without a plugin is refused"
