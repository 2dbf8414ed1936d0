/* SPDX-License-Identifier: MIT
 *
 * comm.h - a wrapped communicator: shared parts of comm.c, hang.c and exchange.c. */
#ifndef BS_WRAP_COMM_H
#define BS_WRAP_COMM_H

#include <pthread.h>

#include "wrap.h"

/* The state that wrap returns. */
typedef struct wrap_comm_state {
  const wrap_plugin *plugin;
  const bs_comm *inner;
  void *inner_state;
  wrap_plan plan;
} wrap_comm_state;

typedef struct wrap_world {
  const wrap_comm_state *w;
  void *inner;
  uint32_t size;
  uint32_t failed; /* this and the next members: under lock */
  uint32_t fail_rank;
  char why[240];
  pthread_mutex_t lock;
  pthread_cond_t wake;
  wrap_calls *calls; /* [size], each its rank's */
} wrap_world;

typedef struct wrap_end {
  wrap_world *world;
  void *inner;
  wrap_calls *calls;
  void *nowhere;         /* hang.c: the group in which a hanging rank waits; NULL: none */
  uint32_t owns_nowhere; /* its end of the world; those of groups use it */
  uint32_t me, n;        /* in the group */
} wrap_end;

static inline const bs_host *wrap_host(const wrap_comm_state *w) {
  return w->plugin->host;
}
static inline int32_t wrap_no_memory(const wrap_plugin *plugin, bs_error *err) {
  return bs_fail(err, BS_NO_MEMORY, plugin->memory_id, "no memory to wrap a communicator");
}

/* hang.c: opens a group of all ranks for wrap_hang, before the program's groups; NULL: not needed. inner: of
 * the world. */
int32_t wrap_open_nowhere(const wrap_world *world, void *inner, void **out_group, bs_error *err);
/* hang.c: the call does not return before the world fails; `op` is its name in texts. */
int32_t wrap_hang(const wrap_end *end, const bs_coll_call *call, uint32_t op, bs_error *err);
void wrap_delay(const wrap_end *end, uint32_t op, int64_t ns);
/* Asleep until then by the monotonic clock. 1: the world failed meanwhile. */
int wrap_sleep_until(wrap_world *world, int64_t ns);
int64_t wrap_now_ns(void);

/* exchange.c: one call of the op "exchange", however many messages it has. */
int32_t wrap_exchange(void *end, const bs_coll_call *const *calls, uint32_t ncalls, bs_error *err);
/* Dense rows of a send's data; the caller frees them. */
int32_t wrap_dense_copy(const wrap_plugin *plugin, const bs_coll_call *call, void **out_copy, bs_error *err);

#endif
