/* SPDX-License-Identifier: MIT
 * tuned.c - see tuned.h. */
#include "lab/model/tuned.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "lab/cores.h"
#include "lab/error.h"
#include "lab/store/env.h"

#define ARROW " -> "
/* An implementation that serves deterministic requests also serves others. Kernels are tuned for both, models
 * are not. */
#define DEMAND " deterministic"

static void note(const bs_model_request *r, const char *text) {
  if (r->note != NULL) r->note(r->note_user, text);
}

/* Is the word a choice for this key? */
static int is_of(const char *word, const char *key) {
  const size_t length = strlen(key);
  return strncmp(word, key, length) == 0 && strncmp(word + length, ARROW, sizeof ARROW - 1) == 0;
}

static int has_choice(const bs_model_tuned *t, const char *key) {
  for (size_t i = 0; i < t->n_own + t->n; i++)
    if (is_of(t->words[i], key)) return 1;
  return 0;
}

/* ---- the choices that may be meant ---------------------------------------------------------- */

/* "matmul@cpu ... threads=2 P=1": of the backend and so many threads. */
static int is_meant(const bs_model_request *r, const char *key) {
  const char *backend = r->backend != NULL ? r->backend : "cpu", *at = strchr(key, '@');
  char end[48];
  const size_t length = strlen(backend), size = strlen(key);
  snprintf(end, sizeof end, " threads=%u P=1", r->threads != 0 ? r->threads : bs_machine_cores());
  return at != NULL && strncmp(at + 1, backend, length) == 0 && at[1 + length] == ' ' && size > strlen(end) &&
         strcmp(key + size - strlen(end), end) == 0;
}

/* Is the plugin of the choice another file than it was? One that is not open yet is not known. */
static int is_rebuilt(const bs_model_tuned *t, const json_t *entry) {
  const char *choice = bs_tune_text(entry, "choice");
  char name[160];
  snprintf(name, sizeof name, "%.*s", (int)strcspn(choice, "{"), choice);
  json_t *now = bs_tune_candidate(t->plugins, name, "");
  const json_t *then = bs_tune_row(json_object_get(entry, "candidates"), name);
  const char *plugin = bs_tune_text(now, "plugin");
  const int other = plugin[0] != '\0' && strcmp(plugin, bs_tune_text(then, "plugin")) != 0;
  json_decref(now);
  return other;
}

static int32_t add(bs_model_tuned *t, const char *key, size_t length, const char *rest, const char *choice,
                   bs_error *err) {
  bs_text word = {0};
  bs_text_printf(&word, "%.*s%s", (int)length, key, rest);
  if (!word.failed && has_choice(t, word.data)) {
    bs_text_free(&word);
    return BS_OK;
  }
  bs_text_printf(&word, ARROW "%s", choice);
  if (word.failed) return bs_no_memory(err, "a choice");
  t->words[t->n_own + t->n++] = word.data;
  return BS_OK;
}

/* The newest line of a key counts; those of a search of everything before those of a part, a key itself
 * before the one that demands more. */
static int32_t add_entries(bs_model_tuned *t, const bs_model_request *r, int restricted, int demand,
                           bs_error *err) {
  int32_t rc = BS_OK;
  for (size_t i = json_array_size(t->cache.lines.entries); rc == BS_OK && i-- > 0;) {
    const json_t *entry = json_array_get(t->cache.lines.entries, i);
    const char *key = bs_tune_text(entry, "key"), *more = strstr(key, DEMAND);
    if (!is_meant(r, key) || is_rebuilt(t, entry) || (demand && more == NULL) ||
        (json_object_get(entry, "restriction") != NULL) != restricted)
      continue;
    const size_t length = demand ? (size_t)(more - key) : strlen(key);
    rc = add(t, key, length, demand ? more + sizeof DEMAND - 1 : "", bs_tune_text(entry, "choice"), err);
  }
  return rc;
}

static int32_t read_file(bs_model_tuned *t, const bs_model_request *r, bs_error *err) {
  bs_error why = BS_ERROR_INIT;
  char text[600];
  int32_t rc = bs_tune_cache_open(r->tuning, &t->cache, &why);
  if (rc == BS_NO_MEMORY) return bs_no_memory(err, "the tuning file");
  if (rc != BS_OK) {
    snprintf(text, sizeof text, "[%s] %s: its choices are not taken", why.id, why.message);
    note(r, text);
  }
  if (bs_tune_cache_broken(&t->cache, text, sizeof text)) note(r, text);
  return BS_OK;
}

int32_t bs_model_tuned_open(bs_context *context, const bs_model_request *r, bs_model_tuned *out,
                            bs_error *err) {
  const bs_backend *backend = NULL;
  void *state = NULL;
  *out = (bs_model_tuned){.n_own = r->choices.n};
  int32_t rc = read_file(out, r, err);
  out->words = calloc(r->choices.n + 2 * json_array_size(out->cache.lines.entries) + 1, sizeof *out->words);
  if (rc == BS_OK && out->words == NULL) rc = bs_no_memory(err, "choices");
  for (size_t i = 0; rc == BS_OK && i < r->choices.n; i++) out->words[i] = r->choices.words[i];
  if (rc != BS_OK || json_array_size(out->cache.lines.entries) == 0) return rc;
  /* Opens the backend's plugin; the session reports its absence. */
  if (bs_find_backend(context, r->backend != NULL ? r->backend : "cpu", &backend, &state, NULL) != BS_OK)
    return BS_OK;
  rc = bs_env_plugins(context, &out->plugins, err);
  for (int demand = 0; rc == BS_OK && demand < 2; demand++)
    for (int restricted = 0; rc == BS_OK && restricted < 2; restricted++)
      rc = add_entries(out, r, restricted, demand, err);
  return rc;
}

/* ---- which of them hold --------------------------------------------------------------------- */

/* {key, candidates} of a node in a session's report, for one of two keys; "ref" as a substitute for another
 * backend is not a candidate. */
static json_t *asked_of(const bs_model_tuned *t, const json_t *node, const char *key, int is_ref) {
  json_t *candidates = json_array();
  const json_t *c;
  size_t i;
  json_array_foreach(json_object_get(node, "candidates"), i, c) {
    const char *name = bs_tune_text(c, "name");
    if (!is_ref && strncmp(name, "ref:", 4) == 0) continue;
    json_array_append_new(candidates, bs_tune_candidate(t->plugins, name, bs_tune_text(c, "how")));
  }
  return json_pack("{s:s,s:o}", "key", key, "candidates", candidates);
}

static int finds(const bs_model_tuned *t, const json_t *node, const char *key, int is_ref,
                 const char *choice) {
  json_t *asked = asked_of(t, node, key, is_ref);
  const json_t *entry = asked != NULL ? bs_tune_cache_find(&t->cache, asked, NULL) : NULL;
  const int same = entry != NULL && strcmp(bs_tune_text(entry, "choice"), choice) == 0;
  json_decref(asked);
  return same;
}

/* Does the choice of a word hold for the node that has its key? */
static int holds(const bs_model_tuned *t, const json_t *node, const char *key, int is_ref,
                 const char *choice) {
  const char *end = strstr(key, " threads=");
  bs_text more = {0};
  if (finds(t, node, key, is_ref, choice)) return 1;
  bs_text_printf(&more, "%.*s" DEMAND "%s", (int)(end - key), key, end);
  const int held = !more.failed && finds(t, node, more.data, is_ref, choice);
  bs_text_free(&more);
  return held;
}

static void take_out(bs_model_tuned *t, size_t i) {
  free((char *)(uintptr_t)t->words[i]);
  t->n--;
  memmove(&t->words[i], &t->words[i + 1], (t->n_own + t->n - i) * sizeof *t->words);
}

int32_t bs_model_tuned_check(bs_model_tuned *t, const bs_model_request *r, bs_context *context,
                             bs_model *model, size_t *out_taken, bs_error *err) {
  const int is_ref = r->backend != NULL && strcmp(r->backend, "ref") == 0;
  char *text = NULL;
  size_t i;
  const json_t *node;
  *out_taken = 0;
  json_decref(t->plugins);
  t->plugins = NULL;
  int32_t rc = bs_env_plugins(context, &t->plugins, err); /* the session may have opened others */
  if (rc == BS_OK) rc = bs_model_text(model, BS_REPORT_EXPLAIN, 1, &text, err);
  json_t *report = rc == BS_OK ? json_loads(text, 0, NULL) : NULL, *used = json_object();
  json_array_foreach(json_object_get(report, "nodes"), i, node) {
    const char *key = bs_tune_text(node, "key");
    for (size_t k = t->n_own; key[0] != '\0' && k < t->n_own + t->n; k++) {
      if (!is_of(t->words[k], key)) continue;
      const char *choice = t->words[k] + strlen(key) + sizeof ARROW - 1;
      if (holds(t, node, key, is_ref, choice)) {
        json_object_set_new(used, key, bs_env_string(choice));
      } else {
        take_out(t, k);
        (*out_taken)++;
      }
      break;
    }
  }
  json_decref(report);
  free(text);
  json_decref(model->tuned);
  model->tuned = used;
  return rc;
}

void bs_model_tuned_drop(bs_model_tuned *t) {
  while (t->n > 0) take_out(t, t->n_own + t->n - 1);
}

void bs_model_tuned_close(bs_model_tuned *t) {
  if (t->words != NULL) bs_model_tuned_drop(t);
  free(t->words);
  json_decref(t->plugins);
  bs_tune_cache_close(&t->cache);
}
