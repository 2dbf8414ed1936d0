/* SPDX-License-Identifier: MIT
 * reference.c - fp64 products over sources, 16 tokens at a time so that the sums stay in registers. K is
 * walked in the order of the owning ranks, which makes every rank's partial sum a contiguous run. */
#include "lab/gate/reference.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/size.h"
#include "lab/activation.h"
#include "lab/error.h"
#include "lab/hash.h"
#include "lab/stop.h"

enum { TOKENS = 16, MAX_THREADS = 64 };

typedef double four __attribute__((vector_size(32)));
typedef int64_t bits4 __attribute__((vector_size(32)));

#define load4(dst, src) memcpy((dst), (src), sizeof(four))
#define absolute4(v) ((four)((bits4)(v)&INT64_MAX))

/* sum[t] += w x[t], magnitude[t] += |w x[t]| over `count` columns. */
static inline __attribute__((always_inline)) void accumulate_body(const double *restrict x,
                                                                  const double *restrict w, int64_t count,
                                                                  double *restrict sum,
                                                                  double *restrict magnitude) {
  four s0, s1, s2, s3, m0, m1, m2, m3;
  const size_t lanes = sizeof(four) / sizeof(double);
  load4(&s0, sum), load4(&s1, sum + lanes), load4(&s2, sum + 2 * lanes), load4(&s3, sum + 3 * lanes);
  load4(&m0, magnitude), load4(&m1, magnitude + lanes), load4(&m2, magnitude + 2 * lanes);
  load4(&m3, magnitude + 3 * lanes);
  for (int64_t k = 0; k < count; ++k) {
    four x0, x1, x2, x3;
    const double *xk = x + k * TOKENS;
    load4(&x0, xk), load4(&x1, xk + lanes), load4(&x2, xk + 2 * lanes), load4(&x3, xk + 3 * lanes);
    x0 *= w[k], x1 *= w[k], x2 *= w[k], x3 *= w[k];
    s0 += x0, s1 += x1, s2 += x2, s3 += x3;
    m0 += absolute4(x0), m1 += absolute4(x1), m2 += absolute4(x2), m3 += absolute4(x3);
  }
  const four s[TOKENS / 4] = {s0, s1, s2, s3};
  const four m[TOKENS / 4] = {m0, m1, m2, m3};
  memcpy(sum, s, sizeof s);
  memcpy(magnitude, m, sizeof m);
}

static void accumulate_portable(const double *x, const double *w, int64_t count, double *sum,
                                double *magnitude) {
  accumulate_body(x, w, count, sum, magnitude);
}

#if defined(__x86_64__)
/* accumulate_body for four lanes: the same operations in the same order, so the results are bit-equal. */
__attribute__((target("avx2"))) static void accumulate_avx2(const double *x, const double *w, int64_t count,
                                                            double *sum, double *magnitude) {
  accumulate_body(x, w, count, sum, magnitude);
}
#endif

typedef void (*accumulate_fn)(const double *x, const double *w, int64_t count, double *sum,
                              double *magnitude);

static accumulate_fn choose_accumulate(void) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return accumulate_avx2;
#endif
  return accumulate_portable;
}

typedef struct reference_job {
  const bs_reference_request *request;
  bs_reference *out;
  const int64_t *order;    /* [K] columns by rank */
  const int64_t *run_end;  /* [ranks] end of each rank's run in order */
  uint32_t ranks;          /* runs: world_size, or 1 without partial sums */
  const double *x_blocks;  /* [ceil(B/16)][K][16], zero padded */
  const double *column_x2; /* [K] sum over tokens of x^2, in `order` */
  const double *bias;      /* [N] or NULL */
  uint64_t *hashes;        /* [features] of each feature's weights */
  accumulate_fn accumulate;
  pthread_t caller; /* this thread reports the progress of all */
  atomic_llong next;
  atomic_int failed;
  atomic_ullong nonfinite;
  pthread_mutex_t lock;
  bs_error error; /* under lock: the first failure */
} reference_job;

/* One token of a block with NaN or Inf: only the products of rank r's own weights (owner NULL: of all), as a
 * zero in another's place times Inf would be NaN. The magnitude is that of the finite products. */
static void sum_with_nonfinite(const double *x, const double *w, int64_t count, const uint32_t *owner,
                               uint32_t r, double *sum, double *magnitude) {
  *sum = *magnitude = 0.0;
  for (int64_t k = 0; k < count; ++k) {
    if (owner && owner[k] != r) continue;
    const double product = x[k * TOKENS] * w[k];
    *sum += product;
    if (isfinite(product)) *magnitude += fabs(product);
  }
}

/* The columns of one rank's weights in the row `w`. With partitions by columns it is a run of the row; else
 * `own` has them, with zeros in the places of others, between its first and its last. */
static const double *weights_of(const reference_job *job, uint32_t r, const double *w, const uint32_t *owner,
                                double *own, int64_t *begin, int64_t *end) {
  const int64_t K = job->out->K;
  if (!job->request->owners) {
    *begin = r > 0 ? job->run_end[r - 1] : 0;
    *end = job->run_end[r];
    return w;
  }
  *begin = *end = 0;
  memset(own, 0, (size_t)K * sizeof *own);
  for (int64_t k = 0; k < K; ++k) {
    if (owner[k] != r) continue;
    if (*end == 0) *begin = k;
    *end = k + 1;
    own[k] = w[k];
  }
  return own;
}

/* Rank by rank, all sums are zero at first. owner and own: [K], of weights with owners of their own. */
static void one_feature(reference_job *job, int64_t f, const double *w, const uint32_t *owner, uint32_t first,
                        double *own) {
  bs_reference *out = job->out;
  const int64_t K = out->K, blocks = (out->B + TOKENS - 1) / TOKENS;
  const double bias = job->bias ? job->bias[out->feature[f]] : 0.0;
  const int owned = job->request->owners != NULL;
  for (uint32_t r = 0; r < (owned ? job->request->world_size : job->ranks); ++r) {
    int64_t begin, end;
    const double *mine = weights_of(job, r, w, owner, own, &begin, &end);
    for (int64_t k = begin; k < end; ++k) out->energy[f] += mine[k] * mine[k] * job->column_x2[k];
    if (end == begin && r != first) continue;
    for (int64_t block = 0; block < blocks; ++block) {
      double part[TOKENS] = {0}, magnitude[TOKENS] = {0};
      const int64_t tokens = out->B - block * TOKENS < TOKENS ? out->B - block * TOKENS : TOKENS;
      const double *x = job->x_blocks + (block * K + begin) * TOKENS;
      job->accumulate(x, mine + begin, end - begin, part, magnitude);
      for (int64_t t = 0; t < tokens; ++t) {
        const int64_t at = (block * TOKENS + t) * out->features + f;
        if (out->token_nonfinite[block * TOKENS + t] || !isfinite(part[t]))
          sum_with_nonfinite(x + t, mine + begin, end - begin, owned ? owner + begin : NULL, r, &part[t],
                             &magnitude[t]);
        if (r == first) part[t] += bias;
        out->y[at] += part[t];
        out->magnitude[at] += magnitude[t] + (r == first && isfinite(bias) ? fabs(bias) : 0.0);
        if (out->partial) out->partial[r][at] = part[t];
      }
    }
  }
  for (int64_t at = f; at < out->B * out->features; at += out->features) {
    if (out->pre) out->pre[at] = out->y[at];
    out->y[at] = bs_activation_value(job->request->activation, out->y[at]);
  }
}

static void job_fail(reference_job *job, const bs_error *err) {
  pthread_mutex_lock(&job->lock);
  if (!atomic_load(&job->failed)) job->error = *err;
  atomic_store(&job->failed, 1);
  pthread_mutex_unlock(&job->lock);
}

/* Equal rows have equal hashes, and so have rows that are multiples of one constant row, as their errors are
 * alike: of these the places that are not zero count. */
static uint64_t hash_of(const double *row, int64_t count) {
  double value = 0.0;
  uint64_t places[2] = {(uint64_t)count, 0};
  for (int64_t k = 0; k < count; ++k) {
    if (row[k] == 0.0) continue;
    if (value != 0.0 && row[k] != value) return bs_hash64(row, (size_t)count * sizeof *row);
    value = row[k];
    places[1] = (uint64_t)k;
    places[0] = bs_hash64(places, sizeof places);
  }
  return places[0];
}

static void *worker(void *arg) {
  reference_job *job = arg;
  bs_reference *out = job->out;
  const size_t columns = (size_t)(out->K > 0 ? out->K : 1);
  bs_error err = BS_ERROR_INIT;
  double *row = malloc(columns * sizeof *row);
  double *w = calloc(columns, sizeof *w);
  uint32_t *owner = calloc(columns, sizeof *owner), first = 0;
  if (!row || !w || !owner) {
    bs_no_memory(&err, "a weight row of %lld columns", (long long)out->K);
    job_fail(job, &err);
  }
  while (row && w && owner && !atomic_load(&job->failed)) {
    const int64_t f = atomic_fetch_add(&job->next, 1);
    if (f >= out->features) break;
    if (job->request->tell && pthread_equal(pthread_self(), job->caller))
      job->request->tell(job->request->tell_user, "reference", (uint64_t)f, (uint64_t)out->features);
    int32_t rc = bs_stop_check(&err);
    if (rc == BS_OK)
      rc = job->request->w->read(job->request->w->ctx, out->feature[f], 1, NULL, BS_F64, row, out->K, &err);
    if (rc == BS_OK && job->request->owners)
      rc = job->request->owners(job->request->owners_ctx, out->feature[f], owner, &first, &err);
    if (rc != BS_OK) {
      job_fail(job, &err);
      break;
    }
    uint64_t bad = 0;
    for (int64_t k = 0; k < out->K; ++k) {
      w[k] = row[job->order[k]];
      bad += !isfinite(w[k]);
    }
    if (bad) atomic_fetch_add(&job->nonfinite, bad);
    job->hashes[f] = hash_of(row, out->K);
    one_feature(job, f, w, owner, first, row); /* the row is not needed any more */
  }
  free(row);
  free(w);
  free(owner);
  return NULL;
}

static double *alloc_doubles(int64_t rows, int64_t cols) {
  uint64_t n = 0;
  if (!bs_mul_u64((uint64_t)rows, (uint64_t)cols, &n) || !bs_mul_u64(n, sizeof(double), &n)) return NULL;
  return calloc(1, n ? n : 1);
}

static void choose_features(bs_reference *out, int64_t max_features) {
  for (int64_t f = 0; f < out->features; ++f) {
    out->feature[f] = max_features > 0 && max_features < out->N && out->features > 1
                          ? (int64_t)((double)f * (double)(out->N - 1) / (double)(out->features - 1))
                          : f;
  }
}

static int32_t alloc_reference(const bs_reference_request *request, bs_reference *out, bs_error *err) {
  memset(out, 0, sizeof *out);
  out->B = request->x->rows;
  out->N = request->w->rows;
  out->K = request->w->cols;
  out->world_size = request->world_size;
  out->features =
      request->max_features > 0 && request->max_features < out->N ? request->max_features : out->N;
  out->feature = calloc((size_t)(out->features > 0 ? out->features : 1), sizeof *out->feature);
  out->y = alloc_doubles(out->B, out->features);
  out->magnitude = alloc_doubles(out->B, out->features);
  out->energy = alloc_doubles(1, out->features);
  out->token_nonfinite = calloc((size_t)(out->B > 0 ? out->B : 1), 1);
  if (request->activation != BS_ACT_NONE) out->pre = alloc_doubles(out->B, out->features);
  int ok = out->feature && out->y && out->magnitude && out->energy && out->token_nonfinite &&
           (out->pre || request->activation == BS_ACT_NONE);
  if (ok && (request->column_rank || (request->owners && request->terms))) {
    out->partial = calloc(request->world_size, sizeof *out->partial);
    ok = out->partial != NULL;
    for (uint32_t r = 0; ok && r < request->world_size; ++r) {
      out->partial[r] = alloc_doubles(out->B, out->features);
      ok = out->partial[r] != NULL;
    }
  }
  if (!ok) {
    bs_reference_free(out);
    return bs_no_memory(err, "a reference of %lld x %lld outputs", (long long)out->B,
                        (long long)out->features);
  }
  choose_features(out, request->max_features);
  return BS_OK;
}

/* Columns ordered by owning rank, ascending within one. */
static void order_columns(const bs_reference_request *request, int64_t K, uint32_t ranks, int64_t *order,
                          int64_t *run_end) {
  int64_t at = 0;
  for (uint32_t r = 0; r < ranks; ++r) {
    for (int64_t k = 0; k < K; ++k) {
      if (!request->column_rank || request->column_rank[k] == r) order[at++] = k;
    }
    run_end[r] = at;
  }
}

static int by_value(const void *a, const void *b) {
  const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

/* The number of independent values whose mean has the same spread: (sum of m)^2 / sum of m^2 over groups of m
 * equal ones. */
static int64_t count_distinct(uint64_t *hashes, int64_t count) {
  double squares = 0.0;
  qsort(hashes, (size_t)count, sizeof *hashes, by_value);
  for (int64_t first = 0, at = 0; first < count; first = at) {
    while (at < count && hashes[at] == hashes[first]) ++at;
    squares += (double)(at - first) * (double)(at - first);
  }
  return squares > 0.0 ? (int64_t)((double)count * (double)count / squares) : 0;
}

/* X as [block][K][16] in the order of `order`, and the columns' squared norms. */
static int32_t load_x(const bs_reference_request *request, bs_reference *out, const int64_t *order,
                      double *x_blocks, double *column_x2, bs_error *err) {
  double *row = malloc((size_t)(out->K > 0 ? out->K : 1) * sizeof *row);
  uint64_t *hashes = malloc((size_t)(out->B > 0 ? out->B : 1) * sizeof *hashes);
  if (!row || !hashes) {
    free(row);
    free(hashes);
    return bs_no_memory(err, "a row of X");
  }
  int32_t rc = BS_OK;
  for (int64_t b = 0; b < out->B && rc == BS_OK; ++b) {
    rc = request->x->read(request->x->ctx, b, 1, NULL, BS_F64, row, out->K, err);
    if (rc == BS_OK) hashes[b] = hash_of(row, out->K);
    for (int64_t k = 0; rc == BS_OK && k < out->K; ++k) {
      const double value = row[order[k]];
      out->nonfinite_inputs += !isfinite(value);
      if (!isfinite(value)) out->token_nonfinite[b] = 1;
      x_blocks[((b / TOKENS) * out->K + k) * TOKENS + b % TOKENS] = value;
      if (isfinite(value)) column_x2[k] += value * value; /* a value that is not finite has no energy */
    }
  }
  if (rc == BS_OK) out->distinct = count_distinct(hashes, out->B);
  free(hashes);
  free(row);
  return rc;
}

static int32_t load_bias(const bs_reference_request *request, bs_reference *out, double **out_bias,
                         bs_error *err) {
  *out_bias = NULL;
  if (!request->bias) return BS_OK;
  double *bias = alloc_doubles(1, out->N);
  if (!bias) return bs_no_memory(err, "the bias");
  const int32_t rc = request->bias->read(request->bias->ctx, 0, 1, NULL, BS_F64, bias, out->N, err);
  if (rc != BS_OK) {
    free(bias);
    return rc;
  }
  for (int64_t n = 0; n < out->N; ++n) out->nonfinite_inputs += !isfinite(bias[n]);
  *out_bias = bias;
  return BS_OK;
}

static void run_workers(reference_job *job, uint32_t threads) {
  pthread_t ids[MAX_THREADS];
  uint32_t started = 0;
  const long cores = sysconf(_SC_NPROCESSORS_ONLN);
  if (threads == 0) threads = cores > 0 ? (uint32_t)cores : 1;
  if (threads > MAX_THREADS) threads = MAX_THREADS;
  for (; started + 1 < threads; ++started) {
    if (pthread_create(&ids[started], NULL, worker, job) != 0) break;
  }
  worker(job);
  for (uint32_t i = 0; i < started; ++i) pthread_join(ids[i], NULL);
}

int32_t bs_reference_compute(const bs_reference_request *request, bs_reference *out, bs_error *err) {
  int32_t rc = alloc_reference(request, out, err);
  if (rc != BS_OK) return rc;
  const uint32_t ranks = request->column_rank ? request->world_size : 1;
  reference_job job = {.request = request, .out = out, .ranks = ranks, .lock = PTHREAD_MUTEX_INITIALIZER};
  int64_t *order = calloc((size_t)(out->K > 0 ? out->K : 1), sizeof *order);
  int64_t *run_end = calloc(ranks, sizeof *run_end);
  uint64_t *hashes = calloc((size_t)(out->features > 0 ? out->features : 1), sizeof *hashes);
  double *column_x2 = alloc_doubles(1, out->K);
  double *bias = NULL;
  int64_t padded = (out->B + TOKENS - 1) / TOKENS * TOKENS;
  double *x_blocks = alloc_doubles(padded, out->K);
  if (!order || !run_end || !hashes || !column_x2 || !x_blocks) {
    rc = bs_no_memory(err, "X of %lld x %lld in fp64", (long long)out->B, (long long)out->K);
  }
  if (rc == BS_OK) {
    if (request->tell) request->tell(request->tell_user, "reference", 0, (uint64_t)out->features);
    order_columns(request, out->K, ranks, order, run_end);
    rc = load_x(request, out, order, x_blocks, column_x2, err);
  }
  if (rc == BS_OK) rc = load_bias(request, out, &bias, err);
  if (rc == BS_OK) {
    job.order = order;
    job.run_end = run_end;
    job.x_blocks = x_blocks;
    job.column_x2 = column_x2;
    job.bias = bias;
    job.hashes = hashes;
    job.accumulate = choose_accumulate();
    job.caller = pthread_self();
    run_workers(&job, request->threads);
    out->nonfinite_inputs += atomic_load(&job.nonfinite);
    if (atomic_load(&job.failed)) {
      rc = job.error.code;
      if (err) *err = job.error;
    } else {
      out->distinct_features = count_distinct(hashes, out->features);
    }
  }
  free(hashes);
  free(order);
  free(run_end);
  free(column_x2);
  free(bias);
  free(x_blocks);
  if (rc != BS_OK) bs_reference_free(out);
  return rc;
}

void bs_reference_free(bs_reference *reference) {
  if (reference->partial) {
    for (uint32_t r = 0; r < reference->world_size; ++r) free(reference->partial[r]);
  }
  free(reference->partial);
  free(reference->feature);
  free(reference->y);
  free(reference->pre);
  free(reference->magnitude);
  free(reference->energy);
  free(reference->token_nonfinite);
  reference->partial = NULL;
  reference->token_nonfinite = NULL;
  reference->feature = NULL;
  reference->y = reference->pre = reference->magnitude = reference->energy = NULL;
}
