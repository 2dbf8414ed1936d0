/* SPDX-License-Identifier: MIT
 * options.c - strict reading of the workload.<key> settings (options.h). */
#include "options.h"

#include <inttypes.h>
#include <stdlib.h>

#include "core/base/text.h"

enum { CHOICES_MAX = 16 };

int32_t bs_wl_at(bs_error *err, int32_t code, const char *key) {
  if (err != NULL) snprintf(err->where, sizeof err->where, "workload.%s", key);
  return code;
}

int32_t bs_wl_check_keys(const bs_workload_request *request, const char *workload, const char *const *known,
                         uint32_t n_known, bs_error *err) {
  for (uint32_t i = 0; i < request->n_options; i++) {
    const char *key = request->option_keys[i];
    uint32_t k = 0;
    while (k < n_known && strcmp(key, known[k]) != 0) k++;
    if (k < n_known) continue;
    const char *near = bs_nearest(key, known, n_known);
    bs_fail(err, BS_CONFIG, "BS-WL-KEY", "workload '%s' has no option '%s'", workload, key);
    if (near != NULL)
      bs_fail_hint(err, "did you mean '%s'?", near);
    else
      bs_fail_hint(err, "`bsrun --help` lists the options of each workload");
    return bs_wl_at(err, BS_CONFIG, key);
  }
  return BS_OK;
}

/* The text of an option; NULL: not given. */
static const char *given_text(const bs_workload_request *request, const char *key) {
  for (uint32_t i = 0; i < request->n_options; i++)
    if (strcmp(request->option_keys[i], key) == 0) return request->option_values[i];
  return NULL;
}

const char *bs_wl_text(const bs_workload_request *request, const char *key) {
  const char *text = given_text(request, key);
  if (text == NULL || *text == '\0' || strcmp(text, "none") == 0 || strcmp(text, "null") == 0) return NULL;
  return text;
}

int32_t bs_wl_f64(const bs_workload_request *request, const char *key, double fallback, double min,
                  double max, double *out_value, bs_error *err) {
  const char *text = bs_wl_text(request, key);
  double value = fallback;
  if (text != NULL && !bs_parse_f64(text, &value)) {
    bs_fail(err, BS_CONFIG, "BS-WL-VALUE", "'%s' is not a number", text);
    return bs_wl_at(err, BS_CONFIG, key);
  }
  if (!(value >= min && value <= max)) {
    bs_fail(err, BS_CONFIG, "BS-WL-VALUE", "%g is outside %g .. %g", value, min, max);
    return bs_wl_at(err, BS_CONFIG, key);
  }
  *out_value = value;
  return BS_OK;
}

int32_t bs_wl_i64(const bs_workload_request *request, const char *key, int64_t fallback, int64_t min,
                  int64_t max, int64_t *out_value, bs_error *err) {
  const char *text = bs_wl_text(request, key);
  int64_t value = fallback;
  if (text != NULL && !bs_parse_size(text, &value)) {
    bs_fail(err, BS_CONFIG, "BS-WL-VALUE", "'%s' is not a whole number", text);
    bs_fail_hint(err, "a whole number such as 4096, 4k (4000) or 4Ki (4096)");
    return bs_wl_at(err, BS_CONFIG, key);
  }
  if (value < min || value > max) {
    bs_fail(err, BS_CONFIG, "BS-WL-VALUE", "%" PRId64 " is outside %" PRId64 " .. %" PRId64, value, min, max);
    return bs_wl_at(err, BS_CONFIG, key);
  }
  *out_value = value;
  return BS_OK;
}

int32_t bs_wl_bool(const bs_workload_request *request, const char *key, int fallback, int *out_value,
                   bs_error *err) {
  static const bs_wl_choice choices[] = {{"true", 1}, {"false", 0}, {"yes", 1}, {"no", 0},
                                         {"on", 1},   {"off", 0},   {"1", 1},   {"0", 0}};
  uint32_t value = 0;
  int32_t rc = bs_wl_choose(request, key, choices, 8, fallback != 0, &value, err);
  if (rc == BS_OK) *out_value = value != 0;
  return rc;
}

int32_t bs_wl_choose(const bs_workload_request *request, const char *key, const bs_wl_choice *choices,
                     uint32_t n_choices, uint32_t fallback, uint32_t *out_value, bs_error *err) {
  const char *text = given_text(request, key), *names[CHOICES_MAX];
  for (uint32_t i = 0; i < n_choices && text != NULL; i++) {
    if (strcmp(text, choices[i].name) == 0) {
      *out_value = choices[i].value;
      return BS_OK;
    }
    if (i < CHOICES_MAX) names[i] = choices[i].name;
  }
  if (bs_wl_text(request, key) == NULL) {
    *out_value = fallback;
    return BS_OK;
  }
  bs_fail(err, BS_CONFIG, "BS-WL-VALUE", "'%s' is not a value of workload.%s", text, key);
  const char *near = bs_nearest(text, names, n_choices < CHOICES_MAX ? n_choices : CHOICES_MAX);
  if (near != NULL)
    bs_fail_hint(err, "did you mean '%s'?", near);
  else
    bs_fail_hint(err, "the first of its values is '%s'", choices[0].name);
  return bs_wl_at(err, BS_CONFIG, key);
}

int32_t bs_wl_loss(const bs_workload_request *request, int has_target, uint32_t *out_loss, bs_error *err) {
  static const bs_wl_choice losses[] = {{"sum", BS_LOSS_SUM},
                                        {"mse_zero", BS_LOSS_MSE_ZERO},
                                        {"mse", BS_LOSS_MSE_ZERO},
                                        {"mse_target", BS_LOSS_MSE_TARGET}};
  int32_t rc = bs_wl_choose(request, "loss", losses, 4, BS_LOSS_SUM, out_loss, err);
  if (rc != BS_OK || *out_loss != BS_LOSS_MSE_TARGET || has_target) return rc;
  bs_fail(err, BS_CONFIG, "BS-WL-LOSS", "loss mse_target needs targets, and workload.target is not given");
  bs_fail_hint(err, "set workload.target, or use mse_zero");
  return bs_wl_at(err, BS_CONFIG, "loss");
}
