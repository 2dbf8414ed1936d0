/* SPDX-License-Identifier: MIT
 * file.h - the workload "file": matrices read from .npy and safetensors files by panels. Internal to this
 * plugin. Panels are read by pread, never through the mapping: a file that is cut short or edited while in
 * use is BS-FILE-CHANGED, not SIGBUS. */
#ifndef BS_WORKLOADS_FILE_H
#define BS_WORKLOADS_FILE_H
#include "../common/generated.h"
#include "../common/options.h"
#include "formats/npy.h"
#include "formats/safetensors.h"

/* One opened file and the array in it that is meant. Closed by bs_file_input_close. */
typedef struct bs_file_input {
  const bs_host *host;
  const char *option; /* "weights", "x", ...: for messages */
  char *path;         /* owned */
  char *tensor;       /* owned; NULL: a .npy file */
  const bs_map *map;  /* of npy or st; NULL: not given */
  bs_npy npy;
  bs_st st;
  uint64_t offset;
  uint32_t dtype;
  uint32_t rank;
  const int64_t *dims;
} bs_file_input;

/* A matrix inside an input, rounded to the model's dtype when read. Transposed: the file holds [cols, rows].
 */
typedef struct bs_file_matrix {
  const bs_host *host;
  const bs_file_input *input;
  int64_t rows, cols;
  uint32_t transposed;
  uint32_t dtype; /* model dtype */
} bs_file_matrix;

/* Opens "path.npy" or "path.safetensors#tensor" (text is the option's value). BS_CONFIG: the text is neither,
 * BS_INPUT: the file is wrong. */
int32_t bs_file_input_open(const bs_host *host, const char *option, const char *text, bs_file_input *out,
                           bs_error *err);
/* Choose a tensor of the safetensors file already open in `in` (bs_st_find's errors). */
int32_t bs_file_input_choose(bs_file_input *in, const char *tensor, bs_error *err);
void bs_file_input_close(bs_file_input *in);
/* "model.safetensors#a.weight [1536, 384]" with the folder left out. */
void bs_file_input_label(const bs_file_input *in, char *out, size_t size);

/* A source over `m`, which must outlive it. */
void bs_file_matrix_source(bs_file_matrix *m, bs_source *out_source);
/* Counts NaN and Inf among the first `rows` rows of `m`, in the file or after rounding to the model's dtype,
 * and fills err with BS-IN-NAN naming the first. 0 and BS_OK: there are none. */
int32_t bs_file_matrix_scan(const bs_file_matrix *m, uint64_t *out_count, bs_error *err);
#endif
