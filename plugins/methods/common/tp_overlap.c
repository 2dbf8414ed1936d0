/* SPDX-License-Identifier: MIT
 *
 * tp_overlap.c - forward in chunks: while the sums (or gathers) of one chunk of y travel, the next chunk is
 * computed. Chunks are runs of tokens, or runs of output features with a packed weight of their own each,
 * whichever the model of docs/methods.md finds faster.
 * Every output is computed and summed as without: the bits of y are the same.
 */
#include "tp.h"

#define UNIT 16 /* chunks begin where kernels begin a panel, when there is enough to divide */

/* The rates that `auto` assumes if no measured ones are known (docs/methods.md): a rank's FLOP/s, bytes/s of
 * weights, bytes/s of the wire, and seconds that a further chunk costs. */
static const double RATE = 100e9, READ = 15e9, WIRE = 10e9, START = 20e-6;
static const double WORTH = 0.95; /* of the time without: less is not worth a thread */

/* Kernels multiply a few tokens by a panel of features at a time: what a thin chunk leaves empty of a block
 * takes time all the same. Sums of a run of features are a run of each token, contiguous they are one. */
static const int64_t PANEL = 16, BLOCK = 4;
static const double RUN = 20e-9;

static double time_of(double product, double wire, double chunks) {
  const double most = product > wire ? product : wire;
  return product / chunks + (chunks - 1.0) / chunks * most + wire / chunks + chunks * START;
}

/* `n` in so many chunks of whole blocks. */
static double padded(int64_t n, int64_t chunks, int64_t block) {
  const int64_t each = chunks * block, whole = (n + each - 1) / each * each;
  return (double)whole;
}

/* The inputs of the model. It assumes an even share of W, even if this rank's differs: all ranks must choose
 * alike. */
typedef struct model {
  const tp_shape *s;
  int64_t rows, columns;
} model;

static model model_of(const tp_traits *traits, const tp_shape *s) {
  const int64_t P = s->world;
  model m = {s, s->N, s->K};
  if (s->split == BS_SPLIT_N) m.rows = (s->N + P - 1) / P;
  if (s->split == BS_SPLIT_K && !traits->full_width) m.columns = (s->K + P - 1) / P;
  return m;
}

/* A forward in so many chunks. Runs of features read the weights once and the inputs each time, runs of
 * tokens the other way round. */
static double predicted(const model *m, int64_t chunks, int features) {
  const tp_shape *s = m->s;
  const uint32_t w_bytes = BS_DTYPE_BYTES(s->w_dtype), x_bytes = BS_DTYPE_BYTES(s->x_dtype),
                 y_bytes = BS_DTYPE_BYTES(s->product_dtype);
  const double B = (double)s->B, k = (double)m->columns, n = (double)m->rows, c = (double)chunks;
  const double rows = padded(m->rows, features ? chunks : 1, PANEL);
  const double tokens = padded(s->B, features ? 1 : chunks, BLOCK);
  const double compute = 2.0 * rows * tokens * k / RATE;
  const double weights = n * k * w_bytes * (features ? 1.0 : c);
  const double inputs = B * k * x_bytes * (features ? c : 1.0);
  const double memory = (weights + inputs) / READ;
  const double factor = (s->coll == BS_COLL_ALL_REDUCE ? 2.0 : 1.0) * (s->world - 1.0) / s->world;
  double wire = factor * B * (double)s->N * y_bytes / WIRE;
  if (features && chunks > 1) wire += c * B * RUN;
  return time_of(compute > memory ? compute : memory, wire, c);
}

/* The choices that overlap_axis and the layer allow. */
enum { BY_TOKENS = 1, BY_FEATURES = 2 };

static int64_t most_chunks(const tp_shape *s, int features) {
  const int64_t total = features ? s->N : s->B;
  return total < TP_MAX_CHUNKS ? total : TP_MAX_CHUNKS;
}

/* The best number of chunks by the model, of either axis; 1: none gains. */
static void choose_both(tp_shape *s, const model *m, int axes) {
  double least = WORTH * predicted(m, 1, 0);
  for (int features = 0; features < 2; features++) {
    if ((axes & (features ? BY_FEATURES : BY_TOKENS)) == 0) continue;
    for (int64_t c = 2; c <= most_chunks(s, features); c++) {
      const double t = predicted(m, c, features);
      if (t >= least) continue;
      least = t;
      s->chunks = (uint32_t)c;
      s->chunk_features = (uint32_t)features;
    }
  }
}

/* The axis of a number that was given: one that there are enough of to divide, and then the faster. */
static void choose_axis(tp_shape *s, const model *m, int axes, int64_t chunks) {
  const int64_t features = axes & BY_FEATURES ? most_chunks(s, 1) : 0,
                tokens = axes & BY_TOKENS ? most_chunks(s, 0) : 0;
  const int64_t f = features < chunks ? features : chunks, t = tokens < chunks ? tokens : chunks;
  if (f != t)
    s->chunk_features = f > t;
  else
    s->chunk_features = predicted(m, f > 0 ? f : 1, 1) <= predicted(m, t > 0 ? t : 1, 0);
  s->chunks = (uint32_t)(s->chunk_features ? f : t);
}

static int32_t refuse(const tp_state *state, const char *what, const char *hint, bs_error *err) {
  bs_fail(err, BS_UNSUPPORTED, "BS-METHOD-OVERLAP", "method %s: %s", state->traits->name, what);
  return bs_fail_hint(err, "%s", hint), BS_UNSUPPORTED;
}

/* Only an all-reduce takes features: a reduce-scatter and a gather leave every chunk in the middle of each
 * rank's share; and a weight in pieces is not differentiated. */
static int axes_of(const bs_layer_spec *spec, const tp_shape *s) {
  const char *axis = tp_option_get(spec, "overlap_axis", "auto");
  const int able = s->coll == BS_COLL_ALL_REDUCE && (spec->flags & BS_LAYER_BACKWARD) == 0;
  const int wanted = strcmp(axis, "features") == 0 ? BY_FEATURES
                     : strcmp(axis, "tokens") == 0 ? BY_TOKENS
                                                   : BY_FEATURES | BY_TOKENS;
  return able ? wanted : wanted & BY_TOKENS;
}

int32_t tp_overlap_choose(const tp_state *state, const bs_layer_spec *spec, tp_shape *s, bs_error *err) {
  const char *option = tp_option_get(spec, "overlap", "off");
  const int automatic = strcmp(option, "auto") == 0;
  s->chunks = 1;
  if (strcmp(option, "off") == 0 || s->coll == BS_COLL_COUNT_) return BS_OK;
  const int axes = axes_of(spec, s);
  if ((s->wire == BS_I8 || s->keeps || s->before != BS_COLL_COUNT_ || s->y_tokens || axes == 0) && automatic)
    return BS_OK;
  if (s->keeps)
    return refuse(state, "a product that is kept for backward is not divided into chunks",
                  "overlap=off or auto, or the activation outside of the layer", err);
  if (s->wire == BS_I8)
    return refuse(state, "sums in two int8 steps are not divided into chunks",
                  "overlap=off or auto, or another reduce dtype", err);
  if (axes == 0)
    return refuse(state, "chunks of features need a layer whose Y is all-reduced, and only forward",
                  "overlap_axis=tokens or auto", err);
  const model m = model_of(state->traits, s);
  if (automatic)
    choose_both(s, &m, axes);
  else
    choose_axis(s, &m, axes, (int64_t)(option[0] - '0'));
  if (s->chunks < 2) s->chunk_features = 0;
  s->chunk_unit = (s->chunk_features ? s->N : s->B) >= UNIT * (int64_t)s->chunks ? UNIT : 1;
  return BS_OK;
}

void tp_overlap_share(const tp_shape *s, int64_t total, uint32_t chunk, int64_t *out_begin,
                      int64_t *out_count) {
  const int64_t unit = s->chunk_unit, units = (total + unit - 1) / unit;
  int64_t begin, count;
  tp_share(units, chunk, s->chunks, &begin, &count);
  begin *= unit;
  *out_begin = begin < total ? begin : total;
  *out_count = count * unit < total - *out_begin ? count * unit : total - *out_begin;
}

void tp_overlap_propose(const tp_shape *s, bs_proposal *p) {
  const uint64_t size = BS_DTYPE_BYTES(s->product_dtype);
  const uint64_t across = (uint64_t)(s->chunk_features ? s->B : s->N) * size;
  p->chunks = s->chunks;
  p->chunk_tokens = s->chunk_features == 0;
  p->n_collectives = 0;
  for (uint32_t i = 0; i < s->chunks; i++) {
    int64_t begin, count;
    tp_overlap_share(s, s->chunk_features ? s->N : s->B, i, &begin, &count);
    if (count == 0) continue;
    p->coll_kind[p->n_collectives] = s->coll;
    p->coll_payload[p->n_collectives++] = (uint64_t)count * across;
  }
}

/* ---- build ------------------------------------------------------------------------------------ */

/* Tokens of a chunk in any call: fewer than B may leave a chunk a whole unit that B leaves a part of. */
static int64_t most_tokens(const tp_shape *s, uint32_t chunk) {
  const int64_t units = (s->B + s->chunk_unit - 1) / s->chunk_unit;
  int64_t begin, count;
  tp_share(units, chunk, s->chunks, &begin, &count);
  return count * s->chunk_unit < s->B ? count * s->chunk_unit : s->B;
}

static int32_t prepare_collective(tp_layer *l, const bs_collective *whole, uint32_t i, bs_error *err) {
  const tp_shape *s = &l->shape;
  int64_t begin, count;
  bs_collective c = *whole;
  char *site = l->overlap->site[i];
  tp_overlap_share(s, s->chunk_features ? s->N : s->B, i, &begin, &count);
  if (count == 0) return BS_OK;
  snprintf(site, TP_SITE, "%s.%u", whole->site, i);
  c.site = site;
  if (s->chunk_features)
    c.count = (uint64_t)count;
  else
    c.rows = (uint64_t)most_tokens(s, i);
  return l->api->collective_prepare(l->rank, &c, &l->overlap->coll[i], err);
}

int32_t tp_overlap_build(tp_layer *l, const bs_collective *whole, bs_error *err) {
  if (l->overlap == NULL) l->overlap = l->api->alloc(l->rank, sizeof *l->overlap);
  if (l->overlap == NULL)
    return bs_fail(err, BS_NO_MEMORY, "BS-METHOD-MEMORY", "no memory for %u chunks", l->shape.chunks);
  int32_t rc = BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < l->shape.chunks; i++) rc = prepare_collective(l, whole, i, err);
  return rc;
}

/* A packed weight and a product for each run of features. */
int32_t tp_overlap_pack(tp_layer *l, const bs_layer_spec *spec, const bs_source *own, bs_error *err) {
  const tp_shape *s = &l->shape;
  l->overlap = l->api->alloc(l->rank, sizeof *l->overlap);
  if (l->overlap == NULL)
    return bs_fail(err, BS_NO_MEMORY, "BS-METHOD-MEMORY", "no memory for %u chunks", s->chunks);
  int32_t rc = BS_OK;
  l->api->region_begin(l->rank, BS_REGION_PACK);
  for (uint32_t i = 0; rc == BS_OK && i < s->chunks; i++) {
    int64_t begin, count;
    tp_overlap_share(s, s->N, i, &begin, &count);
    if (count == 0) continue;
    tp_layer part = *l;
    part.shape.row_count = count;
    tp_product_query p;
    tp_product_query_fill(&part, spec, &p);
    tp_rows_view rows;
    const bs_source piece = tp_source_rows(&rows, own, begin, count);
    rc = l->api->pack(l->rank, &p.q, &piece, &l->overlap->packed[i], err);
    if (rc == BS_OK)
      rc = l->api->op_prepare(l->rank, &p.q, l->overlap->packed[i], &l->overlap->matmul[i], err);
  }
  l->api->region_end(l->rank, BS_REGION_PACK);
  return rc;
}

void tp_overlap_free(tp_layer *l) {
  tp_overlap *o = l->overlap;
  if (o == NULL) return;
  for (uint32_t i = 0; i < TP_MAX_CHUNKS; i++) {
    if (o->coll[i] != NULL) l->api->collective_release(o->coll[i]);
    if (o->matmul[i] != NULL) l->api->op_release(o->matmul[i]);
    if (o->packed[i] != NULL) l->api->packed_release(o->packed[i]);
  }
  l->api->free(l->rank, o);
}

int32_t tp_overlap_read(tp_layer *l, int64_t row, bs_tensor *out, bs_error *err) {
  int32_t rc = BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < l->shape.chunks; i++) {
    int64_t begin, count;
    tp_overlap_share(&l->shape, l->shape.N, i, &begin, &count);
    const int64_t from = row > begin ? row : begin;
    const int64_t end = row + out->dims[0] < begin + count ? row + out->dims[0] : begin + count;
    if (from >= end) continue;
    bs_tensor part = tp_view_run(out, from - row, end - from);
    rc = l->api->packed_read(l->overlap->packed[i], from - begin, &part, err);
  }
  return rc;
}

/* ---- forward ---------------------------------------------------------------------------------- */

static int32_t chunk_of_features(tp_layer *l, uint32_t i, const bs_tensor *in, bs_tensor *out,
                                 bs_stream *stream, bs_error *err) {
  const tp_shape *s = &l->shape;
  int64_t begin, count;
  tp_overlap_share(s, s->N, i, &begin, &count);
  bs_tensor bias = l->bias, x = *in;
  bias.dims[0] = count;
  if (s->bias_here) {
    const uint64_t skip = (uint64_t)begin * BS_DTYPE_BYTES(bias.dtype);
    bias.data = (char *)bias.data + skip;
    bias.bytes -= skip;
  }
  bs_tensor *args[4] = {&x, s->bias_here ? &bias : NULL, NULL, out};
  return l->api->op_run(l->overlap->matmul[i], args, 4, stream, err);
}

/* The chunk of a collective's input or output: of all features, or of the tokens. */
static bs_tensor chunk_view(const tp_shape *s, uint32_t i, const bs_tensor *t) {
  int64_t begin, count;
  tp_overlap_share(s, s->chunk_features ? s->N : t->dims[0], i, &begin, &count);
  return s->chunk_features ? tp_view_columns(t, begin, count) : tp_view_run(t, begin, count);
}

static int32_t start_chunk(tp_layer *l, uint32_t i, const bs_tensor *x, const bs_tensor *product,
                           bs_tensor *sums, bs_stream *stream, uint32_t *started, bs_error *err) {
  const tp_shape *s = &l->shape;
  bs_tensor part = chunk_view(s, i, product), to = chunk_view(s, i, sums);
  int32_t rc = BS_OK;
  if (l->overlap->coll[i] == NULL) return BS_OK;
  if (s->chunk_features) {
    rc = chunk_of_features(l, i, x, &part, stream, err);
  } else if (l->matmul != NULL &&
             part.dims[0] > 0) { /* of fewer tokens some chunks are empty, on all ranks */
    const bs_tensor tokens = chunk_view(s, i, x);
    rc = tp_multiply(l, &tokens, &part, stream, err);
  }
  if (rc == BS_OK) rc = l->api->collective_start(l->overlap->coll[i], &part, &to, stream, err);
  if (rc == BS_OK) *started |= 1u << i;
  return rc;
}

int32_t tp_overlap_forward(tp_layer *l, const bs_tensor *x, const bs_tensor *product, bs_tensor *sums,
                           bs_stream *stream, bs_error *err) {
  uint32_t started = 0;
  bs_tensor in = *x;
  int32_t rc = l->shape.chunk_features ? tp_take_input(l, x, &in, stream, err) : BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < l->shape.chunks; i++)
    rc = start_chunk(l, i, &in, product, sums, stream, &started, err);
  for (uint32_t i = 0; i < l->shape.chunks; i++) { /* also after an error: what has started must end */
    if ((started >> i & 1u) == 0) continue;
    l->api->region_begin(l->rank, BS_REGION_ALLREDUCE);
    const int32_t sum = l->api->collective_wait(l->overlap->coll[i], rc == BS_OK ? err : NULL);
    l->api->region_end(l->rank, BS_REGION_ALLREDUCE);
    if (rc == BS_OK) rc = sum;
  }
  return rc;
}
