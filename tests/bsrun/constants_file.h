/* SPDX-License-Identifier: MIT
 * constants_file.h - a file of machine constants with round numbers, valid for the bsrun under test: it has
 * the same processor, cores and library as the test. */
#ifndef TESTS_BSRUN_CONSTANTS_FILE_H
#define TESTS_BSRUN_CONSTANTS_FILE_H
#include <jansson.h>

#include "lab/measure/constants.h"

/* What a kernel of `backend` reaches in f32: half of the read bandwidth of one core, a tenth of that of all.
 */
static inline void round_kernel(json_t *constants, const char *backend, const char *name, const char *how,
                                const char *plugin) {
  for (int i = 0; i < 2; i++)
    json_array_append_new(
        json_object_get(constants, "kernels"),
        json_pack("{s:f,s:f,s:s,s:s,s:s,s:s,s:s,s:f,s:f,s:f,s:f,s:f}", "flops_team", i == 0 ? 3e9 : 6e9,
                  "bytes_per_s_team", 2e13, "backend", backend, "dtype", "f32", "name", name, "how", how,
                  "plugin", plugin, "footprint_bytes", i == 0 ? 1048576.0 : 16777216.0, "flops_core",
                  i == 0 ? 1e9 : 4e9, "flops_all", i == 0 ? 2e9 : 8e9, "bytes_per_s_core",
                  i == 0 ? 2e10 : 5e9, "bytes_per_s_all", 1e13));
}

/* bf16 and f32, footprints of 1 MiB and 16 MiB, backend `backend` on 2 ranks of threads: an all-reduce takes
 * 1 us and 1 ns for each byte beyond 4. No kernels. The caller releases. */
static inline json_t *round_constants(const char *backend) {
  json_t *key = bs_constants_key();
  const int cores = (int)json_integer_value(json_object_get(key, "cores"));
  json_t *exchange = json_pack("{s:s,s:s,s:i}", "backend", backend, "comm", "threads", "world_size", 2);
  for (int i = 0; i < BS_EXCHANGES; i++)
    json_object_set_new(exchange, bs_exchange_keys[i], json_real(1e-6 + (bs_exchange_bytes[i] - 4) * 1e-9));
  return json_pack(
      "{s:i,s:o,s:s,s:i,s:i,s:[{s:s,s:s,s:f,s:f},{s:s,s:s,s:f,s:f}],s:[{s:f,s:f,s:f,s:f,s:f},{s:f,s:f,s:f,s:"
      "f,s:f}],"
      "s:[o],s:[{s:s,s:f,s:f}],s:[],s:{s:f,s:f,s:f,s:f}}",
      "format", BS_CONSTANTS_FORMAT, "key", key, "measured_at", "20300102_030405", "cores", cores, "threads",
      cores, "arithmetic", "dtype", "bf16", "loop", "avx9", "flops_core", 1e9, "flops_all", 1e12, "dtype",
      "f32", "loop", "avx9", "flops_core", 2e9, "flops_all", 1e12, "memory", "footprint_bytes", 1048576.0,
      "read_bytes_per_s_core", 4e10, "read_bytes_per_s_all", 1e14, "copy_bytes_per_s_core", 2e10,
      "copy_bytes_per_s_all", 4e10, "footprint_bytes", 16777216.0, "read_bytes_per_s_core", 1e10,
      "read_bytes_per_s_all", 1e14, "copy_bytes_per_s_core", 5e9, "copy_bytes_per_s_all", 1e10, "exchange",
      exchange, "host", "backend", backend, "host_s", 2e-6, "spread", 0.02, "kernels", "conditions",
      "load_before", 0.1, "load_after", 1.1, "others", 0.01, "stolen", 0.0);
}
#endif
