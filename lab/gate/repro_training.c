/* SPDX-License-Identifier: MIT
 * repro_training.c - gate R3 of phases 2 and 3, see repro.h: the same gradients, and the same weights after
 * three steps, on 1, 2, 4 and 8 ranks. Each other number of ranks is one more run of the case. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/case/gradient.h"
#include "lab/case/owners.h"
#include "lab/error.h"
#include "lab/gate/repro.h"

enum { STEPS = 3 };

/* The numbers of ranks to compare with, without the case's. Ranks that are processes, or that a topology
 * names, cannot become more: they are compared with one. */
static uint32_t others_of(const bs_case *c, uint32_t out_worlds[4]) {
  const uint32_t most = c->peers || c->topology ? 1 : 8;
  uint32_t n = 0;
  for (uint32_t P = 1; P <= most; P *= 2)
    if (P != c->world_size) out_worlds[n++] = P;
  return n;
}

static bs_case other_of(const bs_case *c, uint32_t world) {
  bs_case other = *c;
  other.world_size = world;
  other.warmup = 0;
  other.iterations = 1;
  other.hook = NULL;
  other.fault = NULL;
  other.gate = "R3";
  return other;
}

static void settle(bs_gate *gate, const bs_case *c, uint64_t wrong, const char *of, const uint32_t *worlds,
                   uint32_t n) {
  char list[32] = "";
  for (uint32_t i = 0; i < n; ++i)
    snprintf(list + strlen(list), sizeof list - strlen(list), "%s%u", i > 0 ? ", " : "", worlds[i]);
  bs_gate_set(gate, "R3", -1, (double)wrong, 0.0, "%s%s on %u ranks and on %s",
              wrong ? "other bits: " : "the same bits: ", of, c->world_size, list);
}

/* Rows of `size` bytes that differ. */
static uint64_t differing(const void *a, const void *b, int64_t rows, size_t size) {
  uint64_t wrong = 0;
  for (int64_t i = 0; size > 0 && i < rows; ++i)
    wrong += memcmp((const char *)a + (size_t)i * size, (const char *)b + (size_t)i * size, size) != 0;
  return wrong;
}

/* ---- gradients ----------------------------------------------------------------------------------- */

typedef struct whole {
  void *dx, *dw, *db; /* [B,K], [N,K], [N]; db NULL without a bias */
} whole;

static void whole_free(whole *w) {
  free(w->dx);
  free(w->dw);
  free(w->db);
  memset(w, 0, sizeof *w);
}

/* dX of all ranks as one matrix: of a whole x, rank 0's. */
static void place_dx(const bs_case *c, const bs_gradient_result *result, char *dx) {
  const bs_layer_spec *s = &c->spec;
  const size_t size = BS_DTYPE_BYTES(s->x_dtype);
  for (uint32_t r = 0; r < result->run.world_size; ++r) {
    const bs_case_rank *mine = &result->run.ranks[r];
    const bs_partition *columns = s->x_placement == BS_SPLIT ? mine->owns.columns : NULL;
    if (r > 0 && s->x_placement != BS_SPLIT) return;
    for (int64_t b = 0; b < s->B; ++b)
      for (int64_t j = 0; j < mine->y_cols; ++j)
        memcpy(dx + (size_t)(b * s->K + bs_view_column(columns, j)) * size,
               (const char *)mine->y + (size_t)(b * mine->y_cols + j) * size, size);
  }
}

static int32_t whole_make(const bs_case *c, const bs_gradient_result *result, whole *out, bs_error *err) {
  memset(out, 0, sizeof *out);
  int32_t rc = bs_gradient_assemble(c, result, &out->dw, &out->db, err);
  if (rc != BS_OK) return rc;
  out->dx = calloc((size_t)(c->spec.B * c->spec.K) + 1, BS_DTYPE_BYTES(c->spec.x_dtype));
  if (out->dx) {
    place_dx(c, result, out->dx);
    return BS_OK;
  }
  whole_free(out);
  return bs_no_memory(err, "gradients");
}

static uint64_t whole_differs(const bs_case *c, const bs_gradient_result *result, const whole *a,
                              const whole *b) {
  const bs_layer_spec *s = &c->spec;
  const size_t wide = BS_DTYPE_BYTES(result->wide), K = (size_t)s->K;
  uint64_t wrong = differing(a->dx, b->dx, s->B, K * BS_DTYPE_BYTES(s->x_dtype));
  wrong += differing(a->dw, b->dw, s->N, K * wide);
  return a->db && b->db ? wrong + differing(a->db, b->db, s->N, wide) : wrong;
}

static int32_t gradient_again(const bs_case *c, uint32_t world, uint32_t loss, const bs_source *target,
                              const whole *mine, uint64_t *wrong, bs_error *err) {
  const bs_case other = other_of(c, world);
  bs_gradient_result second;
  whole theirs = {0};
  int32_t rc = bs_gradient_run(&other, loss, target, &second, err);
  if (rc != BS_OK) return rc;
  rc = bs_case_judged(c) ? whole_make(&other, &second, &theirs, err) : BS_OK;
  if (rc == BS_OK && bs_case_judged(c)) *wrong += whole_differs(c, &second, mine, &theirs);
  whole_free(&theirs);
  bs_gradient_result_free(&second);
  return rc;
}

int32_t bs_repro_gradient_gate(const bs_case *c, uint32_t loss, const bs_source *target,
                               const bs_gradient_result *result, bs_gate *gate, uint32_t *out_count,
                               bs_error *err) {
  uint32_t worlds[4];
  uint64_t wrong = 0;
  whole mine = {0};
  *out_count = 0;
  const uint32_t n = others_of(c, worlds);
  if (bs_repro_of(&result->run) < BS_REPRO_R3 || n == 0) return BS_OK;
  int32_t rc = bs_case_judged(c) ? whole_make(c, result, &mine, err) : BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < n; ++i)
    rc = gradient_again(c, worlds[i], loss, target, &mine, &wrong, err);
  whole_free(&mine);
  if (rc != BS_OK) return rc;
  settle(gate, c, wrong, c->spec.has_bias ? "dX, dW and db" : "dX and dW", worlds, n);
  *out_count = 1;
  return BS_OK;
}

/* ---- weights after steps -------------------------------------------------------------------------- */

static int32_t train(const bs_case *c, const bs_train_options *like, int faulty, bs_train_result *out,
                     bs_error *err) {
  bs_train_options o = *like;
  o.warmup = 0;
  o.steps = STEPS;
  if (o.remask >= STEPS) o.remask = STEPS - 1; /* the last step has a new mask */
  if (!faulty) o.fault = BS_TRAIN_RIGHT;
  return bs_train_run(c, &o, out, err);
}

int32_t bs_repro_step_gate(const bs_case *c, const bs_train_options *o, const bs_case_result *promising,
                           bs_gate *gate, uint32_t *out_count, bs_error *err) {
  uint32_t worlds[4];
  uint64_t wrong = 0;
  bs_train_result mine, theirs;
  char text[64];
  *out_count = 0;
  const uint32_t n = others_of(c, worlds);
  if (bs_repro_of(promising) < BS_REPRO_R3 || n == 0) return BS_OK;
  bs_case own = other_of(c, c->world_size);
  own.fault = c->fault;
  int32_t rc = train(&own, o, 1, &mine, err);
  if (rc != BS_OK) return rc;
  for (uint32_t i = 0; rc == BS_OK && i < n; ++i) {
    const bs_case other = other_of(c, worlds[i]);
    rc = train(&other, o, 0, &theirs, err);
    if (rc != BS_OK) break;
    if (bs_case_judged(c))
      wrong += differing(mine.w, theirs.w, (STEPS + 1) * mine.features, (size_t)c->spec.K * sizeof(double));
    bs_train_result_free(&theirs);
  }
  bs_train_result_free(&mine);
  if (rc != BS_OK) return rc;
  snprintf(text, sizeof text, "W after each of %d steps%s", STEPS, o->remask > 0 ? " with new masks" : "");
  settle(gate, c, wrong, text, worlds, n);
  *out_count = 1;
  return BS_OK;
}
