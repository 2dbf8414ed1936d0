/* SPDX-License-Identifier: MIT
 * test_bsrun_next.c - the lines "repeat:" and "next:" of a run, pasted into a shell: each one runs, and is
 * about the layer that was run. */
#include "tests/bsrun/spawn.h"
#include "tests/run_tests.h"

static const char *dir;

static void setup(void) {
  char command[1400];
  dir = scratch_dir();
  write_text(dir, "cfg.yaml", "model:\n  activation: gelu\n");
  write_text(dir, "named.yaml", "phase:\n  name: phase0_correctness\nmethod:\n  name: row_parallel\n");
  snprintf(command, sizeof command, "mkdir '%s/my plug ins' && cp '%s/bs_slow.so' '%s/my plug ins/'", dir,
           getenv("BS_TEST_PLUGIN_DIR"), dir);
  ck_assert_int_eq(system(command), 0);
  snprintf(command, sizeof command, "ln -s '%s' '%s/bsrun'", bsrun_path(), dir);
  ck_assert_int_eq(system(command), 0);
}
static void teardown(void) {
  remove_dir(dir);
}

#define QUICK                                                                             \
  " --set phase.pairs_seconds=0.1 --set phase.pairs_min=5 --set phase.pairs_max=5 --set " \
  "phase.fault_gate=false "
static const struct {
  const char *words;
  const char *kept[4]; /* what each next line says of the layer, too */
  int next;            /* so many lines */
} typed[] = {
    {"run -P2 --n=64 --phase=1 --method row_parallel" QUICK, {"--n 64", "-P 2"}, 2},
    {"--method blockshock --mask interleave --bias off --n 128 --phase 0 --comm shm --launch processes" QUICK,
     {"--mask interleave --bias off", "--comm shm", "--launch processes"},
     1},
    {"--config cfg.yaml --config named.yaml --n 64 --k 128 --b 8 --dtype f32 --phase 1" QUICK,
     {"--config cfg.yaml", "--k 128"},
     2},
    {"--backend ref --n 64 --phase 2 --dtype f64" QUICK, {"--backend ref", "--dtype f64"}, 2},
    {"--n 64 --phase 3 --set \"model={activation: gelu, B: 8}\"" QUICK, {"activation: gelu, B: 8"}, 2},
    {"--n 64 --set phase.name=phase2_backward_input --method row_parallel" QUICK, {"--n 64"}, 2},
    {"--n 64 --set \"phase={name: phase0_correctness, lr: 0.1}\" --set method.name=row_parallel" QUICK,
     {"lr: 0.1"},
     2},
    {"--plugin \"./my plug ins/bs_slow.so\" --backend slow:cpu --n 64 --phase 0 --plugin cpu" QUICK,
     {"my plug ins/bs_slow.so", "--backend slow:cpu"},
     2},
    {"--method row_parallel --mask uneven --set \"mask.shares=[3, 1]\" --n 64 --phase 1 --timeout 50" QUICK,
     {"mask.shares=[3, 1]", "50"},
     2},
    {"--hardware cpu --workload uniform --threads-per-rank 1 --n 64 --phase 0 --run-id x --dump d" QUICK,
     {"--workload uniform", "--threads-per-rank 1"},
     2},
};

static char *shell(const char *command, const char *more, int *out_code) {
  char script[4096];
  snprintf(script, sizeof script, "cd '%s' && PATH=.:$PATH && %s%s >out 2>err", dir, command, more);
  *out_code = WEXITSTATUS(system(script));
  return read_text(dir, "out");
}

/* The composed tree without the phase and the names of files and results. */
static char *layer_of(const char *command) {
  int code = 0;
  char *tree = shell(command, " --print-config", &code), *to = tree;
  int left_out = 0;
  ck_assert_msg(code == 0, "%s: exit %d: %s", command, code, read_text(dir, "err"));
  for (char *line = tree, *end; *line != '\0'; line = end) {
    end = line + strcspn(line, "\n") + 1;
    if (line[0] != ' ')
      left_out = strncmp(line, "phase:", 6) == 0 || strncmp(line, "config_paths:", 13) == 0 ||
                 strncmp(line, "logging:", 8) == 0 || strncmp(line, "run_id:", 7) == 0;
    if (left_out) continue;
    memmove(to, line, (size_t)(end - line));
    to += end - line;
  }
  *to = '\0';
  return tree;
}

static void is_about_it(const char *next, const char *first) {
  int code = 0;
  char *errors;
  if (strncmp(next, "bsrun ladder", 12) == 0 || strncmp(next, "bsrun explain", 13) == 0) {
    free(shell(next, next[6] == 'l' ? " --measure 0" : "", &code));
  } else {
    char *layer = layer_of(next), *wanted = layer_of(first);
    ck_assert_msg(strcmp(layer, wanted) == 0, "%s\nis of\n%s\nnot of\n%s", next, layer, wanted);
    free(layer);
    free(wanted);
    free(shell(next, "", &code));
  }
  errors = read_text(dir, "err");
  ck_assert_msg(code == 0, "%s: exit %d: %s", next, code, errors);
  free(errors);
}

START_TEST(each_line_can_be_pasted) {
  char first[1024];
  int code = 0, n = 0, repeated = 0;
  snprintf(first, sizeof first, "bsrun %s", typed[_i].words);
  char *screen = shell(first, "", &code), *rest = NULL;
  ck_assert_msg(code == 0, "%s: exit %d: %s%s", first, code, screen, read_text(dir, "err"));
  for (char *line = strtok_r(screen, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
    if (strncmp(line, "repeat: ", 8) == 0) is_about_it(line + 8, first), repeated = 1;
    if (strncmp(line, "next: ", 6) != 0) continue;
    n++;
    for (int k = 0; k < 4 && typed[_i].kept[k] != NULL; k++) {
      const int of_run = line[6 + 6] == '-' || strncmp(line + 12, "run ", 4) == 0;
      ck_assert_msg(!of_run || strstr(line, typed[_i].kept[k]) != NULL, "%s lacks %s", line,
                    typed[_i].kept[k]);
    }
    is_about_it(line + 6, first);
  }
  ck_assert_int_eq(n, typed[_i].next);
  ck_assert_int_eq(repeated, 1);
  free(screen);
}
END_TEST

int main(void) {
  const test_case tests[] = {{each_line_can_be_pasted, TEST_COUNT(typed)}, {0}};
  return run_tests("bsrun_next", tests,
                   (test_setup){.before = setup, .after = teardown, .timeout = 60, .at_once = 4});
}
