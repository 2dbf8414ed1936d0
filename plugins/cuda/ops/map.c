/* SPDX-License-Identifier: MIT
 * map.c - a small program for each element (blockshock/expr.h), by an interpreter: map_body.h. prepare gives
 * the program's values places, run lays the tensors over one space. The steps of one type of numbers are in
 * map_f32.h, map_f64.h and map_i64.h. */
#include "map.h"

#include "ops.h"

enum {
  AXIS = 128, /* sources from this on are axes, of which an input gives the index */
  VALUES = BS_EXPR_MAX_IN + BS_EXPR_MAX_CONST + BS_EXPR_MAX_STEPS,
  ROOTS = VALUES + BS_MAX_DIMS
};

typedef struct map_plan {
  cuda_plan plan;
  uint32_t kernel;
  uint32_t each;  /* elements of a thread */
  uint32_t n_in;  /* of the query */
  uint32_t slots; /* of a block's shared memory */
  uint32_t threads;
  uint8_t source[MAP_INPUTS]; /* of the kernel's inputs: arguments of the query, axes */
  map_args args;              /* all but what the tensors decide */
} map_plan;

/* ---- the query --------------------------------------------------------------------------------- */

static int is_three(uint32_t op) {
  return op == BS_EXPR_FMA || op == BS_EXPR_SELECT;
}
static int is_two(uint32_t op) {
  return (op >= BS_EXPR_ADD && op <= BS_EXPR_XOR) || is_three(op);
}
/* In f64 gelu would lose digits far below zero, and nvcc's sine needs local memory. */
static int is_built(uint32_t compute, uint32_t op) {
  return compute != BS_F64 ||
         (op != BS_EXPR_SIN && op != BS_EXPR_COS && op != BS_EXPR_GELU && op != BS_EXPR_GELU_TANH);
}

/* Functions are within four units, which BS_TOL_EXACT allows (docs/ops.md). */
static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *out_answer) {
  (void)state;
  const bs_expr *e = q->expr;
  if (e == NULL || e->max_op >= BS_EXPR_OP_COUNT_)
    return cuda_answer_no(out_answer, BS_REASON_NOT_BUILT, "step %u of a program: known up to %d",
                          e != NULL ? e->max_op : 0, BS_EXPR_OP_COUNT_ - 1);
  if (e->n_in > BS_EXPR_MAX_IN || e->n_const > BS_EXPR_MAX_CONST || e->n_steps > BS_EXPR_MAX_STEPS ||
      e->n_out < 1 || e->n_out > BS_EXPR_MAX_OUT || q->nargs != e->n_in + e->n_out)
    return cuda_answer_no(out_answer, BS_REASON_SHAPE, "a program larger than those of expr.h");
  for (uint32_t i = 0; i < q->nargs; i++)
    if (q->args[i] == NULL || !cuda_arg_ok(q, i, q->args[i]->rank))
      return cuda_answer_no(out_answer, BS_REASON_DTYPE, "arg %u: an unknown dtype, or a negative stride", i);
  for (uint32_t s = 0; s < e->n_steps; s++) {
    const uint32_t op = e->steps[s].op;
    if (!is_built(e->compute, op))
      return cuda_answer_no(out_answer, BS_REASON_NOT_BUILT, "%s in a program of 0x%04x",
                            op == BS_EXPR_SIN || op == BS_EXPR_COS ? "sine or cosine" : "gelu", e->compute);
  }
  return cuda_answer(out_answer, BS_LEVEL_NATIVE, 700, BS_TOL_EXACT, 0, "interpreter",
                     "values in shared memory, a switch for each step");
}

/* ---- places of values -------------------------------------------------------------------------- */

/* Values by their numbers; an index is its axis', so that each axis is one input of the kernel. */
typedef struct places {
  const bs_expr *e;
  uint8_t root[VALUES];
  int32_t last[ROOTS]; /* the step that reads it last; n_steps: an output; -1: nothing reads it */
  uint8_t place[ROOTS];
  uint8_t unused[MAP_SLOTS]; /* slots that are free again */
  uint32_t n_unused, slots;
} places;

/* The roots that a step reads, each once. */
static uint32_t reads_of(const places *p, const bs_expr_step *s, uint8_t out[3]) {
  const uint8_t of[3] = {s->a, s->b, s->c};
  const uint32_t count = s->op == BS_EXPR_INDEX ? 0 : is_three(s->op) ? 3 : is_two(s->op) ? 2 : 1;
  uint32_t n = 0;
  for (uint32_t i = 0; i < count; i++) {
    int again = 0;
    for (uint32_t j = 0; j < n; j++) again |= out[j] == p->root[of[i]];
    if (!again) out[n++] = p->root[of[i]];
  }
  return n;
}

static void find_roots(places *p) {
  const bs_expr *e = p->e;
  const uint32_t first = e->n_in + e->n_const;
  for (uint32_t v = 0; v < first + e->n_steps; v++) {
    const int is_index = v >= first && e->steps[v - first].op == BS_EXPR_INDEX;
    p->root[v] = (uint8_t)(is_index ? (uint32_t)VALUES + e->steps[v - first].a : v);
  }
}

/* Backwards, so that what only steps without a reader read is not read. */
static void find_last(places *p) {
  const bs_expr *e = p->e;
  for (uint32_t v = 0; v < ROOTS; v++) p->last[v] = -1;
  for (uint32_t i = 0; i < e->n_out; i++) p->last[p->root[e->outs[i]]] = (int32_t)e->n_steps;
  for (uint32_t s = e->n_steps; s-- > 0;) {
    uint8_t of[3];
    if (p->last[p->root[e->n_in + e->n_const + s]] < 0) continue;
    const uint32_t count = reads_of(p, &e->steps[s], of);
    for (uint32_t i = 0; i < count; i++)
      if (p->last[of[i]] < 0) p->last[of[i]] = (int32_t)s;
  }
}

static void place_input(places *p, map_plan *plan, uint32_t root, uint32_t source) {
  if (p->last[root] < 0) return;
  p->place[root] = (uint8_t)p->slots++;
  plan->source[plan->args.n_in++] = (uint8_t)source;
}

/* A step's slot may be that of an operand that it reads last: a thread has read it by then. */
static void place_step(places *p, map_plan *plan, uint32_t s) {
  const bs_expr_step *from = &p->e->steps[s];
  const uint32_t first = p->e->n_in + p->e->n_const, root = p->root[first + s];
  uint8_t of[3];
  if (from->op == BS_EXPR_INDEX || p->last[root] < 0) return;
  map_step *step = &plan->args.steps[plan->args.n_steps++];
  const uint32_t count = reads_of(p, from, of);
  *step = (map_step){.op = from->op, .a = p->place[p->root[from->a]]};
  if (is_two(from->op)) step->b = p->place[p->root[from->b]];
  if (is_three(from->op)) step->c = p->place[p->root[from->c]];
  if (from->op == BS_EXPR_TO) step->dtype = (uint16_t)(from->b << 8 | from->c);
  for (uint32_t i = 0; i < count; i++)
    if (p->place[of[i]] < MAP_CONSTANT && p->last[of[i]] == (int32_t)s)
      p->unused[p->n_unused++] = p->place[of[i]];
  p->place[root] = p->n_unused > 0 ? p->unused[--p->n_unused] : (uint8_t)p->slots++;
  step->out = p->place[root];
}

static void place_values(const bs_expr *e, map_plan *plan) {
  places p = {.e = e};
  find_roots(&p);
  find_last(&p);
  for (uint32_t v = 0; v < e->n_in; v++) place_input(&p, plan, v, v);
  for (uint32_t axis = 0; axis < BS_MAX_DIMS; axis++) place_input(&p, plan, VALUES + axis, AXIS + axis);
  for (uint32_t k = 0; k < e->n_const; k++) {
    p.place[e->n_in + k] = (uint8_t)(MAP_CONSTANT + k);
    plan->args.consts[k] = e->consts[k];
  }
  for (uint32_t s = 0; s < e->n_steps; s++) place_step(&p, plan, s);
  for (uint32_t i = 0; i < e->n_out; i++) plan->args.outs[i] = p.place[p.root[e->outs[i]]];
  plan->args.n_out = e->n_out;
  plan->slots = p.slots;
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  (void)packed;
  const int32_t rc = cuda_plan_new(&cuda_map, state, exec, q, sizeof(map_plan), out_plan, err);
  if (rc != BS_OK) return rc;
  map_plan *plan = *out_plan;
  const uint32_t compute = q->expr->compute;
  plan->kernel = compute == BS_F32 ? CUDA_MAP_F32 : compute == BS_F64 ? CUDA_MAP_F64 : CUDA_MAP_I64;
  plan->each = MAP_BYTES / BS_DTYPE_BYTES(compute);
  plan->n_in = q->expr->n_in;
  place_values(q->expr, plan);
  plan->threads = MAP_THREADS;
  while (plan->slots * plan->threads * MAP_BYTES > MAP_SHARED) plan->threads /= 2;
  return BS_OK;
}

/* ---- a run ------------------------------------------------------------------------------------- */

/* Its offsets are the index. The address is not read: it says that the input is there. */
static cuda_spread index_spread(uint32_t axis, void *any) {
  cuda_spread s;
  memset(&s, 0, sizeof s);
  s.data = any;
  s.strides[axis] = 1;
  return s;
}

/* Can pieces of `each` neighbours be read from, or written to, all places that the space has? */
static int is_dense(const cuda_space *space, const cuda_spread *s, uint32_t each, int writes) {
  const uint32_t last = CUDA_SPACE_DIMS - 1, bytes = each * s->size > 16 ? 16 : each * s->size;
  if (s->strides[last] != 1) return s->strides[last] == 0 && !writes;
  if (s->size == 0) return 1;
  if ((uintptr_t)s->data % bytes != 0) return 0;
  for (uint32_t d = 0; d < last; d++)
    if (space->dims[d].by > 1 && (uint64_t)s->strides[d] * s->size % bytes != 0) return 0;
  return 1;
}

static void lay_out(const map_plan *plan, bs_tensor *const *tensors, map_args *a) {
  const bs_tensor *like = tensors[plan->n_in];
  cuda_spread all[MAP_INPUTS + BS_EXPR_MAX_OUT];
  const uint32_t n_in = a->n_in, last = CUDA_SPACE_DIMS - 1;
  for (uint32_t i = 0; i < n_in; i++) {
    const uint32_t from = plan->source[i];
    all[i] = from >= AXIS ? index_spread(from - AXIS, like->data)
                          : cuda_spread_of(tensors[from], like->rank, like->dims);
  }
  for (uint32_t i = 0; i < a->n_out; i++)
    all[n_in + i] = cuda_spread_of(tensors[plan->n_in + i], like->rank, like->dims);
  cuda_space_make(like->rank, like->dims, 0, all, n_in + a->n_out, &a->space);
  a->dense = a->space.dims[last].by % plan->each == 0;
  for (uint32_t i = 0; i < n_in + a->n_out; i++)
    a->dense &= (uint32_t)is_dense(&a->space, &all[i], plan->each, i >= n_in);
  if (a->dense) {
    a->space.count /= plan->each;
    a->space.dims[last] = cuda_divisor_make(a->space.dims[last].by / plan->each);
  }
  memcpy(a->in, all, n_in * sizeof *all);
  memcpy(a->out, all + n_in, a->n_out * sizeof *all);
}

static int32_t run(void *opaque, bs_tensor *const *tensors, uint32_t nargs, bs_stream *stream,
                   bs_error *err) {
  (void)nargs;
  const map_plan *plan = opaque;
  map_args args = plan->args;
  lay_out(plan, tensors, &args);
  if (args.space.count == 0) return BS_OK;
  const int64_t of_block = (int64_t)plan->threads * (args.dense ? 1 : plan->each);
  const int64_t blocks = (args.space.count - 1) / of_block + 1;
  if (blocks > INT32_MAX)
    return bs_fail(err, BS_OVERFLOW, "BS-CUDA-GRID", "%lld blocks of a map: %d fit", (long long)blocks,
                   INT32_MAX);
  const cuda_shape shape = {(uint32_t)blocks, 1, 1, plan->threads, plan->slots * plan->threads * MAP_BYTES};
  return cuda_launch(plan->plan.device, plan->kernel, &shape, cuda_stream(plan->plan.device, stream), &args,
                     err);
}

static int32_t echo(const void *opaque, bs_op_echo *out_echo) {
  const map_plan *plan = opaque;
  bs_op_echo mine;
  bs_echo_begin(&mine);
  cuda_echo_kernel(plan->plan.device, plan->kernel, plan->slots * plan->threads * MAP_BYTES, &mine);
  bs_out_copy(out_echo, &mine, sizeof mine);
  return BS_OK;
}

const bs_op_impl cuda_map = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "map",
    .backend = "cuda",
    .name = "kernels",
    .summary = "a small program for each element",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = cuda_plan_free,
    .echo = echo,
};
