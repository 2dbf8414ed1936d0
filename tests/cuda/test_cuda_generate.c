/* SPDX-License-Identifier: MIT
 * test_cuda_generate.c - generated matrices made by the kernel's body against the read of the workloads that
 * generate them (plugins/workloads/common/generated.c, over the core's random numbers): the same bits for
 * every law, dtype, partition and place, and in packed weights. Nothing else is written. */
#include "core/base/rng.h"
#include "plain.h"
#include "plugins/cuda/ops/generate.h"
#include "plugins/workloads/common/generated.h"
#include "tests/run_tests.h"

static const uint32_t dtypes[11] = {BS_F64, BS_F32, BS_F16, BS_BF16, BS_F8E4M3, BS_F8E5M2,
                                    BS_I64, BS_I32, BS_I8,  BS_U8,   BS_BOOL};

static char noted[64];
static void note(void *ctx, const char *text) {
  (void)ctx;
  snprintf(noted, sizeof noted, "%s", text);
}

static void open_all(pl *p) {
  pl_open(p);
  p->f.host.rng_normal = bs_rng_normal;
  p->f.host.rng_uniform = bs_rng_uniform;
  p->f.host.rng_bits = bs_rng_bits;
  p->exec.note = note;
  noted[0] = '\0';
}

/* Numbers that leave narrow formats and integers at both ends. */
static void make(pl *p, bs_generated *g, uint32_t law, uint32_t dtype, int64_t rows, int64_t cols) {
  memset(g, 0, sizeof *g);
  bs_generated_make(g, &p->f.host, rows, cols, UINT64_C(0x123456789abcdef0) + law, 2 + law, dtype);
  g->by.law = law;
  g->by.a = law == BS_LAW_CLIPPED ? 150.0f : 3.5f;
  g->by.b = 130.0f;
  g->by.threshold = 1500000000u;
  g->by.bound = 70;
}

typedef struct where {
  int64_t first_row, nrows, cols;
  int kind; /* 0 all columns, 1 a run, 2 a list, 3 a list that is a pattern */
  int64_t gap;
  int place;
} where;

static void partition_of(const where *w, uint32_t *list, bs_partition *out) {
  memset(out, 0, sizeof *out);
  out->struct_size = (uint32_t)sizeof *out;
  out->total = w->cols;
  out->kind = w->kind == 1 ? BS_PARTITION_CONTIGUOUS : BS_PARTITION_GATHER;
  if (w->kind == 1) {
    out->begin = w->cols / 3;
    out->count = w->cols / 2;
    return;
  }
  for (int64_t k = 0; k < w->cols; k++)
    if (w->kind == 3 ? k % 4 < 2 : k * k % 7 == 1) list[out->count++] = (uint32_t)k;
  out->columns = list;
}

static void compare(pl *p, const bs_source *s, const where *w, uint32_t dtype) {
  static uint32_t list[100000];
  bs_error err = BS_ERROR_INIT;
  bs_partition part;
  cuda_columns columns;
  pl_tensor got, want;
  partition_of(w, list, &part);
  const bs_partition *cols = w->kind == 0 ? NULL : &part;
  const int64_t n = cols != NULL ? part.count : w->cols;
  pl_matrix(&got, dtype, w->nrows, n, n + w->gap, 1, w->place);
  pl_matrix(&want, dtype, w->nrows, n, n + w->gap, 1, w->place);
  ck_assert_int_eq(s->read(s->ctx, w->first_row, w->nrows, cols, dtype, want.t.data, n + w->gap, &err),
                   BS_OK);
  ck_assert(cuda_generates(s, w->first_row, w->nrows, cols));
  ck_assert_int_eq(cuda_columns_make(&p->exec, &p->f.host, cols, w->cols, &columns, &err), BS_OK);
  const cuda_view out = cuda_view_of(&got.t);
  ck_assert_int_eq(cuda_generate(&p->device, s, w->first_row, &columns, NULL, &out, NULL, &err), BS_OK);
  cuda_columns_free(&p->exec, &columns);
  char what[120];
  snprintf(what, sizeof what, "law %u, %s as %s, kind %d, row %lld, %lld columns", s->generator->law,
           bs_dtype_name(s->dtype), bs_dtype_name(dtype), w->kind, (long long)w->first_row,
           (long long)w->cols);
  pl_same_bits(&got, &want, what);
  pl_free(&got);
  pl_free(&want);
}

START_TEST(every_law_and_dtype) {
  static const where places[] = {{0, 3, 40, 0, 0, PL_FIRST},  {1, 3, 37, 0, 0, PL_ODD},
                                 {1, 5, 37, 0, 3, PL_LAST},   {2, 2, 48, 1, 0, PL_FIRST},
                                 {3, 4, 49, 1, 15, PL_FIRST}, {0, 3, 37, 2, 0, PL_LAST},
                                 {2, 2, 41, 3, 3, PL_FIRST},  {6, 1, 1, 0, 0, PL_ODD}};
  pl p;
  open_all(&p);
  for (uint32_t law = BS_LAW_ZERO; law <= BS_LAW_CLIPPED; law++)
    for (int model = 0; model < 11; model++)
      for (int out = 0; out < 11; out++)
        for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
          bs_generated g;
          bs_source s = {.struct_size = (uint32_t)sizeof s};
          make(&p, &g, law, dtypes[model], 9, places[i].cols);
          bs_generated_source(&g, &s);
          compare(&p, &s, &places[i], dtypes[out]);
        }
  pl_close(&p);
}
END_TEST

/* Rows of odd length, far behind the 2^32nd and the 2^34th element, and many blocks of threads. */
START_TEST(far_and_many) {
  static const where places[] = {{81919, 2, 81923, 0, 0, PL_FIRST},
                                 {52428, 3, 81921, 3, 0, PL_FIRST},
                                 {INT64_C(20000000000), 2, 77, 1, 5, PL_LAST},
                                 {0, 300, 65, 0, 0, PL_LAST}};
  static const uint32_t laws[3] = {BS_LAW_NORMAL, BS_LAW_UNIFORM, BS_LAW_TERNARY};
  pl p;
  open_all(&p);
  for (int law = 0; law < 3; law++)
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
      bs_generated g;
      bs_source s = {.struct_size = (uint32_t)sizeof s};
      make(&p, &g, laws[law], BS_BF16, INT64_C(1) << 40, places[i].cols);
      bs_generated_source(&g, &s);
      compare(&p, &s, &places[i], BS_BF16);
    }
  pl_close(&p);
}
END_TEST

/* The core's numbers, whose golden vectors are in tests/base/test_rng.c, not by way of a workload. */
START_TEST(numbers_of_the_core) {
  pl p;
  open_all(&p);
  bs_generated g = {.n_outliers = 0};
  bs_source s = {.struct_size = (uint32_t)sizeof s};
  bs_error err = BS_ERROR_INIT;
  pl_tensor got;
  float want[16];
  bs_generated_make(&g, &p.f.host, 1, 16, 725, 2, BS_F32);
  g.by.law = BS_LAW_NORMAL;
  g.by.b = 1.0f;
  bs_generated_source(&g, &s);
  const cuda_columns all = {NULL, 0, 16, 16};
  pl_matrix(&got, BS_F32, 1, 16, 16, 1, PL_FIRST);
  const cuda_view out = cuda_view_of(&got.t);
  ck_assert_int_eq(cuda_generate(&p.device, &s, 0, &all, NULL, &out, NULL, &err), BS_OK);
  bs_rng_normal(725, 2, 0, 16, want);
  ck_assert_mem_eq(got.t.data, want, sizeof want);
  pl_free(&got);
  pl_close(&p);
}
END_TEST

/* ---- packed weights ------------------------------------------------------------------------------- */

enum { N = 21, K = 90 };

static int32_t no_read(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                       void *out, int64_t out_stride, bs_error *err) {
  (void)ctx, (void)row, (void)nrows, (void)cols, (void)dtype, (void)out, (void)out_stride, (void)err;
  ck_abort_msg("the host was asked for values that the device makes");
  return BS_INTERNAL;
}

static int32_t read_kept(void *ctx, int64_t row, int64_t nrows, int64_t group, int64_t ngroups, uint8_t *out,
                         int64_t out_stride, bs_error *err) {
  static const uint8_t two[6] = {3, 5, 6, 9, 10, 12};
  (void)ctx, (void)err;
  for (int64_t i = 0; i < nrows; i++)
    for (int64_t j = 0; j < ngroups; j++)
      out[i * out_stride + j] = two[(uint64_t)((row + i) * 31 + (group + j) * 7) % 6];
  return BS_OK;
}

/* The same by the device, and by the host when nothing is told of the source. */
static void pack_both(pl *p, const bs_op_impl *impl, uint32_t dtype, const bs_partition *part, int64_t k) {
  bs_generated g;
  bs_source s = {.struct_size = (uint32_t)sizeof s};
  bs_error err = BS_ERROR_INIT;
  make(p, &g, BS_LAW_NORMAL, BS_F32, N, K);
  bs_generated_source(&g, &s);
  const bs_tensor_desc x = bs_desc_2d(dtype, 2, k),
                       y = bs_desc_2d((dtype & 0xff00u) == 0 ? BS_I32 : dtype, 2, N);
  const bs_tensor_desc *args[4] = {&x, NULL, NULL, &y};
  const bs_kept kept = {.struct_size = sizeof kept, .rows = N, .cols = k, .read = read_kept};
  bs_op_query q = fx_query(impl->op, args, 4);
  q.weight_dtype = dtype;
  q.partition = part;
  if (impl == &cuda_matmul24) q.kept = &kept;
  void *packed[2] = {NULL, NULL};
  uint64_t bytes[2] = {0, 0};
  const bs_source untold = {s.struct_size, s.dtype, s.rows, s.cols, s.ctx, s.read, NULL};
  s.read = no_read;
  ck_assert_msg(impl->pack(&p->state, &p->exec, &q, &s, &packed[0], &bytes[0], &err) == BS_OK, "%s",
                err.message);
  ck_assert_str_eq(noted, "generate@cuda/philox");
  noted[0] = '\0';
  ck_assert_int_eq(impl->pack(&p->state, &p->exec, &q, &untold, &packed[1], &bytes[1], &err), BS_OK);
  ck_assert_str_eq(noted, "");
  const cuda_packed *a = packed[0], *b = packed[1];
  ck_assert_uint_eq(bytes[0], bytes[1]);
  ck_assert_int_eq(a->line, b->line);
  ck_assert_mem_eq(a->data, b->data, (size_t)a->rows * (size_t)a->line * a->size);
  impl->packed_free(packed[0]);
  impl->packed_free(packed[1]);
}

START_TEST(packed_weights) {
  uint32_t list[K];
  const where lists = {0, 0, K, 2, 0, 0}, patterns = {0, 0, K, 3, 0, 0};
  bs_partition by_list, by_pattern;
  const bs_partition run = {
      .struct_size = sizeof run, .kind = BS_PARTITION_CONTIGUOUS, .total = K, .begin = 8, .count = 63};
  pl p;
  open_all(&p);
  for (int d = 0; d < 9; d++) {
    pack_both(&p, &cuda_matmul, dtypes[d], NULL, K);
    pack_both(&p, &cuda_matmul, dtypes[d], &run, run.count);
    partition_of(&lists, list, &by_list);
    pack_both(&p, &cuda_matmul, dtypes[d], &by_list, by_list.count);
    partition_of(&patterns, list, &by_pattern);
    pack_both(&p, &cuda_matmul, dtypes[d], &by_pattern, by_pattern.count);
    pack_both(&p, &cuda_matmul24, dtypes[d], NULL, K);
    pack_both(&p, &cuda_matmul24, dtypes[d], &run, run.count);
  }
  pl_close(&p);
}
END_TEST

/* Whoever puts another read behind a source, or columns that are larger, is asked by the host. */
START_TEST(not_told) {
  pl p;
  open_all(&p);
  bs_generated g;
  bs_source s = {.struct_size = (uint32_t)sizeof s};
  make(&p, &g, BS_LAW_NORMAL, BS_F32, N, K);
  bs_generated_source(&g, &s);
  ck_assert(cuda_generates(&s, 0, N, NULL));
  bs_source view = s;
  view.ctx = &view;
  ck_assert(!cuda_generates(&view, 0, N, NULL));
  bs_generator made = {.law = 0};
  bs_generator_under(&s, 4, &view, &made, &view);
  ck_assert(cuda_generates(&view, 0, N, NULL));
  ck_assert_uint_eq(made.first, 4 * K);
  ck_assert_ptr_nonnull(s.generator);
  bs_generator newer = g.by;
  newer.law = BS_LAW_CLIPPED + 1;
  s.generator = &newer;
  ck_assert(!cuda_generates(&s, 0, N, NULL));
  const uint32_t outliers[1] = {3};
  g.outliers = outliers;
  g.n_outliers = 1;
  bs_generated_source(&g, &s);
  ck_assert_ptr_null(s.generator);
  ck_assert(!cuda_generates(&s, 0, N, NULL));
  /* and what is no part of the matrix is the source's to refuse */
  g.n_outliers = 0;
  bs_generated_source(&g, &s);
  const uint32_t beyond[2] = {3, K}, falls[2] = {5, 4};
  bs_partition part = {.struct_size = sizeof part, .kind = BS_PARTITION_GATHER, .total = K, .count = 2};
  part.columns = beyond;
  ck_assert(!cuda_generates(&s, 0, N, &part));
  part.columns = falls;
  ck_assert(!cuda_generates(&s, 0, N, &part));
  ck_assert(!cuda_generates(&s, 1, N, NULL));
  pl_close(&p);
}
END_TEST

int main(void) {
  const test_case tests[] = {{every_law_and_dtype}, {far_and_many}, {numbers_of_the_core},
                             {packed_weights},      {not_told},     {0}};
  return run_tests("cuda_generate", tests, (test_setup){0});
}
