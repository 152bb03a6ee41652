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

# extra_packages FOLDER FILE: $extra, a folder below .deps with the Python packages of FILE, which is in tests/integration; made once.
# Exits 77 where they could not be fetched.
extra_packages() {
  local packages=$root/tests/integration/$2 stamp
  extra=$root/.deps/$1
  stamp="$environment $(sha256sum <"$packages")"
  exec 8>"$root/.deps/${1%%/*}_lock"
  flock 8
  if [[ $(cat "$extra/stamp" 2>/dev/null) != "$stamp" ]]; then
    rm -rf "$extra"
    echo "making .deps/$1: pip install --no-deps -r tests/integration/$2" >&2
    if ! "$environment/bin/python" -m pip install --quiet --no-deps --no-compile --disable-pip-version-check --target "$extra" -r "$packages"; then
      echo "the packages of tests/integration/$2 could not be fetched"
      exit 77
    fi
    echo "$stamp" >"$extra/stamp"
  fi
  flock -u 8
}
