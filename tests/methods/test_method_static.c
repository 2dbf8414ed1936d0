/* SPDX-License-Identifier: MIT
 *
 * test_method_static.c - the same sources as a plugin and linked in: both register the same method and give
 * the same bits on real numbers, at every P.
 */
#include <stdlib.h>
#include <string.h>

#include "kit/method_fixture.h"
#include "tests/marks.h"
#include "tests/run_tests.h"

const bs_plugin_desc *test_query_dense(uint32_t host_abi, uint32_t reserved);
const bs_plugin_desc *test_query_column_parallel(uint32_t host_abi, uint32_t reserved);
const bs_plugin_desc *test_query_row_parallel(uint32_t host_abi, uint32_t reserved);
const bs_plugin_desc *test_query_masked_split(uint32_t host_abi, uint32_t reserved);
const bs_plugin_desc *test_query_blockshock(uint32_t host_abi, uint32_t reserved);

static const struct {
  const char *name;
  bs_plugin_query_fn query;
  uint32_t most;
} methods[] = {{"dense", test_query_dense, 1},
               {"column_parallel", test_query_column_parallel, 4},
               {"row_parallel", test_query_row_parallel, 4},
               {"masked_split", test_query_masked_split, 4},
               {"blockshock", test_query_blockshock, 4}};
#define N_METHODS ((int)(sizeof methods / sizeof methods[0]))

/* A host of this test: it keeps the one thing that a method plugin registers. */
typedef struct caught {
  bs_method method;
  void *state;
  uint32_t count;
} caught;

static int32_t catch_thing(void *ctx, bs_plugin_self *self, uint32_t kind, const void *vtable, void *state,
                           const bs_src_loc *at, bs_error *err) {
  caught *c = ctx;
  (void)self;
  (void)err;
  ck_assert_uint_eq(kind, BS_KIND_METHOD);
  ck_assert(at != NULL && at->line > 0);
  c->method = *(const bs_method *)vtable;
  c->state = state;
  c->count++;
  return BS_OK;
}
static void *host_alloc(void *ctx, uint64_t bytes, uint64_t align) {
  (void)ctx;
  (void)align;
  return calloc(1, bytes);
}
static void host_free(void *ctx, void *p) {
  (void)ctx;
  free(p);
}

static void compare(bs_context *context, const caught *linked, int method, uint32_t P, uint32_t dtype,
                    const char *backend) {
  const int64_t B = 6, N = 23, K = 45;
  float *x = mf_normals(1, B * K), *w = mf_normals(2, N * K), *bias = mf_normals(3, N);
  mf_case c = {.method = methods[method].name, .backend = backend, .world = P, .x = x, .w = w, .bias = bias};
  c.spec = mf_spec(B, N, K, dtype);
  c.spec.has_bias = 1;
  bs_mask mask = mf_mask("interleave");
  if (P == 3 && method >= 3) c.spec.mask = &mask;
  mf_result a, b;
  mf_run_ok(context, &c, &a);
  c.table = &linked->method;
  c.table_state = linked->state;
  mf_run_ok(context, &c, &b);
  for (uint32_t r = 0; r < P; r++) {
    ck_assert_uint_eq(a.rank[r].y_bytes, (uint64_t)(B * N) * BS_DTYPE_BYTES(dtype));
    ck_assert_mem_eq(a.rank[r].y_bits, b.rank[r].y_bits, a.rank[r].y_bytes);
    ck_assert_mem_eq(a.rank[r].counters, b.rank[r].counters, sizeof a.rank[r].counters);
  }
  mf_free(&a);
  mf_free(&b);
  free(x);
  free(w);
  free(bias);
}

START_TEST(plugin_and_linked_in_agree) {
  bs_context *context = mf_context();
  caught linked = {.count = 0};
  const bs_host host = {.struct_size = sizeof host,
                        .abi = BS_ABI_VERSION,
                        .ctx = &linked,
                        .register_thing = catch_thing,
                        .alloc = host_alloc,
                        .free = host_free,
                        .partition_make = bs_partition_make,
                        .partition_free = bs_partition_free};
  const bs_plugin_desc *desc = methods[_i].query(BS_ABI_VERSION, 0);
  ck_assert_str_eq(desc->id, methods[_i].name);
  void *state = NULL;
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(desc->activate(&host, NULL, &state, &err), BS_OK);
  ck_assert_uint_eq(linked.count, 1);
  const bs_method *plugin = NULL;
  void *plugin_state = NULL;
  ck_assert_int_eq(bs_find_method(context, methods[_i].name, &plugin, &plugin_state, &err), BS_OK);
  ck_assert_str_eq(plugin->name, linked.method.name);
  ck_assert(plugin->forward != linked.method.forward); /* really two copies of the code */
  for (uint32_t P = 1; P <= methods[_i].most; P++) {
    compare(context, &linked, _i, P, BS_F32, "cpu");
    compare(context, &linked, _i, P, BS_BF16, "cpu");
    compare(context, &linked, _i, P, BS_F16, "ref");
  }
  ck_assert_int_eq(desc->deactivate(state, &err), BS_OK);
  bs_context_close(context);
}
END_TEST

/* A host that lacks partition_make is refused, not called through NULL. */
START_TEST(a_host_without_partitions_is_refused) {
  caught linked = {.count = 0};
  const bs_host host = {.struct_size = offsetof(bs_host, partition_make),
                        .ctx = &linked,
                        .register_thing = catch_thing,
                        .alloc = host_alloc,
                        .free = host_free};
  void *state = NULL;
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(methods[_i].query(BS_ABI_VERSION, 0)->activate(&host, NULL, &state, &err), BS_ABI);
  ck_assert_str_eq(err.id, "BS-METHOD-HOST");
  ck_assert_uint_eq(linked.count, 0);
}
END_TEST

int main(void) {
  const test_case tests[] = {
      {plugin_and_linked_in_agree, N_METHODS}, {a_host_without_partitions_is_refused, N_METHODS}, {0}};
  return run_tests("method_static", tests, (test_setup){.timeout = 120});
}
