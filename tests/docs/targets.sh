#!/usr/bin/env bash
# The table of targets and their proof in README.md is what templates/*/target.yaml say: see targets.py. --update writes it.
set -euo pipefail
exec python3 "$(dirname "$0")/targets.py" "$@"
