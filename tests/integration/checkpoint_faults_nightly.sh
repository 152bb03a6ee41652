#!/usr/bin/env bash
# checkpoint_faults_all.sh at two hundred random points instead of twelve.
set -euo pipefail
POINTS=200 exec "${DISTSETUP_SOURCE:?}/tests/integration/checkpoint_faults_all.sh"
