/* SPDX-License-Identifier: MIT
 * library.c - finds and opens cuBLASLt: the parameter cublaslt, then vendor/ next to the plugin's folder,
 * then the system's. The library stays in the process: it has loaded kernels into contexts. */
#include "library.h"

#include <dlfcn.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>

#include "choose.h"

enum { OLDEST = 120000 };

typedef struct symbol {
  const char *name;
  size_t offset;
} symbol;
#define AT(member) offsetof(cuda_lt_functions, member)
static const symbol symbols[] = {
    {"cublasLtCreate", AT(create)},
    {"cublasLtDestroy", AT(destroy)},
    {"cublasLtGetVersion", AT(version)},
    {"cublasLtGetStatusName", AT(status_name)},
    {"cublasLtGetStatusString", AT(status_string)},
    {"cublasLtMatmul", AT(matmul)},
    {"cublasLtMatrixLayoutInit_internal", AT(layout_init)},
    {"cublasLtMatmulDescInit_internal", AT(desc_init)},
    {"cublasLtMatmulDescSetAttribute", AT(desc_set)},
    {"cublasLtMatmulPreferenceInit_internal", AT(preference_init)},
    {"cublasLtMatmulPreferenceSetAttribute", AT(preference_set)},
    {"cublasLtMatmulAlgoGetHeuristic", AT(heuristic)},
    {"cublasLtMatmulAlgoConfigGetAttribute", AT(config_get)},
};
#undef AT
enum { N_SYMBOLS = sizeof symbols / sizeof symbols[0] };
_Static_assert(N_SYMBOLS * sizeof(void *) == sizeof(cuda_lt_functions), "a symbol for each function");

int32_t cuda_lt_new(cuda_state *state, const char *wanted, int tune, bs_error *err) {
  cuda_lt *lt = state->host->alloc(state->host->ctx, sizeof *lt, 64);
  if (lt == NULL || pthread_mutex_init(&lt->lock, NULL) != 0) {
    if (lt != NULL) state->host->free(state->host->ctx, lt);
    return bs_fail(err, BS_NO_MEMORY, "BS-CUDA-MEMORY", "no memory for cuBLASLt's table");
  }
  lt->state = state;
  lt->wanted = wanted;
  lt->tune = tune;
  state->lt = lt;
  return BS_OK;
}

void cuda_lt_delete(cuda_state *state) {
  cuda_lt *lt = state->lt;
  if (lt == NULL) return;
  free(lt->choices);
  (void)pthread_mutex_destroy(&lt->lock);
  state->host->free(state->host->ctx, lt);
  state->lt = NULL;
}

/* ---- opening ---------------------------------------------------------------------------------- */

/* vendor/NAME next to the folder of this plugin's own file; if it is built into a program, next to that
 * program's folder. */
static void beside_plugin(const char *name, char *out_path, size_t size) {
  static const char anchor = 0;
  Dl_info info;
  out_path[0] = '\0';
  if (dladdr(&anchor, &info) == 0 || info.dli_fname == NULL) return;
  const char *slash = strrchr(info.dli_fname, '/');
  if (slash == NULL) return;
  const int n =
      snprintf(out_path, size, "%.*s/../vendor/%s", (int)(slash - info.dli_fname), info.dli_fname, name);
  if (n < 0 || (size_t)n >= size) out_path[0] = '\0';
}

static void *try_path(const char *path, cuda_lt *lt) {
  void *library = path[0] != '\0' ? dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE) : NULL;
  if (library != NULL || path[0] == '\0') return library;
  const char *why = dlerror();
  snprintf(lt->text, sizeof lt->text, "cuBLASLt is not available: %.120s", why != NULL ? why : path);
  return NULL;
}

/* Opens the newest CUDA major version that the driver supports: a driver starts no later major than its own
 * (NVIDIA's minor version compatibility). */
static void *find_library(cuda_lt *lt) {
  static const struct {
    const char *name;
    int major;
  } of[] = {{"libcublasLt.so.13", 13}, {"libcublasLt.so.12", 12}};
  enum { N = sizeof of / sizeof of[0] };
  const int driver = lt->state->driver.version / 1000;
  char path[PATH_MAX];
  if (strcmp(lt->wanted, "auto") != 0) return try_path(lt->wanted, lt);
  void *library = NULL;
  for (size_t i = 0; library == NULL && i < 2 * N; i++) {
    if (driver != 0 && driver < of[i % N].major) continue;
    if (i < N) beside_plugin(of[i].name, path, sizeof path);
    library = try_path(i < N ? path : of[i % N].name, lt);
  }
  if (library == NULL && driver != 0 && driver < of[0].major)
    snprintf(lt->text, sizeof lt->text, "no cuBLASLt for a driver of CUDA %d; CUDA 13's needs one of 13",
             driver);
  return library;
}

static void look(cuda_lt *lt) {
  lt->reason = BS_REASON_DISABLED;
  if (strcmp(lt->wanted, "off") == 0) {
    snprintf(lt->text, sizeof lt->text, "cuBLASLt is switched off (cublaslt=off)");
    return;
  }
  lt->reason = BS_REASON_LIB_VERSION;
  lt->capability = cuda_driver_capability(&lt->state->driver, lt->state->driver_path); /* opens the driver */
  void *library = find_library(lt);
  if (library == NULL) return;
  for (size_t i = 0; i < N_SYMBOLS; i++) {
    void *at = dlsym(library, symbols[i].name);
    if (at == NULL) {
      snprintf(lt->text, sizeof lt->text, "cuBLASLt is not used: it has no %s", symbols[i].name);
      return;
    }
    memcpy((char *)&lt->call + symbols[i].offset, &at, sizeof at);
  }
  lt->version = (int32_t)lt->call.version();
  if (lt->version < OLDEST) {
    snprintf(lt->text, sizeof lt->text, "cuBLASLt %d is not used: %d or newer is needed", lt->version,
             OLDEST);
    return;
  }
  lt->reason = BS_REASON_NONE;
  lt->usable = 1;
  snprintf(lt->text, sizeof lt->text, "cuBLASLt %d.%d.%d", lt->version / 10000, lt->version % 10000 / 100,
           lt->version % 100);
}

const cuda_lt *cuda_lt_open(cuda_state *state) {
  cuda_lt *lt = state->lt;
  pthread_mutex_lock(&lt->lock);
  if (!lt->looked) {
    look(lt);
    lt->looked = 1;
  }
  pthread_mutex_unlock(&lt->lock);
  return lt;
}

int32_t cuda_lt_capability(const cuda_state *state) {
  return state->lt->capability;
}

/* ---- statuses --------------------------------------------------------------------------------- */

static const struct {
  cublasStatus_t status;
  int32_t code;
  const char *id, *hint;
} meanings[] = {
    {CUBLAS_STATUS_NOT_INITIALIZED, BS_UNAVAILABLE, "BS-CUDA-LT-UNAVAILABLE",
     "the library and the driver may not fit; --set plugins.cuda.cublaslt=off does without it"},
    {CUBLAS_STATUS_ALLOC_FAILED, BS_NO_MEMORY, "BS-CUDA-LT-MEMORY",
     "nvidia-smi shows who holds the device's memory"},
    {CUBLAS_STATUS_INVALID_VALUE, BS_INTERNAL, "BS-CUDA-LT-VALUE",
     "--set plugins.cuda.cublaslt=off does without it; please report the shape"},
    {CUBLAS_STATUS_ARCH_MISMATCH, BS_UNAVAILABLE, "BS-CUDA-LT-ARCH",
     "this cuBLASLt has no code for the device; --set plugins.cuda.cublaslt=PATH names another"},
    {CUBLAS_STATUS_NOT_SUPPORTED, BS_UNSUPPORTED, "BS-CUDA-LT-UNSUPPORTED",
     "--set plugins.cuda.cublaslt=off does without it"},
    {CUBLAS_STATUS_LICENSE_ERROR, BS_UNAVAILABLE, "BS-CUDA-LT-UNAVAILABLE",
     "--set plugins.cuda.cublaslt=off does without it"},
};

int32_t cuda_lt_check(const cuda_lt *lt, cublasStatus_t status, const char *what, bs_error *err) {
  int32_t code = BS_RANK_FAILED;
  const char *id = "BS-CUDA-LT-FAILED";
  const char *hint = "the device's work may be lost; compute-sanitizer bsrun ... names the kernel";
  if (status == CUBLAS_STATUS_SUCCESS) return BS_OK;
  for (size_t i = 0; i < sizeof meanings / sizeof meanings[0]; i++)
    if (meanings[i].status == status) {
      code = meanings[i].code;
      id = meanings[i].id;
      hint = meanings[i].hint;
    }
  const char *name = lt->call.status_name(status), *text = lt->call.status_string(status);
  (void)bs_fail(err, code, id, "%s: %s (%d): %s", what, name != NULL ? name : "an unknown status",
                (int)status, text != NULL ? text : "cuBLASLt has no words for it");
  if (err != NULL) {
    err->native_code = (int64_t)status;
    snprintf(err->domain, sizeof err->domain, "cublaslt");
  }
  (void)bs_fail_hint(err, "%s", hint);
  return code;
}

/* ---- a device's handle ------------------------------------------------------------------------ */

int32_t cuda_lt_handle(cuda_device *device, cublasLtHandle_t *out_handle, bs_error *err) {
  cuda_lt *lt = device->state->lt;
  int32_t rc = cuda_enter(device, err);
  if (rc != BS_OK) return rc;
  pthread_mutex_lock(&lt->lock);
  if (device->lt == NULL) {
    cublasLtHandle_t handle = NULL;
    rc = cuda_lt_check(lt, lt->call.create(&handle), "cublasLtCreate", err);
    if (rc == BS_OK) device->lt = handle;
  }
  *out_handle = device->lt;
  pthread_mutex_unlock(&lt->lock);
  return rc;
}

void cuda_lt_close(cuda_device *device) {
  if (device->lt == NULL) return;
  (void)device->state->lt->call.destroy(device->lt);
  device->lt = NULL;
}
