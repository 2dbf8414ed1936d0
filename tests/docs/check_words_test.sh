#!/bin/sh
# SPDX-License-Identifier: MIT
# check-words finds a word of its list in an added comment, page and script, and none in code, in old lines or where a line says why.
set -eu
source=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
git init -q . && git config user.email a@b && git config user.name a
printf 'It is sorted anew.\n' >page.md
git add . && git commit -qm one
printf 'It is sorted anew.\nA value is not to be had; `claims anew` runs.\n' >page.md
printf '/* nobody waits */\nint anew; /* words: a quotation, anew */\n' >a.c
printf '#!/bin/sh\n# at home\n' >b.sh
git add -A && git commit -qm two
if "$source/scripts/check-words" HEAD~1 >found; then echo 'check_words: exit 0 with three places'; exit 1; fi
for place in page.md:2 a.c:1 b.sh:2; do grep -q "^$place: " found || { echo "check_words: $place is not named"; cat found; exit 1; }; done
[ "$(grep -c ': say ' found)" = 3 ] || { echo 'check_words: more than three places'; cat found; exit 1; }
"$source/scripts/check-words" HEAD
