/* SPDX-License-Identifier: MIT
 *
 * arm_plugin.c - a backend plugin's matmul, or matmul24, or their backward pass, through the public API: a
 * world of one rank, made anew for each shape, whose pinned thread sleeps until a batch is asked for. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "arms.h"
#include "blockshock/plugin.h"
#include "core/base/error.h"
#include "numbers.h"
#include "support.h"

/* The product; matmul24 of what is kept; the first half of the columns, cut out before; the same of the whole
 * X, as a rank of row_parallel has it; columns 0 and 1 of each four of the whole X, as one of blockshock. */
enum { WHOLE, KEPT, HALF, RUN, MASK };
#define GIVE_OUTPUT UINT64_MAX /* as calls of a turn */

typedef struct plugin_arm {
  bs_context *context;
  bs_world *world;
  const char *backend;
  uint32_t threads;
  int own_clock;
  int product;
  bench_numbers numbers;
  bench_numbers own; /* of HALF, RUN and MASK: W and X of the columns alone */
  void *y;           /* in host memory */
  pthread_t thread;
  int started;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  /* Under the lock. A turn is one command; turn 0 is getting ready. */
  uint64_t posted, done;
  uint64_t calls; /* of the newest turn; 0: leave */
  double seconds, enqueue;
  int ended;
  int32_t status;
  bs_error error;
} plugin_arm;

typedef struct product {
  const bs_rank_api *api;
  bs_packed *packed;
  bs_plan *plan;
  const bs_partition *columns; /* NULL: all */
  bs_tensor x, dy, out;
  bs_tensor *args[4];
  uint32_t nargs;
} product;

static int32_t read_kept(void *ctx, int64_t row, int64_t nrows, int64_t group, int64_t ngroups, uint8_t *out,
                         int64_t out_stride, bs_error *err) {
  (void)ctx, (void)err;
  for (int64_t r = 0; r < nrows; ++r)
    for (int64_t g = 0; g < ngroups; ++g) out[r * out_stride + g] = bench_kept(row + r, group + g);
  return BS_OK;
}

static int32_t read_in(bs_rank *rank, const product *p, const void *data, uint32_t dtype, bs_tensor *out,
                       bs_error *err) {
  bs_source source = {.struct_size = sizeof source};
  int32_t rc = bs_source_from_memory(data, dtype, out->dims[0], out->dims[1], out->dims[1], &source, err);
  if (rc == BS_OK) rc = p->api->tensor_read(rank, &source, 0, NULL, out, err);
  bs_source_release(&source);
  return rc;
}

/* The columns that a rank of two would have. */
static int32_t pick_columns(bs_rank *rank, int which, const bench_numbers *m, product *p, bs_error *err) {
  bs_mask mask = {.struct_size = sizeof mask};
  if (which != RUN && which != MASK) return BS_OK;
  const int32_t rc =
      bs_mask_parse(which == RUN ? "contiguous" : "complement_1100_0011", NULL, NULL, &mask, err);
  return rc != BS_OK ? rc : p->api->partition_make(rank, &mask, m->k, 0, 2, &p->columns, err);
}

/* What the plan of the product that is timed takes; the query of the forward pass packs W. */
static int32_t make_tensors(bs_rank *rank, const bench_numbers *m, product *p, bs_error *err) {
  const bs_tensor_desc x = bs_desc_2d(m->dtype, m->b, m->k), y = bs_desc_2d(m->dtype, m->b, m->n);
  const int64_t kept = m->k / 2;
  const bs_tensor_desc dw = bs_desc_2d(BS_F32, m->n, m->kept ? kept : m->k);
  const bs_tensor_desc *out = m->product == BENCH_DX ? &x : m->product == BENCH_DW ? &dw : &y;
  int32_t rc = p->api->tensor_alloc(rank, out, BS_LIFE_ACTIVATION, &p->out, err);
  if (rc == BS_OK) rc = p->api->tensor_alloc(rank, &x, BS_LIFE_ACTIVATION, &p->x, err);
  if (rc == BS_OK && m->dy != NULL) rc = p->api->tensor_alloc(rank, &y, BS_LIFE_ACTIVATION, &p->dy, err);
  if (rc == BS_OK) rc = read_in(rank, p, m->x, m->dtype, &p->x, err);
  if (rc == BS_OK && m->dy != NULL) rc = read_in(rank, p, m->dy, m->dtype, &p->dy, err);
  return rc;
}

/* The arguments of the product, and its query without an op. */
static void list_args(const bench_numbers *m, product *p) {
  p->nargs = m->product == BENCH_FORWARD ? 4 : m->product == BENCH_DX ? 2 : 3;
  p->args[0] = m->product == BENCH_DX ? &p->dy : &p->x;
  p->args[1] = m->product == BENCH_DX ? &p->out : m->product == BENCH_DW ? &p->dy : NULL;
  p->args[2] = m->product == BENCH_DW ? &p->out : NULL;
  p->args[3] = m->product == BENCH_FORWARD ? &p->out : NULL;
}

static bs_tensor_desc desc_of(const bs_tensor *t) {
  return bs_desc_2d(t->dtype, t->dims[0], t->dims[1]);
}

static int32_t make_plan(bs_rank *rank, const bench_numbers *m, bs_op_query q, product *p, bs_error *err) {
  static const char *const ops[2][3] = {{"matmul", "matmul_dx", "matmul_dw"},
                                        {"matmul24", "matmul24_dx", "matmul24_dw"}};
  bs_tensor_desc desc[4];
  const bs_tensor_desc *args[4] = {NULL, NULL, NULL, NULL};
  list_args(m, p);
  for (uint32_t i = 0; i < p->nargs; ++i) {
    if (p->args[i] == NULL) continue;
    desc[i] = desc_of(p->args[i]);
    args[i] = &desc[i];
  }
  q.op = ops[m->kept ? 1 : 0][m->product];
  q.nargs = p->nargs;
  q.args = args;
  if (m->product == BENCH_DW) q.weight_dtype = 0;
  return p->api->op_prepare(rank, &q, m->product == BENCH_DW ? NULL : p->packed, &p->plan, err);
}

static int32_t make_product(bs_rank *rank, const bench_numbers *m, product *p, bs_error *err) {
  const bs_kept positions = {.struct_size = sizeof positions, .rows = m->n, .cols = m->k, .read = read_kept};
  const bs_tensor_desc x = bs_desc_2d(m->dtype, m->b, m->k), y = bs_desc_2d(m->dtype, m->b, m->n);
  const bs_tensor_desc *args[4] = {&x, NULL, NULL, &y};
  const bs_op_query q = {.struct_size = sizeof q,
                         .nargs = 4,
                         .op = m->kept ? "matmul24" : "matmul",
                         .args = args,
                         .weight_dtype = m->dtype,
                         .flags = (m->product == BENCH_FORWARD ? 0u : BS_QUERY_TRAIN) |
                                  (p->columns != NULL ? BS_QUERY_X_FULL : 0u),
                         .partition = p->columns,
                         .kept = m->kept ? &positions : NULL};
  bs_source source = {.struct_size = sizeof source};
  int32_t rc = bs_source_from_memory(m->w, m->dtype, m->n, m->k, m->k, &source, err);
  if (rc != BS_OK) return rc;
  rc = p->api->pack(rank, &q, &source, &p->packed, err);
  if (rc == BS_OK) rc = make_tensors(rank, m, p, err);
  if (rc == BS_OK) rc = make_plan(rank, m, q, p, err);
  bs_source_release(&source);
  return rc;
}

static void drop_product(bs_rank *rank, product *p) {
  if (p->x.data != NULL) p->api->tensor_free(rank, &p->x);
  if (p->dy.data != NULL) p->api->tensor_free(rank, &p->dy);
  if (p->out.data != NULL) p->api->tensor_free(rank, &p->out);
  if (p->plan != NULL) p->api->op_release(p->plan);
  if (p->packed != NULL) p->api->packed_release(p->packed);
  if (p->columns != NULL) p->api->partition_free(p->columns);
}

/* Seconds, or those that this thread has run. */
static double now(int own_clock) {
  struct timespec t;
  if (!own_clock || clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) != 0) return bench_now();
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* out: seconds a call until all is done, and until the calls have returned. */
static int32_t time_calls(bs_rank *rank, product *p, int own_clock, uint64_t calls, double out[2],
                          bs_error *err) {
  int32_t rc = BS_OK;
  const double start = now(own_clock);
  for (uint64_t i = 0; rc == BS_OK && i < calls; ++i)
    rc = p->api->op_run(p->plan, p->args, p->nargs, NULL, err);
  out[1] = (now(own_clock) - start) / (double)calls;
  if (rc == BS_OK) rc = bs_rank_sync(rank, err);
  out[0] = (now(own_clock) - start) / (double)calls;
  return rc;
}

/* Says that turn `turn` is done and waits for the next: its calls. */
static uint64_t next_turn(plugin_arm *a, uint64_t turn, const double seconds[2]) {
  pthread_mutex_lock(&a->lock);
  a->done = turn + 1;
  a->seconds = seconds[0];
  a->enqueue = seconds[1];
  pthread_cond_broadcast(&a->changed);
  while (a->posted == turn) pthread_cond_wait(&a->changed, &a->lock);
  const uint64_t calls = a->calls;
  pthread_mutex_unlock(&a->lock);
  return calls;
}

static int32_t rank_main(bs_rank *rank, void *arg, bs_error *err) {
  plugin_arm *a = arg;
  product p;
  double seconds[2] = {0.0, 0.0};
  memset(&p, 0, sizeof p);
  p.api = bs_rank_get_api();
  int32_t rc = pick_columns(rank, a->product, &a->numbers, &p, err);
  if (rc == BS_OK) rc = make_product(rank, &a->numbers, &p, err);
  for (uint64_t turn = 0; rc == BS_OK; ++turn) {
    const uint64_t calls = next_turn(a, turn, seconds);
    if (calls == 0) break;
    rc = calls == GIVE_OUTPUT ? bs_rank_copy_out(rank, &p.out, a->y, err)
                              : time_calls(rank, &p, a->own_clock, calls, seconds, err);
  }
  drop_product(rank, &p);
  return rc;
}

static void *world_main(void *arg) {
  plugin_arm *a = arg;
  bs_error err = BS_ERROR_INIT;
  const int32_t rc = bs_world_run(a->world, rank_main, a, &err);
  pthread_mutex_lock(&a->lock);
  a->ended = 1;
  a->status = rc;
  a->error = err;
  pthread_cond_broadcast(&a->changed);
  pthread_mutex_unlock(&a->lock);
  return NULL;
}

/* Waits for the end of the turn that was posted last. */
static int32_t wait_turn(plugin_arm *a, bs_error *err) {
  pthread_mutex_lock(&a->lock);
  while (a->done <= a->posted && !a->ended) pthread_cond_wait(&a->changed, &a->lock);
  const int32_t rc = a->ended ? a->status : BS_OK;
  if (rc != BS_OK && err != NULL) *err = a->error;
  pthread_mutex_unlock(&a->lock);
  return rc;
}

static void post(plugin_arm *a, uint64_t calls) {
  pthread_mutex_lock(&a->lock);
  ++a->posted;
  a->calls = calls;
  pthread_cond_broadcast(&a->changed);
  pthread_mutex_unlock(&a->lock);
}

/* Columns 0 and 1 of each four of `rows` rows of k, or their first half, side by side. */
static void *half_of(const void *whole, int64_t rows, int64_t k, size_t size, int masked) {
  const size_t unit = masked ? 2 * size : (size_t)k / 2 * size; /* bytes that lie together */
  const size_t count = (size_t)k / 2 * size / unit;
  char *out = bench_huge_alloc((uint64_t)rows * (uint64_t)(k / 2) * size);
  for (int64_t r = 0; out != NULL && r < rows; ++r) {
    const char *from = (const char *)whole + (size_t)r * (size_t)k * size;
    char *to = out + (size_t)r * (size_t)(k / 2) * size;
    for (size_t i = 0; i < count; ++i) memcpy(to + i * unit, from + i * 2 * unit, unit);
  }
  return out;
}

static int32_t halve(bench_numbers *m, const bench_numbers *whole, int masked, bs_error *err) {
  const size_t size = BS_DTYPE_BYTES(whole->dtype);
  *m = *whole;
  m->k = whole->k / 2;
  m->w = half_of(whole->w, whole->n, whole->k, size, masked);
  m->x = half_of(whole->x, whole->b, whole->k, size, masked);
  if (m->w == NULL || m->x == NULL)
    return bs_error_set(err, BS_NO_MEMORY, "BS-BENCH-MEMORY", "no memory for half of the numbers");
  return BS_OK;
}

static int is_half(const plugin_arm *a) {
  return a->product == HALF || a->product == RUN || a->product == MASK;
}

/* Numbers of the arm, and those that its output is judged by. */
static int32_t ready_numbers(plugin_arm *a, const bench_numbers *numbers, bench_arm *arm, bs_error *err) {
  a->numbers = *numbers;
  a->numbers.kept = a->product == KEPT;
  arm->own = numbers->product == BENCH_DW ? &a->numbers : NULL;
  if (a->product != WHOLE && numbers->k % (a->product == MASK ? 4 : 2) != 0)
    return bs_error_set(err, BS_UNSUPPORTED, "BS-BENCH-ODD", "this K has no half of its columns");
  if (a->product > HALF && numbers->product != BENCH_FORWARD)
    return bs_error_set(err, BS_UNSUPPORTED, "BS-BENCH-HALF", "half of the whole X is timed forward alone");
  if (is_half(a)) {
    const int32_t rc = halve(&a->own, numbers, a->product == MASK, err);
    arm->own = &a->own;
    if (rc != BS_OK) return rc;
  }
  if (a->product == HALF) a->numbers = a->own;
  const bench_numbers *m = &a->numbers;
  const int64_t rows = m->product == BENCH_DW ? m->n : m->b, cols = m->product == BENCH_FORWARD ? m->n : m->k;
  a->y = bench_huge_alloc((uint64_t)rows * (uint64_t)cols * sizeof(float)); /* at most */
  return a->y != NULL ? BS_OK : bs_error_set(err, BS_NO_MEMORY, "BS-BENCH-MEMORY", "no memory for outputs");
}

static int32_t plugin_ready(bench_arm *arm, const bench_numbers *numbers, bs_error *err) {
  plugin_arm *a = arm->self;
  const bs_world_options w = {.struct_size = sizeof w,
                              .world_size = 1,
                              .backend = a->backend,
                              .threads_per_rank = a->threads,
                              .bind = 1};
  a->posted = a->done = 0;
  a->ended = 0;
  int32_t rc = ready_numbers(a, numbers, arm, err);
  if (rc == BS_OK) rc = bs_world_create(a->context, &w, &a->world, err);
  if (rc != BS_OK) return rc;
  a->started = pthread_create(&a->thread, NULL, world_main, a) == 0;
  if (!a->started) return bs_error_set(err, BS_NO_MEMORY, "BS-BENCH-THREAD", "cannot start a thread");
  rc = wait_turn(a, err);
  if (rc != BS_OK) return rc;
  const char *said = bs_world_algorithms(a->world), *slash = strchr(said, '/');
  if (slash != NULL) said = slash + 1;
  snprintf(arm->way, sizeof arm->way, "%.*s", (int)strcspn(said, "\n"), said);
  return BS_OK;
}

static int32_t plugin_batch(bench_arm *arm, uint64_t calls, double *out_seconds, bs_error *err) {
  plugin_arm *a = arm->self;
  post(a, calls);
  const int32_t rc = wait_turn(a, err);
  *out_seconds = a->seconds;
  arm->enqueue = a->enqueue;
  return rc;
}

static const void *plugin_output(bench_arm *arm, bs_error *err) {
  plugin_arm *a = arm->self;
  post(a, GIVE_OUTPUT);
  return wait_turn(a, err) == BS_OK ? a->y : NULL;
}

static void plugin_release(bench_arm *arm) {
  plugin_arm *a = arm->self;
  if (a->started) {
    post(a, 0);
    pthread_join(a->thread, NULL);
  }
  a->started = 0;
  if (a->world != NULL) bs_world_destroy(a->world);
  a->world = NULL;
  free(a->own.w);
  free(a->own.x);
  free(a->y);
  memset(&a->own, 0, sizeof a->own);
  a->y = NULL;
}

static void plugin_close(bench_arm *arm) {
  plugin_arm *a = arm->self;
  plugin_release(arm);
  if (a->context != NULL) bs_context_close(a->context);
  pthread_mutex_destroy(&a->lock);
  pthread_cond_destroy(&a->changed);
  free(a);
}

/* Parameters of the plugin, each text alive until the context is open. */
static size_t list_params(const char *impl, const bench_arm_options *o, char text[4][BENCH_PATH]) {
  size_t n = 0;
  if (strcmp(o->backend, "cuda") != 0) {
    snprintf(text[n++], BENCH_PATH, "cpu.matmul=%s", impl);
    snprintf(text[n++], BENCH_PATH, "cpu.isa=%s", strcmp(o->isa, "all") == 0 ? "auto" : o->isa);
    return n;
  }
  if (o->driver != NULL) snprintf(text[n++], BENCH_PATH, "cuda.driver=%s", o->driver);
  if (strcmp(impl, "tiles") == 0 || o->cublaslt != NULL)
    snprintf(text[n++], BENCH_PATH, "cuda.cublaslt=%s", strcmp(impl, "tiles") == 0 ? "off" : o->cublaslt);
  return n;
}

int32_t bench_open_plugin(const char *impl, const bench_arm_options *o, bench_arm *arm, bs_error *err) {
  static const bench_arm_ops ops = {plugin_ready, plugin_batch, plugin_output, plugin_release, plugin_close};
  char text[4][BENCH_PATH];
  const char *const ids[1] = {o->backend}, *const params[4] = {text[0], text[1], text[2], text[3]};
  plugin_arm *a = calloc(1, sizeof *a);
  if (a == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-BENCH-MEMORY", "no memory for an arm");
  bs_context_options options = {
      .struct_size = sizeof options, .plugins = ids, .n_plugins = 1, .params = params};
  options.n_params = (uint32_t)list_params(impl, o, text);
  options.plugin_dirs = &o->plugins;
  options.n_plugin_dirs = o->plugins != NULL ? 1 : 0;
  if (o->plugins != NULL) options.trust = BS_TRUST_ANY; /* a folder named by the user, often below /tmp */
  pthread_mutex_init(&a->lock, NULL);
  pthread_cond_init(&a->changed, NULL);
  a->backend = o->backend;
  a->threads = o->threads;
  a->own_clock = o->own_clock;
  arm->self = a;
  arm->ops = &ops;
  arm->backward = 1;
  snprintf(arm->version, sizeof arm->version, "bs_%s %s", o->backend, bs_version());
  return bs_context_open(&options, &a->context, err);
}

int32_t bench_open_part(const char *name, const bench_arm_options *o, bench_arm *arm, bs_error *err) {
  static const char *const parts[] = {"", "sparse24", "gathered", "run", "masked"}; /* WHOLE, ... */
  const int32_t rc = bench_open_plugin("auto", o, arm, err);
  for (int i = KEPT; arm->self != NULL && i <= MASK; ++i)
    if (strcmp(parts[i], name) == 0) ((plugin_arm *)arm->self)->product = i;
  return rc;
}
