#!/usr/bin/env bash
# The names by which lint tells unknown keys are those of the installed tools: scripts/lint_keys reads them anew and compares.
set -euo pipefail
"${DISTSETUP_SOURCE:?}/scripts/lint_keys" --check
