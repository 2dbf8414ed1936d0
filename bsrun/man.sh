#!/bin/sh
# SPDX-License-Identifier: MIT
# bsrun.1, and bsrun-VERB.1 of each verb from the program's own help, set as a manual page. A line that fits no rule is plain text,
# so that nothing of the help can be lost.   bsrun/man.sh BSRUN FOLDER
set -eu
bsrun=$1
folder=$2
mkdir -p "$folder"
rm -f "$folder"/bsrun.1 "$folder"/bsrun-*.1
trap 'rm -f "$folder/help" "$folder/new"' EXIT
export LC_ALL=C

typeset_help() { # verb | second: a page, or a section of one
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
function heading(title) {
  mode("")
  print (of == "verb" ? ".SH " toupper(title) : ".SS " title)
}
function item(line,   gap) { # "tag  text"
  sub(/^ +/, "", line)
  gap = match(line, /  +/)
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
/^usage: / {
  if (of == "verb") heading("Synopsis")
  mode("as it is")
  usage = 1
  sub(/^usage: /, "")
}
usage && NF > 0 { sub(/^ +/, ""); print "\\fB" text($0) "\\fR"; next }
/^$/ {
  mode("")
  if (usage && of == "verb") heading("Description")
  usage = 0
  next
}
/^options:$/ { heading("Options"); options = 1; next }
/^examples:$/ { heading("Examples"); options = 0; next }
/^exit codes: / { heading("Exit status"); sub(/^exit codes: /, "") }
options && /^ +-/ { item($0); next }
/^[A-Za-z_]+  +[^ ]/ { item($0); next }
/^ / && shape == "list" { sub(/^ +/, ""); print text($0); next }
/^ / { mode("as it is"); sub(/^  /, ""); print text($0); next }
{ mode("text"); print text($0) }
END { if (failed) exit 1; mode("") }'
}

version=$("$bsrun" --version | sed -n 's/^bsrun //p')
title() { # NAME "what it is"
  printf '.\\" Made by bsrun/man.sh from the help of bsrun: do not edit.\n'
  printf '.TH %s 1 "" "Block-Shock %s" "User Commands"\n.SH NAME\n%s \\- %s\n' "$(printf %s "$1" | tr a-z A-Z)" "$version" "$1" \
    "$(printf %s "$2" | sed 's/-/\\-/g')"
}
help_of() { # VERB [VERB]: into $folder/help
  "$bsrun" help "$@" >"$folder/help"
}

verbs=$("$bsrun" completion words verbs)
for verb in $verbs; do
  help_of "$verb"
  {
    title "bsrun-$verb" "$(awk 'blank {print; exit} /^$/ {blank = 1}' "$folder/help")"
    typeset_help verb <"$folder/help"
    for second in $("$bsrun" completion words verbs "$verb"); do
      printf '.SH BSRUN %s %s\n' "$(printf %s "$verb" | tr a-z A-Z)" "$(printf %s "$second" | tr a-z A-Z)"
      help_of "$verb" "$second"
      typeset_help second <"$folder/help"
    done
    printf '.SH SEE ALSO\n.BR bsrun (1)\n'
  } >"$folder/new"
  mv "$folder/new" "$folder/bsrun-$verb.1"
done

help_of
{
  title bsrun "$(sed -n '1s/^[^-]* - //p' "$folder/help")"
  cat <<'X'
.SH SYNOPSIS
.B bsrun
.RI [ verb ]
.RI [ options ]
.SH DESCRIPTION
.B bsrun
splits a linear layer, or the layers of a model, over several ranks.
A rank is a thread, a process, or a process of an MPI job.
For each method of splitting it compares every output with a reference in double precision, and it times the method against the
dense layer in interleaved pairs.
It also runs and checks models, times kernels and collectives, and simulates machines that are not there.
Methods, backends, communicators and kernels are plugins.
.PP
Results go to standard output, and everything else to standard error.
Each measurement is kept in a folder of its own below
.IR results/raw .
A
.I NAME
in an option is a registered id, a file of the folder of configurations, or the path of a YAML file.
.PP
Each verb has a manual page.
Without a verb
.B bsrun
does what
.BR bsrun-run (1)
says.
.SH VERBS
X
  awk '/^usage/ {on = 1; next} !on || NF == 0 || /^`/ {next}
       {at = /^[a-z]/ ? 2 : 1; name = $at; sub(/^ */, ""); if (at == 2) sub(/^[^ ]+ +/, ""); sub(/^[^ ]+ +/, "")
        gsub(/-/, "\\-"); printf ".TP\n.BR bsrun\\-%s (1)\n%s\n", name, $0}' "$folder/help"
  cat <<'X'
.SH EXIT STATUS
0 when all went well, 2 for a wrong command line, 3 for a wrong configuration, 5 for a plugin or run that is not there, 6 for wrong
numbers.
The page of each verb has its other codes.
.SH FILES
.TP
.I PREFIX/share/blockshock/configs
The configurations that options name.
.TP
.I PREFIX/share/doc/blockshock
The documentation.
.TP
.I $XDG_CACHE_HOME/blockshock
Constants of the machine, tuned choices and grades of plugins.
X
} >"$folder/new"
mv "$folder/new" "$folder/bsrun.1"
