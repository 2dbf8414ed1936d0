/* SPDX-License-Identifier: MIT
 * device.c - see apart.h: memory, and copies that check which side each address is on. */
#include <sys/mman.h>

#include "tests/graph/apart/apart.h"

enum { EDGE = 64 };

int32_t apart_reserve(apart_state *s, bs_error *err) {
  s->range = UINT64_C(4) << 30;
  s->base = mmap(NULL, (size_t)s->range, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (s->base == MAP_FAILED)
    return bs_fail(err, BS_NO_MEMORY, "BS-APART-MEMORY", "no range of addresses for a device");
  if (pthread_mutex_init(&s->lock, NULL) == 0) return BS_OK;
  (void)munmap(s->base, (size_t)s->range);
  return bs_fail(err, BS_NO_MEMORY, "BS-APART-MEMORY", "no mutex for a device");
}

void apart_release(apart_state *s) {
  (void)munmap(s->base, (size_t)s->range);
  (void)pthread_mutex_destroy(&s->lock);
}

void apart_open(apart_state *s) {
  (void)pthread_mutex_lock(&s->lock);
  if (s->open++ == 0) (void)mprotect(s->base, (size_t)s->range, PROT_READ | PROT_WRITE);
  (void)pthread_mutex_unlock(&s->lock);
}

void apart_close(apart_state *s) {
  (void)pthread_mutex_lock(&s->lock);
  if (--s->open == 0) (void)mprotect(s->base, (size_t)s->range, PROT_NONE);
  (void)pthread_mutex_unlock(&s->lock);
}

static int32_t device_count(void *state, uint32_t *out_count, bs_error *err) {
  (void)state;
  (void)err;
  *out_count = 1;
  return BS_OK;
}

static int32_t device_info(void *state, uint32_t index, bs_device_info *out_info, bs_error *err) {
  (void)index;
  (void)err;
  const apart_state *s = state;
  out_info->memory_bytes = s->room;
  snprintf(out_info->name, sizeof out_info->name, "memory apart");
  return BS_OK;
}

static int32_t device_open(void *state, uint32_t index, void **out_device, bs_error *err) {
  (void)index;
  apart_state *s = state;
  apart_device *d = s->ref.host->alloc(s->ref.host->ctx, sizeof *d, 64);
  if (d == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-APART-MEMORY", "no memory for a device");
  *d = (apart_device){.state = s};
  *out_device = d;
  return BS_OK;
}

static void device_close(void *opaque) {
  apart_device *d = opaque;
  if (d != NULL) d->state->ref.host->free(d->state->ref.host->ctx, d);
}

/* A block's size stands before it. Addresses are given once. */
static int32_t mem_alloc(void *opaque, uint64_t bytes, uint64_t align, void **out_ptr, bs_error *err) {
  const apart_device *d = opaque;
  apart_state *s = d->state;
  if (align < EDGE) align = EDGE;
  (void)pthread_mutex_lock(&s->lock);
  const uint64_t at = (s->used + EDGE + align - 1) / align * align, left = s->room - s->taken;
  const int fits = bytes <= left && bytes <= s->range - at;
  if (fits) s->used = at + bytes;
  if (fits) s->taken += bytes;
  (void)pthread_mutex_unlock(&s->lock);
  if (!fits)
    return bs_fail(err, BS_NO_MEMORY, "BS-APART-MEMORY", "no room for %llu bytes: %llu of %llu are free",
                   (unsigned long long)bytes, (unsigned long long)left, (unsigned long long)s->room);
  *out_ptr = s->base + at;
  apart_open(s);
  memcpy(s->base + at - EDGE, &bytes, sizeof bytes);
  memset(s->base + at, 0xee, (size_t)bytes);
  apart_close(s);
  return BS_OK;
}

static void mem_free(void *opaque, void *ptr) {
  const apart_device *d = opaque;
  uint64_t bytes;
  apart_open(d->state);
  memcpy(&bytes, (unsigned char *)ptr - EDGE, sizeof bytes);
  memset(ptr, 0xdd, (size_t)bytes);
  apart_close(d->state);
  (void)pthread_mutex_lock(&d->state->lock);
  d->state->taken -= bytes;
  (void)pthread_mutex_unlock(&d->state->lock);
}

static int is_there(const apart_state *s, const void *ptr) {
  return (const unsigned char *)ptr >= s->base && (const unsigned char *)ptr < s->base + s->range;
}

static int32_t mem_copy(void *opaque, void *to, const void *from, uint64_t bytes, uint32_t kind,
                        bs_stream *stream, bs_error *err) {
  (void)stream;
  const apart_device *d = opaque;
  if (is_there(d->state, to) != (kind != BS_COPY_DEVICE_TO_HOST) ||
      is_there(d->state, from) != (kind != BS_COPY_HOST_TO_DEVICE))
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-APART-COPY", "a copy of kind %u has the wrong sides", kind);
  (void)pthread_mutex_lock(&d->state->lock);
  const int fails = ++d->state->copies == d->state->fails;
  (void)pthread_mutex_unlock(&d->state->lock);
  if (fails)
    return bs_fail(err, BS_IO, "BS-APART-FAILS", "copy %llu fails as asked",
                   (unsigned long long)d->state->fails);
  apart_open(d->state);
  memmove(to, from, (size_t)bytes);
  apart_close(d->state);
  return BS_OK;
}

const bs_src_loc apart_backend_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_backend apart_backend = {
    .struct_size = (uint32_t)sizeof(bs_backend),
    .flags = BS_BACKEND_SYNC,
    .name = "apart",
    .summary = "ref behind memory that the host cannot reach",
    .device_count = device_count,
    .device_info = device_info,
    .device_open = device_open,
    .device_close = device_close,
    .mem_alloc = mem_alloc,
    .mem_free = mem_free,
    .mem_copy = mem_copy,
};
