/* SPDX-License-Identifier: MIT
 * costing.c - what the runs of one plan cost: asked of the host by the op's schema, once, or again where the
 * dims are those of the run. */
#include "sim.h"

/* A copy of a query of an op whose dims are those of the run, to ask it again. */
struct sim_query {
  bs_op_query query;
  bs_tensor_desc descs[BS_MAX_OP_ARGS];
  const bs_tensor_desc *args[BS_MAX_OP_ARGS];
  bs_expr expr;
};

/* inside: the time of the op inside of the device; NULL: the roofline's. */
static void charge(const sim_costing *c, sim_rank *rank, sim_time *stream, uint64_t flops, uint64_t bytes,
                   const sim_inside_time *inside) {
  sim_roof roof = rank->plugin->machine.roof;
  sim_op_time t;
  roof.flops = c->per_second;
  roof.sharers = rank->sharers;
  sim_op_cost(&roof, flops, bytes, &t);
  sim_time_follow(stream, &rank->host);
  const sim_time before = *stream;
  if (inside != NULL && inside->launch > 0) roof.launch = inside->launch;
  sim_time_spend(stream, SIM_LAUNCH, roof.launch);
  /* The inside has the device's memory, and no other device. */
  const uint64_t shared = sim_shared_ps(&roof, bytes);
  const int computes =
      inside != NULL ? inside->units_bind != 0 && inside->ps >= shared : t.compute >= t.memory;
  sim_time_spend(stream, computes ? SIM_COMPUTE : SIM_MEMORY,
                 inside != NULL ? sim_max(inside->ps, shared) : t.run);
  sim_time_spend(&rank->host, SIM_LAUNCH, roof.launch);
  rank->compute_side = sim_add(rank->compute_side, t.compute);
  rank->memory_side = sim_add(rank->memory_side, t.memory);
  rank->ops++;
  rank->not_costed += flops == 0 && bytes == 0;
  rank->by_roofline += inside == NULL && (flops > 0 || bytes > 0);
  const sim_step said = {.closed = sim_add(roof.launch, t.run), .flops = flops, .bytes = bytes};
  sim_step_add(rank, c->op, NULL, &before, stream, &said);
}

/* The speed for the wider type of the first argument and the weight. */
static uint64_t speed_of(const sim_machine *m, const bs_op_query *query) {
  const bs_tensor_desc *first = query->nargs > 0 ? query->args[0] : NULL;
  uint64_t bytes = first != NULL ? BS_DTYPE_BYTES(first->dtype) : 0;
  if (BS_DTYPE_BYTES(query->weight_dtype) > bytes) bytes = BS_DTYPE_BYTES(query->weight_dtype);
  return bytes >= 8 ? m->flops_f64 : bytes >= 4 ? m->flops_f32 : bytes >= 2 ? m->roof.flops : m->flops_f8;
}

/* The steps, constants and outputs of a program, in one block. */
static int keep_program(sim_costing *c, const bs_expr *expr) {
  const uint64_t consts = expr->n_const * sizeof *expr->consts, steps = expr->n_steps * sizeof *expr->steps;
  char *room = c->plugin->host->alloc(c->plugin->host->ctx, consts + steps + expr->n_out + 1, 64);
  if (room == NULL) return 0;
  c->program = room;
  c->asked->expr = *expr;
  if (consts > 0) memcpy(room, expr->consts, consts);
  if (steps > 0) memcpy(room + consts, expr->steps, steps);
  if (expr->n_out > 0) memcpy(room + consts + steps, expr->outs, expr->n_out);
  c->asked->expr.consts = (const uint64_t *)(void *)room;
  c->asked->expr.steps = (const bs_expr_step *)(void *)(room + consts);
  c->asked->expr.outs = (const uint8_t *)(room + consts + steps);
  c->asked->query.expr = &c->asked->expr;
  return 1;
}

static int32_t keep_query(sim_costing *c, const bs_op_query *query, bs_error *err) {
  const bs_host *host = c->plugin->host;
  struct sim_query *k = host->alloc(host->ctx, sizeof *k, 64);
  c->asked = k;
  if (k != NULL) {
    k->query = *query;
    k->query.args = k->args;
    k->query.partition = NULL;
    k->query.kept = NULL;
    for (uint32_t i = 0; i < query->nargs && i < BS_MAX_OP_ARGS; i++) {
      if (query->args[i] == NULL) continue;
      k->descs[i] = *query->args[i];
      k->args[i] = &k->descs[i];
    }
    if (query->expr == NULL || keep_program(c, query->expr)) return BS_OK;
  }
  return bs_fail(err, BS_NO_MEMORY, "BS-SIM-MEMORY", "no memory for a plan of %s", query->op);
}

int32_t sim_costing_make(sim_costing *c, const sim_plugin *plugin, const bs_op_query *query, bs_error *err) {
  memset(c, 0, sizeof *c);
  c->plugin = plugin;
  c->op = sim_op_name(query->op);
  c->per_second = speed_of(&plugin->machine, query);
  c->rate.struct_size = (uint32_t)sizeof c->rate;
  if (plugin->inside != NULL) sim_inside_prepare(&c->inside, query);
  int32_t rc = plugin->host->op_cost(query, &c->rate, err);
  if (rc == BS_UNSUPPORTED) rc = BS_OK; /* charged as an op of no cost, and counted */
  if (rc == BS_OK && c->rate.batch_arg == UINT32_MAX) rc = keep_query(c, query, err);
  if (rc != BS_OK) sim_costing_free(c);
  return rc;
}

void sim_costing_free(sim_costing *c) {
  const bs_host *host = c->plugin->host;
  if (c->program != NULL) host->free(host->ctx, c->program);
  if (c->asked != NULL) host->free(host->ctx, c->asked);
  c->program = NULL;
  c->asked = NULL;
}

static uint64_t cost_of(uint64_t rows, uint64_t each, uint64_t fixed) {
  return rows > 0 ? sim_add(sim_times(rows, each), fixed) : 0;
}

/* Dims that are not those that were asked for last. */
static int changed(struct sim_query *k, bs_tensor *const *args, uint32_t nargs) {
  int other = 0;
  for (uint32_t i = 0; i < nargs && i < BS_MAX_OP_ARGS; i++) {
    if (args[i] == NULL || k->args[i] == NULL) continue;
    if (memcmp(k->descs[i].dims, args[i]->dims, sizeof args[i]->dims) == 0) continue;
    memcpy(k->descs[i].dims, args[i]->dims, sizeof args[i]->dims);
    memset(k->descs[i].strides, 0, sizeof k->descs[i].strides);
    other = 1;
  }
  return other;
}

int32_t sim_costing_charge(sim_costing *c, sim_rank *rank, bs_tensor *const *args, uint32_t nargs,
                           sim_time *stream, bs_error *err) {
  uint64_t rows = c->rate.rows;
  if (c->asked != NULL) {
    if (changed(c->asked, args, nargs)) {
      const int32_t rc = c->plugin->host->op_cost(&c->asked->query, &c->rate, err);
      if (rc != BS_OK && rc != BS_UNSUPPORTED) return rc;
      rows = c->rate.rows;
    }
  } else if (c->rate.batch_arg < nargs && args[c->rate.batch_arg] != NULL) {
    rows = (uint64_t)args[c->rate.batch_arg]->dims[0];
  }
  sim_inside_time time;
  int inside = 0;
  if (rank->plugin->inside != NULL) {
    const int32_t rc = sim_inside_ask(&c->inside, rank, args, nargs, &time, &inside, err);
    if (rc != BS_OK) return rc;
  }
  charge(c, rank, stream, cost_of(rows, c->rate.flops_row, c->rate.flops_fixed),
         cost_of(rows, c->rate.bytes_row, c->rate.bytes_fixed), inside ? &time : NULL);
  return BS_OK;
}
