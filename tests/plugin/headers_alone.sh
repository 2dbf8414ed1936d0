#!/bin/sh
# SPDX-License-Identifier: MIT
# Each installed header by itself, twice, as C11, C17 and C++17 without a warning (and as C23 and C++20 where the compiler
# knows them); and together, in reverse. CC and CXX choose the compilers; without a C++ compiler that part is said to be left out.
set -eu
source=$1
cc=${CC:-cc}
cxx=${CXX:-$(command -v g++ || command -v clang++ || true)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "headers_alone: $1" >&2; exit 1; }

alone() { # compiler, language, standard, file with the includes
  "$1" -x "$2" -std="$3" -Wall -Wextra -Wpedantic -Werror -I"$4" -fsyntax-only "$5" 2>"$work/err"
}
each() { # folder with blockshock/, compiler, language, standard
  for header in "$1"/blockshock/*.h; do
    name=$(basename "$header")
    printf '#include <blockshock/%s>\n#include <blockshock/%s>\nextern int bs_only_a_header;\n' "$name" "$name" >"$work/one"
    alone "$2" "$3" "$4" "$1" "$work/one" || { echo "$name as $4: $(head -n 3 "$work/err")"; return 1; }
  done
  for header in "$1"/blockshock/*.h; do printf '#include <blockshock/%s>\n' "$(basename "$header")"; done | sort -r >"$work/all"
  echo 'extern int bs_only_a_header;' >>"$work/all"
  alone "$2" "$3" "$4" "$1" "$work/all" || { echo "all as $4: $(head -n 3 "$work/err")"; return 1; }
}
knows() { echo 'extern int x;' >"$work/x"; "$1" -x "$2" -std="$3" -fsyntax-only "$work/x" 2>/dev/null; }

for std in c11 c17 c23; do
  if [ $std = c23 ] && ! knows "$cc" c c23; then continue; fi
  what=$(each "$source/include" "$cc" c $std) || fail "$what"
done
if [ -z "$cxx" ]; then
  echo 'headers_alone: there is no C++ compiler: C++17 is left out' >&2
else
  for std in c++17 c++20; do
    if [ $std = c++20 ] && ! knows "$cxx" c++ c++20; then continue; fi
    what=$(each "$source/include" "$cxx" c++ $std) || fail "$what"
  done
fi

# It notices: a header that needs another first, one that is no C++, one without a guard.
try() { # what, text
  rm -rf "$work/include"
  mkdir -p "$work/include/blockshock"
  printf '%s\n' "$2" >"$work/include/blockshock/bad.h"
  if each "$work/include" "$3" "$4" "$5" >/dev/null; then fail "$1 is not noticed"; fi
}
try 'a header that needs another first' 'typedef uint32_t bs_needs_stdint;' "$cc" c c11
try 'a header without a guard' 'struct bs_twice { int a; };' "$cc" c c11
if [ -n "$cxx" ]; then try 'a header that is no C++' '#ifndef G
#define G
extern int class;
#endif' "$cxx" c++ c++17; fi
