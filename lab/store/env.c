/* SPDX-License-Identifier: MIT
 * env.c - env.json (see env.h). Called by bsrun before a run folder is made. */
#include "lab/store/env.h"

#include <dirent.h>
#include <gnu/libc-version.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "core/base/memory.h"
#include "lab/error.h"
#include "lab/store/env_parts.h"
#include "lab/store/file_sum.h"

#ifndef BS_BUILD_FLAGS
#define BS_BUILD_FLAGS ""
#endif
#ifndef BS_BUILD_DIFF
#define BS_BUILD_DIFF ""
#endif
#ifndef BS_BUILD_COMMIT
#define BS_BUILD_COMMIT ""
#endif

extern char **environ;

int bs_env_first_line(const char *path, char *out, size_t size) {
  FILE *f = fopen(path, "re");
  if (f == NULL) return 0;
  const int ok = fgets(out, (int)size, f) != NULL;
  fclose(f);
  if (ok) out[strcspn(out, "\n")] = '\0';
  return ok;
}

json_t *bs_env_string(const char *text) {
  json_t *value = json_string(text); /* NULL when it is not UTF-8 */
  return value != NULL ? value : json_string("(not UTF-8)");
}

static json_t *text_or_null(const char *text) {
  return text == NULL || text[0] == '\0' ? json_null() : bs_env_string(text);
}

static json_t *line_or_null(const char *path) {
  char line[512];
  return bs_env_first_line(path, line, sizeof line) ? text_or_null(line) : json_null();
}

/* "key : value" of the first matching line of a /proc file. */
static int proc_value(const char *path, const char *key, char *out, size_t size) {
  char line[8192];
  int found = 0;
  FILE *f = fopen(path, "re");
  if (f == NULL) return 0;
  while (!found && fgets(line, sizeof line, f) != NULL) {
    if (strncmp(line, key, strlen(key)) != 0) continue;
    const char *colon = strchr(line, ':');
    if (colon == NULL) continue;
    colon += 1 + strspn(colon + 1, " \t");
    snprintf(out, size, "%.*s", (int)strcspn(colon, "\n"), colon);
    found = 1;
  }
  fclose(f);
  return found;
}

static uint64_t kib_of(const char *key) {
  char value[64];
  return proc_value("/proc/meminfo", key, value, sizeof value) ? strtoull(value, NULL, 10) * 1024u : 0;
}

static json_t *isa_flags(void) {
  static const char *const wanted[] = {"sse4_2",   "avx",      "f16c",        "fma",         "avx2",
                                       "avx512f",  "avx512bw", "avx512_vnni", "avx512_bf16", "avx512_fp16",
                                       "avx_vnni", "amx_tile", "amx_bf16",    "amx_int8",    "asimd",
                                       "sve",      "bf16"};
  char line[8192];
  json_t *list = json_array();
  if (!proc_value("/proc/cpuinfo", "flags", line, sizeof line) &&
      !proc_value("/proc/cpuinfo", "Features", line, sizeof line)) {
    return list;
  }
  for (char *save = NULL, *word = strtok_r(line, " ", &save); word != NULL;
       word = strtok_r(NULL, " ", &save)) {
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
      if (strcmp(word, wanted[i]) == 0) json_array_append_new(list, json_string(word));
    }
  }
  return list;
}

static json_t *affinity_list(void) {
  cpu_set_t set;
  json_t *list = json_array();
  if (sched_getaffinity(0, sizeof set, &set) != 0) return list;
  for (int i = 0; i < CPU_SETSIZE; i++) {
    if (CPU_ISSET(i, &set)) json_array_append_new(list, json_integer(i));
  }
  return list;
}

static json_t *cpu_part(void) {
  char model[256] = "", microcode[64] = "";
  json_t *cpu = json_object();
  proc_value("/proc/cpuinfo", "microcode", microcode, sizeof microcode);
  if (!proc_value("/proc/cpuinfo", "model name", model, sizeof model)) {
    proc_value("/proc/cpuinfo", "CPU part", model, sizeof model);
  }
  json_object_set_new(cpu, "model", text_or_null(model));
  json_object_set_new(cpu, "microcode", text_or_null(microcode));
  json_object_set_new(cpu, "isa", isa_flags());
  json_object_set_new(cpu, "core_map", bs_env_core_map());
  json_object_set_new(cpu, "numa_nodes", line_or_null("/sys/devices/system/node/online"));
  json_object_set_new(cpu, "cores_online", json_integer(sysconf(_SC_NPROCESSORS_ONLN)));
  json_object_set_new(cpu, "cores_configured", json_integer(sysconf(_SC_NPROCESSORS_CONF)));
  json_object_set_new(cpu, "affinity", affinity_list());
  json_object_set_new(cpu, "governor", line_or_null("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"));
  json_object_set_new(cpu, "max_khz", line_or_null("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq"));
  json_object_set_new(cpu, "no_turbo", line_or_null("/sys/devices/system/cpu/intel_pstate/no_turbo"));
  json_object_set_new(cpu, "smt", line_or_null("/sys/devices/system/cpu/smt/active"));
  json_object_set_new(cpu, "l2_bytes", json_integer(sysconf(_SC_LEVEL2_CACHE_SIZE)));
  json_object_set_new(cpu, "l3_bytes", json_integer(sysconf(_SC_LEVEL3_CACHE_SIZE)));
  json_object_set_new(cpu, "cgroup_cpu_max", line_or_null("/sys/fs/cgroup/cpu.max"));
  return cpu;
}

static json_t *system_part(void) {
  struct utsname u;
  json_t *system = json_object();
  if (uname(&u) == 0) {
    json_object_set_new(system, "host", text_or_null(u.nodename));
    json_object_set_new(system, "kernel", text_or_null(u.release));
    json_object_set_new(system, "system", text_or_null(u.sysname));
    json_object_set_new(system, "machine", text_or_null(u.machine));
  }
  json_object_set_new(system, "aslr", bs_env_aslr());
  json_object_set_new(system, "load_average", line_or_null("/proc/loadavg"));
  json_object_set_new(system, "transparent_hugepage",
                      line_or_null("/sys/kernel/mm/transparent_hugepage/enabled"));
  json_object_set_new(system, "memory_total_bytes", json_integer((json_int_t)kib_of("MemTotal")));
  json_object_set_new(system, "memory_available_bytes", json_integer((json_int_t)bs_memory_available("")));
  return system;
}

static json_t *build_part(void) {
  json_t *build = json_object();
  json_object_set_new(build, "blockshock", json_string(bs_version()));
  json_object_set_new(build, "library_build_id", text_or_null(bs_build_id()));
  json_object_set_new(build, "compiler",
                      json_string(
#if defined(__clang__)
                          "clang " __clang_version__
#elif defined(__GNUC__)
                          "gcc " __VERSION__
#else
                          "unknown"
#endif
                          ));
  json_object_set_new(build, "flags", text_or_null(BS_BUILD_FLAGS));
  json_object_set_new(build, "commit", text_or_null(BS_BUILD_COMMIT));
  json_object_set_new(build, "diff_sha256", text_or_null(BS_BUILD_DIFF));
  json_object_set_new(build, "libc", json_string(gnu_get_libc_version()));
  json_object_set_new(build, "jansson", json_string(JANSSON_VERSION));
  return build;
}

static json_t *variables_part(void) {
  static const char *const prefixes[] = {"OMP_",
                                         "KMP_",
                                         "GOMP_",
                                         "DNNL_",
                                         "ONEDNN_",
                                         "BS_",
                                         "SLURM_JOB",
                                         "SLURM_NTASKS",
                                         "SLURM_PROCID",
                                         "OMPI_COMM_WORLD_",
                                         "CUDA_VISIBLE_DEVICES",
                                         "NCCL_",
                                         "MALLOC_ARENA_MAX",
                                         "LD_PRELOAD"};
  json_t *variables = json_object();
  for (char **entry = environ; entry != NULL && *entry != NULL; entry++) {
    const char *equals = strchr(*entry, '=');
    if (equals == NULL) continue;
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) {
      if (strncmp(*entry, prefixes[i], strlen(prefixes[i])) != 0) continue;
      char name[128];
      snprintf(name, sizeof name, "%.*s", (int)(equals - *entry), *entry);
      json_object_set_new(variables, name, text_or_null(equals + 1)); /* refused when the name is not UTF-8 */
      break;
    }
  }
  return variables;
}

int32_t bs_env_plugins(bs_context *context, json_t **out_list, bs_error *err) {
  json_t *list = json_array();
  int32_t rc = list == NULL ? bs_no_memory(err, "the list of plugins") : BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < bs_plugin_count(context); i++) {
    bs_plugin_info info = {.struct_size = sizeof info};
    char hex[65];
    if (bs_plugin_get(context, i, &info, NULL) != BS_OK || info.state != BS_PLUGIN_ACTIVE) continue;
    json_t *row = json_object();
    json_object_set_new(row, "id", text_or_null(info.id));
    json_object_set_new(row, "version", text_or_null(info.version));
    if (info.builtin) {
      json_object_set_new(row, "library_build_id", text_or_null(bs_build_id()));
    } else {
      rc = bs_file_sum(info.path, hex, err);
      json_object_set_new(row, "path", text_or_null(info.path));
      if (rc == BS_OK) json_object_set_new(row, "sha256", json_string(hex));
    }
    size_t at = 0; /* insertion by id: the order of activation must not change the run's key */
    while (at < json_array_size(list) &&
           strcmp(json_string_value(json_object_get(json_array_get(list, at), "id")), info.id) < 0) {
      at++;
    }
    json_array_insert_new(list, at, row);
  }
  if (rc != BS_OK) {
    json_decref(list);
    list = NULL;
  }
  *out_list = list;
  return rc;
}

/* {"cpu": {"isa": {"value": "auto", "origin": "default"}}} of the open plugins: the present values of their
 * parameters. */
static json_t *parameters_part(bs_context *context) {
  json_t *parameters = json_object();
  for (uint32_t i = 0; i < bs_plugin_count(context); i++) {
    bs_plugin_info info = {.struct_size = sizeof info};
    if (bs_plugin_get(context, i, &info, NULL) != BS_OK || info.state != BS_PLUGIN_ACTIVE) continue;
    json_t *of_plugin = json_object();
    for (uint32_t k = 0; k < bs_param_count(context, info.id); k++) {
      bs_param_info param = {.struct_size = sizeof param};
      if (bs_param_info_get(context, info.id, k, &param, NULL) != BS_OK) continue;
      json_t *row = json_object();
      json_object_set_new(row, "value", text_or_null(param.value_text));
      json_object_set_new(row, "origin", text_or_null(param.origin));
      json_object_set_new(of_plugin, param.desc.name, row);
    }
    json_object_set_new(parameters, info.id, of_plugin);
  }
  return parameters;
}

json_t *bs_env_collect(bs_context *context) {
  json_t *env = json_object();
  json_t *plugins = NULL, *libraries = bs_env_libraries();
  if (env == NULL || libraries == NULL) {
    json_decref(env);
    json_decref(libraries);
    return NULL;
  }
  json_object_set_new(env, "cpu", cpu_part());
  json_object_set_new(env, "system", system_part());
  json_object_set_new(env, "build", build_part());
  json_object_set_new(env, "variables", variables_part());
  json_object_set_new(env, "mpi", bs_env_mpi(libraries));
  json_object_set_new(env, "libraries", libraries);
  if (context != NULL && bs_env_plugins(context, &plugins, NULL) == BS_OK) {
    json_object_set_new(env, "plugins", plugins);
    json_object_set_new(env, "parameters", parameters_part(context));
  }
  return env;
}

char *bs_env_text(const json_t *env) {
  char *body = json_dumps(env, JSON_INDENT(2) | JSON_SORT_KEYS);
  if (body == NULL) return NULL;
  const size_t size = strlen(body);
  char *text = realloc(body, size + 2);
  if (text == NULL) {
    free(body);
    return NULL;
  }
  text[size] = '\n';
  text[size + 1] = '\0';
  return text;
}
