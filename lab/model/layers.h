/* SPDX-License-Identifier: MIT
 * layers.h - compares the outputs of the products of a float model with those of copies of the model.
 * Products are matched by the names of their weights. */
#ifndef BS_LAB_MODEL_LAYERS_H
#define BS_LAB_MODEL_LAYERS_H
#include <jansson.h>

#include "blockshock/graph.h"
#include "lab/model/grids.h"

/* The limit of a layer's measured / predicted error. Below BS_LAYERS_LEAST the error is much smaller than
 * rounding explains. */
#define BS_LAYERS_LIMIT 2.0
#define BS_LAYERS_LEAST 0.5
enum { BS_LAYERS_COPIES = 5 }; /* the measured model, then the noisy ones */

/* A product: its output of the last run of the float model, and sums of squares over all runs. */
typedef struct bs_layer {
  char *name; /* of its weight in the float model; products of one weight are in the order of the run */
  float *values;
  uint64_t count;
  double size, changed[BS_LAYERS_COPIES];
  uint32_t compared[BS_LAYERS_COPIES];
} bs_layer;

typedef struct bs_layers {
  bs_layer *rows;
  size_t n, room;
  const bs_grids *grids;
  uint32_t copy;       /* the copy that runs now */
  const void *pending; /* of a product of whole numbers: its sums, which become floats later */
  size_t pending_row;
  uint32_t *seen; /* of each row, 1: it was met in this run */
  int failed;     /* no memory */
} bs_layers;

/* Run the float model with bs_session_trace and bs_layers_keep, then a copy with bs_layers_compare, on the
 * same inputs; bs_layers_next stands before each run. The sessions are open without the passes that join
 * products with nodes after them. */
void bs_layers_next(bs_layers *layers, uint32_t copy);
void bs_layers_keep(void *layers, const bs_node_trace *row);
void bs_layers_compare(void *layers, const bs_node_trace *row);
/* [{layer, snr, snr_predicted, ratio, limit, ok}] in the order of the run; adds how many are beyond their
 * bound to *failed, and texts to `notes`. */
json_t *bs_layers_result(const bs_layers *layers, json_t *notes, uint64_t *failed);
void bs_layers_free(bs_layers *layers);
#endif
