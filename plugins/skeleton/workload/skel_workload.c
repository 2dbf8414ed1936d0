/* SPDX-License-Identifier: MIT
 * skel_workload.c - the workload skel_workload: X is normal, but every `every`-th feature is eight times as
 * large (the outlier features of transformers); W and bias are normal. An element depends only on the seed
 * and its place, so every rank draws only what it needs, and any world gets the same numbers. */
#include "skel_workload.h"

enum { BLOCK = 512, PARTS = 3 };

/* One matrix: X, W or the bias. */
typedef struct matrix {
  const bs_host *host;
  uint64_t seed;
  uint32_t stream; /* enum bs_stream_id: no two parts are ever equal */
  uint32_t dtype;  /* the model's: values are rounded to it */
  int64_t rows, cols;
  int64_t every; /* 0: no outliers */
} matrix;

typedef struct stream_set {
  const bs_host *host;
  bs_workload_info info;
  matrix parts[PARTS]; /* by enum bs_workload_part */
} stream_set;

/* ---- the source ----------------------------------------------------------------------------- */

/* The i-th of the columns that are asked for; NULL: all. */
static int64_t column_of(const bs_partition *cols, int64_t i) {
  if (cols == NULL) return i;
  return cols->kind == BS_PARTITION_GATHER ? (int64_t)cols->columns[i] : cols->begin + i;
}

/* n columns side by side of one row, as f32. */
static void draw(const matrix *m, int64_t row, int64_t first, int64_t n, float *out) {
  m->host->rng_normal(m->seed, m->stream, (uint64_t)row * (uint64_t)m->cols + (uint64_t)first, (uint64_t)n,
                      out);
  for (int64_t i = 0; m->every > 0 && i < n; i++)
    if ((first + i) % m->every == 0) out[i] *= 8.0f;
}

/* The asked columns of one row, run by run: rounded to the model's dtype, then to that of `out`. */
static int32_t read_row(const matrix *m, int64_t row, const bs_partition *cols, int64_t count, uint32_t dtype,
                        char *out) {
  float drawn[BLOCK];
  double rounded[BLOCK]; /* room for any dtype */
  for (int64_t done = 0; done < count;) {
    const int64_t first = column_of(cols, done);
    int64_t n = 1;
    while (n < BLOCK && done + n < count && column_of(cols, done + n) == first + n) n++;
    draw(m, row, first, n, drawn);
    int32_t rc = m->host->convert(m->dtype, rounded, BS_F32, drawn, (uint64_t)n);
    if (rc == BS_OK) rc = m->host->convert(dtype, out, m->dtype, rounded, (uint64_t)n);
    if (rc != BS_OK) return rc;
    out += (uint64_t)n * BS_DTYPE_BYTES(dtype);
    done += n;
  }
  return BS_OK;
}

/* Are the asked columns ascending columns of the matrix? */
static int columns_fit(const matrix *m, const bs_partition *cols) {
  if (cols == NULL) return 1;
  if (cols->total != m->cols || cols->count < 0 || cols->count > m->cols) return 0;
  if (cols->kind != BS_PARTITION_GATHER) return cols->begin >= 0 && cols->begin <= m->cols - cols->count;
  for (int64_t i = 0; i < cols->count; i++)
    if (cols->columns[i] >= m->cols || (i > 0 && cols->columns[i] <= cols->columns[i - 1])) return 0;
  return 1;
}

/* Thread-safe and pure: the same call gives the same bits. */
static int32_t read_panel(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                          void *out, int64_t out_stride, bs_error *err) {
  const matrix *m = (const matrix *)ctx;
  if (row < 0 || nrows < 0 || row > m->rows - nrows || !columns_fit(m, cols))
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-SKEL-WORKLOAD-READ",
                   "rows %lld..+%lld and %lld columns of a matrix [%lld,%lld]", (long long)row,
                   (long long)nrows, cols != NULL ? (long long)cols->count : (long long)m->cols,
                   (long long)m->rows, (long long)m->cols);
  const int64_t count = cols != NULL ? cols->count : m->cols;
  for (int64_t r = 0; r < nrows; r++) {
    char *to = (char *)out + r * out_stride * (int64_t)BS_DTYPE_BYTES(dtype);
    const int32_t rc = read_row(m, row + r, cols, count, dtype, to);
    if (rc != BS_OK)
      return bs_fail(err, rc, "BS-SKEL-WORKLOAD-DTYPE", "no conversion from 0x%04x to 0x%04x", m->dtype,
                     dtype);
  }
  return BS_OK;
}

/* ---- open ----------------------------------------------------------------------------------- */

/* The settings workload.<key>: an unknown one is an error, as is a wrong value. */
static int32_t read_options(const bs_workload_request *r, int64_t *every, bs_error *err) {
  *every = 64;
  for (uint32_t i = 0; i < r->n_options; i++) {
    const char *text = r->option_values[i];
    if (strcmp(r->option_keys[i], "every") != 0) {
      bs_fail(err, BS_CONFIG, "BS-SKEL-WORKLOAD-KEY", "there is no option '%s'", r->option_keys[i]);
      bs_fail_hint(err, "the only one is workload.every");
      return BS_CONFIG;
    }
    const size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 9 || text[digits] != '\0')
      return bs_fail(err, BS_CONFIG, "BS-SKEL-WORKLOAD-VALUE", "workload.every: '%s' is not 0..999999999",
                     text);
    *every = 0;
    for (size_t k = 0; k < digits; k++) *every = *every * 10 + (text[k] - '0');
  }
  return BS_OK;
}

static int32_t check_sizes(const bs_workload_request *r, bs_error *err) {
  const int64_t most = INT32_MAX; /* products of two stay in 64 bits */
  if (r->B > 0 && r->N > 0 && r->K > 0 && r->B <= most && r->N <= most && r->K <= most) return BS_OK;
  return bs_fail(err, BS_CONFIG, "BS-SKEL-WORKLOAD-SIZE", "B=%lld N=%lld K=%lld: each must be 1..%lld",
                 (long long)r->B, (long long)r->N, (long long)r->K, (long long)most);
}

static void set_part(stream_set *w, uint32_t part, uint64_t seed, uint32_t stream, int64_t rows, int64_t cols,
                     uint32_t dtype) {
  matrix *m = &w->parts[part];
  m->host = w->host;
  m->seed = seed;
  m->stream = stream;
  m->dtype = dtype;
  m->rows = rows;
  m->cols = cols;
}

static int32_t open_workload(void *state, const bs_workload_request *r, void **out_workload, bs_error *err) {
  const bs_host *host = (const bs_host *)state;
  int64_t every = 0;
  int32_t rc = check_sizes(r, err);
  if (rc == BS_OK) rc = read_options(r, &every, err);
  if (rc != BS_OK) return rc;
  stream_set *w = (stream_set *)host->alloc(host->ctx, sizeof *w, 64);
  if (w == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-SKEL-WORKLOAD-MEMORY", "no memory for a workload");
  w->host = host;
  set_part(w, BS_PART_X, r->seed, BS_STREAM_X, r->B, r->K, r->dtype);
  set_part(w, BS_PART_W, r->weight_seed, BS_STREAM_W, r->N, r->K, r->dtype);
  set_part(w, BS_PART_BIAS, r->weight_seed, BS_STREAM_BIAS, 1, r->N, r->dtype);
  w->parts[BS_PART_X].every = every;
  w->info.struct_size = (uint32_t)sizeof w->info;
  w->info.loss = BS_LOSS_SUM;
  w->info.B = r->B;
  w->info.N = r->N;
  w->info.K = r->K;
  w->info.has_bias = r->has_bias != 0;
  snprintf(w->info.text, sizeof w->info.text, "normal, every %lld features eight times as large",
           (long long)every);
  *out_workload = w;
  return BS_OK;
}

static int32_t info(void *ptr, bs_workload_info *out, bs_error *err) {
  (void)err;
  const bs_workload_info *mine = &((const stream_set *)ptr)->info;
  bs_out_copy(out, mine, sizeof *mine); /* the host's may be shorter or longer */
  return BS_OK;
}

static int32_t source(void *ptr, uint32_t part, bs_source *out, bs_error *err) {
  stream_set *w = (stream_set *)ptr;
  if (part >= PARTS || (part == BS_PART_BIAS && !w->info.has_bias))
    return bs_fail(err, BS_NOT_FOUND, "BS-SKEL-WORKLOAD-PART", "this workload has no part %u", part);
  bs_source s;
  memset(&s, 0, sizeof s);
  s.dtype = w->parts[part].dtype;
  s.rows = w->parts[part].rows;
  s.cols = w->parts[part].cols;
  s.ctx = &w->parts[part];
  s.read = read_panel;
  bs_out_copy(out, &s, sizeof s);
  return BS_OK;
}

static void close_workload(void *ptr) {
  stream_set *w = (stream_set *)ptr;
  w->host->free(w->host->ctx, w);
}

void skel_workload_table(bs_workload *workload) {
  memset(workload, 0, sizeof *workload);
  workload->struct_size = (uint32_t)sizeof *workload;
  workload->name = "skel_workload";
  workload->summary = "X normal with outlier features; W and bias normal";
  workload->option_docs = "every=64: every so many features of X are eight times as large; 0: none\n";
  workload->open = open_workload;
  workload->info = info;
  workload->source = source;
  workload->close = close_workload;
}
