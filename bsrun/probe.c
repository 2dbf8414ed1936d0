/* SPDX-License-Identifier: MIT
 * probe.c - a plugin is opened, read and closed in a child: whatever it does there (crash, exit, hang, print,
 * also at exit) costs a row, not this process. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bsrun/plugins.h"
#include "core/base/error.h"
#include "core/plugin/registry.h"
#include "lab/process/child.h"
#include "lab/process/hear.h"

enum { PROBE_S = 10 };

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
  bs_context *context;
  json_t *rows; /* what `look` found */
} question;

static int32_t answer_question(question *q, bs_error *err) {
  bs_context *context = q->context;
  int32_t rc = bs_plugin_activate(context, q->id, err);
  if (rc == BS_OK && q->devices) rc = has_devices(context, q->id, err);
  if (rc != BS_OK || q->look == NULL) return rc;
  q->rows = json_array();
  return q->look(context, q->id, q->rows, err);
}

/* In the child: the answer is one bs_error on the pipe, and the rows as JSON. Then the plugin is closed, and
 * what it leaves to be done at exit is done; the buffers of this process were flushed before. */
static void answer(void *user, int out) {
  question *q = user;
  bs_error err = BS_ERROR_INIT;
  err.code = answer_question(q, &err);
  const ssize_t wrote = write(out, &err, sizeof err); /* below PIPE_BUF: whole or not at all */
  if (wrote != (ssize_t)sizeof err) _exit(1);
  if (err.code != BS_OK) _exit(0);
  if (q->rows != NULL && json_dumpfd(q->rows, out, JSON_COMPACT) != 0) _exit(1);
  bs_context_close(q->context);
  exit(0);
}

static int32_t verdict(const bs_hearing *h, const char *id, const char *done, bs_error *err) {
  if (h->late)
    return bs_error_set(err, BS_UNAVAILABLE, "BS-PLG-HANG", "%s was not %s within %d s", id, done, PROBE_S);
  if (WIFSIGNALED(h->status))
    return bs_error_set(err, BS_UNAVAILABLE, "BS-PLG-DIED", "%s died while it was %s: signal %d (%s)", id,
                        done, WTERMSIG(h->status), strsignal(WTERMSIG(h->status)));
  return bs_error_set(err, BS_UNAVAILABLE, "BS-PLG-DIED", "%s ended the process with %d while it was %s", id,
                      WEXITSTATUS(h->status), done);
}

static int32_t probe(question *q, bs_error *err) {
  bs_error answered = BS_ERROR_INIT;
  bs_text text = {0};
  bs_hearing h = {.say = answer, .user = q, .silence_s = PROBE_S, .quiet = 1};
  const int failed = bs_hear(&h, &text);
  if (failed != 0) return bs_error_errno(err, BS_NO_MEMORY, "BS-PRB-FORK", failed, "cannot start a child");
  const int complete = text.size >= sizeof answered;
  if (complete) memcpy(&answered, text.data, sizeof answered);
  q->rows = complete && q->look != NULL
                ? json_loadb(text.data + sizeof answered, text.size - sizeof answered, 0, NULL)
                : NULL;
  bs_text_free(&text);
  if (!complete) return verdict(&h, q->id, "opened", err);
  if (answered.code == BS_OK) return bs_child_code(h.status) == 0 ? BS_OK : verdict(&h, q->id, "closed", err);
  if (err != NULL) *err = answered;
  return answered.code;
}

int32_t plugins_probe(bs_context *context, const char *id, bs_error *err) {
  question q = {.id = id, .context = context};
  return probe(&q, err);
}

int32_t plugins_probe_devices(bs_context *context, const char *id, bs_error *err) {
  question q = {.id = id, .context = context, .devices = 1};
  return probe(&q, err);
}

int32_t plugins_look(bs_context *context, const char *id, plugins_look_fn look, json_t *rows, bs_error *err) {
  question q = {.id = id, .context = context, .look = look};
  int32_t rc = probe(&q, err);
  if (rc == BS_OK && (q.rows == NULL || json_array_extend(rows, q.rows) != 0))
    rc = bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  json_decref(q.rows);
  return rc;
}

typedef struct libraries {
  const char *const *names;
  size_t n;
} libraries;

/* Ends with the number of the first that can be opened. */
static void open_library(void *user) {
  const libraries *of = user;
  for (size_t i = 0; i < of->n; i++)
    if (dlopen(of->names[i], RTLD_LAZY | RTLD_LOCAL) != NULL) _exit((int)i + 1);
}

const char *plugins_probe_library(const char *const *names, size_t n) {
  libraries of = {names, n};
  const bs_child child = {.run = open_library,
                          .user = &of,
                          .stdio = {BS_CHILD_KEEP, BS_CHILD_NULL, BS_CHILD_NULL},
                          .death = SIGKILL,
                          .group = BS_CHILD_KEEP};
  const int code = bs_child_answer(&child, PROBE_S); /* a constructor may wait for a device */
  return code >= 1 && (size_t)code <= n ? names[code - 1] : NULL;
}
