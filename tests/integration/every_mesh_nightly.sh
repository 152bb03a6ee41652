#!/usr/bin/env bash
# Published weights, adapters, optimizers and bases of four bits on every mesh; the scripts themselves take a mesh or two of each kind.
set -euo pipefail
for name in weights lora optimizers qlora; do
  echo "$name"
  "${DISTSETUP_SOURCE:?}/tests/integration/${name}_all.sh" --every-mesh
done
