/* SPDX-License-Identifier: MIT
 *
 * matmul.c - the matmul "packed": Y = act(X W^T + bias) + residual on weights packed once in panels
 * (matmul_pack.c), fp32 arithmetic for f32, bf16 and f16.
 *
 * Each member of the team owns a range of panels. For a chunk of tokens and a chunk of panels it visits the K
 * blocks: it packs the block of X (widened, with only the partition's columns), multiplies tile by tile and
 * adds the block's sums to C; then one epilogue a row. Sums have the same order for every token, tile and
 * team: a token's bits depend only on its own row. */
#include <stdlib.h>

#include "../columns.h"
#include "epilogue.h"
#include "packed.h"

#define MAX_TOKENS 96         /* tokens of a chunk: X block and C stay in L2 */
#define C_FLOATS (40 << 10)   /* of a chunk's C: 160 KiB */
#define MIN_PANELS 32         /* of a chunk, however many tokens */
#define WIDEN 7               /* groups of tokens from which a 16-bit panel is widened beforehand */
#define KEEP_FLOATS (1 << 20) /* X of a chunk of tokens that is packed once for all its panels: 4 MiB */
#define KEEP_SHARE 32         /* and it is at most this part of the weight */
#define ALONE (1 << 16)       /* multiplications below which the team is not woken */
#define BESIDE 4              /* the most panels that a tile takes together */

static const bs_knob
    tokens_knob = {sizeof(bs_knob), 0,
                   "tokens",        "12:384*2",
                   "auto",          "most tokens of a chunk, whose X and sums stay in cache; auto: 96"},
    panels_knob = {sizeof(bs_knob),
                   0,
                   "panels",
                   "8:512*2",
                   "auto",
                   "most panels of 16 outputs of a chunk; auto: sums of 160 KiB, 32 at least"},
    beside_knob = {sizeof(bs_knob),
                   0,
                   "beside",
                   "1,2,4",
                   "auto",
                   "most panels that a tile of few tokens takes at once; auto: 1 of f32 weights "
                   "that come from memory and one unit for 512 bits, else 4"},
    ahead_knob = {sizeof(bs_knob),
                  0,
                  "ahead",
                  "off,1,2,4,6,8,12",
                  "auto",
                  "tokens of a chunk from which weights are asked for ahead; auto: 1 of 16-bit "
                  "weights, 4 of pairs of bf16, 6 of f32"};
static const bs_knob *const knobs[] = {&tokens_knob, &panels_knob,   &beside_knob,
                                       &ahead_knob,  &cpu_knob_keep, &cpu_knob_threads};

/* The scratch memory of one member. */
typedef struct scratch {
  float *x;     /* [block][tokens][CPU_X_LD]; bf16 for the dot product */
  float *c;     /* [tokens][c_ld] */
  float *panel; /* one widened panel of a block */
  float *row;   /* bias of the chunk, then one row of residual */
} scratch;

/* The partition of the work, and the floats of a member's scratch: parts of `each`, each on a separate cache
 * line. */
typedef struct sizes {
  int64_t told_tokens, told_panels; /* the most of a chunk, however few there are */
  int64_t tokens, panels;           /* of a chunk, at most */
  int64_t c_ld;                     /* floats between rows of C; not a power of two */
  uint64_t x, c, panel, each;       /* floats */
  int keep; /* X of a chunk of tokens is packed once: x has room for all its columns */
} sizes;

typedef struct matmul_plan {
  const bs_exec *exec;
  const cpu_kernels *kernels;
  const cpu_packed *w;
  cpu_matmul shape;
  int x_index, w_index;
  cpu_columns columns;
  bs_partition *partition;            /* own copy; NULL unless X_FULL */
  cpu_tile_fn tile;                   /* on the weights as they are; NULL: they are widened first */
  int dot;                            /* tile takes bf16 X */
  int32_t panels[CPU_MAX_TOKENS + 1]; /* together, by tokens */
  int64_t ahead;                      /* tokens from which weights are asked for ahead */
  int64_t beside;                     /* as the echo tells it: 0: by tokens */
  sizes s;
  float *memory; /* of all members, while it runs */
  uint32_t width;
} matmul_plan;

typedef struct matmul_call {
  const matmul_plan *plan;
  const bs_tensor *x, *bias, *residual, *y;
  int64_t tokens; /* B of this call */
} matmul_call;

/* A chunk of the work of one member. */
typedef struct chunk {
  int64_t token, tokens;
  int64_t panel, panels;
  const scratch *s;
  int packed; /* X lies in scratch, whole, from the chunk of panels before */
} chunk;

static const void *at(const void *base, int64_t index, uint32_t dtype) {
  return (const uint8_t *)base + (size_t)index * BS_DTYPE_BYTES(dtype);
}

/* Columns first..first+count of the chunk's tokens, as f32, or as they are for the dot product. */
static void pack_x(const matmul_call *call, const chunk *c, int64_t first, int64_t count, float *x) {
  const matmul_plan *plan = call->plan;
  const uint32_t dtype = plan->shape.x_type;
  uint16_t picked[CPU_K_BLOCK];
  for (int64_t t = 0; t < c->tokens; t++) {
    const void *row = at(call->x->data, (c->token + t) * call->x->strides[0], dtype);
    float *to = x + t * CPU_X_LD;
    if (plan->dot) {
      uint16_t *as_is = (uint16_t *)x + t * CPU_X_LD;
      if (plan->partition == NULL)
        memcpy(as_is, at(row, first, dtype), (size_t)count * sizeof *as_is);
      else
        cpu_columns_gather(&plan->columns, first, count, as_is, row);
      as_is[count] = 0; /* the other half of the last pair */
    } else if (plan->partition == NULL) {
      plan->kernels->load[plan->x_index](to, at(row, first, dtype), count);
    } else if (dtype == BS_F32) {
      cpu_columns_gather(&plan->columns, first, count, to, row);
    } else {
      cpu_columns_gather(&plan->columns, first, count, picked, row);
      plan->kernels->load[plan->x_index](to, picked, count);
    }
  }
}

/* Chooses how many panels are read together, and whether to prefetch. A weight from memory is read fastest as
 * one stream that the hardware prefetches, one panel after the other, if the arithmetic is fast enough.
 * 16-bit panels need several together for that, and then prefetching. Measured (docs/performance.md). */
static void choose_order(matmul_plan *plan, const char *told) {
  char ahead[8];
  const uint64_t bytes = (uint64_t)plan->w->panels * CPU_PANEL * (uint64_t)plan->w->K * plan->w->size;
  const int streamed = bytes >= cpu_streamed_bytes();
  const int half = plan->w_index != 0 && !plan->dot;
  const cpu_kernels *kernels = plan->kernels;
  const int32_t *panels = half ? kernels->panels_half : plan->dot ? kernels->panels_dot : kernels->panels;
  int beside = BESIDE;
  if (streamed && plan->dot)
    beside = 0;
  else if (streamed && !half && kernels->units < 2)
    beside = 1;
  memcpy(plan->panels, panels, sizeof plan->panels);
  plan->ahead = half ? 1 : plan->dot ? 4 : 6;
  if (bs_knob_find(told, "ahead", ahead, sizeof ahead))
    plan->ahead = bs_knob_int(told, "ahead", INT64_MAX); /* off */
  plan->beside = bs_knob_int(told, "beside", beside);
  for (int64_t t = 1; t <= kernels->tokens; t++) {
    const int32_t most = plan->beside > 0 ? (int32_t)plan->beside : t >= 4 && t < 8 ? 2 : 1;
    if (plan->panels[t] > most || plan->beside == 0) plan->panels[t] = most;
  }
}

/* The data after panel p of the chunk's block: the next panels, the next block, the next chunk. */
static const void *what_comes(const cpu_packed *w, const chunk *c, int64_t p, int64_t first) {
  if (p >= c->panels) {
    first += CPU_K_BLOCK;
    p = 0;
    if (first >= w->K) {
      first = 0;
      p = c->panel + c->panels < w->panels ? c->panels : 0;
    }
  }
  return at(w->data, cpu_packed_at(w, c->panel + p, first), w->dtype);
}

/* Multiplies every group of tokens with the panels of `t`. The groups differ by at most one token, so that
 * none has a slow tile. Each prefetches its part of the lines at `next`. */
static void multiply_panels(const matmul_plan *plan, const chunk *c, int64_t groups, cpu_tile t,
                            cpu_tile_fn tile, const char *next) {
  const int64_t each = c->tokens / groups, more = c->tokens % groups, quads = t.k / 4;
  const int64_t x_size = plan->dot ? (int64_t)sizeof(uint16_t) : (int64_t)sizeof(float);
  int64_t lines = next != NULL && quads > 0 ? (t.panels * t.w_step + 63) / 64 : 0;
  const int32_t at_once = lines > 0 ? (int32_t)((lines + quads * groups - 1) / (quads * groups)) : 0;
  for (int64_t g = 0; g < groups; g++) {
    t.tokens = (int32_t)(each + (g < more));
    t.ahead_lines = lines > 0 ? at_once : 0;
    t.ahead = lines > 0 ? next : NULL;
    tile(&t);
    t.x = (const char *)t.x + t.tokens * CPU_X_LD * x_size;
    t.c += t.tokens * plan->s.c_ld;
    lines -= quads * at_once;
    if (lines > 0) next += quads * at_once * 64;
  }
}

/* Multiplies one K block of a chunk: one panel after the other, or several together. */
static void multiply_block(const matmul_plan *plan, const chunk *c, int64_t first, int64_t count,
                           const float *x) {
  const cpu_kernels *kernels = plan->kernels;
  const cpu_packed *w = plan->w;
  const int64_t groups = (c->tokens + kernels->tokens - 1) / kernels->tokens;
  const int64_t most = (c->tokens + groups - 1) / groups;
  const int widen = plan->tile == NULL || (plan->w_index != 0 && !plan->dot && groups >= WIDEN);
  for (int64_t p = 0; p < c->panels;) {
    int32_t panels = widen ? 1 : plan->panels[most];
    while (panels > c->panels - p) panels /= 2;
    cpu_tile t = {.x = x,
                  .w = at(w->data, cpu_packed_at(w, c->panel + p, first), w->dtype),
                  .w_step = cpu_packed_length(w, first) * CPU_PANEL * w->size,
                  .c = c->s->c + p * CPU_PANEL,
                  .ldc = plan->s.c_ld,
                  .k = count,
                  .panels = panels,
                  .add = first > 0};
    if (widen) {
      kernels->widen[plan->w_index](c->s->panel, t.w, count);
      t.w = c->s->panel;
    }
    multiply_panels(plan, c, groups, t, widen ? kernels->tile[0] : plan->tile,
                    c->tokens < plan->ahead ? NULL : what_comes(w, c, p + panels, first));
    p += panels;
  }
}

/* C to Y. */
static void finish(const matmul_call *call, const chunk *c) {
  const matmul_plan *plan = call->plan;
  const cpu_epilogue e = {plan->kernels, &plan->shape, call->bias, call->residual, call->y};
  const int64_t n0 = c->panel * CPU_PANEL, left = plan->shape.N - n0;
  const int64_t n = left < c->panels * CPU_PANEL ? left : c->panels * CPU_PANEL;
  cpu_finish(&e, c->token, c->tokens, n0, n, c->s->c, plan->s.c_ld, c->s->row);
}

static void run_chunk(const matmul_call *call, const chunk *c) {
  const int64_t K = call->plan->shape.K;
  for (int64_t first = 0; first < K; first += CPU_K_BLOCK) {
    const int64_t count = K - first < CPU_K_BLOCK ? K - first : CPU_K_BLOCK;
    float *x = c->s->x + (call->plan->s.keep ? first / CPU_K_BLOCK * c->tokens * CPU_X_LD : 0);
    if (!c->packed) pack_x(call, c, first, count, x);
    multiply_block(call->plan, c, first, count, x);
  }
  if (K == 0)
    for (int64_t t = 0; t < c->tokens; t++)
      memset(c->s->c + t * call->plan->s.c_ld, 0, (size_t)(c->panels * CPU_PANEL) * sizeof(float));
  finish(call, c);
}

static void run_share(void *arg, uint32_t member, uint32_t width) {
  const matmul_call *call = arg;
  const matmul_plan *plan = call->plan;
  const uint32_t members = width < plan->width ? width : plan->width; /* as many as have scratch */
  int64_t begin, end;
  if (member >= members) return;
  cpu_share(plan->w->panels, member, members, &begin, &end);
  scratch s = {.x = plan->memory + plan->s.each * member};
  s.c = s.x + plan->s.x;
  s.panel = s.c + plan->s.c;
  s.row = s.panel + plan->s.panel;
  const int64_t chunks = (call->tokens + plan->s.tokens - 1) / plan->s.tokens;
  for (int64_t i = 0; i < chunks; i++) {
    int64_t first, last;
    cpu_share(call->tokens, (uint32_t)i, (uint32_t)chunks, &first, &last);
    const int64_t parts = (end - begin + plan->s.panels - 1) / plan->s.panels;
    for (int64_t part = 0; part < parts; part++) {
      int64_t p, stop;
      cpu_share(end - begin, (uint32_t)part, (uint32_t)parts, &p, &stop);
      const chunk c = {first, last - first, begin + p, stop - p, &s, plan->s.keep && part > 0};
      run_chunk(call, &c);
    }
  }
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  matmul_plan *plan = opaque;
  matmul_call call = {plan, args[0], args[1], args[2], args[3], args[3]->dims[0]};
  (void)nargs;
  (void)stream;
  if (call.tokens <= 0 || plan->shape.N == 0) return BS_OK;
  const int32_t rc = cpu_batch_fits(call.tokens, plan->shape.B, err);
  if (rc != BS_OK) return rc;
  plan->memory = plan->exec->scratch(plan->exec->ctx);
  return cpu_team(
      plan->exec,
      plan->width == 1 || (double)call.tokens * (double)plan->shape.N * (double)plan->shape.K < ALONE,
      run_share, &call, err);
}

static void plan_free(void *opaque) {
  matmul_plan *plan = opaque;
  if (plan == NULL) return;
  free(plan->partition);
  free(plan);
}

static sizes choose_sizes(const cpu_matmul *shape, const bs_op_query *query) {
  sizes s;
  const int64_t all = (shape->N + CPU_PANEL - 1) / CPU_PANEL;
  s.told_tokens = bs_knob_int(query->knobs, "tokens", MAX_TOKENS);
  s.tokens = shape->B < s.told_tokens ? shape->B : s.told_tokens;
  if (s.tokens < 1) s.tokens = 1;
  s.panels = C_FLOATS / (s.tokens * CPU_PANEL);
  if (s.panels < MIN_PANELS) s.panels = MIN_PANELS;
  s.told_panels = s.panels = bs_knob_int(query->knobs, "panels", s.panels);
  if (s.panels > all) s.panels = all;
  s.c_ld = s.panels * CPU_PANEL + 16; /* not a power of two */
  const int64_t blocks = (shape->K + CPU_K_BLOCK - 1) / CPU_K_BLOCK;
  const int64_t kept = s.tokens * blocks * CPU_X_LD;
  const uint32_t size = BS_DTYPE_BYTES(shape->weight_type);
  s.keep = s.panels < all && blocks > 1 && kept <= KEEP_FLOATS &&
           (double)kept * sizeof(float) * KEEP_SHARE <= (double)shape->N * (double)shape->K * size;
  s.keep = cpu_knob_switch(query, "keep", s.keep);
  s.x = (uint64_t)(s.keep ? kept : s.tokens * CPU_X_LD);
  s.c = (uint64_t)(s.tokens * s.c_ld);
  s.panel = shape->weight_type != BS_F32 ? (uint64_t)CPU_K_BLOCK * CPU_PANEL : 0;
  s.each = (s.x + s.c + s.panel + 2 * (uint64_t)s.c_ld + 15) / 16 * 16;
  return s;
}

/* Checks shared by supports and prepare. */
static int judge(const cpu_state *state, const bs_op_query *query, cpu_matmul *out_shape, sizes *out_sizes,
                 bs_op_answer *answer) {
  if (!cpu_matmul_allowed(state, "packed", answer) || !cpu_matmul_read(query, out_shape, answer)) return 0;
  *out_sizes = choose_sizes(out_shape, query);
  return cpu_workspace_fits(query, out_sizes->each * sizeof(float), answer);
}

static int32_t prepare(void *opaque, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  const cpu_state *state = opaque;
  bs_op_answer answer;
  sizes s = {0};
  cpu_matmul shape;
  memset(&answer, 0, sizeof answer);
  if (!judge(state, query, &shape, &s, &answer))
    return bs_fail(err, BS_UNSUPPORTED, "BS-CPU-MATMUL", "%s", answer.text);
  int32_t rc = cpu_packed_check(packed, shape.N, shape.K, shape.weight_type, err);
  if (rc != BS_OK) return rc;
  matmul_plan *plan = calloc(1, sizeof *plan);
  if (plan == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for a plan");
  plan->exec = exec;
  plan->kernels = &state->kernels;
  plan->w = packed;
  plan->shape = shape;
  plan->width = cpu_workspace_members(query, s.each * sizeof(float), exec->width > 0 ? exec->width : 1);
  if (rc == BS_OK && plan->shape.x_full) {
    rc = cpu_columns_copy(query->partition, &plan->partition, err);
    if (rc == BS_OK)
      cpu_columns_make(&state->kernels, plan->partition, BS_DTYPE_BYTES(plan->shape.x_type), &plan->columns);
  }
  if (rc == BS_OK) {
    plan->x_index = cpu_type_index(plan->shape.x_type);
    plan->w_index = cpu_type_index(plan->shape.weight_type);
    rc = cpu_knob_members(query, plan->width, &plan->width, err);
    plan->s = s;
    plan->dot = plan->w_index == 1 && plan->kernels->dot != NULL;
    plan->tile = plan->dot ? plan->kernels->dot : plan->kernels->tile[plan->w_index];
    choose_order(plan, query->knobs);
    if (rc == BS_OK) rc = cpu_reserve(exec, s.each * plan->width * sizeof(float), err);
  }
  if (rc != BS_OK) {
    plan_free(plan);
    return rc;
  }
  *out_plan = plan;
  return BS_OK;
}

static int32_t echo(const void *opaque, bs_op_echo *out_echo) {
  const matmul_plan *plan = opaque;
  bs_op_echo told;
  bs_echo_begin(&told);
  bs_echo_int(&told, "tokens", plan->s.told_tokens);
  bs_echo_int(&told, "panels", plan->s.told_panels);
  if (plan->beside > 0)
    bs_echo_int(&told, "beside", plan->beside);
  else
    bs_echo_word(&told, "beside", "auto"); /* 2 of four to seven tokens, else 1 */
  if (plan->ahead < INT64_MAX)
    bs_echo_int(&told, "ahead", plan->ahead);
  else
    bs_echo_word(&told, "ahead", "off");
  bs_echo_word(&told, "keep", plan->s.keep ? "on" : "off");
  bs_echo_int(&told, "threads", plan->width);
  bs_out_copy(out_echo, &told, sizeof told);
  return BS_OK;
}

/* 600 for every shape: dnnl/describe.c says where oneDNN scores above or below. */
static int32_t supports(void *opaque, const bs_op_query *query, bs_op_answer *answer) {
  const cpu_state *state = opaque;
  cpu_matmul shape;
  sizes s = {0};
  char algo[48];
  if (!judge(state, query, &shape, &s, answer)) return BS_OK;
  snprintf(algo, sizeof algo, "packed-%s", state->kernels.name);
  cpu_answer_yes(answer, 600, BS_TOL_ACC_F32, algo, "");
  /* "dnnl" is registered, and so asked, before: when its library is missing that is known by now. */
#ifdef BS_CPU_DNNL
  char library[144] = "";
  if (cpu_dnnl_missing(state->dnnl)) cpu_dnnl_text(state->dnnl, library, sizeof library);
  snprintf(answer->text, sizeof answer->text, "own kernels of class %s%s%s", cpu_class(&state->kernels),
           library[0] != '\0' ? "; " : "", library);
#else
  snprintf(answer->text, sizeof answer->text, "own kernels of class %s; built without oneDNN",
           cpu_class(&state->kernels));
#endif
  return BS_OK;
}

const bs_src_loc cpu_matmul_packed_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl cpu_matmul_packed = {
    .struct_size = sizeof(bs_op_impl),
    .priority = 20,
    .op = "matmul",
    .backend = "cpu",
    .name = "packed",
    .summary = "own kernels on packed panels: f32, bf16, f16 with fp32 arithmetic on every processor",
    .supports = supports,
    .pack = cpu_packed_make,
    .packed_update = cpu_packed_update,
    .packed_read = cpu_packed_read,
    .packed_free = cpu_packed_free,
    .prepare = prepare,
    .run = run,
    .plan_free = plan_free,
    .n_knobs = sizeof knobs / sizeof knobs[0],
    .knobs = knobs,
    .echo = echo,
};
