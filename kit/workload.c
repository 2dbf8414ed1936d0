/* SPDX-License-Identifier: MIT
 * workload.c - group workload: each opening gives the same stream, for any panels and threads that read it,
 * and parts have the declared shapes and dtypes. Panels are checked as by tests/workloads. */
#include "tests/workloads/workload.h"

#include <pthread.h>

#include "blockshock/plugin.h"
#include "core/base/dtype.h"
#include "core/base/rng.h"
#include "kit/kit.h"

enum { MAX_OPTIONS = KIT_MAX_PARAMS };

static const uint32_t dtypes[] = {BS_F32, BS_BF16, BS_F16};

typedef struct instance {
  const bs_workload *vtable;
  void *object;
  bs_workload_info info;
} instance;

static void add_options(bs_workload_request *q) {
  static char texts[MAX_OPTIONS][512];
  static const char *keys[MAX_OPTIONS], *values[MAX_OPTIONS];
  for (uint32_t i = 0; i < kit.options->n_options && i < MAX_OPTIONS; i++) {
    snprintf(texts[i], sizeof texts[i], "%s", kit.options->options[i]);
    char *equals = strchr(texts[i], '=');
    *equals = '\0';
    keys[i] = texts[i];
    values[i] = equals + 1;
    q->n_options = i + 1;
  }
  q->option_keys = keys;
  q->option_values = values;
}

/* Plain ones; its own (files); those of three channels of 32 x 32. */
static const int64_t sizes[][3] = {{5, 12, 192}, {0, 0, 0}, {5, 12, 3072}};
enum { N_SIZES = sizeof sizes / sizeof sizes[0] };

static uint64_t seeds[2] = {7, 8}; /* of the inputs, of the weights */

static int32_t try_open(const kit_thing *t, uint32_t dtype, uint32_t bias, size_t size, instance *out,
                        bs_error *err) {
  bs_workload_request q = {.struct_size = sizeof q,
                           .dtype = dtype,
                           .B = sizes[size][0],
                           .N = sizes[size][1],
                           .K = sizes[size][2],
                           .seed = seeds[0],
                           .weight_seed = seeds[1],
                           .has_bias = bias};
  memset(out, 0, sizeof *out);
  out->vtable = t->vtable;
  add_options(&q);
  return out->vtable->open(t->state, &q, &out->object, err);
}

/* Opens it with the first sizes that it accepts. */
static int32_t open_one(const kit_thing *t, uint32_t dtype, uint32_t bias, instance *out, bs_error *err) {
  int32_t rc = try_open(t, dtype, bias, 0, out, err);
  for (size_t i = 1; rc != BS_OK && i < N_SIZES; i++) {
    bs_error own = BS_ERROR_INIT;
    if (try_open(t, dtype, bias, i, out, &own) == BS_OK) rc = BS_OK;
  }
  if (rc != BS_OK) {
    kit_assert(err->message[0] != '\0', "open of %s refuses without a reason", bs_dtype_name(dtype));
    return rc;
  }
  out->info.struct_size = (uint32_t)sizeof out->info;
  rc = out->vtable->info(out->object, &out->info, err);
  kit_assert(rc == BS_OK, "info fails: %s: %s", err->id, err->message);
  return BS_OK;
}

static int has_part(const instance *w, uint32_t part) {
  return part <= BS_PART_W || (part == BS_PART_BIAS ? w->info.has_bias : w->info.has_target) != 0;
}

static bs_source part_of(const instance *w, uint32_t part) {
  bs_source s;
  bs_error err = BS_ERROR_INIT;
  memset(&s, 0, sizeof s);
  s.struct_size = (uint32_t)sizeof s;
  kit_assert(w->vtable->source(w->object, part, &s, &err) == BS_OK, "source of part %u fails: %s: %s", part,
             err.id, err.message);
  return s;
}

static int same_part(const bs_source *a, const bs_source *b, uint32_t dtype) {
  void *first = workload_read(a, dtype), *second = workload_read(b, dtype);
  const int same = a->rows == b->rows && a->cols == b->cols &&
                   memcmp(first, second, (size_t)(a->rows * a->cols) * BS_DTYPE_BYTES(dtype)) == 0;
  free(first);
  free(second);
  return same;
}

/* ---- by threads ----------------------------------------------------------------------------- */

enum { THREADS = 8 };
typedef struct reader {
  const bs_source *s;
  void *values;
} reader;

static void *read_all(void *opaque) {
  reader *r = opaque;
  r->values = workload_read(r->s, BS_F32);
  return NULL;
}

static void check_threads(const bs_source *s, uint32_t part) {
  pthread_t threads[THREADS];
  reader readers[THREADS];
  for (int i = 0; i < THREADS; i++) {
    readers[i] = (reader){s, NULL};
    kit_assert(pthread_create(&threads[i], NULL, read_all, &readers[i]) == 0, "no threads");
  }
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  for (int i = 1; i < THREADS; i++)
    kit_assert(memcmp(readers[i].values, readers[0].values, (size_t)(s->rows * s->cols) * 4) == 0,
               "part %u: two threads read different values", part);
  for (int i = 0; i < THREADS; i++) free(readers[i].values);
}

/* ---- what a source tells of itself ----------------------------------------------------------- */

static float told_value(const bs_generator *g, uint64_t i) {
  float v = 0.0f;
  uint32_t word = 0;
  bs_rng_bits(g->seed, g->stream, i, 1, &word);
  if (g->law == BS_LAW_TERNARY) return (word >> 1) >= g->threshold ? 0.0f : word & 1u ? 1.0f : -1.0f;
  if (g->law == BS_LAW_INTEGER)
    return (float)((int64_t)((uint64_t)word * (2u * g->bound + 1u) >> 32) - (int64_t)g->bound);
  if (g->law == BS_LAW_ZERO) return 0.0f;
  if (g->law == BS_LAW_UNIFORM)
    bs_rng_uniform(g->seed, g->stream, i, 1, &v);
  else
    bs_rng_normal(g->seed, g->stream, i, 1, &v);
  v *= g->b;
  if (g->law != BS_LAW_CLIPPED) return v + g->a;
  return v > g->a ? g->a : v < -g->a ? -g->a : v;
}

/* A device that makes the values itself must have those that `read` gives. */
static void check_told(const bs_source *s, uint32_t part) {
  const bs_generator *g = bs_generator_of(s);
  if (g == NULL || g->law > BS_LAW_CLIPPED) return;
  double *read = workload_read(s, BS_F64);
  for (int64_t i = 0; i < s->rows * s->cols; i++) {
    const float made = told_value(g, g->first + (uint64_t)(i / s->cols) * g->line + (uint64_t)(i % s->cols));
    unsigned char rounded[8];
    double value = 0.0;
    bs_convert(s->dtype, rounded, BS_F32, &made, 1);
    bs_convert(BS_F64, &value, s->dtype, rounded, 1);
    kit_assert(value == read[i] || (value != value && read[i] != read[i]),
               "part %u tells how it is made, and by that element [%lld,%lld] is %g; read gives %g", part,
               (long long)(i / s->cols), (long long)(i % s->cols), value, read[i]);
  }
  free(read);
}

/* ---- checks --------------------------------------------------------------------------------- */

static void check_stream(const kit_thing *t, uint32_t dtype, const instance *w) {
  bs_error err = BS_ERROR_INIT;
  instance again;
  kit_assert(open_one(t, dtype, 1, &again, &err) == BS_OK, "a second open fails: %s: %s", err.id,
             err.message);
  for (uint32_t part = BS_PART_X; part <= BS_PART_TARGET; part++) {
    if (!has_part(w, part)) continue;
    const bs_source a = part_of(w, part), b = part_of(&again, part);
    kit_assert(same_part(&a, &b, dtype),
               "part %u in %s: the same request gives other values when it is opened "
               "again",
               part, bs_dtype_name(dtype));
    kit_assert(same_part(&a, &a, BS_F64), "part %u in %s: read twice, it gives other values", part,
               bs_dtype_name(dtype));
    void *whole = workload_read(&a, dtype);
    workload_check_panels(&a, dtype, whole);
    free(whole);
    check_threads(&a, part);
    check_told(&a, part);
  }
  again.vtable->close(again.object);
}

void kit_work_stream(const kit_case *c) {
  static kit_plugin p;
  bs_error err = BS_ERROR_INIT;
  uint32_t ran = 0;
  kit_plugin_open(&p);
  const kit_thing *t = &p.host.things[c->thing];
  for (size_t d = 0; d < 3; d++) {
    instance w;
    if (open_one(t, dtypes[d], 1, &w, &err) != BS_OK) continue;
    check_stream(t, dtypes[d], &w);
    w.vtable->close(w.object);
    ran++;
  }
  kit_plugin_deactivate(&p);
  kit_assert(p.host.blocks == 0, "leaves %lld blocks of host memory", (long long)p.host.blocks);
  if (ran == 0) kit_unsupported("opens in none of f32, bf16, f16: %s: %s", err.id, err.message);
}

/* Random streams are one a part, so that no two parts are equal: not where the seeds are the same either.
 * Parts that have one value all over are no streams. */
static void check_apart(const instance *w) {
  static const char *const names[] = {"X", "W", "bias", "target"};
  double *values[4] = {NULL};
  int64_t counts[4] = {0};
  for (uint32_t part = BS_PART_X; part <= BS_PART_TARGET; part++) {
    if (!has_part(w, part)) continue;
    const bs_source s = part_of(w, part);
    values[part] = workload_read(&s, BS_F64);
    counts[part] = s.rows * s.cols;
  }
  for (int a = 0; a < 4; a++)
    for (int b = a + 1; b < 4; b++) {
      const int64_t n = counts[a] < counts[b] ? counts[a] : counts[b];
      int varies = 0;
      for (int64_t i = 1; i < n && !varies; i++) varies = values[a][i] != values[a][0];
      kit_assert(!varies || memcmp(values[a], values[b], (size_t)n * sizeof(double)) != 0,
                 "%s and %s begin with the same %lld values: each part has a stream of its own", names[a],
                 names[b], (long long)n);
    }
  for (int part = 0; part < 4; part++) free(values[part]);
}

/* Opened with one seed for both. */
static void check_streams(const kit_thing *t, uint32_t dtype) {
  bs_error err = BS_ERROR_INIT;
  instance w;
  seeds[1] = seeds[0];
  const int32_t rc = open_one(t, dtype, 1, &w, &err);
  seeds[1] = seeds[0] + 1;
  kit_assert(rc == BS_OK, "does not open with seed and weight_seed the same: %s: %s", err.id, err.message);
  check_apart(&w);
  w.vtable->close(w.object);
}

static void check_shape(const instance *w, uint32_t part, uint32_t dtype) {
  static const char *const names[] = {"X", "W", "bias", "target"};
  const bs_workload_info *i = &w->info;
  const int64_t rows[] = {i->B, i->N, 1, i->B}, cols[] = {i->K, i->K, i->N, i->N};
  const bs_source s = part_of(w, part);
  kit_assert(s.rows == rows[part] && s.cols == cols[part], "%s is %lld x %lld, info declares %lld x %lld",
             names[part], (long long)s.rows, (long long)s.cols, (long long)rows[part], (long long)cols[part]);
  kit_assert(bs_dtype_known(s.dtype), "%s has the unknown dtype 0x%04x", names[part], s.dtype);
  double *values = workload_read(&s, BS_F64);
  for (int64_t k = 0; k < s.rows * s.cols; k++) {
    unsigned char one[8] = {0};
    bs_store_f64(s.dtype, one, 0, values[k]);
    kit_assert(bs_load_f64(s.dtype, one, 0) == values[k] || values[k] != values[k],
               "%s: element %lld is %.17g, which is not a value of its declared dtype %s", names[part],
               (long long)k, values[k], bs_dtype_name(s.dtype));
  }
  kit_assert(s.dtype == dtype || BS_DTYPE_BYTES(s.dtype) <= BS_DTYPE_BYTES(dtype),
             "%s is declared as %s, the request was for %s", names[part], bs_dtype_name(s.dtype),
             bs_dtype_name(dtype));
  free(values);
  workload_check_bounds(&s);
}

void kit_work_parts(const kit_case *c) {
  static kit_plugin p;
  bs_error err = BS_ERROR_INIT;
  uint32_t ran = 0;
  kit_plugin_open(&p);
  const kit_thing *t = &p.host.things[c->thing];
  for (size_t d = 0; d < 3; d++)
    for (uint32_t bias = 0; bias < 2; bias++) {
      instance w;
      if (open_one(t, dtypes[d], bias, &w, &err) != BS_OK) continue;
      kit_assert(w.info.B > 0 && w.info.N > 0 && w.info.K > 0, "info declares B=%lld N=%lld K=%lld",
                 (long long)w.info.B, (long long)w.info.N, (long long)w.info.K);
      kit_assert(bias || !w.info.has_bias, "has a bias, none was asked for");
      for (uint32_t part = BS_PART_X; part <= BS_PART_TARGET; part++)
        if (has_part(&w, part)) check_shape(&w, part, dtypes[d]);
      check_apart(&w);
      w.vtable->close(w.object);
      if (bias) check_streams(t, dtypes[d]);
      ran++;
    }
  kit_plugin_deactivate(&p);
  if (ran == 0) kit_unsupported("opens in none of f32, bf16, f16: %s: %s", err.id, err.message);
}

/* ---- services of the host that fail ---------------------------------------------------------- */

static int32_t read_first(const instance *w, uint32_t part, bs_error *err) {
  bs_source s;
  memset(&s, 0, sizeof s);
  s.struct_size = (uint32_t)sizeof s;
  int32_t rc = w->vtable->source(w->object, part, &s, err);
  if (rc != BS_OK || s.rows == 0) return rc;
  float *row = calloc((size_t)s.cols + 1, sizeof *row);
  kit_assert(row != NULL, "no memory");
  rc = s.read(s.ctx, 0, 1, NULL, BS_F32, row, s.cols, err);
  free(row);
  return rc;
}

/* Opens it in the size that it takes and reads a row of each part. */
static int32_t use_once(const kit_thing *t, size_t size, bs_error *err) {
  instance w;
  bs_error_clear(err);
  int32_t rc = try_open(t, BS_F32, 1, size, &w, err);
  if (rc != BS_OK) return rc;
  w.info.struct_size = (uint32_t)sizeof w.info;
  rc = w.vtable->info(w.object, &w.info, err);
  for (uint32_t part = BS_PART_X; rc == BS_OK && part <= BS_PART_TARGET; part++)
    if (has_part(&w, part)) rc = read_first(&w, part, err);
  w.vtable->close(w.object);
  return rc;
}

void kit_life_open(const kit_case *c) {
  static kit_plugin p;
  bs_error err = BS_ERROR_INIT;
  size_t size = 0;
  kit_plugin_open(&p);
  const kit_thing *t = &p.host.things[c->thing];
  while (size < N_SIZES && use_once(t, size, &err) != BS_OK) size++;
  if (size == N_SIZES) kit_unsupported("f32 does not open: %s: %s", err.id, err.message);
  const int64_t blocks = p.host.blocks;
  for (int64_t n = 1; size < N_SIZES && n <= 2000; n++) {
    p.host.calls = 0;
    p.host.failed = "?";
    p.host.fail_at = n;
    int32_t rc = use_once(t, size, &err);
    const int64_t calls = p.host.calls;
    p.host.fail_at = 0;
    kit_assert(p.host.blocks == blocks,
               "a workload whose host call %lld (%s) fails leaves %lld blocks of host memory", (long long)n,
               p.host.failed, (long long)(p.host.blocks - blocks));
    kit_assert(rc == BS_OK || err.message[0] != '\0',
               "a workload whose host call %lld (%s) fails gives no reason", (long long)n, p.host.failed);
    if (calls < n) break;
    rc = use_once(t, size, &err);
    kit_assert(rc == BS_OK, "after a workload whose host call %lld failed, the next one fails: %s: %s",
               (long long)n, err.id, err.message);
  }
  kit_plugin_deactivate(&p);
}
