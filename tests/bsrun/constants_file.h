/* SPDX-License-Identifier: MIT
 * constants_file.h - a file of machine constants with round numbers, valid for the bsrun under test: it has
 * the same processor, cores and library as the test. */
#ifndef TESTS_BSRUN_CONSTANTS_FILE_H
#define TESTS_BSRUN_CONSTANTS_FILE_H
#include <jansson.h>

#include "lab/measure/constants.h"

/* bf16 and f32, footprints of 1 MiB and 16 MiB, backend `backend` on 2 ranks of threads. The caller releases.
 */
static inline json_t *round_constants(const char *backend) {
  json_t *key = bs_constants_key();
  const int cores = (int)json_integer_value(json_object_get(key, "cores"));
  return json_pack(
      "{s:i,s:o,s:s,s:i,s:i,s:[{s:s,s:s,s:f,s:f},{s:s,s:s,s:f,s:f}],s:[{s:f,s:f,s:f,s:f,s:f},{s:f,s:f,s:f,s:"
      "f,s:f}],"
      "s:[{s:s,s:s,s:i,s:f,s:f}],s:[{s:s,s:f}]}",
      "format", 1, "key", key, "measured_at", "20300102_030405", "cores", cores, "threads", cores,
      "arithmetic", "dtype", "bf16", "loop", "avx9", "flops_core", 1e9, "flops_all", 1e12, "dtype", "f32",
      "loop", "avx9", "flops_core", 2e9, "flops_all", 1e12, "memory", "footprint_bytes", 1048576.0,
      "read_bytes_per_s_core", 4e10, "read_bytes_per_s_all", 1e14, "copy_bytes_per_s_core", 2e10,
      "copy_bytes_per_s_all", 4e10, "footprint_bytes", 16777216.0, "read_bytes_per_s_core", 1e10,
      "read_bytes_per_s_all", 1e14, "copy_bytes_per_s_core", 5e9, "copy_bytes_per_s_all", 1e10, "exchange",
      "backend", backend, "comm", "threads", "world_size", 2, "all_reduce_4B_s", 1e-6,
      "all_reduce_1MiB_bytes_per_s", 1e9, "host", "backend", backend, "host_s", 2e-6);
}
#endif
