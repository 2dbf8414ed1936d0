/* SPDX-License-Identifier: MIT
 *
 * plugin.c - the communicator plugin "mpi" (and "mpich", the same source with the other library): ranks are
 * the processes of an MPI job; those of one machine meet in shared memory, MPI carries what crosses machines.
 */
#include "mpi_comm.h"

static const bs_comm mpic_vtable = {
    .struct_size = (uint32_t)sizeof(bs_comm),
    .launch = BS_LAUNCH_ATTACHED,
    .name = MPIC_NAME,
    .summary = "ranks are processes of an MPI job; shared memory within a machine, reduction in rank order",
    .world_open = mpic_world_open,
    .world_close = mpic_world_close,
    .rank_open = mpic_rank_open,
    .rank_close = mpic_rank_close,
    .group_open = mpic_group_open,
    .all_reduce = mpic_collective,
    .all_gather = mpic_collective,
    .reduce_scatter = mpic_collective,
    .broadcast = mpic_collective,
    .all_to_all = mpic_collective,
    .send = mpic_send,
    .recv = mpic_recv,
    .exchange = mpic_exchange,
    .barrier = mpic_collective,
    .abort = mpic_abort,
    .attach = mpic_attach,
};

#define PARAM(name_, default_, choices_, unit_, doc_)                                    \
  {                                                                                      \
    .struct_size = (uint32_t)sizeof(bs_param_desc), .type = BS_PARAM_INT, .name = name_, \
    .default_text = default_, .choices = choices_, .unit = unit_, .doc = doc_            \
  }

static const bs_param_desc mpic_params[] = {
    PARAM("spin_us", "100", "0..1000000", "us",
          "busy wait before a rank sleeps; not used when ranks outnumber the cores they have"),
    PARAM("inline_bytes", "4096", "0..65536", "bytes",
          "all_reduce up to this size needs one meeting; larger ones two"),
    PARAM("stage_kib", "512", "64..65536", "KiB",
          "half of the shared memory of each rank of a machine: larger messages go in pieces of this"),
    PARAM("ranks_per_machine", "0", "0..4096", NULL,
          "treat each so many ranks as a machine of their own, to try on one what several do; 0: what they "
          "are"),
};

static int32_t mpic_activate(const bs_host *host, bs_plugin_self *self, void **out_state, bs_error *err) {
  BS_HERE_LOC(here);
  mpic_state *state = host->alloc(host->ctx, sizeof *state, 64);
  if (state == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-COLL-MEMORY", "no memory for the plugin's state");
  state->host = host;
  state->self = self;
  state->fail_request = MPI_REQUEST_NULL;
  int32_t rc = comm_register(host, self, mpic_params, sizeof mpic_params / sizeof mpic_params[0],
                             &mpic_vtable, state, &here, err);
  bs_comm also = mpic_vtable; /* also under the library's name, for users who know which library started the
                               * job */
  also.name = MPIC_ALSO;
  if (rc == BS_OK && strcmp(MPIC_ALSO, MPIC_NAME) != 0)
    rc = host->register_thing(host->ctx, self, BS_KIND_COMM, &also, state, &here, err);
  if (rc != BS_OK) {
    host->free(host->ctx, state);
    return rc;
  }
  pthread_mutex_init(&state->lock, NULL);
  *out_state = state;
  return BS_OK;
}

static int32_t mpic_deactivate(void *state_ptr, bs_error *err) {
  mpic_state *state = state_ptr;
  (void)err;
  mpic_leave(state);
  pthread_mutex_destroy(&state->lock);
  state->host->free(state->host->ctx, state);
  return BS_OK;
}

BS_PLUGIN_DEFINE(MPIC_NAME, BS_PLUGIN_VERSION, "communicator over the processes of an MPI job",
                 1u << BS_KIND_COMM, MPIC_THINGS, mpic_activate, mpic_deactivate)
