/* SPDX-License-Identifier: MIT
 * test_bsrun_ladder.c - the ladder: its rungs, their predictions from constants that the test wrote, their
 * places; and what --method auto takes of it and leaves in the run's folder. */
#include "lab/cores.h"
#include "tests/bsrun/constants_file.h"
#include "tests/run_tests.h"
#include "tests/spawn.h"

/* A small layer and a larger one, which are predicted only. */
#define SHORT "--limit 0 --seconds 0.1 --n 64 --b 8 --threads 1"
#define LONG "--limit 0 --seconds 0.1 --n 256 --b 64 --threads 1"

static char machine[600]; /* dir/machine.json */
static void setup(void) {
  dir = scratch_dir();
  snprintf(machine, sizeof machine, "%s/machine.json", dir);
}

/* Takes the reference. */
static void store(json_t *constants) {
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_constants_store(machine, constants, &err), BS_OK);
  json_decref(constants);
}

/* The record of a run that ended well; frees what the run said. */
static json_t *record_of(ran r) {
  must_be(&r, 0);
  char *text = read_text(run_folder(&r, dir, 0), "metrics.jsonl");
  json_t *record = json_loads(text, 0, NULL);
  free(text);
  ran_free(&r);
  return record;
}

/* Constants of the backend ref on 2 ranks; an all-reduce takes `wire` seconds, whatever its size. */
static void write_constants(double wire) {
  json_t *constants = round_constants("ref");
  json_t *exchange = json_array_get(json_object_get(constants, "exchange"), 0);
  for (int i = 0; i < BS_EXCHANGES; i++) json_object_set_new(exchange, bs_exchange_keys[i], json_real(wire));
  store(constants);
}

/* Rates of the kernel that serves, too, so that none is measured: two ranks are twice one. */
static void write_kernel(const char *method, const char *mask) {
  json_t *record =
      record_of(bsrun(dir, "--method", method, "--mask", mask, "--plugin", "ref", "--phase", "1", SMALL,
                      "--set", "phase.dense_arm=false", "--set", "phase.pairs_seconds=0.05", "--cache",
                      "machine.json", "--out", method, NULL));
  const json_t *kernel = json_object_get(json_array_get(json_object_get(record, "arms"), 0), "kernel");
  json_t *constants = json_load_file(machine, 0, NULL);
  round_kernel(constants, "ref", json_string_value(json_object_get(kernel, "name")),
               json_string_value(json_object_get(kernel, "how")),
               json_string_value(json_object_get(kernel, "plugin")));
  store(constants);
  json_decref(record);
}

static void write_all_constants(double wire) {
  write_constants(wire);
  write_kernel("dense", "interleave");
}

static double num(const json_t *row, const char *key) {
  const json_t *value = json_object_get(row, key);
  ck_assert_msg(json_is_number(value), "no number %s", key);
  return json_number_value(value);
}

/* The 2:4 kernel's rates: a FLOP takes so many times as long as one of the other's, one of dX and dW so many
 * times that. */
static void write_halves(double times, double backward) {
  static const char *const keys[] = {"flops_core", "flops_all"};
  json_t *constants = json_load_file(machine, 0, NULL);
  if (json_array_size(json_object_get(constants, "kernels")) == 2) { /* it has none yet */
    json_decref(constants);
    write_kernel("blockshock", "random_2of4");
    constants = json_load_file(machine, 0, NULL);
  }
  json_t *rows = json_object_get(constants, "kernels");
  ck_assert_uint_eq(json_array_size(rows), 4);
  for (size_t i = 0; i < 2; i++) {
    json_t *half = json_array_get(rows, 2 + i);
    json_object_set_new(half, "op", json_string("matmul24"));
    json_object_set_new(half, "backward", json_real(backward));
    json_object_set_new(json_array_get(rows, i), "backward", json_real(1.0));
    for (size_t j = 0; j < 2; j++)
      json_object_set_new(half, keys[j], json_real(num(json_array_get(rows, i), keys[j]) / times));
  }
  store(constants);
}

static json_t *rows_of(const ran *r) {
  json_error_t why;
  json_t *rows = json_loads(r->out, JSON_REJECT_DUPLICATES, &why);
  ck_assert_msg(json_is_array(rows), "%s: %s", why.text, r->out);
  return rows;
}

/* The rows of `bsrun compare WORDS` on two ranks of ref; out NULL: what else it said is not looked at. */
static json_t *ladder_and(const char *words, ran *out) {
  char text[400], *rest = NULL, *argv[40] = {"bsrun"};
  size_t n = 0;
  snprintf(text, sizeof text, "compare -P 2 --plugin ref --dtype f32 --cache machine.json -o json %s", words);
  for (char *word = strtok_r(text, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest))
    argv[++n] = word;
  ran r = finish_spawn(dir, start_bsrun(dir, argv));
  must_be(&r, 0);
  json_t *rows = rows_of(&r);
  if (out != NULL) *out = r;
  if (out == NULL) ran_free(&r);
  return rows;
}

static json_t *ladder(const char *words) {
  return ladder_and(words, NULL);
}

static const char *text_of(const json_t *row, const char *key) {
  const char *text = json_string_value(json_object_get(row, key));
  return text != NULL ? text : "";
}

static json_t *row_named(const json_t *rows, const char *candidate) {
  size_t i;
  json_t *row;
  json_array_foreach(rows, i, row) {
    if (strcmp(text_of(row, "candidate"), candidate) == 0) return row;
  }
  ck_abort_msg("no row of %s", candidate);
  return NULL;
}

/* What --method auto takes by prediction alone among the ways of blockshock with one mask (the run's gates
 * must pass with it), and the row of the record's ladder named `row`, "" for none. */
static json_t *taken(const char *P, const char *key, const char *row, char *out_name, size_t size) {
  json_t *record = record_of(
      bsrun(dir, "--method", "auto", "--phase", "0", "--set", "model.N=64", "--set", "model.B=64", "--set",
            "model.dtype=f32", "-P", P, "--plugin", "ref", "--threads", "1", "--set", "auto.measure=0",
            "--set", "auto.methods=[blockshock]", "--set", "auto.masks=[complement_1100_0011]", "--set",
            "auto.overlap=[off]", "--set", key, "--cache", "machine.json", "--out", "runs", NULL));
  const json_t *rungs = json_object_get(record, "ladder");
  snprintf(out_name, size, "%s", text_of(json_array_get(rungs, 0), "candidate"));
  json_t *found = row[0] != '\0' ? json_incref(row_named(rungs, row)) : NULL;
  json_decref(record);
  return found;
}

/* The candidates without the dense layer that stands beside them. */
static size_t splits_of(const json_t *rows) {
  size_t n = 0, i;
  const json_t *row;
  json_array_foreach(rows, i, row) n += strncmp(text_of(row, "candidate"), "dense on ", 9) != 0;
  return n;
}

START_TEST(every_rung_is_predicted_and_placed) {
  write_constants(1e-6);
  json_t *constants = json_load_file(machine, 0, NULL); /* by a bound nothing takes time but what is sent */
  json_object_update_new(json_array_get(json_object_get(constants, "arithmetic"), 1),
                         json_pack("{s:f,s:f}", "flops_core", 1e15, "flops_all", 1e15));
  store(constants);
  json_t *rows = ladder(SHORT), *row;
  size_t i;
  double last = 0.0;
  int bounds = 0;
  /* Five fixed masks, three of which have 2:4 halves, and two that differ by row. */
  ck_assert_uint_eq(json_array_size(rows), 5 + 3 + 2 + 1 + 1 + 5 + 1 + 1);
  json_array_foreach(rows, i, row) {
    ck_assert_int_eq((int)num(row, "place"), (int)i + 1);
    ck_assert(json_object_get(row, "measured_ms") == NULL ||
              json_is_null(json_object_get(row, "measured_ms")));
    const json_t *p = json_object_get(row, "predicted_ms");
    const double expected = json_is_number(p) ? json_number_value(p) : num(row, "bound_ms");
    if (bounds == 0 && !json_is_number(p)) last = 0.0; /* bounds, of 2:4 values without rates, come last */
    bounds += !json_is_number(p);
    ck_assert_int_eq(json_is_number(p), bounds == 0);
    ck_assert_double_ge(expected, last);
    last = expected;
  }
  ck_assert_int_eq(bounds, 3 + 2);
  /* An all-reduce of Y [8,64] in fp32; column_parallel gathers as many bytes; nothing is sent alone. */
  ck_assert_int_eq((int)num(row_named(rows, "row_parallel contiguous"), "wire_bytes"), 8 * 64 * 4);
  ck_assert_int_eq((int)num(row_named(rows, "column_parallel"), "wire_bytes"), 8 * 64 * 4);
  ck_assert_int_eq((int)num(row_named(rows, "dense"), "wire_bytes"), 0);
  const char *why = text_of(row_named(rows, "masked_split interleave"), "why");
  ck_assert_msg(strstr(why, "all of the products on all of the weight bytes; all_reduce") != NULL, "%s", why);
  why = text_of(row_named(rows, "blockshock interleave"), "why");
  ck_assert_msg(strstr(why, "half of the products on half of the weight bytes") != NULL, "%s", why);
  json_decref(rows);
}
END_TEST

/* Halves of a mask that differs by row are predicted by the rates of the op that multiplies them, in each
 * pass; a whole step takes longer than its forward. */
START_TEST(halves_are_predicted_by_their_own_kernel) {
  write_constants(1e-6);
  json_t *rows = ladder(LONG " blockshock --mask random_2of4 --phase time,train --set phase.optimizer=adamw"),
         *row;
  double of_pass[2] = {0};
  size_t i;
  ck_assert_uint_eq(splits_of(rows), 2);
  json_array_foreach(rows, i, row) {
    const int step = strcmp(text_of(row, "pass"), "adamw") == 0;
    if (strcmp(text_of(row, "candidate"), "blockshock random_2of4") == 0)
      of_pass[step] = num(row, "predicted_ms");
  }
  ck_assert_msg(of_pass[0] > 0.0 && of_pass[1] > of_pass[0], "%g and %g ms", of_pass[0], of_pass[1]);
  json_decref(rows);
}
END_TEST

/* In dense storage they are the dense product of all of W, as those of a fixed mask are. */
START_TEST(stored_zeros_are_predicted_as_products) {
  static const char *const names[] = {"masked_split random_2of4", "masked_split magnitude"};
  write_constants(1e-6);
  json_t *rows = ladder(LONG " masked_split --mask random_2of4,magnitude,complement_1100_0011");
  const json_t *fixed = row_named(rows, "masked_split complement_1100_0011");
  for (size_t i = 0; i < 2; i++) {
    const json_t *row = row_named(rows, names[i]);
    ck_assert_double_eq(num(row, "bound_ms"), num(fixed, "bound_ms"));
    ck_assert_double_eq(num(row, "wire_bytes"), num(fixed, "wire_bytes"));
    ck_assert_str_eq(text_of(row, "why"), text_of(fixed, "why"));
  }
  json_decref(rows);
}
END_TEST

/* Halves take longer by their kernel's rate: the sentence has it beside dense's, in each pass, and the limit.
 */
START_TEST(a_kernel_of_halves_says_its_rate) {
  static const struct {
    double times, backward;
    const char *pass, *said;
  } cases[] = {
      {4.0, 1.0, "time", "makes 0.5 GFLOP/s on all cores, dense's 2, so a product takes 4 times as long"},
      {1.5, 1.0, "time", "makes 1.33 GFLOP/s on all cores, dense's 2, so a product takes 1.5 times as long"},
      {1.5, 2.0, "backward",
       "makes 0.667 GFLOP/s on all cores, dense's 2, so a product takes 3 times as long"},
      {1.5, 2.0, "train", "makes 0.8 GFLOP/s on all cores, dense's 2, so a product takes 2.5 times as long"},
  };
  write_all_constants(1e-6);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    write_halves(cases[i].times, cases[i].backward);
    char line[256];
    snprintf(line, sizeof line,
             "blockshock --mask random_2of4,interleave --limit 0 --seconds 0.1 --n 64 --b 64 "
             "--threads %u "
             "--phase %s",
             (bs_machine_cores() + 1) / 2, cases[i].pass);
    json_t *rows = ladder(line);
    const char *why = text_of(row_named(rows, "blockshock random_2of4"), "why");
    ck_assert_msg(strstr(why, cases[i].said) && strstr(why, "arithmetic limits it ("), "%s", why);
    why = text_of(row_named(rows, "blockshock interleave"), "why");
    ck_assert_msg(strstr(why, "kernel") == NULL, "%s", why);
    json_decref(rows);
  }
}
END_TEST

START_TEST(the_first_named_is_what_others_are_held_against) {
  write_constants(10.0); /* seconds: a split is measured far below its bound */
  json_t *rows = ladder(
      "row_parallel masked_split --mask complement_1010_0101 --seconds 0.5 --n 128 --b 8 --run-id kept");
  json_t *first = row_named(rows, "row_parallel"), *row;
  /* It is kept as a run: every sample of what was measured, and the ladder that was printed. */
  char folder[1200], path[1300];
  snprintf(folder, sizeof folder, "%s/results/raw/compare/row_parallel/kept", dir);
  json_t *record = json_load_file(strcat(strcpy(path, folder), "/metrics.jsonl"), 0, NULL);
  char *done = read_text(folder, "DONE");
  ck_assert(done != NULL && strstr(done, "\"status\": \"ok\"") != NULL && record != NULL);
  const json_t *arms = json_object_get(record, "arms");
  ck_assert_uint_eq(json_array_size(arms), json_array_size(rows));
  ck_assert_uint_eq(json_array_size(json_object_get(record, "comparisons")), json_array_size(rows) - 1);
  ck_assert_uint_eq(json_array_size(json_object_get(json_array_get(arms, 0), "samples_s")),
                    (size_t)num(record, "pairs"));
  ck_assert_uint_eq(json_array_size(json_object_get(record, "ladder")), json_array_size(rows));
  json_decref(record);
  free(done);
  size_t i;
  double last = 0.0;
  ck_assert_uint_eq(splits_of(rows), 2);
  row_named(rows, "dense on all cores");
  ck_assert(json_is_null(json_object_get(first, "speedup")));
  row = row_named(rows, "masked_split complement_1010_0101");
  ck_assert(json_is_true(json_object_get(row, "below_bound")));
  ck_assert(json_is_null(json_object_get(row, "share_of_limit")));
  ck_assert_str_eq(text_of(row, "cause"), "below its bound");
  json_array_foreach(rows, i, row) {
    ck_assert_double_ge(num(row, "measured_ms"), last);
    last = num(row, "measured_ms");
    ck_assert(row == first || num(row, "speedup") > 0.0);
  }
  json_decref(rows);
}
END_TEST

/* Two candidates of a ladder: is the first predicted to take less than the second, or the same? */
static const struct {
  const char *words;
  struct {
    const char *first, *second;
    int less;
  } two[2];
} pairs[] = {
    /* only a forward is divided into chunks: a backward does not know of them */
    {SHORT " row_parallel --phase backward --set auto.overlap=[off,8]",
     {{"row_parallel contiguous", "row_parallel contiguous overlap=8", 0}}},
    /* int8 steps are of sums: a method that gathers pays nothing for them, one that sums does */
    {SHORT " column_parallel row_parallel --set auto.reduce_dtypes=[float32,int8]",
     {{"column_parallel float32", "column_parallel int8", 0},
      {"row_parallel contiguous float32", "row_parallel contiguous int8", 1}}},
};

START_TEST(two_are_predicted_alike_or_not) {
  write_constants(_i == 0 ? 1e-3 : 1e-6);
  json_t *rows = ladder(pairs[_i].words);
  for (int i = 0; i < 2 && pairs[_i].two[i].first != NULL; i++) {
    const double first = num(row_named(rows, pairs[_i].two[i].first), "predicted_ms");
    const double second = num(row_named(rows, pairs[_i].two[i].second), "predicted_ms");
    ck_assert_msg(pairs[_i].two[i].less ? first < second : first == second, "%g and %g ms", first, second);
  }
  json_decref(rows);
}
END_TEST

/* A layer with an activation differentiates at what a forward has left. */
START_TEST(a_backward_behind_an_activation_is_measured) {
  write_constants(1e-6);
  json_t *rows = ladder(
      "row_parallel --phase backward --seconds 0.2 --n 32 --b 4 --threads 1 --set "
      "model.activation=relu");
  ck_assert(num(row_named(rows, "row_parallel contiguous"), "measured_ms") > 0);
  json_decref(rows);
}
END_TEST

/* A mask by its patterns, as a run takes it. */
START_TEST(a_mask_by_patterns_is_a_candidate) {
  write_constants(1e-6);
  ran r;
  json_t *rows = ladder_and(
      "blockshock --limit 0 --seconds 0.1 --n 64 --b 8 --threads 128 --set mask.use=always --set "
      "mask.name=complement --set mask.pattern_a=1010",
      &r);
  const int told = strstr(r.err, "2 ranks of 128 threads share ") != NULL; /* as in every verb */
  ck_assert_msg(told == (sysconf(_SC_NPROCESSORS_ONLN) < 256), "%s", r.err);
  ck_assert(num(row_named(rows, "blockshock complement_1010_0101"), "predicted_ms") > 0);
  json_decref(rows);
  ran_free(&r);
}
END_TEST

START_TEST(what_cannot_run_says_why_and_stands_last) {
  ran r = bsrun(dir, "compare", "masked_split", "--mask", "complement_1100_0011,interleave", "--limit", "0",
                "--seconds", "0.1", "--n", "64", "-P", "3", "--plugin", "ref", "--cache", "off", "-o", "json",
                NULL);
  must_be(&r, 0);
  json_t *rows = rows_of(&r), *last = json_array_get(rows, json_array_size(rows) - 1);
  ck_assert_str_eq(text_of(last, "candidate"), "masked_split complement_1100_0011");
  ck_assert(json_is_null(json_object_get(last, "place")));
  ck_assert_ptr_nonnull(strstr(text_of(last, "why"), "odd number of ranks"));
  json_decref(rows);
  ran_free(&r);
}
END_TEST

/* With an all-reduce of a second nothing that sends is taken; with a free one two ranks are. */
START_TEST(auto_weighs_the_wire) {
  const struct {
    double wire;
    const char *named;
  } cases[] = {{1.0, "dense"}, {1e-9, "column_parallel"}};
  for (size_t i = 0; i < 2; i++) {
    write_all_constants(cases[i].wire);
    ran r = bsrun(dir, "--method", "auto", "--phase", "0", "--set", "model.N=256", "--set", "model.B=4",
                  "--set", "model.dtype=f32", "-P", "2", "--plugin", "ref", "--threads", "1", "--set",
                  "auto.measure=0", "--set", "auto.methods=[column_parallel, dense]", "--cache",
                  "machine.json", "--out", "runs", "-o", "json", NULL);
    must_be(&r, 0);
    json_t *rows = rows_of(&r);
    ck_assert_str_eq(json_string_value(json_object_get(json_array_get(rows, 0), "method")), cases[i].named);
    json_decref(rows);
    ran_free(&r);
  }
}
END_TEST

/* The kernel of a fixed mask is the cheaper one by their rates. */
START_TEST(auto_weighs_the_kernels) {
  static const char gathered[] = "blockshock complement_1100_0011",
                    of24[] = "blockshock complement_1100_0011 kernel=sparse24";
  const double times[] = {4.0, 0.25};
  char name[200];
  write_all_constants(1e-9);
  for (size_t i = 0; i < 2; i++) {
    write_halves(times[i], 1.0);
    json_t *row = taken("2", "auto.seconds=1", of24, name, sizeof name);
    ck_assert_str_eq(name, i == 0 ? gathered : of24);
    ck_assert_double_gt(num(row, "predicted_ms"), 0.0);
    json_decref(row);
  }
  json_decref(taken("2", "auto.kernels=[gather, sparse24]", "blockshock complement_1100_0011 kernel=gather",
                    name, sizeof name));
  ck_assert_str_eq(name, of24);
  taken("2", "auto.kernels=[auto]", "", name, sizeof name);
  ck_assert_str_eq(name, gathered);
}
END_TEST

/* On four ranks the halves are sliced: by rows of W where bytes are dear, by columns where collectives are.
 */
START_TEST(auto_weighs_the_slices) {
  static const char *const names[] = {"blockshock complement_1100_0011 kernel=sparse24 slices=row",
                                      "blockshock complement_1100_0011 kernel=sparse24 slices=column"};
  write_all_constants(1.0);
  write_halves(0.25, 1.0);
  for (size_t i = 0; i < 2; i++) {
    char name[200];
    json_t *constants = json_load_file(machine, 0, NULL);
    json_t *row = json_array_get(json_object_get(constants, "exchange"), 0);
    json_object_set_new(row, "world_size", json_integer(4));
    for (int j = 0; i == 1 && j < BS_EXCHANGES; j++)
      json_object_set_new(row, bs_exchange_keys[j], json_real(bs_exchange_bytes[j] * 1e-6));
    store(constants);
    json_decref(taken("4", "auto.kernels=[sparse24]", names[1 - i], name, sizeof name));
    ck_assert_str_eq(name, names[i]);
  }
}
END_TEST

/* A placement is the caller's unless it leaves it open; then what sends nothing is taken where that is dear,
 * and what the method cannot do says why. */
START_TEST(auto_weighs_the_placements_that_are_open) {
  static const char whole[] = "blockshock complement_1100_0011 x=replicated y=replicated",
                    sums[] = "blockshock complement_1100_0011 x=replicated y=partial",
                    sliced[] = "blockshock complement_1100_0011 kernel=sparse24 x=tokens y=split";
  char name[200];
  write_all_constants(1.0);
  write_halves(4.0, 1.0);
  taken("2", "auto.seconds=1", "", name, sizeof name);
  ck_assert_str_eq(name, "blockshock complement_1100_0011");
  json_t *row = taken("2", "auto.placements=[any]", sliced, name, sizeof name);
  ck_assert_str_eq(name, sums);
  ck_assert(json_is_null(json_object_get(row, "place")));
  ck_assert_ptr_nonnull(strstr(text_of(row, "why"), "neither tokens nor"));
  json_decref(row);
  row = taken("2", "auto.placements=[replicated, split/replicated, replicated/partial]", whole, name,
              sizeof name);
  ck_assert_str_eq(name, sums);
  ck_assert_double_gt(num(row, "predicted_ms"), 1000.0);
  json_decref(row);
}
END_TEST

START_TEST(a_choice_is_in_the_record_and_repeats) {
  ran r = bsrun(dir, "--method", "auto", "--set", "model.N=64", "--set", "model.B=8", "--plugin", "ref", "-P",
                "2", "--set", "auto.seconds=0.2", "--set", "auto.measure=2", "--cache", "off", "--tune-cache",
                "off", "--set", "phase.pairs_seconds=0.1", "--set", "phase.pairs_max=5", "--set",
                "phase.pairs_min=5", NULL);
  must_be(&r, 0);
  ck_assert_ptr_nonnull(strstr(r.out, "CANDIDATE"));
  ck_assert_ptr_nonnull(strstr(r.err, "note: auto: "));
  ran_free(&r);
  char command[1024];
  snprintf(command, sizeof command,
           "cd '%s' && for d in results/raw/*/*/*; do grep -q '\"ladder\"' $d/metrics.jsonl && "
           "! grep -q 'name: auto' $d/config.yaml || exit 1; done && "
           "'%s' --config $(ls -d results/raw/phase0*/*/*)/config.yaml -q >again 2>&1 && ! grep -q CANDIDATE "
           "again",
           dir, bsrun_path());
  ck_assert_int_eq(system(command), 0);
}
END_TEST

int main(void) {
  const test_case tests[] = {{every_rung_is_predicted_and_placed},
                             {halves_are_predicted_by_their_own_kernel},
                             {stored_zeros_are_predicted_as_products},
                             {a_kernel_of_halves_says_its_rate},
                             {the_first_named_is_what_others_are_held_against},
                             {two_are_predicted_alike_or_not, TEST_COUNT(pairs)},
                             {a_backward_behind_an_activation_is_measured},
                             {a_mask_by_patterns_is_a_candidate},
                             {what_cannot_run_says_why_and_stands_last},
                             {auto_weighs_the_wire},
                             {auto_weighs_the_kernels},
                             {auto_weighs_the_slices},
                             {auto_weighs_the_placements_that_are_open},
                             {a_choice_is_in_the_record_and_repeats},
                             {0}};
  return run_tests("bsrun_ladder", tests, (test_setup){setup, dir_remove, 60});
}
