/* SPDX-License-Identifier: MIT
 * library.h - cuBLASLt as the plugin found it. It is never linked, but opened when a product first could use
 * it. It has a table of its functions, the reason if it is missing, and the choices of algorithms that were
 * made with it. */
#ifndef BS_PLUGIN_CUDA_CUBLASLT_LIBRARY_H
#define BS_PLUGIN_CUDA_CUBLASLT_LIBRARY_H
#include <cublasLt.h>
#include <pthread.h>

#include "../cuda.h"

/* The functions in use, with the types that the header declares. The header's inline ...Init functions call
 * these, which make descriptors in place, so that no call allocates. */
typedef struct cuda_lt_functions {
  __typeof__(&cublasLtCreate) create;
  __typeof__(&cublasLtDestroy) destroy;
  __typeof__(&cublasLtGetVersion) version;
  __typeof__(&cublasLtGetStatusName) status_name;
  __typeof__(&cublasLtGetStatusString) status_string;
  __typeof__(&cublasLtMatmul) matmul;
  __typeof__(&cublasLtMatrixLayoutInit_internal) layout_init;
  __typeof__(&cublasLtMatmulDescInit_internal) desc_init;
  __typeof__(&cublasLtMatmulDescSetAttribute) desc_set;
  __typeof__(&cublasLtMatmulPreferenceInit_internal) preference_init;
  __typeof__(&cublasLtMatmulPreferenceSetAttribute) preference_set;
  __typeof__(&cublasLtMatmulAlgoGetHeuristic) heuristic;
  __typeof__(&cublasLtMatmulAlgoConfigGetAttribute) config_get;
} cuda_lt_functions;

typedef struct cuda_lt_choice cuda_lt_choice; /* choose.h */

typedef struct cuda_lt {
  cuda_state *state;
  const char *wanted; /* "auto", "off" or a path */
  int tune;           /* time the algorithms of the heuristics */
  pthread_mutex_t lock;
  int looked, usable;
  uint32_t reason; /* enum bs_reason: why not usable */
  int32_t version; /* 130000 */
  int32_t capability;
  char text[160]; /* version, or why not usable */
  cuda_lt_functions call;
  cuda_lt_choice *choices; /* kept for every rank of the process: equal devices choose equally */
  uint32_t n_choices, choices_capacity;
  uint64_t hits;
} cuda_lt;

/* Opens nothing. `wanted` and the state must live on. */
int32_t cuda_lt_new(cuda_state *state, const char *wanted, int tune, bs_error *err);
void cuda_lt_delete(cuda_state *state);
/* Opens the library in the first call, then returns the result; any thread, never NULL. */
const cuda_lt *cuda_lt_open(cuda_state *state);
/* The least compute capability of the driver's devices, 0 if it is not known. Makes no context. */
int32_t cuda_lt_capability(const cuda_state *state);
/* The device's handle, which the first caller makes in the device's context. */
int32_t cuda_lt_handle(cuda_device *device, cublasLtHandle_t *out_handle, bs_error *err);
/* The end of the device's handle, if it has one. */
void cuda_lt_close(cuda_device *device);
/* Fills err from a status of `what`; returns err's code, CUBLAS_STATUS_SUCCESS: BS_OK. */
int32_t cuda_lt_check(const cuda_lt *lt, cublasStatus_t status, const char *what, bs_error *err);
#endif
