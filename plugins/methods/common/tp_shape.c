/* SPDX-License-Identifier: MIT
 *
 * tp_shape.c - what a spec means for one rank: sizes, dtypes, who owns which part of W, how x reaches the
 * product and which collective ends it; and the refusals. Pure: propose and build both start here.
 */
#include "tp_kept.h"
#include "tp_mixed.h"
#include "tp_tree.h"

void tp_share(int64_t total, uint32_t rank, uint32_t world, int64_t *out_begin, int64_t *out_count) {
  const int64_t base = total / (int64_t)world, extra = total % (int64_t)world, r = (int64_t)rank;
  *out_begin = r * base + (r < extra ? r : extra);
  *out_count = base + (r < extra ? 1 : 0);
}

const char *tp_option_get(const bs_layer_spec *spec, const char *key, const char *fallback) {
  for (uint32_t i = 0; i < spec->n_options; i++)
    if (strcmp(spec->option_keys[i], key) == 0) return spec->option_values[i];
  return fallback;
}

int32_t tp_mask_or_complement(const bs_layer_spec *spec, bs_mask *out_mask, bs_error *err) {
  (void)err;
  if (spec->mask != NULL) {
    *out_mask = *spec->mask;
    return BS_OK;
  }
  memset(out_mask, 0, sizeof *out_mask);
  out_mask->struct_size = (uint32_t)sizeof *out_mask;
  out_mask->kind = BS_MASK_COMPLEMENT;
  out_mask->pattern_len = 4;
  out_mask->pattern_a = 0x3u; /* 1100 */
  out_mask->pattern_b = 0xCu; /* 0011 */
  out_mask->name = "complement_1100_0011";
  return BS_OK;
}

/* 1 when `value` is one of "a,b,c". */
static int one_of(const char *values, const char *value) {
  const size_t length = strlen(value);
  for (const char *v = values; v != NULL && length > 0;) {
    const size_t n = strcspn(v, ",");
    if (n == length && strncmp(v, value, n) == 0) return 1;
    v = v[n] == ',' ? v + n + 1 : NULL;
  }
  return 0;
}

static int32_t hint_options(const tp_traits *traits, bs_error *err) {
  char list[160] = "";
  size_t used = 0;
  for (uint32_t i = 0; i < traits->n_options + tp_common_count && used < sizeof list; i++) {
    const tp_option *o =
        i < traits->n_options ? &traits->options[i] : &tp_common_options[i - traits->n_options];
    const int n = snprintf(list + used, sizeof list - used, "%s%s", i > 0 ? ", " : "", o->key);
    if (n > 0) used += (size_t)n;
  }
  return bs_fail_hint(err, "its options: %s", list), BS_CONFIG;
}

static int32_t check_options(const tp_traits *traits, const bs_layer_spec *spec, bs_error *err) {
  for (uint32_t i = 0; i < spec->n_options; i++) {
    const char *key = spec->option_keys[i];
    const tp_option *option = NULL;
    for (uint32_t j = 0; j < traits->n_options; j++)
      if (strcmp(traits->options[j].key, key) == 0) option = &traits->options[j];
    for (uint32_t j = 0; j < tp_common_count; j++)
      if (strcmp(tp_common_options[j].key, key) == 0) option = &tp_common_options[j];
    if (option == NULL) {
      bs_fail(err, BS_CONFIG, "BS-METHOD-OPTION", "method %s has no option '%.40s'", traits->name, key);
      return hint_options(traits, err);
    }
    if (option->values != NULL && !one_of(option->values, spec->option_values[i])) {
      bs_fail(err, BS_CONFIG, "BS-METHOD-OPTION", "method %s: %s cannot be '%.40s'", traits->name, key,
              spec->option_values[i]);
      return bs_fail_hint(err, "one of %s", option->values), BS_CONFIG;
    }
  }
  return BS_OK;
}

int tp_is_float(uint32_t dtype) {
  return dtype == BS_F64 || dtype == BS_F32 || dtype == BS_F16 || dtype == BS_BF16 || dtype == BS_F8E4M3 ||
         dtype == BS_F8E5M2;
}

static int is_integer(uint32_t dtype) {
  return dtype == BS_I8 || dtype == BS_U8 || dtype == BS_I32 || dtype == BS_I64;
}

/* 1 when 8 bytes for each of a x b elements, and 2 c operations on each, can be counted in 63 bits. */
static int countable(int64_t a, int64_t b, int64_t c) {
  int64_t n;
  return !__builtin_mul_overflow(a, b, &n) && !__builtin_mul_overflow(n, INT64_C(8), &n) &&
         !__builtin_mul_overflow(n, c, &n);
}

/* Sizes come from outside: every product of them must fit before anything is computed. */
static int32_t check_sizes(const tp_traits *traits, const bs_layer_spec *spec, bs_error *err) {
  if (spec->B < 1 || spec->N < 1 || spec->K < 0 || spec->K > (int64_t)UINT32_MAX) {
    bs_fail(err, BS_CONFIG, "BS-METHOD-SHAPE", "method %s: B=%lld N=%lld K=%lld", traits->name,
            (long long)spec->B, (long long)spec->N, (long long)spec->K);
    return bs_fail_hint(err, "B and N are at least 1, K is 0 to %u", UINT32_MAX), BS_CONFIG;
  }
  if (BS_DTYPE_BYTES(spec->x_dtype) == 0 || BS_DTYPE_BYTES(spec->w_dtype) == 0 ||
      BS_DTYPE_BYTES(spec->y_dtype) == 0)
    return bs_fail(err, BS_CONFIG, "BS-METHOD-DTYPE", "method %s: dtype of x, w or y is not set",
                   traits->name);
  const int64_t width = spec->K + 1; /* one column stands in where K is 0 */
  if (!countable(spec->B, spec->N, width) || !countable(spec->B, width, 1) || !countable(spec->N, width, 1))
    return bs_fail(err, BS_OVERFLOW, "BS-METHOD-SHAPE", "method %s: B=%lld N=%lld K=%lld overflows",
                   traits->name, (long long)spec->B, (long long)spec->N, (long long)spec->K);
  return BS_OK;
}

static int32_t check_placements(const tp_traits *traits, const bs_layer_spec *spec, uint32_t split,
                                bs_error *err) {
  if (spec->x_placement > BS_SPLIT_TOKENS || spec->y_placement > BS_SPLIT_TOKENS)
    return bs_fail(err, BS_CONFIG, "BS-METHOD-PLACEMENT", "method %s: unknown placement of x (%u) or y (%u)",
                   traits->name, spec->x_placement, spec->y_placement);
  if (split == BS_SPLIT_N && spec->x_placement == BS_SPLIT) {
    bs_fail(err, BS_UNSUPPORTED, "BS-METHOD-PLACEMENT", "method %s needs the whole x on every rank",
            traits->name);
    return bs_fail_hint(err, "row_parallel and blockshock take an x that is split over its columns"),
           BS_UNSUPPORTED;
  }
  if (split == BS_SPLIT_N && spec->y_placement == BS_PARTIAL) {
    bs_fail(err, BS_UNSUPPORTED, "BS-METHOD-PLACEMENT", "method %s makes whole features, no partial sums",
            traits->name);
    return bs_fail_hint(err,
                        "y may be replicated or split; partial sums come from row_parallel and blockshock"),
           BS_UNSUPPORTED;
  }
  if (spec->reduce_dtype == BS_I8 && !tp_is_float(spec->y_dtype)) {
    bs_fail(err, BS_UNSUPPORTED, "BS-METHOD-REDUCE", "method %s: sums of integers would lose digits in int8",
            traits->name);
    return bs_fail_hint(err, "leave the reduce dtype out: integers are summed in y's dtype"), BS_UNSUPPORTED;
  }
  if (spec->activation > BS_ACT_GELU_TANH)
    return bs_fail(err, BS_CONFIG, "BS-METHOD-ACTIVATION", "method %s: unknown activation %u", traits->name,
                   spec->activation);
  if (spec->activation == BS_ACT_GELU_TANH && (spec->flags & BS_LAYER_BACKWARD)) {
    bs_fail(err, BS_UNSUPPORTED, "BS-METHOD-ACTIVATION", "method %s: gelu_tanh has no backward pass",
            traits->name);
    return bs_fail_hint(err, "train with gelu, or build the layer for forward only"), BS_UNSUPPORTED;
  }
  if (spec->y_placement == BS_PARTIAL && spec->activation != BS_ACT_NONE && split == BS_SPLIT_K) {
    bs_fail(err, BS_UNSUPPORTED, "BS-METHOD-ACTIVATION",
            "method %s leaves partial sums in y, and an activation can only follow the sum", traits->name);
    return bs_fail_hint(err, "y replicated or split: then it is applied after the reduction"), BS_UNSUPPORTED;
  }
  return BS_OK;
}

static int32_t split_columns(const tp_state *state, const bs_layer_spec *spec, tp_shape *s, bs_error *err) {
  bs_mask mask;
  int32_t rc = state->traits->choose_mask(spec, &mask, err);
  if (rc != BS_OK) return rc;
  const int by_row = state->traits->full_width && tp_mask_by_row(mask.kind);
  rc = by_row ? tp_by_row_shape(state, spec, &mask, s, err)
              : state->host->partition_make(&mask, s->K, s->rank, s->world, &s->cols, err);
  if (rc != BS_OK) return rc;
  if (s->world == 1) { /* the mask was checked; one rank owns everything */
    if (s->cols != NULL) state->host->partition_free(s->cols);
    s->cols = NULL;
    return BS_OK;
  }
  if (!by_row) s->k_own = s->cols->count;
  s->x_cols = spec->x_placement == BS_SPLIT ? s->k_own : s->K;
  if (state->traits->full_width && s->K > 0) {
    s->k_mul = s->K;
    s->input = spec->x_placement == BS_SPLIT ? TP_X_SPREAD : TP_X_PLAIN;
  } else {
    s->k_mul = s->k_own;
    if (spec->x_placement == BS_SPLIT)
      s->input = TP_X_PLAIN;
    else
      s->input = s->cols->kind == BS_PARTITION_CONTIGUOUS ? TP_X_VIEW : TP_X_GATHER;
  }
  return BS_OK;
}

static void finish_columns(const bs_layer_spec *spec, tp_shape *s) {
  if (spec->y_placement == BS_PARTIAL) return;
  s->product_dtype = s->reduce_dtype;
  if (spec->y_placement == BS_SPLIT || s->y_tokens) {
    s->coll = BS_COLL_REDUCE_SCATTER;
    s->own_partial = 1;
    if (!s->y_tokens) tp_share(s->N, s->rank, s->world, &s->y_begin, &s->y_cols);
  } else {
    s->coll = BS_COLL_ALL_REDUCE;
    s->own_partial = s->wire == BS_I8 || s->reduce_dtype != s->y_dtype;
  }
  s->after = spec->activation;
  s->own_sums =
      s->after != BS_ACT_NONE && (spec->flags & BS_LAYER_BACKWARD ||
                                  (s->coll == BS_COLL_REDUCE_SCATTER && s->reduce_dtype != s->y_dtype));
}

static void split_rows(const bs_layer_spec *spec, tp_shape *s) {
  tp_rows_share(s, s->rank, &s->row_begin, &s->row_count);
  if (spec->y_placement == BS_SPLIT) {
    s->y_cols = s->row_count;
  } else {
    s->coll = BS_COLL_ALL_GATHER;
    s->y_begin = s->row_begin;
  }
}

/* Backward needs the input of an activation that is in the product's epilogue, so the layer keeps it. */
static void keep_product(const bs_layer_spec *spec, tp_shape *s) {
  const int wide = s->x_dtype == BS_F64 || s->w_dtype == BS_F64 || s->y_dtype == BS_F64;
  if (s->split == BS_SPLIT_K || spec->activation == BS_ACT_NONE || !(spec->flags & BS_LAYER_BACKWARD)) return;
  s->keeps = 1;
  s->after = spec->activation;
  s->product_dtype = wide ? BS_F64 : BS_F32;
}

static void fill_plain(const bs_layer_spec *spec, uint32_t rank, uint32_t world, tp_shape *s) {
  memset(s, 0, sizeof *s);
  s->B = spec->B;
  s->N = s->row_count = s->y_cols = spec->N;
  s->K = s->k_own = s->k_mul = s->x_cols = spec->K;
  s->x_dtype = spec->x_dtype;
  s->w_dtype = spec->w_dtype;
  s->y_dtype = s->product_dtype = spec->y_dtype;
  s->wire = spec->reduce_dtype;
  s->reduce_dtype = s->wire == BS_I8 ? (uint32_t)BS_F32 : s->wire;
  if (s->reduce_dtype == 0)
    s->reduce_dtype = s->y_dtype == BS_F64 || is_integer(s->y_dtype) ? s->y_dtype : (uint32_t)BS_F32;
  s->rank = rank;
  s->world = world;
  s->coll = s->before = BS_COLL_COUNT_;
}

static int32_t check_world(const tp_traits *traits, uint32_t rank, uint32_t world, bs_error *err) {
  if (world == 0 || rank >= world)
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-METHOD-WORLD", "rank %u of a world of %u", rank, world);
  if (traits->split != BS_SPLIT_NONE || world == 1) return BS_OK;
  bs_fail(err, BS_UNSUPPORTED, "BS-METHOD-WORLD", "method %s runs on one rank, not on %u", traits->name,
          world);
  return bs_fail_hint(err, "use -P 1, or split the layer with row_parallel, column_parallel or blockshock"),
         BS_UNSUPPORTED;
}

/* R3 of features that one rank sums whole needs no leaves: in a product that is asked with BS_QUERY_TOKENWISE
 * an output depends on no other output. dX is a sum over rows, so backward has leaves of rows. */
static void promise_rows(const tp_traits *traits, const bs_layer_spec *spec, tp_shape *s) {
  s->no_leaves = s->repro == BS_REPRO_R3 && traits->split != BS_SPLIT_K;
  if (s->no_leaves && traits->split == BS_SPLIT_N && spec->flags & BS_LAYER_BACKWARD)
    s->row_leaves = TP_LEAVES / s->world;
}

int32_t tp_shape_make(const tp_state *state, const bs_layer_spec *spec, uint32_t rank, uint32_t world,
                      tp_shape *out_shape, bs_error *err) {
  const tp_traits *traits = state->traits;
  if (spec == NULL || spec->struct_size < sizeof *spec)
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-METHOD-SPEC",
                   "method %s: the layer spec is missing or too short", traits->name);
  int32_t rc = check_world(traits, rank, world, err);
  if (rc == BS_OK) rc = check_sizes(traits, spec, err);
  if (rc == BS_OK) rc = check_options(traits, spec, err);
  if (rc == BS_OK) rc = tp_mixed_check_options(traits, spec, err);
  if (rc == BS_OK && traits->check != NULL) rc = traits->check(spec, err);
  if (rc != BS_OK) return rc;
  tp_shape *s = out_shape;
  fill_plain(spec, rank, world, s);
  s->split = world > 1 ? traits->split : (uint32_t)BS_SPLIT_NONE;
  s->repro = tp_repro_asked(spec);
  rc = check_placements(traits, spec, s->split, err);
  if (rc == BS_OK) rc = tp_place_check(traits, spec, s->split, world, err);
  if (rc == BS_OK) rc = tp_repro_check(traits, spec, s->split, world, err);
  if (rc == BS_OK && tp_mixed_asked(spec))
    rc = tp_mixed_shape_make(state, spec, s, err);
  else if (rc == BS_OK && traits->split == BS_SPLIT_K && s->repro < BS_REPRO_R3)
    rc = split_columns(state, spec, s, err);
  if (rc != BS_OK) return rc;
  tp_place_shape(spec, s);
  promise_rows(traits, spec, s);
  if (s->split == BS_SPLIT_N) split_rows(spec, s);
  if (s->repro >= BS_REPRO_R3 && !s->no_leaves) {
    s->wire = s->reduce_dtype;
    s->chunks = 1;
    s->bias_here = spec->has_bias && s->row_count > 0 && (s->split != BS_SPLIT_K || rank == 0);
    return tp_leaf_shape_make(state, spec, s, err);
  }
  if (s->split == BS_SPLIT_K) finish_columns(spec, s);
  if (s->split != BS_SPLIT_K || s->coll == BS_COLL_COUNT_) s->wire = s->reduce_dtype; /* nothing is summed */
  keep_product(spec, s);
  s->bias_here = spec->has_bias && s->row_count > 0 && (s->split != BS_SPLIT_K || rank == 0);
  if (s->mixed) {
    s->chunks = 1;
    return BS_OK;
  }
  if (s->k_mul == 0) {
    s->k_mul = 1;
    s->input = TP_X_ZERO;
  }
  if (s->no_leaves) {
    s->chunks = 1;
    return BS_OK;
  }
  rc = tp_overlap_choose(state, spec, s, err);
  if (rc != BS_OK) tp_shape_free(state, s);
  return rc;
}

void tp_shape_free(const tp_state *state, tp_shape *shape) {
  if (shape->own_cols)
    tp_partition_free(state, shape->cols);
  else if (shape->cols != NULL)
    state->host->partition_free(shape->cols);
  shape->cols = NULL;
  for (uint32_t i = 0; i < 2; i++) {
    tp_partition_free(state, shape->segment[i]);
    shape->segment[i] = NULL;
  }
}
