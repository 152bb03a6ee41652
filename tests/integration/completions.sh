#!/usr/bin/env bash
# Completions in a real bash: the script of `distsetup completions bash`, asked as readline asks it. Every flag that the help of a
# command lists is offered; values come from the table; what a user has typed or called a file is never expanded.
set -euo pipefail
distsetup=${DISTSETUP_BIN:?}/distsetup
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
fail() { printf 'completions: %s\n' "$@" >&2; exit 1; }
is() { [[ $2 == "$3" ]] || fail "$1" "found:    $2" "expected: $3"; }

"$distsetup" completions bash >script
bash -n script
# shellcheck disable=SC1091
. ./script
before=$(compgen -A function | grep -v '^_distsetup' | sort)
[[ $(complete -p distsetup) == "complete -F _distsetup distsetup" ]] || fail "not registered" "$(complete -p distsetup)"
compopt() { :; } # only inside a completion
offered() { # WORD... the last one is being typed; '=' as readline splits it
  # shellcheck disable=SC2034 # read by the script
  COMP_WORDS=(distsetup "$@") COMP_CWORD=$#
  COMPREPLY=()
  _distsetup
  printf '%s\n' "${COMPREPLY[@]}" | sort | tr '\n' ' ' | sed 's/ $//'
}
is "a command" "$(offered em)" "emit"
is "two words" "$(offered config '')" "show"
is "two words, of several" "$(offered data '')" "export prepare render show stats tokenize"
is "a flag" "$(offered emit --targ)" "--target"
is "flags behind two words" "$(offered config show --ori)" "--origin"
is "a value" "$(offered emit --target deepsp)" "deepspeed deepspeed-hf"
is "a value behind =" "$(offered emit --target = deepsp)" "deepspeed deepspeed-hf"
is "a value behind = with nothing" "$(offered schema site --color =)" "always auto never"
is "another target list" "$(offered launch --target '')" "native slurm"
is "underscores" "$(offered deepspeed --zero_stage '')" "0 1 2 3"
is "a key's values" "$(offered plan --sharding zero)" "zero1 zero2 zero3"
is "a key's other spelling" "$(offered plan --sharding-strategy zero3)" "zero3"
is "a flag that may stand alone" "$(offered plan --bf16 --global-batch-t)" "--global-batch-tokens"
is "a preset" "$(offered plan --gpu h200)" "h200_nvl h200_sxm"
is "words beside flags" "$(offered schema '')" "run site"
is "codes" "$(offered explain SL00)" "SL001 SL002 SL003 SL004 SL005 SL006 SL007 SL008 SL009"
is "nothing to offer" "$(offered emit --nodes '')" ""
is "a letter's value" "$(offered emit -o '')" "script"
mkdir 'a folder'
# shellcheck disable=SC2016 # to arrive as it is
touch 'a file' '$(touch pwned)' 'b'
is "files" "$(offered lint a)" 'a file a folder'
is "folders" "$(offered emit --templates a)" 'a folder'
is "a model or a file" "$(offered plan --model a)" 'a file a folder afm_4.5b apertus_8b aya_23_8b'
is "files behind --" "$(offered emit --target native -- b)" 'b'
# shellcheck disable=SC2016 # to arrive as it is
{
  is "a file's name is not run" "$(offered lint '$(')" '$(touch pwned)'
  is "what is typed is not run" "$(offered emit --target '$(touch pwned)')" ''
  is "what is typed is not a pattern" "$(offered emit --target '*')" ''
}
[[ ! -e pwned ]] || fail "a completion ran what the user typed"
is "no functions beside its own" "$(compgen -A function | grep -v '^_distsetup' | grep -vx compopt | grep -vx offered | sort)" "$before"

commands=$("$distsetup" --help | sed -n '/^Commands/,/^$/p' | sed -nE 's/^  ([a-z]+( [a-z]+)?)  +.*/\1/p')
[[ $(wc -l <<<"$commands") -ge 20 ]] || fail "commands of the help" "$commands"
while IFS= read -r command; do
  read -ra words <<<"$command"
  [[ " $(offered "${words[0]}") " == *" ${words[0]} "* ]] || fail "the command $command is not offered"
  # The help prints a flag of a key of the run once, by its first spelling; completions also offer those that stand for a value.
  helped=$("$distsetup" help "${words[@]}" | sed -nE 's/^  (-., )?(--[a-z0-9-]+).*/\2/p' | sort)
  flags=$(offered "${words[@]}" -- | tr ' ' '\n')
  missing=$(comm -23 <(echo "$helped") <(echo "$flags"))
  is "flags of $command that are not offered" "$missing" ""
  while IFS= read -r flag; do # and nothing is offered that the command does not take
    said=$("$distsetup" "${words[@]}" "$flag" --no-such-flag 2>&1) || true
    [[ $said != *"unknown flag '$flag'"* ]] || fail "$command does not take $flag"
  done < <(comm -13 <(echo "$helped") <(echo "$flags"))
done <<<"$commands"
echo "bash completes $(wc -l <<<"$commands") commands"
