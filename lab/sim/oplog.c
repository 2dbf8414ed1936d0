/* SPDX-License-Identifier: MIT
 * oplog.c - see oplog.h. */
#include "lab/sim/oplog.h"

#include <string.h>

#include "lab/error.h"

int32_t bs_oplog_make(bs_inside_answer *a, sim_oplog *out, bs_error *err) {
  sim_recorder recorder;
  sim_inside_result result;
  const sim_inside_config hooks = {.done = sim_recorder_done};
  sim_product *product = &a->program.product;
  if (a->what.kind != SIM_OP_PRODUCT || product->knobs.split > 1)
    return bs_error_set(err, BS_UNSUPPORTED, "BS-INSIDE-OP",
                        "%s, %s has no op log: products without split have one", a->op, a->knobs);
  int32_t rc = sim_oplog_open(out, &a->layout, a->op, a->knobs, err);
  if (rc == BS_OK) rc = sim_layout_reset(&a->layout, err);
  if (rc != BS_OK) return rc;
  rc = sim_recorder_open(&recorder, out, err);
  product->told = &recorder;
  if (rc == BS_OK) rc = sim_product_run(product, &a->layout, &hooks, &result, err);
  if (rc == BS_OK) rc = recorder.rc;
  product->told = NULL;
  sim_recorder_close(&recorder);
  return rc == BS_OK ? sim_oplog_index(out, err) : rc;
}

static int32_t read_shape(const char *op, bs_kernel_problem *q, sim_product_shape *out, bs_error *err) {
  const int32_t rc = bs_kernel_problem_parse(op, q, err);
  if (rc != BS_OK) return rc;
  const uint64_t b = (uint64_t)q->B, n = (uint64_t)q->N, k = (uint64_t)bs_kernel_w_cols(q);
  if (q->kind == BS_KERNEL_MATMUL)
    *out = (sim_product_shape){.m = b, .n = n, .k = k};
  else if (q->kind == BS_KERNEL_MATMUL_DX)
    *out = (sim_product_shape){.m = b, .n = k, .k = n};
  else if (q->kind == BS_KERNEL_MATMUL_DW)
    *out = (sim_product_shape){.m = n, .n = k, .k = b};
  else
    return bs_error_set(err, BS_UNSUPPORTED, "BS-INSIDE-OP", "%s has no op log",
                        bs_kernel_problem_op(q->kind));
  out->in_bytes = BS_DTYPE_BYTES(q->dtype);
  out->out_bytes = BS_DTYPE_BYTES(bs_kernel_y_dtype(q));
  out->epilogue = 1;
  return BS_OK;
}

int32_t bs_oplog_plan_open(const sim_oplog *log, const sim_device *device, bs_oplog_plan *out,
                           bs_error *err) {
  bs_inside_knobs given = {0};
  memset(out, 0, sizeof *out);
  int32_t rc = read_shape(log->op, &out->problem, &out->shape, err);
  if (rc == BS_OK) rc = bs_inside_knobs_read(log->knobs, &given, err);
  if (rc == BS_OK) rc = bs_inside_knobs_first(&given, &out->knobs, err);
  if (rc == BS_OK && out->knobs.split > 1)
    rc = bs_error_set(err, BS_UNSUPPORTED, "BS-INSIDE-OP", "%s, %s: a product with split has no op log",
                      log->op, log->knobs);
  if (rc == BS_OK) rc = sim_layout_make(device, out->problem.dtype, &out->layout, err);
  return rc == BS_OK ? sim_product_make(&out->layout, &out->shape, &out->knobs, &out->program, err) : rc;
}

void bs_oplog_plan_close(bs_oplog_plan *p) {
  sim_layout_free(&p->layout);
}

/* ---- hazards ----------------------------------------------------------------------------------- */

static void add(const sim_hazards *of, sim_hazards *inout) {
  inout->total += of->total;
  for (uint32_t k = 0; k < SIM_HAZARD_KINDS; k++) inout->count[k] += of->count[k];
}

static int32_t find_drawn(const sim_oplog *log, bs_oplog_plan *plan, uint32_t machine, bs_oplog_hazards *out,
                          bs_error *err) {
  sim_oplog drawn;
  sim_hazards found;
  sim_retime_draw(&plan->layout, out->seed, machine);
  int32_t rc = sim_retime(log, &plan->program, &plan->layout, &drawn, err);
  if (rc == BS_OK) rc = sim_hazards_find(&drawn, &found, err);
  if (rc == BS_OK && found.total > 0 && out->machine == 0) {
    out->machine = machine;
    sim_hazard_say(&drawn, &found.kept[0], out->first_drawn, sizeof out->first_drawn);
  }
  if (rc == BS_OK) add(&found, &out->drawn);
  sim_oplog_free(&drawn);
  memset(plan->layout.speed, 0, sizeof plan->layout.speed);
  return rc;
}

int32_t bs_oplog_hazards_find(const sim_oplog *log, bs_oplog_plan *plan, uint64_t seed, bs_oplog_hazards *out,
                              bs_error *err) {
  memset(out, 0, sizeof *out);
  out->seed = seed;
  int32_t rc = sim_hazards_find(log, &out->logged, err);
  if (rc == BS_OK && out->logged.total > 0)
    sim_hazard_say(log, &out->logged.kept[0], out->first, sizeof out->first);
  for (uint32_t m = 1; rc == BS_OK && m <= SIM_RETIME_DRAWN; m++) rc = find_drawn(log, plan, m, out, err);
  return rc;
}
