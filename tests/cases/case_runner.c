/* clang-format off: the list of words keeps its lines.
 * SPDX-License-Identifier: MIT
 * case_runner.c - runs the commands of a .case file and compares what they say with what the file wants.
 *
 * Usage: case_runner FILE.case. Every case is a test, and bsrun runs in a new folder.
 * A line is a word that says what to do, and its arguments. Words are written as for a shell: 'as it is',
 * "with \n \t \" \\ \x1b", and # starts a comment line. Lines before the first case hold for all cases.
 *
 *   case NAME                  a case begins
 *   each NAME WORD...          the rest of the case once for each word, which is {NAME} there
 *   each NAME                  once for each of the lines down to "end"
 *   set NAME TEXT              from here on {NAME} is the rest of this line, as it is; its own names get their values
 *                              where it is used
 *   names NAME... VALUE...     the same for several names, and as many values
 *   env NAME=VALUE             a variable of bsrun; env NAME takes it away
 *   file NAME [TEXT]           writes a file; without TEXT the lines down to "end"
 *   onnx NAME                  writes a model: the lines down to "end" are of ONNX's text syntax
 *   npy NAME DTYPE SHAPE VALUE...  writes an array, such as of "2,3" or ''; the values are repeated in it
 *   tensors NAME               writes a .safetensors of f32: down to "end" a NAME SHAPE VALUE... a line
 *   sh COMMAND                 a shell command in the folder; it must succeed
 *   run CODE WORDS...          bsrun with these words; it must end with this exit code
 *   error ID TEXT...           stderr has one error line, of this id, with each text in it; stdout is empty
 *   bad CODE ID TEXT WORDS...  "run" and "error" in one line; no file is new, none is below results and out
 *   read GLOB                  the checks of stdout and JSON are about this file now
 *   out TEXT..., no-out        stdout has each text; none of them. err, no-err: of stderr
 *   out-is TEXT, err-is TEXT   stdout (stderr) is this text
 *   save FILE, same FILE       writes stdout to a file; stdout is what a file has
 *   json PATH... OP VALUE      a value in the JSON of stdout. OP: = != < <= > >= has lacks == (a number alone)
 *   json PATH... near N+-M     it is nearer to N than M
 *   json PATH... in A|B|C      it is one of these texts
 *   json PATH... is KIND       null, true, false, number, integer, real, text, list, object, absent, or A|B of them
 *   row SELECTOR...            the JSON has such a row; no-row: it has none
 *   json-same FILE PATH...     the value is that of the JSON of a file
 *   take NAME FILE             from here on {NAME} is the text of a file, in one line
 *   keep NAME PATH...          from here on {NAME} is this text or number of the JSON
 *   files COUNT FOLDER         so many files are below a folder
 *
 * A path is of words: a key, a number of a row (-1: the last), * for all rows, of which there must be one, #
 * for how many there are, and the selectors KEY=VALUE and KEY~PART, which leave the rows with such a text;
 * KEY!=VALUE and KEY!~PART leave the others.
 * Rows are a list; lines are JSON lines only where bsrun or "read" has the word jsonl.
 * {tmp} is the case's folder, {$NAME} a variable of the environment; other braces are text. */
/* clang-format on */
#include <glob.h>
#include <jansson.h>
#include <math.h>

#include "case_files.h"
#include "tests/run_tests.h"
#include "tests/spawn.h"

enum { WORDS_MAX = 96, NAMES_MAX = 64, CASES_MAX = 512 };

typedef struct words {
  char *at[WORDS_MAX + 1]; /* NULL at the end */
  size_t size[WORDS_MAX];  /* a text may have a NUL */
  int count;
} words;

static const char *file_name;
static char *file_text, **lines; /* the lines of the file; NULL at the end */
static int case_at[CASES_MAX + 1], case_count;

/* The state of the case that runs. */
static struct { char *name, *value; } names[NAMES_MAX];
static int name_count, line_number;
static char *command; /* the last one */
static ran last;
static json_t *rows;     /* of last.out; NULL: not read yet */
static int in_lines;     /* last.out is JSON lines */
static char **allocated; /* freed at its end */
static size_t allocated_count;

#define FAIL(...) fail_at(made(__VA_ARGS__))
__attribute__((noreturn)) static void fail_at(const char *what) {
  ck_abort_msg("%s:%d: %s\n  line: %s\n  bsrun %s\n  exit %d\n  stdout: %.3000s\n  stderr: %.3000s",
               file_name, line_number, what, lines[line_number - 1], command != NULL ? command : "",
               last.code, last.out != NULL ? last.out : "", last.err != NULL ? last.err : "");
  abort();
}

static char *own(char *text) {
  ck_assert_ptr_nonnull(text);
  allocated = realloc(allocated, (allocated_count + 1) * sizeof *allocated);
  ck_assert_ptr_nonnull(allocated);
  return allocated[allocated_count++] = text;
}

__attribute__((format(printf, 1, 2))) static char *made(const char *format, ...) {
  char *text = calloc(1, 16384);
  va_list ap;
  va_start(ap, format);
  if (text != NULL) vsnprintf(text, 16384, format, ap);
  va_end(ap);
  return own(text);
}

static void set_name(const char *name, const char *value) {
  int i = 0;
  while (i < name_count && strcmp(names[i].name, name) != 0) i++;
  if (i == NAMES_MAX) FAIL("more than %d names", NAMES_MAX);
  if (i == name_count) name_count++;
  names[i].name = own(strdup(name));
  names[i].value = own(strdup(value));
}

/* The value of the name that a '{' begins; NULL: it is a brace. Names have letters, digits, '_' and '$'. */
static const char *value_of(const char *brace, size_t *out_length) {
  const size_t n = strspn(brace + 1, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_$");
  if (brace[n + 1] != '}') return NULL;
  const char *name = made("%.*s", (int)n, brace + 1);
  *out_length = n + 2;
  if (name[0] == '$') {
    if (getenv(name + 1) == NULL) FAIL("the environment has no %s", name + 1);
    return getenv(name + 1);
  }
  for (int i = 0; i < name_count; i++)
    if (strcmp(names[i].name, name) == 0) return names[i].value;
  return NULL;
}

static char *expand(const char *text);
/* A value may have names, too. */
static const char *expand_within(const char *value) {
  static int depth;
  if (++depth > 8) FAIL("names are in each other");
  value = expand(value);
  depth--;
  return value;
}

static char *expand(const char *text) {
  char *out = calloc(1, 1u << 16);
  size_t n = 0, length = 1;
  own(out);
  for (; *text != '\0'; text += length) {
    const char *value = *text == '{' ? value_of(text, &length) : NULL;
    if (value == NULL) length = 1;
    if (value != NULL && strchr(value, '{') != NULL) value = expand_within(value);
    const int wrote =
        snprintf(out + n, (1u << 16) - n, "%.*s", value != NULL ? 60000 : 1, value != NULL ? value : text);
    n += (size_t)wrote;
    if (n >= 1u << 16) FAIL("the line is too long");
  }
  return out;
}

static char escaped(const char **p) {
  static const char letters[] = "ntr\\\"", values[] = "\n\t\r\\\"";
  char *end;
  const char c = *++*p;
  if (c == 'x') {
    const char hex[3] = {(*p)[1], (*p)[1] != '\0' ? (*p)[2] : '\0', '\0'};
    const long value = strtol(hex, &end, 16);
    if (end != hex + 2) FAIL("\\x wants two digits");
    *p += 2;
    return (char)value;
  }
  const char *at = c != '\0' ? strchr(letters, c) : NULL;
  if (at == NULL) FAIL("\\%c means nothing", c);
  return values[at - letters];
}

static void split(const char *text, words *out) {
  memset(out, 0, sizeof *out);
  for (const char *p = text; *(p += strspn(p, " ")) != '\0';) {
    if (out->count == WORDS_MAX) FAIL("more than %d words", WORDS_MAX);
    char *word = own(calloc(1, strlen(p) + 1)), quote = '\0';
    size_t n = 0;
    for (; *p != '\0' && (quote != '\0' || *p != ' '); p++) {
      if (*p == quote)
        quote = '\0';
      else if (quote == '\0' && (*p == '\'' || *p == '"'))
        quote = *p;
      else
        word[n++] = quote == '"' && *p == '\\' ? escaped(&p) : *p;
    }
    if (quote != '\0') FAIL("a quote is open");
    out->size[out->count] = n;
    out->at[out->count++] = word;
  }
}

static void forget_output(void) {
  json_decref(rows);
  rows = NULL;
  in_lines = 0;
  ran_free(&last);
  last = (ran){0};
}

static void run_command(const char *code, char *const *argv) {
  forget_output();
  command = made("%s", "");
  for (int i = 0; argv[i] != NULL; i++) {
    in_lines |= strcmp(argv[i], "jsonl") == 0;
    command = made("%s '%s'", command, argv[i]);
  }
  run_bsrun(&last, dir, NULL, (const char *const *)argv);
  if (last.code != atoi(code)) FAIL("exit %d, wanted %s", last.code, code);
}

static void do_run(const words *w) {
  run_command(w->at[0], w->at + 1);
}

static size_t files_below(const char *folder) {
  return run_count_files(made("%s/%s", dir, folder), NULL);
}

/* stderr has one error line, of this id, with these texts, and besides it nothing but notes. */
static void one_error(const char *id, char *const *with) {
  const char *lead = made("bsrun: error[%s] ", id);
  int errors = 0;
  for (const char *line = last.err; *line != '\0';) {
    const size_t length = strcspn(line, "\n");
    if (strncmp(line, "bsrun: error[", 13) == 0) {
      errors++;
      if (strncmp(line, lead, strlen(lead)) != 0) FAIL("the error is not %s", id);
      if (length < strlen(lead) + 7) FAIL("the error says nothing");
      for (int i = 0; with[i] != NULL; i++)
        if (strstr(made("%.*s", (int)length, line), with[i]) == NULL) FAIL("the error has no '%s'", with[i]);
    } else if (!is_aside(line)) {
      FAIL("stderr has the line: %.*s", (int)length, line);
    }
    line += length + (line[length] == '\n');
  }
  if (errors != 1) FAIL("%d error lines", errors);
  for (const char *p = last.err; *p != '\0'; p++)
    if ((unsigned char)*p < 0x20 && *p != '\n') FAIL("stderr has the byte 0x%02x", (unsigned char)*p);
  if (last.out[0] != '\0') FAIL("stdout is not empty");
}

static void do_error(const words *w) {
  one_error(w->at[0], w->at + 1);
}

static void do_bad(const words *w) {
  char *with[] = {w->at[2], NULL};
  const size_t before = files_below(".");
  run_command(w->at[0], w->at + 3);
  one_error(w->at[1], with);
  if (files_below("results") + files_below("out") != 0) FAIL("files are left");
  if (files_below(".") != before) FAIL("files are new");
}

static void do_names(const words *w) {
  if (w->count % 2 != 0) FAIL("names and values are not as many");
  for (int i = 0; i < w->count / 2; i++) set_name(w->at[i], w->at[w->count / 2 + i]);
}

static void do_env(const words *w) {
  char *value = strchr(w->at[0], '=');
  if (value == NULL) {
    unsetenv(w->at[0]);
    return;
  }
  *value = '\0';
  setenv(w->at[0], value + 1, 1);
}

/* The next of the lines down to "end", expanded; NULL there. */
static const char *next_line(void) {
  const char *line = lines[line_number];
  if (line == NULL) return NULL;
  line_number++;
  return strcmp(line, "end") == 0 ? NULL : expand(line);
}

static void do_file(const words *w) {
  FILE *f = fopen(made("%s/%s", dir, w->at[0]), "wb");
  ck_assert_ptr_nonnull(f);
  if (w->count > 1) fwrite(w->at[1], 1, w->size[1], f);
  for (const char *line; w->count == 1 && (line = next_line()) != NULL;) fprintf(f, "%s\n", line);
  ck_assert_int_eq(fclose(f), 0);
}

static void do_onnx(const words *w) {
  char *text = made("%s", "");
  for (const char *line; (line = next_line()) != NULL;) text = made("%s%s\n", text, line);
  write_onnx(made("%s/%s", dir, w->at[0]), text);
}

static void do_npy(const words *w) {
  write_npy(made("%s/%s", dir, w->at[0]), w->at[1], w->at[2], w->at + 3, w->count - 3);
}

static void do_tensors(const words *w) {
  static tensors all;
  words one;
  memset(&all, 0, sizeof all);
  for (const char *line; (line = next_line()) != NULL;) {
    split(line, &one);
    if (one.count < 3) FAIL("wanted: NAME SHAPE VALUE...");
    add_tensor(&all, one.at[0], one.at[1], one.at + 2, one.count - 2);
  }
  write_safetensors(made("%s/%s", dir, w->at[0]), &all);
}

static void do_take(const words *w) {
  char *text = read_text(dir, w->at[1]);
  if (text == NULL) FAIL("%s cannot be read", w->at[1]);
  for (char *p = own(text); *p != '\0'; p++)
    if (*p == '\n') *p = ' ';
  text[strlen(text) - (text[0] != '\0' && text[strlen(text) - 1] == ' ')] = '\0';
  set_name(w->at[0], text);
}

static void do_sh(const words *w) {
  if (system(made("cd '%s' && { %s\n}", dir, w->at[0])) != 0) FAIL("the shell command fails: %s", w->at[0]);
}

static void do_read(const words *w) {
  glob_t found;
  if (glob(made("%s/%s", dir, w->at[0]), 0, NULL, &found) != 0 || found.gl_pathc != 1)
    FAIL("%s is not one file", w->at[0]);
  forget_output();
  in_lines = strstr(found.gl_pathv[0], ".jsonl") != NULL;
  last.out = read_text("/", found.gl_pathv[0]);
  globfree(&found);
  if (last.out == NULL) FAIL("%s cannot be read", w->at[0]);
}

static void texts(const words *w, const char *in, int wanted) {
  for (int i = 0; i < w->count; i++)
    if ((in != NULL && strstr(in, w->at[i]) != NULL) != wanted)
      FAIL("%s '%s'", wanted ? "there is no" : "there is", w->at[i]);
}
static void do_out(const words *w) {
  texts(w, last.out, 1);
}
static void do_no_out(const words *w) {
  texts(w, last.out, 0);
}
static void do_err(const words *w) {
  texts(w, last.err, 1);
}
static void do_no_err(const words *w) {
  texts(w, last.err, 0);
}
static void do_out_is(const words *w) {
  if (strcmp(last.out, w->at[0]) != 0) FAIL("stdout is another text");
}
static void do_err_is(const words *w) {
  if (strcmp(last.err, w->at[0]) != 0) FAIL("stderr is another text");
}
static void do_save(const words *w) {
  write_text(dir, w->at[0], last.out);
}
static void do_same(const words *w) {
  char *text = w->at[0][0] == '/' ? read_text("/", w->at[0]) : read_text(dir, w->at[0]);
  if (text == NULL || strcmp(own(text), last.out) != 0) FAIL("stdout is not the text of %s", w->at[0]);
}

/* Rows of one JSON value, or of one a line. */
static json_t *output_rows(void) {
  json_error_t why = {0};
  if (rows != NULL) return rows;
  if (last.out != NULL && (rows = json_loads(last.out, JSON_REJECT_DUPLICATES, &why)) != NULL) return rows;
  if (!in_lines) FAIL("not one JSON value: %s", why.text);
  rows = json_array();
  for (const char *p = last.out; p != NULL && *(p += strspn(p, "\n")) != '\0'; p += strcspn(p, "\n")) {
    json_t *row = json_loadb(p, strcspn(p, "\n"), JSON_REJECT_DUPLICATES, &why);
    if (row == NULL) FAIL("not JSON: %s", why.text);
    json_array_append_new(rows, row);
  }
  return rows;
}

static const char *as_text(const json_t *value) {
  if (json_is_string(value)) return json_string_value(value);
  if (json_is_integer(value)) return made("%lld", (long long)json_integer_value(value));
  if (json_is_real(value)) return made("%.17g", json_real_value(value));
  return json_is_true(value) ? "true" : json_is_false(value) ? "false" : json_is_null(value) ? "null" : NULL;
}

static size_t selector(const char *word) {
  const size_t n = strcspn(word, "=~!");
  return n > 0 && word[n + (word[n] == '!')] != '\0' ? n : 0;
}

static int selected(const json_t *row, const char *word) {
  const size_t n = selector(word);
  const char *text = as_text(json_object_get(row, made("%.*s", (int)n, word)));
  const int others = word[n] == '!';
  const char *op = word + n + others;
  if (text == NULL) return others;
  return others != (*op == '=' ? strcmp(text, op + 1) == 0 : strstr(text, op + 1) != NULL);
}

/* The rows that all selectors from path[*at] on leave; *at is the word after them then. */
static json_t *selection(const json_t *of, char *const *path, int end, int *at) {
  /* JSON lines with one line are an object. */
  json_t *from = in_lines && json_is_object(of) ? json_pack("[O]", of) : json_incref((json_t *)(uintptr_t)of);
  json_t *left = json_array(), *row;
  size_t i;
  int stop = *at;
  if (!json_is_array(from)) FAIL("there is no list of rows");
  while (stop < end && selector(path[stop])) stop++;
  json_array_foreach(from, i, row) {
    int all = 1;
    for (int k = *at; k < stop; k++) all = all && selected(row, path[k]);
    if (all) json_array_append(left, row);
  }
  json_decref(from);
  *at = stop;
  return left;
}

typedef void check(const json_t *value, char *const *want);

static void walk(const json_t *value, char *const *path, int at, int end, check *with, char *const *want) {
  char *rest;
  if (at == end) {
    with(value, want);
  } else if (selector(path[at])) {
    json_t *left = selection(value, path, end, &at);
    const int takes_rows = at < end && (strcmp(path[at], "#") == 0 || strcmp(path[at], "*") == 0);
    walk(takes_rows ? left : json_array_get(left, 0), path, at, end, with, want);
    json_decref(left);
  } else if (strcmp(path[at], "#") == 0) {
    if (!json_is_object(value) && !json_is_array(value)) FAIL("there is nothing to count");
    json_t *size =
        json_integer((json_int_t)(json_is_object(value) ? json_object_size(value) : json_array_size(value)));
    walk(size, path, at + 1, end, with, want);
    json_decref(size);
  } else if (strcmp(path[at], "*") == 0) {
    if (json_array_size(value) == 0) FAIL("there are no rows for *");
    for (size_t i = 0; i < json_array_size(value); i++)
      walk(json_array_get(value, i), path, at + 1, end, with, want);
  } else if (json_is_array(value)) {
    const long row = strtol(path[at], &rest, 10);
    if (*rest != '\0') FAIL("%s is not the number of a row", path[at]);
    walk(json_array_get(value, row < 0 ? json_array_size(value) - (size_t)-row : (size_t)row), path, at + 1,
         end, with, want);
  } else {
    walk(json_object_get(value, path[at]), path, at + 1, end, with, want);
  }
}

static int is_one_kind(const json_t *value, const char *kind) {
  static const struct {
    const char *name;
    int type;
  } kinds[] = {{"null", JSON_NULL},   {"true", JSON_TRUE},      {"false", JSON_FALSE},
               {"text", JSON_STRING}, {"list", JSON_ARRAY},     {"object", JSON_OBJECT},
               {"real", JSON_REAL},   {"integer", JSON_INTEGER}};
  if (strcmp(kind, "absent") == 0) return value == NULL;
  if (strcmp(kind, "number") == 0) return json_is_number(value);
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
    if (strcmp(kinds[i].name, kind) == 0) return value != NULL && (int)json_typeof(value) == kinds[i].type;
  FAIL("there is no kind '%s'", kind);
}

static int is_kind(const json_t *value, const char *kinds) {
  int is = 0;
  for (const char *kind = kinds; *kind != '\0'; kind += strcspn(kind, "|"), kind += *kind == '|')
    is |= is_one_kind(value, made("%.*s", (int)strcspn(kind, "|"), kind));
  return is;
}

/* Is the text one of a|b|c? */
static int is_among(const char *text, const char *among) {
  const size_t length = strlen(text);
  for (const char *one = among; *one != '\0'; one += strcspn(one, "|"), one += *one == '|')
    if (strcspn(one, "|") == length && strncmp(one, text, length) == 0) return 1;
  return 0;
}

static int compares(double a, const char *op, double b) {
  return strcmp(op, "<") == 0    ? a < b
         : strcmp(op, "<=") == 0 ? a <= b
         : strcmp(op, ">") == 0  ? a > b
         : strcmp(op, ">=") == 0 ? a >= b
         : strcmp(op, "=") == 0  ? a == b
                                 : a != b;
}

static void check_value(const json_t *value, char *const *want) {
  const char *op = want[0], *to = want[1], *text = as_text(value);
  char *rest;
  const double number = strtod(to, &rest);
  int ok;
  if (strcmp(op, "is") == 0)
    ok = is_kind(value, to);
  else if (strcmp(op, "in") == 0)
    ok = text != NULL && is_among(text, to);
  else if (strcmp(op, "near") == 0)
    ok = json_is_number(value) && strncmp(rest, "+-", 2) == 0 &&
         fabs(json_number_value(value) - number) < strtod(rest + 2, NULL);
  else if (strcmp(op, "==") == 0)
    ok = json_is_number(value) && *rest == '\0' && *to != '\0' && json_number_value(value) == number;
  else if (strcmp(op, "has") == 0 || strcmp(op, "lacks") == 0)
    ok = text != NULL && (strstr(text, to) != NULL) == (op[0] == 'h');
  else if (json_is_number(value) && *rest == '\0' && *to != '\0')
    ok = compares(json_number_value(value), op, number);
  else
    ok = text != NULL && (op[0] == '=' || op[0] == '!') && (strcmp(text, to) == 0) == (op[0] == '=');
  if (!ok)
    FAIL("%s, wanted %s %s", text != NULL ? text : value != NULL ? "a list or object" : "no value", op, to);
}

static void do_json(const words *w) {
  static const char *const ops[] = {"=",  "==",  "!=",    "<",    "<=", ">",
                                    ">=", "has", "lacks", "near", "is", "in"};
  const int end = w->count - 2;
  int known = 0;
  for (size_t i = 0; end >= 0 && i < sizeof ops / sizeof ops[0]; i++)
    known |= strcmp(w->at[end], ops[i]) == 0;
  if (!known) FAIL("wanted: json PATH... OP VALUE");
  walk(output_rows(), w->at, 0, end, check_value, w->at + end);
}

static size_t rows_left(const words *w) {
  int at = 0;
  json_t *left = selection(output_rows(), w->at, w->count, &at);
  const size_t n = json_array_size(left);
  json_decref(left);
  if (at != w->count) FAIL("'%s' is no selector", w->at[at]);
  return n;
}
static void do_row(const words *w) {
  if (rows_left(w) == 0) FAIL("there is no such row");
}
static void do_no_row(const words *w) {
  if (rows_left(w) != 0) FAIL("there is such a row");
}

static void keep_value(const json_t *value, char *const *want) {
  if (as_text(value) == NULL) FAIL("no text or number to keep");
  set_name(want[0], as_text(value));
}
static void do_keep(const words *w) {
  walk(output_rows(), w->at, 1, w->count, keep_value, w->at);
}

static const json_t *found;
static void find_value(const json_t *value, char *const *want) {
  (void)want;
  found = value;
}
static void do_json_same(const words *w) {
  json_t *other = json_load_file(made("%s/%s", dir, w->at[0]), JSON_DISABLE_EOF_CHECK, NULL);
  if (other == NULL) FAIL("%s is no JSON", w->at[0]);
  walk(other, w->at, 1, w->count, find_value, NULL);
  const json_t *wanted = found;
  walk(output_rows(), w->at, 1, w->count, find_value, NULL);
  if (found == NULL || !json_equal(found, wanted))
    FAIL("%s, wanted %s", json_dumps(found, JSON_ENCODE_ANY), json_dumps(wanted, JSON_ENCODE_ANY));
  json_decref(other);
}

static void do_files(const words *w) {
  const size_t n = files_below(w->at[1]);
  if (n != (size_t)atoi(w->at[0])) FAIL("%zu files are below %s", n, w->at[1]);
}

static const struct {
  const char *name;
  void (*run)(const words *);
  int least; /* arguments */
} verbs[] = {{"run", do_run, 1},         {"bad", do_bad, 3},
             {"error", do_error, 1},     {"env", do_env, 1},
             {"names", do_names, 2},     {"file", do_file, 1},
             {"sh", do_sh, 1},           {"read", do_read, 1},
             {"out", do_out, 1},         {"no-out", do_no_out, 1},
             {"err", do_err, 1},         {"no-err", do_no_err, 1},
             {"out-is", do_out_is, 1},   {"err-is", do_err_is, 1},
             {"save", do_save, 1},       {"same", do_same, 1},
             {"json", do_json, 3},       {"row", do_row, 1},
             {"no-row", do_no_row, 1},   {"keep", do_keep, 2},
             {"files", do_files, 2},     {"take", do_take, 2},
             {"onnx", do_onnx, 1},       {"npy", do_npy, 3},
             {"tensors", do_tensors, 1}, {"json-same", do_json_same, 2}};

static void run_line(const char *line, const words *w) {
  const char *verb = w->at[0];
  words arguments = *w;
  arguments.count--;
  memmove(arguments.at, w->at + 1, sizeof arguments.at - sizeof arguments.at[0]);
  memmove(arguments.size, w->size + 1, sizeof arguments.size - sizeof arguments.size[0]);
  if (strcmp(verb, "set") == 0 && w->count > 2) {
    set_name(w->at[1], line + strlen("set ") + strlen(w->at[1]) + 1);
    return;
  }
  if (strcmp(verb, "sh") == 0) { /* the rest of the line as it is */
    arguments.at[0] = (char *)(uintptr_t)line + 3;
    arguments.count = 1;
  }
  for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) {
    if (strcmp(verbs[i].name, verb) != 0) continue;
    if (arguments.count < verbs[i].least) FAIL("'%s' wants %d words", verb, verbs[i].least);
    verbs[i].run(&arguments);
    return;
  }
  FAIL("'%s' is nothing to do", verb);
}

static void run_lines(int from, int end);

/* The rest of a case for each word, or for each line down to "end". */
static void run_each(const words *w, int end) {
  int first = line_number, rest = line_number;
  while (w->count == 2 && rest < end && strcmp(lines[rest], "end") != 0) rest++;
  const int stop = rest;
  if (w->count == 2) rest++;
  for (int i = 2; i < w->count; i++) {
    set_name(w->at[1], w->at[i]);
    run_lines(rest, end);
  }
  for (; first < stop; first++) {
    set_name(w->at[1], expand(lines[first]));
    run_lines(rest, end);
  }
}

/* The lines with these numbers, from 0, up to `end`. */
static void run_lines(int from, int end) {
  words w;
  for (line_number = from; line_number < end;) {
    const char *line = expand(lines[line_number++]);
    if (line[0] == '\0' || line[0] == '#' || strncmp(line, "case ", 5) == 0) continue;
    if (strncmp(line, "sh ", 3) == 0) {
      w = (words){.at = {(char *)(uintptr_t) "sh"}, .count = 1};
    } else {
      split(line, &w);
    }
    if (w.count > 1 && strcmp(w.at[0], "each") == 0) {
      run_each(&w, end);
      return;
    }
    if (w.count > 0) run_line(line, &w);
  }
}

static void setup(void) {
  dir_make();
  ck_assert_int_eq(chmod(dir, 0700), 0);
  set_name("tmp", dir);
}
static void teardown(void) {
  forget_output();
  dir_remove();
  for (size_t i = 0; i < allocated_count; i++) free(allocated[i]);
  free(allocated);
  allocated = NULL;
  allocated_count = 0;
  name_count = 0;
}

START_TEST(one_case) {
  run_lines(0, case_at[0]);
  run_lines(case_at[_i], case_at[_i + 1]);
}
END_TEST

static int read_cases(const char *path) {
  int n = 0;
  file_name = path;
  file_text = read_text("/", path);
  if (file_text == NULL) return 0;
  lines = calloc(strlen(file_text) + 2, sizeof *lines);
  if (lines == NULL) return 0;
  for (char *p = file_text; *p != '\0';) {
    char *end = p + strcspn(p, "\n");
    const int more = *end == '\n';
    *end = '\0';
    if (strncmp(p, "case ", 5) == 0 && case_count < CASES_MAX) case_at[case_count++] = n;
    lines[n++] = p;
    p = end + more;
  }
  case_at[case_count] = n;
  return case_count;
}

int main(int argc, char **argv) {
  if (argc != 2 || read_cases(argv[1]) == 0) {
    fprintf(stderr, "usage: case_runner /PATH/FILE.case, with one case at least\n");
    return 1;
  }
  const test_case tests[] = {{one_case, case_count}, {0}};
  const unsigned at_once = case_count < 4 ? (unsigned)case_count : 4;
  const int failed = run_tests(strrchr(argv[1], '/') + 1, tests, (test_setup){setup, teardown, 120, at_once});
  free(lines);
  free(file_text);
  return failed;
}
