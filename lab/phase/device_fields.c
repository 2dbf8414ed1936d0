/* SPDX-License-Identifier: MIT
 * device_fields.c - see device_fields.h. */
#include "lab/phase/device_fields.h"

#include <stdio.h>

/* Of the device's time: events and host agree within a tenth, or the device has waited for the host. */
static const double LAUNCH_BOUND = 0.9;

int bs_launch_bound(const bs_case_rank *rank, char *out_text, size_t size) {
  if (!rank->by_events || rank->enqueue_p50_ms <= 0) return 0;
  if (rank->enqueue_p50_ms < LAUNCH_BOUND * rank->forward_p50_ms) return 0;
  snprintf(out_text, size,
           "launch-bound: host enqueue %.1f us of %.1f us a forward on the device; try a larger batch, fewer "
           "ranks or fewer overlap chunks",
           rank->enqueue_p50_ms * 1e3, rank->forward_p50_ms * 1e3);
  return 1;
}

static json_t *bytes_or_null(uint64_t bytes) {
  return bytes > 0 ? json_integer((json_int_t)bytes) : json_null();
}

static json_t *positive_us(double ms) {
  return ms > 0 ? json_real(ms * 1e3) : json_null();
}

json_t *bs_record_device(const bs_case_result *result, uint32_t slowest) {
  const bs_case_rank *rank = &result->ranks[slowest];
  char text[160];
  if (!rank->by_events && !rank->has_device_state) return json_null();
  json_t *peaks = json_array();
  for (uint32_t r = 0; r < result->world_size; ++r)
    json_array_append_new(peaks, bytes_or_null(result->ranks[r].device_peak));
  return json_pack("{s:s,s:o,s:o,s:o,s:b,s:o}", "clock", rank->by_events ? "events" : "host", "forward_us",
                   positive_us(rank->by_events ? rank->forward_p50_ms : 0.0), "enqueue_us",
                   positive_us(rank->enqueue_p50_ms), "host_avg_us", positive_us(rank->host_avg_ms),
                   "launch_bound", bs_launch_bound(rank, text, sizeof text), "peak_bytes", peaks);
}
