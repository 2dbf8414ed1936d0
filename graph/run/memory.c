/* SPDX-License-Identifier: MIT
 * memory.c - where the values of a binding lie: lifetimes of the graph's values for the planner, its offsets
 * back into the tensors. */
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "graph/run/run.h"

/* Bytes from a view's first element to the end of its last one. */
static uint64_t reach_bytes(const gvalue *v) {
  int64_t last = 0;
  if (graph_count(v) == 0) return 0;
  for (uint32_t d = 0; d < v->rank; d++) last += (v->dims[d] - 1) * v->strides[d];
  return (uint64_t)(last + 1) * BS_DTYPE_BYTES(v->dtype);
}

static int same_layout(const gvalue *a, const gvalue *b) {
  if (a->rank != b->rank || a->dtype != b->dtype) return 0;
  for (uint32_t d = 0; d < a->rank; d++)
    if (a->dims[d] != b->dims[d] || (a->dims[d] > 1 && a->strides[d] != b->strides[d])) return 0;
  return 1;
}

/* Which inputs a step may overwrite exactly with output `out`: of ops that read each element before they
 * write the one at its place, inputs with the output's layout whose memory no other argument reads. */
static void overwritable(const graph *g, const gnode *n, uint32_t out, gplan_value *life) {
  const uint32_t count = n->op == GOP_MAP ? n->n_in : n->op == GOP_NORMALIZE ? 2 : n->op == GOP_PUT ? 1 : 0;
  for (uint32_t i = 0; i < count && life->n_over < GPLAN_MAX_OVER; i++) {
    if (n->in[i] == GNONE || !same_layout(&g->values[n->in[i]], &g->values[n->out[out]])) continue;
    int alone = 1;
    for (uint32_t k = 0; k < n->n_in && alone; k++)
      alone = k == i || n->in[k] == GNONE || n->in[k] == n->in[i] ||
              g->values[n->in[k]].base != g->values[n->in[i]].base;
    for (uint32_t k = 0; k < life->n_over && alone; k++) alone = life->over[k] != n->in[i];
    if (alone) life->over[life->n_over++] = n->in[i];
  }
}

static void read_at(gplan_value *v, uint32_t step) {
  if (v->last < step) v->last = step;
}

/* Steps of all values; values that no node writes are outside. */
static void fill_lives(const gbinding *b, gplan_value *lives) {
  const graph *g = b->g;
  for (uint32_t i = 0; i < g->n_values; i++)
    lives[i] = (gplan_value){.inside = GPLAN_NONE, .flags = GPLAN_OUTSIDE, .def = UINT32_MAX};
  uint32_t step = 0;
  for (uint32_t id = g->first; id != GNONE; id = g->nodes[id].next, step++) {
    const gnode *n = &g->nodes[id];
    for (uint32_t k = 0; k < n->n_out; k++) {
      if (n->out[k] == GNONE) continue;
      gplan_value *v = &lives[n->out[k]], *root = &lives[g->values[n->out[k]].base];
      if (v->def > step) v->def = v->last = step;
      if (root->def > step) root->def = root->last = step;
      read_at(v, step);
      read_at(root, step);
      if (g->values[n->out[k]].kind != GV_VIEW) overwritable(g, n, k, v);
    }
    for (uint32_t k = 0; k < n->n_in; k++)
      if (n->in[k] != GNONE) {
        gplan_value *v = &lives[n->in[k]];
        if (v->def == UINT32_MAX) v->def = lives[g->values[n->in[k]].base].def;
        read_at(v, step);
      }
  }
  for (uint32_t i = 0; i < g->n_values; i++) {
    gplan_value *v = &lives[i];
    const gvalue *value = &g->values[i], *root = &g->values[value->base];
    if (root->kind != GV_TEMP || v->def == UINT32_MAX) {
      *v = (gplan_value){.inside = GPLAN_NONE, .flags = GPLAN_OUTSIDE};
      continue;
    }
    v->flags = value->kind == GV_TEMP && value->flags & GV_OUTPUT ? GPLAN_KEPT : 0;
    if (value->kind == GV_VIEW) {
      v->inside = value->base;
      v->offset = (uint64_t)value->offset * BS_DTYPE_BYTES(value->dtype);
      v->bytes = reach_bytes(value);
      if (v->bytes == 0) v->offset = 0;
    } else {
      v->bytes = graph_bytes(value);
    }
  }
}

int32_t gbinding_plan(gbinding *b, bs_error *err) {
  const double began = bs_clock_s();
  const uint32_t n = b->g->n_values;
  b->lives = calloc(n + 1u, sizeof *b->lives);
  b->place = calloc(n + 1u, sizeof *b->place);
  if (b->lives == NULL || b->place == NULL)
    return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a plan");
  fill_lives(b, b->lives);
  int32_t rc = gplan_life_make(b->lives, n, NULL, b->n_steps, &b->life, err);
  if (rc != BS_OK) return rc;
  uint64_t *offsets = calloc(b->life.n_blocks + 1u, sizeof *offsets);
  if (offsets == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a plan");
  const gplan_options options = {.exact_steps = GPLAN_EXACT_STEPS};
  gplan_arena arena = {0};
  rc = gplan_place(b->life.blocks, b->life.n_blocks, &options, offsets, &arena, err);
  if (rc == BS_OK)
    rc = gplan_check(b->life.blocks, b->life.n_blocks, GPLAN_ALIGNMENT, offsets, arena.bytes, err);
  for (uint32_t i = 0; i < n && rc == BS_OK; i++) {
    const uint32_t block = b->life.block[i];
    b->place[i] = block != GPLAN_NONE ? offsets[block] + b->life.at[i] : 0;
  }
  free(offsets);
  if (rc != BS_OK) return rc;
  b->arena_bytes = arena.bytes;
  gplan_report_make(b->lives, &b->life, &arena, &b->report);
  b->plan_s = bs_clock_s() - began;
  return BS_OK;
}

/* 1: the plan of the largest sizes holds for these. The same values are in the same memory at the same time,
 * and no value is larger. */
static int life_holds(const gplan_life *all, const gplan_life *now) {
  int holds = all->n_blocks == now->n_blocks &&
              memcmp(all->block, now->block, all->n_values * sizeof *all->block) == 0 &&
              memcmp(all->over, now->over, all->n_values * sizeof *all->over) == 0;
  for (uint32_t i = 0; holds && i < all->n_blocks; i++)
    holds = all->blocks[i].lower == now->blocks[i].lower && all->blocks[i].upper == now->blocks[i].upper &&
            now->blocks[i].bytes <= all->blocks[i].bytes;
  return holds;
}

int32_t gbinding_same_life(const gbinding *b, bs_error *err) {
  gplan_life now = {0};
  gplan_value *lives = calloc(b->g->n_values + 1u, sizeof *lives);
  if (lives == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a plan");
  fill_lives(b, lives);
  int32_t rc = gplan_life_make(lives, b->g->n_values, NULL, b->n_steps, &now, err);
  if (rc == BS_OK && !life_holds(&b->life, &now))
    rc = bs_error_set(err, BS_UNSUPPORTED, "BS-GRAPH-BUCKET", "the sizes change which values share memory");
  gplan_life_free(&now);
  free(lives);
  return rc;
}
