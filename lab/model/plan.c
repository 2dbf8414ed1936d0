/* SPDX-License-Identifier: MIT
 * plan.c - see plan.h. */
#include "lab/model/plan.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "lab/model/text_file.h"

enum { MAX_COLUMNS = 32 };
enum column { ID, LOWER, UPPER, SIZE, N_COLUMNS };
static const char *const column_names[N_COLUMNS] = {"id", "lower", "upper", "size"};

/* The cells of a line, without the blanks around them. How many; MAX_COLUMNS + 1: too many. */
static uint32_t split_line(char *line, char **out_cells) {
  for (uint32_t n = 0;; n++) {
    if (n == MAX_COLUMNS) return MAX_COLUMNS + 1;
    const size_t length = strcspn(line, ",");
    const int last = line[length] == '\0';
    line[length] = '\0';
    out_cells[n] = line + strspn(line, " \t");
    for (size_t end = strlen(out_cells[n]); end > 0 && strchr(" \t", out_cells[n][end - 1]) != NULL; end--)
      out_cells[n][end - 1] = '\0';
    if (last) return n + 1;
    line += length + 1;
  }
}

static int32_t line_error(bs_error *err, const char *path, uint32_t line, const char *what,
                          const char *cell) {
  bs_error_set(err, BS_INPUT, "BS-PLAN-LINE", "%s '%.60s'", what, cell);
  bs_error_where(err, "%.120s:%u", path, line);
  return BS_INPUT;
}

/* Finds which cell of a line has which column. */
static int32_t read_header(const char *path, char *line, uint32_t *out_cells, uint32_t *out_at,
                           bs_error *err) {
  char *cells[MAX_COLUMNS];
  const uint32_t n = split_line(line, cells);
  if (n > MAX_COLUMNS) return line_error(err, path, 1, "more than 32 columns, beginning with", cells[0]);
  for (int column = 0; column < N_COLUMNS; column++) {
    out_at[column] = UINT32_MAX;
    for (uint32_t i = 0; i < n; i++)
      if (strcmp(cells[i], column_names[column]) == 0) out_at[column] = i;
    if (out_at[column] != UINT32_MAX) continue;
    line_error(err, path, 1, "no column", column_names[column]);
    bs_error_hint(err, "the first line is: id,lower,upper,size");
    return BS_INPUT;
  }
  *out_cells = n;
  return BS_OK;
}

static int32_t read_block(const char *path, uint32_t number, char *line, uint32_t n_cells, const uint32_t *at,
                          const char **out_id, gplan_block *out, bs_error *err) {
  char *cells[MAX_COLUMNS];
  int64_t numbers[N_COLUMNS] = {0};
  if (split_line(line, cells) != n_cells)
    return line_error(err, path, number, "not as many cells as the first line, beginning with", cells[0]);
  for (int column = LOWER; column < N_COLUMNS; column++) {
    const char *cell = cells[at[column]];
    const int64_t most = column == SIZE ? INT64_MAX : UINT32_MAX;
    if (bs_parse_i64(cell, &numbers[column]) && numbers[column] >= 0 && numbers[column] <= most) continue;
    char what[64];
    snprintf(what, sizeof what, "%s is no whole number of %s:", column_names[column],
             column == SIZE ? "63 bits" : "32 bits");
    return line_error(err, path, number, what, cell);
  }
  if (numbers[LOWER] >= numbers[UPPER])
    return line_error(err, path, number, "lower is not below upper in block", cells[at[ID]]);
  *out_id = cells[at[ID]];
  *out = (gplan_block){(uint64_t)numbers[SIZE], (uint32_t)numbers[LOWER], (uint32_t)numbers[UPPER]};
  return BS_OK;
}

int32_t bs_plan_file_read(const char *path, bs_plan_file *out, bs_error *err) {
  uint32_t n_cells = 0, number = 1, at[N_COLUMNS];
  size_t lines = 1;
  memset(out, 0, sizeof *out);
  int32_t rc = bs_text_file_read(path, "BS-PLAN-FILE", &out->text, err);
  if (rc != BS_OK) return rc;
  for (const char *p = out->text; (p = strchr(p, '\n')) != NULL; p++) lines++;
  if (lines > GPLAN_MAX_BLOCKS + 1024)
    return bs_error_set(err, BS_INPUT, "BS-PLAN-BLOCKS", "%.200s has %zu lines; a plan has at most %d blocks",
                        path, lines, GPLAN_MAX_BLOCKS);
  out->blocks = calloc(lines, sizeof *out->blocks);
  out->ids = calloc(lines, sizeof *out->ids);
  if (out->blocks == NULL || out->ids == NULL)
    return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for %.200s", path);
  char *rest = out->text, *line = bs_text_file_line(&rest);
  if (line == NULL) return bs_error_set(err, BS_INPUT, "BS-PLAN-FILE", "%.200s is empty", path);
  rc = read_header(path, line, &n_cells, at, err);
  while (rc == BS_OK && (line = bs_text_file_line(&rest)) != NULL) {
    number++;
    if (line[strspn(line, " \t")] == '\0') continue;
    rc = read_block(path, number, line, n_cells, at, &out->ids[out->n], &out->blocks[out->n], err);
    out->n++;
  }
  if (rc == BS_OK && out->n == 0) {
    rc = bs_error_set(err, BS_INPUT, "BS-PLAN-FILE", "%.200s has no blocks", path);
    bs_error_hint(err, "behind the first line comes one line a block");
  }
  return rc;
}

void bs_plan_file_free(bs_plan_file *file) {
  free(file->blocks);
  free(file->ids);
  free(file->text);
  memset(file, 0, sizeof *file);
}

static json_t *placement(const bs_plan_file *file, uint32_t i, uint64_t offset) {
  const gplan_block *b = &file->blocks[i];
  return json_pack("{s:s, s:I, s:I, s:I, s:I}", "id", file->ids[i], "lower", (json_int_t)b->lower, "upper",
                   (json_int_t)b->upper, "size", (json_int_t)b->bytes, "offset", (json_int_t)offset);
}

/* The five largest blocks in use in the peak step. */
static json_t *largest(const bs_plan_file *file, const gplan_life *life, const gplan_arena *arena,
                       const uint64_t *offsets, gplan_report *report) {
  gplan_value *values = calloc(file->n, sizeof *values);
  json_t *rows = json_array();
  for (uint32_t i = 0; values != NULL && i < file->n; i++)
    values[i] = (gplan_value){file->blocks[i].bytes, 0, file->blocks[i].lower, file->blocks[i].upper - 1,
                              .inside = GPLAN_NONE};
  if (values != NULL) gplan_report_make(values, life, arena, report);
  for (uint32_t k = 0; values != NULL && k < report->n_top; k++)
    json_array_append_new(rows, placement(file, report->top[k].value, offsets[report->top[k].value]));
  free(values);
  return rows;
}

static json_t *result(const bs_plan_file *file, uint64_t alignment, const gplan_arena *arena,
                      const uint64_t *offsets, double seconds) {
  gplan_report report = {0};
  uint32_t *block = calloc(file->n, sizeof *block);
  gplan_life life = {.n_values = file->n, .n_blocks = file->n, .blocks = file->blocks, .block = block};
  for (uint32_t i = 0; block != NULL && i < file->n; i++) {
    block[i] = i;
    if (life.naive > INT64_MAX - file->blocks[i].bytes) break;
    life.naive += file->blocks[i].bytes;
  }
  json_t *top = block != NULL ? largest(file, &life, arena, offsets, &report) : json_array();
  json_t *placements = json_array();
  for (uint32_t i = 0; i < file->n; i++) json_array_append_new(placements, placement(file, i, offsets[i]));
  free(block);
  return json_pack("{s:I, s:I, s:I, s:I, s:f, s:s, s:b, s:I, s:I, s:o, s:I, s:f, s:o}", "blocks",
                   (json_int_t)file->n, "alignment", (json_int_t)alignment, "arena", (json_int_t)arena->bytes,
                   "bound", (json_int_t)arena->bound, "ratio", report.ratio, "by", arena->by, "proven",
                   (int)arena->proven, "naive", (json_int_t)life.naive, "peak_step", (json_int_t)arena->peak,
                   "largest", top, "steps", (json_int_t)arena->steps, "seconds", seconds, "placements",
                   placements);
}

int32_t bs_plan_solve(const bs_plan_file *file, uint64_t alignment, uint64_t exact_steps, json_t **out,
                      bs_error *err) {
  const gplan_options options = {alignment, exact_steps};
  gplan_arena arena;
  uint64_t *offsets = calloc((size_t)file->n + 1, sizeof *offsets);
  *out = NULL;
  if (offsets == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for a plan");
  const double begin = bs_clock_s();
  int32_t rc = gplan_place(file->blocks, file->n, &options, offsets, &arena, err);
  const double seconds = bs_clock_s() - begin;
  if (rc == BS_OK) rc = gplan_check(file->blocks, file->n, alignment, offsets, arena.bytes, err);
  if (rc == BS_OK) {
    *out = result(file, alignment, &arena, offsets, seconds);
    if (*out == NULL) rc = bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for the plan's rows");
  }
  free(offsets);
  return rc;
}
