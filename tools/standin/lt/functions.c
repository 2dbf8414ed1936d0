/* SPDX-License-Identifier: MIT
 * functions.c - the functions of cuBLASLt that the plugin uses. */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lt.h"
#include "tools/standin/standin.h"

enum { STEPS = 16, FUNCTIONS = 32, HANDLE = 0x4c54 };

static lt_setup setup;
static struct step {
  char function[48];
  uint64_t at;
  int code;
} steps[STEPS];
static struct {
  char name[48];
  uint64_t calls;
} functions[FUNCTIONS];
static int n_steps, n_functions, is_read;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static lt_told told;

enum { HANG = -1 };

void lt_die(const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  fputs("cuBLASLt stand-in: ", stderr);
  vfprintf(stderr, fmt, ap);
  fputc('\n', stderr);
  va_end(ap);
  abort();
}

/* ---- BS_CUBLASLT_STANDIN ---------------------------------------------------------------------- */

static void read_step(char *text) {
  char *colon = strchr(text, ':'), *equals = colon != NULL ? strchr(colon, '=') : NULL;
  if (equals == NULL || n_steps == STEPS) lt_die("plan: '%s' is not FUNCTION:N=STATUS", text);
  *colon = *equals = '\0';
  struct step *s = &steps[n_steps++];
  snprintf(s->function, sizeof s->function, "%s", text);
  s->at = strtoull(colon + 1, NULL, 10);
  s->code = strcmp(equals + 1, "hang") == 0 ? HANG : (int)strtol(equals + 1, NULL, 10);
}

static void read_item(char *item) {
  char *equals = strchr(item, '='), *rest = NULL;
  if (equals == NULL) lt_die("BS_CUBLASLT_STANDIN: '%s' is not NAME=VALUE", item);
  *equals = '\0';
  char *value = equals + 1;
  const int64_t whole = strtoll(value, NULL, 10);
  int n = 0;
  if (strcmp(item, "version") == 0)
    setup.version = (int)whole;
  else if (strcmp(item, "plain") == 0)
    setup.plain = (int)whole;
  else if (strcmp(item, "algorithms") == 0)
    setup.algorithms = (int)whole;
  else if (strcmp(item, "workspace") == 0)
    setup.workspace = (uint64_t)whole;
  else if (strcmp(item, "least") == 0)
    setup.least = whole;
  else if (strcmp(item, "cost") == 0)
    for (char *s = strtok_r(value, ":", &rest); s != NULL && n < LT_COSTS; s = strtok_r(NULL, ":", &rest))
      setup.cost[n++] = strtod(s, NULL);
  else if (strcmp(item, "plan") == 0)
    for (char *s = strtok_r(value, ",", &rest); s != NULL; s = strtok_r(NULL, ",", &rest)) read_step(s);
  else
    lt_die("BS_CUBLASLT_STANDIN: '%s' is not known", item);
}

static void read_all(void) { /* under the lock */
  char text[1024];
  char *rest = NULL;
  if (is_read) return;
  is_read = 1;
  setup = (lt_setup){.version = 130000, .algorithms = 3, .workspace = 4096};
  n_steps = n_functions = 0;
  snprintf(text, sizeof text, "%s",
           getenv("BS_CUBLASLT_STANDIN") != NULL ? getenv("BS_CUBLASLT_STANDIN") : "");
  for (char *item = strtok_r(text, ";", &rest); item != NULL; item = strtok_r(NULL, ";", &rest))
    read_item(item);
}

const lt_setup *lt_get_setup(void) {
  pthread_mutex_lock(&lock);
  read_all();
  pthread_mutex_unlock(&lock);
  return &setup;
}

void cublaslt_standin_again(void) {
  pthread_mutex_lock(&lock);
  is_read = 0;
  pthread_mutex_unlock(&lock);
}

const lt_told *cublaslt_standin_told(void) {
  return &told;
}

cublasStatus_t lt_enter(const char *function) {
  int code = CUBLAS_STATUS_SUCCESS, at = 0;
  pthread_mutex_lock(&lock);
  read_all();
  while (at < n_functions && strcmp(functions[at].name, function) != 0) at++;
  if (at == FUNCTIONS) lt_die("too many functions");
  if (at == n_functions) {
    snprintf(functions[at].name, sizeof functions[at].name, "%s", function);
    functions[at].calls = 0;
    n_functions++;
  }
  functions[at].calls++;
  for (int i = 0; i < n_steps; i++)
    if (steps[i].at == functions[at].calls && strcmp(steps[i].function, function) == 0) code = steps[i].code;
  pthread_mutex_unlock(&lock);
  while (code == HANG) pause();
  return (cublasStatus_t)code;
}

/* ---- the library ------------------------------------------------------------------------------ */

size_t cublasLtGetVersion(void) {
  return (size_t)lt_get_setup()->version;
}

const char *cublasLtGetStatusName(cublasStatus_t status) {
  static const char *const names[] = {[CUBLAS_STATUS_SUCCESS] = "CUBLAS_STATUS_SUCCESS",
                                      [CUBLAS_STATUS_NOT_INITIALIZED] = "CUBLAS_STATUS_NOT_INITIALIZED",
                                      [CUBLAS_STATUS_ALLOC_FAILED] = "CUBLAS_STATUS_ALLOC_FAILED",
                                      [CUBLAS_STATUS_INVALID_VALUE] = "CUBLAS_STATUS_INVALID_VALUE",
                                      [CUBLAS_STATUS_ARCH_MISMATCH] = "CUBLAS_STATUS_ARCH_MISMATCH",
                                      [CUBLAS_STATUS_EXECUTION_FAILED] = "CUBLAS_STATUS_EXECUTION_FAILED",
                                      [CUBLAS_STATUS_INTERNAL_ERROR] = "CUBLAS_STATUS_INTERNAL_ERROR",
                                      [CUBLAS_STATUS_NOT_SUPPORTED] = "CUBLAS_STATUS_NOT_SUPPORTED"};
  return (size_t)status < sizeof names / sizeof names[0] ? names[status] : NULL;
}

const char *cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS ? "success" : "as the test has planned it";
}

/* The list of handles: one that a lost device never destroys is not reported as a leak. */
static struct cublasLtContext *handles;

static void keep(struct cublasLtContext *h) {
  pthread_mutex_lock(&lock);
  h->next = handles;
  handles = h;
  pthread_mutex_unlock(&lock);
}

static void forget(const struct cublasLtContext *h) {
  pthread_mutex_lock(&lock);
  struct cublasLtContext **at = &handles;
  while (*at != NULL && *at != h) at = &(*at)->next;
  if (*at != NULL) *at = h->next;
  pthread_mutex_unlock(&lock);
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *out_handle) {
  const cublasStatus_t rc = lt_enter("cublasLtCreate");
  if (rc != CUBLAS_STATUS_SUCCESS) return rc;
  CUcontext context = lt_get_setup()->plain ? NULL : si_current();
  if (context == NULL && !lt_get_setup()->plain) return CUBLAS_STATUS_NOT_INITIALIZED;
  struct cublasLtContext *h = calloc(1, sizeof *h);
  if (h == NULL) return CUBLAS_STATUS_ALLOC_FAILED;
  h->magic = HANDLE;
  h->context = context;
  keep(h);
  __atomic_add_fetch(&told.handles, 1, __ATOMIC_RELAXED);
  *out_handle = h;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  if (handle == NULL || handle->magic != HANDLE) lt_die("the end of a handle that is none");
  handle->magic = 0;
  forget(handle);
  free(handle);
  __atomic_sub_fetch(&told.handles, 1, __ATOMIC_RELAXED);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, size_t size,
                                                 cudaDataType type, uint64_t rows, uint64_t cols,
                                                 int64_t ld) {
  const cublasStatus_t rc = lt_enter("cublasLtMatrixLayoutInit");
  const lt_layout l = {LT_LAYOUT, (uint64_t)type, rows, cols, ld};
  if (rc != CUBLAS_STATUS_SUCCESS) return rc;
  if (size < sizeof l || sizeof l > sizeof *layout) return CUBLAS_STATUS_ALLOC_FAILED;
  memset(layout, 0xA5, sizeof *layout);
  memcpy(layout, &l, sizeof l);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t desc, size_t size,
                                               cublasComputeType_t compute, cudaDataType_t scale) {
  const cublasStatus_t rc = lt_enter("cublasLtMatmulDescInit");
  const lt_desc d = {LT_DESC,
                     (int32_t)compute,
                     (int32_t)scale,
                     CUBLAS_OP_N,
                     CUBLAS_OP_N,
                     CUBLASLT_POINTER_MODE_HOST,
                     -1,
                     CUBLASLT_EPILOGUE_DEFAULT,
                     NULL};
  if (rc != CUBLAS_STATUS_SUCCESS) return rc;
  if (size < sizeof d) return CUBLAS_STATUS_ALLOC_FAILED;
  memset(desc, 0xA5, size);
  memcpy(desc, &d, sizeof d);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute, const void *value,
                                              size_t bytes) {
  const cublasStatus_t rc = lt_enter("cublasLtMatmulDescSetAttribute");
  lt_desc d;
  memcpy(&d, desc, sizeof d);
  if (rc != CUBLAS_STATUS_SUCCESS) return rc;
  if (d.magic != LT_DESC) lt_die("a descriptor that was not made");
  void *to = attribute == CUBLASLT_MATMUL_DESC_TRANSA           ? (void *)&d.turn_a
             : attribute == CUBLASLT_MATMUL_DESC_TRANSB         ? (void *)&d.turn_b
             : attribute == CUBLASLT_MATMUL_DESC_POINTER_MODE   ? (void *)&d.mode
             : attribute == CUBLASLT_MATMUL_DESC_EPILOGUE       ? (void *)&d.epilogue
             : attribute == CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE ? (void *)&d.bias_type
             : attribute == CUBLASLT_MATMUL_DESC_BIAS_POINTER   ? (void *)&d.bias
                                                                : NULL;
  if (to == NULL) lt_die("attribute %d of a descriptor is not known here", (int)attribute);
  if (value == NULL || bytes != (to == (void *)&d.bias ? sizeof d.bias : sizeof d.turn_a))
    return CUBLAS_STATUS_INVALID_VALUE;
  memcpy(to, value, bytes);
  memcpy(desc, &d, sizeof d);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference, size_t size) {
  const cublasStatus_t rc = lt_enter("cublasLtMatmulPreferenceInit");
  const lt_preference p = {
      LT_PREFERENCE, CUBLASLT_REDUCTION_SCHEME_MASK, 0, UINT64_MAX, {256, 256, 256, 256}};
  if (rc != CUBLAS_STATUS_SUCCESS) return rc;
  if (size < sizeof p) return CUBLAS_STATUS_ALLOC_FAILED;
  memcpy(preference, &p, sizeof p);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t bytes) {
  const cublasStatus_t rc = lt_enter("cublasLtMatmulPreferenceSetAttribute");
  lt_preference p;
  memcpy(&p, preference, sizeof p);
  if (rc != CUBLAS_STATUS_SUCCESS) return rc;
  if (p.magic != LT_PREFERENCE) lt_die("a preference that was not made");
  const int place = (int)attribute - (int)CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
  void *to = attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES     ? (void *)&p.workspace
             : attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK ? (void *)&p.schemes
             : attribute == CUBLASLT_MATMUL_PREF_IMPL_MASK             ? (void *)&p.ways
             : place >= 0 && place < 4                                 ? (void *)&p.align[place]
                                                                       : NULL;
  if (to == NULL) lt_die("attribute %d of a preference is not known here", (int)attribute);
  const int wide = to == (void *)&p.workspace || to == (void *)&p.ways;
  if (value == NULL || bytes != (wide ? 8u : 4u)) return CUBLAS_STATUS_INVALID_VALUE;
  memcpy(to, value, bytes);
  memcpy(preference, &p, sizeof p);
  return CUBLAS_STATUS_SUCCESS;
}

/* ---- algorithms ------------------------------------------------------------------------------- */

static uint64_t check_of(const lt_algo *a) {
  return (a->id * 31 + a->workspace) * 31 + a->of + a->align;
}

static void taken(const void *from, void *to, size_t bytes) {
  memcpy(to, from, bytes);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t op,
                                              cublasLtMatrixLayout_t la, cublasLtMatrixLayout_t lb,
                                              cublasLtMatrixLayout_t lc, cublasLtMatrixLayout_t ld,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int *out_count) {
  cublasStatus_t rc = lt_enter("cublasLtMatmulAlgoGetHeuristic");
  lt_desc desc;
  lt_layout a, b, c, d;
  lt_preference p;
  taken(op, &desc, sizeof desc);
  taken(la, &a, sizeof a);
  taken(lb, &b, sizeof b);
  taken(lc, &c, sizeof c);
  taken(ld, &d, sizeof d);
  taken(preference, &p, sizeof p);
  if (rc != CUBLAS_STATUS_SUCCESS) return rc;
  if (handle == NULL || handle->magic != HANDLE) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (wanted <= 0 || p.magic != LT_PREFERENCE) return CUBLAS_STATUS_INVALID_VALUE;
  rc = lt_legal(&desc, &a, &b, &c, &d);
  if (rc != CUBLAS_STATUS_SUCCESS) return rc;
  told.heuristics++;
  told.schemes = p.schemes;
  told.ways = p.ways;
  uint32_t align = 16;
  for (int i = 0; i < 4; i++) align = p.align[i] < align ? p.align[i] : align;
  *out_count = 0;
  for (int i = 0; i < setup.algorithms && *out_count < wanted; i++) {
    lt_algo algo = {
        LT_ALGO, (uint64_t)i + 1, i == 0 ? 0 : setup.workspace, lt_signature(&desc, &a, &b, &d), align, 0};
    algo.check = check_of(&algo);
    if (algo.workspace > p.workspace) continue;
    cublasLtMatmulHeuristicResult_t *r = &results[(*out_count)++];
    memset(r, 0, sizeof *r);
    memcpy(&r->algo, &algo, sizeof algo);
    r->workspaceSize = algo.workspace;
    r->state = CUBLAS_STATUS_SUCCESS;
  }
  return *out_count > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                    void *value, size_t bytes, size_t *out_written) {
  const cublasStatus_t rc = lt_enter("cublasLtMatmulAlgoConfigGetAttribute");
  lt_algo a;
  taken(algo, &a, sizeof a);
  if (rc != CUBLAS_STATUS_SUCCESS) return rc;
  if (a.magic != LT_ALGO || attribute != CUBLASLT_ALGO_CONFIG_ID || bytes != sizeof(int32_t))
    return CUBLAS_STATUS_INVALID_VALUE;
  const int32_t id = (int32_t)a.id;
  memcpy(value, &id, sizeof id);
  *out_written = sizeof id;
  return CUBLAS_STATUS_SUCCESS;
}

/* ---- the product ------------------------------------------------------------------------------ */

static void *place(const void *pointer, uint64_t bytes) {
  if (pointer == NULL || setup.plain) return (void *)(uintptr_t)pointer;
  return si_host((CUdeviceptr)(uintptr_t)pointer, bytes, "cublasLtMatmul");
}

static void run(void *arg, int lost) {
  lt_product *p = arg;
  if (!lost) {
    const uint64_t bias = (uint64_t)(p->desc.bias_type >= 0 ? p->desc.bias_type : (int32_t)p->d.type);
    const uint64_t scale = lt_bytes((uint64_t)p->desc.scale);
    p->pa = place(p->pa, lt_span(&p->a));
    p->pb = place(p->pb, lt_span(&p->b));
    p->pd = place(p->pd, lt_span(&p->d));
    p->pc = place(p->pc, lt_span(&p->c));
    p->alpha = place(p->alpha, scale);
    p->beta = place(p->beta, scale);
    if (p->desc.epilogue & CUBLASLT_EPILOGUE_BIAS)
      p->desc.bias = place(p->desc.bias, p->d.rows * lt_bytes(bias));
    p->workspace = place(p->workspace, p->workspace_bytes);
    if (p->workspace != NULL) memset(p->workspace, 0x5A, p->workspace_bytes); /* it is the library's */
    if (p->cost > 0 && !setup.plain) usleep((useconds_t)(p->cost * 1000));
    lt_compute(p);
  }
  free(p);
}

static int off(const void *pointer, uint64_t align) {
  return (uintptr_t)pointer % align != 0;
}

static double host_scalar(const void *pointer, int32_t type) {
  float f;
  double v;
  int32_t i;
  memcpy(&f, pointer, sizeof f);
  if (type == CUDA_R_32F) return (double)f;
  memcpy(&i, pointer, sizeof i);
  if (type == CUDA_R_32I) return i;
  memcpy(&v, pointer, sizeof v);
  return v;
}

static cublasStatus_t queue(lt_product *p, CUstream stream) {
  if (setup.plain) {
    if (stream != NULL) lt_die("a stream over plain memory");
    run(p, 0);
    return CUBLAS_STATUS_SUCCESS;
  }
  if (si_queue_copied("cublasLtMatmul", stream, run, p, sizeof *p) == CUDA_SUCCESS)
    return CUBLAS_STATUS_SUCCESS;
  free(p);
  return CUBLAS_STATUS_EXECUTION_FAILED;
}

static cublasStatus_t check(const lt_product *p, const lt_algo *a) {
  const uint64_t align = a->align;
  const cublasStatus_t rc = lt_legal(&p->desc, &p->a, &p->b, &p->c, &p->d);
  if (rc != CUBLAS_STATUS_SUCCESS) return rc;
  if (a->magic != LT_ALGO || a->check != check_of(a)) lt_die("an algorithm that the heuristics did not name");
  if (a->of != lt_signature(&p->desc, &p->a, &p->b, &p->d) || a->workspace > p->workspace_bytes)
    return CUBLAS_STATUS_INVALID_VALUE;
  if ((int64_t)p->d.cols < setup.least) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (p->pa == NULL || p->pb == NULL || p->pd == NULL || p->pc == NULL) return CUBLAS_STATUS_INVALID_VALUE;
  if (off(p->pa, align) || off(p->pb, align) || off(p->pc, align) || off(p->pd, align) ||
      off(p->workspace, 16))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (p->desc.epilogue & CUBLASLT_EPILOGUE_BIAS && p->desc.bias == NULL) return CUBLAS_STATUS_INVALID_VALUE;
  if (p->pc == p->pd && p->c.ld != p->d.ld) return CUBLAS_STATUS_INVALID_VALUE;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t op, const void *alpha,
                              const void *A, cublasLtMatrixLayout_t la, const void *B,
                              cublasLtMatrixLayout_t lb, const void *beta, const void *C,
                              cublasLtMatrixLayout_t lc, void *D, cublasLtMatrixLayout_t ld,
                              const cublasLtMatmulAlgo_t *algo, void *workspace, size_t workspace_bytes,
                              cudaStream_t stream) {
  cublasStatus_t rc = lt_enter("cublasLtMatmul");
  lt_algo a;
  if (rc != CUBLAS_STATUS_SUCCESS) return rc;
  if (handle == NULL || handle->magic != HANDLE || (!setup.plain && handle->context != si_current()))
    return CUBLAS_STATUS_NOT_INITIALIZED;
  if (algo == NULL) lt_die("no algorithm: the library would ask its heuristics at every product");
  lt_product *p = calloc(1, sizeof *p);
  if (p == NULL) lt_die("no memory");
  taken(op, &p->desc, sizeof p->desc);
  taken(la, &p->a, sizeof p->a);
  taken(lb, &p->b, sizeof p->b);
  taken(lc, &p->c, sizeof p->c);
  taken(ld, &p->d, sizeof p->d);
  taken(algo, &a, sizeof a);
  p->pa = A;
  p->pb = B;
  p->pc = C;
  p->pd = D;
  p->workspace = workspace;
  p->workspace_bytes = workspace_bytes;
  rc = check(p, &a);
  if (rc != CUBLAS_STATUS_SUCCESS) {
    free(p);
    return rc;
  }
  if (p->desc.mode == CUBLASLT_POINTER_MODE_DEVICE) {
    p->alpha = alpha;
    p->beta = beta;
  } else {
    p->scalars[0] = host_scalar(alpha, p->desc.scale);
    p->scalars[1] = host_scalar(beta, p->desc.scale);
  }
  p->cost = a.id <= LT_COSTS ? setup.cost[a.id - 1] : 0;
  pthread_mutex_lock(&lock);
  told.products++;
  told.last_algorithm = a.id;
  told.last_workspace = workspace_bytes;
  told.last_adds = p->scalars[1] != 0.0 || p->beta != NULL;
  told.clock += p->cost;
  pthread_mutex_unlock(&lock);
  return queue(p, stream);
}
