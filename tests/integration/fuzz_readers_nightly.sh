#!/usr/bin/env bash
# The readers of scripts, YAML, JSON and TOML under libFuzzer, 60 s each.
set -euo pipefail
exec "${DISTSETUP_SOURCE:?}/tests/fuzz/run" 60
