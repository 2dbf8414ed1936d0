/* SPDX-License-Identifier: MIT
 * comm_run.c - the ranks of group communicator: threads here, processes in comm_job.c. */
#include "tests/kit/comm.h"

static uint32_t thing;

const bs_comm *kit_comm_open(const kit_case *c, kit_plugin *p) {
  kit_plugin_open(p);
  thing = c->thing;
  test_comm = kit_comm_of(&p->host.things[thing], &test_state);
  if (test_comm->launch == BS_LAUNCH_THREADS || test_comm->launch == BS_LAUNCH_ATTACHED) return test_comm;
  kit_unsupported("launch %u: the kit starts ranks as threads and as processes", test_comm->launch);
  return NULL;
}

static const kit_outcome *run_threads(uint32_t body, uint32_t kind, uint32_t size) {
  static kit_outcome all[KIT_RANKS];
  kit_work work = {.body = body, .kind = kind, .all = all};
  test_rank ranks[KIT_RANKS];
  memset(all, 0, sizeof all);
  run_ranks(size, kit_body_run, &work, ranks);
  for (uint32_t r = 0; r < size; r++) {
    all[r].rank = r;
    all[r].rc = ranks[r].rc;
    all[r].err = ranks[r].err;
  }
  return all;
}

const kit_outcome *kit_comm_run(const bs_comm *comm, uint32_t body, uint32_t kind, uint32_t size) {
  return comm->launch == BS_LAUNCH_THREADS ? run_threads(body, kind, size)
                                           : kit_job_run(thing, body, kind, size);
}

void kit_comm_close(kit_plugin *p) {
  kit_unwrap();
  kit_plugin_deactivate(p);
}
