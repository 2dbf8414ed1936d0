/* SPDX-License-Identifier: MIT
 * library.h - cuDNN as the plugin found it: never linked, opened when an attention first could use it. */
#ifndef BS_PLUGIN_CUDA_CUDNN_LIBRARY_H
#define BS_PLUGIN_CUDA_CUDNN_LIBRARY_H
#include <pthread.h>

#include "../cuda.h"
#include "api.h"

typedef struct cuda_dnn {
  cuda_state *state;
  const char *wanted; /* "auto", "off" or a path */
  pthread_mutex_t lock;
  int looked, usable;
  uint32_t reason; /* enum bs_reason: why not usable */
  int64_t version; /* 91900: 9.19.0 */
  char text[160];  /* version, or why not usable */
  cuda_dnn_functions call;
} cuda_dnn;

/* Opens nothing. `wanted` and the state must live on. */
int32_t cuda_dnn_new(cuda_state *state, const char *wanted, bs_error *err);
void cuda_dnn_delete(cuda_state *state);
/* Opens the library in the first call, then returns the result; any thread, never NULL. */
const cuda_dnn *cuda_dnn_open(cuda_state *state);
/* The device's handle, which the first caller makes in the device's context; one rank uses a device. */
int32_t cuda_dnn_handle(cuda_device *device, void **out_handle, bs_error *err);
void cuda_dnn_close(cuda_device *device);
/* Fills err from a status of `what`; returns err's code, DNN_SUCCESS: BS_OK. BS_UNSUPPORTED: the library does
 * not support it, and nothing is broken. */
int32_t cuda_dnn_check(const cuda_dnn *dnn, int status, const char *what, bs_error *err);

extern const bs_op_impl cuda_dnn_attention;
#endif
