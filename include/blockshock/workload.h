/* SPDX-License-Identifier: MIT
 *
 * workload.h - workloads: the inputs X, weights W, bias b and targets T of one linear layer.
 *
 * Units: B, N and K are counted in elements.
 * Ownership: the host closes a workload by `close`. Its sources are valid until then, and the request during
 * open alone.
 * Threads: the functions of an opened workload may be called by several threads at the same time, but for
 * close.
 * Errors: functions return an enum bs_status and fill err. BS_CONFIG is a wrong or unknown option, and
 * BS_INPUT a file that cannot be used.
 */
#ifndef BLOCKSHOCK_WORKLOAD_H
#define BLOCKSHOCK_WORKLOAD_H

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The matrices that a workload hands out. */
enum bs_workload_part { BS_PART_X = 0, BS_PART_W = 1, BS_PART_BIAS = 2, BS_PART_TARGET = 3 };

/* Random streams: one per part, so that no two parts are ever equal. */
enum bs_stream_id { BS_STREAM_X = 1, BS_STREAM_W = 2, BS_STREAM_BIAS = 3, BS_STREAM_TARGET = 4 };

/* The loss of the outputs: their sum; their mean square; the mean square of their distance from the targets.
 */
enum bs_loss { BS_LOSS_SUM = 0, BS_LOSS_MSE_ZERO = 1, BS_LOSS_MSE_TARGET = 2 };

/* The sizes and dtypes that the run asks for. B, N, K of 0 mean "not given": a workload that has sizes
 * (files) supplies them, any other fails with BS_CONFIG. Options are the workload.<key> settings. */
typedef struct bs_workload_request {
  uint32_t struct_size;
  uint32_t dtype; /* model dtype: X, W, bias and targets are rounded to it */
  int64_t B;
  int64_t N;
  int64_t K;
  uint64_t seed;
  uint64_t weight_seed;
  uint32_t has_bias;
  uint32_t n_options;
  const char *const *option_keys;
  const char *const *option_values;
} bs_workload_request;

/* The sizes of an opened workload, all above 0. */
typedef struct bs_workload_info {
  uint32_t struct_size;
  uint32_t loss; /* enum bs_loss */
  int64_t B;
  int64_t N;
  int64_t K;
  uint32_t has_bias;
  uint32_t has_target;
  char text[160]; /* one line for the table and the record */
} bs_workload_info;

/* Required: name, open, info, source, close. Everything is thread-safe after open. */
typedef struct bs_workload {
  uint32_t struct_size;
  uint32_t reserved;
  const char *name;
  const char *aliases;
  const char *summary;
  const char *option_docs; /* "key=default: text\n"... of every workload.<key> it reads */
  /* Checks sizes and options: BS_CONFIG with a hint for a wrong or unknown one, BS_INPUT for a file. */
  int32_t (*open)(void *state, const bs_workload_request *request, void **out_workload, bs_error *err);
  /* Sizes, loss and a line of text of what was opened. */
  int32_t (*info)(void *workload, bs_workload_info *out_info, bs_error *err);
  /* Makes a source of a part (enum bs_workload_part): X [B,K], W [N,K], bias [1,N] or target [B,N]. The
   * source is valid until close. */
  int32_t (*source)(void *workload, uint32_t part, bs_source *out_source, bs_error *err);
  void (*close)(void *workload);
} bs_workload;

#ifdef __cplusplus
}
#endif
#endif
