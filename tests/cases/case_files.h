/* SPDX-License-Identifier: MIT
 * case_files.h - files of numbers that a .case file writes: models, arrays, tensors. `values` are texts, of
 * which there are `n`; they are repeated until the shape, such as "2,3", is full. Paths are absolute. */
#ifndef BS_TESTS_CASE_FILES_H
#define BS_TESTS_CASE_FILES_H

/* A model of ONNX's text syntax. */
void write_onnx(const char *path, const char *text);
void write_npy(const char *path, const char *dtype, const char *shape, char *const *values, int n);

/* A file of safetensors whose tensors are added one by one; only f32. */
typedef struct tensors {
  char header[8192];
  float data[4096];
  int length, count; /* of both */
} tensors;
void add_tensor(tensors *t, const char *name, const char *shape, char *const *values, int n);
void write_safetensors(const char *path, const tensors *t);
#endif
