#!/bin/sh
# SPDX-License-Identifier: MIT
# The ledger notices what it is for: a field put in the middle, one appended, another type or argument of the
# same size, a number changed, a new header. Each must make `abi-ledger --check` fail; the tree as it is, and one
# with other comments and names of arguments, must pass. And it cannot be written over: a change needs a new m
# with a line in docs/dev/abi.md.
set -eu
source=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "ledger_notices: $1" >&2; exit 1; }
fresh() {
  rm -rf "$work/tree"
  mkdir -p "$work/tree/docs/dev"
  cp "$source/docs/dev/abi.md" "$work/tree/docs/dev/"
  cp -r "$source/include" "$source/scripts" "$source/abi" "$work/tree/"
}
notices() { # what, header, sed expression
  fresh
  sed -i "$3" "$work/tree/include/blockshock/$2"
  cmp -s "$work/tree/include/blockshock/$2" "$source/include/blockshock/$2" && fail "$1: the edit changed nothing"
  if "$work/tree/scripts/abi-ledger" --check 2> "$work/err"; then fail "$1 is not noticed"; fi
  grep -q 'abi/ledger.txt' "$work/err" || fail "$1: the message does not name the ledger"
}
unnoticed() { # as above
  fresh
  sed -i "$3" "$work/tree/include/blockshock/$2"
  cmp -s "$work/tree/include/blockshock/$2" "$source/include/blockshock/$2" && fail "$1: the edit changed nothing"
  "$work/tree/scripts/abi-ledger" --check 2> "$work/err" || fail "$1 is taken for a change: $(cat "$work/err")"
}
fresh
"$work/tree/scripts/abi-ledger" --check || fail "the tree's own ledger is out of date"
notices "a field in the middle" method.h 's/^  uint32_t min_world;/  uint32_t inserted;\n&/'
notices "a renamed field" op.h 's/uint32_t priority;/uint32_t rank_order;/'
notices "a changed number" backend.h 's/BS_COPY_DEVICE_TO_HOST = 2/BS_COPY_DEVICE_TO_HOST = 9/'
notices "a changed exit code" abi.h 's/X(BUSY, 14, 11/X(BUSY, 14, 12/'
# Of the same size and at the same place.
notices "an argument more" op.h 's/int32_t (\*run)(void \*plan, /&uint32_t flags, /'
notices "an argument less" method.h 's/(\*owns)(void \*layer, /(*owns)(/'
notices "another argument" comm.h 's/(\*rank_open)(void \*world, uint32_t rank/(*rank_open)(void *world, uint64_t rank/'
notices "a const argument" workload.h 's/bs_source \*out_source/const &/'
notices "an argument of a function argument" algorithm.h 's/(\*emit)(void \*user, /(*emit)(/'
notices "another result" backend.h 's/void (\*mem_free)/int32_t (*mem_free)/'
notices "int64 made uint64" comm.h 's/int64_t timeout_ns;/uint64_t timeout_ns;/'
notices "double made int64" abi.h 's/  double f; /  int64_t f; /'
notices "double * made float *" tensor.h 's/const double \*shares/const float *shares/'
notices "another query function" abi.h 's/(\*bs_plugin_query_fn)(uint32_t/(*bs_plugin_query_fn)(uint64_t/'
notices "another type of note" abi.h 's/#define BS_NOTE_TYPE 1u/#define BS_NOTE_TYPE 2u/'
notices "another owner of the note" abi.h 's/"Blockshock"/"Blockshook"/'
notices "another set of masks" method.h 's/BS_MASK_KINDS_ALL 0xffu/BS_MASK_KINDS_ALL 0x1ffu/'
notices "a new constant" op.h 's/^#define BS_MAX_OP_ARGS 16/&\n#define BS_MAX_OP_NAMES 3/'
unnoticed "another name of an argument" op.h 's/int32_t (\*run)(void \*plan, /int32_t (*run)(void *prepared, /'
unnoticed "another comment" op.h 's|The reason of an answer NO\.|Why it does not serve.|'
fresh
printf '#include "abi.h"\ntypedef struct bs_thing {\n  uint32_t struct_size;\n} bs_thing;\n' > "$work/tree/include/blockshock/thing.h"
if "$work/tree/scripts/abi-ledger" --check 2> "$work/err"; then fail "a new header is not noticed"; fi
grep -q '^+struct bs_thing size 4' "$work/err" || fail "a new header: the message does not show its struct"
# What the script cannot read is no change that it overlooks.
fresh
echo 'union bs_either { int32_t i; float f; };' >> "$work/tree/include/blockshock/op.h"
if "$work/tree/scripts/abi-ledger" --check 2> "$work/err"; then fail "a union is overlooked"; fi
grep -q 'cannot read "union bs_either' "$work/err" || fail "a union: the message does not show it"
notices "an appended field" workload.h 's/^} bs_workload_info;/  uint64_t appended;\n&/'

# The change of the last one is still in the tree.
tree=$work/tree
ledger() { "$tree/scripts/abi-ledger" "$@" > "$work/out" 2> "$work/err"; }
minor=$(sed -n 's/^#define BS_ABI_MINOR \([0-9]*\)u$/\1/p' "$tree/include/blockshock/abi.h")
if ledger; then fail "a changed ABI is written over its own version"; fi
grep -q 'raise BS_ABI_MINOR' "$work/err" || fail "the message does not say that m is to be raised"
cmp -s "$tree/abi/ledger.txt" "$source/abi/ledger.txt" || fail "a refused ledger is written all the same"
sed -i "s/^#define BS_ABI_MINOR ${minor}u/#define BS_ABI_MINOR $((minor + 1))u/" "$tree/include/blockshock/abi.h"
if ledger; then fail "a new m is written without its line in docs/dev/abi.md"; fi
grep -q 'docs/dev/abi.md has no line for ABI' "$work/err" || fail "the message does not name docs/dev/abi.md"
echo "| 0.$((minor + 1)) | a test |" >> "$tree/docs/dev/abi.md"
if ledger --check; then fail "a new m passes before its ledger is written"; fi
ledger || fail "a new m with its line is not written: $(cat "$work/err")"
ledger --check || fail "what was written does not pass"
grep -q "^0.$((minor + 1)) 0x" "$tree/abi/history.txt" || fail "abi/history.txt has no line of the new m"
grep -q "^0.$minor 0x" "$tree/abi/history.txt" || fail "abi/history.txt lost its last line"
