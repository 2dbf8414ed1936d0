/* SPDX-License-Identifier: MIT
 * model.c - the table of `bsrun model`. */
#include "bsrun/model.h"

#include <stdio.h>

#include "core/base/error.h"

static const bsrun_verb *const verbs[] = {&model_info,     &model_run,      &model_check, &model_bench,
                                          &model_explain,  &model_generate, &model_plan,  &model_tokenize,
                                          &model_quantize, &model_embed,    NULL};
const bsrun_verb verb_model = {
    .name = "model",
    .summary = "run, prove, time and explain models (ONNX, config.json)",
    .subverbs = verbs,
};

int32_t model_print_json(const json_t *value, bs_error *err) {
  if (json_dumpf(value, stdout, bs_report_json(stdout) | JSON_INDENT(2) | JSON_REAL_PRECISION(17)) != 0)
    return bs_error_set(err, BS_IO, "BS-OUT-WRITE", "cannot write the results to stdout");
  fputs("\n", stdout);
  return BS_OK;
}
