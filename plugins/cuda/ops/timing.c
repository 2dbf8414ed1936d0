/* SPDX-License-Identifier: MIT
 * timing.c - see timing.h. */
#include "timing.h"

enum { REPEATS = 3, BLOCK = 1 << 18 };

static int32_t random_block(cuda_stage *st, bs_error *err) {
  const bs_host *host = st->device->state->host;
  st->random = host->alloc(host->ctx, BLOCK, 64);
  if (st->random == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CUDA-MEMORY", "no memory to time products");
  uint64_t x = 0x9e3779b97f4a7c15u;
  for (size_t i = 0; i < BLOCK / 8; i++) {
    uint64_t z = x += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    memcpy((char *)st->random + 8 * i, &z, 8);
  }
  return BS_OK;
}

int32_t cuda_stage_begin(cuda_stage *st, const bs_exec *exec, bs_error *err) {
  memset(st, 0, sizeof *st);
  st->exec = exec;
  st->device = exec->device;
  const cuda_functions *call = &st->device->driver->call;
  int32_t rc = random_block(st, err);
  if (rc == BS_OK) rc = cuda_check(st->device, call->event_create(&st->start, 0), "cuEventCreate", err);
  if (rc == BS_OK) rc = cuda_check(st->device, call->event_create(&st->stop, 0), "cuEventCreate", err);
  return rc;
}

int32_t cuda_stage_block(cuda_stage *st, uint64_t bytes, void **out, bs_error *err) {
  void *block = st->count < CUDA_STAGE_BLOCKS ? st->exec->alloc(st->exec->ctx, bytes) : NULL;
  if (block == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CUDA-MEMORY", "no device memory to time products");
  st->blocks[st->count++] = block;
  *out = block;
  for (uint64_t at = 0; at < bytes; at += BLOCK) {
    const uint64_t left = bytes - at;
    const int32_t rc = cuda_upload(st->device, (char *)block + at, st->random, left < BLOCK ? left : BLOCK,
                                   st->device->stream, err);
    if (rc != BS_OK) return rc;
  }
  return BS_OK;
}

int32_t cuda_stage_time(const cuda_stage *st,
                        int32_t (*queue)(const void *arg, int *out_refused, bs_error *err), const void *arg,
                        float *out_ms, bs_error *err) {
  const cuda_functions *call = &st->device->driver->call;
  const CUstream stream = st->device->stream;
  int32_t rc = BS_OK;
  *out_ms = -1.0f;
  for (int i = 0; rc == BS_OK && i <= REPEATS; i++) {
    int refused = 0;
    rc = queue(arg, &refused, err);
    if (rc == BS_OK && refused) return BS_OK;
    if (rc == BS_OK && i == 0)
      rc = cuda_check(st->device, call->event_record(st->start, stream), "cuEventRecord", err);
  }
  if (rc == BS_OK) rc = cuda_check(st->device, call->event_record(st->stop, stream), "cuEventRecord", err);
  if (rc == BS_OK) rc = cuda_check(st->device, call->event_synchronize(st->stop), "cuEventSynchronize", err);
  if (rc != BS_OK) return rc;
  return cuda_check(st->device, call->event_elapsed(out_ms, st->start, st->stop), "cuEventElapsedTime", err);
}

void cuda_stage_end(cuda_stage *st) {
  const cuda_functions *call = &st->device->driver->call;
  const bs_host *host = st->device->state->host;
  (void)cuda_wait(st->device, st->device->stream, NULL);
  if (st->start != NULL) (void)call->event_destroy(st->start);
  if (st->stop != NULL) (void)call->event_destroy(st->stop);
  while (st->count > 0) st->exec->free(st->exec->ctx, st->blocks[--st->count]);
  if (st->random != NULL) host->free(host->ctx, st->random);
}
