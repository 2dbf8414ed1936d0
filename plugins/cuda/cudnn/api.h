/* SPDX-License-Identifier: MIT
 * api.h - the used part of NVIDIA's cuDNN 9 (its backend API), declared here because the toolkit has no
 * header for it. tests/cuda/cudnn_header.h compares it with that header if there is one. */
#ifndef BS_PLUGIN_CUDA_CUDNN_API_H
#define BS_PLUGIN_CUDA_CUDNN_API_H
#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

enum cuda_dnn_status {
  DNN_SUCCESS = 0,
  DNN_BAD_PARAM = 2000,
  DNN_NOT_SUPPORTED = 3000,    /* and up to 3999: of a kind */
  DNN_INTERNAL_ERROR = 4000,   /* and up to 4999: it cannot make or start the operation */
  DNN_EXECUTION_FAILED = 5000, /* and above: the device's work is lost */
};
enum cuda_dnn_dtype { DNN_F16 = 2, DNN_F32 = 0, DNN_BF16 = 9 };
enum cuda_dnn_kind { /* of descriptors */
                     DNN_ENGINE_CONFIG = 3,
                     DNN_HEURISTICS = 4,
                     DNN_PLAN = 5,
                     DNN_GRAPH = 15,
                     DNN_PACK = 16,
                     DNN_TENSOR = 17,
                     DNN_SDPA = 41
};
enum cuda_dnn_type { /* of attributes */
                     DNN_TYPE_HANDLE = 0,
                     DNN_TYPE_DTYPE = 1,
                     DNN_TYPE_BOOL = 2,
                     DNN_TYPE_INT64 = 3,
                     DNN_TYPE_POINTER = 6,
                     DNN_TYPE_MODE = 8,
                     DNN_TYPE_DESCRIPTOR = 15
};
enum cuda_dnn_attribute {
  DNN_HEURISTICS_MODE = 200,
  DNN_HEURISTICS_GRAPH = 201,
  DNN_HEURISTICS_RESULTS = 202,
  DNN_PLAN_HANDLE = 400,
  DNN_PLAN_CONFIG = 401,
  DNN_PLAN_WORKSPACE = 402,
  DNN_GRAPH_HANDLE = 800,
  DNN_GRAPH_OPERATIONS = 801,
  DNN_TENSOR_ALIGNMENT = 900,
  DNN_TENSOR_DTYPE = 901,
  DNN_TENSOR_DIMS = 902,
  DNN_TENSOR_STRIDES = 903,
  DNN_TENSOR_ID = 906,
  DNN_TENSOR_BY_VALUE = 908,
  DNN_PACK_IDS = 1000,
  DNN_PACK_POINTERS = 1001,
  DNN_PACK_WORKSPACE = 1003,
  DNN_SDPA_Q = 2800,
  DNN_SDPA_K = 2801,
  DNN_SDPA_V = 2802,
  DNN_SDPA_O = 2803,
  DNN_SDPA_SCALE = 2805
};
enum cuda_dnn_mode { DNN_MODE_A = 3 };

/* Handles and descriptors are pointers to the library's objects; enums are passed as int. */
typedef struct cuda_dnn_functions {
  size_t (*version)(void);
  const char *(*error_string)(int status);
  int (*create)(void **out_handle);
  int (*destroy)(void *handle);
  int (*set_stream)(void *handle, CUstream stream);
  int (*descriptor_create)(int kind, void **out_descriptor);
  int (*descriptor_destroy)(void *descriptor);
  int (*set)(void *descriptor, int attribute, int type, int64_t count, const void *values);
  int (*get)(void *descriptor, int attribute, int type, int64_t most, int64_t *out_count, void *out_values);
  int (*finalize)(void *descriptor);
  int (*execute)(void *handle, void *plan, void *pack);
} cuda_dnn_functions;
#endif
