/* SPDX-License-Identifier: MIT
 * test_op_bytes.c - products of int8 and what they stand for: matmul i8 x i8 to i32 on every instruction set
 * of cpu against 64-bit loops, the largest values there are among them, epilogue, odd shapes, picked columns,
 * weights read back; dequantize_product on ref and cpu by the definition, bit for bit, in place, strided; and
 * what is refused. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "blockshock/blockshock.h"
#include "blockshock/plugin.h"
#include "core/base/dtype.h"
#include "core/base/error.h"
#include "tests/marks.h"
#include "tests/run_tests.h"

static const bs_rank_api *api;

static bs_context *open_context(const char *isa) {
  bs_error err = BS_ERROR_INIT;
  char param[32];
  const char *dirs[] = {getenv("BS_TEST_PLUGIN_DIR")}, *params[] = {param};
  bs_context *context = NULL;
  bs_context_options o = {.struct_size = sizeof o, .trust = BS_TRUST_ANY, .plugin_dirs = dirs};
  snprintf(param, sizeof param, "cpu.isa=%s", isa);
  o.n_plugin_dirs = dirs[0] != NULL;
  o.params = params;
  o.n_params = 1;
  ck_assert_msg(bs_context_open(&o, &context, &err) == BS_OK, "%s", err.message);
  api = bs_rank_get_api();
  return context;
}

/* BS_UNAVAILABLE where the processor lacks the instruction set. */
static int32_t run(bs_context *context, const char *backend, int32_t (*body)(bs_rank *, void *, bs_error *),
                   void *arg, bs_error *err) {
  bs_world *world = NULL;
  bs_world_options o = {.struct_size = sizeof o, .world_size = 1, .backend = backend, .threads_per_rank = 2};
  int32_t rc = bs_world_create(context, &o, &world, err);
  if (rc != BS_OK) return rc;
  rc = bs_world_run(world, body, arg, err);
  bs_world_destroy(world);
  return rc;
}

static uint64_t state = 7;
static uint32_t draw(void) {
  state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint32_t)(state >> 33);
}

static bs_tensor tensor(void *data, uint32_t dtype, uint32_t rank, int64_t rows, int64_t cols,
                        int64_t stride) {
  bs_tensor t = {.struct_size = sizeof t, .dtype = dtype, .rank = rank, .data = data};
  t.dims[0] = rows;
  t.strides[0] = rank == 1 ? 1 : stride;
  if (rank == 2) {
    t.dims[1] = cols;
    t.strides[1] = 1;
  }
  t.bytes = (uint64_t)((rank == 1 ? rows : rows * stride)) * BS_DTYPE_BYTES(dtype);
  return t;
}

static bs_tensor_desc desc_of(const bs_tensor *t) {
  bs_tensor_desc d = {.struct_size = sizeof d, .dtype = t->dtype, .rank = t->rank};
  memcpy(d.dims, t->dims, sizeof d.dims);
  memcpy(d.strides, t->strides, sizeof d.strides);
  return d;
}

static bs_op_query query_of(const char *op, bs_tensor *const *args, uint32_t n, bs_tensor_desc *descs,
                            const bs_tensor_desc **list) {
  for (uint32_t i = 0; i < n; i++) {
    if (args[i] != NULL) descs[i] = desc_of(args[i]);
    list[i] = args[i] != NULL ? &descs[i] : NULL;
  }
  return (bs_op_query){.struct_size = sizeof(bs_op_query), .op = op, .nargs = n, .args = list};
}

/* ---- matmul ------------------------------------------------------------------------------------- */

typedef struct product {
  int64_t B, N, K, stride; /* of x's rows */
  int8_t *x, *w, *back;
  int32_t *bias, *residual, *y;
  uint32_t activation;
  const bs_partition *picked; /* of w's columns; x has them alone */
} product;

static int32_t product_main(bs_rank *rank, void *arg, bs_error *err) {
  product *p = arg;
  const int64_t K = p->picked != NULL ? p->picked->count : p->K;
  bs_tensor x = tensor(p->x, BS_I8, 2, p->B, K, p->stride), y = tensor(p->y, BS_I32, 2, p->B, p->N, p->N);
  bs_tensor bias = tensor(p->bias, BS_I32, 1, p->N, 1, 1);
  bs_tensor residual = tensor(p->residual, BS_I32, 2, p->B, p->N, p->N);
  bs_tensor back = tensor(p->back, BS_I8, 2, p->N, K, K > 0 ? K : 1);
  bs_tensor *args[4] = {&x, p->bias != NULL ? &bias : NULL, p->residual != NULL ? &residual : NULL, &y};
  bs_tensor_desc descs[4];
  const bs_tensor_desc *list[4];
  bs_op_query q = query_of("matmul", args, 4, descs, list);
  bs_source w;
  bs_packed *packed = NULL;
  bs_plan *plan = NULL;
  q.weight_dtype = BS_I8;
  q.activation = p->activation;
  q.partition = p->picked;
  q.flags = BS_QUERY_DETERMINISTIC | BS_QUERY_TOKENWISE;
  int32_t rc = bs_source_from_memory(p->w, BS_I8, p->N, p->K, p->K, &w, err);
  if (rc == BS_OK) rc = api->pack(rank, &q, &w, &packed, err);
  if (rc == BS_OK) rc = api->op_prepare(rank, &q, packed, &plan, err);
  if (rc == BS_OK) rc = api->op_run(plan, args, 4, NULL, err);
  if (rc == BS_OK) rc = api->packed_read(packed, 0, &back, err);
  if (plan != NULL) api->op_release(plan);
  if (packed != NULL) api->packed_release(packed);
  bs_source_release(&w);
  return rc;
}

static int64_t column(const product *p, int64_t i) {
  return p->picked != NULL ? (int64_t)p->picked->columns[i] : i;
}

static void check_product(const product *p, const char *isa) {
  const int64_t K = p->picked != NULL ? p->picked->count : p->K;
  int64_t wrong = 0;
  for (int64_t b = 0; b < p->B; b++)
    for (int64_t n = 0; n < p->N; n++) {
      int64_t sum = p->bias != NULL ? p->bias[n] : 0;
      for (int64_t k = 0; k < K; k++) sum += (int64_t)p->x[b * p->stride + k] * p->w[n * p->K + column(p, k)];
      if (p->activation == BS_ACT_RELU && sum < 0) sum = 0;
      if (p->residual != NULL) sum += p->residual[b * p->N + n];
      wrong += p->y[b * p->N + n] != (int32_t)sum;
    }
  ck_assert_msg(wrong == 0, "%s [%lld,%lld,%lld]: %lld wrong", isa, (long long)p->B, (long long)p->N,
                (long long)K, (long long)wrong);
  for (int64_t n = 0; n < p->N; n++)
    for (int64_t k = 0; k < K; k++) wrong += p->back[n * K + k] != p->w[n * p->K + column(p, k)];
  ck_assert_msg(wrong == 0, "%s: %lld weights read back otherwise", isa, (long long)wrong);
}

static const char *const sets[] = {"portable", "avx2", "avx512"};
static const int64_t sizes[][3] = {{1, 1, 1},    {2, 17, 3},     {3, 16, 64},    {5, 33, 255},
                                   {7, 40, 130}, {13, 100, 500}, {49, 48, 1025}, {97, 800, 40}};
#define SIZES ((int)(sizeof sizes / sizeof sizes[0]))

static void one_product(bs_context *context, const char *isa, int size, int extreme) {
  const int64_t B = sizes[size][0], N = sizes[size][1], K = sizes[size][2];
  bs_error err = BS_ERROR_INIT;
  uint32_t *list = malloc((size_t)K * sizeof *list);
  bs_partition part = {.struct_size = sizeof part, .kind = BS_PARTITION_GATHER, .total = K, .columns = list};
  for (int64_t k = 0; k < K; k += 1 + k % 3) list[part.count++] = (uint32_t)k;
  product p = {B,
               N,
               K,
               K + 5,
               malloc((size_t)(B * (K + 5))),
               malloc((size_t)(N * K)),
               malloc((size_t)(N * K)),
               NULL,
               NULL,
               malloc((size_t)(B * N) * sizeof(int32_t)),
               (uint32_t)(size % 2 ? BS_ACT_RELU : BS_ACT_NONE),
               NULL};
  if (size % 3 != 1) p.bias = malloc((size_t)N * sizeof *p.bias);
  if (size % 3 != 0) p.residual = malloc((size_t)(B * N) * sizeof *p.residual);
  if (size % 4 == 2) p.picked = &part;
  for (int64_t i = 0; i < B * (K + 5); i++)
    p.x[i] = (int8_t)(extreme ? (i / (K + 5) % 2 ? -128 : 127) : (int)(draw() % 256) - 128);
  for (int64_t i = 0; i < N * K; i++)
    p.w[i] = (int8_t)(extreme ? (i / K % 3 ? -128 : 127) : (int)(draw() % 256) - 128);
  for (int64_t n = 0; p.bias != NULL && n < N; n++) p.bias[n] = (int32_t)(draw() % 2001) - 1000;
  for (int64_t i = 0; p.residual != NULL && i < B * N; i++) p.residual[i] = (int32_t)(draw() % 2001) - 1000;
  ck_assert_msg(run(context, "cpu", product_main, &p, &err) == BS_OK, "%s: %s", isa, err.message);
  check_product(&p, isa);
  free(p.x), free(p.w), free(p.back), free(p.bias), free(p.residual), free(p.y), free(list);
}

START_TEST(products_are_exact) {
  bs_error err = BS_ERROR_INIT;
  bs_context *context = open_context(sets[_i]);
  const bs_backend *backend = NULL;
  void *opaque = NULL;
  if (bs_find_backend(context, "cpu", &backend, &opaque, &err) != BS_UNAVAILABLE)
    for (int size = 0; size < SIZES; size++)
      for (int extreme = 0; extreme < 2; extreme++) one_product(context, sets[_i], size, extreme);
  else
    printf("not run: %s\n", err.message);
  bs_context_close(context);
}
END_TEST

/* ---- dequantize_product ------------------------------------------------------------------------- */

typedef struct joined {
  int64_t B, N, stride;
  int32_t *sums;
  float *rows, *columns, *bias, *base;
  void *out;
  uint32_t out_dtype, activation;
  int in_place; /* base is out */
  int wrong;    /* what is wrong with the query */
} joined;

static int32_t joined_main(bs_rank *rank, void *arg, bs_error *err) {
  joined *j = arg;
  bs_tensor sums = tensor(j->sums, j->wrong == 1 ? (uint32_t)BS_I64 : (uint32_t)BS_I32, 2, j->B, j->N, j->N);
  bs_tensor rows = tensor(j->rows, BS_F32, 2, j->B, 1, j->wrong == 2 ? 2 : 1);
  bs_tensor columns = tensor(j->columns, BS_F32, 1, j->wrong == 3 ? j->N - 1 : j->N, 1, 1);
  bs_tensor bias = tensor(j->bias, j->wrong == 4 ? (uint32_t)BS_F64 : (uint32_t)BS_F32, 1, j->N, 1, 1);
  bs_tensor out = tensor(j->out, j->wrong == 5 ? (uint32_t)BS_I32 : j->out_dtype, 2, j->B, j->N, j->stride);
  bs_tensor base = j->in_place ? out : tensor(j->base, BS_F32, 2, j->B, j->wrong == 6 ? 1 : j->N, j->N);
  if (j->wrong == 2) rows.dims[1] = 2;
  bs_tensor *args[6] = {
      &sums, &rows, &columns, j->bias != NULL ? &bias : NULL, j->base != NULL || j->in_place ? &base : NULL,
      &out};
  bs_tensor_desc descs[6];
  const bs_tensor_desc *list[6];
  bs_op_query q = query_of("dequantize_product", args, 6, descs, list);
  bs_plan *plan = NULL;
  q.activation = j->wrong == 7 ? 9 : j->activation;
  int32_t rc = api->op_prepare(rank, &q, NULL, &plan, err);
  if (rc == BS_OK) rc = api->op_run(plan, args, 6, NULL, err);
  if (plan != NULL) api->op_release(plan);
  return rc;
}

static joined joined_make(int64_t B, int64_t N, int64_t stride, uint32_t dtype) {
  joined j = {.B = B, .N = N, .stride = stride, .out_dtype = dtype};
  j.sums = malloc((size_t)(B * N) * sizeof *j.sums);
  j.rows = malloc((size_t)(2 * B) * sizeof *j.rows);
  j.columns = malloc((size_t)N * sizeof *j.columns);
  j.bias = malloc((size_t)N * 2 * sizeof *j.bias);
  j.base = malloc((size_t)(B * N) * sizeof *j.base);
  j.out = calloc((size_t)(B * stride), 8);
  for (int64_t i = 0; i < B * N; i++) j.sums[i] = (int32_t)(draw() << 1) >> (draw() % 24);
  for (int64_t i = 0; i < 2 * B; i++) j.rows[i] = (float)(draw() % 1000) * 1e-5f;
  for (int64_t i = 0; i < N; i++) j.columns[i] = (float)(draw() % 1000) * 1e-5f;
  for (int64_t i = 0; i < N; i++) j.bias[i] = (float)(draw() % 2000) * 1e-3f - 1.0f;
  for (int64_t i = 0; i < B * N; i++) j.base[i] = (float)(draw() % 2000) * 1e-2f - 10.0f;
  return j;
}

static void joined_free(joined *j) {
  free(j->sums), free(j->rows), free(j->columns), free(j->bias), free(j->base), free(j->out);
}

/* Each step rounded to f32, in this order. */
static float joined_value(const joined *j, int64_t b, int64_t n, int bias, int base) {
  volatile float v = (float)j->sums[b * j->N + n];
  v = v * j->rows[b];
  v = v * j->columns[n];
  if (base) v = v + j->base[b * j->N + n];
  if (bias) v = v + j->bias[n];
  if (j->activation == BS_ACT_RELU) return v < 0.0f ? 0.0f : v;
  return j->activation == BS_ACT_SILU ? (float)((double)v / (1.0 + exp(-(double)v))) : v;
}

static void check_joined(bs_context *context, const char *backend, joined *j, int bias, int base) {
  bs_error err = BS_ERROR_INIT;
  joined k = *j;
  const size_t size = BS_DTYPE_BYTES(j->out_dtype);
  if (!bias) k.bias = NULL;
  if (!base) k.base = NULL;
  memset(j->out, 0x55, (size_t)(j->B * j->stride) * size);
  for (int64_t b = 0; j->in_place && b < j->B; b++)
    memcpy((float *)j->out + b * j->stride, j->base + b * j->N, (size_t)j->N * sizeof(float));
  ck_assert_msg(run(context, backend, joined_main, &k, &err) == BS_OK, "%s: %s", backend, err.message);
  const double allowed = j->activation == BS_ACT_SILU ? 1.2e-7 : 0.0;
  for (int64_t b = 0; b < j->B; b++)
    for (int64_t n = 0; n < j->stride; n++) {
      float want = n < j->N ? joined_value(j, b, n, bias, base || j->in_place) : 0.0f;
      uint8_t bits[8], kept[8];
      memset(kept, 0x55, sizeof kept);
      if (n >= j->N) { /* between the rows nothing is written */
        ck_assert_mem_eq((char *)j->out + (size_t)(b * j->stride + n) * size, kept, size);
        continue;
      }
      bs_convert(j->out_dtype, bits, BS_F32, &want, 1);
      const double got = bs_load_f64(j->out_dtype, j->out, b * j->stride + n);
      const double rounded = bs_load_f64(j->out_dtype, bits, 0);
      ck_assert_msg(got == rounded || fabs(got - rounded) <= allowed * fabs(rounded),
                    "%s act %u: %.9g, not %.9g", backend, j->activation, got, rounded);
    }
}

START_TEST(products_stand_for) {
  static const int64_t shapes[][3] = {{1, 1, 1}, {3, 33, 33}, {5, 100, 107}, {2, 2500, 2500}, {70, 300, 301}};
  static const uint32_t dtypes[] = {BS_F32, BS_BF16, BS_F16};
  const char *backend = _i == 0 ? "ref" : "cpu";
  bs_context *context = open_context(_i < 2 ? "auto" : "portable");
  for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
    for (int d = 0; d < 3; d++) {
      joined j = joined_make(shapes[s][0], shapes[s][1], shapes[s][2], dtypes[d]);
      for (int with = 0; with < 4; with++) check_joined(context, backend, &j, with & 1, with >> 1);
      j.activation = BS_ACT_RELU;
      check_joined(context, backend, &j, 1, 1);
      j.activation = (uint32_t)(d == 0 ? BS_ACT_SILU : BS_ACT_NONE);
      check_joined(context, backend, &j, 1, 0);
      j.activation = BS_ACT_NONE;
      j.in_place = d == 0;
      check_joined(context, backend, &j, 1, 0);
      joined_free(&j);
    }
  bs_context_close(context);
}
END_TEST

START_TEST(what_does_not_fit_is_refused) {
  static const char *const ids[] = {"BS-OP-DTYPE", "BS-OP-SHAPE", "BS-OP-SHAPE", "BS-OP-DTYPE",
                                    "BS-OP-DTYPE", "BS-OP-SHAPE", "BS-OP-ATTR"};
  bs_context *context = open_context("auto");
  for (int wrong = 1; wrong <= 7; wrong++) {
    bs_error err = BS_ERROR_INIT;
    joined j = joined_make(4, 8, 8, BS_F32);
    j.wrong = wrong;
    ck_assert_int_eq(run(context, "ref", joined_main, &j, &err), BS_INVALID_ARGUMENT);
    ck_assert_msg(strcmp(err.id, ids[wrong - 1]) == 0, "%d: %s %s", wrong, err.id, err.message);
    joined_free(&j);
  }
  bs_context_close(context);
}
END_TEST

int main(void) {
  const test_case tests[] = {
      {products_are_exact, 3}, {products_stand_for, 3}, {what_does_not_fit_is_refused}, {0}};
  return run_tests("op_bytes", tests, (test_setup){.timeout = 60});
}
