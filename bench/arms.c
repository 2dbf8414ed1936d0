/* SPDX-License-Identifier: MIT
 *
 * arms.c - see arms.h: arms by name, the environment they share. */
#include "arms.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"

static cpu_set_t all_cores;
static uint32_t cores; /* 0: not known */

/* First called by the main thread before it starts any other. */
static void learn_cores(void) {
  if (cores == 0 && sched_getaffinity(0, sizeof all_cores, &all_cores) == 0)
    cores = (uint32_t)CPU_COUNT(&all_cores);
}

void bench_on_core(uint32_t index) {
  cpu_set_t one;
  uint32_t left = cores > 0 ? index % cores : 0;
  CPU_ZERO(&one);
  for (int i = 0; cores > 0 && i < CPU_SETSIZE; ++i) {
    if (!CPU_ISSET(i, &all_cores) || left-- > 0) continue;
    CPU_SET(i, &one);
    (void)sched_setaffinity(0, sizeof one, &one); /* only steadier */
    return;
  }
}

void bench_on_one_core(void) {
  learn_cores();
  bench_on_core(0);
}

void bench_on_all_cores(void) {
  learn_cores();
  if (cores > 0) (void)sched_setaffinity(0, sizeof all_cores, &all_cores);
}

/* "0 1": the first cores of the process, for OpenMP. */
static void bind_openmp(uint32_t threads) {
  char list[BENCH_TEXT * 4] = "";
  size_t used = 0;
  uint32_t left = threads;
  learn_cores();
  for (int i = 0; cores > 0 && left > 0 && i < CPU_SETSIZE && used + 8 < sizeof list; ++i) {
    if (!CPU_ISSET(i, &all_cores)) continue;
    used += (size_t)snprintf(list + used, sizeof list - used, "%s%d", used > 0 ? " " : "", i);
    --left;
  }
  if (left == 0) setenv("GOMP_CPU_AFFINITY", list, 0);
}

void bench_set_environment(const char *isa, uint32_t threads) {
  static const char *const quiet[][2] = {
      {"GOMP_SPINCOUNT", "10000"},       /* a fraction of a millisecond; OpenMP's own is several */
      {"OPENBLAS_THREAD_TIMEOUT", "20"}, /* 2^20 cycles; its own is 2^26 */
      {"THP_MEM_ALLOC_ENABLE", "1"}      /* PyTorch asks for huge pages, as all the others do */
  };
  static const char *const avx2[][2] = {{"ONEDNN_MAX_CPU_ISA", "AVX2"},
                                        {"OPENBLAS_CORETYPE", "Haswell"},
                                        {"ATEN_CPU_CAPABILITY", "avx2"},
                                        {"MKL_ENABLE_INSTRUCTIONS", "AVX2"}}; /* BLIS: arm_cblas.c */
  for (size_t i = 0; i < sizeof quiet / sizeof quiet[0]; ++i) setenv(quiet[i][0], quiet[i][1], 0);
  bind_openmp(threads);
  if (strcmp(isa, "avx2") != 0) return;
  for (size_t i = 0; i < sizeof avx2 / sizeof avx2[0]; ++i) setenv(avx2[i][0], avx2[i][1], 0);
}

static int one_of(const char *name, const char *const *names, size_t count) {
  for (size_t i = 0; i < count; ++i)
    if (strcmp(name, names[i]) == 0) return 1;
  return 0;
}

int32_t bench_arm_open(const char *name, const bench_arm_options *o, bench_arm *arm, bs_error *err) {
  static const char *const own[2][3] = {{"auto", "packed", "dnnl"}, {"auto", "tiles", "tiles"}};
  static const char *const parts[] = {"sparse24", "gathered", "run", "masked"};
  const int cuda = strcmp(o->backend, "cuda") == 0;
  bench_on_all_cores();
  if (one_of(name, own[cuda], 3)) return bench_open_plugin(name, o, arm, err);
  if (one_of(name, parts, sizeof parts / sizeof parts[0])) return bench_open_part(name, o, arm, err);
  if (strcmp(name, "torch") == 0) return bench_open_torch(o, arm, err);
  if (cuda) {
    if (strcmp(name, "cublaslt") == 0) return bench_open_cublaslt(o, arm, err);
  } else {
    if (strcmp(name, "tuned") == 0) return bench_open_tuned(o, arm, err);
    if (strcmp(name, "onednn") == 0) return bench_open_onednn(0, o, arm, err);
    if (strcmp(name, "onednn_any") == 0) return bench_open_onednn(1, o, arm, err);
    if (strcmp(name, "openblas") == 0) return bench_open_cblas(o->openblas, o, arm, err);
    if (strcmp(name, "blis") == 0) return bench_open_cblas(o->blis, o, arm, err);
  }
  return bs_error_set(err, BS_USAGE, "BS-BENCH-ARM", "no arm %s of %s; there are %s, torch", name, o->backend,
                      cuda ? "auto, tiles, sparse24, gathered, run, masked, cublaslt"
                           : "auto, packed, dnnl, tuned, sparse24, gathered, run, masked, onednn, "
                             "onednn_any, openblas, blis");
}

void bench_arm_close(bench_arm *arm) {
  if (arm->ops != NULL) arm->ops->close(arm);
  arm->ops = NULL;
}
