#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The floors of the tree: scripts/check-includes passes it as it is, and fails a copy for each include line that
# points upward. includes_test.sh SOURCE_DIR
set -euo pipefail
source=$1
check=$source/scripts/check-includes
"$check" "$source" || { echo "the tree itself fails" >&2; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# file: the header that it may not include
planted='lab/case/planted.c lab/gate/judge.h
lab/gate/planted.h lab/measure/arm.h
lab/measure/planted.c lab/phase/frame.h
lab/measure/planted.c lab/tune/tune.h
lab/config/planted.c lab/tune/tune.h
lab/phase/planted.c lab/run/run.h
lab/ladder/planted.c lab/run/run.h
lab/config/planted.c lab/store/store.h
lab/planted.h lab/store/store.h
lab/sim/planted.c lab/torture/program.h
lab/run/planted.c bsrun/bsrun.h
bsrun/run_planted.c lab/measure/arm.h
bsrun/run_planted.c lab/store/store.h
bsrun/run_planted.h lab/tune/tune.h
core/base/planted.c lab/lab.h'
while read -r file header; do
  rm -rf "${work:?}"/*
  mkdir -p "$work/$(dirname "$file")"
  printf '#include "%s"\n' "$header" >"$work/$file"
  if told=$("$check" "$work" 2>&1); then
    echo "$file may include $header" >&2
    exit 1
  fi
  case $told in
    *"$file includes $header"*) ;;
    *) echo "$file and $header are not named: $told" >&2; exit 1 ;;
  esac
done <<<"$planted"

# calls of bsrun, which that of the library's own verbs must not look like
rm -rf "${work:?}"/*
mkdir -p "$work/bsrun"
for call in 'bs_sampler_run(&o' 'bs_tuner_choose(t' 'bs_store_commit(run' 'bs_phase1_run(c' 'bs_ladder_measure(&l' 'bs_constants_measure(&c' 'bs_constants_store(p'; do
  printf 'int32_t rc = %s, err);\n' "$call" >"$work/bsrun/planted.c"
  ! "$check" "$work" 2>/dev/null || { echo "bsrun may call $call" >&2; exit 1; }
done
printf 'rc = lab_run_point(&run, &point, err); /* bs_store_commit is not for us */\n' >"$work/bsrun/planted.c"
"$check" "$work"
