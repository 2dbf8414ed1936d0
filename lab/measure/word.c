/* SPDX-License-Identifier: MIT
 * word.c - the words of comparisons, the causes of UNCLEAR, and the one rule by which every verb gives or
 * withholds a word. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lab/measure/stats.h"

const char *bs_comparison_name(uint32_t word) {
  static const char *const names[] = {"UNCLEAR", "FASTER", "SLOWER", "SAME", ""};
  return word < sizeof names / sizeof names[0] ? names[word] : "?";
}

uint32_t bs_word_turned(uint32_t word) {
  return word == BS_WORD_FASTER ? BS_WORD_SLOWER : word == BS_WORD_SLOWER ? BS_WORD_FASTER : word;
}

/* next "": bs_comparison_next makes the sentence. */
static const struct {
  const char *name, *next;
} causes[] = {
    [BS_UNCLEAR_NO] = {"", ""},
    [BS_UNCLEAR_FEW] = {"too few pairs", ""},
    [BS_UNCLEAR_MARGIN] = {"at the margin", ""},
    [BS_UNCLEAR_ORDER] = {"order effect",
                          "an arm's time depends on the arm before it: measure each in a run of its own"},
    [BS_UNCLEAR_BUILD] = {"differs by build",
                          "builds differ: sample more by --set phase.pairs_max=600 --set "
                          "phase.pairs_seconds=30"},
    [BS_UNCLEAR_DISTURBED] = {"machine disturbed", ""},
    [BS_UNCLEAR_OVERSUBSCRIBED] = {"oversubscribed",
                                   "there are more threads than cores: give fewer -P or --threads"},
    [BS_UNCLEAR_BOUND] = {"below its bound",
                          "an arm was faster than its bound allows: bsrun doctor --measure"},
    [BS_UNCLEAR_EQUAL] = {"both sides are the same configuration", ""},
};
enum { N_CAUSES = sizeof causes / sizeof causes[0] };

const char *bs_unclear_name(uint32_t cause) {
  return cause < N_CAUSES ? causes[cause].name : "?";
}

const char *bs_comparison_next(const bs_comparison *c, char *out, size_t size) {
  char by[160];
  out[0] = '\0';
  if (c->word != BS_WORD_UNCLEAR) return out;
  if (c->cause == BS_UNCLEAR_DISTURBED)
    snprintf(out, size, "%s: repeat it on a quiet machine",
             bs_disturbance_cause(&c->disturbance, by, sizeof by));
  else if (c->cause < N_CAUSES && causes[c->cause].next[0] != '\0')
    snprintf(out, size, "%s", causes[c->cause].next);
  else if (c->needs > 0)
    snprintf(out, size, "needs about %zu pairs: --set phase.pairs_max=%zu --set phase.pairs_seconds=%.0f",
             c->needs, c->needs, fmax(10.0, ceil(1.5 * c->needs_seconds)));
  else
    snprintf(out, size, "more samples cannot decide; the difference is as large as the %g %% margin",
             c->margin * 100.0);
  return out;
}

static void say(bs_comparison *c, uint32_t word, uint32_t cause) {
  c->word = word;
  c->cause = cause;
}

void bs_comparison_settle(bs_comparison *c, const bs_word_facts *f) {
  if (f->disturbance != NULL) c->disturbance = *f->disturbance;
  if (c->word == BS_WORD_NONE || f->equal)
    say(c, BS_WORD_NONE, BS_UNCLEAR_EQUAL);
  else if (f->below_bound)
    say(c, BS_WORD_UNCLEAR, BS_UNCLEAR_BOUND);
  else if (f->disturbance != NULL && bs_disturbance_decides(f->disturbance))
    say(c, BS_WORD_UNCLEAR, BS_UNCLEAR_DISTURBED);
  else if (c->word == BS_WORD_UNCLEAR && f->oversubscribed)
    c->cause = BS_UNCLEAR_OVERSUBSCRIBED;
}
