/* SPDX-License-Identifier: MIT
 *
 * plugin.c - the communicator plugin "shm": P ranks as P processes of one machine, which bsrun or torchrun
 * started.
 */
#include "shm.h"

static const bs_comm shm_vtable = {
    .struct_size = (uint32_t)sizeof(bs_comm),
    .launch = BS_LAUNCH_ATTACHED,
    .name = "shm",
    .summary = "ranks are processes of one machine over shared memory; the bits of threads",
    .world_open = shm_world_open,
    .world_close = shm_world_close,
    .rank_open = shm_rank_open,
    .rank_close = shm_rank_close,
    .group_open = shm_group_open,
    .all_reduce = shm_collective,
    .all_gather = shm_collective,
    .reduce_scatter = shm_collective,
    .broadcast = shm_collective,
    .all_to_all = shm_collective,
    .send = shm_message,
    .recv = shm_message,
    .exchange = shm_exchange,
    .max_ranks = SHM_MAX_RANKS,
    .barrier = shm_collective,
    .abort = shm_abort,
    .attach = shm_attach,
};

static const bs_param_desc params[] = {
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
     .default_text = "4096",
     .choices = "0..262144",
     .unit = "bytes",
     .doc = "an all_reduce up to this size is reduced by every rank, with one meeting; a larger one is "
            "shared out"},
};

static int32_t shm_activate(const bs_host *host, bs_plugin_self *self, void **out_state, bs_error *err) {
  BS_HERE_LOC(here);
  shm_job *job = host->alloc(host->ctx, sizeof *job, 64);
  if (job == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-COLL-MEMORY", "no memory for the plugin's state");
  memset(job, 0, sizeof *job);
  job->host = host;
  job->self = self;
  job->fd = -1;
  for (uint32_t r = 0; r < SHM_MAX_RANKS; ++r) job->watch[r] = -1;
  job->arithmetic.host = host;
  thr_kernels_choose(&job->arithmetic.kernels);
  const int32_t rc =
      comm_register(host, self, params, sizeof params / sizeof params[0], &shm_vtable, job, &here, err);
  if (rc != BS_OK) {
    host->free(host->ctx, job);
    return rc;
  }
  *out_state = job;
  return BS_OK;
}

static int32_t shm_deactivate(void *state_ptr, bs_error *err) {
  shm_job *job = state_ptr;
  (void)err;
  shm_job_close(job);
  job->host->free(job->host->ctx, job);
  return BS_OK;
}

BS_PLUGIN_DEFINE("shm", BS_PLUGIN_VERSION, "communicator over the processes of one machine",
                 1u << BS_KIND_COMM, "comm:shm\n", shm_activate, shm_deactivate)
