/* SPDX-License-Identifier: MIT
 * functions.c - the stand-in of cuDNN: the functions that the plugin uses, for the operation that it
 * describes. A descriptor is a list of attributes. An attribute that is missing, of another type or shape, or
 * set after finalize is refused. A descriptor used after its end stops the process. An execution is plain
 * loops, in the order of the stand-in driver's stream or, with plain=1, on the spot over host memory.
 *
 * BS_CUDNN_STANDIN="version=91900;plain=1;engines=2;refuse=1;workspace=256;fail=FUNCTION:STATUS"
 * engines: how many the heuristics propose; refuse: of these the first cannot be made; fail: every call does.
 */
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control.h"
#include "plugins/cuda/cudnn/api.h"
#include "plugins/cuda/ops/numbers.h"
#include "tools/standin/standin.h"

enum { ATTRIBUTES = 8, BYTES = 64, MAGIC = 0x646e6e21 };

typedef struct descriptor {
  uint32_t magic;
  int kind, finalized, n;
  struct {
    int name, type;
    int64_t count;
    unsigned char bytes[BYTES];
  } list[ATTRIBUTES];
} descriptor;

typedef struct handle {
  uint32_t magic;
  CUcontext context;
  CUstream stream;
} handle;

static struct {
  int64_t version, workspace;
  int plain, engines, refuse, status;
  char fail[48];
} setup;
static int is_read;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static dnn_told told;

static void die(const char *what) {
  fprintf(stderr, "cuDNN stand-in: %s\n", what);
  abort();
}

/* ---- BS_CUDNN_STANDIN -------------------------------------------------------------------------- */

static void read_item(char *item) {
  char *value = strchr(item, '=');
  if (value == NULL) die("BS_CUDNN_STANDIN holds no NAME=VALUE");
  *value++ = '\0';
  const int64_t number = strtoll(value, NULL, 10);
  if (strcmp(item, "version") == 0)
    setup.version = number;
  else if (strcmp(item, "workspace") == 0)
    setup.workspace = number;
  else if (strcmp(item, "plain") == 0)
    setup.plain = (int)number;
  else if (strcmp(item, "engines") == 0)
    setup.engines = (int)number;
  else if (strcmp(item, "refuse") == 0)
    setup.refuse = (int)number;
  else if (strcmp(item, "fail") == 0) {
    char *status = strchr(value, ':');
    if (status == NULL) die("fail: FUNCTION:STATUS");
    *status++ = '\0';
    snprintf(setup.fail, sizeof setup.fail, "%s", value);
    setup.status = (int)strtol(status, NULL, 10);
  } else
    die("BS_CUDNN_STANDIN: an unknown name");
}

static int enter(const char *function) {
  pthread_mutex_lock(&lock);
  if (!is_read) {
    const char *from = getenv("BS_CUDNN_STANDIN");
    char text[512], *rest = NULL;
    memset(&setup, 0, sizeof setup);
    setup.version = 91900;
    setup.workspace = 256;
    setup.engines = 2;
    snprintf(text, sizeof text, "%s", from != NULL ? from : "");
    for (char *item = strtok_r(text, ";", &rest); item != NULL; item = strtok_r(NULL, ";", &rest))
      read_item(item);
    is_read = 1;
  }
  const int status = strcmp(setup.fail, function) == 0 ? setup.status : DNN_SUCCESS;
  pthread_mutex_unlock(&lock);
  return status;
}

void cudnn_standin_again(void) {
  pthread_mutex_lock(&lock);
  is_read = 0;
  pthread_mutex_unlock(&lock);
}
const dnn_told *cudnn_standin_told(void) {
  return &told;
}

/* ---- the library ------------------------------------------------------------------------------- */

size_t cudnnGetVersion(void);
const char *cudnnGetErrorString(int status);
int cudnnCreate(void **out_handle);
int cudnnDestroy(void *h);
int cudnnSetStream(void *h, CUstream stream);
int cudnnBackendCreateDescriptor(int kind, void **out_descriptor);
int cudnnBackendDestroyDescriptor(void *d);
int cudnnBackendSetAttribute(void *d, int attribute, int type, int64_t count, const void *values);
int cudnnBackendGetAttribute(void *d, int attribute, int type, int64_t most, int64_t *out_count,
                             void *out_values);
int cudnnBackendFinalize(void *d);
int cudnnBackendExecute(void *h, void *plan, void *pack);

size_t cudnnGetVersion(void) {
  (void)enter("cudnnGetVersion");
  return (size_t)setup.version;
}

const char *cudnnGetErrorString(int status) {
  return status >= 3000 && status < 4000 ? "CUDNN_STATUS_NOT_SUPPORTED" : "CUDNN_STATUS_OTHER";
}

static handle *handle_at(void *h) {
  handle *at = h;
  if (at == NULL || at->magic != MAGIC) die("no handle, or one that has ended");
  return at;
}
static descriptor *descriptor_at(void *d) {
  descriptor *at = d;
  if (at == NULL || at->magic != MAGIC + 1) die("no descriptor, or one that has ended");
  return at;
}

static void count(int64_t *of, int64_t by) {
  pthread_mutex_lock(&lock);
  *of += by;
  pthread_mutex_unlock(&lock);
}

int cudnnCreate(void **out_handle) {
  const int status = enter("cudnnCreate");
  CUcontext context = setup.plain ? NULL : si_current();
  if (status != DNN_SUCCESS) return status;
  if (context == NULL && !setup.plain) return 1001;
  handle *h = calloc(1, sizeof *h);
  if (h == NULL) die("no memory");
  *h = (handle){MAGIC, context, NULL};
  count(&told.handles, 1);
  *out_handle = h;
  return DNN_SUCCESS;
}

int cudnnDestroy(void *h) {
  handle_at(h)->magic = 0;
  free(h);
  count(&told.handles, -1);
  return DNN_SUCCESS;
}

int cudnnSetStream(void *h, CUstream stream) {
  const int status = enter("cudnnSetStream");
  handle_at(h)->stream = stream;
  return status;
}

int cudnnBackendCreateDescriptor(int kind, void **out_descriptor) {
  const int status = enter("cudnnBackendCreateDescriptor");
  if (status != DNN_SUCCESS) return status;
  descriptor *d = calloc(1, sizeof *d);
  if (d == NULL) die("no memory");
  d->magic = MAGIC + 1;
  d->kind = kind;
  count(&told.descriptors, 1);
  *out_descriptor = d;
  return DNN_SUCCESS;
}

int cudnnBackendDestroyDescriptor(void *d) {
  descriptor_at(d)->magic = 0;
  free(d);
  count(&told.descriptors, -1);
  return DNN_SUCCESS;
}

static size_t size_of(int type) {
  return type == DNN_TYPE_BOOL ? 1 : type == DNN_TYPE_DTYPE || type == DNN_TYPE_MODE ? sizeof(int) : 8;
}

/* An attribute's values, NULL: it was not set, or is of another type or count. */
static const void *value_of(const descriptor *d, int name, int type, int64_t n) {
  for (int i = 0; i < d->n; i++)
    if (d->list[i].name == name)
      return d->list[i].type == type && d->list[i].count == n ? d->list[i].bytes : NULL;
  return NULL;
}
static descriptor *inner(const descriptor *d, int name) {
  void *at = NULL;
  const void *value = value_of(d, name, DNN_TYPE_DESCRIPTOR, 1);
  if (value == NULL) return NULL;
  memcpy(&at, value, sizeof at);
  descriptor *of = descriptor_at(at);
  return of->finalized ? of : NULL;
}

int cudnnBackendSetAttribute(void *at, int attribute, int type, int64_t n, const void *values) {
  descriptor *d = descriptor_at(at);
  const int status = enter("cudnnBackendSetAttribute");
  if (status != DNN_SUCCESS) return status;
  if (d->finalized || n < 1 || (uint64_t)n * size_of(type) > BYTES) return DNN_BAD_PARAM;
  if (d->n == ATTRIBUTES) die("more attributes than this has room for");
  d->list[d->n].name = attribute;
  d->list[d->n].type = type;
  d->list[d->n].count = n;
  memcpy(d->list[d->n++].bytes, values, (size_t)n * size_of(type));
  return DNN_SUCCESS;
}

/* ---- what is legal ------------------------------------------------------------------------------ */

static const int64_t *dims_of(const descriptor *t) {
  return value_of(t, DNN_TENSOR_DIMS, DNN_TYPE_INT64, 4);
}

static int tensor_legal(const descriptor *d) {
  return dims_of(d) != NULL && value_of(d, DNN_TENSOR_STRIDES, DNN_TYPE_INT64, 4) != NULL &&
         value_of(d, DNN_TENSOR_DTYPE, DNN_TYPE_DTYPE, 1) != NULL &&
         value_of(d, DNN_TENSOR_ID, DNN_TYPE_INT64, 1) != NULL &&
         value_of(d, DNN_TENSOR_ALIGNMENT, DNN_TYPE_INT64, 1) != NULL;
}

static int attention_legal(const descriptor *d) {
  static const int names[4] = {DNN_SDPA_Q, DNN_SDPA_K, DNN_SDPA_V, DNN_SDPA_O};
  const int64_t *dims[4];
  const descriptor *scale = inner(d, DNN_SDPA_SCALE);
  for (int i = 0; i < 4; i++) {
    const descriptor *t = inner(d, names[i]);
    if (t == NULL || t->kind != DNN_TENSOR) return 0;
    dims[i] = dims_of(t);
  }
  const int64_t *q = dims[0], *k = dims[1], *v = dims[2], *o = dims[3];
  return scale != NULL && value_of(scale, DNN_TENSOR_BY_VALUE, DNN_TYPE_BOOL, 1) != NULL && q[0] == k[0] &&
         q[3] == k[3] && k[0] == v[0] && k[1] == v[1] && k[2] == v[2] && o[0] == q[0] && o[1] == q[1] &&
         o[2] == q[2] && o[3] == v[3] && q[1] % k[1] == 0;
}

static int legal(const descriptor *d) {
  switch (d->kind) {
    case DNN_TENSOR:
      return tensor_legal(d);
    case DNN_SDPA:
      return attention_legal(d);
    case DNN_GRAPH:
      return inner(d, DNN_GRAPH_OPERATIONS) != NULL &&
             value_of(d, DNN_GRAPH_HANDLE, DNN_TYPE_HANDLE, 1) != NULL;
    case DNN_HEURISTICS:
      return inner(d, DNN_HEURISTICS_GRAPH) != NULL &&
             value_of(d, DNN_HEURISTICS_MODE, DNN_TYPE_MODE, 1) != NULL;
    case DNN_PLAN:
      return inner(d, DNN_PLAN_CONFIG) != NULL && value_of(d, DNN_PLAN_HANDLE, DNN_TYPE_HANDLE, 1) != NULL;
    case DNN_PACK:
      return value_of(d, DNN_PACK_IDS, DNN_TYPE_INT64, 5) != NULL &&
             value_of(d, DNN_PACK_POINTERS, DNN_TYPE_POINTER, 5) != NULL &&
             value_of(d, DNN_PACK_WORKSPACE, DNN_TYPE_POINTER, 1) != NULL;
    default:
      return 0;
  }
}

/* The number of a proposal, which is kept as a separate attribute. */
static int64_t number_of(const descriptor *config) {
  int64_t number;
  memcpy(&number, value_of(config, 0, DNN_TYPE_INT64, 1), sizeof number);
  return number;
}

int cudnnBackendFinalize(void *at) {
  descriptor *d = descriptor_at(at);
  const int status = enter("cudnnBackendFinalize");
  if (status != DNN_SUCCESS) return status;
  if (d->finalized || !legal(d)) return DNN_BAD_PARAM;
  if (d->kind == DNN_PLAN && number_of(inner(d, DNN_PLAN_CONFIG)) < setup.refuse) return DNN_NOT_SUPPORTED;
  d->finalized = 1;
  return DNN_SUCCESS;
}

int cudnnBackendGetAttribute(void *at, int attribute, int type, int64_t most, int64_t *out_count,
                             void *out_values) {
  descriptor *d = descriptor_at(at);
  const int status = enter("cudnnBackendGetAttribute");
  if (status != DNN_SUCCESS) return status;
  if (!d->finalized) return DNN_BAD_PARAM;
  if (d->kind == DNN_PLAN && attribute == DNN_PLAN_WORKSPACE && type == DNN_TYPE_INT64 && most == 1) {
    memcpy(out_values, &setup.workspace, sizeof setup.workspace);
    *out_count = 1;
    return DNN_SUCCESS;
  }
  if (d->kind != DNN_HEURISTICS || attribute != DNN_HEURISTICS_RESULTS || type != DNN_TYPE_DESCRIPTOR)
    return DNN_BAD_PARAM;
  void **configs = out_values;
  for (*out_count = 0; *out_count < most && *out_count < setup.engines; (*out_count)++) {
    descriptor *config = descriptor_at(configs[*out_count]);
    void *graph = inner(d, DNN_HEURISTICS_GRAPH);
    if (config->kind != DNN_ENGINE_CONFIG) return DNN_BAD_PARAM;
    (void)cudnnBackendSetAttribute(config, DNN_HEURISTICS_GRAPH, DNN_TYPE_DESCRIPTOR, 1, &graph);
    (void)cudnnBackendSetAttribute(config, 0, DNN_TYPE_INT64, 1, out_count);
    config->finalized = 1;
  }
  return DNN_SUCCESS;
}

/* ---- an execution -------------------------------------------------------------------------------- */

typedef struct operand {
  const void *at; /* of the device */
  int64_t dims[4], strides[4];
  uint32_t dtype;
} operand;
typedef struct job {
  operand of[4];
  float scale;
  void *workspace;
} job;

static void *host_of(const operand *o) {
  int64_t last = 0;
  for (int i = 0; i < 4; i++) last += (o->dims[i] - 1) * o->strides[i];
  if (setup.plain) return (void *)(uintptr_t)o->at;
  return si_host((CUdeviceptr)(uintptr_t)o->at, (size_t)(last + 1) * 2, "cudnnBackendExecute");
}

static int64_t place(const operand *o, int64_t b, int64_t h, int64_t s, int64_t d) {
  return b * o->strides[0] + h * o->strides[1] + s * o->strides[2] + d * o->strides[3];
}

/* A row of the output; scores are of T floats. */
static void one_row(const job *j, void *const *m, float *scores, int64_t b, int64_t h, int64_t s) {
  const operand *q = &j->of[0], *k = &j->of[1], *v = &j->of[2], *o = &j->of[3];
  const int64_t g = h / (q->dims[1] / k->dims[1]);
  float most = -INFINITY, total = 0.0f;
  for (int64_t t = 0; t < k->dims[2]; t++) {
    scores[t] = 0.0f;
    for (int64_t d = 0; d < q->dims[3]; d++)
      scores[t] += cuda_load_f32(q->dtype, m[0], place(q, b, h, s, d)) *
                   cuda_load_f32(k->dtype, m[1], place(k, b, g, t, d));
    scores[t] *= j->scale;
    if (!(scores[t] <= most)) most = scores[t];
  }
  for (int64_t t = 0; t < k->dims[2]; t++) total += scores[t] = expf(scores[t] - most);
  for (int64_t e = 0; e < o->dims[3]; e++) {
    float sum = 0.0f;
    for (int64_t t = 0; t < k->dims[2]; t++)
      sum += scores[t] * cuda_load_f32(v->dtype, m[2], place(v, b, g, t, e));
    cuda_store_f32(o->dtype, m[3], place(o, b, h, s, e), sum / total);
  }
}

static void compute(void *arg, int lost) {
  job *j = arg;
  void *m[4];
  float *scores = calloc((size_t)j->of[1].dims[2], sizeof *scores);
  if (scores == NULL) die("no memory");
  for (int i = 0; i < 4 && !lost; i++) m[i] = host_of(&j->of[i]);
  const int64_t *q = j->of[0].dims;
  for (int64_t i = 0; i < q[0] * q[1] * q[2] && !lost; i++)
    one_row(j, m, scores, i / q[2] / q[1], i / q[2] % q[1], i % q[2]);
  free(scores);
  free(j);
}

static void take(const descriptor *op, int name, const descriptor *pack, operand *out) {
  const descriptor *t = inner(op, name);
  const int64_t *ids = value_of(pack, DNN_PACK_IDS, DNN_TYPE_INT64, 5);
  void *const *pointers = value_of(pack, DNN_PACK_POINTERS, DNN_TYPE_POINTER, 5);
  int64_t id;
  int dtype;
  memcpy(&id, value_of(t, DNN_TENSOR_ID, DNN_TYPE_INT64, 1), sizeof id);
  memcpy(&dtype, value_of(t, DNN_TENSOR_DTYPE, DNN_TYPE_DTYPE, 1), sizeof dtype);
  memcpy(out->dims, dims_of(t), sizeof out->dims);
  memcpy(out->strides, value_of(t, DNN_TENSOR_STRIDES, DNN_TYPE_INT64, 4), sizeof out->strides);
  for (int i = 0; i < 4; i++)
    if (out->strides[i] <= 0) die("a stride of 0");
  out->dtype = dtype == DNN_BF16 ? BS_BF16 : dtype == DNN_F16 ? BS_F16 : BS_F32;
  out->at = NULL;
  for (int i = 0; i < 5; i++) {
    int64_t mine;
    memcpy(&mine, &ids[i], sizeof mine);
    if (mine == id) memcpy(&out->at, &pointers[i], sizeof out->at);
  }
  if (out->at == NULL) die("a tensor without a pointer");
  if (out->dtype != BS_F32 && (uintptr_t)out->at % 16 != 0) die("a pointer off 16 bytes");
}

int cudnnBackendExecute(void *at, void *plan_at, void *pack_at) {
  static const int names[4] = {DNN_SDPA_Q, DNN_SDPA_K, DNN_SDPA_V, DNN_SDPA_O};
  handle *h = handle_at(at);
  const descriptor *plan = descriptor_at(plan_at), *pack = descriptor_at(pack_at);
  const int status = enter("cudnnBackendExecute");
  operand scale;
  if (status != DNN_SUCCESS) return status;
  if (!plan->finalized || !pack->finalized) return DNN_BAD_PARAM;
  if (!setup.plain && h->context != si_current()) return 1001;
  const descriptor *config = inner(plan, DNN_PLAN_CONFIG);
  const descriptor *op = inner(inner(config, DNN_HEURISTICS_GRAPH), DNN_GRAPH_OPERATIONS);
  job *j = calloc(1, sizeof *j);
  if (j == NULL) die("no memory");
  for (int i = 0; i < 4; i++) take(op, names[i], pack, &j->of[i]);
  take(op, DNN_SDPA_SCALE, pack, &scale);
  memcpy(&j->scale, scale.at, sizeof j->scale);
  memcpy(&j->workspace, value_of(pack, DNN_PACK_WORKSPACE, DNN_TYPE_POINTER, 1), sizeof j->workspace);
  if (setup.workspace > 0 && j->workspace == NULL) die("no workspace");
  pthread_mutex_lock(&lock);
  told.executions++;
  told.engine = number_of(config);
  pthread_mutex_unlock(&lock);
  if (setup.plain) {
    compute(j, 0);
    return DNN_SUCCESS;
  }
  if (si_queue_copied("cudnnBackendExecute", h->stream, compute, j, sizeof *j) == CUDA_SUCCESS)
    return DNN_SUCCESS;
  free(j);
  return DNN_EXECUTION_FAILED;
}
