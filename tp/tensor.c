/* SPDX-License-Identifier: MIT
 *
 * tensor.c - tensors of a rank, read and written from the host. A read waits for the work that writes
 * the tensor. A write waits for nothing: it is queued after pending work that uses the tensor.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/size.h"
#include "core/base/text.h"
#include "tp/state.h"

enum { SHOWN = 8 }; /* rows and columns of a text */

static int32_t check_matrix(const bs_tensor *t, bs_error *err) {
  if (t != NULL && t->rank == 2 && t->dims[0] >= 0 && t->dims[1] >= 0 && bs_dtype_known(t->dtype))
    return BS_OK;
  return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-TP-TENSOR", "a [rows, cols] tensor is needed, not %s %u",
                      t != NULL ? "one of rank" : "none;", t != NULL ? t->rank : 0);
}

int32_t bs_tp_tensor_make(bs_rank *rank, uint32_t dtype, int64_t rows, int64_t cols, bs_tensor *out_tensor,
                          bs_error *err) {
  if (rank == NULL || out_tensor == NULL) return tp_null("bs_tp_tensor_make", "rank and out_tensor", err);
  if (!bs_dtype_known(dtype) || rows < 0 || cols < 0)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-TP-TENSOR",
                        "no tensor has dtype 0x%04x and [%lld, %lld]", dtype, (long long)rows,
                        (long long)cols);
  const bs_tensor_desc desc = {.struct_size = (uint32_t)sizeof desc,
                               .dtype = dtype,
                               .rank = 2,
                               .dims = {rows, cols},
                               .strides = {cols > 0 ? cols : 1, 1}};
  return bs_rank_get_api()->tensor_alloc(rank, &desc, BS_LIFE_ACTIVATION, out_tensor, err);
}

void bs_tp_tensor_free(bs_rank *rank, bs_tensor *tensor) {
  if (rank == NULL || tensor == NULL || tensor->data == NULL) return;
  tp_state *state = tp_state_active(rank);
  tp_pending *later =
      state != NULL && tp_is_used(state, tensor) ? tp_pending_add(state, TP_FREE_TENSOR) : NULL;
  if (later != NULL) {
    later->out = *tensor;
    tensor->data = NULL;
    tensor->bytes = 0;
    return;
  }
  if (state != NULL) (void)tp_await_used(state, tensor, NULL);
  bs_rank_get_api()->tensor_free(rank, tensor);
}

int32_t tp_write(bs_rank *rank, const void *host, bs_tensor *tensor, bs_error *err) {
  bs_source source;
  int32_t rc = bs_source_from_memory(host, tensor->dtype, tensor->dims[0], tensor->dims[1],
                                     tensor->dims[1] > 0 ? tensor->dims[1] : 1, &source, err);
  if (rc != BS_OK) return rc;
  rc = bs_rank_get_api()->tensor_read(rank, &source, 0, NULL, tensor, err);
  bs_source_release(&source);
  return rc;
}

static int32_t host_bytes(const bs_tensor *t, uint64_t *out_bytes, bs_error *err) {
  uint64_t n = BS_DTYPE_BYTES(t->dtype);
  for (uint32_t i = 0; i < t->rank; ++i)
    if (!bs_mul_u64(n, (uint64_t)t->dims[i], &n))
      return bs_error_set(err, BS_OVERFLOW, "BS-TP-TENSOR", "the size of a tensor overflows");
  *out_bytes = n;
  return BS_OK;
}

int32_t bs_tp_copy_in(bs_rank *rank, const void *host, bs_tensor *tensor, bs_error *err) {
  tp_state *state;
  uint64_t bytes = 0;
  int32_t rc = tp_state_of(rank, &state, err);
  if (rc == BS_OK) rc = check_matrix(tensor, err);
  if (rc == BS_OK) rc = host_bytes(tensor, &bytes, err);
  if (rc != BS_OK || bytes == 0) return rc;
  if (host == NULL || tensor->data == NULL)
    return tp_null("bs_tp_copy_in", "host and a tensor with data", err);
  if (!tp_is_used(state, tensor)) return tp_write(rank, host, tensor, err);
  void *kept = malloc(bytes);
  tp_pending *later = kept != NULL ? tp_pending_add(state, TP_WRITE) : NULL;
  if (later == NULL) {
    free(kept);
    return bs_error_set(err, BS_NO_MEMORY, "BS-TP-MEMORY", "no memory for %llu bytes of pending data",
                        (unsigned long long)bytes);
  }
  memcpy(kept, host, bytes);
  later->host = kept;
  later->out = *tensor;
  return BS_OK;
}

int32_t bs_tp_copy_out(bs_rank *rank, const bs_tensor *tensor, void *out_host, bs_error *err) {
  tp_state *state;
  int32_t rc = tp_state_of(rank, &state, err);
  if (rc == BS_OK && (tensor == NULL || out_host == NULL))
    rc = tp_null("bs_tp_copy_out", "tensor and out_host", err);
  if (rc == BS_OK) rc = tp_await_written(state, tensor, err);
  return rc == BS_OK ? bs_rank_copy_out(rank, tensor, out_host, err) : rc;
}

int32_t bs_tp_copy(bs_rank *rank, const bs_tensor *source, bs_tensor *target, bs_error *err) {
  uint64_t bytes = 0;
  int32_t rc = check_matrix(source, err);
  if (rc == BS_OK) rc = check_matrix(target, err);
  if (rc == BS_OK && (source->dtype != target->dtype || source->dims[0] != target->dims[0] ||
                      source->dims[1] != target->dims[1]))
    rc =
        bs_error_set(err, BS_INVALID_ARGUMENT, "BS-TP-TENSOR", "copying %s [%lld, %lld] into %s [%lld, %lld]",
                     bs_dtype_name(source->dtype), (long long)source->dims[0], (long long)source->dims[1],
                     bs_dtype_name(target->dtype), (long long)target->dims[0], (long long)target->dims[1]);
  if (rc == BS_OK) rc = host_bytes(source, &bytes, err);
  if (rc != BS_OK) return rc;
  void *host = malloc(bytes > 0 ? bytes : 1);
  if (host == NULL)
    return bs_error_set(err, BS_NO_MEMORY, "BS-TP-MEMORY", "no memory for %llu bytes",
                        (unsigned long long)bytes);
  rc = bs_tp_copy_out(rank, source, host, err);
  if (rc == BS_OK) rc = bs_tp_copy_in(rank, host, target, err);
  free(host);
  return rc;
}

int32_t bs_tp_get(bs_rank *rank, const bs_tensor *tensor, int64_t row, int64_t col, double *out_value,
                  bs_error *err) {
  tp_state *state;
  int32_t rc = tp_state_of(rank, &state, err);
  if (rc == BS_OK && out_value == NULL) rc = tp_null("bs_tp_get", "out_value", err);
  if (rc == BS_OK) rc = check_matrix(tensor, err);
  if (rc != BS_OK) return rc;
  if (tensor->data == NULL && tensor->dims[0] > 0 && tensor->dims[1] > 0)
    return tp_null("bs_tp_get", "a tensor with data", err);
  if (row < 0 || row >= tensor->dims[0] || col < 0 || col >= tensor->dims[1])
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-TP-TENSOR", "element [%lld, %lld] of [%lld, %lld]",
                        (long long)row, (long long)col, (long long)tensor->dims[0],
                        (long long)tensor->dims[1]);
  const int64_t size = BS_DTYPE_BYTES(tensor->dtype);
  bs_tensor one = *tensor;
  double room = 0.0; /* any dtype */
  one.data = (char *)tensor->data + (row * tensor->strides[0] + col * tensor->strides[1]) * size;
  one.dims[0] = one.dims[1] = 1;
  one.strides[0] = one.strides[1] = 1;
  one.bytes = (uint64_t)size;
  rc = bs_tp_copy_out(rank, &one, &room, err);
  if (rc == BS_OK) *out_value = bs_load_f64(tensor->dtype, &room, 0);
  return rc;
}

/* ---- text ----------------------------------------------------------------------------------- */

/* Numbers have a decimal point whatever the locale of the program is. */
static void put_values(bs_text *w, const bs_tensor *t, const double *values, int64_t rows, int64_t cols) {
  bs_text_printf(w, "%s [%lld, %lld]\n[", bs_dtype_name(t->dtype), (long long)t->dims[0],
                 (long long)t->dims[1]);
  for (int64_t r = 0; r < rows; ++r) {
    bs_text_printf(w, r > 0 ? ",\n [" : "[");
    for (int64_t c = 0; c < cols; ++c) bs_text_printf(w, c > 0 ? ", %g" : "%g", values[r * SHOWN + c]);
    bs_text_printf(w, cols < t->dims[1] ? ", ...]" : "]");
  }
  bs_text_printf(w, rows < t->dims[0] ? ",\n ...]\n" : "]\n");
}

int32_t bs_tp_format(bs_rank *rank, const bs_tensor *tensor, char *out_text, size_t size, bs_error *err) {
  double values[SHOWN * SHOWN] = {0};
  if (rank == NULL || (out_text == NULL && size > 0))
    return tp_null("bs_tp_format", "rank, and out_text of size bytes", err);
  int32_t rc = check_matrix(tensor, err);
  if (rc != BS_OK) return rc;
  const int64_t rows = tensor->dims[0] < SHOWN ? tensor->dims[0] : SHOWN;
  const int64_t cols = tensor->dims[1] < SHOWN ? tensor->dims[1] : SHOWN;
  for (int64_t r = 0; r < rows && rc == BS_OK; ++r)
    for (int64_t c = 0; c < cols && rc == BS_OK; ++c)
      rc = bs_tp_get(rank, tensor, r, c, &values[r * SHOWN + c], err);
  if (rc != BS_OK) return rc;
  bs_text text = {0};
  put_values(&text, tensor, values, rows, cols);
  if (text.failed) {
    rc = bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  } else {
    snprintf(out_text, size, "%s", text.data);
  }
  bs_text_free(&text);
  return rc;
}
