#!/usr/bin/env bash
# Published weights in and out, against Transformers: tiny random models of every family, in every type and several files, trained by the
# bundled trainer on 1 to 4 ranks from what save_pretrained() wrote, and exported to what from_pretrained() loads. Each family on two
# meshes; --every-mesh takes a quarter of an hour.
set -euo pipefail
root=${DISTSETUP_SOURCE:?}
bin=${DISTSETUP_BIN:?}
[[ -x $bin/distsetup-train ]] || { echo "distsetup-train is not built"; exit 77; }
# shellcheck source=tests/support/parsers_env.sh
. "$root/tests/support/parsers_env.sh"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$environment/bin/python" -W ignore "$root/tests/integration/weights.py" "$bin" "$folder" "$@"
