/* SPDX-License-Identifier: MIT
 * fields.c - see fields.h. */
#include "lab/report/fields.h"

#include <string.h>

#define FOLD BS_FIELD_FOLD
#define RIGHT BS_FIELD_RIGHT

/* Every field: the order of csv, json and md. */
const bs_field bs_run_fields[] = {
    {"phase", "phase", FOLD, 0},
    {"result", "result", 0, 0},
    {"arm", "what", 0, 0},
    {"method", "method", FOLD, 0},
    {"world_size", "P", FOLD | RIGHT, 0},
    {"threads_per_rank", "threads/rank", FOLD | RIGHT, 0},
    {"B", "B", FOLD | RIGHT, 0},
    {"N", "N", FOLD | RIGHT, 0},
    {"K", "K", FOLD | RIGHT, 0},
    {"dtype", "dtype", FOLD, 0},
    {"bias", "bias", FOLD, 0},
    {"workload", "workload", FOLD, 0},
    {"mask", "mask", FOLD, 0},
    {"backend", "backend", FOLD, 0},
    {"comm", "comm", FOLD, 0},
    {"launch", "launch", FOLD, 0},
    {"gates", "gates", 0, 0},
    {"relative_error", "error", RIGHT, 3},
    {"relative_error_predicted", "predicted", RIGHT, 3},
    {"whole_error", "error of the whole product", RIGHT, 3},
    {"mixed_error", "mixed error", RIGHT, 3},
    {"mixed_error_predicted", "mixed predicted", RIGHT, 3},
    {"segments", "segments", 0, 0},
    {"dx_error", "error of dX", RIGHT, 3},
    {"dx_error_predicted", "dX predicted", RIGHT, 3},
    {"dw_error", "error of dW", RIGHT, 3},
    {"dw_error_predicted", "dW predicted", RIGHT, 3},
    {"db_error", "error of db", RIGHT, 3},
    {"db_error_predicted", "db predicted", RIGHT, 3},
    {"w_error", "error of W", RIGHT, 3},
    {"w_error_predicted", "W predicted", RIGHT, 3},
    {"loss", "loss", FOLD, 0},
    {"loss_first", "first loss", RIGHT, 6},
    {"loss_last", "last loss", RIGHT, 6},
    {"steps", "steps", FOLD | RIGHT, 0},
    {"optimizer", "optimizer", FOLD, 0},
    {"build_ms", "build ms", RIGHT, 3},
    {"pack_ms", "pack ms", RIGHT, 3},
    {"remask_ms", "re-mask ms", RIGHT, 4},
    {"decompress_ms", "decompress ms", RIGHT, 4},
    {"mask_ms", "mask ms", RIGHT, 4},
    {"compress_ms", "compress ms", RIGHT, 4},
    {"first_ms", "first ms", RIGHT, 4},
    {"median_ms", "ms", RIGHT, 4},
    {"gflops", "GFLOP/s", RIGHT, 4},
    {"share_of_limit", "% of limit", RIGHT | BS_FIELD_PERCENT, 2},
    {"limit", "limit", 0, 0},
    {"simulated_us", "simulated us", RIGHT, 9},
    {"compute_us", "compute us", RIGHT, 9},
    {"memory_us", "memory us", RIGHT, 9},
    {"launch_us", "launch us", RIGHT, 9},
    {"wire_latency_us", "wire latency us", RIGHT, 9},
    {"wire_bytes_us", "wire bytes us", RIGHT, 9},
    {"wait_us", "wait us", RIGHT, 9},
    {"compute_side_us", "arithmetic alone us", RIGHT, 9},
    {"memory_side_us", "memory alone us", RIGHT, 9},
    {"bytes_per_device", "bytes per device", RIGHT, 0},
    {"messages", "messages", RIGHT, 0},
    {"message_bytes", "message bytes", RIGHT, 0},
    {"ops_not_costed", "ops not costed", RIGHT, 0},
    {"dense_us", "dense on 1: us", RIGHT, 9},
    {"simulated_speedup", "simulated speed-up", RIGHT, 6},
    {"engine", "engine", 0, 0},
    {"machine", "machine", FOLD, 0},
    {"label", "label", FOLD, 0},
    {"domain", "domain", FOLD, 0},
    {"values", "values", FOLD, 0},
    {"cold_ms", "cold ms", RIGHT, 4},
    {"enqueue_us", "enqueue us", RIGHT, 3},
    {"forward_p50_ms", "forward ms", RIGHT, 4},
    {"backward_ms", "backward ms", RIGHT, 4},
    {"opt_step_ms", "optimizer ms", RIGHT, 4},
    {"allreduce_ms", "exchange ms", RIGHT, 4},
    {"total_step_ms", "whole step ms", RIGHT, 4},
    {"min_ms", "min ms", RIGHT, 4},
    {"p90_ms", "p90 ms", RIGHT, 4},
    {"p99_ms", "p99 ms", RIGHT, 4},
    {"predicted_ms", "predicted ms", RIGHT, 4},
    {"measured_over_predicted", "ms/predicted", RIGHT, 3},
    {"bound_ms", "bound ms", RIGHT, 4},
    {"kernel", "kernel", 0, 0},
    {"verdict", "method is", 0, 0},
    {"speedup", "speedup", RIGHT, 4},
    {"speedup_low", "from", RIGHT, 4},
    {"speedup_high", "to", RIGHT, 4},
    {"needs_pairs", "needs pairs", RIGHT, 0},
    {"cause", "cause", 0, 0},
    {"next", "to do", 0, 0},
    {"cold_verdict", "cold: method is", 0, 0},
    {"cold_speedup", "cold: speedup", RIGHT, 4},
    {"cold_speedup_low", "cold: from", RIGHT, 4},
    {"cold_speedup_high", "cold: to", RIGHT, 4},
    {"pairs", "pairs", RIGHT, 0},
    {"stopped_by", "stopped by", 0, 0},
    {"disturbed_pairs", "disturbed", 0, 0},
    {"measuring_warnings", "warnings", 0, 0},
    {"load_average", "load", 0, 0},
    {"break_even_forwards", "break-even forwards", RIGHT, 0},
    {"passed", "passed", 0, 0},
    {"memory_peak_bytes", "peak bytes", RIGHT, 0},
    {"device_peak_bytes", "device peak bytes", RIGHT, 0},
    {"clock_mhz", "clock MHz", RIGHT, 0},
    {"weight_bytes_total", "weight bytes", RIGHT, 0},
    {"wire_bytes_per_forward", "wire bytes", RIGHT, 0},
    {"flops_per_forward", "FLOPs", RIGHT, 0},
    {"claims_match_counts", "as proposed", 0, 0},
    {"algorithms", "algorithms", 0, 0},
    {"seed", "seed", 0, 0},
    {"run_id", "run", 0, 0},
    {"run_dir", "folder", 0, 0},
};
const size_t bs_n_run_fields = sizeof bs_run_fields / sizeof bs_run_fields[0];
static const bs_field what = {"what", "what", 0, 0}; /* only in tables: an arm in words */

/* The fields in the table of each phase; fields that are empty in all rows are left out. */
#define LAYER "world_size", "threads_per_rank", "B", "N", "K", "dtype", "bias", "mask", "backend"
static const char *const columns[4][BS_PHASE_FIELDS] = {
    {"result", "gates", "relative_error", "relative_error_predicted", "whole_error", "segments", "method",
     LAYER, "workload"},
    {"result", "what", "median_ms", "gflops", "share_of_limit", "limit", "predicted_ms", "cold_ms",
     "enqueue_us", LAYER},
    {"result", "gates", "dx_error", "dx_error_predicted", "dw_error", "dw_error_predicted", "db_error",
     "forward_p50_ms", "backward_ms", "allreduce_ms", "loss", "method", LAYER},
    {"result", "gates", "w_error", "w_error_predicted", "loss_first", "loss_last", "forward_p50_ms",
     "backward_ms", "opt_step_ms", "allreduce_ms", "total_step_ms", "remask_ms", "loss", "optimizer", "steps",
     "method", LAYER},
};

const bs_field *bs_run_field(const char *key) {
  for (size_t i = 0; i < bs_n_run_fields; i++)
    if (strcmp(bs_run_fields[i].key, key) == 0) return &bs_run_fields[i];
  return strcmp(key, what.key) == 0 ? &what : NULL;
}

size_t bs_phase_fields(size_t phase, bs_field out[BS_PHASE_FIELDS]) {
  size_t n = 0;
  for (; phase < 4 && n < BS_PHASE_FIELDS && columns[phase][n] != NULL; n++)
    out[n] = *bs_run_field(columns[phase][n]);
  return n;
}
