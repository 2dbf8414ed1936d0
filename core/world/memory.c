/* SPDX-License-Identifier: MIT
 *
 * memory.c - device and host memory of a rank, counted on its world: now and the most so far. Called
 * through bs_exec (plans and packed weights), the rank table (methods) and blockshock.h (the lab).
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/memory.h"
#include "core/base/size.h"
#include "core/world/executor.h"
#include "core/world/world.h"

#define ALIGN 64u
#define CALL_ALIGN 256u /* as a device's own allocations: libraries choose kernels by it */
#define HOST_HEADER 64u /* before a host allocation: its size, keeping 64-byte alignment */
#define PANEL_BYTES (1u << 20)

void bs_memory_add(bs_world *world, uint64_t bytes) {
  uint64_t now = atomic_fetch_add(&world->memory_now, bytes) + bytes;
  uint64_t peak = atomic_load(&world->memory_peak);
  while (now > peak && !atomic_compare_exchange_weak(&world->memory_peak, &peak, now)) {
  }
}
void bs_memory_sub(bs_world *world, uint64_t bytes) {
  atomic_fetch_sub(&world->memory_now, bytes);
}

uint64_t bs_world_memory_now(const bs_world *world) {
  return atomic_load(&world->memory_now);
}
uint64_t bs_world_memory_peak(const bs_world *world) {
  return atomic_load(&world->memory_peak);
}
void bs_world_memory_peak_reset(bs_world *world) {
  atomic_store(&world->memory_peak, atomic_load(&world->memory_now));
}

/* ---- device blocks -------------------------------------------------------------------------- */

static int32_t block_room(bs_rank *rank, bs_error *err) {
  if (rank->nblocks < rank->blocks_capacity) return BS_OK;
  uint64_t capacity = rank->blocks_capacity != 0 ? 2 * rank->blocks_capacity : 32;
  bs_block *grown = realloc(rank->blocks, capacity * sizeof *grown);
  if (grown == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM-TABLE", "no memory for a table");
  rank->blocks = grown;
  rank->blocks_capacity = capacity;
  return BS_OK;
}

static int32_t device_alloc(bs_rank *rank, uint64_t bytes, void **out_ptr, bs_error *err) {
  int32_t rc = block_room(rank, err);
  if (rc != BS_OK) return rc;
  void *ptr = NULL;
  uint64_t ask = bytes != 0 ? bytes : 1;
  const uint32_t flags = rank->world->backend->flags;
  if (flags & BS_BACKEND_HOST_MEMORY && !(flags & BS_BACKEND_PHANTOM))
    rc = bs_memory_fits(bytes, "BS-MEM-DEVICE", "buffers of a rank", err);
  if (rc == BS_OK) rc = rank->world->backend->mem_alloc(rank->device, ask, ALIGN, &ptr, err);
  if (rc == BS_OK && ptr == NULL)
    rc = bs_error_set(err, BS_NO_MEMORY, "BS-MEM-DEVICE", "backend %s gave no memory for %llu bytes",
                      rank->world->backend->name, (unsigned long long)bytes);
  if (rc != BS_OK) return rc;
  rank->blocks[rank->nblocks++] = (bs_block){.ptr = ptr, .bytes = bytes};
  bs_memory_add(rank->world, bytes);
  *out_ptr = ptr;
  return BS_OK;
}

/* Newest first: what was allocated last is mostly freed first. */
static int forget(bs_rank *rank, const void *ptr, uint32_t lent) {
  for (uint64_t i = rank->nblocks; i-- > 0;) {
    if (rank->blocks[i].ptr != ptr || rank->blocks[i].lent != lent) continue;
    if (!lent) bs_memory_sub(rank->world, rank->blocks[i].bytes);
    rank->blocks[i] = rank->blocks[--rank->nblocks];
    return 1;
  }
  return 0;
}

/* A lent block may be of the rank's own memory, and then begins where a place in it does: places go first. */
static void device_free(bs_rank *rank, void *ptr) {
  if (forget(rank, ptr, 1)) return;
  if (forget(rank, ptr, 0)) {
    rank->world->backend->mem_free(rank->device, ptr);
    return;
  }
  bs_rank_misuse(rank, BS_INTERNAL, "BS-MEM-FREE", "freeing device memory that this rank did not allocate");
}

void *bs_memory_exec_alloc(void *ctx, uint64_t bytes) {
  void *ptr = NULL;
  return device_alloc(ctx, bytes, &ptr, NULL) == BS_OK ? ptr : NULL;
}
void bs_memory_exec_free(void *ctx, void *ptr) {
  if (ptr != NULL) device_free(ctx, ptr);
}

/* ---- scratch ------------------------------------------------------------------------------- */

/* Grows the scratch. Where there is no memory for more, the bytes that earlier plans reserved stay. */
int32_t bs_memory_reserve(void *ctx, uint64_t bytes) {
  bs_rank *rank = ctx;
  void *more = NULL;
  if (bytes > rank->ops.reserved) rank->ops.reserved = bytes;
  if (bytes <= rank->scratch_bytes && rank->scratch != NULL) return BS_OK;
  const int32_t rc = device_alloc(rank, bytes, &more, NULL);
  if (rc != BS_OK) return rc;
  if (rank->scratch != NULL) device_free(rank, rank->scratch);
  rank->scratch = more;
  rank->scratch_bytes = bytes;
  return BS_OK;
}

void *bs_memory_scratch(void *ctx) {
  const bs_rank *rank = ctx;
  /* Two ops of a rank at the same time would share the scratch; that takes two threads, so one is asserted.
   * Coroutines may move between threads. */
  assert(rank->world->comm->launch == BS_LAUNCH_DRIVEN || pthread_equal(rank->thread, pthread_self()));
  return rank->lent != NULL ? rank->lent : rank->scratch;
}

void bs_memory_scratch_free(void *user) {
  bs_rank *rank = user;
  if (rank->scratch != NULL) device_free(rank, rank->scratch);
  rank->scratch = NULL;
  rank->scratch_bytes = 0;
}

void bs_rank_lend_scratch(bs_rank *rank, void *block) {
  rank->lent = block;
}

/* ---- memory of one call of a layer ----------------------------------------------------------- */

void bs_rank_lend_calls(bs_rank *rank, void *block, uint64_t bytes) {
  rank->calls.block = block;
  rank->calls.bytes = block != NULL ? bytes : 0;
}

uint64_t bs_rank_calls_bytes(const bs_rank *rank) {
  return rank->calls.most;
}

void bs_memory_calls_begin(bs_rank *rank) {
  rank->calls.at = rank->calls.need = 0;
  rank->calls.open = 1;
}

void bs_memory_calls_end(bs_rank *rank) {
  bs_calls *c = &rank->calls;
  if (c->need > c->most) c->most = c->need;
  c->open = 0;
}

/* A place in the block that is lent; 0 where it is not, or is too small. Empty tensors have one each too. */
static int take_of_calls(bs_rank *rank, uint64_t bytes, void **out_ptr) {
  bs_calls *c = &rank->calls;
  const uint64_t whole = bytes != 0 ? (bytes + CALL_ALIGN - 1) / CALL_ALIGN * CALL_ALIGN : CALL_ALIGN;
  if (!c->open) return 0;
  c->need = c->need > UINT64_MAX - whole ? UINT64_MAX : c->need + whole;
  if (c->block == NULL || whole > c->bytes - c->at || block_room(rank, NULL) != BS_OK) return 0;
  *out_ptr = (char *)c->block + c->at;
  c->at += whole;
  rank->blocks[rank->nblocks++] = (bs_block){.ptr = *out_ptr, .bytes = bytes, .lent = 1};
  return 1;
}

const void *bs_rank_scratch(const bs_rank *rank) {
  return rank->lent != NULL ? rank->lent : rank->scratch;
}

uint64_t bs_rank_scratch_bytes(const bs_rank *rank) {
  return rank->scratch_bytes;
}

void bs_rank_watch(bs_rank *rank, bs_watch *watch) {
  rank->ops.watch = watch;
}

/* ---- host memory ---------------------------------------------------------------------------- */

void *bs_memory_host_alloc(bs_rank *rank, uint64_t bytes) {
  uint64_t total;
  void *base = NULL;
  if (!bs_add_u64(bytes, HOST_HEADER, &total) || total > SIZE_MAX) return NULL;
  if (posix_memalign(&base, ALIGN, (size_t)total) != 0) return NULL;
  memset(base, 0, (size_t)total);
  memcpy(base, &bytes, sizeof bytes);
  bs_memory_add(rank->world, bytes);
  return (char *)base + HOST_HEADER;
}
void bs_memory_host_free(bs_rank *rank, void *ptr) {
  if (ptr == NULL) return;
  void *base = (char *)ptr - HOST_HEADER;
  uint64_t bytes;
  memcpy(&bytes, base, sizeof bytes);
  bs_memory_sub(rank->world, bytes);
  free(base);
}

/* ---- tensors -------------------------------------------------------------------------------- */

/* Bytes from the first to the end of the last element; strides of zero mean dense. */
static int32_t tensor_extent(const bs_tensor_desc *desc, bs_tensor *out, bs_error *err) {
  int dense = 1;
  if (desc->rank > BS_MAX_DIMS)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-TENSOR-RANK", "a tensor of rank %u; at most %d",
                        desc->rank, BS_MAX_DIMS);
  if (bs_dtype_name(desc->dtype)[0] == '?')
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-TENSOR-DTYPE", "unknown dtype 0x%04x", desc->dtype);
  for (uint32_t i = 0; i < desc->rank; ++i) {
    if (desc->dims[i] < 0 || desc->strides[i] < 0)
      return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-TENSOR-SHAPE", "dimension %u is %lld, stride %lld", i,
                          (long long)desc->dims[i], (long long)desc->strides[i]);
    if (desc->strides[i] != 0) dense = 0;
  }
  memset(out, 0, sizeof *out);
  out->struct_size = (uint32_t)sizeof *out;
  out->dtype = desc->dtype;
  out->rank = desc->rank;
  int64_t elements = 1, step = 1;
  int empty = 0, ok = 1;
  for (uint32_t k = desc->rank; k-- > 0;) {
    int64_t reach = 0;
    out->dims[k] = desc->dims[k];
    out->strides[k] = dense ? step : desc->strides[k];
    if (desc->dims[k] == 0) empty = 1;
    if (dense) ok = ok && bs_mul_i64(step, desc->dims[k] > 0 ? desc->dims[k] : 1, &step);
    if (desc->dims[k] > 0) {
      ok = ok && bs_mul_i64(desc->dims[k] - 1, out->strides[k], &reach);
      ok = ok && bs_add_i64(elements, reach, &elements);
    }
  }
  uint64_t bytes = 0;
  ok = ok && bs_mul_u64(empty ? 0 : (uint64_t)elements, BS_DTYPE_BYTES(desc->dtype), &bytes);
  if (!ok || bytes > (uint64_t)INT64_MAX)
    return bs_error_set(err, BS_OVERFLOW, "BS-TENSOR-SIZE", "the size of a tensor of rank %u overflows",
                        desc->rank);
  out->bytes = bytes;
  return BS_OK;
}

static int32_t zero_device(bs_rank *rank, void *ptr, uint64_t bytes, bs_error *err) {
  const bs_backend *backend = rank->world->backend;
  if (backend->flags & BS_BACKEND_HOST_MEMORY) {
    memset(ptr, 0, (size_t)bytes);
    return BS_OK;
  }
  static const unsigned char zeros[4096];
  uint64_t done = bytes < sizeof zeros ? bytes : sizeof zeros;
  int32_t rc = BS_OK;
  if (bytes > 0) rc = backend->mem_copy(rank->device, ptr, zeros, done, BS_COPY_HOST_TO_DEVICE, NULL, err);
  while (rc == BS_OK && done < bytes) { /* then from itself, twice as much each time */
    const uint64_t part = bytes - done < done ? bytes - done : done;
    rc = backend->mem_copy(rank->device, (char *)ptr + done, ptr, part, BS_COPY_DEVICE_TO_DEVICE, NULL, err);
    done += part;
  }
  return rc == BS_OK ? bs_rank_sync(rank, err) : rc;
}

int32_t bs_memory_tensor_alloc(bs_rank *rank, const bs_tensor_desc *desc, uint32_t lifetime,
                               bs_tensor *out_tensor, bs_error *err) {
  bs_tensor tensor;
  if (lifetime < BS_LIFE_WEIGHTS || lifetime > BS_LIFE_CALL)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-TENSOR-LIFE", "unknown lifetime %u", lifetime);
  int32_t rc = tensor_extent(desc, &tensor, err);
  if (rc != BS_OK) return rc;
  if (lifetime == BS_LIFE_CALL && take_of_calls(rank, tensor.bytes, &tensor.data)) {
    *out_tensor = tensor;
    return BS_OK;
  }
  rc = device_alloc(rank, tensor.bytes, &tensor.data, err);
  if (rc != BS_OK) return rc;
  rc = zero_device(rank, tensor.data, tensor.bytes, err);
  if (rc != BS_OK) {
    device_free(rank, tensor.data);
    return rc;
  }
  *out_tensor = tensor;
  return BS_OK;
}

void bs_memory_tensor_free(bs_rank *rank, bs_tensor *tensor) {
  if (tensor == NULL || tensor->data == NULL) return;
  device_free(rank, tensor->data);
  tensor->data = NULL;
  tensor->bytes = 0;
}

static int32_t check_read(const bs_source *source, int64_t row, const bs_partition *cols,
                          const bs_tensor *out, bs_error *err) {
  int64_t width = cols != NULL ? cols->count : source->cols;
  if (out->rank != 2 || out->dims[1] != width)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-TENSOR-READ",
                        "reading %lld columns into a tensor of rank %u with %lld", (long long)width,
                        out->rank, (long long)out->dims[1]);
  if (row < 0 || row > source->rows || out->dims[0] > source->rows - row)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-TENSOR-READ", "reading rows %lld..%lld of %lld",
                        (long long)row, (long long)(row + out->dims[0]), (long long)source->rows);
  if (out->dims[1] > 1 && out->strides[1] != 1)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-TENSOR-READ",
                        "columns must be adjacent, stride is %lld", (long long)out->strides[1]);
  return BS_OK;
}

/* Panel by panel through host memory. */
static int32_t read_panels(bs_rank *rank, const bs_source *source, int64_t row, const bs_partition *cols,
                           bs_tensor *out, bs_error *err) {
  const bs_backend *backend = rank->world->backend;
  uint64_t size = BS_DTYPE_BYTES(out->dtype);
  uint64_t row_bytes = (uint64_t)out->dims[1] * size;
  int64_t panel = row_bytes >= PANEL_BYTES ? 1 : (int64_t)(PANEL_BYTES / row_bytes);
  if (panel > out->dims[0]) panel = out->dims[0];
  char *host = bs_memory_host_alloc(rank, (uint64_t)panel * row_bytes);
  if (host == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM-HOST", "no memory for a panel");
  int32_t rc = BS_OK;
  for (int64_t at = 0; rc == BS_OK && at < out->dims[0]; at += panel) {
    int64_t n = out->dims[0] - at < panel ? out->dims[0] - at : panel;
    rc = source->read(source->ctx, row + at, n, cols, out->dtype, host, out->dims[1], err);
    const int64_t each = out->strides[0] == out->dims[1] ? n : 1; /* contiguous rows: one copy */
    for (int64_t i = 0; rc == BS_OK && i < n; i += each)
      rc = backend->mem_copy(rank->device, (char *)out->data + (uint64_t)((at + i) * out->strides[0]) * size,
                             host + (uint64_t)i * row_bytes, (uint64_t)each * row_bytes,
                             BS_COPY_HOST_TO_DEVICE, NULL, err);
    if (rc == BS_OK) rc = bs_rank_sync(rank, err);
  }
  bs_memory_host_free(rank, host);
  return rc;
}

/* 1 and its result where the device makes the values itself. */
static int made_there(bs_rank *rank, const bs_source *source, int64_t row, const bs_partition *cols,
                      bs_tensor *out, int32_t *out_rc, bs_error *err) {
  const bs_backend *backend = rank->world->backend;
  bs_error why = {.struct_size = sizeof why, .rank = -1};
  if (backend->source_read == NULL) return 0;
  *out_rc = backend->source_read(rank->device, source, row, cols, out, &why);
  if (*out_rc == BS_UNSUPPORTED) return 0;
  if (*out_rc != BS_OK && err != NULL) *err = why;
  if (*out_rc == BS_OK && (backend->flags & BS_BACKEND_PHANTOM) == 0) {
    char text[96];
    snprintf(text, sizeof text, "generate@%s/philox", backend->name);
    rank->ops.note_algorithm(rank->ops.user, text);
  }
  return 1;
}

int32_t bs_memory_tensor_read(bs_rank *rank, const bs_source *source, int64_t row, const bs_partition *cols,
                              bs_tensor *out, bs_error *err) {
  int32_t rc = check_read(source, row, cols, out, err);
  if (rc != BS_OK || out->dims[0] == 0 || out->dims[1] == 0) return rc;
  if (rank->world->backend->flags & BS_BACKEND_HOST_MEMORY)
    return source->read(source->ctx, row, out->dims[0], cols, out->dtype, out->data, out->strides[0], err);
  if (made_there(rank, source, row, cols, out, &rc, err)) return rc == BS_OK ? bs_rank_sync(rank, err) : rc;
  return read_panels(rank, source, row, cols, out, err);
}

/* ---- copies ---------------------------------------------------------------------------------- */

int32_t bs_rank_copy(bs_rank *rank, void *to, const void *from, uint64_t bytes, uint32_t kind,
                     bs_error *err) {
  const bs_backend *backend = rank->world->backend;
  if (bytes == 0) return BS_OK;
  if (rank->ops.watch != NULL && kind != BS_COPY_DEVICE_TO_DEVICE) rank->ops.watch->copied_bytes += bytes;
  if ((backend->flags & BS_BACKEND_HOST_MEMORY) == 0)
    return backend->mem_copy(rank->device, to, from, bytes, kind, NULL, err);
  memcpy(to, from, (size_t)bytes);
  return BS_OK;
}

/* ---- copy out ------------------------------------------------------------------------------- */

int32_t bs_rank_copy_out(bs_rank *rank, const bs_tensor *tensor, void *out_host, bs_error *err) {
  const bs_backend *backend = rank->world->backend;
  uint64_t size = BS_DTYPE_BYTES(tensor->dtype), rows = 1;
  int64_t last = tensor->rank > 0 ? tensor->dims[tensor->rank - 1] : 1;
  if (tensor->rank > BS_MAX_DIMS)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-TENSOR-RANK", "a tensor of rank %u", tensor->rank);
  int adjacent = tensor->rank == 0 || last <= 1 || tensor->strides[tensor->rank - 1] == 1;
  int32_t rc = bs_rank_sync(rank, err);
  for (uint32_t i = 0; i < tensor->rank; ++i)
    if (i + 1 < tensor->rank || !adjacent) rows *= (uint64_t)tensor->dims[i];
  uint64_t piece = (adjacent ? (uint64_t)last : 1u) * size;
  uint32_t outer = adjacent && tensor->rank > 0 ? tensor->rank - 1 : tensor->rank;
  if (piece == 0) return rc;
  for (uint64_t n = 0; rc == BS_OK && n < rows; ++n) { /* n-th run of adjacent elements */
    uint64_t rest = n;
    int64_t offset = 0;
    for (uint32_t k = outer; k-- > 0;) {
      offset += (int64_t)(rest % (uint64_t)tensor->dims[k]) * tensor->strides[k];
      rest /= (uint64_t)tensor->dims[k];
    }
    const char *from = (const char *)tensor->data + offset * (int64_t)size;
    char *to = (char *)out_host + n * piece;
    if (backend->flags & BS_BACKEND_HOST_MEMORY)
      memcpy(to, from, piece);
    else
      rc = backend->mem_copy(rank->device, to, from, piece, BS_COPY_DEVICE_TO_HOST, NULL, err);
  }
  return rc == BS_OK ? bs_rank_sync(rank, err) : rc;
}
