/* SPDX-License-Identifier: MIT
 * What passes read from the programs of map (form.h) and make of them (program.h), program by program: a sum,
 * a product or a polynomial is read where it is one, and nothing else is taken for one. */
#include <math.h>
#include <string.h>

#include "graph/pass/form.h"
#include "graph/pass/program.h"
#include "tests/graph/program_text.h"
#include "tests/run_tests.h"

/* ---- forms as texts -------------------------------------------------------------------------- */

static void put_operand(const form *f, char out[1024]) {
  snprintf(out, 1024, "%s", program_word(f->e, form_operand(f, f->e->outs[0])));
}

static void put_constant(const form *f, char out[1024]) {
  double value;
  snprintf(out, 1024, "none");
  if (form_is_const(f, f->e->outs[0], &value)) snprintf(out, 1024, "%.9g", value);
}

static void put_sum(const form *f, char out[1024]) {
  form_sum s;
  size_t n = 0;
  snprintf(out, 1024, "none");
  if (!form_sum_of(f, f->e->outs[0], &s)) return;
  for (uint32_t i = 0; i < s.n && i < FORM_MAX; i++)
    n += (size_t)snprintf(out + n, 1024 - n, "%s%.9g %s", n > 0 ? " + " : "", s.factor[i],
                          program_word(f->e, s.operand[i]));
  if (s.has_constant) snprintf(out + n, 1024 - n, "%s%.9g", n > 0 ? " + " : "", s.constant);
}

static void put_product(const form *f, char out[1024]) {
  form_product p;
  snprintf(out, 1024, "none");
  if (!form_product_of(f, f->e->outs[0], &p)) return;
  size_t n = (size_t)snprintf(out, 1024, "%.9g", p.factor);
  for (uint32_t i = 0; i < p.n && i < FORM_MAX; i++)
    n += (size_t)snprintf(out + n, 1024 - n, " %s^%.9g", program_word(f->e, p.operand[i]), p.power[i]);
}

/* Of x, which is a, and t, which is b. */
static void put_polynomial(const form *f, char out[1024]) {
  form_poly p;
  size_t n = 0;
  snprintf(out, 1024, "none");
  if (!form_poly_of(f, f->e->outs[0], 0, 1, &p)) return;
  snprintf(out, 1024, "0");
  for (uint32_t i = 0; i < 8; i++)
    if (p.c[i / 2][i % 2] != 0)
      n += (size_t)snprintf(out + n, 1024 - n, "%s%.9g x%u t%u", n > 0 ? " + " : "", p.c[i / 2][i % 2], i / 2,
                            i % 2);
}

#define NINE "add a b; add c d; add t0 t1; add e f; add g h; add t3 t4; add t2 t5; add t6 i; "
#define NINE_FACTORS "mul a b; mul c d; mul t0 t1; mul e f; mul g h; mul t3 t4; mul t2 t5; mul t6 i; "
#define TWELVE(op)                                                                                          \
  op " a a; " op " t0 a; " op " t1 a; " op " t2 a; " op " t3 a; " op " t4 a; " op " t5 a; " op " t6 a; " op \
     " t7 a; " op " t8 a; " op " t9 a; "

static const struct {
  void (*put)(const form *f, char out[1024]);
  const char *program, *form;
  uint32_t rounds;
} forms[] = {
    /* Moves, conversions to the dtype of the outputs, and conversions of truths to bool change nothing. */
    {put_operand, "mov a; t0", "a"},
    {put_operand, "mov a; mov t0; t1", "a", BS_F32},
    {put_operand, "to a f32; t0", "a", BS_F32},
    {put_operand, "to a f16; t0", "t0", BS_F32},
    {put_operand, "to a f32; t0", "t0"},
    {put_operand, "not a; to t0 bool; t1", "t0", BS_F32},
    {put_operand, "isnan a; to t0 bool; t1", "t0", BS_F32},
    {put_operand, "isinf a; to t0 bool; t1", "t0", BS_F32},
    {put_operand, "lt a b; to t0 bool; t1", "t0", BS_F32},
    {put_operand, "le a b; to t0 bool; t1", "t0", BS_F32},
    {put_operand, "eq a b; to t0 bool; t1", "t0", BS_F32},
    {put_operand, "and a b; to t0 bool; t1", "t0", BS_F32},
    {put_operand, "or a b; to t0 bool; t1", "t0", BS_F32},
    {put_operand, "xor a b; to t0 bool; t1", "t0", BS_F32},
    {put_operand, "add a b; to t0 bool; t1", "t1", BS_F32},
    {put_operand, "lt a b; to t0 f16; t1", "t1", BS_F32},
    {put_constant, "mov 2; t0", "2"},
    {put_constant, "a", "none"},
    {put_constant, "exp 2; t0", "none"},
    {put_constant, "i64 2", "none"}, /* its bits are those of no f64 */
    /* Sums. */
    {put_sum, "add a b; t0", "1 a + 1 b"},
    {put_sum, "sub a b; t0", "1 a + -1 b"},
    {put_sum, "sub a b; sub 2 t0; t1", "-1 a + 1 b + 2"},
    {put_sum, "add a a; t0", "2 a"},
    {put_sum, "neg a; t0", "-1 a"},
    {put_sum, "mul a 2; t0", "2 a"},
    {put_sum, "mul 2 a; t0", "2 a"},
    {put_sum, "div a 2; t0", "0.5 a"},
    {put_sum, "div 2 a; t0", "1 t0"},
    {put_sum, "mul a b; t0", "1 t0"},
    {put_sum, "div a b; t0", "1 t0"},
    {put_sum, "div a 2; div b c; add t0 t1; t2", "0.5 a + 1 t1"},
    {put_sum, "mul a inf; t0", "1 t0"},
    {put_sum, "mul a 0; t0", "1 t0"},
    {put_sum, "div a 0; t0", "1 t0"},
    {put_sum, "div a inf; t0", "1 t0"},
    {put_sum, "add a inf; t0", "none"},
    {put_sum, "add a 0; t0", "1 a + 0"},
    {put_sum, "sub a a; t0", "none"},
    {put_sum, "sub a a; add t0 b; t1", "none"},
    {put_sum, "sub a a; add b t0; t1", "none"},
    {put_sum, "max a b; add t0 1; t1", "1 t0 + 1"},
    {put_sum, NINE "t6", "1 a + 1 b + 1 c + 1 d + 1 e + 1 f + 1 g + 1 h"},
    {put_sum, NINE "t7", "none"},
    {put_sum, TWELVE("add") "t5", "7 a"},
    {put_sum, TWELVE("add") "t10", "none"},
    {put_sum, "i64 add a b; t0", "none"},
    /* Products. */
    {put_product, "mul a b; t0", "1 a^1 b^1"},
    {put_product, "mul a b; mul t0 2; t1", "2 a^1 b^1"},
    {put_product, "div a b; t0", "1 a^1 b^-1"},
    {put_product, "mul a a; t0", "1 a^2"},
    {put_product, "div a a; t0", "none"},
    {put_product, "recip a; mul t0 a; t1", "none"},
    {put_product, "pow a 1.5; mul a t0; t1", "none"},
    {put_product, "pow a 1.5; mul t0 a; t1", "none"},
    {put_product, "div a a; mul t0 b; t1", "none"},
    {put_product, "div a a; mul b t0; t1", "none"},
    {put_product, "neg a; t0", "-1 a^1"},
    {put_product, "neg a; pow t0 2; t1", "1 t0^2"},
    {put_product, "recip a; t0", "1 a^-1"},
    {put_product, "recip 4; mul t0 a; t1", "0.25 a^1"},
    {put_product, "sqrt a; t0", "1 a^0.5"},
    {put_product, "rsqrt a; t0", "1 a^-0.5"},
    {put_product, "sqrt a; pow t0 2; t1", "1 t0^2"},
    {put_product, "mul a b; sqrt t0; t1", "1 t0^0.5"},
    {put_product, "pow a 2; pow b c; mul t0 t1; t2", "1 a^2 t1^1"},
    {put_product, "pow a 5; t0", "1 t0^1"},
    {put_product, "pow a inf; t0", "1 t0^1"},
    {put_product, "mul a 0; t0", "none"},
    {put_product, "div a 0; t0", "none"},
    {put_product, NINE_FACTORS "t6", "1 a^1 b^1 c^1 d^1 e^1 f^1 g^1 h^1"},
    {put_product, NINE_FACTORS "t7", "none"},
    {put_product, TWELVE("mul") "t5", "1 a^7"},
    {put_product, TWELVE("mul") "t10", "none"},
    {put_product, "i64 mul a b; t0", "none"},
    /* Polynomials of x to x^3 and t to t. */
    {put_polynomial, "mul a a; mul t0 b; add t1 2; t2", "2 x0 t0 + 1 x2 t1"},
    {put_polynomial, "sub 1 a; neg t0; t1", "-1 x0 t0 + 1 x1 t0"},
    {put_polynomial, "mul a a; mul t0 t0; t1", "none"},
    {put_polynomial, "mul b b; t0", "none"},
    {put_polynomial, "add a 1; div b t0; t1", "none"},
    {put_polynomial, "div a 4; t0", "0.25 x1 t0"},
    {put_polynomial, "div a 0; t0", "none"},
    {put_polynomial, "pow a 2; t0", "1 x2 t0"},
    {put_polynomial, "pow a 3; t0", "1 x3 t0"},
    {put_polynomial, "pow a 4; t0", "none"},
    {put_polynomial, "pow a 2; pow a a; add t0 t1; t2", "none"},
    {put_polynomial, "pow a 2; pow t0 2; t1", "none"},
    {put_polynomial, "add a c; t0", "none"},
    {put_polynomial, "exp a; t0", "none"},
    {put_polynomial, "fma a a 1; t0", "none"},
    {put_polynomial, "mul a 3; mov t0; add t1 b; t2", "1 x0 t1 + 3 x1 t0"},
    {put_polynomial, "i64 add a b; t0", "none"},
    {put_polynomial, "sub a a; t0", "0"},
};

START_TEST(forms_are_read) {
  char got[1024];
  const gexpr e = program_of(forms[_i].program);
  const form f = {&e, forms[_i].rounds};
  forms[_i].put(&f, got);
  ck_assert_msg(strcmp(got, forms[_i].form) == 0, "'%s' is read as '%s', not '%s'", forms[_i].program, got,
                forms[_i].form);
}
END_TEST

/* ---- questions ------------------------------------------------------------------------------- */

/* Is the program the sum (a product: of powers) of these numbers times the first n inputs but `but`? */
static const struct {
  const char *program;
  int product, is;
  uint32_t n;
  uint8_t operands[FORM_MAX];
  double numbers[FORM_MAX];
} questions[] = {
    {"sub a b; t0", 0, 1, 2, {0, 1}, {1, -1}},
    {"sub a b; t0", 0, 1, 2, {1, 0}, {-1, 1}},
    {"sub a b; t0", 0, 0, 2, {0, 1}, {1, 1}},
    {"add a b; t0", 0, 0, 1, {0}, {1}},
    {"add a b; t0", 0, 0, 2, {0, 2}, {1, 0}},
    {"add a b; add t0 0; t1", 0, 0, 2, {0, 1}, {1, 1}},
    {NINE "t7", 0, 0, 8, {0, 1, 2, 3, 4, 5, 6, 7}, {1, 1, 1, 1, 1, 1, 1, 1}},
    {"div a b; t0", 1, 1, 2, {0, 1}, {1, -1}},
    {"div a b; t0", 1, 0, 2, {0, 1}, {1, 1}},
    {"mul a b; t0", 1, 0, 1, {0}, {1}},
    {"mul a b; t0", 1, 0, 2, {0, 2}, {1, 0}},
    {"mul a b; mul t0 2; t1", 1, 0, 2, {0, 1}, {1, 1}},
    {NINE_FACTORS "t7", 1, 0, 8, {0, 1, 2, 3, 4, 5, 6, 7}, {1, 1, 1, 1, 1, 1, 1, 1}},
};

START_TEST(sums_and_products) {
  const gexpr e = program_of(questions[_i].program);
  const form f = {&e, 0};
  const int is = (questions[_i].product ? form_is_product : form_is_sum)(
      &f, e.outs[0], questions[_i].operands, questions[_i].numbers, questions[_i].n);
  ck_assert_msg(is == questions[_i].is, "'%s': %d", questions[_i].program, is);
}
END_TEST

/* The factor of a where the program is a times a number; 0. */
static const struct {
  const char *program;
  double factor;
} scaled[] = {{"neg a; t0", -1},
              {"mul a 0.5; div t0 -2; t1", -0.25},
              {"a", 1},
              {"recip a; t0", 0},
              {"div a a; t0", 0},
              {"mul a b; t0", 0},
              {"mul b 2; t0", 0},
              {"add a 1; t0", 0},
              {"max a 0; neg t0; t1", 0},
              {"pow a 2; t0", 0}};

START_TEST(multiples) {
  const gexpr e = program_of(scaled[_i].program);
  const form f = {&e, 0};
  double factor = 0;
  const int is = form_is_scaled(&f, e.outs[0], 0, &factor);
  ck_assert_msg(is == (scaled[_i].factor != 0) && (!is || factor == scaled[_i].factor), "'%s': %d, %g",
                scaled[_i].program, is, factor);
}
END_TEST

/* ---- the normal form ------------------------------------------------------------------------- */

#define FOURTEEN(first)                                                                     \
  "add " first                                                                              \
  " t1; add 4 t2; add 5 t3; add 6 t4; add 7 t5; add 8 t6; add 9 t7; add 10 t8; add 11 t9; " \
  "add 12 t10; add 13 t11; add 14 t12; add 15 t13; add 16 t14; t15"
#define FOURTEEN_BEHIND(first)                                                              \
  "add " first                                                                              \
  " t0; add 4 t1; add 5 t2; add 6 t3; add 7 t4; add 8 t5; add 9 t6; add 10 t7; add 11 t8; " \
  "add 12 t9; add 13 t10; add 14 t11; add 15 t12; add 16 t13; t14"
static const struct {
  const char *program, *tidy; /* NULL: the same */
} tidied[] = {
    {"mov a; exp t0; t1", "exp a; t0"},
    {"add 1 2; mul t0 a; t1", "mul a 3; t0"},
    {"exp a; exp a; add t0 t1; t2", "exp a; add t0 t0; t1"},
    {"exp a; neg a; t0", "exp a; t0"},
    {"add b a; t0", "add a b; t0"},
    {"mul b a; t0", "mul a b; t0"},
    {"eq b a; t0", "eq a b; t0"},
    {"and b a; t0", "and a b; t0"},
    {"or b a; t0", "or a b; t0"},
    {"xor b a; t0", "xor a b; t0"},
    {"add a b; t0", NULL},
    {"sub b a; t0", NULL},
    {"min b a; t0", NULL},
    {"max b a; t0", NULL},
    {"fma b a 2; t0", NULL},
    {"i64 add 2 3; mul a t0; t1", NULL},
    {"index 0; add a t0; t1", NULL},
    {"to 0.1 f16; add a t0; t1", NULL},
    /* With all constants taken, a new one has no place. */
    {"add 1 2; mul a t0; " FOURTEEN("3"), "mul a 3; " FOURTEEN_BEHIND("3")},
    {"add 1 2; mul a t0; " FOURTEEN("3.5"), NULL},
};

START_TEST(programs_are_tidied) {
  char got[1024], wanted[1024];
  gexpr e = program_of(tidied[_i].program);
  const int changed = program_tidy(&e);
  const gexpr want = program_of(tidied[_i].tidy != NULL ? tidied[_i].tidy : tidied[_i].program);
  program_print(&e, got);
  program_print(&want, wanted);
  ck_assert_msg(strcmp(got, wanted) == 0, "'%s' is tidied to '%s'", tidied[_i].program, got);
  ck_assert_int_eq(changed, tidied[_i].tidy != NULL);
}
END_TEST

/* ---- two programs as one --------------------------------------------------------------------- */

/* `producer` gives b of `consumer`; its inputs are a and b of the result. */
static const struct {
  const char *consumer, *producer, *joined;
  uint32_t round;
} joins[] = {
    {"sub a b; t0", "exp a; t0", "exp a; sub a t0; t1"},
    {"sub a b; t0", "mul a b; add t0 2; t1", "mul a b; add t0 2; sub a t1; t2"},
    {"sub a b; t0", "exp a; t0", "exp a; to t0 f16; sub a t1; t2", BS_F16},
    {"sub a b; t0", "0.5", "sub a 0.5; t0"},
    {"a, b", "exp a; t0", "exp a; a, t0"},
};

START_TEST(programs_are_joined) {
  char got[1024];
  static const uint8_t maps[] = {0, 1};
  gexpr e = program_of(joins[_i].consumer);
  const gexpr p = program_of(joins[_i].producer);
  ck_assert(program_join(&e, 1, &p, maps, joins[_i].round));
  program_print(&e, got);
  ck_assert_msg(strcmp(got, joins[_i].joined) == 0, "'%s'", got);
}
END_TEST

/* A program of n steps and n_const constants. */
static gexpr long_program(uint32_t n, uint32_t n_const, double first) {
  gexpr e = program_of("add a b; t0");
  for (uint32_t i = 0; i < n; i++) e.steps[i].op = BS_EXPR_EXP;
  for (uint32_t i = 0; i < n_const; i++) {
    const double value = first + i;
    memcpy(&e.consts[i], &value, sizeof value);
  }
  e.n_steps = (uint8_t)n;
  e.n_const = (uint8_t)n_const;
  return e;
}

static const struct {
  uint32_t steps, more_steps, consts, more_consts, round;
  int fits;
} sizes[] = {{60, 4, 2, 2, 0, 1},      {60, 5, 2, 2, 0, 0}, {60, 4, 2, 2, BS_F16, 0},
             {60, 3, 2, 2, BS_F16, 1}, {2, 2, 14, 2, 0, 1}, {2, 2, 14, 3, 0, 0}};

START_TEST(a_joined_program_has_an_end) {
  static const uint8_t maps[] = {0, 1};
  gexpr e = long_program(sizes[_i].steps, sizes[_i].consts, 1);
  const gexpr before = e, p = long_program(sizes[_i].more_steps, sizes[_i].more_consts, 100);
  ck_assert_int_eq(program_join(&e, 1, &p, maps, sizes[_i].round), sizes[_i].fits);
  if (!sizes[_i].fits) ck_assert_mem_eq(&e, &before, sizeof e);
}
END_TEST

/* `input` goes, which nothing reads. */
static const struct {
  const char *program;
  uint8_t input;
  const char *without;
} dropped[] = {{"add a c; t0, c", 1, "add a b; t0, b"},
               {"add a b; t0, a", 2, "add a b; t0, a"},
               {"fma b c 2; t0, d", 0, "fma a b 2; t0, c"}};

START_TEST(inputs_are_dropped) {
  char got[1024];
  gexpr e = program_of(dropped[_i].program);
  const uint32_t before = e.n_in;
  program_drop_input(&e, dropped[_i].input);
  program_print(&e, got);
  ck_assert_msg(strcmp(got, dropped[_i].without) == 0, "'%s'", got);
  ck_assert_uint_eq(e.n_in + 1u, before);
}
END_TEST

START_TEST(parts) {
  const gexpr e = program_of("exp a; add t0 b; index 0; mul t1 c; add t3 t2; t4");
  ck_assert(program_has(&e, BS_EXPR_INDEX) && program_has(&e, BS_EXPR_EXP) && !program_has(&e, BS_EXPR_SUB));
  ck_assert_uint_eq(program_inputs(&e, GX_STEP + 1), 3);
  ck_assert_uint_eq(program_inputs(&e, GX_STEP + 3), 7);
  ck_assert_uint_eq(program_inputs(&e, GX_STEP + 4), UINT32_MAX);
}
END_TEST

int main(void) {
  const test_case cases[] = {{forms_are_read, TEST_COUNT(forms)},
                             {sums_and_products, TEST_COUNT(questions)},
                             {multiples, TEST_COUNT(scaled)},
                             {programs_are_tidied, TEST_COUNT(tidied)},
                             {programs_are_joined, TEST_COUNT(joins)},
                             {a_joined_program_has_an_end, TEST_COUNT(sizes)},
                             {inputs_are_dropped, TEST_COUNT(dropped)},
                             {parts},
                             {0}};
  return run_tests("pass programs", cases, (test_setup){0});
}
