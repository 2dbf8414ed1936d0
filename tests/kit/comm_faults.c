/* SPDX-License-Identifier: MIT
 * comm_faults.c - group communicator: ranks that are at different call sites, do not come, or abort. */
#include <time.h>
#include <unistd.h>

#include "tests/kit/comm.h"

static int32_t barrier(test_rank *t, const char *site, int64_t timeout_ns) {
  bs_coll_call c = make_call(BS_COLL_BARRIER, 0, 0, 0, site);
  c.timeout_ns = timeout_ns;
  return t->comm->barrier(t->handle, &c, &t->err);
}

static void mismatch_body(test_rank *t) {
  t->rc = barrier(t, t->rank == 0 ? "here" : "there", INT64_C(10000000000));
}

enum { LATE_MS = 200 }; /* a rank's deadline; it answers at most a second later */
static int64_t begun_ms[16], ended_ms[16];

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void late_body(test_rank *t) {
  if (t->rank == 1) return; /* never comes */
  begun_ms[t->rank] = now_ms();
  t->rc = barrier(t, "late", INT64_C(1000000) * LATE_MS);
  ended_ms[t->rank] = now_ms();
}
static void abort_body(test_rank *t) {
  if (t->rank == 1) {
    usleep(50000);
    t->comm->abort(t->world, 1, BS_INTERNAL, "the kit says so");
    return;
  }
  t->rc = barrier(t, "abort", INT64_C(20000000000));
}

/* Not before any deadline has passed: the first one's ends the wait of all. Not long after its own. */
static void check_time(uint32_t r) {
  const int64_t first = begun_ms[0] < begun_ms[2] ? begun_ms[0] : begun_ms[2];
  kit_assert(ended_ms[r] - first >= LATE_MS - 1,
             "a rank does not come: rank %u gives up after %lld ms, the first deadline is at %d ms", r,
             (long long)(ended_ms[r] - first), LATE_MS);
  kit_assert(
      ended_ms[r] - begun_ms[r] <= LATE_MS + 1000,
      "a rank does not come: rank %u answers after %lld ms: its deadline is %d ms, and a second more is "
      "the limit",
      r, (long long)(ended_ms[r] - begun_ms[r]), LATE_MS);
}

void kit_comm_faults(const kit_case *c) {
  static void (*const bodies[])(test_rank *) = {mismatch_body, late_body, abort_body};
  static const int32_t wanted[] = {BS_MISMATCH, BS_DEADLINE, BS_ABORTED};
  static const char *const what[] = {"ranks are at different call sites", "a rank does not come",
                                     "a rank aborts the world"};
  static kit_plugin p;
  test_rank ranks[16];
  const bs_comm *comm = kit_comm_open(c, &p);
  if (comm == NULL) return;
  if (comm->barrier == NULL) {
    kit_unsupported("the slot barrier is NULL");
    return;
  }
  run_ranks(3, bodies[c->arg], NULL, ranks);
  for (uint32_t r = 0; r < 3; r++) {
    if (c->arg > 0 && r == 1) continue;
    kit_assert(ranks[r].rc == wanted[c->arg], "%s: rank %u gets %s, it must be %s", what[c->arg], r,
               bs_status_name(ranks[r].rc), bs_status_name(wanted[c->arg]));
    kit_assert(ranks[r].err.message[0] != '\0', "%s: rank %u gets no reason", what[c->arg], r);
    if (bodies[c->arg] == late_body) check_time(r);
  }
  kit_unwrap();
  kit_plugin_deactivate(&p);
}
