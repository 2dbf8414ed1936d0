/* SPDX-License-Identifier: MIT
 * ranks.c - the rows that need ranks: a hello of each, the region timer against a known sleep, an all-reduce
 * of the rank numbers that must be right, and the same, on every rank. */
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "lab/doctor/doctor.h"
#include "lab/error.h"
#include "lab/peers/exchange.h"

enum { VALUES = 257 }; /* more than a cache line, and no whole number of vectors */

typedef struct hello {
  int cpu;
  int allowed; /* cores that the rank's thread may use */
  atomic_uint members;
  double sleep_ms;
  float sums[VALUES];
} hello;

typedef struct meeting {
  uint32_t ranks;
  hello *of;
} meeting;

static void count_member(void *arg, uint32_t member, uint32_t width) {
  (void)member, (void)width;
  atomic_fetch_add((atomic_uint *)arg, 1);
}

static int32_t time_sleep(bs_rank *rank, double *out_ms, bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  const uint32_t region = api->region_named(rank, "doctor.sleep");
  struct timespec left = {0, 50000000};
  api->region_begin(rank, region);
  while (nanosleep(&left, &left) != 0) continue; /* a signal's rest */
  api->region_end(rank, region);
  bs_region_stats stats = {.struct_size = sizeof stats};
  const int32_t rc = bs_rank_region_stats(rank, region, &stats, err);
  *out_ms = stats.sum_ms;
  return rc;
}

/* Element i of rank r is r + i; the sum over P ranks is P i + P (P - 1) / 2, exact in fp32. */
static int32_t add_ranks(bs_rank *rank, uint32_t index, float *sums, bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  float mine[VALUES];
  bs_source source = {0};
  bs_tensor t = {0};
  bs_coll_plan *plan = NULL;
  bs_tensor_desc desc = {.struct_size = sizeof desc, .dtype = BS_F32, .rank = 2, .dims = {1, VALUES}};
  const bs_collective what = bs_exchange_of(BS_COLL_ALL_REDUCE, BS_F32, VALUES, 0, "doctor.all_reduce");
  for (int i = 0; i < VALUES; i++) mine[i] = (float)index + (float)i;
  int32_t rc = bs_source_from_memory(mine, BS_F32, 1, VALUES, VALUES, &source, err);
  if (rc == BS_OK) rc = api->tensor_alloc(rank, &desc, BS_LIFE_SCRATCH, &t, err);
  if (rc == BS_OK) rc = api->tensor_read(rank, &source, 0, NULL, &t, err);
  if (rc == BS_OK) rc = api->collective_prepare(rank, &what, &plan, err);
  if (rc == BS_OK) rc = api->collective_run(plan, &t, &t, NULL, err);
  if (rc == BS_OK) rc = bs_rank_copy_out(rank, &t, sums, err);
  if (plan != NULL) api->collective_release(plan);
  if (t.data != NULL) api->tensor_free(rank, &t);
  bs_source_release(&source);
  return rc;
}

static int32_t meet(bs_rank *rank, void *arg, bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  const uint32_t index = api->rank(rank);
  hello *mine = &((meeting *)arg)->of[index];
  cpu_set_t set;
  mine->cpu = sched_getcpu();
  mine->allowed = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
  int32_t rc = api->parallel_for(rank, count_member, &mine->members);
  if (rc == BS_OK) rc = bs_rank_barrier(rank, "doctor.hello", err);
  if (rc == BS_OK) rc = time_sleep(rank, &mine->sleep_ms, err);
  return rc == BS_OK ? add_ranks(rank, index, mine->sums, err) : rc;
}

uint32_t bs_doctor_judge_sleep(double milliseconds) {
  return milliseconds >= 50.0 && milliseconds <= 60.0 ? BS_CHECK_OK : BS_CHECK_WARN;
}

static void tell_sleep(bs_doctor *d, const meeting *m) {
  double least = m->of[0].sleep_ms, most = least;
  for (uint32_t r = 1; r < m->ranks; r++) {
    if (m->of[r].sleep_ms < least) least = m->of[r].sleep_ms;
    if (m->of[r].sleep_ms > most) most = m->of[r].sleep_ms;
  }
  const uint32_t low = bs_doctor_judge_sleep(least), high = bs_doctor_judge_sleep(most);
  bs_doctor_add(d, "region timer", low > high ? low : high,
                least < 50.0 ? "the clock runs slow: times are not to be trusted here"
                             : "ranks wake late: the machine is busy, or its clock is emulated",
                "a sleep of 50 ms took %.2f to %.2f ms over %u rank%s", least, most, m->ranks,
                m->ranks == 1 ? "" : "s");
}

static void tell_sums(bs_doctor *d, const meeting *m) {
  const double P = m->ranks, ranks_sum = P * (P - 1) / 2;
  for (uint32_t r = 0; r < m->ranks; r++) {
    for (int i = 0; i < VALUES; i++) {
      const double want = P * i + ranks_sum;
      if ((double)m->of[r].sums[i] == want) continue;
      d->wrong = 1;
      bs_doctor_add(d, "all-reduce", BS_CHECK_FAIL,
                    "the communicator adds wrongly: use another (hardware.comm), report this one",
                    "rank %u has %g as sum %d over %u ranks, %g is right", r, (double)m->of[r].sums[i], i,
                    m->ranks, want);
      return;
    }
  }
  bs_doctor_add(d, "all-reduce", BS_CHECK_OK, NULL, "the rank numbers add up to %.0f on all of %u rank%s",
                ranks_sum, m->ranks, m->ranks == 1 ? "" : "s");
}

static void tell_hello(bs_doctor *d, const meeting *m, uint32_t threads) {
  for (uint32_t r = 0; r < m->ranks; r++) {
    char what[32];
    const unsigned members = atomic_load(&m->of[r].members);
    snprintf(what, sizeof what, "rank %u", r);
    bs_doctor_add(d, what, members == threads ? BS_CHECK_OK : BS_CHECK_FAIL,
                  "the rank's team has not the width that was asked for: report this",
                  "hello from cpu %d: %u of %u thread%s answered; may use %d core%s", m->of[r].cpu, members,
                  threads, threads == 1 ? "" : "s", m->of[r].allowed, m->of[r].allowed == 1 ? "" : "s");
  }
}

void bs_doctor_ranks(bs_doctor *d, bs_context *context) {
  bs_error err = BS_ERROR_INIT;
  bs_world *world = NULL;
  meeting m = {d->ranks, calloc(d->ranks, sizeof *m.of)};
  const bs_world_options options = {.struct_size = sizeof options,
                                    .world_size = d->ranks,
                                    .backend = d->backend,
                                    .comm = d->comm,
                                    .bind = 1,
                                    .sync_mode = BS_SYNC_SYNC,
                                    .timeout_s = d->timeout_s};
  int32_t rc = m.of == NULL ? bs_no_memory(&err, "%u ranks", d->ranks)
                            : bs_world_create(context, &options, &world, &err);
  if (rc == BS_OK) rc = bs_world_run(world, meet, &m, &err);
  if (rc == BS_OK) {
    tell_hello(d, &m, bs_world_threads_per_rank(world));
    tell_sleep(d, &m);
    tell_sums(d, &m);
  } else {
    bs_doctor_error(d, "ranks", &err);
  }
  bs_world_destroy(world);
  free(m.of);
}
