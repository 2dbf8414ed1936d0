/* SPDX-License-Identifier: MIT
 * test_cuda_places.c - take, put and topk of the cuda plugin, their bodies run by the CPU twins, against ref
 * to the bit: random shapes, layouts, dtypes, kinds of index, in place and not. Nothing else is read or
 * written. */
#include <math.h>

#include "core/base/dtype.h"
#include "plain.h"
#include "plugins/cuda/ops/topk_body.h"
#include "tests/run_tests.h"

enum { TAKES = 6000, PUTS = 9000, TOPKS = 2000 };

static const uint32_t dtypes[] = {BS_BF16, BS_F16, BS_F32, BS_F64,    BS_I32,
                                  BS_I64,  BS_U8,  BS_I8,  BS_F8E4M3, BS_BOOL};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

/* ---- shapes --------------------------------------------------------------------------------------- */

typedef struct dims {
  uint32_t rank;
  int64_t of[BS_MAX_DIMS];
} dims;

static void push(dims *d, int64_t n) {
  ck_assert_uint_lt(d->rank, BS_MAX_DIMS);
  d->of[d->rank++] = n;
}

static int64_t elements(const dims *d) {
  int64_t n = 1;
  for (uint32_t i = 0; i < d->rank; i++) n *= d->of[i];
  return n;
}

/* Dense; a gap behind each row; rows on 16 bytes with gaps; turned; gaps between elements. */
static void make(pl_tensor *t, uint32_t dtype, const dims *d, uint64_t *seed) {
  const int64_t how = fx_below(seed, 5);
  int64_t strides[BS_MAX_DIMS] = {0}, step = how == 4 ? 2 : 1;
  for (uint32_t k = d->rank; k-- > 0;) {
    const uint32_t i = how == 3 ? d->rank - 1 - k : k;
    strides[i] = step;
    step *= d->of[i] > 0 ? d->of[i] : 1;
    if (how == 1) step += fx_below(seed, 3);
    if (how == 2) step = (step + 31) / 16 * 16;
  }
  pl_make(t, dtype, d->rank, d->of, strides, (int)fx_below(seed, PL_PLACES));
}

/* Any bits, and numbers that fold; gaps too. */
static void fill(pl_tensor *t, uint64_t *seed) {
  static const double values[] = {0.0, -0.0, NAN, INFINITY, -INFINITY, 1.0, -3.5, 200.0, 0x1p-12, 7.0};
  for (int64_t i = 0; i < (int64_t)(t->t.bytes / BS_DTYPE_BYTES(t->t.dtype)); i++) {
    const uint64_t bits = t->t.dtype == BS_BOOL ? fx_next(seed) & 1 : fx_next(seed);
    const int64_t pick = fx_below(seed, 20);
    unsigned char *at = (unsigned char *)t->t.data + i * (int64_t)BS_DTYPE_BYTES(t->t.dtype);
    if (pick < 10)
      bs_store_f64(t->t.dtype, at, 0, values[pick]);
    else
      memcpy(at, &bits, BS_DTYPE_BYTES(t->t.dtype));
  }
}

/* ---- an index ------------------------------------------------------------------------------------- */

typedef struct asked {
  int64_t kind, axis, batch;
  dims large, index, small;
  uint32_t tuple;
} asked;

static void ask_rows(asked *a, int put, uint64_t *seed) {
  const int by_row = put && a->axis > 0 && fx_below(seed, 2) == 0;
  const int64_t n = 1 + fx_below(seed, 6);
  const int64_t rank = put ? 1 : fx_below(seed, BS_MAX_DIMS + 2 - a->large.rank < 4 ? 2 : 3);
  if (by_row) push(&a->index, a->large.of[0]);
  for (int64_t i = 0; i < rank; i++) push(&a->index, i == 0 ? n : 1 + fx_below(seed, 3));
  for (uint32_t d = 0; d < a->large.rank; d++) {
    if ((int64_t)d != a->axis) push(&a->small, a->large.of[d]);
    if ((int64_t)d != a->axis) continue;
    for (int64_t i = 0; i < rank; i++) push(&a->small, a->index.of[i + by_row]);
  }
}

static void ask_elements(asked *a, uint64_t *seed) {
  for (uint32_t d = 0; d < a->large.rank; d++) {
    const int64_t size = a->large.of[d];
    push(&a->index, (int64_t)d == a->axis                ? 1 + fx_below(seed, 6)
                    : fx_below(seed, 3) == 0 && size > 0 ? 1 + fx_below(seed, size)
                                                         : size);
  }
  a->small = a->index;
}

static void ask_tuples(asked *a, int put, uint64_t *seed) {
  a->batch = put ? 0 : fx_below(seed, a->large.rank < 3 ? a->large.rank : 3);
  a->tuple = 1 + (uint32_t)fx_below(seed, (int64_t)a->large.rank - a->batch);
  int64_t lead = fx_below(seed, 3);
  for (int64_t d = 0; d < a->batch; d++) push(&a->index, a->large.of[d]);
  while (lead + (int64_t)a->large.rank - a->tuple > BS_MAX_DIMS) lead--;
  for (int64_t i = 0; i < lead; i++) push(&a->index, 1 + fx_below(seed, 4));
  a->small = a->index;
  push(&a->index, a->tuple);
  for (uint32_t d = (uint32_t)a->batch + a->tuple; d < a->large.rank; d++) push(&a->small, a->large.of[d]);
}

static asked ask(int put, uint64_t *seed) {
  asked a = {.kind = fx_below(seed, 3), .tuple = 1};
  const int64_t rank = 1 + fx_below(seed, 4);
  for (int64_t d = 0; d < rank; d++) push(&a.large, 1 + fx_below(seed, 5));
  if (fx_below(seed, 2) == 0) a.large.of[rank - 1] = 8 * (1 + fx_below(seed, 9));
  a.axis = fx_below(seed, rank);
  if (rank > 1 && fx_below(seed, 12) == 0) a.large.of[(a.axis + 1) % rank] = 0; /* empty */
  if (a.kind == BS_INDEX_ROWS) ask_rows(&a, put, seed);
  if (a.kind == BS_INDEX_ELEMENTS) ask_elements(&a, seed);
  if (a.kind == BS_INDEX_TUPLES) ask_tuples(&a, put, seed);
  return a;
}

/* An index of a dim without places must have no numbers. */
static int can_be(const asked *a) {
  for (uint32_t c = 0; c < a->tuple; c++)
    if (a->large.of[a->kind == BS_INDEX_TUPLES ? a->batch + c : a->axis] == 0 && elements(&a->index) > 0)
      return 0;
  return 1;
}

static void make_index(pl_tensor *t, const asked *a, uint32_t dtype, uint64_t *seed) {
  make(t, dtype, &a->index, seed);
  for (int64_t i = 0; i < elements(&a->index); i++) {
    int64_t rest = i, offset = 0, last = 0;
    for (uint32_t d = a->index.rank; d-- > 0;) {
      const int64_t dim = a->index.of[d] > 0 ? a->index.of[d] : 1, at = rest % dim;
      if (d + 1 == a->index.rank) last = at;
      rest /= dim;
      offset += at * t->t.strides[d];
    }
    const int64_t size = a->large.of[a->kind == BS_INDEX_TUPLES ? a->batch + last : a->axis];
    const int64_t v = fx_below(seed, 2 * size) - size;
    const int32_t narrow = (int32_t)v;
    unsigned char *at = (unsigned char *)t->t.data + offset * (int64_t)BS_DTYPE_BYTES(dtype);
    memcpy(at, dtype == BS_I32 ? (const void *)&narrow : (const void *)&v, BS_DTYPE_BYTES(dtype));
  }
}

/* Sometimes one number (or tuple) for all positions. */
static void repeat_index(pl_tensor *t, const asked *a, uint64_t *seed) {
  const uint32_t last = a->kind == BS_INDEX_TUPLES ? a->index.rank - 1 : a->index.rank;
  if (fx_below(seed, 8) != 0) return;
  for (uint32_t d = 0; d < last; d++) t->t.strides[d] = t->d.strides[d] = 0;
}

/* ---- tests ---------------------------------------------------------------------------------------- */

START_TEST(takes_of_every_kind) {
  pl p;
  pl_open(&p);
  uint64_t seed = 71;
  int done = 0;
  for (int i = 0; i < TAKES; i++) {
    const asked a = ask(0, &seed);
    const uint32_t dtype = dtypes[i % DTYPES];
    char what[64];
    pl_tensor data, index, got, want;
    if (!can_be(&a)) continue;
    make(&data, dtype, &a.large, &seed);
    make_index(&index, &a, i / DTYPES % 2 ? BS_I32 : BS_I64, &seed);
    repeat_index(&index, &a, &seed);
    uint64_t same = seed;
    make(&got, dtype, &a.small, &seed);
    make(&want, dtype, &a.small, &same);
    fill(&data, &seed);
    const bs_tensor_desc *descs[3] = {&data.d, &index.d, &got.d};
    bs_op_query q = fx_query("take", descs, 3);
    q.attrs[0] = a.kind;
    q.attrs[1] = a.axis;
    q.attrs[2] = a.batch;
    pl_run_ref(&p, &q, NULL, (bs_tensor *[]){&data.t, &index.t, &want.t});
    pl_run_cuda(&p, &cuda_take, &q, NULL, (bs_tensor *[]){&data.t, &index.t, &got.t});
    snprintf(what, sizeof what, "take %d, kind %d", i, (int)a.kind);
    pl_same_bits(&got, &want, what);
    done++;
    pl_free(&data);
    pl_free(&index);
    pl_free(&got);
    pl_free(&want);
  }
  ck_assert_int_gt(done, TAKES * 3 / 4);
  pl_close(&p);
}
END_TEST

/* Which NaN a sum or a product of NaNs is, is the processor's. */
static void level_nans(pl_tensor *t, int64_t how) {
  const uint32_t size = BS_DTYPE_BYTES(t->t.dtype);
  if (how != BS_PUT_ADD && how != BS_PUT_MUL) return;
  for (uint64_t i = 0; i < t->t.bytes / size; i++) {
    unsigned char *at = (unsigned char *)t->t.data + i * size;
    if (isnan(bs_load_f64(t->t.dtype, at, 0))) bs_store_f64(t->t.dtype, at, 0, NAN);
  }
}

static void put_once(pl *p, const asked *a, uint32_t dtype, int64_t how, int number, uint64_t *seed) {
  const int in_place = (int)fx_below(seed, 2);
  char what[64];
  pl_tensor base, index, updates, got, want;
  make(&base, dtype, &a->large, seed);
  make_index(&index, a, number / DTYPES % 2 ? BS_I32 : BS_I64, seed);
  repeat_index(&index, a, seed);
  make(&updates, dtype, &a->small, seed);
  uint64_t same = *seed;
  make(&got, dtype, &a->large, seed);
  make(&want, dtype, &a->large, &same);
  fill(&base, seed);
  fill(&updates, seed);
  fill(&got, seed);
  pl_copy(&want, &got);
  const bs_tensor_desc *descs[4] = {in_place ? &got.d : &base.d, &index.d, &updates.d, &got.d};
  bs_op_query q = fx_query("put", descs, 4);
  q.attrs[0] = a->kind;
  q.attrs[1] = a->axis;
  q.attrs[3] = how;
  pl_run_ref(p, &q, NULL, (bs_tensor *[]){in_place ? &want.t : &base.t, &index.t, &updates.t, &want.t});
  pl_run_cuda(p, &cuda_put_op, &q, NULL,
              (bs_tensor *[]){in_place ? &got.t : &base.t, &index.t, &updates.t, &got.t});
  level_nans(&got, how);
  level_nans(&want, how);
  snprintf(what, sizeof what, "put %d, kind %d, how %d", number, (int)a->kind, (int)how);
  pl_same_bits(&got, &want, what);
  pl_free(&base);
  pl_free(&index);
  pl_free(&updates);
  pl_free(&got);
  pl_free(&want);
}

START_TEST(puts_of_every_kind) {
  pl p;
  pl_open(&p);
  uint64_t seed = 73;
  int done = 0;
  for (int i = 0; i < PUTS; i++) {
    const asked a = ask(1, &seed);
    const uint32_t dtype = dtypes[i % DTYPES];
    const int64_t how = i % 3 == 0 || dtype == BS_BOOL ? BS_PUT_SET : fx_below(&seed, BS_PUT_MIN + 1);
    if (!can_be(&a)) continue;
    put_once(&p, &a, dtype, how, i, &seed);
    done++;
  }
  ck_assert_int_gt(done, PUTS * 3 / 4);
  pl_close(&p);
}
END_TEST

/* Rows of 16 bytes go in such units, and an update of a cache writes its positions alone. */
START_TEST(units_are_wide) {
  pl p;
  pl_open(&p);
  uint64_t seed = 79;
  const int64_t table[2] = {10, 4096}, four[1] = {4}, out[2] = {4, 4096};
  const int64_t cache[4] = {1, 2, 64, 128}, fresh[4] = {1, 2, 4, 128};
  pl_tensor data, index, rows, state, updates;
  pl_make(&data, BS_BF16, 2, table, NULL, PL_FIRST);
  pl_make(&index, BS_I64, 1, four, NULL, PL_FIRST);
  pl_make(&rows, BS_BF16, 2, out, NULL, PL_FIRST);
  pl_make(&state, BS_BF16, 4, cache, NULL, PL_FIRST);
  pl_make(&updates, BS_BF16, 4, fresh, NULL, PL_FIRST);
  fill(&data, &seed);
  for (int64_t i = 0; i < 4; i++) ((int64_t *)index.t.data)[i] = 9 - i;
  const bs_tensor_desc *taken[3] = {&data.d, &index.d, &rows.d};
  bs_op_query q = fx_query("take", taken, 3);
  pl_run_cuda(&p, &cuda_take, &q, NULL, (bs_tensor *[]){&data.t, &index.t, &rows.t});
  ck_assert_int_eq(p.launches, 1);
  ck_assert_int_eq(p.blocks, 4 * 4096 / 8 / 256);
  const bs_tensor_desc *put[4] = {&state.d, &index.d, &updates.d, &state.d};
  q = fx_query("put", put, 4);
  q.attrs[1] = 2;
  pl_run_cuda(&p, &cuda_put_op, &q, NULL, (bs_tensor *[]){&state.t, &index.t, &updates.t, &state.t});
  ck_assert_int_eq(p.launches, 2);
  ck_assert_int_eq(p.blocks, 4 * 4096 / 8 / 256 + 1);
  pl_free(&data);
  pl_free(&index);
  pl_free(&rows);
  pl_free(&state);
  pl_free(&updates);
  pl_close(&p);
}
END_TEST

/* What ref refuses: a take reads 0, a put writes nothing, and neither leaves its tensors. */
START_TEST(an_index_outside) {
  static const int64_t wrong[] = {3, -4, INT64_MAX, INT64_MIN, 1};
  const int64_t table[2] = {3, 2}, five[1] = {5}, out[2] = {5, 2};
  pl p;
  pl_open(&p);
  pl_tensor data, index, rows;
  pl_make(&data, BS_F32, 2, table, NULL, PL_LAST);
  pl_make(&index, BS_I64, 1, five, NULL, PL_LAST);
  pl_make(&rows, BS_F32, 2, out, NULL, PL_LAST);
  for (int64_t i = 0; i < 5; i++) ((int64_t *)index.t.data)[i] = wrong[i];
  for (int64_t i = 0; i < 6; i++) ((float *)data.t.data)[i] = (float)i;
  const bs_tensor_desc *taken[3] = {&data.d, &index.d, &rows.d};
  bs_op_query q = fx_query("take", taken, 3);
  pl_run_cuda(&p, &cuda_take, &q, NULL, (bs_tensor *[]){&data.t, &index.t, &rows.t});
  for (int64_t i = 0; i < 10; i++)
    ck_assert_double_eq(pl_get(&rows, i / 2, i % 2), (double)(i < 8 ? i % 2 : i - 6));
  for (int64_t i = 0; i < 10; i++) pl_set(&rows, i / 2, i % 2, 50.0 + (double)i);
  for (int64_t how = BS_PUT_SET; how <= BS_PUT_MIN; how++) {
    const bs_tensor_desc *put[4] = {&data.d, &index.d, &rows.d, &data.d};
    q = fx_query("put", put, 4);
    q.attrs[3] = how;
    pl_run_cuda(&p, &cuda_put_op, &q, NULL, (bs_tensor *[]){&data.t, &index.t, &rows.t, &data.t});
    for (int64_t i = 0; i < 6; i++)
      if (i / 2 != 1) ck_assert_double_eq(pl_get(&data, i / 2, i % 2), (double)i);
  }
  pl_free(&data);
  pl_free(&index);
  pl_free(&rows);
  pl_close(&p);
}
END_TEST

START_TEST(a_place_in_nothing) {
  const int64_t table[2] = {0, 2}, one[1] = {1}, out[2] = {1, 2};
  pl p;
  pl_open(&p);
  pl_tensor data, index, rows;
  pl_make(&data, BS_F32, 2, table, NULL, PL_LAST);
  pl_make(&index, BS_I64, 1, one, NULL, PL_LAST);
  pl_make(&rows, BS_F32, 2, out, NULL, PL_LAST);
  const bs_tensor_desc *taken[3] = {&data.d, &index.d, &rows.d},
                       *put[4] = {&data.d, &index.d, &rows.d, &data.d};
  bs_tensor *const args[4] = {&data.t, &index.t, &rows.t, &data.t};
  for (uint32_t i = 0; i < 2; i++) {
    const bs_op_impl *impl = i ? &cuda_put_op : &cuda_take;
    const bs_op_query q = fx_query(impl->op, i ? put : taken, 3 + i);
    void *plan = NULL;
    bs_error err = BS_ERROR_INIT;
    ck_assert_int_eq(impl->prepare(&p.state, &p.exec, &q, NULL, &plan, &err), BS_OK);
    ck_assert_int_eq(impl->run(plan, args, 3 + i, NULL, &err), BS_INVALID_ARGUMENT);
    ck_assert_str_eq(err.id, "BS-OP-INDEX");
    impl->plan_free(plan);
  }
  ck_assert_int_eq(p.launches, 0);
  pl_free(&data);
  pl_free(&index);
  pl_free(&rows);
  pl_close(&p);
}
END_TEST

static bs_tensor_desc desc(uint32_t dtype, uint32_t rank, int64_t a, int64_t b) {
  bs_tensor_desc d = {.struct_size = (uint32_t)sizeof d, .dtype = dtype, .rank = rank, .dims = {a, b}};
  d.strides[0] = rank == 2 ? b : 1;
  d.strides[1] = 1;
  return d;
}

START_TEST(refusals) {
  pl p;
  pl_open(&p);
  const bs_tensor_desc table = desc(BS_F32, 2, 8, 4), whole = desc(BS_BOOL, 2, 8, 4),
                       n = desc(BS_I64, 1, 5, 0), floats = desc(BS_F32, 1, 5, 0),
                       rows = desc(BS_F32, 2, 5, 4), other = desc(BS_F16, 2, 5, 4),
                       bools = desc(BS_BOOL, 2, 5, 4), long_n = desc(BS_I64, 1, 4097, 0),
                       long_rows = desc(BS_F32, 2, 4097, 4), last_n = desc(BS_I64, 1, 4096, 0),
                       last_rows = desc(BS_F32, 2, 4096, 4), tuples = desc(BS_I64, 2, 4097, 1);
  const struct {
    const bs_tensor_desc *base, *index, *moved;
    int64_t kind, axis, how;
    uint32_t take, put;
  } cases[] = {{&table, &n, &rows, 0, 0, 0, BS_REASON_NONE, BS_REASON_NONE},
               {&table, &floats, &rows, 0, 0, 0, BS_REASON_DTYPE, BS_REASON_DTYPE},
               {&table, &n, &other, 0, 0, 0, BS_REASON_DTYPE, BS_REASON_DTYPE},
               {&table, &n, &n, 1, 0, 0, BS_REASON_DTYPE, BS_REASON_DTYPE},
               {&table, &n, &rows, 1, 0, 0, BS_REASON_RANK, BS_REASON_RANK},
               {&table, &n, &rows, 0, 2, 0, BS_REASON_RANK, BS_REASON_RANK},
               {&table, &n, &rows, 3, 0, 0, BS_REASON_NOT_BUILT, BS_REASON_NOT_BUILT},
               {&table, &n, &rows, 0, 0, 5, BS_REASON_NONE, BS_REASON_NOT_BUILT},
               {&whole, &n, &bools, 0, 0, 1, BS_REASON_NONE, BS_REASON_DTYPE},
               {&table, &last_n, &last_rows, 0, 0, 0, BS_REASON_NONE, BS_REASON_NONE},
               {&table, &long_n, &long_rows, 0, 0, 0, BS_REASON_NONE, BS_REASON_SHAPE},
               {&table, &tuples, &long_rows, 2, 0, 1, BS_REASON_NONE, BS_REASON_SHAPE},
               {&table, NULL, &rows, 0, 0, 0, BS_REASON_RANK, BS_REASON_RANK}};
  for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
    const bs_tensor_desc *descs[4] = {cases[i / 2].base, cases[i / 2].index, cases[i / 2].moved,
                                      cases[i / 2].base};
    const bs_op_impl *impl = i % 2 ? &cuda_put_op : &cuda_take;
    bs_op_query q = fx_query(impl->op, descs, i % 2 ? 4 : 3);
    bs_op_answer answer = {.struct_size = (uint32_t)sizeof answer};
    q.attrs[0] = cases[i / 2].kind;
    q.attrs[1] = cases[i / 2].axis;
    q.attrs[3] = cases[i / 2].how;
    ck_assert_int_eq(impl->supports(&p.state, &q, &answer), BS_OK);
    ck_assert_msg(answer.reason == (i % 2 ? cases[i / 2].put : cases[i / 2].take), "case %d of %s: %u",
                  (int)i / 2, impl->op, answer.reason);
    ck_assert_int_eq(answer.level == BS_LEVEL_NO, answer.reason != BS_REASON_NONE);
    ck_assert_int_eq(answer.text[0] != 0, 1);
  }
  pl_close(&p);
}
END_TEST

/* Lines of one value to many, a few of them as long as a block takes. */
static dims topk_dims(int i, int64_t axis, int64_t most, uint64_t *seed) {
  dims d = {.rank = 0};
  const int64_t rank = 1 + fx_below(seed, 4);
  for (int64_t j = 0; j < rank; j++)
    push(&d, i % 40 == 0 && fx_below(seed, 4) == 0 ? 0 : 1 + fx_below(seed, 4));
  d.of[axis % rank] = i % 50 == 1 ? most - fx_below(seed, 2) * 3000 : fx_below(seed, i % 3 ? 12 : 300);
  if (i % 50 == 1 && rank > 1) d.of[(axis + 1) % rank] = 1;
  return d;
}

/* Few numbers, so that many are equal; both zeros and NaNs of both signs. */
static void fill_equal(pl_tensor *t, uint64_t *seed) {
  fill(t, seed);
  const uint32_t size = BS_DTYPE_BYTES(t->t.dtype);
  for (uint64_t i = 0; i < t->t.bytes / size; i++)
    if (fx_below(seed, 3) > 0)
      bs_store_f64(t->t.dtype, (unsigned char *)t->t.data + i * size, 0, (double)fx_below(seed, 9) - 4.0);
}

START_TEST(topk_of_every_kind) {
  pl p;
  pl_open(&p);
  uint64_t seed = 83;
  for (int i = 0; i < TOPKS; i++) {
    const int64_t pick = fx_below(&seed, 4);
    const uint32_t dtype = dtypes[i % DTYPES];
    const dims d = topk_dims(i, pick, BS_DTYPE_BYTES(dtype) > 4 ? TOPK_WIDE : TOPK_MOST, &seed);
    const int64_t axis = d.rank > 0 ? pick % d.rank : 0, n = d.of[axis];
    dims first = d;
    pl_tensor in, values[2], indices[2];
    char what[64];
    first.of[axis] = fx_below(&seed, 2) ? n : fx_below(&seed, n + 1);
    make(&in, dtype, &d, &seed);
    fill_equal(&in, &seed);
    const uint64_t start = seed;
    for (int j = 0; j < 2; j++) {
      seed = start;
      make(&values[j], dtype, &first, &seed);
      make(&indices[j], i % 2 ? BS_I32 : BS_I64, &first, &seed);
    }
    const bs_tensor_desc *descs[3] = {&in.d, &values[0].d, &indices[0].d};
    bs_op_query q = fx_query("topk", descs, 3);
    q.attrs[0] = axis;
    q.attrs[1] = fx_below(&seed, 2);
    pl_run_cuda(&p, &cuda_topk, &q, NULL, (bs_tensor *[]){&in.t, &values[0].t, &indices[0].t});
    pl_run_ref(&p, &q, NULL, (bs_tensor *[]){&in.t, &values[1].t, &indices[1].t});
    snprintf(what, sizeof what, "topk %d of %d", i, (int)n);
    pl_same_bits(&indices[0], &indices[1], what);
    pl_same_bits(&values[0], &values[1], what);
    pl_free(&in);
    for (int j = 0; j < 2; j++) {
      pl_free(&values[j]);
      pl_free(&indices[j]);
    }
  }
  ck_assert_int_gt(p.launches, TOPKS / 2);
  pl_close(&p);
}
END_TEST

START_TEST(topk_refusals) {
  pl p;
  pl_open(&p);
  const bs_tensor_desc in = desc(BS_F32, 2, 3, TOPK_MOST), values = desc(BS_F32, 2, 3, 2),
                       indices = desc(BS_I64, 2, 3, 2), wide = desc(BS_F64, 2, 3, TOPK_WIDE + 1),
                       wide_out = desc(BS_F64, 2, 3, 2), beyond = desc(BS_F32, 2, 3, TOPK_MOST + 1),
                       one = desc(BS_F32, 2, 3, 1);
  const struct {
    const bs_tensor_desc *in, *values, *indices;
    int64_t axis;
    uint32_t reason;
  } cases[] = {
      {&in, &values, &indices, 1, BS_REASON_NONE},      {&in, &values, &indices, 2, BS_REASON_RANK},
      {&in, &values, &values, 1, BS_REASON_DTYPE},      {&in, &indices, &indices, 1, BS_REASON_DTYPE},
      {&wide, &wide_out, &indices, 1, BS_REASON_SHAPE}, {&beyond, &values, &indices, 1, BS_REASON_SHAPE},
      {&one, &values, &indices, 1, BS_REASON_SHAPE},    {&in, NULL, &indices, 1, BS_REASON_RANK}};
  for (int i = 0; i < TEST_COUNT(cases); i++) {
    const bs_tensor_desc *descs[3] = {cases[i].in, cases[i].values, cases[i].indices};
    bs_op_query q = fx_query("topk", descs, 3);
    bs_op_answer answer = {.struct_size = (uint32_t)sizeof answer};
    q.attrs[0] = cases[i].axis;
    ck_assert_int_eq(cuda_topk.supports(&p.state, &q, &answer), BS_OK);
    ck_assert_msg(answer.reason == cases[i].reason, "case %d: %u", i, answer.reason);
    ck_assert_int_eq(answer.level == BS_LEVEL_NO, answer.reason != BS_REASON_NONE);
  }
  pl_close(&p);
}
END_TEST

int main(void) {
  const test_case tests[] = {{takes_of_every_kind}, {puts_of_every_kind}, {units_are_wide},
                             {an_index_outside},    {a_place_in_nothing}, {refusals},
                             {topk_of_every_kind},  {topk_refusals},      {0}};
  return run_tests("cuda places", tests, (test_setup){.timeout = 60});
}
