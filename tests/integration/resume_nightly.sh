#!/usr/bin/env bash
# resume.sh with ranks killed at two hundred random instants instead of twenty, resume_axes_all.sh with fifty each.
set -euo pipefail
KILLS=200 bash "${DISTSETUP_SOURCE:?}/tests/integration/resume.sh"
KILLS=50 exec bash "${DISTSETUP_SOURCE:?}/tests/integration/resume_axes_all.sh"
