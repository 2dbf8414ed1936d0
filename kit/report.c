/* SPDX-License-Identifier: MIT
 * report.c - a report as text, TAP 13 or JSON. The grade is the last line of the first two. */
#include <jansson.h>
#include <stdio.h>
#include <unistd.h>

#include "core/base/text.h"
#include "kit/kit.h"

static const char *const result_words[] = {"pass", "FAIL", "unsupported", "xfail"};

/* One line, whatever a plugin wrote into its messages. */
static void put_line(bs_text *t, const char *text) {
  for (const char *p = text; *p != '\0'; p++) {
    const char c = *p == '\n' || *p == '\r' || *p == '\t' ? ' ' : *p;
    bs_text_append(t, &c, 1);
  }
}

static void print_text(const bs_kit_report *r, bs_text *t) {
  bs_text_printf(t, "plugin %s %s, %s kit: %s\n", r->id[0] != '\0' ? r->id : "?", r->version,
                 r->full ? "full" : "quick", r->path);
  for (uint32_t i = 0; i < r->n_rows; i++) {
    const bs_kit_row *row = &r->rows[i];
    bs_text_printf(t, "  %-11s %s", result_words[row->result], row->name);
    if (row->text[0] != '\0') {
      bs_text_append(t, ": ", 2);
      put_line(t, row->text);
    }
    bs_text_append(t, "\n", 1);
  }
  bs_text_printf(t, "%s\n", r->grade);
}

static void print_tap(const bs_kit_report *r, bs_text *t) {
  bs_text_printf(t, "TAP version 13\n1..%u\n", r->n_rows);
  for (uint32_t i = 0; i < r->n_rows; i++) {
    const bs_kit_row *row = &r->rows[i];
    const int bad = row->result == BS_KIT_FAIL || row->result == BS_KIT_XFAIL;
    bs_text_printf(t, "%s %u - %s", bad ? "not ok" : "ok", i + 1, row->name);
    if (row->result == BS_KIT_UNSUPPORTED || row->result == BS_KIT_XFAIL) {
      bs_text_printf(t, " # %s ", row->result == BS_KIT_XFAIL ? "TODO" : "SKIP");
      put_line(t, row->text);
    }
    bs_text_append(t, "\n", 1);
    if (row->result == BS_KIT_FAIL) {
      bs_text_append(t, "# ", 2);
      put_line(t, row->text);
      bs_text_append(t, "\n", 1);
    }
  }
  bs_text_printf(t, "# %s\n", r->grade);
}

/* A text that is not UTF-8 loses its letters beyond ASCII, but stays in the report. */
static json_t *text_of(const char *text) {
  char plain[640];
  json_t *value = json_string(text);
  if (value != NULL) return value;
  snprintf(plain, sizeof plain, "%s", text);
  for (char *p = plain; *p != '\0'; p++)
    if ((unsigned char)*p >= 0x80) *p = '?';
  return json_string(plain);
}

static void print_json(const bs_kit_report *r, bs_text *t) {
  static const char *const words[] = {"pass", "fail", "unsupported", "xfail"};
  json_t *root = json_object(), *rows = json_array(), *counts = json_object();
  json_object_set_new(root, "plugin", text_of(r->id));
  json_object_set_new(root, "version", text_of(r->version));
  json_object_set_new(root, "path", text_of(r->path));
  json_object_set_new(root, "kit", json_string(r->full ? "full" : "quick"));
  json_t *conformant = bs_kit_passed(r) && r->group[0] != '\0' ? json_null() : json_boolean(bs_kit_passed(r));
  json_object_set_new(root, "group", r->group[0] != '\0' ? text_of(r->group) : json_null());
  json_object_set_new(root, "conformant", conformant); /* null: a part says nothing of it */
  json_object_set_new(root, "grade", text_of(r->grade));
  for (int i = 0; i < 4; i++) json_object_set_new(counts, words[i], json_integer(r->count[i]));
  json_object_set_new(root, "counts", counts);
  for (uint32_t i = 0; i < r->n_rows; i++) {
    json_t *row = json_object();
    json_object_set_new(row, "group", text_of(r->rows[i].group));
    json_object_set_new(row, "name", text_of(r->rows[i].name));
    json_object_set_new(row, "result", json_string(words[r->rows[i].result]));
    json_object_set_new(row, "text", text_of(r->rows[i].text));
    json_array_append_new(rows, row);
  }
  json_object_set_new(root, "checks", rows);
  char *text = json_dumps(root, JSON_INDENT(2));
  bs_text_printf(t, "%s\n", text != NULL ? text : "");
  t->failed |= text == NULL;
  free(text);
  json_decref(root);
}

int bs_kit_print(const bs_kit_report *r, uint32_t format, int fd) {
  bs_text t = {0};
  (format == BS_KIT_JSON ? print_json : format == BS_KIT_TAP ? print_tap : print_text)(r, &t);
  int rc = t.failed ? -1 : 0;
  for (size_t done = 0; rc == 0 && done < t.size;) {
    const ssize_t n = write(fd, t.data + done, t.size - done);
    if (n <= 0)
      rc = -1;
    else
      done += (size_t)n;
  }
  bs_text_free(&t);
  return rc;
}
