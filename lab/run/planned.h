/* SPDX-License-Identifier: MIT
 * planned.h - a point of a sweep in the form that the supervisor gives `run --planned`: a file of one JSON
 * object {root, sweep, point, phases, keys, configs, choices, command, argv, tune}. configs are composed
 * trees as YAML, one a phase, command is the sweep's, and argv the words of `bsrun run` for the same
 * point. */
#ifndef BS_LAB_RUN_PLANNED_H
#define BS_LAB_RUN_PLANNED_H
#include "lab/run/run.h"

enum { LAB_PLANNED_PHASES = 2 };

typedef struct lab_planned {
  json_t *input; /* NULL: not read; strings point into it */
  size_t n_phases;
  const bs_node *trees[LAB_PLANNED_PHASES]; /* their results go below root, into the group of the sweep */
  const char *keys[LAB_PLANNED_PHASES];
  const char *command; /* of the sweep; NULL: unknown */
  json_t *argv;        /* points into input; NULL: unknown */
  int tune;            /* report the choices, and run nothing */
} lab_planned;

/* BS_INPUT (BS-POINT-FILE): the file is not a point; BS_CONFIG: a tree cannot be parsed. Free it in any
 * case. */
int32_t lab_planned_read(const char *path, lab_planned *out, bs_error *err);
void lab_planned_free(lab_planned *planned);
/* Sets the planned members of a point; `point` points into it. */
void lab_planned_point(const lab_planned *planned, lab_point *point);
#endif
