/* SPDX-License-Identifier: MIT
 * onnx.c - opening an ONNX model or a tensor's own file: ModelProto, the queue of graphs, opsets, and what an
 * open model holds (onnx.h). Called by importers and tests. */
#include "formats/onnx.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "formats/onnx_graph.h"

static int32_t opset_field(bs_onnx_reader *r, void *record, const bs_pb_field *f, bs_error *err) {
  bs_onnx_opset *opset = record;
  (void)r;
  if (f->number == 1) return bs_onnx_domain(f, &opset->domain, err);
  if (f->number != 2) return BS_OK;
  opset->version = (int64_t)f->value;
  return bs_pb_want(f, BS_PB_VARINT, err);
}

int32_t bs_onnx_read_opset(bs_onnx_reader *r, bs_pb body, bs_onnx_opset *out, bs_error *err) {
  return bs_onnx_fields(r, body, opset_field, out, err);
}

static int32_t model_field(bs_onnx_reader *r, void *record, const bs_pb_field *f, bs_error *err) {
  bs_onnx *m = record;
  int32_t rc;
  switch (f->number) {
    case 1:
      m->ir_version = (int64_t)f->value;
      return bs_pb_want(f, BS_PB_VARINT, err);
    case 2:
      return bs_onnx_name(f, &m->producer, err);
    case 3:
      return bs_onnx_name(f, &m->producer_version, err);
    case 7:
      rc = bs_pb_want(f, BS_PB_BYTES, err);
      return rc == BS_OK ? bs_onnx_queue_graph(r, f->body, 0, &m->graph, err) : rc;
    case 8:
      rc = bs_pb_want(f, BS_PB_BYTES, err);
      return rc == BS_OK ? bs_onnx_read_opset(r, f->body, &m->opsets[m->n_opsets++], err) : rc;
    case 25:
      rc = bs_pb_want(f, BS_PB_BYTES, err);
      return rc == BS_OK ? bs_onnx_read_function(r, f->body, &m->functions[m->n_functions++], err) : rc;
    default:
      return BS_OK;
  }
}

/* Domains of opsets, and functions by domain, name and overload, are there once. Their lists are short:
 * longer ones are refused, so that comparing all pairs stays cheap. */
static int32_t check_lists(const bs_onnx *m, bs_error *err) {
  uint32_t opsets = m->n_opsets;
  for (uint32_t i = 0; i < m->n_functions; i++)
    if (m->functions[i].n_opsets > opsets) opsets = m->functions[i].n_opsets;
  if (opsets > 256 || m->n_functions > 4096)
    return bs_error_set(err, BS_INPUT, "BS-ONNX-COUNT", "%u opsets and %u functions; 256 and 4096 are read",
                        opsets, m->n_functions);
  for (uint32_t i = 0; i < m->n_opsets; i++)
    for (uint32_t j = 0; j < i; j++)
      if (bs_span_same(m->opsets[i].domain, m->opsets[j].domain))
        return bs_error_set(err, BS_INPUT, "BS-ONNX-TWICE", "the opset of domain '%.*s' is imported twice",
                            BS_SPAN_PRINT(m->opsets[i].domain));
  for (uint32_t i = 0; i < m->n_functions; i++)
    for (uint32_t j = 0; j < i; j++) {
      const bs_onnx_function *a = &m->functions[i], *b = &m->functions[j];
      if (bs_span_same(a->name, b->name) && bs_span_same(a->domain, b->domain) &&
          bs_span_same(a->overload, b->overload))
        return bs_error_set(err, BS_INPUT, "BS-ONNX-TWICE", "function '%.*s' is defined twice",
                            BS_SPAN_PRINT(a->name));
    }
  return BS_OK;
}

#define A_MODEL "a file .onnx, a folder with config.json or vectors.txt, or builtin:lm"

static int32_t not_onnx(uint64_t graphs, bs_error *err) {
  bs_error_set(err, BS_INPUT, "BS-ONNX-GRAPH",
               "this is no ONNX file: it has %" PRIu64 " graphs, a model has one", graphs);
  bs_error_hint(err, A_MODEL);
  return BS_INPUT;
}

static int32_t read_model(bs_onnx_reader *r, bs_pb body, bs_onnx *m, bs_error *err) {
  uint64_t counts[26];
  int32_t rc = bs_pb_count(body, counts, 26, err);
  if (rc != BS_OK) bs_error_hint(err, "this is no ONNX file, or it is damaged; give " A_MODEL);
  if (rc != BS_OK) return rc;
  if (counts[7] != 1) return not_onnx(counts[7], err);
  rc = bs_onnx_list(r, &body, counts[8], 2, sizeof *m->opsets, &m->opsets, err);
  if (rc == BS_OK) rc = bs_onnx_list(r, &body, counts[25], 5, sizeof *m->functions, &m->functions, err);
  if (rc == BS_OK) rc = bs_onnx_fields(r, body, model_field, m, err);
  if (rc == BS_OK) rc = check_lists(m, err);
  for (bs_onnx_pending *p = r->first; rc == BS_OK && p != NULL; p = p->next)
    rc = bs_onnx_read_graph(r, p->body, &p->graph, err);
  return rc;
}

int32_t bs_onnx_store_new(const char *path, const char *folder, struct bs_onnx_store **out, bs_error *err) {
  struct bs_onnx_store *store = calloc(1, sizeof *store);
  *out = store;
  if (store != NULL) {
    store->folder_fd = -1;
    store->path = bs_strdup(path);
    store->folder = folder == NULL ? NULL : bs_strdup(folder);
    if (store->path != NULL && (folder == NULL || store->folder != NULL)) return BS_OK;
  }
  return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "memory for a model is not to be had");
}

void bs_onnx_store_free(struct bs_onnx_store *store) {
  if (store == NULL) return;
  for (uint32_t i = 0; i < store->n_files; i++) {
    bs_map_close(&store->files[i]->map);
    free(store->files[i]);
  }
  free(store->files);
  bs_names_free(&store->by_location);
  if (store->folder_fd >= 0) close(store->folder_fd);
  bs_map_close(&store->map);
  bs_arena_free(&store->arena);
  free(store->folder);
  free(store->path);
  free(store);
}

/* The folder of a path, to be freed; NULL: no memory. */
static char *folder_of(const char *path) {
  const char *slash = strrchr(path, '/');
  char *folder = bs_strdup(slash == NULL ? "." : path);
  if (folder != NULL && slash != NULL) folder[slash == path ? 1 : slash - path] = '\0';
  return folder;
}

/* The store of a path, its file open and mapped. */
static int32_t open_store(const char *path, struct bs_onnx_store **out, bs_error *err) {
  bs_map map;
  int32_t rc = bs_map_open(path, "BS-ONNX-READ", &map, err);
  if (rc != BS_OK) return rc;
  char *folder = folder_of(path);
  rc = folder == NULL ? bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "memory for a path is not to be had")
                      : bs_onnx_store_new(path, folder, out, err);
  free(folder);
  if (rc != BS_OK) {
    bs_map_close(&map);
    return rc;
  }
  (*out)->map = map;
  return bs_map_guard(&(*out)->map, path, err);
}

static bs_pb message_of(const void *bytes, uint64_t size) {
  static const unsigned char nothing[1] = {0};
  const unsigned char *at = size == 0 ? nothing : bytes;
  return (bs_pb){at, at + size, at};
}

static void begin(bs_onnx_reader *r, struct bs_onnx_store *store, uint64_t bytes) {
  *r = (bs_onnx_reader){.store = store};
  r->last = &r->first;
  store->arena.limit = bytes > (UINT64_MAX >> 6) ? UINT64_MAX : BS_ONNX_HEAP(bytes);
}

/* The end of an open: the files are still what they were, the sums are kept, or all is closed again. */
static int32_t finish(int32_t rc, const void *bytes, uint64_t size, bs_onnx *m, bs_error *err) {
  static const char lfs[] = "version https://git-lfs";
  int32_t changed = m->store->map.is_open ? bs_onnx_unchanged(m, rc == BS_OK ? err : NULL) : BS_OK;
  if (rc == BS_OK) rc = changed;
  m->file_bytes = m->mapped_bytes = size;
  for (uint32_t i = 0; i < m->store->n_files; i++) m->mapped_bytes += m->store->files[i]->map.bytes;
  m->heap = m->store->arena.used;
  if (rc == BS_OK) return rc;
  if (err != NULL && err->where[0] == '\0') bs_error_where(err, "%s", m->store->path);
  if (size >= sizeof lfs - 1 && memcmp(bytes, lfs, sizeof lfs - 1) == 0)
    bs_error_hint(err, "the file is a pointer of Git LFS: git lfs pull");
  bs_onnx_close(m);
  return rc;
}

int32_t bs_onnx_parse(const void *bytes, uint64_t size, const char *name, const char *folder,
                      bs_onnx *out_model, bs_error *err) {
  bs_onnx_reader r;
  memset(out_model, 0, sizeof *out_model);
  bs_error_clear(err);
  int32_t rc = bs_onnx_store_new(name, folder, &out_model->store, err);
  if (rc != BS_OK) {
    bs_onnx_close(out_model);
    return rc;
  }
  begin(&r, out_model->store, size);
  rc = read_model(&r, message_of(bytes, size), out_model, err);
  return finish(rc, bytes, size, out_model, err);
}

int32_t bs_onnx_open(const char *path, bs_onnx *out_model, bs_error *err) {
  bs_onnx_reader r;
  memset(out_model, 0, sizeof *out_model);
  bs_error_clear(err);
  int32_t rc = open_store(path, &out_model->store, err);
  if (rc != BS_OK) {
    bs_onnx_close(out_model);
    return rc;
  }
  const bs_map *map = &out_model->store->map;
  begin(&r, out_model->store, map->bytes);
  rc = read_model(&r, message_of(map->data, map->bytes), out_model, err);
  return finish(rc, map->data, map->bytes, out_model, err);
}

int32_t bs_onnx_unchanged(const bs_onnx *model, bs_error *err) {
  const struct bs_onnx_store *store = model->store;
  int32_t rc = store->map.is_open ? bs_map_unchanged(&store->map, store->path, err) : BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < store->n_files; i++) {
    const bs_onnx_file *file = store->files[i];
    char name[160];
    snprintf(name, sizeof name, "%.*s", BS_SPAN_PRINT(file->location));
    rc = bs_map_unchanged(&file->map, name, err);
  }
  return rc;
}

void bs_onnx_close(bs_onnx *model) {
  bs_onnx_store_free(model->store);
  memset(model, 0, sizeof *model);
}

int32_t bs_onnx_pb_open(const char *path, bs_onnx_pb *out_file, bs_error *err) {
  bs_onnx_reader r;
  memset(out_file, 0, sizeof *out_file);
  bs_error_clear(err);
  int32_t rc = open_store(path, &out_file->store, err);
  if (rc == BS_OK) {
    const bs_map *map = &out_file->store->map;
    begin(&r, out_file->store, map->bytes);
    rc = bs_onnx_read_tensor(&r, message_of(map->data, map->bytes), 0, &out_file->tensor, err);
    if (rc == BS_OK) rc = bs_map_unchanged(map, path, err);
  }
  if (rc == BS_OK) return rc;
  if (err != NULL && err->where[0] == '\0') bs_error_where(err, "%s", path);
  bs_onnx_pb_close(out_file);
  return rc;
}

void bs_onnx_pb_close(bs_onnx_pb *file) {
  bs_onnx_store_free(file->store);
  memset(file, 0, sizeof *file);
}
