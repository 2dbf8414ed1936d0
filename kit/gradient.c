/* SPDX-License-Identifier: MIT
 * gradient.c - group method, its backward pass: on integers dX, dW and db are the exact products, dX is the
 * same on every rank, and the host counts what was proposed. A method that can be trained then takes two
 * steps of each optimiser. The pass is that of tests/methods. */
#include "kit/layer.h"
#include "kit/method_gradient.h"

static const int64_t shapes[][3] = {{3, 5, 7}, {1, 1, 1}, {4, 9, 13}, {5, 17, 33}};
static const struct {
  uint32_t dtype, x, y, bias, fewer;
} variants[] = {{BS_F32, BS_REPLICATED, BS_REPLICATED, 1, 0},
                {BS_BF16, BS_REPLICATED, BS_REPLICATED, 0, 1},
                {BS_F32, BS_SPLIT, BS_REPLICATED, 1, 0},
                {BS_F32, BS_REPLICATED, BS_SPLIT, 1, 1}};

/* 1 when the layer was differentiated; 0 when the method does not propose it. */
static uint32_t point(bs_context *context, mg_case *g, size_t seed, bs_error *why) {
  const int64_t B = g->spec.B, N = g->spec.N, K = g->spec.K;
  const mf_case forward = {.method = g->method, .backend = g->backend, .world = g->world, .spec = g->spec};
  bs_proposal p;
  if (!kit_method_proposed(context, &forward, &p, why)) return 0;
  float *x = mf_integers(1 + seed, B * K), *w = mf_integers(100 + seed, N * K),
        *dy = mf_integers(300 + seed, B * N);
  bs_error err = BS_ERROR_INIT;
  g->x = x;
  g->w = w;
  g->dy = dy;
  const int32_t rc = mg_run(context, g, &err);
  kit_assert(rc == BS_OK,
             "%s on %s, P=%u: it proposes a backward pass of B=%lld N=%lld K=%lld %s, and: %s %s (%s)",
             g->method, g->backend, g->world, (long long)B, (long long)N, (long long)K,
             bs_dtype_name(g->spec.x_dtype), err.id, err.message, err.where);
  free(x);
  free(w);
  free(dy);
  return 1;
}

void kit_method_gradient(const kit_case *c) {
  bs_context *context = kit_method_context();
  bs_error why = BS_ERROR_INIT;
  const bs_method *m = NULL;
  void *state;
  uint32_t ran = 0;
  const char *name = kit.survey->things[c->thing].name;
  kit_assert(bs_find_method(context, name, &m, &state, &why) == BS_OK, "%s: %s", why.id, why.message);
  for (uint32_t k = 0; m->backward != NULL && k < KIT_MASKS; k++) {
    bs_mask room;
    int skip;
    const bs_mask *mask = kit_method_mask(m, k, &room, &skip);
    for (size_t v = 0; !skip && v < sizeof variants / sizeof variants[0]; v++)
      for (size_t s = 0; s < (kit_full() ? 4 : v == 0 ? 3 : 1); s++) {
        mg_case g = {.method = name, .backend = kit_method_backend(), .world = c->arg + 1};
        g.spec = mf_spec(shapes[s][0], shapes[s][1], shapes[s][2], variants[v].dtype);
        g.spec.x_placement = variants[v].x;
        g.spec.y_placement = variants[v].y;
        g.spec.has_bias = variants[v].bias;
        g.spec.flags = BS_LAYER_BACKWARD;
        g.rows = variants[v].fewer && g.spec.B > 1 ? g.spec.B - 1 : 0;
        kit_method_options(&g.spec);
        g.spec.mask = mask;
        ran += point(context, &g, s, &why);
        for (g.step = MG_FUSED; m->step != NULL && s == 0 && g.step < MG_STEPS_; g.step++) {
          g.spec.flags = BS_LAYER_BACKWARD | mg_step_flags(g.step);
          ran += point(context, &g, s, &why);
        }
      }
  }
  if (m->backward == NULL)
    kit_unsupported("it has no backward pass");
  else if (ran == 0)
    kit_unsupported("%u ranks: %s", c->arg + 1, why.message);
  bs_context_close(context);
}
