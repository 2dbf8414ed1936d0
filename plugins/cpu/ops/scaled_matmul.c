/* SPDX-License-Identifier: MIT
 *
 * scaled_matmul.c - a product of two fp8 matrices with scales (docs/ops.md). Each member of the team owns a
 * range of blocks of outputs; it widens a piece of their rows of w to f32 once for some tokens, and takes dot
 * products with the same piece of each token's x. A token's sums depend on nothing but its row. */
#include <stdlib.h>

#include "../cpu.h"

enum { X, X_SCALES, W, W_SCALES, BIAS, BASE, OUT, ARGS };

#define OUTPUTS 32        /* of a block */
#define COLUMNS 256       /* of a piece: that of a block is 32 KiB */
#define LD (COLUMNS + 16) /* floats between rows; not a power of two */
#define TOKENS 64         /* at most, for which a piece is widened once */
#define ALONE (1 << 15)   /* multiplications below which the team is not woken */

typedef struct scaled_scratch {
  float *w;    /* [OUTPUTS][LD] */
  float *x;    /* [LD] */
  float *sums; /* [tokens][OUTPUTS] of a group */
  float *all;  /* the same of all groups */
} scaled_scratch;

typedef struct scaled_plan {
  const bs_exec *exec;
  const cpu_kernels *kernels;
  int64_t group, tokens;
  uint32_t x, w; /* cpu_quant_index */
  uint32_t to, activation;
  float *memory; /* of all members, while it runs */
  uint32_t width;
} scaled_plan;

typedef struct scaled_call {
  const scaled_plan *plan;
  bs_tensor *const *args;
} scaled_call;

typedef struct scaled_block {
  const scaled_call *call;
  const scaled_scratch *s;
  int64_t token, tokens, output, outputs;
} scaled_block;

/* ---- running ------------------------------------------------------------------------------------ */

static float f32_at(const bs_tensor *t, int64_t row, int64_t col) {
  return ((const float *)t->data)[row * t->strides[0] + col];
}

/* Columns k .. k + n - 1 of a row as f32, with zeros up to a whole step. */
static void widen(const cpu_kernels *kernels, uint32_t of, const bs_tensor *t, int64_t row, int64_t k,
                  int64_t n, float *out) {
  kernels->widen8[of](out, (const uint8_t *)t->data + row * t->strides[0] + k, n);
  for (; n % CPU_F8_STEP != 0; n++) out[n] = 0.0f;
}

static void add_piece(const scaled_block *b, int64_t k, int64_t n) {
  const scaled_plan *plan = b->call->plan;
  const int64_t whole = (n + CPU_F8_STEP - 1) / CPU_F8_STEP * CPU_F8_STEP;
  const int64_t rows = (b->outputs + CPU_F8_ROWS - 1) / CPU_F8_ROWS * CPU_F8_ROWS;
  for (int64_t o = 0; o < b->outputs; o++)
    widen(plan->kernels, plan->w, b->call->args[W], b->output + o, k, n, b->s->w + o * LD);
  for (int64_t o = b->outputs; o < rows; o++) memset(b->s->w + o * LD, 0, (size_t)whole * sizeof(float));
  for (int64_t t = 0; t < b->tokens; t++) {
    widen(plan->kernels, plan->x, b->call->args[X], b->token + t, k, n, b->s->x);
    for (int64_t o = 0; o < rows; o += CPU_F8_ROWS)
      plan->kernels->dot_rows(b->s->sums + t * OUTPUTS + o, b->s->x, b->s->w + o * LD, LD, whole);
  }
}

static void scale_group(const scaled_block *b, int64_t group) {
  bs_tensor *const *args = b->call->args;
  for (int64_t t = 0; t < b->tokens; t++) {
    const float of_x = f32_at(args[X_SCALES], b->token + t, group);
    for (int64_t o = 0; o < b->outputs; o++) {
      const float scale = of_x * f32_at(args[W_SCALES], b->output + o, group);
      b->s->all[t * OUTPUTS + o] += b->s->sums[t * OUTPUTS + o] * scale;
    }
  }
}

static void finish_token(const scaled_block *b, int64_t t) {
  const scaled_plan *plan = b->call->plan;
  bs_tensor *const *args = b->call->args;
  const int64_t row = b->token + t, n = b->outputs;
  float *v = b->s->all + t * OUTPUTS;
  for (int64_t o = 0; args[BASE] != NULL && o < n; o++) v[o] += f32_at(args[BASE], row, b->output + o);
  for (int64_t o = 0; args[BIAS] != NULL && o < n; o++) v[o] += f32_at(args[BIAS], 0, b->output + o);
  if (plan->activation != BS_ACT_NONE) plan->kernels->activate[plan->activation](v, n);
  plan->kernels->store[plan->to](
      (uint8_t *)args[OUT]->data +
          (size_t)(row * args[OUT]->strides[0] + b->output) * BS_DTYPE_BYTES(args[OUT]->dtype),
      v, n);
}

static void run_block(const scaled_block *b) {
  const int64_t K = b->call->args[X]->dims[1], group = b->call->plan->group;
  const size_t bytes = (size_t)(b->tokens * OUTPUTS) * sizeof(float);
  memset(b->s->all, 0, bytes);
  for (int64_t g = 0; g < b->call->args[X_SCALES]->dims[1]; g++) {
    const int64_t end = K - g * group < group ? K : (g + 1) * group;
    memset(b->s->sums, 0, bytes);
    for (int64_t k = g * group; k < end; k += COLUMNS) add_piece(b, k, end - k < COLUMNS ? end - k : COLUMNS);
    scale_group(b, g);
  }
  for (int64_t t = 0; t < b->tokens; t++) finish_token(b, t);
}

static uint64_t member_floats(int64_t tokens) {
  return (uint64_t)(OUTPUTS * LD + LD + 2 * tokens * OUTPUTS);
}

static scaled_scratch scratch_of(const scaled_plan *plan, uint32_t member) {
  scaled_scratch s = {.w = plan->memory + member_floats(plan->tokens) * member};
  s.x = s.w + OUTPUTS * LD;
  s.sums = s.x + LD;
  s.all = s.sums + plan->tokens * OUTPUTS;
  return s;
}

static void share(void *arg, uint32_t member, uint32_t width) {
  const scaled_call *c = arg;
  const scaled_plan *plan = c->plan;
  const int64_t B = c->args[OUT]->dims[0], N = c->args[OUT]->dims[1];
  const uint32_t members = width < plan->width ? width : plan->width; /* as many as have scratch */
  int64_t begin, end;
  if (member >= members) return;
  cpu_share((N + CPU_F8_ROWS - 1) / CPU_F8_ROWS, member, members, &begin, &end);
  const scaled_scratch s = scratch_of(plan, member);
  end = end * CPU_F8_ROWS < N ? end * CPU_F8_ROWS : N;
  for (int64_t t = 0; t < B; t += plan->tokens)
    for (int64_t n = begin * CPU_F8_ROWS; n < end; n += OUTPUTS) {
      const scaled_block b = {
          c, &s, t, B - t < plan->tokens ? B - t : plan->tokens, n, end - n < OUTPUTS ? end - n : OUTPUTS};
      run_block(&b);
    }
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  scaled_plan *plan = opaque;
  scaled_call c = {plan, args};
  (void)nargs;
  (void)stream;
  const double work = (double)args[OUT]->dims[0] * (double)args[OUT]->dims[1];
  if (work <= 0) return BS_OK;
  plan->memory = plan->exec->scratch(plan->exec->ctx);
  return cpu_team(plan->exec, work * (double)args[X]->dims[1] < ALONE, share, &c, err);
}

/* ---- plans -------------------------------------------------------------------------------------- */

static int64_t tokens_of(const bs_op_query *query) {
  const int64_t B = query->args[OUT]->dims[0];
  return B < 1 ? 1 : B < TOKENS ? B : TOKENS;
}

static int32_t supports(void *opaque, const bs_op_query *query, bs_op_answer *answer) {
  const cpu_state *state = opaque;
  char algo[48];
  if (!cpu_args_dense(query, ARGS, answer)) return BS_OK;
  if (cpu_type_index(query->args[OUT]->dtype) < 0)
    return cpu_answer_no(answer, BS_REASON_DTYPE, "output goes to f32, bf16 or f16");
  if (!cpu_workspace_fits(query, member_floats(tokens_of(query)) * sizeof(float), answer)) return BS_OK;
  snprintf(algo, sizeof algo, "f8-%s", state->kernels.name);
  cpu_answer_yes(answer, 700, BS_TOL_ACC_F32, algo, "widened to f32 piece by piece");
  return BS_OK;
}

static int32_t prepare(void *opaque, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  const cpu_state *state = opaque;
  (void)packed;
  int32_t rc = cpu_require(supports, opaque, query, err);
  if (rc != BS_OK) return rc;
  scaled_plan *plan = calloc(1, sizeof *plan);
  if (plan == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for a plan");
  plan->exec = exec;
  plan->kernels = &state->kernels;
  plan->group = query->attrs[0];
  plan->tokens = tokens_of(query);
  plan->x = (uint32_t)cpu_quant_index(query->args[X]->dtype);
  plan->w = (uint32_t)cpu_quant_index(query->args[W]->dtype);
  plan->to = (uint32_t)cpu_type_index(query->args[OUT]->dtype);
  plan->activation = query->activation;
  const uint64_t each = member_floats(plan->tokens) * sizeof(float);
  plan->width = cpu_workspace_members(query, each, exec->width > 0 ? exec->width : 1);
  rc = cpu_reserve(exec, each * plan->width, err);
  if (rc != BS_OK) {
    free(plan);
    return rc;
  }
  *out_plan = plan;
  return BS_OK;
}

const bs_src_loc cpu_scaled_matmul_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl cpu_scaled_matmul = {
    .struct_size = sizeof(bs_op_impl),
    .priority = 10,
    .op = "scaled_matmul",
    .backend = "cpu",
    .name = "cpu",
    .summary = "a product of fp8 matrices with scales, widened to f32 piece by piece",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = free,
};
