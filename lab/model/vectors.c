/* SPDX-License-Identifier: MIT
 * vectors.c - vectors.txt, a line after the other; docs/models.md has its words. */
#include "lab/model/vectors.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "lab/error.h"
#include "lab/model/checking.h"
#include "lab/model/text_file.h"

int32_t bs_check_line_error(const bs_checking *c, bs_error *err, const char *what, const char *word) {
  bs_error_set(err, BS_INPUT, "BS-MODEL-VECTORS", "%s '%.80s'", what, word);
  bs_error_where(err, "%.120s:%u", c->index, c->line);
  return BS_INPUT;
}

/* Cuts the next word off *rest; "" at the end. */
static char *next_word(char **rest) {
  char *word = *rest + strspn(*rest, " \t");
  const size_t n = strcspn(word, " \t");
  *rest = word + n;
  if (**rest != '\0') *(*rest)++ = '\0';
  return word;
}

static char *rest_of(char *rest) {
  rest += strspn(rest, " \t");
  for (size_t n = strlen(rest); n > 0 && strchr(" \t", rest[n - 1]) != NULL; n--) rest[n - 1] = '\0';
  return rest;
}

static int32_t open_graph(bs_checking *c, const char *file, bs_error *err) {
  const bs_graph_options options = {.struct_size = sizeof options, .cache_tokens = c->request->cache_tokens};
  if (c->path != NULL) return bs_check_line_error(c, err, "a second model:", file);
  c->path = bs_check_path(c, file, err);
  if (c->path == NULL) return BS_NO_MEMORY;
  const int32_t rc = bs_graph_open(c->context, c->path, &options, &c->model.graph, err);
  if (rc == BS_OK) bs_model_warn(c->request, c->model.graph);
  return rc;
}

static int32_t add_port(bs_checking *c, bs_port_file *ports, uint32_t *n, char *rest, bs_error *err) {
  const char *file = next_word(&rest), *name = rest_of(rest);
  if (name[0] == '\0') return bs_check_line_error(c, err, "no name behind the file", file);
  if (*n == BS_CHECK_PORTS) return bs_check_line_error(c, err, "more than 64 of a kind in the case", c->name);
  for (uint32_t i = 0; i < *n; i++)
    if (strcmp(ports[i].name, name) == 0) return bs_check_line_error(c, err, "a second file of", name);
  ports[(*n)++] = (bs_port_file){name, file, c->line};
  return BS_OK;
}

static int32_t add_dim(bs_checking *c, char *rest, bs_error *err) {
  const char *size = next_word(&rest), *name = rest_of(rest);
  int64_t value;
  if (!bs_parse_i64(size, &value) || value < 0 || name[0] == '\0')
    return bs_check_line_error(c, err, "dim wants a size and a name:", size);
  if (c->n_dims == BS_CHECK_PORTS)
    return bs_check_line_error(c, err, "more than 64 sizes in the case", c->name);
  c->dims[c->n_dims++] = (bs_dim){.struct_size = sizeof(bs_dim), .name = name, .size = value};
  return BS_OK;
}

static int32_t begin_case(bs_checking *c, char *name, bs_error *err) {
  if (name[0] == '\0') return bs_check_line_error(c, err, "a case without a name", "");
  c->name = name;
  c->case_line = c->line;
  c->case_limits = c->limits;
  c->n_dims = c->n_inputs = c->n_outputs = c->n_prompts = 0;
  return BS_OK;
}

static int32_t read_line(bs_checking *c, char *line, bs_error *err) {
  char *rest = line;
  const char *word = next_word(&rest);
  bs_model_limits *limits = c->name != NULL ? &c->case_limits : &c->limits;
  double *limit = strcmp(word, "tolerance") == 0 ? &limits->deviation
                  : strcmp(word, "cosine") == 0  ? &limits->cosine
                                                 : NULL;
  const int generate = strcmp(word, "generate") == 0;
  if (word[0] == '\0' || word[0] == '#') return BS_OK;
  if (strcmp(word, "model") == 0) return open_graph(c, rest_of(rest), err);
  if (limit != NULL) {
    if (bs_parse_f64(rest_of(rest), limit) && *limit >= 0) return BS_OK;
    return bs_check_line_error(c, err, "not a limit:", rest_of(rest));
  }
  if (c->model.graph == NULL) return bs_check_line_error(c, err, "no model before", word);
  if (strcmp(word, "case") == 0) {
    const int32_t rc = bs_check_case(c, err);
    return rc == BS_OK ? begin_case(c, rest_of(rest), err) : rc;
  }
  if (c->name == NULL) return bs_check_line_error(c, err, "no case before", word);
  if (generate || strcmp(word, "logits") == 0) {
    const char *prompt = next_word(&rest), *file = rest_of(rest);
    return file[0] == '\0' ? bs_check_line_error(c, err, "two files are wanted behind", word)
                           : bs_check_prompt(c, generate, prompt, file, err);
  }
  if (strcmp(word, "dim") == 0) return add_dim(c, rest, err);
  if (strcmp(word, "input") == 0) return add_port(c, c->inputs, &c->n_inputs, rest, err);
  if (strcmp(word, "output") == 0) return add_port(c, c->outputs, &c->n_outputs, rest, err);
  return bs_check_line_error(c, err, "unknown word", word);
}

/* The first line of the text, which says what the file is. */
static int32_t read_head(bs_checking *c, char **rest, bs_error *err) {
  const char *line = bs_text_file_line(rest);
  c->line = 1;
  if (line != NULL && strcmp(line, "blockshock-vectors 1") == 0) return BS_OK;
  bs_check_line_error(c, err, "the first line is not blockshock-vectors 1 but", line != NULL ? line : "");
  bs_error_hint(err, "tools/bs-export writes such a folder");
  return BS_INPUT;
}

int32_t bs_check_read(bs_checking *c, char *text, bs_error *err) {
  char *rest = text, *line;
  int32_t rc = read_head(c, &rest, err);
  while (rc == BS_OK && (line = bs_text_file_line(&rest)) != NULL) {
    c->line++;
    rc = read_line(c, line, err);
  }
  if (rc == BS_OK) rc = bs_check_case(c, err);
  if (rc == BS_OK && c->cases == 0) rc = bs_check_line_error(c, err, "no case in", c->index);
  return rc;
}

/* ---- the first case ------------------------------------------------------------------------------ */

int bs_vectors_in(const char *path) {
  bs_text index = {0};
  struct stat st;
  bs_text_printf(&index, "%s/vectors.txt", path);
  const int has = !index.failed && stat(index.data, &st) == 0;
  bs_text_free(&index);
  return has;
}

/* Adds "NAME=VALUE" to a list. */
static int32_t add_word(char ***list, size_t *n, const char *name, const char *value, bs_error *err) {
  bs_text word = {0};
  char **longer = realloc(*list, (*n + 1) * sizeof *longer);
  if (longer != NULL) *list = longer;
  bs_text_printf(&word, "%s=%s", name, value);
  if (longer == NULL || word.failed) {
    bs_text_free(&word);
    return bs_no_memory(err, "the words of vectors.txt");
  }
  longer[(*n)++] = word.data;
  return BS_OK;
}

static int32_t take_model(const bs_checking *c, const char *file, bs_vectors *out, bs_error *err) {
  if (out->model != NULL) return bs_check_line_error(c, err, "a second model:", file);
  out->model = strcmp(file, ".") == 0 ? strdup(c->folder) : bs_check_path(c, file, err);
  return out->model != NULL ? BS_OK : bs_no_memory(err, "a path");
}

/* A line of the first case, or before it; the lines that say what is right are of no use here. */
static int32_t take_line(bs_checking *c, char *line, bs_vectors *out, bs_error *err) {
  char *rest = line;
  const char *word = next_word(&rest);
  if (strcmp(word, "model") == 0) return take_model(c, rest_of(rest), out, err);
  const int is_dim = strcmp(word, "dim") == 0;
  if (out->name == NULL || (!is_dim && strcmp(word, "input") != 0)) return BS_OK;
  const char *value = next_word(&rest), *name = rest_of(rest);
  if (name[0] == '\0') return bs_check_line_error(c, err, "no name behind", value);
  if (is_dim) return add_word(&out->dims, &out->n_dims, name, value, err);
  char *path = bs_check_path(c, value, err);
  const int32_t rc =
      path != NULL ? add_word(&out->inputs, &out->n_inputs, name, path, err) : (int32_t)BS_NO_MEMORY;
  free(path);
  return rc;
}

int32_t bs_vectors_read(const char *folder, bs_vectors *out, bs_error *err) {
  bs_checking c = {.folder = folder};
  char *text = NULL, *line;
  memset(out, 0, sizeof *out);
  char *index = bs_check_path(&c, "vectors.txt", err);
  c.index = index;
  int32_t rc = index != NULL ? bs_text_file_read(index, "BS-MODEL-VECTORS", &text, err) : BS_NO_MEMORY;
  char *rest = text;
  if (rc == BS_OK) rc = read_head(&c, &rest, err);
  while (rc == BS_OK && (line = bs_text_file_line(&rest)) != NULL) {
    c.line++;
    if (strncmp(line, "case ", 5) != 0) {
      rc = take_line(&c, line, out, err);
    } else {
      if (out->name != NULL) break; /* the second case */
      out->name = strdup(line + 5);
      if (out->name == NULL) rc = bs_no_memory(err, "a name");
    }
  }
  if (rc == BS_OK && out->model == NULL) rc = bs_check_line_error(&c, err, "no model in", index);
  free(text);
  free(index);
  return rc;
}

void bs_vectors_free(bs_vectors *v) {
  for (size_t i = 0; i < v->n_dims; i++) free(v->dims[i]);
  for (size_t i = 0; i < v->n_inputs; i++) free(v->inputs[i]);
  free(v->dims);
  free(v->inputs);
  free(v->model);
  free(v->name);
  memset(v, 0, sizeof *v);
}
