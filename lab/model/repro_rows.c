/* SPDX-License-Identifier: MIT
 * repro_rows.c - see repro_inside.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/memory.h"
#include "lab/model/repro_inside.h"
#include "lab/store/sha256.h"

enum { DIGITS = 8 };

/* Lays out a row of all outputs, whose last run had `n` rows. */
static int32_t lay_out(repro *r, uint64_t n, bs_error *err) {
  int32_t rc = BS_OK;
  const uint32_t in = bs_graph_port_count(r->model.graph, 1);
  r->n_outputs = bs_session_port_count(r->model.session) - in;
  r->outputs = calloc(r->n_outputs + 1u, sizeof *r->outputs);
  if (r->outputs == NULL) return repro_no_memory(err);
  for (uint32_t p = 0; rc == BS_OK && p < r->n_outputs; p++) {
    bs_tensor_desc d = {.struct_size = sizeof d};
    repro_output *o = &r->outputs[p];
    rc = bs_session_port(r->model.session, in + p, NULL, &d, err);
    o->dtype = d.dtype == BS_BF16 ? BS_F32 : d.dtype; /* as bs_model_dense */
    o->width = BS_DTYPE_BYTES(o->dtype);
    o->offset = r->row;
    o->bytes = n > 0 ? o->width : 0;
    for (uint32_t i = 0; i < d.rank; i++) o->bytes *= (uint64_t)d.dims[i];
    o->bytes /= n > 0 ? n : 1;
    r->row += o->bytes;
    r->numbers += o->width > 0 ? o->bytes / o->width : 0;
  }
  if (rc == BS_OK && r->row == 0)
    return bs_error_set(err, BS_UNSUPPORTED, "BS-MODEL-REPRO", "%.200s has no output with a number",
                        r->request->path);
  if (rc == BS_OK) rc = bs_memory_fits(2 * r->row * r->rows, "BS-MODEL-MEMORY", "copies of the outputs", err);
  if (rc != BS_OK) return rc;
  r->first = calloc(r->rows + 1, r->row);
  r->now = calloc(r->rows + 1, r->row);
  return r->first != NULL && r->now != NULL ? BS_OK : repro_no_memory(err);
}

/* The sign and the payload of a NaN are the processor's. */
static void level_nans(const repro_output *o, uint8_t *row) {
  const uint64_t n = o->width > 0 ? o->bytes / o->width : 0;
  if (!bs_dtype_is_float(o->dtype)) return;
  for (uint64_t i = 0; i < n; i++)
    if (isnan(bs_load_f64(o->dtype, row, (int64_t)i))) bs_store_f64(o->dtype, row, (int64_t)i, (double)NAN);
}

int32_t repro_take(repro *r, uint64_t at, uint64_t from, uint64_t n, uint64_t all, bs_error *err) {
  int32_t rc = r->outputs == NULL ? lay_out(r, all, err) : BS_OK;
  const uint32_t in = bs_graph_port_count(r->model.graph, 1);
  for (uint32_t p = 0; rc == BS_OK && p < r->n_outputs; p++) {
    const repro_output *o = &r->outputs[p];
    bs_tensor t = {.struct_size = sizeof t};
    uint32_t dtype = 0;
    uint64_t count = 0;
    rc = bs_session_get(r->model.session, in + p, &t, err);
    uint8_t *dense = rc == BS_OK ? bs_model_dense(&t, &dtype, &count) : NULL;
    if (rc != BS_OK || dense == NULL) return rc != BS_OK ? rc : repro_no_memory(err);
    if (dtype != o->dtype || count * o->width != o->bytes * all)
      rc = bs_error_set(err, BS_INTERNAL, "BS-MODEL-REPRO", "output %u has %llu numbers in %llu rows", p,
                        (unsigned long long)count, (unsigned long long)all);
    for (uint64_t i = 0; rc == BS_OK && i < n; i++) {
      uint8_t *row = r->now + (at + i) * r->row + o->offset;
      memcpy(row, dense + (from + i) * o->bytes, o->bytes);
      level_nans(o, row);
    }
    free(dense);
  }
  return rc;
}

/* ---- digests --------------------------------------------------------------------------------- */

static void hash(const void *data, uint64_t bytes, char out_hex[65]) {
  bs_sha256 h;
  bs_sha256_init(&h);
  bs_sha256_add(&h, data, bytes);
  bs_sha256_hex(&h, out_hex);
}

json_t *repro_digest(const repro *r) {
  char hex[65];
  json_t *rows = json_array();
  for (uint64_t i = 0; i < r->rows; i++) {
    hash(r->first + i * r->row, r->row, hex);
    json_array_append_new(rows, json_stringn(hex, DIGITS));
  }
  hash(r->first, r->rows * r->row, hex);
  return json_pack("{s:I, s:s, s:o}", "numbers", (json_int_t)(r->rows * r->numbers), "sha256", hex, "rows",
                   rows);
}

/* ---- comparing ------------------------------------------------------------------------------- */

static uint64_t count_differ(const repro *r, const uint8_t *a, const uint8_t *b) {
  uint64_t differ = 0;
  for (uint32_t p = 0; p < r->n_outputs && memcmp(a, b, r->row) != 0; p++) {
    const repro_output *o = &r->outputs[p];
    for (uint64_t at = o->offset; at < o->offset + o->bytes; at += o->width)
      differ += memcmp(a + at, b + at, o->width) != 0;
  }
  return differ;
}

static json_t *cell_of(const repro *r, const repro_cut *cut, const char *counts, uint64_t compared,
                       uint64_t differ, int64_t first) {
  json_t *cell = json_pack("{s:s, s:I, s:s, s:I, s:I, s:o, s:b}", "table",
                           r->table != NULL ? r->table : "auto", "threads", (json_int_t)r->threads, "run",
                           cut->name, counts, (json_int_t)compared, "differ", (json_int_t)differ, "first",
                           first < 0 ? json_null() : json_integer(first), "equal", first < 0);
  if (r->ranks > 0) json_object_set_new(cell, "ranks", json_integer(r->ranks));
  if (r->joined) json_object_set_new(cell, "launch", json_string(r->asked->launch));
  return cell;
}

static json_t *with_first(const repro *r, const repro_cut *cut, uint64_t rows) {
  uint64_t differ = 0;
  int64_t first = -1;
  for (uint64_t i = 0; i < rows; i++) {
    const uint64_t n = count_differ(r, r->first + i * r->row, r->now + i * r->row);
    if (n > 0 && first < 0) first = (int64_t)i;
    differ += n;
  }
  return cell_of(r, cut, "compared", rows * r->numbers, differ, first);
}

/* All rows: their sum and the digits of each must say the same. */
static int32_t agree(const repro *r, int64_t first, bs_error *err) {
  const json_t *output = json_object_get(r->certificate, "output");
  const char *want = json_string_value(json_object_get(output, "sha256"));
  char hex[65];
  hash(r->now, r->rows * r->row, hex);
  const int same = strcmp(hex, want) == 0;
  if (same == (first < 0)) return BS_OK;
  if (same)
    bs_error_set(err, BS_INPUT, "BS-CERT-BAD",
                 "the certificate was changed: output.rows[%lld] are not the digits of that row, while "
                 "output.sha256 is right",
                 (long long)first);
  else
    bs_error_set(err, BS_INPUT, "BS-CERT-BAD",
                 "the certificate was changed: output.sha256 is %.64s, that of the outputs %.64s, while "
                 "all of output.rows are right",
                 want, hex);
  bs_error_hint(err, "take the file from who made it");
  return BS_INPUT;
}

static int32_t with_certificate(repro *r, const repro_cut *cut, uint64_t rows, json_t **out, bs_error *err) {
  const json_t *output = json_object_get(r->certificate, "output");
  const json_t *digits = json_object_get(output, "rows");
  const uint64_t numbers = (uint64_t)json_integer_value(json_object_get(output, "numbers"));
  uint64_t differ = 0;
  int64_t first = -1;
  char hex[65];
  if (json_array_size(digits) != r->rows || numbers != r->rows * r->numbers)
    return bs_error_set(
        err, BS_INPUT, "BS-CERT-BAD",
        "the certificate has %zu rows and %llu numbers of output, this model gives %llu and %llu",
        json_array_size(digits), (unsigned long long)numbers, (unsigned long long)r->rows,
        (unsigned long long)(r->rows * r->numbers));
  for (uint64_t i = 0; i < rows; i++) {
    hash(r->now + i * r->row, r->row, hex);
    if (strncmp(hex, json_string_value(json_array_get(digits, i)), DIGITS) == 0) continue;
    if (first < 0) first = (int64_t)i;
    differ++;
  }
  const int32_t rc = rows == r->rows ? agree(r, first, err) : BS_OK;
  r->has_whole |= rows == r->rows;
  if (rc == BS_OK) *out = cell_of(r, cut, "rows", rows, differ, first);
  return rc;
}

int32_t repro_compare(repro *r, const repro_cut *cut, uint64_t rows, json_t **out, bs_error *err) {
  int32_t rc = BS_OK;
  *out = NULL;
  if (r->certificate != NULL)
    rc = with_certificate(r, cut, rows, out, err);
  else
    *out = with_first(r, cut, rows);
  return rc == BS_OK && *out == NULL ? repro_no_memory(err) : rc;
}
