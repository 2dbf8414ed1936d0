/* SPDX-License-Identifier: MIT
 * values.c - memory of all ranks, and what the steps of a schedule do to it. */
#include "sim/values.h"

#include <stdlib.h>
#include <string.h>

#include "blockshock/plugin.h"
#include "core/base/dtype.h"
#include "core/base/error.h"

enum { CANARY = 64, CANARY_BYTE = 0xa5, FILL_BYTE = 0xc3 };

typedef struct block {
  unsigned char *base; /* after the first canary; NULL: it has no separate memory */
  uint64_t bytes;
} block;

struct sim_values {
  const bs_coll_shape *shape;
  sim_element element;
  sim_data data;
  int in_place;
  block *blocks; /* 3 a rank */
};

int sim_source_of(const bs_coll_shape *shape, uint32_t rank, uint64_t index, uint32_t *out_rank,
                  uint64_t *out_index) {
  uint32_t low = 0, high = shape->world_size;
  const uint64_t own = bs_coll_first(shape, rank + 1) - bs_coll_first(shape, rank);
  *out_rank = shape->root;
  *out_index = index;
  switch (shape->kind) {
    case BS_COLL_REDUCE_SCATTER:
      *out_index = bs_coll_first(shape, rank) + index;
      return 1;
    case BS_COLL_BROADCAST:
      return 0;
    case BS_COLL_ALL_GATHER:
      while (high - low > 1) { /* the last block that begins at or before index */
        const uint32_t middle = low + (high - low) / 2;
        if (bs_coll_first(shape, middle) <= index)
          low = middle;
        else
          high = middle;
      }
      *out_rank = low;
      *out_index = index - bs_coll_first(shape, low);
      return 0;
    case BS_COLL_ALL_TO_ALL:
      *out_rank = own > 0 ? (uint32_t)(index / own) : 0;
      *out_index = bs_coll_first(shape, rank) + (own > 0 ? index % own : 0);
      return 0;
    default:
      return 1;
  }
}

/* ---- typed elements --------------------------------------------------------------------------- */

static int32_t add_i64(int64_t *dst, const int64_t *src, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) dst[i] = (int64_t)((uint64_t)dst[i] + (uint64_t)src[i]);
  return BS_OK;
}

static int32_t add_typed(const sim_element *self, void *dst, const void *src, uint64_t count, bs_error *err) {
  (void)err;
  if (self->dtype == BS_I64) return add_i64(dst, src, count);
  if (self->dtype == BS_F32) { /* one rounding: in f64 there would be two */
    float *to = dst;
    const float *from = src;
    for (uint64_t i = 0; i < count; ++i) to[i] += from[i];
    return BS_OK;
  }
  for (uint64_t i = 0; i < count; ++i)
    bs_store_f64(self->dtype, dst, (int64_t)i,
                 bs_load_f64(self->dtype, dst, (int64_t)i) + bs_load_f64(self->dtype, src, (int64_t)i));
  return BS_OK;
}

sim_element sim_typed(uint32_t dtype) {
  return (sim_element){.bytes = BS_DTYPE_BYTES(dtype), .add = add_typed, .dtype = dtype};
}

/* ---- steps ------------------------------------------------------------------------------------ */

void *sim_values_at(sim_values *v, uint32_t rank, uint32_t buffer, uint64_t index) {
  if (buffer == BS_BUFFER_IN && v->in_place && v->shape->kind == BS_COLL_ALL_GATHER)
    index += bs_coll_first(v->shape, rank);
  if (buffer == BS_BUFFER_IN && v->in_place) buffer = BS_BUFFER_OUT;
  return v->blocks[(size_t)rank * 3 + buffer].base + index * v->element.bytes;
}

static int32_t pack(void *user, uint32_t rank, const sim_step *s, void **out_payload, bs_error *err) {
  sim_values *v = user;
  const size_t bytes = (size_t)(s->count * v->element.bytes);
  *out_payload = malloc(bytes + 1);
  if (*out_payload == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "no memory for a message");
  memcpy(*out_payload, sim_values_at(v, rank, s->buffer, s->first), bytes);
  return BS_OK;
}

static int32_t put(void *user, uint32_t rank, const sim_step *s, const void *payload, bs_error *err) {
  sim_values *v = user;
  (void)err;
  memcpy(sim_values_at(v, rank, s->buffer, s->first), payload, (size_t)(s->count * v->element.bytes));
  return BS_OK;
}

static int32_t add(void *user, uint32_t rank, const sim_step *s, const void *payload, bs_error *err) {
  sim_values *v = user;
  if (payload == NULL) payload = sim_values_at(v, rank, s->from_buffer, s->from_first);
  return v->element.add(&v->element, sim_values_at(v, rank, s->buffer, s->first), payload, s->count, err);
}

static int32_t copy(void *user, uint32_t rank, const sim_step *s, bs_error *err) {
  sim_values *v = user;
  (void)err;
  memmove(sim_values_at(v, rank, s->buffer, s->first), sim_values_at(v, rank, s->from_buffer, s->from_first),
          (size_t)(s->count * v->element.bytes));
  return BS_OK;
}

static void drop(void *user, void *payload) {
  (void)user;
  free(payload);
}

/* ---- memory ----------------------------------------------------------------------------------- */

static int32_t make_block(sim_values *v, uint32_t rank, uint32_t buffer, uint64_t elements, bs_error *err) {
  block *b = &v->blocks[(size_t)rank * 3 + buffer];
  if (elements > (SIZE_MAX / 2 - 2 * CANARY) / v->element.bytes)
    return bs_error_set(err, BS_OVERFLOW, "BS-ALG-SIZE", "a buffer of %llu elements",
                        (unsigned long long)elements);
  b->bytes = elements * v->element.bytes;
  unsigned char *all = aligned_alloc(64, (size_t)(b->bytes + 2 * CANARY + 63) / 64 * 64);
  if (all == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "no memory for rank %u's buffers", rank);
  memset(all, CANARY_BYTE, CANARY);
  memset(all + CANARY, FILL_BYTE, (size_t)b->bytes);
  memset(all + CANARY + b->bytes, CANARY_BYTE, CANARY);
  b->base = all + CANARY;
  return BS_OK;
}

int32_t sim_values_new(const bs_algorithm *algorithm, void *state, const bs_coll_shape *shape,
                       sim_element element, int in_place, sim_values **out_values, bs_error *err) {
  sim_values *v = calloc(1, sizeof *v);
  if (v != NULL) v->blocks = calloc((size_t)shape->world_size * 3, sizeof *v->blocks);
  if (v == NULL || v->blocks == NULL) {
    free(v);
    return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "no memory for the values of %u ranks",
                        shape->world_size);
  }
  v->shape = shape;
  v->element = element;
  v->in_place = in_place;
  v->data = (sim_data){v, pack, put, add, copy, drop};
  int32_t rc = BS_OK;
  for (uint32_t rank = 0; rc == BS_OK && rank < shape->world_size; ++rank) {
    uint64_t scratch = 0;
    rc = sim_scratch_of(algorithm, state, shape, rank, &scratch, err);
    for (uint32_t b = in_place ? BS_BUFFER_OUT : BS_BUFFER_IN; rc == BS_OK && b <= BS_BUFFER_SCRATCH; ++b)
      rc = make_block(v, rank, b, sim_buffer_elements(shape, scratch, rank, b), err);
  }
  if (rc != BS_OK) {
    sim_values_free(v);
    return rc;
  }
  *out_values = v;
  return BS_OK;
}

void sim_values_free(sim_values *v) {
  if (v == NULL) return;
  for (size_t i = 0; i < (size_t)v->shape->world_size * 3; ++i)
    if (v->blocks[i].base != NULL) free(v->blocks[i].base - CANARY);
  free(v->blocks);
  free(v);
}

const sim_data *sim_values_data(sim_values *v) {
  return &v->data;
}

int32_t sim_values_canaries(const sim_values *v, bs_error *err) {
  static const char *const names[] = {"IN", "OUT", "SCRATCH"};
  for (size_t i = 0; i < (size_t)v->shape->world_size * 3; ++i) {
    const block *b = &v->blocks[i];
    for (size_t k = 0; b->base != NULL && k < CANARY; ++k)
      if (b->base[b->bytes + k] != CANARY_BYTE || b->base[-1 - (ptrdiff_t)k] != CANARY_BYTE)
        return bs_error_set(err, BS_NUMERIC, "BS-CCL-CANARY", "rank %zu wrote outside of %s", i / 3,
                            names[i % 3]);
  }
  return BS_OK;
}

uint64_t sim_values_bytes(const bs_algorithm *algorithm, void *state, const bs_coll_shape *shape,
                          uint32_t element_bytes) {
  double sum = 0;
  for (uint32_t rank = 0; rank < shape->world_size; ++rank) {
    uint64_t scratch = 0;
    if (sim_scratch_of(algorithm, state, shape, rank, &scratch, NULL) != BS_OK) continue;
    for (uint32_t b = BS_BUFFER_IN; b <= BS_BUFFER_SCRATCH; ++b)
      sum += (double)sim_buffer_elements(shape, scratch, rank, b) * element_bytes;
  }
  return sum < 1e18 ? (uint64_t)sum : UINT64_MAX;
}
