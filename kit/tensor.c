/* SPDX-License-Identifier: MIT
 * tensor.c - tensors between guard bytes, and at a page that may not be touched (fence.c). Where the
 * backend's memory is the host's, the block is the device's too; elsewhere the whole block, guards included,
 * travels. */
#include <math.h>

#include "kit/op.h"

/* Sets where the elements begin in the block, and the block's length. Either the last element is at the fence
 * (then the data are only certain to be aligned to an element, as tensor.h says), or the first one is, on a
 * cache line; shifted data have guard bytes before the first. */
static void place_data(kit_tensor *m, uint64_t bytes) {
  if (m->at_end) {
    m->lead = (KIT_GUARD + bytes + 63) / 64 * 64 - bytes;
    m->block_bytes = m->lead + bytes;
  } else {
    m->lead = m->shifted ? KIT_GUARD + BS_DTYPE_BYTES(m->d.dtype) : 0;
    m->block_bytes = (m->lead + bytes + KIT_GUARD + 63) / 64 * 64;
  }
  free(m->before);
  m->before = malloc(m->block_bytes);
  kit_assert(m->before != NULL, "no memory for a tensor");
}

/* The block around `bytes` of elements whose descriptor is filled in. */
static void make_block(kit_tensor *m, uint64_t bytes, uint32_t spread) {
  m->at_end = kit_fence_turn();
  m->shifted = (spread & KIT_SHIFTED) != 0;
  place_data(m, bytes);
  m->block = kit_fence_alloc(m->block_bytes, m->at_end);
  kit_assert(m->block != NULL, "no memory for a tensor");
  memset(m->block, 0xFF, m->block_bytes); /* NaN of floats: data read outside the tensor show in the output */
  m->t.struct_size = (uint32_t)sizeof m->t;
  m->t.dtype = m->d.dtype;
  m->t.rank = m->d.rank;
  memcpy(m->t.dims, m->d.dims, sizeof m->t.dims);
  memcpy(m->t.strides, m->d.strides, sizeof m->t.strides);
  m->t.bytes = bytes;
  m->t.data = m->block + m->lead;
}

void kit_tensor_turn(kit_tensor *m) {
  const uint64_t bytes = m->t.bytes;
  if (m->block == NULL || m->device != NULL) return;
  unsigned char *copy = malloc(bytes + 1);
  kit_assert(copy != NULL, "no memory for a tensor");
  memcpy(copy, m->block + m->lead, bytes);
  m->at_end = !m->at_end;
  place_data(m, bytes);
  m->block = kit_fence_move(m->block, m->block_bytes, m->at_end);
  memset(m->block, 0xFF, m->block_bytes);
  memcpy(m->block + m->lead, copy, bytes);
  m->t.data = m->block + m->lead;
  free(copy);
}

void kit_tensor_make(kit_tensor *m, uint32_t dtype, uint32_t rank, int64_t rows, int64_t cols,
                     uint32_t spread) {
  const uint32_t layout = spread & ~(uint32_t)KIT_SHIFTED;
  const int64_t step = layout >= 2 ? 2 : 1, ld = cols * step + (layout > 0 ? 3 : 0);
  memset(m, 0, sizeof *m);
  m->d = bs_desc_2d(dtype, rows, cols);
  m->d.strides[0] = ld;
  m->d.strides[1] = step;
  const uint64_t bytes =
      rows > 0 && cols > 0 ? (uint64_t)((rows - 1) * ld + (cols - 1) * step + 1) * BS_DTYPE_BYTES(dtype) : 0;
  if (rank == 1) {
    m->d.rank = 1;
    m->d.dims[0] = cols;
    m->d.strides[0] = step;
    m->d.dims[1] = m->d.strides[1] = 0;
  }
  make_block(m, bytes, spread);
}

void kit_tensor_make_nd(kit_tensor *m, uint32_t dtype, uint32_t rank, const int64_t *dims, uint32_t spread,
                        uint32_t repeats) {
  const uint32_t layout = spread & ~(uint32_t)KIT_SHIFTED;
  int64_t step = layout == KIT_GAPS ? 2 : 1, last = 0, elements = 1;
  memset(m, 0, sizeof *m);
  m->d.struct_size = (uint32_t)sizeof m->d;
  m->d.dtype = dtype;
  m->d.rank = rank;
  for (uint32_t k = 0; k < rank; k++) {
    /* the next dimension, from the innermost one */
    uint32_t i = rank - 1 - k;
    if (layout == KIT_TURNED && k > 0) i = k - 1;
    if (layout == KIT_COLUMNS) i = k;
    m->d.dims[i] = dims[i];
    elements *= dims[i];
    if ((repeats >> i & 1u) != 0 && dims[i] > 1) continue;
    m->d.strides[i] = step;
    last += (dims[i] - 1) * step;
    step *= dims[i] > 0 ? dims[i] : 1;
    if (k == 0 && layout == KIT_PADDED) step += 3;
  }
  make_block(m, elements > 0 ? (uint64_t)(last + 1) * BS_DTYPE_BYTES(dtype) : 0, spread);
}

void kit_tensor_free(kit_actor *a, kit_tensor *m) {
  if (m->device != NULL) a->backend->mem_free(a->device, m->device);
  kit_fence_free(m->block);
  free(m->before);
  memset(m, 0, sizeof *m);
}

static int64_t element(const kit_tensor *m, int64_t row, int64_t col) {
  return m->t.rank == 1 ? col * m->t.strides[0] : row * m->t.strides[0] + col * m->t.strides[1];
}

int64_t kit_elements(const kit_tensor *m) {
  int64_t n = 1;
  for (uint32_t i = 0; i < m->t.rank; i++) n *= m->t.dims[i];
  return n;
}

int64_t kit_offset(const kit_tensor *m, int64_t i) {
  int64_t offset = 0;
  for (uint32_t d = m->t.rank; i > 0 && d-- > 0;) {
    const int64_t over = i < m->t.dims[d] ? 0 : i / m->t.dims[d];
    offset += (i - over * m->t.dims[d]) * m->t.strides[d];
    i = over;
  }
  return offset;
}

/* How many elements lie side by side from each multiple of that number on. */
static int64_t run_length(const kit_tensor *m) {
  const uint32_t last = m->t.rank > 0 ? m->t.rank - 1 : 0;
  return m->t.rank > 0 && m->t.strides[last] == 1 && m->t.dims[last] > 0 ? m->t.dims[last] : 1;
}

/* Sets every byte of the elements; `block` is m's, or one like it. */
static void set_bytes(const kit_tensor *m, unsigned char *block, int byte) {
  const uint64_t size = BS_DTYPE_BYTES(m->t.dtype);
  const int64_t n = kit_elements(m), run = run_length(m);
  for (int64_t i = 0; i < n; i += run)
    memset(block + m->lead + (uint64_t)kit_offset(m, i) * size, byte, (uint64_t)run * size);
}

double kit_get(const kit_tensor *m, int64_t row, int64_t col) {
  return bs_load_f64(m->t.dtype, m->block + m->lead, element(m, row, col));
}

void kit_set(kit_tensor *m, int64_t row, int64_t col, double value) {
  bs_store_f64(m->t.dtype, m->block + m->lead, element(m, row, col), value);
}

double kit_get_at(const kit_tensor *m, int64_t i) {
  return bs_load_f64(m->t.dtype, m->block + m->lead, kit_offset(m, i));
}

void kit_set_at(kit_tensor *m, int64_t i, double value) {
  bs_store_f64(m->t.dtype, m->block + m->lead, kit_offset(m, i), value);
}

unsigned char *kit_place_at(const kit_tensor *m, int64_t i) {
  return m->block + m->lead + (uint64_t)kit_offset(m, i) * BS_DTYPE_BYTES(m->t.dtype);
}

void kit_fill(kit_tensor *m, uint64_t *seed) {
  const int real = bs_dtype_is_float(m->t.dtype);
  const int64_t low = m->t.dtype == BS_U8 || m->t.dtype == BS_BOOL ? 0 : -4;
  const int64_t range = m->t.dtype == BS_BOOL ? 2 : 5 - low, n = kit_elements(m);
  for (int64_t i = 0; i < n; i++)
    kit_set_at(
        m, i, real ? (double)(kit_next(seed) >> 11) * 0x1p-52 - 1.0 : (double)(low + kit_below(seed, range)));
}

void kit_poison(kit_tensor *m, int byte) {
  set_bytes(m, m->block, byte);
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
  if ((a->backend->flags & BS_BACKEND_PHANTOM) != 0) return; /* there are no values */
  rc = a->backend->mem_copy(a->device, m->block, m->device, m->block_bytes, BS_COPY_DEVICE_TO_HOST, NULL,
                            &err);
  if (rc == BS_OK && a->backend->stream_sync != NULL) rc = a->backend->stream_sync(a->device, NULL, &err);
  kit_assert(rc == BS_OK, "a tensor cannot be copied from the device: %s: %s", err.id, err.message);
}

void kit_check_around(const kit_tensor *m, const char *what, int input) {
  if (m->block == NULL || (input && memcmp(m->block, m->before, m->block_bytes) == 0)) return;
  unsigned char *mine = calloc(1, m->block_bytes);
  kit_assert(mine != NULL, "no memory");
  if (!input) set_bytes(m, mine, 1);
  for (uint64_t i = 0; i < m->block_bytes; i++)
    if (!mine[i] && m->block[i] != m->before[i])
      kit_fail(input ? "%s: the input is changed, at byte %lld"
                     : "%s: writes outside of its output, at byte %lld from its start",
               what, (long long)i - (long long)m->lead);
  free(mine);
}
