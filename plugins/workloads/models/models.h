/* SPDX-License-Identifier: MIT
 * models.h - workloads whose X is the input of a model's layer: a bs_wl_layer whose X is made in units, kept
 * in a cache, and read in panels. Internal to this plugin; tests/workloads creates states too. */
#ifndef BS_WORKLOADS_MODELS_H
#define BS_WORKLOADS_MODELS_H
#include "../common/layer.h"
#include "cache.h"
#include "kernels.h"

/* Streams in addition to enum bs_stream_id (docs/numbers.md): every draw of a workload has a separate one. */
enum models_stream {
  MODELS_STREAM_SECOND = 5, /* swiglu's second draw */
  MODELS_STREAM_Q = 6,
  MODELS_STREAM_K = 7,
  MODELS_STREAM_V = 8,
  MODELS_STREAM_FILTER = 9
};

/* The plugin's state. */
typedef struct models_state {
  const bs_host *host;
  const models_kernels *kernels;
  uint64_t cache_bytes; /* of X kept by a workload, unless one batch element is larger */
} models_state;

/* An opened workload: the first member of each. Unit u of X holds the rows of band u / across, unit_rows of
 * them, and unit_cols columns from (u mod across) * unit_cols on, row by row. */
typedef struct models_workload {
  bs_wl_layer layer;
  const models_state *state;
  int64_t unit_rows, unit_cols, across;
  models_cache *cache;
} models_workload;

/* Makes it readable: the cache over `build`, which gets the workload as ctx. Needs unit_rows, unit_cols,
 * across. */
int32_t models_start(models_workload *w, models_build_fn build, bs_error *err);
/* The vtable slots source and close. */
int32_t models_source(void *workload, uint32_t part, bs_source *out_source, bs_error *err);
void models_close(void *workload);
/* n normals of X's seed from `stream`, without conversion. */
void models_draw(const models_workload *w, uint32_t stream, int64_t first, int64_t n, float *out);
/* Round n doubles to the model's dtype. */
int32_t models_store(const models_workload *w, void *out, const double *values, int64_t n, bs_error *err);
/* Scratch of `count` elements (checked); NULL with BS-MEM in err. Freed by models_scratch_free. */
void *models_scratch(const models_workload *w, int64_t count, size_t element, bs_error *err);
void models_scratch_free(const models_workload *w, void *scratch);

/* Each makes a workload from a request (vtable slot open); `state` is a models_state. */
int32_t models_mlp_open(void *state, const bs_workload_request *request, void **out, bs_error *err);
int32_t models_attention_open(void *state, const bs_workload_request *request, void **out, bs_error *err);
int32_t models_vision_open(void *state, const bs_workload_request *request, void **out, bs_error *err);
void models_vision_close(void *workload);
#endif
