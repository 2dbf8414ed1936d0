/* SPDX-License-Identifier: MIT
 * inside_rows.c - see inside_rows.h. */
#include "lab/sim/inside_rows.h"

#include <stdio.h>
#include <string.h>

#include "lab/error.h"
#include "sim/choose.h"

#define BINDS_FROM 1e-3 /* of the time: below it no class is said to bind */

typedef struct did {
  uint64_t jobs, amount, busy, waited, waits, gaps;
  double most; /* of one part, over the time */
} did;

static did sum(const sim_layout *l, uint32_t class, uint64_t time) {
  did d = {0};
  for (uint32_t i = 0; i < l->n[class]; i++) {
    const sim_part *p = &l->parts[l->base[class] + i];
    d.jobs += p->jobs;
    d.amount += p->amount;
    d.busy += p->busy;
    d.waited += p->waited;
    d.waits += p->waits;
    d.gaps += p->gaps;
    const double share = time > 0 ? (double)p->busy / (double)p->workers / (double)time : 0;
    if (share > d.most) d.most = share;
  }
  return d;
}

static const char *unit_of(const sim_class *c) {
  if (c->kind != SIM_SERVER) return c->kind == SIM_QUEUE ? "" : "B";
  return c->does == SIM_DOES_PRODUCT ? "FLOP" : "";
}

static json_t *number_or_null(int known, double value) {
  return known ? json_real(value) : json_null();
}

/* The time of all of the class's amount, and of the gaps of its pieces, on all of its units. */
static double closed_us(const sim_layout *l, uint32_t class, uint64_t amount, uint64_t gaps) {
  const uint64_t units = sim_layout_units(l, class);
  const uint64_t q32 = l->parts[l->base[class]].q32;
  return units > 0 ? ((double)amount * ((double)q32 / 4294967296.0) + (double)gaps) / (double)units * 1e-6
                   : 0;
}

static json_t *row_of(const bs_inside_answer *a, uint32_t class, const did *d, double time_us) {
  const sim_class *c = &a->layout.device->classes[class];
  const double units = (double)sim_layout_units(&a->layout, class);
  json_t *row = json_pack("{s:s, s:s, s:I, s:I, s:f, s:s}", "part", c->name, "kind",
                          sim_class_kind_name(c->kind), "units", (json_int_t)units, "jobs",
                          (json_int_t)d->jobs, "amount", (double)d->amount, "unit", unit_of(c));
  json_object_set_new(row, "busy_pct", json_real(100 * (double)d->busy * 1e-6 / units / time_us));
  json_object_set_new(row, "most_pct", json_real(100 * d->most));
  json_object_set_new(row, "mean_wait_us",
                      json_real(d->waits > 0 ? (double)d->waited / (double)d->waits * 1e-6 : 0));
  json_object_set_new(row, "mJ", number_or_null(c->pJ >= 0, (double)d->amount * c->pJ * 1e-9));
  json_object_set_new(row, "closed_us", json_real(closed_us(&a->layout, class, d->amount, d->gaps)));
  return row;
}

/* The time with one class faster. The rates of the layout are as before at the next reset. */
static int32_t run_faster(bs_inside_answer *a, uint32_t class, double *out_us, bs_error *err) {
  uint64_t ps = 0;
  a->layout.speed[class] = SIM_FASTER;
  const int32_t rc = bs_inside_again(a, &ps, err);
  a->layout.speed[class] = 0;
  *out_us = (double)ps * 1e-6;
  return rc;
}

static json_t *total_of(const bs_inside_answer *a, double mJ, double time_us) {
  const uint32_t unit = sim_program_unit(&a->program);
  const sim_device *d = a->layout.device;
  const double flops = sim_op_flops(&a->what);
  json_t *row = json_pack("{s:s, s:s, s:s, s:s, s:s, s:I}", "part", "total", "op", a->op, "device", d->name,
                          "label", d->label, "knobs", a->knobs, "lanes", (json_int_t)d->lanes);
  json_object_set_new(row, "us", json_real(time_us));
  json_object_set_new(row, "TFLOPs", json_real(flops / time_us * 1e-6));
  json_object_set_new(row, "flops", json_real(flops));
  const double units_us = flops > 0 ? closed_us(&a->layout, unit, (uint64_t)flops, 0) : 0;
  json_object_set_new(row, "of_units_pct", json_real(100 * units_us / time_us));
  json_object_set_new(row, "jobs", json_integer((json_int_t)a->result.jobs));
  json_object_set_new(row, "events", json_integer((json_int_t)a->result.events));
  json_object_set_new(row, "bound_us", json_real((double)sim_program_bound(&a->program) * 1e-6));
  json_object_set_new(row, "candidates", json_integer(a->tried + a->skipped));
  json_object_set_new(row, "mJ", json_real(mJ));
  return row;
}

/* The class whose 10 % take most off the time; "" where that is next to nothing. */
static const char *binding(const json_t *rows, double time_us) {
  const char *name = "";
  double best = time_us * (1 - BINDS_FROM);
  size_t i;
  const json_t *row;
  json_array_foreach(rows, i, row) {
    const json_t *faster = json_object_get(row, "faster_us");
    if (!json_is_real(faster) || json_real_value(faster) > best) continue;
    best = json_real_value(faster);
    name = json_string_value(json_object_get(row, "part"));
  }
  return name;
}

int32_t bs_inside_rows(bs_inside_answer *a, bs_error *err) {
  const sim_device *device = a->layout.device;
  const double time_us = (double)a->result.settled * 1e-6;
  uint32_t classes[SIM_CLASSES], n = 0;
  double mJ = 0;
  int32_t rc = BS_OK;
  a->rows = json_array();
  if (a->rows == NULL) return bs_no_memory(err, "a table");
  for (uint32_t c = 0; c < device->n_classes; c++) {
    const did d = sum(&a->layout, c, a->result.settled);
    if (d.jobs == 0) continue;
    classes[n++] = c;
    if (device->classes[c].pJ >= 0) mJ += (double)d.amount * device->classes[c].pJ * 1e-9;
    json_array_append_new(a->rows, row_of(a, c, &d, time_us));
  }
  if (device->watts_idle >= 0) { /* of the whole device, all the time */
    const double idle = device->watts_idle * time_us * 1e-3;
    json_array_append_new(a->rows, json_pack("{s:s, s:f}", "part", "idle", "mJ", idle));
    mJ += idle;
  }
  json_t *total = total_of(a, mJ, time_us);
  for (uint32_t i = 0; rc == BS_OK && i < n; i++) {
    double us = 0;
    if (!sim_layout_has_speed(&a->layout, classes[i])) continue;
    rc = run_faster(a, classes[i], &us, err);
    json_object_set_new(json_array_get(a->rows, i), "faster_us", json_real(us));
  }
  const char *binds = binding(a->rows, time_us);
  const uint32_t class = sim_device_class(device, binds);
  json_object_set_new(total, "binds", json_string(binds));
  if (class < device->n_classes && device->classes[class].assumed)
    json_object_set_new(total, "label", json_string("assumed"));
  json_array_append_new(a->rows, total);
  return rc;
}
