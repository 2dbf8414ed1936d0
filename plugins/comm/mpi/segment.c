/* SPDX-License-Identifier: MIT
 *
 * segment.c - the memory that the members of a group on one machine share. The lowest of them creates a file
 * in memory and sends a message to the others, which open it through /proc. The file has no name, so nothing
 * can remain after a crash. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "mpi_comm.h"

#define LAST_WORDS_NS 50000000 /* for what a process sent before it ended */

/* The message of the creator; fd -1: it failed with errno_. */
typedef struct ticket {
  int64_t pid;
  uint64_t bytes;
  int32_t fd;
  int32_t error;
} ticket;

static uint64_t to_page(uint64_t bytes) {
  return (bytes + 4095u) & ~(uint64_t)4095u;
}

static uint64_t layout(mpic_comm *comm, unsigned char *base) {
  uint64_t n = comm->nlocal, at = 0;
  mpic_segment *seg = &comm->seg;
  seg->failure = (mpic_failure *)(void *)(base + at);
  at += sizeof(mpic_failure);
  seg->slots = (mpic_slot *)(void *)(base + at);
  at += n * sizeof(mpic_slot);
  seg->traces = (mpic_trace *)(void *)(base + at);
  at = to_page(at + n * sizeof(mpic_trace));
  seg->halves = base + at;
  at += 2u * n * comm->half;
  seg->far = base + at;
  return comm->machines > 1 ? at + 2u * comm->half : at;
}

static int32_t map(mpic_comm *comm, int fd, bs_error *err) {
  void *base = mmap(NULL, comm->seg.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) {
    bs_fail(err, BS_NO_MEMORY, "BS-COLL-MEMORY", "cannot map %llu bytes of shared memory: %s",
            (unsigned long long)comm->seg.bytes, strerror(errno));
    return BS_NO_MEMORY;
  }
  comm->seg.base = base;
  layout(comm, base);
  return BS_OK;
}

/* Checks for a failure while the world itself is opened, when there is no segment for failures. Only the peer
 * that is waited for counts: another one that has ended may have completed its part of the opening, and is
 * missed in its next call. *gone_ns: the time since when it is known to have ended; its earlier messages may
 * still arrive. */
static int32_t opening_failed(mpic_comm *comm, uint32_t peer, int64_t deadline, int64_t *gone_ns,
                              bs_error *err) {
  const mpic_state *state = comm->world->state;
  const uint32_t rank = comm->ranks[peer];
  const int64_t now = comm_now_ns();
  if (mpic_dead(comm->world->state, 0, rank) != MPIC_NONE) {
    if (*gone_ns == 0) *gone_ns = now;
    if (now - *gone_ns >= LAST_WORDS_NS)
      return bs_fail(err, BS_RANK_FAILED, "BS-COLL-DEAD", "the process of rank %u (pid %lld) has ended", rank,
                     (long long)state->processes[rank].pid);
  }
  if (now < deadline) return BS_OK;
  return bs_fail(err, BS_DEADLINE, "BS-RANK-HELLO", "rank %u does not open the group's shared memory", rank);
}

/* A group is opened within a world: its failure ends the wait, and what ends the wait fails it. */
static int32_t group_failed(mpic_comm *comm, uint32_t peer, int64_t deadline, bs_error *err) {
  static const char text[] = "the opening of a group";
  mpic_world *world = comm->world;
  if (world->all->machines > 1) mpic_listen(world->state);
  if (mpic_failed(world)) return mpic_fail_told(world->all, text, err);
  uint32_t dead = mpic_dead(world->state, 0, MPIC_NONE);
  if (dead != MPIC_NONE) return mpic_fail_dead(world->all, dead, text, err);
  if (comm_now_ns() < deadline) return BS_OK;
  char missing[MPIC_TEXT + 64u], last[MPIC_TEXT + 32u];
  snprintf(missing, sizeof missing, "rank %u (last call: %s)", comm->ranks[peer],
           mpic_trace_text(world->all, comm->ranks[peer], last, sizeof last));
  return mpic_fail_deadline(world->all, text, missing, world->timeout_ns, err);
}

/* Messages of opening go under the group's own stream. */
static int32_t await_one(mpic_comm *comm, MPI_Request *request, uint32_t peer, int64_t deadline,
                         bs_error *err) {
  const struct timespec nap = {0, 20000};
  int64_t gone_ns = 0;
  while (!mpic_test_one(comm->world->state, request)) {
    int32_t rc = comm->world->all == NULL ? opening_failed(comm, peer, deadline, &gone_ns, err)
                                          : group_failed(comm, peer, deadline, err);
    if (rc != BS_OK) return rc;
    nanosleep(&nap, NULL);
  }
  return BS_OK;
}

static int32_t exchange(mpic_comm *comm, int sending, ticket *t, uint32_t peer, int64_t deadline,
                        bs_error *err) {
  MPI_Request request;
  mpic_state *state = comm->world->state;
  int tag = comm->tag + MPIC_SEGMENT;
  int32_t rc = sending ? mpic_isend(state, t, sizeof *t, comm->ranks[peer], tag, &request, err)
                       : mpic_irecv(state, t, sizeof *t, comm->ranks[peer], tag, &request, err);
  return rc != BS_OK ? rc : await_one(comm, &request, peer, deadline, err);
}

/* The maker's part. box: heap memory, for MPI may keep it when a wait fails. */
static int32_t make(mpic_comm *comm, ticket *box, int64_t deadline, bs_error *err) {
  int fd = memfd_create("bs_mpi", MFD_CLOEXEC);
  int32_t rc = BS_OK;
  if (fd < 0 || ftruncate(fd, (off_t)comm->seg.bytes) != 0)
    rc = bs_fail(err, BS_NO_MEMORY, "BS-COLL-MEMORY", "cannot make %llu bytes of shared memory: %s",
                 (unsigned long long)comm->seg.bytes, strerror(errno));
  if (rc == BS_OK) rc = map(comm, fd, err);
  for (uint32_t i = 1; i < comm->nlocal; ++i) {
    ticket t = {(int64_t)getpid(), comm->seg.bytes, rc == BS_OK ? fd : -1, 0};
    box[0] = t;
    int32_t told =
        exchange(comm, 1, &box[0], mpic_member(comm, comm->here, i), deadline, rc == BS_OK ? err : NULL);
    if (rc == BS_OK) rc = told;
  }
  for (uint32_t i = 1; rc == BS_OK && i < comm->nlocal; ++i) {
    uint32_t peer = mpic_member(comm, comm->here, i);
    rc = exchange(comm, 0, &box[i], peer, deadline, err);
    if (rc == BS_OK && box[i].error != 0)
      rc = bs_fail(err, BS_UNAVAILABLE, "BS-COLL-MEMORY", "rank %u cannot open the shared memory: %s",
                   comm->ranks[peer], strerror(box[i].error));
  }
  if (fd >= 0) close(fd);
  return rc;
}

static int32_t take(mpic_comm *comm, ticket *box, int64_t deadline, bs_error *err) {
  uint32_t maker = mpic_member(comm, comm->here, 0);
  deadline += MPIC_REMOTE_GRACE_NS; /* the maker may be waiting itself, and knows for whom */
  int32_t rc = exchange(comm, 0, box, maker, deadline, err);
  if (rc != BS_OK) return rc;
  if (box->fd < 0)
    return bs_fail(err, BS_NO_MEMORY, "BS-COLL-MEMORY", "rank %u could not make the shared memory",
                   comm->ranks[maker]);
  char path[64];
  snprintf(path, sizeof path, "/proc/%lld/fd/%d", (long long)box->pid, box->fd);
  int fd = open(path, O_RDWR | O_CLOEXEC);
  int error = fd < 0 ? errno : 0;
  if (fd >= 0) {
    rc = map(comm, fd, err);
    error = rc == BS_OK ? 0 : ENOMEM;
    close(fd);
  } else {
    rc = bs_fail(err, BS_UNAVAILABLE, "BS-COLL-MEMORY", "cannot open the shared memory of rank %u: %s",
                 comm->ranks[maker], strerror(error));
  }
  box->error = error;
  int32_t told = exchange(comm, 1, box, maker, deadline, rc == BS_OK ? err : NULL);
  return rc != BS_OK ? rc : told;
}

int32_t mpic_segment_open(mpic_comm *comm, int64_t timeout_ns, bs_error *err) {
  static unsigned char nowhere[1];
  comm->seg.bytes = layout(comm, nowhere);
  ticket *box = calloc(comm->nlocal, sizeof *box);
  if (box == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-COLL-MEMORY", "no memory for a group");
  int64_t deadline = comm_now_ns() + timeout_ns;
  int32_t rc = comm->local[comm->me] == 0 ? make(comm, box, deadline, err) : take(comm, box, deadline, err);
  if (rc == BS_OK)
    free(box);
  else
    mpic_keep(comm->world->state, box);
  return rc;
}

void mpic_segment_close(mpic_comm *comm) {
  if (comm->seg.base != NULL) munmap(comm->seg.base, comm->seg.bytes);
  comm->seg.base = NULL;
}
