/* SPDX-License-Identifier: MIT
 * control.c - branches and loops, which a plan of static shapes has none of: a condition that is known picks
 * its branch, an unknown one computes both; loops of a known length are unrolled. */
#include <stdlib.h>
#include <string.h>

#include "graph/lower/rules.h"

enum { MAX_PORTS = 32, MAX_ROUNDS = 1024 };

static uint32_t block_of(build *b, const char *attr) {
  const bs_attr *a = gmodel_attr(b->node, attr);
  const int there = a != NULL && a->type == BS_ATTR_GRAPH;
  build_check(b, there, "a branch or body is absent");
  return there ? (uint32_t)a->i : 0;
}

static void run_block(build *b, uint32_t block, const uint32_t *in, uint32_t n_in, uint32_t *outs,
                      uint32_t n_out) {
  if (b->rc == BS_OK) b->rc = lower_block(b->c, b->node, block, in, n_in, outs, n_out, b->err);
}

/* A result that is chosen by a condition that is not known, or that the rounds of a loop put together. */
static void refuse_compound(build *b, uint32_t value) {
  if (lower_is_compound(value)) build_refuse(b, 0, "a branch or body gives a sequence, or more than 6 dims");
}

static int32_t if_rule(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const build_shape scalar = {0};
  uint32_t condition = build_in(&b, 0), yes[MAX_PORTS] = {0}, no[MAX_PORTS] = {0};
  const uint32_t then_block = block_of(&b, "then_branch"), else_block = block_of(&b, "else_branch"),
                 n = node->n_out;
  if (n > MAX_PORTS) build_refuse(&b, 0, "it has more than 32 outputs");
  const build_shape one = build_shape_of(&b, condition);
  build_check(&b, build_elements(&one) == 1 && build_dtype(&b, condition) == BS_BOOL,
              "the condition is not one bool");
  if (b.rc != BS_OK) return b.rc;
  if (lower_is_const(c, condition)) {
    run_block(&b, build_read_int(&b, condition, "its condition") ? then_block : else_block, NULL, 0, yes, n);
    for (uint32_t i = 0; i < n; ++i) build_out(&b, i, yes[i]);
    return b.rc;
  }
  condition = build_reshape(&b, condition, &scalar);
  if (b.rc == BS_OK) b.rc = lower_branch(c, node, then_block, condition, 1, NULL, 0, yes, n, err);
  if (b.rc == BS_OK) b.rc = lower_branch(c, node, else_block, condition, 0, NULL, 0, no, n, err);
  for (uint32_t i = 0; i < n && b.rc == BS_OK; ++i) {
    refuse_compound(&b, yes[i]);
    refuse_compound(&b, no[i]);
    if (b.rc != BS_OK) break;
    const build_shape sy = build_shape_of(&b, yes[i]), sn = build_shape_of(&b, no[i]);
    if (!build_same(&sy, &sn) || build_dtype(&b, yes[i]) != build_dtype(&b, no[i])) {
      build_refuse(&b, 0, "branches of different shapes by a condition that is not known");
    }
    build_out(&b, i, build_select(&b, condition, yes[i], no[i]));
  }
  return b.rc;
}

/* Joins the results of a loop's rounds, in order, into one value with a new dim `axis`. */
static uint32_t stack(build *b, const uint32_t *rounds, uint32_t stride, int64_t n, int64_t axis,
                      int backwards) {
  uint32_t *parts = calloc((size_t)(n > 0 ? n : 0) + 1, sizeof *parts), out = GNONE;
  if (parts == NULL) build_no_memory(b);
  for (int64_t i = 0; i < n; ++i) refuse_compound(b, rounds[i * stride]);
  const uint32_t at = b->rc == BS_OK ? build_axis(b, axis, build_rank(b, rounds[0]) + 1) : 0;
  for (int64_t i = 0; i < n && b->rc == BS_OK; ++i) {
    parts[i] = build_unsqueeze(b, rounds[(backwards ? n - 1 - i : i) * stride], at);
    const build_shape first = build_shape_of(b, parts[0]), this = build_shape_of(b, parts[i]);
    build_check(b, build_same(&first, &this), "the rounds of a loop differ in shape");
  }
  if (b->rc == BS_OK) out = build_concat(b, parts, (uint32_t)n, at);
  free(parts);
  return out;
}

/* A result of no rounds: empty, of the dtype and dims that a round gives, with a new dim of 0 at `axis`. */
static uint32_t no_rounds(build *b, uint32_t round, int64_t axis) {
  refuse_compound(b, round);
  if (b->rc != BS_OK) return GNONE;
  build_shape shape = build_shape_of(b, round);
  if (shape.rank == BS_MAX_DIMS) build_refuse(b, 0, "it needs more than 6 dims");
  const uint32_t at = build_axis(b, axis, shape.rank + 1);
  if (b->rc != BS_OK) return GNONE;
  memmove(&shape.dims[at + 1], &shape.dims[at], (shape.rank - at) * sizeof shape.dims[0]);
  shape.dims[at] = 0;
  shape.rank += 1;
  return build_const(b, build_dtype(b, round), &shape, "");
}

/* Lowers the body once for the shapes of its results only; it never runs. */
static void dry_round(build *b, uint32_t block, const uint32_t *in, uint32_t n_in, uint32_t *outs,
                      uint32_t n_out) {
  const uint32_t never = build_real(b, BS_BOOL, 0);
  if (b->rc == BS_OK) b->rc = lower_branch(b->c, b->node, block, never, 1, in, n_in, outs, n_out, b->err);
}

/* Loop: in: trip count, condition, states; body: round, condition, states -> condition, states, results. */
static int32_t loop(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const uint32_t block = block_of(&b, "body"), trips_in = build_optional(&b, 0),
                 condition = build_optional(&b, 1);
  const uint32_t states = node->n_in > 2 ? node->n_in - 2 : 0,
                 results = node->n_out > states ? node->n_out - states : 0;
  build_check(&b, node->n_out >= states, "it has fewer outputs than states");
  if (states + 2 > MAX_PORTS || node->n_out + 1 > MAX_PORTS)
    build_refuse(&b, 0, "it has more than 30 states");
  const int64_t trips = trips_in != GNONE ? build_read_int(&b, trips_in, "its trip count") : INT64_MAX;
  int go = condition == GNONE || build_read_int(&b, condition, "its condition") != 0;
  uint32_t in[MAX_PORTS] = {0}, outs[MAX_PORTS] = {0};
  uint32_t *rounds = calloc((size_t)MAX_ROUNDS * MAX_PORTS, sizeof *rounds);
  int64_t n = 0;
  if (rounds == NULL && b.rc == BS_OK) build_no_memory(&b);
  for (uint32_t i = 0; i < states && b.rc == BS_OK; ++i) in[2 + i] = build_in(&b, 2 + i);
  for (; rounds != NULL && go && n < trips && b.rc == BS_OK; ++n) {
    const build_shape scalar = {0};
    if (n == MAX_ROUNDS) build_refuse(&b, 0, "a loop of more than 1024 rounds");
    in[0] = build_const(&b, BS_I64, &scalar, &n);
    in[1] = build_real(&b, BS_BOOL, 1);
    run_block(&b, block, in, 2 + states, outs, 1 + node->n_out);
    if (b.rc != BS_OK) break;
    memcpy(&in[2], &outs[1], states * sizeof in[0]);
    memcpy(&rounds[n * MAX_PORTS], &outs[1 + states], results * sizeof in[0]);
    go = build_read_int(&b, outs[0], "the condition that its body computes") != 0;
  }
  for (uint32_t i = 0; i < states && b.rc == BS_OK; ++i) build_out(&b, i, in[2 + i]);
  if (results > 0 && n == 0 && b.rc == BS_OK) {
    const build_shape scalar = {0};
    in[0] = build_const(&b, BS_I64, &scalar, &n);
    in[1] = build_real(&b, BS_BOOL, 1);
    dry_round(&b, block, in, 2 + states, outs, 1 + node->n_out);
  }
  for (uint32_t i = 0; i < results && b.rc == BS_OK; ++i) {
    build_out(&b, states + i,
              n == 0 ? no_rounds(&b, outs[1 + states + i], 0) : stack(&b, &rounds[i], MAX_PORTS, n, 0, 0));
  }
  free(rounds);
  return b.rc;
}

static int64_t listed(const gmodel_node *node, const char *attr, uint32_t i) {
  const bs_attr *list = lower_ints(node, attr);
  return list != NULL && i < list->count ? list->ints[i] : 0;
}

/* A zero of the dtype and dims that one element of a sequence has. */
static uint32_t element_of(build *b, uint32_t sequence, uint32_t axis) {
  build_shape shape = build_shape_of(b, sequence);
  memmove(&shape.dims[axis], &shape.dims[axis + 1], (shape.rank - axis - 1) * sizeof shape.dims[0]);
  shape.rank -= 1;
  return build_expand(b, build_real(b, build_dtype(b, sequence), 0), &shape);
}

/* Scan (opset 9): in: states, sequences; body: states, elements -> states, results. */
static int32_t scan(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const uint32_t block = block_of(&b, "body");
  const int64_t sequences = lower_int(node, "num_scan_inputs", 0);
  build_check(&b, sequences > 0 && sequences <= (int64_t)node->n_in,
              "num_scan_inputs is not 1 to the number of inputs");
  if (node->n_in > MAX_PORTS || node->n_out > MAX_PORTS) build_refuse(&b, 0, "it has more than 32 ports");
  if (b.rc != BS_OK) return b.rc;
  const uint32_t states = node->n_in - (uint32_t)sequences,
                 results = node->n_out > states ? node->n_out - states : 0;
  build_check(&b, node->n_out >= states, "it has fewer outputs than states");
  uint32_t in[MAX_PORTS] = {0}, outs[MAX_PORTS] = {0}, axes[MAX_PORTS] = {0};
  int64_t rounds = -1;
  for (uint32_t i = 0; i < node->n_in && b.rc == BS_OK; ++i) {
    in[i] = build_in(&b, i);
    if (i < states || b.rc != BS_OK) continue;
    axes[i] = build_axis(&b, listed(node, "scan_input_axes", i - states), build_rank(&b, in[i]));
    const int64_t dim = build_dim(&b, in[i], axes[i]);
    build_check(&b, rounds < 0 || dim == rounds, "the sequences differ in length");
    rounds = dim;
  }
  if (rounds > MAX_ROUNDS) build_refuse(&b, 0, "a loop of more than 1024 rounds");
  uint32_t *kept = calloc((size_t)MAX_ROUNDS * MAX_PORTS, sizeof *kept);
  if (kept == NULL && b.rc == BS_OK) build_no_memory(&b);
  for (int64_t n = 0; kept != NULL && n < rounds && b.rc == BS_OK; ++n) {
    for (uint32_t i = states; i < node->n_in; ++i) {
      const int64_t at = listed(node, "scan_input_directions", i - states) ? rounds - 1 - n : n;
      in[i] = build_squeeze(&b, build_slice(&b, build_in(&b, i), axes[i], at, 1, 1), axes[i]);
    }
    run_block(&b, block, in, node->n_in, outs, node->n_out);
    if (b.rc != BS_OK) break;
    memcpy(in, outs, states * sizeof in[0]);
    memcpy(&kept[n * MAX_PORTS], &outs[states], results * sizeof in[0]);
  }
  if (rounds == 0 && results > 0) {
    for (uint32_t i = states; i < node->n_in; ++i) in[i] = element_of(&b, in[i], axes[i]);
    dry_round(&b, block, in, node->n_in, outs, node->n_out);
  }
  for (uint32_t i = 0; i < states && b.rc == BS_OK; ++i) build_out(&b, i, in[i]);
  for (uint32_t i = 0; i < results && b.rc == BS_OK; ++i) {
    const int backwards = listed(node, "scan_output_directions", i) != 0;
    const int64_t axis = listed(node, "scan_output_axes", i);
    build_out(&b, states + i,
              rounds == 0 ? no_rounds(&b, outs[states + i], axis)
                          : stack(&b, &kept[i], MAX_PORTS, rounds, axis, backwards));
  }
  free(kept);
  return b.rc;
}

const lower_rule lower_rules_control[] = {{"If", 1, 0, if_rule, NULL},
                                          {"NonZero", 9, 0, lower_non_zero, NULL},
                                          {"Loop", 1, 0, loop, NULL},
                                          {"Scan", 9, 0, scan, NULL},
                                          {0}};
