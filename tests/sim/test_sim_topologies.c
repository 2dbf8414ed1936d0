/* SPDX-License-Identifier: MIT
 * test_sim_topologies.c - the topologies of the plugin sim through the public interface: their options, their
 * routes, and messages that share a wire. */
#include "blockshock/blockshock.h"
#include "core/base/error.h"
#include "sim/topology.h"
#include "tests/comma_locale.h"
#include "tests/run_tests.h"

static bs_context *context;

/* 0.5 us and 50 GB/s. */
static void open_context(void) {
  static const char *const params[] = {"sim.alpha_s=0.5e-6", "sim.bw_Bps=50e9"};
  bs_context_options o = {.struct_size = sizeof o,
                          .log_level = BS_LOG_ERROR,
                          .params = (const char **)(uintptr_t)params,
                          .n_params = 2};
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(bs_context_open(&o, &context, &err) == BS_OK, "%s", err.message);
}
static void close_context(void) {
  bs_context_close(context);
}

/* ---- routes ------------------------------------------------------------------------------------ */

static int32_t open_topology(const char *name, uint32_t ranks, const char *key, const char *value,
                             const bs_topology **out_table, void **out_topology, bs_error *err) {
  void *state = NULL;
  const int32_t rc = bs_find_topology(context, name, out_table, &state, err);
  if (rc != BS_OK) return rc;
  const bs_topology_request request = {.struct_size = sizeof request,
                                       .world_size = ranks,
                                       .n_options = key != NULL,
                                       .option_keys = &key,
                                       .option_values = &value};
  return (*out_table)->open(state, &request, out_topology, err);
}

static const struct {
  const char *name;
  uint32_t ranks, from, to, hops;
  double latency_s, bytes_per_s; /* of the whole way, of its last link */
  const char *key, *value;
} ways[] = {
    {"ring", 8, 0, 3, 3, 1.5e-6, 50e9},
    {"torus2d", 64, 0, 36, 8, 4e-6, 50e9}, /* 8 by 8 */
    {"torus2d", 64, 0, 36, 5, 2.5e-6, 50e9, "width", "32"},
    {"fullmesh", 8, 7, 3, 1, 0.5e-6, 50e9},
    {"nvswitch", 8, 7, 3, 2, 0.5e-6, 50e9},
    {"nvswitch", 8, 7, 3, 2, 2e-6, 50e9, "latency_s", "2e-6"},
    {"mesh2d", 16, 0, 15, 6, 3e-6, 50e9},
    {"fat_tree", 16, 0, 15, 6, 3e-6, 50e9}, /* 4 ports */
    {"fat_tree", 16, 0, 15, 4, 2e-6, 50e9, "ports", "8"},
    {"hier", 16, 0, 7, 2, 0.5e-6, 50e9},
    {"hier", 16, 0, 8, 2, 5e-6, 50e9, "outer_latency_s", "5e-6"},
    {"hier", 16, 0, 8, 2, 0.5e-6, 48e9, "outer_bw_Bps", "48e9"},
};

static void a_way_is_right(int i) {
  const bs_topology *table = NULL;
  void *topology = NULL;
  bs_link links[SIM_HOPS];
  bs_error err = BS_ERROR_INIT;
  uint32_t n = 0;
  double latency = 0;
  ck_assert_msg(open_topology(ways[i].name, ways[i].ranks, ways[i].key, ways[i].value, &table, &topology,
                              &err) == BS_OK,
                "%s: %s", ways[i].name, err.message);
  ck_assert_int_eq(table->route(topology, ways[i].from, ways[i].to, links, SIM_HOPS, &n, &err), BS_OK);
  ck_assert_uint_eq(n, ways[i].hops);
  for (uint32_t h = 0; h < n; h++) latency += links[h].latency_s;
  ck_assert_double_eq_tol(latency, ways[i].latency_s, 1e-15);
  ck_assert_double_eq_tol(links[n - 1].bytes_per_s / ways[i].bytes_per_s, 1, 1e-9);
  links[1].id = 7; /* only as many as there is room for are written */
  ck_assert_int_eq(table->route(topology, ways[i].from, ways[i].to, links, 1, &n, &err), BS_OK);
  ck_assert_uint_eq(n, ways[i].hops);
  ck_assert_uint_eq(links[1].id, 7);
  table->close(topology);
}

START_TEST(a_way_is_as_its_topology_and_options_say) {
  a_way_is_right(_i);
}
END_TEST

/* The locale is that of the program around us. */
START_TEST(a_way_is_the_same_in_a_comma_locale) {
  if (!comma_locale()) return;
  for (int i = 0; i < TEST_COUNT(ways); i++) a_way_is_right(i);
}
END_TEST

START_TEST(options_that_mean_nothing_are_refused) {
  static const struct {
    const char *name, *key, *value;
    int32_t code;
    const char *text;
  } wrong[] = {
      {"ring", "width", "3", BS_CONFIG, "topology ring has no option width"},
      {"torus2d", "width", "3", BS_UNSUPPORTED,
       "topology torus2d cannot have 16 ranks: they are no rectangle with that width"},
      {"mesh2d", "width", "3", BS_UNSUPPORTED,
       "topology mesh2d cannot have 16 ranks: they are no rectangle with that width"},
      {"torus2d", "width", "many", BS_CONFIG, "width=many of a topology is not a number from 1 to 1000000"},
      {"hier", "group", "5", BS_UNSUPPORTED,
       "topology hier cannot have 16 ranks: they are no groups of that size"},
      {"fat_tree", "ports", "2", BS_UNSUPPORTED,
       "topology fat_tree cannot have 16 ranks: its switches have too few ports"},
      {"nvswitch", "latency_s", "-1", BS_CONFIG, "latency_s=-1 of a topology is not seconds from 0 to 3600"},
      {"nvswitch", "latency_s", "0x1p-20", BS_CONFIG,
       "latency_s=0x1p-20 of a topology is not seconds from 0 to 3600"},
      {"nvswitch", "latency_s", " 1e-6", BS_CONFIG,
       "latency_s= 1e-6 of a topology is not seconds from 0 to 3600"},
      {"nvswitch", "latency_s", "01", BS_CONFIG, "latency_s=01 of a topology is not seconds from 0 to 3600"},
      {"nvswitch", "latency_s", "2,5", BS_CONFIG,
       "latency_s=2,5 of a topology is not seconds from 0 to 3600"},
      {"nvswitch", "latency_s", "", BS_CONFIG, "latency_s= of a topology is not seconds from 0 to 3600"},
      {"nvswitch", "bw_Bps", "inf", BS_CONFIG,
       "bw_Bps=inf of a topology is not bytes per second, at least 1000"},
      {"hier", "group", "0x8", BS_CONFIG, "group=0x8 of a topology is not a number from 1 to 1000000"},
      {"nvswitch", "bw_Bps", "0", BS_CONFIG, "bw_Bps=0 of a topology is not bytes per second, at least 1000"},
  };
  for (int i = 0; i < TEST_COUNT(wrong); i++) {
    const bs_topology *table = NULL;
    void *topology = NULL;
    bs_error err = BS_ERROR_INIT;
    ck_assert_int_eq(open_topology(wrong[i].name, 16, wrong[i].key, wrong[i].value, &table, &topology, &err),
                     wrong[i].code);
    ck_assert_str_eq(err.message, wrong[i].text);
  }
}
END_TEST

/* ---- a world ------------------------------------------------------------------------------------- */

enum { COUNT = 1000 };

/* Ranks 0 and 1 send 1,000 f32 to 2 and 3. */
static int32_t send_across(bs_rank *rank, void *arg, bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  const uint32_t me = api->rank(rank);
  static float values[4][COUNT];
  const bs_collective desc = {.struct_size = sizeof desc,
                              .kind = me < 2 ? BS_COLL_SEND : BS_COLL_RECV,
                              .dtype_in = BS_F32,
                              .root = (me + 2) % 4,
                              .rows = 1,
                              .count = COUNT,
                              .site = "across"};
  bs_tensor t = {
      .struct_size = sizeof t, .dtype = BS_F32, .rank = 2, .data = values[me], .bytes = sizeof values[me]};
  bs_coll_plan *plan = NULL;
  (void)arg;
  t.dims[0] = t.strides[1] = 1;
  t.dims[1] = t.strides[0] = COUNT;
  int32_t rc = api->collective_prepare(rank, &desc, &plan, err);
  if (rc == BS_OK) rc = api->collective_run(plan, me < 2 ? &t : NULL, me < 2 ? NULL : &t, NULL, err);
  api->collective_release(plan);
  return rc;
}

static void take(void *user, const char *name, double value, const char *unit, const char *text) {
  (void)unit;
  (void)text;
  if (strcmp(name, "simulated") == 0) *(double *)user = value;
}

START_TEST(messages_that_share_a_wire_take_turns) {
  static const struct {
    const char *topology;
    double ps;
  } rows[] = {
      {NULL, 580000},
      {"fullmesh", 580000},
      {"nvswitch", 580000},
      {"ring", 2 * 500000 + 80000}, /* the wire 1 -> 2 is free again when the message of 0 reaches it */
      {"fat_tree:ports=4", 4 * 500000 + 80000},                        /* each has its own way up */
      {"fat_tree:ports=4,oversubscription=2", 4 * 500000 + 2 * 80000}, /* one wire up */
  };
  for (int i = 0; i < TEST_COUNT(rows); i++) {
    const bs_world_options o = {.struct_size = sizeof o,
                                .world_size = 4,
                                .backend = "ref",
                                .comm = "sim",
                                .threads_per_rank = 1,
                                .sync_mode = BS_SYNC_NONE,
                                .topology = rows[i].topology};
    bs_error err = BS_ERROR_INIT;
    bs_world *world = NULL;
    double ps = 0;
    ck_assert_msg(bs_world_create(context, &o, &world, &err) == BS_OK, "%s: %s", err.id, err.message);
    ck_assert_msg(bs_world_run(world, send_across, NULL, &err) == BS_OK, "%s: %s", err.id, err.message);
    bs_world_figures(world, take, &ps);
    ck_assert_msg(ps == rows[i].ps, "%s: %.0f ps, not %.0f", rows[i].topology, ps, rows[i].ps);
    bs_world_destroy(world);
  }
}
END_TEST

int main(void) {
  const test_case tests[] = {{a_way_is_as_its_topology_and_options_say, TEST_COUNT(ways)},
                             {a_way_is_the_same_in_a_comma_locale},
                             {options_that_mean_nothing_are_refused},
                             {messages_that_share_a_wire_take_turns},
                             {0}};
  return run_tests("sim_topologies", tests, (test_setup){.before = open_context, .after = close_context});
}
