/* SPDX-License-Identifier: MIT
 * test_bsrun_torture.c - bsrun torture: the right communicator gets a clean card, each wrong one the sentence
 * that says what is wrong with it; and the command of a row does the same again. */
#include <glob.h>
#include <jansson.h>

#include "tests/run_tests.h"
#include "tests/slow.h"
#include "tests/spawn.h"

/* The rows of -o json. */
static json_t *card_of(const ran *r) {
  json_error_t e;
  json_t *card = json_loads(r->out, JSON_REJECT_DUPLICATES, &e);
  ck_assert_msg(card != NULL, "%s in: %s\n%s", e.text, r->out, r->err);
  return card;
}

static double number(const json_t *object, const char *key) {
  return json_number_value(json_object_get(object, key));
}

static const char *text(const json_t *object, const char *key) {
  const char *value = json_string_value(json_object_get(object, key));
  return value != NULL ? value : "";
}

/* Sanitizers start slowly: the clean run is allowed for, and the deadline is not of the essence here. */
#define DEADLINE (BS_SLOW ? "1" : "0.4")

/* Ranks that are processes can die and stand still: each at the first call of each kind of the last rank.
 * That they are processes follows from the communicator. */
START_TEST(shm_is_clean) {
  unsigned killed = 0, stopped = 0;
  ran r = bsrun(dir, "torture", "--comm", "shm", "-P", "2", "--preset", "quick", "--fault", "kill", "--fault",
                "stop", "--timeout", DEADLINE, "-o", "json", NULL);
  must_be(&r, 0);
  json_t *card = card_of(&r);
  size_t i;
  json_t *row;
  json_array_foreach(json_object_get(card, "rows"), i, row) {
    killed += strcmp(text(row, "fault"), "kill") == 0;
    stopped += strcmp(text(row, "fault"), "stop") == 0;
  }
  ck_assert_uint_eq(killed, 8);
  ck_assert_uint_eq(stopped, 8);
  json_decref(card);
  ran_free(&r);
}
END_TEST

/* Without processes there is nobody to kill. */
START_TEST(threads_are_not_killed) {
  ran r = bsrun(dir, "torture", "--comm", "threads", "-P", "2", "--preset", "quick", "--fault", "kill", NULL);
  must_be(&r, 2);
  ck_assert_ptr_nonnull(strstr(r.err, "BS-TORTURE-NOTHING"));
  ran_free(&r);
}
END_TEST

START_TEST(threads_is_clean) {
  static const char *const faults[] = {"err", "hang", "delay", "late", "flip", "nan", "truncate"};
  static const char *const ops[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast",
                                    "all_to_all", "send",       "recv",           "barrier"};
  unsigned seen_faults = 0, seen_ops = 0;
  ran r = bsrun(dir, "torture", "--comm", "threads", "-P", "2", "--preset", "quick", "--timeout", DEADLINE,
                "-o", "json", NULL);
  must_be(&r, 0);
  json_t *card = card_of(&r);
  size_t i;
  json_t *row;
  json_array_foreach(json_object_get(card, "rows"), i, row) {
    for (unsigned k = 0; k < 7; k++)
      seen_faults |= (unsigned)(strcmp(text(row, "fault"), faults[k]) == 0) << k;
    for (unsigned k = 0; k < 8; k++) seen_ops |= (unsigned)(strcmp(text(row, "op"), ops[k]) == 0) << k;
  }
  ck_assert_uint_eq(seen_faults, 0x7f);
  ck_assert_uint_eq(seen_ops, 0xff);
  ck_assert(number(card, "cases") == 8 * 4 + 7 * 3);
  ck_assert(number(card, "as_specified") == number(card, "cases"));
  json_decref(card);
  ran_free(&r);
}
END_TEST

static const struct {
  const char *kind, *op, *fault, *says;
  int code; /* of the command that repeats it; -1: not repeated */
} wrong[] = {
    {"patient", "all_reduce", "late", "exit 0, specified is 8", 0},
    {"patient", "barrier", "hang", "did not end", -1},
    {"content", "all_gather", "truncate", "exit 6, specified is 9", 6},
    {"unjust", "all_to_all", "hang", "does not blame rank 1", 8},
    {"unjust", "send", "late", "does not blame rank 1", 8},
};

START_TEST(a_wrong_one_gets_its_sentence) {
  char kind[64];
  snprintf(kind, sizeof kind, "plugins.bad_comm.fault=%s", wrong[_i].kind);
  ran r = bsrun(dir, "torture", "--plugin", BS_TEST_RUDE_DIR "/bs_bad_comm.so", "--set", "plugin_trust=any",
                "--set", kind, "--comm", "bad_comm:threads", "-P", "2", "--preset", "quick", "--timeout",
                DEADLINE, "--op", wrong[_i].op, "--fault", wrong[_i].fault, "-o", "json", NULL);
  must_be(&r, 5);
  ck_assert_msg(strstr(r.err, "error[BS-TORTURE-SCORE] 1 of 1") != NULL, "%s", r.err);
  json_t *card = card_of(&r);
  const json_t *row = json_array_get(json_object_get(card, "rows"), 0);
  ck_assert_msg(strstr(text(row, "failure"), wrong[_i].says) != NULL, "%s", text(row, "failure"));
  ck_assert_str_eq(text(row, "score"), "0/1");
  if (wrong[_i].code >= 0) {
    char command[2048];
    const char *again = text(row, "repeat");
    ck_assert_msg(strncmp(again, "bsrun ", 6) == 0, "%s", again);
    snprintf(command, sizeof command, "cd '%s' && '%s' %s >again.out 2>again.err", dir, bsrun_path(),
             again + 6);
    const int status = system(command);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == wrong[_i].code, "%s: %d", command, status);
  }
  json_decref(card);
  ran_free(&r);
}
END_TEST

static const struct {
  const char *plan;
  int code;
  const char *says;
} plans[] = {
    {"", 0, ""},
    {"rank=0,op=all_reduce,seq=1,do=err", 7, "an injected error in all_reduce, call 1 of rank 0"},
    {"rank=1,op=barrier,seq=0,do=hang", 8, "missing: rank 1"},
    {"rank=1,op=send,seq=0,do=flip", 6, "from rank 1"},
    {"rank=0,op=reduce_scatter,seq=0,do=nan", 6, "is nan"},
    {"rank=1,op=all_to_all,seq=1,do=truncate", 9, "ranks disagree"},
    {"rank=*,op=*,do=delay,ms=1", 0, ""},
    {"rank=1,op=all_to_none,do=err", 3, "character 11: 'all_to_none' is no op"},
};

START_TEST(one_plan_ends_as_it_must) {
  ran r = bsrun(dir, "torture", "--comm", "threads", "-P", "2", "--timeout", DEADLINE, "--plan",
                plans[_i].plan, NULL);
  must_be(&r, plans[_i].code);
  ck_assert_msg(strstr(r.err, plans[_i].says) != NULL, "%s", r.err);
  if (plans[_i].code == 0) ck_assert_msg(strstr(r.out, "calls of rank 1: all_reduce=2") != NULL, "%s", r.out);
  ran_free(&r);
}
END_TEST

/* Somebody else's communicator, which has some of the collectives: by its plugin alone. */
START_TEST(a_template_is_clean) {
  const char *build = getenv("BS_TEST_BINARY_DIR");
  char plugin[600];
  ck_assert_ptr_nonnull(build);
  snprintf(plugin, sizeof plugin, "%s/tests/skeleton_plugins/bs_skel_communicator.so", build);
  ran r = bsrun(dir, "torture", "--plugin", plugin, "--set", "plugin_trust=any", "-P", "3", "--preset",
                "quick", "--timeout", DEADLINE, NULL);
  must_be(&r, 0);
  ck_assert_msg(strstr(r.out, "score: 25 of 25 as specified") != NULL, "%s", r.out);
  ck_assert_msg(strstr(r.out, "reduce_scatter") == NULL, "%s", r.out);
  ran_free(&r);
}
END_TEST

START_TEST(methods_and_backends_run_phase_0) {
  ran m = bsrun(dir, "torture", "--method", "row_parallel", "-P", "2", "--preset", "quick", "--timeout",
                DEADLINE, NULL);
  must_be(&m, 0);
  ck_assert_msg(strstr(m.out, "score: 7 of 7 as specified") != NULL, "%s", m.out);
  ran_free(&m);
  ran b = bsrun(dir, "torture", "--backend", "ref", "-P", "2", "--preset", "quick", "--timeout", DEADLINE,
                "--fault", "err", "--fault", "hang", "-o", "tap", NULL);
  must_be(&b, 0);
  ck_assert_msg(strstr(b.out, "ok 1 - backend ref err of alloc") != NULL, "%s", b.out);
  ck_assert_msg(strstr(b.out, "hang of matmul,") != NULL && strstr(b.out, "not ok") == NULL, "%s", b.out);
  ran_free(&b);
  ck_assert_int_eq(result_files(dir), 0);
}
END_TEST

/* One thread drives simulated ranks: nobody sleeps, a hang is found at once, and each rank's backend is
 * struck. Messages of an algorithm are one call of the op exchange. */
static const struct {
  const char *words[16];
  const char *score, *lacks, *note;
} others[] = {
    {{"--comm", "sim", "-P", "2,3"}, "score: 74 of 74 as", "late ", "none of them can be late"},
    {{"--comm", "sim", "--backend", "virtual:ref", "-P", "2", "--op", "matmul"},
     "score: 4 of 4 as",
     "hang ",
     "cannot hang in a backend"},
    {{"--method", "row_parallel", "--comm", "sim", "--set", "hardware.backend=virtual:ref", "--set",
      "hardware.algorithm=ring", "-P", "3", "--op", "exchange"},
     "score: 5 of 5 as",
     "delay ",
     "none of them can be late"},
    {{"--method", "row_parallel", "--set", "hardware.algorithm=ring", "-P", "2", "--op", "exchange",
      "--timeout", DEADLINE},
     "score: 7 of 7 as",
     "matmul",
     ""},
};

START_TEST(ranks_that_are_driven_and_messages_of_algorithms) {
  const char *const *w = others[_i].words;
  ran r = bsrun(dir, "torture", "--preset", "quick", w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8],
                w[9], w[10], w[11], w[12], NULL);
  must_be(&r, 0);
  ck_assert_msg(strstr(r.out, others[_i].score) != NULL, "%s", r.out);
  ck_assert_msg(strstr(r.out, others[_i].lacks) == NULL, "%s", r.out);
  ck_assert_msg(strstr(r.err, others[_i].note) != NULL, "%s", r.err);
  ran_free(&r);
}
END_TEST

/* bsrun torture with its scratch folder below a base of our own: waits until `what` is below that folder. */
static pid_t start_in(const char *base, const char *what, char *out_path, size_t size) {
  char *const words[] = {
      (char *)(uintptr_t) "bsrun",   (char *)(uintptr_t) "torture", (char *)(uintptr_t) "--comm",
      (char *)(uintptr_t) "threads", (char *)(uintptr_t) "-P",      (char *)(uintptr_t) "2",
      (char *)(uintptr_t) "--fault", (char *)(uintptr_t) "hang",    NULL};
  char pattern[200];
  glob_t found;
  ck_assert_int_eq(setenv("TMPDIR", base, 1), 0);
  const pid_t pid = start_bsrun(base, words);
  unsetenv("TMPDIR");
  snprintf(pattern, sizeof pattern, "%s/bs_torture_*%s", base, what);
  int missing = 1;
  for (int i = 0; i < 10000 && (missing = glob(pattern, 0, NULL, &found)) != 0; i++) {
    globfree(&found);
    usleep(1000);
  }
  ck_assert_int_eq(missing, 0);
  snprintf(out_path, size, "%s", found.gl_pathv[0]);
  globfree(&found);
  return pid;
}

/* Ctrl-C ends the children and leaves no folder. */
START_TEST(an_interrupted_one_leaves_nothing) {
  char base[] = "/tmp/bs_tort_XXXXXX", path[200];
  ck_assert_ptr_nonnull(mkdtemp(base));
  const pid_t pid = start_in(base, "/2", path, sizeof path); /* into the cases */
  kill(pid, SIGINT);
  ran r = finish_spawn(base, pid);
  must_be(&r, 130);
  path[strlen(path) - 2] = '\0';
  ck_assert_msg(access(path, F_OK) != 0, "%s is left", path);
  ran_free(&r);
  remove_dir(base);
}
END_TEST

/* A process that a child has left counts, whatever group and parent it has. */
START_TEST(what_is_left_is_seen) {
  char base[] = "/tmp/bs_tort_XXXXXX", path[200];
  int status = 0;
  ck_assert_ptr_nonnull(mkdtemp(base));
  const pid_t pid = start_in(base, "/0", path, sizeof path); /* of the clean run */
  char setting[220];
  snprintf(setting, sizeof setting, "TMPDIR=%s", path);
  char *const env[] = {setting, NULL}, *const words[] = {(char *)(uintptr_t) "sleep",
                                                         (char *)(uintptr_t) "30", NULL};
  const pid_t left = fork();
  if (left == 0) {
    setsid();
    execve("/bin/sleep", words, env);
    _exit(99);
  }
  ran r = finish_spawn(base, pid);
  ck_assert_int_eq(waitpid(left, &status, 0), left); /* it was ended */
  ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  ck_assert_msg(r.code != 0 && strstr(r.err, "a process is left running") != NULL, "%d: %s", r.code, r.err);
  ran_free(&r);
  remove_dir(base);
}
END_TEST

int main(void) {
  const test_case tests[] = {{threads_is_clean},
                             {shm_is_clean},
                             {threads_are_not_killed},
                             {a_wrong_one_gets_its_sentence, TEST_COUNT(wrong)},
                             {one_plan_ends_as_it_must, TEST_COUNT(plans)},
                             {a_template_is_clean},
                             {methods_and_backends_run_phase_0},
                             {ranks_that_are_driven_and_messages_of_algorithms, TEST_COUNT(others)},
                             {an_interrupted_one_leaves_nothing},
                             {what_is_left_is_seen},
                             {0}};
  return run_tests("bsrun_torture", tests, (test_setup){dir_make, dir_remove, .at_once = 3});
}
