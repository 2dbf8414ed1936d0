/* SPDX-License-Identifier: MIT
 * test_plugin_kinds.c - importers, algorithms and topologies: registered, found by name and alias,
 * listed, refused when wrong; and their tables suffice: a schedule that is run gives the sum, a source gives
 * the tensor. */
#include "tests/plugin/plugin_test.h"
#include "tests/run_tests.h"

static test_log log_of = TEST_LOG_INIT;

static bs_context *open_kinds(void) {
  const char *path = fixture("kinds");
  return test_open(&log_of, &path, 1);
}

START_TEST(they_are_found_and_listed) {
  static const struct {
    uint32_t kind;
    const char *name, *aliases, *summary;
  } things[] = {{BS_KIND_IMPORTER, "kind_file", "kindfile", "two tensors"},
                {BS_KIND_ALGORITHM, "ring", "", "the ring all-reduce"},
                {BS_KIND_TOPOLOGY, "small_ring", "", "2 to 4 ranks in a ring"}};
  bs_context *c = open_kinds();
  bs_error err = BS_ERROR_INIT;
  const bs_importer *importer = NULL, *other = NULL;
  const bs_algorithm *ring = NULL;
  const bs_topology *topology = NULL;
  bs_plugin_info row = test_row(c, "kinds", 0);
  ck_assert_uint_eq(row.state, BS_PLUGIN_FOUND); /* the note says all of it */
  ck_assert_uint_eq(row.kinds, 1u << BS_KIND_IMPORTER | 1u << BS_KIND_ALGORITHM | 1u << BS_KIND_TOPOLOGY);
  ck_assert_has(row.things, "algorithm:ring\n");
  ck_assert_int_eq(bs_find_importer(c, "kind_file", &importer, NULL, &err), BS_OK);
  ck_assert_int_eq(bs_find_importer(c, "kindfile", &other, NULL, &err), BS_OK);
  ck_assert_ptr_eq(importer, other);
  ck_assert_int_eq(bs_find_algorithm(c, "ring", &ring, NULL, &err), BS_OK);
  ck_assert_int_eq(bs_find_topology(c, "small_ring", &topology, NULL, &err), BS_OK);
  ck_assert_uint_eq(bs_thing_count(c, "kinds"), 3);
  for (uint32_t i = 0; i < 3; i++) {
    bs_thing_info thing = {.struct_size = sizeof thing};
    ck_assert_int_eq(bs_thing_get(c, "kinds", i, &thing, &err), BS_OK);
    ck_assert_uint_eq(thing.kind, things[i].kind);
    ck_assert_str_eq(thing.name, things[i].name);
    ck_assert_str_eq(thing.aliases, things[i].aliases);
    ck_assert_str_eq(thing.summary, things[i].summary);
    ck_assert_str_eq(thing.at.file, "kinds.c");
  }
  ck_assert_int_eq(bs_find_algorithm(c, "rin", &ring, NULL, &err), BS_NOT_FOUND);
  ck_assert_has(err.message, "no algorithm 'rin'; known: ");
  ck_assert_has(err.hint, "'ring'");
  ck_assert_int_eq(bs_find_algorithm(c, "small_ring", &ring, NULL, &err),
                   BS_NOT_FOUND); /* another kind's name */
  ck_assert_lacks(log_of.text, "does not list");
  bs_context_close(c);
}
END_TEST

START_TEST(wrong_ones_are_refused) {
  static const struct {
    const char *id, *fault, *error, *text;
  } wrong[] = {{"kinds", "kindless", "BS-PLG-SLOT", "algorithm slot 'kinds' is 0"},
               {"kinds", "manyoptions", "BS-PLG-SLOT", "algorithm slot 'params' has more than 8 options"},
               {"bad", "insist", "BS-PLG-ACTIVATE", "kind 77"}};
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    const char *path = fixture(wrong[i].id);
    setenv("BS_KINDS_FAULT", wrong[i].fault, 1);
    setenv("BS_BAD_FAULT", wrong[i].fault, 1);
    bs_context *c = test_open(&log_of, &path, 1);
    bs_error err = BS_ERROR_INIT;
    ck_assert_int_eq(bs_plugin_activate(c, wrong[i].id, &err), BS_PLUGIN);
    ck_assert_str_eq(err.id, wrong[i].error);
    ck_assert_has(err.message, wrong[i].text);
    ck_assert_uint_eq(bs_thing_count(c, wrong[i].id), 0);
    bs_context_close(c);
  }
}
END_TEST

/* Of a later minor: the unknown kind is left out, and what is known serves. */
START_TEST(an_unknown_kind_is_unsupported) {
  const char *path = fixture("bad");
  setenv("BS_BAD_FAULT", "future", 1);
  bs_context *c = test_open(&log_of, &path, 1);
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(bs_plugin_activate(c, "bad", &err) == BS_OK, "%s: %s", err.id, err.message);
  ck_assert_uint_eq(bs_thing_count(c, "bad"), 1);
  ck_assert_has(log_of.text, "registers a thing of kind 8, known are 0 to 7: it is left out");
  bs_context_close(c);
}
END_TEST

START_TEST(an_importer_gives_its_tensors) {
  bs_context *c = open_kinds();
  bs_error err = BS_ERROR_INIT;
  const bs_importer *importer = NULL;
  bs_import_request request = {.struct_size = sizeof request, .path = "a.kind"};
  bs_import_tensor tensor = {.struct_size = sizeof tensor};
  bs_source source = {.struct_size = sizeof source};
  void *model = NULL, *state = NULL;
  uint32_t match = 99;
  uint64_t count = 0;
  float row[3];
  ck_assert_int_eq(bs_find_importer(c, "kind_file", &importer, &state, &err), BS_OK);
  ck_assert_int_eq(importer->match(state, "a.kind", "KIND1", 5, &match, &err), BS_OK);
  ck_assert_uint_eq(match, BS_IMPORT_YES);
  ck_assert_int_eq(importer->match(state, "a.kind", "KI", 2, &match, &err), BS_OK);
  ck_assert_uint_eq(match, BS_IMPORT_NO);
  ck_assert_int_eq(importer->open(state, &request, &model, &err), BS_OK);
  ck_assert_int_eq(importer->tensor_count(model, &count, &err), BS_OK);
  ck_assert_uint_eq(count, 2);
  ck_assert_int_eq(importer->tensor_info(model, 0, &tensor, &err), BS_OK);
  ck_assert_str_eq(tensor.name, "ramp");
  ck_assert_int_eq(importer->tensor_info(model, 2, &tensor, &err), BS_INPUT);
  ck_assert_int_eq(importer->tensor_source(model, 0, &source, &err), BS_OK);
  ck_assert_int_eq(source.rows * source.cols, tensor.dims[0] * tensor.dims[1]);
  ck_assert_int_eq(source.read(source.ctx, 1, 1, NULL, BS_F32, row, 3, &err), BS_OK);
  ck_assert(row[0] == 3.0f && row[2] == 5.0f);
  importer->close(model);
  bs_context_close(c);
}
END_TEST

START_TEST(a_topology_tells_its_links) {
  bs_context *c = open_kinds();
  bs_error err = BS_ERROR_INIT;
  const bs_topology *ring = NULL;
  bs_topology_request request = {.struct_size = sizeof request, .world_size = 4};
  void *opened = NULL;
  static const uint32_t hops[] = {1, 2, 1};
  ck_assert_int_eq(bs_find_topology(c, "small_ring", &ring, NULL, &err), BS_OK);
  ck_assert_int_eq(ring->open(NULL, &request, &opened, &err), BS_OK);
  for (uint32_t to = 1; to < 4; to++) {
    bs_link way[2];
    uint32_t n = 0;
    ck_assert_int_eq(ring->route(opened, 0, to, way, 2, &n, &err), BS_OK);
    ck_assert_uint_eq(n, hops[to - 1]);
    for (uint32_t i = 0; i < n; i++)
      ck_assert(way[i].id != 0 && way[i].bytes_per_s > 0 && way[i].latency_s >= 0);
  }
  ring->close(opened);
  request.world_size = 9;
  ck_assert_int_eq(ring->open(NULL, &request, &opened, &err), BS_UNSUPPORTED);
  bs_context_close(c);
}
END_TEST

enum { MAX_P = 5, MAX_N = 16, MAX_STEPS = 64 };
typedef struct steps {
  uint32_t count;
  bs_coll_step items[MAX_STEPS];
} steps;

static int32_t keep(void *user, const bs_coll_step *step) {
  steps *s = user;
  if (s->count == MAX_STEPS) return BS_OVERFLOW;
  s->items[s->count++] = *step;
  return BS_OK;
}

/* The send of `peer` that a receive of `rank` waits for: exactly one. */
static const bs_coll_step *matching(const steps *of_peer, const bs_coll_step *want, uint32_t rank) {
  const bs_coll_step *found = NULL;
  for (uint32_t i = 0; i < of_peer->count; i++) {
    const bs_coll_step *s = &of_peer->items[i];
    if (s->action != BS_STEP_SEND || s->round != want->round || s->peer != rank || s->first != want->first)
      continue;
    ck_assert_ptr_null(found);
    found = s;
  }
  ck_assert_ptr_nonnull(found);
  ck_assert_uint_eq(found->count, want->count);
  return found;
}

static void run_rounds(const steps *all, uint32_t p, int64_t data[MAX_P][MAX_N]) {
  int64_t before[MAX_P][MAX_N];
  for (uint32_t round = 0; round < 2 * MAX_P; round++) {
    memcpy(before, data, sizeof before);
    for (uint32_t r = 0; r < p; r++) {
      for (uint32_t i = 0; i < all[r].count; i++) {
        const bs_coll_step *s = &all[r].items[i];
        if (s->round != round || s->action == BS_STEP_SEND || s->action == BS_STEP_COPY) continue;
        const bs_coll_step *send = matching(&all[s->peer], s, r);
        for (uint64_t k = 0; k < send->count; k++)
          data[r][s->first + k] =
              before[s->peer][send->first + k] + (s->action == BS_STEP_REDUCE ? data[r][s->first + k] : 0);
      }
    }
  }
}

/* A host that runs the steps as the header says gets the all-reduce. */
START_TEST(a_schedule_is_the_collective) {
  bs_context *c = open_kinds();
  bs_error err = BS_ERROR_INIT;
  const bs_algorithm *ring = NULL;
  ck_assert_int_eq(bs_find_algorithm(c, "ring", &ring, NULL, &err), BS_OK);
  ck_assert_uint_eq(ring->kinds, 1u << BS_COLL_ALL_REDUCE);
  for (uint32_t p = 1; p <= MAX_P; p++) {
    for (uint64_t n = 0; n <= MAX_N; n++) {
      bs_coll_shape shape = {
          .struct_size = sizeof shape, .kind = BS_COLL_ALL_REDUCE, .world_size = p, .count = n};
      steps all[MAX_P];
      int64_t data[MAX_P][MAX_N] = {{0}}, sum[MAX_N] = {0};
      memset(all, 0, sizeof all);
      for (uint32_t r = 0; r < p; r++) {
        ck_assert_int_eq(ring->schedule(NULL, &shape, r, keep, &all[r], &err), BS_OK);
        ck_assert_uint_eq(all[r].count, 1 + 4 * (p - 1));
        for (uint64_t k = 0; k < n; k++) sum[k] += data[r][k] = (int64_t)(1000 * r + k);
      }
      run_rounds(all, p, data);
      for (uint32_t r = 0; r < p; r++)
        for (uint64_t k = 0; k < n; k++)
          ck_assert_msg(data[r][k] == sum[k], "P %u, N %d: rank %u has %d for element %d", p, (int)n, r,
                        (int)data[r][k], (int)k);
    }
  }
  bs_coll_shape other = {.struct_size = sizeof other, .kind = BS_COLL_BROADCAST, .world_size = 2, .count = 4};
  ck_assert_int_eq(ring->schedule(NULL, &other, 0, keep, NULL, &err), BS_UNSUPPORTED);
  bs_context_close(c);
}
END_TEST

int main(void) {
  const test_case tests[] = {{they_are_found_and_listed},
                             {wrong_ones_are_refused},
                             {an_unknown_kind_is_unsupported},
                             {an_importer_gives_its_tensors},
                             {a_topology_tells_its_links},
                             {a_schedule_is_the_collective},
                             {0}};
  return run_tests("plugin_kinds", tests, (test_setup){0});
}
