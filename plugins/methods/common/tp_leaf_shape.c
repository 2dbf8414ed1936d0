/* SPDX-License-Identifier: MIT
 *
 * tp_leaf_shape.c - the leaves of a reproducible sum (R3, R4). A mask cuts K into what 8 ranks would own: the
 * 8 leaves, in an order such that the columns that 1, 2, 4 or 8 ranks own are aligned runs of them. Each leaf
 * is summed by itself, the leaves are joined by one binary tree: the bits do not depend on who owns which
 * run. Pure: propose and build both start here.
 */
#include "tp_mixed.h"
#include "tp_tree.h"

int32_t tp_leaf_mask(const tp_traits *traits, const bs_layer_spec *spec, bs_mask *out_mask, bs_error *err) {
  if (spec->mask == NULL && traits->choose_mask != NULL) return traits->choose_mask(spec, out_mask, err);
  memset(out_mask, 0, sizeof *out_mask);
  out_mask->struct_size = (uint32_t)sizeof *out_mask;
  out_mask->kind = BS_MASK_CONTIGUOUS;
  out_mask->name = "contiguous";
  if (spec->mask == NULL) return BS_OK;
  *out_mask = *spec->mask;
  const uint32_t kind = out_mask->kind;
  const int uneven = kind == BS_MASK_UNEVEN || (kind == BS_MASK_IMPORTANCE && out_mask->n_shares > 0);
  if (!uneven && (kind <= BS_MASK_INTERLEAVE || kind == BS_MASK_IMPORTANCE)) return BS_OK;
  bs_fail(err, BS_UNSUPPORTED, "BS-METHOD-REPRO", "method %s: mask %s has no 8 leaves for repro=R%u: %s",
          traits->name, out_mask->name != NULL ? out_mask->name : "given", tp_repro_asked(spec),
          uneven ? "its shares belong to one number of ranks" : "it keeps other columns in other rows");
  return bs_fail_hint(err, "contiguous, interleave, complement and importance masks have"), BS_UNSUPPORTED;
}

/* Reversed bits below `world`, a power of two. */
static uint32_t reversed(uint32_t place, uint32_t world) {
  uint32_t rank = 0;
  for (uint32_t bit = 1; bit < world; bit *= 2, place /= 2) rank = 2 * rank + place % 2;
  return rank;
}

/* Runs keep their order. A pattern's slices lie side by side: even ranks have those of a, odd ones of b.
 * Every second column of every second one is every fourth: the order of a bit reversal. */
uint32_t tp_leaf_rank(uint32_t mask_kind, uint32_t place, uint32_t world) {
  if (world < 2) return 0;
  if (mask_kind == BS_MASK_INTERLEAVE) return reversed(place, world);
  if (mask_kind != BS_MASK_COMPLEMENT) return place;
  return place < world / 2 ? 2 * place : 2 * (place - world / 2) + 1;
}

static int64_t column(const bs_partition *p, int64_t i) {
  return p->kind == BS_PARTITION_GATHER ? (int64_t)p->columns[i] : p->begin + i;
}

bs_partition *tp_partition_new(const tp_state *state, int64_t total, int64_t count) {
  const bs_host *host = state->host;
  bs_partition *p = host->alloc(host->ctx, sizeof *p + (uint64_t)count * sizeof(uint32_t), 16);
  if (p == NULL) return NULL;
  memset(p, 0, sizeof *p);
  p->struct_size = (uint32_t)sizeof *p;
  p->kind = BS_PARTITION_GATHER;
  p->total = total;
  p->count = count;
  p->columns = (uint32_t *)(void *)(p + 1);
  return p;
}

void tp_partition_free(const tp_state *state, const bs_partition *partition) {
  if (partition != NULL) state->host->free(state->host->ctx, (void *)(uintptr_t)partition);
}

static int32_t no_memory(const tp_state *state, bs_error *err) {
  return bs_fail(err, BS_NO_MEMORY, "BS-METHOD-MEMORY", "method %s: no memory for its columns",
                 state->traits->name);
}

void tp_partition_settle(bs_partition *p) {
  for (int64_t i = 1; i < p->count; i++)
    if (p->columns[i] != p->columns[i - 1] + 1) return;
  p->begin = p->count > 0 ? (int64_t)p->columns[0] : 0;
  p->kind = BS_PARTITION_CONTIGUOUS;
  p->columns = NULL;
  p->period = p->pattern_bits = 0;
  p->span = 0;
}

/* Leaf `place` of the tree, as columns of K. */
static int32_t leaf_of(const tp_state *state, const bs_layer_spec *spec, int64_t K, uint32_t place,
                       const bs_partition **out, bs_error *err) {
  bs_mask mask;
  const int32_t rc = tp_leaf_mask(state->traits, spec, &mask, err);
  if (rc != BS_OK) return rc;
  return state->host->partition_make(&mask, K, tp_leaf_rank(mask.kind, place, TP_LEAVES), TP_LEAVES, out,
                                     err);
}

int32_t tp_own_columns(const tp_state *state, tp_shape *s, const uint8_t *mark, bs_error *err) {
  bs_partition *own = tp_partition_new(state, s->K, s->k_own);
  if (own == NULL) return no_memory(state, err);
  uint32_t *list = (uint32_t *)(void *)(own + 1);
  for (int64_t k = 0, n = 0; k < s->K; k++)
    if (mark[k]) list[n++] = (uint32_t)k;
  tp_partition_settle(own);
  s->cols = own;
  s->own_cols = 1;
  return BS_OK;
}

static int32_t take_leaves(const tp_state *state, const bs_layer_spec *spec, tp_shape *s, uint8_t *mark,
                           bs_error *err) {
  s->k_own = s->k_mul = 0;
  for (uint32_t i = 0; i < s->leaves; i++) {
    const bs_partition *leaf = NULL;
    const int32_t rc = leaf_of(state, spec, s->K, s->place * s->leaves + i, &leaf, err);
    if (rc != BS_OK) return rc;
    for (int64_t j = 0; j < leaf->count; j++) mark[column(leaf, j)] = 1;
    s->leaf_width[i] = leaf->count > 0 ? leaf->count : i == 0;
    if (state->traits->full_width && s->leaf_width[i] > 0 && s->K > 0) s->leaf_width[i] = s->K;
    s->k_own += leaf->count;
    s->k_mul += s->leaf_width[i];
    state->host->partition_free(leaf);
  }
  if (state->traits->full_width) s->k_mul = s->leaf_width[0]; /* one packed weight */
  return s->split == BS_SPLIT_K ? tp_own_columns(state, s, mark, err) : BS_OK;
}

static void finish(const bs_layer_spec *spec, tp_shape *s) {
  s->product_dtype = s->reduce_dtype;
  s->after = spec->activation;
  s->own_sums = s->after != BS_ACT_NONE && (spec->flags & BS_LAYER_BACKWARD) != 0;
  s->tree_way = TP_TREE_HERE;
  if (s->split != BS_SPLIT_K) return;
  s->tree_way = tp_tree_way(s->world, spec->y_placement == BS_SPLIT);
  if (spec->y_placement == BS_SPLIT) tp_share(s->N, s->rank, s->world, &s->y_begin, &s->y_cols);
}

int32_t tp_leaf_shape_make(const tp_state *state, const bs_layer_spec *spec, tp_shape *s, bs_error *err) {
  const bs_host *host = state->host;
  bs_mask mask;
  int32_t rc = tp_leaf_mask(state->traits, spec, &mask, err);
  if (rc != BS_OK) return rc;
  s->leaves = s->split == BS_SPLIT_K ? TP_LEAVES / s->world : TP_LEAVES;
  for (uint32_t p = 0; s->split == BS_SPLIT_K && p < s->world; p++)
    if (tp_leaf_rank(mask.kind, p, s->world) == s->rank) s->place = p;
  uint8_t *mark = host->alloc(host->ctx, (uint64_t)s->K + 1, 16);
  if (mark == NULL) return no_memory(state, err);
  memset(mark, 0, (size_t)s->K + 1);
  rc = take_leaves(state, spec, s, mark, err);
  host->free(host->ctx, mark);
  if (rc != BS_OK) return rc;
  s->x_cols = spec->x_placement == BS_SPLIT ? s->k_own : s->K;
  finish(spec, s);
  return BS_OK;
}

int32_t tp_leaf_places(const tp_state *state, const bs_partition *leaf, const bs_partition *own,
                       bs_partition **out, bs_error *err) {
  bs_partition *p = tp_partition_new(state, own->count, leaf->count);
  if (p == NULL) return no_memory(state, err);
  uint32_t *list = (uint32_t *)(void *)(p + 1);
  for (int64_t i = 0, j = 0; i < leaf->count; j++) /* both ascend */
    if (column(own, j) == column(leaf, i)) list[i++] = (uint32_t)j;
  tp_partition_settle(p);
  *out = p;
  return BS_OK;
}

static int32_t copy(const tp_state *state, const bs_partition *leaf, bs_partition **out, bs_error *err) {
  bs_partition *p = tp_partition_new(state, leaf->total, leaf->count);
  if (p == NULL) return no_memory(state, err);
  uint32_t *list = (uint32_t *)(void *)(p + 1);
  for (int64_t i = 0; i < leaf->count; i++) list[i] = (uint32_t)column(leaf, i);
  p->period = leaf->period;
  p->pattern_bits = leaf->pattern_bits;
  p->begin = leaf->begin;
  p->span = leaf->span;
  tp_partition_settle(p);
  *out = p;
  return BS_OK;
}

int32_t tp_leaf_columns(const tp_state *state, const bs_layer_spec *spec, const tp_shape *s, uint32_t i,
                        bs_partition **out, bs_error *err) {
  const bs_partition *leaf = NULL;
  const int32_t rc = leaf_of(state, spec, s->K, s->place * s->leaves + i, &leaf, err);
  if (rc != BS_OK) return rc;
  const int local = spec->x_placement == BS_SPLIT && s->cols != NULL;
  const int32_t made = local ? tp_leaf_places(state, leaf, s->cols, out, err) : copy(state, leaf, out, err);
  state->host->partition_free(leaf);
  return made;
}
