/* SPDX-License-Identifier: MIT
 *
 * by_row_shape.c - which layers of blockshock are computed by 2:4 values, and what that means for one rank:
 * its half, its slice of rows or columns of W, the sums and gathers of y and dX; and the refusals. Pure:
 * propose and build both start here.
 */
#include "../common/tp_mixed.h"
#include "by_row.h"

static const char *mask_name(const bs_mask *mask) {
  return mask->name != NULL ? mask->name : "given";
}

static int32_t refuse_gather(const bs_mask *mask, const char *half, bs_error *err) {
  if (half != NULL)
    bs_fail(err, BS_UNSUPPORTED, "BS-METHOD-KERNEL",
            "method blockshock: one half alone runs by the 2:4 op, kernel=gather was asked for");
  else
    bs_fail(err, BS_UNSUPPORTED, "BS-METHOD-KERNEL",
            "method blockshock: mask %s keeps other columns in each row, no gather of X serves them all",
            mask_name(mask));
  return bs_fail_hint(err, "leave kernel at auto, or use sparse24"), BS_UNSUPPORTED;
}

int32_t by_row_choose(const bs_layer_spec *spec, uint32_t world, uint32_t *out_path, bs_error *err) {
  bs_mask mask;
  const int32_t rc = tp_mask_or_complement(spec, &mask, err);
  if (rc != BS_OK) return rc;
  const char *kernel = tp_option_get(spec, "kernel", "auto"), *half = tp_option_get(spec, "half", NULL);
  const int differs = tp_mask_by_row(mask.kind), sparse = strcmp(kernel, "sparse24") == 0;
  *out_path = BY_ROW_FIXED;
  if (!differs && !sparse && half == NULL) {
    if (strcmp(tp_option_get(spec, "slices", "auto"), "column") != 0) return BS_OK;
    bs_fail(err, BS_UNSUPPORTED, "BS-METHOD-SLICES",
            "method blockshock: slices=column is for 2:4 values; mask %s runs as columns of W",
            mask_name(&mask));
    return bs_fail_hint(err, "kernel=sparse24 with it, or slices=row"), BS_UNSUPPORTED;
  }
  if (tp_mixed_asked(spec)) {
    bs_fail(err, BS_UNSUPPORTED, "BS-METHOD-MIXED",
            "method blockshock: a layer of 2:4 halves is not kept in two precisions (mixed)");
    return bs_fail_hint(err, "a mask that keeps the same columns in every row, kernel=auto"), BS_UNSUPPORTED;
  }
  if (strcmp(kernel, "gather") == 0) return refuse_gather(&mask, half, err);
  if (!differs && mask.kind != BS_MASK_COMPLEMENT) {
    bs_fail(err, BS_UNSUPPORTED, "BS-METHOD-KERNEL",
            "method blockshock: mask %s does not keep two of each four columns, as 2:4 values must",
            mask_name(&mask));
    return bs_fail_hint(err, "a complement mask, random_2of4, magnitude or transposable"), BS_UNSUPPORTED;
  }
  *out_path = world == 1 && half == NULL ? BY_ROW_DENSE : BY_ROW_HALVES;
  return BS_OK;
}

/* The common checks and sizes: a mask that takes any number of ranks stands in. */
static int32_t make_base(const tp_state *state, const bs_layer_spec *spec, uint32_t rank, uint32_t world,
                         tp_shape *out, bs_error *err) {
  bs_mask any;
  bs_layer_spec like = *spec;
  memset(&any, 0, sizeof any);
  any.struct_size = (uint32_t)sizeof any;
  any.kind = BS_MASK_INTERLEAVE;
  like.mask = &any;
  const int32_t rc = tp_shape_make(state, &like, rank, world, out, err);
  if (rc != BS_OK) return rc;
  tp_shape_free(state, out);
  out->chunks = 1; /* the choice of overlap=auto was for the temporary mask */
  out->chunk_features = 0;
  return BS_OK;
}

/* Refuses features that layers of columns have, but 2:4 halves do not. */
static int32_t check_extras(const bs_layer_spec *spec, uint32_t world, bs_error *err) {
  const char *overlap = tp_option_get(spec, "overlap", "off"), *what = NULL;
  const int chunks = strcmp(overlap, "off") != 0 && strcmp(overlap, "auto") != 0;
  if (world > 1 && chunks) what = "is not divided into chunks (overlap)";
  if (world > 1 && (spec->x_placement == BS_PARTIAL || spec->x_placement == BS_SPLIT_TOKENS ||
                    spec->y_placement == BS_SPLIT_TOKENS))
    what = "takes and leaves neither tokens nor a partial x (placements)";
  if (what == NULL && tp_repro_asked(spec) > BS_REPRO_R2) {
    bs_fail(err, BS_UNSUPPORTED, "BS-METHOD-REPRO",
            "method blockshock: repro=R%u is not promised of 2:4 halves, with other columns in other rows",
            tp_repro_asked(spec));
    return bs_fail_hint(err, "a mask that keeps the same columns in every row has it"), BS_UNSUPPORTED;
  }
  if (what == NULL) return BS_OK;
  bs_fail(err, BS_UNSUPPORTED, "BS-METHOD-HALVES", "method blockshock: a layer of 2:4 halves %s", what);
  return bs_fail_hint(err, "a mask that keeps the same columns in every row has it"), BS_UNSUPPORTED;
}

static int32_t check_world(const by_row_shape *s, bs_error *err) {
  if (s->base.world % s->halves == 0) return BS_OK;
  bs_fail(err, BS_UNSUPPORTED, "BS-MASK-WORLD",
          "mask %s has two halves and cannot be shared by an odd number of ranks (P = %u)",
          mask_name(&s->mask), s->base.world);
  return bs_fail_hint(
             err,
             "take an even P, or the mask interleave (any P), or run one half only: --set method.half=0"),
         BS_UNSUPPORTED;
}

static int32_t check_placements(const by_row_shape *s, const bs_layer_spec *spec, bs_error *err) {
  if (spec->x_placement == BS_SPLIT && s->base.world > 1) {
    bs_fail(
        err, BS_UNSUPPORTED, "BS-METHOD-PLACEMENT",
        "method blockshock: with mask %s each rank's weights meet all columns of x, so it cannot be split",
        mask_name(&s->mask));
    return bs_fail_hint(err, "x replicated, or a mask with the same columns in each row"), BS_UNSUPPORTED;
  }
  if (spec->y_placement == BS_PARTIAL && s->slice_rows) {
    bs_fail(err, BS_UNSUPPORTED, "BS-METHOD-PLACEMENT",
            "method blockshock: with slices=column no rank has a term of every feature of y");
    return bs_fail_hint(err, "slices=row leaves partial sums in y"), BS_UNSUPPORTED;
  }
  if (s->base.wire == BS_I8 && s->slice_rows) {
    bs_fail(err, BS_UNSUPPORTED, "BS-METHOD-SLICES",
            "method blockshock: slices=column sums over pairs of ranks, int8 steps (reduce_dtype) over all");
    return bs_fail_hint(err, "slices=row"), BS_UNSUPPORTED;
  }
  return BS_OK;
}

void by_row_rows(const by_row_shape *s, uint32_t slice, int64_t *out_begin, int64_t *out_count) {
  *out_begin = 0;
  *out_count = s->base.N;
  if (!s->slice_rows) return;
  int64_t begin, count;
  tp_share(s->base.N, slice * s->halves, s->base.world, out_begin, out_count);
  for (uint32_t h = 1; h < s->halves; h++) {
    tp_share(s->base.N, slice * s->halves + h, s->base.world, &begin, &count);
    *out_count += count;
  }
}

/* Groups of four are shared out evenly; the last one may be short. */
void by_row_columns(const by_row_shape *s, uint32_t slice, int64_t *out_begin, int64_t *out_count) {
  *out_begin = 0;
  *out_count = s->base.K;
  if (s->slice_rows) return;
  int64_t begin, count;
  tp_share((s->base.K + 3) / 4, slice, s->slices, &begin, &count);
  *out_begin = 4 * begin < s->base.K ? 4 * begin : s->base.K;
  *out_count = (4 * (begin + count) < s->base.K ? 4 * (begin + count) : s->base.K) - *out_begin;
}

/* Fewer bytes on the wire: slices of rows of W, wherever y may be put together from them. Sums in int8 steps
 * are made by all ranks. */
static uint32_t slices_of_rows(const bs_layer_spec *spec, const tp_shape *base, uint32_t slices) {
  const char *asked = tp_option_get(spec, "slices", "auto");
  if (slices == 1 || strcmp(asked, "row") == 0) return 0;
  return strcmp(asked, "column") == 0 || (spec->y_placement != BS_PARTIAL && base->wire != BS_I8);
}

static void shape_part(by_row_shape *s) {
  tp_shape *b = &s->base;
  by_row_rows(s, s->slice, &b->row_begin, &b->row_count);
  s->run.struct_size = (uint32_t)sizeof s->run;
  s->run.kind = BS_PARTITION_CONTIGUOUS;
  s->run.total = b->K;
  by_row_columns(s, s->slice, &s->run.begin, &s->run.count);
  b->k_own = (s->run.count + 3) / 4 * 2;
  b->k_mul = s->run.count > 0 ? b->k_own : 1;
  b->split = s->slice_rows ? BS_SPLIT_N : BS_SPLIT_K;
  b->input = s->run.count == 0 ? TP_X_ZERO : s->run.count < b->K ? TP_X_VIEW : TP_X_PLAIN;
}

static uint32_t wide_of(const tp_shape *b) {
  return b->x_dtype == BS_F64 || b->w_dtype == BS_F64 || b->y_dtype == BS_F64 ? BS_F64 : BS_F32;
}

static void way_of_y(by_row_shape *s, const bs_layer_spec *spec) {
  tp_shape *b = &s->base;
  const int split = spec->y_placement == BS_SPLIT, partial = spec->y_placement == BS_PARTIAL;
  s->y.sum = BS_COLL_COUNT_;
  s->y.sum_ranks = s->slice_rows ? s->halves : b->world;
  s->y.sum_cols = b->row_count;
  s->y.cols = b->N;
  b->y_begin = b->row_begin;
  b->y_cols = b->N;
  if (split) tp_share(b->N, b->rank, b->world, &b->y_begin, &b->y_cols);
  if (!partial && s->y.sum_ranks > 1 && b->row_count > 0)
    s->y.sum = split ? BS_COLL_REDUCE_SCATTER : BS_COLL_ALL_REDUCE;
  if (s->slice_rows && !split) s->y.gather_ranks = s->slices;
  const int sums = s->y.sum != BS_COLL_COUNT_;
  b->product_dtype = sums ? b->reduce_dtype : b->y_dtype;
  b->own_partial =
      sums && (s->y.sum == BS_COLL_REDUCE_SCATTER || b->wire == BS_I8 || b->reduce_dtype != b->y_dtype);
  const int slope = spec->activation != BS_ACT_NONE && spec->flags & BS_LAYER_BACKWARD;
  b->after = sums ? spec->activation : (uint32_t)BS_ACT_NONE;
  b->own_sums = b->after != BS_ACT_NONE &&
                (slope || (s->y.sum == BS_COLL_REDUCE_SCATTER && b->reduce_dtype != b->y_dtype));
  if (slope && !sums && b->row_count > 0) { /* what the epilogue would have been applied to */
    b->keeps = 1;
    b->after = spec->activation;
    b->product_dtype = wide_of(b);
  }
  s->z_cols = s->y.sum == BS_COLL_REDUCE_SCATTER ? b->y_cols : b->row_count;
  b->bias_here = spec->has_bias && b->row_count > 0 && (s->halves == 1 || s->half == 0) &&
                 (s->slice_rows || s->slice == 0);
  b->coll = b->wire == BS_I8 ? s->y.sum : (uint32_t)BS_COLL_COUNT_; /* of tp_quantise.c */
}

static void way_of_dx(by_row_shape *s, const bs_layer_spec *spec) {
  tp_shape *b = &s->base;
  const int row_slices = !s->slice_rows && s->slices > 1;
  s->dx.sum = BS_COLL_COUNT_;
  s->dx.sum_ranks = row_slices ? s->halves : b->world;
  s->dx.sum_cols = row_slices ? s->run.count : b->K;
  s->dx.cols = b->K;
  s->dx_cols = s->dx.sum_cols;
  if (s->dx.sum_ranks > 1 && s->dx.sum_cols > 0) s->dx.sum = BS_COLL_ALL_REDUCE;
  if (row_slices) s->dx.gather_ranks = s->slices;
  s->dx_dtype = s->dx.sum != BS_COLL_COUNT_ ? b->reduce_dtype : b->x_dtype;
  s->own_dx = s->dx.sum != BS_COLL_COUNT_ && (b->reduce_dtype != b->x_dtype || b->row_count == 0);
  s->wide = wide_of(b);
  s->dy_cols = spec->y_placement == BS_SPLIT ? b->y_cols : b->N;
  s->dy_ranks = 0;
  if (spec->y_placement == BS_SPLIT && s->y.sum_ranks > 1 && b->row_count > 0) s->dy_ranks = s->y.sum_ranks;
}

static int32_t check_backward(const by_row_shape *s, bs_error *err) {
  if (tp_is_float(s->base.x_dtype) && tp_is_float(s->base.w_dtype) && tp_is_float(s->base.y_dtype))
    return BS_OK;
  return bs_fail(err, BS_UNSUPPORTED, "BS-METHOD-BACKWARD",
                 "method blockshock: a backward pass needs floating point x, w and y");
}

int32_t by_row_shape_make(const tp_state *state, const bs_layer_spec *spec, uint32_t rank, uint32_t world,
                          by_row_shape *out_shape, bs_error *err) {
  by_row_shape *s = out_shape;
  const char *half = tp_option_get(spec, "half", NULL);
  memset(s, 0, sizeof *s);
  int32_t rc = tp_mask_or_complement(spec, &s->mask, err);
  if (rc == BS_OK) rc = check_extras(spec, world, err);
  if (rc == BS_OK) rc = make_base(state, spec, rank, world, &s->base, err);
  if (rc != BS_OK) return rc;
  s->halves = half != NULL ? 1 : 2;
  rc = check_world(s, err);
  if (rc != BS_OK) return rc;
  s->slices = world / s->halves;
  s->slice = rank / s->halves;
  s->half = half != NULL ? (uint32_t)(half[0] == '1') : rank % 2;
  s->slice_rows = slices_of_rows(spec, &s->base, s->slices);
  if (s->slice_rows && s->halves == 1) s->base.wire = s->base.reduce_dtype; /* nothing of y is summed */
  shape_part(s);
  way_of_y(s, spec);
  way_of_dx(s, spec);
  rc = check_placements(s, spec, err);
  return rc == BS_OK && spec->flags & BS_LAYER_BACKWARD ? check_backward(s, err) : rc;
}
