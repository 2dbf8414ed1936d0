/* SPDX-License-Identifier: MIT
 * quant.c - see quant.h. The members of the team read the weight, each its own rows. */
#include "quant.h"

enum { ROWS = 16, PIECE = 128 };

typedef struct pack_job {
  ref_quant *w;
  const bs_quant *from;
  bs_error *errors; /* one a member */
} pack_job;

static void pack_body(void *arg, uint32_t member, uint32_t width) {
  const pack_job *job = arg;
  ref_quant *w = job->w;
  int64_t begin, end;
  ref_share(w->form.rows, member, width, &begin, &end);
  for (int64_t n = begin; n < end; n += ROWS) {
    const bs_quant_rows out = {
        .struct_size = (uint32_t)sizeof out,
        .codes = w->codes + n * w->form.cols,
        .codes_stride = w->form.cols,
        .scales = w->scales + n * w->spans,
        .zeros = w->zeros != NULL ? w->zeros + n * w->groups : NULL,
        .lows = w->lows != NULL ? w->lows + n * w->spans : NULL,
        .steps = w->steps != NULL ? w->steps + n * w->groups : NULL,
        .low_steps = w->low_steps != NULL ? w->low_steps + n * w->groups : NULL,
    };
    const int64_t count = end - n < ROWS ? end - n : ROWS;
    const int32_t rc = job->from->read(job->from->ctx, n, count, &out, &job->errors[member]);
    if (rc == BS_OK) continue;
    job->errors[member].code = rc;
    return;
  }
}

/* Bytes of one array, at least one, each array at a multiple of 64. More than there can be memory for: 2^48.
 */
static uint64_t room(int64_t rows, int64_t count, uint64_t size) {
  const uint64_t most = UINT64_C(1) << 48, row = (uint64_t)count * size; /* count < 2^32 */
  if (row > 0 && (uint64_t)rows > most / row) return most;
  return ((uint64_t)rows * row + 64u) / 64u * 64u;
}

/* Lays the arrays of the form into `block`; NULL: counts only. Returns the bytes. */
static uint64_t lay_out(ref_quant *w, unsigned char *block) {
  const uint32_t flags = w->form.flags;
  const int64_t rows = w->form.rows;
  const int lows = (flags & BS_QUANT_LOWS) != 0, steps = (flags & BS_QUANT_STEPS) != 0;
  void *at[6] = {NULL};
  const uint64_t sizes[6] = {room(rows, w->form.cols, 1),
                             room(rows, w->spans, sizeof(float)),
                             lows ? room(rows, w->spans, sizeof(float)) : 0,
                             flags & BS_QUANT_ZEROS ? room(rows, w->groups, 1) : 0,
                             steps ? room(rows, w->groups, 1) : 0,
                             steps && lows ? room(rows, w->groups, 1) : 0};
  uint64_t used = 0;
  for (int i = 0; i < 6; i++) {
    if (block != NULL && sizes[i] > 0) at[i] = block + used;
    used += sizes[i];
  }
  w->codes = at[0];
  w->scales = at[1];
  w->lows = at[2];
  w->zeros = at[3];
  w->steps = at[4];
  w->low_steps = at[5];
  return used;
}

static int64_t parts(int64_t cols, int64_t size) {
  return size > 0 ? cols / size + (cols % size != 0) : 0;
}

int32_t ref_quant_pack(void *opaque, const bs_exec *exec, const bs_op_query *query, const bs_source *weights,
                       void **out_packed, uint64_t *out_bytes, bs_error *err) {
  const ref_state *state = opaque;
  const bs_host *host = state->host;
  (void)weights;
  int32_t rc = ref_require(&ref_matmul_q, opaque, query, err);
  if (rc != BS_OK) return rc;
  ref_quant *w = host->alloc(host->ctx, sizeof *w, 64);
  if (w == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-REF-MEMORY", "no memory for a packed weight");
  memset(w, 0, sizeof *w);
  w->host = host;
  w->exec = exec;
  w->form = *query->quant;
  w->form.read = NULL;
  w->form.ctx = NULL;
  w->groups = parts(w->form.cols, w->form.group);
  w->spans = parts(w->form.cols, w->form.span);
  *out_bytes = lay_out(w, NULL);
  unsigned char *block = *out_bytes >> 48 == 0 ? exec->alloc(exec->ctx, *out_bytes) : NULL;
  if (block == NULL) {
    rc = bs_fail(err, BS_NO_MEMORY, "BS-REF-MEMORY", "no memory for a weight of %llu bytes",
                 (unsigned long long)*out_bytes);
  } else {
    lay_out(w, block);
    pack_job job = {.w = w, .from = query->quant};
    rc = ref_team_errors(host, exec, pack_body, &job, &job.errors, err);
  }
  if (rc != BS_OK) {
    ref_quant_free(w);
    return rc;
  }
  *out_packed = w;
  return BS_OK;
}

void ref_quant_free(void *packed) {
  ref_quant *w = packed;
  if (w == NULL) return;
  if (w->codes != NULL) w->exec->free(w->exec->ctx, w->codes); /* the first array of the block */
  w->host->free(w->host->ctx, w);
}

int32_t ref_quant_zero(const ref_quant *w, int64_t n, int64_t g) {
  return w->zeros != NULL ? w->zeros[n * w->groups + g] : w->form.zero;
}

float ref_quant_scale(const ref_quant *w, int64_t n, int64_t g) {
  const float scale = w->scales[n * w->spans + g * w->form.group / w->form.span];
  return w->steps != NULL ? scale * (float)w->steps[n * w->groups + g] : scale;
}

float ref_quant_low(const ref_quant *w, int64_t n, int64_t g) {
  if (w->lows == NULL) return 0.0f;
  const float low = w->lows[n * w->spans + g * w->form.group / w->form.span];
  return w->low_steps != NULL ? low * (float)w->low_steps[n * w->groups + g] : low;
}

void ref_quant_row(const ref_quant *w, int64_t n, int64_t first, int64_t count, float *out) {
  for (int64_t i = 0; i < count; i++) {
    const int64_t k = first + i, g = k / w->form.group;
    const int32_t q = (int32_t)w->codes[n * w->form.cols + k] - ref_quant_zero(w, n, g);
    const float product = ref_quant_scale(w, n, g) * (float)q;
    out[i] = w->lows != NULL ? product - ref_quant_low(w, n, g) : product;
  }
}

int32_t ref_quant_packed_read(void *packed, int64_t row, bs_tensor *out, bs_error *err) {
  const ref_quant *w = packed;
  const ref_view v = ref_view_of(out);
  float piece[PIECE];
  for (int64_t r = 0; r < v.rows; r++)
    for (int64_t c = 0; c < v.cols; c += PIECE) {
      const int64_t n = v.cols - c < PIECE ? v.cols - c : PIECE;
      ref_quant_row(w, row + r, c, n, piece);
      const int32_t rc = ref_store(w->host, &v, r, c, n, BS_F32, piece);
      if (rc != BS_OK) return bs_fail(err, rc, "BS-REF-CONVERT", "a quantised weight could not be converted");
    }
  return BS_OK;
}

int32_t ref_quant_check(const bs_op_query *query, const ref_quant *w, bs_error *err) {
  const bs_quant *a = query->quant, *b = w != NULL ? &w->form : NULL;
  if (b != NULL && a->bits == b->bits && a->flags == b->flags && a->zero == b->zero && a->rows == b->rows &&
      a->cols == b->cols && a->group == b->group && a->span == b->span)
    return BS_OK;
  return bs_fail(err, BS_INVALID_ARGUMENT, "BS-REF-WEIGHT", "%s needs a weight that was packed in its form",
                 query->op);
}
