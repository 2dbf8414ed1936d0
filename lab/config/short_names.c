/* SPDX-License-Identifier: MIT
 * short_names.c - see short_names.h. */
#include "lab/config/short_names.h"

#include <string.h>

#include "core/partition/partition.h"

static const char *const short_names[][2] = {
    {"N", "model.N"},
    {"K", "model.K"},
    {"B", "model.B"},
    {"n", "model.N"},
    {"k", "model.K"},
    {"b", "model.B"},
    {"dtype", "model.dtype"},
    {"activation", "model.activation"},
    {"bias", "method.bias"},
    {"seed", "experiment.seed"},
    {"P", "hardware.world_size"},
    {"world-size", "hardware.world_size"},
    {"threads-per-rank", "hardware.threads_per_rank"},
    {"backend", "hardware.backend"},
    {"comm", "hardware.comm"},
    {"algorithm", "hardware.algorithm"},
    {"topology", "hardware.topology"},
    {"launch", "hardware.launch"},
    {"phase", "phase.name"},
    {"method", "method.name"},
    {"mask", "mask.name"},
    {"workload", "workload.name"},
    {"hardware", "hardware.name"},
};
enum { N_SHORT = sizeof short_names / sizeof short_names[0] };
_Static_assert((int)N_SHORT <= (int)BS_SHORT_NAMES_MAX, "room for all short names");

const char *bs_short_name_key(const char *name) {
  for (size_t i = 0; i < N_SHORT; i++)
    if (strcmp(short_names[i][0], name) == 0) return short_names[i][1];
  return name;
}

size_t bs_short_names(const char *out[BS_SHORT_NAMES_MAX]) {
  for (size_t i = 0; i < N_SHORT; i++) out[i] = short_names[i][0];
  return N_SHORT;
}

const char *const bs_phase_full_names[BS_PHASE_NAMES] = {"phase0_correctness", "phase1_forward",
                                                         "phase2_backward_input", "phase3_train_step"};
const char *const bs_phase_words[BS_PHASE_NAMES] = {"numbers", "time", "backward", "train"};

int bs_is_mask_digits(const char *text) {
  return text[0] != '\0' && text[strspn(text, "0123456789/_")] == '\0';
}

const char *bs_full_name(const char *path, const char *text) {
  bs_mask mask = {.struct_size = sizeof mask};
  if (strcmp(path, "phase.name") == 0)
    for (size_t i = 0; i < BS_PHASE_NAMES; i++) {
      const char digit[2] = {(char)('0' + i), '\0'};
      if (strcmp(text, digit) == 0 || strcmp(text, bs_phase_words[i]) == 0) return bs_phase_full_names[i];
    }
  if (strcmp(path, "mask.name") == 0 && bs_mask_parse(text, NULL, NULL, &mask, NULL) == BS_OK)
    return mask.name;
  return text;
}
