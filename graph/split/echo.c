/* SPDX-License-Identifier: MIT
 * echo.c - see echo.h. */
#include "graph/split/echo.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/world/executor.h"
#include "graph/ir/arena.h"

enum { COLUMNS = 1, LAYER = 2, END = 3 };

/* A step of the lead's binding, on this rank: a plan, or a layer. */
typedef struct echo_step {
  bs_plan *plan;
  uint32_t layer; /* GNONE: it has a plan */
  uint32_t own;   /* 1: the plan is that of this step; 0: an earlier one's */
} echo_step;

struct gecho {
  gcore *core; /* weights that are whole, and memory of the device */
  grank *rank;
  bs_layer **layers; /* as the lead's: by their number; NULL: another one serves */
  uint32_t *serves;  /* the number of that */
  uint32_t n_layers, cap_layers, cap_serves;
  const gbinding *of; /* of the lead, whose steps these are; NULL: none */
  uint64_t made;      /* which one */
  echo_step *steps;
  uint32_t n_steps;
};

static int32_t no_memory(bs_error *err) {
  return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a rank that follows another");
}

/* ---- the lead -------------------------------------------------------------------------------- */

/* The echoes have read it when this returns. */
static int32_t say(glead *t, uint32_t what, bs_error *err) {
  t->what = what;
  const int32_t rc = bs_rank_barrier(t->rank, "split.tell", err);
  return rc == BS_OK ? bs_rank_barrier(t->rank, "split.read", err) : rc;
}

int32_t glead_columns(glead *t, gmethod *method, const bs_layer_spec *spec, bs_error *err) {
  if (t == NULL) return BS_OK;
  t->method = method;
  t->spec = spec;
  return say(t, COLUMNS, err);
}

static uint32_t number_of(const gcore *core, const glayer *layer) {
  uint32_t i = 0;
  while (i < core->n_layers && core->layers[i] != layer) i++;
  return i;
}

static int same_spec(const bs_layer_spec *a, const bs_layer_spec *b) {
  return a->has_bias == b->has_bias && a->B == b->B && a->N == b->N && a->K == b->K &&
         a->x_dtype == b->x_dtype && a->w_dtype == b->w_dtype && a->y_dtype == b->y_dtype &&
         a->reduce_dtype == b->reduce_dtype && a->accumulate == b->accumulate &&
         a->activation == b->activation && a->x_placement == b->x_placement &&
         a->y_placement == b->y_placement && a->flags == b->flags;
}

/* Masks may look at weights: such layers are not alike. */
const glayer *glead_like(const gcore *core, const glayer *l) {
  if (core->method->tell == NULL || l->spec.mask != NULL) return NULL;
  for (uint32_t i = 0; i < core->n_layers && core->layers[i] != l; i++) {
    const glayer *k = core->layers[i];
    if (k->like == NULL && k->arm == l->arm && k->spec.mask == NULL && same_spec(&k->spec, &l->spec))
      return k;
  }
  return NULL;
}

int32_t glead_layer(const gcore *core, const glayer *l, const bs_source *weights, const bs_source *bias,
                    bs_error *err) {
  glead *t = core->method->tell;
  if (t == NULL) return BS_OK;
  t->spec = &l->spec;
  t->arm = l->arm->name;
  t->weights = weights;
  t->bias = bias;
  t->layer = number_of(core, l);
  const glayer *like = glead_like(core, l);
  t->like = like != NULL ? number_of(core, like) : GNONE;
  t->calls_bytes = core->calls_bytes;
  return say(t, LAYER, err);
}

int32_t glead_done(glead *t, int32_t rc, bs_error *err) {
  if (t == NULL) return rc;
  const int32_t met = bs_rank_barrier(t->rank, "split.done", rc == BS_OK ? err : NULL);
  return rc != BS_OK ? rc : met;
}

static int same_desc(const graph *g, uint32_t a, uint32_t b) {
  if (a == GNONE || b == GNONE) return a == b;
  const gvalue *x = &g->values[a], *y = &g->values[b];
  return x->dtype == y->dtype && x->rank == y->rank &&
         memcmp(x->dims, y->dims, x->rank * sizeof x->dims[0]) == 0 &&
         memcmp(x->strides, y->strides, x->rank * sizeof x->strides[0]) == 0;
}

/* Their ops have the same query. */
static int same_query(const graph *g, const gnode *a, const gnode *b) {
  int same = a->op == b->op && a->n_in == b->n_in && a->n_out == b->n_out && a->activation == b->activation &&
             a->accumulate == b->accumulate && memcmp(a->attrs, b->attrs, sizeof a->attrs) == 0;
  for (uint32_t i = 0; same && i < sizeof a->numbers / sizeof a->numbers[0]; i++)
    same = a->numbers[i] == b->numbers[i];
  if (same && a->op == GOP_MAP)
    same = memcmp(&g->exprs[a->expr], &g->exprs[b->expr], sizeof g->exprs[0]) == 0;
  for (uint32_t i = 0; same && i < a->n_in; i++) same = same_desc(g, a->in[i], b->in[i]);
  for (uint32_t i = 0; same && i < a->n_out; i++) same = same_desc(g, a->out[i], b->out[i]);
  return same;
}

/* Steps with a plan of their own: layers, and products with their weights. */
static int is_alone(const graph *g, const gstep *s) {
  return s->layer != NULL || graph_is_packed(g->nodes[s->node].op) || g->nodes[s->node].weight != GNONE;
}

static int32_t find_likes(glead *t, const gbinding *b, bs_error *err) {
  uint32_t *likes = realloc(t->likes, (b->n_steps + 1u) * sizeof *likes);
  if (likes == NULL) return no_memory(err);
  t->likes = likes;
  for (uint32_t i = 0; i < b->n_steps; i++) {
    const gstep *s = &b->steps[i];
    uint32_t k = is_alone(b->g, s) ? i : 0;
    while (k < i && (is_alone(b->g, &b->steps[k]) ||
                     !same_query(b->g, &b->g->nodes[b->steps[k].node], &b->g->nodes[s->node])))
      k++;
    likes[i] = k;
  }
  return BS_OK;
}

int32_t glead_end(glead *t, const bs_session *session, bs_error *err) {
  int32_t made = session != NULL ? find_likes(t, session->bound, err) : BS_OK;
  t->session = made == BS_OK ? session : NULL;
  const int32_t rc = say(t, END, made == BS_OK ? err : NULL);
  if (made == BS_OK) made = rc;
  return rc == BS_OK ? glead_done(t, made, err) : made;
}

void glead_free(glead *t) {
  free(t->likes);
}

/* ---- an echo --------------------------------------------------------------------------------- */

int32_t gecho_open(bs_context *context, bs_rank *rank, gecho **out_echo, bs_error *err) {
  const bs_session_options options = {.struct_size = (uint32_t)sizeof options, .rank = rank};
  gecho *e = calloc(1, sizeof *e);
  if (e == NULL) return no_memory(err);
  const int32_t rc = gcore_open(context, NULL, &options, &e->core, &e->rank, err);
  if (rc != BS_OK)
    free(e);
  else
    *out_echo = e;
  return rc;
}

static void drop_steps(gecho *e) {
  for (uint32_t i = 0; i < e->n_steps; i++)
    if (e->steps[i].plan != NULL && e->steps[i].own) e->rank->api->op_release(e->steps[i].plan);
  free(e->steps);
  e->steps = NULL;
  e->n_steps = 0;
  e->of = NULL;
}

void gecho_close(gecho *e) {
  if (e == NULL) return;
  drop_steps(e);
  for (uint32_t i = 0; i < e->n_layers; i++) bs_layer_free(e->layers[i]);
  free(e->layers);
  free(e->serves);
  gcore_close(e->core, e->rank);
  free(e);
}

/* Asks the method as the lead did, which keeps the answer. That columns do not suit a pair is an answer: all
 * ranks have it. */
static int32_t ask_columns(const gecho *e, const gmethod *of, const bs_layer_spec *asked, bs_error *err) {
  gmethod mine = *of;
  const bs_layer_spec spec = *asked;
  const uint32_t *columns;
  mine.tell = NULL;
  mine.probes = NULL;
  mine.n_probes = mine.cap_probes = 0;
  const int32_t rc = gmethod_columns(&mine, e->rank->rank, &spec, &columns, err);
  for (uint32_t i = 0; i < mine.n_probes; i++) free(mine.probes[i].columns);
  free(mine.probes);
  if (rc != BS_UNSUPPORTED) return rc;
  bs_error_clear(err);
  return BS_OK;
}

/* made NULL: an earlier one serves. A layer that was there stays then: it may serve others. */
static void put_layer(gecho *e, uint32_t number, bs_layer *made, uint32_t serves) {
  if (number == e->n_layers) e->layers[e->n_layers++] = NULL;
  if (made != NULL) {
    bs_layer_free(e->layers[number]);
    e->layers[number] = made;
  }
  e->serves[number] = serves;
}

static int32_t build(gecho *e, const glead *t, bs_error *err) {
  bs_layer *made = NULL;
  if (t->layer > e->n_layers || !ARRAY_GROW(e->layers, e->n_layers, e->cap_layers) ||
      !ARRAY_GROW(e->serves, e->n_layers, e->cap_serves))
    return no_memory(err);
  if (t->like != GNONE) {
    put_layer(e, t->layer, NULL, t->like);
    return BS_OK;
  }
  int32_t rc = BS_OK;
  if (t->calls_bytes > e->core->calls_bytes) {
    rc = gdevice_take(e->core, e->rank, "the workspace of layers", t->calls_bytes, NULL,
                      &e->core->device_calls, err);
    if (rc != BS_OK) return rc;
    e->core->calls_bytes = t->calls_bytes;
  }
  if (e->core->device_calls != NULL)
    bs_rank_lend_calls(e->rank->rank, e->core->device_calls, e->core->calls_bytes);
  rc = bs_layer_build(e->rank->rank, t->arm, t->spec, t->weights, t->bias, &made, err);
  bs_rank_lend_calls(e->rank->rank, NULL, 0);
  if (rc == BS_OK) put_layer(e, t->layer, made, t->layer);
  return rc;
}

static int32_t prepare(gecho *e, const gbinding *b, uint32_t at, uint32_t like, bs_error *err) {
  const gstep *step = &b->steps[at];
  echo_step *out = &e->steps[at];
  const gnode *n = &b->g->nodes[step->node];
  gquery q;
  out->layer = GNONE;
  if (step->layer != NULL) {
    const uint32_t number = number_of(b->core, step->layer);
    out->layer = e->serves[number];
    return BS_OK;
  }
  out->own = like == at;
  if (!out->own) {
    out->plan = e->steps[like].plan;
    return BS_OK;
  }
  graph_query(b->g, n, &q);
  return graph_is_packed(n->op) ? gcore_product(e->core, e->rank, b->g, n, &q, &out->plan, err)
                                : e->rank->api->op_prepare(e->rank->rank, &q.query, NULL, &out->plan, err);
}

static int32_t bind(gecho *e, const glead *t, bs_error *err) {
  const bs_session *lead = t->session;
  const gbinding *b = lead->bound;
  if (e->of == b && e->made == lead->stats.plans_made) return BS_OK;
  drop_steps(e);
  e->steps = calloc(b->n_steps + 1u, sizeof *e->steps);
  if (e->steps == NULL) return no_memory(err);
  e->n_steps = b->n_steps;
  int32_t rc = BS_OK;
  for (uint32_t i = 0; i < b->n_steps && rc == BS_OK; i++) rc = prepare(e, b, i, t->likes[i], err);
  if (rc != BS_OK) return rc;
  e->of = b;
  e->made = lead->stats.plans_made;
  return BS_OK;
}

/* After an error the echo goes on without work, because the others wait for it. */
int32_t gecho_follow(gecho *e, const glead *t, bs_error *err) {
  int32_t rc = BS_OK;
  for (uint32_t what = 0; what != END;) {
    int32_t met = bs_rank_barrier(e->rank->rank, "split.tell", rc == BS_OK ? err : NULL);
    what = t->what;
    if (met == BS_OK) met = bs_rank_barrier(e->rank->rank, "split.read", rc == BS_OK ? err : NULL);
    if (met != BS_OK) return rc != BS_OK ? rc : met;
    if (rc == BS_OK && what == COLUMNS) rc = ask_columns(e, t->method, t->spec, err);
    if (rc == BS_OK && what == LAYER) rc = build(e, t, err);
    if (rc == BS_OK && what == END && t->session != NULL) rc = bind(e, t, err);
    met = bs_rank_barrier(e->rank->rank, "split.done", rc == BS_OK ? err : NULL);
    if (met != BS_OK) return rc != BS_OK ? rc : met;
  }
  return rc;
}

int32_t gecho_run(const gecho *e, bs_error *err) {
  int32_t rc = BS_OK;
  if (err != NULL) err->code = BS_OK;
  for (uint32_t i = 0; i < e->n_steps && rc == BS_OK; i++) {
    const echo_step *s = &e->steps[i];
    bs_tensor *const *args = e->of->steps[i].args;
    rc = s->layer != GNONE ? bs_layer_forward(e->layers[s->layer], args[0], args[3], NULL, err)
                           : bs_dispatch_run_unchecked(s->plan, args, NULL, err);
    if (rc != BS_OK) rc = gnode_failed(e->of->g, &e->of->g->nodes[e->of->steps[i].node], rc, err);
  }
  return rc;
}
