/* SPDX-License-Identifier: MIT
 * runs_replay.c - `bsrun runs replay RUN`: a stored run's configuration is run again, as `bsrun run --config`
 * does, and the differences between both runs are printed. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bsrun/bsrun.h"
#include "bsrun/runs.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "lab/compare/replay.h"
#include "lab/store/store.h"

static const args_option replay_options[] = {
    {OPT_OUT, NULL, ARGS_STORE},
    {OPT_TRUST_CONFIG, NULL, 0},
    ARGS_TABLE,
    ARGS_HELP,
};

static const bs_field fields[] = {
    {"part", "part", BS_FIELD_FOLD, 0}, {"what", "what", 0, 0},     {"is", "replay is", 0, 0},
    {"stored", "stored", 0, 6},         {"replay", "replay", 0, 6}, {"a", "stored run", BS_FIELD_WIDE, 0},
    {"b", "new run", BS_FIELD_WIDE, 0},
};

typedef struct replayed {
  bs_stored_run stored, again;
  bs_replay_code how;
  json_t *rows;
  uint32_t unlike;
} replayed;

/* A name that no other run has: the time, to the nanosecond, and this process. */
static void new_id(char out[64]) {
  char stamp[16];
  struct timespec now;
  bs_store_stamp(stamp);
  clock_gettime(CLOCK_REALTIME, &now);
  snprintf(out, 64, "%s_replay_%09ld_%ld", stamp, now.tv_nsec, (long)getpid());
}

/* bsrun run with these words. Its results are not printed: they are compared. */
static int run_silently(int argc, char **argv) {
  fflush(stdout);
  const int kept = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3), null = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (kept < 0 || null < 0 || dup2(null, STDOUT_FILENO) < 0) {
    bs_error err = BS_ERROR_INIT;
    bs_error_set(&err, BS_IO, "BS-OUT-WRITE", "cannot set stdout aside");
    if (kept >= 0) close(kept);
    if (null >= 0) close(null);
    return bsrun_fail(&err);
  }
  bsrun_set_command_line(argc, argv);
  const int code = bsrun_verb_run(&verb_run, argc - 2, argv + 2);
  fflush(stdout);
  dup2(kept, STDOUT_FILENO);
  close(kept);
  close(null);
  return code;
}

/* Warns the reader: the author of a bundle's configuration chooses which code runs. */
static void tell_code(const bs_replay_code *c, int trusted) {
  size_t i;
  json_t *row;
  json_array_foreach(c->opens, i, row) {
    bs_text line = {0};
    bs_text_printf(&line, "replay opens a plugin file with the SHA-256 of the record: %.600s",
                   json_string_value(row));
    if (!line.failed) bsrun_note(0, line.data);
    bs_text_free(&line);
  }
  json_array_foreach(c->code, i, row) {
    bs_text line = {0};
    const char *key = json_string_value(json_object_get(row, "key"));
    bs_text_printf(&line, "the stored configuration names code or a command, which is %s: %s=%.300s%s",
                   trusted ? "run" : "left out", key, json_string_value(json_object_get(row, "value")),
                   trusted ? "" : " (--trust-config runs it)");
    if (!line.failed && (trusted || strcmp(key, "plugin") != 0)) bsrun_note(0, line.data);
    bs_text_free(&line);
  }
}

/* bsrun run with these words, and more of them. */
static int run_words(const char *const *words, size_t n, const json_t *more) {
  const size_t all = n + json_array_size(more);
  const char **argv = calloc(all + 1, sizeof *argv);
  if (argv == NULL) {
    bs_error err = BS_ERROR_INIT;
    bs_error_set(&err, BS_NO_MEMORY, "BS-MEM", "out of memory");
    return bsrun_fail(&err);
  }
  memcpy(argv, words, n * sizeof *argv);
  for (size_t i = n; i < all; i++) argv[i] = json_string_value(json_array_get(more, i - n));
  const int code = run_silently((int)all, (char **)(uintptr_t)argv);
  free(argv);
  return code;
}

/* The new run's exit code; its folder is <root>/.../id where there is one. */
static int run_again(const bs_stored_run *stored, const bs_replay_code *how, const char *root,
                     const char *id) {
  bs_text config = {0}, of = {0};
  int code;
  bs_text_printf(&config, "--config=%s/%s/config.yaml", stored->root, stored->path);
  const char *slash = strrchr(stored->path, '/');
  bs_text_printf(&of, "logging.replay_of=%s", slash != NULL ? slash + 1 : stored->path);
  if (config.failed || of.failed) {
    bs_error err = BS_ERROR_INIT;
    bs_error_set(&err, BS_NO_MEMORY, "BS-MEM", "out of memory");
    code = bsrun_fail(&err);
  } else {
    const char *words[] = {"bsrun",    "run", "-q",    config.data, "--out", root,
                           "--run-id", id,    "--set", of.data,     "--set", "logging.dump_dir=null"};
    code = run_words(words, sizeof words / sizeof words[0], how->words);
  }
  bs_text_free(&config);
  bs_text_free(&of);
  return code;
}

static int32_t open_stored(const args *a, bs_stored_run *out, bs_error *err) {
  char *root = NULL, *run = NULL;
  bs_text folder = {0};
  int32_t rc = runs_find(a, a->words[0], &root, &run, err);
  if (rc == BS_OK) {
    bs_text_printf(&folder, "%s/%s", root, run);
    rc = folder.failed ? bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory")
                       : bs_stored_open(root, folder.data, out, err);
  }
  if (rc == BS_OK) rc = bs_replay_check(out, err);
  bs_text_free(&folder);
  free(root);
  free(run);
  return rc;
}

static int32_t print(int format, const replayed *r, bs_error *err) {
  for (size_t i = 0; i < json_array_size(r->rows); i++) {
    json_t *row = json_array_get(r->rows, i);
    json_object_set_new(row, "a", json_string(r->stored.path));
    json_object_set_new(row, "b", json_string(r->again.path));
  }
  const int32_t rc = bs_report_print(stdout, format, fields, sizeof fields / sizeof fields[0], r->rows, err);
  if (rc != BS_OK || (format != BS_FORMAT_TABLE && format != BS_FORMAT_WIDE && format != BS_FORMAT_MD))
    return rc;
  bs_print(stdout, "\nstored: %s/%s\nrun: %s/%s\n", r->stored.root, r->stored.path, r->again.root,
           r->again.path);
  if (r->unlike == 0) printf("status, gates and simulated times are the same\n");
  return rc;
}

static int32_t tell_unlike(const replayed *r, bs_error *err) {
  if (r->unlike == 0) return BS_OK;
  bs_error_set(err, BS_NUMERIC, "BS-REPLAY-UNLIKE", "the replay of %.200s is another result: %u rows differ",
               r->stored.path, r->unlike);
  bs_error_hint(err, "the rows of config and env show what changed between both runs");
  return BS_NUMERIC;
}

/* *out_code: of the new run, where it is no run that can be compared, else 0. */
static int32_t replay(const args *a, replayed *r, int *out_code, bs_error *err) {
  char id[64];
  int format = 0;
  int32_t rc = bsrun_format(a, &format, err);
  if (rc == BS_OK) rc = open_stored(a, &r->stored, err);
  if (rc != BS_OK) return rc;
  new_id(id);
  const int trusted = args_has(a, "trust-config");
  rc = bs_replay_code_of(&r->stored, trusted, &r->how, err);
  if (rc != BS_OK) return rc;
  tell_code(&r->how, trusted);
  const int code = run_again(&r->stored, &r->how, runs_root(a), id);
  rc = bs_stored_open(runs_root(a), id, &r->again, err);
  if (rc != BS_OK && code != 0) { /* the run has printed the reason */
    *out_code = code;
    return BS_OK;
  }
  if (rc == BS_OK) rc = bs_replay_rows(&r->stored, &r->again, &r->rows, &r->unlike, err);
  if (rc == BS_OK) rc = print(format, r, err);
  return rc == BS_OK ? tell_unlike(r, err) : rc;
}

static int run(const args *a, bs_error *err) {
  replayed r = {.rows = NULL};
  int code = 0;
  const int32_t rc = replay(a, &r, &code, err);
  bs_stored_close(&r.stored);
  bs_stored_close(&r.again);
  bs_replay_code_free(&r.how);
  json_decref(r.rows);
  return rc == BS_OK ? code : bsrun_fail(err);
}

const bsrun_verb runs_replay_verb = {
    .name = "replay",
    .summary = "run a stored run again, and report what differs",
    .words = "RUN [options]",
    .about =
        "Runs the configuration of a stored run again, with the choices that were made then, as a new\n"
        "run whose record has the old run_id as replay_of. Then it reports what differs: configuration\n"
        "and environment, status and gates, errors and losses bit by bit, and the measured times. RUN is\n"
        "a run's folder, its run_id, or the beginning of one, and is a run of a phase. Tensors are not\n"
        "dumped again. The replay is another result when the status, a gate or a simulated time differs.\n"
        "Differences of the environment, of bits and of measured times are reported only.\n"
        "\n"
        "A stored configuration may name code of whoever wrote it. Of such code only plugin files run\n"
        "that the record lists with their SHA-256, and that lie outside of the bundle. Folders of\n"
        "plugins, plugin_trust, libraries of plugins and hardware.mpirun are left out, and stderr says\n"
        "so. --trust-config takes them all.\n",
    .examples =
        "  bsrun runs replay 20260131_120000\n"
        "  bsrun runs replay results/raw/phase0_correctness/dense/ID -o json\n",
    .exits =
        "0 the same result; 2 several runs are meant; 3 the run is of no phase; 4 there is no such run;\n"
        "5 a plugin file is not the recorded one; 6 another result; 13 the stored run is damaged; those\n"
        "of run where the new run has none\n",
    .options = replay_options,
    .exit = run,
    .min_words = 1,
    .max_words = 1,
    .takes = "runs :dir",
};
