/* SPDX-License-Identifier: MIT
 * keep.c - see keep.h. */
#include "lab/store/keep.h"

#include <stdlib.h>
#include <time.h>

#include "core/base/text.h"
#include "lab/error.h"
#include "lab/store/env.h"
#include "lab/store/sha256.h"
#include "lab/store/store.h"

typedef struct keeping {
  const bs_keep_request *q;
  char key[65];
  json_t *plugins;
  char *env;
  bs_run *run;
} keeping;

static int32_t make_key(keeping *k, bs_error *err) {
  bs_sha256 h;
  bs_text text = {0};
  bs_config_print(k->q->config, &text);
  char *of_plugins = json_dumps(k->plugins, JSON_COMPACT | JSON_SORT_KEYS);
  char *of_inputs =
      k->q->inputs == NULL ? bs_strdup("[]") : json_dumps(k->q->inputs, JSON_COMPACT | JSON_SORT_KEYS);
  const int good = !text.failed && text.data != NULL && of_plugins != NULL && of_inputs != NULL;
  bs_sha256_init(&h);
  if (good) {
    bs_sha256_field(&h, text.data);
    bs_sha256_field(&h, of_plugins);
    bs_sha256_field(&h, bs_build_id());
    bs_sha256_field(&h, of_inputs);
    bs_sha256_hex(&h, k->key);
  }
  free(of_plugins);
  free(of_inputs);
  bs_text_free(&text);
  return good ? BS_OK : bs_no_memory(err, "the key of a run");
}

static int32_t read_env(keeping *k, bs_error *err) {
  json_t *env = bs_env_collect(k->q->context);
  if (k->q->command != NULL && env != NULL) json_object_set_new(env, "command", bs_env_string(k->q->command));
  int32_t rc = env == NULL ? bs_no_memory(err, "env.json")
                           : bs_grades_mark(k->q->grades, json_object_get(env, "plugins"), err);
  k->env = rc == BS_OK ? bs_env_text(env) : NULL;
  json_decref(env);
  return rc == BS_OK && k->env == NULL ? bs_no_memory(err, "env.json") : rc;
}

static int32_t begin(keeping *k, bs_error *err) {
  const bs_keep_request *q = k->q;
  int32_t rc = read_env(k, err);
  if (rc == BS_OK) rc = bs_env_plugins(q->context, &k->plugins, err);
  if (rc == BS_OK) rc = make_key(k, err);
  if (rc == BS_OK) rc = bs_grades_mark(q->grades, k->plugins, err);
  if (rc != BS_OK) return rc;
  const bs_run_request of = {.out_dir = q->out_dir,
                             .phase = q->phase,
                             .method = q->method,
                             .run_id = q->run_id,
                             .key = k->key,
                             .config = q->config,
                             .env = k->env};
  rc = bs_store_begin(&of, &k->run, err);
  if (rc == BS_OK && q->opened != NULL) q->opened(bs_run_get_fd(k->run));
  return rc;
}

static int32_t append(const keeping *k, const json_t *fields, bs_error *err) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  json_t *inputs = k->q->inputs != NULL ? json_incref((json_t *)(uintptr_t)k->q->inputs) : json_array();
  json_t *record =
      json_pack("{s:f, s:i, s:s, s:s, s:s, s:s, s:s, s:O, s:o}", "timestamp_unix",
                (double)now.tv_sec + 1e-9 * (double)now.tv_nsec, "schema", BS_RECORD_SCHEMA, "run_id",
                bs_run_get_id(k->run), "experiment", k->q->method, "phase", k->q->phase, "blockshock",
                bs_version(), "library_build_id", bs_build_id(), "plugins", k->plugins, "inputs", inputs);
  const int bad = record == NULL || json_object_update_missing(record, (json_t *)(uintptr_t)fields) != 0 ||
                  (json_object_get(record, "status") == NULL &&
                   json_object_set_new(record, "status", json_string("ok")) != 0);
  const int32_t rc = bad ? bs_no_memory(err, "a record") : bs_store_append(k->run, record, err);
  json_decref(record);
  return rc;
}

/* Writes DONE, or removes the folder. */
static int32_t end(keeping *k, int32_t rc, char **out_folder, bs_error *err) {
  if (k->run == NULL) return rc;
  if (k->q->closed != NULL) k->q->closed();
  if (rc != BS_OK) {
    bs_store_abandon(k->run);
    return rc;
  }
  const int kept = bs_run_is_kept(k->run);
  char *folder = kept ? bs_strdup(bs_run_get_path(k->run)) : NULL;
  rc = bs_store_commit(k->run, k->q->status, err);
  if (rc == BS_OK && kept && folder == NULL) rc = bs_no_memory(err, "a folder's name");
  if (rc == BS_OK)
    *out_folder = folder;
  else
    free(folder);
  return rc;
}

int32_t bs_keep(const bs_keep_request *q, const json_t *records, char **out_folder, bs_error *err) {
  keeping k = {.q = q};
  *out_folder = NULL;
  int32_t rc = begin(&k, err);
  for (size_t i = 0; rc == BS_OK && i < json_array_size(records); i++)
    rc = append(&k, json_array_get(records, i), err);
  if (rc == BS_OK && q->samples != NULL) rc = bs_store_samples(k.run, q->samples, q->samples_bytes, err);
  rc = end(&k, rc, out_folder, err);
  json_decref(k.plugins);
  free(k.env);
  return rc;
}
