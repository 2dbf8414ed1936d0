/* SPDX-License-Identifier: MIT
 * test_cuda_rows.c - matmul@cuda/rows, host's side and the CPU twins of its kernels. Of small integers every
 * order of a sum has the same bits: each column must count once, for any number of tokens, of rows and of
 * columns, wherever X lies, behind epilogues and partitions. Of other numbers bits are the same for any
 * number of tokens. What is not served goes to the tiles. */
#include <math.h>

#include "plain.h"
#include "plugins/cuda/ops/rows.h"
#include "tests/run_tests.h"

typedef struct rows_case {
  uint32_t dtype, y;
  int64_t B, N, K;
  int64_t gap; /* behind a row of X */
  int where;
  int part; /* 0 all columns, 1 a run, 2 a list, 3 a pattern; X has all */
  int epilogue;
  uint32_t activation;
  int real; /* 1: any numbers */
} rows_case;

typedef struct rows_made {
  pl *p;
  rows_case c;
  fx_tensor w;
  pl_tensor x, bias, residual, y;
  bs_partition part;
  uint32_t *list;
  int64_t kept;
  void *packed;
} rows_made;

static int64_t column(const rows_made *m, int64_t k) {
  if (m->c.part == 0) return k;
  return m->c.part == 1 ? m->part.begin + k : (int64_t)m->list[k];
}

static double value(uint64_t *seed, int real) {
  return real ? (double)(int64_t)(fx_next(seed) >> 11) * 0x1p-51 - 2.0 : (double)(fx_below(seed, 7) - 3);
}

static void fill(pl_tensor *t, int64_t rows, int64_t cols, uint64_t *seed, int real) {
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < cols; c++) pl_set(t, r, c, value(seed, real));
}

static bs_op_query query_of(const rows_made *m, const bs_tensor_desc **args) {
  args[0] = &m->x.d;
  args[1] = m->c.epilogue ? &m->bias.d : NULL;
  args[2] = m->c.epilogue ? &m->residual.d : NULL;
  args[3] = &m->y.d;
  bs_op_query q = fx_query("matmul", args, 4);
  q.weight_dtype = m->c.dtype;
  q.activation = m->c.activation;
  q.flags = BS_QUERY_DETERMINISTIC | (m->c.part != 0 ? BS_QUERY_X_FULL : 0);
  if (m->c.part != 0) q.partition = &m->part;
  return q;
}

static void make(rows_made *m, pl *p, const rows_case *c, uint64_t *seed) {
  const bs_tensor_desc *args[4];
  bs_error err = BS_ERROR_INIT;
  uint64_t bytes = 0;
  memset(m, 0, sizeof *m);
  m->p = p;
  m->c = *c;
  m->list = calloc((size_t)c->K + 1, sizeof *m->list);
  if (c->part == 1) m->part = fx_contiguous(c->K, c->K / 3, c->K / 2);
  if (c->part == 2) {
    m->part = fx_gather(c->K, 1, 0, m->list);
    for (int64_t k = 0; k < c->K; k++)
      if (fx_below(seed, 3) > 0) m->list[m->part.count++] = (uint32_t)k;
  }
  if (c->part == 3) m->part = fx_gather(c->K, 4, 5, m->list);
  m->kept = c->part == 0 ? c->K : m->part.count;
  fx_matrix(&m->w, c->dtype, c->N, c->K);
  for (int64_t n = 0; n < c->N; n++)
    for (int64_t k = 0; k < c->K; k++) fx_set(&m->w, n, k, value(seed, c->real));
  pl_matrix(&m->x, c->dtype, c->B, c->K, c->K + c->gap, 1, c->where);
  pl_make(&m->bias, c->y == BS_I32 ? BS_I32 : BS_F32, 1, &c->N, NULL, PL_LAST);
  pl_matrix(&m->residual, c->y, c->B, c->N, c->N, 1, PL_LAST);
  pl_matrix(&m->y, c->y, c->B, c->N, c->N + 1, 1, c->where);
  fill(&m->x, c->B, c->K, seed, c->real);
  fill(&m->bias, 1, c->N, seed, 0);
  fill(&m->residual, c->B, c->N, seed, 0);
  const bs_op_query q = query_of(m, args);
  const bs_source source = fx_source(&m->w);
  ck_assert_msg(cuda_rows.pack(&p->state, &p->exec, &q, &source, &m->packed, &bytes, &err) == BS_OK, "%s",
                err.message);
}

static void unmake(rows_made *m) {
  cuda_rows.packed_free(m->packed);
  fx_tensor_free(&m->w);
  pl_tensor *const all[] = {&m->x, &m->bias, &m->residual, &m->y};
  for (size_t i = 0; i < 4; i++) pl_free(all[i]);
  free(m->list);
}

static void run(rows_made *m) {
  const bs_tensor_desc *args[4];
  const bs_op_query q = query_of(m, args);
  bs_tensor *const tensors[4] = {&m->x.t, m->c.epilogue ? &m->bias.t : NULL,
                                 m->c.epilogue ? &m->residual.t : NULL, &m->y.t};
  pl_run_cuda(m->p, &cuda_rows, &q, m->packed, tensors);
}

static void check(rows_made *m) {
  pl_tensor want;
  pl_matrix(&want, m->c.y, m->c.B, m->c.N, m->c.N + 1, 1, m->c.where);
  for (int64_t b = 0; b < m->c.B; b++)
    for (int64_t n = 0; n < m->c.N; n++) {
      double sum = 0.0;
      for (int64_t k = 0; k < m->kept; k++)
        sum += pl_get(&m->x, b, column(m, k)) * fx_get(&m->w, n, column(m, k));
      if (m->c.epilogue) sum += pl_get(&m->bias, 0, n);
      if (m->c.activation == BS_ACT_RELU && sum < 0.0) sum = 0.0;
      if (m->c.epilogue) sum += pl_get(&m->residual, b, n);
      pl_set(&want, b, n, sum);
    }
  char what[160];
  snprintf(what, sizeof what, "dtype %x B %lld N %lld K %lld part %d where %d gap %lld", m->c.dtype,
           (long long)m->c.B, (long long)m->c.N, (long long)m->c.K, m->c.part, m->c.where,
           (long long)m->c.gap);
  pl_same_bits(&m->y, &want, what);
  pl_free(&want);
}

static const uint32_t dtypes[4] = {BS_BF16, BS_F16, BS_F32, BS_I8};

static void once(pl *p, rows_case c, uint64_t *seed, int64_t launches) {
  rows_made m;
  c.y = c.dtype == BS_I8 ? BS_I32 : BS_F32;
  make(&m, p, &c, seed);
  const int64_t before = p->launches;
  run(&m);
  ck_assert_int_eq(p->launches - before, launches);
  check(&m);
  unmake(&m);
}

/* Every number of tokens, with rows and columns about the edges of warps, blocks, pieces and splits. */
START_TEST(every_column_counts_once) {
  static const int64_t sizes[][2] = {{1, 1},   {3, 8},   {4, 7},    {5, 9},    {33, 31},  {40, 16},
                                     {7, 255}, {9, 257}, {2, 1030}, {6, 2060}, {35, 530}, {130, 70}};
  pl p;
  uint64_t seed = 3;
  pl_open(&p);
  for (int64_t B = 1; B <= ROWS_TOKENS; B++)
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
      const rows_case c = {.dtype = dtypes[_i],
                           .B = B,
                           .N = sizes[i][0],
                           .K = sizes[i][1],
                           .gap = (B + (int64_t)i) % 3 * 3,
                           .where = (int)((size_t)B + i) % PL_PLACES,
                           .epilogue = (int)(B % 2),
                           .activation = i % 3 == 0 ? BS_ACT_RELU : BS_ACT_NONE};
      once(&p, c, &seed, 1);
    }
  pl_close(&p);
}
END_TEST

/* X has all columns: a run of it is read where it lies, a list is laid side by side first. */
START_TEST(partitions) {
  pl p;
  uint64_t seed = 5;
  pl_open(&p);
  for (int part = 1; part <= 3; part++)
    for (int d = 0; d < 4; d++)
      for (int64_t K = 6; K < 400; K += 97) {
        const rows_case c = {.dtype = dtypes[d],
                             .B = 1 + (K + d) % 16,
                             .N = 21,
                             .K = K,
                             .gap = K % 5,
                             .where = (int)(K % PL_PLACES),
                             .part = part};
        once(&p, c, &seed, part == 1 ? 1 : 2);
      }
  pl_close(&p);
}
END_TEST

/* No tokens, no outputs, no columns. */
START_TEST(nothing) {
  pl p;
  uint64_t seed = 7;
  pl_open(&p);
  once(&p, (rows_case){.dtype = BS_BF16, .B = 0, .N = 5, .K = 9}, &seed, 0);
  once(&p, (rows_case){.dtype = BS_BF16, .B = 3, .N = 0, .K = 9}, &seed, 0);
  once(&p, (rows_case){.dtype = BS_BF16, .B = 3, .N = 5, .K = 0, .epilogue = 1}, &seed, 1);
  pl_close(&p);
}
END_TEST

/* A token's bits: the same in every call of at most 16, and near the exact sum. */
START_TEST(bits_do_not_depend_on_the_call) {
  pl p;
  rows_made m;
  uint64_t seed = 11;
  const rows_case c = {.dtype = BS_BF16, .y = BS_F32, .B = 16, .N = 37, .K = 1111, .real = 1};
  pl_open(&p);
  make(&m, &p, &c, &seed);
  run(&m);
  float *first = malloc((size_t)(16 * 37) * sizeof *first);
  for (int64_t b = 0; b < 16; b++)
    for (int64_t n = 0; n < 37; n++) {
      double sum = 0.0, size = 0.0;
      for (int64_t k = 0; k < m.kept; k++) {
        const double v = pl_get(&m.x, b, k) * fx_get(&m.w, n, k);
        sum += v;
        size += fabs(v);
      }
      first[b * 37 + n] = (float)pl_get(&m.y, b, n);
      ck_assert(fabs((double)first[b * 37 + n] - sum) <= 1200 * 0x1p-24 * size);
    }
  const bs_tensor_desc *args[4];
  const bs_op_query q = query_of(&m, args);
  void *plan = NULL;
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(cuda_rows.prepare(&p.state, &p.exec, &q, m.packed, &plan, &err), BS_OK);
  for (int64_t B = 1; B <= 16; B++) {
    bs_tensor x = m.x.t, y = m.y.t;
    x.dims[0] = y.dims[0] = B;
    x.data = (char *)x.data + (16 - B) * x.strides[0] * 2;
    ck_assert_int_eq(cuda_rows.run(plan, (bs_tensor *[]){&x, NULL, NULL, &y}, 4, NULL, &err), BS_OK);
    for (int64_t b = 0; b < B; b++)
      ck_assert_mem_eq((float *)y.data + b * y.strides[0], first + (16 - B + b) * 37, 37 * sizeof(float));
  }
  cuda_rows.plan_free(plan);
  free(first);
  unmake(&m);
  pl_close(&p);
}
END_TEST

static bs_op_answer ask(pl *p, const bs_op_query *q) {
  bs_op_answer a = {.struct_size = (uint32_t)sizeof a};
  ck_assert_int_eq(cuda_rows.supports(&p->state, q, &a), BS_OK);
  return a;
}

/* Few tokens before all others, up to 16 before the tiles; what is beyond is the tiles', bit for bit. */
START_TEST(answers) {
  pl p;
  rows_made m;
  uint64_t seed = 13;
  const bs_tensor_desc *args[4];
  pl_open(&p);
  for (int64_t B = 1; B <= 20; B++) {
    const rows_case c = {.dtype = BS_F32, .y = BS_F32, .B = B, .N = 5, .K = 40, .real = 1};
    make(&m, &p, &c, &seed);
    bs_op_query q = query_of(&m, args);
    bs_op_answer a = ask(&p, &q);
    ck_assert_uint_eq(a.level, B <= 16 ? BS_LEVEL_NATIVE : BS_LEVEL_EMULATED);
    ck_assert_str_eq(a.algo, B <= 16 ? "rows" : "tiles");
    ck_assert(B <= 4 ? a.score > 800 : B <= 16 ? a.score > 100 && a.score < 800 : a.score < 100);
    q.flags |= BS_QUERY_TOKENWISE;
    ck_assert_uint_eq(ask(&p, &q).level, BS_LEVEL_EMULATED);
    pl_tensor want;
    pl_matrix(&want, BS_F32, B, 5, 6, 1, PL_FIRST);
    pl_run_cuda(&p, &cuda_rows, &q, m.packed, (bs_tensor *[]){&m.x.t, NULL, NULL, &m.y.t});
    pl_run_cuda(&p, &cuda_matmul, &q, m.packed, (bs_tensor *[]){&m.x.t, NULL, NULL, &want.t});
    pl_same_bits(&m.y, &want, "token-wise");
    pl_free(&want);
    q.flags = 0;
    q.accumulate = BS_ACC_F64;
    ck_assert_uint_eq(ask(&p, &q).level, BS_LEVEL_EMULATED);
    q.accumulate = BS_ACC_DEFAULT;
    q.weight_dtype = BS_BF16;
    ck_assert_uint_eq(ask(&p, &q).level, BS_LEVEL_EMULATED);
    q.weight_dtype = BS_I8;
    ck_assert_uint_eq(ask(&p, &q).level, BS_LEVEL_NO);
    unmake(&m);
  }
  pl_close(&p);
}
END_TEST

int main(void) {
  const test_case tests[] = {{every_column_counts_once, 4},    {partitions}, {nothing},
                             {bits_do_not_depend_on_the_call}, {answers},    {0}};
  return run_tests("cuda rows", tests, (test_setup){0});
}
