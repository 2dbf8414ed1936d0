/* SPDX-License-Identifier: MIT
 *
 * pending.c - the queue of a rank's pending work: started collectives, and the work that must follow them
 * (host writes, and frees of memory that they use). The work ends in the order of its starts, on the rank's
 * own thread, when a function waits for it. The rank never waits for anything but its own earlier
 * collectives, so ranks that start theirs in the same order cannot wait for each other in a circle.
 */
#include <stdlib.h>
#include <string.h>

#include "tp/state.h"

/* ---- memory of tensors ---------------------------------------------------------------------- */

/* The bytes between a tensor's lowest and highest element. 0: it has none. */
static int extent(const bs_tensor *t, uintptr_t *out_begin, uintptr_t *out_end) {
  int64_t low = 0, high = 0;
  if (t == NULL || t->data == NULL) return 0;
  for (uint32_t i = 0; i < t->rank && i < BS_MAX_DIMS; ++i) {
    if (t->dims[i] <= 0) return 0;
    const int64_t reach = (t->dims[i] - 1) * t->strides[i];
    if (reach < 0)
      low += reach;
    else
      high += reach;
  }
  const int64_t size = BS_DTYPE_BYTES(t->dtype);
  *out_begin = (uintptr_t)t->data + (uintptr_t)(low * size);
  *out_end = (uintptr_t)t->data + (uintptr_t)((high + 1) * size);
  return 1;
}

static int overlap(const bs_tensor *a, const bs_tensor *b) {
  uintptr_t a0, a1, b0, b1;
  return extent(a, &a0, &a1) && extent(b, &b0, &b1) && a0 < b1 && b0 < a1;
}

/* ---- the queue ------------------------------------------------------------------------------ */

tp_pending *tp_pending_add(tp_state *state, tp_action action) {
  tp_pending *p = state->unused;
  if (p != NULL)
    state->unused = p->next;
  else
    p = malloc(sizeof *p);
  if (p == NULL) return NULL;
  memset(p, 0, sizeof *p);
  p->action = action;
  tp_pending **at = &state->first;
  while (*at != NULL) at = &(*at)->next;
  *at = p;
  return p;
}

static int32_t finish(tp_state *state, tp_pending *p, bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  int32_t rc = BS_OK;
  switch (p->action) {
    case TP_COLLECTIVE:
      rc = api->collective_wait(p->plan, err);
      break;
    case TP_WRITE:
      rc = tp_write(state->rank, p->host, &p->out, err);
      free(p->host);
      break;
    case TP_FREE_TENSOR:
      api->tensor_free(state->rank, &p->out);
      break;
    case TP_FREE_PLAN:
      api->collective_release(p->plan);
      break;
    case TP_FREE_MAPPING:
      tp_mapping_end(p->mapping);
      break;
  }
  return rc;
}

/* Finishes everything up to and with `last` (NULL: all), also after an error: nothing may stay started. */
static int32_t finish_through(tp_state *state, const tp_pending *last, bs_error *err) {
  int32_t rc = BS_OK;
  for (int more = 1; more && state->first != NULL;) {
    tp_pending *p = state->first;
    more = p != last;
    const int32_t mine = finish(state, p, rc == BS_OK ? err : NULL);
    if (rc == BS_OK) rc = mine;
    state->first = p->next;
    p->next = state->unused;
    state->unused = p;
  }
  return rc;
}

static int32_t finish_last(tp_state *state, const tp_pending *last, bs_error *err) {
  return last != NULL ? finish_through(state, last, err) : BS_OK;
}

int32_t tp_await_all(tp_state *state, bs_error *err) {
  return finish_through(state, NULL, err);
}

int32_t tp_await_written(tp_state *state, const bs_tensor *tensor, bs_error *err) {
  const tp_pending *last = NULL;
  for (const tp_pending *p = state->first; p != NULL; p = p->next)
    if (p->action != TP_FREE_TENSOR && overlap(&p->out, tensor)) last = p;
  return finish_last(state, last, err);
}

static const tp_pending *last_user(const tp_state *state, const bs_tensor *tensor) {
  const tp_pending *last = NULL;
  for (const tp_pending *p = state->first; p != NULL; p = p->next)
    if (overlap(&p->out, tensor) || overlap(&p->in, tensor)) last = p;
  return last;
}

int tp_is_used(const tp_state *state, const bs_tensor *tensor) {
  return last_user(state, tensor) != NULL;
}

int tp_is_started(const tp_state *state, const bs_coll_plan *plan) {
  const tp_pending *p = state->first;
  while (p != NULL && p->plan != plan) p = p->next;
  return p != NULL;
}

int32_t tp_await_used(tp_state *state, const bs_tensor *tensor, bs_error *err) {
  return finish_last(state, last_user(state, tensor), err);
}

int32_t tp_await_pass(tp_state *state, const bs_tensor *reads, const bs_tensor *writes, bs_error *err) {
  int32_t rc = BS_OK;
  if (state->first == NULL) return BS_OK;
  if (reads != NULL) rc = tp_await_written(state, reads, err);
  if (rc == BS_OK && writes != NULL) rc = tp_await_used(state, writes, err);
  return rc;
}

int32_t tp_start(tp_state *state, bs_coll_plan *plan, const bs_tensor *in, const bs_tensor *out,
                 bs_error *err) {
  const tp_pending *same = NULL;
  for (const tp_pending *p = state->first; p != NULL; p = p->next)
    if (p->action == TP_COLLECTIVE && p->plan == plan) same = p;
  int32_t rc = finish_last(state, same, err);
  if (rc == BS_OK) rc = tp_await_pass(state, in, out, err);
  if (rc != BS_OK) return rc;
  tp_pending *p = tp_pending_add(state, TP_COLLECTIVE);
  if (p == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-TP-MEMORY", "no memory for pending work");
  p->plan = plan;
  if (in != NULL) p->in = *in;
  if (out != NULL) p->out = *out;
  rc = bs_rank_get_api()->collective_start(plan, in != NULL ? &p->in : NULL, out != NULL ? &p->out : NULL,
                                           NULL, err);
  if (rc == BS_OK) return BS_OK;
  tp_pending **at = &state->first; /* it never began: its place is given back */
  while (*at != p) at = &(*at)->next;
  *at = NULL;
  p->next = state->unused;
  state->unused = p;
  return rc;
}

/* ---- public --------------------------------------------------------------------------------- */

int32_t bs_tp_start(bs_rank *rank, bs_coll_plan *plan, const bs_tensor *in, bs_tensor *out, bs_error *err) {
  tp_state *state;
  const int32_t rc = tp_state_of(rank, &state, err);
  if (rc == BS_OK && plan == NULL) return tp_null("bs_tp_start", "plan", err);
  return rc == BS_OK ? tp_start(state, plan, in, out, err) : rc;
}

void bs_tp_plan_release(bs_rank *rank, bs_coll_plan *plan) {
  if (plan == NULL) return;
  tp_state *state = tp_state_active(rank);
  const tp_pending *user = NULL;
  for (const tp_pending *p = state != NULL ? state->first : NULL; p != NULL; p = p->next)
    if (p->plan == plan) user = p;
  tp_pending *later = user != NULL ? tp_pending_add(state, TP_FREE_PLAN) : NULL;
  if (later != NULL) {
    later->plan = plan;
    return;
  }
  if (user != NULL) (void)finish_through(state, user, NULL);
  bs_rank_get_api()->collective_release(plan);
}

uint32_t bs_tp_pending(const bs_rank *rank) {
  const tp_state *state = tp_state_active(rank);
  uint32_t n = 0;
  for (const tp_pending *p = state != NULL ? state->first : NULL; p != NULL; p = p->next)
    n += p->action == TP_COLLECTIVE || p->action == TP_WRITE;
  return n;
}

int32_t bs_tp_drain(bs_rank *rank, bs_error *err) {
  tp_state *state;
  const int32_t rc = tp_state_of(rank, &state, err);
  return rc == BS_OK ? tp_await_all(state, err) : rc;
}
