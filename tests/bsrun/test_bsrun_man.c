/* SPDX-License-Identifier: MIT
 * test_bsrun_man.c - each verb has a page with every word of its help, bsrun.1 names them all, they render
 * without a warning, and a help that cannot be set is an error of the generator. */
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

/* bsrun-VERB.1; verb NULL: bsrun.1. */
static char *the_page(const char *verb) {
  char folder[700], name[64];
  snprintf(folder, sizeof folder, "%s/share/man/man1", getenv("BS_TEST_BINARY_DIR"));
  snprintf(name, sizeof name, "bsrun%s%s.1", verb != NULL ? "-" : "", verb != NULL ? verb : "");
  return page_text(folder, name);
}

/* All lines fit 100 columns; a command of the examples stands in one line. */
static void must_fit(const char *verb, const char *help) {
  for (const char *line = help; *line != '\0'; line += strcspn(line, "\n"), line += *line == '\n') {
    const size_t most = strncmp(line, "  bsrun ", 8) == 0 ? 120 : 100;
    ck_assert_msg(strcspn(line, "\n") <= most, "%s: %.*s", verb, (int)strcspn(line, "\n"), line);
  }
}

/* What the help has as a line of its own is a heading of the page. */
static int is_heading(const char *word) {
  static const char *const headings[] = {"usage:", "options:", "examples:", "exit", "codes:"};
  for (size_t i = 0; i < sizeof headings / sizeof headings[0]; i++)
    if (strcmp(word, headings[i]) == 0) return 1;
  return 0;
}

/* Every word of a help is there, from *at on and in the same order. */
static int has_words(const char *verb, const char **at, char *help) {
  int seen = 0;
  for (char *save = NULL, *word = strtok_r(help, " \n", &save); word != NULL;
       word = strtok_r(NULL, " \n", &save), seen++) {
    if (is_heading(word)) continue;
    const char *found = strstr(*at, word);
    ck_assert_msg(found != NULL, "%s: '%s' is not in its page", verb, word);
    *at = found + strlen(word);
  }
  return seen;
}

START_TEST(has_all_of_the_help) {
  ran verbs = bsrun(dir, "completion", "words", "verbs", NULL);
  char *main_page = the_page(NULL), name[64];
  int seen = 0, pages = 0;
  for (char *save = NULL, *verb = strtok_r(verbs.out, "\n", &save); verb != NULL;
       verb = strtok_r(NULL, "\n", &save), pages++) {
    char *page = the_page(verb);
    const char *at = page;
    ran help = bsrun(dir, "help", verb, NULL), subs = bsrun(dir, "completion", "words", "verbs", verb, NULL);
    must_fit(verb, help.out);
    seen += has_words(verb, &at, help.out);
    for (char *inner = NULL, *sub = strtok_r(subs.out, "\n", &inner); sub != NULL;
         sub = strtok_r(NULL, "\n", &inner)) {
      ran own = bsrun(dir, "help", verb, sub, NULL);
      must_fit(verb, own.out);
      seen += has_words(verb, &at, own.out);
      ran_free(&own);
    }
    snprintf(name, sizeof name, "bsrun-%s (1)", verb);
    ck_assert_msg(strcmp(verb, "help") == 0 || strcmp(verb, "version") == 0 ||
                      strcmp(verb, "completion") == 0 || strstr(main_page, name) != NULL,
                  "bsrun.1 has no %s", name);
    ran_free(&help);
    ran_free(&subs);
    free(page);
  }
  ck_assert_int_gt(seen, 3000);
  ck_assert_int_gt(pages, 18);
  ran_free(&verbs);
  free(main_page);
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
    snprintf(command, sizeof command,
             "for page in '%s'/share/man/man1/bsrun*.1; do %s $page; done > '%s/page' 2> '%s/warnings'",
             getenv("BS_TEST_BINARY_DIR"), ways[i][1], dir, dir);
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
           "#!/bin/sh\ncase \"$1$4\" in\ncompletion) echo one ;;\ncompletionone) ;;\n--version) echo 'bsrun "
           "1.2.3' "
           ";;\n"
           "*) cat <<'X'\n%sX\n;;\nesac\n",
           help);
  write_text(dir, "program", script);
  snprintf(command, sizeof command,
           "chmod +x '%s/program' && sh '%s/bsrun/man.sh' '%s/program' '%s/out' 2> '%s/error'", dir,
           getenv("BS_TEST_SOURCE_DIR"), dir, dir, dir);
  return system(command);
}

START_TEST(hostile_help) {
  ck_assert_int_eq(
      make_page("x - y\n\nusage: x [-a] 'b'\n\n.dot \\back `q` ^~\noptions:\n  -a, --all X|off      every\n"
                "      of them\nword    what it is\n"),
      0);
  char *text = page_text(dir, "out/bsrun-one.1"), *raw = read_text(dir, "out/bsrun-one.1");
  ck_assert_ptr_nonnull(strstr(raw, "\n\\&.dot")); /* no request */
  ck_assert_ptr_nonnull(strstr(text, ".dot \\back `q` ^~"));
  ck_assert_ptr_nonnull(strstr(text, ".TP -a, --all X|off every of them .TP word what it is"));
  free(text);
  free(raw);
  ck_assert_int_ne(make_page("x - y\n\noptions:\n  -a, --all X every\n"),
                   0); /* where the name ends cannot be told */
  char *error = read_text(dir, "error");
  ck_assert_ptr_nonnull(strstr(error, "no two spaces"));
  free(error);
  ck_assert_int_ne(make_page("x - y\n\nna\xc3\xafve\n"), 0);
}
END_TEST

int main(void) {
  const test_case tests[] = {{has_all_of_the_help}, {renders_without_a_warning}, {hostile_help}, {0}};
  return run_tests("bsrun_man", tests, (test_setup){dir_make, dir_remove});
}
