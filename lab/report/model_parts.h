/* SPDX-License-Identifier: MIT
 * model_parts.h - the functions that model.c uses from model_details.c. */
#ifndef BS_LAB_REPORT_MODEL_PARTS_H
#define BS_LAB_REPORT_MODEL_PARTS_H
#include "lab/report/model.h"

/* Appends {what, why} to one of the model's lists. */
void bs_model_add(json_t *model, const char *list, const char *what, const char *why);
/* Adds to one of its numbers. */
void bs_model_count(json_t *model, const char *key, json_int_t more);
/* Points of the plan below a sweep's folder that were refused, or have no run. A plan that cannot be read
 * adds a warning. */
void bs_model_plans(json_t *model, const char *sweep);
/* From the model's rows: latest, comparisons, lines, and the numbers compared and lined. */
int32_t bs_model_derive(json_t *model, bs_error *err);
/* Reads from the newest runs themselves: samples, warnings, environment, commands. */
int32_t bs_model_details(json_t *model, const char *command, bs_error *err);
#endif
