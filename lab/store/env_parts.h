/* SPDX-License-Identifier: MIT
 * env_parts.h - the parts of env.json that env.c takes from env_host.c. New references. */
#ifndef BS_LAB_STORE_ENV_PARTS_H
#define BS_LAB_STORE_ENV_PARTS_H
#include <jansson.h>

/* [[cpu, core, package, node], ...] of the online processors; -1: the kernel does not report it. */
json_t *bs_env_core_map(void);
/* "on", "without heap", "off", "off for this process", or null. */
json_t *bs_env_aslr(void);
/* [{path, build_id}] of the shared libraries and plugins in this process. */
json_t *bs_env_libraries(void);
/* The version text of the MPI library among them; null: there is no MPI. */
json_t *bs_env_mpi(const json_t *libraries);
#endif
