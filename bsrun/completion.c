/* SPDX-License-Identifier: MIT
 * completion.c - `bsrun completion bash` prints the script of completion.bash; `bsrun completion words KIND`
 * is what the script asks for names. Reads notes and the configs folder; runs no plugin code. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bsrun/completion_bash.h" /* made from completion.bash by CMake: the bytes of completion_bash[] */
#include "bsrun/plugins.h"
#include "core/base/error.h"
#include "lab/config/schema.h"
#include "lab/model/model.h"
#include "lab/word.h"

/* The options of "torture" or "model", "info"; NULL: there is no such verb. */
static const args_option *options_of(const char *const *words) {
  const bsrun_verb *verb = bsrun_find_verb(words[0], NULL);
  if (verb != NULL && verb->subverbs != NULL)
    verb = words[1] != NULL ? bsrun_find_subverb(verb, words[1], NULL) : NULL;
  return verb != NULL ? verb->options : NULL;
}

/* only_valued: those that take a value. */
static void print_options(const char *const *words, int only_valued) {
  const args_option *o = options_of(words);
  for (size_t k = 0; o != NULL && o[k].id != OPT_END; k++) {
    const args_meaning *is = args_is(&o[k]);
    if (is->of != 0 || (o[k].flags & ARGS_HIDDEN) != 0 || (only_valued && is->value == NULL)) continue;
    printf("--%s\n", is->name);
    if (is->letter != 0) printf("-%c\n", is->letter);
  }
  if (o == NULL && !only_valued) fputs("--help\n-h\n", stdout); /* every verb has that */
}

/* The words that an option of a verb takes: "bias", "y=". */
static void print_within(const char *name, const char *const *words) {
  const args_option *o = options_of(words);
  for (size_t k = 0; o != NULL && o[k].id != OPT_END; k++) {
    const args_meaning *is = args_is(&o[k]);
    if (is->of != 0 && strcmp(args_meanings[is->of].name, name + strspn(name, "-")) == 0)
      printf("%s%s\n", is->name, is->value != NULL ? "=" : "");
  }
}

static void print_meanings_of(const bsrun_verb *of, const bsrun_verb *verb) {
  for (size_t k = 0; verb->options != NULL && verb->options[k].id != OPT_END; k++) {
    const args_option *o = &verb->options[k];
    const args_meaning *is = args_is(o);
    const char letter[2] = {is->letter, '\0'};
    printf("%s%s%s\t%s%s%s\t%s\t%s\t%s\t%s\t%s\n", of != NULL ? of->name : "", of != NULL ? " " : "",
           verb->name, is->of != 0 ? args_meanings[is->of].name : is->name, is->of != 0 ? " " : "",
           is->of != 0 ? is->name : "", letter, is->value != NULL ? is->value : "",
           (o->flags & ARGS_HIDDEN) != 0 ? "hidden" : "", is->doc, o->more != NULL ? o->more : "");
  }
}

/* Each option of each verb: verb, name, letter, value, hidden, what it means everywhere, and here. */
static void print_meanings(void) {
  for (size_t i = 0; bsrun_verb_at(i) != NULL; i++) {
    const bsrun_verb *verb = bsrun_verb_at(i);
    print_meanings_of(NULL, verb);
    for (size_t k = 0; verb->subverbs != NULL && verb->subverbs[k] != NULL; k++)
      print_meanings_of(verb, verb->subverbs[k]);
  }
}

/* All verbs, or the second words of one. */
static void print_verbs(const char *of) {
  const bsrun_verb *verb = of != NULL ? bsrun_find_verb(of, NULL) : NULL;
  for (size_t i = 0; of == NULL && bsrun_verb_at(i) != NULL; i++) printf("%s\n", bsrun_verb_at(i)->name);
  for (size_t i = 0; verb != NULL && verb->subverbs != NULL && verb->subverbs[i] != NULL; i++)
    printf("%s\n", verb->subverbs[i]->name);
  if (of != NULL && strcmp(of, "explain") == 0)
    fputs(
        "matmul\nmatmul_dx\nmatmul_dw\nmatmul_update\nsgd_update\nadamw_update\ngather_columns\n"
        "scatter_columns\nconvert\nactivate\nactivate_dx\ntree_sum\nattention\nattention_dx\nmatmul24\n"
        "mask\nmethod\n",
        stdout);
}

static void add_text(json_t *names, const char *text) {
  json_t *name = json_string(text);
  int known = name == NULL;
  for (size_t i = 0; !known && i < json_array_size(names); i++)
    known = json_equal(json_array_get(names, i), name);
  if (known) {
    json_decref(name);
  } else {
    json_array_append_new(names, name);
  }
}

static int32_t add_files(json_t *names, const char *group, bs_error *err) {
  char *dir = NULL, **files = NULL;
  int32_t rc = bs_configs_dir(&dir, err);
  const size_t n = rc == BS_OK && dir != NULL ? bs_config_names(dir, group, &files) : 0;
  for (size_t i = 0; i < n; i++) add_text(names, files[i]);
  bs_config_names_free(files, n);
  free(dir);
  return rc;
}

/* kind BS_KIND_COUNT_: ids. Plugins that were refused or are shadowed offer nothing. */
static int32_t add_offered(json_t *names, uint32_t kind, bs_error *err) {
  bs_context *context = NULL;
  const bs_context_options options = {.struct_size = sizeof options, .log_level = BS_LOG_ERROR};
  const int32_t rc = bs_context_open(&options, &context, err);
  for (uint32_t i = 0; rc == BS_OK && i < bs_plugin_count(context); i++) {
    bs_plugin_info info = {.struct_size = sizeof info};
    if (bs_plugin_get(context, i, &info, NULL) != BS_OK || info.state > BS_PLUGIN_ACTIVE) continue;
    if (kind < BS_KIND_COUNT_) {
      plugins_add_names(names, context, &info, kind);
    } else {
      add_text(names, info.id);
    }
  }
  if (context != NULL) bs_context_close(context);
  return rc;
}

/* Those that need no file, as far as the library knows them. */
static void add_masks(json_t *names) {
  static const char *const more[] = {"complement_0011_1100", "complement_0101_1010", "complement_0110_1001"};
  for (size_t i = 0; i < sizeof more / sizeof more[0]; i++) {
    bs_mask mask;
    if (bs_mask_parse(more[i], NULL, NULL, &mask, NULL) == BS_OK) add_text(names, more[i]);
  }
}

static void add_keys(json_t *names) {
  size_t count;
  const bs_key *keys = bs_schema_keys(&count);
  for (size_t i = 0; i < count; i++) {
    char text[160];
    snprintf(text, sizeof text, "%s=", keys[i].path);
    add_text(names, text);
  }
}

static void add_list(json_t *names, const char *const *list, size_t n) {
  for (size_t i = 0; i < n; i++) add_text(names, list[i]);
}

static void add_table(json_t *names, uint32_t table, const uint32_t *only, size_t n) {
  const char *words[BS_WORDS_MAX];
  add_list(names, words, bs_word_list(table, only, n, words));
}

/* Kinds that are files of a folder of the configs, names of things in notes, or both. */
static const struct {
  const char *kind, *group;
  uint32_t thing; /* BS_KIND_COUNT_: none */
} sources[] = {{"methods", "methods", BS_KIND_METHOD}, {"workloads", "workloads", BS_KIND_WORKLOAD},
               {"masks", "masks", BS_KIND_COUNT_},     {"hardware", "hardware", BS_KIND_COUNT_},
               {"sweeps", "sweeps", BS_KIND_COUNT_},   {"phases", "phases", BS_KIND_COUNT_},
               {"backends", NULL, BS_KIND_BACKEND},    {"comms", NULL, BS_KIND_COMM},
               {"algorithms", NULL, BS_KIND_ALGORITHM}};

static const char *const kinds[] = {"verbs",    "options", "valued", "methods",     "masks", "workloads",
                                    "hardware", "sweeps",  "phases", "backends",    "comms", "plugins",
                                    "formats",  "keys",    "dtypes", "activations", "ops",   "skeletons",
                                    "kinds",    "passes",  "within", "meanings"};

int32_t bsrun_names(const char *kind, json_t *names, bs_error *err) {
  for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++) {
    if (strcmp(kind, sources[i].kind) != 0) continue;
    int32_t rc = sources[i].group != NULL ? add_files(names, sources[i].group, err) : BS_OK;
    if (rc == BS_OK && sources[i].thing != BS_KIND_COUNT_) rc = add_offered(names, sources[i].thing, err);
    if (strcmp(kind, "masks") == 0) add_masks(names);
    return rc;
  }
  if (strcmp(kind, "plugins") == 0) return add_offered(names, BS_KIND_COUNT_, err);
  if (strcmp(kind, "keys") == 0) {
    add_keys(names);
  } else if (strcmp(kind, "formats") == 0) {
    add_list(names, bs_format_names, 5);
  } else if (strcmp(kind, "dtypes") == 0) {
    add_table(names, BS_NAMES_DTYPE, bs_float_dtypes, BS_FLOAT_DTYPES);
  } else if (strcmp(kind, "kinds") == 0) {
    add_list(names, kinds, sizeof kinds / sizeof kinds[0]);
  } else if (strcmp(kind, "passes") == 0) {
    add_text(names, "all");
    for (uint32_t i = 0; bs_graph_pass_name(i) != NULL; i++) add_text(names, bs_graph_pass_name(i));
  } else if (strcmp(kind, "skeletons") == 0) {
    add_list(names, plugins_new_kinds, plugins_n_new_kinds);
  } else if (strcmp(kind, "ops") == 0) {
    add_table(names, BS_NAMES_OP, NULL, 0);
  } else if (strcmp(kind, "activations") == 0) {
    add_table(names, BS_NAMES_ACTIVATION, NULL, 0);
  } else {
    return bsrun_unknown("kind of words", kind, kinds, sizeof kinds / sizeof kinds[0], err);
  }
  return BS_OK;
}

static int32_t print_words(const args *a, bs_error *err) {
  const char *kind = a->words[0], *of[4] = {NULL, NULL, NULL, NULL};
  for (size_t i = 1; i < a->n_words; i++) of[i - 1] = a->words[i];
  const int only_valued = strcmp(kind, "valued") == 0;
  if (only_valued || strcmp(kind, "options") == 0) {
    print_options(of[0] != NULL ? of : (const char *[]){"run", NULL}, only_valued);
    return BS_OK;
  }
  if (strcmp(kind, "verbs") == 0) {
    print_verbs(of[0]);
    return BS_OK;
  }
  if (strcmp(kind, "within") == 0) {
    if (of[0] == NULL) fputs("--to\n--with\n--show\n--stored\n--preset\n", stdout);
    if (of[0] != NULL) print_within(of[0], of[1] != NULL ? of + 1 : (const char *[]){"run", NULL});
    return BS_OK;
  }
  if (strcmp(kind, "meanings") == 0) {
    print_meanings();
    return BS_OK;
  }
  json_t *names = json_array();
  const int32_t rc = bsrun_names(kind, names, err);
  for (size_t i = 0; rc == BS_OK && i < json_array_size(names); i++)
    printf("%s\n", json_string_value(json_array_get(names, i)));
  json_decref(names);
  return rc;
}

static int32_t print_bash(const args *a, bs_error *err) {
  (void)a;
  (void)err;
  fwrite(completion_bash, 1, sizeof completion_bash, stdout);
  return BS_OK;
}

static const args_option options[] = {ARGS_HELP};
static const bsrun_verb bash_verb = {
    .name = "bash",
    .words = "",
    .summary = "the script for bash (`make install` puts it where bash-completion finds it)",
    .examples = "  source <(bsrun completion bash)\n",
    .options = options,
    .run = print_bash,
};
static const bsrun_verb words_verb = {
    .name = "words",
    .words = "KIND [VERB [VERB]]",
    .summary = "the names that the scripts complete, one a line",
    .about =
        "KIND is verbs, options, valued (options that take a value), methods, masks, workloads, hardware,\n"
        "sweeps, phases, backends, comms, plugins, formats, keys, dtypes, activations, ops, skeletons (the\n"
        "kinds of plugins new), passes (of models), within (words of an option of a verb: within --with "
        "tune),\n"
        "meanings (every option of every verb, a line each) or kinds (these).\n",
    .examples = "  bsrun completion words methods\n  bsrun completion words options runs list\n",
    .options = options,
    .run = print_words,
    .min_words = 1,
    .max_words = 4,
};

static const bsrun_verb *const second[] = {&bash_verb, &words_verb, NULL};
const bsrun_verb verb_completion = {
    .name = "completion",
    .summary = "complete words in a shell",
    .subverbs = second,
};
