/* SPDX-License-Identifier: MIT
 * small.c - see small.h. */
#include "lab/gate/small.h"

#include <string.h>

void bs_small_close(bs_small *s) {
  if (s->workload && s->instance) s->workload->close(s->instance);
  memset(s, 0, sizeof *s);
}

int32_t bs_small_open(bs_context *context, const char *name, const bs_layer_spec *spec, bs_small *out,
                      bs_error *err) {
  memset(out, 0, sizeof *out);
  void *state = NULL;
  int32_t rc = bs_find_workload(context, name, &out->workload, &state, err);
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
