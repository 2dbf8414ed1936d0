/* SPDX-License-Identifier: MIT
 * peak.h - loops that only multiply and add: the largest arithmetic rate of one core with an instruction
 * set. */
#ifndef BS_LAB_MEASURE_PEAK_H
#define BS_LAB_MEASURE_PEAK_H
#include <stddef.h>
#include <stdint.h>

typedef struct bs_peak {
  const char *name; /* "portable", "avx2", "avx512", with _f64, avx512_ with _bf16, _fp16, _vnni, amx_bf16,
                       amx_int8 */
  double flops_per_iteration; /* of int8: integer operations */
  float (*run)(uint64_t iterations);
} bs_peak;

enum { BS_PEAKS = 5 };

/* The loops that this CPU can run for products of `dtype` (enum bs_dtype), the widest first; avx2_only: none
 * wider than AVX2. Returns their number, at most max. f64 is summed in f64, other dtypes in fp32 (FP16 and
 * int8: in themselves and in int32), and 16-bit factors may be widened before. At most BS_PEAKS. */
uint32_t bs_peak_loops(uint32_t dtype, int avx2_only, bs_peak *out, uint32_t max);

/* reading.c: loops that only read memory: the largest byte rate of a core. */
enum { BS_READERS = 3, BS_READ_UNIT = 256 }; /* a share is a whole number of units, of bytes */

typedef struct bs_reader {
  const char *name;
  /* Blocks of `step` bytes (a multiple of the unit; 0: all in one), of each four runs at a time. */
  uint64_t (*run)(const char *data, size_t bytes, size_t step);
} bs_reader;

/* Loop number `index` or NULL: this CPU cannot run it, or it may not. */
const bs_reader *bs_reader_at(uint32_t index, int avx2_only);
#endif
