/* SPDX-License-Identifier: MIT
 * Programs of map at points (program.h): their values, and whether they agree with a function. A program that
 * cannot be computed at a point agrees with nothing. */
#include <math.h>

#include "graph/pass/program.h"
#include "tests/graph/program_text.h"
#include "tests/run_tests.h"

/* ---- values ---------------------------------------------------------------------------------- */

static const struct {
  const char *program;
  double a, b, value; /* NAN: there is none */
} values[] = {
    {"add a b; t0", 2, 3, 5},
    {"to a bool; t0", 2, 0, 1},
    {"to a bool; t0", 0.25, 0, 1},
    {"to a bool; t0", 0, 0, 0},
    {"to a i32; t0", -2.5, 0, -2},
    {"to a f16; t0", 2.5, 0, 2.5},
    {"index 0; add t0 a; t1", 2, 3, NAN},
    {"i64 add a b; t0", 2, 3, NAN},
};

START_TEST(values_at_a_point) {
  const gexpr e = program_of(values[_i].program);
  const double in[GX_MAX_IN] = {values[_i].a, values[_i].b};
  double out[GX_MAX_OUT] = {0};
  const int is = program_value(&e, in, out);
  ck_assert_int_eq(is, !isnan(values[_i].value));
  ck_assert(!is || out[0] == values[_i].value);
}
END_TEST

/* The value of `to` where `from` is 5. */
static const struct {
  const char *program, *from, *to;
  double value; /* NAN: `to` depends on more */
} between[] = {
    {"add a 2; mul t0 3; t1", "a", "t1", 21},
    {"add a 2; mul t0 3; t1", "t0", "t1", 15},
    {"add 1 2; mul t0 3; t1", "t0", "t1", 15},
    {"neg b; t0", "b", "t0", -5},
    {"add b 2; t0", "b", "t0", 7},
    {"add 2 b; t0", "b", "t0", 7},
    {"fma b b 2; t0", "b", "t0", 27},
    {"neg a; t0", "b", "t0", NAN},
    {"add a b; t0", "b", "t0", NAN},
    {"add b a; t0", "b", "t0", NAN},
    {"fma a b b; t0", "b", "t0", NAN},
    {"fma b a b; t0", "b", "t0", NAN},
    {"fma b b a; t0", "b", "t0", NAN},
    {"to b bool; t0", "b", "t0", 1},
    {"index 0; t0", "a", "t0", NAN},
    {"neg a; neg t0; neg b; t1", "b", "t1", NAN},
    {"i64 add a 2; t0", "a", "t0", NAN},
};

START_TEST(values_between) {
  gexpr e = program_of(between[_i].program);
  double value = NAN;
  const uint8_t from = program_operand(&e, between[_i].from), to = program_operand(&e, between[_i].to);
  const int is = program_between(&e, from, to, 5, &value);
  ck_assert_msg(is == !isnan(between[_i].value), "'%s': %d", between[_i].program, is);
  ck_assert_msg(!is || value == between[_i].value, "'%s': %g", between[_i].program, value);
}
END_TEST

/* ---- functions ------------------------------------------------------------------------------- */

static double difference(const double *in, const void *arg) {
  (void)arg;
  return in[0] - in[1];
}
static double nothing(const double *in, const void *arg) {
  (void)in;
  (void)arg;
  return 0;
}
static double less_at_the_end(const double *in, const void *arg) {
  (void)arg;
  return isinf(in[0]) ? INFINITY : 0;
}
static double clamped(const double *in, const void *arg) {
  (void)arg;
  return isnan(in[0]) ? NAN : fmin(fabs(in[0]), 1e300);
}

static const struct {
  const char *program;
  double (*function)(const double *in, const void *arg);
  int is;
} functions[] = {
    {"sub a b; t0", difference, 1},
    {"neg b; add t0 a; t1", difference, 1},
    {"sub b a; t0", difference, 0},
    {"sub a b; min t0 50; t1", difference, 0},
    {"sub a b; t0, a", difference, 0},
    {"mul a 1.0001; sub t0 b; t1", difference, 0},
    {"0", nothing, 1},
    {"i64 0", nothing, 0},
    {"index 0; 0", nothing, 0},
    {"0", less_at_the_end, 0},
    {"abs a; min t0 1e300; t1", clamped, 1},
    {"abs a; t0", clamped, 0},
    {"isnan a; abs a; min t1 1e300; select t0 1 t2; t3", clamped, 0},
};

START_TEST(a_function_at_points) {
  const gexpr e = program_of(functions[_i].program);
  ck_assert_msg(program_is(&e, functions[_i].function, NULL) == functions[_i].is, "'%s'",
                functions[_i].program);
}
END_TEST

static double zero(double x) {
  (void)x;
  return 0;
}
static double twice(double x) {
  return 2 * x;
}

static const struct {
  const char *program, *from, *to;
  double (*function)(double x);
  int is;
} parts[] = {
    {"add a a; exp t0; t1", "a", "t0", twice, 1},
    {"exp a; add t0 t0; t1", "t0", "t1", twice, 1},
    {"exp a; add t0 t0; t1", "a", "t1", twice, 0},
    {"add a a; min t0 50; t1", "a", "t1", twice, 0},
    {"exp b; t0", "a", "t0", zero, 0},
    {"i64 0", "a", "0", zero, 0},
    {"0", "a", "0", zero, 1},
};

START_TEST(a_part_at_points) {
  gexpr e = program_of(parts[_i].program);
  const uint8_t from = program_operand(&e, parts[_i].from), to = program_operand(&e, parts[_i].to);
  ck_assert_msg(program_is_between(&e, from, to, parts[_i].function, INFINITY) == parts[_i].is, "'%s'",
                parts[_i].program);
}
END_TEST

int main(void) {
  const test_case cases[] = {{values_at_a_point, TEST_COUNT(values)},
                             {values_between, TEST_COUNT(between)},
                             {a_function_at_points, TEST_COUNT(functions)},
                             {a_part_at_points, TEST_COUNT(parts)},
                             {0}};
  return run_tests("pass points", cases, (test_setup){0});
}
