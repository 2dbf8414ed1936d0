/* SPDX-License-Identifier: MIT
 * words.c - a tuning entry in words. */
#include <stdio.h>
#include <string.h>

#include "lab/tune/cache.h"
#include "lab/tune/tune.h"

/* The later of the two looks: that one chose. */
static void compared(const json_t *row, const char *standard, char *out, size_t size) {
  const json_t *again = json_object_get(row, "again");
  const json_t *look = again != NULL ? again : row;
  const double ratio = json_number_value(json_object_get(look, "ratio"));
  const char *word = bs_tune_text(look, "word");
  if (bs_tune_text(row, "failed")[0] != '\0')
    snprintf(out, size, "failed: %.120s", bs_tune_text(row, "failed"));
  else if (strcmp(word, "FASTER") == 0 || strcmp(word, "SLOWER") == 0)
    snprintf(out, size, "%.2f times as fast as %s", ratio, standard);
  else if (strcmp(word, "SAME") == 0)
    snprintf(out, size, "as fast as %s", standard);
  else
    snprintf(out, size, "no clear difference to %s", standard);
}

const char *bs_tune_words(const json_t *entry, const char *name, char *out, size_t size) {
  const char *standard = bs_tune_text(entry, "default");
  const int chosen = strcmp(bs_tune_text(entry, "choice"), name) == 0;
  char what[192] = "";
  const json_t *row = bs_tune_row(json_object_get(entry, "candidates"), name);
  if (strcmp(name, standard) == 0) {
    snprintf(out, size, chosen ? "chosen" : "the default");
    return out;
  }
  if (row != NULL) compared(row, standard, what, sizeof what);
  snprintf(out, size, "%s%s%s", chosen ? "chosen" : "", chosen && what[0] != '\0' ? ", " : "", what);
  return out;
}
