#!/usr/bin/env bash
# `distsetup schema` is draft-07 and says what the reader says: every run file and recipe of this project passes a real validator, every
# file that the golden tests know as wrong for its keys or values fails it, and mutations of right ones fail.
# Makes .deps/schema, a Python environment with jsonschema and PyYAML (10 MB, some seconds).
set -euo pipefail
root=${DISTSETUP_SOURCE:?}
distsetup=${DISTSETUP_BIN:?}/distsetup
environment=$root/.deps/schema
packages=$root/tests/integration/schema_packages.txt
stamp=$(sha256sum <"$packages")
if [[ $(cat "$environment/stamp" 2>/dev/null) != "$stamp" ]]; then
  rm -rf "$environment"
  python3 -m venv "$environment"
  echo "making .deps/schema: pip install -r tests/integration/schema_packages.txt" >&2
  if ! "$environment/bin/python" -m pip install --quiet --no-deps --no-compile --disable-pip-version-check -r "$packages" >&2; then
    echo "the packages of tests/integration/schema_packages.txt could not be fetched"
    exit 77
  fi
  echo "$stamp" >"$environment/stamp"
fi
schemas=$(mktemp -d)
trap 'rm -rf "$schemas"' EXIT
"$distsetup" schema run >"$schemas/run.json"
"$distsetup" schema site >"$schemas/site.json"
"$environment/bin/python" "$root/tests/integration/schema.py" "$schemas/run.json" "$schemas/site.json" "$root"
