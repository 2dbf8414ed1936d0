/* SPDX-License-Identifier: MIT
 * plan.h - the plan of a sweep, <root>/<sweep>/plan.jsonl: a header, a line a point, and a last line with
 * their number and sum. It is on the disk before the first point runs and never changes. So after any crash
 * it shows what is missing. Also the sweep's lock, which the kernel releases when its holder dies. */
#ifndef BS_LAB_SWEEP_PLAN_H
#define BS_LAB_SWEEP_PLAN_H
#include <jansson.h>

#include "blockshock/blockshock.h"

/* A point is an object:
 *   i             its number, from 0
 *   request_key   of the point: that of its only phase, or the sum of both phases' keys
 *   settings      {key: value} of the axes
 *   duplicate_of  number of an earlier point with the same request, or null
 *   refused       why it cannot run here (a text with the numbers), or null
 *   phases, keys, configs   of each phase its name, its request key, its composed tree as YAML
 *   layer         sum of all that tuning depends on: points of one layer share their choices; null: no tuning
 *   alone         true: it measures the machine's clock, so nothing else may run at the same time */

/* The folder of a sweep, held by this process. */
typedef struct bs_sweep_folder {
  char *path;
  int fd, lock_fd;
} bs_sweep_folder;

/* Creates <root>/<id>, which must have no plan yet, or with `existing` opens it; then takes its lock. BS_BUSY
 * (BS-SWEEP-LOCK): another process holds it. BS-SWEEP-EXISTS: the sweep exists already. BS_INPUT
 * (BS-SWEEP-NONE): there is no sweep to open. BS_IO. Close it in any case. */
int32_t bs_sweep_folder_open(const char *root, const char *id, int existing, bs_sweep_folder *out,
                             bs_error *err);
void bs_sweep_folder_close(bs_sweep_folder *folder);
/* Removes a folder without a plan, left by an attempt that could not write it. */
void bs_sweep_folder_drop(bs_sweep_folder *folder);
/* Can anything be written there? BS_IO with the reason. */
int32_t bs_sweep_folder_probe(const bs_sweep_folder *folder, bs_error *err);

/* Writes the plan, and returns when it is on the disk. After BS_IO there is no plan. */
int32_t bs_plan_write(const bs_sweep_folder *folder, const json_t *header, const json_t *points,
                      bs_error *err);
/* BS_INPUT (BS-SWEEP-NONE): no plan; BS_CORRUPT (BS-SWEEP-PLAN): it is incomplete; BS_INPUT (BS-SWEEP-PLAN):
 * it has another format. */
int32_t bs_plan_read(const bs_sweep_folder *folder, json_t **out_header, json_t **out_points, bs_error *err);
#endif
