/* SPDX-License-Identifier: MIT
 *
 * peer_mpi.c - the same float32 all_reduce by MPI, for bench/run: compiled there with mpicc where there is
 * one.
 *
 *   mpirun -n 2 peer_mpi BYTES ITERS [BYTES ITERS]...     a line "seconds_per_call" for each pair
 *   mpirun -n 1 peer_mpi --version                        the library's version
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int all_reduce(const float *in, float *out, int count, long iters) {
  for (long i = 0; i < iters; ++i)
    if (MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) != MPI_SUCCESS) return 0;
  return 1;
}

/* Seconds a call; negative when it failed or summed wrongly. */
static double measure(long bytes, long iters, int ranks) {
  const int count = (int)(bytes / (long)sizeof(float));
  float *in = malloc((size_t)bytes), *out = calloc((size_t)count, sizeof *out);
  double seconds = -1.0;
  if (in != NULL && out != NULL) {
    for (int i = 0; i < count; ++i) in[i] = 1.0f;
    int good = all_reduce(in, out, count, 200 + (1L << 20) / (bytes + 64)); /* as bench_allreduce warms up */
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    good = good && all_reduce(in, out, count, iters);
    const double took = MPI_Wtime() - start;
    if (good && out[0] == (float)ranks && out[count - 1] == (float)ranks) seconds = took / (double)iters;
  }
  free(in);
  free(out);
  return seconds;
}

static int print_version(void) {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(text, &length);
  text[strcspn(text, ",\n")] = '\0';
  return puts(text) < 0;
}

int main(int argc, char **argv) {
  int rank = 0, ranks = 1, failed = 0;
  if (MPI_Init(&argc, &argv) != MPI_SUCCESS) return 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc == 2 && strcmp(argv[1], "--version") == 0) {
    failed = rank == 0 && print_version();
  } else {
    failed = argc < 3 || argc % 2 == 0;
    for (int i = 1; i + 1 < argc && !failed; i += 2) {
      const long bytes = strtol(argv[i], NULL, 10), iters = strtol(argv[i + 1], NULL, 10);
      const double seconds =
          bytes >= 4 && bytes <= (1L << 30) && iters > 0 ? measure(bytes, iters, ranks) : -1.0;
      failed = seconds < 0.0;
      if (rank == 0 && !failed) printf("%.9g\n", seconds);
    }
  }
  if (failed) fprintf(stderr, "peer_mpi: wrong use or wrong sums; usage: peer_mpi BYTES ITERS ...\n");
  MPI_Finalize();
  return failed;
}
