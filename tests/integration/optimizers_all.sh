#!/usr/bin/env bash
# Optimizers of the trainer in whole runs against torch.optim and formulas: losses, parameters, bytes, resuming, adapters.
# shellcheck source=tests/support/trainer_oracle.sh
. "${DISTSETUP_SOURCE:?}/tests/support/trainer_oracle.sh"
"$environment/bin/python" -W ignore "$root/tests/integration/optimizers.py" "$bin" "$folder" "$@"
