/* SPDX-License-Identifier: MIT
 *
 * job.h - what a program does that mpirun has started as a rank: open the communicator, make calls, compare.
 * Used by the programs of this folder that are no tests of their own (mpi_*.c).
 */
#ifndef BS_TESTS_MPI_JOB_H
#define BS_TESTS_MPI_JOB_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "blockshock/blockshock.h"
#include "core/base/dtype.h"
#include "core/plugin/registry.h"

extern char **environ;

#define JOB_CASES 512u

/* One rank of a job: of the MPI communicator in a process, or of `threads` in a thread. */
typedef struct job_rank {
  const bs_comm *comm;
  void *handle;
  uint32_t rank;
  uint32_t size;
  uint64_t bits[JOB_CASES]; /* of the result of each case */
  uint32_t cases;
  bs_error err;
} job_rank;

typedef struct job {
  bs_context *context;
  const bs_comm *comm;
  void *state;
  void *world;
  bs_attachment here;
  job_rank me;
} job;

static inline void die(const job_rank *r, const char *what) {
  fprintf(stderr, "rank %u: %s: %s %s\n", r->rank, what, r->err.id, r->err.message);
  fflush(NULL);
  _exit(1);
}

/* Opens the communicator $JOB_COMM (default mpi) and joins the job; parameters in $JOB_PARAM ("mpi.a=b"). */
static inline int32_t job_join(job *j) {
  const char *comm = getenv("JOB_COMM"), *param = getenv("JOB_PARAM");
  const char *params[1] = {param};
  const char *dirs[1] = {getenv("BS_TEST_PLUGIN_DIR")};
  bs_context_options o = {.struct_size = sizeof o,
                          .trust = BS_TRUST_ANY,
                          .n_plugin_dirs = 1,
                          .plugin_dirs = dirs,
                          .params = params,
                          .n_params = param != NULL ? 1 : 0};
  memset(j, 0, sizeof *j);
  bs_error *err = &j->me.err;
  int32_t rc = bs_context_open(&o, &j->context, err);
  if (rc == BS_OK) rc = bs_find_comm(j->context, comm != NULL ? comm : "mpi", &j->comm, &j->state, err);
  j->here.struct_size = sizeof j->here;
  if (rc == BS_OK) rc = j->comm->attach(j->state, (const char *const *)environ, &j->here, err);
  j->me.comm = j->comm;
  j->me.rank = j->here.rank;
  j->me.size = j->here.world_size;
  return rc;
}

static inline int32_t job_open(job *j, uint64_t config_hash, double timeout_s) {
  bs_world_request request = {.struct_size = sizeof request,
                              .world_size = j->here.world_size,
                              .rank = j->here.rank,
                              .config_hash = config_hash,
                              .timeout_ns = (int64_t)(timeout_s * 1e9)};
  int32_t rc = j->comm->world_open(j->state, &request, &j->world, &j->me.err);
  return rc != BS_OK ? rc : j->comm->rank_open(j->world, j->here.rank, &j->me.handle, &j->me.err);
}

static inline void job_close(job *j) {
  if (j->me.handle != NULL) j->comm->rank_close(j->me.handle);
  if (j->world != NULL) j->comm->world_close(j->world);
  j->world = j->me.handle = NULL;
}

static inline bs_coll_call make_call(uint32_t kind, uint32_t dtype, uint64_t rows, uint64_t count,
                                     const char *site) {
  bs_coll_call c;
  memset(&c, 0, sizeof c);
  c.struct_size = sizeof c;
  c.kind = kind;
  c.dtype_in = c.dtype_out = c.reduce_dtype = dtype;
  c.rows = rows;
  c.count = count;
  c.in_stride = c.out_stride = (int64_t)count;
  c.fingerprint = dtype;
  for (const char *s = site; *s; ++s) c.fingerprint = (c.fingerprint ^ (unsigned char)*s) * 1099511628211u;
  c.site = site;
  c.timeout_ns = INT64_C(20000000000);
  return c;
}

/* Element i of rank r. Fractions whose sum in f32 depends on the order. */
static inline double value_of(uint32_t dtype, uint32_t rank, uint64_t i) {
  int64_t k = (int64_t)((i * 7u + rank * 13u) % 21u) - 10;
  return bs_dtype_is_float(dtype) ? (double)k * 0.37 * (rank % 2 ? 1000.0 : 0.001) : (double)k;
}

#endif
