/* SPDX-License-Identifier: MIT
 * test_size_ranges.c - one plan for a range of sizes beside a plan for each size alone: small models whose
 * shapes, indices, conditions and constants are computed of a size. Some are written down, the others are
 * made at random. Every size of two ranges is run. BS_TEST_BIG=N: N thousand random models. */
#include "tests/formats/files.h"
#include "tests/graph/bucket_run.h"
#include "tests/graph/onnx_text.h"
#include "tests/run_tests.h"

static bs_context *context;

static void before(void) {
  bs_error err = BS_ERROR_INIT;
  files_begin();
  ck_assert_int_eq(bs_context_open(NULL, &context, &err), BS_OK);
}
static void after(void) {
  bs_context_close(context);
  files_end();
}

/* ---- a model --------------------------------------------------------------------------------- */

/* The body of a graph: x is float[n,4], w float[m,1]; n and m are vectors of one element, y is z in a row. */
#define HEAD "<ir_version: 10, opset_import: [\"\" : 21]> g (float[n,4] x, float[m,1] w) => (float[out] y) "
#define NUMBERS                                                                                          \
  "<int64[1] m1 = {-1}, int64[1] k0 = {0}, int64[1] k1 = {1}, int64[1] k2 = {2}, int64[1] k3 = {3}, "    \
  "int64[1] k4 = {4}, int64[1] k5 = {5}, int64[1] k7 = {7}, int64[1] k11 = {11}, int64[1] k20 = {20}, "  \
  "int64[1] k24 = {24}, int64[1] k27 = {27}, int64[1] k60 = {60}, int64[1] k90 = {90}, int64[1] k558 = " \
  "{558}, float[1] f3 = {0.3}, float[1] f8 = {0.125}, int64 o0 = {0}, int64 o1 = {1}, int64[8] table = " \
  "{5, 5, 5, 2, 5, 9, 5, 5}, float[1,4] row = {1, 2, 3, 4}, float zero = {0}> "

#define SIZES                                                                                  \
  "n = Shape <start: int = 0, end: int = 1> (x) m = Shape <start: int = 0, end: int = 1> (w) " \
  "l = Squeeze (n) r = Range (o0, l, o1) q = Unsqueeze (r, k1) "

static const int64_t sizes[] = {32, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27,
                                28, 29, 30, 31, 32, 6,  5,  7,  8,  6,  0};

static int run_model(const char *text, const bucket_way *w, bucket_count *io, char *why, size_t why_size) {
  char path[1200], said[200] = "";
  unsigned char *bytes;
  size_t size;
  bs_graph *model = NULL;
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(onnx_text(text, 0, &bytes, &size, said, sizeof said), "%s: %s", said, text);
  snprintf(path, sizeof path, "%s", files_path("m.onnx"));
  FILE *f = fopen(path, "wb");
  ck_assert_ptr_nonnull(f);
  fwrite(bytes, 1, size, f);
  fclose(f);
  free(bytes);
  ck_assert_msg(bs_graph_open(context, path, NULL, &model, &err) == BS_OK, "%s: %s", err.message, text);
  case_run c = {.context = context, .backend = "cpu"};
  const int good = bucket_run(&c, model, w, io);
  snprintf(why, why_size, "%s", c.why);
  bs_graph_close(model);
  return good;
}

static int run_body(const char *body, uint32_t vary, bucket_count *io, char *why, size_t why_size) {
  char text[6000];
  const bucket_way w = {.names = {"n", "m"}, .first = {3, 3}, .n = 2, .vary = vary};
  snprintf(text, sizeof text, "%s%s{ %s %s y = Reshape (z, m1) }", HEAD, NUMBERS, SIZES, body);
  return run_model(text, &w, io, why, why_size);
}

/* ---- written down ---------------------------------------------------------------------------- */

static const struct {
  const char *body;
  int served;    /* 1: at least one range serves its sizes */
  uint32_t vary; /* 0: n alone */
} bodies[] = {
    /* Numbers that are equal, or in a row, at 32, 31 and 17, and others between. */
    {"h = Mod (n, k3) c = Less (h, k1) t = Where (c, k1, k2) f = Cast <to: int = 1> (t) z = Mul (x, f)", 0},
    {"a = Less (n, k24) b = Less (k20, n) c = And (a, b) f = Cast <to: int = 1> (c) z = Mul (x, f)", 0},
    {"a = Div (k558, n) f = Cast <to: int = 1> (a) z = Mul (x, f)", 0},
    {"i = Mod (n, k7) t = Gather (table, i) f = Cast <to: int = 1> (t) z = Mul (x, f)", 0},
    {"t = Mul (q, k3) u = Add (t, n) c = Less (k90, u) f = Cast <to: int = 1> (c) z = Mul (x, f)", 0},
    {"c = Equal (r, k20) f = Cast <to: int = 1> (c) h = ReduceMax <keepdims: int = 1> (f, k0) z = Add (x, h)",
     0},
    {"t = Mul (q, k11) c = Equal (t, n) f = Cast <to: int = 1> (c) z = Mul (x, f)", 0},
    {"a = BitwiseAnd (n, k4) f = Cast <to: int = 1> (a) z = Add (x, f)", 0},
    {"a = Sub (n, k24) c = Cast <to: int = 9> (a) f = Cast <to: int = 1> (c) z = Mul (x, f)", 0},
    {"a = Sub (n, k20) b = Concat <axis: int = 0> (a, m1) z = Reshape (x, b)", 0},
    {"a = Sub (n, k20) z = Slice (x, a, n, k0)", 0},
    {"a = Sub (n, k20) z = Gather (x, a)", 0},
    {"e = Concat <axis: int = 0> (n, n) f = Expand (zero, e) g = Size (f) s = Unsqueeze (g, k0) "
     "a = Mul (n, k4) b = Mul (a, k11) c = Mul (k20, k24) d = Add (s, c) h = Less (d, b) "
     "i = Cast <to: int = 1> (h) z = Mul (x, i)",
     0},
    {"a = Mul (n, k20) b = Cast <to: int = 2> (a) c = Cast <to: int = 7> (b) d = Less (c, k24) "
     "f = Cast <to: int = 1> (d) z = Mul (x, f)",
     0},
    {"a = Add (k27, k5) u = Sub (a, n) v = Sub (a, m) p = Mul (u, v) d = Sub (m, n) e = Mul (p, d) "
     "h = Less (k0, e) f = Cast <to: int = 1> (h) z = Mul (x, f)",
     0, 3},
    /* What one plan serves. */
    {"f = Cast <to: int = 1> (n) z = Mul (x, f)", 1},
    {"a = Sub (n, k1) z = Gather (x, a)", 1},
    {"a = Add (n, k3) b = Concat <axis: int = 0> (a, k4) z = Expand (row, b)", 1},
    {"c = Less (q, r) f = Cast <to: int = 1> (c) z = MatMul (f, x)", 1},
    {"a = Equal (n, k0) c = Where (a, k1, n) b = Concat <axis: int = 0> (c, k4) z = Expand (row, b)", 1},
    {"a = Div (n, k60) b = Mul (a, k7) c = Add (b, n) d = Concat <axis: int = 0> (c, k4) z = Expand (row, d)",
     1},
};

START_TEST(written_down) {
  bucket_count count = {.sizes = sizes};
  char why[800];
  const int good =
      run_body(bodies[_i].body, bodies[_i].vary != 0 ? bodies[_i].vary : 1, &count, why, sizeof why);
  ck_assert_msg(good, "%s: %s", bodies[_i].body, why);
  ck_assert_msg(!bodies[_i].served || count.served > 10, "%s: %u served, %u alone", bodies[_i].body,
                count.served, count.alone);
}
END_TEST

/* Rows of a table that stays in its file (graph/run/table.c), by indices whose strides are no longer dense
 * at sizes below the largest. Indices are 0 or 1: the other rows are a hole in the file. */
START_TEST(rows_of_a_file) {
  static const char text[] =
      "<ir_version: 10, opset_import: [\"\" : 21]> g (float[n,4] x, int64[64] ids) => (float[out] y) "
      "<int64[1] m1 = {-1}, int64[1] k0 = {0}, int64[1] k1 = {1}, int64[2] s = {2, 32}, "
      "float[65536,16] table = [\"location\" : \"table\"]> { n = Shape <start: int = 0, end: int = 1> (x) "
      "b = Reshape (ids, s) a = Slice (b, k0, n, k1) z = Gather (table, a) y = Reshape (z, m1) }";
  const bucket_way w = {.names = {"n"}, .first = {3}, .n = 1, .vary = 1};
  bucket_count count = {.sizes = sizes};
  float rows[2][16];
  char why[800];
  for (int i = 0; i < 32; i++) rows[i / 16][i % 16] = (float)(i + 1);
  ck_assert_int_eq(truncate(files_write("table", rows, sizeof rows), 65536 * 16 * 4), 0);
  ck_assert_msg(run_model(text, &w, &count, why, sizeof why), "%s", why);
  ck_assert_msg(count.served > 10, "%u served, %u alone", count.served, count.alone);
}
END_TEST

/* ---- at random ------------------------------------------------------------------------------- */

typedef struct maker {
  char text[4000];
  size_t at;
  uint32_t seed, numbers, flags, others; /* s0 .. are vectors of one integer, c0 .. of one bool */
} maker;

static uint32_t pick(maker *m, uint32_t n) {
  m->seed = m->seed * 1664525u + 1013904223u;
  return n > 0 ? (m->seed >> 8) % n : 0;
}

/* A line: %a an integer of the sizes, %k a constant, %c a bool, %s the new integer, %d the new bool, %t a
 * name of the line. */
static void put(maker *m, const char *line) {
  static const char *const constants[] = {"k1",  "k2",  "k3",  "k4",  "k5", "k7",
                                          "k11", "k20", "k24", "k27", "k60"};
  for (const char *p = line; *p != '\0' && m->at + 40 < sizeof m->text; p++) {
    char *to = m->text + m->at;
    const size_t room = sizeof m->text - m->at;
    if (*p != '%') {
      *to = *p;
      m->at++;
      continue;
    }
    const uint32_t number = pick(m, m->numbers + 2u);
    int n = 0;
    switch (*++p) {
      case 'a':
        n = number < m->numbers ? snprintf(to, room, "s%u", number)
                                : snprintf(to, room, number == m->numbers ? "n" : "m");
        break;
      case 'k':
        n = snprintf(to, room, "%s", constants[pick(m, sizeof constants / sizeof constants[0])]);
        break;
      case 'c':
        n = snprintf(to, room, "c%u", pick(m, m->flags));
        break;
      case 's':
        n = snprintf(to, room, "s%u", m->numbers);
        break;
      case 'd':
        n = snprintf(to, room, "c%u", m->flags);
        break;
      default:
        n = snprintf(to, room, "t%u%c", m->others, *p);
    }
    m->at += (size_t)n;
  }
  m->text[m->at] = '\0';
  m->others++;
}

static const char *const integers[] = {
    "%s = Add (%a, %k) ",
    "%s = Sub (%a, %k) ",
    "%s = Sub (%k, %a) ",
    "%s = Sub (%a, %a) ",
    "%s = Mul (%a, %k) ",
    "%s = Mul (%a, %a) ",
    "%s = Div (%a, %k) ",
    "%1 = Max (%a, k1) %s = Div (k558, %1) ",
    "%1 = Max (%a, k1) %s = Mod (k558, %1) ",
    "%s = Mod (%a, %k) ",
    "%s = Min (%a, %k) ",
    "%s = Max (%a, %k) ",
    "%s = Max (%a, %a) ",
    "%s = Abs (%a) ",
    "%s = Sign (%a) ",
    "%s = Neg (%a) ",
    "%1 = Squeeze (%k) %2 = Squeeze (k60) %s = Clip (%a, %1, %2) ",
    "%1 = Cast <to: int = 1> (%a) %2 = Mul (%1, f3) %3 = Floor (%2) %s = Cast <to: int = 7> (%3) ",
    "%1 = Cast <to: int = 1> (%a) %2 = Mul (%1, f8) %3 = Ceil (%2) %s = Cast <to: int = 7> (%3) ",
    "%1 = Abs (%a) %2 = Cast <to: int = 1> (%1) %3 = Sqrt (%2) %s = Cast <to: int = 7> (%3) ",
    "%1 = Mod (%a, k7) %s = Gather (table, %1) ",
    "%s = BitwiseAnd (%a, %k) ",
    "%1 = Concat <axis: int = 0> (%a, %k, %a) %s = ReduceMax <keepdims: int = 1> (%1, k0) ",
    "%1 = Concat <axis: int = 0> (%a, %k, %a) %s = ArgMax <axis: int = 0> (%1) ",
    "%1 = Concat <axis: int = 0> (%a, %k) %s = ReduceProd <keepdims: int = 1> (%1, k0) ",
    "%1 = Concat <axis: int = 0> (%a, %k) %2 = CumSum (%1, o0) %s = Gather (%2, k1) ",
    "%3 = Mul (r, %k) %4 = Less (%3, %a) %5 = Cast <to: int = 7> (%4) %s = ReduceSum (%5, k0) ",
    "%3 = Equal (r, %k) %4 = Cast <to: int = 7> (%3) %s = ReduceMax <keepdims: int = 1> (%4, k0) ",
    "%s = Where (%c, %a, %k) ",
    "%s = Where (%c, %k, %a) ",
    "%s = Cast <to: int = 7> (%c) ",
};

static const char *const bools[] = {
    "%d = Less (%a, %k) ",
    "%d = Greater (%a, %k) ",
    "%d = Equal (%a, %k) ",
    "%d = GreaterOrEqual (%a, %a) ",
    "%1 = Less (%a, %k) %2 = Greater (%a, %k) %d = And (%1, %2) ",
    "%d = Not (%c) ",
    "%d = Xor (%c, %c) ",
    "%1 = Sub (%a, %k) %d = Cast <to: int = 9> (%1) ",
};

/* What becomes of them. */
static const char *const uses[] = {
    "%1 = Cast <to: int = 1> (%a) z = Mul (x, %1) ",
    "z = Slice (x, %a, %a, k0) ",
    "z = Slice (x, %k, %a, k0) ",
    "z = Slice (x, %a, n, k0) ",
    "%1 = Concat <axis: int = 0> (%a, m1) z = Reshape (x, %1) ",
    "%1 = Concat <axis: int = 0> (m1, %a) z = Reshape (x, %1) ",
    "%1 = Concat <axis: int = 0> (%a, k4) z = Expand (row, %1) ",
    "%1 = Concat <axis: int = 0> (%a, k4) z = Expand (x, %1) ",
    "%1 = Min (%a, k5) %2 = Concat <axis: int = 0> (%1, k1) z = Tile (x, %2) ",
    "%1 = Concat <axis: int = 0> (%a, k0, %a, k0) z = Pad (x, %1) ",
    "%1 = Concat <axis: int = 0> (%a, k4) %2 = ConstantOfShape (%1) z = Add (%2, row) ",
    "%1 = Squeeze (%a) z = Trilu (x, %1) ",
    "%1 = Min (%a, n) z, %2 = TopK <axis: int = 0> (x, %1) ",
    "z = Gather (x, %a) ",
    "%1 = Where (%c, x, row) z = Add (%1, x) ",
    "%1 = Squeeze (%a) %2 = Range (o0, %1, o1) %3 = Cast <to: int = 1> (%2) z = Exp (%3) ",
    "%3 = Less (q, %a) z = Where (%3, x, zero) ",
    "%4 = Add (q, r) %5 = Mul (%4, %k) %6 = Less (%5, %a) %7 = Cast <to: int = 1> (%6) z = MatMul (%7, x) ",
    "%3 = Sub (q, %a) %4 = Cast <to: int = 1> (%3) z = Mul (%4, x) ",
    ("z = If (%c) <then_branch = yes () => (float u) { u = Relu (x) }, else_branch = no () => (float v) { v "
     "= "
     "Neg (x) }> "),
    "%3 = Concat <axis: int = 0> (r, %a) %4 = Unsqueeze (%3, k1) %5 = Cast <to: int = 1> (%4) z = Exp (%5) ",
    "%3 = Tile (r, k2) %4 = Cast <to: int = 1> (%3) %5 = Unsqueeze (%4, k1) z = Add (%5, row) ",
};

static void make(maker *m, uint32_t seed) {
  *m = (maker){.seed = seed * 2654435761u + 1u};
  put(m, bools[pick(m, 5)]);
  m->flags = 1;
  for (uint32_t steps = 1 + pick(m, 4); steps > 0; steps--) {
    const int flag = pick(m, 4) == 0;
    const char *line = flag ? bools[pick(m, TEST_COUNT(bools))] : integers[pick(m, TEST_COUNT(integers))];
    put(m, line);
    m->flags += (uint32_t)flag;
    m->numbers += (uint32_t)!flag;
  }
  put(m, uses[pick(m, TEST_COUNT(uses))]);
}

START_TEST(at_random) {
  const char *big = getenv("BS_TEST_BIG"), *first = getenv("BS_TEST_FIRST");
  const uint32_t from = first != NULL ? (uint32_t)strtoul(first, NULL, 10) : 0,
                 n = big != NULL ? 1000u * (uint32_t)strtoul(big, NULL, 10) : 120;
  bucket_count count = {.sizes = sizes};
  uint32_t wrong = 0;
  for (uint32_t i = from; i < from + n; i++) {
    static maker m;
    char why[800];
    make(&m, i);
    if (run_body(m.text, i % 3 == 0 ? 3 : 1, &count, why, sizeof why)) continue;
    fprintf(stderr, "seed %u: %s: %s\n", i, m.text, why);
    wrong++;
  }
  fprintf(stderr, "%u models, %u sizes by ranges, %u alone, %u refused\n", count.models, count.served,
          count.alone, count.refused);
  ck_assert_uint_eq(wrong, 0);
}
END_TEST

int main(void) {
  return run_tests("size_ranges",
                   (test_case[]){{written_down, TEST_COUNT(bodies)}, {rows_of_a_file}, {at_random}, {0}},
                   (test_setup){before, after, 1200});
}
