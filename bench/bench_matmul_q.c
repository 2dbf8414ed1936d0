/* SPDX-License-Identifier: MIT
 *
 * bench_matmul_q.c - compares products with quantised weights with the f32 product and with two limits of
 * the machine. One limit is a sweep over as many bytes as the weight has, in four streams. The other is a
 * loop of the instruction that multiplies (products of bytes for X in bytes, multiply-adds of f32 for X as
 * it is). The arms run one after the other in each round. Each arm has so many copies of its weight that
 * every call reads it from memory.
 *
 *   bench_matmul_q [--n N] [--k K] [--b B,..] [--schemes w8,w4g32,..] [--x bytes|float|both] [--threads T]
 *                  [--isa auto|avx2] [--rounds R] [--mib MIB] [--clock wall|thread] [-o table|json]
 *
 * The clock of the thread leaves out what other programs take; it is for one thread. A share of a limit is
 * the median of the rounds. The first outputs of each arm are compared with the rows that it gives back, in
 * f64; if they differ, the program ends with exit code 6.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bare.h"
#include "blockshock/plugin.h"
#include "blockshock/rank.h"
#include "core/base/clock.h"
#include "core/op/quant.h"
#include "lab/measure/peak.h"
#include "support.h"

enum { MAX_ARMS = 24, MAX_COPIES = 64, MAX_ROUNDS = 400, MAX_TOKENS = 16, SAME = 8, WARM = 2 };
#define MIB ((uint64_t)1 << 20)
#define SWEPT (256 * MIB) /* at least */
#define PEAK_CALLS 40000
#define SEED_W UINT64_C(20261130)

typedef struct arm {
  char scheme[16]; /* "f32": the product without codes */
  int bytes;       /* X in bytes */
  bs_quant form;
  bench_kernel copies[MAX_COPIES];
  uint32_t n_copies, next;
  double seconds[MAX_ROUNDS], read[MAX_ROUNDS], rate[MAX_ROUNDS]; /* the sweep; operations a second */
} arm;

typedef struct job {
  const char *tokens, *schemes, *x_as, *isa, *clock, *output;
  int64_t n, k, threads, rounds, mib;
  int64_t b[MAX_TOKENS], most;
  uint32_t n_b, n_arms;
  bench_plugin *plugin;
  arm arms[MAX_ARMS];
  char *swept; /* what is read */
  float *x, *y;
} job;

/* One measurement of a limit, which all members of the team share. */
typedef struct probe {
  const char *data;
  uint64_t bytes;
  const bs_reader *reader;
  const bs_peak *loop;
  double sink[64];
} probe;

static double now(const job *j) {
  struct timespec t;
  if (strcmp(j->clock, "thread") != 0 || clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) != 0) return bs_clock_s();
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- limits ------------------------------------------------------------------------------------- */

static void probe_share(void *arg, uint32_t member, uint32_t width) {
  probe *p = arg;
  const uint64_t each = p->bytes / width / BS_READ_UNIT * BS_READ_UNIT;
  double sink = 0.0;
  if (p->reader != NULL) sink = (double)p->reader->run(p->data + each * member, each, 0);
  if (p->loop != NULL) sink = (double)p->loop->run(PEAK_CALLS);
  if (member < 64) p->sink[member] = sink;
}

static int32_t probe_run(const job *j, bench_team *team, probe *p, double *out_seconds, bs_error *err) {
  const double start = now(j);
  const int32_t rc = team->exec.parallel_for(team, probe_share, p);
  *out_seconds = now(j) - start;
  return rc == BS_OK ? BS_OK : bs_fail(err, rc, "BS-BENCH-TEAM", "the team did not run");
}

static int avx2_only(const job *j) {
  return strcmp(j->isa, "avx2") == 0;
}

static const bs_reader *widest_reader(const job *j) {
  const bs_reader *widest = NULL;
  for (uint32_t i = 0; i < BS_READERS; i++) {
    const bs_reader *reader = bs_reader_at(i, avx2_only(j));
    if (reader != NULL) widest = reader;
  }
  return widest;
}

/* The first loop for the dtype; of bytes one of bytes, or none. */
static int peak_loop(const job *j, uint32_t dtype, bs_peak *out) {
  bs_peak loops[BS_PEAKS];
  const uint32_t n = bs_peak_loops(dtype, avx2_only(j), loops, BS_PEAKS);
  for (uint32_t i = 0; i < n; i++) {
    const int of_bytes = strstr(loops[i].name, "vnni") != NULL;
    if (of_bytes != (dtype == BS_I8)) continue;
    *out = loops[i];
    return 1;
  }
  return 0;
}

/* A sweep of as many bytes as the arm's weight, and the loop of its products. */
static int32_t limits(const job *j, bench_team *team, arm *a, int64_t round, bs_error *err) {
  bs_peak loop;
  double seconds = 0.0;
  /* The streams do not begin at the same place of the caches. */
  const uint64_t all = (uint64_t)j->mib * MIB, apart = 65 * BS_READ_UNIT, own = a->copies[0].bytes;
  const uint64_t wanted = own / BS_READ_UNIT * BS_READ_UNIT + apart * team->exec.width, most = all + SWEPT;
  const uint64_t bytes = wanted < most ? wanted : most;
  const uint64_t places = all / bytes > 0 ? all / bytes : 1;
  probe p = {.data = j->swept + (uint64_t)round % places * bytes, .bytes = bytes, .reader = widest_reader(j)};
  int32_t rc = probe_run(j, team, &p, &a->read[round], err);
  a->read[round] *= (double)own / (double)bytes;
  a->rate[round] = 0.0;
  if (rc != BS_OK || !peak_loop(j, a->bytes ? BS_I8 : BS_F32, &loop)) return rc;
  p.reader = NULL;
  p.loop = &loop;
  rc = probe_run(j, team, &p, &seconds, err);
  a->rate[round] = PEAK_CALLS * loop.flops_per_iteration * team->exec.width / seconds;
  return rc;
}

/* ---- weights ------------------------------------------------------------------------------------ */

static uint64_t next(uint64_t *seed) {
  uint64_t z = *seed += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return z ^ (z >> 31);
}

/* Numbers by their row: scales of a few hundredths, exact in f16. */
static int32_t read_codes(void *ctx, int64_t row, int64_t nrows, const bs_quant_rows *out, bs_error *err) {
  const bs_quant *q = ctx;
  const int64_t groups = bs_quant_groups(q), spans = bs_quant_spans(q);
  const uint8_t mask = (uint8_t)((1u << q->bits) - 1u);
  (void)err;
  for (int64_t r = 0; r < nrows; r++) {
    uint64_t seed = SEED_W + (uint64_t)(row + r);
    for (int64_t k = 0; k < q->cols; k += 8) {
      const uint64_t word = next(&seed);
      for (int64_t i = 0; i < 8 && k + i < q->cols; i++)
        out->codes[r * out->codes_stride + k + i] = (uint8_t)(word >> 8 * i) & mask;
    }
    for (int64_t s = r * spans; s < (r + 1) * spans; s++) {
      out->scales[s] = (float)(next(&seed) % 32 + 1) / 1024.0f;
      if (out->lows != NULL) out->lows[s] = (float)(next(&seed) % 32 + 1) / 64.0f;
    }
    for (int64_t g = r * groups; g < (r + 1) * groups; g++) {
      if (out->zeros != NULL) out->zeros[g] = (uint8_t)(next(&seed) % 8 + 4);
      if (out->steps != NULL) out->steps[g] = (int8_t)(next(&seed) % 63 + 1);
      if (out->low_steps != NULL) out->low_steps[g] = (uint8_t)(next(&seed) % 64);
    }
  }
  return BS_OK;
}

static void query_of(const job *j, const arm *a, int64_t tokens, bs_tensor_desc *x, bs_tensor_desc *y,
                     const bs_tensor_desc **args, bs_op_query *out) {
  *x = bs_desc_2d(BS_F32, tokens, j->k);
  *y = bs_desc_2d(BS_F32, tokens, j->n);
  args[0] = x;
  args[1] = args[2] = NULL;
  args[3] = y;
  *out = (bs_op_query){.struct_size = sizeof *out,
                       .nargs = 4,
                       .op = a->form.bits != 0 ? "matmul_q" : "matmul",
                       .args = args,
                       .weight_dtype = BS_F32,
                       .quant = a->form.bits != 0 ? &a->form : NULL};
  out->attrs[0] = a->bytes;
}

static int32_t pack(const job *j, const bench_team *team, arm *a, bs_error *err) {
  bs_tensor_desc x, y;
  const bs_tensor_desc *args[4];
  bs_op_query query;
  bench_matrix w = {SEED_W, j->n, j->k};
  const bs_source source = bench_source(&w, BS_F32);
  int32_t rc = BS_OK;
  uint64_t bytes = 0;
  query_of(j, a, j->most, &x, &y, args, &query);
  while (rc == BS_OK && a->n_copies < MAX_COPIES && (bytes < (uint64_t)j->mib * MIB || a->n_copies == 0)) {
    bench_kernel *kernel = &a->copies[a->n_copies];
    rc = bench_kernel_make(j->plugin, team, a->form.bits != 0 ? "panels" : "packed", &query, &source, kernel,
                           err);
    bytes += kernel->bytes;
    a->n_copies += rc == BS_OK;
  }
  return rc;
}

static int32_t plan(const job *j, const bench_team *team, arm *a, int64_t tokens, bs_error *err) {
  bs_tensor_desc x, y;
  const bs_tensor_desc *args[4];
  bs_op_query query;
  int32_t rc = BS_OK;
  query_of(j, a, tokens, &x, &y, args, &query);
  for (uint32_t i = 0; i < a->n_copies && rc == BS_OK; i++)
    rc = bench_kernel_plan(team, &query, &a->copies[i], err);
  return rc;
}

/* ---- samples ------------------------------------------------------------------------------------ */

static bs_tensor matrix(float *data, int64_t rows, int64_t cols) {
  bs_tensor t = {.struct_size = sizeof t, .dtype = BS_F32, .rank = 2, .data = data};
  t.dims[0] = rows;
  t.dims[1] = t.strides[0] = cols;
  t.strides[1] = 1;
  t.bytes = (uint64_t)(rows * cols) * sizeof(float);
  return t;
}

static int32_t product(const job *j, arm *a, int64_t tokens, double *out_seconds, bs_error *err) {
  bs_tensor x = matrix(j->x, tokens, j->k), y = matrix(j->y, tokens, j->n), *args[4] = {&x, NULL, NULL, &y};
  const bench_kernel *kernel = &a->copies[a->next++ % a->n_copies];
  const double start = now(j);
  const int32_t rc = kernel->impl->run(kernel->plan, args, 4, NULL, err);
  *out_seconds = now(j) - start;
  return rc;
}

/* The first outputs of the last token against the weight's own rows. */
static int32_t judge(const job *j, arm *a, int64_t tokens, bs_error *err) {
  double taken = 0.0, worst = 0.0, size = 0.0;
  float *row = malloc((size_t)j->k * sizeof *row);
  if (row == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-BENCH-MEMORY", "no memory for a row");
  int32_t rc = product(j, a, tokens, &taken, err);
  for (int64_t n = 0; n < SAME && n < j->n && rc == BS_OK; n++) {
    bs_tensor t = matrix(row, 1, j->k);
    double sum = 0.0, squares = 0.0;
    rc = a->copies[0].impl->packed_read(a->copies[0].packed, n, &t, err);
    for (int64_t k = 0; k < j->k && rc == BS_OK; k++) {
      const double term = (double)row[k] * (double)j->x[(tokens - 1) * j->k + k];
      sum += term;
      squares += term * term;
    }
    worst = fmax(worst, fabs(sum - (double)j->y[(tokens - 1) * j->n + n]));
    size = fmax(size, sqrt(squares));
  }
  free(row);
  if (rc != BS_OK || worst <= (a->bytes ? 0.1 : 1e-4) * size) return rc;
  return bs_fail(err, BS_NUMERIC, "BS-BENCH-WRONG", "%s, %lld tokens: an output differs by %.2g of its size",
                 a->scheme, (long long)tokens, worst / size);
}

static int32_t measure(job *j, bench_team *team, int64_t tokens, bs_error *err) {
  int32_t rc = BS_OK;
  for (uint32_t i = 0; i < j->n_arms && rc == BS_OK; i++) {
    rc = plan(j, team, &j->arms[i], tokens, err);
    if (rc == BS_OK) rc = judge(j, &j->arms[i], tokens, err);
  }
  for (int64_t r = -WARM; r < j->rounds && rc == BS_OK; r++) {
    const int64_t at = r < 0 ? 0 : r;
    for (uint32_t k = 0; k < j->n_arms && rc == BS_OK; k++) {
      arm *a = &j->arms[(k + (uint64_t)(r + WARM)) % j->n_arms];
      rc = limits(j, team, a, at, err);
      if (rc == BS_OK) rc = product(j, a, tokens, &a->seconds[at], err);
    }
  }
  return rc;
}

/* ---- report ------------------------------------------------------------------------------------- */

/* The median over rounds of `of` over the arm's seconds; rate: work / (rate seconds). */
static double share(const job *j, const arm *a, const double *of, double work) {
  double shares[MAX_ROUNDS];
  for (int64_t r = 0; r < j->rounds; r++)
    shares[r] = work > 0.0 ? (of[r] > 0.0 ? work / of[r] / a->seconds[r] : 0.0) : of[r] / a->seconds[r];
  return bs_median(shares, (size_t)j->rounds);
}

static void report(const job *j, int64_t tokens) {
  const double work = 2.0 * (double)tokens * (double)j->n * (double)j->k;
  for (uint32_t i = 0; i < j->n_arms; i++) {
    const arm *a = &j->arms[i];
    const double us = bs_median(a->seconds, (size_t)j->rounds) * 1e6;
    const double read = share(j, a, a->read, 0.0), rate = share(j, a, a->rate, work);
    const double f32 = share(j, a, j->arms[0].seconds, 0.0);
    const char *x = a->bytes ? "bytes" : "float";
    if (strcmp(j->output, "json") == 0)
      printf(
          "{\"bench\":\"matmul_q\",\"isa\":\"%s\",\"threads\":%lld,\"n\":%lld,\"k\":%lld,\"b\":%lld,"
          "\"weight\""
          ":\"%s\",\"x\":\"%s\",\"us\":%.5g,\"of_read\":%.4f,\"of_products\":%.4f,\"f32_over\":%.4f}\n",
          j->isa, (long long)j->threads, (long long)j->n, (long long)j->k, (long long)tokens, a->scheme, x,
          us, read, rate, f32);
    else
      printf(
          "%-8s %-6s %4lld tokens %10.1f us   %.3f of the read limit   %.3f of that of products   f32 / it "
          "%.3f\n",
          a->scheme, x, (long long)tokens, us, read, rate, f32);
  }
  fflush(stdout);
}

/* ---- the run ------------------------------------------------------------------------------------ */

static int32_t rank_main(bs_rank *rank, void *arg, bs_error *err) {
  job *j = arg;
  bench_team team;
  int32_t rc = BS_OK;
  bench_team_make(j->plugin, rank, (uint32_t)j->threads, &team);
  for (uint32_t i = 0; i < j->n_arms && rc == BS_OK; i++) rc = pack(j, &team, &j->arms[i], err);
  for (uint32_t i = 0; i < j->n_b && rc == BS_OK; i++) {
    rc = measure(j, &team, j->b[i], err);
    if (rc == BS_OK) report(j, j->b[i]);
  }
  for (uint32_t i = 0; i < j->n_arms; i++)
    for (uint32_t c = 0; c < j->arms[i].n_copies; c++) bench_kernel_free(&j->arms[i].copies[c]);
  bench_team_free(&team);
  return rc;
}

/* The f32 product first, then each scheme. */
static int32_t make_arms(job *j, bs_error *err) {
  char name[16];
  const int both = strcmp(j->x_as, "both") == 0;
  int32_t rc = BS_OK;
  snprintf(j->arms[0].scheme, sizeof j->arms[0].scheme, "f32");
  j->n_arms = 1;
  for (const char *at = j->schemes; *at != '\0' && rc == BS_OK;) {
    const size_t length = strcspn(at, ",");
    snprintf(name, sizeof name, "%.*s", (int)length, at);
    at += length + (at[length] == ',');
    for (int bytes = 1; bytes >= 0 && rc == BS_OK; bytes--) {
      if (!both && bytes != (strcmp(j->x_as, "bytes") == 0)) continue;
      if (j->n_arms == MAX_ARMS)
        return bs_fail(err, BS_USAGE, "BS-BENCH-ARMS", "more than %d arms", MAX_ARMS);
      arm *a = &j->arms[j->n_arms++];
      memcpy(a->scheme, name, sizeof name);
      a->bytes = bytes;
      rc = bs_quant_scheme(name, j->n, j->k, &a->form, err);
      a->form.ctx = &a->form;
      a->form.read = read_codes;
    }
  }
  return rc;
}

static int32_t make_numbers(job *j, bs_error *err) {
  char *end = NULL;
  uint64_t seed = 1;
  for (const char *at = j->tokens; *at != '\0' && j->n_b < MAX_TOKENS; at = *end == ',' ? end + 1 : end) {
    const long long b = strtoll(at, &end, 10);
    if (end == at || b < 1 || b > 4096 || (*end != ',' && *end != '\0'))
      return bs_fail(err, BS_USAGE, "BS-BENCH-TOKENS", "--b %s: numbers of tokens, 1 to 4096", j->tokens);
    j->b[j->n_b++] = b;
    if (b > j->most) j->most = b;
  }
  j->swept = bench_huge_alloc((uint64_t)j->mib * MIB + SWEPT);
  j->x = bench_huge_alloc((uint64_t)(j->most * j->k) * sizeof(float));
  j->y = bench_huge_alloc((uint64_t)(j->most * j->n) * sizeof(float));
  if (j->swept == NULL || j->x == NULL || j->y == NULL)
    return bs_fail(err, BS_NO_MEMORY, "BS-BENCH-MEMORY", "no memory for the numbers");
  memset(j->swept, 1, (uint64_t)j->mib * MIB + SWEPT); /* zero pages would be one page */
  for (int64_t i = 0; i < j->most * j->k; i++)
    j->x[i] = (float)(int32_t)(next(&seed) >> 40) * 0x1p-23f - 1.0f;
  return BS_OK;
}

int main(int argc, char **argv) {
  static job j = {.tokens = "1,64,256",
                  .schemes = "w8,w8g32,w4g32,w4k,w6k",
                  .x_as = "bytes",
                  .isa = "auto",
                  .output = "table",
                  .clock = "wall",
                  .n = 4096,
                  .k = 4096,
                  .threads = 1,
                  .rounds = 21,
                  .mib = 256};
  const bench_option options[] = {
      {"--n", 'i', &j.n, 1, 65536},       {"--k", 'i', &j.k, 1, 65536},
      {"--b", 's', &j.tokens, 0, 0},      {"--schemes", 's', &j.schemes, 0, 0},
      {"--x", 's', &j.x_as, 0, 0},        {"--threads", 'i', &j.threads, 1, 64},
      {"--isa", 's', &j.isa, 0, 0},       {"--rounds", 'i', &j.rounds, 3, MAX_ROUNDS},
      {"--mib", 'i', &j.mib, 0, 1 << 14}, {"--clock", 's', &j.clock, 0, 0},
      {"-o", 's', &j.output, 0, 0}};
  if (!bench_parse("bench_matmul_q", argc, argv, options, sizeof options / sizeof options[0])) return 2;
  bs_error err = {.struct_size = sizeof err};
  bs_context *context = NULL;
  bs_world *world = NULL;
  int32_t rc = make_numbers(&j, &err);
  if (rc == BS_OK) rc = make_arms(&j, &err);
  if (rc == BS_OK) rc = bench_context(&context, &err);
  if (rc == BS_OK) rc = bench_plugin_open(context, "cpu", j.isa, &j.plugin, &err);
  const bs_world_options world_options = {.struct_size = sizeof world_options,
                                          .world_size = 1,
                                          .backend = "cpu",
                                          .threads_per_rank = (uint32_t)j.threads,
                                          .bind = 1};
  if (rc == BS_OK) rc = bs_world_create(context, &world_options, &world, &err);
  if (rc == BS_OK) rc = bs_world_run(world, rank_main, &j, &err);
  bs_world_destroy(world);
  bench_plugin_close(j.plugin);
  if (context != NULL) bs_context_close(context);
  free(j.swept);
  free(j.x);
  free(j.y);
  return rc == BS_OK ? 0 : bench_fail("bench_matmul_q", &err);
}
