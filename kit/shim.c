/* SPDX-License-Identifier: MIT
 * shim.c - see shim.h. The rank table has no room for a context: faults and counts are the process's. */
#include "kit/shim.h"

#include <stdio.h>

#include "kit/driven.h"
#include "kit/layer.h"

const char *const kit_phase_names[KIT_PHASES] = {"build", "forward", "read_weights"};

enum { PACKED, PLAN, COLLECTIVE, TENSOR, MEMORY, GROUP, KEPT, N_KINDS };
static const char *const kind_words[N_KINDS] = {
    "packed weights",        "plans of ops", "plans of collectives", "device tensors",
    "blocks of host memory", "groups",       "positions of a mask"};

static kit_host *faulty;
static int64_t live[N_KINDS];
static _Thread_local kit_stop *here; /* of the rank that runs on this thread */
static _Thread_local uint32_t here_rank;

static void took(int kind) {
  __atomic_add_fetch(&live[kind], 1, __ATOMIC_RELAXED);
}
static void gave(int kind) {
  __atomic_sub_fetch(&live[kind], 1, __ATOMIC_RELAXED);
}
static int fails(const char *service, bs_error *err) {
  return faulty != NULL && kit_host_fails(faulty, service, err);
}

/* Memory of one call (BS_LIFE_CALL) of a layer. */
enum { CALLS = 64 };
typedef struct calls {
  int open; /* the layer is built, and not for backward */
  uint32_t n;
  bs_tensor at[CALLS];
} calls;
static calls *building[KIT_SHIM_RANKS];

/* Before the first call another layer has worked there: NaN, in floats. */
static void poison(calls *c) {
  if (strcmp(kit_method_backend(), "ref") != 0) return;
  for (uint32_t i = 0; i < c->n; i++) memset(c->at[i].data, 0xFF, c->at[i].bytes);
  c->n = 0;
}

static void keep_calls(bs_rank *rank, uint32_t lifetime, const bs_tensor *t) {
  const uint32_t r = bs_rank_get_api()->rank(rank);
  calls *c = r < KIT_SHIM_RANKS ? building[r] : NULL;
  if (lifetime == BS_LIFE_CALL && c != NULL && c->open && c->n < CALLS) c->at[c->n++] = *t;
}

static void drop_calls(bs_rank *rank, const bs_tensor *t) {
  const uint32_t r = bs_rank_get_api()->rank(rank);
  calls *c = r < KIT_SHIM_RANKS ? building[r] : NULL;
  for (uint32_t i = 0; c != NULL && i < c->n; i++)
    if (c->at[i].data == t->data) c->at[i--] = c->at[--c->n];
}

static kit_taken taken[KIT_SHIM_RANKS];
static int reading[KIT_SHIM_RANKS];

const kit_taken *kit_shim_taken(uint32_t rank) {
  return &taken[rank];
}

/* The counter of a rank's bytes; NULL: not counted. */
static kit_taken *taken_of(bs_rank *rank) {
  const uint32_t r = bs_rank_get_api()->rank(rank);
  return r < KIT_SHIM_RANKS && !reading[r] ? &taken[r] : NULL;
}

static void maybe_stop(void) {
  kit_stop *s = here;
  if (s == NULL) return;
  pthread_mutex_lock(&s->lock);
  if (++s->calls[here_rank] == s->at) {
    s->stopped |= here_rank == 0;
    pthread_cond_broadcast(&s->change);
    while (here_rank == 0 && !s->go) pthread_cond_wait(&s->change, &s->lock);
  }
  pthread_mutex_unlock(&s->lock);
}

static _Thread_local kit_record *record;

void kit_shim_record(kit_record *out) {
  record = out;
  if (out != NULL) *out = (kit_record){0xcbf29ce484222325u, 0};
}

static void fold(uint64_t value) {
  record->hash = (record->hash ^ value) * 0x100000001b3u;
}

static void fold_tensor(const bs_tensor *t) {
  fold(t != NULL ? (uint64_t)(uintptr_t)t->data : 0);
  for (uint32_t i = 0; t != NULL && i < t->rank; i++) fold((uint64_t)t->dims[i]);
}

static void keep_call(const void *plan, const bs_tensor *in, const bs_tensor *out) {
  if (record == NULL) return;
  record->calls++;
  fold((uint64_t)(uintptr_t)plan);
  fold_tensor(in);
  fold_tensor(out);
}

/* ---- the rank table ------------------------------------------------------------------------- */

static int32_t f_op_supports(bs_rank *rank, const bs_op_query *q, bs_op_answer *out, bs_error *err) {
  if (fails("op_supports", err)) return BS_NO_MEMORY;
  return bs_rank_get_api()->op_supports(rank, q, out, err);
}
static int32_t f_pack(bs_rank *rank, const bs_op_query *q, const bs_source *w, bs_packed **out,
                      bs_error *err) {
  if (fails("pack", err)) return BS_NO_MEMORY;
  const int32_t rc = bs_rank_get_api()->pack(rank, q, w, out, err);
  if (rc != BS_OK) return rc;
  took(PACKED);
  kit_taken *t = taken_of(rank);
  if (t != NULL) t->packed += bs_rank_get_api()->packed_bytes(*out);
  return rc;
}
static int32_t f_packed_update(bs_packed *packed, const bs_tensor *delta, bs_error *err) {
  if (fails("packed_update", err)) return BS_NO_MEMORY;
  return bs_rank_get_api()->packed_update(packed, delta, err);
}
static int32_t f_packed_read(bs_packed *packed, int64_t row, bs_tensor *out, bs_error *err) {
  if (fails("packed_read", err)) return BS_NO_MEMORY;
  return bs_rank_get_api()->packed_read(packed, row, out, err);
}
static void f_packed_release(bs_packed *packed) {
  if (packed != NULL) gave(PACKED);
  bs_rank_get_api()->packed_release(packed);
}
static int32_t f_op_prepare(bs_rank *rank, const bs_op_query *q, bs_packed *w, bs_plan **out, bs_error *err) {
  if (fails("op_prepare", err)) return BS_NO_MEMORY;
  const int32_t rc = bs_rank_get_api()->op_prepare(rank, q, w, out, err);
  if (rc == BS_OK) took(PLAN);
  return rc;
}
static int32_t f_op_run(bs_plan *plan, bs_tensor *const *args, uint32_t n, bs_stream *stream, bs_error *err) {
  maybe_stop();
  if (fails("op_run", err)) return BS_NO_MEMORY;
  keep_call(plan, NULL, NULL);
  for (uint32_t i = 0; record != NULL && i < n; i++) fold_tensor(args[i]);
  return bs_rank_get_api()->op_run(plan, args, n, stream, err);
}
static void f_op_release(bs_plan *plan) {
  if (plan != NULL) gave(PLAN);
  bs_rank_get_api()->op_release(plan);
}
static int32_t f_tensor_alloc(bs_rank *rank, const bs_tensor_desc *d, uint32_t lifetime, bs_tensor *out,
                              bs_error *err) {
  if (fails("tensor_alloc", err)) return BS_NO_MEMORY;
  const int32_t rc = bs_rank_get_api()->tensor_alloc(rank, d, lifetime, out, err);
  if (rc == BS_OK && out->data != NULL) took(TENSOR);
  if (rc == BS_OK) keep_calls(rank, lifetime, out);
  kit_taken *t = rc == BS_OK ? taken_of(rank) : NULL;
  if (t != NULL) *(lifetime == BS_LIFE_WEIGHTS ? &t->kept : &t->scratch) += out->bytes;
  return rc;
}
static void f_tensor_free(bs_rank *rank, bs_tensor *t) {
  if (t != NULL && t->data != NULL) {
    gave(TENSOR);
    drop_calls(rank, t);
  }
  bs_rank_get_api()->tensor_free(rank, t);
}
static int32_t f_tensor_read(bs_rank *rank, const bs_source *s, int64_t row, const bs_partition *cols,
                             bs_tensor *out, bs_error *err) {
  if (fails("tensor_read", err)) return BS_NO_MEMORY;
  return bs_rank_get_api()->tensor_read(rank, s, row, cols, out, err);
}
static int32_t f_partition_make(bs_rank *rank, const bs_mask *mask, int64_t total, uint32_t index,
                                uint32_t world_size, const bs_partition **out, bs_error *err) {
  (void)rank; /* counted with those of the host table: a method may free them by either */
  return kit_partition_make(mask, total, index, world_size, out, err);
}
static int32_t f_parallel_for(bs_rank *rank, void (*body)(void *arg, uint32_t member, uint32_t width),
                              void *arg) {
  if (fails("parallel_for", NULL)) return BS_NO_MEMORY;
  return bs_rank_get_api()->parallel_for(rank, body, arg);
}
static int32_t f_group_open(bs_rank *rank, const uint32_t *ranks, uint32_t n, bs_group **out, bs_error *err) {
  if (fails("group_open", err)) return BS_NO_MEMORY;
  const int32_t rc = bs_rank_get_api()->group_open(rank, ranks, n, out, err);
  if (rc == BS_OK) took(GROUP);
  return rc;
}
static void f_group_close(bs_group *group) {
  if (group != NULL) gave(GROUP);
  bs_rank_get_api()->group_close(group);
}
static int32_t f_collective_prepare(bs_rank *rank, const bs_collective *d, bs_coll_plan **out,
                                    bs_error *err) {
  if (fails("collective_prepare", err)) return BS_NO_MEMORY;
  const int32_t rc = bs_rank_get_api()->collective_prepare(rank, d, out, err);
  if (rc == BS_OK) took(COLLECTIVE);
  return rc;
}
static int32_t f_collective_run(bs_coll_plan *plan, const bs_tensor *in, bs_tensor *out, bs_stream *stream,
                                bs_error *err) {
  maybe_stop();
  if (fails("collective_run", err)) return BS_NO_MEMORY;
  keep_call(plan, in, out);
  return bs_rank_get_api()->collective_run(plan, in, out, stream, err);
}
static int32_t f_collective_start(bs_coll_plan *plan, const bs_tensor *in, bs_tensor *out, bs_stream *stream,
                                  bs_error *err) {
  maybe_stop();
  if (fails("collective_start", err)) return BS_NO_MEMORY;
  keep_call(plan, in, out);
  return bs_rank_get_api()->collective_start(plan, in, out, stream, err);
}
/* A wait that fails has still waited: the caller has nothing more to do. */
static int32_t f_collective_wait(bs_coll_plan *plan, bs_error *err) {
  const int32_t rc = bs_rank_get_api()->collective_wait(plan, err);
  if (fails("collective_wait", err)) return BS_NO_MEMORY;
  return rc;
}
static void f_collective_release(bs_coll_plan *plan) {
  if (plan != NULL) gave(COLLECTIVE);
  bs_rank_get_api()->collective_release(plan);
}
static void *f_alloc(bs_rank *rank, uint64_t bytes) {
  if (fails("alloc", NULL)) return NULL;
  void *p = bs_rank_get_api()->alloc(rank, bytes);
  if (p != NULL) took(MEMORY);
  return p;
}
static void f_free(bs_rank *rank, void *p) {
  if (p != NULL) gave(MEMORY);
  bs_rank_get_api()->free(rank, p);
}

static int32_t f_kept_make(bs_rank *rank, const bs_mask *mask, int64_t rows, int64_t cols,
                           const bs_source *weights, uint32_t half, const bs_kept **out, bs_error *err) {
  if (fails("kept_make", err)) return BS_NO_MEMORY;
  const int32_t rc = bs_rank_get_api()->kept_make(rank, mask, rows, cols, weights, half, out, err);
  if (rc == BS_OK) took(KEPT);
  return rc;
}
static void f_kept_free(const bs_kept *kept) {
  if (kept != NULL) gave(KEPT);
  bs_rank_get_api()->kept_free(kept);
}

/* The rest is the host's. */
static bs_rank_api shim_api(void) {
  bs_rank_api api = *bs_rank_get_api();
  api.op_supports = f_op_supports;
  api.pack = f_pack;
  api.packed_update = f_packed_update;
  api.packed_read = f_packed_read;
  api.packed_release = f_packed_release;
  api.op_prepare = f_op_prepare;
  api.op_run = f_op_run;
  api.op_release = f_op_release;
  api.tensor_alloc = f_tensor_alloc;
  api.tensor_free = f_tensor_free;
  api.tensor_read = f_tensor_read;
  api.partition_make = f_partition_make;
  api.partition_free = kit_partition_free;
  api.parallel_for = f_parallel_for;
  api.group_open = f_group_open;
  api.group_close = f_group_close;
  api.collective_prepare = f_collective_prepare;
  api.collective_run = f_collective_run;
  api.collective_release = f_collective_release;
  api.collective_start = f_collective_start;
  api.collective_wait = f_collective_wait;
  api.alloc = f_alloc;
  api.free = f_free;
  api.kept_make = f_kept_make;
  api.kept_free = f_kept_free;
  return api;
}

/* ---- the method's table --------------------------------------------------------------------- */

static bs_rank_api the_api; /* filled by kit_shim_make: layers keep pointers to it */

typedef struct layer {
  kit_shim *s;
  uint32_t rank;
  void *real;
  calls calls;
} layer;

static void keep_stack(kit_shim *s, uint32_t phase, uint32_t rank) {
  const size_t used = kit_stack_used();
  if (used <= s->stack[phase]) return;
  s->stack[phase] = used;
  s->deepest[phase] = rank;
}

static int32_t s_propose(void *state, const bs_layer_spec *spec, uint32_t rank, uint32_t world_size,
                         bs_proposal *out, bs_error *err) {
  const kit_shim *s = state;
  return s->real->propose(s->state, spec, rank, world_size, out, err);
}

static int32_t s_build(void *state, const bs_rank_api *api, bs_rank *rank, const bs_layer_spec *spec,
                       const bs_source *weights, const bs_source *bias, void **out, bs_error *err) {
  kit_shim *s = state;
  layer *l = calloc(1, sizeof *l);
  kit_assert(l != NULL, "no memory");
  l->s = s;
  l->rank = api->rank(rank);
  l->calls.open = (spec->flags & BS_LAYER_BACKWARD) == 0;
  if (l->rank < KIT_SHIM_RANKS) building[l->rank] = &l->calls;
  kit_stack_paint();
  const int32_t rc =
      s->real->build(s->state, &the_api, rank, spec, weights, spec->has_bias ? bias : NULL, &l->real, err);
  keep_stack(s, KIT_BUILD, l->rank);
  if (l->rank < KIT_SHIM_RANKS) building[l->rank] = NULL;
  if (rc == BS_OK)
    *out = l;
  else
    free(l);
  return rc;
}

static int32_t s_forward(void *opaque, const bs_tensor *x, bs_tensor *y, bs_stream *stream, bs_error *err) {
  layer *l = opaque;
  here = l->rank < KIT_SHIM_RANKS ? l->s->stop : NULL;
  here_rank = l->rank;
  poison(&l->calls);
  kit_stack_paint();
  const int32_t rc = l->s->real->forward(l->real, x, y, stream, err);
  keep_stack(l->s, KIT_FORWARD, l->rank);
  here = NULL;
  return rc;
}

static int32_t s_backward(void *opaque, const bs_tensor *x, const bs_tensor *dy, bs_tensor *dx, bs_tensor *dw,
                          bs_tensor *db, bs_stream *stream, bs_error *err) {
  const layer *l = opaque;
  return l->s->real->backward(l->real, x, dy, dx, dw, db, stream, err);
}

static int32_t s_step(void *opaque, const bs_step *step, bs_stream *stream, bs_error *err) {
  const layer *l = opaque;
  return l->s->real->step(l->real, step, stream, err);
}

static int32_t s_owns(void *opaque, bs_ownership *out, bs_error *err) {
  const layer *l = opaque;
  out->struct_size = (uint32_t)sizeof *out;
  return l->s->real->owns(l->real, out, err);
}

static int32_t s_read(void *opaque, int64_t row, bs_tensor *out, bs_error *err) {
  layer *l = opaque;
  kit_stack_paint();
  if (l->rank < KIT_SHIM_RANKS) reading[l->rank] = 1;
  const int32_t rc = l->s->real->read_weights(l->real, row, out, err);
  if (l->rank < KIT_SHIM_RANKS) reading[l->rank] = 0;
  keep_stack(l->s, KIT_READ, l->rank);
  return rc;
}

static void s_free(void *opaque) {
  layer *l = opaque;
  l->s->real->layer_free(l->real);
  free(l);
}

void kit_shim_make(kit_shim *s, const bs_method *real, void *state, kit_host *faults) {
  memset(s, 0, sizeof *s);
  memset(taken, 0, sizeof taken);
  the_api = shim_api();
  faulty = faults;
  s->real = real;
  s->state = state;
  s->table = *real;
  s->table.propose = s_propose;
  s->table.build = s_build;
  s->table.forward = s_forward;
  if (real->backward != NULL) s->table.backward = s_backward;
  if (real->step != NULL) s->table.step = s_step;
  s->table.owns = s_owns;
  s->table.read_weights = s_read;
  s->table.layer_free = s_free;
}

const char *kit_shim_left(void) {
  static char text[300];
  text[0] = '\0';
  for (int k = 0; k < N_KINDS; k++)
    if (live[k] != 0)
      snprintf(text + strlen(text), sizeof text - strlen(text), "%s%lld %s", text[0] != '\0' ? ", " : "",
               (long long)live[k], kind_words[k]);
  if (kit_partitions() != 0)
    snprintf(text + strlen(text), sizeof text - strlen(text), "%s%lld partitions",
             text[0] != '\0' ? ", " : "", (long long)kit_partitions());
  return text[0] != '\0' ? text : NULL;
}
