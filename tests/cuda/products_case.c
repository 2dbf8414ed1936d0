/* SPDX-License-Identifier: MIT
 * products_case.c - see products_case.h. */
#include "products_case.h"

#include <stdio.h>

const char *pc_text(const pc *c, const char *what) {
  static char text[240];
  const pc_shape *s = &c->s;
  snprintf(text, sizeof text, "%s%s x=%s w=%s y=%s B=%lld N=%lld K=%lld lay=%d part=%d full=%d act=%u acc=%u",
           what, s->of24 ? " 2:4" : "", bs_dtype_name(s->x), bs_dtype_name(s->w), bs_dtype_name(s->y),
           (long long)s->B, (long long)s->N, (long long)s->K, s->lay, s->part, s->full, s->activation,
           s->accumulate);
  return text;
}

void pc_lay(pl_tensor *t, uint32_t dtype, int64_t rows, int64_t cols, int lay, int where) {
  switch (lay) {
    case PC_DENSE:
      pl_matrix(t, dtype, rows, cols, cols, 1, where);
      break;
    case PC_GAPS:
      pl_matrix(t, dtype, rows, cols, cols + 3, 1, where);
      break;
    case PC_SPREAD:
      pl_matrix(t, dtype, rows, cols, cols * 2 + 1, 2, where);
      break;
    case PC_TURNED:
      pl_matrix(t, dtype, rows, cols, 1, (rows + 15) / 16 * 16, where);
      break;
    default:
      pl_matrix(t, dtype, rows, cols, (cols + 31) / 16 * 16, 1, where);
      break;
  }
}

const bs_op_impl *pc_impl(const pc *c, const char *op) {
  static const bs_op_impl *const all[] = {&cuda_matmul,        &cuda_matmul_dx,      &cuda_matmul_dw,
                                          &cuda_matmul_update, &cuda_matmul24,       &cuda_matmul24_dx,
                                          &cuda_matmul24_dw,   &cuda_matmul24_update};
  if (c->s.impl != NULL) return c->s.impl(op);
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
    if (strcmp(all[i]->op, op) == 0) return all[i];
  ck_abort_msg("no %s", op);
  return NULL;
}

static const char *op_of(const pc *c, const char *op) {
  static char name[32];
  snprintf(name, sizeof name, "matmul%s%s", c->s.of24 ? "24" : "", op);
  return name;
}

bs_op_query pc_query(const pc *c, const char *op, const bs_tensor_desc *const *args, uint32_t nargs) {
  bs_op_query q = fx_query(op, args, nargs);
  q.weight_dtype = c->s.w;
  q.accumulate = c->s.accumulate;
  if (c->s.part != PC_ALL) q.partition = &c->partition;
  if (c->s.full) q.flags |= BS_QUERY_X_FULL;
  if (c->s.of24) q.kept = &c->positions;
  return q;
}

static void make_columns(pc *c, uint64_t *seed) {
  const int64_t K = c->s.K, begin = c->s.of24 ? K / 12 * 4 : K / 3;
  c->columns = calloc((size_t)K + 1, sizeof *c->columns);
  ck_assert_ptr_nonnull(c->columns);
  if (c->s.part == PC_RUN) c->partition = fx_contiguous(K, begin, c->s.of24 ? K - begin : K - begin - K / 4);
  if (c->s.part == PC_PATTERN) c->partition = fx_gather(K, 4, 5 + (uint32_t)fx_below(seed, 2), c->columns);
  if (c->s.part == PC_LIST) {
    c->partition = fx_gather(K, 1, 0, c->columns);
    for (int64_t k = 0; k < K; k++)
      if (fx_below(seed, 3) > 0) c->columns[c->partition.count++] = (uint32_t)k;
  }
  c->kept = c->s.part == PC_ALL ? K : c->partition.count;
  c->values = c->s.of24 ? 2 * ((c->kept + 3) / 4) : c->kept;
}

static void make_groups(pc *c, uint64_t *seed) {
  const int64_t groups = c->values / 2;
  c->groups = calloc((size_t)(c->s.N * groups) + 1, 1);
  ck_assert_ptr_nonnull(c->groups);
  fx_kept_random(c->groups, c->s.N, groups, seed);
  c->table = (fx_kept_table){c->groups, groups};
  c->positions = fx_kept(&c->table, c->s.N, c->kept);
}

static void fill(pl_tensor *t, uint64_t *seed, int64_t rare) {
  if (bs_dtype_is_float(t->t.dtype))
    pl_fill(t, seed, rare);
  else
    pl_fill_bits(t, seed);
}

static void make_tensors(pc *c, uint64_t *seed) {
  const pc_shape *s = &c->s;
  const int64_t x_cols = s->full ? s->K : c->kept, one = 1, vector = s->lay == PC_SPREAD ? 2 : 1;
  pc_lay(&c->x, s->x, s->B, x_cols, s->lay, s->where);
  pl_make(&c->bias, s->bias != 0 ? s->bias : s->x, 1, &s->N, &vector, s->where);
  pc_lay(&c->residual, s->y, s->B, s->N, s->lay, s->where);
  pc_lay(&c->dy, s->grad, s->B, s->N, s->lay, s->where);
  pl_make(&c->alpha, BS_F32, 1, &one, NULL, PL_LAST);
  pl_set(&c->alpha, 0, 0, -0.3);
  fill(&c->x, seed, s->rare);
  fill(&c->bias, seed, s->rare);
  fill(&c->residual, seed, s->rare);
  fill(&c->dy, seed, s->rare);
  for (int i = 0; i < 2; i++) {
    pc_lay(&c->y[i], s->y, s->B, s->N, s->lay, s->where);
    pc_lay(&c->dx[i], s->sums, s->B, x_cols, s->lay, s->where);
    pc_lay(&c->dw[i], s->sums, s->N, c->values, s->lay, s->where);
    pc_lay(&c->back[i], s->w, s->N, c->values, s->lay, s->where);
  }
}

static void make_weight(pc *c, uint64_t *seed) {
  const pc_shape *s = &c->s;
  fx_matrix(&c->w, s->w, s->N, s->K);
  for (int64_t i = 0; i < s->N * s->K; i++) {
    unsigned char *at = (unsigned char *)c->w.t.data + (uint64_t)i * BS_DTYPE_BYTES(s->w);
    const uint64_t bits = fx_next(seed);
    if (!bs_dtype_is_float(s->w))
      memcpy(at, &bits, BS_DTYPE_BYTES(s->w));
    else
      bs_store_f64(s->w, at, 0,
                   s->rare > 0 && fx_below(seed, s->rare) == 0 ? (bits & 1 ? -0.0 : INFINITY)
                                                               : (double)(bits >> 11) * 0x1p-52 - 1.0);
  }
}

void pc_open(pc *c, pl *p, const pc_shape *s, uint64_t *seed) {
  bs_error err = BS_ERROR_INIT;
  void *state = NULL;
  memset(c, 0, sizeof *c);
  c->p = p;
  c->s = *s;
  make_columns(c, seed);
  if (s->of24) make_groups(c, seed);
  make_tensors(c, seed);
  make_weight(c, seed);
  const bs_tensor_desc *args[4] = {&c->x.d, NULL, NULL, &c->y[0].d};
  bs_op_query q = pc_query(c, op_of(c, ""), args, 4);
  q.flags |= BS_QUERY_TRAIN;
  const bs_source source = fx_source(&c->w);
  const bs_op_impl *ours = pc_impl(c, q.op), *ref = fx_impl(q.op, &state);
  ck_assert_msg(ours->pack(&p->state, &p->exec, &q, &source, &c->packed[0], &c->bytes[0], &err) == BS_OK,
                "%s: %s", pc_text(c, "pack"), err.message);
  ck_assert_msg(ref->pack(state, &p->f.exec, &q, &source, &c->packed[1], &c->bytes[1], &err) == BS_OK,
                "%s: %s", pc_text(c, "ref's pack"), err.message);
}

void pc_close(pc *c) {
  void *state = NULL;
  pc_impl(c, op_of(c, ""))->packed_free(c->packed[0]);
  fx_impl(op_of(c, ""), &state)->packed_free(c->packed[1]);
  pl_tensor *const all[] = {&c->x,     &c->bias,  &c->residual, &c->dy,    &c->alpha,   &c->y[0],   &c->y[1],
                            &c->dx[0], &c->dx[1], &c->dw[0],    &c->dw[1], &c->back[0], &c->back[1]};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) pl_free(all[i]);
  fx_tensor_free(&c->w);
  free(c->columns);
  free(c->groups);
}

/* Special values: which NaN comes out of a sum of several is not told. */
static void compare(pc *c, pl_tensor *both, double units, const char *what) {
  if (units > 0 || c->s.rare > 0)
    pl_near(&both[0], &both[1], units, c->s.y == BS_F64 || c->s.x == BS_F64 ? BS_F64 : BS_F32,
            pc_text(c, what));
  else
    pl_same_bits(&both[0], &both[1], pc_text(c, what));
}

void pc_forward(pc *c) {
  const pc_shape *s = &c->s;
  pl_tensor *bias = s->epilogue == 1 || s->epilogue == PC_BIAS ? &c->bias : NULL;
  pl_tensor *residual = s->epilogue == 1 || s->epilogue == PC_RESIDUAL ? &c->residual : NULL;
  const bs_tensor_desc *args[4] = {&c->x.d, bias != NULL ? &bias->d : NULL,
                                   residual != NULL ? &residual->d : NULL, &c->y[0].d};
  bs_op_query q = pc_query(c, op_of(c, ""), args, 4);
  q.activation = s->activation;
  q.flags |= BS_QUERY_DETERMINISTIC | (s->impl == NULL ? BS_QUERY_TOKENWISE : 0);
  bs_tensor *run[4] = {&c->x.t, bias != NULL ? &bias->t : NULL, residual != NULL ? &residual->t : NULL, NULL};
  run[3] = &c->y[0].t;
  pl_run_cuda(c->p, pc_impl(c, q.op), &q, c->packed[0], run);
  run[3] = &c->y[1].t;
  pl_run_ref(c->p, &q, c->packed[1], run);
  const int smooth = s->activation >= BS_ACT_GELU;
  compare(c, c->y, smooth ? 4.0 : 0.0, "forward");
}

static void both(pc *c, const char *op, pl_tensor *a, pl_tensor *b, pl_tensor *last, int with_weight) {
  for (int i = 0; i < 2; i++) {
    pl_tensor *t[3] = {a, b != NULL ? b : &last[i], b != NULL ? &last[i] : NULL};
    const uint32_t nargs = b != NULL ? 3 : 2;
    const bs_tensor_desc *args[3] = {&t[0]->d, &t[1]->d, nargs == 3 ? &t[2]->d : NULL};
    bs_tensor *run[3] = {&t[0]->t, &t[1]->t, nargs == 3 ? &t[2]->t : NULL};
    const bs_op_query q = pc_query(c, op, args, nargs);
    void *weight = with_weight ? c->packed[i] : NULL;
    if (i == PC_CUDA) pl_run_cuda(c->p, pc_impl(c, op), &q, weight, run);
    if (i == PC_REF) pl_run_ref(c->p, &q, weight, run);
  }
}

void pc_dx(pc *c) {
  both(c, op_of(c, "_dx"), &c->dy, NULL, c->dx, 1);
  compare(c, c->dx, 0.0, "dx");
}

void pc_dw(pc *c) {
  both(c, op_of(c, "_dw"), &c->x, &c->dy, c->dw, 0);
  compare(c, c->dw, 0.0, "dw");
}

void pc_read(pc *c) {
  void *state = NULL;
  bs_error err = BS_ERROR_INIT;
  const bs_op_impl *ours = pc_impl(c, op_of(c, "")), *ref = fx_impl(op_of(c, ""), &state);
  ck_assert_msg(ours->packed_read(c->packed[0], 0, &c->back[0].t, &err) == BS_OK, "%s", err.message);
  ck_assert_msg(ref->packed_read(c->packed[1], 0, &c->back[1].t, &err) == BS_OK, "%s", err.message);
  compare(c, c->back, 0.0, "the weight");
}

/* Anything, beyond the last column of a 2:4 weight too, where zeros stay. */
static void add_delta(pc *c) {
  void *state = NULL;
  uint64_t seed = (uint64_t)c->s.K;
  bs_error err = BS_ERROR_INIT;
  pl_fill(&c->dw[0], &seed, 0);
  const bs_op_impl *ours = pc_impl(c, op_of(c, "")), *ref = fx_impl(op_of(c, ""), &state);
  ck_assert_msg(ours->packed_update(c->packed[0], &c->dw[0].t, &err) == BS_OK, "%s", err.message);
  ck_assert_msg(ref->packed_update(c->packed[1], &c->dw[0].t, &err) == BS_OK, "%s", err.message);
  pc_read(c);
}

void pc_update(pc *c) {
  pl_tensor alphas[2] = {c->alpha, c->alpha};
  if (!bs_dtype_is_float(c->s.w)) return;
  const int64_t launches = c->p->launches;
  both(c, op_of(c, "_update"), &c->x, &c->dy, alphas, 1);
  if (c->s.impl == NULL) /* our own kernels; cuBLASLt's are none of these launches */
    ck_assert_int_eq(c->p->launches - launches, c->s.B > 0 && c->s.N > 0 && c->kept > 0);
  pc_read(c);
  if (c->s.sums == BS_F32) add_delta(c);
}

void pc_all(pl *p, const pc_shape *s, uint64_t *seed) {
  pc c;
  pc_open(&c, p, s, seed);
  pc_read(&c);
  pc_forward(&c);
  pc_dx(&c);
  pc_dw(&c);
  pc_update(&c);
  pc_close(&c);
}
