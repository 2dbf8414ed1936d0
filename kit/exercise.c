/* SPDX-License-Identifier: MIT
 * exercise.c - calls all functions of a plugin once at one small shape, for checks that watch side effects.
 * Unsupported functions are skipped; other groups check whether they should be supported. */
#include "kit/op.h"

static void use_op(kit_plugin *p, uint32_t thing) {
  static const uint32_t dtypes[] = {BS_F32, BS_BF16};
  static kit_actor a;
  memset(&a, 0, sizeof a);
  const bs_op_impl *impl = p->host.things[thing].vtable;
  if (!kit_op_known(impl->op) || kit_actor_attach(&a, p, thing, 1) != NULL) return;
  for (size_t i = 0; i < 2; i++) {
    kit_shape s = {.x = dtypes[i], .w = dtypes[i], .y = dtypes[i], .B = 4, .N = 8, .K = 16, .seed = 3};
    bs_op_answer answer;
    bs_error err = BS_ERROR_INIT;
    const char *stage = "";
    kit_data d;
    if (kit_op_is(impl->op, "matmul_dw")) s.w = BS_F32;
    if (strstr(impl->op, "_columns") != NULL) s.part = KIT_PATTERN;
    kit_data_make(&d, impl->op, &s);
    kit_data_ask(&a, &d, &answer);
    if (answer.level != BS_LEVEL_NO) (void)kit_data_run(&a, &d, &stage, &err);
    kit_data_free(&a, &d);
  }
  kit_actor_close(&a);
}

static void use_backend(const kit_thing *t) {
  void *state = NULL;
  const bs_backend *b = kit_backend_of(t, &state);
  bs_device_info info = {.struct_size = sizeof info};
  uint32_t count = 0;
  void *device = NULL, *memory = NULL;
  if (b->device_count(state, &count, NULL) != BS_OK || count == 0) return;
  (void)b->device_info(state, 0, &info, NULL);
  if (b->device_open(state, 0, &device, NULL) != BS_OK) return;
  if (b->mem_alloc(device, 100, 64, &memory, NULL) == BS_OK) b->mem_free(device, memory);
  b->device_close(device);
}

static void use_comm(const kit_thing *t) {
  void *state = NULL;
  const bs_comm *comm = kit_comm_of(t, &state);
  const bs_world_request request = {.struct_size = sizeof request, .world_size = 1};
  bs_coll_call call = {.struct_size = sizeof call,
                       .kind = BS_COLL_BARRIER,
                       .site = "exercise",
                       .fingerprint = 1,
                       .timeout_ns = INT64_C(10000000000)};
  bs_error err = BS_ERROR_INIT;
  void *world = NULL, *rank = NULL;
  if (comm->launch != BS_LAUNCH_THREADS || comm->world_open(state, &request, &world, &err) != BS_OK) return;
  if (comm->rank_open(world, 0, &rank, &err) == BS_OK) {
    if (comm->barrier != NULL) (void)comm->barrier(rank, &call, &err);
    comm->rank_close(rank);
  }
  comm->world_close(world);
}

static void use_method(const kit_thing *t) {
  const bs_method *m = t->vtable;
  const uint32_t P = m->default_world > 0 ? m->default_world : m->min_world > 0 ? m->min_world : 1;
  const bs_layer_spec spec = {.struct_size = sizeof spec,
                              .B = 4,
                              .N = 8,
                              .K = 16,
                              .x_dtype = BS_F32,
                              .w_dtype = BS_F32,
                              .y_dtype = BS_F32};
  for (uint32_t r = 0; r < P; r++) {
    bs_proposal proposal = {.struct_size = sizeof proposal};
    bs_error err = BS_ERROR_INIT;
    (void)m->propose(t->state, &spec, r, P, &proposal, &err);
  }
}

static void use_workload(const kit_thing *t) {
  const bs_workload *w = t->vtable;
  const bs_workload_request request = {
      .struct_size = sizeof request, .dtype = BS_F32, .B = 5, .N = 9, .K = 64, .seed = 1, .weight_seed = 2};
  bs_workload_info info = {.struct_size = sizeof info};
  bs_error err = BS_ERROR_INIT;
  void *instance = NULL;
  bs_source x = {.struct_size = sizeof x};
  float row[64];
  if (w->open(t->state, &request, &instance, &err) != BS_OK) return;
  (void)w->info(instance, &info, &err);
  if (w->source(instance, BS_PART_X, &x, &err) == BS_OK && x.cols == 64)
    (void)x.read(x.ctx, 0, 1, NULL, BS_F32, row, 64, &err);
  w->close(instance);
}

void kit_exercise(kit_plugin *p) {
  for (uint32_t i = 0; i < p->host.n_things; i++) {
    const kit_thing *t = &p->host.things[i];
    switch (t->kind) {
      case BS_KIND_OP:
        use_op(p, i);
        break;
      case BS_KIND_BACKEND:
        use_backend(t);
        kit_unwrap();
        break;
      case BS_KIND_COMM:
        use_comm(t);
        kit_unwrap();
        break;
      case BS_KIND_METHOD:
        use_method(t);
        kit_method_use((const bs_method *)t->vtable);
        break;
      case BS_KIND_WORKLOAD:
        use_workload(t);
        break;
      default: /* kinds that nothing uses yet */
        break;
    }
  }
}
