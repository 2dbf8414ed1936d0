/* SPDX-License-Identifier: MIT
 * npy.h - NumPy .npy files, versions 1-3 (numpy.lib.format). Reading maps the file read-only; caps: header
 * 10,000 bytes, 32 dims, little endian, dtypes <f8 <f4 <f2 <i8 <i4 |i1 |u1 |b1; bf16 as <u2 is not data. An
 * array in Fortran order, and one whose data do not begin at a multiple of the element, are copied. */
#ifndef BS_FORMATS_NPY_H
#define BS_FORMATS_NPY_H
#include "blockshock/blockshock.h"
#include "formats/map.h"
#define BS_NPY_MAX_DIMS 32
#define BS_NPY_MAX_HEADER 10000u
typedef struct bs_npy {
  uint32_t dtype; /* enum bs_dtype */
  uint32_t rank;
  int64_t dims[BS_NPY_MAX_DIMS];
  uint64_t count;   /* elements */
  const void *data; /* in C order, aligned to the element: mapped, or `copy` */
  uint64_t offset;  /* of data in the file; bs_npy_read reads from there */
  void *copy;       /* NULL: the file holds the elements as `data` does */
  uint32_t fortran; /* 1: the file says Fortran order; dims are those of C order all the same */
  uint32_t reserved;
  bs_map map;
} bs_npy;
/* Errors are BS_INPUT (exit 4) with ids BS-NPY-*; the file's place in err->where. On failure *out_npy is
 * closed. */
int32_t bs_npy_open(const char *path, bs_npy *out_npy, bs_error *err);
/* `bytes` of the data from byte `from` on, in C order; as bs_map_pread does, it tells of a file that became
 * shorter. Thread-safe. */
int32_t bs_npy_read(const bs_npy *npy, const char *path, uint64_t from, void *out, uint64_t bytes,
                    bs_error *err);
void bs_npy_close(bs_npy *npy);
/* Write version 1.0, C order. bf16 and fp8 are widened to f32 (NumPy has no such dtype). Written to a
 * temporary name, fsynced, renamed: no half file. BS_IO on failure. Thread-safe. */
int32_t bs_npy_write(const char *path, uint32_t dtype, uint32_t rank, const int64_t *dims, const void *data,
                     bs_error *err);
#endif
