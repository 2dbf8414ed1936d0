/* SPDX-License-Identifier: MIT
 *
 * test_cpu_quant.c - matmul_q and take_q on every instruction set that this machine has, with teams of 1, 2
 * and 16: the bits of docs/ops.md, by the kit's oracle. Every form of a weight, whole and partial panels,
 * blocks, groups and tiles of tokens; codes and X of their largest values; hostile scales and X. And the
 * memory that a pack takes. */
#include <math.h>

#include "core/op/quant.h"
#include "cpu_host.h"
#include "kit/graph.h"
#include "kit/op_q.h"
#include "tests/run_tests.h"

static const char *const sets[] = {"portable", "avx2", "avx512", "avx512_bf16", "amx_model", "amx"};
enum { FORMS = 28, CASES = 9 }; /* forms: of kit/op_q.c, by the seed */

static uint64_t drawn = 1;

static int64_t draw(const int64_t *of, int count) {
  return of[kit_below(&drawn, count)];
}

static void round_scale(float *v) {
  uint32_t bits;
  memcpy(&bits, v, sizeof bits);
  bits &= 0xffffe000u;
  memcpy(v, &bits, sizeof bits);
  if (!(fabsf(*v) >= 0x1p-14f)) *v = 0.0f;
}

/* Scales as files have them: then the packed weight keeps them as f16, and other kernels serve. */
static void fit_f16(kit_data *d) {
  for (int64_t i = 0; i < d->q->form.rows * d->q->spans; i++) {
    round_scale(&d->q->scales[i]);
    round_scale(&d->q->lows[i]);
  }
}

/* Case number `i` of a form: another B, N, K, X and team each. */
static void check_case(ch *c, uint64_t form, int i) {
  static const int64_t tokens[] = {1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 17, 24, 33, 65},
                       outputs[] = {1, 15, 16, 37, 64, 65, 83, 130},
                       columns[] = {1, 15, 16, 33, 64, 100, 128, 255, 256, 259, 300, 512, 530};
  static const uint32_t widths[] = {1, 2, 16}, types[] = {BS_F32, BS_F32, BS_BF16, BS_F16, BS_I8};
  kit_actor a;
  kit_data d;
  const uint32_t type = types[kit_below(&drawn, 5)];
  const kit_shape s = {.x = type,
                       .y = BS_F32,
                       .B = draw(tokens, TEST_COUNT(tokens)),
                       .N = draw(outputs, TEST_COUNT(outputs)),
                       .K = draw(columns, TEST_COUNT(columns)),
                       .activation = i % 4 == 2 ? BS_ACT_RELU : BS_ACT_NONE,
                       .bias = i % 4 == 1 ? BS_F32 : 0,
                       .residual = i % 4 == 2 ? BS_BF16 : 0,
                       .spread = i % 2 ? 1 : 0,
                       .values = i % 4 == 3 ? KIT_SPECIAL : KIT_PLAIN,
                       .plain = 1,
                       .seed = form + (uint64_t)(FORMS * (form + (uint64_t)i))};
  ch_actor(c, &a, "matmul_q", "panels", widths[i % 3]);
  kit_data_make(&d, "matmul_q", &s);
  if (i % 4 != 3 && (form + (uint64_t)i) % 3 != 0) fit_f16(&d);
  if (type != BS_I8 && i % 2 == 0) d.query.attrs[0] = 1;
  ch_check(&a, &d);
  kit_data_free(&a, &d);
  kit_actor_close(&a);
}

START_TEST(products) {
  static ch c;
  const char *set = sets[_i % TEST_COUNT(sets)];
  if (!ch_has_isa(set)) return;
  drawn = 77;
  ch_open(&c, set, "off");
  for (uint64_t form = 0; form < FORMS; form++)
    for (int i = 0; i < CASES; i++) check_case(&c, form, i);
  ch_close(&c);
}
END_TEST

/* Every number of tokens, by the forms of decoders: each takes other tiles, and above 64 parts of the tokens
 * are divided over the team. */
START_TEST(tokens) {
  static const uint64_t forms[] = {0, 8, 9, 10, 11, 1};
  static ch c;
  const char *set = sets[_i % TEST_COUNT(sets)];
  if (!ch_has_isa(set)) return;
  ch_open(&c, set, "off");
  for (int64_t B = 1; B <= 65; B++) {
    kit_actor a;
    kit_data d;
    const kit_shape s = {.x = BS_F32,
                         .y = BS_F32,
                         .B = B,
                         .N = 83,
                         .K = 290,
                         .plain = 1,
                         .seed = forms[B % 6] + (uint64_t)(FORMS * B)};
    ch_actor(&c, &a, "matmul_q", "panels", B % 2 ? 1 : 16);
    kit_data_make(&d, "matmul_q", &s);
    if (B % 4 != 0) fit_f16(&d);
    d.query.attrs[0] = B % 5 != 0;
    ch_check(&a, &d);
    kit_data_free(&a, &d);
    kit_actor_close(&a);
  }
  ch_close(&c);
}
END_TEST

/* Rows of a weight, by a packer that is the product's. */
START_TEST(rows) {
  static ch c;
  ch_open(&c, "auto", "off");
  for (uint64_t form = 0; form < FORMS; form++) {
    kit_actor a;
    kit_data d;
    const kit_shape s = {.x = BS_F32,
                         .y = form % 3 == 0 ? BS_BF16 : BS_F32,
                         .B = 40,
                         .N = 37,
                         .K = form % 2 ? 530 : 100,
                         .values = form % 5 == 0 ? KIT_SPECIAL : KIT_PLAIN,
                         .seed = form + FORMS * form};
    ch_actor(&c, &a, "take_q", "panels", 2);
    kit_data_make(&d, "take_q", &s);
    ch_check(&a, &d);
    kit_data_free(&a, &d);
    kit_actor_close(&a);
  }
  ch_close(&c);
}
END_TEST

/* ---- memory ------------------------------------------------------------------------------------- */

static struct {
  bs_exec was;
  uint64_t now, peak;
} counted;

static void *counted_alloc(void *ctx, uint64_t bytes) {
  uint64_t *block = counted.was.alloc(ctx, bytes + 64);
  if (block == NULL) return NULL;
  block[0] = bytes;
  const uint64_t now = __atomic_add_fetch(&counted.now, bytes, __ATOMIC_RELAXED);
  if (now > counted.peak) counted.peak = now;
  return block + 8;
}

static void counted_free(void *ctx, void *at) {
  uint64_t *block = (uint64_t *)at - 8;
  __atomic_sub_fetch(&counted.now, block[0], __ATOMIC_RELAXED);
  counted.was.free(ctx, block);
}

static int32_t read_plain(void *ctx, int64_t row, int64_t nrows, const bs_quant_rows *out, bs_error *err) {
  const bs_quant *q = ctx;
  const int64_t groups = bs_quant_groups(q), spans = bs_quant_spans(q);
  (void)row;
  (void)err;
  for (int64_t n = 0; n < nrows; n++) memset(out->codes + n * out->codes_stride, 5, (size_t)q->cols);
  for (int64_t i = 0; i < nrows * spans; i++) {
    out->scales[i] = 0.25f;
    if (out->lows != NULL) out->lows[i] = 0.5f;
  }
  if (out->steps != NULL) memset(out->steps, 1, (size_t)(nrows * groups));
  if (out->low_steps != NULL) memset(out->low_steps, 1, (size_t)(nrows * groups));
  return BS_OK;
}

/* A pack takes the packed weight, 16 rows of codes a member and a little: never a dense copy. And the weight
 * is about as large as its codes and its scales as f16. */
START_TEST(memory_of_a_pack) {
  enum { N = 6016, K = 4096, WIDTH = 4, LITTLE = 1 << 20 };
  static const char *const schemes[] = {"w8", "w8g32", "w4g32", "w4k", "w6k"};
  static const double bits[] = {8.1, 8.6, 4.6, 4.7, 6.7};
  static ch c;
  kit_actor a;
  bs_quant form;
  bs_error err = BS_ERROR_INIT;
  void *packed = NULL;
  uint64_t bytes = 0;
  ch_open(&c, "auto", "off");
  ch_actor(&c, &a, "matmul_q", "panels", WIDTH);
  ck_assert_int_eq(bs_quant_scheme(schemes[_i], N, K, &form, &err), BS_OK);
  form.ctx = &form;
  form.read = read_plain;
  const bs_tensor_desc x = bs_desc_2d(BS_F32, 1, K), y = bs_desc_2d(BS_F32, 1, N);
  const bs_tensor_desc *const args[4] = {&x, NULL, NULL, &y};
  const bs_op_query q = {.struct_size = sizeof q,
                         .nargs = 4,
                         .op = "matmul_q",
                         .args = args,
                         .weight_dtype = BS_F32,
                         .quant = &form};
  bs_exec exec = a.exec;
  counted.was = a.exec;
  exec.alloc = counted_alloc;
  exec.free = counted_free;
  ck_assert_int_eq(a.impl->pack(a.state, &exec, &q, NULL, &packed, &bytes, &err), BS_OK);
  ck_assert_uint_eq(counted.now, bytes);
  ck_assert_uint_le(counted.peak, bytes + WIDTH * 16 * K + LITTLE);
  ck_assert_double_le((double)bytes * 8, bits[_i] * N * K);
  a.impl->packed_free(packed);
  ck_assert_uint_eq(counted.now, 0);
  kit_actor_close(&a);
  ch_close(&c);
}
END_TEST

int main(void) {
  const test_case tests[] = {
      {products, TEST_COUNT(sets)}, {tokens, TEST_COUNT(sets)}, {rows}, {memory_of_a_pack, 5}, {0}};
  return run_tests("cpu_quant", tests, (test_setup){.timeout = 60});
}
