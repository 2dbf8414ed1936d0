/* SPDX-License-Identifier: MIT
 * replay.c - see replay.h. */
#include "lab/compare/replay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/error.h"
#include "lab/json.h"
#include "lab/store/folder.h"

/* ---- may it be repeated? ------------------------------------------------------------------------ */

int32_t bs_replay_check(const bs_stored_run *run, bs_error *err) {
  const json_t *record = json_array_get(run->records, 0);
  const char *phase = bs_get_text(record, "phase"), *wanted = bs_get_text(record, "config");
  if (phase[0] == '\0' || strcmp(bs_get_text(run->config, "phase.name"), phase) != 0) {
    bs_error_set(err, BS_UNSUPPORTED, "BS-REPLAY-KIND", "%.200s is no run of a phase, it is of '%.60s'",
                 run->path, phase);
    bs_error_hint(err, "`bsrun runs show RUN -o json` has its command under argv");
    return BS_UNSUPPORTED;
  }
  char *text = NULL;
  size_t size = 0;
  int fd = -1;
  int32_t rc = bs_folder_open(run->root, run->path, &fd, err);
  if (rc == BS_OK) rc = bs_folder_file(fd, "config.yaml", &text, &size, err);
  if (fd >= 0) close(fd);
  if (rc == BS_OK && (text == NULL || (wanted[0] != '\0' && strcmp(text, wanted) != 0))) {
    rc = bs_error_set(err, BS_CORRUPT, "BS-REPLAY-CONFIG", "config.yaml of %.200s %s", run->path,
                      text == NULL ? "is missing" : "is not what the run's record says");
    bs_error_hint(err, "bsrun runs fsck --repair writes it anew from the record");
  }
  free(text);
  return rc;
}

/* ---- rows --------------------------------------------------------------------------------------- */

typedef struct replay {
  json_t *rows;
  uint32_t unlike;
  int bad; /* out of memory */
} replay;

static void add(replay *r, const char *part, const char *what, const char *is, const json_t *a,
                const json_t *b) {
  json_t *row = json_pack("{s:s,s:s,s:s}", "part", part, "what", what, "is", is);
  r->bad |= json_object_set_new(row, "stored", a != NULL ? json_deep_copy(a) : json_null());
  r->bad |= json_object_set_new(row, "replay", b != NULL ? json_deep_copy(b) : json_null());
  r->bad |= json_array_append_new(r->rows, row);
}

static void add_differences(replay *r, const bs_stored_run *a, const bs_stored_run *b) {
  json_t *all = bs_stored_differences(a, b), *one;
  size_t i;
  r->bad |= all == NULL;
  json_array_foreach(all, i, one) {
    const char *what = bs_get_text(one, "what");
    const int env = strncmp(what, "env.", 4) == 0;
    add(r, env ? "env" : "config", what + (env ? 4 : strlen("config.")), "differs", json_object_get(one, "a"),
        json_object_get(one, "b"));
  }
  json_decref(all);
}

/* The gate of the same place in the other list; NULL: that list has another gate there, or none. */
static const json_t *same_gate(const json_t *gate, const json_t *others, size_t i) {
  const json_t *other = json_array_get(others, i);
  return strcmp(bs_get_text(gate, "name"), bs_get_text(other, "name")) == 0 ? other : NULL;
}

static void add_gates(replay *r, const json_t *x, const json_t *y) {
  const json_t *a = json_object_get(x, "gates"), *b = json_object_get(y, "gates"), *gate;
  const uint32_t before = r->unlike;
  const size_t n = json_array_size(a), m = json_array_size(b);
  for (size_t i = 0; i < n; i++) {
    gate = json_array_get(a, i);
    const json_t *state = json_object_get(gate, "state"),
                 *other = json_object_get(same_gate(gate, b, i), "state");
    if (other != NULL && json_equal(state, other)) continue;
    r->unlike++;
    add(r, "verdict", bs_get_text(gate, "name"), "differs", state, other);
  }
  for (size_t i = 0; i < m; i++) {
    gate = json_array_get(b, i);
    if (same_gate(gate, a, i) != NULL) continue;
    r->unlike++;
    add(r, "verdict", bs_get_text(gate, "name"), "differs", NULL, json_object_get(gate, "state"));
  }
  if (r->unlike != before || n == 0) return;
  json_t *count = json_integer((json_int_t)n);
  add(r, "verdict", "gates", "same", count, count);
  json_decref(count);
}

/* Fields of a record that another run of it should have too. */
static const struct {
  const char *part, *key;
  int judged; /* the replay is another result without it */
} facts[] = {
    {"verdict", "status", 1},
    {"verdict", "passed", 1},
    {"verdict", "error", 0},
    {"numbers", "relative_error", 0},
    {"numbers", "max_abs_error", 0},
    {"numbers", "mean_abs_error", 0},
    {"numbers", "half_error", 0},
    {"numbers", "mixed_error", 0},
    {"numbers", "loss_value", 0},
    {"numbers", "losses", 0},
    {"numbers", "dx", 0},
    {"numbers", "dw", 0},
    {"numbers", "db", 0},
    {"numbers", "weights", 0},
    {"config", "inputs", 0},
    {"config", "algorithms", 0},
    {"numbers", "flops_per_forward", 0},
    {"numbers", "wire_bytes_per_forward", 0},
    {"numbers", "collectives_per_forward", 0},
};

static void add_facts(replay *r, const json_t *x, const json_t *y) {
  for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++) {
    const json_t *a = json_object_get(x, facts[i].key), *b = json_object_get(y, facts[i].key);
    if (a == NULL && b == NULL) continue;
    const int same = a != NULL && b != NULL && json_equal(a, b);
    r->unlike += (uint32_t)(!same && facts[i].judged);
    add(r, facts[i].part, facts[i].key, same ? "same" : "differs", a, b);
  }
}

/* Compares all that a simulated machine reports on the run, without the name of the trace file. */
static void add_simulated(replay *r, const json_t *x, const json_t *y) {
  json_t *a = json_deep_copy(json_object_get(x, "simulated")),
         *b = json_deep_copy(json_object_get(y, "simulated"));
  if (a != NULL || b != NULL) {
    json_object_del(a, "trace");
    json_object_del(b, "trace");
    const int same = a != NULL && b != NULL && json_equal(a, b);
    r->unlike += (uint32_t)!same;
    add(r, "time", "simulated us", same ? "same" : "differs", json_object_get(a, "us"),
        json_object_get(b, "us"));
  }
  json_decref(a);
  json_decref(b);
}

/* "arm (forward): speedup 1.02 [0.98, 1.05]". */
static void add_time(replay *r, const json_t *row) {
  char what[200];
  if (strcmp(bs_get_text(row, "word"), "MISSING") == 0)
    snprintf(what, sizeof what, "%.60s ms (%.40s): %.60s", bs_get_text(row, "arm"), bs_get_text(row, "phase"),
             bs_get_text(row, "cause"));
  else
    snprintf(what, sizeof what, "%.60s ms (%.40s): speedup %.4g [%.4g, %.4g]", bs_get_text(row, "arm"),
             bs_get_text(row, "phase"), json_number_value(json_object_get(row, "speedup")),
             json_number_value(json_object_get(row, "low")), json_number_value(json_object_get(row, "high")));
  add(r, "time", what, bs_get_text(row, "word"), json_object_get(row, "a_ms"), json_object_get(row, "b_ms"));
}

/* Compares times if both runs are alike; otherwise the row has the reason. */
static int32_t add_times(replay *r, const bs_stored_run *a, const bs_stored_run *b, bs_error *err) {
  bs_error why = BS_ERROR_INIT;
  json_t *rows = NULL, *row;
  size_t i;
  if (json_array_size(a->samples) == 0 || json_array_size(b->samples) == 0) return BS_OK;
  if (bs_stored_alike(a, b, &why) != BS_OK) {
    add(r, "time", why.message, "not compared", NULL, NULL);
    return BS_OK;
  }
  int32_t rc = bs_stored_rows(a, b, &rows, err);
  if (rc == BS_NOT_FOUND) rc = BS_OK; /* no arm of both */
  json_array_foreach(rows, i, row) add_time(r, row);
  json_decref(rows);
  return rc;
}

int32_t bs_replay_rows(const bs_stored_run *a, const bs_stored_run *b, json_t **out_rows,
                       uint32_t *out_unlike, bs_error *err) {
  const json_t *x = json_array_get(a->records, 0), *y = json_array_get(b->records, 0);
  replay r = {.rows = json_array()};
  add_differences(&r, a, b);
  add_gates(&r, x, y);
  add_facts(&r, x, y);
  add_simulated(&r, x, y);
  int32_t rc = add_times(&r, a, b, err);
  if (rc == BS_OK && r.bad) rc = bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  if (rc != BS_OK) json_decref(r.rows);
  *out_rows = rc == BS_OK ? r.rows : NULL;
  *out_unlike = r.unlike;
  return rc;
}
