/* SPDX-License-Identifier: MIT
 * model_ranks.c - the words of a model over many ranks: --method, -P, --comm, --mask and method.KEY. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bsrun/model.h"
#include "bsrun/opening.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "lab/clock.h"
#include "lab/config/experiment.h"
#include "lab/config/schema.h"
#include "lab/config/short_names.h"
#include "lab/cores.h"
#include "lab/error.h"

static const char *value_of(const args *a, const char *name) {
  for (size_t i = 0; i < a->n_options; i++)
    if (strcmp(args_name(&a->options[i]), name) == 0) return args_value(a, name);
  return NULL;
}

static int32_t read_mask(const args *a, bs_model_ranks *out, bs_error *err) {
  const char *name = value_of(a, "mask");
  if (name == NULL) return BS_OK;
  out->has_mask = 1;
  const int32_t rc = bs_mask_parse(bs_full_name("mask.name", name), NULL, NULL, &out->mask, err);
  return rc == BS_CONFIG && err != NULL ? (err->code = BS_USAGE) : rc;
}

/* The settings method.KEY, of the options that one of the methods has. */
static int32_t read_options(const args *a, const bs_method *const *methods, size_t n, bs_model_ranks *out,
                            bs_error *err) {
  bs_node *config = NULL;
  bs_notes notes = {0};
  bs_text docs = {0};
  for (size_t i = 0; i < n; i++)
    if (methods[i]->option_docs != NULL) bs_text_printf(&docs, "%s", methods[i]->option_docs);
  int32_t rc = docs.failed ? bs_no_memory(err, "options") : bsrun_base_config(a, &config, err);
  if (rc == BS_OK)
    rc = bs_options_collect(config, "method", docs.data, 0, NULL, &notes, &out->n_options, &out->keys,
                            &out->values, err);
  bs_text_free(&docs);
  bs_notes_free(&notes);
  bs_config_free(config);
  return rc;
}

/* "M" or "F+S". */
static int32_t find_methods(bs_context *context, const char *text, const bs_method **out_methods,
                            size_t *out_n, bs_error *err) {
  const char *plus = strchr(text, '+');
  char first[64];
  void *state;
  snprintf(first, sizeof first, "%.*s", plus != NULL ? (int)(plus - text) : 63, text);
  *out_n = plus != NULL ? 2 : 1;
  const int32_t rc = bs_find_method(context, first, &out_methods[0], &state, err);
  return rc == BS_OK && plus != NULL ? bs_find_method(context, plus + 1, &out_methods[1], &state, err) : rc;
}

/* As for a layer: the number that was given, or the method's usual one. */
static int32_t read_size(const args *a, const bs_method *method, bs_model_ranks *out, bs_error *err) {
  const uint32_t usual = method->default_world != 0 ? method->default_world : 2;
  int64_t ranks = usual;
  const int32_t rc = args_integer(a, "world-size", 1, INT32_MAX, usual, &ranks, err);
  out->n = (uint32_t)ranks;
  return rc;
}

static int32_t refuse_ranks(const args *a, bs_error *err) {
  static const char *const need[] = {"world-size", "comm", "mask"};
  for (size_t i = 0; i < sizeof need / sizeof need[0]; i++) {
    if (value_of(a, need[i]) == NULL) continue;
    bs_error_set(err, BS_USAGE, "BS-USE-VALUE", "--%s is of a model over ranks, and no --method is given",
                 need[i]);
    bs_error_hint(err, "for example --method row_parallel -P 2");
    return BS_USAGE;
  }
  return BS_OK;
}

/* Without a method there is one rank: in the world of a simulated machine, or in none. */
static int32_t one_rank(const args *a, model_asked *io, bs_error *err) {
  const int32_t rc = refuse_ranks(a, err);
  if (rc != BS_OK || !io->ranks.simulated) return rc;
  io->ranks.n = 1;
  io->request.ranks = &io->ranks;
  return BS_OK;
}

int32_t model_ranks_read(const args *a, bs_context *context, int64_t threads, model_asked *io,
                         bs_error *err) {
  bs_model_ranks *out = &io->ranks;
  const bs_method *methods[2] = {NULL, NULL};
  size_t n = 0;
  out->method = value_of(a, "method");
  if (value_of(a, "comm") != NULL) out->comm = value_of(a, "comm");
  out->simulated = (uint32_t)bs_clock_is_virtual(context, out->comm);
  out->phantom = (uint32_t)bs_backend_is_phantom(context, io->request.backend);
  out->threads = out->simulated ? 1 : (uint32_t)threads;
  if (out->method == NULL) return one_rank(a, io, err);
  int32_t rc = find_methods(context, out->method, methods, &n, err);
  if (rc == BS_OK) rc = read_size(a, methods[0], out, err);
  if (rc == BS_OK) rc = read_mask(a, out, err);
  if (rc == BS_OK) rc = read_options(a, methods, n, out, err);
  if (rc != BS_OK) return rc;
  io->request.ranks = out;
  const uint32_t each = threads > 0 ? (uint32_t)threads : 1;
  if (!out->simulated && (uint64_t)out->n * each > bs_machine_cores()) {
    bs_notes notes = {0};
    bs_note_crowd(out->n, each, &notes);
    for (size_t i = 0; i < notes.count; i++) bsrun_note(io->quiet, notes.items[i]);
    bs_notes_free(&notes);
  }
  return BS_OK;
}

void model_ranks_free(bs_model_ranks *ranks) {
  bs_options_free(ranks->n_options, ranks->keys, ranks->values);
}
