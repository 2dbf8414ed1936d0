/* SPDX-License-Identifier: MIT
 *
 * report.c - how a spawn failed: the ranks that are root causes, all of them, and no echoes. A rank echoes
 * when its error is BS_ABORTED, or tells of another rank that died.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "tp/spawn.h"

static int is_echo(uint32_t rank, int32_t code, const bs_error *e) {
  return code == BS_ABORTED || (code == BS_RANK_FAILED && e->rank >= 0 && e->rank != (int32_t)rank);
}

void tp_seat_fill(tp_seat *seat, uint32_t rank, int32_t code, const bs_error *error) {
  if (is_echo(rank, code, error)) return;
  bs_error *kept = malloc(sizeof *kept);
  if (kept == NULL) return;
  *kept = *error;
  if (error->code == BS_OK || error->message[0] == '\0')
    bs_error_set(kept, code, "BS-RANK-FAILED", "ended with status %s and no message", bs_status_name(code));
  kept->code = code;
  kept->rank = (int32_t)rank;
  atomic_store(&seat->error, kept);
}

static int same_cause(const bs_error *a, const bs_error *b) {
  return a != NULL && b != NULL && a->code == b->code && strcmp(a->id, b->id) == 0 &&
         strcmp(a->message, b->message) == 0;
}

typedef struct text {
  char data[sizeof((bs_error *)0)->message];
  size_t used;
} text;

static void add(text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add(text *t, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  const int n =
      t->used < sizeof t->data ? vsnprintf(t->data + t->used, sizeof t->data - t->used, fmt, ap) : 0;
  va_end(ap);
  if (n > 0) t->used += (size_t)n;
}

/* "rank 1: text", "ranks 0-3: text": a run of neighbours with one cause. Returns the first rank after it. */
static uint32_t add_run(text *t, bs_error *const *errors, uint32_t n, uint32_t first, const bs_error *lead) {
  const bs_error *e = errors[first];
  uint32_t end = first + 1;
  while (end < n && same_cause(e, errors[end])) ++end;
  add(t, end - first > 1 ? "ranks %u-%u: " : "rank %u: ", first, end - 1);
  if (strcmp(e->id, lead->id) != 0) add(t, "[%s] ", e->id);
  add(t, "%s", e->message);
  return end;
}

/* The spawn failed outside of the rank functions, or in another process. */
static int32_t tell_world(const bs_error *world_error, const bs_tp_spawn_options *options,
                          bs_error *out_error) {
  if (options->failed != NULL && world_error->rank >= 0)
    options->failed(options->failed_user, (uint32_t)world_error->rank, world_error);
  if (out_error != NULL) *out_error = *world_error;
  return world_error->code;
}

static int32_t tell_roots(bs_error *const *errors, uint32_t n, const bs_tp_spawn_options *options,
                          bs_error *out_error) {
  const bs_error *lead = NULL;
  uint32_t roots = 0;
  for (uint32_t r = 0; r < n; ++r) {
    if (errors[r] == NULL) continue;
    if (lead == NULL) lead = errors[r];
    ++roots;
    if (options->failed != NULL) options->failed(options->failed_user, r, errors[r]);
  }
  if (out_error != NULL) *out_error = *lead;
  if (n == 1 || out_error == NULL) return lead->code;
  text t = {.used = 0};
  add(&t, "%u of %u ranks failed: ", roots, n);
  for (uint32_t r = 0, told = 0; r < n;) {
    if (errors[r] == NULL) {
      ++r;
      continue;
    }
    if (told++ > 0) add(&t, "; ");
    r = add_run(&t, errors, n, r, lead);
  }
  memcpy(out_error->message, t.data, sizeof out_error->message);
  out_error->message[sizeof out_error->message - 1] = '\0';
  return lead->code;
}

int32_t tp_report(const tp_seat *seats, uint32_t n, const bs_error *world_error,
                  const bs_tp_spawn_options *options, bs_error *out_error) {
  bs_error **errors = calloc(n, sizeof *errors); /* as they are now */
  uint32_t roots = 0;
  for (uint32_t r = 0; errors != NULL && r < n; ++r) {
    errors[r] = atomic_load(&seats[r].error);
    roots += errors[r] != NULL;
  }
  const int32_t rc =
      roots > 0 ? tell_roots(errors, n, options, out_error) : tell_world(world_error, options, out_error);
  free(errors);
  return rc;
}
