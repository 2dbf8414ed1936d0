/* SPDX-License-Identifier: MIT
 * sim_scale_model.c - see sim_scale_model.h. */
#include "bsrun/sim_scale_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bsrun/model.h"
#include "bsrun/opening.h"
#include "bsrun/simulated.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "lab/config/experiment.h"

/* 1: the method splits a weight so, with x or y split; BS_SPLIT_NONE: in any way, with both whole. */
static int splits(bs_context *context, const char *name, uint32_t ranks, uint32_t split) {
  const int64_t size = 64 * (int64_t)ranks;
  bs_proposal p = {.struct_size = (uint32_t)sizeof p};
  const bs_layer_spec spec = {.struct_size = (uint32_t)sizeof spec,
                              .B = 1,
                              .N = size,
                              .K = size,
                              .x_dtype = BS_F32,
                              .w_dtype = BS_F32,
                              .y_dtype = BS_F32,
                              .x_placement = split == BS_SPLIT_K ? BS_SPLIT : BS_REPLICATED,
                              .y_placement = split == BS_SPLIT_N ? BS_SPLIT : BS_REPLICATED};
  const int takes = bs_method_propose(context, name, &spec, 0, ranks, &p, NULL) == BS_OK;
  return takes && (split == BS_SPLIT_NONE || p.split == split);
}

static void add_pairs(bs_context *context, const json_t *singles, uint32_t ranks, json_t *io_names) {
  const json_t *f, *s;
  size_t i, k;
  json_array_foreach(singles, i, f) {
    if (!splits(context, json_string_value(f), ranks, BS_SPLIT_N)) continue;
    json_array_foreach(singles, k, s) {
      if (!splits(context, json_string_value(s), ranks, BS_SPLIT_K)) continue;
      char name[128];
      snprintf(name, sizeof name, "%.60s+%.60s", json_string_value(f), json_string_value(s));
      json_array_append_new(io_names, json_string(name));
    }
  }
}

int32_t sim_scale_model_methods(const args *a, uint32_t ranks, json_t *io_names, bs_error *err) {
  bs_context *context = NULL;
  bs_node *config = NULL;
  json_t *names = json_array(), *name;
  size_t i;
  int32_t rc = bsrun_base_config(a, &config, err);
  if (rc == BS_OK) rc = bs_context_of_config(config, BS_LOG_WARN, bsrun_log, NULL, &context, err);
  if (rc == BS_OK) rc = bsrun_names("methods", names, err);
  json_array_foreach(names, i, name) {
    if (rc == BS_OK && splits(context, json_string_value(name), ranks, BS_SPLIT_NONE))
      json_array_append(io_names, name);
  }
  if (rc == BS_OK) {
    json_t *singles = json_copy(io_names);
    add_pairs(context, singles, ranks, io_names);
    json_decref(singles);
  }
  json_decref(names);
  if (context != NULL) bs_context_close(context);
  bs_config_free(config);
  return rc;
}

/* The value of --dim NAME=VALUE among those given; NULL: none. */
static const char **dim_of(const args *a, const char *name) {
  const size_t n = strlen(name);
  for (size_t i = 0; i < a->n_given; i++)
    if (strcmp(args_name(&a->options[a->given[i].option]), "dim") == 0 &&
        strncmp(a->given[i].value, name, n) == 0 && a->given[i].value[n] == '=')
      return &a->given[i].value;
  return NULL;
}

/* The size on one rank of the dimension that grows with the ranks; 0: none. */
static int64_t weak_size(const args *a) {
  const char *weak = args_value(a, "weak");
  const char *const *dim = weak != NULL ? dim_of(a, weak) : NULL;
  int64_t size = 0;
  if (dim == NULL || !bs_parse_size(*dim + strlen(weak) + 1, &size)) return 0;
  return size > 0 && size < INT32_MAX ? size : 0;
}

int32_t sim_scale_model_check(const args *a, bs_error *err) {
  static const char *const of_layer[] = {"algorithm", "phase",      "at-least", "force", "n", "b",       "k",
                                         "bias",      "activation", "dtype",    "x",     "y", "workload"};
  const char *weak = args_value(a, "weak");
  for (size_t i = 0; i < sizeof of_layer / sizeof of_layer[0]; i++)
    if (args_has(a, of_layer[i])) {
      bs_error_set(err, BS_USAGE, "BS-USE-OPTION", "--%s is of a layer, and --with model=%.60s is given",
                   of_layer[i], args_value(a, "model"));
      bs_error_hint(err, "the algorithm of a model's collectives is --set hardware.algorithm=NAME");
      return BS_USAGE;
    }
  if (args_value(a, "output") != NULL && strcmp(args_value(a, "output"), "svg") == 0) {
    bs_error_set(err, BS_USAGE, "BS-USE-CHOICE", "-o svg draws layers, and --with model=%.60s is given",
                 args_value(a, "model"));
    bs_error_hint(err, "-o csv or -o json has the rows");
    return BS_USAGE;
  }
  if (weak == NULL || weak_size(a) > 0) return BS_OK;
  bs_error_set(err, BS_USAGE, "BS-USE-OPTION", "--with weak=%.60s needs the size of one rank", weak);
  bs_error_hint(err, "--dim %.60s=SIZE; bsrun model info lists a model's dimensions", weak);
  return BS_USAGE;
}

/* Gives the option of that name another value. */
static void give(args *io, const char *name, const char *value) {
  size_t option = 0;
  while (option < io->n_options && strcmp(args_name(&io->options[option]), name) != 0) option++;
  if (option == io->n_options) return;
  io->given[io->n_given].option = option;
  io->given[io->n_given++].value = value;
}

/* The words of `model bench` for the point; with.given is the caller's to free. */
static int32_t words_of(const args *a, const char *method, const char *ranks, args *out, bs_error *err) {
  static const char *const lists[] = {"method", "world-size", "model", "output", "wide", "weak", NULL};
  enum { MORE = 3 };
  int32_t rc = args_without(a, lists, out, err);
  if (rc != BS_OK) return rc;
  void *room = realloc(out->given, (out->n_given + MORE) * sizeof *out->given);
  if (room == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  out->given = room;
  give(out, "method", method);
  give(out, "world-size", ranks);
  if (!args_has(a, "hardware")) give(out, "hardware", "sim-flat");
  return BS_OK;
}

/* The first row of the same method and work. */
static const json_t *first_like(const json_t *rows, const json_t *row) {
  const json_t *other;
  size_t i;
  json_array_foreach(
      rows, i,
      other) if (json_equal(json_object_get(other, "method"), json_object_get(row, "method")) &&
                 json_equal(json_object_get(other, "work"), json_object_get(row, "work"))) return other;
  return row;
}

static void add_row(json_t *rows, json_t *row) {
  const double now = json_number_value(json_object_get(row, "simulated_s"));
  const double first = json_number_value(json_object_get(first_like(rows, row), "simulated_s"));
  json_object_update_missing(row, json_object_get(row, "simulated"));
  json_object_set_new(row, "speedup", json_real(first / now));
  json_array_append(rows, row);
}

int32_t sim_scale_model_point(const args *a, const char *method, uint32_t ranks, json_t *io_rows,
                              bs_error *err) {
  const char *path = args_value(a, "model");
  args words = {.given = NULL};
  json_t *rows = NULL, *row;
  char number[16], weak[128];
  size_t i;
  snprintf(number, sizeof number, "%u", ranks);
  int32_t rc = words_of(a, method, number, &words, err);
  const int64_t size = rc == BS_OK ? weak_size(a) : 0;
  if (size > 0) snprintf(weak, sizeof weak, "%.60s=%lld", args_value(a, "weak"), (long long)size * ranks);
  if (size > 0) *dim_of(&words, args_value(a, "weak")) = weak;
  words.words = &path;
  words.n_words = 1;
  if (rc == BS_OK) rc = model_bench_rows(&words, &rows, err);
  free(words.given);
  if (rc == BS_OK) json_array_foreach(rows, i, row) add_row(io_rows, row);
  json_decref(rows);
  return rc;
}

static double seconds_of(const json_t *row) {
  return json_number_value(json_object_get(row, "simulated_s"));
}

static int is_of(const json_t *row, json_int_t ranks, const char *work) {
  return json_integer_value(json_object_get(row, "world_size")) == ranks &&
         strcmp(json_string_value(json_object_get(row, "work")), work) == 0;
}

/* "prefill by column_parallel+row_parallel": all that take the least time. */
static void put_fastest(bs_text *io, const json_t *rows, json_int_t ranks, const char *work) {
  double least = INFINITY;
  size_t i, n = 0;
  const json_t *row;
  json_array_foreach(rows, i, row) if (is_of(row, ranks, work)) least = fmin(least, seconds_of(row));
  json_array_foreach(rows, i, row) {
    if (!is_of(row, ranks, work) || seconds_of(row) > least) continue;
    if (n == 0) bs_text_printf(io, "%s %s by", io->size > 0 ? "," : "", work);
    bs_text_printf(io, "%s %s", n++ > 0 ? " or" : "", json_string_value(json_object_get(row, "method")));
  }
}

/* Prints which methods take the least time on the most ranks. */
static void print_fastest(const json_t *rows) {
  static const char *const works[] = {"run", "prefill", "decode"};
  bs_text line = {0};
  json_int_t ranks = 0;
  const json_t *row;
  size_t i;
  json_array_foreach(rows, i, row) {
    const json_int_t n = json_integer_value(json_object_get(row, "world_size"));
    if (n > ranks) ranks = n;
  }
  for (size_t w = 0; w < sizeof works / sizeof works[0]; w++) put_fastest(&line, rows, ranks, works[w]);
  if (line.data != NULL) printf("fastest on %lld ranks:%s\n", (long long)ranks, line.data);
  bs_text_free(&line);
}

int32_t sim_scale_model_print(int format, const json_t *rows, int fastest, bs_error *err) {
  static const bs_field fields[] = {{"method", "METHOD", 0, 0},
                                    {"work", "", 0, 0},
                                    {"tokens", "tokens", BS_FIELD_RIGHT, 0},
                                    {"world_size", "P", BS_FIELD_RIGHT, 0},
                                    {"simulated_s", "s", BS_FIELD_RIGHT, 6},
                                    {"tokens_per_s", "tokens/s", BS_FIELD_RIGHT, 4},
                                    {"speedup", "x first", BS_FIELD_RIGHT, 4},
                                    {"collectives_share", "in collectives", BS_FIELD_RIGHT, 3},
                                    {"limit", "limit", 0, 0},
                                    {"bytes_per_device", "bytes/device", BS_FIELD_RIGHT, 0},
                                    {"collectives", "collectives", BS_FIELD_RIGHT | BS_FIELD_WIDE, 0},
                                    {"machine", "machine", BS_FIELD_FOLD | BS_FIELD_WIDE, 0},
                                    {"domain", "domain", BS_FIELD_FOLD | BS_FIELD_WIDE, 0}};
  const int readable = format == BS_FORMAT_TABLE || format == BS_FORMAT_MD;
  if (readable) simulated_print_head(json_array_get(rows, 0), 0);
  const int32_t rc = bs_report_print(stdout, format, fields, sizeof fields / sizeof fields[0], rows, err);
  if (rc == BS_OK && readable && fastest) print_fastest(rows);
  return rc;
}
