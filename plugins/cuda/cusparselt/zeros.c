/* SPDX-License-Identifier: MIT
 * zeros.c - tests whether a packed weight holds a zero of either sign among its kept values, because
 * cuSPARSELt would not keep its place. Only with cusparselt_zeros=off: the whole weight is copied to the host
 * for it. */
#include "product.h"

enum { PIECE = 1 << 20 };

/* Values of 16 or 8 bits: a sign, and nothing else. */
static int any_zero(const unsigned char *values, uint64_t bytes, uint32_t size) {
  for (uint64_t at = 0; at < bytes; at += size) {
    uint16_t v = values[at];
    if (size == 2) memcpy(&v, values + at, sizeof v);
    if ((v & (size == 2 ? 0x7fff : 0x7f)) == 0) return 1;
  }
  return 0;
}

int32_t cuda_splt_find_zero(const cuda_packed *own, int *out_found, bs_error *err) {
  const cuda_device *device = own->exec->device;
  const uint64_t bytes = (uint64_t)own->rows * (uint64_t)own->line * own->size;
  void *piece = NULL;
  *out_found = 0;
  if (!cuda_is_float(own->dtype)) return BS_OK; /* no number makes a zero of bytes seen */
  int32_t rc = cuda_pinned_alloc(device, PIECE, &piece, err);
  if (rc != BS_OK) return rc;
  for (uint64_t at = 0; rc == BS_OK && at < bytes && !*out_found; at += PIECE) {
    const uint64_t n = bytes - at < PIECE ? bytes - at : PIECE;
    rc = cuda_download(device, piece, (const char *)own->data + at, n, device->stream, err);
    if (rc == BS_OK) rc = cuda_wait(device, device->stream, err);
    if (rc == BS_OK) *out_found = any_zero(piece, n, own->size);
  }
  cuda_pinned_free(device, piece);
  return rc;
}
