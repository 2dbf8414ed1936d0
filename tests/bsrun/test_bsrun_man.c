/* SPDX-License-Identifier: MIT
 * test_bsrun_man.c - bsrun.1 has every verb and option that the program has and every word of its help,
 * renders without a warning, and a help that cannot be set is an error of the generator. */
#include "tests/run_tests.h"
#include "tests/spawn.h"

/* The page without its escapes, in one line with single spaces, so that words can be looked for. */
static char *page_text(const char *folder, const char *name) {
  static const struct {
    const char *escape, *means;
  } escapes[] = {{"\\-", "-"}, {"\\(ga", "`"}, {"\\(aq", "'"}, {"\\(ha", "^"}, {"\\(ti", "~"},
                 {"\\&", ""},  {"\\fB", ""},   {"\\fR", ""},   {"\\e", "\\"}};
  char *page = read_text(folder, name);
  ck_assert_msg(page != NULL, "no %s/%s", folder, name);
  char *text = calloc(1, strlen(page) + 2), *to = text;
  for (const char *p = page; *p != '\0';) {
    size_t i = 0;
    while (i < sizeof escapes / sizeof escapes[0] &&
           strncmp(p, escapes[i].escape, strlen(escapes[i].escape)) != 0)
      i++;
    if (i < sizeof escapes / sizeof escapes[0]) {
      to = stpcpy(to, escapes[i].means);
      p += strlen(escapes[i].escape);
    } else {
      *to++ = *p == '\n' ? ' ' : *p;
      p++;
    }
  }
  free(page);
  return text;
}

static char *the_page(void) {
  char folder[700];
  snprintf(folder, sizeof folder, "%s/share/man/man1", getenv("BS_TEST_BINARY_DIR"));
  return page_text(folder, "bsrun.1");
}

static int has_word(const char *text, const char *word) {
  static const char name[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
  const size_t n = strlen(word);
  for (const char *p = text; (p = strstr(p, word)) != NULL; p++)
    if ((p == text || strchr(name, p[-1]) == NULL) && (p[n] == '\0' || strchr(name, p[n]) == NULL)) return 1;
  return 0;
}

/* Options of every help, and all lines of some, fit 100 columns. */
static void must_fit(const char *verb, const char *help) {
  static const char *const narrow[] = {"compare", "tune", "bench"};
  int whole = 0;
  for (size_t i = 0; i < sizeof narrow / sizeof narrow[0]; i++) whole |= strcmp(verb, narrow[i]) == 0;
  for (const char *line = help; *line != '\0'; line += strcspn(line, "\n"), line += *line == '\n') {
    const size_t blanks = strspn(line, " ");
    const int of_option = blanks >= 31 || (blanks == 6 && line[6] == '-');
    ck_assert_msg(!(whole || of_option) || strcspn(line, "\n") <= 100, "%s: %.*s", verb,
                  (int)strcspn(line, "\n"), line);
  }
}

/* Every word of every help is there, in the section of its verb and in the same order. */
START_TEST(has_all_of_the_help) {
  char *page = the_page(), heading[64];
  ran verbs = bsrun(dir, "completion", "words", "verbs", NULL);
  int seen = 0;
  for (char *save = NULL, *verb = strtok_r(verbs.out, "\n", &save); verb != NULL;
       verb = strtok_r(NULL, "\n", &save)) {
    ran help = bsrun(dir, "help", verb, NULL);
    must_fit(verb, help.out);
    snprintf(heading, sizeof heading, ".SS bsrun %s ", verb);
    const char *at = strstr(page, heading);
    ck_assert_msg(at != NULL, "no section of %s", verb);
    const char *end = strstr(at + 1, ".SS bsrun ");
    for (char *inner = NULL, *word = strtok_r(help.out, " \n", &inner); word != NULL;
         word = strtok_r(NULL, " \n", &inner), seen++) {
      if (strcmp(word, "usage:") == 0) continue;
      if (strcmp(word, "examples:") == 0 || strcmp(word, "example:") == 0)
        word = (char *)(uintptr_t) "Examples:";
      at = strstr(at, word);
      ck_assert_msg(at != NULL && (end == NULL || at < end), "%s: '%s' is not in its section", verb, word);
      at += strlen(word);
    }
    ran_free(&help);
  }
  ck_assert_int_gt(seen, 500);
  ran_free(&verbs);
  free(page);
}
END_TEST

/* Options come from the tables of the parser, verbs of the second level from the completion. */
START_TEST(has_every_verb_and_option) {
  static const char *const verbs[] = {
      "run",         "plugins list",   "plugins inspect", "plugins why", "plugins knobs",
      "plugins new", "plugins check",  "config print",    "config keys", "doctor",
      "explain",     "compare",        "torture",         "model info",  "model run",
      "model check", "model generate", "model explain",   "model plan"};
  char *page = the_page();
  int seen = 0;
  for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) {
    char usage[64];
    ran options = bsrun(dir, "completion", "words", "options", verbs[i], NULL);
    snprintf(usage, sizeof usage, "bsrun %s", verbs[i]);
    ck_assert_msg(strstr(page, usage) != NULL, "no %s", usage);
    for (char *save = NULL, *word = strtok_r(options.out, "\n", &save); word != NULL;
         word = strtok_r(NULL, "\n", &save), seen++)
      ck_assert_msg(has_word(page, word), "%s of %s is not in the page", word, verbs[i]);
    ran_free(&options);
  }
  ck_assert_int_gt(seen, 60);
  ran help = bsrun(dir, "--help", NULL);
  for (const char *line = help.out; line != NULL;
       line = strchr(line, '\n')) { /* "  name   what" and options */
    char word[64];
    line += *line == '\n';
    if (strncmp(line, "  ", 2) == 0 && strspn(line, " ") < 31 && sscanf(line, " %63[-A-Za-z]", word) == 1)
      ck_assert_msg(has_word(page, word), "%s of --help is not in the page", word);
  }
  ran_free(&help);
  free(page);
}
END_TEST

static int there_is(const char *program) {
  char command[100];
  snprintf(command, sizeof command, "command -v %s > /dev/null 2>&1", program);
  return system(command) == 0;
}

/* By groff, and by man when it is there. What is not there is said. */
START_TEST(renders_without_a_warning) {
  static const char *const ways[][2] = {{"groff", "groff -man -Tutf8 -ww -rLL=80n -P-cbu"},
                                        {"man", "LC_ALL=C.UTF-8 MANWIDTH=80 man --warnings=w -l"}};
  for (size_t i = 0; i < 2; i++) {
    char command[1500];
    if (!there_is("groff") || !there_is(ways[i][0])) {
      fprintf(stderr, "there is no %s: the page is not rendered by it\n", ways[i][0]);
      continue;
    }
    snprintf(command, sizeof command, "%s '%s/share/man/man1/bsrun.1' > '%s/page' 2> '%s/warnings'",
             ways[i][1], getenv("BS_TEST_BINARY_DIR"), dir, dir);
    ck_assert_int_eq(system(command), 0);
    char *warnings = read_text(dir, "warnings"), *page = read_text(dir, "page");
    ck_assert_str_eq(warnings, "");
    ck_assert_ptr_nonnull(strstr(page, "--print-config"));
    ck_assert_ptr_nonnull(strstr(page, "bsrun plugins inspect cpu"));
    free(warnings);
    free(page);
  }
}
END_TEST

/* A program whose help says `help` and all else that man.sh asks. */
static int make_page(const char *help) {
  char script[3000], command[3000];
  snprintf(script, sizeof script,
           "#!/bin/sh\ncase \"$1\" in\ncompletion) echo one ;;\n--version) echo 'bsrun 1.2.3' ;;\n"
           "*) cat <<'X'\n%sX\n;;\nesac\n",
           help);
  write_text(dir, "program", script);
  snprintf(command, sizeof command,
           "chmod +x '%s/program' && sh '%s/bsrun/man.sh' '%s/program' '%s/out.1' 2> '%s/error'", dir,
           getenv("BS_TEST_SOURCE_DIR"), dir, dir, dir);
  return system(command);
}

START_TEST(hostile_help) {
  ck_assert_int_eq(
      make_page("x - y\n\nusage: x [-a] 'b'\n\n.dot \\back `q` ^~\n  -a, --all X|off      every\n"
                "      of them\nword    what it is\n"),
      0);
  char *text = page_text(dir, "out.1"), *raw = read_text(dir, "out.1");
  ck_assert_ptr_nonnull(strstr(raw, "\n\\&.dot")); /* no request */
  ck_assert_ptr_nonnull(strstr(text, ".dot \\back `q` ^~"));
  ck_assert_ptr_nonnull(strstr(text, ".TP -a, --all X|off every of them .TP word what it is"));
  free(text);
  free(raw);
  ck_assert_int_ne(make_page("x - y\n\n  -a, --all X every\n"), 0); /* where the name ends cannot be told */
  char *error = read_text(dir, "error");
  ck_assert_ptr_nonnull(strstr(error, "no two spaces"));
  free(error);
  ck_assert_int_ne(make_page("x - y\n\nna\xc3\xafve\n"), 0);
}
END_TEST

int main(void) {
  const test_case tests[] = {
      {has_all_of_the_help}, {has_every_verb_and_option}, {renders_without_a_warning}, {hostile_help}, {0}};
  return run_tests("bsrun_man", tests, (test_setup){dir_make, dir_remove});
}
