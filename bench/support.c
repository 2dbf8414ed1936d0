/* SPDX-License-Identifier: MIT
 *
 * support.c - see support.h. */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static int take(const bench_option *o, const char *value) {
  char *end = NULL;
  double number = 0.0;
  switch (o->kind) {
    case 's':
      *(const char **)o->out = value;
      return 1;
    case 'd':
      *(uint32_t *)o->out = bs_dtype_parse(value);
      return *(uint32_t *)o->out != 0;
    default:
      number = strtod(value, &end);
      if (end == value || *end != '\0' || !(number >= o->least && number <= o->most)) return 0;
      if (o->kind == 'i')
        *(int64_t *)o->out = (int64_t)number;
      else
        *(double *)o->out = number;
      return 1;
  }
}

int bench_parse(const char *program, int argc, char **argv, const bench_option *options, size_t n_options) {
  for (int i = 1; i < argc; i += 2) {
    size_t k = 0;
    while (k < n_options && strcmp(argv[i], options[k].name) != 0) ++k;
    if (k < n_options && i + 1 < argc && take(&options[k], argv[i + 1])) continue;
    fprintf(stderr, "%s: wrong option or value: %s %s\noptions:", program, argv[i],
            i + 1 < argc ? argv[i + 1] : "(missing)");
    for (k = 0; k < n_options; ++k) fprintf(stderr, " %s", options[k].name);
    fprintf(stderr, "\n");
    return 0;
  }
  return 1;
}

#define HUGE_PAGE ((uint64_t)2 << 20)

void *bench_huge_alloc(uint64_t bytes) {
  void *memory = NULL;
  const uint64_t whole = (bytes / HUGE_PAGE + 1) * HUGE_PAGE;
  if (posix_memalign(&memory, HUGE_PAGE, whole) != 0) return NULL;
  (void)madvise(memory, whole, MADV_HUGEPAGE); /* only faster */
  return memset(memory, 0, whole);
}

int bench_fail(const char *program, const bs_error *err) {
  char text[1200];
  bs_error_format(err, program, text, sizeof text);
  fprintf(stderr, "%s\n", text);
  return bs_status_exit_code(err->code);
}

/* splitmix64 of the position: 24 bits of it, so that the value is a float exactly. */
static float value_at(uint64_t seed, uint64_t index) {
  uint64_t z = seed + (index + 1u) * UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return (float)(int32_t)((z >> 40) & 0xffffffu) * 0x1p-23f - 1.0f;
}

/* Rows lie 2^32 positions apart, so that the same element has the same value whatever part is read. */
static int32_t read_values(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                           void *out, int64_t out_stride, bs_error *err) {
  const bench_matrix *m = ctx;
  const int64_t count = cols != NULL ? cols->count : m->cols;
  (void)err;
  for (int64_t r = 0; r < nrows; ++r) {
    for (int64_t i = 0; i < count; ++i) {
      int64_t k = i;
      if (cols != NULL) k = cols->kind == BS_PARTITION_GATHER ? (int64_t)cols->columns[i] : cols->begin + i;
      const float v = value_at(m->seed, ((uint64_t)(row + r) << 32) + (uint64_t)k);
      char *to = (char *)out + (uint64_t)(r * out_stride + i) * BS_DTYPE_BYTES(dtype);
      if (dtype == BS_F32)
        memcpy(to, &v, sizeof v);
      else if (bs_convert(dtype, to, BS_F32, &v, 1) != BS_OK)
        return BS_UNSUPPORTED;
    }
  }
  return BS_OK;
}

bs_source bench_source(bench_matrix *m, uint32_t dtype) {
  const bs_source source = {.struct_size = sizeof source,
                            .dtype = dtype,
                            .rows = m->rows,
                            .cols = m->cols,
                            .ctx = m,
                            .read = read_values};
  return source;
}

int32_t bench_context(bs_context **out_context, bs_error *err) {
  static const char *const ids[1] = {"cpu"};
  const bs_context_options options = {.struct_size = sizeof options, .plugins = ids, .n_plugins = 1};
  return bs_context_open(&options, out_context, err);
}
