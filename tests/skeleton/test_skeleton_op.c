/* SPDX-License-Identifier: MIT
 * test_skeleton_op.c - the skeleton of an op: relu of matrices of any strides, NaN kept, chosen before the
 * backend's own where it serves, and not asked for more than it says. */
#include <math.h>

#include "skeleton_test.h"
#include "tests/run_tests.h"

static bs_context *context;
static void setup(void) {
  context = skeleton_context();
}
static void teardown(void) {
  bs_context_close(context);
}

enum { ROWS = 5, COLS = 7, PLACES = 256 };

typedef struct op_case {
  uint32_t activation, threads;
  int64_t in_strides[2], out_strides[2];
  float in[PLACES], out[PLACES];
} op_case;

static bs_tensor view(float *data, const int64_t strides[2]) {
  bs_tensor t = {
      .struct_size = sizeof t, .dtype = BS_F32, .rank = 2, .data = data, .bytes = PLACES * sizeof(float)};
  t.dims[0] = ROWS;
  t.dims[1] = COLS;
  t.strides[0] = strides[0];
  t.strides[1] = strides[1];
  return t;
}

static int32_t rank_main(bs_rank *rank, void *arg, bs_error *err) {
  op_case *c = arg;
  const bs_rank_api *api = bs_rank_get_api();
  bs_tensor in = view(c->in, c->in_strides), out = view(c->out, c->out_strides);
  bs_tensor_desc di = {.struct_size = sizeof di, .dtype = BS_F32, .rank = 2}, d2;
  memcpy(di.dims, in.dims, sizeof di.dims);
  memcpy(di.strides, in.strides, sizeof di.strides);
  d2 = di;
  memcpy(d2.strides, out.strides, sizeof d2.strides);
  const bs_tensor_desc *descs[2] = {&di, &d2};
  bs_tensor *args[2] = {&in, &out};
  const bs_op_query q = {
      .struct_size = sizeof q, .op = "activate", .nargs = 2, .args = descs, .activation = c->activation};
  bs_plan *plan = NULL;
  int32_t rc = api->op_prepare(rank, &q, NULL, &plan, err);
  if (rc == BS_OK) rc = api->op_run(plan, args, 2, NULL, err);
  if (plan != NULL) api->op_release(plan);
  return rc;
}

static void run_case(op_case *c, char *out_algorithms, size_t size) {
  const bs_world_options o = {
      .struct_size = sizeof o, .world_size = 1, .backend = "ref", .threads_per_rank = c->threads};
  bs_world *world = NULL;
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(bs_world_create(context, &o, &world, &err) == BS_OK, "%s", err.message);
  ck_assert_msg(bs_world_run(world, rank_main, c, &err) == BS_OK, "%s: %s", err.id, err.message);
  snprintf(out_algorithms, size, "%s", bs_world_algorithms(world));
  bs_world_destroy(world);
}

static op_case *make_case(int which) {
  static const int64_t strides[][2] = {{COLS, 1}, {COLS + 3, 1}, {1, ROWS}, {COLS * 2 + 1, 2}};
  op_case *c = calloc(1, sizeof *c);
  c->activation = BS_ACT_RELU;
  c->threads = 1u + (uint32_t)which % 3u;
  memcpy(c->in_strides, strides[which % 4], sizeof strides[0]);
  memcpy(c->out_strides, strides[which / 4 % 4], sizeof strides[0]);
  for (int i = 0; i < PLACES; i++) {
    c->in[i] = (float)((i * 37) % 21 - 10) * 0.25f;
    c->out[i] = 99.0f;
  }
  c->in[3 * c->in_strides[0] + 2 * c->in_strides[1]] = NAN;
  return c;
}

START_TEST(values) {
  char algorithms[256];
  op_case *c = make_case(_i);
  unsigned char touched[PLACES] = {0};
  run_case(c, algorithms, sizeof algorithms);
  ck_assert_str_eq(algorithms, "activate@ref/skel_activate (relu)");
  for (int64_t b = 0; b < ROWS; b++)
    for (int64_t n = 0; n < COLS; n++) {
      const float in = c->in[b * c->in_strides[0] + n * c->in_strides[1]];
      const int64_t at = b * c->out_strides[0] + n * c->out_strides[1];
      touched[at] = 1;
      if (isnan(in)) {
        ck_assert_msg(isnan(c->out[at]), "NaN became %g", (double)c->out[at]);
      } else {
        ck_assert_float_eq(c->out[at], in > 0.0f ? in : 0.0f);
      }
    }
  for (int i = 0; i < PLACES; i++)
    if (!touched[i]) ck_assert_float_eq(c->out[i], 99.0f); /* between the rows nothing changed */
  free(c);
}
END_TEST

START_TEST(no_activation_is_a_copy) {
  char algorithms[256];
  op_case *c = make_case(5);
  c->activation = BS_ACT_NONE;
  run_case(c, algorithms, sizeof algorithms);
  ck_assert_str_eq(algorithms, "activate@ref/skel_activate (copy)");
  ck_assert_float_eq(c->in[0], -2.5f);
  ck_assert_float_eq(c->out[0], -2.5f);
  free(c);
}
END_TEST

START_TEST(the_rest_is_served_by_another) {
  char algorithms[256];
  op_case *c = make_case(0);
  c->activation = BS_ACT_SILU;
  run_case(c, algorithms, sizeof algorithms);
  ck_assert_has(algorithms, "activate@ref/portable");
  ck_assert_ptr_null(strstr(algorithms, "skel_activate"));
  free(c);
}
END_TEST

/* The reasons, as `bsrun explain` would show them. */
typedef struct said {
  uint32_t level, reason, seen;
  char text[160];
} said;
static void each(void *user, const bs_op_candidate *candidate) {
  said *s = user;
  if (strcmp(candidate->name, "activate@ref/skel_activate") != 0) return;
  s->seen++;
  s->level = candidate->answer->level;
  s->reason = candidate->answer->reason;
  snprintf(s->text, sizeof s->text, "%s", candidate->answer->text);
}

START_TEST(refusals_have_reasons) {
  static const struct {
    uint32_t in, out, activation, reason;
  } rows[] = {{BS_BF16, BS_F32, BS_ACT_RELU, BS_REASON_DTYPE},
              {BS_F32, BS_F64, BS_ACT_RELU, BS_REASON_DTYPE},
              {BS_F32, BS_F32, BS_ACT_GELU, BS_REASON_NOT_BUILT}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    bs_tensor_desc in = {.struct_size = sizeof in, .dtype = rows[i].in, .rank = 2, .dims = {4, 4}}, out = in;
    out.dtype = rows[i].out;
    const bs_tensor_desc *descs[2] = {&in, &out};
    const bs_op_query q = {.struct_size = sizeof q,
                           .op = "activate",
                           .nargs = 2,
                           .args = descs,
                           .activation = rows[i].activation};
    said s = {0};
    bs_error err = BS_ERROR_INIT;
    ck_assert_msg(bs_op_explain(context, "ref", &q, each, &s, &err) == BS_OK, "%s", err.message);
    ck_assert_uint_eq(s.seen, 1);
    ck_assert_uint_eq(s.level, BS_LEVEL_NO);
    ck_assert_uint_eq(s.reason, rows[i].reason);
    ck_assert(s.text[0] != '\0');
  }
}
END_TEST

int main(void) {
  const test_case tests[] = {
      {values, 16}, {no_activation_is_a_copy}, {the_rest_is_served_by_another}, {refusals_have_reasons}, {0}};
  return run_tests("skeleton_op", tests, (test_setup){setup, teardown});
}
