#!/usr/bin/env bash
# The emitted launchers with the real torchrun, mpirun and ssh (to this host): the bundled trainer loses what one rank loses, a command
# of one's own gets the ranks and its words as they were given, a failure ends all of it and is named.
# shellcheck source=tests/support/job.sh
. "${DISTSETUP_SOURCE:?}/tests/support/job.sh"
export LC_ALL=C.UTF-8 # what ${words@Q} looks like depends on it
need_trainer
python=${DISTSETUP_ORACLE_PYTHON:-$("$DISTSETUP_SOURCE/scripts/oracle_env" 2>/dev/null)} || { echo "not run: no Python with torch"; exit 77; }
for tool in mpirun ssh; do command -v $tool >/dev/null || { echo "not run: no $tool"; exit 77; }; done
sshd=$(PATH=$PATH:/usr/sbin command -v sshd) || { echo "not run: no sshd"; exit 77; }

put_torchrun "$python"
export OMP_NUM_THREADS=1
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT NODE_RANK HOSTS

make_job one 1
run "one rank" 0 launch one
agree() { # NAME: what it lost beside one rank
  losses_agree "$1 beside one rank" "$work/$1/metrics.jsonl" "$work/one/metrics.jsonl" 1e-5
  [[ -s $work/$1/checkpoints/checkpoint_40/COMMIT ]] || fail "$1: no committed checkpoint"
}
emitted() { # NAME TARGET NODES RANKS-PER-NODE [WORDS...]
  make_job "$1" "$4" --nodes "$3"
  run "emit $1" 0 "$distsetup" emit --target "$2" --plan "$work/$1/plan.json" --output "$work/$1" --force "${@:5}"
}
of_trainer() { # NAME LAUNCHER NODES RANKS-PER-NODE [WORDS...]: another trainer's script, started by the launcher on every node
  run "emit $1" 0 "$distsetup" emit --target deepspeed --via "$2" --model tiny --sequence-length 1024 --gpu cpu --nodes "$3" --gpus "$4" \
    --output "$work/$1" "${@:5}"
}
# A program that writes down its rank and its words.
cat >"$work/show words" <<'SH'
#!/bin/bash
line="$RANK of $WORLD_SIZE local $LOCAL_RANK:$(printf ' [%s]' "${@@Q}")"
printf '%s\n' "$line" >>"$SHOWN" # in one piece: ranks write at the same time
SH
chmod +x "$work/show words"
export SHOWN="$work/shown"
# shellcheck disable=SC1003,SC2016 # to arrive as they are
words=('a b' "it's" '$HOME $(id) `id`' '"' '\' '*' $'two\nlines' 'é日本🙂' '-x' '' '#' '!!')
shown() { # RANKS: as the program wrote it, rank by rank
  local rank expected=''
  for ((rank = 0; rank < $1; ++rank)); do
    expected+="$rank of $1 local $((rank % $2)):$(printf ' [%s]' "${words[@]@Q}")"$'\n'
  done
  is "words and ranks" "$(sort -n "$SHOWN")"$'\n' "$expected"
  rm "$SHOWN"
}

# --- torchrun
emitted torchrun_4 torchrun 1 4
run "torchrun, one node" 0 "$work/torchrun_4/launch.sh"
agree torchrun_4
emitted torchrun_2x2 torchrun 2 2
port=$(free_port)
NODE_RANK=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$work/torchrun_2x2/launch.sh" >"$work/second" 2>&1 &
run "torchrun, two nodes" 0 env NODE_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT="$port" "$work/torchrun_2x2/launch.sh"
wait $! || fail "torchrun, second node" "$(cat "$work/second")"
agree torchrun_2x2
emitted torchrun_own torchrun 1 2 -- --no_python "$work/show words" "${words[@]}"
run "torchrun, own words" 0 "$work/torchrun_own/launch.sh"
shown 2 2

# --- mpirun: Open MPI refuses root and more ranks than cores unless told otherwise
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
MASTER_PORT=$(free_port)
export MASTER_PORT
emitted mpirun_4 mpirun 1 4 --mpi-options='--oversubscribe'
run "mpirun" 0 "$work/mpirun_4/launch.sh"
agree mpirun_4
emitted mpirun_own mpirun 1 2 --mpi-options='--oversubscribe' -- "$work/show words" "${words[@]}"
run "mpirun, own words" 0 "$work/mpirun_own/launch.sh"
shown 2 2
of_trainer mpirun_via mpirun 1 2 --mpi-options='--oversubscribe' -- --no_python "$work/show words" "${words[@]}"
run "another trainer by mpirun" 0 "$work/mpirun_via/start_all.sh"
shown 2 2
emitted mpirun_two mpirun 2 2
run "mpirun without hosts" 2 "$work/mpirun_two/launch.sh"
has "mpirun without hosts" "$said" "HOSTS="
unset MASTER_PORT

# --- ssh to this host, by a server of our own
port=$(free_port)
if [[ $(id -u) == 0 ]]; then mkdir -p /run/sshd; fi
ssh-keygen -q -t ed25519 -N '' -f "$work/host_key"
ssh-keygen -q -t ed25519 -N '' -f "$work/user_key"
cat >"$work/sshd_config" <<CONFIG
Port $port
ListenAddress 127.0.0.1
HostKey $work/host_key
AuthorizedKeysFile $work/user_key.pub
StrictModes no
UsePAM no
PermitRootLogin yes
PidFile none
CONFIG
"$sshd" -D -e -f "$work/sshd_config" 2>"$work/sshd.log" &
server=$!
trap 'status=$?; kill $server 2>/dev/null; rm -rf "$work"; exit $status' EXIT
options="-F none -p $port -i $work/user_key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
for _ in {1..100}; do
  # shellcheck disable=SC2086 # words
  if ssh $options -o BatchMode=yes 127.0.0.1 true 2>"$work/ssh.log"; then break; fi
  sleep 0.1
done
# shellcheck disable=SC2086 # words
ssh $options -o BatchMode=yes 127.0.0.1 true || fail "no ssh to this host" "$(cat "$work/ssh.log" "$work/sshd.log")"
MASTER_PORT=$(free_port)
export MASTER_PORT
emitted ssh_2x2 ssh 2 2 --ssh-options="$options" --hosts 127.0.0.1,localhost
run "ssh, two nodes" 0 "$work/ssh_2x2/launch.sh"
agree ssh_2x2
emitted ssh_own ssh 2 1 --ssh-options="$options" --export "PATH=$PATH,SHOWN=$SHOWN" -- --no_python "$work/show words" "${words[@]}"
run "ssh, own words" 0 env HOSTS='127.0.0.1 localhost' "$work/ssh_own/launch.sh"
shown 2 1
of_trainer ssh_via ssh 2 1 --ssh-options="$options" --export "SHOWN=$SHOWN" -- --no_python "$work/show words" "${words[@]}"
run "another trainer by ssh" 0 env HOSTS='127.0.0.1 localhost' "$work/ssh_via/start_all.sh"
shown 2 1
run "ssh, too few hosts" 2 env HOSTS=127.0.0.1 "$work/ssh_2x2/launch.sh"
has "ssh, too few hosts" "$said" "1 hosts, the plan needs 2"
# One node cannot start: it is named, and the other one does not wait for it.
started=$SECONDS
run "ssh, a node without a server" 255 env HOSTS='127.0.0.1 127.0.0.2' "$work/ssh_2x2/launch.sh"
has "ssh, a node without a server" "$said" "node 1 (127.0.0.2) ended with 255, the others are ended"
((SECONDS - started < 40)) || fail "the other node lived on for $((SECONDS - started)) s"
# The starter is killed: what it started saves and ends.
make_job ssh_long 1 --nodes 2 --steps 100000
run "emit ssh_long" 0 "$distsetup" emit --target ssh --plan "$work/ssh_long/plan.json" --output "$work/ssh_long" --force --ssh-options="$options" --hosts 127.0.0.1,localhost
"$work/ssh_long/launch.sh" >"$work/long.log" 2>&1 &
starter=$!
for _ in {1..300}; do
  if grep -q '"step":10,' "$work/ssh_long/metrics.jsonl" 2>/dev/null; then break; fi
  sleep 0.2
done
kill -9 "$starter"
wait "$starter" 2>/dev/null || true
for _ in {1..150}; do
  if ! pgrep -f "plan $work/ssh_long/plan.json" >/dev/null; then break; fi
  sleep 0.2
done
if pgrep -f "plan $work/ssh_long/plan.json" >/dev/null; then fail "ranks live on without their starter" "$(cat "$work/long.log")"; fi
[[ -n $(find "$work/ssh_long/checkpoints" -name COMMIT) ]] || fail "no checkpoint of the run whose starter went away"
echo "torchrun, mpirun and ssh train as one rank does; words survive; a failure ends all"
