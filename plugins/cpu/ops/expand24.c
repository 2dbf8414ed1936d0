/* SPDX-License-Identifier: MIT
 *
 * expand24.c - kept values of a 2:4 matrix to their places in a dense one, zeros elsewhere. Rows are divided
 * over the team; values are moved by size, so that -0 and a NaN's payload stay. */
#include <stdlib.h>

#include "packed24.h"

typedef struct expand_plan {
  const bs_exec *exec;
  cpu_state *state;
  cpu_codes *codes;
  uint32_t other;
  uint32_t size;
} expand_plan;

typedef struct expand_call {
  const expand_plan *plan;
  const bs_tensor *values, *dense;
} expand_call;

/* Groups of a row whose values begin at `from`; size is known when this is compiled. */
static inline void expand_row(const expand_call *call, int64_t n, const size_t size) {
  const expand_plan *plan = call->plan;
  const cpu_codes *codes = plan->codes;
  const int64_t K = codes->cols;
  const uint8_t *from = (const uint8_t *)call->values->data + (size_t)(n * call->values->strides[0]) * size;
  uint8_t *to = (uint8_t *)call->dense->data + (size_t)(n * call->dense->strides[0]) * size;
  uint32_t word = 0;
  for (int64_t k = 0, left; (left = K - k) > 0; k += 4, word >>= 4, from += 2 * size, to += 4 * size) {
    if (k % CPU_UNIT_COLUMNS == 0)
      word = cpu_codes_at(codes, n / CPU_PANEL, k / CPU_UNIT_COLUMNS)[n % CPU_PANEL];
    const uint32_t code = plan->other ? cpu_code_other(word & 15u) : word & 15u;
    const uint32_t first = code & 3u, second = code >> 2;
    memset(to, 0, (size_t)(left < 4 ? left : 4) * size);
    if (first < left) memcpy(to + first * size, from, size);
    if (second < left) memcpy(to + second * size, from + size, size);
  }
}

static void share(void *arg, uint32_t member, uint32_t width) {
  const expand_call *call = arg;
  int64_t begin, end;
  cpu_share(call->dense->dims[0], member, width, &begin, &end);
  for (int64_t n = begin; n < end; n++) switch (call->plan->size) {
      case 1:
        expand_row(call, n, 1);
        break;
      case 2:
        expand_row(call, n, 2);
        break;
      case 4:
        expand_row(call, n, 4);
        break;
      default:
        expand_row(call, n, 8);
        break;
    }
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  const expand_plan *plan = opaque;
  expand_call call = {plan, args[0], args[1]};
  (void)nargs;
  (void)stream;
  if (plan->codes->cols == 0) return BS_OK;
  return cpu_team(plan->exec, 0, share, &call, err);
}

static void plan_free(void *opaque) {
  expand_plan *plan = opaque;
  if (plan == NULL) return;
  cpu_codes_drop(plan->state, plan->codes);
  free(plan);
}

static int32_t supports(void *state, const bs_op_query *query, bs_op_answer *answer) {
  const bs_tensor_desc *values = query->args[0], *dense = query->args[1];
  (void)state;
  if (!cpu_kept_fits(query, dense->dims[0], dense->dims[1], answer)) return BS_OK;
  if (!cpu_rows_dense(values) || !cpu_rows_dense(dense))
    cpu_answer_no(answer, BS_REASON_LAYOUT, "elements of a row must be adjacent");
  else
    cpu_answer_yes(answer, 500, BS_TOL_EXACT, "rows", "own loops, row by row");
  return BS_OK;
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  (void)packed;
  int32_t rc = cpu_require(supports, state, query, err);
  if (rc != BS_OK) return rc;
  expand_plan *plan = calloc(1, sizeof *plan);
  if (plan == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for a plan");
  plan->exec = exec;
  plan->state = state;
  plan->size = BS_DTYPE_BYTES(query->args[0]->dtype);
  rc = cpu_codes_take(state, exec, query->kept, &plan->codes, &plan->other, err);
  if (rc != BS_OK) {
    plan_free(plan);
    return rc;
  }
  *out_plan = plan;
  return BS_OK;
}

const bs_src_loc cpu_expand24_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl cpu_expand24 = {
    .struct_size = sizeof(bs_op_impl),
    .priority = 20,
    .op = "expand24",
    .backend = "cpu",
    .name = "packed",
    .summary = "own loops, row by row",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = plan_free,
};
