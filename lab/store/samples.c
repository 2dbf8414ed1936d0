/* SPDX-License-Identifier: MIT
 * samples.c - see samples.h. */
#include "lab/store/samples.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/size.h"
#include "lab/error.h"
#include "lab/store/sha256.h"

static const char magic[8] = {'B', 'S', 'S', 'A', 'M', 'P', 'L', 'E'};
enum { HEAD = 64, FIXED = 48, VERSION = 1 };

int bs_samples_add(bs_samples *list, const bs_sample_row *row) {
  if (list->n == list->room) {
    const size_t room = list->room == 0 ? 64 : 2 * list->room;
    bs_sample_row *grown = realloc(list->row, room * sizeof *grown);
    if (grown == NULL) return 0;
    list->row = grown;
    list->room = room;
  }
  list->row[list->n++] = *row;
  return 1;
}

void bs_samples_free(bs_samples *list) {
  free(list->row);
  *list = (bs_samples){0};
}

static uint8_t *put(uint8_t *to, uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) *to++ = (uint8_t)(value >> (8 * i));
  return to;
}

static uint8_t *put_f64(uint8_t *to, double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  return put(to, bits, 8);
}

static uint64_t get(const uint8_t **from, size_t bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes; i++) value |= (uint64_t)(*from)[i] << (8 * i);
  *from += bytes;
  return value;
}

static double get_f64(const uint8_t **from) {
  const uint64_t bits = get(from, 8);
  double value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static uint8_t *put_row(uint8_t *to, const bs_sample_row *row, uint32_t ranks) {
  const uint8_t *begin = to;
  to = put_f64(to, row->t);
  to = put(to, row->arm, 2);
  to = put(to, row->flags, 2);
  to = put(to, row->pair, 4);
  to = put(to, row->rebuild, 4);
  to = put(to, row->calls, 4);
  to = put_f64(to, row->seconds);
  to = put(to, row->cpu_ns, 8);
  to = put(to, row->switches, 4);
  to = put(to, row->steal, 4);
  for (uint32_t r = 0; r < ranks; r++) to = put_f64(to, r < row->ranks ? row->rank_seconds[r] : (double)NAN);
  return put(to, bs_crc32c(begin, (size_t)(to - begin)), 4);
}

int32_t bs_samples_encode(const bs_samples *const *lists, size_t n_lists, uint32_t arms, void **out_data,
                          size_t *out_size, bs_error *err) {
  uint32_t ranks = 0;
  uint64_t rows = 0, bytes = 0;
  for (size_t k = 0; k < n_lists; k++) {
    rows += lists[k]->n;
    for (size_t i = 0; i < lists[k]->n; i++)
      if (lists[k]->row[i].ranks > ranks) ranks = lists[k]->row[i].ranks;
  }
  const uint32_t record = FIXED + 8 * ranks + 4;
  *out_data = NULL;
  *out_size = 0;
  if (!bs_mul_u64(rows, record, &bytes) || !bs_add_u64(bytes, HEAD, &bytes) || bytes > SIZE_MAX ||
      (*out_data = calloc(1, (size_t)bytes)) == NULL)
    return bs_no_memory(err, "samples");
  uint8_t *to = *out_data;
  memcpy(to, magic, sizeof magic);
  to = put(to + 8, VERSION, 4);
  to = put(to, record, 4);
  to = put(to, ranks, 4);
  put(to, arms, 4);
  to = (uint8_t *)*out_data + HEAD;
  for (size_t k = 0; k < n_lists; k++)
    for (size_t i = 0; i < lists[k]->n; i++) to = put_row(to, &lists[k]->row[i], ranks);
  *out_size = (size_t)bytes;
  return BS_OK;
}

static bs_sample_row get_row(const uint8_t *from, uint32_t ranks) {
  bs_sample_row row = {.t = get_f64(&from)};
  row.arm = (uint16_t)get(&from, 2);
  row.flags = (uint16_t)get(&from, 2);
  row.pair = (uint32_t)get(&from, 4);
  row.rebuild = (uint32_t)get(&from, 4);
  row.calls = (uint32_t)get(&from, 4);
  row.seconds = get_f64(&from);
  row.cpu_ns = get(&from, 8);
  row.switches = (uint32_t)get(&from, 4);
  row.steal = (uint32_t)get(&from, 4);
  for (uint32_t r = 0; r < ranks; r++) {
    row.rank_seconds[r] = get_f64(&from);
    if (!isnan(row.rank_seconds[r])) row.ranks = r + 1;
  }
  return row;
}

static int32_t corrupt(const char *what, size_t at, bs_error *err) {
  return bs_error_set(err, BS_CORRUPT, "BS-STO-SAMPLES", "samples.bin: %s (byte %zu)", what, at);
}

int32_t bs_samples_decode(const void *data, size_t size, bs_samples *out, bs_error *err) {
  static const uint8_t zeros[HEAD - 24];
  const uint8_t *from = data;
  if (size < HEAD || memcmp(from, magic, sizeof magic) != 0 || memcmp(from + 24, zeros, sizeof zeros) != 0)
    return corrupt("the head is not that of samples", 0, err);
  from += 8;
  const uint64_t version = get(&from, 4), record = get(&from, 4), ranks = get(&from, 4);
  if (version != VERSION || ranks > BS_SAMPLE_RANKS || record != FIXED + 8 * ranks + 4)
    return corrupt("its version, or the size of its records, is not known", 8, err);
  if ((size - HEAD) % record != 0) return corrupt("the last record is cut off", size, err);
  for (size_t at = HEAD; at < size; at += (size_t)record) {
    const uint8_t *begin = (const uint8_t *)data + at, *sum = begin + record - 4;
    if (get(&sum, 4) != bs_crc32c(begin, (size_t)record - 4))
      return corrupt("the sum of a record does not match", at, err);
    const bs_sample_row row = get_row(begin, (uint32_t)ranks);
    if (!bs_samples_add(out, &row)) return bs_no_memory(err, "samples");
  }
  return BS_OK;
}
