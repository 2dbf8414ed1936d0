/* SPDX-License-Identifier: MIT
 *
 * shm.h - internals of the communicator "shm": ranks are processes of one machine over one shared mapping.
 * plugin.c fills the vtable; job.c finds this process's rank and makes the mapping; area.c opens worlds and
 * groups in it; wait.c is the synchronisation; collective.c and exchange.c are the collectives, with the
 * arithmetic of the communicator threads (../threads/kernels.c): the same bits.
 *
 * No rank reads the private memory of another. A rank copies its data in pieces into its own buffers of the
 * mapping, meets the others, and reads the data that it needs from their buffers, in the rounds of
 * ../common/stage.h. A process may die at any point: its buffers stay, no rank waits for its consent, and the
 * system (a pidfd) reports its death to the others. */
#ifndef BS_SHM_H
#define BS_SHM_H

#include <pthread.h>
#include <stdatomic.h>

#include "../common/caller.h"
#include "../common/exchange.h"
#include "../common/matrix.h"
#include "../threads/threads.h"
#include "blockshock/plugin.h"

#define SHM_MAX_RANKS 128u
#define SHM_MAX_AREAS 1024u
#define SHM_TEXT 160u          /* of a call site, for messages */
#define SHM_PIECE (256u << 10) /* bytes of a buffer; a multiple of every element */
#define SHM_MAIL (16u << 10)   /* bytes of a message between two ranks that travel at a time */

/* The header of one rank for one op; two of them, as in threads. */
typedef struct shm_header {
  _Alignas(64) uint64_t key; /* fingerprint mixed with kind, rows and count */
  char text[SHM_TEXT];
} shm_header;

typedef struct shm_slot {
  _Alignas(64) comm_flag flag;
  _Atomic uint32_t joined; /* opened its end */
  uint64_t config_hash;
  shm_header header[2];
  /* For messages: its bell moves when one of the rank's mailboxes has changed. It is on a cache line that the
   * rank itself does not write while others poll it. */
  _Alignas(64) comm_flag inbox;
  _Alignas(64) char exchanges[SHM_TEXT]; /* the newest exchange's first call, for messages */
} shm_slot;

/* One direction between two ranks: `posted` pieces were put in, `taken` were taken out, at most two between.
 */
typedef struct shm_mail {
  _Alignas(64) comm_flag posted; /* the sender's line */
  uint64_t key;
  _Alignas(64) comm_flag taken; /* the receiver's line */
  int32_t status;               /* its verdict on the newest message */
  _Alignas(64) char send_text[SHM_TEXT];
  char recv_text[SHM_TEXT]; /* of a mismatch */
  _Alignas(64) unsigned char data[2][SHM_MAIL];
} shm_mail;

/* The first failure of a world. `failed` turns 1 after the record is complete. */
typedef struct shm_failure {
  _Atomic uint32_t claimed;
  _Atomic uint32_t failed;
  int32_t code;
  uint32_t rank;
  uint64_t area; /* of a deadline: the meeting that did not happen */
  uint32_t pos;
  char text[480];
} shm_failure;

/* A world or a group, at an offset of the mapping: this, then slots[n], mail[n*n], buffers. */
typedef struct shm_area {
  _Alignas(64) uint32_t n;
  uint32_t serial;
  uint64_t world; /* offset of the world's area; its own in a world */
  uint64_t slots; /* offsets */
  uint64_t mail;
  uint64_t buffers;    /* [n][4][SHM_PIECE] */
  shm_failure failure; /* used in worlds */
  uint32_t ranks[SHM_MAX_RANKS];
} shm_area;

/* The places of areas; protected by the head's lock. */
typedef struct shm_entry {
  uint64_t parent; /* offset of the area that it is a group of; 0: a world */
  uint64_t at, bytes;
  uint32_t used;
  uint32_t n, joined, left;
  unsigned char member[SHM_MAX_RANKS / 8], here[SHM_MAX_RANKS / 8]; /* the members, and those that have opened
                                                                     * it */
} shm_entry;

/* One process. */
typedef struct shm_process {
  _Alignas(64) _Atomic uint32_t state; /* 0 not here yet, 1 joined, 2 has left */
  _Atomic int32_t pid;
  _Atomic uint64_t last;   /* offset of the text of its last call; 0: none */
  _Atomic uint32_t inside; /* 1: it is in that call */
} shm_process;

/* Rank 0 makes it. Every version reads the members above `lock`; another job or version reads only these. */
typedef struct shm_head {
  _Atomic uint64_t ready; /* SHM_MAGIC once rank 0 has made the rest */
  uint64_t ledger;        /* BS_ABI_LEDGER_HASH */
  uint64_t layout;        /* of the shared structures: sizes */
  uint64_t bytes;
  uint32_t world_size;
  _Atomic uint32_t refused; /* 1 + a rank that does not belong to this job, with its reason; 0: none */
  _Atomic uint32_t refused_size;
  pthread_mutex_t lock; /* robust: a process may die with it */
  shm_process process[SHM_MAX_RANKS];
  shm_entry entries[SHM_MAX_AREAS];
} shm_head;
#define SHM_MAGIC UINT64_C(0x31306d6873736201)

/* This process: the plugin's state. */
typedef struct shm_job {
  const bs_host *host;
  bs_plugin_self *self;
  uint32_t rank, size;
  int fd;           /* given by the launcher; -1: none */
  char socket[104]; /* name of the meeting point, if no launcher gave a file */
  char *base;       /* the mapping; NULL: not open */
  uint64_t bytes;   /* of it */
  uint32_t failed;  /* the ranks did not meet, and will not */
  shm_head *head;
  int watch[SHM_MAX_RANKS]; /* pidfds of the others; -1: none */
  thr_world arithmetic;     /* kernels and host of the shared arithmetic; the other members are not used */
} shm_job;

/* This process's end of a world. */
typedef struct shm_world {
  shm_job *job;
  shm_area *area;
  int64_t spin_ns;
  uint32_t inline_max; /* bytes: larger all_reduces are shared out */
} shm_world;

/* This rank's end of a world or group. */
typedef struct shm_comm {
  shm_world *world;
  shm_area *area;
  uint32_t me;
  uint32_t pos;   /* last published */
  uint32_t fresh; /* the next meeting is the first of its call */
  uint64_t op;
  comm_caller caller;
  comm_transfers transfers;
  uint32_t dead; /* rank that an exchange has found dead */
  struct {
    uint64_t key;
    uint32_t known;
    char text[SHM_TEXT];
  } cache[THR_CACHE];
} shm_comm;

/* job.c */
int32_t shm_attach(void *state, const char *const *environment, bs_attachment *out, bs_error *err);
int32_t shm_job_open(shm_job *job, int64_t timeout_ns, bs_error *err);
void shm_job_close(shm_job *job);
/* The state of a rank's process. One that left in good order may have done all its work. */
enum { SHM_LIVES = 0, SHM_DIED = 1, SHM_LEFT = 2 };
int shm_job_dead(shm_job *job, uint32_t rank);
static inline void *shm_at(const shm_job *job, uint64_t offset) {
  return job->base + offset;
}
static inline uint64_t shm_offset(const shm_job *job, const void *p) {
  return (uint64_t)((const char *)p - job->base);
}

/* area.c */
int32_t shm_world_open(void *state, const bs_world_request *request, void **out_world, bs_error *err);
void shm_world_close(void *world);
int32_t shm_rank_open(void *world, uint32_t rank, void **out_comm, bs_error *err);
void shm_rank_close(void *comm);
int32_t shm_group_open(void *comm, const uint32_t *ranks, uint32_t nranks, void **out_comm, bs_error *err);
static inline shm_slot *shm_slot_of(const shm_comm *comm, uint32_t r) {
  return (shm_slot *)shm_at(comm->world->job, comm->area->slots) + r;
}
static inline shm_header *shm_peer(const shm_comm *comm, uint32_t r) {
  return &shm_slot_of(comm, r)->header[comm->op & 1u];
}
/* Kernels and host of the arithmetic. */
static inline const thr_world *shm_math(const shm_comm *comm) {
  return &comm->world->job->arithmetic;
}
/* Buffer of member r for the round `pos`. Two would do. With four, calls of two meetings do not write
 * the buffer that the call before them has just passed between the caches. */
static inline unsigned char *shm_buffer(const shm_comm *comm, uint32_t r, uint32_t pos) {
  const uint64_t index = 4u * (uint64_t)r + (pos & 3u);
  return (unsigned char *)shm_at(comm->world->job, comm->area->buffers) + index * SHM_PIECE;
}

/* wait.c */
/* Waits until flag->pos of member `awaited` has reached `want`: BS_OK, BS_ABORTED (the world has failed),
 * BS_DEADLINE, or BS_RANK_FAILED (rank `dead` has died). */
int32_t shm_wait(shm_comm *comm, uint32_t awaited, comm_flag *flag, uint32_t want, int64_t timeout_ns,
                 uint32_t *out_dead);
int32_t shm_begin(shm_comm *comm, const bs_coll_call *call, bs_error *err);
void shm_end(const shm_comm *comm);
const char *shm_text(shm_comm *comm, const bs_coll_call *call, uint64_t key);
/* Publish and wait for all; keys are compared at the first meeting of a call. */
int32_t shm_meet(shm_comm *comm, const bs_coll_call *call, bs_error *err);
void shm_fail_world(const shm_comm *comm, int32_t code, uint32_t rank, uint32_t pos, const char *text);
int32_t shm_fail_mismatch(shm_comm *comm, uint32_t rank_a, const char *a, uint32_t rank_b, const char *b,
                          bs_error *err);
/* The error of a wait that ended with rc. */
int32_t shm_fail_dead(const shm_comm *comm, uint32_t rank, const char *text, bs_error *err);
/* The deadline of a wait for one member only. */
int32_t shm_fail_late(const shm_comm *comm, uint32_t peer, int64_t timeout_ns, const char *text,
                      bs_error *err);
int32_t shm_fail_woken(const shm_comm *comm, uint32_t pos, const char *text, bs_error *err);
void shm_last_call(const shm_job *job, uint32_t rank, char *out, size_t size);
void shm_abort(void *world, uint32_t rank, int32_t code, const char *why);

/* collective.c, exchange.c: slots of bs_comm. */
int32_t shm_collective(void *comm, const bs_coll_call *call, bs_error *err);
int32_t shm_message(void *comm, const bs_coll_call *call, bs_error *err); /* send and recv */
int32_t shm_exchange(void *comm, const bs_coll_call *const *calls, uint32_t ncalls, bs_error *err);

#endif
