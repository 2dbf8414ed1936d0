/* SPDX-License-Identifier: MIT
 * budget.h - a scheme for each weight of an ONNX model, so that a limit is kept: of the KL divergence, with
 * the fewest bytes, or of the bytes, with the least KL divergence. */
#ifndef BS_LAB_MODEL_BUDGET_H
#define BS_LAB_MODEL_BUDGET_H
#include "lab/model/model.h"

typedef struct bs_budget_request {
  const char *folder; /* sets of inputs (sets.h); NULL: made ones */
  double kl;          /* the most; 0: `bits` is the limit */
  double bits;        /* the most a weight, scales included, over all weights that can be quantised */
} bs_budget_request;

/* Weights whose products read one value are a unit. Each unit alone is run in each scheme (w4g32, w8); all
 * begin at the fewest bits, and the unit that saves most KL a byte is raised, to a float at last. What came
 * out is run as a whole, and raised again, in at most 8 rounds. *out_list is malloc'd:
 * "NAME=SCHEME;..;*=float". *out: {kl, bits, bytes, units, rounds, runs}. BS_UNSUPPORTED, BS-QUANT-BUDGET:
 * the limit cannot be kept. */
int32_t bs_model_budget(bs_context *context, const bs_model_request *request, const bs_budget_request *budget,
                        char **out_list, json_t **out, bs_error *err);
#endif
