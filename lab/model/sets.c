/* SPDX-License-Identifier: MIT
 * sets.c - see sets.h. */
#include "lab/model/sets.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/error.h"

enum { PATH = 4096 };

static int32_t no_memory(bs_error *err) {
  return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for the inputs");
}

static void free_set(bs_set *set) {
  for (size_t i = 0; i < set->n; i++) free(set->words[i]);
  free(set->words);
  *set = (bs_set){0};
}

void bs_sets_free(bs_sets *sets) {
  for (size_t i = 0; i < sets->n; i++) free_set(&sets->rows[i]);
  free(sets->rows);
  *sets = (bs_sets){0};
}

static int is_file(const char *path) {
  struct stat st;
  return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* The files of the inputs in a folder. out->n < the inputs: *missing is the first without a file. */
static int32_t read_set(const char *folder, const bs_graph *graph, bs_set *out, const char **missing,
                        bs_error *err) {
  const uint32_t n = bs_graph_port_count(graph, 1);
  *out = (bs_set){.words = calloc(n + 1u, sizeof *out->words)};
  *missing = NULL;
  if (out->words == NULL) return no_memory(err);
  for (uint32_t i = 0; i < n; i++) {
    bs_port port = {.struct_size = sizeof port};
    char path[PATH];
    const int32_t rc = bs_graph_port(graph, 1, i, &port, err);
    if (rc != BS_OK) return rc;
    const int size = snprintf(path, sizeof path, "%s/%s.npy", folder, port.name);
    if (size < 0 || size >= PATH || strchr(port.name, '/') != NULL || !is_file(path)) {
      if (*missing == NULL) *missing = port.name;
      continue;
    }
    const size_t room = strlen(port.name) + (size_t)size + 2;
    char *word = malloc(room);
    if (word == NULL) return no_memory(err);
    snprintf(word, room, "%s=%s", port.name, path);
    out->words[out->n++] = word;
  }
  return BS_OK;
}

/* Adds the set of a folder, if it has one. */
static int32_t add(const char *folder, const bs_graph *graph, bs_sets *out, bs_error *err) {
  const char *missing = NULL;
  bs_set *set = &out->rows[out->n];
  int32_t rc = read_set(folder, graph, set, &missing, err);
  if (rc == BS_OK && missing == NULL) {
    out->n++;
    return BS_OK;
  }
  if (rc == BS_OK && set->n > 0) {
    rc = bs_error_set(err, BS_INPUT, "BS-QUANT-CALIBRATE",
                      "%.200s has %zu of the model's inputs, and no %.60s.npy", folder, set->n, missing);
    bs_error_hint(err, "a set of inputs is a folder with NAME.npy of each input");
  }
  free_set(set);
  return rc;
}

static int is_folder(const struct dirent *entry) {
  return entry->d_name[0] != '.';
}

static int32_t add_inner(const char *folder, const bs_graph *graph, bs_sets *out, bs_error *err) {
  struct dirent **names = NULL;
  const int n = scandir(folder, &names, is_folder, alphasort);
  int32_t rc = BS_OK;
  if (n < 0)
    return bs_error_errno(err, BS_INPUT, "BS-QUANT-CALIBRATE", errno, "cannot read the folder %.200s",
                          folder);
  for (int i = 0; i < n; i++) {
    char path[PATH];
    struct stat st;
    const int size = snprintf(path, sizeof path, "%s/%s", folder, names[i]->d_name);
    const int there = size > 0 && size < PATH && stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    if (rc == BS_OK && there && out->n >= BS_SETS_MOST)
      rc = bs_error_set(err, BS_INPUT, "BS-QUANT-CALIBRATE", "%.200s has more than %d sets of inputs", folder,
                        BS_SETS_MOST);
    if (rc == BS_OK && there) rc = add(path, graph, out, err);
    free(names[i]);
  }
  free(names);
  return rc;
}

int32_t bs_sets_read(const char *folder, const bs_graph *graph, bs_sets *out, bs_error *err) {
  *out = (bs_sets){.rows = calloc(BS_SETS_MOST + 1, sizeof *out->rows)};
  if (out->rows == NULL) return no_memory(err);
  int32_t rc = add(folder, graph, out, err);
  if (rc == BS_OK && out->n == 0) rc = add_inner(folder, graph, out, err);
  if (rc != BS_OK || out->n > 0) return rc;
  bs_port port = {.struct_size = sizeof port, .name = "NAME"};
  bs_graph_port(graph, 1, 0, &port, NULL);
  bs_error_set(err, BS_INPUT, "BS-QUANT-CALIBRATE", "%.200s holds no inputs of the model", folder);
  bs_error_hint(err, "it needs %.60s.npy and the other inputs, or folders with them", port.name);
  return BS_INPUT;
}
