/* SPDX-License-Identifier: MIT
 * clocks.c - see clocks.h. */
#include "lab/measure/clocks.h"

#include <stdio.h>
#include <string.h>

#include "lab/measure/stats.h"

void bs_clocks_reset(bs_clocks *c) {
  memset(c, 0, sizeof *c);
}

static void add_reason(bs_clocks *c, const char *text, size_t length) {
  if (length == 0 || length >= sizeof c->reason[0]) return;
  uint32_t i = 0;
  while (i < c->n_reasons && (strncmp(c->reason[i], text, length) != 0 || c->reason[i][length] != '\0')) ++i;
  if (i == BS_CLOCKS_REASONS) return;
  if (i == c->n_reasons) {
    memcpy(c->reason[i], text, length);
    ++c->n_reasons;
  }
  ++c->seen[i];
}

void bs_clocks_add(bs_clocks *c, uint32_t mhz, const char *held_back) {
  if (mhz == 0) return;
  c->min = c->count == 0 || mhz < c->min ? mhz : c->min;
  c->max = mhz > c->max ? mhz : c->max;
  c->mhz[c->count++ % BS_CLOCKS_KEPT] = mhz;
  for (const char *p = held_back; *p != '\0';) {
    const size_t n = strcspn(p, ",");
    add_reason(c, p, n);
    p += n;
    p += strspn(p, ", ");
  }
}

static uint32_t median(const bs_clocks *c) {
  return (uint32_t)bs_percentile(c->mhz, c->count < BS_CLOCKS_KEPT ? (size_t)c->count : BS_CLOCKS_KEPT, 0.5);
}

int bs_clocks_json(json_t *into, const bs_clocks *c) {
  json_t *clock = json_null(), *reasons = json_array();
  if (c->count > 0)
    clock = json_pack("{s:I,s:I,s:I,s:I}", "min", (json_int_t)c->min, "median", (json_int_t)median(c), "max",
                      (json_int_t)c->max, "looks", (json_int_t)c->count);
  for (uint32_t i = 0; i < c->n_reasons; ++i)
    json_array_append_new(reasons,
                          json_pack("{s:s,s:I}", "reason", c->reason[i], "looks", (json_int_t)c->seen[i]));
  const int bad =
      json_object_set_new(into, "clock_mhz", clock) | json_object_set_new(into, "held_back", reasons);
  return bad != 0 ? -1 : 0;
}

int bs_clocks_sentence(const bs_clocks *c, const char *arm, char *out_text, size_t size) {
  if (c->n_reasons == 0) return 0;
  int n = snprintf(out_text, size, "%s: the device's clock was held back (", arm);
  for (uint32_t i = 0; n > 0 && (size_t)n < size && i < c->n_reasons; ++i)
    n += snprintf(out_text + n, size - (size_t)n, "%s%s", i > 0 ? ", " : "", c->reason[i]);
  if (n > 0 && (size_t)n < size)
    snprintf(out_text + n, size - (size_t)n, "): %u to %u MHz, median %u", c->min, c->max, median(c));
  return 1;
}
