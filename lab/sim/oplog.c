/* SPDX-License-Identifier: MIT
 * oplog.c - see oplog.h. */
#include "lab/sim/oplog.h"

#include <string.h>

#include "lab/error.h"
#include "lab/sim/inside_op.h"
#include "sim/choose.h"

static int32_t no_log(const char *op, const char *knobs, bs_error *err) {
  bs_error_set(err, BS_UNSUPPORTED, "BS-INSIDE-OP", "%s, %s has no op log", op, knobs);
  bs_error_hint(err, "products without split, attention and maps have one");
  return BS_UNSUPPORTED;
}

int32_t bs_oplog_make(bs_inside_answer *a, sim_oplog *out, bs_error *err) {
  sim_recorder recorder;
  sim_inside_result result;
  const sim_inside_config hooks = {.done = sim_recorder_done};
  if (!sim_recorder_takes(a->what.kind, sim_program_knobs(&a->program))) return no_log(a->op, a->knobs, err);
  int32_t rc = sim_oplog_open(out, &a->layout, a->op, a->knobs, err);
  if (rc != BS_OK) return rc;
  rc = sim_recorder_open(&recorder, out, err);
  if (rc == BS_OK) rc = sim_run_once(&a->program, &a->layout, &hooks, &recorder, &result, err);
  if (rc == BS_OK) rc = recorder.rc;
  sim_recorder_close(&recorder);
  return rc == BS_OK ? sim_oplog_index(out, err) : rc;
}

int32_t bs_oplog_plan_open(const sim_oplog *log, const sim_device *device, bs_oplog_plan *out,
                           bs_error *err) {
  bs_inside_knobs given = {0};
  char text[sizeof log->op];
  memset(out, 0, sizeof *out);
  int32_t rc = bs_inside_op_read(log->op, 0, &out->what, &out->dtype, text, sizeof text, err);
  const char *problem = strncmp(log->op, "attention ", 10) == 0 ? log->op + 10 : log->op;
  if (rc == BS_OK && out->what.kind <= SIM_OP_ATTENTION)
    rc = bs_kernel_problem_parse(problem, &out->problem, err);
  if (rc == BS_OK) rc = bs_inside_knobs_read(log->knobs, &given, err);
  if (rc == BS_OK) rc = bs_inside_knobs_first(&given, out->what.kind, &out->knobs, err);
  if (rc == BS_OK && !sim_recorder_takes(out->what.kind, &out->knobs)) rc = no_log(log->op, log->knobs, err);
  if (rc == BS_OK) rc = sim_program_layout(device, &out->what, out->dtype, &out->layout, err);
  return rc == BS_OK ? sim_program_make(&out->layout, &out->what, &out->knobs, &out->program, err) : rc;
}

void bs_oplog_plan_close(bs_oplog_plan *p) {
  sim_program_close(&p->program);
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
