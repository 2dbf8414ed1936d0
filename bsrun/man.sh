#!/bin/sh
# SPDX-License-Identifier: MIT
# bsrun.1 from the program's own help: `bsrun help` and `bsrun help VERB` of every verb, set as a manual page. A line that fits no
# rule is plain text, so that nothing of the help can be lost.   bsrun/man.sh BSRUN OUTPUT
set -eu
bsrun=$1
out=$2
mkdir -p "$(dirname "$out")"
trap 'rm -f "$out.new" "$out.help"' EXIT
export LC_ALL=C

typeset_help() { # main | verb
  awk -v of="$1" '
function text(s) { # nothing of it is a request or an escape; dashes and quotes stay what they are
  gsub(/\\/, "\\e", s)
  gsub(/-/, "\\-", s)
  gsub(/`/, "\\(ga", s)
  gsub(/\047/, "\\(aq", s)
  gsub(/\^/, "\\(ha", s)
  gsub(/~/, "\\(ti", s)
  return substr(s, 1, 1) == "." ? "\\&" s : s
}
function mode(next_mode) { # "", text, list or as it is
  if (shape == next_mode) return
  if (shape == "as it is") print ".fi\n.RE"
  if (next_mode == "text") print ".PP"
  if (next_mode == "as it is") print ".PP\n.RS 4\n.nf"
  shape = next_mode
}
function item(line, one_word,   gap) { # "tag  text"; a verb is one word, and may fill its column
  sub(/^ +/, "", line)
  gap = one_word ? match(line, / +/) : match(line, /  +/)
  if (gap == 0) {
    print "man.sh: no two spaces behind the name in: " line > "/dev/stderr"
    failed = 1
    exit
  }
  mode("list")
  print ".TP\n\\fB" text(substr(line, 1, gap - 1)) "\\fR"
  print text(substr(line, gap + RLENGTH))
}
/[^\t -~]/ { print "man.sh: not ASCII: " $0 > "/dev/stderr"; failed = 1; exit }
NR == 1 && of == "main" { next } # the line of NAME
/^usage: / { mode("as it is"); usage = 1; sub(/^usage: /, "") }
usage && NF > 0 { sub(/^ +/, ""); print "\\fB" text($0) "\\fR"; next }
/^$/ {
  mode("")
  if (usage && of == "main") print ".SH DESCRIPTION"
  usage = verbs = skip = 0
  next
}
/^options of run/ { skip = 1 } # of = main: those of `bsrun help run`
skip { next }
/^verbs:$/ { verbs = 1; mode("text"); print "Verbs:"; next }
/^examples?:$/ { mode("text"); print "Examples:"; next }
verbs && /^  [a-z]/ { item($0, 1); next }
/^ +-/ { item($0, 0); next }
/^[A-Za-z_]+  +[^ ]/ { item($0, 0); next }
/^ / && shape == "list" { sub(/^ +/, ""); print text($0); next }
/^ / { mode("as it is"); sub(/^  /, ""); print text($0); next }
{ mode("text"); print text($0) }
END { if (failed) exit 1; mode("") }'
}

verbs=$("$bsrun" completion words verbs)
{
  version=$("$bsrun" --version | sed -n 's/^bsrun //p')
  printf '.\\" Made by bsrun/man.sh from the help of bsrun: do not edit.\n'
  printf '.TH BSRUN 1 "" "Block-Shock %s" "User Commands"\n.SH NAME\n' "$version"
  "$bsrun" help | sed -n '1s/ - / \\- /p'
  printf '.SH SYNOPSIS\n'
  "$bsrun" help >"$out.help"
  typeset_help main <"$out.help"
  printf '.SH COMMANDS\n'
  for verb in $verbs; do
    printf '.SS bsrun %s\n' "$verb"
    "$bsrun" help "$verb" >"$out.help"
    typeset_help verb <"$out.help"
    test "$verb" = explain || for second in $("$bsrun" completion words verbs "$verb"); do
      printf '.SS bsrun %s %s\n' "$verb" "$second"
      "$bsrun" help "$verb" "$second" >"$out.help"
      typeset_help verb <"$out.help"
    done
  done
} >"$out.new"
mv "$out.new" "$out"
