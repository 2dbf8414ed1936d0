/* SPDX-License-Identifier: MIT
 * verb.c - parses the options of a verb and runs it; the help of one and of all its second words. */
#include "bsrun/verb.h"

#include <stdio.h>
#include <string.h>

#include "bsrun/bsrun.h"
#include "core/base/error.h"

enum { NAMES_MAX = 64, SHORT_LINES = 12, WIDTH = 100 };

const bsrun_verb *bsrun_verb_at(size_t i) {
  for (const bsrun_verb_group *g = bsrun_verb_groups; g->verbs != NULL; g++)
    for (size_t k = 0; g->verbs[k] != NULL; k++)
      if (i-- == 0) return g->verbs[k];
  return NULL;
}

/* The verbs that have this name as their second word: "'plugins why' or 'runs why'"; "": none. `explain` has
 * them without verbs of their own; a page needs no server. */
static void list_owners(const char *name, char *out, size_t size) {
  static const char *const others[][2] = {{"mask", "explain mask"},
                                          {"masks", "explain mask"},
                                          {"method", "explain method"},
                                          {"methods", "explain method"},
                                          {"web", "sim view"}};
  size_t used = 0;
  out[0] = '\0';
  for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
    if (strcmp(name, others[i][0]) == 0) used = (size_t)snprintf(out, size, "'bsrun %s'", others[i][1]);
  for (size_t i = 0; bsrun_verb_at(i) != NULL; i++) {
    const bsrun_verb *verb = bsrun_verb_at(i);
    for (size_t k = 0; verb->subverbs != NULL && verb->subverbs[k] != NULL && used + 1 < size; k++)
      if (strcmp(name, verb->subverbs[k]->name) == 0)
        used += (size_t)snprintf(out + used, size - used, "%s'bsrun %s %s'", used > 0 ? " or " : "",
                                 verb->name, verb->subverbs[k]->name);
  }
}

const bsrun_verb *bsrun_find_verb(const char *name, bs_error *err) {
  const char *names[NAMES_MAX];
  char owners[128];
  size_t n = 0;
  for (const bsrun_verb *verb; n < NAMES_MAX && (verb = bsrun_verb_at(n)) != NULL; n++) {
    if (strcmp(name, verb->name) == 0) return verb;
    names[n] = verb->name;
  }
  bsrun_unknown("verb", name, names, n, err);
  list_owners(name, owners, sizeof owners);
  if (owners[0] != '\0') bs_error_hint(err, "did you mean %s?", owners);
  return NULL;
}

const bsrun_verb *bsrun_find_subverb(const bsrun_verb *verb, const char *name, bs_error *err) {
  const char *names[NAMES_MAX];
  size_t n = 0;
  for (; n < NAMES_MAX && verb->subverbs[n] != NULL; n++) {
    names[n] = verb->subverbs[n]->name;
    if (strcmp(name, names[n]) == 0) return verb->subverbs[n];
  }
  bsrun_unknown("verb", name, names, n, err);
  return NULL;
}

/* ---- help ------------------------------------------------------------------------------------- */

/* "runs why", as it is typed after bsrun. */
static const char *name_of(const bsrun_verb *of, const bsrun_verb *verb, char out[64]) {
  snprintf(out, 64, "%s%s%s", of != NULL ? of->name : "", of != NULL ? " " : "", verb->name);
  return out;
}

/* Words in lines of the page's width, the second and later ones from column `from` on. *column: where the
 * line is. */
static void fill(const char *text, size_t length, size_t from, size_t *column) {
  for (size_t i = 0, n; i < length; i += n) {
    i += strspn(text + i, " \n");
    n = strcspn(text + i, " \n");
    if (i >= length) return;
    if (*column > from && *column + 1 + n > WIDTH) {
      printf("\n%*s", (int)from, "");
      *column = from;
    }
    *column += (size_t)printf("%s%.*s", *column > from ? " " : "", (int)n, text + i);
  }
}

/* The column where the text begins in a line "name    text"; 0: another kind of line. */
static size_t item_column(const char *line) {
  const char *gap = strstr(line, "  ");
  const size_t n = strcspn(line, "\n");
  return gap != NULL && gap < line + n && line[0] != ' ' ? (size_t)(gap - line) + strspn(gap, " ") : 0;
}

/* Prints a text. Paragraphs, and items with a text after their name, are filled; other lines that begin with
 * a blank stay as they are. */
static void print_text(const char *text) {
  while (text[0] != '\0') {
    const size_t from = item_column(text);
    size_t column = 0, n = strcspn(text, "\n");
    if (text[0] == ' ' || n == 0) {
      printf("%.*s\n", (int)n, text);
      text += n + (text[n] == '\n');
      continue;
    }
    if (from > 0) column = (size_t)printf("%.*s", (int)from, text);
    fill(text + from, n - from, from, &column);
    for (text += n + (text[n] == '\n'); text[0] != '\0' && text[0] != '\n'; text += n + (text[n] == '\n')) {
      const size_t blanks = strspn(text, " ");
      n = strcspn(text, "\n");
      if (blanks != from || item_column(text) > 0) break;
      fill(text, n, from, &column);
    }
    printf("\n");
  }
}

/* The number of lines. */
static int print_usage(const bsrun_verb *of, const bsrun_verb *verb) {
  const char *line = verb->subverbs != NULL ? "VERB [options]" : verb->words != NULL ? verb->words : "";
  char name[64];
  int n = 0;
  name_of(of, verb, name);
  do {
    const size_t length = strcspn(line, "\n");
    size_t column = (size_t)printf("%s bsrun %s", n++ == 0 ? "usage:" : "      ", name);
    if (length > 0) column += (size_t)printf(" ");
    fill(line, length, column, &column);
    printf("\n");
    line += length + (line[length] == '\n');
  } while (line[0] != '\0');
  return n;
}

static void print_subverbs(const bsrun_verb *verb) {
  for (size_t i = 0; verb->subverbs[i] != NULL; i++)
    printf("%-9s %s\n", verb->subverbs[i]->name, verb->subverbs[i]->summary);
}

static void help_group(const bsrun_verb *verb) {
  printf("\n%s\n\n", verb->summary);
  print_subverbs(verb);
  printf("\n`bsrun help %s VERB` has the options of each.\n\nexamples:\n", verb->name);
  for (size_t i = 0; verb->subverbs[i] != NULL; i++) fputs(verb->subverbs[i]->examples, stdout);
}

void bsrun_verb_help(const bsrun_verb *of, const bsrun_verb *verb) {
  print_usage(of, verb);
  if (verb->subverbs != NULL) {
    help_group(verb);
    return;
  }
  printf("\n%s\n", verb->summary);
  if (verb->about != NULL && verb->about[0] != '\0') {
    printf("\n");
    print_text(verb->about);
  }
  printf("\noptions:\n");
  args_print_options(verb->options);
  printf("\nexamples:\n%s", verb->examples);
  if (verb->exits != NULL) {
    size_t column = (size_t)printf("\nexit codes:") - 1;
    fill(verb->exits, strlen(verb->exits), 0, &column);
    printf("\n");
  }
}

/* The first sub-verbs with their summaries, in so many lines; of the others the names. */
static void print_first_subverbs(const bsrun_verb *verb, int lines) {
  int n = 0;
  while (verb->subverbs[n] != NULL) n++;
  const int shown = n <= lines ? n : lines - 1;
  for (int i = 0; i < shown; i++) printf("%-9s %s\n", verb->subverbs[i]->name, verb->subverbs[i]->summary);
  for (int i = shown; i < n; i++)
    printf("%s%s%s", i == shown ? "more:     " : ", ", verb->subverbs[i]->name, i + 1 == n ? "\n" : "");
}

/* For a verb that was typed alone: at most SHORT_LINES lines. */
static void help_short(const bsrun_verb *verb) {
  const int lines = print_usage(NULL, verb);
  if (verb->subverbs != NULL) {
    print_first_subverbs(verb, SHORT_LINES - lines - 1);
    printf("`bsrun help %s VERB` has the options of each\n", verb->name);
    return;
  }
  printf("\n%s\n`bsrun help %s` has the options\n\nexamples:\n", verb->summary, verb->name);
  const char *line = verb->examples;
  for (int n = lines + 5; n < SHORT_LINES && line[0] != '\0'; n++) {
    const size_t length = strcspn(line, "\n") + 1;
    printf("%.*s", (int)length, line);
    line += length;
  }
}

/* ---- running ---------------------------------------------------------------------------------- */

static struct { const bsrun_verb *of, *verb; } typed; /* what this process runs */

void bsrun_name_page(bs_error *err) {
  char name[64] = "", page[96], own[sizeof err->hint];
  if (err->code != BS_USAGE || strncmp(err->id, "BS-USE-", 7) != 0 || strstr(err->hint, "--help") != NULL)
    return;
  if (typed.verb != NULL) name_of(typed.of, typed.verb, name);
  const size_t length = (size_t)snprintf(page, sizeof page, "%sbsrun %s%s--help",
                                         err->hint[0] != '\0' ? "; " : "", name, name[0] != '\0' ? " " : "");
  snprintf(own, sizeof own, "%s", err->hint);
  if (strlen(own) + length >= sizeof own) { /* a list loses its end */
    own[sizeof own - length - sizeof ", ..."] = '\0';
    char *end = strrchr(own, ',');
    snprintf(end != NULL ? end : own, sizeof ", ...", ", ...");
  }
  bs_error_hint(err, "%s%s", own, page);
}

static int32_t check_words(const bsrun_verb *of, const bsrun_verb *verb, const args *a, bs_error *err) {
  char name[64];
  if (a->n_words >= verb->min_words && a->n_words <= verb->max_words) return BS_OK;
  if (a->n_words > verb->max_words)
    return bs_error_set(err, BS_USAGE, "BS-USE-WORD", "unexpected argument '%.100s'",
                        a->words[verb->max_words]);
  bs_error_set(err, BS_USAGE, "BS-USE-WORD", "%s: %zu words given", name_of(of, verb, name), a->n_words);
  bs_error_hint(err, "bsrun %s %.*s", name, (int)strcspn(verb->words, "\n"), verb->words);
  return BS_USAGE;
}

static int run_one(const bsrun_verb *of, const bsrun_verb *verb, int argc, char **argv) {
  bs_error err = BS_ERROR_INIT;
  args a;
  int code = 0;
  typed.of = of;
  typed.verb = verb;
  int32_t rc = args_parse(argc, argv, verb->options, &a, &err);
  const int help = rc == BS_OK && args_has(&a, "help");
  if (help) bsrun_verb_help(of, verb);
  if (rc == BS_OK && !help) rc = check_words(of, verb, &a, &err);
  if (rc == BS_OK && !help && verb->exit != NULL) {
    code = verb->exit(&a, &err);
  } else if (rc == BS_OK && !help) {
    rc = verb->run(&a, &err);
  }
  args_free(&a);
  return rc == BS_OK ? code : bsrun_fail(&err);
}

int bsrun_verb_run(const bsrun_verb *verb, int argc, char **argv) {
  bs_error err = BS_ERROR_INIT;
  if (argc == 0 && (verb->subverbs != NULL || verb->min_words > 0)) {
    help_short(verb);
    return 2;
  }
  if (verb->subverbs == NULL) return run_one(NULL, verb, argc, argv);
  if (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0) {
    bsrun_verb_help(NULL, verb);
    return 0;
  }
  typed.verb = verb;
  const bsrun_verb *second = bsrun_find_subverb(verb, argv[0], &err);
  return second != NULL ? run_one(verb, second, argc - 1, argv + 1) : bsrun_fail(&err);
}
