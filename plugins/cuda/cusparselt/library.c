/* SPDX-License-Identifier: MIT
 * library.c - finds and opens cuSPARSELt: the parameter cusparselt, then vendor/ next to the plugin's folder,
 * then the system's. The library stays in the process: it has loaded kernels into contexts. */
#include "library.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>

#include "choose.h"

enum { OLDEST = 700, NEWEST = 99999 }; /* of 0.x all have the enums of api.h; of 1.0 that is not known */

typedef struct symbol {
  const char *name;
  size_t offset;
  int optional; /* 0.7 lacks it */
} symbol;
#define AT(member) offsetof(cuda_splt_functions, member)
static const symbol symbols[] = {
    {"cusparseLtInit", AT(init), 0},
    {"cusparseLtDestroy", AT(destroy), 0},
    {"cusparseLtGetProperty", AT(property), 0},
    {"cusparseLtGetErrorName", AT(error_name), 1},
    {"cusparseLtGetErrorString", AT(error_string), 1},
    {"cusparseLtDenseDescriptorInit", AT(dense_init), 0},
    {"cusparseLtStructuredDescriptorInit", AT(structured_init), 0},
    {"cusparseLtMatDescriptorDestroy", AT(matrix_destroy), 0},
    {"cusparseLtMatmulDescriptorInit", AT(matmul_init), 0},
    {"cusparseLtMatmulDescSetAttribute", AT(matmul_set), 0},
    {"cusparseLtMatmulAlgSelectionInit", AT(algorithm_init), 0},
    {"cusparseLtMatmulAlgSelectionDestroy", AT(algorithm_destroy), 1},
    {"cusparseLtMatmulAlgSetAttribute", AT(algorithm_set), 0},
    {"cusparseLtMatmulAlgGetAttribute", AT(algorithm_get), 0},
    {"cusparseLtMatmulPlanInit", AT(plan_init), 0},
    {"cusparseLtMatmulPlanDestroy", AT(plan_destroy), 0},
    {"cusparseLtMatmulGetWorkspace", AT(workspace), 0},
    {"cusparseLtMatmul", AT(matmul), 0},
    {"cusparseLtSpMMACompressedSize2", AT(compressed_size), 0},
    {"cusparseLtSpMMACompress2", AT(compress), 0},
};
#undef AT
enum { N_SYMBOLS = sizeof symbols / sizeof symbols[0] };
_Static_assert(N_SYMBOLS * sizeof(void *) == sizeof(cuda_splt_functions), "a symbol for each function");

int32_t cuda_splt_new(cuda_state *state, const char *wanted, int tune, int zeros, bs_error *err) {
  cuda_splt *splt = state->host->alloc(state->host->ctx, sizeof *splt, 64);
  if (splt == NULL || pthread_mutex_init(&splt->lock, NULL) != 0) {
    if (splt != NULL) state->host->free(state->host->ctx, splt);
    return bs_fail(err, BS_NO_MEMORY, "BS-CUDA-MEMORY", "no memory for cuSPARSELt's table");
  }
  splt->state = state;
  splt->wanted = wanted;
  splt->tune = tune;
  splt->zeros = zeros;
  state->splt = splt;
  return BS_OK;
}

void cuda_splt_delete(cuda_state *state) {
  cuda_splt *splt = state->splt;
  if (splt == NULL) return;
  free(splt->choices);
  (void)pthread_mutex_destroy(&splt->lock);
  state->host->free(state->host->ctx, splt);
  state->splt = NULL;
}

/* ---- opening ---------------------------------------------------------------------------------- */

static const char file_name[] = "libcusparseLt.so.0";

/* vendor/ next to the folder of this plugin's own file; if it is built into a program, next to that program's
 * folder. */
static void beside_plugin(char *out_path, size_t size) {
  Dl_info info;
  out_path[0] = '\0';
  if (dladdr(&file_name, &info) == 0 || info.dli_fname == NULL) return;
  const char *slash = strrchr(info.dli_fname, '/');
  if (slash == NULL) return;
  const int n =
      snprintf(out_path, size, "%.*s/../vendor/%s", (int)(slash - info.dli_fname), info.dli_fname, file_name);
  if (n < 0 || (size_t)n >= size) out_path[0] = '\0';
}

static void *try_path(const char *path, cuda_splt *splt) {
  void *library = path[0] != '\0' ? dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE) : NULL;
  if (library != NULL || path[0] == '\0') return library;
  const char *why = dlerror();
  snprintf(splt->text, sizeof splt->text, "cuSPARSELt is not available: %.120s", why != NULL ? why : path);
  return NULL;
}

static void *find_library(cuda_splt *splt) {
  char path[PATH_MAX];
  if (strcmp(splt->wanted, "auto") != 0) return try_path(splt->wanted, splt);
  beside_plugin(path, sizeof path);
  void *library = try_path(path, splt);
  return library != NULL ? library : try_path(file_name, splt);
}

static int find_symbols(cuda_splt *splt, void *library) {
  for (size_t i = 0; i < N_SYMBOLS; i++) {
    void *at = dlsym(library, symbols[i].name);
    if (at == NULL && !symbols[i].optional) {
      snprintf(splt->text, sizeof splt->text, "cuSPARSELt is not used: it has no %s", symbols[i].name);
      return 0;
    }
    memcpy((char *)&splt->call + symbols[i].offset, &at, sizeof at);
  }
  return 1;
}

/* 0.8.1 is 801, 0.10.0 is 1000, 1.0.0 is 1000000, as its header counts. */
static int version_ok(cuda_splt *splt) {
  int v[3] = {0, 0, 0};
  for (int i = 0; i < 3; i++)
    if (splt->call.property(SPLT_MAJOR + i, &v[i]) != SPLT_SUCCESS) {
      snprintf(splt->text, sizeof splt->text, "cuSPARSELt is not used: it does not tell its version");
      return 0;
    }
  splt->version = v[0] * 1000000 + v[1] * 100 + v[2];
  if (splt->version >= OLDEST && splt->version <= NEWEST) {
    snprintf(splt->text, sizeof splt->text, "cuSPARSELt %d.%d.%d", v[0], v[1], v[2]);
    return 1;
  }
  snprintf(splt->text, sizeof splt->text,
           "cuSPARSELt %d.%d.%d is not used: 0.7 or newer, below 1.0, is needed", v[0], v[1], v[2]);
  return 0;
}

static void look(cuda_splt *splt) {
  cuda_state *state = splt->state;
  splt->reason = BS_REASON_DISABLED;
  if (strcmp(splt->wanted, "off") == 0) {
    snprintf(splt->text, sizeof splt->text, "cuSPARSELt is switched off (cusparselt=off)");
    return;
  }
  splt->reason = BS_REASON_LIB_VERSION;
  void *library = find_library(splt);
  if (library == NULL || !find_symbols(splt, library) || !version_ok(splt)) return;
  splt->capability = cuda_driver_capability(&state->driver, state->driver_path);
  splt->reason = BS_REASON_NONE;
  splt->usable = 1;
}

const cuda_splt *cuda_splt_open(cuda_state *state) {
  cuda_splt *splt = state->splt;
  pthread_mutex_lock(&splt->lock);
  if (!splt->looked) {
    look(splt);
    splt->looked = 1;
  }
  pthread_mutex_unlock(&splt->lock);
  return splt;
}

/* ---- statuses --------------------------------------------------------------------------------- */

#define WITHOUT "--set plugins.cuda.cusparselt=off does without it"
static const struct {
  int status;
  int32_t code;
  const char *id, *hint;
} meanings[] = {
    {SPLT_NOT_INITIALIZED, BS_UNAVAILABLE, "BS-CUDA-SPLT-UNAVAILABLE",
     "the library and the driver may not fit; " WITHOUT},
    {SPLT_ALLOC_FAILED, BS_NO_MEMORY, "BS-CUDA-SPLT-MEMORY",
     "nvidia-smi shows who holds the device's memory"},
    {SPLT_INSUFFICIENT_RESOURCES, BS_NO_MEMORY, "BS-CUDA-SPLT-MEMORY", WITHOUT},
    {SPLT_INVALID_VALUE, BS_INTERNAL, "BS-CUDA-SPLT-VALUE", WITHOUT "; please report the shape"},
    {SPLT_ARCH_MISMATCH, BS_UNAVAILABLE, "BS-CUDA-SPLT-ARCH",
     "this cuSPARSELt has no code for the device; --set plugins.cuda.cusparselt=PATH names another"},
    {SPLT_NOT_SUPPORTED, BS_UNSUPPORTED, "BS-CUDA-SPLT-UNSUPPORTED", WITHOUT},
    {SPLT_MATRIX_TYPE_NOT_SUPPORTED, BS_UNSUPPORTED, "BS-CUDA-SPLT-UNSUPPORTED", WITHOUT},
};
#undef WITHOUT

int32_t cuda_splt_check(const cuda_splt *splt, int status, const char *what, bs_error *err) {
  int32_t code = BS_RANK_FAILED;
  const char *id = "BS-CUDA-SPLT-FAILED";
  const char *hint = "the device's work may be lost; compute-sanitizer bsrun ... names the kernel";
  if (status == SPLT_SUCCESS) return BS_OK;
  for (size_t i = 0; i < sizeof meanings / sizeof meanings[0]; i++)
    if (meanings[i].status == status) {
      code = meanings[i].code;
      id = meanings[i].id;
      hint = meanings[i].hint;
    }
  const char *name = splt->call.error_name != NULL ? splt->call.error_name(status) : NULL;
  const char *text = splt->call.error_string != NULL ? splt->call.error_string(status) : NULL;
  (void)bs_fail(err, code, id, "%s: %s (%d): %s", what, name != NULL ? name : "an unknown status", status,
                text != NULL ? text : "cuSPARSELt has no words for it");
  if (err != NULL) {
    err->native_code = status;
    snprintf(err->domain, sizeof err->domain, "cusparselt");
  }
  (void)bs_fail_hint(err, "%s", hint);
  return code;
}

int cuda_splt_refuses(int status) {
  return status == SPLT_NOT_INITIALIZED || status == SPLT_INVALID_VALUE || status == SPLT_ARCH_MISMATCH ||
         status == SPLT_INTERNAL_ERROR || status == SPLT_MATRIX_TYPE_NOT_SUPPORTED ||
         status == SPLT_NOT_SUPPORTED || status == SPLT_INSUFFICIENT_RESOURCES;
}

int cuda_splt_refused(const bs_error *err) {
  return strcmp(err->domain, "cusparselt") == 0 && cuda_splt_refuses((int)err->native_code);
}

void cuda_splt_note(const bs_exec *exec, const bs_error *err) {
  char text[256];
  if (exec->note == NULL) return;
  snprintf(text, sizeof text, "matmul24@cuda/tiles (%.200s)", err->message);
  exec->note(exec->ctx, text);
}

/* ---- a device's handle ------------------------------------------------------------------------ */

int32_t cuda_splt_handle(cuda_device *device, const cuda_splt_opaque **out_handle, bs_error *err) {
  cuda_splt *splt = device->state->splt;
  const bs_host *host = device->state->host;
  int32_t rc = cuda_enter(device, err);
  if (rc != BS_OK) return rc;
  pthread_mutex_lock(&splt->lock);
  if (device->splt == NULL) {
    cuda_splt_opaque *handle = host->alloc(host->ctx, sizeof *handle, 64);
    if (handle == NULL)
      rc = bs_fail(err, BS_NO_MEMORY, "BS-CUDA-MEMORY", "no memory for cuSPARSELt's handle");
    else
      rc = cuda_splt_check(splt, splt->call.init(handle), "cusparseLtInit", err);
    if (rc == BS_OK)
      device->splt = handle;
    else if (handle != NULL)
      host->free(host->ctx, handle);
  }
  *out_handle = device->splt;
  pthread_mutex_unlock(&splt->lock);
  return rc;
}

void cuda_splt_close(cuda_device *device) {
  const bs_host *host = device->state->host;
  if (device->splt == NULL) return;
  (void)device->state->splt->call.destroy(device->splt);
  host->free(host->ctx, device->splt);
  device->splt = NULL;
}
