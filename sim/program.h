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
enum sim_what {
  SIM_LOAD_A = 0,
  SIM_LOAD_B,
  SIM_PRODUCT,
  SIM_EPILOGUE,
  SIM_STORE,
  SIM_LOAD, /* of a map, a copy or a send */
  SIM_MAP,
  SIM_SEND_PUT,
  SIM_SEND_GET,
  SIM_LOAD_Q,
  SIM_LOAD_K,
  SIM_LOAD_V,
  SIM_SCORES, /* Q K^T */
  SIM_EXP,
  SIM_VALUES, /* P V */
  SIM_WHATS
};

typedef struct sim_knobs {
  /* A tile. Product: rows and columns of Y, and the depth. Attention: tm queries, tn keys. Others: tm
   * elements. */
  uint32_t tm, tn, tk;
  uint32_t stages;                    /* slots of A and B each */
  uint32_t group;                     /* rows of tiles that lanes take together; 0: 1 */
  uint32_t accumulators;              /* tiles of Y that a lane holds; 0: 1 */
  uint32_t grain;                     /* steps of the depth in one token; 0: as program.c chooses */
  uint32_t rows;                      /* 1: operands lie row by row, not tile by tile */
  uint32_t where_first, where_places; /* places of the lanes' level that work, one after the other; 0: all */
  /* Product: parts of the depth, each with tiles of its own, that are stored as sums in f32 without an
   * epilogue. sim_program adds them behind a barrier. 0: 1. */
  uint32_t split;
  uint32_t resident; /* lanes of a place that take tiles, of a product as many as have room; 0: all */
  uint32_t ahead;    /* attention: products of later scores that go before P V; less than stages */
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
uint64_t sim_product_jobs(const sim_product *p); /* of all lanes */
/* ps that no run of the program can be below: of each class the amount over the rate of all its units. */
uint64_t sim_product_bound(const sim_product *p);
/* Runs it on the layout that it was made for, or one of the same classes: sim_layout_reset comes first.
 * `told` hooks may be NULL. */
int32_t sim_product_run(sim_product *p, sim_layout *layout, const sim_inside_config *hooks,
                        sim_inside_result *out, bs_error *err);

/* ---- other ops ---------------------------------------------------------------------------------- */

/* Of each head O = softmax(Q K^T) V. Query s sees keys from s + sees_from on and before s + sees_end, as far
 * as there are keys. The vector unit has one exp of each score; the division by its sum is not counted. */
typedef struct sim_attention_shape {
  uint64_t heads, group; /* all heads of all batches; so many follow each other with one K and V */
  uint64_t s, t, d, e;
  int64_t sees_from, sees_end; /* SIM_SEES_FIRST, SIM_SEES_LAST: no limit */
  uint32_t in_bytes, out_bytes;
} sim_attention_shape;
#define SIM_SEES_FIRST (-(INT64_C(1) << 40))
#define SIM_SEES_LAST (INT64_C(1) << 40)

/* Of each element: inputs are loaded, `ops` done by the vector unit, outputs stored. Ops 0: a copy. An output
 * has one element of each `out_of` of the inputs. */
typedef struct sim_map_shape {
  uint64_t elements, row, out_of; /* 0: 1 */
  uint32_t inputs, outputs, in_bytes, out_bytes, ops;
} sim_map_shape;

/* Each lane loads its share of the bytes, puts it tile by tile into the queue of the lane `shift` further on,
 * and stores what it gets. */
typedef struct sim_send_shape {
  uint64_t elements;
  uint32_t bytes, shift;
} sim_send_shape;

enum { SIM_SPLIT_MOST = 8 };
enum { SIM_MAP_INPUTS = 8, SIM_MAP_OUTPUTS = 3 }; /* and at most SIM_NEEDS together */
enum sim_op_kind { SIM_OP_PRODUCT = 0, SIM_OP_ATTENTION, SIM_OP_MAP, SIM_OP_SEND, SIM_OPS };

typedef struct sim_op {
  uint32_t kind; /* enum sim_op_kind */
  union {
    sim_product_shape product;
    sim_attention_shape attention;
    sim_map_shape map;
    sim_send_shape send;
  };
} sim_op;

/* What all programs but a product share. */
typedef struct sim_plan {
  const sim_layout *layout;
  sim_knobs knobs;
  uint32_t unit, vector, queue; /* classes; SIM_CLASSES: none */
  bs_error *err;
  int32_t rc; /* of the ways of its jobs */
} sim_plan;

typedef struct sim_attention {
  sim_plan plan;
  sim_attention_shape shape;
  uint64_t query_blocks, blocks; /* of a head; of all */
  uint64_t scores, values;       /* amounts of the two products of a step */
  struct sim_attention_lane *lanes;
} sim_attention;

typedef struct sim_map {
  sim_plan plan;
  sim_map_shape shape;
  uint64_t tiles;
  uint32_t jobs_a_tile, maps; /* maps 0: there is nothing to compute */
} sim_map;

int32_t sim_map_make(const sim_layout *layout, const sim_map_shape *shape, const sim_knobs *knobs,
                     sim_map *out, bs_error *err);
int sim_map_next(sim_map *m, uint32_t lane, uint64_t index, sim_job *out_job);
uint64_t sim_map_bound(const sim_map *m);

typedef struct sim_send {
  sim_plan plan;
  sim_send_shape shape;
  uint64_t share, tiles; /* elements and tiles of a lane */
} sim_send;

typedef struct sim_program {
  const struct sim_program_kind *kind;
  union {
    sim_product product;
    sim_plan plan; /* of all others, whose first member it is */
    sim_attention attention;
    sim_map map;
    sim_send send;
  };
  sim_map adding; /* of a product with split: what follows the barrier */
  int adds;       /* the barrier has been passed */
  void *told;     /* of the hooks of a run: their user is the sim_program */
} sim_program;

/* Tile number i that the device has for an op: of its file, or for maps whole rows of at most about 16,384
 * elements of a place, whose buffers fit with so many stages (0: the device's first). Where one row a lane
 * does not fit, fewer lanes work. 0: there are no more. */
int sim_program_tile(const sim_device *device, const sim_op *op, uint32_t stages, uint32_t i, sim_knobs *out);
/* BS_CONFIG BS-INSIDE-KNOB: the file of the device has no tile for this enum sim_op_kind, with the line that
 * it lacks. */
int32_t sim_program_no_tiles(const sim_device *device, uint32_t kind, bs_error *err);
/* sim_layout_make for an op; dtype: of its operands. */
int32_t sim_program_layout(const sim_device *device, const sim_op *op, uint32_t dtype, sim_layout *out,
                           bs_error *err);
/* The errors of sim_product_make. Close it in every case. */
int32_t sim_program_make(const sim_layout *layout, const sim_op *op, const sim_knobs *knobs, sim_program *out,
                         bs_error *err);
void sim_program_close(sim_program *p);
/* `next` of inside.h: the index of each lane counts from 0, without a gap. */
int sim_program_next(void *user, uint32_t lane, uint64_t index, sim_job *out_job);
uint64_t sim_program_bound(const sim_program *p);
uint32_t sim_program_kind_of(const sim_program *p); /* enum sim_op_kind */
/* Of all lanes, without the adding of a product's partial sums. */
uint64_t sim_program_jobs(const sim_program *p);
const sim_knobs *sim_program_knobs(const sim_program *p);
/* The class of units that its products run on; SIM_CLASSES: none. */
uint32_t sim_program_unit(const sim_program *p);
/* FLOP of the op itself, without what tiles waste; 0: it has no products. */
double sim_op_flops(const sim_op *op);
int32_t sim_program_run(sim_program *p, sim_layout *layout, const sim_inside_config *hooks,
                        sim_inside_result *out, bs_error *err);
#endif
