/* SPDX-License-Identifier: MIT
 * card.c - the score card: a row for each op and fault of a subject, the number of cases that met the
 * specification, the slowest, and for the first that did not its behaviour and the command that repeats it.
 * Text, TAP or JSON. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/error.h"
#include "lab/report/report.h"
#include "lab/torture/torture.h"

static const bs_field fields[] = {
    {"subject", "OF", BS_FIELD_FOLD, 0},
    {"op", "OP", 0, 0},
    {"fault", "FAULT", 0, 0},
    {"specified", "EXIT", BS_FIELD_RIGHT, 0},
    {"score", "AS SPECIFIED", BS_FIELD_RIGHT, 0},
    {"slowest_s", "SLOWEST (s)", BS_FIELD_RIGHT, 3},
    {"failure", "FIRST FAILURE", 0, 0},
};

typedef struct cell {
  const bs_torture_case *like, *failed;
  size_t n, good;
  double slowest;
} cell;

static cell *cell_of(cell *cells, size_t *n, const bs_torture_case *c) {
  for (size_t i = 0; i < *n; i++) {
    const bs_torture_case *k = cells[i].like;
    if (k->subject == c->subject && k->fault == c->fault && strcmp(k->op, c->op) == 0) return &cells[i];
  }
  cells[*n].like = c;
  return &cells[(*n)++];
}

static int compare(const void *left, const void *right) {
  const bs_torture_case *a = ((const cell *)left)->like, *b = ((const cell *)right)->like;
  if (a->subject != b->subject) return a->subject < b->subject ? -1 : 1;
  const int ops = strcmp(a->op, b->op);
  return ops != 0 ? ops : a->fault - b->fault;
}

static cell *make_cells(const bs_torture *t, size_t *out_n) {
  cell *cells = calloc(t->n_cases > 0 ? t->n_cases : 1, sizeof *cells);
  *out_n = 0;
  for (size_t i = 0; cells != NULL && i < t->n_cases; i++) {
    const bs_torture_case *c = &t->cases[i];
    cell *k = cell_of(cells, out_n, c);
    k->n++;
    if (c->seconds > k->slowest) k->slowest = c->seconds;
    if (c->why[0] == '\0')
      k->good++;
    else if (k->failed == NULL)
      k->failed = c;
  }
  if (cells != NULL) qsort(cells, *out_n, sizeof *cells, compare);
  return cells;
}

static void specified_text(const bs_torture_case *c, char *out, size_t size) {
  int codes[2];
  bs_torture_wanted(c, codes);
  if (codes[1] >= 0)
    snprintf(out, size, "%d or %d", codes[0], codes[1]);
  else
    snprintf(out, size, "%d", codes[0]);
}

static json_t *rows_of(const bs_torture *t, const cell *cells, size_t n) {
  json_t *rows = json_array();
  for (size_t i = 0; rows != NULL && i < n; i++) {
    const cell *k = &cells[i];
    char subject[96], wanted[24], score[48], place[96] = "", failure[560] = "";
    snprintf(subject, sizeof subject, "%s %s", bs_torture_kind_names[k->like->subject->kind],
             k->like->subject->name);
    specified_text(k->like, wanted, sizeof wanted);
    snprintf(score, sizeof score, "%zu/%zu", k->good, k->n);
    char *command = k->failed != NULL ? bs_torture_command(t, k->failed) : NULL;
    if (k->failed != NULL) {
      snprintf(place, sizeof place, "rank %u of %u, call %llu", k->failed->rank, k->failed->world_size,
               (unsigned long long)k->failed->seq);
      snprintf(failure, sizeof failure, "%s: %s", place, k->failed->why);
    }
    json_array_append_new(
        rows, json_pack("{s:s,s:s,s:s,s:s,s:I,s:I,s:s,s:f,s:s,s:s}", "subject", subject, "op", k->like->op,
                        "fault", bs_torture_fault_names[k->like->fault], "specified", wanted, "cases",
                        (json_int_t)k->n, "as_specified", (json_int_t)k->good, "score", score, "slowest_s",
                        k->slowest, "failure", failure, "repeat", command != NULL ? command : ""));
    free(command);
  }
  return rows;
}

static void print_repeats(const json_t *rows) {
  size_t i;
  json_t *row;
  json_array_foreach(rows, i, row) {
    const char *command = json_string_value(json_object_get(row, "repeat"));
    if (command != NULL && command[0] != '\0')
      bs_print(stdout, "repeat %s %s: %s\n", json_string_value(json_object_get(row, "op")),
               json_string_value(json_object_get(row, "fault")), command);
  }
}

static void print_tap(const bs_torture *t) {
  printf("1..%zu\n", t->n_cases);
  for (size_t i = 0; i < t->n_cases; i++) {
    const bs_torture_case *c = &t->cases[i];
    bs_print(stdout, "%s %zu - %s %s %s of %s, rank %u of %u, call %llu\n",
             c->why[0] == '\0' ? "ok" : "not ok", i + 1, bs_torture_kind_names[c->subject->kind],
             c->subject->name, bs_torture_fault_names[c->fault], c->op, c->rank, c->world_size,
             (unsigned long long)c->seq);
    if (c->why[0] == '\0') continue;
    char *shown = bs_report_printable(c->why), *command = bs_torture_command(t, c);
    bs_print(stdout, "# %s\n# repeat: %s\n", shown != NULL ? shown : "", command != NULL ? command : "");
    free(shown);
    free(command);
  }
}

int32_t bs_torture_card(const bs_torture *t, size_t *out_failed, bs_error *err) {
  size_t n = 0, failed = 0;
  double slowest = 0.0;
  int32_t rc = BS_OK;
  cell *cells = make_cells(t, &n);
  json_t *rows = cells == NULL ? NULL : rows_of(t, cells, n);
  for (size_t i = 0; i < t->n_cases; i++) {
    failed += t->cases[i].why[0] != '\0';
    if (t->cases[i].seconds > slowest) slowest = t->cases[i].seconds;
  }
  const double took = bs_process_now() - t->began;
  free(cells);
  *out_failed = failed;
  if (rows == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  if (t->format == BS_FORMAT_JSON) {
    json_t *card = json_pack("{s:O,s:I,s:I,s:f,s:f,s:f}", "rows", rows, "cases", (json_int_t)t->n_cases,
                             "as_specified", (json_int_t)(t->n_cases - failed), "slowest_s", slowest,
                             "seconds", took, "deadline_s", t->deadline);
    json_dumpf(card, stdout, bs_report_json(stdout) | JSON_INDENT(2));
    putchar('\n');
    json_decref(card);
  } else {
    if (t->format == BS_FORMAT_TABLE) {
      rc = bs_report_print(stdout, BS_FORMAT_TABLE, fields, sizeof fields / sizeof fields[0], rows, err);
      print_repeats(rows);
    } else {
      print_tap(t);
    }
    bs_print(stdout, "%sscore: %zu of %zu as specified, slowest %.2f s, deadline %g s, %.0f s in all\n",
             t->format == BS_FORMAT_TABLE ? "" : "# ", t->n_cases - failed, t->n_cases, slowest, t->deadline,
             took);
  }
  json_decref(rows);
  return rc;
}
