/* SPDX-License-Identifier: MIT
 * words.c - the command of a child: bsrun itself, with the fault as a setting. torture.h. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "lab/torture/torture.h"

typedef struct words {
  char **w;
  size_t n;
  int failed;
} words;

static void put(words *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void put(words *w, const char *fmt, ...) {
  char *text = NULL;
  va_list ap;
  va_start(ap, fmt);
  if (w->n + 1 >= BS_TORTURE_WORDS || vasprintf(&text, fmt, ap) < 0)
    w->failed = 1;
  else
    w->w[w->n++] = text;
  va_end(ap);
}

/* An option and its value. */
static void put_pair(words *w, const char *option, const char *value) {
  put(w, "--%s", option);
  put(w, "%s", value);
}

const char *bs_torture_value(const bs_torture *t, const char *name) {
  const char *value = NULL;
  for (size_t i = 0; i < t->n_given; i++)
    if (strcmp(t->given[i].name, name) == 0) value = t->given[i].value;
  return value;
}

/* --plugin, --config and --set as this command was given. */
static void put_given(const bs_torture *t, words *w) {
  static const char *const names[] = {"plugin", "config", "set"};
  for (size_t i = 0; i < t->n_given; i++) {
    for (size_t k = 0; k < 3; k++) {
      if (strcmp(t->given[i].name, names[k]) != 0) continue;
      put_pair(w, names[k], t->given[i].value);
    }
  }
}

static void put_run(const bs_torture *t, const bs_torture_case *c, const char *plan, const char *folder,
                    words *w) {
  static const char *const sets[] = {"model.dtype=f32",
                                     "model.N=64",
                                     "model.K=64",
                                     "model.B=8",
                                     "phase.timed_iters=1",
                                     "phase.warmup_iters=0",
                                     "phase.fault_gate=false",
                                     "phase.integer_gate=false",
                                     "tune.measure=false"};
  const int backend = c->subject->kind == BS_TORTURE_BACKEND;
  const char *inner = backend ? c->subject->name : bs_torture_value(t, "comm");
  put(w, "run");
  put_given(t, w);
  put_pair(w, "method", backend ? "row_parallel" : c->subject->name);
  put(w, "-P");
  put(w, "%u", c->world_size);
  if (backend && bs_torture_value(t, "comm") != NULL) put_pair(w, "comm", bs_torture_value(t, "comm"));
  put(w, backend ? "--backend" : "--comm");
  put(w, "fault:%s", inner != NULL ? inner : c->subject->launch == BS_TORTURE_PROCESSES ? "shm" : "threads");
  if (c->subject->launch != BS_TORTURE_THREADS)
    put(w, "--launch=%s", bs_torture_launch_names[c->subject->launch]);
  put_pair(w, "phase", "0");
  put(w, "--timeout");
  put(w, "%g", t->deadline);
  for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) put_pair(w, "set", sets[i]);
  put(w, "--set");
  if (plan[0] != '\0')
    put(w, "plugins.fault.plan=%s", plan);
  else
    put(w, "plugins.fault.count=true");
  if (plan[0] == '\0') put(w, "-v");
  put(w, "--out");
  put(w, "%s/out", folder);
  put_pair(w, "run-id", "it");
  put(w, "-o");
  put(w, "jsonl");
}

int bs_torture_words(const bs_torture *t, const bs_torture_case *c, const char *folder,
                     char *out[BS_TORTURE_WORDS]) {
  char plan[160];
  words w = {out, 0, 0};
  memset(out, 0, BS_TORTURE_WORDS * sizeof *out);
  bs_torture_plan_text(t, c, plan, sizeof plan);
  put(&w, "bsrun");
  if (c->subject->kind == BS_TORTURE_COMM) {
    put(&w, "torture");
    put_given(t, &w);
    put_pair(&w, "comm", c->subject->name);
    put(&w, "-P");
    put(&w, "%u", c->world_size);
    put(&w, "--timeout");
    put(&w, "%g", t->deadline);
    if (c->subject->launch != BS_TORTURE_THREADS)
      put(&w, "--launch=%s", bs_torture_launch_names[c->subject->launch]);
    put(&w, "--plan=%s", plan);
  } else {
    put_run(t, c, plan, folder, &w);
  }
  return !w.failed;
}

void bs_torture_words_free(char *words_of[BS_TORTURE_WORDS]) {
  for (size_t i = 0; i < BS_TORTURE_WORDS && words_of[i] != NULL; i++) free(words_of[i]);
}

char *bs_torture_command(const bs_torture *t, const bs_torture_case *c) {
  char *w[BS_TORTURE_WORDS];
  bs_text text = {0};
  const int ok = bs_torture_words(t, c, ".", w);
  for (size_t i = 0; i < BS_TORTURE_WORDS && w[i] != NULL; i++) {
    const int quote = w[i][strcspn(w[i], " ;*'\"$&|<>()")] != '\0' || w[i][0] == '\0';
    bs_text_printf(&text, "%s%s%s%s", i > 0 ? " " : "", quote ? "'" : "", w[i], quote ? "'" : "");
  }
  bs_torture_words_free(w);
  if (!ok || text.failed) {
    bs_text_free(&text);
    return NULL;
  }
  return text.data;
}
