/* SPDX-License-Identifier: MIT
 * compare_methods.c - `bsrun compare [METHOD]...`: every way to split one layer that is asked about,
 * predicted and measured in one sampling, with a sentence each. */
#include "bsrun/compare.h"

#include <stdio.h>
#include <stdlib.h>

#include "bsrun/compare_run.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "lab/measure/sampler.h"
#include "lab/stop.h"

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
  static const char *const lists[][2] = {{"mask", "auto.masks"}};
  bs_text methods = {0};
  int32_t rc = BS_OK;
  for (size_t i = 0; i < a->n_words; i++) bs_text_printf(&methods, "%s%s", i > 0 ? ", " : "", a->words[i]);
  if (a->n_words > 0) rc = set_list(config, "auto.methods", methods.data != NULL ? methods.data : "", err);
  if (a->n_words == 0 && args_has(a, "method"))
    rc = set_list(config, "auto.methods", args_value(a, "method"), err);
  bs_text_free(&methods);
  for (size_t i = 0; rc == BS_OK && i < sizeof lists / sizeof lists[0]; i++) {
    const char *value = args_value(a, lists[i][0]);
    if (value != NULL) rc = set_list(config, lists[i][1], value, err);
  }
  if (rc == BS_OK && bs_config_find(config, "auto.overlap") == NULL)
    rc = set_list(config, "auto.overlap", "off", err);
  return rc;
}

/* The masks of --mask vary: the configuration takes none of them. */
static int32_t open_without_mask(const args *a, compare_run *r, bs_error *err) {
  static const char *const varies[] = {"mask", NULL};
  args options;
  int32_t rc = args_without(a, varies, &options, err);
  if (rc == BS_OK) rc = compare_run_open(&options, 8.0, r, err);
  free(options.given);
  return rc;
}

static int32_t compare(const args *a, compare_run *r, bs_error *err) {
  int format = 0;
  int64_t most = 0;
  bs_ladder_options o = {.dense = 1, .in_order = 1};
  const char **vary = NULL;
  int32_t rc = bsrun_format(a, &format, err);
  if (rc == BS_OK) rc = args_integer(a, "limit", 0, BS_SAMPLER_ARMS, BS_SAMPLER_ARMS, &most, err);
  if (rc == BS_OK) rc = args_values(a, "vary", &vary, &o.n_vary, err);
  if (rc == BS_OK) rc = open_without_mask(a, r, err);
  if (rc == BS_OK) rc = set_words(a, r->config, err);
  o.vary = vary;
  if (rc == BS_OK) rc = compare_run_measure(r, most, &o, err);
  free(vary);
  if (bs_stop_asked() != 0)
    compare_print_methods(format, r->host.ladders, 0, NULL); /* what is known so far */
  if (rc == BS_OK) rc = compare_print_methods(format, r->host.ladders, 0, err);
  if (rc == BS_OK) compare_run_print_folder(r, format);
  return rc;
}

int compare_methods(const args *a) {
  bs_error err = BS_ERROR_INIT;
  compare_run run = {.host.progress.busy = ATOMIC_FLAG_INIT};
  const int code = compare(a, &run, &err) == BS_OK ? 0 : bsrun_fail(&err);
  compare_run_free(&run);
  return code;
}
