#!/usr/bin/env bash
# Every emitted script passes shellcheck and shfmt, for many combinations of options.
set -euo pipefail
for tool in shellcheck shfmt; do
  command -v "$tool" >/dev/null || { echo "$tool is not installed"; exit 77; }
done
distsetup=${DISTSETUP_BIN:?}/distsetup
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=tests/support/emit_combinations.sh
. "${DISTSETUP_SOURCE:?}/tests/support/emit_combinations.sh"
emit_combinations "$work"

scripts=0
while IFS= read -r -d '' script; do
  # SC1090, SC1091: files that --setup sources are on the cluster. SC2016: --export writes $HOME as it was given, on purpose.
  shellcheck --shell=bash --exclude=SC1090,SC1091,SC2016 "$script"
  shfmt -d -i 2 -ci -ln bash "$script"
  scripts=$((scripts + 1))
done < <(find "$work" -type f \( -name '*.sh' -o -name '*.sbatch' -o -name '*.pbs' -o -name '*.lsf' \) -print0)
echo "$scripts scripts checked"
((scripts >= 90))
