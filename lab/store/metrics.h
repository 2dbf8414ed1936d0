/* SPDX-License-Identifier: MIT
 * metrics.h - the text of metrics.jsonl, read with distrust: every line ends in the CRC-32C of what stands
 * before it, and `seq` counts the lines from 0. Pure functions of the text. */
#ifndef BS_LAB_STORE_METRICS_H
#define BS_LAB_STORE_METRICS_H
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "blockshock/abi.h"

/* What a text of metrics.jsonl holds. */
typedef struct bs_metrics {
  json_t *records;   /* of the whole lines before the first bad one, in order */
  size_t good_bytes; /* of these lines, newlines included */
  size_t torn_bytes; /* behind them, where they end without a newline: a write that was cut off */
  size_t bad_line;   /* counted from 1: a line with its newline whose sum, number or JSON is wrong; 0: none */
  char why[96];      /* of bad_line or of the torn bytes; else "" */
} bs_metrics;

/* BS_NO_MEMORY, else BS_OK whatever the text is: `out` tells. Release with bs_metrics_free in any case. */
int32_t bs_metrics_read(const char *text, size_t size, bs_metrics *out, bs_error *err);
void bs_metrics_free(bs_metrics *metrics);
#endif
