/* SPDX-License-Identifier: MIT
 * metrics.h - parses the text of metrics.jsonl and verifies it: every line ends in the CRC-32C of the bytes
 * before it, and `seq` counts the lines from 0. Pure functions of the text. */
#ifndef BS_LAB_STORE_METRICS_H
#define BS_LAB_STORE_METRICS_H
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "blockshock/abi.h"
#include "core/base/text.h"

/* The content of a text of metrics.jsonl. */
typedef struct bs_metrics {
  json_t *records;   /* of the whole lines before the first bad one, in order */
  size_t good_bytes; /* of these lines, newlines included */
  size_t torn_bytes; /* bytes after them that do not end with a newline: an interrupted write */
  size_t bad_line;   /* counted from 1: a line with its newline whose sum, number or JSON is wrong; 0: none */
  char why[96];      /* of bad_line or of the torn bytes; else "" */
} bs_metrics;

/* A line of JSON in its stored form: `object`, printed compactly, with the CRC-32C of the bytes before as its
 * last field ,"crc32c":"01234567"}, and a newline. Metrics and the index have such lines. */
void bs_line_print(const char *object, bs_text *out);
/* Has a line (without its newline) such a sum, and is it right? */
int bs_line_holds(const char *line, size_t size);

/* BS_NO_MEMORY, else BS_OK for any text: the result is in `out`. Release with bs_metrics_free in any case. */
int32_t bs_metrics_read(const char *text, size_t size, bs_metrics *out, bs_error *err);
void bs_metrics_free(bs_metrics *metrics);
#endif
