/* SPDX-License-Identifier: MIT
 * words.c - what a record says, in words: see rows.h. */
#include <stdio.h>
#include <string.h>

#include "lab/json.h"
#include "lab/report/report.h"
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
  snprintf(out, size, "%s%s: speedup %.3g [%.3g, %.3g] against %s", word, why, bs_get_number(c, "speedup"),
           bs_get_number(c, "low"), bs_get_number(c, "high"), bs_arm_words(other, name, sizeof name));
  return out;
}

/* "dense on all cores" of "dense, all cores". */
static void against_words(const char *against, char *out, size_t size) {
  const int dense = strncmp(against, "dense, ", 7) == 0;
  snprintf(out, size, "%s%.160s", dense ? "dense on " : "", against + (dense ? 7 : 0));
}

void bs_speedup_caption(FILE *out, const json_t *rows) {
  const char *against = "";
  char words[180];
  for (size_t i = 0; i < json_array_size(rows); i++) {
    const char *is = bs_get_text(json_array_get(rows, i), "against");
    if (is[0] != '\0' && against[0] != '\0' && strcmp(is, against) != 0) {
      fputs("speedup: of each row against what its column against has (--wide)\n", out);
      return;
    }
    if (is[0] != '\0') against = is;
  }
  against_words(against, words, sizeof words);
  if (against[0] != '\0') bs_print(out, "speedup: against %s\n", words);
}
