/* SPDX-License-Identifier: MIT
 * run_samples.c - the samples of a run: from samples.bin if it is whole, else from the records (see
 * read.h). */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lab/error.h"
#include "lab/store/folder.h"
#include "lab/store/read.h"
#include "lab/store/samples.h"
#include "lab/store/sha256.h"

/* The rows of samples.bin; none if the run has no such file, or DONE has another sum of it. */
static int32_t read_trail(int fd, const json_t *done, bs_samples *out, bs_error *err) {
  const char *want = json_string_value(json_object_get(json_object_get(done, "sha256"), "samples.bin"));
  char *data = NULL, hex[65];
  size_t size = 0;
  bs_sha256 h;
  if (want == NULL || bs_folder_file(fd, "samples.bin", &data, &size, NULL) != BS_OK || data == NULL)
    return BS_OK;
  bs_sha256_init(&h);
  bs_sha256_add(&h, data, size);
  bs_sha256_hex(&h, hex);
  int32_t rc = strcmp(hex, want) == 0 ? bs_samples_decode(data, size, out, err) : BS_OK;
  free(data);
  if (rc == BS_OK || rc == BS_NO_MEMORY) return rc;
  bs_samples_free(out);
  return BS_OK;
}

/* Seconds of an arm's samples with exactly these flags, among those that distinguish samples; NULL: no
 * memory. */
static json_t *seconds_of(const bs_samples *trail, size_t arm, unsigned flags) {
  const unsigned apart = BS_SAMPLE_HOT | BS_SAMPLE_COLD | BS_SAMPLE_DISCARDED | BS_SAMPLE_ECHO;
  json_t *list = json_array();
  int bad = list == NULL;
  for (size_t i = 0; !bad && i < trail->n; i++) {
    if (trail->row[i].arm == arm && (trail->row[i].flags & apart) == flags)
      bad = json_array_append_new(list, json_real(trail->row[i].seconds)) != 0;
  }
  if (!bad) return list;
  json_decref(list);
  return NULL;
}

typedef struct one_arm {
  size_t record, index;
  const json_t *arm;
  const bs_samples *trail; /* NULL: the record's own samples */
} one_arm;

/* The hot samples of an arm, or its cold ones: `part` of the record has them. */
static int add_samples(json_t *list, const one_arm *a, const json_t *part, unsigned flag) {
  json_t *seconds = json_object_get(part, "samples_s"), *discarded = json_object_get(part, "discarded_s");
  if (!json_is_array(seconds)) return 0;
  json_t *row = json_object();
  json_t *name = json_object_get(a->arm, "name"), *phase = json_object_get(part, "phase");
  if (name == NULL) name = json_object_get(a->arm, "work"); /* of a model's bench */
  int bad = json_object_set_new(row, "record", json_integer((json_int_t)a->record)) ||
            json_object_set(row, "arm", name != NULL ? name : json_null()) ||
            json_object_set(row, "phase", phase != NULL ? phase : json_null());
  json_t *kept = a->trail != NULL ? seconds_of(a->trail, a->index, flag) : json_incref(seconds);
  json_t *left = a->trail != NULL           ? seconds_of(a->trail, a->index, flag | BS_SAMPLE_DISCARDED)
                 : json_is_array(discarded) ? json_incref(discarded)
                                            : json_array();
  bad |= json_object_set_new(row, "seconds", kept);
  bad |= json_object_set_new(row, "discarded", left);
  return json_array_append_new(list, row) != 0 || bad;
}

/* Adds the pass of a backward or a training run, which has no arms: the region that times it. */
static int add_pass(json_t *list, size_t at, const json_t *record) {
  static const char *const passes[][2] = {{"phase2_backward_input", "backward"},
                                          {"phase3_train_step", "total_step"}};
  const char *phase = json_string_value(json_object_get(record, "phase"));
  int bad = 0;
  for (size_t k = 0; phase != NULL && k < 2; k++) {
    const json_t *region = json_object_get(json_object_get(record, "timings_ms"), passes[k][1]);
    const json_t *samples = json_object_get(region, "samples_ms");
    if (strcmp(phase, passes[k][0]) != 0 || !json_is_array(samples)) continue;
    json_t *row = json_pack("{s:I, s:s, s:s, s:[], s:[]}", "record", (json_int_t)at, "arm", "method", "phase",
                            passes[k][1], "seconds", "discarded");
    for (size_t i = 0; i < json_array_size(samples); i++)
      bad |= json_array_append_new(json_object_get(row, "seconds"),
                                   json_real(json_number_value(json_array_get(samples, i)) * 1e-3));
    bad |= json_array_append_new(list, row);
  }
  return bad;
}

static int add_record(json_t *list, size_t at, const json_t *record, const bs_samples *trail) {
  const json_t *arms = json_object_get(record, "arms");
  int bad = 0;
  for (size_t k = 0; !bad && k < json_array_size(arms); k++) {
    const one_arm a = {at, k, json_array_get(arms, k), trail};
    bad = add_samples(list, &a, a.arm, BS_SAMPLE_HOT) ||
          add_samples(list, &a, json_object_get(a.arm, "cold"), BS_SAMPLE_COLD);
  }
  const one_arm whole = {at, 0, record, NULL}; /* of a model's bench */
  return bad || add_samples(list, &whole, record, 0) || add_pass(list, at, record);
}

static int32_t add_records(json_t *list, const json_t *records, const bs_samples *trail, bs_error *err) {
  const json_t *record;
  size_t i;
  const int of_record = trail->n > 0 && json_array_size(records) == 1; /* its arms are those of the file */
  json_array_foreach((json_t *)(uintptr_t)records, i, record) {
    if (add_record(list, i, record, of_record ? trail : NULL) != 0) return bs_no_memory(err, "samples");
  }
  return BS_OK;
}

int32_t bs_run_samples(const char *root, const char *run, json_t **out_samples, bs_error *err) {
  bs_folder_run content = {0};
  bs_samples trail = {0};
  int fd;
  *out_samples = NULL;
  int32_t rc = bs_folder_open(root, run, &fd, err);
  if (rc != BS_OK) return rc;
  json_t *list = json_array();
  rc = list != NULL ? bs_folder_read(fd, run, &content, err) : bs_no_memory(err, "samples");
  if (rc == BS_OK) rc = read_trail(fd, content.done, &trail, err);
  if (rc == BS_OK) rc = add_records(list, content.metrics.records, &trail, err);
  if (rc == BS_OK) *out_samples = json_incref(list);
  json_decref(list);
  bs_samples_free(&trail);
  bs_folder_run_free(&content);
  close(fd);
  return rc;
}
