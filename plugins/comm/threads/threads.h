/* SPDX-License-Identifier: MIT
 *
 * threads.h - internals of the communicator "threads": ranks are threads of one process and read each other's
 * memory. plugin.c fills the vtable; world.c opens worlds, ranks and groups; wait.c is the synchronisation;
 * reduce.c, move.c and exchange.c are the collectives; kernels.c is the arithmetic.
 *
 * A collective has an op number, the same on every rank of a group. A rank writes header[op & 1] of its slot,
 * publishes its position and waits for the positions of the others. Two headers are enough: before it writes
 * op + 2 a rank has finished op + 1, and all others entered op + 1 only after they were done with op. Small
 * messages are inside the slot and need one meeting. Large ones are read in place, so they end with a second
 * meeting. A verdict (go or stop, one compare-and-swap) makes all ranks agree whether memory is touched if an
 * abort occurs in between: no rank leaves while a peer reads its data. */
#ifndef BS_THREADS_H
#define BS_THREADS_H

#include <pthread.h>
#include <stdatomic.h>

#include "../common/caller.h"
#include "../common/exchange.h"
#include "../common/meet.h"
#include "../common/report.h"
#include "blockshock/plugin.h"

#define THR_MAX_RANKS 1024u
#define THR_INLINE_MAX 16384u /* most bytes of a message that travels inside the slot */
#define THR_SMALL 32u         /* values up to this size are in the header's own cache line */
#define THR_CHUNK 1024u       /* elements that are reduced at a time: 8 KiB of stack each buffer */
#define THR_CACHE 256u        /* call sites remembered by a rank */

/* The header of one rank for one op. The flag, the key and a small message share the first cache line, which
 * is all that a small op moves. */
typedef struct thr_header {
  _Alignas(64) comm_flag flag;
  uint64_t key;     /* fingerprint mixed with kind, rows and count */
  const char *text; /* interned description for messages, lives as long as the world */
  unsigned char small[THR_SMALL];
  const void *in;
  void *out;
  int64_t in_stride;
  int64_t out_stride;
  const uint64_t *counts;
  const uint64_t *recv_counts;
} thr_header;

typedef struct thr_slot {
  thr_header header[2];
} thr_slot;

/* One direction between two ranks: a rendezvous. Positions of message k: 4k empty, 4k+1 posted, 4k+2
 * taken, 4k+3 withdrawn, 4k+4 done. */
typedef struct thr_channel {
  thr_header header; /* the sender's */
  uint32_t send_k;   /* sender's thread only */
  uint32_t recv_k;   /* receiver's thread only */
  const char *recv_text;
  int32_t status; /* receiver's verdict, read by the sender after done */
} thr_channel;

typedef struct thr_world thr_world;
typedef struct thr_group thr_group;

/* A rank that exchanges with several others sleeps here: `bell` moves when one of its channels has
 * changed. */
typedef struct thr_inbox {
  _Alignas(64) comm_flag flag; /* its bell and waiters */
} thr_inbox;

struct thr_group {
  thr_world *world;
  thr_group *parent; /* NULL: the whole world */
  thr_group *next;
  uint32_t n;
  uint32_t refs;         /* members that have it open; under world->lock */
  uint32_t *ranks;       /* world rank of each member */
  unsigned char *joined; /* members that have opened it; under world->lock */
  thr_slot *slots;
  unsigned char *inline_data;            /* two of THR_INLINE_MAX a member */
  _Atomic(thr_channel *) *rows;          /* [n], each n channels; made on first use */
  thr_inbox *inboxes;                    /* [n] */
  _Alignas(64) _Atomic uint64_t verdict; /* 2 op + stop */
};

/* An interned call site. */
typedef struct thr_site thr_site;
struct thr_site {
  thr_site *next;
  uint64_t key;
  char text[192];
};

/* The last call of a rank, for messages. */
typedef struct thr_trace {
  _Alignas(64) _Atomic(const char *) last;
} thr_trace;

/* Kernels chosen for this CPU. acc, src: n elements; dst may not overlap src unless equal. */
typedef struct thr_kernels {
  void (*add_f32)(float *acc, const float *src, uint64_t n);
  void (*add2_f32)(float *out, const float *a, const float *b, uint64_t n);
  /* The sums to two places; either may be a or b. */
  void (*add2_both_f32)(float *out, float *also, const float *a, const float *b, uint64_t n);
  void (*add_f64)(double *acc, const double *src, uint64_t n);
  void (*widen_bf16)(float *dst, const uint16_t *src, uint64_t n);
  void (*narrow_bf16)(uint16_t *dst, const float *src, uint64_t n);
  void (*round_bf16)(float *values, uint64_t n);
  void (*widen_f16)(float *dst, const uint16_t *src, uint64_t n);  /* NULL: by the host */
  void (*narrow_f16)(uint16_t *dst, const float *src, uint64_t n); /* NULL: by the host */
  /* Like memcpy, but always with vectors. Some libraries copy long runs by one instruction, which is slow for
   * lines in another core's cache. */
  void (*copy)(void *dst, const void *src, uint64_t bytes);
} thr_kernels;

_Static_assert(offsetof(thr_header, in) == 64, "a small op moves one cache line");

/* Plugin-wide: the host and its parameters. */
typedef struct thr_state {
  const bs_host *host;
  bs_plugin_self *self;
} thr_state;

struct thr_world {
  const bs_host *host;
  thr_kernels kernels;
  uint32_t size;
  uint32_t inline_max; /* bytes: larger messages are read in place */
  int64_t spin_ns;     /* busy wait before sleeping; 0 when ranks outnumber cores */
  thr_group *all;
  thr_group *groups; /* sub-groups; under lock */
  thr_trace *trace;  /* [size] */
  pthread_mutex_t lock;
  thr_site *sites[64]; /* under lock */
  uint32_t nsites;
  /* The first failure. `failed` turns 1 after the record is complete; then the record never changes. */
  _Alignas(64) _Atomic uint32_t failed;
  int32_t fail_code;
  uint32_t fail_rank;
  const thr_group *fail_group; /* of a deadline: the meeting that did not happen */
  uint32_t fail_pos;
  char fail_text[480];
};

/* A rank's end of a group. */
typedef struct thr_comm {
  thr_world *world;
  thr_group *group;
  uint32_t me;
  uint32_t pos; /* last published */
  uint64_t op;
  comm_caller caller;
  comm_transfers transfers;
  struct {
    uint64_t key;
    const char *text;
  } cache[THR_CACHE];
} thr_comm;

/* A wait's clock: starts when the wait becomes slow. */
typedef struct thr_timer {
  int64_t timeout_ns;
  int64_t deadline; /* 0: not started */
  int32_t keep;     /* 1: an abort does not end the wait (a peer is reading this rank's memory) */
} thr_timer;

/* world.c */
int32_t thr_world_open(void *state, const bs_world_request *request, void **out_world, bs_error *err);
void thr_world_close(void *world);
int32_t thr_rank_open(void *world, uint32_t rank, void **out_comm, bs_error *err);
void thr_rank_close(void *comm);
int32_t thr_group_open(void *comm, const uint32_t *ranks, uint32_t nranks, void **out_comm, bs_error *err);
void thr_abort(void *world, uint32_t rank, int32_t code, const char *why);
const char *thr_site_text(thr_comm *comm, uint64_t key, const bs_coll_call *call);

/* wait.c */
int32_t thr_wait(thr_comm *comm, comm_flag *flag, uint32_t want, thr_timer *timer);
/* Fill my header and the trace; fails when the world has failed. */
int32_t thr_begin(thr_comm *comm, const bs_coll_call *call, thr_header **out_header, bs_error *err);
/* Publishes, waits for all and compares keys. in_place: memory will be read in place (verdict). */
int32_t thr_meet(thr_comm *comm, const bs_coll_call *call, int in_place, bs_error *err);
/* The second meeting: peers are done with my memory. */
int32_t thr_part(thr_comm *comm, const bs_coll_call *call, bs_error *err);
int32_t thr_fail_aborted(const thr_comm *comm, const char *text, bs_error *err);
int32_t thr_fail_mismatch(thr_comm *comm, uint32_t rank_a, const char *a, uint32_t rank_b, const char *b,
                          bs_error *err);
void thr_fail_world(thr_world *world, int32_t code, uint32_t rank, const thr_group *group, uint32_t pos,
                    const char *text);
/* Header of member r for the current op. */
static inline const thr_header *thr_peer(const thr_comm *comm, uint32_t r) {
  return &comm->group->slots[r].header[comm->op & 1u];
}
/* Publishes the address of my data for peers that read them in place. */
static inline void thr_set_data(thr_header *h, const bs_coll_call *call) {
  h->in = call->in;
  h->out = call->out;
  h->in_stride = call->in_stride;
  h->out_stride = call->out_stride;
  h->counts = call->counts;
  h->recv_counts = call->recv_counts;
}
/* The position of member r in the current op. */
static inline comm_flag *thr_flag_of(const thr_comm *comm, uint32_t r) {
  return &comm->group->slots[r].header[comm->op & 1u].flag;
}
/* The place of a small message of member r. */
static inline unsigned char *thr_inline(const thr_comm *comm, uint32_t r, uint64_t bytes) {
  uint64_t parity = comm->op & 1u;
  if (bytes <= THR_SMALL) return comm->group->slots[r].header[parity].small;
  return comm->group->inline_data + (2u * (uint64_t)r + parity) * THR_INLINE_MAX;
}

/* reduce.c, move.c, exchange.c: slots of bs_comm. */
int32_t thr_all_reduce(void *comm, const bs_coll_call *call, bs_error *err);
int32_t thr_reduce_scatter(void *comm, const bs_coll_call *call, bs_error *err);
int32_t thr_all_gather(void *comm, const bs_coll_call *call, bs_error *err);
int32_t thr_broadcast(void *comm, const bs_coll_call *call, bs_error *err);
int32_t thr_all_to_all(void *comm, const bs_coll_call *call, bs_error *err);
int32_t thr_barrier(void *comm, const bs_coll_call *call, bs_error *err);
int32_t thr_message(void *comm, const bs_coll_call *call, bs_error *err); /* send and recv */
int32_t thr_exchange(void *comm, const bs_coll_call *const *calls, uint32_t ncalls, bs_error *err);

/* kernels.c */
void thr_kernels_choose(thr_kernels *out_kernels);
/* dst[i] = src[i] rounded to dst_dtype; of one dtype a copy. */
int32_t thr_convert(const thr_world *world, uint32_t dst_dtype, void *dst, uint32_t src_dtype,
                    const void *src, uint64_t n);
/* rows x n elements between strided matrices, converted. */
int32_t thr_copy_rows(const thr_world *world, uint32_t dst_dtype, void *dst, int64_t dst_stride,
                      uint32_t src_dtype, const void *src, int64_t src_stride, uint64_t rows, uint64_t n);
/* Room for THR_CHUNK elements of any dtype. */
typedef union thr_buffer {
  float f32[THR_CHUNK];
  double f64[THR_CHUNK];
  int64_t i64[THR_CHUNK];
  int32_t i32[THR_CHUNK];
  int8_t i8[THR_CHUNK];
  uint8_t u8[THR_CHUNK];
} thr_buffer;
/* A running reduction of up to THR_CHUNK elements: values are in `work` (f32 for floats of 32 bits and less,
 * else the reduce dtype itself), each rounded to reduce_dtype. */
typedef struct thr_reduction {
  const thr_world *world;
  uint32_t in;
  uint32_t out;
  uint32_t reduce;
  uint32_t op;
  uint32_t work;
  thr_buffer acc;
  thr_buffer tmp;
} thr_reduction;
int32_t thr_reduction_init(thr_reduction *red, const thr_world *world, const bs_coll_call *call,
                           bs_error *err);
int32_t thr_reduction_first(thr_reduction *red, const void *src, uint64_t n);
int32_t thr_reduction_add(thr_reduction *red, const void *src, uint64_t n);
int32_t thr_reduction_store(thr_reduction *red, void *dst, uint64_t n);
/* Refuses a call that no communicator can reduce before any rank waits: all ranks see the same call. */
int32_t thr_check_reduction(const thr_world *world, const bs_coll_call *call, bs_error *err);
/* The sum of f32 in f32: the hot case, which the kernels do without a thr_reduction. */
static inline int thr_sums_f32(const bs_coll_call *call) {
  return call->dtype_in == BS_F32 && call->dtype_out == BS_F32 && call->reduce_dtype == BS_F32 &&
         call->reduce_op == BS_REDUCE_SUM;
}

#endif
