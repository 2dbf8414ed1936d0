/* SPDX-License-Identifier: MIT
 *
 * cpu_fixture.c - see cpu_fixture.h. */
#include "cpu_fixture.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#ifdef CX_STATIC
const bs_plugin_desc *bs_plugin_query_static_cpu(uint32_t host_abi, uint32_t reserved);

static bs_plugin_query_fn find_query(void) {
  return bs_plugin_query_static_cpu;
}
#else
static bs_plugin_query_fn find_query(void) {
  char path[4096];
  const char *dir = getenv("BS_TEST_PLUGIN_DIR");
  bs_plugin_query_fn query = NULL;
  ck_assert_msg(dir != NULL, "BS_TEST_PLUGIN_DIR is not set: run the test through ctest");
  snprintf(path, sizeof path, "%s/bs_cpu.so", dir);
  void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  ck_assert_msg(handle != NULL, "%s", dlerror());
  void *symbol = dlsym(handle, BS_PLUGIN_QUERY_SYMBOL);
  ck_assert_ptr_nonnull(symbol);
  memcpy(&query, &symbol, sizeof query);
  return query;
}
#endif

static int32_t register_thing(void *ctx, bs_plugin_self *self, uint32_t kind, const void *vtable, void *state,
                              const bs_src_loc *at, bs_error *err) {
  cx *c = ctx;
  (void)self;
  ck_assert_ptr_nonnull(at);
  if (c->fail_register_at > 0 && --c->fail_register_at == 0)
    return bs_fail(err, BS_NO_MEMORY, "CX-REGISTER", "asked to fail");
  ck_assert_uint_lt(c->count, CX_MAX_THINGS);
  c->things[c->count].kind = kind;
  c->things[c->count].vtable = vtable;
  c->things[c->count++].state = state;
  return BS_OK;
}

static int32_t param_define(void *ctx, bs_plugin_self *self, const bs_param_desc *desc, bs_error *err) {
  (void)ctx;
  (void)self;
  (void)err;
  ck_assert_uint_eq(desc->struct_size, sizeof *desc);
  ck_assert_ptr_nonnull(desc->doc);
  return BS_OK;
}

static int32_t param_get(void *ctx, const bs_plugin_self *self, const char *name, bs_value *out_value,
                         bs_error *err) {
  const cx *c = ctx;
  (void)self;
  out_value->type = BS_PARAM_STRING;
  out_value->s = strcmp(name, "isa") == 0            ? c->isa
                 : strcmp(name, "dnnl_library") == 0 ? c->dnnl
                 : strcmp(name, "matmul") == 0       ? c->matmul
                                                     : NULL;
  if (out_value->s == NULL) return bs_fail(err, BS_NOT_FOUND, "CX-PARAM", "no parameter %s", name);
  return BS_OK;
}

static void *exec_alloc(void *ctx, uint64_t bytes) {
  cx *c = ctx;
  void *p = NULL;
  if (c->fail_alloc_at > 0 && --c->fail_alloc_at == 0) return NULL;
  if (posix_memalign(&p, 64, bytes > 0 ? bytes : 1) != 0) return NULL;
  memset(p, 0xE7, bytes); /* the plugin may not count on zeros */
  c->live++;
  c->newest = bytes;
  return p;
}

static void exec_free(void *ctx, void *p) {
  cx *c = ctx;
  if (p != NULL) c->live--;
  free(p);
}

static int32_t exec_reserve(void *ctx, uint64_t bytes) {
  cx *c = ctx;
  void *more = NULL;
  if (c->fail_alloc_at > 0 && --c->fail_alloc_at == 0) return BS_NO_MEMORY;
  c->newest = bytes;
  if (c->scratch != NULL && bytes <= c->scratch_bytes) return BS_OK;
  if (posix_memalign(&more, 64, bytes > 0 ? bytes : 1) != 0) return BS_NO_MEMORY;
  memset(more, 0xE7, bytes);
  free(c->scratch);
  c->scratch = more;
  c->scratch_bytes = bytes;
  return BS_OK;
}

static void *exec_scratch(void *ctx) {
  return ((cx *)ctx)->scratch;
}

typedef struct team_arg {
  void (*body)(void *arg, uint32_t member, uint32_t width);
  void *arg;
  uint32_t member, width;
} team_arg;

static void *team_main(void *opaque) {
  team_arg *m = opaque;
  m->body(m->arg, m->member, m->width);
  return NULL;
}

static int32_t team(void *ctx, void (*body)(void *arg, uint32_t member, uint32_t width), void *arg) {
  const cx *c = ctx;
  pthread_t threads[CX_MAX_WIDTH];
  team_arg args[CX_MAX_WIDTH];
  for (uint32_t i = 0; i < c->exec.width; i++) {
    args[i] = (team_arg){body, arg, i, c->exec.width};
    if (i > 0) ck_assert_int_eq(pthread_create(&threads[i], NULL, team_main, &args[i]), 0);
  }
  body(arg, 0, c->exec.width);
  for (uint32_t i = 1; i < c->exec.width; i++) pthread_join(threads[i], NULL);
  return BS_OK;
}

int32_t cx_try_open(cx *c, const char *isa, const char *dnnl, uint32_t width, bs_error *err) {
  const int64_t fail_register_at = c->fail_register_at;
  const char *matmul = c->matmul;
  memset(c, 0, sizeof *c);
  c->matmul = matmul != NULL ? matmul : "auto";
  c->fail_register_at = fail_register_at;
  c->isa = isa;
  c->dnnl = dnnl;
  c->host.struct_size = (uint32_t)sizeof c->host;
  c->host.abi = BS_ABI_VERSION;
  c->host.ctx = c;
  c->host.register_thing = register_thing;
  c->host.param_define = param_define;
  c->host.param_get = param_get;
  c->host.convert = bs_convert;
  c->exec.struct_size = (uint32_t)sizeof c->exec;
  c->exec.width = width;
  c->exec.ctx = c;
  c->exec.parallel_for = team;
  c->exec.alloc = exec_alloc;
  c->exec.free = exec_free;
  c->exec.reserve = exec_reserve;
  c->exec.scratch = exec_scratch;
  c->desc = find_query()(BS_ABI_VERSION, 0);
  ck_assert_str_eq(c->desc->id, "cpu");
  const int32_t rc = c->desc->activate(&c->host, NULL, &c->state, err);
  c->activated = rc == BS_OK;
  return rc;
}

void cx_open(cx *c, const char *isa, const char *dnnl, uint32_t width) {
  bs_error err = {.struct_size = sizeof err};
  c->fail_register_at = 0;
  c->matmul = NULL;
  ck_assert_uint_le(width, CX_MAX_WIDTH);
  ck_assert_msg(cx_try_open(c, isa, dnnl, width, &err) == BS_OK, "%s: %s", err.id, err.message);
}

void cx_close(cx *c) {
  free(c->scratch);
  c->scratch = NULL;
  bs_error err = {.struct_size = sizeof err};
  ck_assert_int_eq(c->live, 0);
  if (c->activated) ck_assert_int_eq(c->desc->deactivate(c->state, &err), BS_OK);
  c->activated = 0;
}

const bs_op_impl *cx_impl(const cx *c, const char *op, const char *name, void **out_state) {
  for (uint32_t i = 0; i < c->count; i++) {
    const bs_op_impl *impl = c->things[i].vtable;
    if (c->things[i].kind != BS_KIND_OP || strcmp(impl->op, op) != 0 || strcmp(impl->name, name) != 0)
      continue;
    if (out_state != NULL) *out_state = c->things[i].state;
    return impl;
  }
  return NULL;
}

const bs_backend *cx_backend(const cx *c, void **out_state) {
  for (uint32_t i = 0; i < c->count; i++)
    if (c->things[i].kind == BS_KIND_BACKEND) {
      *out_state = c->things[i].state;
      return c->things[i].vtable;
    }
  return NULL;
}

int cx_has_isa(const char *isa) {
  if (strcmp(isa, "portable") == 0 || strcmp(isa, "auto") == 0) return 1;
#if defined(__x86_64__)
  const int avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const int avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                     __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (strcmp(isa, "avx2") == 0) return avx2;
  if (strcmp(isa, "avx512") == 0) return avx2 && avx512;
  return avx2 && avx512 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1u) != 0;
#else
  return 0;
#endif
}

const char *cx_best_isa(void) {
  static const char *const isas[] = {"avx512_bf16", "avx512", "avx2"};
  for (int i = 0; i < 3; i++)
    if (cx_has_isa(isas[i])) return isas[i];
  return "portable";
}

uint64_t cx_next(uint64_t *seed) {
  *seed += UINT64_C(0x9e3779b97f4a7c15);
  uint64_t z = *seed;
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return z ^ z >> 31;
}

int64_t cx_below(uint64_t *seed, int64_t n) {
  return (int64_t)(cx_next(seed) % (uint64_t)n);
}

enum { GUARD = 64 };

static void fill_block(cx_matrix *m, uint64_t bytes) {
  void *p = NULL;
  m->block_bytes = bytes + 2 * GUARD;
  ck_assert_int_eq(posix_memalign(&p, 64, m->block_bytes), 0);
  m->block = p;
  memset(m->block, 0xA5, m->block_bytes);
}

void cx_matrix_make(cx_matrix *m, uint32_t dtype, int64_t rows, int64_t cols, int64_t ld) {
  const uint64_t size = BS_DTYPE_BYTES(dtype);
  memset(m, 0, sizeof *m);
  if (ld == 0) ld = cols;
  const uint64_t bytes = rows > 0 && cols > 0 ? (uint64_t)((rows - 1) * ld + cols) * size : 0;
  fill_block(m, bytes);
  m->d = bs_desc_2d(dtype, rows, cols);
  m->d.strides[0] = ld;
  m->t.struct_size = (uint32_t)sizeof m->t;
  m->t.dtype = dtype;
  m->t.rank = 2;
  memcpy(m->t.dims, m->d.dims, sizeof m->t.dims);
  memcpy(m->t.strides, m->d.strides, sizeof m->t.strides);
  m->t.data = m->block + GUARD;
  m->t.bytes = bytes;
}

void cx_vector_make(cx_matrix *m, uint32_t dtype, int64_t count) {
  cx_matrix_make(m, dtype, 1, count, 0);
  m->d.rank = m->t.rank = 1;
  m->d.dims[0] = m->t.dims[0] = count;
  m->d.dims[1] = m->t.dims[1] = 0;
  m->d.strides[0] = m->t.strides[0] = 1;
  m->d.strides[1] = m->t.strides[1] = 0;
}

void cx_matrix_free(cx_matrix *m) {
  free(m->block);
  memset(m, 0, sizeof *m);
}

void cx_guards(const cx_matrix *m, const char *what) {
  const uint64_t size = BS_DTYPE_BYTES(m->t.dtype);
  for (uint64_t i = 0; i < m->block_bytes; i++) {
    const int64_t at = (int64_t)i - GUARD;
    int inside = at >= 0 && (uint64_t)at < m->t.bytes;
    if (inside && m->t.rank == 2 && m->t.strides[0] > 0)
      inside = (uint64_t)at / size % (uint64_t)m->t.strides[0] < (uint64_t)m->t.dims[1];
    if (!inside)
      ck_assert_msg(m->block[i] == 0xA5, "%s: byte %lld outside of its elements was written", what,
                    (long long)at);
  }
}

static int64_t element(const cx_matrix *m, int64_t row, int64_t col) {
  return m->t.rank == 1 ? col : row * m->t.strides[0] + col;
}

double cx_get(const cx_matrix *m, int64_t row, int64_t col) {
  return bs_load_f64(m->t.dtype, m->t.data, element(m, row, col));
}

void cx_set(cx_matrix *m, int64_t row, int64_t col, double value) {
  bs_store_f64(m->t.dtype, m->t.data, element(m, row, col), value);
}

bs_partition cx_pattern(int64_t total, uint32_t period, uint32_t bits, int64_t begin, int64_t span) {
  bs_partition p = {.struct_size = sizeof p, .kind = BS_PARTITION_GATHER, .total = total, .begin = begin};
  uint32_t *columns = calloc((size_t)span + 1, sizeof *columns);
  ck_assert_ptr_nonnull(columns);
  for (int64_t k = begin; k < begin + span; k++)
    if (bits >> (k % period) & 1u) columns[p.count++] = (uint32_t)k;
  p.columns = columns;
  p.period = period;
  p.pattern_bits = bits;
  p.span = span;
  return p;
}

bs_partition cx_run(int64_t total, int64_t begin, int64_t count) {
  const bs_partition p = {.struct_size = sizeof p,
                          .kind = BS_PARTITION_CONTIGUOUS,
                          .total = total,
                          .begin = begin,
                          .count = count,
                          .span = count};
  return p;
}

bs_partition cx_list(int64_t total, int64_t count, uint64_t *seed) {
  bs_partition p = {.struct_size = sizeof p, .kind = BS_PARTITION_GATHER, .total = total};
  uint32_t *columns = calloc((size_t)count + 1, sizeof *columns);
  ck_assert_ptr_nonnull(columns);
  for (int64_t k = 0; k < total && p.count < count; k++)
    if (cx_below(seed, total - k) < count - p.count) columns[p.count++] = (uint32_t)k;
  p.columns = columns;
  return p;
}

void cx_partition_free(bs_partition *p) {
  union {
    const uint32_t *given;
    uint32_t *mine;
  } columns = {p->columns};
  free(columns.mine);
  p->columns = NULL;
}

int64_t cx_column(const bs_partition *p, int64_t i) {
  if (p == NULL) return i;
  return p->kind == BS_PARTITION_GATHER ? (int64_t)p->columns[i] : p->begin + i;
}

static int32_t read_matrix(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                           void *out, int64_t out_stride, bs_error *err) {
  const cx_matrix *m = ctx;
  const int64_t count = cols != NULL ? cols->count : m->t.dims[1];
  if (row < 0 || row + nrows > m->t.dims[0])
    return bs_fail(err, BS_INVALID_ARGUMENT, "CX-ROWS", "rows %lld+%lld", (long long)row, (long long)nrows);
  for (int64_t r = 0; r < nrows; r++)
    for (int64_t i = 0; i < count; i++)
      bs_store_f64(dtype, out, r * out_stride + i, cx_get(m, row + r, cx_column(cols, i)));
  return BS_OK;
}

bs_source cx_source(cx_matrix *m) {
  const bs_source s = {.struct_size = sizeof s,
                       .dtype = m->t.dtype,
                       .rows = m->t.dims[0],
                       .cols = m->t.dims[1],
                       .ctx = m,
                       .read = read_matrix};
  return s;
}
