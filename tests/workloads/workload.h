/* SPDX-License-Identifier: MIT
 * workload.h - opening a workload through the public API, for the tests of this folder. */
#ifndef BS_TESTS_WORKLOADS_WORKLOAD_H
#define BS_TESTS_WORKLOADS_WORKLOAD_H
#include "core/base/error.h"
#include "tests/formats/files.h"

/* What a test asks for; unset fields are 0. options: "key=value" strings, NULL at the end. */
typedef struct ask {
  const char *name;
  uint32_t dtype;
  int64_t B, N, K;
  uint64_t seed, weight_seed;
  uint32_t has_bias;
  const char *options[8];
  void *(*state)(void *found); /* gives another plugin state to open; NULL: the one found */
} ask;

typedef struct opened {
  bs_context *context;
  const bs_workload *vtable;
  void *instance;
  bs_workload_info info;
} opened;

static inline void workload_close(opened *w) {
  if (w->instance != NULL) w->vtable->close(w->instance);
  if (w->context != NULL) bs_context_close(w->context);
  memset(w, 0, sizeof *w);
}

static inline int32_t workload_open(const ask *a, opened *out, bs_error *err) {
  const char *dir = getenv("BS_TEST_PLUGIN_DIR"), *keys[8], *values[8];
  char texts[8][600];
  /* Build trees may lie under a world-writable folder. */
  const bs_context_options options = {.trust = BS_TRUST_ANY,

                                      .struct_size = sizeof options,
                                      .plugin_dirs = &dir,
                                      .n_plugin_dirs = dir != NULL ? 1 : 0};
  bs_workload_request request = {.struct_size = sizeof request,
                                 .dtype = a->dtype != 0 ? a->dtype : BS_F32,
                                 .B = a->B,
                                 .N = a->N,
                                 .K = a->K,
                                 .seed = a->seed,
                                 .weight_seed = a->weight_seed,
                                 .has_bias = a->has_bias,
                                 .option_keys = keys,
                                 .option_values = values};
  void *state = NULL;
  memset(out, 0, sizeof *out);
  for (uint32_t n = 0; n < 8 && a->options[n] != NULL; n++) {
    snprintf(texts[n], sizeof texts[n], "%s", a->options[n]);
    char *equals = strchr(texts[n], '=');
    ck_assert_ptr_nonnull(equals);
    *equals = '\0';
    keys[n] = texts[n];
    values[n] = equals + 1;
    request.n_options = n + 1;
  }
  ck_assert_msg(bs_context_open(&options, &out->context, err) == BS_OK, "%s", err->message);
  ck_assert_msg(bs_find_workload(out->context, a->name, &out->vtable, &state, err) == BS_OK, "%s: %s",
                a->name, err->message);
  if (a->state != NULL) state = a->state(state);
  int32_t rc = out->vtable->open(state, &request, &out->instance, err);
  if (rc == BS_OK) {
    out->info.struct_size = sizeof out->info;
    rc = out->vtable->info(out->instance, &out->info, err);
  }
  if (rc != BS_OK) {
    out->instance = NULL;
    workload_close(out);
  }
  return rc;
}

static inline void workload_must_open(const ask *a, opened *out) {
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(workload_open(a, out, &err) == BS_OK, "%s: %s %s", a->name, err.id, err.message);
}

/* It is refused with this code, id, and a place, message or hint that contains `part`. */
static inline void workload_refused(const ask *a, int32_t code, const char *id, const char *part) {
  opened w;
  bs_error err = BS_ERROR_INIT;
  int32_t rc = workload_open(a, &w, &err);
  ck_assert_msg(rc == code && strcmp(err.id, id) == 0, "%s %s: got %d %s: %s, want %d %s", a->name,
                a->options[0] != NULL ? a->options[0] : "", rc, err.id, err.message, code, id);
  ck_assert_msg(
      strstr(err.message, part) != NULL || strstr(err.hint, part) != NULL || strstr(err.where, part) != NULL,
      "%s: '%s' is in none of: %s | %s | %s", id, part, err.message, err.hint, err.where);
  workload_close(&w);
}

static inline bs_source workload_source(opened *w, uint32_t part) {
  bs_source s = {.struct_size = sizeof s};
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(w->vtable->source(w->instance, part, &s, &err) == BS_OK, "part %u: %s", part, err.message);
  return s;
}

/* The whole of a source in `dtype`; freed by the caller. */
static inline void *workload_read(const bs_source *s, uint32_t dtype) {
  bs_error err = BS_ERROR_INIT;
  void *data = calloc((size_t)(s->rows * s->cols) + 1, BS_DTYPE_BYTES(dtype));
  ck_assert_ptr_nonnull(data);
  ck_assert_msg(s->read(s->ctx, 0, s->rows, NULL, dtype, data, s->cols, &err) == BS_OK, "%s", err.message);
  return data;
}

/* Every way to ask for panels gives the bits of `whole` ([rows, cols] of dtype), and touches nothing else:
 * rows one by one, tiles, gathered columns (dense, sparse, single). */
static inline void workload_check_panels(const bs_source *s, uint32_t dtype, const void *whole) {
  size_t size = BS_DTYPE_BYTES(dtype);
  static const struct {
    int64_t rows, begin, step, keep; /* step 0: contiguous; else columns k with (k / keep) % step == 0 */
  } ways[] = {{1, 0, 0, 0}, {3, 1, 0, 0},  {7, 5, 0, 0}, {2, 0, 2, 1},
              {5, 1, 2, 2}, {4, 0, 16, 1}, {1, 3, 61, 1}};
  uint32_t *columns = calloc((size_t)s->cols, sizeof *columns);
  for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
    bs_partition part = {.struct_size = sizeof part, .total = s->cols, .begin = ways[way].begin};
    if (ways[way].begin >= s->cols) continue;
    for (int64_t k = ways[way].begin; k < s->cols; k++)
      if (ways[way].step == 0 || (k - ways[way].begin) / ways[way].keep % ways[way].step == 0)
        columns[part.count++] = (uint32_t)k;
    if (ways[way].step != 0) {
      part.kind = BS_PARTITION_GATHER;
      part.columns = columns;
    }
    int64_t stride = part.count + 3;
    for (int64_t row = 0; row < s->rows; row += ways[way].rows) {
      int64_t n = s->rows - row < ways[way].rows ? s->rows - row : ways[way].rows;
      size_t bytes = (size_t)(n * stride) * size;
      unsigned char *out = malloc(bytes);
      bs_error err = BS_ERROR_INIT;
      memset(out, 0xa5, bytes);
      ck_assert_msg(s->read(s->ctx, row, n, &part, dtype, out, stride, &err) == BS_OK, "%s", err.message);
      for (int64_t r = 0; r < n; r++) {
        unsigned char *line = out + (size_t)(r * stride) * size;
        /* Asserts write a mark each: only the failing one is made. */
        for (int64_t i = 0; i < part.count; i++) {
          const char *want = (const char *)whole + (size_t)((row + r) * s->cols + columns[i]) * size;
          if (memcmp(line + (size_t)i * size, want, size) != 0)
            ck_abort_msg("way %zu: row %d, column %u differs", way, (int)(row + r), columns[i]);
        }
        for (size_t i = (size_t)part.count * size; i < (size_t)stride * size; i++)
          if (line[i] != 0xa5) ck_abort_msg("way %zu: wrote beyond the columns", way);
      }
      free(out);
    }
  }
  free(columns);
}

/* Reads outside the matrix are the caller's mistake and are refused. */
static inline void workload_check_bounds(const bs_source *s) {
  uint32_t columns[2] = {1, 1}, outside[1] = {(uint32_t)s->cols};
  char out[64];
  bs_error err = BS_ERROR_INIT;
  bs_partition part = {.struct_size = sizeof part, .total = s->cols, .begin = s->cols, .count = 1};
  ck_assert_int_eq(s->read(s->ctx, s->rows, 1, NULL, BS_F32, out, s->cols, &err), BS_INVALID_ARGUMENT);
  ck_assert_int_eq(s->read(s->ctx, -1, 1, NULL, BS_F32, out, s->cols, &err), BS_INVALID_ARGUMENT);
  ck_assert_int_eq(s->read(s->ctx, 0, s->rows + 1, NULL, BS_F32, out, s->cols, &err), BS_INVALID_ARGUMENT);
  ck_assert_int_eq(s->read(s->ctx, 0, 1, &part, BS_F32, out, 1, &err), BS_INVALID_ARGUMENT);
  part = (bs_partition){.struct_size = sizeof part, .total = s->cols + 1, .count = 1};
  ck_assert_int_eq(s->read(s->ctx, 0, 1, &part, BS_F32, out, 1, &err), BS_INVALID_ARGUMENT);
  part = (bs_partition){.struct_size = sizeof part, .kind = BS_PARTITION_GATHER, .total = s->cols};
  part.count = 1;
  part.columns = outside;
  ck_assert_int_eq(s->read(s->ctx, 0, 1, &part, BS_F32, out, 1, &err), BS_INVALID_ARGUMENT);
  part.count = 2;
  part.columns = columns;
  ck_assert_int_eq(s->read(s->ctx, 0, 1, &part, BS_F32, out, 2, &err), BS_INVALID_ARGUMENT);
}
#endif
