/* SPDX-License-Identifier: MIT
 * named.c - see named.h. */
#include "core/plugin/named.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/plugin/plugins.h"

static int32_t bad_text(const char *text, const char *what, bs_error *err) {
  bs_error_set(err, BS_CONFIG, "BS-NAME-OPTIONS", "'%.200s': %s", text, what);
  bs_error_hint(err, "NAME, or NAME:key=value,key=value");
  return BS_CONFIG;
}

int32_t bs_named_read(const char *text, bs_named *out_named, bs_error *err) {
  memset(out_named, 0, sizeof *out_named);
  if (text[strcspn(text, ":")] == ':' && text[strcspn(text, ":") + 1] == '\0')
    return bad_text(text, "nothing is behind the colon", err);
  char *at = bs_strdup(text);
  if (at == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-PLG-MEMORY", "no memory for a name");
  out_named->text = at;
  out_named->name = at;
  const char *wrong = at[0] == '\0' || at[0] == ':' ? "a name is missing" : NULL;
  at += strcspn(at, ":");
  while (*at != '\0' && wrong == NULL) {
    *at++ = '\0'; /* the colon or comma before a key */
    char *end = at + strcspn(at, ","), *equals = at + strcspn(at, "=,");
    if (*equals != '=' || equals == at)
      wrong = "an option is no key=value";
    else if (out_named->n == BS_NAMED_MAX)
      wrong = "too many options";
    else {
      out_named->keys[out_named->n] = at;
      out_named->values[out_named->n++] = equals + 1;
      *equals = '\0';
    }
    at = end;
  }
  if (wrong == NULL) return BS_OK;
  bs_named_free(out_named);
  return bad_text(text, wrong, err);
}

void bs_named_free(bs_named *named) {
  free(named->text);
  memset(named, 0, sizeof *named);
}

uint32_t bs_algorithm_option_count(const bs_algorithm *algorithm) {
  uint32_t n = 0;
  while (algorithm->params != NULL && n < BS_ALGORITHM_MAX_OPTIONS && algorithm->params[n] != NULL) n++;
  return n;
}

static int32_t unknown_key(const bs_algorithm *a, const char *key, bs_error *err) {
  const char *names[BS_ALGORITHM_MAX_OPTIONS] = {NULL};
  const uint32_t n = bs_algorithm_option_count(a);
  for (uint32_t i = 0; i < n; i++) names[i] = a->params[i]->name;
  const char *near = bs_nearest(key, names, n);
  bs_error_set(err, BS_CONFIG, "BS-NAME-OPTIONS", "algorithm %s has no option '%.64s'", a->name, key);
  if (near != NULL)
    bs_error_hint(err, "did you mean '%s'?", near);
  else if (n == 0)
    bs_error_hint(err, "it has none");
  return BS_CONFIG;
}

int32_t bs_algorithm_options(const bs_algorithm *a, const bs_named *given,
                             bs_value out_values[BS_ALGORITHM_MAX_OPTIONS], bs_error *err) {
  const uint32_t n = bs_algorithm_option_count(a);
  const char *texts[BS_ALGORITHM_MAX_OPTIONS];
  for (uint32_t i = 0; i < n; i++) texts[i] = a->params[i]->default_text;
  for (uint32_t k = 0; given != NULL && k < given->n; k++) {
    uint32_t i = 0;
    while (i < n && strcmp(a->params[i]->name, given->keys[k]) != 0) i++;
    if (i == n) return unknown_key(a, given->keys[k], err);
    texts[i] = given->values[k];
  }
  for (uint32_t i = 0; i < n; i++) {
    const bs_param_desc *d = a->params[i];
    memset(&out_values[i], 0, sizeof out_values[i]);
    out_values[i].struct_size = (uint32_t)sizeof out_values[i];
    out_values[i].type = d->type;
    if (texts[i] != NULL && bs_param_parse(d, texts[i], &out_values[i]) == 1) continue;
    const int32_t code = texts[i] == d->default_text ? BS_PLUGIN : BS_CONFIG;
    bs_error_set(err, code, "BS-NAME-OPTIONS", "algorithm %s: %s=%.100s: must be %s%s%s", a->name, d->name,
                 texts[i] != NULL ? texts[i] : "", bs_param_type_word(d->type),
                 d->choices != NULL ? " of " : "", d->choices != NULL ? d->choices : "");
    if (d->doc != NULL) bs_error_hint(err, "%s: %s", d->name, d->doc);
    return code;
  }
  return BS_OK;
}

/* "method:old=new" of a note, for `old`. */
static int newer_in(const char *things, const char *word, const char *name, char *out_name, size_t size) {
  const size_t word_size = strlen(word), name_size = strlen(name);
  for (const char *line = things; *line != '\0';) {
    const size_t n = strcspn(line, "\n"), head = word_size + 1 + name_size;
    if (n > head + 1 && strncmp(line, word, word_size) == 0 && line[word_size] == ':' &&
        strncmp(line + word_size + 1, name, name_size) == 0 && line[head] == '=') {
      snprintf(out_name, size, "%.*s", (int)(n - head - 1), line + head + 1);
      return 1;
    }
    line += n + (line[n] == '\n');
  }
  return 0;
}

int bs_named_newer(const bs_context *context, uint32_t kind, const char *name, char *out_name, size_t size) {
  for (uint32_t i = 0; i < bs_plugin_count(context); i++) {
    bs_plugin_info info = {.struct_size = sizeof info};
    if (bs_plugin_get(context, i, &info, NULL) != BS_OK || info.state == BS_PLUGIN_SHADOWED ||
        info.state == BS_PLUGIN_REFUSED)
      continue;
    if (newer_in(info.things, bs_kind_word(kind), name, out_name, size)) return 1;
  }
  return 0;
}
