/* SPDX-License-Identifier: MIT
 *
 * bench_overlap.c - one layer over a slow wire (the plugin link), without overlap and in chunks, compared
 * with the model of docs/methods.md: how much of the predicted gain is reached. Two arms without the wire
 * measure the model's parameters: the product's time g, and in chunks s g + C a (slower products, and the
 * cost of each chunk on the ranks). Arms run interleaved; figures are medians over pairs.
 *
 *   bench_overlap [--method M] [--n N] [--k K] [--b B] [--dtype D] [--ranks P] [--chunks C]
 *                 [--bandwidth BYTES_PER_S] [--latency S] [--pairs PAIRS] [--seconds CAP] [-o table|json]
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "lab/measure/arm.h"
#include "lab/measure/predict.h"
#include "lab/measure/sampler.h"
#include "support.h"

#define MARGIN 0.01
#define LEAST_PAIRS 20
enum { PLAIN = 0, CHUNKED = 1, FREE = 2, FREE_CHUNKED = 3, ARMS = 4 };

static const char *const names[ARMS] = {"off", "chunks", "no wire", "chunks, no wire"};

typedef struct job {
  int64_t n, k, b, ranks, chunks, pairs;
  uint32_t dtype;
  const char *method, *output;
  double bandwidth, latency, seconds;
  bench_matrix x, w;
  bs_source x_source, w_source;
  char value[8];
  const char *keys[1], *values[1];
  bs_context *context;
  bs_arm *arms[ARMS];
  bs_sampled *sampling;
} job;

static int32_t open_context(job *j, bs_error *err) {
  static const char *const ids[2] = {"cpu", "link"};
  char bandwidth[64], latency[64];
  const char *const params[2] = {bandwidth, latency};
  snprintf(bandwidth, sizeof bandwidth, "link.bandwidth=%.9g", j->bandwidth);
  snprintf(latency, sizeof latency, "link.latency=%.9g", j->latency);
  const bs_context_options options = {
      .struct_size = sizeof options, .plugins = ids, .n_plugins = 2, .params = params, .n_params = 2};
  return bs_context_open(&options, &j->context, err);
}

static bs_layer_spec spec_of(job *j, int chunked) {
  bs_layer_spec spec = {.struct_size = sizeof spec,
                        .B = j->b,
                        .N = j->n,
                        .K = j->k,
                        .x_dtype = j->dtype,
                        .w_dtype = j->dtype,
                        .y_dtype = j->dtype};
  if (!chunked) return spec;
  snprintf(j->value, sizeof j->value, "%d", (int)j->chunks);
  j->keys[0] = "overlap";
  j->values[0] = j->value;
  spec.n_options = 1;
  spec.option_keys = j->keys;
  spec.option_values = j->values;
  return spec;
}

static int32_t open_arm(job *j, int i, bs_error *err) {
  const bs_case c = {.context = j->context,
                     .method = j->method,
                     .backend = "cpu",
                     .comm = i == FREE || i == FREE_CHUNKED ? "threads" : "link:threads",
                     .world_size = (uint32_t)j->ranks,
                     .threads_per_rank = 1,
                     .bind = 1,
                     .spec = spec_of(j, i == CHUNKED || i == FREE_CHUNKED),
                     .x = &j->x_source,
                     .w = &j->w_source};
  return bs_arm_open(&c, names[i], &j->arms[i], err);
}

static int32_t rebuild(void *user, uint32_t build, bs_error *err) {
  return bs_arms_rebuild(((job *)user)->arms, ARMS, build % 2 == 0, err);
}

static int32_t measure(job *j, bs_error *err) {
  const bs_sampler_host host = {.user = j, .disturb = bs_disturb_host, .rebuild = rebuild};
  bs_sampler_arm arms[ARMS];
  bs_sampler_options o;
  bs_sampler_defaults(&o);
  o.margin = MARGIN;
  o.pairs_max = (size_t)j->pairs;
  o.pairs_min = o.pairs_max < LEAST_PAIRS ? o.pairs_max : LEAST_PAIRS;
  o.seconds = j->seconds;
  for (int i = 0; i < ARMS; ++i) arms[i] = bs_arm_sampled(j->arms[i], names[i], BS_TIME_HOT);
  return bs_sampler_run(&o, &host, arms, ARMS, &j->sampling, err);
}

/* Seconds by the model: product g, wire c without the latency, which each chunk pays. */
static double model(const job *j, double g, double c, uint32_t chunks) {
  return bs_chunked(g, c, chunks) + (double)chunks * j->latency;
}

static int32_t print(job *j, bs_error *err) {
  const double *seconds[ARMS];
  bs_comparison c;
  bs_proposal p = {.struct_size = sizeof p};
  const bs_layer_spec spec = spec_of(j, 1);
  const int32_t rc = bs_method_propose(j->context, j->method, &spec, 0, (uint32_t)j->ranks, &p, err);
  if (rc != BS_OK) return rc;
  for (int i = 0; i < ARMS; ++i) seconds[i] = j->sampling->arm[i].seconds;
  if (!bs_compare_pairs(seconds[CHUNKED], seconds[PLAIN], j->sampling->pairs, MARGIN, &c))
    return bs_error_set(err, BS_NO_MEMORY, "BS-BENCH-MEMORY", "no memory to compare");
  const double g = j->sampling->arm[FREE].look.p50;
  const double wire = (double)bs_wire_bytes(&p, (uint32_t)j->ranks) / j->bandwidth;
  const uint32_t chunks = p.chunks > 1 ? p.chunks : 1;
  const double in_chunks = fmax(j->sampling->arm[FREE_CHUNKED].look.p50, g);
  const double off = model(j, g, wire, 1), on = model(j, in_chunks, wire, chunks);
  const double free_gain = off / model(j, g, wire, chunks), gain = off / on,
               share = gain > 1.0 ? (c.ratio - 1.0) / (gain - 1.0) : 0.0;
  if (strcmp(j->output, "json") == 0)
    printf(
        "{\"bench\":\"overlap\",\"method\":\"%s\",\"ranks\":%d,\"n\":%lld,\"k\":%lld,\"b\":%lld,"
        "\"dtype\":\"%s\",\"chunks\":%u,\"bandwidth\":%.6g,\"latency_s\":%.6g,\"pairs\":%zu,"
        "\"product_s\":%.6g,\"product_chunks_s\":%.6g,\"wire_s\":%.6g,\"off_s\":%.6g,\"on_s\":%.6g,\"off_"
        "model_s\":%.6g,"
        "\"on_model_s\":%.6g,\"ratio\":%.6g,\"low\":%.6g,\"high\":%.6g,\"model\":%.6g,\"model_free\":%.6g,"
        "\"share\":%.6g}\n",
        j->method, (int)j->ranks, (long long)j->n, (long long)j->k, (long long)j->b, bs_dtype_name(j->dtype),
        chunks, j->bandwidth, j->latency, c.pairs, g, in_chunks, wire, j->sampling->arm[PLAIN].look.p50,
        j->sampling->arm[CHUNKED].look.p50, off, on, c.ratio, c.low, c.high, gain, free_gain, share);
  else
    printf(
        "%s, %u chunks: %.3f ms without, %.3f ms with; gain %.3f [%.3f, %.3f], by the model %.3f (%.3f ms, "
        "%.3f ms; %.3f if chunks cost nothing), %.2f of it\n",
        j->method, chunks, j->sampling->arm[PLAIN].look.p50 * 1e3, j->sampling->arm[CHUNKED].look.p50 * 1e3,
        c.ratio, c.low, c.high, gain, off * 1e3, on * 1e3, free_gain, share);
  return BS_OK;
}

static int run(job *j) {
  bs_error err = BS_ERROR_INIT;
  int32_t rc = open_context(j, &err);
  for (int i = 0; rc == BS_OK && i < ARMS; ++i) rc = open_arm(j, i, &err);
  if (rc == BS_OK) rc = measure(j, &err);
  for (int i = 0; i < ARMS; ++i) {
    bs_error closing = BS_ERROR_INIT;
    if (j->arms[i] == NULL) continue;
    const int32_t closed = bs_arm_close(j->arms[i], NULL, &closing);
    if (rc == BS_OK && closed != BS_OK) {
      rc = closed;
      err = closing;
    }
  }
  if (rc == BS_OK) rc = print(j, &err);
  bs_context_close(j->context);
  return rc == BS_OK ? 0 : bench_fail("bench_overlap", &err);
}

int main(int argc, char **argv) {
  job j = {.n = 4096,
           .k = 4096,
           .b = 64,
           .ranks = 2,
           .chunks = 4,
           .pairs = 40,
           .dtype = BS_F32,
           .method = "row_parallel",
           .output = "table",
           .bandwidth = 1e9,
           .latency = 20e-6,
           .seconds = 20.0};
  const bench_option options[] = {{"--n", 'i', &j.n, 1, 1 << 20},
                                  {"--k", 'i', &j.k, 1, 1 << 20},
                                  {"--b", 'i', &j.b, 1, 1 << 20},
                                  {"--ranks", 'i', &j.ranks, 2, 1024},
                                  {"--chunks", 'i', &j.chunks, 2, 8},
                                  {"--pairs", 'i', &j.pairs, 5, 10000},
                                  {"--dtype", 'd', &j.dtype, 0, 0},
                                  {"--method", 's', &j.method, 0, 0},
                                  {"-o", 's', &j.output, 0, 0},
                                  {"--seconds", 'f', &j.seconds, 0, 3600},
                                  {"--bandwidth", 'f', &j.bandwidth, 1, 1e15},
                                  {"--latency", 'f', &j.latency, 0, 3600}};
  if (!bench_parse("bench_overlap", argc, argv, options, sizeof options / sizeof options[0])) return 2;
  j.x = (bench_matrix){1, j.b, j.k};
  j.w = (bench_matrix){2, j.n, j.k};
  j.x_source = bench_source(&j.x, j.dtype);
  j.w_source = bench_source(&j.w, j.dtype);
  const int code = run(&j);
  bs_sampling_free(j.sampling);
  return code;
}
