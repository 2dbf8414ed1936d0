/* SPDX-License-Identifier: MIT
 * library.h - cuSPARSELt as the plugin found it. It is never linked, but opened when a product of 2:4 weights
 * first could use it. It has a table of its functions, the reason if it is missing, and the algorithms that
 * were chosen. */
#ifndef BS_PLUGIN_CUDA_CUSPARSELT_LIBRARY_H
#define BS_PLUGIN_CUDA_CUSPARSELT_LIBRARY_H
#include <pthread.h>

#include "../cuda.h"
#include "api.h"

typedef struct cuda_splt_choice cuda_splt_choice; /* choose.h */

typedef struct cuda_splt {
  cuda_state *state;
  const char *wanted; /* "auto", "off" or a path */
  int tune;           /* time the algorithms */
  int zeros;          /* weights with kept zeros too */
  pthread_mutex_t lock;
  int looked, usable;
  uint32_t reason; /* enum bs_reason: why not usable */
  int32_t version; /* 800: 0.8.0 */
  int32_t capability;
  char text[160]; /* version, or why not usable */
  cuda_splt_functions call;
  cuda_splt_choice *choices; /* kept for every rank of the process: equal devices choose equally */
  uint32_t n_choices, choices_capacity;
  uint64_t hits;
} cuda_splt;

/* Opens nothing. `wanted` and the state must live on. */
int32_t cuda_splt_new(cuda_state *state, const char *wanted, int tune, int zeros, bs_error *err);
void cuda_splt_delete(cuda_state *state);
/* Opens the library in the first call, then returns the result; any thread, never NULL. */
const cuda_splt *cuda_splt_open(cuda_state *state);
/* The device's handle, which the first caller makes in the device's context. */
int32_t cuda_splt_handle(cuda_device *device, const cuda_splt_opaque **out_handle, bs_error *err);
/* The end of the device's handle, if it has one. */
void cuda_splt_close(cuda_device *device);
/* Fills err from a status of `what`; returns err's code, SPLT_SUCCESS: BS_OK. */
int32_t cuda_splt_check(const cuda_splt *splt, int status, const char *what, bs_error *err);
/* The library does not serve this product, but this plugin's own tiles do, and nothing is broken: no table of
 * the library lists the products that it serves. */
int cuda_splt_refuses(int status);
int cuda_splt_refused(const bs_error *err);
/* Notes in the record what runs instead, with the library's message. */
void cuda_splt_note(const bs_exec *exec, const bs_error *err);
#endif
