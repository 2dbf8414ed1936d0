/* SPDX-License-Identifier: MIT
 * metrics.c - see metrics.h. */
#include "lab/store/metrics.h"

#include <stdio.h>
#include <string.h>

#include "lab/error.h"
#include "lab/store/sha256.h"

/* ,"crc32c":"01234567"} */
enum { SUM_BYTES = 21 };

void bs_line_print(const char *object, bs_text *out) {
  const size_t size = strlen(object) - 1; /* the sum's field is put before the brace */
  bs_text_append(out, object, size);
  bs_text_printf(out, ",\"crc32c\":\"%08x\"}\n", bs_crc32c(object, size));
}

int bs_line_holds(const char *line, size_t size) {
  char want[SUM_BYTES + 1];
  if (size <= SUM_BYTES) return 0;
  snprintf(want, sizeof want, ",\"crc32c\":\"%08x\"}", bs_crc32c(line, size - SUM_BYTES));
  return memcmp(line + size - SUM_BYTES, want, SUM_BYTES) == 0;
}

/* The fault of a whole line; NULL: none, and *out_record is its object. */
static const char *line_fault(const char *line, size_t size, size_t seq, json_t **out_record) {
  *out_record = NULL;
  if (!bs_line_holds(line, size)) return "its crc32c does not match";
  json_t *record = json_loadb(line, size, JSON_REJECT_DUPLICATES, NULL);
  if (!json_is_object(record)) {
    json_decref(record);
    return "it is no JSON object";
  }
  const json_t *number = json_object_get(record, "seq");
  if (!json_is_integer(number) || json_integer_value(number) != (json_int_t)seq) {
    json_decref(record);
    return "its seq is not the number of the line";
  }
  *out_record = record;
  return NULL;
}

int32_t bs_metrics_read(const char *text, size_t size, bs_metrics *out, bs_error *err) {
  *out = (bs_metrics){.records = json_array()};
  if (out->records == NULL) return bs_no_memory(err, "a run's records");
  while (out->good_bytes < size) {
    const char *line = text + out->good_bytes;
    const size_t left = size - out->good_bytes, seq = json_array_size(out->records);
    const char *end = memchr(line, '\n', left);
    json_t *record;
    if (end == NULL) {
      out->torn_bytes = left;
      snprintf(out->why, sizeof out->why, "the last %zu bytes are no whole line", left);
      return BS_OK;
    }
    const char *fault = line_fault(line, (size_t)(end - line), seq, &record);
    if (fault != NULL) {
      out->bad_line = seq + 1;
      snprintf(out->why, sizeof out->why, "line %zu: %s", out->bad_line, fault);
      return BS_OK;
    }
    if (json_array_append_new(out->records, record) != 0) return bs_no_memory(err, "a run's records");
    out->good_bytes += (size_t)(end - line) + 1;
  }
  return BS_OK;
}

void bs_metrics_free(bs_metrics *metrics) {
  json_decref(metrics->records);
  *metrics = (bs_metrics){0};
}
