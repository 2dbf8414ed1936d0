/* SPDX-License-Identifier: MIT
 * repro.c - see repro.h. Each check runs the same layer a second time and compares bits, so it is only made
 * for promises. */
#include "lab/gate/repro.h"

#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/plugin/registry.h"

const char *bs_repro_name(uint32_t repro) {
  static const char *const names[] = {"R0", "R1", "R2", "R3", "R4"};
  return repro < sizeof names / sizeof names[0] ? names[repro] : "?";
}

uint32_t bs_repro_of(const bs_case_result *result) {
  uint32_t least = BS_REPRO_R4;
  for (uint32_t r = 0; r < result->world_size; ++r)
    if (result->ranks[r].proposal.repro < least) least = result->ranks[r].proposal.repro;
  return least;
}

/* Tokens from `first` on of another source. */
typedef struct later {
  const bs_source *inner;
  int64_t first;
} later;

static int32_t read_later(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                          void *out, int64_t out_stride, bs_error *err) {
  const later *view = ctx;
  return view->inner->read(view->inner->ctx, view->first + row, nrows, cols, dtype, out, out_stride, err);
}

/* Features of `b` among those of rank `a` of another run. 1: the same bits for `tokens` tokens from `first`.
 */
static int64_t differing(const bs_case *c, const bs_case_rank *a, int64_t first, const bs_case_rank *b,
                         int64_t tokens) {
  const size_t size = BS_DTYPE_BYTES(c->spec.y_dtype);
  const int64_t begin = a->y_begin > b->y_begin ? a->y_begin : b->y_begin;
  const int64_t a_end = a->y_begin + a->y_cols, b_end = b->y_begin + b->y_cols;
  const int64_t end = a_end < b_end ? a_end : b_end;
  int64_t wrong = 0;
  for (int64_t t = 0; end > begin && t < tokens; ++t) {
    const char *p = (const char *)a->y + (size_t)((first + t) * a->y_cols + begin - a->y_begin) * size;
    const char *q = (const char *)b->y + (size_t)(t * b->y_cols + begin - b->y_begin) * size;
    wrong += memcmp(p, q, (size_t)(end - begin) * size) != 0;
  }
  return wrong;
}

/* Runs the case again with `tokens` tokens from `first` on `world` ranks; adds the tokens that differ. */
static int32_t again(const bs_case *c, const bs_case_result *result, int64_t first, int64_t tokens,
                     uint32_t world, int64_t *wrong, bs_error *err) {
  bs_case other = *c;
  bs_case_result second;
  later view = {c->x, first};
  bs_source x = *c->x;
  x.rows = tokens;
  x.ctx = &view;
  x.read = read_later;
  other.x = &x;
  other.spec.B = tokens;
  other.world_size = world;
  other.warmup = 0;
  other.iterations = 1;
  other.hook = NULL;
  other.fault = NULL;
  const int32_t rc = bs_case_run(&other, &second, err);
  if (rc != BS_OK) return rc;
  for (uint32_t r = 0; r < result->world_size; ++r)
    for (uint32_t s = 0; s < world; ++s)
      if (world == 1 || r == s || c->spec.y_placement != BS_SPLIT)
        *wrong += differing(c, &result->ranks[r], first, &second.ranks[s], tokens);
  bs_case_result_free(&second);
  return BS_OK;
}

static void settle(bs_gate *gate, const char *name, int64_t wrong, const char *text) {
  bs_gate_set(gate, name, -1, (double)wrong, 0.0, "%s%s", wrong ? "other bits: " : "the same bits: ", text);
}

int32_t bs_repro_gates(const bs_case *c, const bs_case_result *result, bs_gate *gates, uint32_t *out_count,
                       bs_error *err) {
  const uint32_t promised = bs_repro_of(result);
  const int64_t B = c->spec.B, half = B / 2;
  char text[96];
  int64_t wrong = 0;
  *out_count = 0;
  if (promised < BS_REPRO_R2) return BS_OK;
  bs_case teller = *c;
  teller.gate = "R2";
  int32_t rc = again(&teller, result, B - 1, 1, c->world_size, &wrong, err);
  if (rc == BS_OK && half > 1) rc = again(&teller, result, B - half - 1, half, c->world_size, &wrong, err);
  if (rc != BS_OK) return rc;
  snprintf(text, sizeof text, "the last token alone%s",
           half > 1 ? ", and half of the tokens by themselves" : "");
  settle(&gates[(*out_count)++], "R2", wrong, text);
  if (promised < BS_REPRO_R3 || c->world_size == 1) return BS_OK;
  wrong = 0;
  teller.gate = "R3";
  rc = again(&teller, result, 0, B, 1, &wrong, err);
  if (rc != BS_OK) return rc;
  snprintf(text, sizeof text, "%u ranks and one", c->world_size);
  settle(&gates[(*out_count)++], "R3", wrong, text);
  return BS_OK;
}
