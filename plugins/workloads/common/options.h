/* SPDX-License-Identifier: MIT
 * options.h - strict reading of the workload.<key> settings of a request. Every error is BS_CONFIG with the
 * key in err->where. Thread-safe. */
#ifndef BS_WORKLOADS_COMMON_OPTIONS_H
#define BS_WORKLOADS_COMMON_OPTIONS_H
#include "blockshock/plugin.h"

typedef struct bs_wl_choice {
  const char *name;
  uint32_t value;
} bs_wl_choice;

/* Every key of the request is one of `known`; BS-WL-KEY with the nearest name otherwise. */
int32_t bs_wl_check_keys(const bs_workload_request *request, const char *workload, const char *const *known,
                         uint32_t n_known, bs_error *err);
/* The text of a setting; NULL when absent, empty, "none" or "null". */
const char *bs_wl_text(const bs_workload_request *request, const char *key);
/* Reads a number. BS-WL-VALUE: not a finite number within [min, max]. */
int32_t bs_wl_f64(const bs_workload_request *request, const char *key, double fallback, double min,
                  double max, double *out_value, bs_error *err);
/* Reads a whole number: digits with an optional sign. */
int32_t bs_wl_i64(const bs_workload_request *request, const char *key, int64_t fallback, int64_t min,
                  int64_t max, int64_t *out_value, bs_error *err);
int32_t bs_wl_bool(const bs_workload_request *request, const char *key, int fallback, int *out_value,
                   bs_error *err);
/* Reads one of `choices` ("none" and "null" too if they are listed); otherwise BS-WL-VALUE with the nearest
 * name. */
int32_t bs_wl_choose(const bs_workload_request *request, const char *key, const bs_wl_choice *choices,
                     uint32_t n_choices, uint32_t fallback, uint32_t *out_value, bs_error *err);
/* workload.loss: sum (default), mse_zero or mse, mse_target. mse_target without a target is BS-WL-LOSS. */
int32_t bs_wl_loss(const bs_workload_request *request, int has_target, uint32_t *out_loss, bs_error *err);
/* Sets err->where to workload.<key>; returns err's code. */
int32_t bs_wl_at(bs_error *err, int32_t code, const char *key);
#endif
