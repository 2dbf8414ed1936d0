/* SPDX-License-Identifier: MIT
 * comm_faults.c - group communicator: ranks that are at different call sites, do not come, or abort; and, of
 * processes, one that is killed or configured otherwise. */
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "kit/comm.h"

#define LONG_NS INT64_C(10000000000) /* of waits that something else must end */
enum { LATE_TURNS = 10 };

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int32_t barrier(test_rank *t, const char *site, int64_t timeout_ns) {
  kit_outcome *mine = kit_mine(t);
  bs_coll_call c = make_call(BS_COLL_BARRIER, 0, 0, 0, site);
  c.timeout_ns = timeout_ns;
  mine->begun_ms = now_ms();
  const int32_t rc = t->comm->barrier(t->handle, &c, &t->err);
  mine->ended_ms = now_ms();
  return rc;
}

static void killed_body(test_rank *t) {
  t->rc = barrier(t, "before", LONG_NS);
  if (t->rank == KIT_CULPRIT) kill(getpid(), SIGKILL);
  if (t->rc == BS_OK) t->rc = barrier(t, "killed", LONG_NS);
}

static void abort_body(test_rank *t) {
  if (t->rank != KIT_CULPRIT) {
    t->rc = barrier(t, "abort", LONG_NS);
    return;
  }
  usleep(50000);
  t->comm->abort(t->world, t->rank, BS_INTERNAL, "the kit says so");
}

/* Ranks that leave the order free, one of them with another dtype: a library would add the data as they are.
 * A communicator without that dtype refuses, and no rank need wait for it. */
static void any_order_body(test_rank *t) {
  uint64_t room[16] = {0};
  const uint32_t dtype = t->rank == KIT_CULPRIT ? BS_BF16 : BS_F32;
  bs_coll_call c = make_call(BS_COLL_ALL_REDUCE, dtype, 1, 16, "kit.any_order");
  c.flags = BS_COLL_ANY_ORDER;
  c.timeout_ns = LONG_NS;
  c.in = c.out = room;
  t->rc = t->comm->all_reduce(t->handle, &c, &t->err);
  if (t->rc == BS_UNSUPPORTED) t->comm->abort(t->world, t->rank, t->rc, "the dtype is not served");
}

void kit_body_fault(test_rank *t) {
  switch (((const kit_work *)t->arg)->body) {
    case KIT_MISMATCH:
      t->rc = barrier(t, t->rank == 0 ? "here" : "there", LONG_NS);
      break;
    case KIT_LATE: /* the culprit never comes */
      if (t->rank != KIT_CULPRIT) t->rc = barrier(t, "late", INT64_C(1000000) * KIT_LATE_MS);
      break;
    case KIT_ABORT:
      abort_body(t);
      break;
    case KIT_KILLED:
      killed_body(t);
      break;
    case KIT_ANY_ORDER:
      any_order_body(t);
      break;
    default: /* KIT_CONFIG: the world does not open */
      break;
  }
}

/* The error that each rank except the culprit must get. The words are compared for processes: their starter
 * sees only their output. */
static const struct {
  const char *what;
  int32_t code;
  uint32_t culprit_too;
  const char *words[2];
} specified[KIT_BODIES] = {
    [KIT_MISMATCH] = {"ranks are at different call sites", BS_MISMATCH, 1, {"here", "there"}},
    [KIT_LATE] = {"a rank does not come", BS_DEADLINE, 0, {"rank 1", "late"}},
    [KIT_ABORT] = {"a rank aborts the world", BS_ABORTED, 0, {"rank 1", "the kit says so"}},
    [KIT_KILLED] = {"a rank is killed", BS_RANK_FAILED, 0, {"rank 1", "before"}},
    [KIT_CONFIG] = {"a rank is configured otherwise", BS_MISMATCH, 1, {"", ""}},
    [KIT_ANY_ORDER] = {"ranks reduce other dtypes in any order", BS_MISMATCH, 1, {"bf16", "f32"}},
};

/* Not before any deadline has passed: the first one's ends the wait of all. Not long after its own. */
static void check_time(const kit_outcome *ranks, uint32_t r) {
  const int64_t first = ranks[0].begun_ms < ranks[2].begun_ms ? ranks[0].begun_ms : ranks[2].begun_ms;
  kit_assert(ranks[r].ended_ms - first >= KIT_LATE_MS - 1,
             "a rank does not come: rank %u gives up after %lld ms, the first deadline is at %d ms", r,
             (long long)(ranks[r].ended_ms - first), KIT_LATE_MS);
  kit_assert(
      ranks[r].ended_ms - ranks[r].begun_ms <= KIT_LATE_MS + 1000,
      "a rank does not come: rank %u answers after %lld ms: its deadline is %d ms, and a second more is "
      "the limit",
      r, (long long)(ranks[r].ended_ms - ranks[r].begun_ms), KIT_LATE_MS);
}

/* A machine that keeps a rank from its call until the other's deadline is near shows nothing of the
 * communicator. */
static int begun_apart(const kit_outcome *ranks) {
  const int64_t apart = ranks[0].begun_ms - ranks[2].begun_ms;
  return 2 * (apart < 0 ? -apart : apart) >= KIT_LATE_MS;
}

static void check_words(const kit_outcome *o, uint32_t body) {
  char all[sizeof o->err.message + sizeof o->err.where + 2];
  snprintf(all, sizeof all, "%s %s", o->err.message, o->err.where);
  for (int i = 0; i < 2; i++)
    kit_assert(strstr(all, specified[body].words[i]) != NULL, "%s: rank %u does not get '%s', but: %.300s",
               specified[body].what, o->rank, specified[body].words[i], all);
  if (body == KIT_ABORT)
    kit_assert(o->err.native_code == BS_INTERNAL, "%s: rank %u finds %lld in native_code, abort was given %d",
               specified[body].what, o->rank, (long long)o->err.native_code, BS_INTERNAL);
}

static void check_fault(const kit_case *c, uint32_t body) {
  static kit_plugin p;
  const bs_comm *comm = kit_comm_open(c, &p);
  if (comm == NULL) return;
  if (comm->barrier == NULL) {
    kit_unsupported("the slot barrier is NULL");
    return;
  }
  const kit_outcome *ranks = kit_comm_run(comm, body, BS_COLL_BARRIER, KIT_FAULT_RANKS);
  const int timed = body == KIT_LATE && comm->launch != BS_LAUNCH_DRIVEN;
  for (int turn = 0; ranks != NULL && timed && turn < LATE_TURNS && begun_apart(ranks); turn++)
    ranks = kit_comm_run(comm, body, BS_COLL_BARRIER, KIT_FAULT_RANKS);
  if (ranks == NULL) return;
  if (body == KIT_ANY_ORDER && ranks[KIT_CULPRIT].rc == BS_UNSUPPORTED) {
    kit_unsupported("all_reduce of bf16 is not served");
    return;
  }
  for (uint32_t r = 0; r < KIT_FAULT_RANKS; r++) {
    if (!specified[body].culprit_too && r == KIT_CULPRIT) continue;
    kit_assert(ranks[r].rc == specified[body].code, "%s: rank %u gets %s, it must be %s%s%s",
               specified[body].what, r, bs_status_name(ranks[r].rc), bs_status_name(specified[body].code),
               ranks[r].rc != BS_OK ? ": " : "", ranks[r].rc != BS_OK ? ranks[r].err.message : "");
    kit_assert(ranks[r].err.message[0] != '\0', "%s: rank %u gets no reason", specified[body].what, r);
    /* Driven ranks need no time to be found stuck. */
    if (body == KIT_LATE && comm->launch != BS_LAUNCH_DRIVEN) check_time(ranks, r);
    if (comm->launch == BS_LAUNCH_ATTACHED) check_words(&ranks[r], body);
  }
  kit_comm_close(&p);
}

void kit_comm_faults(const kit_case *c) {
  static const uint32_t bodies[] = {KIT_MISMATCH, KIT_LATE, KIT_ABORT, KIT_ANY_ORDER};
  check_fault(c, bodies[c->arg]);
}

void kit_comm_processes(const kit_case *c) {
  static const uint32_t bodies[] = {KIT_KILLED, KIT_CONFIG};
  check_fault(c, bodies[c->arg]);
}
