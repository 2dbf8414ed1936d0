/* SPDX-License-Identifier: MIT
 * kernel.c - see kernel.h. Ranks of one thread, each with its rows of one weight, multiply at the same time;
 * a round's time is the slowest rank's. With many tokens the best round counts, as with the other constants:
 * arithmetic always takes the same time. With one token the median counts: with neighbours on the machine the
 * memory rate changes by a third from second to second, and the best second would be far from any median. The
 * worlds run alternately, until two passes agree, so that a disturbance of half a second does not become a
 * constant. */
#include "lab/measure/kernel.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/text.h"
#include "lab/case/ask.h"
#include "lab/error.h"
#include "lab/measure/product.h"
#include "lab/measure/stats.h"
#include "lab/peers/peers.h"
#include "lab/store/env.h"

enum { MANY = 64, PASSES = 3, TRIAL_B = 4 };
#define KIB 1024.0
static const double LEAST = 64 * KIB, MOST = 262144 * KIB, TRIAL = 256 * KIB, BACKWARD_MOST = 2048 * KIB;
static const double CALL_SECONDS = 0.04;     /* of one product of MANY tokens, at most */
static const double BACKWARD_SECONDS = 2e-3; /* of a forward of it, since dX and dW take many times that */

/* ---- identity ----------------------------------------------------------------------------------- */

/* Is it the key of a product with a packed weight, and of which? */
static int is_product(const char *key, uint32_t *out_of24) {
  *out_of24 = strncmp(key, "matmul24@", 9) == 0;
  return *out_of24 || strncmp(key, "matmul@", 7) == 0;
}

/* Fills name, how, plugin and of24 from the first query; out_key may be NULL. */
static int32_t read_choice(const bs_world *world, bs_context *context, bs_kernel *out, bs_text *out_key,
                           bs_error *err) {
  for (uint32_t i = 0; i < bs_world_choice_count(world); ++i) {
    bs_choice_info info = {.struct_size = sizeof info};
    int32_t rc = bs_world_choice_get(world, i, &info, err);
    if (rc != BS_OK) return rc;
    if (!is_product(info.key, &out->of24) || info.chosen[0] == '\0') continue;
    json_t *plugins = NULL;
    rc = bs_env_plugins(context, &plugins, err);
    if (rc != BS_OK) return rc;
    snprintf(out->name, sizeof out->name, "%s", info.chosen);
    json_t *list = bs_tune_candidates(plugins, info.candidates);
    const json_t *row = bs_tune_row(list, info.chosen);
    snprintf(out->how, sizeof out->how, "%s", bs_tune_text(row, "how"));
    snprintf(out->plugin, sizeof out->plugin, "%s", bs_tune_text(row, "plugin"));
    json_decref(list);
    json_decref(plugins);
    if (out_key != NULL) bs_text_printf(out_key, "%s", info.key);
    return BS_OK;
  }
  return bs_error_set(err, BS_NOT_FOUND, "BS-KERNEL-NONE", "no matmul with a packed weight was asked for");
}

int32_t bs_kernel_identify(const bs_case *c, bs_kernel *out, bs_error *err) {
  bs_world *world = NULL;
  memset(out, 0, sizeof *out);
  int32_t rc = bs_tune_rehearse(c, &world, err);
  if (rc == BS_OK) rc = read_choice(world, c->context, out, NULL, err);
  bs_world_destroy(world);
  return rc;
}

int bs_kernel_same(const bs_kernel *a, const bs_kernel *b) {
  return a->name[0] != '\0' && a->of24 == b->of24 && strcmp(a->name, b->name) == 0 &&
         strcmp(a->how, b->how) == 0 && strcmp(a->plugin, b->plugin) == 0;
}

/* ---- worlds ------------------------------------------------------------------------------------- */

/* One world of the product; with out_key a rehearsal that learns its key, else `choice` (may be NULL) holds.
 */
static int32_t run_world(const bs_case *like, bs_product *p, const char *choice, bs_kernel *out,
                         bs_text *out_key, bs_error *err) {
  bs_world *world = NULL;
  const bs_world_options options = {.struct_size = sizeof options,
                                    .world_size = p->ranks,
                                    .backend = like->backend,
                                    .comm = "threads", /* they meet at barriers only */
                                    .threads_per_rank = p->threads,
                                    .bind = like->bind,
                                    .sync_mode = BS_SYNC_NONE,
                                    .timeout_s = like->timeout_s,
                                    .choices = choice != NULL ? &choice : NULL,
                                    .n_choices = choice != NULL,
                                    .rehearse = out_key != NULL};
  p->rehearse = out_key != NULL;
  int32_t rc = bs_world_create(like->context, &options, &world, err);
  if (rc == BS_OK) rc = bs_world_run(world, bs_product_main, p, err);
  if (rc == BS_OK) rc = read_choice(world, like->context, out, out_key, err);
  bs_world_destroy(world);
  return rc;
}

/* ---- rates -------------------------------------------------------------------------------------- */

/* N x K of about so many bytes, N a multiple of the ranks: square, K at most 4096. */
static void shape(bs_product *p, double bytes, uint32_t most_ranks) {
  const double elements = bytes / bs_product_bytes(p);
  p->K = 64;
  while (p->K < 4096 && (double)(4 * p->K * p->K) <= elements) p->K *= 2;
  p->N = (int64_t)(elements / (double)p->K);
  p->N -= p->N % most_ranks;
  if (p->N < most_ranks) p->N = most_ranks;
}

static double weight_bytes(const bs_product *p) {
  return (double)p->N * (double)p->K * bs_product_bytes(p);
}

/* Runs it with the implementation out->name, or the default if that is empty. */
static int32_t run_product(const bs_case *like, bs_product *p, bs_kernel *out, bs_error *err) {
  bs_text choice = {0};
  bs_kernel found = {0};
  int32_t rc = BS_OK;
  if (out->name[0] != '\0') {
    rc = run_world(like, p, NULL, &found, &choice, err);
    bs_text_printf(&choice, " -> %s", out->name);
    if (rc == BS_OK && choice.failed) rc = bs_no_memory(err, "a choice");
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

/* The cores that multiply: one core; all cores, each a rank with its part; all cores, as the team of one
 * rank. */
enum { ALONE, RANKS, TEAM, WAYS };
typedef struct way {
  bs_passes many;
  double one[PASSES];
} way;

/* The ranks are those of p. */
static void rates_of(const bs_product *p, const way *w, double *out_flops, double *out_bytes) {
  const uint32_t size = BS_DTYPE_BYTES(p->dtype);
  const double flops = (p->of24 ? 1.0 : 2.0) * (double)p->N * (double)p->K;
  const double token = size * ((double)p->K * p->ranks + (double)p->N); /* each rank reads all of x */
  const bs_two_points t = {.seconds_many = w->many.best,
                           .seconds_one = bs_median(w->one, w->many.n),
                           .flops_many = (double)p->tokens[0] * flops,
                           .flops_one = (double)p->tokens[1] * flops,
                           .bytes_many = weight_bytes(p) + (double)p->tokens[0] * token,
                           .bytes_one = weight_bytes(p) + (double)p->tokens[1] * token};
  bs_kernel_rates(&t, out_flops, out_bytes);
}

static void go_way(bs_product *p, int i, uint32_t threads) {
  p->ranks = i == RANKS ? threads : 1;
  p->threads = i == TEAM ? threads : 1;
}

/* Runs passes of all ways alternately, until each way's two shortest agree. */
static int32_t all_ways(const bs_case *like, bs_product *p, uint32_t threads, bs_kernel *out, way *ways,
                        bs_error *err) {
  const int n = threads > 1 ? WAYS : 1;
  for (int pass = 0, agree = 0; pass < PASSES && !agree; ++pass) {
    agree = 1;
    for (int i = 0; i < n; ++i) {
      go_way(p, i, threads);
      const int32_t rc = run_product(like, p, out, err);
      if (rc != BS_OK) return rc;
      bs_passes_add(&ways[i].many, p->seconds[0]);
      ways[i].one[pass] = p->seconds[1];
      agree = agree && bs_passes_enough(&ways[i].many);
    }
  }
  for (int i = 0; i < n; ++i) out->spread = fmax(out->spread, bs_passes_spread(&ways[i].many));
  return BS_OK;
}

/* Limits a rate that the other part of its forward hides: it is at most that of all cores together. */
static void limit_to_all(const way *ways, bs_kernel *k) {
  double one[WAYS];
  for (int i = 0; i < WAYS; ++i) one[i] = bs_median(ways[i].one, ways[i].many.n);
  k->all_over_core = fmax(fmin(ways[RANKS].many.best, ways[TEAM].many.best) / ways[ALONE].many.best,
                          fmin(one[RANKS], one[TEAM]) / one[ALONE]);
  k->flops_core = fmin(k->flops_core, k->flops_all);
  k->bytes_core = fmin(k->bytes_core, k->bytes_all);
}

int32_t bs_kernel_measure(const bs_case *like, uint32_t dtype, double footprint, double seconds,
                          bs_kernel *out, bs_error *err) {
  const uint32_t threads = bs_machine_threads();
  double bytes = fmin(fmax(footprint, LEAST), MOST);
  double *const rates[WAYS][2] = {{&out->flops_core, &out->bytes_core},
                                  {&out->flops_all, &out->bytes_all},
                                  {&out->flops_team, &out->bytes_team}};
  way ways[WAYS] = {{{0}, {0}}};
  bs_product p = {.dtype = dtype,
                  .of24 = out->of24,
                  .ranks = 1,
                  .threads = 1,
                  .tokens = {TRIAL_B, 1},
                  .pace = fmin(1.0, seconds / BS_KERNEL_SECONDS)};
  bs_kernel trial = *out; /* with few tokens another may be the default */
  shape(&p, fmin(bytes, TRIAL), threads);
  int32_t rc = run_product(like, &p, &trial, err);
  if (rc != BS_OK) return rc;
  const double second = TRIAL_B * weight_bytes(&p) / fmax(p.seconds[0], 1e-9); /* token bytes a second */
  while (bytes > LEAST && MANY * bytes > second * p.pace * CALL_SECONDS) bytes /= 2;
  shape(&p, bytes, threads);
  p.tokens[0] = MANY;
  out->footprint = weight_bytes(&p);
  out->source = "measured";
  rc = all_ways(like, &p, threads, out, ways, err);
  for (int i = 0; rc == BS_OK && i < WAYS; ++i) {
    go_way(&p, i, threads);
    rates_of(&p, &ways[threads > 1 ? i : ALONE], rates[i][0], rates[i][1]);
  }
  if (rc == BS_OK && threads > 1) limit_to_all(ways, out);
  return rc;
}

/* A product that does not run is not a failure: the rates of forward are used instead. */
void bs_kernel_measure_backward(const bs_case *like, uint32_t dtype, bs_kernel *out) {
  bs_error why = BS_ERROR_INIT;
  bs_product p = {
      .dtype = dtype, .of24 = out->of24, .trains = 1, .threads = 1, .pace = 1.0, .tokens = {MANY, MANY}};
  p.ranks = bs_machine_threads();
  if (p.ranks > BS_PRODUCT_RANKS) p.ranks = BS_PRODUCT_RANKS;
  out->backward = 1.0;
  double bytes = fmin(fmax(out->footprint, LEAST), BACKWARD_MOST);
  const uint32_t size = BS_DTYPE_BYTES(dtype);
  const double each = MANY * 2.0 / size / fmax(out->flops_all, 1.0); /* seconds a byte */
  while (bytes > LEAST && bytes * each > BACKWARD_SECONDS) bytes /= 2;
  shape(&p, bytes, p.ranks);
  if (run_product(like, &p, out, &why) != BS_OK) return;
  const double forward = p.seconds[BS_PRODUCT_FORWARD];
  const double both = p.seconds[BS_PRODUCT_DX] + p.seconds[BS_PRODUCT_DW];
  if (forward > 0.0 && both > 0.0) out->backward = both / (2.0 * forward);
}

const char *bs_kernel_measured_op(const bs_kernel *k) {
  return k->of24 ? "matmul24" : "matmul";
}

json_t *bs_kernel_json(const bs_kernel *k) {
  json_t *row = json_pack("{s:s,s:s,s:s,s:s,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f}", "op", bs_kernel_measured_op(k),
                          "name", k->name, "how", k->how, "plugin", k->plugin, "footprint_bytes",
                          k->footprint, "flops_core", k->flops_core, "flops_all", k->flops_all, "flops_team",
                          k->flops_team, "bytes_per_s_core", k->bytes_core, "bytes_per_s_all", k->bytes_all,
                          "bytes_per_s_team", k->bytes_team, "spread", k->spread);
  if (row != NULL && k->all_over_core > 0.0)
    json_object_set_new(row, "all_over_core", json_real(k->all_over_core));
  if (row != NULL && k->backward > 0.0) json_object_set_new(row, "backward", json_real(k->backward));
  return row;
}
