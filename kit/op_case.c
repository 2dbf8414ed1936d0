/* SPDX-License-Identifier: MIT
 * op_case.c - a query of a core op with generated data, asked and run as the host would: the schema's rules
 * (docs/ops.md) hold by construction. */
#include <stdio.h>

#include "kit/graph.h"

static const char *const known[] = {
    "matmul",          "matmul_dx",     "matmul_dw",       "matmul_update",  "matmul24",
    "matmul24_dx",     "matmul24_dw",   "matmul24_update", "expand24",       "gather_columns",
    "scatter_columns", "convert",       "activate",        "tree_sum",       "sgd_update",
    "adamw_update",    "activate_dx",   "quantize_groups", "dequantize_sum", "dequantize_product",
    "scaled_matmul",   "loss_gradient", "matmul_q",        "take_q"};
_Static_assert(sizeof known / sizeof known[0] + KIT_GRAPH_OPS == BS_CORE_OPS,
               "the last op of BS_NAMES_OP has no case here, or none in kit/graph.c");

int kit_op_known(const char *op) {
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
    if (strcmp(known[i], op) == 0) return 1;
  return kit_graph_find(op) != NULL;
}

int kit_op_is(const char *op, const char *what) {
  if (strncmp(op, "matmul24", 8) != 0) return strcmp(op, what) == 0;
  return strncmp(what, "matmul", 6) == 0 && strcmp(op + 8, what + 6) == 0;
}

int64_t kit_column(const kit_data *d, int64_t i) {
  if (d->part == NULL) return i;
  return d->part->kind == BS_PARTITION_GATHER ? (int64_t)d->part->columns[i] : d->part->begin + i;
}

static int is(const kit_data *d, const char *op) {
  return kit_op_is(d->op, op);
}

static int expands(const kit_data *d) {
  return strcmp(d->op, "expand24") == 0;
}

static int has_groups(const kit_data *d) {
  return strncmp(d->op, "matmul24", 8) == 0 || expands(d) || d->shape.of24;
}

int kit_place(const kit_data *d, int64_t n, int64_t j, int64_t *out_k) {
  const unsigned char group = d->groups[n * (d->length / 2) + j / 2];
  int64_t k = 0;
  for (int64_t seen = 0; k < 4; k++) {
    if ((group >> k & 1) == 0) continue;
    if (seen++ == j % 2) break;
  }
  *out_k = j / 2 * 4 + k;
  return *out_k < d->kept;
}

/* ---- data ----------------------------------------------------------------------------------- */

int64_t kit_blocks(const kit_data *d) {
  return d->shape.N > 0 ? INT64_C(1) << d->shape.seed % 4 : 1;
}

/* Every second query names another order than that of the blocks: the second is the first, and so on. */
int64_t kit_block(const kit_data *d, int64_t place) {
  return d->shape.seed / 4 % 2 ? (place + 1) % kit_blocks(d) : place;
}

static void add_pattern(kit_data *d, int64_t begin, int64_t span) {
  static const uint32_t bits[] = {3, 5, 9, 12}, periods[] = {4, 4, 4, 1, 2, 3, 5, 8, 16};
  const uint64_t seed = d->shape.seed;
  bs_partition *p = &d->partition;
  p->begin = begin;
  p->span = span;
  p->period = periods[seed / 4 % (sizeof periods / sizeof periods[0])];
  p->pattern_bits = seed / 4 % 2 == 0 ? bits[seed % 4] : (uint32_t)(seed >> 32 | 1u);
  p->pattern_bits &= (1u << p->period) - 1;
  if (p->pattern_bits == 0) p->pattern_bits = 1;
  for (int64_t k = begin; k < begin + span; k++)
    if (p->pattern_bits >> (k % p->period) & 1u) d->columns[p->count++] = (uint32_t)k;
}

static void make_partition(kit_data *d, uint64_t *seed) {
  const int64_t K = d->shape.K;
  bs_partition *p = &d->partition;
  d->kept = K;
  if (d->shape.part == KIT_ALL) return;
  *p = (bs_partition){.struct_size = sizeof *p, .kind = BS_PARTITION_GATHER, .total = K};
  d->columns = calloc((size_t)K + 1, sizeof *d->columns);
  kit_assert(d->columns != NULL, "no memory");
  p->columns = d->columns;
  if (d->shape.part == KIT_RUN) {
    p->kind = BS_PARTITION_CONTIGUOUS;
    p->begin = K / 3;
    p->count = p->span = K - K / 3 - K / 4;
    p->columns = NULL;
  } else if (d->shape.part == KIT_PATTERN) {
    add_pattern(d, K / 5, K - K / 5 - K / 7);
  } else {
    for (int64_t k = 0; k < K && p->count < (K + 1) / 2; k++)
      if (kit_below(seed, K - k) < (K + 1) / 2 - p->count) d->columns[p->count++] = (uint32_t)k;
  }
  d->part = p;
  d->kept = p->count;
}

/* A run of whole groups of four, or one that goes to the end. */
static void make_run24(kit_data *d) {
  const int64_t K = d->shape.K;
  bs_partition *p = &d->partition;
  d->kept = K;
  if (d->shape.part == KIT_ALL || expands(d)) return;
  *p = (bs_partition){.struct_size = sizeof *p, .kind = BS_PARTITION_CONTIGUOUS, .total = K};
  p->begin = K / 12 * 4;
  p->count = p->span = d->shape.seed % 2 == 0 ? K - p->begin : (K - p->begin) / 8 * 4;
  d->part = p;
  d->kept = p->count;
}

static int32_t read_groups(void *ctx, int64_t row, int64_t nrows, int64_t group, int64_t ngroups,
                           uint8_t *out, int64_t out_stride, bs_error *err) {
  const kit_data *d = ctx;
  const int64_t all = d->length / 2;
  if (row < 0 || nrows < 0 || row > d->positions.rows - nrows || group < 0 || ngroups < 0 ||
      group > all - ngroups)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-KIT-ROWS",
                        "rows %lld+%lld, groups %lld+%lld are asked for", (long long)row, (long long)nrows,
                        (long long)group, (long long)ngroups);
  for (int64_t r = 0; r < nrows; r++)
    memcpy(out + r * out_stride, d->groups + (row + r) * all + group, (size_t)ngroups);
  return BS_OK;
}

/* Drawn for each group, or, as a transposable mask has them, two patterns and their complements a block of
 * four rows; of every other query the complement. */
static void make_groups(kit_data *d, uint64_t *seed) {
  static const unsigned char two[6] = {3, 5, 6, 9, 10, 12};
  const int64_t rows = expands(d) ? d->shape.B : d->shape.N, groups = (d->kept + 3) / 4;
  const uint32_t turns = rows % 4 == 0 && d->shape.seed % 3 == 0, other = d->shape.seed / 3 % 2;
  d->length = 2 * groups;
  d->groups = calloc((size_t)(rows * groups) + 1, 1);
  kit_assert(d->groups != NULL, "no memory");
  for (int64_t n = 0; n < rows; n++)
    for (int64_t g = 0; g < groups; g++) {
      unsigned char *at = &d->groups[n * groups + g];
      *at = two[kit_below(seed, 6)];
      if (turns && n % 2 == 1) *at = d->groups[(n - 1) * groups + g] ^ 15u;
    }
  for (int64_t i = 0; other && i < rows * groups; i++) d->groups[i] ^= 15u;
  d->positions = (bs_kept){.struct_size = sizeof d->positions,
                           .transposable = turns,
                           .rows = rows,
                           .cols = d->kept,
                           .ctx = d,
                           .read = read_groups};
}

static void arg(kit_data *d, uint32_t i, uint32_t dtype, uint32_t rank, int64_t rows, int64_t cols) {
  if (dtype != 0) kit_tensor_make(&d->a[i], dtype, rank, rows, cols, d->shape.spread);
  d->nargs = i + 1;
}

static void make_args(kit_data *d) {
  const kit_shape *s = &d->shape;
  const int64_t x_cols = s->x_full ? s->K : d->kept;
  if (is(d, "matmul")) {
    arg(d, 0, s->x, 2, s->B, x_cols);
    arg(d, 1, s->bias, 1, 1, s->N);
    arg(d, 2, s->residual, 2, s->B, s->N);
    arg(d, 3, s->y, 2, s->B, s->N);
  } else if (is(d, "matmul_dx")) {
    arg(d, 0, s->y, 2, s->B, s->N);
    arg(d, 1, s->x, 2, s->B, x_cols);
  } else if (is(d, "matmul_dw")) {
    arg(d, 0, s->x, 2, s->B, x_cols);
    arg(d, 1, s->y, 2, s->B, s->N);
    arg(d, 2, s->w, 2, s->N, d->length);
  } else if (is(d, "matmul_update")) {
    arg(d, 0, s->x, 2, s->B, x_cols);
    arg(d, 1, s->y, 2, s->B, s->N);
    arg(d, 2, BS_F32, 1, 1, 1);
  } else if (expands(d)) {
    arg(d, 0, s->x, 2, s->B, d->length);
    arg(d, 1, s->x, 2, s->B, s->K);
  } else if (kit_is_step(d->op)) {
    kit_step_args(d);
  } else if (kit_is_quant(d->op)) {
    kit_quant_args(d);
  } else if (kit_is_loss(d->op)) {
    kit_loss_args(d);
  } else if (is(d, "activate_dx")) {
    arg(d, 0, s->x, 2, s->B, s->N);
    arg(d, 1, s->w, 2, s->B, s->N);
    arg(d, 2, s->y, 2, s->B, s->N);
  } else if (is(d, "gather_columns")) {
    arg(d, 0, s->x, 2, s->B, s->K);
    arg(d, 1, s->x, 2, s->B, d->kept);
  } else if (is(d, "scatter_columns")) {
    arg(d, 0, s->x, 2, s->B, d->kept);
    arg(d, 1, s->x, 2, s->B, s->K);
  } else {
    arg(d, 0, s->x, 2, s->B, is(d, "tree_sum") ? s->N * kit_blocks(d) : s->N);
    arg(d, 1, s->y, 2, s->B, s->N);
  }
  d->out = kit_changes_weight(d->op) ? -1 : (int32_t)d->nargs - 1;
  d->second = -1;
  if (strcmp(d->op, "quantize_groups") == 0 || kit_is_loss(d->op)) d->second = d->out--;
}

static int needs_weight(const kit_data *d) {
  return is(d, "matmul") || is(d, "matmul_dx") || kit_changes_weight(d->op);
}

static void make_queries(kit_data *d) {
  const kit_shape *s = &d->shape;
  for (uint32_t i = 0; i < d->nargs; i++) d->descs[i] = d->a[i].block != NULL ? &d->a[i].d : NULL;
  d->query = (bs_op_query){.struct_size = sizeof d->query,
                           .nargs = d->nargs,
                           .op = d->op,
                           .args = d->descs,
                           .partition = d->part,
                           .accumulate = s->accumulate,
                           .activation = s->activation,
                           .flags = s->flags | (s->x_full ? BS_QUERY_X_FULL : 0u),
                           .weight_dtype = needs_weight(d) ? s->w : 0,
                           .kept = d->groups != NULL && !kit_is_step(d->op) ? &d->positions : NULL};
  for (int64_t i = 0; is(d, "tree_sum") && i < kit_blocks(d); i++) d->query.attrs[i] = kit_block(d, i);
  d->query.attrs[0] = kit_is_quant(d->op) ? kit_quant_group(d) : d->query.attrs[0];
  if (strcmp(d->op, "dequantize_sum") == 0 || strcmp(d->op, "quantize_groups") == 0)
    d->query.attrs[1] = kit_quant_terms(d);
  if (kit_is_loss(d->op)) d->query.attrs[0] = kit_loss_kind(d);
  if (kit_is_loss(d->op)) d->query.attrs[1] = kit_loss_count(d);
  d->pack_query = d->query;
  if (is(d, "matmul")) return;
  /* The query by which a layer of that weight dtype would pack it. */
  d->pack_x = bs_desc_2d(s->w, s->B, s->x_full ? s->K : d->kept);
  d->pack_y = bs_desc_2d(bs_dtype_is_float(s->w) ? s->w : BS_I32, s->B, s->N);
  d->pack_descs[0] = &d->pack_x;
  d->pack_descs[3] = &d->pack_y;
  d->pack_query.op = d->groups != NULL ? "matmul24" : "matmul";
  d->pack_query.kept = d->groups != NULL ? &d->positions : NULL;
  d->pack_query.nargs = 4;
  d->pack_query.args = d->pack_descs;
  d->pack_query.flags |= BS_QUERY_TRAIN;
}

/* Positions do not come from values: some kept ones are zeros, of both signs. */
static void put_zeros(kit_data *d) {
  for (int64_t n = 0; n < d->shape.N; n++)
    for (int64_t k = n % 3; k < d->shape.K; k += 5) kit_set(&d->w, n, k, k % 2 == 0 ? 0.0 : -0.0);
}

/* Bytes of any value; of every second query wide integers so large that sums leave 32 bits, with so few
 * digits that doubles hold them. Of convert and activate numbers beyond the ends of narrow dtypes. */
static void fill_wide(kit_data *d, kit_tensor *m, uint64_t *seed) {
  const int product = strncmp(d->op, "matmul", 6) == 0, narrow = strcmp(d->op, "convert") == 0;
  const int plain = kit_is_quant(d->op) || kit_is_loss(d->op) || d->shape.seed % 2 == 0;
  const uint32_t dtype = m->t.dtype;
  const int64_t n = kit_elements(m);
  double factor = 1.0;
  if (m->block == NULL || plain) return;
  if (dtype == BS_I8 || dtype == BS_U8) {
    for (int64_t i = 0; i < n; i++)
      kit_set_at(m, i, (double)(kit_below(seed, 256) - (dtype == BS_I8 ? 128 : 0)));
    return;
  }
  if (dtype == BS_I32 || dtype == BS_I64) factor = product ? 0x1p15 : dtype == BS_I32 ? 0x1p28 : 0x1p40;
  if (bs_dtype_is_float(dtype) && narrow) factor = 1000.0;
  for (int64_t i = 0; factor > 1.0 && i < n; i++) kit_set_at(m, i, factor * kit_get_at(m, i));
}

void kit_data_make(kit_data *d, const char *op, const kit_shape *shape) {
  uint64_t seed = shape->seed;
  memset(d, 0, sizeof *d);
  d->op = op;
  d->shape = *shape;
  if (kit_graph_find(op) != NULL) {
    kit_graph_make(d, &seed);
    return;
  }
  if (kit_is_q(op)) {
    kit_q_make(d, &seed);
    return;
  }
  kit_step_fit(op, &d->shape);
  kit_quant_fit(op, &d->shape);
  kit_loss_fit(op, &d->shape);
  if (has_groups(d)) {
    make_run24(d);
    make_groups(d, &seed);
  } else {
    make_partition(d, &seed);
    d->length = d->kept;
  }
  make_args(d);
  if (needs_weight(d)) kit_tensor_make(&d->w, d->shape.w, 2, shape->N, shape->K, 0);
  for (uint32_t i = 0; i < d->nargs; i++)
    if (d->a[i].block != NULL && (int32_t)i != d->out) {
      kit_fill(&d->a[i], &seed);
      fill_wide(d, &d->a[i], &seed);
    }
  if (kit_is_quant(op)) kit_quant_fill(d, &seed);
  if (d->w.block != NULL) {
    kit_fill(&d->w, &seed);
    fill_wide(d, &d->w, &seed);
  }
  if (has_groups(d) && d->w.block != NULL) put_zeros(d);
  if (is(d, "matmul_update")) kit_set(&d->a[2], 0, 0, -0.3);
  make_queries(d);
}

void kit_data_free(kit_actor *a, kit_data *d) {
  for (uint32_t i = 0; i < KIT_ARGS; i++) kit_tensor_free(a, &d->a[i]);
  kit_tensor_free(a, &d->w);
  kit_q_free(d);
  free(d->columns);
  free(d->groups);
  free(d->after);
  free(d->program);
  memset(d, 0, sizeof *d);
}

const char *kit_data_text(const kit_data *d) {
  static const char *const parts[] = {"all", "a run", "a pattern",
                                      "a list"}; /* of 2:4 weights always a run */
  static char text[400];
  const kit_shape *s = &d->shape;
  if (kit_graph_find(d->op) != NULL) return kit_graph_text(d);
  if (d->q != NULL) return kit_q_text(d);
  snprintf(text, sizeof text,
           "%s B=%lld N=%lld K=%lld x=%s w=%s y=%s%s%s%s%s columns=%s%s%s act=%u acc=%u strides=%u%s%s",
           d->op, (long long)s->B, (long long)s->N, (long long)s->K, bs_dtype_name(s->x), bs_dtype_name(s->w),
           bs_dtype_name(s->y), s->bias != 0 ? " bias=" : "", s->bias != 0 ? bs_dtype_name(s->bias) : "",
           s->residual != 0 ? " residual=" : "", s->residual != 0 ? bs_dtype_name(s->residual) : "",
           parts[s->part], s->x_full ? " (X full)" : "",
           d->groups == NULL           ? ""
           : d->positions.transposable ? " kept 2:4 both ways"
                                       : " kept 2:4",
           s->activation, s->accumulate, s->spread & ~(uint32_t)KIT_SHIFTED,
           s->spread & KIT_SHIFTED ? " (data one element behind a cache line)" : "", d->note);
  return text;
}

/* ---- asking and running --------------------------------------------------------------------- */

static int32_t ask(const bs_op_impl *impl, void *state, const bs_op_query *q, bs_op_answer *out) {
  memset(out, 0, sizeof *out);
  out->struct_size = (uint32_t)sizeof *out;
  return impl->supports(state, q, out);
}

const bs_op_impl *kit_packer(const kit_actor *a, const kit_data *d, void **out_state) {
  *out_state = d->shape.of24 ? a->packer24_state : a->packer_state;
  return d->shape.of24 ? a->packer24 : a->packer;
}

void kit_data_ask(const kit_actor *a, const kit_data *d, bs_op_answer *out) {
  bs_op_answer packer = {.level = BS_LEVEL_NO};
  void *state = NULL;
  const bs_op_impl *with = kit_packer(a, d, &state);
  kit_assert(ask(a->impl, a->state, &d->query, out) == BS_OK, "%s: supports fails", kit_data_text(d));
  if (out->level == BS_LEVEL_NO || (!d->shape.of24 && (with == NULL || with == a->impl))) return;
  if (with != NULL)
    kit_assert(ask(with, state, &d->pack_query, &packer) == BS_OK, "%s: supports of its matmul fails",
               kit_data_text(d));
  if (packer.level == BS_LEVEL_NO) out->level = BS_LEVEL_UNKNOWN; /* no host would pack such a weight */
}

void kit_poison_outputs(kit_data *d, int byte) {
  for (uint32_t i = 0; i < d->nargs; i++)
    if ((d->outs >> i & 1u) != 0 && d->a[i].block != NULL) kit_poison(&d->a[i], byte);
  if (d->outs != 0) return;
  if (d->out >= 0) kit_poison(&d->a[d->out], byte);
  if (d->second >= 0) kit_poison(&d->a[d->second], byte);
}

int32_t kit_data_run_plan(kit_actor *a, kit_data *d, void *plan, bs_error *err) {
  bs_tensor *args[KIT_ARGS];
  for (uint32_t i = 0; i < d->nargs; i++) {
    kit_push(a, &d->a[i]);
    args[i] = d->a[i].block != NULL ? &d->a[i].t : NULL;
  }
  kit_fence_run(d);
  int32_t rc = a->impl->run(plan, args, d->nargs, NULL, err);
  kit_fence_run(NULL);
  if (rc == BS_OK && a->backend->stream_sync != NULL) rc = a->backend->stream_sync(a->device, NULL, err);
  for (uint32_t i = 0; i < d->nargs; i++) kit_pull(a, &d->a[i]);
  return rc;
}

int32_t kit_data_run(kit_actor *a, kit_data *d, const char **stage, bs_error *err) {
  void *packed = NULL, *plan = NULL, *state = NULL;
  uint64_t bytes = 0;
  int32_t rc = BS_OK;
  const bs_op_impl *packer = kit_packer(a, d, &state);
  const bs_source source = needs_weight(d) ? kit_weight_source(d) : (bs_source){0};
  const int packs = needs_weight(d) || d->q != NULL;
  if (kit_is_step(d->op)) kit_step_reset(d);
  *stage = "pack";
  if (packs && packer == NULL)
    return bs_error_set(err, BS_UNSUPPORTED, "BS-KIT-PACKER", "the plugin has no matmul24 for %s@%s/%s",
                        a->impl->op, a->impl->backend, a->impl->name);
  if (packs)
    rc = packer->pack(state, &a->exec, &d->pack_query, d->q == NULL ? &source : NULL, &packed, &bytes, err);
  if (rc == BS_OK) {
    *stage = "prepare";
    rc = a->impl->prepare(a->state, &a->exec, &d->query, packed, &plan, err);
  }
  if (rc == BS_OK) {
    kit_echo_check(a, d, plan);
    *stage = "run";
    rc = kit_data_run_plan(a, d, plan, err);
  }
  if (rc == BS_OK && d->out < 0 && d->shape.N * d->length > 0) { /* the update's output is the weight */
    *stage = "packed_read";
    if (d->after == NULL) d->after = calloc((size_t)(d->shape.N * d->length) + 1, sizeof *d->after);
    kit_assert(d->after != NULL, "no memory");
    rc = kit_packed_values(a, packed, d, d->after, err);
  }
  if (plan != NULL) a->impl->plan_free(plan);
  if (packed != NULL) packer->packed_free(packed);
  return rc;
}
