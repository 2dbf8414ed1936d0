/* SPDX-License-Identifier: MIT
 * params.c - typed, documented plugin parameters. Declared inside activate and resolved immediately: the
 * configuration (plugins.<id>.<name>) wins over the environment (BS_<PLUGIN>_<NAME>), which wins over the
 * default. The plugin reads the resolved value by param_get; it never reads the environment. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "core/plugin/accept.h"
#include "core/plugin/plugins.h"

static int name_valid(const char *name) {
  size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
  return name[n] == '\0' && n >= 1 && n <= 63 && islower((unsigned char)name[0]);
}

static bs_param *param_at(const bs_plugin_self *self, uint32_t i) {
  return self->params.items[i];
}

static void param_free(bs_param *p) {
  if (p == NULL) return;
  free(p->text);
  free(p);
}

void bs_params_drop(bs_plugin_self *self) {
  for (uint32_t i = 0; i < self->params.count; i++) param_free(param_at(self, i));
  bs_list_free(&self->params);
}

/* The nearest declared name, for hints. */
static const char *nearest_param(const bs_plugin_self *self, const char *name) {
  const char *names[64];
  uint32_t n = 0;
  for (uint32_t i = 0; i < self->params.count && n < 64; i++) names[n++] = param_at(self, i)->desc.name;
  return bs_nearest(name, names, n);
}

/* "id.name=value" -> value when id and name match. */
static const char *match_setting(const char *setting, const char *id, const char *name) {
  size_t a = strlen(id), b = strlen(name);
  if (strncmp(setting, id, a) != 0 || setting[a] != '.') return NULL;
  if (strncmp(setting + a + 1, name, b) != 0 || setting[a + 1 + b] != '=') return NULL;
  return setting + a + b + 2;
}

static const char *configured(const bs_plugin_self *self, const char *name) {
  const bs_context *c = self->context;
  for (uint32_t i = c->params.count; i-- > 0;) { /* the last one wins, as with --set */
    const char *value = match_setting(c->params.items[i], self->id, name);
    if (value != NULL) return value;
  }
  return NULL;
}

static void variable_name(const bs_plugin_self *self, const char *name, char *out, size_t size) {
  snprintf(out, size, "BS_%s_%s", self->id, name);
  for (char *p = out; *p != '\0'; p++) *p = (char)toupper((unsigned char)*p);
}

/* Splits "min..max" (either may be empty). */
static int split_range(const char *range, char *out_min, char *out_max, size_t size) {
  const char *dots = strstr(range, "..");
  if (dots == NULL || (size_t)(dots - range) >= size || strlen(dots + 2) >= size) return 0;
  snprintf(out_min, size, "%.*s", (int)(dots - range), range);
  snprintf(out_max, size, "%s", dots + 2);
  return 1;
}

/* 1 inside, 0 outside, -1: the declaration itself is wrong. */
static int int_in_range(const char *range, int64_t value) {
  char low[64], high[64];
  int64_t min = INT64_MIN, max = INT64_MAX;
  if (!split_range(range, low, high, sizeof low)) return -1;
  if (low[0] != '\0' && !bs_parse_size(low, &min)) return -1;
  if (high[0] != '\0' && !bs_parse_size(high, &max)) return -1;
  return value >= min && value <= max;
}

static int float_in_range(const char *range, double value) {
  char low[64], high[64];
  double min = -HUGE_VAL, max = HUGE_VAL;
  if (!split_range(range, low, high, sizeof low)) return -1;
  if (low[0] != '\0' && !bs_parse_f64(low, &min)) return -1;
  if (high[0] != '\0' && !bs_parse_f64(high, &max)) return -1;
  return value >= min && value <= max;
}

static int in_choices(const char *choices, const char *text) {
  size_t size = strlen(text);
  for (const char *p = choices;;) {
    size_t n = strcspn(p, "|");
    if (n == size && strncmp(p, text, n) == 0) return 1;
    if (p[n] == '\0') return 0;
    p += n + 1;
  }
}

int bs_param_parse(const bs_param_desc *d, const char *text, bs_value *v) {
  int64_t whole = 0; /* of a number with a unit */
  int flag = 0;
  switch (d->type) {
    case BS_PARAM_INT:
      if (!bs_parse_size(text, &v->i)) return 0;
      return d->choices == NULL ? 1 : int_in_range(d->choices, v->i);
    case BS_PARAM_FLOAT: /* also 80G */
      if (!bs_parse_f64(text, &v->f)) {
        if (!bs_parse_size(text, &whole)) return 0;
        v->f = (double)whole;
      }
      return d->choices == NULL ? 1 : float_in_range(d->choices, v->f);
    case BS_PARAM_BOOL:
      if (!bs_parse_bool(text, &flag)) return 0;
      v->i = flag;
      return 1;
    default:
      v->s = text;
      return d->choices == NULL ? 1 : in_choices(d->choices, text);
  }
}

const char *bs_param_type_word(uint32_t type) {
  static const char *const types[] = {"?", "an integer", "a number", "true or false", "a text"};
  return types[type <= BS_PARAM_STRING ? type : 0];
}

static int32_t bad_value(const bs_plugin_self *self, const bs_param *p, const char *origin, bs_error *err) {
  const bs_param_desc *d = &p->desc;
  char name[128];
  int environment = strcmp(origin, "environment") == 0;
  if (environment)
    variable_name(self, d->name, name, sizeof name);
  else
    snprintf(name, sizeof name, "plugins.%s.%s", self->id, d->name);
  /* A value of the user's is a configuration error, a default of the plugin's is the plugin's. */
  int32_t code = strcmp(origin, "default") == 0 ? BS_PLUGIN : BS_CONFIG;
  bs_error_set(err, code, "BS-PLG-PARAM", "%s=%.200s (%s): must be %s%s%s%s%s", name, p->text, origin,
               bs_param_type_word(d->type), d->choices != NULL ? " of " : "",
               d->choices != NULL ? d->choices : "", d->unit != NULL ? ", in " : "",
               d->unit != NULL ? d->unit : "");
  if (d->doc != NULL) bs_error_hint(err, "%s: %s", d->name, d->doc);
  return code;
}

static int32_t check_desc(const bs_plugin_self *self, const bs_param_desc *d, bs_error *err) {
  const char *what = NULL;
  if (d->name == NULL || !name_valid(d->name))
    what = "a name [a-z][A-Za-z0-9_]*";
  else if (d->type < BS_PARAM_INT || d->type > BS_PARAM_STRING)
    what = "a known type";
  else if (d->default_text == NULL)
    what = "a default";
  else if (d->doc == NULL || d->doc[0] == '\0')
    what = "a line of documentation";
  if (what != NULL)
    return bs_error_set(err, BS_PLUGIN, "BS-PLG-PARAM", "parameter '%s' of plugin %s needs %s",
                        d->name != NULL ? d->name : "", self->id, what);
  for (uint32_t i = 0; i < self->params.count; i++)
    if (strcmp(param_at(self, i)->desc.name, d->name) == 0)
      return bs_error_set(err, BS_PLUGIN, "BS-PLG-DUP", "parameter '%s' of plugin %s is declared twice",
                          d->name, self->id);
  return BS_OK;
}

static int32_t resolve(const bs_plugin_self *self, bs_param *p, bs_error *err) {
  char variable[128];
  const char *text = configured(self, p->desc.name);
  p->origin = "config";
  if (text == NULL) {
    variable_name(self, p->desc.name, variable, sizeof variable);
    text = secure_getenv(variable);
    p->origin = "environment";
  }
  if (text == NULL) {
    text = p->desc.default_text;
    p->origin = "default";
  }
  p->text = bs_strdup(text);
  if (p->text == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-PLG-MEMORY", "no memory for a parameter");
  p->value.struct_size = (uint32_t)sizeof p->value;
  p->value.type = p->desc.type;
  int good = bs_param_parse(&p->desc, p->text, &p->value);
  if (good < 0)
    return bs_error_set(err, BS_PLUGIN, "BS-PLG-PARAM", "parameter '%s' of plugin %s has a wrong range '%s'",
                        p->desc.name, self->id, p->desc.choices);
  return good ? BS_OK : bad_value(self, p, p->origin, err);
}

/* Checks the default against its own range: a wrong one would show only where the parameter is not set. */
static int32_t check_default(const bs_plugin_self *self, bs_param *p, bs_error *err) {
  bs_param copy = *p;
  bs_value value;
  memset(&value, 0, sizeof value);
  if (bs_param_parse(&p->desc, p->desc.default_text, &value) == 1) return BS_OK;
  copy.text = (char *)p->desc.default_text;
  return bad_value(self, &copy, "default", err);
}

static int32_t define(bs_plugin_self *self, const bs_param_desc *given, bs_error *err) {
  bs_param_desc desc; /* its frozen size becomes a constant when 1.0 is released, as in slots.c */
  int32_t rc = bs_accept_copy(BS_ABI_VERSION, "bs_param_desc", given, sizeof desc, &desc, sizeof desc, err);
  if (rc == BS_OK) rc = check_desc(self, &desc, err);
  if (rc != BS_OK) return rc;
  bs_param *p = calloc(1, sizeof *p);
  if (p == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-PLG-MEMORY", "no memory for a parameter");
  p->desc = desc;
  rc = check_default(self, p, err);
  if (rc == BS_OK) rc = resolve(self, p, err);
  if (rc == BS_OK && !bs_list_push(&self->params, p))
    rc = bs_error_set(err, BS_NO_MEMORY, "BS-PLG-MEMORY", "no memory for a parameter");
  if (rc != BS_OK) param_free(p);
  return rc;
}

int32_t bs_host_param_define(void *ctx, bs_plugin_self *self, const bs_param_desc *desc, bs_error *err) {
  bs_error why = BS_ERROR_INIT;
  (void)ctx;
  if (!bs_inside_activate(self))
    return bs_error_set(err, BS_PLUGIN, "BS-PLG-PHASE", "param_define is called outside activate");
  return define(self, desc, &why) == BS_OK ? BS_OK : bs_refuse_call(self, &why, err);
}

/* No lock: the list is complete once activate has returned, and before that only its thread is here. */
int32_t bs_host_param_get(void *ctx, const bs_plugin_self *self, const char *name, bs_value *out_value,
                          bs_error *err) {
  (void)ctx;
  if (self == NULL || name == NULL || out_value == NULL)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-PLG-PARAM", "param_get needs self, a name and a value");
  for (uint32_t i = 0; i < self->params.count; i++) {
    if (strcmp(param_at(self, i)->desc.name, name) != 0) continue;
    *out_value = param_at(self, i)->value;
    return BS_OK;
  }
  const char *near = nearest_param(self, name);
  bs_error_set(err, BS_NOT_FOUND, "BS-PLG-PARAM", "plugin %s has no parameter '%s'", self->id, name);
  if (near != NULL) bs_error_hint(err, "did you mean '%s'?", near);
  return BS_NOT_FOUND;
}

int32_t bs_params_take(bs_context *context, const bs_context_options *options, bs_error *err) {
  for (uint32_t i = 0; i < options->n_params; i++) {
    const char *text = options->params[i];
    const char *dot = strchr(text, '.'), *equals = strchr(text, '=');
    if (dot == NULL || equals == NULL || dot == text || dot + 1 >= equals)
      return bs_error_set(err, BS_CONFIG, "BS-PLG-PARAM", "plugin parameter '%.200s' is not id.name=value",
                          text);
    char *copy = bs_strdup(text);
    if (copy == NULL || !bs_list_push(&context->params, copy)) {
      free(copy);
      return bs_error_set(err, BS_NO_MEMORY, "BS-PLG-MEMORY", "no memory for the plugin parameters");
    }
  }
  return BS_OK;
}

int32_t bs_params_check_plugins(bs_context *context, bs_error *err) {
  for (uint32_t i = 0; i < context->params.count; i++) {
    const char *names[256], *text = context->params.items[i];
    char id[64];
    uint32_t n = 0;
    int known = 0;
    snprintf(id, sizeof id, "%.*s", (int)strcspn(text, "."), text);
    for (uint32_t j = 0; j < context->plugins.count; j++) {
      const bs_plugin_self *p = bs_plugin_at(context, j);
      if (strcmp(p->id, id) == 0) known = 1;
      if (n < 256) names[n++] = p->id;
    }
    if (known) continue;
    const char *near = bs_nearest(id, names, n);
    bs_error_set(err, BS_CONFIG, "BS-PLG-PARAM", "plugins.%.200s: no plugin '%s' is found", text, id);
    if (near != NULL) bs_error_hint(err, "did you mean '%s'?", near);
    return BS_CONFIG;
  }
  return BS_OK;
}

int32_t bs_params_check_known(bs_plugin_self *self, bs_error *err) {
  const bs_context *c = self->context;
  size_t id_size = strlen(self->id);
  for (uint32_t i = 0; i < c->params.count; i++) {
    const char *text = c->params.items[i];
    char name[128];
    int known = 0;
    if (strncmp(text, self->id, id_size) != 0 || text[id_size] != '.') continue;
    const char *start = text + id_size + 1;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(start, "="), start);
    for (uint32_t j = 0; j < self->params.count && !known; j++)
      known = strcmp(param_at(self, j)->desc.name, name) == 0;
    if (known) continue;
    const char *near = nearest_param(self, name);
    bs_error_set(err, BS_CONFIG, "BS-PLG-PARAM", "plugins.%s.%s: plugin %s has no parameter '%s'", self->id,
                 name, self->id, name);
    if (near != NULL)
      bs_error_hint(err, "did you mean '%s'?", near);
    else
      bs_error_hint(err, "bsrun plugins inspect %s lists its parameters", self->id);
    return BS_CONFIG;
  }
  return BS_OK;
}
