/* SPDX-License-Identifier: MIT
 * products.c - see products.h. */
#include "products.h"

#include <stdint.h>

uint32_t cuda_product_compute(const bs_op_query *q, uint32_t a, uint32_t b, uint32_t c) {
  if (cuda_is_integer(a)) return BS_I64;
  if (q->accumulate != BS_ACC_DEFAULT) return q->accumulate == BS_ACC_F64 ? BS_F64 : BS_F32;
  return a == BS_F64 || b == BS_F64 || c == BS_F64 ? BS_F64 : BS_F32;
}

int64_t cuda_product_columns(const bs_op_query *q, uint32_t x) {
  return q->partition != NULL ? q->partition->count : q->args[x]->dims[1];
}

int cuda_product_shapes(const bs_op_query *q, uint32_t x, uint32_t dy) {
  const bs_partition *p = q->partition;
  if (!cuda_arg_ok(q, x, 2) || !cuda_arg_ok(q, dy, 2)) return 0;
  const bs_tensor_desc *d = q->args[x];
  const int64_t columns = p == NULL ? d->dims[1] : q->flags & BS_QUERY_X_FULL ? p->total : p->count;
  return d->dims[0] == q->args[dy]->dims[0] && d->dims[1] == columns && q->activation == BS_ACT_NONE &&
         q->accumulate <= BS_ACC_F64;
}

int32_t cuda_product_answer_as(uint32_t compute, bs_op_answer *out) {
  enum { SCORE = 100 };
  if (compute == BS_I64)
    return cuda_answer(out, BS_LEVEL_NATIVE, SCORE, BS_TOL_EXACT, 0, CUDA_TILES, "64-bit integer sums");
  if (compute == BS_F64)
    return cuda_answer(out, BS_LEVEL_NATIVE, SCORE, BS_TOL_ACC_F64, 0, CUDA_TILES, "f64 sums in order");
  return cuda_answer(out, BS_LEVEL_NATIVE, SCORE, BS_TOL_ACC_F32, 0, CUDA_TILES, "f32 sums in order");
}

int32_t cuda_product_answer(const bs_op_query *q, uint32_t a, uint32_t b, uint32_t c, bs_op_answer *out) {
  const uint32_t compute = cuda_product_compute(q, a, b, c);
  const int fit = compute == BS_I64 ? cuda_is_integer(b) && cuda_is_integer(c)
                                    : cuda_is_float(a) && cuda_is_float(b) && cuda_is_float(c);
  if (!fit)
    return cuda_answer_no(out, BS_REASON_DTYPE, "0x%04x, 0x%04x, 0x%04x: all float or all integer", a, b, c);
  if (compute == BS_F32 && (a == BS_F64 || b == BS_F64))
    return cuda_answer_no(out, BS_REASON_DTYPE, "f64 operands are not summed in f32");
  return cuda_product_answer_as(compute, out);
}

/* ---- plans ---------------------------------------------------------------------------------- */

static int32_t check_weight(const bs_op_impl *impl, const bs_op_query *q, const cuda_packed *w, int64_t n,
                            int64_t k, bs_error *err) {
  if (w == NULL)
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-CUDA-WEIGHT", "%s needs a packed weight", impl->op);
  const int of24 = q->kept != NULL;
  const int64_t cols = of24 && w->places != NULL ? w->places->cols : w->cols;
  if (of24 == (w->places != NULL) && w->dtype == q->weight_dtype && w->rows == n && cols == k) return BS_OK;
  return bs_fail(err, BS_INVALID_ARGUMENT, "BS-CUDA-WEIGHT",
                 "the packed weight is [%lld,%lld] of 0x%04x%s, the plan needs [%lld,%lld] of 0x%04x",
                 (long long)w->rows, (long long)cols, w->dtype, w->places != NULL ? ", 2:4" : "",
                 (long long)n, (long long)k, q->weight_dtype);
}

int32_t cuda_product_prepare(const bs_op_impl *impl, void *state, const bs_exec *exec, const bs_op_query *q,
                             uint32_t compute, uint32_t x, uint32_t dy, int needs_weight, void *packed,
                             cuda_product_plan **out_plan, bs_error *err) {
  const int64_t k = cuda_product_columns(q, x);
  void *made = NULL;
  int32_t rc = cuda_plan_new(impl, state, exec, q, sizeof(cuda_product_plan), &made, err);
  if (rc != BS_OK) return rc;
  cuda_product_plan *plan = made;
  plan->compute = compute;
  plan->activation = q->activation;
  if (needs_weight) {
    rc = check_weight(impl, q, packed, q->args[dy]->dims[1], k, err);
    plan->weight = packed;
  } else if (q->kept != NULL) {
    rc = cuda_places_make(exec, plan->plan.host, q->kept, &plan->own, err);
  }
  if (rc == BS_OK && q->partition != NULL && (q->flags & BS_QUERY_X_FULL) != 0) {
    plan->full = 1;
    rc = cuda_columns_make(exec, plan->plan.host, q->partition, k, &plan->columns, err);
  }
  if (rc != BS_OK) {
    cuda_product_plan_free(plan);
    return rc;
  }
  *out_plan = plan;
  return BS_OK;
}

void cuda_product_plan_free(void *opaque) {
  cuda_product_plan *plan = opaque;
  if (plan == NULL) return;
  cuda_columns_free(plan->plan.exec, &plan->columns);
  cuda_places_free(&plan->own);
  cuda_plan_free(plan);
}

/* ---- what a kernel is given ----------------------------------------------------------------- */

cuda_view cuda_turned(const cuda_view *v) {
  return (cuda_view){v->data, v->cols, v->rows, v->col, v->row, v->dtype, v->size};
}

product_side cuda_product_side(const cuda_view *v) {
  const int along = v->col == 1 || (v->row != 1 && v->col <= v->row);
  const int64_t step = along ? v->col : v->row, other = along ? v->row : v->col;
  const int64_t unit = v->size < 4 ? 4 * (int64_t)v->size : 16; /* bytes that four are loaded by */
  const int wide =
      step == 1 && other * (int64_t)v->size % unit == 0 && (uintptr_t)v->data % (uintptr_t)unit == 0;
  return (product_side){*v, (uint32_t)along, (uint32_t)wide};
}

void cuda_product_pick(const cuda_product_plan *plan, uint32_t picks, cuda_view *v, product_args *args) {
  if (!plan->full) return;
  if (plan->columns.list != NULL) {
    args->picks = picks;
    args->list = plan->columns.list;
    return;
  }
  if (v->data != NULL && plan->columns.count > 0)
    v->data = (unsigned char *)v->data + plan->columns.begin * v->col * (int64_t)v->size;
  v->cols = plan->columns.count;
}

/* The side that a list picks from has no four neighbours. */
static void narrow_picked(product_args *args) {
  if (args->picks == PRODUCT_PICKS_A_DEPTH) args->a.wide = 0;
  if (args->picks == PRODUCT_PICKS_B_ROWS) args->b.wide = 0;
}

static int32_t shape_of(const product_args *args, cuda_shape *out_shape, bs_error *err) {
  const int64_t down = (args->rows + PRODUCT_TILE - 1) / PRODUCT_TILE;
  const int64_t across = (args->cols + PRODUCT_TILE - 1) / PRODUCT_TILE;
  int64_t blocks = 0;
  if (__builtin_mul_overflow(down, across, &blocks) || blocks > INT32_MAX)
    return bs_fail(err, BS_OVERFLOW, "BS-CUDA-GRID", "%lld x %lld outputs are more than a grid has tiles",
                   (long long)args->rows, (long long)args->cols);
  *out_shape = (cuda_shape){(uint32_t)blocks, 1, 1, PRODUCT_THREADS, 0};
  return BS_OK;
}

static uint32_t kernel_for(uint32_t compute, int of24) {
  const uint32_t f32 = of24 ? CUDA_PRODUCT24_F32 : CUDA_PRODUCT_F32,
                 f64 = of24 ? CUDA_PRODUCT24_F64 : CUDA_PRODUCT_F64,
                 i64 = of24 ? CUDA_PRODUCT24_I64 : CUDA_PRODUCT_I64;
  return compute == BS_I64 ? i64 : compute == BS_F64 ? f64 : f32;
}

int32_t cuda_product_echo(const void *opaque, bs_op_echo *out_echo) {
  const cuda_product_plan *plan = opaque;
  const int of24 = strncmp(plan->plan.op, "matmul24", 8) == 0;
  bs_op_echo mine;
  bs_echo_begin(&mine);
  cuda_echo_kernel(plan->plan.device, kernel_for(plan->compute, of24), 0, &mine);
  bs_out_copy(out_echo, &mine, sizeof mine);
  return BS_OK;
}

int32_t cuda_product_launch(const cuda_device *device, uint32_t compute, CUstream stream,
                            const product_args *args, bs_error *err) {
  product_args full = *args;
  cuda_shape shape = {0};
  narrow_picked(&full);
  const int32_t rc = shape_of(&full, &shape, err);
  if (rc != BS_OK || shape.blocks_x == 0) return rc;
  return cuda_launch(device, kernel_for(compute, 0), &shape, stream, &full, err);
}

void cuda_product24_fill(const cuda_places *places, uint32_t form, product24_args *args) {
  args->codes = places->codes;
  args->groups = places->groups;
  args->columns = places->cols;
  args->form = form;
}

int32_t cuda_product24_launch(const cuda_device *device, uint32_t compute, CUstream stream,
                              const product24_args *args, bs_error *err) {
  cuda_shape shape = {0};
  const int32_t rc = shape_of(&args->p, &shape, err);
  if (rc != BS_OK || shape.blocks_x == 0) return rc;
  return cuda_launch(device, kernel_for(compute, 1), &shape, stream, args, err);
}

/* A product of no length that adds its residual. */
int32_t cuda_product_add(const cuda_packed *p, const bs_tensor *delta, bs_error *err) {
  const cuda_device *device = p->exec->device;
  product24_args args;
  memset(&args, 0, sizeof args);
  args.p.c = cuda_packed_view(p);
  args.p.residual = cuda_view_of(delta);
  args.p.adds = 1;
  args.p.rows = p->rows;
  args.p.cols = p->places != NULL ? p->places->cols : p->cols;
  if (p->places == NULL) return cuda_product_launch(device, BS_F64, device->stream, &args.p, err);
  cuda_product24_fill(p->places, PRODUCT24_OUT, &args);
  return cuda_product24_launch(device, BS_F64, device->stream, &args, err);
}
