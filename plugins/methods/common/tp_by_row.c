/* SPDX-License-Identifier: MIT
 *
 * tp_by_row.c - masks that keep different columns in each row (random_2of4, magnitude, transposable) in a
 * layer of dense storage. The rank packs all K columns, with zeros for weights that its half of its slice
 * does not keep, and multiplies them. Its ownership is described and read like blockshock's 2:4 values: two
 * of each four columns, row by row. More than two ranks share the halves in slices of the groups of
 * columns. */
#include "tp_kept.h"
#include "tp_mixed.h"

static int32_t refuse_split_x(const tp_traits *traits, bs_error *err) {
  bs_fail(
      err, BS_UNSUPPORTED, "BS-METHOD-PLACEMENT",
      "method %s: under a mask that differs by row each rank's weights meet all columns of x, so it cannot "
      "be split",
      traits->name);
  return bs_fail_hint(err, "x replicated, or a mask with the same columns in each row"), BS_UNSUPPORTED;
}

static int32_t refuse_odd(const bs_mask *mask, uint32_t world, bs_error *err) {
  bs_fail(err, BS_UNSUPPORTED, "BS-MASK-WORLD",
          "mask %s has two halves and cannot be shared by an odd number of ranks (P = %u)",
          mask->name != NULL ? mask->name : "given", world);
  return bs_fail_hint(err, "an even P, or the mask interleave, which takes any P"), BS_UNSUPPORTED;
}

/* Groups of four are shared out evenly; the last one may be short. */
static void slice_of(const tp_shape *s, int64_t *out_begin, int64_t *out_count) {
  int64_t begin, count;
  tp_share((s->K + 3) / 4, s->rank / 2, s->world / 2, &begin, &count);
  *out_begin = 4 * begin < s->K ? 4 * begin : s->K;
  *out_count = (4 * (begin + count) < s->K ? 4 * (begin + count) : s->K) - *out_begin;
}

int32_t tp_by_row_shape(const tp_state *state, const bs_layer_spec *spec, const bs_mask *mask, tp_shape *s,
                        bs_error *err) {
  if (s->world == 1) return BS_OK; /* both halves are the dense layer */
  if (s->world % 2 != 0) return refuse_odd(mask, s->world, err);
  if (spec->x_placement == BS_SPLIT) return refuse_split_x(state->traits, err);
  bs_partition *run = tp_partition_new(state, s->K, 0);
  if (run == NULL)
    return bs_fail(err, BS_NO_MEMORY, "BS-METHOD-MEMORY", "method %s: no memory for its columns",
                   state->traits->name);
  run->kind = BS_PARTITION_CONTIGUOUS;
  run->columns = NULL;
  slice_of(s, &run->begin, &run->count);
  s->cols = run;
  s->own_cols = 1;
  s->by_row = 1;
  s->half = s->rank % 2;
  s->mask_kind = mask->kind;
  s->k_own = (run->count + 3) / 4 * 2;
  return BS_OK;
}

int32_t tp_by_row_source(tp_layer *l, const bs_layer_spec *spec, const bs_source *weights, tp_kept_view *view,
                         bs_source *out_own, bs_error *err) {
  const tp_shape *s = &l->shape;
  bs_mask mask;
  int32_t rc = l->state->traits->choose_mask(spec, &mask, err);
  if (rc != BS_OK) return rc;
  l->kept = l->api->alloc(l->rank, sizeof *l->kept);
  if (l->kept == NULL)
    return bs_fail(err, BS_NO_MEMORY, "BS-METHOD-MEMORY", "no memory for the positions of weights");
  tp_kept_init(l->kept, s->row_begin, s->row_count, s->cols);
  rc = tp_kept_make(l->kept, l->api, l->rank, &mask, s->half, weights, err);
  *out_own = tp_source_kept(view, weights, &l->kept->kept, s->cols);
  return rc;
}

/* The product dY^T X where weights are kept: in the slice, two of each four. */
int32_t tp_by_row_dw(tp_layer *l, const bs_layer_spec *spec, const bs_tensor_desc *const *args,
                     bs_error *err) {
  bs_op_query q;
  memset(&q, 0, sizeof q);
  q.struct_size = (uint32_t)sizeof q;
  q.op = "matmul24_dw";
  q.nargs = 3;
  q.args = args;
  q.partition = l->shape.cols;
  q.kept = &l->kept->kept;
  q.accumulate = spec->accumulate;
  q.flags = BS_QUERY_DETERMINISTIC | BS_QUERY_X_FULL;
  return l->api->op_prepare(l->rank, &q, NULL, &l->gradient->dw, err);
}

/* The columns of the slice in a tensor of all of them. */
bs_tensor tp_by_row_place(const tp_layer *l, const bs_tensor *whole) {
  return tp_view_columns(whole, l->shape.cols->begin, l->shape.cols->count);
}

int32_t tp_by_row_spread(tp_layer *l, bs_plan **out_plan, bs_error *err) {
  const tp_shape *s = &l->shape;
  const uint32_t wide = l->training->wide;
  const bs_tensor_desc own = bs_desc_2d(wide, s->row_count, s->k_own);
  bs_tensor_desc slice = bs_desc_2d(wide, s->row_count, s->cols->count);
  slice.strides[0] = s->K;
  const bs_tensor_desc *args[2] = {&own, &slice};
  bs_op_query q;
  memset(&q, 0, sizeof q);
  q.struct_size = (uint32_t)sizeof q;
  q.op = "expand24";
  q.nargs = 2;
  q.args = args;
  q.kept = &l->kept->kept;
  return l->api->op_prepare(l->rank, &q, NULL, out_plan, err);
}

/* ---- reading back --------------------------------------------------------------------------- */

enum { READ_GROUPS = 256 }; /* positions that one request covers */

/* Lists the kept columns of a row; after the last column of W the list continues into a padding group. */
static int32_t list_row(const tp_layer *l, int64_t row, uint32_t *list, bs_error *err) {
  const bs_kept *kept = &l->kept->kept;
  const int64_t groups = (kept->cols + 3) / 4;
  uint8_t bits[READ_GROUPS];
  for (int64_t g = 0; g < groups; g += READ_GROUPS) {
    const int64_t n = groups - g < READ_GROUPS ? groups - g : READ_GROUPS;
    const int32_t rc = kept->read(kept->ctx, row, 1, g, n, bits, n, err);
    if (rc != BS_OK) return rc;
    for (int64_t j = 0; j < 4 * n; j++)
      if (bits[j / 4] >> (j % 4) & 1) *list++ = (uint32_t)(l->shape.cols->begin + 4 * g + j);
  }
  return BS_OK;
}

/* Reads one row by a gather of its columns, so that the bits reach `out` in any memory. */
static int32_t gather_row(tp_layer *l, const bs_partition *cols, bs_tensor *row, bs_tensor *out,
                          bs_error *err) {
  const bs_tensor_desc from = bs_desc_2d(out->dtype, 1, cols->total);
  const bs_tensor_desc to = bs_desc_2d(out->dtype, 1, cols->count);
  const bs_tensor_desc *descs[2] = {&from, &to};
  bs_op_query q;
  memset(&q, 0, sizeof q);
  q.struct_size = (uint32_t)sizeof q;
  q.op = "gather_columns";
  q.nargs = 2;
  q.args = descs;
  q.partition = cols;
  bs_plan *plan = NULL;
  int32_t rc = l->api->op_prepare(l->rank, &q, NULL, &plan, err);
  bs_tensor *args[2] = {row, out};
  if (rc == BS_OK) rc = l->api->op_run(plan, args, 2, NULL, err);
  if (plan != NULL) l->api->op_release(plan);
  return rc;
}

static int32_t read_rows(tp_layer *l, int64_t row, bs_tensor *line, uint32_t *list, bs_tensor *out,
                         bs_error *err) {
  const tp_shape *s = &l->shape;
  bs_partition cols;
  memset(&cols, 0, sizeof cols);
  cols.struct_size = (uint32_t)sizeof cols;
  cols.kind = BS_PARTITION_GATHER;
  cols.total = line->dims[1];
  cols.count = s->k_own;
  cols.columns = list;
  int32_t rc = BS_OK;
  for (int64_t i = 0; rc == BS_OK && i < out->dims[0]; i++) {
    bs_tensor dense = tp_view_columns(line, 0, s->K), to = tp_view_run(out, i, 1);
    rc = list_row(l, row + i, list, err);
    if (rc == BS_OK) rc = tp_packed_rows(l, row + i, &dense, err);
    if (rc == BS_OK) rc = gather_row(l, &cols, line, &to, err);
  }
  return rc;
}

int32_t tp_by_row_read(tp_layer *l, int64_t row, bs_tensor *out, bs_error *err) {
  const bs_tensor_desc d = bs_desc_2d(out->dtype, 1, (l->shape.K + 3) / 4 * 4);
  uint32_t *list = l->api->alloc(l->rank, (uint64_t)l->shape.k_own * sizeof *list);
  if (list == NULL)
    return bs_fail(err, BS_NO_MEMORY, "BS-METHOD-MEMORY", "no memory for the columns of a row");
  bs_tensor line;
  int32_t rc = l->api->tensor_alloc(l->rank, &d, BS_LIFE_SCRATCH, &line, err);
  if (rc == BS_OK) {
    rc = read_rows(l, row, &line, list, out, err);
    l->api->tensor_free(l->rank, &line);
  }
  l->api->free(l->rank, list);
  return rc;
}

void tp_by_row_free(tp_layer *l) {
  if (l->kept == NULL) return;
  tp_kept_free(l->kept, l->api, l->rank);
  l->api->free(l->rank, l->kept);
  l->kept = NULL;
}
