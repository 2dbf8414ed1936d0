/* SPDX-License-Identifier: MIT
 * ncu.c - see ncu.h. Lines before the header (==PROF== ...) are passed over. */
#include "lab/profile/ncu.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/error.h"

enum { MOST_BYTES = 64 << 20, MOST_CELLS = 4096 };

/* Names of ncu's metrics, of the raw page and of the sections, and what they are here. */
static const struct metric {
  const char *name, *key;
} metrics[] = {
    {"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active", "tensor_percent"},
    {"sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active", "tensor_percent"},
    {"sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active", "tensor_percent"},
    {"dram__throughput.avg.pct_of_peak_sustained_elapsed", "dram_percent"},
    {"gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", "dram_percent"},
    {"DRAM Throughput", "dram_percent"},
    {"sm__throughput.avg.pct_of_peak_sustained_elapsed", "sm_percent"},
    {"Compute (SM) Throughput", "sm_percent"},
    {"sm__warps_active.avg.pct_of_peak_sustained_active", "warps_percent"},
    {"Achieved Occupancy", "warps_percent"},
    {"gpu__time_duration.sum", "seconds"},
    {"Duration", "seconds"},
    {"launch__registers_per_thread", "registers"},
    {"Registers Per Thread", "registers"},
};
enum { N_METRICS = sizeof metrics / sizeof metrics[0] };

/* A line cut into cells, in place. */
typedef struct line {
  char *cell[MOST_CELLS];
  size_t n;
} line;

/* The columns of the header, which are the same memory's. */
typedef struct table {
  const char *path;
  size_t number; /* of the line at hand */
  line head, units, at;
  size_t kernel, name, value, unit; /* columns; MOST_CELLS: none */
  int raw;                          /* a row a kernel, with a line of units */
  json_t *kernels;                  /* by name: {key: [sum, count], launches} */
  bs_error *err;
} table;

static int32_t bad(const table *t, const char *what) {
  bs_error_set(t->err, BS_INPUT, "BS-NCU-CSV", "%s", what);
  bs_error_where(t->err, "%s:%zu", t->path, t->number);
  bs_error_hint(t->err, "ncu --csv --page raw --set full COMMAND > FILE.csv");
  return BS_INPUT;
}

/* Cells with quotes hold commas and doubled quotes. 0: a quote is not closed, or there are too many cells. */
static int cut(char *text, line *out) {
  char *from = text, *to = text;
  out->n = 0;
  for (;;) {
    if (out->n == MOST_CELLS) return 0;
    out->cell[out->n++] = to;
    if (*from == '"') {
      for (from++; *from != '\0' && !(*from == '"' && from[1] != '"'); from++) {
        if (*from == '"') from++;
        *to++ = *from;
      }
      if (*from != '"') return 0;
      from++;
    }
    while (*from != '\0' && *from != ',') *to++ = *from++;
    const char end = *from;
    *to++ = '\0';
    if (end == '\0') return 1;
    from++;
  }
}

static size_t column(const line *head, const char *name) {
  for (size_t i = 0; i < head->n; i++) {
    if (strcmp(head->cell[i], name) == 0) return i;
  }
  return MOST_CELLS;
}

static const char *key_of(const char *metric) {
  for (size_t i = 0; i < N_METRICS; i++) {
    if (strcmp(metrics[i].name, metric) == 0) return metrics[i].key;
  }
  return NULL;
}

/* The factor that makes seconds of a unit of time. */
static double unit_factor(const char *key, const char *unit) {
  static const struct {
    const char *unit;
    double factor;
  } units[] = {{"s", 1},          {"second", 1}, {"msecond", 1e-3}, {"ms", 1e-3},
               {"usecond", 1e-6}, {"us", 1e-6},  {"nsecond", 1e-9}, {"ns", 1e-9}};
  if (strcmp(key, "seconds") != 0) return 1.0;
  for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
    if (strcmp(units[i].unit, unit) == 0) return units[i].factor;
  }
  return 0.0; /* unknown */
}

/* "1,234.5" */
static int number_of(const char *text, double *out) {
  char plain[64], *end;
  size_t n = 0;
  for (; *text != '\0' && n + 1 < sizeof plain; text++) {
    if (*text != ',') plain[n++] = *text;
  }
  plain[n] = '\0';
  errno = 0;
  *out = strtod(plain, &end);
  return n > 0 && *end == '\0' && errno == 0 && *out == *out && *out - *out == 0;
}

static int32_t add_value(table *t, json_t *kernel, const char *metric, const char *unit, const char *text) {
  const char *key = key_of(metric);
  double value;
  if (key == NULL || text[0] == '\0' || strcmp(text, "n/a") == 0) return BS_OK;
  const double factor = unit_factor(key, unit);
  if (factor == 0.0) return bad(t, "the unit of a time is unknown");
  if (!number_of(text, &value)) return bad(t, "a metric's value is no number");
  json_t *sum = json_object_get(kernel, key);
  const double before = json_number_value(json_array_get(sum, 0)),
               count = json_number_value(json_array_get(sum, 1));
  return json_object_set_new(kernel, key, json_pack("[f,f]", before + factor * value, count + 1)) == 0
             ? BS_OK
             : bs_no_memory(t->err, "a kernel's metrics");
}

static int32_t add_row(table *t) {
  if (t->at.n != t->head.n) return bad(t, "a line has another number of cells than the header");
  const char *name = t->at.cell[t->kernel];
  json_t *kernel = json_object_get(t->kernels, name);
  if (kernel == NULL && json_object_set_new(t->kernels, name, json_object()) != 0)
    return bad(t, "the name of a kernel is no UTF-8");
  kernel = json_object_get(t->kernels, name);
  int32_t rc = BS_OK;
  if (!t->raw) return add_value(t, kernel, t->at.cell[t->name], t->at.cell[t->unit], t->at.cell[t->value]);
  for (size_t i = 0; rc == BS_OK && i < t->head.n; i++)
    rc =
        add_value(t, kernel, t->head.cell[i], t->units.n == t->head.n ? t->units.cell[i] : "", t->at.cell[i]);
  return rc;
}

static int32_t read_head(table *t) {
  t->kernel = column(&t->head, "Kernel Name");
  t->name = column(&t->head, "Metric Name");
  t->value = column(&t->head, "Metric Value");
  t->unit = column(&t->head, "Metric Unit");
  t->raw = t->name == MOST_CELLS;
  if (t->kernel == MOST_CELLS) return bad(t, "the header has no column 'Kernel Name'");
  if (!t->raw && (t->value == MOST_CELLS || t->unit == MOST_CELLS))
    return bad(t, "the header has no columns 'Metric Unit' and 'Metric Value'");
  return BS_OK;
}

static int is_head(const char *text) {
  return strncmp(text, "\"ID\"", 4) == 0 || strncmp(text, "ID,", 3) == 0;
}

static int32_t read_lines(table *t, char *text) {
  char *next = text;
  int32_t rc = BS_OK;
  while (rc == BS_OK && next != NULL) {
    char *at = next, *end = strchr(at, '\n');
    if (end != NULL) *end = '\0';
    next = end != NULL ? end + 1 : NULL;
    const size_t length = strlen(at);
    if (length == 0 && next == NULL) break; /* behind the last line's end */
    t->number++;
    if (length > 0 && at[length - 1] == '\r') at[length - 1] = '\0';
    if (t->head.n == 0 && !is_head(at)) continue;
    if (strncmp(at, "==", 2) == 0 || at[0] == '\0') continue;
    line *to = t->head.n == 0 ? &t->head : t->raw && t->units.n == 0 ? &t->units : &t->at;
    if (!cut(at, to)) return bad(t, "a quote is not closed, or there are too many cells");
    if (to == &t->head) rc = read_head(t);
    if (to == &t->at) rc = add_row(t);
  }
  if (rc == BS_OK && t->head.n == 0) return bad(t, "there is no header that begins with \"ID\"");
  if (rc == BS_OK && json_object_size(t->kernels) == 0) return bad(t, "there is no kernel");
  return rc;
}

/* Sums become means. */
static int32_t finish(const table *t, json_t **out, bs_error *err) {
  const char *name, *key;
  json_t *kernel, *sum;
  *out = json_array();
  json_object_foreach(t->kernels, name, kernel) {
    double launches = 1;
    json_t *means = json_object();
    json_object_foreach(kernel, key, sum) {
      const double n = json_number_value(json_array_get(sum, 1));
      if (n > launches) launches = n;
      json_object_set_new(means, key, json_real(json_number_value(json_array_get(sum, 0)) / n));
    }
    json_t *row = json_pack("{ss,s:I,so}", "kernel", name, "launches", (json_int_t)launches, "ncu", means);
    if (row == NULL || json_array_append_new(*out, row) != 0) {
      json_decref(*out);
      *out = NULL;
      return bs_no_memory(err, "kernels of %s", t->path);
    }
  }
  return BS_OK;
}

static int32_t read_file(const char *path, char **out, bs_error *err) {
  FILE *f = fopen(path, "rb");
  *out = NULL;
  if (f == NULL) return bs_error_errno(err, BS_INPUT, "BS-NCU-OPEN", errno, "%s cannot be read", path);
  char *text = malloc(MOST_BYTES + 1);
  const size_t n = text != NULL ? fread(text, 1, MOST_BYTES + 1, f) : 0;
  fclose(f);
  if (text == NULL) return bs_no_memory(err, "a file of ncu");
  if (n > MOST_BYTES || memchr(text, '\0', n) != NULL) {
    free(text);
    return bs_error_set(err, BS_INPUT, "BS-NCU-CSV", "%s has more than 64 MiB, or zero bytes: not a CSV file",
                        path);
  }
  text[n] = '\0';
  *out = text;
  return BS_OK;
}

int32_t bs_ncu_read(const char *path, json_t **out_kernels, bs_error *err) {
  char *text;
  *out_kernels = NULL;
  int32_t rc = read_file(path, &text, err);
  if (rc != BS_OK) return rc;
  table *t = calloc(1, sizeof *t);
  if (t != NULL) t->kernels = json_object();
  if (t == NULL || t->kernels == NULL) {
    rc = bs_no_memory(err, "a file of ncu");
  } else {
    t->path = path;
    t->err = err;
    rc = read_lines(t, text);
    if (rc == BS_OK) rc = finish(t, out_kernels, err);
    json_decref(t->kernels);
  }
  free(t);
  free(text);
  return rc;
}
