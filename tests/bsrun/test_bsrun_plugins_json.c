/* SPDX-License-Identifier: MIT
 * test_bsrun_plugins_json.c - the five words of `plugins`: -o json is one JSON value with the keys that
 * docs/plugin-guide.md names, each has help with an example, and every option is in it. */
#include <jansson.h>

#include "tests/run_tests.h"
#include "tests/spawn.h"

static void setup(void) {
  dir = scratch_dir();
  ck_assert_int_eq(chmod(dir, 0700), 0);
  setenv("XDG_CACHE_HOME", dir, 1);
}

/* exact: the documentation names every key; of the kit's report it may leave some to the kit. */
static const struct {
  const char *verb, *words[4];
  int exact;
} verbs[] = {
    {"list", {NULL}, 1},
    {"inspect", {"ref"}, 1},
    {"why", {"ref"}, 1},
    {"new", {"acme", "--kind", "op"}, 1},
    {"check", {BS_TEST_SKELETON_DIR "/bs_skel_workload.so", "--group", "abi"}, 0},
};
enum { VERBS = sizeof verbs / sizeof verbs[0] };

/* The third cell of the verb's row in the guide, as a set of words. */
static json_t *documented(const char *verb) {
  char folder[1100], row[32], cell[300];
  snprintf(folder, sizeof folder, "%s/docs", getenv("BS_TEST_SOURCE_DIR"));
  snprintf(row, sizeof row, "\n| %s | ", verb);
  char *text = read_text(folder, "plugin-guide.md");
  ck_assert_ptr_nonnull(text);
  const char *at = strstr(text, row);
  ck_assert_msg(at != NULL, "docs/plugin-guide.md has no row of %s", verb);
  at = strstr(at + strlen(row), " | ") + 3;
  snprintf(cell, sizeof cell, "%.*s", (int)strcspn(at, "|"), at);
  json_t *keys = json_object();
  for (char *save = NULL, *word = strtok_r(cell, ", ", &save); word != NULL;
       word = strtok_r(NULL, ", ", &save))
    json_object_set_new(keys, word, json_true());
  free(text);
  return keys;
}

START_TEST(json_has_the_documented_keys) {
  const char *const *w = verbs[_i].words; /* the first NULL ends the words */
  ran r = bsrun(dir, "plugins", verbs[_i].verb, "-o", "json", w[0], w[1], w[2], NULL);
  must_be(&r, 0);
  json_error_t why;
  json_t *value = json_loads(r.out, JSON_REJECT_DUPLICATES, &why), *keys = documented(verbs[_i].verb);
  ck_assert_msg(value != NULL, "%s: %s", verbs[_i].verb, why.text);
  const json_t *object = json_is_array(value) ? json_array_get(value, 0) : value;
  const char *key;
  json_t *ignored;
  json_object_foreach(keys, key, ignored)
      ck_assert_msg(json_object_get(object, key) != NULL, "%s: there is no %s", verbs[_i].verb, key);
  json_object_foreach((json_t *)(uintptr_t)object, key, ignored)
      ck_assert_msg(!verbs[_i].exact || json_object_get(keys, key) != NULL, "%s: %s is not documented",
                    verbs[_i].verb, key);
  ck_assert_uint_gt(json_object_size(keys), 3);
  json_decref(keys);
  json_decref(value);
  ran_free(&r);
}
END_TEST

static int has_word(const char *text, const char *word) {
  static const char name[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
  const size_t n = strlen(word);
  for (const char *p = text; (p = strstr(p, word)) != NULL; p++)
    if ((p == text || strchr(name, p[-1]) == NULL) && (p[n] == '\0' || strchr(name, p[n]) == NULL)) return 1;
  return 0;
}

START_TEST(help_has_an_example_and_every_option) {
  char whole[40];
  snprintf(whole, sizeof whole, "plugins %s", verbs[_i].verb);
  ran help = bsrun(dir, "plugins", verbs[_i].verb, "--help", NULL),
      options = bsrun(dir, "completion", "words", "options", whole, NULL);
  must_be(&help, 0);
  must_be(&options, 0);
  const char *examples = strstr(help.out, "examples:");
  ck_assert_ptr_nonnull(examples);
  ck_assert_msg(strstr(examples, whole) != NULL, "no example of %s", whole);
  int seen = 0;
  for (char *save = NULL, *word = strtok_r(options.out, "\n", &save); word != NULL;
       word = strtok_r(NULL, "\n", &save), seen++)
    ck_assert_msg(has_word(help.out, word), "%s is not in the help of %s", word, whole);
  ck_assert_int_gt(seen, 4);
  ran_free(&help);
  ran_free(&options);
}
END_TEST

int main(void) {
  const test_case tests[] = {
      {json_has_the_documented_keys, VERBS}, {help_has_an_example_and_every_option, VERBS}, {0}};
  return run_tests("bsrun_plugins_json", tests, (test_setup){setup, dir_remove});
}
