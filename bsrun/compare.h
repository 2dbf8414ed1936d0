/* SPDX-License-Identifier: MIT
 * compare.h - the ladder of `bsrun compare` as `--method auto` uses it: chosen once a point, before its
 * phases. */
#ifndef BSRUN_COMPARE_H
#define BSRUN_COMPARE_H
#include "bsrun/bsrun.h"
#include "lab/ladder/ladder.h"

typedef struct auto_choice {
  char name[96];
  char settings[BS_RUNG_SETTINGS][64];
  uint32_t n_settings;
  json_t *rows; /* the ladder, for the table and the record; NULL: nothing was chosen */
} auto_choice;

int auto_asked(const bs_node *config); /* method.name is auto */
/* Predicts and measures what auto.* leaves open for the configured phase. */
int32_t auto_choose(bs_context *context, const bs_node *config, const char *quiet_dir,
                    const json_t *constants, int quiet, auto_choice *out_choice, bs_error *err);
/* Puts the choice into a composed configuration: it then repeats without choosing. */
int32_t auto_apply(const auto_choice *choice, bs_node *config, bs_error *err);
void auto_free(auto_choice *choice);

extern const bs_field ladder_fields[];
extern const size_t ladder_n_fields;
#endif
