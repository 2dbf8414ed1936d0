/* SPDX-License-Identifier: MIT
 * grade.c - see grade.h. */
#include "lab/store/grade.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "blockshock/blockshock.h"
#include "lab/error.h"
#include "lab/store/env.h"
#include "lab/store/file_sum.h"

static const bs_lines_words words = {"BS-GRADE-IO", "BS-GRADE-LOCK",
                                     "XDG_CACHE_HOME chooses another cache folder", 0};
static const char good[] = "blockshock-conformant ", bad[] = "NOT blockshock-conformant ";

/* ---- the kit's line ------------------------------------------------------------------------- */

static int begins(const char *text, const char *with) {
  return strncmp(text, with, strlen(with)) == 0;
}

/* "[NOT ]blockshock-conformant 0.2: op (1 FAIL, 20 pass, 1 unsupported, 0 xfail)": returns the text after the
 * fixed words, or NULL. */
static const char *behind_words(const char *line) {
  if (begins(line, good)) return line + strlen(good);
  return begins(line, bad) ? line + strlen(bad) : NULL;
}

/* The numbers in the parentheses, and the ABI. 0: not a grade. */
static int read_line(const char *line, json_t **out_counts, json_t **out_abi) {
  static const char *const names[][2] = {
      {"pass", "pass"}, {"FAIL", "fail"}, {"unsupported", "unsupported"}, {"xfail", "xfail"}};
  const char *rest = behind_words(line), *at = rest != NULL ? strrchr(rest, '(') : NULL;
  json_int_t counts[4] = {0};
  int seen = 0;
  if (at == NULL || strspn(rest, "0123456789.") == 0) return 0;
  for (at++; *at >= '0' && *at <= '9'; at += strspn(at, ", ")) {
    char *word;
    const unsigned long n = strtoul(at, &word, 10);
    word += *word == ' ';
    at = word + strspn(word, "abcdefghijklmnopqrstuvwxyzFAIL");
    for (size_t i = 0; i < 4; i++) {
      if (strlen(names[i][0]) != (size_t)(at - word) || strncmp(word, names[i][0], (size_t)(at - word)) != 0)
        continue;
      counts[i] = (json_int_t)n;
      seen++;
    }
  }
  if (seen < 3 || strchr(at, ')') == NULL) return 0;
  *out_counts = json_object();
  for (size_t i = 0; i < 4; i++) json_object_set_new(*out_counts, names[i][1], json_integer(counts[i]));
  *out_abi = json_stringn(rest, strspn(rest, "0123456789."));
  return 1;
}

static json_t *utc_now(void) {
  char text[32];
  struct tm parts;
  const time_t now = time(NULL);
  gmtime_r(&now, &parts);
  strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return json_string(text);
}

/* ---- the file ------------------------------------------------------------------------------- */

static int is_text(const json_t *object, const char *key) {
  return json_is_string(json_object_get(object, key));
}

/* Everything that the rest relies on. */
static int is_entry(const json_t *e) {
  static const char *const texts[] = {"plugin", "sha256", "line", "kit", "abi", "blockshock", "graded_at"};
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
    if (!is_text(e, texts[i])) return 0;
  return json_integer_value(json_object_get(e, "format")) == 1 &&
         json_is_boolean(json_object_get(e, "conformant")) && json_is_object(json_object_get(e, "counts")) &&
         json_is_array(json_object_get(e, "settings")) && json_is_array(json_object_get(e, "isa"));
}

/* Is the grade valid here: for this instruction set and this ABI? */
static int holds(const bs_grades *grades, const json_t *e) {
  char abi[24];
  snprintf(abi, sizeof abi, "%u.%u", BS_ABI_MAJOR, BS_ABI_MINOR);
  return strcmp(json_string_value(json_object_get(e, "abi")), abi) == 0 &&
         json_equal(json_object_get(e, "isa"), grades->isa);
}

static enum bs_line judge_line(void *user, const json_t *entry) {
  return !is_entry(entry) ? BS_LINE_BROKEN : holds(user, entry) ? BS_LINE_HOLDS : BS_LINE_FOREIGN;
}

static json_t *this_isa(void) {
  json_t *env = bs_env_collect(NULL);
  json_t *isa = json_incref(json_object_get(json_object_get(env, "cpu"), "isa"));
  json_decref(env);
  return isa;
}

int32_t bs_grades_open(const char *path, bs_grades *out, bs_error *err) {
  out->isa = this_isa();
  const int32_t rc = bs_lines_open(&words, path, judge_line, out, &out->lines, err);
  return rc == BS_OK && out->isa == NULL ? bs_no_memory(err, "a grade") : rc;
}

void bs_grades_close(bs_grades *grades) {
  json_decref(grades->isa);
  bs_lines_close(&grades->lines);
}

static const char *text_of(const json_t *e, const char *key) {
  return json_string_value(json_object_get(e, key));
}

const json_t *bs_grades_find(const bs_grades *grades, const char *sha256) {
  for (size_t i = json_array_size(grades->lines.entries); i-- > 0;) {
    const json_t *e = json_array_get(grades->lines.entries, i);
    if (strcmp(text_of(e, "sha256"), sha256) == 0) return e;
  }
  return NULL;
}

const json_t *bs_grades_of_file(const bs_grades *grades, const char *plugin, const char *path) {
  char stamp[BS_FILE_STAMP], hex[65];
  int known = 0;
  if (!bs_file_stamp(path, stamp)) return NULL;
  for (size_t i = json_array_size(grades->lines.entries); i-- > 0;) {
    const json_t *e = json_array_get(grades->lines.entries, i);
    const char *graded = text_of(e, "stamp"); /* older lines have no stamp */
    if (graded != NULL && strcmp(graded, stamp) == 0) return bs_grades_find(grades, text_of(e, "sha256"));
    known = known || strcmp(text_of(e, "plugin"), plugin) == 0;
  }
  return known && bs_file_sum(path, hex, NULL) == BS_OK ? bs_grades_find(grades, hex) : NULL;
}

int32_t bs_grades_add(const bs_grades *grades, const bs_grade *g, bs_error *err) {
  json_t *counts = NULL, *abi = NULL;
  if (!read_line(g->line, &counts, &abi))
    return bs_error_set(err, BS_INPUT, "BS-GRADE-LINE", "'%.200s' is no grade", g->line);
  json_t *e = json_pack(
      "{s:i, s:s, s:s, s:s, s:b, s:o, s:s, s:O, s:o, s:s, s:o, s:o}", "format", 1, "plugin", g->plugin,
      "sha256", g->sha256, "line", g->line, "conformant", begins(g->line, good), "counts", counts, "kit",
      g->kit, "isa", grades->isa, "abi", abi, "blockshock", bs_version(), "settings",
      g->settings != NULL ? json_incref(g->settings) : json_array(), "graded_at", utc_now());
  if (e != NULL && g->stamp != NULL) json_object_set_new(e, "stamp", json_string(g->stamp));
  const int32_t rc = e != NULL ? bs_lines_append(&grades->lines, e, err) : bs_no_memory(err, "a grade");
  json_decref(e);
  return rc;
}

int32_t bs_grades_mark(const bs_grades *grades, json_t *plugins, bs_error *err) {
  static const char *const said[] = {"format", "plugin", "sha256", "stamp", "isa"};
  for (size_t i = 0; i < json_array_size(plugins); i++) {
    json_t *row = json_array_get(plugins, i);
    const char *sum = text_of(row, "sha256");
    const json_t *found = sum != NULL ? bs_grades_find(grades, sum) : NULL;
    json_t *grade = found != NULL ? json_copy((json_t *)(uintptr_t)found) : json_null();
    for (size_t k = 0; found != NULL && k < sizeof said / sizeof said[0]; k++)
      json_object_del(grade, said[k]);
    if (json_object_set_new(row, "grade", grade) != 0) return bs_no_memory(err, "a grade");
  }
  return BS_OK;
}
