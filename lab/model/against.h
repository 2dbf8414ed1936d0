/* SPDX-License-Identifier: MIT
 * against.h - a quantised model compared with the float model that it was made of: what its outputs differ
 * by, and what rounding to the nearest was expected to cost. */
#ifndef BS_LAB_MODEL_AGAINST_H
#define BS_LAB_MODEL_AGAINST_H
#include "lab/model/model.h"

/* The limits of measured / predicted: for the outputs, and for the KL divergence. */
#define BS_AGAINST_WHOLE 1.2
#define BS_AGAINST_KL 1.5

/* Runs both models on the same inputs: the given ones, else four made sets. Also runs four copies of the
 * float model with noise of the size of the rounding (noise.h). Passes that join products with other nodes
 * are off. *out: {model, against, backend, inputs, weights: how many were matched, unmatched, failed, rows:
 * [{output, measured, predicted, ratio, limit, kl, kl_predicted, kl_ratio, kl_limit, first_same,
 * first_same_predicted, first_differs: {set, row} or null, ok, reason}], layers: as layers.h says, worst: one
 * of them or null, notes: texts}. measured: the root mean square of the difference, over that of the float
 * output. KL: of the softmax of the last dimension, a mean over rows. BS_UNSUPPORTED: the models have other
 * ports, or no weight was matched. A ratio that is too large is not an error: the row says so. The caller
 * owns *out. */
int32_t bs_model_against(bs_context *context, const bs_model_request *request, const char *float_path,
                         json_t **out, bs_error *err);
#endif
