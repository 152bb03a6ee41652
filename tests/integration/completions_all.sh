#!/usr/bin/env bash
# Completions in a real zsh and a real fish, and the manual page in groff: what completions.sh asks of bash.
set -euo pipefail
distsetup=${DISTSETUP_BIN:?}/distsetup
for tool in zsh fish groff; do command -v $tool >/dev/null || { echo "not run: no $tool"; exit 77; }; done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/home" "$work/functions" "$work/here"
cd "$work/here"
export HOME=$work/home LC_ALL=C.UTF-8 PATH="$DISTSETUP_BIN:$PATH"
fail() { printf 'completions: %s\n' "$@" >&2; exit 1; }
is() { [[ $2 == "$3" ]] || fail "$1" "found:    $2" "expected: $3"; }
flat() { sort -u | tr '\n' ' ' | sed 's/ $//'; }
mkdir 'a folder'
touch 'a file'

# check NAME-OF-THE-SHELL: by `offered LINE`
check() {
  is "$1: a command" "$(offered 'distsetup em')" "emit"
  is "$1: two words" "$(offered 'distsetup config ')" "show"
  is "$1: a flag" "$(offered 'distsetup emit --targ')" "--target"
  is "$1: flags behind two words" "$(offered 'distsetup config show --ori')" "--origin"
  is "$1: a value" "$(offered 'distsetup emit --target deepsp')" "deepspeed deepspeed-hf"
  is "$1: another target list" "$(offered 'distsetup launch --target ')" "native slurm"
  is "$1: a key's values" "$(offered 'distsetup plan --sharding zero')" "zero1 zero2 zero3"
  is "$1: words beside flags" "$(offered 'distsetup schema ')" "run site"
  is "$1: nothing to offer" "$(offered 'distsetup emit --nodes ')" ""
}

# --- fish says itself what it would offer
fish --no-execute <("$distsetup" completions fish)
"$distsetup" completions fish --quiet --output "$work/home/.config/fish/completions/distsetup.fish"
# shellcheck disable=SC2016 # fish's own
offered() { fish -c 'complete -C "$argv[1]"' "$1" | cut -f 1 | flat; }
check fish
is "fish: files" "$(offered 'distsetup lint a')" 'a file a folder/'
is "fish: folders" "$(offered 'distsetup emit --templates a')" 'a folder/'
while IFS= read -r command; do
  helped=$("$distsetup" help "$command" | sed -nE 's/^  (-., )?(--[a-z0-9-]+).*/\2/p' | sort)
  # shellcheck disable=SC2016 # fish's own
  missing=$(comm -23 <(echo "$helped") <(fish -c 'complete -C "$argv[1]"' "distsetup $command --" | cut -f 1 | sort))
  is "fish: flags of $command that are not offered" "$missing" ""
done < <("$distsetup" --help | sed -n '/^Commands/,/^$/p' | sed -nE 's/^  ([a-z]+)  .*/\1/p')

# --- zsh, at a terminal of its own: compadd says what it is given
"$distsetup" completions zsh --quiet --output "$work/functions/_distsetup"
zsh --no-exec "$work/functions/_distsetup"
cat >"$work/rc" <<'ZSH'
PROMPT=
fpath=($1 $fpath)
autoload -Uz compinit && compinit -u -d $2
bindkey '^I' complete-word
zstyle ':completion:*' verbose no
compadd() {
  if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]]; then builtin compadd "$@"; return; fi
  typeset -a hits
  builtin compadd -A hits "$@"
  (( $#hits )) && print -rl -- ">"${^hits}
  builtin compadd "$@"
}
begin() { print -r -- BEGIN; }
finish() { print -r -- END; exit; }
compprefuncs=(begin) comppostfuncs=(finish)
ZSH
cat >"$work/ask" <<'ZSH'
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "source $1/rc $1/functions $1/dump; print -r -- READY"
while zpty -r shell line && [[ $line != READY* ]]; do :; done
zpty -w -n shell "$2"$'\t'
while zpty -r shell line && [[ $line != *END* ]]; do
  [[ $line == *'>'* ]] && print -r -- "${${line#*>}%$'\r\n'}"
done
ZSH
offered() { timeout 60 zsh -f "$work/ask" "$work" "$1" | flat; }
check zsh
is "zsh: files" "$(offered 'distsetup lint a')" 'a\ file a\ folder'
is "zsh: folders" "$(offered 'distsetup emit --templates a')" 'a\ folder'

# --- the manual: no complaint of groff, every command and every flag of the help
"$distsetup" man >"$work/distsetup.1"
said=$(groff -ww -man -Tutf8 "$work/distsetup.1" 2>&1 >/dev/null)
is "groff says" "$said" ""
shown=$(groff -man -Tascii -P-c -P-b -P-u "$work/distsetup.1" 2>/dev/null) # plain, without colour and overprinting
while IFS= read -r word; do
  grep -qE -e "(^|[ ,])$word([] ,=]|\$)" <<<"$shown" || fail "the manual has no '$word'"
done < <({
  "$distsetup" --help | sed -n '/^Commands/,/^$/p' | sed -nE 's/^  ([a-z]+)  .*/distsetup \1/p'
  for command in plan emit launch lint convert init; do "$distsetup" help $command; done | sed -nE 's/^  (-., )?(--[a-z0-9-]+).*/\2/p'
} | sort -u)
echo "zsh and fish complete, the manual is whole"
