/* SPDX-License-Identifier: MIT
 * inside.c - see inside.h. Which tile, and the runs; inside_rows.c makes the table. */
#include "lab/sim/inside.h"

#include <stdio.h>
#include <string.h>

#include "core/base/text.h"
#include "lab/error.h"
#include "lab/kernel/problem.h"
#include "lab/sim/inside_rows.h"

enum { TM, TN, TK, STAGES, GROUP, ACCUMULATORS, GRAIN, ROWS };
static const char *const names[BS_INSIDE_KNOBS] = {"tm",    "tn",           "tk",    "stages",
                                                   "group", "accumulators", "grain", "layout"};

/* ---- knobs ------------------------------------------------------------------------------------- */

static int32_t bad_value(const char *name, const char *text, bs_error *err) {
  return bs_error_set(err, BS_USAGE, "BS-INSIDE-KNOB", "--knob %s: '%.40s' is not %s", name, text,
                      strcmp(name, "layout") == 0 ? "tiles or rows" : "a list of at most 8 whole numbers");
}

static int32_t read_value(uint32_t knob, const char *text, bs_inside_knobs *k, bs_error *err) {
  int64_t value = 0;
  if (k->n[knob] == BS_INSIDE_VALUES) return bad_value(names[knob], text, err);
  if (knob == ROWS) {
    value = strcmp(text, "rows") == 0;
    if (!value && strcmp(text, "tiles") != 0) return bad_value(names[knob], text, err);
  } else if (!bs_parse_size(text, &value) || value < 1 || value > 1 << 16) {
    return bad_value(names[knob], text, err);
  }
  k->values[knob][k->n[knob]++] = (uint32_t)value;
  return BS_OK;
}

static int32_t read_knob(char *text, bs_inside_knobs *k, bs_error *err) {
  char *value = strchr(text, '=');
  uint32_t knob = 0;
  if (value == NULL)
    return bs_error_set(err, BS_USAGE, "BS-INSIDE-KNOB", "--knob: '%.40s' is not NAME=VALUES", text);
  *value++ = '\0';
  while (knob < BS_INSIDE_KNOBS && strcmp(names[knob], text) != 0) knob++;
  if (knob == BS_INSIDE_KNOBS) {
    const char *nearest = bs_nearest(text, names, BS_INSIDE_KNOBS);
    bs_error_set(err, BS_USAGE, "BS-INSIDE-KNOB", "--knob: a program has no knob '%.40s'", text);
    if (nearest != NULL)
      bs_error_hint(err, "did you mean '%s'?", nearest);
    else
      bs_error_hint(err, "tm, tn, tk, stages, group, accumulators, grain, layout");
    return BS_USAGE;
  }
  int32_t rc = BS_OK;
  for (char *next = value; rc == BS_OK && next != NULL; value = next) {
    next = strchr(value, ',');
    if (next != NULL) *next++ = '\0';
    rc = read_value(knob, value, k, err);
  }
  return rc;
}

int32_t bs_inside_knobs_first(const bs_inside_knobs *k, sim_knobs *out, bs_error *err) {
  *out = (sim_knobs){.tm = k->values[TM][0],
                     .tn = k->values[TN][0],
                     .tk = k->values[TK][0],
                     .stages = k->values[STAGES][0],
                     .group = k->values[GROUP][0],
                     .accumulators = k->values[ACCUMULATORS][0],
                     .grain = k->values[GRAIN][0],
                     .rows = k->values[ROWS][0]};
  if (out->tm > 0 && out->tn > 0 && out->tk > 0 && out->stages > 0) return BS_OK;
  return bs_error_set(err, BS_CONFIG, "BS-INSIDE-KNOB", "tm, tn, tk and stages must be given");
}

int32_t bs_inside_knobs_read(const char *text, bs_inside_knobs *k, bs_error *err) {
  char copy[256];
  int32_t rc = BS_OK;
  if (strlen(text) >= sizeof copy)
    return bs_error_set(err, BS_USAGE, "BS-INSIDE-KNOB", "--knob: %zu characters are too many", strlen(text));
  memcpy(copy, text, strlen(text) + 1);
  for (char *at = copy, *next = copy; rc == BS_OK && next != NULL; at = next) {
    next = strchr(at, ';');
    if (next != NULL) *next++ = '\0';
    rc = read_knob(at, k, err);
  }
  return rc;
}

static void say_knobs(const sim_product *p, char *out, size_t size) {
  const sim_knobs *k = &p->knobs;
  size_t n = (size_t)snprintf(out, size, "tm=%u;tn=%u;tk=%u;stages=%u;grain=%u", k->tm, k->tn, k->tk,
                              k->stages, k->grain);
  if (k->group > 1) n += (size_t)snprintf(out + n, size - n, ";group=%u", k->group);
  if (k->accumulators > 1) n += (size_t)snprintf(out + n, size - n, ";accumulators=%u", k->accumulators);
  if (k->rows) snprintf(out + n, size - n, ";layout=rows");
}

/* ---- the op ------------------------------------------------------------------------------------ */

static int32_t read_shape(const char *text, uint32_t epilogue, bs_kernel_problem *q, sim_product_shape *out,
                          bs_error *err) {
  int32_t rc = bs_kernel_problem_parse(text, q, err);
  if (rc != BS_OK) return rc;
  const uint64_t b = (uint64_t)q->B, n = (uint64_t)q->N, k = (uint64_t)bs_kernel_w_cols(q);
  switch (q->kind) {
    case BS_KERNEL_MATMUL:
      *out = (sim_product_shape){.m = b, .n = n, .k = k};
      break;
    case BS_KERNEL_MATMUL_DX:
      *out = (sim_product_shape){.m = b, .n = k, .k = n};
      break;
    case BS_KERNEL_MATMUL_DW:
      *out = (sim_product_shape){.m = n, .n = k, .k = b};
      break;
    default:
      bs_error_set(err, BS_UNSUPPORTED, "BS-INSIDE-OP", "%s has no program for the inside of a device",
                   bs_kernel_problem_op(q->kind));
      bs_error_hint(err, "matmul, matmul_dx and matmul_dw have one");
      return BS_UNSUPPORTED;
  }
  out->in_bytes = BS_DTYPE_BYTES(q->dtype);
  out->out_bytes = BS_DTYPE_BYTES(bs_kernel_y_dtype(q));
  out->epilogue = 1 + epilogue;
  return BS_OK;
}

/* ---- candidates -------------------------------------------------------------------------------- */

/* Candidates are numbered: tiles times stages times the further knobs that were given. */
typedef struct space {
  const sim_device *device;
  const bs_inside_knobs *given;
  sim_knobs tiles[BS_INSIDE_VALUES * BS_INSIDE_VALUES * BS_INSIDE_VALUES];
  uint32_t n_tiles;
} space;

static int asks(const bs_inside_knobs *k, uint32_t knob, uint32_t value) {
  for (uint32_t i = 0; i < k->n[knob]; i++)
    if (k->values[knob][i] == value) return 1;
  return k->n[knob] == 0;
}

static int32_t make_space(space *s, const sim_device *d, const bs_inside_knobs *k, bs_error *err) {
  s->device = d;
  s->given = k;
  if (k->n[TM] > 0 && k->n[TN] > 0 && k->n[TK] > 0) {
    for (uint32_t i = 0; i < k->n[TM] * k->n[TN] * k->n[TK]; i++)
      s->tiles[s->n_tiles++] = (sim_knobs){.tm = k->values[TM][i % k->n[TM]],
                                           .tn = k->values[TN][i / k->n[TM] % k->n[TN]],
                                           .tk = k->values[TK][i / k->n[TM] / k->n[TN]]};
    return BS_OK;
  }
  for (uint32_t t = 0; t < d->n_tiles; t++)
    if (asks(k, TM, d->tiles[t][0]) && asks(k, TN, d->tiles[t][1]) && asks(k, TK, d->tiles[t][2]))
      s->tiles[s->n_tiles++] = (sim_knobs){.tm = d->tiles[t][0], .tn = d->tiles[t][1], .tk = d->tiles[t][2]};
  if (s->n_tiles > 0) return BS_OK;
  bs_error_set(err, BS_CONFIG, "BS-INSIDE-KNOB", "device %s has no tile with these knobs", d->name);
  bs_error_hint(err, "give all of tm, tn and tk");
  return BS_CONFIG;
}

/* Value number *inout_i of a knob; *inout_i is what is left for the knobs that follow. */
static uint32_t pick(const uint32_t *values, uint32_t n, uint32_t fallback, uint32_t *inout_i) {
  if (n == 0) return fallback;
  const uint32_t at = *inout_i % n;
  *inout_i /= n;
  return values[at];
}

/* 0: there are no more. */
static int candidate(const space *s, uint32_t i, sim_knobs *out) {
  const bs_inside_knobs *k = s->given;
  const int of_device = k->n[STAGES] == 0;
  if (s->n_tiles == 0) return 0;
  *out = s->tiles[i % s->n_tiles];
  i /= s->n_tiles;
  out->stages = pick(of_device ? s->device->stages : k->values[STAGES],
                     of_device ? s->device->n_stages : k->n[STAGES], 2, &i);
  out->group = pick(k->values[GROUP], k->n[GROUP], 1, &i);
  out->accumulators = pick(k->values[ACCUMULATORS], k->n[ACCUMULATORS], 1, &i);
  out->grain = pick(k->values[GRAIN], k->n[GRAIN], 0, &i);
  out->rows = pick(k->values[ROWS], k->n[ROWS], 0, &i);
  return i == 0;
}

static int32_t run_once(bs_inside_answer *a, const sim_knobs *knobs, const sim_product_shape *shape,
                        sim_inside_result *out, bs_error *err) {
  int32_t rc = sim_layout_reset(&a->layout, err);
  if (rc == BS_OK) rc = sim_product_make(&a->layout, shape, knobs, &a->program, err);
  return rc == BS_OK ? sim_product_run(&a->program, &a->layout, NULL, out, err) : rc;
}

/* A candidate that does not fit is left out, unless none fits. */
static int32_t choose(bs_inside_answer *a, const space *s, const sim_product_shape *shape,
                      sim_knobs *out_best, bs_error *err) {
  bs_error first = BS_ERROR_INIT;
  uint64_t best = SIM_NEVER;
  sim_knobs knobs;
  for (uint32_t i = 0; candidate(s, i, &knobs); i++) {
    bs_error why = BS_ERROR_INIT;
    sim_inside_result result;
    int32_t rc = sim_product_make(&a->layout, shape, &knobs, &a->program, &why);
    if (rc == BS_OK && sim_product_bound(&a->program) >= best) {
      a->skipped++;
      continue;
    }
    if (rc == BS_OK) rc = run_once(a, &knobs, shape, &result, &why);
    if (rc != BS_OK) {
      if (first.code == BS_OK) first = why;
      if (strncmp(why.id, "BS-INSIDE-S", 11) != 0) break; /* not its scratch or size */
      a->skipped++;
      continue;
    }
    a->tried++;
    if (result.settled < best) {
      best = result.settled;
      *out_best = knobs;
    }
  }
  if (best != SIM_NEVER) return BS_OK;
  if (err != NULL) *err = first;
  return first.code;
}

/* ------------------------------------------------------------------------------------------------ */

int32_t bs_inside_open(const sim_device *device, const bs_inside_ask *ask, bs_inside_answer *out,
                       bs_error *err) {
  bs_kernel_problem problem;
  sim_product_shape shape;
  sim_knobs best = {0};
  space s = {0};
  memset(out, 0, sizeof *out);
  int32_t rc = read_shape(ask->op, ask->epilogue, &problem, &shape, err);
  if (rc != BS_OK) return rc;
  bs_kernel_problem_text(&problem, out->op, sizeof out->op);
  rc = make_space(&s, device, &ask->knobs, err);
  if (rc == BS_OK) rc = sim_layout_make(device, problem.dtype, &out->layout, err);
  if (rc == BS_OK) rc = choose(out, &s, &shape, &best, err);
  if (rc == BS_OK) rc = run_once(out, &best, &shape, &out->result, err);
  if (rc == BS_OK) say_knobs(&out->program, out->knobs, sizeof out->knobs);
  return rc == BS_OK ? bs_inside_rows(out, err) : rc;
}

void bs_inside_close(bs_inside_answer *a) {
  json_decref(a->rows);
  sim_layout_free(&a->layout);
  a->rows = NULL;
}

/* ---- a trace ----------------------------------------------------------------------------------- */

typedef struct tracing {
  const sim_layout *l;
  sim_trace *trace;
} tracing;

static void trace_stop(void *user, const sim_passed *at) {
  const sim_product *p = user;
  const tracing *t = p->told;
  const uint32_t part = at->job->stops[at->stop].part, class = sim_layout_class_of(t->l, part);
  const sim_part *of = &t->l->parts[part];
  const uint64_t begin = sim_add(at->reached, at->waited);
  /* A link is busy until its last flit has left; its latency follows. */
  const uint64_t end = at->after.whole - (of->kind == SIM_LINK ? of->first : 0);
  sim_trace_slice(t->trace, at->lane, class, sim_what_name(at->job->what), begin, sim_max(begin, end));
}

static void trace_name(void *user, uint32_t rank, uint32_t lane, char *out, uint32_t size) {
  const sim_layout *l = user;
  if (lane == UINT32_MAX)
    sim_layout_lane_name(l, rank, out, size);
  else
    snprintf(out, size, "%s", lane < l->device->n_classes ? l->device->classes[lane].name : "?");
}

int32_t bs_inside_trace(bs_inside_answer *a, sim_trace *trace, bs_error *err) {
  tracing t = {&a->layout, trace};
  sim_inside_result result;
  const sim_inside_config hooks = {.pass = trace_stop};
  int32_t rc = sim_layout_reset(&a->layout, err);
  a->program.told = &t;
  sim_trace_names(trace, trace_name, &a->layout);
  if (rc == BS_OK) rc = sim_product_run(&a->program, &a->layout, &hooks, &result, err);
  a->program.told = NULL;
  return rc;
}
