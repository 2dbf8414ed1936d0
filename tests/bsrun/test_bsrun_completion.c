/* SPDX-License-Identifier: MIT
 * test_bsrun_completion.c - the completion script is bash, is the file that is installed, and completes
 * names, options and values as a user's shell asks for them. */
#include "tests/bsrun/spawn.h"
#include "tests/run_tests.h"

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
    {"bsrun|--method|blo", "blockshock", "block_shock_2gpu"},
    {"bsrun|--method|=|col", "column_parallel", "dense"},
    {"bsrun|run|--mask|comp", "complement_1100_0011", "interleave"},
    {"bsrun|--workload|gau", "gaussian", "file"},
    {"bsrun|--hardware|", "cpu", "gaussian"},
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
    {"bsrun|plugins|w", "why", "inspect"},
    {"bsrun|plugins|why|--", "--plugin", "--load"},
    {"bsrun|plugins|why|re", "ref", "--plugin"},
    {"bsrun|plugins|ne", "new", "list"},
    {"bsrun|plugins|new|acme|--", "--kind", "--load"},
    {"bsrun|plugins|new|acme|--kind|", "communicator", "comm"},
    {"bsrun|plugins|", "check", "run"},
    {"bsrun|plugins|check|--", "--kit", "--exists"},
    {"bsrun|plugins|check|re", "ref", "--kit"},
    {"bsrun|plugins|check|-o|", "tap", "csv"},
    {"bsrun|plugins|check|--kit|f", "full", "quick"},
    {"bsrun|plugins|check|--group|m", "method", "abi"},
    {"bsrun|explain|", "matmul", "run"},
    {"bsrun|explain|mask|inter", "interleave", "blockshock"},
    {"bsrun|explain|method|block", "blockshock", "interleave"},
    {"bsrun|explain|matmul|--act", "--activation", "--bias"},
    {"bsrun|mod", "model", "plugins"},
    {"bsrun|model|", "plan", "config"},
    {"bsrun|model|run|m.onnx|--pass|", "all=off", "forward"},
    {"bsrun|model|explain|m.onnx|-o|", "json", "csv"},
    {"bsrun|model|plan|--", "--align", "--kit"},
    {"bsrun|help|com", "completion", "config"},
    {"bsrun|explain|--n|64|ma", "matmul", "method"},
    {"bsrun|explain|--n|=|64|--bias|m", "mask", "run"},
    {"bsrun|explain|-P|2|mask|--k|8|inter", "interleave", "blockshock"},
    {"bsrun|explain|--n|64|matmul|", "", "matmul"}, /* there is an op already */
    {"bsrun|completion|", "words", "methods"},
    {"bsrun|completion|words|", "methods", "bash"},
    {"bsrun|completion|words|options|do", "doctor", "run"},
};

/* "" offers nothing. */
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

/* Is `word` in the text, with nothing of a name before and behind it? */
static int has_word(const char *text, const char *word) {
  static const char name[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
  const size_t length = strlen(word);
  for (const char *at = strstr(text, word); at != NULL; at = strstr(at + 1, word)) {
    const int begins = at == text || strchr(name, at[-1]) == NULL;
    if (begins && (at[length] == '\0' || strchr(name, at[length]) == NULL)) return 1;
  }
  return 0;
}

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
      ck_assert_msg(has_word(help.out, word), "%s is not in the help of %s", word, verbs[i][0]);
    }
    ck_assert_int_gt(seen, 8);
    ran_free(&words);
    ran_free(&help);
  }
}
END_TEST

static const char *const verbs_with_options[] = {
    "run",           "plugins list", "plugins inspect", "plugins why", "plugins knobs", "plugins new",
    "plugins check", "config print", "config keys",     "doctor",      "explain",       "ladder",
    "compare",       "sweep",        "model info",      "model run",   "model check",   "model generate",
    "model explain", "model plan",   "sim explain",     "sim scale",   "sim probe",     "sim fit",
    "bench comm",    "bench matmul", "bench sdpa",      "ccl list",    "ccl check",     "ccl explain",
    "ccl bench"};

/* Behind an option that takes a value its values are completed, or nothing: never the next option. */
START_TEST(values_are_no_options) {
  static const char script[] =
      "source <(bsrun completion bash); n=0; for option in $(bsrun completion words valued \"$0\"); do "
      "COMP_WORDS=(bsrun $0 $option -); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _bsrun; n=$((n + 1)); "
      "((${#COMPREPLY[@]} == 0)) || echo \"$option: ${COMPREPLY[0]}\"; done; echo $n options";
  char command[2000];
  const char *program = getenv("BS_TEST_BSRUN"), *verb = verbs_with_options[_i];
  snprintf(command, sizeof command, "cd '%s' && PATH='%.*s':$PATH bash -c '%s' '%s' > out 2>&1", dir,
           (int)(strrchr(program, '/') - program), program, script, verb);
  ck_assert_int_eq(system(command), 0);
  char *out = read_text(dir, "out"), *end = NULL;
  ck_assert_msg(strtol(out, &end, 10) > 0 && strcmp(end, " options\n") == 0, "%s: %s", verb, out);
  free(out);
}
END_TEST

/* "  -o, --output FORMAT" in the help takes a value, and so it does for the script. */
START_TEST(valued_are_those_of_the_help) {
  static const char *const verbs[] = {"run", "doctor", "explain"};
  ran help = bsrun(dir, "help", verbs[_i], NULL),
      words = bsrun(dir, "completion", "words", "valued", verbs[_i], NULL);
  char left[64], name[64], value[64];
  int seen = 0;
  must_be(&help, 0);
  must_be(&words, 0);
  for (const char *line = help.out; line != NULL; line = strchr(line, '\n')) {
    line += *line == '\n';
    if (strncmp(line, "  -", 3) != 0 && strncmp(line, "      --", 8) != 0) continue;
    snprintf(left, sizeof left, "%.30s", line); /* the columns before the text */
    const char *at = strstr(left, "--");
    ck_assert_ptr_nonnull(at);
    const int valued = sscanf(at, "%63s %63s", name, value) == 2;
    ck_assert_msg(has_word(words.out, name) == valued, "%s: %s", verbs[_i], left);
    seen++;
  }
  ck_assert_int_gt(seen, 8);
  ran_free(&help);
  ran_free(&words);
}
END_TEST

/* All kinds can be asked for, and the help names them. */
START_TEST(kinds_are_those_of_the_help) {
  ran kinds = bsrun(dir, "completion", "words", "kinds", NULL), help = bsrun(dir, "help", "completion", NULL);
  int seen = 0;
  must_be(&kinds, 0);
  for (char *save = NULL, *kind = strtok_r(kinds.out, "\n", &save); kind != NULL;
       kind = strtok_r(NULL, "\n", &save), seen++) {
    ran words = bsrun(dir, "completion", "words", kind, NULL);
    must_be(&words, 0);
    ck_assert_msg(words.out[0] != '\0', "no %s", kind);
    ck_assert_msg(has_word(help.out, kind), "%s is not in the help", kind);
    ran_free(&words);
  }
  ck_assert_int_gt(seen, 10);
  ran_free(&kinds);
  ran_free(&help);
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
  const test_case tests[] = {{the_script_is_bash_and_the_installed_file},
                             {lines_are_completed, TEST_COUNT(lines)},
                             {options_are_those_of_the_help},
                             {values_are_no_options, TEST_COUNT(verbs_with_options)},
                             {valued_are_those_of_the_help, 3},
                             {kinds_are_those_of_the_help},
                             {wrong_use, 5},
                             {help},
                             {0}};
  return run_tests("bsrun_completion", tests, (test_setup){setup, teardown});
}
