/* SPDX-License-Identifier: MIT
 * skel_method.c - the method skel_method: rank r owns the r-th run of W's columns, multiplies them with the
 * same columns of X (a view of the caller's x, no copy), and one all-reduce adds the partial sums. */
#include "skel_method.h"

typedef struct layer {
  const bs_rank_api *api;
  bs_rank *rank;
  bs_partition cols; /* the own columns of W */
  int64_t N, K;
  bs_packed *packed;
  bs_plan *matmul;
  bs_coll_plan *all_reduce; /* NULL in a world of one */
  bs_tensor bias;           /* on rank 0 */
  uint32_t sum_dtype;       /* of the partial sums */
  bs_tensor partial;        /* the own partial sum, where y's dtype is too narrow for it */
} layer;

/* ---- what is split how: propose and build ask the same functions ---------------------------- */

/* Every column belongs to exactly one rank: phase 0 tells when that is not so. */
static bs_partition own_columns(int64_t K, uint32_t rank, uint32_t world) {
  const int64_t each = K / world, more = K % world;
  bs_partition p;
  memset(&p, 0, sizeof p);
  p.struct_size = (uint32_t)sizeof p;
  p.kind = BS_PARTITION_CONTIGUOUS;
  p.total = K;
  p.begin = rank * each + (rank < more ? rank : more);
  p.count = each + (rank < more ? 1 : 0);
  return p;
}

/* Partial sums stay wide, so that a 16-bit y is rounded once, after the sum. */
static uint32_t sum_dtype(const bs_layer_spec *s, uint32_t world) {
  if (world == 1) return s->y_dtype;
  if (s->reduce_dtype != 0) return s->reduce_dtype;
  return s->y_dtype == BS_F64 ? BS_F64 : BS_F32;
}

static int32_t refuse(const bs_layer_spec *s, uint32_t world, bs_error *err) {
  if (s->B < 1 || s->N < 1 || s->K < (int64_t)world) {
    bs_fail(err, BS_UNSUPPORTED, "BS-SKEL-METHOD-SHAPE", "B=%lld N=%lld K=%lld over %u ranks",
            (long long)s->B, (long long)s->N, (long long)s->K, world);
    bs_fail_hint(err, "each rank needs a column: K >= P");
    return BS_UNSUPPORTED;
  }
  if (s->x_placement != BS_REPLICATED || s->y_placement != BS_REPLICATED)
    return bs_fail(err, BS_UNSUPPORTED, "BS-SKEL-METHOD-PLACEMENT", "x and y must be replicated");
  if (s->activation != BS_ACT_NONE && world > 1)
    return bs_fail(err, BS_UNSUPPORTED, "BS-SKEL-METHOD-ACT", "no activation behind a sum over ranks");
  return BS_OK;
}

/* Pure: what one forward of one rank will do. The host compares it with what it counts. */
static int32_t propose(void *state, const bs_layer_spec *s, uint32_t rank, uint32_t world, bs_proposal *out,
                       bs_error *err) {
  (void)state;
  const int32_t rc = refuse(s, world, err);
  if (rc != BS_OK) return rc;
  const bs_partition cols = own_columns(s->K, rank, world);
  bs_proposal p;
  memset(&p, 0, sizeof p);
  p.split = world > 1 ? BS_SPLIT_K : BS_SPLIT_NONE;
  p.flops = 2u * (uint64_t)s->B * (uint64_t)s->N * (uint64_t)cols.count;
  p.weight_bytes = (uint64_t)s->N * (uint64_t)cols.count * BS_DTYPE_BYTES(s->w_dtype);
  if (world > 1) {
    p.n_collectives = 1;
    p.coll_kind[0] = BS_COLL_ALL_REDUCE;
    p.coll_payload[0] = (uint64_t)s->B * (uint64_t)s->N * BS_DTYPE_BYTES(sum_dtype(s, world));
    if (sum_dtype(s, world) != s->y_dtype) p.workspace_bytes = p.coll_payload[0];
  }
  snprintf(p.text, sizeof p.text, "columns %lld..+%lld of %lld", (long long)cols.begin, (long long)cols.count,
           (long long)s->K);
  bs_out_copy(out, &p, sizeof p); /* the host's may be shorter or longer */
  return BS_OK;
}

/* ---- build: everything slow ----------------------------------------------------------------- */

static void layer_free(void *ptr) {
  layer *l = (layer *)ptr;
  if (l == NULL) return;
  if (l->all_reduce != NULL) l->api->collective_release(l->all_reduce);
  if (l->matmul != NULL) l->api->op_release(l->matmul);
  if (l->packed != NULL) l->api->packed_release(l->packed);
  if (l->partial.data != NULL) l->api->tensor_free(l->rank, &l->partial);
  if (l->bias.data != NULL) l->api->tensor_free(l->rank, &l->bias);
  l->api->free(l->rank, l);
}

/* Rank 0's product adds the bias, so that the sum has it once. */
static int32_t build_bias(layer *l, const bs_layer_spec *s, const bs_source *bias, bs_error *err) {
  const bs_tensor_desc d = bs_desc_2d(s->y_dtype == BS_F64 ? BS_F64 : BS_F32, 1, s->N);
  const int32_t rc = l->api->tensor_alloc(l->rank, &d, BS_LIFE_WEIGHTS, &l->bias, err);
  return rc == BS_OK ? l->api->tensor_read(l->rank, bias, 0, NULL, &l->bias, err) : rc;
}

static int32_t build_product(layer *l, const bs_layer_spec *s, const bs_source *weights, bs_error *err) {
  bs_tensor_desc x = bs_desc_2d(s->x_dtype, s->B, l->cols.count), y = bs_desc_2d(l->sum_dtype, s->B, s->N);
  bs_tensor_desc bias = bs_desc_2d(l->bias.dtype, s->N, 1);
  x.strides[0] = s->K; /* a view of the whole x */
  bias.rank = 1;
  const bs_tensor_desc *args[4] = {&x, l->bias.data != NULL ? &bias : NULL, NULL, &y};
  bs_op_query q;
  memset(&q, 0, sizeof q);
  q.struct_size = (uint32_t)sizeof q;
  q.op = "matmul";
  q.nargs = 4;
  q.args = args;
  q.partition = &l->cols;
  q.accumulate = s->accumulate;
  q.activation = s->activation;
  q.weight_dtype = s->w_dtype;
  l->api->region_begin(l->rank, BS_REGION_PACK);
  const int32_t rc = l->api->pack(l->rank, &q, weights, &l->packed, err); /* reads the own columns only */
  l->api->region_end(l->rank, BS_REGION_PACK);
  return rc == BS_OK ? l->api->op_prepare(l->rank, &q, l->packed, &l->matmul, err) : rc;
}

static int32_t build_sum(layer *l, const bs_layer_spec *s, bs_error *err) {
  bs_collective c;
  memset(&c, 0, sizeof c);
  c.struct_size = (uint32_t)sizeof c;
  c.kind = BS_COLL_ALL_REDUCE;
  c.dtype_in = c.reduce_dtype = l->sum_dtype;
  c.dtype_out = s->y_dtype;
  c.rows = (uint64_t)s->B;
  c.count = (uint64_t)s->N;
  c.site = "skel_method.y";
  if (l->sum_dtype != s->y_dtype) {
    const bs_tensor_desc d = bs_desc_2d(l->sum_dtype, s->B, s->N);
    const int32_t rc = l->api->tensor_alloc(l->rank, &d, BS_LIFE_CALL, &l->partial, err);
    if (rc != BS_OK) return rc;
  }
  return l->api->collective_prepare(l->rank, &c, &l->all_reduce, err);
}

static int32_t build(void *state, const bs_rank_api *api, bs_rank *rank, const bs_layer_spec *s,
                     const bs_source *weights, const bs_source *bias, void **out_layer, bs_error *err) {
  (void)state;
  const uint32_t me = api->rank(rank), world = api->world_size(rank);
  int32_t rc = refuse(s, world, err);
  if (rc != BS_OK) return rc;
  layer *l = (layer *)api->alloc(rank, sizeof *l); /* zero-filled */
  if (l == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-SKEL-METHOD-MEMORY", "no memory for a layer");
  l->api = api;
  l->rank = rank;
  l->N = s->N;
  l->K = s->K;
  l->cols = own_columns(s->K, me, world);
  l->sum_dtype = sum_dtype(s, world);
  if (s->has_bias && me == 0) rc = build_bias(l, s, bias, err);
  if (rc == BS_OK) rc = build_product(l, s, weights, err);
  if (rc == BS_OK && world > 1) rc = build_sum(l, s, err);
  if (rc != BS_OK) {
    layer_free(l);
    return rc;
  }
  *out_layer = l;
  return BS_OK;
}

/* ---- forward: two calls, no memory, no locks, no names -------------------------------------- */

static int32_t forward(void *ptr, const bs_tensor *x, bs_tensor *y, bs_stream *stream, bs_error *err) {
  layer *l = (layer *)ptr;
  if (x->rank != 2 || x->dims[1] != l->K)
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-SKEL-METHOD-X", "x has %lld columns, not %lld",
                   (long long)x->dims[1], (long long)l->K);
  const uint64_t skip = (uint64_t)l->cols.begin * BS_DTYPE_BYTES(x->dtype);
  bs_tensor own = *x, bias = l->bias, partial = l->partial.data != NULL ? l->partial : *y;
  partial.dims[0] = y->dims[0]; /* a call may have fewer tokens than the layer was built for */
  own.dims[1] = l->cols.count;
  own.data = (char *)x->data + skip;
  own.bytes = x->bytes > skip ? x->bytes - skip : 0;
  bias.rank = 1;
  bias.dims[0] = l->N;
  bias.strides[0] = 1;
  bs_tensor *args[4] = {&own, l->bias.data != NULL ? &bias : NULL, NULL, &partial};
  int32_t rc = l->api->op_run(l->matmul, args, 4, stream, err);
  if (rc != BS_OK || l->all_reduce == NULL) return rc;
  l->api->region_begin(l->rank, BS_REGION_ALLREDUCE);
  rc = l->api->collective_run(l->all_reduce, &partial, y, stream, err);
  l->api->region_end(l->rank, BS_REGION_ALLREDUCE);
  return rc;
}

/* ---- what the gates ask --------------------------------------------------------------------- */

static int32_t owns(void *ptr, bs_ownership *out, bs_error *err) {
  layer *l = (layer *)ptr;
  (void)err;
  bs_ownership own;
  memset(&own, 0, sizeof own);
  own.row_count = l->N;
  own.columns = &l->cols;
  bs_out_copy(out, &own, sizeof own);
  return BS_OK;
}

static int32_t read_weights(void *ptr, int64_t row, bs_tensor *out, bs_error *err) {
  layer *l = (layer *)ptr;
  return l->api->packed_read(l->packed, row, out, err);
}

void skel_method_table(bs_method *method) {
  memset(method, 0, sizeof *method);
  method->struct_size = (uint32_t)sizeof *method;
  method->default_world = 2;
  method->name = "skel_method";
  method->summary = "each rank takes a run of input columns; partial sums are all-reduced";
  method->propose = propose;
  method->build = build;
  method->forward = forward;
  method->owns = owns;
  method->read_weights = read_weights;
  method->layer_free = layer_free;
}
