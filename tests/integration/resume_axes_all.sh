#!/usr/bin/env bash
# resume.sh's kills, of runs that split the model, its layers or its sequences.
set -euo pipefail
for mesh in "--tp 2" "--pp 2 --sharding ddp" "--cp 2"; do
  KILLS=${KILLS:-3} MESH_FLAGS=$mesh bash "${DISTSETUP_SOURCE:?}/tests/integration/resume.sh"
done
