/* SPDX-License-Identifier: MIT
 * library.c - finds and opens cuDNN: the parameter cudnn, else libcudnn.so.9 as the system finds it. The
 * library stays in the process: it has loaded kernels into contexts. */
#include "library.h"

#include <dlfcn.h>

enum { OLDEST = 91301, NEWEST = 99999 }; /* the one-descriptor attention came with 9.13.1 */

typedef struct symbol {
  const char *name;
  size_t offset;
} symbol;
#define AT(member) offsetof(cuda_dnn_functions, member)
static const symbol symbols[] = {
    {"cudnnGetVersion", AT(version)},
    {"cudnnGetErrorString", AT(error_string)},
    {"cudnnCreate", AT(create)},
    {"cudnnDestroy", AT(destroy)},
    {"cudnnSetStream", AT(set_stream)},
    {"cudnnBackendCreateDescriptor", AT(descriptor_create)},
    {"cudnnBackendDestroyDescriptor", AT(descriptor_destroy)},
    {"cudnnBackendSetAttribute", AT(set)},
    {"cudnnBackendGetAttribute", AT(get)},
    {"cudnnBackendFinalize", AT(finalize)},
    {"cudnnBackendExecute", AT(execute)},
};
#undef AT
enum { N_SYMBOLS = sizeof symbols / sizeof symbols[0] };
_Static_assert(N_SYMBOLS * sizeof(void *) == sizeof(cuda_dnn_functions), "a symbol for each function");

int32_t cuda_dnn_new(cuda_state *state, const char *wanted, bs_error *err) {
  cuda_dnn *dnn = state->host->alloc(state->host->ctx, sizeof *dnn, 64);
  if (dnn == NULL || pthread_mutex_init(&dnn->lock, NULL) != 0) {
    if (dnn != NULL) state->host->free(state->host->ctx, dnn);
    return bs_fail(err, BS_NO_MEMORY, "BS-CUDA-MEMORY", "no memory for cuDNN's table");
  }
  dnn->state = state;
  dnn->wanted = wanted;
  state->dnn = dnn;
  return BS_OK;
}

void cuda_dnn_delete(cuda_state *state) {
  cuda_dnn *dnn = state->dnn;
  if (dnn == NULL) return;
  (void)pthread_mutex_destroy(&dnn->lock);
  state->host->free(state->host->ctx, dnn);
  state->dnn = NULL;
}

static int find_symbols(cuda_dnn *dnn, void *library) {
  for (size_t i = 0; i < N_SYMBOLS; i++) {
    void *at = dlsym(library, symbols[i].name);
    if (at == NULL) {
      snprintf(dnn->text, sizeof dnn->text, "cuDNN is not used: it has no %s", symbols[i].name);
      return 0;
    }
    memcpy((char *)&dnn->call + symbols[i].offset, &at, sizeof at);
  }
  return 1;
}

static void look(cuda_dnn *dnn) {
  dnn->reason = BS_REASON_DISABLED;
  if (strcmp(dnn->wanted, "off") == 0) {
    snprintf(dnn->text, sizeof dnn->text, "cuDNN is switched off (cudnn=off)");
    return;
  }
  dnn->reason = BS_REASON_LIB_VERSION;
  const char *path = strcmp(dnn->wanted, "auto") == 0 ? "libcudnn.so.9" : dnn->wanted;
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == NULL) {
    const char *why = dlerror();
    snprintf(dnn->text, sizeof dnn->text, "cuDNN is not available: %.120s", why != NULL ? why : path);
    return;
  }
  if (!find_symbols(dnn, library)) return;
  dnn->version = (int64_t)dnn->call.version();
  const int v[3] = {(int)(dnn->version / 10000), (int)(dnn->version / 100 % 100), (int)(dnn->version % 100)};
  dnn->usable = dnn->version >= OLDEST && dnn->version <= NEWEST;
  if (dnn->usable) dnn->reason = BS_REASON_NONE;
  snprintf(dnn->text, sizeof dnn->text, "cuDNN %d.%d.%d%s", v[0], v[1], v[2],
           dnn->usable ? "" : " is not used: 9.13.1 or newer, below 10, is needed");
}

const cuda_dnn *cuda_dnn_open(cuda_state *state) {
  cuda_dnn *dnn = state->dnn;
  pthread_mutex_lock(&dnn->lock);
  if (!dnn->looked) {
    look(dnn);
    dnn->looked = 1;
  }
  pthread_mutex_unlock(&dnn->lock);
  return dnn;
}

int32_t cuda_dnn_check(const cuda_dnn *dnn, int status, const char *what, bs_error *err) {
  if (status == DNN_SUCCESS) return BS_OK;
  /* 1000 to 1999: the library is incomplete; 2000: the call was wrong; 3000: it does not support this; 4000:
   * it failed before the device had work, for example without its run-time compiler. */
  const int32_t code = status < DNN_EXECUTION_FAILED ? BS_UNSUPPORTED : BS_RANK_FAILED;
  const char *text = dnn->call.error_string(status);
  (void)bs_fail(err, code, code == BS_UNSUPPORTED ? "BS-CUDA-DNN-UNSUPPORTED" : "BS-CUDA-DNN-FAILED",
                "%s: %s (%d)", what, text != NULL ? text : "cuDNN has no words for it", status);
  if (err != NULL) {
    err->native_code = status;
    snprintf(err->domain, sizeof err->domain, "cudnn");
  }
  (void)bs_fail_hint(err, "--set plugins.cuda.cudnn=off does without it");
  return code;
}

int32_t cuda_dnn_handle(cuda_device *device, void **out_handle, bs_error *err) {
  const cuda_dnn *dnn = device->state->dnn;
  int32_t rc = cuda_enter(device, err);
  if (rc == BS_OK && device->dnn == NULL)
    rc = cuda_dnn_check(dnn, dnn->call.create(&device->dnn), "cudnnCreate", err);
  *out_handle = device->dnn;
  return rc;
}

void cuda_dnn_close(cuda_device *device) {
  if (device->dnn == NULL) return;
  (void)device->state->dnn->call.destroy(device->dnn);
  device->dnn = NULL;
}
