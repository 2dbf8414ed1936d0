/* SPDX-License-Identifier: MIT
 * apart.h - a backend for tests whose memory is not the host's: the host that reads or writes it ends with
 * SIGSEGV, at the place that did. Its ops are those of ref; the memory can be reached while one runs. */
#ifndef BS_TESTS_GRAPH_APART_H
#define BS_TESTS_GRAPH_APART_H
#include <pthread.h>

#include "plugins/ref/ref.h"

typedef struct apart_state {
  ref_state ref; /* of the ops */
  bs_plugin_self *self;
  uint64_t room;   /* bytes of a device */
  uint64_t fails;  /* the number of the copy that fails, from 1; 0: none */
  uint64_t copies; /* so far */
  uint32_t keeps;  /* 0: a capture is refused when it ends */
  char lacks[128]; /* ops that it does not serve: ",topk,take," */
  pthread_mutex_t lock;
  unsigned char *base; /* reserved addresses; PROT_NONE unless an op or a copy runs */
  uint64_t range, used, taken;
  uint32_t open;
} apart_state;

/* One rank's. All of them are objects of one device, whose memory they share. */
typedef struct apart_device {
  apart_state *state;
  bs_capture *captures; /* the capture that is being made; NULL: none */
} apart_device;

extern const bs_backend apart_backend;
extern const bs_src_loc apart_backend_at;
int32_t apart_reserve(apart_state *state, bs_error *err);
void apart_release(apart_state *state);
void apart_open(apart_state *state);
void apart_close(apart_state *state);
/* capture.c: adds a run to the capture that is being made. */
int32_t apart_capture(apart_device *device, const bs_op_impl *op, const bs_exec *exec, void *plan,
                      bs_tensor *const *args, uint32_t nargs, bs_error *err);
void apart_capture_slots(bs_backend *backend);
#endif
