/* SPDX-License-Identifier: MIT
 * safetensors.h - the safetensors container: 8-byte header length, JSON header, data. Mapped read-only.
 * Checks in order: file >= 8 bytes; header <= 16 MiB and inside the file; JSON object without duplicate
 * names, depth 4; per tensor known dtype, shape product and bits, offsets inside the data; no overlap, no
 * hole, no trailing bytes. */
#ifndef BS_FORMATS_SAFETENSORS_H
#define BS_FORMATS_SAFETENSORS_H
#include "blockshock/blockshock.h"
#define BS_ST_MAX_DIMS 8
typedef struct bs_st_tensor {
  char *name;
  uint32_t dtype; /* enum bs_dtype */
  uint32_t rank;
  int64_t dims[BS_ST_MAX_DIMS];
  const void *data;
  uint64_t bytes;
} bs_st_tensor;
typedef struct bs_st {
  bs_st_tensor *tensors; /* in order of offset */
  uint64_t count;
  void *map;
  uint64_t map_bytes;
} bs_st;
/* Errors are BS_INPUT (exit 4), ids BS-ST-*. */
int32_t bs_st_open(const char *path, bs_st *out_st, bs_error *err);
void bs_st_close(bs_st *st);
/* BS_INPUT with the nearest name when missing. */
int32_t bs_st_find(const bs_st *st, const char *name, const bs_st_tensor **out_tensor, bs_error *err);
#endif
