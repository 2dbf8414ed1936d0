/* SPDX-License-Identifier: MIT
 * formula.c - the closed form of an algorithm, and which answers of it are none. */
#include <math.h>

#include "core/base/error.h"
#include "sim/check.h"

/* An upper bound of a formula's result; 1 s of it is for constants of the formula. */
static double most_seconds(const bs_algorithm *a, const bs_coll_shape *shape, const bs_link *link) {
  const double p = shape->world_size, bytes = (double)shape->count * (double)shape->element_bytes;
  double chunks = 1;
  for (uint32_t i = 0;
       a->params != NULL && shape->options != NULL && i < BS_ALGORITHM_MAX_OPTIONS && a->params[i] != NULL;
       ++i)
    if (a->params[i]->type == BS_PARAM_INT) chunks = fmax(chunks, (double)shape->options[i].i);
  const double wire = link->bytes_per_s > 0 ? bytes / link->bytes_per_s : 0;
  return 1 + 1000 * p * p * (link->latency_s * (1 + chunks) + wire);
}

int32_t sim_cost_of(const bs_algorithm *algorithm, void *state, const bs_coll_shape *shape,
                    const bs_link *link, double *out_seconds, bs_error *err) {
  double seconds = NAN;
  if (algorithm->cost == NULL)
    return bs_error_set(err, BS_UNSUPPORTED, "BS-CCL-COST", "the algorithm %s has no formula",
                        algorithm->name);
  const int32_t rc = algorithm->cost(state, shape, link, &seconds, err);
  if (rc != BS_OK) return rc;
  const double most = most_seconds(algorithm, shape, link);
  if (!isfinite(seconds) || seconds < 0 || seconds > most) {
    bs_error_set(err, BS_PLUGIN, "BS-CCL-COST",
                 "the formula of %s says %g s for %s of %llu elements of %llu bytes on %u ranks: only 0 to "
                 "%.3g s can be",
                 algorithm->name, seconds, bs_name_of(BS_NAMES_COLL, shape->kind),
                 (unsigned long long)shape->count, (unsigned long long)shape->element_bytes,
                 shape->world_size, most);
    bs_error_hint(err, "cost gives seconds of the whole collective; BS_UNSUPPORTED where it knows none");
    return BS_PLUGIN;
  }
  *out_seconds = seconds;
  return BS_OK;
}

int32_t sim_check_formula(const sim_case *c, bs_error *err) {
  const bs_link links[] = {{.struct_size = sizeof(bs_link), .latency_s = 1e-6, .bytes_per_s = 1e11},
                           {.struct_size = sizeof(bs_link), .latency_s = 1e-3, .bytes_per_s = 1e6}};
  int32_t rc = BS_OK;
  for (int i = 0; i < 2 && rc == BS_OK && c->request->algorithm->cost != NULL; ++i) {
    double seconds = 0;
    bs_error why = BS_ERROR_INIT;
    rc = sim_cost_of(c->request->algorithm, c->request->state, c->shape, &links[i], &seconds, &why);
    if (rc == BS_UNSUPPORTED) return BS_OK; /* the schedule may serve it all the same */
    if (rc != BS_OK) *err = why;
  }
  return rc;
}
