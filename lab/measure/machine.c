/* SPDX-License-Identifier: MIT
 * machine.c - measured limits of the machine. */
#include "lab/measure/machine.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "lab/cores.h"
#include "lab/error.h"
#include "lab/measure/arm.h"
#include "lab/measure/peak.h"
#include "lab/peers/exchange.h"
#include "lab/peers/peers.h"
#include "lab/process/child.h"

enum {
  MAX_THREADS = 64,
  REPEATS = 3,
  PASSES = 6,
  FMA_ITERATIONS = 300000,

  READ_BLOCK = 4096,
  READ_OFTEN = 32 << 20
};
#define HUGE_PAGE ((size_t)2 << 20)

void bs_passes_add(bs_passes *p, double seconds) {
  if (p->n++ == 0 || seconds < p->best) {
    p->second = p->n == 1 ? INFINITY : p->best;
    p->best = seconds;
  } else if (seconds < p->second) {
    p->second = seconds;
  }
}

double bs_passes_spread(const bs_passes *p) {
  return p->n > 1 && p->best > 0.0 ? p->second / p->best - 1.0 : 0.0;
}

int bs_passes_enough(const bs_passes *p) {
  return p->n >= PASSES || (p->n > 1 && bs_passes_spread(p) <= BS_SAME_PASSES);
}

static int enough(const bs_passes *p, size_t n) {
  int all = 1;
  for (size_t i = 0; i < n; ++i) all = all && bs_passes_enough(&p[i]);
  return all;
}

static void spread_of(bs_machine *m, const bs_passes *p, size_t n) {
  for (size_t i = 0; i < n; ++i) m->spread = fmax(m->spread, bs_passes_spread(&p[i]));
}

/* Threads wait here until all have been started, or until it is known that they will not be. */
typedef struct probe_gate {
  pthread_mutex_t lock;
  pthread_barrier_t barrier;
  int closed;
} probe_gate;

typedef struct probe {
  probe_gate *gate;
  uint64_t *data; /* NULL: no memory rates */
  size_t words;
  uint32_t dtype; /* 0: no multiply-adds */
  int avx2_only;
  double flops; /* per second, the best loop */
  double seconds_read;
  double seconds_copy;
  const char *loop;
  volatile double sink;
} probe;

static void probe_peak(probe *p) {
  bs_peak loops[BS_PEAKS];
  const uint32_t count = bs_peak_loops(p->dtype, p->avx2_only, loops, BS_PEAKS);
  for (uint32_t i = 0; i < count; ++i) {
    pthread_barrier_wait(&p->gate->barrier);
    const double start = bs_process_now();
    p->sink = (double)loops[i].run(FMA_ITERATIONS);
    const double rate = FMA_ITERATIONS * loops[i].flops_per_iteration / (bs_process_now() - start);
    if (rate <= p->flops) continue;
    p->flops = rate;
    p->loop = loops[i].name;
  }
}

static const bs_reader *widest_reader(int avx2_only) {
  const bs_reader *widest = NULL;
  for (uint32_t i = 0; i < BS_READERS; ++i) {
    const bs_reader *reader = bs_reader_at(i, avx2_only);
    if (reader != NULL) widest = reader;
  }
  return widest;
}

static void probe_memory(probe *p) {
  const size_t half = p->words / 2, bytes = p->words * sizeof *p->data / BS_READ_UNIT * BS_READ_UNIT;
  const bs_reader *reader = widest_reader(p->avx2_only);
  const int times = bytes < READ_OFTEN ? 8 : 2; /* a short reading is easily disturbed */
  for (int i = 0; i < times; ++i) {
    const size_t step = i % 2 == 0 ? 0 : READ_BLOCK; /* four runs side by side, or blocks of them */
    pthread_barrier_wait(&p->gate->barrier);
    const double start = bs_process_now();
    p->sink = (double)reader->run((const char *)p->data, bytes, step);
    const double took = bs_process_now() - start;
    if (took < p->seconds_read) p->seconds_read = took;
  }
  pthread_barrier_wait(&p->gate->barrier);
  const double start = bs_process_now();
  memcpy(p->data + half, p->data, half * sizeof *p->data);
  const double took = bs_process_now() - start;
  if (took < p->seconds_copy) p->seconds_copy = took;
}

static void *probe_thread(void *arg) {
  probe *p = arg;
  pthread_mutex_lock(&p->gate->lock);
  const int closed = p->gate->closed;
  pthread_mutex_unlock(&p->gate->lock);
  if (closed) return NULL;
  p->seconds_read = p->seconds_copy = 1e30;
  for (int i = 0; i < REPEATS; ++i) {
    if (p->dtype != 0) probe_peak(p);
    if (p->data != NULL) probe_memory(p);
  }
  return NULL;
}

/* Runs all threads at the same time; the sum of their rates. */
static int32_t probe_threads(uint32_t threads, probe *probes, bs_error *err) {
  pthread_t ids[MAX_THREADS];
  probe_gate gate = {.lock = PTHREAD_MUTEX_INITIALIZER};
  uint32_t started = 0;
  pthread_barrier_init(&gate.barrier, NULL, threads);
  pthread_mutex_lock(&gate.lock);
  for (uint32_t i = 0; i < threads; ++i) probes[i].gate = &gate;
  while (started + 1 < threads && pthread_create(&ids[started], NULL, probe_thread, &probes[started]) == 0) {
    ++started;
  }
  gate.closed = started + 1 < threads;
  pthread_mutex_unlock(&gate.lock);
  probe_thread(&probes[threads - 1]);
  for (uint32_t i = 0; i < started; ++i) pthread_join(ids[i], NULL);
  pthread_barrier_destroy(&gate.barrier);
  if (gate.closed)
    return bs_error_set(err, BS_NO_MEMORY, "BS-MACHINE-THREAD", "cannot start %u threads", threads);
  return BS_OK;
}

/* All threads' rates together: seconds of a flop, a byte read, a byte copied. */
enum { FLOPS, READ, COPY, RATES };

static int32_t one_pass(uint32_t threads, probe *probes, size_t each, bs_passes *out, bs_error *err) {
  double sum[RATES] = {0};
  const int32_t rc = probe_threads(threads, probes, err);
  const uint64_t copied = each / 2 * 2; /* read and written */
  for (uint32_t i = 0; rc == BS_OK && i < threads; ++i) {
    sum[FLOPS] += probes[i].flops;
    sum[READ] += (double)each * sizeof(uint64_t) / probes[i].seconds_read;
    sum[COPY] += (double)copied * sizeof(uint64_t) / probes[i].seconds_copy;
    probes[i].flops = 0.0;
  }
  for (int i = 0; rc == BS_OK && i < RATES; ++i) bs_passes_add(&out[i], sum[i] > 0.0 ? 1.0 / sum[i] : 0.0);
  return rc;
}

static int32_t rates(uint32_t threads, uint32_t dtype, uint64_t *data, size_t words, bs_machine *out,
                     bs_error *err) {
  const size_t each = words / threads;
  const int core = threads == 1;
  bs_passes passes[RATES] = {{0}};
  int32_t rc = BS_OK;
  probe *probes = calloc(threads, sizeof *probes);
  if (!probes) return bs_no_memory(err, "%u probes", threads);
  for (uint32_t i = 0; i < threads; ++i)
    probes[i] = (probe){.dtype = dtype,
                        .avx2_only = out->avx2_only != 0,
                        .words = each,
                        .data = data == NULL ? NULL : data + (size_t)i * each};
  while (rc == BS_OK && !enough(passes, RATES)) rc = one_pass(threads, probes, each, passes, err);
  spread_of(out, passes, RATES);
  if (rc == BS_OK && dtype != 0) {
    *(core ? &out->flops_core : &out->flops_all) = 1.0 / passes[FLOPS].best;
    snprintf(out->loop, sizeof out->loop, "%s", probes[0].loop);
  }
  if (rc == BS_OK && data != NULL) {
    *(core ? &out->read_core : &out->read_all) = 1.0 / passes[READ].best;
    *(core ? &out->copy_core : &out->copy_all) = 1.0 / passes[COPY].best;
  }
  free(probes);
  return rc;
}

const double bs_exchange_bytes[BS_EXCHANGES] = {4, 65536, 1048576, 4194304};
const char *const bs_exchange_keys[BS_EXCHANGES] = {"all_reduce_4B_s", "all_reduce_64KiB_s",
                                                    "all_reduce_1MiB_s", "all_reduce_4MiB_s"};

static int32_t time_all_reduce(bs_rank *rank, uint64_t count, uint64_t calls, double *out_seconds,
                               bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  bs_tensor_desc desc = {.struct_size = sizeof desc, .dtype = BS_F32, .rank = 2};
  desc.dims[0] = 1;
  desc.dims[1] = (int64_t)count;
  bs_tensor t = {0};
  bs_coll_plan *plan = NULL;
  bs_collective what = bs_exchange_of(BS_COLL_ALL_REDUCE, BS_F32, count, 0, "lab.machine");
  what.flags = BS_COLL_NATIVE;
  int32_t rc = api->tensor_alloc(rank, &desc, BS_LIFE_SCRATCH, &t, err);
  if (rc == BS_OK) rc = api->collective_prepare(rank, &what, &plan, err);
  double best = 1e30;
  for (int i = 0; rc == BS_OK && i < REPEATS; ++i) {
    rc = bs_rank_barrier(rank, "lab.machine.start", err);
    const double start = bs_process_now();
    for (uint64_t k = 0; rc == BS_OK && k < calls; ++k) rc = api->collective_run(plan, &t, &t, NULL, err);
    const double took = (bs_process_now() - start) / (double)calls;
    if (took < best) best = took;
  }
  *out_seconds = best;
  if (plan) api->collective_release(plan);
  if (t.data) api->tensor_free(rank, &t);
  return rc;
}

static int32_t exchange_main(bs_rank *rank, void *arg, bs_error *err) {
  static const uint64_t calls[BS_EXCHANGES] = {500, 50, 8, 3};
  int32_t rc = BS_OK;
  for (int i = 0; rc == BS_OK && i < BS_EXCHANGES; ++i) {
    double seconds = 0.0;
    rc = time_all_reduce(rank, (uint64_t)bs_exchange_bytes[i] / sizeof(float), calls[i], &seconds, err);
    if (rc == BS_OK && bs_rank_get_api()->rank(rank) == 0) ((double *)arg)[i] = seconds;
  }
  return rc;
}

/* Times one pass; ranks that are separate processes get a command for each. */
static int32_t exchange_once(const bs_case *like, double *out_seconds, bs_error *err) {
  const bs_world_options options = {.struct_size = sizeof options,
                                    .world_size = like->world_size,
                                    .backend = like->backend,
                                    .comm = like->comm,
                                    .threads_per_rank = 1,
                                    .bind = like->bind,
                                    .sync_mode = BS_SYNC_NONE,
                                    .timeout_s = like->timeout_s};
  bs_world *world = NULL;
  const bs_told told = {.word = BS_WORD_EXCHANGE};
  int32_t rc = bs_peers_tell(like->peers, &told, err);
  if (rc == BS_OK) rc = bs_world_create(like->context, &options, &world, err);
  if (rc == BS_OK) rc = bs_world_run(world, exchange_main, out_seconds, err);
  bs_world_destroy(world);
  return rc;
}

int32_t bs_machine_exchange(const bs_case *like, bs_machine *out, bs_error *err) {
  bs_passes passes[BS_EXCHANGES] = {{0}};
  double seconds[BS_EXCHANGES] = {0};
  int32_t rc = BS_OK;
  if (like->world_size < 2) return BS_OK;
  do {
    rc = exchange_once(like, seconds, err);
    for (int i = 0; i < BS_EXCHANGES; ++i) bs_passes_add(&passes[i], seconds[i]);
  } while (rc == BS_OK && bs_peers_lead(like->peers) && !enough(passes, BS_EXCHANGES));
  spread_of(out, passes, BS_EXCHANGES);
  for (int i = 0; i < BS_EXCHANGES; ++i) out->exchange[i] = passes[i].best;
  return rc;
}

/* One forward of a layer so small that only the host's part is left. */
int32_t bs_machine_host(const bs_case *like, bs_machine *out, bs_error *err) {
  static const float zeros[64];
  bs_case tiny = *like;
  bs_source x = {0};
  bs_source w = {0};
  int32_t rc = bs_source_from_memory(zeros, BS_F32, 1, 8, 8, &x, err);
  if (rc == BS_OK) rc = bs_source_from_memory(zeros, BS_F32, 8, 8, 8, &w, err);
  tiny.spec = (bs_layer_spec){.struct_size = sizeof tiny.spec,
                              .B = 1,
                              .N = 8,
                              .K = 8,
                              .x_dtype = BS_F32,
                              .w_dtype = BS_F32,
                              .y_dtype = BS_F32};
  tiny.method = "dense";
  tiny.world_size = 1;
  tiny.threads_per_rank = 1;
  tiny.x = &x;
  tiny.w = &w;
  tiny.bias = NULL;
  bs_arm *arm = NULL;
  if (rc == BS_OK) rc = bs_arm_open(&tiny, "host", &arm, err);
  bs_passes passes = {0};
  while (rc == BS_OK && !enough(&passes, 1)) {
    bs_sample sample = {0};
    rc = bs_arm_batch(arm, 1, 500, &sample, err);
    bs_passes_add(&passes, sample.seconds);
  }
  if (arm) {
    const int32_t closed = bs_arm_close(arm, NULL, rc == BS_OK ? err : NULL);
    if (rc == BS_OK) rc = closed;
  }
  bs_source_release(&x);
  bs_source_release(&w);
  spread_of(out, &passes, 1);
  out->host = passes.best;
  return rc;
}

uint32_t bs_machine_threads(void) {
  const uint32_t cores = bs_machine_cores();
  return cores < MAX_THREADS ? cores : MAX_THREADS;
}

double bs_machine_footprint(double bytes) {
  const double least = 1 << 20;
  const double most = 256.0 * (1 << 20);
  return bytes < least ? least : bytes > most ? most : bytes;
}

/* Measures one thread, then all together; with one usable core both give the same rates. */
int32_t bs_machine_rates(uint32_t threads, uint32_t dtype, uint64_t *data, size_t words, bs_machine *out,
                         bs_error *err) {
  const int32_t rc = rates(1, dtype, data, words, out, err);
  if (rc != BS_OK || threads > 1) return rc != BS_OK ? rc : rates(threads, dtype, data, words, out, err);
  out->flops_all = out->flops_core;
  out->read_all = out->read_core;
  out->copy_all = out->copy_core;
  return BS_OK;
}

uint64_t *bs_machine_words(size_t words) {
  const size_t whole = (words * sizeof(uint64_t) / HUGE_PAGE + 1) * HUGE_PAGE;
  void *memory = NULL;
  if (posix_memalign(&memory, HUGE_PAGE, whole) != 0) return NULL;
  (void)madvise(memory, whole, MADV_HUGEPAGE); /* only faster */
  uint64_t *data = memory;
  for (size_t i = 0; i < words; ++i) data[i] = i; /* touched: zero pages would be one page */
  return data;
}

int32_t bs_machine_measure(const bs_case *like, double footprint, bs_machine *out, bs_error *err) {
  memset(out, 0, sizeof *out);
  out->cores = bs_machine_cores();
  out->threads = bs_machine_threads();
  out->footprint = bs_machine_footprint(footprint);
  out->source = "measured";
  const size_t words = (size_t)(out->footprint / sizeof(uint64_t));
  uint64_t *data = bs_machine_words(words);
  if (!data) return bs_no_memory(err, "measuring the read bandwidth");
  int32_t rc = bs_machine_rates(out->threads, like->spec.x_dtype, data, words, out, err);
  free(data);
  if (rc == BS_OK) rc = bs_machine_exchange(like, out, err);
  if (rc == BS_OK) rc = bs_machine_host(like, out, err);
  return rc;
}

double bs_machine_wire(const bs_machine *m, double payload) {
  int i = 1;
  while (i + 1 < BS_EXCHANGES && payload > bs_exchange_bytes[i]) ++i;
  const double from = bs_exchange_bytes[i - 1], to = bs_exchange_bytes[i];
  const double slope = (m->exchange[i] - m->exchange[i - 1]) / (to - from);
  const double seconds = m->exchange[i - 1] + slope * (payload - from);
  return seconds > m->exchange[0] ? seconds : m->exchange[0];
}

json_t *bs_machine_json(const bs_machine *m) {
  json_t *out = json_pack(
      "{s:s,s:s,s:i,s:i,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f}", "source", m->source ? m->source : "measured",
      "arithmetic", m->loop[0] ? m->loop : "unknown", "cores", (int)m->cores, "threads", (int)m->threads,
      "flops_core", m->flops_core, "flops_all", m->flops_all, "read_bytes_per_s_core", m->read_core,
      "read_bytes_per_s_all", m->read_all, "copy_bytes_per_s_core", m->copy_core, "copy_bytes_per_s_all",
      m->copy_all, "read_footprint_bytes", m->footprint, "host_s", m->host, "spread", m->spread);
  for (int i = 0; out && i < BS_EXCHANGES; ++i)
    json_object_set_new(out, bs_exchange_keys[i], json_real(m->exchange[i]));
  if (out && m->measured_at[0]) json_object_set_new(out, "measured_at", json_string(m->measured_at));
  return out;
}
