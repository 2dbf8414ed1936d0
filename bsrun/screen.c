/* SPDX-License-Identifier: MIT
 * screen.c - see screen.h. */
#include "bsrun/screen.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bsrun/next.h"
#include "bsrun/run.h"
#include "bsrun/simulated.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "lab/json.h"
#include "lab/report/report.h"
#include "lab/report/rows.h"

enum { WIDTH = 100, LABEL = 10, COMMAND = 40, LINE = 1024 };
static const double OFF = 1.15; /* measured / predicted that is remarked on */

/* Columns to fill: of a wide terminal WIDTH. */
static size_t width(void) {
  const size_t most = bs_report_width(stdout);
  return most < WIDTH ? most : WIDTH;
}

static int is_number(const json_t *object, const char *key) {
  return json_is_number(json_object_get(object, key));
}

/* "label     text", the text in lines of at most width() characters; what cannot be broken is not. */
static void say(const char *label, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(const char *label, const char *fmt, ...) {
  char raw[LINE];
  va_list list;
  va_start(list, fmt);
  vsnprintf(raw, sizeof raw, fmt, list);
  va_end(list);
  char *text = bs_report_printable(raw);
  if (text == NULL) return;
  size_t used = (size_t)bs_print(stdout, "%-*s", LABEL, label), words = 0;
  char *rest = NULL;
  const size_t inner = strspn(text, " ");
  for (const char *word = strtok_r(text, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
    if (words > 0 && used + 1 + strlen(word) > width()) {
      printf("\n");
      used = 0;
      words = 0;
    }
    if (words == 0 && used < LABEL + inner)
      used += (size_t)bs_print(stdout, "%*s", (int)(LABEL + inner - used), "");
    used += (size_t)bs_print(stdout, "%s%s", words > 0 ? " " : "", word);
    words++;
  }
  printf("\n");
  free(text);
}

/* ---- the layer ------------------------------------------------------------------------------ */

static void say_layer(const json_t *r) {
  const int ranks = (int)bs_get_number(r, "world_size"), threads = (int)bs_get_number(r, "threads_per_rank");
  const char *act = bs_get_text(r, "activation"), *mask = bs_get_text(r, "mask");
  say("layer:", "Y = X W^T%s%s%s: %.0f tokens, %.0f inputs, %.0f outputs, %s",
      json_is_true(json_object_get(r, "bias")) ? " + b" : ", no bias",
      act[0] != '\0' && strcmp(act, "none") != 0 ? ", then " : "", strcmp(act, "none") != 0 ? act : "",
      bs_get_number(r, "B"), bs_get_number(r, "K"), bs_get_number(r, "N"), bs_get_text(r, "dtype"));
  say("split:", "%s%s%s on %d rank%s of %d thread%s (%s): per rank %s", bs_get_text(r, "method"),
      mask[0] != '\0' ? ", mask " : "", mask, ranks, ranks == 1 ? "" : "s", threads, threads == 1 ? "" : "s",
      bs_get_text(r, "backend"), bs_get_text(r, "split"));
}

/* ---- is it right? --------------------------------------------------------------------------- */

/* "T2" of "dX.T2.feature"; the whole name where there is no T. */
static const char *rule_of(const char *name, char out[24]) {
  const char *t = name[0] == 'T' ? name : strstr(name, ".T");
  if (t != NULL && t[0] == '.') t++;
  if (t == NULL) t = name;
  snprintf(out, 24, "%.*s", (int)strcspn(t, "."), t);
  return out;
}

/* Gates of the rules that are named, by their state; the first of each state. */
typedef struct tally {
  size_t pass, other;
  const json_t *passed;
} tally;

static tally count(const json_t *gates, const char *rule, const char *or_rule) {
  tally t = {0};
  char name[24];
  for (size_t i = 0; i < json_array_size(gates); i++) {
    const json_t *g = json_array_get(gates, i);
    const char *of = rule_of(bs_get_text(g, "name"), name);
    if (strcmp(of, rule) != 0 && (or_rule == NULL || strcmp(of, or_rule) != 0)) continue;
    if (strcmp(bs_get_text(g, "state"), "pass") == 0) {
      if (t.pass++ == 0) t.passed = g;
    } else if (strcmp(bs_get_text(g, "state"), "skipped") != 0) {
      t.other++;
    }
  }
  return t;
}

/* "the error of dX is 0.0016, 0.0016 predicted; ...". */
static void errors_text(const json_t *r, char *out, size_t size) {
  static const char *const of[][2] = {{"dx", "dX"}, {"dw", "dW"}, {"db", "db"}, {"weights", "W"}};
  size_t used = 0;
  out[0] = '\0';
  if (is_number(r, "relative_error"))
    snprintf(out, size, "the error of Y is %.3g; rounding alone predicts %.3g",
             bs_get_number(r, "relative_error"), bs_get_number(r, "relative_error_predicted"));
  for (size_t i = 0; i < sizeof of / sizeof of[0] && used + 1 < size; i++) {
    const json_t *e = json_object_get(r, of[i][0]);
    if (!is_number(e, "relative_error")) continue;
    const int n = snprintf(out + used, size - used, "%s%s is %.3g (%.3g)",
                           used == 0 ? "the error (and what rounding predicts) of " : ", of ", of[i][1],
                           bs_get_number(e, "relative_error"), bs_get_number(e, "relative_error_predicted"));
    if (n > 0) used += (size_t)n;
  }
}

static void say_passed(const json_t *r) {
  const json_t *gates = json_object_get(r, "gates");
  const int steps = bs_get_text(r, "optimizer")[0] != '\0';
  char errors[256];
  const tally t1 = count(gates, "T1", NULL), t23 = count(gates, "T2", "T3"), t4 = count(gates, "T4", NULL),
              t5 = count(gates, "T5", NULL), t6 = count(gates, "T6", NULL);
  errors_text(r, errors, sizeof errors);
  if (t1.pass > 0 && t1.other == 0 && errors[0] != '\0') say("", "T1: %s", errors);
  if (t23.pass > 0 && t23.other == 0)
    say("", "T2, T3: no row, column or element is off by more than rounding");
  if (t4.pass > 0 && t4.other == 0) say("", "T4: all ranks hold the same bits, each time");
  if (t5.pass > 0 && t5.other == 0)
    say("", "T5: with small integers %s exact, bit for bit", steps ? "the steps are" : "the product is");
  if (t6.pass > 0 && t6.other == 0) say("", "T6: %s", bs_get_text(t6.passed, "text"));
  for (size_t i = 0; i < json_array_size(gates); i++) {
    const json_t *g = json_array_get(gates, i);
    char rule[24];
    rule_of(bs_get_text(g, "name"), rule);
    const int told = rule[0] == 'T' && rule[1] >= '1' && rule[1] <= '6';
    if (!told && strcmp(bs_get_text(g, "state"), "pass") == 0)
      say("", "%s: %.3g, at most %.3g; %s", bs_get_text(g, "name"), bs_get_number(g, "value"),
          bs_get_number(g, "limit"), bs_get_text(g, "text"));
  }
}

/* Prints the gates that failed, that could not judge, and that were left out. */
static void say_others(const json_t *r) {
  const json_t *gates = json_object_get(r, "gates");
  size_t said = 0, skipped = 0;
  char names[128] = "";
  for (size_t i = 0; i < json_array_size(gates); i++) {
    const json_t *g = json_array_get(gates, i);
    const char *state = bs_get_text(g, "state");
    if (strcmp(state, "pass") == 0) continue;
    if (strcmp(state, "skipped") == 0) {
      const size_t used = strlen(names);
      snprintf(names + used, sizeof names - used, "%s%s", skipped++ > 0 ? ", " : "", bs_get_text(g, "name"));
    } else if (said++ < 5) {
      const int failed = strcmp(state, "fail") == 0;
      const int counted = rule_of(bs_get_text(g, "name"), (char[24]){0})[1] == '5';
      if (failed && !counted)
        say("", "%s FAILED: %.3g, at most %.3g; %s", bs_get_text(g, "name"), bs_get_number(g, "value"),
            bs_get_number(g, "limit"), bs_get_text(g, "text"));
      else
        say("", "%s %s: %s", bs_get_text(g, "name"), failed ? "FAILED" : "could not judge",
            bs_get_text(g, "text"));
    }
  }
  if (said > 5) say("", "and %zu more: metrics.jsonl has every gate", said - 5);
  if (skipped > 0) say("", "not run: %s", names);
}

static void say_right(const json_t *r) {
  const json_t *gates = json_object_get(r, "gates");
  size_t pass = 0, ran = 0;
  for (size_t i = 0; i < json_array_size(gates); i++) {
    const char *state = bs_get_text(json_array_get(gates, i), "state");
    ran += strcmp(state, "skipped") != 0;
    pass += strcmp(state, "pass") == 0;
  }
  const int ranks = (int)bs_get_number(r, "world_size");
  printf("\n");
  say("numbers:", "%s: %zu of %zu gates passed on %d rank%s", bs_gates_words(r), pass, ran, ranks,
      ranks == 1 ? "" : "s");
  if (is_number(r, "half_error"))
    say("", "the whole product is missed by %.3g, relative; of normal weights %.3g",
        bs_get_number(r, "half_error"), bs_get_number(r, "half_error_expected"));
  say_passed(r);
  say_others(r);
}

/* ---- is it fast? ---------------------------------------------------------------------------- */

static const char *limit_text(const char *limit) {
  static const char *const words[][2] = {{"compute", "arithmetic limits it"},
                                         {"memory", "reading memory limits it"},
                                         {"wire", "the exchange between ranks limits it"},
                                         {"host", "the calls of the host limit it"}};
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
    if (strcmp(limit, words[i][0]) == 0) return words[i][1];
  return "what limits it is unknown";
}

/* Prints facts of the method's arm and of the device that make the speed doubtful, or explain it. */
static void say_doubts(const json_t *r, const json_t *method) {
  const json_t *device = json_object_get(r, "device");
  if (json_is_true(json_object_get(method, "below_bound")))
    say("",
        "doubtful: faster than this machine's limit of %.4g ms: the work was not done, or the constants "
        "are of another state of the machine (bsrun doctor --measure)",
        1e3 * bs_get_number(json_object_get(method, "bound_s"), "total"));
  if (json_is_true(json_object_get(device, "launch_bound")))
    say("",
        "launch-bound: the host takes %.1f us to queue a forward of %.1f us: try more tokens, or --set "
        "hardware.graph=true",
        bs_get_number(device, "enqueue_us"), bs_get_number(device, "forward_us"));
}

static void say_fast(const json_t *r) {
  const json_t *arms = json_object_get(r, "arms"), *method = json_array_get(arms, 0);
  const json_t *comparisons = json_object_get(r, "comparisons"), *cold = json_object_get(method, "cold");
  char share[96], predicted[48] = "", text[LINE];
  const json_t *by_kernel = json_object_get(method, "predicted_s");
  const double off = bs_get_number(method, "measured_over_predicted"),
               total = 1e3 * bs_get_number(by_kernel, "total");
  if (is_number(by_kernel, "total") && (off > OFF || off * OFF < 1.0))
    snprintf(predicted, sizeof predicted, " (%.4g predicted: %.0f %% off)", total, 100.0 * (off - 1.0));
  else if (is_number(by_kernel, "total"))
    snprintf(predicted, sizeof predicted, " (%.4g predicted)", total);
  if (is_number(method, "share_of_limit"))
    snprintf(share, sizeof share, "%.0f %% of this machine's limit; %s",
             100.0 * bs_get_number(method, "share_of_limit"), limit_text(bs_get_text(method, "limit")));
  else
    snprintf(share, sizeof share, "share of this machine's limit unknown");
  printf("\n");
  say("speed:", "%.4g ms a forward%s: %.3g GFLOP/s, %s", 1e3 * bs_get_number(method, "median_s"), predicted,
      bs_get_number(method, "gflops"), share);
  say_doubts(r, method);
  for (size_t i = json_array_size(comparisons); i-- > 0;) { /* dense on all cores is the last one */
    const json_t *c = json_array_get(comparisons, i), *other = NULL;
    for (size_t k = 0; k < json_array_size(arms); k++)
      if (strcmp(bs_get_text(json_array_get(arms, k), "name"), bs_get_text(c, "against")) == 0)
        other = json_array_get(arms, k);
    say("", "%s", bs_comparison_words(c, other, text, sizeof text));
  }
  if (json_array_size(comparisons) > 0)
    say("", "(%.0f interleaved pairs, %.0f builds; brackets: the 95 %% interval)", bs_get_number(r, "pairs"),
        bs_get_number(r, "builds"));
  for (size_t i = 0; i < json_array_size(comparisons); i++) { /* each cause once */
    const char *next = bs_get_text(json_array_get(comparisons, i), "next");
    size_t k = 0;
    while (k < i && strcmp(bs_get_text(json_array_get(comparisons, k), "next"), next) != 0) k++;
    if (k == i && next[0] != '\0') say("", "unclear: %s", next);
  }
  if (json_is_object(cold))
    say("", "with caches flushed: %.4g ms a forward", 1e3 * bs_get_number(cold, "median_s"));
}

/* ---- what training and the backward pass add -------------------------------------------------- */

const char *screen_loss(const char *name) {
  static const char *const words[][2] = {
      {"mse_zero", "the mean of Y^2"}, {"mse_target", "the mean of (Y - target)^2"}, {"sum", "the sum of Y"}};
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
    if (strcmp(name, words[i][0]) == 0) return words[i][1];
  return name;
}

static void say_regions(const json_t *r) {
  static const char *const regions[][2] = {{"forward", "forward"},          {"backward", "backward"},
                                           {"opt_step", "optimizer"},       {"allreduce", "exchange"},
                                           {"layout_fix", "layout fixing"}, {"total_step", "whole step"}};
  const json_t *timings = json_object_get(r, "timings_ms");
  char text[256] = "";
  size_t used = 0;
  for (size_t i = 0; i < sizeof regions / sizeof regions[0] && used + 1 < sizeof text; i++) {
    const json_t *t = json_object_get(timings, regions[i][0]);
    if (!(bs_get_number(t, "count") > 0)) continue;
    const int n = snprintf(text + used, sizeof text - used, "%s%s %.3g ms", used > 0 ? ", " : "",
                           regions[i][1], bs_get_number(t, "p50_ms"));
    if (n > 0) used += (size_t)n;
  }
  if (used > 0)
    say("time:", "%s (medians of rank %.0f, the slowest)", text, bs_get_number(r, "timings_rank"));
}

static void say_training(const json_t *r) {
  const json_t *losses = json_object_get(r, "losses");
  const size_t n = json_array_size(losses);
  printf("\n");
  if (n > 0)
    say("loss:", "%s: first %.6g, last %.6g, in %zu steps of %s with lr %.3g",
        screen_loss(bs_get_text(r, "loss")), json_number_value(json_array_get(losses, 0)),
        json_number_value(json_array_get(losses, n - 1)), n, bs_get_text(r, "optimizer"),
        bs_get_number(r, "lr"));
  else
    say("loss:", "%s", screen_loss(bs_get_text(r, "loss")));
  say_regions(r);
}

/* ---- where it lies, and what to type next ------------------------------------------------------ */

/* Prints a command on one line, with its purpose where there is room. Frees `command`; NULL: prints nothing.
 */
static void say_command(const char *why, char *command) {
  char *text = command != NULL ? bs_report_printable(command) : NULL;
  free(command);
  if (text == NULL) return;
  const size_t used = 6 + (strlen(text) > COMMAND ? strlen(text) : COMMAND) + 3 + strlen(why);
  if (used <= width())
    bs_print(stdout, "next: %-*s # %s\n", COMMAND, text, why);
  else
    bs_print(stdout, "next: %s\n", text);
  free(text);
}

/* Other ways to split this layer; its ranks are threads, so those of another kind have none. */
static void say_ways(const json_t *r, const char *why, const char *pass) {
  const char *launch = bs_get_text(r, "launch");
  char verb[48];
  if (launch[0] != '\0' && strcmp(launch, "threads") != 0) return;
  snprintf(verb, sizeof verb, "compare%s%s", pass != NULL ? " --phase " : "", pass != NULL ? pass : "");
  say_command(why, bsrun_next_verb(verb, NULL, verb_compare.options));
}

static void say_limits(const json_t *r) {
  say_command("what each rank does, and its limits",
              bsrun_next_verb("explain method", bs_get_text(r, "method"), verb_explain.options));
}

static void say_next(const json_t *r) {
  static const char *const ways = "other ways to split this layer";
  const char *phase = bs_get_text(r, "phase");
  const int train = strncmp(phase, "phase3", 6) == 0;
  if (!json_is_true(json_object_get(r, "passed")) && json_object_get(r, "arms") == NULL) {
    say_command("all tensors, to look at", bsrun_next_phase(0, "tensors"));
    say_limits(r);
  } else if (strncmp(phase, "phase0", 6) == 0) {
    say_command("how fast it is", bsrun_next_phase(1, NULL));
    say_ways(r, ways, NULL);
  } else if (strncmp(phase, "phase1", 6) == 0) {
    say_ways(r, ways, NULL);
    say_limits(r);
  } else {
    say_ways(r, "how fast, by every method", train ? "train" : "backward");
    say_command(train ? "the gradients alone" : "steps of training", bsrun_next_phase(train ? 2 : 3, NULL));
  }
}

static int32_t say_simulated(const json_t *r, int apart, bs_error *err) {
  json_t *rows = json_array();
  if (apart) printf("\n");
  int32_t rc = bs_rows_add(rows, r, "", err);
  if (rc == BS_OK) rc = simulated_print(rows, err);
  json_decref(rows);
  return rc;
}

int32_t screen_print(const json_t *records, const json_t *folders, bs_error *err) {
  char *command = bsrun_command_line();
  char *shown = command == NULL ? NULL : bs_report_printable(command);
  const size_t n = json_array_size(records);
  int32_t rc = BS_OK;
  for (size_t i = 0; i < n && rc == BS_OK; i++) {
    const json_t *r = json_array_get(records, i);
    if (bs_row_is_simulated(r)) {
      rc = say_simulated(r, i > 0, err);
      continue;
    }
    if (i == 0) say_layer(r);
    if (json_array_size(json_object_get(r, "gates")) > 0) say_right(r);
    if (json_object_get(r, "arms") != NULL) say_fast(r);
    if (strncmp(bs_get_text(r, "phase"), "phase2", 6) == 0 ||
        strncmp(bs_get_text(r, "phase"), "phase3", 6) == 0)
      say_training(r);
  }
  printf("\n");
  for (size_t i = 0; i < json_array_size(folders); i++)
    bs_print(stdout, "run: %s\n", json_string_value(json_array_get(folders, i)));
  if (shown != NULL) bs_print(stdout, "repeat: %s\n", shown);
  if (n > 0 && !bs_row_is_simulated(json_array_get(records, n - 1))) say_next(json_array_get(records, n - 1));
  free(shown);
  free(command);
  if (rc != BS_OK) return rc;
  if (fflush(stdout) == 0 && !ferror(stdout)) return BS_OK;
  return bs_error_set(err, BS_IO, "BS-OUT-WRITE", "cannot write the results to stdout");
}
