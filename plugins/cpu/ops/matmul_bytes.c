/* SPDX-License-Identifier: MIT
 *
 * matmul_bytes.c - the matmul "bytes": i8 or u8 x i8 to i32, exact. Each member of the team owns a range of
 * panels; for a chunk of tokens and of panels it walks blocks of columns: X of the block to 16 bits, tile by
 * tile to C, then one epilogue a row. */
#include <stdlib.h>

#include "epilogue.h"
#include "packed.h"

#define MAX_TOKENS 48
#define K_BLOCK 1024        /* columns of a block: a panel of it is 16 KiB, half of L1 */
#define X_LD (K_BLOCK + 32) /* 16-bit values between rows; not a power of two */
#define MAX_PANELS 48       /* of a chunk: with all its tokens 144 KiB of C */
#define ALONE (1 << 17)     /* multiplications below which the team is not woken */

typedef struct bytes_scratch {
  int16_t *x; /* [tokens][X_LD] */
  int32_t *c; /* [tokens][c_ld] */
} bytes_scratch;

typedef struct bytes_plan {
  const bs_exec *exec;
  const cpu_kernels *kernels;
  const cpu_packed *w;
  cpu_matmul shape;
  int64_t max_tokens, max_panels, c_ld;
  char *memory;     /* of all members, while it runs */
  uint64_t each, x; /* bytes of a member, and of its X */
  uint32_t width;
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
    const uint8_t *from = (const uint8_t *)call->x->data + (c->token + t) * call->x->strides[0] + first;
    int16_t *to = c->s->x + t * X_LD;
    (void)call->plan->kernels->narrow_row(to, from, call->plan->shape.x_type, count);
    to[count] = 0;
  }
}

/* Groups of tokens differ by at most one, so that none has a small tile. */
static void multiply_block(const bytes_plan *plan, const bytes_chunk *c, int64_t first, int64_t count) {
  const cpu_packed *w = plan->w;
  const int64_t groups = (c->tokens + plan->kernels->bytes_tokens - 1) / plan->kernels->bytes_tokens;
  for (int64_t p = 0; p < c->panels; p++) {
    cpu_bytes t = {.x = c->s->x,
                   .x_ld = X_LD,
                   .w = (const int8_t *)w->data + cpu_bytes_at(w, c->panel + p, first / 2),
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
  char *memory = plan->memory + plan->each * member;
  const bytes_scratch s = {(int16_t *)(void *)memory, (int32_t *)(void *)(memory + plan->x)};
  const int64_t chunks = (call->tokens + plan->max_tokens - 1) / plan->max_tokens;
  for (int64_t i = 0; i < chunks; i++) {
    int64_t first, last;
    cpu_share(call->tokens, (uint32_t)i, (uint32_t)chunks, &first, &last);
    for (int64_t p = begin; p < end; p += plan->max_panels) {
      const int64_t panels = end - p < plan->max_panels ? end - p : plan->max_panels;
      const bytes_chunk c = {first, last - first, p, panels, &s};
      run_chunk(call, &c);
    }
  }
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  bytes_plan *plan = opaque;
  bytes_call call = {plan, args[0], args[1], args[2], args[3], args[3]->dims[0]};
  (void)nargs;
  (void)stream;
  if (call.tokens <= 0 || plan->shape.N == 0) return BS_OK;
  plan->memory = plan->exec->scratch(plan->exec->ctx);
  return cpu_team(plan->exec, (double)call.tokens * (double)plan->shape.N * (double)plan->shape.K < ALONE,
                  run_share, &call, err);
}

static int read_query(const bs_op_query *q, cpu_matmul *out, bs_op_answer *answer) {
  if ((q->flags & BS_QUERY_TRAIN) != 0)
    return cpu_answer_no(answer, BS_REASON_DISABLED, "no steps of i8 weights");
  if ((q->flags & BS_QUERY_X_FULL) != 0 && q->partition != NULL)
    return cpu_answer_no(answer, BS_REASON_LAYOUT, "does not pick X's columns");
  return cpu_matmul_read_bytes(q, 1, out, answer);
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

static int32_t prepare(void *opaque, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  const cpu_state *state = opaque;
  bytes_plan like = {.exec = exec, .kernels = &state->kernels, .w = packed};
  bs_op_answer answer;
  memset(&answer, 0, sizeof answer);
  if (!judge(query, &like, &answer)) return bs_fail(err, BS_UNSUPPORTED, "BS-CPU-MATMUL", "%s", answer.text);
  int32_t rc = cpu_packed_check(packed, like.shape.N, like.shape.K, BS_I8, err);
  if (rc != BS_OK) return rc;
  like.each = member_bytes(&like, &like.x);
  like.width = cpu_workspace_members(query, like.each, exec->width > 0 ? exec->width : 1);
  rc = cpu_reserve(exec, like.each * like.width, err);
  if (rc != BS_OK) return rc;
  bytes_plan *plan = malloc(sizeof *plan);
  if (plan == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for a plan");
  *plan = like;
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
    .summary = "own kernels on pairs of columns: i8 or u8 x i8 to i32, exact",
    .supports = supports,
    .pack = cpu_packed_bytes_make,
    .packed_read = cpu_packed_read,
    .packed_free = cpu_packed_free,
    .prepare = prepare,
    .run = run,
    .plan_free = free,
};
