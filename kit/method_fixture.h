/* SPDX-License-Identifier: MIT
 *
 * method_fixture.h - runs one layer of one method in a world through the public API and keeps everything
 * that a test may want to look at: each rank's y, partial, ownership, weights, counters and proposal,
 * and which weights were read. Used by tests/methods/test_method_*.c.
 */
#ifndef BS_KIT_METHOD_FIXTURE_H
#define BS_KIT_METHOD_FIXTURE_H

#include "blockshock/blockshock.h"
#include "core/base/error.h"

#define MF_RANKS 8

/* One layer to run. x, w, bias are f32 values, rounded to the spec's dtypes on their way in. */
typedef struct mf_case {
  const char *method;
  const char *backend; /* NULL: "ref" */
  uint32_t world;
  uint32_t forwards; /* 0: once */
  int64_t rows;      /* tokens of the forward; 0: spec.B */
  bs_layer_spec spec;
  const float *x, *w, *bias; /* bias NULL: none */
  /* Another source of the layer than "build this method by name": NULL, or a method's table. */
  const bs_method *table;
  void *table_state;
} mf_case;

typedef struct mf_rank {
  double *y;       /* [rows, y_cols] */
  uint8_t *y_bits; /* the same, as stored */
  uint64_t y_bytes;
  int64_t y_cols;
  float *partial; /* this rank's input to the collective, [rows,N] or its block; NULL: none */
  uint64_t partial_count;
  int64_t row_begin, row_count, k_own;
  int64_t *columns;    /* the k_own columns; NULL if each row has different ones */
  int64_t *places;     /* [row_count, k_own]: the column of each, -1: padding after the last one; NULL:
                        * `columns` */
  int64_t first_group; /* with places: of four columns; there are k_own / 2 */
  float *weights;      /* [row_count, k_own], read back */
  uint64_t counters[BS_COUNT_COUNT_];
  uint64_t regions[BS_REGION_BUILTIN_COUNT_]; /* counts */
  bs_proposal proposal;
  uint64_t collectives;            /* seen by the hook */
  uint32_t kinds[BS_MAX_PROPOSED]; /* of the first of them */
} mf_rank;

typedef struct mf_result {
  mf_rank rank[MF_RANKS];
  uint64_t memory_peak, memory_after_build, memory_peak_forward;
  uint8_t *read_by; /* [N, K]: bit r: rank r read this weight; NULL above 2^20 */
  char algorithms[1024];
} mf_result;

/* A context with the built and built-in plugins; fails the test when it cannot be opened. */
bs_context *mf_context(void);
/* Opens a context with parameters of plugins, "cpu.matmul=dnnl". */
bs_context *mf_context_with(const char *const *params, uint32_t count);
bs_layer_spec mf_spec(int64_t B, int64_t N, int64_t K, uint32_t dtype);
/* Build and run; returns the status of the first call that failed. mf_free in any case. */
int32_t mf_run(bs_context *context, const mf_case *c, mf_result *out, bs_error *err);
void mf_free(mf_result *result);
/* mf_run that fails the test on an error. */
void mf_run_ok(bs_context *context, const mf_case *c, mf_result *out);
/* y = x w^T + bias from the values as rounded to the spec's dtypes, in f64; caller frees. */
double *mf_reference(const mf_case *c);
/* Small integers (-2..2) or normals: exact sums or not. count values by (seed, index); caller frees. */
float *mf_integers(uint64_t seed, int64_t count);
/* Like mf_integers, with some zeros negative. */
float *mf_signed_zeros(uint64_t seed, int64_t count);
float *mf_normals(uint64_t seed, int64_t count);
/* The factor for the amount of data in a test: BS_TEST_BIG (make verify), or 1. */
uint32_t mf_big(void);
bs_mask mf_mask(const char *name);
/* The mask in *room; NULL for no name. */
const bs_mask *mf_mask_in(const char *name, bs_mask *room);
/* The column of W under weight j of packed row i of a rank; -1: none. */
int64_t mf_column(const mf_rank *rank, int64_t i, int64_t j);
/* The columns that a layer owns, before the layer is freed: [row_count, *out_width]; caller frees. */
int64_t *mf_places(const bs_ownership *own, int64_t K, int64_t *out_width);

/* method_checks.c; each check fails the test with the values that it found. y is the product of integers, bit
 * for bit (after gelu and silu: within their ulps), and the same on every rank. */
void mf_check_outputs(const mf_case *c, const mf_result *result);
/* One rank owns each weight (replicated: some ranks), only its owners read it, and it reads back. */
void mf_check_ownership(const mf_case *c, const mf_result *result, int replicated);
/* The values that a rank read back have the signs of w [N,K], also of its zeros; beyond the last column
 * +0. */
void mf_check_signs(const mf_rank *rank, const float *w, int64_t K);
/* The host's counts equal the proposal. */
void mf_check_counters(const mf_case *c, const mf_result *result);

#endif
