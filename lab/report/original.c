/* SPDX-License-Identifier: MIT
 * original.c - reading the original's records: see original.h. Anyone may have written these files: lines are
 * read with distrust, and depth and size have limits. */
#include "lab/report/original.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lab/error.h"

enum { DEEPEST = 10, MOST_RECORDS = 100000, LONGEST_LINE = 1 << 24 };

typedef struct reading {
  json_t *rows, *problems;
  char path[4096]; /* relative to the folder */
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

static void take_file(reading *r, int folder, const char *name) {
  const int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
  struct stat st;
  FILE *file = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? fdopen(fd, "r") : NULL;
  char *line = NULL;
  size_t room = 0;
  ssize_t n;
  if (file == NULL) {
    if (fd >= 0) close(fd);
    problem(r, "cannot be read");
    return;
  }
  while ((n = getline(&line, &room, file)) > 0) {
    if (n > LONGEST_LINE)
      problem(r, "a line is longer than 16 MiB");
    else if (line[strspn(line, " \t\r\n")] != '\0')
      take_line(r, line);
  }
  free(line);
  fclose(file);
}

static int by_name(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Names of a folder in order, so that the rows do not depend on the file system. The caller frees. */
static char **names_in(int fd, size_t *out_n) {
  DIR *dir = fdopendir(fd);
  struct dirent *entry;
  char **names = NULL;
  *out_n = 0;
  while (dir != NULL && (entry = readdir(dir)) != NULL) {
    char **grown = entry->d_name[0] != '.' ? realloc(names, (*out_n + 1) * sizeof *names) : NULL;
    if (grown == NULL) continue;
    names = grown;
    names[*out_n] = bs_strdup(entry->d_name);
    if (names[*out_n] != NULL) ++*out_n;
  }
  if (*out_n > 0) qsort(names, *out_n, sizeof *names, by_name);
  if (dir != NULL)
    closedir(dir);
  else
    close(fd);
  return names;
}

static void take_folder(reading *r, int folder, int depth) {
  size_t n;
  const size_t used = strlen(r->path);
  const int copy = dup(folder);
  char **names = copy >= 0 ? names_in(copy, &n) : NULL;
  for (size_t i = 0; names != NULL && i < n; i++) {
    struct stat st;
    const int said = snprintf(r->path + used, sizeof r->path - used, "%s%s", used > 0 ? "/" : "", names[i]);
    if (said > 0 && (size_t)said < sizeof r->path - used &&
        fstatat(folder, names[i], &st, AT_SYMLINK_NOFOLLOW) == 0) {
      if (S_ISDIR(st.st_mode) && depth < DEEPEST) {
        const int inner = openat(folder, names[i], O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (inner >= 0) take_folder(r, inner, depth + 1);
        if (inner >= 0) close(inner);
      } else if (strcmp(names[i], "metrics.jsonl") == 0) {
        take_file(r, folder, names[i]);
      }
    }
    r->path[used] = '\0';
    free(names[i]);
  }
  free(names);
}

int32_t bs_original_read(const char *dir, json_t **out_rows, json_t *problems, bs_error *err) {
  reading r = {.rows = json_array(), .problems = problems};
  const int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  *out_rows = NULL;
  if (fd < 0) {
    json_decref(r.rows);
    bs_error_errno(err, BS_INPUT, "BS-REPORT-ORIGINAL", errno, "--original: cannot open the folder %.200s",
                   dir);
    bs_error_hint(err,
                  "the original's results/official, or any folder with its metrics.jsonl files below it");
    return BS_INPUT;
  }
  take_folder(&r, fd, 0);
  close(fd);
  if (json_array_size(r.rows) == 0) {
    json_decref(r.rows);
    bs_error_set(err, BS_INPUT, "BS-REPORT-ORIGINAL",
                 "--original: no record in any metrics.jsonl below %.200s", dir);
    bs_error_hint(err,
                  "the original's results/official, or any folder with its metrics.jsonl files below it");
    return BS_INPUT;
  }
  *out_rows = r.rows;
  return BS_OK;
}
