/* SPDX-License-Identifier: MIT
 * expand24.c - puts the kept values of a 2:4 matrix back at their places, with zeros (+0) elsewhere. Values
 * are moved by size: -0 and a NaN's payload are unchanged. Values beyond the last column are dropped. */
#include "matmul24.h"

typedef struct expand_plan {
  ref_plan base;
  ref_positions at;
} expand_plan;

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *out_answer) {
  (void)state;
  if (q->nargs != 2 || !ref_arg_ok(q, 0, 2) || !ref_arg_ok(q, 1, 2) ||
      q->args[0]->dtype != q->args[1]->dtype || q->args[0]->dims[0] != q->args[1]->dims[0] ||
      q->args[0]->dims[1] != 2 * ((q->args[1]->dims[1] + 3) / 4))
    return ref_answer_no(out_answer, BS_REASON_SHAPE, "needs V [N,2 ceil(K/4)], out [N,K] of one dtype");
  if (!ref_kept_ok(q, q->args[1]->dims[0], q->args[1]->dims[1], out_answer)) return BS_OK;
  return ref_answer_native(out_answer, BS_TOL_EXACT, 0, "portable C, row by row");
}

static void plan_free(void *opaque) {
  expand_plan *plan = opaque;
  if (plan == NULL) return;
  ref_positions_free(&plan->at);
  ref_plan_free(plan);
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  (void)packed;
  void *made = NULL;
  int32_t rc = ref_plan_make(&ref_expand24, state, exec, q, sizeof(expand_plan), &made, err);
  if (rc != BS_OK) return rc;
  expand_plan *plan = made;
  rc = ref_positions_make(plan->base.host, exec, q->kept, &plan->at, err);
  if (rc != BS_OK) {
    plan_free(plan);
    return rc;
  }
  *out_plan = plan;
  return BS_OK;
}

/* Columns begin..end of one row; the team may share a row, so a group is written by who owns its columns. */
static int32_t part(const ref_rows *rows, int64_t r, int64_t begin, int64_t end) {
  const expand_plan *plan = rows->user;
  const ref_view *to = &rows->in, *from = &rows->out; /* shared by the columns of the dense side */
  unsigned char *row = to->data + r * to->row * (int64_t)to->size;
  const unsigned char *values = from->data + r * from->row * (int64_t)from->size;
  for (int64_t k = begin; k < end; k++) memset(row + k * to->col * (int64_t)to->size, 0, to->size);
  for (int64_t j = begin / 4 * 2; j < from->cols && j / 2 * 4 < end; j++) {
    const int64_t k = ref_position(&plan->at, r, j);
    if (k >= begin && k < end)
      memcpy(row + k * to->col * (int64_t)to->size, values + j * from->col * (int64_t)from->size, to->size);
  }
  return BS_OK;
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  const expand_plan *plan = opaque;
  (void)nargs, (void)stream;
  ref_rows rows = {.host = plan->base.host,
                   .in = ref_view_of(args[1]),
                   .out = ref_view_of(args[0]),
                   .part = part,
                   .user = plan};
  return ref_rows_run(&rows, plan->base.exec, err);
}

const bs_src_loc ref_expand24_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl ref_expand24 = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "expand24",
    .backend = "ref",
    .name = "portable",
    .summary = "row by row in portable C",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = plan_free,
};
