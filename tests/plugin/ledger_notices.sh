#!/bin/sh
# SPDX-License-Identifier: MIT
# The ledger notices what it is for: a field put in the middle, one appended, a number changed. Each must
# make `abi-ledger --check` fail; the tree as it is must pass. And it cannot be written over: a change needs a
# new m with a line in docs/abi.md.
set -eu
source=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "ledger_notices: $1" >&2; exit 1; }
fresh() {
  rm -rf "$work/tree"
  mkdir -p "$work/tree/core/plugin" "$work/tree/docs"
  cp "$source/docs/abi.md" "$work/tree/docs/"
  cp -r "$source/include" "$source/scripts" "$source/abi" "$work/tree/"
  cp "$source/core/plugin/ledger_check.c" "$work/tree/core/plugin/"
}
notices() { # what, header, sed expression
  fresh
  sed -i "$3" "$work/tree/include/blockshock/$2"
  cmp -s "$work/tree/include/blockshock/$2" "$source/include/blockshock/$2" && fail "$1: the edit changed nothing"
  if "$work/tree/scripts/abi-ledger" --check 2> "$work/err"; then fail "$1 is not noticed"; fi
  grep -q 'abi/ledger.txt' "$work/err" || fail "$1: the message does not name the ledger"
}
fresh
"$work/tree/scripts/abi-ledger" --check || fail "the tree's own ledger is out of date"
notices "a field in the middle" method.h 's/^  uint32_t min_world;/  uint32_t inserted;\n&/'
notices "a renamed field" op.h 's/uint32_t priority;/uint32_t rank_order;/'
notices "a changed number" backend.h 's/BS_COPY_DEVICE_TO_HOST = 2/BS_COPY_DEVICE_TO_HOST = 9/'
notices "a changed exit code" abi.h 's/X(BUSY, 14, 11/X(BUSY, 14, 12/'
notices "an appended field" workload.h 's/^} bs_workload_info;/  uint64_t appended;\n&/'

# The change of the last one is still in the tree.
tree=$work/tree
ledger() { "$tree/scripts/abi-ledger" "$@" > "$work/out" 2> "$work/err"; }
minor=$(sed -n 's/^#define BS_ABI_MINOR \([0-9]*\)u$/\1/p' "$tree/include/blockshock/abi.h")
if ledger; then fail "a changed ABI is written over its own version"; fi
grep -q 'raise BS_ABI_MINOR' "$work/err" || fail "the message does not say that m is to be raised"
cmp -s "$tree/abi/ledger.txt" "$source/abi/ledger.txt" || fail "a refused ledger is written all the same"
sed -i "s/^#define BS_ABI_MINOR ${minor}u/#define BS_ABI_MINOR $((minor + 1))u/" "$tree/include/blockshock/abi.h"
if ledger; then fail "a new m is written without its line in docs/abi.md"; fi
grep -q 'docs/abi.md has no line for ABI' "$work/err" || fail "the message does not name docs/abi.md"
echo "| 0.$((minor + 1)) | a test |" >> "$tree/docs/abi.md"
if ledger --check; then fail "a new m passes before its ledger is written"; fi
ledger || fail "a new m with its line is not written: $(cat "$work/err")"
ledger --check || fail "what was written does not pass"
grep -q "^0.$((minor + 1)) 0x" "$tree/abi/history.txt" || fail "abi/history.txt has no line of the new m"
grep -q "^0.$minor 0x" "$tree/abi/history.txt" || fail "abi/history.txt lost its last line"
