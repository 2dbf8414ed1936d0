/* SPDX-License-Identifier: MIT
 *
 * wrap.h - internals of the plugins fault, slow and link: a communicator and a backend that pass every call
 * to the one that they wrap, and apply the plan (plan.h) at the calls that it names. comm.c and backend.c are
 * the two tables, op.c the ops of the backend, strike.c the part of both. Without a plan nothing is changed,
 * bit for bit. */
#ifndef BS_WRAP_H
#define BS_WRAP_H

#include <stdatomic.h>

#include "blockshock/plugin.h"
#include "plan.h"

/* The progress of the plan's steps, over all worlds and ranks of this process. */
typedef struct wrap_reach {
  _Atomic uint32_t used; /* a communicator or a device was opened */
  _Atomic uint32_t reached[WRAP_STEPS_MAX];
  _Atomic uint64_t
      calls[WRAP_STEPS_MAX]; /* that its rank and op fit, of the rank of one world that had most */
} wrap_reach;

struct wrap_end; /* comm.h */
typedef int32_t (*wrap_coll_fn)(void *comm, const bs_coll_call *call, bs_error *err);

typedef struct wrap_plugin {
  const bs_host *host;
  bs_plugin_self *self;
  const char *id;
  const char *memory_id; /* of the errors that say so */
  int slow;              /* only delays, and needs no do= */
  /* Instead of the plan: make the call, by `fn` of the inner communicator. NULL: the plan. */
  int32_t (*pass)(const struct wrap_end *end, const bs_coll_call *call, wrap_coll_fn fn, bs_error *err);
  wrap_reach *reach;
} wrap_plugin;

/* Calls of one rank, counted for seq=. */
typedef struct wrap_calls {
  int64_t rank;                /* -1: not known */
  uint64_t of[WRAP_OP_COUNT_]; /* by op */
  uint64_t all;
} wrap_calls;

/* The tables that plugin.c registers. */
extern const bs_comm wrap_comm_table;
extern const bs_backend wrap_backend_table;
extern const bs_op_impl wrap_op_table;

/* Reads the configured plan: BS_CONFIG with its fault. */
int32_t wrap_read_plan(const wrap_plugin *plugin, wrap_plan *out_plan, bs_error *err);
/* Counts a call, and looks it up. *out_ns: the sum of the delays; returns the other fault, NULL: none. */
const wrap_step *wrap_next(const wrap_plugin *plugin, const wrap_plan *plan, wrap_calls *calls, uint32_t op,
                           int64_t *out_ns);
/* BS_CONFIG if a step of the plan was never reached, although something ran: the user relies on the fault. */
int32_t wrap_check_reached(const wrap_plugin *plugin, bs_error *err);
/* The injected error. */
/* WRAP_KILL, WRAP_STOP: signals the whole process, which is one rank if ranks are processes. */
void wrap_signal(uint32_t what);
int32_t wrap_fail(const wrap_plugin *plugin, const wrap_calls *calls, uint32_t op, const char *site,
                  bs_error *err);
/* Warns of a fault that this call cannot have: a NaN among integers, a bit of no data. */
void wrap_warn_empty(const wrap_plugin *plugin, const wrap_calls *calls, uint32_t op, uint32_t what);
/* Changes one element in host memory. 0: the dtype has no such value. */
int wrap_change(const wrap_plugin *plugin, uint32_t what, uint32_t dtype, void *element);
/* "calls of rank 1: all_reduce 6, barrier 3" in the log, when plugins.<id>.count is on. */
void wrap_tell_counts(const wrap_plugin *plugin, const wrap_calls *calls);

#endif
