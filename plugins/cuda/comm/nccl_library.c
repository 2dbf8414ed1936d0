/* SPDX-License-Identifier: MIT
 * nccl_library.c - opens NCCL, and tells its errors. The library stays in the process: it has threads of its
 * own. */
#include <dlfcn.h>

#include "comm.h"
#include "nccl.h"

typedef struct symbol {
  const char *name;
  size_t offset;
} symbol;
#define AT(member) offsetof(nccl_functions, member)
static const symbol symbols[] = {
    {"ncclGetVersion", AT(version)},
    {"ncclGetUniqueId", AT(unique_id)},
    {"ncclCommInitRankConfig", AT(init)},
    {"ncclCommDestroy", AT(destroy)},
    {"ncclCommGetAsyncError", AT(async_error)},
    {"ncclGetErrorString", AT(error_string)},
    {"ncclGetLastError", AT(last_error)},
    {"ncclGroupStart", AT(group_start)},
    {"ncclGroupEnd", AT(group_end)},
    {"ncclBroadcast", AT(broadcast)},
    {"ncclSend", AT(send)},
    {"ncclRecv", AT(recv)},
};
#undef AT
enum { N_SYMBOLS = sizeof symbols / sizeof symbols[0] };
_Static_assert(N_SYMBOLS * sizeof(void *) == sizeof(nccl_functions), "a symbol for each function");

int32_t cuda_nccl_new(cuda_state *state, const char *wanted, bs_error *err) {
  cuda_nccl *nccl = state->host->alloc(state->host->ctx, sizeof *nccl, 64);
  if (nccl == NULL || pthread_mutex_init(&nccl->lock, NULL) != 0) {
    state->host->free(state->host->ctx, nccl);
    return bs_fail(err, BS_NO_MEMORY, "BS-CUDA-MEMORY", "no memory for NCCL's table");
  }
  nccl->wanted = wanted;
  state->nccl = nccl;
  return BS_OK;
}

void cuda_nccl_delete(cuda_state *state) {
  cuda_nccl *nccl = state->nccl;
  if (nccl == NULL) return;
  (void)pthread_mutex_destroy(&nccl->lock);
  state->host->free(state->host->ctx, nccl);
  state->nccl = NULL;
}

static int32_t unavailable(cuda_nccl *nccl, const char *text, const char *hint) {
  (void)bs_fail(&nccl->why, BS_UNAVAILABLE, "BS-CUDA-NCCL", "%s", text);
  return bs_fail_hint(&nccl->why, "%s", hint);
}

static int32_t find_functions(cuda_nccl *nccl, void *library, const char *path) {
  char text[200];
  for (size_t i = 0; i < N_SYMBOLS; i++) {
    void *at = dlsym(library, symbols[i].name);
    if (at == NULL) {
      snprintf(text, sizeof text, "%.100s has no %s", path, symbols[i].name);
      return unavailable(nccl, text, "NCCL 2.23.4 or later is needed");
    }
    memcpy((char *)&nccl->call + symbols[i].offset, &at, sizeof at);
  }
  int version = 0;
  const int result = nccl->call.version(&version);
  if (result == NCCL_SUCCESS && version >= NCCL_OLDEST) {
    nccl->version = version;
    return BS_OK;
  }
  snprintf(text, sizeof text, "%.100s is NCCL %d.%d.%d", path, version / 10000, version / 100 % 100,
           version % 100);
  return unavailable(nccl, text, "2.23.4 or later is needed");
}

static int32_t open_library(cuda_nccl *nccl) {
  const char *path = strcmp(nccl->wanted, "auto") == 0 ? "libnccl.so.2" : nccl->wanted;
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  char text[256];
  if (library != NULL) return find_functions(nccl, library, path);
  const char *why = dlerror();
  snprintf(text, sizeof text, "NCCL cannot be opened: %.200s", why != NULL ? why : path);
  return unavailable(nccl, text, "install NCCL 2.23.4 or later, or name it: --set plugins.cuda.nccl=PATH");
}

int32_t cuda_nccl_open(cuda_state *state, bs_error *err) {
  cuda_nccl *nccl = state->nccl;
  pthread_mutex_lock(&nccl->lock);
  if (!nccl->tried) {
    nccl->why = (bs_error){.struct_size = (uint32_t)sizeof nccl->why};
    (void)open_library(nccl);
    nccl->tried = 1;
  }
  pthread_mutex_unlock(&nccl->lock);
  if (nccl->why.code != BS_OK && err != NULL) *err = nccl->why;
  return nccl->why.code;
}

int32_t cuda_nccl_check(const cuda_nccl *nccl, nccl_comm comm, int result, const char *what, bs_error *err) {
  if (result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS) return BS_OK;
  const char *text = nccl->call.error_string(result), *last = nccl->call.last_error(comm);
  bs_fail(err, BS_RANK_FAILED, "BS-CUDA-NCCL", "%s: %d (%.80s)%s%.160s", what, result,
          text != NULL ? text : "unknown", last != NULL && last[0] != '\0' ? ": " : "",
          last != NULL ? last : "");
  if (result == NCCL_INVALID_USAGE && strstr(what, "Init") != NULL)
    return bs_fail_hint(err,
                        "one rank a GPU, unless NCCL is 2.30 or later and NCCL_MULTI_RANK_GPU_ENABLE=1; else "
                        "devlocal serves ranks that share one");
  return bs_fail_hint(err, "NCCL_DEBUG=WARN in the environment makes NCCL say more");
}
