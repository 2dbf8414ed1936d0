/* SPDX-License-Identifier: MIT
 * folded.c - constants that are computed, one entry for each program and inputs. Sessions and shapes of one
 * model have an entry in common, at one address for as long as the model lives: weights that were packed from
 * it are found again. When every session has packed its weights, large entries that no node reads give their
 * bytes back; what asks for them has them computed again. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/base/error.h"
#include "core/base/memory.h"
#include "graph/ir/arena.h"
#include "graph/run/run.h"

/* One node over constants, as a graph of its own. */
struct gfolded {
  graph *recipe;
  unsigned char *data[GNODE_OUT];
  uint64_t bytes[GNODE_OUT];
  uint32_t live;      /* the bytes are there */
  uint32_t users;     /* graphs of bindings that have a value of it */
  uint32_t arguments; /* nodes of these that read one */
  uint32_t kept;      /* a weight was packed from it, or another entry is computed from it */
};

enum { LARGE = 64 << 10 }; /* bytes from which on pages are given back */

static const gnode *node_of(const gfolded *e) {
  return &e->recipe->nodes[e->recipe->first];
}

static gfolded *find_data(const gfold *f, const void *data) {
  for (uint32_t i = 0; i < f->n_entries; i++)
    for (uint32_t k = 0; k < GNODE_OUT; k++)
      if (f->entries[i]->data[k] == data && data != NULL) return f->entries[i];
  return NULL;
}

static void *data_new(uint64_t bytes) {
  if (bs_memory_fits(bytes, "BS-GRAPH-MEMORY", "constants", NULL) != BS_OK) return NULL;
  if (bytes < LARGE) {
    void *small = aligned_alloc(64, ((size_t)bytes + 64u) & ~(size_t)63u);
    return small != NULL ? memset(small, 0, (size_t)bytes) : NULL;
  }
  void *data = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return data != MAP_FAILED ? data : NULL;
}

static void entry_free(gfolded *e) {
  for (uint32_t k = 0; k < GNODE_OUT; k++)
    if (e->data[k] != NULL && e->bytes[k] >= LARGE)
      munmap(e->data[k], (size_t)e->bytes[k]);
    else
      free(e->data[k]);
  graph_free(e->recipe);
  free(e);
}

/* ---- what an entry is of ---------------------------------------------------------------------- */

static int same_layout(const gvalue *a, const gvalue *b) {
  int same = a->dtype == b->dtype && a->rank == b->rank && a->offset == b->offset;
  for (uint32_t d = 0; d < a->rank && same; d++)
    same = a->dims[d] == b->dims[d] && a->strides[d] == b->strides[d];
  return same;
}

/* The same elements of the same constant: by its place, or by its bytes where they are the graph's own. */
static int same_input(const graph *recipe, uint32_t a, const graph *g, uint32_t b) {
  if (a == GNONE || b == GNONE) return a == b;
  const gvalue *x = &recipe->values[recipe->values[a].base], *y = &g->values[g->values[b].base];
  if (!same_layout(&recipe->values[a], &g->values[b]) || !same_layout(x, y)) return 0;
  if (!graph_owns(g, y->data)) return x->data == y->data;
  return graph_owns(recipe, x->data) && memcmp(x->data, y->data, (size_t)graph_bytes(x)) == 0;
}

static int same_numbers(const double *a, const double *b, size_t n) {
  for (size_t i = 0; i < n; i++) {
    uint64_t x, y; /* bits: NaN is NaN, and -0 is not 0 */
    memcpy(&x, &a[i], sizeof x);
    memcpy(&y, &b[i], sizeof y);
    if (x != y) return 0;
  }
  return 1;
}

static int is_of(const gfolded *e, const graph *g, const gnode *n) {
  const gnode *r = node_of(e);
  if (r->op != n->op || r->n_in != n->n_in || r->n_out != n->n_out || r->activation != n->activation ||
      r->accumulate != n->accumulate || memcmp(r->attrs, n->attrs, sizeof r->attrs) != 0 ||
      !same_numbers(r->numbers, n->numbers, sizeof r->numbers / sizeof r->numbers[0]) ||
      (n->op == GOP_MAP && memcmp(&e->recipe->exprs[r->expr], &g->exprs[n->expr], sizeof *g->exprs) != 0))
    return 0;
  for (uint32_t i = 0; i < n->n_out; i++) {
    if (r->out[i] == GNONE || n->out[i] == GNONE
            ? r->out[i] != n->out[i]
            : !same_layout(&e->recipe->values[r->out[i]], &g->values[n->out[i]]))
      return 0;
  }
  for (uint32_t i = 0; i < n->n_in; i++)
    if (!same_input(e->recipe, r->in[i], g, n->in[i])) return 0;
  return 1;
}

static int32_t copy_input(gfold *f, gfolded *e, const graph *g, uint32_t from, uint32_t *out_value,
                          bs_error *err) {
  const gvalue *v = &g->values[from], *root = &g->values[v->base];
  const void *data = root->data;
  if (graph_owns(g, data)) {
    void *own = graph_data(e->recipe, graph_bytes(root));
    if (own == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a constant");
    data = memcpy(own, data, (size_t)graph_bytes(root));
  }
  gfolded *of = find_data(f, data);
  if (of != NULL) of->kept = 1;
  int32_t rc =
      graph_add_root(e->recipe, GV_CONST, root->dtype, root->rank, root->dims, data, NULL, out_value, err);
  if (rc == BS_OK && v->kind == GV_VIEW)
    rc = graph_add_view(e->recipe, *out_value, v->dtype, v->rank, v->dims, v->strides, v->offset, out_value,
                        err);
  return rc;
}

static int32_t make_recipe(gfold *f, gfolded *e, const graph *g, const gnode *node, bs_error *err) {
  gnode n = *node;
  int32_t rc = graph_new(&e->recipe, err);
  n.origin = GNONE;
  for (uint32_t o = node->origin; o != GNONE && rc == BS_OK; o = g->origins[o].next)
    n.origin = graph_origin(e->recipe, graph_text_of(g, g->origins[o].text), n.origin);
  for (uint32_t i = 0; i < n.n_in && rc == BS_OK; i++)
    if (n.in[i] != GNONE) rc = copy_input(f, e, g, n.in[i], &n.in[i], err);
  for (uint32_t i = 0; i < n.n_out && rc == BS_OK; i++) {
    if (n.out[i] == GNONE) continue;
    const gvalue *v = &g->values[n.out[i]];
    e->bytes[i] = graph_bytes(v);
    e->data[i] = data_new(e->bytes[i]);
    if (e->data[i] == NULL)
      rc = bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a constant");
    if (rc == BS_OK)
      rc = graph_add_root(e->recipe, GV_TEMP, v->dtype, v->rank, v->dims, NULL, NULL, &n.out[i], err);
  }
  if (rc == BS_OK && n.op == GOP_MAP) n.expr = graph_expr(e->recipe, &g->exprs[n.expr]);
  return rc == BS_OK ? graph_add_node(e->recipe, &n, GNONE, NULL, err) : rc;
}

/* ---- their bytes ------------------------------------------------------------------------------ */

static int32_t compute(gfold *f, gfolded *e, bs_error *err) {
  const gnode *n = node_of(e);
  void *data[GNODE_OUT];
  int32_t rc = BS_OK;
  for (uint32_t i = 0; i < n->n_in && rc == BS_OK && !e->live; i++) {
    const graph *r = e->recipe;
    gfolded *of = n->in[i] != GNONE ? find_data(f, r->values[r->values[n->in[i]].base].data) : NULL;
    if (of != NULL) rc = compute(f, of, err);
  }
  for (uint32_t k = 0; k < GNODE_OUT; k++) data[k] = e->data[k];
  if (rc == BS_OK && !e->live) rc = gfold_run_locked(f, e->recipe, n, data, err);
  if (rc == BS_OK) e->live = 1;
  return rc;
}

static void drop(gfolded *e) {
  for (uint32_t k = 0; k < GNODE_OUT; k++) {
    if (e->data[k] == NULL || e->bytes[k] < LARGE) continue;
    e->live = 0;
    madvise(e->data[k], (size_t)e->bytes[k], MADV_DONTNEED);
  }
}

/* A graph that no session binds any more is freed. A constant that no node reads gives its bytes back. */
static void sweep(gfold *f) {
  if (f->binders > 0) return;
  uint32_t left = 0;
  for (uint32_t i = 0; i < f->n_entries; i++) {
    gfolded *e = f->entries[i];
    if (e->users == 0 && !e->kept) {
      entry_free(e);
      continue;
    }
    if (e->arguments == 0 && e->live) drop(e);
    f->entries[left++] = e;
  }
  f->n_entries = left;
}

int32_t gfold_constant(void *fold, const graph *g, const gnode *node, void **out_data, bs_error *err) {
  gfold *f = fold;
  gfolded *e = NULL;
  int32_t rc = BS_OK;
  pthread_mutex_lock(&f->lock);
  for (uint32_t i = 0; i < f->n_entries && e == NULL; i++)
    if (is_of(f->entries[i], g, node)) e = f->entries[i];
  if (e == NULL) {
    e = calloc(1, sizeof *e);
    rc = e == NULL || !ARRAY_GROW(f->entries, f->n_entries, f->cap_entries)
             ? bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a constant")
             : make_recipe(f, e, g, node, err);
    if (rc == BS_OK) rc = compute(f, e, err);
    if (rc == BS_OK) f->entries[f->n_entries++] = e;
    if (rc != BS_OK && e != NULL) entry_free(e);
  }
  for (uint32_t k = 0; k < GNODE_OUT && rc == BS_OK; k++) out_data[k] = e->data[k];
  pthread_mutex_unlock(&f->lock);
  return rc;
}

int32_t gfold_ask(void *fold, const void *data, bs_error *err) {
  gfold *f = fold;
  pthread_mutex_lock(&f->lock);
  gfolded *e = find_data(f, data);
  const int32_t rc = e != NULL ? compute(f, e, err) : BS_OK;
  pthread_mutex_unlock(&f->lock);
  return rc;
}

int gfold_has(void *fold, const void *data) {
  gfold *f = fold;
  pthread_mutex_lock(&f->lock);
  const int has = find_data(f, data) != NULL;
  pthread_mutex_unlock(&f->lock);
  return has;
}

void gfold_enter(gfold *f) {
  pthread_mutex_lock(&f->lock);
  f->binders++;
  pthread_mutex_unlock(&f->lock);
}

void gfold_leave(gfold *f) {
  pthread_mutex_lock(&f->lock);
  f->binders--;
  sweep(f);
  pthread_mutex_unlock(&f->lock);
}

static void keep_weight(const gfold *f, const graph *g, uint32_t weight) {
  const gvalue *root = &g->values[g->values[weight].base];
  gfolded *e = find_data(f, root->data);
  if (e != NULL) e->kept = 1;
  if (!(root->flags & GV_JOINED)) return;
  const gjoin *join = root->data;
  for (uint32_t i = 0; i < join->n; i++) keep_weight(f, g, join->parts[i]);
}

void gfold_hold(gfold *f, const graph *g, int by) {
  pthread_mutex_lock(&f->lock);
  for (uint32_t i = 0; i < g->n_values && f->n_entries > 0; i++) {
    gfolded *e = g->values[i].kind == GV_CONST ? find_data(f, g->values[i].data) : NULL;
    if (e != NULL) e->users += (uint32_t)by;
  }
  for (uint32_t id = g->first; id != GNONE && f->n_entries > 0; id = g->nodes[id].next) {
    const gnode *n = &g->nodes[id];
    for (uint32_t k = 0; k < n->n_in; k++) {
      gfolded *e = n->in[k] != GNONE ? find_data(f, g->values[g->values[n->in[k]].base].data) : NULL;
      if (e != NULL) e->arguments += (uint32_t)by;
    }
    if (n->weight != GNONE) keep_weight(f, g, n->weight);
  }
  sweep(f);
  pthread_mutex_unlock(&f->lock);
}

void gfolded_free(gfold *f) {
  for (uint32_t i = 0; i < f->n_entries; i++) entry_free(f->entries[i]);
  free(f->entries);
}
