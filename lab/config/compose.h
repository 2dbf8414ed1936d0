/* SPDX-License-Identifier: MIT
 * compose.h - merges configuration files and command-line values into one tree, in the order of
 * docs/config.md: base, --config files, phase, method, mask, workload, hardware, sweep, then --plugin, -P,
 * --set. Each of the six is a name from the configs folder, a YAML path, or a registered name. */
#ifndef BS_LAB_CONFIG_COMPOSE_H
#define BS_LAB_CONFIG_COMPOSE_H
#include "lab/yaml/config.h"

typedef struct bs_compose_request {
  const char *configs_dir; /* folder with base.yaml, phases/, methods/, ...; NULL: not found */
  const char *const *configs;
  size_t n_configs;
  const char *phase, *method, *mask, *workload, *hardware, *sweep; /* NULL: not given */
  const char *const *plugins;
  size_t n_plugins;
  int64_t world_size; /* 0: not given */
  const char *const *texts;
  size_t n_texts; /* "a.b=text", without interpretation: values of options such as --out */
  const char *const *sets;
  size_t n_sets;       /* "a.b=yaml" */
  bs_context *context; /* knows the registered names; NULL: before plugins are opened */
} bs_compose_request;

typedef struct bs_composed {
  bs_node *config;      /* the caller's; config_paths included */
  uint32_t phase_given; /* --phase, a --config file or --set named the phase */
} bs_composed;

/* The configs folder: BS_CONFIG_DIR if set (it must exist: BS_CONFIG), else ../share/blockshock/configs
 * relative to the running program's folder. Never the current directory. *out_dir is NULL if there is none;
 * the caller frees. */
int32_t bs_configs_dir(char **out_dir, bs_error *err);

/* Compose once more when the context is open: a registered id wins over a file of that name that means
 * something else. Replaces *composed. */
int32_t bs_compose_with(bs_compose_request *request, bs_context *context, bs_composed *composed,
                        bs_error *err);

/* The merged tree, not yet checked against the schema. Unknown names give BS_CONFIG for files and are left
 * to the registry for methods, workloads and masks. */
int32_t bs_compose(const bs_compose_request *request, bs_composed *out_composed, bs_error *err);

/* The --set texts as one tree, which the caller frees; NULL: no memory. A refused text is left out:
 * bs_compose reports why. */
bs_node *bs_sets_tree(const char *const *sets, size_t n_sets);

/* Names of the files of a group ("methods", "phases", ...), sorted, without .yaml, as one malloc'd block;
 * the count is returned. */
size_t bs_config_names(const char *configs_dir, const char *group, char ***out_names);
void bs_config_names_free(char **names, size_t count);
/* Adds a text to YAML text, quoted. */
void bs_config_quote(bs_text *text, const char *value);
#endif
