/* SPDX-License-Identifier: MIT
 * test_bsrun_completion.c - the completion script is bash, is the file that is installed, and completes
 * names, options and values as a user's shell asks for them. */
#include "tests/bsrun/spawn.h"

static const char *dir;
static void setup(void) {
  dir = scratch_dir();
}
static void teardown(void) {
  remove_dir(dir);
}

START_TEST(the_script_is_bash_and_the_installed_file) {
  char command[700], source[1024];
  ran r = bsrun(dir, "completion", "bash", NULL);
  must_be(&r, 0);
  write_text(dir, "script", r.out);
  snprintf(command, sizeof command, "bash -n '%s/script'", dir);
  ck_assert_int_eq(system(command), 0);
  snprintf(source, sizeof source, "%s/bsrun", getenv("BS_TEST_SOURCE_DIR"));
  char *file = read_text(source, "completion.bash");
  ck_assert_ptr_nonnull(file);
  ck_assert_str_eq(file, r.out);
  free(file);
  ran_free(&r);
}
END_TEST

/* What bash would offer for a line; '|' stands between the words, the last is being typed. */
static const struct {
  const char *line, *offers, *not ;
} lines[] = {
    {"bsrun|--method|blo", "blockshock", "dense"},
    {"bsrun|--method|=|col", "column_parallel", "dense"},
    {"bsrun|run|--mask|comp", "complement_1100_0011", "interleave"},
    {"bsrun|--workload|gau", "gaussian", "file"},
    {"bsrun|--hardware|", "local_2gpu", "gaussian"},
    {"bsrun|--sweep|", "N_sweep", "gaussian"},
    {"bsrun|--phase|", "phase1_forward", "gaussian"},
    {"bsrun|--plugin|", "ref", "gaussian"},
    {"bsrun|doctor|--backend|", "ref", "gaussian"},
    {"bsrun|-o|j", "jsonl", "table"},
    {"bsrun|--set|model.", "model.N=", "mask.name="},
    {"bsrun|do", "doctor", "run"},
    {"bsrun|", "explain", "--help"},
    {"bsrun|--pri", "--print-config", "--plugin"},
    {"bsrun|doctor|--", "--measure", "--print-config"},
    {"bsrun|plugins|", "inspect", "run"},
    {"bsrun|plugins|list|--", "--load", "--exists"},
    {"bsrun|plugins|inspect|--", "--exists", "--load"},
    {"bsrun|plugins|inspect|re", "ref", "--exists"},
    {"bsrun|explain|", "matmul", "run"},
    {"bsrun|explain|mask|inter", "interleave", "blockshock"},
    {"bsrun|explain|method|block", "blockshock", "interleave"},
    {"bsrun|explain|matmul|--act", "--activation", "--bias"},
    {"bsrun|help|com", "completion", "config"},
};

START_TEST(lines_are_completed) {
  char command[2000], path[700], words[400] = "";
  const char *program = getenv("BS_TEST_BSRUN");
  for (const char *p = lines[_i].line;; p += strcspn(p, "|") + 1) {
    const size_t n = strcspn(p, "|"), used = strlen(words);
    snprintf(words + used, sizeof words - used, " '%.*s'", (int)n, p);
    if (p[n] == '\0') break;
  }
  snprintf(path, sizeof path, "%.*s", (int)(strrchr(program, '/') - program), program);
  snprintf(command, sizeof command,
           "cd '%s' && PATH='%s':$PATH bash -c 'source <(bsrun completion bash); COMP_WORDS=(\"$@\"); "
           "COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _bsrun; printf \"%%s\\n\" \"${COMPREPLY[@]}\"' x%s > out",
           dir, path, words);
  ck_assert_int_eq(system(command), 0);
  char *out = read_text(dir, "out"), *framed = calloc(1, strlen(out) + 2), want[80], not [80];
  snprintf(framed, strlen(out) + 2, "\n%s", out);
  snprintf(want, sizeof want, "\n%s\n", lines[_i].offers);
  snprintf(not, sizeof not, "\n%s\n", lines[_i].not );
  ck_assert_msg(strstr(framed, want) != NULL, "%s: no %s in%s", lines[_i].line, lines[_i].offers, framed);
  ck_assert_msg(strstr(framed, not ) == NULL, "%s: %s is offered", lines[_i].line, lines[_i].not );
  free(framed);
  free(out);
}
END_TEST

/* Options come from the tables that the parser uses: each is in its verb's help. */
START_TEST(options_are_those_of_the_help) {
  static const char *const verbs[][3] = {{"run"}, {"doctor"}, {"explain"}};
  for (size_t i = 0; i < 3; i++) {
    ran words = bsrun(dir, "completion", "words", "options", verbs[i][0], NULL),
        help = bsrun(dir, "help", verbs[i][0], NULL);
    int seen = 0;
    must_be(&words, 0);
    must_be(&help, 0);
    for (char *save = NULL, *word = strtok_r(words.out, "\n", &save); word != NULL;
         word = strtok_r(NULL, "\n", &save), seen++) {
      ck_assert_msg(strstr(help.out, word) != NULL, "%s is not in the help of %s", word, verbs[i][0]);
    }
    ck_assert_int_gt(seen, 8);
    ran_free(&words);
    ran_free(&help);
  }
}
END_TEST

START_TEST(wrong_use) {
  static const char *const uses[][5] = {
      {"fish"}, {"bash", "x"}, {"words"}, {"words", "method"}, {"words", "a", "b", "c"}};
  ran r = bsrun(dir, "completion", uses[_i][0], uses[_i][1], uses[_i][2], uses[_i][3], NULL);
  must_be(&r, 2);
  ck_assert(strstr(r.err, "bsrun: error[BS-USE-") == r.err);
  ran_free(&r);
}
END_TEST

START_TEST(help) {
  ran r = bsrun(dir, "completion", "--help", NULL);
  must_be(&r, 0);
  ck_assert_ptr_nonnull(strstr(r.out, "source <(bsrun completion bash)"));
  ran_free(&r);
  r = bsrun(dir, "completion", NULL);
  must_be(&r, 2);
  ran_free(&r);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("bsrun_completion");
  TCase *tc = tcase_create("completion");
  tcase_add_checked_fixture(tc, setup, teardown);
  tcase_add_test(tc, the_script_is_bash_and_the_installed_file);
  tcase_add_loop_test(tc, lines_are_completed, 0, (int)(sizeof lines / sizeof lines[0]));
  tcase_add_test(tc, options_are_those_of_the_help);
  tcase_add_loop_test(tc, wrong_use, 0, 5);
  tcase_add_test(tc, help);
  suite_add_tcase(suite, tc);
  return run_suite(suite);
}
