/* SPDX-License-Identifier: MIT
 * test_bsrun_cli.c - the command line: help and version, hostile words with their ids and nearest spellings,
 * and random words, which never end in a signal. */
#include <jansson.h>
#include <sys/resource.h>

#include "tests/bsrun/spawn.h"
#include "tests/run_tests.h"
#include "tests/slow.h"

static const char *dir;
static void setup(void) {
  dir = scratch_dir();
}
static void teardown(void) {
  remove_dir(dir);
}

#define W(...) \
  { __VA_ARGS__, NULL }
static const struct {
  const char *argv[10];
  int code;
  const char *id, *text;
} hostile[] = {
    {W("--method"), 2, "BS-USE-VALUE", "--method"},
    {W("--method", "--phase", "0"), 2, "BS-USE-VALUE", "--method"},
    {W("-P"), 2, "BS-USE-VALUE", "--world-size"},
    {W("--methd", "dense"), 2, "BS-USE-OPTION", "--method"},
    {W("--help=yes"), 2, "BS-USE-VALUE", "takes no value"},
    {W("-x"), 2, "BS-USE-OPTION", "-x"},
    {W("tune", "matmul n16k16b4", "--zzzzzzz", "off"), 2, "BS-USE-OPTION", "bsrun help tune lists"},
    {W("bench", "sdpa", "small", "-Z"), 2, "BS-USE-OPTION", "bsrun help bench lists"},
    {W("--zzzzzzzz"), 2, "BS-USE-OPTION", "bsrun --help lists"},
    {W("check", "--dump", "x", "--features", "99999999999999999999"), 2, "BS-USE-NUMBER", "--features"},
    {W("check", "--dump", "x", "--features", "4k"), 4, "BS-CHECK-OPEN", "x"},
    {W("config", "print", "--method", "dense", "--n", "4k", "--b", "x4k"), 3, "BS-CFG-TYPE", "model.B"},
    {W("-P", "1000000000"), 2, "BS-USE-NUMBER", "65536"},
    {W("-P", "1e9"), 2, "BS-USE-NUMBER", "1e9"},
    {W("-P", "99999999999999999999"), 2, "BS-USE-NUMBER", "65536"},
    {W("-P", "-1"), 2, "BS-USE-NUMBER", "-1"},
    {W("-P", "0"), 2, "BS-USE-NUMBER", "0"},
    {W("-P", "2x"), 2, "BS-USE-NUMBER", "2x"},
    {W("-P", ""), 2, "BS-USE-NUMBER", ""},
    {W("--threads-per-rank", "5000"), 2, "BS-USE-NUMBER", "4096"},
    {W("--timeout", "nan"), 2, "BS-USE-NUMBER", "nan"},
    {W("--timeout", "-1"), 2, "BS-USE-NUMBER", "-1"},
    {W("--run-id", "../x"), 2, "BS-USE-NAME", "'/' not allowed"},
    {W("--run-id", "a\nb"), 2, "BS-USE-NAME", "0x0a"},
    {W("--run-id", ".."), 2, "BS-USE-NAME", ".."},
    {W("--run-id", ""), 2, "BS-USE-NAME", "empty"},
    {W("--run-id", "\x1b[2J"), 2, "BS-USE-NAME", "0x1b"},
    {W("--method", "a\x01z"), 2, "BS-USE-NAME", "0x01"},
    {W("--method", ""), 2, "BS-USE-EMPTY", "--method"},
    {W("--out", ""), 2, "BS-USE-EMPTY", "--out"},
    {W("--out", "a\x07"), 2, "BS-USE-NAME", "0x07"},
    {W("--quiet", "--quiet"), 2, "BS-USE-TWICE", "--quiet"},
    {W("-o", "xml"), 2, "BS-USE-FORMAT", "table"},
    {W("-o", "tabel"), 2, "BS-USE-FORMAT", "'table'"},
    {W("run", "word"), 2, "BS-USE-WORD", "word"},
    {W("explain", "nosuch"), 2, "BS-USE-CHOICE", ", ..."},
    {W("explain", "convert", "--bias"), 2, "BS-USE-OPTION", "--bias is not for convert"},
    {W("explain", "topk", "--activation", "relu"), 2, "BS-USE-OPTION", "--activation is not for topk"},
    {W("explain", "matmul_dx", "--activation", "relu"), 2, "BS-USE-OPTION", "--activation"},
    {W("explain", "take", "--residual"), 2, "BS-USE-OPTION", "--residual"},
    {W("--set", "model.dtype=int8"), 3, "BS-CFG-DTYPE", "'int8'"},
    {W("--set", "method.reduce_dtype=uint8"), 3, "BS-CFG-DTYPE", "'uint8'"},
    {W("--set", "method.reduce_dtype=xyz"), 3, "BS-CFG-DTYPE", "f8e5m2, i8"},
    {W("rnu"), 2, "BS-USE-VERB", "'run'"},
    {W("plugins", "lst"), 2, "BS-USE-VERB", "'list'"},
    {W("plugins", "list", "x"), 2, "BS-USE-WORD", "x"},
    {W("plugins", "inspect"), 2, "BS-USE-WORD", "one plugin"},
    {W("plugins", "inspect", "cpv"), 5, "BS-PLG-NONE", "'cpu'"},
    {W("plugins", "inspect", "cpu", "--atleast-version", "x"), 2, "BS-USE-NUMBER", "X.Y.Z"},
    {W("plugins", "inspect", "ref", "--atleast-version", ""), 2, "BS-USE-NUMBER", "X.Y.Z"},
    {W("plugins", "inspect", "ref", "--atleast-version", "0."), 2, "BS-USE-NUMBER", "X.Y.Z"},
    {W("plugins", "inspect", "ref", "--atleast-version", "0.0.0.0"), 2, "BS-USE-NUMBER", "X.Y.Z"},
    {W("plugins", "inspect", "ref", "--atleast-version", "99"), 5, "BS-PLG-OLD", "99"},
    {W("plugins", "why"), 2, "BS-USE-WORD", "one plugin"},
    {W("plugins", "wy", "cpu"), 2, "BS-USE-VERB", "'why'"},
    {W("config", "prnt"), 2, "BS-USE-VERB", "'print'"},
    {W("help", "rn"), 2, "BS-USE-VERB", "'run'"},
    {W("--method", "blokshock"), 3, "BS-PLG-NOTFOUND", "'blockshock'"},
    {W("--workload", "gausian"), 3, "BS-PLG-NOTFOUND", "'gaussian'"},
    {W("--backend", "cpuu"), 3, "BS-PLG-NOTFOUND", "'cpu'"},
    {W("--comm", "thread"), 3, "BS-PLG-NOTFOUND", "'threads'"},
    {W("--launch", "processes", "--comm", "threads", "-P", "2"), 3, "BS-CFG-COMM", "--launch threads"},
    {W("--sweep", "batch_sweep", "--set", "model.B=8"), 3, "BS-CFG-SWEEP", "model.B"},
    {W("--mask", "interleav", "--method", "blockshock"), 3, "BS-MASK-NAME", "'interleave'"},
    {W("--phase", "phase0_correctnes"), 3, "BS-CFG-NAME", "phase0_correctness"},
    {W("--hardware", "cpuu"), 3, "BS-CFG-NAME", "'cpu'"},
    {W("--sweep", "N_swep"), 3, "BS-CFG-NAME", "'N_sweep'"},
    {W("--config", "none.yaml"), 3, "BS-CFG", "none.yaml"},
    {W("--config", "."), 3, "BS-CFG", "."},
    {W("--set", "model.M=1"), 3, "BS-CFG-KEY", "model.N"},
    {W("--n", "64", "--set", "model={N: 32, K: 32}"), 2, "BS-USE-TWICE", "model.N is given twice"},
    {W("--dtype", "f32", "--set", "model={dtype: f16}"), 2, "BS-USE-TWICE", "model.dtype"},
    {W("--method", "dense", "--set", "method={name: row_parallel}"), 2, "BS-USE-TWICE", "method.name"},
    {W("-P", "2", "--set", "hardware={world_size: 4}"), 2, "BS-USE-TWICE", "hardware.world_size"},
    {W("--timeout", "5", "--set", "hardware={timeout_s: 6}"), 2, "BS-USE-TWICE", "hardware.timeout_s"},
    {W("--set", "phase.pairs_seconds=010"), 3, "BS-CFG-TYPE", "phase.pairs_seconds"},
    {W("--set", "phase={lr: 0x1}"), 3, "BS-CFG-TYPE", "phase.lr"},
    {W("--mask", "uneven", "--set", "mask.shares=[010, 1]"), 3, "BS-CFG-TYPE", "mask.shares"},
    {W("--mask", "uneven", "--set", "mask.shares=[\"3\", 1]"), 3, "BS-CFG-TYPE", "mask.shares"},
    {W("--timeout", "010"), 2, "BS-USE-NUMBER", "010"},
    {W("--set", "model.N"), 2, "BS-USE-SET", "model.N"},
    {W("--set", "=1"), 2, "BS-USE-SET", "key=value"},
    {W("--set", "model.N=0"), 3, "BS-CFG-RANGE", "1..1073741824"},
    {W("--set", "model.N=99999999999999999999999"), 3, "BS-CFG", "model.N"},
    {W("--set", "model.dtype=fp33"), 3, "BS-CFG-DTYPE", "fp32"},
    {W("--set", "model.dtype=uint8"), 3, "BS-CFG-DTYPE", "'uint8'"},
    {W("--set", "workload.foo=1"), 3, "BS-CFG-KEY", "workload.foo"},
    {W("--workload", "file", "--set", "workload.inputs=x.npy"), 3, "BS-CFG-KEY", "options here: "},
    {W("--phase", "3", "--set", "phase.eps=-1"), 3, "BS-CFG-RANGE", "0..1e6"},
    {W("--phase", "3", "--set", "phase.lr=1e300"), 3, "BS-CFG-RANGE", "0..1e6"},
    {W("--set", "model=&a [*a]"), 3, "BS-CFG", ""},
    {W("--set", "sweep.param=model.N"), 3, "BS-CFG-SWEEP", "sweep.values"},
    {W("--set", "sweep={param: model.Q, values: [1]}"), 3, "BS-CFG-SWEEP", "model.Q"},
    {W("--plugin", "nosuch"), 5, "BS-PLG", "nosuch"},
    {W("--plugin", "./bs_none.so"), 5, "BS-PLG", "bs_none.so"},
    {W("--method", "dense", "-P", "2", "--set", "model.N=64"), 3, "BS-METHOD-WORLD", "-P 1"},
    {W("--phase", "0", "--set", "model.N=1073741824"), 10, "BS-RUN-MEMORY", "GiB"},
    {W("--phase", "0", "--set", "model.N=1048576", "--set", "model.B=1"), 10, "BS-RUN-MEMORY", "2048.0 GiB"},
    {W("--phase", "2", "--set", "model.N=1048576", "--set", "model.B=1"), 10, "BS-RUN-MEMORY", "10240.0 GiB"},
    {W("--phase", "0", "--method", "blockshock", "-P", "2000"), 3, "BS-CFG-RANGE", "1024"},
    {W("--method", "blockshock", "-P", "129", "--launch", "processes"), 3, "BS-CFG-RANGE", "at most 128"},
};

/* What is too large is refused before anything of it is made: with 3 GiB of addresses, too. */
START_TEST(memory_is_looked_at_first) {
  struct rlimit before, most;
  if (BS_SLOW) return; /* a sanitizer needs more addresses */
  ck_assert_int_eq(getrlimit(RLIMIT_AS, &before), 0);
  most = before;
  most.rlim_cur = (rlim_t)3 << 30;
  ck_assert_int_eq(setrlimit(RLIMIT_AS, &most), 0);
  ran r = bsrun(dir, "--set", "model.N=1073741824", "--set", "model.K=64", NULL);
  setrlimit(RLIMIT_AS, &before);
  must_be(&r, 10);
  ck_assert_msg(strstr(r.err, "error[BS-RUN-MEMORY]") != NULL, "%s", r.err);
  ran_free(&r);
}
END_TEST

START_TEST(hostile_words) {
  char *argv[12] = {(char *)(uintptr_t) "bsrun"};
  for (int i = 0; hostile[_i].argv[i] != NULL; i++) argv[i + 1] = (char *)(uintptr_t)hostile[_i].argv[i];
  ran r = finish_bsrun(dir, start_bsrun(dir, argv));
  must_be(&r, hostile[_i].code);
  const char *line = strstr(r.err, "bsrun: error[");
  ck_assert_msg(line != NULL, "no error line: %s", r.err);
  ck_assert_msg(strstr(line, hostile[_i].id) == line + strlen("bsrun: error["), "%s", line);
  ck_assert_msg(strstr(line, hostile[_i].text) != NULL, "%s", line);
  ck_assert_ptr_null(strstr(line + 1, "bsrun: error[")); /* one error, one line */
  ck_assert_str_eq(r.out, "");
  for (const char *p = r.err; *p != '\0'; p++) ck_assert((unsigned char)*p >= 0x20 || *p == '\n');
  ck_assert_int_eq(result_files(dir), 0);
  ran_free(&r);
}
END_TEST

START_TEST(help_on_every_level) {
  static const char *const levels[][4] = {{"--help"},
                                          {"-h"},
                                          {"help"},
                                          {"run", "--help"},
                                          {"plugins", "--help"},
                                          {"plugins", "list", "--help"},
                                          {"plugins", "inspect", "-h"},
                                          {"plugins", "why", "--help"},
                                          {"config", "--help"},
                                          {"config", "print", "--help"},
                                          {"config", "keys", "--help"},
                                          {"version", "--help"},
                                          {"help", "help"},
                                          {"help", "run"},
                                          {"help", "plugins"},
                                          {"help", "config"}};
  for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
    ran r = bsrun(dir, levels[i][0], levels[i][1], levels[i][2], NULL);
    must_be(&r, 0);
    ck_assert_msg(strstr(r.out, "usage: bsrun") != NULL, "%s", r.out);
    ck_assert_str_eq(r.err, "");
    ran_free(&r);
  }
  ran r = bsrun(dir, "--help", NULL);
  static const char *const options[] = {"--plugin",   "--method",       "-P,",     "--phase",   "--mask",
                                        "--workload", "--hardware",     "--sweep", "--config",  "--set",
                                        "--run-id",   "--print-config", "-o,",     "--version", "--dump",
                                        "--timeout",  "--quiet",        "-v,"};
  for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
    ck_assert_msg(strstr(r.out, options[i]) != NULL, "%s is not in the help", options[i]);
  }
  ran_free(&r);
}
END_TEST

START_TEST(version_has_the_formats_of_every_verb) {
  ran r = bsrun(dir, "version", "-o", "json", NULL);
  must_be(&r, 0);
  json_t *rows = json_loads(r.out, 0, NULL);
  const json_t *row = json_array_get(rows, 0);
  ck_assert_uint_eq(json_array_size(rows), 1);
  ck_assert_ptr_nonnull(json_string_value(json_object_get(row, "bsrun")));
  ck_assert_ptr_nonnull(json_string_value(json_object_get(row, "build")));
  char abi[32];
  snprintf(abi, sizeof abi, "%u.%u", BS_ABI_MAJOR, BS_ABI_MINOR);
  ck_assert_str_eq(json_string_value(json_object_get(row, "plugin_abi")), abi);
  json_decref(rows);
  ran_free(&r);
  r = bsrun(dir, "version", "-o", "xml", NULL);
  must_be(&r, 2);
  ran_free(&r);
}
END_TEST

START_TEST(versions) {
  static const char *const ways[] = {"--version", "version"};
  for (size_t i = 0; i < 2; i++) {
    ran r = bsrun(dir, ways[i], NULL);
    must_be(&r, 0);
    ck_assert(strncmp(r.out, "bsrun ", 6) == 0 && strstr(r.out, "plugin ABI 0.") != NULL);
    ran_free(&r);
  }
}
END_TEST

START_TEST(verbs_without_a_verb) {
  ran r = bsrun(dir, "plugins", NULL);
  must_be(&r, 2);
  ran_free(&r);
  r = bsrun(dir, "config", NULL);
  must_be(&r, 2);
  ran_free(&r);
}
END_TEST

START_TEST(plugins_are_listed_and_inspected) {
  static const char *const formats[] = {"table", "md", "csv", "json", "jsonl"};
  for (size_t i = 0; i < 5; i++) {
    ran r = bsrun(dir, "plugins", "list", "-o", formats[i], NULL);
    must_be(&r, 0);
    ck_assert(strstr(r.out, "blockshock") != NULL && strstr(r.out, "threads") != NULL);
    ran_free(&r);
  }
  ran r = bsrun(dir, "plugins", "list", "--load", "-o", "json", NULL);
  must_be(&r, 0);
  json_t *rows = json_loads(r.out, JSON_REJECT_DUPLICATES, NULL);
  ck_assert_ptr_nonnull(rows);
  size_t ok = 0;
  for (size_t i = 0; i < json_array_size(rows); i++) {
    ok += strcmp(json_string_value(json_object_get(json_array_get(rows, i), "state")), "ok") == 0;
  }
  ck_assert_uint_ge(ok, 8);
  json_decref(rows);
  ran_free(&r);
  r = bsrun(dir, "plugins", "inspect", "blockshock", NULL);
  must_be(&r, 0);
  ck_assert(strstr(r.out, "method.kernel") != NULL && strstr(r.out, "blockshock.c:") != NULL);
  ran_free(&r);
  r = bsrun(dir, "plugins", "inspect", "ref", "--exists", NULL);
  must_be(&r, 0);
  ck_assert_str_eq(r.out, "");
  ran_free(&r);
  r = bsrun(dir, "plugins", "inspect", "nosuch", "--exists", NULL);
  must_be(&r, 5);
  ck_assert_str_eq(r.err, "");
  ran_free(&r);
}
END_TEST

START_TEST(keys_are_listed) {
  ran r = bsrun(dir, "config", "keys", "-o", "json", NULL);
  must_be(&r, 0);
  json_t *rows = json_loads(r.out, 0, NULL);
  ck_assert_uint_gt(json_array_size(rows), 50);
  json_decref(rows);
  ran_free(&r);
}
END_TEST

START_TEST(the_documents_table_is_the_programs) {
  ran r = bsrun(dir, "config", "keys", "-o", "md", NULL);
  must_be(&r, 0);
  char *options = strstr(r.out, " | plugin | "), docs[1024]; /* of plugins: not those of every build */
  ck_assert_msg(options != NULL && strstr(options, "\n| workload.weights |") != NULL, "%s", r.out);
  while (options[-1] != '\n') options--;
  *options = '\0';
  ck_assert_ptr_nonnull(strstr(r.out, "| model.dtype | dtype | bf16 |")); /* as a run has it */
  ck_assert_ptr_null(strstr(r.out, "tol_max_abs"));
  snprintf(docs, sizeof docs, "%s/docs", getenv("BS_TEST_SOURCE_DIR"));
  char *text = read_text(docs, "config.md");
  ck_assert_ptr_nonnull(text);
  ck_assert_msg(strstr(text, r.out) != NULL, "docs/config.md differs from `bsrun config keys -o md`");
  free(text);
  ran_free(&r);
}
END_TEST

int main(void) {
  const test_case tests[] = {{hostile_words, TEST_COUNT(hostile)},
                             {memory_is_looked_at_first},
                             {help_on_every_level},
                             {versions},
                             {version_has_the_formats_of_every_verb},
                             {verbs_without_a_verb},
                             {plugins_are_listed_and_inspected},
                             {keys_are_listed},
                             {the_documents_table_is_the_programs},
                             {0}};
  return run_tests("bsrun_cli", tests, (test_setup){setup, teardown});
}
