/* SPDX-License-Identifier: MIT
 * op.c - every op of the core by one implementation that computes nothing: it asks the host what a run costs
 * by the op's schema, and charges that to the stream. */
#include "sim.h"

const char *sim_op_name(const char *op) {
  for (uint32_t i = 0; i < BS_CORE_OPS; i++)
    if (strcmp(bs_name_of(BS_NAMES_OP, i), op) == 0) return bs_name_of(BS_NAMES_OP, i);
  return "op";
}

/* ---- weights ----------------------------------------------------------------------------------- */

typedef struct packed {
  const bs_exec *exec;
  const bs_host *host;
  void *memory;
} packed;

/* The bytes of a quantised weight: what every run reads, less the bias. */
static int32_t quant_bytes(const bs_host *host, const bs_op_query *query, uint64_t *out, bs_error *err) {
  bs_op_rate rate = {.struct_size = sizeof rate};
  const bs_tensor_desc *bias = query->args[1];
  const int32_t rc = host->op_cost(query, &rate, err);
  if (rc != BS_OK) return rc;
  *out = rate.bytes_fixed - (bias != NULL ? (uint64_t)bias->dims[0] * BS_DTYPE_BYTES(bias->dtype) : 0);
  return BS_OK;
}

/* The bytes of a weight: for 2:4 the kept values, and two bits for the place of each. */
static int32_t bytes_of(const bs_op_query *query, const bs_source *weights, uint64_t *out, bs_error *err) {
  __extension__ typedef unsigned __int128 wide;
  const uint64_t cols = (uint64_t)(query->partition != NULL ? query->partition->count : weights->cols);
  const uint64_t groups = (cols + 3) / 4;
  const wide row = query->kept == NULL
                       ? (wide)cols * BS_DTYPE_BYTES(query->weight_dtype)
                       : (wide)groups * 2 * BS_DTYPE_BYTES(query->weight_dtype) + (groups + 1) / 2;
  const wide all = row * (uint64_t)weights->rows;
  if (all > (uint64_t)INT64_MAX) return bs_fail(err, BS_OVERFLOW, "BS-SIM-SIZE", "a weight's bytes overflow");
  *out = (uint64_t)all;
  return BS_OK;
}

static int32_t pack(void *state, const bs_exec *exec, const bs_op_query *query, const bs_source *weights,
                    void **out_packed, uint64_t *out_bytes, bs_error *err) {
  const sim_plugin *plugin = state;
  int32_t rc = query->quant != NULL ? quant_bytes(plugin->host, query, out_bytes, err)
                                    : bytes_of(query, weights, out_bytes, err);
  if (rc != BS_OK) return rc;
  packed *p = plugin->host->alloc(plugin->host->ctx, sizeof *p, 64);
  if (p == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-SIM-MEMORY", "no memory for a weight's record");
  p->exec = exec;
  p->host = plugin->host;
  p->memory = exec->alloc(exec->ctx, *out_bytes);
  if (p->memory == NULL) {
    plugin->host->free(plugin->host->ctx, p);
    bs_fail(err, BS_NO_MEMORY, "BS-SIM-MEMORY", "the device has no memory for a weight of %llu bytes",
            (unsigned long long)*out_bytes);
    return bs_fail_hint(err, "more ranks, a smaller model.N, or plugins.sim.mem_bytes=0");
  }
  *out_packed = p;
  return BS_OK;
}

static int32_t packed_update(void *object, const bs_tensor *delta, bs_error *err) {
  (void)object;
  (void)delta;
  (void)err;
  return BS_OK;
}

static int32_t packed_read(void *object, int64_t row, bs_tensor *out, bs_error *err) {
  (void)object;
  (void)row;
  (void)out;
  (void)err;
  return BS_OK;
}

static void packed_free(void *object) {
  packed *p = object;
  p->exec->free(p->exec->ctx, p->memory);
  p->host->free(p->host->ctx, p);
}

/* ---- plans ------------------------------------------------------------------------------------- */

typedef struct plan {
  sim_rank *rank;
  sim_costing costing;
} plan;

static int32_t supports(void *state, const bs_op_query *query, bs_op_answer *out) {
  bs_op_answer a;
  (void)state;
  (void)query;
  memset(&a, 0, sizeof a);
  a.level = BS_LEVEL_NATIVE;
  a.score = 500;
  a.tolerance = BS_TOL_ACC_F64;
  a.bits = 1; /* no values: what keeps its bits elsewhere is simulated as it is there */
  snprintf(a.algo, sizeof a.algo, "sim");
  bs_out_copy(out, &a, sizeof a);
  return BS_OK;
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *query, void *weights,
                       void **out_plan, bs_error *err) {
  const sim_plugin *plugin = state;
  (void)weights;
  plan *p = plugin->host->alloc(plugin->host->ctx, sizeof *p, 64);
  if (p == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-SIM-MEMORY", "no memory for a plan of %s", query->op);
  p->rank = exec->device;
  const int32_t rc = sim_costing_make(&p->costing, plugin, query, err);
  if (rc != BS_OK) {
    plugin->host->free(plugin->host->ctx, p);
    return rc;
  }
  *out_plan = p;
  return BS_OK;
}

static int32_t run(void *object, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  plan *p = object;
  return sim_costing_charge(&p->costing, p->rank, args, nargs, sim_stream_time(p->rank, stream), err);
}

static void plan_free(void *object) {
  plan *p = object;
  const bs_host *host = p->costing.plugin->host;
  sim_costing_free(&p->costing);
  host->free(host->ctx, p);
}

int32_t sim_ops_register(sim_plugin *plugin, bs_error *err) {
  BS_HERE_LOC(at);
  bs_op_impl impl = {.struct_size = (uint32_t)sizeof impl,
                     .backend = "sim",
                     .name = "model",
                     .summary = "the cost of the op by its schema; computes nothing",
                     .supports = supports,
                     .prepare = prepare,
                     .run = run,
                     .plan_free = plan_free};
  int32_t rc = BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < BS_CORE_OPS; i++) {
    const char *name = bs_name_of(BS_NAMES_OP, i);
    const int packs =
        strcmp(name, "matmul") == 0 || strcmp(name, "matmul24") == 0 || strcmp(name, "matmul_q") == 0;
    impl.op = name;
    impl.pack = packs ? pack : NULL;
    impl.packed_update = packs ? packed_update : NULL;
    impl.packed_read = packs ? packed_read : NULL;
    impl.packed_free = packs ? packed_free : NULL;
    rc = plugin->host->register_thing(plugin->host->ctx, plugin->self, BS_KIND_OP, &impl, plugin, &at, err);
  }
  return rc;
}
