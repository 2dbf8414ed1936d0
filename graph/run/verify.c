/* SPDX-License-Identifier: MIT
 * verify.c - compares a planned session with the graph as written. Right runs show how large the round-off
 * is: the graph as written in its own dtypes on `ref`. When that is not enough: the same in f64 with each
 * number moved by its own round-off, and the backend without a pass, where each of its nodes is right. */
#include "graph/run/verify.h"
#include "graph/run/args.h"
#include "graph/split/front.h"
#include "graph/split/method.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/deviation.h"
#include "core/base/error.h"

static int32_t no_memory(bs_error *err) {
  return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a comparison");
}

/* ---- sessions besides the planned one --------------------------------------------------------- */

/* A session for the sizes that the planned one is bound to. `o` has the other options. */
static int32_t open_beside(const bs_session *s, bs_session_options o, bs_session **out, bs_error *err) {
  const gmodel *m = s->graph->model;
  bs_dim *dims = calloc(m->n_symbols + 1u, sizeof *dims);
  const bs_dim **pointers = calloc(m->n_symbols + 1u, sizeof *pointers);
  int32_t rc = dims == NULL || pointers == NULL ? no_memory(err) : BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < m->n_symbols; i++) {
    if (s->bound->sizes[i] < 0) continue;
    dims[o.n_dims] =
        (bs_dim){.struct_size = (uint32_t)sizeof *dims, .name = m->symbols[i], .size = s->bound->sizes[i]};
    pointers[o.n_dims] = &dims[o.n_dims];
    o.n_dims++;
  }
  o.struct_size = (uint32_t)sizeof o;
  o.dims = pointers;
  if (rc == BS_OK) rc = bs_session_open(s->context, s->graph, &o, out, err);
  free(dims);
  free(pointers);
  return rc;
}

static int32_t open_written(const bs_session *s, uint32_t f64, bs_session **out, bs_error *err) {
  static const char *const all[] = {"all"};
  static const char *const x[] = {NULL, "float", "x8"};
  const bs_session_options o = {.threads = 1,
                                .backend = "ref",
                                .passes_off = all,
                                .n_passes_off = 1,
                                .f64 = f64,
                                .weights = s->weights,
                                .activations = x[s->x_bytes]};
  return open_beside(s, o, out, err);
}

int32_t gverify_beside(gverify *v, uint32_t off, bs_session **out, bs_error *err) {
  static const char *const x[] = {NULL, "float", "x8"};
  const char *names[GPASS_MAX];
  bs_session_options o = {.share = v->s, .passes_off = names, .f64 = v->s->f64};
  if (v->s->rank->inside) /* of one rank: the others do not compare */
    o = (bs_session_options){.threads = 1,
                             .backend = v->s->core->backend,
                             .passes_off = names,
                             .weights = v->s->weights,
                             .activations = x[v->s->x_bytes],
                             .tokenwise = v->s->tokenwise};
  for (uint32_t i = 0; i < GPASS_MAX && gpass_get(i) != NULL; i++)
    if (off >> i & 1u) names[o.n_passes_off++] = gpass_get(i)->name;
  return open_beside(v->s, o, out, err);
}

/* ---- inputs and states ------------------------------------------------------------------------ */

static const gvalue *port_value(const bs_session *s, uint32_t port) {
  return &s->bound->g->values[gsession_value(s, port)];
}

/* An input of the planned session for another one, whose float may be wider. */
static int32_t feed_port(gverify *v, bs_session *x, uint32_t port, bs_error *err) {
  const gvalue *from = port_value(v->s, port), *to = port_value(x, port);
  const uint64_t count = (uint64_t)graph_count(from);
  bs_tensor t = {.struct_size = (uint32_t)sizeof t, .dtype = to->dtype, .rank = to->rank};
  memcpy(t.dims, to->dims, sizeof t.dims);
  graph_dense_strides(t.rank, t.dims, t.strides);
  t.bytes = count * BS_DTYPE_BYTES(to->dtype);
  t.data = v->s->memory[port];
  if (x == v->wide && bs_dtype_is_float(from->dtype)) {
    if (v->inputs[port] == NULL) v->inputs[port] = malloc((count + 1u) * sizeof(double));
    if (v->inputs[port] == NULL) return no_memory(err);
    bs_convert(to->dtype, v->inputs[port], from->dtype, v->s->memory[port], count);
    t.data = v->inputs[port];
  }
  return bs_session_set(x, port, &t, err);
}

/* The dtype of a state in a session's graph; 0: it has none of that name. */
static uint32_t state_dtype(const bs_session *s, const char *name) {
  const graph *g = s->bound->g;
  for (uint32_t i = 0; i < g->n_values; i++)
    if (g->values[i].kind == GV_STATE && strcmp(graph_text_of(g, g->values[i].name), name) == 0)
      return g->values[i].dtype;
  return 0;
}

/* Sets the states of another session to those before the run. */
static void feed_states(const gverify *v, bs_session *x) {
  const gcore *from = v->s->core, *to = x->core;
  const unsigned char *at = v->before;
  for (uint32_t i = 0; i < from->n_states && v->length > 0; at += from->states[i++].bytes)
    for (uint32_t k = 0; k < to->n_states; k++) {
      if (strcmp(from->states[i].name, to->states[k].name) != 0) continue;
      const uint32_t a = state_dtype(v->s, from->states[i].name), b = state_dtype(x, to->states[k].name);
      if (a != 0 && b != 0)
        bs_convert(b, to->states[k].data, a, at, from->states[i].bytes / BS_DTYPE_BYTES(a));
    }
}

int32_t gverify_feed(gverify *v, bs_session *x, bs_error *err) {
  int32_t rc = BS_OK;
  for (uint32_t port = 0; rc == BS_OK && port < x->bound->g->n_inputs; port++)
    rc = feed_port(v, x, port, err);
  if (rc != BS_OK) return rc;
  if (x->core == v->s->core)
    rc = gstates_put(x->core, x->rank, v->before, err);
  else
    feed_states(v, x);
  x->core->length = v->length;
  return rc;
}

int32_t gverify_steps(gverify *v, bs_session *x, void (*each)(void *user, const gbinding *b, const gstep *s),
                      void *user, bs_error *err) {
  int64_t tokens = 0;
  (void)v;
  int32_t rc = gsession_ready(x, &tokens, err);
  if (rc == BS_OK) rc = gbinding_check(x->bound, err);
  if (rc == BS_OK) rc = each != NULL ? gflat_watch(x->bound, each, user, err) : gflat_run(x->bound, 0, err);
  return rc;
}

/* ---- the graph as written ---------------------------------------------------------------------- */

static double *element(const bs_tensor *t, uint64_t index) {
  int64_t at = 0;
  for (uint32_t d = t->rank; d-- > 0;) {
    at += (int64_t)(index % (uint64_t)t->dims[d]) * t->strides[d];
    index /= (uint64_t)t->dims[d];
  }
  return (double *)t->data + at;
}

/* A run in f64 that is watched. */
typedef struct watching {
  gverify *v;
  /* MOVE: each number is moved by its own round-off; LEAVE: IsNaN says false */
  enum { LOOK, MOVE, STRIKE, TURN, DROP, FILL, LEAVE } what;
  uint64_t state; /* of the random numbers */
} watching;

/* From -1 to 1: splitmix64. */
static double next_random(watching *w) {
  uint64_t z = w->state += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return 2 * ((double)((z ^ z >> 31) >> 11) * 0x1p-53) - 1;
}

/* Whole numbers stay: they are most often exact, as masks, counts and places are. */
static void move_number(watching *w, double unit, double *x) {
  if (!isfinite(*x) || *x == rint(*x)) return;
  *x *= 1 + 2 * unit * next_random(w);
}

/* A number that is too large for the arithmetic of the model's own dtype becomes NaN (STRIKE), its negative
 * (TURN) or 0 (DROP), so that what depends on it is known: comparisons with NaN give a number again. */
static int is_too_large(const watching *w, uint32_t dtype, double x) {
  return gnumber_too_large(dtype, x, w->v->judging.terms);
}

static void watch_number(watching *w, uint32_t dtype, double *x) {
  if (w->what == MOVE) move_number(w, bs_dtype_unit_roundoff(dtype), x);
  if (w->what == STRIKE && is_too_large(w, dtype, *x)) *x = NAN;
  if (w->what == TURN && is_too_large(w, dtype, *x)) *x = -*x;
  if (w->what == DROP && is_too_large(w, dtype, *x)) *x = 0;
  if (w->what == FILL && isnan(*x)) *x = 0;
}

/* exponential: zeros are of exponentials that vanish, which are as good as infinite when they divide. */
static void watch_output(watching *w, uint32_t value, const bs_tensor *t, int exponential) {
  const uint32_t dtype = w->v->own->bound->g->values[value].dtype;
  if (t->dtype != BS_F64 || !bs_dtype_is_float(dtype)) return;
  const uint64_t count = tensor_elements(t);
  for (uint64_t i = 0; i < count; i++) {
    double *x = element(t, i);
    if (isinf(*x) || (exponential && *x == 0)) w->v->judging.infinite = 1;
    watch_number(w, dtype, x);
  }
}

static int has_step(const gbinding *b, const gnode *n, uint8_t op) {
  const gexpr *e = n->op == GOP_MAP ? &b->g->exprs[n->expr] : NULL;
  for (uint32_t i = 0; e != NULL && i < e->n_steps; i++)
    if (e->steps[i].op == op) return 1;
  return 0;
}

/* What IsNaN says becomes false. */
static void leave_nan(const gbinding *b, const gstep *s) {
  const gnode *n = &b->g->nodes[s->node];
  const bs_tensor *t = s->args[n->n_in];
  if (has_step(b, n, BS_EXPR_ISNAN) && t->dtype == BS_BOOL && graph_is_dense(&b->g->values[n->out[0]]))
    memset(t->data, 0, tensor_elements(t));
}

static void watch_step(void *user, const gbinding *b, const gstep *s) {
  watching *w = user;
  const gnode *n = &b->g->nodes[s->node];
  const double terms = gstep_terms(b, s);
  const double part = (w->v->s->f64 ? DBL_EPSILON : FLT_EPSILON) * (64 + 8 * sqrt(terms));
  w->v->judging.part = fmax(w->v->judging.part, part);
  w->v->judging.terms = fmax(w->v->judging.terms, terms);
  for (uint32_t i = 0; i < n->n_out; i++)
    if (n->out[i] != GNONE) watch_output(w, n->out[i], s->args[n->n_in + i], has_step(b, n, BS_EXPR_EXP));
  if (w->what == LEAVE) leave_nan(b, s);
}

/* The outputs of a session that ran, each given to `take`. */
static int32_t each_output(gverify *v, const bs_session *x,
                           int32_t (*take)(gverify *v, uint32_t i, const bs_tensor *t, void *user,
                                           bs_error *err),
                           void *user, bs_error *err) {
  int32_t rc = BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < v->n_outputs; i++) {
    bs_tensor t = {.struct_size = (uint32_t)sizeof t};
    rc = bs_session_get(x, v->s->bound->g->n_inputs + i, &t, err);
    if (rc == BS_OK) rc = take(v, i, &t, user, err);
  }
  return rc;
}

static int32_t take_written(gverify *v, uint32_t i, const bs_tensor *t, void *user, bs_error *err) {
  (void)user;
  goutput_free(&v->outputs[i]);
  return goutput_init(&v->outputs[i], t, port_value(v->s, v->s->bound->g->n_inputs + i)->dtype, err);
}

static int32_t take_right(gverify *v, uint32_t i, const bs_tensor *t, void *user, bs_error *err) {
  gnumber *numbers = NULL;
  (void)user;
  const int32_t rc = gnumbers_read(t, &numbers, err);
  if (rc == BS_OK) goutput_learn(&v->outputs[i], numbers);
  free(numbers);
  return rc;
}

static int32_t take_judged(gverify *v, uint32_t i, const bs_tensor *t, void *user, bs_error *err) {
  gnumber *numbers = NULL;
  const int32_t rc = gnumbers_read(t, &numbers, err);
  if (rc == BS_OK) goutput_judge(&v->outputs[i], i, numbers, &v->judging, user);
  free(numbers);
  return rc;
}

static int32_t run_written(gverify *v, bs_error *err) {
  watching w = {.v = v};
  v->judging = (gjudging){.terms = 1};
  int32_t rc = gverify_feed(v, v->wide, err);
  if (rc == BS_OK) rc = gverify_steps(v, v->wide, watch_step, &w, err);
  if (rc == BS_OK) rc = each_output(v, v->wide, take_written, NULL, err);
  if (rc == BS_OK) rc = gverify_feed(v, v->own, err);
  if (rc == BS_OK) rc = gverify_steps(v, v->own, NULL, NULL, err);
  return rc == BS_OK ? each_output(v, v->own, take_right, NULL, err) : rc;
}

static int32_t take_struck(gverify *v, uint32_t i, const bs_tensor *t, void *user, bs_error *err) {
  gnumber *numbers = NULL;
  (void)user;
  const int32_t rc = gnumbers_read(t, &numbers, err);
  if (rc == BS_OK) goutput_strike(&v->outputs[i], numbers);
  free(numbers);
  return rc;
}

/* Whole numbers that change when NaN becomes 0. */
static int32_t take_filled(gverify *v, uint32_t i, const bs_tensor *t, void *user, bs_error *err) {
  return v->outputs[i].is_float ? BS_OK : take_struck(v, i, t, user, err);
}

/* A run more of the graph as written, in f64, whose numbers are changed; the inputs too. */
static int32_t run_changed(gverify *v, int what, uint64_t seed, bs_error *err) {
  int32_t (*take)(gverify *, uint32_t, const bs_tensor *, void *, bs_error *) = what == MOVE   ? take_right
                                                                                : what == FILL ? take_filled
                                                                                               : take_struck;
  watching w = {.v = v, .what = what, .state = seed};
  int32_t rc = gverify_feed(v, v->wide, err);
  for (uint32_t port = 0; rc == BS_OK && port < v->s->bound->g->n_inputs; port++) {
    const gvalue *in = port_value(v->s, port);
    for (int64_t i = 0; v->inputs[port] != NULL && i < graph_count(in); i++)
      watch_number(&w, in->dtype, &v->inputs[port][i]);
  }
  if (rc == BS_OK) rc = gverify_steps(v, v->wide, watch_step, &w, err);
  return rc == BS_OK ? each_output(v, v->wide, take, NULL, err) : rc;
}

int32_t gverify_judge(gverify *v, bs_session *x, gworst *out_worst, bs_error *err) {
  *out_worst = (gworst){.ratio = -1};
  v->judging.compared = v->judging.skipped = 0;
  return each_output(v, x, take_judged, out_worst, err);
}

/* ---- a run ------------------------------------------------------------------------------------- */

/* Keeps the first wrong node of the backend without a pass. */
static void keep_wrong(void *user, const bs_node_check *row) {
  bs_session *s = user;
  if (row->ok || s->verified[GVERIFIED_SERVES][0] != '\0') return;
  snprintf(s->verified[GVERIFIED_SERVES], sizeof s->verified[0], "%s", row->serves);
  snprintf(s->verified[GVERIFIED_NODE], sizeof s->verified[0], "%s", row->origin);
}

/* The backend without a pass is a right run where each of its nodes is. */
static int32_t run_plain(gverify *v, bs_error *err) {
  bs_error why = {.struct_size = (uint32_t)sizeof why};
  int32_t rc = v->plain == NULL ? gverify_beside(v, UINT32_MAX, &v->plain, err) : BS_OK;
  if (rc == BS_OK) rc = gverify_feed(v, v->plain, err);
  if (rc != BS_OK) return rc;
  rc = bs_session_check(v->plain, keep_wrong, v->s, &why);
  if (rc == BS_OK) return each_output(v, v->plain, take_right, NULL, err);
  if (rc != BS_NUMERIC && err != NULL) *err = why;
  return rc == BS_NUMERIC ? BS_OK : rc;
}

/* Attention with a mask, whose weights are 0 where they are NaN. As written, a hidden key with an infinity
 * makes all weights of a query NaN and then 0; attention does not look at the key. */
static int passes_over_nan(const gverify *v) {
  const graph *g = v->s->bound->g;
  int guards = 0, finite = 1;
  for (uint32_t i = 0; i < g->n_nodes; i++)
    guards |= g->nodes[i].op == GOP_ATTENTION && g->nodes[i].attrs[3] != 0 && g->nodes[i].in[3] != GNONE;
  for (uint32_t port = 0; guards && port < g->n_inputs; port++)
    for (int64_t i = 0; v->inputs[port] != NULL && i < graph_count(port_value(v->s, port)); i++)
      finite &= isfinite(v->inputs[port][i]) != 0;
  return guards && !finite;
}

enum { MOVED_RUNS = 3 };

/* Judges the planned run; what is beyond its bound is judged again with more right runs. */
static int32_t judge_planned(gverify *v, gworst *worst, bs_error *err) {
  int32_t rc = gverify_judge(v, v->s, worst, err);
  if (rc != BS_OK || worst->ratio <= 1) return rc;
  for (int what = STRIKE; rc == BS_OK && what <= DROP; what++) rc = run_changed(v, what, 0, err);
  if (rc == BS_OK && v->judging.infinite) rc = run_changed(v, FILL, 0, err);
  if (rc == BS_OK && passes_over_nan(v)) rc = run_changed(v, LEAVE, 0, err);
  for (uint64_t k = 1; rc == BS_OK && k <= MOVED_RUNS; k++) rc = run_changed(v, MOVE, k, err);
  if (rc == BS_OK) rc = gverify_judge(v, v->s, worst, err);
  if (rc != BS_OK || worst->ratio <= 1) return rc;
  rc = run_plain(v, err);
  return rc == BS_OK ? gverify_judge(v, v->s, worst, err) : rc;
}

static void fill_report(const gverify *v, const gworst *worst, bs_verify_report *out) {
  *out = (bs_verify_report){.ok = 1, .output = "", .pass = "", .off = "", .node = "", .serves = ""};
  out->compared = v->judging.compared;
  out->skipped = v->judging.skipped;
  if (worst->ratio < 0) return;
  const goutput *o = &v->outputs[worst->output];
  const gvalue *value = port_value(v->s, v->s->bound->g->n_inputs + worst->output);
  uint64_t index = worst->index;
  out->ok = worst->ratio <= 1;
  out->output = v->s->graph->model->outputs[worst->output].name;
  out->rank = value->rank;
  for (uint32_t d = value->rank; d-- > 0; index /= (uint64_t)value->dims[d])
    out->at[d] = (int64_t)(index % (uint64_t)value->dims[d]);
  out->value = o->is_float ? worst->value.f : (double)worst->value.i;
  out->expected = o->is_float ? o->want[worst->index].f : (double)o->want[worst->index].i;
  out->bound = worst->bound;
}

static int32_t run_and_judge(gverify *v, bs_verify_report *out, bs_error *err) {
  gworst worst;
  int32_t rc = run_written(v, err);
  if (rc == BS_OK) rc = judge_planned(v, &worst, err);
  if (rc != BS_OK) return rc;
  fill_report(v, &worst, out);
  return out->ok ? BS_OK : gverify_blame(v, out, err);
}

int32_t gverify_run(gverify *v, bs_verify_report *out_report, bs_error *err) {
  bs_verify_report report = {0};
  const uint32_t size = out_report->struct_size;
  memset(v->s->verified, 0, sizeof v->s->verified);
  free(v->before);
  free(v->after);
  v->before = v->after = NULL;
  v->length = v->s->core->length;
  if (v->length > 0 && v->s->core->method != NULL && v->s->core->method->n_arms > 1) {
    bs_error_set(err, BS_UNSUPPORTED, "BS-GRAPH-SPLIT",
                 "the cache is split over the ranks: a comparison begins with an empty one");
    bs_error_hint(err, "bs_session_cache(session, 0) empties it");
    return BS_UNSUPPORTED;
  }
  int32_t rc = gstates_keep(v->s->core, v->s->rank, &v->before, err);
  const uint32_t compares = gsession_compare_ranks(v->asked, 1);
  if (rc == BS_OK) rc = bs_session_run(v->asked, err);
  gsession_compare_ranks(v->asked, compares);
  if (rc == BS_NUMERIC) { /* the ranks differ from each other */
    const bs_verify_report none = {size,      .value = NAN, .output = "", .pass = "",
                                   .off = "", .node = "",   .serves = ""};
    memcpy(out_report, &none, size < sizeof none ? size : sizeof none);
  }
  if (rc == BS_OK) rc = gstates_keep(v->s->core, v->s->rank, &v->after, err);
  if (rc != BS_OK) return rc;
  const int64_t length = v->s->core->length;
  rc = run_and_judge(v, &report, err);
  /* other sessions share the cache */
  const int32_t put = gstates_put(v->s->core, v->s->rank, v->after, rc == BS_OK ? err : NULL);
  if (rc == BS_OK) rc = put;
  v->s->core->length = length;
  report.struct_size = size;
  memcpy(out_report, &report, size < sizeof report ? size : sizeof report);
  return rc;
}

int32_t gverify_open(bs_session *s, gverify **out_verify, bs_error *err) {
  gverify *v = calloc(1, sizeof *v);
  if (v == NULL) return no_memory(err);
  v->asked = s;
  s = v->s = gsession_lead(s);
  v->n_outputs = s->bound->g->n_outputs;
  v->outputs = calloc(v->n_outputs + 1u, sizeof *v->outputs);
  v->inputs = calloc(s->bound->g->n_inputs + 1u, sizeof *v->inputs);
  int32_t rc = v->outputs == NULL || v->inputs == NULL ? no_memory(err) : BS_OK;
  if (rc == BS_OK) rc = open_written(s, 1, &v->wide, err);
  if (rc == BS_OK) rc = open_written(s, 0, &v->own, err);
  if (rc != BS_OK) {
    gverify_close(v);
    return rc;
  }
  *out_verify = v;
  return BS_OK;
}

void gverify_close(gverify *v) {
  if (v == NULL) return;
  for (uint32_t i = 0; i < v->n_outputs && v->outputs != NULL; i++) goutput_free(&v->outputs[i]);
  for (uint32_t i = 0; i < v->s->bound->g->n_inputs && v->inputs != NULL; i++) free(v->inputs[i]);
  bs_session_close(v->plain);
  bs_session_close(v->own);
  bs_session_close(v->wide);
  free(v->outputs);
  free(v->inputs);
  free(v->before);
  free(v->after);
  free(v);
}

BS_API int32_t bs_session_verify(bs_session *s, bs_verify_report *out_report, bs_error *err) {
  static const char function[] = "bs_session_verify";
  if (s == NULL || out_report == NULL) return gargs_null(function, "session and out_report", err);
  if (gargs_size(function, "bs_verify_report", out_report->struct_size, err) != BS_OK)
    return BS_INVALID_ARGUMENT;
  if (s->graph->model->slots > 0) {
    bs_error_set(err, BS_UNSUPPORTED, "BS-GRAPH-SLOT", "a graph with slots is not compared with itself");
    bs_error_hint(err, "open the graph without slots for this");
    return BS_UNSUPPORTED;
  }
  gverify *v = NULL;
  int32_t rc = s->front != NULL ? gfront_leads(s->front, err) : BS_OK;
  if (rc == BS_OK) rc = gdevice_has_values(gsession_lead(s)->rank, "a comparison of outputs", err);
  if (rc == BS_OK) rc = gverify_open(s, &v, err);
  if (rc == BS_OK) rc = gverify_run(v, out_report, err);
  gverify_close(v);
  return rc;
}
