/* SPDX-License-Identifier: MIT
 * test_sim_layers.c - every method in simulated worlds: with values (virtual:ref) the bits are those of
 * threads, and the time is that of the run without values (sim). Forward, backward, steps. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "blockshock/blockshock.h"
#include "core/base/error.h"
#include "lab/measure/arm_work.h"
#include "lab/phase/simulated.h"
#include "tests/marks.h"
#include "tests/run_tests.h"

enum { B = 6, N = 24, K = 36, RANKS = 4, MOST = N * K + B * N + B * K };

static bs_context *context;
static float x_values[B * K], w_values[N * K], bias_values[N];
static bs_source x, w, bias;

static void open_context(void) {
  static const char *const params[] = {"sim.alpha_s=0.5e-6", "sim.bw_Bps=50e9",   "sim.flops=1e12",
                                       "sim.mem_Bps=1e12",   "sim.launch_s=2e-6", "sim.reduce_Bps=1e12"};
  bs_context_options o = {.struct_size = sizeof o,
                          .log_level = BS_LOG_ERROR,
                          .params = (const char **)(uintptr_t)params,
                          .n_params = sizeof params / sizeof params[0]};
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(bs_context_open(&o, &context, &err) == BS_OK, "%s", err.message);
  for (int i = 0; i < B * K; i++) x_values[i] = (float)((i * 7 + 3) % 23 - 11) / 7.0f;
  for (int i = 0; i < N * K; i++) w_values[i] = (float)((i * 5 + 1) % 31 - 15) / 9.0f;
  for (int i = 0; i < N; i++) bias_values[i] = (float)(i % 5 - 2) / 3.0f;
  ck_assert_int_eq(bs_source_from_memory(x_values, BS_F32, B, K, K, &x, &err), BS_OK);
  ck_assert_int_eq(bs_source_from_memory(w_values, BS_F32, N, K, K, &w, &err), BS_OK);
  ck_assert_int_eq(bs_source_from_memory(bias_values, BS_F32, 1, N, N, &bias, &err), BS_OK);
}
static void close_context(void) {
  bs_source_release(&x);
  bs_source_release(&w);
  bs_source_release(&bias);
  bs_context_close(context);
}

static const struct {
  const char *method, *mask;
  uint32_t first, last; /* worlds */
} methods[] = {{"dense", NULL, 1, 1},
               {"column_parallel", NULL, 2, 4},
               {"row_parallel", NULL, 2, 4},
               {"masked_split", "interleave", 2, 4},
               {"blockshock", "interleave", 2, 4},
               {"blockshock", "complement_1100_0011", 2, 2}};

typedef struct layer_job {
  bs_case c;
  uint32_t work;
  float out[RANKS][MOST]; /* y, dx, dw, or y and the stepped weights */
  size_t n[RANKS];
} layer_job;

static int32_t keep(bs_rank *rank, layer_job *job, uint32_t me, const bs_tensor *t, bs_error *err) {
  if (t->data == NULL) return BS_OK;
  const size_t n = (size_t)(t->dims[0] * t->dims[1]);
  ck_assert_uint_le(job->n[me] + n, MOST);
  const int32_t rc = bs_rank_copy_out(rank, t, job->out[me] + job->n[me], err);
  job->n[me] += n;
  return rc;
}

static int32_t keep_weights(bs_rank *rank, layer_job *job, uint32_t me, bs_layer *layer, bs_error *err) {
  bs_ownership own = {.struct_size = sizeof own};
  bs_tensor t = {0};
  int32_t rc = bs_layer_owns(layer, &own, err);
  if (rc == BS_OK)
    rc = bs_case_tensor(rank, BS_F32, 2, own.row_count, own.columns ? own.columns->count : K, &t, err);
  if (rc == BS_OK) rc = bs_layer_read_weights(layer, 0, &t, err);
  if (rc == BS_OK) rc = keep(rank, job, me, &t, err);
  if (t.data) bs_rank_get_api()->tensor_free(rank, &t);
  return rc;
}

static int32_t run_layer(bs_rank *rank, void *arg, bs_error *err) {
  layer_job *job = arg;
  const bs_case *c = &job->c;
  const uint32_t me = bs_rank_get_api()->rank(rank);
  bs_arm_tensors work = {.work = job->work};
  bs_layer *layer = NULL;
  bs_tensor in = {0}, y = {0};
  int32_t rc = bs_layer_build(rank, c->method, &c->spec, c->w, c->bias, &layer, err);
  if (rc == BS_OK) rc = bs_case_input(c, rank, layer, c->x, &in, err);
  if (rc == BS_OK) rc = bs_case_tensor(rank, BS_F32, 2, B, N, &y, err);
  if (rc == BS_OK) rc = bs_arm_work_take(rank, layer, &c->spec, &in, &y, &work, err);
  if (rc == BS_OK) rc = bs_arm_work_once(&work, layer, &in, &y, err);
  if (rc == BS_OK) rc = keep(rank, job, me, &y, err);
  if (rc == BS_OK && job->work == BS_ARM_BACKWARD) rc = keep(rank, job, me, &work.dx, err);
  if (rc == BS_OK && job->work == BS_ARM_BACKWARD) rc = keep(rank, job, me, &work.dw, err);
  if (rc == BS_OK && job->work > BS_ARM_BACKWARD) rc = keep_weights(rank, job, me, layer, err);
  bs_arm_work_free(rank, &work);
  if (y.data) bs_rank_get_api()->tensor_free(rank, &y);
  if (in.data) bs_rank_get_api()->tensor_free(rank, &in);
  bs_layer_free(layer);
  return rc;
}

static void run_on(layer_job *job, const char *backend, const char *comm) {
  bs_world *world = NULL;
  bs_error err = BS_ERROR_INIT;
  job->c.backend = backend;
  job->c.comm = comm;
  int32_t rc = bs_case_world(&job->c, &world, &err);
  if (rc == BS_OK) rc = bs_world_run(world, run_layer, job, &err);
  ck_assert_msg(rc == BS_OK, "%s on %u ranks of %s, pass %u: %s: %s", job->c.method, job->c.world_size, comm,
                job->work, err.id, err.message);
  bs_world_destroy(world);
}

static double simulated(const bs_case *like, uint32_t work, const char *backend) {
  bs_case c = *like;
  bs_simulated s;
  bs_error err = BS_ERROR_INIT;
  c.backend = backend;
  c.comm = "sim";
  c.spec.flags = 0;
  ck_assert_msg(bs_simulate_case(&c, work, &s, &err) == BS_OK, "%s on %u ranks of %s, pass %u: %s: %s",
                c.method, c.world_size, backend, work, err.id, err.message);
  double sum = 0;
  for (int i = 0; i < BS_SIM_TERMS; i++) sum += s.own[i];
  ck_assert_msg(sum == s.ps, "%s on %u ranks of %s, pass %u: terms of %.0f ps in %.0f", c.method,
                c.world_size, backend, work, sum, s.ps);
  ck_assert(s.ps > 0 && s.ops > 0 && s.ops_not_costed == 0 && s.device_bytes > 0);
  return s.ps;
}

static void check(layer_job *threads, layer_job *values, uint32_t work) {
  threads->work = values->work = work;
  threads->c.spec.flags = bs_arm_work_flags(work);
  values->c = threads->c;
  memset(threads->n, 0, sizeof threads->n);
  memset(values->n, 0, sizeof values->n);
  run_on(threads, "ref", "threads");
  run_on(values, "virtual:ref", "sim");
  const bs_case *c = &threads->c;
  for (uint32_t r = 0; r < c->world_size; r++) {
    ck_assert_uint_gt(threads->n[r], 0);
    ck_assert_uint_eq(threads->n[r], values->n[r]);
    ck_assert_msg(memcmp(threads->out[r], values->out[r], threads->n[r] * sizeof(float)) == 0,
                  "%s: rank %u of %u, pass %u has other bits in a simulated world", c->method, r,
                  c->world_size, work);
  }
  const double without = simulated(c, work, "sim"), with = simulated(c, work, "virtual:ref");
  ck_assert_msg(without == with, "%s on %u ranks, pass %u: %.0f ps without values, %.0f with", c->method,
                c->world_size, work, without, with);
}

START_TEST(bits_of_threads_and_one_time) {
  static layer_job threads, values;
  bs_mask mask = {.struct_size = sizeof mask};
  bs_error err = BS_ERROR_INIT;
  if (methods[_i].mask != NULL)
    ck_assert_int_eq(bs_mask_parse(methods[_i].mask, NULL, NULL, &mask, &err), BS_OK);
  for (uint32_t P = methods[_i].first; P <= methods[_i].last; P++)
    for (uint32_t work = 0; work < BS_ARM_WORKS_; work++) {
      threads.c = (bs_case){.context = context,
                            .method = methods[_i].method,
                            .world_size = P,
                            .threads_per_rank = 1,
                            .sync_mode = BS_SYNC_NONE,
                            .x = &x,
                            .w = &w,
                            .bias = &bias};
      threads.c.spec = (bs_layer_spec){.struct_size = sizeof(bs_layer_spec),
                                       .B = B,
                                       .N = N,
                                       .K = K,
                                       .has_bias = 1,
                                       .x_dtype = BS_F32,
                                       .w_dtype = BS_F32,
                                       .y_dtype = BS_F32,
                                       .mask = methods[_i].mask != NULL ? &mask : NULL};
      check(&threads, &values, work);
    }
}
END_TEST

int main(void) {
  const test_case tests[] = {{bits_of_threads_and_one_time, TEST_COUNT(methods)}, {0}};
  return run_tests("sim_layers", tests,
                   (test_setup){.before = open_context, .after = close_context, .timeout = 60});
}
