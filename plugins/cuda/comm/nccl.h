/* SPDX-License-Identifier: MIT
 * nccl.h - the used part of NCCL's interface (nccl.h of NVIDIA, 2.18 and later), declared here so that the
 * build needs neither its header nor the CUDA runtime's; the library is opened at run time. */
#ifndef BS_PLUGIN_CUDA_NCCL_H
#define BS_PLUGIN_CUDA_NCCL_H
#include <limits.h>

#include "../cuda.h"

/* 2.23.4: older ones read a peer's buffers between ranks of one process without checking that this is
 * allowed, and memory of a pool does not allow it. 2.30.0. The configuration is that of 2.18.1, which all of
 * these accept. */
enum { NCCL_OLDEST = 22304, NCCL_SHARES_DEVICES = 23000, NCCL_CONFIG_VERSION = 21801 };
enum {
  NCCL_SUCCESS = 0,
  NCCL_INVALID_USAGE = 5,
  NCCL_IN_PROGRESS = 7,
};
enum { NCCL_INT8 = 0 }; /* ncclDataType_t: only bytes are sent */

typedef struct ncclComm *nccl_comm;
typedef struct nccl_id {
  char bytes[128];
} nccl_id;
/* ncclConfig_t of 2.18: a library reads `size` bytes, and uses its own defaults for the rest. */
typedef struct nccl_config {
  size_t size;
  unsigned int magic, version;
  int blocking, cga_cluster_size, min_ctas, max_ctas;
  const char *net_name;
  int split_share;
} nccl_config;
#define NCCL_CONFIG_MAGIC 0xcafebeefu
#define NCCL_UNSET INT_MIN

typedef struct nccl_functions {
  int (*version)(int *out_version);
  int (*unique_id)(nccl_id *out_id);
  int (*init)(nccl_comm *out_comm, int ranks, nccl_id id, int rank, nccl_config *config);
  int (*destroy)(nccl_comm comm);
  int (*async_error)(nccl_comm comm, int *out_result);
  const char *(*error_string)(int result);
  const char *(*last_error)(nccl_comm comm);
  int (*group_start)(void);
  int (*group_end)(void);
  int (*broadcast)(const void *from, void *to, size_t count, int type, int root, nccl_comm comm,
                   CUstream stream);
  int (*send)(const void *from, size_t count, int type, int peer, nccl_comm comm, CUstream stream);
  int (*recv)(void *to, size_t count, int type, int peer, nccl_comm comm, CUstream stream);
} nccl_functions;

typedef struct cuda_nccl {
  pthread_mutex_t lock;
  const char *wanted;
  int32_t tried;
  int32_t version; /* 22809 */
  nccl_functions call;
  bs_error why; /* why it is not available; repeated for later requests */
} cuda_nccl;

/* Once; any thread. BS_UNAVAILABLE with the reason and a hint. */
int32_t cuda_nccl_open(cuda_state *state, bs_error *err);
/* Fills err from a result of `what`, with the library's message. NCCL_SUCCESS, NCCL_IN_PROGRESS: BS_OK. */
int32_t cuda_nccl_check(const cuda_nccl *nccl, nccl_comm comm, int result, const char *what, bs_error *err);
#endif
