/* SPDX-License-Identifier: MIT
 * model_record.c - what is kept of `model check` and `model bench` (lab/model/keep.h), by their command
 * lines. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bsrun/model.h"
#include "lab/model/keep.h"

void model_print_folder(int format, const char *folder) {
  const int readable = format == BS_FORMAT_TABLE || format == BS_FORMAT_MD;
  if (folder != NULL && readable)
    bs_print(stdout, "\n%srun: %s\n", format == BS_FORMAT_MD ? "- " : "", folder);
}

/* "check.nodes: true", ...: options that say what was done. */
static size_t settings_of(const args *a, const char *what, char keys[4][48], const char *out[4][2]) {
  static const char *const options[] = {"nodes", "force", "seconds", "seed"};
  size_t n = 0;
  for (size_t i = 0; i < 4; i++) {
    const char *value = args_value(a, options[i]);
    if (value == NULL) continue;
    snprintf(keys[n], sizeof keys[n], "%s.%s", what, options[i]);
    out[n][0] = keys[n];
    out[n][1] = value[0] != '\0' ? value : "true";
    n++;
  }
  return n;
}

int32_t model_keep(const args *a, const model_asked *asked, const char *phase, int passed, json_t *result,
                   char **out_folder, bs_error *err) {
  const char *out_dir = args_value(a, "out"), *settings[4][2];
  char keys[4][48], *command = NULL;
  bs_grades grades;
  *out_folder = NULL;
  if (!bsrun_keeps(a)) return BS_OK;
  command = bsrun_command_line();
  bsrun_grades(1, &grades);
  const bs_model_keep_request q = {.context = asked->context,
                                   .model = &asked->request,
                                   .out_dir = out_dir != NULL ? out_dir : "results/raw",
                                   .run_id = args_value(a, "run-id"),
                                   .phase = phase,
                                   .command = command,
                                   .settings = settings,
                                   .n_settings = settings_of(a, strchr(phase, '_') + 1, keys, settings),
                                   .passed = passed,
                                   .grades = &grades,
                                   .opened = bsrun_log_begin,
                                   .closed = bsrun_log_end};
  const int32_t rc = bs_model_keep(&q, result, out_folder, err);
  bs_grades_close(&grades);
  free(command);
  return rc;
}
