/* SPDX-License-Identifier: MIT
 * hf_weights.c - the files of a folder: JSON objects of bounded size, and safetensors, one or several that an
 * index names. Called by hf.c. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/error.h"
#include "formats/map.h"
#include "graph/import/gguf.h"
#include "graph/import/hf.h"

enum { MAX_JSON = 16 << 20, MAX_FILES = 4096 };

/* folder/name, to be freed. */
static char *join(const char *folder, const char *name) {
  const size_t size = strlen(folder) + strlen(name) + 2;
  char *path = malloc(size);
  if (path != NULL) snprintf(path, size, "%s/%s", folder, name);
  return path;
}

static json_t *parse(const char *path, const bs_map *map, char *text, bs_error *err) {
  json_error_t bad;
  if (bs_map_pread(map, path, 0, text, map->bytes, err) != BS_OK) return NULL;
  json_t *root = json_loadb(text, (size_t)map->bytes, JSON_REJECT_DUPLICATES, &bad);
  if (json_is_object(root)) return root;
  if (root != NULL)
    bs_error_set(err, BS_INPUT, "BS-HF-JSON", "it is not a JSON object");
  else
    bs_error_set(err, BS_INPUT, "BS-HF-JSON", "line %d column %d: %.200s", bad.line, bad.column, bad.text);
  json_decref(root);
  return NULL;
}

json_t *hf_json(const char *folder, const char *name, bs_error *err) {
  bs_map map = {0};
  json_t *root = NULL;
  char *path = join(folder, name), *text = NULL;
  if (path == NULL) {
    model_no_memory(err);
    return NULL;
  }
  if (bs_map_open(path, "BS-HF-READ", &map, err) == BS_OK) {
    if (map.bytes > MAX_JSON)
      bs_error_set(err, BS_INPUT, "BS-HF-JSON", "%" PRIu64 " bytes; up to %d are read", map.bytes, MAX_JSON);
    else if ((text = malloc((size_t)map.bytes + 1)) == NULL)
      model_no_memory(err);
    else
      root = parse(path, &map, text, err);
  }
  if (root == NULL && err != NULL && err->where[0] == '\0') bs_error_where(err, "%s", path);
  free(text);
  bs_map_close(&map);
  free(path);
  return root;
}

static int32_t open_file(const char *folder, const char *name, hf_weights *w, bs_error *err) {
  hf_file *more = realloc(w->files, (w->n_files + 1) * sizeof *more);
  if (more == NULL) return model_no_memory(err);
  w->files = more;
  hf_file *file = &w->files[w->n_files];
  file->path = join(folder, name);
  if (file->path == NULL) return model_no_memory(err);
  const int32_t rc = bs_st_open(file->path, &file->st, err);
  if (rc == BS_OK)
    w->n_files++;
  else
    free(file->path);
  return rc;
}

/* A name in the folder itself. */
static int is_plain(const char *name) {
  return name[0] != '\0' && name[0] != '.' && strchr(name, '/') == NULL && strlen(name) < 256;
}

/* Each file of the index once. */
static int32_t open_files(const char *folder, const json_t *map, hf_weights *w, bs_error *err) {
  bs_names seen = {0};
  int32_t rc = BS_OK;
  const char *tensor;
  json_t *value;
  const size_t count = json_object_size(map);
  bs_span *names = calloc(count + 1, sizeof *names);
  size_t n = 0;
  if (names == NULL) return model_no_memory(err);
  json_object_foreach((json_t *)(uintptr_t)map, tensor, value) {
    const char *name = json_string_value(value);
    if (name == NULL || !is_plain(name)) {
      rc = bs_error_set(err, BS_INPUT, "BS-HF-INDEX", "the file of tensor '%.100s' is no name in this folder",
                        tensor);
      break;
    }
    names[n] = (bs_span){name, strlen(name)};
    const int added = bs_names_add(&seen, &names[n], 0);
    if (added < 0) rc = model_no_memory(err);
    if (added > 0 && w->n_files >= MAX_FILES)
      rc = bs_error_set(err, BS_INPUT, "BS-HF-INDEX", "more than %d files", MAX_FILES);
    if (rc == BS_OK && added > 0) rc = open_file(folder, name, w, err);
    if (rc != BS_OK) break;
    n++;
  }
  bs_names_free(&seen);
  free(names);
  return rc;
}

static int32_t index_tensors(hf_weights *w, bs_error *err) {
  uint64_t count = 0;
  for (uint32_t i = 0; i < w->n_files; i++) count += w->files[i].st.count;
  if (count > BS_ST_MAX_TENSORS)
    return bs_error_set(err, BS_INPUT, "BS-HF-INDEX", "%" PRIu64 " tensors, cap %u", count,
                        BS_ST_MAX_TENSORS);
  w->spans = calloc((size_t)count + 1, sizeof *w->spans);
  w->tensors = calloc((size_t)count + 1, sizeof *w->tensors);
  w->read = calloc((size_t)count + 1, 1);
  if (w->spans == NULL || w->tensors == NULL || w->read == NULL) return model_no_memory(err);
  for (uint32_t i = 0; i < w->n_files; i++)
    for (uint64_t k = 0; k < w->files[i].st.count; k++) {
      const bs_st_tensor *t = &w->files[i].st.tensors[k];
      bs_span *span = &w->spans[w->n_tensors];
      *span = (bs_span){t->name, strlen(t->name)};
      const int added = bs_names_add(&w->by_name, span, w->n_tensors);
      if (added < 0) return model_no_memory(err);
      if (added == 0)
        return bs_error_set(err, BS_INPUT, "BS-HF-INDEX", "tensor '%.200s' is in two files", t->name);
      w->tensors[w->n_tensors++] = t;
    }
  return BS_OK;
}

static int exists(const char *folder, const char *name) {
  struct stat st;
  char *path = join(folder, name);
  const int found = path != NULL && stat(path, &st) == 0;
  free(path);
  return found;
}

int hf_weights_in(const char *folder) {
  return exists(folder, "model.safetensors") || exists(folder, "model.safetensors.index.json");
}

int32_t hf_weights_open(const char *folder, hf_weights *w, bs_error *err) {
  static const char index_name[] = "model.safetensors.index.json";
  int32_t rc;
  memset(w, 0, sizeof *w);
  if (exists(folder, "model.safetensors") || !exists(folder, index_name)) {
    rc = open_file(folder, "model.safetensors", w, err);
  } else {
    json_t *index = hf_json(folder, index_name, err);
    const json_t *map = json_object_get(index, "weight_map");
    if (index == NULL)
      rc = err != NULL && err->code != BS_OK ? err->code : BS_INPUT;
    else if (!json_is_object(map))
      rc = bs_error_set(err, BS_INPUT, "BS-HF-INDEX", "it has no object 'weight_map'");
    else
      rc = open_files(folder, map, w, err);
    json_decref(index);
    if (rc != BS_OK && err != NULL && err->where[0] == '\0') bs_error_where(err, "%s/%s", folder, index_name);
  }
  if (rc == BS_OK) rc = index_tensors(w, err);
  if (rc != BS_OK) hf_weights_close(w);
  return rc;
}

int32_t hf_weights_unchanged(const hf_weights *w, bs_error *err) {
  if (w->gguf != NULL) return gguf_weights_unchanged(w->gguf, err);
  for (uint32_t i = 0; i < w->n_files; i++) {
    const int32_t rc = bs_map_unchanged(&w->files[i].st.map, w->files[i].path, err);
    if (rc != BS_OK) return rc;
  }
  return BS_OK;
}

void hf_weights_close(hf_weights *w) {
  for (uint32_t i = 0; i < w->n_files; i++) {
    bs_st_close(&w->files[i].st);
    free(w->files[i].path);
  }
  if (w->gguf != NULL) gguf_weights_close(w->gguf);
  hf_shapes_close(w->shapes);
  bs_names_free(&w->by_name);
  free(w->files);
  free(w->spans);
  free((void *)w->tensors);
  free(w->read);
  memset(w, 0, sizeof *w);
}

const char *hf_weights_name(const hf_weights *w, const char *name, char buffer[200]) {
  return w->gguf != NULL ? gguf_tensor_name(w->gguf, name, buffer) : name;
}

static const uint32_t *place(const hf_weights *w, const char *name) {
  char buffer[GGUF_NAME];
  name = hf_weights_name(w, name, buffer);
  return bs_names_find(&w->by_name, (bs_span){name, strlen(name)});
}

const bs_st_tensor *hf_weights_find(const hf_weights *w, const char *name) {
  const uint32_t *found = place(w, name);
  return found == NULL ? NULL : w->tensors[*found];
}

void hf_weights_use(const hf_weights *w, const char *name) {
  const uint32_t *found = place(w, name);
  if (found != NULL) w->read[*found] = 1;
}
