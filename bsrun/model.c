/* SPDX-License-Identifier: MIT
 * model.c - the table of `bsrun model`. */
#include "bsrun/model.h"

#include <stdio.h>

#include "core/base/error.h"

static const model_verb *const verbs[] = {&model_info,    &model_run,      &model_check, &model_bench,
                                          &model_explain, &model_generate, &model_plan};
const bsrun_subverbs model_subverbs = {"model", verbs, sizeof verbs / sizeof verbs[0]};

int32_t model_print_json(const json_t *value, bs_error *err) {
  if (json_dumpf(value, stdout, bs_report_json(stdout) | JSON_INDENT(2) | JSON_REAL_PRECISION(17)) != 0)
    return bs_error_set(err, BS_IO, "BS-OUT-WRITE", "cannot write the results to stdout");
  fputs("\n", stdout);
  return BS_OK;
}

void help_model(void) {
  bsrun_subverbs_help(&model_subverbs);
}

int verb_model(int argc, char **argv) {
  return bsrun_subverbs_run(&model_subverbs, argc, argv);
}
