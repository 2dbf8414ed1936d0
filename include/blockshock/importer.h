/* SPDX-License-Identifier: MIT
 *
 * importer.h - importers: readers of model files. An importer names the tensors of a file and gives each as a
 * source, so that a rank reads only its own part. What joins tensors to a model is appended with the graph.
 *
 * Units: dims are counted in elements.
 * Ownership: the host closes a model by `close`. Names and sources of the model are valid until then.
 * Threads: the functions of an opened model may be called by several threads at the same time, but for
 * close.
 * Errors: functions return an enum bs_status and fill err. BS_INPUT is a damaged file, and BS_CONFIG a wrong
 * option.
 */
#ifndef BLOCKSHOCK_IMPORTER_H
#define BLOCKSHOCK_IMPORTER_H

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether an importer reads files of this kind. */
enum bs_import_match { BS_IMPORT_NO = 0, BS_IMPORT_MAYBE = 1, BS_IMPORT_YES = 2 };

/* Which file is opened, and how. */
typedef struct bs_import_request {
  uint32_t struct_size;
  uint32_t n_options;
  const char *path;
  const char *const *option_keys;
  const char *const *option_values;
} bs_import_request;

/* One tensor of a file. */
typedef struct bs_import_tensor {
  uint32_t struct_size;
  uint32_t dtype; /* as stored */
  uint32_t rank;
  uint32_t reserved;
  int64_t dims[BS_MAX_DIMS];
  const char *name; /* valid until close */
} bs_import_tensor;

/* Required: name, match, open, tensor_count, tensor_info, tensor_source, close. Everything is thread-safe
 * after open. Sizes and offsets of a file are hostile: every one is checked before it is used. */
typedef struct bs_importer {
  uint32_t struct_size;
  uint32_t reserved;
  const char *name;
  const char *aliases;
  const char *summary;
  const char *option_docs; /* "key=default: text\n"... */
  const char *suffixes;    /* ".onnx,.pb": of the files it is asked about first; NULL: any */
  /* Judges by the first `size` bytes whether the file is of this importer's kind. Opens nothing. */
  int32_t (*match)(void *state, const char *path, const void *head, uint64_t size, uint32_t *out_match,
                   bs_error *err);
  /* The path and the options are valid during the call. BS_INPUT for a file that is damaged. */
  int32_t (*open)(void *state, const bs_import_request *request, void **out_model, bs_error *err);
  int32_t (*tensor_count)(void *model, uint64_t *out_count, bs_error *err);
  int32_t (*tensor_info)(void *model, uint64_t index, bs_import_tensor *out_tensor, bs_error *err);
  /* Makes a source of a tensor: its rows are the first dimension, its columns all others together. A vector
   * is one row. The source is valid until close. */
  int32_t (*tensor_source)(void *model, uint64_t index, bs_source *out_source, bs_error *err);
  void (*close)(void *model);
} bs_importer;

#ifdef __cplusplus
}
#endif
#endif
