# shellcheck shell=bash
# Sourced by the scripts: progress lines, Debian packages, libtorch. Sets `root`; reads `no_install` (yes: install nothing, exit 5).

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
no_install=${no_install:-no}
torch_wheels="torch==2.11.0 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85"
libtorch_dir=$root/.deps/libtorch-2.11.0
started_s=${SCRIPTS_STARTED_S:-$(date +%s)}
export SCRIPTS_STARTED_S=$started_s  # scripts called by scripts go on counting
PATH=$PATH:/usr/sbin:/sbin             # slurmctld, munged

say() { printf '[%4d s] %s\n' $(($(date +%s) - started_s)) "$*" >&2; }

# Exit 5: the environment does not allow it; says what is missing and how it would be installed.
give_up() {
  printf '%s\n' "$@" >&2
  exit 5
}

is_present() {  # KIND NAME, as in packages.txt
  case $1 in
    cmd) command -v "$2" >/dev/null ;;
    header) [ -e "/usr/include/$2" ] || [ -e "/usr/local/include/$2" ] ;;
    python) python3 -c "import $2" 2>/dev/null ;;
    *) false ;;
  esac
}

missing_packages() {  # GROUP...
  local group kind name package wanted=" $* "
  while read -r group kind name package; do
    case $group in '' | '#'*) continue ;; esac
    [[ $wanted == *" $group "* ]] || continue
    is_present "$kind" "$name" || echo "$package"
  done <"$root/scripts/packages.txt" | sort -u | tr '\n' ' ' | sed 's/ $//'
}

# Installs what these groups still need, after printing the line that does it.
ensure_packages() {  # GROUP...
  local missing line as_root=()
  missing=$(missing_packages "$@")
  [ -n "$missing" ] || return 0
  line="apt-get install -y --no-install-recommends $missing"
  [ "$no_install" = no ] || give_up "missing packages: $missing" "install them with: $line"
  command -v apt-get >/dev/null || give_up "missing (by their Debian names): $missing" "no apt-get here: install them by hand, then run this again"
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || give_up "missing packages: $missing" "neither root nor sudo here: run as root: $line"
    sudo -n true 2>/dev/null || [ -t 0 ] || give_up "missing packages: $missing" "sudo asks for a password: run: sudo $line"
    as_root=(sudo)
  fi
  say "installing packages: ${as_root[*]:+sudo }$line"
  mkdir -p "$root/.deps"
  apt_install "$missing" >"$root/.deps/apt.log" 2>&1 ||
    give_up "$(tail -n 5 "$root/.deps/apt.log")" "missing packages: $missing" "apt-get failed (its output: .deps/apt.log); the line was: $line"
}

apt_install() {  # "PACKAGE..."; unsafe-io: no fsync per file, several times faster
  local options=(-qq -y --no-install-recommends -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 -o Dpkg::Options::=--force-unsafe-io)
  local update=("${as_root[@]}" apt-get update -qq -o Acquire::Languages=none)
  # shellcheck disable=SC2206 # a list of words
  local install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install "${options[@]}" $1)
  if ! compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null; then "${update[@]}"; fi
  "${install[@]}" || { "${update[@]}" && "${install[@]}"; }
}

# The best effort kind: a failure costs time later, nothing else.
prefer_packages() {  # GROUP...
  [ "$no_install" = no ] || return 0
  (ensure_packages "$@") || say "going on without: $(missing_packages "$@")"
}

pip_install() {  # ARGUMENT...: the pip of a virtual environment of ours, always to a --target
  local python=$root/.deps/venv/bin/python
  ensure_packages runtime
  [ -x "$python" ] || python3 -m venv "$root/.deps/venv" || give_up "python3 -m venv failed: install python3-venv"
  "$python" -m pip install --quiet --no-compile --no-cache-dir --disable-pip-version-check "$@" >&2
}

# libtorch under .deps/, complete or not at all; the stamp is part of the folder that is renamed last. TORCH_WHEEL_DIR: use that one.
fetch_libtorch() {
  [ -z "${TORCH_WHEEL_DIR:-}" ] || return 0
  [ "$(cat "$libtorch_dir/stamp" 2>/dev/null)" != "$torch_wheels" ] || return 0
  local partial=$libtorch_dir.partial line="pip install --no-deps --target .deps/${libtorch_dir##*/} $torch_wheels"
  [ "$no_install" = no ] || give_up "missing: libtorch" "fetch it with: $line"
  mkdir -p "$root/.deps"
  exec 9>"$root/.deps/lock"
  flock 9
  if [ "$(cat "$libtorch_dir/stamp" 2>/dev/null)" != "$torch_wheels" ]; then
    say "fetching libtorch (530 MB): $line"
    rm -rf "$partial" "$libtorch_dir"
    # shellcheck disable=SC2086 # a list of words
    pip_install --no-deps --target "$partial" $torch_wheels || give_up "missing: libtorch; could not be fetched with: $line"
    find "$partial/torch/bin" -type f ! -name torch_shm_manager -delete
    echo "$torch_wheels" >"$partial/stamp"
    mv "$partial" "$libtorch_dir"
  fi
  flock -u 9
}

# What the CUDA plugin loads beside libtorch (2.7 GB), for runs on a GPU; versions as the torch wheel states them.
fetch_nvidia() {
  local folder=${TORCH_WHEEL_DIR:-$libtorch_dir/torch}/.. partial=$root/.deps/nvidia.partial wanted=() line
  [ ! -e "$folder/nvidia/complete" ] || return 0
  while IFS= read -r line; do wanted+=("$line"); done < <(
    sed -n 's/^Requires-Dist: \(\(cuda-toolkit\|nvidia-\)[^;]*\);.*/\1/p' "$folder"/torch-*.dist-info/METADATA)
  [ ${#wanted[@]} -gt 0 ] || give_up "no NVIDIA libraries named in $folder/torch-*.dist-info/METADATA"
  [ "$no_install" = no ] || give_up "missing: NVIDIA libraries" "fetch them with: pip install --target DIR ${wanted[*]}"
  say "fetching NVIDIA libraries (2.7 GB): pip install ${wanted[*]}"
  rm -rf "$partial"
  pip_install --target "$partial" "${wanted[@]}" || give_up "missing: NVIDIA libraries; could not be fetched: ${wanted[*]}"
  cp -rn "$partial/nvidia/." "$folder/nvidia/"
  rm -rf "$partial"
  touch "$folder/nvidia/complete"
}
