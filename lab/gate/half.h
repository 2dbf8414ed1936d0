/* SPDX-License-Identifier: MIT
 * half.h - a layer that runs one half of a mask alone is not right, and knows by how much: its error is told
 * before the run, from the weights that are left out, and the run is judged by that. */
#ifndef BS_LAB_GATE_HALF_H
#define BS_LAB_GATE_HALF_H
#include "lab/gate/reference.h"
#include "lab/phase/case.h"

#define BS_HALF_LIMIT 0.05 /* of the expected error; more by chance where outputs are few */
#define BS_REL_EPS_HALF 1e-12

typedef struct bs_half {
  uint32_t alone;  /* 0: nothing is left out, and the rest says nothing */
  double expected; /* relative Frobenius error of Y */
  int64_t rows;    /* of W that were looked at; 0: the method's own figure, for weights of equal variance */
  char text[160];  /* one line for people */
} bs_half;

/* Before a run. Reads X, and rows of W spread evenly over it: signs are taken as independent, so that the
 * energy of Y left out is sum (w x)^2 over the weights left out. */
int32_t bs_half_expect(const bs_case *c, bs_half *out_half, bs_error *err);
/* The same of an experiment, for who prints it. */
int32_t bs_half_expect_of(bs_context *context, const bs_experiment *experiment, bs_half *out_half,
                          bs_error *err);
/* The relative error of a run against the full product, every feature once: of rank 0 where all have all. */
int32_t bs_half_measure(const bs_case *c, const bs_case_result *result, int64_t max_features,
                        double *out_error, double *out_outputs, bs_error *err);
/* After it: gate HALF, the error of the full product that was measured against the one expected. */
int32_t bs_half_gate(const bs_case *c, const bs_case_result *result, const bs_half *half,
                     int64_t max_features, double *out_measured, bs_gate *out_gate, bs_error *err);
#endif
