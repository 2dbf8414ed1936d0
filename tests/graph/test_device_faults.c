/* SPDX-License-Identifier: MIT
 * test_device_faults.c - sessions on a backend with separate memory, where something goes wrong or goes
 * away: indices of the caller, constants of plans that are dropped, copies that fail. */
#include "tests/graph/device_case.h"

/* An index outside of a table is an error before anything goes up: of each kind of index, and of what is
 * written. */
static const struct {
  const char *op;
  int64_t index[2]; /* shape of the index; 2 in its last dimension of tuples */
  uint32_t puts;    /* 1: the third input is what is written */
  uint32_t quant;   /* 1: the table has 8-bit codes */
} places[] = {{"Gather", {2, 1}, 0, 0},   {"Gather", {2, 1}, 0, 1},          {"GatherElements", {2, 4}, 0, 0},
              {"GatherND", {3, 2}, 0, 0}, {"ScatterElements", {2, 4}, 1, 0}, {"ScatterND", {3, 2}, 1, 0}};

/* A table of 3 rows whose values are codes times 0.5. */
static uint32_t quantised_table(bs_graph *model) {
  static const int8_t codes[3][4] = {{1, -2, 3, 4}, {5, 6, -7, 8}, {9, 10, 11, -12}};
  static const float scale = 0.5f;
  bs_tensor_desc d = {.struct_size = (uint32_t)sizeof d, .dtype = BS_I8, .rank = 2, .dims = {3, 4}};
  uint32_t args[2], table = 0;
  split_ok(bs_graph_constant(model, "codes", &d, codes, &args[0], &split_err), "codes");
  d.dtype = BS_F32;
  d.rank = 0;
  split_ok(bs_graph_constant(model, "scale", &d, &scale, &args[1], &split_err), "scale");
  split_ok(bs_graph_op(model, "DequantizeLinear", args, 2, NULL, 0, &table, 1, &split_err), "table");
  return table;
}

START_TEST(places_are_looked_at) {
  static float table[3][4], updates[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  static const int64_t bad[] = {3, -4, INT64_MAX};
  int64_t index[8] = {2, 0, 1, -1, 0, 2, -3, 1};
  const int64_t rows = places[_i].index[0], cols = places[_i].index[1];
  bs_graph *model = NULL;
  bs_tensor_desc d = {.struct_size = (uint32_t)sizeof d, .dtype = BS_F32, .rank = 2, .dims = {3, 4}};
  uint32_t args[3], out = 0;
  for (int i = 0; i < 12; i++) table[i / 4][i % 4] = (float)i;
  split_ok(bs_graph_new(split_context, &model, &split_err), "graph");
  if (places[_i].quant)
    args[0] = quantised_table(model);
  else
    split_ok(bs_graph_constant(model, "table", &d, table, &args[0], &split_err), "table");
  d.dtype = BS_I64;
  d.dims[0] = rows;
  d.dims[1] = cols;
  split_ok(bs_graph_input(model, "places", &d, NULL, &args[1], &split_err), "input");
  d.dtype = BS_F32;
  if (cols == 2) d.rank = 1; /* one number of each tuple */
  if (places[_i].puts) split_ok(bs_graph_constant(model, "u", &d, updates, &args[2], &split_err), "updates");
  split_ok(bs_graph_op(model, places[_i].op, args, 2 + places[_i].puts, NULL, 0, &out, 1, &split_err),
           "node");
  split_ok(bs_graph_output(model, "y", out, &split_err), "output");
  bs_session *host = open_on(model, "ref", 1, NULL), *device = open_on(model, "apart", 1, NULL);
  bs_tensor t = {.struct_size = (uint32_t)sizeof t,
                 .dtype = BS_I64,
                 .rank = 2,
                 .dims = {rows, cols},
                 .strides = {cols, 1},
                 .data = index,
                 .bytes = (uint64_t)(rows * cols) * sizeof *index};
  split_ok(bs_session_set(host, 0, &t, &split_err), "set");
  split_ok(bs_session_set(device, 0, &t, &split_err), "set");
  split_ok(bs_session_run(host, &split_err), "run");
  split_ok(bs_session_run(device, &split_err), "run");
  same_outputs(host, device, places[_i].op);
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    bs_session_stats before = {.struct_size = (uint32_t)sizeof before}, after = before;
    index[0] = bad[i];
    split_ok(bs_session_stats_get(device, &before, &split_err), "stats");
    ck_assert_int_eq(bs_session_run(device, &split_err), BS_INPUT);
    ck_assert_str_eq(split_err.id, "BS-OP-INDEX");
    bs_error_clear(&split_err);
    split_ok(bs_session_stats_get(device, &after, &split_err), "stats");
    ck_assert_uint_eq(after.copied_bytes, before.copied_bytes); /* nothing went up */
  }
  bs_session_close(host);
  bs_session_close(device);
  bs_graph_close(model);
}
END_TEST

/* ---- constants --------------------------------------------------------------------------------- */

/* y = x + c * n: c * n is computed when n is known, has as many bytes for each n, and is dropped with the
 * plan. */
static bs_graph *open_sized(void) {
  enum { WIDE = 1024 };
  static float c[WIDE];
  static const char *const names[] = {"n", NULL};
  const bs_attr to = {
      .struct_size = (uint32_t)sizeof to, .type = BS_ATTR_INT, .name = "to", .i = 1}; /* FLOAT */
  const bs_attr *const attrs[] = {&to};
  bs_graph *model = NULL;
  bs_tensor_desc d = {.struct_size = (uint32_t)sizeof d, .dtype = BS_F32, .rank = 2, .dims = {-1, WIDE}};
  uint32_t x, weight, size, number, scaled, y;
  for (int i = 0; i < WIDE; i++) c[i] = (float)(i + 1) / 64;
  split_ok(bs_graph_new(split_context, &model, &split_err), "graph");
  split_ok(bs_graph_input(model, "x", &d, names, &x, &split_err), "input");
  d.rank = 1;
  d.dims[0] = WIDE;
  split_ok(bs_graph_constant(model, "c", &d, c, &weight, &split_err), "constant");
  split_ok(bs_graph_op(model, "Size", &x, 1, NULL, 0, &size, 1, &split_err), "size");
  split_ok(bs_graph_op(model, "Cast", &size, 1, attrs, 1, &number, 1, &split_err), "cast");
  split_ok(bs_graph_op(model, "Mul", (uint32_t[]){weight, number}, 2, NULL, 0, &scaled, 1, &split_err),
           "mul");
  split_ok(bs_graph_op(model, "Add", (uint32_t[]){x, scaled}, 2, NULL, 0, &y, 1, &split_err), "add");
  split_ok(bs_graph_output(model, "y", y, &split_err), "output");
  return model;
}

/* A plan that is dropped leaves none of its constants: neither its numbers nor its memory. */
START_TEST(constants_of_a_size) {
  enum { BINDS = 200 };
  static const char *const params[1] = {"apart.room=200000"};
  with_params(params, 1);
  bs_graph *model = open_sized();
  const bs_session_options o = {.backend = "apart", .plans = 1}, on_host = {.backend = "ref", .plans = 1};
  bs_session *device = NULL, *host = NULL, *other = NULL;
  split_ok(try_open(model, o, 1, &device), "device");
  split_ok(try_open(model, on_host, 1, &host), "host");
  const bs_session_options beside = {.backend = "apart", .plans = 1, .share = device};
  if (_i == 1) split_ok(try_open(model, beside, 2, &other), "shared");
  for (int i = 0; i < BINDS; i++) {
    const int64_t n = 1 + (i * 7 + i / 3) % 5;
    bind(device, n);
    bind(host, n);
    run(device, i);
    run(host, i);
    same_outputs(device, host, "a size");
    if (other == NULL) continue;
    bind(other, n); /* has the constant in common, and keeps it */
    bind(device, n % 5 + 1);
    run(other, i);
    same_outputs(other, host, "a size in common");
  }
  bs_session_close(other);
  bs_session_close(device);
  bs_session_close(host);
  bs_graph_close(model);
}
END_TEST

/* Each copy fails once: the call says so, and the same call again is right. */
START_TEST(a_copy_fails) {
  static const char *const names[] = {"gpt2/", "gpt2/", "bert_23_dynamic"}, *const lacks[] = {"", "take,put",
                                                                                              ""};
  int failed = 1;
  for (int k = 1; failed; k++) {
    char number[32], lacked[64];
    const char *const params[2] = {number, lacked};
    snprintf(number, sizeof number, "apart.fails=%d", k);
    snprintf(lacked, sizeof lacked, "apart.lacks=%s", lacks[_i]);
    with_params(params, 2);
    bs_graph *model = split_open(names[_i]);
    const bs_session_options o = {.backend = "apart"};
    bs_session *host = open_on(model, "ref", PROMPT, NULL), *device = NULL;
    failed = try_open(model, o, PROMPT, &device) != BS_OK;
    bs_error_clear(&split_err);
    if (device == NULL) device = open_on(model, "apart", PROMPT, NULL);
    for (int step = 0; step < 2; step++) {
      void *memory[PORTS] = {NULL};
      if (step > 0) bind(host, 1);
      if (step > 0 && try_bind(device, 1) != BS_OK) {
        failed = 1;
        bs_error_clear(&split_err);
        bind(device, 1);
      }
      run(host, step * PROMPT);
      feed(device, step * PROMPT, memory);
      const int32_t rc = bs_session_run(device, &split_err);
      if (rc != BS_OK) {
        failed = 1;
        ck_assert_ptr_nonnull(strstr(split_err.message, "fails as asked"));
        bs_error_clear(&split_err);
        split_ok(bs_session_run(device, &split_err), "again");
      }
      unfeed(device, memory);
      same_outputs(host, device, "after a copy that failed");
    }
    bs_session_close(device);
    bs_session_close(host);
    bs_graph_close(split_opened);
    split_opened = NULL;
    bs_model_close(&split_made);
    split_made = (bs_model){0};
  }
}
END_TEST

int main(void) {
  const test_case rows[] = {
      {places_are_looked_at, TEST_COUNT(places)}, {constants_of_a_size, 2}, {a_copy_fails, 3}, {0}};
  return run_tests("device_faults", rows, (test_setup){.before = before, .after = split_end, .timeout = 60});
}
