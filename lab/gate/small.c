/* SPDX-License-Identifier: MIT
 * small.c - see small.h. */
#include "lab/gate/small.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/error.h"
#include "lab/gate/mixed.h"

bs_layer_spec bs_small_spec(const bs_case *like, uint32_t flags) {
  bs_layer_spec spec = like->spec;
  spec.B = 16;
  spec.N = 96;
  spec.K = 256;
  spec.has_bias = 1;
  spec.flags |= flags;
  return spec;
}

void bs_small_close(bs_small *s) {
  if (s->workload && s->instance) s->workload->close(s->instance);
  free(s->order);
  memset(s, 0, sizeof *s);
}

/* Fewer columns: those there are, in their order. More: the rest follow, ascending. */
static int32_t fit_mask(bs_layer_spec *spec, bs_small *out, bs_error *err) {
  const bs_mask *mask = spec->mask;
  if (mask == NULL || mask->order == NULL || mask->n_order == spec->K) return BS_OK;
  int64_t n = 0;
  out->order = malloc(((size_t)spec->K + 1) * sizeof *out->order);
  if (out->order == NULL) return bs_no_memory(err, "a small case");
  for (int64_t i = 0; i < mask->n_order; i++)
    if (mask->order[i] < spec->K) out->order[n++] = mask->order[i];
  for (; n < spec->K; n++) out->order[n] = (uint32_t)n;
  out->mask = *mask;
  out->mask.order = out->order;
  out->mask.n_order = spec->K;
  spec->mask = &out->mask;
  return BS_OK;
}

/* Keeps the share of high columns in the smaller layer; neither 0 nor all of them, unless it was so
 * before. */
static void fit_mixed(bs_layer_spec *spec, int64_t K, bs_small *out) {
  const int64_t high = bs_mixed_of(spec);
  if (high <= 0 || K == spec->K || spec->n_options > BS_SMALL_OPTIONS) return;
  int64_t n = (int64_t)((double)high * (double)spec->K / (double)K);
  if (n < 1) n = 1;
  if (high < K && n >= spec->K) n = spec->K - 1;
  snprintf(out->mixed, sizeof out->mixed, "%lld", (long long)n);
  for (uint32_t i = 0; i < spec->n_options; i++)
    out->values[i] = strcmp(spec->option_keys[i], "mixed") == 0 ? out->mixed : spec->option_values[i];
  spec->option_values = out->values;
}

int32_t bs_small_open(bs_context *context, const char *name, bs_layer_spec *spec, bs_small *out,
                      bs_error *err) {
  memset(out, 0, sizeof *out);
  void *state = NULL;
  int32_t rc = bs_find_workload(context, name, &out->workload, &state, err);
  const int64_t K = spec->mask != NULL && spec->mask->order != NULL ? spec->mask->n_order : spec->K;
  if (rc == BS_OK) rc = fit_mask(spec, out, err);
  fit_mixed(spec, K, out);
  if (rc != BS_OK) return rc;
  const bs_workload_request request = {.struct_size = sizeof request,
                                       .dtype = spec->x_dtype,
                                       .B = spec->B,
                                       .N = spec->N,
                                       .K = spec->K,
                                       .seed = 20,
                                       .weight_seed = 26,
                                       .has_bias = spec->has_bias};
  out->x.struct_size = out->w.struct_size = out->bias.struct_size = sizeof(bs_source);
  rc = out->workload->open(state, &request, &out->instance, err);
  if (rc == BS_OK) rc = out->workload->source(out->instance, BS_PART_X, &out->x, err);
  if (rc == BS_OK) rc = out->workload->source(out->instance, BS_PART_W, &out->w, err);
  if (rc == BS_OK && spec->has_bias) rc = out->workload->source(out->instance, BS_PART_BIAS, &out->bias, err);
  if (rc != BS_OK) bs_small_close(out);
  return rc;
}

void bs_small_case(const bs_case *like, const bs_layer_spec *spec, const bs_small *s, bs_case *out) {
  *out = *like;
  out->spec = *spec;
  out->x = &s->x;
  out->w = &s->w;
  out->bias = spec->has_bias ? &s->bias : NULL;
  out->warmup = 0;
  out->iterations = 1;
  out->hook = NULL;
  out->fault = NULL;
}
