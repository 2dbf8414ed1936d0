/* SPDX-License-Identifier: MIT
 * faults.c - the injected faults: wrapped sources, tampered outputs and hooked collectives. */
#include "lab/gate/faults.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "lab/activation.h"
#include "lab/case/loss.h"
#include "lab/case/place.h"
#include "lab/case/train.h"
#include "lab/error.h"
#include "lab/gate/faults_mixed.h"
#include "lab/gate/faults_noise.h"

typedef struct wrapped {
  const bs_fault *fault;
  bs_source base;
} wrapped;

struct bs_fault {
  uint32_t kind;
  uint32_t ranks;
  uint32_t activation; /* of the case */
  int64_t K;
  int64_t row;           /* the row of W that is hit */
  int64_t column, other; /* its columns */
  uint32_t victim;       /* the rank that gets other inputs */
  int leaves;            /* sums are exchanged by gathers, without reduction */
  int64_t swap[2];       /* columns of each four that WRONG_COLUMNS exchanges */
  int backward;          /* gradients are judged */
  int met;               /* atomic */
  wrapped *views;        /* [ranks] */
  bs_fault_noise noise;
  bs_mask mask;
  bs_fault_mixed mixed;
  bs_collective_hook hook;
};

static const char *const names[BS_FAULT_COUNT_] = {
    "no_all_reduce",    "reduced_twice",   "other_x",      "wrong_columns", "index_swapped", "weight_lost",
    "output_off",       "bias_each_rank",  "bias_lost",    "half_fp8",      "nan_output",    "rank_diverged",
    "activation_early", "activation_lost", "index_2of4",   "mask_confused", "scale_other",   "segment_edge",
    "segment_swapped",  "scale_block",     "not_gathered", "db_twice",      "slope_lost",    "slope_at_y",
};

const char *bs_fault_name(uint32_t kind) {
  return kind < BS_FAULT_COUNT_ ? names[kind] : "?";
}

uint32_t bs_fault_activation(uint32_t kind, const bs_layer_spec *spec) {
  const int without =
      kind == BS_FAULT_ACTIVATION_EARLY || kind == BS_FAULT_ACTIVATION_LOST || bs_fault_of_slope(kind);
  return without ? (uint32_t)BS_ACT_NONE : spec->activation;
}

int bs_fault_of_slope(uint32_t kind) {
  return kind == BS_FAULT_SLOPE_LOST || kind == BS_FAULT_SLOPE_AT_Y;
}

/* The layer has no activation: its output goes through one, but its gradient does not, or by a wrong
 * slope. */
static void activate(void *user, void *y, int64_t count, uint32_t dtype) {
  const bs_fault *fault = user;
  if (bs_fault_of_slope(fault->kind)) bs_train_activate(fault->activation, y, count, dtype);
}

static void through_slope(void *user, const void *y, void *dy, int64_t count, uint32_t dtype) {
  const bs_fault *fault = user;
  if (fault->kind == BS_FAULT_SLOPE_AT_Y) bs_train_slope_at_y(fault->activation, y, dy, count, dtype);
}

/* Does the call carry sums over ranks: reduced, or exchanged and joined by each rank? */
static int carries_sums(const bs_fault *fault, const bs_coll_call *call) {
  if (call->kind == BS_COLL_ALL_REDUCE || call->kind == BS_COLL_REDUCE_SCATTER) return 1;
  const char *dot = strrchr(call->site, '.');
  if (!fault->leaves || dot == NULL) return 0;
  if (fault->backward) return call->kind == BS_COLL_ALL_TO_ALL && strcmp(dot, ".dx") == 0;
  return strcmp(dot, ".y") == 0 && (call->kind == BS_COLL_ALL_GATHER || call->kind == BS_COLL_ALL_TO_ALL);
}

static void exchange(double *a, double *b) {
  const double keep = *a;
  *a = *b;
  *b = keep;
}

static void change_row(void *user, int64_t row, double *values) {
  const wrapped *view = user;
  const bs_fault *fault = view->fault;
  const int64_t K = view->base.cols;
  const int hit = row == fault->row;
  switch (fault->kind) {
    case BS_FAULT_OTHER_X:
      for (int64_t k = 0; k < K / 2; ++k) exchange(&values[k], &values[K - 1 - k]);
      return;
    case BS_FAULT_WRONG_COLUMNS:
      for (int64_t k = 0; k + fault->swap[1] < K; k += 4)
        exchange(&values[k + fault->swap[0]], &values[k + fault->swap[1]]);
      return;
    case BS_FAULT_BIAS_LOST:
      for (int64_t k = 0; k < K; ++k) values[k] = 0.0;
      return;
    case BS_FAULT_HALF_FP8:
      for (int64_t k = K / 2; k < K; ++k)
        values[k] = (double)bs_f8e4m3_to_f32(bs_f32_to_f8e4m3((float)values[k]));
      return;
    case BS_FAULT_SCALE_OTHER:
    case BS_FAULT_SCALE_BLOCK:
      if (row == fault->mixed.row) bs_fault_mixed_scale(&fault->mixed, values, K);
      return;
    case BS_FAULT_INDEX_SWAPPED:
      if (hit) exchange(&values[fault->column], &values[fault->other]);
      return;
    default: /* INDEX_2OF4, WEIGHT_LOST */
      if (hit && fault->kind == BS_FAULT_INDEX_2OF4) values[fault->column ^ 1] += values[fault->column];
      if (hit) values[fault->column] = 0.0;
  }
}

static int32_t read_changed(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                            void *out, int64_t out_stride, bs_error *err) {
  const wrapped *view = ctx;
  return bs_case_read_changed(&view->base, 0, change_row, ctx, row, nrows, cols, dtype, out, out_stride, err);
}

static int32_t wrap(void *user, uint32_t rank, uint32_t part, const bs_source *in, bs_source *out,
                    bs_error *err) {
  bs_fault *fault = user;
  (void)err;
  *out = *in;
  const int hits_x = part == BS_PART_X && ((fault->kind == BS_FAULT_OTHER_X && rank == fault->victim) ||
                                           fault->kind == BS_FAULT_WRONG_COLUMNS);
  const int hits_w =
      part == BS_PART_W && (fault->kind == BS_FAULT_INDEX_SWAPPED || fault->kind == BS_FAULT_WEIGHT_LOST ||
                            fault->kind == BS_FAULT_HALF_FP8 || fault->kind == BS_FAULT_INDEX_2OF4 ||
                            fault->kind == BS_FAULT_SCALE_OTHER || fault->kind == BS_FAULT_SCALE_BLOCK);
  const int hits_bias = part == BS_PART_BIAS && fault->kind == BS_FAULT_BIAS_LOST;
  if (!hits_x && !hits_w && !hits_bias) return BS_OK;
  fault->views[rank] = (wrapped){fault, *in};
  out->ctx = &fault->views[rank];
  out->read = read_changed;
  return BS_OK;
}

/* Swaps the patterns; draws a mask of rows again. */
static void confuse(void *user, uint32_t rank, bs_layer_spec *spec) {
  bs_fault *fault = user;
  if (bs_fault_is_mixed(fault->kind)) bs_fault_mixed_layer(fault->kind, &fault->mixed, spec);
  if (fault->kind != BS_FAULT_MASK_CONFUSED || rank != fault->ranks - 1) return;
  bs_mask *mask = &fault->mask;
  *mask = *spec->mask;
  if (mask->kind == BS_MASK_COMPLEMENT) {
    mask->pattern_a = spec->mask->pattern_b;
    mask->pattern_b = spec->mask->pattern_a;
  } else {
    mask->seed += mask->kind == BS_MASK_RANDOM_2OF4;
    mask->kind = BS_MASK_RANDOM_2OF4;
  }
  spec->mask = mask;
}

static void tamper(void *user, uint32_t rank, void *y, int64_t rows, int64_t cols, uint32_t dtype) {
  const bs_fault *fault = user;
  const int64_t count = rows * cols;
  if (count == 0) return;
  if (fault->kind == BS_FAULT_OUTPUT_OFF && rank == 0) {
    bs_fault_put_off(&fault->noise, y, count, dtype);
  } else if (fault->kind == BS_FAULT_NAN_OUTPUT && rank == 0) {
    bs_store_f64(dtype, y, count - 1, NAN);
  } else if (fault->kind == BS_FAULT_RANK_DIVERGED && rank == fault->ranks - 1) {
    ((unsigned char *)y)[(size_t)(count / 2) * BS_DTYPE_BYTES(dtype)] ^= 1u;
  }
}

/* Columns of a call's input: all of them, for a scatter those of all ranks. */
static uint64_t input_columns(const bs_coll_call *call, uint32_t ranks) {
  if (call->kind != BS_COLL_REDUCE_SCATTER && call->kind != BS_COLL_ALL_TO_ALL) return call->count;
  uint64_t sum = 0;
  for (uint32_t r = 0; r < ranks; ++r) sum += call->counts[r];
  return sum;
}

/* Gives a rank its own partial sum, as without the exchange. */
static void copy_through(const bs_coll_call *call) {
  uint32_t rank, ranks;
  bs_hook_place(call, &rank, &ranks);
  const int scatters = call->kind == BS_COLL_REDUCE_SCATTER;
  const uint64_t count = scatters ? call->counts[rank] : call->count;
  const uint64_t first = scatters ? input_columns(call, rank) : 0;
  for (uint64_t row = 0; row < call->rows; ++row) {
    for (uint64_t i = 0; i < count; ++i) {
      const double v =
          bs_load_f64(call->dtype_in, call->in, (int64_t)row * call->in_stride + (int64_t)(first + i));
      bs_store_f64(call->dtype_out, call->out, (int64_t)row * call->out_stride + (int64_t)i, v);
    }
  }
}

/* The site "<method>.dx" marks the gathers of the backward pass, "<method>.dx.whole" those of a sum that is
 * scattered before. */
static int gathers_dx(const bs_coll_call *call) {
  const char *at = strstr(call->site, ".dx");
  return call->kind == BS_COLL_ALL_GATHER && at != NULL && (at[3] == '\0' || strcmp(at + 3, ".whole") == 0);
}

static void double_bias(void *user, void *db, int64_t count, uint32_t dtype) {
  const bs_fault *fault = user;
  for (int64_t i = 0; fault->kind == BS_FAULT_DB_TWICE && i < count; ++i)
    bs_store_f64(dtype, db, i, 2.0 * bs_load_f64(dtype, db, i));
}

/* Adds a bias of 0.01 on each rank. If the dtype of the terms rounds that to nothing, the smallest visible
 * bias; for outputs of one byte, which are as large as the terms times the root of their number, an ulp of
 * all ranks. */
static double with_bias(const bs_fault *fault, double v, uint32_t dtype) {
  const uint32_t y_dtype = fault->noise.arithmetic.y_dtype;
  const double P = fault->ranks,
               shown = BS_DTYPE_BYTES(y_dtype) == 1 ? bs_ulp(y_dtype, v * sqrt(P)) / P : 0.0;
  return v + fmax(fmax(0.01, shown), bs_ulp(dtype, v));
}

int bs_fault_is_exact(uint32_t kind) {
  return kind == BS_FAULT_WRONG_COLUMNS || kind == BS_FAULT_INDEX_SWAPPED || kind == BS_FAULT_WEIGHT_LOST ||
         kind == BS_FAULT_BIAS_LOST || kind == BS_FAULT_HALF_FP8 || kind == BS_FAULT_INDEX_2OF4 ||
         bs_fault_is_mixed(kind);
}

static uint32_t before(void *user, uint32_t rank, const bs_coll_call *call) {
  bs_fault *fault = user;
  uint32_t place, ranks;
  (void)rank;
  bs_hook_place(call, &place, &ranks);
  if ((call->flags & BS_COLL_NATIVE) != 0) return 1; /* no part of the layer */
  if (fault->kind == BS_FAULT_NOT_GATHERED) {
    const int hit = gathers_dx(call);
    if (hit) __atomic_store_n(&fault->met, 1, __ATOMIC_RELAXED);
    return !hit;
  }
  /* Sums in int8 steps: no rank receives the others' terms. Gradients are not summed this way. Without an
   * output to compute them from they would all be zero, and right. */
  if (fault->kind == BS_FAULT_NO_ALL_REDUCE && call->kind == BS_COLL_ALL_TO_ALL && !fault->leaves)
    return (uint32_t)fault->backward;
  if (!carries_sums(fault, call)) return 1;
  if (fault->kind == BS_FAULT_NO_ALL_REDUCE) { /* leaves: the other ranks' sums stay zero */
    if (!fault->leaves) copy_through(call);
    return 0;
  }
  if (fault->kind == BS_FAULT_REDUCED_TWICE) return 2;
  if (fault->kind == BS_FAULT_BIAS_EACH_RANK || fault->kind == BS_FAULT_ACTIVATION_EARLY) {
    const uint64_t columns =
        call->kind == BS_COLL_ALL_GATHER ? call->counts[place] : input_columns(call, ranks);
    for (uint64_t row = 0; row < call->rows; ++row) {
      for (uint64_t i = 0; i < columns; ++i) {
        const int64_t at = (int64_t)row * call->in_stride + (int64_t)i;
        /* The partial sum belongs to the method; the fault writes into it as a wrong method would. */
        const double v = bs_load_f64(call->dtype_in, call->in, at);
        bs_store_f64(call->dtype_in, (void *)(uintptr_t)call->in, at,
                     fault->kind == BS_FAULT_BIAS_EACH_RANK ? with_bias(fault, v, call->dtype_in)
                                                            : bs_activation_value(fault->activation, v));
      }
    }
  }
  return 1;
}

/* used[k]: some token has a value in column k. */
static int32_t used_columns(const bs_case *c, double *row, unsigned char *used, bs_error *err) {
  int32_t rc = BS_OK;
  for (int64_t b = 0; rc == BS_OK && b < c->x->rows; ++b) {
    rc = c->x->read(c->x->ctx, b, 1, NULL, BS_F64, row, c->x->cols, err);
    for (int64_t k = 0; rc == BS_OK && k < c->x->cols; ++k) used[k] |= row[k] != 0.0;
  }
  return rc;
}

/* Chooses weights that matter: from the middle row on, the first two adjacent ones whose loss or exchange
 * changes a typical output. Sparse integers have rows of zeros and columns that no token uses. */
static int32_t choose_weights(bs_fault *fault, const bs_case *c, bs_error *err) {
  const int64_t K = fault->K, N = c->w->rows;
  double *row = malloc((size_t)(K > 0 ? K : 1) * sizeof *row);
  unsigned char *used = calloc((size_t)(K > 0 ? K : 1), 1);
  int32_t rc = row && used ? used_columns(c, row, used, err) : bs_no_memory(err, "a row of W");
  int found = 0;
  fault->row = N / 2;
  fault->other = K > 1 ? 1 : 0;
  for (int64_t i = 0; rc == BS_OK && i < N && !found; ++i) {
    const int64_t n = (N / 2 + i) % N;
    double mean = 0.0;
    rc = c->w->read(c->w->ctx, n, 1, NULL, BS_F64, row, K, err);
    for (int64_t k = 0; rc == BS_OK && k < K; ++k) mean += fabs(row[k]) / (double)K;
    for (int64_t k = 0; rc == BS_OK && k + 1 < K && !found; ++k) {
      found = used[k] && row[k] != 0.0 && fabs(row[k]) >= mean && fabs(row[k] - row[k + 1]) >= mean;
      if (!found) continue;
      fault->row = n;
      fault->column = k;
      fault->other = k + 1;
    }
  }
  free(used);
  free(row);
  return rc;
}

/* Chooses the rank that gets wrong inputs: rank 1, or the first after it with more work; rank 0 if it has
 * most. Some ranks may own nothing. */
static int32_t choose_victim(bs_fault *fault, const bs_case *c, bs_error *err) {
  uint64_t most = 0;
  for (uint32_t i = 1; i <= c->world_size; ++i) {
    const uint32_t r = i % c->world_size;
    bs_proposal proposal;
    const int32_t rc = bs_case_propose(c, r, &proposal, err);
    if (rc != BS_OK) return rc;
    fault->noise = bs_fault_noise_of(c, &proposal);
    if (proposal.flops <= most) continue;
    most = proposal.flops;
    fault->victim = r;
  }
  return BS_OK;
}

/* Chooses from each four columns one that a fixed pattern keeps and one that it drops: a half on its own
 * detects no other exchange. Two of four are kept: if the pattern treats 1 and 2 alike, 0 differs from 1. */
static void choose_columns(bs_fault *fault, const bs_mask *mask) {
  const int alike = mask && mask->kind == BS_MASK_COMPLEMENT && mask->pattern_len == 4 &&
                    (mask->pattern_a >> 1 & 1u) == (mask->pattern_a >> 2 & 1u);
  fault->swap[0] = alike ? 0 : 1;
  fault->swap[1] = alike ? 1 : 2;
}

int bs_fault_met(const bs_fault *fault) {
  return __atomic_load_n(&fault->met, __ATOMIC_RELAXED);
}

int32_t bs_fault_make(uint32_t kind, const bs_case *c, bs_fault **out, bs_case_fault *hooks, bs_error *err) {
  *out = NULL;
  bs_fault *fault = calloc(1, sizeof *fault);
  if (!fault) return bs_no_memory(err, "a fault");
  fault->kind = kind;
  fault->ranks = c->world_size;
  fault->activation = c->spec.activation;
  fault->K = c->w->cols;
  fault->backward = (c->spec.flags & BS_LAYER_BACKWARD) != 0;
  choose_columns(fault, c->spec.mask);
  fault->leaves = bs_place_leaves(c) && c->world_size > 1;
  fault->views = calloc(c->world_size, sizeof *fault->views);
  int32_t rc = fault->views ? choose_weights(fault, c, err) : bs_no_memory(err, "%u views", c->world_size);
  if (rc == BS_OK) rc = choose_victim(fault, c, err);
  if (rc == BS_OK && bs_fault_is_mixed(kind))
    rc = bs_fault_mixed_make(kind, c, fault->row, &fault->mixed, err);
  if (rc != BS_OK) {
    bs_fault_free(fault);
    return rc;
  }
  fault->hook = (bs_collective_hook){.user = fault, .before = before, .after = NULL};
  *hooks = (bs_case_fault){.user = fault,
                           .wrap = wrap,
                           .output = tamper,
                           .bias_gradient = double_bias,
                           .loss_of = activate,
                           .gradient = through_slope,
                           .layer = confuse,
                           .hook = &fault->hook};
  *out = fault;
  return BS_OK;
}

int32_t bs_fault_into(uint32_t kind, bs_case *c, bs_case *out_run, bs_fault **out, bs_case_fault *hooks,
                      bs_error *err) {
  int32_t rc = BS_OK;
  *out = NULL;
  if (kind < BS_FAULT_COUNT_) {
    rc = bs_fault_make(kind, c, out, hooks, err);
    c->fault = hooks;
  }
  *out_run = *c;
  out_run->spec.activation = bs_fault_activation(kind, &c->spec);
  return rc;
}

void bs_fault_note(char *list, size_t size, const char *name, const char *more) {
  const size_t used = strlen(list);
  snprintf(list + used, size - used, "%s%s%s", used ? ", " : "", name, more);
}

void bs_fault_note_failed(char *list, size_t size, const bs_gate *gates, uint32_t n) {
  for (uint32_t g = 0; g < n; ++g) {
    if (gates[g].state == BS_GATE_FAIL) bs_fault_note(list, size, gates[g].name, "");
  }
}

void bs_fault_tally_add(bs_fault_tally *tally, const char *name, int caught, const char *gates) {
  const int right = name != NULL ? caught : !caught;
  ++tally->injected;
  tally->caught += (uint32_t)right;
  if (!right && name != NULL) bs_fault_note(tally->missed, sizeof tally->missed, name, "");
  if (!right && name == NULL) {
    char by[300];
    snprintf(by, sizeof by, " by %s", gates);
    bs_fault_note(tally->missed, sizeof tally->missed, "(none)", by);
  }
  if (name == NULL) return;
  tally->row[tally->n].name = name;
  snprintf(tally->row[tally->n].gates, sizeof tally->row[tally->n].gates, "%s", gates);
  ++tally->n;
}

void bs_fault_free(bs_fault *fault) {
  if (!fault) return;
  bs_fault_mixed_free(&fault->mixed);
  free(fault->views);
  free(fault);
}
