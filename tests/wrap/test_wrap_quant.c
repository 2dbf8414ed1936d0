/* SPDX-License-Identifier: MIT
 * test_wrap_quant.c - quantised weights through the tables of a rank: wrapped backends hand the query on as
 * it is, so that ref's bits come back, a fault in them is seen, and their plans name the op; the simulator
 * charges the bytes of the form. */
#include <stdlib.h>
#include <string.h>

#include "blockshock/plugin.h"
#include "core/base/error.h"
#include "core/op/quant.h"
#include "tests/marks.h"
#include "tests/run_tests.h"

enum { B = 3, N = 70, K = 100, GROUPS = 4 };

static int32_t read_rows(void *ctx, int64_t row, int64_t nrows, const bs_quant_rows *out, bs_error *err) {
  (void)ctx, (void)err;
  for (int64_t r = 0; r < nrows; r++) {
    for (int64_t k = 0; k < K; k++)
      out->codes[r * out->codes_stride + k] = (uint8_t)((7 * (row + r) + 5 * k) % 16);
    for (int64_t g = 0; g < GROUPS; g++) {
      out->scales[r * GROUPS + g] = 0.25f + 0.01f * (float)((row + r + g) % 9);
      out->zeros[r * GROUPS + g] = (uint8_t)((row + r + 3 * g) % 16);
    }
  }
  return BS_OK;
}

/* What one rank of a backend gives. */
typedef struct work {
  int32_t rc;
  bs_error err;
  float y[B * N], out[B * K];
  uint64_t packed_bytes;
  int packs_only;
} work;

static void query(bs_op_query *q, const char *op, const bs_tensor_desc *const *args, uint32_t nargs,
                  const bs_quant *form) {
  *q = (bs_op_query){.struct_size = sizeof *q,
                     .op = op,
                     .nargs = nargs,
                     .args = args,
                     .weight_dtype = BS_F32,
                     .quant = form};
}

/* Prepares the query over the weight, and runs it once. */
static int32_t run_once(bs_rank *rank, const bs_op_query *q, bs_packed *packed, bs_tensor *const *args,
                        bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  bs_plan *plan = NULL;
  int32_t rc = api->op_prepare(rank, q, packed, &plan, err);
  if (rc == BS_OK) rc = api->op_run(plan, args, q->nargs, NULL, err);
  api->op_release(plan);
  return rc;
}

static int32_t products(bs_rank *rank, work *w, bs_packed *packed, const bs_op_query *q, bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  bs_tensor_desc index_desc = {.struct_size = sizeof index_desc, .dtype = BS_I64, .rank = 1, .dims = {B}};
  const bs_tensor_desc out_desc = bs_desc_2d(BS_F32, B, K), *take[2] = {&index_desc, &out_desc};
  bs_tensor x = {0}, y = {0}, index = {0}, out = {0};
  bs_op_query rows;
  query(&rows, "take_q", take, 2, q->quant);
  int32_t rc = api->tensor_alloc(rank, q->args[0], BS_LIFE_ACTIVATION, &x, err);
  if (rc == BS_OK) rc = api->tensor_alloc(rank, q->args[3], BS_LIFE_ACTIVATION, &y, err);
  if (rc == BS_OK) rc = api->tensor_alloc(rank, &index_desc, BS_LIFE_ACTIVATION, &index, err);
  if (rc == BS_OK) rc = api->tensor_alloc(rank, &out_desc, BS_LIFE_ACTIVATION, &out, err);
  if (rc == BS_OK) {
    bs_tensor *const product[4] = {&x, NULL, NULL, &y}, *const taken[2] = {&index, &out};
    for (int i = 0; i < B * K; i++) ((float *)x.data)[i] = 0.1f * (float)(i % 13 - 6);
    for (int i = 0; i < B; i++) ((int64_t *)index.data)[i] = i == 1 ? -1 : 20 * i;
    rc = run_once(rank, q, packed, product, err);
    if (rc == BS_OK) rc = run_once(rank, &rows, packed, taken, err);
    memcpy(w->y, y.data, sizeof w->y);
    memcpy(w->out, out.data, sizeof w->out);
  }
  bs_tensor *const all[] = {&x, &y, &index, &out};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
    if (all[i]->data != NULL) api->tensor_free(rank, all[i]);
  return rc;
}

static int32_t rank_main(bs_rank *rank, void *arg, bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  const bs_tensor_desc x = bs_desc_2d(BS_F32, B, K), y = bs_desc_2d(BS_F32, B, N);
  const bs_tensor_desc *args[4] = {&x, NULL, NULL, &y};
  work *w = arg;
  bs_packed *packed = NULL;
  bs_quant form;
  bs_op_query q;
  int32_t rc = bs_quant_scheme("w4z32", N, K, &form, err);
  if (rc != BS_OK) return rc;
  form.read = read_rows;
  query(&q, "matmul_q", args, 4, &form);
  q.attrs[0] = 1;
  q.attrs[1] = 64;
  rc = api->pack(rank, &q, NULL, &packed, err);
  if (rc != BS_OK) return rc;
  w->packed_bytes = api->packed_bytes(packed);
  if (!w->packs_only) rc = products(rank, w, packed, &q, err);
  api->packed_release(packed);
  return rc;
}

static void work_on(const char *backend, const char *comm, const char *plan, work *w) {
  const bs_context_options c = {
      .struct_size = sizeof c, .log_level = BS_LOG_ERROR, .params = &plan, .n_params = plan != NULL ? 1 : 0};
  const bs_world_options o = {.struct_size = sizeof o,
                              .world_size = 1,
                              .backend = backend,
                              .comm = comm,
                              .threads_per_rank = 2,
                              .sync_mode = BS_SYNC_NONE};
  bs_context *context = NULL;
  bs_world *world = NULL;
  w->err = (bs_error)BS_ERROR_INIT;
  ck_assert_msg(bs_context_open(&c, &context, &w->err) == BS_OK, "%s", w->err.message);
  ck_assert_msg(bs_world_create(context, &o, &world, &w->err) == BS_OK, "%s", w->err.message);
  w->rc = bs_world_run(world, rank_main, w, &w->err);
  bs_world_destroy(world);
  bs_context_close(context);
}

static void served(const char *backend, const char *plan, work *w) {
  work_on(backend, NULL, plan, w);
  ck_assert_msg(w->rc == BS_OK, "%s: %s: %s", backend, w->err.id, w->err.message);
}

START_TEST(wrapped_backends_hand_the_query_on) {
  static const char *const backends[] = {"fault:ref", "slow:ref", "fault:slow:ref", "virtual:ref"};
  static work plain, wrapped;
  served("ref", NULL, &plain);
  float largest = 0.0f;
  for (int i = 0; i < B * N; i++) largest = plain.y[i] > largest ? plain.y[i] : largest;
  ck_assert_float_gt(largest, 1.0f); /* there is something to compare */
  for (size_t i = 0; i < sizeof backends / sizeof backends[0]; i++) {
    memset(&wrapped, 0, sizeof wrapped);
    served(backends[i], NULL, &wrapped);
    ck_assert_mem_eq(plain.y, wrapped.y, sizeof plain.y);
    ck_assert_mem_eq(plain.out, wrapped.out, sizeof plain.out);
    ck_assert_uint_eq(plain.packed_bytes, wrapped.packed_bytes);
  }
}
END_TEST

START_TEST(faults_strike_them) {
  static const struct {
    const char *plan;
    int in_y, in_out; /* 1: other bits there; -1: there is none */
  } rows[] = {{"fault.plan=op=matmul_q,do=flip", 1, 0},
              {"fault.plan=op=take_q,do=flip", 0, 1},
              {"fault.plan=op=matmul_q.pack,do=err", -1, -1},
              {"fault.plan=op=take_q.prepare,do=err", -1, -1}};
  static work plain, struck;
  served("ref", NULL, &plain);
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    memset(&struck, 0, sizeof struck);
    work_on("fault:ref", NULL, rows[i].plan, &struck);
    ck_assert_msg((struck.rc != BS_OK) == (rows[i].in_y < 0), "%s: %d %s", rows[i].plan, struck.rc,
                  struck.err.message);
    if (struck.rc != BS_OK) continue;
    const void *y = plain.y, *struck_y = struck.y, *out = plain.out, *struck_out = struck.out;
    ck_assert_msg((memcmp(y, struck_y, sizeof plain.y) != 0) == rows[i].in_y, "%s", rows[i].plan);
    ck_assert_msg((memcmp(out, struck_out, sizeof plain.out) != 0) == rows[i].in_out, "%s", rows[i].plan);
  }
}
END_TEST

/* Half a byte a code, and an f32 and a byte for each group. */
START_TEST(the_simulator_charges_the_bytes_of_the_form) {
  static work w;
  w.packs_only = 1;
  work_on("sim", "sim", NULL, &w);
  ck_assert_msg(w.rc == BS_OK, "%s: %s", w.err.id, w.err.message);
  ck_assert_uint_eq(w.packed_bytes, N * (K / 2 + GROUPS * 5));
}
END_TEST

int main(void) {
  const test_case tests[] = {{wrapped_backends_hand_the_query_on},
                             {faults_strike_them},
                             {the_simulator_charges_the_bytes_of_the_form},
                             {0}};
  return run_tests("wrap_quant", tests, (test_setup){.timeout = 60});
}
