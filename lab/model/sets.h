/* SPDX-License-Identifier: MIT
 * sets.h - sets of inputs in a folder, with which a model is calibrated: NAME.npy of each input, in the
 * folder itself, or in folders inside of it, each of which is a set. */
#ifndef BS_LAB_MODEL_SETS_H
#define BS_LAB_MODEL_SETS_H
#include "lab/model/model.h"

enum { BS_SETS_MOST = 4096 };

typedef struct bs_set {
  char **words; /* "NAME=PATH", of each input */
  size_t n;
} bs_set;
typedef struct bs_sets {
  bs_set *rows; /* in the order of the folders' names */
  size_t n;
} bs_sets;

/* The sets of a folder for the inputs of a model. The caller frees in every case. BS_INPUT,
 * BS-QUANT-CALIBRATE: it cannot be read, has more than BS_SETS_MOST folders, a set lacks an input, or there
 * is no set. */
int32_t bs_sets_read(const char *folder, const bs_graph *graph, bs_sets *out, bs_error *err);
void bs_sets_free(bs_sets *sets);
#endif
