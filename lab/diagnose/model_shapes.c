/* SPDX-License-Identifier: MIT
 * model_shapes.c - batch and sequence varied: a script of sizes of each dimension is run twice. In the second
 * round every shape has been there, so a plan that is made then is one too many. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/text.h"
#include "lab/diagnose/model_checks.h"
#include "lab/error.h"

enum { MOST_SIZES = 64 };

/* Sizes of one dimension, in the order of the calls. */
typedef struct script {
  const char *name, *word; /* word: as --vary has it; NULL: made */
  int64_t base, sizes[MOST_SIZES];
  uint32_t n;
} script;

/* One round of it. */
typedef struct round {
  uint64_t made, again;
  uint32_t with; /* calls in which a plan was made */
  double bind_s; /* all */
  double set_s;  /* of the calls in which a plan that was there took another size */
  uint32_t set;
} round;

/* ---- scripts --------------------------------------------------------------------------------- */

/* "8", "4:12+1" or "4:64*2" at the beginning of text, which ends at `end`. */
static int read_part(const char *text, const char *end, script *out) {
  char part[64];
  int64_t low, high, step = 0;
  snprintf(part, sizeof part, "%.*s", (int)(end - text), text);
  char *colon = strchr(part, ':'), *by = colon != NULL ? strpbrk(colon, "+*") : NULL;
  const int times = by != NULL && *by == '*';
  if (colon != NULL) *colon = '\0';
  if (by != NULL) *by = '\0';
  if (!bs_parse_size(part, &low) || low < 0) return 0;
  high = low;
  if (colon != NULL && (by == NULL || !bs_parse_size(colon + 1, &high) || !bs_parse_size(by + 1, &step)))
    return 0;
  if (colon != NULL && step < (times ? 2 : 1)) return 0;
  if (times && low == 0) return 0;
  for (int64_t v = low; v <= high && v <= INT32_MAX; v = step == 0 ? high + 1 : times ? v * step : v + step) {
    if (out->n == MOST_SIZES) return 0;
    out->sizes[out->n++] = v;
  }
  return 1;
}

static int32_t read_script(const diag_model *m, const char *word, script *out, bs_error *err) {
  const char *equals = strchr(word, '=');
  const bs_dim *dim = NULL;
  *out = (script){0};
  for (size_t i = 0; equals != NULL && i < m->model->n_dims; i++)
    if (strncmp(m->model->dims[i].name, word, (size_t)(equals - word)) == 0 &&
        m->model->dims[i].name[equals - word] == '\0')
      dim = &m->model->dims[i];
  int good = dim != NULL;
  for (const char *at = equals != NULL ? equals + 1 : ""; good && *at != '\0';) {
    const char *end = at + strcspn(at, ",");
    good = read_part(at, end, out);
    at = end + (*end == ',');
  }
  if (good && out->n > 0) {
    out->name = dim->name;
    out->word = word;
    out->base = dim->size;
    return BS_OK;
  }
  bs_error_set(err, BS_USAGE, "BS-USE-VALUE", "--vary '%.100s' is not NAME=SIZES of a dimension of the model",
               word);
  bs_error_hint(err, "SIZES: 1,8,32 or 4:12+1 or 4:64*2, at most %d; bsrun model info has the dimensions",
                MOST_SIZES);
  return BS_USAGE;
}

/* Sizes of runs: none, one, half, jumps by four and by sixteen and back. With these a session keeps the plans
 * of all. */
static void make_script(const bs_dim *dim, script *out) {
  const int64_t b = dim->size, half = b / 2 > 0 ? b / 2 : 1;
  const int64_t sizes[] = {b, 0, b, 4 * b, 1, 16 * b, half, b};
  *out = (script){.name = dim->name, .base = b, .n = sizeof sizes / sizeof sizes[0]};
  memcpy(out->sizes, sizes, sizeof sizes);
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static int32_t bind_one(const diag_session *s, const char *name, int64_t size, bs_error *err) {
  const bs_dim dim = {.struct_size = sizeof dim, .name = name, .size = size};
  const bs_dim *const dims[] = {&dim};
  return bs_session_bind(s->session, dims, 1, err);
}

/* Removes a size from the script that the model does not allow (more places than its table has), or for which
 * memory is missing. */
static int32_t one_call(diag_session *s, script *sc, uint32_t i, round *r, bs_text *refused, bs_error *err) {
  bs_session_stats before = {.struct_size = sizeof before}, after = before;
  bs_error why = BS_ERROR_INIT;
  int32_t rc = bs_session_stats_get(s->session, &before, err);
  const double began = bs_clock_s();
  if (rc == BS_OK) rc = bind_one(s, sc->name, sc->sizes[i], &why);
  const double took = bs_clock_s() - began;
  if (rc == BS_OK) rc = diag_inputs_set(s, &why);
  if (rc == BS_OK) rc = diag_session_run(s, &why);
  if (rc == BS_INTERNAL || (rc != BS_OK && sc->sizes[i] == sc->base)) {
    if (rc == BS_INTERNAL) bs_error_where(&why, "%.60s=%lld", sc->name, (long long)sc->sizes[i]);
    if (err != NULL) *err = why;
    return rc;
  }
  if (rc != BS_OK) {
    bs_text_printf(refused, "%s%s=%lld: %.80s", refused->size > 0 ? "; " : "", sc->name,
                   (long long)sc->sizes[i], why.message);
    sc->sizes[i] = sc->base;
    return bind_one(s, sc->name, sc->base, err);
  }
  rc = bs_session_stats_get(s->session, &after, err);
  r->made += after.plans_made - before.plans_made;
  r->again += after.plans_again - before.plans_again;
  r->with += after.plans_made > before.plans_made;
  if (after.plans_made > before.plans_made) {
    r->bind_s += took;
  } else if (i > 0 && sc->sizes[i] != sc->sizes[i - 1]) {
    r->set_s += took;
    r->set++;
  }
  return rc;
}

static uint32_t distinct(const script *sc) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < sc->n; i++) {
    uint32_t k = 0;
    while (k < i && sc->sizes[k] != sc->sizes[i]) k++;
    n += k == i;
  }
  return n;
}

static int32_t run_script(bs_diagnosis *d, const diag_model *m, script *sc, bs_error *err) {
  const diag_change change = {.share = 1};
  diag_session s = {0};
  round rounds[2] = {{0}};
  bs_text refused = {0}, sizes = {0}, word = {0}, more = {0};
  char fact[96];
  int32_t rc = diag_session_open(m, &change, &s, err);
  for (uint32_t i = 0; rc == BS_OK && i < 2 * sc->n; i++)
    rc = one_call(&s, sc, i % sc->n, &rounds[i / sc->n], &refused, err);
  diag_session_close(&s);
  for (uint32_t i = 0; i < sc->n; i++)
    bs_text_printf(&sizes, "%s%lld", i > 0 ? "," : "", (long long)sc->sizes[i]);
  if (rc == BS_OK) {
    snprintf(fact, sizeof fact, "%.40s: sizes of a round", sc->name);
    bs_fact_text(d, fact, "%s", sizes.data);
    if (refused.size > 0) {
      snprintf(fact, sizeof fact, "%.40s: sizes that are refused", sc->name);
      bs_fact_text(d, fact, "%s", refused.data);
    }
    snprintf(fact, sizeof fact, "%.40s: plans made in the first round", sc->name);
    bs_fact(d, fact, (double)rounds[0].made, "");
    snprintf(fact, sizeof fact, "%.40s: a plan for a new size", sc->name);
    if (rounds[0].made > 0) bs_fact(d, fact, rounds[0].bind_s / (double)rounds[0].made, "s");
    snprintf(fact, sizeof fact, "%.40s: another size of a plan", sc->name);
    if (rounds[0].set > 0) bs_fact(d, fact, rounds[0].set_s / rounds[0].set, "s");
    snprintf(fact, sizeof fact, "%.40s: plans made again in the second", sc->name);
    bs_fact(d, fact, (double)rounds[1].made, "");
  }
  bs_text_printf(&word, "%s=%s", sc->name, sizes.data != NULL ? sizes.data : "");
  bs_text_printf(&more, "--only shapes --vary");
  bs_text_word(&more, sc->word != NULL ? sc->word : word.data != NULL ? word.data : sc->name);
  if (rc == BS_OK && rounds[1].made > 0)
    bs_find(d, rounds[1].bind_s / sc->n, more.data,
            "%u of %u calls make a plan for a shape that had one: dimension '%s' has %u sizes, and a session "
            "keeps "
            "the plans of 16 shapes (reason: dimension)",
            rounds[1].with, sc->n, sc->name, distinct(sc));
  bs_text_free(&refused);
  bs_text_free(&sizes);
  bs_text_free(&word);
  bs_text_free(&more);
  return rc;
}

int32_t diag_model_shapes(bs_diagnosis *d, diag_model *m, bs_error *err) {
  int32_t rc = BS_OK;
  script sc;
  if (m->model->n_dims == 0) return bs_skip(d, "the model has no named dimension: it is planned once");
  for (size_t i = 0; rc == BS_OK && i < d->asked->n_vary; i++) {
    rc = read_script(m, d->asked->vary[i], &sc, err);
    if (rc == BS_OK) rc = run_script(d, m, &sc, err);
  }
  for (size_t i = 0; rc == BS_OK && d->asked->n_vary == 0 && i < m->model->n_dims; i++) {
    make_script(&m->model->dims[i], &sc);
    rc = run_script(d, m, &sc, err);
  }
  return rc;
}
