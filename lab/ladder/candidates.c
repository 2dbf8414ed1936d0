/* SPDX-License-Identifier: MIT
 * candidates.c - makes the rungs: methods by masks by kernels by slices by placements by overlap by reduce
 * dtypes, each once and only if it changes something. A value in a list of the configuration that a method
 * does not accept is a refused rung, with the method's reason. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/op/knob.h"
#include "lab/config/experiment.h"
#include "lab/config/schema.h"
#include "lab/cores.h"
#include "lab/error.h"
#include "lab/ladder/ladder.h"
#include "lab/measure/machine.h"
#include "lab/place_name.h"

enum { MAX_WORDS = 32 };

typedef struct words {
  const char *item[MAX_WORDS];
  uint32_t n;
} words;

/* The axes of variants of a method with a mask. A word "" leaves the configuration's value. */
enum axis { KERNEL, SLICES, PLACEMENT, OVERLAP, REDUCE, AXES };

typedef struct maker {
  bs_context *context;
  bs_ladder *ladder;
  const bs_node *config;
  words methods, masks, axis[AXES];
  uint32_t named; /* a bit for each axis with a list in the configuration */
  uint32_t world;
  int open_masks;         /* no setting chooses them */
  const char *configured; /* name of the configuration's own mask */
  const char *pattern[2]; /* and its patterns, or NULL */
} maker;

static const words as_configured = {{""}, 1};

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

/* ---- axes of a method with a mask ---------------------------------------------------------------- */

static int by_row(const bs_mask *mask) {
  return mask->kind == BS_MASK_RANDOM_2OF4 || mask->kind == BS_MASK_MAGNITUDE ||
         mask->kind == BS_MASK_TRANSPOSABLE;
}

static const char *option(const maker *m, const char *path) {
  const bs_node *node = bs_config_find(m->config, path);
  return node != NULL && node->kind == BS_NODE_SCALAR ? node->text : NULL;
}

/* Does it multiply 2:4 values, of one half or both? */
static int is_of24(const maker *m, const bs_method *method, const bs_mask *mask, const char *kernel) {
  if (mask == NULL || !bs_option_listed(method->option_docs, "kernel")) return 0;
  const char *asked = kernel[0] != '\0' ? kernel : option(m, "method.kernel");
  return by_row(mask) || option(m, "method.half") != NULL || (asked && strcmp(asked, "sparse24") == 0);
}

static void take(words *out, const char *word) {
  out->item[out->n++] = word;
}

/* Halves of 2:4 values have one kernel. Masks other than complements have no such halves, and are refused if
 * the configuration requests it. */
static void kernels_of(const maker *m, const bs_method *method, const bs_mask *mask, words *out) {
  const int named = m->named >> KERNEL & 1;
  int has24 = 0;
  out->n = 0;
  for (uint32_t i = 0; mask != NULL && m->world > 1 && i < m->axis[KERNEL].n; i++) {
    const char *word = m->axis[KERNEL].item[i];
    const int sparse = strcmp(word, "sparse24") == 0, is24 = is_of24(m, method, mask, word);
    if (!bs_option_listed(method->option_docs, "kernel")) break;
    if (sparse && !named && mask->kind != BS_MASK_COMPLEMENT) continue;
    if (is24 && has24 && strcmp(word, "gather") != 0) continue;
    has24 |= is24 && strcmp(word, "gather") != 0;
    take(out, word);
  }
  if (out->n == 0) *out = as_configured;
}

/* Two halves on two ranks are whole, one half is on one. Columns of W have one way. */
static const words *slices_of(const maker *m, const bs_method *method, int of24) {
  const uint32_t halves = option(m, "method.half") != NULL ? 1 : 2;
  const int cut = of24 && m->world > halves && m->world % halves == 0;
  return cut && bs_option_listed(method->option_docs, "slices") ? &m->axis[SLICES] : &as_configured;
}

/* The placement of x (0) or y (1) in a word: "split" is of both, "tokens/split" of each. */
static int32_t placement_of(const char *word, int of_y, const char **out, bs_error *err) {
  const size_t first = strcspn(word, "/");
  const char *at = of_y && word[first] == '/' ? word + first + 1 : word;
  const size_t length = at == word ? first : strlen(at);
  for (uint32_t i = BS_REPLICATED; i <= BS_SPLIT_TOKENS; i++) {
    *out = bs_place_name(i);
    if (strlen(*out) == length && memcmp(*out, at, length) == 0) return BS_OK;
  }
  bs_error_set(err, BS_CONFIG, "BS-AUTO-PLACEMENT", "auto.placements: '%.60s' is no placement", word);
  return bs_error_hint(err, "replicated, split, partial, tokens, two of them as x/y, or any"), BS_CONFIG;
}

/* Chunks overlap communication with a product if the method divides the product: else overlap=auto is off. */
static int divides(const char *placement, int of24) {
  const char *x = "", *y = "";
  bs_error ignored = BS_ERROR_INIT;
  if (of24) return 0;
  if (placement[0] == '\0') return 1;
  placement_of(placement, 0, &x, &ignored);
  placement_of(placement, 1, &y, &ignored);
  return x[0] != 'p' && x[0] != 't' && y[0] != 'p' && y[0] != 't';
}

/* ---- rungs --------------------------------------------------------------------------------------- */

static void set(bs_rung *r, const char *path, const char *value) {
  snprintf(r->settings[r->n_settings++], sizeof r->settings[0], "%s=%s", path, value);
}

static void show(bs_rung *r, const char *before, const char *word) {
  const size_t used = strlen(r->name);
  snprintf(r->name + used, sizeof r->name - used, " %s%s", before, word);
}

/* Compares settings in any order: each key occurs once. */
static int same(const bs_rung *a, const bs_rung *b) {
  uint32_t found = 0;
  for (uint32_t i = 0; i < a->n_settings; i++)
    for (uint32_t j = 0; j < b->n_settings; j++) found += strcmp(a->settings[i], b->settings[j]) == 0;
  return a->n_settings == b->n_settings && found == a->n_settings;
}

int32_t bs_ladder_add(bs_ladder *l, const bs_rung *r, bs_error *err) {
  for (uint32_t i = 0; i < l->n; i++)
    if (same(&l->rungs[i], r)) return BS_OK;
  return bs_ladder_append(l, r, err);
}

int32_t bs_ladder_append(bs_ladder *l, const bs_rung *r, bs_error *err) {
  if (l->n == BS_RUNGS_MAX)
    return bs_error_set(err, BS_CONFIG, "BS-AUTO-MANY",
                        "more than %d candidates: name fewer in auto.methods, auto.masks, auto.placements or "
                        "auto.overlap, or fewer values of --vary",
                        BS_RUNGS_MAX);
  bs_rung *grown = realloc(l->rungs, (l->n + 1u) * sizeof *grown);
  if (grown == NULL) return bs_no_memory(err, "candidates");
  l->rungs = grown;
  l->rungs[l->n++] = *r;
  return BS_OK;
}

static int32_t set_placement(const maker *m, bs_rung *d, const char *word, bs_error *err) {
  const char *x, *y;
  if (word[0] == '\0') return BS_OK;
  int32_t rc = placement_of(word, 0, &x, err);
  if (rc == BS_OK) rc = placement_of(word, 1, &y, err);
  if (rc != BS_OK) return rc;
  set(d, "method.x_placement", x);
  set(d, "method.y_placement", y);
  if (m->axis[PLACEMENT].n == 1) return BS_OK;
  show(d, "x=", x);
  show(d, "y=", y);
  return BS_OK;
}

/* Adds the words of one variant, by axis, after those of method and mask. */
static int32_t add_variant(maker *m, const bs_rung *of, const char *const *word, bs_error *err) {
  bs_rung d = *of;
  if (word[KERNEL][0] != '\0') {
    set(&d, "method.kernel", word[KERNEL]);
    if (strcmp(word[KERNEL], "auto") != 0) show(&d, "kernel=", word[KERNEL]);
  }
  if (word[SLICES][0] != '\0') {
    set(&d, "method.slices", word[SLICES]);
    show(&d, "slices=", word[SLICES]);
  }
  const int32_t rc = set_placement(m, &d, word[PLACEMENT], err);
  if (rc != BS_OK) return rc;
  if (strcmp(word[OVERLAP], "off") != 0 && word[OVERLAP][0] != '\0') {
    set(&d, "method.overlap", word[OVERLAP]);
    show(&d, "overlap=", word[OVERLAP]);
  }
  if (word[REDUCE][0] != '\0') {
    set(&d, "method.reduce_dtype", word[REDUCE]);
    if (m->axis[REDUCE].n > 1) show(&d, "", word[REDUCE]);
  }
  return bs_ladder_add(m->ladder, &d, err);
}

/* One method, mask and kernel: by all that is left. */
static int32_t add_axes(maker *m, const bs_method *method, const bs_rung *d, const char *kernel, int of24,
                        bs_error *err) {
  const int sums = method->max_world != 1, placed = sums && m->world > 1;
  const words *list[AXES] = {
      [SLICES] = slices_of(m, method, of24),
      [PLACEMENT] = placed ? &m->axis[PLACEMENT] : &as_configured,
      [OVERLAP] = bs_option_listed(method->option_docs, "overlap") ? &m->axis[OVERLAP] : &as_configured,
      [REDUCE] = sums ? &m->axis[REDUCE] : &as_configured};
  uint32_t all = 1;
  int32_t rc = BS_OK;
  for (uint32_t a = SLICES; a < AXES; a++) all *= list[a]->n;
  for (uint32_t i = 0; rc == BS_OK && i < all; i++) {
    const char *word[AXES] = {[KERNEL] = kernel};
    uint32_t left = i;
    for (uint32_t a = AXES; a-- > SLICES; left /= list[a]->n) word[a] = list[a]->item[left % list[a]->n];
    const int same = strcmp(word[OVERLAP], "auto") == 0 && list[OVERLAP]->n > 1;
    if (!same || divides(word[PLACEMENT], of24)) rc = add_variant(m, d, word, err);
  }
  return rc;
}

/* Adds one method with one mask (NULL: none; its name "": the configured one). */
static int32_t add_variants(maker *m, const bs_method *method, const char *name, const bs_mask *mask,
                            const char *mask_name, bs_error *err) {
  words kernels;
  bs_rung d = {.n_settings = 0};
  int32_t rc = BS_OK;
  snprintf(d.name, sizeof d.name, "%s", name);
  set(&d, "method.name", name);
  if (mask != NULL) show(&d, "", mask_name[0] == '\0' ? m->configured : mask_name);
  if (mask != NULL && mask_name[0] != '\0') {
    set(&d, "mask.name", mask_name);
    set(&d, "mask.use", "always");
  }
  if (method->max_world == 1) set(&d, "hardware.world_size", "1");
  kernels_of(m, method, mask, &kernels);
  for (uint32_t i = 0; rc == BS_OK && i < kernels.n; i++) {
    const int of24 = is_of24(m, method, mask, kernels.item[i]);
    const int open_kernel = !(m->named >> KERNEL & 1) && strcmp(kernels.item[i], "sparse24") == 0;
    d.unasked = of24 && (open_kernel || (m->open_masks && by_row(mask)));
    rc = add_axes(m, method, &d, kernels.item[i], of24, err);
  }
  return rc;
}

static int32_t add_method(maker *m, const char *name, bs_error *err) {
  const bs_method *method = NULL;
  void *state = NULL;
  int32_t rc = bs_find_method(m->context, name, &method, &state, err);
  if (rc != BS_OK) return bs_config_name_error(m->config, "auto.methods", rc, err);
  uint32_t masks = 0;
  for (uint32_t i = 0; rc == BS_OK && i < m->masks.n; i++) {
    bs_mask mask;
    const int own = m->masks.item[i][0] == '\0';
    rc = bs_mask_parse(own ? m->configured : m->masks.item[i], own ? m->pattern[0] : NULL,
                       own ? m->pattern[1] : NULL, &mask, err);
    if (rc != BS_OK || (method->mask_kinds >> mask.kind & 1u) == 0) continue;
    if (m->open_masks && by_row(&mask) && !bs_option_listed(method->option_docs, "kernel")) continue;
    masks++;
    rc = add_variants(m, method, method->name, &mask, m->masks.item[i], err);
  }
  return rc == BS_OK && masks == 0 ? add_variants(m, method, method->name, NULL, NULL, err) : rc;
}

/* The masks that need no words of the user's: uneven wants shares, importance an order. */
static int32_t read_masks(maker *m, char *text, bs_error *err) {
  const bs_node *config = m->config;
  int32_t rc = read_words(config, "auto.masks", text, &m->masks, err);
  if (rc != BS_OK || bs_config_find(config, "auto.masks") != NULL) return rc;
  m->open_masks = strcmp(bs_schema_str(config, "mask.use"), "always") != 0;
  if (m->open_masks) return BS_OK;
  m->masks = as_configured; /* a named mask is the only one */
  m->configured = bs_schema_str(config, "mask.name");
  m->pattern[0] = bs_schema_str(config, "mask.pattern_a");
  m->pattern[1] = bs_schema_str(config, "mask.pattern_b");
  if (m->configured == NULL) m->configured = "complement_1100_0011"; /* only patterns: of that kind */
  return BS_OK;
}

/* Reads the list. Without a list takes `fallback`, unless the configuration sets its own value. */
static int32_t read_axis(maker *m, enum axis axis, const char *list, const char *own, char *fallback,
                         bs_error *err) {
  words *out = &m->axis[axis];
  if (bs_config_find(m->config, list) != NULL)
    m->named |= 1u << axis;
  else if (own != NULL && bs_config_find(m->config, own) != NULL)
    fallback[0] = '\0';
  const int32_t rc = read_words(m->config, list, fallback, out, err);
  if (out->n == 0) *out = as_configured;
  return rc;
}

/* The forms that layers of a program have: whole ones, a pair, a pair with tokens split between
 * (docs/methods.md), a sum that the caller makes. */
static int32_t read_placements(maker *m, bs_error *err) {
  static const char *const forms[] = {"replicated",   "replicated/split", "split/replicated",
                                      "tokens/split", "split/tokens",     "replicated/partial"};
  words *list = &m->axis[PLACEMENT];
  const char *half;
  char none[] = "";
  int32_t rc = read_axis(m, PLACEMENT, "auto.placements", NULL, none, err);
  if (rc == BS_OK && list->n == 1 && strcmp(list->item[0], "any") == 0) {
    list->n = sizeof forms / sizeof forms[0];
    memcpy(list->item, forms, sizeof forms);
  }
  for (uint32_t i = 0; rc == BS_OK && i < list->n && list->item[i][0] != '\0'; i++)
    for (int of_y = 0; rc == BS_OK && of_y < 2; of_y++) rc = placement_of(list->item[i], of_y, &half, err);
  return rc;
}

/* Adds the dense layer on all cores of the machine, and on one rank's if these are fewer; neither if a rung
 * has the same settings. */
static int32_t add_dense(maker *m, bs_error *err) {
  const int64_t each = bs_schema_i64(m->config, "hardware.threads_per_rank");
  const uint32_t cores = bs_machine_cores(), part = cores / m->world, before = m->ladder->n;
  const uint32_t share = each > 0 ? (uint32_t)each : part > 0 ? part : 1;
  const uint32_t threads[] = {cores, share, 1};
  static const char *const on[] = {"all cores", "one rank's cores", "one core"};
  uint32_t named = 0; /* threads of the dense layer that the words name */
  int32_t rc = BS_OK;
  for (uint32_t i = 0; i < before; i++)
    if (strcmp(m->ladder->rungs[i].settings[0], "method.name=dense") == 0)
      named = each > 0 ? (uint32_t)each : cores;
  for (uint32_t i = 0; rc == BS_OK && i < 3; i++) {
    bs_rung alone = {.n_settings = 0};
    char text[16];
    if (threads[i] == named || (i > 0 && threads[i] == cores) || (i == 1 && share == 1)) continue;
    snprintf(alone.name, sizeof alone.name, "dense on %s", on[i]);
    snprintf(text, sizeof text, "%u", threads[i]);
    set(&alone, "method.name", "dense");
    set(&alone, "hardware.world_size", "1");
    set(&alone, "hardware.threads_per_rank", text);
    rc = bs_ladder_add(m->ladder, &alone, err);
  }
  m->ladder->beside = m->ladder->n - before;
  return rc;
}

int32_t bs_ladder_candidates(bs_context *context, const bs_node *config, const bs_ladder_options *options,
                             bs_ladder *ladder, bs_error *err) {
  char methods[] = "blockshock row_parallel column_parallel masked_split dense";
  char masks[] =
      "complement_1100_0011 complement_1010_0101 interleave contiguous complement_1001_0110 "
      "random_2of4 magnitude";
  char kernels[] = "auto sparse24", slices[] = "row column", overlap[] = "off auto", reduce[] = "";
  const int64_t asked = bs_schema_i64(config, "hardware.world_size");
  maker m = {.context = context, .ladder = ladder, .config = config};
  m.world = asked > 0 ? (uint32_t)asked : 2;
  int32_t rc = read_words(config, "auto.methods", methods, &m.methods, err);
  if (rc == BS_OK) rc = read_masks(&m, masks, err);
  if (rc == BS_OK) rc = read_axis(&m, KERNEL, "auto.kernels", "method.kernel", kernels, err);
  if (rc == BS_OK) rc = read_axis(&m, SLICES, "auto.slices", "method.slices", slices, err);
  if (rc == BS_OK) rc = read_placements(&m, err);
  if (rc == BS_OK) rc = read_axis(&m, OVERLAP, "auto.overlap", NULL, overlap, err);
  if (rc == BS_OK) rc = read_axis(&m, REDUCE, "auto.reduce_dtypes", NULL, reduce, err);
  for (uint32_t i = 0; rc == BS_OK && i < m.methods.n; i++) rc = add_method(&m, m.methods.item[i], err);
  return rc == BS_OK && options->dense ? add_dense(&m, err) : rc;
}
