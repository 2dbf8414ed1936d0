/* SPDX-License-Identifier: MIT
 * test_run_interrupt.c - ctrl-C in every verb that takes long: exit 130 within seconds, and a sentence on how
 * to go on. */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "launch_help.h"
#include "tests/run_tests.h"
#include "tests/slow.h"

#define LAYER "--n 64 --k 64 --b 8 --dtype f32 --out off"
#define RINGS "ring ring ring ring ring ring ring ring ring ring "
#define AFTER_MS (BS_SLOW ? 2000 : 300)
#define LATER_MS (BS_SLOW ? 8000 : 2500) /* after a warm-up of two seconds */
#define WITHIN_S (BS_SLOW ? 20.0 : 4)    /* shorter than the 5 s after which what does not end is ended */

/* Each would go on for much longer; `told` stands on stderr, and `shown` on stdout: what is known until then.
 * `after_ms`: when it is interrupted; 0: after AFTER_MS. */
static const struct {
  const char *words, *told, *shown;
  unsigned after_ms;
} verbs[] = {
    {"compare row_parallel column_parallel " LAYER " --seconds 60", "--seconds S takes less time"},
    {"compare method=row_parallel method=column_parallel --n 64 --out off --seconds 60",
     "--seconds S takes less time"},
    {"diagnose " LAYER " --seconds 60", "--only CHECK"},
    {"profile layer " LAYER " --samples 10000000", "profiles again"},
    {"profile layer --method row_parallel -P 2 " LAYER " --samples 10000000", "what was timed until then",
     "(median of ", LATER_MS},
    {"profile kernel b1h1s64d64 --seconds 60 --out off", "profiles again"},
    {"profile kernel b1h4s512d64 --seconds 60 --out off", "what was timed until then", "(median of ",
     LATER_MS},
    {"profile model builtin:vit:1x8 --dim batch=1 --seconds 60 --out off", "what was timed until then",
     "(median of ", LATER_MS},
    {"bench sdpa b1h1s64d64 --torch off --seconds 60 --samples 60000 --out off", "--provider NAME"},
    {"bench matmul --n 1024 --b 64 --torch off --seconds 60 --samples 60000 --out off", "--provider NAME"},
    {"coll bench -P 2 --comm threads", "--coll NAME"},
    {"model bench builtin:lm --dim tokens=8 --dim batch=1 --seconds 60 --out off", "--seconds S"},
    {"doctor --measure --force --cache machine.json --out off", "constants that were kept before"},
    {"torture --comm threads -P 2", "--fault FAULT"},
    {"model check builtin:vit:8x32 --dim batch=1 --out off", "--dim NAME=N",
     BS_SLOW ? NULL : "of 8 sets of made inputs: interrupted"}, /* with a sanitizer a set may take 5 s */
    {"sim scale --hardware sim-flat -P 8:16136+256 --method row_parallel", "the rows above are done",
     "45.28965", BS_SLOW ? 5000 : 1500},
    {"coll explain " RINGS "-P 1536", "a smaller -P"},
    {"coll explain ring -P 16384", "a smaller -P", "FORMULA us"},
    {"coll check ring --preset full", "how far each level came", "right so far"},
    {"plugins check cpu --preset full", "--only GROUP"},
    {"tune b1h1s64d64 --seconds 60 --tune-cache tune.json --points off",
     "no point is kept; the same command measures again"},
    {"tune b1h1s64d64 --seconds 60 --tune-cache tune.json --points points.jsonl",
     "the same command goes on with what was measured"},
    {"sweep -x model.N=64,128 --phase 1 --set phase.pairs_seconds=60 --set phase.pairs_max=100000",
     "--resume"},
    {"run --phase 1 --n 64 --b 8 --dtype f32 --set phase.pairs_seconds=60 --set phase.pairs_max=100000",
     "the same command runs it again, and --phase NAME"},
};
enum { N_VERBS = sizeof verbs / sizeof verbs[0] };

/* Is it bsrun, and does it hear SIGINT, by a handler or a descriptor? A process that has not begun bsrun has
 * the handlers of this test. */
static int hears(pid_t pid) {
  char path[64], exe[600], line[256];
  unsigned long long caught = 0, blocked = 0;
  snprintf(path, sizeof path, "/proc/%d/exe", (int)pid);
  const ssize_t n = readlink(path, exe, sizeof exe - 1);
  exe[n > 0 ? n : 0] = '\0';
  const char *const name = strrchr(exe, '/');
  if (name == NULL || strcmp(name, "/bsrun") != 0) return 0;
  snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
  FILE *f = fopen(path, "r");
  while (f != NULL && fgets(line, sizeof line, f) != NULL) {
    if (strncmp(line, "SigCgt:", 7) == 0) caught = strtoull(line + 7, NULL, 16);
    if (strncmp(line, "SigBlk:", 7) == 0) blocked = strtoull(line + 7, NULL, 16);
  }
  if (f != NULL) fclose(f);
  return ((caught | blocked) >> (SIGINT - 1) & 1) != 0;
}

static char *said(const char *name) {
  static char text[65536];
  char path[600];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  FILE *f = fopen(path, "r");
  text[f != NULL ? fread(text, 1, sizeof text - 1, f) : 0] = '\0';
  if (f != NULL) fclose(f);
  return text;
}

/* Interrupts a verb after so long: it ends with exit 130. 1: it ended soon, and printed what is expected. */
static int interrupts_after(int verb, unsigned after_ms) {
  const char *const words = verbs[verb].words, *const shown = verbs[verb].shown;
  int status = 0, waited = 0;
  char line[300];
  snprintf(line, sizeof line, "%%s %s", words);
  const pid_t pid = start(dir, run_words(line, run_env("BS_TEST_BSRUN")));
  while (!hears(pid) && waited++ < 30000 && waitpid(pid, &status, WNOHANG) == 0) usleep(1000);
  usleep(1000 * after_ms); /* into the measurement */
  ck_assert_msg(kill(pid, 0) == 0, "%s has ended: %s", words, said("err.txt"));
  kill(pid, SIGINT);
  for (waited = 0; waitpid(pid, &status, WNOHANG) == 0; waited++) {
    usleep(1000);
    if (waited < WITHIN_S * 1000) continue;
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    return 0;
  }
  ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 130, "%s: status %x: %s", words, (unsigned)status,
                said("err.txt"));
  ck_assert_uint_eq(run_count_files(dir, "DONE"), 0);
  return strstr(said("err.txt"), verbs[verb].told) != NULL &&
         (shown == NULL || strstr(said("out.txt"), shown) != NULL);
}

/* A busy machine is not yet where it can print that, or in a long sample: it is interrupted again, later. */
START_TEST(test_interrupted_verb) {
  const unsigned after = verbs[_i].after_ms != 0 ? verbs[_i].after_ms : AFTER_MS;
  if (interrupts_after(_i, after) || interrupts_after(_i, 3 * after) || interrupts_after(_i, 8 * after))
    return;
  ck_abort_msg("%s: '%s', '%s': stderr: %s", verbs[_i].words, verbs[_i].told,
               verbs[_i].shown != NULL ? verbs[_i].shown : "", said("err.txt"));
}
END_TEST

/* Interrupts a comparison after some seconds. 1: it showed a pair with its interval. */
static int shows_pairs_after(unsigned seconds) {
  int status = 0;
  const pid_t pid =
      start(dir, run_words("%s compare method=row_parallel method=column_parallel --n 64 --out off "
                           "--seconds 60 --set phase.pairs_max=100000",
                           run_env("BS_TEST_BSRUN")));
  for (int i = 0; i < 3000 && !hears(pid); i++) usleep(1000);
  sleep(seconds);
  kill(pid, SIGINT);
  ck_assert_int_eq(waitpid(pid, &status, 0), pid);
  ck_assert_int_eq(WEXITSTATUS(status), 130);
  return strstr(said("out.txt"), "] against A (") != NULL;
}

/* The pairs that are there when a comparison is interrupted are shown with their interval. A slow machine has
 * none after two seconds. */
START_TEST(test_interrupted_comparison_shows_pairs) {
  unsigned seconds = 2;
  while (seconds <= 50 && !shows_pairs_after(seconds)) seconds *= 3;
  ck_assert_msg(seconds <= 50, "%s", said("out.txt"));
}
END_TEST

int main(void) {
  const test_case tests[] = {
      {test_interrupted_verb, N_VERBS}, {test_interrupted_comparison_shows_pairs, 1}, {0}};
  return run_tests("interrupt", tests, (test_setup){dir_make, dir_remove, .at_once = 2});
}
