/* SPDX-License-Identifier: MIT
 * sim_seal.c - `bsrun sim seal`: predicts the times of a grid of models before anything is measured; and
 * `bsrun sim score`: measures them and compares. A command of the grid is the words of a `model bench`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "bsrun/bsrun.h"
#include "bsrun/model.h"
#include "core/base/error.h"
#include "core/base/out_file.h"
#include "lab/json.h"
#include "lab/model/seal.h"
#include "lab/stop.h"
#include "lab/store/sha256.h"

enum { MOST_WORDS = 96, MOST_SETTINGS = 16 };

/* Options that a command of a grid may not have: those of the verbs here, and of what is printed, kept or
 * launched. */
static const char *const not_of_a_grid[] = {"hardware", "output", "out",    "run-id", "help",    "quiet",
                                            "seconds",  "peer",   "show",   "comm",   "backend", "launch",
                                            "timeout",  "set",    "config", "tensor", "plugin"};

/* ---- commands -------------------------------------------------------------------------------- */

typedef struct command {
  char *argv[MOST_WORDS + 1];
  int argc;
  args words;
} command;

/* Opens the words of a command, without `threads` where they are simulated, and adds the words of `more`. */
static int32_t command_open(const json_t *words, int simulated, const char *const *more, size_t n_more,
                            command *out, bs_error *err) {
  const json_t *word;
  size_t i;
  memset(out, 0, sizeof *out);
  json_array_foreach(words, i, word) {
    if (out->argc + n_more >= MOST_WORDS)
      return bs_error_set(err, BS_USAGE, "BS-USE-VALUE", "a command of the grid has over %d words",
                          MOST_WORDS);
    if (simulated && strcmp(json_string_value(word), "--threads") == 0)
      i++; /* and its value */
    else
      out->argv[out->argc++] = (char *)(uintptr_t)json_string_value(word);
  }
  for (size_t k = 0; k < n_more; k++) out->argv[out->argc++] = (char *)(uintptr_t)more[k];
  return args_parse(out->argc, out->argv, model_bench.options, &out->words, err);
}

/* Runs `model bench` on the words. */
static int32_t command_rows(const json_t *words, int simulated, const char *const *more, size_t n_more,
                            json_t **out_rows, bs_error *err) {
  command c;
  int32_t rc = command_open(words, simulated, more, n_more, &c, err);
  *out_rows = NULL;
  if (rc == BS_OK) rc = model_bench_rows(&c.words, out_rows, err);
  args_free(&c.words);
  return rc;
}

/* The words as one line. The caller frees. */
static char *line_of(const json_t *words) {
  const json_t *word;
  size_t i, size = 1;
  json_array_foreach(words, i, word) size += json_string_length(word) + 1;
  char *line = calloc(size, 1), *end = line;
  if (line == NULL) return NULL;
  json_array_foreach(words, i, word) end += sprintf(end, "%s%s", i > 0 ? " " : "", json_string_value(word));
  return line;
}

static void tell_command(const args *a, const json_t *words, size_t at, size_t of) {
  char *line = line_of(words), text[400];
  snprintf(text, sizeof text, "%zu of %zu: model bench %s", at, of, line != NULL ? line : "");
  bsrun_note(args_has(a, "quiet"), text);
  free(line);
}

/* A mistake in words or files ends the whole; what a model or a machine cannot do is the fate of a cell. */
static int is_mistake(int32_t rc) {
  return rc == BS_USAGE || rc == BS_INPUT || rc == BS_CONFIG || rc == BS_NO_MEMORY || rc == BS_UNAVAILABLE ||
         rc == BS_NOT_FOUND || bs_stop_asked() != 0;
}

static int32_t name_command(int32_t rc, const json_t *words, bs_error *err) {
  char *line = line_of(words), where[200];
  snprintf(where, sizeof where, "%s", err != NULL ? err->where : "");
  if (err != NULL && line != NULL)
    bs_error_where(err, "%s%smodel bench %s", where, where[0] != '\0' ? " of " : "", line);
  free(line);
  return rc;
}

/* A command that may be in a grid, with one model and a number of threads. */
static int32_t check_command(const json_t *words, bs_error *err) {
  command c;
  int64_t threads;
  int32_t rc = command_open(words, 0, NULL, 0, &c, err);
  for (size_t k = 0; rc == BS_OK && k < sizeof not_of_a_grid / sizeof not_of_a_grid[0]; k++) {
    if (!args_has(&c.words, not_of_a_grid[k])) continue;
    rc = bs_error_set(err, BS_USAGE, "BS-USE-OPTION", "--%s is no part of a grid", not_of_a_grid[k]);
    bs_error_hint(err, "--hardware, --set and --plugin are options of `sim seal`; ranks are threads");
  }
  if (rc == BS_OK && c.words.n_words != 1) {
    rc = bs_error_set(err, BS_USAGE, "BS-USE-VALUE", "a command of the grid has %zu models", c.words.n_words);
    bs_error_hint(err, "an option that takes no value is written as `force:`");
  }
  if (rc == BS_OK) rc = args_integer(&c.words, "threads", 1, 4096, 1, &threads, err);
  args_free(&c.words);
  return rc == BS_OK ? rc : name_command(rc, words, err);
}

/* ---- seal ------------------------------------------------------------------------------------ */

static const args_option seal_options[] = {
    {OPT_HARDWARE, "that predicts, with comm: sim", 0},
    {OPT_SET, "of that machine", 0},
    {OPT_PLUGIN, NULL, 0},
    {OPT_TO, "the seal", 0},
    ARGS_TABLE,
    {OPT_QUIET, NULL, 0},
    ARGS_HELP,
};

/* The columns of predicted cells; a score adds what it measured. */
static const bs_field cell_fields[] = {{"model", "MODEL", BS_FIELD_FOLD, 0},
                                       {"work", "", 0, 0},
                                       {"tokens", "tokens", BS_FIELD_RIGHT, 0},
                                       {"cache_tokens", "in cache", BS_FIELD_RIGHT, 0},
                                       {"method", "METHOD", BS_FIELD_FOLD, 0},
                                       {"world_size", "P", BS_FIELD_RIGHT, 0},
                                       {"predicted_s", "PREDICTED s", BS_FIELD_RIGHT, 4},
                                       {"measured_s", "MEASURED s", BS_FIELD_RIGHT, 4},
                                       {"low_s", "95 % from", BS_FIELD_RIGHT, 4},
                                       {"high_s", "to", BS_FIELD_RIGHT, 4},
                                       {"error_percent", "ERROR %", BS_FIELD_RIGHT, 3},
                                       {"limit", "limit", 0, 0},
                                       {"domain", "domain", 0, 0},
                                       {"word", "", 0, 0},
                                       {"why", "", 0, 0},
                                       {"command_line", "COMMAND", BS_FIELD_WIDE, 0}};

static int32_t check_grid(const json_t *commands, bs_error *err) {
  const json_t *words;
  size_t i;
  int32_t rc = BS_OK;
  json_array_foreach(commands, i, words) {
    for (size_t k = 0; rc == BS_OK && k < i; k++)
      if (json_equal(json_array_get(commands, k), words))
        rc = name_command(bs_error_set(err, BS_INPUT, "BS-SEAL-GRID", "two combinations are equal"), words,
                          err);
    if (rc == BS_OK) rc = check_command(words, err);
  }
  return rc;
}

/* The cell of a row that `model bench` predicted. */
static json_t *cell_of(const json_t *words, const json_t *row) {
  static const char *const kept[] = {"work", "tokens", "cache_tokens", "method", "world_size", "flops"};
  const json_t *simulated = json_object_get(row, "simulated");
  json_t *cell =
      json_pack("{s:O, s:O, s:f, s:O, s:O}", "command", words, "model", json_array_get(words, 0),
                "predicted_s", bs_get_number(row, "simulated_s"), "limit",
                json_object_get(simulated, "limit"), "domain", json_object_get(simulated, "domain"));
  for (size_t i = 0; cell != NULL && i < sizeof kept / sizeof kept[0]; i++)
    if (json_object_get(row, kept[i]) != NULL) json_object_set(cell, kept[i], json_object_get(row, kept[i]));
  return cell;
}

/* A simulated cache is one longer than the prompt, because attention is charged for all of it. So is the
 * measured one. */
static int32_t with_cache(const json_t *rows, json_t *io_words, bs_error *err) {
  const json_t *row, *word;
  char text[24];
  size_t i;
  json_array_foreach(io_words, i,
                     word) if (strcmp(json_string_value(word), "--cache-tokens") == 0) return BS_OK;
  json_array_foreach(rows, i, row) {
    if (strcmp(bs_get_text(row, "work"), "decode") != 0) continue;
    snprintf(text, sizeof text, "%.0f", bs_get_number(row, "cache_tokens") + 1);
    if (json_array_append_new(io_words, json_string("--cache-tokens")) != 0 ||
        json_array_append_new(io_words, json_string(text)) != 0)
      return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  }
  return BS_OK;
}

/* The cell of a command that cannot be simulated. */
static json_t *cell_without(const json_t *words, const char *why) {
  json_t *cell = json_pack("{s:O, s:O, s:n, s:o}", "command", words, "model", json_array_get(words, 0),
                           "predicted_s", "why", bs_json_of_text(why));
  for (size_t i = 1; cell != NULL && i + 1 < json_array_size(words); i++) {
    const char *name = json_string_value(json_array_get(words, i));
    if (strcmp(name, "--method") == 0) json_object_set(cell, "method", json_array_get(words, i + 1));
    if (strcmp(name, "--world-size") == 0)
      json_object_set_new(cell, "world_size",
                          json_integer(strtoll(json_string_value(json_array_get(words, i + 1)), NULL, 10)));
  }
  return cell;
}

/* Adds the cells of one command. */
static int32_t predict(json_t *words, json_t *seal, bs_error *err) {
  static const char *const lists[] = {"set", "plugin"};
  json_t *machine = json_object_get(seal, "machine"), *rows = NULL, *row, *text,
         *cells = json_object_get(seal, "cells");
  const char *more[2 * MOST_SETTINGS + 2] = {"--hardware", bs_get_text(machine, "hardware")};
  size_t n = 2, i;
  for (size_t k = 0; k < 2; k++) json_array_foreach(json_object_get(machine, lists[k]), i, text) {
      more[n++] = k == 0 ? "--set" : "--plugin";
      more[n++] = json_string_value(text);
    }
  int32_t rc = command_rows(words, 1, more, n, &rows, err);
  if (rc == BS_OK) rc = with_cache(rows, words, err);
  json_array_foreach(rows, i, row) if (rc == BS_OK) {
    const json_t *simulated = json_object_get(row, "simulated");
    json_object_set(machine, "name", json_object_get(simulated, "machine"));
    json_object_set(machine, "label", json_object_get(simulated, "label"));
    if (json_array_append_new(cells, cell_of(words, row)) != 0)
      rc = bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  }
  json_decref(rows);
  if (rc == BS_OK || is_mistake(rc)) return rc == BS_OK ? rc : name_command(rc, words, err);
  json_array_append_new(cells, cell_without(words, err != NULL ? err->message : ""));
  bs_error_clear(err);
  return BS_OK;
}

/* The values of --set and --plugin, which change the machine. */
static int32_t add_settings(const args *a, json_t *machine, bs_error *err) {
  static const char *const lists[] = {"set", "plugin"};
  size_t all = 0;
  int32_t rc = BS_OK;
  for (size_t k = 0; rc == BS_OK && k < 2; k++) {
    const char **values = NULL;
    size_t n = 0;
    json_t *list = json_array();
    rc = args_values(a, lists[k], &values, &n, err);
    for (size_t i = 0; rc == BS_OK && i < n; i++) json_array_append_new(list, bs_json_of_text(values[i]));
    json_object_set_new(machine, lists[k], list);
    free(values);
    all += n;
  }
  if (rc == BS_OK && all > MOST_SETTINGS)
    rc = bs_error_set(err, BS_USAGE, "BS-USE-VALUE", "over %d --set and --plugin", MOST_SETTINGS);
  return rc;
}

/* The seal without its cells. */
static int32_t seal_new(const args *a, json_t **out, bs_error *err) {
  char made[32], hex[65] = "";
  const time_t now = time(NULL);
  struct tm utc;
  gmtime_r(&now, &utc);
  strftime(made, sizeof made, "%Y-%m-%dT%H:%M:%SZ", &utc);
  if (bs_sha256_file(args_value(a, "hardware"), hex, NULL) != BS_OK) hex[0] = '\0';
  *out =
      json_pack("{s:i, s:s, s:s, s:{s:s, s:s}, s:[]}", "blockshock_seal", 1, "made", made, "version",
                bs_version(), "machine", "hardware", args_value(a, "hardware"), "file_sha256", hex, "cells");
  if (*out == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  return add_settings(a, json_object_get(*out, "machine"), err);
}

/* 1: both are one file. */
static int same_file(const char *one, const char *other) {
  struct stat a, b;
  return stat(one, &a) == 0 && stat(other, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

static int32_t seal_write(const args *a, json_t *seal, bs_error *err) {
  const char *path = args_value(a, "to");
  char *text = NULL, hex[65], line[400];
  int32_t rc = bs_seal_text(seal, &text, hex, err);
  const int why = rc == BS_OK ? bs_out_text(path, text, strlen(text)) : 0;
  free(text);
  if (why != 0) rc = bs_error_errno(err, BS_IO, "BS-OUT-WRITE", why, "%s cannot be written", path);
  if (rc != BS_OK) return rc;
  snprintf(line, sizeof line, "sha256 of %.200s, to be published: %s", path, hex);
  bsrun_note(0, line);
  return BS_OK;
}

/* A table of cells; each has its command as one line. */
static int32_t print_cells(int format, const json_t *cells, bs_error *err) {
  json_t *rows = json_array(), *cell;
  size_t i;
  json_array_foreach(cells, i, cell) {
    json_t *row = json_copy(cell);
    char *line = line_of(json_object_get(cell, "command"));
    json_object_set_new(row, "command_line", bs_json_of_text(line));
    json_array_append_new(rows, row);
    free(line);
  }
  const int32_t rc =
      bs_report_print(stdout, format, cell_fields, sizeof cell_fields / sizeof cell_fields[0], rows, err);
  json_decref(rows);
  return rc;
}

static int32_t run_seal(const args *a, bs_error *err) {
  static const char *const needed[] = {"hardware", "to"};
  json_t *commands = NULL, *seal = NULL;
  int format;
  size_t i;
  bsrun_interruptible("no seal is written");
  int32_t rc = bsrun_format(a, &format, err);
  for (i = 0; rc == BS_OK && i < 2; i++)
    if (!args_has(a, needed[i])) {
      rc = bs_error_set(err, BS_USAGE, "BS-USE-OPTION", "--%s is missing", needed[i]);
      bs_error_hint(err, "bsrun sim seal GRID.yaml --hardware mine.yaml --to seal.json");
    }
  if (rc == BS_OK && same_file(a->words[0], args_value(a, "to")))
    rc = bs_error_set(err, BS_USAGE, "BS-USE-VALUE", "--to is the grid itself");
  if (rc == BS_OK) rc = bs_seal_grid(a->words[0], &commands, err);
  if (rc == BS_OK) rc = check_grid(commands, err);
  if (rc == BS_OK) rc = seal_new(a, &seal, err);
  for (i = 0; rc == BS_OK && i < json_array_size(commands); i++) {
    rc = bs_stop_check(err);
    if (rc == BS_OK) rc = predict(json_array_get(commands, i), seal, err);
  }
  if (rc == BS_OK) rc = seal_write(a, seal, err);
  if (rc == BS_OK && format == BS_FORMAT_JSON)
    rc = model_print_json(seal, err);
  else if (rc == BS_OK)
    rc = print_cells(format, json_object_get(seal, "cells"), err);
  json_decref(commands);
  json_decref(seal);
  return rc;
}

const bsrun_verb sim_seal_verb = {
    .name = "seal",
    .words = "GRID.yaml --hardware M --to FILE [options]",
    .summary = "predict the times of models, and write them before they are measured",
    .about =
        "GRID is a map of options of `model bench` with a value or a list of values, and `model`. Each\n"
        "combination is simulated on --hardware. Each row of it (prefill, decode) is a cell with a\n"
        "predicted time. A combination that cannot be simulated is a cell without one. `threads` is of\n"
        "the measurement alone; ranks are threads. The file has a sum of its fields. Publish the sha256\n"
        "of the file before `bsrun sim score` measures its cells. Paths in it are relative to the folder\n"
        "where it is scored. An option without a value is a key without one: `force:`.\n",
    .examples = "  bsrun sim seal grid.yaml --hardware mine.yaml --to seal.json\n",
    .options = seal_options,
    .run = run_seal,
    .min_words = 1,
    .max_words = 1,
    .takes = ":file",
};

/* ---- score ----------------------------------------------------------------------------------- */

static const args_option score_options[] = {
    {OPT_SECONDS, "of each cell; default: 2. The warm-up takes at most as long", 0},
    {OPT_PLUGIN, NULL, 0},
    ARGS_TABLE,
    {OPT_QUIET, NULL, 0},
    ARGS_HELP,
};

/* The row of that work; NULL: none. */
static const json_t *row_of(const json_t *rows, const json_t *cell) {
  const json_t *row;
  size_t i;
  json_array_foreach(
      rows, i, row) if (json_equal(json_object_get(row, "work"), json_object_get(cell, "work"))) return row;
  return NULL;
}

typedef struct scoring {
  const json_t *measured; /* the command whose rows these are */
  json_t *rows;
  char why[512]; /* there are none */
} scoring;

/* Measures the command of a cell, if it is not that of the cell before. */
static int32_t measure(const args *a, const json_t *cell, size_t at, size_t of, scoring *io, bs_error *err) {
  const json_t *words = json_object_get(cell, "command");
  const char *more[2 * MOST_SETTINGS + 3] = {"--quiet"}, **plugins = NULL;
  size_t n = 1, n_plugins = 0;
  if (io->measured != NULL && json_equal(io->measured, words)) return BS_OK;
  json_decref(io->rows);
  io->measured = words;
  io->rows = NULL;
  io->why[0] = '\0';
  tell_command(a, words, at, of);
  int32_t rc = args_values(a, "plugin", &plugins, &n_plugins, err);
  if (rc == BS_OK && n_plugins > MOST_SETTINGS)
    rc = bs_error_set(err, BS_USAGE, "BS-USE-VALUE", "over %d --plugin", MOST_SETTINGS);
  for (size_t i = 0; rc == BS_OK && i < n_plugins; i++) {
    more[n++] = "--plugin";
    more[n++] = plugins[i];
  }
  if (args_has(a, "seconds")) {
    more[n++] = "--seconds";
    more[n++] = args_value(a, "seconds");
  }
  if (rc == BS_OK) rc = command_rows(words, 0, more, n, &io->rows, err);
  free(plugins);
  if (rc != BS_OK && !is_mistake(rc)) {
    snprintf(io->why, sizeof io->why, "%s", err != NULL ? err->message : "");
    bs_error_clear(err);
    return BS_OK;
  }
  return rc == BS_OK ? rc : name_command(rc, words, err);
}

/* Adds a row for each cell. After an error the cells that are left are rows without a time. */
static int32_t score_cells(const args *a, const json_t *cells, json_t *rows, bs_error *err) {
  scoring s = {.measured = NULL};
  const json_t *cell;
  size_t i;
  int32_t rc = BS_OK;
  json_array_foreach(cells, i, cell) {
    json_t *row = NULL;
    const int predicted = !json_is_null(json_object_get(cell, "predicted_s"));
    if (rc == BS_OK) rc = bs_stop_check(err);
    if (rc == BS_OK && predicted) rc = measure(a, cell, i + 1, json_array_size(cells), &s, err);
    if (rc == BS_OK) rc = bs_seal_judge(cell, predicted ? row_of(s.rows, cell) : NULL, s.why, &row, err);
    if (row == NULL) bs_seal_judge(cell, NULL, "the measurement ended before", &row, NULL);
    json_array_append_new(rows, row);
  }
  json_decref(s.rows);
  return rc;
}

static void print_summary(const json_t *score, const json_t *rows) {
  const double registered = bs_get_number(score, "registered"), covered = bs_get_number(score, "covered");
  bs_print(stdout, "\n%.0f of %.0f cells are covered; within 10 %%: %.0f, 15 %%: %.0f, 30 %%: %.0f\n",
           covered, registered, bs_get_number(score, "within_10"), bs_get_number(score, "within_15"),
           bs_get_number(score, "within_30"));
  if (!(covered > 0)) return;
  const json_t *worst = json_array_get(rows, (size_t)bs_get_number(score, "worst") - 1);
  bs_print(stdout, "worst %+.1f %% (%s, P = %.0f); mean |error| %.1f %%, bias %+.1f %%\n",
           bs_get_number(score, "worst_percent"), bs_get_text(worst, "work"),
           bs_get_number(worst, "world_size"), bs_get_number(score, "mean_percent"),
           bs_get_number(score, "bias_percent"));
}

static int32_t print_score(int format, const json_t *rows, json_t *score, bs_error *err) {
  const int readable = format == BS_FORMAT_TABLE || format == BS_FORMAT_MD;
  if (format == BS_FORMAT_JSON) {
    json_object_set(score, "rows", (json_t *)(uintptr_t)rows);
    return model_print_json(score, err);
  }
  const int32_t rc = print_cells(format, rows, err);
  if (rc == BS_OK && readable) print_summary(score, rows);
  return rc;
}

/* The words of a seal are those that a grid may have: whoever wrote it. */
static int32_t check_cells(const json_t *cells, bs_error *err) {
  const json_t *cell;
  size_t i;
  int32_t rc = BS_OK;
  json_array_foreach(cells, i, cell) if (rc == BS_OK) rc =
      check_command(json_object_get(cell, "command"), err);
  return rc;
}

/* BS_INCONCLUSIVE: cells are left open. */
static int32_t say_open(const json_t *score, const json_t *rows, bs_error *err) {
  const double covered = bs_get_number(score, "covered"), registered = bs_get_number(score, "registered");
  const json_t *row;
  size_t i;
  int unclear = 0;
  if (!(covered < registered)) return BS_OK;
  json_array_foreach(rows, i, row) unclear |= strcmp(bs_get_text(row, "word"), "UNCLEAR") == 0;
  bs_error_set(err, BS_INCONCLUSIVE, "BS-SEAL-OPEN", "%.0f of %.0f cells are not covered",
               registered - covered, registered);
  bs_error_hint(err, unclear ? "repeat it on a quiet machine, with more --seconds"
                             : "the last column says why; -o json has it too");
  return BS_INCONCLUSIVE;
}

static int32_t run_score(const args *a, bs_error *err) {
  json_t *seal = NULL, *rows = json_array(), *score = NULL;
  char hex[65], line[200];
  int format, measures = 0;
  bsrun_interruptible("cells that were not measured are rows without a time");
  int32_t rc = bsrun_format(a, &format, err);
  if (rc == BS_OK) rc = bs_seal_read(a->words[0], &seal, hex, err);
  if (rc == BS_OK) rc = check_cells(json_object_get(seal, "cells"), err);
  if (rc == BS_OK) {
    snprintf(line, sizeof line, "sha256 of the seal: %s", hex);
    bsrun_note(args_has(a, "quiet"), line);
    measures = 1;
    rc = score_cells(a, json_object_get(seal, "cells"), rows, err);
  }
  if (measures) score = bs_seal_score(rows);
  if (score != NULL && (rc == BS_OK || bs_get_number(score, "measured") > 0)) {
    json_object_set_new(score, "sha256", json_string(hex));
    const int32_t printed = print_score(format, rows, score, rc == BS_OK ? err : NULL);
    if (rc == BS_OK) rc = printed;
  }
  if (rc == BS_OK) rc = say_open(score, rows, err);
  json_decref(seal);
  json_decref(rows);
  json_decref(score);
  return rc;
}

const bsrun_verb sim_score_verb = {
    .name = "score",
    .words = "SEAL.json [--seconds S] [options]",
    .summary = "measure sealed predictions, and say how far they were",
    .about =
        "Measures each cell of a seal as `model bench` does. A row has the predicted and the measured\n"
        "time, the 95 % interval of the measured one, and the error, predicted / measured - 1. A cell\n"
        "counts as covered if it was predicted, and measured on a machine that was not disturbed.\n"
        "Shares within 10, 15 and 30 % are of all registered cells. Plugins of the models are given again:\n"
        "a seal starts none. A seal that was changed is refused\n"
        "(exit 4). Exit 15: a cell is not covered.\n",
    .examples =
        "  bsrun sim score seal.json\n"
        "  bsrun sim score seal.json --seconds 10 -o json > score.json\n",
    .options = score_options,
    .run = run_score,
    .min_words = 1,
    .max_words = 1,
    .takes = ":file",
};
