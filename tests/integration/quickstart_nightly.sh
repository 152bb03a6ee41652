#!/usr/bin/env bash
# The main job of scripts/quickstart with all its 300 steps.
set -euo pipefail
exec "${DISTSETUP_SOURCE:?}/tests/integration/quickstart_all.sh"
