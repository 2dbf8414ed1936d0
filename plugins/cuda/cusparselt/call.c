/* SPDX-License-Identifier: MIT
 * call.c - a product described to cuSPARSELt, its plan, and the ask; see product.h. */
#include "product.h"

/* The parts of a product that have been made, in this order. */
enum { MADE_A = 1, MADE_B = 2, MADE_C = 4, MADE_ALGORITHM = 8, MADE_PLAN = 16 };

int32_t cuda_splt_describe_weight(const cuda_splt *splt, const cuda_splt_opaque *handle, int64_t rows,
                                  int64_t cols, int32_t type, cuda_splt_opaque *out, bs_error *err) {
  return cuda_splt_check(splt,
                         splt->call.structured_init(handle, out, rows, cols, cols, CUDA_SPLT_ALIGN, type,
                                                    SPLT_ORDER_ROW, SPLT_HALF),
                         "cusparseLtStructuredDescriptorInit", err);
}

static int32_t dense(cuda_splt_product *p, cuda_splt_opaque *out, int64_t rows, int64_t cols, int64_t ld,
                     int32_t type, int order, uint32_t bit, bs_error *err) {
  const int32_t rc = cuda_splt_check(
      p->splt, p->splt->call.dense_init(p->handle, out, rows, cols, ld, CUDA_SPLT_ALIGN, type, order),
      "cusparseLtDenseDescriptorInit", err);
  if (rc == BS_OK) p->made |= bit;
  return rc;
}

static int32_t matmul(cuda_splt_product *p, const cuda_splt_shape *s, bs_error *err) {
  const int32_t on = 1;
  const cuda_splt_functions *call = &p->splt->call;
  int32_t rc = cuda_splt_check(
      p->splt,
      call->matmul_init(p->handle, &p->matmul, SPLT_OP_N, SPLT_OP_T, &p->a, &p->b, &p->c, &p->c, s->compute),
      "cusparseLtMatmulDescriptorInit", err);
  if (rc == BS_OK && s->relu)
    rc = cuda_splt_check(p->splt, call->matmul_set(p->handle, &p->matmul, SPLT_MATMUL_RELU, &on, sizeof on),
                         "cusparseLtMatmulDescSetAttribute", err);
  return rc;
}

int32_t cuda_splt_product_begin(const cuda_splt *splt, const cuda_splt_opaque *handle,
                                const cuda_splt_shape *s, cuda_splt_product *p, bs_error *err) {
  memset(p, 0, sizeof *p);
  p->splt = splt;
  p->handle = handle;
  int32_t rc = cuda_splt_describe_weight(splt, handle, s->m, s->k, s->in, &p->a, err);
  if (rc == BS_OK) p->made |= MADE_A;
  if (rc == BS_OK) rc = dense(p, &p->b, s->n, s->k, s->ldb, s->in, SPLT_ORDER_ROW, MADE_B, err);
  if (rc == BS_OK) rc = dense(p, &p->c, s->m, s->n, s->ldd, s->out, SPLT_ORDER_COL, MADE_C, err);
  if (rc == BS_OK) rc = matmul(p, s, err);
  if (rc == BS_OK)
    rc = cuda_splt_check(splt,
                         splt->call.algorithm_init(handle, &p->algorithm, &p->matmul, SPLT_ALGORITHM_DEFAULT),
                         "cusparseLtMatmulAlgSelectionInit", err);
  if (rc == BS_OK)
    p->made |= MADE_ALGORITHM;
  else
    cuda_splt_product_end(p);
  return rc;
}

static void end_plan(cuda_splt_product *p) {
  if (p->made & MADE_PLAN) (void)p->splt->call.plan_destroy(&p->plan);
  p->made &= ~(uint32_t)MADE_PLAN;
}

int32_t cuda_splt_product_plan(cuda_splt_product *p, int32_t id, uint64_t *out_workspace, bs_error *err) {
  const cuda_splt_functions *call = &p->splt->call;
  const int32_t whole = 1; /* sums; on capability 9.0 the library would split them as it likes */
  size_t bytes = 0;
  end_plan(p);
  int32_t rc =
      cuda_splt_check(p->splt, call->algorithm_set(p->handle, &p->algorithm, SPLT_CONFIG_ID, &id, sizeof id),
                      "cusparseLtMatmulAlgSetAttribute", err);
  if (rc == BS_OK)
    rc = cuda_splt_check(p->splt,
                         call->algorithm_set(p->handle, &p->algorithm, SPLT_SPLIT_K, &whole, sizeof whole),
                         "cusparseLtMatmulAlgSetAttribute", err);
  if (rc == BS_OK)
    rc = cuda_splt_check(p->splt, call->plan_init(p->handle, &p->plan, &p->matmul, &p->algorithm),
                         "cusparseLtMatmulPlanInit", err);
  if (rc != BS_OK) return rc;
  p->made |= MADE_PLAN;
  rc = cuda_splt_check(p->splt, call->workspace(p->handle, &p->plan, &bytes), "cusparseLtMatmulGetWorkspace",
                       err);
  *out_workspace = bytes;
  return rc;
}

void cuda_splt_product_end(cuda_splt_product *p) {
  const cuda_splt_functions *call = p->splt != NULL ? &p->splt->call : NULL;
  if (call == NULL) return;
  end_plan(p);
  if ((p->made & MADE_ALGORITHM) && call->algorithm_destroy != NULL)
    (void)call->algorithm_destroy(&p->algorithm);
  if (p->made & MADE_C) (void)call->matrix_destroy(&p->c);
  if (p->made & MADE_B) (void)call->matrix_destroy(&p->b);
  if (p->made & MADE_A) (void)call->matrix_destroy(&p->a);
  p->made = 0;
}

/* Scalars are f32 for every type. */
int cuda_splt_multiply(const cuda_splt_product *p, const cuda_splt_shape *s, const cuda_splt_operands *o,
                       CUstream stream) {
  static const float one = 1.0f, zero = 0.0f;
  return p->splt->call.matmul(p->handle, &p->plan, &one, o->weight, o->x, s->adds ? &one : &zero,
                              s->adds ? o->residual : o->y, o->y, o->workspace, &stream, 1);
}
