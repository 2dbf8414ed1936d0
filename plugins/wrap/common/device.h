/* SPDX-License-Identifier: MIT
 *
 * device.h - shared parts of backend.c and op.c: the wrapped backend and its devices. */
#ifndef BS_WRAP_DEVICE_H
#define BS_WRAP_DEVICE_H

#include "wrap.h"

typedef struct wrap_op_state wrap_op_state;

/* The state that wrap returns. */
typedef struct wrap_backend_state {
  const wrap_plugin *plugin;
  const bs_backend *inner;
  void *inner_state;
  wrap_plan plan;
  wrap_op_state *ops; /* of wrap_op; freed with this */
} wrap_backend_state;

/* A device, which is one rank's. */
typedef struct wrap_device {
  const wrap_backend_state *w;
  void *inner;
  wrap_calls calls;
} wrap_device;

/* Counts the call and applies the faults before it. BS_OK: go on; *out_what: the fault to apply later
 * (WRAP_FLIP, WRAP_NAN, WRAP_TRUNCATE), WRAP_DO_COUNT_: none. */
int32_t wrap_device_before(wrap_device *device, uint32_t op, const char *site, uint32_t *out_what,
                           bs_error *err);
/* Change one element in device memory. */
int32_t wrap_device_change(wrap_device *device, uint32_t op, uint32_t what, uint32_t dtype, void *element,
                           bs_stream *stream, bs_error *err);
int32_t wrap_op_make(void *wrapped, const bs_op_impl *inner, void *inner_state, const bs_op_impl **out_impl,
                     void **out_state, bs_error *err);
void wrap_ops_free(wrap_backend_state *w);

#endif
