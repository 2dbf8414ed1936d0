/* SPDX-License-Identifier: MIT
 *
 * method_gradient.h - one backward pass of one layer of any method, checked on the spot: on small integers
 * dX, dW and db must be the exact products, dX on every rank; the host must count what was proposed, and
 * nothing may be allocated meanwhile. For the tests of this folder and the conformance kit.
 */
#ifndef BS_TESTS_METHOD_GRADIENT_H
#define BS_TESTS_METHOD_GRADIENT_H

#include "tests/methods/method_fixture.h"

typedef struct mg_case {
  const char *method, *backend;
  uint32_t world;
  int64_t rows; /* tokens of the pass; 0: spec.B */
  bs_layer_spec spec;
  const float *x, *w, *dy; /* [B,K], [N,K], [B,N], small integers */
} mg_case;

/* Fails the test (ck_abort) with what it saw; returns the status of the first call that failed. */
int32_t mg_run(bs_context *context, const mg_case *c, bs_error *err);

#endif
