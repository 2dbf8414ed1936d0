/* SPDX-License-Identifier: MIT
 * test_skeleton_out.c - structs that a plugin fills for hosts of other minors (docs/abi.md, "Structs that one
 * side fills"): the templates and our own plugins write nothing behind the struct_size of an older host,
 * leave a newer host zeroes, and give what fits. */
#include "blockshock/plugin.h"
#include "skeleton_test.h"
#include "tests/run_tests.h"

#define TAIL 128
#define PAINT 0xA5

static bs_context *context;
static void setup(void) {
  context = skeleton_context();
}
static void teardown(void) {
  bs_context_close(context);
}

typedef int32_t (*fill)(void *ctx, void *out, bs_error *err);

static void filled(fill f, void *ctx, void *out, uint32_t room, size_t size) {
  bs_error err = BS_ERROR_INIT;
  memset(out, PAINT, size + TAIL);
  memcpy(out, &room, sizeof room);
  ck_assert_msg(f(ctx, out, &err) == BS_OK, "%s: %s", err.id, err.message);
}

/* `f` fills a struct of `size` bytes; one of `old` bytes and one longer than ours get what fits. */
static void check_fill(const char *what, fill f, void *ctx, size_t old, size_t size) {
  unsigned char *now = malloc(size + TAIL), *other = malloc(size + TAIL);
  ck_assert(now != NULL && other != NULL);
  filled(f, ctx, now, (uint32_t)size, size);
  const uint32_t rooms[] = {(uint32_t)old, (uint32_t)size + TAIL / 2};
  for (int i = 0; i < 2; i++) {
    uint32_t kept;
    filled(f, ctx, other, rooms[i], size);
    memcpy(&kept, other, sizeof kept);
    ck_assert_msg(kept == rooms[i], "%s: struct_size %u became %u", what, rooms[i], kept);
    const size_t same = rooms[i] < size ? rooms[i] : size;
    ck_assert_msg(memcmp(now + 4, other + 4, same - 4) == 0, "%s: of %u bytes other ones", what, rooms[i]);
    for (size_t at = same; at < size + TAIL; at++)
      ck_assert_msg(other[at] == (at < rooms[i] ? 0 : PAINT), "%s: of %u bytes, byte %zu is 0x%02x", what,
                    rooms[i], at, other[at]);
  }
  free(now);
  free(other);
}

typedef struct four {
  uint32_t struct_size, a;
  uint64_t b, c;
} four;
static int32_t fill_four(void *ctx, void *out, bs_error *err) {
  const four mine = {99, 1, 2, 3};
  (void)ctx, (void)err;
  bs_out_copy(out, &mine, sizeof mine);
  return BS_OK;
}

START_TEST(the_helper) {
  for (size_t old = 5; old <= sizeof(four); old++) check_fill("four", fill_four, NULL, old, sizeof(four));
  four out = {0, 7, 7, 7}; /* says no size: is left alone */
  fill_four(NULL, &out, NULL);
  ck_assert(out.struct_size == 0 && out.a == 7 && out.c == 7);
}
END_TEST

static const bs_layer_spec layer = {.struct_size = sizeof layer,
                                    .B = 4,
                                    .N = 8,
                                    .K = 16,
                                    .x_dtype = BS_F32,
                                    .w_dtype = BS_F32,
                                    .y_dtype = BS_F32};

typedef struct asked {
  const bs_method *method;
  const bs_workload *workload;
  void *state;
  uint32_t part;
} asked;
static int32_t propose(void *ctx, void *out, bs_error *err) {
  const asked *a = ctx;
  return a->method->propose(a->state, &layer, 1, 2, out, err);
}
static int32_t owns(void *ctx, void *out, bs_error *err) {
  const asked *a = ctx;
  return a->method->owns(a->state, out, err);
}
static int32_t info(void *ctx, void *out, bs_error *err) {
  const asked *a = ctx;
  return a->workload->info(a->state, out, err);
}
static int32_t source(void *ctx, void *out, bs_error *err) {
  const asked *a = ctx;
  return a->workload->source(a->state, a->part, out, err);
}

static const char *const methods[] = {"skel_method", "column_parallel", "row_parallel", "blockshock",
                                      "masked_split"};

/* A host of 0.3 has no backward pass in its bs_proposal. */
START_TEST(proposals) {
  asked a;
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(bs_find_method(context, methods[_i], &a.method, &a.state, &err) == BS_OK, "%s", err.message);
  check_fill(methods[_i], propose, &a, offsetof(bs_proposal, backward_flops), sizeof(bs_proposal));
}
END_TEST

static int32_t layer_main(bs_rank *rank, void *arg, bs_error *err) {
  asked a = *(asked *)arg;
  const bs_rank_api *api = bs_rank_get_api();
  float w[8 * 16] = {0};
  bs_source weights = {.struct_size = sizeof weights};
  int32_t rc = bs_source_from_memory(w, BS_F32, 8, 16, 16, &weights, err);
  if (rc == BS_OK) rc = a.method->build(a.state, api, rank, &layer, &weights, NULL, &a.state, err);
  if (rc == BS_OK) {
    check_fill("owns", owns, &a, offsetof(bs_ownership, columns), sizeof(bs_ownership));
    a.method->layer_free(a.state);
  }
  bs_source_release(&weights);
  return rc;
}

START_TEST(what_a_layer_owns) {
  asked a;
  bs_world *world = NULL;
  bs_error err = BS_ERROR_INIT;
  const bs_world_options o = {.struct_size = sizeof o, .world_size = 2, .backend = "ref"};
  ck_assert_int_eq(bs_find_method(context, methods[_i], &a.method, &a.state, &err), BS_OK);
  ck_assert_msg(bs_world_create(context, &o, &world, &err) == BS_OK, "%s", err.message);
  ck_assert_msg(bs_world_run(world, layer_main, &a, &err) == BS_OK, "%s: %s", err.id, err.message);
  bs_world_destroy(world);
}
END_TEST

START_TEST(workloads) {
  static const char *const names[] = {"skel_workload", "random_normal", "activation_like"};
  const bs_workload_request r = {
      .struct_size = sizeof r, .dtype = BS_F32, .B = 4, .N = 8, .K = 64, .seed = 1, .weight_seed = 2};
  asked a;
  bs_error err = BS_ERROR_INIT;
  void *registered = NULL;
  ck_assert_int_eq(bs_find_workload(context, names[_i], &a.workload, &registered, &err), BS_OK);
  ck_assert_msg(a.workload->open(registered, &r, &a.state, &err) == BS_OK, "%s", err.message);
  check_fill(names[_i], info, &a, offsetof(bs_workload_info, text), sizeof(bs_workload_info));
  for (a.part = BS_PART_X; a.part <= BS_PART_W; a.part++)
    check_fill(names[_i], source, &a, offsetof(bs_source, read), sizeof(bs_source));
  a.workload->close(a.state);
}
END_TEST

int main(void) {
  const test_case tests[] = {{the_helper},
                             {proposals, TEST_COUNT(methods)},
                             {what_a_layer_owns, TEST_COUNT(methods)},
                             {workloads, 3},
                             {0}};
  return run_tests("skeleton_out", tests, (test_setup){setup, teardown});
}
