/* SPDX-License-Identifier: MIT
 * same.c - facts that ranks that are processes must share in addition to their configuration: this program,
 * the plugins and the files that they read. Another machine may have different ones with the same names. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "lab/run/run.h"
#include "lab/store/env.h"
#include "lab/store/file_sum.h"

/* Adds one file of the workload; its reader reports a file that cannot be read. */
static void add_file(const char *key, const char *path, bs_text *out) {
  struct stat st;
  char hex[65];
  int whole;
  if (stat(path, &st) != 0 || !S_ISREG(st.st_mode)) return;
  if (bs_file_sum_parts(path, hex, &whole, NULL) != BS_OK) return;
  const char *name = strrchr(path, '/');
  bs_text_printf(out, "workload.%s: %s: %lld bytes, sha256 %.16s\n", key, name != NULL ? name + 1 : path,
                 (long long)st.st_size, hex);
}

static int is_shown(const struct dirent *e) {
  return e->d_name[0] != '.';
}

/* Adds what a setting of the workload names: a file ("x.npy", "x.safetensors#tensor"), a folder of files, or
 * nothing. */
static void add_path(const char *key, const char *value, bs_text *out) {
  struct dirent **entries = NULL;
  char path[4096];
  snprintf(path, sizeof path, "%.*s", (int)strcspn(value, "#"), value);
  const int n = scandir(path, &entries, is_shown, alphasort);
  if (n < 0) add_file(key, path, out);
  for (int i = 0; i < n; i++) {
    bs_text one = {0};
    bs_text_printf(&one, "%s/%s", path, entries[i]->d_name);
    if (!one.failed) add_file(key, one.data, out);
    bs_text_free(&one);
    free(entries[i]);
  }
  free(entries);
}

int32_t lab_run_same_text(bs_context *context, const bs_experiment *e, bs_text *out, bs_error *err) {
  json_t *plugins = NULL;
  const int32_t rc = bs_env_plugins(context, &plugins, err);
  if (rc != BS_OK) return rc;
  bs_text_printf(out, "bsrun: build %s\n", bs_build_id());
  for (size_t i = 0; i < json_array_size(plugins); i++) {
    const json_t *row = json_array_get(plugins, i);
    const char *sum = json_string_value(json_object_get(row, "sha256"));
    if (sum != NULL)
      bs_text_printf(out, "plugin %s: sha256 %.16s\n", json_string_value(json_object_get(row, "id")), sum);
  }
  json_decref(plugins);
  for (uint32_t i = 0; i < e->n_workload_options; i++)
    if (e->workload_values[i][0] != '\0') add_path(e->workload_keys[i], e->workload_values[i], out);
  return out->failed ? bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory") : BS_OK;
}
