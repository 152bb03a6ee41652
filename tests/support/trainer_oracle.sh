# shellcheck shell=bash
# Sourced by integration tests of the trainer against a Python library: $root, $bin, $environment (the libraries' Python), and $folder,
# a scratch folder that goes at the end. Exits 77 where the trainer is not built.
set -euo pipefail
root=${DISTSETUP_SOURCE:?}
bin=${DISTSETUP_BIN:?}
[[ -x $bin/distsetup-train ]] || { echo "distsetup-train is not built"; exit 77; }
# shellcheck source=tests/support/parsers_env.sh
. "$root/tests/support/parsers_env.sh"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
