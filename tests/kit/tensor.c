/* SPDX-License-Identifier: MIT
 * tensor.c - tensors between guard bytes. Where the backend's memory is the host's, the block is the device's
 * too; elsewhere the whole block, guards included, travels. */
#include <math.h>

#include "tests/kit/op.h"

void kit_tensor_make(kit_tensor *m, uint32_t dtype, uint32_t rank, int64_t rows, int64_t cols,
                     uint32_t spread) {
  const uint32_t layout = spread & ~(uint32_t)KIT_SHIFTED;
  const int64_t step = layout >= 2 ? 2 : 1, ld = cols * step + (layout > 0 ? 3 : 0);
  const uint64_t size = BS_DTYPE_BYTES(dtype);
  void *p = NULL;
  memset(m, 0, sizeof *m);
  m->d = bs_desc_2d(dtype, rows, cols);
  m->d.strides[0] = ld;
  m->d.strides[1] = step;
  const uint64_t bytes =
      rows > 0 && cols > 0 ? (uint64_t)((rows - 1) * ld + (cols - 1) * step + 1) * size : 0;
  m->lead = KIT_GUARD + ((spread & KIT_SHIFTED) != 0 ? size : 0);
  m->block_bytes = (m->lead + bytes + KIT_GUARD + 63) / 64 * 64;
  m->before = malloc(m->block_bytes);
  kit_assert(posix_memalign(&p, 64, m->block_bytes) == 0 && m->before != NULL, "no memory for a tensor");
  m->block = p;
  memset(m->block, 0xFF, m->block_bytes); /* NaN of floats: what is read from beside shows in the output */
  if (rank == 1) {
    m->d.rank = 1;
    m->d.dims[0] = cols;
    m->d.strides[0] = step;
    m->d.dims[1] = m->d.strides[1] = 0;
  }
  m->t.struct_size = (uint32_t)sizeof m->t;
  m->t.dtype = dtype;
  m->t.rank = rank;
  memcpy(m->t.dims, m->d.dims, sizeof m->t.dims);
  memcpy(m->t.strides, m->d.strides, sizeof m->t.strides);
  m->t.bytes = bytes;
  m->t.data = m->block + m->lead;
}

void kit_tensor_free(kit_actor *a, kit_tensor *m) {
  if (m->device != NULL) a->backend->mem_free(a->device, m->device);
  free(m->block);
  free(m->before);
  memset(m, 0, sizeof *m);
}

static int64_t element(const kit_tensor *m, int64_t row, int64_t col) {
  return m->t.rank == 1 ? col * m->t.strides[0] : row * m->t.strides[0] + col * m->t.strides[1];
}

double kit_get(const kit_tensor *m, int64_t row, int64_t col) {
  return bs_load_f64(m->t.dtype, m->block + m->lead, element(m, row, col));
}

void kit_set(kit_tensor *m, int64_t row, int64_t col, double value) {
  bs_store_f64(m->t.dtype, m->block + m->lead, element(m, row, col), value);
}

static int64_t rows_of(const kit_tensor *m) {
  return m->t.rank == 1 ? 1 : m->t.dims[0];
}
static int64_t cols_of(const kit_tensor *m) {
  return m->t.rank == 1 ? m->t.dims[0] : m->t.dims[1];
}

void kit_fill(kit_tensor *m, uint64_t *seed) {
  const int real = bs_dtype_is_float(m->t.dtype);
  const int64_t low = m->t.dtype == BS_U8 || m->t.dtype == BS_BOOL ? 0 : -4;
  const int64_t range = m->t.dtype == BS_BOOL ? 2 : 5 - low;
  for (int64_t r = 0; r < rows_of(m); r++)
    for (int64_t c = 0; c < cols_of(m); c++)
      kit_set(m, r, c,
              real ? (double)(kit_next(seed) >> 11) * 0x1p-52 - 1.0 : (double)(low + kit_below(seed, range)));
}

void kit_poison(kit_tensor *m, int byte) {
  const uint64_t size = BS_DTYPE_BYTES(m->t.dtype);
  for (int64_t r = 0; r < rows_of(m); r++)
    for (int64_t c = 0; c < cols_of(m); c++)
      memset(m->block + m->lead + (uint64_t)element(m, r, c) * size, byte, size);
}

void kit_push(kit_actor *a, kit_tensor *m) {
  bs_error err = BS_ERROR_INIT;
  void *p = NULL;
  if (m->block == NULL) return;
  memcpy(m->before, m->block, m->block_bytes);
  if (kit_host_memory(a)) return;
  int32_t rc = BS_OK;
  if (m->device == NULL) {
    rc = a->backend->mem_alloc(a->device, m->block_bytes, 64, &p, &err);
    m->device = p;
  }
  if (rc == BS_OK)
    rc = a->backend->mem_copy(a->device, m->device, m->block, m->block_bytes, BS_COPY_HOST_TO_DEVICE, NULL,
                              &err);
  kit_assert(rc == BS_OK, "a tensor cannot be copied to the device: %s: %s", err.id, err.message);
  m->t.data = m->device + m->lead;
}

void kit_pull(kit_actor *a, kit_tensor *m) {
  bs_error err = BS_ERROR_INIT;
  int32_t rc = BS_OK;
  if (m->block == NULL || m->device == NULL) return;
  rc = a->backend->mem_copy(a->device, m->block, m->device, m->block_bytes, BS_COPY_DEVICE_TO_HOST, NULL,
                            &err);
  if (rc == BS_OK && a->backend->stream_sync != NULL) rc = a->backend->stream_sync(a->device, NULL, &err);
  kit_assert(rc == BS_OK, "a tensor cannot be copied from the device: %s: %s", err.id, err.message);
}

void kit_check_around(const kit_tensor *m, const char *what, int input) {
  const uint64_t size = BS_DTYPE_BYTES(m->t.dtype);
  if (m->block == NULL) return;
  unsigned char *mine = calloc(1, m->block_bytes);
  kit_assert(mine != NULL, "no memory");
  for (int64_t r = 0; !input && r < rows_of(m); r++)
    for (int64_t c = 0; c < cols_of(m); c++)
      memset(mine + m->lead + (uint64_t)element(m, r, c) * size, 1, size);
  for (uint64_t i = 0; i < m->block_bytes; i++)
    if (!mine[i] && m->block[i] != m->before[i])
      kit_fail(input ? "%s: the input is changed, at byte %lld"
                     : "%s: writes outside of its output, at byte %lld from its start",
               what, (long long)i - (long long)m->lead);
  free(mine);
}
