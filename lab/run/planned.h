/* SPDX-License-Identifier: MIT
 * planned.h - a point of a sweep as its supervisor hands it to `run --planned`: a file of one JSON object
 * {root, sweep, point, phases, keys, configs, choices, command, argv, tune}; configs are composed trees as
 * YAML, one a phase, command is the sweep's, and argv the words of `bsrun run` for the same point. */
#ifndef BS_LAB_RUN_PLANNED_H
#define BS_LAB_RUN_PLANNED_H
#include "lab/run/run.h"

enum { LAB_PLANNED_PHASES = 2 };

typedef struct lab_planned {
  json_t *input; /* NULL: none was read; strings point into it */
  size_t n_phases;
  const bs_node *trees[LAB_PLANNED_PHASES]; /* their results go below root, into the group of the sweep */
  const char *keys[LAB_PLANNED_PHASES];
  const char *command; /* of the sweep; NULL: none is told */
  json_t *argv;        /* points into input; NULL: not told */
  int tune;            /* tell what serves, and run nothing */
} lab_planned;

/* BS_INPUT (BS-POINT-FILE) for a file that is none; BS_CONFIG for a tree that cannot be parsed. Free it in
 * any case. */
int32_t lab_planned_read(const char *path, lab_planned *out, bs_error *err);
void lab_planned_free(lab_planned *planned);
/* Sets what of a point is planned; `point` points into it. */
void lab_planned_point(const lab_planned *planned, lab_point *point);
#endif
