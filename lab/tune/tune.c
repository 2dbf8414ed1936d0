/* SPDX-License-Identifier: MIT
 * tune.c - decides every product of an experiment, and writes the decisions to the places where the run, its
 * record and a replay read them. */
#include "lab/tune/tune.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "lab/case/ask.h"
#include "lab/config/experiment.h"
#include "lab/error.h"
#include "lab/measure/chunks.h"
#include "lab/store/env.h"
#include "lab/tune/internal.h"

#define ARROW " -> "

void bs_tuner_say(const bs_tuner *tuner, int detail, const char *fmt, ...) {
  void (*to)(void *, const char *) = detail ? tuner->options.detail : tuner->options.note;
  char line[1024];
  va_list ap;
  if (to == NULL) return;
  va_start(ap, fmt);
  vsnprintf(line, sizeof line, fmt, ap);
  va_end(ap);
  to(tuner->options.note_user, line);
}

int32_t bs_tuner_open(bs_context *context, const bs_tuner_options *options, bs_tuner **out, bs_error *err) {
  bs_error why = BS_ERROR_INIT;
  char broken[600];
  *out = NULL;
  bs_tuner *t = calloc(1, sizeof *t);
  if (t == NULL) return bs_no_memory(err, "the tuning");
  t->context = context;
  t->options = *options;
  const int32_t rc = bs_tune_cache_open(options->path, &t->cache, &why);
  if (rc == BS_NO_MEMORY) {
    bs_tuner_close(t);
    return bs_no_memory(err, "the tuning");
  }
  if (rc != BS_OK)
    bs_tuner_say(t, 0, "[%s] %s; nothing is measured and the defaults serve: %s", why.id, why.message,
                 why.hint);
  if (bs_tune_cache_broken(&t->cache, broken, sizeof broken)) bs_tuner_say(t, 0, "%s", broken);
  if (t->cache.lines.unread > 0)
    bs_tuner_say(t, 0, "of %s only the last 16 MiB are read: %llu bytes of older lines can be removed",
                 options->path, (unsigned long long)t->cache.lines.unread);
  *out = t;
  return BS_OK;
}

void bs_tuner_close(bs_tuner *tuner) {
  if (tuner == NULL) return;
  bs_tune_cache_close(&tuner->cache);
  free(tuner);
}

const json_t *bs_tuner_find(const bs_tuner *tuner, const json_t *asked) {
  return bs_tune_cache_find(&tuner->cache, asked, NULL);
}

/* Is it settled by measuring at all: are there two candidates? */
static int has_rivals(const bs_decision *d) {
  return json_array_size(json_object_get(d->asked, "candidates")) > 1;
}

char *bs_decision_pin(const bs_decision *d, const char *other) {
  bs_text t = {0};
  bs_text_printf(&t, "%s" ARROW "%s%s", bs_tune_text(d->asked, "key"), other != NULL ? other : d->choice,
                 other != NULL ? "" : d->knobs);
  if (t.failed) bs_text_free(&t);
  return t.data;
}

int bs_decision_waits(const bs_decision *d, uint32_t arm) {
  return d->arm == arm && strcmp(d->origin, "default") == 0 && has_rivals(d);
}

/* ---- known choices -------------------------------------------------------------------------- */

static const bs_node *first_pin(const bs_experiment *e) {
  const bs_node *list = bs_config_find(e->config, "tune.choices");
  return list != NULL && list->kind == BS_NODE_LIST ? list->first : NULL;
}

/* Every text of tune.choices has the form. */
static int32_t check_pins(const bs_experiment *e, bs_error *err) {
  for (const bs_node *item = first_pin(e); item != NULL; item = item->next) {
    const char *line = item->kind == BS_NODE_SCALAR ? item->text : "";
    const char *arrow = strstr(line, ARROW);
    if (arrow != NULL && arrow != line && arrow[strlen(ARROW)] != '\0') continue;
    bs_error_set(err, BS_CONFIG, "BS-CFG-CHOICE", "tune.choices: '%.200s' is not 'KEY -> PLUGIN:NAME'", line);
    bs_error_hint(err, "bsrun explain matmul shows keys and names");
    return BS_CONFIG;
  }
  return BS_OK;
}

/* The choice that a text of tune.choices pins for a key; NULL: the text is for another key. */
static const char *pin_for(const bs_node *item, const char *key) {
  const size_t length = strlen(key);
  return item->kind == BS_NODE_SCALAR && strncmp(item->text, key, length) == 0 &&
                 strncmp(item->text + length, ARROW, strlen(ARROW)) == 0
             ? item->text + length + strlen(ARROW)
             : NULL;
}

const char *bs_tune_pinned(const bs_experiment *e, const char *key) {
  const char *pin = NULL;
  for (const bs_node *item = first_pin(e); item != NULL && pin == NULL; item = item->next)
    pin = pin_for(item, key);
  return pin;
}

/* The candidate that a pin names: with its plugin, or only by its name; knobs are ignored. NULL: none. */
static const char *pinned_candidate(const json_t *asked, const char *pin) {
  size_t i;
  const json_t *c;
  json_array_foreach(json_object_get(asked, "candidates"), i, c) {
    const char *name = bs_tune_text(c, "name"), *colon = strchr(name, ':');
    if (bs_tune_names(pin, name) || (colon != NULL && bs_tune_names(pin, colon + 1))) return name;
  }
  return NULL;
}

static void decide(bs_tuner *t, const bs_experiment *e, bs_decision *d) {
  const char *pin = bs_tune_pinned(e, bs_tune_text(d->asked, "key"));
  const char *named = pin != NULL ? pinned_candidate(d->asked, pin) : NULL;
  d->choice = bs_tune_text(d->asked, "default");
  d->origin = "default";
  d->knobs = "";
  if (pin != NULL && named == NULL) {
    snprintf(d->why, sizeof d->why, "%.60s is pinned and cannot serve here", pin);
    bs_tuner_say(t, 0, "tune.choices: %s cannot serve %s here; the default %s does", pin,
                 bs_tune_text(d->asked, "key"), d->choice);
    d->origin = "default (pinned)";
  } else if (named != NULL) {
    d->choice = named;
    d->knobs = pin + strcspn(pin, "{");
    d->origin = "pinned";
  } else if ((d->entry = bs_tune_cache_find(&t->cache, d->asked, NULL)) != NULL) {
    const char *choice = bs_tune_text(d->entry, "choice");
    d->choice = pinned_candidate(d->asked, choice);
    d->knobs = choice + strcspn(choice, "{");
    d->origin = json_object_get(d->entry, "pending") != NULL ? "measured" : "cache";
  }
}

/* ---- the experiment's worlds ---------------------------------------------------------------- */

static int32_t ask(bs_tuning *w, bs_error *err) {
  size_t ends[BS_ARMS_MAX] = {0};
  for (uint32_t i = 0; i < w->n_arms; i++) {
    const int32_t rc = bs_tune_ask(&w->arms[i].c, w->asked, err);
    if (rc != BS_OK) return rc;
    ends[i] = json_array_size(w->asked);
  }
  w->n = json_array_size(w->asked);
  w->decisions = calloc(w->n > 0 ? w->n : 1, sizeof *w->decisions);
  if (w->decisions == NULL) return bs_no_memory(err, "the tuning");
  for (size_t i = 0; i < w->n; i++) {
    bs_decision *d = &w->decisions[i];
    d->asked = json_array_get(w->asked, i);
    while (d->arm + 1 < w->n_arms && i >= ends[d->arm]) d->arm++;
    decide(w->tuner, w->e, d);
    w->waiting[d->arm] += bs_decision_waits(d, d->arm) != 0;
  }
  return BS_OK;
}

static void give_reason(bs_tuning *w, uint32_t arm, const char *why) {
  for (size_t i = 0; i < w->n; i++) {
    bs_decision *d = &w->decisions[i];
    if (d->arm == arm && strcmp(d->origin, "default") == 0 && d->why[0] == '\0')
      snprintf(d->why, sizeof d->why, "%s", has_rivals(d) ? why : "the only one that serves");
  }
}

/* The reason to measure nothing of this world; NULL: measure. */
static const char *reason_not_to(const bs_tuning *w, uint32_t arm) {
  const bs_case *c = &w->arms[arm].c;
  if (w->tuner->cache.lines.path == NULL) return "not measured: there is no tuning file";
  if (!w->e->tune_measure) return "not measured: tune.measure is off";
  if (w->e->phase != BS_PHASE_FORWARD) return "not measured: nothing is timed";
  if (strchr(w->e->backend, ':') != NULL || strchr(w->e->comm, ':') != NULL)
    return "not measured: backend or communicator is wrapped";
  if ((double)c->spec.B * (double)c->spec.N * (double)c->spec.K / c->world_size < (double)w->e->tune_min_work)
    return "not measured: the work is below tune.min_work";
  return NULL;
}

static int32_t measure(bs_tuning *w, bs_error *err) {
  const char *against[BS_ARMS_MAX] = {NULL};
  uint32_t todo = 0;
  int32_t rc = BS_OK;
  for (uint32_t i = 0; i < w->n_arms; i++) {
    against[i] = w->waiting[i] > 0 ? reason_not_to(w, i) : "";
    todo += against[i] == NULL;
  }
  for (uint32_t i = 0; rc == BS_OK && i < w->n_arms; i++) {
    char why[160] = "";
    if (against[i] == NULL) rc = bs_tune_measure(w, i, w->e->tune_seconds / todo, why, err);
    give_reason(w, i, against[i] != NULL ? against[i] : why);
  }
  return rc;
}

/* ---- results -------------------------------------------------------------------------------- */

static json_t *record_of(const bs_decision *d) {
  json_t *row = json_pack("{s:O,s:s,s:O,s:s}", "key", json_object_get(d->asked, "key"), "choice", d->choice,
                          "default", json_object_get(d->asked, "default"), "origin", d->origin);
  json_object_set(row, "candidates", json_object_get(d->entry != NULL ? d->entry : d->asked, "candidates"));
  if (d->entry != NULL) json_object_set(row, "measured_at", json_object_get(d->entry, "measured_at"));
  if (d->why[0] != '\0') json_object_set_new(row, "why", json_string(d->why));
  if (d->knobs[0] != '\0')
    json_object_set_new(row, "knobs", json_stringn(d->knobs + 1, strcspn(d->knobs, "}") - 1));
  return row;
}

/* A list in JSON is one in YAML. */
static int32_t pin(bs_experiment *e, bs_error *err) {
  json_t *list = json_array();
  for (uint32_t i = 0; i < e->n_choices; i++) json_array_append_new(list, bs_env_string(e->choices[i]));
  char *text = json_dumps(list, JSON_COMPACT);
  const int32_t rc =
      text == NULL ? bs_no_memory(err, "the tuning") : bs_config_set(e->config, "tune.choices", text, err);
  json_decref(list);
  free(text);
  return rc;
}

static int is_asked(const bs_tuning *w, const bs_node *item) {
  for (size_t i = 0; i < w->n; i++)
    if (pin_for(item, bs_tune_text(w->decisions[i].asked, "key")) != NULL) return 1;
  return 0;
}

/* Keeps pins with knobs for keys that no build requests: a plan over packed weights may request them, for
 * another pass or batch. */
static int32_t keep_unasked(bs_tuning *w, bs_error *err) {
  for (const bs_node *item = first_pin(w->e); item != NULL; item = item->next) {
    const char *knobs = item->kind == BS_NODE_SCALAR ? strrchr(item->text, '{') : NULL;
    if (knobs == NULL || is_asked(w, item)) continue;
    bs_tuner_say(w->tuner, 0,
                 "tune.choices: building the layer does not ask for %.*s; %s serves a later plan "
                 "of this key, if there is one",
                 (int)(strstr(item->text, ARROW) - item->text), item->text, knobs);
    char *text = bs_strdup(item->text);
    if (text == NULL) return bs_no_memory(err, "the tuning");
    w->e->choices[w->e->n_choices++] = text;
  }
  return BS_OK;
}

/* Products that only one implementation can serve need no pin, unless it has knobs. */
static int32_t write_choices(bs_tuning *w, bs_error *err) {
  bs_experiment *e = w->e;
  size_t pins = 0;
  for (const bs_node *item = first_pin(e); item != NULL; item = item->next) pins++;
  bs_choices_free(e->n_choices, e->choices);
  e->n_choices = 0;
  e->choices = calloc(w->n + pins + 1, sizeof *e->choices);
  e->choice_record = json_array();
  if (e->choices == NULL || e->choice_record == NULL) return bs_no_memory(err, "the tuning");
  for (size_t i = 0; i < w->n; i++) {
    const bs_decision *d = &w->decisions[i];
    if (json_array_append_new(e->choice_record, record_of(d)) != 0) return bs_no_memory(err, "the tuning");
    if (!has_rivals(d) && d->knobs[0] == '\0') continue;
    char *text = bs_decision_pin(d, NULL);
    if (text == NULL) return bs_no_memory(err, "the tuning");
    e->choices[e->n_choices++] = text;
  }
  const int32_t rc = keep_unasked(w, err);
  return rc == BS_OK && e->n_choices > 0 ? pin(e, err) : rc;
}

int32_t bs_tuner_choose(bs_tuner *tuner, bs_experiment *e, bs_error *err) {
  bs_tuning w = {.tuner = tuner, .e = e, .asked = json_array()};
  bs_error why = BS_ERROR_INIT;
  if (w.asked == NULL) return bs_no_memory(err, "the tuning");
  int32_t rc = check_pins(e, err);
  int32_t asking = rc == BS_OK ? bs_subject_open(tuner->context, e, &w.subject, &why) : BS_OK;
  if (rc == BS_OK && asking == BS_OK) {
    bs_overlap_resolve(e, &w.subject);
    w.n_arms = bs_arms_of(tuner->context, e, &w.subject, w.arms);
    asking = ask(&w, &why);
    if (asking == BS_OK) rc = measure(&w, err);
    if (asking == BS_OK && rc == BS_OK) rc = write_choices(&w, err);
    bs_subject_close(&w.subject);
  }
  if (asking != BS_OK) /* the phase fails with the same message, or its run records that nothing was asked */
    e->choice_record = json_pack("[{s:s,s:o}]", "origin", "default", "why", bs_env_string(why.message));
  free(w.decisions);
  json_decref(w.asked);
  return rc;
}

/* ---- keeping -------------------------------------------------------------------------------- */

/* The one that won gave wrong numbers: the default stays. The entry is the cache's too. */
static void reject(json_t *entry, const char *wrong) {
  const json_t *standard = json_object_get(entry, "default");
  const char *choice = bs_tune_text(entry, "choice");
  if (json_equal(json_object_get(entry, "choice"), standard)) return;
  json_t *row = (json_t *)(uintptr_t)bs_tune_row(json_object_get(entry, "candidates"), choice);
  json_object_set_new(row, "failed", bs_env_string(wrong));
  json_object_set(entry, "choice", (json_t *)(uintptr_t)standard);
}

void bs_tuner_keep(bs_tuner *tuner, int judged, const char *wrong) {
  size_t i, kept = 0;
  json_t *entry;
  bs_error err = BS_ERROR_INIT;
  int32_t rc = BS_OK;
  json_array_foreach(tuner->cache.lines.entries, i, entry) {
    const json_t *arm = json_object_get(entry, "pending");
    const int methods = json_integer_value(arm) == 0; /* the gates saw no peer */
    if (arm == NULL) continue;
    json_object_del(entry, "pending");
    if (wrong != NULL && methods) reject(entry, wrong);
    json_object_set_new(entry, "judged", json_boolean(judged && wrong == NULL && methods));
    if (rc == BS_OK) rc = bs_lines_append(&tuner->cache.lines, entry, &err);
    kept++;
  }
  if (rc != BS_OK)
    bs_tuner_say(tuner, 0, "[%s] %s; what was measured is not kept: %s", err.id, err.message, err.hint);
  else if (kept > 0 && tuner->cache.lines.path != NULL)
    bs_tuner_say(tuner, 1, "kept in %s", tuner->cache.lines.path);
}

void bs_tuner_drop(bs_tuner *tuner) {
  json_t *known = tuner->cache.lines.entries;
  const size_t n = json_array_size(known);
  for (size_t i = n; i-- > 0;)
    if (json_object_get(json_array_get(known, i), "pending") != NULL) json_array_remove(known, i);
  if (json_array_size(known) < n)
    bs_tuner_say(tuner, 0, "what was measured is not kept: the run with it did not end with a verdict");
}

/* ---- an entry in words --------------------------------------------------------------------------- */

/* The later of the two looks: that one chose. */
static void compared(const json_t *row, const char *standard, char *out, size_t size) {
  const json_t *again = json_object_get(row, "again");
  const json_t *look = again != NULL ? again : row;
  const char *word = bs_tune_text(look, "word");
  if (bs_tune_text(row, "failed")[0] != '\0')
    snprintf(out, size, "failed: %.120s", bs_tune_text(row, "failed"));
  else if (strcmp(word, "FASTER") == 0 || strcmp(word, "SLOWER") == 0)
    snprintf(out, size, "speedup %.2f against %s", json_number_value(json_object_get(look, "ratio")),
             standard);
  else if (strcmp(word, "SAME") == 0)
    snprintf(out, size, "as fast as %s", standard);
  else
    snprintf(out, size, "no clear difference to %s%s%s", standard,
             bs_tune_text(look, "disturbed")[0] != '\0' ? ": " : "", bs_tune_text(look, "disturbed"));
}

const char *bs_tune_words(const json_t *entry, const char *name, char *out, size_t size) {
  const char *standard = bs_tune_text(entry, "default");
  const int chosen = bs_tune_names(bs_tune_text(entry, "choice"), name);
  const char *knobs = chosen ? strchr(bs_tune_text(entry, "choice"), '{') : NULL;
  char what[192] = "";
  const json_t *row = bs_tune_row(json_object_get(entry, "candidates"), name);
  if (strcmp(name, standard) == 0 && knobs == NULL) {
    snprintf(out, size, chosen ? "chosen" : "the default");
    return out;
  }
  if (row != NULL) compared(row, standard, what, sizeof what);
  snprintf(out, size, "%s%s%s%s%s", chosen ? "chosen" : "", knobs != NULL ? " with " : "",
           knobs != NULL ? knobs : "", chosen && what[0] != '\0' ? ", " : "", what);
  return out;
}
