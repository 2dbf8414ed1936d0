/* SPDX-License-Identifier: MIT
 * ladder.c - `bsrun ladder [METHOD]...`: every way to split one layer that is asked about, predicted and
 * measured in one sampling, with a sentence each. */
#include "bsrun/ladder.h"

#include <stdio.h>
#include <stdlib.h>

#include "bsrun/ladder_run.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "lab/measure/sampler.h"
#include "lab/stop.h"

static const args_option ladder_options[] = {
    {"pass", 0, "NAME", 1, "forward, backward, sgd or adamw (a whole step of training); default: forward"},
    {"mask", 0, "NAME", 0, "the mask of methods that take one; default: several fixed ones"},
    {"masks", 0, "LIST", 0, "masks for the methods that take them, with commas between"},
    {"overlap", 0, "LIST", 0, "off, auto or numbers of chunks, with commas between; default: off"},
    {"reduce-dtypes", 0, "LIST", 0, "dtypes on the wire, with commas between; default: as configured"},
    {"vary", 0, "KEY=V1,V2", 1, "each candidate by every value of a key: method.kernel=gather,sparse24"},
    {"measure", 0, "N", 0, "measure the N best by what is predicted, 0 to 16; default: 16"},
    {"seconds", 0, "S", 0, "time of measuring, each pass; default: 8"},
    {"world-size", 'P', "N", 0, "ranks; default: what each method needs"},
    {"threads-per-rank", 0, "N", 0, "threads of one rank; default: cores / ranks"},
    {"b", 0, "N", 0, "tokens B"},
    {"n", 0, "N", 0, "output features N"},
    {"k", 0, "N", 0, "input features K; default: N"},
    {"dtype", 0, "T", 0, "dtype of the model: bf16, f16, f32, f64, ..."},
    {"bias", 0, "on|off", 0, "a random bias; default: on"},
    {"backend", 0, "NAME", 0, "backend; default: cpu"},
    {"comm", 0, "NAME", 0, "communicator; default: threads"},
    {"workload", 0, "NAME", 0, "gaussian, file, ..."},
    {"hardware", 0, "NAME", 0, "cpu, or a YAML file"},
    {"out", 0, "DIR|off", 0, "root of the run folder (default results/raw); off: nothing is kept"},
    {"run-id", 0, "ID", 0, "name of the run folder"},
    {"cache", 0, "FILE|off", 0, "stored machine constants; default: the user's cache folder"},
    {"plugin", 0, "ID|PATH", 1, "use this plugin (its backend, if it has one)"},
    {"config", 0, "FILE", 1, "merge a YAML file over the base"},
    {"set", 0, "KEY=VALUE", 1, "set one key, after all files"},
    ARGS_TABLE,
    {"verbose", 'v', NULL, 1, "say more on stderr"},
    {"quiet", 'q', NULL, 0, "no notes and no progress on stderr"},
    ARGS_HELP,
};

/* "a,b" as a list of the configuration. */
static int32_t set_list(bs_node *config, const char *path, const char *words, bs_error *err) {
  bs_text text = {0};
  bs_text_printf(&text, "[%s]", words);
  const int32_t rc = text.failed ? bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory")
                                 : bs_config_set(config, path, text.data, err);
  bs_text_free(&text);
  return rc;
}

static int32_t set_words(const args *a, bs_node *config, bs_error *err) {
  static const char *const lists[][2] = {
      {"masks", "auto.masks"}, {"overlap", "auto.overlap"}, {"reduce-dtypes", "auto.reduce_dtypes"}};
  bs_text methods = {0};
  int32_t rc = BS_OK;
  for (size_t i = 0; i < a->n_words; i++) bs_text_printf(&methods, "%s%s", i > 0 ? ", " : "", a->words[i]);
  if (a->n_words > 0) rc = set_list(config, "auto.methods", methods.data != NULL ? methods.data : "", err);
  bs_text_free(&methods);
  for (size_t i = 0; rc == BS_OK && i < sizeof lists / sizeof lists[0]; i++) {
    const char *value = args_value(a, lists[i][0]);
    if (value != NULL) rc = set_list(config, lists[i][1], value, err);
  }
  if (rc == BS_OK && bs_config_find(config, "auto.overlap") == NULL)
    rc = set_list(config, "auto.overlap", "off", err);
  return rc;
}

static int32_t ladder(const args *a, ladder_run *r, bs_error *err) {
  int format = 0;
  int64_t most = 0;
  bs_ladder_options o = {.dense = 1, .in_order = 1};
  const char **vary = NULL;
  int32_t rc = bsrun_format(a, &format, err);
  if (rc == BS_OK) rc = args_integer(a, "measure", 0, BS_SAMPLER_ARMS, BS_SAMPLER_ARMS, &most, err);
  if (rc == BS_OK) rc = args_values(a, "vary", &vary, &o.n_vary, err);
  if (rc == BS_OK) rc = ladder_run_open(a, 8.0, r, err);
  if (rc == BS_OK) rc = set_words(a, r->config, err);
  o.vary = vary;
  if (rc == BS_OK) rc = ladder_run_measure(r, "ladder", most, &o, err);
  free(vary);
  if (bs_stop_asked() != 0) ladder_print(format, r->host.ladders, 0, NULL); /* what is known so far */
  if (rc == BS_OK) rc = ladder_print(format, r->host.ladders, 0, err);
  if (rc == BS_OK) ladder_run_print_folder(r, format);
  return rc;
}

static int run(const args *a, bs_error *err) {
  ladder_run l = {.host.progress.busy = ATOMIC_FLAG_INIT};
  const int code = ladder(a, &l, err) == BS_OK ? 0 : bsrun_fail(err);
  ladder_run_free(&l);
  return code;
}

const bsrun_verb verb_ladder = {
    .name = "ladder",
    .summary = "every way to split a layer: predicted, measured and explained",
    .usage =
        "usage: bsrun ladder [METHOD]... [options]\n"
        "\n"
        "Every way to split one layer that METHOD, --masks, --overlap and --vary give, and the dense layer\n"
        "beside them: what each should take by this machine's constants, what it takes (all in turn, in one\n"
        "sampling; the first named is what the others are held against), and where its time goes. Nothing\n"
        "is judged: `bsrun run` proves numbers.\n"
        "Without METHOD: all five. `bsrun --method auto` takes the best of the same ladder.\n"
        "\n",
    .after =
        "\n"
        "examples:\n"
        "  bsrun ladder --n 4096 --b 64 -P 2\n"
        "  bsrun ladder blockshock row_parallel --masks complement_1100_0011,interleave --pass forward\n"
        "  bsrun ladder blockshock column_parallel --pass backward --pass sgd -o md\n"
        "  bsrun ladder blockshock --masks complement_1100_0011 --vary method.kernel=gather,sparse24\n"
        "  bsrun ladder --measure 0 --n 32768 -P 8   only predicted\n"
        "\n"
        "exit codes: 0; 2 usage; 3 configuration, or no candidate can run (the first reason is printed).\n",
    .options = ladder_options,
    .exit = run,
};
