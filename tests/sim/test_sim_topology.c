/* SPDX-License-Identifier: MIT
 * test_sim_topology.c - routes, wires that flows share, and collectives over topologies, to the picosecond.
 */
#include "sim/order.h"
#include "sim/topology.h"
#include "tests/run_tests.h"
#include "tests/sim/programs.h"

#define MIB (UINT64_C(1) << 20)
#define Q20 (UINT64_C(20) << 32)

/* ---- the engine over a topology -------------------------------------------------------------- */

typedef struct routed {
  program p; /* the first: programs take it for their own */
  sim_topology t;
} routed;

static uint32_t route_of(void *user, uint32_t from, uint32_t to, sim_hop *out_hops) {
  routed *r = user;
  return sim_topology_route(&r->t, from, to, out_hops);
}

static uint64_t run_routed(routed *r, uint32_t order) {
  bs_error err = BS_ERROR_INIT;
  sim_config config = {
      .ranks = r->p.ranks, .order = order, .resume = program_resume, .route = route_of, .user = r};
  r->t.ranks = r->p.ranks;
  ck_assert_msg(sim_topology_check(&r->t, &err) == BS_OK, "%s", err.message);
  r->p.at = calloc(r->p.ranks, sizeof *r->p.at);
  ck_assert_int_eq(sim_engine_new(&config, &r->p.engine, &err), BS_OK);
  ck_assert_msg(sim_run(r->p.engine, &err) == BS_OK, "%s", err.message);
  const uint64_t latest = sim_latest(r->p.engine);
  program_close(&r->p);
  return latest;
}

/* Over a subset of ranks first, first + stride, ...: step i of ring round i / 2. */
static program_step ring_of(uint32_t n, uint32_t first, uint32_t stride, uint32_t rank, uint64_t bytes,
                            uint32_t i) {
  const uint32_t x = (rank - first) / stride;
  if (i % 2 == 0) return (program_step){PROGRAM_SEND, first + (x + 1) % n * stride, bytes};
  return (program_step){PROGRAM_RECV, first + (x + n - 1) % n * stride, bytes};
}

/* Reduce-scatter on rows of `chunks` ranks, all-reduce on columns, all-gather on rows. */
static program_step torus(const program *p, uint32_t rank, uint32_t i) {
  const uint32_t a = p->chunks, b = p->ranks / a, y = rank / a, x = rank % a;
  const uint32_t rows = 2 * (a - 1), columns = 4 * (b - 1);
  if (i < rows) return ring_of(a, y * a, 1, rank, p->bytes / a, i);
  if (i < rows + columns) return ring_of(b, x, a, rank, p->bytes / a / b, i - rows);
  if (i < 2 * rows + columns) return ring_of(a, y * a, 1, rank, p->bytes / a, i - rows - columns);
  return (program_step){PROGRAM_END, 0, 0};
}

/* The same, with halving and doubling between the groups. */
static program_step groups_halving(const program *p, uint32_t rank, uint32_t i) {
  const uint32_t g = p->chunks, rows = 2 * (g - 1), lg = (uint32_t)__builtin_ctz(p->ranks / g);
  if (i < rows || i >= rows + 4 * lg)
    return i < rows                ? torus(p, rank, i)
           : i < 2 * rows + 4 * lg ? ring_of(g, rank / g * g, 1, rank, p->bytes / g, i - rows - 4 * lg)
                                   : (program_step){PROGRAM_END, 0, 0};
  const uint32_t k = (i - rows) / 2, bit = k < lg ? lg - 1 - k : k - lg;
  const uint64_t bytes = (p->bytes / g) >> (k < lg ? k + 1 : 2 * lg - k);
  return (program_step){i % 2 == rows % 2 ? PROGRAM_SEND : PROGRAM_RECV,
                        ((rank / g) ^ (1U << bit)) * g + rank % g, bytes};
}

static const struct {
  program_step (*step)(const program *p, uint32_t rank, uint32_t i);
  uint32_t kind, ranks, width;
  uint64_t bytes, ps, slack; /* slack: 1 ps a message of the longest way */
} rows[] = {
    {torus, SIM_TORUS2D, 256, 16, 64 * MIB, 2703868800, 0},       /* row 11 */
    {groups_halving, SIM_HIER, 1024, 8, 64 * MIB, 748201456, 28}, /* row 12, halving and doubling outside */
    {torus, SIM_HIER, 1024, 8, 64 * MIB, 1948201456, 268},        /* row 12, ring outside */
    {program_ring, SIM_RING, 8, 0, MIB, 43700160, 0},             /* row 1 */
    {program_ring, SIM_NVSWITCH, 64, 0, MIB, 104287680, 0},
    {program_halving, SIM_NVSWITCH, 64, 0, MIB, 47287680, 0},  /* row 6 */
    {program_one_shot, SIM_FULLMESH, 8, 0, MIB, 147300640, 0}, /* row 7 */
};

START_TEST(collectives_over_topologies_take_the_time_of_their_closed_form) {
  const int hier = rows[_i].kind == SIM_HIER;
  for (uint32_t order = SIM_ORDER_K; order <= SIM_ORDER_E; order++) {
    routed r = {.p = {.step = rows[_i].step,
                      .ranks = rows[_i].ranks,
                      .bytes = rows[_i].bytes,
                      .chunks = rows[_i].width},
                .t = {.kind = rows[_i].kind, .a = rows[_i].width, .latency = 500000, .beta_q32 = Q20}};
    if (hier) {
      r.t.latency = sim_seconds_ps(1e-6);
      r.t.beta_q32 = sim_rate_q32(370e9);
      r.t.outer_latency = sim_seconds_ps(5e-6);
      r.t.outer_beta_q32 = sim_rate_q32(48e9);
    }
    const uint64_t ps = run_routed(&r, order);
    ck_assert_msg(ps + rows[_i].slack >= rows[_i].ps && ps <= rows[_i].ps + rows[_i].slack,
                  "row %d, order %u: %llu ps, not %llu", _i, order, (unsigned long long)ps,
                  (unsigned long long)rows[_i].ps);
  }
}
END_TEST

/* Row 13: a flat ring whose hops are all the outer link. */
START_TEST(a_flat_ring_pays_the_outer_link_each_round) {
  if (getenv("BS_TEST_BIG") == NULL) return;
  program p = {.step = program_ring, .ranks = 1024, .bytes = 64 * MIB};
  program_open(&p, SIM_ORDER_K, sim_link_of(5e-6, 48e9));
  ck_assert_int_eq(sim_run(p.engine, NULL), BS_OK);
  ck_assert_uint_eq((sim_latest(p.engine) + 500000) / 1000000, 13023); /* 13023.472 us */
  program_close(&p);
}
END_TEST

/* ---- shared wires ---------------------------------------------------------------------------- */

/* Two senders of n bytes; the receivers are 2 and 3. */
static program_step two_flows(const program *p, uint32_t rank, uint32_t i) {
  if (i > 0) return (program_step){PROGRAM_END, 0, 0};
  return (program_step){rank < 2 ? PROGRAM_SEND : PROGRAM_RECV, (rank + 2) % 4, p->bytes};
}

static uint32_t one_wire(void *user, uint32_t from, uint32_t to, sim_hop *out_hops) {
  (void)user;
  (void)from;
  (void)to;
  out_hops[0] = (sim_hop){77, 500000, Q20};
  return 1;
}

/* Row 19. */
START_TEST(two_flows_on_one_wire_queue_or_share_it) {
  program p = {.step = two_flows, .ranks = 4, .bytes = MIB};
  const uint64_t alone = 21471520, both = 42443040;
  for (uint32_t order = SIM_ORDER_K; order <= SIM_ORDER_E; order++) {
    sim_config config = {.ranks = 4, .order = order, .resume = program_resume, .route = one_wire, .user = &p};
    p.at = calloc(4, sizeof *p.at);
    ck_assert_int_eq(sim_engine_new(&config, &p.engine, NULL), BS_OK);
    ck_assert_int_eq(sim_run(p.engine, NULL), BS_OK);
    ck_assert_uint_eq(sim_clock(p.engine, 2), alone);
    ck_assert_uint_eq(sim_clock(p.engine, 3), order == SIM_ORDER_E ? both : alone); /* K does not see it */
    program_close(&p);
  }
  uint64_t a, b;
  sim_fair_two(500000, Q20, MIB, MIB, &a, &b);
  ck_assert_uint_eq(a, both);
  ck_assert_uint_eq(b, both);
  sim_fair_two(500000, Q20, MIB, 2 * MIB, &a, &b);
  ck_assert_uint_eq(a, both);
  ck_assert_uint_eq(b, 500000 + 3 * 20 * MIB);
}
END_TEST

static program_step one_message(const program *p, uint32_t rank, uint32_t i) {
  if (i > 0 || rank > 1) return (program_step){PROGRAM_END, 0, 0};
  return (program_step){rank == 0 ? PROGRAM_SEND : PROGRAM_RECV, 1 - rank, p->bytes};
}

/* Row 20: two hops of half the latency each; the second does not wait for the last byte. */
START_TEST(a_message_goes_through_a_switch_without_a_stop) {
  for (uint32_t order = SIM_ORDER_K; order <= SIM_ORDER_E; order++) {
    routed r = {.p = {.step = one_message, .ranks = 2, .bytes = MIB},
                .t = {.kind = SIM_NVSWITCH, .latency = 500000, .beta_q32 = Q20}};
    ck_assert_uint_eq(run_routed(&r, order), 21471520);
  }
}
END_TEST

/* Seven ranks send to rank 0 at once: its receive port takes them one behind the other, in order of time. */
static program_step incast(const program *p, uint32_t rank, uint32_t i) {
  if (rank > 0) return (program_step){i == 0 ? PROGRAM_SEND : PROGRAM_END, 0, p->bytes};
  return (program_step){i < p->ranks - 1 ? PROGRAM_RECV : PROGRAM_END, p->ranks - 1 - i, p->bytes};
}

START_TEST(senders_to_one_rank_take_turns_at_its_port) {
  program p = {.step = incast, .ranks = 8, .bytes = MIB};
  for (uint32_t order = SIM_ORDER_K; order <= SIM_ORDER_E; order++) {
    program_open(&p, order, sim_link_of(0.5e-6, 50e9));
    ck_assert_int_eq(sim_run(p.engine, NULL), BS_OK);
    ck_assert_uint_eq(sim_latest(p.engine), 500000 + 7 * 20 * MIB);
    program_close(&p);
  }
  /* Rank 7 is late, and received first: in order of time the others are done by then. */
  program_open(&p, SIM_ORDER_E, sim_link_of(0.5e-6, 50e9));
  sim_set_clock(p.engine, 7, 6 * 20 * MIB);
  ck_assert_int_eq(sim_run(p.engine, NULL), BS_OK);
  ck_assert_uint_eq(sim_latest(p.engine), 500000 + 7 * 20 * MIB);
  program_close(&p);
}
END_TEST

/* ---- which order ----------------------------------------------------------------------------- */

START_TEST(auto_takes_e_where_something_is_shared) {
  static const struct {
    sim_topology t;
    sim_flow flows[3];
    uint32_t order;
    const char *why;
  } phases[] = {
      {{.kind = SIM_RING, .ranks = 4}, {{0, 1}, {1, 2}, {2, 3}}, SIM_ORDER_K, "no link is shared"},
      {{.kind = SIM_RING, .ranks = 8},
       {{0, 2}, {1, 3}, {4, 5}},
       SIM_ORDER_E,
       "the flows 0 -> 2 and 1 -> 3 share link "},
      {{.kind = SIM_NVSWITCH, .ranks = 8}, {{0, 1}, {1, 0}, {2, 3}}, SIM_ORDER_K, "no link is shared"},
      {{.kind = SIM_NVSWITCH, .ranks = 8},
       {{0, 5}, {1, 5}, {2, 3}},
       SIM_ORDER_E,
       "the flows 0 -> 5 and 1 -> 5 meet at the receive port of rank 5"},
      {{.kind = SIM_NVSWITCH, .ranks = 8}, {{0, 1}, {0, 2}, {0, 3}}, SIM_ORDER_K, "no link is shared"},
      {{.kind = SIM_FAT_TREE, .ranks = 16, .k = 4, .oversubscription = 1},
       {{0, 4}, {1, 5}, {2, 6}},
       SIM_ORDER_K,
       "no link is shared"},
      {{.kind = SIM_FAT_TREE, .ranks = 16, .k = 4, .oversubscription = 2},
       {{0, 4}, {1, 5}, {2, 6}},
       SIM_ORDER_E,
       "the flows 0 -> 4 and 1 -> 5 share link "},
  };
  char why[200];
  for (int i = 0; i < TEST_COUNT(phases); i++) {
    sim_topology t = phases[i].t;
    ck_assert_uint_eq(sim_order_for(phases[i].flows, 3, sim_topology_route, &t, why, sizeof why),
                      phases[i].order);
    ck_assert_msg(strncmp(why, phases[i].why, strlen(phases[i].why)) == 0, "phase %d: %s", i, why);
  }
  ck_assert_uint_eq(sim_order_for(phases[1].flows, 3, NULL, NULL, why, sizeof why), SIM_ORDER_K);
}
END_TEST

/* ---- routes ---------------------------------------------------------------------------------- */

START_TEST(routes_have_the_hops_of_their_topology) {
  static const struct {
    sim_topology t;
    uint32_t from, to, hops;
    uint64_t latency;
  } ways[] = {
      {{.kind = SIM_RING, .ranks = 8, .latency = 3}, 0, 3, 3, 9},
      {{.kind = SIM_RING, .ranks = 8, .latency = 3}, 0, 6, 2, 6},
      {{.kind = SIM_RING, .ranks = 8, .latency = 3}, 0, 4, 4, 12},
      {{.kind = SIM_RING, .ranks = 8192, .latency = 3}, 8191, 0, 1, 3},
      {{.kind = SIM_TORUS2D, .ranks = 64, .a = 8, .latency = 2}, 0, 63, 2, 4},
      {{.kind = SIM_TORUS2D, .ranks = 64, .a = 8, .latency = 2}, 0, 36, 8, 16},
      {{.kind = SIM_MESH2D, .ranks = 16, .a = 4, .latency = 2}, 0, 15, 6, 12},
      {{.kind = SIM_MESH2D, .ranks = 16, .a = 4, .latency = 2}, 14, 1, 4, 8},
      {{.kind = SIM_FULLMESH, .ranks = 9, .latency = 7}, 8, 0, 1, 7},
      {{.kind = SIM_NVSWITCH, .ranks = 9, .latency = 7}, 8, 0, 2, 7},
      {{.kind = SIM_HIER, .ranks = 16, .a = 8, .latency = 7, .outer_latency = 50}, 8, 15, 2, 7},
      {{.kind = SIM_HIER, .ranks = 16, .a = 8, .latency = 7, .outer_latency = 50}, 7, 8, 2, 50},
      {{.kind = SIM_FAT_TREE, .ranks = 16, .k = 4, .oversubscription = 1, .latency = 1}, 0, 1, 2, 2},
      {{.kind = SIM_FAT_TREE, .ranks = 16, .k = 4, .oversubscription = 1, .latency = 1}, 0, 2, 4, 4},
      {{.kind = SIM_FAT_TREE, .ranks = 16, .k = 4, .oversubscription = 2, .latency = 1}, 0, 15, 6, 6},
  };
  for (int i = 0; i < TEST_COUNT(ways); i++) {
    sim_topology t = ways[i].t;
    sim_hop hops[SIM_HOPS];
    uint64_t latency = 0;
    ck_assert_int_eq(sim_topology_check(&t, NULL), BS_OK);
    const uint32_t n = sim_topology_route(&t, ways[i].from, ways[i].to, hops);
    ck_assert_uint_eq(n, ways[i].hops);
    for (uint32_t h = 0; h < n; h++) {
      latency += hops[h].latency;
      ck_assert_uint_ne(hops[h].id, 0);
      for (uint32_t k = 0; k < h; k++) ck_assert_uint_ne(hops[h].id, hops[k].id);
    }
    ck_assert_uint_eq(latency, ways[i].latency);
    ck_assert_uint_eq(sim_topology_route(&t, 3, 3, hops), 0);
  }
}
END_TEST

/* X first: from 1 to 14 of a mesh of 4 columns the head goes to 2 and then down. */
START_TEST(a_mesh_goes_along_x_first) {
  sim_topology t = {.kind = SIM_MESH2D, .ranks = 16, .a = 4};
  sim_hop hops[SIM_HOPS];
  static const uint32_t begins[] = {1, 2, 6, 10};
  ck_assert_uint_eq(sim_topology_route(&t, 1, 14, hops), 4);
  for (int h = 0; h < 4; h++) ck_assert_uint_eq(hops[h].id >> 24 & UINT32_MAX, begins[h]);
  ck_assert_uint_eq(sim_topology_route(&t, 3, 0, hops), 3); /* no wire closes the row */
}
END_TEST

START_TEST(a_way_of_too_many_hops_is_an_error) {
  bs_error err = BS_ERROR_INIT;
  routed r = {.p = {.step = program_doubling, .ranks = 1024, .bytes = 8},
              .t = {.kind = SIM_RING, .ranks = 1024}};
  sim_config config = {.ranks = 1024, .resume = program_resume, .route = route_of, .user = &r};
  r.p.at = calloc(1024, sizeof *r.p.at);
  ck_assert_int_eq(sim_engine_new(&config, &r.p.engine, &err), BS_OK);
  ck_assert_int_eq(sim_run(r.p.engine, &err), BS_UNSUPPORTED);
  ck_assert_str_eq(err.message, "the topology gives 128 hops from rank 127 to rank 255, 1 to 64 are allowed");
  program_close(&r.p);
}
END_TEST

START_TEST(a_topology_refuses_ranks_that_it_cannot_have) {
  static const struct {
    sim_topology t;
    const char *text;
  } wrong[] = {
      {{.kind = SIM_TORUS2D, .ranks = 10, .a = 4},
       "topology torus2d cannot have 10 ranks: they are no rectangle with that width"},
      {{.kind = SIM_HIER, .ranks = 10, .a = 4},
       "topology hier cannot have 10 ranks: they are no groups of that size"},
      {{.kind = SIM_FAT_TREE, .ranks = 17, .k = 4, .oversubscription = 1},
       "topology fat_tree cannot have 17 ranks: its switches have too few ports"},
      {{.kind = SIM_FAT_TREE, .ranks = 16, .k = 4, .oversubscription = 3},
       "topology fat_tree cannot have 16 ranks: the oversubscription does not fit its switches"},
      {{.kind = SIM_TOPOLOGIES, .ranks = 1}, "topology ? cannot have 1 ranks: there is no such topology"},
  };
  for (int i = 0; i < TEST_COUNT(wrong); i++) {
    bs_error err = BS_ERROR_INIT;
    ck_assert_int_eq(sim_topology_check(&wrong[i].t, &err), BS_UNSUPPORTED);
    ck_assert_str_eq(err.message, wrong[i].text);
  }
}
END_TEST

int main(void) {
  const test_case tests[] = {
      {collectives_over_topologies_take_the_time_of_their_closed_form, TEST_COUNT(rows)},
      {a_flat_ring_pays_the_outer_link_each_round},
      {two_flows_on_one_wire_queue_or_share_it},
      {a_message_goes_through_a_switch_without_a_stop},
      {senders_to_one_rank_take_turns_at_its_port},
      {auto_takes_e_where_something_is_shared},
      {routes_have_the_hops_of_their_topology},
      {a_mesh_goes_along_x_first},
      {a_way_of_too_many_hops_is_an_error},
      {a_topology_refuses_ranks_that_it_cannot_have},
      {0}};
  return run_tests("sim_topology", tests, (test_setup){0});
}
