#!/usr/bin/env bash
# document.py finds what is wrong with a page: each page below has one mistake, and has to be refused with these words.
# shellcheck disable=SC2016  # backticks in single quotes are meant
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
checker=$(dirname "$0")/document.py
failed=0

expect() { # CODE WORDS, the page is on standard input: a block's backticks are written '''
  local code=0 said
  sed "s/^'''/\`\`\`/" >"$work/page.md"
  said=$("$checker" "$work/page.md" 2>&1) || code=$?
  if [ "$code" != "$1" ] || [[ $said != *"$2"* ]]; then
    printf "exit code %s with\n%s\nexpected %s with: %s\n" "$code" "$said" "$1" "$2"
    failed=1
  fi
}

expect 0 "page.md: 3 commands run, 0 failures" <<'PAGE'
Write `a.txt`:
'''text a.txt
one
two
'''
'''console
$ cat a.txt
one
two
$ seq 5
1
…
5
$ false || echo "exit code $?"
exit code 1
'''
PAGE
expect 1 "page.md:3:" <<'PAGE'
'''console
$ echo one
$ echo two
three
'''
PAGE
expect 1 "-three" <<'PAGE'
'''console
$ echo two
three
'''
PAGE
expect 1 '`exit 3` ends with 3' <<'PAGE'
'''console
$ exit 3
'''
PAGE
expect 1 "a console block begins with '\$ command', found 'echo one'" <<'PAGE'
'''console
echo one
'''
PAGE
expect 1 "no command uses the file 'a.txt'" <<'PAGE'
Write `a.txt`:
'''text a.txt
one
'''
PAGE
expect 1 'does not say that it is the file `a.txt`' <<'PAGE'
'''text a.txt
one
'''
'''console
$ cat a.txt
one
'''
PAGE
expect 1 "a drawing holds a command" <<'PAGE'
'''text
distsetup plan --model 8B
'''
PAGE
expect 1 "a block of a kind that nothing checks: 'yaml'" <<'PAGE'
'''yaml
version: 1
'''
PAGE
expect 1 "the block does not end" <<'PAGE'
'''console
$ true
PAGE

# Without the trainer its blocks are not run, and this is said; a failure elsewhere is still a failure.
export DISTSETUP_BIN=$work/bin
mkdir "$work/bin"
printf '#!/bin/sh\n' >"$work/bin/distsetup"
chmod +x "$work/bin/distsetup"
expect 77 "not run: 1 commands need distsetup-train, which is not built (1 others agree)" <<'PAGE'
'''console
$ echo one
one
'''
'''console trainer
$ echo two
three
'''
PAGE
expect 1 "-two" <<'PAGE'
'''console
$ echo one
two
'''
'''console trainer
$ echo two
two
'''
PAGE
cp "$work/bin/distsetup" "$work/bin/distsetup-train"
expect 1 "-three" <<'PAGE'
'''console trainer
$ echo two
three
'''
PAGE
[ $failed = 0 ] && echo "document.py finds all mistakes"
