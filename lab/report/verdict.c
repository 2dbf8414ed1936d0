/* SPDX-License-Identifier: MIT
 * verdict.c - the title of a report and its first sentences: see model.h. */
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>

#include "lab/report/model.h"

enum { MOST_NAMED = 3, MOST_AGAINST = 2 };

/* Appends to a text of `size` bytes; what has no room is left out. */
static void add(char *out, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void add(char *out, size_t size, const char *format, ...) {
  const size_t used = strlen(out);
  va_list args;
  va_start(args, format);
  if (vsnprintf(out + used, size - used, format, args) < 0) out[used] = '\0';
  va_end(args);
}

static size_t count(const json_t *rows, const char *key, const char *word) {
  size_t n = 0;
  for (size_t i = 0; i < json_array_size(rows); i++)
    n += strcmp(bs_row_text(json_array_get(rows, i), key), word) == 0;
  return n;
}

const char *bs_against_words(const char *arm, char *out, size_t size) {
  const char *rest = strncmp(arm, "dense, ", 7) == 0 ? arm + 7 : NULL;
  snprintf(out, size, "%s%s", rest != NULL ? "dense on " : "", rest != NULL ? rest : arm);
  return out;
}

/* ---- what is right ---- */

static void tell_numbers(const json_t *latest, char *out, size_t size) {
  const size_t right = count(latest, "word", "RIGHT"), wrong = count(latest, "word", "WRONG"),
               open = count(latest, "word", "NOT SHOWN RIGHT"),
               not_passed = count(latest, "word", "NOT PASSED"), all = right + wrong + open + not_passed;
  char others[96] = "";
  if (not_passed > 0)
    snprintf(others, sizeof others, "%zu did not pass a gate of something else, such as support or speed. ",
             not_passed);
  if (all == 0)
    add(out, size, "No numbers were judged. ");
  else if (wrong > 0)
    add(out, size, "WRONG: %zu of %zu judged settings gave wrong numbers. %s", wrong, all, others);
  else if (open + not_passed > 0)
    add(out, size, "%zu of %zu judged settings are RIGHT, %zu are not shown right. %s", right, all, open,
        others);
  else
    add(out, size, all == 1 ? "The judged setting is RIGHT. " : "All %zu judged settings are RIGHT. ", all);
}

/* ---- what is faster ---- */

/* The speedups against one layer. */
typedef struct spread {
  const char *against;
  const json_t *best; /* of those that are FASTER; NULL: none */
  double least, most;
  size_t n;
} spread;

/* The layer that has all that the machine has: what a user gains is the speedup against it. */
static const char dense_all[] = "dense, all cores";

/* The row of dense_all comes first, the others follow in the order of the rows. Simulated rows have no word
 * and do not count. */
static size_t spreads_of(const json_t *comparisons, spread out[MOST_AGAINST]) {
  size_t n = 0;
  if (count(comparisons, "against", dense_all) > 0) out[n++] = (spread){.against = dense_all};
  for (size_t i = 0; i < json_array_size(comparisons); i++) {
    const json_t *row = json_array_get(comparisons, i);
    const char *against = bs_row_text(row, "against"), *word = bs_row_text(row, "speedup_word");
    const double speedup = bs_row_number(row, "speedup");
    size_t k = 0;
    if (word[0] == '\0' || isnan(speedup)) continue;
    while (k < n && strcmp(out[k].against, against) != 0) ++k;
    if (k == MOST_AGAINST) continue;
    if (k == n) out[n++] = (spread){.against = against};
    if (out[k].n == 0 || speedup < out[k].least) out[k].least = speedup;
    if (out[k].n++ == 0 || speedup > out[k].most) out[k].most = speedup;
    if (strcmp(word, "FASTER") == 0 &&
        (out[k].best == NULL || speedup > bs_row_number(out[k].best, "speedup")))
      out[k].best = row;
  }
  return n;
}

/* differ: the settings in which the comparisons differ; the title has the others. */
static void tell_spread(const spread *s, int first, uint32_t differ, char *out, size_t size) {
  static const char *const but[] = {
      "phase", "arm", "backend", "comm", "launch", "host", "threads_per_rank", "activation", NULL};
  char label[160], against[64], interval[48] = "", range[64] = "";
  bs_against_words(s->against, against, sizeof against);
  if (s->n > 1) snprintf(range, sizeof range, "; %zu settings from %.3g to %.3g", s->n, s->least, s->most);
  if (s->best == NULL && first) {
    add(out, size, "Nothing is shown to be faster than %s%s. ", against, range);
    return;
  }
  if (s->best == NULL) {
    add(out, size, "None is shown to be faster than %s%s. ", against, range);
    return;
  }
  if (!isnan(bs_row_number(s->best, "speedup_low")))
    snprintf(interval, sizeof interval, " [%.3g, %.3g]", bs_row_number(s->best, "speedup_low"),
             bs_row_number(s->best, "speedup_high"));
  bs_row_words(s->best, differ | BS_ROW_METHOD, but, label, sizeof label);
  add(out, size, "%s %s: best %.3g%s (%s)%s. ", first ? "Speedup against" : "Against", against,
      bs_row_number(s->best, "speedup"), interval, label, range);
}

void bs_report_verdict(const json_t *model, char *out, size_t size) {
  static const char *const words[] = {"FASTER", "SLOWER", "SAME", "UNCLEAR"};
  const json_t *comparisons = json_object_get(model, "comparisons");
  const long long compared = json_integer_value(json_object_get(model, "compared"));
  const size_t listed = json_array_size(comparisons);
  spread spreads[MOST_AGAINST] = {0};
  size_t n[4], all = 0;
  out[0] = '\0';
  tell_numbers(json_object_get(model, "latest"), out, size);
  for (size_t i = 0; i < 4; i++) all += n[i] = count(comparisons, "speedup_word", words[i]);
  if (all == 0) {
    add(out, size, "No speed was compared.");
    return;
  }
  const size_t n_spreads = spreads_of(comparisons, spreads);
  for (size_t i = 0; i < n_spreads; i++)
    if (spreads[i].n > 0) tell_spread(&spreads[i], i == 0, bs_rows_differ(comparisons), out, size);
  if (compared > (long long)listed)
    add(out, size, "Of the first %zu of %lld", listed, compared);
  else
    add(out, size, "Of %zu", all);
  add(out, size, " comparisons %zu are FASTER, %zu SLOWER, %zu SAME, %zu UNCLEAR.", n[0], n[1], n[2], n[3]);
}

/* ---- the title ---- */

/* The different texts of a key, at most MOST_NAMED of them; returns how many there are. */
static size_t names_of(const json_t *rows, const char *key, const char *names[MOST_NAMED]) {
  json_t *seen = json_object();
  for (size_t i = 0; i < json_array_size(rows); i++) {
    const char *text = bs_row_text(json_array_get(rows, i), key);
    const size_t n = json_object_size(seen);
    if (text[0] == '\0' || json_object_get(seen, text) != NULL) continue;
    if (n < MOST_NAMED) names[n] = text;
    json_object_set_new(seen, text, json_true());
  }
  const size_t n = json_object_size(seen);
  json_decref(seen);
  return n;
}

/* "a, b", or "7 methods"; nothing without any. */
static void add_names(const json_t *rows, const char *key, const char *many, const char *before, char *out,
                      size_t size) {
  const char *names[MOST_NAMED];
  const size_t n = names_of(rows, key, names);
  if (n > MOST_NAMED) add(out, size, "%s%zu %s", before, n, many);
  for (size_t i = 0; n <= MOST_NAMED && i < n; i++) add(out, size, "%s%s", i == 0 ? before : ", ", names[i]);
}

static int range_of(const json_t *rows, const char *key, double *out_least, double *out_most) {
  *out_least = INFINITY;
  *out_most = -INFINITY;
  for (size_t i = 0; i < json_array_size(rows); i++) {
    const double value = bs_row_number(json_array_get(rows, i), key);
    if (value < *out_least) *out_least = value;
    if (value > *out_most) *out_most = value;
  }
  return *out_least <= *out_most;
}

static void add_range(const json_t *rows, const char *key, const char *name, char *out, size_t size) {
  double least, most;
  if (!range_of(rows, key, &least, &most)) return;
  add(out, size, "%s%s %.0f", out[0] != '\0' ? ", " : "", name, least);
  if (most > least) add(out, size, " to %.0f", most);
}

void bs_report_title(const json_t *model, char *out, size_t size) {
  const json_t *latest = json_object_get(model, "latest");
  const char *sweeps[MOST_NAMED];
  const size_t n_sweeps = names_of(latest, "sweep", sweeps), n = json_array_size(latest);
  out[0] = '\0';
  if (n_sweeps == 1)
    add(out, size, "Sweep %s", sweeps[0]);
  else if (n_sweeps > 1)
    add(out, size, "%zu sweeps", n_sweeps);
  else
    add(out, size, n == 1 ? "One setting" : "%zu settings", n);
  add_names(latest, "method", "methods", ": ", out, size);
  const int square = bs_rows_square(latest);
  add_range(latest, "N", square ? "N = K" : "N", out, size);
  if (!square) add_range(latest, "K", "K", out, size);
  add_range(latest, "B", "B", out, size);
  add_names(latest, "dtype", "dtypes", ", ", out, size);
  add_range(latest, "world_size", "P", out, size);
}

static void add_time(double from, double to, char *out, size_t size) {
  const time_t first = (time_t)from, last = (time_t)to;
  struct tm a, b;
  char text[40];
  if (gmtime_r(&first, &a) == NULL || gmtime_r(&last, &b) == NULL) return;
  strftime(text, sizeof text, "%Y-%m-%d %H:%M", &a);
  add(out, size, "%s", text);
  const int same_day = a.tm_year == b.tm_year && a.tm_yday == b.tm_yday;
  strftime(text, sizeof text, same_day ? "%H:%M" : "%Y-%m-%d %H:%M", &b);
  if (last / 60 != first / 60) add(out, size, " to %s", text);
  add(out, size, " UTC");
}

void bs_report_place(const json_t *model, char *out, size_t size) {
  const json_t *rows = json_object_get(model, "rows"), *env = json_object_get(model, "env"),
               *cpu = json_object_get(env, "cpu");
  const char *against[MOST_NAMED], *hosts[MOST_NAMED];
  char words[64];
  double from, to;
  const json_t *comparisons = json_object_get(model, "comparisons");
  const size_t n_hosts = names_of(rows, "host", hosts), n = names_of(comparisons, "against", against);
  out[0] = '\0';
  if (range_of(rows, "time", &from, &to)) add_time(from, to, out, size);
  if (bs_row_text(cpu, "model")[0] != '\0')
    add(out, size, "%s%s", out[0] != '\0' ? "; " : "", bs_row_text(cpu, "model"));
  if (!isnan(bs_row_number(cpu, "cores_online")))
    add(out, size, ", %.0f cores", bs_row_number(cpu, "cores_online"));
  if (n_hosts > 0) add_names(rows, "host", "hosts", n_hosts == 1 ? ", host " : ", hosts ", out, size);
  for (size_t i = 1; i < n && i < MOST_NAMED; i++) {
    if (strcmp(against[i], dense_all) != 0) continue;
    against[i] = against[0];
    against[0] = dense_all;
  }
  for (size_t i = 0; i < n && i < MOST_NAMED; i++) {
    const char *before = i > 0 ? " and " : out[0] != '\0' ? "; against " : "against ";
    add(out, size, "%s%s", before, bs_against_words(against[i], words, sizeof words));
  }
}
