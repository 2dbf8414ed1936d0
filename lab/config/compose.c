/* SPDX-License-Identifier: MIT
 * compose.c - see compose.h. Called by bsrun's verbs. */
#include "lab/config/compose.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/text.h"
#include "lab/config/hardware_device.h"
#include "lab/config/schema.h"
#include "lab/config/short_names.h"
#include "lab/error.h"

#define PATH_CAP 4096

int32_t bs_configs_dir(char **out_dir, bs_error *err) {
  const char *given = getenv("BS_CONFIG_DIR");
  char exe[PATH_CAP], path[PATH_CAP + 64];
  struct stat st;
  *out_dir = NULL;
  if (given != NULL && given[0] != '\0') {
    if (stat(given, &st) != 0 || !S_ISDIR(st.st_mode)) {
      bs_error_set(err, BS_CONFIG, "BS-CFG-DIR", "BS_CONFIG_DIR=%.200s is not a folder", given);
      bs_error_hint(err, "unset it to use the installed configs");
      return BS_CONFIG;
    }
    *out_dir = bs_strdup(given);
    return *out_dir == NULL ? bs_no_memory(err, "a configuration") : BS_OK;
  }
  ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
  if (n <= 0) return BS_OK;
  exe[n] = '\0';
  char *slash = strrchr(exe, '/');
  if (slash == NULL) return BS_OK;
  *slash = '\0';
  slash = strrchr(exe, '/');
  if (slash == NULL) return BS_OK;
  *slash = '\0';
  snprintf(path, sizeof path, "%s/share/blockshock/configs", exe);
  if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode)) return BS_OK;
  *out_dir = bs_strdup(path);
  return *out_dir == NULL ? bs_no_memory(err, "a configuration") : BS_OK;
}

static int by_name(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

size_t bs_config_names(const char *configs_dir, const char *group, char ***out_names) {
  char path[PATH_CAP];
  char **names = NULL;
  size_t n = 0;
  *out_names = NULL;
  if (configs_dir == NULL) return 0;
  snprintf(path, sizeof path, "%s/%s", configs_dir, group);
  DIR *dir = opendir(path);
  if (dir == NULL) return 0;
  for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
    size_t length = strlen(entry->d_name);
    if (length < 6 || strcmp(entry->d_name + length - 5, ".yaml") != 0) continue;
    char **grown = realloc(names, (n + 1) * sizeof *names);
    if (grown == NULL) break;
    names = grown;
    names[n] = bs_strdup(entry->d_name);
    if (names[n] == NULL) break;
    names[n++][length - 5] = '\0';
  }
  closedir(dir);
  if (n > 1) qsort(names, n, sizeof *names, by_name);
  *out_names = names;
  return n;
}

void bs_config_names_free(char **names, size_t count) {
  for (size_t i = 0; i < count; i++) free(names[i]);
  free(names);
}

/* One composition in progress. */
typedef struct composer {
  const bs_compose_request *request;
  bs_composed *out;
  bs_text paths; /* YAML flow list under construction */
  bs_error *err;
} composer;

void bs_config_quote(bs_text *text, const char *value) {
  bs_text_append(text, "\"", 1);
  for (const char *p = value; *p != '\0'; p++) {
    unsigned char c = (unsigned char)*p;
    if (c == '"' || c == '\\') {
      bs_text_printf(text, "\\%c", c);
    } else if (c < 0x20 || c == 0x7f) {
      bs_text_printf(text, "\\x%02x", c);
    } else {
      bs_text_append(text, p, 1);
    }
  }
  bs_text_append(text, "\"", 1);
}

static int32_t merge_file(composer *c, const char *path, uint32_t from_user) {
  bs_node *tree = NULL;
  int32_t rc = bs_config_load(path, &tree, c->err);
  if (rc != BS_OK) return rc;
  const bs_node *phase = bs_config_find(tree, "phase.name");
  if (from_user && phase != NULL && phase->kind != BS_NODE_NULL) c->out->phase_given = 1;
  rc = bs_config_merge(c->out->config, tree, c->err);
  bs_config_free(tree);
  if (c->paths.size > 0) bs_text_append(&c->paths, ", ", 2);
  bs_config_quote(&c->paths, path);
  return rc;
}

static int looks_like_path(const char *word) {
  size_t length = strlen(word);
  return strchr(word, '/') != NULL || (length > 5 && strcmp(word + length - 5, ".yaml") == 0) ||
         (length > 4 && strcmp(word + length - 4, ".yml") == 0);
}

static int32_t check_word(const char *option, const char *word, bs_error *err) {
  if (word[0] == '\0') return bs_error_set(err, BS_USAGE, "BS-USE-EMPTY", "%s: the name is empty", option);
  for (const char *p = word; *p != '\0'; p++) {
    unsigned char ch = (unsigned char)*p;
    if (ch < 0x20 || ch == 0x7f) {
      return bs_error_set(err, BS_USAGE, "BS-USE-NAME", "%s: control byte 0x%02x in the name", option, ch);
    }
  }
  if (strlen(word) >= PATH_CAP - 512) {
    return bs_error_set(err, BS_USAGE, "BS-USE-NAME", "%s: the name is %zu bytes long", option, strlen(word));
  }
  return BS_OK;
}

static int32_t no_such_file(composer *c, const char *option, const char *word, const char *group) {
  char **names = NULL;
  size_t n = bs_config_names(c->request->configs_dir, group, &names);
  const int of_phases = strcmp(group, "phases") == 0;
  const char *nearest = of_phases ? bs_nearest(word, bs_phase_words, BS_PHASE_NAMES) : NULL;
  if (nearest == NULL) nearest = bs_nearest(word, (const char *const *)names, n);
  bs_error_set(c->err, BS_CONFIG, "BS-CFG-NAME", "%s: there is no '%.100s'", option, word);
  if (c->request->configs_dir == NULL) {
    bs_error_hint(c->err, "no configs folder was found; set BS_CONFIG_DIR or give a path to a YAML file");
  } else if (nearest != NULL) {
    bs_error_hint(c->err, "did you mean '%s'?", nearest);
  } else if (of_phases) {
    bs_error_hint(c->err, "%s (0 to 3); or a path to a YAML file", BS_PHASE_WORDS);
  } else {
    bs_text known = {0};
    for (size_t i = 0; i < n; i++) bs_text_printf(&known, "%s%s", i == 0 ? "" : ", ", names[i]);
    bs_error_hint(c->err, "known: %s; or a path to a YAML file", known.data == NULL ? "none" : known.data);
    bs_text_free(&known);
  }
  bs_config_names_free(names, n);
  return BS_CONFIG;
}

/* Do the registered `word` and the name in a file mean the same? A file is not checked against a word that is
 * not registered. */
static int file_agrees(composer *c, const char *folder, const char *word) {
  bs_context *context = c->request->context;
  const bs_node *tree = c->out->config;
  void *state = NULL;
  if (strcmp(folder, "methods") == 0 && context != NULL) {
    const bs_method *asked = NULL, *named = NULL;
    const char *name = bs_schema_str(tree, "method.name");
    if (bs_find_method(context, word, &asked, &state, NULL) != BS_OK) return 1;
    return name != NULL && bs_find_method(context, name, &named, &state, NULL) == BS_OK && named == asked;
  }
  if (strcmp(folder, "workloads") == 0 && context != NULL) {
    const bs_workload *asked = NULL, *named = NULL;
    const char *name = bs_schema_str(tree, "workload.type");
    if (name == NULL) name = bs_schema_str(tree, "workload.name");
    if (bs_find_workload(context, word, &asked, &state, NULL) != BS_OK) return 1;
    return name != NULL && bs_find_workload(context, name, &named, &state, NULL) == BS_OK && named == asked;
  }
  if (strcmp(folder, "phases") == 0) {
    const char *name = bs_schema_str(tree, "phase.name");
    return name != NULL && strcmp(name, word) == 0;
  }
  if (strcmp(folder, "masks") == 0) {
    bs_mask asked, named;
    const char *name = bs_schema_str(tree, "mask.name");
    if (bs_mask_parse(word, NULL, NULL, &asked, NULL) != BS_OK) return 1;
    return name != NULL && bs_mask_parse(name, NULL, NULL, &named, NULL) == BS_OK &&
           named.kind == asked.kind && named.pattern_a == asked.pattern_a &&
           named.pattern_b == asked.pattern_b;
  }
  return 1;
}

static int32_t set_keys(composer *c, const char *folder, const char *word, const char *const *keys) {
  int32_t rc = BS_OK;
  if (strcmp(folder, "masks") == 0) /* patterns of another mask must not stay */
    bs_config_remove(c->out->config, "mask");
  for (size_t i = 0; keys[i] != NULL && rc == BS_OK; i++)
    rc = bs_config_set_text(c->out->config, keys[i], word, c->err);
  return rc;
}

/* The file of a name below the configs folder: never one that climbs out of it. */
static int names_file(const composer *c, const char *folder, const char *word, char *path, size_t size) {
  if (c->request->configs_dir == NULL || word[0] == '/' || word[0] == '.' || strstr(word, "..") != NULL)
    return 0;
  const int n = snprintf(path, size, "%s/%s/%s.yaml", c->request->configs_dir, folder, word);
  return n > 0 && (size_t)n < size && access(path, F_OK) == 0;
}

/* Merges the file of `word`, searched as a registered id, a name in the configs folder, a path. The file of a
 * registered id gives its settings, but must not change the name. Without a file `keys` (NULL-terminated) are
 * set to the word for the registry to judge; without keys an unknown name is an error. */
static int32_t merge_word(composer *c, const char *option, const char *word, const char *folder,
                          const char *const *keys) {
  char path[PATH_CAP * 2];
  if (word == NULL) return BS_OK;
  int32_t rc = check_word(option, word, c->err);
  if (rc != BS_OK) return rc;
  if (names_file(c, folder, word, path, sizeof path)) {
    rc = merge_file(c, path, 0);
    return rc != BS_OK || keys == NULL || file_agrees(c, folder, word) ? rc : set_keys(c, folder, word, keys);
  }
  const int digits = strcmp(folder, "masks") == 0 && bs_is_mask_digits(word);
  if (!digits && looks_like_path(word)) return merge_file(c, word, 0);
  if (keys == NULL) return no_such_file(c, option, word, folder);
  return set_keys(c, folder, word, keys);
}

static int is_phase(const char *word) {
  for (size_t i = 0; word != NULL && i < BS_PHASE_NAMES; i++)
    if (strcmp(word, bs_phase_full_names[i]) == 0) return 1;
  return 0;
}

/* The names of phases by which a file is found, and which the registry of files cannot know. */
static int32_t merge_phase(composer *c, const char *word) {
  static const char *const keys[] = {"phase.name", NULL};
  const char *name = word == NULL ? NULL : bs_full_name("phase.name", word);
  return merge_word(c, "--phase", name, "phases", is_phase(name) ? keys : NULL);
}

bs_node *bs_sets_tree(const char *const *sets, size_t n_sets) {
  bs_node *tree = bs_config_new_map();
  for (size_t i = 0; i < n_sets && tree != NULL; i++) {
    char path[256];
    const size_t length = strcspn(sets[i], "=");
    if (sets[i][length] == '\0' || length >= sizeof path) continue;
    snprintf(path, sizeof path, "%.*s", (int)length, sets[i]);
    (void)bs_config_set(tree, path, sets[i] + length + 1, NULL);
  }
  return tree;
}

static int32_t apply_set(composer *c, const char *text) {
  char path[256];
  const char *equals = strchr(text, '=');
  if (equals == NULL || equals == text || (size_t)(equals - text) >= sizeof path) {
    bs_error_set(c->err, BS_USAGE, "BS-USE-SET", "--set %.100s: not of the form key=value", text);
    bs_error_hint(c->err, "for example --set model.N=1024");
    return BS_USAGE;
  }
  snprintf(path, sizeof path, "%.*s", (int)(equals - text), text);
  if (strcmp(path, "run_id") == 0 || strcmp(path, "config_paths") == 0) {
    bs_error_set(c->err, BS_USAGE, "BS-USE-SET", "--set %s: this key is written by bsrun", path);
    bs_error_hint(c->err, "use --run-id to name a run");
    return BS_USAGE;
  }
  int32_t rc = bs_config_set(c->out->config, path, equals + 1, c->err);
  if (rc != BS_OK && c->err != NULL && c->err->where[0] == '\0') bs_error_where(c->err, "--set %s", path);
  return rc;
}

static int32_t apply_flags(composer *c) {
  const bs_compose_request *q = c->request;
  int32_t rc = BS_OK;
  if (q->mask != NULL) rc = bs_config_set_text(c->out->config, "mask.use", "always", c->err);
  if (rc == BS_OK && q->n_plugins > 0) {
    bs_text list = {0};
    for (size_t i = 0; i < q->n_plugins; i++) {
      bs_text_append(&list, i == 0 ? "[" : ", ", i == 0 ? 1 : 2);
      bs_config_quote(&list, q->plugins[i]);
    }
    bs_text_append(&list, "]", 1);
    rc = list.failed ? bs_no_memory(c->err, "a configuration")
                     : bs_config_set(c->out->config, "plugin", list.data, c->err);
    bs_text_free(&list);
  }
  if (rc == BS_OK && q->world_size > 0) {
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)q->world_size);
    rc = bs_config_set_text(c->out->config, "hardware.world_size", text, c->err);
  }
  for (size_t i = 0; i < q->n_texts && rc == BS_OK; i++) {
    char path[64];
    snprintf(path, sizeof path, "%.*s", (int)strcspn(q->texts[i], "="), q->texts[i]);
    rc = bs_config_set_text(c->out->config, path, q->texts[i] + strlen(path) + 1, c->err);
  }
  bs_node *sets = bs_sets_tree(q->sets, q->n_sets);
  if (sets == NULL && rc == BS_OK) rc = bs_no_memory(c->err, "a configuration");
  if (sets != NULL && bs_config_find(sets, "phase.name") != NULL) c->out->phase_given = 1;
  bs_config_free(sets);
  for (size_t i = 0; i < q->n_sets && rc == BS_OK; i++) rc = apply_set(c, q->sets[i]);
  return rc;
}

static int32_t compose_all(composer *c) {
  static const char *const method_keys[] = {"method.name", NULL};
  static const char *const mask_keys[] = {"mask.name", NULL};
  static const char *const workload_keys[] = {"workload.name", "workload.type", NULL};
  const bs_compose_request *q = c->request;
  int32_t rc = BS_OK;
  if (q->configs_dir != NULL) {
    char path[PATH_CAP];
    snprintf(path, sizeof path, "%s/base.yaml", q->configs_dir);
    if (access(path, F_OK) == 0) rc = merge_file(c, path, 0);
  }
  for (size_t i = 0; i < q->n_configs && rc == BS_OK; i++) {
    rc = check_word("--config", q->configs[i], c->err);
    if (rc == BS_OK) rc = merge_file(c, q->configs[i], 1);
  }
  if (rc == BS_OK) rc = merge_phase(c, q->phase);
  if (rc == BS_OK) rc = merge_word(c, "--method", q->method, "methods", method_keys);
  if (rc == BS_OK) rc = merge_word(c, "--mask", q->mask, "masks", mask_keys);
  if (rc == BS_OK) rc = merge_word(c, "--workload", q->workload, "workloads", workload_keys);
  if (rc == BS_OK) rc = merge_word(c, "--hardware", q->hardware, "hardware", NULL);
  if (rc == BS_OK) rc = merge_word(c, "--sweep", q->sweep, "sweeps", NULL);
  if (rc == BS_OK) rc = apply_flags(c);
  if (q->phase != NULL) c->out->phase_given = 1;
  return rc == BS_OK ? bs_config_full_names(c->out->config, c->err) : rc;
}

int32_t bs_compose(const bs_compose_request *request, bs_composed *out_composed, bs_error *err) {
  composer c = {request, out_composed, {0}, err};
  memset(out_composed, 0, sizeof *out_composed);
  out_composed->config = bs_config_new_map();
  int32_t rc = out_composed->config == NULL ? bs_no_memory(err, "a configuration") : BS_OK;
  if (rc == BS_OK) rc = compose_all(&c);
  if (rc == BS_OK) rc = bs_hardware_device_read(out_composed->config, request->configs_dir, err);
  if (rc == BS_OK) {
    bs_text list = {0};
    bs_text_printf(&list, "[%s]", c.paths.data == NULL ? "" : c.paths.data);
    rc = list.failed || c.paths.failed ? bs_no_memory(err, "a configuration")
                                       : bs_config_set(out_composed->config, "config_paths", list.data, err);
    bs_text_free(&list);
  }
  bs_text_free(&c.paths);
  if (rc != BS_OK) {
    bs_config_free(out_composed->config);
    out_composed->config = NULL;
  }
  return rc;
}

int32_t bs_compose_with(bs_compose_request *request, bs_context *context, bs_composed *composed,
                        bs_error *err) {
  bs_config_free(composed->config);
  composed->config = NULL;
  request->context = context;
  return bs_compose(request, composed, err);
}
