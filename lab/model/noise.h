/* SPDX-License-Identifier: MIT
 * noise.h - a copy of a float model with noise of the size of rounding its weights, and X of its products, to
 * grids (grids.h). Its error predicts that of rounding to the nearest. */
#ifndef BS_LAB_MODEL_NOISE_H
#define BS_LAB_MODEL_NOISE_H
#include "lab/model/grids.h"

/* Writes the copy to `to`. In each group of a weight the mean square of the noise, which is uniform, is that
 * of rounding the group. X of a product gets noise while the copy runs, whose mean square is that of rounding
 * the numbers that meet one scale. BS_UNSUPPORTED, BS-QUANT-OPSET: the model's opset is older than 13, which
 * noise of X needs. */
int32_t bs_grids_noisy_copy(const bs_onnx *floats, const bs_grids *grids, uint64_t seed, const char *to,
                            bs_error *err);
#endif
