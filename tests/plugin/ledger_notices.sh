#!/bin/sh
# SPDX-License-Identifier: MIT
# The ledger notices what it is for: a field put in the middle, one appended, a number changed. Each must
# make `abi-ledger --check` fail; the tree as it is must pass.
set -eu
source=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "ledger_notices: $1" >&2; exit 1; }
fresh() {
  rm -rf "$work/tree"
  mkdir -p "$work/tree/core/plugin"
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
