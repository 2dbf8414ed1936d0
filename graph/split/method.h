/* SPDX-License-Identifier: MIT
 * method.h - a model over many ranks. A session over a world (front.c) opens a member session on each rank.
 * All lower the same graph. A product whose weight and bias are constants becomes a layer of a method, which
 * holds this rank's part of the weight (layer.c). One method M: x and y of every layer are whole on each
 * rank. Two, F+S: between a product F and products S all values are split over the ranks (pair.h), and each
 * rank has the graph of its part (mark.c). */
#ifndef BS_GRAPH_SPLIT_METHOD_H
#define BS_GRAPH_SPLIT_METHOD_H
#include "graph/run/run.h"

/* One method, with those of the session's options that it has. */
typedef struct gmethod_arm {
  const bs_method *method;
  char *name;
  char **keys, **values; /* n_options, and room for one more */
  uint32_t n_options;
} gmethod_arm;

/* Columns that a rank of a method S owns, of weights with so many: known after the first one. */
typedef struct gmethod_probe {
  int64_t k;
  uint32_t x_dtype, w_dtype, y_dtype;
  uint32_t *columns; /* k of them: those of rank 0, ascending, then those of rank 1, .. */
} gmethod_probe;

/* How products are split: the session's options, copied but for the mask. Arm 0 is M or F, arm 1 is S. */
typedef struct gmethod {
  char *text; /* as it was given */
  gmethod_arm arms[2];
  uint32_t n_arms;
  uint32_t repro; /* enum bs_repro that every layer must promise */
  uint32_t bits;  /* enum bs_session_bits */
  const bs_mask *mask;
  int64_t tokens; /* rows that layers are built for, at least */
  uint32_t world_size;
  gmethod_probe *probes;
  uint32_t n_probes, cap_probes;
  struct glead *tell; /* echo.h: where other ranks follow this one; NULL */
} gmethod;

/* A layer of a session's rank. */
typedef struct glayer {
  gweight weight, bias;   /* bias.rows 0: none */
  bs_layer_spec spec;     /* B: the rows that it was built for */
  bs_order rows, columns; /* of the weight, as ranks hold them */
  const gmethod_arm *arm;
  bs_layer *layer;
  bs_rank *rank;             /* that has it */
  const struct glayer *like; /* whose layer serves it too (echo.h); NULL: its own */
  uint64_t bytes;            /* of the weights that the rank owns */
} glayer;

/* NULL in *out_method where the options name no method. gmethod_free(NULL) does nothing. */
int32_t gmethod_make(bs_context *context, const bs_session_options *options, uint32_t world_size,
                     gmethod **out_method, bs_error *err);
void gmethod_free(gmethod *method);

/* The spec of a product as a layer of that role, and the arm that takes it. BS_UNSUPPORTED: no method can
 * take the product, and why. bias: a value of the graph; GNONE: none. */
int32_t gmethod_spec(const gmethod *method, const graph *g, const gnode *node, uint32_t role, uint32_t bias,
                     const gmethod_arm **out_arm, bs_layer_spec *out_spec, bs_error *err);
/* Returns what the method proposes for it on one rank. BS_UNSUPPORTED, BS_CONFIG: it does not take the
 * product. */
int32_t gmethod_propose(bs_context *context, const gmethod *method, const graph *g, const gnode *node,
                        uint32_t role, uint32_t bias, uint32_t rank, bs_proposal *out_proposal,
                        bs_error *err);
/* The columns of a layer S that each rank owns, rank after rank. All ranks ask together the first time.
 * BS_UNSUPPORTED: they are not K/P columns of each rank, or differ by row. */
int32_t gmethod_columns(gmethod *method, bs_rank *rank, const bs_layer_spec *spec,
                        const uint32_t **out_columns, bs_error *err);

/* Turns the graph of a model into that of a rank: marks the products that are layers, cuts the values between
 * F and S, and puts copies around layers whose x or y has gaps between its rows. The rank is entered.
 * BS_UNSUPPORTED (BS-GRAPH-SPLIT): the methods take no product, and why the first one is refused. */
int32_t gmethod_mark(gmethod *method, grank *rank, graph *g, bs_error *err);
/* Only for tests of the checks: each rank calls it for its marked graph. NULL: not called. */
extern int32_t (*gmethod_fault)(graph *g, bs_error *err);

/* Memory for one call of any layer of the graph, which all of them share. The rank is entered, the core
 * locked. */
int32_t glayer_room(gcore *core, grank *rank, const graph *g, bs_error *err);
/* The layer of a marked product: found among those of the core, or built; built again where the product has
 * more rows than it was built for. The rank is entered, the core locked. Every rank calls it. */
int32_t glayer_get(gcore *core, grank *rank, const graph *g, const gnode *node, glayer **out_layer,
                   bs_error *err);
/* Returns what the method proposes for the rows of the binding, on this rank. */
int32_t glayer_propose(const gbinding *binding, const gstep *step, bs_proposal *out_proposal, bs_error *err);
int32_t glayer_run(const glayer *layer, bs_tensor *const *args, bs_error *err);
/* The whole x of a layer S, dense, in the order in which ranks hold its columns; the caller frees it. Every
 * rank calls it. */
int32_t glayer_gather(grank *rank, const bs_tensor *x, bs_tensor *out_whole, bs_error *err);
/* Frees all layers of a core. The rank that built them is entered. */
void glayer_free_all(gcore *core);
#endif
