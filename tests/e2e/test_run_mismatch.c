/* SPDX-License-Identifier: MIT
 * test_run_mismatch.c - two ranks that are started alike but for one key: for every key that is active both
 * end with 9, name it and both of its values, and write nothing. A key that is new must be put in the table.
 */
#include <errno.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "launch_help.h"
#include "tests/run_tests.h"

/* What both have, then what one of them and what the other has of a key. */
typedef struct other_key {
  const char *key, *one, *other, *both[3]; /* NULL-terminated: settings */
} other_key;

#define BLOCKSHOCK "method.name=blockshock"
#define UNEVEN "mask.name=uneven"

static const other_key keys[] = {
    {"experiment.seed", "1", "2", {NULL}},
    {"model.dtype", "f32", "bf16", {NULL}},
    {"model.N", "48", "49", {NULL}},
    {"model.K", "72", "71", {NULL}},
    {"model.B", "8", "9", {NULL}},
    {"model.activation", "relu", "gelu", {NULL}},
    {"phase.name", "phase0_correctness", "phase2_backward_input", {NULL}},
    {"phase.warmup_iters", "1", "2", {NULL}},
    {"phase.timed_iters", "2", "3", {NULL}},
    {"phase.record_timings", "true", "false", {NULL}},
    {"phase.sync_mode", "sync", "none", {NULL}},
    {"phase.pairs_min", "5", "6", {NULL}},
    {"phase.pairs_max", "60", "61", {NULL}},
    {"phase.pairs_seconds", "1", "2", {NULL}},
    {"phase.dense_arm", "true", "false", {NULL}},
    {"phase.cold", "true", "false", {NULL}},
    {"phase.integer_gate", "true", "false", {NULL}},
    {"phase.fault_gate", "true", "false", {NULL}},
    {"phase.reference_features", "16", "17", {NULL}},
    {"phase.optimizer", "sgd", "adamw", {"phase.name=phase3_train_step", NULL}},
    {"phase.lr", "0.01", "0.02", {"phase.name=phase3_train_step", NULL}},
    {"phase.momentum", "0", "0.5", {"phase.name=phase3_train_step", NULL}},
    {"phase.beta1", "0.9", "0.8", {NULL}},
    {"phase.beta2", "0.99", "0.98", {NULL}},
    {"phase.eps", "1e-8", "1e-7", {NULL}},
    {"phase.weight_decay", "0", "0.1", {NULL}},
    {"phase.remask", "1", "2", {BLOCKSHOCK, "mask.name=magnitude", NULL}},
    {"method.name", "row_parallel", "column_parallel", {NULL}},
    {"method.bias", "true", "false", {NULL}},
    {"method.reduce_dtype", "float32", "bf16", {NULL}},
    {"method.accumulate", "default", "f32", {NULL}},
    {"method.x_placement", "replicated", "split", {NULL}},
    {"method.y_placement", "replicated", "tokens", {NULL}},
    {"method.recompress_each_step", "true", "false", {BLOCKSHOCK, "mask.name=magnitude", NULL}},
    {"method.lr", "0.01", "0.02", {NULL}},
    {"method.overlap", "none", "chunks:2", {NULL}},
    {"method.overlap_axis", "features", "tokens", {"method.overlap=2", NULL}},
    {"method.repro", "R1", "R2", {NULL}},
    {"method.mixed", "8", "9", {NULL}},
    {"method.mixed_dtype", "f8e4m3", "f8e5m2", {"method.mixed=8", NULL}},
    {"method.mixed_scales", "row", "block", {"method.mixed=8", "method.mixed_dtype=f8e4m3", NULL}},
    {"method.kernel", "auto", "sparse24", {BLOCKSHOCK, NULL}},
    {"mask.name", "contiguous", "interleave", {BLOCKSHOCK, NULL}},
    {"mask.pattern_a", "1100", "1010", {BLOCKSHOCK, NULL}},
    {"mask.pattern", "1100", "1010", {BLOCKSHOCK, NULL}},
    {"mask.shares", "[1, 2]", "[2, 1]", {BLOCKSHOCK, UNEVEN, NULL}},
    {"mask.speeds", "[1, 2]", "[1, 3]", {BLOCKSHOCK, UNEVEN, NULL}},
    {"mask.importance", "weights", "workload", {BLOCKSHOCK, "mask.name=importance", NULL}},
    {"mask.seed", "1", "2", {BLOCKSHOCK, "mask.name=random_2of4", NULL}},
    {"mask.use", "auto", "always", {BLOCKSHOCK, NULL}},
    {"workload.name", "gaussian", "integer", {NULL}},
    {"workload.type", "gaussian", "integer", {NULL}},
    {"workload.seed", "1", "2", {NULL}},
    {"hardware.backend", "cpu", "ref", {NULL}},
    {"hardware.threads_per_rank", "1", "2", {NULL}},
    {"hardware.algorithm", "native", "\"\"", {NULL}},
    {"hardware.bind", "true", "false", {NULL}},
    {"hardware.graph", "true", "false", {NULL}},
    {"tune.choices", "[]", "[\"matmul@cpu/packed\"]", {NULL}},
    {"tune.measure", "true", "false", {NULL}},
    {"tune.min_work", "1000", "1001", {NULL}},
    {"tune.seconds", "1", "2", {NULL}},
    {"tune.margin", "0.02", "0.03", {NULL}},
    {"plugins.cpu.isa", "auto", "portable", {NULL}},
};
enum {
  KEYS = sizeof keys / sizeof keys[0],
  BATCH = 10
}; /* pairs of ranks at a time: they wait more than they work */

/* Active keys that need not be alike, or whose ranks never meet. */
static const char *const others[] = {
    "hardware.world_size", /* test_run_torch: another world */
    "hardware.topology",   /* of simulated worlds */
    "hardware.device",     /* of simulated worlds */
    "hardware.comm",       /* they meet where it says */
    "mask.pattern_b",      /* nothing but the other half of pattern_a */
    "hardware.launch",     "hardware.mpirun",    "hardware.launcher",
    "hardware.timeout_s", /* the shorter deadline may be over before they have met */
    "logging.out_dir",     "logging.auto_group", "logging.run_group",
    "logging.dump_dir",    "logging.replay_of",  "auto.methods",
    "auto.masks",          "auto.kernels",       "auto.slices",
    "auto.placements",     "auto.overlap",       "auto.reduce_dtypes",
    "auto.measure",        "auto.seconds", /* test_run_torch: one that chooses */
    "sweep.param",         "sweep.values",       "plugin",
    "plugin_dirs",         "plugin_trust"};

static void start_rank(const other_key *k, const char *in, int r, pid_t *out_pid) {
  char rank[8], set[160], sub[96], port[32];
  const char *args[64] = {run_env("BS_TEST_BSRUN"),
                          "--set",
                          "phase.name=phase0_correctness",
                          "--timeout",
                          "20",
                          "--launch",
                          "processes"};
  static const char *const small[] = {SMALL_RUN, "--set", "method.name=row_parallel"};
  size_t n = 7;
  for (size_t i = 0; i < sizeof small / sizeof small[0]; i++) args[n++] = small[i];
  for (size_t i = 0; i < 3 && k->both[i] != NULL; i++) args[n++] = "--set", args[n++] = k->both[i];
  snprintf(set, sizeof set, "%s=%s", k->key, r == 0 ? k->one : k->other);
  args[n++] = "--set", args[n++] = set, args[n] = NULL;
  snprintf(rank, sizeof rank, "%d", r);
  snprintf(port, sizeof port, "%d%02d", (int)getpid(), (int)(k - keys)); /* a name: nothing listens on it */
  snprintf(sub, sizeof sub, "%.64s/%d", in, r);
  const char *const env[][2] = {{"RANK", rank},
                                {"LOCAL_RANK", rank},
                                {"WORLD_SIZE", "2"},
                                {"LOCAL_WORLD_SIZE", "2"},
                                {"MASTER_ADDR", "127.0.0.1"},
                                {"MASTER_PORT", port}};
  for (size_t i = 0; i < sizeof env / sizeof env[0]; i++) setenv(env[i][0], env[i][1], 1);
  ck_assert(mkdir(sub, 0700) == 0 || errno == EEXIST);
  *out_pid = start(sub, args);
}

static void check_rank(const other_key *k, const char *in, int r, pid_t pid) {
  char sub[96], out[112];
  int status = 0;
  ck_assert_int_eq(waitpid(pid, &status, 0), pid);
  snprintf(sub, sizeof sub, "%.64s/%d", in, r);
  char *err = read_text(sub, "err.txt"), *said = read_text(sub, "out.txt");
  ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 9, "%s, rank %d: ended with %d: %s", k->key, r,
                WEXITSTATUS(status), err);
  /* rank 1 says it, rank 0 says that rank 1 has; a mask has one name, by patterns too */
  const char *key = strncmp(k->key, "mask.pattern", 12) == 0 ? "mask.name" : k->key;
  ck_assert_msg(strstr(err, "[BS-RANK-CONFIG]") != NULL && strstr(err, key) != NULL, "%s, rank %d: %s",
                k->key, r, err);
  ck_assert_msg(said[0] == '\0', "%s, rank %d: printed %s", k->key, r, said);
  snprintf(out, sizeof out, "%s/out", sub);
  if (run_exists(sub, "out"))
    ck_assert_msg(run_count_files(out, NULL) == 0, "%s, rank %d: wrote files", k->key, r);
  free(err);
  free(said);
}

START_TEST(test_keys) {
  const int first = _i * BATCH, end = first + BATCH < KEYS ? first + BATCH : KEYS;
  char folders[BATCH][64];
  pid_t pids[BATCH][2];
  for (int i = first; i < end; i++) {
    snprintf(folders[i - first], sizeof folders[0], "%.50s/%d", dir, i);
    ck_assert_int_eq(mkdir(folders[i - first], 0700), 0);
    for (int r = 0; r < 2; r++) start_rank(&keys[i], folders[i - first], r, &pids[i - first][r]);
  }
  for (int i = first; i < end; i++) {
    for (int r = 0; r < 2; r++) check_rank(&keys[i], folders[i - first], r, pids[i - first][r]);
  }
  ck_assert_uint_eq(shared_files(), 0);
}
END_TEST

static int is_known(const char *key) {
  int known = 0;
  for (size_t i = 0; i < KEYS; i++) known |= strcmp(keys[i].key, key) == 0;
  for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) known |= strcmp(others[i], key) == 0;
  return known;
}

START_TEST(test_all_keys) {
  const char *const args[] = {"config", "keys", "-o", "jsonl", NULL};
  ran r;
  run_bsrun(&r, dir, NULL, args);
  run_expect(&r, 0, "config keys");
  json_t *rows = run_rows(r.out);
  size_t active = 0;
  for (size_t i = 0; i < json_array_size(rows); i++) {
    const json_t *row = json_array_get(rows, i);
    if (strcmp(run_str(row, "effect"), "active") != 0) continue;
    active++;
    ck_assert_msg(is_known(run_str(row, "key")), "%s: what if it differs between ranks?",
                  run_str(row, "key"));
  }
  ck_assert_uint_gt(active, 60);
  json_decref(rows);
  ran_free(&r);
}
END_TEST

int main(void) {
  const test_case tests[] = {{test_keys, (KEYS + BATCH - 1) / BATCH}, {test_all_keys}, {0}};
  return run_tests("mismatch", tests, (test_setup){dir_make, dir_remove, .timeout = 60});
}
