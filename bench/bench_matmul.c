/* SPDX-License-Identifier: MIT
 *
 * bench_matmul.c - one product by a backend's plugin and by its peers, in one process and in turn, shape
 * after shape: ratios of pairs with their intervals, and the plugin's share of what the
 * machine gave in the same minute.
 *
 *   bench_matmul [--product forward|dx|dw] [--n LIST] [--k LIST] [--b LIST] [--dtype f32|bf16|f16]
 *                [--threads T] [--arms LIST] [--isa avx2|all] [--pairs P] [--batch SECONDS] [--warm SECONDS]
 *                [--seconds SECONDS] [--clock wall|thread] [--python PATH] [--openblas PATH] [--blis PATH]
 *                [--plugins DIR] [-o table|json] [--backend cpu|cuda] [--driver PATH] [--cublaslt PATH]
 *
 * --backend cuda: on the first GPU; every batch ends when the device is done.
 * All n with all k with all b. --arms: names of arms.h, each NAME or NAME:DTYPE (f32 beside a 16-bit
 * --dtype); the first is the subject. With sparse24 W is 2:4 for all; GFLOP/s are of the whole product.
 * --product dx, dw: dX = dY W, dW = dY^T X, by the plugin's arms alone. --isa avx2 holds everyone to AVX2.
 * --seconds: of a shape. --clock thread, of one thread: the plugin's arms are timed by what their thread
 * runs, for a machine that others use as well. A peer that this machine lacks is named in the first line;
 * outputs that differ end the program with exit code 6.
 */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "numbers.h"
#include "rounds.h"
#include "support.h"

#define MARGIN 0.01
#define SHORT_FLOPS 2e9 /* some 20 ms of a core */
enum { SIZES = 32 };

typedef struct sizes {
  int64_t at[SIZES];
  size_t count;
} sizes;

typedef struct job {
  const char *n, *k, *b, *arm_names, *output, *product, *clock;
  int64_t threads;
  uint32_t dtype;
  bench_arm_options options;
  bench_round_options rounds;
  bench_source_numbers numbers;
  bench_arm arms[BENCH_ARMS]; /* those asked for, then fma and read */
  size_t n_arms;
} job;

/* One shape: the arms that have it, the limits last. */
typedef struct shape {
  bench_arm *arms[BENCH_ARMS];
  double difference[BENCH_ARMS];
  size_t n_arms;
  bs_sampling *samples;
} shape;

static double flops_of(const bench_numbers *m) {
  return 2.0 * (double)m->b * (double)m->n * (double)m->k;
}

/* ---- arms ---------------------------------------------------------------------------------------- */

/* "torch:f32": the name and dtype of an arm. */
static int32_t name_arm(const job *j, const char *text, size_t length, bench_arm *arm, bs_error *err) {
  const char *colon = memchr(text, ':', length);
  const size_t name = colon != NULL ? (size_t)(colon - text) : length;
  char dtype[16] = "";
  memset(arm, 0, sizeof *arm);
  arm->dtype = j->dtype;
  if (colon != NULL) {
    snprintf(dtype, sizeof dtype, "%.*s", (int)(length - name - 1), colon + 1);
    arm->dtype = bs_dtype_parse(dtype);
  }
  if (name == 0 || name >= sizeof arm->name || (arm->dtype != j->dtype && arm->dtype != BS_F32))
    return bs_error_set(err, BS_USAGE, "BS-BENCH-ARM", "no arm %.*s: NAME, or NAME:f32", (int)length, text);
  snprintf(arm->name, sizeof arm->name, "%.*s", (int)name, text);
  return BS_OK;
}

static int32_t open_arms(job *j, bs_error *err) {
  int32_t rc = BS_OK;
  for (const char *at = j->arm_names; rc == BS_OK && *at != '\0';) {
    const size_t length = strcspn(at, ",");
    bench_arm *arm = &j->arms[j->n_arms];
    if (j->n_arms + 2 >= BENCH_ARMS)
      return bs_error_set(err, BS_USAGE, "BS-BENCH-ARM", "more than %d arms", BENCH_ARMS - 2);
    rc = name_arm(j, at, length, arm, err);
    if (rc == BS_OK) rc = bench_arm_open(arm->name, &j->options, arm, err);
    if (rc == BS_UNAVAILABLE && j->n_arms > 0) {
      bench_arm_close(arm);
      snprintf(arm->why, sizeof arm->why, "%.150s", err->message);
      rc = BS_OK;
    }
    if (rc == BS_OK && arm->dtype != j->dtype) j->numbers.with_f32 = 1;
    if (rc == BS_OK && strcmp(arm->name, "sparse24") == 0) j->numbers.kept = 1;
    ++j->n_arms;
    at += length + (at[length] == ',');
  }
  if (rc == BS_OK && j->n_arms == 0) rc = bs_error_set(err, BS_USAGE, "BS-BENCH-ARM", "--arms names none");
  if (rc != BS_OK) return rc;
  j->arms[j->n_arms].dtype = j->arms[j->n_arms + 1].dtype = j->dtype;
  return strcmp(j->options.backend, "cuda") == 0
             ? bench_open_cuda_limits(&j->options, &j->arms[j->n_arms], err)
             : bench_open_limits(&j->options, &j->arms[j->n_arms], err);
}

static int32_t wrong(const bench_arm *arm, const char *than, double difference, bs_error *err) {
  return bs_error_set(err, BS_NUMERIC, "BS-BENCH-WRONG",
                      "%s:%s differs from %s by %.2g of the largest output", arm->name,
                      bs_dtype_name(arm->dtype), than, difference);
}

/* The newest output of each arm beside that of the subject, which is judged by fp64, as all are where it
 * makes another product than they. */
static int32_t judge(const job *j, shape *s, bs_error *err) {
  const void *subject = NULL;
  const bench_numbers *m = bench_numbers_of(&j->numbers, s->arms[0]->dtype);
  for (size_t i = 0; i < s->n_arms; ++i) {
    bench_arm *arm = s->arms[i];
    if (arm->is_limit) continue;
    const void *y = arm->ops->output(arm, err);
    if (y == NULL) return bs_error_set(err, BS_PLUGIN, "BS-BENCH-OUTPUT", "%s gives no output", arm->name);
    if (i == 0) subject = y;
    const double apart = i == 0 || arm->own != NULL || s->arms[0]->own != NULL
                             ? bench_spot_difference(arm->own != NULL ? arm->own : m, y)
                             : bench_difference(m, subject, s->arms[0]->dtype, y, arm->dtype);
    s->difference[i] = apart;
    if (!(apart <= bench_tolerance(s->arms[0]->dtype, arm->dtype)))
      return wrong(arm, i == 0 ? "fp64" : s->arms[0]->name, apart, err);
  }
  return BS_OK;
}

/* ---- report -------------------------------------------------------------------------------------- */

/* Each arm that was asked for: its version, or why it is not here. */
static int report_arms(const job *j) {
  json_t *list = json_array(), *line = json_pack("{s:s,s:s,s:i,s:o}", "bench", "matmul_arms", "isa",
                                                 j->options.isa, "threads", (int)j->threads, "arms", list);
  for (size_t i = 0; line != NULL && i < j->n_arms; ++i) {
    const bench_arm *a = &j->arms[i];
    json_array_append_new(
        list, json_pack("{s:s,s:s,s:s}", "arm", a->name, "dtype", bs_dtype_name(a->dtype),
                        a->ops != NULL ? "version" : "absent", a->ops != NULL ? a->version : a->why));
  }
  const int good = line != NULL && json_dumpf(line, stdout, JSON_COMPACT | JSON_REAL_PRECISION(7)) == 0;
  printf("\n");
  fflush(stdout);
  json_decref(line);
  return good;
}

static json_t *comparison_json(const bs_comparison *c) {
  return json_pack("{s:f,s:f,s:f,s:s}", "ratio", c->ratio, "low", c->low, "high", c->high, "word",
                   bs_comparison_name(c->word));
}

/* Seconds of the arm and its times over the subject's; of a limit that is the subject's share of it. */
static json_t *arm_json(const shape *s, size_t i, double flops) {
  const bench_arm *a = s->arms[i];
  const double seconds = s->samples->arm[i].look.p50;
  json_t *out = json_pack("{s:s,s:s,s:s,s:f,s:f}", "arm", a->name, "dtype", bs_dtype_name(a->dtype), "way",
                          a->way, "seconds", seconds, "gflops", flops / seconds * 1e-9);
  if (!a->is_limit) json_object_set_new(out, "difference", json_real(s->difference[i]));
  if (a->enqueue > 0.0) json_object_set_new(out, "enqueue", json_real(a->enqueue));
  if (i > 0) json_object_update_new(out, comparison_json(&s->samples->arm[i].comparison));
  return out;
}

/* The higher of both limits' times, pair by pair: the lower limit. */
static json_t *limit_json(const shape *s) {
  if (s->n_arms < 3 || !s->arms[s->n_arms - 2]->is_limit) return json_null();
  const bs_sampled_arm *fma = &s->samples->arm[s->n_arms - 2], *read = fma + 1;
  bs_comparison c = {0};
  double *both = calloc(s->samples->pairs, sizeof *both);
  for (size_t i = 0; both != NULL && i < s->samples->pairs; ++i)
    both[i] = fmax(fma->seconds[i], read->seconds[i]);
  json_t *out = NULL;
  if (both != NULL && bs_compare_pairs(s->samples->arm[0].seconds, both, s->samples->pairs, MARGIN, &c))
    out = comparison_json(&c);
  if (out != NULL)
    json_object_set_new(out, "which",
                        json_string(s->arms[s->n_arms - (fma->look.p50 >= read->look.p50 ? 2 : 1)]->name));
  free(both);
  return out;
}

static json_t *warnings_json(const bs_sampling *samples) {
  json_t *list = json_array();
  for (uint32_t i = 0; i < samples->n_warnings; ++i)
    json_array_append_new(list, json_string(samples->warning[i]));
  return list;
}

static json_t *shape_json(const job *j, const shape *s, json_t *absent) {
  const bench_numbers *m = &j->numbers.narrow;
  const double flops = flops_of(m);
  json_t *list = json_array();
  for (size_t i = 0; i < s->n_arms; ++i) json_array_append_new(list, arm_json(s, i, flops));
  return json_pack("{s:s,s:s,s:s,s:s,s:I,s:I,s:I,s:i,s:s,s:I,s:s,s:o,s:o,s:O,s:o}", "bench", "matmul",
                   "backend", j->options.backend, "dtype", bs_dtype_name(j->dtype), "product", j->product,
                   "n", (json_int_t)m->n, "k", (json_int_t)m->k, "b", (json_int_t)m->b, "threads",
                   (int)j->threads, "isa", j->options.isa, "pairs", (json_int_t)s->samples->pairs, "stop",
                   bs_stop_name(s->samples->stop), "arms", list, "limit", limit_json(s), "absent", absent,
                   "warnings", warnings_json(s->samples));
}

/* What shape_json holds, for a reader. */
static void print_table(const json_t *line) {
  size_t i;
  json_t *arm, *limit = json_object_get(line, "limit");
  printf("N %lld, K %lld, B %lld, %s, %d threads, %d pairs\n",
         (long long)json_integer_value(json_object_get(line, "n")),
         (long long)json_integer_value(json_object_get(line, "k")),
         (long long)json_integer_value(json_object_get(line, "b")),
         json_string_value(json_object_get(line, "dtype")),
         (int)json_integer_value(json_object_get(line, "threads")),
         (int)json_integer_value(json_object_get(line, "pairs")));
  json_array_foreach(json_object_get(line, "arms"), i, arm) {
    printf("  %-10s %-4s %11.1f us %8.1f GFLOP/s", json_string_value(json_object_get(arm, "arm")),
           json_string_value(json_object_get(arm, "dtype")),
           json_real_value(json_object_get(arm, "seconds")) * 1e6,
           json_real_value(json_object_get(arm, "gflops")));
    if (i > 0)
      printf("  %6.3f [%.3f, %.3f]", json_real_value(json_object_get(arm, "ratio")),
             json_real_value(json_object_get(arm, "low")), json_real_value(json_object_get(arm, "high")));
    printf("  %s\n", json_string_value(json_object_get(arm, "way")));
  }
  if (json_is_object(limit))
    printf("  share of the lower limit (%s) %.3f\n", json_string_value(json_object_get(limit, "which")),
           json_real_value(json_object_get(limit, "ratio")));
}

static int32_t report(const job *j, const shape *s, json_t *absent, bs_error *err) {
  json_t *line = shape_json(j, s, absent);
  if (line == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-BENCH-MEMORY", "no memory for the report");
  if (strcmp(j->output, "json") == 0) {
    json_dumpf(line, stdout, JSON_COMPACT | JSON_REAL_PRECISION(7));
    printf("\n");
  } else {
    print_table(line);
  }
  fflush(stdout);
  json_decref(line);
  return BS_OK;
}

/* ---- shapes -------------------------------------------------------------------------------------- */

static int32_t ready_arms(job *j, shape *s, json_t *absent, bs_error *err) {
  for (size_t i = 0; i < j->n_arms + 2; ++i) {
    bench_arm *arm = &j->arms[i];
    if (arm->ops == NULL) continue;
    if (j->numbers.product != BENCH_FORWARD && !arm->backward && !arm->is_limit) {
      json_object_set_new(absent, arm->name, json_string("has no backward pass here"));
      continue;
    }
    const int32_t rc = arm->ops->ready(arm, bench_numbers_of(&j->numbers, arm->dtype), err);
    if (rc == BS_OK) {
      s->arms[s->n_arms++] = arm;
      continue;
    }
    arm->ops->release(arm);
    if (rc != BS_UNSUPPORTED || i == 0) return rc;
    json_object_set_new(absent, arm->name, json_string(err->message));
  }
  return BS_OK;
}

static int32_t run_shape(job *j, bs_error *err) {
  shape s;
  json_t *absent = json_object();
  memset(&s, 0, sizeof s);
  bench_on_all_cores();
  int32_t rc = ready_arms(j, &s, absent, err);
  const double flops = flops_of(&j->numbers.narrow);
  if (rc == BS_OK)
    rc = bench_take(s.arms, s.n_arms, &j->rounds, flops < SHORT_FLOPS * (double)j->threads, &s.samples, err);
  if (rc == BS_OK) rc = judge(j, &s, err);
  if (rc == BS_OK) rc = report(j, &s, absent, err);
  for (size_t i = 0; i < s.n_arms; ++i) s.arms[i]->ops->release(s.arms[i]);
  bs_sampling_free(s.samples);
  json_decref(absent);
  return rc;
}

static int parse_sizes(const char *text, sizes *out) {
  char *end = NULL;
  for (out->count = 0; out->count < SIZES; text = end + 1) {
    const long long value = strtoll(text, &end, 10);
    if (end == text || value < 1 || value > 1 << 20) return 0;
    out->at[out->count++] = value;
    if (*end != ',') return *end == '\0';
  }
  return 0;
}

static int32_t run_all(job *j, bs_error *err) {
  sizes n, k, b;
  if (!parse_sizes(j->n, &n) || !parse_sizes(j->k, &k) || !parse_sizes(j->b, &b))
    return bs_error_set(err, BS_USAGE, "BS-BENCH-SIZES", "--n, --k, --b: up to %d sizes from 1 to 2^20",
                        SIZES);
  int32_t rc = open_arms(j, err);
  if (rc == BS_OK && strcmp(j->output, "json") == 0) report_arms(j);
  for (size_t in = 0; rc == BS_OK && in < n.count; ++in) {
    for (size_t ik = 0; rc == BS_OK && ik < k.count; ++ik) {
      for (size_t ib = 0; rc == BS_OK && ib < b.count; ++ib) {
        rc = bench_numbers_make(&j->numbers, n.at[in], k.at[ik], b.at[ib], err);
        if (rc == BS_OK) rc = run_shape(j, err);
      }
    }
  }
  return rc;
}

static int find_product(const char *name) {
  static const char *const names[] = {"forward", "dx", "dw"}; /* BENCH_... */
  for (int i = 0; i < 3; ++i)
    if (strcmp(name, names[i]) == 0) return i;
  return -1;
}

int main(int argc, char **argv) {
  job j = {
      .n = "4096",
      .k = "4096",
      .b = "64",
      .output = "table",
      .product = "forward",
      .clock = "wall",
      .threads = 1,
      .dtype = BS_F32,
      .options = {.backend = "cpu", .isa = "all", .openblas = "libopenblas.so.0", .blis = "libblis.so.4"},
      .rounds = {.pairs = 30, .batch_seconds = 0.01, .warm_seconds = 0.3, .seconds_a_shape = 60.0}};
  const bench_option options[] = {{"--product", 's', &j.product, 0, 0},
                                  {"--n", 's', &j.n, 0, 0},
                                  {"--k", 's', &j.k, 0, 0},
                                  {"--b", 's', &j.b, 0, 0},
                                  {"--arms", 's', &j.arm_names, 0, 0},
                                  {"--isa", 's', &j.options.isa, 0, 0},
                                  {"--dtype", 'd', &j.dtype, 0, 0},
                                  {"--threads", 'i', &j.threads, 1, 64},
                                  {"--pairs", 'i', &j.rounds.pairs, 6, 10000},
                                  {"--batch", 'f', &j.rounds.batch_seconds, 1e-3, 10},
                                  {"--warm", 'f', &j.rounds.warm_seconds, 0, 60},
                                  {"--seconds", 'f', &j.rounds.seconds_a_shape, 0, 3600},
                                  {"--clock", 's', &j.clock, 0, 0},
                                  {"--python", 's', &j.options.python, 0, 0},
                                  {"--openblas", 's', &j.options.openblas, 0, 0},
                                  {"--blis", 's', &j.options.blis, 0, 0},
                                  {"--plugins", 's', &j.options.plugins, 0, 0},
                                  {"--backend", 's', &j.options.backend, 0, 0},
                                  {"--driver", 's', &j.options.driver, 0, 0},
                                  {"--cublaslt", 's', &j.options.cublaslt, 0, 0},
                                  {"-o", 's', &j.output, 0, 0}};
  bs_error err = BS_ERROR_INIT;
  if (!bench_parse("bench_matmul", argc, argv, options, sizeof options / sizeof options[0])) return 2;
  if (j.arm_names == NULL)
    j.arm_names = strcmp(j.options.backend, "cuda") == 0 ? "auto,cublaslt" : "auto,onednn";
  if (strcmp(j.options.isa, "all") != 0 && strcmp(j.options.isa, "avx2") != 0) {
    fprintf(stderr, "bench_matmul: --isa is avx2 or all, not %s\n", j.options.isa);
    return 2;
  }
  if (strcmp(j.options.backend, "cpu") != 0 && strcmp(j.options.backend, "cuda") != 0) {
    fprintf(stderr, "bench_matmul: --backend is cpu or cuda, not %s\n", j.options.backend);
    return 2;
  }
  j.numbers.product = find_product(j.product);
  if (j.numbers.product < 0) {
    fprintf(stderr, "bench_matmul: --product is forward, dx or dw, not %s\n", j.product);
    return 2;
  }
  j.options.own_clock = strcmp(j.clock, "thread") == 0;
  if (strcmp(j.clock, j.options.own_clock ? "thread" : "wall") != 0 ||
      (j.options.own_clock && j.threads > 1)) {
    fprintf(stderr, "bench_matmul: --clock is wall, or thread with one thread, not %s\n", j.clock);
    return 2;
  }
  j.options.threads = (uint32_t)j.threads;
  j.numbers.dtype = j.dtype;
  bench_set_environment(j.options.isa, j.options.threads);
  const int32_t rc = run_all(&j, &err);
  for (size_t i = 0; i < BENCH_ARMS; ++i) bench_arm_close(&j.arms[i]);
  bench_numbers_free(&j.numbers);
  return rc == BS_OK ? 0 : bench_fail("bench_matmul", &err);
}
