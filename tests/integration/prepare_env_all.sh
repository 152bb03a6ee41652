#!/usr/bin/env bash
# scripts/prepare-env.sh of the llama-stack targets makes a virtual environment and installs into it, with the real venv and pip, from a
# folder of stand-in packages in the index's place: empty ones of the right names and releases.
# shellcheck source=tests/support/job.sh
. "${DISTSETUP_SOURCE:?}/tests/support/job.sh"
cd "$work"
python=
for one in python3.13 python3.12 python3.11 python3; do
  if "$one" -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then python=$one && break; fi
done
[[ -n $python ]] || { echo "not run: no Python of 3.11 or newer with venv and pip (python3-venv)"; exit 77; }
export PYTHON=$python PIP_NO_INDEX=1 PIP_FIND_LINKS=$work/index PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_CONFIG_FILE=/dev/null

# wheel FOLDER NAME VERSION [MODULE]
wheel() {
  "$python" - "$@" <<'PY'
import os, sys, zipfile
folder, name, version, *module = sys.argv[1:]
module = module[0] if module else name.replace("-", "_")
os.makedirs(folder, exist_ok=True)
info = f"{name.replace('-', '_')}-{version}.dist-info"
files = {
    f"{module}/__init__.py": "",
    f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nProvides-Extra: standard\n",
    f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
}
files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
with zipfile.ZipFile(f"{folder}/{name.replace('-', '_')}-{version}-py3-none-any.whl", "w") as out:
    for path, text in files.items():
        out.writestr(path, text)
PY
}
for package in llama-stack=0.2.12 trl=0.18.1 transformers=4.52.4 datasets=3.0 torch=2.7.0 psutil=7.0 accelerate=1.8 fastapi=0.115.0 uvicorn=0.34.0 uv=0.7; do
  wheel index "${package%=*}" "${package#*=}"
done
wheel provider llama-stack-provider-trl 0.1.0 llama_stack_provider_trl_remote
provider=$(echo "$work"/provider/*.whl)

"$distsetup" emit --target llama-stack --output "a service" --model 1B --gpus 2 --nodes 1 --recompute full --method dpo --sharding zero3 >emit.log 2>&1 ||
  fail "emit" "$(cat emit.log)"
prepare="a service/scripts/prepare-env.sh"
run "without the provider" 5 "$prepare"
has "without the provider: a line to paste" "$said" "PROVIDER=git+"
has "without the provider: a path to paste" "$said" "a\ service/scripts/prepare-env.sh"
run "with the provider, from where one is" 0 env PROVIDER="provider/$(basename "$provider")" "$prepare"
has "with the provider: what next" "$said" "ready: source $(printf %q "$work/a service/.venv/bin/activate")"
is "every release is the one that was asked for" "$("a service/.venv/bin/python" -m pip list --format=freeze | grep -cE '^(llama-stack==0.2.12|trl==0.18.1|transformers==4.52.4)$')" 3
run "again" 0 env PROVIDER="$provider" VENV="a service/.venv" PIP_FIND_LINKS=/nowhere "$prepare"
has "again: nothing to do" "$said" "has all of it already"
"a service/.venv/bin/python" -m pip uninstall --yes trl >/dev/null 2>&1
run "what was taken away comes back" 0 env PROVIDER="$provider" "$prepare"
has "what was taken away comes back" "$said" "Installing collected packages: trl"
rm -r "$("a service/.venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')/datasets"
run "what pip has and Python does not find" 5 env PROVIDER="$provider" "$prepare"
has "what pip has and Python does not find: by name" "$said" "still missing in $work/a service/.venv: datasets"
rm index/torch-*
run "an index that lacks a package" 1 env PROVIDER="$provider" VENV="$work/other" "$prepare"
has "an index that lacks a package: pip says it" "$said" "torch"
[[ ! -e other/.prepared ]] || fail "an index that lacks a package: nothing is written down" "$(ls -a other)"
echo "prepare_env: installed, again, without a package"
