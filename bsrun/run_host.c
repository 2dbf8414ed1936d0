/* SPDX-License-Identifier: MIT
 * run_host.c - see run_host.h. */
#include "bsrun/run_host.h"

#include <stdio.h>

#include "bsrun/board.h"
#include "bsrun/died.h"
#include "bsrun/launch.h"
#include "bsrun/launch_mpi.h"
#include "bsrun/run.h"
#include "core/base/error.h"
#include "lab/report/rows.h"

static void on_note(void *user, const char *text) {
  run_host *h = user;
  const size_t before = h->told.count;
  bsrun_progress_end(&h->progress);
  bs_note_add(&h->told, "%s", text);
  bsrun_note(h->quiet || h->told.count == before, text);
}

static void on_detail(void *user, const char *text) {
  run_host *h = user;
  bsrun_progress_end(&h->progress);
  bsrun_detail(h->verbose, text);
}

static void on_warn(void *user, const char *text) {
  run_host *h = user;
  bsrun_progress_end(&h->progress);
  bsrun_warn(text);
}

static void on_gate(void *user, const bs_gate *g) {
  run_host *h = user;
  bsrun_progress_end(&h->progress);
  if (h->verbose)
    bs_print(stderr, "bsrun: gate %-10s %-7s %.3g, limit %.3g; %s\n", g->name, bs_gate_shown(g->state),
             g->value, g->limit, g->text);
}

static void on_progress(void *user, const char *what, uint64_t done, uint64_t total) {
  run_host *h = user;
  h->show(&h->progress, what, done, total);
}

static void on_doing(void *user, const char *step, const char *what) {
  run_host *h = user;
  bsrun_progress_end(&h->progress);
  h->progress.of = step;
  bsrun_died_watch(what);
}

static void on_opened(void *user, int run_fd) {
  (void)user;
  run_signals_watch(run_fd);
  bsrun_log_begin(run_fd);
}

static void on_closed(void *user) {
  run_host *h = user;
  bsrun_progress_end(&h->progress);
  run_signals_watch(-1);
  bsrun_log_end();
}

static int32_t on_row(void *user, json_t *record, json_t *folder, bs_error *err) {
  run_host *h = user;
  const char *path = json_string_value(folder);
  const int32_t rc = bs_rows_add(h->rows, record, path != NULL ? path : "", err);
  if (rc != BS_OK) return rc;
  if (path != NULL && json_array_append(h->folders, folder) != 0)
    return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  if (json_array_append(h->records, record) == 0) return BS_OK;
  return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
}

static void on_ladder(void *user, json_t *rows) {
  run_host *h = user;
  json_array_extend(h->ladders, rows);
}

static const json_t *on_constants(void *user) {
  run_host *h = user;
  if (!h->cache_read) h->constants = bsrun_constants(h->cache, h->quiet);
  h->cache_read = 1;
  return h->constants;
}

static void on_stage(void *user, uint32_t stage) {
  run_host *h = user;
  if (stage == LAB_RUN_WAITS) bsrun_mpi_stage(BSRUN_WAITS);
  if (stage == LAB_RUN_JOINED) bsrun_mpi_stage(BSRUN_JOINED);
  if (stage != LAB_RUN_FOLLOWS) return;
  bsrun_follow();
  h->quiet = 1;
  h->table.progress = NULL;
}

static void on_failed(void *user, const bs_error *err) {
  (void)user;
  bsrun_rank_error(err);
}

void run_host_open(run_host *h) {
  h->show = bsrun_progress_to(h->quiet);
  h->table = (lab_run_host){.user = h,
                            .note = on_note,
                            .detail = on_detail,
                            .warn = on_warn,
                            .gate = on_gate,
                            .progress = h->show != NULL ? on_progress : NULL,
                            .doing = on_doing,
                            .opened = on_opened,
                            .closed = on_closed,
                            .row = on_row,
                            .ladder = on_ladder,
                            .constants = on_constants,
                            .stage = on_stage,
                            .failed = on_failed};
  h->rows = json_array();
  h->records = json_array();
  h->folders = json_array();
  h->ladders = json_array();
}

void run_host_close(run_host *h) {
  json_decref(h->rows);
  json_decref(h->records);
  json_decref(h->folders);
  json_decref(h->ladders);
  json_decref(h->constants);
  bs_notes_free(&h->told);
}
