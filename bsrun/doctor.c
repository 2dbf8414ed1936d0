/* SPDX-License-Identifier: MIT
 * doctor.c - `bsrun doctor [--measure]`: every check as a row; the machine's constants measured and kept. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bsrun/plugins.h"
#include "core/base/error.h"
#include "lab/config/experiment.h"
#include "lab/doctor/doctor.h"

static const args_option doctor_options[] = {
    {OPT_MEASURE, NULL, 0},
    {OPT_FORCE, "--measure also on a busy machine, and keep impossible constants", 0},
    {OPT_CACHE, NULL, 0},
    {OPT_WORLD_SIZE, "default: 2", 0},
    {OPT_BACKEND, "default: the one of --plugin, else cpu", 0},
    {OPT_COMM, "default: the one of --plugin, else threads", 0},
    {OPT_OUT, NULL, 0},
    {OPT_TIMEOUT, "of every wait between ranks; default: 20", 0},
    {OPT_PLUGIN, "and check its backend", 0},
    {OPT_CONFIG, NULL, 0},
    {OPT_SET, NULL, 0},
    ARGS_TABLE,
    {OPT_VERBOSE, NULL, 0},
    {OPT_QUIET, NULL, 0},
    ARGS_HELP,
};

static const bs_field fields[] = {
    {"what", "WHAT", 0, 0}, {"state", "STATE", 0, 0}, {"found", "FOUND", 0, 0}, {"fix", "FIX", 0, 0}};

typedef struct visit {
  const args *a;
  bs_context *context;
  bs_node *config;
  bs_doctor d;
  char *cache;
  char backend[64], comm[64];
  json_t *named;    /* ids of --plugin: opened at the first look-up of anything */
  json_t *bad;      /* ids of the plugins that a child could not open */
  json_t *backends; /* names of those that can be used */
} visit;

/* Drops wrappers: "fault:" needs another name after it, so it cannot be checked or measured alone. */
static void drop_wrappers(json_t *names) {
  for (size_t i = json_array_size(names); i-- > 0;) {
    const char *name = json_string_value(json_array_get(names, i));
    if (name != NULL && strchr(name, ':') != NULL) json_array_remove(names, i);
  }
}

/* Chooses the backends and communicators of the named plugins, unless an option names others. */
static void choose(visit *v, const char *const *named, size_t n_named) {
  const char *backend = args_value(v->a, "backend"), *comm = args_value(v->a, "comm");
  json_t *backends = json_array(), *comms = json_array();
  for (size_t i = 0; i < n_named; i++) {
    char id[64];
    bs_plugin_id_of(named[i], id, sizeof id);
    json_array_append_new(v->named, json_string(id));
    for (uint32_t k = 0; k < bs_plugin_count(v->context); k++) {
      bs_plugin_info info = {.struct_size = sizeof info};
      if (bs_plugin_get(v->context, k, &info, NULL) != BS_OK || strcmp(info.id, id) != 0) continue;
      plugins_add_names(backends, v->context, &info, BS_KIND_BACKEND);
      plugins_add_names(comms, v->context, &info, BS_KIND_COMM);
    }
  }
  drop_wrappers(backends);
  drop_wrappers(comms);
  if (backend == NULL) backend = json_string_value(json_array_get(backends, 0));
  if (comm == NULL) comm = json_string_value(json_array_get(comms, 0));
  snprintf(v->backend, sizeof v->backend, "%s", backend != NULL ? backend : "cpu");
  snprintf(v->comm, sizeof v->comm, "%s", comm != NULL ? comm : "threads");
  json_decref(backends);
  json_decref(comms);
  v->d.backend = v->backend;
  v->d.comm = v->comm;
}

static int listed(const json_t *ids, const char *id) {
  for (size_t i = 0; i < json_array_size(ids); i++) {
    if (strcmp(json_string_value(json_array_get(ids, i)), id) == 0) return 1;
  }
  return 0;
}

/* Would the checks that follow open it in this process? One without a note is opened when anything is looked
 * up. */
static int needed(const visit *v, const bs_plugin_info *info) {
  char matmul[96];
  snprintf(matmul, sizeof matmul, "matmul@%s", v->backend);
  return listed(v->named, info->id) ||
         (!info->builtin && (info->things == NULL || info->things[0] == '\0')) ||
         plugins_offers(info->things, "backend", v->backend) ||
         plugins_offers(info->things, "comm", v->comm) || plugins_offers(info->things, "op", matmul) ||
         plugins_offers(info->things, "method", "dense");
}

static void plugin_row(visit *v, const bs_plugin_info *info) {
  bs_error why = BS_ERROR_INIT;
  char what[64], library[128];
  snprintf(what, sizeof what, "plugin %.40s", info->id != NULL && info->id[0] != '\0' ? info->id : "?");
  if (info->state == BS_PLUGIN_SHADOWED) {
    bs_doctor_add(&v->d, what, BS_CHECK_OK, NULL, "shadowed: %s (%s)", info->why, info->path);
  } else if (info->state == BS_PLUGIN_REFUSED || info->state == BS_PLUGIN_UNAVAILABLE) {
    bs_doctor_add(&v->d, what, BS_CHECK_WARN,
                  "build it against these headers, own it and its folder, or take it off the search path",
                  "%s: %s (%s)", info->state == BS_PLUGIN_REFUSED ? "refused" : "unavailable", info->why,
                  info->path);
  } else if (plugins_lacks(v->config, info, library, sizeof library) && !needed(v, info)) {
    bs_doctor_add(&v->d, what, BS_CHECK_OK, NULL, "unavailable: needs %s, which cannot be opened here",
                  library);
  } else if (plugins_probe_devices(v->context, info->id, &why) != BS_OK) {
    json_array_append_new(v->bad, json_string(info->id));
    bs_doctor_add(&v->d, what, needed(v, info) ? BS_CHECK_FAIL : BS_CHECK_WARN,
                  why.hint[0] != '\0' ? why.hint : "bsrun plugins inspect tells more", "unavailable: %s",
                  why.message);
  } else {
    plugins_add_names(v->backends, v->context, info, BS_KIND_BACKEND);
    drop_wrappers(v->backends);
    bs_doctor_add(&v->d, what, BS_CHECK_OK, NULL, "%s%s, %s", plugins_is_for_tests(info) ? "for tests, " : "",
                  info->version, info->origin);
  }
}

static void plugin_rows(visit *v) {
  for (uint32_t i = 0; i < bs_plugin_count(v->context); i++) {
    bs_plugin_info info = {.struct_size = sizeof info};
    if (bs_plugin_get(v->context, i, &info, NULL) == BS_OK) plugin_row(v, &info);
  }
}

/* Is what ranks need among the plugins that failed? */
static int can_run(const visit *v) {
  for (uint32_t i = 0; i < bs_plugin_count(v->context); i++) {
    bs_plugin_info info = {.struct_size = sizeof info};
    if (bs_plugin_get(v->context, i, &info, NULL) != BS_OK || info.state > BS_PLUGIN_ACTIVE) continue;
    if (needed(v, &info) && listed(v->bad, info.id)) return 0;
  }
  return 1;
}

/* Lists libraries that parts of this or of other installations use; a missing one is never a fault. */
static void library_rows(visit *v) {
  static const struct {
    const char *what, *names[3], *without;
  } libraries[] = {
      {"hwloc", {"libhwloc.so.15", "libhwloc.so.5", "libhwloc.so"}, "cores are numbered by the kernel"},
      {"MPI", {"libmpi.so.40", "libmpi.so.12", "libmpi.so"}, "needed by ranks on several machines only"},
      {"CUDA driver", {"libcuda.so.1", "libcuda.so", "libcuda.so.1"}, "not needed on a CPU"},
  };
  for (size_t i = 0; i < sizeof libraries / sizeof libraries[0]; i++) {
    const char *name = plugins_probe_library(libraries[i].names, 3);
    bs_doctor_add(&v->d, libraries[i].what, BS_CHECK_OK, NULL, "%s%s", name != NULL ? name : "not found; ",
                  name != NULL ? " can be loaded" : libraries[i].without);
  }
}

static void world_rows(visit *v) {
  int usable = can_run(v) && bs_doctor_backend(&v->d, v->context);
  if (!usable &&
      strcmp(v->backend, "ref") != 0) { /* the other rows can still be found on the portable backend */
    snprintf(v->backend, sizeof v->backend, "ref");
    usable = can_run(v) && bs_doctor_backend(&v->d, v->context);
  }
  if (!usable) return;
  bs_doctor_ranks(&v->d, v->context);
  bs_doctor_gemm(&v->d, v->context);
  bs_doctor_self_test(&v->d, v->context);
}

/* ---- the machine's constants ---------------------------------------------------------------- */

static int multiplies(const visit *v, const char *backend) {
  char product[96];
  json_t *ops = json_array(), *op;
  size_t i;
  int found = 0;
  const int length = snprintf(product, sizeof product, "matmul@%s", backend);
  for (uint32_t k = 0; k < bs_plugin_count(v->context); k++) {
    bs_plugin_info info = {.struct_size = sizeof info};
    if (bs_plugin_get(v->context, k, &info, NULL) == BS_OK)
      plugins_add_names(ops, v->context, &info, BS_KIND_OP);
  }
  json_array_foreach(ops, i, op) {
    const char *name = json_string_value(op); /* with or without the implementation, "matmul@cpu/packed" */
    found |= strncmp(name, product, (size_t)length) == 0 && (name[length] == '\0' || name[length] == '/');
  }
  json_decref(ops);
  return found;
}

/* The chosen backend and every other usable one whose memory is the host's and that has a product. */
static size_t choose_backends(visit *v, const char **out, size_t max) {
  size_t n = 0;
  out[n++] = v->backend;
  for (size_t i = 0; i < json_array_size(v->backends) && n < max; i++) {
    const bs_backend *backend = NULL;
    void *state = NULL;
    const char *name = json_string_value(json_array_get(v->backends, i));
    if (strcmp(name, v->backend) == 0) continue;
    if (bs_find_backend(v->context, name, &backend, &state, NULL) == BS_OK &&
        (backend->flags & BS_BACKEND_HOST_MEMORY) && multiplies(v, name))
      out[n++] = name;
  }
  return n;
}

static void measure(visit *v) {
  bsrun_progress progress = {.of = "doctor", .busy = ATOMIC_FLAG_INIT};
  const char *backends[8];
  const int quiet = args_has(v->a, "quiet");
  json_decref(bsrun_constants(v->cache, quiet)); /* a corrupt file is warned of before it is replaced */
  const bs_doctor_measuring m = {
      .context = v->context,
      .backends = backends,
      .n_backends = choose_backends(v, backends, sizeof backends / sizeof backends[0]),
      .cache = v->cache,
      .force = args_has(v->a, "force"),
      .progress = bsrun_progress_to(quiet),
      .user = &progress};
  bs_doctor_measure(&v->d, &m);
  bsrun_progress_end(&progress);
}

/* ---- the verb ------------------------------------------------------------------------------- */

static int32_t read_options(visit *v, int *out_format, bs_error *err) {
  int64_t ranks;
  int32_t rc = bsrun_format(v->a, out_format, err);
  if (rc == BS_OK) rc = args_integer(v->a, "world-size", 1, 1024, 2, &ranks, err);
  if (rc == BS_OK) rc = bsrun_cache_path(v->a, &v->cache, err);
  if (rc != BS_OK) return rc;
  if (args_has(v->a, "force") && !args_has(v->a, "measure"))
    return bs_error_set(err, BS_USAGE, "BS-USE-FORCE", "--force has an effect with --measure only");
  v->d.ranks = (uint32_t)ranks;
  return args_real(v->a, "timeout", 0.001, 86400, 20, &v->d.timeout_s, err);
}

static int32_t examine(visit *v, bs_error *err) {
  const char **named = NULL;
  const char *out_dir = args_value(v->a, "out");
  size_t n_named = 0;
  int32_t rc = plugins_compose(v->a, NULL, NULL, 0, &v->config, err);
  if (rc == BS_OK) rc = plugins_open_context(v->a, NULL, 0, &v->context, err);
  if (rc == BS_OK) rc = args_values(v->a, "plugin", &named, &n_named, err);
  if (rc == BS_OK) {
    choose(v, named, n_named);
    bs_doctor_host(&v->d);
    library_rows(v);
    if (bsrun_keeps(v->a)) bs_doctor_results(&v->d, out_dir != NULL ? out_dir : "results/raw");
    plugin_rows(v);
    world_rows(v);
    if (args_has(v->a, "measure")) {
      measure(v);
    } else {
      bs_doctor_stored(&v->d, v->cache);
    }
  }
  free(named);
  return rc;
}

static int doctor(const args *a, bs_error *err) {
  int format;
  char summary[96];
  visit v = {.a = a,
             .d = {.rows = json_array()},
             .named = json_array(),
             .bad = json_array(),
             .backends = json_array()};
  bsrun_interruptible("the rows above are done; constants that were kept before stay as they are");
  int32_t rc = read_options(&v, &format, err);
  if (rc == BS_OK) rc = examine(&v, err);
  if (rc == BS_OK)
    rc = bs_report_print(stdout, format, fields, sizeof fields / sizeof fields[0], v.d.rows, err);
  int code = rc == BS_OK ? 0 : bsrun_fail(err);
  if (rc == BS_OK) {
    const uint32_t *n = v.d.counts;
    snprintf(summary, sizeof summary, "%u ok, %u to look at, %u failed", n[0], n[1], n[2]);
    bsrun_note(args_has(a, "quiet"), summary);
    const int32_t why = v.d.wrong ? BS_NUMERIC : v.d.unknown ? BS_CONFIG : BS_UNAVAILABLE;
    if (n[BS_CHECK_FAIL] > 0) code = (int)bs_status_exit_code(why);
  }
  json_decref(v.d.rows);
  json_decref(v.named);
  json_decref(v.bad);
  json_decref(v.backends);
  fflush(stdout); /* a plugin that is closed may end the process */
  if (v.context != NULL) bs_context_close(v.context);
  bs_config_free(v.config);
  free(v.cache);
  return code;
}

const bsrun_verb verb_doctor = {
    .name = "doctor",
    .summary = "check the machine and the installation",
    .words = "[--measure] [options]",
    .about =
        "Looks at the machine and the installation, a row each: what was found, ok, warn or fail, and the "
        "fix. Plugins\n"
        "are opened in a child process first. Times a sleep of 50 ms, a GEMM, and an arm against itself; "
        "lets every\n"
        "rank say hello and add the rank numbers.\n"
        "\n"
        "--measure takes some seconds on an idle machine; constants of a busy machine, and impossible ones, "
        "are not kept. The\n"
        "file is $XDG_CACHE_HOME/blockshock/machine.json (else ~/.cache/...), good for this processor, core "
        "count and\n"
        "library build; phase 1 then predicts with it.\n",
    .examples =
        "  bsrun doctor\n"
        "  bsrun doctor -P 4 -o json\n"
        "  bsrun doctor --plugin ./build/bs_acme.so\n"
        "  bsrun doctor --measure --cache ./machine.json\n",
    .exits = "0 nothing failed; 5 something failed; 6 numbers were wrong; 2 usage.\n",
    .options = doctor_options,
    .exit = doctor,
};
