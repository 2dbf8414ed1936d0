/* SPDX-License-Identifier: MIT
 *
 * arm_torch.c - PyTorch's linear in a Python process (peer_torch.py) that times batches when asked over a
 * pipe and sleeps in between. Numbers go to it, and Y comes back, through memory that both map. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "arms.h"
#include "core/base/error.h"
#include "support.h"

#define DEADLINE_MS 300000 /* of one answer; starting Python and importing torch is the slowest */
enum { SHARED_FD = 3 };

extern char **environ;

typedef struct torch_arm {
  pid_t child;
  int to, from, shared; /* pipes; the memory */
  bench_numbers numbers;
  char *map;
  size_t map_bytes, y_at;
} torch_arm;

static int32_t broken(bs_error *err, const char *what) {
  return bs_error_set(err, BS_UNAVAILABLE, "BS-BENCH-TORCH", "PyTorch's process %s", what);
}

/* One line without its end. */
static int32_t read_line(const torch_arm *p, char *line, size_t size, bs_error *err) {
  size_t used = 0;
  for (;;) {
    struct pollfd wait = {.fd = p->from, .events = POLLIN};
    const int ready = poll(&wait, 1, DEADLINE_MS);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return broken(err, "does not answer");
    if (read(p->from, line + used, 1) != 1) return broken(err, "has ended (its own words are above)");
    if (line[used] == '\n') break;
    if (used + 2 < size) ++used;
  }
  line[used] = '\0';
  return BS_OK;
}

/* Sends a command; the answer is "ok ..." with the rest in `answer`, or "no REASON". */
static int32_t ask(const torch_arm *p, const char *command, char *answer, size_t size, bs_error *err) {
  char line[256];
  const size_t length = strlen(command);
  if (length > 0 && write(p->to, command, length) != (ssize_t)length) return broken(err, "has ended");
  const int32_t rc = read_line(p, line, sizeof line, err);
  if (rc != BS_OK) return rc;
  if (strncmp(line, "ok", 2) != 0)
    return bs_error_set(err, BS_UNSUPPORTED, "BS-BENCH-TORCH", "PyTorch: %s", line);
  snprintf(answer, size, "%s", line + 2 + (line[2] == ' '));
  return BS_OK;
}

/* W, X and room for Y in the shared memory. */
static int32_t share_numbers(torch_arm *p, const bench_numbers *m, bs_error *err) {
  const size_t size = BS_DTYPE_BYTES(m->dtype), w = (size_t)(m->n * m->k) * size;
  const size_t x = (size_t)(m->b * m->k) * size, y = (size_t)(m->b * m->n) * size;
  p->y_at = w + x;
  p->map_bytes = w + x + y;
  if (ftruncate(p->shared, (off_t)p->map_bytes) != 0)
    return bs_error_set(err, BS_NO_MEMORY, "BS-BENCH-MEMORY", "no memory to share with PyTorch");
  void *map = mmap(NULL, p->map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, p->shared, 0);
  if (map == MAP_FAILED)
    return bs_error_set(err, BS_NO_MEMORY, "BS-BENCH-MEMORY", "no memory to share with PyTorch");
  p->map = map;
  memcpy(p->map, m->w, w);
  memcpy(p->map + w, m->x, x);
  return BS_OK;
}

static int32_t torch_ready(bench_arm *arm, const bench_numbers *m, bs_error *err) {
  torch_arm *p = arm->self;
  char command[128];
  p->numbers = *m;
  const int32_t rc = share_numbers(p, m, err);
  if (rc != BS_OK) return rc;
  snprintf(command, sizeof command, "shape %lld %lld %lld %s\n", (long long)m->n, (long long)m->k,
           (long long)m->b, bs_dtype_name(m->dtype));
  return ask(p, command, arm->way, sizeof arm->way, err);
}

static int32_t torch_batch(bench_arm *arm, uint64_t calls, double *out_seconds, bs_error *err) {
  char command[64], answer[64];
  snprintf(command, sizeof command, "run %llu\n", (unsigned long long)calls);
  const int32_t rc = ask(arm->self, command, answer, sizeof answer, err);
  if (rc == BS_OK) *out_seconds = strtod(answer, NULL);
  return rc;
}

static const void *torch_output(bench_arm *arm, bs_error *err) {
  torch_arm *p = arm->self;
  char answer[64];
  return ask(p, "output\n", answer, sizeof answer, err) == BS_OK ? p->map + p->y_at : NULL;
}

static void torch_release(bench_arm *arm) {
  torch_arm *p = arm->self;
  char answer[64];
  bs_error ignored = BS_ERROR_INIT;
  if (p->map == NULL) return;
  (void)ask(p, "drop\n", answer, sizeof answer, &ignored); /* before the memory goes */
  munmap(p->map, p->map_bytes);
  p->map = NULL;
  (void)!ftruncate(p->shared, 0);
}

static void torch_close(bench_arm *arm) {
  torch_arm *p = arm->self;
  torch_release(arm);
  if (p->to >= 0) close(p->to); /* the end of its input ends it */
  if (p->from >= 0) close(p->from);
  if (p->shared >= 0) close(p->shared);
  if (p->child > 0) waitpid(p->child, NULL, 0);
  free(p);
}

/* peer_torch.py beside the program, as in a bundle, else in the source. */
static void find_script(char *out, size_t size) {
  const ssize_t length = readlink("/proc/self/exe", out, size - 1);
  out[length > 0 ? length : 0] = '\0';
  char *slash = strrchr(out, '/');
  const size_t used = slash != NULL ? (size_t)(slash + 1 - out) : 0;
  snprintf(out + used, size - used, "peer_torch.py");
  if (used == 0 || access(out, R_OK) != 0) snprintf(out, size, "%s", BS_BENCH_SOURCE "/peer_torch.py");
}

static int start(torch_arm *p, const char *python, const char *device, uint32_t threads) {
  char count[16], script[BENCH_PATH];
  char *argv[] = {(char *)(uintptr_t)python, script, count, (char *)(uintptr_t)device, NULL};
  int in[2] = {-1, -1}, out[2] = {-1, -1};
  posix_spawn_file_actions_t actions;
  snprintf(count, sizeof count, "%u", threads);
  find_script(script, sizeof script);
  if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) return 0;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, p->shared, SHARED_FD);
  const int rc = posix_spawn(&p->child, python, &actions, NULL, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(in[0]);
  close(out[1]);
  p->to = in[1];
  p->from = out[0];
  if (rc != 0) p->child = 0;
  return rc == 0;
}

int32_t bench_open_torch(const bench_arm_options *o, bench_arm *arm, bs_error *err) {
  static const bench_arm_ops ops = {torch_ready, torch_batch, torch_output, torch_release, torch_close};
  if (o->python == NULL)
    return bs_error_set(err, BS_UNAVAILABLE, "BS-BENCH-TORCH", "--python names no Python that has torch");
  torch_arm *p = calloc(1, sizeof *p);
  if (p == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-BENCH-MEMORY", "no memory for an arm");
  p->to = p->from = -1;
  p->shared = memfd_create("bench_matmul", MFD_CLOEXEC);
  arm->self = p;
  arm->ops = &ops;
  signal(SIGPIPE, SIG_IGN); /* a child that has died is an error of ours */
  if (p->shared < 0 || !start(p, o->python, o->backend, o->threads))
    return bs_error_set(err, BS_UNAVAILABLE, "BS-BENCH-TORCH", "cannot start %s", o->python);
  const int32_t rc = ask(p, "", arm->version, sizeof arm->version, err);
  return rc == BS_UNSUPPORTED ? BS_UNAVAILABLE : rc; /* it is there and cannot serve at all */
}
