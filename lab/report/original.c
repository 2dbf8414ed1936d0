/* SPDX-License-Identifier: MIT
 * original.c - reads the original's records: see original.h. Anyone may have written these files: lines are
 * read with distrust, and depth and size have limits (lab/store/folder.h). */
#include "lab/report/original.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lab/error.h"
#include "lab/store/folder.h"

enum { MOST_RECORDS = 100000 };

typedef struct reading {
  json_t *rows, *problems;
  char path[4200]; /* of the file, relative to the folder */
} reading;

void bs_original_derive(json_t *flat, const char *origin) {
  static const char *const stats[] = {"avg", "p50", "p95"};
  static const char *const sizes[] = {"weight_bytes_total",        "weight_bytes_dense",
                                      "weight_bytes_sparse_est",   "weight_bytes_total_actual",
                                      "weight_bytes_dense_actual", "weight_bytes_masked_actual",
                                      "weight_bytes_shard_actual", "weight_bytes_sparse_actual"};
  const double total = bs_row_number(flat, "weight_bytes_total"),
               forward = bs_row_number(flat, "forward_avg_ms"), error = bs_row_number(flat, "mean_abs_error"),
               B = bs_row_number(flat, "B");
  char from[64], to[80], text[200];
  for (size_t i = 0; i < 3; i++) {
    snprintf(from, sizeof from, "forward_%s_ms", stats[i]);
    snprintf(to, sizeof to, "layout_fix_%s_ms", stats[i]);
    const double whole = bs_row_number(flat, from), fix = bs_row_number(flat, to);
    snprintf(to, sizeof to, "forward_minus_layout_fix_%s_ms", stats[i]);
    if (!isnan(whole)) bs_row_set(flat, to, whole - (isnan(fix) ? 0 : fix));
  }
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    const double bytes = bs_row_number(flat, sizes[i]);
    snprintf(to, sizeof to, "%s_gib", sizes[i]);
    if (!isnan(bytes)) bs_row_set(flat, to, bytes / 1073741824);
  }
  if (total > 0 && forward > 0) bs_row_set(flat, "forward_ns_per_weight_byte", forward * 1e6 / total);
  if (forward > 0 && !isnan(error)) bs_row_set(flat, "quality", 1 / forward / (1 + error));
  snprintf(text, sizeof text, "%.100s%s", bs_row_text(flat, "method"),
           strcmp(origin, "original") == 0 ? "" : ", ours");
  json_object_set_new(flat, "series", json_string(text));
  snprintf(text, sizeof text, "%.60s, %.20s, B %.0f", bs_row_text(flat, "phase"), bs_row_text(flat, "dtype"),
           isnan(B) ? 0 : B);
  json_object_set_new(flat, "facet", json_string(text));
  json_object_set_new(flat, "origin", json_string(origin));
}

static void problem(reading *r, const char *why) {
  json_t *row = json_object(), *what = json_string(r->path);
  json_object_set_new(row, "what", what != NULL ? what : json_string("(not UTF-8)"));
  json_object_set_new(row, "why", json_string(why));
  json_array_append_new(r->problems, row);
}

static void take_line(reading *r, const char *line) {
  json_t *record = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
  if (!json_is_object(record) || json_array_size(r->rows) >= MOST_RECORDS) {
    problem(r, json_is_object(record) ? "too many records" : "a line is no JSON object");
    json_decref(record);
    return;
  }
  json_t *flat = bs_report_flat(record), *path = json_string(r->path);
  json_object_set_new(flat, "path", path != NULL ? path : json_string(""));
  bs_original_derive(flat, "original");
  json_array_append_new(r->rows, flat);
  json_decref(record);
}

/* A file that cannot be read is a problem, and no end of the walk. */
static int32_t take_folder(void *user, enum bs_folder_kind kind, int fd, const char *path, bs_error *err) {
  reading *r = user;
  char *text = NULL, *rest;
  size_t size = 0;
  (void)err;
  snprintf(r->path, sizeof r->path, "%.4000s%smetrics.jsonl", path, path[0] != '\0' ? "/" : "");
  if (kind == BS_FOLDER_TEMPORARY) return BS_OK;
  if (kind == BS_FOLDER_CLOSED || bs_folder_file(fd, "metrics.jsonl", &text, &size, NULL) != BS_OK) {
    problem(r, "cannot be read");
    return BS_OK;
  }
  if (text != NULL && strlen(text) != size) problem(r, "it has a byte of value 0: the rest is not read");
  rest = text;
  for (char *line = strsep(&rest, "\n"); line != NULL; line = strsep(&rest, "\n"))
    if (line[strspn(line, " \t\r")] != '\0') take_line(r, line);
  free(text);
  return BS_OK;
}

int32_t bs_original_read(const char *dir, json_t **out_rows, json_t *problems, bs_error *err) {
  reading r = {.rows = json_array(), .problems = problems};
  const int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), number = errno;
  *out_rows = NULL;
  int32_t rc = BS_OK;
  if (fd >= 0) {
    rc = take_folder(&r, BS_FOLDER_OPEN, fd, "", err); /* a record in the folder itself */
    close(fd);
    if (rc == BS_OK) rc = bs_folders_walk(dir, take_folder, &r, err);
  }
  if (rc == BS_OK && json_array_size(r.rows) > 0) {
    *out_rows = r.rows;
    return BS_OK;
  }
  json_decref(r.rows);
  if (rc != BS_OK) return rc;
  if (fd < 0)
    bs_error_errno(err, BS_INPUT, "BS-REPORT-ORIGINAL", number, "--original: cannot open the folder %.200s",
                   dir);
  else
    bs_error_set(err, BS_INPUT, "BS-REPORT-ORIGINAL",
                 "--original: no record in any metrics.jsonl below %.200s", dir);
  bs_error_hint(err, "the original's results/official, or any folder with its metrics.jsonl files below it");
  return BS_INPUT;
}
