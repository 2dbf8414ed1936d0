/* SPDX-License-Identifier: MIT
 *
 * exchange.c - faults in messages that are in flight together, as the host sends them for a collective by an
 * algorithm.
 */
#include "comm.h"

int32_t wrap_dense_copy(const wrap_plugin *plugin, const bs_coll_call *call, void **out_copy, bs_error *err) {
  const uint64_t size = BS_DTYPE_BYTES(call->dtype_in), row = call->count * size;
  unsigned char *copy = plugin->host->alloc(plugin->host->ctx, call->rows * row + 1u, 64);
  if (copy == NULL) return wrap_no_memory(plugin, err);
  for (uint64_t r = 0; r < call->rows; ++r)
    memcpy(copy + r * row, (const unsigned char *)call->in + r * (uint64_t)call->in_stride * size, row);
  *out_copy = copy;
  return BS_OK;
}

typedef const bs_coll_call *const *call_list;

static int moves(const bs_coll_call *call) {
  return call->rows > 0 && call->count > 0;
}

/* The calls with one of them in the place of another. */
static int32_t exchange_other(const wrap_end *end, call_list calls, uint32_t n, uint32_t at,
                              const bs_coll_call *other, bs_error *err) {
  const bs_host *host = wrap_host(end->world->w);
  const bs_coll_call **list = host->alloc(host->ctx, n * sizeof *list, 64);
  if (list == NULL) return wrap_no_memory(end->world->w->plugin, err);
  for (uint32_t i = 0; i < n; ++i) list[i] = i == at ? other : calls[i];
  const int32_t rc = end->world->w->inner->exchange(end->inner, list, n, err);
  host->free(host->ctx, list);
  return rc;
}

/* The first message with elements, receives before sends; n: no such message. */
static uint32_t find_message(call_list calls, uint32_t n) {
  for (uint32_t half = 0; half < 2; ++half)
    for (uint32_t i = 0; i < n; ++i)
      if (moves(calls[i]) && (calls[i]->kind == BS_COLL_RECV) == (half == 0)) return i;
  return n;
}

/* Applies the fault `truncate`: one message is an element shorter on this rank. */
static int32_t exchange_truncated(const wrap_end *end, call_list calls, uint32_t n, uint32_t at,
                                  bs_error *err) {
  bs_coll_call c = *calls[at];
  if (c.count > 1)
    c.count--;
  else
    c.rows--;
  c.fingerprint ^= UINT64_C(0x7472756e63617465);
  return exchange_other(end, calls, n, at, &c, err);
}

/* Changes received data; for a rank that only sends, the data to send. */
static int32_t exchange_changed(const wrap_end *end, call_list calls, uint32_t n, uint32_t at, uint32_t what,
                                bs_error *err) {
  const wrap_plugin *plugin = end->world->w->plugin;
  const bs_host *host = plugin->host;
  const bs_coll_call *call = calls[at];
  int changed = 0;
  int32_t rc;
  if (call->kind == BS_COLL_RECV) {
    rc = end->world->w->inner->exchange(end->inner, calls, n, err);
    if (rc == BS_OK) changed = wrap_change(plugin, what, call->dtype_out, call->out);
  } else {
    bs_coll_call c = *call;
    void *copy = NULL;
    rc = wrap_dense_copy(plugin, call, &copy, err);
    if (rc != BS_OK) return rc;
    c.in = copy;
    c.in_stride = (int64_t)c.count;
    changed = wrap_change(plugin, what, c.dtype_in, copy);
    rc = exchange_other(end, calls, n, at, &c, err);
    host->free(host->ctx, copy);
  }
  if (rc == BS_OK && !changed) wrap_warn_empty(plugin, end->calls, WRAP_OP_EXCHANGE, what);
  return rc;
}

/* Alters a message. Has no effect on device memory, or if no message has elements. */
static int32_t exchange_altered(const wrap_end *end, call_list calls, uint32_t n, uint32_t what,
                                bs_error *err) {
  const uint32_t at = find_message(calls, n);
  if (at == n || (what != WRAP_TRUNCATE && (calls[at]->flags & BS_COLL_DEVICE) != 0)) {
    wrap_warn_empty(end->world->w->plugin, end->calls, WRAP_OP_EXCHANGE, what);
    return end->world->w->inner->exchange(end->inner, calls, n, err);
  }
  return what == WRAP_TRUNCATE ? exchange_truncated(end, calls, n, at, err)
                               : exchange_changed(end, calls, n, at, what, err);
}

/* One call of the op "exchange", however many messages it has. */
int32_t wrap_exchange(void *opaque, const bs_coll_call *const *calls, uint32_t ncalls, bs_error *err) {
  const wrap_end *end = opaque;
  const wrap_comm_state *w = end->world->w;
  int64_t ns = 0;
  const wrap_step *s = ncalls > 0 ? wrap_next(w->plugin, &w->plan, end->calls, WRAP_OP_EXCHANGE, &ns) : NULL;
  wrap_delay(end, WRAP_OP_EXCHANGE, ns);
  if (s == NULL) return w->inner->exchange(end->inner, calls, ncalls, err);
  switch (s->what) {
    case WRAP_HANG:
      return wrap_hang(end, calls[0], WRAP_OP_EXCHANGE, err);
    case WRAP_ERR:
      return wrap_fail(w->plugin, end->calls, WRAP_OP_EXCHANGE, calls[0]->site, err);
    case WRAP_KILL:
    case WRAP_STOP:
      wrap_signal(s->what);
      return w->inner->exchange(end->inner, calls, ncalls, err);
    default:
      return exchange_altered(end, calls, ncalls, s->what, err);
  }
}
