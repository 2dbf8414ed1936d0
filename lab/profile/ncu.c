/* SPDX-License-Identifier: MIT
 * ncu.c - see ncu.h. Lines before the header (==PROF== ...) are passed over. */
#include "lab/profile/ncu.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/error.h"
#include "lab/profile/ncu_number.h"

enum { MOST_BYTES = 64 << 20, MOST_CELLS = 4096 };

/* Percentages of a peak may be a little over 100, since ncu measures in several passes. */
static const bs_ncu_range percent = {0, 110}, time = {1e-15, 1e15}, registers = {0, 1024},
                          counted = {0, 1e18}, anything = {-1e300, 1e300};

static const char *const keys[] = {"tensor_percent", "dram_percent", "sm_percent",     "warps_percent",
                                   "seconds",        "registers",    "bank_conflicts", "long_scoreboard"};
enum { N_KEYS = sizeof keys / sizeof keys[0], SECONDS = 4 };

/* Names of ncu's metrics, on the raw page and in the sections, and their keys here. */
static const struct metric {
  const char *name;
  uint32_t key; /* of keys */
  const bs_ncu_range *range;
} metrics[] = {
    {"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active", 0, &percent},
    {"sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active", 0, &percent},
    {"sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active", 0, &percent},
    {"dram__throughput.avg.pct_of_peak_sustained_elapsed", 1, &percent},
    {"gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", 1, &percent},
    {"DRAM Throughput", 1, &percent},
    {"sm__throughput.avg.pct_of_peak_sustained_elapsed", 2, &percent},
    {"Compute (SM) Throughput", 2, &percent},
    {"sm__warps_active.avg.pct_of_peak_sustained_active", 3, &percent},
    {"Achieved Occupancy", 3, &percent},
    {"gpu__time_duration.sum", SECONDS, &time},
    {"Duration", SECONDS, &time},
    {"launch__registers_per_thread", 5, &registers},
    {"Registers Per Thread", 5, &registers},
    /* of shared memory; and warps that wait for device memory, a warp that issues */
    {"l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum", 6, &counted},
    {"smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio", 7, &counted},
};
enum { N_METRICS = sizeof metrics / sizeof metrics[0] };

/* One kernel's name: sums of its launches. */
typedef struct kernel {
  const char *name; /* in the file's text */
  double sum[N_KEYS];
  uint64_t n[N_KEYS];
} kernel;

/* A cell of a known metric; it is converted after the whole file has shown its number style. */
typedef struct value {
  const char *text;
  double factor;
  size_t kernel, line;
  const struct metric *metric;
} value;

/* A line cut into cells, in place. */
typedef struct line {
  char *cell[MOST_CELLS];
  size_t n;
} line;

/* The columns of the header, which are the same memory's. */
typedef struct table {
  const char *path;
  size_t number; /* of the current line */
  line head, units, at;
  size_t kernel, name, value, unit; /* columns; MOST_CELLS: none */
  int raw;                          /* a row a kernel, with a line of units */
  json_t *places;                   /* by name: place in kernels */
  kernel *kernels;
  value *values;
  size_t n_kernels, room_kernels, n_values, room_values;
  bs_ncu_votes known, other; /* of metrics that are known, and of the rest */
  bs_error *err;
} table;

static int32_t bad(const table *t, const char *what) {
  bs_error_set(t->err, BS_INPUT, "BS-NCU-CSV", "%s", what);
  bs_error_where(t->err, "%s:%zu", t->path, t->number);
  bs_error_hint(t->err, "LC_ALL=C ncu --csv --page raw --set full COMMAND > FILE.csv");
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

static const struct metric *metric_of(const char *name) {
  for (size_t i = 0; i < N_METRICS; i++) {
    if (strcmp(metrics[i].name, name) == 0) return &metrics[i];
  }
  return NULL;
}

/* The factor that makes seconds of a unit of time. */
static double unit_factor(const struct metric *metric, const char *unit) {
  static const struct {
    const char *unit;
    double factor;
  } units[] = {{"s", 1},          {"second", 1}, {"msecond", 1e-3}, {"ms", 1e-3},
               {"usecond", 1e-6}, {"us", 1e-6},  {"nsecond", 1e-9}, {"ns", 1e-9}};
  if (metric->key != SECONDS) return 1.0;
  for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
    if (strcmp(units[i].unit, unit) == 0) return units[i].factor;
  }
  return 0.0; /* unknown */
}

/* Room for one more of `size` bytes. */
static int grow(void **all, size_t n, size_t *room, size_t size) {
  if (n < *room) return 1;
  const size_t more = *room > 0 ? 2 * *room : 64;
  void *grown = realloc(*all, more * size);
  if (grown == NULL) return 0;
  *all = grown;
  *room = more;
  return 1;
}

static int32_t kernel_of(table *t, const char *name, size_t *out) {
  const json_t *known = json_object_get(t->places, name);
  *out = known != NULL ? (size_t)json_integer_value(known) : t->n_kernels;
  if (known != NULL) return BS_OK;
  if (!grow((void **)&t->kernels, t->n_kernels, &t->room_kernels, sizeof *t->kernels))
    return bs_no_memory(t->err, "a file of ncu");
  if (json_object_set_new(t->places, name, json_integer((json_int_t)t->n_kernels)) != 0)
    return bad(t, "the name of a kernel is no UTF-8");
  memset(&t->kernels[t->n_kernels], 0, sizeof *t->kernels);
  t->kernels[t->n_kernels++].name = name;
  return BS_OK;
}

static int32_t add_value(table *t, size_t of, const char *name, const char *unit, const char *text) {
  const struct metric *metric = metric_of(name);
  if (bs_ncu_tells_nothing(text)) return BS_OK;
  if (metric == NULL) {
    if (!t->raw || strstr(name, "__") != NULL) bs_ncu_vote(text, &anything, t->number, &t->other);
    return BS_OK;
  }
  const double factor = unit_factor(metric, unit);
  if (factor == 0.0) return bad(t, "the unit of a time is unknown");
  if (!grow((void **)&t->values, t->n_values, &t->room_values, sizeof *t->values))
    return bs_no_memory(t->err, "a file of ncu");
  t->values[t->n_values++] = (value){text, factor, of, t->number, metric};
  bs_ncu_vote(text, metric->range, t->number, &t->known);
  return BS_OK;
}

static int32_t add_row(table *t) {
  size_t of = 0;
  if (t->at.n != t->head.n) return bad(t, "a line has another number of cells than the header");
  int32_t rc = kernel_of(t, t->at.cell[t->kernel], &of);
  if (rc == BS_OK && !t->raw)
    return add_value(t, of, t->at.cell[t->name], t->at.cell[t->unit], t->at.cell[t->value]);
  for (size_t i = 0; rc == BS_OK && i < t->head.n; i++)
    rc = add_value(t, of, t->head.cell[i], t->units.n == t->head.n ? t->units.cell[i] : "", t->at.cell[i]);
  return rc;
}

/* Finds the style from the numbers of known metrics; if all of these fit both styles, from the others. */
static int32_t find_style(table *t, enum bs_ncu_style *out) {
  const bs_ncu_votes *v = &t->known;
  const size_t point = v->first[BS_NCU_POINT], comma = v->first[BS_NCU_COMMA];
  *out = comma > 0 ? BS_NCU_COMMA : BS_NCU_POINT;
  if (point > 0 && comma > 0) {
    t->number = point > comma ? point : comma;
    return bad(t, "numbers have a decimal point in one place and a decimal comma in another");
  }
  if (point > 0 || comma > 0) return BS_OK;
  if (t->other.n[BS_NCU_POINT] == 0 && t->other.n[BS_NCU_COMMA] > 0) *out = BS_NCU_COMMA;
  if (v->doubtful == 0 || (t->other.n[BS_NCU_POINT] > 0) != (t->other.n[BS_NCU_COMMA] > 0)) return BS_OK;
  t->number = v->doubtful;
  return bad(t, "the comma of a number may be a decimal comma or mark thousands: no other number tells");
}

static int32_t add_up(table *t) {
  enum bs_ncu_style style;
  const int32_t rc = find_style(t, &style);
  for (size_t i = 0; rc == BS_OK && i < t->n_values; i++) {
    const value *v = &t->values[i];
    double number;
    t->number = v->line;
    if (!bs_ncu_number(v->text, style, &anything, &number)) return bad(t, "a metric's value is no number");
    if (!bs_ncu_number(v->text, style, v->metric->range, &number))
      return bad(t, "a metric's value cannot be: a percentage is from 0 to 110, a time is above 0");
    t->kernels[v->kernel].sum[v->metric->key] += v->factor * number;
    t->kernels[v->kernel].n[v->metric->key]++;
  }
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
    if (length == 0 && next == NULL) break; /* after the end of the last line */
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
  if (rc == BS_OK && t->n_kernels == 0) return bad(t, "there is no kernel");
  return rc == BS_OK ? add_up(t) : rc;
}

/* Sums become means. */
static json_t *means_of(const kernel *k) {
  uint64_t launches = 1;
  json_t *means = json_object();
  for (size_t key = 0; key < N_KEYS; key++) {
    if (k->n[key] > launches) launches = k->n[key];
    if (k->n[key] > 0) json_object_set_new(means, keys[key], json_real(k->sum[key] / (double)k->n[key]));
  }
  return json_pack("{ss,s:I,so}", "kernel", k->name, "launches", (json_int_t)launches, "ncu", means);
}

static int32_t tell(const table *t, bs_ncu_take take, void *user) {
  int32_t rc = BS_OK;
  for (size_t i = 0; rc == BS_OK && i < t->n_kernels; i++) {
    json_t *row = means_of(&t->kernels[i]);
    rc = row != NULL ? take(user, row, i, t->n_kernels, t->err) : bs_no_memory(t->err, "a kernel");
    json_decref(row);
  }
  return rc;
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

int32_t bs_ncu_read_text(char *text, const char *name, bs_ncu_take take, void *user, bs_error *err) {
  int32_t rc = BS_OK;
  table *t = calloc(1, sizeof *t);
  if (t != NULL) t->places = json_object();
  if (t == NULL || t->places == NULL) {
    rc = bs_no_memory(err, "a file of ncu");
  } else {
    t->path = name;
    t->err = err;
    rc = read_lines(t, strncmp(text, "\xef\xbb\xbf", 3) == 0 ? text + 3 : text);
    json_decref(t->places);
    free(t->values);
    if (rc == BS_OK) rc = tell(t, take, user);
    free(t->kernels);
  }
  free(t);
  return rc;
}

int32_t bs_ncu_read(const char *path, bs_ncu_take take, void *user, bs_error *err) {
  char *text;
  int32_t rc = read_file(path, &text, err);
  if (rc != BS_OK) return rc;
  rc = bs_ncu_read_text(text, path, take, user, err);
  free(text);
  return rc;
}
