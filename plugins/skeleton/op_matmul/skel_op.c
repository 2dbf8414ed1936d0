/* SPDX-License-Identifier: MIT
 * skel_op.c - matmul@cpu/skel_op: Y = X W^T + bias of f32 matrices. X is [B,K], W [N,K], bias [N], Y [B,N].
 * `pack` copies the weight once; `run` computes each output as one dot product in `lanes` partial sums, a
 * knob. What it does not serve it refuses with a reason, and another implementation is asked. */
#include "skel_op.h"

enum { X, BIAS, RESIDUAL, Y, ARGS };
enum { MAX_LANES = 16 };

static const bs_knob lanes_knob = {(uint32_t)sizeof(bs_knob),           0u, "lanes", "4:16*2", "auto",
                                   "partial sums of an output; auto: 8"};
static const bs_knob *const knobs[] = {&lanes_knob};

typedef struct weight {
  const bs_host *host;
  const bs_exec *exec; /* lives as long as the weight */
  int64_t N, K;        /* K: the columns of the partition */
  float *rows;         /* [N,K] */
} weight;

typedef struct product {
  const bs_host *host;
  const bs_exec *exec;
  const weight *w;
  int64_t lanes;
} product;

/* ---- what is served ------------------------------------------------------------------------- */

static int32_t no(bs_op_answer *answer, uint32_t reason, const char *why) {
  answer->level = BS_LEVEL_NO;
  answer->reason = reason;
  snprintf(answer->text, sizeof answer->text, "%s", why);
  return BS_OK;
}

/* f32, and the elements of a row are adjacent (all strides zero means dense). */
static int plain_f32(const bs_tensor_desc *d) {
  return d->dtype == BS_F32 &&
         (d->dims[1] <= 1 || d->strides[1] == 1 || (d->strides[0] | d->strides[1]) == 0);
}

/* Pure, and true: what is answered NATIVE here must run, what is answered NO must be refused by prepare. */
static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *answer) {
  (void)state;
  if (q->nargs != ARGS || q->args[X] == NULL || q->args[Y] == NULL)
    return no(answer, BS_REASON_RANK, "needs X, bias or none, residual or none, Y");
  const bs_tensor_desc *x = q->args[X], *bias = q->args[BIAS], *y = q->args[Y];
  if (x->rank != 2 || y->rank != 2) return no(answer, BS_REASON_RANK, "X and Y must be matrices");
  if (q->weight_dtype != BS_F32 || x->dtype != BS_F32 || y->dtype != BS_F32 ||
      (bias != NULL && bias->dtype != BS_F32))
    return no(answer, BS_REASON_DTYPE, "f32 only");
  if (!plain_f32(x) || !plain_f32(y)) return no(answer, BS_REASON_LAYOUT, "rows must lie without gaps");
  if (q->args[RESIDUAL] != NULL || q->activation != BS_ACT_NONE)
    return no(answer, BS_REASON_NOT_BUILT, "no residual and no activation");
  if (q->accumulate == BS_ACC_F64) return no(answer, BS_REASON_NOT_BUILT, "sums are made in f32");
  if ((q->flags & BS_QUERY_X_FULL) != 0)
    return no(answer, BS_REASON_LAYOUT, "X must hold the columns of the partition only");
  answer->level = BS_LEVEL_NATIVE;
  answer->score = 1; /* of 1000: chosen only by name, or by the tuner */
  answer->reason = BS_REASON_NONE;
  answer->tolerance = BS_TOL_ACC_F32;
  answer->workspace = 0;
  snprintf(answer->algo, sizeof answer->algo, "dot products");
  return BS_OK;
}

/* prepare and pack refuse what supports answers NO to. */
static int32_t require(void *state, const bs_op_query *q, bs_error *err) {
  bs_op_answer answer;
  memset(&answer, 0, sizeof answer);
  answer.struct_size = (uint32_t)sizeof answer;
  supports(state, q, &answer);
  if (answer.level != BS_LEVEL_NO) return BS_OK;
  return bs_fail(err, BS_UNSUPPORTED, "BS-SKEL-OP-QUERY", "matmul@cpu/skel_op: %s", answer.text);
}

/* ---- the weight ----------------------------------------------------------------------------- */

static void packed_free(void *ptr) {
  weight *w = (weight *)ptr;
  if (w == NULL) return;
  if (w->rows != NULL) w->exec->free(w->exec->ctx, w->rows);
  w->host->free(w->host->ctx, w);
}

/* Once a weight; every plan over it is given the result. */
static int32_t pack(void *state, const bs_exec *exec, const bs_op_query *q, const bs_source *from,
                    void **out_packed, uint64_t *out_bytes, bs_error *err) {
  const bs_host *host = (const bs_host *)state;
  int32_t rc = require(state, q, err);
  if (rc != BS_OK) return rc;
  weight *w = (weight *)host->alloc(host->ctx, sizeof *w, 64); /* zero-filled */
  if (w == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-SKEL-OP-MEMORY", "no memory for a weight");
  w->host = host;
  w->exec = exec;
  w->N = from->rows;
  w->K = q->partition != NULL ? q->partition->count : from->cols;
  const int fits = w->K == 0 || w->N <= INT64_MAX / (int64_t)sizeof(float) / w->K;
  *out_bytes = fits ? (uint64_t)w->N * (uint64_t)w->K * sizeof(float) : 0;
  if (fits) w->rows = (float *)exec->alloc(exec->ctx, *out_bytes);
  if (w->rows == NULL)
    rc = bs_fail(err, BS_NO_MEMORY, "BS-SKEL-OP-MEMORY", "no memory for a weight [%lld,%lld]",
                 (long long)w->N, (long long)w->K);
  else if (w->K > 0)
    rc = from->read(from->ctx, 0, w->N, q->partition, BS_F32, w->rows, w->K, err);
  if (rc != BS_OK) {
    packed_free(w);
    return rc;
  }
  *out_packed = w;
  return BS_OK;
}

/* Rows row.. of the [N,K] that was packed, for the gates and for saving. */
static int32_t packed_read(void *ptr, int64_t row, bs_tensor *out, bs_error *err) {
  const weight *w = (const weight *)ptr;
  for (int64_t r = 0; r < out->dims[0]; r++)
    for (int64_t k = 0; k < w->K; k++) {
      const int64_t place = r * out->strides[0] + k * out->strides[1];
      char *to = (char *)out->data + place * (int64_t)BS_DTYPE_BYTES(out->dtype);
      const int32_t rc = w->host->convert(out->dtype, to, BS_F32, &w->rows[(row + r) * w->K + k], 1);
      if (rc != BS_OK) return bs_fail(err, rc, "BS-SKEL-OP-DTYPE", "no conversion to 0x%04x", out->dtype);
    }
  return BS_OK;
}

/* ---- the product ---------------------------------------------------------------------------- */

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  const bs_host *host = (const bs_host *)state;
  const int32_t rc = require(state, q, err);
  if (rc != BS_OK) return rc;
  if (packed == NULL)
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-SKEL-OP-WEIGHT", "matmul needs a packed weight");
  product *p = (product *)host->alloc(host->ctx, sizeof *p, 64);
  if (p == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-SKEL-OP-MEMORY", "no memory for a plan");
  p->host = host;
  p->exec = exec;
  p->w = (const weight *)packed;
  p->lanes = bs_knob_int(q->knobs, "lanes", 8);
  *out_plan = p;
  return BS_OK;
}

/* The plan's report: every knob with the value in use. The host compares it with its request. */
static int32_t echo(const void *ptr, bs_op_echo *out_echo) {
  const product *p = (const product *)ptr;
  bs_op_echo mine;
  bs_echo_begin(&mine);
  bs_echo_int(&mine, "lanes", p->lanes);
  bs_out_copy(out_echo, &mine, sizeof mine);
  return BS_OK;
}

typedef struct product_job {
  const weight *w;
  const bs_tensor *x, *bias, *y;
  int64_t lanes;
} product_job;

/* Column k goes to partial sum k mod lanes; the partial sums are added in order. */
static float dot(const float *a, const float *b, int64_t n, int64_t lanes) {
  float part[MAX_LANES] = {0.0f}, sum = 0.0f;
  for (int64_t k = 0; k < n; k += lanes)
    for (int64_t j = 0; j < lanes && k + j < n; j++) part[j] += a[k + j] * b[k + j];
  for (int64_t j = 0; j < lanes; j++) sum += part[j];
  return sum;
}

/* This member's share of the outputs of every token. */
static void outputs(void *arg, uint32_t member, uint32_t width) {
  const product_job *job = (const product_job *)arg;
  const weight *w = job->w;
  for (int64_t b = 0; b < job->y->dims[0]; b++) {
    const float *x = (const float *)job->x->data + b * job->x->strides[0];
    float *y = (float *)job->y->data + b * job->y->strides[0];
    for (int64_t n = w->N * member / width; n < w->N * (member + 1) / width; n++) {
      y[n] = dot(x, w->rows + n * w->K, w->K, job->lanes);
      if (job->bias != NULL) y[n] += ((const float *)job->bias->data)[n * job->bias->strides[0]];
    }
  }
}

/* The hot call: the host has compared the tensors with the query. No memory, no locks, no names. */
static int32_t run(void *ptr, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  const product *p = (const product *)ptr;
  product_job job = {p->w, args[X], args[BIAS], args[Y], p->lanes};
  (void)nargs;
  (void)stream; /* cpu's ops are done when run returns */
  const int32_t rc = p->exec->parallel_for(p->exec->ctx, outputs, &job);
  return rc == BS_OK ? BS_OK : bs_fail(err, rc, "BS-SKEL-OP-TEAM", "the rank's team failed");
}

static void plan_free(void *ptr) {
  product *p = (product *)ptr;
  if (p != NULL) p->host->free(p->host->ctx, p);
}

void skel_op_table(bs_op_impl *impl) {
  memset(impl, 0, sizeof *impl);
  impl->struct_size = (uint32_t)sizeof *impl;
  impl->op = "matmul";
  impl->backend = "cpu";
  impl->name = "skel_op";
  impl->summary = "one dot product an output";
  impl->supports = supports;
  impl->pack = pack;
  impl->packed_read = packed_read;
  impl->packed_free = packed_free;
  impl->prepare = prepare;
  impl->run = run;
  impl->plan_free = plan_free;
  impl->n_knobs = 1;
  impl->knobs = knobs;
  impl->echo = echo;
}
