/* SPDX-License-Identifier: MIT
 *
 * state.h - inside of libblockshock-tp: the parallel state of a rank, and its pending work. state.c makes and
 * finds states, pending.c keeps the queue, tensor.c reads and writes tensors on the host, linear.c, mapping.c
 * and mlp.c are the layers, spawn.c and report.c run ranks and tell how they failed.
 */
#ifndef BS_TP_STATE_H
#define BS_TP_STATE_H

#include "blockshock/tp.h"
#include "core/base/error.h"

/* The action of an entry of the queue. */
typedef enum tp_action { TP_COLLECTIVE, TP_WRITE, TP_FREE_TENSOR, TP_FREE_PLAN, TP_FREE_MAPPING } tp_action;

typedef struct tp_pending tp_pending;
struct tp_pending {
  tp_pending *next;
  tp_action action;
  bs_coll_plan *plan;     /* COLLECTIVE, FREE_PLAN */
  bs_tp_mapping *mapping; /* FREE_MAPPING */
  bs_tensor in, out;      /* what it reads and writes; data NULL: nothing. FREE_TENSOR: out */
  void *host;             /* WRITE: dense data for out; owned */
};

typedef struct tp_state {
  bs_rank *rank;
  uint32_t users; /* 1 while it is active, and 1 for each object made of it */
  bs_tp_place place;
  tp_pending *first; /* the oldest; the queue */
  tp_pending *unused;
} tp_state;

/* The error of a function that was given NULL: `needed` lists the arguments that may not be NULL. */
int32_t tp_null(const char *function, const char *needed, bs_error *err);
/* Checks that struct_size of the struct `name` is at least `least`. */
int32_t tp_size(const char *name, uint32_t struct_size, size_t least, bs_error *err);
/* The active state of a rank, or BS-TP-STATE. */
int32_t tp_state_of(const bs_rank *rank, tp_state **out_state, bs_error *err);
tp_state *tp_state_active(const bs_rank *rank); /* NULL: none; rank may be NULL */
/* Releases one use: an object is gone, or the state is no longer active. The last use closes the groups. */
void tp_state_release(tp_state *state);

/* ---- pending.c ------------------------------------------------------------------------------ */

/* Takes a place at the end of the queue; NULL: no memory. */
tp_pending *tp_pending_add(tp_state *state, tp_action action);
int32_t tp_start(tp_state *state, bs_coll_plan *plan, const bs_tensor *in, const bs_tensor *out,
                 bs_error *err);
/* Wait for the work that writes the tensor; for all that uses it; for everything. Return the first error. */
int32_t tp_await_written(tp_state *state, const bs_tensor *tensor, bs_error *err);
int32_t tp_await_used(tp_state *state, const bs_tensor *tensor, bs_error *err);
int32_t tp_await_all(tp_state *state, bs_error *err);
int tp_is_used(const tp_state *state, const bs_tensor *tensor);
int tp_is_started(const tp_state *state, const bs_coll_plan *plan);
/* Waits for the tensors that a pass on the device reads and writes. NULL tensors are allowed. */
int32_t tp_await_pass(tp_state *state, const bs_tensor *reads, const bs_tensor *writes, bs_error *err);

/* tensor.c: dense host data into a [rows, cols] tensor, now. */
int32_t tp_write(bs_rank *rank, const void *host, bs_tensor *tensor, bs_error *err);

/* mapping.c: when nothing pending uses it any more. */
void tp_mapping_end(bs_tp_mapping *mapping);

/* The even share of `total` that place `index` of `n` has. */
static inline void tp_share(int64_t total, uint32_t index, uint32_t n, int64_t *out_begin,
                            int64_t *out_count) {
  const int64_t base = total / (int64_t)n, extra = total % (int64_t)n, i = (int64_t)index;
  *out_begin = i * base + (i < extra ? i : extra);
  *out_count = base + (i < extra ? 1 : 0);
}

#endif
