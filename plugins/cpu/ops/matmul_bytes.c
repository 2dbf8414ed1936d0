/* SPDX-License-Identifier: MIT
 *
 * matmul_bytes.c - the matmul "bytes": i8 x i8 to i32, exact. Each member of the team owns a range of panels;
 * for a chunk of tokens and of panels it walks blocks of columns: X of the block to 16 bits, tile by tile to
 * C, then one epilogue a row. */
#include <stdlib.h>

#include "epilogue.h"
#include "packed_bytes.h"

#define MAX_TOKENS 48
#define K_BLOCK 1024        /* columns of a block: a panel of it is 16 KiB, half of L1 */
#define X_LD (K_BLOCK + 32) /* 16-bit values between rows; not a power of two */
#define MAX_PANELS 48       /* of a chunk: with all its tokens 144 KiB of C */
#define ALONE (1 << 17)     /* multiplications below which the team is not woken */
#define MOST (1 << 17)      /* columns whose sums fit 32 bits */

typedef struct bytes_scratch {
  int16_t *x; /* [tokens][X_LD] */
  int32_t *c; /* [tokens][c_ld] */
} bytes_scratch;

typedef struct bytes_plan {
  const bs_exec *exec;
  const cpu_kernels *kernels;
  const cpu_packed_bytes *w;
  cpu_matmul shape;
  int64_t max_tokens, max_panels, c_ld;
  void *memory;     /* of all members, where `members` points into */
  uint64_t each, x; /* bytes of a member, and of its X */
  uint32_t width;
  uint32_t reserved;
  bytes_scratch *members;
} bytes_plan;

typedef struct bytes_call {
  const bytes_plan *plan;
  const bs_tensor *x, *bias, *residual, *y;
  int64_t tokens;
} bytes_call;

typedef struct bytes_chunk {
  int64_t token, tokens, panel, panels;
  const bytes_scratch *s;
} bytes_chunk;

/* The last pair of an odd number of columns has a zero. */
static void widen_x(const bytes_call *call, const bytes_chunk *c, int64_t first, int64_t count) {
  for (int64_t t = 0; t < c->tokens; t++) {
    const int8_t *from = (const int8_t *)call->x->data + (c->token + t) * call->x->strides[0] + first;
    int16_t *to = c->s->x + t * X_LD;
    for (int64_t k = 0; k < count; k++) to[k] = (int16_t)from[k];
    to[count] = 0;
  }
}

/* Groups of tokens differ by one at most, so that none is left with a small tile. */
static void multiply_block(const bytes_plan *plan, const bytes_chunk *c, int64_t first, int64_t count) {
  const cpu_packed_bytes *w = plan->w;
  const int64_t groups = (c->tokens + plan->kernels->bytes_tokens - 1) / plan->kernels->bytes_tokens;
  for (int64_t p = 0; p < c->panels; p++) {
    cpu_bytes t = {.x = c->s->x,
                   .x_ld = X_LD,
                   .w = w->data + cpu_bytes_at(w, c->panel + p, first / 2),
                   .c = c->s->c + p * CPU_PANEL,
                   .ldc = plan->c_ld,
                   .pairs = (count + 1) / 2,
                   .add = first > 0};
    for (int64_t g = 0; g < groups; g++) {
      t.tokens = (int32_t)(c->tokens / groups + (g < c->tokens % groups));
      plan->kernels->bytes(&t);
      t.x += t.tokens * X_LD;
      t.c += t.tokens * plan->c_ld;
    }
  }
}

static void run_chunk(const bytes_call *call, const bytes_chunk *c) {
  const bytes_plan *plan = call->plan;
  const cpu_epilogue e = {plan->kernels, &plan->shape, call->bias, call->residual, call->y};
  const int64_t K = plan->shape.K, n0 = c->panel * CPU_PANEL, left = plan->shape.N - n0;
  for (int64_t first = 0; first < K; first += K_BLOCK) {
    const int64_t count = K - first < K_BLOCK ? K - first : K_BLOCK;
    widen_x(call, c, first, count);
    multiply_block(plan, c, first, count);
  }
  for (int64_t t = 0; K == 0 && t < c->tokens; t++)
    memset(c->s->c + t * plan->c_ld, 0, (size_t)(c->panels * CPU_PANEL) * sizeof(int32_t));
  cpu_finish(&e, c->token, c->tokens, n0, left < c->panels * CPU_PANEL ? left : c->panels * CPU_PANEL,
             (float *)(void *)c->s->c, plan->c_ld, NULL); /* no floats are widened: no buffer */
}

static void run_share(void *arg, uint32_t member, uint32_t width) {
  const bytes_call *call = arg;
  const bytes_plan *plan = call->plan;
  const uint32_t members = width < plan->width ? width : plan->width; /* as many as have scratch */
  int64_t begin, end;
  if (member >= members) return;
  cpu_share(plan->w->panels, member, members, &begin, &end);
  const int64_t chunks = (call->tokens + plan->max_tokens - 1) / plan->max_tokens;
  for (int64_t i = 0; i < chunks; i++) {
    int64_t first, last;
    cpu_share(call->tokens, (uint32_t)i, (uint32_t)chunks, &first, &last);
    for (int64_t p = begin; p < end; p += plan->max_panels) {
      const int64_t panels = end - p < plan->max_panels ? end - p : plan->max_panels;
      const bytes_chunk c = {first, last - first, p, panels, &plan->members[member]};
      run_chunk(call, &c);
    }
  }
}

/* Where the members work: the rank's scratch, which may be another block than at the last run. */
static void place_scratch(bytes_plan *plan) {
  char *base = plan->exec->scratch(plan->exec->ctx);
  if (base == plan->memory) return;
  plan->memory = base;
  for (uint32_t i = 0; i < plan->width; i++, base += plan->each)
    plan->members[i] = (bytes_scratch){(int16_t *)(void *)base, (int32_t *)(void *)(base + plan->x)};
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  bytes_plan *plan = opaque;
  bytes_call call = {plan, args[0], args[1], args[2], args[3], args[3]->dims[0]};
  (void)nargs;
  (void)stream;
  if (call.tokens <= 0 || plan->shape.N == 0) return BS_OK;
  place_scratch(plan);
  return cpu_team(plan->exec, (double)call.tokens * (double)plan->shape.N * (double)plan->shape.K < ALONE,
                  run_share, &call, err);
}

static void plan_free(void *opaque) {
  bytes_plan *plan = opaque;
  if (plan == NULL) return;
  free(plan->members);
  free(plan);
}

/* i8 X and weight, i32 all else. */
static int read_query(const bs_op_query *q, cpu_matmul *out, bs_op_answer *answer) {
  memset(out, 0, sizeof *out);
  for (uint32_t i = 0; i < 4; i++) {
    const bs_tensor_desc *d = q->args[i];
    if (d == NULL) continue;
    if (d->dtype != (i == 0 ? BS_I8 : BS_I32))
      return cpu_answer_no(answer, BS_REASON_DTYPE, "arg %u of dtype 0x%04x: i8 x i8 to i32 only", i,
                           d->dtype);
    const int dense = d->rank == 1 ? d->dims[0] <= 1 || d->strides[0] <= 1 : cpu_rows_dense(d);
    if (!dense) return cpu_answer_no(answer, BS_REASON_LAYOUT, "arg %u has elements apart", i);
  }
  out->B = q->args[3]->dims[0];
  out->N = q->args[3]->dims[1];
  out->K = q->partition != NULL ? q->partition->count : q->args[0]->dims[1];
  out->y_type = BS_I32;
  out->weight_type = BS_I8;
  out->activation = q->activation;
  if (q->weight_dtype != BS_I8 || q->activation > BS_ACT_RELU || q->accumulate == BS_ACC_F64)
    return cpu_answer_no(answer, BS_REASON_DTYPE, "i8 weights, none or relu, sums of 32 bits");
  if ((q->flags & BS_QUERY_TRAIN) != 0)
    return cpu_answer_no(answer, BS_REASON_DISABLED, "no steps of i8 weights");
  if ((q->flags & BS_QUERY_X_FULL) != 0 && q->partition != NULL)
    return cpu_answer_no(answer, BS_REASON_LAYOUT, "does not pick X's columns");
  if (out->K <= MOST) return 1;
  return cpu_answer_no(answer, BS_REASON_SHAPE, "sums of %lld columns of i8 may not fit 32 bits",
                       (long long)out->K);
}

/* Bytes that a member works in: both parts begin with a cache line. */
static uint64_t member_bytes(const bytes_plan *plan, uint64_t *out_x) {
  *out_x = ((uint64_t)(plan->max_tokens * X_LD) * sizeof(int16_t) + 63) / 64 * 64;
  return *out_x + ((uint64_t)(plan->max_tokens * plan->c_ld) * sizeof(int32_t) + 63) / 64 * 64;
}

static int judge(const bs_op_query *query, bytes_plan *out, bs_op_answer *answer) {
  uint64_t x;
  if (!read_query(query, &out->shape, answer)) return 0;
  const int64_t all = (out->shape.N + CPU_PANEL - 1) / CPU_PANEL, B = out->shape.B;
  out->max_tokens = B < 1 ? 1 : B < MAX_TOKENS ? B : MAX_TOKENS;
  out->max_panels = all < 1 ? 1 : all < MAX_PANELS ? all : MAX_PANELS;
  out->c_ld = out->max_panels * CPU_PANEL + 16; /* not a power of two */
  return cpu_workspace_fits(query, member_bytes(out, &x), answer);
}

static int32_t make_scratch(bytes_plan *plan, const bs_op_query *query, bs_error *err) {
  plan->each = member_bytes(plan, &plan->x);
  plan->width = cpu_workspace_members(query, plan->each, plan->exec->width > 0 ? plan->exec->width : 1);
  plan->members = calloc(plan->width, sizeof *plan->members);
  if (plan->members == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for a plan");
  return cpu_reserve(plan->exec, plan->each * plan->width, err);
}

static int32_t prepare(void *opaque, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  const cpu_state *state = opaque;
  bs_op_answer answer;
  memset(&answer, 0, sizeof answer);
  bytes_plan *plan = calloc(1, sizeof *plan);
  if (plan == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for a plan");
  plan->exec = exec;
  plan->kernels = &state->kernels;
  plan->w = packed;
  int32_t rc = BS_OK;
  if (!judge(query, plan, &answer))
    rc = bs_fail(err, BS_UNSUPPORTED, "BS-CPU-MATMUL", "%s", answer.text);
  else if (packed == NULL || plan->shape.N != plan->w->N || plan->shape.K != plan->w->K)
    rc = bs_fail(err, BS_INVALID_ARGUMENT, "BS-CPU-PACKED", "[%lld,%lld] asked of another packed weight",
                 (long long)plan->shape.N, (long long)plan->shape.K);
  if (rc == BS_OK) rc = make_scratch(plan, query, err);
  if (rc != BS_OK) {
    plan_free(plan);
    return rc;
  }
  *out_plan = plan;
  return BS_OK;
}

static int32_t supports(void *opaque, const bs_op_query *query, bs_op_answer *answer) {
  const cpu_state *state = opaque;
  bytes_plan plan;
  char algo[48];
  memset(&plan, 0, sizeof plan);
  if (!judge(query, &plan, answer)) return BS_OK;
  snprintf(algo, sizeof algo, "bytes-%s", state->kernels.name);
  cpu_answer_yes(answer, 600, BS_TOL_EXACT, algo, "own kernels on pairs of int8");
  return BS_OK;
}

const bs_src_loc cpu_matmul_bytes_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl cpu_matmul_bytes = {
    .struct_size = sizeof(bs_op_impl),
    .priority = 20,
    .op = "matmul",
    .backend = "cpu",
    .name = "bytes",
    .summary = "own kernels on pairs of columns: i8 x i8 to i32, exact",
    .supports = supports,
    .pack = cpu_packed_bytes_make,
    .packed_read = cpu_packed_bytes_read,
    .packed_free = cpu_packed_bytes_free,
    .prepare = prepare,
    .run = run,
    .plan_free = plan_free,
};
