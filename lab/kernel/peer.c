/* SPDX-License-Identifier: MIT
 * peer.c - see peer.h. One socket carries commands and answers: a write to a process that has died is an
 * error and no signal. */
#include "lab/kernel/peer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lab/error.h"
#include "lab/process/child.h"
#include "lab/stop.h"

static const double DEADLINE_S = 300, GO_S = 5, STOP_S = 2;
enum { LINE = BS_KERNEL_PEER_LINE, LOOK_MS = 100, ABOVE_STDIO = 10 };

struct bs_kernel_peer {
  const bs_kernel_peer_kind *kind;
  pid_t child; /* 0: it has ended */
  int socket, shared;
  char version[LINE];
  bs_kernel_data *data;
  char *map; /* NULL: no problem is loaded */
  size_t bytes, y_at, seconds_at;
};

/* ---- lines -------------------------------------------------------------------------------------- */

/* It answers no more: says how it ended. */
static int32_t ended(bs_kernel_peer *p, bs_error *err) {
  char how[64] = "has ended";
  int status = 0;
  if (p->child > 0 && bs_child_ended(p->child, 0.5, &status) != 0) {
    p->child = 0;
    if (WIFSIGNALED(status)) snprintf(how, sizeof how, "was ended by signal %d", WTERMSIG(status));
  }
  return bs_error_set(err, BS_UNAVAILABLE, p->kind->id, "the process of %s %s", p->kind->name, how);
}

/* Waits for a byte. After a request to stop it waits for some seconds more; then the process is killed. */
static int32_t wait_for_answer(const bs_kernel_peer *p, bs_error *err) {
  const double began = bs_process_now();
  double asked = 0;
  for (;;) {
    struct pollfd wait = {.fd = p->socket, .events = POLLIN};
    const int ready = poll(&wait, 1, LOOK_MS);
    const double now = bs_process_now();
    if (ready > 0) return BS_OK;
    if (ready < 0 && errno != EINTR) break;
    if (bs_stop_asked() != 0 && asked == 0) asked = now;
    if (asked == 0 ? now - began < DEADLINE_S : now - asked < STOP_S) continue;
    if (p->child > 0) bs_child_kill(p->child);
    if (asked != 0) return bs_stop_check(err);
    break;
  }
  return bs_error_set(err, BS_UNAVAILABLE, p->kind->id, "the process of %s does not answer", p->kind->name);
}

/* One line without its end. */
static int32_t read_line(bs_kernel_peer *p, char *line, size_t size, bs_error *err) {
  size_t used = 0;
  for (;;) {
    char c;
    const int32_t rc = wait_for_answer(p, err);
    if (rc != BS_OK) return rc;
    if (read(p->socket, &c, 1) != 1) return ended(p, err);
    if (c == '\n') break;
    if (used + 1 < size) line[used++] = c;
  }
  line[used] = '\0';
  return BS_OK;
}

static int32_t send_text(bs_kernel_peer *p, const char *text, bs_error *err) {
  for (size_t left = strlen(text); left > 0;) {
    const ssize_t sent = send(p->socket, text, left, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return ended(p, err);
    text += sent;
    left -= (size_t)sent;
  }
  return BS_OK;
}

int32_t bs_kernel_peer_ask(bs_kernel_peer *p, const char *command, char *out_answer, bs_error *err) {
  char line[LINE] = "";
  int32_t rc = send_text(p, command, err);
  if (rc == BS_OK) rc = read_line(p, line, sizeof line, err);
  if (rc != BS_OK) return rc;
  if (strncmp(line, "ok", 2) != 0)
    return bs_error_set(err, BS_UNSUPPORTED, p->kind->id, "%s: %s", p->kind->name,
                        strncmp(line, "no ", 3) == 0 ? line + 3 : line);
  if (out_answer != NULL)
    memcpy(out_answer, line + 2 + (line[2] == ' '), strlen(line + 2 + (line[2] == ' ')) + 1);
  return BS_OK;
}

/* ---- the process -------------------------------------------------------------------------------- */

typedef struct starting {
  const char *program;
  const char *const *words;
  int shared;
} starting;

/* Runs in the child: a program that cannot be started is an answer like any other. */
static void become(void *user) {
  const starting *s = user;
  char text[300];
  if (dup2(s->shared, BS_KERNEL_PEER_SHARED) >= 0) execvp(s->program, (char *const *)(uintptr_t)s->words);
  const int n = snprintf(text, sizeof text, "no cannot start '%.200s': %s\n", s->program, strerror(errno));
  if (write(STDOUT_FILENO, text, (size_t)n) != n) _exit(BS_CHILD_NOT_RUN);
  _exit(BS_CHILD_NOT_RUN);
}

/* The child has its own process group, so a key that stops this process does not reach it; it ends with this
 * process, however that ends. */
static int spawn(bs_kernel_peer *p, const char *program, const char *const *words, int theirs) {
  starting s = {program, words, p->shared};
  const bs_child child = {.run = become,
                          .user = &s,
                          .stdio = {theirs, theirs, p->kind->quiet ? BS_CHILD_NULL : BS_CHILD_KEEP},
                          .death = SIGKILL};
  p->child = bs_child_start(&child);
  if (p->child < 0) p->child = 0;
  return p->child > 0;
}

/* Moves a descriptor above those of standard input, output and error, which the parent may lack. */
static int move_up(int fd) {
  const int up = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, ABOVE_STDIO) : -1;
  if (fd >= 0) close(fd);
  return up;
}

int32_t bs_kernel_peer_start(const bs_kernel_peer_kind *kind, const char *program, const char *const *words,
                             const char *request, bs_kernel_peer **out, bs_error *err) {
  int ends[2] = {-1, -1};
  *out = NULL;
  bs_kernel_peer *p = calloc(1, sizeof *p);
  if (p == NULL) return bs_no_memory(err, "an arm");
  p->kind = kind;
  p->shared = move_up(memfd_create("bsrun_peer", MFD_CLOEXEC));
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0)
    for (int i = 0; i < 2; i++) ends[i] = move_up(ends[i]);
  p->socket = ends[0];
  int32_t rc = p->shared >= 0 && ends[0] >= 0 && ends[1] >= 0 && spawn(p, program, words, ends[1])
                   ? BS_OK
                   : bs_error_set(err, BS_UNAVAILABLE, kind->id, "cannot start '%.200s': %s", program,
                                  strerror(errno));
  if (ends[1] >= 0) close(ends[1]);
  if (rc == BS_OK) rc = bs_kernel_peer_ask(p, request != NULL ? request : "", p->version, err);
  if (rc != BS_OK) {
    bs_kernel_peer_close(p);
    if (err != NULL) err->code = BS_UNAVAILABLE;
    return BS_UNAVAILABLE;
  }
  *out = p;
  return BS_OK;
}

static void unmap(bs_kernel_peer *p) {
  if (p->map != NULL) munmap(p->map, p->bytes);
  p->map = NULL;
}

/* Waits for its end, which follows the end of the socket; kills a process that hangs after some seconds. */
static void wait_for(pid_t child) {
  int status;
  if (bs_child_ended(child, GO_S, &status) != 0) return;
  bs_child_kill(child);
  bs_child_wait(child);
}

void bs_kernel_peer_close(bs_kernel_peer *p) {
  if (p == NULL) return;
  unmap(p);
  if (p->socket >= 0) close(p->socket);
  if (p->shared >= 0) close(p->shared);
  if (p->child > 0) wait_for(p->child); /* 0: it was reaped */
  free(p);
}

void bs_kernel_peer_used(const bs_kernel_peer *p, bs_process_use *out) {
  *out = (bs_process_use){0};
  if (p->child > 0) bs_process_use_read(p->child, out);
}

const char *bs_kernel_peer_version(const bs_kernel_peer *p) {
  return p->version;
}

/* ---- a problem ---------------------------------------------------------------------------------- */

int32_t bs_kernel_peer_share(bs_kernel_peer *p, const bs_kernel_peer_part *parts, uint32_t n, size_t y,
                             size_t *out_bytes, bs_error *err) {
  size_t at = 0;
  unmap(p);
  for (uint32_t i = 0; i < n; i++) at += parts[i].bytes;
  p->y_at = at;
  p->seconds_at = bs_kernel_peer_seconds_at(at, y);
  *out_bytes = p->bytes = p->seconds_at + BS_KERNEL_PEER_CALLS * sizeof(double);
  if (ftruncate(p->shared, (off_t)p->bytes) != 0) return bs_no_memory(err, "%zu bytes to share", p->bytes);
  void *map = mmap(NULL, p->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, p->shared, 0);
  if (map == MAP_FAILED) return bs_no_memory(err, "%zu bytes to share", p->bytes);
  p->map = map;
  at = 0;
  for (uint32_t i = 0; i < n; at += parts[i++].bytes)
    if (parts[i].from != NULL) memcpy(p->map + at, parts[i].from, parts[i].bytes);
  return BS_OK;
}

int32_t bs_kernel_peer_load(bs_kernel_peer *p, bs_kernel_data *data, bs_error *err) {
  p->data = NULL;
  const int32_t rc = p->kind->load(p, data, err);
  if (rc == BS_OK) p->data = data;
  return rc;
}

int32_t bs_kernel_peer_batch(void *peer, uint64_t lead, uint64_t n, bs_sample *out, bs_error *err) {
  char command[64], answer[LINE];
  snprintf(command, sizeof command, "batch %llu %llu\n", (unsigned long long)lead, (unsigned long long)n);
  const int32_t rc = bs_kernel_peer_ask(peer, command, answer, err);
  if (rc == BS_OK) out->seconds = strtod(answer, NULL);
  return rc;
}

int32_t bs_kernel_peer_series(void *peer, uint64_t warmup, uint64_t n, double *out_seconds, bs_error *err) {
  bs_kernel_peer *p = peer;
  char command[64];
  if (n > BS_KERNEL_PEER_CALLS)
    return bs_error_set(err, BS_USAGE, p->kind->id, "%llu calls of a series: at most %d",
                        (unsigned long long)n, BS_KERNEL_PEER_CALLS);
  snprintf(command, sizeof command, "series %llu %llu\n", (unsigned long long)warmup, (unsigned long long)n);
  const int32_t rc = bs_kernel_peer_ask(p, command, NULL, err);
  if (rc == BS_OK) memcpy(out_seconds, p->map + p->seconds_at, n * sizeof *out_seconds);
  return rc;
}

int32_t bs_kernel_peer_judge(bs_kernel_peer *p, bs_kernel_numbers *out, bs_error *err) {
  const int32_t rc = bs_kernel_peer_ask(p, "output\n", NULL, err);
  return rc == BS_OK ? bs_kernel_data_judge(p->data, p->map + p->y_at, out, err) : rc;
}
