/* SPDX-License-Identifier: MIT
 * inside.c - see inside.h. Which tile, and the runs; inside_rows.c makes the table. */
#include "lab/sim/inside.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "lab/error.h"
#include "lab/sim/inside_op.h"
#include "lab/sim/inside_rows.h"
#include "sim/choose.h"
#include "sim/launch.h"

enum { TM, TN, TK, STAGES, GROUP, ACCUMULATORS, GRAIN, AHEAD, SPLIT, RESIDENT, ROWS };
const char *const bs_inside_knob_names[BS_INSIDE_KNOBS] = {
    "tm", "tn", "tk", "stages", "group", "accumulators", "grain", "ahead", "split", "resident", "layout"};

/* The knobs that make a tile, and those that an op has besides. */
#define OF(knob) (1u << (knob))
static const struct {
  uint32_t tile, further;
} knobs_of[SIM_OPS] = {
    [SIM_OP_PRODUCT] = {OF(TM) | OF(TN) | OF(TK),
                        OF(GROUP) | OF(ACCUMULATORS) | OF(GRAIN) | OF(SPLIT) | OF(RESIDENT) | OF(ROWS)},
    [SIM_OP_ATTENTION] = {OF(TM) | OF(TN), OF(ACCUMULATORS) | OF(AHEAD)},
    [SIM_OP_MAP] = {OF(TM), OF(RESIDENT)},
    [SIM_OP_SEND] = {OF(TM), 0}};

/* ---- knobs ------------------------------------------------------------------------------------- */

static int32_t bad_value(const char *name, const char *text, bs_error *err) {
  return bs_error_set(err, BS_USAGE, "BS-INSIDE-KNOB", "--knob %s: '%.40s' is not %s", name, text,
                      strcmp(name, "layout") == 0  ? "tiles or rows"
                      : strcmp(name, "where") == 0 ? "FIRST-LAST.PLACE, as pe0-15.cube0"
                                                   : "a list of at most 8 whole numbers");
}

static int32_t read_value(uint32_t knob, const char *text, bs_inside_knobs *k, bs_error *err) {
  int64_t value = 0;
  if (k->n[knob] == BS_INSIDE_VALUES) return bad_value(bs_inside_knob_names[knob], text, err);
  if (knob == ROWS) {
    value = strcmp(text, "rows") == 0;
    if (!value && strcmp(text, "tiles") != 0) return bad_value(bs_inside_knob_names[knob], text, err);
  } else if (!bs_parse_size(text, &value) || value < (knob == AHEAD ? 0 : 1) ||
             value > (knob == TM ? 1 << 24 : 1 << 16)) {
    return bad_value(bs_inside_knob_names[knob], text, err);
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
  if (strcmp(text, "where") == 0) {
    if (strlen(value) >= sizeof k->where) return bad_value(text, value, err);
    memcpy(k->where, value, strlen(value) + 1);
    return BS_OK;
  }
  while (knob < BS_INSIDE_KNOBS && strcmp(bs_inside_knob_names[knob], text) != 0) knob++;
  if (knob == BS_INSIDE_KNOBS) {
    const char *nearest = bs_nearest(text, bs_inside_knob_names, BS_INSIDE_KNOBS);
    bs_error_set(err, BS_USAGE, "BS-INSIDE-KNOB", "--knob: a program has no knob '%.40s'", text);
    if (nearest != NULL)
      bs_error_hint(err, "did you mean '%s'?", nearest);
    else
      bs_error_hint(err,
                    "tm, tn, tk, stages, group, accumulators, grain, ahead, split, resident, where, layout");
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

int32_t bs_inside_knobs_first(const bs_inside_knobs *k, uint32_t kind, sim_knobs *out, bs_error *err) {
  const uint32_t must = knobs_of[kind].tile | OF(STAGES);
  *out = (sim_knobs){.tm = k->values[TM][0],
                     .tn = k->values[TN][0],
                     .tk = k->values[TK][0],
                     .stages = k->values[STAGES][0],
                     .group = k->values[GROUP][0],
                     .accumulators = k->values[ACCUMULATORS][0],
                     .grain = k->values[GRAIN][0],
                     .ahead = k->values[AHEAD][0],
                     .split = k->values[SPLIT][0],
                     .resident = k->values[RESIDENT][0],
                     .rows = k->values[ROWS][0]};
  for (uint32_t i = 0; i < BS_INSIDE_KNOBS; i++)
    if ((must >> i & 1u) != 0 && k->values[i][0] == 0)
      return bs_error_set(err, BS_CONFIG, "BS-INSIDE-KNOB", "the knob %s is not given",
                          bs_inside_knob_names[i]);
  return BS_OK;
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

static void say_knobs(const sim_program *p, uint32_t kind, char *out, size_t size) {
  const sim_knobs *k = sim_program_knobs(p);
  const uint32_t tile = knobs_of[kind].tile, further = knobs_of[kind].further;
  size_t n = (size_t)snprintf(out, size, "tm=%u", k->tm);
  if (tile & OF(TN)) n += (size_t)snprintf(out + n, size - n, ";tn=%u", k->tn);
  if (tile & OF(TK)) n += (size_t)snprintf(out + n, size - n, ";tk=%u", k->tk);
  n += (size_t)snprintf(out + n, size - n, ";stages=%u", k->stages);
  if (further & OF(GRAIN)) n += (size_t)snprintf(out + n, size - n, ";grain=%u", k->grain);
  if (further & OF(AHEAD)) n += (size_t)snprintf(out + n, size - n, ";ahead=%u", k->ahead);
  if (k->group > 1) n += (size_t)snprintf(out + n, size - n, ";group=%u", k->group);
  if (k->accumulators > 1) n += (size_t)snprintf(out + n, size - n, ";accumulators=%u", k->accumulators);
  if (k->split > 1) n += (size_t)snprintf(out + n, size - n, ";split=%u", k->split);
  if ((further & OF(RESIDENT)) && p->plan.layout->device->lanes_each > 1)
    n += (size_t)snprintf(out + n, size - n, ";resident=%u", k->resident);
  if (k->rows) snprintf(out + n, size - n, ";layout=rows");
}

/* ---- candidates -------------------------------------------------------------------------------- */

/* Candidates are numbered: tiles times stages times the further knobs that were given. */
typedef struct space {
  const sim_device *device;
  const bs_inside_knobs *given;
  uint32_t kind;   /* enum sim_op_kind */
  sim_knobs where; /* the places that work alone */
  sim_knobs tiles[BS_INSIDE_VALUES * BS_INSIDE_VALUES * BS_INSIDE_VALUES];
  uint32_t n_tiles;
} space;

static int asks(const bs_inside_knobs *k, uint32_t knob, uint32_t value) {
  for (uint32_t i = 0; i < k->n[knob]; i++)
    if (k->values[knob][i] == value) return 1;
  return k->n[knob] == 0;
}

/* *out_first is the first place of the lanes' level in a place, *out_n how many it has. */
static int32_t place_of(const sim_layout *l, const char *text, uint32_t *out_first, uint32_t *out_n,
                        bs_error *err) {
  const sim_device *d = l->device;
  sim_place place;
  const int32_t rc = sim_layout_place(l, text, NULL, &place, err);
  if (rc != BS_OK) return rc;
  if (place.class != SIM_CLASSES || place.level > d->lane_level) return bad_value("where", text, err);
  *out_n = 1;
  for (uint32_t at = place.level + 1; at <= d->lane_level; at++) *out_n *= d->levels[at].each;
  *out_first = place.index * *out_n;
  return BS_OK;
}

/* "pe0-15.cube0" is from pe0.cube0 to pe15.cube0. */
static int32_t read_where(const sim_layout *l, const char *text, sim_knobs *out, bs_error *err) {
  char last[2 * sizeof((bs_inside_knobs *)NULL)->where], first[sizeof last];
  const char *dash = strchr(text, '-');
  uint32_t end = 0, n = 0;
  if (text[0] == '\0') return BS_OK;
  if (dash == NULL) return place_of(l, text, &out->where_first, &out->where_places, err);
  const size_t rest = strspn(dash + 1, "0123456789");
  snprintf(first, sizeof first, "%.*s%s", (int)(dash - text), text, dash + 1 + rest);
  snprintf(last, sizeof last, "%.*s%s", (int)strcspn(text, "0123456789"), text, dash + 1);
  int32_t rc = place_of(l, first, &out->where_first, &n, err);
  if (rc == BS_OK) rc = place_of(l, last, &end, &n, err);
  if (rc != BS_OK) return rc;
  if (rest == 0 || end < out->where_first) return bad_value("where", text, err);
  out->where_places = end + n - out->where_first;
  return BS_OK;
}

static int32_t check_given(const sim_op *op, const char *text, const bs_inside_knobs *k, bs_error *err) {
  const uint32_t has = knobs_of[op->kind].tile | knobs_of[op->kind].further | OF(STAGES);
  for (uint32_t i = 0; i < BS_INSIDE_KNOBS; i++)
    if (k->n[i] > 0 && !(has & OF(i)))
      return bs_error_set(err, BS_USAGE, "BS-INSIDE-KNOB", "--knob %s has no effect on %.40s",
                          bs_inside_knob_names[i], text);
  return BS_OK;
}

/* Are all the knobs of a tile given? Then every combination is a tile. */
static int given_tiles(space *s) {
  const bs_inside_knobs *k = s->given;
  const uint32_t tile = knobs_of[s->kind].tile;
  uint32_t n[3] = {1, 1, 1};
  for (uint32_t i = TM; i <= TK; i++) {
    if (!(tile & OF(i))) continue;
    if (k->n[i] == 0) return 0;
    n[i] = k->n[i];
  }
  for (uint32_t i = 0; i < n[TM] * n[TN] * n[TK]; i++)
    s->tiles[s->n_tiles++] = (sim_knobs){.tm = k->values[TM][i % n[TM]],
                                         .tn = k->values[TN][i / n[TM] % n[TN]],
                                         .tk = k->values[TK][i / n[TM] / n[TN]]};
  return 1;
}

/* The tiles of the device that go with the knobs that are given. */
static void device_tiles(space *s, const sim_op *op) {
  const bs_inside_knobs *k = s->given;
  const uint32_t stages = k->n[STAGES] > 0 ? k->values[STAGES][0] : 0;
  sim_knobs tile;
  for (uint32_t t = 0; sim_program_tile(s->device, op, stages, t, &tile); t++)
    if (asks(k, TM, tile.tm) && asks(k, TN, tile.tn) && asks(k, TK, tile.tk)) s->tiles[s->n_tiles++] = tile;
}

static int32_t make_space(space *s, const sim_device *d, const sim_op *op, const bs_inside_ask *ask,
                          bs_error *err) {
  s->device = d;
  s->given = &ask->knobs;
  s->kind = op->kind;
  const int32_t rc = check_given(op, ask->op, s->given, err);
  if (rc != BS_OK) return rc;
  if (!given_tiles(s)) device_tiles(s, op);
  if (s->n_tiles > 0) return BS_OK;
  if (s->given->n[TM] + s->given->n[TN] + s->given->n[TK] == 0) return sim_program_no_tiles(d, s->kind, err);
  bs_error_set(err, BS_CONFIG, "BS-INSIDE-KNOB", "device %s has no tile with these knobs", d->name);
  bs_error_hint(err, s->kind == SIM_OP_PRODUCT ? "give all of tm, tn and tk" : "give both of tm and tn");
  return BS_CONFIG;
}

/* Value number *inout_i of a knob; *inout_i is what is left for the knobs that follow. */
static uint32_t pick(const uint32_t *values, uint32_t n, uint32_t fallback, uint32_t *inout_i) {
  if (n == 0) return fallback;
  const uint32_t at = *inout_i % n;
  *inout_i /= n;
  return values[at];
}

/* As sim/choose.h has it. */
static int candidate(const void *user, uint32_t i, sim_knobs *out) {
  const space *s = user;
  const bs_inside_knobs *k = s->given;
  const int of_device = k->n[STAGES] == 0;
  if (s->n_tiles == 0) return 0;
  *out = s->tiles[i % s->n_tiles];
  out->where_first = s->where.where_first;
  out->where_places = s->where.where_places;
  i /= s->n_tiles;
  out->stages = pick(of_device ? s->device->stages : k->values[STAGES],
                     of_device ? s->device->n_stages : k->n[STAGES], 2, &i);
  out->group = pick(k->values[GROUP], k->n[GROUP], s->kind == SIM_OP_PRODUCT ? s->device->group : 1, &i);
  out->accumulators = pick(k->values[ACCUMULATORS], k->n[ACCUMULATORS], 1, &i);
  out->grain = pick(k->values[GRAIN], k->n[GRAIN], 0, &i);
  out->resident = pick(k->values[RESIDENT], k->n[RESIDENT], out->resident, &i);
  out->split = pick(k->values[SPLIT], k->n[SPLIT], 1, &i);
  out->rows = pick(k->values[ROWS], k->n[ROWS], 0, &i);
  if (s->kind == SIM_OP_ATTENTION) { /* without the knob: not ahead, and one ahead where a slot is left */
    static const uint32_t both[] = {0, 1};
    const int given = k->n[AHEAD] > 0;
    out->ahead = pick(given ? k->values[AHEAD] : both, given ? k->n[AHEAD] : out->stages > 1 ? 2 : 1, 0, &i);
  }
  return i == 0;
}

/* Makes the program in place of the one before, and runs it. */
static int32_t make_again(bs_inside_answer *a, const sim_knobs *knobs, bs_error *err) {
  sim_program_close(&a->program);
  return sim_program_make(&a->layout, &a->what, knobs, &a->program, err);
}

static int32_t run_once(bs_inside_answer *a, const sim_inside_config *hooks, void *told,
                        sim_inside_result *out, bs_error *err) {
  return sim_run_once(&a->program, &a->layout, hooks, told, out, err);
}

/* *out_last: the best was simulated last. */
static int32_t choose(bs_inside_answer *a, const space *s, double least_gain, sim_knobs *out_best,
                      int *out_last, bs_error *err) {
  const sim_choose c = {
      .layout = &a->layout, .op = &a->what, .least_gain = least_gain, .candidate = candidate, .user = s};
  sim_chosen chosen;
  const int32_t rc = sim_choose_run(&c, &a->program, &chosen, err);
  a->tried = chosen.tried;
  a->skipped = chosen.skipped;
  a->result = chosen.result;
  *out_best = chosen.knobs;
  *out_last = (int)chosen.is_last;
  return rc;
}

/* ------------------------------------------------------------------------------------------------ */

static void note_end(void *user, uint32_t lane, uint64_t index, const sim_job *job, uint64_t begin,
                     uint64_t end) {
  const sim_program *p = user;
  uint64_t *ends = p->told;
  (void)index;
  (void)job;
  (void)begin;
  if (end > ends[lane]) ends[lane] = end;
}

/* The chosen run, and when each lane ended. */
static int32_t run_best(bs_inside_answer *a, bs_error *err) {
  const sim_inside_config hooks = {.done = note_end};
  a->lane_ends = calloc(a->layout.device->lanes, sizeof *a->lane_ends);
  if (a->lane_ends == NULL) return bs_no_memory(err, "the ends of lanes");
  return run_once(a, &hooks, a->lane_ends, &a->result, err);
}

/* Every lane begins at the stamp of the launch, and its answer goes back. */
static int32_t add_launch(bs_inside_answer *a, bs_error *err) {
  const int32_t rc =
      sim_launch_around(&a->layout, a->lane_ends, a->result.settled, &a->stamp, &a->whole, err);
  if (rc != BS_OK) return rc;
  json_t *total = json_array_get(a->rows, json_array_size(a->rows) - 1);
  json_object_set_new(total, "launch_us", json_real((double)a->stamp * 1e-6));
  json_object_set_new(total, "whole_us", json_real((double)a->whole * 1e-6));
  return BS_OK;
}

int32_t bs_inside_kind(const char *op, uint32_t *out_kind, bs_error *err) {
  char text[160];
  uint32_t dtype = 0;
  sim_op what = {0};
  const int32_t rc = bs_inside_op_read(op, 0, &what, &dtype, text, sizeof text, err);
  *out_kind = what.kind;
  return rc;
}

/* A memory of a place has its own copy of what its lanes read (docs/inside.md, "The file"). */
static int32_t check_memory(const bs_inside_answer *a, bs_error *err) {
  const sim_device *d = a->layout.device;
  const uint32_t class = sim_device_memory(d);
  double copied, divided;
  if (class == SIM_CLASSES || d->classes[class].bytes == 0) return BS_OK;
  const sim_class *c = &d->classes[class];
  const double parts = a->layout.n[class], has = (double)c->bytes * d->levels[c->level].places / parts;
  bs_inside_op_bytes(&a->what, &copied, &divided);
  const double needs = copied + ceil(divided / parts);
  if (needs <= has) return BS_OK;
  bs_error_set(err, BS_NO_MEMORY, "BS-INSIDE-MEMORY",
               "the operands of %s need %.0f bytes of one memory %s of device %s, which has %.0f", a->op,
               needs, c->name, d->name, has);
  bs_error_hint(err, "a smaller shape or dtype; or parts.%s.bytes in the device's file", c->name);
  return BS_NO_MEMORY;
}

/* The op, its layout and the candidates. */
static int32_t prepare(const sim_device *device, const bs_inside_ask *ask, bs_inside_answer *out, space *s,
                       bs_error *err) {
  uint32_t dtype = 0;
  memset(out, 0, sizeof *out);
  int32_t rc = bs_inside_op_read(ask->op, ask->epilogue, &out->what, &dtype, out->op, sizeof out->op, err);
  if (rc != BS_OK) return rc;
  rc = make_space(s, device, &out->what, ask, err);
  if (rc == BS_OK) rc = sim_program_layout(device, &out->what, dtype, &out->layout, err);
  if (rc == BS_OK) rc = check_memory(out, err);
  return rc == BS_OK ? read_where(&out->layout, ask->knobs.where, &s->where, err) : rc;
}

/* Chooses, and makes the program. *out_simulated: its run was the last. */
static int32_t find(const sim_device *device, const bs_inside_ask *ask, bs_inside_answer *out,
                    int *out_simulated, bs_error *err) {
  sim_knobs best = {0};
  space s = {0};
  int32_t rc = prepare(device, ask, out, &s, err);
  if (ask->chosen != NULL)
    best = *ask->chosen;
  else if (rc == BS_OK)
    rc = choose(out, &s, ask->least_gain, &best, out_simulated, err);
  if (rc == BS_OK) rc = make_again(out, &best, err);
  if (rc == BS_OK) say_knobs(&out->program, out->what.kind, out->knobs, sizeof out->knobs);
  if (rc == BS_OK && ask->knobs.where[0] != '\0')
    snprintf(out->knobs + strlen(out->knobs), sizeof out->knobs - strlen(out->knobs), ";where=%s",
             ask->knobs.where);
  return rc;
}

/* Makes the candidates, one after the other, until the device can hold one. */
static int32_t make_any(bs_inside_answer *a, const space *s, bs_error *err) {
  bs_error first = BS_ERROR_INIT;
  sim_knobs knobs;
  for (uint32_t i = 0; candidate(s, i, &knobs); i++) {
    bs_error why = BS_ERROR_INIT;
    if (make_again(a, &knobs, &why) == BS_OK) return BS_OK;
    if (i == 0 || !sim_left_out(&why)) first = why;
    if (!sim_left_out(&why)) break;
  }
  if (err != NULL) *err = first;
  return first.code;
}

int32_t bs_inside_fits(const sim_device *device, const char *op, bs_error *err) {
  const bs_inside_ask ask = {.op = op};
  bs_inside_answer a;
  space s = {0};
  int32_t rc = prepare(device, &ask, &a, &s, err);
  if (rc == BS_OK) rc = make_any(&a, &s, err);
  bs_inside_close(&a);
  return rc;
}

int32_t bs_inside_best(const sim_device *device, const bs_inside_ask *ask, bs_inside_answer *out,
                       bs_error *err) {
  int simulated = 0;
  const int32_t rc = find(device, ask, out, &simulated, err);
  return rc == BS_OK && !simulated ? run_once(out, NULL, NULL, &out->result, err) : rc;
}

int32_t bs_inside_open(const sim_device *device, const bs_inside_ask *ask, bs_inside_answer *out,
                       bs_error *err) {
  int simulated = 0;
  int32_t rc = find(device, ask, out, &simulated, err);
  if (rc == BS_OK) rc = run_best(out, err);
  if (rc == BS_OK) rc = bs_inside_rows(out, err);
  return rc == BS_OK ? add_launch(out, err) : rc;
}

int32_t bs_inside_again(bs_inside_answer *a, uint64_t *out_ps, bs_error *err) {
  sim_inside_result result = {0};
  const int32_t rc = run_once(a, NULL, NULL, &result, err);
  *out_ps = result.settled;
  return rc;
}

int32_t bs_inside_rerun(bs_inside_answer *a, const sim_inside_config *hooks, void *told, bs_error *err) {
  sim_inside_result result;
  return run_once(a, hooks, told, &result, err);
}

void bs_inside_close(bs_inside_answer *a) {
  json_decref(a->rows);
  sim_program_close(&a->program);
  sim_layout_free(&a->layout);
  free(a->lane_ends);
  a->rows = NULL;
  a->lane_ends = NULL;
}

/* ---- values of a device ------------------------------------------------------------------------ */

static void add_value(bs_inside_knobs *k, uint32_t knob, uint32_t value) {
  for (uint32_t i = 0; i < k->n[knob]; i++)
    if (k->values[knob][i] == value) return;
  if (k->n[knob] < BS_INSIDE_VALUES) k->values[knob][k->n[knob]++] = value;
}

int32_t bs_inside_own_values(const sim_device *d, const char *op, bs_inside_knobs *out, bs_error *err) {
  bs_inside_answer a = {.op = ""};
  const bs_inside_ask ask = {.op = op};
  uint32_t dtype = 0;
  space s = {0};
  memset(out, 0, sizeof *out);
  int32_t rc = bs_inside_op_read(op, 0, &a.what, &dtype, a.op, sizeof a.op, err);
  if (rc == BS_OK && make_space(&s, d, &a.what, &ask, NULL) != BS_OK) s.n_tiles = 0; /* --knob gives them */
  for (uint32_t t = 0; rc == BS_OK && t < s.n_tiles; t++) {
    const uint32_t tile = knobs_of[s.kind].tile;
    if (tile & OF(TM)) add_value(out, TM, s.tiles[t].tm);
    if (tile & OF(TN)) add_value(out, TN, s.tiles[t].tn);
    if (tile & OF(TK)) add_value(out, TK, s.tiles[t].tk);
    if ((knobs_of[s.kind].further & OF(RESIDENT)) && d->lanes_each > 1)
      add_value(out, RESIDENT, s.tiles[t].resident > 0 ? s.tiles[t].resident : d->lanes_each);
  }
  for (uint32_t i = 0; i < d->n_stages; i++) add_value(out, STAGES, d->stages[i]);
  if (d->n_stages == 0) add_value(out, STAGES, 2);
  for (uint32_t i = 0; i < 2 && s.kind == SIM_OP_ATTENTION; i++) add_value(out, AHEAD, i);
  return rc;
}

/* ---- a trace ----------------------------------------------------------------------------------- */

typedef struct tracing {
  const sim_layout *l;
  sim_trace *trace;
} tracing;

static void trace_stop(void *user, const sim_passed *at) {
  const sim_program *p = user;
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
  sim_trace_names(trace, trace_name, &a->layout);
  return run_once(a, &hooks, &t, &result, err);
}
