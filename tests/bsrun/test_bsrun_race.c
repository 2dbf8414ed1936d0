/* SPDX-License-Identifier: MIT
 * test_bsrun_race.c - `bsrun tune` through the command: every way in which a candidate can be wrong is found,
 * named and kept; the choice stands in the tuning file and a run takes it; a second tuning measures nothing.
 * The implementation is that of fixtures/knobby.c. No test is about times. */
#include "tests/bsrun/constants_file.h"
#include "tests/run_tests.h"
#include "tests/spawn.h"

#define KNOBBY1 BS_TEST_KNOBBY_DIR "1/bs_knobby.so"
#define KNOBBY2 BS_TEST_KNOBBY_DIR "2/bs_knobby.so"
#define PROBLEM "matmul n16k32b4"
#define WITH(plugin) \
  "tune", PROBLEM, "--plugin", "ref", "--plugin", plugin, "--backend", "ref", "--threads", "1"
#define TUNE                                                                                 \
  WITH(KNOBBY1), "--provider", "knobby:turns", "--with", "candidate-seconds=0.01", "--with", \
      "pair-seconds=0.06"
#define JSON "-o", "json"

static char cache[700];
static void setup(void) {
  char xdg[600];
  dir = scratch_dir();
  snprintf(xdg, sizeof xdg, "%s/cache", dir);
  snprintf(cache, sizeof cache, "%s/blockshock", xdg);
  setenv("XDG_CACHE_HOME", xdg, 1);
}

static json_t *report_of(ran r) {
  must_be(&r, 0);
  json_t *report = json_loads(r.out, 0, NULL);
  ck_assert_msg(report != NULL, "%s", r.out);
  ran_free(&r);
  return report;
}

static const char *text_of(const json_t *object, const char *key) {
  const char *text = json_string_value(json_object_get(object, key));
  return text != NULL ? text : "";
}

static json_int_t number_of(const json_t *object, const char *key) {
  return json_integer_value(json_object_get(object, key));
}

/* The lines of a file of the cache folder. */
static json_t *lines_of(const char *name) {
  json_t *lines = json_array();
  char *text = read_text(cache, name), *rest = NULL;
  for (char *line = text != NULL ? strtok_r(text, "\n", &rest) : NULL; line != NULL;
       line = strtok_r(NULL, "\n", &rest))
    ck_assert_int_eq(json_array_append_new(lines, json_loads(line, 0, NULL)), 0);
  free(text);
  return lines;
}

/* Replaces the line of the tuning file. */
static void put_entry(const json_t *entry) {
  char *text = json_dumps(entry, JSON_COMPACT);
  write_text(cache, "tuning.jsonl", text);
  free(text);
}

/* The line of the points with this value. */
static const json_t *point_with(const json_t *lines, const char *setting) {
  size_t i;
  const json_t *line;
  json_array_foreach(lines, i, line) if (strstr(text_of(line, "config"), setting) != NULL) return line;
  ck_abort_msg("no point with %s", setting);
  return NULL;
}

#define ENDING "--knob", "turns=1", "--knob", "mode=right,wrong,crash,error,lost"

/* Spec measure.md 1c (a): one binary under two names; and each other way to be wrong. */
START_TEST(what_is_wrong_is_found_and_kept) {
  static const struct {
    const char *setting, *verdict, *cause;
  } rows[] = {{"unroll=1;mode=right", "ok", ""},
              {"unroll=1;mode=wrong", "wrong", "gate rmse"},
              {"unroll=1;mode=crash", "failed", "signal 9"},
              {"unroll=1;mode=error", "failed", "BS-KNOBBY-ERROR"},
              {"unroll=1;mode=lost", "refused", "BS-OP-KNOB-ECHO"},
              {"unroll=2;mode=right", "refused", "knob unroll does not reach the binary"}};
  json_t *r = report_of(bsrun(dir, TUNE, "--strategy", "full", "--with", "finalists=0", ENDING, JSON, NULL));
  ck_assert_int_eq(number_of(r, "measured"), 10);
  ck_assert_int_eq(number_of(r, "failed"), 9);
  ck_assert_uint_eq(json_array_size(json_object_get(r, "elite")), 1);
  ck_assert_str_eq(text_of(json_array_get(json_object_get(r, "elite"), 0), "config"),
                   "turns=1;unroll=1;mode=right");
  const json_t *space = json_array_get(json_object_get(r, "spaces"), 0);
  ck_assert_int_eq(number_of(space, "seen"), 10);
  ck_assert_str_eq(text_of(space, "default"), "turns=4;unroll=1;mode=right"); /* --knob turns=1 has it not */
  ck_assert(json_is_true(json_object_get(space, "outside")));
  json_decref(r);
  json_t *lines = lines_of("tuning-points.jsonl");
  ck_assert_uint_eq(json_array_size(lines), 10);
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    const json_t *line = point_with(lines, rows[i].setting);
    ck_assert_msg(strcmp(text_of(line, "verdict"), rows[i].verdict) == 0, "%s: %s, %s", rows[i].setting,
                  text_of(line, "verdict"), text_of(line, "cause"));
    ck_assert_msg(strstr(text_of(line, "cause"), rows[i].cause) != NULL, "%s: %s", rows[i].setting,
                  text_of(line, "cause"));
  }
  const json_t *ok = point_with(lines, "unroll=1;mode=right");
  ck_assert_str_eq(text_of(ok, "echo"), "turns=1;unroll=1;mode=right");
  ck_assert_str_eq(text_of(ok, "build"), "knobby-1");
  ck_assert_int_ge(number_of(json_object_get(ok, "samples"), "n"), 5);
  json_decref(lines);
  /* What failed is not tried again. */
  r = report_of(bsrun(dir, TUNE, "--strategy", "full", "--with", "finalists=0", ENDING, "--stored",
                      "continue", JSON, NULL));
  ck_assert_int_eq(number_of(r, "measured"), 0);
  ck_assert_int_eq(number_of(r, "known"), 10);
  json_decref(r);
}
END_TEST

/* A candidate that does not end is late. Who serves must be known within the same time: it doubles until
 * that is so, however slow the machine. */
START_TEST(what_does_not_end_is_late) {
  ran r = {.code = 8};
  for (int ms = 125; r.code == 8 && ms < 40000; ms *= 2) {
    char seconds[32];
    snprintf(seconds, sizeof seconds, "%d.%03d", ms / 1000, ms % 1000);
    ran_free(&r);
    r = bsrun(dir, TUNE, "--strategy", "full", "--knob", "turns=1", "--knob", "unroll=1", "--knob",
              "mode=hang", "--timeout", seconds, NULL);
    if (r.code == 8) ck_assert_msg(strstr(r.err, "BS-TUNE-LATE") != NULL, "%s", r.err);
  }
  must_be(&r, 3);
  ck_assert_msg(strstr(r.err, "BS-TUNE-NONE") != NULL, "%s", r.err);
  ran_free(&r);
  json_t *lines = lines_of("tuning-points.jsonl");
  ck_assert_uint_eq(json_array_size(lines), 1);
  const json_t *late = point_with(lines, "mode=hang");
  ck_assert_str_eq(text_of(late, "verdict"), "late");
  ck_assert_msg(strncmp(text_of(late, "cause"), "it took more than ", 18) == 0, "%s", text_of(late, "cause"));
  json_decref(lines);
}
END_TEST

#define RIGHT "--knob", "unroll=1", "--knob", "mode=right"

START_TEST(the_choice_is_kept_and_taken) {
  json_t *r = report_of(bsrun(dir, TUNE, RIGHT, "--strategy", "full", JSON, NULL));
  ck_assert_str_eq(text_of(r, "origin"), "measured");
  ck_assert_str_eq(text_of(r, "default"), "knobby:turns");
  ck_assert_int_eq(number_of(r, "measured"), 4 + 4 + 2);
  const json_t *space = json_array_get(json_object_get(r, "spaces"), 0);
  ck_assert_int_eq(number_of(space, "points"), 4);
  ck_assert_int_eq(number_of(space, "seen"), 4); /* the halving's looks are measurements, no points */
  ck_assert_int_eq(number_of(space, "measured"), 4 + 4 + 2);
  ck_assert(json_is_false(json_object_get(space, "outside")));
  char choice[200], pin[1300];
  snprintf(choice, sizeof choice, "%s", text_of(r, "choice"));
  json_decref(r);
  /* The default stays or a point wins: whatever this machine says, it is what the file has. */
  json_t *lines = lines_of("tuning.jsonl");
  ck_assert_uint_eq(json_array_size(lines), 1);
  const json_t *entry = json_array_get(lines, 0);
  ck_assert_str_eq(text_of(entry, "choice"), choice);
  ck_assert(json_is_true(json_object_get(entry, "judged")));
  snprintf(pin, sizeof pin, "%s", text_of(entry, "key"));
  json_decref(lines);

  r = report_of(bsrun(dir, TUNE, RIGHT, JSON, NULL)); /* again */
  ck_assert_str_eq(text_of(r, "origin"), "stored");
  ck_assert_str_eq(text_of(r, "choice"), choice);
  ck_assert_int_eq(number_of(r, "measured"), 0);
  json_decref(r);
  r = report_of(bsrun(dir, TUNE, RIGHT, "--stored", "only", JSON, NULL));
  ck_assert_str_eq(text_of(r, "origin"), "stored");
  json_decref(r);

  ran other =
      bsrun(dir, WITH(KNOBBY2), "--provider", "knobby:turns", "--stored", "only", NULL); /* another build */
  must_be(&other, 4);
  ck_assert_ptr_nonnull(strstr(other.err, "BS-TUNE-UNKNOWN"));
  ran_free(&other);
  other = bsrun(dir, WITH(KNOBBY1), "--provider", "knobby:turns", "--stored", "only", "--threads=2", NULL);
  must_be(&other, 2); /* threads given twice */
  ran_free(&other);
}
END_TEST

#define ONE RIGHT, "--knob", "turns=1", "--strategy", "full", "--with", "finalists=0"

/* Options are read also where a choice is stored, and it answers the question that it was searched for. */
START_TEST(a_stored_choice_is_of_what_was_searched) {
  static const struct {
    const char *words[2];
    const char *id, *says;
  } rows[] = {
      {{"--knob", "nosuch=3"}, "BS-OP-KNOB", "nosuch"},
      {{"--start", "nonsense"}, "BS-TUNE-START", "there is no knob 'nonsense'"},
      {{"--start", "turns=3;unroll=1;mode=right"}, "BS-TUNE-START", "'turns=3' is not one of the values"}};
  json_decref(report_of(bsrun(dir, TUNE, ONE, JSON, NULL)));
  /* a part of the space is no answer for all of it */
  ran r = bsrun(dir, WITH(KNOBBY1), "--stored", "only", NULL);
  must_be(&r, 4);
  ck_assert_msg(strstr(r.err, "BS-TUNE-UNKNOWN") != NULL, "%s", r.err);
  ran_free(&r);
  json_t *lines = lines_of("tuning.jsonl"), *entry = json_array_get(lines, 0);
  ck_assert_str_eq(text_of(json_object_get(entry, "restriction"), "provider"), "knobby:turns");
  ck_assert_str_eq(text_of(json_object_get(json_object_get(entry, "restriction"), "knobs"), "turns"), "1");
  json_object_del(entry, "restriction"); /* as a search of everything leaves it */
  put_entry(entry);
  json_decref(lines);
  json_t *report = report_of(bsrun(dir, WITH(KNOBBY1), "--stored", "only", JSON, NULL));
  ck_assert_str_eq(text_of(report, "origin"), "stored");
  json_decref(report);
  r = bsrun(dir, TUNE, "--stored", "only", NULL); /* and all is no answer for a part */
  must_be(&r, 4);
  ran_free(&r);
  r = bsrun(dir, WITH(KNOBBY1), "--provider", "knobby:nosuch", NULL);
  must_be(&r, 3);
  ck_assert_msg(strstr(r.err, "BS-TUNE-PROVIDER") != NULL, "%s", r.err);
  ran_free(&r);
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    r = bsrun(dir, WITH(KNOBBY1), rows[i].words[0], rows[i].words[1], NULL);
    must_be(&r, 2);
    ck_assert_msg(strstr(r.err, rows[i].id) != NULL && strstr(r.err, rows[i].says) != NULL, "%s", r.err);
    ran_free(&r);
  }
}
END_TEST

/* A stored choice is not measured: its plan is opened, and must be of the build that was measured (spec
 * measure.md 1c: a cached wrong binary). An entry that was edited is an error that names the file. */
START_TEST(a_stored_choice_is_the_code_that_was_measured) {
  static const struct {
    const char *choice, *build;
    int code;
    const char *says;
  } rows[] = {
      {"knobby:turns{turns=1}", "knobby-1", 0, NULL},
      {"knobby:turns{turns=1}", "knobby-9", 6, "gate same_code: build.id 'knobby-1', to be = 'knobby-9'"},
      {"knobby:turns{turns=1;mode=lost}", "knobby-1", 6, "BS-OP-KNOB-ECHO"},
      {"knobby:turns{tile=7}", "knobby-1", 3, "tuning.jsonl"}};
  json_decref(report_of(bsrun(dir, TUNE, ONE, JSON, NULL)));
  json_t *lines = lines_of("tuning.jsonl"), *entry = json_array_get(lines, 0);
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    json_object_set_new(entry, "choice", json_string(rows[i].choice));
    json_object_set_new(entry, "build", json_string(rows[i].build));
    put_entry(entry);
    ran r = bsrun(dir, TUNE, ONE, "--stored", "only", JSON, NULL);
    must_be(&r, rows[i].code);
    if (rows[i].says != NULL)
      ck_assert_msg(strstr(r.err, rows[i].says) != NULL && strstr(r.err, "--stored anew") != NULL, "%s",
                    r.err);
    ran_free(&r);
  }
  /* No line is one whose numbers are none: it is skipped, and that is told. */
  json_object_set_new(json_array_get(json_object_get(entry, "candidates"), 0), "ratio", json_string("abc"));
  put_entry(entry);
  ran r = bsrun(dir, TUNE, ONE, "--stored", "only", NULL);
  must_be(&r, 4);
  ck_assert_msg(strstr(r.err, "cannot be read as a tuning entry") != NULL, "%s", r.err);
  ran_free(&r);
  json_decref(lines);
}
END_TEST

/* The values in use of the knobs of the product of 8192 outputs, as `model explain` tells them. */
static void must_use(const char *plugin, const char *option, const char *knobs, const char *note) {
  ran r =
      bsrun(dir, "model", "explain", "builtin:lm:1x16", "--dim", "batch=1", "--dim", "tokens=4", "--threads",
            "1", "--backend", "ref", "--plugin", "ref", "--plugin", plugin, JSON, option, NULL);
  ck_assert_msg(note == NULL || strstr(r.err, note) != NULL, "%s", r.err);
  json_t *report = report_of(r);
  size_t i, found = 0;
  const json_t *node;
  json_array_foreach(json_object_get(report, "nodes"), i, node) {
    if (strstr(text_of(node, "key"), "N=8192 K=16") == NULL) continue;
    ck_assert_msg(strcmp(text_of(node, "knobs"), knobs) == 0, "%s: %s, not %s", plugin,
                  text_of(node, "knobs"), knobs);
    found++;
  }
  ck_assert_uint_eq(found, 1);
  json_decref(report);
}

/* What was tuned for a product serves it in a model: of the same plugin file, with its knobs. */
START_TEST(a_model_takes_what_was_tuned) {
  static const char off[] = "--tune-cache=off", on[] = "--set=plugin_trust=any";
  json_decref(report_of(bsrun(dir, TUNE, ONE, JSON, NULL)));
  json_t *lines = lines_of("tuning.jsonl"), *entry = json_array_get(lines, 0);
  json_object_set_new(
      entry, "key", json_string("matmul@ref x=f32 w=f32 y=f32 N=8192 K=16 B=4 deterministic threads=1 P=1"));
  json_object_set_new(entry, "choice", json_string("knobby:turns{turns=2;unroll=1;mode=right}"));
  put_entry(entry);
  must_use(KNOBBY1, on, "turns=2;unroll=1;mode=right", NULL);
  must_use(KNOBBY1, off, "turns=4;unroll=1;mode=right", NULL);
  must_use(KNOBBY2, on, "turns=8;unroll=1;mode=right", NULL); /* another file */
  json_object_set_new(json_array_get(json_object_get(entry, "candidates"), 1), "how", json_string("another"));
  put_entry(entry);
  must_use(KNOBBY1, on, "turns=4;unroll=1;mode=right", NULL); /* somebody answers otherwise */
  json_object_set_new(entry, "choice", json_string("knobby:turns{tile=7}"));
  put_entry(entry);
  must_use(KNOBBY1, on, "turns=4;unroll=1;mode=right", "its choices are not taken");
  json_decref(lines);
}
END_TEST

/* Points are those of the parameters of plugins that they were measured with. */
START_TEST(points_are_of_their_parameters) {
  static const struct {
    const char *isa;
    int measured;
  } rows[] = {{"portable", 1}, {"auto", 1}, {"portable", 0}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    char set[64];
    snprintf(set, sizeof set, "plugins.cpu.isa=%s", rows[i].isa);
    json_t *r = report_of(bsrun(dir, TUNE, ONE, "--set", set, "--stored", "continue", JSON, NULL));
    ck_assert_int_eq(number_of(r, "measured"), rows[i].measured);
    ck_assert_int_eq(number_of(r, "known"), 1 - rows[i].measured);
    json_decref(r);
  }
}
END_TEST

/* A constraint is of those that have its knobs; the others are left out, and named. */
START_TEST(a_constraint_leaves_some_out) {
  ran r = bsrun(dir, WITH(KNOBBY1), RIGHT, "--strategy", "full", "--with", "finalists=0", "--with",
                "candidate-seconds=0.01", "--with", "pair-seconds=0.06", "--where", "turns < 2", JSON, NULL);
  ck_assert_msg(strstr(r.err, "knobby:part is left out") != NULL, "%s", r.err);
  json_t *report = report_of(r);
  const json_t *spaces = json_object_get(report, "spaces");
  ck_assert_uint_eq(json_array_size(spaces), 1);
  ck_assert_str_eq(text_of(json_array_get(spaces, 0), "provider"), "knobby:turns");
  ck_assert_int_eq(number_of(json_array_get(spaces, 0), "points"), 1);
  json_decref(report);
}
END_TEST

/* What a library prints is no answer. */
START_TEST(what_prints_harms_nobody) {
  json_t *r = report_of(bsrun(dir, TUNE, "--strategy", "point", "--start", "turns=1;mode=loud", JSON, NULL));
  ck_assert_int_eq(number_of(r, "measured"), 1);
  ck_assert_msg(text_of(r, "word")[0] != '\0', "no word");
  json_decref(r);
}
END_TEST

START_TEST(a_signal_leaves_what_was_found) {
  ran r = bsrun(dir, TUNE, "--strategy", "full", "--knob", "turns=1", "--knob", "unroll=1", "--knob",
                "mode=right,stop", NULL);
  must_be(&r, 130);
  ck_assert_msg(strstr(r.out, "stopped before there was a choice: knobby:turns stays the default") != NULL,
                "%s", r.out);
  ck_assert_msg(strstr(r.out, "1 of 2 points, 1 measurements, ended by: stopped") != NULL, "%s", r.out);
  ck_assert_msg(strstr(r.out, "turns=1;unroll=1;mode=right") != NULL, "%s", r.out);
  ran_free(&r);
  json_t *lines = lines_of("tuning-points.jsonl");
  ck_assert_uint_eq(json_array_size(lines), 1);
  json_decref(lines);
}
END_TEST

/* The cache folder cannot be made: points and choice are printed, and nothing is lost but the files. */
START_TEST(what_cannot_be_kept_is_printed) {
  write_text(dir, "cache", "a file where the folder should be");
  ran r = bsrun(dir, TUNE, RIGHT, "--strategy", "full", "--with", "finalists=0", JSON, NULL);
  must_be(&r, 10);
  const char *points = strstr(r.err, "warning: [BS-TUNE-IO]"), *choice = strstr(r.err, "error[BS-TUNE-IO]");
  ck_assert_msg(points != NULL && choice != NULL, "%s", r.err);
  ck_assert_msg(strstr(points, "the measured points are not kept: --points FILE") != NULL, "%s", r.err);
  ck_assert_msg(strstr(strstr(points, "are not kept") + 1, "are not kept") == NULL, "said twice: %s", r.err);
  ck_assert_msg(strstr(choice, "the choice is not kept; hint: --tune-cache FILE") != NULL, "%s", r.err);
  json_t *report = json_loads(r.out, 0, NULL);
  ck_assert_msg(report != NULL, "%s", r.out);
  ck_assert_str_eq(text_of(report, "origin"), "measured");
  ck_assert_int_eq(number_of(report, "measured"), 4);
  ck_assert(text_of(report, "choice")[0] != '\0');
  json_decref(report);
  ran_free(&r);
}
END_TEST

/* The record of a layer's run whose product is PROBLEM. Free it. */
static char *record_of_a_layer(void) {
  json_t *constants = round_constants("ref");
  char *text = json_dumps(constants, 0), command[800];
  snprintf(command, sizeof command, "mkdir -p '%s'", cache);
  ck_assert_int_eq(system(command), 0);
  write_text(cache, "machine.json", text);
  free(text);
  json_decref(constants);
  ran run =
      bsrun(dir, "--plugin", "ref", "--plugin", KNOBBY1, "--method", "dense", "-P", "1", "--phase", "0",
            "--set", "model.N=16", "--set", "model.K=32", "--set", "model.B=4", "--set", "model.dtype=f32",
            "--set", "method.bias=false", "--set", "hardware.threads_per_rank=1", NULL);
  must_be(&run, 0);
  char *record = read_text(run_folder(&run, dir, 0), "metrics.jsonl");
  ck_assert_ptr_nonnull(record);
  ran_free(&run);
  return record;
}

/* An entry of the tuner with knobs serves a layer's run, and its record says so. */
START_TEST(a_run_takes_what_was_tuned) {
  json_t *r = report_of(
      bsrun(dir, TUNE, RIGHT, "--knob", "turns=1", "--strategy", "full", "--with", "margin=0", JSON, NULL));
  json_decref(r);
  json_t *lines = lines_of("tuning.jsonl"), *entry = json_array_get(lines, 0);
  /* Whoever won on this machine: from here on the point has. */
  json_object_set_new(entry, "choice", json_string("knobby:turns{turns=1;unroll=1;mode=right}"));
  char *text = json_dumps(entry, JSON_COMPACT);
  write_text(cache, "tuning.jsonl", text);
  free(text);
  char *record = record_of_a_layer();
  json_t *fields = json_loads(record, JSON_DISABLE_EOF_CHECK, NULL);
  const json_t *choice = json_array_get(json_object_get(fields, "choices"), 0);
  ck_assert_str_eq(text_of(choice, "key"), text_of(entry, "key"));
  ck_assert_str_eq(text_of(choice, "origin"), "cache");
  ck_assert_ptr_nonnull(strstr(record, "turns=1;unroll=1;mode=right"));
  json_decref(fields);
  json_decref(lines);
  free(record);
}
END_TEST

#define SIMULATED "tune", PROBLEM, "--device", "cube-pe", "--strategy", "full", JSON

/* A simulated choice is no measured one: no file is written, and a run takes the default. */
START_TEST(a_simulated_choice_is_not_kept) {
  json_t *r = report_of(bsrun(dir, SIMULATED, NULL));
  ck_assert_str_eq(text_of(r, "origin"), "simulated");
  json_decref(r);
  char *kept = read_text(cache, "tuning.jsonl");
  ck_assert_ptr_null(kept);
  char *record = record_of_a_layer();
  json_t *fields = json_loads(record, JSON_DISABLE_EOF_CHECK, NULL);
  ck_assert_str_eq(text_of(json_array_get(json_object_get(fields, "choices"), 0), "origin"), "default");
  json_decref(fields);
  free(record);
  /* What was measured stays, byte for byte, and is still the answer. */
  r = report_of(bsrun(dir, TUNE, ONE, JSON, NULL));
  char choice[200];
  snprintf(choice, sizeof choice, "%s", text_of(r, "choice"));
  json_decref(r);
  kept = read_text(cache, "tuning.jsonl");
  ck_assert_ptr_nonnull(kept);
  json_decref(report_of(bsrun(dir, SIMULATED, NULL)));
  char *after = read_text(cache, "tuning.jsonl");
  ck_assert_str_eq(after, kept);
  r = report_of(bsrun(dir, TUNE, RIGHT, "--knob", "turns=1", "--stored", "only", JSON, NULL));
  ck_assert_str_eq(text_of(r, "choice"), choice);
  json_decref(r);
  free(after);
  free(kept);
}
END_TEST

START_TEST(one_point_meets_the_default) {
  json_t *r = report_of(bsrun(dir, TUNE, "--strategy", "point", "--start", "turns=1", JSON, NULL));
  ck_assert_int_eq(number_of(r, "measured"), 1);
  ck_assert_msg(text_of(r, "word")[0] != '\0', "no word");
  ck_assert_str_eq(text_of(r, "choice"),
                   strcmp(text_of(r, "word"), "FASTER") == 0 ? "knobby:turns{turns=1}" : "knobby:turns");
  json_decref(r);
  json_t *lines = lines_of("tuning.jsonl");
  ck_assert_uint_eq(json_array_size(lines), 0);
  json_decref(lines);
  ran wrong_one = bsrun(dir, TUNE, "--strategy", "point", "--start", "mode=wrong", NULL);
  must_be(&wrong_one, 6);
  ck_assert_ptr_nonnull(strstr(wrong_one.err, "BS-TUNE-POINT"));
  ran_free(&wrong_one);
}
END_TEST

START_TEST(replays_of_what_was_measured) {
  json_t *r = report_of(bsrun(dir, TUNE, RIGHT, "--strategy", "full", "--with", "finalists=0", JSON, NULL));
  json_decref(r);
  char path[800];
  snprintf(path, sizeof path, "%s/tuning-points.jsonl", cache);
  json_t *rows = report_of(
      bsrun(dir, "tune", "--simulate", path, "--strategy", "all", "--with", "replays=5", JSON, NULL));
  ck_assert_uint_eq(json_array_size(rows), 5);
  const json_t *full = json_array_get(rows, 0);
  ck_assert_str_eq(text_of(full, "strategy"), "full");
  ck_assert_str_eq(text_of(full, "of"), "matmul n16k32b4:f32 knobby:turns");
  ck_assert_double_eq(json_number_value(json_object_get(full, "found")), 1.0);
  json_decref(rows);
  ran other = bsrun(dir, "tune", "--simulate", path, "--provider", "knobby:nosuch", NULL);
  must_be(&other, 4);
  ck_assert_msg(strstr(other.err, "has no points of any problem by knobby:nosuch") != NULL, "%s", other.err);
  ran_free(&other);
}
END_TEST

static const struct {
  const char *words[2];
  int code;
  const char *id;
} refused[] = {
    {{"--knob", "keys=1"}, 2, "BS-OP-KNOB"},        {{"--knob", "turns=1,3"}, 2, "BS-OP-KNOB"},
    {{"--where", "keys > 1"}, 3, "BS-KNOB-WHERE"},  {{"--where", "turns > 100"}, 3, "BS-KNOB-SPACE"},
    {{"--where", "turns % 0"}, 3, "BS-KNOB-SPACE"}, {{"--where", "turns <"}, 2, "BS-KNOB-WHERE"},
    {{"--start", "turns=3"}, 2, "BS-TUNE-START"}};

START_TEST(knobs_that_nobody_has) {
  ran r = bsrun(dir, TUNE, refused[_i].words[0], refused[_i].words[1], NULL);
  must_be(&r, refused[_i].code);
  ck_assert_msg(strstr(r.err, refused[_i].id) != NULL, "%s", r.err);
  ran_free(&r);
}
END_TEST

int main(void) {
  const test_case rows[] = {{what_is_wrong_is_found_and_kept},
                            {what_does_not_end_is_late},
                            {the_choice_is_kept_and_taken},
                            {a_stored_choice_is_of_what_was_searched},
                            {a_stored_choice_is_the_code_that_was_measured},
                            {a_model_takes_what_was_tuned},
                            {points_are_of_their_parameters},
                            {a_constraint_leaves_some_out},
                            {what_prints_harms_nobody},
                            {a_signal_leaves_what_was_found},
                            {what_cannot_be_kept_is_printed},
                            {a_run_takes_what_was_tuned},
                            {a_simulated_choice_is_not_kept},
                            {one_point_meets_the_default},
                            {replays_of_what_was_measured},
                            {knobs_that_nobody_has, TEST_COUNT(refused)},
                            {0}};
  return run_tests("bsrun_race", rows, (test_setup){.before = setup, .after = dir_remove, .timeout = 60});
}
