/* SPDX-License-Identifier: MIT
 * test_lower_cases.c - the lowering of ONNX operators, by the cases of tests/graph/cases: models as text, the
 * tensors that are fed, and those that ONNX's own reference gives or what the refusal says. nodes.txt holds
 * the small ones of ONNX's node tests (node_tests.py text), lower.txt cases of our own (lower_cases.py),
 * signal.txt those of recurrent layers and spectra (signal_cases.py), counted.txt those of NonZero of data
 * (counted_cases.py), near.txt what a pass must leave alone (pass_cases.py), passes.txt what the fuzzer of
 * the passes found (fuzz_passes --keep, tests/graph/fuzz_passes), models.txt whole exports of PyTorch with
 * two narrow layers (model_cases.py). */
#include "lab/model/verify.h"
#include "tests/graph/bucket_run.h"
#include "tests/graph/onnx_case.h"
#include "tests/graph/random_text.h"

/* How the cases are run: what lowering alone gives, what the passes make of it, and what the backend does
 * that users have. */
static const struct {
  const char *backend, *passes_off;
} modes[] = {{"ref", NULL}, {"ref", "all"}, {"cpu", NULL}};

enum { MODELS = 18 }; /* exports in models.txt */

static bs_context *context;

static void open_all(void) {
  bs_error err = BS_ERROR_INIT;
  files_begin();
  ck_assert_msg(bs_context_open(NULL, &context, &err) == BS_OK, "%s", err.message);
}

static void close_all(void) {
  bs_context_close(context);
  files_end();
}

static char *read_text(const char *name) {
  char path[1024];
  snprintf(path, sizeof path, "%s/tests/graph/cases/%s", getenv("BS_TEST_SOURCE_DIR"), name);
  FILE *f = fopen(path, "rb");
  ck_assert_msg(f != NULL, "%s", path);
  fseek(f, 0, SEEK_END);
  const long size = ftell(f);
  rewind(f);
  char *text = calloc((size_t)size + 1, 1);
  ck_assert_uint_eq(fread(text, 1, (size_t)size, f), (size_t)size);
  fclose(f);
  char *expanded = random_expand(text);
  ck_assert_msg(expanded != NULL, "%s: a wrong {@SEED SCALE OFFSET}", path);
  free(text);
  return expanded;
}

/* The lines "-- TENSOR" of a case as the initializers of a model, its bytes to be freed. *out_issue: what a
 * refusal must say, NULL. */
static bs_onnx read_tensors(char *lines, unsigned char **out_bytes, const char **out_issue) {
  char *text = NULL;
  bs_error err = BS_ERROR_INIT;
  bs_onnx data;
  size_t size, n = 0;
  FILE *out = open_memstream(&text, &size);
  ck_assert_ptr_nonnull(out);
  fputs("<ir_version: 8, opset_import: [\"\" : 13]> d () => () <", out);
  *out_issue = NULL;
  for (char *line = strtok(lines, "\n"); line != NULL; line = strtok(NULL, "\n")) {
    if (strncmp(line, "-- issue ", 9) == 0) {
      *out_issue = line + 9;
    } else {
      fprintf(out, "%s%s", n++ > 0 ? ", " : "", line + 3);
    }
  }
  fputs("> { }", out);
  fclose(out);
  *out_bytes = onnx_bytes(text, 0, &size);
  ck_assert_msg(bs_onnx_parse(*out_bytes, size, "tensors", NULL, &data, &err) == BS_OK, "%s", err.message);
  free(text);
  return data;
}

/* The bytes of a case's model, to be freed. Its head is "<..>\n"; without one it has that of the case before,
 * which *head keeps. */
static unsigned char *read_model(const char *model, const char **head, size_t *out_size) {
  char *whole = NULL;
  if (*model == '<') {
    *head = model;
    model = strstr(model, ">\n") + 2;
  }
  ck_assert_msg(*head != NULL, "the first case has no head");
  ck_assert_int_ge(asprintf(&whole, "%.*s%s", (int)(strstr(*head, ">\n") + 2 - *head), *head, model), 0);
  unsigned char *bytes = onnx_bytes(whole, ONNX_TEXT_RAW, out_size);
  free(whole);
  return bytes;
}

/* One case: "NAME RTOL ATOL\n", the model, the lines of tensors. 1: as expected. Its plan is counted in *io.
 */
static int run_case(char *text, const char **head, case_run *io) {
  char name[200], rtol[40], atol[40];
  case_run c = *io;
  ck_assert_int_eq(sscanf(text, "%199s %39s %39s", name, rtol, atol), 3);
  c.rtol = strtod(rtol, NULL);
  c.atol = strtod(atol, NULL);
  char *model = strchr(text, '\n') + 1, *lines = strstr(model, "\n-- ");
  unsigned char *data_bytes;
  const char *issue;
  size_t size;
  static char none[1];
  if (lines != NULL) *lines++ = '\0';
  unsigned char *bytes = read_model(model, head, &size);
  const char *path = files_write("case.onnx", bytes, size);
  bs_onnx data = read_tensors(lines != NULL ? lines : none, &data_bytes, &issue);
  for (uint32_t i = 0; i < data.graph->n_initializers; ++i) {
    const bs_onnx_tensor *t = &data.graph->initializers[i];
    if (t->name.data[0] == 'i') {
      c.in[c.n_in++] = t;
    } else {
      c.out[c.n_out++] = t;
    }
  }
  const int outcome = c.file != NULL ? c.file(&c, path) : case_run_file(&c, path);
  const int as_expected = c.file != NULL || issue == NULL
                              ? outcome == CASE_PASSED
                              : outcome != CASE_PASSED && strstr(c.why, issue) != NULL;
  if (!as_expected)
    fprintf(stderr, "%s on %s: %s\n", name, c.backend, outcome == CASE_PASSED ? "it is not refused" : c.why);
  io->nodes = c.nodes;
  io->flops = c.flops;
  io->fallback = c.fallback;
  bs_onnx_close(&data);
  free(data_bytes);
  free(bytes);
  return as_expected;
}

static case_run run_cases(const char *name, case_run all, int least) {
  char *text = read_text(name);
  const char *head = NULL;
  int n = 0, failed = 0;
  for (char *at = strstr(text, "== "); at != NULL;) {
    char *next = strstr(at + 1, "\n== ");
    if (next != NULL) *next++ = '\0';
    failed += !run_case(at + 3, &head, &all);
    at = next;
    ++n;
  }
  free(text);
  ck_assert_msg(failed == 0 && n >= least, "%d of %d cases of %s failed", failed, n, name);
  return all;
}

static case_run run_file_also(const char *name, const char *backend, const char *passes_off, int least,
                              int (*also)(case_run *c, bs_session *session)) {
  const case_run all = {.context = context, .backend = backend, .passes_off = passes_off, .also = also};
  return run_cases(name, all, least);
}

static case_run run_file(const char *name, const char *backend, const char *passes_off, int least) {
  return run_file_also(name, backend, passes_off, least, NULL);
}

/* The planned outputs beside those of the graph as written, on the case's inputs and on made ones. */
static int as_written(case_run *c, bs_session *session) {
  const bs_model_request request = {.path = "", .backend = c->backend};
  bs_model_verified verified;
  bs_error err = BS_ERROR_INIT;
  int32_t rc = bs_model_verified_init(&verified, &err);
  if (rc == BS_OK) rc = bs_model_verify(&request, session, "", 1, &verified, &err);
  if (rc != BS_OK) snprintf(c->why, sizeof c->why, "%s: %s", err.id, err.message);
  for (size_t i = 0; rc == BS_OK && i < json_array_size(verified.rows); ++i) {
    const json_t *row = json_array_get(verified.rows, i);
    if (json_is_true(json_object_get(row, "ok"))) continue;
    snprintf(c->why, sizeof c->why, "%s: %s; %s", json_string_value(json_object_get(row, "inputs")),
             json_string_value(json_object_get(verified.error, "message")),
             json_string_value(json_object_get(verified.error, "hint")));
  }
  const int right = rc == BS_OK && verified.failed == 0;
  bs_model_verified_free(&verified);
  return right;
}

/* The exports, which take longest, with the passes on the backend that users have alone. */
START_TEST(right_cases_are_as_written) {
  static const char *const files[] = {"lower.txt", "nodes.txt", "models.txt", "signal.txt"};
  const int n = TEST_COUNT(modes), mode = _i < 2 * n ? _i % n : n - 1,
            file = _i < 2 * n ? _i / n : _i - 2 * n + 2;
  if (BS_SLOW && mode != n - 1) return;
  run_file_also(files[file], modes[mode].backend, modes[mode].passes_off, MODELS, as_written);
}
END_TEST

/* The cases of a file are right, and no node of them is left to ref. */
static void run_served(const char *name, int mode, int least) {
  const case_run all = run_file(name, modes[mode].backend, modes[mode].passes_off, least);
  ck_assert_msg(all.fallback == 0, "%s: ref serves %llu nodes", name, (unsigned long long)all.fallback);
}

START_TEST(cases_of_our_own) {
  run_served("lower.txt", _i, 100);
}
END_TEST

/* NonZero of data: masks of none, all and some (counted_cases.py). */
START_TEST(counted_rows) {
  run_served("counted.txt", _i, 80);
}
END_TEST

/* Recurrent layers, Fourier transforms, inverse functions (signal_cases.py); f64 is left to ref. */
START_TEST(signals) {
  run_file("signal.txt", modes[_i].backend, modes[_i].passes_off, 40);
}
END_TEST

/* What looks like a pattern of a pass and is another function (pass_cases.py). */
START_TEST(near_patterns) {
  run_served("near.txt", _i, 80);
}
END_TEST

START_TEST(found_by_the_fuzzer) {
  run_served("passes.txt", _i, 20);
}
END_TEST

START_TEST(small_node_tests) {
  run_served("nodes.txt", _i, 300);
}
END_TEST

/* Masks too: GatherND takes bool by tuples. */
START_TEST(exported_models) {
  run_served("models.txt", _i, MODELS);
}
END_TEST

/* Without any one pass the exports are as right, and their plans have more nodes or more work. PyTorch leaves
 * no dead node and no equal ones, and computes matrices of constants itself; all numbers beside products are
 * attention's: what dce, cse, weights and alpha do is seen in test_graph_passes alone. */
START_TEST(exports_without_a_pass) {
  const case_run with = run_file("models.txt", "ref", NULL, MODELS);
  for (uint32_t i = 0; bs_graph_pass_name(i) != NULL; ++i) {
    const char *pass = bs_graph_pass_name(i);
    if (BS_SLOW && i % 4 != 0) continue;
    const case_run without = run_file("models.txt", "ref", pass, MODELS);
    const int by_exporter = strcmp(pass, "dce") == 0 || strcmp(pass, "cse") == 0 ||
                            strcmp(pass, "weights") == 0 || strcmp(pass, "alpha") == 0;
    ck_assert_msg(by_exporter || without.nodes > with.nodes || without.flops > with.flops,
                  "%s does nothing for an export", pass);
  }
}
END_TEST

static int sizes_of_case(case_run *c, const char *path) {
  return bucket_file(c, path, c->user);
}

/* A plan of a range gives each size the graph and the bits that a plan for it alone gives. Most sizes of most
 * models have one. BS_TEST_BIG: more sizes. */
START_TEST(sizes_share_a_plan) {
  static const char *const files[] = {"lower.txt", "near.txt",    "passes.txt",
                                      "nodes.txt", "counted.txt", "models.txt"};
  static const int64_t few[] = {6, 5, 9, 33, 0}, more[] = {6, 5, 7, 8, 9, 12, 16, 15, 33, 40, 64, 0};
  bucket_count count = {.sizes = getenv("BS_TEST_BIG") != NULL ? more : few};
  const case_run all = {.context = context, .backend = "cpu", .file = sizes_of_case, .user = &count};
  run_cases(files[_i], all, MODELS);
  ck_assert_uint_gt(count.served, _i < 5 ? count.alone : 10); /* exports have fixed sizes inside */
}
END_TEST

/* Which passes said why they left a node. */
static unsigned said;

static void note_pass(void *user, const char *text) {
  (void)user;
  for (const char *line = text; *line != '\0'; line += strcspn(line, "\n") + 1) {
    const char *pass = strchr(line, '\t') + 1;
    const size_t n = strcspn(pass, "\t");
    ck_assert_msg(n == 0 || pass[n + 1] != '\n', "no reason: %.80s", line);
    for (uint32_t i = 0; n > 0 && bs_graph_pass_name(i) != NULL; ++i)
      if (strlen(bs_graph_pass_name(i)) == n && strncmp(bs_graph_pass_name(i), pass, n) == 0) said |= 1u << i;
  }
}

static int reasons_of(case_run *c, bs_session *session) {
  bs_error err = BS_ERROR_INIT;
  const int32_t rc = bs_session_text(session, BS_REPORT_MISSES, 0, note_pass, NULL, &err);
  if (rc != BS_OK) snprintf(c->why, sizeof c->why, "%s: %s", err.id, err.message);
  return rc == BS_OK;
}

/* Every pass says of some node what kept it; dce leaves none that it looks for. */
START_TEST(passes_give_reasons) {
  static const char *const files[] = {"near.txt", "lower.txt", "passes.txt", "models.txt"};
  said = 0;
  for (int i = 0; i < TEST_COUNT(files); ++i) run_file_also(files[i], "ref", NULL, MODELS, reasons_of);
  for (uint32_t i = 0; bs_graph_pass_name(i) != NULL; ++i)
    ck_assert_msg(said >> i & 1u || strcmp(bs_graph_pass_name(i), "dce") == 0, "%s gives no reason",
                  bs_graph_pass_name(i));
}
END_TEST

int main(void) {
  const test_case rows[] = {{cases_of_our_own, TEST_COUNT(modes)},
                            {near_patterns, TEST_COUNT(modes)},
                            {counted_rows, TEST_COUNT(modes)},
                            {signals, TEST_COUNT(modes)},
                            {found_by_the_fuzzer, TEST_COUNT(modes)},
                            {small_node_tests, TEST_COUNT(modes)},
                            {exported_models, TEST_COUNT(modes)},
                            {exports_without_a_pass},
                            {sizes_share_a_plan, 6},
                            {passes_give_reasons},
                            {right_cases_are_as_written, 2 * TEST_COUNT(modes) + 2},
                            {0}};
  return run_tests("lower_cases", rows, (test_setup){open_all, close_all, 120});
}
