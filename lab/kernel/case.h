/* SPDX-License-Identifier: MIT
 * case.h - an arm: one problem and the implementation ("provider") that serves it, ready to be timed and
 * judged. An arm lives in a world of one rank on the caller's thread. Several may be open at the same time;
 * one thread uses them. The path that the world would take (bs_op_explain_at) gives the provider; a choice
 * pins it together with its knobs. */
#ifndef BS_LAB_KERNEL_CASE_H
#define BS_LAB_KERNEL_CASE_H
#include "lab/kernel/data.h"
#include "lab/measure/span.h"

typedef struct bs_kernel_setup {
  bs_context *context;
  const bs_kernel_problem *problem;
  const char *backend;  /* NULL: cpu */
  const char *provider; /* "cpu:online", or only a plugin: its first that serves; NULL: the default */
  const char *knobs;    /* "keys=128;exp=fast"; NULL or "": no knobs */
  uint32_t threads;     /* of the team; 0: 1 */
  uint32_t bind;        /* 1: pinned to cores */
  bs_kernel_data *data; /* the caller's, outlives the arm; NULL: the arm makes its own, of `seed` */
  uint64_t seed;
  const char *stored_id; /* build id of the stored choice (record.h); NULL: none */
} bs_kernel_setup;

typedef struct bs_kernel_arm bs_kernel_arm;

/* Chooses, packs and prepares, but runs nothing. BS_UNSUPPORTED: no implementation serves; the error has all
 * reasons. BS_USAGE: no such provider; the error has the nearest name. The reference backend serves only if
 * `provider` names it. */
int32_t bs_kernel_arm_open(const bs_kernel_setup *setup, bs_kernel_arm **out, bs_error *err);
void bs_kernel_arm_close(bs_kernel_arm *arm);
/* lead calls that are not timed, then n: it fits bs_sampler_arm.batch. */
int32_t bs_kernel_arm_batch(void *arm, uint64_t lead, uint64_t n, bs_sample *out, bs_error *err);
/* Seconds of each of n calls, after `warmup` calls that are not timed. */
int32_t bs_kernel_arm_series(void *arm, uint64_t warmup, uint64_t n, double *out_seconds, bs_error *err);
/* Other numbers of the same problem, which the caller keeps alive. */
int32_t bs_kernel_arm_load(bs_kernel_arm *arm, bs_kernel_data *data, bs_error *err);
bs_kernel_data *bs_kernel_arm_data(const bs_kernel_arm *arm); /* the current ones */
/* Fills the outputs with NaN, runs once, and judges. */
int32_t bs_kernel_arm_judge(bs_kernel_arm *arm, bs_kernel_numbers *out, bs_error *err);
/* All outputs of one run over NaN, in host memory, dense. The caller frees. */
int32_t bs_kernel_arm_outputs(bs_kernel_arm *arm, void **out, bs_error *err);
/* Bytes of the outputs of two runs that differ. */
int32_t bs_kernel_arm_repeat(bs_kernel_arm *arm, uint64_t *out_differing, bs_error *err);

const char *bs_kernel_arm_provider(const bs_kernel_arm *arm); /* "cpu:online" */
const char *bs_kernel_arm_key(const bs_kernel_arm *arm);      /* of the choice, as in bs_choice_info */
const char *bs_kernel_arm_candidates(
    const bs_kernel_arm *arm); /* those that can serve, as in bs_choice_info */
const char *bs_kernel_arm_algorithm(const bs_kernel_arm *arm);  /* "attention@cpu/online (...)" */
const bs_op_echo *bs_kernel_arm_echo(const bs_kernel_arm *arm); /* of the plan; NULL: none */
/* "cpu:online{keys=128;exp=fast} BUILD": arms of one problem with equal texts run the same code, whatever
 * settings they got. "": the plan does not report what it runs. */
enum { BS_KERNEL_SAME = 512 };
void bs_kernel_arm_same(const bs_kernel_arm *arm, char out[BS_KERNEL_SAME]);
int bs_kernel_arm_on_device(const bs_kernel_arm *arm); /* memory is not the host's */
/* Seconds a call until the host had it queued, of the newest batch on a device; 0: not known. */
double bs_kernel_arm_queued(const bs_kernel_arm *arm);
uint32_t bs_kernel_arm_tolerance(const bs_kernel_arm *arm); /* enum bs_tolerance of its answer */
uint64_t bs_kernel_arm_workspace(const bs_kernel_arm *arm); /* bytes that its answer promises */
uint64_t bs_kernel_arm_bytes(const bs_kernel_arm *arm);     /* that packing, preparing and runs took */
#endif
