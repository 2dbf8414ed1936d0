/* SPDX-License-Identifier: MIT
 * inside.h - one op inside of a device: `bsrun sim explain --inside OP --device D`. The tile that is fastest,
 * what each class of parts did, what it would take if that class were 10 % faster, and energy. */
#ifndef BS_LAB_SIM_INSIDE_H
#define BS_LAB_SIM_INSIDE_H
#include <jansson.h>

#include "sim/program.h"
#include "sim/trace.h"

enum { BS_INSIDE_KNOBS = 11, BS_INSIDE_VALUES = 8 };
extern const char *const bs_inside_knob_names[BS_INSIDE_KNOBS]; /* in the order of bs_inside_knobs */

/* Values that are tried of each knob; none: those of the device's tiles, or the default. */
typedef struct bs_inside_knobs {
  uint32_t n[BS_INSIDE_KNOBS], values[BS_INSIDE_KNOBS][BS_INSIDE_VALUES];
  char where[48]; /* "pe0-15.cube0", "cube1": the places that work; empty: all */
} bs_inside_knobs;

typedef struct bs_inside_ask {
  const char *op;    /* of inside_op.h */
  uint32_t epilogue; /* further ops on each element of Y */
  bs_inside_knobs knobs;
  const sim_knobs *chosen; /* NULL: the fastest */
  double least_gain;       /* a candidate that cannot be faster than the best by this share is left out */
} bs_inside_ask;

/* A run that was chosen. */
typedef struct bs_inside_answer {
  char op[160], knobs[160];
  sim_op what;
  sim_layout layout;
  sim_program program;
  sim_inside_result result;
  uint32_t tried, skipped; /* candidates that were simulated; those that could not win or do not fit */
  uint64_t stamp, whole;   /* ps: the launch; launch, run and answers */
  uint64_t *lane_ends;     /* of the chosen run, without the launch */
  json_t *rows;            /* a row a class, and one whose part is "total" */
} bs_inside_answer;

/* "tm=128,256;stages=2" into values. BS_USAGE BS-INSIDE-KNOB, with the nearest name. */
int32_t bs_inside_knobs_read(const char *text, bs_inside_knobs *knobs, bs_error *err);
/* The values that the device's tiles and stages have for an op, in the order of its file; no value: the op
 * has no such knob, or the file says nothing. BS_USAGE, BS_UNSUPPORTED as bs_inside_open. */
int32_t bs_inside_own_values(const sim_device *device, const char *op, bs_inside_knobs *out, bs_error *err);
/* The first value of each knob; BS_CONFIG BS-INSIDE-KNOB: a knob of the tile of this enum sim_op_kind, or
 * stages, is not given. */
int32_t bs_inside_knobs_first(const bs_inside_knobs *knobs, uint32_t kind, sim_knobs *out, bs_error *err);
/* BS_USAGE: no such op; BS_UNSUPPORTED BS-INSIDE-OP: none that has a program; BS_NO_MEMORY BS-INSIDE-MEMORY:
 * its operands do not fit into a memory of the device; and the errors of sim/choose.h. Close it in every
 * case. The device must live as long. */
int32_t bs_inside_open(const sim_device *device, const bs_inside_ask *ask, bs_inside_answer *out,
                       bs_error *err);
/* BS_OK: the op has a program, of this enum sim_op_kind. BS_USAGE, BS_UNSUPPORTED as above. */
int32_t bs_inside_kind(const char *op, uint32_t *out_kind, bs_error *err);
/* BS_OK: the device can hold the op's program with one of its own tiles. Errors as bs_inside_open; nothing is
 * simulated. */
int32_t bs_inside_fits(const sim_device *device, const char *op, bs_error *err);
/* bs_inside_best does the same as bs_inside_open and makes no rows. */
int32_t bs_inside_best(const sim_device *device, const bs_inside_ask *ask, bs_inside_answer *out,
                       bs_error *err);
/* Runs the chosen program once more, with rates as layout.speed has them. */
int32_t bs_inside_again(bs_inside_answer *answer, uint64_t *out_ps, bs_error *err);
/* Runs the chosen program once more with hooks, whose user is the sim_program; its `told` is told. The layout
 * then has what its parts did. */
int32_t bs_inside_rerun(bs_inside_answer *answer, const sim_inside_config *hooks, void *told, bs_error *err);
void bs_inside_close(bs_inside_answer *answer);
/* Runs the chosen program once more and puts its spans into a trace: a rank a lane, a lane a class. */
int32_t bs_inside_trace(bs_inside_answer *answer, sim_trace *trace, bs_error *err);
#endif
