/* SPDX-License-Identifier: MIT
 * sim_fit.c - `bsrun sim fit`: rows of `bsrun coll bench` as fits with their error on sizes that they have
 * not seen, and as a hardware file for the simulator. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bsrun/bsrun.h"
#include "bsrun/model.h"
#include "core/base/error.h"
#include "core/base/out_file.h"
#include "core/base/text.h"
#include "lab/sim/fit_rows.h"

static const args_option options[] = {
    {OPT_TO, "a hardware file (--hardware FILE) of the all_reduce rows, else of send_recv", 0},
    {OPT_WITH, "of the file", 0},
    {OPT_WITH_NAME, NULL, 0},
    {OPT_WITH_FLOPS, NULL, 0},
    {OPT_WITH_FLOPS_F32, NULL, 0},
    {OPT_WITH_MEM_BPS, NULL, 0},
    {OPT_WITH_MEM_SHARED_BPS, NULL, 0},
    {OPT_WITH_LAUNCH, NULL, 0},
    ARGS_TABLE,
    ARGS_HELP,
};

static const bs_field fields[] = {
    {"coll", "COLLECTIVE", 0, 0},
    {"comm", "COMM", BS_FIELD_FOLD, 0},
    {"ranks", "P", BS_FIELD_FOLD, 0},
    {"dtype", "DTYPE", BS_FIELD_FOLD, 0},
    {"algorithm", "ALGORITHM", BS_FIELD_FOLD, 0},
    {"points", "SIZES", BS_FIELD_RIGHT, 0},
    {"n_segments", "LINES", BS_FIELD_RIGHT, 0},
    {"alpha_us", "ALPHA us", BS_FIELD_RIGHT, 4},
    {"GBps", "GB/s", BS_FIELD_RIGHT, 4},
    {"held_out", "HELD OUT", BS_FIELD_RIGHT, 0},
    {"mape_percent", "MEAN |e| %", BS_FIELD_RIGHT, 3},
    {"bias_percent", "BIAS %", BS_FIELD_RIGHT, 3},
    {"worst_percent", "WORST %", BS_FIELD_RIGHT, 3},
    {"worst_bytes", "AT BYTES", BS_FIELD_RIGHT, 8},
    {"geomean_percent", "GEOMEAN %", BS_FIELD_RIGHT | BS_FIELD_WIDE, 3},
    {"least_bytes", "FROM BYTES", BS_FIELD_RIGHT | BS_FIELD_WIDE, 8},
    {"most_bytes", "TO BYTES", BS_FIELD_RIGHT | BS_FIELD_WIDE, 12},
};

static int32_t read_rate(const args *a, const char *name, double *out, bs_error *err) {
  const char *text = args_value(a, name);
  *out = 0;
  if (text == NULL || (bs_parse_f64(text, out) && *out >= 0 && isfinite(*out))) return BS_OK;
  return bs_error_set(err, BS_USAGE, "BS-USE-NUMBER", "--%s: '%.60s' is not a number of 0 or more", name,
                      text);
}

/* A machine is labelled calibrated: its times must be measured. */
static int32_t refuse_simulated(const json_t *rows, bs_error *err) {
  size_t i;
  json_t *row;
  json_array_foreach(rows, i, row) {
    const char *times = json_string_value(json_object_get(row, "times"));
    if (times == NULL || strcmp(times, "simulated") != 0) continue;
    bs_error_set(err, BS_INPUT, "BS-FIT-SIMULATED",
                 "row %zu was simulated: no calibrated machine is made of such times", i + 1);
    bs_error_hint(err, "bsrun coll bench without --plugin sim measures");
    return BS_INPUT;
  }
  return BS_OK;
}

/* Words of --with and the parameters of the plugin sim that they give. always: written as 0 too. */
static const struct {
  const char *word, *key;
  int always;
} rates[] = {{"flops", "flops", 1},
             {"flops-f32", "flops_f32", 0},
             {"mem-Bps", "mem_Bps", 1},
             {"mem-shared-Bps", "mem_shared_Bps", 0},
             {"launch", "launch_s", 1}};
enum { RATES = sizeof rates / sizeof rates[0] };

static int32_t write_file(const args *a, const bs_fit_link *link, const char *rows, bs_error *err) {
  const char *path = args_value(a, "to"), *name = args_value(a, "name");
  double given[RATES];
  int32_t rc = BS_OK;
  for (int i = 0; rc == BS_OK && i < RATES; i++) rc = read_rate(a, rates[i].word, &given[i], err);
  if (name == NULL) name = "fitted";
  if (rc == BS_OK &&
      (name[0] == '\0' || name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.")] != '\0'))
    rc = bs_error_set(err, BS_USAGE, "BS-USE-CHOICE",
                      "--with name: '%.60s' has other letters than a-z 0-9 - _ .", name);
  if (rc != BS_OK) return rc;
  bs_text text = {0};
  bs_text_printf(
      &text,
      "# Made by `bsrun sim fit %s`. One straight line over %.0f to %.0f bytes on %u ranks; on %u sizes that "
      "the "
      "fit\n# had not seen its mean error was %.1f %%, its bias %+.1f %%, its worst error %+.1f %% (at %.0f "
      "bytes).\n\nhardware:\n  name: %s\n  backend: sim\n  comm: sim\n\nplugins:\n  sim:\n",
      rows, link->least_bytes, link->most_bytes, link->ranks, link->held_out.cells, 100 * link->held_out.mape,
      100 * link->held_out.bias, 100 * link->held_out.worst, link->held_out.worst_bytes, name);
  for (int i = 0; i < RATES; i++)
    if (rates[i].always || given[i] > 0) bs_text_printf(&text, "    %s: %.9g\n", rates[i].key, given[i]);
  bs_text_printf(&text, "    alpha_s: %.9g\n    bw_Bps: %.9g\n", link->alpha_s, link->bytes_per_s);
  bs_text_printf(
      &text,
      "    label: calibrated\n    domain_least_B: %.0f\n    domain_most_B: %.0f\n    domain_ranks: %u\n",
      link->least_bytes, link->most_bytes, link->ranks);
  const int why = text.failed ? ENOMEM : bs_out_text(path, text.data, text.size);
  bs_text_free(&text);
  if (why != 0)
    return bs_error_set(err, BS_IO, "BS-OUT-WRITE", "%s cannot be written: %s", path, strerror(why));
  bs_print(stderr, "bsrun: note: wrote %s: alpha_s %.4g, bw_Bps %.4g; use it with --hardware %s\n", path,
           link->alpha_s, link->bytes_per_s, path);
  return BS_OK;
}

static int32_t print(const args *a, const json_t *fits, json_t *regret, bs_error *err) {
  int format;
  size_t i;
  json_t *row;
  int32_t rc = bsrun_format(a, &format, err);
  if (rc == BS_OK && format == BS_FORMAT_JSON) {
    json_t *all = json_pack("{s:O, s:O}", "fits", fits, "regret", regret);
    rc = model_print_json(all, err);
    json_decref(all);
    return rc;
  }
  json_array_foreach(fits, i, row) json_object_set_new(
      row, "n_segments", json_integer((json_int_t)json_array_size(json_object_get(row, "segments"))));
  if (rc == BS_OK) rc = bs_report_print(stdout, format, fields, sizeof fields / sizeof fields[0], fits, err);
  const json_int_t cells = json_integer_value(json_object_get(regret, "cells"));
  if (rc == BS_OK && format == BS_FORMAT_TABLE && cells > 0)
    printf(
        "The algorithm that the fits choose is within 5 %% of the fastest at %lld of %lld sizes that they "
        "have not "
        "seen; at worst it takes %.1f %% longer.\n",
        (long long)json_integer_value(json_object_get(regret, "within_5_percent")), (long long)cells,
        json_real_value(json_object_get(regret, "worst_percent")));
  return rc;
}

static int32_t run(const args *a, bs_error *err) {
  json_t *rows = NULL, *fits = NULL, *regret = NULL;
  bs_fit_link link = {0};
  int32_t rc = bs_fit_rows_read(a->words[0], &rows, err);
  if (rc == BS_OK) rc = bs_fit_rows(rows, &fits, err);
  if (rc == BS_OK) rc = bs_fit_regret(rows, &regret, err);
  if (rc == BS_OK && args_has(a, "to")) rc = refuse_simulated(rows, err);
  if (rc == BS_OK && args_has(a, "to")) rc = bs_fit_link_of(rows, &link, err);
  if (rc == BS_OK && args_has(a, "to")) rc = write_file(a, &link, a->words[0], err);
  if (rc == BS_OK) rc = print(a, fits, regret, err);
  json_decref(rows);
  json_decref(fits);
  json_decref(regret);
  return rc;
}

const bsrun_verb sim_fit_verb = {
    .name = "fit",
    .words = "ROWS.jsonl [--to FILE]",
    .summary = "fit straight lines to measured times, and judge them",
    .about =
        "ROWS are those of `bsrun coll bench -o json` or `-o jsonl`. Each collective, communicator, number "
        "of "
        "ranks,\n"
        "dtype and algorithm is fitted by one to four straight lines, alpha + bytes / rate, with the least "
        "sum "
        "of\n"
        "squared relative errors. Every second size is held out: the errors are those of the fit of the "
        "others "
        "on them,\n"
        "and a further line is taken only where it lowers them. --to makes a machine for the simulator of "
        "one "
        "line:\n"
        "it is labelled calibrated, and says for which sizes and ranks it was measured.\n",
    .examples =
        "  bsrun coll bench -P 2 -o jsonl > threads.jsonl\n"
        "  bsrun sim fit threads.jsonl\n"
        "  bsrun sim fit threads.jsonl --to mine.yaml --with flops=1e11,mem-Bps=1.5e10\n"
        "  bsrun --plugin sim --hardware ./mine.yaml --method blockshock -P 2\n",
    .options = options,
    .run = run,
    .min_words = 1,
    .max_words = 1,
    .takes = ":file",
};
