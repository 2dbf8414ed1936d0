/* SPDX-License-Identifier: MIT
 * auto.h - `--method auto`: the best rung of a ladder (lab/ladder) is chosen once a point, before its phases.
 */
#ifndef BS_LAB_RUN_AUTO_H
#define BS_LAB_RUN_AUTO_H
#include "lab/ladder/ladder.h"
#include "lab/run/run.h"

typedef struct lab_auto_choice {
  char name[BS_RUNG_NAME];
  char settings[BS_RUNG_SETTINGS][64];
  uint32_t n_settings;
  json_t *rows; /* the ladder, for the table and the record; NULL: another process has it */
  int made;     /* 0: no choice yet */
} lab_auto_choice;

int lab_auto_asked(const bs_node *config); /* method.name is auto */
/* Predicts and measures the candidates that auto.* leaves open for the configured phase. With peers every
 * process calls it: rank 0 decides, all get the choice, and only rank 0 gets the rows. */
int32_t lab_auto_choose(lab_run *run, const bs_node *config, lab_auto_choice *out_choice, bs_error *err);
/* Puts the choice into a composed configuration: it then repeats without choosing. */
int32_t lab_auto_apply(const lab_auto_choice *choice, bs_node *config, bs_error *err);
/* Sets a temporary method before the choice: one for any number of ranks, with two of them if no number is
 * configured. */
int32_t lab_auto_stand_in(bs_node *config, bs_error *err);
void lab_auto_free(lab_auto_choice *choice);
#endif
