/* SPDX-License-Identifier: MIT
 * plan.c - BS_CUDA_STANDIN, and what every function begins with: it is counted, and may be planned to fail.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "standin.h"

enum { MAX_STEPS = 32, MAX_FUNCTIONS = 96, HANG = -1 };

typedef struct step {
  char function[48];
  uint64_t at;
  int code; /* HANG, or what to return */
  int late; /* or what the queued work ends with */
} step;

static si_setup setup;
static step steps[MAX_STEPS];
static int n_steps;
static struct {
  char name[48];
  uint64_t calls;
} functions[MAX_FUNCTIONS];
static int n_functions;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local CUresult pending_late;
int si_initialised;

void si_die(const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  fputs("libcuda stand-in: ", stderr);
  vfprintf(stderr, fmt, ap);
  fputc('\n', stderr);
  va_end(ap);
  abort();
}

static void read_step(char *text) {
  char *colon = strchr(text, ':');
  char *equals = colon != NULL ? strchr(colon, '=') : NULL;
  if (equals == NULL || n_steps == MAX_STEPS) si_die("plan: '%s' is not FUNCTION:N=CODE", text);
  step *s = &steps[n_steps++];
  *colon = *equals = '\0';
  snprintf(s->function, sizeof s->function, "%s", text);
  s->at = strtoull(colon + 1, NULL, 10);
  if (strcmp(equals + 1, "hang") == 0)
    s->code = HANG;
  else if (strncmp(equals + 1, "late", 4) == 0)
    s->late = (int)strtol(equals + 5, NULL, 10);
  else
    s->code = (int)strtol(equals + 1, NULL, 10);
}

static void read_item(char *item) {
  char *equals = strchr(item, '=');
  if (equals == NULL) si_die("BS_CUDA_STANDIN: '%s' is not NAME=VALUE", item);
  *equals = '\0';
  const char *value = equals + 1;
  char *rest = NULL;
  if (strcmp(item, "devices") == 0)
    setup.devices = (int)strtol(value, NULL, 10);
  else if (strcmp(item, "capability") == 0)
    setup.capability = (int)strtol(value, NULL, 10);
  else if (strcmp(item, "memory") == 0)
    setup.memory = strtoull(value, NULL, 10);
  else if (strcmp(item, "version") == 0)
    setup.version = (int)strtol(value, NULL, 10);
  else if (strcmp(item, "pools") == 0)
    setup.pools = (int)strtol(value, NULL, 10);
  else if (strcmp(item, "local") == 0)
    setup.local = (int)strtol(value, NULL, 10);
  else if (strcmp(item, "registers") == 0)
    setup.registers = (int)strtol(value, NULL, 10);
  else if (strcmp(item, "threads") == 0)
    setup.threads = (int)strtol(value, NULL, 10);
  else if (strcmp(item, "event_ns") == 0)
    setup.event_ns = strtoll(value, NULL, 10);
  else if (strcmp(item, "name") == 0)
    snprintf(setup.name, sizeof setup.name, "%s", value);
  else if (strcmp(item, "plan") == 0)
    for (char *s = strtok_r(equals + 1, ",", &rest); s != NULL; s = strtok_r(NULL, ",", &rest)) read_step(s);
  else
    si_die("BS_CUDA_STANDIN: '%s' is not known", item);
}

static void read_all(void) {
  static char text[2048];
  char *rest = NULL;
  setup =
      (si_setup){.devices = 1, .capability = 90, .version = 13000, .pools = 1, .memory = UINT64_C(1) << 30};
  snprintf(setup.name, sizeof setup.name, "Stand-in GPU");
  const char *given = getenv("BS_CUDA_STANDIN");
  if (given == NULL) return;
  snprintf(text, sizeof text, "%s", given);
  for (char *item = strtok_r(text, ";", &rest); item != NULL; item = strtok_r(NULL, ";", &rest))
    read_item(item);
  if (setup.devices < 0 || setup.devices > SI_DEVICES) si_die("at most %d devices", SI_DEVICES);
}

const si_setup *si_get_setup(void) {
  pthread_once(&once, read_all);
  return &setup;
}

static uint64_t count(const char *function) {
  for (int i = 0; i < n_functions; i++)
    if (strcmp(functions[i].name, function) == 0) return ++functions[i].calls;
  if (n_functions == MAX_FUNCTIONS) si_die("too many functions");
  snprintf(functions[n_functions].name, sizeof functions[0].name, "%s", function);
  return functions[n_functions++].calls = 1;
}

uint64_t standin_calls(const char *function) {
  uint64_t calls = 0;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < n_functions; i++)
    if (strcmp(functions[i].name, function) == 0) calls = functions[i].calls;
  pthread_mutex_unlock(&lock);
  return calls;
}

CUresult si_plain(const char *function) {
  int code = 0;
  (void)si_get_setup();
  pthread_mutex_lock(&lock);
  const uint64_t n = count(function);
  pending_late = CUDA_SUCCESS;
  for (int i = 0; i < n_steps; i++) {
    if (steps[i].at != n || strcmp(steps[i].function, function) != 0) continue;
    code = steps[i].code;
    pending_late = (CUresult)steps[i].late;
  }
  pthread_mutex_unlock(&lock);
  if (code == HANG)
    for (;;) pause();
  return (CUresult)code;
}

CUresult si_enter(const char *function) {
  const CUresult planned = si_plain(function);
  if (planned != CUDA_SUCCESS) return planned;
  return __atomic_load_n(&si_initialised, __ATOMIC_ACQUIRE) ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult si_enter_context(const char *function) {
  const CUresult rc = si_enter(function);
  if (rc != CUDA_SUCCESS) return rc;
  CUcontext now = si_current();
  if (now == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  pthread_mutex_lock(&si_lock);
  const CUresult sticky = now->sticky;
  pthread_mutex_unlock(&si_lock);
  return sticky;
}

CUresult si_take_late(void) {
  const CUresult late = pending_late;
  pending_late = CUDA_SUCCESS;
  return late;
}
