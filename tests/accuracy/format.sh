#!/usr/bin/env bash
# What the scoreboard makes of files that are not in its format, of rows that say too little, and of rows it has never seen.
set -euo pipefail
source=${DISTSETUP_SOURCE:-$(cd "$(dirname "$0")/../.." && pwd)}
program=${DISTSETUP_BIN:-$source/build/release/bin}/distsetup-accuracy
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "$*" >&2; exit 1; }
score() { "$program" --source "$source" --quick "$@"; }
# refused FILE TEXT: exit code 3, and TEXT in the message
refused() {
  local status=0
  score "$1" >/dev/null 2>"$work/stderr" || status=$?
  [ $status = 3 ] || fail "$1: exit code $status, expected 3"
  grep -qF "$2" "$work/stderr" || { cat "$work/stderr" >&2; fail "$1: no '$2' in the message"; }
}

head -n 3 "$source/tests/accuracy/measured.csv" >"$work/rows.csv"
sed '1s/seq_len/sequence/' "$work/rows.csv" >"$work/column.csv"
refused "$work/column.csv" "column.csv:1:"
refused "$work/column.csv" "unknown column 'sequence'"
refused "$work/column.csv" "no column 'seq_len' in the header"
sed '2s/,8192,/,many,/' "$work/rows.csv" >"$work/number.csv"
refused "$work/number.csv" "'many' in column 'seq_len' is no number"
sed 3s/^TT-002/TT-001/ "$work/rows.csv" >"$work/twice.csv"
refused "$work/twice.csv" "id 'TT-001' a second time"
sed 's/^TT-[0-9]*,/,/' "$work/rows.csv" >"$work/blank.csv"
score "$work/blank.csv" >/dev/null || fail "rows with blank ids are refused"
sed '3s/,[^,]*$//' "$work/rows.csv" >"$work/short.csv"
refused "$work/short.csv" "cells, expected 43"

# A row's id says nothing: under another name it is predicted the same, to the byte.
sed 's/^TT-/NEW-/' "$work/rows.csv" >"$work/new.csv"
score "$work/rows.csv" --json | grep -A2 '"predicted"' >"$work/old.txt" || fail "no predictions"
score "$work/new.csv" --json | grep -A2 '"predicted"' >"$work/new.txt" || fail "no predictions"
cmp "$work/old.txt" "$work/new.txt" || fail "a row under another id is predicted otherwise"

# Too little stated: unmapped, with the reason.
sed -E '2s/Llama-3.1-8B(,[^,]*){7}/A model of ours,,,,,,,/' "$work/rows.csv" >"$work/unknown.csv"
score "$work/unknown.csv" --json | grep -q "the dims of model 'A model of ours' are not stated" || fail "no reason for the unmapped row"
echo "the format is read strictly, ids decide nothing"
