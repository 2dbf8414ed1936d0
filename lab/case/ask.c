/* SPDX-License-Identifier: MIT
 * ask.c - see ask.h. */
#include "lab/case/ask.h"

#include <string.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "lab/error.h"
#include "lab/peers/peers.h"
#include "lab/store/env.h"

const char *bs_tune_text(const json_t *object, const char *key) {
  const char *value = json_string_value(json_object_get(object, key));
  return value != NULL ? value : "";
}

int bs_tune_names(const char *choice, const char *name) {
  const size_t length = strcspn(choice, "{");
  return strlen(name) == length && memcmp(choice, name, length) == 0;
}

const json_t *bs_tune_row(const json_t *list, const char *name) {
  size_t i;
  const json_t *row;
  json_array_foreach(list, i, row) if (strcmp(bs_tune_text(row, "name"), name) == 0) return row;
  return NULL;
}

static int32_t build(bs_rank *rank, void *arg, bs_error *err) {
  const bs_case *c = arg;
  bs_layer *layer = NULL;
  const int32_t rc = bs_layer_build(rank, c->method, &c->spec, c->w, c->bias, &layer, err);
  bs_layer_free(layer);
  return rc;
}

/* The plugin file, or the build of the library, of a candidate's plugin. */
static const char *identity(const json_t *plugins, const char *name, size_t length) {
  size_t i;
  const json_t *p;
  json_array_foreach(plugins, i, p) {
    const char *id = json_string_value(json_object_get(p, "id"));
    const char *sum = json_string_value(json_object_get(p, "sha256"));
    if (id == NULL || strlen(id) != length || memcmp(id, name, length) != 0) continue;
    return sum != NULL ? sum : json_string_value(json_object_get(p, "library_build_id"));
  }
  return NULL;
}

json_t *bs_tune_candidate(const json_t *plugins, const char *name, const char *how) {
  const char *sum = identity(plugins, name, strcspn(name, ":"));
  return json_pack("{s:o,s:o,s:s}", "name", bs_env_string(name), "how", bs_env_string(how), "plugin",
                   sum != NULL ? sum : "");
}

json_t *bs_tune_candidates(const json_t *plugins, const char *lines) {
  json_t *list = json_array();
  for (const char *at = lines; *at != '\0';) {
    char line[512];
    const size_t length = strcspn(at, "\n");
    snprintf(line, sizeof line, "%.*s", (int)length, at);
    char *tab = strchr(line, '\t');
    if (tab != NULL) *tab = '\0';
    json_array_append_new(list, bs_tune_candidate(plugins, line, tab != NULL ? tab + 1 : ""));
    at += length + (at[length] == '\n');
  }
  return list;
}

static int listed(const json_t *list, const char *key) {
  size_t i;
  const json_t *asked;
  json_array_foreach(list, i, asked) if (strcmp(bs_tune_text(asked, "key"), key) == 0) return 1;
  return 0;
}

/* The sorted place of `key` in the list from `first` on: ranks ask in any order, and a replay must write the
 * same pins. */
static size_t place_of(const json_t *list, size_t first, const char *key) {
  while (first < json_array_size(list) && strcmp(bs_tune_text(json_array_get(list, first), "key"), key) < 0)
    first++;
  return first;
}

static int32_t collect(const bs_case *c, const bs_world *world, json_t *list, bs_error *err) {
  json_t *plugins = NULL; /* the op's plugins are open by now */
  const size_t first = json_array_size(list);
  int32_t rc = bs_env_plugins(c->context, &plugins, err);
  for (uint32_t i = 0; rc == BS_OK && i < bs_world_choice_count(world); i++) {
    bs_choice_info info = {.struct_size = sizeof info};
    rc = bs_world_choice_get(world, i, &info, err);
    if (rc != BS_OK || info.chosen[0] == '\0' || info.key[0] == '\0' || listed(list, info.key)) continue;
    json_t *asked = json_pack("{s:s,s:s,s:o}", "key", info.key, "default", info.chosen, "candidates",
                              bs_tune_candidates(plugins, info.candidates));
    if (asked == NULL || json_array_insert_new(list, place_of(list, first, info.key), asked) != 0)
      rc = bs_no_memory(err, "what was asked");
  }
  json_decref(plugins);
  return rc;
}

int32_t bs_tune_rehearse(const bs_case *c, bs_world **out, bs_error *err) {
  const bs_world_options options = {.struct_size = sizeof options,
                                    .world_size = c->world_size,
                                    .backend = c->backend,
                                    .comm = bs_peers_alone(c->context, c->comm),
                                    .threads_per_rank = c->threads_per_rank,
                                    .timeout_s = c->timeout_s,
                                    .choices = c->choices,
                                    .n_choices = c->n_choices,
                                    .rehearse = 1};
  bs_case copy = *c;
  *out = NULL;
  const int32_t rc = bs_world_create(c->context, &options, out, err);
  return rc == BS_OK ? bs_world_run(*out, build, &copy, err) : rc;
}

int32_t bs_tune_ask(const bs_case *c, json_t *list, bs_error *err) {
  bs_case open = *c;
  bs_world *world = NULL;
  open.choices = NULL;
  open.n_choices = 0;
  int32_t rc = bs_tune_rehearse(&open, &world, err);
  if (rc == BS_OK) rc = collect(c, world, list, err);
  bs_world_destroy(world);
  return rc;
}

/* ---- a plan that is prepared and never run ------------------------------------------------------ */

static int32_t zeros(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                     void *out, int64_t out_stride, bs_error *err) {
  const bs_source *of = ctx;
  const int64_t count = cols != NULL ? cols->count : of->cols;
  const size_t size = BS_DTYPE_BYTES(dtype);
  (void)row;
  (void)err;
  for (int64_t r = 0; r < nrows; r++)
    memset((char *)out + (size_t)(r * out_stride) * size, 0, (size_t)count * size);
  return BS_OK;
}

static int32_t prepare(bs_rank *rank, const bs_op_query *query, bs_op_echo *out, bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  bs_packed *packed = NULL;
  bs_plan *plan = NULL;
  int32_t rc = BS_OK;
  if (strcmp(query->op, "matmul") == 0 || strcmp(query->op, "matmul24") == 0) {
    bs_source w = {.struct_size = sizeof w, .dtype = query->weight_dtype, .read = zeros};
    w.ctx = &w;
    w.rows = query->args[3]->dims[1];
    w.cols = query->partition != NULL ? query->partition->total : query->args[0]->dims[1];
    const uint64_t each = BS_DTYPE_BYTES(w.dtype);
    if ((double)w.rows * (double)w.cols * (double)each > 256.0 * 1048576)
      return bs_error_set(err, BS_UNSUPPORTED, "BS-TUNE-LARGE",
                          "a weight of %lld x %lld is not packed to ask", (long long)w.rows,
                          (long long)w.cols);
    rc = api->pack(rank, query, &w, &packed, err);
  }
  if (rc == BS_OK) rc = api->op_prepare(rank, query, packed, &plan, err);
  const bs_op_echo *echo = rc == BS_OK ? bs_plan_echo(plan) : NULL;
  if (rc == BS_OK && echo == NULL)
    rc = bs_error_set(err, BS_UNSUPPORTED, "BS-TUNE-SILENT", "the plan says nothing of itself");
  if (rc == BS_OK) *out = *echo;
  if (plan != NULL) api->op_release(plan);
  if (packed != NULL) api->packed_release(packed);
  return rc;
}

static void take_key(void *user, const bs_op_candidate *c) {
  bs_text *t = user;
  if (t->size == 0) bs_text_printf(t, "%s", c->key);
}

int32_t bs_tune_echo(bs_context *context, const char *backend, uint32_t threads, const bs_op_query *query,
                     const char *choice, bs_op_echo *out, bs_error *err) {
  const bs_op_site site = {.struct_size = sizeof site, .threads = threads, .world_size = 1};
  bs_text text = {0};
  bs_world *world = NULL;
  bs_rank *rank = NULL;
  int32_t rc = bs_op_explain_at(context, backend, &site, query, take_key, &text, err);
  bs_text_printf(&text, " -> %s", choice);
  if (rc == BS_OK && text.failed) rc = bs_no_memory(err, "a choice");
  const char *const choices[] = {text.data};
  const bs_world_options options = {.struct_size = sizeof options,
                                    .world_size = 1,
                                    .backend = backend,
                                    .threads_per_rank = threads,
                                    .choices = choices,
                                    .n_choices = 1};
  if (rc == BS_OK) rc = bs_world_create(context, &options, &world, err);
  if (rc == BS_OK) rc = bs_world_enter(world, &rank, err);
  if (rc == BS_OK) {
    rc = prepare(rank, query, out, err);
    (void)bs_world_leave(world, NULL);
  }
  bs_world_destroy(world);
  bs_text_free(&text);
  return rc;
}
