/* SPDX-License-Identifier: MIT
 * safetensors.h - the safetensors container: 8-byte header length, JSON header, data. Mapped read-only; what
 * is cut from the file meanwhile reads as zeros, and bs_map_unchanged(&st->map) fails. Checks in order: file
 * >= 8 bytes; header <= 16 MiB and inside the file; JSON object without duplicate names, depth 4; per tensor
 * known dtype, shape product and bits, offsets inside the data; no overlap, no hole, no trailing bytes. */
#ifndef BS_FORMATS_SAFETENSORS_H
#define BS_FORMATS_SAFETENSORS_H
#include "blockshock/blockshock.h"
#include "formats/map.h"
#define BS_ST_MAX_DIMS 8
#define BS_ST_MAX_HEADER (16u << 20)
#define BS_ST_MAX_DEPTH 4
#define BS_ST_MAX_TENSORS 1000000u
#define BS_ST_MAX_NAME 1024u
typedef struct bs_st_tensor {
  char *name;
  uint32_t
      dtype; /* enum bs_dtype; 0: a dtype of the format that we do not compute with (I16, U64, F4, ...) */
  uint32_t rank;
  int64_t dims[BS_ST_MAX_DIMS];
  const void *data; /* mapped; the format does not promise alignment to the element */
  uint64_t bytes;
  uint64_t offset;       /* of data in the file, for bs_map_pread */
  const char *type_name; /* as in the file: "BF16"; static */
} bs_st_tensor;
typedef struct bs_st {
  bs_st_tensor *tensors; /* in order of offset */
  uint64_t count;
  bs_map map;
} bs_st;
/* Errors are BS_INPUT (exit 4), ids BS-ST-*. On failure *out_st is closed. */
int32_t bs_st_open(const char *path, bs_st *out_st, bs_error *err);
void bs_st_close(bs_st *st);
/* BS_INPUT: BS-ST-NOTFOUND with the nearest name when missing, BS-ST-DTYPE when its dtype is 0.
 * Thread-safe. */
int32_t bs_st_find(const bs_st *st, const char *name, const bs_st_tensor **out_tensor, bs_error *err);
#endif
