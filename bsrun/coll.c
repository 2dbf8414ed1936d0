/* SPDX-License-Identifier: MIT
 * coll.c - `bsrun coll list | check | explain | bench`: collective algorithms, proven and simulated before
 * they are run. */
#include "bsrun/coll.h"
#include "bsrun/opening.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bsrun/plugins.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "lab/config/experiment.h"
#include "lab/config/schema.h"
#include "lab/stop.h"

#define CONTEXT_OPTIONS                                                                              \
  {OPT_PLUGIN, NULL, 0}, {OPT_CONFIG, NULL, 0}, {OPT_SET, NULL, 0},                                  \
      {OPT_OUTPUT, "table, md, csv, json or jsonl", 0}, {OPT_WIDE, NULL, 0}, {OPT_VERBOSE, NULL, 0}, \
      ARGS_HELP

static const args_option coll_list_options[] = {CONTEXT_OPTIONS};
static const args_option coll_check_options[] = {
    {OPT_COLL, "several with commas", 0},
    {OPT_ONLY, "V4, V0, V1, V2 or V6", 0},
    {OPT_WORLD_SIZE, "worlds of at most this many", 0},
    {OPT_PRESET, "default: quick", 0},
    {OPT_PRESET_QUICK, NULL, 0},
    {OPT_PRESET_FULL, "the ranges of `make verify`: minutes, up to 65,536 ranks", 0},
    CONTEXT_OPTIONS};
static const args_option coll_explain_options[] = {
    {OPT_WORLD_SIZE, "default: 8", 0},
    {OPT_SIZE, "the whole vector; default: 262144 elements", 0},
    {OPT_DTYPE, "default: f32", 0},
    {OPT_COLL, "several with commas", 0},
    {OPT_RANK, "the root of a broadcast; default: 0", 0},
    {OPT_LATE, NULL, 0},
    {OPT_TO, "the messages of one algorithm, for Perfetto or chrome://tracing", 0},
    {OPT_HARDWARE, NULL, 0},
    CONTEXT_OPTIONS};

static const bs_field list_fields[] = {
    {"algorithm", "ALGORITHM", 0, 0},
    {"kinds", "COLLECTIVES", 0, 0},
    {"params", "OPTIONS", 0, 0},
    {"summary", "WHAT", 0, 0},
    {"same_order", "SAME ORDER", 0, 0},
    {"runs", "RUNS", 0, 0},
    {"plugin", "PLUGIN", BS_FIELD_WIDE, 0},
    {"file", "FILE", BS_FIELD_WIDE, 0},
    {"aliases", "ALIASES", BS_FIELD_WIDE, 0},
};
static const bs_field check_fields[] = {
    {"algorithm", "ALGORITHM", BS_FIELD_FOLD, 0},
    {"file", "FILE", BS_FIELD_FOLD, 0},
    {"collective", "COLLECTIVE", 0, 0},
    {"level", "LEVEL", 0, 0},
    {"range", "RANKS", 0, 0},
    {"cases", "CASES", BS_FIELD_RIGHT, 0},
    {"result", "RESULT", 0, 0},
    {"why", "WHY", 0, 0},
    {"step", "STEP", 0, 0},
    {"bf16_max", "BF16 MAX", BS_FIELD_WIDE, 3},
    {"bf16_rms", "BF16 RMS", BS_FIELD_WIDE, 3},
    {"refused", "REFUSED", BS_FIELD_WIDE, 0},
    {"ranks", "MOST RANKS", BS_FIELD_WIDE, 0},
    {"id", "ID", BS_FIELD_WIDE, 0},
    {"plugin", "PLUGIN", BS_FIELD_WIDE, 0},
};
static const bs_field explain_fields[] = {
    {"algorithm", "ALGORITHM", 0, 0},
    {"collective", "COLLECTIVE", 0, 0},
    {"world_size", "P", BS_FIELD_RIGHT, 0},
    {"size_bytes", "SIZE", BS_FIELD_RIGHT | BS_FIELD_BYTES, 0},
    {"count", "COUNT", BS_FIELD_RIGHT | BS_FIELD_WIDE, 0},
    {"rounds", "ROUNDS", BS_FIELD_RIGHT, 0},
    {"messages", "MESSAGES", BS_FIELD_RIGHT, 0},
    {"bytes", "SENT", BS_FIELD_RIGHT | BS_FIELD_BYTES, 0},
    {"simulated_us", "SIMULATED us", BS_FIELD_RIGHT, 3},
    {"formula_us", "FORMULA us", BS_FIELD_RIGHT, 3},
    {"latency_us", "LATENCY us", BS_FIELD_RIGHT, 3},
    {"bytes_us", "BYTES us", BS_FIELD_RIGHT, 3},
    {"late_rank", "LATE RANK", BS_FIELD_FOLD, 0},
    {"late_us", "LATE us", BS_FIELD_FOLD, 3},
    {"reduce_us", "ADDING us", BS_FIELD_WIDE, 3},
    {"busbw_GBps", "BUSBW GB/s", BS_FIELD_RIGHT, 3},
    {"algbw_GBps", "ALGBW GB/s", BS_FIELD_WIDE, 3},
    {"difference_ps", "DIFFERENCE ps", BS_FIELD_WIDE, 3},
    {"simulated_ps", "SIMULATED ps", BS_FIELD_WIDE, 0},
    {"element_bytes", "ELEMENT BYTES", BS_FIELD_WIDE, 0},
    {"alpha_us", "LINK us", BS_FIELD_WIDE, 3},
    {"link_GBps", "LINK GB/s", BS_FIELD_WIDE, 3},
    {"plugin", "PLUGIN", BS_FIELD_WIDE, 0},
    {"file", "FILE", BS_FIELD_WIDE, 0},
};

/* ---- shared ----------------------------------------------------------------------------------- */

/* list and check have fewer options than explain. */
static int has_option(const args *a, const char *name) {
  for (size_t i = 0; i < a->n_options; i++)
    if (strcmp(args_name(&a->options[i]), name) == 0) return 1;
  return 0;
}

/* Does the configuration give the simulated link a time? */
static int has_link(const bs_node *config) {
  static const char *const keys[] = {"plugins.sim.alpha_s", "plugins.sim.bw_Bps"};
  for (size_t i = 0; i < 2; i++) {
    const bs_node *value = bs_config_find(config, keys[i]);
    if (value != NULL && value->kind != BS_NODE_NULL) return 1;
  }
  return 0;
}

/* machine: NULL, or the hardware where neither --hardware nor another option gives the link a time. */
static int32_t open_context(const args *a, const char *extra_plugin, const char *machine,
                            bs_context **out_context, bs_error *err) {
  bsrun_base base = {.plugins = &extra_plugin, .n_plugins = extra_plugin != NULL};
  bs_node *config = NULL;
  char *dir = NULL;
  int32_t rc = bs_configs_dir(&dir, err);
  base.configs_dir = dir;
  if (rc == BS_OK) rc = bsrun_base_tree(a, &base, &config, err);
  if (rc == BS_OK && machine != NULL && args_value(a, "hardware") == NULL && !has_link(config)) {
    base.hardware = machine;
    bs_config_free(config);
    rc = bsrun_base_tree(a, &base, &config, err);
  }
  if (rc == BS_OK)
    rc = bs_context_of_config(config, args_has(a, "verbose") ? BS_LOG_DEBUG : BS_LOG_WARN, bsrun_log, NULL,
                              out_context, err);
  bs_config_free(config);
  free(dir);
  return rc;
}

static int32_t kind_of(const args *a, const bs_ccl *ccl, uint32_t *out_kind, bs_error *err) {
  const char *names[BS_COLL_COUNT_], *name = args_value(a, "coll");
  size_t n = 0;
  *out_kind = BS_COLL_COUNT_;
  for (uint32_t kind = 0; kind < BS_COLL_COUNT_; kind++) {
    if ((ccl->algorithm->kinds >> kind & 1) == 0) continue;
    names[n++] = bs_name_of(BS_NAMES_COLL, kind);
    if (*out_kind == BS_COLL_COUNT_ && (name == NULL || strcmp(name, bs_name_of(BS_NAMES_COLL, kind)) == 0))
      *out_kind = kind;
  }
  if (*out_kind != BS_COLL_COUNT_) return BS_OK;
  return bsrun_unknown("collective of this algorithm", name != NULL ? name : "", names, n, err);
}

/* Elements of --size bytes. */
static int32_t read_count(const args *a, int64_t element_bytes, int64_t *out, bs_error *err) {
  int64_t bytes = 0;
  const int32_t rc = args_integer(a, "size", 0, INT64_C(1) << 50, 262144 * element_bytes, &bytes, err);
  *out = element_bytes > 0 ? bytes / element_bytes : 0;
  if (rc != BS_OK || *out * element_bytes == bytes) return rc;
  return bs_error_set(err, BS_USAGE, "BS-USE-NUMBER",
                      "--size: %lld bytes are not a whole number of elements of %lld bytes", (long long)bytes,
                      (long long)element_bytes);
}

int32_t coll_place(const args *a, const bs_ccl *ccl, bs_ccl_place *out_place, bs_error *err) {
  uint32_t dtype = BS_F32;
  int64_t p = 8, count = 0, root = 0;
  *out_place = (bs_ccl_place){0};
  int32_t rc = kind_of(a, ccl, &out_place->kind, err);
  if (rc == BS_OK) rc = args_integer(a, "world-size", 1, 1 << 20, 8, &p, err);
  if (rc == BS_OK && has_option(a, "rank")) rc = args_integer(a, "rank", 0, p - 1, 0, &root, err);
  if (rc == BS_OK && has_option(a, "dtype")) rc = args_word(a, "dtype", BS_NAMES_DTYPE, NULL, 0, &dtype, err);
  if (rc == BS_OK && has_option(a, "rank")) rc = read_count(a, BS_DTYPE_BYTES(dtype), &count, err);
  if (rc != BS_OK) return rc;
  out_place->world_size = (uint32_t)p;
  out_place->count = (uint64_t)count;
  out_place->root = (uint32_t)root;
  out_place->element_bytes = BS_DTYPE_BYTES(dtype);
  return BS_OK;
}

static int32_t open_named(const args *a, bs_context *context, const char *name, bs_ccl *out, bs_error *err) {
  const char *options[BS_ALGORITHM_MAX_OPTIONS];
  char copy[512];
  size_t n = 0;
  const size_t length = strcspn(name, ":");
  (void)a;
  snprintf(copy, sizeof copy, "%s", name);
  if (strlen(name) >= sizeof copy)
    return bs_error_set(err, BS_USAGE, "BS-USE-WORD", "the name of an algorithm is too long");
  char *rest = copy[length] != '\0' ? copy + length + 1 : NULL, *save = NULL;
  copy[length] = '\0';
  for (char *one = rest != NULL ? strtok_r(rest, ",", &save) : NULL; one != NULL;
       one = strtok_r(NULL, ",", &save)) {
    if (n == BS_ALGORITHM_MAX_OPTIONS)
      return bs_error_set(err, BS_USAGE, "BS-CCL-OPTION", "%s: more options than any algorithm has", copy);
    options[n++] = one;
  }
  return bs_ccl_open(context, copy, options, n, out, err);
}

#define PRINT(format, fields, rows, err) \
  bs_report_print(stdout, format, fields, sizeof(fields) / sizeof(fields)[0], rows, err)

/* ---- list ------------------------------------------------------------------------------------- */

static int32_t list(const args *a, bs_error *err) {
  bs_context *context = NULL;
  json_t *names = NULL, *rows = json_array();
  int format = 0;
  int32_t rc = bsrun_format(a, &format, err);
  if (rc == BS_OK) rc = open_context(a, NULL, NULL, &context, err);
  if (rc == BS_OK) rc = bs_ccl_names(context, NULL, &names, err);
  for (size_t i = 0; rc == BS_OK && i < json_array_size(names); i++) {
    bs_ccl ccl;
    rc = open_named(a, context, json_string_value(json_array_get(names, i)), &ccl, err);
    if (rc != BS_OK) break;
    json_array_append_new(rows, bs_ccl_row(&ccl));
    bs_ccl_free(&ccl);
  }
  if (rc == BS_OK && json_array_size(rows) == 0)
    rc = bs_error_set(err, BS_USAGE, "BS-CCL-EMPTY", "no plugin has an algorithm");
  if (rc == BS_OK) rc = PRINT(format, list_fields, rows, err);
  json_decref(names);
  json_decref(rows);
  bs_context_close(context);
  return rc;
}

/* ---- check ------------------------------------------------------------------------------------ */

static int32_t read_check(const args *a, sim_check_request *out, bs_error *err) {
  static const char *const levels[] = {"V4", "V0", "V1", "V2", "V6"};
  const char **values = NULL, *kinds[BS_COLL_COUNT_];
  size_t n = 0;
  int64_t most = 0;
  for (uint32_t i = 0; i < BS_COLL_COUNT_; i++) kinds[i] = bs_name_of(BS_NAMES_COLL, i);
  *out = (sim_check_request){.full = (uint32_t)args_has(a, "full")};
  int32_t rc = args_integer(a, "world-size", 1, 1 << 20, 0, &most, err);
  out->max_ranks = (uint32_t)most;
  if (rc == BS_OK) rc = args_list(a, "only", &values, &n, err);
  for (size_t i = 0; rc == BS_OK && i < n; i++) {
    uint32_t level = 0;
    while (level < SIM_LEVELS && strcmp(values[i], levels[level]) != 0) level++;
    if (level == SIM_LEVELS && strcmp(values[i], "V3") == 0) level = SIM_V1;
    if (level == SIM_LEVELS)
      rc = bsrun_unknown("level", values[i], levels, SIM_LEVELS, err);
    else
      out->levels |= 1u << level;
  }
  free(values);
  values = NULL;
  if (rc == BS_OK) rc = args_list(a, "coll", &values, &n, err);
  for (size_t i = 0; rc == BS_OK && i < n; i++) {
    const uint32_t kind = bs_ccl_kind(values[i]);
    if (kind == BS_COLL_COUNT_)
      rc = bsrun_unknown("collective", values[i], kinds, BS_COLL_COUNT_, err);
    else
      out->kinds |= 1u << kind;
  }
  free(values);
  return rc;
}

/* NAME, or FILE.so: all that this plugin has. */
static int32_t names_of(bs_context *context, const char *word, json_t **out_names, bs_error *err) {
  char id[64];
  if (strchr(word, '/') == NULL) {
    *out_names = json_pack("[s]", word);
    return *out_names != NULL ? BS_OK : bs_error_set(err, BS_USAGE, "BS-USE-WORD", "the name is not UTF-8");
  }
  bs_plugin_id_of(word, id, sizeof id);
  const int32_t rc = bs_ccl_names(context, id, out_names, err);
  if (rc != BS_OK || json_array_size(*out_names) > 0) return rc;
  return bs_error_set(err, BS_USAGE, "BS-CCL-EMPTY", "%.200s has no algorithm", word);
}

static int32_t check_all(const args *a, bs_context *context, const sim_check_request *q, const json_t *names,
                         json_t *rows, bs_error *err) {
  int32_t worst = BS_OK;
  for (size_t i = 0; i < json_array_size(names) && bs_stop_asked() == 0; i++) {
    bs_error one = BS_ERROR_INIT;
    bs_ccl ccl;
    int32_t rc = open_named(a, context, json_string_value(json_array_get(names, i)), &ccl, &one);
    if (rc == BS_OK) {
      rc = bs_ccl_check(&ccl, q, rows, &one);
      bs_ccl_free(&ccl);
    }
    if (rc == BS_OK || worst == BS_NUMERIC) continue;
    worst = rc;
    *err = one;
  }
  return worst;
}

static int32_t check(const args *a, bs_error *err) {
  const char *word = a->words[0];
  bs_context *context = NULL;
  sim_check_request q;
  json_t *names = NULL, *rows = json_array();
  int format = 0;
  bsrun_interruptible("the rows above say how far each level came; --only LEVEL takes less time");
  int32_t rc = bsrun_format(a, &format, err);
  if (rc == BS_OK) rc = read_check(a, &q, err);
  if (rc == BS_OK) rc = open_context(a, strchr(word, '/') != NULL ? word : NULL, NULL, &context, err);
  if (rc == BS_OK) rc = names_of(context, word, &names, err);
  if (rc == BS_OK) {
    bs_error printing = BS_ERROR_INIT;
    rc = check_all(a, context, &q, names, rows, err);
    const int32_t printed = json_array_size(rows) > 0 ? PRINT(format, check_fields, rows, &printing) : BS_OK;
    if (rc == BS_OK && printed != BS_OK) *err = printing;
    if (rc == BS_OK) rc = printed;
  }
  json_decref(names);
  json_decref(rows);
  bs_context_close(context);
  return rc;
}

/* ---- a trace ---------------------------------------------------------------------------------- */

int32_t coll_trace(const args *a, const char **out_file, bs_error *err) {
  *out_file = args_value(a, "to");
  if (*out_file == NULL) return BS_OK;
  if ((*out_file)[0] == '\0')
    return bs_error_set(err, BS_USAGE, "BS-USE-EMPTY", "--to: the file's name is empty");
  if (a->n_words == 1) return BS_OK;
  return bs_error_set(err, BS_USAGE, "BS-SIM-TRACE",
                      "--to takes the trace of one algorithm, and %zu are named", a->n_words);
}

void coll_note_trace(const char *file, const json_t *row) {
  char text[512];
  const json_t *events = json_object_get(row, "trace_events");
  if (events == NULL) return;
  snprintf(text, sizeof text, "wrote the trace %.300s: %lld events, %lld left out", file,
           (long long)json_integer_value(events),
           (long long)json_integer_value(json_object_get(row, "trace_left_out")));
  bsrun_note(0, text);
}

/* ---- a late rank ------------------------------------------------------------------------------- */

static int32_t read_late(const args *a, bs_ccl_place *place, bs_error *err) {
  const char *text = args_value(a, "late");
  char rank[16] = "";
  int64_t value = 0;
  if (text == NULL) return BS_OK;
  const size_t n = strcspn(text, ":");
  if (n < sizeof rank) snprintf(rank, sizeof rank, "%.*s", (int)n, text);
  if (text[n] == ':' && bs_parse_i64(rank, &value) && value >= 0 && value < place->world_size &&
      bs_parse_f64(text + n + 1, &place->late_s) && place->late_s >= 0 && place->late_s <= 3600) {
    place->late_rank = (uint32_t)value;
    return BS_OK;
  }
  bs_error_set(err, BS_USAGE, "BS-USE-NUMBER",
               "--late: '%.60s' is not a rank below %u and seconds up to 3600", text, place->world_size);
  bs_error_hint(err, "--late 0:1e-3");
  return BS_USAGE;
}

/* ---- explain ---------------------------------------------------------------------------------- */

/* A machine in which everything takes no time explains nothing. */
static int32_t check_link(const bs_ccl_place *place, bs_error *err) {
  if (place->alpha_s > 0 || place->bytes_per_s > 0) return BS_OK;
  bs_error_set(err, BS_CONFIG, "BS-SIM-MACHINE",
               "the simulated link takes no time: it has no alpha_s and no bw_Bps");
  bs_error_hint(err, "--hardware sim-flat, h100-dgx, ... or --set plugins.sim.alpha_s=1e-6");
  return BS_CONFIG;
}

static int32_t explain(const args *a, bs_error *err) {
  bs_context *context = NULL;
  json_t *rows = json_array();
  const char *trace = NULL;
  int format = 0;
  bsrun_interruptible("a row that is not simulated has its formula alone; a smaller -P takes less time");
  int32_t rc = bsrun_format(a, &format, err);
  if (rc == BS_OK) rc = coll_trace(a, &trace, err);
  if (rc == BS_OK) rc = open_context(a, NULL, "sim-flat", &context, err);
  for (size_t i = 0; rc == BS_OK && i < a->n_words && bs_stop_asked() == 0; i++) {
    bs_ccl ccl;
    bs_ccl_place place;
    rc = open_named(a, context, a->words[i], &ccl, err);
    if (rc != BS_OK) break;
    rc = coll_place(a, &ccl, &place, err);
    if (rc == BS_OK) rc = read_late(a, &place, err);
    if (rc == BS_OK) rc = bs_ccl_place_link(context, &place, err);
    if (rc == BS_OK) rc = check_link(&place, err);
    place.trace_file = trace;
    json_t *row = rc == BS_OK ? bs_ccl_explain(&ccl, &place, err) : NULL;
    coll_note_trace(trace, row);
    if (row != NULL) json_array_append_new(rows, row);
    if (rc == BS_OK && row == NULL) rc = err->code;
    bs_ccl_free(&ccl);
  }
  if (rc == BS_OK && json_array_size(rows) > 0) rc = PRINT(format, explain_fields, rows, err);
  json_decref(rows);
  bs_context_close(context);
  return rc;
}

/* ----------------------------------------------------------------------------------------------- */

static const bsrun_verb coll_list = {
    .name = "list",
    .words = "[options]",
    .summary = "the algorithms: their collectives, options and order of sums",
    .about = "",
    .examples = "  bsrun coll list\n",
    .options = coll_list_options,
    .run = list,
};
static const bsrun_verb coll_check = {
    .name = "check",
    .words = "NAME[:KEY=VALUE,...]|FILE.so [options]",
    .summary = "prove an algorithm level by level; a fault ends in exit 6",
    .about =
        "V4 is static, V0 runs real buffers, V1 and V3 sampled sums and their order, V2 sets of\n"
        "contributions, V6 rounding (share/doc/blockshock/collectives.md).\n",
    .examples =
        "  bsrun coll check ring\n"
        "  bsrun coll check ./bs_acme.so --only V4,V0 -o json\n",
    .options = coll_check_options,
    .run = check,
    .min_words = 1,
    .max_words = 1,
    .takes = "algorithms :file",
};
static const bsrun_verb coll_explain = {
    .name = "explain",
    .words = "NAME[:KEY=VALUE,...]... [options]",
    .summary = "rounds, messages, and the simulated time next to the formula",
    .about = "Every pair of ranks has the link of --hardware for itself.\n",
    .examples =
        "  bsrun coll explain ring halving_doubling -P 64 --size 1Mi --hardware sim-flat\n"
        "  bsrun coll explain ring -P 8 --hardware sim-flat --late 3:1e-3\n"
        "  bsrun coll explain chain:chunks=32 -P 8 --set plugins.sim.alpha_s=1e-6\n",
    .options = coll_explain_options,
    .run = explain,
    .min_words = 1,
    .max_words = 32,
    .takes = "algorithms",
};
static const bsrun_verb *const verbs[] = {&coll_list, &coll_explain, &coll_check, &coll_bench_verb, NULL};
const bsrun_verb verb_coll = {
    .name = "coll",
    .summary = "list, explain, prove and time collective algorithms",
    .subverbs = verbs,
};
