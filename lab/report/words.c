/* SPDX-License-Identifier: MIT
 * words.c - what a record says, in words: see rows.h. */
#include <stdio.h>
#include <string.h>

#include "lab/json.h"
#include "lab/report/rows.h"
#include "lab/store/summary.h"

const char *bs_gates_words(const json_t *record) {
  const char *word = bs_record_word(record);
  if (!json_is_true(json_object_get(record, "passed"))) return word != NULL ? word : "NOT SHOWN RIGHT";
  return json_is_true(json_object_get(record, "half_alone")) ? "HALF ALONE, as expected"
         : json_object_get(record, "segments") != NULL       ? "TWO PRECISIONS, as predicted"
         : json_is_false(json_object_get(record, "valid"))   ? "RIGHT, with NaN or Inf"
                                                             : "RIGHT";
}

const char *bs_arm_words(const json_t *arm, char *out, size_t size) {
  const char *name = bs_get_text(arm, "name");
  const int cores = (int)(bs_get_number(arm, "threads_per_rank") * bs_get_number(arm, "world_size"));
  if (strcmp(bs_get_text(arm, "method"), "dense") != 0 || strcmp(name, "method") == 0)
    snprintf(out, size, "%s", name);
  else if (strstr(name, "all cores") != NULL && cores > 1)
    snprintf(out, size, "dense on all %d cores", cores);
  else
    snprintf(out, size, "dense on %d core%s", cores, cores == 1 ? "" : "s");
  return out;
}

const char *bs_comparison_words(const json_t *c, const json_t *other, char *out, size_t size) {
  char name[96], why[64] = "";
  const char *word = bs_get_text(c, "word"), *cause = bs_get_text(c, "cause");
  if (cause[0] != '\0') snprintf(why, sizeof why, word[0] != '\0' ? " (%.56s)" : "%.60s", cause);
  if (strcmp(word, "SAME") == 0)
    snprintf(out, size, "SAME: as fast as %s, %.3g times [%.3g, %.3g]",
             bs_arm_words(other, name, sizeof name), bs_get_number(c, "speedup"), bs_get_number(c, "low"),
             bs_get_number(c, "high"));
  else
    snprintf(out, size, "%s%s: %.3g times as fast as %s [%.3g, %.3g]", word, why, bs_get_number(c, "speedup"),
             bs_arm_words(other, name, sizeof name), bs_get_number(c, "low"), bs_get_number(c, "high"));
  return out;
}
