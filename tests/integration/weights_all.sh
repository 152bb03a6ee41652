#!/usr/bin/env bash
# Published weights in and out, against Transformers: tiny random models of every family, in every type and several files, trained by the
# bundled trainer on 1 to 4 ranks from what save_pretrained() wrote, and exported to what from_pretrained() loads. Each family on one
# mesh, in turn; --every-mesh (every_mesh_nightly.sh) takes a quarter of an hour.
# shellcheck source=tests/support/trainer_oracle.sh
. "${DISTSETUP_SOURCE:?}/tests/support/trainer_oracle.sh"
"$environment/bin/python" -W ignore "$root/tests/integration/weights.py" "$bin" "$folder" "$@"
