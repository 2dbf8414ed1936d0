/* SPDX-License-Identifier: MIT
 * layer_checks.h - the checks of a layer, for the table. */
#ifndef BS_LAB_DIAGNOSE_LAYER_CHECKS_H
#define BS_LAB_DIAGNOSE_LAYER_CHECKS_H
#include "lab/diagnose/layer.h"

/* layer_checks.c */
int32_t diag_layer_fallback(bs_diagnosis *d, diag_layer *layer, bs_error *err);
int32_t diag_layer_waits(bs_diagnosis *d, diag_layer *layer, bs_error *err);
int32_t diag_layer_staged(bs_diagnosis *d, diag_layer *layer, bs_error *err);
int32_t diag_layer_shapes(bs_diagnosis *d, diag_layer *layer, bs_error *err);
int32_t diag_layer_capture(bs_diagnosis *d, diag_layer *layer, bs_error *err);
/* layer_costs.c */
int32_t diag_layer_bound(bs_diagnosis *d, diag_layer *l, bs_error *err);
int32_t diag_layer_threads(bs_diagnosis *d, diag_layer *layer, bs_error *err);
int32_t diag_layer_epilogue(bs_diagnosis *d, diag_layer *layer, bs_error *err);
int32_t diag_layer_plan(bs_diagnosis *d, diag_layer *layer, bs_error *err);
int32_t diag_layer_memory(bs_diagnosis *d, diag_layer *layer, bs_error *err);
int32_t diag_layer_train(bs_diagnosis *d, diag_layer *layer, bs_error *err);
/* dispatch.c */
int32_t diag_layer_dispatch(bs_diagnosis *d, diag_layer *layer, bs_error *err);
/* layer_ablate.c */
int32_t diag_layer_ablate(bs_diagnosis *d, diag_layer *layer, bs_error *err);
#endif
