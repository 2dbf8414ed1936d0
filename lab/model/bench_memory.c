/* SPDX-License-Identifier: MIT
 * bench_memory.c - see bench_memory.h. */
#include "lab/model/bench_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/error.h"
#include "lab/measure/machine.h"

enum { READ_BYTES = 256 << 20 };
static const double BAR_SHARE = 1.05, BAR_BYTES = 20e6;

/* A line of /proc/self/status, in bytes; 0: it is not there. */
static uint64_t held(const char *line) {
  char text[256];
  uint64_t bytes = 0;
  FILE *f = fopen("/proc/self/status", "re");
  while (f != NULL && fgets(text, sizeof text, f) != NULL)
    if (strncmp(text, line, strlen(line)) == 0) bytes = 1024 * strtoull(text + strlen(line), NULL, 10);
  if (f != NULL) fclose(f);
  return bytes;
}

static uint64_t cache_in_use(const bs_session_stats *stats, int64_t tokens, int64_t limit) {
  return limit > 0 ? stats->state_bytes / (uint64_t)limit * (uint64_t)tokens : 0;
}

json_t *bs_model_bench_memory(const bs_model *model, uint64_t arena, int64_t tokens, int64_t limit) {
  bs_session_stats s = {.struct_size = sizeof s};
  if (model->session == NULL || bs_session_stats_get(model->session, &s, NULL) != BS_OK) return json_object();
  const uint64_t cache = cache_in_use(&s, tokens + 1, limit), resident = held("VmRSS:");
  const double bar = BAR_SHARE * (double)(s.packed_bytes + arena + cache) + BAR_BYTES;
  return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:b}", "packed_bytes", (json_int_t)s.packed_bytes,
                   "arena_bytes", (json_int_t)arena, "cache_bytes", (json_int_t)cache, "resident_bytes",
                   (json_int_t)resident, "peak_bytes", (json_int_t)held("VmHWM:"), "bar_bytes",
                   (json_int_t)bar, "within", (double)resident <= bar);
}

/* Bytes of the products' weights in one run. */
static int32_t weight_bytes(const bs_session *session, uint64_t *out, bs_error *err) {
  int32_t rc = BS_OK;
  *out = 0;
  for (uint32_t i = 0; rc == BS_OK && i < bs_session_node_count(session); i++) {
    bs_node_info node = {.struct_size = sizeof node};
    rc = bs_session_node(session, i, &node, err);
    if (rc == BS_OK && strncmp(node.op, "matmul", 6) == 0) *out += node.bytes;
  }
  return rc;
}

int32_t bs_model_bench_read(const bs_model *model, int64_t tokens, int64_t limit, uint32_t threads,
                            json_t *row, bs_error *err) {
  bs_session_stats s = {.struct_size = sizeof s};
  bs_machine machine = {0};
  uint64_t bytes;
  int32_t rc = bs_session_stats_get(model->session, &s, err);
  if (rc == BS_OK) rc = weight_bytes(model->session, &bytes, err);
  if (rc != BS_OK) return rc;
  uint64_t *words = bs_machine_words(READ_BYTES / sizeof *words);
  if (words == NULL) return bs_no_memory(err, "memory to read");
  rc = bs_machine_rates(threads, 0, words, READ_BYTES / sizeof *words, &machine, err);
  free(words);
  const double all = (double)(bytes + cache_in_use(&s, tokens + 1, limit)),
               each = json_real_value(json_object_get(row, "median_s"));
  if (rc != BS_OK || each <= 0 || machine.read_all <= 0) return rc;
  json_object_set_new(row, "read",
                      json_pack("{s:f, s:f, s:f}", "bytes", all, "limit_Bps", machine.read_all, "share",
                                all / each / machine.read_all));
  return BS_OK;
}
