/* SPDX-License-Identifier: MIT
 * parts.c - before a run folder exists: the plugins that it will use are opened, and its memory is there. */
#include "core/base/error.h"
#include "core/base/memory.h"
#include "core/base/size.h"
#include "core/op/knob.h"
#include "core/plugin/registry.h"
#include "core/world/algorithm.h"
#include "lab/clock.h"
#include "lab/config/experiment.h"
#include "lab/run/run.h"
#include "lab/store/env.h"

/* Refuses options of a method and of a collective algorithm whose values are outside their declared sets. */
static int32_t check_told(bs_context *context, const bs_experiment *e, const bs_method *method,
                          const bs_comm *comm, uint32_t world, bs_error *err) {
  bs_world_algorithm algorithm = {0};
  int32_t rc = bs_method_check_options(method, e->n_method_options, e->method_keys, e->method_values, err);
  if (rc == BS_OK) rc = bs_algorithm_choose(context, comm, world, e->algorithm, &algorithm, err);
  bs_named_free(&algorithm.named);
  return rc;
}

int32_t lab_run_open_parts(bs_context *context, const bs_experiment *e, uint32_t *out_world, bs_error *err) {
  const bs_method *method;
  const bs_workload *workload;
  const bs_backend *backend;
  const bs_comm *comm;
  void *state;
  int32_t rc = bs_find_method(context, e->method, &method, &state, err);
  if (rc == BS_OK) rc = bs_find_workload(context, e->workload, &workload, &state, err);
  if (rc == BS_OK) rc = bs_find_backend(context, e->backend, &backend, &state, err);
  if (rc == BS_OK) rc = bs_find_comm(context, e->comm, &comm, &state, err);
  if (rc != BS_OK) return rc;
  *out_world = bs_experiment_world(e, method);
  return check_told(context, e, method, comm, *out_world, err);
}

void lab_run_doing(lab_run *run, const bs_experiment *e, const char *step) {
  bs_text what = {0};
  uint32_t n = 0;
  if (run->host->doing == NULL) return;
  bs_text_printf(&what, "%s of %s", step, e->method);
  for (uint32_t i = 0; i < bs_plugin_count(run->context); i++) {
    bs_plugin_info info = {.struct_size = sizeof info};
    if (bs_plugin_get(run->context, i, &info, NULL) != BS_OK || info.state != BS_PLUGIN_ACTIVE ||
        info.builtin)
      continue;
    bs_text_printf(&what, "%s%s", n++ == 0 ? " (plugins in use: " : ", ", info.id);
  }
  bs_text_printf(&what, "%s", n > 0 ? ")" : "");
  run->host->doing(run->host->user, step, what.failed ? NULL : what.data);
  bs_text_free(&what);
}

static int add_product(uint64_t *sum, uint64_t a, uint64_t b, uint64_t c) {
  uint64_t product;
  return bs_mul_u64(a, b, &product) && bs_mul_u64(product, c, &product) && bs_add_u64(*sum, product, sum);
}

/* The least memory of the run: the method's weight and, in phase 1, each dense peer's; X and Y of every rank;
 * in phase 0 the fp64 reference; in phase 2 the gradients, those of W on the ranks and in the reference.
 * Refuses the run with the numbers if the machine has less. */
static int32_t check_memory(const bs_experiment *e, uint32_t world, bs_error *err) {
  const uint64_t element = BS_DTYPE_BYTES(e->dtype);
  const uint64_t n = (uint64_t)e->N, k = (uint64_t)e->K, b = (uint64_t)e->B;
  const uint64_t peers = e->phase == BS_PHASE_FORWARD && e->dense_arm ? (world > 1 ? 2 : 1) : 0;
  const uint64_t backward = e->phase >= BS_PHASE_BACKWARD, wide = e->dtype == BS_F64 ? 8 : 4;
  const uint64_t features =
      e->reference_features > 0 && e->reference_features < e->N ? (uint64_t)e->reference_features : n;
  const uint64_t available = bs_memory_available("");
  uint64_t need = 0, xy = 0;
  if (n == 0 || k == 0 || b == 0)
    return BS_OK; /* the workload sets the size; its reader is bounded by its
                   * file */
  int fits = add_product(&need, n, k, element * (1 + peers) + 2 * backward * wide) && bs_add_u64(k, n, &xy) &&
             add_product(&need, xy, b, element * (world * (1 + backward) + peers));
  if (fits && e->phase == BS_PHASE_CORRECTNESS) fits = add_product(&need, b, features, sizeof(double));
  if (fits && (available == 0 || need <= available)) return BS_OK;
  const double gib = 1024.0 * 1024.0 * 1024.0;
  if (!fits) {
    bs_error_set(err, BS_NO_MEMORY, "BS-RUN-MEMORY", "N=%lld K=%lld B=%lld: the bytes overflow 64 bits",
                 (long long)e->N, (long long)e->K, (long long)e->B);
  } else {
    bs_error_set(err, BS_NO_MEMORY, "BS-RUN-MEMORY",
                 "N=%lld K=%lld B=%lld needs at least %.1f GiB, %.1f are free", (long long)e->N,
                 (long long)e->K, (long long)e->B, (double)need / gib, (double)available / gib);
  }
  bs_error_hint(err, "smaller model.N or model.B, a narrower dtype, or phase.dense_arm=false");
  return BS_NO_MEMORY;
}

int32_t lab_run_check_memory(bs_context *context, const bs_experiment *e, bs_error *err) {
  uint32_t world = 1;
  const int32_t rc = lab_run_world(context, e, &world, err);
  if (rc != BS_OK || bs_backend_is_phantom(context, e->backend))
    return rc; /* the row tells a device's bytes */
  return check_memory(e, world, err);
}
