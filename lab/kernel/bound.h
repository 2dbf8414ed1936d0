/* SPDX-License-Identifier: MIT
 * bound.h - the lower bound of a kernel's time: its products by the machine's multiply-adds, its
 * exponentials, its bytes, and the cost of an empty call. The longest one is the bound. The peaks are
 * measured on this machine, with dense products of the dtype, not with sparse or narrower ones. */
#ifndef BS_LAB_KERNEL_BOUND_H
#define BS_LAB_KERNEL_BOUND_H
#include "lab/kernel/problem.h"

enum bs_kernel_limit {
  BS_LIMIT_FMA = 0,
  BS_LIMIT_EXP = 1,
  BS_LIMIT_BYTES = 2,
  BS_LIMIT_LAUNCH = 3,
  BS_LIMITS_ = 4
};
extern const char *const bs_kernel_limit_names[BS_LIMITS_]; /* "FMA", "exp", "bytes", "launch" */

/* Peaks a second of so many threads together; 0: not known, and no limit. */
typedef struct bs_kernel_peaks {
  double flops, exps, bytes;
  double footprint; /* bytes from which `bytes` was measured: a small footprint is in a cache */
  double copied;    /* bytes of a copy within a device's memory, read and written: it is not a limit, because
                     * reading only can be faster */
  uint32_t threads;
  char loop[24]; /* of the multiply-adds (lab/measure/peak.h) */
} bs_kernel_peaks;

typedef struct bs_kernel_bound {
  double limit_s[BS_LIMITS_]; /* seconds by each */
  double seconds;             /* the longest */
  uint32_t binding;           /* enum bs_kernel_limit of the bound */
  double shared_s;            /* FMA and exp together: the limit if one unit does both, as on a processor */
} bs_kernel_bound;

/* Some tenths of a second. threads: at most the machine's cores count. avx2_only: products and bytes without
 * anything wider. */
int32_t bs_kernel_peaks_measure(const bs_kernel_problem *problem, uint32_t threads, int avx2_only,
                                bs_kernel_peaks *out, bs_error *err);
/* Exponentials a second of one core, of the shortest polynomial that the dtype's precision allows. */
double bs_kernel_exp_rate(uint32_t dtype);
void bs_kernel_bound_of(const bs_kernel_problem *problem, const bs_kernel_peaks *rates, double launch_s,
                        bs_kernel_bound *out);
/* The bound's share of the measured time. Above 100 it is an error: BS_NUMERIC, id BS-KERNEL-BOUND, with both
 * times and possible reasons. */
int32_t bs_kernel_bound_percent(const bs_kernel_bound *bound, double seconds, double *out_percent,
                                bs_error *err);
#endif
