/* SPDX-License-Identifier: MIT
 * plain.c - see plain.h. */
#include "plain.h"

#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tools/standin/twins/twins.h"

/* ---- what the ops call of the plugin, without a driver ------------------------------------------- */

static pl *opened; /* one at a time: each libcheck test forks */

void *cuda_twin_memory(const void *device_pointer, uint64_t bytes) {
  (void)bytes;
  return (void *)(uintptr_t)device_pointer;
}

void cuda_twin_view(cuda_view *view) {
  (void)view;
}

CUstream cuda_stream(const cuda_device *device, bs_stream *stream) {
  (void)device;
  return (CUstream)stream;
}

int32_t cuda_enter(const cuda_device *device, bs_error *err) {
  (void)device;
  (void)err;
  return BS_OK;
}

int32_t cuda_launch(const cuda_device *device, uint32_t kernel, const cuda_shape *shape, CUstream stream,
                    const void *args, bs_error *err) {
  (void)stream;
  (void)err;
  const cuda_twin_grid grid = {shape->blocks_x, shape->blocks_y, shape->blocks_z, shape->threads,
                               shape->shared_bytes};
  ck_assert_ptr_eq(device, &opened->device);
  ck_assert_uint_lt(kernel, CUDA_KERNEL_COUNT_);
  const cuda_kernel_info *info = &cuda_kernel_table[kernel];
  ck_assert_ptr_nonnull(info->name);
  const cuda_twin *twin = cuda_twin_find(info->name);
  ck_assert_ptr_nonnull(twin);
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return BS_OK;
  ck_assert_uint_le(grid.shared, info->dynamic);
  if (info->dynamic == 0)
    ck_assert_uint_eq(grid.threads, info->threads);
  else
    ck_assert(grid.threads % 32 == 0 && grid.threads <= info->threads);
  opened->launches++;
  opened->blocks += (int64_t)grid.x * grid.y * grid.z;
  void *copy = malloc(info->args_bytes); /* what a twin reads behind its struct is not there */
  ck_assert_ptr_nonnull(copy);
  memcpy(copy, args, info->args_bytes);
  twin->run(copy, &grid);
  free(copy);
  return BS_OK;
}

int32_t cuda_launch_items(const cuda_device *device, uint32_t kernel, int64_t items, CUstream stream,
                          const void *args, bs_error *err) {
  const cuda_shape shape = {(uint32_t)((items + 255) / 256), 1, 1, 256, 0};
  return cuda_launch(device, kernel, &shape, stream, args, err);
}

int32_t cuda_upload(const cuda_device *device, void *device_ptr, const void *host, uint64_t bytes,
                    CUstream stream, bs_error *err) {
  (void)device;
  (void)stream;
  (void)err;
  memcpy(device_ptr, host, bytes);
  return BS_OK;
}

int32_t cuda_download(const cuda_device *device, void *host, const void *device_ptr, uint64_t bytes,
                      CUstream stream, bs_error *err) {
  return cuda_upload(device, host, device_ptr, bytes, stream, err);
}

int32_t cuda_wait(const cuda_device *device, CUstream stream, bs_error *err) {
  (void)device;
  (void)stream;
  (void)err;
  return BS_OK;
}

int32_t cuda_check(const cuda_device *device, CUresult result, const char *what, bs_error *err) {
  (void)device;
  return result == CUDA_SUCCESS ? BS_OK : bs_fail(err, BS_RANK_FAILED, "PL-CHECK", "%s", what);
}

int32_t cuda_pinned_alloc(const cuda_device *device, uint64_t bytes, void **out_ptr, bs_error *err) {
  *out_ptr = device->state->host->alloc(device->state->host->ctx, bytes, 64);
  return *out_ptr != NULL ? BS_OK : bs_fail(err, BS_NO_MEMORY, "PL-PINNED", "no pinned memory");
}

void cuda_pinned_free(const cuda_device *device, void *ptr) {
  device->state->host->free(device->state->host->ctx, ptr);
}

/* Everything is done when it is queued. */
static CUresult event_create(CUevent *out_event, unsigned int flags) {
  (void)flags;
  *out_event = (CUevent)(void *)out_event;
  return CUDA_SUCCESS;
}
static CUresult event_any(CUevent event) {
  return event != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
static CUresult event_record(CUevent event, CUstream stream) {
  (void)stream;
  return event_any(event);
}

/* ---- tensors ------------------------------------------------------------------------------------- */

void pl_open(pl *p) {
  memset(p, 0, sizeof *p);
  fx_open(&p->f, 1, 1);
  p->state.host = &p->f.host;
  p->device.state = &p->state;
  p->device.driver = &p->state.driver;
  p->state.driver.call.event_create = event_create;
  p->state.driver.call.event_destroy = event_any;
  p->state.driver.call.event_synchronize = event_any;
  p->state.driver.call.event_record = event_record;
  p->exec = p->f.exec;
  p->exec.device = &p->device;
  opened = p;
}

void pl_close(pl *p) {
  opened = NULL;
  fx_close(&p->f);
}

static uint64_t page(void) {
  return (uint64_t)sysconf(_SC_PAGESIZE);
}

void pl_make(pl_tensor *out, uint32_t dtype, uint32_t rank, const int64_t *dims, const int64_t *strides,
             int where) {
  memset(out, 0, sizeof *out);
  const uint64_t size = BS_DTYPE_BYTES(dtype);
  uint64_t span = 1;
  int64_t step = 1;
  bs_tensor *t = &out->t;
  t->struct_size = (uint32_t)sizeof *t;
  t->dtype = dtype;
  t->rank = rank;
  for (uint32_t i = rank; i-- > 0; step *= dims[i]) {
    t->dims[i] = dims[i];
    t->strides[i] = strides != NULL ? strides[i] : step;
  }
  for (uint32_t i = 0; i < rank; i++) span += dims[i] > 0 ? (uint64_t)((dims[i] - 1) * t->strides[i]) : 0;
  for (uint32_t i = 0; i < rank; i++)
    if (dims[i] == 0) span = 0;
  t->bytes = span * size;
  out->bytes = (t->bytes + size + page() - 1) / page() * page();
  unsigned char *all =
      mmap(NULL, out->bytes + 2 * page(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ck_assert(all != MAP_FAILED);
  out->pages = all + page();
  memset(out->pages, 0xA5, out->bytes);
  ck_assert_int_eq(mprotect(all, page(), PROT_NONE), 0);
  ck_assert_int_eq(mprotect(out->pages + out->bytes, page(), PROT_NONE), 0);
  t->data = where == PL_FIRST  ? out->pages
            : where == PL_LAST ? out->pages + out->bytes - t->bytes
                               : out->pages + size;
  out->d.struct_size = (uint32_t)sizeof out->d;
  out->d.dtype = dtype;
  out->d.rank = rank;
  memcpy(out->d.dims, t->dims, sizeof t->dims);
  memcpy(out->d.strides, t->strides, sizeof t->strides);
}

void pl_matrix(pl_tensor *out, uint32_t dtype, int64_t rows, int64_t cols, int64_t row, int64_t col,
               int where) {
  const int64_t dims[2] = {rows, cols}, strides[2] = {row, col};
  pl_make(out, dtype, 2, dims, strides, where);
}

void pl_free(pl_tensor *t) {
  if (t->pages != NULL) munmap(t->pages - page(), t->bytes + 2 * page());
  t->pages = NULL;
}

void pl_copy(pl_tensor *to, const pl_tensor *from) {
  ck_assert_uint_eq(to->bytes, from->bytes);
  memcpy(to->pages, from->pages, from->bytes);
}

static unsigned char *element(const pl_tensor *t, int64_t r, int64_t c) {
  const int64_t at = t->t.rank == 2 ? r * t->t.strides[0] + c * t->t.strides[1] : c * t->t.strides[0];
  return (unsigned char *)t->t.data + at * (int64_t)BS_DTYPE_BYTES(t->t.dtype);
}

static int64_t rows_of(const pl_tensor *t) {
  return t->t.rank == 2 ? t->t.dims[0] : 1;
}

static int64_t cols_of(const pl_tensor *t) {
  return t->t.rank == 2 ? t->t.dims[1] : t->t.dims[0];
}

double pl_get(const pl_tensor *t, int64_t r, int64_t c) {
  return bs_load_f64(t->t.dtype, element(t, r, c), 0);
}

void pl_set(pl_tensor *t, int64_t r, int64_t c, double v) {
  bs_store_f64(t->t.dtype, element(t, r, c), 0, v);
}

static double special(uint64_t *seed) {
  static const double values[] = {0.0,     -0.0,     NAN,   -NAN,   INFINITY, -INFINITY, 1.0,     -1.0,
                                  0x1p-24, -0x1p-25, 1e-40, 1e-310, 65504.0,  65520.0,   448.0,   464.0,
                                  61440.0, 57344.0,  127.5, -128.5, 255.5,    3.4e38,    -3.5e38, 0x1p63,
                                  -0x1p63, 2.5,      3.5,   1e300,  -37.66,   -709.7,    700.0,   -90.0};
  return values[fx_below(seed, (int64_t)(sizeof values / sizeof *values))];
}

void pl_fill_bits(pl_tensor *t, uint64_t *seed) {
  for (int64_t r = 0; r < rows_of(t); r++)
    for (int64_t c = 0; c < cols_of(t); c++) {
      uint64_t bits = fx_next(seed);
      if (fx_below(seed, 4) == 0) {
        pl_set(t, r, c, special(seed));
        continue;
      }
      if (t->t.dtype == BS_BOOL) bits &= 1;
      memcpy(element(t, r, c), &bits, BS_DTYPE_BYTES(t->t.dtype));
    }
}

void pl_fill(pl_tensor *t, uint64_t *seed, int64_t rare) {
  for (int64_t r = 0; r < rows_of(t); r++)
    for (int64_t c = 0; c < cols_of(t); c++) {
      const double v = (double)(int64_t)(fx_next(seed) >> 11) * 0x1p-52 * 4.0 - 4.0;
      pl_set(t, r, c, rare > 0 && fx_below(seed, rare) == 0 ? special(seed) : v);
    }
}

void pl_same_bits(const pl_tensor *got, const pl_tensor *want, const char *what) {
  ck_assert_uint_eq(got->bytes, want->bytes);
  if (memcmp(got->pages, want->pages, got->bytes) == 0) return;
  for (int64_t r = 0; r < rows_of(got); r++)
    for (int64_t c = 0; c < cols_of(got); c++)
      if (memcmp(element(got, r, c), element(want, r, c), BS_DTYPE_BYTES(got->t.dtype)) != 0)
        ck_abort_msg("%s: [%lld,%lld] is %.17g, want %.17g", what, (long long)r, (long long)c,
                     pl_get(got, r, c), pl_get(want, r, c));
  ck_abort_msg("%s: bytes beside the elements differ", what);
}

/* The step of the dtype at v, or of f32's (f64's) numbers where that is wider. */
static double step_at(uint32_t dtype, double v, double units, uint32_t of) {
  const double u = 2.0 * bs_dtype_unit_roundoff(of), least = of == BS_F64 ? 0x1p-1074 : 0x1p-149;
  const double work = units * fmax(fabs(v) * u, least);
  if (dtype == of) return work;
  const double own = 2.0 * bs_dtype_unit_roundoff(dtype);
  const double low = dtype == BS_F16      ? 0x1p-24
                     : dtype == BS_F8E4M3 ? 0x1p-9
                     : dtype == BS_F8E5M2 ? 0x1p-16
                                          : 0x1p-133;
  return work + fmax(fabs(v) * own, low);
}

void pl_near(pl_tensor *got, pl_tensor *want, double units, uint32_t of, const char *what) {
  for (int64_t r = 0; r < rows_of(got); r++)
    for (int64_t c = 0; c < cols_of(got); c++) {
      const double g = pl_get(got, r, c), w = pl_get(want, r, c);
      const int same = g == w || (isnan(g) && isnan(w));
      if (!same && !(fabs(g - w) <= step_at(got->t.dtype, w, units, of)))
        ck_abort_msg("%s: [%lld,%lld] is %.17g, want %.17g", what, (long long)r, (long long)c, g, w);
      if (g == 0.0 && w == 0.0) ck_assert_msg(!signbit(g) == !signbit(w), "%s: sign of zero", what);
    }
  for (int64_t r = 0; r < rows_of(got); r++)
    for (int64_t c = 0; c < cols_of(got); c++) {
      memset(element(got, r, c), 0, BS_DTYPE_BYTES(got->t.dtype));
      memset(element(want, r, c), 0, BS_DTYPE_BYTES(got->t.dtype));
    }
  pl_same_bits(got, want, what);
}

/* ---- ops ----------------------------------------------------------------------------------------- */

static void run_impl(const bs_op_impl *impl, void *state, const bs_exec *exec, const bs_op_query *q,
                     void *packed, bs_tensor *const *args) {
  void *plan = NULL;
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(impl->prepare(state, exec, q, packed, &plan, &err) == BS_OK, "%s: %s", impl->op, err.message);
  ck_assert_msg(impl->run(plan, args, q->nargs, NULL, &err) == BS_OK, "%s: %s", impl->op, err.message);
  impl->plan_free(plan);
}

void pl_run_ref(pl *p, const bs_op_query *q, void *packed, bs_tensor *const *args) {
  void *state = NULL;
  const bs_op_impl *impl = fx_impl(q->op, &state);
  ck_assert_ptr_nonnull(impl);
  run_impl(impl, state, &p->f.exec, q, packed, args);
}

void pl_run_cuda(pl *p, const bs_op_impl *impl, const bs_op_query *q, void *packed, bs_tensor *const *args) {
  run_impl(impl, &p->state, &p->exec, q, packed, args);
}
