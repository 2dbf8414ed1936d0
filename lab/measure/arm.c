/* SPDX-License-Identifier: MIT
 * arm.c - worlds that wait for batches. The controlling thread posts a command; every rank runs it between
 * two barriers. */
#include "lab/measure/arm.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/base/rng.h"
#include "core/plugin/registry.h"
#include "lab/case/place.h"
#include "lab/clock.h"
#include "lab/cores.h"
#include "lab/error.h"
#include "lab/measure/flush.h"
#include "lab/measure/machine.h"
#include "lab/measure/spacer.h"
#include "lab/peers/exchange.h"
#include "lab/stop.h"

enum command {
  COMMAND_BATCH = 1,
  COMMAND_COLD = 2,
  COMMAND_RESET = 3, /* regions and counters */
  COMMAND_DROP = 4,  /* layer and tensors */
  COMMAND_BUILD = 5, /* again */
  COMMAND_STOP = 6
};

/* The report of a rank on a batch. The last three values cover its whole process so far: a rank on another
 * machine uses no time of this one. */
typedef struct rank_told {
  double seconds, switches, cpu_ns, used_s, waited_s, machine;
} rank_told;

/* Seconds that a rank needed to build its layer, and of these to pack its weights. */
typedef struct rank_building {
  double all, pack;
} rank_building;

/* A rank's layer and its tensors. */
typedef struct built {
  void *spacer;
  bs_layer *layer;
  bs_tensor x, y;
} built;

struct bs_arm {
  bs_case c;
  char name[32];
  uint32_t number;
  void *spacer;
  bs_world *world;
  uint32_t here; /* its ranks in this process */
  int joint;     /* the others are processes: rank 0 sends them each command */
  pthread_t thread;
  int started;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  uint64_t posted; /* number of the newest command */
  uint32_t command;
  uint64_t lead, batch;
  uint32_t done_ranks; /* ranks that finished the newest command (or the build: command 0) */
  int ended;           /* the world has returned */
  int failed;          /* a rank has left with an error: the others must not wait for a command */
  int32_t status;
  bs_error error;
  rank_told *told;                      /* [world_size]: of the newest batch */
  bs_arm_tensors *tensors;              /* [world_size] */
  uint64_t (*counted)[BS_COUNT_COUNT_]; /* [world_size]: of one forward of the newest batch */
  rank_building *building;              /* [world_size] */
  bs_flush *flush;
  bs_clocks clocks;              /* of this process's ranks, under the lock */
  _Atomic uint64_t device_flush; /* bytes written to empty a device's cache; 0: the host's are flushed */
};

/* The newest command, if there is one after number *seen. */
static uint32_t wait_command(bs_arm *arm, uint64_t *seen, uint64_t *out_lead, uint64_t *out_batch) {
  pthread_mutex_lock(&arm->lock);
  while (arm->posted == *seen && !arm->ended && !arm->failed) pthread_cond_wait(&arm->changed, &arm->lock);
  *seen = arm->posted;
  *out_lead = arm->lead;
  *out_batch = arm->batch;
  const uint32_t command = arm->ended || arm->failed ? (uint32_t)COMMAND_STOP : arm->command;
  pthread_mutex_unlock(&arm->lock);
  return command;
}

static void rank_done(bs_arm *arm) {
  pthread_mutex_lock(&arm->lock);
  ++arm->done_ranks;
  pthread_cond_broadcast(&arm->changed);
  pthread_mutex_unlock(&arm->lock);
}

static void rank_failed(bs_arm *arm) {
  pthread_mutex_lock(&arm->lock);
  arm->failed = 1;
  pthread_cond_broadcast(&arm->changed);
  pthread_mutex_unlock(&arm->lock);
}

enum {
  NUMBERS = 2, /* doubles in a rank_building */
  TOLD = 6,    /* in a rank_told */
  ORDER_STREAM = 13
};

/* A number that processes of one machine have in common. */
static double machine_number(void) {
  char name[256] = "";
  uint32_t sum = 2166136261u;
  if (gethostname(name, sizeof name - 1) != 0) return 0.0;
  for (const char *c = name; *c != '\0'; ++c) sum = (sum ^ (unsigned char)*c) * 16777619u;
  return (double)sum;
}

/* Sends the report of each rank to all: ranks are threads of this process, or other processes. */
static int32_t share_told(bs_arm *arm, bs_rank *rank, uint32_t index, bs_error *err) {
  bs_process_use use;
  if (!arm->joint) return BS_OK;
  bs_process_use_read(0, &use);
  arm->told[index].used_s = use.cpu_s;
  arm->told[index].waited_s = use.waited_s;
  arm->told[index].machine = machine_number();
  return bs_exchange_numbers(rank, "lab.peers.seconds", &arm->told[index].seconds, TOLD,
                             &arm->told[0].seconds, err);
}

/* Sends to all what each rank has built; no rank waits for a command before it knows that all ranks are
 * ready. */
static int32_t share_building(bs_arm *arm, bs_rank *rank, uint32_t index, bs_error *err) {
  if (!arm->joint) return bs_rank_barrier(rank, "lab.arm", err);
  return bs_exchange_numbers(rank, "lab.peers.built", &arm->building[index].all, NUMBERS,
                             &arm->building[0].all, err);
}

/* Reads the device's clock after a batch, outside the timed part, while the device is still warm. */
static void look_at_clock(bs_arm *arm, bs_rank *rank) {
  bs_device_state state;
  if (bs_rank_device_state(rank, &state, NULL) != BS_OK) return;
  pthread_mutex_lock(&arm->lock);
  bs_clocks_add(&arm->clocks, state.clock_mhz, state.held_back);
  pthread_mutex_unlock(&arm->lock);
}

/* Sums over the rank's threads. */
typedef struct rank_used {
  _Atomic uint64_t switches, cpu_ns;
} rank_used;

static uint64_t ns_of(struct timeval t) {
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_usec * 1000u;
}

static void add_used(void *arg, uint32_t member, uint32_t width) {
  struct rusage used;
  rank_used *sum = arg;
  (void)member;
  (void)width;
  if (getrusage(RUSAGE_THREAD, &used) != 0) return;
  atomic_fetch_add(&sum->switches, (uint64_t)used.ru_nivcsw);
  atomic_fetch_add(&sum->cpu_ns, ns_of(used.ru_utime) + ns_of(used.ru_stime));
}

/* Adds involuntary switches and processor time of the rank's threads so far to the report of a batch: with -1
 * before the batch, with 1 after it. */
static void count_used(bs_rank *rank, double sign, rank_told *told) {
  rank_used sum = {0};
  bs_rank_get_api()->parallel_for(rank, add_used, &sum);
  told->switches += sign * (double)atomic_load(&sum.switches);
  told->cpu_ns += sign * (double)atomic_load(&sum.cpu_ns);
}

static int32_t run_batch(bs_arm *arm, bs_rank *rank, uint32_t index, built *b, uint64_t lead, uint64_t n,
                         bs_error *err) {
  uint64_t before[BS_COUNT_COUNT_];
  int32_t rc = BS_OK;
  for (uint64_t i = 0; rc == BS_OK && i < lead; ++i)
    rc = bs_arm_work_once(&arm->tensors[index], b->layer, &b->x, &b->y, err);
  if (rc == BS_OK && lead > 0) rc = bs_rank_sync(rank, err);
  rank_told told = {0};
  count_used(rank, -1.0, &told);
  if (rc == BS_OK) rc = bs_rank_barrier(rank, "lab.batch", err);
  for (uint32_t k = 0; k < BS_COUNT_COUNT_; ++k) before[k] = bs_rank_counter(rank, k);
  const uint64_t start = bs_rank_clock_ns(rank);
  for (uint64_t i = 0; rc == BS_OK && i < n; ++i)
    rc = bs_arm_work_once(&arm->tensors[index], b->layer, &b->x, &b->y, err);
  if (rc == BS_OK) rc = bs_rank_sync(rank, err);
  told.seconds = (double)(bs_rank_clock_ns(rank) - start) * 1e-9 / (double)n;
  count_used(rank, 1.0, &told);
  arm->told[index] = told;
  for (uint32_t k = 0; k < BS_COUNT_COUNT_; ++k)
    arm->counted[index][k] = (bs_rank_counter(rank, k) - before[k]) / n;
  return rc == BS_OK ? share_told(arm, rank, index, err) : rc;
}

/* Flushes the cache of the rank's data: its device's, or those of its threads. */
static int32_t flush_rank(bs_arm *arm, bs_rank *rank, bs_error *err) {
  bs_error why = BS_ERROR_INIT;
  uint64_t bytes = 0;
  const int32_t rc = bs_rank_device_flush(rank, &bytes, &why);
  if (rc == BS_UNSUPPORTED) return bs_flush_run(arm->flush, rank, err);
  if (rc != BS_OK && err != NULL) *err = why;
  if (rc == BS_OK) atomic_store(&arm->device_flush, bytes);
  return rc;
}

/* Runs each forward separately: caches flushed, a barrier, then the clock. */
static int32_t run_cold(bs_arm *arm, bs_rank *rank, uint32_t index, built *b, uint64_t n, bs_error *err) {
  uint64_t took = 0;
  rank_told told = {0};
  int32_t rc = BS_OK;
  for (uint64_t i = 0; rc == BS_OK && i < n; ++i) {
    rc = flush_rank(arm, rank, err);
    count_used(rank, -1.0, &told);
    if (rc == BS_OK) rc = bs_rank_barrier(rank, "lab.batch", err);
    const uint64_t start = bs_rank_clock_ns(rank);
    if (rc == BS_OK) rc = bs_arm_work_once(&arm->tensors[index], b->layer, &b->x, &b->y, err);
    if (rc == BS_OK) rc = bs_rank_sync(rank, err);
    took += bs_rank_clock_ns(rank) - start;
    count_used(rank, 1.0, &told);
  }
  told.seconds = (double)took * 1e-9 / (double)n;
  arm->told[index] = told;
  return rc == BS_OK ? share_told(arm, rank, index, err) : rc;
}

static void drop(bs_arm *arm, bs_rank *rank, uint32_t index, built *b) {
  const bs_rank_api *api = bs_rank_get_api();
  bs_arm_work_free(rank, &arm->tensors[index]);
  if (b->y.data) api->tensor_free(rank, &b->y);
  if (b->x.data) api->tensor_free(rank, &b->x);
  bs_layer_free(b->layer);
  free(b->spacer);
  *b = (built){0};
}

static int32_t build(bs_arm *arm, bs_rank *rank, uint32_t index, built *b, bs_error *err) {
  const bs_case *c = &arm->c;
  b->spacer = bs_spacer_take();
  bs_region_stats before = {.struct_size = sizeof before}, pack = before;
  int64_t first = 0, rows = 0, cols = 0;
  int32_t rc = bs_rank_region_stats(rank, BS_REGION_PACK, &before, err);
  const uint64_t start = bs_rank_clock_ns(rank);
  if (rc == BS_OK) rc = bs_layer_build(rank, c->method, &c->spec, c->w, c->bias, &b->layer, err);
  arm->building[index].all = (double)(bs_rank_clock_ns(rank) - start) * 1e-9;
  if (rc == BS_OK) rc = bs_rank_region_stats(rank, BS_REGION_PACK, &pack, err);
  arm->building[index].pack = (pack.sum_ms - before.sum_ms) * 1e-3;
  if (rc == BS_OK) rc = bs_case_input(c, rank, b->layer, c->x, &b->x, err);
  if (rc == BS_OK) rc = bs_case_features(c, b->layer, index, &first, &cols, err);
  bs_place_tokens(c, c->spec.y_placement, index, &first, &rows);
  if (rc == BS_OK) rc = bs_case_tensor(rank, c->spec.y_dtype, 2, rows, cols, &b->y, err);
  if (rc == BS_OK) rc = share_building(arm, rank, index, err);
  if (rc == BS_OK) rc = bs_arm_work_take(rank, b->layer, &c->spec, &b->x, &b->y, &arm->tensors[index], err);
  return rc;
}

static int32_t obey(bs_arm *arm, bs_rank *rank, uint32_t index, built *b, uint32_t command, uint64_t lead,
                    uint64_t n, bs_error *err) {
  int32_t rc = BS_OK;
  switch (command) {
    case COMMAND_RESET:
      bs_rank_regions_reset(rank);
      bs_rank_counters_reset(rank);
      return BS_OK;
    case COMMAND_DROP:
      drop(arm, rank, index, b);
      return BS_OK;
    case COMMAND_BUILD:
      return build(arm, rank, index, b, err);
    case COMMAND_COLD:
      rc = run_cold(arm, rank, index, b, n, err);
      break;
    default:
      rc = run_batch(arm, rank, index, b, lead, n, err);
  }
  if (rc == BS_OK) look_at_clock(arm, rank);
  return rc;
}

static int32_t arm_rank_main(bs_rank *rank, void *arg, bs_error *err) {
  bs_arm *arm = arg;
  const uint32_t index = bs_rank_get_api()->rank(rank);
  built b = {0};
  uint64_t seen = 0, lead = 0, n = 0;
  int32_t rc = build(arm, rank, index, &b, err);
  while (rc == BS_OK) {
    rank_done(arm);
    const uint32_t command = wait_command(arm, &seen, &lead, &n);
    if (command == COMMAND_STOP) break;
    rc = obey(arm, rank, index, &b, command, lead, n, err);
  }
  if (rc != BS_OK) rank_failed(arm);
  drop(arm, rank, index, &b);
  return rc;
}

static void *arm_thread(void *arg) {
  bs_arm *arm = arg;
  bs_error err = BS_ERROR_INIT;
  const int32_t status = bs_world_run(arm->world, arm_rank_main, arm, &err);
  pthread_mutex_lock(&arm->lock);
  arm->status = status;
  arm->error = err;
  arm->ended = 1;
  pthread_cond_broadcast(&arm->changed);
  pthread_mutex_unlock(&arm->lock);
  return NULL;
}

/* Waits until every rank has finished the newest command, or the world has ended. */
static int32_t await(bs_arm *arm, bs_error *err) {
  pthread_mutex_lock(&arm->lock);
  while (arm->done_ranks < arm->here && !arm->ended) pthread_cond_wait(&arm->changed, &arm->lock);
  const int finished = arm->done_ranks >= arm->here;
  pthread_mutex_unlock(&arm->lock);
  if (finished) return bs_stop_check(err); /* a sample is finished before a signal is handled */
  if (err) *err = arm->error;
  return arm->status != BS_OK ? arm->status : BS_INTERNAL;
}

static void post(bs_arm *arm, uint32_t command, uint64_t lead, uint64_t batch) {
  pthread_mutex_lock(&arm->lock);
  arm->command = command;
  arm->lead = lead;
  arm->batch = batch;
  arm->done_ranks = 0;
  ++arm->posted;
  pthread_cond_broadcast(&arm->changed);
  pthread_mutex_unlock(&arm->lock);
}

int32_t bs_arm_open(const bs_case *c, const char *name, bs_arm **out, bs_error *err) {
  return bs_arm_open_work(c, name, BS_ARM_FORWARD, 0, out, err);
}

int32_t bs_arm_open_work(const bs_case *c, const char *name, uint32_t work, uint32_t number, bs_arm **out,
                         bs_error *err) {
  *out = NULL;
  if (bs_clock_is_virtual(c->context,
                          c->comm)) { /* its ranks share this thread: no command would reach them */
    bs_error_set(err, BS_UNSUPPORTED, "BS-ARM-DRIVEN",
                 "%s: times of communicator %s are virtual: not sampled", name, c->comm);
    bs_error_hint(err, "bsrun --phase time simulates one method at a time");
    return BS_UNSUPPORTED;
  }
  bs_arm *arm = calloc(1, sizeof *arm);
  if (!arm) return bs_no_memory(err, "an arm");
  arm->c = *c;
  arm->number = number;
  snprintf(arm->name, sizeof arm->name, "%s", name);
  arm->spacer = bs_spacer_take();
  pthread_mutex_init(&arm->lock, NULL);
  pthread_cond_init(&arm->changed, NULL);
  arm->c.spec.flags |= bs_arm_work_flags(work);
  arm->tensors = calloc(c->world_size, sizeof *arm->tensors);
  for (uint32_t r = 0; arm->tensors && r < c->world_size; ++r) arm->tensors[r].work = work;
  arm->told = calloc(c->world_size, sizeof *arm->told);
  arm->counted = calloc(c->world_size, sizeof *arm->counted);
  arm->building = calloc(c->world_size, sizeof *arm->building);
  arm->joint = c->peers != NULL && c->world_size > 1;
  arm->here = arm->joint ? 1 : c->world_size;
  if (!arm->joint) arm->c.peers = NULL;
  arm->c.fault = NULL;
  arm->c.hook = NULL;
  int32_t rc = BS_OK;
  if (!arm->tensors || !arm->told || !arm->counted || !arm->building)
    rc = bs_no_memory(err, "%u ranks", c->world_size);
  if (rc == BS_OK) rc = bs_case_world(&arm->c, &arm->world, err);
  if (rc == BS_OK && pthread_create(&arm->thread, NULL, arm_thread, arm) != 0) {
    rc = bs_error_set(err, BS_NO_MEMORY, "BS-ARM-THREAD", "cannot start a thread for arm %s", name);
  } else if (rc == BS_OK) {
    arm->started = 1;
    rc = await(arm, err);
  }
  if (rc != BS_OK) {
    bs_arm_close(arm, NULL, NULL);
    return rc;
  }
  *out = arm;
  return BS_OK;
}

/* Runs one command on all ranks: rank 0 sends it to the other processes, which follow (bs_arm_follow). */
static int32_t run_command(bs_arm *arm, uint32_t command, uint64_t lead, uint64_t n, bs_error *err) {
  const bs_told told = {.word = BS_WORD_BATCH, .what = command, .lead = lead, .n = n, .arm = arm->number};
  int32_t rc = BS_OK;
  if (command == COMMAND_COLD && !arm->flush) rc = bs_flush_make(&arm->flush, err);
  if (rc == BS_OK && arm->joint) rc = bs_peers_tell(arm->c.peers, &told, err);
  if (rc != BS_OK) return rc;
  post(arm, command, lead, n);
  return await(arm, err);
}

int32_t bs_arm_follow(bs_arm *arm, const bs_told *told, bs_error *err) {
  return run_command(arm, told->what, told->lead, told->n, err);
}

static int32_t batch(bs_arm *arm, uint32_t command, uint64_t lead, uint64_t n, bs_sample *out,
                     bs_error *err) {
  const int32_t rc = run_command(arm, command, lead, n > 0 ? n : 1, err);
  *out = (bs_sample){0};
  for (uint32_t r = 0; rc == BS_OK && r < arm->c.world_size; ++r) {
    out->seconds = fmax(out->seconds, arm->told[r].seconds);
    out->switches += (uint64_t)arm->told[r].switches;
    out->cpu_ns += (uint64_t)arm->told[r].cpu_ns;
    if (r < BS_SAMPLE_RANKS) {
      out->rank_seconds[r] = arm->told[r].seconds;
      out->ranks = r + 1;
    }
  }
  return rc;
}

int32_t bs_arm_batch(void *arm, uint64_t lead, uint64_t n, bs_sample *out, bs_error *err) {
  return batch(arm, COMMAND_BATCH, lead, n, out, err);
}

int32_t bs_arm_batch_cold(void *arm, uint64_t lead, uint64_t n, bs_sample *out, bs_error *err) {
  (void)lead;
  return batch(arm, COMMAND_COLD, 0, n, out, err);
}

int bs_arms_backwards(uint64_t seed, uint32_t build) {
  uint32_t draw = 0;
  bs_rng_bits(seed, ORDER_STREAM, 0, 1, &draw);
  return (int)((draw + build) & 1);
}

int32_t bs_arms_rebuild(bs_arm *const *arms, uint32_t n, int backwards, bs_error *err) {
  int32_t rc = BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < n; ++i) rc = run_command(arms[i], COMMAND_DROP, 0, 0, err);
  bs_spacer_return_pages();
  for (uint32_t i = 0; rc == BS_OK && i < n; ++i)
    rc = run_command(arms[backwards ? n - 1 - i : i], COMMAND_BUILD, 0, 0, err);
  return rc;
}

int32_t bs_arm_reset(bs_arm *arm, int clocks, bs_error *err) {
  if (clocks) bs_clocks_reset(&arm->clocks); /* all ranks wait for a command */
  return run_command(arm, COMMAND_RESET, 0, 0, err);
}

/* Sums the use of the ranks that are processes on this machine, from their reports after the newest batch. */
static void used_elsewhere(void *user, bs_process_use *out) {
  const bs_arm *arm = user;
  for (uint32_t r = 1; r < arm->c.world_size; ++r) { /* rank 0 samples */
    if (arm->told[r].machine != arm->told[0].machine) continue;
    out->cpu_s += arm->told[r].used_s;
    out->waited_s += fmax(arm->told[r].waited_s, 0.0);
  }
}

uint32_t bs_host_threads(bs_context *context, const char *name, uint32_t ranks, uint32_t threads) {
  const bs_backend *backend = NULL;
  void *state = NULL;
  const int found = bs_find_backend(context, name, &backend, &state, NULL) == BS_OK;
  return found && (backend->flags & BS_BACKEND_HOST_MEMORY) == 0 ? ranks : ranks * threads;
}

bs_sampler_arm bs_arm_sampled(bs_arm *arm, const char *name, uint32_t phase) {
  return (bs_sampler_arm){
      .name = name,
      .user = arm,
      .batch = phase == BS_TIME_COLD ? bs_arm_batch_cold : bs_arm_batch,
      .threads = bs_host_threads(arm->c.context, arm->c.backend, arm->c.world_size, arm->c.threads_per_rank),
      .elsewhere = arm->joint ? used_elsewhere : NULL};
}

bs_span bs_arm_build(const bs_arm *arm) {
  double most = 0.0;
  for (uint32_t r = 0; r < arm->c.world_size; ++r) most = fmax(most, arm->building[r].all);
  return bs_span_make(BS_TIME_BUILD, most, 1);
}
bs_span bs_arm_pack(const bs_arm *arm) {
  double most = 0.0;
  for (uint32_t r = 0; r < arm->c.world_size; ++r) most = fmax(most, arm->building[r].pack);
  return bs_span_make(BS_TIME_PACK, most, 1);
}
const bs_clocks *bs_arm_clocks(const bs_arm *arm) {
  return &arm->clocks;
}
uint64_t bs_arm_flush_bytes(const bs_arm *arm) {
  const uint64_t device = atomic_load(&arm->device_flush);
  return device > 0 ? device : arm->flush ? bs_flush_bytes(arm->flush) : 0;
}

static int32_t collect(bs_arm *arm, bs_case_result *out, bs_error *err) {
  out->world_size = arm->c.world_size;
  out->ranks = calloc(out->world_size, sizeof *out->ranks);
  if (!out->ranks) return bs_no_memory(err, "%u ranks", out->world_size);
  for (uint32_t r = 0; r < out->world_size; ++r)
    memcpy(out->ranks[r].counters, arm->counted[r], sizeof out->ranks[r].counters);
  return bs_case_collect(&arm->c, arm->world, out, err);
}

int32_t bs_arm_close(bs_arm *arm, bs_case_result *out, bs_error *err) {
  int32_t rc = BS_OK;
  if (arm->started) {
    post(arm, COMMAND_STOP, 0, 0);
    pthread_join(arm->thread, NULL);
    rc = arm->status;
    if (rc != BS_OK && err) *err = arm->error;
  }
  const bs_told told = {.word = BS_WORD_CLOSE, .what = out != NULL && rc == BS_OK, .arm = arm->number};
  if (arm->joint && arm->world) {
    const int32_t telling = bs_peers_tell(arm->c.peers, &told, rc == BS_OK ? err : NULL);
    if (rc == BS_OK) rc = telling;
  }
  if (out) {
    memset(out, 0, sizeof *out);
    if (rc == BS_OK) rc = collect(arm, out, err);
  }
  if (bs_context_stuck(arm->c.context) > 0)
    return rc; /* a rank that has not returned may still use all of
                * it */
  bs_world_destroy(arm->world);
  pthread_cond_destroy(&arm->changed);
  pthread_mutex_destroy(&arm->lock);
  free(arm->spacer);
  free(arm->tensors);
  free(arm->told);
  free(arm->counted);
  free(arm->building);
  bs_flush_free(arm->flush);
  free(arm);
  return rc;
}
