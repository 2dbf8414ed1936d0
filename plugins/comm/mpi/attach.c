/* SPDX-License-Identifier: MIT
 *
 * attach.c - joining the job that mpirun or srun has started, and leaving it. Which launcher it was is read
 * from the environment that the host hands over, so that the wrong MPI library is an error that says so and
 * not P worlds of one rank.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "mpi_comm.h"

#define ATTACH_NS INT64_C(60000000000)
#define BYE_NS INT64_C(60000000000)   /* for the last rank to be done */
#define LINGER_NS INT64_C(1500000000) /* after a failure, for rank 0 to have written its record */

#if defined(OPEN_MPI)
#define MPIC_LIBRARY "Open MPI"
#define MPIC_OTHER "MPICH"
#define MPIC_OPEN_MPI 1
#else
#define MPIC_LIBRARY "MPICH"
#define MPIC_OTHER "Open MPI"
#define MPIC_OPEN_MPI 0
#endif

int32_t mpic_check(int rc, const char *what, bs_error *err) {
  if (rc == MPI_SUCCESS) return BS_OK;
  char text[MPI_MAX_ERROR_STRING + 1];
  int n = 0;
  memset(text, 0, sizeof text);
  if (MPI_Error_string(rc, text, &n) != MPI_SUCCESS) snprintf(text, sizeof text, "error %d", rc);
  bs_fail(err, BS_RANK_FAILED, "BS-COLL-MPI", "%s: %.300s", what, text);
  if (err != NULL) err->native_code = rc;
  return BS_RANK_FAILED;
}

static const char *variable(const char *const *environment, const char *name) {
  size_t n = strlen(name);
  for (; environment != NULL && *environment != NULL; ++environment)
    if (strncmp(*environment, name, n) == 0 && (*environment)[n] == '=') return *environment + n + 1u;
  return NULL;
}

/* The number of ranks that the launcher of a library reports; 0: it did not start this process. */
static long told_by(const char *const *environment, int open_mpi) {
  const char *size = NULL;
  if (open_mpi) {
    size = variable(environment, "OMPI_COMM_WORLD_SIZE");
    if (size == NULL && variable(environment, "PMIX_RANK") != NULL)
      size = variable(environment, "SLURM_NTASKS");
    if (size == NULL && variable(environment, "PMIX_RANK") != NULL) size = "1";
  } else {
    size = variable(environment, "PMI_SIZE");
    if (size == NULL && variable(environment, "PMI_RANK") != NULL) size = "1";
    if (variable(environment, "OMPI_COMM_WORLD_SIZE") != NULL) size = NULL;
  }
  return size != NULL ? strtol(size, NULL, 10) : 0;
}

static int32_t check_launcher(const char *const *environment, long *out_size, bs_error *err) {
  *out_size = told_by(environment, MPIC_OPEN_MPI);
  if (*out_size > 0) return BS_OK;
  if (told_by(environment, !MPIC_OPEN_MPI) > 0) {
    bs_fail(err, BS_UNAVAILABLE, "BS-MPI-LAUNCHER",
            "this process was started by the launcher of " MPIC_OTHER
            ", and this plugin is made with " MPIC_LIBRARY);
    bs_fail_hint(err, "start it with the mpirun of " MPIC_LIBRARY
                      ", or choose the communicator made with " MPIC_OTHER " (bsrun plugins list)");
    return BS_UNAVAILABLE;
  }
  const char *tasks = variable(environment, "SLURM_NTASKS");
  if (variable(environment, "SLURM_PROCID") != NULL && tasks != NULL && strtol(tasks, NULL, 10) > 1) {
    bs_fail(err, BS_UNAVAILABLE, "BS-MPI-LAUNCHER", "srun started %.12s tasks without MPI's process manager",
            tasks);
    bs_fail_hint(err, MPIC_OPEN_MPI ? "srun --mpi=pmix (srun --mpi=list says what there is)"
                                    : "srun --mpi=pmi2 (srun --mpi=list says what there is)");
    return BS_UNAVAILABLE;
  }
  bs_fail(err, BS_UNAVAILABLE, "BS-MPI-LAUNCHER", "nothing has started this process as a rank of an MPI job");
  bs_fail_hint(err, "mpirun -n P bsrun ..., srun -n P bsrun ..., or bsrun --launch mpi -P P");
  return BS_UNAVAILABLE;
}

/* Initialises MPI, and gets a separate communicator and this rank's number in it. */
static int32_t join(mpic_state *state, bs_error *err) {
  int up = 0, level = 0, rank = 0, size = 0, rc;
  if (MPI_Initialized(&up) != MPI_SUCCESS) up = 0;
  if (!up) {
    rc = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
    if (rc != MPI_SUCCESS)
      return bs_fail(err, BS_UNAVAILABLE, "BS-MPI-INIT", "MPI_Init_thread of " MPIC_LIBRARY " failed (%d)",
                     rc);
    state->started = 1;
  } else {
    MPI_Query_thread(&level);
  }
  if (level < MPI_THREAD_SERIALIZED)
    return bs_fail(err, BS_UNAVAILABLE, "BS-MPI-INIT",
                   MPIC_LIBRARY " allows calls from one thread only (level %d)", level);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Request request;
  rc = MPI_Comm_idup(MPI_COMM_WORLD, &state->comm, &request);
  if (rc != MPI_SUCCESS) return mpic_check(rc, "MPI_Comm_idup", err);
  for (int64_t end = comm_now_ns() + ATTACH_NS; !mpic_test_one(state, &request);) {
    if (comm_now_ns() >= end)
      return bs_fail(err, BS_DEADLINE, "BS-RANK-HELLO", "60 s passed and not every rank has joined the job");
    struct timespec nap = {0, 100000};
    nanosleep(&nap, NULL);
  }
  MPI_Comm_set_errhandler(state->comm, MPI_ERRORS_RETURN);
  MPI_Comm_rank(state->comm, &rank);
  MPI_Comm_size(state->comm, &size);
  state->rank = (uint32_t)rank;
  state->size = (uint32_t)size;
  return BS_OK;
}

/* A failure on another machine is a message that is always awaited. */
static int32_t listen_for_failures(mpic_state *state, bs_error *err) {
  state->notice = calloc(1, sizeof *state->notice);
  if (state->notice == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-COLL-MEMORY", "no memory for a notice");
  return mpic_irecv(state, state->notice, sizeof *state->notice, (uint32_t)MPI_ANY_SOURCE, MPIC_TAG_FAIL,
                    &state->fail_request, err);
}

static void fill_attachment(const mpic_state *state, bs_attachment *out) {
  bs_attachment a;
  memset(&a, 0, sizeof a);
  a.struct_size = (uint32_t)sizeof a;
  a.rank = state->rank;
  a.world_size = state->size;
  a.bound = state->bound;
  for (uint32_t r = 0; r < state->size; ++r) {
    if (state->processes[r].machine != state->processes[state->rank].machine) continue;
    if (r < state->rank) a.local_rank++;
    a.local_size++;
  }
  bs_out_copy(out, &a, sizeof a);
}

int32_t mpic_attach(void *state_ptr, const char *const *environment, bs_attachment *out, bs_error *err) {
  mpic_state *state = state_ptr;
  if (state->attached) {
    fill_attachment(state, out);
    return BS_OK;
  }
  long told = 0;
  int32_t rc = check_launcher(environment, &told, err);
  if (rc == BS_OK) rc = join(state, err);
  if (rc == BS_OK && told > 1 && state->size == 1) {
    bs_fail(err, BS_UNAVAILABLE, "BS-MPI-LAUNCHER",
            "the launcher says that there are %ld ranks and " MPIC_LIBRARY " knows of one", told);
    rc = bs_fail_hint(err, "the launcher belongs to another MPI than the plugin");
  }
  mpic_hello mine, *table = NULL;
  if (rc == BS_OK) {
    mpic_hello_fill(state, &mine);
    rc = mpic_hello_all(state, &mine, ATTACH_NS, &table, err);
  }
  if (rc == BS_OK) rc = mpic_processes(state, table, err);
  free(table);
  if (rc == BS_OK) rc = listen_for_failures(state, err);
  if (rc != BS_OK) {
    state->broken = 1;
    return rc;
  }
  state->attached = 1;
  fill_attachment(state, out);
  return BS_OK;
}

/* The others keep rank 0 company until it has written what it has to: a launcher ends the job with the first
 * process that leaves it. */
static void linger(mpic_state *state) {
  if (state->rank == 0 || state->processes == NULL) return;
  for (int64_t end = comm_now_ns() + LINGER_NS; comm_now_ns() < end;) {
    if (state->processes[0].pidfd >= 0 && mpic_dead(state, 0, 0) == 0) return;
    struct timespec nap = {0, 2000000};
    nanosleep(&nap, NULL);
  }
}

/* Waits until all ranks are done, so that MPI_Finalize need not wait. */
static int everybody_done(mpic_state *state) {
  mpic_hello mine, *table = NULL;
  mpic_hello_fill(state, &mine);
  mine.world = UINT32_MAX;
  int32_t rc = mpic_hello_all(state, &mine, BYE_NS, &table, NULL);
  free(table);
  return rc == BS_OK;
}

void mpic_leave(mpic_state *state) {
  if (state->attached && !state->broken) mpic_listen(state);
  if (state->attached && !state->broken && everybody_done(state)) {
    if (state->fail_request != MPI_REQUEST_NULL) {
      MPI_Cancel(&state->fail_request);
      MPI_Request_free(&state->fail_request);
    }
    MPI_Comm_free(&state->comm);
    if (state->started) MPI_Finalize();
    free(state->notice);
  } else if (state->attached) {
    linger(state); /* MPI stays as it is: to finalise would wait for those who cannot come */
  }
  for (uint32_t r = 0; state->processes != NULL && r < state->size; ++r)
    if (state->processes[r].pidfd >= 0) close(state->processes[r].pidfd);
  free(state->processes);
  state->processes = NULL;
  state->attached = 0;
}
