#!/usr/bin/env bash
# The readers of scripts, YAML, JSON and TOML, and of whole files by key tables and lint, under libFuzzer, 2,000 inputs from the same seed.
set -euo pipefail
exec "${DISTSETUP_SOURCE:?}/tests/fuzz/run" 2000x
