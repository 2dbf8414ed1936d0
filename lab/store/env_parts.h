/* SPDX-License-Identifier: MIT
 * env_parts.h - what env.c puts into env.json from env_host.c. New references. */
#ifndef BS_LAB_STORE_ENV_PARTS_H
#define BS_LAB_STORE_ENV_PARTS_H
#include <jansson.h>

/* [[cpu, core, package, node], ...] of the processors that are online; -1: the kernel does not tell. */
json_t *bs_env_core_map(void);
/* "on", "without heap", "off", "off for this process", or null. */
json_t *bs_env_aslr(void);
/* [{path, build_id}] of the shared libraries and plugins in this process. */
json_t *bs_env_libraries(void);
/* The version text of the MPI library among them; null: there is no MPI. */
json_t *bs_env_mpi(const json_t *libraries);
#endif
