/* SPDX-License-Identifier: MIT
 *
 * library.c - finds and opens oneDNN: the parameter dnnl_library, then vendor/ next to the plugin's folder,
 * then the system's libdnnl.so.3, then the build's own. dnnl/matmul.c calls it when a matmul could use
 * oneDNN. Its results are kept until the plugin is deactivated; the library itself is never unloaded. */
#include "library.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>

struct cpu_dnnl {
  pthread_mutex_t mutex;
  int looked;
  char *wanted; /* "auto", "now", "off" or a path */
  cpu_dnnl_lib lib;
};

typedef struct entry {
  const char *name;
  size_t offset;
} entry;

#define ENTRY(field) \
  { "dnnl_" #field, offsetof(cpu_dnnl_api, field) }
static const entry entries[] = {
    ENTRY(version),
    ENTRY(get_effective_cpu_isa),
    ENTRY(engine_create),
    ENTRY(engine_destroy),
    ENTRY(stream_create),
    ENTRY(stream_destroy),
    ENTRY(stream_wait),
    ENTRY(memory_desc_create_with_strides),
    ENTRY(memory_desc_destroy),
    ENTRY(memory_desc_get_size),
    ENTRY(memory_create),
    ENTRY(memory_destroy),
    ENTRY(memory_set_data_handle),
    ENTRY(matmul_primitive_desc_create),
    ENTRY(primitive_desc_destroy),
    ENTRY(primitive_desc_query),
    ENTRY(primitive_desc_query_md),
    ENTRY(primitive_create),
    ENTRY(primitive_execute),
    ENTRY(primitive_destroy),
    ENTRY(primitive_attr_create),
    ENTRY(primitive_attr_destroy),
    ENTRY(primitive_attr_set_scratchpad_mode),
    ENTRY(primitive_attr_set_fpmath_mode),
    ENTRY(primitive_attr_set_post_ops),
    ENTRY(post_ops_create),
    ENTRY(post_ops_destroy),
    ENTRY(post_ops_append_sum),
};
#undef ENTRY

int32_t cpu_dnnl_create(cpu_state *state, const char *library, cpu_dnnl **out_dnnl, bs_error *err) {
  cpu_dnnl *dnnl = calloc(1, sizeof *dnnl);
  (void)state;
  if (dnnl != NULL) dnnl->wanted = strdup(library);
  if (dnnl == NULL || dnnl->wanted == NULL || pthread_mutex_init(&dnnl->mutex, NULL) != 0) {
    if (dnnl != NULL) free(dnnl->wanted);
    free(dnnl);
    return bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for oneDNN's table");
  }
  *out_dnnl = dnnl;
  return BS_OK;
}

void cpu_dnnl_destroy(cpu_dnnl *dnnl) {
  if (dnnl == NULL) return;
  if (dnnl->lib.engine != NULL) (void)dnnl->lib.api.engine_destroy(dnnl->lib.engine);
  pthread_mutex_destroy(&dnnl->mutex);
  free(dnnl->wanted);
  free(dnnl);
}

/* A path of this plugin's own file; built into a program it is that program's. */
static void beside_plugin(char *out_path, size_t size) {
  static const char anchor = 0;
  Dl_info info;
  out_path[0] = '\0';
  if (dladdr(&anchor, &info) == 0 || info.dli_fname == NULL) return;
  const char *slash = strrchr(info.dli_fname, '/');
  if (slash == NULL) return;
  const int n =
      snprintf(out_path, size, "%.*s/../vendor/libdnnl.so.3", (int)(slash - info.dli_fname), info.dli_fname);
  if (n < 0 || (size_t)n >= size) out_path[0] = '\0';
}

static void *open_library(const char *wanted, char *why, size_t size) {
  char beside[PATH_MAX];
  const char *places[4] = {NULL, NULL, NULL, NULL};
  size_t count = 0;
  if (strcmp(wanted, "auto") != 0 && strcmp(wanted, "now") != 0) {
    places[count++] = wanted;
  } else {
    beside_plugin(beside, sizeof beside);
    if (beside[0] != '\0') places[count++] = beside;
    places[count++] = "libdnnl.so.3";
#ifdef BS_DNNL_BUILD_PATH
    places[count++] = BS_DNNL_BUILD_PATH;
#endif
  }
  for (size_t i = 0; i < count; i++) {
    void *handle = dlopen(places[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle != NULL) return handle;
    const char *text = dlerror();
    snprintf(why, size, "oneDNN not opened: %s", text != NULL ? text : places[i]);
  }
  return NULL;
}

static int fill_table(void *handle, cpu_dnnl_lib *lib) {
  for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
    void *symbol = dlsym(handle, entries[i].name);
    if (symbol == NULL) {
      snprintf(lib->text, sizeof lib->text, "oneDNN not used: it lacks %s", entries[i].name);
      return 0;
    }
    memcpy((char *)&lib->api + entries[i].offset, &symbol, sizeof symbol);
  }
  return 1;
}

/* With OpenMP this plugin must be able to set the width; other thread pools would compete with the rank's
 * team. */
static int check_runtime(void *handle, const dnnl_version_t *version, cpu_dnnl_lib *lib) {
  const char *runtime = "sequential";
  if (version->cpu_runtime == DNNL_RUNTIME_OMP) {
    void *set = dlsym(handle, "omp_set_num_threads"), *get = dlsym(handle, "omp_get_max_threads");
    if (set == NULL || get == NULL) {
      snprintf(lib->text, sizeof lib->text, "oneDNN %d.%d not used: its OpenMP width cannot be set",
               version->major, version->minor);
      return 0;
    }
    memcpy(&lib->omp_set_num_threads, &set, sizeof set);
    memcpy(&lib->omp_get_max_threads, &get, sizeof get);
    runtime = "OpenMP";
  } else if (version->cpu_runtime != DNNL_RUNTIME_SEQ) {
    snprintf(lib->text, sizeof lib->text,
             "oneDNN %d.%d not used: CPU runtime %u keeps threads of its own (need OpenMP or sequential)",
             version->major, version->minor, version->cpu_runtime);
    return 0;
  }
  snprintf(lib->text, sizeof lib->text, "oneDNN %d.%d.%d (%s)", version->major, version->minor,
           version->patch, runtime);
  return 1;
}

static void look(cpu_dnnl *dnnl) {
  cpu_dnnl_lib *lib = &dnnl->lib;
  if (strcmp(dnnl->wanted, "off") == 0) {
    lib->disabled = 1;
    snprintf(lib->text, sizeof lib->text, "oneDNN switched off (dnnl_library=off)");
    return;
  }
  void *handle = open_library(dnnl->wanted, lib->text, sizeof lib->text);
  if (handle == NULL || !fill_table(handle, lib)) return;
  const dnnl_version_t *version = lib->api.version();
  if (version->major < 3) {
    snprintf(lib->text, sizeof lib->text, "oneDNN %d.%d not used: need 3.0 or newer", version->major,
             version->minor);
    return;
  }
  if (!check_runtime(handle, version, lib)) return;
  const dnnl_status_t status = lib->api.engine_create(&lib->engine, dnnl_cpu, 0);
  if (status != dnnl_success) {
    lib->engine = NULL;
    snprintf(lib->text, sizeof lib->text, "oneDNN not used: no CPU engine (status %d)", (int)status);
    return;
  }
  lib->isa = (uint32_t)lib->api.get_effective_cpu_isa();
  lib->usable = 1;
}

const cpu_dnnl_lib *cpu_dnnl_open(cpu_dnnl *dnnl) {
  pthread_mutex_lock(&dnnl->mutex);
  if (!dnnl->looked) {
    look(dnnl);
    dnnl->looked = 1;
  }
  pthread_mutex_unlock(&dnnl->mutex);
  return &dnnl->lib;
}

int cpu_dnnl_is_auto(const cpu_dnnl *dnnl) {
  return strcmp(dnnl->wanted, "auto") == 0;
}

void cpu_dnnl_text(cpu_dnnl *dnnl, char *out_text, size_t size) {
  pthread_mutex_lock(&dnnl->mutex);
  snprintf(out_text, size, "%s",
           dnnl->looked ? dnnl->lib.text : "oneDNN opens when it is chosen or could be faster");
  pthread_mutex_unlock(&dnnl->mutex);
}

int cpu_dnnl_missing(cpu_dnnl *dnnl) {
  pthread_mutex_lock(&dnnl->mutex);
  const int missing = dnnl->looked && !dnnl->lib.usable;
  pthread_mutex_unlock(&dnnl->mutex);
  return missing;
}
