/* SPDX-License-Identifier: MIT
 * plugins_new.c - `bsrun plugins new NAME --kind KIND`: a folder with a plugin that builds and works, copied
 * from the installed skeletons (plugins/skeleton). Only names are changed: of files, identifiers, ids. A
 * skeleton of an op has two folders: `op`, which all of them share, and `op_<op>`. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bsrun/plugins.h"
#include "core/base/error.h"
#include "core/base/text.h"

static const args_option plugins_new_options[] = {
    {OPT_KIND, NULL, 0},
    {OPT_OP, "of kind op: activate (default), attention, map, matmul or normalize", 0},
    {OPT_TO, "the folder to make; default: NAME, here", ARGS_FOLDER},
    {OPT_OUTPUT, "what was made as table, md, csv, json or jsonl", 0},
    ARGS_HELP,
};
const char *const plugins_new_kinds[] = {"op", "backend", "method", "communicator", "workload", "algorithm"};
const size_t plugins_n_new_kinds = sizeof plugins_new_kinds / sizeof plugins_new_kinds[0];
static const char *const new_ops[] = {"activate", "attention", "map", "matmul", "normalize"};

enum { PATH_CAP = 4096, FILE_CAP = 1 << 20, LABEL_MAX = 16 };

/* The plugin that is made. In the skeletons the id is skel_<kind>, and SKEL-<KIND> in the ids of errors. */
typedef struct making {
  const char *id, *kind, *dir;
  const char *op;            /* NULL: the kind is not op */
  char label[LABEL_MAX + 1]; /* of the ids of errors, which have room for 31 letters */
  char token[32], label_token[32];
  char from[2][PATH_CAP]; /* the skeleton's folders; the second is "" but for an op */
  int to;                 /* descriptor of the folder that is made */
  json_t *rows;           /* a row a file */
} making;

/* ---- the request ---------------------------------------------------------------------------- */

static int is_id(const char *name) {
  static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
  const size_t n = strlen(name);
  return n >= 2 && n <= 31 && name[0] >= 'a' && name[0] <= 'z' && strspn(name, allowed) == n;
}

static int32_t check_name(const char *name, bs_error *err) {
  if (!is_id(name)) {
    bs_error_set(err, BS_USAGE, "BS-NEW-NAME", "'%.60s' is no id of a plugin", name);
    bs_error_hint(err, "2 to 31 of a-z, 0-9 and _, a letter first");
    return BS_USAGE;
  }
  if (strcmp(name, "plugin") == 0) {
    bs_error_set(err, BS_USAGE, "BS-NEW-NAME",
                 "'plugin' is taken: plugin.c is the file with the plugin's table");
    bs_error_hint(err, "any other name");
    return BS_USAGE;
  }
  return BS_OK;
}

/* One of the words, or an error that names the nearest. */
static int32_t one_of(const char *what, const char *word, const char *const *words, size_t n,
                      const char **out_word, bs_error *err) {
  for (size_t i = 0; i < n; i++) {
    if (strcmp(word, words[i]) != 0) continue;
    *out_word = words[i];
    return BS_OK;
  }
  return bsrun_unknown(what, word, words, n, err);
}

/* `plugins list` says comm for a communicator. --op alone is of kind op. */
static int32_t check_kind(const args *a, making *out, bs_error *err) {
  const char *kind = args_value(a, "kind"), *op = args_value(a, "op");
  if (kind == NULL && op == NULL) {
    bs_error_set(err, BS_USAGE, "BS-USE-VALUE", "plugins new needs --kind or --op");
    bs_error_hint(err, "--kind op, backend, method, communicator, workload or algorithm; or --op matmul");
    return BS_USAGE;
  }
  if (kind == NULL) kind = "op";
  if (strcmp(kind, "comm") == 0) kind = "communicator";
  const int32_t rc = one_of("kind", kind, plugins_new_kinds, plugins_n_new_kinds, &out->kind, err);
  for (size_t i = 0; rc != BS_OK && i < sizeof new_ops / sizeof new_ops[0]; i++)
    if (strcmp(kind, new_ops[i]) == 0) bs_error_hint(err, "%s is an op: --op %s", kind, kind);
  if (rc != BS_OK) return rc;
  if (strcmp(kind, "op") == 0)
    return one_of("op", op != NULL ? op : "activate", new_ops, sizeof new_ops / sizeof new_ops[0], &out->op,
                  err);
  if (op == NULL) return BS_OK;
  bs_error_set(err, BS_USAGE, "BS-USE-VALUE", "--op %.60s: a %s has no op", op, out->kind);
  bs_error_hint(err, "leave out --op, or make --kind op");
  return BS_USAGE;
}

static char upper(char c) {
  return c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
}

static void name_tokens(making *m) {
  size_t n = strlen(m->id);
  if (n > LABEL_MAX) n = LABEL_MAX;
  for (size_t i = 0; i < n; i++) m->label[i] = m->id[i] == '_' ? '-' : upper(m->id[i]);
  while (n > 0 && m->label[n - 1] == '-') m->label[--n] = '\0';
  snprintf(m->token, sizeof m->token, "skel_%s", m->kind);
  snprintf(m->label_token, sizeof m->label_token, "SKEL-%s", m->kind);
  for (char *p = m->label_token; *p != '\0'; p++) *p = upper(*p);
}

/* The templates of this program's installation: ../share/blockshock/templates. */
static int32_t find_skeleton(making *m, bs_error *err) {
  char exe[PATH_CAP - 128];
  struct stat st;
  const ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
  exe[n > 0 ? n : 0] = '\0';
  for (int up = 0; up < 2; up++) {
    char *slash = strrchr(exe, '/');
    if (slash != NULL) *slash = '\0';
  }
  snprintf(m->from[0], sizeof m->from[0], "%s/share/blockshock/templates/%s", exe, m->kind);
  if (m->op != NULL)
    snprintf(m->from[1], sizeof m->from[1], "%s/share/blockshock/templates/op_%s", exe, m->op);
  for (int i = 0; i < 2 && m->from[i][0] != '\0'; i++) {
    if (stat(m->from[i], &st) == 0 && S_ISDIR(st.st_mode)) continue;
    bs_error_set(err, BS_UNAVAILABLE, "BS-NEW-SKELETON", "there is no skeleton of a %s at %s", m->kind,
                 m->from[i]);
    bs_error_hint(err, "it is a part of the installation: install Block-Shock again");
    return BS_UNAVAILABLE;
  }
  return BS_OK;
}

/* ---- copying -------------------------------------------------------------------------------- */

/* The files of a skeleton; whatever else lies there (a build folder, an editor's copy) is left. */
static int is_part(const struct dirent *entry) {
  static const char *const endings[] = {".c", ".h", ".md", ".txt"};
  const char *name = entry->d_name, *dot = strrchr(name, '.');
  if (strcmp(name, "Makefile") == 0) return 1;
  for (size_t i = 0; name[0] != '.' && dot != NULL && i < sizeof endings / sizeof endings[0]; i++)
    if (strcmp(dot, endings[i]) == 0) return 1;
  return 0;
}

/* in with every token replaced by what it stands for. */
static void renamed(const making *m, const char *in, bs_text *out) {
  const size_t token = strlen(m->token), label = strlen(m->label_token);
  while (*in != '\0') {
    if (strncmp(in, m->token, token) == 0) {
      bs_text_append(out, m->id, strlen(m->id));
      in += token;
    } else if (strncmp(in, m->label_token, label) == 0) {
      bs_text_append(out, m->label, strlen(m->label));
      in += label;
    } else {
      bs_text_append(out, in++, 1);
    }
  }
}

static int32_t io_error(const char *dir, const char *name, bs_error *err) {
  return bs_error_errno(err, BS_IO, "BS-NEW-FILE", errno, "cannot write %.200s/%.60s", dir, name);
}

static int32_t read_part(const char *from, const char *name, bs_text *out, bs_error *err) {
  char path[PATH_CAP + 256], block[4096];
  snprintf(path, sizeof path, "%s/%s", from, name);
  FILE *f = fopen(path, "re");
  int bad = f == NULL;
  for (size_t n = 1; !bad && n > 0 && out->size < FILE_CAP;) {
    n = fread(block, 1, sizeof block, f);
    bs_text_append(out, block, n);
    bad = ferror(f) != 0 || memchr(block, '\0', n) != NULL;
  }
  const int saved = errno;
  if (f != NULL) fclose(f);
  if (bad) return bs_error_errno(err, BS_UNAVAILABLE, "BS-NEW-SKELETON", saved, "cannot read %.300s", path);
  return out->failed ? bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory") : BS_OK;
}

/* Noted before it is made, so that undo finds whatever there is. */
static int32_t note_part(making *m, const char *name, bs_error *err) {
  json_t *row = json_pack("{s:s, s:s, s:s}", "id", m->id, "kind", m->kind, "file", name),
         *dir = json_string(m->dir);
  json_object_set_new(row, "dir", dir != NULL ? dir : json_string("(not UTF-8)"));
  if (json_array_append_new(m->rows, row) == 0) return BS_OK;
  return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
}

static int32_t write_part(making *m, const char *name, const bs_text *text, bs_error *err) {
  int32_t rc = note_part(m, name, err);
  if (rc != BS_OK) return rc;
  const int fd = openat(m->to, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (fd < 0) return io_error(m->dir, name, err);
  for (size_t at = 0; rc == BS_OK && at < text->size;) {
    const ssize_t n = write(fd, text->data + at, text->size - at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) rc = io_error(m->dir, name, err);
    if (n > 0) at += (size_t)n;
  }
  if (close(fd) != 0 && rc == BS_OK) rc = io_error(m->dir, name, err);
  return rc;
}

static int32_t copy_part(making *m, const char *from, const char *name, bs_error *err) {
  bs_text in = {0}, out = {0}, to = {0};
  int32_t rc = read_part(from, name, &in, err);
  if (rc == BS_OK && in.data != NULL) renamed(m, in.data, &out);
  if (rc == BS_OK) renamed(m, name, &to);
  if (rc == BS_OK && (out.failed || to.failed || to.data == NULL))
    rc = bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  if (rc == BS_OK) rc = write_part(m, to.data, &out, err);
  bs_text_free(&in);
  bs_text_free(&out);
  bs_text_free(&to);
  return rc;
}

static int32_t copy_parts(making *m, const char *from, bs_error *err) {
  struct dirent **parts = NULL;
  const int n = scandir(from, &parts, is_part, alphasort);
  int32_t rc = BS_OK;
  if (n <= 0)
    rc = bs_error_errno(err, BS_UNAVAILABLE, "BS-NEW-SKELETON", n < 0 ? errno : ENOENT, "nothing in %.300s",
                        from);
  for (int i = 0; i < n; i++) {
    if (rc == BS_OK) rc = copy_part(m, from, parts[i]->d_name, err);
    free(parts[i]);
  }
  free(parts);
  return rc;
}

/* Removes a folder that could not be filled. */
static void undo(const making *m) {
  for (size_t i = 0; i < json_array_size(m->rows); i++)
    unlinkat(m->to, json_string_value(json_object_get(json_array_get(m->rows, i), "file")), 0);
  rmdir(m->dir);
}

static int32_t make_folder(making *m, bs_error *err) {
  if (mkdir(m->dir, 0777) != 0) {
    if (errno != EEXIST)
      return bs_error_errno(err, BS_IO, "BS-NEW-FILE", errno, "cannot make the folder %.300s", m->dir);
    bs_error_set(err, BS_USAGE, "BS-NEW-EXISTS", "%.300s exists already", m->dir);
    bs_error_hint(err, "nothing is overwritten: another name, or another --to");
    return BS_USAGE;
  }
  m->to = open(m->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  int32_t rc = m->to >= 0 ? BS_OK : io_error(m->dir, ".", err);
  for (int i = 0; rc == BS_OK && i < 2 && m->from[i][0] != '\0'; i++) rc = copy_parts(m, m->from[i], err);
  if (rc != BS_OK) undo(m);
  if (m->to >= 0) close(m->to);
  return rc;
}

/* ---- the verb ------------------------------------------------------------------------------- */

/* A text as one word of a shell. */
static void shell_word(const char *text, bs_text *out) {
  static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-+:@%,";
  if (text[0] != '\0' && text[strspn(text, plain)] == '\0') {
    bs_text_printf(out, "%s", text);
    return;
  }
  bs_text_append(out, "'", 1);
  for (const char *p = text; *p != '\0'; p++) {
    if (*p == '\'')
      bs_text_append(out, "'\\''", 4);
    else
      bs_text_append(out, p, 1);
  }
  bs_text_append(out, "'", 1);
}

static int32_t print_next(const making *m, bs_error *err) {
  bs_print(stdout, "%s: a plugin of kind %s in %s\n", m->id, m->kind, m->dir);
  for (size_t i = 0; i < json_array_size(m->rows); i++)
    bs_print(stdout, "  %s\n", json_string_value(json_object_get(json_array_get(m->rows, i), "file")));
  bs_text dir = {0}, file = {0}, word = {0};
  shell_word(m->dir, &dir);
  bs_text_printf(&file, "%s%s/bs_%s.so", strchr(m->dir, '/') != NULL ? "" : "./", m->dir, m->id);
  if (!file.failed) shell_word(file.data, &word);
  bs_text_free(&file);
  if (dir.failed || word.failed || word.data == NULL) {
    bs_text_free(&dir);
    bs_text_free(&word);
    return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  }
  bs_print(stdout,
           "next:\n"
           "  make -C %s        # bs_%s.so; pkg-config must find blockshock-plugin (PKG_CONFIG_PATH)\n"
           "  make -C %s run    # use it\n"
           "  make -C %s check  # graded by the conformance kit\n"
           "  bsrun plugins inspect %s\n"
           "%s/README.md says what to change.\n",
           dir.data, m->id, dir.data, dir.data, word.data, m->dir);
  bs_text_free(&dir);
  bs_text_free(&word);
  return BS_OK;
}

static int32_t make_plugin(const args *a, bs_error *err) {
  static const bs_field fields[] = {
      {"id", "ID", 0, 0}, {"kind", "KIND", 0, 0}, {"dir", "DIR", 0, 0}, {"file", "FILE", 0, 0}};
  making m = {.id = a->words[0], .to = -1};
  int format;
  int32_t rc = check_name(m.id, err);
  if (rc == BS_OK) rc = check_kind(a, &m, err);
  if (rc == BS_OK) rc = bsrun_format(a, &format, err);
  if (rc != BS_OK) return rc;
  m.dir = args_has(a, "to") ? args_value(a, "to") : m.id;
  if (m.dir[0] == '\0') return bs_error_set(err, BS_USAGE, "BS-USE-VALUE", "--to needs a value (PATH)");
  name_tokens(&m);
  rc = find_skeleton(&m, err);
  if (rc != BS_OK) return rc;
  m.rows = json_array();
  if (m.rows == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  rc = make_folder(&m, err);
  if (rc == BS_OK && args_has(a, "output")) {
    rc = bs_report_print(stdout, format, fields, sizeof fields / sizeof fields[0], m.rows, err);
  } else if (rc == BS_OK) {
    rc = print_next(&m, err);
  }
  json_decref(m.rows);
  return rc;
}

const bsrun_verb plugins_new = {
    .name = "new",
    .words = "NAME --kind KIND|--op OP [options]",
    .summary = "make a folder with a small plugin that builds and works",
    .about = "A folder that exists is refused.\n",
    .examples =
        "  bsrun plugins new acme --kind method && make -C acme run\n"
        "  bsrun plugins new acme --op attention\n",
    .options = plugins_new_options,
    .run = make_plugin,
    .min_words = 1,
    .max_words = 1,
};
