/* SPDX-License-Identifier: MIT
 * find.c - see find.h. */
#include "lab/store/find.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "core/base/text.h"
#include "lab/config/short_names.h"
#include "lab/error.h"
#include "lab/store/folder.h"
#include "lab/store/read.h"
#include "lab/store/sha256.h"

/* ---- one run --------------------------------------------------------------------------------------- */

enum { SHORT_LEAST = 4, NAMED = 3 };

typedef struct search {
  const char *text;
  size_t digits;       /* of text, where it may be a short id; else 0 */
  char *exact, *begun; /* folders: the name or path itself, and one that the text is the beginning of */
  size_t n_exact, n_begun;
  char *named[NAMED]; /* the first of those that were found, for the error */
} search;

void bs_run_short_id(const char *run, char out[BS_SHORT_ID]) {
  char hex[65];
  bs_sha256 sum;
  bs_sha256_init(&sum);
  bs_sha256_add(&sum, run, strlen(run));
  bs_sha256_hex(&sum, hex);
  memcpy(out, hex, BS_SHORT_ID - 1);
  out[BS_SHORT_ID - 1] = '\0';
}

static int by_text(const void *a, const void *b) {
  return strcmp(a, b);
}

size_t bs_run_short_digits(const json_t *rows) {
  const size_t n = json_array_size(rows);
  char(*ids)[BS_SHORT_ID] = calloc(n + 1, sizeof *ids);
  size_t digits = 6;
  for (size_t i = 0; i < n && ids != NULL; i++) {
    const char *run = json_string_value(json_object_get(json_array_get(rows, i), "run"));
    bs_run_short_id(run != NULL ? run : "", ids[i]);
  }
  if (ids != NULL) qsort(ids, n, sizeof *ids, by_text);
  for (size_t i = 1; i < n && ids != NULL; i++) {
    if (strcmp(ids[i], ids[i - 1]) == 0) continue; /* rows of one run */
    while (digits < BS_SHORT_ID - 1 && strncmp(ids[i], ids[i - 1], digits) == 0) digits++;
  }
  free(ids);
  return digits;
}

static int keep(char **slot, const char *path) {
  if (*slot != NULL) return 1;
  *slot = bs_strdup(path);
  return *slot != NULL;
}

/* Does the text begin the run_id, its key or its short id? */
static int begins(const search *s, const char *id, const char *path) {
  const size_t n = strlen(s->text);
  const char *key = strrchr(id, '_');
  char short_id[BS_SHORT_ID];
  if (strncmp(id, s->text, n) == 0) return 1;
  if (s->digits == 0) return 0;
  if (key != NULL && strncmp(key + 1, s->text, n) == 0) return 1;
  bs_run_short_id(path, short_id);
  return strncmp(short_id, s->text, n) == 0;
}

static int32_t visit(void *user, enum bs_folder_kind kind, int fd, const char *path, bs_error *err) {
  search *s = user;
  const char *slash = strrchr(path, '/'), *id = slash != NULL ? slash + 1 : path;
  (void)fd;
  if (kind == BS_FOLDER_TEMPORARY || kind == BS_FOLDER_CLOSED) return BS_OK;
  const int exact = strcmp(path, s->text) == 0 || strcmp(id, s->text) == 0;
  if (!exact && !begins(s, id, path)) return BS_OK;
  s->n_exact += (size_t)exact;
  int good = keep(&s->begun, path) && (!exact || keep(&s->exact, path));
  if (s->n_begun < NAMED) good = good && keep(&s->named[s->n_begun], path);
  s->n_begun++;
  return good ? BS_OK : bs_no_memory(err, "the name of a run");
}

/* A folder of a run as a path from here: "out/phase0/dense/ID" is ID below out/phase0/dense. */
static int is_run_path(const char *text, char **out_root, char **out_run) {
  struct stat st;
  bs_text file = {0};
  size_t n = strlen(text);
  while (n > 1 && text[n - 1] == '/') n--;
  bs_text_printf(&file, "%.*s/metrics.jsonl", (int)n, text);
  const int found = !file.failed && stat(file.data, &st) == 0 && S_ISREG(st.st_mode);
  bs_text_free(&file);
  if (!found) return 0;
  size_t cut = n;
  while (cut > 0 && text[cut - 1] != '/') cut--;
  *out_root = cut == 0 ? bs_strdup(".") : strndup(text, cut > 1 ? cut - 1 : 1);
  *out_run = strndup(text + cut, n - cut);
  return 1;
}

/* Names a folder below `root` from there. 0: out of memory. */
static int from_root(const char *root, char **out_root, char **out_run) {
  bs_text folder = {0};
  bs_text_printf(&folder, "%s/%s", *out_root, *out_run);
  char *above = realpath(root, NULL), *whole = folder.failed ? NULL : realpath(folder.data, NULL);
  const size_t n = above != NULL && strcmp(above, "/") != 0 ? strlen(above) : 0;
  int good = !folder.failed;
  if (above != NULL && whole != NULL && strncmp(whole, above, n) == 0 && whole[n] == '/' &&
      whole[n + 1] != '\0') {
    free(*out_root);
    free(*out_run);
    *out_root = bs_strdup(root);
    *out_run = bs_strdup(whole + n + 1);
    good = *out_root != NULL && *out_run != NULL;
  }
  free(above);
  free(whole);
  bs_text_free(&folder);
  return good;
}

static int32_t not_one(const search *s, const char *root, bs_error *err) {
  char names[360] = "";
  size_t used = 0;
  if (s->n_begun == 0) {
    bs_error_set(err, BS_NOT_FOUND, "BS-STO-NORUN", "there is no run '%.200s' below %.200s", s->text, root);
    bs_error_hint(err, "bsrun runs list shows them; `latest` is the newest; --out DIR looks elsewhere");
    return BS_NOT_FOUND;
  }
  for (size_t i = 0; i < NAMED && s->named[i] != NULL && used + 1 < sizeof names; i++) {
    char id[BS_SHORT_ID];
    bs_run_short_id(s->named[i], id);
    const int n =
        snprintf(names + used, sizeof names - used, "%s%.6s (%.90s)", used > 0 ? ", " : "", id, s->named[i]);
    used += n > 0 ? (size_t)n : 0;
  }
  const size_t n = s->n_exact > 1 ? s->n_exact : s->n_begun;
  bs_error_set(err, BS_USAGE, "BS-STO-MANY", "%zu runs are meant by '%.60s': %s%s", n, s->text, names,
               n > NAMED ? ", ..." : "");
  bs_error_hint(err, "give one of these short ids, the folder, or more of the run_id");
  return BS_USAGE;
}

/* The path of the newest committed run. */
static int32_t newest(const char *root, char **out_run, bs_error *err) {
  json_t *rows = NULL;
  int32_t rc = bs_runs_index(root, &rows, NULL, err);
  const char *run = json_string_value(json_object_get(json_array_get(rows, 0), "run"));
  if (rc == BS_OK && run == NULL) {
    rc = bs_error_set(err, BS_NOT_FOUND, "BS-STO-NORUN",
                      "there is no latest run: %.200s has no run that ended", root);
    bs_error_hint(err, "bsrun makes one; --out DIR looks elsewhere");
  } else if (rc == BS_OK && (*out_run = bs_strdup(run)) == NULL) {
    rc = bs_no_memory(err, "the name of a run");
  }
  json_decref(rows);
  return rc;
}

static int32_t search_all(const char *root, const char *text, char **out_run, bs_error *err) {
  search s = {.text = text};
  if (strspn(text, "0123456789abcdef") == strlen(text) && strlen(text) >= SHORT_LEAST)
    s.digits = strlen(text);
  int32_t rc = text[0] != '\0' ? bs_folders_walk(root, visit, &s, err) : BS_OK;
  const char *found = s.n_exact == 1 ? s.exact : s.n_exact == 0 && s.n_begun == 1 ? s.begun : NULL;
  if (rc == BS_OK && found == NULL) rc = not_one(&s, root, err);
  if (rc == BS_OK && (*out_run = bs_strdup(found)) == NULL) rc = bs_no_memory(err, "the name of a run");
  free(s.exact);
  free(s.begun);
  for (size_t i = 0; i < NAMED; i++) free(s.named[i]);
  return rc;
}

int32_t bs_run_find(const char *root, const char *text, char **out_root, char **out_run, bs_error *err) {
  *out_root = *out_run = NULL;
  if (is_run_path(text, out_root, out_run)) {
    const int good = *out_root != NULL && *out_run != NULL && from_root(root, out_root, out_run);
    return good ? BS_OK : bs_no_memory(err, "the name of a run");
  }
  const int32_t rc =
      strcmp(text, "latest") == 0 ? newest(root, out_run, err) : search_all(root, text, out_run, err);
  if (rc == BS_OK && (*out_root = bs_strdup(root)) == NULL) return bs_no_memory(err, "the name of a run");
  return rc;
}

/* ---- conditions ------------------------------------------------------------------------------------ */

static int32_t bad_condition(const char *text, const char *what, bs_error *err) {
  bs_error_set(err, BS_USAGE, "BS-USE-WHERE", "--where '%.100s': %s", text, what);
  bs_error_hint(err, "KEY=VALUE, KEY!=VALUE, KEY>NUMBER, KEY<NUMBER, as in method=dense or N>1024");
  return BS_USAGE;
}

/* Heads of `bsrun runs list` whose field has another name. */
static void use_key_of_head(char *key, size_t size) {
  static const char *const heads[][2] = {
      {"result", "word"}, {"P", "world_size"}, {"date", "time"}, {"median", "median_s"}, {"id", "run_id"}};
  for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++)
    if (strcasecmp(key, heads[i][0]) == 0) snprintf(key, size, "%s", heads[i][1]);
}

static int32_t check_key(const char *text, const char *key, bs_error *err) {
  size_t n = 0;
  if (strncmp(key, "regions.", 8) == 0) return BS_OK;
  for (; bs_run_row_keys[n] != NULL; n++)
    if (strcmp(bs_run_row_keys[n], key) == 0) return BS_OK;
  const char *nearest = bs_nearest(key, bs_run_row_keys, n);
  bs_error_set(err, BS_USAGE, "BS-USE-WHERE", "--where '%.100s': runs have no field '%.64s'", text, key);
  if (nearest != NULL)
    bs_error_hint(err, "did you mean '%s'?", nearest);
  else
    bs_error_hint(err, "bsrun runs list -o json shows every field");
  return BS_USAGE;
}

const char *bs_phase_word(const char *phase) {
  for (size_t i = 0; i < BS_PHASE_NAMES; i++)
    if (strcmp(phase, bs_phase_full_names[i]) == 0) return bs_phase_words[i];
  return phase;
}

/* The name of a dtype, an activation, a phase or a mask in any spelling, which older records have too; else
 * the text. */
static const char *one_spelling(const char *key, const char *text) {
  const int is_activation = strcmp(key, "activation") == 0;
  const uint32_t table = is_activation ? BS_NAMES_ACTIVATION : BS_NAMES_DTYPE;
  uint32_t number;
  if (strcmp(key, "phase") == 0 || strcmp(key, "mask") == 0)
    return bs_full_name(bs_short_name_key(key), text);
  if (!is_activation && strstr(key, "dtype") == NULL) return text;
  return bs_name_read(table, text, &number) ? bs_name_of(table, number) : text;
}

int32_t bs_condition_parse(const char *text, bs_condition *out, bs_error *err) {
  const size_t n = strcspn(text, "=!<>"), m = strspn(text + n, "=!<>");
  static const char *const known[] = {"=", "!=", ">", "<", ">=", "<="};
  int good = 0;
  *out = (bs_condition){.value = text + n + m};
  if (n == 0 || n >= sizeof out->key || m == 0 || m > 2) return bad_condition(text, "no condition", err);
  memcpy(out->key, text, n);
  memcpy(out->how, text + n, m);
  for (size_t i = 0; i < 6; i++) good |= strcmp(known[i], out->how) == 0;
  if (!good) return bad_condition(text, "unknown operator", err);
  int64_t whole;
  out->is_number = bs_parse_size(out->value, &whole);
  if (out->is_number)
    out->number = (double)whole;
  else
    out->is_number = bs_parse_f64(out->value, &out->number);
  if (out->how[0] != '=' && out->how[0] != '!' && !out->is_number)
    return bad_condition(text, "only numbers have an order", err);
  use_key_of_head(out->key, sizeof out->key);
  out->value = one_spelling(out->key, out->value);
  return check_key(text, out->key, err);
}

static int is_equal(const bs_condition *c, const json_t *value) {
  if (value == NULL || json_is_null(value)) return strcmp(c->value, "null") == 0;
  if (json_is_number(value)) return c->is_number && json_number_value(value) == c->number;
  if (json_is_boolean(value)) return strcmp(c->value, json_is_true(value) ? "true" : "false") == 0;
  return json_is_string(value) && strcmp(c->value, one_spelling(c->key, json_string_value(value))) == 0;
}

int bs_condition_holds(const bs_condition *c, const json_t *row) {
  const int region = strncmp(c->key, "regions.", 8) == 0;
  const json_t *value =
      region ? json_object_get(json_object_get(row, "regions"), c->key + 8) : json_object_get(row, c->key);
  if (strcmp(c->how, "=") == 0) return is_equal(c, value);
  if (strcmp(c->how, "!=") == 0) return !is_equal(c, value);
  if (!json_is_number(value)) return 0;
  const double number = json_number_value(value);
  const int above = number > c->number, equal = number == c->number;
  return c->how[0] == '>' ? above || (c->how[1] == '=' && equal) : !above && (c->how[1] == '=' || !equal);
}
