/* SPDX-License-Identifier: MIT
 * words.c - what a record says, in words: see rows.h. */
#include <stdio.h>
#include <string.h>

#include "lab/report/rows.h"
#include "lab/store/summary.h"

static double num(const json_t *object, const char *key) {
  return json_number_value(json_object_get(object, key));
}

static const char *str(const json_t *object, const char *key) {
  const char *text = json_string_value(json_object_get(object, key));
  return text != NULL ? text : "";
}

const char *bs_gates_words(const json_t *record) {
  const char *word = bs_record_word(record);
  if (!json_is_true(json_object_get(record, "passed"))) return word != NULL ? word : "NOT SHOWN RIGHT";
  return json_is_true(json_object_get(record, "half_alone")) ? "HALF ALONE, as expected"
         : json_object_get(record, "segments") != NULL       ? "TWO PRECISIONS, as predicted"
         : json_is_false(json_object_get(record, "valid"))   ? "RIGHT, with NaN or Inf"
                                                             : "RIGHT";
}

const char *bs_arm_words(const json_t *arm, char *out, size_t size) {
  const char *name = str(arm, "name");
  const int cores = (int)(num(arm, "threads_per_rank") * num(arm, "world_size"));
  if (strcmp(str(arm, "method"), "dense") != 0 || strcmp(name, "method") == 0)
    snprintf(out, size, "%s", name);
  else if (strstr(name, "all cores") != NULL && cores > 1)
    snprintf(out, size, "dense on all %d cores", cores);
  else
    snprintf(out, size, "dense on %d core%s", cores, cores == 1 ? "" : "s");
  return out;
}

const char *bs_comparison_words(const json_t *c, const json_t *other, char *out, size_t size) {
  char name[96], why[64] = "";
  const char *word = str(c, "word"), *cause = str(c, "cause");
  if (cause[0] != '\0') snprintf(why, sizeof why, word[0] != '\0' ? " (%.56s)" : "%.60s", cause);
  if (strcmp(word, "SAME") == 0)
    snprintf(out, size, "SAME: as fast as %s, %.3g times [%.3g, %.3g]",
             bs_arm_words(other, name, sizeof name), num(c, "speedup"), num(c, "low"), num(c, "high"));
  else
    snprintf(out, size, "%s%s: %.3g times as fast as %s [%.3g, %.3g]", word, why, num(c, "speedup"),
             bs_arm_words(other, name, sizeof name), num(c, "low"), num(c, "high"));
  return out;
}
