/* SPDX-License-Identifier: MIT
 * owned.c - see owned.h. */
#include "lab/sweep/owned.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/text.h"
#include "lab/config/trust.h"
#include "lab/error.h"
#include "lab/store/own.h"
#include "lab/store/sha256.h"
#include "lab/store/store.h"

static int mark_of(const bs_sweep_folder *folder, const char *key_path, int make, char out[65]) {
  char sum[65];
  bs_text path = {0};
  bs_text_printf(&path, "%s/plan.jsonl", folder->path);
  const int whole = !path.failed && bs_sha256_file(path.data, sum, NULL) == BS_OK;
  bs_text_free(&path);
  return whole && bs_own_mark(key_path, make, sum, out);
}

void bs_plan_own(const bs_sweep_folder *folder, const char *key_path) {
  char mark[65];
  if (!mark_of(folder, key_path, 1, mark)) return;
  mark[64] = '\n';
  const int fd = openat(folder->fd, "plan.own", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd < 0) return;
  if (bs_store_write_all(fd, mark, sizeof mark) != 0) unlinkat(folder->fd, "plan.own", 0);
  close(fd);
}

static int is_own(const bs_sweep_folder *folder, const char *key_path) {
  char mark[65], found[65] = "";
  const int fd = openat(folder->fd, "plan.own", O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  const int whole = fd >= 0 && read(fd, found, sizeof found) == (ssize_t)sizeof found;
  if (fd >= 0) close(fd);
  return whole && mark_of(folder, key_path, 0, mark) && memcmp(mark, found, 64) == 0;
}

/* ---- what it names ------------------------------------------------------------------------------- */

static int32_t add_code(const char *yaml, json_t *code, bs_error *err) {
  bs_node *tree = NULL;
  size_t i;
  json_t *row;
  int32_t rc = bs_config_parse("plan.jsonl", yaml, strlen(yaml), &tree, err);
  json_t *rows = rc == BS_OK ? bs_config_code(tree) : NULL;
  if (rc == BS_OK && rows == NULL) rc = bs_no_memory(err, "a plan");
  json_array_foreach(rows, i, row) {
    bs_text text = {0};
    bs_text_printf(&text, "%s=%s", json_string_value(json_object_get(row, "key")),
                   json_string_value(json_object_get(row, "value")));
    if (text.failed || json_object_set_new(code, text.data, json_null()) != 0)
      rc = bs_no_memory(err, "a plan");
    bs_text_free(&text);
  }
  json_decref(rows);
  bs_config_free(tree);
  return rc;
}

static int32_t find_code(const json_t *header, const json_t *points, json_t *code, bs_error *err) {
  const char *base = json_string_value(json_object_get(header, "base"));
  int32_t rc = code == NULL ? bs_no_memory(err, "a plan") : BS_OK;
  if (rc == BS_OK && base != NULL) rc = add_code(base, code, err);
  for (size_t i = 0; rc == BS_OK && i < json_array_size(points); i++) {
    const json_t *configs = json_object_get(json_array_get(points, i), "configs");
    for (size_t k = 0; rc == BS_OK && k < json_array_size(configs); k++)
      rc = add_code(json_string_value(json_array_get(configs, k)), code, err);
  }
  return rc;
}

static int32_t refuse(const bs_sweep_folder *folder, const json_t *code, bs_error *err) {
  bs_text text = {0};
  const char *key;
  json_t *unused;
  json_object_foreach((json_t *)(uintptr_t)code, key, unused)
      bs_text_printf(&text, "%s%s", text.size > 0 ? ", " : "", key);
  bs_error_set(err, BS_CONFIG, "BS-SWEEP-CODE",
               "the plan of %.120s is not one that you have written here, and it names code or a command: "
               "%.300s",
               folder->path, text.data != NULL && !text.failed ? text.data : "");
  bs_error_hint(err, "--trust-config runs it");
  bs_text_free(&text);
  return BS_CONFIG;
}

int32_t bs_plan_judge(const bs_sweep_folder *folder, const char *key_path, int trusted, const json_t *header,
                      const json_t *points, json_t **out_code, bs_error *err) {
  *out_code = json_object();
  if (is_own(folder, key_path)) return BS_OK;
  const int32_t rc = find_code(header, points, *out_code, err);
  if (rc != BS_OK || trusted || json_object_size(*out_code) == 0) return rc;
  return refuse(folder, *out_code, err);
}
