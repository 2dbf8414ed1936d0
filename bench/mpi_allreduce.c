/* SPDX-License-Identifier: MIT
 *
 * mpi_allreduce.c - the same float32 all_reduce by the communicator "mpi" and by MPI_Allreduce,
 * alternately, in one job:
 *
 *   mpirun -n P mpi_allreduce BYTES ITERS ROUNDS     rank 0 prints a line "ours_seconds mpi_seconds" for each
 * round
 *
 * Both read one buffer and write another. Started by bench/run, part mpi; plugins lie in $BS_BENCH_PLUGINS.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "blockshock/blockshock.h"
#include "core/plugin/registry.h"

extern char **environ;

typedef struct job {
  bs_context *context;
  const bs_comm *comm;
  void *state, *world, *rank;
  bs_attachment here;
  bs_coll_call call;
  bs_error err;
} job;

static int open_job(job *j) {
  const char *dirs[1] = {getenv("BS_BENCH_PLUGINS")};
  const bs_context_options o = {
      .struct_size = sizeof o, .trust = BS_TRUST_ANY, .n_plugin_dirs = dirs[0] != NULL, .plugin_dirs = dirs};
  j->here.struct_size = sizeof j->here;
  if (bs_context_open(&o, &j->context, &j->err) != BS_OK ||
      bs_find_comm(j->context, "mpi", &j->comm, &j->state, &j->err) != BS_OK ||
      j->comm->attach(j->state, (const char *const *)environ, &j->here, &j->err) != BS_OK)
    return 0;
  const bs_world_request request = {
      .struct_size = sizeof request, .world_size = j->here.world_size, .rank = j->here.rank};
  return j->comm->world_open(j->state, &request, &j->world, &j->err) == BS_OK &&
         j->comm->rank_open(j->world, j->here.rank, &j->rank, &j->err) == BS_OK;
}

static int ours(job *j, long iters) {
  for (long i = 0; i < iters; ++i)
    if (j->comm->all_reduce(j->rank, &j->call, &j->err) != BS_OK) return 0;
  return 1;
}

static int theirs(const job *j, long iters) {
  for (long i = 0; i < iters; ++i)
    if (MPI_Allreduce(j->call.in, j->call.out, (int)j->call.count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) !=
        MPI_SUCCESS)
      return 0;
  return 1;
}

/* Seconds a call; negative when it failed or summed wrongly. */
static double timed(job *j, int mpi, long iters) {
  float *out = j->call.out;
  memset(out, 0, j->call.count * sizeof *out);
  int good = mpi ? theirs(j, iters / 10 + 1) : ours(j, iters / 10 + 1);
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  good = good && (mpi ? theirs(j, iters) : ours(j, iters));
  const double took = (MPI_Wtime() - start) / (double)iters;
  const float want = (float)j->here.world_size;
  return good && out[0] == want && out[j->call.count - 1] == want ? took : -1.0;
}

static int measure(job *j, long bytes, long iters, long rounds) {
  float *in = malloc((size_t)bytes), *out = malloc((size_t)bytes);
  int good = in != NULL && out != NULL;
  for (long i = 0; good && i < bytes / 4; ++i) in[i] = 1.0f;
  j->call = (bs_coll_call){.struct_size = sizeof j->call,
                           .kind = BS_COLL_ALL_REDUCE,
                           .dtype_in = BS_F32,
                           .dtype_out = BS_F32,
                           .reduce_dtype = BS_F32,
                           .rows = 1,
                           .count = (uint64_t)bytes / 4u,
                           .in = in,
                           .out = out,
                           .in_stride = bytes / 4,
                           .out_stride = bytes / 4,
                           .site = "bench"};
  for (long r = 0; good && r < rounds; ++r) {
    double took[2];
    for (int turn = 0; turn < 2; ++turn) { /* first one of them, then the other */
      const int mpi = (turn + (int)r) % 2;
      took[mpi] = timed(j, mpi, iters);
      good = good && took[mpi] > 0.0;
    }
    if (good && j->here.rank == 0) printf("%.9g %.9g\n", took[0], took[1]);
  }
  free(in);
  free(out);
  return good;
}

int main(int argc, char **argv) {
  job j = {0};
  const long bytes = argc == 4 ? strtol(argv[1], NULL, 10) : 0,
             iters = argc == 4 ? strtol(argv[2], NULL, 10) : 0;
  const long rounds = argc == 4 ? strtol(argv[3], NULL, 10) : 0;
  if (bytes < 4 || bytes > (1L << 30) || iters < 1 || rounds < 1) {
    fprintf(stderr, "mpi_allreduce: BYTES ITERS ROUNDS\n");
    return 2;
  }
  if (!open_job(&j) || !measure(&j, bytes, iters, rounds)) {
    fprintf(stderr, "mpi_allreduce: %s %s\n", j.err.id, j.err.message);
    return 1;
  }
  j.comm->rank_close(j.rank);
  j.comm->world_close(j.world);
  fflush(stdout);
  bs_context_close(j.context);
  return 0;
}
