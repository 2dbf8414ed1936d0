/* SPDX-License-Identifier: MIT
 * fsck_plan.c - checks <folder>/plan.jsonl: a header, a line a point, and a last line {n, sha256} over all
 * bytes before it. Counts how many of the planned keys have a run. */
#include "lab/store/fsck_plan.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lab/error.h"
#include "lab/store/env.h"
#include "lab/store/folder.h"
#include "lab/store/plan_text.h"

static int has(const json_t *point, const char *key) {
  const json_t *value = json_object_get(point, key);
  return value != NULL && !json_is_null(value);
}

/* {key: false} of all phases of the points that were to run. */
static json_t *planned_keys(const json_t *points) {
  json_t *planned = json_object(), *point, *key;
  size_t i, k;
  json_array_foreach((json_t *)(uintptr_t)points, i, point) {
    const json_t *keys = json_object_get(point, "keys");
    if (has(point, "duplicate_of") || has(point, "refused")) continue;
    json_array_foreach((json_t *)(uintptr_t)keys, k, key)
        json_object_set_new(planned, json_string_value(key), json_false());
  }
  return planned;
}

static int lies_below(const char *path, const char *folder) {
  const size_t n = strlen(folder);
  return n == 0 || (strncmp(path, folder, n) == 0 && path[n] == '/');
}

static int32_t count(const char *folder, const json_t *points, const json_t *keys, bs_fsck *out,
                     bs_error *err) {
  json_t *planned = planned_keys(points), *row;
  json_int_t committed = 0, foreign = 0, torn = 0;
  size_t i;
  json_array_foreach((json_t *)(uintptr_t)keys, i, row) {
    const char *key = json_string_value(json_object_get(row, "request_key"));
    const json_t *known = key != NULL ? json_object_get(planned, key) : NULL;
    if (!lies_below(json_string_value(json_object_get(row, "run")), folder)) continue;
    foreign += known == NULL;
    committed += json_is_false(known);
    if (known != NULL) json_object_set_new(planned, key, json_true());
  }
  json_array_foreach(out->rows, i, row) {
    torn += strcmp(json_string_value(json_object_get(row, "state")), "torn") == 0 &&
            lies_below(json_string_value(json_object_get(row, "run")), folder);
  }
  json_t *told = json_pack("{s:o, s:I, s:I, s:I, s:I}", "sweep", bs_env_string(folder), "planned",
                           (json_int_t)json_object_size(planned), "committed", committed, "foreign", foreign,
                           "torn", torn);
  json_decref(planned);
  return told != NULL && json_array_append_new(out->sweeps, told) == 0 ? BS_OK : bs_no_memory(err, "rows");
}

static int32_t check_plan(int fd, const char *folder, const json_t *keys, bs_fsck *out, bs_error *err) {
  char *text;
  size_t size;
  int32_t rc = bs_folder_file(fd, "plan.jsonl", &text, &size, err);
  if (rc != BS_OK || text == NULL) return rc;
  json_t *header, *points;
  const char *why;
  rc = bs_plan_text_read(text, size, &header, &points, &why, err);
  free(text);
  if (rc == BS_OK) {
    rc = count(folder, points, keys, out, err);
  } else if (why != NULL) {
    char what[96];
    snprintf(what, sizeof what, "plan.jsonl: %s", why);
    out->damaged++;
    rc = BS_OK;
    json_t *row = json_pack("{s:o, s:s, s:s, s:n}", "run", bs_env_string(folder), "state", "damaged", "what",
                            what, "done");
    if (row == NULL || json_array_append_new(out->rows, row) != 0) rc = bs_no_memory(err, "rows");
  }
  json_decref(header);
  json_decref(points);
  return rc;
}

int32_t bs_fsck_plans(const char *root, const json_t *keys, bs_fsck *out, bs_error *err) {
  const int fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return BS_OK; /* the walk has reported it */
  int32_t rc = check_plan(fd, "", keys, out, err);
  const int own = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *dir = own < 0 ? NULL : fdopendir(own);
  const struct dirent *entry;
  while (rc == BS_OK && dir != NULL && (entry = readdir(dir)) != NULL) {
    if (entry->d_name[0] == '.') continue;
    const int below = openat(fd, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (below < 0) continue;
    rc = check_plan(below, entry->d_name, keys, out, err);
    close(below);
  }
  if (dir != NULL)
    closedir(dir);
  else if (own >= 0)
    close(own);
  close(fd);
  return rc;
}
