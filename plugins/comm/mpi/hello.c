/* SPDX-License-Identifier: MIT
 *
 * hello.c - the first exchange of a job's ranks: rank 0 collects a record of each, compares them and sends
 * all of them, or the error, to all. A rank that is missing at the deadline is named. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "mpi_comm.h"

#define REPLY_NS 2000000000 /* rank 0 needs as much more to tell the others */
#define NAP_NS 100000

/* The answer of rank 0: a verdict, then one record a rank. */
typedef struct verdict {
  int32_t code;
  uint32_t reserved;
  char id[32];
  char text[MPIC_FAIL_TEXT];
} verdict;

static uint64_t hash_bytes(uint64_t h, const void *data, size_t n) {
  const unsigned char *p = data;
  for (size_t i = 0; i < n; ++i) h = (h ^ p[i]) * UINT64_C(0x100000001b3);
  return h;
}

/* Ranks that have this in common see each other's processes: host, boot, pid namespace and user. */
static uint64_t machine_id(void) {
  uint64_t h = UINT64_C(0xcbf29ce484222325);
  char text[256];
  memset(text, 0, sizeof text);
  if (gethostname(text, sizeof text - 1u) == 0) h = hash_bytes(h, text, strlen(text));
  int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (fd >= 0) {
    ssize_t n = read(fd, text, sizeof text);
    if (n > 0) h = hash_bytes(h, text, (size_t)n);
    close(fd);
  }
  struct stat s;
  if (stat("/proc/self/ns/pid", &s) == 0) h = hash_bytes(h, &s.st_ino, sizeof s.st_ino);
  uid_t user = geteuid();
  return hash_bytes(h, &user, sizeof user);
}

static void fill_cores(mpic_hello *out) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return;
  out->cores = hash_bytes(11, &set, sizeof set);
  out->ncores = (uint32_t)CPU_COUNT(&set);
}

void mpic_hello_fill(mpic_state *state, mpic_hello *out) {
  memset(out, 0, sizeof *out);
  out->abi = BS_ABI_LEDGER_HASH;
  out->plugin = hash_bytes(7, BS_PLUGIN_VERSION, sizeof BS_PLUGIN_VERSION);
  out->machine = machine_id();
  int64_t pretend = comm_param(state->host, state->self, "ranks_per_machine", 0);
  if (pretend > 0) out->machine += state->rank / (uint64_t)pretend + 1u;
  fill_cores(out);
  out->world_size = state->size;
  out->world = state->worlds;
  out->pid = (int64_t)getpid();
}

/* Requests until all are done or the deadline; the number that are left. */
static uint32_t wait_until(mpic_state *state, MPI_Request *requests, uint32_t n, int64_t deadline) {
  for (uint64_t turn = 0;; ++turn) {
    uint32_t left = 0;
    for (uint32_t i = 0; i < n; ++i)
      if (requests[i] != MPI_REQUEST_NULL && !mpic_test_one(state, &requests[i])) ++left;
    if (left == 0 || comm_now_ns() >= deadline) return left;
    if (turn < 256) {
      sched_yield();
    } else {
      struct timespec nap = {0, NAP_NS};
      nanosleep(&nap, NULL);
    }
  }
}

static void differ(verdict *v, uint32_t rank, const char *what, uint64_t a, uint64_t b) {
  v->code = BS_MISMATCH;
  snprintf(v->id, sizeof v->id, "BS-RANK-HELLO");
  snprintf(v->text, sizeof v->text, "ranks disagree: rank 0 has %s %llx, rank %u %llx", what,
           (unsigned long long)a, rank, (unsigned long long)b);
}

/* Compares the facts that must be equal; the machine may differ. */
static void compare(verdict *v, const mpic_hello *all, uint32_t n) {
  for (uint32_t r = 1; r < n && v->code == BS_OK; ++r) {
    if (all[r].abi != all[0].abi)
      differ(v, r, "plugin ABI ledger", all[0].abi, all[r].abi);
    else if (all[r].plugin != all[0].plugin)
      differ(v, r, "a plugin of version hash", all[0].plugin, all[r].plugin);
    else if (all[r].world_size != all[0].world_size)
      differ(v, r, "a world of size (hex)", all[0].world_size, all[r].world_size);
    else if (all[r].world != all[0].world)
      differ(v, r, "a world of number (hex)", all[0].world, all[r].world);
    else if (all[r].config != all[0].config)
      differ(v, r, "the configuration", all[0].config, all[r].config);
  }
}

static void name_missing(verdict *v, MPI_Request *requests, uint32_t n, int64_t timeout_ns) {
  size_t used = 0;
  v->code = BS_DEADLINE;
  snprintf(v->id, sizeof v->id, "BS-RANK-HELLO");
  used = (size_t)snprintf(v->text, sizeof v->text,
                          "%.3g s passed and these ranks have not come:", (double)timeout_ns * 1e-9);
  for (uint32_t i = 0; i + 1u < n && used < sizeof v->text - 16u; ++i)
    if (requests[i] != MPI_REQUEST_NULL)
      used += (size_t)snprintf(v->text + used, sizeof v->text - used, " %u", i + 1u);
}

/* Rank 0's part. table: the verdict, then n records. */
static int32_t collect(mpic_state *state, unsigned char *table, uint64_t bytes, int64_t timeout_ns,
                       bs_error *err) {
  uint32_t n = state->size;
  mpic_hello *all = (mpic_hello *)(void *)(table + sizeof(verdict));
  verdict *v = (verdict *)(void *)table;
  MPI_Request *requests = calloc(n, sizeof(MPI_Request));
  if (requests == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-COLL-MEMORY", "no memory for %u requests", n);
  int32_t rc = BS_OK;
  for (uint32_t r = 1; rc == BS_OK && r < n; ++r)
    rc = mpic_irecv(state, &all[r], sizeof all[r], r, MPIC_TAG_HELLO, &requests[r - 1u], err);
  if (rc != BS_OK) {
    mpic_keep(state, requests);
    return rc;
  }
  if (wait_until(state, requests, n - 1u, comm_now_ns() + timeout_ns) != 0)
    name_missing(v, requests, n, timeout_ns);
  else
    compare(v, all, n);
  MPI_Request *replies = calloc(n, sizeof(MPI_Request));
  if (replies == NULL) {
    mpic_keep(state, requests);
    return bs_fail(err, BS_NO_MEMORY, "BS-COLL-MEMORY", "no memory for %u requests", n);
  }
  for (uint32_t r = 1; rc == BS_OK && r < n; ++r)
    rc = mpic_isend(state, table, bytes, r, MPIC_TAG_TABLE, &replies[r - 1u], err);
  uint32_t left = rc == BS_OK ? wait_until(state, replies, n - 1u, comm_now_ns() + REPLY_NS) : n;
  if (left != 0 || v->code == BS_DEADLINE) {
    mpic_keep(state, requests);
    mpic_keep(state, replies);
    return rc;
  }
  free(requests);
  free(replies);
  return rc;
}

static int32_t report_to(mpic_state *state, const mpic_hello *mine, unsigned char *table, uint64_t bytes,
                         int64_t timeout_ns, bs_error *err) {
  MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  mpic_hello *copy = (mpic_hello *)(void *)(table + bytes); /* room for one more, which MPI may keep */
  *copy = *mine;
  int32_t rc = mpic_irecv(state, table, bytes, 0, MPIC_TAG_TABLE, &requests[0], err);
  if (rc == BS_OK) rc = mpic_isend(state, copy, sizeof *copy, 0, MPIC_TAG_HELLO, &requests[1], err);
  if (rc != BS_OK || wait_until(state, requests, 2, comm_now_ns() + timeout_ns + REPLY_NS) == 0) return rc;
  return bs_fail(err, BS_DEADLINE, "BS-RANK-HELLO", "%.3g s passed and rank 0 has not come",
                 (double)timeout_ns * 1e-9);
}

int32_t mpic_hello_all(mpic_state *state, const mpic_hello *mine, int64_t timeout_ns, mpic_hello **out_table,
                       bs_error *err) {
  uint64_t n = state->size, bytes = sizeof(verdict) + n * sizeof(mpic_hello);
  unsigned char *table = calloc(1, bytes + sizeof(mpic_hello));
  if (table == NULL)
    return bs_fail(err, BS_NO_MEMORY, "BS-COLL-MEMORY", "no memory for %u ranks", state->size);
  mpic_hello *all = (mpic_hello *)(void *)(table + sizeof(verdict));
  int32_t rc;
  if (state->rank == 0) {
    all[0] = *mine;
    rc = collect(state, table, bytes, timeout_ns, err);
  } else {
    rc = report_to(state, mine, table, bytes, timeout_ns, err);
  }
  verdict v;
  memcpy(&v, table, sizeof v);
  if (rc == BS_OK && v.code != BS_OK) {
    v.text[sizeof v.text - 1u] = '\0';
    rc = bs_fail(err, v.code, v.id, "%s", v.text);
    bs_fail_hint(err, v.code == BS_MISMATCH ? "start every rank with the same program, arguments and files"
                                            : "a rank is late, stopped or has died before it joined");
  }
  if (rc != BS_OK) {
    state->broken = 1;
    mpic_keep(state, table);
    return rc;
  }
  mpic_hello *copy = calloc(n, sizeof *copy);
  if (copy != NULL) memcpy(copy, all, n * sizeof *copy);
  free(table);
  *out_table = copy;
  return copy != NULL ? BS_OK
                      : bs_fail(err, BS_NO_MEMORY, "BS-COLL-MEMORY", "no memory for %u ranks", state->size);
}

/* Machines get dense numbers in the order of their lowest ranks; neighbours are watched by a pidfd. */
int32_t mpic_processes(mpic_state *state, const mpic_hello *table, bs_error *err) {
  uint32_t n = state->size;
  mpic_process *all = calloc(n, sizeof *all);
  if (all == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-COLL-MEMORY", "no memory for %u ranks", n);
  uint32_t machines = 0;
  for (uint32_t r = 0; r < n; ++r) {
    uint32_t same = 0;
    while (same < r && table[same].machine != table[r].machine) ++same;
    all[r].machine = same < r ? all[same].machine : machines++;
    all[r].pid = table[r].pid;
    all[r].pidfd = -1;
  }
  for (uint32_t r = 0; r < n; ++r) /* without pidfds in the kernel only deadlines detect an end */
    if (r != state->rank && all[r].machine == all[state->rank].machine)
      all[r].pidfd = (int)syscall(SYS_pidfd_open, (pid_t)all[r].pid, 0);
  for (uint32_t r = 0; r < n; ++r) { /* ranks bound to the same cores count them once */
    if (all[r].machine != all[state->rank].machine) continue;
    uint32_t same = 0;
    while (same < r && (all[same].machine != all[r].machine || table[same].cores != table[r].cores)) ++same;
    if (same == r) state->cores += table[r].ncores;
  }
  state->bound = 1;
  uint32_t neighbours = 0;
  for (uint32_t r = 0; r < n; ++r) {
    if (r == state->rank || all[r].machine != all[state->rank].machine) continue;
    ++neighbours;
    if (table[r].cores == table[state->rank].cores) state->bound = 0;
  }
  if (neighbours == 0) state->bound = 0; /* no neighbour shares the machine: no difference */
  state->machines = machines;
  state->processes = all;
  return BS_OK;
}
