/* SPDX-License-Identifier: MIT
 * constants_run.h - runs of bsrun whose machine constants come from, or go to, a cache folder of the test's.
 */
#ifndef TESTS_BSRUN_CONSTANTS_RUN_H
#define TESTS_BSRUN_CONSTANTS_RUN_H
#include "tests/bsrun/constants_file.h"
#include "tests/spawn.h"

static char cache[700]; /* dir/cache/blockshock */
static inline void setup(void) {
  char xdg[600];
  dir_make();
  snprintf(xdg, sizeof xdg, "%s/cache", dir);
  snprintf(cache, sizeof cache, "%s/blockshock", xdg);
  setenv("XDG_CACHE_HOME", xdg, 1);
  setenv("BS_CPU_ISA", "none", 1); /* so that doctor, which measures every usable backend, has ref alone */
}

static inline json_t *load(const char *folder, const char *name) {
  char *text = read_text(folder, name);
  ck_assert_msg(text != NULL, "there is no %s/%s", folder, name);
  json_t *value = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
  ck_assert_msg(value != NULL, "%s", text);
  free(text);
  return value;
}

static inline void store(const json_t *constants) {
  char command[800];
  char *text = json_dumps(constants, 0);
  snprintf(command, sizeof command, "mkdir -p '%s'", cache);
  ck_assert_int_eq(system(command), 0);
  write_text(cache, "machine.json", text);
  free(text);
}

/* The record's machine of a phase 1 of blockshock alone on ref; the caller releases. */
static inline json_t *phase1(const char *option, const char *value, ran *out) {
  *out = bsrun(dir, "--method", "blockshock", "--plugin", "ref", "--phase", "1", SMALL, "--set",
               "phase.dense_arm=false", "--set", "phase.pairs_seconds=0.05", option, value, NULL);
  must_be(out, 0);
  json_t *record = load(run_folder(out, dir, 0), "metrics.jsonl");
  json_t *machine = json_incref(json_object_get(record, "machine"));
  ck_assert_ptr_nonnull(machine);
  json_decref(record);
  return machine;
}

static inline void must_say(const json_t *machine, const char *source) {
  ck_assert_str_eq(json_string_value(json_object_get(machine, "source")), source);
  ck_assert_int_eq(json_object_get(machine, "measured_at") != NULL, strcmp(source, "stored") == 0);
}

#endif
