/* SPDX-License-Identifier: MIT
 *
 * attention.c - attention of f32, bf16 and f16, sums in fp32. Work is cut into blocks of up to 192 queries of
 * all heads that share a K and V; members take blocks in turn. Where there are fewer blocks of few queries
 * than members (a decoding step), the keys of a block are cut too, and the parts are merged in their order.
 * A row whose result is NaN is made once more, key by key: a key that is masked takes no part, whatever K
 * and V hold. */
#include "attention.h"

#include <math.h>
#include <stdlib.h>

enum { MAX_WIDTH = 256 };
#define ALONE 65536.0 /* products up to which the team is not woken */

/* ---- queries ---------------------------------------------------------------------------------- */

static int last_adjacent(const bs_tensor_desc *d) {
  int given = 0;
  for (uint32_t i = 0; i < d->rank; i++) given |= d->strides[i] != 0;
  return !given || d->dims[d->rank - 1] <= 1 || d->strides[d->rank - 1] == 1;
}

static int read_query(const bs_op_query *q, bs_op_answer *answer) {
  static const char *const names[] = {"Q", "K", "V", "mask", "kv_len", "descale", "Y", "LSE"};
  for (uint32_t i = 0; i < CPU_ATTENTION_ARGS; i++) {
    const bs_tensor_desc *d = q->args[i];
    if (d == NULL || i == CPU_LENGTHS || i == CPU_LSE) continue;
    if (i == CPU_DESCALE) return cpu_answer_no(answer, BS_REASON_DTYPE, "factors of fp8");
    if (cpu_type_index(d->dtype) < 0 && !(i == CPU_MASK && d->dtype == BS_BOOL))
      return cpu_answer_no(answer, BS_REASON_DTYPE, "%s of dtype 0x%04x: f32, bf16 and f16 only", names[i],
                           d->dtype);
    if (!last_adjacent(d) && !(i == CPU_MASK && d->strides[3] == 0))
      return cpu_answer_no(answer, BS_REASON_LAYOUT, "%s has element stride %lld, need 1", names[i],
                           (long long)d->strides[3]);
  }
  const int64_t D = q->args[CPU_Q]->dims[3], E = q->args[CPU_V]->dims[3];
  if (D < 1 || E < 1 || D > MAX_WIDTH || E > MAX_WIDTH)
    return cpu_answer_no(answer, BS_REASON_SHAPE, "rows of %lld and %lld elements: 1 to %d", (long long)D,
                         (long long)E, MAX_WIDTH);
  if (q->accumulate == BS_ACC_F64)
    return cpu_answer_no(answer, BS_REASON_DTYPE, "accumulates in f32; the ref backend has f64");
  if ((q->flags & BS_QUERY_TOKENWISE) != 0)
    return cpu_answer_no(answer, BS_REASON_DISABLED, "a query's keys may be cut by the number of others");
  return 1;
}

static uint64_t floats_of(int64_t D, int64_t E) {
  const int64_t wide_d = cpu_up16(D), wide_e = cpu_up16(E);
  return (uint64_t)(2 * CPU_ATTEND_ROWS * CPU_X_LD + CPU_ATTEND_KEYS * (wide_d + wide_e) +
                    CPU_ATTEND_ROWS * (wide_e + 2) + 16 * MAX_WIDTH);
}

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *answer) {
  (void)state;
  if (!read_query(q, answer)) return BS_OK;
  const uint64_t bytes = floats_of(q->args[CPU_Q]->dims[3], q->args[CPU_V]->dims[3]) * sizeof(float);
  if (!cpu_workspace_fits(q, bytes, answer)) return BS_OK;
  cpu_answer_yes(answer, 800, BS_TOL_ACC_F32, "online", "online softmax over tiles of keys");
  return BS_OK;
}

/* What a part of the keys leaves of a block of few queries. */
static int64_t part_floats(const cpu_attention *plan) {
  return CPU_ATTEND_FEW * (cpu_up16(plan->E) + 2);
}

static int32_t prepare(void *opaque, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  const cpu_state *state = opaque;
  (void)packed;
  int32_t rc = cpu_require(supports, opaque, q, err);
  if (rc != BS_OK) return rc;
  cpu_attention *plan = calloc(1, sizeof *plan);
  if (plan == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for a plan");
  plan->exec = exec;
  plan->kernels = &state->kernels;
  plan->scale = (float)q->numbers[0];
  plan->softcap = (float)q->numbers[1];
  plan->causal = q->attrs[0];
  plan->left = q->attrs[1];
  plan->right = q->attrs[2];
  plan->D = q->args[CPU_Q]->dims[3];
  plan->E = q->args[CPU_V]->dims[3];
  plan->member_bytes = (floats_of(plan->D, plan->E) * sizeof(float) + 63) / 64 * 64;
  plan->width = cpu_workspace_members(q, plan->member_bytes, exec->width);
  if (plan->width == 0) plan->width = 1;
  rc = cpu_reserve(exec, (plan->member_bytes + (uint64_t)part_floats(plan) * sizeof(float)) * plan->width,
                   err);
  if (rc != BS_OK)
    free(plan);
  else
    *out_plan = plan;
  return rc;
}

/* ---- a call ----------------------------------------------------------------------------------- */

static cpu_rows4 rows_of(const bs_tensor *t) {
  cpu_rows4 r = {.data = NULL};
  if (t == NULL) return r;
  r.data = t->data;
  r.type = t->dtype == BS_BOOL ? 3 : (uint32_t)cpu_type_index(t->dtype);
  r.size = BS_DTYPE_BYTES(t->dtype);
  for (uint32_t i = 0; i < 4; i++) r.strides[i] = t->dims[i] == 1 ? 0 : t->strides[i];
  return r;
}

static void read_call(const cpu_attention *plan, bs_tensor *const *args, cpu_attend *call) {
  const int64_t *q = args[CPU_Q]->dims, *k = args[CPU_K]->dims;
  *call = (cpu_attend){.plan = plan, .B = q[0], .H = q[1], .G = k[1], .S = q[2], .T = k[2], .splits = 1};
  call->q = rows_of(args[CPU_Q]);
  call->k = rows_of(args[CPU_K]);
  call->v = rows_of(args[CPU_V]);
  call->mask = rows_of(args[CPU_MASK]);
  call->y = rows_of(args[CPU_Y]);
  if (args[CPU_LENGTHS] != NULL) {
    call->lengths = args[CPU_LENGTHS]->data;
    call->lengths_step = args[CPU_LENGTHS]->dims[0] == 1 ? 0 : args[CPU_LENGTHS]->strides[0];
  }
  if (args[CPU_LSE] != NULL) {
    call->lse = args[CPU_LSE]->data;
    memcpy(call->lse_strides, args[CPU_LSE]->strides, sizeof call->lse_strides);
  }
  if (call->B * call->H * call->S == 0) return;
  call->repeat = call->H / call->G;
  call->rows = call->repeat * call->S;
  /* Behind a causal mask keys are left out by whole blocks: smaller ones leave out more. */
  call->each = plan->causal != BS_CAUSAL_NONE ? CPU_ATTEND_ROWS / 2 : CPU_ATTEND_ROWS;
  while (call->each > CPU_ATTEND_LEAST &&
         call->B * call->G * ((call->rows + call->each - 1) / call->each) < plan->width)
    call->each /= 2;
  call->blocks = (call->rows + call->each - 1) / call->each;
  const int64_t items = call->B * call->G * call->blocks;
  call->alone = (double)(call->B * call->H * call->S) * (double)call->T * (double)(plan->D + plan->E) < ALONE;
  if (!call->alone && call->rows <= CPU_ATTEND_FEW && items < plan->width) {
    const int64_t by_width = plan->width / items, by_keys = call->T / CPU_ATTEND_SPLIT;
    call->splits = by_width < by_keys ? by_width : by_keys;
    if (call->splits < 1) call->splits = 1;
  }
}

/* The keys that row i sees by its position, its windows and the length. */
static void bound_row(cpu_block *b, int64_t i, int64_t length) {
  const cpu_attend *call = b->call;
  const cpu_attention *plan = call->plan;
  const int64_t s = (b->first_row + i) % call->S;
  const int64_t at = s + (plan->causal == BS_CAUSAL_LOWER_RIGHT ? length - call->S : 0);
  int64_t end = length;
  if (plan->causal != BS_CAUSAL_NONE && at + 1 < end) end = at + 1;
  if (plan->right > 0 && plan->right < end - at) end = at + plan->right;
  b->first[i] = plan->left > 0 && plan->left <= at ? at - plan->left + 1 : 0;
  b->end[i] = end > b->first[i] ? end : b->first[i];
  if (b->first[i] == b->end[i]) return;
  if (b->first[i] < b->from) b->from = b->first[i];
  if (b->end[i] > b->to) b->to = b->end[i];
}

/* Rows, bounds, and the scaled queries of item `item`. */
static void begin_block(const cpu_attend *call, int64_t item, uint8_t *scratch, cpu_block *b) {
  const cpu_attention *plan = call->plan;
  const int64_t wide_d = cpu_up16(plan->D), wide_e = cpu_up16(plan->E), group = item / call->blocks;
  b->call = call;
  b->batch = group / call->G;
  b->group = group % call->G;
  b->first_row = item % call->blocks * call->each;
  b->count = call->rows - b->first_row < call->each ? call->rows - b->first_row : call->each;
  b->q = (float *)(void *)scratch;
  b->s = b->q + CPU_ATTEND_ROWS * CPU_X_LD;
  b->k = b->s + CPU_ATTEND_ROWS * CPU_X_LD;
  b->v = b->k + CPU_ATTEND_KEYS * wide_d;
  b->sums = b->v + CPU_ATTEND_KEYS * wide_e;
  b->most = b->sums + CPU_ATTEND_ROWS * wide_e;
  b->total = b->most + CPU_ATTEND_ROWS;
  b->row = b->total + CPU_ATTEND_ROWS;
  b->from = INT64_MAX;
  b->to = 0;
  int64_t length = call->lengths != NULL ? call->lengths[b->batch * call->lengths_step] : call->T;
  length = length < 0 ? 0 : length > call->T ? call->T : length;
  for (int64_t i = 0; i < b->count; i++) {
    const int64_t row = b->first_row + i, head = b->group * call->repeat + row / call->S;
    float *q = b->q + i * CPU_X_LD;
    bound_row(b, i, length);
    plan->kernels->load[call->q.type](q, cpu_row_at(&call->q, b->batch, head, row % call->S), plan->D);
    for (int64_t d = 0; d < plan->D; d++) q[d] *= plan->scale;
    for (int64_t d = plan->D; d < wide_d; d++) q[d] = 0.0f;
  }
  if (b->to == 0) b->from = 0;
}

static int has_nan(const float *v, int64_t n) {
  int found = 0;
  for (int64_t i = 0; i < n; i++) found |= v[i] != v[i];
  return found;
}

static void write_block(cpu_block *b) {
  const cpu_attend *call = b->call;
  const cpu_attention *plan = call->plan;
  const int64_t wide = cpu_up16(plan->E);
  for (int64_t i = 0; i < b->count; i++) {
    const int64_t row = b->first_row + i, head = b->group * call->repeat + row / call->S;
    float *y = b->sums + i * wide, lse = -INFINITY;
    if (b->total[i] > 0.0f) {
      plan->kernels->attend_scale(y, 1.0f / b->total[i], wide); /* total: at least 1 */
      lse = b->most[i] + logf(b->total[i]);
    }
    if (b->total[i] != b->total[i] || has_nan(y, plan->E)) cpu_attend_exact(b, i, y, &lse);
    uint8_t *to = (uint8_t *)(uintptr_t)cpu_row_at(&call->y, b->batch, head, row % call->S);
    plan->kernels->store[call->y.type](to, y, plan->E);
    if (call->lse != NULL)
      call->lse[b->batch * call->lse_strides[0] + head * call->lse_strides[1] +
                row % call->S * call->lse_strides[2]] = lse;
  }
}

/* ---- the team --------------------------------------------------------------------------------- */

static float *part_at(const cpu_attend *call, int64_t index) {
  const cpu_attention *plan = call->plan;
  float *parts = (float *)(void *)(call->scratch + plan->member_bytes * plan->width);
  return parts + index * part_floats(plan);
}

/* Part `part` of a block's keys, whole tiles; what it leaves is kept for merge_parts. */
static void one_part(cpu_block *b, int64_t part, float *out) {
  const cpu_attend *call = b->call;
  const int64_t wide = cpu_up16(call->plan->E),
                tiles = (b->to - b->from + CPU_ATTEND_KEYS - 1) / CPU_ATTEND_KEYS;
  int64_t begin, end;
  cpu_share(tiles, (uint32_t)part, (uint32_t)call->splits, &begin, &end);
  const int64_t from = b->from + begin * CPU_ATTEND_KEYS, to = b->from + end * CPU_ATTEND_KEYS;
  cpu_attend_keys(b, from, to < b->to ? to : b->to);
  memcpy(out, b->sums, (size_t)(b->count * wide) * sizeof *out);
  memcpy(out + CPU_ATTEND_FEW * wide, b->most, (size_t)b->count * sizeof *out);
  memcpy(out + CPU_ATTEND_FEW * (wide + 1), b->total, (size_t)b->count * sizeof *out);
}

static void merge_parts(cpu_block *b, int64_t item) {
  const cpu_attend *call = b->call;
  const int64_t wide = cpu_up16(call->plan->E);
  memset(b->sums, 0, (size_t)(b->count * wide) * sizeof *b->sums);
  for (int64_t i = 0; i < b->count; i++) {
    b->most[i] = -INFINITY;
    b->total[i] = 0.0f;
    for (int64_t p = 0; p < call->splits; p++) {
      const float most = part_at(call, item * call->splits + p)[CPU_ATTEND_FEW * wide + i];
      if (most > b->most[i]) b->most[i] = most;
    }
    for (int64_t p = 0; p < call->splits; p++) {
      const float *part = part_at(call, item * call->splits + p);
      const float most = part[CPU_ATTEND_FEW * wide + i], total = part[CPU_ATTEND_FEW * (wide + 1) + i];
      const float by = most == b->most[i] ? 1.0f : expf(most - b->most[i]);
      b->total[i] += by * total;
      for (int64_t e = 0; e < wide; e++) b->sums[i * wide + e] += by * part[i * wide + e];
    }
  }
}

static void attend_share(void *arg, uint32_t member, uint32_t width) {
  const cpu_attend *call = arg;
  const int64_t items = call->B * call->G * call->blocks * call->splits;
  const uint32_t members = width < call->plan->width ? width : call->plan->width;
  if (member >= members) return;
  for (int64_t i = member; i < items; i += members) {
    cpu_block b;
    begin_block(call, i / call->splits, call->scratch + call->plan->member_bytes * member, &b);
    if (call->splits > 1) {
      one_part(&b, i % call->splits, part_at(call, i));
    } else {
      cpu_attend_keys(&b, b.from, b.to);
      write_block(&b);
    }
  }
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  const cpu_attention *plan = opaque;
  cpu_attend call;
  (void)nargs;
  (void)stream;
  read_call(plan, args, &call);
  if (call.rows == 0) return BS_OK;
  call.scratch = plan->exec->scratch(plan->exec->ctx);
  if (call.alone) {
    attend_share(&call, 0, 1);
    return BS_OK;
  }
  const int32_t rc = cpu_parallel(plan->exec, attend_share, &call);
  if (rc != BS_OK) return bs_fail(err, rc, "BS-CPU-TEAM", "the rank's team did not run (%d)", rc);
  for (int64_t item = 0; call.splits > 1 && item < call.B * call.G * call.blocks; item++) {
    cpu_block b;
    begin_block(&call, item, call.scratch, &b);
    merge_parts(&b, item);
    write_block(&b);
  }
  return BS_OK;
}

static void plan_free(void *plan) {
  free(plan);
}

const bs_src_loc cpu_attention_op_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl cpu_attention_op = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "attention",
    .backend = "cpu",
    .name = "online",
    .summary = "softmax(Q K^T) V by tiles of keys",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = plan_free,
};
