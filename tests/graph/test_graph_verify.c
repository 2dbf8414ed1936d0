/* SPDX-License-Identifier: MIT
 * Translation validation: a pass that changes the numbers of a model is found and named, on given and on made
 * inputs, where a check of the nodes behind the passes finds nothing; a wrong kernel is named as one; a
 * session is as it was behind a run. The faults are put behind the real passes by gpass_fault. */
#include <math.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/rng.h"
#include "graph/pass/pass.h"
#include "lab/model/verify.h"
#include "tests/graph/build.h"
#include "tests/graph/folder_case.h"

#define NONE BS_GRAPH_NONE
enum { ROWS = 4, COLS = 8 };

/* ---- faults ---------------------------------------------------------------------------------- */

struct fault {
  const char *pass;
  uint32_t op;        /* of the step that is dropped */
  void (*make)(void); /* the model */
  double shown;       /* an input where the numbers differ */
  int ordinary;       /* 1: ordinary numbers show it */
};
static const struct fault *fault; /* of the test that runs */
static int applied;

/* The first step of the fault's op in a program of the graph becomes a copy of what is no constant. */
static int32_t drop_step(graph *g, const char *pass, uint32_t *io_changes, bs_error *err) {
  (void)err;
  if (strcmp(pass, fault->pass) != 0) return BS_OK;
  for (uint32_t id = g->first; id != GNONE; id = g->nodes[id].next) {
    gexpr *e = g->nodes[id].op == GOP_MAP ? &g->exprs[g->nodes[id].expr] : NULL;
    for (uint32_t k = 0; e != NULL && k < e->n_steps; k++) {
      if (e->steps[k].op != fault->op) continue;
      const uint8_t a = e->steps[k].a, b = e->steps[k].b, is_const = a >= GX_CONST && a < GX_STEP;
      ++*io_changes;
      ++applied;
      if (fault->op == BS_EXPR_MUL) { /* a constant is off by a thousandth */
        double factor;
        memcpy(&factor, &e->consts[(is_const ? a : b) - GX_CONST], sizeof factor);
        factor *= 1.001;
        memcpy(&e->consts[(is_const ? a : b) - GX_CONST], &factor, sizeof factor);
        return BS_OK;
      }
      e->steps[k].op = BS_EXPR_MOV;
      e->steps[k].a = fault->op == BS_EXPR_SELECT ? e->steps[k].c : is_const ? b : a;
      e->steps[k].b = e->steps[k].c = 0;
      return BS_OK;
    }
  }
  return BS_OK;
}

/* ---- models ---------------------------------------------------------------------------------- */

static uint32_t input(void) {
  const int64_t dims[] = {ROWS, COLS};
  return tb_input("x", BS_F32, 2, dims);
}

static void clamped(void) {
  tb_output("y", tb_op("Clip", tb_op("Exp", input(), NONE, NONE), tb_scalar(-1e30), tb_scalar(400)));
}

static void floored(void) {
  tb_output("y", tb_op("Reciprocal", tb_op("Max", tb_op("Abs", input(), NONE, NONE), tb_scalar(1e-6), NONE),
                       NONE, NONE));
}

static void repaired(void) {
  const uint32_t x = input(), e = tb_op("Exp", x, NONE, NONE);
  tb_output("y", tb_op("Where", tb_op("IsNaN", e, NONE, NONE), tb_scalar(7), e));
}

static void turned(void) {
  tb_output("y", tb_op("Tanh", tb_op("Neg", input(), NONE, NONE), NONE, NONE));
}

static void scaled(void) {
  tb_output("y", tb_op("Exp", tb_op("Mul", input(), tb_scalar(0.7), NONE), NONE, NONE));
}

static const struct fault faults[] = {
    {"fuse_map", BS_EXPR_MIN, clamped, 8, 0},  {"expr", BS_EXPR_MIN, clamped, 8, 0},
    {"expr", BS_EXPR_MAX, floored, 1e-9, 0},   {"fuse_norm", BS_EXPR_SELECT, repaired, NAN, 0},
    {"epilogue", BS_EXPR_NEG, turned, 0.5, 1}, {"last_token", BS_EXPR_MIN, clamped, 8, 0},
    {"expr", BS_EXPR_MUL, scaled, 0.5, 1},
};

static void before(void) {
  applied = 0;
  tb_begin();
}

static void after(void) {
  gpass_fault = NULL;
  tb_end();
}

static bs_session *open_faulty(float *x, double shown) {
  tb_fill(x, ROWS * COLS, 1);
  if (shown != 0) x[COLS + 3] = (float)shown;
  fault->make();
  gpass_fault = drop_step;
  bs_session *s = tb_open("ref", "", NULL);
  ck_assert_msg(applied > 0, "%s: there is no such step", fault->pass);
  tb_set(s, "x", x);
  return s;
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* On inputs that show it. The nodes behind the passes are right, so that a check of those, or a reference
 * made behind the passes, says nothing. */
START_TEST(a_faulty_pass_is_named) {
  float x[ROWS * COLS], planned[ROWS * COLS];
  bs_error err = {.struct_size = (uint32_t)sizeof err};
  bs_verify_report r = {.struct_size = (uint32_t)sizeof r};
  fault = &faults[_i];
  bs_session *s = open_faulty(x, fault->shown);
  ck_assert_msg(bs_session_check(s, NULL, NULL, &err) == BS_OK, "%s", err.message);
  memcpy(planned, tb_get(s, "y"), sizeof planned);
  ck_assert_int_eq(bs_session_verify(s, &r, &err), BS_NUMERIC);
  ck_assert_str_eq(err.id, "BS-MODEL-PASS");
  ck_assert_msg(strcmp(r.pass, fault->pass) == 0 && strcmp(r.off, fault->pass) == 0, "%s, not %s: %s", r.pass,
                fault->pass, err.message);
  ck_assert(!r.ok && strcmp(r.output, "y") == 0 && r.rank == 2 && r.serves[0] == '\0');
  ck_assert_msg(strstr(err.message, fault->pass) != NULL && strstr(err.hint, "--no-pass") != NULL, "%s; %s",
                err.message, err.hint);
  ck_assert_msg(r.node[0] != '\0' && strstr(err.message, r.node) != NULL, "%s", err.message);
  /* The session's outputs are those of its own run, wrong as they are. */
  ck_assert_int_eq(memcmp(planned, tb_get(s, "y"), sizeof planned), 0);
  bs_session_close(s);
}
END_TEST

static void verify_made(bs_session *s, bs_model_verified *out) {
  const bs_model_request request = {.path = ""};
  bs_error err = {.struct_size = (uint32_t)sizeof err};
  ck_assert_int_eq(bs_model_verified_init(out, &err), BS_OK);
  ck_assert_msg(bs_model_verify(&request, s, "", 1, out, &err) == BS_OK, "%s", err.message);
}

/* Ordinary inputs do not show most of them: made ones do. */
START_TEST(made_inputs_show_a_fault) {
  float x[ROWS * COLS];
  bs_model_verified v;
  fault = &faults[_i];
  bs_session *s = open_faulty(x, 0);
  verify_made(s, &v);
  ck_assert_uint_eq(v.failed, 1);
  const json_t *first = json_array_get(v.rows, 0),
               *last = json_array_get(v.rows, json_array_size(v.rows) - 1);
  ck_assert_int_eq(json_is_true(json_object_get(first, "ok")), !fault->ordinary);
  ck_assert_str_eq(json_string_value(json_object_get(last, "pass")), fault->pass);
  bs_model_verified_free(&v);
  bs_session_close(s);
}
END_TEST

/* Without the fault, and with its pass left out, all are right. */
START_TEST(right_models_are_right) {
  float x[ROWS * COLS];
  bs_model_verified v;
  bs_session *s;
  fault = &faults[_i / 2];
  if (_i % 2 == 0) {
    tb_fill(x, ROWS * COLS, 1);
    fault->make();
    s = tb_open("ref", "", NULL);
    tb_set(s, "x", x);
  } else {
    s = open_faulty(x, fault->shown);
    bs_session_close(s);
    s = tb_open("ref", "", fault->pass);
    tb_set(s, "x", x);
  }
  verify_made(s, &v);
  ck_assert_uint_eq(v.failed, 0);
  ck_assert(json_array_size(v.rows) > 5 && json_array_size(v.notes) == 0);
  bs_model_verified_free(&v);
  bs_session_close(s);
}
END_TEST

/* No pass is to blame for what a kernel does. */
START_TEST(a_wrong_kernel_is_named) {
  const char *params[] = {"fault.plan=rank=*,op=matmul,seq=*,do=flip"};
  bs_error err = {.struct_size = (uint32_t)sizeof err};
  bs_verify_report r = {.struct_size = (uint32_t)sizeof r};
  const bs_context_options o = {
      .struct_size = (uint32_t)sizeof o, .params = params, .n_params = 1, .trust = BS_TRUST_ANY};
  const int64_t square[] = {COLS, COLS};
  float x[ROWS * COLS];
  tb_end();
  ck_assert_msg(bs_context_open(&o, &tb_context, &err) == BS_OK, "%s", err.message);
  ck_assert_int_eq(bs_graph_new(tb_context, &tb_graph, &err), BS_OK);
  tb_output("y", tb_op("MatMul", input(), tb_random(2, square, 0.5), NONE));
  bs_session *s = tb_open("fault:ref", "", NULL);
  tb_fill(x, ROWS * COLS, 1);
  tb_set(s, "x", x);
  ck_assert_int_eq(bs_session_verify(s, &r, &err), BS_NUMERIC);
  ck_assert_str_eq(err.id, "BS-MODEL-KERNEL");
  ck_assert_msg(r.pass[0] == '\0' && r.node[0] != '\0' && strstr(r.serves, "fault") != NULL, "%s %s: %s",
                r.serves, r.node, err.message);
  bs_session_close(s);
}
END_TEST

/* What would take too long is compared at smaller sizes and on fewer made inputs, and that is told. The
 * session is bound as it was, its inputs are set. */
START_TEST(long_comparisons_are_cut) {
  static const char *const symbols[] = {"batch", "tokens", NULL};
  const int64_t dims[] = {-1, -1, COLS}, square[] = {COLS, COLS};
  const bs_model_request request = {.path = ""};
  bs_error err = {.struct_size = (uint32_t)sizeof err};
  bs_model_verified v;
  static float x[2 * 64 * COLS];
  float y[4];
  const uint32_t in = tb_symbolic("x", BS_F32, 3, dims, symbols);
  tb_output("y", tb_op("Relu", tb_op("MatMul", in, tb_random(2, square, 0.5), NONE), NONE, NONE));
  bs_session *s = tb_open("cpu", "batch=2 tokens=64", NULL);
  tb_fill(x, 2 * 64 * COLS, 1);
  tb_set(s, "x", x);
  tb_run(s);
  memcpy(y, tb_get(s, "y"), sizeof y);
  ck_assert_int_eq(bs_model_verified_init(&v, &err), BS_OK);
  v.rate = 2.0 * 2 * 64 * COLS * COLS / 100; /* the whole would take 100 s */
  v.most = 10;
  ck_assert_msg(bs_model_verify(&request, s, "", 1, &v, &err) == BS_OK, "%s", err.message);
  const char *note = json_string_value(json_array_get(v.notes, 0));
  ck_assert_msg(v.failed == 0 && note != NULL && strstr(note, "compared at tokens 4 of 64;") != NULL &&
                    strstr(note, "about 100 s") != NULL,
                "%s", note);
  bs_model_verified_free(&v);
  ck_assert_int_eq(bs_model_verified_init(&v, &err), BS_OK);
  v.most = 1e-9;
  ck_assert_msg(bs_model_verify(&request, s, "", 1, &v, &err) == BS_OK, "%s", err.message);
  ck_assert_uint_eq(json_array_size(v.rows), 1); /* at batch 1, tokens 1; no made inputs */
  ck_assert_uint_eq(json_array_size(v.notes), 2);
  bs_model_verified_free(&v);
  ck_assert_int_eq(tb_elements(s, "x"), 2 * 64 * COLS);
  tb_run(s);
  ck_assert_int_eq(memcmp(y, tb_get(s, "y"), sizeof y), 0);
  bs_session_close(s);
}
END_TEST

/* A folder of two layers: one of them where both would take too long, or too much memory; nothing where one
 * takes too much memory too. */
START_TEST(fewer_layers_are_compared) {
  static const struct {
    double most, bytes;
    const char *note;
    uint32_t rows;
  } limits[] = {{60, 0, NULL, 1},
                {1e-9, 0, "compared with 1 of 2 layers; all would take about ", 1},
                {60, 20000, "compared with 1 of 2 layers; all would take about ", 1},
                {60, 100, "the graph as written, which would take ", 0}};
  static const int64_t tokens[] = {3, 1, 4, 1};
  float logits[4 * 5]; /* of all tokens and words */
  const bs_model_request request = {.path = "", .threads = 1};
  bs_error err = {.struct_size = (uint32_t)sizeof err};
  bs_model_verified v;
  tb_end();
  files_begin();
  write_config(gpt2_config, NULL);
  write_weights("model.safetensors", gpt2_weights, 0, 1000, NULL);
  ck_assert_msg(bs_context_open(NULL, &tb_context, &err) == BS_OK, "%s", err.message);
  ck_assert_msg(bs_graph_open(tb_context, files_folder, NULL, &tb_graph, &err) == BS_OK, "%s", err.message);
  bs_session *s = tb_open("cpu", "sequence=4", NULL);
  tb_set(s, "input_ids", tokens);
  tb_run(s);
  memcpy(logits, tb_get(s, "logits"), sizeof logits);
  ck_assert_int_eq(bs_session_cache(s, 0, &err), BS_OK);
  ck_assert_int_eq(bs_model_verified_init(&v, &err), BS_OK);
  v.most = limits[_i].most;
  v.bytes = limits[_i].bytes;
  ck_assert_msg(bs_model_verify(&request, s, "", 0, &v, &err) == BS_OK, "%s", err.message);
  const size_t n = json_array_size(v.notes);
  const char *note = n > 0 ? json_string_value(json_array_get(v.notes, n - 1)) : "";
  ck_assert_msg(strncmp(note, limits[_i].note != NULL ? limits[_i].note : "", 30) == 0, "%s", note);
  ck_assert_msg(v.failed == 0 && json_array_size(v.rows) == limits[_i].rows, "%zu rows",
                json_array_size(v.rows));
  bs_model_verified_free(&v);
  ck_assert_int_eq(bs_session_cache_length(s), 0);
  tb_run(s); /* of both layers and all tokens, as before */
  ck_assert_int_eq(tb_elements(s, "logits"), 4 * 5);
  ck_assert_int_eq(memcmp(logits, tb_get(s, "logits"), sizeof logits), 0);
  bs_session_close(s);
  files_end();
}
END_TEST

/* f16: a fused program rounds where the model's values are f16, and so does the f64 node beside it; sums
 * beside a tie may be rounded to either side. */
START_TEST(roundings_of_f16_are_right) {
  enum { N = 1 << 16 };
  static const char *const then[] = {"Tanh", "Gelu", "Sigmoid", "Exp"};
  const int64_t dims[] = {N};
  static uint16_t x[N], y[N];
  static float a[N], b[N];
  bs_error err = {.struct_size = (uint32_t)sizeof err};
  const uint32_t in_x = tb_input("x", BS_F16, 1, dims), in_y = tb_input("y", BS_F16, 1, dims);
  const uint32_t wide = tb_with("Cast", "to=1", tb_op("Add", in_x, in_y, NONE), NONE, NONE);
  tb_output("z", tb_op(then[_i / 2], wide, NONE, NONE));
  const uint32_t product = tb_op("Mul", tb_input("a", BS_F32, 1, dims), tb_input("b", BS_F32, 1, dims), NONE);
  const uint32_t narrow = tb_with("Cast", "to=10", product, NONE, NONE);
  tb_output("w", tb_op("Neg", tb_with("Cast", "to=1", narrow, NONE, NONE), NONE, NONE));
  bs_rng_normal(1, 0, 0, N, a);
  bs_rng_normal(2, 0, 0, N, b);
  for (int i = 0; i < N; i++) {
    x[i] = bs_f32_to_f16(a[i]);
    y[i] = bs_f32_to_f16(b[i] * (i % 3 == 0 ? 0.01F : 2.0F));
  }
  bs_session *s = tb_open(_i % 2 == 0 ? "ref" : "cpu", "", NULL);
  ck_assert_uint_eq(bs_session_node_count(s), 2); /* each is one program */
  tb_set(s, "x", x);
  tb_set(s, "y", y);
  tb_set(s, "a", a);
  tb_set(s, "b", b);
  ck_assert_msg(bs_session_check(s, NULL, NULL, &err) == BS_OK, "%s", err.message);
  bs_verify_report report = {.struct_size = (uint32_t)sizeof report};
  ck_assert_msg(bs_session_verify(s, &report, &err) == BS_OK, "%s; %s", err.message, err.hint);
  bs_session_close(s);
}
END_TEST

/* Rows that hardly differ from their mean, scores under a mask of -1e4, products beyond f32: right kernels
 * are as far from f64 as this, and are called right, node by node and as a whole. */
START_TEST(ill_conditioned_models_are_right) {
  enum { N = 64 };
  const int64_t dims[] = {N, 2}, two[] = {2}, square[] = {2, 2}, q[] = {1, 1, N, 2};
  bs_error err = {.struct_size = (uint32_t)sizeof err};
  bs_verify_report r = {.struct_size = (uint32_t)sizeof r};
  float x[2 * N], noise[2 * N];
  if (_i == 1) {
    const uint32_t in = tb_input("x", BS_F32, 4, q);
    const uint32_t scores = tb_op("MatMul", in, tb_with("Transpose", "perm=0,1,3,2", in, NONE, NONE), NONE);
    const uint32_t masked = tb_op("Add", scores, tb_scalar(-1e4), NONE);
    tb_output("y", tb_op("MatMul", tb_with("Softmax", "axis=-1", masked, NONE, NONE), in, NONE));
  } else {
    const uint32_t in = tb_input("x", BS_F32, 2, dims);
    tb_output("y", _i == 0 ? tb_op("LayerNormalization", in, tb_random(1, two, 3), NONE)
                           : tb_op("MatMul", in, tb_random(2, square, 1e18), NONE));
  }
  bs_session *s = tb_open("cpu", "", NULL);
  tb_fill(x, 2 * N, 1);
  tb_fill(noise, 2 * N, 2);
  for (int i = 0; i < N && _i == 0; i++) {
    x[2 * i] = 1000 * noise[2 * i];
    x[2 * i + 1] = x[2 * i] + 0.05F * noise[2 * i + 1];
  }
  for (int i = 0; i < N && _i == 2; i++) x[i] *= 1e30F;
  tb_set(s, "x", x);
  ck_assert_msg(bs_session_check(s, NULL, NULL, &err) == BS_OK, "%s", err.message);
  ck_assert_msg(bs_session_verify(s, &r, &err) == BS_OK, "%s", err.message);
  bs_session_close(s);
}
END_TEST

/* As written a hidden key with an infinity makes all weights of a query NaN, then 0; attention passes over
 * it. Its value is what a finite key gives, which is compared. */
START_TEST(hidden_infinities_are_right) {
  enum { N = 6, D = 4 };
  const int64_t dims[] = {1, 2, N, D}, of_mask[] = {1, 1, N, N};
  bs_error err = {.struct_size = (uint32_t)sizeof err};
  bs_verify_report r = {.struct_size = (uint32_t)sizeof r};
  float q[2 * N * D], k[2 * N * D], v[2 * N * D], mask[N * N] = {0};
  const uint32_t in_k = tb_with("Transpose", "perm=0,1,3,2", tb_input("k", BS_F32, 4, dims), NONE, NONE);
  const uint32_t scores = tb_op("MatMul", tb_input("q", BS_F32, 4, dims), in_k, NONE);
  const uint32_t masked = tb_op("Add", scores, tb_input("mask", BS_F32, 4, of_mask), NONE);
  const uint32_t soft = tb_with("Softmax", "axis=-1", masked, NONE, NONE);
  const uint32_t guarded = tb_op("Where", tb_op("IsNaN", soft, NONE, NONE), tb_scalar(0), soft);
  tb_output("y", tb_op("MatMul", guarded, tb_input("v", BS_F32, 4, dims), NONE));
  bs_session *s = tb_open("cpu", "", NULL);
  ck_assert_msg(strstr(tb_report(s, BS_REPORT_EXPLAIN, 0), " attention ") != NULL, "it is not fused");
  tb_fill(q, 2 * N * D, 1);
  tb_fill(k, 2 * N * D, 2);
  tb_fill(v, 2 * N * D, 3);
  for (int i = 0; i < N; i++) mask[i * N + 2] = -INFINITY;
  if (_i == 1) k[2 * D + 1] = INFINITY;
  tb_set(s, "q", q);
  tb_set(s, "k", k);
  tb_set(s, "v", v);
  tb_set(s, "mask", mask);
  ck_assert_msg(bs_session_verify(s, &r, &err) == BS_OK, "%s", err.message);
  ck_assert_uint_eq(r.compared + r.skipped, 2 * N * D);
  ck_assert(_i == 0 ? r.skipped == 0 : r.skipped > 0 && r.compared >= N * D);
  bs_session_close(s);
}
END_TEST

/* A report of an older program, which has fewer fields. */
START_TEST(reports_have_a_size) {
  bs_error err = {.struct_size = (uint32_t)sizeof err};
  float x[ROWS * COLS];
  bs_verify_report r;
  memset(&r, 0x5a, sizeof r);
  r.struct_size = (uint32_t)offsetof(bs_verify_report, skipped);
  turned();
  bs_session *s = tb_open("cpu", "", NULL);
  tb_fill(x, ROWS * COLS, 1);
  tb_set(s, "x", x);
  ck_assert_msg(bs_session_verify(s, &r, &err) == BS_OK, "%s", err.message);
  ck_assert(r.ok == 1 && r.compared == ROWS * COLS);
  ck_assert_uint_eq(r.skipped, UINT64_C(0x5a5a5a5a5a5a5a5a));
  bs_session_close(s);
}
END_TEST

int main(void) {
  const int n = TEST_COUNT(faults);
  const test_case cases[] = {{a_faulty_pass_is_named, n},
                             {made_inputs_show_a_fault, n},
                             {right_models_are_right, 2 * n},
                             {a_wrong_kernel_is_named},
                             {long_comparisons_are_cut},
                             {fewer_layers_are_compared, 4},
                             {roundings_of_f16_are_right, 8},
                             {ill_conditioned_models_are_right, 3},
                             {hidden_infinities_are_right, 2},
                             {reports_have_a_size},
                             {0}};
  return run_tests("graph verify", cases, (test_setup){.before = before, .after = after});
}
