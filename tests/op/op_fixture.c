/* SPDX-License-Identifier: MIT
 * op_fixture.c - the fixture of op_fixture.h: also defines bs_registry_ops, which core/op calls. */
#include "op_fixture.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static bs_thing things[FX_MAX_THINGS];
static uint32_t thing_count;

uint32_t bs_registry_ops(bs_context *context, const char *op, const char *backend,
                         const bs_thing **out_things, uint32_t max) {
  (void)context;
  uint32_t found = 0;
  for (uint32_t i = 0; i < thing_count; i++) {
    if (things[i].kind != BS_KIND_OP) continue;
    const bs_op_impl *impl = things[i].vtable;
    if (strcmp(impl->op, op) != 0 || strcmp(impl->backend, backend) != 0) continue;
    if (found < max) out_things[found] = &things[i];
    found++;
  }
  return found;
}

static void *take(fx *f, uint64_t bytes, uint64_t align) {
  const int64_t left = __atomic_load_n(&f->fail_alloc_at, __ATOMIC_RELAXED);
  if (left > 0 && __atomic_sub_fetch(&f->fail_alloc_at, 1, __ATOMIC_RELAXED) == 0) return NULL;
  void *p = NULL;
  if (posix_memalign(&p, align < 64 ? 64 : align, bytes > 0 ? bytes : 1) != 0) return NULL;
  memset(p, 0, bytes);
  __atomic_add_fetch(&f->live, 1, __ATOMIC_RELAXED);
  return p;
}

static void *host_alloc(void *ctx, uint64_t bytes, uint64_t align) {
  return take(ctx, bytes, align);
}

static void give(void *ctx, void *p) {
  fx *f = ctx;
  if (p != NULL) __atomic_sub_fetch(&f->live, 1, __ATOMIC_RELAXED);
  free(p);
}

static void *exec_alloc(void *ctx, uint64_t bytes) {
  return take(ctx, bytes, 64);
}

static int32_t exec_reserve(void *ctx, uint64_t bytes) {
  fx *f = ctx;
  if (bytes > f->ops.reserved) f->ops.reserved = bytes;
  if (f->scratch != NULL && bytes <= f->scratch_bytes) return BS_OK;
  void *more = take(f, bytes, 64);
  if (more == NULL) return BS_NO_MEMORY;
  give(f, f->scratch);
  f->scratch = more;
  f->scratch_bytes = bytes;
  return BS_OK;
}

static void *exec_scratch(void *ctx) {
  return ((fx *)ctx)->scratch;
}

static int32_t register_thing(void *ctx, bs_plugin_self *self, uint32_t kind, const void *vtable, void *state,
                              const bs_src_loc *at, bs_error *err) {
  (void)ctx;
  (void)self;
  if (thing_count == FX_MAX_THINGS) return bs_error_set(err, BS_INTERNAL, "FX-FULL", "too many things");
  const bs_op_impl *impl = vtable;
  const bs_thing thing = {.kind = kind,
                          .name = kind == BS_KIND_OP ? impl->op : "backend",
                          .plugin = "ref",
                          .vtable = vtable,
                          .state = state,
                          .at = *at};
  things[thing_count++] = thing;
  return BS_OK;
}

typedef struct member_arg {
  void (*body)(void *arg, uint32_t member, uint32_t width);
  void *arg;
  uint32_t member, width;
} member_arg;

static void *member_main(void *opaque) {
  member_arg *m = opaque;
  m->body(m->arg, m->member, m->width);
  return NULL;
}

static int32_t parallel_for(void *ctx, void (*body)(void *arg, uint32_t member, uint32_t width), void *arg) {
  const fx *f = ctx;
  pthread_t threads[16];
  member_arg members[16];
  for (uint32_t i = 0; i < f->exec.width; i++) {
    const member_arg m = {body, arg, i, f->exec.width};
    members[i] = m;
    if (!f->threads) {
      member_main(&members[i]);
    } else {
      ck_assert_int_eq(pthread_create(&threads[i], NULL, member_main, &members[i]), 0);
    }
  }
  for (uint32_t i = 0; f->threads && i < f->exec.width; i++) pthread_join(threads[i], NULL);
  return BS_OK;
}

static void note(void *user, const char *text) {
  fx *f = user;
  const size_t used = strlen(f->notes);
  snprintf(f->notes + used, sizeof f->notes - used, "%s\n", text);
}

void fx_open(fx *f, uint32_t width, int with_ref) {
  memset(f, 0, sizeof *f);
  thing_count = 0;
  f->host.struct_size = (uint32_t)sizeof f->host;
  f->host.abi = BS_ABI_VERSION;
  f->host.ctx = f;
  f->host.register_thing = register_thing;
  f->host.alloc = host_alloc;
  f->host.free = give;
  f->host.convert = bs_convert;
  f->exec.struct_size = (uint32_t)sizeof f->exec;
  f->exec.width = width;
  f->exec.ctx = f;
  f->exec.parallel_for = parallel_for;
  f->exec.alloc = exec_alloc;
  f->exec.free = give;
  f->exec.reserve = exec_reserve;
  f->exec.scratch = exec_scratch;
  f->ops.backend = "ref";
  f->ops.exec = &f->exec;
  f->ops.counters = f->counters;
  f->ops.note_algorithm = note;
  f->ops.user = f;
  if (!with_ref) return;
  const bs_plugin_desc *desc = bs_plugin_query_static_ref(BS_ABI_VERSION, 0);
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(desc->activate(&f->host, NULL, &f->state, &err) == BS_OK, "%s", err.message);
}

void fx_close(fx *f) {
  give(f, f->scratch);
  f->scratch = NULL;
  if (f->state != NULL) ck_assert_int_eq(bs_plugin_query_static_ref(0, 0)->deactivate(f->state, NULL), BS_OK);
  ck_assert_msg(f->live == 0, "%lld blocks were not freed", (long long)f->live);
}

void fx_add(const char *plugin, const bs_op_impl *impl, void *state) {
  ck_assert_uint_lt(thing_count, FX_MAX_THINGS);
  const bs_thing thing = {
      .kind = BS_KIND_OP, .name = impl->op, .plugin = plugin, .vtable = impl, .state = state};
  things[thing_count++] = thing;
}

const bs_op_impl *fx_impl(const char *op, void **out_state) {
  const bs_thing *thing = NULL;
  ck_assert_uint_ge(bs_registry_ops(NULL, op, "ref", &thing, 1), 1);
  *out_state = thing->state;
  return thing->vtable;
}

void fx_tensor_make(fx_tensor *out, uint32_t dtype, uint32_t rank, const int64_t *dims,
                    const int64_t *strides) {
  memset(out, 0, sizeof *out);
  out->d.struct_size = (uint32_t)sizeof out->d;
  out->d.dtype = dtype;
  out->d.rank = rank;
  int64_t span = 1, step = 1;
  int empty = 0;
  for (uint32_t i = rank; i-- > 0;) {
    out->d.dims[i] = dims[i];
    out->d.strides[i] = strides != NULL ? strides[i] : step;
    step *= dims[i];
    empty |= dims[i] == 0;
    if (dims[i] > 0) span += (dims[i] - 1) * out->d.strides[i];
  }
  const uint64_t bytes = empty ? 0 : (uint64_t)span * BS_DTYPE_BYTES(dtype);
  out->block_bytes = bytes + 2 * FX_GUARD;
  ck_assert_int_eq(posix_memalign((void **)&out->block, 64, out->block_bytes), 0);
  memset(out->block, 0xA5, out->block_bytes);
  out->t.struct_size = (uint32_t)sizeof out->t;
  out->t.dtype = dtype;
  out->t.rank = rank;
  memcpy(out->t.dims, out->d.dims, sizeof out->t.dims);
  memcpy(out->t.strides, out->d.strides, sizeof out->t.strides);
  out->t.data = out->block + FX_GUARD;
  out->t.bytes = bytes;
}

void fx_matrix(fx_tensor *out, uint32_t dtype, int64_t rows, int64_t cols) {
  const int64_t dims[2] = {rows, cols};
  fx_tensor_make(out, dtype, 2, dims, NULL);
}

void fx_tensor_free(fx_tensor *t) {
  free(t->block);
  t->block = NULL;
}

static int64_t index_of(const fx_tensor *t, int64_t r, int64_t c) {
  return t->d.rank == 1 ? c * t->d.strides[0] : r * t->d.strides[0] + c * t->d.strides[1];
}

double fx_get(const fx_tensor *t, int64_t r, int64_t c) {
  return bs_load_f64(t->d.dtype, t->t.data, index_of(t, r, c));
}

int64_t fx_get_i64(const fx_tensor *t, int64_t r, int64_t c) {
  const unsigned char *p =
      (const unsigned char *)t->t.data + index_of(t, r, c) * (int64_t)BS_DTYPE_BYTES(t->d.dtype);
  int64_t wide;
  int32_t word;
  int8_t byte;
  switch (t->d.dtype) {
    case BS_I64:
      memcpy(&wide, p, 8);
      return wide;
    case BS_I32:
      memcpy(&word, p, 4);
      return word;
    case BS_I8:
      memcpy(&byte, p, 1);
      return byte;
    default:
      return *p;
  }
}

void fx_set(fx_tensor *t, int64_t r, int64_t c, double value) {
  bs_store_f64(t->d.dtype, t->t.data, index_of(t, r, c), value);
}

void fx_check_guards(const fx_tensor *t, const char *what) {
  unsigned char *owned = calloc(t->block_bytes, 1);
  ck_assert_ptr_nonnull(owned);
  const uint32_t size = BS_DTYPE_BYTES(t->d.dtype);
  const int64_t rows = t->d.rank == 1 ? 1 : t->d.dims[0], cols = t->d.dims[t->d.rank - 1];
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < cols; c++) memset(owned + FX_GUARD + index_of(t, r, c) * size, 1, size);
  for (uint64_t i = 0; i < t->block_bytes; i++)
    if (!owned[i] && t->block[i] != 0xA5)
      ck_abort_msg("%s: byte %lld outside its elements changed", what, (long long)i - FX_GUARD);
  free(owned);
}

uint64_t fx_next(uint64_t *seed) {
  uint64_t z = (*seed += UINT64_C(0x9e3779b97f4a7c15));
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return z ^ (z >> 31);
}

int64_t fx_below(uint64_t *seed, int64_t n) {
  return (int64_t)(fx_next(seed) % (uint64_t)n);
}

void fx_fill(fx_tensor *t, uint64_t *seed) {
  const int64_t rows = t->d.rank == 1 ? 1 : t->d.dims[0], cols = t->d.dims[t->d.rank - 1];
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < cols; c++) {
      const double v = bs_dtype_is_float(t->d.dtype)
                           ? (double)(fx_next(seed) >> 11) * 0x1p-51 - 2.0
                           : (double)fx_below(seed, 17) - (t->d.dtype == BS_U8 ? 0.0 : 8.0);
      fx_set(t, r, c, v);
    }
}

static int32_t source_read(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                           void *out, int64_t out_stride, bs_error *err) {
  const fx_tensor *t = ctx;
  const int64_t count = cols != NULL ? cols->count : t->d.dims[1];
  if (row < 0 || row + nrows > t->d.dims[0])
    return bs_error_set(err, BS_INVALID_ARGUMENT, "FX-ROWS", "rows %lld+%lld", (long long)row,
                        (long long)nrows);
  for (int64_t r = 0; r < nrows; r++)
    for (int64_t i = 0; i < count; i++) {
      const int64_t k = bs_op_partition_column(cols, i);
      const unsigned char *from =
          (const unsigned char *)t->t.data + index_of(t, row + r, k) * (int64_t)BS_DTYPE_BYTES(t->d.dtype);
      unsigned char *to = (unsigned char *)out + (r * out_stride + i) * (int64_t)BS_DTYPE_BYTES(dtype);
      const int32_t rc = bs_convert(dtype, to, t->d.dtype, from, 1);
      if (rc != BS_OK) return bs_error_set(err, rc, "FX-CONVERT", "dtype 0x%04x", dtype);
    }
  return BS_OK;
}

bs_source fx_source(fx_tensor *t) {
  bs_source source;
  memset(&source, 0, sizeof source);
  source.struct_size = (uint32_t)sizeof source;
  source.dtype = t->d.dtype;
  source.rows = t->d.dims[0];
  source.cols = t->d.dims[1];
  source.ctx = t;
  source.read = source_read;
  return source;
}

bs_partition fx_gather(int64_t total, uint32_t period, uint32_t bits, uint32_t *columns) {
  bs_partition p;
  memset(&p, 0, sizeof p);
  p.struct_size = (uint32_t)sizeof p;
  p.kind = BS_PARTITION_GATHER;
  p.total = total;
  p.columns = columns;
  for (int64_t k = 0; k < total; k++)
    if (bits >> (k % period) & 1u) columns[p.count++] = (uint32_t)k;
  return p;
}

bs_partition fx_contiguous(int64_t total, int64_t begin, int64_t count) {
  bs_partition p;
  memset(&p, 0, sizeof p);
  p.struct_size = (uint32_t)sizeof p;
  p.kind = BS_PARTITION_CONTIGUOUS;
  p.total = total;
  p.begin = begin;
  p.count = count;
  return p;
}

static int32_t kept_read(void *ctx, int64_t row, int64_t nrows, int64_t group, int64_t ngroups, uint8_t *out,
                         int64_t out_stride, bs_error *err) {
  const fx_kept_table *t = ctx;
  (void)err;
  for (int64_t r = 0; r < nrows; r++)
    memcpy(out + r * out_stride, t->bits + (row + r) * t->stride + group, (size_t)ngroups);
  return BS_OK;
}

bs_kept fx_kept(fx_kept_table *table, int64_t rows, int64_t cols) {
  const bs_kept k = {
      .struct_size = (uint32_t)sizeof k, .rows = rows, .cols = cols, .ctx = table, .read = kept_read};
  return k;
}

void fx_kept_random(unsigned char *bits, int64_t rows, int64_t stride, uint64_t *seed) {
  static const unsigned char two[6] = {3, 5, 6, 9, 10, 12};
  for (int64_t i = 0; i < rows * stride; i++) bits[i] = two[fx_below(seed, 6)];
}

void fx_kept_complement(unsigned char *bits, const unsigned char *of, int64_t count) {
  for (int64_t i = 0; i < count; i++) bits[i] = of[i] ^ 15u;
}

bs_op_query fx_query(const char *op, const bs_tensor_desc *const *args, uint32_t nargs) {
  bs_op_query q;
  memset(&q, 0, sizeof q);
  q.struct_size = (uint32_t)sizeof q;
  q.op = op;
  q.nargs = nargs;
  q.args = args;
  return q;
}
