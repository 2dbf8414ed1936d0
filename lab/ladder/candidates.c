/* SPDX-License-Identifier: MIT
 * candidates.c - which rungs there are: methods by masks by overlap by reduce dtypes, each once and only
 * where it changes something. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "lab/config/schema.h"
#include "lab/ladder/ladder.h"

enum { MAX_WORDS = 32 };

typedef struct words {
  const char *item[MAX_WORDS];
  uint32_t n;
} words;

typedef struct maker {
  bs_context *context;
  bs_ladder *ladder;
  const bs_ladder_options *options;
  words methods, masks, overlap, reduce;
  const char *configured; /* name of the configuration's own mask */
  const char *pattern[2]; /* and its patterns, or NULL */
} maker;

/* A list of the configuration, or `fallback` ("a b c", split in place in `text`). */
static int32_t read_words(const bs_node *config, const char *path, char *text, words *out, bs_error *err) {
  const bs_node *list = bs_config_find(config, path);
  out->n = 0;
  if (list != NULL && list->kind == BS_NODE_LIST) {
    for (const bs_node *item = list->first; item != NULL; item = item->next) {
      if (item->kind != BS_NODE_SCALAR || out->n == MAX_WORDS)
        return bs_error_set(err, BS_CONFIG, "BS-AUTO-LIST", "%s: at most %d words", path, MAX_WORDS);
      out->item[out->n++] = item->text;
    }
    if (out->n == 0) return bs_error_set(err, BS_CONFIG, "BS-AUTO-LIST", "%s is empty", path);
    return BS_OK;
  }
  char *rest = NULL;
  for (char *word = strtok_r(text, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest))
    out->item[out->n++] = word;
  return BS_OK;
}

static int32_t add(maker *m, const char *name, const char *const *settings, uint32_t n, bs_error *err) {
  bs_ladder *l = m->ladder;
  if (l->n == BS_RUNGS_MAX)
    return bs_error_set(err, BS_CONFIG, "BS-AUTO-MANY",
                        "more than %d candidates: name fewer in auto.methods, "
                        "auto.masks, auto.overlap or auto.reduce_dtypes",
                        BS_RUNGS_MAX);
  bs_rung *grown = realloc(l->rungs, (l->n + 1u) * sizeof *grown);
  if (grown == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  l->rungs = grown;
  bs_rung *r = memset(&l->rungs[l->n++], 0, sizeof *r);
  snprintf(r->name, sizeof r->name, "%s", name);
  for (uint32_t i = 0; i < n; i++)
    snprintf(r->settings[r->n_settings++], sizeof r->settings[0], "%s", settings[i]);
  return BS_OK;
}

/* One method with one mask (NULL: none; "": the configured one): by every overlap and reduce dtype that it
 * knows. */
static int32_t add_variants(maker *m, const bs_method *method, const char *name, const char *mask,
                            bs_error *err) {
  static const char *const off[] = {"off"};
  const int overlaps = bs_option_listed(method->option_docs, "overlap");
  const int sums = method->max_world != 1;
  const char *const *overlap = overlaps ? m->overlap.item : off;
  int32_t rc = BS_OK;
  for (uint32_t o = 0; rc == BS_OK && o < (overlaps ? m->overlap.n : 1); o++) {
    for (uint32_t d = 0; rc == BS_OK && d < (sums ? m->reduce.n : 1); d++) {
      char text[BS_RUNG_SETTINGS][64], shown[96];
      const char *settings[BS_RUNG_SETTINGS];
      uint32_t n = 0;
      int used = snprintf(shown, sizeof shown, "%s%s%s", name, mask ? " " : "",
                          mask && mask[0] == '\0' ? m->configured
                          : mask                  ? mask
                                                  : "");
      snprintf(text[n++], sizeof text[0], "method.name=%s", name);
      if (mask && mask[0] != '\0') {
        snprintf(text[n++], sizeof text[0], "mask.name=%s", mask);
        snprintf(text[n++], sizeof text[0], "mask.use=always");
      }
      if (strcmp(overlap[o], "off") != 0) {
        snprintf(text[n++], sizeof text[0], "method.overlap=%s", overlap[o]);
        used += snprintf(shown + used, sizeof shown - (size_t)used, " overlap=%s", overlap[o]);
      }
      if (sums && m->reduce.item[d][0] != '\0') {
        snprintf(text[n++], sizeof text[0], "method.reduce_dtype=%s", m->reduce.item[d]);
        if (m->reduce.n > 1) snprintf(shown + used, sizeof shown - (size_t)used, " %s", m->reduce.item[d]);
      }
      if (!sums) snprintf(text[n++], sizeof text[0], "hardware.world_size=1");
      for (uint32_t i = 0; i < n; i++) settings[i] = text[i];
      rc = add(m, shown, settings, n, err);
    }
  }
  return rc;
}

static int32_t add_method(maker *m, const char *name, bs_error *err) {
  const bs_method *method = NULL;
  void *state = NULL;
  int32_t rc = bs_find_method(m->context, name, &method, &state, err);
  if (rc != BS_OK) return rc;
  uint32_t masks = 0;
  for (uint32_t i = 0; rc == BS_OK && i < m->masks.n; i++) {
    bs_mask mask;
    const int own = m->masks.item[i][0] == '\0';
    rc = bs_mask_parse(own ? m->configured : m->masks.item[i], own ? m->pattern[0] : NULL,
                       own ? m->pattern[1] : NULL, &mask, err);
    if (rc != BS_OK || (method->mask_kinds >> mask.kind & 1u) == 0) continue;
    masks++;
    rc = add_variants(m, method, name, m->masks.item[i], err);
  }
  return rc == BS_OK && masks == 0 ? add_variants(m, method, name, NULL, err) : rc;
}

int32_t bs_ladder_candidates(bs_context *context, const bs_node *config, const bs_ladder_options *options,
                             bs_ladder *ladder, bs_error *err) {
  char methods[] = "blockshock row_parallel column_parallel masked_split dense";
  char masks[] = "complement_1100_0011 complement_1010_0101 interleave contiguous";
  char overlap[] = "off auto", reduce[] = "";
  maker m = {.context = context, .ladder = ladder, .options = options};
  int32_t rc = read_words(config, "auto.methods", methods, &m.methods, err);
  if (rc == BS_OK) rc = read_words(config, "auto.masks", masks, &m.masks, err);
  if (rc == BS_OK) rc = read_words(config, "auto.overlap", overlap, &m.overlap, err);
  if (rc == BS_OK) rc = read_words(config, "auto.reduce_dtypes", reduce, &m.reduce, err);
  if (bs_config_find(config, "auto.masks") == NULL &&
      strcmp(bs_schema_str(config, "mask.use"), "always") == 0) {
    m.masks.n = 1; /* who names a mask wants that one */
    m.masks.item[0] = "";
    m.configured = bs_schema_str(config, "mask.name");
    m.pattern[0] = bs_schema_str(config, "mask.pattern_a");
    m.pattern[1] = bs_schema_str(config, "mask.pattern_b");
    if (m.configured == NULL) m.configured = "complement_1100_0011"; /* patterns alone: of that kind */
  }
  if (m.reduce.n == 0) m.reduce.item[m.reduce.n++] = ""; /* as configured */
  for (uint32_t i = 0; rc == BS_OK && i < m.methods.n; i++) rc = add_method(&m, m.methods.item[i], err);
  if (rc == BS_OK && options->dense) {
    static const char *const alone[] = {"method.name=dense", "hardware.world_size=1",
                                        "hardware.threads_per_rank=@share"};
    rc = add(&m, "dense on one rank's cores", alone, 3, err);
  }
  return rc;
}
