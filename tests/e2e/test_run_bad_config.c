/* SPDX-License-Identifier: MIT
 * test_run_bad_config.c - broken and hostile YAML through bsrun: exit 3, one error line, nothing else. Each
 * cap is tried on both sides. */
#include <stdio.h>
#include <string.h>

#include "run_help.h"
#include "tests/run_tests.h"

#define LITERAL(text) text, sizeof text - 1

static const char *const common[] = {
    "--plugin", "cpu", "--method", "row_parallel",           "--phase",  "0",      "-q",
    "--out",    "out", "--set",    "phase.fault_gate=false", "--config", "c.yaml", NULL};
static char folder[64];

static void setup(void) {
  run_make_folder(folder);
}
static void teardown(void) {
  run_remove(folder);
}

typedef struct yaml_case {
  const char *text;
  size_t size;
  run_bad want;
} yaml_case;

#define ROW(text, id, says, what) \
  {                               \
    LITERAL(text), {              \
      what, 3, id, says, {        \
        NULL                      \
      }                           \
    }                             \
  }

static const yaml_case yamls[] = {
    ROW("a: &x 1\nb: *x\n", "BS-CFG-ANCHOR", "c.yaml:1", "anchor"),
    ROW("model: {N: *x}\n", "BS-CFG-ALIAS", "c.yaml:1", "alias"),
    ROW("a: &a [*a]\n", "BS-CFG-ANCHOR", NULL, "cycle"),
    ROW("a: &a [l,l]\nb: &b [*a,*a]\nc: &c [*b,*b]\n", "BS-CFG-ANCHOR", NULL, "bomb"),
    ROW("model: {N: !!int 8}\n", "BS-CFG-TAG", NULL, "tag !!int"),
    ROW("model: !python/object:os.system {N: 8}\n", "BS-CFG-TAG", NULL, "tag of an object"),
    ROW("base: 1\n<<: {model: {N: 8}}\n", "BS-CFG-MERGE", NULL, "merge key"),
    ROW("model: {N: 8}\nmodel: {N: 9}\n", "BS-CFG-DUP", "c.yaml:2", "duplicate key"),
    ROW("model: {N: 8, N: 9}\n", "BS-CFG-DUP", "c.yaml:1", "duplicate key, flow"),
    ROW("---\nmodel: {N: 8}\n---\nmodel: {N: 9}\n", "BS-CFG-MULTI", NULL, "two documents"),
    ROW("- model\n- N\n", "BS-CFG-ROOT", NULL, "a list at the root"),
    ROW("just text\n", "BS-CFG-ROOT", NULL, "a scalar at the root"),
    ROW("model: {N: 8\n", "BS-CFG-SYNTAX", "c.yaml:", "open brace"),
    ROW("model:\n\tN: 8\n", "BS-CFG-SYNTAX", "c.yaml:2", "tab"),
    ROW("model:\n  N: \x00 8\n", "BS-CFG-ENCODING", NULL, "NUL byte"),
    ROW("model:\n  N: \"\xff\xfe\"\n", "BS-CFG-ENCODING", NULL, "not UTF-8"),
    ROW("\xff\xfem\x00o\x00", "BS-CFG-ENCODING", NULL, "UTF-16"),
    ROW("modle: {N: 8}\n", "BS-CFG-KEY", "model", "unknown section, nearest name"),
    ROW("model: {n: 8}\n", "BS-CFG-KEY", "model.N", "unknown key, nearest name"),
    ROW("phase: {timed_iter: 8}\n", "BS-CFG-KEY", "phase.timed_iters", "unknown phase key"),
    ROW("model: {N: eight}\n", "BS-CFG-TYPE", "model.N", "a word for a number"),
    ROW("model: {N: 0x10}\n", "BS-CFG-TYPE", "model.N", "hex"),
    ROW("model: {N: 8.5}\n", "BS-CFG-TYPE", "model.N", "a fraction"),
    ROW("model: {N: [8]}\n", "BS-CFG-TYPE", "model.N", "a list for a number"),
    ROW("model: 8\n", "BS-CFG-TYPE", "model", "a number for a section"),
    ROW("model: {N: 0}\n", "BS-CFG-RANGE", "model.N", "zero features"),
    ROW("model: {N: -8}\n", "BS-CFG-RANGE", "model.N", "negative features"),
    ROW("model: {N: 1073741825}\n", "BS-CFG-RANGE", "model.N", "one feature too many"),
    ROW("model: {N: 99999999999999999999}\n", "BS-CFG-TYPE", "model.N", "beyond 64 bits"),
    ROW("model: {dtype: float17}\n", "BS-CFG-DTYPE", "float17", "unknown dtype"),
    ROW("hardware: {timeout_s: .nan}\n", "BS-CFG-TYPE", "timeout_s", "NaN"),
    ROW("hardware: {timeout_s: .inf}\n", "BS-CFG-TYPE", "timeout_s", "infinity"),
    ROW("hardware: {timeout_s: 1e999}\n", "BS-CFG-TYPE", "timeout_s", "1e999"),
    ROW("hardware: {bind: maybe}\n", "BS-CFG-TYPE", "bind", "neither true nor false"),
    ROW("mask: {name: complement_1100_1100, use: always}\n", "BS-MASK-COMPLEMENT", NULL,
        "masks that overlap"),
    ROW("mask: {pattern_a: '1110', use: always}\n", "BS-MASK-PATTERN", NULL, "three of four"),
    ROW("sweep: {param: model.N}\n", "BS-CFG-SWEEP", NULL, "a sweep without values"),
    ROW("sweep: {param: logging.plot_dir, values: [1]}\n", "BS-CFG-SWEEP", NULL,
        "a sweep of what has no effect"),
    ROW("logging: {run_group: ../up}\n", "BS-USE-NAME", "logging.run_group", "a group that climbs"),
};

START_TEST(bad_yaml) {
  const yaml_case *c = &yamls[_i];
  run_write(folder, "c.yaml", c->text, c->size);
  run_check_bad(folder, NULL, common, &c->want);
}
END_TEST

/* A text of `lead`, `count` times `unit`, `tail`. */
static void write_repeated(const char *lead, const char *unit, size_t count, const char *tail) {
  const size_t n = strlen(unit);
  char *text = malloc(strlen(lead) + n * count + strlen(tail) + 1), *at = text;
  ck_assert_ptr_nonnull(text);
  at += sprintf(at, "%s", lead);
  for (size_t i = 0; i < count; i++, at += n) memcpy(at, unit, n);
  at += sprintf(at, "%s", tail);
  run_write(folder, "c.yaml", text, (size_t)(at - text));
  free(text);
}

/* experiment.name is free text and changes nothing: below the cap it runs, one above it is refused. */
START_TEST(caps) {
  static const char *const small[] = {
      "--set", "model.N=16", "--set", "model.B=4", "--set", "phase.integer_gate=false", NULL};
  static const run_bad scalar = {"scalar", 3, "BS-CFG-SCALAR", NULL, {NULL}};
  static const run_bad size = {"size", 3, "BS-CFG-SIZE", NULL, {NULL}};
  static const run_bad nodes = {"nodes", 3, "BS-CFG-NODES", NULL, {NULL}};
  static const run_bad depth = {"depth", 3, "BS-CFG-DEPTH", NULL, {NULL}};
  write_repeated("experiment: {name: ", "n", 4096, "}\n");
  run_check_good(folder, NULL, common, small);
  write_repeated("experiment: {name: ", "n", 4097, "}\n");
  char out[80];
  snprintf(out, sizeof out, "%s/out", folder);
  run_remove(out);
  run_check_bad(folder, NULL, common, &scalar);
  write_repeated("", "# a comment of thirty-two bytes\n", 32768, ""); /* 1 MiB exactly */
  run_check_good(folder, NULL, common, small);
  run_remove(out);
  write_repeated("#", "# a comment of thirty-two bytes\n", 32768, "");
  run_check_bad(folder, NULL, common, &size);
  write_repeated("", "# a comment of thirty-two bytes\n", 327680, ""); /* 10 MiB */
  run_check_bad(folder, NULL, common, &size);
  write_repeated("plugin_dirs: [", "a,", 10001, "a]\n");
  run_check_bad(folder, NULL, common, &nodes);
  write_repeated("model: ", "[", 17, "");
  run_check_bad(folder, NULL, common, &depth);
  write_repeated("model: ", "[", 100000, "");
  run_check_bad(folder, NULL, common, &depth);
}
END_TEST

START_TEST(files) {
  static const run_bad rows[] = {
      {"no such file", 3, "BS-CFG-READ", "none.yaml", {"--config", "none.yaml", NULL}},
      {"a folder", 3, "BS-CFG-READ", NULL, {"--config", ".", NULL}},
      {"a device that never ends", 3, "BS-CFG-READ", NULL, {"--config", "/dev/zero", NULL}},
      {"two phases", 2, "BS-USE-TWICE", "phase9", {"--set", "phase.name=phase9", NULL}},
      {"two methods", 2, "BS-USE-TWICE", "row_paralel", {"--set", "method.name=row_paralel", NULL}},
      {"unknown workload", 3, "BS-PLG-NOTFOUND", "gausian", {"--set", "workload.type=gausian", NULL}},
      {"unknown mask", 3, "BS-MASK-NAME", "nomask", {"--mask", "nomask", NULL}},
      {"unknown method key",
       3,
       "BS-CFG-KEY",
       "method.reduce_dtype",
       {"--set", "method.reduce_dtyp=f32", NULL}},
      {"unknown key of --set", 3, "BS-CFG-KEY", "model.B", {"--set", "model.b=8", NULL}},
      {"unknown plugin", 5, "BS-PLG-NOTFOUND", "no_such", {"--plugin", "no_such", NULL}},
      {"unknown hardware", 3, "BS-CFG-NAME", "mainframe", {"--hardware", "mainframe", NULL}},
      {"unknown sweep", 3, "BS-CFG-NAME", "everything", {"--sweep", "everything", NULL}},
  };
  const char *const *without_file = common;
  const char *base[16];
  size_t n = 0;
  while (without_file[n] != NULL && strcmp(without_file[n], "--config") != 0) {
    base[n] = without_file[n];
    n++;
  }
  base[n] = NULL;
  run_check_bad(folder, NULL, base, &rows[_i]);
}
END_TEST

int main(void) {
  const test_case tests[] = {{bad_yaml, TEST_COUNT(yamls)}, {caps}, {files, 12}, {0}};
  return run_tests("run_bad_config", tests, (test_setup){setup, teardown, 60});
}
