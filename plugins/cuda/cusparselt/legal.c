/* SPDX-License-Identifier: MIT
 * legal.c - what cuSPARSELt multiplies, in one table: types, what sizes are multiples of, and on what
 * devices. Then how matrices must lie, and the epilogues it has. */
#include "product.h"

enum {
  MOST = INT32_MAX,
  MOST_OF_Y = 2097120 /* rows and columns */,
  ADA = 89,
  HOPPER = 90,
  F8_ON_ADA = 800 /* the version */
};

typedef struct row {
  uint32_t of, to;             /* enum bs_dtype: X and the weight; Y */
  int32_t in, out, compute;    /* the library's */
  int32_t capability;          /* at least */
  int32_t weight_unit, x_unit; /* N and K are multiples of the first, B and rows of the second */
} row;
static const row rows[] = {
    {BS_BF16, BS_BF16, SPLT_R_16BF, SPLT_R_16BF, SPLT_COMPUTE_32F, 80, 16, 8},
    {BS_F16, BS_F16, SPLT_R_16F, SPLT_R_16F, SPLT_COMPUTE_32F, 80, 16, 8},
    {BS_I8, BS_I32, SPLT_R_8I, SPLT_R_32I, SPLT_COMPUTE_32I, 80, 32, 16},
    {BS_F8E4M3, BS_F32, SPLT_R_8F_E4M3, SPLT_R_32F, SPLT_COMPUTE_32F, ADA, 32, 16},
    {BS_F8E4M3, BS_BF16, SPLT_R_8F_E4M3, SPLT_R_16BF, SPLT_COMPUTE_32F, ADA, 32, 16},
    {BS_F8E4M3, BS_F16, SPLT_R_8F_E4M3, SPLT_R_16F, SPLT_COMPUTE_32F, ADA, 32, 16},
    {BS_F8E5M2, BS_F32, SPLT_R_8F_E5M2, SPLT_R_32F, SPLT_COMPUTE_32F, ADA, 32, 16},
    {BS_F8E5M2, BS_BF16, SPLT_R_8F_E5M2, SPLT_R_16BF, SPLT_COMPUTE_32F, ADA, 32, 16},
    {BS_F8E5M2, BS_F16, SPLT_R_8F_E5M2, SPLT_R_16F, SPLT_COMPUTE_32F, ADA, 32, 16},
};

/* The first row of a weight's type tells all of it but Y's. */
static const row *find_row(uint32_t w, uint32_t x, uint32_t y) {
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
    if (rows[i].of == w && rows[i].of == x && (y == 0 || rows[i].to == y)) return &rows[i];
  return NULL;
}

/* ---- the weight ------------------------------------------------------------------------------- */

static int no_weight(uint32_t dtype, bs_op_answer *out) {
  if (dtype == BS_F32)
    (void)cuda_answer_no(out, BS_REASON_DTYPE,
                         "cuSPARSELt multiplies f32 as TF32, which keeps 10 bits of a factor's fraction");
  else
    (void)cuda_answer_no(out, BS_REASON_DTYPE, "cuSPARSELt compresses no weights of 0x%04x", dtype);
  return 0;
}

static int device_ok(const cuda_splt *splt, const row *r, bs_op_answer *out) {
  const int32_t least = r->capability == ADA && splt->version < F8_ON_ADA ? HOPPER : r->capability;
  if (splt->capability >= least) return 1;
  (void)cuda_answer_no(out, BS_REASON_ARCH, "%s: 0x%04x needs compute capability %d.%d, there is %d.%d",
                       splt->text, r->of, least / 10, least % 10, splt->capability / 10,
                       splt->capability % 10);
  return 0;
}

static int64_t columns_of(const bs_op_query *q) {
  return q->partition != NULL ? q->partition->count : q->args[0]->dims[1];
}

int cuda_splt_weight_legal(cuda_state *state, const bs_op_query *q, bs_op_answer *out) {
  const cuda_splt *splt = cuda_splt_open(state);
  const row *r = find_row(q->weight_dtype, q->weight_dtype, 0);
  if (!splt->usable) {
    (void)cuda_answer_no(out, splt->reason, "%s", splt->text);
    return 0;
  }
  return r != NULL ? device_ok(splt, r, out) : no_weight(q->weight_dtype, out);
}

static int sizes_fit(const row *r, int64_t n, int64_t k) {
  return n > 0 && k > 0 && n <= MOST && k <= MOST && n % r->weight_unit == 0 && k % r->weight_unit == 0;
}

int cuda_splt_compresses(uint32_t dtype, int64_t rows_of, int64_t cols, int32_t *out_type) {
  const row *r = find_row(dtype, dtype, 0);
  if (r == NULL || !sizes_fit(r, rows_of, cols)) return 0;
  *out_type = r->in;
  return 1;
}

/* ---- how matrices lie ------------------------------------------------------------------------- */

/* Elements from a row of arg i to the next; 0 and a NO where rows are not dense, or off 16 bytes. */
static int64_t line_of(const bs_op_query *q, uint32_t i, bs_op_answer *out) {
  const bs_tensor_desc *d = q->args[i];
  const int dense = d->strides[0] == 0 && d->strides[1] == 0;
  const int64_t line = dense ? d->dims[1] : d->strides[0];
  if (!dense && (d->strides[1] != 1 || line < d->dims[1])) {
    (void)cuda_answer_no(
        out, BS_REASON_LAYOUT, "arg %u [%lld,%lld] has strides %lld, %lld: rows must be dense", i,
        (long long)d->dims[0], (long long)d->dims[1], (long long)d->strides[0], (long long)d->strides[1]);
    return 0;
  }
  if (line > 0 && line <= MOST && (uint64_t)line * BS_DTYPE_BYTES(d->dtype) % CUDA_SPLT_ALIGN == 0)
    return line;
  (void)cuda_answer_no(out, BS_REASON_ALIGNMENT, "arg %u: rows of %lld elements are not on %u bytes", i,
                       (long long)line, CUDA_SPLT_ALIGN);
  return 0;
}

static int lines_ok(const bs_op_query *q, cuda_splt_shape *s, uint64_t *out_offset, bs_op_answer *out) {
  const bs_partition *p = q->flags & BS_QUERY_X_FULL ? q->partition : NULL;
  s->ldb = line_of(q, 0, out);
  s->ldd = s->ldb > 0 ? line_of(q, 3, out) : 0;
  s->ldc = s->ldd > 0 && s->adds ? line_of(q, 2, out) : s->ldd;
  if (s->ldc == 0) return 0;
  *out_offset = p != NULL ? (uint64_t)p->begin * BS_DTYPE_BYTES(q->args[0]->dtype) : 0;
  if (*out_offset % CUDA_SPLT_ALIGN == 0 && s->ldc == s->ldd) return 1;
  if (s->ldc != s->ldd)
    (void)cuda_answer_no(out, BS_REASON_LAYOUT, "rows of the residual are %lld apart, of Y %lld: must agree",
                         (long long)s->ldc, (long long)s->ldd);
  else
    (void)cuda_answer_no(out, BS_REASON_ALIGNMENT, "column %lld of X is not on %u bytes", (long long)p->begin,
                         CUDA_SPLT_ALIGN);
  return 0;
}

static int sizes_ok(const cuda_splt_shape *s, const row *r, bs_op_answer *out) {
  enum { EXACT = 131071 }; /* so many products of bytes cannot leave 32 bits */
  if (s->m > MOST_OF_Y || s->n > MOST_OF_Y) {
    (void)cuda_answer_no(out, BS_REASON_SHAPE, "Y of [%lld,%lld]: cuSPARSELt takes at most %d of both",
                         (long long)s->n, (long long)s->m, MOST_OF_Y);
    return 0;
  }
  if (!sizes_fit(r, s->m, s->k)) {
    (void)cuda_answer_no(out, BS_REASON_SHAPE,
                         "a weight of [%lld,%lld]: cuSPARSELt compresses multiples of %d", (long long)s->m,
                         (long long)s->k, r->weight_unit);
    return 0;
  }
  if (s->n <= 0 || s->n > MOST || s->n % r->x_unit != 0) {
    (void)cuda_answer_no(out, BS_REASON_SHAPE, "B = %lld: cuSPARSELt takes multiples of %d", (long long)s->n,
                         r->x_unit);
    return 0;
  }
  if (s->in != SPLT_R_8I || s->k / 2 <= EXACT) return 1;
  (void)cuda_answer_no(out, BS_REASON_SHAPE, "sums of %lld products of bytes may leave 32 bits",
                       (long long)(s->k / 2));
  return 0;
}

/* ---- epilogues -------------------------------------------------------------------------------- */

static int epilogue_ok(const bs_op_query *q, cuda_splt_shape *s, bs_op_answer *out) {
  s->adds = q->args[2] != NULL;
  s->relu = q->activation == BS_ACT_RELU;
  const char *why = q->args[1] != NULL ? "a bias is our own tiles': cuSPARSELt's has a type of its own"
                    : q->activation > BS_ACT_RELU   ? "cuSPARSELt has no exact gelu and no silu"
                    : s->relu && s->adds            ? "cuSPARSELt adds the residual before the activation"
                    : s->in == SPLT_R_8I && s->relu ? "products of integers have no epilogue"
                    : s->in == SPLT_R_8I && s->adds ? "products of integers have no epilogue"
                                                    : NULL;
  if (why != NULL) {
    (void)cuda_answer_no(out, BS_REASON_NOT_BUILT, "%s", why);
    return 0;
  }
  if (!s->adds || q->args[2]->dtype == q->args[3]->dtype) return 1;
  (void)cuda_answer_no(out, BS_REASON_DTYPE, "the residual is 0x%04x, Y 0x%04x: cuSPARSELt takes one type",
                       q->args[2]->dtype, q->args[3]->dtype);
  return 0;
}

/* ---- the product ------------------------------------------------------------------------------ */

static const row *row_of(const bs_op_query *q, bs_op_answer *out) {
  const uint32_t w = q->weight_dtype, x = q->args[0]->dtype, y = q->args[3]->dtype;
  const row *r = find_row(w, x, y);
  if (r == NULL)
    (void)cuda_answer_no(out, BS_REASON_DTYPE, "cuSPARSELt multiplies no 0x%04x by 0x%04x into 0x%04x", x, w,
                         y);
  else if (q->accumulate == BS_ACC_F64 && r->compute == SPLT_COMPUTE_32F)
    (void)cuda_answer_no(out, BS_REASON_DTYPE, "cuSPARSELt sums 0x%04x in f32", w);
  else if (q->flags & BS_QUERY_TOKENWISE)
    (void)cuda_answer_no(out, BS_REASON_DISABLED, "cuSPARSELt's kernels depend on B: not token by token");
  else
    return r;
  return NULL;
}

int cuda_splt_product_legal(const bs_op_query *q, cuda_splt_shape *s, uint64_t *out_offset,
                            bs_op_answer *out) {
  const row *r = row_of(q, out);
  memset(s, 0, sizeof *s);
  if (r == NULL) return 0;
  s->m = q->args[3]->dims[1];
  s->n = q->args[0]->dims[0];
  s->k = columns_of(q);
  s->in = r->in;
  s->out = r->out;
  s->compute = r->compute;
  s->fixed = (q->flags & BS_QUERY_DETERMINISTIC) != 0;
  s->workspace = q->workspace_limit;
  return sizes_ok(s, r, out) && epilogue_ok(q, s, out) && lines_ok(q, s, out_offset, out);
}
