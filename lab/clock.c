/* SPDX-License-Identifier: MIT
 * clock.c - see clock.h. */
#include "lab/clock.h"

#include "core/plugin/registry.h"

int bs_clock_is_virtual(bs_context *context, const char *name) {
  const bs_comm *comm = NULL;
  void *state = NULL;
  return context != NULL && name != NULL && bs_find_comm(context, name, &comm, &state, NULL) == BS_OK &&
         comm->launch == BS_LAUNCH_DRIVEN && comm->clock_ns != NULL;
}

int bs_backend_is_phantom(bs_context *context, const char *name) {
  const bs_backend *backend = NULL;
  void *state = NULL;
  return context != NULL && name != NULL && bs_find_backend(context, name, &backend, &state, NULL) == BS_OK &&
         (backend->flags & BS_BACKEND_PHANTOM) != 0;
}
