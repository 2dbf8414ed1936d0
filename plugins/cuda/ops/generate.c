/* SPDX-License-Identifier: MIT
 * generate.c - see generate.h. The values are those of the source's read, to the bit, so that where they are
 * made changes nothing but the time: 13 GB of bf16 weights are minutes of a host's work and of its bus. */
#include "generate.h"

#include "generate_body.h"

static int columns_ok(const bs_source *source, const bs_partition *p) {
  if (p == NULL) return 1;
  if (p->total != source->cols || p->count < 0 || p->count > source->cols) return 0;
  if (p->kind != BS_PARTITION_GATHER) return p->begin >= 0 && p->begin <= source->cols - p->count;
  if (p->columns == NULL && p->count > 0) return 0;
  for (int64_t i = 0; i < p->count; i++)
    if ((int64_t)p->columns[i] >= source->cols || (i > 0 && p->columns[i] <= p->columns[i - 1])) return 0;
  return 1;
}

int cuda_generates(const bs_source *source, int64_t row, int64_t nrows, const bs_partition *cols) {
  const bs_generator *g = bs_generator_of(source);
  return g != NULL && g->law <= BS_LAW_CLIPPED && row >= 0 && nrows >= 0 && row <= source->rows &&
         nrows <= source->rows - row && columns_ok(source, cols);
}

/* The widest piece: 16 bytes, also of the type in between. */
static uint32_t widest(uint32_t model, uint32_t by) {
  if (by != CUDA_BY_I64) return CUDA_WALK_WIDTH;
  return BS_DTYPE_BYTES(model) > 4 ? 2 : 4;
}

/* The conversion from f32 to f64 is exact, so there is one rounding. */
static uint32_t rounds_by(uint32_t model, uint32_t out) {
  if (model == out || model == BS_F32 || model == BS_F64) return CUDA_BY_COPY;
  return cuda_is_float(model) ? CUDA_BY_F32 : CUDA_BY_I64;
}

int32_t cuda_generate(const cuda_device *device, const bs_source *source, int64_t row,
                      const cuda_columns *columns, const cuda_places *places, const cuda_view *out,
                      CUstream stream, bs_error *err) {
  const bs_generator *g = bs_generator_of(source);
  const int run = columns->list == NULL && places == NULL;
  generate_args args;
  memset(&args, 0, sizeof args);
  args.out = *out;
  args.columns = *columns;
  if (places != NULL) {
    args.codes = places->codes;
    args.groups = places->groups;
  }
  args.seed = g->seed;
  args.first = g->first + (uint64_t)row * g->line;
  args.line = g->line;
  args.stream = g->stream;
  args.law = g->law;
  args.threshold = g->threshold;
  args.bound = g->bound;
  args.a = g->a;
  args.b = g->b;
  args.dtype = source->dtype;
  args.by = rounds_by(source->dtype, out->dtype);
  if (run && columns->begin == 0 && (uint64_t)columns->count == g->line && out->cols == columns->count &&
      (out->rows <= 1 || out->row == out->cols) && out->col == 1) { /* contiguous rows: treat them as one */
    args.out.cols = args.columns.count = out->rows * out->cols;
    args.out.rows = 1;
  }
  cuda_walk_make(&args.out, 1, 0, run ? widest(source->dtype, args.by) : 1, 0, &args.walk);
  return cuda_launch_items(device, CUDA_GENERATE, cuda_walk_threads(&args.walk), stream, &args, err);
}

int32_t cuda_generate_packed(const cuda_packed *p, const bs_source *source, const bs_partition *cols,
                             bs_error *err) {
  const bs_exec *exec = p->exec;
  const cuda_device *device = exec->device;
  cuda_columns columns;
  if (!cuda_generates(source, 0, p->rows, cols)) return BS_UNSUPPORTED;
  int32_t rc = cuda_columns_make(exec, p->state->host, cols, source->cols, &columns, err);
  if (rc != BS_OK) return rc;
  cuda_view out = cuda_packed_view(p);
  out.cols = p->line;
  rc = cuda_generate(device, source, 0, &columns, p->places, &out, device->stream, err);
  if (rc == BS_OK) rc = cuda_wait(device, device->stream, err);
  cuda_columns_free(exec, &columns);
  if (rc == BS_OK && exec->note != NULL) exec->note(exec->ctx, "generate@cuda/philox");
  return rc;
}
