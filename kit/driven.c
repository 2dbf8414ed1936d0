/* SPDX-License-Identifier: MIT
 * driven.c - group method, worlds of coroutines: ranks that share one thread and give way at each collective
 * compute the same bits as ranks that are threads, and stay within the stack of rank paths. */
#include "kit/driven.h"

#include "kit/layer.h"
#include "kit/shim.h"

typedef struct worlds {
  bs_context *threads, *driven;
  const bs_method *method; /* as the driven context has it */
  void *state;
} worlds;

/* A sanitizer widens every frame, and the stack of a backend's kernels is not the method's. */
static int stack_counts(void) {
#if defined(SIM_ASAN) || defined(SIM_TSAN)
  return 0;
#else
  return strcmp(kit_method_backend(), "ref") == 0;
#endif
}

static void check_stack(const mf_case *l, const kit_shim *s) {
  for (int phase = 0; phase < KIT_PHASES && stack_counts(); phase++)
    kit_assert(s->stack[phase] <= KIT_STACK_LIMIT,
               "%s: %s uses %zu bytes of stack on rank %u of %u, at most %d are allowed on rank paths",
               l->method, kit_phase_names[phase], s->stack[phase], s->deepest[phase], l->world,
               KIT_STACK_LIMIT);
}

/* A layer takes what it proposed. Only ref packs weights as they are; a bias may be counted as a weight. What
 * it works in is proposed as the most: it may depend on what the backend's kernels take. */
static void check_memory(const mf_case *l, const mf_result *proposed) {
  if (strcmp(kit_method_backend(), "ref") != 0) return;
  for (uint32_t r = 0; r < l->world; r++) {
    const bs_proposal *p = &proposed->rank[r].proposal;
    const kit_taken *t = kit_shim_taken(r);
    kit_assert(p->weight_bytes >= t->packed && p->weight_bytes <= t->packed + t->kept,
               "%s: rank %u of %u packs %llu bytes of weights, its proposal's weight_bytes are %llu",
               l->method, r, l->world, (unsigned long long)t->packed, (unsigned long long)p->weight_bytes);
    kit_assert(
        t->scratch <= p->workspace_bytes,
        "%s: rank %u of %u takes %llu bytes of scratch and activations, its proposal's workspace_bytes "
        "are %llu",
        l->method, r, l->world, (unsigned long long)t->scratch, (unsigned long long)p->workspace_bytes);
  }
}

/* 1: the method proposes it, and it ran in both worlds. */
static int both(const worlds *w, mf_case *l, bs_error *why) {
  mf_result threads, driven;
  kit_shim shim;
  bs_proposal proposal;
  bs_error err = BS_ERROR_INIT;
  if (!kit_method_proposed(w->threads, l, &proposal, why)) return 0;
  mf_run_ok(w->threads, l, &threads);
  kit_shim_make(&shim, w->method, w->state, NULL);
  l->table = &shim.table;
  l->table_state = &shim;
  const int32_t rc = mf_run(w->driven, l, &driven, &err);
  kit_assert(rc == BS_OK, "in a world of %u coroutines %s fails: %s: %s", l->world, l->method, err.id,
             err.message);
  for (uint32_t r = 0; r < l->world; r++)
    kit_assert(driven.rank[r].y_bytes == threads.rank[r].y_bytes &&
                   memcmp(driven.rank[r].y_bits, threads.rank[r].y_bits, threads.rank[r].y_bytes) == 0,
               "%s: rank %u of %u has other bits in a world of coroutines, where memory of one call "
               "(BS_LIFE_CALL) is not zero, than in one of threads",
               l->method, r, l->world);
  check_stack(l, &shim);
  check_memory(l, &threads);
  mf_free(&threads);
  mf_free(&driven);
  l->table = NULL;
  return 1;
}

static uint32_t points(const worlds *w, const char *name, uint32_t P, bs_error *why) {
  static const int64_t shapes[][3] = {{3, 5, 7}, {8, 33, 520}, {5, 17, 33}, {2, 64, 1031}};
  static const uint32_t dtypes[] = {BS_F32, BS_BF16, BS_F64};
  uint32_t ran = 0;
  for (uint32_t k = 0; k < KIT_MASKS; k++) {
    bs_mask room;
    int skip;
    const bs_mask *mask = kit_method_mask(w->method, k, &room, &skip);
    for (size_t d = 0; !skip && d < sizeof dtypes / sizeof dtypes[0]; d++)
      for (size_t s = 0; s < (kit_full() ? 4 : d == 0 ? 2 : 1); s++) {
        const int64_t B = shapes[s][0], N = shapes[s][1], K = shapes[s][2];
        float *x = mf_normals(1, B * K), *weights = mf_normals(2, N * K), *bias = mf_normals(3, N);
        mf_case l = {.method = name,
                     .backend = kit_method_backend(),
                     .world = P,
                     .x = x,
                     .w = weights,
                     .bias = d == 0 ? bias : NULL};
        l.spec = mf_spec(B, N, K, dtypes[d]);
        l.spec.has_bias = d == 0;
        l.spec.mask = mask;
        kit_method_options(&l.spec);
        ran += (uint32_t)both(w, &l, why);
        free(x);
        free(weights);
        free(bias);
      }
  }
  return ran;
}

void kit_method_driven(const kit_case *c) {
  const uint32_t P = c->arg + 1;
  const char *name = kit.survey->things[c->thing].name;
  worlds w = {.threads = kit_method_context(), .driven = kit_method_context()};
  bs_error why = BS_ERROR_INIT;
  kit_driven_use(w.driven);
  kit_assert(bs_find_method(w.driven, name, &w.method, &w.state, &why) == BS_OK, "%s: %s", why.id,
             why.message);
  if (points(&w, name, P, &why) == 0) {
    kit_assert(P != kit_method_world(w.method), "is not served on %u ranks, its own usual number: %s", P,
               why.message);
    kit_unsupported("%u ranks: %s", P, why.message);
  }
  bs_context_close(w.threads);
  bs_context_close(w.driven);
}
