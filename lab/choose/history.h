/* SPDX-License-Identifier: MIT
 * history.h - measured points, as an append-only file of JSON lines (docs/tuning.md). Each line is judged
 * separately. It is valid if its problem, machine, implementation (with the same answer), plugin file, plugin
 * parameters, threads and cache regime are the same. Its values must also be a point of the current space:
 * new or removed values of a knob invalidate no other line. Points that failed, were wrong, were refused or
 * timed out are kept with their cause and are not tried again. */
#ifndef BS_LAB_CHOOSE_HISTORY_H
#define BS_LAB_CHOOSE_HISTORY_H
#include "lab/choose/space.h"
#include "lab/store/lines.h"

/* The key of the points: all members except `space` are compared with each line. The texts outlive the
 * history. */
typedef struct bs_history_key {
  const char *problem, *provider; /* "b2h8s512d64:bf16:full", "cpu:online" */
  const char *plugin;             /* SHA-256 of its file, or the library's build id */
  const char *how;                /* its answer to the query: "oneDNN 3.2.0 (OpenMP)" */
  const char *backend;            /* "cpu" */
  const char *regime;             /* "hot", "cold" */
  uint32_t threads;
  const json_t *machine;  /* {cpu, cores} */
  const json_t *settings; /* the parameters of plugins: {"cpu": {"isa": "avx2"}} */
  const bs_space *space;
} bs_history_key;

typedef struct bs_history {
  bs_history_key key;
  bs_lines lines;     /* entries: those that hold */
  uint64_t *point;    /* of each entry */
  uint32_t *entry;    /* [space.size] place of the valid entry + 1; 0: the point has none */
  size_t n, capacity; /* of point */
} bs_history;

/* "ok", and the kinds of failures. */
enum bs_verdict {
  BS_VERDICT_OK = 0,
  BS_VERDICT_FAILED = 1,  /* an error, or a signal ended its process */
  BS_VERDICT_WRONG = 2,   /* a gate of its numbers failed */
  BS_VERDICT_REFUSED = 3, /* a gate of its build or resources: the echo does not show its knobs, a twin */
  BS_VERDICT_LATE = 4     /* its time was up */
};
extern const char *const bs_verdict_names[5];

/* path NULL: an empty one that writes nowhere. BS_IO when a file is there and cannot be read. Close it in any
 * case. */
int32_t bs_history_open(const char *path, const bs_history_key *key, bs_history *out, bs_error *err);
void bs_history_close(bs_history *history);
/* The line of a point: that with the highest effort, then the newest. NULL: none. */
const json_t *bs_history_find(const bs_history *history, uint64_t point);
/* Its verdict is "ok": seconds of a call; else INFINITY. */
double bs_history_seconds(const json_t *entry);
/* Adds and writes a line of a point: `result` {effort, seconds, samples, echo, build, verdict, cause} (takes
 * the reference) becomes an entry. */
int32_t bs_history_add(bs_history *history, uint64_t point, json_t *result, bs_error *err);
/* Has a line all that the rest relies on? */
int bs_history_is_entry(const json_t *entry);
#endif
