/* SPDX-License-Identifier: MIT
 * mixed.h - layers whose columns are kept in two precisions (method.mixed). The operands of such a layer are
 * known: X and W with all but the high columns rounded to int8 or fp8. Scales are one for each token and one
 * for each output, one for all of them, or one for each block of columns, of each rank's columns. T1 to T5
 * judge the layer against these operands, as tightly as any other layer. The error against X W^T is predicted
 * before the run, segment by segment, and gate MIXED compares the measured one with it. */
#ifndef BS_LAB_GATE_MIXED_H
#define BS_LAB_GATE_MIXED_H
#include "lab/case/case.h"
#include "lab/experiment.h"
#include "lab/gate/reference.h"
#include "lab/result.h"

/* bs_mixed_wanted of the layer's options. */
int64_t bs_mixed_of(const bs_layer_spec *spec);

enum bs_mixed_scales { BS_MIXED_BY_ROW = 0, BS_MIXED_BY_TENSOR = 1, BS_MIXED_BY_BLOCK = 2 };
enum { BS_MIXED_X = 0, BS_MIXED_W = 1 };

/* Which columns are high, who owns the others, and which of those share a scale. */
typedef struct bs_mixed {
  int64_t K, high;
  uint32_t dtype, scales; /* of the others: enum bs_mixed_scales */
  uint32_t ranks;         /* that round columns of their own */
  uint32_t owners;        /* that have rows of W of their own */
  uint32_t groups;        /* scales of a row */
  uint8_t *is_high;
  uint32_t *group;   /* [K] */
  double *shared[2]; /* BY_TENSOR: of X [groups], of W [owners,groups], by bs_mixed_share; else NULL */
} bs_mixed;
/* `split`: of the method's proposal. Without the option an empty one: K is 0. */
int32_t bs_mixed_open(const bs_case *c, uint32_t split, bs_mixed *out_mixed, bs_error *err);
void bs_mixed_close(bs_mixed *mixed);

/* A matrix [rows,K] in the values that are multiplied: its rows are rounded by groups. */
typedef struct bs_mixed_view {
  const bs_mixed *mixed;
  int part;
  const bs_source *inner;
} bs_mixed_view;
/* Wraps `inner`; reads it completely if all rows have a common scale. */
int32_t bs_mixed_source(bs_mixed_view *view, bs_mixed *mixed, int part, const bs_source *inner,
                        bs_source *out_source, bs_error *err);
/* Computes the scales that rows share, from `rows` of them, spread evenly; does nothing for other scales. */
int32_t bs_mixed_share(bs_mixed *mixed, int part, const bs_source *inner, int64_t rows, bs_error *err);
/* Row i of n rows of N that are spread evenly. */
int64_t bs_mixed_sampled(int64_t i, int64_t n, int64_t N);
/* Rounds a row in place and adds the squared error of each column to error2, unless that is NULL. shared:
 * given scales of the row; NULL: its largest values give the scales. */
void bs_mixed_round(const bs_mixed *mixed, const double *shared, double *row, double *scales, double *error2);
/* The shared scales of row `row` of `rows`, or NULL. */
const double *bs_mixed_shared_of(const bs_mixed *mixed, int part, int64_t row, int64_t rows);
/* "int8", or the dtype's name. */
const char *bs_mixed_low_name(const bs_mixed *mixed);

/* ---- mixed_error.c ------------------------------------------------------------------------------ */

enum { BS_MIXED_HIGH = 0, BS_MIXED_LOW = 1, BS_MIXED_WHOLE = 2, BS_MIXED_PARTS = 3 };
/* The limits relative to a prediction; and by chance, in units of 1 / sqrt(outputs). Found from the seeds of
 * tests/gate/test_gate_mixed.c. */
#define BS_MIXED_LIMIT 0.05
#define BS_MIXED_CHANCE 4.0
/* Relative to the whole Y: squares of the parts add up. */
typedef struct bs_mixed_error {
  uint32_t asked; /* 0: one precision, and the other members are not set */
  int64_t high, low;
  const char *low_name;            /* the dtype of the low columns */
  int64_t rows;                    /* of W that were looked at */
  double rounding;                 /* the rounding error of X and W together: the least error */
  double x_rounding, w_rounding;   /* of the low segment */
  double expected[BS_MIXED_PARTS]; /* with the round-off of sums and outputs */
  double measured;                 /* of the whole, by bs_mixed_gate; NaN with an activation */
  double signal[BS_MIXED_PARTS];   /* squared norm, in that of the whole */
  char text[160];                  /* one line for people */
} bs_mixed_error;

/* Before a run. Reads X, and rows of W spread evenly over it. */
int32_t bs_mixed_expect(const bs_case *c, bs_mixed_error *out_error, bs_error *err);
/* Like bs_mixed_expect, for an experiment; for halves the figure of half.h. */
int32_t bs_errors_expected(bs_context *context, const bs_experiment *experiment, double *out_half,
                           bs_mixed_error *out_error, bs_error *err);
/* After it: gate MIXED, the error of the full product that was measured against the one expected. */
int32_t bs_mixed_gate(const bs_case *c, const bs_case_result *result, bs_mixed_error *error,
                      int64_t max_features, bs_gate *out_gate, bs_error *err);
#endif
