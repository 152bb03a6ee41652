#!/usr/bin/env bash
# resume.sh with checkpoints saved beside training, and thirty kills.
set -euo pipefail
KILLS=30 PLAN_FLAGS=--async-save exec "${DISTSETUP_SOURCE:?}/tests/integration/resume.sh"
