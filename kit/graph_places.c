/* SPDX-License-Identifier: MIT
 * graph_places.c - queries and oracles of take and put. Indices are drawn inside their dimension, of both
 * signs; a separate check has an index outside. Both ops are followed place by place: from an index to its
 * place, and to the value there. */
#include <math.h>

#include "kit/graph.h"

enum { DATA, INDEX, OUT };              /* take */
enum { BASE, UPDATES = 2, RESULT = 3 }; /* put */

/* ---- queries ---------------------------------------------------------------------------------- */

/* Dims of the index and of what is moved, by those of data. */
typedef struct places {
  int64_t index[BS_MAX_DIMS], moved[BS_MAX_DIMS];
  uint32_t index_rank, moved_rank;
} places;

static void draw_rows(kit_data *d, uint64_t *seed, uint32_t rank, const int64_t *dims, int put, places *p) {
  const uint32_t axis = (uint32_t)d->query.attrs[1];
  const uint32_t most = put ? (axis > 0 ? 2 : 1) : BS_MAX_DIMS + 1 - rank;
  p->index_rank =
      put ? 1 + (uint32_t)kit_below(seed, most) : (uint32_t)kit_below(seed, most < 3 ? most + 1 : 4);
  for (uint32_t k = 0; k < p->index_rank; k++) p->index[k] = kit_graph_size(d, kit_below(seed, 6));
  if (put && p->index_rank == 2) p->index[0] = dims[0];
  p->moved_rank = put ? rank : rank + p->index_rank - 1;
  uint32_t n = 0;
  for (uint32_t k = 0; k < axis; k++) p->moved[n++] = dims[k];
  for (uint32_t k = put ? p->index_rank - 1 : 0; k < p->index_rank; k++) p->moved[n++] = p->index[k];
  for (uint32_t k = axis + 1; k < rank; k++) p->moved[n++] = dims[k];
}

static void draw_elements(kit_data *d, uint64_t *seed, uint32_t rank, const int64_t *dims, places *p) {
  p->index_rank = p->moved_rank = rank;
  for (uint32_t k = 0; k < rank; k++) {
    const int64_t less = dims[k] > 1 && kit_below(seed, 4) == 0 && d->shape.shrinks == 0 ? 1 : 0;
    p->index[k] = p->moved[k] =
        k == d->query.attrs[1] ? kit_graph_size(d, kit_below(seed, 7)) : dims[k] - less;
  }
}

static void draw_tuples(kit_data *d, uint64_t *seed, uint32_t rank, const int64_t *dims, int put, places *p) {
  const uint32_t batch = put ? 0 : (uint32_t)kit_below(seed, rank < 3 ? rank : 3);
  const uint32_t m = 1 + (uint32_t)kit_below(seed, rank - batch);
  const uint32_t room = BS_MAX_DIMS - (rank - batch - m) - batch;
  const uint32_t more = (uint32_t)kit_below(seed, room < 2 ? room + 1 : 3);
  const uint32_t lead = batch + (more < BS_MAX_DIMS - 1 - batch ? more : BS_MAX_DIMS - 1 - batch);
  d->query.attrs[1] = 0;
  d->query.attrs[2] = batch;
  for (uint32_t k = 0; k < lead; k++)
    p->index[k] = p->moved[k] = k < batch ? dims[k] : kit_graph_size(d, kit_below(seed, 6));
  p->index[lead] = m;
  p->index_rank = lead + 1;
  p->moved_rank = lead;
  for (uint32_t k = batch + m; k < rank; k++) p->moved[p->moved_rank++] = dims[k];
}

/* The dimension of data that number `i` of the index counts in. */
static int64_t counted(const kit_data *d, int64_t i) {
  const kit_tensor *data = &d->a[DATA];
  if (d->query.attrs[0] != BS_INDEX_TUPLES) return data->t.dims[d->query.attrs[1]];
  const int64_t m = d->a[INDEX].t.dims[d->a[INDEX].t.rank - 1];
  return data->t.dims[d->query.attrs[2] + i % m];
}

static void make(kit_data *d, uint64_t *seed, int put) {
  const kit_shape *s = &d->shape;
  kit_graph_one_dtype(d, 1);
  int64_t dims[BS_MAX_DIMS];
  places p = {.index_rank = 0};
  const uint32_t rank = kit_graph_dims(d, seed, 1, 4, s->B, s->N, dims);
  for (uint32_t k = 0; k < rank; k++)
    if (dims[k] == 0) dims[k] = 2; /* what is indexed has something */
  d->query.attrs[0] = s->index % 3;
  d->query.attrs[1] = kit_below(seed, rank);
  if (d->query.attrs[0] == BS_INDEX_ROWS)
    draw_rows(d, seed, rank, dims, put, &p);
  else if (d->query.attrs[0] == BS_INDEX_ELEMENTS)
    draw_elements(d, seed, rank, dims, &p);
  else
    draw_tuples(d, seed, rank, dims, put, &p);
  kit_graph_arg(d, DATA, s->x, rank, dims, 0);
  kit_graph_fill_wide(d, DATA);
  kit_graph_arg(d, INDEX, s->seed % 2 == 0 ? BS_I64 : BS_I32, p.index_rank, p.index, 0);
  uint64_t own = kit_graph_seed(d, INDEX);
  for (int64_t i = 0; i < kit_elements(&d->a[INDEX]); i++) {
    const int64_t size = counted(d, i);
    kit_set_at(&d->a[INDEX], i, (double)(kit_below(&own, 2 * size) - size));
  }
  kit_graph_arg(d, UPDATES, s->x, p.moved_rank, p.moved, 0);
  if (put) {
    kit_graph_fill_wide(d, UPDATES);
    kit_graph_arg(d, RESULT, s->x, rank, dims, 0);
    d->query.attrs[3] = s->x == BS_BOOL ? BS_PUT_SET : s->index / 3 % 5;
  }
  d->outs = 1u << (put ? RESULT : OUT);
}

static void make_take(kit_data *d, uint64_t *seed) {
  make(d, seed, 0);
}
static void make_put(kit_data *d, uint64_t *seed) {
  make(d, seed, 1);
}

/* ---- places ----------------------------------------------------------------------------------- */

static int64_t number_at(const kit_data *d, const int64_t *at, int64_t size) {
  const kit_tensor *index = &d->a[INDEX];
  const int64_t i = (int64_t)kit_get_at(index, kit_graph_number(index, index->t.rank, at));
  return i < 0 ? i + size : i;
}

/* Element `small` of the moved tensor belongs at *out of data. */
static int64_t place_of(const kit_data *d, const kit_tensor *moved, int64_t small, int put) {
  const kit_tensor *data = &d->a[DATA], *index = &d->a[INDEX];
  const int64_t *attrs = d->query.attrs, axis = attrs[1];
  const uint32_t rank = data->t.rank, with = index->t.rank;
  int64_t at[2 * BS_MAX_DIMS] = {0}, in[BS_MAX_DIMS] = {0}, to[BS_MAX_DIMS] = {0};
  kit_graph_at(small, moved->t.rank, moved->t.dims, at);
  if (attrs[0] == BS_INDEX_TUPLES) {
    const int64_t m = index->t.dims[with - 1];
    memcpy(to, at, (size_t)attrs[2] * sizeof *to);
    memcpy(in, at, (with - 1) * sizeof *in);
    for (int64_t c = 0; c < m; c++) {
      in[with - 1] = c;
      to[attrs[2] + c] = number_at(d, in, data->t.dims[attrs[2] + c]);
    }
    for (uint32_t k = (uint32_t)(attrs[2] + m), n = with - 1; k < rank; k++, n++) to[k] = at[n];
  } else if (attrs[0] == BS_INDEX_ELEMENTS) {
    memcpy(to, at, rank * sizeof *to);
    to[axis] = number_at(d, at, data->t.dims[axis]);
  } else {
    const uint32_t here = put ? 1 : with; /* dims of the index in place of the axis */
    if (put && with == 2) in[0] = at[0];
    memcpy(in + (put ? with - 1 : 0), at + axis, here * sizeof *in);
    memcpy(to, at, (size_t)axis * sizeof *to);
    to[axis] = number_at(d, in, data->t.dims[axis]);
    for (uint32_t k = (uint32_t)axis + 1; k < rank; k++) to[k] = at[k + here - 1];
  }
  return kit_graph_number(data, rank, to);
}

static void judge_take(const kit_data *d, uint32_t tolerance, int special) {
  (void)tolerance;
  (void)special;
  const kit_tensor *out = &d->a[OUT];
  const int64_t n = kit_elements(out);
  const size_t size = BS_DTYPE_BYTES(out->t.dtype);
  for (int64_t i = 0; i < n; i++) {
    const int64_t from = place_of(d, out, i, 0);
    if (memcmp(kit_place_at(out, i), kit_place_at(&d->a[DATA], from), size) != 0)
      kit_fail("%s: element %lld of the output is %.9g, element %lld of data, %.9g, is asked for",
               kit_data_text(d), (long long)i, kit_get_at(out, i), (long long)from,
               kit_get_at(&d->a[DATA], from));
  }
}

/* The value at a place of put's output, and its largest error. */
typedef struct spot {
  double v, slack;
  int64_t whole;
} spot;

/* Each combination is rounded to the dtype of the value there: half a unit in the last place, also for
 * subnormals. */
static void rounding(uint32_t dtype, double *out_eps, double *out_least) {
  static const struct {
    uint32_t dtype;
    double eps, least;
  } of[] = {{BS_F64, 0x1p-53, 0x1p-1074}, {BS_F32, 0x1p-24, 0x1p-149}, {BS_BF16, 0x1p-8, 0x1p-133},
            {BS_F16, 0x1p-11, 0x1p-24},   {BS_F8E4M3, 0x1p-4, 0x1p-9}, {BS_F8E5M2, 0x1p-3, 0x1p-16}};
  *out_eps = *out_least = 0.0;
  for (size_t i = 0; i < sizeof of / sizeof of[0]; i++)
    if (of[i].dtype == dtype) *out_eps = of[i].eps, *out_least = of[i].least;
}

static void combine(const kit_data *d, spot *s, double v, int64_t whole) {
  double eps, least;
  rounding(d->shape.x, &eps, &least);
  const uint64_t a = (uint64_t)s->whole, b = (uint64_t)whole;
  switch (d->query.attrs[3]) {
    case BS_PUT_ADD:
      s->v += v;
      s->slack += 2 * eps * fabs(s->v) + least;
      s->whole = (int64_t)(a + b);
      break;
    case BS_PUT_MUL:
      s->v *= v;
      s->slack = s->slack * fabs(v) + 2 * eps * fabs(s->v) + least;
      s->whole = (int64_t)(a * b);
      break;
    case BS_PUT_MAX:
      s->v = isnan(s->v) || isnan(v) ? NAN : fmax(s->v, v);
      s->whole = s->whole > whole ? s->whole : whole;
      break;
    case BS_PUT_MIN:
      s->v = isnan(s->v) || isnan(v) ? NAN : fmin(s->v, v);
      s->whole = s->whole < whole ? s->whole : whole;
      break;
    default:
      *s = (spot){v, 0.0, whole};
      break;
  }
}

static spot read_spot(const kit_tensor *m, int64_t i) {
  spot s = {kit_get_at(m, i), 0.0, 0};
  if (!bs_dtype_is_float(m->t.dtype)) bs_convert(BS_I64, &s.whole, m->t.dtype, kit_place_at(m, i), 1);
  return s;
}

static void judge_put(const kit_data *d, uint32_t tolerance, int special) {
  const kit_tensor *out = &d->a[RESULT], *updates = &d->a[UPDATES];
  const int64_t n = kit_elements(out), moved = kit_elements(updates);
  (void)tolerance;
  spot *spots = calloc((size_t)n + 1, sizeof *spots);
  kit_assert(spots != NULL, "no memory");
  for (int64_t i = 0; i < n; i++) spots[i] = read_spot(&d->a[BASE], i);
  for (int64_t i = 0; i < moved; i++) {
    const spot with = read_spot(updates, i);
    combine(d, &spots[place_of(d, updates, i, 1)], with.v, with.whole);
  }
  for (int64_t i = 0; i < n; i++) {
    if (bs_dtype_is_float(out->t.dtype)) {
      kit_graph_check(d, RESULT, i, spots[i].v, spots[i].slack, special);
      continue;
    }
    const spot got = read_spot(out, i);
    const uint64_t bits = BS_DTYPE_BYTES(out->t.dtype) * 8;
    const uint64_t mask = bits < 64 ? (UINT64_C(1) << bits) - 1 : UINT64_MAX;
    if ((((uint64_t)got.whole ^ (uint64_t)spots[i].whole) & mask) != 0)
      kit_graph_check(d, RESULT, i, (double)spots[i].whole, 0.0, 0);
  }
  free(spots);
}

static void put_in_place(const kit_data *d, uint32_t way, uint32_t *out_output, uint32_t *out_input) {
  (void)d;
  (void)way;
  *out_output = RESULT;
  *out_input = BASE;
}

const kit_graph_op kit_graph_take = {"take", 1, 1, 0, 0, make_take, judge_take, NULL};
const kit_graph_op kit_graph_put = {"put", 1, 1, 1, 0, make_put, judge_put, put_in_place};
