/* SPDX-License-Identifier: MIT
 * layer.c - the layers of a rank: one for each weight, bias and activation, whatever the sizes that are
 * bound. A layer takes fewer rows than it was built for, and is built again for more. */
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/memory.h"
#include "core/world/executor.h"
#include "graph/ir/arena.h"
#include "graph/run/weights.h"
#include "graph/split/echo.h"
#include "graph/split/method.h"

static int32_t no_memory(bs_error *err) {
  return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a layer");
}

static int same_spec(const bs_layer_spec *a, const bs_layer_spec *b) {
  return a->activation == b->activation && a->accumulate == b->accumulate &&
         a->x_placement == b->x_placement && a->y_placement == b->y_placement && a->has_bias == b->has_bias;
}

static bs_source source_of(gweight *weight) {
  return (bs_source){.struct_size = (uint32_t)sizeof(bs_source),
                     .dtype = weight->dtype,
                     .rows = weight->rows,
                     .cols = weight->cols,
                     .ctx = weight,
                     .read = gweight_read};
}

/* The column of the weight, as the method has it, that the rank holds at place `at`. */
static int64_t owned_column(const bs_partition *columns, int64_t at) {
  return columns == NULL                            ? at
         : columns->kind == BS_PARTITION_CONTIGUOUS ? columns->begin + at
                                                    : columns->columns[at];
}

/* The graph of a rank was cut for the r-th part of the rows of F, or for the columns that S gave its probe.
 */
static int owns_part(const bs_ownership *own, const bs_layer_spec *spec, const gnode_split *split,
                     int64_t rank, int64_t ranks) {
  const int64_t columns = own->columns != NULL ? own->columns->count : spec->K, share = spec->K / ranks;
  if (split->role == GNODE_ALONE || split->role == GNODE_S_WHOLE) return 1;
  if (split->role == GNODE_F)
    return columns == spec->K && own->row_count == spec->N / ranks && own->row_begin == rank * own->row_count;
  int same = own->row_count == spec->N && own->kept == NULL && columns == share;
  for (int64_t i = 0; i < share && same; i++) {
    const int64_t at = owned_column(own->columns, i), place = rank * share + i;
    same = split->columns.n > 0 ? bs_order_at(&split->columns, at) == place
           : split->held.n > 0  ? bs_order_at(&split->held, place) == at
                                : at == place;
  }
  return same;
}

/* Checks that the rank owns what its graph was cut for. Returns the bytes of these weights. */
static int32_t take_owned(const glayer *l, bs_layer *layer, const gnode_split *split, grank *rank,
                          uint64_t *out_bytes, bs_error *err) {
  bs_ownership own;
  const int32_t rc = bs_layer_owns(layer, &own, err);
  if (rc != BS_OK) return rc;
  const int64_t columns = own.columns != NULL ? own.columns->count : l->spec.K;
  *out_bytes = (uint64_t)own.row_count * (uint64_t)columns * BS_DTYPE_BYTES(l->spec.w_dtype);
  const uint32_t ranks = rank->api->world_size(rank->rank);
  if (ranks == 1 || owns_part(&own, &l->spec, split, rank->api->rank(rank->rank), ranks)) return BS_OK;
  bs_error_set(err, BS_UNSUPPORTED, "BS-GRAPH-SPLIT",
               "method %.60s owns other %s of a weight than a pair of methods gives this rank", l->arm->name,
               split->role == GNODE_F ? "rows" : "columns");
  bs_error_hint(err, "--method %.60s without a plus serves each product alone", l->arm->name);
  return BS_UNSUPPORTED;
}

/* The device counts the weights of a layer that another one serves. */
static int32_t take_alike(gcore *core, grank *rank, const glayer *like, uint64_t *out_bytes, bs_error *err) {
  void *unused;
  *out_bytes = like->bytes;
  return gdevice_take(core, rank, "a layer", like->bytes, NULL, &unused, err);
}

/* Builds the layer; one that it replaces is freed when the new one is there. F has the rows of its weight in
 * the order in which ranks hold them, S its columns. */
static int32_t build(gcore *core, grank *rank, const graph *g, const gnode *n, glayer *l, bs_error *err) {
  const gnode_split *split = &g->splits[n->layer - 1];
  const bs_order *rows = split->rows.n > 0 ? &split->rows : NULL,
                 *columns = split->columns.n > 0 ? &split->columns : NULL;
  bs_layer *made = NULL;
  bs_proposal proposal = {.struct_size = (uint32_t)sizeof proposal};
  bs_order_view weights, bias;
  uint64_t bytes = 0;
  const bs_source stored = source_of(&l->weight), stored_bias = source_of(&l->bias);
  const double began = bs_clock_s();
  int32_t rc = gweight_ask(g, n->weight, err);
  if (rc == BS_OK && split->bias != GNONE) rc = graph_ask(g, split->bias, err);
  if (rc == BS_OK) rc = bs_order_view_make(&stored, rows, columns, &weights, err);
  if (rc == BS_OK && split->bias != GNONE) rc = bs_order_view_make(&stored_bias, NULL, rows, &bias, err);
  if (rc == BS_OK)
    rc = bs_method_propose(rank->context, l->arm->name, &l->spec, rank->api->rank(rank->rank),
                           core->method->world_size, &proposal, err);
  if (rc == BS_OK) rc = gdevice_fits(rank, proposal.weight_bytes, "a layer of the model", err);
  if (rc != BS_OK) return rc;
  if (core->method->bits >= BS_BITS_TOKENS) bs_rank_require(rank->rank, BS_QUERY_BITS);
  void *calls = core->n_calls > 0 ? core->calls[core->n_calls - 1] : core->device_calls;
  if (calls != NULL) bs_rank_lend_calls(rank->rank, calls, core->calls_bytes);
  const glayer *like = glead_like(core, l);
  rc = glead_layer(core, l, &weights.source, split->bias != GNONE ? &bias.source : NULL, err);
  if (rc == BS_OK && like == NULL)
    rc = bs_layer_build(rank->rank, l->arm->name, &l->spec, &weights.source,
                        split->bias != GNONE ? &bias.source : NULL, &made, err);
  rc = glead_done(core->method->tell, rc, err);
  bs_rank_lend_calls(rank->rank, NULL, 0);
  bs_rank_require(rank->rank, 0);
  if (rc == BS_OK)
    rc = like != NULL ? take_alike(core, rank, like, &bytes, err)
                      : take_owned(l, made, split, rank, &bytes, err);
  if (rc != BS_OK) {
    bs_rank_set_alone(rank->rank);
    bs_layer_free(made);
    return rc;
  }
  core->pack_s += bs_clock_s() - began;
  core->packed_bytes += bytes - l->bytes;
  gweight_drop(&l->weight, NULL);
  if (like == NULL) bs_layer_free(l->layer); /* else it may serve others */
  if (like == NULL) l->layer = made;
  l->like = like;
  l->rank = rank->rank;
  l->bytes = bytes;
  return BS_OK;
}

int32_t glayer_room(gcore *core, grank *rank, const graph *g, bs_error *err) {
  uint64_t most = 0;
  for (uint32_t id = g->first; id != GNONE; id = g->nodes[id].next) {
    const gnode *n = &g->nodes[id];
    const gnode_split *split = n->layer != 0 ? &g->splits[n->layer - 1] : NULL;
    bs_proposal proposal;
    if (split == NULL) continue;
    const int32_t rc = gmethod_propose(rank->context, core->method, g, n, split->role, split->bias,
                                       rank->api->rank(rank->rank), &proposal, err);
    if (rc != BS_OK) {
      bs_rank_set_alone(rank->rank);
      return rc;
    }
    if (proposal.workspace_bytes > most) most = proposal.workspace_bytes;
  }
  if (most == 0 || most + BS_CALLS_EDGES <= core->calls_bytes) return BS_OK;
  const uint64_t bytes = (most + BS_CALLS_EDGES + 255u) & ~UINT64_C(255);
  int32_t rc = gdevice_fits(rank, bytes, "the workspace of layers", err);
  void *block = rc == BS_OK && !rank->apart ? aligned_alloc(256, bytes) : NULL;
  if (rc == BS_OK && rank->apart) {
    rc = gdevice_take(core, rank, "the workspace of layers", bytes, NULL, &core->device_calls, err);
    if (rc == BS_OK) core->calls_bytes = bytes;
    return rc;
  }
  if (rc == BS_OK && (block == NULL || !ARRAY_GROW(core->calls, core->n_calls, core->cap_calls)))
    rc = no_memory(err);
  if (rc != BS_OK) {
    free(block);
    return rc;
  }
  core->calls[core->n_calls++] = block;
  core->calls_bytes = bytes;
  return BS_OK;
}

/* The layer of these elements by the same method, which lie alike on the ranks; NULL: there is none. One
 * weight may be the F of regions whose parts differ, and the S of another one. */
static glayer *find(const gcore *core, const glayer *key, const gnode_split *split) {
  for (uint32_t i = 0; i < core->n_layers; i++) {
    glayer *l = core->layers[i];
    if (l->arm == key->arm && gweight_same(&l->weight, &key->weight) && gweight_same(&l->bias, &key->bias) &&
        same_spec(&l->spec, &key->spec) && bs_order_same(&l->rows, &split->rows) &&
        bs_order_same(&l->columns, &split->columns))
      return l;
  }
  return NULL;
}

static void layer_free(glayer *l) {
  bs_layer_free(l->layer);
  bs_order_free(&l->rows);
  bs_order_free(&l->columns);
  free(l);
}

int32_t glayer_get(gcore *core, grank *rank, const graph *g, const gnode *n, glayer **out_layer,
                   bs_error *err) {
  gquery q;
  glayer key = {.layer = NULL};
  graph_query(g, n, &q);
  key.weight = gweight_key(g, n, &q);
  const gnode_split *split = &g->splits[n->layer - 1];
  if (split->bias != GNONE) key.bias = gweight_row(g, split->bias);
  int32_t rc = gmethod_spec(core->method, g, n, split->role, split->bias, &key.arm, &key.spec, err);
  if (rc != BS_OK) return rc;
  if (key.spec.B < core->method->tokens) key.spec.B = core->method->tokens;
  glayer *l = find(core, &key, split);
  *out_layer = l;
  if (l != NULL && l->spec.B >= key.spec.B) return BS_OK;
  if (l != NULL) {
    const int64_t before = l->spec.B;
    l->spec.B = key.spec.B;
    l->weight = key.weight; /* the graph of the earlier one may be gone, with constants of its own */
    l->bias = key.bias;
    rc = build(core, rank, g, n, l, err);
    if (rc != BS_OK) l->spec.B = before;
    core->layers_again += rc == BS_OK;
    return rc;
  }
  l = malloc(sizeof *l);
  if (l == NULL || !ARRAY_GROW(core->layers, core->n_layers, core->cap_layers)) {
    free(l);
    return no_memory(err);
  }
  *l = key;
  rc = bs_order_copy(&split->rows, &l->rows, err);
  if (rc == BS_OK) rc = bs_order_copy(&split->columns, &l->columns, err);
  if (rc == BS_OK) rc = build(core, rank, g, n, l, err);
  if (rc != BS_OK) {
    layer_free(l);
    return rc;
  }
  core->layers[core->n_layers++] = l;
  *out_layer = l;
  return BS_OK;
}

int32_t glayer_propose(const gbinding *b, const gstep *step, bs_proposal *out, bs_error *err) {
  const grank *r = b->rank;
  const gnode *n = &b->g->nodes[step->node];
  const gnode_split *split = &b->g->splits[n->layer - 1];
  return gmethod_propose(r->context, b->core->method, b->g, n, split->role, split->bias,
                         r->api->rank(r->rank), out, err);
}

int32_t glayer_gather(grank *r, const bs_tensor *x, bs_tensor *out, bs_error *err) {
  const uint32_t ranks = r->api->world_size(r->rank), size = BS_DTYPE_BYTES(x->dtype);
  const int64_t rows = x->dims[0], mine = x->dims[1];
  const uint64_t n = (uint64_t)rows * (uint64_t)mine;
  unsigned char *parts = malloc(n * ranks * size + 1u), *whole = malloc(n * ranks * size + 1u);
  const bs_collective gather = {.struct_size = (uint32_t)sizeof gather,
                                .kind = BS_COLL_ALL_GATHER,
                                .dtype_in = x->dtype,
                                .dtype_out = x->dtype,
                                .rows = 1,
                                .count = n,
                                .site = "split.gather",
                                .flags = BS_COLL_CONTROL};
  int32_t rc = parts == NULL || whole == NULL ? no_memory(err) : BS_OK;
  if (rc == BS_OK) rc = bs_rank_collective_host(r->rank, &gather, x->data, n, parts, n * ranks, err);
  for (int64_t row = 0; rc == BS_OK && row < rows; row++)
    for (uint32_t k = 0; k < ranks; k++)
      memcpy(whole + ((uint64_t)row * ranks + k) * (uint64_t)mine * size,
             parts + (k * n + (uint64_t)(row * mine)) * size, (size_t)mine * size);
  free(parts);
  if (rc != BS_OK) {
    free(whole);
    return rc;
  }
  *out = *x;
  out->dims[1] = mine * ranks;
  out->strides[0] = mine * ranks;
  out->data = whole;
  return BS_OK;
}

int32_t glayer_run(const glayer *l, bs_tensor *const *args, bs_error *err) {
  const int32_t rc =
      bs_layer_forward(l->like != NULL ? l->like->layer : l->layer, args[0], args[3], NULL, err);
  if (rc != BS_OK) bs_rank_set_alone(l->rank);
  return rc;
}

void glayer_free_all(gcore *core) {
  for (uint32_t i = 0; i < core->n_layers; i++) layer_free(core->layers[i]);
  for (uint32_t i = 0; i < core->n_calls; i++) free(core->calls[i]);
  free(core->calls);
  free(core->layers);
  core->calls = NULL;
  core->layers = NULL;
  core->n_layers = core->n_calls = 0;
}
