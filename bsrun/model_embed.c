/* SPDX-License-Identifier: MIT
 * model_embed.c - `bsrun model embed MODEL TEXT...`: the vectors of texts, and how alike they are. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bsrun/model.h"
#include "core/base/error.h"
#include "lab/model/embed.h"
#include "lab/model/text_file.h"

static const args_option model_embed_options[] = {
    {OPT_WITH, NULL, 0},
    {OPT_WITH_PROMPTS, NULL, 0},
    {OPT_TO, "the vectors, a .npy file [texts, width] of f32", 0},
    MODEL_OPTION_BACKEND,
    MODEL_OPTION_THREADS,
    MODEL_OPTION_PASS,
    MODEL_OPTIONS_QUANT,
    MODEL_OPTIONS_PLUGINS,
    ARGS_TABLE,
    {OPT_QUIET, NULL, 0},
    ARGS_HELP,
};

enum { MOST_COLUMNS = 12 };

typedef struct texts {
  const char **at;
  size_t n;
  char *file; /* that some of them lie in */
} texts;

static int32_t add(texts *t, const char *text, bs_error *err) {
  const char **grown = realloc((void *)t->at, (t->n + 1) * sizeof *grown);
  if (grown == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for texts");
  t->at = grown;
  t->at[t->n++] = text;
  return BS_OK;
}

/* The texts: the words after MODEL, then the lines of the file. */
static int32_t read_texts(const args *a, texts *out, bs_error *err) {
  const char *path = args_value(a, "prompts");
  int32_t rc = BS_OK;
  for (size_t i = 1; i < a->n_words && rc == BS_OK; i++) rc = add(out, a->words[i], err);
  if (rc == BS_OK && path != NULL) rc = bs_text_file_read(path, "BS-MODEL-PROMPTS", &out->file, err);
  char *rest = out->file;
  for (char *line; rc == BS_OK && rest != NULL && (line = bs_text_file_line(&rest)) != NULL;)
    if (line[0] != '\0') rc = add(out, line, err);
  if (rc != BS_OK || out->n > 0) return rc;
  bs_error_set(err, BS_USAGE, "BS-USE-WORDS", "model embed needs a text");
  bs_error_hint(err, "bsrun model embed MODEL TEXT..., or --with prompts=FILE, a text on each line");
  return BS_USAGE;
}

/* ---- results --------------------------------------------------------------------------------- */

/* The text that is most alike; n == 1: none. */
static size_t nearest(const bs_embedded *e, size_t i, double *out_cosine) {
  size_t best = i;
  for (size_t k = 0; k < e->n; k++) {
    const double cosine = k == i ? -2 : bs_embedded_cosine(e, i, k);
    if (k == i || (best != i && cosine <= *out_cosine)) continue;
    best = k;
    *out_cosine = cosine;
  }
  return best;
}

/* Few texts: the cosines of all pairs. More: of each the nearest. */
static json_t *row_of(const bs_embedded *e, const texts *t, size_t i) {
  char key[40];
  double cosine = 0;
  json_t *row = json_pack("{s:I, s:I, s:o}", "number", (json_int_t)i + 1, "tokens", (json_int_t)e->tokens[i],
                          "text", bs_model_json_text(t->at[i]));
  if (e->n > 1 && e->n <= MOST_COLUMNS) {
    for (size_t k = 0; k < e->n; k++) {
      snprintf(key, sizeof key, "cosine_%zu", k + 1);
      json_object_set_new(row, key, json_real(bs_embedded_cosine(e, i, k)));
    }
  } else if (e->n > 1) {
    const size_t of = nearest(e, i, &cosine);
    json_object_set_new(row, "nearest", json_integer((json_int_t)of + 1));
    json_object_set_new(row, "cosine", json_real(cosine));
  }
  return row;
}

static int32_t print_table(int format, const bs_embedded *e, const texts *t, bs_error *err) {
  static char keys[MOST_COLUMNS][40], titles[MOST_COLUMNS][24];
  bs_field fields[MOST_COLUMNS + 4] = {{"number", "", BS_FIELD_RIGHT, 0}};
  size_t n = 1;
  json_t *rows = json_array();
  for (size_t k = 0; e->n > 1 && e->n <= MOST_COLUMNS && k < e->n; k++) {
    snprintf(keys[k], sizeof keys[k], "cosine_%zu", k + 1);
    snprintf(titles[k], sizeof titles[k], "%zu", k + 1);
    fields[n++] = (bs_field){keys[k], titles[k], BS_FIELD_RIGHT, 3};
  }
  if (e->n > MOST_COLUMNS) {
    fields[n++] = (bs_field){"nearest", "nearest", BS_FIELD_RIGHT, 0};
    fields[n++] = (bs_field){"cosine", "cosine", BS_FIELD_RIGHT, 3};
  }
  fields[n++] = (bs_field){"tokens", "tokens", BS_FIELD_RIGHT, 0};
  fields[n++] = (bs_field){"text", "text", 0, 0};
  for (size_t i = 0; i < e->n; i++) json_array_append_new(rows, row_of(e, t, i));
  if (format == BS_FORMAT_TABLE)
    bs_print(stdout, "%zu vector%s of %lld numbers, length 1: %s%s\n", e->n, e->n == 1 ? "" : "s",
             (long long)e->width, e->how,
             e->n > MOST_COLUMNS ? "; of each text the nearest"
             : e->n > 1          ? "; cosines of pairs"
                                 : "");
  const int32_t rc = bs_report_print(stdout, format, fields, n, rows, err);
  json_decref(rows);
  return rc;
}

static int32_t print_json(const args *a, const bs_embedded *e, const texts *t, bs_error *err) {
  json_t *rows = json_array();
  for (size_t i = 0; i < e->n; i++) {
    json_t *vector = json_array(), *cosines = json_array();
    for (int64_t d = 0; d < e->width; d++)
      json_array_append_new(vector, json_real((double)e->vectors[i * (size_t)e->width + (size_t)d]));
    for (size_t k = 0; k < e->n && e->n <= 256; k++)
      json_array_append_new(cosines, json_real(bs_embedded_cosine(e, i, k)));
    json_array_append_new(rows,
                          json_pack("{s:o, s:I, s:o, s:o}", "text", bs_model_json_text(t->at[i]), "tokens",
                                    (json_int_t)e->tokens[i], "vector", vector, "cosines", cosines));
  }
  json_t *all = json_pack("{s:o, s:s, s:I, s:o}", "model", bs_model_json_text(a->words[0]), "pooling", e->how,
                          "width", (json_int_t)e->width, "texts", rows);
  const int32_t rc = model_print_json(all, err);
  json_decref(all);
  return rc;
}

static int32_t print(const args *a, int format, const bs_embedded *e, const texts *t, bs_error *err) {
  const int64_t dims[] = {(int64_t)e->n, e->width};
  const char *to = args_value(a, "to");
  const int32_t rc = to != NULL ? bs_npy_write(to, BS_F32, 2, dims, e->vectors, err) : BS_OK;
  if (rc != BS_OK) return rc;
  return format == BS_FORMAT_JSON ? print_json(a, e, t, err) : print_table(format, e, t, err);
}

/* ---- the verb -------------------------------------------------------------------------------- */

static int32_t embed(const args *a, bs_error *err) {
  model_asked asked = {0};
  bs_embedded made = {0};
  texts t = {0};
  char line[120];
  int format;
  bsrun_interruptible("nothing is written");
  int32_t rc = bsrun_format(a, &format, err);
  if (rc == BS_OK) rc = read_texts(a, &t, err);
  if (rc == BS_OK) rc = model_asked_read(a, &asked, err);
  if (rc == BS_OK) rc = bs_model_embed(asked.context, &asked.request, t.at, t.n, &made, err);
  model_progress_end(&asked);
  if (rc == BS_OK && made.cut > 0) {
    snprintf(line, sizeof line, "%zu text%s cut to the %lld tokens that the model takes", made.cut,
             made.cut == 1 ? " was" : "s were", (long long)made.most);
    bsrun_note(args_has(a, "quiet"), line);
  }
  if (rc == BS_OK) {
    json_t *stats = json_pack("{s:I}", "fallback_nodes", (json_int_t)made.fallback_nodes);
    model_tell_fallback(a, &asked.request, stats);
    json_decref(stats);
    rc = print(a, format, &made, &t, err);
  }
  bs_embedded_free(&made);
  model_asked_free(&asked);
  free((void *)t.at);
  free(t.file);
  return rc;
}

const bsrun_verb model_embed = {
    .name = "embed",
    .words = "MODEL TEXT... [--with prompts=FILE] [--to FILE] [options]",
    .summary = "vectors of texts, and how alike the texts are",
    .about =
        "MODEL is an ONNX file of a sentence encoder with tokenizer.json in its folder, or the folder\n"
        "(model.onnx, onnx/model.onnx, or vectors.txt). The hidden states of a text are pooled as\n"
        "1_Pooling/config.json defines, else by their mean. The vector then gets length 1. The first line\n"
        "names the pooling. For several texts the table has the cosines of all pairs; for more than 12 it\n"
        "has the nearest text of each. -o json has the vectors. Texts that are longer than the model takes\n"
        "are cut, with a note. Exit 3: a module, a pooling or an input is not served; the error names it.\n",
    .examples =
        "  bsrun model embed minilm 'A cat sits outside' 'A dog plays in the garden'\n"
        "  bsrun model embed minilm --with prompts=texts.txt --to vectors.npy -q\n",
    .options = model_embed_options,
    .run = embed,
    .min_words = 1,
    .max_words = 256,
    .takes = ":file",
};
