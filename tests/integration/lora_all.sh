#!/usr/bin/env bash
# Adapters and frozen parts of models against PEFT and torch: the same losses, gradients and adapters, folders that go both ways.
# shellcheck source=tests/support/trainer_oracle.sh
. "${DISTSETUP_SOURCE:?}/tests/support/trainer_oracle.sh"
"$environment/bin/python" -W ignore "$root/tests/integration/lora.py" "$bin" "$folder" "$@"
