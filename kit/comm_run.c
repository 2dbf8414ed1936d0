/* SPDX-License-Identifier: MIT
 * comm_run.c - the ranks of group communicator: threads and coroutines here, processes in comm_job.c. */
#include "kit/comm.h"

static uint32_t thing;

const bs_comm *kit_comm_open(const kit_case *c, kit_plugin *p) {
  kit_plugin_open(p);
  thing = c->thing;
  test_comm = kit_comm_of(&p->host.things[thing], &test_state);
  if (test_comm->launch >= BS_LAUNCH_THREADS && test_comm->launch <= BS_LAUNCH_DRIVEN) return test_comm;
  kit_unsupported("launch %u: the kit knows ranks that are threads, processes and driven", test_comm->launch);
  return NULL;
}

static void driven_rank(void *arg, uint32_t rank) {
  test_rank *t = (test_rank *)arg + rank;
  t->rc = t->comm->rank_open(t->world, rank, &t->handle, &t->err);
  kit_assert(t->rc == BS_OK, "rank %u of %u: rank_open fails: %s: %s", rank, t->size, t->err.id,
             t->err.message);
  kit_body_run(t);
}

/* The communicator runs the ranks itself. What world_drive returns is the first failure again. */
static void run_driven(uint32_t size, kit_work *work, test_rank *ranks) {
  const bs_world_request request = {.struct_size = sizeof request, .world_size = size};
  bs_error err = BS_ERROR_INIT;
  void *world = NULL;
  kit_assert(test_comm->world_open(test_state, &request, &world, &err) == BS_OK, "world_open fails: %s: %s",
             err.id, err.message);
  for (uint32_t r = 0; r < size; r++)
    ranks[r] = (test_rank){.comm = test_comm, .world = world, .rank = r, .size = size, .arg = work};
  const int32_t rc = test_comm->world_drive(world, driven_rank, ranks, &err);
  for (uint32_t r = 0; r < size; r++) {
    kit_assert(ranks[r].handle != NULL, "world_drive did not run rank %u of %u (%s)", r, size,
               bs_status_name(rc));
    test_comm->rank_close(ranks[r].handle);
  }
  test_comm->world_close(world);
}

static const kit_outcome *run_here(int driven, uint32_t body, uint32_t kind, uint32_t size) {
  static kit_outcome all[KIT_RANKS];
  kit_work work = {.body = body, .kind = kind, .all = all};
  test_rank ranks[KIT_RANKS];
  memset(all, 0, sizeof all);
  if (driven)
    run_driven(size, &work, ranks);
  else
    run_ranks(size, kit_body_run, &work, ranks);
  for (uint32_t r = 0; r < size; r++) {
    all[r].rank = r;
    all[r].rc = ranks[r].rc;
    all[r].err = ranks[r].err;
  }
  return all;
}

const kit_outcome *kit_comm_run(const bs_comm *comm, uint32_t body, uint32_t kind, uint32_t size) {
  return comm->launch == BS_LAUNCH_ATTACHED ? kit_job_run(thing, body, kind, size)
                                            : run_here(comm->launch == BS_LAUNCH_DRIVEN, body, kind, size);
}

void kit_comm_close(kit_plugin *p) {
  kit_unwrap();
  kit_plugin_deactivate(p);
}
