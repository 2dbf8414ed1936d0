/* SPDX-License-Identifier: MIT
 * wrap.c - a wrapper (fault:threads) is graded by what it makes from the library's own: the communicator
 * threads, the backend ref. Other plugins are graded directly. */
#include "kit/kit.h"

static bs_context *library;
static const bs_comm *comm_wrapper;
static const bs_backend *backend_wrapper;
static void *made;

static void open_library(void) {
  const bs_context_options o = {.struct_size = sizeof o, .log_level = BS_LOG_ERROR};
  bs_error err = BS_ERROR_INIT;
  kit_assert(bs_context_open(&o, &library, &err) == BS_OK, "the library cannot be opened: %s", err.message);
}

const bs_comm *kit_comm_of(const kit_thing *t, void **out_state) {
  static bs_comm joined;
  const bs_comm *own = t->vtable, *inner = NULL;
  bs_error err = BS_ERROR_INIT;
  void *state = NULL;
  *out_state = t->state;
  if (own->wrap == NULL) return own;
  open_library();
  kit_assert(bs_find_comm(library, "threads", &inner, &state, &err) == BS_OK, "%s", err.message);
  kit_assert(own->wrap(t->state, inner, state, &made, &err) == BS_OK, "it does not wrap threads: %s: %s",
             err.id, err.message);
  joined = *own;
  joined.launch = inner->launch;
  joined.world_drive = inner->world_drive != NULL ? own->world_drive : NULL;
  comm_wrapper = own;
  *out_state = made;
  return &joined;
}

const bs_backend *kit_backend_of(const kit_thing *t, void **out_state) {
  static bs_backend joined;
  const bs_backend *own = t->vtable, *inner = NULL;
  bs_error err = BS_ERROR_INIT;
  void *state = NULL;
  *out_state = t->state;
  if (own->wrap == NULL) return own;
  open_library();
  kit_assert(bs_find_backend(library, "ref", &inner, &state, &err) == BS_OK, "%s", err.message);
  kit_assert(own->wrap(t->state, inner, state, &made, &err) == BS_OK, "it does not wrap ref: %s: %s", err.id,
             err.message);
  joined = *own;
  joined.flags = inner->flags;
  if (inner->stream_create == NULL) joined.stream_create = NULL;
  if (inner->stream_destroy == NULL) joined.stream_destroy = NULL;
  if (inner->stream_sync == NULL) joined.stream_sync = NULL;
  if (inner->event_create == NULL) joined.event_create = NULL;
  if (inner->event_destroy == NULL) joined.event_destroy = NULL;
  if (inner->event_record == NULL) joined.event_record = NULL;
  if (inner->event_elapsed == NULL) joined.event_elapsed = NULL;
  backend_wrapper = own;
  *out_state = made;
  return &joined;
}

void kit_unwrap(void) {
  if (library == NULL) return;
  if (comm_wrapper != NULL) comm_wrapper->unwrap(made);
  if (backend_wrapper != NULL) backend_wrapper->unwrap(made);
  bs_context_close(library);
  library = NULL;
  comm_wrapper = NULL;
  backend_wrapper = NULL;
}
