/* SPDX-License-Identifier: MIT
 * constants.c - see constants.h: measuring all, and finding what a run needs. constants_file.c has the file.
 */
#include "lab/measure/constants.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/memory.h"
#include "lab/cores.h"
#include "lab/error.h"
#include "lab/measure/kernel.h"
#include "lab/stop.h"
#include "lab/store/env.h"
#include "lab/store/store.h"

enum { MAX_RANKS = 8 };
#define MIB 1048576.0
static const uint32_t measured_dtypes[] = {BS_F32, BS_BF16, BS_F16, BS_F64, BS_I8};
static const uint32_t kernel_dtypes[] = {BS_F32, BS_BF16, BS_F16};
static const double kernel_footprints[] = {64 * MIB, 4 * MIB}; /* from memory; from a cache (only 2:4) */
static const double footprints[] = {1 * MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB};
enum { N_DTYPES = sizeof measured_dtypes / sizeof measured_dtypes[0] };
enum { N_KERNELS = sizeof kernel_dtypes / sizeof kernel_dtypes[0] };
enum { N_FOOTPRINTS = sizeof footprints / sizeof footprints[0] };

typedef struct survey {
  const bs_case *like;
  const char *const *backends;
  size_t n_backends;
  uint32_t ranks; /* worlds of 2 to this many are measured */
  bs_machine m;
  json_t *out;
  bs_progress_fn progress;
  void *user;
  uint64_t done, total;
} survey;

static void step(survey *s, const char *what) {
  if (s->progress != NULL) s->progress(s->user, what, s->done, s->total);
  s->done++;
}

/* Appends a row to the list `name`, with the spread of its passes. Takes the row. */
static int32_t add_row(survey *s, const char *name, json_t *row, bs_error *err) {
  json_t *list = json_object_get(s->out, name);
  if (row != NULL && json_object_get(row, "spread") == NULL)
    json_object_set_new(row, "spread", json_real(s->m.spread));
  s->m.spread = 0.0;
  if (list == NULL && json_object_set_new(s->out, name, list = json_array()) != 0) list = NULL;
  if (row == NULL || list == NULL || json_array_append_new(list, row) != 0)
    return bs_no_memory(err, "the machine's constants");
  return bs_stop_check(err);
}

static int32_t survey_arithmetic(survey *s, bs_error *err) {
  int32_t rc = BS_OK;
  for (size_t i = 0; rc == BS_OK && i < N_DTYPES; i++) {
    step(s, "multiply-adds");
    s->m.loop[0] = '\0';
    rc = bs_machine_rates(s->m.threads, measured_dtypes[i], NULL, 0, &s->m, err);
    if (rc != BS_OK) return rc;
    rc = add_row(s, "arithmetic",
                 json_pack("{s:s,s:s,s:f,s:f}", "dtype", bs_dtype_name(measured_dtypes[i]), "loop", s->m.loop,
                           "flops_core", s->m.flops_core, "flops_all", s->m.flops_all),
                 err);
  }
  return rc;
}

/* The largest footprint that takes at most a quarter of the free memory; at least the smallest. */
static size_t largest_footprint(void) {
  const double available = (double)bs_memory_available("");
  size_t n = N_FOOTPRINTS;
  while (available > 0 && n > 1 && footprints[n - 1] > available / 4) n--;
  return n;
}

static int32_t survey_memory(survey *s, bs_error *err) {
  const size_t n = largest_footprint();
  const size_t most = (size_t)(footprints[n - 1] / sizeof(uint64_t));
  uint64_t *data = bs_machine_words(most);
  if (data == NULL) return bs_no_memory(err, "the machine's constants");
  int32_t rc = BS_OK;
  for (size_t i = 0; rc == BS_OK && i < n; i++) {
    step(s, "memory");
    rc = bs_machine_rates(s->m.threads, 0, data, (size_t)(footprints[i] / sizeof(uint64_t)), &s->m, err);
    if (rc != BS_OK) break;
    rc = add_row(s, "memory",
                 json_pack("{s:f,s:f,s:f,s:f,s:f}", "footprint_bytes", footprints[i], "read_bytes_per_s_core",
                           s->m.read_core, "read_bytes_per_s_all", s->m.read_all, "copy_bytes_per_s_core",
                           s->m.copy_core, "copy_bytes_per_s_all", s->m.copy_all),
                 err);
  }
  free(data);
  return rc;
}

static int32_t survey_backend(survey *s, const char *backend, bs_error *err) {
  bs_case c = *s->like;
  c.backend = backend;
  step(s, "host");
  int32_t rc = bs_machine_host(&c, &s->m, err);
  if (rc == BS_OK)
    rc = add_row(s, "host", json_pack("{s:s,s:f}", "backend", backend, "host_s", s->m.host), err);
  for (c.world_size = 2; rc == BS_OK && c.world_size <= s->ranks; c.world_size++) {
    step(s, "all-reduces");
    rc = bs_machine_exchange(&c, &s->m, err);
    if (rc != BS_OK) return rc;
    json_t *row =
        json_pack("{s:s,s:s,s:i}", "backend", backend, "comm", c.comm, "world_size", (int)c.world_size);
    for (int i = 0; i < BS_EXCHANGES; i++)
      json_object_set_new(row, bs_exchange_keys[i], json_real(s->m.exchange[i]));
    rc = add_row(s, "exchange", row, err);
  }
  return rc;
}

/* Adds a row for each kernel; one that cannot be measured gets the reason. So does a backend that is so slow
 * that its weight was made small. */
static int32_t survey_kernel(survey *s, const bs_case *c, uint32_t dtype, uint32_t of24, bs_error *err) {
  double measured = kernel_footprints[0];
  for (size_t i = of24; i < 2 && 2 * measured >= kernel_footprints[0]; i++) {
    bs_kernel kernel = {.of24 = of24, .source = "measured"};
    bs_error why = BS_ERROR_INIT;
    const int32_t rc = bs_kernel_measure(c, dtype, kernel_footprints[i], BS_KERNEL_SECONDS, &kernel, &why);
    if (rc == BS_OK) bs_kernel_measure_backward(c, dtype, &kernel);
    json_t *row = rc == BS_OK
                      ? bs_kernel_json(&kernel)
                      : json_pack("{s:s,s:s}", "op", bs_kernel_measured_op(&kernel), "why", why.message);
    if (rc != BS_OK && rc != BS_UNSUPPORTED) {
      *err = why;
      json_decref(row);
      return rc;
    }
    json_object_set_new(row, "backend", json_string(c->backend));
    json_object_set_new(row, "dtype", json_string(bs_dtype_name(dtype)));
    const int32_t added = add_row(s, "kernels", row, err);
    if (added != BS_OK || rc != BS_OK) return added;
    measured = kernel.footprint;
  }
  return BS_OK;
}

static int32_t survey_kernels(survey *s, const char *backend, bs_error *err) {
  bs_case c = *s->like;
  int32_t rc = BS_OK;
  c.backend = backend;
  for (uint32_t i = 0; rc == BS_OK && i < 2 * N_KERNELS; i++) {
    step(s, "products");
    rc = survey_kernel(s, &c, kernel_dtypes[i / 2], i % 2, err);
  }
  return rc;
}

int32_t bs_constants_measure(const bs_case *like, const char *const *backends, size_t n_backends,
                             bs_progress_fn progress, void *user, json_t **out, bs_error *err) {
  char stamp[16];
  const uint32_t cores = bs_machine_cores();
  survey s = {
      .like = like, .backends = backends, .n_backends = n_backends, .progress = progress, .user = user};
  *out = NULL;
  bs_store_stamp(stamp);
  s.m.threads = bs_machine_threads();
  s.ranks = cores < 2 ? 2 : cores < MAX_RANKS ? cores : MAX_RANKS;
  s.total = N_DTYPES + largest_footprint() + n_backends * (s.ranks + 2 * N_KERNELS);
  bs_load before, after;
  bs_load_now(&before);
  s.out = json_pack("{s:i,s:o?,s:s,s:i,s:i}", "format", BS_CONSTANTS_FORMAT, "key", bs_constants_key(),
                    "measured_at", stamp, "cores", (int)cores, "threads", (int)s.m.threads);
  int32_t rc = s.out == NULL ? bs_no_memory(err, "the machine's constants") : survey_arithmetic(&s, err);
  if (rc == BS_OK) rc = survey_memory(&s, err);
  for (size_t i = 0; rc == BS_OK && i < n_backends; i++) rc = survey_backend(&s, backends[i], err);
  for (size_t i = 0; rc == BS_OK && i < n_backends; i++) rc = survey_kernels(&s, backends[i], err);
  bs_load_now(&after);
  if (rc == BS_OK && json_object_set_new(s.out, "conditions", bs_load_json(&before, &after)) != 0)
    rc = bs_no_memory(err, "the machine's constants");
  if (rc != BS_OK) {
    json_decref(s.out);
    return rc;
  }
  *out = s.out;
  return BS_OK;
}

/* ---- constants of a run --------------------------------------------------------------------- */

/* A finite number above 0, or 0. */
static double positive(const json_t *row, const char *key) {
  const double value = json_number_value(json_object_get(row, key));
  return isfinite(value) && value > 0.0 ? value : 0.0;
}

static void widen(double *spread, const json_t *row) {
  *spread = fmax(*spread, positive(row, "spread"));
}

static int is_text(const json_t *row, const char *key, const char *text) {
  const char *value = json_string_value(json_object_get(row, key));
  return value != NULL && text != NULL && strcmp(value, text) == 0;
}

/* The first row of the list `name` whose text `key` is `text`; NULL: none. */
static const json_t *row_with(const json_t *constants, const char *name, const char *key, const char *text) {
  const json_t *row;
  size_t i;
  json_array_foreach(json_object_get(constants, name), i, row) if (is_text(row, key, text)) return row;
  return NULL;
}

static int find_arithmetic(const json_t *constants, uint32_t dtype, bs_machine *out) {
  const json_t *row = row_with(constants, "arithmetic", "dtype", bs_dtype_name(dtype));
  const char *loop = json_string_value(json_object_get(row, "loop"));
  if (loop == NULL) return 0;
  out->flops_core = positive(row, "flops_core");
  out->flops_all = positive(row, "flops_all");
  widen(&out->spread, row);
  strncpy(out->loop, loop, sizeof out->loop - 1);
  return out->flops_core > 0 && out->flops_all > 0;
}

/* The two rows of a list around a footprint; `at`: its position, 0 (low) to 1 (high). */
typedef struct range {
  const json_t *low, *high;
  double at;
} range;

static void range_add(range *r, const json_t *row, double footprint) {
  const double bytes = positive(row, "footprint_bytes");
  if (bytes <= footprint && (r->low == NULL || bytes > positive(r->low, "footprint_bytes"))) r->low = row;
  if (bytes >= footprint && (r->high == NULL || bytes < positive(r->high, "footprint_bytes"))) r->high = row;
}

/* Linear in the logarithms between the two nearest footprints; beyond the ends, the end. */
static int range_end(range *r, double footprint) {
  if (r->low == NULL) r->low = r->high;
  if (r->high == NULL) r->high = r->low;
  if (r->low == NULL) return 0;
  const double from = positive(r->low, "footprint_bytes"), to = positive(r->high, "footprint_bytes");
  r->at = to > from ? log(footprint / from) / log(to / from) : 0.0;
  return from > 0;
}

static double between(double a, double b, double at) {
  return a > 0 && b > 0 ? a * pow(b / a, at) : 0.0;
}

static double range_value(const range *r, const char *key) {
  return between(positive(r->low, key), positive(r->high, key), r->at);
}

/* The faster end's rate over that between the ends. */
static double fastest_of(const range *r, const char *key) {
  return fmax(positive(r->low, key), positive(r->high, key)) / range_value(r, key);
}

static int find_memory(const json_t *constants, double footprint, bs_machine *out) {
  const json_t *row;
  size_t i;
  range r = {0};
  json_array_foreach(json_object_get(constants, "memory"), i, row) {
    if (positive(row, "footprint_bytes") <= 0) return 0;
    range_add(&r, row, footprint);
  }
  if (!range_end(&r, footprint)) return 0;
  out->read_core = range_value(&r, "read_bytes_per_s_core");
  out->read_all = range_value(&r, "read_bytes_per_s_all");
  out->copy_core = range_value(&r, "copy_bytes_per_s_core");
  out->copy_all = range_value(&r, "copy_bytes_per_s_all");
  widen(&out->spread, r.low);
  widen(&out->spread, r.high);
  out->faster = fmax(fastest_of(&r, "read_bytes_per_s_core"), fastest_of(&r, "read_bytes_per_s_all"));
  return out->read_core > 0 && out->read_all > 0 && out->copy_core > 0 && out->copy_all > 0;
}

static int find_exchange(const json_t *constants, const bs_case *like, bs_machine *out) {
  const json_t *row;
  size_t i;
  if (like->world_size < 2) return 1;
  json_array_foreach(json_object_get(constants, "exchange"), i, row) {
    if (!is_text(row, "backend", like->backend) || !is_text(row, "comm", like->comm)) continue;
    if (json_integer_value(json_object_get(row, "world_size")) != (json_int_t)like->world_size) continue;
    int whole = 1;
    widen(&out->spread, row);
    for (int k = 0; k < BS_EXCHANGES; k++) {
      out->exchange[k] = positive(row, bs_exchange_keys[k]);
      whole = whole && out->exchange[k] > 0;
    }
    return whole;
  }
  return 0;
}

static int find_host(const json_t *constants, const char *backend, bs_machine *out) {
  const json_t *row = row_with(constants, "host", "backend", backend);
  out->host = positive(row, "host_s");
  widen(&out->spread, row);
  return out->host > 0;
}

int bs_constants_find(const json_t *constants, const bs_case *like, double footprint, bs_machine *out) {
  bs_machine m = {.source = "stored", .footprint = bs_machine_footprint(footprint)};
  const char *stamp = json_string_value(json_object_get(constants, "measured_at"));
  const json_int_t cores = json_integer_value(json_object_get(constants, "cores"));
  const json_int_t threads = json_integer_value(json_object_get(constants, "threads"));
  const json_t *others = json_object_get(json_object_get(constants, "conditions"), "others");
  m.others = json_is_number(others) ? json_number_value(others) : -1.0;
  if (constants == NULL || cores < 1 || cores > UINT32_MAX || threads < 1 || threads > cores) return 0;
  m.cores = (uint32_t)cores;
  m.threads = (uint32_t)threads;
  if (stamp != NULL) strncpy(m.measured_at, stamp, sizeof m.measured_at - 1);
  if (!find_arithmetic(constants, like->spec.x_dtype, &m) || !find_memory(constants, m.footprint, &m) ||
      !find_exchange(constants, like, &m) || !find_host(constants, like->backend, &m))
    return 0;
  *out = m;
  return 1;
}

/* A kernel's byte rates of one core, all and a team as parts of the machine's at the same footprint. */
static int find_parts(const json_t *constants, const json_t *row, double out[3]) {
  bs_machine m = {0};
  const double bytes = positive(row, "footprint_bytes");
  if (bytes <= 0 || !find_memory(constants, bytes, &m)) return 0;
  out[0] = positive(row, "bytes_per_s_core") / m.read_core;
  out[1] = positive(row, "bytes_per_s_all") / m.read_all;
  out[2] = positive(row, "bytes_per_s_team") / m.read_all;
  return 1;
}

int bs_constants_of24(const json_t *row) {
  return is_text(row, "op", "matmul24");
}

int bs_constants_kernel(const json_t *constants, const bs_case *like, double footprint, const bs_kernel *who,
                        bs_kernel *out) {
  const json_t *row;
  size_t i;
  bs_machine m = {0};
  range r = {0};
  double low[3], high[3];
  const double bytes = bs_machine_footprint(footprint);
  json_array_foreach(json_object_get(constants, "kernels"), i, row) {
    if (is_text(row, "backend", like->backend) && is_text(row, "dtype", bs_dtype_name(like->spec.w_dtype)) &&
        bs_constants_of24(row) == (who->of24 != 0) && is_text(row, "name", who->name) &&
        is_text(row, "how", who->how) && is_text(row, "plugin", who->plugin))
      range_add(&r, row, bytes);
  }
  if (!range_end(&r, bytes) || !find_memory(constants, bytes, &m) || !find_parts(constants, r.low, low) ||
      !find_parts(constants, r.high, high))
    return 0;
  bs_kernel k = *who;
  k.source = "stored";
  k.footprint = bytes;
  k.backward = range_value(&r, "backward"); /* 0: a file of before it was measured */
  k.flops_core = range_value(&r, "flops_core");
  k.flops_all = range_value(&r, "flops_all");
  k.flops_team = range_value(&r, "flops_team");
  k.bytes_core = m.read_core * between(low[0], high[0], r.at);
  k.bytes_all = m.read_all * between(low[1], high[1], r.at);
  k.bytes_team = m.read_all * between(low[2], high[2], r.at);
  if (!(k.flops_core > 0 && k.flops_all > 0 && k.bytes_core > 0 && k.bytes_all > 0)) return 0;
  *out = k;
  return 1;
}
