/* SPDX-License-Identifier: MIT
 * timing.c - the rows of the backend, a GEMM timed and judged, and the comparison's self-test: a layer
 * against itself. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/cores.h"
#include "lab/doctor/doctor.h"
#include "lab/error.h"
#include "lab/measure/arm.h"
#include "lab/measure/machine.h"
#include "lab/measure/sampler.h"

enum { PAIRS = 20, TRIALS = 3, GEMM_B = 64, GEMM_N = 1024, SELF_B = 16, SELF_N = 256, ITERATIONS = 10 };

/* Receives a candidate of a plain matmul: the query makes it open its library, if that is possible. */
static void on_kernel(void *user, const bs_op_candidate *c) {
  const bs_op_answer *answer = c->answer;
  const int missing = answer->level == BS_LEVEL_NO &&
                      (answer->reason == BS_REASON_LIB_VERSION || answer->reason == BS_REASON_NOT_BUILT ||
                       answer->reason == BS_REASON_DEVICE_NOT_OPEN);
  bs_doctor_add(user, c->name, missing ? BS_CHECK_WARN : BS_CHECK_OK,
                "the others serve in its place; install what it needs to compare with it", "%s%s: %s",
                bs_level_name(answer->level), c->chosen ? ", chosen" : "", answer->text);
}

static int32_t kernels(bs_doctor *d, bs_context *context, bs_error *err) {
  const bs_tensor_desc square = {.struct_size = sizeof square,
                                 .dtype = BS_F32,
                                 .rank = 2,
                                 .dims = {GEMM_B, GEMM_B},
                                 .strides = {GEMM_B, 1}};
  const bs_tensor_desc *const args[] = {&square, NULL, NULL, &square};
  const bs_op_query query = {
      .struct_size = sizeof query, .nargs = 4, .op = "matmul", .args = args, .weight_dtype = BS_F32};
  return bs_op_explain(context, d->backend, &query, on_kernel, d, err);
}

int bs_doctor_backend(bs_doctor *d, bs_context *context) {
  const bs_backend *backend = NULL;
  void *state = NULL;
  bs_error err = BS_ERROR_INIT;
  uint32_t count = 0;
  char what[64];
  snprintf(what, sizeof what, "backend %.40s", d->backend);
  int32_t rc = bs_find_backend(context, d->backend, &backend, &state, &err);
  d->unknown |= rc == BS_NOT_FOUND;
  if (rc == BS_OK) rc = backend->device_count(state, &count, &err);
  if (rc == BS_OK && count == 0)
    rc = bs_error_set(&err, BS_UNAVAILABLE, "BS-DOCTOR-DEVICE", "no device of backend %s", d->backend);
  if (rc == BS_OK) rc = kernels(d, context, &err);
  for (uint32_t i = 0; rc == BS_OK && i < count; i++) {
    bs_device_info info = {.struct_size = sizeof info};
    rc = backend->device_info(state, i, &info, &err);
    if (rc == BS_OK)
      bs_doctor_add(d, what, BS_CHECK_OK, NULL, "device %u: %s%s%s", i, info.name,
                    info.detail[0] != '\0' ? "; " : "", info.detail);
  }
  if (rc == BS_OK) return 1;
  bs_doctor_error(d, what, &err);
  return 0;
}

/* X of ones, W[n,k] = n mod 7 - 3: Y[b,n] = K (n mod 7 - 3), exact. */
typedef struct known {
  bs_case c;
  float *x, *w;
  bs_source xs, ws;
} known;

static int32_t known_make(const bs_doctor *d, bs_context *context, int64_t B, int64_t N, known *out,
                          bs_error *err) {
  memset(out, 0, sizeof *out);
  out->x = calloc((size_t)(B * N), sizeof *out->x);
  out->w = calloc((size_t)(N * N), sizeof *out->w);
  if (out->x == NULL || out->w == NULL)
    return bs_no_memory(err, "a layer of %lld x %lld", (long long)N, (long long)N);
  for (int64_t i = 0; i < B * N; i++) out->x[i] = 1.0f;
  for (int64_t i = 0; i < N * N; i++) out->w[i] = (float)(i / N % 7 - 3);
  int32_t rc = bs_source_from_memory(out->x, BS_F32, B, N, N, &out->xs, err);
  if (rc == BS_OK) rc = bs_source_from_memory(out->w, BS_F32, N, N, N, &out->ws, err);
  out->c = (bs_case){.context = context,
                     .method = "dense",
                     .backend = d->backend,
                     .comm = d->comm,
                     .world_size = 1,
                     .threads_per_rank = bs_machine_cores(),
                     .bind = 1,
                     .sync_mode = BS_SYNC_SYNC,
                     .timeout_s = d->timeout_s,
                     .spec = {.struct_size = sizeof out->c.spec,
                              .B = B,
                              .N = N,
                              .K = N,
                              .x_dtype = BS_F32,
                              .w_dtype = BS_F32,
                              .y_dtype = BS_F32},
                     .x = &out->xs,
                     .w = &out->ws,
                     .warmup = 3,
                     .iterations = ITERATIONS};
  return rc;
}

static void known_free(known *k) {
  bs_source_release(&k->xs);
  bs_source_release(&k->ws);
  free(k->x);
  free(k->w);
}

static int32_t judge_gemm(const float *y, bs_error *err) {
  for (int64_t i = 0; i < (int64_t)GEMM_B * GEMM_N; i++) {
    const float want = (float)GEMM_N * (float)(i % GEMM_N % 7 - 3);
    if (y[i] == want) continue;
    bs_error_set(err, BS_NUMERIC, "BS-DOCTOR-GEMM", "Y[%lld,%lld] is %g, %g is right",
                 (long long)(i / GEMM_N), (long long)(i % GEMM_N), (double)y[i], (double)want);
    bs_error_hint(err, "the kernel is wrong on this machine: --plugin ref is the portable one; report this");
    return BS_NUMERIC;
  }
  return BS_OK;
}

void bs_doctor_gemm(bs_doctor *d, bs_context *context) {
  bs_error err = BS_ERROR_INIT;
  bs_case_result result = {0};
  known k;
  int32_t rc = known_make(d, context, GEMM_B, GEMM_N, &k, &err);
  if (rc == BS_OK) rc = bs_case_run(&k.c, &result, &err);
  if (rc == BS_OK) rc = judge_gemm(result.ranks[0].y, &err);
  if (rc == BS_OK) {
    const double seconds = 1e-3 * result.ranks[0].forward_sum_ms / ITERATIONS;
    bs_doctor_add(d, "GEMM", BS_CHECK_OK, NULL,
                  "f32 B=%d N=K=%d on %u thread%s: %.3f ms, %.1f GFLOP/s, right; %s", GEMM_B, GEMM_N,
                  k.c.threads_per_rank, k.c.threads_per_rank == 1 ? "" : "s", 1e3 * seconds,
                  seconds > 0 ? 2e-9 * GEMM_B * GEMM_N * GEMM_N / seconds : 0.0, result.algorithms);
  } else {
    bs_doctor_error(d, "GEMM", &err);
  }
  bs_case_result_free(&result);
  known_free(&k);
}

/* ---- a layer against itself ----------------------------------------------------------------- */

static int32_t rebuild_both(void *user, uint32_t build, bs_error *err) {
  return bs_arms_rebuild(user, 2, build % 2 == 0, err);
}

/* Compares two arms of the same layer, built separately. */
static int32_t self_pairs(bs_arm *const *arm, uint64_t seed, bs_comparison *out, bs_error *err) {
  const bs_sampler_arm both[] = {bs_arm_sampled(arm[0], "first", BS_TIME_HOT),
                                 bs_arm_sampled(arm[1], "second", BS_TIME_HOT)};
  const bs_sampler_host host = {.user = (void *)arm, .disturb = bs_disturb_host, .rebuild = rebuild_both};
  bs_sampler_options o;
  bs_sampled *s = NULL;
  bs_sampler_defaults(&o);
  o.pairs_min = o.pairs_max = PAIRS;
  o.warm_seconds = 0.5;
  o.seed = seed;
  const int32_t rc = bs_sampler_run(&o, &host, both, 2, &s, err);
  if (rc == BS_OK) *out = s->arm[1].comparison;
  bs_sampling_free(s);
  return rc;
}

uint32_t bs_doctor_judge_self_test(const uint32_t *words, uint32_t n_words) {
  for (uint32_t i = 0; i < n_words; i++) {
    if (words[i] != BS_WORD_FASTER && words[i] != BS_WORD_SLOWER) return i == 0 ? BS_CHECK_OK : BS_CHECK_WARN;
  }
  return BS_CHECK_FAIL;
}

static int32_t self_trials(bs_arm *const *arm, uint32_t *words, uint32_t *out_n, bs_comparison *c,
                           bs_error *err) {
  int32_t rc = BS_OK;
  for (*out_n = 0; rc == BS_OK && *out_n < TRIALS;) {
    rc = self_pairs(arm, *out_n + 1, c, err);
    if (rc == BS_OK) words[(*out_n)++] = c->word;
    if (rc == BS_OK && bs_doctor_judge_self_test(words, *out_n) != BS_CHECK_FAIL) break;
  }
  return rc;
}

void bs_doctor_self_test(bs_doctor *d, bs_context *context) {
  bs_error err = BS_ERROR_INIT;
  bs_comparison c = {0};
  bs_arm *arm[2] = {NULL, NULL};
  uint32_t words[TRIALS], n = 0;
  known k;
  int32_t rc = known_make(d, context, SELF_B, SELF_N, &k, &err);
  for (int i = 0; rc == BS_OK && i < 2; i++) rc = bs_arm_open(&k.c, "self", &arm[i], &err);
  if (rc == BS_OK) rc = self_trials(arm, words, &n, &c, &err);
  for (int i = 0; i < 2; i++) {
    const int32_t closed = arm[i] != NULL ? bs_arm_close(arm[i], NULL, rc == BS_OK ? &err : NULL) : BS_OK;
    if (rc == BS_OK) rc = closed;
  }
  if (rc == BS_OK) {
    const uint32_t state = bs_doctor_judge_self_test(words, n);
    if (state == BS_CHECK_FAIL) d->wrong = 1;
    bs_doctor_add(
        d, "timer self-test", state,
        "a layer differs from itself: other programs take the cores; comparisons made now are not to "
        "be trusted",
        "%d pairs of a layer with itself: %s, ratio %.4f [%.4f, %.4f], trial %u of at most %d", PAIRS,
        bs_comparison_name(c.word), c.ratio, c.low, c.high, n, TRIALS);
  } else {
    bs_doctor_error(d, "timer self-test", &err);
  }
  known_free(&k);
}
