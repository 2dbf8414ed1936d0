/* SPDX-License-Identifier: MIT
 *
 * mpi_comm.h - internals of the communicator "mpi": ranks are processes that mpirun or srun has started.
 * plugin.c fills the vtable; attach.c joins the job; hello.c is the first exchange; segment.c maps the memory
 * that the ranks of one machine share; world.c opens worlds and groups; wait.c has the meetings; fail.c has
 * failures; wire.c sends data between machines; collective.c, share.c and chain.c are the collectives, p2p.c
 * and exchange.c the messages between two ranks. The arithmetic is that of the communicator "threads".
 *
 * The ranks of a machine meet in rounds over shared memory, as in ../common/stage.h.
 *
 * Between machines only MPI's nonblocking calls are used, on this plugin's buffers, so a request that
 * outlives a failed call touches no memory of the caller. Every wait is a loop in this plugin with a
 * deadline. */
#ifndef BS_MPI_COMM_H
#define BS_MPI_COMM_H

#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>

#include "../common/caller.h"
#include "../common/exchange.h"
#include "../common/matrix.h"
#include "../common/stage.h"
#include "../threads/threads.h"

#define MPIC_TEXT 192u       /* bytes of a call site's description */
#define MPIC_FAIL_TEXT 480u  /* of a failure's */
#define MPIC_MAX_WORLD 4096u /* ranks */
#define MPIC_NONE UINT32_MAX /* no rank */
#define MPIC_LINE 256u       /* bytes before the data of a message: mpic_line */
#define MPIC_REMOTE_GRACE_NS                                                    \
  300000000 /* a machine's own ranks name a late one before the others time out \
             */

enum mpic_tag {
  MPIC_TAG_HELLO = 1,
  MPIC_TAG_TABLE = 2,
  MPIC_TAG_FAIL = 3,
  MPIC_TAG_BYE = 4,
  MPIC_TAG_FIRST = 16
};
/* The purposes of messages in a group: tag + kind. */
enum mpic_stream {
  MPIC_COLLECTIVE = 0,
  MPIC_PAIR = 1,
  MPIC_ANSWER = 2,
  MPIC_SEGMENT = 3,
  MPIC_XLINE = 4,
  MPIC_XDATA = 5,
  MPIC_STREAMS = 6
};

/* The first message of a rank: it describes the rank. */
typedef struct mpic_hello {
  uint64_t abi;
  uint64_t plugin; /* hash of the plugin's version */
  uint64_t machine;
  uint64_t config;
  uint64_t cores; /* hash of the cores that it may use, and how many they are */
  uint32_t ncores;
  uint32_t reserved;
  uint32_t world_size;
  uint32_t world; /* how many worlds were opened before */
  int64_t pid;
} mpic_hello;

/* Facts on another process of the job; pidfd -1: on another machine, or not available. */
typedef struct mpic_process {
  uint32_t machine; /* dense, by the lowest rank on it */
  int pidfd;
  int64_t pid;
} mpic_process;

/* The header of a rank in a round, by the round's parity. */
typedef struct mpic_header {
  _Alignas(64) comm_flag flag;
  uint64_t key;
} mpic_header;
typedef struct mpic_slot {
  mpic_header header[2];
} mpic_slot;

/* The last call of a rank, for messages of the surviving ranks. Its text is text[op & 1]. */
typedef struct mpic_trace {
  _Alignas(64) _Atomic uint64_t op; /* calls entered */
  _Atomic uint32_t inside;
  char text[2][MPIC_TEXT];
} mpic_trace;

/* The first failure of a world; `failed` turns 1 after the record is complete. */
typedef struct mpic_failure {
  _Alignas(64) _Atomic uint32_t failed;
  _Atomic uint32_t claimed;
  int32_t code;
  uint32_t rank;
  uint32_t common; /* 1: the communicator saw it, and every rank returns `code`; 0: a rank reported it */
  char id[32];
  char text[MPIC_FAIL_TEXT];
} mpic_failure;

/* The memory that the members of a group on one machine share. */
typedef struct mpic_segment {
  void *base;
  uint64_t bytes;
  mpic_failure *failure;
  mpic_slot *slots;
  mpic_trace *traces;
  unsigned char *halves; /* two a member */
  unsigned char *far;    /* two of the machine: data from the others */
} mpic_segment;

/* Consecutive members on one machine. */
typedef struct mpic_run {
  uint32_t machine;
  uint32_t first;
  uint32_t n;
} mpic_run;

/* A wait's clock: starts when the wait becomes slow. */
typedef struct mpic_timer {
  int64_t timeout_ns;
  int64_t deadline; /* 0: not started */
} mpic_timer;

typedef struct mpic_state mpic_state;
typedef struct mpic_world mpic_world;

/* This process's end of a group. */
typedef struct mpic_comm {
  mpic_world *world;
  uint32_t n;
  uint32_t me;
  uint32_t *ranks;   /* [n] world rank of each member */
  uint32_t *machine; /* [n] machine of each, dense in the group */
  uint32_t *local;   /* [n] its index among the members there */
  uint32_t machines;
  uint32_t here;     /* my machine */
  uint32_t nlocal;   /* members on it */
  uint32_t *members; /* by machine, then local index: starts[m] + i is member i of machine m */
  uint32_t *starts;  /* [machines + 1] */
  uint32_t leaders;  /* members that speak for a machine: the fewest on any */
  mpic_run *runs;
  uint32_t nruns;
  int tag;
  uint64_t half;
  mpic_segment seg;
  uint32_t pos; /* last published round */
  uint64_t op;
  mpic_timer timer; /* of the collective that the rank is in */
  comm_caller caller;
  unsigned char *out_buf; /* messages to other machines */
  unsigned char *in_buf;
  uint64_t buf_bytes;
  uint32_t dirty; /* MPI may still touch the buffers: they are kept */
  comm_transfers transfers;
  uint32_t dead;               /* rank that an exchange has found dead */
  unsigned char *exchange_buf; /* the messages of the largest exchange so far */
  uint64_t exchange_bytes;
  struct {
    uint64_t key;
    char text[MPIC_TEXT];
  } cache[THR_CACHE];
} mpic_comm;

struct mpic_world {
  mpic_state *state;
  thr_world math; /* host and kernels, for the arithmetic */
  uint32_t size;
  uint32_t me;
  int64_t spin_ns;
  int64_t timeout_ns; /* of opening a group */
  uint32_t taken;     /* the rank is open */
  uint32_t number;    /* of the job's worlds */
  mpic_world *next;
  mpic_comm *all;
  uint32_t inline_max;
  pthread_mutex_t lock; /* of open groups */
};

/* The process: one job, one MPI. */
struct mpic_state {
  const bs_host *host;
  bs_plugin_self *self;
  pthread_mutex_t lock; /* MPI is initialised with MPI_THREAD_SERIALIZED: one call at a time */
  MPI_Comm comm;
  uint32_t attached;
  uint32_t started; /* MPI was initialised here */
  uint32_t hurry;   /* the failure concerns all: no wait lasts long from now on */
  uint32_t broken;  /* a world failed: nothing more is exchanged, MPI is not finalised */
  uint32_t rank;
  uint32_t size;
  uint32_t machines;
  uint32_t cores; /* that the ranks of this machine have between them */
  uint32_t bound; /* its cores are not those of another rank of this machine */
  uint32_t worlds;
  mpic_process *processes; /* [size] */
  struct mpic_kept *kept;  /* memory that MPI may touch after a failure */
  mpic_world *open;        /* worlds of this process; under lock */
  MPI_Request fail_request;
  struct mpic_notice *notice; /* the buffer for its receive */
};

/* A failure in the form that other machines receive. */
typedef struct mpic_notice {
  uint32_t world;
  int32_t code;
  uint32_t rank;
  uint32_t common;
  char id[32];
  char text[MPIC_FAIL_TEXT];
} mpic_notice;

/* Before the data of every message of a collective. */
typedef struct mpic_line {
  uint64_t key;
  uint64_t bytes;
  uint32_t rank;
  int32_t status;
  char text[MPIC_TEXT];
} mpic_line;
_Static_assert(sizeof(mpic_line) <= MPIC_LINE, "a line fits before the data");

/* attach.c */
int32_t mpic_attach(void *state, const char *const *environment, bs_attachment *out, bs_error *err);
void mpic_leave(mpic_state *state);
int32_t mpic_check(int rc, const char *what, bs_error *err); /* an MPI return code */

/* hello.c: all ranks of the job exchange `mine`; out_table is freed by the caller. */
int32_t mpic_hello_all(mpic_state *state, const mpic_hello *mine, int64_t timeout_ns, mpic_hello **out_table,
                       bs_error *err);
void mpic_hello_fill(mpic_state *state, mpic_hello *out);
int32_t mpic_processes(mpic_state *state, const mpic_hello *table, bs_error *err);

/* world.c */
int32_t mpic_world_open(void *state, const bs_world_request *request, void **out_world, bs_error *err);
void mpic_world_close(void *world);
int32_t mpic_rank_open(void *world, uint32_t rank, void **out_comm, bs_error *err);
void mpic_rank_close(void *comm);
int32_t mpic_group_open(void *comm, const uint32_t *ranks, uint32_t nranks, void **out_comm, bs_error *err);

/* segment.c */
int32_t mpic_segment_open(mpic_comm *comm, int64_t timeout_ns, bs_error *err);
void mpic_segment_close(mpic_comm *comm);

/* wait.c */
mpic_timer mpic_timer_of(const mpic_comm *comm, const bs_coll_call *call);
/* The text of the call, kept for the next one of its key. */
const char *mpic_describe(mpic_comm *comm, const bs_coll_call *call);
/* Enters a call: describes it and checks whether the world has failed. Leaves it. */
int32_t mpic_enter(mpic_comm *comm, const bs_coll_call *call, bs_error *err);
int32_t mpic_exit(mpic_comm *comm, int32_t rc);
/* Publishes the round whose half has been written, waits for the others of this machine, compares keys. */
int32_t mpic_meet(mpic_comm *comm, const bs_coll_call *call, mpic_timer *timer, bs_error *err);
const char *mpic_trace_text(const mpic_comm *comm, uint32_t world_rank, char *out, size_t size);

/* fail.c */
void mpic_abort(void *world, uint32_t rank, int32_t code, const char *why);
void mpic_fail_world(mpic_world *world, int32_t code, uint32_t rank, uint32_t common, const char *id,
                     const char *text);
int32_t mpic_failed(const mpic_world *world); /* 1: it has failed; if slow, also checks for messages of other
                                               * machines */
int32_t mpic_fail_told(mpic_comm *comm, const char *text, bs_error *err); /* return the world's failure */
int32_t mpic_fail_mismatch(mpic_comm *comm, uint32_t rank_a, const char *a, uint32_t rank_b, const char *b,
                           bs_error *err);
int32_t mpic_fail_deadline(mpic_comm *comm, const char *text, const char *missing, int64_t timeout_ns,
                           bs_error *err);
/* Rank that has ended without a word, or MPIC_NONE; and its error. */
uint32_t mpic_dead(mpic_state *state, uint32_t first, uint32_t only);
int32_t mpic_fail_dead(mpic_comm *comm, uint32_t world_rank, const char *text, bs_error *err);
/* Memory that MPI may still touch stays until the process ends. */
void mpic_keep(mpic_state *state, void *memory);
void mpic_listen(mpic_state *state); /* a notice of another machine becomes the world's failure */

/* wire.c: all of these take state->lock. */
int32_t mpic_isend(mpic_state *state, const void *data, uint64_t bytes, uint32_t rank, int tag,
                   MPI_Request *out, bs_error *err);
int32_t mpic_irecv(mpic_state *state, void *data, uint64_t bytes, uint32_t rank, int tag, MPI_Request *out,
                   bs_error *err);
int mpic_test_all(mpic_state *state, MPI_Request *requests, uint32_t n, int32_t *out_rc);
int mpic_test_one(mpic_state *state, MPI_Request *request);
/* Wait for requests of a collective; peers[i]: the member that request i is of. */
int32_t mpic_wire_wait(mpic_comm *comm, MPI_Request *requests, const uint32_t *peers, uint32_t n,
                       const char *text, mpic_timer *timer, bs_error *err);
/* A message between members: a line, then `bytes` at buf + MPIC_LINE. recv checks the line's key. */
void mpic_line_fill(const mpic_comm *comm, const bs_coll_call *call, unsigned char *buf, uint64_t bytes);
int32_t mpic_line_check(mpic_comm *comm, const bs_coll_call *call, const unsigned char *buf, uint64_t bytes,
                        bs_error *err);
int32_t mpic_send_to(mpic_comm *comm, const bs_coll_call *call, uint32_t member, unsigned char *buf,
                     uint64_t bytes, mpic_timer *timer, bs_error *err);
int32_t mpic_recv_from(mpic_comm *comm, const bs_coll_call *call, uint32_t member, unsigned char *buf,
                       uint64_t bytes, mpic_timer *timer, bs_error *err);
/* The text of the call that the rank is in. */
static inline const char *mpic_text(const mpic_comm *comm, const bs_coll_call *call) {
  return comm->cache[(comm_key(call) >> 7) % THR_CACHE].text;
}

/* share.c, of several machines: every member's `bytes` (root MPIC_NONE), or the root's, become visible to
 * all: write them to mpic_room first; member r's are at mpic_far + r * bytes until the next round. */
int32_t mpic_share(mpic_comm *comm, const bs_coll_call *call, uint64_t bytes, uint32_t root,
                   mpic_timer *timer, bs_error *err);
static inline unsigned char *mpic_far(const mpic_comm *comm, uint32_t pos) {
  return comm->seg.far + (pos & 1u) * comm->half;
}
/* My half of the coming round; the half of local member i in the current one. */
static inline unsigned char *mpic_room(const mpic_comm *comm) {
  uint64_t me = comm->local[comm->me];
  return comm->seg.halves + (2u * me + ((comm->pos + 1u) & 1u)) * comm->half;
}
static inline unsigned char *mpic_half(const mpic_comm *comm, uint32_t local) {
  return comm->seg.halves + (2u * (uint64_t)local + (comm->pos & 1u)) * comm->half;
}
static inline uint32_t mpic_member(const mpic_comm *comm, uint32_t machine, uint32_t local) {
  return comm->members[comm->starts[machine] + local];
}

/* chain.c: reduces a slice in rank order from machine to machine. `offset`: the place of its inputs in each
 * half of the current round; dest: the machine that needs the result, or MPIC_NONE: all. */
int32_t mpic_chain(mpic_comm *comm, const bs_coll_call *call, uint64_t offset, uint64_t n, void *result,
                   uint32_t dest, mpic_timer *timer, bs_error *err);

/* Slots of bs_comm. */
int32_t mpic_collective(void *comm, const bs_coll_call *call, bs_error *err);
int32_t mpic_send(void *comm, const bs_coll_call *call, bs_error *err);
int32_t mpic_recv(void *comm, const bs_coll_call *call, bs_error *err);
/* exchange.c: exchange_buf has so many bytes; MPI may still touch it, so that it is kept and no longer used.
 */
int32_t mpic_keep_room(mpic_comm *comm, uint64_t bytes, bs_error *err);
void mpic_leave_room(mpic_comm *comm);
/* native.c: all_reduce by MPI's own, if the call allows it and MPI can; within enter and exit. */
int mpic_native_serves(const mpic_comm *comm, const bs_coll_call *call);
int32_t mpic_native_all_reduce(mpic_comm *comm, const bs_coll_call *call, bs_error *err);
int32_t mpic_exchange(void *comm, const bs_coll_call *const *calls, uint32_t ncalls, bs_error *err);

#endif
