/* SPDX-License-Identifier: MIT
 * test_run_promise.c - placements and reproducibility classes from the command line: every gate passes, every
 * fault that makes sense is caught, the record and explain say what is promised, and what was promised is
 * checked in the run. */
#include <stdio.h>
#include <string.h>

#include "run_help.h"
#include "tests/run_tests.h"

static char cwd[64];

static void setup(void) {
  run_make_folder(cwd);
}
static void teardown(void) {
  run_remove(cwd);
}

typedef struct point {
  const char *method, *ranks, *x, *y, *repro, *dtype, *activation;
  int gates; /* R2 and R3 among them */
  const char *mask;
} point;

static const point points[] = {
    {"row_parallel", "3", "replicated", "tokens", "R1", "float32", "gelu", 0, NULL},
    {"blockshock", "2", "tokens", "tokens", "R2", "bf16", "relu", 1, NULL},
    {"column_parallel", "2", "tokens", "split", "R1", "bf16", "none", 0, NULL},
    {"column_parallel", "3", "partial", "replicated", "R4", "float32", "none", 2, NULL},
    {"masked_split", "2", "partial", "partial", "R1", "bf16", "none", 0, NULL},
    {"blockshock", "4", "split", "partial", "R1", "float32", "none", 0, NULL},
    {"row_parallel", "4", "replicated", "replicated", "R3", "bf16", "silu", 2, NULL},
    {"blockshock", "2", "split", "split", "R4", "float32", "relu", 2, NULL},
    {"blockshock", "8", "tokens", "replicated", "R3", "float32", "none", 2, NULL},
    {"dense", "1", "replicated", "replicated", "R4", "float32", "gelu", 1, NULL},
    {"masked_split", "2", "replicated", "replicated", "R2", "float32", "none", 1, NULL},
    {"masked_split", "2", "replicated", "split", "R2", "float32", "relu", 1, "random_2of4"},
    {"blockshock", "2", "replicated", "replicated", "R2", "bf16", "none", 1, "magnitude"},
    {"blockshock", "4", "replicated", "split", "R2", "float32", "gelu", 1, "random_2of4"},
};
#define N_POINTS ((int)(sizeof points / sizeof points[0]))

static void run_point(run_result *r, const point *p, const char *phase, const char *dump) {
  char x[64], y[64], repro[64], dtype[64], activation[64];
  snprintf(x, sizeof x, "method.x_placement=%s", p->x);
  snprintf(y, sizeof y, "method.y_placement=%s", p->y);
  snprintf(repro, sizeof repro, "method.repro=%s", p->repro);
  snprintf(dtype, sizeof dtype, "model.dtype=%s", p->dtype);
  snprintf(activation, sizeof activation, "model.activation=%s", p->activation);
  const char **args = run_words(
      "run --plugin cpu --method %s -P %s --phase %s --set model.N=200 --set model.B=13 --set %s --set %s "
      "--set %s --set %s --set %s --set method.bias=true --set phase.timed_iters=2 --set phase.pairs_min=5 "
      "--set phase.pairs_max=5 --set phase.pairs_seconds=0.1 --set hardware.threads_per_rank=1 --out out -o "
      "jsonl -v",
      p->method, p->ranks, phase, x, y, repro, dtype, activation);
  size_t n = 0;
  while (args[n] != NULL) n++;
  if (p->mask != NULL) args[n++] = "--mask", args[n++] = p->mask;
  if (dump != NULL) args[n++] = "--dump", args[n++] = dump;
  run_bsrun(r, cwd, NULL, args);
}

START_TEST(every_gate_of_every_placement_and_class) {
  const point *p = &points[_i];
  run_result r;
  run_point(&r, p, "0", NULL);
  run_expect(&r, 0, p->method);
  json_t *rows = run_rows(r.out);
  json_t *record = run_record(cwd, run_str(json_array_get(rows, 0), "run_dir"));
  ck_assert_str_eq(run_str(record, "x_placement"), p->x);
  ck_assert_str_eq(run_str(record, "y_placement"), p->y);
  ck_assert_str_eq(run_str(record, "repro"), strcmp(p->y, "partial") == 0 ? "R0" : p->repro);
  ck_assert(json_is_true(json_object_get(record, "passed")));
  const json_t *gates = json_object_get(record, "gates");
  int promised = 0;
  for (size_t g = 0; g < json_array_size(gates); g++) {
    const json_t *gate = json_array_get(gates, g);
    ck_assert_msg(strcmp(run_str(gate, "state"), "pass") == 0, "%s: %s", run_str(gate, "name"),
                  run_str(gate, "text"));
    promised += run_str(gate, "name")[0] == 'R';
  }
  ck_assert_int_eq(promised, p->gates);
  ck_assert(json_is_true(json_object_get(record, "claims_match_counts")));
  json_decref(record);
  json_decref(rows);
  run_free(&r);
}
END_TEST

/* R0 between processes: what a run's folder keeps, choices of kernels included, gives each tensor again. */
START_TEST(a_stored_run_gives_the_same_bits) {
  const point *p = &points[_i];
  run_result r;
  run_point(&r, p, "0", "first");
  run_expect(&r, 0, p->method);
  json_t *rows = run_rows(r.out);
  char config[512];
  snprintf(config, sizeof config, "%s/config.yaml", run_str(json_array_get(rows, 0), "run_dir"));
  json_decref(rows);
  run_free(&r);
  const char *args[] = {"--config", config, "--dump", "second", "--tune-cache", "off", "-q", NULL};
  run_bsrun(&r, cwd, NULL, args);
  run_expect(&r, 0, p->method);
  run_free(&r);
  ck_assert_uint_ge(run_same_files(cwd, "first", "second"), 4);
}
END_TEST

START_TEST(timed_too) {
  const point p = points[_i];
  run_result r;
  run_point(&r, &p, "1", NULL);
  run_expect(&r, 0, p.method);
  run_free(&r);
}
END_TEST

START_TEST(refused_with_a_reason) {
  static const point bad[] = {
      {"row_parallel", "3", "replicated", "replicated", "R3", "float32", "none", 0, NULL},
      {"column_parallel", "2", "replicated", "tokens", "R1", "float32", "none", 0, NULL},
      {"row_parallel", "2", "replicated", "tokens", "R3", "float32", "none", 0, NULL},
  };
  static const char *const said[] = {"BS-METHOD-REPRO", "BS-METHOD-PLACEMENT", "BS-METHOD-PLACEMENT"};
  run_result r;
  run_point(&r, &bad[_i], "0", NULL);
  run_expect(&r, 3, said[_i]);
  ck_assert_ptr_nonnull(strstr(r.err, said[_i]));
  ck_assert_ptr_nonnull(strstr(r.err, "hint: "));
  run_free(&r);
}
END_TEST

int main(void) {
  const test_case tests[] = {{every_gate_of_every_placement_and_class, N_POINTS},
                             {a_stored_run_gives_the_same_bits, N_POINTS},
                             {timed_too, 2},
                             {refused_with_a_reason, 3},
                             {0}};
  return run_tests("run_promise", tests, (test_setup){setup, teardown, 60});
}
