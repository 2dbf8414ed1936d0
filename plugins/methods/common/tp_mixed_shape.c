/* SPDX-License-Identifier: MIT
 *
 * tp_mixed_shape.c - finds which columns stay high, which become int8 or fp8, and which of both a rank owns.
 * The mask is applied to each segment separately, as if its columns were the whole layer: so every rank has
 * its share of both, at any position of the high ones in K. Also refuses what such a layer cannot do. Pure:
 * propose and build start here. */
#include "tp_mixed.h"

int tp_mixed_asked(const bs_layer_spec *spec) {
  return tp_option_get(spec, "mixed", "")[0] != '\0';
}

const char *tp_mixed_others(const tp_shape *s) {
  static const char *const words[2][3] = {
      {"f8e4m3 by row", "f8e4m3 with one scale", "f8e4m3 by blocks of 128 columns"},
      {"f8e5m2 by row", "f8e5m2 with one scale", "f8e5m2 by blocks of 128 columns"}};
  return s->mixed_dtype == BS_I8 ? "int8" : words[s->mixed_dtype == BS_F8E5M2][s->mixed_scales];
}

int64_t tp_mixed_groups(const tp_shape *s) {
  const int64_t n = s->segment[TP_LOW]->count;
  return n / s->mixed_group + (n % s->mixed_group != 0);
}

int32_t tp_mixed_check_options(const tp_traits *traits, const bs_layer_spec *spec, bs_error *err) {
  const char *dtype = tp_option_get(spec, "mixed_dtype", ""),
             *scales = tp_option_get(spec, "mixed_scales", "");
  const int asked = tp_mixed_asked(spec), given = dtype[0] != '\0' || scales[0] != '\0';
  if (given && !asked) {
    bs_fail(err, BS_CONFIG, "BS-METHOD-OPTION", "method %s: %s=%s without mixed", traits->name,
            dtype[0] != '\0' ? "mixed_dtype" : "mixed_scales", dtype[0] != '\0' ? dtype : scales);
    return bs_fail_hint(err, "mixed=S keeps S columns in the layer's dtype, 0 none; or leave the other out"),
           BS_CONFIG;
  }
  const int int8 = dtype[0] == '\0' || strcmp(dtype, "i8") == 0;
  if (!int8 || scales[0] == '\0' || strcmp(scales, "row") == 0) return BS_OK;
  bs_fail(err, BS_CONFIG, "BS-METHOD-OPTION", "method %s: mixed_scales=%s of int8, which has scales of rows",
          traits->name, scales);
  return bs_fail_hint(err, "mixed_dtype=f8e4m3 or f8e5m2, or leave mixed_scales out"), BS_CONFIG;
}

static uint32_t read_dtype(const bs_layer_spec *spec) {
  const char *text = tp_option_get(spec, "mixed_dtype", "i8");
  return strcmp(text, "i8") == 0 ? BS_I8 : strcmp(text, "f8e4m3") == 0 ? BS_F8E4M3 : BS_F8E5M2;
}

static uint32_t read_scales(const bs_layer_spec *spec) {
  const char *text = tp_option_get(spec, "mixed_scales", "row");
  return strcmp(text, "block") == 0    ? TP_SCALES_BLOCK
         : strcmp(text, "tensor") == 0 ? TP_SCALES_TENSOR
                                       : TP_SCALES_ROW;
}

static int32_t refuse(const tp_traits *traits, const char *what, const char *hint, bs_error *err) {
  bs_fail(err, BS_UNSUPPORTED, "BS-METHOD-MIXED", "method %s: a layer in two precisions (mixed) %s",
          traits->name, what);
  return bs_fail_hint(err, "%s", hint), BS_UNSUPPORTED;
}

static int is_high(uint32_t dtype) {
  return dtype == BS_F32 || dtype == BS_BF16 || dtype == BS_F16;
}

static int32_t read_count(const tp_traits *traits, const bs_layer_spec *spec, int64_t *out, bs_error *err) {
  const char *text = tp_option_get(spec, "mixed", "");
  int64_t n = 0;
  int ok = text[0] != '\0';
  for (const char *c = text; *c != '\0' && ok; c++) {
    ok = *c >= '0' && *c <= '9' && n <= spec->K;
    if (ok) n = n * 10 + (*c - '0');
  }
  *out = n;
  if (ok && n <= spec->K) return BS_OK;
  bs_fail(err, BS_CONFIG, "BS-METHOD-OPTION", "method %s: mixed cannot be '%.40s'", traits->name, text);
  return bs_fail_hint(err, "the number of columns that stay high, 0 to K = %lld", (long long)spec->K),
         BS_CONFIG;
}

static int32_t check(const tp_traits *traits, const bs_layer_spec *spec, bs_error *err) {
  const char *overlap = tp_option_get(spec, "overlap", "off");
  if (spec->flags != 0)
    return refuse(traits, "has no backward pass and takes no steps: weights of 8 bits have no gradient",
                  "train in one precision, then leave phases 2 and 3 out", err);
  if (!is_high(spec->x_dtype) || !is_high(spec->w_dtype) || !is_high(spec->y_dtype))
    return refuse(traits, "keeps f32, bf16 or f16 next to its 8 bits", "model.dtype: one of those", err);
  if (spec->accumulate == BS_ACC_F64)
    return refuse(traits, "adds its segments in f32", "leave model.accumulate out", err);
  if (traits->full_width)
    return refuse(traits, "has no zeros of other columns to multiply",
                  "blockshock splits it by the same mask, if that keeps the same columns in every row", err);
  if (tp_repro_asked(spec) >= BS_REPRO_R3)
    return refuse(traits, "rounds X by each rank's columns, so its bits depend on the ranks",
                  "repro=R2 or below", err);
  if (tp_repro_asked(spec) >= BS_REPRO_R2 && read_scales(spec) == TP_SCALES_TENSOR)
    return refuse(traits, "rounds all tokens of a call by one scale with mixed_scales=tensor",
                  "mixed_scales=row or block keeps repro=R2", err);
  if (strcmp(overlap, "off") != 0 && strcmp(overlap, "auto") != 0)
    return refuse(traits, "is not divided into chunks", "overlap=off", err);
  return BS_OK;
}

/* high[k]: column k is one of the first `count` of the order. */
static int32_t mark_high(const tp_traits *traits, const bs_layer_spec *spec, int64_t count, uint8_t *high,
                         bs_error *err) {
  const bs_mask *mask = spec->mask;
  memset(high, count == spec->K, (size_t)spec->K + 1);
  if (count == 0 || count == spec->K) return BS_OK;
  if (mask == NULL || mask->order == NULL || mask->n_order != spec->K) {
    bs_fail(err, BS_CONFIG, "BS-METHOD-MIXED", "method %s: mixed=%lld without an order of the %lld columns",
            traits->name, (long long)count, (long long)spec->K);
    return bs_fail_hint(err, "mask.order lists each column once, those that stay high first"), BS_CONFIG;
  }
  for (int64_t i = 0; i < count; i++) {
    const uint32_t k = mask->order[i];
    if (k < spec->K && !high[k]) {
      high[k] = 1;
      continue;
    }
    bs_fail(err, BS_CONFIG, "BS-MASK-ORDER", "entry %lld of the order of columns is %u, which is %s",
            (long long)i, k, k < spec->K ? "there already" : "no column");
    return bs_fail_hint(err, "the order lists each column once, the most important first"), BS_CONFIG;
  }
  return BS_OK;
}

static int64_t column(const bs_partition *p, int64_t i) {
  return p->kind == BS_PARTITION_GATHER ? (int64_t)p->columns[i] : p->begin + i;
}

/* An order of all columns as one of a segment's: places in `list`, which ascends. */
static void order_within(const bs_mask *mask, const uint32_t *list, int64_t n, uint32_t *out) {
  int64_t at = 0;
  for (int64_t i = 0; i < mask->n_order && at < n; i++) {
    int64_t low = 0, high = n - 1;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (list[middle] < mask->order[i])
        low = middle + 1;
      else
        high = middle;
    }
    if (list[low] == mask->order[i]) out[at++] = (uint32_t)low;
  }
}

/* The rank's columns of a segment whose columns are `list`. `places` has room for n of them. */
static int32_t share_segment(const tp_state *state, const bs_layer_spec *spec, tp_shape *s,
                             const uint32_t *list, int64_t n, uint32_t *places, bs_partition **out,
                             bs_error *err) {
  const bs_partition *mine = NULL;
  if (s->split == BS_SPLIT_K) {
    bs_mask mask;
    int32_t rc = state->traits->choose_mask(spec, &mask, err);
    if (rc == BS_OK && mask.kind == BS_MASK_IMPORTANCE && mask.order != NULL) {
      order_within(&mask, list, n, places);
      mask.order = places;
      mask.n_order = n;
    }
    if (rc == BS_OK) rc = state->host->partition_make(&mask, n, s->rank, s->world, &mine, err);
    if (rc != BS_OK) return rc;
  }
  const int64_t count = mine != NULL ? mine->count : n;
  bs_partition *p = tp_partition_new(state, s->K, count);
  uint32_t *to = p != NULL ? (uint32_t *)(void *)(p + 1) : NULL;
  for (int64_t i = 0; to != NULL && i < count; i++) to[i] = list[mine != NULL ? column(mine, i) : i];
  if (mine != NULL) state->host->partition_free(mine);
  if (p == NULL)
    return bs_fail(err, BS_NO_MEMORY, "BS-METHOD-MEMORY", "method %s: no memory for its columns",
                   state->traits->name);
  tp_partition_settle(p);
  *out = p;
  return BS_OK;
}

/* high: a byte a column, which becomes 1 for the columns of this rank. */
static int32_t share_both(const tp_state *state, const bs_layer_spec *spec, tp_shape *s, uint8_t *high,
                          uint32_t *list, bs_error *err) {
  uint32_t *places = list + s->K;
  int32_t rc = BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < TP_SEGMENTS; i++) {
    int64_t n = 0;
    for (int64_t k = 0; k < s->K; k++)
      if (high[k] == (i == TP_HIGH)) list[n++] = (uint32_t)k;
    rc = share_segment(state, spec, s, list, n, places, &s->segment[i], err);
  }
  if (rc != BS_OK) return rc;
  memset(high, 0, (size_t)s->K);
  for (uint32_t i = 0; i < TP_SEGMENTS; i++)
    for (int64_t j = 0; j < s->segment[i]->count; j++) high[column(s->segment[i], j)] = 1;
  s->k_own = s->segment[TP_HIGH]->count + s->segment[TP_LOW]->count;
  s->k_mul = s->k_own > 0 ? s->k_own : 1;
  if (s->split != BS_SPLIT_K) return BS_OK;
  s->x_cols = spec->x_placement == BS_SPLIT ? s->k_own : s->K;
  return tp_own_columns(state, s, high, err);
}

int32_t tp_mixed_shape_make(const tp_state *state, const bs_layer_spec *spec, tp_shape *s, bs_error *err) {
  const bs_host *host = state->host;
  int64_t count = 0;
  int32_t rc = check(state->traits, spec, err);
  if (rc == BS_OK) rc = read_count(state->traits, spec, &count, err);
  if (rc != BS_OK) return rc;
  uint8_t *high = host->alloc(host->ctx, (uint64_t)s->K + 1, 16);
  uint32_t *list = host->alloc(host->ctx, 2 * ((uint64_t)s->K + 1) * sizeof *list, 16);
  if (high == NULL || list == NULL)
    rc = bs_fail(err, BS_NO_MEMORY, "BS-METHOD-MEMORY", "method %s: no memory for its columns",
                 state->traits->name);
  if (rc == BS_OK && high != NULL) rc = mark_high(state->traits, spec, count, high, err);
  s->mixed = 1;
  s->mixed_high = count;
  s->mixed_dtype = read_dtype(spec);
  s->mixed_scales = read_scales(spec);
  if (rc == BS_OK && high != NULL && list != NULL) rc = share_both(state, spec, s, high, list, err);
  if (rc == BS_OK) {
    const int64_t low = s->segment[TP_LOW]->count;
    s->mixed_group = s->mixed_scales == TP_SCALES_BLOCK ? TP_MIXED_BLOCK : low > 0 ? low : 1;
  }
  if (rc == BS_OK && s->mixed_dtype == BS_I8 && s->segment[TP_LOW]->count > TP_MIXED_MOST)
    rc = refuse(state->traits, "has more int8 columns than sums of 32 bits have room for",
                "more ranks: 131072 columns each", err);
  if (high != NULL) host->free(host->ctx, high);
  if (list != NULL) host->free(host->ctx, list);
  if (rc != BS_OK) tp_shape_free(state, s);
  return rc;
}

void tp_mixed_propose(const tp_shape *s, bs_proposal *p) {
  const uint64_t rows = (uint64_t)s->row_count, B = (uint64_t)s->B;
  const uint64_t low = (uint64_t)s->segment[TP_LOW]->count, high = (uint64_t)s->k_mul - low;
  p->weight_bytes = rows * (high * BS_DTYPE_BYTES(s->w_dtype) + low);
  if (rows == 0) return;
  p->workspace_bytes += B * (high + low) * BS_DTYPE_BYTES(s->x_dtype); /* of columns that are copied */
  if (low == 0) return;
  const uint64_t groups = (uint64_t)tp_mixed_groups(s);
  p->weight_bytes += rows * groups * sizeof(float);
  p->workspace_bytes += B * (low + groups * sizeof(float));
  if (s->mixed_dtype == BS_I8) p->workspace_bytes += B * rows * sizeof(int32_t);
  if (s->x_dtype != BS_F32) p->workspace_bytes += B * low * sizeof(float);
  if (high > 0) p->workspace_bytes += B * rows * sizeof(float);
}
