/* SPDX-License-Identifier: MIT
 * tuned.c - see tuned.h. */
#include "lab/sweep/tuned.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "lab/error.h"
#include "lab/store/lines.h"
#include "lab/sweep/points.h"

static const bs_lines_words words = {"BS-SWEEP-IO", "BS-SWEEP-LOCK",
                                     "remove the sweep's tuned.jsonl to tune again", 1};

typedef struct tuning {
  bs_sweep *s;
  const bs_sweep_options *o;
  bs_lines lines;
} tuning;

/* Does a point of this layer need the key now? After a plugin was rebuilt none does. */
static int is_asked_for(const bs_sweep *sweep, const json_t *layer, const json_t *key) {
  size_t i;
  const json_t *point;
  json_array_foreach(sweep->points, i,
                     point) if (json_equal(json_object_get(point, "layer"), layer) &&
                                json_equal(json_object_get(point, "request_key"), key)) return 1;
  return 0;
}

/* A line {layer, build, request_key, choices: [text]}; valid with the current plugins. */
static enum bs_line judge(void *user, const json_t *entry) {
  const json_t *choices = json_object_get(entry, "choices"), *build = json_object_get(entry, "build"),
               *layer = json_object_get(entry, "layer"), *key = json_object_get(entry, "request_key");
  if (!json_is_string(layer) || !json_is_array(choices) || !json_is_string(build)) return BS_LINE_BROKEN;
  for (size_t i = 0; i < json_array_size(choices); i++)
    if (!json_is_string(json_array_get(choices, i))) return BS_LINE_BROKEN;
  const int same = strcmp(json_string_value(build), bs_build_id()) == 0 && json_is_string(key);
  return same && is_asked_for(user, layer, key) ? BS_LINE_HOLDS : BS_LINE_FOREIGN;
}

static int32_t open_lines(tuning *t, bs_error *err) {
  size_t i;
  const json_t *entry;
  bs_text path = {0};
  bs_text_printf(&path, "%s/tuned.jsonl", t->s->folder.path);
  int32_t rc = path.failed ? bs_no_memory(err, "a sweep")
                           : bs_lines_open(&words, path.data, judge, t->s, &t->lines, err);
  bs_text_free(&path);
  if (rc != BS_OK) return rc;
  json_array_foreach(t->lines.entries, i, entry) json_object_set(
      t->s->choices, json_string_value(json_object_get(entry, "layer")), json_object_get(entry, "choices"));
  return BS_OK;
}

/* A tuning prints one line {"choices": [...]}. */
static int32_t on_ended(void *user, const bs_task *task, bs_error *err) {
  tuning *t = user;
  const json_t *point = json_array_get(t->s->points, (size_t)task->id);
  json_t *said =
      task->code == 0 && task->out != NULL ? json_loads(task->out, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
  json_t *entry = json_pack("{s:O, s:s, s:O, s:O?}", "layer", json_object_get(point, "layer"), "build",
                            bs_build_id(), "request_key", json_object_get(point, "request_key"), "choices",
                            json_object_get(said, "choices"));
  int32_t rc = BS_OK;
  if (entry != NULL && judge(t->s, entry) == BS_LINE_HOLDS) {
    json_object_set(t->s->choices, json_string_value(json_object_get(entry, "layer")),
                    json_object_get(entry, "choices"));
    rc = bs_lines_append(&t->lines, entry, err);
  }
  json_decref(entry);
  json_decref(said);
  return rc;
}

static int by_layer(const void *a, const void *b) {
  const bs_task *x = a, *y = b;
  return strcmp(x->said, y->said);
}

/* One task a layer; `said` holds the layer's sum while they are sorted. */
static int32_t make_tasks(const tuning *t, bs_task *tasks, size_t *out_n, bs_error *err) {
  size_t i;
  const json_t *point;
  json_t *seen = json_object();
  int32_t rc = seen == NULL ? bs_no_memory(err, "a sweep") : BS_OK;
  json_array_foreach(t->s->points, i, point) {
    const char *layer = json_string_value(json_object_get(point, "layer"));
    if (rc != BS_OK || layer == NULL || t->s->outcomes[i].state != BS_POINT_LEFT) continue;
    if (json_object_get(t->s->choices, layer) != NULL || json_object_get(seen, layer) != NULL) continue;
    json_object_set_new(seen, layer, json_true());
    bs_task *task = &tasks[(*out_n)++];
    task->id = (int64_t)i;
    task->alone = 1;
    task->input = bs_point_input(t->s->root, t->s->id, t->s->header, point, NULL, 1);
    task->said = strdup(layer);
    if (task->input == NULL || task->said == NULL) rc = bs_no_memory(err, "a sweep");
  }
  json_decref(seen);
  if (rc != BS_OK) return rc;
  qsort(tasks, *out_n, sizeof *tasks, by_layer);
  for (size_t k = 0; k < *out_n; k++) {
    free(tasks[k].said);
    tasks[k].said = NULL;
  }
  return BS_OK;
}

int32_t bs_tuned_make(bs_sweep *s, const bs_sweep_options *o, int *out_signal, bs_error *err) {
  tuning t = {.s = s, .o = o};
  const size_t all = json_array_size(s->points);
  size_t n = 0;
  if (s->choices == NULL) s->choices = json_object();
  bs_task *tasks = calloc(all > 0 ? all : 1, sizeof *tasks);
  int32_t rc = tasks == NULL || s->choices == NULL ? bs_no_memory(err, "a sweep") : open_lines(&t, err);
  if (rc == BS_OK) rc = make_tasks(&t, tasks, &n, err);
  const bs_tasks_options run = {.program = o->program,
                                .words = o->words,
                                .jobs = 1,
                                .deadline_s = o->deadline_s,
                                .budget_s = o->budget_s,
                                .ended = on_ended,
                                .user = &t};
  if (rc == BS_OK && n > 0) rc = bs_tasks_run(tasks, n, &run, out_signal, err);
  bs_tasks_free(tasks, n);
  bs_lines_close(&t.lines);
  return rc;
}
