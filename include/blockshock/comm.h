/* SPDX-License-Identifier: MIT
 *
 * comm.h - communicators: how ranks come to be and how they exchange data. A communicator plugin fills a
 * bs_comm; the host calls it.
 *
 * Units: rows, counts and strides are counted in elements, max_message_bytes in bytes, timeouts in
 * nanoseconds of the rank's clock.
 * Ownership: the host closes a rank's communicator by rank_close and the world by world_close. A call and
 * its data belong to the caller. The data stay until the call returns or, in device memory, until the stream
 * has done the call.
 * Threads: abort may be called from any thread at any time. The collectives of a rank's communicator are
 * called by one thread at a time.
 * Errors: functions return an enum bs_status and fill err. The comment of bs_comm says what each failure of
 * a rank gives. A communicator that has failed stays failed.
 */
#ifndef BLOCKSHOCK_COMM_H
#define BLOCKSHOCK_COMM_H

#include "backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The collectives. bs_coll_call below says what each reads and writes. */
enum bs_coll_kind {
  BS_COLL_ALL_REDUCE = 0,
  BS_COLL_ALL_GATHER = 1,
  BS_COLL_REDUCE_SCATTER = 2,
  BS_COLL_BROADCAST = 3,
  BS_COLL_ALL_TO_ALL = 4,
  BS_COLL_SEND = 5,
  BS_COLL_RECV = 6,
  BS_COLL_BARRIER = 7,
  BS_COLL_COUNT_ = 8
};
/* The reduction of all_reduce and reduce_scatter. */
enum bs_reduce_op { BS_REDUCE_SUM = 0, BS_REDUCE_MAX = 1, BS_REDUCE_MIN = 2 };

/* Values of bs_coll_call.flags. BS_COLL_DEVICE: in and out lie in the memory of the device that device_bind
 * got, and the call is in the order of `stream`; else both lie in host memory. Never set for a communicator
 * that has bound no device. BS_COLL_ANY_ORDER (since 0.8), of all_reduce and reduce_scatter: the order of the
 * reduction is free and ranks may get different roundings, so the communicator may use its library's own
 * collective, when the ranks have compared their calls. One that ignores the flag stays right.
 * The caller of collective_prepare sets these two (since 0.11); communicators need not read them.
 * BS_COLL_NATIVE: the communicator runs the collective itself, whatever algorithm the world has.
 * BS_COLL_CONTROL: the call is a message between the processes of a job and not part of a layer. It is
 * native, no hook sees it, no wrapper injects a fault, and the flight recorder leaves it out. */
enum bs_coll_flags { BS_COLL_DEVICE = 1, BS_COLL_ANY_ORDER = 2, BS_COLL_NATIVE = 4, BS_COLL_CONTROL = 8 };

/* One collective call. Data are `rows` rows; a row holds, per kind, this many elements:
 *   all_reduce       in, out: count. Reduced in rank order in reduce_dtype (each in-value is first
 *                    converted to it, each partial sum rounded to it), then rounded to dtype_out.
 *                    Every rank gets the same bits. The largest and the smallest are NaN where a term is.
 *   all_gather       in: counts[me]; out: sum of counts, blocks in rank order within each row
 *   reduce_scatter   in: sum of counts; out: counts[me]
 *   broadcast        in on root (ignored elsewhere), out: count
 *   all_to_all       in: sum of counts (block r goes to rank r); out: sum of recv_counts
 *   send, recv       count; the peer is `root`
 *   barrier          nothing
 * in_stride / out_stride: elements between rows. in == out is allowed for all_reduce and broadcast,
 * and for all_gather where `in` is the rank's own block of out. Ranks are those of the communicator (group).
 */
typedef struct bs_coll_call {
  uint32_t struct_size;
  uint32_t kind;
  uint32_t dtype_in;
  uint32_t dtype_out;
  uint32_t reduce_dtype;
  uint32_t reduce_op;
  uint32_t root;
  uint32_t flags; /* enum bs_coll_flags, since 0.6; 0 before */
  uint64_t rows;
  uint64_t count;
  const uint64_t *counts;      /* one per rank of the communicator */
  const uint64_t *recv_counts; /* all_to_all */
  const void *in;
  void *out;
  int64_t in_stride;
  int64_t out_stride;
  uint64_t fingerprint; /* of {kind, dtypes, rows, counts, root, site}: ranks that differ are an error */
  const char *site;     /* call site, for messages; static or living as long as the plan */
  int64_t timeout_ns;   /* > 0: the wait ends with BS_DEADLINE, by the rank's clock (clock_ns) */
  bs_stream *stream;
} bs_coll_call;

/* How ranks come to be: the host starts threads, they exist as processes, the plugin calls rank_main. */
enum bs_launch { BS_LAUNCH_THREADS = 1, BS_LAUNCH_ATTACHED = 2, BS_LAUNCH_DRIVEN = 3 };

struct bs_topology; /* topology.h */

/* The request that a world is opened for. */
typedef struct bs_world_request {
  uint32_t struct_size;
  uint32_t world_size;
  uint64_t max_message_bytes; /* hint: largest all_reduce; 0 unknown */
  /* Since 0.5, of ATTACHED worlds. */
  uint32_t rank; /* as attach returned it */
  uint32_t reserved;
  uint64_t config_hash; /* of all that the ranks must have in common: BS_MISMATCH on each where it differs */
  int64_t timeout_ns;   /* of opening: ranks that have not come by then are BS_DEADLINE, named */
  /* Since 0.8: what lies between the ranks, opened by the host for this world, and NULL where no topology is
   * named. Both live longer than the world. */
  const struct bs_topology *topology;
  void *topology_opened; /* for its functions */
} bs_world_request;

/* The place of this process in the world, as an ATTACHED communicator reports it. */
typedef struct bs_attachment {
  uint32_t struct_size;
  uint32_t rank;
  uint32_t world_size;
  uint32_t local_rank; /* among the ranks of this machine, and how many they are */
  uint32_t local_size;
  uint32_t
      bound; /* 1: the cores that this process may use are its rank's own; 0: local_size ranks share them */
} bs_attachment;

/* The rank's device, as the world has opened it. */
typedef struct bs_comm_device {
  uint32_t struct_size;
  uint32_t index; /* of device_open */
  const bs_backend *backend;
  void *device;
  int64_t timeout_ns; /* of the binding: it is a meeting of all ranks */
} bs_comm_device;

/* Errors: a wait past its deadline gives BS_DEADLINE and names the ranks that are missing and the site;
 * different fingerprints give BS_MISMATCH on every rank with both call sites; after `abort` every wait
 * of every rank returns BS_ABORTED with the reason, and in an ATTACHED world the code given to abort as
 * native_code; a process that died ends the waits of the others with BS_RANK_FAILED, its rank and last call
 * in the text. A failed communicator stays failed. Where the host runs a collective by a named algorithm
 * (bs_world_options.algorithm) its ranks meet in exchange alone. Then the two ends of a message are compared
 * and no more: a rank whose messages all fit may succeed, and a rank that waits for a message that no rank
 * sends gets BS_DEADLINE. Sums are made in the algorithm's order.
 * Required: name, launch, world_open, world_close, rank_open, rank_close, abort and the kinds it
 * supports; a NULL kind is UNSUPPORTED. Collective slots are called by one thread of the rank at a time: its
 * own, or since 0.5 the one for started collectives, which the rank's waits and calls come after. */
typedef struct bs_comm {
  uint32_t struct_size;
  uint32_t launch; /* enum bs_launch */
  const char *name;
  const char *summary;
  int32_t (*world_open)(void *state, const bs_world_request *request, void **out_world, bs_error *err);
  void (*world_close)(void *world);
  /* DRIVEN only: call rank_main(arg, rank) for every rank; ends when all have returned. */
  int32_t (*world_drive)(void *world, void (*rank_main)(void *arg, uint32_t rank), void *arg, bs_error *err);
  int32_t (*rank_open)(void *world, uint32_t rank, void **out_comm, bs_error *err);
  void (*rank_close)(void *comm);
  /* Makes a communicator of the given ranks, which ascend and contain this one. Each member calls it. */
  int32_t (*group_open)(void *comm, const uint32_t *ranks, uint32_t nranks, void **out_comm, bs_error *err);
  int32_t (*all_reduce)(void *comm, const bs_coll_call *call, bs_error *err);
  int32_t (*all_gather)(void *comm, const bs_coll_call *call, bs_error *err);
  int32_t (*reduce_scatter)(void *comm, const bs_coll_call *call, bs_error *err);
  int32_t (*broadcast)(void *comm, const bs_coll_call *call, bs_error *err);
  int32_t (*all_to_all)(void *comm, const bs_coll_call *call, bs_error *err);
  int32_t (*send)(void *comm, const bs_coll_call *call, bs_error *err);
  int32_t (*recv)(void *comm, const bs_coll_call *call, bs_error *err);
  int32_t (*barrier)(void *comm, const bs_coll_call *call, bs_error *err);
  /* Fails the world: wakes every rank that waits. May be called from any thread. `why` is copied. */
  void (*abort)(void *world, uint32_t rank, int32_t code, const char *why);
  /* Since 0.3, of a wrapper: a communicator that is made of another, used as "wrapper:other". The host calls
   * wrap once a name, gives out_state to world_open in the place of what was registered, and unwraps when the
   * context closes. `inner` lives as long as that. What the host then offers has the launch of the inner one,
   * and no collective, group or drive that the inner one lacks: a wrapper fills all of these. Not a wrapper:
   * NULL. */
  int32_t (*wrap)(void *state, const struct bs_comm *inner, void *inner_state, void **out_state,
                  bs_error *err);
  void (*unwrap)(void *wrapped);
  /* Since 0.5. ATTACHED only: which rank this process is, from `environment` (NULL-terminated "NAME=value"
   * texts of the process) or the library's own; BS_UNAVAILABLE with a hint where nothing has started it as
   * one. Called before world_open, which then opens this process's rank alone; once a process. */
  int32_t (*attach)(void *state, const char *const *environment, bs_attachment *out_attachment,
                    bs_error *err);
  /* The clock that the rank lives by, in nanoseconds: regions are timed by it. NULL: the machine's. */
  uint64_t (*clock_ns)(void *comm);
  /* Since 0.6. Serve collectives of this device's memory (BS_COLL_DEVICE). Called once by each rank of the
   * world, after rank_open and before any collective, where the backend's memory is not the host's; groups
   * of a bound communicator are bound. The answer is the same on every rank: BS_OK with *out_name, what
   * serves them, for records (lives as long as comm); BS_UNSUPPORTED with the reason: the host goes on to
   * bring the data through host memory, as it does for a NULL slot; anything else ends the rank. A call with
   * the flag returns when its work is queued; whoever waits for the stream waits for it. Calls come on the
   * rank's default stream and, of started ones, on another: what the communicator keeps on the device from
   * call to call it puts in order itself. */
  int32_t (*device_bind)(void *comm, const bs_comm_device *device, const char **out_name, bs_error *err);
  /* Since 0.8, optional: sends and receives that are in flight together. Each of the `ncalls` calls is of
   * kind BS_COLL_SEND or BS_COLL_RECV, of host memory or all with BS_COLL_DEVICE, as those slots take them;
   * `root` is the peer and never the rank itself. Returns when all of them are done: it never waits for one
   * before it has offered the others, so two ranks that send to each other, or a ring of them, go on. The
   * k-th send to a rank is received by that rank's k-th receive from this one, whichever calls of exchange
   * hold them, and they have the same fingerprint, dtype and number of elements, else BS_MISMATCH. Both ends
   * of a transfer are given to exchange: it does not meet calls of send and recv. No elements is a message
   * all the same. No receive overlaps another buffer of the calls. timeout_ns and stream are those of the
   * first call; errors are as of the other slots. The array and the calls are the caller's. */
  int32_t (*exchange)(void *comm, const bs_coll_call *const *calls, uint32_t ncalls, bs_error *err);
  /* Since 0.8, optional: numbers that the communicator has kept of the world, for the run's record. Calls
   * `each` for each: a name ([a-z0-9_.]), the value and its unit; or, for what is a word, `text` with value 0
   * and unit "" (else NULL). Strings live as long as the call. Called between rank_main of the last rank and
   * world_close, by one thread. */
  void (*report)(void *world,
                 void (*each)(void *user, const char *name, double value, const char *unit, const char *text),
                 void *user);
  /* Since 0.12. The most ranks of a world, so that a host can refuse more before it starts any; 0: not known
   * beforehand. A wrapper's is that of what it wraps. */
  uint32_t max_ranks;
  uint32_t reserved; /* 0 */
} bs_comm;

#ifdef __cplusplus
}
#endif
#endif
