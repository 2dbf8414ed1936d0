/* SPDX-License-Identifier: MIT
 * list.c - lists the cases. A clean run of every world counts the calls of each rank; each useful combination
 * of rank, op, call and fault is a case. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/op/schema.h"
#include "lab/error.h"
#include "lab/torture/torture.h"

const char *const bs_torture_fault_names[BS_TORTURE_FAULTS] = {"err", "hang",     "delay", "late", "flip",
                                                               "nan", "truncate", "kill",  "stop"};
const char *const bs_torture_kind_names[] = {"comm", "method", "backend"};

enum { MAX_OPS = 48, MAX_CALLS = 512 };

/* "calls of rank R: op=n op=n": one rank's. */
typedef struct tally {
  uint32_t rank, n;
  char ops[MAX_OPS][40];
  uint64_t calls[MAX_OPS];
} tally;

void bs_torture_plan_text(const bs_torture *t, const bs_torture_case *c, char *out, size_t size) {
  static const char *const what[BS_TORTURE_FAULTS] = {"err", "hang",     "delay", "delay", "flip",
                                                      "nan", "truncate", "kill",  "stop"};
  char ms[32] = "";
  out[0] = '\0';
  if (c->fault == BS_TORTURE_NONE) return;
  if (c->fault == BS_TORTURE_DELAY) snprintf(ms, sizeof ms, ",ms=%.0f", t->deadline * 200.0);
  /* With MPI a message has 0.3 s more to arrive (docs/launch.md). */
  if (c->fault == BS_TORTURE_LATE)
    snprintf(ms, sizeof ms, ",ms=%.0f",
             t->deadline * 1600.0 + (c->subject->launch == BS_TORTURE_MPI ? 500.0 : 0.0));
  snprintf(out, size, "rank=%u,op=%s,seq=%llu,do=%s%s", c->rank, c->op, (unsigned long long)c->seq,
           what[c->fault], ms);
}

static bs_torture_case *add(bs_torture *t) {
  if (t->n_cases == t->capacity) {
    const size_t capacity = t->capacity == 0 ? 256 : 2 * t->capacity;
    bs_torture_case *grown = realloc(t->cases, capacity * sizeof *grown);
    if (grown == NULL) return NULL;
    t->cases = grown;
    t->capacity = capacity;
  }
  memset(&t->cases[t->n_cases], 0, sizeof t->cases[0]);
  return &t->cases[t->n_cases++];
}

/* Is there a result that a flip, a NaN or a lost row would show in? */
static int has_result(const char *op) {
  uint32_t kind;
  const bs_op_schema *schema = bs_op_schema_find(op);
  if (schema != NULL) return schema->outputs != 0 || schema->nargs == 0;
  if (bs_name_read(BS_NAMES_COLL, op, &kind)) return kind != BS_COLL_BARRIER;
  return strcmp(op, "exchange") == 0;
}

/* The call at which a fault may start. The first alloc of a device is in the rehearsal that chooses kernels.
 * There a rank runs alone, so no other rank would notice its hang. */
static uint64_t first_call(const bs_torture_case *like, const char *op, uint64_t calls) {
  return like->subject->kind == BS_TORTURE_BACKEND && strcmp(op, "alloc") == 0 && calls > 1 ? 1 : 0;
}

/* The first call, the one in the middle and the last; quick: the first. */
static int wanted_call(const bs_torture *t, uint64_t seq, uint64_t calls) {
  return seq == 0 || (!t->quick && (seq == calls / 2 || seq == calls - 1));
}

/* Is it requested? Without the option everything is. */
static int asked(const bs_torture *t, const char *option, const char *value) {
  int any = 0;
  for (size_t i = 0; i < t->n_given; i++) {
    if (strcmp(t->given[i].name, option) != 0) continue;
    if (strcmp(t->given[i].value, value) == 0) return 1;
    any = 1;
  }
  return !any;
}

/* Does the fault need a sleeping thread? A rank of a communicator that hangs waits for a message that never
 * comes. */
static int needs_time(const bs_torture_subject *s, int fault) {
  return fault == BS_TORTURE_DELAY || fault == BS_TORTURE_LATE ||
         (fault == BS_TORTURE_HANG && s->kind == BS_TORTURE_BACKEND);
}

static int add_op(bs_torture *t, const bs_torture_case *like, const char *op, uint64_t calls) {
  const uint64_t first = first_call(like, op, calls);
  if (!asked(t, "op", op)) return 1;
  for (uint64_t seq = first; seq < calls && seq < MAX_CALLS; seq++) {
    if (!wanted_call(t, seq - first, calls - first)) continue;
    for (int fault = 0; fault < BS_TORTURE_FAULTS; fault++) {
      const int alters = fault >= BS_TORTURE_FLIP && fault <= BS_TORTURE_TRUNCATE;
      if (fault >= BS_TORTURE_KILL && (like->subject->launch == BS_TORTURE_THREADS || like->world_size == 1))
        continue;
      if (like->subject->driven && needs_time(like->subject, fault)) continue;
      if ((alters && !has_result(op)) || !asked(t, "fault", bs_torture_fault_names[fault])) continue;
      bs_torture_case *c = add(t);
      if (c == NULL) return 0;
      *c = *like;
      c->fault = fault;
      c->seq = seq;
      snprintf(c->op, sizeof c->op, "%s", op);
    }
  }
  return 1;
}

/* The next "calls of rank R:" of a text; NULL: none. */
static const char *next_tally(const char *text, tally *out) {
  static const char lead[] = "calls of rank ";
  const char *p = text == NULL ? NULL : strstr(text, lead);
  if (p == NULL) return NULL;
  memset(out, 0, sizeof *out);
  char *end = NULL;
  out->rank = (uint32_t)strtoul(p + sizeof lead - 1, &end, 10);
  p = *end == ':' ? end + 1 : end;
  while (*p == ' ' && out->n < MAX_OPS) {
    const char *equals = strchr(++p, '=');
    if (equals == NULL || (size_t)(equals - p) >= sizeof out->ops[0]) break;
    snprintf(out->ops[out->n], sizeof out->ops[0], "%.*s", (int)(equals - p), p);
    out->calls[out->n++] = strtoull(equals + 1, &end, 10);
    p = end;
  }
  return p;
}

static uint64_t all_calls(const tally *one) {
  uint64_t all = 0;
  for (uint32_t i = 0; i < one->n; i++) all += one->calls[i];
  return all;
}

/* For each rank the tally of the world with most calls: a rehearsal before it makes few or none. */
static tally *best_tallies(const char *text, uint32_t world_size, uint32_t *out_found) {
  tally *best = calloc(world_size, sizeof *best), *one = calloc(1, sizeof *one);
  *out_found = 0;
  for (const char *p = text; best != NULL && one != NULL && (p = next_tally(p, one)) != NULL;) {
    if (one->rank >= world_size || all_calls(one) <= all_calls(&best[one->rank])) continue;
    *out_found += best[one->rank].n == 0;
    best[one->rank] = *one;
  }
  free(one);
  return best;
}

static int32_t add_tallies(bs_torture *t, const bs_torture_case *clean, const char *text, bs_error *err) {
  bs_torture_case like = *clean; /* t->cases moves while it grows */
  uint32_t found = 0;
  tally *best = best_tallies(text, like.world_size, &found);
  int good = best != NULL;
  for (uint32_t r = t->quick ? like.world_size - 1 : 0; good && r < like.world_size; r++) {
    like.rank = r;
    for (uint32_t i = 0; good && i < best[r].n; i++)
      good = add_op(t, &like, best[r].ops[i], best[r].calls[i]);
  }
  free(best);
  if (!good) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  if (found == like.world_size || like.world_size == 1) return BS_OK;
  return bs_error_set(err, BS_PLUGIN, "BS-TORTURE-COUNT",
                      "the clean run of %s %s on %u ranks reported the calls of only %u of them",
                      bs_torture_kind_names[like.subject->kind], like.subject->name, like.world_size, found);
}

/* A method that does not run on so many ranks is passed over, with a note. */
static int32_t clean_failed(const bs_torture *t, const bs_torture_case *c, bs_error *err) {
  if (c->subject->kind == BS_TORTURE_METHOD && (c->code == 3 || c->code == 2)) {
    char text[200];
    snprintf(text, sizeof text, "method %.64s is not run on %u ranks: it refuses them (exit %d)",
             c->subject->name, c->world_size, c->code);
    if (t->note != NULL) t->note(t->quiet, text);
    return BS_OK;
  }
  char *command = bs_torture_command(t, c);
  bs_error_set(err, BS_PLUGIN, "BS-TORTURE-CLEAN", "%s %s on %u ranks fails without any fault: %.300s",
               bs_torture_kind_names[c->subject->kind], c->subject->name, c->world_size, c->why);
  if (command != NULL) bs_error_hint(err, "repeat: %.220s", command);
  free(command);
  return BS_PLUGIN;
}

int32_t bs_torture_list(bs_torture *t, const bs_torture_subject *s, bs_error *err) {
  int32_t rc = BS_OK;
  for (size_t i = 0; rc == BS_OK && i < t->n_worlds; i++) {
    bs_torture_case *clean = add(t);
    if (clean == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
    clean->subject = s;
    clean->world_size = t->worlds[i];
    clean->fault = BS_TORTURE_NONE;
    rc = bs_torture_run(t, t->n_cases - 1, err);
    if (rc != BS_OK) return rc;
    const bs_torture_case done = t->cases[t->n_cases - 1];
    t->n_cases--; /* only its counts are kept */
    if (done.why[0] != '\0') {
      rc = clean_failed(t, &done, err);
      continue;
    }
    const double allowed = done.seconds * (double)t->jobs; /* it ran alone, but a case shares the machine with
                                                            * others */
    if (allowed > t->clean_seconds) t->clean_seconds = allowed;
    rc = add_tallies(t, &done, t->clean.data, err);
  }
  return rc;
}
