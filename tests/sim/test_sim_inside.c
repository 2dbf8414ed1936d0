/* SPDX-License-Identifier: MIT
 * test_sim_inside.c - the parts of a device and their laws, to the picosecond: known answers that other
 * programs computed, and links beside a simulation of every flit. */
#include "core/base/error.h"
#include "sim/cache.h"
#include "sim/inside.h"
#include "tests/run_tests.h"
#include "tests/sim/flits.h"

enum { PARTS = 16, LANES = 16, JOBS = 128 };

/* Programs as tables: the jobs of each lane, in order. */
typedef struct bench {
  sim_part parts[PARTS];
  uint32_t n_parts, n_lanes, n_jobs[LANES];
  sim_job jobs[LANES][JOBS];
  uint64_t ends[LANES][JOBS];
  sim_inside_result result;
} bench;

static int next_job(void *user, uint32_t lane, uint64_t index, sim_job *out_job) {
  bench *b = user;
  if (index >= b->n_jobs[lane]) return 0;
  *out_job = b->jobs[lane][index];
  return 1;
}

static void job_ended(void *user, uint32_t lane, uint64_t index, const sim_job *job, uint64_t begin,
                      uint64_t end) {
  bench *b = user;
  (void)job;
  ck_assert_uint_le(begin, end);
  b->ends[lane][index] = end;
}

static void pe_name(void *user, uint32_t lane, char *out, uint32_t size) {
  (void)user;
  snprintf(out, size, "pe%u", lane);
}

static uint32_t add_part(bench *b, uint32_t kind, uint32_t workers, uint64_t first_ns, double rate) {
  sim_part *p = &b->parts[b->n_parts];
  p->kind = kind;
  p->workers = workers;
  p->first = first_ns * 1000;
  p->q32 = rate > 0 ? sim_rate_q32(rate) : 0;
  p->flit = 64;
  p->interleave = 256;
  ck_assert_int_eq(sim_part_open(p), 1);
  return b->n_parts++;
}

static sim_job *add_job(bench *b, uint32_t lane) {
  if (lane >= b->n_lanes) b->n_lanes = lane + 1;
  return &b->jobs[lane][b->n_jobs[lane]++];
}

static void add_stop(sim_job *j, uint32_t part, uint64_t amount) {
  j->stops[j->n_stops++] = (sim_stop){.part = part, .amount = amount};
}

static int32_t try_run(bench *b, bs_error *err) {
  const sim_inside_config config = {.parts = b->parts,
                                    .n_parts = b->n_parts,
                                    .n_lanes = b->n_lanes,
                                    .next = next_job,
                                    .done = job_ended,
                                    .lane_name = pe_name,
                                    .user = b};
  return sim_inside_run(&config, &b->result, err);
}

static uint64_t run(bench *b) {
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(try_run(b, &err) == BS_OK, "%s %s", err.id, err.message);
  return b->result.end;
}

static bench *bench_new(void) {
  bench *b = calloc(1, sizeof *b);
  ck_assert_ptr_nonnull(b);
  return b;
}

static void bench_free(bench *b) {
  for (uint32_t p = 0; p < b->n_parts; p++) sim_part_close(&b->parts[p]);
  free(b);
}

/* ---- K1 to K6 ---------------------------------------------------------------------------------- */

START_TEST(k1_a_server_takes_a_job_a_worker) {
  static const uint64_t ends[] = {0, 3015000, 2010000};
  for (uint32_t workers = 1; workers <= 2; workers++) {
    bench *b = bench_new();
    const uint32_t server = add_part(b, SIM_SERVER, workers, 5, 1e9);
    for (uint32_t l = 0; l < 3; l++) add_stop(add_job(b, l), server, 1000);
    ck_assert_uint_eq(run(b), ends[workers]);
    ck_assert_uint_eq(b->parts[server].busy, 3015000);
    ck_assert_uint_eq(b->parts[server].amount, 3000);
    bench_free(b);
  }
}
END_TEST

START_TEST(a_server_counts_in_its_grain) {
  bench *b = bench_new();
  const uint32_t server = add_part(b, SIM_SERVER, 1, 0, 1e9);
  b->parts[server].grain = 16;
  add_stop(add_job(b, 0), server, 17);
  ck_assert_uint_eq(run(b), 32000);
  bench_free(b);
}
END_TEST

START_TEST(k2_a_token_goes_through_hops_without_a_stop) {
  static const struct {
    double middle;
    uint64_t ps;
  } rows[] = {{128e9, 38000}, {64e9, 69500}};
  for (int i = 0; i < TEST_COUNT(rows); i++) {
    bench *b = bench_new();
    sim_job *j = add_job(b, 0);
    for (uint32_t h = 0; h < 3; h++)
      add_stop(j, add_part(b, SIM_LINK, 1, 2, h == 1 ? rows[i].middle : 128e9), 4096);
    ck_assert_uint_eq(run(b), rows[i].ps);
    bench_free(b);
  }
}
END_TEST

START_TEST(k2_two_tokens_meet_on_a_wire) {
  bench *b = bench_new();
  const uint32_t a = add_part(b, SIM_LINK, 1, 2, 128e9), c = add_part(b, SIM_LINK, 1, 2, 128e9),
                 shared = add_part(b, SIM_LINK, 1, 2, 128e9);
  for (uint32_t l = 0; l < 2; l++) {
    sim_job *j = add_job(b, l);
    add_stop(j, l == 0 ? a : c, 4096);
    add_stop(j, shared, 4096);
  }
  run(b);
  ck_assert_uint_eq(b->ends[0][0], 36000);
  ck_assert_uint_eq(b->ends[1][0], 68000);
  ck_assert_uint_eq(b->parts[shared].waited, 32000);
  bench_free(b);
}
END_TEST

START_TEST(k3_a_memory_serves_pieces_by_channel) {
  static const struct {
    uint64_t bytes, pitch, gap_ns, ps;
    uint32_t rows;
  } rows[] = {{4096, 0, 0, 72000, 0},       {256, 0, 0, 48000, 0}, {4096, 1024, 0, 168000, 16},
              {4096, 1024, 10, 328000, 16}, {0, 0, 0, 40000, 0},   {4096, 256, 0, 72000, 16},
              {4096, 0, 10, 112000, 0},     {100, 0, 0, 43125, 0}};
  for (int i = 0; i < TEST_COUNT(rows); i++) {
    bench *b = bench_new();
    const uint32_t memory = add_part(b, SIM_MEMORY, 4, 40, 32e9);
    b->parts[memory].gap = rows[i].gap_ns * 1000;
    sim_job *j = add_job(b, 0);
    add_stop(j, memory, rows[i].bytes);
    j->pitch = rows[i].pitch;
    j->rows = rows[i].rows;
    ck_assert_msg(run(b) == rows[i].ps, "row %d: %llu ps", i, (unsigned long long)b->result.end);
    bench_free(b);
  }
}
END_TEST

/* Runs of bytes at any place: the short way round the channels gives what the loop over rows gives. */
START_TEST(a_run_of_bytes_is_its_pieces) {
  uint64_t state = 7;
  for (int i = 0; i < 2000; i++) {
    sim_part by_run = {.kind = SIM_MEMORY, .workers = 7, .interleave = 96, .flit = 32, .first = 500};
    state = state * UINT64_C(6364136223846793005) + 1442695040888963407U;
    const uint64_t address = (state >> 33) % 5000, bytes = 1 + (state >> 20) % 3000;
    by_run.q32 = sim_rate_q32(1e9);
    by_run.gap = 1000;
    sim_part by_rows = by_run;
    ck_assert_int_eq(sim_part_open(&by_run), 1);
    ck_assert_int_eq(sim_part_open(&by_rows), 1);
    sim_flow a = {0, 0, 0}, b = {0, 0, 0};
    sim_part_access(&by_run, &(sim_request){.bytes = bytes, .address = address}, &a);
    /* Two rows, of which the second continues the first. */
    if (bytes % 2 == 0 && address % 96 == 0 && bytes / 2 % 96 == 0) {
      sim_part_access(&by_rows, &(sim_request){bytes, address, bytes / 2, 2}, &b);
      ck_assert_uint_eq(a.whole, b.whole);
      ck_assert_uint_eq(a.head, b.head);
    }
    uint64_t pieces = 0, sum = 0;
    for (uint64_t at = address; at < address + bytes; at += 96 - at % 96) pieces++;
    sum = by_run.busy - pieces * 1000;
    ck_assert_uint_le(sum > bytes * 1000 ? sum - bytes * 1000 : bytes * 1000 - sum, 7);
    sum = 0;
    for (uint32_t c = 0; c < by_run.workers; c++) sum += by_run.served[c];
    ck_assert_uint_eq(sum, by_run.busy);
    sim_part_close(&by_run);
    sim_part_close(&by_rows);
  }
}
END_TEST

START_TEST(k4_a_posted_store_ends_before_its_commit) {
  for (uint32_t posted = 0; posted < 2; posted++) {
    bench *b = bench_new();
    const uint32_t port = add_part(b, SIM_LINK, 1, 0, 256e9), hop = add_part(b, SIM_LINK, 1, 2, 256e9),
                   memory = add_part(b, SIM_MEMORY, 4, 40, 32e9);
    sim_job *j = add_job(b, 0);
    j->posted = posted;
    add_stop(j, port, 256);
    add_stop(j, hop, 256);
    add_stop(j, memory, 256);
    ck_assert_uint_eq(run(b), posted ? 3000 : 50000);
    ck_assert_uint_eq(b->result.settled, 50000);
    ck_assert_uint_eq(b->parts[memory].free[0], 10000);
    bench_free(b);
  }
}
END_TEST

START_TEST(k5_a_counted_queue_is_no_link_of_workers) {
  for (int queue = 0; queue < 2; queue++) {
    bench *b = bench_new();
    const uint32_t link = add_part(b, SIM_LINK, 2, queue ? 0 : 100, 64e9);
    const uint32_t slots = add_part(b, SIM_QUEUE, 2, 100, 0);
    for (uint32_t l = 0; l < 5; l++) {
      sim_job *j = add_job(b, l);
      if (queue) j->stops[j->n_stops++] = (sim_stop){.part = slots, .how = SIM_TAKE};
      add_stop(j, link, 65536);
    }
    ck_assert_uint_eq(run(b), queue ? 3372000 : 3172000);
    bench_free(b);
  }
}
END_TEST

/* The slot of job 0 is held until job 1 ends: the second lane begins then. */
START_TEST(a_slot_can_outlive_its_job) {
  bench *b = bench_new();
  const uint32_t server = add_part(b, SIM_SERVER, 4, 10, 0), slots = add_part(b, SIM_QUEUE, 1, 0, 0);
  for (uint32_t l = 0; l < 2; l++)
    for (uint32_t i = 0; i < 2; i++) {
      sim_job *j = add_job(b, l);
      if (i == 0) j->stops[j->n_stops++] = (sim_stop){.part = slots, .how = SIM_TAKE, .until = 1};
      add_stop(j, server, 0);
      if (i == 1) j->needs[j->n_needs++] = 1;
    }
  ck_assert_uint_eq(run(b), 40000);
  ck_assert_uint_eq(b->ends[0][1], 20000);
  bench_free(b);
}
END_TEST

START_TEST(k6_a_cache_keeps_the_tiles_used_last) {
  static const uint64_t hits[] = {8, 0};
  for (uint32_t tiles = 4; tiles <= 5; tiles++) {
    bench *b = bench_new();
    const uint32_t cache = b->n_parts;
    b->parts[cache].bytes = 4000;
    add_part(b, SIM_CACHE, 1, 0, 0);
    const uint32_t behind = add_part(b, SIM_MEMORY, 1, 100, 0), slices = add_part(b, SIM_MEMORY, 1, 10, 0);
    b->parts[cache].hit = slices;
    for (uint32_t i = 0; i < 3 * tiles; i++) {
      sim_job *j = add_job(b, 0);
      j->key = i % tiles;
      add_stop(j, cache, 1000);
      add_stop(j, behind, 1000);
      add_stop(j, slices, 1000);
      if (i > 0) j->needs[j->n_needs++] = 1;
    }
    const uint64_t n = hits[tiles - 4];
    ck_assert_uint_eq(run(b), (3 * tiles - n) * 110000 + n * 10000);
    ck_assert_uint_eq(sim_cache_hits(b->parts[cache].cache), n);
    ck_assert_uint_eq(b->parts[behind].jobs, 3 * tiles - n);
    bench_free(b);
  }
}
END_TEST

/* Three lanes want one tile at once: one brings it, and the others go on when it has committed. */
START_TEST(who_hits_a_line_under_way_waits_for_its_fill) {
  bench *b = bench_new();
  const uint32_t cache = b->n_parts;
  b->parts[cache].bytes = 4000;
  add_part(b, SIM_CACHE, 1, 0, 0);
  const uint32_t behind = add_part(b, SIM_MEMORY, 1, 100, 10e9), slices = add_part(b, SIM_MEMORY, 1, 10, 0);
  b->parts[cache].hit = slices;
  for (uint32_t l = 0; l < 3; l++) {
    sim_job *j = add_job(b, l);
    add_stop(j, cache, 1000);
    add_stop(j, behind, 1000);
    add_stop(j, slices, 1000);
  }
  ck_assert_uint_eq(run(b), 210000);
  for (uint32_t l = 0; l < 3; l++) ck_assert_uint_eq(b->ends[l][0], 210000);
  ck_assert_uint_eq(b->parts[behind].jobs, 1);
  bench_free(b);
}
END_TEST

/* Lanes 0 and 1 share a near cache, lane 2 has another, all share the far one: the memory gives the tile
 * once, and passes the slices once for each near cache. */
START_TEST(one_pass_of_the_slices_serves_neighbours) {
  bench *b = bench_new();
  uint32_t near[2], wires[2];
  for (uint32_t i = 0; i < 2; i++) {
    near[i] = b->n_parts;
    b->parts[near[i]].bytes = 1000;
    add_part(b, SIM_CACHE, 1, 0, 0);
    wires[i] = add_part(b, SIM_MEMORY, 1, 1, 0);
    b->parts[near[i]].hit = wires[i];
  }
  const uint32_t far = b->n_parts;
  b->parts[far].bytes = 4000;
  add_part(b, SIM_CACHE, 1, 0, 0);
  const uint32_t behind = add_part(b, SIM_MEMORY, 1, 100, 10e9), slices = add_part(b, SIM_MEMORY, 1, 10, 0);
  b->parts[far].hit = slices;
  for (uint32_t l = 0; l < 3; l++) {
    sim_job *j = add_job(b, l);
    add_stop(j, near[l / 2], 1000);
    add_stop(j, far, 1000);
    add_stop(j, behind, 1000);
    add_stop(j, slices, 1000);
    add_stop(j, wires[l / 2], 1000);
  }
  ck_assert_uint_eq(run(b), 211000);
  for (uint32_t l = 0; l < 3; l++) ck_assert_uint_eq(b->ends[l][0], 211000);
  ck_assert_uint_eq(b->parts[behind].jobs, 1);
  ck_assert_uint_eq(b->parts[slices].jobs, 2);
  ck_assert_uint_eq(b->parts[wires[0]].jobs, 2);
  bench_free(b);
}
END_TEST

START_TEST(a_cache_of_many_lines_finds_each) {
  sim_cache *c = sim_cache_new(1000);
  uint64_t ready = 0, hits = 0;
  uint32_t line = 0;
  ck_assert_ptr_nonnull(c);
  for (uint64_t i = 0; i < 20000; i++) {
    sim_waiter waiter;
    const uint64_t key = (i * i) % 1499;
    const enum sim_cache_answer said = sim_cache_use(c, key, 1, &waiter, &ready, &line);
    if (said == SIM_CACHE_MISS) sim_cache_fill(c, line, i);
    ck_assert(said == SIM_CACHE_MISS || said == SIM_CACHE_HIT);
    ck_assert_uint_le(ready, i);
    hits += said == SIM_CACHE_HIT;
  }
  ck_assert_uint_eq(hits, sim_cache_hits(c));
  ck_assert_uint_eq(hits + sim_cache_misses(c), 20000);
  ck_assert_uint_eq(sim_cache_misses(c), 750); /* the squares modulo 1499 are 750: all fit */
  ck_assert_int_eq(sim_cache_use(c, 5000, 1001, NULL, &ready, &line), SIM_CACHE_PAST);
  sim_cache_free(c);
}
END_TEST

/* ---- K8, K14 ----------------------------------------------------------------------------------- */

/* Items of 4096 bytes: made in 100 ns, sent at 64 GB/s and 20 ns, used in 150 ns; credit 20 ns. */
START_TEST(k8_a_queue_between_two_lanes) {
  static const struct {
    uint32_t slots;
    uint64_t ps;
  } rows[] = {{1, 25480000}, {2, 15184000}, {4, 15184000}};
  for (int i = 0; i < TEST_COUNT(rows); i++) {
    bench *b = bench_new();
    const uint32_t make = add_part(b, SIM_SERVER, 1, 100, 0), use = add_part(b, SIM_SERVER, 1, 150, 0),
                   wire = add_part(b, SIM_LINK, 1, 20, 64e9),
                   queue = add_part(b, SIM_QUEUE, rows[i].slots, 0, 0);
    b->parts[queue].credit = 20000;
    for (uint32_t k = 0; k < 100; k++) {
      sim_job *j = add_job(b, 0);
      add_stop(j, make, 0);
      j->stops[j->n_stops++] = (sim_stop){.part = queue, .how = SIM_PUT};
      add_stop(j, wire, 4096);
      j = add_job(b, 1);
      j->stops[j->n_stops++] = (sim_stop){.part = queue, .how = SIM_GET};
      add_stop(j, use, 0);
    }
    ck_assert_msg(run(b) == rows[i].ps, "%u slots: %llu", rows[i].slots, (unsigned long long)b->result.end);
    bench_free(b);
  }
}
END_TEST

START_TEST(k14_lanes_that_wait_for_each_other_are_named) {
  bench *b = bench_new();
  bs_error err = BS_ERROR_INIT;
  const uint32_t queues[] = {add_part(b, SIM_QUEUE, 1, 0, 0), add_part(b, SIM_QUEUE, 1, 0, 0)};
  for (uint32_t l = 0; l < 2; l++) {
    sim_job *j = add_job(b, l);
    j->stops[j->n_stops++] = (sim_stop){.part = queues[l], .how = SIM_GET};
    j = add_job(b, l);
    j->stops[j->n_stops++] = (sim_stop){.part = queues[1 - l], .how = SIM_PUT};
    j->needs[j->n_needs++] = 1;
  }
  ck_assert_int_eq(try_run(b, &err), BS_DEADLINE);
  ck_assert_str_eq(err.id, "BS-INSIDE-STUCK");
  ck_assert_str_eq(err.message,
                   "no lane can go on: 2 of 2 have open jobs; cycle pe0 -> pe1 -> pe0; pe0, job 0, "
                   "waits for an item of queue 0; pe1, job 0, waits for an item of queue 1");
  bench_free(b);
}
END_TEST

START_TEST(k14_a_lane_that_nothing_feeds_is_named) {
  bench *b = bench_new();
  bs_error err = BS_ERROR_INIT;
  const uint32_t queue = add_part(b, SIM_QUEUE, 1, 0, 0);
  for (uint32_t i = 0; i < 2; i++) {
    sim_job *j = add_job(b, 0);
    j->stops[j->n_stops++] = (sim_stop){.part = queue, .how = SIM_PUT};
  }
  ck_assert_int_eq(try_run(b, &err), BS_DEADLINE);
  ck_assert_str_eq(err.message,
                   "no lane can go on: 1 of 1 have open jobs; no lane gives what pe0 waits for; "
                   "pe0, job 1, waits for a slot of queue 0");
  bench_free(b);
}
END_TEST

/* Where nothing is shared, the numbers of lanes do not matter; no amount and no limit of rate take no time.
 */
START_TEST(k14_lanes_that_share_nothing_may_change_places) {
  uint64_t ends[2];
  for (uint32_t turned = 0; turned < 2; turned++) {
    bench *b = bench_new();
    for (uint32_t l = 0; l < 6; l++) {
      const uint32_t as = turned ? 5 - l : l;
      const uint32_t link = add_part(b, SIM_LINK, 1, l, 1e9 + l * 1e8),
                     unit = add_part(b, SIM_SERVER, 1, 3, 1e9);
      for (uint32_t i = 0; i < 20; i++) {
        sim_job *j = add_job(b, as);
        add_stop(j, link, 64 * (i + l));
        add_stop(j, unit, 100 * l);
        if (i > 1) j->needs[j->n_needs++] = 2;
      }
    }
    ends[turned] = run(b);
    bench_free(b);
  }
  ck_assert_uint_eq(ends[0], ends[1]);
}
END_TEST

START_TEST(k14_no_amount_and_no_limit_take_no_time) {
  for (uint32_t amount = 0; amount < 2; amount++) {
    bench *b = bench_new();
    const double rate = amount == 0 ? 1e9 : 0; /* add_part: 0 is no limit */
    sim_job *j = add_job(b, 0);
    add_stop(j, add_part(b, SIM_SERVER, 1, 0, rate), amount * 1000);
    add_stop(j, add_part(b, SIM_LINK, 1, 0, rate), amount * 1000);
    add_stop(j, add_part(b, SIM_MEMORY, 4, 0, rate), amount * 1000);
    ck_assert_uint_eq(run(b), 0);
    bench_free(b);
  }
}
END_TEST

START_TEST(a_time_beyond_the_clock_is_an_error) {
  bench *b = bench_new();
  bs_error err = BS_ERROR_INIT;
  const uint32_t link = add_part(b, SIM_LINK, 1, 0, 1000);
  for (uint32_t i = 0; i < 3; i++) add_stop(add_job(b, 0), link, UINT64_C(1) << 62);
  ck_assert_int_eq(try_run(b, &err), BS_OVERFLOW);
  ck_assert_str_eq(err.id, "BS-INSIDE-TIME");
  bench_free(b);
}
END_TEST

START_TEST(a_job_of_no_part_is_refused) {
  bench *b = bench_new();
  bs_error err = BS_ERROR_INIT;
  add_part(b, SIM_LINK, 1, 0, 1000);
  add_stop(add_job(b, 0), 1, 64);
  ck_assert_int_eq(try_run(b, &err), BS_INVALID_ARGUMENT);
  ck_assert_str_eq(err.id, "BS-INSIDE-JOB");
  bench_free(b);
}
END_TEST

/* ---- links beside flits ------------------------------------------------------------------------ */

static uint64_t drawn(uint64_t *state, uint64_t below) {
  *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407U;
  return (*state >> 33) % below;
}

START_TEST(links_agree_with_a_simulation_of_every_flit) {
  static const uint64_t firsts[] = {0, 1000, 2000, 7000}, flit_ps[] = {250, 500, 1000, 2000};
  static const uint32_t flits[] = {1, 16, 64, 128};
  flit_world *w = calloc(1, sizeof *w);
  uint64_t state = 2, equal = 0;
  ck_assert_ptr_nonnull(w);
  for (int trial = 0; trial < 400; trial++) {
    bench *b = bench_new();
    *w = (flit_world){0};
    for (uint32_t l = 0; l < FLIT_LINKS; l++) {
      w->links[l] = (flit_link){.first = firsts[drawn(&state, 4)], .flit_ps = flit_ps[drawn(&state, 4)]};
      const uint32_t link = add_part(b, SIM_LINK, 1, 0, 1);
      b->parts[link].first = w->links[l].first;
      b->parts[link].q32 = (w->links[l].flit_ps << 32) / 64;
    }
    for (uint32_t t = 0; t < FLIT_TRANSFERS; t++) {
      flit_transfer *f = &w->transfers[t];
      const uint32_t from = (uint32_t)drawn(&state, 5);
      *f = (flit_transfer){.ready = drawn(&state, 60000),
                           .hops = 1 + (uint32_t)drawn(&state, 3),
                           .flits = flits[drawn(&state, 4)]};
      sim_job *j = add_job(b, t);
      j->begin = f->ready;
      for (uint32_t h = 0; h < f->hops; h++) {
        f->path[h] = (from + h) % FLIT_LINKS;
        add_stop(j, f->path[h], 64ull * f->flits);
      }
    }
    flit_run(w, FLIT_TRANSFERS);
    run(b);
    for (uint32_t t = 0; t < FLIT_TRANSFERS; t++) equal += b->ends[t][0] == w->transfers[t].arrived;
    bench_free(b);
  }
  free(w);
  ck_assert_uint_eq(equal, 4800);
}
END_TEST

int main(void) {
  const test_case tests[] = {{k1_a_server_takes_a_job_a_worker},
                             {a_server_counts_in_its_grain},
                             {k2_a_token_goes_through_hops_without_a_stop},
                             {k2_two_tokens_meet_on_a_wire},
                             {k3_a_memory_serves_pieces_by_channel},
                             {a_run_of_bytes_is_its_pieces},
                             {k4_a_posted_store_ends_before_its_commit},
                             {k5_a_counted_queue_is_no_link_of_workers},
                             {a_slot_can_outlive_its_job},
                             {k6_a_cache_keeps_the_tiles_used_last},
                             {one_pass_of_the_slices_serves_neighbours},
                             {who_hits_a_line_under_way_waits_for_its_fill},
                             {a_cache_of_many_lines_finds_each},
                             {k8_a_queue_between_two_lanes},
                             {k14_lanes_that_wait_for_each_other_are_named},
                             {k14_a_lane_that_nothing_feeds_is_named},
                             {k14_lanes_that_share_nothing_may_change_places},
                             {k14_no_amount_and_no_limit_take_no_time},
                             {a_time_beyond_the_clock_is_an_error},
                             {a_job_of_no_part_is_refused},
                             {links_agree_with_a_simulation_of_every_flit},
                             {0}};
  return run_tests("sim_inside", tests, (test_setup){0});
}
