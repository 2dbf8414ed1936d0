/* SPDX-License-Identifier: MIT
 * method.c - group method: layers of the plugin's method in worlds of thread ranks on the backend ref. What
 * it proposes is built; integers give the exact product, real numbers keep to the gates of phase 0; the host
 * counts what was proposed. Runs and most checks are those of tests/methods. */
#include <math.h>
#include <stdio.h>

#include "blockshock/plugin.h"
#include "kit/layer.h"
#include "lab/gate/judge.h"

enum { MAX_OPTIONS = KIT_MAX_PARAMS };

const char *kit_method_backend(void) {
  return kit.options->backend != NULL ? kit.options->backend : "ref";
}

/* Outputs are read where the ranks wrote them. */
static void check_backend(bs_context *context) {
  const bs_backend *backend = NULL;
  void *state = NULL;
  bs_error err = BS_ERROR_INIT;
  kit_assert(bs_find_backend(context, kit_method_backend(), &backend, &state, &err) == BS_OK, "--backend: %s",
             err.message);
  kit_assert(
      (backend->flags & BS_BACKEND_HOST_MEMORY) != 0,
      "--backend: %s has memory of its own: the kit grades methods on backends whose memory is the host's",
      kit_method_backend());
}

bs_context *kit_method_context(void) {
  static char params[KIT_MAX_PARAMS][320];
  static const char *given[KIT_MAX_PARAMS];
  const char *path = kit.options->plugin;
  bs_context_options o = {.struct_size = sizeof o,
                          .trust = BS_TRUST_ANY,
                          .plugins = &path,
                          .n_plugins = 1,
                          .params = given,
                          .n_params = kit.options->n_params,
                          .log_level = BS_LOG_ERROR};
  bs_context *context = NULL;
  bs_error err = BS_ERROR_INIT;
  for (uint32_t i = 0; i < o.n_params; i++) {
    snprintf(params[i], sizeof params[i], "%s.%s", kit.survey->id, kit.options->params[i]);
    given[i] = params[i];
  }
  kit_assert(bs_context_open(&o, &context, &err) == BS_OK, "the host does not take it: %s: %s", err.id,
             err.message);
  check_backend(context);
  return context;
}

/* method.<key> settings of the command line. */
void kit_method_options(bs_layer_spec *spec) {
  static char texts[MAX_OPTIONS][256];
  static const char *keys[MAX_OPTIONS], *values[MAX_OPTIONS];
  spec->n_options = 0;
  for (uint32_t i = 0; i < kit.options->n_options && i < MAX_OPTIONS; i++) {
    snprintf(texts[i], sizeof texts[i], "%s", kit.options->options[i]);
    char *equals = strchr(texts[i], '=');
    *equals = '\0';
    keys[i] = texts[i];
    values[i] = equals + 1;
    spec->n_options++;
  }
  spec->option_keys = keys;
  spec->option_values = values;
}

/* Masks of the kinds that mean something to the method; the first is its default. */
static const struct {
  const char *name;
  uint32_t kind;
} masks[] = {{NULL, 0},
             {"complement_1010_0101", BS_MASK_COMPLEMENT},
             {"interleave", BS_MASK_INTERLEAVE},
             {"contiguous", BS_MASK_CONTIGUOUS},
             {"random_2of4", BS_MASK_RANDOM_2OF4},
             {"magnitude", BS_MASK_MAGNITUDE},
             {"transposable", BS_MASK_TRANSPOSABLE}};
_Static_assert(sizeof masks / sizeof masks[0] == KIT_MASKS, "kit_method_mask");

const bs_mask *kit_method_mask(const bs_method *m, uint32_t i, bs_mask *room, int *out_skip) {
  *out_skip = masks[i].name != NULL && (m->mask_kinds >> masks[i].kind & 1u) == 0;
  if (*out_skip || masks[i].name == NULL) return NULL;
  *room = mf_mask(masks[i].name);
  return room;
}

static void ignore(void *user, const bs_op_candidate *candidate) {
  (void)user, (void)candidate;
}

/* A dtype that the backend does not multiply in is no matter of the method's. */
static int backend_serves(bs_context *context, const bs_layer_spec *s, bs_error *why) {
  const bs_tensor_desc x = bs_desc_2d(s->x_dtype, s->B, s->K), y = bs_desc_2d(s->y_dtype, s->B, s->N);
  const bs_tensor_desc *args[4] = {&x, NULL, NULL, &y};
  const bs_op_query q = {
      .struct_size = sizeof q, .nargs = 4, .op = "matmul", .args = args, .weight_dtype = s->w_dtype};
  return bs_op_explain(context, kit_method_backend(), &q, ignore, NULL, why) == BS_OK;
}

/* Does every rank propose it? A refusal says why; what is proposed must be built and run. */
int kit_method_proposed(bs_context *context, const mf_case *c, bs_proposal *first, bs_error *why) {
  uint32_t yes = 0;
  bs_error unserved = BS_ERROR_INIT;
  if (!backend_serves(context, &c->spec, &unserved)) {
    if (why->message[0] == '\0') *why = unserved; /* the method's own reasons come first */
    return 0;
  }
  for (uint32_t r = 0; r < c->world; r++) {
    bs_proposal p = {.struct_size = sizeof p};
    bs_error err = BS_ERROR_INIT;
    const int32_t rc = bs_method_propose(context, c->method, &c->spec, r, c->world, &p, &err);
    if (rc == BS_OK) {
      if (yes++ == 0) *first = p;
      continue;
    }
    *why = err;
    kit_assert(rc == BS_UNSUPPORTED || rc == BS_CONFIG,
               "propose on %u ranks refuses by %s: it should be UNSUPPORTED or CONFIG (%s)", c->world,
               bs_status_name(rc), err.message);
    kit_assert(err.message[0] != '\0', "propose on %u ranks refuses without a reason", c->world);
  }
  kit_assert(yes == 0 || yes == c->world, "on %u ranks, %u propose and the others refuse", c->world, yes);
  return yes > 0;
}

uint32_t kit_method_world(const bs_method *m) {
  return m->default_world > 0 ? m->default_world : m->min_world > 0 ? m->min_world : 1;
}

static void refused_all(const bs_method *m, uint32_t P, const bs_error *why) {
  kit_assert(P != kit_method_world(m), "is not served on %u ranks, its own usual number: %s", P,
             why->message);
  kit_unsupported("%u ranks: %s", P, why->message);
}

/* ---- integers ------------------------------------------------------------------------------- */

static const int64_t shapes[][3] = {{3, 5, 7}, {1, 1, 1}, {4, 9, 13}, {8, 16, 32}, {5, 17, 33}};
static const struct {
  uint32_t dtype, x, y, bias, fewer;
} variants[] = {{BS_F32, BS_REPLICATED, BS_REPLICATED, 1, 0},
                {BS_BF16, BS_REPLICATED, BS_REPLICATED, 0, 1},
                {BS_F16, BS_SPLIT, BS_REPLICATED, 1, 0},
                {BS_F64, BS_REPLICATED, BS_REPLICATED, 1, 0},
                {BS_F32, BS_REPLICATED, BS_PARTIAL, 0, 0}};

static uint32_t exact_point(bs_context *context, mf_case *c, size_t shape, bs_error *why) {
  const int64_t B = c->spec.B, N = c->spec.N, K = c->spec.K;
  float *x = mf_integers(1 + shape, B * K), *w = mf_integers(100 + shape, N * K),
        *bias = mf_integers(200 + shape, N);
  bs_proposal p;
  c->x = x;
  c->w = w;
  c->bias = c->spec.has_bias ? bias : NULL;
  const int serves = kit_method_proposed(context, c, &p, why);
  if (serves) {
    mf_result result;
    mf_run_ok(context, c, &result);
    mf_check_outputs(c, &result);
    mf_check_ownership(c, &result, p.split == BS_SPLIT_NONE);
    mf_check_counters(c, &result);
    mf_free(&result);
  }
  free(x);
  free(w);
  free(bias);
  return (uint32_t)serves;
}

void kit_method_exact(const kit_case *c) {
  const uint32_t P = c->arg < 4 ? c->arg + 1 : 7; /* the worlds of list.c */
  bs_context *context = kit_method_context();
  bs_error why = BS_ERROR_INIT;
  const bs_method *m = NULL;
  void *state;
  uint32_t ran = 0;
  const char *name = kit.survey->things[c->thing].name;
  kit_assert(bs_find_method(context, name, &m, &state, &why) == BS_OK, "%s: %s", why.id, why.message);
  for (uint32_t k = 0; k < KIT_MASKS; k++) {
    bs_mask room;
    int skip;
    const bs_mask *mask = kit_method_mask(m, k, &room, &skip);
    for (size_t v = 0; !skip && v < sizeof variants / sizeof variants[0]; v++)
      for (size_t s = 0; s < (kit_full() ? 5 : v == 0 ? 4 : 1); s++) {
        mf_case l = {
            .method = name, .backend = kit_method_backend(), .world = P, .forwards = 1 + (uint32_t)(v % 2)};
        l.spec = mf_spec(shapes[s][0], shapes[s][1], shapes[s][2], variants[v].dtype);
        l.spec.x_placement = variants[v].x;
        l.spec.y_placement = variants[v].y;
        l.spec.has_bias = variants[v].bias;
        l.rows = variants[v].fewer && l.spec.B > 1 ? l.spec.B - 1 : 0;
        kit_method_options(&l.spec);
        l.spec.mask = mask;
        ran += exact_point(context, &l, s, &why);
      }
  }
  if (ran == 0) refused_all(m, P, &why); /* the method's table goes with the context */
  bs_context_close(context);
}

/* ---- real numbers, by the gates of phase 0 -------------------------------------------------- */

static double *rounded(uint32_t dtype, const float *values, int64_t n) {
  double *out = calloc((size_t)n + 1, sizeof *out);
  kit_assert(out != NULL, "no memory");
  for (int64_t i = 0; i < n; i++) {
    unsigned char one[8] = {0};
    bs_store_f64(dtype, one, 0, (double)values[i]);
    out[i] = bs_load_f64(dtype, one, 0);
  }
  return out;
}

/* Which rank holds which weights, for masks that differ by row. */
typedef struct weight_owners {
  const mf_case *c;
  const mf_result *result;
} weight_owners;

static int by_row(const mf_case *c, const mf_result *result) {
  for (uint32_t r = 0; r < c->world; r++)
    if (result->rank[r].places != NULL) return 1;
  return 0;
}

static int32_t owners_of(void *ctx, int64_t n, uint32_t *out, uint32_t *out_first, bs_error *err) {
  const weight_owners *o = ctx;
  (void)err;
  *out_first = UINT32_MAX;
  for (uint32_t r = 0; r < o->c->world; r++) {
    const mf_rank *k = &o->result->rank[r];
    if (n < k->row_begin || n >= k->row_begin + k->row_count) continue;
    if (*out_first == UINT32_MAX) *out_first = r;
    for (int64_t j = 0; j < k->k_own; j++) {
      const int64_t col = mf_column(k, n - k->row_begin, j);
      if (col >= 0) out[col] = r;
    }
  }
  return BS_OK;
}

/* The rank that holds partial sums of each column; NULL: none does, or owners know. */
static uint32_t *column_ranks(const mf_case *c, const mf_result *result, uint32_t split) {
  if (split != BS_SPLIT_K || c->world == 1 || by_row(c, result)) return NULL;
  uint32_t *of = calloc((size_t)c->spec.K + 1, sizeof *of);
  kit_assert(of != NULL, "no memory");
  for (uint32_t r = 0; r < c->world; r++)
    for (int64_t i = 0; i < result->rank[r].k_own; i++) of[result->rank[r].columns[i]] = r;
  return of;
}

static void judge_ranks(const mf_case *c, const mf_result *result, const bs_reference *reference,
                        const bs_arithmetic *arithmetic) {
  bs_prediction prediction;
  bs_error err = BS_ERROR_INIT;
  kit_assert(bs_predict(reference, arithmetic, &prediction, &err) == BS_OK, "%s: %s", err.id, err.message);
  for (uint32_t r = 0; r < c->world; r++) {
    bs_judgement judgement;
    bs_gate gates[8];
    memset(&judgement, 0, sizeof judgement);
    bs_judge(reference, arithmetic, &prediction, result->rank[r].y_bits, c->spec.N, 0, c->spec.N, &judgement);
    const uint32_t n = bs_gates_from_judgement(reference, &judgement, (int32_t)r, gates, 8);
    for (uint32_t g = 0; g < n; g++)
      kit_assert(gates[g].state != BS_GATE_FAIL, "P=%u rank %u, %s: gate %s: %.3g, limit %.3g: %s", c->world,
                 r, bs_dtype_name(arithmetic->y_dtype), gates[g].name, gates[g].value, gates[g].limit,
                 gates[g].text);
    kit_assert(memcmp(result->rank[r].y_bits, result->rank[0].y_bits, result->rank[0].y_bytes) == 0,
               "P=%u: rank %u has other bits than rank 0", c->world, r);
  }
  bs_prediction_free(&prediction);
}

static void real_point(bs_context *context, const mf_case *c, const bs_proposal *p) {
  const uint32_t split = p->split;
  const bs_layer_spec *s = &c->spec;
  mf_result result;
  mf_run_ok(context, c, &result);
  double *x = rounded(s->x_dtype, c->x, s->B * s->K), *w = rounded(s->w_dtype, c->w, s->N * s->K);
  uint32_t *of = column_ranks(c, &result, split);
  bs_source xs, ws;
  bs_reference reference;
  bs_error err = BS_ERROR_INIT;
  int32_t rc = bs_source_from_memory(x, BS_F64, s->B, s->K, s->K, &xs, &err);
  if (rc == BS_OK) rc = bs_source_from_memory(w, BS_F64, s->N, s->K, s->K, &ws, &err);
  weight_owners owners = {c, &result};
  const bs_reference_request request = {.x = &xs,
                                        .w = &ws,
                                        .world_size = c->world,
                                        .column_rank = of,
                                        .owners = by_row(c, &result) ? owners_of : NULL,
                                        .owners_ctx = &owners,
                                        .terms = split == BS_SPLIT_K && c->world > 1,
                                        .threads = 1};
  if (rc == BS_OK) rc = bs_reference_compute(&request, &reference, &err);
  kit_assert(rc == BS_OK, "the oracle fails: %s: %s", err.id, err.message);
  /* Zeros in the place of others' weights: more products than a rank has weights. */
  const int64_t own = result.rank[0].k_own > 0 ? result.rank[0].k_own : 1;
  const bs_arithmetic arithmetic = {
      .y_dtype = s->y_dtype,
      .reduce_dtype = BS_F32,
      .accumulate = BS_ACC_F32,
      .zero_products = p->flops > 2u * (uint64_t)(s->B * result.rank[0].row_count * own)};
  judge_ranks(c, &result, &reference, &arithmetic);
  bs_reference_free(&reference);
  bs_source_release(&xs);
  bs_source_release(&ws);
  free(of);
  free(x);
  free(w);
  mf_free(&result);
}

void kit_method_real(const kit_case *c) {
  static const uint32_t dtypes[] = {BS_F32, BS_BF16};
  const int64_t B = 16, N = 160, K = 96;
  bs_context *context = kit_method_context();
  bs_error why = BS_ERROR_INIT;
  const bs_method *m = NULL;
  void *state;
  uint32_t ran = 0;
  const char *name = kit.survey->things[c->thing].name;
  kit_assert(bs_find_method(context, name, &m, &state, &why) == BS_OK, "%s: %s", why.id, why.message);
  float *x = mf_normals(7, B * K), *w = mf_normals(8, N * K);
  for (uint32_t k = 0; k < KIT_MASKS; k++) {
    bs_mask room;
    int skip;
    const bs_mask *mask = kit_method_mask(m, k, &room, &skip);
    for (size_t d = 0; !skip && d < 2; d++) {
      mf_case l = {.method = name, .backend = kit_method_backend(), .world = c->arg + 1, .x = x, .w = w};
      bs_proposal p;
      l.spec = mf_spec(B, N, K, dtypes[d]);
      kit_method_options(&l.spec);
      l.spec.mask = mask;
      if (!kit_method_proposed(context, &l, &p, &why)) continue;
      real_point(context, &l, &p);
      const float keep = x[3 * K + 5];
      x[3 * K + 5] = -INFINITY; /* comes out with the sign that it must have */
      real_point(context, &l, &p);
      x[3 * K + 5] = keep;
      ran++;
    }
  }
  free(x);
  free(w);
  if (ran == 0) refused_all(m, c->arg + 1, &why);
  bs_context_close(context);
}

void kit_method_layer(bs_context *context, const bs_method *m) {
  mf_case l = {.method = m->name, .backend = kit_method_backend(), .world = kit_method_world(m)};
  bs_error err = BS_ERROR_INIT;
  mf_result result;
  l.spec = mf_spec(4, 8, 16, BS_F32);
  kit_method_options(&l.spec);
  float *x = mf_integers(1, 64), *w = mf_integers(2, 128);
  l.x = x;
  l.w = w;
  (void)mf_run(context, &l, &result, &err);
  mf_free(&result);
  free(x);
  free(w);
}

void kit_method_use(const bs_method *m) {
  bs_context *context = kit_method_context();
  kit_method_layer(context, m);
  bs_context_close(context);
}
