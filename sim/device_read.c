/* SPDX-License-Identifier: MIT
 * device_read.c - see device_read.h. */
#include "sim/device_read.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/text.h"

static void place(const sim_node *node, bs_error *err) {
  char path[128];
  sim_tree_path(node, path, sizeof path);
  bs_error_where(err, "%s", path);
}

int32_t sim_read_wrong(const sim_node *node, bs_error *err, const char *id, const char *form, ...) {
  char text[256];
  va_list args;
  va_start(args, form);
  vsnprintf(text, sizeof text, form, args);
  va_end(args);
  bs_error_set(err, BS_CONFIG, id, "%s", text);
  place(node, err);
  return BS_CONFIG;
}

int32_t sim_read_unknown(const sim_node *node, const char *word, const char *id, const char *what,
                         const char *const *known, uint32_t n, bs_error *err) {
  char all[200] = "";
  size_t at = 0;
  const char *nearest = bs_nearest(word, known, n);
  sim_read_wrong(node, err, id, "'%.40s' is not %s", word, what);
  for (uint32_t k = 0; k < n && at < sizeof all; k++)
    at += (size_t)snprintf(all + at, sizeof all - at, "%s%s", k > 0 ? ", " : "", known[k]);
  if (nearest != NULL)
    bs_error_hint(err, "did you mean '%s'?", nearest);
  else
    bs_error_hint(err, "known: %s", all);
  return BS_CONFIG;
}

int32_t sim_read_kind(const sim_node *node, uint32_t kind, bs_error *err) {
  static const char *const kinds[] = {"one value", "a list: [a, b]", "a map: {name: value}"};
  if (node->kind == kind) return BS_OK;
  return sim_read_wrong(node, err, "BS-DEVICE-VALUE", "%s is not %s",
                        node->key[0] != '\0' ? node->key : "this", kinds[kind]);
}

int32_t sim_read_fields(const sim_node *node, const char *const *known, uint32_t n, bs_error *err) {
  int32_t rc = sim_read_kind(node, SIM_NODE_MAP, err);
  for (const sim_node *child = node->first; rc == BS_OK && child != NULL; child = child->next) {
    uint32_t k = 0;
    while (k < n && strcmp(known[k], child->key) != 0) k++;
    if (k == n) rc = sim_read_unknown(child, child->key, "BS-DEVICE-FIELD", "a field here", known, n, err);
  }
  return rc;
}

int32_t sim_read_name(const sim_node *node, const char *text, char *out, uint32_t size, bs_error *err) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";
  const size_t n = strlen(text);
  const int is_key = text == node->key;
  if (n == 0 || n >= size || strspn(text, "0123456789-") > 0 || text[strspn(text, letters)] > '9' ||
      strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789-") != n ||
      (is_key && strchr("0123456789", text[n - 1]) != NULL))
    return sim_read_wrong(node, err, "BS-DEVICE-NAME",
                          "'%.40s' is no name: 1 to %u letters, digits, - and _%s", text, size - 1,
                          is_key ? ", and no digit at the end" : "");
  memcpy(out, text, n + 1);
  return BS_OK;
}

int32_t sim_read_word(const sim_node *node, const char *const *words, uint32_t n, uint32_t *out,
                      bs_error *err) {
  if (node == NULL) return BS_OK;
  for (uint32_t k = 0; k < n; k++)
    if (node->kind == SIM_NODE_SCALAR && strcmp(node->text, words[k]) == 0) {
      *out = k;
      return BS_OK;
    }
  return sim_read_unknown(node, node->text, "BS-DEVICE-VALUE", "a value of this field", words, n, err);
}

/* A whole number, also as 1e9 or with a unit. */
static int whole(const char *text, uint64_t *out) {
  int64_t n = 0;
  double x = 0;
  if (bs_parse_size(text, &n) && n >= 0) {
    *out = (uint64_t)n;
    return 1;
  }
  if (!bs_parse_f64(text, &x) || x < 0 || x > 9e15 || floor(x) < x) return 0;
  *out = (uint64_t)x;
  return 1;
}

int32_t sim_read_count(const sim_node *node, uint64_t low, uint64_t high, uint64_t *out, bs_error *err) {
  uint64_t n = 0;
  if (node == NULL) return BS_OK;
  if (node->kind != SIM_NODE_SCALAR || !whole(node->text, &n) || n < low || n > high)
    return sim_read_wrong(node, err, "BS-DEVICE-VALUE", "'%.40s' is not a whole number from %llu to %llu",
                          node->text, (unsigned long long)low, (unsigned long long)high);
  *out = n;
  return BS_OK;
}

int32_t sim_read_real(const sim_node *node, double low, double high, double *out, bs_error *err) {
  double x = 0;
  if (node == NULL) return BS_OK;
  if (node->kind != SIM_NODE_SCALAR || !bs_parse_f64(node->text, &x) || x < low || x > high)
    return sim_read_wrong(node, err, "BS-DEVICE-VALUE", "'%.40s' is not a number from %g to %g", node->text,
                          low, high);
  *out = x;
  return BS_OK;
}

int32_t sim_read_seconds(const sim_node *node, uint64_t *out, bs_error *err) {
  double seconds = 0;
  const int32_t rc = sim_read_real(node, 0, 1, &seconds, err);
  if (rc == BS_OK && node != NULL) *out = sim_seconds_ps(seconds);
  return rc;
}

int32_t sim_read_rate(const sim_node *node, double *out, bs_error *err) {
  if (node != NULL && (strcmp(node->text, "inf") == 0 || strcmp(node->text, ".inf") == 0)) {
    *out = INFINITY;
    return BS_OK;
  }
  return sim_read_real(node, 1000, 1e21, out, err);
}

/* One number of a list; 0: it is none. */
static uint32_t number(const char *text, size_t n) {
  char part[16];
  uint64_t value = 0;
  if (n >= sizeof part) return 0;
  memcpy(part, text, n);
  part[n] = '\0';
  const char *begin = part + strspn(part, " ");
  return whole(begin, &value) && value <= 1 << 24 ? (uint32_t)value : 0;
}

int32_t sim_read_counts(const sim_node *node, uint32_t *out, uint32_t most, uint32_t *out_n, bs_error *err) {
  uint32_t n = 0, good = 1, more = 0;
  if (node->kind == SIM_NODE_LIST) {
    const sim_node *c = node->first;
    for (; c != NULL && n < most; c = c->next) {
      out[n] = number(c->text, strlen(c->text));
      good &= out[n++] > 0;
    }
    more = c != NULL;
  } else {
    const char *at = node->text;
    while (at != NULL && n < most) {
      out[n] = number(at, strcspn(at, ","));
      good &= out[n++] > 0;
      at = strchr(at, ',');
      if (at != NULL) at++;
    }
    more = at != NULL;
  }
  *out_n = n;
  if (more)
    return sim_read_wrong(node, err, "BS-DEVICE-VALUE", "there are more numbers than can be used here");
  if (good && n > 0) return BS_OK;
  return sim_read_wrong(node, err, "BS-DEVICE-VALUE", "this is not a list of whole numbers from 1 on");
}

int32_t sim_read_level(const sim_device *d, const sim_node *node, uint32_t *out, bs_error *err) {
  const char *names[SIM_LEVELS];
  for (uint32_t l = 0; l < d->n_levels; l++) {
    names[l] = d->levels[l].name;
    if (strcmp(node->text, names[l]) == 0) {
      *out = l;
      return BS_OK;
    }
  }
  return sim_read_unknown(node, node->text, "BS-DEVICE-LEVEL", "a level of the device", names, d->n_levels,
                          err);
}
