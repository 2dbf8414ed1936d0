/* SPDX-License-Identifier: MIT
 * test_op_f8.c - fp8 with scales on ref and on every instruction set of cpu: quantize_groups by its
 * definition bit for bit, every tie and every code among the values, scales of rows and of all rows;
 * scaled_matmul of fewer tokens with the same bits, NaN. The kit has the values of
 * scaled_matmul (kit_ref, kit_cpu, test_cpu_values). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "blockshock/blockshock.h"
#include "blockshock/plugin.h"
#include "core/base/dtype.h"
#include "core/base/error.h"
#include "tests/marks.h"
#include "tests/run_tests.h"

static const bs_rank_api *api;
/* Backend and instruction set of each round. */
static const char *const rounds[][2] = {
    {"ref", "auto"}, {"cpu", "portable"}, {"cpu", "avx2"}, {"cpu", "avx512"}};
enum { ROUNDS = 4 };

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

/* 0: the processor lacks the instruction set. The context stays: each test is a process of its own. */
static int run(int round, int32_t (*body)(bs_rank *, void *, bs_error *), void *arg) {
  static bs_context *context;
  bs_error err = BS_ERROR_INIT;
  bs_world *world = NULL;
  if (context == NULL) context = open_context(rounds[round][1]);
  bs_world_options o = {
      .struct_size = sizeof o, .world_size = 1, .backend = rounds[round][0], .threads_per_rank = 2};
  int32_t rc = bs_world_create(context, &o, &world, &err);
  const int lacks = rc == BS_UNAVAILABLE && round >= 2;
  if (rc == BS_OK) rc = bs_world_run(world, body, arg, &err);
  if (world != NULL) bs_world_destroy(world);
  ck_assert_msg(rc == BS_OK || lacks, "%s %s: %s %s", rounds[round][0], rounds[round][1], err.id,
                err.message);
  return rc == BS_OK;
}

static uint64_t state = 7;
static uint32_t draw(void) {
  state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint32_t)(state >> 33);
}

static bs_tensor matrix(void *data, uint32_t dtype, int64_t rows, int64_t cols, int64_t stride) {
  bs_tensor t = {.struct_size = sizeof t, .dtype = dtype, .rank = 2, .data = data};
  t.dims[0] = rows;
  t.dims[1] = cols;
  t.strides[0] = stride;
  t.strides[1] = 1;
  t.bytes = (uint64_t)(rows * stride) * BS_DTYPE_BYTES(dtype);
  return t;
}

static int32_t call(bs_rank *rank, const char *op, bs_tensor *const *args, uint32_t n, const int64_t *attrs,
                    uint32_t activation, bs_error *err) {
  bs_tensor_desc descs[BS_MAX_OP_ARGS];
  const bs_tensor_desc *list[BS_MAX_OP_ARGS];
  bs_plan *plan = NULL;
  for (uint32_t i = 0; i < n; i++) {
    list[i] = args[i] != NULL ? &descs[i] : NULL;
    if (args[i] == NULL) continue;
    descs[i] =
        (bs_tensor_desc){.struct_size = sizeof descs[i], .dtype = args[i]->dtype, .rank = args[i]->rank};
    memcpy(descs[i].dims, args[i]->dims, sizeof descs[i].dims);
    memcpy(descs[i].strides, args[i]->strides, sizeof descs[i].strides);
  }
  bs_op_query q = {.struct_size = sizeof q, .op = op, .nargs = n, .args = list};
  q.attrs[0] = attrs[0];
  q.attrs[1] = attrs[1];
  q.activation = activation;
  int32_t rc = api->op_prepare(rank, &q, NULL, &plan, err);
  if (rc == BS_OK) rc = api->op_run(plan, args, n, NULL, err);
  if (plan != NULL) api->op_release(plan);
  return rc;
}

/* ---- quantize_groups and dequantize_sum ----------------------------------------------------------- */

typedef struct values {
  int64_t B, K, group, together;
  uint32_t dtype;
  float *in, *scales, *back;
  uint8_t *q;
} values;

static int32_t values_main(bs_rank *rank, void *arg, bs_error *err) {
  const values *v = arg;
  const int64_t groups = (v->K + v->group - 1) / v->group, attrs[2] = {v->group, v->together};
  const int64_t once[2] = {v->group, 1};
  bs_tensor in = matrix(v->in, BS_F32, v->B, v->K, v->K), q = matrix(v->q, v->dtype, v->B, v->K, v->K + 3);
  bs_tensor scales = matrix(v->scales, BS_F32, v->B, groups, groups);
  bs_tensor back = matrix(v->back, BS_F32, v->B, v->K, v->K);
  bs_tensor *to[3] = {&in, &q, &scales}, *from[3] = {&q, &scales, &back};
  const int32_t rc = call(rank, "quantize_groups", to, 3, attrs, BS_ACT_NONE, err);
  return rc == BS_OK ? call(rank, "dequantize_sum", from, 3, once, BS_ACT_NONE, err) : rc;
}

static float largest_of(uint32_t dtype) {
  return dtype == BS_I8 ? 127.0f : dtype == BS_F8E4M3 ? 448.0f : 57344.0f;
}

static uint8_t narrow(uint32_t dtype, float v) {
  const float most = largest_of(dtype);
  uint8_t out;
  v = v > most ? most : v < -most ? -most : v;
  bs_convert(dtype, &out, BS_F32, &v, 1);
  return out;
}

/* Rows 0 and 1: each code and what lies in the middle to the next, with a scale of 1; row 2 all zeros of both
 * signs, row 3 with a NaN, row 4 with an infinity, row 5 subnormal, row 6 so small that the scale is zero;
 * the others with one of them somewhere. */
static void fill_values(values *v) {
  for (int64_t i = 0; i < v->B * v->K; i++)
    v->in[i] = ldexpf((float)((int32_t)draw() >> 4) * 0x1p-27f - 0.5f, (int)(draw() % 12) - 8);
  for (int64_t k = 0; k < v->K; k++) {
    const uint8_t code = (uint8_t)(k * 2), next = (uint8_t)(code + 1);
    float a = 0.0f, b = 0.0f;
    bs_convert(BS_F32, &a, v->dtype, &code, 1);
    bs_convert(BS_F32, &b, v->dtype, &next, 1);
    if (!isfinite(a) || !isfinite(b) || v->dtype == BS_I8) a = b = 0.0f;
    v->in[k] = a;
    v->in[v->K + k] = (a + b) / 2.0f;
    if (k % v->group == 0) v->in[k] = v->in[v->K + k] = largest_of(v->dtype);
    v->in[2 * v->K + k] = k % 2 == 0 ? 0.0f : -0.0f;
    v->in[5 * v->K + k] = ldexpf((float)(draw() % 255) - 127.0f, -149);
    v->in[6 * v->K + k] = ldexpf((float)(draw() % 3) - 1.0f, -149);
  }
  if (v->together) return; /* one NaN there would be all there is */
  v->in[3 * v->K + 1] = NAN;
  v->in[4 * v->K + v->K - 1] = -INFINITY;
  for (int64_t r = 7; r < v->B; r++) v->in[r * v->K + r * 37 % v->K] = r % 2 == 0 ? -NAN : INFINITY;
}

static float most_of(const values *v, int64_t b, int64_t g) {
  float most = 0.0f;
  const int64_t end = (g + 1) * v->group < v->K ? (g + 1) * v->group : v->K;
  for (int64_t r = v->together ? 0 : b; r < (v->together ? v->B : b + 1); r++)
    for (int64_t k = g * v->group; k < end; k++)
      if (!(fabsf(v->in[r * v->K + k]) <= most) && !isnan(most)) most = fabsf(v->in[r * v->K + k]);
  return most;
}

static int64_t wrong_values(const values *v) {
  const int64_t groups = (v->K + v->group - 1) / v->group;
  int64_t wrong = 0;
  float *all = calloc((size_t)(v->B * groups), sizeof *all);
  for (int64_t g = 0; g < groups; g++)
    for (int64_t b = 0; b < v->B; b++) all[b * groups + g] = v->together && b > 0 ? all[g] : most_of(v, b, g);
  for (int64_t b = 0; b < v->B; b++)
    for (int64_t k = 0; k < v->K; k++) {
      const float most = all[b * groups + k / v->group];
      const float scale = isfinite(most) ? most / largest_of(v->dtype) : NAN;
      const float got = v->scales[b * groups + k / v->group], of = v->in[b * v->K + k] / scale;
      const uint8_t want = scale > 0.0f ? narrow(v->dtype, of) : 0, q = v->q[b * (v->K + 3) + k];
      float value = 0.0f;
      bs_convert(BS_F32, &value, v->dtype, &q, 1);
      const float back = v->back[b * v->K + k], stands = value * scale;
      wrong += isnan(scale) ? !isnan(got) : got != scale;
      wrong += q != want;
      wrong += isnan(stands) ? !isnan(back) : back != stands;
    }
  free(all);
  return wrong;
}

START_TEST(values_are_rounded_by_the_definition) {
  static const uint32_t dtypes[] = {BS_I8, BS_F8E4M3, BS_F8E5M2};
  static const int64_t shapes[][3] = {{7, 128, 128}, {9, 300, 128}, {8, 131, 7}, {70, 700, 1000}, {7, 64, 1}};
  for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
    for (int d = 0; d < 6; d++) {
      values v = {shapes[s][0], shapes[s][1], shapes[s][2], d / 3, dtypes[d % 3], NULL, NULL, NULL, NULL};
      const size_t n = (size_t)(v.B * v.K);
      v.in = calloc(n, sizeof *v.in);
      v.scales = calloc(n, sizeof *v.scales);
      v.back = calloc(n, sizeof *v.back);
      v.q = calloc(n + (size_t)v.B * 3, 1);
      fill_values(&v);
      if (run(_i, values_main, &v))
        ck_assert_msg(wrong_values(&v) == 0, "%s %s dtype 0x%04x [%lld,%lld] by %lld, together %lld: %lld",
                      rounds[_i][0], rounds[_i][1], v.dtype, (long long)v.B, (long long)v.K,
                      (long long)v.group, (long long)v.together, (long long)wrong_values(&v));
      free(v.in), free(v.scales), free(v.back), free(v.q);
    }
}
END_TEST

/* Each of the 256 codes, NaN and infinities among them. */
typedef struct codes {
  uint32_t dtype;
  uint8_t q[256];
  float scale, out[256];
} codes;
static int32_t codes_main(bs_rank *rank, void *arg, bs_error *err) {
  codes *c = arg;
  const int64_t attrs[2] = {256, 1};
  bs_tensor q = matrix(c->q, c->dtype, 1, 256, 256), scale = matrix(&c->scale, BS_F32, 1, 1, 1);
  bs_tensor out = matrix(c->out, BS_F32, 1, 256, 256), *args[3] = {&q, &scale, &out};
  return call(rank, "dequantize_sum", args, 3, attrs, BS_ACT_NONE, err);
}
START_TEST(every_code_stands_for_its_value) {
  for (int d = 0; d < 2; d++) {
    codes c = {.dtype = d == 0 ? BS_F8E4M3 : BS_F8E5M2, .scale = 1.0f};
    for (int i = 0; i < 256; i++) c.q[i] = (uint8_t)i;
    if (!run(_i, codes_main, &c)) return;
    for (int i = 0; i < 256; i++) {
      float want = 0.0f;
      bs_convert(BS_F32, &want, c.dtype, &c.q[i], 1);
      ck_assert_msg(isnan(want) ? isnan(c.out[i]) : want == c.out[i] && !signbit(want) == !signbit(c.out[i]),
                    "%s %s: code 0x%02x is %.9g, not %.9g", rounds[_i][0], rounds[_i][1], i, (double)c.out[i],
                    (double)want);
    }
  }
}
END_TEST

/* ---- scaled_matmul ------------------------------------------------------------------------------- */

typedef struct product {
  int64_t B, N, K, group, rows; /* rows: of the run */
  uint32_t x_dtype, w_dtype, out_dtype;
  uint8_t *x, *w;
  float *x_scales, *w_scales;
  void *out;
} product;

static int64_t groups_of(const product *p) {
  return (p->K + p->group - 1) / p->group;
}

static int32_t product_main(bs_rank *rank, void *arg, bs_error *err) {
  product *p = arg;
  const int64_t G = groups_of(p), rows = p->rows, attrs[2] = {p->group, 0};
  bs_tensor x = matrix(p->x, p->x_dtype, rows, p->K, p->K + 1),
            w = matrix(p->w, p->w_dtype, p->N, p->K, p->K + 2);
  bs_tensor xs = matrix(p->x_scales, BS_F32, rows, G, G), ws = matrix(p->w_scales, BS_F32, p->N, G, G + 1);
  bs_tensor out = matrix(p->out, p->out_dtype, rows, p->N, p->N + 3);
  bs_tensor *args[7] = {&x, &xs, &w, &ws, NULL, NULL, &out};
  return call(rank, "scaled_matmul", args, 7, attrs, BS_ACT_NONE, err);
}

static void fill_bytes(uint8_t *to, int64_t n, uint32_t dtype) {
  for (int64_t i = 0; i < n; i++) {
    const float v = ldexpf((float)(draw() % 2001) - 1000.0f, -(int)(draw() % 8));
    to[i] = narrow(dtype, v * largest_of(dtype) / 1000.0f);
  }
}

static product product_make(const int64_t *s, uint32_t x, uint32_t w, uint32_t out) {
  product p = {.B = s[0], .N = s[1], .K = s[2], .group = s[3], .rows = s[0]};
  p.x_dtype = x;
  p.w_dtype = w;
  p.out_dtype = out;
  const int64_t G = groups_of(&p);
  p.x = malloc((size_t)(p.B * (p.K + 1)) + 1);
  p.w = malloc((size_t)(p.N * (p.K + 2)) + 1);
  p.x_scales = malloc((size_t)(p.B * G + 1) * sizeof(float));
  p.w_scales = malloc((size_t)(p.N * (G + 1) + 1) * sizeof(float));
  p.out = calloc((size_t)(p.B * (p.N + 3)), 4);
  fill_bytes(p.x, p.B * (p.K + 1), x);
  fill_bytes(p.w, p.N * (p.K + 2), w);
  for (int64_t i = 0; i < p.B * G; i++) p.x_scales[i] = (float)(draw() % 1000 + 1) * 1e-6f;
  for (int64_t i = 0; i < p.N * (G + 1); i++) p.w_scales[i] = (float)(draw() % 1000 + 1) * 1e-6f;
  return p;
}

static void product_free(product *p) {
  free(p->x), free(p->w), free(p->x_scales), free(p->w_scales), free(p->out);
}

/* A token's bits do not depend on how many there are. */
START_TEST(tokens_do_not_meet) {
  const int64_t s[] = {70, 50, 900, 128};
  product p = product_make(s, BS_F8E4M3, BS_F8E4M3, BS_F32);
  if (run(_i, product_main, &p)) {
    float *all = malloc((size_t)(p.B * (p.N + 3)) * sizeof *all);
    memcpy(all, p.out, (size_t)(p.B * (p.N + 3)) * sizeof *all);
    for (p.rows = 1; p.rows < p.B; p.rows += 23) {
      memset(p.out, 0, (size_t)(p.B * (p.N + 3)) * sizeof(float));
      ck_assert(run(_i, product_main, &p));
      for (int64_t b = 0; b < p.rows; b++)
        ck_assert_mem_eq((float *)p.out + b * (p.N + 3), all + b * (p.N + 3), (size_t)p.N * sizeof(float));
    }
    free(all);
  }
  product_free(&p);
}
END_TEST

/* A NaN scale is NaN in its row and nowhere else; so are codes. */
START_TEST(nan_stays_where_it_is) {
  const int64_t s[] = {6, 20, 300, 128};
  product p = product_make(s, BS_F8E4M3, BS_F8E5M2, BS_F32);
  p.x_scales[2 * 3 + 1] = NAN;
  p.w_scales[5 * 4 + 2] = NAN;
  p.x[4 * 301 + 7] = 0x7f;
  p.w[9 * 302 + 8] = 0x7c; /* infinity */
  for (int64_t b = 0; b < 6; b++) p.x[b * 301 + 8] = 0x38;
  if (run(_i, product_main, &p))
    for (int64_t b = 0; b < 6; b++)
      for (int64_t n = 0; n < 20; n++) {
        const float v = ((float *)p.out)[b * 23 + n];
        const int nan = b == 2 || b == 4 || n == 5;
        ck_assert_msg(nan      ? isnan(v)
                      : n == 9 ? v == INFINITY
                               : isfinite(v),
                      "[%lld,%lld] is %g", (long long)b, (long long)n, (double)v);
      }
  product_free(&p);
}
END_TEST

int main(void) {
  const test_case tests[] = {{values_are_rounded_by_the_definition, ROUNDS},
                             {every_code_stands_for_its_value, ROUNDS},
                             {tokens_do_not_meet, ROUNDS},
                             {nan_stays_where_it_is, ROUNDS},
                             {0}};
  return run_tests("op_f8", tests, (test_setup){.timeout = 120});
}
