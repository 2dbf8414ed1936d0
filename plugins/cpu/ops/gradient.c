/* SPDX-License-Identifier: MIT
 *
 * gradient.c - see gradient.h. */
#include "gradient.h"

#include <stdlib.h>

#define ALONE (1 << 16)              /* multiplications below which the team is not woken */
#define MOST_OUTPUTS ((1 << 17) - 1) /* whose products of bytes are within i32 */

/* K and what goes with it: of every query. */
static void read_sizes(const cpu_grad_kind *kind, const bs_op_query *query, cpu_grad *out) {
  memset(out, 0, sizeof *out);
  out->B = query->args[kind->dy]->dims[0];
  out->N = query->args[kind->dy]->dims[1];
  out->K = query->partition != NULL ? query->partition->count : query->args[kind->x]->dims[1];
  out->full = (query->flags & BS_QUERY_X_FULL) != 0 && query->partition != NULL;
}

/* A query of bytes: i8 dY and weight, i32 dX. Sums of 32 bits must be those of 64. */
static int read_integers(const cpu_grad_kind *kind, const bs_op_query *q, cpu_grad *out,
                         bs_op_answer *answer) {
  out->dy_type = BS_I8;
  out->x_type = BS_I32;
  if (q->weight_dtype != BS_I8 || q->args[kind->x]->dtype != BS_I32 || q->accumulate == BS_ACC_F64)
    return cpu_answer_no(answer, BS_REASON_DTYPE, "integers are i8 x i8 to i32");
  if (!cpu_args_dense(q, 2, answer)) return 0;
  if (out->N <= MOST_OUTPUTS) return 1;
  return cpu_answer_no(answer, BS_REASON_SHAPE, "sums of %lld outputs of i8 may not fit 32 bits",
                       (long long)out->N);
}

static int read_dw(const bs_tensor_desc *dw, bs_op_answer *answer) {
  if (dw->dtype != BS_F32)
    return cpu_answer_no(answer, BS_REASON_DTYPE, "dW of dtype 0x%04x: f32 only", dw->dtype);
  if (cpu_rows_dense(dw)) return 1;
  return cpu_answer_no(answer, BS_REASON_LAYOUT, "dW has element stride %lld, need 1",
                       (long long)dw->strides[1]);
}

static int read_floats(const cpu_grad_kind *kind, const bs_op_query *query, cpu_grad *out,
                       bs_op_answer *answer) {
  const bs_tensor_desc *x = query->args[kind->x];
  int64_t ld = 0;
  if (x->dtype == BS_I8 && kind->x == 0 && kind->of24)
    return cpu_answer_no(answer, BS_REASON_DTYPE, "no steps of i8 weights: they are quantised again instead");
  if (!cpu_read_matrix(x, kind->x == 0 ? "X" : "dX", &out->x_type, &ld, answer)) return 0;
  if (!cpu_read_matrix(query->args[kind->dy], "dY", &out->dy_type, &ld, answer)) return 0;
  if (query->accumulate == BS_ACC_F64)
    return cpu_answer_no(answer, BS_REASON_DTYPE, "accumulates in f32; the ref backend has f64");
  if (!kind->weight) return read_dw(query->args[2], answer);
  if (cpu_is_matmul_type(query->weight_dtype)) return 1;
  return cpu_answer_no(answer, BS_REASON_DTYPE, "weight of dtype 0x%04x: f32, bf16 and f16 only",
                       query->weight_dtype);
}

/* Fill the shape and the floats of a member, whole cache lines, or answer NO with the reason and return 0. */
static int judge(const cpu_grad_kind *kind, const bs_op_query *query, cpu_grad *out, uint64_t *out_each,
                 bs_op_answer *answer) {
  read_sizes(kind, query, out);
  const int read = kind->integers && query->args[kind->dy]->dtype == BS_I8
                       ? read_integers(kind, query, out, answer)
                       : read_floats(kind, query, out, answer);
  if (!read || (kind->of24 && !cpu_kept_fits(query, out->N, out->K, answer))) return 0;
  *out_each = (kind->floats(query, out) + 15) / 16 * 16;
  return cpu_workspace_fits(query, *out_each * sizeof(float), answer);
}

int32_t cpu_grad_supports(const cpu_grad_kind *kind, const cpu_state *state, const bs_op_query *query,
                          bs_op_answer *answer) {
  cpu_grad shape;
  uint64_t each = 0;
  char algo[48];
  if (!judge(kind, query, &shape, &each, answer)) return BS_OK;
  snprintf(algo, sizeof algo, "%s-%s", kind->algo, state->kernels.name);
  cpu_answer_yes(answer, 600, shape.dy_type == BS_I8 ? BS_TOL_EXACT : BS_TOL_ACC_F32, algo, kind->text);
  answer->bits = shape.dy_type == BS_I8 ? 0 : kind->bits;
  return BS_OK;
}

/* Takes the columns of X or dX, and for 2:4 weights which two of each four. */
static int32_t take_columns(cpu_grad_plan *plan, const cpu_grad_kind *kind, const bs_op_query *query,
                            bs_error *err) {
  if (kind->of24) {
    if (plan->shape.full) plan->begin = query->partition->begin;
    if (plan->w == NULL)
      return cpu_codes_take(plan->state, plan->exec, query->kept, &plan->codes, &plan->other, err);
    plan->codes = plan->w->codes;
    plan->other = plan->w->other;
    return BS_OK;
  }
  if (!plan->shape.full) return BS_OK;
  const int32_t rc = cpu_columns_copy(query->partition, &plan->partition, err);
  if (rc == BS_OK)
    cpu_columns_make(plan->kernels, plan->partition, BS_DTYPE_BYTES(plan->shape.x_type), &plan->columns);
  return rc;
}

int32_t cpu_grad_prepare(const cpu_grad_kind *kind, cpu_state *state, const bs_exec *exec,
                         const bs_op_query *query, void *packed, void **out_plan, bs_error *err) {
  cpu_grad shape;
  bs_op_answer answer;
  uint64_t each = 0;
  memset(&answer, 0, sizeof answer);
  if (!judge(kind, query, &shape, &each, &answer))
    return bs_fail(err, BS_UNSUPPORTED, "BS-CPU-MATMUL", "%s", answer.text);
  int32_t rc = kind->weight ? cpu_packed_check(packed, shape.N, shape.K, query->weight_dtype, err) : BS_OK;
  if (rc != BS_OK) return rc;
  cpu_grad_plan *plan = calloc(1, kind->size);
  if (plan == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for a plan");
  plan->exec = exec;
  plan->state = state;
  plan->kernels = &state->kernels;
  plan->w = kind->weight ? packed : NULL;
  plan->shape = shape;
  plan->each = each;
  plan->width = cpu_workspace_members(query, each * sizeof(float), exec->width > 0 ? exec->width : 1);
  rc = take_columns(plan, kind, query, err);
  if (rc == BS_OK) rc = cpu_reserve(exec, each * plan->width * sizeof(float), err);
  if (rc != BS_OK) {
    cpu_grad_plan_free(plan);
    return rc;
  }
  *out_plan = plan;
  return BS_OK;
}

void cpu_grad_plan_free(void *opaque) {
  cpu_grad_plan *plan = opaque;
  if (plan == NULL) return;
  if (plan->w == NULL) cpu_codes_drop(plan->state, plan->codes);
  free(plan->partition);
  free(plan);
}

int32_t cpu_grad_go(cpu_grad_plan *plan, int64_t tokens,
                    void (*body)(void *arg, uint32_t member, uint32_t width), void *arg, bs_error *err) {
  const cpu_grad *shape = &plan->shape;
  const int32_t rc = cpu_batch_fits(tokens, shape->B, err);
  if (rc != BS_OK) return rc;
  plan->memory = plan->exec->scratch(plan->exec->ctx);
  return cpu_team(plan->exec, (double)(tokens + 1) * (double)shape->N * (double)shape->K < ALONE, body, arg,
                  err);
}

/* ---- views ---------------------------------------------------------------------------------- */

cpu_view cpu_view_of(const cpu_grad_plan *plan, const bs_tensor *tensor, int picks) {
  const cpu_view v = {plan->kernels, tensor->data, tensor->strides[0], tensor->dtype,
                      picks && plan->partition != NULL ? &plan->columns : NULL};
  return v;
}

void cpu_view_load(const cpu_view *v, int64_t row, int64_t first, int64_t count, float *to) {
  const uint8_t *from = (const uint8_t *)v->data + (size_t)(row * v->ld) * BS_DTYPE_BYTES(v->type);
  uint16_t picked[CPU_K_BLOCK];
  const int index = cpu_type_index(v->type);
  if (v->columns == NULL) {
    v->kernels->load[index](to, from + (size_t)first * BS_DTYPE_BYTES(v->type), count);
  } else if (index == 0) {
    cpu_columns_gather(v->columns, first, count, to, from);
  } else {
    cpu_columns_gather(v->columns, first, count, picked, from);
    v->kernels->load[index](to, picked, count);
  }
}

void cpu_view_turn(const cpu_view *v, int64_t row, int64_t rows, int64_t first, int64_t count, float scale,
                   float *lines, float *to) {
  const int64_t whole = (count + CPU_PANEL - 1) / CPU_PANEL * CPU_PANEL;
  for (int64_t r = 0; r < rows; r += CPU_PANEL) {
    const int64_t n = rows - r < CPU_PANEL ? rows - r : CPU_PANEL;
    for (int64_t i = 0; i < n; i++) {
      float *line = lines + i * CPU_X_LD;
      cpu_view_load(v, row + r + i, first, count, line);
      if (scale != 1.0f)
        for (int64_t c = 0; c < count; c++) line[c] *= scale;
      for (int64_t c = count; c < whole; c++) line[c] = 0.0f;
    }
    for (int64_t i = n; i < CPU_PANEL; i++) memset(lines + i * CPU_X_LD, 0, (size_t)whole * sizeof *lines);
    for (int64_t c = 0; c < whole; c += CPU_PANEL)
      v->kernels->transpose(to + c * CPU_X_LD + r, CPU_X_LD, lines + c, CPU_X_LD);
  }
}

void cpu_view_panels(const cpu_view *v, int64_t row, int64_t rows, int64_t first, int64_t count, float *line,
                     float *to) {
  const int64_t whole = (count + CPU_PANEL - 1) / CPU_PANEL * CPU_PANEL;
  for (int64_t r = 0; r < rows; r++) {
    cpu_view_load(v, row + r, first, count, line);
    for (int64_t c = count; c < whole; c++) line[c] = 0.0f;
    for (int64_t c = 0; c < whole; c += CPU_PANEL)
      memcpy(to + c * rows + r * CPU_PANEL, line + c, CPU_PANEL * sizeof *line);
  }
}
