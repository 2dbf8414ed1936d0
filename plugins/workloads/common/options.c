/* SPDX-License-Identifier: MIT
 * options.c - strict reading of the workload.<key> settings (options.h). */
#include "options.h"

#include <inttypes.h>
#include <locale.h>
#include <stdlib.h>

enum { MAX_WORD = 48 };

static size_t min3(size_t a, size_t b, size_t c) {
  size_t m = a < b ? a : b;
  return m < c ? m : c;
}

/* Damerau-Levenshtein distance (neighbouring letters may be swapped); long words count as far. */
static size_t distance(const char *a, const char *b) {
  size_t rows[3][MAX_WORD + 1], na = strlen(a), nb = strlen(b);
  if (na > MAX_WORD || nb > MAX_WORD) return MAX_WORD;
  for (size_t j = 0; j <= nb; j++) rows[0][j] = j;
  for (size_t i = 1; i <= na; i++) {
    size_t *now = rows[i % 3], *last = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
    now[0] = i;
    for (size_t j = 1; j <= nb; j++) {
      now[j] = min3(last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1]));
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && before[j - 2] + 1 < now[j])
        now[j] = before[j - 2] + 1;
    }
  }
  return rows[na % 3][nb];
}

static int near_enough(const char *word, const char *candidate, size_t *best) {
  size_t d = distance(word, candidate);
  if (d > 1 + strlen(word) / 4 || d >= *best) return 0;
  *best = d;
  return 1;
}

int32_t bs_wl_at(bs_error *err, int32_t code, const char *key) {
  if (err != NULL) snprintf(err->where, sizeof err->where, "workload.%s", key);
  return code;
}

int32_t bs_wl_check_keys(const bs_workload_request *request, const char *workload, const char *const *known,
                         uint32_t n_known, bs_error *err) {
  for (uint32_t i = 0; i < request->n_options; i++) {
    const char *key = request->option_keys[i], *near = NULL;
    size_t best = MAX_WORD;
    uint32_t k = 0;
    while (k < n_known && strcmp(key, known[k]) != 0) k++;
    if (k < n_known) continue;
    for (k = 0; k < n_known; k++)
      if (near_enough(key, known[k], &best)) near = known[k];
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

/* Refuses leading zeros like the configuration's reader: 010 is octal to other readers. */
static int leading_zero(const char *text) {
  if (*text == '-' || *text == '+') text++;
  return text[0] == '0' && text[1] >= '0' && text[1] <= '9';
}

/* Parses in the C locale, whatever the program's locale is; plain decimal only (strtod also takes hex, inf
 * and nan). */
static int parse_number(const char *text, double *out) {
  if (text[strspn(text, "0123456789+-.eE")] != '\0' || leading_zero(text)) return 0;
  locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  if (c_locale == (locale_t)0) return 0;
  char *end = NULL;
  double value = strtod_l(text, &end, c_locale);
  freelocale(c_locale);
  if (end == text || *end != '\0') return 0;
  *out = value;
  return 1;
}

int32_t bs_wl_f64(const bs_workload_request *request, const char *key, double fallback, double min,
                  double max, double *out_value, bs_error *err) {
  const char *text = bs_wl_text(request, key);
  double value = fallback;
  if (text != NULL && !parse_number(text, &value)) {
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
  if (text != NULL) {
    size_t sign = *text == '-' || *text == '+', digits = strspn(text + sign, "0123456789");
    if (digits == 0 || text[sign + digits] != '\0' || leading_zero(text)) {
      bs_fail(err, BS_CONFIG, "BS-WL-VALUE", "'%s' is not a whole number", text);
      return bs_wl_at(err, BS_CONFIG, key);
    }
    value = strtoll(text, NULL, 10); /* beyond its range: the nearest end, which is outside min .. max */
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
  const char *text = given_text(request, key), *near = NULL;
  size_t best = MAX_WORD;
  for (uint32_t i = 0; i < n_choices && text != NULL; i++) {
    if (strcmp(text, choices[i].name) == 0) {
      *out_value = choices[i].value;
      return BS_OK;
    }
    if (near_enough(text, choices[i].name, &best)) near = choices[i].name;
  }
  if (bs_wl_text(request, key) == NULL) {
    *out_value = fallback;
    return BS_OK;
  }
  bs_fail(err, BS_CONFIG, "BS-WL-VALUE", "'%s' is not a value of workload.%s", text, key);
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
