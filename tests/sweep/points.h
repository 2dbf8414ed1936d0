/* SPDX-License-Identifier: MIT
 * points.h - points of sweeps of tests. */
#ifndef BS_TESTS_SWEEP_POINTS_H
#define BS_TESTS_SWEEP_POINTS_H
#include <check.h>
#include <jansson.h>
#include <stdio.h>

#include "lab/sweep/points.h"

/* Points of model.N = 1 .. n, phase 0 alone. */
static inline json_t *make_points(bs_context *context, size_t n) {
  static const char *const sets[] = {"phase.name=phase0_correctness", "method.name=dense"};
  const bs_compose_request q = {.sets = sets, .n_sets = 2};
  bs_error err = BS_ERROR_INIT;
  json_t *settings = json_array(), *points = NULL;
  for (size_t i = 0; i < n; i++) {
    char number[16];
    snprintf(number, sizeof number, "%zu", i + 1);
    json_array_append_new(settings, json_pack("{s:s}", "model.N", number));
  }
  ck_assert_msg(bs_points_make(&q, context, settings, &points, &err) == BS_OK, "%s", err.message);
  json_decref(settings);
  return points;
}
#endif
