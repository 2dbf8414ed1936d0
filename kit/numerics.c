/* SPDX-License-Identifier: MIT
 * numerics.c - group numerics: outputs of every op that the kit knows against the fp64 oracle, twice, over
 * two kinds of rubbish in the output; NaN, infinities and subnormals; the packed weight read back; the
 * device's memory. */
#include <math.h>

#include "kit/graph.h"

/* Copies the elements of an output, one after another. kept_only: only the columns of the partition. */
static size_t put_bits(const kit_data *d, const kit_tensor *out, int kept_only, unsigned char *to) {
  const int64_t rows = out->t.dims[0], cols = kept_only ? d->kept : out->t.dims[1];
  const uint64_t size = BS_DTYPE_BYTES(out->t.dtype);
  for (int64_t r = 0; r < rows; r++)
    for (int64_t i = 0; i < cols; i++) {
      const int64_t at = r * out->t.strides[0] + (kept_only ? kit_column(d, i) : i) * out->t.strides[1];
      memcpy(to + (uint64_t)(r * cols + i) * size, out->block + out->lead + (uint64_t)at * size, size);
    }
  return (size_t)(rows * cols) * size;
}

/* The bits of all outputs of an op of graphs. */
static unsigned char *graph_bits(const kit_data *d, size_t *out_bytes) {
  size_t bytes = 0;
  for (uint32_t i = 0; i < d->nargs; i++) bytes += (d->outs >> i & 1u) != 0 ? d->a[i].block_bytes : 0;
  unsigned char *bits = calloc(bytes + 1, 1);
  kit_assert(bits != NULL, "no memory");
  *out_bytes = 0;
  for (uint32_t i = 0; i < d->nargs; i++) {
    const size_t size = BS_DTYPE_BYTES(d->a[i].t.dtype);
    const int64_t n = (d->outs >> i & 1u) != 0 && d->a[i].block != NULL ? kit_elements(&d->a[i]) : 0;
    for (int64_t e = 0; e < n; e++, *out_bytes += size)
      memcpy(bits + *out_bytes, kit_place_at(&d->a[i], e), size);
  }
  return bits;
}

unsigned char *kit_data_bits(const kit_data *d, size_t *out_bytes) {
  if (d->outs != 0) return graph_bits(d, out_bytes);
  const kit_tensor *out = d->out >= 0 ? &d->a[d->out] : NULL;
  const kit_tensor *second = d->second >= 0 ? &d->a[d->second] : NULL;
  const int beside = strcmp(d->op, "scatter_columns") == 0 ||
                     (kit_op_is(d->op, "matmul_dx") && d->shape.x_full); /* the other columns stay */
  const size_t after = (size_t)(d->shape.N * d->length) * sizeof *d->after;
  size_t room = out != NULL ? out->block_bytes : after;
  if (second != NULL) room += second->block_bytes;
  unsigned char *bits = calloc(room + 1, 1);
  kit_assert(bits != NULL, "no memory");
  if (out == NULL && after > 0) memcpy(bits, d->after, after);
  *out_bytes = out != NULL ? put_bits(d, out, beside, bits) : after;
  if (second != NULL) *out_bytes += put_bits(d, second, 0, bits + *out_bytes);
  return bits;
}

static int32_t run_to_judge(kit_actor *a, kit_data *d, int poison, const bs_op_answer *answer) {
  bs_error err = BS_ERROR_INIT;
  const char *stage = "";
  kit_poison_outputs(d, poison);
  const int32_t rc = kit_data_run(a, d, &stage, &err);
  kit_assert(rc == BS_OK || (rc == BS_UNSUPPORTED && answer->level == BS_LEVEL_UNKNOWN),
             "%s: %s fails: %s: %s", kit_data_text(d), stage, err.id, err.message);
  return rc;
}

/* Runs and judges one query twice, every argument at one end of its memory and at the other. 0: UNKNOWN, and
 * it was refused. The oracle is not asked again about the bits that it has judged; those of a step's states
 * are not kept. */
static int judge_twice(kit_actor *a, kit_data *d, const bs_op_answer *answer, int special) {
  uint32_t tolerance = answer->tolerance;
  size_t bytes;
  if (answer->level == BS_LEVEL_UNKNOWN && tolerance == 0)
    tolerance = kit_wide(d) ? BS_TOL_ACC_F64 : BS_TOL_ACC_F32;
  if (run_to_judge(a, d, 0xA5, answer) != BS_OK) return 0;
  kit_data_judge(d, tolerance, special);
  unsigned char *first = kit_data_bits(d, &bytes);
  for (uint32_t i = 0; i < d->nargs; i++) kit_tensor_turn(&d->a[i]);
  kit_assert(run_to_judge(a, d, 0xFF, answer) == BS_OK, "%s: runs once and is refused then",
             kit_data_text(d));
  kit_data_judge_beside(d);
  unsigned char *second = kit_data_bits(d, &bytes);
  if (memcmp(first, second, bytes) != 0 || kit_is_step(d->op)) kit_data_judge(d, tolerance, special);
  if ((d->query.flags & BS_QUERY_DETERMINISTIC) != 0)
    kit_assert(memcmp(first, second, bytes) == 0,
               "%s: a second run gives other bits, BS_QUERY_DETERMINISTIC asks for the same",
               kit_data_text(d));
  free(first);
  free(second);
  return 1;
}

/* Is the query one of those that the options choose? */
static int is_chosen(const kit_shape *s) {
  const uint32_t dtype = kit.options->dtype;
  return dtype == 0 || s->x == dtype || s->w == dtype || s->y == dtype;
}

/* UNKNOWN is settled by running: what then runs must be right. */
static int may_run(const kit_actor *a, const kit_data *d, bs_op_answer *answer) {
  kit_data_ask(a, d, answer);
  return answer->level != BS_LEVEL_NO;
}

void kit_num_values(const kit_case *c) {
  static kit_actor a;
  kit_shape s;
  uint32_t ran = 0;
  bs_op_answer answer = {0};
  if (!kit_actor_open(&a, c->thing, 1)) return;
  if (!kit_op_known(a.impl->op)) {
    kit_unsupported("op %s is the plugin's own: the kit has no oracle of it", a.impl->op);
    return;
  }
  for (uint32_t i = 0; kit_grid(a.impl->op, i, (int)c->arg, &s); i++) {
    kit_data d;
    if (!is_chosen(&s)) continue;
    kit_data_make(&d, a.impl->op, &s);
    a.exec.width = 1 + i % 3;
    if (may_run(&a, &d, &answer)) ran += (uint32_t)judge_twice(&a, &d, &answer, 0);
    kit_data_free(&a, &d);
  }
  kit_actor_close(&a);
  if (ran == 0)
    kit_unsupported("none of the generated queries is served: %s",
                    answer.text[0] != '\0' ? answer.text : "the op has none of these dtypes");
}

/* One plain query of some dtype has to be served. */
void kit_num_least(const kit_case *c) {
  static const uint32_t dtypes[] = {BS_F32,    BS_BF16, BS_F16, BS_F64, BS_F8E4M3,
                                    BS_F8E5M2, BS_I32,  BS_I64, BS_I8};
  static kit_actor a;
  uint32_t ran = 0;
  bs_op_answer answer = {0};
  if (!kit_actor_open(&a, c->thing, 1)) return;
  if (!kit_op_known(a.impl->op)) {
    kit_unsupported("op %s is the plugin's own: the kit has no oracle of it", a.impl->op);
    return;
  }
  const uint32_t kinds = kit_graph_kinds(a.impl->op);
  for (size_t i = 0; i < kinds * sizeof dtypes / sizeof dtypes[0]; i++) {
    const uint32_t dtype = dtypes[i / kinds], index = (uint32_t)(i % kinds);
    kit_shape s = {.x = dtype, .w = dtype, .y = dtype, .B = 4, .N = 8, .K = 16, .seed = 11 + index};
    s.index = index;
    s.plain = 1;
    if (kinds > 1) s.spread = KIT_DENSE;
    kit_data d;
    if (kinds > 1 && !kit_graph_fit(a.impl->op, !bs_dtype_is_float(dtype))) continue;
    if (kit_op_is(a.impl->op, "matmul_dw") && bs_dtype_is_float(dtype)) s.w = BS_F32;
    if (kit_changes_weight(a.impl->op) && !bs_dtype_is_float(dtype)) continue;
    if (dtype == BS_I8 && !kit_op_is(a.impl->op, "matmul")) continue;
    if (dtype == BS_I8) s.y = BS_I32; /* products of bytes have wider sums */
    if (strstr(a.impl->op, "_columns") != NULL) s.part = KIT_PATTERN;
    kit_data_make(&d, a.impl->op, &s);
    if (may_run(&a, &d, &answer)) ran += (uint32_t)judge_twice(&a, &d, &answer, 0);
    kit_data_free(&a, &d);
  }
  kit_actor_close(&a);
  if (ran == 0) kit_unsupported("a plain query of 4 x 8 x 16 is served in no dtype: %s", answer.text);
}

/* ---- special values ------------------------------------------------------------------------- */

enum {
  GRAPH_QUERIES = 48
}; /* of an op of graphs: all steps of map, all kinds of the others; of a quantised
    * weight: all forms */

static const uint32_t special_dtypes[] = {BS_F32, BS_BF16, BS_F16, BS_F64};

static int has_activation(const char *op) {
  return kit_op_is(op, "matmul") || strcmp(op, "activate") == 0 || strcmp(op, "tree_sum") == 0 ||
         kit_has_base(op);
}

/* Values of these are drawn with the query. */
static int is_numbered(const char *op) {
  return kit_graph_find(op) != NULL || kit_is_q(op);
}

static void plain(kit_data *d, const char *op, uint32_t dtype, uint32_t activation, uint32_t values) {
  kit_shape s = {.x = dtype, .w = dtype, .y = dtype, .B = 6, .N = 9, .K = 21, .seed = 77};
  if (is_numbered(op)) { /* several queries of each, numbered like those of the grid */
    if (kit_is_q(op)) s.K = 101;
    s.values = values;
    s.index = activation;
    s.seed += activation;
    kit_data_make(d, op, &s);
    return;
  }
  if (kit_op_is(op, "matmul_dw")) s.w = dtype == BS_F64 ? BS_F64 : BS_F32;
  if (strstr(op, "_columns") != NULL) s.part = KIT_PATTERN;
  if (has_activation(op)) s.activation = activation;
  if (kit_has_base(op)) s.residual = dtype;
  kit_data_make(d, op, &s);
}

static void put_special(kit_data *d) {
  if (is_numbered(d->op)) return; /* they were made so */
  kit_tensor *in = kit_is_quant(d->op) ? kit_quant_floats(d) : &d->a[0];
  kit_set(in, 1, 2, (double)NAN);
  kit_set(in, 2, 3, (double)INFINITY);
  kit_set(in, 3, 4, -(double)INFINITY);
  kit_set(in, 4, 1, (double)INFINITY);
  kit_set(in, 4, 5, -(double)INFINITY);
  if (d->w.block == NULL || d->out < 0) return;
  kit_set(&d->w, 7, 3, 0.0); /* 0 x Inf */
  kit_set(&d->w, 8, 6, (double)INFINITY);
}

/* NaN and infinities where the oracle has them, and nowhere else. */
void kit_num_special(const kit_case *c) {
  static kit_actor a;
  uint32_t ran = 0;
  if (!kit_actor_open(&a, c->thing, 2)) return;
  const char *op = a.impl->op;
  const uint32_t last = is_numbered(op) ? GRAPH_QUERIES : has_activation(op) ? BS_ACT_GELU_TANH : 0;
  for (size_t i = 0; kit_op_known(op) && i < sizeof special_dtypes / sizeof special_dtypes[0]; i++)
    for (uint32_t activation = BS_ACT_NONE; activation <= last; activation++) {
      kit_data d;
      bs_op_answer answer;
      plain(&d, op, special_dtypes[i], activation, KIT_SPECIAL);
      put_special(&d);
      if (may_run(&a, &d, &answer)) ran += (uint32_t)judge_twice(&a, &d, &answer, 1);
      kit_data_free(&a, &d);
    }
  kit_actor_close(&a);
  if (ran == 0) kit_unsupported("no float dtype with infinities is served");
}

/* Sums of subnormals are not flushed to zero. */
void kit_num_small(const kit_case *c) {
  static const uint32_t dtypes[] = {BS_F32, BS_F64};
  static kit_actor a;
  uint32_t ran = 0;
  if (!kit_actor_open(&a, c->thing, 1)) return;
  const char *op = a.impl->op;
  const kit_graph_op *graph = kit_graph_find(op);
  const uint32_t queries = !is_numbered(op) ? 1 : graph == NULL || graph->rounds ? GRAPH_QUERIES : 0;
  for (size_t i = 0; kit_op_known(op) && i < 2 * queries; i++) {
    kit_data d;
    bs_op_answer answer;
    plain(&d, op, dtypes[i % 2], (uint32_t)(i / 2), KIT_SMALL);
    const double unit = dtypes[i % 2] == BS_F32 ? 0x1p-140 : 0x1p-1060;
    kit_tensor *in = kit_is_quant(op) ? kit_quant_floats(&d) : &d.a[0];
    for (int64_t r = 0; !is_numbered(op) && r < in->t.dims[0]; r++)
      for (int64_t k = 0; k < in->t.dims[1]; k++) kit_set(in, r, k, unit * (double)(1 + (r + k) % 3));
    if (may_run(&a, &d, &answer)) ran += (uint32_t)judge_twice(&a, &d, &answer, 0);
    kit_data_free(&a, &d);
  }
  kit_actor_close(&a);
  if (ran == 0) kit_unsupported("neither f32 nor f64 is served");
}

/* ---- the packed weight ---------------------------------------------------------------------- */

static void check_packed(kit_actor *a, kit_data *d) {
  const kit_shape *s = &d->shape;
  const bs_source dense = kit_weight_source(d), *source = d->q == NULL ? &dense : NULL;
  bs_error err = BS_ERROR_INIT;
  void *packed = NULL;
  uint64_t bytes = 0;
  double *values = calloc((size_t)(s->N * d->length) + 1, sizeof *values);
  kit_assert(values != NULL, "no memory");
  kit_assert(a->impl->pack(a->state, &a->exec, &d->query, source, &packed, &bytes, &err) == BS_OK,
             "%s: pack fails: %s: %s", kit_data_text(d), err.id, err.message);
  kit_assert(bytes >= kit_packed_least(d),
             "%s: pack tells %llu bytes of device memory, the weight alone has more", kit_data_text(d),
             (unsigned long long)bytes);
  kit_assert(kit_packed_values(a, packed, d, values, &err) == BS_OK, "%s: packed_read fails: %s: %s",
             kit_data_text(d), err.id, err.message);
  for (int64_t n = 0; n < s->N; n++)
    for (int64_t i = 0; i < d->length; i++) {
      const double want = kit_packed_value(d, n, i), got = values[n * d->length + i];
      const int plain = d->groups == NULL && d->q == NULL;
      kit_assert(got == want && (plain || !bs_dtype_is_float(s->w) || signbit(got) == signbit(want)),
                 "%s: weight [%lld,%lld] reads back as %.9g, it was packed as %.9g", kit_data_text(d),
                 (long long)n, (long long)i, got, want);
    }
  a->impl->packed_free(packed);
  free(values);
}

void kit_num_packed(const kit_case *c) {
  static kit_actor a;
  kit_shape s;
  uint32_t ran = 0;
  if (!kit_actor_open(&a, c->thing, 1)) return;
  const int has = a.impl->pack != NULL && a.impl->packed_read != NULL && kit_op_known(a.impl->op);
  for (int family = 0; has && family < 2; family++)
    for (uint32_t i = 0; kit_grid(a.impl->op, i, family, &s) && !s.edge; i++) {
      kit_data d;
      bs_op_answer answer;
      kit_data_make(&d, a.impl->op, &s);
      kit_data_ask(&a, &d, &answer);
      if (s.N * d.kept > 0 && (answer.level == BS_LEVEL_NATIVE || answer.level == BS_LEVEL_EMULATED)) {
        check_packed(&a, &d);
        ran++;
      }
      kit_data_free(&a, &d);
    }
  kit_actor_close(&a);
  if (ran == 0) kit_unsupported("packs no weights, or has no packed_read");
}
