/* SPDX-License-Identifier: MIT
 * capture.c - see apart.h: a capture is the list of plans that ran, with their arguments. A replay runs them
 * again, and ends with an error where the rank's scratch is no longer the one that was captured. */
#include "tests/graph/apart/apart.h"

enum { ARGS = 16 };

typedef struct item {
  void *plan;
  const bs_op_impl *op;
  const bs_exec *exec;
  bs_tensor tensors[ARGS];
  int given[ARGS]; /* 0: absent */
  uint32_t nargs;
  void *scratch;
} item;

struct bs_capture {
  item *items;
  uint32_t n, room;
  int32_t spoilt; /* 1: something that cannot be captured */
};

static void capture_free(void *opaque, bs_capture *c) {
  const bs_host *host = ((const apart_device *)opaque)->state->ref.host;
  if (c == NULL) return;
  host->free(host->ctx, c->items);
  host->free(host->ctx, c);
}

static int32_t capture_begin(void *opaque, bs_error *err) {
  apart_device *d = opaque;
  const bs_host *host = d->state->ref.host;
  d->captures = host->alloc(host->ctx, sizeof *d->captures, 64);
  if (d->captures == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-APART-MEMORY", "no memory for a capture");
  *d->captures = (bs_capture){0};
  return BS_OK;
}

static int32_t capture_end(void *opaque, bs_capture **out_capture, bs_error *err) {
  apart_device *d = opaque;
  bs_capture *c = d->captures;
  d->captures = NULL;
  if (!c->spoilt && d->state->keeps) {
    *out_capture = c;
    return BS_OK;
  }
  capture_free(d, c);
  return bs_fail(err, BS_UNSUPPORTED, "BS-APART-CAPTURE", "a capture is refused as asked");
}

static int grow(const apart_device *d, bs_capture *c) {
  const bs_host *host = d->state->ref.host;
  if (c->n < c->room) return 1;
  const uint32_t room = c->room > 0 ? 2 * c->room : 64;
  item *items = host->alloc(host->ctx, room * sizeof *items, 64);
  if (items == NULL) return 0;
  if (c->n > 0) memcpy(items, c->items, c->n * sizeof *items);
  host->free(host->ctx, c->items);
  c->items = items;
  c->room = room;
  return 1;
}

int32_t apart_capture(apart_device *d, const bs_op_impl *op, const bs_exec *exec, void *plan,
                      bs_tensor *const *args, uint32_t nargs, bs_error *err) {
  bs_capture *c = d->captures;
  if (nargs > ARGS || !grow(d, c)) {
    c->spoilt = 1;
    return bs_fail(err, BS_NO_MEMORY, "BS-APART-MEMORY", "no memory for a capture");
  }
  item *i = &c->items[c->n++];
  *i = (item){.plan = plan, .op = op, .exec = exec, .nargs = nargs, .scratch = exec->scratch(exec->ctx)};
  for (uint32_t k = 0; k < nargs; k++) {
    i->given[k] = args[k] != NULL;
    if (i->given[k]) i->tensors[k] = *args[k];
  }
  return BS_OK;
}

static int32_t capture_run(void *opaque, bs_capture *c, bs_error *err) {
  const apart_device *d = opaque;
  int32_t rc = BS_OK;
  apart_open(d->state);
  for (uint32_t i = 0; i < c->n && rc == BS_OK; i++) {
    item *at = &c->items[i];
    bs_tensor *args[ARGS];
    for (uint32_t k = 0; k < at->nargs; k++) args[k] = at->given[k] ? &at->tensors[k] : NULL;
    rc = at->scratch != at->exec->scratch(at->exec->ctx)
             ? bs_fail(err, BS_INTERNAL, "BS-APART-STALE", "scratch has moved since it was captured")
             : at->op->run(at->plan, args, at->nargs, NULL, err);
  }
  apart_close(d->state);
  return rc;
}

void apart_capture_slots(bs_backend *backend) {
  backend->capture_begin = capture_begin;
  backend->capture_end = capture_end;
  backend->capture_run = capture_run;
  backend->capture_free = capture_free;
}
