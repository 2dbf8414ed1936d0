/* SPDX-License-Identifier: MIT
 *
 * linear.h - a linear layer of libblockshock-tp, as linear.c, linear_weights.c and mlp.c share it.
 */
#ifndef BS_TP_LINEAR_H
#define BS_TP_LINEAR_H

#include "tp/state.h"

struct bs_tp_linear {
  tp_state *state;
  bs_layer *layer;
  bs_layer_spec spec;
  bs_ownership own;
  bs_tp_linear_shape shape;
  int64_t y_begin;   /* the first feature of the rank's y */
  bs_tensor dw, db;  /* no data: absent */
  bs_tensor bias;    /* of skip_bias_add */
  uint32_t *row_map; /* which row of the caller's W each own row is; NULL: row_begin, row_begin + 1, ... */
};

#endif
