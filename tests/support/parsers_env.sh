# shellcheck shell=bash
# Sourced by tests that need the real tools' parsers: makes .deps/parsers once, a Python environment over scripts/oracle_env's (450 MB,
# about a minute and a half), and sets `environment` to it. Reads `root`.
# shellcheck disable=SC2154
oracle=$("$root/scripts/oracle_env" 2>/dev/null) || { echo "the environment of scripts/oracle_env could not be made"; exit 77; }
environment=$root/.deps/parsers
packages=$root/tests/integration/emit_parsers_packages.txt
# Tools that cannot stand beside the others have a folder of their own in it, with a list of their own.
own=(torchtitan-0.3 skypilot openrlhf-0.9)
stamp="$oracle $(cat "$packages" "${packages%packages.txt}torchtitan-0.3.txt" "${packages%packages.txt}skypilot.txt" "${packages%packages.txt}openrlhf-0.9.txt" | sha256sum)"
exec 8>"$root/.deps/parsers_lock"
flock 8
if [[ $(cat "$environment/stamp" 2>/dev/null) != "$stamp" ]]; then
  rm -rf "$environment"
  "$oracle" -m venv "$environment"
  site=$("$environment/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
  oracle_site=$("$oracle" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
  printf 'import site; site.addsitedir(%s)\n' "'$oracle_site'" >"$site/oracle.pth"
  install=(env DS_BUILD_OPS=0 "$environment/bin/python" -m pip install --quiet --no-deps --no-compile --disable-pip-version-check)
  echo "making .deps/parsers: pip install --no-deps -r tests/integration/emit_parsers_packages.txt" >&2
  if ! "${install[@]}" "$(grep '^wheel' "$packages")" || ! "${install[@]}" --no-build-isolation -r "$packages"; then
    echo "the packages of tests/integration/emit_parsers_packages.txt could not be fetched"
    exit 77
  fi
  for name in "${own[@]}"; do
    if ! "${install[@]}" --target "$environment/$name" -r "${packages%packages.txt}$name.txt"; then
      echo "the packages of tests/integration/emit_parsers_$name.txt could not be fetched"
      exit 77
    fi
  done
  echo "$stamp" >"$environment/stamp"
fi
flock -u 8
export CUDA_VISIBLE_DEVICES='' OMP_NUM_THREADS=1 DS_ACCELERATOR=cpu HF_HUB_OFFLINE=1 TRANSFORMERS_VERBOSITY=error
