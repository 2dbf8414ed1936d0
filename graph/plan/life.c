/* SPDX-License-Identifier: MIT
 * life.c - blocks of values: a block is a value with all that lies in its memory (views, parts of a join,
 * what overwrites it exactly). It lives from the first write to the last read of any of them. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/size.h"
#include "graph/plan/plan.h"

/* The members that lie in the memory of a value which has separate memory. */
typedef struct root {
  uint32_t def, last; /* the first write, the last read of all members */
  uint32_t latest;    /* the latest write of all members */
  uint32_t head;      /* the member that came last; GPLAN_NONE at the end of the list */
  uint32_t kept;      /* a member is read after the last step */
} root;

typedef struct making {
  const gplan_value *values;
  uint32_t n, n_steps;
  root *roots;    /* n: used where of[i] == i */
  uint32_t *of;   /* n: the value in whose memory it lies at last */
  uint32_t *next; /* n: the next member of the same root */
  uint64_t *at;   /* n: bytes from the beginning of the root */
} making;

static int32_t check_value(const gplan_value *values, uint32_t n, uint32_t n_steps, uint32_t i,
                           bs_error *err) {
  const gplan_value *v = &values[i];
  if (v->flags & GPLAN_OUTSIDE && v->inside == GPLAN_NONE) return BS_OK; /* it has no steps */
  if (v->def >= n_steps || v->last < v->def || v->last >= n_steps)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-PLAN-LIFE",
                        "value %" PRIu32 " is written in step %" PRIu32 " and read until step %" PRIu32
                        "; the steps are 0 to %" PRIu32,
                        i, v->def, v->last, n_steps - 1);
  if (v->n_over > GPLAN_MAX_OVER)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-PLAN-OVER",
                        "value %" PRIu32 " names %" PRIu32 " values to overwrite; at most %d", i, v->n_over,
                        GPLAN_MAX_OVER);
  for (uint32_t k = 0; k < v->n_over; k++) {
    if (v->over[k] < n && v->over[k] != i) continue;
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-PLAN-OVER",
                        "value %" PRIu32 " overwrites value %" PRIu32 ", which is none of the other %" PRIu32,
                        i, v->over[k], n - 1);
  }
  if (v->inside == GPLAN_NONE) return BS_OK;
  if (v->inside >= n || v->inside == i)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-PLAN-INSIDE",
                        "value %" PRIu32 " lies inside of value %" PRIu32
                        ", which is none of the other %" PRIu32,
                        i, v->inside, n - 1);
  uint64_t end;
  if (!bs_add_u64(v->offset, v->bytes, &end) || end > values[v->inside].bytes)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-PLAN-INSIDE",
                        "value %" PRIu32 " of %" PRIu64 " bytes at byte %" PRIu64
                        " lies outside of value %" PRIu32 " of %" PRIu64 " bytes",
                        i, v->bytes, v->offset, v->inside, values[v->inside].bytes);
  return BS_OK;
}

/* The value becomes a member of a root. */
static void join(making *m, uint32_t value, uint32_t to, uint64_t at) {
  const gplan_value *v = &m->values[value];
  root *r = &m->roots[to];
  m->of[value] = to;
  m->at[value] = at;
  m->next[value] = r->head;
  r->head = value;
  if (v->flags & GPLAN_OUTSIDE) return;
  if (v->def < r->def) r->def = v->def;
  if (v->def > r->latest) r->latest = v->def;
  if (v->last > r->last) r->last = v->last;
  r->kept |= v->flags & GPLAN_KEPT;
}

/* Follows `inside` to the end for every value. A chain longer than n goes in a circle. */
static int32_t join_insides(making *m, bs_error *err) {
  for (uint32_t i = 0; i < m->n; i++) {
    uint32_t to = i, length = 0;
    uint64_t at = 0;
    for (; m->values[to].inside != GPLAN_NONE && length <= m->n; length++) {
      at += m->values[to].offset;
      to = m->values[to].inside;
      if (m->of[to] != GPLAN_NONE && to < i) { /* known */
        at += m->at[to];
        to = m->of[to];
        break;
      }
    }
    if (length > m->n)
      return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-PLAN-INSIDE",
                          "value %" PRIu32 " lies inside of itself through other values", i);
    join(m, i, to, at);
  }
  return BS_OK;
}

/* May step v->def write the value over `over`? No other step may read those bytes later, or write them in the
 * same step or later. */
static int may_overwrite(const making *m, uint32_t value, uint32_t over) {
  const gplan_value *v = &m->values[value], *u = &m->values[over];
  const uint32_t in = m->of[over];
  const root *r = &m->roots[in];
  if (m->values[in].flags & GPLAN_OUTSIDE || u->bytes != v->bytes || in == value) return 0;
  if (r->latest < v->def && r->last <= v->def && !r->kept) return 1;
  for (uint32_t k = r->head; k != GPLAN_NONE; k = m->next[k]) {
    const gplan_value *other = &m->values[k];
    if (m->at[k] >= m->at[over] + u->bytes || m->at[over] >= m->at[k] + other->bytes) continue;
    if (other->def >= v->def || other->last > v->def || other->flags & GPLAN_KEPT) return 0;
  }
  return 1;
}

/* Moves all members of a root into another's memory. */
static void move_root(making *m, uint32_t from, uint32_t to, uint64_t at) {
  uint32_t k = m->roots[from].head;
  while (k != GPLAN_NONE) {
    const uint32_t next = m->next[k];
    join(m, k, to, at + m->at[k]);
    k = next;
  }
}

typedef struct in_time {
  uint32_t def, value;
} in_time;

static int by_def(const void *a, const void *b) {
  const in_time *x = a, *y = b;
  if (x->def != y->def) return x->def < y->def ? -1 : 1;
  return x->value < y->value ? -1 : x->value > y->value;
}

/* In the order of the steps, so that what has been overwritten is known. Only values that have memory of
 * their own can take another's. */
static int32_t overwrite(making *m, gplan_life *out, bs_error *err) {
  in_time *order = calloc((size_t)m->n + 1, sizeof *order);
  if (order == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for lifetimes");
  for (uint32_t i = 0; i < m->n; i++) order[i] = (in_time){m->values[i].def, i};
  qsort(order, m->n, sizeof *order, by_def);
  for (uint32_t i = 0; i < m->n; i++) {
    const uint32_t value = order[i].value;
    const gplan_value *v = &m->values[value];
    if (m->of[value] != value || v->flags & GPLAN_OUTSIDE) continue;
    if (m->roots[value].def != v->def) continue; /* a part of it is written before */
    for (uint32_t k = 0; k < v->n_over; k++) {
      const uint32_t over = v->over[k];
      if (!may_overwrite(m, value, over)) continue;
      out->over[value] = over;
      out->n_over++;
      move_root(m, value, m->of[over], m->at[over]);
      break;
    }
  }
  free(order);
  return BS_OK;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static void make_blocks(const making *m, const uint64_t *scratch, gplan_life *out) {
  for (uint32_t i = 0; i < m->n; i++) {
    const root *r = &m->roots[i];
    if (m->of[i] != i || m->values[i].flags & GPLAN_OUTSIDE || m->values[i].bytes == 0) continue;
    out->block[i] = out->n_blocks;
    out->blocks[out->n_blocks++] =
        (gplan_block){m->values[i].bytes, r->def, (r->kept ? m->n_steps - 1 : r->last) + 1};
  }
  for (uint32_t i = 0; i < m->n; i++) {
    out->at[i] = m->at[i];
    out->block[i] = m->values[i].bytes == 0 ? GPLAN_NONE : out->block[m->of[i]];
    out->n_inside += m->values[i].inside != GPLAN_NONE;
  }
  for (uint32_t step = 0; step < m->n_steps; step++) {
    out->scratch[step] = GPLAN_NONE;
    if (scratch == NULL || scratch[step] == 0) continue;
    out->scratch[step] = out->n_blocks;
    out->blocks[out->n_blocks++] = (gplan_block){scratch[step], step, step + 1};
    if (scratch[step] > out->scratch_bytes) out->scratch_bytes = scratch[step];
  }
}

/* The bytes that the values need when nothing is shared. `blocks` has room for all values and steps. */
static int32_t measure_unshared(const gplan_value *values, uint32_t n, const uint64_t *scratch,
                                uint32_t n_steps, gplan_block *blocks, gplan_life *out, bs_error *err) {
  uint32_t n_blocks = 0;
  for (uint32_t i = 0; i < n; i++) {
    const gplan_value *v = &values[i];
    if (v->flags & GPLAN_OUTSIDE || v->bytes == 0) continue;
    if (!bs_add_u64(out->naive, v->bytes, &out->naive))
      return bs_error_set(err, BS_OVERFLOW, "BS-PLAN-SIZE", "the sizes of the values exceed 2^64 bytes");
    blocks[n_blocks++] = (gplan_block){v->bytes, v->def, (v->flags & GPLAN_KEPT ? n_steps - 1 : v->last) + 1};
  }
  for (uint32_t step = 0; scratch != NULL && step < n_steps; step++)
    if (scratch[step] != 0) blocks[n_blocks++] = (gplan_block){scratch[step], step, step + 1};
  return gplan_bound(blocks, n_blocks, 0, &out->bound_before, NULL, err);
}

static int32_t make_life(making *m, const uint64_t *scratch, gplan_life *out, bs_error *err) {
  int32_t rc = BS_OK;
  for (uint32_t i = 0; i < m->n && rc == BS_OK; i++) {
    m->roots[i] = (root){UINT32_MAX, 0, 0, GPLAN_NONE, 0};
    m->of[i] = out->over[i] = out->block[i] = GPLAN_NONE;
    rc = check_value(m->values, m->n, m->n_steps, i, err);
  }
  if (rc == BS_OK) rc = measure_unshared(m->values, m->n, scratch, m->n_steps, out->blocks, out, err);
  if (rc == BS_OK) rc = join_insides(m, err);
  if (rc == BS_OK) rc = overwrite(m, out, err);
  if (rc == BS_OK) make_blocks(m, scratch, out);
  return rc;
}

int32_t gplan_life_make(const gplan_value *values, uint32_t n_values, const uint64_t *scratch,
                        uint32_t n_steps, gplan_life *out, bs_error *err) {
  memset(out, 0, sizeof *out);
  const size_t n = (size_t)n_values + 1, steps = (size_t)n_steps + 1;
  making m = {.values = values, .n = n_values, .n_steps = n_steps};
  m.roots = calloc(n, sizeof *m.roots);
  m.of = calloc(n, sizeof *m.of);
  m.next = calloc(n, sizeof *m.next);
  m.at = calloc(n, sizeof *m.at);
  out->n_values = n_values;
  out->n_steps = n_steps;
  out->blocks = calloc(n + steps, sizeof *out->blocks);
  out->block = calloc(n, sizeof *out->block);
  out->at = calloc(n, sizeof *out->at);
  out->over = calloc(n, sizeof *out->over);
  out->scratch = calloc(steps, sizeof *out->scratch);
  int32_t rc = BS_OK;
  if (m.roots == NULL || m.of == NULL || m.next == NULL || m.at == NULL || out->blocks == NULL ||
      out->block == NULL || out->at == NULL || out->over == NULL || out->scratch == NULL)
    rc = bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for the lifetimes of %" PRIu32 " values",
                      n_values);
  if (rc == BS_OK) rc = make_life(&m, scratch, out, err);
  free(m.roots);
  free(m.of);
  free(m.next);
  free(m.at);
  if (rc != BS_OK) gplan_life_free(out);
  return rc;
}

void gplan_life_free(gplan_life *life) {
  free(life->blocks);
  free(life->block);
  free(life->at);
  free(life->over);
  free(life->scratch);
  memset(life, 0, sizeof *life);
}
