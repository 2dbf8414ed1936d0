/* SPDX-License-Identifier: MIT
 * record.c - see record.h. */
#include "lab/store/record.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "lab/error.h"
#include "lab/store/sha256.h"
#include "lab/store/store.h"

json_t *bs_record_number(double value) {
  return isfinite(value) ? json_real(value) : json_null();
}

static int is_bookkeeping(const char *key) {
  return strcmp(key, "run_id") == 0 || strcmp(key, "config_paths") == 0 || strcmp(key, "logging") == 0;
}

int32_t bs_record_add(json_t *record, json_t *fields, bs_error *err) {
  const int bad = json_object_update(record, fields);
  json_decref(fields);
  return bad ? bs_no_memory(err, "a record") : BS_OK;
}

/* The tree without the keys that do not change a result. */
static int32_t add_config(bs_sha256 *h, const bs_node *config, bs_error *err) {
  bs_node *copy = bs_config_clone(config);
  bs_text text = {0};
  if (copy == NULL) return bs_no_memory(err, "a record");
  for (bs_node **link = &copy->first; *link != NULL;) {
    bs_node *node = *link;
    if (node->key != NULL && is_bookkeeping(node->key)) {
      *link = node->next;
      node->next = NULL;
      bs_config_free(node);
    } else {
      link = &node->next;
    }
  }
  bs_config_print(copy, &text);
  if (!text.failed) bs_sha256_field(h, text.data == NULL ? "" : text.data);
  const int failed = text.failed;
  bs_text_free(&text);
  bs_config_free(copy);
  return failed ? bs_no_memory(err, "a record") : BS_OK;
}

/* The contents of the file that a value names ("path" or "path#tensor"); other values are in the tree. */
static int32_t add_file(bs_sha256 *h, const char *key, const char *value, json_t *out_inputs, bs_error *err) {
  char path[4096], hex[65];
  struct stat st;
  if (strlen(value) >= sizeof path) return BS_OK;
  snprintf(path, sizeof path, "%.*s", (int)strcspn(value, "#"), value);
  if (strchr(path, '/') == NULL && strchr(path, '.') == NULL) return BS_OK;
  if (stat(path, &st) != 0 || !S_ISREG(st.st_mode)) return BS_OK;
  const int32_t rc = bs_sha256_file(path, hex, err);
  if (rc != BS_OK) return rc;
  bs_sha256_field(h, hex);
  json_array_append_new(out_inputs, json_pack("{s:s, s:s, s:s}", "key", key, "file", path, "sha256", hex));
  return BS_OK;
}

/* Adds the input files of the workload's options and of the mask. */
static int32_t add_inputs(bs_sha256 *h, const bs_experiment *e, json_t *out_inputs, bs_error *err) {
  int32_t rc = e->importance != NULL ? add_file(h, "mask.importance", e->importance, out_inputs, err) : BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < e->n_workload_options; i++) {
    char key[96];
    snprintf(key, sizeof key, "workload.%.64s", e->workload_keys[i]);
    rc = add_file(h, key, e->workload_values[i], out_inputs, err);
  }
  return rc;
}

int32_t bs_record_key(const bs_experiment *experiment, const bs_node *config, const json_t *plugins,
                      uint32_t world_size, json_t *out_inputs, char out_key[65], bs_error *err) {
  char number[64];
  bs_sha256 h;
  bs_sha256_init(&h);
  int32_t rc = add_config(&h, config, err);
  if (rc == BS_OK) {
    char *text = json_dumps(plugins, JSON_COMPACT | JSON_SORT_KEYS);
    if (text == NULL) return bs_no_memory(err, "a record");
    bs_sha256_field(&h, text);
    free(text);
    bs_sha256_field(&h, bs_build_id());
    snprintf(number, sizeof number, "P=%u seed=%llu", world_size, (unsigned long long)experiment->seed);
    bs_sha256_field(&h, number);
    rc = add_inputs(&h, experiment, out_inputs, err);
  }
  if (rc == BS_OK) bs_sha256_hex(&h, out_key);
  return rc;
}

json_t *bs_record_start(const bs_experiment *e, const char *run_id, const json_t *plugins) {
  struct timespec now;
  const char *replay_of = NULL;
  json_t *record = json_object();
  if (record == NULL) return NULL;
  bs_config_str(e->config, "logging.replay_of", NULL, &replay_of, NULL);
  clock_gettime(CLOCK_REALTIME, &now);
  int bad = bs_record_add(
      record,
      json_pack("{s:f, s:i, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:b, s:s, s:s?, s:I, s:I, s:s, s:s, s:O}",
                "timestamp_unix", (double)now.tv_sec + (double)now.tv_nsec * 1e-9, "schema", BS_RECORD_SCHEMA,
                "run_id", run_id, "experiment", e->name, "phase", e->phase_name, "method", e->method, "dtype",
                bs_dtype_name(e->dtype), "backend", e->backend, "comm", e->comm, "oversubscribed",
                (int)e->oversubscribed, "workload", e->workload, "mask", e->mask_given ? e->mask.name : NULL,
                "seed", (json_int_t)e->seed, "workload_seed", (json_int_t)e->workload_seed, "blockshock",
                bs_version(), "library_build_id", bs_build_id(), "plugins", plugins),
      NULL);
  if (e->choice_record != NULL) bad |= json_object_set(record, "choices", e->choice_record);
  if (e->ladder != NULL) bad |= json_object_set(record, "ladder", e->ladder);
  bad |=
      json_object_set_new(record, "request_key", e->request_key ? json_string(e->request_key) : json_null());
  bad |= json_object_set_new(record, "sweep", e->sweep ? json_string(e->sweep) : json_null());
  if (replay_of != NULL) bad |= json_object_set_new(record, "replay_of", json_string(replay_of));
  bad |= json_object_set_new(record, "point", e->sweep ? json_integer((json_int_t)e->point) : json_null());
  if (bad) {
    json_decref(record);
    return NULL;
  }
  return record;
}

static json_t *gate_list(const bs_phase_result *result) {
  json_t *list = json_array();
  for (uint32_t i = 0; list != NULL && i < result->n_gates; i++) {
    const bs_gate *g = &result->gates[i];
    json_array_append_new(
        list, json_pack("{s:s, s:s, s:i, s:o, s:o, s:s}", "name", g->name, "state",
                        bs_name_of(BS_NAMES_GATE, g->state), "rank", g->rank, "value",
                        bs_record_number(g->value), "limit", bs_record_number(g->limit), "text", g->text));
  }
  return list;
}

int32_t bs_record_finish(json_t *record, const bs_phase_result *result, bs_error *err) {
  const char *key;
  json_t *value;
  int bad = 0;
  json_object_foreach(result->record, key, value) {
    if (json_object_get(record, key) == NULL) bad |= json_object_set(record, key, value);
  }
  if (json_object_get(record, "gates") == NULL)
    bad |= json_object_set_new(record, "gates", gate_list(result));
  if (json_object_get(record, "passed") == NULL && result->n_gates > 0) {
    bad |= json_object_set_new(record, "passed", json_boolean(result->passed));
  }
  bad |= json_object_set_new(record, "status", json_string("ok"));
  return bad ? bs_no_memory(err, "a record") : BS_OK;
}

int32_t bs_record_failed(json_t *record, const bs_error *why) {
  /* Texts from files may hold bytes that are not UTF-8; jansson refuses those. */
  json_t *message = json_string(why->message);
  json_t *rank = why->rank >= 0 ? json_integer(why->rank) : json_null();
  const int bad =
      bs_record_add(record,
                    json_pack("{s:s, s:b, s:{s:s, s:s, s:o, s:o}}", "status", "failed", "passed", 0, "error",
                              "code", bs_status_name(why->code), "id", why->id, "message",
                              message != NULL ? message : json_string("(not UTF-8)"), "rank", rank),
                    NULL);
  return bad ? BS_NO_MEMORY : BS_OK;
}
