/* SPDX-License-Identifier: MIT
 * vectors.h - a folder with vectors.txt (docs/models.md) as a model: the model that it names, with the sizes
 * and inputs of its first case. `model check` reads all cases (checking.h). */
#ifndef BS_LAB_MODEL_VECTORS_H
#define BS_LAB_MODEL_VECTORS_H
#include "lab/model/model.h"

typedef struct bs_vectors {
  char *model;   /* its path */
  char *name;    /* of the first case; NULL: there is none */
  char **dims;   /* "NAME=N" */
  char **inputs; /* "NAME=PATH" */
  size_t n_dims, n_inputs;
} bs_vectors;

/* 1: the path is a folder with vectors.txt. */
int bs_vectors_in(const char *path);
/* BS_INPUT: the line of vectors.txt that is wrong. The caller frees in every case. */
int32_t bs_vectors_read(const char *folder, bs_vectors *out, bs_error *err);
void bs_vectors_free(bs_vectors *vectors);
#endif
