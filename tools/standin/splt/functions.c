/* SPDX-License-Identifier: MIT
 * functions.c - the functions of cuSPARSELt that the plugin uses. */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "splt.h"
#include "tools/standin/standin.h"

enum { STEPS = 16, FUNCTIONS = 32, HANG = -1 };

static splt_setup setup;
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
static uint64_t serial;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static splt_told told;

void splt_die(const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  fputs("cuSPARSELt stand-in: ", stderr);
  vfprintf(stderr, fmt, ap);
  fputc('\n', stderr);
  va_end(ap);
  abort();
}

/* ---- BS_CUSPARSELT_STANDIN -------------------------------------------------------------------- */

static void read_step(char *text) {
  char *colon = strchr(text, ':'), *equals = colon != NULL ? strchr(colon, '=') : NULL;
  if (equals == NULL || n_steps == STEPS) splt_die("plan: '%s' is not FUNCTION:N=STATUS", text);
  *colon = *equals = '\0';
  struct step *s = &steps[n_steps++];
  snprintf(s->function, sizeof s->function, "%s", text);
  s->at = strtoull(colon + 1, NULL, 10);
  s->code = strcmp(equals + 1, "hang") == 0 ? HANG : (int)strtol(equals + 1, NULL, 10);
}

static void read_costs(char *value) {
  char *rest = NULL;
  int n = 0;
  for (char *s = strtok_r(value, ":", &rest); s != NULL && n < SPLT_COSTS; s = strtok_r(NULL, ":", &rest))
    setup.cost[n++] = strtod(s, NULL);
}

static void read_item(char *item) {
  char *equals = strchr(item, '='), *rest = NULL;
  if (equals == NULL) splt_die("BS_CUSPARSELT_STANDIN: '%s' is not NAME=VALUE", item);
  *equals = '\0';
  char *value = equals + 1;
  const int64_t number = strtoll(value, NULL, 10);
  if (strcmp(item, "version") == 0) {
    char *end = value;
    for (int i = 0; i < 3; i++, end += *end == '.') setup.version[i] = (int)strtol(end, &end, 10);
  } else if (strcmp(item, "plain") == 0) {
    setup.plain = (int)number;
  } else if (strcmp(item, "algorithms") == 0) {
    setup.algorithms = (int)number;
  } else if (strcmp(item, "workspace") == 0) {
    setup.workspace = (uint64_t)number;
  } else if (strcmp(item, "first") == 0) {
    setup.first = (uint64_t)number;
  } else if (strcmp(item, "cost") == 0) {
    read_costs(value);
  } else if (strcmp(item, "plan") == 0) {
    for (char *s = strtok_r(value, ",", &rest); s != NULL; s = strtok_r(NULL, ",", &rest)) read_step(s);
  } else {
    splt_die("BS_CUSPARSELT_STANDIN: '%s' is not known", item);
  }
}

static void read_all(void) { /* under the lock */
  const char *from = getenv("BS_CUSPARSELT_STANDIN");
  char text[1024];
  char *rest = NULL;
  if (is_read) return;
  is_read = 1;
  setup = (splt_setup){.version = {0, 8, 1}, .algorithms = 3, .workspace = 4096};
  n_steps = n_functions = 0;
  snprintf(text, sizeof text, "%s", from != NULL ? from : "");
  for (char *item = strtok_r(text, ";", &rest); item != NULL; item = strtok_r(NULL, ";", &rest))
    read_item(item);
}

const splt_setup *splt_get_setup(void) {
  pthread_mutex_lock(&lock);
  read_all();
  pthread_mutex_unlock(&lock);
  return &setup;
}

void cusparselt_standin_again(void) {
  pthread_mutex_lock(&lock);
  is_read = 0;
  pthread_mutex_unlock(&lock);
}

const splt_told *cusparselt_standin_told(void) {
  return &told;
}

int splt_enter(const char *function) {
  int code = SPLT_SUCCESS, at = 0;
  pthread_mutex_lock(&lock);
  read_all();
  while (at < n_functions && strcmp(functions[at].name, function) != 0) at++;
  if (at == FUNCTIONS) splt_die("too many functions");
  if (at == n_functions) {
    snprintf(functions[at].name, sizeof functions[at].name, "%s", function);
    functions[at].calls = 0;
    n_functions++;
  }
  functions[at].calls++;
  for (int i = 0; i < n_steps; i++)
    if (steps[i].at == functions[at].calls && strcmp(steps[i].function, function) == 0) code = steps[i].code;
  pthread_mutex_unlock(&lock);
  if (code == HANG)
    for (;;) pause();
  return code;
}

/* ---- opaque blocks ---------------------------------------------------------------------------- */

void splt_take(const cuda_splt_opaque *block, uint64_t kind, void *out, size_t bytes, const char *who) {
  splt_head head;
  if (block == NULL) splt_die("%s: no block", who);
  memcpy(&head, block, sizeof head);
  if (head.kind != kind) splt_die("%s: a block that was not made, or has ended", who);
  if (head.at != block) splt_die("%s: a block that was moved", who);
  memcpy(out, block, bytes);
}

/* `what` begins with a head. 512 bytes are the library's, from 0.8 on. */
static void put(cuda_splt_opaque *block, uint64_t kind, void *what, size_t bytes) {
  splt_head *head = what;
  memset(block, 0xA5, 512);
  head->kind = kind;
  head->at = block;
  head->serial = __atomic_add_fetch(&serial, 1, __ATOMIC_RELAXED);
  memcpy(block, what, bytes);
  if (kind != SPLT_A_MATMUL) /* it has no end */
    __atomic_add_fetch(kind == SPLT_A_HANDLE ? &told.handles : &told.living, 1, __ATOMIC_RELAXED);
}

static int end(const char *function, const cuda_splt_opaque *block, uint64_t kind) {
  splt_head head;
  const int rc = splt_enter(function);
  splt_take(block, kind, &head, sizeof head, function);
  memset((void *)(uintptr_t)block, 0, sizeof head);
  __atomic_sub_fetch(kind == SPLT_A_HANDLE ? &told.handles : &told.living, 1, __ATOMIC_RELAXED);
  return rc;
}

static splt_ref refer(const cuda_splt_opaque *block, uint64_t kind, const char *who) {
  splt_head head;
  splt_take(block, kind, &head, sizeof head, who);
  return (splt_ref){block, head.serial};
}

/* Checks that the block of `ref` is still the one that `ref` was made from, and reads it. */
static void follow(splt_ref ref, uint64_t kind, void *out, size_t bytes, const char *who) {
  splt_head head;
  splt_take(ref.at, kind, &head, sizeof head, who);
  if (head.serial != ref.serial) splt_die("%s: a block that was made again since", who);
  splt_take(ref.at, kind, out, bytes, who);
}

static int handle_ok(const cuda_splt_opaque *block, const char *who) {
  splt_handle h;
  splt_take(block, SPLT_A_HANDLE, &h, sizeof h, who);
  return setup.plain || h.context == si_current();
}

/* ---- the library ------------------------------------------------------------------------------ */

int cusparseLtInit(cuda_splt_opaque *handle) {
  const int rc = splt_enter("cusparseLtInit");
  if (rc != SPLT_SUCCESS) return rc;
  splt_handle h = {.context = setup.plain ? NULL : si_current()};
  if (h.context == NULL && !setup.plain) return SPLT_NOT_INITIALIZED;
  put(handle, SPLT_A_HANDLE, &h, sizeof h);
  return SPLT_SUCCESS;
}

int cusparseLtDestroy(const cuda_splt_opaque *handle) {
  if (told.living != 0) splt_die("cusparseLtDestroy: %lld blocks live", (long long)told.living);
  return end("cusparseLtDestroy", handle, SPLT_A_HANDLE);
}

int cusparseLtGetProperty(int property, int *out_value) {
  const int rc = splt_enter("cusparseLtGetProperty");
  if (rc != SPLT_SUCCESS) return rc;
  if (property < SPLT_MAJOR || property > SPLT_PATCH) return SPLT_INVALID_VALUE;
  *out_value = setup.version[property];
  return SPLT_SUCCESS;
}

const char *cusparseLtGetErrorName(int status) {
  static const char *const names[] = {"CUSPARSE_STATUS_SUCCESS",
                                      "CUSPARSE_STATUS_NOT_INITIALIZED",
                                      "CUSPARSE_STATUS_ALLOC_FAILED",
                                      "CUSPARSE_STATUS_INVALID_VALUE",
                                      "CUSPARSE_STATUS_ARCH_MISMATCH",
                                      "CUSPARSE_STATUS_MAPPING_ERROR",
                                      "CUSPARSE_STATUS_EXECUTION_FAILED",
                                      "CUSPARSE_STATUS_INTERNAL_ERROR",
                                      "CUSPARSE_STATUS_MATRIX_TYPE_NOT_SUPPORTED",
                                      "CUSPARSE_STATUS_ZERO_PIVOT",
                                      "CUSPARSE_STATUS_NOT_SUPPORTED",
                                      "CUSPARSE_STATUS_INSUFFICIENT_RESOURCES"};
  return status >= 0 && (size_t)status < sizeof names / sizeof names[0] ? names[status] : NULL;
}

const char *cusparseLtGetErrorString(int status) {
  return status == SPLT_SUCCESS ? "success" : "as the test has planned it";
}

/* ---- descriptors ------------------------------------------------------------------------------ */

static int matrix(const char *who, const cuda_splt_opaque *handle, cuda_splt_opaque *out, splt_matrix *m) {
  int rc = splt_enter(who);
  if (rc != SPLT_SUCCESS) return rc;
  if (!handle_ok(handle, who)) return SPLT_NOT_INITIALIZED;
  rc = splt_matrix_legal(m);
  if (rc == SPLT_SUCCESS) put(out, SPLT_A_MATRIX, m, sizeof *m);
  return rc;
}

int cusparseLtDenseDescriptorInit(const cuda_splt_opaque *handle, cuda_splt_opaque *out, int64_t rows,
                                  int64_t cols, int64_t ld, uint32_t alignment, int type, int order) {
  splt_matrix m = {{0, NULL, 0}, rows, cols, ld, type, order, 0, alignment};
  return matrix("cusparseLtDenseDescriptorInit", handle, out, &m);
}

int cusparseLtStructuredDescriptorInit(const cuda_splt_opaque *handle, cuda_splt_opaque *out, int64_t rows,
                                       int64_t cols, int64_t ld, uint32_t alignment, int type, int order,
                                       int sparsity) {
  splt_matrix m = {{0, NULL, 0}, rows, cols, ld, type, order, 1, alignment};
  if (sparsity != SPLT_HALF) return SPLT_INVALID_VALUE;
  return matrix("cusparseLtStructuredDescriptorInit", handle, out, &m);
}

int cusparseLtMatDescriptorDestroy(const cuda_splt_opaque *block) {
  return end("cusparseLtMatDescriptorDestroy", block, SPLT_A_MATRIX);
}

static void matrices_of(const splt_matmul *mm, splt_matrix out[4], const char *who) {
  const splt_ref refs[4] = {mm->a, mm->b, mm->c, mm->d};
  for (int i = 0; i < 4; i++) follow(refs[i], SPLT_A_MATRIX, &out[i], sizeof out[i], who);
}

int cusparseLtMatmulDescriptorInit(const cuda_splt_opaque *handle, cuda_splt_opaque *out, int op_a, int op_b,
                                   const cuda_splt_opaque *a, const cuda_splt_opaque *b,
                                   const cuda_splt_opaque *c, const cuda_splt_opaque *d, int compute) {
  static const char who[] = "cusparseLtMatmulDescriptorInit";
  int rc = splt_enter(who);
  if (rc != SPLT_SUCCESS) return rc;
  if (!handle_ok(handle, who)) return SPLT_NOT_INITIALIZED;
  splt_matmul mm = {.a = refer(a, SPLT_A_MATRIX, who),
                    .b = refer(b, SPLT_A_MATRIX, who),
                    .c = refer(c, SPLT_A_MATRIX, who),
                    .d = refer(d, SPLT_A_MATRIX, who),
                    .op_a = op_a,
                    .op_b = op_b,
                    .compute = compute};
  splt_matrix m[4];
  matrices_of(&mm, m, who);
  rc = splt_matmul_legal(&mm, &m[0], &m[1], &m[2], &m[3]);
  if (rc == SPLT_SUCCESS) put(out, SPLT_A_MATMUL, &mm, sizeof mm);
  return rc;
}

int cusparseLtMatmulDescSetAttribute(const cuda_splt_opaque *handle, cuda_splt_opaque *block, int attribute,
                                     const void *value, size_t bytes) {
  static const char who[] = "cusparseLtMatmulDescSetAttribute";
  const int rc = splt_enter(who);
  splt_matmul mm;
  if (rc != SPLT_SUCCESS) return rc;
  if (!handle_ok(handle, who)) return SPLT_NOT_INITIALIZED;
  splt_take(block, SPLT_A_MATMUL, &mm, sizeof mm, who);
  if (attribute != SPLT_MATMUL_RELU || value == NULL || bytes != sizeof mm.relu) return SPLT_INVALID_VALUE;
  memcpy(&mm.relu, value, bytes);
  memcpy(block, &mm, sizeof mm);
  return SPLT_SUCCESS;
}

/* ---- algorithms and plans ----------------------------------------------------------------------- */

int cusparseLtMatmulAlgSelectionInit(const cuda_splt_opaque *handle, cuda_splt_opaque *out,
                                     const cuda_splt_opaque *matmul, int which) {
  static const char who[] = "cusparseLtMatmulAlgSelectionInit";
  const int rc = splt_enter(who);
  if (rc != SPLT_SUCCESS) return rc;
  if (!handle_ok(handle, who)) return SPLT_NOT_INITIALIZED;
  if (which != SPLT_ALGORITHM_DEFAULT) return SPLT_INVALID_VALUE;
  splt_selection s = {.matmul = refer(matmul, SPLT_A_MATMUL, who), .id = 0, .split = -1};
  put(out, SPLT_A_SELECTION, &s, sizeof s);
  return SPLT_SUCCESS;
}

int cusparseLtMatmulAlgSelectionDestroy(const cuda_splt_opaque *block) {
  return end("cusparseLtMatmulAlgSelectionDestroy", block, SPLT_A_SELECTION);
}

int cusparseLtMatmulAlgSetAttribute(const cuda_splt_opaque *handle, cuda_splt_opaque *block, int attribute,
                                    const void *value, size_t bytes) {
  static const char who[] = "cusparseLtMatmulAlgSetAttribute";
  const int rc = splt_enter(who);
  splt_selection s;
  int32_t id = -1;
  if (rc != SPLT_SUCCESS) return rc;
  if (!handle_ok(handle, who)) return SPLT_NOT_INITIALIZED;
  splt_take(block, SPLT_A_SELECTION, &s, sizeof s, who);
  if ((attribute != SPLT_CONFIG_ID && attribute != SPLT_SPLIT_K) || value == NULL || bytes != sizeof id)
    return SPLT_INVALID_VALUE;
  memcpy(&id, value, sizeof id);
  if (attribute == SPLT_SPLIT_K) {
    if (id != 1 && id != -1) return SPLT_INVALID_VALUE; /* as on capability 9.0 */
    s.split = id;
    memcpy(block, &s, sizeof s);
    return SPLT_SUCCESS;
  }
  if (id < 0 || id >= setup.algorithms) return SPLT_INVALID_VALUE;
  s.id = id;
  memcpy(block, &s, sizeof s);
  return SPLT_SUCCESS;
}

int cusparseLtMatmulAlgGetAttribute(const cuda_splt_opaque *handle, const cuda_splt_opaque *block,
                                    int attribute, void *value, size_t bytes) {
  static const char who[] = "cusparseLtMatmulAlgGetAttribute";
  const int rc = splt_enter(who);
  splt_selection s;
  if (rc != SPLT_SUCCESS) return rc;
  if (!handle_ok(handle, who)) return SPLT_NOT_INITIALIZED;
  splt_take(block, SPLT_A_SELECTION, &s, sizeof s, who);
  const int32_t answer = attribute == SPLT_CONFIG_ID ? s.id : setup.algorithms;
  if ((attribute != SPLT_CONFIG_ID && attribute != SPLT_CONFIG_MAX_ID) || bytes != sizeof answer)
    return SPLT_INVALID_VALUE;
  memcpy(value, &answer, sizeof answer);
  return SPLT_SUCCESS;
}

int cusparseLtMatmulPlanInit(const cuda_splt_opaque *handle, cuda_splt_opaque *out,
                             const cuda_splt_opaque *matmul, const cuda_splt_opaque *selection) {
  static const char who[] = "cusparseLtMatmulPlanInit";
  const int rc = splt_enter(who);
  splt_selection s;
  splt_matmul mm;
  splt_matrix m[4];
  if (rc != SPLT_SUCCESS) return rc;
  if (!handle_ok(handle, who)) return SPLT_NOT_INITIALIZED;
  splt_plan p = {.handle = refer(handle, SPLT_A_HANDLE, who),
                 .matmul = refer(matmul, SPLT_A_MATMUL, who),
                 .selection = refer(selection, SPLT_A_SELECTION, who)};
  splt_take(selection, SPLT_A_SELECTION, &s, sizeof s, who);
  follow(s.matmul, SPLT_A_MATMUL, &mm, sizeof mm, who);
  if (s.split != 1) splt_die("%s: sums may be split", who);
  if (s.matmul.at != matmul) return SPLT_INVALID_VALUE;
  matrices_of(&mm, m, who);
  p.id = s.id;
  p.workspace = s.id > 0 ? setup.workspace : setup.first;
  put(out, SPLT_A_PLAN, &p, sizeof p);
  __atomic_add_fetch(&told.plans, 1, __ATOMIC_RELAXED);
  return SPLT_SUCCESS;
}

int cusparseLtMatmulPlanDestroy(const cuda_splt_opaque *block) {
  return end("cusparseLtMatmulPlanDestroy", block, SPLT_A_PLAN);
}

int cusparseLtMatmulGetWorkspace(const cuda_splt_opaque *handle, const cuda_splt_opaque *plan,
                                 size_t *out_bytes) {
  static const char who[] = "cusparseLtMatmulGetWorkspace";
  const int rc = splt_enter(who);
  splt_plan p;
  if (rc != SPLT_SUCCESS) return rc;
  if (!handle_ok(handle, who)) return SPLT_NOT_INITIALIZED;
  splt_take(plan, SPLT_A_PLAN, &p, sizeof p, who);
  *out_bytes = p.workspace;
  return SPLT_SUCCESS;
}

/* ---- work --------------------------------------------------------------------------------------- */

static void *place(const void *pointer, uint64_t bytes, const char *who) {
  if (pointer == NULL || setup.plain) return (void *)(uintptr_t)pointer;
  return si_host((CUdeviceptr)(uintptr_t)pointer, bytes, who);
}

static int queue(const char *who, CUstream stream, void (*call)(void *arg, int lost), void *arg,
                 size_t bytes) {
  if (setup.plain) {
    if (stream != NULL) splt_die("%s: a stream over plain memory", who);
    call(arg, 0);
    return SPLT_SUCCESS;
  }
  if (si_queue_copied(who, stream, call, arg, bytes) == CUDA_SUCCESS) return SPLT_SUCCESS;
  free(arg);
  return SPLT_EXECUTION_FAILED;
}

static int off(const void *pointer) {
  return pointer == NULL || (uintptr_t)pointer % 16 != 0;
}

typedef struct compress_job {
  splt_matrix m;
  const void *dense;
  void *compressed, *buffer;
} compress_job;

static void run_compress(void *arg, int lost) {
  static const char who[] = "cusparseLtSpMMACompress2";
  compress_job *job = arg;
  if (!lost) {
    memset(place(job->buffer, SPLT_BUFFER, who), 0x5A, SPLT_BUFFER); /* it is the library's */
    const uint64_t chosen = splt_compress(&job->m, place(job->dense, splt_span(&job->m), who),
                                          place(job->compressed, splt_compressed(&job->m), who));
    __atomic_add_fetch(&told.dropped, chosen, __ATOMIC_RELAXED);
  }
  free(job);
}

int cusparseLtSpMMACompressedSize2(const cuda_splt_opaque *handle, const cuda_splt_opaque *matrix,
                                   size_t *out_bytes, size_t *out_buffer_bytes) {
  static const char who[] = "cusparseLtSpMMACompressedSize2";
  const int rc = splt_enter(who);
  splt_matrix m;
  if (rc != SPLT_SUCCESS) return rc;
  if (!handle_ok(handle, who)) return SPLT_NOT_INITIALIZED;
  splt_take(matrix, SPLT_A_MATRIX, &m, sizeof m, who);
  if (!m.structured) return SPLT_INVALID_VALUE;
  *out_bytes = splt_compressed(&m);
  *out_buffer_bytes = SPLT_BUFFER;
  return SPLT_SUCCESS;
}

int cusparseLtSpMMACompress2(const cuda_splt_opaque *handle, const cuda_splt_opaque *matrix, int is_a, int op,
                             const void *dense, void *compressed, void *buffer, CUstream stream) {
  static const char who[] = "cusparseLtSpMMACompress2";
  const int rc = splt_enter(who);
  if (rc != SPLT_SUCCESS) return rc;
  if (!handle_ok(handle, who)) return SPLT_NOT_INITIALIZED;
  compress_job *job = calloc(1, sizeof *job);
  if (job == NULL) splt_die("no memory");
  splt_take(matrix, SPLT_A_MATRIX, &job->m, sizeof job->m, who);
  if (!job->m.structured || !is_a || op != SPLT_OP_N || off(dense) || off(compressed) || off(buffer)) {
    free(job);
    return SPLT_INVALID_VALUE;
  }
  job->dense = dense;
  job->compressed = compressed;
  job->buffer = buffer;
  __atomic_add_fetch(&told.compressed, 1, __ATOMIC_RELAXED);
  return queue(who, stream, run_compress, job, sizeof *job);
}

static void run_product(void *arg, int lost) {
  static const char who[] = "cusparseLtMatmul";
  splt_job *job = arg;
  if (!lost) {
    job->pa = place(job->pa, splt_compressed(&job->a), who);
    job->pb = place(job->pb, splt_span(&job->b), who);
    job->pc = place(job->pc, splt_span(&job->c), who);
    job->pd = place(job->pd, splt_span(&job->c), who);
    job->workspace = place(job->workspace, job->workspace_bytes, who);
    if (job->workspace_bytes > 0) memset(job->workspace, 0x5A, job->workspace_bytes);
    if (job->cost > 0 && !setup.plain) usleep((useconds_t)(job->cost * 1000));
    splt_compute(job);
  }
  free(job);
}

static splt_job *job_of(const splt_plan *p, const char *who) {
  splt_matmul mm;
  splt_selection s;
  splt_matrix m[4];
  splt_job *job = calloc(1, sizeof *job);
  if (job == NULL) splt_die("no memory");
  follow(p->matmul, SPLT_A_MATMUL, &mm, sizeof mm, who);
  follow(p->selection, SPLT_A_SELECTION, &s, sizeof s, who);
  matrices_of(&mm, m, who);
  job->a = m[0];
  job->b = m[1];
  job->c = m[2];
  job->compute = mm.compute;
  job->relu = mm.relu;
  job->workspace_bytes = p->workspace;
  job->cost = p->id < SPLT_COSTS ? setup.cost[p->id] : 0;
  return job;
}

int cusparseLtMatmul(const cuda_splt_opaque *handle, const cuda_splt_opaque *plan, const void *alpha,
                     const void *a, const void *b, const void *beta, const void *c, void *d, void *workspace,
                     CUstream *streams, int32_t n_streams) {
  static const char who[] = "cusparseLtMatmul";
  const int rc = splt_enter(who);
  splt_plan p;
  if (rc != SPLT_SUCCESS) return rc;
  if (!handle_ok(handle, who)) return SPLT_NOT_INITIALIZED;
  splt_take(plan, SPLT_A_PLAN, &p, sizeof p, who);
  if (p.handle.at != handle) return SPLT_INVALID_VALUE;
  splt_job *job = job_of(&p, who);
  if (alpha == NULL || beta == NULL || off(a) || off(b) || off(c) || off(d) || streams == NULL ||
      n_streams != 1 || (p.workspace > 0 && off(workspace))) {
    free(job);
    return SPLT_INVALID_VALUE;
  }
  memcpy(&job->alpha, alpha, sizeof job->alpha);
  memcpy(&job->beta, beta, sizeof job->beta);
  job->pa = a;
  job->pb = b;
  job->pc = c;
  job->pd = d;
  job->workspace = workspace;
  pthread_mutex_lock(&lock);
  told.products++;
  told.last_algorithm = p.id;
  told.last_workspace = p.workspace;
  told.clock += job->cost;
  pthread_mutex_unlock(&lock);
  return queue(who, streams[0], run_product, job, sizeof *job);
}

/* The plugin calls them as they are. */
const cuda_splt_functions cusparselt_standin_functions = {
    cusparseLtInit,
    cusparseLtDestroy,
    cusparseLtGetProperty,
    cusparseLtGetErrorName,
    cusparseLtGetErrorString,
    cusparseLtDenseDescriptorInit,
    cusparseLtStructuredDescriptorInit,
    cusparseLtMatDescriptorDestroy,
    cusparseLtMatmulDescriptorInit,
    cusparseLtMatmulDescSetAttribute,
    cusparseLtMatmulAlgSelectionInit,
    cusparseLtMatmulAlgSelectionDestroy,
    cusparseLtMatmulAlgSetAttribute,
    cusparseLtMatmulAlgGetAttribute,
    cusparseLtMatmulPlanInit,
    cusparseLtMatmulPlanDestroy,
    cusparseLtMatmulGetWorkspace,
    cusparseLtMatmul,
    cusparseLtSpMMACompressedSize2,
    cusparseLtSpMMACompress2,
};
