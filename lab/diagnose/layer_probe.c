/* SPDX-License-Identifier: MIT
 * layer_probe.c - runs forwards one by one, and counts avoidable work of each: plans made, waits, copies, and
 * the time in which the rank's thread neither ran nor waited for a processor. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/usage.h"
#include "core/world/executor.h"
#include "lab/case/place.h"
#include "lab/diagnose/layer.h"
#include "lab/error.h"

enum { WARM_CALLS = 3 };

typedef struct probe_rank {
  bs_watch watch;
  pthread_t thread;
  bs_usage outside, entered; /* time in collectives so far; the start of the newest one */
  diag_call *calls;          /* n */
} probe_rank;

typedef struct probing {
  bs_case_kept kept;
  bs_case own;
  diag_probe asked;
  probe_rank *ranks;
  bs_collective_hook hook;
} probing;

static void add_between(bs_usage *sum, const bs_usage *from, const bs_usage *to) {
  sum->seconds += to->seconds - from->seconds;
  sum->cpu_s += to->cpu_s - from->cpu_s;
  sum->queued_s += to->queued_s - from->queued_s;
  sum->sleeps += to->sleeps - from->sleeps;
}

/* Records that a rank enters a collective: waiting there for the others is not the rank's own fault. */
static uint32_t before_collective(void *user, uint32_t rank, const bs_coll_call *call) {
  probe_rank *r = &((probing *)user)->ranks[rank];
  (void)call;
  if (pthread_equal(r->thread, pthread_self())) r->entered = bs_usage_now(1);
  return 1;
}

static void after_collective(void *user, uint32_t rank, const bs_coll_call *call) {
  probe_rank *r = &((probing *)user)->ranks[rank];
  (void)call;
  if (!pthread_equal(r->thread, pthread_self())) return;
  const bs_usage now = bs_usage_now(0);
  add_between(&r->outside, &r->entered, &now);
}

static int32_t one_call(probe_rank *r, bs_layer *layer, const bs_tensor *x, const bs_tensor *y,
                        diag_call *call, bs_error *err) {
  bs_tensor in = *x, out = *y;
  const bs_watch before = r->watch;
  in.dims[0] = out.dims[0] = call->tokens;
  r->outside = (bs_usage){0};
  const bs_usage began = bs_usage_now(1);
  const int32_t rc = bs_layer_forward(layer, &in, &out, NULL, err);
  const bs_usage ended = bs_usage_now(0);
  bs_usage own = {0};
  add_between(&own, &began, &ended);
  call->seconds = own.seconds;
  const double blocked = own.seconds - own.cpu_s - own.queued_s;
  const double excused = r->outside.seconds - r->outside.cpu_s - r->outside.queued_s;
  call->blocked_s = blocked > excused ? blocked - excused : 0;
  call->sleeps = own.sleeps - r->outside.sleeps;
  call->waits = r->watch.waits - before.waits;
  call->copied_bytes = r->watch.copied_bytes - before.copied_bytes;
  call->plan_s = r->watch.plan_seconds - before.plan_seconds;
  for (int k = 0; k < BS_REPLAN_COUNT_; k++) call->plans[k] = r->watch.plans[k] - before.plans[k];
  memcpy(call->last, r->watch.last, sizeof call->last);
  return rc;
}

static int32_t calls(probing *p, bs_rank *rank, uint32_t index, bs_layer *layer, const bs_tensor *x,
                     const bs_tensor *y, bs_error *err) {
  probe_rank *r = &p->ranks[index];
  int32_t rc = BS_OK;
  diag_call warm = {.tokens = x->dims[0]};
  for (int i = 0; rc == BS_OK && i < WARM_CALLS; i++) rc = one_call(r, layer, x, y, &warm, err);
  for (uint32_t i = 0; rc == BS_OK && i < p->asked.n; i++) {
    r->calls[i].tokens = p->asked.calls[i].tokens;
    rc = one_call(r, layer, x, y, &r->calls[i], err);
  }
  if (rc == BS_OK) rc = bs_rank_sync(rank, err);
  const char *told = bs_layer_capture(layer, BS_PASS_FORWARD);
  if (index == 0) snprintf(p->asked.captured, sizeof p->asked.captured, "%s", told != NULL ? told : "");
  return rc;
}

static int32_t rank_main(bs_rank *rank, void *arg, bs_error *err) {
  probing *p = arg;
  const bs_rank_api *api = bs_rank_get_api();
  const bs_case *c = &p->own;
  const uint32_t index = api->rank(rank);
  bs_layer *layer = NULL;
  bs_tensor x = {0}, y = {0};
  int64_t first = 0, rows = 0, cols = 0;
  p->ranks[index].thread = pthread_self();
  bs_rank_watch(rank, &p->ranks[index].watch);
  int32_t rc = bs_layer_build(rank, c->method, &c->spec, c->w, c->bias, &layer, err);
  if (rc == BS_OK) rc = bs_case_input(c, rank, layer, c->x, &x, err);
  if (rc == BS_OK) rc = bs_case_features(c, layer, index, &first, &cols, err);
  bs_place_tokens(c, c->spec.y_placement, index, &first, &rows);
  if (rc == BS_OK) rc = bs_case_tensor(rank, c->spec.y_dtype, 2, rows, cols, &y, err);
  if (rc == BS_OK) rc = calls(p, rank, index, layer, &x, &y, err);
  if (y.data != NULL) api->tensor_free(rank, &y);
  if (x.data != NULL) api->tensor_free(rank, &x);
  bs_layer_free(layer);
  bs_rank_watch(rank, NULL);
  return rc;
}

static void sum_up(const probing *p) {
  for (uint32_t i = 0; i < p->asked.n; i++) {
    diag_call *all = &p->asked.calls[i];
    for (uint32_t r = 0; r < p->own.world_size; r++) {
      const diag_call *one = &p->ranks[r].calls[i];
      if (one->seconds > all->seconds) all->seconds = one->seconds;
      if (one->blocked_s > all->blocked_s) all->blocked_s = one->blocked_s;
      if (one->plan_s > all->plan_s) all->plan_s = one->plan_s;
      all->sleeps += one->sleeps;
      all->waits += one->waits;
      all->copied_bytes += one->copied_bytes;
      for (int k = 0; k < BS_REPLAN_COUNT_; k++) all->plans[k] += one->plans[k];
    }
    memcpy(all->last, p->ranks[0].calls[i].last, sizeof all->last);
  }
}

static void probing_free(probing *p) {
  for (uint32_t r = 0; p->ranks != NULL && r < p->own.world_size; r++) free(p->ranks[r].calls);
  free(p->ranks);
  free(p->asked.calls);
  free(p);
}

static int32_t probing_make(const bs_case *c, const diag_probe *probe, probing **out, bs_error *err) {
  const bs_backend *backend = NULL;
  void *state = NULL;
  const int32_t rc = bs_find_backend(c->context, c->backend, &backend, &state, err);
  probing *p = rc == BS_OK ? calloc(1, sizeof *p) : NULL;
  if (p == NULL) return rc != BS_OK ? rc : bs_no_memory(err, "a probe");
  p->own = *c;
  p->asked = *probe;
  p->hook = (bs_collective_hook){p, before_collective, after_collective};
  /* A hook would send collectives of device memory through the host. */
  if ((backend->flags & BS_BACKEND_HOST_MEMORY) != 0) p->own.hook = &p->hook;
  if (probe->capture) p->own.spec.flags |= BS_LAYER_CAPTURE;
  p->ranks = calloc(c->world_size, sizeof *p->ranks);
  p->asked.calls = calloc(probe->n + 1u, sizeof *p->asked.calls);
  int good = p->ranks != NULL && p->asked.calls != NULL;
  if (good) memcpy(p->asked.calls, probe->calls, probe->n * sizeof *p->asked.calls);
  for (uint32_t r = 0; good && r < c->world_size; r++)
    good = (p->ranks[r].calls = calloc(probe->n + 1u, sizeof(diag_call))) != NULL;
  if (!good) {
    probing_free(p);
    return bs_no_memory(err, "%u calls of %u ranks", probe->n, c->world_size);
  }
  *out = p;
  return BS_OK;
}

int32_t diag_probe_run(const bs_case *c, diag_probe *probe, bs_error *err) {
  bs_world *world = NULL;
  probing *p = NULL;
  int32_t rc = probing_make(c, probe, &p, err);
  if (rc != BS_OK) return rc;
  rc = bs_case_world(&p->own, &world, err);
  if (rc == BS_OK) rc = bs_world_run(world, rank_main, p, err);
  if (world != NULL && bs_world_left_behind(world)) { /* a rank still has all of it */
    bs_case_keep(&p->kept);
    return rc;
  }
  if (rc == BS_OK) {
    sum_up(p);
    memcpy(probe->calls, p->asked.calls, probe->n * sizeof *probe->calls);
    memcpy(probe->captured, p->asked.captured, sizeof probe->captured);
  }
  bs_world_destroy(world);
  probing_free(p);
  return rc;
}
