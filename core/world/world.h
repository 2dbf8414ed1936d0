/* SPDX-License-Identifier: MIT
 *
 * world.h - inside of worlds: what a world and a rank hold, and the functions that the files of this
 * folder share. world.c makes worlds, launch.c runs them, park.c keeps their threads, enter.c takes the
 * caller's thread, rank.c opens ranks, team.c is the thread team, memory.c counts memory, region.c keeps
 * timers, coll*.c wrap collectives, api.c is the method's table.
 */
#ifndef BS_CORE_WORLD_WORLD_H
#define BS_CORE_WORLD_WORLD_H

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "blockshock/blockshock.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/op/dispatch.h"
#include "core/world/algorithm.h"

#define BS_WORLD_MAX 1024u             /* ranks that are threads or processes */
#define BS_WORLD_DRIVEN_MAX (1u << 20) /* that a communicator drives */
#define BS_TEAM_MAX 1024u
#define BS_REGIONS_MAX 1024u

/* algorithm.c: what lies between the ranks. */
typedef struct bs_world_topology {
  const bs_topology *table; /* NULL: none */
  void *opened;
} bs_world_topology;

typedef struct bs_team bs_team;
typedef struct bs_park bs_park;
typedef struct bs_rank_note bs_rank_note;
typedef struct bs_coll_line bs_coll_line; /* started collectives of a rank, and their thread */

/* One timer, in milliseconds: a reservoir of samples, and what is kept of all of them. */
typedef struct bs_region_data {
  char *name;
  double *samples;
  uint32_t room; /* samples that are kept; and pairs of events before they are turned into samples */
  uint64_t count;
  double sum, min, max;
  uint64_t started_ns, waited_ns; /* the clock, and the rank's waits so far, when it was begun */
  double *enqueue;                /* by events: the host's times, a reservoir of their own */
  uint64_t enqueued;
  double host_sum;
  uint64_t host_count;
  bs_event **events; /* by events: a pair a pending sample */
  uint32_t pending;
  uint32_t events_made;
  int32_t running;
} bs_region_data;

/* coll_counts.c: a list of block sizes that plans of the world share. */
enum { BS_COUNTS_BUCKETS = 64 };
typedef struct bs_coll_counts {
  struct bs_coll_counts *next;
  uint64_t hash, sum;
  uint32_t n, refs, even;
  uint64_t counts[];
} bs_coll_counts;

/* A device allocation made through bs_exec or tensor_alloc, so that freeing knows its size. */
typedef struct bs_block {
  void *ptr;
  uint64_t bytes;
  uint32_t lent; /* a place in an executor's block: not the rank's to free */
} bs_block;

/* memory.c: the memory of one call, of the layer that is built. */
typedef struct bs_calls {
  void *block; /* an executor's; NULL: none */
  uint64_t bytes;
  uint64_t at; /* its part that is taken by the layer, and what that would be in a block without an end */
  uint64_t need;
  uint64_t most; /* of the needs of all layers so far */
  uint32_t open; /* a layer is built that may take of it */
} bs_calls;

struct bs_rank {
  bs_world *world;
  uint32_t index;
  uint32_t opened;
  void *device;
  void *comm;        /* NULL in a world of one */
  const char *bound; /* what serves collectives of the device's memory; NULL: they go through host memory */
  bs_team *team;
  bs_coll_line *line; /* NULL: nothing was started yet, or the rank has no thread for it */
  bs_stream *side;    /* coll_side.c: of started collectives on the device; NULL: none was */
  uint32_t unwaited;  /* collectives started and not waited for */
  uint32_t capturing; /* capture.c keeps what the device is given: no clocks, no meetings */
  bs_exec exec;
  bs_op_host ops;
  uint64_t counters[BS_COUNT_COUNT_];
  bs_region_data **regions; /* region.c; NULL: not used yet */
  uint32_t nregions, regions_room;
  int32_t use_events;
  uint32_t waiting;   /* how deep in a wait that is counted */
  uint64_t waited_ns; /* for the device and in collectives; counted where regions are timed by events */
  void *flush;        /* device.c */
  uint64_t flush_bytes, peak_before_flush;
  bs_block *blocks;
  uint64_t nblocks, blocks_capacity;
  void *scratch; /* memory.c: of all plans that asked for one */
  uint64_t scratch_bytes;
  void *lent;        /* an executor's, in place of it; NULL: none */
  uint32_t required; /* flags of every query (bs_rank_require) */
  uint32_t alone;    /* bs_rank_set_alone */
  bs_calls calls;
  pthread_t thread;    /* the rank's own */
  bs_error sticky;     /* a misuse without a way to return it; ends the run */
  bs_rank_note *notes; /* rank_data.c: pointers that users keep here, by key */
};

struct bs_world {
  bs_context *context;
  const bs_logger *logger;
  const bs_backend *backend;
  void *backend_state;
  const bs_comm *comm;
  void *comm_state;
  void *comm_world; /* NULL in a world of one rank thread */
  uint32_t size;
  uint32_t own;        /* ATTACHED: the rank of this process; else BS_WORLD_ALL_RANKS */
  uint32_t width;      /* threads of a rank */
  uint32_t local_rank; /* ATTACHED: which share of this machine's cores and devices is the rank's */
  uint32_t bound;      /* ATTACHED: this process's cores are the rank's alone */
  uint32_t sharers;    /* ranks that divide this process's cores */
  uint64_t config_hash;
  uint32_t sync_mode;
  uint32_t devices;
  uint32_t pinned;
  int64_t timeout_ns;
  int64_t spin_ns; /* busy wait of team members and of parked threads; 0: there are more than cores */
  uint32_t has_hook;
  bs_collective_hook hook;
  uint32_t ncores;
  uint32_t cores_known;
  uint16_t *cores; /* cores this process may use, ascending */
  bs_rank **ranks;
  _Alignas(64) _Atomic uint64_t memory_now;
  _Atomic uint64_t memory_peak;
  pthread_mutex_t lock; /* first error, algorithms */
  uint32_t stuck;       /* a rank is inside a call that did not return: nothing of this world is freed */
  bs_world *next_stuck; /* launch.c's list */
  bs_park *park;        /* threads of the ranks; NULL: no run so far, DRIVEN, or the world has failed */
  uint32_t failed;
  int64_t failed_ns; /* when that was, by the monotonic clock */
  bs_error first;
  char *algorithms;
  bs_choice_book *choices;
  uint32_t rehearse;
  bs_coll_counts *counts[BS_COUNTS_BUCKETS]; /* under lock */
  bs_world_algorithm algorithm;
  bs_world_topology topology;
  uint32_t fallback; /* the reference backend serves what the backend's plugins do not */
  /* enter.c: the caller is the rank now; what its thread was before. */
  uint32_t entered, unpinned;
  int32_t log_rank;
  cpu_set_t affinity;
  int32_t (*rank_main)(bs_rank *rank, void *arg, bs_error *err);
  void *arg;
};

struct bs_group {
  bs_rank *rank;
  void *comm; /* NULL: a group of one */
  uint32_t n;
  uint32_t me;
  uint32_t ranks[]; /* of the world */
};

/* The cores of a rank, and its place among those that share the machine. */
static inline uint32_t bs_world_place(const bs_world *world, uint32_t rank) {
  return world->own == BS_WORLD_ALL_RANKS ? rank : world->local_rank;
}
static inline const uint16_t *bs_world_cores(const bs_world *world, uint32_t rank) {
  return world->cores + (world->bound ? 0 : (size_t)bs_world_place(world, rank) * world->width);
}

/* The cores of a rank's thread for started collectives: one core after those of the teams, if there is one,
 * else the rank's own. *out_count cores. */
static inline const uint16_t *bs_world_line_cores(const bs_world *world, uint32_t rank, uint32_t *out_count) {
  const uint64_t place = world->bound ? 0 : bs_world_place(world, rank);
  const uint64_t spare = (uint64_t)world->sharers * world->width + place;
  *out_count = spare < world->ncores ? 1 : world->width;
  return spare < world->ncores ? world->cores + spare : bs_world_cores(world, rank);
}
static inline int bs_world_line_alone(const bs_world *world) {
  return (uint64_t)world->sharers * (world->width + 1u) <= world->ncores;
}

/* cores.c: the process's cores, at least one. */
int32_t bs_world_find_cores(bs_world *world, bs_error *err);
/* algorithm.c. The communicator is known; `close` after its world. */
int32_t bs_world_open_topology(bs_world *world, const char *text, bs_error *err);
void bs_world_close_choices(bs_world *world);
/* attach.c: makes the world one of processes where its communicator joins them. */
int32_t bs_world_attach(bs_world *world, uint32_t *out_sharers, bs_error *err);

/* layer.c: one pass of a layer. tensors: of a forward x and y; of a backward pass x, dy, dx, dw and db; of a
 * step dw, db, x and dy. NULL: not given. */
enum { BS_WORK_TENSORS = 5 };
typedef struct bs_work {
  uint32_t pass; /* enum bs_pass */
  const bs_method *method;
  void *object;
  const bs_tensor *tensors[BS_WORK_TENSORS];
  const bs_step *step; /* NULL: the pass is not a step */
  bs_stream *stream;
} bs_work;
int32_t bs_work_run(const bs_work *work, bs_error *err); /* by the method */

/* capture.c: passes of a layer as graphs of the device. */
typedef struct bs_layer_capture_state bs_layer_capture_state;
bs_layer_capture_state *bs_capture_new(bs_rank *rank); /* NULL: no memory */
int32_t bs_capture_run(bs_layer_capture_state *graph, const bs_work *work, bs_error *err);
const char *bs_capture_told(const bs_layer_capture_state *graph, uint32_t pass);
void bs_capture_free(bs_layer_capture_state *graph);

/* launch.c */
int32_t bs_launch_run(bs_world *world, bs_error *err);
/* The calling thread onto the first of the rank's cores. */
void bs_world_pin_rank(const bs_world *world, uint32_t index);
void bs_world_report(bs_world *world, uint32_t rank, int32_t code, const bs_error *err);
/* The rank has done its work with status rc and error *err: what it misused, what it started and did not wait
 * for, and what failed end the world. Returns what the rank's status is then. */
int32_t bs_rank_ends(bs_rank *rank, int32_t rc, bs_error *err);
/* Status and error of a failed world's first failure. err: may be NULL. */
int32_t bs_world_first(bs_world *world, bs_error *err);

/* park.c; of worlds that are not DRIVEN. All but bs_park_tell: one thread at a time. `life` runs on the
 * rank's thread, once a run. An error names the rank whose thread could not be started. */
int32_t bs_park_ready(bs_world *world, void (*life)(bs_world *world, uint32_t index), uint32_t *out_rank,
                      bs_error *err);
/* Runs every rank once. `until` is the end of the wait by the monotonic clock, 0 while no rank has failed. 1:
 * all came back; 0: not all did, until then. */
int bs_park_run(bs_world *world, int64_t (*until)(bs_world *world));
/* A rank has failed: `until` has an answer now. */
void bs_park_tell(bs_world *world);
/* Ends and joins the threads; those whose rank did not come back are left behind, with what they use. */
void bs_park_end(bs_world *world);

/* rank.c: open in the rank's own thread; close from any after the run. */
bs_rank *bs_rank_new(bs_world *world, uint32_t index);
int32_t bs_rank_open(bs_rank *rank, bs_error *err);
void bs_rank_close(bs_rank *rank);
/* Remember a misuse; the first one is kept. */
void bs_rank_misuse(bs_rank *rank, int32_t code, const char *id, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Called around each wait of the host, so that its time does not count as the host's work. */
uint64_t bs_rank_wait_begins(bs_rank *rank);
void bs_rank_wait_ends(bs_rank *rank, uint64_t began_ns);

/* device.c */
void bs_rank_flush_free(bs_rank *rank);

/* team.c. width 1 makes no thread. body runs once on each member; not from within a body. */
/* cores: `width` core numbers, one a member (the caller pins itself), NULL: not pinned. */
int32_t bs_team_new(uint32_t width, int64_t spin_ns, const uint16_t *cores, bs_team **out_team,
                    bs_error *err);
/* Pin the calling thread to one core; 0 or errno. */
int bs_pin_to_core(uint16_t core);
void bs_team_free(bs_team *team);
int32_t bs_team_run(bs_team *team, void (*body)(void *arg, uint32_t member, uint32_t width), void *arg);

/* memory.c */
void bs_memory_add(bs_world *world, uint64_t bytes);
void bs_memory_sub(bs_world *world, uint64_t bytes);
void *bs_memory_exec_alloc(void *rank, uint64_t bytes);
int32_t bs_memory_reserve(void *rank, uint64_t bytes);
void *bs_memory_scratch(void *rank);
void bs_memory_scratch_free(void *rank);
void bs_memory_exec_free(void *rank, void *ptr);
int32_t bs_memory_tensor_alloc(bs_rank *rank, const bs_tensor_desc *desc, uint32_t lifetime,
                               bs_tensor *out_tensor, bs_error *err);
void bs_memory_tensor_free(bs_rank *rank, bs_tensor *tensor);
/* Around the build of a layer: what it takes of the memory of one call begins at the block's start. */
void bs_memory_calls_begin(bs_rank *rank);
void bs_memory_calls_end(bs_rank *rank);
int32_t bs_memory_tensor_read(bs_rank *rank, const bs_source *source, int64_t row, const bs_partition *cols,
                              bs_tensor *out, bs_error *err);
void *bs_memory_host_alloc(bs_rank *rank, uint64_t bytes);
void bs_memory_host_free(bs_rank *rank, void *ptr);

/* region.c */
int32_t bs_regions_init(bs_rank *rank);
void bs_regions_free(bs_rank *rank);
uint32_t bs_region_named(bs_rank *rank, const char *name);
void bs_region_begin(bs_rank *rank, uint32_t region);
void bs_region_end(bs_rank *rank, uint32_t region);
int32_t bs_region_running(const bs_rank *rank, uint32_t region);
/* Statistics of samples in milliseconds; sorts them. Percentile q: linear between the neighbours of
 * (n - 1) q. */
BS_API void bs_region_summarise(double *samples, uint64_t count, bs_region_stats *out_stats);

/* coll.c, coll_local.c, group.c */
int32_t bs_coll_prepare(bs_rank *rank, const bs_collective *desc, bs_coll_plan **out_plan, bs_error *err);
/* Prepares for the communicator itself, whatever algorithm the world has. */
int32_t bs_coll_prepare_plain(bs_rank *rank, const bs_collective *desc, bs_coll_plan **out_plan,
                              bs_error *err);
int32_t bs_coll_run(bs_coll_plan *plan, const bs_tensor *in, bs_tensor *out, bs_stream *stream,
                    bs_error *err);
void bs_coll_release(bs_coll_plan *plan);
uint64_t bs_coll_text_hash(const char *text);
int32_t bs_coll_local(void *unused, const bs_coll_call *call, bs_error *err);

/* coll_start.c: collectives that run at the same time as ops. The rank's own thread calls all of these. */
int32_t bs_coll_start(bs_coll_plan *plan, const bs_tensor *in, bs_tensor *out, bs_stream *stream,
                      bs_error *err);
int32_t bs_coll_wait(bs_coll_plan *plan, bs_error *err);
/* Waits until the line is empty. The caller then has the communicator to itself. */
void bs_coll_settle(bs_rank *rank);
/* Reports the misuse that a started plan is released before its wait, and waits for it. */
void bs_coll_abandon(bs_coll_plan *plan);
int32_t bs_coll_refuse_kept(const bs_coll_plan *plan, bs_error *err); /* while a graph is kept */
int32_t bs_coll_refuse_started(const bs_coll_plan *plan, bs_error *err);
/* The rank leaves: BS_INVALID_ARGUMENT when it has not waited for all that it started. */
int32_t bs_coll_leave(bs_rank *rank, bs_error *err);
/* The end of its stream, of what it was given or not. */
void bs_coll_side_free(bs_rank *rank);
/* The thread's end; the line is empty. */
void bs_coll_line_free(bs_rank *rank);

/* coll_counts.c: n block sizes, `counts`, or without any n times `value`; its hash is one of what is in it.
 * The caller drops it. */
int32_t bs_coll_counts_share(bs_world *world, const uint64_t *counts, uint64_t value, uint32_t n,
                             bs_coll_counts **out, bs_error *err);
void bs_coll_counts_drop(bs_world *world, bs_coll_counts *counts);

int32_t bs_group_open(bs_rank *rank, const uint32_t *ranks, uint32_t nranks, bs_group **out_group,
                      bs_error *err);
void bs_group_close(bs_group *group);

/* facade.c: a group that a method sees as its world. The method gets this table, and a facade as its rank.
 * free() ends a facade; the group must live as long. NULL: no memory. */
typedef struct bs_facade bs_facade;
const bs_rank_api *bs_facade_api(void);
bs_facade *bs_facade_new(bs_group *group);

/* rank_data.c */
void bs_rank_notes_free(bs_rank *rank);

/* The next state of a hash that takes v in. */
static inline uint64_t bs_world_mix(uint64_t h, uint64_t v) {
  h ^= v + UINT64_C(0x9e3779b97f4a7c15) + (h << 6) + (h >> 2);
  h *= UINT64_C(0xff51afd7ed558ccd);
  return h ^ (h >> 32);
}
/* Does this collective add? */
static inline int bs_coll_reduces(uint32_t kind) {
  return kind == BS_COLL_ALL_REDUCE || kind == BS_COLL_REDUCE_SCATTER;
}
#endif
