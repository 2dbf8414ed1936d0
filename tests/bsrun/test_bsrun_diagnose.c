/* SPDX-License-Identifier: MIT
 * test_bsrun_diagnose.c - `bsrun diagnose`: five faults planted in a layer and five in a model, each found by
 * its check, none in the clean ones; what is kept and reported; inputs that are wrong. No time is judged. */
#include <jansson.h>
#include <math.h>

#include "tests/bsrun/model_files.h"
#include "tests/run_tests.h"

enum { MOST_WORDS = 20 };

static json_t *diagnose(const char *const *words) {
  char *argv[64] = {(char *)(uintptr_t) "bsrun", (char *)(uintptr_t) "diagnose"};
  static const char *const more[] = {"--seconds", "0.01", "--out", "off", "-o", "json", "-q"};
  int n = 2;
  for (int i = 0; words[i] != NULL; i++) argv[n++] = (char *)(uintptr_t)words[i];
  for (size_t i = 0; i < sizeof more / sizeof more[0]; i++) argv[n++] = (char *)(uintptr_t)more[i];
  ran r = finish_spawn(dir, start_bsrun(dir, argv));
  must_be(&r, 0);
  json_t *result = json_loads(r.out, 0, NULL);
  ck_assert_msg(result != NULL, "%s", r.out);
  ran_free(&r);
  return result;
}

static const char *text_of(const json_t *row, const char *key) {
  const char *text = json_string_value(json_object_get(row, key));
  return text != NULL ? text : "";
}

static const json_t *row_of(const json_t *rows, const char *check) {
  const json_t *row;
  size_t i;
  json_array_foreach(rows, i, row) if (strcmp(text_of(row, "check"), check) == 0) return row;
  return NULL;
}

/* One finding, of this check, with words in its evidence and a command that names the check. */
static void must_find(const json_t *result, const char *check, const char *words) {
  const json_t *findings = json_object_get(result, "findings"), *found = row_of(findings, check);
  char *all = json_dumps(result, JSON_COMPACT);
  ck_assert_msg(found != NULL && json_array_size(findings) == 1, "%s: %s", check, all);
  ck_assert_msg(strstr(text_of(found, "evidence"), words) != NULL, "%s: %s", words, all);
  ck_assert_msg(strstr(text_of(found, "command"), check) != NULL, "%s", all);
  ck_assert(json_number_value(json_object_get(found, "cost_s")) >= 0);
  ck_assert_int_eq(json_integer_value(json_object_get(found, "rank")), 1);
  ck_assert_str_eq(text_of(row_of(json_object_get(result, "checks"), check), "state"), "found");
  free(all);
}

/* All checks ran, and none found or failed. Beside other programs a comparison is unclear, which is told. */
static void must_be_clean(const json_t *result, size_t checks) {
  const json_t *row;
  size_t i;
  char *all = json_dumps(result, JSON_COMPACT);
  ck_assert_msg(json_array_size(json_object_get(result, "findings")) == 0, "%s", all);
  json_array_foreach(json_object_get(result, "checks"), i, row) {
    const char *state = text_of(row, "state");
    const int unclear = strcmp(state, "unclear") == 0 && text_of(row, "why")[0] != '\0';
    ck_assert_msg(strcmp(state, "clean") == 0 || strcmp(state, "skipped") == 0 || unclear, "%.4000s", all);
  }
  ck_assert_uint_eq(i, checks);
  free(all);
}

/* The value of a fact of a check whose name contains `words`; NULL: there is none. */
static const json_t *value_of(const json_t *result, const char *check, const char *words) {
  const json_t *fact, *facts = json_object_get(row_of(json_object_get(result, "checks"), check), "facts");
  size_t i;
  json_array_foreach(facts, i, fact) {
    if (strstr(text_of(fact, "fact"), words) != NULL) return json_object_get(fact, "value");
  }
  return NULL;
}

/* "": there is none, or it is a number. */
static const char *fact_of(const json_t *result, const char *check, const char *words) {
  const char *text = json_string_value(value_of(result, check, words));
  return text != NULL ? text : "";
}

/* Each fact of a list {check, words of the fact} is a number. */
static void must_measure(const json_t *result, const char *const facts[][2], size_t n) {
  char *all = json_dumps(result, JSON_COMPACT);
  for (size_t i = 0; i < n; i++)
    ck_assert_msg(json_number_value(value_of(result, facts[i][0], facts[i][1])) > 0, "%s: %s: %s",
                  facts[i][0], facts[i][1], all);
  free(all);
}

static void must_tell(const json_t *result, const char *check, const char *fact, const char *words) {
  char *all = json_dumps(result, JSON_COMPACT);
  ck_assert_msg(strstr(fact_of(result, check, fact), words) != NULL, "%s: %s: %s", fact, words, all);
  free(all);
}

/* ---- layers ---------------------------------------------------------------------------------- */

#define LAYER "--b", "64", "--n", "256", "--k", "256", "--dtype", "f32"
static const char naive_so[] = BS_TEST_RUDE_DIR "/bs_naive.so";
#define NAIVE LAYER, "--plugin", naive_so, "--method", "naive"

START_TEST(faults_of_a_layer) {
  static const struct {
    const char *check, *evidence, *words[MOST_WORDS];
  } cases[] = {
      {"fallback", "the backend ref", {LAYER, "--method", "dense", "--backend", "ref"}},
      {"shapes", "by dimension", {NAIVE}},
      {"waits",
       "a host wait",
       {LAYER, "--method", "dense", "--backend", "slow:cpu", "--set", "plugins.slow.plan=op=matmul,ms=2"}},
      {"epilogue", "at most what is lost", {NAIVE, "--set", "model.activation=gelu"}},
      {"threads", "8 threads", {LAYER, "--method", "dense", "--threads", "8"}},
      {"dispatch",
       "the layer is too small",
       {"--b", "1", "--n", "8", "--k", "8", "--dtype", "f32", "--method", "dense", "--threads", "1"}},
      {"capture", "backend cpu has no graphs", {LAYER, "--method", "dense", "--set", "hardware.graph=true"}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    const char *words[MOST_WORDS + 4] = {NULL};
    size_t n = 0;
    while (cases[i].words[n] != NULL) words[n] = cases[i].words[n], n++;
    words[n++] = "--only";
    words[n++] = cases[i].check;
    json_t *result = diagnose(words);
    must_find(result, cases[i].check, cases[i].evidence);
    json_decref(result);
  }
}
END_TEST

START_TEST(a_clean_layer) {
  static const char *const words[][MOST_WORDS] = {
      {LAYER, "--method", "dense", "--set", "model.activation=relu", "--threads", "1", "--skip",
       "train, bound", NULL},
      {LAYER, "--method", "row_parallel", "-P", "2", "--threads", "1", "--preset", "quick", "--skip", "bound",
       NULL},
  };
  static const size_t checks[] = {11, 10};
  static const char *const measured[][2] = {{"shapes", "call of 1 token"},
                                            {"dispatch", "one row, with checks"},
                                            {"dispatch", "one row, without"},
                                            {"plan", "build"},
                                            {"plan", "pack"},
                                            {"plan", "first pass"},
                                            {"plan", "steady pass"},
                                            {"memory", "most at one time"},
                                            {"memory", "packed weights"}};
  for (size_t i = 0; i < 2; i++) {
    json_t *result = diagnose(words[i]);
    must_be_clean(result, checks[i]);
    must_tell(result, "shapes", "built for", "64 tokens at most");
    must_measure(result, measured, sizeof measured / sizeof measured[0]);
    json_decref(result);
  }
}
END_TEST

/* A row for each setting, and steps of training; what no method has is an error of usage. */
START_TEST(ablation_and_training) {
  static const char *const words[] = {LAYER,       "--method", "row_parallel",
                                      "--threads", "1",        "--only",
                                      "train",     "--ablate", "model.dtype=bf16; method.bias",
                                      NULL};
  json_t *result = diagnose(words);
  const json_t *rows = json_object_get(result, "ablations");
  const json_t *facts = json_object_get(row_of(json_object_get(result, "checks"), "train"), "facts");
  ck_assert_uint_eq(json_array_size(rows), 2);
  ck_assert_str_eq(text_of(json_array_get(rows, 0), "setting"), "model.dtype=bf16");
  ck_assert_str_eq(text_of(json_array_get(rows, 1), "setting"), "method.bias=off");
  ck_assert(json_number_value(json_object_get(json_array_get(rows, 1), "ratio")) > 0);
  ck_assert_uint_eq(json_array_size(facts), 4);
  ck_assert(json_is_number(json_object_get(json_array_get(facts, 3), "value")));
  json_decref(result);
  /* What cannot be done has a row with the reason, and the next setting follows. */
  static const char *const failing[] = {LAYER,    "--method", "row_parallel",
                                        "-P",     "2",        "--only",
                                        "memory", "--ablate", "method.name=dense; method.bias",
                                        NULL};
  result = diagnose(failing);
  rows = json_object_get(result, "ablations");
  ck_assert_uint_eq(json_array_size(rows), 2);
  ck_assert_msg(strncmp(text_of(json_array_get(rows, 0), "verdict"), "failed: ", 8) == 0, "%s",
                text_of(json_array_get(rows, 0), "verdict"));
  json_decref(result);
  /* A knob of the implementation that serves. */
  char knob[600];
  ran r = bsrun(dir, "explain", "matmul", LAYER, "--with", "bias", "--threads", "1", "-o", "json", NULL);
  must_be(&r, 0);
  json_t *ladder = json_loads(r.out, 0, NULL);
  ran_free(&r);
  snprintf(knob, sizeof knob, "%.400s -> cpu:packed{tokens=24;threads=1}",
           text_of(json_array_get(ladder, 0), "key"));
  json_decref(ladder);
  const char *const knobs[] = {LAYER,    "--method", "dense",    "--threads", "1",
                               "--only", "memory",   "--ablate", knob,        NULL};
  result = diagnose(knobs);
  rows = json_object_get(result, "ablations");
  ck_assert_str_eq(text_of(json_array_get(rows, 0), "setting"), knob);
  ck_assert(json_number_value(json_object_get(json_array_get(rows, 0), "ratio")) > 0);
  json_decref(result);
  static const char *const wrong[] = {"method.nosuch=1", "foo -> bar"};
  for (size_t i = 0; i < 2; i++) {
    r = bsrun(dir, "diagnose", LAYER, "--method", "dense", "--only", "memory", "--seconds", "0.01",
              "--ablate", wrong[i], NULL);
    must_be(&r, 2);
    ck_assert_str_eq(r.out, "");
    ran_free(&r);
  }
}
END_TEST

/* One rank is slow: `profile` finds four things by its rules, and `diagnose` the same with the same costs in
 * the same order. */
START_TEST(agrees_with_profile) {
#define SLOW_RANK                                                                                   \
  LAYER, "--method", "row_parallel", "-P", "2", "--threads", "1", "--backend", "slow:cpu", "--set", \
      "plugins.slow.plan=op=matmul,rank=1,ms=5"
  static const char *const rules[] = {"far_from_bound", "collectives", "waiting", "imbalance"};
  static const char *const words[] = {SLOW_RANK, "--only", "bound", NULL};
  ran r =
      bsrun(dir, "profile", "layer", SLOW_RANK, "--samples", "12", "--out", "off", "-o", "json", "-q", NULL);
  must_be(&r, 0);
  json_t *profile = json_loads(r.out, 0, NULL), *result = diagnose(words);
  const json_t *held = json_object_get(profile, "findings"), *found = json_object_get(result, "findings"), *f;
  double last = INFINITY;
  size_t i;
  ck_assert_uint_eq(json_array_size(found), 4);
  json_array_foreach(found, i, f) {
    const double cost = json_number_value(json_object_get(f, "cost_s"));
    size_t named = 0;
    for (size_t k = 0; k < 4; k++) named += strncmp(text_of(f, "evidence"), rules[k], strlen(rules[k])) == 0;
    ck_assert_msg(named == 1 && cost > 2e-3 && cost <= last, "%s: %g", text_of(f, "evidence"), cost);
    last = cost;
  }
  last = INFINITY;
  json_array_foreach(held, i, f) {
    const double cost = json_number_value(json_object_get(f, "cost_s"));
    ck_assert_msg(strcmp(text_of(f, "state"), "holds") == 0 || cost == 0, "%s", text_of(f, "rule"));
    ck_assert_msg(cost <= last && (i >= 4 || cost > 2e-3), "%s: %g", text_of(f, "rule"), cost);
    last = cost;
  }
  ck_assert(json_is_object(json_object_get(profile, "conditions")));
  json_decref(profile);
  json_decref(result);
  ran_free(&r);
}
END_TEST

/* ---- models ---------------------------------------------------------------------------------- */

/* Two products with bias and activation behind a table of 11 rows. */
static void write_model(void) {
  static char text[40000];
  size_t n = 0;
  n += (size_t)snprintf(
      text + n, sizeof text - n,
      "<ir_version: 10, opset_import: [\"\" : 23]> g (int64[batch,tokens] ids, int64[batch,tokens] "
      "mask) => (float[batch,tokens,32] y) <float[11,32] table = {");
  for (int i = 0; i < 11 * 32; i++)
    n += (size_t)snprintf(text + n, sizeof text - n, "%s%d", i ? "," : "", i % 7);
  for (int k = 0; k < 2; k++) {
    n += (size_t)snprintf(text + n, sizeof text - n, "}, float[32,32] w%d = {", k);
    for (int i = 0; i < 32 * 32; i++)
      n += (size_t)snprintf(text + n, sizeof text - n, "%s%d", i ? "," : "", i % 5);
    n += (size_t)snprintf(text + n, sizeof text - n, "}, float[32] b%d = {", k);
    for (int i = 0; i < 32; i++)
      n += (size_t)snprintf(text + n, sizeof text - n, "%s%d", i ? "," : "", i % 3);
  }
  snprintf(
      text + n, sizeof text - n,
      "}, int64[1] last = {2}> { x = Gather (table, ids) f = Cast <to = 1> (mask) m = Unsqueeze (f, last) "
      "xm = Mul (x, m) p = MatMul (xm, w0) a = Add (p, b0) h = Relu (a) q = MatMul (h, w1) c = Add (q, b1) "
      "y = Relu (c) }");
  write_onnx("m.onnx", text);
}

/* Thirty operators of one number each. */
static void write_chain(void) {
  char text[2000];
  size_t n = (size_t)snprintf(
      text, sizeof text, "<ir_version: 10, opset_import: [\"\" : 23]> g (float[1] v0) => (float[1] v30) {");
  for (int i = 0; i < 30; i++)
    n += (size_t)snprintf(text + n, sizeof text - n, " v%d = Sigmoid (v%d)", i + 1, i);
  snprintf(text + n, sizeof text - n, " }");
  write_onnx("chain.onnx", text);
}

/* The key of the model's second product, as `model explain` tells it. */
static void key_of_product(char *out, size_t size) {
  ran r = bsrun(dir, "model", "explain", "m.onnx", "--dim", "batch=2", "--dim", "tokens=8", "--threads", "1",
                "-o", "json", NULL);
  const json_t *node;
  size_t i;
  must_be(&r, 0);
  json_t *explain = json_loads(r.out, 0, NULL);
  out[0] = '\0';
  json_array_foreach(json_object_get(explain, "nodes"), i, node) {
    if (strcmp(text_of(node, "op"), "matmul") == 0)
      snprintf(out, size, "%s -> ref:portable", text_of(node, "key"));
  }
  ck_assert_msg(out[0] != '\0' && out[0] != ' ', "%s", r.out);
  json_decref(explain);
  ran_free(&r);
}

#define MODEL "m.onnx", "--dim", "batch=2", "--dim", "tokens=8"

START_TEST(faults_of_a_model) {
  static char choice[600];
  static const struct {
    const char *check, *evidence, *words[MOST_WORDS];
  } cases[] = {
      {"fallback", "ref:portable, where cpu:packed can serve", {MODEL, "--threads", "1", "--choice", choice}},
      {"shapes",
       "dimension 'tokens' has 17 sizes",
       {MODEL, "--threads", "1", "--with", "shapes=exact", "--vary", "tokens=4:20+1"}},
      {"waits",
       "a host wait",
       {MODEL, "--threads", "1", "--backend", "slow:cpu", "--set", "plugins.slow.plan=op=matmul,ms=2"}},
      {"epilogue", "epilogue off", {MODEL, "--threads", "1", "--no-pass", "epilogue"}},
      {"threads", "8 threads", {MODEL, "--threads", "8"}},
      {"dispatch", "of 30 nodes", {"chain.onnx", "--threads", "1", "--no-pass", "all"}},
  };
  write_model();
  write_chain();
  key_of_product(choice, sizeof choice);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    const char *words[MOST_WORDS + 4] = {NULL};
    char only[40];
    size_t n = 0;
    while (cases[i].words[n] != NULL) words[n] = cases[i].words[n], n++;
    snprintf(only, sizeof only, "%s, fallback", cases[i].check);
    words[n++] = "--only";
    words[n++] = only;
    json_t *result = diagnose(words);
    must_find(result, cases[i].check, cases[i].evidence);
    /* Nodes of a wrapped backend are no nodes for which a choice was given. */
    ck_assert((value_of(result, "fallback", "a choice was given") != NULL) == (i == 0));
    json_decref(result);
  }
}
END_TEST

/* Findings stand in the order of what they cost: the plans of the first check take less than the second's
 * 2 ms. */
START_TEST(dearest_first) {
  static const char *const words[] = {NAIVE,
                                      "--set",
                                      "model.activation=gelu",
                                      "--backend",
                                      "slow:cpu",
                                      "--set",
                                      "plugins.slow.plan=op=activate,ms=2",
                                      "--only",
                                      "shapes, epilogue",
                                      NULL};
  json_t *result = diagnose(words);
  const json_t *findings = json_object_get(result, "findings");
  ck_assert_uint_eq(json_array_size(findings), 2);
  ck_assert_str_eq(text_of(json_array_get(findings, 0), "check"), "epilogue");
  ck_assert_str_eq(text_of(json_array_get(findings, 0), "severity"), "high");
  ck_assert_str_eq(text_of(json_array_get(findings, 1), "check"), "shapes");
  ck_assert_int_eq(json_integer_value(json_object_get(json_array_get(findings, 1), "rank")), 2);
  json_decref(result);
}
END_TEST

/* The sizes that were given stand in the command as they were given. */
START_TEST(command_of_shapes) {
  static const char *const words[] = {MODEL,    "--threads",     "1",      "--only",       "shapes",
                                      "--vary", "tokens=1:40+1", "--with", "shapes=exact", NULL};
  write_model();
  json_t *result = diagnose(words);
  const char *command = text_of(row_of(json_object_get(result, "findings"), "shapes"), "command");
  ck_assert_msg(strstr(command, "--vary tokens=1:40+1") != NULL, "%s", command);
  ck_assert_msg(strstr(command, "shapes=exact") != NULL, "%s", command);
  json_decref(result);
}
END_TEST

/* Of a model this small the host may be a fifth, nodes one by one be as fast, and a run be far from the limit
 * of the machine: those findings are left out. */
START_TEST(a_clean_model) {
  static const char *const words[] = {MODEL, "--threads", "1", "--skip", "dispatch, nodes, bound", NULL};
  static const char *const measured[][2] = {{"shapes", "batch: a plan for a new size"},
                                            {"plan", "cold: lower"},
                                            {"plan", "cold: passes"},
                                            {"plan", "cold: prepare the ops"},
                                            {"plan", "of these an op takes"},
                                            {"plan", "warm: all of it"},
                                            {"plan", "first run"},
                                            {"plan", "steady run"},
                                            {"memory", "planned"}};
  write_model();
  json_t *result = diagnose(words);
  must_be_clean(result, 10);
  const json_t *inputs = json_object_get(row_of(json_object_get(result, "checks"), "inputs"), "facts");
  ck_assert_msg(strstr(text_of(json_array_get(inputs, 0), "value"), "ids below 11") != NULL, "%s",
                text_of(json_array_get(inputs, 0), "value"));
  ck_assert_msg(strstr(text_of(json_array_get(inputs, 1), "value"), "0 and 1") != NULL, "mask");
  must_tell(result, "shapes", "tokens: sizes of a round", "8,0,8,32,1,128,4,8");
  must_measure(result, measured, sizeof measured / sizeof measured[0]);
  ck_assert_uint_gt(json_array_size(json_object_get(result, "ablations")), 0);
  json_decref(result);
}
END_TEST

/* Planned, the products take bias and activation, and values share memory; both are timed. */
START_TEST(node_by_node) {
  static const char *const words[] = {MODEL, "--threads", "1", "--only", "nodes", NULL};
  static const char *const measured[][2] = {{"nodes", "planned: a run"}, {"nodes", "node by node: a run"}};
  write_model();
  json_t *result = diagnose(words);
  must_measure(result, measured, 2);
  ck_assert_int_eq(json_number_value(value_of(result, "nodes", "planned: nodes")), 5);
  ck_assert_int_eq(json_number_value(value_of(result, "nodes", "node by node: nodes")), 9);
  ck_assert(2 * json_number_value(value_of(result, "nodes", "planned: memory")) <
            json_number_value(value_of(result, "nodes", "node by node: memory")));
  json_decref(result);
}
END_TEST

/* A pass that is off is turned on; what cannot be done has a row, and the next follows; unknown words end it.
 */
START_TEST(ablation_of_a_model) {
  static const char *const words[] = {
      MODEL,       "--threads", "1",
      "--no-pass", "all",       "--only",
      "memory",    "--ablate",  "epilogue=on; fuse_map; backend=virtual:cpu; all=on",
      NULL};
  static const char *const settings[] = {"epilogue=on", "fuse_map=on", "backend=virtual:cpu", "all=on"};
  static const struct {
    const char *word, *says;
  } wrong[] = {{"matmul nosuch -> cpu:packed", "nothing here has the key 'matmul nosuch'"},
               {"backend=nosuch", "nosuch"},
               {"epilogue=on", "the pass is on already"},
               {"nopass", "'nopass' is no pass"}};
  char choice[600];
  write_model();
  json_t *result = diagnose(words);
  const json_t *rows = json_object_get(result, "ablations");
  ck_assert_uint_eq(json_array_size(rows), 4);
  for (size_t i = 0; i < 4; i++) ck_assert_str_eq(text_of(json_array_get(rows, i), "setting"), settings[i]);
  json_decref(result);
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    ran r =
        bsrun(dir, "diagnose", "m.onnx", "--only=memory", "--seconds=0.01", "--ablate", wrong[i].word, NULL);
    must_be(&r, 2);
    ck_assert_msg(strstr(r.err, wrong[i].says) != NULL, "%s", r.err);
    ran_free(&r);
  }
  key_of_product(choice, sizeof choice);
  snprintf(strstr(choice, " -> "), 32, " -> cpu:nosuch");
  ran r = bsrun(dir, "diagnose", MODEL, "--threads=1", "--only=memory", "--seconds=0.01", "--choice", choice,
                NULL);
  must_be(&r, 2);
  ck_assert_msg(strstr(r.err, "not served by 'cpu:nosuch'") != NULL, "%s", r.err);
  ran_free(&r);
}
END_TEST

/* Models that are made in memory, here small ones with the sizes of the preset large, and a choice that is
 * ablated. */
START_TEST(built_in_models) {
  static const char *const names[] = {"builtin:lm:1x16", "builtin:vit:1x16"};
  static char choice[600];
  for (size_t i = 0; i < 2; i++) {
    const char *words[] = {
        names[i], "--threads", "1", "--preset", "large", "--only", "inputs, fallback, epilogue, shapes",
        "--vary", "batch=0,2", NULL};
    json_t *result = diagnose(words);
    must_be_clean(result, 4);
    ck_assert_str_eq(fact_of(result, "shapes", "refused"), "");
    if (i == 0) must_tell(result, "inputs", "input_ids", "[8,128], ids below 8192");
    if (i == 1) must_tell(result, "inputs", "patches", "f32[8,");
    ck_assert_str_eq(text_of(json_object_get(result, "subject"), "model"), names[i]);
    json_decref(result);
  }
  write_model();
  key_of_product(choice, sizeof choice);
  const char *words[] = {MODEL, "--threads", "1", "--only", "memory", "--ablate", choice, NULL};
  json_t *result = diagnose(words);
  const json_t *rows = json_object_get(result, "ablations");
  ck_assert_uint_eq(json_array_size(rows), 1);
  ck_assert_str_eq(text_of(json_array_get(rows, 0), "setting"), choice);
  json_decref(result);
  static const char *const wrong[] = {"builtin:vit:0x64", "builtin:lm:96x8192"};
  for (size_t i = 0; i < 2; i++) {
    ran r = bsrun(dir, "model", "info", wrong[i], NULL);
    must_be(&r, i == 0 ? 4 : 2); /* no such model; one that is too large */
    ck_assert_msg(strstr(r.err, "BS-MODEL-BUILTIN") != NULL, "%s", r.err);
    ran_free(&r);
  }
}
END_TEST

/* Files are held against the domains before anything runs. */
START_TEST(inputs_out_of_their_domain) {
  static const int64_t ids[4] = {0, 10, 11, 3}, mask[4] = {1, 1, 2, 0}, dims[2] = {2, 2};
  write_model();
  write_array("ids.npy", BS_I64, 2, dims, ids);
  write_array("mask.npy", BS_I64, 2, dims, mask);
  static const struct {
    const char *input, *words;
  } cases[] = {{"ids=ids.npy", "input 'ids': element 2 is 11; it picks rows of a table with 11"},
               {"mask=mask.npy", "input 'mask': element 2 is 2; a mask has 0 and 1"}};
  for (size_t i = 0; i < 2; i++) {
    ran r = bsrun(dir, "diagnose", "m.onnx", "--input", cases[i].input, "--out", "off", NULL);
    must_be(&r, 4);
    ck_assert_msg(strstr(r.err, cases[i].words) != NULL, "%s", r.err);
    ck_assert_str_eq(r.out, "");
    ran_free(&r);
  }
}
END_TEST

/* Ids choose along the axis of the take, from the end too; what picks rows of a table is no mask. */
START_TEST(domains_of_takes) {
  static const int64_t ids[2] = {-3, 2}, dims[1] = {2};
  static const char *const words[] = {"takes.onnx",    "--dim",  "batch=2",        "--input",
                                      "ids=least.npy", "--only", "inputs, shapes", NULL};
  write_onnx(
      "takes.onnx",
      "<ir_version: 10, opset_import: [\"\" : 23]> g (int64[batch] ids, float[batch,2] v, int64[batch] "
      "masked_positions, int64[batch] my_mask) => (float[2,batch] x, float[batch,2] p, int64[batch] m) "
      "<float[2,3] t = {1,2,3,4,5,6}> { x = Gather <axis = 1> (t, ids) p = Gather (v, masked_positions) "
      "m = Neg (my_mask) }");
  write_array("least.npy", BS_I64, 1, dims, ids);
  json_t *result = diagnose(words);
  must_be_clean(result, 2);
  must_tell(result, "inputs", "ids", "ids below 3: the file");
  must_tell(result, "inputs", "masked_positions", "ids below 2: made");
  must_tell(result, "inputs", "my_mask", "0 and 1: made");
  ck_assert_str_eq(fact_of(result, "shapes", "refused"), "");
  json_decref(result);
}
END_TEST

/* ---- what is kept, and words ------------------------------------------------------------------ */

START_TEST(runs_and_reports) {
  write_model();
  ran r = bsrun(dir, "diagnose", "m.onnx", "--only", "threads", "--threads", "8", "--seconds", "0.01", "-q",
                "--strict", NULL);
  must_be(&r, 14);
  ck_assert_msg(strstr(r.err, "BS-DIAG-FOUND") != NULL && strstr(r.out, "1 finding in a model") != NULL, "%s",
                r.err);
  ran_free(&r);
  r = bsrun(dir, "diagnose", LAYER, "--method", "dense", "--backend", "ref", "--only", "fallback",
            "--seconds", "0.01", "-q", NULL);
  must_be(&r, 0);
  ck_assert_msg(strstr(r.out, "run: results/raw/diagnose/dense/") != NULL, "%s", r.out);
  ran_free(&r);
  r = bsrun(dir, "report", "--to", "page.html", NULL);
  must_be(&r, 0);
  char *page = read_text(dir, "page.html");
  ck_assert_msg(strstr(page, "id=\"diagnosis\"") != NULL && strstr(page, "the backend ref") != NULL &&
                    strstr(page, "8 threads") != NULL,
                "the page lacks the findings");
  free(page);
  ran_free(&r);
  r = bsrun(dir, "runs", "fsck", NULL);
  must_be(&r, 0);
  ran_free(&r);
}
END_TEST

START_TEST(words) {
  ran r = bsrun(dir, "diagnose", "--only", "thread", NULL);
  must_be(&r, 2);
  ck_assert_msg(strstr(r.err, "did you mean 'threads'?") != NULL, "%s", r.err);
  ran_free(&r);
  r = bsrun(dir, "diagnose", "--only", "nodes", NULL);
  must_be(&r, 2);
  ck_assert_msg(strstr(r.err, "no check of a layer is left") != NULL, "%s", r.err);
  ran_free(&r);
  static const struct {
    const char *words[4], *says;
  } wrong[] = {{{"m.onnx", "--b", "64"}, "--b applies to layers only; you gave the model 'm.onnx'"},
               {{"--comm=shm", "--method=row_parallel", "--n=64", "--only=memory"}, "hint: --comm threads"},
               {{"--dim", "a=3"}, "--dim is of a model, and no model was given"},
               {{"m.onnx", "--vary", "a=3", "--only=threads"}, "--vary is read by the check shapes"},
               {{"--ablate", "x", "--skip=ablate"}, "--ablate is read by the check ablate"}};
  write_model();
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    const char *const *w = wrong[i].words;
    r = bsrun(dir, "diagnose", w[0], w[1], w[2], w[3], NULL);
    must_be(&r, 2);
    ck_assert_msg(strstr(r.err, wrong[i].says) != NULL, "%s", r.err);
    ran_free(&r);
  }
  /* The preset large with a key of the configuration is of a layer. */
  r = bsrun(dir, "diagnose", "--preset=large", "--set=model.N=64", "--dim=batch=1", NULL);
  must_be(&r, 2);
  ck_assert_msg(strstr(r.err, "no model was given") != NULL, "%s", r.err);
  ran_free(&r);
  r = bsrun(dir, "diagnose", "--dry-run", "-o", "csv", NULL);
  must_be(&r, 0);
  ck_assert_msg(strstr(r.out, "shapes,yes,yes,quick,") != NULL && strstr(r.out, "train,yes,,full,") != NULL,
                "%s", r.out);
  ran_free(&r);
}
END_TEST

int main(void) {
  return run_tests("bsrun_diagnose",
                   (test_case[]){{faults_of_a_layer},
                                 {a_clean_layer},
                                 {agrees_with_profile},
                                 {dearest_first},
                                 {command_of_shapes},
                                 {domains_of_takes},
                                 {ablation_and_training},
                                 {faults_of_a_model},
                                 {a_clean_model},
                                 {node_by_node},
                                 {ablation_of_a_model},
                                 {built_in_models},
                                 {inputs_out_of_their_domain},
                                 {runs_and_reports},
                                 {words},
                                 {0}},
                   (test_setup){dir_make, dir_remove});
}
