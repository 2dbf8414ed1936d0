/* SPDX-License-Identifier: MIT
 * attention.c - Y = softmax(scale Q K^T) V in f32, one query after the other, with causal masks and windows;
 * without mask tensor, kv_len and softcap. One member of the team does it all. Faults of a plan's report
 * (registers, build) are made in echo, those of numbers where the numbers are computed. */
#include <math.h>

#include "bad_attention.h"

enum { Q, K, V, MASK, LENGTHS, DESCALE, Y, LSE, ARGS };
enum { TILE = 16, GREED = 8 << 20 };

static const bs_knob keys_knob = {.struct_size = (uint32_t)sizeof(bs_knob),
                                  .name = "keys",
                                  .values = "16,32,64",
                                  .standard = "16",
                                  .summary = "keys of a tile"};
static const bs_knob *const knobs[] = {&keys_knob};

typedef struct bad_plan {
  const bs_host *host;
  const bs_exec *exec;
  int64_t attrs[3];
  float scale;
  uint32_t fault;
  int64_t tile;     /* keys */
  uint64_t scratch; /* bytes */
  uint64_t runs;
  void *greed;
} bad_plan;

/* One run. k, v: of the head at hand, [T,D] and [T,E] in f32. */
typedef struct bad_job {
  bad_plan *plan;
  bs_tensor *const *args;
  int64_t B, H, G, S, T, D, E;
  float *k, *v, *q, *y, *scores;
} bad_job;

static uint64_t scratch_floats(const bs_tensor_desc *const *args) {
  const uint64_t T = (uint64_t)args[K]->dims[2], D = (uint64_t)args[K]->dims[3],
                 E = (uint64_t)args[V]->dims[3];
  return T * (D + E + 1) + D + E;
}

static int32_t no(bs_op_answer *answer, uint32_t reason, const char *why) {
  answer->level = BS_LEVEL_NO;
  answer->reason = reason;
  snprintf(answer->text, sizeof answer->text, "%s", why);
  return BS_OK;
}

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *answer) {
  (void)state;
  if (q->args[MASK] != NULL || q->args[LENGTHS] != NULL || q->numbers[1] != 0.0 || q->attrs[3] != 0)
    return no(answer, BS_REASON_NOT_BUILT, "no mask tensor, no kv_len, no softcap, no zeros for NaN");
  for (uint32_t i = 0; i < ARGS; i++) {
    const bs_tensor_desc *d = q->args[i];
    if (d == NULL || i == DESCALE || i == LSE) continue;
    if (d->dtype == BS_F64) return no(answer, BS_REASON_DTYPE, "no f64");
    if (d->strides[3] != 1) return no(answer, BS_REASON_LAYOUT, "the last dimension is dense");
  }
  answer->level = BS_LEVEL_NATIVE;
  answer->reason = BS_REASON_NONE;
  answer->score = 100;
  answer->tolerance = BS_TOL_ACC_F32;
  answer->workspace = scratch_floats(q->args) * sizeof(float);
  snprintf(answer->algo, sizeof answer->algo, "plain loops");
  return BS_OK;
}

static void plan_free(void *opaque) {
  bad_plan *plan = opaque;
  if (plan == NULL) return;
  if (plan->greed != NULL) plan->exec->free(plan->exec->ctx, plan->greed);
  plan->host->free(plan->host->ctx, plan);
}

static int32_t fill(bad_plan *plan, const bs_op_query *q, bs_error *err) {
  for (int i = 0; i < 3; i++) plan->attrs[i] = q->attrs[i];
  plan->scale = (float)q->numbers[0];
  plan->tile = plan->fault == BAD_LOST_KNOB ? TILE : bs_knob_int(q->knobs, "keys", TILE);
  plan->scratch = scratch_floats(q->args) * sizeof(float);
  if (plan->fault == BAD_REFUSED)
    return bs_fail(err, BS_UNSUPPORTED, "BS-BAD-REFUSED", "refused, as plugins.bad_attention.fault says");
  if (plan->fault == BAD_GREEDY && (plan->greed = plan->exec->alloc(plan->exec->ctx, GREED)) == NULL)
    return bs_fail(err, BS_NO_MEMORY, "BS-BAD-MEMORY", "no memory for %d bytes", (int)GREED);
  return plan->exec->reserve(plan->exec->ctx, plan->scratch);
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  const bad_plugin *plugin = state;
  bs_op_answer answer = {.struct_size = (uint32_t)sizeof answer};
  (void)packed;
  (void)supports(state, query, &answer);
  if (answer.level == BS_LEVEL_NO)
    return bs_fail(err, BS_UNSUPPORTED, "BS-BAD-QUERY", "attention@bad_attention: %s", answer.text);
  bad_plan *plan = plugin->host->alloc(plugin->host->ctx, sizeof *plan, 64);
  if (plan == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-BAD-MEMORY", "no memory for a plan");
  plan->host = plugin->host;
  plan->exec = exec;
  int32_t rc = bad_fault_of(plugin, &plan->fault, err);
  if (rc == BS_OK) rc = fill(plan, query, err);
  if (rc != BS_OK) {
    plan_free(plan);
    return rc;
  }
  *out_plan = plan;
  return BS_OK;
}

static int32_t echo(const void *opaque, bs_op_echo *out_echo) {
  const bad_plan *plan = opaque;
  bs_op_echo mine;
  bs_echo_begin(&mine);
  bs_echo_int(&mine, "keys", plan->tile);
  snprintf(mine.build, sizeof mine.build, "bad_attention %s%s", BS_PLUGIN_VERSION,
           plan->fault == BAD_REBUILT ? " built anew" : "");
  if (plan->fault == BAD_SPILLED || plan->fault == BAD_MANY_REGISTERS || plan->fault == BAD_MUCH_SHARED) {
    mine.registers = plan->fault == BAD_MANY_REGISTERS ? 255 : 96;
    mine.shared_bytes = plan->fault == BAD_MUCH_SHARED ? 1 << 20 : 32 << 10;
    mine.spill_bytes = plan->fault == BAD_SPILLED ? 128 : 0;
  }
  bs_out_copy(out_echo, &mine, sizeof mine);
  return BS_OK;
}

static char *element(const bs_tensor *t, int64_t b, int64_t h, int64_t row) {
  static const uint8_t bytes[] = {
      [BS_F32] = 4, [BS_F16] = 2, [BS_BF16] = 2, [BS_F8E4M3] = 1, [BS_F8E5M2] = 1};
  return (char *)t->data + (b * t->strides[0] + h * t->strides[1] + row * t->strides[2]) * bytes[t->dtype];
}

/* n rows of an argument as f32, its factor of fp8 included. */
static void load(const bad_job *job, uint32_t arg, int64_t b, int64_t h, int64_t first, int64_t n,
                 int64_t width, float *out) {
  const bs_tensor *t = job->args[arg], *descale = job->args[DESCALE];
  for (int64_t i = 0; i < n; i++)
    (void)job->plan->host->convert(BS_F32, out + i * width, t->dtype, element(t, b, h, first + i),
                                   (uint64_t)width);
  if (descale != NULL) {
    const float factor = ((const float *)descale->data)[(int64_t)(arg - Q) * descale->strides[0]];
    for (int64_t i = 0; i < n * width; i++) out[i] *= factor;
  }
  if (job->plan->fault == BAD_HALF_LSB) bad_encode(out, n * width);
}

/* Keys first <= t < end of a query. */
static void keys_of(const bad_job *job, int64_t s, int64_t *out_first, int64_t *out_end) {
  const int64_t *attrs = job->plan->attrs;
  const int64_t position = s + (attrs[0] == BS_CAUSAL_LOWER_RIGHT ? job->T - job->S : 0);
  int64_t first = 0, end = job->T;
  if (attrs[1] > 0 && position - attrs[1] + 1 > 0) first = position - attrs[1] + 1;
  if (attrs[0] != BS_CAUSAL_NONE && position + 1 < end) end = position + 1;
  if (attrs[2] > 0 && attrs[2] < end - position) end = position + attrs[2];
  if (job->plan->fault == BAD_LAST_TILE && end == job->T && end > job->plan->tile) end -= job->plan->tile;
  *out_first = first;
  *out_end = end;
}

static float dot(const float *a, const float *b, int64_t n) {
  float part[4] = {0, 0, 0, 0};
  int64_t i = 0;
  for (; i + 4 <= n; i += 4)
    for (int j = 0; j < 4; j++) part[j] += a[i + j] * b[i + j];
  for (; i < n; i++) part[0] += a[i] * b[i];
  return (part[0] + part[1]) + (part[2] + part[3]);
}

/* Scores of a query, tile by tile, and the largest one; NaN wins. */
static float score(const bad_job *job, int64_t first, int64_t end) {
  float most = -INFINITY;
  for (int64_t t0 = first; t0 < end; t0 += job->plan->tile) {
    const int64_t t1 = t0 + job->plan->tile < end ? t0 + job->plan->tile : end;
    for (int64_t t = t0; t < t1; t++) {
      job->scores[t] = dot(job->q, job->k + t * job->D, job->D) * job->plan->scale;
      if (job->scores[t] > most || isnan(job->scores[t])) most = isnan(most) ? most : job->scores[t];
    }
  }
  return most;
}

static void one_query(const bad_job *job, int64_t b, int64_t h, int64_t s) {
  const bs_tensor *y = job->args[Y], *lse = job->args[LSE];
  int64_t first, end;
  keys_of(job, s, &first, &end);
  load(job, Q, b, h, s, 1, job->D, job->q);
  const float most = score(job, first, end);
  float total = 0.0f;
  memset(job->y, 0, (size_t)job->E * sizeof *job->y);
  for (int64_t t = first; t < end; t++) {
    if (job->scores[t] == -INFINITY) continue;
    const float p = bad_exp(job->plan->fault, job->scores[t] - most);
    total += p;
    for (int64_t e = 0; e < job->E; e++) job->y[e] += p * job->v[t * job->E + e];
  }
  for (int64_t e = 0; e < job->E; e++)
    job->y[e] = most != -INFINITY && job->plan->fault != BAD_ZERO ? job->y[e] / total : 0.0f;
  (void)job->plan->host->convert(y->dtype, element(y, b, h, s), BS_F32, job->y, (uint64_t)job->E);
  if (lse != NULL)
    ((float *)lse->data)[b * lse->strides[0] + h * lse->strides[1] + s * lse->strides[2]] =
        most != -INFINITY ? most + logf(total) : -INFINITY;
}

static void one_head(const bad_job *job, int64_t b, int64_t h) {
  const int64_t group = h / (job->H / job->G), from = job->plan->fault == BAD_BATCH ? 0 : b;
  load(job, K, from, group, 0, job->T, job->D, job->k);
  load(job, V, from, group, 0, job->T, job->E, job->v);
  for (int64_t s = 0; s < job->S; s++) one_query(job, b, h, s);
}

/* Applies the faults that change only the last output. */
static void touch_last(const bad_job *job) {
  const bs_tensor *y = job->args[Y];
  const float nan = NAN;
  float value = 0.0f;
  if (job->B * job->H * job->S * job->E == 0) return;
  char *last = element(y, job->B - 1, job->H - 1, job->S - 1);
  if (job->plan->fault == BAD_NAN) (void)job->plan->host->convert(y->dtype, last, BS_F32, &nan, 1);
  if (job->plan->fault == BAD_ONE_OUTPUT) {
    (void)job->plan->host->convert(BS_F32, &value, y->dtype, last, 1);
    value += 3.5e-6f;
    (void)job->plan->host->convert(y->dtype, last, BS_F32, &value, 1);
  }
  if (job->plan->fault == BAD_UNSTEADY && job->plan->runs++ % 2 == 1) *last ^= 1;
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  bad_plan *plan = opaque;
  (void)nargs, (void)stream;
  bad_job job = {.plan = plan,
                 .args = args,
                 .B = args[Q]->dims[0],
                 .H = args[Q]->dims[1],
                 .G = args[K]->dims[1],
                 .S = args[Q]->dims[2],
                 .T = args[K]->dims[2],
                 .D = args[Q]->dims[3],
                 .E = args[V]->dims[3]};
  float *scratch = plan->exec->scratch(plan->exec->ctx);
  if (scratch == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-BAD-MEMORY", "no scratch");
  job.k = scratch;
  job.v = job.k + job.T * job.D;
  job.q = job.v + job.T * job.E;
  job.y = job.q + job.D;
  job.scores = job.y + job.E;
  for (int64_t b = 0; b < job.B; b++)
    for (int64_t h = 0; h < job.H; h++) one_head(&job, b, h);
  touch_last(&job);
  return BS_OK;
}

void bad_attention_table(bs_op_impl *impl) {
  *impl = (bs_op_impl){.struct_size = (uint32_t)sizeof *impl,
                       .op = "attention",
                       .backend = "bad_attention",
                       .name = "naive",
                       .summary = "right, or wrong as plugins.bad_attention.fault says",
                       .supports = supports,
                       .prepare = prepare,
                       .run = run,
                       .plan_free = plan_free,
                       .n_knobs = 1,
                       .knobs = knobs,
                       .echo = echo};
}
