/* SPDX-License-Identifier: MIT
 *
 * gradient.c - see gradient.h. */
#include "gradient.h"

#include <stdlib.h>

#define ALONE (1 << 16) /* multiplications below which the team is not woken */

int cpu_grad_read(const bs_op_query *query, uint32_t x, uint32_t dy, cpu_grad *out, bs_op_answer *answer) {
  int64_t ld = 0;
  memset(out, 0, sizeof *out);
  if (!cpu_read_matrix(query->args[x], x == 0 ? "X" : "dX", &out->x_type, &ld, answer)) return 0;
  if (!cpu_read_matrix(query->args[dy], "dY", &out->dy_type, &ld, answer)) return 0;
  if (query->accumulate == BS_ACC_F64)
    return cpu_answer_no(answer, BS_REASON_DTYPE, "accumulates in f32; the ref backend has f64");
  out->B = query->args[dy]->dims[0];
  out->N = query->args[dy]->dims[1];
  out->K = query->partition != NULL ? query->partition->count : query->args[x]->dims[1];
  out->full = (query->flags & BS_QUERY_X_FULL) != 0 && query->partition != NULL;
  return 1;
}

/* A member begins on a cache line of its own. */
static uint64_t whole_lines(uint64_t floats) {
  return (floats + 15) / 16 * 16;
}

void cpu_grad_yes(const cpu_state *state, const bs_op_query *query, uint64_t each, const char *text,
                  bs_op_answer *answer) {
  char algo[48];
  if (!cpu_workspace_fits(query, whole_lines(each) * sizeof(float), answer)) return;
  snprintf(algo, sizeof algo, "transposed-%s", state->kernels.name);
  cpu_answer_yes(answer, 600, BS_TOL_ACC_F32, algo, text);
}

static int32_t check_weight(const bs_op_query *query, const cpu_grad *shape, const cpu_packed *w,
                            bs_error *err) {
  if (w != NULL && w->N == shape->N && w->K == shape->K && w->dtype == query->weight_dtype) return BS_OK;
  return bs_fail(err, BS_INVALID_ARGUMENT, "BS-CPU-PACKED", "[%lld,%lld] asked of another packed weight",
                 (long long)shape->N, (long long)shape->K);
}

int32_t cpu_grad_plan_make(const cpu_state *state, const bs_exec *exec, const bs_op_query *query,
                           const cpu_grad *shape, cpu_packed *packed, int needs_packed, uint64_t each,
                           size_t size, void **out_plan, bs_error *err) {
  bs_op_answer answer;
  memset(&answer, 0, sizeof answer);
  if (!cpu_workspace_fits(query, whole_lines(each) * sizeof(float), &answer))
    return bs_fail(err, BS_UNSUPPORTED, "BS-CPU-MATMUL", "%s", answer.text);
  int32_t rc = needs_packed ? check_weight(query, shape, packed, err) : BS_OK;
  if (rc != BS_OK) return rc;
  cpu_grad_plan *plan = calloc(1, size);
  if (plan == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for a plan");
  plan->exec = exec;
  plan->kernels = &state->kernels;
  plan->w = packed;
  plan->shape = *shape;
  plan->width = exec->width > 0 ? exec->width : 1;
  plan->each = whole_lines(each);
  plan->width = cpu_workspace_members(query, plan->each * sizeof(float), plan->width);
  if (shape->full) {
    rc = cpu_columns_copy(query->partition, &plan->partition, err);
    if (rc == BS_OK)
      cpu_columns_make(&state->kernels, plan->partition, BS_DTYPE_BYTES(shape->x_type), &plan->columns);
  }
  if (rc == BS_OK) rc = cpu_reserve(exec, plan->each * plan->width * sizeof(float), err);
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
  free(plan->partition);
  free(plan);
}

int32_t cpu_grad_go(cpu_grad_plan *plan, int64_t tokens,
                    void (*body)(void *arg, uint32_t member, uint32_t width), void *arg, bs_error *err) {
  const cpu_grad *shape = &plan->shape;
  if (tokens > shape->B)
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-CPU-BATCH", "%lld tokens, prepared for %lld",
                   (long long)tokens, (long long)shape->B);
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
