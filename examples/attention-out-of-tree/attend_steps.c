/* SPDX-License-Identifier: MIT
 *
 * attend_steps.c - an out-of-tree kernel: attention of f32 for the backend cpu, in three steps from three
 * plain loops to tiles. The knob `step` chooses the step, `rows` and `keys` the tile, so that one binary is
 * measured against itself (share/doc/blockshock/kernel-lab.md). It needs only the installed headers.
 *
 *   naive  one query at a time: all its scores, their powers, then the sum over V, number by number
 *   rows   the same loops, but the innermost one runs along memory, and e^x is a polynomial
 *   tiles  `rows` queries take `keys` keys at a time; sums are scaled when a larger score comes (online
 * softmax)
 */
#include <blockshock/plugin.h>
#include <float.h>
#include <math.h>

enum { Q, K, V, MASK, LENGTHS, DESCALE, Y, LSE, ARGS };
enum { NAIVE, ROWS, TILES };
enum { LANES = 16, PART = 64, MAX_WIDTH = 256 };
typedef float lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(4)));

typedef struct plan {
  const bs_exec *exec;
  float scale;
  int causal, step;
  int64_t rows, keys, T, D, E;
  int64_t member_floats;
  float *scratch; /* member_floats for each member of the team */
} plan;

typedef struct call {
  const plan *p;
  const bs_tensor *q, *k, *v, *y;
  int64_t H, S, T, repeat; /* repeat: heads that share one K and V */
} call;

/* ---- knobs ------------------------------------------------------------------------------------ */

static const bs_knob step_knob = {sizeof(bs_knob), 0, "step", "naive,rows,tiles", "naive", "how it is done"};
static const bs_knob rows_knob = {sizeof(bs_knob), 0, "rows", "4:64*2", "4", "tiles: queries of a tile"};
static const bs_knob keys_knob = {sizeof(bs_knob), 0, "keys", "16:512*2", "16", "tiles: keys of a tile"};
static const bs_knob *const knobs[] = {&step_knob, &rows_knob, &keys_knob};

static const char *const step_names[] = {"naive", "rows", "tiles"};

static int step_of(const char *settings) {
  char word[16];
  if (!bs_knob_find(settings, "step", word, sizeof word)) return NAIVE;
  for (int i = NAIVE; i <= TILES; i++)
    if (strcmp(word, step_names[i]) == 0) return i;
  return NAIVE;
}

static int32_t echo(const void *opaque, bs_op_echo *out_echo) {
  const plan *p = opaque;
  bs_op_echo mine;
  bs_echo_begin(&mine);
  bs_echo_word(&mine, "step", step_names[p->step]);
  bs_echo_int(&mine, "rows", p->rows);
  bs_echo_int(&mine, "keys", p->keys);
  bs_out_copy(out_echo, &mine, sizeof mine);
  return BS_OK;
}

/* ---- what is served --------------------------------------------------------------------------- */

static int32_t no(bs_op_answer *answer, uint32_t reason, const char *why) {
  answer->level = BS_LEVEL_NO;
  answer->reason = reason;
  snprintf(answer->text, sizeof answer->text, "%s", why);
  return BS_OK;
}

static int64_t up(int64_t n) {
  return (n + LANES - 1) / LANES * LANES;
}

/* Floats of scratch that a member of the team needs. */
static int64_t scratch_of(int step, int64_t rows, int64_t keys, int64_t T, int64_t D, int64_t E) {
  return step == TILES ? keys * (D + up(E)) + rows * (keys + up(E) + D + 2) : up(T);
}

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *answer) {
  (void)state;
  for (uint32_t i = 0; i < ARGS; i++) {
    const bs_tensor_desc *d = q->args[i];
    if (i == MASK || i == LENGTHS || i == DESCALE || i == LSE) {
      if (d != NULL) return no(answer, BS_REASON_LAYOUT, "takes no mask, lengths or factors, writes no LSE");
      continue;
    }
    if (d->dtype != BS_F32) return no(answer, BS_REASON_DTYPE, "f32 only");
    const int64_t *s = d->strides;
    if (d->dims[3] > 1 && s[3] != 1 && (s[0] | s[1] | s[2] | s[3]) != 0)
      return no(answer, BS_REASON_LAYOUT, "numbers of a row must be adjacent");
    if (d->dims[3] < 1 || d->dims[3] > MAX_WIDTH)
      return no(answer, BS_REASON_SHAPE, "rows of 1 to 256 numbers");
  }
  if (q->attrs[0] == BS_CAUSAL_LOWER_RIGHT || q->attrs[1] != 0 || q->attrs[2] != 0 || q->attrs[3] != 0 ||
      q->numbers[1] != 0.0)
    return no(answer, BS_REASON_DISABLED,
              "no window, no softcap, no zeros for NaN, causal from the upper left");
  if (q->accumulate == BS_ACC_F64) return no(answer, BS_REASON_DTYPE, "sums in f32");
  answer->level = BS_LEVEL_NATIVE;
  answer->score = 1; /* chosen only by name, or by the tuner */
  answer->tolerance = BS_TOL_ACC_F32;
  answer->workspace =
      sizeof(float) * (uint64_t)scratch_of(step_of(q->knobs), bs_knob_int(q->knobs, "rows", 4),
                                           bs_knob_int(q->knobs, "keys", 16), q->args[K]->dims[2],
                                           q->args[Q]->dims[3], q->args[V]->dims[3]);
  snprintf(answer->algo, sizeof answer->algo, "steps");
  snprintf(answer->text, sizeof answer->text, "naive, rows or tiles");
  return BS_OK;
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  bs_op_answer answer;
  (void)packed;
  memset(&answer, 0, sizeof answer);
  supports(state, q, &answer);
  if (answer.level == BS_LEVEL_NO) return bs_fail(err, BS_UNSUPPORTED, "BS-STEPS-SHAPE", "%s", answer.text);
  plan *p = exec->alloc(exec->ctx, sizeof *p);
  if (p == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-STEPS-MEMORY", "no memory for a plan");
  memset(p, 0, sizeof *p);
  p->exec = exec;
  p->scale = (float)q->numbers[0];
  p->causal = q->attrs[0] == BS_CAUSAL_UPPER_LEFT;
  p->step = step_of(q->knobs);
  p->rows = bs_knob_int(q->knobs, "rows", 4);
  p->keys = bs_knob_int(q->knobs, "keys", 16);
  p->T = q->args[K]->dims[2];
  p->D = q->args[Q]->dims[3];
  p->E = q->args[V]->dims[3];
  p->member_floats = scratch_of(p->step, p->rows, p->keys, p->T, p->D, p->E);
  const uint64_t bytes = (uint64_t)p->member_floats * exec->width * sizeof(float);
  p->scratch = exec->alloc(exec->ctx, bytes > 0 ? bytes : 1);
  if (p->scratch == NULL) {
    exec->free(exec->ctx, p);
    return bs_fail(err, BS_NO_MEMORY, "BS-STEPS-MEMORY", "no memory for %llu bytes of scratch",
                   (unsigned long long)bytes);
  }
  *out_plan = p;
  return BS_OK;
}

/* ---- the steps -------------------------------------------------------------------------------- */

static float *row_of(const bs_tensor *t, int64_t batch, int64_t head, int64_t row) {
  const int64_t *n = t->dims, *s = t->strides;
  return (float *)t->data + (n[0] == 1 ? 0 : batch * s[0]) + (n[1] == 1 ? 0 : head * s[1]) +
         (n[2] == 1 ? 0 : row * s[2]);
}

static int64_t seen(const call *c, int64_t s) {
  return c->p->causal && s + 1 < c->T ? s + 1 : c->T;
}

/* e^x within 4 ulp for x <= 0; 0 below -87. 2^n e^r with |r| <= ln 2 / 2. NaN stays NaN. */
static inline float power(float x) {
  const float in = x < -87.0f ? -87.0f : x;
  const float t = in * 1.44269504f + 0x1.8p23f, n = t - 0x1.8p23f;
  const float r = in - n * 0.693145752f - n * 1.42860677e-06f;
  const float p =
      1.0f +
      r * (1.0f + r * (0.5f + r * (0.16666653f + r * (0.0416667f + r * (0.00836164f + r * 0.00139304f)))));
  uint32_t bits, shift;
  memcpy(&bits, &p, sizeof bits);
  memcpy(&shift, &t, sizeof shift);
  bits += shift << 23;
  float y;
  memcpy(&y, &bits, sizeof y);
  return x < -87.0f ? 0.0f : in != in ? in : y;
}

/* The sum of n numbers, PART at a time: one chain of additions over all of them would lose what the gate of
 * the numbers asks for. */
static float sum_of(const float *v, int64_t n) {
  float sum = 0.0f;
  for (int64_t t = 0; t < n;) {
    const int64_t end = t + PART < n ? t + PART : n;
    float part = 0.0f;
    for (; t < end; t++) part += v[t];
    sum += part;
  }
  return sum;
}

static void naive(const call *c, int64_t batch, int64_t head, int64_t s, float *score) {
  const plan *p = c->p;
  const int64_t n = seen(c, s), group = head / c->repeat;
  const float *q = row_of(c->q, batch, head, s);
  float *y = row_of(c->y, batch, head, s), most = -INFINITY;
  for (int64_t t = 0; t < n; t++) {
    const float *k = row_of(c->k, batch, group, t);
    float sum = 0.0f;
    for (int64_t d = 0; d < p->D; d++) sum += q[d] * k[d];
    score[t] = sum * p->scale;
    if (score[t] > most) most = score[t];
  }
  for (int64_t t = 0; t < n; t++) score[t] = expf(score[t] - most);
  const float total = sum_of(score, n);
  for (int64_t e = 0; e < p->E; e++) {
    float sum = 0.0f;
    for (int64_t t = 0; t < n;) {
      const int64_t end = t + PART < n ? t + PART : n;
      float part = 0.0f;
      for (; t < end; t++) part += score[t] * row_of(c->v, batch, group, t)[e];
      sum += part;
    }
    y[e] = n > 0 ? sum / total : 0.0f;
  }
}

static float dot(const float *a, const float *b, int64_t n) {
  lanes sum = {0};
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES) sum += *(const lanes *)(a + i) * *(const lanes *)(b + i);
  float all = 0.0f;
  for (int j = 0; j < LANES; j++) all += sum[j];
  for (; i < n; i++) all += a[i] * b[i];
  return all;
}

static void one_row(const call *c, int64_t batch, int64_t head, int64_t s, float *score) {
  const plan *p = c->p;
  const int64_t n = seen(c, s), group = head / c->repeat;
  const float *q = row_of(c->q, batch, head, s);
  float *y = row_of(c->y, batch, head, s), part[MAX_WIDTH], most = -INFINITY;
  for (int64_t t = 0; t < n; t++) {
    score[t] = p->scale * dot(q, row_of(c->k, batch, group, t), p->D);
    if (score[t] > most) most = score[t];
  }
  for (int64_t t = 0; t < n; t++) score[t] = power(score[t] - most);
  const float total = sum_of(score, n);
  for (int64_t e = 0; e < p->E; e++) y[e] = 0.0f;
  for (int64_t t = 0; t < n;) {
    const int64_t end = t + PART < n ? t + PART : n;
    for (int64_t e = 0; e < p->E; e++) part[e] = 0.0f;
    for (; t < end; t++) {
      const float *v = row_of(c->v, batch, group, t), w = score[t] / total;
      for (int64_t e = 0; e < p->E; e++) part[e] += w * v[e];
    }
    for (int64_t e = 0; e < p->E; e++) y[e] += part[e];
  }
}

/* A tile and what is known of its queries so far. */
typedef struct tile {
  int64_t first, count, from, keys; /* queries and keys; `keys` is a multiple of LANES, the rest is 0 */
  float *k, *v;                     /* [D][keys], [keys][E] */
  float *q, *s, *sums;              /* [rows][D], [rows][keys], [rows][E] */
  float *most, *total;              /* [rows] */
} tile;

static void load_keys(const call *c, int64_t batch, int64_t group, int64_t from, tile *t) {
  const plan *p = c->p;
  const int64_t wide = up(p->E), n = c->T - from < p->keys ? c->T - from : p->keys;
  t->from = from;
  t->keys = p->keys;
  for (int64_t j = 0; j < p->keys; j++) {
    const float *k = j < n ? row_of(c->k, batch, group, from + j) : NULL;
    const float *v = j < n ? row_of(c->v, batch, group, from + j) : NULL;
    for (int64_t d = 0; d < p->D; d++) t->k[d * p->keys + j] = k != NULL ? k[d] : 0.0f;
    for (int64_t e = 0; e < wide; e++) t->v[j * wide + e] = v != NULL && e < p->E ? v[e] : 0.0f;
  }
}

/* to[i][j] += sum over n of a[i][x] b[x][j], for four rows i and LANES columns j. */
static void four_rows(float *to, int64_t ld_to, const float *a, int64_t ld_a, const float *b, int64_t ld_b,
                      int64_t n) {
  lanes s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
  for (int64_t x = 0; x < n; x++) {
    const lanes line = *(const lanes *)(b + x * ld_b);
    s0 += a[x] * line;
    s1 += a[ld_a + x] * line;
    s2 += a[2 * ld_a + x] * line;
    s3 += a[3 * ld_a + x] * line;
  }
  *(lanes *)to += s0;
  *(lanes *)(to + ld_to) += s1;
  *(lanes *)(to + 2 * ld_to) += s2;
  *(lanes *)(to + 3 * ld_to) += s3;
}

static void soften(const call *c, tile *t) {
  const int64_t wide = up(c->p->E);
  for (int64_t i = 0; i < t->count; i++) {
    float *s = t->s + i * t->keys, most = t->most[i], total = 0.0f;
    const int64_t end = seen(c, t->first + i) - t->from, n = end < 0 ? 0 : end < t->keys ? end : t->keys;
    for (int64_t j = 0; j < n; j++) most = s[j] > most ? s[j] : most;
    const float by = most == -INFINITY ? 0.0f : most, old = power(t->most[i] - by);
    for (int64_t j = 0; j < t->keys; j++) s[j] = j < n ? power(s[j] - by) : 0.0f;
    total = sum_of(s, n);
    for (int64_t e = 0; e < wide; e++) t->sums[i * wide + e] *= old;
    t->total[i] = t->total[i] * old + total;
    t->most[i] = most;
  }
}

static void one_tile(const call *c, tile *t) {
  const plan *p = c->p;
  const int64_t wide = up(p->E);
  memset(t->s, 0, (size_t)(p->rows * p->keys) * sizeof *t->s);
  for (int64_t i = 0; i < t->count; i += 4)
    for (int64_t j = 0; j < t->keys; j += LANES)
      four_rows(t->s + i * t->keys + j, t->keys, t->q + i * p->D, p->D, t->k + j, t->keys, p->D);
  soften(c, t);
  for (int64_t i = 0; i < t->count; i += 4)
    for (int64_t e = 0; e < wide; e += LANES)
      four_rows(t->sums + i * wide + e, wide, t->s + i * t->keys, t->keys, t->v + e, wide, t->keys);
}

static void tiles(const call *c, int64_t batch, int64_t head, int64_t first, float *scratch) {
  const plan *p = c->p;
  const int64_t wide = up(p->E);
  tile t = {.first = first, .count = c->S - first < p->rows ? c->S - first : p->rows, .k = scratch};
  t.v = t.k + p->keys * p->D;
  t.q = t.v + p->keys * wide;
  t.s = t.q + p->rows * p->D;
  t.sums = t.s + p->rows * p->keys;
  t.most = t.sums + p->rows * wide;
  t.total = t.most + p->rows;
  memset(t.q, 0, (size_t)(p->rows * p->D) * sizeof *t.q);
  memset(t.sums, 0, (size_t)(p->rows * wide) * sizeof *t.sums);
  for (int64_t i = 0; i < t.count; i++) {
    const float *q = row_of(c->q, batch, head, first + i);
    for (int64_t d = 0; d < p->D; d++) t.q[i * p->D + d] = q[d] * p->scale;
    t.most[i] = -INFINITY;
    t.total[i] = 0.0f;
  }
  for (int64_t from = 0; from < seen(c, first + t.count - 1); from += p->keys) {
    load_keys(c, batch, head / c->repeat, from, &t);
    one_tile(c, &t);
  }
  for (int64_t i = 0; i < t.count; i++) {
    float *y = row_of(c->y, batch, head, first + i);
    for (int64_t e = 0; e < p->E; e++) y[e] = t.total[i] == 0.0f ? 0.0f : t.sums[i * wide + e] / t.total[i];
  }
}

/* ---- the call --------------------------------------------------------------------------------- */

static void share(void *arg, uint32_t member, uint32_t width) {
  const call *c = arg;
  const plan *p = c->p;
  float *scratch = p->scratch + p->member_floats * member;
  const int64_t step = p->step == TILES ? p->rows : 1, blocks = (c->S + step - 1) / step;
  for (int64_t item = member; item < c->q->dims[0] * c->H * blocks; item += width) {
    const int64_t s = item % blocks * step, head = item / blocks % c->H, batch = item / blocks / c->H;
    if (p->step == NAIVE) naive(c, batch, head, s, scratch);
    if (p->step == ROWS) one_row(c, batch, head, s, scratch);
    if (p->step == TILES) tiles(c, batch, head, s, scratch);
  }
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  const plan *p = opaque;
  (void)nargs;
  (void)stream;
  (void)err;
  call c = {.p = p, .q = args[Q], .k = args[K], .v = args[V], .y = args[Y]};
  c.H = c.q->dims[1];
  c.S = c.q->dims[2];
  c.T = c.k->dims[2];
  if (c.q->dims[0] == 0 || c.H == 0 || c.S == 0) return BS_OK;
  c.repeat = c.H / c.k->dims[1];
  return p->exec->parallel_for(p->exec->ctx, share, &c);
}

static void plan_free(void *opaque) {
  plan *p = opaque;
  p->exec->free(p->exec->ctx, p->scratch);
  p->exec->free(p->exec->ctx, p);
}

/* ---- the plugin ------------------------------------------------------------------------------- */

static int32_t activate(const bs_host *host, bs_plugin_self *self, void **out_state, bs_error *err) {
  static const bs_op_impl impl = {
      .struct_size = (uint32_t)sizeof(bs_op_impl),
      .op = "attention",
      .backend = "cpu",
      .name = "steps",
      .summary = "attention in three steps, from plain loops to tiles",
      .supports = supports,
      .prepare = prepare,
      .run = run,
      .plan_free = plan_free,
      .n_knobs = sizeof knobs / sizeof knobs[0],
      .knobs = knobs,
      .echo = echo,
  };
  BS_HERE_LOC(at);
  *out_state = NULL;
  return host->register_thing(host->ctx, self, BS_KIND_OP, &impl, NULL, &at, err);
}

BS_PLUGIN_DEFINE("attend_steps", "1.0.0", "attention of f32 in three steps", 1u << BS_KIND_OP,
                 "op:attention@cpu\n", activate, NULL)
