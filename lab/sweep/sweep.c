/* SPDX-License-Identifier: MIT
 * sweep.c - see sweep.h. */
#include "lab/sweep/sweep.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/text.h"
#include "lab/error.h"
#include "lab/process/process.h"
#include "lab/sweep/points.h"
#include "lab/sweep/tuned.h"

static int32_t make_outcomes(bs_sweep *s, bs_error *err) {
  const size_t n = json_array_size(s->points);
  s->outcomes = calloc(n > 0 ? n : 1, sizeof *s->outcomes);
  if (s->outcomes == NULL) return bs_no_memory(err, "a sweep");
  for (size_t i = 0; i < n; i++) {
    const json_t *point = json_array_get(s->points, i);
    if (!json_is_null(json_object_get(point, "duplicate_of")))
      s->outcomes[i].state = BS_POINT_TWIN;
    else if (!json_is_null(json_object_get(point, "refused")))
      s->outcomes[i].state = BS_POINT_REFUSED;
  }
  return BS_OK;
}

static int32_t know_root(bs_sweep *s, const char *root, bs_error *err) {
  s->root = realpath(root, NULL);
  return s->root != NULL ? BS_OK
                         : bs_error_errno(err, BS_IO, "BS-SWEEP-IO", errno, "cannot read %.200s", root);
}

int32_t bs_sweep_begin(const char *root, const char *id, json_t *header, json_t *points, bs_sweep *out,
                       bs_error *err) {
  *out =
      (bs_sweep){.folder = {.fd = -1, .lock_fd = -1}, .header = header, .points = points, .id = strdup(id)};
  int32_t rc = out->id == NULL ? bs_no_memory(err, "a sweep") : make_outcomes(out, err);
  if (rc == BS_OK) rc = bs_sweep_folder_open(root, id, 0, &out->folder, err);
  if (rc == BS_OK) rc = know_root(out, root, err);
  if (rc == BS_OK) rc = bs_plan_write(&out->folder, header, points, err);
  if (rc != BS_OK) bs_sweep_folder_drop(&out->folder);
  return rc;
}

/* A point that was wrong does not run again; its earlier result is reported. */
static void set_before(bs_point_outcome *o, int32_t said) {
  if (said == BS_POINT_OPEN || o->state == BS_POINT_TWIN) return;
  o->before = 1;
  o->state = said == BS_OK ? BS_POINT_BEFORE : BS_POINT_FAILED;
  o->code = (int)bs_status_exit_code(said);
  if (said == BS_OK) return;
  o->said = strdup(said == BS_NUMERIC ? "its numbers were wrong when it ran before"
                                      : "no gate could judge its numbers when it ran before");
}

static int32_t find_done(bs_sweep *s, int any_build, bs_error *err) {
  const size_t n = json_array_size(s->points);
  int32_t *said = calloc(n > 0 ? n : 1, sizeof *said);
  if (said == NULL) return bs_no_memory(err, "a sweep");
  const int32_t rc = bs_points_done(s->folder.path, s->points, any_build, said, &s->other_build, err);
  for (size_t i = 0; rc == BS_OK && i < n; i++) set_before(&s->outcomes[i], said[i]);
  free(said);
  return rc;
}

int32_t bs_sweep_resume(const char *root, const char *id, bs_context *context, int any_build, bs_sweep *out,
                        bs_error *err) {
  struct stat st;
  *out = (bs_sweep){.folder = {.fd = -1, .lock_fd = -1}, .id = strdup(id)};
  int32_t rc = out->id == NULL ? bs_no_memory(err, "a sweep") : BS_OK;
  if (rc == BS_OK) rc = bs_sweep_folder_open(root, id, 1, &out->folder, err);
  if (rc == BS_OK) rc = know_root(out, root, err);
  if (rc == BS_OK) rc = bs_plan_read(&out->folder, &out->header, &out->points, err);
  if (rc == BS_OK) rc = make_outcomes(out, err);
  for (size_t i = 0; rc == BS_OK && i < json_array_size(out->points); i++) {
    int changed = 0;
    rc = bs_point_rekey(context, json_array_get(out->points, i), &changed, err);
  }
  if (rc == BS_OK) rc = find_done(out, any_build, err);
  /* Cleans up after points that were running when their supervisor was killed. */
  if (rc == BS_OK && fstatat(out->folder.fd, "plan.jsonl", &st, 0) == 0)
    bs_leftover_segments((double)st.st_mtim.tv_sec);
  return rc;
}

int32_t bs_sweep_ask_again(bs_sweep *s, bs_context *context, const char *quiet_dir, const json_t *constants,
                           bs_error *err) {
  size_t i;
  json_t *point;
  json_array_foreach(s->points, i, point) if (s->outcomes[i].before)
      json_object_set_new(point, "refused", json_null());
  const int32_t rc = bs_points_check_refused(context, quiet_dir, constants, s->points, err);
  for (i = 0; rc == BS_OK && i < json_array_size(s->points); i++) {
    const json_t *now = json_array_get(s->points, i);
    if (s->outcomes[i].state != BS_POINT_REFUSED || json_is_string(json_object_get(now, "refused"))) continue;
    s->outcomes[i].state = json_is_null(json_object_get(now, "duplicate_of")) ? BS_POINT_LEFT : BS_POINT_TWIN;
  }
  return rc;
}

void bs_sweep_close(bs_sweep *s) {
  for (size_t i = 0; s->outcomes != NULL && i < json_array_size(s->points); i++) free(s->outcomes[i].said);
  free(s->outcomes);
  free(s->id);
  free(s->root);
  json_decref(s->header);
  json_decref(s->points);
  json_decref(s->choices);
  bs_sweep_folder_close(&s->folder);
}

/* ---- running --------------------------------------------------------------------------------- */

typedef struct running {
  bs_sweep *s;
  const bs_sweep_options *o;
  size_t done, ran;
  double seconds; /* of those that ran */
} running;

static void tell(const running *r, int64_t i, const bs_point_outcome *outcome) {
  const size_t left = json_array_size(r->s->points) - r->done;
  const double left_s = r->ran > 0 ? r->seconds / (double)r->ran * (double)left : -1.0;
  if (r->o->tell != NULL)
    r->o->tell(r->o->user, i < 0 ? NULL : json_array_get(r->s->points, (size_t)i), outcome, r->done, left_s);
}

static void on_began(void *user, const bs_task *task) {
  tell(user, task->id, NULL);
}

/* Does the failure of one point mean that no other can be stored? The folder is also tested: a point may have
 * failed for lack of disk space without reporting it. Too little memory concerns only that point. */
static int32_t room_for_more(const running *r, int64_t i, const bs_point_outcome *o, bs_error *err) {
  if (o->code != bs_status_exit_code(BS_IO)) return BS_OK;
  if (o->said != NULL && strstr(o->said, "[BS-STO-IO]") != NULL)
    return bs_error_set(err, BS_IO, "BS-SWEEP-IO", "point %lld could not be stored: %.300s", (long long)i,
                        o->said);
  return bs_sweep_folder_probe(&r->s->folder, err);
}

static int32_t on_ended(void *user, const bs_task *task, bs_error *err) {
  running *r = user;
  bs_point_outcome *o = &r->s->outcomes[task->id];
  o->seconds = task->seconds;
  o->code = task->state == BS_TASK_LATE ? bs_status_exit_code(BS_DEADLINE) : task->code;
  if (task->state == BS_TASK_LATE) {
    bs_text why = {0};
    bs_text_printf(&why, "[BS-SWEEP-DEADLINE] it took longer than its deadline of %g s", r->o->deadline_s);
    o->said = why.data;
  } else if (task->code != 0 && task->said != NULL) {
    o->said = strdup(task->said);
  }
  o->state = o->code == 0 ? BS_POINT_DONE : BS_POINT_FAILED;
  r->done++;
  r->ran++;
  r->seconds += task->seconds;
  tell(r, task->id, o);
  if (o->state == BS_POINT_DONE) return BS_OK;
  int32_t rc = room_for_more(r, task->id, o, err);
  if (rc == BS_OK && r->o->fail_fast)
    rc = bs_error_set(err, BS_SOME_FAILED, "BS-SWEEP-FAILED",
                      "point %lld failed with %d, and --fail-fast is given", (long long)task->id, o->code);
  return rc;
}

static int32_t make_tasks(const bs_sweep *s, bs_task *tasks, size_t *out_n, bs_error *err) {
  size_t i;
  const json_t *point;
  json_array_foreach(s->points, i, point) {
    if (s->outcomes[i].state != BS_POINT_LEFT) continue;
    const char *layer = json_string_value(json_object_get(point, "layer"));
    bs_task *t = &tasks[(*out_n)++];
    t->id = (int64_t)i;
    t->alone = json_is_true(json_object_get(point, "alone"));
    t->input = bs_point_input(s->root, s->id, s->header, point,
                              layer != NULL ? json_object_get(s->choices, layer) : NULL, 0);
    if (t->input == NULL) return bs_no_memory(err, "a sweep");
  }
  return BS_OK;
}

int32_t bs_sweep_run(bs_sweep *s, const bs_sweep_options *o, int *out_signal, bs_error *err) {
  const size_t all = json_array_size(s->points);
  const double began = bs_process_now();
  running r = {.s = s, .o = o};
  size_t n = 0;
  *out_signal = 0;
  for (size_t i = 0; i < all; i++) r.done += s->outcomes[i].state != BS_POINT_LEFT;
  if (r.done == all) return BS_OK;
  tell(&r, -1, NULL);
  int32_t rc = bs_tuned_make(s, o, out_signal, err);
  if (rc != BS_OK || *out_signal != 0) return rc;
  bs_task *tasks = calloc(all, sizeof *tasks);
  if (tasks == NULL) return bs_no_memory(err, "a sweep");
  rc = make_tasks(s, tasks, &n, err);
  bs_tasks_options run = {.program = o->program,
                          .words = o->words,
                          .jobs = o->jobs,
                          .deadline_s = o->deadline_s,
                          .began = on_began,
                          .ended = on_ended,
                          .user = &r};
  if (o->budget_s > 0) {
    const double left = o->budget_s - (bs_process_now() - began);
    run.budget_s = left > 0.001 ? left : 0.001;
  }
  if (rc == BS_OK) rc = bs_tasks_run(tasks, n, &run, out_signal, err);
  bs_tasks_free(tasks, n);
  return rc;
}
