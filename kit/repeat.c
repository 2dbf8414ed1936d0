/* SPDX-License-Identifier: MIT
 * repeat.c - group method, what the host builds on when it keeps passes of a layer as graphs of a device: the
 * same forward, backward pass and step of SGD give ops and collectives the same plans and the same memory
 * each time, from the second on (the first may make what is made once). */
#include "kit/layer.h"
#include "kit/shim.h"

enum { TOKENS = 4, OUT = 12, IN = 16, ROUNDS = 4, PASSES = 3 };
static const char *const names[PASSES] = {"forward", "backward pass", "step"};

typedef struct job {
  kit_shim *shim;
  mf_case c;
  float *x, *w, *dy;
  int fused;
} job;

/* State of one rank. */
typedef struct at_work {
  const job *j;
  void *layer;
  bs_tensor x, y, dy, dx, dw, db;
  kit_record first[PASSES];
} at_work;

static int32_t take(bs_rank *rank, uint32_t dims, int64_t rows, int64_t cols, bs_tensor *out, bs_error *err) {
  bs_tensor_desc d = {.struct_size = sizeof d, .dtype = BS_F32, .rank = dims};
  d.dims[0] = rows;
  if (dims > 1) d.dims[1] = cols;
  return bs_rank_get_api()->tensor_alloc(rank, &d, BS_LIFE_ACTIVATION, out, err);
}

static int32_t make(bs_rank *rank, at_work *a, bs_error *err) {
  const job *j = a->j;
  const bs_layer_spec *s = &j->c.spec;
  const bs_method *m = &j->shim->table;
  bs_ownership own = {.struct_size = sizeof own};
  bs_source w, bias;
  int32_t rc = bs_source_from_memory(j->w, BS_F32, OUT, IN, IN, &w, err);
  if (rc == BS_OK) rc = bs_source_from_memory(j->dy, BS_F32, 1, OUT, OUT, &bias, err);
  if (rc != BS_OK) return rc;
  rc = m->build(j->shim, bs_rank_get_api(), rank, s, &w, &bias, &a->layer, err);
  bs_source_release(&w);
  bs_source_release(&bias);
  if (rc == BS_OK) rc = m->owns(a->layer, &own, err);
  if (rc != BS_OK) return rc;
  int64_t cols = own.columns != NULL ? own.columns->count : IN;
  if (own.kept != NULL) cols = (cols + 3) / 4 * 2;
  rc = take(rank, 2, TOKENS, IN, &a->x, err);
  if (rc == BS_OK) rc = take(rank, 2, TOKENS, OUT, &a->y, err);
  if (rc == BS_OK) rc = take(rank, 2, TOKENS, OUT, &a->dy, err);
  if (rc == BS_OK) rc = take(rank, 2, TOKENS, IN, &a->dx, err);
  if (rc == BS_OK) rc = take(rank, 2, own.row_count, cols, &a->dw, err);
  if (rc == BS_OK) rc = take(rank, 1, own.row_count, 0, &a->db, err);
  if (rc != BS_OK) return rc;
  memcpy(a->x.data, j->x, TOKENS * IN * sizeof(float)); /* the backend's memory is the host's */
  memcpy(a->dy.data, j->dy, TOKENS * OUT * sizeof(float));
  return BS_OK;
}

static int32_t run(at_work *a, int pass, bs_error *err) {
  const bs_method *m = &a->j->shim->table;
  bs_tensor *dw = a->j->fused ? NULL : &a->dw;
  if (pass == 0) return m->forward(a->layer, &a->x, &a->y, NULL, err);
  if (m->backward == NULL) return BS_OK;
  if (pass == 1) return m->backward(a->layer, &a->x, &a->dy, &a->dx, dw, &a->db, NULL, err);
  const bs_step step = {.struct_size = sizeof step,
                        .optimizer = BS_OPT_SGD,
                        .t = 1,
                        .lr = 0x1p-6,
                        .dw = dw,
                        .db = &a->db,
                        .x = &a->x,
                        .dy = &a->dy};
  return m->step != NULL ? m->step(a->layer, &step, NULL, err) : BS_OK;
}

static void compare(const at_work *a, int round, int pass, const kit_record *now) {
  const kit_record *first = &a->first[pass];
  kit_assert(
      now->hash == first->hash && now->calls == first->calls,
      "P=%u: %s %d gives ops and collectives (%u calls) other plans or other memory than %s 2 did (%u), "
      "with the same tensors: a graph that the host keeps of it would go astray",
      a->j->c.world, names[pass], round + 1, now->calls, names[pass], first->calls);
}

static int32_t forward_of(at_work *a, const bs_tensor *x, float *out, bs_error *err) {
  memset(a->y.data, 0xFF, TOKENS * OUT * sizeof(float));
  const int32_t rc = a->j->shim->table.forward(a->layer, x, &a->y, NULL, err);
  memcpy(out, a->y.data, TOKENS * OUT * sizeof(float));
  return rc;
}

static int same_bits(const void *a, const void *b) { /* of two results */
  return memcmp(a, b, TOKENS * OUT * sizeof(float)) == 0;
}

/* A forward depends only on its x: on its present values, not on its address or on earlier calls. */
static int32_t other_inputs(bs_rank *rank, at_work *a, bs_error *err) {
  float first[TOKENS * OUT], moved[TOKENS * OUT], now[TOKENS * OUT];
  bs_tensor other = {0};
  int32_t rc = forward_of(a, &a->x, first, err);
  if (rc == BS_OK) rc = take(rank, 2, TOKENS, IN, &other, err);
  if (rc != BS_OK) return rc;
  for (int i = 0; i < TOKENS * IN; i++) ((float *)other.data)[i] = 1.0f - a->j->x[i];
  rc = forward_of(a, &other, moved, err);
  for (int i = 0; rc == BS_OK && i < 3; i++) { /* the same values where the first ones were */
    memcpy(a->x.data, other.data, TOKENS * IN * sizeof(float));
    rc = forward_of(a, &a->x, now, err);
    kit_assert(rc != BS_OK || same_bits(now, moved),
               "P=%u: forward %d gives other bits of the same x in another tensor", a->j->c.world, i + 3);
  }
  kit_assert(rc != BS_OK || !same_bits(now, first), "P=%u: another x gives the same y", a->j->c.world);
  memcpy(a->x.data, a->j->x, TOKENS * IN * sizeof(float));
  bs_rank_get_api()->tensor_free(rank, &other);
  return rc;
}

static int32_t rank_main(bs_rank *rank, void *arg, bs_error *err) {
  at_work a = {.j = arg};
  bs_tensor *const all[] = {&a.x, &a.y, &a.dy, &a.dx, &a.dw, &a.db};
  int32_t rc = make(rank, &a, err);
  if (rc == BS_OK) rc = other_inputs(rank, &a, err);
  for (int round = 0; rc == BS_OK && round < ROUNDS; round++)
    for (int pass = 0; rc == BS_OK && pass < PASSES; pass++) {
      kit_record now;
      kit_shim_record(&now);
      rc = run(&a, pass, err);
      kit_shim_record(NULL);
      if (round == 1) a.first[pass] = now;
      if (round > 1 && rc == BS_OK) compare(&a, round, pass, &now);
    }
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
    if (all[i]->data != NULL) bs_rank_get_api()->tensor_free(rank, all[i]);
  if (a.layer != NULL) a.j->shim->table.layer_free(a.layer);
  return rc;
}

/* 1 when the passes were run; 0 when the method does not propose the layer. */
static uint32_t repeat(bs_context *context, job *j, bs_error *why) {
  const bs_world_options options = {.struct_size = sizeof options,
                                    .world_size = j->c.world,
                                    .backend = j->c.backend,
                                    .threads_per_rank = 1,
                                    .timeout_s = 60};
  bs_proposal p;
  bs_world *world = NULL;
  bs_error err = BS_ERROR_INIT;
  if (!kit_method_proposed(context, &j->c, &p, why)) return 0;
  int32_t rc = bs_world_create(context, &options, &world, &err);
  if (rc == BS_OK) rc = bs_world_run(world, rank_main, j, &err);
  bs_world_destroy(world);
  kit_assert(rc == BS_OK, "%s, P=%u: %s %s (%s)", j->c.method, j->c.world, err.id, err.message, err.where);
  return 1;
}

void kit_method_repeats(const kit_case *c) {
  bs_context *context = kit_method_context();
  bs_error why = BS_ERROR_INIT;
  const bs_method *m = NULL;
  void *state;
  kit_shim shim;
  uint32_t ran = 0;
  const char *name = kit.survey->things[c->thing].name;
  kit_assert(bs_find_method(context, name, &m, &state, &why) == BS_OK, "%s: %s", why.id, why.message);
  kit_shim_make(&shim, m, state, NULL);
  job j = {.shim = &shim, .c = {.method = name, .backend = kit_method_backend(), .world = c->arg + 1}};
  j.x = mf_integers(1, TOKENS * IN);
  j.w = mf_integers(2, OUT * IN);
  j.dy = mf_integers(3, TOKENS * OUT);
  for (uint32_t k = 0; k < KIT_MASKS; k++) {
    bs_mask room;
    int skip;
    const bs_mask *mask = kit_method_mask(m, k, &room, &skip);
    for (j.fused = 0; !skip && j.fused < 2; j.fused++) {
      j.c.spec = mf_spec(TOKENS, OUT, IN, BS_F32);
      j.c.spec.has_bias = 1;
      j.c.spec.activation = j.fused ? BS_ACT_NONE : BS_ACT_GELU;
      if (m->backward != NULL) j.c.spec.flags = BS_LAYER_BACKWARD | (m->step != NULL ? BS_LAYER_SGD : 0u);
      kit_method_options(&j.c.spec);
      j.c.spec.mask = mask;
      ran += repeat(context, &j, &why);
    }
  }
  free(j.x);
  free(j.w);
  free(j.dy);
  if (ran == 0) kit_unsupported("%u ranks: %s", c->arg + 1, why.message);
  bs_context_close(context);
}
