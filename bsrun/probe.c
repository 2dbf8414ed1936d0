/* SPDX-License-Identifier: MIT
 * probe.c - a plugin is opened, read and closed in a child: whatever it does there (crash, exit, hang, print,
 * also at exit) costs a row, not this process. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bsrun/plugins.h"
#include "core/base/error.h"
#include "core/plugin/registry.h"

#define PROBE_MS 10000
#define LOOK_MS 50 /* between two looks at the child */

/* Reads the texts that a thing was registered with, as `plugins inspect` does: one may be no text. */
static void read_texts(const bs_thing_info *info) {
  const char *const texts[] = {info->name, info->summary, info->aliases, info->at.file};
  volatile size_t length = 0;
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
    if (texts[i] != NULL) length = length + strlen(texts[i]);
}

/* The plugin's backends have devices here, as far as they can tell without opening one. A look-up by name
 * would open other plugins on the way: what they do is theirs. */
static int32_t has_devices(bs_context *context, const char *id, bs_error *err) {
  const bs_thing *thing;
  for (uint32_t i = 0; (thing = bs_registry_thing(context, id, i)) != NULL; i++) {
    bs_thing_info info = {.struct_size = sizeof info};
    const bs_backend *backend = thing->vtable;
    uint32_t count = 0;
    int32_t rc = bs_thing_get(context, id, i, &info, err);
    if (rc != BS_OK) return rc;
    read_texts(&info);
    if (thing->kind != BS_KIND_BACKEND || info.wrapper) continue;
    rc = backend->device_count(thing->state, &count, err);
    if (rc != BS_OK) return rc;
    if (count == 0)
      return bs_error_set(err, BS_UNAVAILABLE, "BS-WORLD-DEVICE", "backend %s has no device here",
                          thing->name);
  }
  return BS_OK;
}

typedef struct question {
  const char *id;
  int devices;          /* its backends must have some */
  plugins_look_fn look; /* NULL: nothing is read */
  int rows_fd;          /* a file in memory: what `look` found, as JSON */
} question;

static int32_t answer_question(bs_context *context, const question *q, bs_error *err) {
  int32_t rc = bs_plugin_activate(context, q->id, err);
  if (rc == BS_OK && q->devices) rc = has_devices(context, q->id, err);
  if (rc != BS_OK || q->look == NULL) return rc;
  json_t *rows = json_array();
  rc = q->look(context, q->id, rows, err);
  if (rc == BS_OK && json_dumpfd(rows, q->rows_fd, JSON_COMPACT) != 0)
    rc = bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  json_decref(rows);
  return rc;
}

/* In the child: the answer is one bs_error on the pipe. Then the plugin is closed, and what it leaves to be
 * done at exit is done; the buffers of this process were flushed before. */
static _Noreturn void child(bs_context *context, const question *q, int out) {
  bs_error err = BS_ERROR_INIT;
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null >= 0) {
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
  }
  err.code = answer_question(context, q, &err);
  const ssize_t wrote = write(out, &err, sizeof err); /* below PIPE_BUF: whole or not at all */
  if (wrote != (ssize_t)sizeof err) _exit(1);
  if (err.code != BS_OK) _exit(0);
  bs_context_close(context);
  exit(0);
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

/* Once it has answered there is only its end to wait for: 1 where that came in time. */
static int await_end(probed *c) {
  const int64_t deadline = now_ms() + PROBE_MS;
  const struct timespec nap = {0, 1000000};
  while (!has_ended(c) && now_ms() < deadline) nanosleep(&nap, NULL);
  c->late = !c->ended;
  return c->ended;
}

static int32_t verdict(const probed *c, const char *id, const char *done, bs_error *err) {
  if (c->late)
    return bs_error_set(err, BS_UNAVAILABLE, "BS-PLG-HANG", "%s was not %s within %d s", id, done,
                        PROBE_MS / 1000);
  if (WIFSIGNALED(c->status)) /* the kill only races with a child that closed its pipe and lives on */
    return bs_error_set(err, BS_UNAVAILABLE, "BS-PLG-DIED", "%s died while it was %s: signal %d (%s)", id,
                        done, WTERMSIG(c->status), strsignal(WTERMSIG(c->status)));
  return bs_error_set(err, BS_UNAVAILABLE, "BS-PLG-DIED", "%s ended the process with %d while it was %s", id,
                      WIFEXITED(c->status) ? WEXITSTATUS(c->status) : -1, done);
}

static int32_t probe(bs_context *context, const question *q, bs_error *err) {
  bs_error answer;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    return bs_error_errno(err, BS_NO_MEMORY, "BS-PRB-PIPE", errno, "cannot make a pipe");
  fflush(NULL);
  const pid_t pid = fork();
  if (pid == 0) {
    close(ends[0]);
    child(context, q, ends[1]);
  }
  close(ends[1]);
  if (pid < 0) {
    const int saved = errno;
    close(ends[0]);
    return bs_error_errno(err, BS_NO_MEMORY, "BS-PRB-FORK", saved, "cannot start a child");
  }
  probed c = {.pid = pid};
  const int complete = read_answer(ends[0], &answer, &c);
  close(ends[0]);
  if (complete ? !await_end(&c) : !c.ended) kill(pid, SIGKILL);
  while (!c.ended && waitpid(pid, &c.status, 0) < 0 && errno == EINTR) continue;
  if (complete && answer.code != BS_OK) {
    if (err != NULL) *err = answer;
    return answer.code;
  }
  if (!complete) return verdict(&c, q->id, "opened", err);
  const int orderly = !c.late && WIFEXITED(c.status) && WEXITSTATUS(c.status) == 0;
  return orderly ? BS_OK : verdict(&c, q->id, "closed", err);
}

int32_t plugins_probe(bs_context *context, const char *id, bs_error *err) {
  const question q = {.id = id};
  return probe(context, &q, err);
}

int32_t plugins_probe_devices(bs_context *context, const char *id, bs_error *err) {
  const question q = {.id = id, .devices = 1};
  return probe(context, &q, err);
}

static json_t *read_rows(int fd) {
  struct stat st;
  void *text = MAP_FAILED;
  if (fstat(fd, &st) == 0 && st.st_size > 0)
    text = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (text == MAP_FAILED) return NULL;
  json_t *rows = json_loadb(text, (size_t)st.st_size, 0, NULL);
  munmap(text, (size_t)st.st_size);
  return rows;
}

int32_t plugins_look(bs_context *context, const char *id, plugins_look_fn look, json_t *rows, bs_error *err) {
  const question q = {.id = id, .look = look, .rows_fd = memfd_create("rows", MFD_CLOEXEC)};
  if (q.rows_fd < 0)
    return bs_error_errno(err, BS_NO_MEMORY, "BS-PRB-FILE", errno, "cannot make a file in memory");
  int32_t rc = probe(context, &q, err);
  json_t *found = rc == BS_OK ? read_rows(q.rows_fd) : NULL;
  if (rc == BS_OK && (found == NULL || json_array_extend(rows, found) != 0))
    rc = bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  json_decref(found);
  close(q.rows_fd);
  return rc;
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
