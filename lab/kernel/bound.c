/* SPDX-License-Identifier: MIT
 * bound.c - see bound.h. */
#include "lab/kernel/bound.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "lab/cores.h"
#include "lab/error.h"
#include "lab/measure/machine.h"

const char *const bs_kernel_limit_names[BS_LIMITS_] = {"FMA", "exp", "bytes", "launch"};

/* Values of fp8 are exact in bf16: a kernel may convert them before multiplying. */
static uint32_t factor_dtype(uint32_t dtype) {
  return BS_DTYPE_BYTES(dtype) == 1 ? (uint32_t)BS_BF16 : dtype;
}

int32_t bs_kernel_peaks_measure(const bs_kernel_problem *p, uint32_t threads, int avx2_only,
                                bs_kernel_peaks *out, bs_error *err) {
  const uint32_t cores = bs_machine_cores(), used = threads > cores ? cores : threads > 0 ? threads : 1;
  const double footprint = fmax(bs_kernel_bytes(p), 65536.0);
  const size_t words = (size_t)(footprint / sizeof(uint64_t));
  bs_machine m = {.avx2_only = avx2_only != 0};
  uint64_t *data = bs_machine_words(words);
  if (data == NULL) return bs_no_memory(err, "%zu words to read", words);
  const int32_t rc = bs_machine_rates(used, factor_dtype(p->dtype), data, words, &m, err);
  free(data);
  if (rc != BS_OK) return rc;
  *out = (bs_kernel_peaks){.threads = used, .footprint = footprint};
  out->flops = used == 1 ? m.flops_core : m.flops_all;
  out->bytes = used == 1 ? m.read_core : m.read_all;
  out->exps = bs_kernel_exp_rate(p->dtype) * used;
  snprintf(out->loop, sizeof out->loop, "%s", m.loop);
  return BS_OK;
}

/* The time of `work` at `rate`. An unknown rate gives 0: it limits nothing. */
static double limit(double work, double rate) {
  return rate > 0.0 ? work / rate : 0.0;
}

void bs_kernel_bound_of(const bs_kernel_problem *p, const bs_kernel_peaks *rates, double launch_s,
                        bs_kernel_bound *out) {
  *out = (bs_kernel_bound){.seconds = 0.0};
  out->limit_s[BS_LIMIT_FMA] = limit(bs_kernel_flops(p), rates->flops);
  out->limit_s[BS_LIMIT_EXP] = limit(bs_kernel_exps(p), rates->exps);
  out->limit_s[BS_LIMIT_BYTES] = limit(bs_kernel_bytes(p), rates->bytes);
  out->limit_s[BS_LIMIT_LAUNCH] = launch_s;
  out->shared_s = out->limit_s[BS_LIMIT_FMA] + out->limit_s[BS_LIMIT_EXP];
  for (uint32_t i = 0; i < BS_LIMITS_; i++) {
    if (out->limit_s[i] <= out->seconds) continue;
    out->seconds = out->limit_s[i];
    out->binding = i;
  }
}

int32_t bs_kernel_bound_percent(const bs_kernel_bound *bound, double seconds, double *out_percent,
                                bs_error *err) {
  *out_percent = NAN;
  if (!(seconds > 0.0) || !(bound->seconds > 0.0))
    return bs_error_set(err, BS_NUMERIC, "BS-KERNEL-BOUND", "no share of a bound: %g s measured, %g s bound",
                        seconds, bound->seconds);
  const double percent = 100.0 * bound->seconds / seconds;
  if (percent <= 100.0) {
    *out_percent = percent;
    return BS_OK;
  }
  bs_error_set(err, BS_NUMERIC, "BS-KERNEL-BOUND",
               "%.4g us a call is %.0f %% of the bound by %s, %.4g us: no kernel can be faster",
               1e6 * seconds, percent, bs_kernel_limit_names[bound->binding], 1e6 * bound->seconds);
  bs_error_hint(
      err,
      "the work was not done, the time is of something else, or the machine was busy when its peaks "
      "were measured: measure again");
  return BS_NUMERIC;
}
