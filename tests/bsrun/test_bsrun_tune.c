/* SPDX-License-Identifier: MIT
 * test_bsrun_tune.c - measured choices through the command: what is faster by far is chosen, kept, found
 * again and pinned; wrong numbers, broken files, other builds and missing implementations lead back to the
 * default and are said. The implementations are those of fixtures/pair.c, whose order of speed no machine
 * changes. */
#include "tests/bsrun/constants_file.h"
#include "tests/run_tests.h"
#include "tests/spawn.h"

#define PAIR1 BS_TEST_PAIR_DIR "1/bs_pair.so"
#define PAIR2 BS_TEST_PAIR_DIR "2/bs_pair.so"
#define SMALLER                                                                                             \
  SMALL, "--set", "model.dtype=f32", "--set", "phase.dense_arm=false", "--set", "tune.min_work=0", "--set", \
      "tune.seconds=0.2", "--set", "method.bias=false"
/* One rank: exchanges of a busy machine take any time, and would hide who is faster. */
#define TUNED "--method", "dense", SMALLER
#define PAIRED "--plugin", "ref", "--plugin", PAIR1
#define FIRST_TUNED PAIRED, "--phase", "1", TUNED
#define EXPLAIN "explain", "matmul", PAIRED, "--dtype", "f32", "--b", "8", "--n", "64"
#define TWO_RANKS "--method", "row_parallel", "-P", "2", SMALLER, "--set", "tune.measure=false"

static char cache[700]; /* dir/cache/blockshock */
static void setup(void) {
  char xdg[600];
  dir = scratch_dir();
  snprintf(xdg, sizeof xdg, "%s/cache", dir);
  snprintf(cache, sizeof cache, "%s/blockshock", xdg);
  setenv("XDG_CACHE_HOME", xdg, 1);
  /* Machine constants, so that no run takes half a second to measure them. */
  char command[800];
  snprintf(command, sizeof command, "mkdir -p '%s'", cache);
  ck_assert_int_eq(system(command), 0);
  json_t *constants = round_constants("ref");
  char *text = json_dumps(constants, 0);
  write_text(cache, "machine.json", text);
  free(text);
  json_decref(constants);
}

/* The only product of the newest record of that phase (0: phase 1's), a new reference. */
static json_t *choice_of(const ran *r, int index) {
  char *line = read_text(run_folder(r, dir, index), "metrics.jsonl");
  json_t *record = json_loads(line, 0, NULL);
  ck_assert_ptr_nonnull(record);
  json_t *choices = json_object_get(record, "choices");
  ck_assert_uint_eq(json_array_size(choices), 1);
  json_t *choice = json_incref(json_array_get(choices, 0));
  /* One implementation on all ranks, and the one that was meant. */
  const json_t *algorithms = json_object_get(record, "algorithms");
  ck_assert_uint_eq(json_array_size(algorithms), 1);
  char wanted[64];
  snprintf(wanted, sizeof wanted, "matmul@ref/%s",
           strchr(json_string_value(json_object_get(choice, "choice")), ':') + 1);
  ck_assert_msg(strncmp(json_string_value(json_array_get(algorithms, 0)), wanted, strlen(wanted)) == 0,
                "%s ran, not %s", json_string_value(json_array_get(algorithms, 0)), wanted);
  json_decref(record);
  free(line);
  return choice;
}

static void must_choose(const ran *r, int index, const char *name, const char *origin) {
  json_t *c = choice_of(r, index);
  ck_assert_str_eq(json_string_value(json_object_get(c, "choice")), name);
  ck_assert_str_eq(json_string_value(json_object_get(c, "origin")), origin);
  ck_assert_str_eq(json_string_value(json_object_get(c, "default")), "pair:heavy");
  ck_assert_uint_eq(json_array_size(json_object_get(c, "candidates")), 3);
  json_decref(c);
}

/* A run that ends well with that product, and says so on stderr ("": anything). */
static void must_run_with(ran r, const char *name, const char *origin, const char *said) {
  must_be(&r, 0);
  must_choose(&r, 0, name, origin);
  ck_assert_msg(strstr(r.err, said) != NULL, "%s", r.err);
  ran_free(&r);
}

/* Line `index` of the tuning file; a new reference. */
static json_t *line_of(size_t index) {
  char *text = read_text(cache, "tuning.jsonl");
  ck_assert_ptr_nonnull(text);
  char *line = text;
  for (size_t i = 0; i < index; i++) {
    line = strchr(line, '\n');
    ck_assert_ptr_nonnull(line);
    line++;
  }
  line[strcspn(line, "\n")] = '\0';
  json_t *entry = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
  ck_assert_msg(entry != NULL, "line %zu: %s", index, line);
  free(text);
  return entry;
}

static int lines(void) {
  char *text = read_text(cache, "tuning.jsonl");
  int n = 0;
  for (const char *p = text; p != NULL && *p != '\0'; p++) n += *p == '\n';
  free(text);
  return n;
}

START_TEST(measured_once_kept_and_pinned) {
  ran r = bsrun(dir, FIRST_TUNED, "-v", NULL);
  must_be(&r, 0);
  must_choose(&r, 0, "pair:hollow", "measured");
  ck_assert_ptr_nonnull(strstr(r.err, "measuring which of 3 implementations"));
  ck_assert_ptr_nonnull(strstr(r.err, "kept in "));
  char config[1300];
  snprintf(config, sizeof config, "%s/config.yaml", run_folder(&r, dir, 0));
  ran_free(&r);
  ck_assert_int_eq(lines(), 1);
  json_t *entry = line_of(0);
  ck_assert_str_eq(json_string_value(json_object_get(entry, "choice")), "pair:hollow");
  ck_assert(json_is_false(json_object_get(entry, "judged"))); /* there was no phase 0 */
  int looked_twice = 0;
  for (size_t i = 0; i < 3; i++)
    looked_twice += json_object_get(json_array_get(json_object_get(entry, "candidates"), i), "again") != NULL;
  ck_assert_int_eq(looked_twice, 1);
  /* Found again; nothing is measured. */
  r = bsrun(dir, FIRST_TUNED, NULL);
  must_be(&r, 0);
  must_choose(&r, 0, "pair:hollow", "cache");
  ck_assert_ptr_null(strstr(r.err, "measuring which"));
  ran_free(&r);
  /* The stored configuration decides alone: without a file, and against one that says otherwise. */
  must_run_with(bsrun(dir, "--config", config, "--tune-cache", "off", NULL), "pair:hollow", "pinned", "");
  json_object_set_new(entry, "choice", json_string("pair:heavy"));
  char *other = json_dumps(entry, JSON_COMPACT);
  write_text(dir, "other.jsonl", other);
  must_run_with(bsrun(dir, "--config", config, "--tune-cache", "other.jsonl", NULL), "pair:hollow", "pinned",
                "");
  must_run_with(bsrun(dir, FIRST_TUNED, "--tune-cache", "other.jsonl", NULL), "pair:heavy", "cache", "");
  free(other);
  json_decref(entry);
  ck_assert_int_eq(lines(), 1);
}
END_TEST

/* Fast and wrong: phase 0 fails with it, once; then the default serves. */
START_TEST(wrong_numbers_lose) {
  ran r = bsrun(dir, PAIRED, TUNED, NULL);
  must_be(&r, 6);
  ran_free(&r);
  ck_assert_int_eq(lines(), 1);
  json_t *entry = line_of(0);
  ck_assert_str_eq(json_string_value(json_object_get(entry, "choice")), "pair:heavy");
  json_t *candidates = json_object_get(entry, "candidates");
  for (size_t i = 0; i < json_array_size(candidates); i++) {
    const json_t *c = json_array_get(candidates, i);
    const char *failed = json_string_value(json_object_get(c, "failed"));
    const int hollow = strcmp(json_string_value(json_object_get(c, "name")), "pair:hollow") == 0;
    ck_assert_int_eq(failed != NULL, hollow);
    if (hollow) ck_assert_ptr_nonnull(strstr(failed, "gate"));
  }
  json_decref(entry);
  r = bsrun(dir, PAIRED, TUNED, NULL);
  must_be(&r, 0);
  must_choose(&r, 0, "pair:heavy", "cache");
  must_choose(&r, 1, "pair:heavy", "cache"); /* both phases */
  ran_free(&r);
  r = bsrun(dir, EXPLAIN, "-o", "json", NULL);
  must_be(&r, 0);
  ck_assert_ptr_nonnull(strstr(r.out, "\"chosen\""));
  ck_assert_msg(strstr(r.out, "\"failed: ") != NULL, "%s", r.out);
  ran_free(&r);
}
END_TEST

START_TEST(another_build_is_measured_anew) {
  must_run_with(bsrun(dir, FIRST_TUNED, NULL), "pair:hollow", "measured", "");
  must_run_with(bsrun(dir, "--plugin", "ref", "--plugin", PAIR2, "--phase", "1", TUNED, NULL), "pair:hollow",
                "measured", "");
  ck_assert_int_eq(lines(), 2);
  must_run_with(bsrun(dir, FIRST_TUNED, NULL), "pair:hollow", "cache", ""); /* its line still holds */
  ck_assert_int_eq(lines(), 2);
}
END_TEST

START_TEST(nothing_is_measured_unless_wanted) {
  static const char *const off[][2] = {
      {"--tune-cache", "off"}, {"--set", "tune.measure=false"}, {"--set", "tune.min_work=1000000"}};
  static const char *const why[] = {"no tuning file", "tune.measure is off", "below tune.min_work"};
  for (size_t i = 0; i < 3; i++) {
    ran r = bsrun(dir, FIRST_TUNED, off[i][0], off[i][1], NULL);
    must_be(&r, 0);
    must_choose(&r, 0, "pair:heavy", "default");
    json_t *c = choice_of(&r, 0);
    ck_assert_ptr_nonnull(strstr(json_string_value(json_object_get(c, "why")), why[i]));
    json_decref(c);
    ran_free(&r);
  }
  must_run_with(bsrun(dir, PAIRED, "--phase", "0", TUNED, NULL), "pair:heavy", "default", "");
  ck_assert_int_eq(lines(), 0);
}
END_TEST

START_TEST(pins_force_and_are_checked) {
  ran r = bsrun(dir, EXPLAIN, "--mask", "contiguous", "-P", "2", "-o", "jsonl", NULL);
  must_be(&r, 0);
  json_t *row = json_loads(r.out, JSON_DISABLE_EOF_CHECK, NULL);
  char set[600], gone[600];
  const char *key = json_string_value(json_object_get(row, "key"));
  ck_assert_ptr_nonnull(key);
  snprintf(set, sizeof set, "tune.choices=['%s -> portable']", key); /* a name of any plugin */
  snprintf(gone, sizeof gone, "tune.choices=['%s -> pair:gone']", key);
  json_decref(row);
  ran_free(&r);
  must_run_with(bsrun(dir, PAIRED, "--phase", "1", TWO_RANKS, "--set", set, NULL), "ref:portable", "pinned",
                "");
  r = bsrun(dir, EXPLAIN, "--mask", "contiguous", "-P", "2", "--set", set, NULL);
  must_be(&r, 0);
  ck_assert_msg(strstr(r.out, "*  matmul@ref/portable") != NULL && strstr(r.out, "pinned") != NULL, "%s",
                r.out);
  ran_free(&r);
  must_run_with(bsrun(dir, PAIRED, "--phase", "1", TWO_RANKS, "--set", gone, NULL), "pair:heavy",
                "default (pinned)", "pair:gone cannot serve");
  r = bsrun(dir, PAIRED, "--phase", "1", TWO_RANKS, "--set", "tune.choices=[portable]", NULL);
  must_be(&r, 3);
  ck_assert_ptr_nonnull(strstr(r.err, "BS-CFG-CHOICE"));
  ran_free(&r);
  ck_assert_int_eq(lines(), 0);
}
END_TEST

START_TEST(files_that_cannot_be_used) {
  write_text(cache, "tuning.jsonl", "{\"format\":1}\nnot JSON");
  must_run_with(bsrun(dir, FIRST_TUNED, NULL), "pair:hollow", "measured", "2 lines of ");
  ck_assert_int_eq(lines(), 3); /* the torn line was ended */
  json_decref(line_of(2));
  /* A folder in its place: said, and nothing is measured. */
  must_run_with(bsrun(dir, FIRST_TUNED, "--tune-cache", cache, NULL), "pair:heavy", "default",
                "[BS-TUNE-IO]");
  /* It can be read (there is none) and not be made. */
  write_text(dir, "file", "");
  must_run_with(bsrun(dir, FIRST_TUNED, "--tune-cache", "file/tuning.jsonl", NULL), "pair:hollow", "measured",
                "what was measured is not kept");
  ran r = bsrun(dir, "--method", "dense", "--tune-cache", "", NULL);
  must_be(&r, 2);
  ran_free(&r);
}
END_TEST

int main(void) {
  const test_case tests[] = {{measured_once_kept_and_pinned},
                             {wrong_numbers_lose},
                             {another_build_is_measured_anew},
                             {nothing_is_measured_unless_wanted},
                             {pins_force_and_are_checked},
                             {files_that_cannot_be_used},
                             {0}};
  return run_tests("bsrun_tune", tests, (test_setup){setup, dir_remove});
}
