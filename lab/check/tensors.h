/* SPDX-License-Identifier: MIT
 * tensors.h - the tensors of one linear layer that another program wrote: X, W, bias, each rank's partial and
 * Y, from a folder of .npy and .safetensors files, or from one such file (docs/check.md has the names). */
#ifndef BS_LAB_CHECK_TENSORS_H
#define BS_LAB_CHECK_TENSORS_H
#include "blockshock/blockshock.h"

enum { BS_CHECK_RANKS = 256 };

/* A matrix; data NULL: the folder has no tensor of that name. Leading dimensions are merged into rows. Rows
 * or cols may be 0 in y, partial and columns: the rank owns nothing. */
typedef struct bs_check_tensor {
  int64_t rows, cols;
  uint32_t dtype;
  void *data; /* malloc'd, dense */
} bs_check_tensor;

/* Tensors of rank 0, 1 .. n-1; without holes. */
typedef struct bs_check_list {
  bs_check_tensor of[BS_CHECK_RANKS];
  uint32_t n;
} bs_check_list;

typedef struct bs_check_set {
  bs_check_list x, w, bias; /* one each */
  bs_check_list y, partial, columns;
} bs_check_set;

/* path: a folder, or one file. BS_INPUT with ids BS-CHECK-*, BS-NPY-*, BS-ST-*: a file that is damaged, two
 * tensors for one place, a rank left out. The caller frees the set, also on failure. */
int32_t bs_check_load(const char *path, bs_check_set *out, bs_error *err);
void bs_check_free(bs_check_set *set);
#endif
