/* SPDX-License-Identifier: MIT
 * env.h - the facts on which a time depends: processor, memory, kernel, compiler, libraries, load, and the
 * environment variables of an allow-list (never the whole environment). */
#ifndef BS_LAB_STORE_ENV_H
#define BS_LAB_STORE_ENV_H
#include <jansson.h>

#include "blockshock/blockshock.h"

/* A new object; facts that this machine does not report are null. NULL when out of memory. */
json_t *bs_env_collect(bs_context *context);
/* Sorted keys, indent 2, newline at the end; the caller frees. NULL when out of memory. */
char *bs_env_text(const json_t *env);
/* A JSON string; a text that is not UTF-8 becomes one that says so. */
json_t *bs_env_string(const char *text);
/* Reads the first line of a small file without its newline; 0: no file. */
int bs_env_first_line(const char *path, char *out, size_t size);
/* The words of this process's command line; a new reference. */
json_t *bs_env_argv(void);
/* Clock ticks that the hypervisor has given to other guests since the machine began, of all processors. */
uint64_t bs_env_steal(void);
/* {load_average, stolen_s} after a run; steal_before: the value of bs_env_steal before it. */
json_t *bs_env_after(uint64_t steal_before);
/* The start of a process of this machine, in clock ticks since the machine started: together with the pid it
 * identifies the process for ever. 0: there is no such process. */
uint64_t bs_env_process_start(long pid);
/* The plugins that are open: [{id, version, path, sha256}], sorted by id. A built-in has the library's build
 * id instead of a file's sum. BS_IO when a file cannot be read. */
int32_t bs_env_plugins(bs_context *context, json_t **out_list, bs_error *err);
#endif
