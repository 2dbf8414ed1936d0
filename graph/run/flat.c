/* SPDX-License-Identifier: MIT
 * flat.c - the hot loop of a run: calls of plans that were checked before. */
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "graph/run/run.h"

int32_t gnode_failed(const graph *g, const gnode *n, int32_t rc, bs_error *err) {
  if (err == NULL) return rc;
  if (err->code == BS_OK || err->message[0] == '\0')
    bs_error_set(err, rc, "BS-OP-FAILED", "%s failed without a message", graph_op_name(n->op));
  if (strcmp(err->id, "BS-OP-INDEX") == 0) rc = BS_INPUT;
  err->code = rc;
  if (n->origin != GNONE)
    bs_error_where(err, "%s of node %s", graph_op_name(n->op), graph_text_of(g, g->origins[n->origin].text));
  return rc;
}

static int32_t run_steps(gbinding *b, bs_error *err) {
  if (err != NULL) err->code = BS_OK;
  for (uint32_t i = 0; i < b->n_steps; i++) {
    const gstep *s = &b->steps[i];
    const int32_t rc = bs_dispatch_run_unchecked(s->plan, s->args, NULL, err);
    if (rc != BS_OK) return gnode_failed(b->g, &b->g->nodes[s->node], rc, err);
  }
  return BS_OK;
}

/* What the thread has used so far. */
typedef struct used {
  double cpu_s;
  uint64_t sleeps;
} used;

static used used_now(void) {
  struct timespec t = {0};
  struct rusage r = {0};
  getrusage(RUSAGE_THREAD, &r);
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (used){(double)t.tv_sec + 1e-9 * (double)t.tv_nsec, (uint64_t)r.ru_nvcsw};
}

static int32_t profile_steps(gbinding *b, bs_error *err) {
  if (err != NULL) err->code = BS_OK;
  for (uint32_t i = 0; i < b->n_steps; i++) {
    gstep *s = &b->steps[i];
    const used before = used_now();
    const double began = bs_clock_s();
    const int32_t rc = bs_dispatch_run_unchecked(s->plan, s->args, NULL, err);
    const double ended = bs_clock_s();
    if (rc != BS_OK) return gnode_failed(b->g, &b->g->nodes[s->node], rc, err);
    const used after = used_now();
    s->runs++;
    s->ns += (uint64_t)((ended - began) * 1e9);
    s->cpu_ns += (uint64_t)((after.cpu_s - before.cpu_s) * 1e9);
    s->waits += after.sleeps - before.sleeps;
  }
  return BS_OK;
}

int32_t gflat_run(gbinding *b, int profile, bs_error *err) {
  const int32_t rc = grank_enter(&b->core->rank, err);
  return rc == BS_OK ? grank_leave(&b->core->rank, profile ? profile_steps(b, err) : run_steps(b, err), err)
                     : rc;
}
