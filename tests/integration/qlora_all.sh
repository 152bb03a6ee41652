#!/usr/bin/env bash
# Adapters beside nf4 against bitsandbytes and PEFT: the same weights out of four bits, the same losses, gradients and adapters.
# shellcheck source=tests/support/trainer_oracle.sh
. "${DISTSETUP_SOURCE:?}/tests/support/trainer_oracle.sh"
extra_packages bitsandbytes qlora_packages.txt
PYTHONPATH=$extra "$environment/bin/python" -W ignore "$root/tests/integration/qlora.py" "$bin" "$folder" "$@"
