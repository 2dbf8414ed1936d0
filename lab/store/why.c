/* SPDX-License-Identifier: MIT
 * why.c - see why.h. */
#include "lab/store/why.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lab/error.h"
#include "lab/json.h"
#include "lab/store/env.h"
#include "lab/store/folder.h"
#include "lab/store/fsck.h"
#include "lab/store/summary.h"

typedef struct story {
  json_t *rows;
  int fd;
  const char *run;
} story;

__attribute__((format(printf, 3, 4))) static void add(story *s, const char *what, const char *format, ...) {
  char text[1024];
  va_list ap;
  va_start(ap, format);
  vsnprintf(text, sizeof text, format, ap);
  va_end(ap);
  json_array_append_new(s->rows, json_pack("{s:s, s:o}", "what", what, "answer", bs_env_string(text)));
}

/* ---- last work of the ranks ------------------------------------------------------------------------ */

/* Names the ranks that have entered fewer collectives than another: the others wait for them. */
static void add_behind(story *s, const json_t *ranks) {
  json_int_t most = -1, behind = 0;
  char list[200] = "";
  size_t used = 0, i;
  json_t *rank;
  json_array_foreach((json_t *)(uintptr_t)ranks, i, rank) {
    const json_int_t seq = json_integer_value(json_object_get(rank, "seq"));
    if (seq > most) most = seq;
  }
  json_array_foreach((json_t *)(uintptr_t)ranks, i, rank) {
    if (json_integer_value(json_object_get(rank, "seq")) == most || used + 16 > sizeof list) continue;
    used += (size_t)snprintf(list + used, sizeof list - used, "%s%lld", behind++ > 0 ? ", " : "",
                             (long long)json_integer_value(json_object_get(rank, "rank")));
  }
  if (behind > 0)
    add(s, "behind", "rank%s %s had not entered collective %lld: look there first", behind > 1 ? "s" : "",
        list, (long long)most);
}

static void add_ranks(story *s) {
  json_t *ranks = NULL, *rank;
  bs_error why = BS_ERROR_INIT;
  size_t i;
  if (bs_flight_read(s->fd, &ranks, &why) != BS_OK) {
    add(s, "ranks", "%s", why.message);
    return;
  }
  json_array_foreach(ranks, i, rank) {
    char what[32];
    snprintf(what, sizeof what, "rank %lld", (long long)json_integer_value(json_object_get(rank, "rank")));
    add(s, what, "collective %lld, %s of %lld %s at %s%s: %s; entered %.3f s before the last of all ranks",
        (long long)json_integer_value(json_object_get(rank, "seq")), bs_get_text(rank, "op"),
        (long long)json_integer_value(json_object_get(rank, "count")), bs_get_text(rank, "dtype"),
        strlen(bs_get_text(rank, "site")) == 8 ? "..." : "", bs_get_text(rank, "site"),
        bs_get_text(rank, "state"), json_number_value(json_object_get(rank, "since_s")));
  }
  add_behind(s, ranks);
  json_decref(ranks);
}

/* The last line of log.txt. */
static void add_log(story *s) {
  char *text = NULL;
  size_t size;
  if (bs_folder_file(s->fd, "log.txt", &text, &size, NULL) != BS_OK || text == NULL) return;
  while (size > 0 && text[size - 1] == '\n') text[--size] = '\0';
  const char *last = strrchr(text, '\n');
  if (size > 0) add(s, "log", "%.900s", last != NULL ? last + 1 : text);
  free(text);
}

/* ---- committed runs -------------------------------------------------------------------------------- */

/* Gates that are data (they have a stage) describe the measurement, in numbers, and the advice. */
static void add_gates(story *s, const json_t *record) {
  const json_t *gates = json_object_get(record, "gates");
  for (size_t i = 0; i < json_array_size(gates); i++) {
    const json_t *gate = json_array_get(gates, i);
    const char *state = bs_get_text(gate, "state"), *name = bs_gate_name(gate);
    const int failed = strcmp(state, "fail") == 0;
    if (!failed && strcmp(state, "unknown") != 0) continue;
    if (json_object_get(gate, "stage") != NULL)
      add(s, "gate", "%s: %s at stage %s: %.400s%s%.400s", name, failed ? "failed" : "UNKNOWN",
          bs_get_text(gate, "stage"), bs_get_text(gate, "text"), failed ? "; " : "",
          failed ? bs_get_text(gate, "says") : "");
    else
      add(s, "gate", "%s: %s, %.3g with limit %.3g; %s", name, state,
          json_number_value(json_object_get(gate, "value")),
          json_number_value(json_object_get(gate, "limit")), bs_get_text(gate, "text"));
  }
}

static void add_comparisons(story *s, const json_t *record) {
  const json_t *list = json_object_get(record, "comparisons");
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *c = json_array_get(list, i);
    if (strcmp(bs_get_text(c, "word"), "UNCLEAR") == 0)
      add(s, "unclear", "against %s: %s; %s", bs_get_text(c, "against"), bs_get_text(c, "cause"),
          bs_get_text(c, "next"));
  }
}

/* Describes a kernel: its name and problem, and its time compared with its bound and with the best other
 * one. */
static void add_kernel(story *s, const json_t *record) {
  const json_t *p = json_object_get(record, "performance"), *c = json_object_get(record, "comparison"),
               *ratio = json_object_get(c, "ratio");
  add(s, "kernel", "%s on %s", bs_get_text(record, "method"), bs_get_text(record, "problem"));
  if (!json_is_number(json_object_get(p, "p50_us"))) return;
  char pairs[300] = "";
  if (json_is_number(ratio))
    snprintf(pairs, sizeof pairs, "; speedup %.3g [%.3g, %.3g] against %.160s: %.20s",
             json_number_value(ratio), json_number_value(json_object_get(c, "ratio_low")),
             json_number_value(json_object_get(c, "ratio_high")), bs_get_text(c, "against"),
             bs_get_text(c, "word"));
  add(s, "time", "p50 %.4g us a call, %.3g %% of the bound (%s)%s",
      json_number_value(json_object_get(p, "p50_us")), json_number_value(json_object_get(p, "bound_percent")),
      bs_get_text(p, "binding"), pairs);
  if (bs_get_text(c, "next")[0] != '\0') add(s, "unclear", "%s", bs_get_text(c, "next"));
}

static void add_record(story *s, const json_t *record) {
  const json_t *error = json_object_get(record, "error"), *rank = json_object_get(error, "rank");
  if (error != NULL) {
    char at[32] = "";
    if (json_is_integer(rank)) snprintf(at, sizeof at, "rank %lld: ", (long long)json_integer_value(rank));
    add(s, "error", "%s[%s] %s", at, bs_get_text(error, "id"), bs_get_text(error, "message"));
  }
  if (bs_record_is_kernel(record)) add_kernel(s, record);
  const char *word = bs_record_word(record);
  if (word != NULL) add(s, bs_record_is_kernel(record) ? "result" : "numbers", "%s", word);
  add_gates(s, record);
  add_comparisons(s, record);
}

static void tell_committed(story *s, const bs_folder_run *run) {
  const char *status = bs_get_text(run->done, "status");
  json_t *record;
  size_t i;
  const int ok = strcmp(status, "ok") == 0, failed = strcmp(status, "failed") == 0;
  add(s, "status", "committed: %s", status);
  json_array_foreach(run->metrics.records, i, record) add_record(s, record);
  if (failed) add_ranks(s);
  if (!ok) add_log(s);
  const int kernel = bs_record_is_kernel(json_array_get(run->metrics.records, 0));
  add(s, "next", "%s",
      ok       ? "nothing: it counts; bsrun runs show prints it"
      : kernel ? "bsrun runs show RUN has all numbers and gates; the command in RUN/env.json repeats it"
      : failed ? "bsrun run --config RUN/config.yaml repeats it; a longer --timeout tells a slow rank from a "
                 "hung one"
               : "bsrun run --config RUN/config.yaml --to DIR writes the tensors of the gates that did not "
                 "pass");
}

/* ---- runs that do not count ------------------------------------------------------------------------ */

static void tell_open(story *s) {
  char *text = NULL;
  size_t size;
  int lock;
  const enum bs_lock_state state = bs_folder_lock(s->fd, &lock);
  if (lock >= 0) close(lock);
  if (state == BS_LOCK_HELD) {
    add(s, "status", "at work: a process holds its lock");
  } else if (bs_folder_file(s->fd, "INTERRUPTED", &text, &size, NULL) == BS_OK && text != NULL) {
    add(s, "status", "interrupted by %.*s: it does not count", (int)strcspn(text, "\n"), text);
  } else {
    add(s, "status",
        "killed: its process ended without a word (SIGKILL, power, out of memory); it does not count");
  }
  free(text);
  add_ranks(s);
  add_log(s);
  add(s, "next", "%s",
      state == BS_LOCK_HELD
          ? "wait, or look again: what the ranks do is as of now"
          : "bsrun run --config RUN/config.yaml runs it again; bsrun sweep --resume a sweep");
}

int32_t bs_run_why(const char *root, const char *run, json_t **out_rows, bs_error *err) {
  bs_folder_run content = {0};
  bs_error why = BS_ERROR_INIT;
  story s = {.rows = json_array(), .run = run};
  *out_rows = NULL;
  int32_t rc = s.rows == NULL ? bs_no_memory(err, "rows") : bs_folder_open(root, run, &s.fd, err);
  if (rc != BS_OK) {
    json_decref(s.rows);
    return rc;
  }
  rc = bs_folder_read(s.fd, run, &content, &why);
  if (rc == BS_OK) {
    tell_committed(&s, &content);
  } else if (rc == BS_NOT_FOUND) {
    tell_open(&s);
    rc = BS_OK;
  } else if (rc == BS_CORRUPT) {
    add(&s, "status", "damaged: %s", why.message);
    add(&s, "next", "%s", why.hint);
    rc = BS_OK;
  } else if (err != NULL) {
    *err = why;
  }
  bs_folder_run_free(&content);
  close(s.fd);
  if (rc == BS_OK) *out_rows = json_incref(s.rows);
  json_decref(s.rows);
  return rc;
}
