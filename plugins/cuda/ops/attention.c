/* SPDX-License-Identifier: MIT
 * attention.c - attention on tensor cores: bf16, f16, and fp8 as f16, sums in f32, powers rounded to 16 bits;
 * the arithmetic is in attention_body.h. This file chooses the kernel and the tiles from the query and the
 * knobs. In a run whose rows do not begin on 16 bytes attention_rows is used. */
#include "attention.h"

#include <math.h>

#define NAME "mma"
enum {
  BLOCKS_WANTED = 256, /* keys are cut where there are fewer than half of it */
  SPLITS_MOST = 32,
  TILES_LEAST = 4 /* of a part */
};

/* 0: the plan decides. */
typedef struct knobs {
  int64_t rows, keys, stages, warps, split;
  int fast, specialize, persistent;
} knobs;

/* The kernel of a plan and its parameters. */
typedef struct choice {
  uint32_t kernel, width;
  uint32_t rows, keys, stages, splits, shared;
  uint32_t fast, persistent;
  uint64_t workspace;
} choice;

typedef struct attend_plan {
  cuda_plan plan;
  cuda_attend of;
  choice choice;
  float *partial;
} attend_plan;

/* Kernels by width, then f16 and bf16. */
static const struct {
  uint32_t width, kernel[2];
} kernels[] = {
    {64, {CUDA_ATTENTION_F16_64, CUDA_ATTENTION_BF16_64}},
    {128, {CUDA_ATTENTION_F16_128, CUDA_ATTENTION_BF16_128}},
    {256, {CUDA_ATTENTION_F16_256, CUDA_ATTENTION_BF16_256}},
};

/* ---- what is served ------------------------------------------------------------------------------ */

static int is_f8(uint32_t dtype) {
  return dtype == BS_F8E4M3 || dtype == BS_F8E5M2;
}

static int dtypes_legal(const bs_op_query *q, bs_op_answer *out) {
  const uint32_t x = q->args[CUDA_ATTEND_Q]->dtype, y = q->args[CUDA_ATTEND_Y]->dtype;
  const bs_tensor_desc *mask = q->args[CUDA_ATTEND_MASK];
  const char *why = NULL;
  if (x != BS_BF16 && x != BS_F16 && !is_f8(x))
    why = "Q, K and V of bf16, f16 or fp8: there are no tensor cores for others without a loss";
  else if (q->args[CUDA_ATTEND_K]->dtype != x || q->args[CUDA_ATTEND_V]->dtype != x)
    why = "Q, K and V of one dtype";
  else if (y != BS_F32 && y != BS_BF16 && y != BS_F16)
    why = "Y of f32, bf16 or f16";
  else if (mask != NULL && (is_f8(mask->dtype) || mask->dtype == BS_F64))
    why = "a mask of bool, f32, bf16 or f16";
  if (why == NULL) return 1;
  (void)cuda_answer_no(out, BS_REASON_DTYPE, "%s", why);
  return 0;
}

static int layout_legal(const bs_op_query *q, bs_op_answer *out) {
  const int64_t D = q->args[CUDA_ATTEND_Q]->dims[3], E = q->args[CUDA_ATTEND_V]->dims[3];
  if (D < 8 || E < 8 || D % 8 != 0 || E % 8 != 0) {
    (void)cuda_answer_no(out, BS_REASON_SHAPE, "rows of %lld and %lld elements: multiples of 8", (long long)D,
                         (long long)E);
    return 0;
  }
  static const uint32_t rows[] = {CUDA_ATTEND_Q, CUDA_ATTEND_K, CUDA_ATTEND_V, CUDA_ATTEND_Y};
  for (uint32_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    const bs_tensor_desc *d = q->args[rows[i]];
    if (cuda_attend_stride(d, 3) != 1) {
      (void)cuda_answer_no(out, BS_REASON_LAYOUT, "element stride %lld, need 1",
                           (long long)cuda_attend_stride(d, 3));
      return 0;
    }
    for (uint32_t dim = 0; dim < 3; dim++)
      if (cuda_attend_stride(d, dim) % 8 != 0) {
        (void)cuda_answer_no(out, BS_REASON_ALIGNMENT, "stride %lld of dimension %u, need a multiple of 8",
                             (long long)cuda_attend_stride(d, dim), dim);
        return 0;
      }
  }
  return 1;
}

/* ---- the choice ----------------------------------------------------------------------------------- */

static const bs_knob knob_rows = {sizeof(bs_knob), 0,      "rows",
                                  "64,128",        "auto", "queries of a block, 16 a warp"};
static const bs_knob knob_keys = {sizeof(bs_knob), 0,      "keys",
                                  "32,64,128",     "auto", "keys of a tile of K and V"};
static const bs_knob knob_stages = {
    sizeof(bs_knob), 0,      "stages",
    "1,2,3",         "auto", "tiles in shared memory: all but one arrive while one is used"};
static const bs_knob knob_warps = {sizeof(bs_knob), 0, "warps", "4,8", "auto", "of a block: rows / 16"};
static const bs_knob knob_split = {sizeof(bs_knob), 0,      "split",
                                   "1:32*2",        "auto", "parts that the keys of a query are cut in"};
static const bs_knob knob_exp = {
    sizeof(bs_knob), 0, "exp", "exact,fast", "exact", "fast: the processor's 2^x, subnormal powers are 0"};
static const bs_knob knob_persistent = {
    sizeof(bs_knob), 0,     "persistent",
    "off,on",        "off", "on: two blocks a multiprocessor take all tiles of queries in turn"};
static const bs_knob knob_specialize = {
    sizeof(bs_knob), 0,     "warp_specialize",
    "off,on",        "off", "on: warps of their own for loads; not built, refused"};
static const bs_knob *const all_knobs[] = {&knob_rows,  &knob_keys, &knob_stages,     &knob_warps,
                                           &knob_split, &knob_exp,  &knob_persistent, &knob_specialize};

static int is_word(const char *settings, const char *name, const char *word) {
  char value[32];
  return bs_knob_find(settings, name, value, sizeof value) && strcmp(value, word) == 0;
}

static knobs knobs_of(const bs_op_query *q) {
  const knobs k = {.rows = bs_knob_int(q->knobs, "rows", 0),
                   .keys = bs_knob_int(q->knobs, "keys", 0),
                   .stages = bs_knob_int(q->knobs, "stages", 0),
                   .warps = bs_knob_int(q->knobs, "warps", 0),
                   .split = bs_knob_int(q->knobs, "split", 0),
                   .fast = is_word(q->knobs, "exp", "fast"),
                   .specialize = is_word(q->knobs, "warp_specialize", "on"),
                   .persistent = is_word(q->knobs, "persistent", "on")};
  return k;
}

static uint32_t shared_of(const choice *c) {
  return (c->stages * 2 * c->keys + c->rows) * c->width * 2;
}

static int64_t ceil_of(int64_t n, int64_t by) {
  return (n + by - 1) / by;
}

/* Few blocks with many keys leave most of a device idle: their keys are cut. By the query alone, so that the
 * same query has the same bits on every device. */
static uint32_t splits_for(const bs_op_query *q, const choice *c) {
  const int64_t *x = q->args[CUDA_ATTEND_Q]->dims;
  const int64_t blocks = x[0] * x[1] * ceil_of(x[2], c->rows);
  const int64_t tiles = ceil_of(q->args[CUDA_ATTEND_K]->dims[2], c->keys);
  int64_t splits = blocks > 0 ? BLOCKS_WANTED / blocks : 1;
  if (splits > tiles / TILES_LEAST) splits = tiles / TILES_LEAST;
  if (splits > SPLITS_MOST) splits = SPLITS_MOST;
  return splits < 2 ? 1 : (uint32_t)splits;
}

static uint64_t workspace_of(const bs_op_query *q, uint32_t splits) {
  const int64_t *x = q->args[CUDA_ATTEND_Q]->dims;
  const double bytes = (double)splits * (double)x[0] * (double)x[1] * (double)x[2] *
                       (double)(q->args[CUDA_ATTEND_V]->dims[3] + 2) * sizeof(float);
  return splits < 2 ? 0 : bytes >= 0x1p62 ? UINT64_MAX : (uint64_t)bytes;
}

static int split_legal(const bs_op_query *q, const knobs *k, choice *c, bs_op_answer *out) {
  const uint64_t limit = q->workspace_limit != 0 ? q->workspace_limit : UINT64_MAX;
  c->splits = k->split != 0 ? (uint32_t)k->split : splits_for(q, c);
  if (k->split == 0 && workspace_of(q, c->splits) > limit) c->splits = 1;
  c->workspace = workspace_of(q, c->splits);
  if (c->workspace > limit || c->workspace == UINT64_MAX) {
    (void)cuda_answer_no(out, BS_REASON_WORKSPACE, "split=%u needs %llu bytes of workspace", c->splits,
                         (unsigned long long)c->workspace);
    return 0;
  }
  if (q->args[CUDA_ATTEND_Q]->dims[0] * (int64_t)c->splits <= 65535) return 1;
  (void)cuda_answer_no(out, BS_REASON_SHAPE, "split=%u of %lld sequences: at most 65535 together", c->splits,
                       (long long)q->args[CUDA_ATTEND_Q]->dims[0]);
  return 0;
}

/* Sets the tiles; values that are not given are chosen to fit. */
static int tiles_legal(const knobs *k, choice *c, bs_op_answer *out) {
  c->rows = k->rows != 0 ? (uint32_t)k->rows : k->warps != 0 ? 16 * (uint32_t)k->warps : 64;
  if (k->warps != 0 && 16 * k->warps != c->rows) {
    (void)cuda_answer_no(out, BS_REASON_NOT_BUILT, "rows=%u with warps=%lld: a warp has 16 queries", c->rows,
                         (long long)k->warps);
    return 0;
  }
  if (k->specialize) {
    (void)cuda_answer_no(out, BS_REASON_NOT_BUILT, "warp_specialize=on: there is no such kernel; off is");
    return 0;
  }
  c->stages = k->stages != 0 ? (uint32_t)k->stages : 2;
  c->keys = k->keys != 0 ? (uint32_t)k->keys : 64;
  while (k->keys == 0 && c->keys > 32 && shared_of(c) > ATTENTION_SHARED) c->keys /= 2;
  while (k->stages == 0 && c->stages > 1 && shared_of(c) > ATTENTION_SHARED) c->stages--;
  c->shared = shared_of(c);
  if (c->shared <= ATTENTION_SHARED) return 1;
  (void)cuda_answer_no(
      out, BS_REASON_MEMORY,
      "rows=%u keys=%u stages=%u of %u elements need %u bytes of shared memory, %d are there", c->rows,
      c->keys, c->stages, c->width, c->shared, ATTENTION_SHARED);
  return 0;
}

static int choose(const bs_op_query *q, choice *c, bs_op_answer *out) {
  const knobs k = knobs_of(q);
  const int64_t D = q->args[CUDA_ATTEND_Q]->dims[3], E = q->args[CUDA_ATTEND_V]->dims[3];
  const int64_t wide = D > E ? D : E;
  memset(c, 0, sizeof *c);
  for (size_t i = sizeof kernels / sizeof kernels[0]; i-- > 0;)
    if (wide <= kernels[i].width) {
      c->width = kernels[i].width;
      c->kernel = kernels[i].kernel[q->args[CUDA_ATTEND_Q]->dtype == BS_BF16];
    }
  c->fast = (uint32_t)k.fast;
  c->persistent = (uint32_t)k.persistent;
  return tiles_legal(&k, c, out) && split_legal(q, &k, c, out);
}

static int legal(const bs_op_query *q, choice *c, bs_op_answer *out) {
  if (!cuda_attend_legal(q, out) || !dtypes_legal(q, out) || !layout_legal(q, out)) return 0;
  if ((q->flags & BS_QUERY_TOKENWISE) != 0) {
    (void)cuda_answer_no(out, BS_REASON_DISABLED, "a query's keys may be cut by the number of others");
    return 0;
  }
  return choose(q, c, out);
}

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *out) {
  choice c;
  (void)state;
  if (!legal(q, &c, out)) return BS_OK;
  return cuda_answer(out, BS_LEVEL_NATIVE, 800, BS_TOL_ACC_LOW, c.workspace, NAME,
                     "tensor cores, online softmax over tiles of keys; rows off 16 bytes: a warp a query");
}

/* ---- plans ---------------------------------------------------------------------------------------- */

static void plan_free(void *opaque) {
  attend_plan *plan = opaque;
  if (plan == NULL) return;
  if (plan->partial != NULL) plan->plan.exec->free(plan->plan.exec->ctx, plan->partial);
  cuda_plan_free(plan);
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  void *made = NULL;
  bs_op_answer answer;
  (void)packed;
  const int32_t rc = cuda_plan_new(&cuda_attention, state, exec, q, sizeof(attend_plan), &made, err);
  if (rc != BS_OK) return rc;
  attend_plan *plan = made;
  plan->of = cuda_attend_of(q);
  (void)choose(q, &plan->choice, &answer); /* supports has said that it can */
  if (plan->choice.workspace > 0) {
    const uint64_t bytes = plan->choice.workspace;
    plan->partial = exec->alloc(exec->ctx, bytes);
    if (plan->partial == NULL) {
      cuda_plan_free(plan);
      return bs_fail(err, BS_NO_MEMORY, "BS-CUDA-MEMORY", "no device memory for a workspace of %llu bytes",
                     (unsigned long long)bytes);
    }
  }
  *out_plan = plan;
  return BS_OK;
}

static int32_t echo(const void *opaque, bs_op_echo *out_echo) {
  const attend_plan *plan = opaque;
  const choice *c = &plan->choice;
  bs_op_echo mine;
  bs_echo_begin(&mine);
  cuda_echo_kernel(plan->plan.device, c->kernel, c->shared, &mine);
  bs_echo_int(&mine, "rows", c->rows);
  bs_echo_int(&mine, "keys", c->keys);
  bs_echo_int(&mine, "stages", c->stages);
  bs_echo_int(&mine, "warps", c->rows / 16);
  bs_echo_int(&mine, "split", c->splits);
  bs_echo_word(&mine, "exp", c->fast != 0 ? "fast" : "exact");
  bs_echo_word(&mine, "persistent", c->persistent != 0 ? "on" : "off");
  bs_echo_word(&mine, "warp_specialize", "off");
  bs_out_copy(out_echo, &mine, sizeof mine);
  return BS_OK;
}

/* ---- a run ---------------------------------------------------------------------------------------- */

/* Rows that begin on `bytes`. */
static int begins_on(const attention_view *v, uint32_t bytes) {
  const int64_t all = (v->strides[0] | v->strides[1] | v->strides[2]) * (int64_t)v->size;
  return v->strides[3] == 1 && all % bytes == 0 && (uintptr_t)v->data % bytes == 0;
}

static int fits(const attention_args *a) {
  const uint32_t piece = 8 * a->q.size; /* eight elements are read together */
  return begins_on(&a->q, piece) && begins_on(&a->k, piece) && begins_on(&a->v, piece) &&
         begins_on(&a->y, 2 * a->y.size);
}

static int32_t multiply(const attend_plan *plan, attention_args *a, CUstream stream, bs_error *err) {
  const choice *c = &plan->choice;
  const cuda_device *device = plan->plan.device;
  const uint32_t across = (uint32_t)ceil_of(a->S, c->rows);
  cuda_shape shape = {across, a->H, a->B * c->splits, 2 * c->rows, c->shared};
  const uint64_t items = (uint64_t)across * a->H * shape.blocks_z;
  a->keys = c->keys;
  a->stages = c->stages;
  a->splits = c->splits;
  a->fast = c->fast;
  a->partial = plan->partial;
  if (c->persistent != 0 && items <= UINT32_MAX / 2) {
    const uint64_t most = 2 * (uint64_t)(device->multiprocessors > 0 ? device->multiprocessors : 1);
    a->persistent = 1;
    a->items = (uint32_t)items;
    shape = (cuda_shape){(uint32_t)(items < most ? items : most), 1, 1, 2 * c->rows, c->shared};
  }
  const int32_t rc = cuda_launch(device, c->kernel, &shape, stream, a, err);
  if (rc != BS_OK || c->splits < 2) return rc;
  shape = (cuda_shape){(uint32_t)ceil_of(a->S, ATTENTION_ROWS_WARPS), a->H, a->B, ATTENTION_ROWS_THREADS, 0};
  return cuda_launch(device, CUDA_ATTENTION_MERGE, &shape, stream, a, err);
}

static int32_t run(void *opaque, bs_tensor *const *tensors, uint32_t nargs, bs_stream *stream,
                   bs_error *err) {
  const attend_plan *plan = opaque;
  attention_args args;
  (void)nargs;
  cuda_attend_args(&plan->of, tensors, &args);
  const CUstream queue = cuda_stream(plan->plan.device, stream);
  return fits(&args) ? multiply(plan, &args, queue, err)
                     : cuda_attend_rows(plan->plan.device, &args, queue, err);
}

const bs_op_impl cuda_attention = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "attention",
    .backend = "cuda",
    .name = NAME,
    .summary = "softmax(Q K^T) V on tensor cores, bf16, f16 and fp8",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = plan_free,
    .n_knobs = sizeof all_knobs / sizeof all_knobs[0],
    .knobs = all_knobs,
    .echo = echo,
};
