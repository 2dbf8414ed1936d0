/* SPDX-License-Identifier: MIT
 *
 * matmul.c - the matmul "dnnl": each member of the team multiplies with its own slice of outputs through
 * oneDNN primitives of OpenMP width 1, made at prepare: one for the prepared number of tokens, one for any
 * other. A memory object of oneDNN is for one number of rows, so prepare makes those that any call can be
 * put together from; run sets data handles and executes. */
#include <stdlib.h>

#include "../ops/packed.h"
#include "matmul.h"

/* Fewer tokens than prepared are written in this base: each digit is a piece, multiplied on its own. 127
 * memory objects a digit; below 128 tokens any number is one piece, below 16384 at most two. */
enum { BASE = 128, MAX_PIECES = 9 /* digits of INT64_MAX */ };

/* A slice whose scratchpad exceeds this share of its tensors is multiplied in parts, one after the other,
 * with the scratchpad of one part. With AMX oneDNN copies the weights of all outputs of a primitive into the
 * layout of its tiles. No part has fewer outputs than FEWEST, and scratchpads below LEAST are accepted. */
enum { SHARE = 32, FEWEST = 32, LEAST = 64 << 10 };

/* A multiplication of `count` outputs. */
typedef struct form {
  int64_t count;
  dnnl_primitive_t exact, any;
  dnnl_memory_t w, bias, scratchpad, scratchpad_any;
  dnnl_memory_t *y; /* as the plan's x */
} form;

/* One member's oneDNN objects for its slice. */
typedef struct member {
  int64_t first, count; /* outputs */
  dnnl_stream_t stream;
  form forms[2]; /* of each part; of the last, where it has fewer outputs */
  uint64_t at;   /* all scratchpads, in the rank's scratch */
  dnnl_status_t status;
  uint8_t apart[64]; /* members write their own cache lines */
} member;

typedef struct dnnl_plan {
  const bs_exec *exec;
  const cpu_dnnl_lib *lib;
  const cpu_kernels *kernels; /* for the activation */
  const cpu_packed *w;
  cpu_matmul shape;
  uint32_t width, sizes; /* sizes: of pieces */
  dnnl_memory_t *x;      /* by size, and then of all tokens; every member reads the same X */
  member *members;
  uint8_t *scratch; /* where the scratchpads are */
  uint64_t bytes;   /* of all of them */
} dnnl_plan;

typedef struct piece {
  uint32_t size;
  int64_t first; /* token */
} piece;

typedef struct dnnl_call {
  const dnnl_plan *plan;
  const bs_tensor *x, *bias, *residual, *y;
  int64_t tokens;
  uint32_t count;
  piece pieces[MAX_PIECES];
} dnnl_call;

static int32_t fail_dnnl(bs_error *err, dnnl_status_t status, const char *what) {
  const int32_t code = status == dnnl_out_of_memory ? BS_NO_MEMORY : BS_PLUGIN;
  bs_fail(err, code, "BS-CPU-DNNL", "oneDNN: %s failed with status %d", what, (int)status);
  if (err != NULL) {
    err->native_code = (int64_t)status;
    snprintf(err->domain, sizeof err->domain, "dnnl");
  }
  return code;
}

static int32_t supports(void *opaque, const bs_op_query *query, bs_op_answer *answer) {
  cpu_matmul shape;
  cpu_dnnl_judge(opaque, query, &shape, 1, answer);
  return BS_OK;
}

/* ---- parts of a plan ------------------------------------------------------------------------ */

static size_t scratchpad_bytes(const cpu_dnnl_lib *lib, dnnl_primitive_desc_t desc,
                               const_dnnl_memory_desc_t *out_pad) {
  *out_pad = lib->api.primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
  return *out_pad != NULL ? (lib->api.memory_desc_get_size(*out_pad) + 63) / 64 * 64 : 0;
}

/* The number of sizes of pieces that all calls with fewer than `tokens` tokens need. */
static uint32_t count_sizes(int64_t tokens) {
  uint32_t count = 0;
  for (int64_t left = tokens - 1; left > 0; left /= BASE) count += (uint32_t)(left < BASE ? left : BASE - 1);
  return count;
}

static int64_t tokens_of(const dnnl_plan *plan, uint32_t size) {
  int64_t unit = 1;
  if (size == plan->sizes) return plan->shape.B;
  for (; size >= BASE - 1; size -= BASE - 1) unit *= BASE;
  return (size + 1) * unit;
}

/* The memory objects of X, or of a slice of Y of `count` outputs, for each size. */
static dnnl_status_t make_sizes(const dnnl_plan *plan, int64_t count, int is_y, dnnl_memory_t **out) {
  const cpu_dnnl_lib *lib = plan->lib;
  dnnl_memory_t *memories = calloc(plan->sizes + 1u, sizeof(dnnl_memory_t));
  dnnl_status_t status = memories != NULL ? dnnl_success : dnnl_out_of_memory;
  *out = memories;
  for (uint32_t i = 0; status == dnnl_success && i <= plan->sizes; i++) {
    cpu_dnnl_descs d;
    status = cpu_dnnl_make_descs(lib, &plan->shape, tokens_of(plan, i), count, &d);
    if (status != dnnl_success) break;
    status = lib->api.memory_create(&memories[i], is_y ? d.y : d.x, lib->engine, DNNL_MEMORY_NONE);
    cpu_dnnl_free_descs(lib, &d);
  }
  return status;
}

static dnnl_status_t make_memories(const dnnl_plan *plan, form *f, const cpu_dnnl_descs *d) {
  const cpu_dnnl_lib *lib = plan->lib;
  dnnl_status_t status = lib->api.memory_create(&f->w, d->w, lib->engine, DNNL_MEMORY_NONE);
  if (status == dnnl_success && d->bias != NULL)
    status = lib->api.memory_create(&f->bias, d->bias, lib->engine, DNNL_MEMORY_NONE);
  if (status == dnnl_success) status = make_sizes(plan, f->count, 1, &f->y);
  return status;
}

/* Primitives and scratchpads from the two descriptors. */
static dnnl_status_t make_primitives(const dnnl_plan *plan, form *f, dnnl_primitive_desc_t exact,
                                     dnnl_primitive_desc_t any) {
  const cpu_dnnl_lib *lib = plan->lib;
  const_dnnl_memory_desc_t pad = NULL, pad_any = NULL;
  const size_t bytes = scratchpad_bytes(lib, exact, &pad), more = scratchpad_bytes(lib, any, &pad_any);
  const int width = cpu_dnnl_alone(lib);
  dnnl_status_t status = lib->api.primitive_create(&f->exact, exact);
  if (status == dnnl_success) status = lib->api.primitive_create(&f->any, any);
  cpu_dnnl_together(lib, width);
  if (status == dnnl_success && bytes > 0)
    status = lib->api.memory_create(&f->scratchpad, pad, lib->engine, DNNL_MEMORY_NONE);
  if (status == dnnl_success && more > 0)
    status = lib->api.memory_create(&f->scratchpad_any, pad_any, lib->engine, DNNL_MEMORY_NONE);
  return status;
}

/* Makes the primitives for `count` outputs. Adds the bytes of their scratchpads, of which one is used at a
 * time, to *io_bytes. `f` NULL: only computes the bytes. */
static dnnl_status_t make_form(const dnnl_plan *plan, int64_t count, form *f, uint64_t *io_bytes) {
  const cpu_dnnl_lib *lib = plan->lib;
  const int64_t tokens[2] = {plan->shape.B, DNNL_RUNTIME_DIM_VAL};
  dnnl_primitive_desc_t made[2] = {NULL, NULL};
  cpu_dnnl_descs d[2] = {{0}, {0}};
  dnnl_status_t status = dnnl_success;
  for (int i = 0; i < 2 && status == dnnl_success; i++) {
    const_dnnl_memory_desc_t pad = NULL;
    status = cpu_dnnl_make_desc(lib, &plan->shape, tokens[i], count, &d[i], &made[i]);
    const uint64_t bytes = status == dnnl_success ? scratchpad_bytes(lib, made[i], &pad) : 0;
    if (bytes > *io_bytes) *io_bytes = bytes;
  }
  if (f != NULL && status == dnnl_success) {
    f->count = count;
    status = make_memories(plan, f, &d[0]);
    if (status == dnnl_success) status = make_primitives(plan, f, made[0], made[1]);
  }
  for (int i = 0; i < 2; i++) {
    if (made[i] != NULL) (void)lib->api.primitive_desc_destroy(made[i]);
    cpu_dnnl_free_descs(lib, &d[i]);
  }
  return status;
}

/* Outputs of a part: all, or as many as keep the scratchpad small, where fewer outputs make it smaller. */
static dnnl_status_t choose_part(const dnnl_plan *plan, int64_t count, int64_t *out_part) {
  const cpu_matmul *s = &plan->shape;
  const double tensors = (double)count * (double)s->K * plan->w->size +
                         (double)(s->B * s->K * (int64_t)BS_DTYPE_BYTES(s->x_type)) +
                         (double)(s->B * count * (int64_t)BS_DTYPE_BYTES(s->y_type));
  const double most = tensors / SHARE > LEAST ? tensors / SHARE : LEAST;
  uint64_t bytes = 0;
  dnnl_status_t status = make_form(plan, count, NULL, &bytes);
  *out_part = count;
  while (status == dnnl_success && (double)bytes > most && *out_part > FEWEST) {
    const int64_t half = (*out_part / 2 + FEWEST - 1) / FEWEST * FEWEST;
    uint64_t fewer = 0;
    if (half >= *out_part) break;
    status = make_form(plan, half, NULL, &fewer);
    if (status != dnnl_success || fewer > bytes / 4 * 3) break;
    *out_part = half;
    bytes = fewer;
  }
  return status;
}

static dnnl_status_t make_member(dnnl_plan *plan, member *m) {
  int64_t part = 0;
  uint64_t bytes = 0;
  dnnl_status_t status =
      plan->lib->api.stream_create(&m->stream, plan->lib->engine, dnnl_stream_default_flags);
  if (status == dnnl_success) status = choose_part(plan, m->count, &part);
  if (status == dnnl_success) status = make_form(plan, part, &m->forms[0], &bytes);
  if (status == dnnl_success && m->count % part != 0)
    status = make_form(plan, m->count % part, &m->forms[1], &bytes);
  m->at = plan->bytes;
  plan->bytes += bytes;
  return status;
}

static void free_memory(const cpu_dnnl_lib *lib, dnnl_memory_t memory) {
  if (memory != NULL) (void)lib->api.memory_destroy(memory);
}

static void free_sizes(const dnnl_plan *plan, dnnl_memory_t *memories) {
  for (uint32_t i = 0; memories != NULL && i <= plan->sizes; i++) free_memory(plan->lib, memories[i]);
  free(memories);
}

static void free_form(const dnnl_plan *plan, form *f) {
  const cpu_dnnl_lib *lib = plan->lib;
  free_memory(lib, f->w);
  free_memory(lib, f->bias);
  free_sizes(plan, f->y);
  free_memory(lib, f->scratchpad);
  free_memory(lib, f->scratchpad_any);
  if (f->exact != NULL) (void)lib->api.primitive_destroy(f->exact);
  if (f->any != NULL) (void)lib->api.primitive_destroy(f->any);
}

static void free_member(const dnnl_plan *plan, member *m) {
  for (int i = 0; i < 2; i++) free_form(plan, &m->forms[i]);
  if (m->stream != NULL) (void)plan->lib->api.stream_destroy(m->stream);
}

static void plan_free(void *opaque) {
  dnnl_plan *plan = opaque;
  if (plan == NULL) return;
  for (uint32_t i = 0; plan->members != NULL && i < plan->width; i++) free_member(plan, &plan->members[i]);
  free(plan->members);
  free_sizes(plan, plan->x);
  free(plan);
}

/* Slices begin at multiples of 16 outputs, so that no vector of Y is shared. */
static int32_t make_members(dnnl_plan *plan, bs_error *err) {
  const int64_t units = plan->shape.N / CPU_PANEL + (plan->shape.N % CPU_PANEL != 0);
  plan->members = calloc(plan->width, sizeof *plan->members);
  if (plan->members == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for a plan");
  plan->sizes = count_sizes(plan->shape.B);
  dnnl_status_t status = make_sizes(plan, plan->shape.N, 0, &plan->x);
  if (status != dnnl_success) return fail_dnnl(err, status, "making a matmul");
  for (uint32_t i = 0; i < plan->width; i++) {
    member *m = &plan->members[i];
    int64_t begin, end;
    cpu_share(units, i, plan->width, &begin, &end);
    m->first = begin * CPU_PANEL;
    m->count = (end * CPU_PANEL < plan->shape.N ? end * CPU_PANEL : plan->shape.N) - m->first;
    if (m->count <= 0) continue;
    status = make_member(plan, m);
    if (status != dnnl_success) return fail_dnnl(err, status, "making a matmul");
  }
  return plan->bytes > 0 ? cpu_reserve(plan->exec, plan->bytes, err) : BS_OK;
}

/* ---- run ------------------------------------------------------------------------------------ */

/* The residual's slice to Y, where the sum post-op expects it. */
static void place_residual(const dnnl_call *call, const member *m) {
  const bs_tensor *r = call->residual, *y = call->y;
  const size_t size = BS_DTYPE_BYTES(y->dtype);
  for (int64_t t = 0; t < call->tokens; t++) {
    uint8_t *to = (uint8_t *)y->data + (size_t)(t * y->strides[0] + m->first) * size;
    const uint8_t *from = (const uint8_t *)r->data + (size_t)(t * r->strides[0] + m->first) * size;
    if (to != from) memmove(to, from, (size_t)m->count * size);
  }
}

/* The activation of the slice of Y. Of 16-bit outputs only relu: a number is negative by its sign, and a NaN
 * when above infinity. */
static void activate_slice(const dnnl_call *call, const member *m) {
  const bs_tensor *y = call->y;
  const uint32_t infinity = y->dtype == BS_BF16 ? 0x7f80u : 0x7c00u;
  for (int64_t t = 0; t < call->tokens; t++) {
    const int64_t at = t * y->strides[0] + m->first;
    if (y->dtype == BS_F32) {
      call->plan->kernels->activate[call->plan->shape.activation]((float *)y->data + at, m->count);
      continue;
    }
    uint16_t *v = (uint16_t *)y->data + at;
    for (int64_t i = 0; i < m->count; i++)
      if ((v[i] & 0x8000u) != 0 && (v[i] & 0x7fffu) <= infinity) v[i] = 0;
  }
}

/* Splits the call into pieces that there are memory objects for, the largest last, and shows them X. */
static dnnl_status_t split_tokens(dnnl_call *call) {
  const dnnl_plan *plan = call->plan;
  const bs_tensor *x = call->x;
  int64_t first = 0;
  if (call->tokens == plan->shape.B) {
    call->pieces[call->count++] = (piece){plan->sizes, 0};
  } else {
    uint32_t below = 0; /* sizes of lower digits */
    for (int64_t left = call->tokens; left > 0; left /= BASE, below += BASE - 1) {
      if (left % BASE == 0) continue;
      const uint32_t size = below + (uint32_t)(left % BASE) - 1;
      call->pieces[call->count++] = (piece){size, first};
      first += tokens_of(plan, size);
    }
  }
  dnnl_status_t status = dnnl_success;
  for (uint32_t i = 0; status == dnnl_success && i < call->count; i++) {
    const piece *p = &call->pieces[i];
    uint8_t *at = (uint8_t *)x->data + (size_t)(p->first * x->strides[0]) * BS_DTYPE_BYTES(x->dtype);
    status = plan->lib->api.memory_set_data_handle(plan->x[p->size], at);
  }
  return status;
}

/* The scratchpads are in the rank's scratch, which may be another block than at the last run. */
static dnnl_status_t place_scratchpads(dnnl_plan *plan) {
  const cpu_dnnl_api *api = &plan->lib->api;
  uint8_t *base = plan->bytes > 0 ? plan->exec->scratch(plan->exec->ctx) : NULL;
  dnnl_status_t status = dnnl_success;
  if (base == plan->scratch) return dnnl_success;
  plan->scratch = NULL; /* until all are placed */
  for (uint32_t i = 0; status == dnnl_success && i < plan->width; i++) {
    const member *m = &plan->members[i];
    for (int k = 0; status == dnnl_success && k < 4; k++) {
      const form *f = &m->forms[k / 2];
      const dnnl_memory_t pad = k % 2 == 0 ? f->scratchpad : f->scratchpad_any;
      if (pad != NULL) status = api->memory_set_data_handle(pad, base + m->at);
    }
  }
  if (status == dnnl_success) plan->scratch = base;
  return status;
}

static dnnl_status_t run_piece(const dnnl_call *call, const member *m, const form *f, int64_t first,
                               const piece *p) {
  const dnnl_plan *plan = call->plan;
  const cpu_dnnl_api *api = &plan->lib->api;
  const int exact = p->size == plan->sizes;
  const dnnl_memory_t pad = exact ? f->scratchpad : f->scratchpad_any, y = f->y[p->size];
  dnnl_exec_arg_t args[5] = {{DNNL_ARG_SRC, plan->x[p->size]}, {DNNL_ARG_WEIGHTS, f->w}, {DNNL_ARG_DST, y}};
  int count = 3;
  if (f->bias != NULL) args[count++] = (dnnl_exec_arg_t){DNNL_ARG_BIAS, f->bias};
  if (pad != NULL) args[count++] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, pad};
  const size_t at = (size_t)(p->first * call->y->strides[0] + first);
  dnnl_status_t status =
      api->memory_set_data_handle(y, (uint8_t *)call->y->data + at * BS_DTYPE_BYTES(call->y->dtype));
  if (status == dnnl_success)
    status = api->primitive_execute(exact ? f->exact : f->any, m->stream, count, args);
  return status;
}

/* Outputs first .. first + f->count - 1. */
static dnnl_status_t run_part(const dnnl_call *call, const member *m, const form *f, int64_t first) {
  const cpu_packed *w = call->plan->w;
  const cpu_dnnl_api *api = &call->plan->lib->api;
  dnnl_status_t status =
      api->memory_set_data_handle(f->w, (uint8_t *)w->data + (size_t)(first * w->K) * w->size);
  if (status == dnnl_success && f->bias != NULL)
    status = api->memory_set_data_handle(
        f->bias, (uint8_t *)call->bias->data + (size_t)first * BS_DTYPE_BYTES(call->bias->dtype));
  for (uint32_t i = 0; status == dnnl_success && i < call->count; i++)
    status = run_piece(call, m, f, first, &call->pieces[i]);
  return status;
}

static dnnl_status_t run_member(const dnnl_call *call, const member *m) {
  const dnnl_plan *plan = call->plan;
  const int64_t part = m->forms[0].count;
  dnnl_status_t status = dnnl_success;
  if (call->residual != NULL) place_residual(call, m);
  for (int64_t done = 0; status == dnnl_success && done < m->count; done += part)
    status = run_part(call, m, &m->forms[m->count - done < part], m->first + done);
  if (status == dnnl_success) status = plan->lib->api.stream_wait(m->stream);
  if (status == dnnl_success && plan->shape.activation != BS_ACT_NONE) activate_slice(call, m);
  return status;
}

/* A team narrower than prepared takes several slices a member. */
static void run_share(void *arg, uint32_t index, uint32_t width) {
  const dnnl_call *call = arg;
  const dnnl_plan *plan = call->plan;
  const int omp = cpu_dnnl_alone(plan->lib);
  for (uint32_t i = index; i < plan->width; i += width) {
    member *m = &plan->members[i];
    m->status = m->count > 0 ? run_member(call, m) : dnnl_success;
  }
  cpu_dnnl_together(plan->lib, omp);
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  dnnl_plan *plan = opaque;
  dnnl_call call = {.plan = plan, .x = args[0], .bias = args[1], .residual = args[2], .y = args[3]};
  call.tokens = call.y->dims[0];
  (void)nargs;
  (void)stream;
  if (call.tokens <= 0) return BS_OK;
  int32_t rc = cpu_batch_fits(call.tokens, plan->shape.B, err);
  if (rc != BS_OK) return rc;
  dnnl_status_t status = split_tokens(&call);
  if (status == dnnl_success) status = place_scratchpads(plan);
  if (status != dnnl_success) return fail_dnnl(err, status, "running a matmul");
  rc = cpu_team(plan->exec, 0, run_share, &call, err);
  if (rc != BS_OK) return rc;
  for (uint32_t i = 0; i < plan->width; i++)
    if (plan->members[i].status != dnnl_success)
      return fail_dnnl(err, plan->members[i].status, "running a matmul");
  return BS_OK;
}

/* ---- prepare -------------------------------------------------------------------------------- */

/* One and two tokens of zeros: at first oneDNN makes kernels for a vector and for a matrix that the process
 * keeps, some milliseconds that no call with another number of tokens shall meet. */
static int32_t warm_up(dnnl_plan *plan, bs_error *err) {
  const bs_exec *exec = plan->exec;
  const cpu_matmul *s = &plan->shape;
  const uint32_t types[4] = {s->x_type, s->bias_type, s->r_type, s->y_type};
  const size_t bytes = (size_t)(s->x_ld > s->y_ld ? s->x_ld : s->y_ld) * 2 * sizeof(float);
  uint8_t *zeros = exec->alloc(exec->ctx, 2 * bytes);
  int32_t rc = BS_OK;
  if (zeros == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for a plan");
  memset(zeros, 0, 2 * bytes);
  for (int64_t tokens = 1; rc == BS_OK && tokens <= 2 && tokens < s->B; tokens++) {
    bs_tensor t[4], *args[4];
    for (int i = 0; i < 4; i++) {
      t[i] = (bs_tensor){.dtype = types[i], .dims = {tokens}, .data = zeros + (i == 3 ? bytes : 0)};
      t[i].strides[0] = i == 0 ? s->x_ld : s->y_ld;
      args[i] = types[i] != 0 ? &t[i] : NULL;
    }
    rc = run(plan, args, 4, NULL, err);
  }
  exec->free(exec->ctx, zeros);
  return rc;
}

static int32_t prepare(void *opaque, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  const cpu_state *state = opaque;
  bs_op_answer answer;
  dnnl_plan *plan = calloc(1, sizeof *plan);
  if (plan == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for a plan");
  memset(&answer, 0, sizeof answer);
  plan->exec = exec;
  plan->lib = cpu_dnnl_open(state->dnnl);
  plan->kernels = &state->kernels;
  plan->w = packed;
  plan->width = exec->width > 0 ? exec->width : 1;
  cpu_dnnl_judge(state, query, &plan->shape, 0, &answer);
  const cpu_matmul *shape = &plan->shape;
  int32_t rc = answer.level == BS_LEVEL_NO
                   ? bs_fail(err, BS_UNSUPPORTED, "BS-CPU-MATMUL", "%s", answer.text)
                   : cpu_packed_check(packed, shape->N, shape->K, shape->weight_type, err);
  if (rc == BS_OK && shape->B > 0) rc = make_members(plan, err);
  if (rc == BS_OK && shape->B > 0) rc = warm_up(plan, err);
  if (rc != BS_OK) {
    plan_free(plan);
    return rc;
  }
  *out_plan = plan;
  return BS_OK;
}

const bs_src_loc cpu_matmul_dnnl_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl cpu_matmul_dnnl = {
    .struct_size = sizeof(bs_op_impl),
    .priority = 10,
    .op = "matmul",
    .backend = "cpu",
    .name = "dnnl",
    .summary = "oneDNN 3 on weights kept [N,K], one primitive a member of the team",
    .supports = supports,
    .pack = cpu_rows_make,
    .packed_update = cpu_packed_update,
    .packed_read = cpu_packed_read,
    .packed_free = cpu_packed_free,
    .prepare = prepare,
    .run = run,
    .plan_free = plan_free,
};
