/* SPDX-License-Identifier: MIT
 * probe.c - a plugin is opened in a child first: whatever it does there (crash, exit, hang, print) costs a
 * row, not this process. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bsrun/plugins.h"
#include "core/base/error.h"

#define PROBE_MS 10000
#define LOOK_MS 50 /* between two looks at the child */

/* The plugin's backends have devices here, as far as they can tell without opening one. */
static int32_t has_devices(bs_context *context, const char *id, bs_error *err) {
  int32_t rc = BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < bs_thing_count(context, id); i++) {
    bs_thing_info thing = {.struct_size = sizeof thing};
    const bs_backend *backend = NULL;
    void *state = NULL;
    uint32_t count = 0;
    rc = bs_thing_get(context, id, i, &thing, err);
    if (rc != BS_OK || thing.kind != BS_KIND_BACKEND || thing.wrapper) continue;
    rc = bs_find_backend(context, thing.name, &backend, &state, err);
    if (rc == BS_OK) rc = backend->device_count(state, &count, err);
    if (rc == BS_OK && count == 0)
      rc = bs_error_set(err, BS_UNAVAILABLE, "BS-WORLD-DEVICE", "backend %s has no device here", thing.name);
  }
  return rc;
}

/* In the child: the answer is one bs_error on the pipe. Nothing of this process's buffers is flushed. */
static void child(bs_context *context, const char *id, int devices, int out) {
  bs_error err = BS_ERROR_INIT;
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null >= 0) {
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
  }
  err.code = bs_plugin_activate(context, id, &err);
  if (err.code == BS_OK && devices) err.code = has_devices(context, id, &err);
  const ssize_t wrote = write(out, &err, sizeof err); /* below PIPE_BUF: whole or not at all */
  _exit(wrote == (ssize_t)sizeof err ? 0 : 1);
}

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* The child as it is looked at while its answer is awaited. */
typedef struct probed {
  pid_t pid;
  int ended, status; /* waited for */
  int late;          /* the deadline passed */
} probed;

static int has_ended(probed *c) {
  if (!c->ended) c->ended = waitpid(c->pid, &c->status, WNOHANG) == c->pid;
  return c->ended;
}

/* All of one answer, or 0 at the end of the pipe, the deadline, or an error. A process that the plugin
 * started may hold the pipe open when the child is gone, so the child is looked at too: once it has ended,
 * there is only what it wrote. */
static int read_answer(int in, bs_error *answer, probed *c) {
  const int64_t deadline = now_ms() + PROBE_MS;
  size_t have = 0;
  while (have < sizeof *answer) {
    struct pollfd p = {in, POLLIN, 0};
    const int64_t left = deadline - now_ms();
    const int ended = has_ended(c);
    const int ready = poll(&p, 1, ended || left <= 0 ? 0 : left < LOOK_MS ? (int)left : LOOK_MS);
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0 && !ended && left > 0) continue;
    if (ready <= 0) {
      c->late = !ended;
      return 0;
    }
    const ssize_t n = read(in, (char *)answer + have, sizeof *answer - have);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return 0;
    have += (size_t)n;
  }
  return 1;
}

static int32_t probe(bs_context *context, const char *id, int devices, bs_error *err) {
  bs_error answer;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return bs_error_errno(err, BS_INTERNAL, "BS-PRB-PIPE", errno, "cannot make a pipe");
  }
  const pid_t pid = fork();
  if (pid == 0) {
    close(ends[0]);
    child(context, id, devices, ends[1]);
  }
  close(ends[1]);
  if (pid < 0) {
    const int saved = errno;
    close(ends[0]);
    return bs_error_errno(err, BS_INTERNAL, "BS-PRB-FORK", saved, "cannot start a child");
  }
  probed c = {.pid = pid};
  const int complete = read_answer(ends[0], &answer, &c);
  close(ends[0]);
  if (!complete && !c.ended) kill(pid, SIGKILL);
  while (!c.ended && waitpid(pid, &c.status, 0) < 0 && errno == EINTR) continue;
  if (complete) {
    if (answer.code == BS_OK) return BS_OK;
    if (err != NULL) *err = answer;
    return answer.code;
  }
  if (c.late) {
    return bs_error_set(err, BS_UNAVAILABLE, "BS-PLG-HANG", "%s did not open within %d s", id,
                        PROBE_MS / 1000);
  }
  if (WIFSIGNALED(c.status)) {
    /* The kill above only races with a child that closed its pipe and lives on. */
    return bs_error_set(err, BS_UNAVAILABLE, "BS-PLG-DIED", "%s died while opening: signal %d (%s)", id,
                        WTERMSIG(c.status), strsignal(WTERMSIG(c.status)));
  }
  return bs_error_set(err, BS_UNAVAILABLE, "BS-PLG-DIED", "%s ended the process with %d while opening", id,
                      WIFEXITED(c.status) ? WEXITSTATUS(c.status) : -1);
}

int32_t plugins_probe(bs_context *context, const char *id, bs_error *err) {
  return probe(context, id, 0, err);
}

int32_t plugins_probe_devices(bs_context *context, const char *id, bs_error *err) {
  return probe(context, id, 1, err);
}

const char *plugins_probe_library(const char *const *names, size_t n) {
  int status = 0;
  const pid_t pid = fork();
  if (pid < 0) return NULL;
  if (pid == 0) {
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null >= 0) {
      dup2(null, STDOUT_FILENO);
      dup2(null, STDERR_FILENO);
    }
    alarm(PROBE_MS / 1000); /* a library whose constructor waits for a device */
    for (size_t i = 0; i < n; i++) {
      if (dlopen(names[i], RTLD_LAZY | RTLD_LOCAL) != NULL) _exit((int)i + 1);
    }
    _exit(0);
  }
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
  const int which = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
  return which >= 1 && (size_t)which <= n ? names[which - 1] : NULL;
}
