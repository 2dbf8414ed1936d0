/* SPDX-License-Identifier: MIT
 * host.c - reports of a run to its host; and the end of the run. */
#include "lab/peers/peers.h"
#include "lab/run/run.h"
#include "lab/tune/tune.h"

void lab_run_note(const lab_run *run, const char *text) {
  if (run->host->note != NULL) run->host->note(run->host->user, text);
}

void lab_run_detail(const lab_run *run, const char *text) {
  if (run->host->detail != NULL) run->host->detail(run->host->user, text);
}

void lab_run_warn(const lab_run *run, const char *text) {
  if (run->host->warn != NULL) run->host->warn(run->host->user, text);
}

void lab_run_tell_notes(lab_run *run) {
  for (; run->told < run->notes.count; run->told++) lab_run_note(run, run->notes.items[run->told]);
}

void lab_run_interrupted(int run_fd, int signal_number) {
  bs_store_mark_interrupted(run_fd, signal_number);
}

void lab_run_close(lab_run *run) {
  bs_peers_close(run->peers);
  bs_tuner_close(run->tuner);
  bs_grades_close(&run->grades);
  bs_notes_free(&run->notes);
  run->peers = NULL;
  run->tuner = NULL;
  run->told = 0;
}
