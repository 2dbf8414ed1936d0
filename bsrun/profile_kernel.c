/* SPDX-License-Identifier: MIT
 * profile_kernel.c - `bsrun profile kernel` and `bsrun profile ncu`: one kernel, measured here or by Nsight
 * Compute. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bsrun/opening.h"
#include "bsrun/profile.h"
#include "core/base/error.h"
#include "lab/config/experiment.h"
#include "lab/json.h"
#include "lab/measure/machine.h"
#include "lab/profile/ncu_start.h"

enum { NCU_WORDS = 200 };

static const args_option options[] = {
    PROFILE_OPTIONS,
    {OPT_PROVIDER, "default: what would be chosen", 0},
    {OPT_BACKEND, "default: cpu", 0},
    {OPT_THREADS, "default: all cores", 0},
    {OPT_SECONDS, "of the calls; default: 1", 0},
    {OPT_SEED, "of the inputs; default: 1", 0},
    {OPT_WITH, NULL, 0},
    {OPT_WITH_NCU, NULL, 0},
    {OPT_OUT, NULL, 0},
    {OPT_RUN_ID, NULL, 0},
    {OPT_PLUGIN, NULL, 0},
    {OPT_SET, NULL, 0},
    PROFILE_OPTIONS_END,
};

/* base.yaml, --plugin and --set. */
static int32_t open_context(const args *a, bs_context **out, bs_error *err) {
  bs_node *config = NULL;
  int32_t rc = bsrun_base_config(a, &config, err);
  if (rc == BS_OK) rc = bs_context_of_config(config, BS_LOG_WARN, bsrun_log, NULL, out, err);
  bs_config_free(config);
  return rc;
}

/* Makes the configuration of the profile, for the run folder. */
static int32_t make_config(const bs_kernel_setup *s, const char *problem, bs_node **out, bs_error *err) {
  char threads[16], seed[24];
  snprintf(threads, sizeof threads, "%u", s->threads);
  snprintf(seed, sizeof seed, "%llu", (unsigned long long)s->seed);
  const char *const pairs[][2] = {{"kernel.problem", problem},
                                  {"kernel.backend", s->backend != NULL ? s->backend : "cpu"},
                                  {"kernel.provider", s->provider != NULL ? s->provider : ""},
                                  {"kernel.knobs", s->knobs != NULL ? s->knobs : ""},
                                  {"kernel.threads", threads},
                                  {"kernel.seed", seed}};
  *out = bs_config_new_map();
  int32_t rc = *out != NULL ? BS_OK : bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  for (size_t i = 0; rc == BS_OK && i < sizeof pairs / sizeof pairs[0]; i++)
    rc = bs_config_set_text(*out, pairs[i][0], pairs[i][1], err);
  return rc;
}

/* "cpu:online{rows=48;keys=64}": the provider and its knobs, in `room`. */
static int32_t read_provider(const args *a, char *room, size_t size, bs_kernel_setup *out, bs_error *err) {
  const char *text = args_value(a, "provider");
  if (text == NULL) return BS_OK;
  if (strlen(text) >= size)
    return bs_error_set(err, BS_USAGE, "BS-USE-VALUE", "--provider: the name is too long");
  memcpy(room, text, strlen(text) + 1);
  out->provider = room;
  char *knobs = strchr(room, '{');
  if (knobs == NULL) return BS_OK;
  *knobs++ = '\0';
  char *end = strchr(knobs, '}');
  if (end == NULL || end[1] != '\0')
    return bs_error_set(err, BS_USAGE, "BS-KERNEL-PROVIDER", "provider '%.200s': the knobs do not end in '}'",
                        text);
  *end = '\0';
  out->knobs = knobs;
  return BS_OK;
}

/* ---- under ncu ---------------------------------------------------------------------------------- */

/* Keeps all kernels of the record as ncu_kernels, and as ncu the one that took longest. */
static int32_t keep_kernel(void *user, const json_t *kernel, size_t at, size_t all, bs_error *err) {
  json_t *record = user, *kernels = json_object_get(record, "ncu_kernels");
  const json_t *ncu = json_object_get(kernel, "ncu"), *most = json_object_get(record, "ncu");
  (void)at;
  (void)all;
  int failed = json_array_append(kernels, (json_t *)(uintptr_t)kernel);
  if (most == NULL || bs_get_number(ncu, "seconds") > bs_get_number(most, "seconds"))
    failed |= json_object_set(record, "ncu", (json_t *)(uintptr_t)ncu);
  return failed == 0 ? BS_OK : bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
}

/* A command line that grows. */
typedef struct command {
  char *words[NCU_WORDS];
  size_t n;
} command;

/* Appends --NAME VALUE for each value that the option was given. */
static int32_t repeat_option(const args *a, const char *option, command *c, bs_error *err) {
  const char **values = NULL;
  size_t count = 0;
  int32_t rc = args_values(a, option + 2, &values, &count, err);
  if (rc == BS_OK && c->n + 2 * count >= NCU_WORDS)
    rc = bs_error_set(err, BS_USAGE, "BS-USE-VALUE", "%s: too many values for ncu", option);
  for (size_t i = 0; rc == BS_OK && i < count; i++) {
    c->words[c->n++] = (char *)(uintptr_t)option;
    c->words[c->n++] = (char *)(uintptr_t)values[i];
  }
  free(values);
  return rc;
}

/* Runs the same kernel in a second process, for a short time: times under ncu are not compared with any. */
static int32_t run_under_ncu(const args *a, json_t *record, bs_error *err) {
  static const char *const same[] = {"--backend", "--provider", "--threads", "--seed", "--plugin", "--set"};
  static const double silence_s = 300;
  char self[4096];
  command c = {{self, "profile", "kernel", (char *)(uintptr_t)a->words[0], "--seconds", "0.01", "--counters",
                "off", "--out", "off", "--quiet"},
               11};
  const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  if (length <= 0) return bs_error_set(err, BS_UNAVAILABLE, "BS-NCU-FAILED", "/proc/self/exe cannot be read");
  self[length] = '\0';
  int32_t rc = BS_OK;
  for (size_t i = 0; rc == BS_OK && i < sizeof same / sizeof same[0]; i++)
    rc = repeat_option(a, same[i], &c, err);
  if (rc == BS_OK && json_object_set_new(record, "ncu_kernels", json_array()) != 0)
    rc = bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  return rc == BS_OK ? bs_ncu_start(c.words, silence_s, keep_kernel, record, err) : rc;
}

static int32_t run(const args *a, bs_error *err) {
  bs_profile_options how = {0};
  bs_kernel_problem problem;
  bs_node *config = NULL;
  json_t *record = NULL;
  char text[BS_KERNEL_TEXT] = "";
  bs_kernel_setup setup = {.problem = &problem, .backend = args_value(a, "backend")};
  char provider[256] = "";
  int64_t threads = 0, seed = 1;
  bs_context *context = NULL;
  bsrun_interruptible("nothing is timed yet, and nothing is kept; the same command profiles again");
  int32_t rc = profile_options(a, &how, err);
  if (rc == BS_OK) rc = read_provider(a, provider, sizeof provider, &setup, err);
  if (rc == BS_OK) rc = args_integer(a, "threads", 1, 1024, bs_machine_threads(), &threads, err);
  setup.threads = (uint32_t)threads;
  if (rc == BS_OK) rc = args_integer(a, "seed", 0, INT64_MAX / 2, 1, &seed, err);
  setup.seed = (uint64_t)seed;
  if (rc == BS_OK) rc = bs_kernel_problem_parse(a->words[0], &problem, err);
  if (rc == BS_OK) bs_kernel_problem_text(&problem, text, sizeof text);
  if (rc == BS_OK) rc = open_context(a, &context, err);
  setup.context = context;
  if (rc == BS_OK) rc = make_config(&setup, text, &config, err);
  if (rc == BS_OK) rc = bs_profile_kernel(&setup, &how, &record, err);
  /* The profile is kept and printed also where ncu fails: its findings are UNKNOWN then. */
  const int32_t ncu = rc == BS_OK && args_has(a, "ncu") ? run_under_ncu(a, record, err) : BS_OK;
  const profile_kept kept = {.context = context, .config = config, .phase = "profile_kernel", .name = text};
  if (rc == BS_OK) rc = profile_finish(a, record, &kept, err);
  if (rc == BS_OK) rc = ncu;
  json_decref(record);
  bs_config_free(config);
  fflush(stdout);
  bsrun_close_context(context);
  return rc;
}

const bsrun_verb profile_kernel = {
    .name = "kernel",
    .words = "PROBLEM [options]",
    .summary = "one kernel: the time of a call against the limits of the machine",
    .about =
        "PROBLEM is a shape as in `bsrun bench sdpa`: b2h8s512d64:f32:causal, mission:bf16, or a product,\n"
        "'matmul n4096k4096b64:f32' or 'matmul24 n4096k4096b64:bf16'.\n",
    .examples =
        "  bsrun profile kernel b1h4s256d64:f32 --seconds 0.2\n"
        "  bsrun profile kernel 'matmul n1024k1024b64:bf16' --counters off\n"
        "  bsrun profile kernel mission:bf16 --plugin cuda --backend cuda --provider cuda:mma --with ncu\n",
    .options = options,
    .run = run,
    .min_words = 1,
    .max_words = 1,
    .takes = "small|mission|long|gqa|decode",
};

/* ---- ncu ---------------------------------------------------------------------------------------- */

static const args_option ncu_options[] = {
    {OPT_RULES, "default: ncu", 0},
    PROFILE_OPTIONS_END,
};

static int32_t print_kernel(void *user, json_t *record, size_t at, size_t all, bs_error *err) {
  return profile_print(user, record, at, all, err);
}

static int32_t run_ncu(const args *a, bs_error *err) {
  const char *rules = args_value(a, "rules");
  return bs_profile_ncu(a->words[0], rules != NULL ? rules : "ncu", print_kernel, (void *)a, err);
}

const bsrun_verb profile_ncu = {
    .name = "ncu",
    .words = "FILE.csv [options]",
    .summary = "kernels of a GPU that Nsight Compute has profiled",
    .about =
        "Takes `ncu --csv` of sections, or `ncu --csv --page raw`, and evaluates configs/rules/ncu.yaml for\n"
        "each kernel. Nsight locks clocks and flushes caches: its times are no benchmark's.\n",
    .examples = "  ncu --csv --page raw --set full bsrun ... > kernels.csv; bsrun profile ncu kernels.csv\n",
    .options = ncu_options,
    .run = run_ncu,
    .min_words = 1,
    .max_words = 1,
    .takes = ":file",
};
