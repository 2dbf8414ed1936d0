/* SPDX-License-Identifier: MIT
 * noise_x.h - nodes that add noise to X of products, for a copy of an ONNX model (noise.h). */
#ifndef BS_LAB_MODEL_NOISE_X_H
#define BS_LAB_MODEL_NOISE_X_H
#include "formats/onnx_write.h"
#include "lab/model/grids.h"

/* Edits of a copy. Products that read one X in one way read the same noisy X. */
typedef struct bs_noise_x {
  bs_onnx_new_node *nodes;
  bs_onnx_new_tensor *tensors;
  bs_onnx_new_input *inputs;
  size_t n_nodes, n_tensors, n_inputs;
  char **texts;
  struct bs_noise_constant *constants;
  size_t n_texts, n_constants;
  int failed; /* no memory for a text */
} bs_noise_x;

/* The caller frees in every case. */
int32_t bs_noise_x_make(const bs_onnx *floats, const bs_grids *grids, uint64_t seed, bs_noise_x *out,
                        bs_error *err);
void bs_noise_x_free(bs_noise_x *noise);
#endif
