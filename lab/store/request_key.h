/* SPDX-License-Identifier: MIT
 * request_key.h - the key of a request. It is known before anything runs, so a plan can name its runs and a
 * later process can find which of them exist. The key of a result (record.h) is different: it is made after
 * tuning. */
#ifndef BS_LAB_STORE_REQUEST_KEY_H
#define BS_LAB_STORE_REQUEST_KEY_H
#include "lab/yaml/config.h"

/* SHA-256 over the composed tree of one phase, the files of the plugins that it names, and the library's
 * build id. Plugins are named by id, by path, or by their notes: method, workload, backend, communicator,
 * algorithm, topology, and those that have ops for the backend. Other spellings of a value
 * (bs_schema_canonical) have the same key. No plugin is opened. run_id, config_paths, logging and sweep are
 * left out, and the order of keys in the tree does not matter. context: open, and not used by another thread
 * meanwhile. BS_IO: a plugin's file cannot be read. */
int32_t bs_request_key(bs_context *context, const bs_node *config, char out_key[65], bs_error *err);
/* Like bs_request_key, for a library with another build id. */
int32_t bs_request_key_of_build(bs_context *context, const bs_node *config, const char *build_id,
                                char out_key[65], bs_error *err);

/* The tree as text, keys sorted, without the entries of `paths` ("a.b"): equal texts are equal requests. */
int32_t bs_request_text(const bs_node *config, const char *const *paths, size_t n, bs_text *out,
                        bs_error *err);
#endif
