/* SPDX-License-Identifier: MIT
 * test_bsrun_words.c - every verb takes every spelling of a dtype and an activation; spellings make one key,
 * one record of a sweep, one value that lists filter by. */
#include <jansson.h>

#include "blockshock/names.h"
#include "tests/bsrun/spawn.h"
#include "tests/run_tests.h"

static const char *dir;
static void setup(void) {
  dir = scratch_dir();
}
static void teardown(void) {
  remove_dir(dir);
}

static const char *const f16s[] = {"f16", "fp16", "half", "float16", "FP16"};

/* A row of words in which % is the spelling. */
static const struct {
  const char *words[8];
  int code;
} verbs[] = {{{"explain", "matmul", "--n", "64", "--dtype", "%"}, 0},
             {{"explain", "matmul", "--n", "64", "--out-dtype", "%"}, 0},
             {{"explain", "method", "dense", "--n", "64", "--dtype", "%"}, 0},
             {{"explain", "attention", "--shape", "b1h1s4d8:%"}, 0},
             {{"explain", "matmul24", "--shape", "n64k32b4:%"}, 0},
             {{"check", "--dump", "nowhere", "--dtype", "%"}, 4},
             {{"check", "--dump", "nowhere", "--reduce-dtype", "%"}, 4},
             {{"bench", "sdpa", "b1h1s4d8:%", "--seconds", "0.01", "--torch", "off"}, 0},
             {{"config", "print", "--method", "dense", "--set", "model.dtype=%"}, 0}};
enum { VERBS = sizeof verbs / sizeof verbs[0] };

START_TEST(verbs_take_each_dtype) {
  for (size_t i = 0; i < sizeof f16s / sizeof f16s[0]; i++) {
    char texts[8][64], *argv[12] = {(char *)(uintptr_t) "bsrun"};
    int n = 1;
    for (; verbs[_i].words[n - 1] != NULL; n++) {
      const char *word = verbs[_i].words[n - 1], *at = strchr(word, '%');
      snprintf(texts[n - 1], sizeof texts[0], "%.*s%s", at == NULL ? (int)strlen(word) : (int)(at - word),
               word, at == NULL ? "" : f16s[i]);
      argv[n] = texts[n - 1];
    }
    ran r = finish_bsrun(dir, start_bsrun(dir, argv));
    ck_assert_msg(r.code == verbs[_i].code, "%s with %s: exit %d: %s", verbs[_i].words[0], f16s[i], r.code,
                  r.err);
    ran_free(&r);
  }
}
END_TEST

START_TEST(verbs_take_each_activation) {
  for (uint32_t a = BS_ACT_NONE; a <= BS_ACT_GELU_TANH; a++) {
    const char *name = bs_name_of(BS_NAMES_ACTIVATION, a);
    char set[64];
    snprintf(set, sizeof set, "model.activation=%s", name);
    ran r = bsrun(dir, "explain", "matmul", "--n", "64", "--activation", name, NULL);
    must_be(&r, 0);
    ran_free(&r);
    r = bsrun(dir, "check", "--dump", "nowhere", "--activation", name, NULL);
    must_be(&r, 4);
    ran_free(&r);
    r = bsrun(dir, "--method", "dense", "--n", "64", "--b", "4", "--phase", "0", "--out", "off", "--set", set,
              NULL);
    must_be(&r, 0);
    ran_free(&r);
    r = bsrun(dir, "completion", "words", "activations", NULL);
    ck_assert_msg(strstr(r.out, name) != NULL, "%s", name);
    ran_free(&r);
  }
}
END_TEST

/* The rows of a list of runs with the dtype f16, in this spelling. */
static json_t *listed(const char *out, const char *spelling) {
  char where[40];
  snprintf(where, sizeof where, "dtype=%s", spelling);
  ran r = bsrun(dir, "runs", "list", "--out", out, "--where", where, "-o", "json", NULL);
  must_be(&r, 0);
  json_t *rows = json_loads(r.out, 0, NULL);
  ck_assert_msg(rows != NULL, "%s", r.out);
  ran_free(&r);
  return rows;
}

START_TEST(spellings_make_one_key) {
  for (size_t i = 0; i < sizeof f16s / sizeof f16s[0]; i++) {
    ran r = bsrun(dir, "--method", i % 2 ? "dense_tp" : "row_parallel", "-P", "2", "--n", "64", "--b", "8",
                  "--phase", "0", "--dtype", f16s[i], "--out", "single", "--run-id", f16s[i], NULL);
    must_be(&r, 0);
    ran_free(&r);
  }
  for (size_t i = 1; i < sizeof f16s / sizeof f16s[0]; i++) {
    json_t *same = listed("single", f16s[i]);
    ck_assert_uint_eq(json_array_size(same), sizeof f16s / sizeof f16s[0]);
    json_decref(same);
  }
  json_t *rows = listed("single", "f16");
  ck_assert_uint_eq(json_array_size(rows), sizeof f16s / sizeof f16s[0]);
  const char *key = json_string_value(json_object_get(json_array_get(rows, 0), "request_key"));
  ck_assert_ptr_nonnull(key);
  for (size_t i = 0; i < json_array_size(rows); i++)
    ck_assert_str_eq(json_string_value(json_object_get(json_array_get(rows, i), "request_key")), key);
  json_decref(rows);
}
END_TEST

START_TEST(spellings_make_one_run_of_a_sweep) {
  ran r = bsrun(dir, "sweep", "-x", "model.dtype=f16,fp16,half", "-x", "method=dense_tp,row_parallel", "-P",
                "2", "--n", "64", "--b", "8", "--phase", "0", "--out", "swept", "-q", NULL);
  must_be(&r, 0);
  ran_free(&r);
  json_t *rows = listed("swept", "f16");
  ck_assert_uint_eq(json_array_size(rows), 1);
  json_decref(rows);
}
END_TEST

int main(void) {
  const test_case rows[] = {{verbs_take_each_dtype, VERBS},
                            {verbs_take_each_activation},
                            {spellings_make_one_key},
                            {spellings_make_one_run_of_a_sweep},
                            {0}};
  return run_tests("bsrun_words", rows, (test_setup){setup, teardown, 120});
}
