/* SPDX-License-Identifier: MIT
 * request_key.h - the key of what was asked for: known before anything runs, so that a plan can name its runs
 * and a later process can tell which of them are there. The key of a result (record.h) is made after tuning
 * and is another one. */
#ifndef BS_LAB_STORE_REQUEST_KEY_H
#define BS_LAB_STORE_REQUEST_KEY_H
#include "lab/yaml/config.h"

/* SHA-256 over the composed tree of one phase, the files of the plugins that it names (by id, by path, or by
 * what their notes list: method, workload, backend, communicator, algorithm, topology, and what has ops for
 * the backend), and the library's build id. Other spellings of a value (bs_schema_canonical) have the same
 * key. No plugin is opened. run_id, config_paths, logging and sweep are no part of it, and the order of keys
 * in the tree does not matter. context: open, and not used by another thread meanwhile. BS_IO: a plugin's
 * file cannot be read. */
int32_t bs_request_key(bs_context *context, const bs_node *config, char out_key[65], bs_error *err);
/* The same for a library with another build id. */
int32_t bs_request_key_of_build(bs_context *context, const bs_node *config, const char *build_id,
                                char out_key[65], bs_error *err);

/* The tree as text, keys sorted, without the entries of `paths` ("a.b"): equal texts ask for the same. */
int32_t bs_request_text(const bs_node *config, const char *const *paths, size_t n, bs_text *out,
                        bs_error *err);
#endif
