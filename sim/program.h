/* SPDX-License-Identifier: MIT
 * program.h - an op on a device as lanes of jobs. A program is made job by job (next of inside.h): its memory
 * does not grow with the op. */
#ifndef BS_SIM_PROGRAM_H
#define BS_SIM_PROGRAM_H
#include "sim/layout.h"

enum {
  SIM_PROGRAM_STAGES = 16,          /* at most, so that a lane's open jobs hold them */
  SIM_PROGRAM_GRAIN_FROM = 400000,  /* tokens beyond which steps are merged */
  SIM_PROGRAM_TOKENS = 64 * 1000000 /* at most */
};

/* What a job is; done() gets it as `what`. */
enum sim_what { SIM_LOAD_A = 0, SIM_LOAD_B, SIM_PRODUCT, SIM_EPILOGUE, SIM_STORE, SIM_WHATS };

typedef struct sim_knobs {
  uint32_t tm, tn, tk;   /* a tile: rows and columns of Y, and its depth */
  uint32_t stages;       /* slots of A and B each */
  uint32_t group;        /* rows of tiles that lanes take together; 0: 1 */
  uint32_t accumulators; /* tiles of Y that a lane holds; 0: 1 */
  uint32_t grain;        /* steps of the depth in one token; 0: as program.c chooses */
  uint32_t rows;         /* 1: operands lie row by row, not tile by tile */
} sim_knobs;

/* Y[m,n] = X[m,k] W[k,n]. */
typedef struct sim_product_shape {
  uint64_t m, n, k;
  uint32_t in_bytes, out_bytes; /* of an element */
  uint32_t epilogue;            /* ops of the vector unit on each element of Y, the conversion among them */
} sim_product_shape;

typedef struct sim_product {
  const sim_layout *layout;
  sim_product_shape shape;
  sim_knobs knobs; /* as they are used: grain is set */
  uint32_t depth;  /* tk * grain */
  uint64_t row_tiles, column_tiles, tiles, steps, jobs_a_tile;
  uint64_t amount;       /* of one product on its unit */
  uint32_t unit, vector; /* classes; vector SIM_CLASSES: none */
  bs_error *err;
  int32_t rc; /* of the ways of its jobs */
  void *told; /* of the hooks of a run: their user is the sim_product */
} sim_product;

/* BS_NO_MEMORY BS-INSIDE-SCRATCH, BS_CONFIG BS-INSIDE-KNOB (a knob that is 0 or too large), BS_CONFIG
 * BS-INSIDE-SIZE (too many tokens), BS_UNSUPPORTED BS-INSIDE-OP: the device has no unit for products. */
int32_t sim_product_make(const sim_layout *layout, const sim_product_shape *shape, const sim_knobs *knobs,
                         sim_product *out, bs_error *err);
/* `next` of inside.h; user is the sim_product. Look at rc behind the run. */
int sim_product_next(void *user, uint32_t lane, uint64_t index, sim_job *out_job);
const char *sim_what_name(uint32_t what);
/* ps that no run of the program can be below: of each class the amount over the rate of all its units. */
uint64_t sim_product_bound(const sim_product *p);
/* Runs it on the layout that it was made for, or one of the same classes: sim_layout_reset comes first.
 * `told` hooks may be NULL. */
int32_t sim_product_run(sim_product *p, sim_layout *layout, const sim_inside_config *hooks,
                        sim_inside_result *out, bs_error *err);
#endif
