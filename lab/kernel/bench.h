/* SPDX-License-Identifier: MIT
 * bench.h - `bsrun bench sdpa`. Each provider of each problem passes through stages: build, resource, numeric
 * (several seeds), determinism, memory, performance (a series of single calls; then pairs with all others and
 * PyTorch), evidence. Gates that are data (lab/rules) judge them. A provider stops at its first failed stage;
 * its results so far are kept as a run with the cause. The first provider is the subject: its speed is
 * compared with the others, and its progress with the baseline. */
#ifndef BS_LAB_KERNEL_BENCH_H
#define BS_LAB_KERNEL_BENCH_H
#include "lab/kernel/bound.h"
#include "lab/kernel/record.h"
#include "lab/kernel/stored.h"
#include "lab/measure/sampler.h"
#include "lab/progress.h"
#include "lab/store/grade.h"

enum { BS_KERNEL_PROVIDERS = 12 };

typedef struct bs_kernel_bench {
  bs_context *context;
  const bs_kernel_problem *problems;
  size_t n_problems;
  const char *const
      /* "cpu:online", "cpu:online{keys=64;exp=fast}", "ref"; the first is the subject. "@WORD" at the end
       * selects the problem that bs_kernel_problem_vary makes from this one */
      *providers;
  size_t n_providers;         /* 0: all that serve in the backend, the default first, and all of `plugins` */
  const char *const *plugins; /* ids of named plugins: each takes part, or a note gives the reason */
  size_t n_plugins;
  /* Looks up the tuned choice of a key if no providers are given; may be NULL. candidates: lines
   * "NAME<tab>HOW". out: "cpu:online{keys=64}", or "" for none. out_build: the id of the code that was
   * measured; "": not known. */
  void (*tuned)(void *user, const char *key, const char *candidates, char *out, size_t size, char *out_build,
                size_t build_size);
  void *tuned_user;
  const char *tuned_from; /* the tuning file's path, for errors; NULL: none */
  const char *backend;    /* NULL: cpu */
  uint32_t threads, bind, seeds;
  uint32_t avx2_only; /* 1: the bound is that of AVX2, to which the providers are limited */
  uint64_t seed, warmup, iters;
  uint32_t promote;  /* 1: the subject should become the default: it must be at least as fast as the best
                      * other one */
  double seconds;    /* that pairs of one problem may take */
  double slowest;    /* seconds of a call; slower arms are in no pairs; 0: 0.5 */
  uint32_t pairs;    /* taken at least, however long they take; 0: 20 */
  const char *gates; /* a name of configs/gates or a file; NULL: sdpa */
  const char *torch; /* a Python that has torch; "auto": python3 of PATH if it has torch; NULL: none */
  const bs_kernel_stored *baseline; /* a stored build of the subject's plugin that takes part; NULL: none */
  const char *out_dir;              /* NULL: nothing is stored */
  const char *run_id, *command;
  const bs_grades *grades;
  void (*opened)(int run_fd); /* as in bs_keep_request */
  void (*closed)(void);
  bs_progress_fn progress; /* may be NULL */
  void (*note)(void *user, const char *text);
  void *user;
} bs_kernel_bench;

/* *out: {rows: [one of each problem and arm], runs: [folders], torch: version or null, baseline: name or
 * null}; the caller releases it, also of an error. BS_NUMERIC, or BS_PERF of the stages performance and
 * evidence (BS-KERNEL-GATE): a gate failed, with its provider, problem, value and limit; the rows and runs
 * are whole. *out_unknown: gates that could not be judged. */
int32_t bs_kernel_bench_run(const bs_kernel_bench *bench, json_t **out, uint32_t *out_unknown, bs_error *err);
#endif
