/* SPDX-License-Identifier: MIT
 * model_words.c - what sub-verbs of `bsrun model` that open a model have in common. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bsrun/model.h"
#include "bsrun/plugins.h"
#include "core/base/clock.h"
#include "core/base/error.h"
#include "lab/cores.h"

static int32_t take_words(const args *a, const char *name, bs_model_words *out, const char ***out_list,
                          bs_error *err) {
  const int32_t rc = args_values(a, name, out_list, &out->n, err);
  out->words = *out_list;
  return rc;
}

/* Shows progress only after a while: most models are read too fast for a line. */
static void show_later(void *user, const char *what, uint64_t done, uint64_t total) {
  model_asked *asked = user;
  if (bs_clock_s() - asked->since >= 0.5) asked->show(&asked->progress, what, done, total);
}

static int takes(const args *a, const char *option) {
  for (size_t i = 0; i < a->n_options; i++)
    if (strcmp(args_name(&a->options[i]), option) == 0) return 1;
  return 0;
}

static void note(void *user, const char *text) {
  bsrun_note(((const model_asked *)user)->quiet, text);
}

void model_progress_end(model_asked *asked) {
  bsrun_progress_end(&asked->progress);
}

static int32_t read_cache_dtype(const args *a, uint32_t *out, bs_error *err) {
  static const char *const names[] = {"f32", "f16", "bf16"};
  static const uint32_t dtypes[] = {BS_F32, BS_F16, BS_BF16};
  const char *text = takes(a, "cache-dtype") ? args_value(a, "cache-dtype") : NULL;
  for (size_t i = 0; text != NULL && i < sizeof names / sizeof *names; i++)
    if (strcmp(text, names[i]) == 0) *out = dtypes[i];
  return text == NULL || *out != 0 ? BS_OK : bsrun_unknown("dtype of the cache", text, names, 3, err);
}

static int32_t read_shapes(const args *a, uint32_t *out_exact, bs_error *err) {
  const char *word = args_value(a, "shapes");
  *out_exact = word != NULL && strcmp(word, "exact") == 0;
  if (word == NULL || *out_exact || strcmp(word, "ranges") == 0) return BS_OK;
  bs_error_set(err, BS_USAGE, "BS-USE-VALUE", "--with shapes is exact or ranges, not '%.40s'", word);
  return BS_USAGE;
}

static int32_t read_repro(const args *a, uint32_t *out, bs_error *err) {
  static const char *const words[] = {"runs", "tokens", "ranks"};
  static const uint32_t bits[] = {BS_BITS_RUNS, BS_BITS_TOKENS, BS_BITS_RANKS};
  const char *word = takes(a, "repro") ? args_value(a, "repro") : NULL;
  *out = BS_BITS_RUNS;
  for (size_t i = 0; word != NULL && i < sizeof words / sizeof words[0]; i++) {
    if (strcmp(word, words[i]) != 0) continue;
    *out = bits[i];
    return BS_OK;
  }
  return word == NULL ? BS_OK : bsrun_unknown("promise of bits", word, words, 3, err);
}

int32_t model_asked_read(const args *a, model_asked *out, bs_error *err) {
  int64_t threads = 0, tokens = 0, seed = 0;
  memset(out, 0, sizeof *out);
  atomic_flag_clear(&out->progress.busy);
  out->progress.of = "model";
  out->show = bsrun_progress_to(args_has(a, "quiet"));
  out->since = bs_clock_s();
  bs_model_request *r = &out->request;
  r->progress = out->show != NULL ? show_later : NULL;
  r->progress_user = out;
  model_ranks_join(a, out);
  int32_t rc = args_integer(a, "threads", 1, 4096, 0, &threads, err);
  if (rc == BS_OK) rc = args_integer(a, "cache-tokens", 1, INT32_MAX, 0, &tokens, err);
  if (rc == BS_OK) rc = args_integer(a, "seed", 0, UINT32_MAX, 0, &seed, err);
  if (rc == BS_OK) rc = take_words(a, "dim", &r->dims, &out->lists[0], err);
  if (rc == BS_OK) rc = take_words(a, "input", &r->inputs, &out->lists[1], err);
  if (rc == BS_OK) rc = take_words(a, "constant", &r->constants, &out->lists[2], err);
  if (rc == BS_OK) rc = take_words(a, "no-pass", &r->passes, &out->lists[3], err);
  if (rc == BS_OK) rc = take_words(a, "choice", &r->choices, &out->lists[4], err);
  if (rc == BS_OK) rc = read_cache_dtype(a, &r->cache_dtype, err);
  if (rc == BS_OK && takes(a, "tune-cache")) rc = bsrun_tune_path(a, &out->tuning, err);
  r->tuning = out->tuning;
  r->note = note;
  r->note_user = out;
  out->quiet |= args_has(a, "quiet");
  r->path = a->words[0];
  r->backend = args_value(a, "backend");
  r->threads = threads != 0 ? (uint32_t)threads : bs_machine_cores();
  r->weights = args_value(a, "weights");
  r->activations = args_value(a, "activations");
  r->cache_tokens = tokens;
  r->seed = (uint32_t)seed;
  if (rc == BS_OK) rc = read_shapes(a, &r->exact, err);
  if (rc == BS_OK) rc = read_repro(a, &r->tokenwise, err);
  if (rc == BS_OK && r->tokenwise == BS_BITS_RANKS && args_value(a, "method") == NULL) {
    rc = bs_error_set(err, BS_USAGE, "BS-USE-VALUE",
                      "--with repro=ranks is of a model over ranks, and no --method is given");
    bs_error_hint(err, "for example --method column_parallel+row_parallel; one rank keeps repro=tokens");
  }
  if (rc == BS_OK) rc = model_machine_open(a, out, err);
  return rc == BS_OK ? model_ranks_read(a, out->context, threads, out, err) : rc;
}

int32_t model_asked_make(const args *a, model_asked *out, bs_error *err) {
  const int32_t rc = model_asked_read(a, out, err);
  return rc == BS_OK ? bs_model_open(out->context, &out->request, &out->model, err) : rc;
}

void model_asked_free(model_asked *asked) {
  model_progress_end(asked);
  bs_model_close(&asked->model);
  bsrun_close_context(asked->context);
  model_ranks_free(&asked->ranks);
  bs_config_free(asked->machine);
  free(asked->tuning);
  for (size_t i = 0; i < sizeof asked->lists / sizeof asked->lists[0]; i++) free(asked->lists[i]);
  memset(asked, 0, sizeof *asked);
}

void model_tell_fallback(const args *a, const bs_model_request *request, const json_t *stats) {
  const long long on_ref = (long long)json_integer_value(json_object_get(stats, "fallback_nodes"));
  const char *backend = request->backend != NULL ? request->backend : "cpu";
  const long long whole = (long long)json_integer_value(json_object_get(stats, "layers_whole"));
  char line[200];
  if (whole > 0) {
    snprintf(line, sizeof line,
             "%lld product%s whole on every rank: bsrun model explain with these words says why", whole,
             whole == 1 ? " is" : "s are");
    bsrun_note(args_has(a, "quiet"), line);
  }
  if (on_ref == 0 || strcmp(backend, "ref") == 0 || args_has(a, "quiet")) return;
  const char *where = json_string_value(json_object_get(stats, "fallback"));
  snprintf(line, sizeof line, "%lld node%s on %.40s, because %.40s does not serve %s: bsrun model explain",
           on_ref, on_ref == 1 ? " ran" : "s ran", where != NULL ? where : "another backend", backend,
           on_ref == 1 ? "it" : "them");
  bsrun_warn(line);
}

json_t *model_shape_text(const json_t *shape) {
  char text[160] = "[";
  size_t used = 1, i;
  const json_t *dim;
  if (!json_is_array(shape)) return json_string("?");
  json_array_foreach(shape, i, dim) {
    const char *comma = i == 0 ? "" : ", ";
    const int n =
        json_is_string(dim)
            ? snprintf(text + used, sizeof text - used, "%s%.30s", comma, json_string_value(dim))
            : snprintf(text + used, sizeof text - used, "%s%lld", comma, (long long)json_integer_value(dim));
    used += n > 0 ? (size_t)n : 0;
    if (used + 2 > sizeof text) return json_string("[...]");
  }
  snprintf(text + used, sizeof text - used, "]");
  json_t *value = json_string(text);
  return value != NULL ? value : json_string("?");
}

int model_say_written(const json_t *result, bs_error *err) {
  const json_t *error = json_object_get(result, "written_error");
  if (error == NULL) return 0;
  bs_error_set(err, BS_NUMERIC, json_string_value(json_object_get(error, "id")), "%s",
               json_string_value(json_object_get(error, "message")));
  bs_error_hint(err, "%s", json_string_value(json_object_get(error, "hint")));
  return 1;
}
