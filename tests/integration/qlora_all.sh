#!/usr/bin/env bash
# Adapters beside nf4 against bitsandbytes and PEFT: the same weights out of four bits, the same losses, gradients and adapters.
# shellcheck source=tests/support/trainer_oracle.sh
. "${DISTSETUP_SOURCE:?}/tests/support/trainer_oracle.sh"
packages=$root/tests/integration/qlora_packages.txt
extra=$root/.deps/bitsandbytes
stamp="$environment $(sha256sum <"$packages")"
exec 8>"$root/.deps/bitsandbytes_lock"
flock 8
if [[ $(cat "$extra/stamp" 2>/dev/null) != "$stamp" ]]; then
  rm -rf "$extra"
  echo "making .deps/bitsandbytes: pip install --no-deps -r tests/integration/qlora_packages.txt" >&2
  if ! "$environment/bin/python" -m pip install --quiet --no-deps --no-compile --disable-pip-version-check --target "$extra" -r "$packages"; then
    echo "the packages of tests/integration/qlora_packages.txt could not be fetched"
    exit 77
  fi
  echo "$stamp" >"$extra/stamp"
fi
flock -u 8
PYTHONPATH=$extra "$environment/bin/python" -W ignore "$root/tests/integration/qlora.py" "$bin" "$folder" "$@"
