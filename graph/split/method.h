/* SPDX-License-Identifier: MIT
 * method.h - a model over many ranks. A session over a world (front.c) opens a member session on each rank.
 * All lower the same graph. A product whose weight and bias are constants becomes a layer of a method
 * (method.c, layer.c), which holds this rank's part of the weight and gives the whole y. */
#ifndef BS_GRAPH_SPLIT_METHOD_H
#define BS_GRAPH_SPLIT_METHOD_H
#include "graph/run/run.h"

/* How products are split: the session's options, copied but for the mask. */
typedef struct gmethod {
  char *method;
  char **keys, **values; /* method.KEY options; n_options, and one for `repro` */
  uint32_t n_options;
  uint32_t repro; /* enum bs_repro that every layer must promise */
  uint32_t bits;  /* enum bs_session_bits */
  const bs_mask *mask;
  int64_t tokens; /* rows that layers are built for, at least */
  uint32_t world_size;
} gmethod;

/* A layer of a session's rank. */
typedef struct glayer {
  gweight weight, bias; /* bias.rows 0: none */
  bs_layer_spec spec;   /* B: the rows that it was built for */
  bs_proposal proposal;
  bs_layer *layer;
  uint64_t bytes; /* of the weights that the rank owns */
} glayer;

/* NULL in *out_split where the options name no method. gmethod_free(NULL) does nothing. */
int32_t gmethod_make(bs_context *context, const bs_session_options *options, uint32_t world_size,
                     gmethod **out_split, bs_error *err);
void gmethod_free(gmethod *split);

/* The spec of a product as a layer; BS_UNSUPPORTED: no method can take the product, and why. */
int32_t gmethod_spec(const gmethod *split, const graph *g, const gnode *node, bs_layer_spec *out_spec,
                     bs_error *err);
/* What the method proposes for a product of the graph, on one rank. BS_UNSUPPORTED, BS_CONFIG: it does not
 * take the product. */
int32_t gmethod_propose(bs_context *context, const gmethod *split, const graph *g, const gnode *node,
                        uint32_t rank, bs_proposal *out_proposal, bs_error *err);
/* Marks the products that the method takes, and puts copies around those whose x or y has gaps between its
 * rows. BS_UNSUPPORTED (BS-GRAPH-SPLIT): it takes none, and why it refuses the first one. */
int32_t gmethod_mark(bs_context *context, const gmethod *split, graph *g, bs_error *err);

/* The layer of a marked product: found among those of the core, or built; built again where the product has
 * more rows than it was built for. The rank is entered, the core locked. Every rank calls it. */
int32_t glayer_get(gcore *core, grank *rank, const graph *g, const gnode *node, glayer **out_layer,
                   bs_error *err);
/* What the method proposes for the rows of the binding, on this rank. */
int32_t glayer_propose(const gbinding *binding, const gstep *step, bs_proposal *out_proposal, bs_error *err);
int32_t glayer_run(const glayer *layer, bs_tensor *const *args, bs_error *err);
/* Frees all layers of a core. The rank that built them is entered. */
void glayer_free_all(gcore *core);
#endif
