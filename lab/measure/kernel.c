/* SPDX-License-Identifier: MIT
 * kernel.c - see kernel.h. Ranks of one thread, each with its rows of one weight, multiply at the same time;
 * a round's time is the slowest rank's. Of many tokens the best round counts, as with the other constants:
 * arithmetic is the same at any time. Of one token the median does: what memory gives a machine with
 * neighbours moves by a third from second to second, and the best second is nobody's median. Each world
 * runs twice, in turn, so that a disturbance of half a second does not become a constant. */
#include "lab/measure/kernel.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "lab/peers/peers.h"
#include "lab/store/env.h"
#include "lab/tune/tune.h"

enum { MANY = 64, ROUNDS = 7, LONG_ROUNDS = 3, PASSES = 2, TRIAL_B = 4, MAX_RANKS = 64 };
#define KIB 1024.0
static const double LEAST = 64 * KIB, MOST = 262144 * KIB, TRIAL = 256 * KIB;
static const double ROUND_SECONDS = 2e-3; /* of one round, at least */
static const double LONG_SECONDS = 0.01;  /* a round this long is repeated less often */
static const double CALL_SECONDS = 0.1;   /* of one product of MANY tokens, at most */

/* ---- identity ----------------------------------------------------------------------------------- */

/* What the candidates' lines ("NAME<tab>HOW") say of `name`. */
static void read_how(const char *lines, const char *name, char *out, size_t size) {
  const size_t length = strlen(name);
  out[0] = '\0';
  for (const char *at = lines; at != NULL && *at != '\0';) {
    const size_t line = strcspn(at, "\n");
    if (line > length && memcmp(at, name, length) == 0 && at[length] == '\t')
      snprintf(out, size, "%.*s", (int)(line - length - 1), at + length + 1);
    at += line + (at[line] == '\n');
  }
}

/* Fills name, how and plugin; out_key may be NULL. */
static int32_t read_choice(const bs_world *world, bs_context *context, bs_kernel *out, bs_text *out_key,
                           bs_error *err) {
  for (uint32_t i = 0; i < bs_world_choice_count(world); ++i) {
    bs_choice_info info = {.struct_size = sizeof info};
    int32_t rc = bs_world_choice_get(world, i, &info, err);
    if (rc != BS_OK) return rc;
    if (strncmp(info.key, "matmul@", 7) != 0 || info.chosen[0] == '\0') continue;
    json_t *plugins = NULL;
    rc = bs_env_plugins(context, &plugins, err);
    if (rc != BS_OK) return rc;
    snprintf(out->name, sizeof out->name, "%s", info.chosen);
    read_how(info.candidates, out->name, out->how, sizeof out->how);
    json_t *row = bs_tune_candidate(plugins, out->name, out->how);
    const char *plugin = json_string_value(json_object_get(row, "plugin"));
    snprintf(out->plugin, sizeof out->plugin, "%s", plugin != NULL ? plugin : "");
    json_decref(row);
    json_decref(plugins);
    if (out_key != NULL) bs_text_printf(out_key, "%s", info.key);
    return BS_OK;
  }
  return bs_error_set(err, BS_NOT_FOUND, "BS-KERNEL-NONE", "no matmul with a packed weight was asked for");
}

static int32_t build(bs_rank *rank, void *arg, bs_error *err) {
  const bs_case *c = arg;
  bs_layer *layer = NULL;
  const int32_t rc = bs_layer_build(rank, c->method, &c->spec, c->w, c->bias, &layer, err);
  bs_layer_free(layer);
  return rc;
}

int32_t bs_kernel_identify(const bs_case *c, bs_kernel *out, bs_error *err) {
  bs_case copy = *c;
  bs_world *world = NULL;
  const bs_world_options options = {.struct_size = sizeof options,
                                    .world_size = c->world_size,
                                    .backend = c->backend,
                                    .comm = bs_peers_alone(c->context, c->comm),
                                    .threads_per_rank = c->threads_per_rank,
                                    .timeout_s = c->timeout_s,
                                    .choices = c->choices,
                                    .n_choices = c->n_choices,
                                    .rehearse = 1};
  memset(out, 0, sizeof *out);
  int32_t rc = bs_world_create(c->context, &options, &world, err);
  if (rc == BS_OK) rc = bs_world_run(world, build, &copy, err);
  if (rc == BS_OK) rc = read_choice(world, c->context, out, NULL, err);
  bs_world_destroy(world);
  return rc;
}

int bs_kernel_same(const bs_kernel *a, const bs_kernel *b) {
  return a->name[0] != '\0' && strcmp(a->name, b->name) == 0 && strcmp(a->how, b->how) == 0 &&
         strcmp(a->plugin, b->plugin) == 0;
}

/* ---- one world that multiplies ------------------------------------------------------------------ */

typedef struct product {
  uint32_t dtype, ranks;
  int64_t N, K; /* of all ranks together; N a multiple of ranks */
  int64_t tokens[2];
  int rehearse;
  uint64_t calls; /* of the round in progress */
  double rank_seconds[MAX_RANKS];
  double seconds[2]; /* of one product of tokens[i] */
} product;

/* Small numbers that every dtype has, none zero. */
static int32_t pattern(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                       void *out, int64_t stride, bs_error *err) {
  static const float few[8] = {0.5f, -1.0f, 0.25f, 1.0f, -0.5f, 2.0f, -0.25f, -2.0f};
  const int64_t count = cols != NULL ? cols->count : *(const int64_t *)ctx;
  const size_t size = BS_DTYPE_BYTES(dtype);
  uint64_t block[8]; /* eight values of at most eight bytes */
  const int32_t rc = bs_convert(dtype, block, BS_F32, few, 8);
  if (rc != BS_OK) return bs_error_set(err, rc, "BS-KERNEL-DTYPE", "no numbers of %s", bs_dtype_name(dtype));
  for (int64_t r = 0; r < nrows; ++r) {
    char *to = (char *)out + (size_t)(r * stride) * size;
    for (int64_t i = 0; i < count; i += 8)
      memcpy(to + (size_t)i * size, block, (size_t)(count - i < 8 ? count - i : 8) * size);
  }
  (void)row;
  return BS_OK;
}

static bs_tensor_desc matrix(uint32_t dtype, int64_t rows, int64_t cols) {
  bs_tensor_desc d = {.struct_size = sizeof d, .dtype = dtype, .rank = 2};
  d.dims[0] = rows;
  d.dims[1] = cols;
  return d;
}

typedef struct work {
  bs_rank *rank;
  uint32_t index;
  product *p;
  bs_packed *weight;
  bs_plan *plan[2];
  bs_tensor x, y;
} work;

static int32_t query(work *w, int which, int pack, bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  product *p = w->p;
  int64_t K = p->K;
  const bs_source source = {.struct_size = sizeof source,
                            .dtype = p->dtype,
                            .rows = p->N / p->ranks,
                            .cols = p->K,
                            .ctx = &K,
                            .read = pattern};
  const bs_tensor_desc x = matrix(p->dtype, p->tokens[which], p->K);
  const bs_tensor_desc y = matrix(p->dtype, p->tokens[which], p->N / p->ranks);
  const bs_tensor_desc *const args[] = {&x, NULL, NULL, &y};
  const bs_op_query q = {.struct_size = sizeof q,
                         .nargs = 4,
                         .op = "matmul",
                         .args = args,
                         .flags = BS_QUERY_DETERMINISTIC,
                         .weight_dtype = p->dtype};
  if (pack) return api->pack(w->rank, &q, &source, &w->weight, err);
  return api->op_prepare(w->rank, &q, w->weight, &w->plan[which], err);
}

static int32_t make(work *w, bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  const product *p = w->p;
  int64_t K = p->K;
  const bs_tensor_desc x = matrix(p->dtype, p->tokens[0], p->K);
  const bs_tensor_desc y = matrix(p->dtype, p->tokens[0], p->N / p->ranks);
  const bs_source source = {.struct_size = sizeof source,
                            .dtype = p->dtype,
                            .rows = p->tokens[0],
                            .cols = p->K,
                            .ctx = &K,
                            .read = pattern};
  int32_t rc = query(w, 0, 1, err);
  if (rc != BS_OK || p->rehearse) return rc;
  for (int i = 0; rc == BS_OK && i < 2; ++i) rc = query(w, i, 0, err);
  if (rc == BS_OK) rc = api->tensor_alloc(w->rank, &x, BS_LIFE_ACTIVATION, &w->x, err);
  if (rc == BS_OK) rc = api->tensor_alloc(w->rank, &y, BS_LIFE_ACTIVATION, &w->y, err);
  if (rc == BS_OK) rc = api->tensor_read(w->rank, &source, 0, NULL, &w->x, err);
  return rc;
}

/* The slowest rank's seconds of one call. */
static int32_t one_round(work *w, int which, double *out_seconds, bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  product *p = w->p;
  bs_tensor x = w->x, y = w->y;
  bs_tensor *const args[] = {&x, NULL, NULL, &y};
  x.dims[0] = y.dims[0] = p->tokens[which];
  int32_t rc = bs_rank_barrier(w->rank, "lab.kernel.start", err);
  const uint64_t calls = p->calls, start = bs_rank_clock_ns(w->rank);
  for (uint64_t i = 0; rc == BS_OK && i < calls; ++i) rc = api->op_run(w->plan[which], args, 4, NULL, err);
  if (rc == BS_OK) rc = bs_rank_sync(w->rank, err);
  p->rank_seconds[w->index] = (double)(bs_rank_clock_ns(w->rank) - start) * 1e-9 / (double)calls;
  if (rc == BS_OK) rc = bs_rank_barrier(w->rank, "lab.kernel.end", err);
  *out_seconds = 0.0;
  for (uint32_t r = 0; r < p->ranks; ++r) *out_seconds = fmax(*out_seconds, p->rank_seconds[r]);
  return rc;
}

static int by_value(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Every rank sees the same times, and so agrees on how many calls a round has. */
static int32_t time_one(work *w, int which, bs_error *err) {
  product *p = w->p;
  double first = 0.0, seconds[ROUNDS] = {0};
  int32_t rc = bs_rank_barrier(w->rank, "lab.kernel.calls", err);
  if (rc == BS_OK && w->index == 0) p->calls = 1;
  rc = rc == BS_OK ? one_round(w, which, &first, err) : rc; /* warms up */
  if (rc == BS_OK && first < LONG_SECONDS) rc = one_round(w, which, &first, err);
  if (rc == BS_OK) rc = bs_rank_barrier(w->rank, "lab.kernel.calls", err);
  if (rc == BS_OK && w->index == 0)
    p->calls = (uint64_t)fmin(1000.0, 1.0 + ROUND_SECONDS / fmax(first, 1e-9));
  const int rounds = first > LONG_SECONDS ? LONG_ROUNDS : ROUNDS;
  for (int i = 0; rc == BS_OK && i < rounds; ++i) rc = one_round(w, which, &seconds[i], err);
  if (rc != BS_OK || w->index != 0) return rc;
  qsort(seconds, (size_t)rounds, sizeof seconds[0], by_value);
  p->seconds[which] = seconds[p->tokens[which] == 1 ? rounds / 2 : 0];
  return rc;
}

static int32_t rank_main(bs_rank *rank, void *arg, bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  work w = {.rank = rank, .index = api->rank(rank), .p = arg};
  int32_t rc = make(&w, err);
  for (int i = 0; rc == BS_OK && !w.p->rehearse && i < 2; ++i) rc = time_one(&w, i, err);
  for (int i = 0; i < 2; ++i)
    if (w.plan[i]) api->op_release(w.plan[i]);
  if (w.weight) api->packed_release(w.weight);
  if (w.x.data) api->tensor_free(rank, &w.x);
  if (w.y.data) api->tensor_free(rank, &w.y);
  return rc;
}

/* One world of the product; with out_key a rehearsal that learns its key, else `choice` (may be NULL) holds.
 */
static int32_t run_world(const bs_case *like, product *p, const char *choice, bs_kernel *out,
                         bs_text *out_key, bs_error *err) {
  bs_world *world = NULL;
  const bs_world_options options = {.struct_size = sizeof options,
                                    .world_size = p->ranks,
                                    .backend = like->backend,
                                    .comm = "threads", /* they meet at barriers only */
                                    .threads_per_rank = 1,
                                    .bind = like->bind,
                                    .sync_mode = BS_SYNC_NONE,
                                    .timeout_s = like->timeout_s,
                                    .choices = choice != NULL ? &choice : NULL,
                                    .n_choices = choice != NULL,
                                    .rehearse = out_key != NULL};
  p->rehearse = out_key != NULL;
  int32_t rc = bs_world_create(like->context, &options, &world, err);
  if (rc == BS_OK) rc = bs_world_run(world, rank_main, p, err);
  if (rc == BS_OK) rc = read_choice(world, like->context, out, out_key, err);
  bs_world_destroy(world);
  return rc;
}

/* ---- rates -------------------------------------------------------------------------------------- */

/* N x K of about so many bytes, N a multiple of the ranks: square, K at most 4096. */
static void shape(product *p, double bytes, uint32_t most_ranks) {
  const uint32_t size = BS_DTYPE_BYTES(p->dtype);
  const double elements = bytes / size;
  p->K = 64;
  while (p->K < 4096 && (double)(4 * p->K * p->K) <= elements) p->K *= 2;
  p->N = (int64_t)(elements / (double)p->K);
  p->N -= p->N % most_ranks;
  if (p->N < most_ranks) p->N = most_ranks;
}

static double weight_bytes(const product *p) {
  const uint32_t size = BS_DTYPE_BYTES(p->dtype);
  return (double)p->N * (double)p->K * size;
}

/* With the implementation out->name, or the default when it is empty. */
static int32_t run_product(const bs_case *like, product *p, bs_kernel *out, bs_error *err) {
  bs_text choice = {0};
  bs_kernel found = {0};
  int32_t rc = BS_OK;
  if (out->name[0] != '\0') {
    rc = run_world(like, p, NULL, &found, &choice, err);
    bs_text_printf(&choice, " -> %s", out->name);
    if (rc == BS_OK && choice.failed) rc = bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  }
  if (rc == BS_OK) rc = run_world(like, p, choice.data, &found, NULL, err);
  bs_text_free(&choice);
  if (rc != BS_OK) return rc;
  if (out->name[0] != '\0' && strcmp(out->name, found.name) != 0)
    return bs_error_set(err, BS_UNSUPPORTED, "BS-KERNEL-OTHER",
                        "%.60s does not serve %s %lldx%lld, %.60s does", out->name, bs_dtype_name(p->dtype),
                        (long long)p->N, (long long)p->K, found.name);
  snprintf(out->name, sizeof out->name, "%s", found.name);
  snprintf(out->how, sizeof out->how, "%s", found.how);
  snprintf(out->plugin, sizeof out->plugin, "%s", found.plugin);
  return BS_OK;
}

static void rates_of(const product *p, double *out_flops, double *out_bytes) {
  const uint32_t size = BS_DTYPE_BYTES(p->dtype);
  const double flops = 2.0 * (double)p->N * (double)p->K;
  const double token = size * ((double)p->K * p->ranks + (double)p->N); /* each rank reads all of x */
  const bs_two_points t = {.seconds_many = p->seconds[0],
                           .seconds_one = p->seconds[1],
                           .flops_many = (double)p->tokens[0] * flops,
                           .flops_one = (double)p->tokens[1] * flops,
                           .bytes_many = weight_bytes(p) + (double)p->tokens[0] * token,
                           .bytes_one = weight_bytes(p) + (double)p->tokens[1] * token};
  bs_kernel_rates(&t, out_flops, out_bytes);
}

/* One core alone, then all; seconds: [alone, all][many, one], of all passes together. */
static int32_t pass(const bs_case *like, product *p, uint32_t threads, bs_kernel *out, double seconds[2][2],
                    bs_error *err) {
  for (int all = 0; all <= (threads > 1); ++all) {
    p->ranks = all ? threads : 1;
    const int32_t rc = run_product(like, p, out, err);
    if (rc != BS_OK) return rc;
    seconds[all][0] = fmin(seconds[all][0], p->seconds[0]);
    seconds[all][1] += p->seconds[1] / PASSES;
  }
  return BS_OK;
}

int32_t bs_kernel_measure(const bs_case *like, uint32_t dtype, double footprint, bs_kernel *out,
                          bs_error *err) {
  const uint32_t threads = bs_machine_threads();
  double bytes = fmin(fmax(footprint, LEAST), MOST), seconds[2][2] = {{INFINITY, 0.0}, {INFINITY, 0.0}};
  product p = {.dtype = dtype, .ranks = 1, .tokens = {TRIAL_B, 1}};
  bs_kernel trial = *out; /* with few tokens another may be the default */
  shape(&p, fmin(bytes, TRIAL), threads);
  int32_t rc = run_product(like, &p, &trial, err);
  if (rc != BS_OK) return rc;
  const double second = TRIAL_B * weight_bytes(&p) / fmax(p.seconds[0], 1e-9); /* token bytes a second */
  while (bytes > LEAST && MANY * bytes > second * CALL_SECONDS) bytes /= 2;
  shape(&p, bytes, threads);
  p.tokens[0] = MANY;
  out->footprint = weight_bytes(&p);
  out->source = "measured";
  for (int i = 0; rc == BS_OK && i < PASSES; ++i) rc = pass(like, &p, threads, out, seconds, err);
  if (rc != BS_OK) return rc;
  p.ranks = 1;
  memcpy(p.seconds, seconds[0], sizeof p.seconds);
  rates_of(&p, &out->flops_core, &out->bytes_core);
  p.ranks = threads;
  if (threads > 1) memcpy(p.seconds, seconds[1], sizeof p.seconds);
  rates_of(&p, &out->flops_all, &out->bytes_all);
  return BS_OK;
}

json_t *bs_kernel_json(const bs_kernel *k) {
  return json_pack("{s:s,s:s,s:s,s:f,s:f,s:f,s:f,s:f}", "name", k->name, "how", k->how, "plugin", k->plugin,
                   "footprint_bytes", k->footprint, "flops_core", k->flops_core, "flops_all", k->flops_all,
                   "bytes_per_s_core", k->bytes_core, "bytes_per_s_all", k->bytes_all);
}
