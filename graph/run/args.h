/* SPDX-License-Identifier: MIT
 * args.h - the rules of graph.h for arguments: no NULL but where the header allows it, struct_size set. Each
 * check returns BS_OK, or BS_INVALID_ARGUMENT with the function's name. Thread-safe. */
#ifndef BS_GRAPH_RUN_ARGS_H
#define BS_GRAPH_RUN_ARGS_H
#include "blockshock/graph.h"

/* The error of a function that was given NULL: `needed` lists the arguments that may not be NULL. */
int32_t gargs_null(const char *function, const char *needed, bs_error *err);
/* Checks that struct_size of the struct `name` is not 0. */
int32_t gargs_size(const char *function, const char *name, uint32_t struct_size, bs_error *err);
/* Checks a list of n pointers: no pointer is NULL. The list itself may be NULL where n is 0. */
int32_t gargs_list(const char *function, const char *what, const void *list, uint32_t n, bs_error *err);
/* Checks sizes of dimensions: a list as above, each with struct_size and name. */
int32_t gargs_dims(const char *function, const bs_dim *const *dims, uint32_t n, bs_error *err);
#endif
