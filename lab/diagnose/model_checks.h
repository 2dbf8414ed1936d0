/* SPDX-License-Identifier: MIT
 * model_checks.h - the checks of a model, for the table. */
#ifndef BS_LAB_DIAGNOSE_MODEL_CHECKS_H
#define BS_LAB_DIAGNOSE_MODEL_CHECKS_H
#include "lab/diagnose/model_subject.h"

/* model_checks.c */
int32_t diag_model_inputs(bs_diagnosis *d, diag_model *model, bs_error *err);
int32_t diag_model_fallback(bs_diagnosis *d, diag_model *model, bs_error *err);
int32_t diag_model_waits(bs_diagnosis *d, diag_model *model, bs_error *err);
int32_t diag_model_split(bs_diagnosis *d, diag_model *model, bs_error *err);  /* model_split.c */
int32_t diag_model_shapes(bs_diagnosis *d, diag_model *model, bs_error *err); /* model_shapes.c */
/* model_costs.c */
int32_t diag_model_bound(bs_diagnosis *d, diag_model *m, bs_error *err);
int32_t diag_model_threads(bs_diagnosis *d, diag_model *model, bs_error *err);
int32_t diag_model_epilogue(bs_diagnosis *d, diag_model *model, bs_error *err);
int32_t diag_model_nodes(bs_diagnosis *d, diag_model *model, bs_error *err);
int32_t diag_model_plan(bs_diagnosis *d, diag_model *model, bs_error *err);
int32_t diag_model_memory(bs_diagnosis *d, diag_model *model, bs_error *err);
int32_t diag_model_dispatch(bs_diagnosis *d, diag_model *model, bs_error *err);
int32_t diag_model_ablate(bs_diagnosis *d, diag_model *model, bs_error *err);
#endif
