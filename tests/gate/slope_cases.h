/* SPDX-License-Identifier: MIT
 * slope_cases.h - layers with an activation, and numbers for them by a seed: for the gates of phases 2 and 3.
 */
#ifndef TESTS_GATE_SLOPE_CASES_H
#define TESTS_GATE_SLOPE_CASES_H
#include <string.h>

#include "core/base/error.h"
#include "lab/phase/case.h"
#include "tests/marks.h"

static bs_context *context;

static const struct {
  const char *method, *mask;
  uint32_t P;
  const char *key, *value; /* an option */
} subjects[] = {
    {"dense", NULL, 1, NULL, NULL},
    {"column_parallel", NULL, 2, NULL, NULL},
    {"column_parallel", NULL, 3, NULL, NULL},
    {"row_parallel", NULL, 2, NULL, NULL},
    {"row_parallel", NULL, 3, NULL, NULL},
    {"blockshock", "complement_1100_0011", 2, NULL, NULL},
    {"blockshock", "complement_1001_0110", 4, NULL, NULL},
    {"blockshock", "interleave", 3, NULL, NULL},
    {"masked_split", "complement_1010_0101", 2, NULL, NULL},
    {"blockshock", "magnitude", 2, NULL, NULL},
    {"blockshock", "random_2of4", 4, "slices", "row"},
    {"blockshock", "transposable", 4, "slices", "column"},
    {"blockshock", "magnitude", 1, "half", "0"},
    {"blockshock", "random_2of4", 3, "half", "1"},
};
#define N_SUBJECTS ((int)(sizeof subjects / sizeof subjects[0]))
static const uint32_t dtypes[] = {BS_F32, BS_F16, BS_BF16, BS_F64};
static const int64_t shapes[][3] = {{1, 1, 2},     {3, 7, 4},   {17, 65, 63}, {64, 24, 130}, {8, 3, 700},
                                    {40, 200, 16}, {9, 1, 300}, {2, 900, 33}, {128, 16, 90}};
#define N_SHAPES (sizeof shapes / sizeof shapes[0])
static const char *const workloads[] = {"random_normal", "uniform", "activation_like", "transformer_mlp"};

static inline bs_case make_case(int subject, const bs_mask *mask, uint32_t dtype, uint32_t activation,
                                const int64_t shape[3]) {
  bs_case c;
  memset(&c, 0, sizeof c);
  c.context = context;
  c.method = subjects[subject].method;
  c.backend = dtype == BS_F64 ? "ref" : "cpu";
  c.comm = "threads";
  c.world_size = subjects[subject].P;
  c.threads_per_rank = 1;
  c.timeout_s = 60;
  c.iterations = 1;
  c.spec.struct_size = sizeof c.spec;
  c.spec.B = shape[0];
  c.spec.N = shape[1];
  c.spec.K = shape[2];
  c.spec.x_dtype = c.spec.w_dtype = c.spec.y_dtype = dtype;
  c.spec.activation = activation;
  c.spec.mask = mask;
  c.spec.flags = BS_LAYER_BACKWARD;
  c.spec.n_options = subjects[subject].key != NULL;
  c.spec.option_keys = &subjects[subject].key;
  c.spec.option_values = &subjects[subject].value;
  return c;
}

/* What the method says it does not do. */
static inline int refused_here(const bs_case *c, int32_t rc, const bs_error *err) {
  if (rc != BS_UNSUPPORTED) return 0;
  if (c->spec.x_placement == BS_SPLIT && strcmp(err->id, "BS-METHOD-PLACEMENT") == 0)
    return strcmp(c->method, "column_parallel") == 0 || c->spec.n_options > 0 ||
           c->spec.mask->kind == BS_MASK_MAGNITUDE;
  return c->spec.reduce_dtype == BS_I8 && strcmp(err->id, "BS-METHOD-SLICES") == 0;
}

/* The numbers of a workload by a seed, and targets: X of another layer, [B,N]. */
typedef struct data {
  void *of_layer, *of_target;
  const bs_workload *workload, *targets;
  bs_source x, w, bias, target;
} data;

static inline void *open_one(const char *name, const bs_workload_request *request, const bs_workload **out) {
  bs_error err = BS_ERROR_INIT;
  void *state = NULL, *instance = NULL;
  ck_assert_int_eq(bs_find_workload(context, name, out, &state, &err), BS_OK);
  ck_assert_msg((*out)->open(state, request, &instance, &err) == BS_OK, "%s: %s", name, err.message);
  return instance;
}

static inline void open_data(bs_case *c, const char *name, uint64_t seed, data *d) {
  bs_error err = BS_ERROR_INIT;
  bs_workload_request request = {.struct_size = sizeof request,
                                 .dtype = c->spec.x_dtype,
                                 .B = c->spec.B,
                                 .N = c->spec.N,
                                 .K = c->spec.K,
                                 .seed = seed,
                                 .weight_seed = seed + 7,
                                 .has_bias = c->spec.has_bias};
  memset(d, 0, sizeof *d);
  d->x.struct_size = d->w.struct_size = d->bias.struct_size = d->target.struct_size = sizeof d->x;
  d->of_layer = open_one(name, &request, &d->workload);
  d->workload->source(d->of_layer, BS_PART_X, &d->x, &err);
  d->workload->source(d->of_layer, BS_PART_W, &d->w, &err);
  if (c->spec.has_bias) d->workload->source(d->of_layer, BS_PART_BIAS, &d->bias, &err);
  request.K = c->spec.N;
  request.seed = seed + 1;
  d->of_target = open_one("uniform", &request, &d->targets);
  d->targets->source(d->of_target, BS_PART_X, &d->target, &err);
  c->x = &d->x;
  c->w = &d->w;
  c->bias = c->spec.has_bias ? &d->bias : NULL;
}

static inline void close_data(data *d) {
  d->workload->close(d->of_layer);
  d->targets->close(d->of_target);
}

static inline void open_subject(int i, bs_mask *mask) {
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_context_open(NULL, &context, &err), BS_OK);
  if (subjects[i].mask != NULL)
    ck_assert_int_eq(bs_mask_parse(subjects[i].mask, NULL, NULL, mask, &err), BS_OK);
}

#endif
