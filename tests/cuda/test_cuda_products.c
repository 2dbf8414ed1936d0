/* SPDX-License-Identifier: MIT
 * test_cuda_products.c - matmul and its derivatives of the cuda plugin, host's side and the CPU twins of the
 * kernels, against ref to the bit: the twins round each product and each sum as ref does. Every dtype, shapes
 * about the edges of a tile, strides, partitions, special values, what is promised and what is refused. */
#include <math.h>

#include "plugins/cuda/ops/products.h"
#include "products_case.h"
/**/
#include "plugins/cuda/ops/product_f32.h"
/**/
#include "plugins/cuda/ops/product_body.h"
#include "tests/run_tests.h"

static const uint32_t floats[6] = {BS_F64, BS_F32, BS_F16, BS_BF16, BS_F8E4M3, BS_F8E5M2};
static const uint32_t integers[4] = {BS_I64, BS_I32, BS_I8, BS_U8};

/* Every pair of X's and the weight's dtype, and every dtype of Y. */
START_TEST(every_float) {
  pl p;
  uint64_t seed = 3 + (uint64_t)_i;
  pl_open(&p);
  for (int w = 0; w < 6; w++) {
    const pc_shape s = {.x = floats[_i],
                        .w = floats[w],
                        .y = floats[(_i + w) % 6],
                        .grad = floats[(w + 1) % 6],
                        .sums = w % 2 == 0 ? BS_F32 : BS_F64,
                        .B = 3 + w,
                        .N = 70,
                        .K = 21 + _i,
                        .lay = w % PC_LAYS,
                        .epilogue = w % 2,
                        .accumulate = w % 3 == 2 ? BS_ACC_F64 : BS_ACC_DEFAULT};
    pc_all(&p, &s, &seed);
  }
  pl_close(&p);
}
END_TEST

/* Any bit pattern: sums wrap as ref's do. */
START_TEST(every_integer) {
  pl p;
  uint64_t seed = 5;
  pl_open(&p);
  for (int x = 0; x < 4; x++)
    for (int w = 0; w < 4; w++) {
      const uint32_t sums = (x + w) % 2 == 0 ? BS_I32 : BS_I64;
      const pc_shape s = {.x = integers[x],
                          .w = integers[w],
                          .y = sums,
                          .grad = integers[(w + x) % 4],
                          .sums = sums,
                          .B = 9,
                          .N = 5,
                          .K = 40 + w,
                          .lay = (x + w) % PC_LAYS,
                          .epilogue = x % 2,
                          .activation = w % 2 == 0 ? BS_ACT_RELU : BS_ACT_NONE};
      pc_all(&p, &s, &seed);
    }
  pl_close(&p);
}
END_TEST

/* Sizes about a tile's: each with two others, however matrices lie and wherever they begin. */
START_TEST(edges_of_tiles) {
  static const int64_t sizes[] = {0, 1, 3, 15, 16, 17, 63, 64, 65, 127};
  enum { SIZES = sizeof sizes / sizeof sizes[0] };
  static const uint32_t types[3] = {BS_F32, BS_BF16, BS_F64};
  pl p;
  uint64_t seed = 7;
  pl_open(&p);
  for (int i = 0; i < SIZES; i++)
    for (int turn = 0; turn < 3; turn++) {
      const int64_t other = 4 + 2 * turn, more = sizes[(i + 3 * turn + 1) % SIZES];
      const uint32_t type = types[(i + turn) % 3];
      const pc_shape s = {.x = type,
                          .w = type,
                          .y = BS_F32,
                          .grad = type,
                          .sums = BS_F32,
                          .B = turn == 0   ? sizes[i]
                               : turn == 1 ? more
                                           : other,
                          .N = turn == 1   ? sizes[i]
                               : turn == 2 ? more
                                           : other,
                          .K = turn == 2   ? sizes[i]
                               : turn == 0 ? more
                                           : other,
                          .lay = _i,
                          .where = (i + turn) % PL_PLACES,
                          .epilogue = turn % 2};
      pc_all(&p, &s, &seed);
    }
  pl_close(&p);
}
END_TEST

START_TEST(partitions) {
  pl p;
  uint64_t seed = 11;
  pl_open(&p);
  for (int full = 0; full < 2; full++)
    for (int lay = 0; lay < PC_LAYS; lay++) {
      const uint32_t type = lay % 2 == 0 ? BS_F32 : BS_BF16;
      const pc_shape s = {.x = type,
                          .w = type,
                          .y = type,
                          .grad = type,
                          .sums = BS_F32,
                          .B = 6,
                          .N = 9,
                          .K = 150 - 2 * lay,
                          .lay = lay,
                          .where = lay % PL_PLACES,
                          .part = _i,
                          .full = full};
      pc_all(&p, &s, &seed);
    }
  const pc_shape none = {.x = BS_F32,
                         .w = BS_F32,
                         .y = BS_F32,
                         .grad = BS_F32,
                         .sums = BS_F32,
                         .B = 2,
                         .N = 3,
                         .K = 1,
                         .part = _i,
                         .full = 1};
  pc_all(&p, &none, &seed);
  pl_close(&p);
}
END_TEST

START_TEST(special_values) {
  static const uint32_t acts[] = {BS_ACT_NONE, BS_ACT_RELU, BS_ACT_GELU, BS_ACT_SILU, BS_ACT_GELU_TANH};
  pl p;
  uint64_t seed = 13;
  pl_open(&p);
  for (int t = 0; t < 6; t++)
    for (int wide = 0; wide < 2; wide++) {
      const pc_shape s = {.x = floats[t],
                          .w = floats[t],
                          .y = wide ? BS_F64 : floats[t],
                          .grad = floats[t],
                          .sums = BS_F32,
                          .B = 17,
                          .N = 33,
                          .K = 35,
                          .activation = acts[_i],
                          .epilogue = 1,
                          .rare = 40};
      pc_all(&p, &s, &seed);
    }
  pl_close(&p);
}
END_TEST

static void ask(const bs_op_impl *impl, void *state, const bs_op_query *q, bs_op_answer *out) {
  memset(out, 0, sizeof *out);
  out->struct_size = (uint32_t)sizeof *out;
  ck_assert_int_eq(impl->supports(state, q, out), BS_OK);
}

/* A query that ref refuses is refused, with the same reason, and the others have its tolerance. */
START_TEST(answers_are_those_of_ref) {
  static const char *const ops[4] = {"matmul", "matmul_dx", "matmul_dw", "matmul_update"};
  static const uint32_t dtypes[] = {BS_F32, BS_F64, BS_BF16, BS_I8, BS_I32, BS_BOOL};
  enum { DTYPES = sizeof dtypes / sizeof dtypes[0] };
  pl p;
  pc c;
  uint64_t seed = 17;
  int served = 0, refused = 0;
  const pc_shape s = {
      .x = BS_F32, .w = BS_F32, .y = BS_F32, .grad = BS_F32, .sums = BS_F32, .B = 2, .N = 3, .K = 4};
  pl_open(&p);
  pc_open(&c, &p, &s, &seed);
  const char *op = ops[_i];
  for (int n = 0; n < 4000; n++) {
    bs_tensor_desc d[4];
    const bs_tensor_desc *args[4];
    void *state = NULL;
    for (int i = 0; i < 4; i++) {
      d[i] = bs_desc_2d(dtypes[fx_below(&seed, DTYPES)], 2 + (fx_below(&seed, 40) == 0), 3);
      args[i] = fx_below(&seed, 30) == 0 ? NULL : &d[i];
    }
    const bs_tensor_desc vector = {.struct_size = sizeof vector, .dtype = d[1].dtype, .rank = 1, .dims = {3}};
    const bs_tensor_desc one = {.struct_size = sizeof one, .dtype = BS_F32, .rank = 1, .dims = {1}};
    if (_i == 0) args[1] = fx_below(&seed, 2) ? &vector : NULL;
    if (_i == 0 && fx_below(&seed, 2)) args[2] = NULL;
    if (_i == 3) args[2] = &one;
    bs_op_query q = fx_query(op, args, _i == 0 ? 4 : _i == 1 ? 2 : 3);
    q.weight_dtype = dtypes[fx_below(&seed, DTYPES)];
    q.accumulate = (uint32_t)fx_below(&seed, 4);
    q.activation = fx_below(&seed, 3) == 0 ? (uint32_t)fx_below(&seed, 5) : BS_ACT_NONE;
    if (q.activation == BS_ACT_GELU_TANH) q.activation = BS_ACT_GELU_TANH + 1; /* not built for a GPU */
    q.flags = (uint32_t)fx_below(&seed, 16) & ~(uint32_t)BS_QUERY_X_FULL;
    bs_op_answer got, want;
    ask(pc_impl(&c, op), &p.state, &q, &got);
    const bs_op_impl *ref = fx_impl(op, &state);
    ask(ref, state, &q, &want);
    ck_assert_uint_eq(got.level, want.level);
    ck_assert_uint_eq(got.reason, want.reason);
    ck_assert_uint_eq(got.tolerance, want.tolerance);
    ck_assert_uint_ne(got.text[0], 0);
    if (got.level == BS_LEVEL_NO)
      refused++;
    else
      served++;
  }
  ck_assert_int_gt(served, 30);
  ck_assert_int_gt(refused, 30);
  pc_close(&c);
  pl_close(&p);
}
END_TEST

/* A row of Y is the same whatever is beside it: alone, with others, in a plan for fewer or more. */
START_TEST(rows_do_not_know_of_each_other) {
  const pc_shape s = {
      .x = BS_F32, .w = BS_BF16, .y = BS_F32, .grad = BS_F32, .sums = BS_F32, .B = 130, .N = 67, .K = 77};
  pl p;
  pc c;
  uint64_t seed = 19;
  pl_open(&p);
  pc_open(&c, &p, &s, &seed);
  pc_forward(&c);
  const bs_tensor_desc *args[4] = {&c.x.d, NULL, NULL, &c.y[0].d};
  const bs_op_query q = pc_query(&c, "matmul", args, 4);
  void *plan = NULL;
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(cuda_matmul.prepare(&p.state, &p.exec, &q, c.packed[0], &plan, &err), BS_OK);
  for (int64_t b = 0; b < s.B; b += 43) {
    bs_tensor x = c.x.t, y = c.y[1].t;
    x.dims[0] = y.dims[0] = 1;
    x.data = (float *)x.data + b * x.strides[0];
    memset(y.data, 0, (size_t)s.N * 4);
    ck_assert_int_eq(cuda_matmul.run(plan, (bs_tensor *[]){&x, NULL, NULL, &y}, 4, NULL, &err), BS_OK);
    ck_assert_mem_eq(y.data, (float *)c.y[0].t.data + b * c.y[0].t.strides[0], (size_t)s.N * 4);
  }
  cuda_matmul.plan_free(plan);
  pc_close(&c);
  pl_close(&p);
}
END_TEST

START_TEST(wrong_weights_are_refused) {
  const pc_shape s = {
      .x = BS_F32, .w = BS_F32, .y = BS_F32, .grad = BS_F32, .sums = BS_F32, .B = 2, .N = 3, .K = 4};
  const bs_tensor_desc x = bs_desc_2d(BS_F32, 2, 5), y = bs_desc_2d(BS_F32, 2, 3);
  const bs_tensor_desc *args[4] = {&x, NULL, NULL, &y};
  pl p;
  pc c;
  uint64_t seed = 23;
  void *plan = NULL, *packed = NULL;
  uint64_t bytes = 0;
  bs_error err = BS_ERROR_INIT;
  pl_open(&p);
  pc_open(&c, &p, &s, &seed);
  const bs_op_query q = pc_query(&c, "matmul", args, 4);
  const bs_source source = fx_source(&c.w);
  ck_assert_int_eq(cuda_matmul.prepare(&p.state, &p.exec, &q, c.packed[0], &plan, &err), BS_INVALID_ARGUMENT);
  ck_assert_str_eq(err.id, "BS-CUDA-WEIGHT");
  ck_assert_int_eq(cuda_matmul.prepare(&p.state, &p.exec, &q, NULL, &plan, &err), BS_INVALID_ARGUMENT);
  ck_assert_int_eq(cuda_matmul.pack(&p.state, &p.exec, &q, &source, &packed, &bytes, &err),
                   BS_INVALID_ARGUMENT);
  ck_assert_str_eq(err.id, "BS-CUDA-WEIGHT");
  ck_assert_int_eq(cuda_matmul.packed_read(c.packed[0], 1, &c.back[0].t, &err), BS_INVALID_ARGUMENT);
  ck_assert_int_eq(cuda_matmul.packed_update(c.packed[0], &c.y[0].t, &err), BS_INVALID_ARGUMENT);
  pc_close(&c);
  pl_close(&p);
}
END_TEST

/* A source that fails at a row, through a team. */
typedef struct broken {
  bs_source inner;
  int64_t at;
} broken;

static int32_t read_broken(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                           void *out, int64_t out_stride, bs_error *err) {
  const broken *b = ctx;
  if (row <= b->at && b->at < row + nrows)
    return bs_fail(err, BS_INVALID_ARGUMENT, "TEST-ROW", "row %lld", (long long)b->at);
  return b->inner.read(b->inner.ctx, row, nrows, cols, dtype, out, out_stride, err);
}

/* More rows than the two buffers hold, by a team of three; the last ones of some line; then sources that
 * fail in the first, a middle and the last panel, and no memory at any allocation: nothing is left. */
START_TEST(panels_in_turn) {
  pl p;
  pc c;
  uint64_t seed = 29, bytes = 0;
  bs_error err = BS_ERROR_INIT;
  const pc_shape s = {
      .x = BS_F32, .w = BS_F32, .y = BS_F32, .grad = BS_F32, .sums = BS_F32, .B = 1, .N = 3000, .K = 1201};
  pl_open(&p);
  p.f.exec.width = p.exec.width = 3;
  p.f.threads = 1;
  pc_open(&c, &p, &s, &seed);
  ck_assert_uint_eq(c.bytes[0], UINT64_C(3000) * 1204 * 4);
  pc_read(&c);
  const bs_tensor_desc *args[4] = {&c.x.d, NULL, NULL, &c.y[0].d};
  const bs_op_query q = pc_query(&c, "matmul", args, 4);
  broken b = {fx_source(&c.w), 0};
  bs_source source = b.inner;
  source.ctx = &b;
  source.read = read_broken;
  const int64_t live = p.f.live, rows[3] = {0, 1500, 2999};
  for (int i = 0; i < 3; i++) {
    void *packed = NULL;
    b.at = rows[i];
    ck_assert_int_eq(cuda_matmul.pack(&p.state, &p.exec, &q, &source, &packed, &bytes, &err),
                     BS_INVALID_ARGUMENT);
    ck_assert_str_eq(err.id, "TEST-ROW");
    ck_assert_int_eq(p.f.live, live);
  }
  for (int64_t n = 1;; n++) {
    void *packed = NULL;
    const bs_source whole = fx_source(&c.w);
    p.f.fail_alloc_at = n;
    const int32_t rc = cuda_matmul.pack(&p.state, &p.exec, &q, &whole, &packed, &bytes, &err);
    p.f.fail_alloc_at = 0;
    if (rc == BS_OK) cuda_matmul.packed_free(packed);
    ck_assert_int_eq(p.f.live, live);
    if (rc == BS_OK) break;
    ck_assert_int_eq(rc, BS_NO_MEMORY);
    ck_assert_int_lt(n, 20);
  }
  pc_close(&c);
  pl_close(&p);
}
END_TEST

/* ---- index maths ---------------------------------------------------------------------------- */

/* The threads of a block load each element of a panel once, and those of a warp store to different banks. */
START_TEST(threads_load_a_panel_once) {
  for (uint32_t along = 0; along < 2; along++) {
    int seen[PRODUCT_DEPTH][PRODUCT_TILE] = {{0}};
    for (uint32_t warp = 0; warp < PRODUCT_THREADS / 32; warp++) {
      uint32_t banks = 0;
      for (uint32_t lane = 0; lane < 32; lane++) {
        const product_place at = product_place_of(along, 32 * warp + lane);
        for (int q = 0; q < PRODUCT_EACH; q++) seen[at.depth + (along ? q : 0)][at.row + (along ? 0 : q)]++;
        if (along) banks |= 1u << (at.depth * PRODUCT_PITCH + at.row) % 32;
        if (!along) ck_assert_int_eq(at.row % 4, 0);
      }
      if (along) ck_assert_uint_eq(banks, 0xffffffffu);
    }
    for (int r = 0; r < PRODUCT_DEPTH; r++)
      for (int i = 0; i < PRODUCT_TILE; i++) ck_assert_int_eq(seen[r][i], 1);
  }
  int outputs[PRODUCT_TILE] = {0};
  for (uint32_t x = 0; x < 16; x++)
    for (int q = 0; q < PRODUCT_EACH; q++) outputs[product_output(x, q)]++;
  for (int i = 0; i < PRODUCT_TILE; i++) ck_assert_int_eq(outputs[i], 1);
}
END_TEST

/* The blocks of a grid make each tile once. */
START_TEST(blocks_make_each_tile_once) {
  for (int64_t rows = 1; rows < 300; rows += 31)
    for (int64_t cols = 1; cols < 300; cols += 21) {
      const product_args a = {.rows = rows, .cols = cols};
      const uint32_t down = product_tiles(rows), across = product_tiles(cols);
      unsigned char seen[5][5] = {{0}};
      for (uint32_t b = 0; b < down * across; b++) {
        const cuda_at at = {0, PRODUCT_THREADS, b, 0, 0};
        ck_assert_int_lt(product_row(&a, &at), rows);
        ck_assert_int_lt(product_col(&a, &at), cols);
        ck_assert_int_eq(seen[product_row(&a, &at) / PRODUCT_TILE][product_col(&a, &at) / PRODUCT_TILE]++, 0);
      }
    }
}
END_TEST

/* Four neighbours are loaded at once where they lie so, and never from an address that is not a multiple. */
START_TEST(sides_are_wide_where_they_may_be) {
  static _Alignas(64) unsigned char memory[64];
  for (uint32_t size = 1; size <= 8; size *= 2) {
    const int64_t unit = size < 4 ? 4 : 16 / size;
    for (int64_t row = 1; row < 40; row++) {
      const cuda_view dense = {memory, 3, 9, row, 1, BS_F32, size},
                      turned = {memory, 9, 3, 1, row, BS_F32, size};
      cuda_view off = dense;
      off.data = memory + size;
      const product_side a = cuda_product_side(&dense), b = cuda_product_side(&turned);
      ck_assert_uint_eq(a.along, 1);
      ck_assert_uint_eq(a.wide, row % unit == 0);
      ck_assert_uint_eq(b.along, row == 1);
      ck_assert_uint_eq(b.wide, row % unit == 0);
      ck_assert_uint_eq(cuda_product_side(&off).wide, 0);
    }
    const cuda_view spread = {memory, 3, 9, 32, 2, BS_F32, size};
    ck_assert_uint_eq(cuda_product_side(&spread).wide, 0);
  }
}
END_TEST

int main(void) {
  const test_case tests[] = {{every_float, 6},
                             {every_integer},
                             {edges_of_tiles, PC_LAYS},
                             {partitions, PC_LIST + 1, PC_RUN},
                             {special_values, 5},
                             {answers_are_those_of_ref, 4},
                             {rows_do_not_know_of_each_other},
                             {wrong_weights_are_refused},
                             {panels_in_turn},
                             {threads_load_a_panel_once},
                             {blocks_make_each_tile_once},
                             {sides_are_wide_where_they_may_be},
                             {0}};
  return run_tests("cuda_products", tests, (test_setup){0});
}
