/* SPDX-License-Identifier: MIT
 * faults.c - the injected faults: wrapped sources, tampered outputs and hooked collectives. */
#include "lab/gate/faults.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/error.h"

typedef struct wrapped {
  const bs_fault *fault;
  bs_source base;
} wrapped;

struct bs_fault {
  uint32_t kind;
  uint32_t ranks;
  int64_t K;
  int64_t row;           /* the row of W that is hit */
  int64_t column, other; /* its columns */
  wrapped *views;        /* [ranks] */
  bs_collective_hook hook;
};

static const char *const names[BS_FAULT_COUNT_] = {
    "no_all_reduce", "reduced_twice",  "other_x",  "wrong_columns", "index_swapped", "weight_lost",
    "output_off",    "bias_each_rank", "half_fp8", "nan_output",    "rank_diverged",
};

const char *bs_fault_name(uint32_t kind) {
  return kind < BS_FAULT_COUNT_ ? names[kind] : "?";
}

const char *bs_fault_skip(uint32_t kind, const bs_case *c, uint32_t split) {
  const int reduces = c->world_size > 1 && split == BS_SPLIT_K;
  switch (kind) {
    case BS_FAULT_NO_ALL_REDUCE:
    case BS_FAULT_REDUCED_TWICE:
    case BS_FAULT_BIAS_EACH_RANK:
      return reduces ? NULL : "no reduction in this method at this world size";
    case BS_FAULT_OTHER_X:
    case BS_FAULT_RANK_DIVERGED:
      return c->world_size > 1 ? NULL : "one rank";
    default:
      return NULL;
  }
}

/* Fill a whole row of the base, then let `change` alter it, then hand out the wanted columns. */
static int32_t read_changed(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                            void *out, int64_t out_stride, bs_error *err) {
  const wrapped *view = ctx;
  const bs_fault *fault = view->fault;
  const int64_t K = view->base.cols;
  double *values = malloc((size_t)(K > 0 ? K : 1) * sizeof *values);
  if (!values)
    return bs_error_set(err, BS_NO_MEMORY, "BS-FAULT-MEMORY", "no memory for a row of %lld", (long long)K);
  int32_t rc = BS_OK;
  for (int64_t i = 0; i < nrows && rc == BS_OK; ++i) {
    rc = view->base.read(view->base.ctx, row + i, 1, NULL, BS_F64, values, K, err);
    if (rc != BS_OK) break;
    if (fault->kind == BS_FAULT_OTHER_X) {
      for (int64_t k = 0; k < K / 2; ++k) {
        const double keep = values[k];
        values[k] = values[K - 1 - k];
        values[K - 1 - k] = keep;
      }
    } else if (fault->kind == BS_FAULT_WRONG_COLUMNS) {
      for (int64_t k = 1; k + 1 < K; k += 4) {
        const double keep = values[k];
        values[k] = values[k + 1];
        values[k + 1] = keep;
      }
    } else if (fault->kind == BS_FAULT_HALF_FP8) {
      for (int64_t k = K / 2; k < K; ++k)
        values[k] = (double)bs_f8e4m3_to_f32(bs_f32_to_f8e4m3((float)values[k]));
    } else if (row + i == fault->row) {
      const double keep = values[fault->column];
      values[fault->column] = fault->kind == BS_FAULT_INDEX_SWAPPED ? values[fault->other] : 0.0;
      if (fault->kind == BS_FAULT_INDEX_SWAPPED) values[fault->other] = keep;
    }
    const int64_t count = cols ? cols->count : K;
    for (int64_t j = 0; j < count; ++j) {
      const int64_t k = !cols                               ? j
                        : cols->kind == BS_PARTITION_GATHER ? (int64_t)cols->columns[j]
                                                            : cols->begin + j;
      bs_store_f64(dtype, out, i * out_stride + j, values[k]);
    }
  }
  free(values);
  return rc;
}

static int32_t wrap(void *user, uint32_t rank, uint32_t part, const bs_source *in, bs_source *out,
                    bs_error *err) {
  bs_fault *fault = user;
  (void)err;
  *out = *in;
  const int hits_x = part == BS_PART_X && ((fault->kind == BS_FAULT_OTHER_X && rank == 1) ||
                                           fault->kind == BS_FAULT_WRONG_COLUMNS);
  const int hits_w =
      part == BS_PART_W && (fault->kind == BS_FAULT_INDEX_SWAPPED || fault->kind == BS_FAULT_WEIGHT_LOST ||
                            fault->kind == BS_FAULT_HALF_FP8);
  if (!hits_x && !hits_w) return BS_OK;
  fault->views[rank] = (wrapped){fault, *in};
  out->ctx = &fault->views[rank];
  out->read = read_changed;
  return BS_OK;
}

static double spread(const void *y, int64_t count, uint32_t dtype) {
  double sum = 0.0;
  for (int64_t i = 0; i < count; ++i) {
    const double v = bs_load_f64(dtype, y, i);
    sum += v * v;
  }
  return count > 0 ? sqrt(sum / (double)count) : 0.0;
}

/* The smallest |y| up to half the spread is the fairest place: its own rounding unit is small. */
static int64_t small_output(const void *y, int64_t count, uint32_t dtype, double limit) {
  for (int64_t i = 0; i < count; ++i) {
    const double v = fabs(bs_load_f64(dtype, y, i));
    if (v > 0.0 && v <= limit) return i;
  }
  return 0;
}

static void tamper(void *user, uint32_t rank, void *y, int64_t rows, int64_t cols, uint32_t dtype) {
  const bs_fault *fault = user;
  const int64_t count = rows * cols;
  if (count == 0) return;
  if (fault->kind == BS_FAULT_OUTPUT_OFF && rank == 0) {
    const double rms = spread(y, count, dtype);
    const int64_t at = small_output(y, count, dtype, 0.5 * rms);
    bs_store_f64(dtype, y, at, bs_load_f64(dtype, y, at) + 0.044 * rms);
  } else if (fault->kind == BS_FAULT_NAN_OUTPUT && rank == 0) {
    bs_store_f64(dtype, y, count - 1, NAN);
  } else if (fault->kind == BS_FAULT_RANK_DIVERGED && rank == fault->ranks - 1) {
    ((unsigned char *)y)[(size_t)(count / 2) * BS_DTYPE_BYTES(dtype)] ^= 1u;
  }
}

/* What a rank would see without the exchange: its own partial sum. */
static void copy_through(const bs_coll_call *call) {
  for (uint64_t row = 0; row < call->rows; ++row) {
    for (uint64_t i = 0; i < call->count; ++i) {
      const double v = bs_load_f64(call->dtype_in, call->in, (int64_t)row * call->in_stride + (int64_t)i);
      bs_store_f64(call->dtype_out, call->out, (int64_t)row * call->out_stride + (int64_t)i, v);
    }
  }
}

static uint32_t before(void *user, uint32_t rank, const bs_coll_call *call) {
  const bs_fault *fault = user;
  (void)rank;
  if (call->kind != BS_COLL_ALL_REDUCE) return 1;
  if (fault->kind == BS_FAULT_NO_ALL_REDUCE) {
    copy_through(call);
    return 0;
  }
  if (fault->kind == BS_FAULT_REDUCED_TWICE) return 2;
  if (fault->kind == BS_FAULT_BIAS_EACH_RANK) {
    for (uint64_t row = 0; row < call->rows; ++row) {
      for (uint64_t i = 0; i < call->count; ++i) {
        const int64_t at = (int64_t)row * call->in_stride + (int64_t)i;
        /* The partial sum belongs to the method; the fault writes into it as a wrong method would. */
        bs_store_f64(call->dtype_in, (void *)(uintptr_t)call->in, at,
                     bs_load_f64(call->dtype_in, call->in, at) + 0.01);
      }
    }
  }
  return 1;
}

/* Weights that matter: the first pair of neighbours in the row whose loss or exchange changes a typical
 * output. */
static int32_t choose_weights(bs_fault *fault, const bs_case *c, bs_error *err) {
  double *row = malloc((size_t)(fault->K > 0 ? fault->K : 1) * sizeof *row);
  if (!row) return bs_error_set(err, BS_NO_MEMORY, "BS-FAULT-MEMORY", "no memory for a row of weights");
  fault->row = c->w->rows / 2;
  const int32_t rc = c->w->read(c->w->ctx, fault->row, 1, NULL, BS_F64, row, fault->K, err);
  double mean = 0.0;
  for (int64_t k = 0; rc == BS_OK && k < fault->K; ++k) mean += fabs(row[k]) / (double)fault->K;
  for (int64_t k = 0; rc == BS_OK && k + 1 < fault->K; ++k) {
    if (fabs(row[k]) >= mean && fabs(row[k] - row[k + 1]) >= mean) {
      fault->column = k;
      fault->other = k + 1;
      break;
    }
  }
  if (fault->other == 0 && fault->K > 1) fault->other = 1;
  free(row);
  return rc;
}

int32_t bs_fault_make(uint32_t kind, const bs_case *c, bs_fault **out, bs_case_fault *hooks, bs_error *err) {
  *out = NULL;
  bs_fault *fault = calloc(1, sizeof *fault);
  if (!fault) return bs_error_set(err, BS_NO_MEMORY, "BS-FAULT-MEMORY", "no memory for a fault");
  fault->kind = kind;
  fault->ranks = c->world_size;
  fault->K = c->w->cols;
  fault->views = calloc(c->world_size, sizeof *fault->views);
  int32_t rc = fault->views ? choose_weights(fault, c, err)
                            : bs_error_set(err, BS_NO_MEMORY, "BS-FAULT-MEMORY", "no memory for %u views",
                                           c->world_size);
  if (rc != BS_OK) {
    bs_fault_free(fault);
    return rc;
  }
  fault->hook = (bs_collective_hook){.user = fault, .before = before, .after = NULL};
  *hooks = (bs_case_fault){.user = fault, .wrap = wrap, .output = tamper, .hook = &fault->hook};
  *out = fault;
  return BS_OK;
}

void bs_fault_free(bs_fault *fault) {
  if (!fault) return;
  free(fault->views);
  free(fault);
}
