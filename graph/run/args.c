/* SPDX-License-Identifier: MIT
 * args.c - checks of the arguments of graph.h's functions. */
#include "graph/run/args.h"

#include <string.h>

#include "core/base/error.h"

int32_t gargs_null(const char *function, const char *needed, bs_error *err) {
  return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-GRAPH-NULL", "%s was given NULL; it needs %s", function,
                      needed);
}

int32_t gargs_size(const char *function, const char *name, uint32_t struct_size, bs_error *err) {
  if (struct_size != 0) return BS_OK;
  bs_error_set(err, BS_INVALID_ARGUMENT, "BS-GRAPH-STRUCT", "%s: struct_size of %s is 0", function, name);
  bs_error_hint(err, "set it to sizeof(%s) before the call", name);
  return BS_INVALID_ARGUMENT;
}

int32_t gargs_list(const char *function, const char *what, const void *list, uint32_t n, bs_error *err) {
  const void *one = NULL;
  for (uint32_t i = 0; i < n && list != NULL; i++) {
    memcpy(&one, (const char *)list + i * sizeof one, sizeof one);
    if (one == NULL)
      return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-GRAPH-NULL", "%s: entry %u of %s is NULL", function,
                          i, what);
  }
  if (n == 0 || list != NULL) return BS_OK;
  return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-GRAPH-NULL", "%s: %s is NULL, with a count of %u",
                      function, what, n);
}

int32_t gargs_dims(const char *function, const bs_dim *const *dims, uint32_t n, bs_error *err) {
  int32_t rc = gargs_list(function, "dims", dims, n, err);
  for (uint32_t i = 0; i < n && rc == BS_OK; i++) {
    rc = gargs_size(function, "bs_dim", dims[i]->struct_size, err);
    if (rc == BS_OK && dims[i]->name == NULL) rc = gargs_null(function, "a name in each bs_dim", err);
  }
  return rc;
}
