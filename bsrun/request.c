/* SPDX-License-Identifier: MIT
 * request.c - the options that choose an experiment, and the compose request made of them. Used by run and by
 * config print. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bsrun/bsrun.h"
#include "bsrun/launch.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "lab/config/short_names.h"
#include "lab/store/store.h"

const args_option bsrun_run_options[] = {BSRUN_RUN_ROWS, ARGS_HELP};

int32_t bsrun_request_add(bsrun_request *out, const char *key, const char *value, bs_error *err) {
  bs_text text = {0};
  if (out->compose.n_texts == BSRUN_MAX_TEXTS)
    return bs_error_set(err, BS_INTERNAL, "BS-USE-TEXTS", "%s: more than %d texts", key, BSRUN_MAX_TEXTS);
  bs_text_printf(&text, "%s=%s", key, value);
  if (text.failed) {
    bs_text_free(&text);
    return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  }
  out->texts[out->compose.n_texts++] = text.data;
  return BS_OK;
}

int bsrun_keeps(const args *a) {
  const char *out = args_value(a, "out");
  return out == NULL || bs_store_keeps(out);
}

static int32_t add_paths(const args *a, bsrun_request *out, bs_error *err) {
  static const char *const options[][2] = {{"out", "logging.out_dir"}, {"to", "logging.dump_dir"}};
  int32_t rc = BS_OK;
  for (size_t i = 0; i < 2 && rc == BS_OK; i++) {
    const char *value = args_value(a, options[i][0]);
    if (value == NULL) continue;
    if (value[0] == '\0') {
      return bs_error_set(err, BS_USAGE, "BS-USE-EMPTY", "--%s: the folder's name is empty", options[i][0]);
    }
    for (const char *p = value; *p != '\0'; p++) {
      const unsigned char c = (unsigned char)*p;
      if (c >= 0x20 && c != 0x7f) continue;
      return bs_error_set(err, BS_USAGE, "BS-USE-NAME", "--%s: control byte 0x%02x in the name",
                          options[i][0], c);
    }
    rc = bsrun_request_add(out, options[i][1], value, err);
  }
  return rc;
}

/* Are the samples of the verb pairs? */
static int counts_pairs(const args *a) {
  for (size_t i = 0; i < a->n_options; i++)
    if (a->options[i].id == OPT_SAMPLES) return (a->options[i].flags & ARGS_PAIRS) != 0;
  return 0;
}

/* Options that are keys by other names; a verb without them has none given. */
static int32_t add_keys(const args *a, bsrun_request *out, bs_error *err) {
  static const char *const options[][2] = {{"b", "model.B"},
                                           {"n", "model.N"},
                                           {"k", "model.K"},
                                           {"dtype", "model.dtype"},
                                           {"bias", "method.bias"},
                                           {"comm", "hardware.comm"},
                                           {"backend", "hardware.backend"},
                                           {"launch", "hardware.launch"},
                                           {"activation", "model.activation"},
                                           {"seed", "experiment.seed"},
                                           {"samples", "phase.timed_iters"},
                                           {"warmup", "phase.warmup_iters"}};
  int32_t rc = BS_OK;
  for (size_t i = 0; i < sizeof options / sizeof options[0] && rc == BS_OK; i++) {
    const char *value = args_value(a, options[i][0]), *key = options[i][1];
    const int flag =
        value != NULL && value[0] == '\0' && i == 4; /* --bias of explain applies to one product */
    if (value == NULL || flag) continue;
    if (strcmp(options[i][0], "samples") == 0 && counts_pairs(a)) key = "phase.pairs_max";
    rc = bsrun_request_add(out, key, value, err);
  }
  const char *seconds = args_value(a, "seconds"); /* in other verbs it is not of the pairs of phase 1 */
  if (rc == BS_OK && seconds != NULL && a->options == bsrun_run_options)
    rc = bsrun_request_add(out, "phase.pairs_seconds", seconds, err);
  return rc;
}

static int32_t given_twice(const char *key, const char *value, const bs_node *set, bs_error *err) {
  const int scalar = set->kind == BS_NODE_SCALAR;
  if (scalar && strcmp(bs_full_name(key, set->text), bs_full_name(key, value)) == 0) return BS_OK;
  bs_error_set(err, BS_USAGE, "BS-USE-TWICE",
               "%s is given twice: as %.100s by an option, and%s%.100s by --set", key, value,
               scalar ? " as " : "", scalar ? set->text : "");
  bs_error_hint(err, "give one of them");
  return BS_USAGE;
}

/* An option and a --set (of the key, or of a mapping above it) that differ: neither wins in silence. */
static int32_t no_conflicts(const args *a, const bsrun_request *r, const bs_node *sets, bs_error *err) {
  const bs_compose_request *q = &r->compose;
  static const char *const named[][2] = {{"world-size", "hardware.world_size"},
                                         {"phase", "phase.name"},
                                         {"method", "method.name"},
                                         {"mask", "mask.name"},
                                         {"workload", "workload.name"},
                                         {"hardware", "hardware.name"}};
  int32_t rc = BS_OK;
  for (size_t i = 0; i < q->n_texts && rc == BS_OK; i++) {
    char key[64];
    const size_t length = strcspn(q->texts[i], "=");
    snprintf(key, sizeof key, "%.*s", (int)length, q->texts[i]);
    const bs_node *set = bs_config_find(sets, key);
    if (set != NULL) rc = given_twice(key, q->texts[i] + length + 1, set, err);
  }
  for (size_t i = 0; i < sizeof named / sizeof named[0] && rc == BS_OK; i++) {
    const char *value = args_value(a, named[i][0]);
    const bs_node *set = value == NULL ? NULL : bs_config_find(sets, named[i][1]);
    if (set != NULL) rc = given_twice(named[i][1], value, set, err);
  }
  return rc;
}

static int32_t add_numbers(const args *a, bsrun_request *out, bs_error *err) {
  int64_t value;
  double seconds;
  char number[32];
  int32_t rc = args_integer(a, "world-size", 1, 65536, 0, &out->compose.world_size, err);
  if (rc == BS_OK) rc = args_integer(a, "threads", 0, 4096, -1, &value, err);
  if (rc == BS_OK && value >= 0) {
    snprintf(number, sizeof number, "%lld", (long long)value);
    rc = bsrun_request_add(out, "hardware.threads_per_rank", number, err);
  }
  if (rc == BS_OK) rc = args_real(a, "timeout", 0.001, 86400, 0, &seconds, err);
  if (rc != BS_OK || !args_has(a, "timeout")) return rc;
  return bsrun_request_add(out, "hardware.timeout_s", args_value(a, "timeout"), err);
}

/* --to trace, unless --set says how many events it holds. */
static int32_t add_trace(const args *a, bsrun_request *out, const bs_node *sets, bs_error *err) {
  static const char key[] = "plugins.sim.trace_events";
  const char *value = args_value(a, "trace");
  if (value == NULL) return BS_OK;
  if (value[0] == '\0')
    return bs_error_set(err, BS_USAGE, "BS-USE-EMPTY", "--to trace: the file's name is empty");
  return bs_config_find(sets, key) != NULL ? BS_OK : bsrun_request_add(out, key, "200000", err);
}

/* --to et: the plugin sim keeps the steps of all ranks. */
static int32_t add_et(const args *a, bsrun_request *out, bs_error *err) {
  const char *value = args_value(a, "et");
  if (value == NULL) return BS_OK;
  if (value[0] == '\0')
    return bs_error_set(err, BS_USAGE, "BS-USE-EMPTY", "--to et: the files' name is empty");
  return bsrun_request_add(out, "plugins.sim.steps_all", "true", err);
}

/* Checks the settings of --set besides the options. */
static int32_t check_sets(const args *a, bsrun_request *out, bs_error *err) {
  bs_node *sets = bs_sets_tree(out->compose.sets, out->compose.n_sets);
  if (sets == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  int32_t rc = add_trace(a, out, sets, err);
  if (rc == BS_OK) rc = add_et(a, out, err);
  if (rc == BS_OK) rc = no_conflicts(a, out, sets, err);
  bs_config_free(sets);
  return rc;
}

/* A process that was started as a rank is one, unless another way is asked for; P is how many were started.
 */
static int32_t add_rank(const args *a, bsrun_request *out, bs_error *err) {
  const char *asked = args_value(a, "launch"), *how = bsrun_rank_how();
  if (how == NULL || (asked != NULL && strcmp(asked, how) != 0)) return BS_OK;
  if (out->compose.world_size == 0) out->compose.world_size = bsrun_rank_count();
  return asked == NULL ? bsrun_request_add(out, "hardware.launch", how, err) : BS_OK;
}

int32_t bsrun_request_make(const args *a, bsrun_request *out, bs_error *err) {
  memset(out, 0, sizeof *out);
  bs_compose_request *q = &out->compose;
  const char *run_id = args_value(a, "run-id");
  int32_t rc = BS_OK;
  if (run_id != NULL) rc = bs_store_check_name("--run-id", run_id, err);
  if (rc == BS_OK) rc = add_numbers(a, out, err);
  if (rc == BS_OK) rc = add_paths(a, out, err);
  if (rc == BS_OK) rc = add_keys(a, out, err);
  if (rc == BS_OK) rc = add_rank(a, out, err);
  if (rc == BS_OK) rc = bs_configs_dir(&out->configs_dir, err);
  if (rc == BS_OK) rc = args_values(a, "config", &out->lists[0], &q->n_configs, err);
  if (rc == BS_OK) rc = args_values(a, "plugin", &out->lists[1], &q->n_plugins, err);
  if (rc == BS_OK) rc = args_values(a, "set", &out->lists[2], &q->n_sets, err);
  q->configs_dir = out->configs_dir;
  q->configs = out->lists[0];
  q->plugins = out->lists[1];
  q->sets = out->lists[2];
  q->texts = (const char *const *)out->texts;
  if (rc == BS_OK) rc = check_sets(a, out, err);
  q->phase = args_value(a, "phase");
  q->method = args_value(a, "method");
  q->mask = args_value(a, "mask");
  q->workload = args_value(a, "workload");
  q->hardware = args_value(a, "hardware");
  q->sweep = args_value(a, "sweep");
  return rc;
}

void bsrun_request_free(bsrun_request *request) {
  for (size_t i = 0; i < 4; i++) free(request->lists[i]);
  for (size_t i = 0; i < BSRUN_MAX_TEXTS; i++) free(request->texts[i]);
  free(request->configs_dir);
  memset(request, 0, sizeof *request);
}
