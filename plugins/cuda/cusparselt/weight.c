/* SPDX-License-Identifier: MIT
 * weight.c - the weight as cuSPARSELt multiplies it: our own packed values are laid out densely in scratch,
 * which cuSPARSELt compresses. It takes what is not zero; where a group has fewer than two such values it
 * chooses places for zeros itself, which products of finite numbers do not show (docs/gpu/README.md). */
#include "../ops/products24.h"
#include "product.h"

static const cuda_device *device_of(const cuda_splt_weight *w) {
  return w->exec->device;
}

static int32_t scratch(const cuda_splt_weight *w, uint64_t bytes, const char *what, void **out,
                       bs_error *err) {
  *out = w->exec->alloc(w->exec->ctx, bytes);
  if (*out != NULL) return BS_OK;
  (void)bs_fail(err, BS_NO_MEMORY, "BS-CUDA-MEMORY", "no device memory for %llu bytes of %s",
                (unsigned long long)bytes, what);
  return bs_fail_hint(err, "--set plugins.cuda.cusparselt=off does without it");
}

/* Done when it returns: scratch is freed. */
static int32_t queue_compress(const cuda_splt_weight *w, const cuda_splt_opaque *handle,
                              const cuda_splt_opaque *matrix, void *dense, void *buffer, bs_error *err) {
  const cuda_splt *splt = w->state->splt;
  const cuda_device *device = device_of(w);
  const cuda_packed *own = &w->own->values;
  const cuda_view values = cuda_packed_view(own),
                  out = {dense, own->rows, own->places->cols, own->places->cols, 1, own->dtype, own->size};
  int32_t rc = cuda_expand24_views(device, &values, own->places, &out, device->stream, err);
  if (rc == BS_OK)
    rc = cuda_splt_check(
        splt, splt->call.compress(handle, matrix, 1, SPLT_OP_N, dense, w->compressed, buffer, device->stream),
        "cusparseLtSpMMACompress2", err);
  const int32_t waited = cuda_wait(device, device->stream, rc == BS_OK ? err : NULL);
  return rc == BS_OK ? waited : rc;
}

static int32_t compress_as(cuda_splt_weight *w, const cuda_splt_opaque *handle,
                           const cuda_splt_opaque *matrix, bs_error *err) {
  const cuda_splt *splt = w->state->splt;
  const cuda_packed *own = &w->own->values;
  size_t bytes = 0, buffer_bytes = 0;
  void *dense = NULL, *buffer = NULL;
  int32_t rc = cuda_splt_check(splt, splt->call.compressed_size(handle, matrix, &bytes, &buffer_bytes),
                               "cusparseLtSpMMACompressedSize2", err);
  if (rc == BS_OK && w->compressed == NULL) {
    w->bytes = bytes;
    rc = scratch(w, bytes, "a compressed weight", &w->compressed, err);
  }
  if (rc == BS_OK)
    rc = scratch(w, (uint64_t)own->rows * (uint64_t)own->places->cols * own->size,
                 "a weight that is being compressed", &dense, err);
  if (rc == BS_OK && buffer_bytes > 0)
    rc = scratch(w, buffer_bytes, "a buffer to compress a weight", &buffer, err);
  if (rc == BS_OK) rc = queue_compress(w, handle, matrix, dense, buffer, err);
  if (buffer != NULL) w->exec->free(w->exec->ctx, buffer);
  if (dense != NULL) w->exec->free(w->exec->ctx, dense);
  return rc;
}

static int32_t compress(cuda_splt_weight *w, bs_error *err) {
  const cuda_splt *splt = w->state->splt;
  const cuda_packed *own = &w->own->values;
  const cuda_splt_opaque *handle = NULL;
  cuda_splt_opaque matrix;
  memset(&matrix, 0, sizeof matrix);
  int32_t rc = cuda_splt_handle(w->exec->device, &handle, err);
  if (rc == BS_OK)
    rc = cuda_splt_describe_weight(splt, handle, own->rows, own->places->cols, w->type, &matrix, err);
  if (rc != BS_OK) return rc;
  rc = compress_as(w, handle, &matrix, err);
  (void)splt->call.matrix_destroy(&matrix);
  return rc;
}

/* The values as they are now. */
static int32_t take_values(cuda_splt_weight *w, bs_error *err) {
  int found = 0;
  int32_t rc = BS_OK;
  if (!w->state->splt->zeros) rc = cuda_splt_find_zero(&w->own->values, &found, err);
  if (rc != BS_OK) return rc;
  w->zeros = (uint32_t)found;
  bs_error why = {.struct_size = (uint32_t)sizeof why};
  rc = compress(w, &why);
  if (rc != BS_OK && cuda_splt_refused(&why)) {
    if (w->compressed != NULL) w->exec->free(w->exec->ctx, w->compressed);
    w->compressed = NULL;
    w->bytes = 0;
    cuda_splt_note(w->exec, &why);
    return BS_OK;
  }
  if (rc != BS_OK && err != NULL) *err = why;
  if (rc == BS_OK && w->zeros && w->exec->note != NULL)
    w->exec->note(w->exec->ctx, "matmul24@cuda/tiles (kept zeros)");
  return rc;
}

int32_t cuda_splt_pack(void *opaque, const bs_exec *exec, const bs_op_query *query, const bs_source *weights,
                       void **out_packed, uint64_t *out_bytes, bs_error *err) {
  cuda_state *state = opaque;
  const bs_host *host = state->host;
  void *own = NULL;
  int32_t rc = cuda_packed24_make(&cuda_splt_matmul24, state, exec, query, weights, &own, out_bytes, err);
  if (rc != BS_OK) return rc;
  cuda_splt_weight *w = host->alloc(host->ctx, sizeof *w, 64);
  if (w == NULL) {
    cuda_packed24_free(own);
    return bs_fail(err, BS_NO_MEMORY, "BS-CUDA-MEMORY", "no memory for a weight's record");
  }
  w->state = state;
  w->exec = exec;
  w->own = own;
  if (cuda_splt_compresses(query->weight_dtype, w->own->values.rows, w->own->places.cols, &w->type))
    rc = take_values(w, err);
  if (rc != BS_OK) {
    cuda_splt_packed_free(w);
    return rc;
  }
  *out_bytes += w->bytes;
  *out_packed = w;
  return BS_OK;
}

int32_t cuda_splt_packed_update(void *opaque, const bs_tensor *delta, bs_error *err) {
  cuda_splt_weight *w = opaque;
  const int32_t rc = cuda_packed_update(w->own, delta, err);
  return rc == BS_OK && w->compressed != NULL ? take_values(w, err) : rc;
}

int32_t cuda_splt_packed_read(void *opaque, int64_t row, bs_tensor *out, bs_error *err) {
  const cuda_splt_weight *w = opaque;
  return cuda_packed_read(w->own, row, out, err);
}

void cuda_splt_packed_free(void *opaque) {
  cuda_splt_weight *w = opaque;
  if (w == NULL) return;
  const bs_host *host = w->state->host;
  if (w->compressed != NULL) w->exec->free(w->exec->ctx, w->compressed);
  cuda_packed24_free(w->own);
  host->free(host->ctx, w);
}
