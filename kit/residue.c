/* SPDX-License-Identifier: MIT
 * residue.c - group lifecycle, after activation. Every service of the host fails at each of its calls, one
 * after the other, while a layer is built and run, a workload opened and read, a world opened and used, a
 * device opened. Each time there must be a reason, nothing may be left, and the next try must work. */
#include <stdio.h>
#include <unistd.h>

#include "kit/driven.h"
#include "kit/layer.h"
#include "kit/shim.h"
#include "tests/comm/ranks.h"

enum { MAX_CALLS = 2000 };

static void fail_at(kit_host *h, int64_t n) {
  h->calls = 0;
  h->failed = "?";
  h->fail_at = n;
}

static void check_left(const kit_host *h, int64_t blocks, int64_t n, const char *what) {
  if (n > 0)
    kit_assert(h->blocks == blocks, "%s whose host call %lld (%s) fails leaves %lld blocks of host memory",
               what, (long long)n, h->failed, (long long)(h->blocks - blocks));
  kit_assert(h->blocks == blocks, "%s leaves %lld blocks of host memory", what,
             (long long)(h->blocks - blocks));
}

static void check_reason(const kit_host *h, const bs_error *err, int64_t n, const char *what) {
  kit_assert(err->message[0] != '\0' && strcmp(err->id, "BS-RANK-FAILED") != 0,
             "%s whose host call %lld (%s) fails gives no reason", what, (long long)n, h->failed);
}

/* ---- methods: one thread runs all ranks, so that the n-th call is the same one each time ----------- */

static int64_t build_once(kit_plugin *p, bs_context *context, mf_case *l, int64_t n, int32_t *out_rc,
                          bs_error *err) {
  const int64_t blocks = p->host.blocks;
  mf_result result;
  bs_error_clear(err);
  fail_at(&p->host, n);
  *out_rc = mf_run(context, l, &result, err);
  const int64_t calls = p->host.calls;
  p->host.fail_at = 0;
  const char *left = kit_shim_left();
  if (n > 0)
    kit_assert(left == NULL, "a layer whose host call %lld (%s) fails leaves %s", (long long)n,
               p->host.failed, left);
  kit_assert(left == NULL, "a layer that is freed leaves %s", left);
  check_left(&p->host, blocks, n, "a layer");
  if (*out_rc == BS_OK) mf_check_outputs(l, &result);
  mf_free(&result);
  return calls;
}

/* The n-th call fails, for each n that there is; not BS_OK: the layer is not served. */
static int32_t build_each(kit_plugin *p, bs_context *context, mf_case *l, bs_error *err) {
  int32_t rc, served;
  const int64_t calls = build_once(p, context, l, 0, &served, err);
  for (int64_t n = 1; served == BS_OK && n <= calls && n <= MAX_CALLS; n++) {
    (void)build_once(p, context, l, n, &rc, err);
    if (rc != BS_OK) check_reason(&p->host, err, n, "a layer");
    (void)build_once(p, context, l, 0, &rc, err);
    kit_assert(rc == BS_OK, "after a layer whose host call %lld failed, the next one fails: %s: %s",
               (long long)n, err->id, err->message);
  }
  return served;
}

void kit_life_build(const kit_case *c) {
  static kit_plugin p;
  static kit_shim shim;
  bs_error err = BS_ERROR_INIT;
  kit_plugin_open(&p);
  const bs_method *m = p.host.things[c->thing].vtable;
  bs_context *context = kit_method_context();
  kit_driven_use(context);
  kit_shim_make(&shim, m, p.host.things[c->thing].state, &p.host);
  float *x = mf_integers(1, 5 * 33), *w = mf_integers(2, 17 * 33), *bias = mf_integers(3, 17);
  mf_case l = {.method = m->name,
               .backend = kit_method_backend(),
               .world = kit_method_world(m),
               .x = x,
               .w = w,
               .bias = bias,
               .table = &shim.table,
               .table_state = &shim};
  l.spec = mf_spec(5, 17, 33, BS_F32);
  l.spec.has_bias = 1;
  kit_method_options(&l.spec);
  for (uint32_t k = 0; k < KIT_MASKS; k++) { /* fixed masks are alike */
    bs_mask room;
    int skip;
    l.spec.mask = kit_method_mask(m, k, &room, &skip);
    if (skip || (k > 0 && room.kind != BS_MASK_RANDOM_2OF4 && room.kind != BS_MASK_MAGNITUDE)) continue;
    const int32_t rc = build_each(&p, context, &l, &err);
    if (rc != BS_OK && k == 0) kit_unsupported("%u ranks: %s", l.world, err.message);
  }
  free(x);
  free(w);
  free(bias);
  bs_context_close(context);
  kit_plugin_deactivate(&p);
}

/* ---- communicators ------------------------------------------------------------------------------- */

enum { RANKS = 2, COUNT = 50 };

static void use_rank(test_rank *t) {
  static const uint32_t both[RANKS] = {0, 1};
  float in[COUNT], out[COUNT];
  void *group = NULL;
  bs_coll_call call = make_call(BS_COLL_ALL_REDUCE, BS_F32, 1, COUNT, "residue");
  for (int i = 0; i < COUNT; i++) in[i] = (float)i;
  call.in = in;
  call.out = out;
  call.timeout_ns = INT64_C(20000000000);
  t->rc = t->comm->all_reduce != NULL ? t->comm->all_reduce(t->handle, &call, &t->err) : BS_OK;
  if (t->rc == BS_OK && t->comm->group_open != NULL) {
    t->rc = t->comm->group_open(t->handle, both, RANKS, &group, &t->err);
    if (t->rc == BS_OK && t->comm->all_reduce != NULL) t->rc = t->comm->all_reduce(group, &call, &t->err);
  }
  if (t->rc != BS_OK) t->comm->abort(t->world, t->rank, t->rc, "the kit made a call fail");
  if (group != NULL) t->comm->rank_close(group);
}

/* The first failure of opening, or of a rank. */
static int32_t world_once(const bs_comm *comm, void *state, bs_error *err) {
  const bs_world_request request = {.struct_size = sizeof request, .world_size = RANKS};
  test_rank ranks[RANKS];
  pthread_t threads[RANKS];
  void *world = NULL;
  uint32_t open = 0;
  memset(ranks, 0, sizeof ranks);
  int32_t rc = comm->world_open(state, &request, &world, err);
  if (rc != BS_OK) return rc;
  for (; rc == BS_OK && open < RANKS; open += rc == BS_OK) {
    ranks[open] = (test_rank){.comm = comm, .world = world, .rank = open, .size = RANKS, .body = use_rank};
    rc = comm->rank_open(world, open, &ranks[open].handle, err);
  }
  if (rc == BS_OK) {
    for (uint32_t r = 0; r < RANKS; r++)
      kit_assert(pthread_create(&threads[r], NULL, rank_thread, &ranks[r]) == 0, "no threads");
    for (uint32_t r = 0; r < RANKS; r++) pthread_join(threads[r], NULL);
    for (uint32_t r = 0; r < RANKS; r++)
      if (ranks[r].rc != BS_OK && (rc == BS_OK || rc == BS_ABORTED)) {
        rc = ranks[r].rc;
        *err = ranks[r].err;
      }
  }
  for (uint32_t r = 0; r < open; r++) comm->rank_close(ranks[r].handle);
  comm->world_close(world);
  return rc;
}

void kit_life_world(const kit_case *c) {
  static kit_plugin p;
  kit_plugin_open(&p);
  void *state = NULL;
  const bs_comm *comm = kit_comm_of(&p.host.things[c->thing], &state);
  const int64_t blocks = p.host.blocks;
  if (comm->launch != BS_LAUNCH_THREADS) {
    kit_unsupported("launch %u: the kit starts worlds of threads", comm->launch);
    return;
  }
  for (int64_t n = 1; n <= MAX_CALLS; n++) {
    bs_error err = BS_ERROR_INIT;
    fail_at(&p.host, n);
    int32_t rc = world_once(comm, state, &err);
    const int64_t calls = p.host.calls;
    p.host.fail_at = 0;
    check_left(&p.host, blocks, n, "a world");
    if (rc != BS_OK) check_reason(&p.host, &err, n, "a world");
    if (calls < n) break;
    rc = world_once(comm, state, &err);
    kit_assert(rc == BS_OK, "after a world whose host call %lld failed, the next one fails: %s: %s",
               (long long)n, err.id, err.message);
    check_left(&p.host, blocks, 0, "a world that is closed");
  }
  kit_unwrap();
  kit_plugin_deactivate(&p);
}

/* ---- backends ------------------------------------------------------------------------------------ */

/* A wrapper has the slots also around a backend that has not. */
static int32_t unless_missing(int32_t rc) {
  return rc == BS_UNSUPPORTED ? BS_OK : rc;
}

static int32_t device_once(const bs_backend *b, void *state, bs_error *err) {
  bs_device_info info = {.struct_size = sizeof info};
  void *device = NULL, *memory = NULL;
  bs_stream *stream = NULL;
  bs_event *event = NULL;
  int32_t rc = b->device_info(state, 0, &info, err);
  if (rc == BS_OK) rc = b->device_open(state, 0, &device, err);
  if (rc != BS_OK) return rc;
  rc = b->mem_alloc(device, 1000, 64, &memory, err);
  if (rc == BS_OK && b->stream_create != NULL) rc = unless_missing(b->stream_create(device, &stream, err));
  if (rc == BS_OK && b->event_create != NULL) rc = unless_missing(b->event_create(device, &event, err));
  if (event != NULL) b->event_destroy(device, event);
  if (stream != NULL) b->stream_destroy(device, stream);
  if (memory != NULL) b->mem_free(device, memory);
  b->device_close(device);
  return rc;
}

void kit_life_device(const kit_case *c) {
  static kit_plugin p;
  uint32_t devices = 0;
  kit_plugin_open(&p);
  void *state = NULL;
  const bs_backend *b = kit_backend_of(&p.host.things[c->thing], &state);
  if (b->device_count(state, &devices, NULL) != BS_OK || devices == 0) {
    kit_unsupported("there is no device here");
    return;
  }
  const int64_t blocks = p.host.blocks;
  for (int64_t n = 1; n <= MAX_CALLS; n++) {
    bs_error err = BS_ERROR_INIT;
    fail_at(&p.host, n);
    int32_t rc = device_once(b, state, &err);
    const int64_t calls = p.host.calls;
    p.host.fail_at = 0;
    check_left(&p.host, blocks, n, "a device");
    if (rc != BS_OK) check_reason(&p.host, &err, n, "a device");
    if (calls < n) break;
    rc = device_once(b, state, &err);
    kit_assert(rc == BS_OK, "after a device whose host call %lld failed, the next one fails: %s: %s",
               (long long)n, err.id, err.message);
  }
  kit_unwrap();
  kit_plugin_deactivate(&p);
}
