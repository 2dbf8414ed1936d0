/* SPDX-License-Identifier: MIT
 * form.c - see form.h. */
#include "sim/form.h"

#include <string.h>

#include "blockshock/blockshock.h"
#include "sim/program.h"

static const sim_form forms[] = {{"map", 1, 1, 1, 0, SIM_ROWS_CUT},
                                 {"activate", 1, 1, 1, 0, SIM_ROWS_CUT},
                                 {"convert", 1, 1, 1, 4, SIM_ROWS_CUT},
                                 {"normalize", 1, 1, 4, 0, SIM_ROWS_WHOLE},
                                 {"softmax", 1, 1, 5, 0, SIM_ROWS_WHOLE},
                                 {"reduce", 1, 1, 1, 0, SIM_ROWS_FOLDED},
                                 {"quantize_groups", 1, 1, 2, 1, SIM_ROWS_CUT},
                                 {"sgd_update", 2, 1, 2, 0, SIM_ROWS_CUT},
                                 {"adamw_update", 4, 3, 12, 0, SIM_ROWS_CUT},
                                 {"copy", 1, 1, 0, 0, SIM_ROWS_CUT},
                                 {"send", 1, 1, 0, 0, SIM_ROWS_CUT}};

const sim_form *sim_form_of(const char *name, size_t length) {
  for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
    if (strlen(forms[i].name) == length && strncmp(forms[i].name, name, length) == 0) return &forms[i];
  return NULL;
}

void sim_form_keys(uint32_t causal, int64_t left, int64_t right, int64_t queries, int64_t keys,
                   int64_t *out_from, int64_t *out_end) {
  const int64_t shift = causal == BS_CAUSAL_LOWER_RIGHT ? keys - queries : 0;
  int64_t end = causal != BS_CAUSAL_NONE ? shift + 1 : SIM_SEES_LAST;
  if (right > 0 && right < SIM_SEES_LAST && shift + right < end) end = shift + right;
  *out_from = left > 0 && left < SIM_SEES_LAST ? shift - left + 1 : SIM_SEES_FIRST;
  *out_end = end;
}
