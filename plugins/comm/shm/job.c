/* SPDX-License-Identifier: MIT
 *
 * job.c - the number of this rank, and the mapping that it shares with the others. Either the launcher gives
 * each rank an open file without a name. Or rank 0 creates one and sends it over a local socket whose name
 * follows from the job's rendezvous. In both cases no file remains in any folder after a crash. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "shm.h"

#define NAP_NS 2000000
#define TURN_MS 50 /* between looks at who has been refused */

static const char *variable(const char *const *environment, const char *name) {
  const size_t length = strlen(name);
  for (; environment != NULL && *environment != NULL; ++environment)
    if (strncmp(*environment, name, length) == 0 && (*environment)[length] == '=')
      return *environment + length + 1;
  return NULL;
}

/* Reads a number; 0: the variable is missing or not a number. */
static int number(const char *const *environment, const char *name, uint32_t most, uint32_t *out) {
  const char *text = variable(environment, name);
  char *end = NULL;
  if (text == NULL || text[0] < '0' || text[0] > '9') return 0;
  errno = 0;
  const unsigned long value = strtoul(text, &end, 10);
  if (errno != 0 || *end != '\0' || value > most) return 0;
  *out = (uint32_t)value;
  return 1;
}

static int32_t check(const shm_job *job, uint32_t local, uint32_t locals, bs_error *err) {
  if (job->size == 0 || job->rank >= job->size)
    return bs_fail(err, BS_CONFIG, "BS-SHM-RANK", "the environment says rank %u of %u", job->rank, job->size);
  if (job->size > SHM_MAX_RANKS)
    return bs_fail(err, BS_UNSUPPORTED, "BS-COLL-WORLD", "shm serves 1 to %u ranks, not %u", SHM_MAX_RANKS,
                   job->size);
  if (locals == job->size && local == job->rank) return BS_OK;
  bs_fail(err, BS_UNSUPPORTED, "BS-SHM-MACHINES", "%u of %u ranks are on this machine", locals, job->size);
  bs_fail_hint(err, "shm joins the processes of one machine; use the communicator mpi for several");
  return BS_UNSUPPORTED;
}

static uint64_t hash(uint64_t h, const char *text) {
  for (; text != NULL && *text != '\0'; ++text) h = (h ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
  return h * UINT64_C(0x100000001b3) + 1u;
}

/* torchrun's variables; the socket's name has the user and all that tells jobs of one machine apart. */
static int32_t attach_torchrun(shm_job *job, const char *const *env, bs_error *err) {
  const char *addr = variable(env, "MASTER_ADDR"), *port = variable(env, "MASTER_PORT");
  uint32_t local = 0, locals = 0;
  if (!number(env, "RANK", UINT32_MAX, &job->rank) || !number(env, "WORLD_SIZE", UINT32_MAX, &job->size) ||
      !number(env, "LOCAL_RANK", UINT32_MAX, &local) || addr == NULL || port == NULL) {
    bs_fail(err, BS_UNAVAILABLE, "BS-SHM-NOJOB",
            "--comm shm needs --launch processes: no launcher has started this process as a rank");
    bs_fail_hint(err, "bsrun --launch processes -P 2, or torchrun --nproc-per-node 2");
    return BS_UNAVAILABLE;
  }
  if (!number(env, "LOCAL_WORLD_SIZE", UINT32_MAX, &locals)) locals = job->size;
  uint64_t h = hash(UINT64_C(0xcbf29ce484222325), addr);
  h = hash(h, port);
  h = hash(h, variable(env, "TORCHELASTIC_RUN_ID"));
  h = hash(h, variable(env, "TORCHELASTIC_RESTART_COUNT"));
  snprintf(job->socket, sizeof job->socket, "blockshock-%lu-%016llx", (unsigned long)geteuid(),
           (unsigned long long)h);
  return check(job, local, locals, err);
}

int32_t shm_attach(void *state, const char *const *env, bs_attachment *out, bs_error *err) {
  shm_job *job = state;
  uint32_t fd = 0;
  int32_t rc;
  if (number(env, "BLOCKSHOCK_SHM_FD", INT32_MAX, &fd) &&
      number(env, "BLOCKSHOCK_RANK", UINT32_MAX, &job->rank) &&
      number(env, "BLOCKSHOCK_WORLD_SIZE", UINT32_MAX, &job->size)) {
    job->fd = (int)fd;
    rc = check(job, job->rank, job->size, err);
  } else {
    rc = attach_torchrun(job, env, err);
  }
  if (rc != BS_OK) return rc;
  const bs_attachment mine = {(uint32_t)sizeof mine, job->rank, job->size, job->rank, job->size, 0};
  bs_out_copy(out, &mine, sizeof mine);
  return BS_OK;
}

/* ---- the file ------------------------------------------------------------------------------- */

static void nap(void) {
  const struct timespec t = {0, NAP_NS};
  nanosleep(&t, NULL);
}

static int32_t fail_errno(bs_error *err, const char *what) {
  const int number_of = errno;
  return bs_fail(err, BS_IO, "BS-SHM-MAP", "%s: %s", what, strerror(number_of));
}

static void address(const shm_job *job, struct sockaddr_un *out, socklen_t *out_size) {
  memset(out, 0, sizeof *out);
  out->sun_family = AF_UNIX; /* the first byte of the name is 0: it is in no folder */
  memcpy(out->sun_path + 1, job->socket, strlen(job->socket));
  *out_size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1u + strlen(job->socket));
}

/* 1: the other end is a process of this user. */
static int same_user(int socket_fd) {
  struct ucred who;
  socklen_t size = sizeof who;
  return getsockopt(socket_fd, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 && who.uid == geteuid();
}

static int give(int socket_fd, int fd) {
  union {
    char room[CMSG_SPACE(sizeof(int))];
    struct cmsghdr align;
  } control;
  char byte = 1;
  struct iovec data = {&byte, 1};
  struct msghdr m = {.msg_iov = &data, .msg_iovlen = 1};
  memset(&control, 0, sizeof control);
  m.msg_control = control.room;
  m.msg_controllen = sizeof control.room;
  struct cmsghdr *c = CMSG_FIRSTHDR(&m);
  c->cmsg_level = SOL_SOCKET;
  c->cmsg_type = SCM_RIGHTS;
  c->cmsg_len = CMSG_LEN(sizeof fd);
  memcpy(CMSG_DATA(c), &fd, sizeof fd);
  return sendmsg(socket_fd, &m, MSG_NOSIGNAL) == 1;
}

static int get(int socket_fd) {
  union {
    char room[CMSG_SPACE(sizeof(int))];
    struct cmsghdr align;
  } control;
  char byte = 0;
  int fd = -1;
  struct iovec data = {&byte, 1};
  struct msghdr m = {.msg_iov = &data, .msg_iovlen = 1};
  m.msg_control = control.room;
  m.msg_controllen = sizeof control.room;
  if (recvmsg(socket_fd, &m, MSG_CMSG_CLOEXEC) != 1) return -1;
  const struct cmsghdr *c = CMSG_FIRSTHDR(&m);
  if (c != NULL && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
    memcpy(&fd, CMSG_DATA(c), sizeof fd);
  return fd;
}

static int remaining_ms(int64_t deadline) {
  const int64_t left = (deadline - comm_now_ns()) / 1000000;
  return left <= 0 ? 0 : left > TURN_MS ? TURN_MS : (int)left;
}

/* Some process came here that is of another job, and went: those who wait for it need not. */
static int32_t check_refused(const shm_job *job, bs_error *err) {
  const uint32_t refused = atomic_load(&job->head->refused);
  if (refused == 0) return BS_OK;
  return bs_fail(err, BS_MISMATCH, "BS-RANK-HELLO", "rank %u, of a world of %u, has come to rank 0's of %u%s",
                 refused - 1u, atomic_load(&job->head->refused_size), job->head->world_size,
                 atomic_load(&job->head->refused_size) == job->head->world_size ? ": another version" : "");
}

/* Rank 0: every other process of this user that knows the name gets the file. */
static int32_t serve(shm_job *job, int64_t deadline, bs_error *err) {
  struct sockaddr_un name;
  socklen_t size;
  address(job, &name, &size);
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  int32_t rc = BS_OK;
  if (listener < 0 || bind(listener, (struct sockaddr *)&name, size) != 0 ||
      listen(listener, (int)job->size) != 0)
    rc = fail_errno(err, "cannot make the meeting point of the ranks");
  for (uint32_t given = 1; rc == BS_OK && given < job->size;) {
    struct pollfd p = {listener, POLLIN, 0};
    rc = check_refused(job, err);
    if (rc == BS_OK && comm_now_ns() >= deadline)
      rc = bs_fail(err, BS_DEADLINE, "BS-COLL-DEADLINE", "%u of %u ranks have not come", job->size - given,
                   job->size);
    if (rc != BS_OK || poll(&p, 1, remaining_ms(deadline)) <= 0) continue;
    const int peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (peer >= 0 && same_user(peer) && give(peer, job->fd)) ++given;
    if (peer >= 0) close(peer);
  }
  if (listener >= 0) close(listener);
  return rc;
}

static int32_t visit(shm_job *job, int64_t deadline, bs_error *err) {
  struct sockaddr_un name;
  socklen_t size;
  address(job, &name, &size);
  while (job->fd < 0) {
    const int peer = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (peer < 0) return fail_errno(err, "no socket");
    if (connect(peer, (struct sockaddr *)&name, size) == 0 && same_user(peer)) job->fd = get(peer);
    close(peer);
    if (job->fd >= 0) break;
    if (comm_now_ns() >= deadline)
      return bs_fail(err, BS_DEADLINE, "BS-COLL-DEADLINE", "rank 0 was not met at @%s", job->socket);
    nap();
  }
  return BS_OK;
}

/* ---- the mapping ---------------------------------------------------------------------------- */

/* Size of address space, not of memory: room for a dozen full worlds; untouched pages take no memory. */
static uint64_t mapping_bytes(uint32_t ranks) {
  const uint64_t n = ranks;
  const uint64_t world =
      sizeof(shm_area) + n * (sizeof(shm_slot) + 4u * SHM_PIECE) + n * n * sizeof(shm_mail);
  return (sizeof(shm_head) + 24u * (world + 65536u) + (UINT64_C(64) << 20)) & ~UINT64_C(65535);
}

static uint64_t layout(void) {
  return (uint64_t)sizeof(shm_head) << 32 ^ (uint64_t)sizeof(shm_area) << 16 ^ sizeof(shm_slot) ^
         (uint64_t)sizeof(shm_mail) << 8 ^ (uint64_t)SHM_PIECE << 24;
}

static int32_t make_head(shm_job *job, bs_error *err) {
  shm_head *head = job->head;
  pthread_mutexattr_t attr;
  head->ledger = BS_ABI_LEDGER_HASH;
  head->layout = layout();
  head->bytes = job->bytes;
  head->world_size = job->size;
  int bad = pthread_mutexattr_init(&attr);
  bad = bad || pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED) ||
        pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST) || pthread_mutex_init(&head->lock, &attr);
  if (bad) return bs_fail(err, BS_NO_MEMORY, "BS-COLL-MEMORY", "no lock for the ranks");
  pthread_mutexattr_destroy(&attr);
  atomic_store(&head->ready, SHM_MAGIC);
  return BS_OK;
}

static int32_t map(shm_job *job, bs_error *err) {
  void *base = mmap(NULL, job->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, job->fd, 0);
  if (base == MAP_FAILED) return fail_errno(err, "cannot map the memory that the ranks share");
  job->base = base;
  job->head = base;
  return BS_OK;
}

/* The number in the environment may by now be that of any file: only memory without a name is written to. */
static int32_t check_given(const shm_job *job, bs_error *err) {
  struct stat st;
  if (fstat(job->fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 0 && fcntl(job->fd, F_GET_SEALS) >= 0)
    return BS_OK;
  bs_fail(err, BS_CONFIG, "BS-SHM-FD", "BLOCKSHOCK_SHM_FD: file %d is not what a launcher has made", job->fd);
  return bs_fail_hint(err, "unset it: bsrun --launch processes sets it for the ranks that it starts");
}

/* Rank 0 alone gives the file its size. */
static int32_t lead(shm_job *job, int64_t deadline, bs_error *err) {
  const int given = job->fd >= 0;
  if (!given) job->fd = (int)syscall(SYS_memfd_create, "blockshock", 1u /* MFD_CLOEXEC */);
  if (job->fd < 0 || ftruncate(job->fd, (off_t)job->bytes) != 0)
    return fail_errno(err, "cannot make the memory that the ranks share");
  int32_t rc = map(job, err);
  if (rc == BS_OK) rc = make_head(job, err);
  return rc == BS_OK && !given ? serve(job, deadline, err) : rc;
}

/* Is the file that of a world like ours? Rank 0's own words are read before anything is believed. */
static int32_t compare(shm_job *job, shm_head *head, bs_error *err) {
  if (head->world_size == job->size && head->ledger == BS_ABI_LEDGER_HASH && head->layout == layout() &&
      head->bytes == job->bytes)
    return BS_OK;
  atomic_store(&head->refused_size, job->size);
  atomic_store(&head->refused, job->rank + 1u);
  if (head->world_size == job->size)
    return bs_fail(err, BS_MISMATCH, "BS-RANK-HELLO", "rank 0 has another version of shm than rank %u",
                   job->rank);
  bs_fail(err, BS_MISMATCH, "BS-RANK-HELLO", "rank %u belongs to a world of %u, rank 0 to one of %u",
          job->rank, job->size, head->world_size);
  return bs_fail_hint(err, "start every rank with the same WORLD_SIZE");
}

static int32_t follow(shm_job *job, int64_t deadline, bs_error *err) {
  struct stat st;
  int32_t rc = job->fd < 0 ? visit(job, deadline, err) : BS_OK;
  if (rc != BS_OK) return rc;
  while (fstat(job->fd, &st) == 0 && (uint64_t)st.st_size < sizeof(shm_head)) {
    if (comm_now_ns() >= deadline)
      return bs_fail(err, BS_DEADLINE, "BS-COLL-DEADLINE", "rank 0 has not come");
    nap();
  }
  shm_head *head = mmap(NULL, sizeof *head, PROT_READ | PROT_WRITE, MAP_SHARED, job->fd, 0);
  if (head == MAP_FAILED) return fail_errno(err, "cannot map the memory that the ranks share");
  while (rc == BS_OK && atomic_load(&head->ready) != SHM_MAGIC) {
    if (comm_now_ns() >= deadline) rc = bs_fail(err, BS_DEADLINE, "BS-COLL-DEADLINE", "rank 0 has not come");
    nap();
  }
  if (rc == BS_OK) rc = compare(job, head, err);
  munmap(head, sizeof *head);
  return rc == BS_OK ? map(job, err) : rc;
}

static int32_t await_processes(shm_job *job, int64_t deadline, bs_error *err) {
  atomic_store(&job->head->process[job->rank].pid, (int32_t)getpid());
  atomic_store(&job->head->process[job->rank].state, 1u);
  for (uint32_t r = 0; r < job->size; ++r) {
    while (atomic_load(&job->head->process[r].state) == 0) {
      const int32_t rc = check_refused(job, err);
      if (rc != BS_OK) return rc;
      if (comm_now_ns() >= deadline)
        return bs_fail(err, BS_DEADLINE, "BS-COLL-DEADLINE", "rank %u has not come", r);
      nap();
    }
    const int32_t pid = atomic_load(&job->head->process[r].pid);
    if (r != job->rank) job->watch[r] = (int)syscall(SYS_pidfd_open, pid, 0u);
  }
  return BS_OK;
}

int32_t shm_job_open(shm_job *job, int64_t timeout_ns, bs_error *err) {
  if (job->base != NULL) return BS_OK;
  if (job->failed)
    return bs_fail(err, BS_UNAVAILABLE, "BS-COLL-WORLD", "the ranks of this job could not meet before");
  const int64_t deadline = comm_now_ns() + timeout_ns;
  job->bytes = mapping_bytes(job->size);
  int32_t rc = job->fd >= 0 ? check_given(job, err) : BS_OK;
  if (rc == BS_OK) rc = job->rank == 0 ? lead(job, deadline, err) : follow(job, deadline, err);
  if (rc == BS_OK) rc = await_processes(job, deadline, err);
  if (job->fd >= 0) close(job->fd);
  job->fd = -1;
  if (rc == BS_OK) return rc;
  shm_job_close(job);
  job->failed = 1;
  return rc;
}

void shm_job_close(shm_job *job) {
  for (uint32_t r = 0; r < SHM_MAX_RANKS; ++r) {
    if (job->watch[r] >= 0) close(job->watch[r]);
    job->watch[r] = -1;
  }
  if (job->base == NULL) return;
  atomic_store(&job->head->process[job->rank].state, 2u);
  munmap(job->base, job->bytes);
  job->base = NULL;
}

int shm_job_dead(shm_job *job, uint32_t rank) {
  const shm_process *process = &job->head->process[rank];
  struct pollfd p = {job->watch[rank], POLLIN, 0};
  const int32_t pid = atomic_load(&process->pid);
  if (rank == job->rank) return SHM_LIVES;
  if (atomic_load(&process->state) == 2u) return SHM_LEFT;
  if (p.fd >= 0 && (poll(&p, 1, 0) <= 0 || (p.revents & POLLIN) == 0)) return SHM_LIVES;
  if (p.fd < 0 && (pid <= 0 || kill(pid, 0) == 0 || errno != ESRCH)) return SHM_LIVES;
  return atomic_load(&process->state) == 2u ? SHM_LEFT : SHM_DIED; /* it may have left in between */
}
