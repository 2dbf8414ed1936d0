/* SPDX-License-Identifier: MIT
 *
 * plugin.c - the communicator plugin "threads": P ranks as P threads of this process, started by the
 * host. Built into the library by default; the same sources make bs_threads.so.
 */
#include "threads.h"

static const bs_comm thr_vtable = {
    .struct_size = (uint32_t)sizeof(bs_comm),
    .launch = BS_LAUNCH_THREADS,
    .name = "threads",
    .summary = "ranks are threads of one process; reduction in rank order, equal bits on every rank",
    .world_open = thr_world_open,
    .world_close = thr_world_close,
    .world_drive = NULL,
    .rank_open = thr_rank_open,
    .rank_close = thr_rank_close,
    .group_open = thr_group_open,
    .all_reduce = thr_all_reduce,
    .all_gather = thr_all_gather,
    .reduce_scatter = thr_reduce_scatter,
    .broadcast = thr_broadcast,
    .all_to_all = thr_all_to_all,
    .send = thr_message,
    .recv = thr_message,
    .barrier = thr_barrier,
    .abort = thr_abort,
    .exchange = thr_exchange,
    .max_ranks = THR_MAX_RANKS,
};

static const bs_param_desc thr_params[] = {
    {.struct_size = (uint32_t)sizeof(bs_param_desc),
     .type = BS_PARAM_INT,
     .name = "spin_us",
     .default_text = "100",
     .choices = "0..1000000",
     .unit = "us",
     .doc = "busy wait before a rank sleeps; not used when ranks outnumber cores"},
    {.struct_size = (uint32_t)sizeof(bs_param_desc),
     .type = BS_PARAM_INT,
     .name = "inline_bytes",
     .default_text = "512",
     .choices = "0..16384",
     .unit = "bytes",
     .doc = "messages up to this size are copied and need one meeting; larger ones are read in place"},
};

static int32_t thr_activate(const bs_host *host, bs_plugin_self *self, void **out_state, bs_error *err) {
  BS_HERE_LOC(here);
  thr_state *state = host->alloc(host->ctx, sizeof *state, 64);
  if (state == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-COLL-MEMORY", "no memory for the plugin's state");
  state->host = host;
  state->self = self;
  const int32_t rc = comm_register(host, self, thr_params, sizeof thr_params / sizeof thr_params[0],
                                   &thr_vtable, state, &here, err);
  if (rc != BS_OK) {
    host->free(host->ctx, state);
    return rc;
  }
  *out_state = state;
  return BS_OK;
}

static int32_t thr_deactivate(void *state_ptr, bs_error *err) {
  thr_state *state = state_ptr;
  (void)err;
  state->host->free(state->host->ctx, state);
  return BS_OK;
}

BS_PLUGIN_DEFINE("threads", BS_PLUGIN_VERSION, "communicator over the threads of one process",
                 1u << BS_KIND_COMM, "comm:threads\n", thr_activate, thr_deactivate)
