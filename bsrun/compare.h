/* SPDX-License-Identifier: MIT
 * compare.h - the ladder of `bsrun compare` as `--method auto` uses it: chosen once a point, before its
 * phases. */
#ifndef BSRUN_COMPARE_H
#define BSRUN_COMPARE_H
#include "bsrun/bsrun.h"
#include "lab/ladder/ladder.h"

typedef struct auto_choice {
  char name[BS_RUNG_NAME];
  char settings[BS_RUNG_SETTINGS][64];
  uint32_t n_settings;
  json_t *rows; /* the ladder, for the table and the record; NULL: another process has it */
  int made;     /* 0: nothing was chosen yet */
} auto_choice;

int auto_asked(const bs_node *config); /* method.name is auto */
/* Predicts and measures what auto.* leaves open for the configured phase. With peers every process calls it:
 * rank 0 (the others' constants are not used) decides, and all have the choice, rank 0 alone its rows. */
int32_t auto_choose(bs_context *context, const bs_node *config, const char *quiet_dir,
                    const json_t *constants, struct bs_peers *peers, int quiet, auto_choice *out_choice,
                    bs_error *err);
/* Puts the choice into a composed configuration: it then repeats without choosing. */
int32_t auto_apply(const auto_choice *choice, bs_node *config, bs_error *err);
/* Before there is one: a method for any number of ranks, and two of them where nothing says how many. */
int32_t auto_stand_in(bs_node *config, bs_error *err);
void auto_free(auto_choice *choice);

/* compare_keep.c: the run folder of a comparison. The caller closes, also after an error. */
typedef struct compare_keeper compare_keeper;
int32_t compare_keeper_open(bs_context *context, const char *run_id, int quiet, compare_keeper **out_keeper,
                            bs_error *err);
/* Appends the record of a ladder that was measured; `rows` are its rows. One that was not leaves nothing. */
int32_t compare_keep(compare_keeper *keeper, const bs_ladder *ladder, bs_node *config, json_t *rows,
                     bs_error *err);
/* Writes DONE, with status failed when rc is an error. The folder's path is the caller's to free, NULL: none.
 */
int32_t compare_keeper_close(compare_keeper *keeper, int32_t rc, char **out_path, bs_error *err);

/* Rows of ladders in a format. only_measured: a table leaves the others out and counts them. */
int32_t ladder_print(int format, const json_t *rows, int only_measured, bs_error *err);
#endif
