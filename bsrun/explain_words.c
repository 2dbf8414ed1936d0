/* SPDX-License-Identifier: MIT
 * explain_words.c - `bsrun explain gates [WORD]` and `bsrun explain words [WORD]`: what the words on screens
 * mean, from one table. */
#include <string.h>
#include <strings.h>

#include "bsrun/explain.h"
#include "core/base/error.h"
#include "core/base/text.h"

typedef struct gloss {
  const char *of, *word, *means;
} gloss;

static const gloss glosses[] = {
    /* gates of layers: docs/gates.md */
    {"gate of a layer", "T1", "the error of the whole output, beside what rounding predicts"},
    {"gate of a layer", "T2.feature", "the error of the worst output feature, beside its prediction"},
    {"gate of a layer", "T2.token", "the error of the worst token, beside its prediction"},
    {"gate of a layer", "T3", "each output lies within a bound that holds for any order of its sums"},
    {"gate of a layer", "T4", "all ranks hold the same bits, in every iteration"},
    {"gate of a layer", "T5", "with small integers the result equals the exact product, bit for bit"},
    {"gate of a layer", "T6", "faults that are injected on purpose are caught by the other gates"},
    {"gate of a layer", "R2", "a token has the same bits when fewer tokens run"},
    {"gate of a layer", "R3", "a token has the same bits on one rank and on several"},
    {"gate of a layer", "HALF", "the weights lie where the half of the mask that was asked for has them"},
    {"gate of a layer", "MIXED", "the error of a layer in two precisions is as large as predicted"},
    {"gate of a layer", "dX.T1", "a gate of a gradient: dX, dW or db stands before the gate's name"},
    {"gate of a layer", "W.T3", "a gate of trained weights: W, b or y stands before the gate's name"},
    /* gates of kernels: configs/gates/sdpa.yaml */
    {"gate of a kernel", "prepared", "a plan could be prepared"},
    {"gate of a kernel", "knobs", "the plan has the knob values that were asked for"},
    {"gate of a kernel", "same_code", "the stored choice was measured with this build of the plugin"},
    {"gate of a kernel", "spills", "the loaded kernel keeps no registers in local memory"},
    {"gate of a kernel", "registers", "the loaded kernel stays below the cap of 255 registers a thread"},
    {"gate of a kernel", "shared_memory", "the shared memory of a block fits on a device"},
    {"gate of a kernel", "finite", "no output is NaN or infinite where the reference is finite"},
    {"gate of a kernel", "rmse", "the root mean square error is no larger than rounding explains"},
    {"gate of a kernel", "worst", "the error of the worst output is no larger than rounding explains"},
    {"gate of a kernel", "each_head", "the same for each batch and head, or for each token of a product"},
    {"gate of a kernel", "repeatable", "two runs on the same bytes give the same bits"},
    {"gate of a kernel", "memory", "the plan takes no more memory than it promised"},
    {"gate of a kernel", "kept", "at least 0.9 of the speed of the best other provider, in pairs"},
    {"gate of a kernel", "promoted", "as fast as the best other provider: it may become the choice"},
    {"gate of a kernel", "progress", "1.1 times as fast as a stored build (--baseline), in pairs"},
    {"gate of a kernel", "below_bound", "not faster than this machine allows"},
    {"gate of a kernel", "samples", "enough samples are stored to judge the time again"},
    /* what gates together say */
    {"result", "RIGHT", "all gates that ran passed"},
    {"result", "WRONG", "a gate of the numbers failed"},
    {"result", "NOT PASSED", "the numbers are right and another gate failed, as that of speed"},
    {"result", "NOT SHOWN RIGHT", "no gate ran, or one that is needed could not judge"},
    {"result", "HALF ALONE", "one half of a mask was run alone; its own product is right"},
    {"result", "TWO PRECISIONS", "the layer has columns of two precisions; the error is as predicted"},
    {"result", "UNKNOWN", "a gate could not judge; its reason stands beside it"},
    {"result", "FAILED", "a gate failed, or a point of a sweep ended with an error"},
    {"result", "ok", "the run ended well; it has no gates"},
    /* verdicts of comparisons */
    {"verdict", "FASTER", "the 95 % interval of the speedup lies above 1 by more than the margin of 1 %"},
    {"verdict", "SLOWER", "the 95 % interval of the speedup lies below 1 by more than the margin of 1 %"},
    {"verdict", "SAME", "the 95 % interval of the speedup lies within the margin of 1 % around 1"},
    {"verdict", "UNCLEAR", "the measurement decides none of the three; the cause stands beside it"},
    {"verdict", "MISSING", "the baseline has this arm, and the run has no samples of it"},
    {"cause", "too few pairs", "more pairs may decide; the next line says how many"},
    {"cause", "at the margin", "the difference is as large as the margin of 1 %"},
    {"cause", "order effect", "an arm's time depends on the arm before it"},
    {"cause", "differs by build", "the same arm built anew has another time"},
    {"cause", "machine disturbed", "other programs took the processors' time during the measurement"},
    {"cause", "oversubscribed", "there are more threads than cores"},
    {"cause", "below its bound", "a time is shorter than this machine allows"},
    {"cause", "both sides are the same configuration",
     "there is nothing to compare; numbers have no verdict"},
    /* words */
    {"word", "speedup",
     "time of the baseline / time of this; above 1 is faster. The baseline is named above"},
    {"word", "baseline", "what the speedup is against: dense on all cores unless another is named"},
    {"word", "dense", "the layer on one rank, not split, with all its weights"},
    {"word", "rank", "one of the P workers that share a layer"},
    {"word", "P", "how many ranks there are"},
    {"word", "gate", "a check of one number against a limit; `bsrun explain gates` has all"},
    {"word", "limit", "what binds the time: compute, memory, wire or host; or the number that a gate allows"},
    {"word", "of the limit", "the shortest time that this machine allows / the measured time"},
    {"word", "mask", "which columns of the weights a rank keeps"},
    {"word", "candidate", "one way to split a layer, or one provider with its knobs"},
    {"word", "arm", "one of the configurations that a measurement takes in turn"},
    {"word", "pairs", "how often two arms were measured one after the other"},
    {"word", "builds", "how often the arms were built anew during the measurement"},
    {"word", "provider", "an implementation of an operation, as cpu:online"},
    {"word", "knob", "a setting of an implementation that `bsrun tune` searches"},
    {"word", "fallback", "a node runs on the backend ref because the chosen backend does not serve it"},
    {"word", "not applicable", "a gate whose condition does not hold here; it judges nothing"},
    {"word", "R0", "the same bits from run to run, of the same build and shape"},
    {"word", "R1", "as R0, and every rank has the same bits"},
    {"word", "FMA bound", "the time of the multiply-adds alone at this machine's peak rate"},
    {"word", "bytes bound", "the time of reading and writing each byte once at this machine's rate"},
    {"word", "exp bound", "the time of the exponentials alone at this machine's rate"},
    {"word", "launch bound", "the time to start the work; the host is slower than the device"},
    {"word", "algbw", "bytes of the vector / time of a collective"},
    {"word", "busbw", "bytes that a rank must send / time of a collective, as in nccl-tests"},
    {"word", "label", "where the numbers of a simulated machine come from: published, measured or made up"},
    {"word", "domain", "whether a simulated point lies in the range of the machine's numbers"},
    {"word", "extrapolated", "the point lies outside of the range that the machine's numbers are known for"},
};

enum { N_GLOSSES = sizeof glosses / sizeof glosses[0] };

static void add_row(json_t *rows, const gloss *g) {
  json_array_append_new(rows, json_pack("{s:s, s:s, s:s}", "of", g->of, "word", g->word, "means", g->means));
}

/* Is it the word that is asked for? exactly: not a part of it. */
static int is_asked(const gloss *g, const char *word, int exactly) {
  return exactly ? strcasecmp(g->word, word) == 0 : bsrun_matches(word, g->word);
}

/* The glosses of one word, of gates and of the others: who reads a screen does not know which it is. */
static int32_t find_word(const char *word, json_t *rows, bs_error *err) {
  const char *known[N_GLOSSES];
  for (int exactly = 1; exactly >= 0 && json_array_size(rows) == 0; exactly--)
    for (size_t i = 0; i < N_GLOSSES; i++)
      if (is_asked(&glosses[i], word, exactly)) add_row(rows, &glosses[i]);
  if (json_array_size(rows) > 0) return BS_OK;
  for (size_t i = 0; i < N_GLOSSES; i++) known[i] = glosses[i].word;
  const char *nearest = bs_nearest(word, known, N_GLOSSES);
  bs_error_set(err, BS_USAGE, "BS-USE-CHOICE", "unknown word '%.100s'", word);
  if (nearest != NULL)
    bs_error_hint(err, "did you mean '%s'?", nearest);
  else
    bs_error_hint(err, "bsrun explain words and bsrun explain gates list them");
  return BS_USAGE;
}

int32_t explain_words(const args *a, bs_error *err) {
  static const bs_field fields[] = {{"of", "OF", 0, 0}, {"word", "WORD", 0, 0}, {"means", "MEANS", 0, 0}};
  const int gates = strcmp(a->words[0], "gates") == 0;
  int format;
  int32_t rc = bsrun_format(a, &format, err);
  json_t *rows = json_array();
  if (rc == BS_OK && a->n_words > 1) rc = find_word(a->words[1], rows, err);
  for (size_t i = 0; i < N_GLOSSES && a->n_words == 1; i++)
    if ((strncmp(glosses[i].of, "gate of", 7) == 0) == gates) add_row(rows, &glosses[i]);
  if (rc == BS_OK) rc = bs_report_print(stdout, format, fields, 3, rows, err);
  json_decref(rows);
  return rc;
}
