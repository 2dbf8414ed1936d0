/* SPDX-License-Identifier: MIT
 * functions.c - a stand-in of NVIDIA's communication library (libnccl.so.2) over the stand-in of the
 * driver's: ranks are threads of one process or processes, bytes go through host memory on the streams'
 * workers. It checks its arguments, and what a group's sends and receives say of each other; communicators
 * are not blocking, so every call goes on in the background for a while.
 *
 * BS_NCCL_STANDIN="version=22809;shared=0;dir=PATH;plan=FUNCTION:N=CODE": dir: ranks may be processes,
 * messages are files of this folder. shared=1: ranks may share a device. plan: the N-th call of FUNCTION
 * returns CODE; "hang": what it began is never done; "lateCODE": CODE is the communicator's error from then
 * on. */
#include <cuda.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plugins/cuda/comm/nccl.h"
#include "tools/standin/standin.h"

#define NCCL_EXPORT __attribute__((visibility("default")))
enum { RANKS = 64, OPS = 512, SLOW_POLLS = 3, STEPS = 8, ID_MAGIC = 0x4e4343 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;

static void die(const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  fputs("NCCL stand-in: ", stderr);
  vfprintf(stderr, fmt, ap);
  fputc('\n', stderr);
  va_end(ap);
  abort();
}

/* ---- BS_NCCL_STANDIN -------------------------------------------------------------------------- */

enum { HANG = -1 };
typedef struct step {
  char function[48];
  uint64_t at, calls;
  int code; /* HANG */
  int late;
} step;
static struct {
  int read, version, shared, n;
  step steps[STEPS];
  char dir[200]; /* "": all ranks are threads */
} setup;

static void read_step(char *text) {
  char *colon = strchr(text, ':'), *equals = colon != NULL ? strchr(colon, '=') : NULL;
  if (equals == NULL || setup.n == STEPS) die("plan: '%s' is not FUNCTION:N=CODE", text);
  *colon = *equals = '\0';
  step *s = &setup.steps[setup.n++];
  const char *code = equals + 1;
  snprintf(s->function, sizeof s->function, "%s", text);
  s->at = strtoull(colon + 1, NULL, 10);
  s->late = strncmp(code, "late", 4) == 0;
  s->code = strcmp(code, "hang") == 0 ? HANG : (int)strtol(code + (s->late ? 4 : 0), NULL, 10);
}

static void read_setup(void) {
  const char *env = getenv("BS_NCCL_STANDIN");
  char text[400], *rest = NULL;
  if (setup.read) return;
  setup.read = 1;
  setup.version = 22809;
  snprintf(text, sizeof text, "%s", env != NULL ? env : "");
  for (char *item = strtok_r(text, ";", &rest); item != NULL; item = strtok_r(NULL, ";", &rest)) {
    char *value = strchr(item, '=');
    if (value == NULL) die("BS_NCCL_STANDIN: '%s'", item);
    *value++ = '\0';
    if (strcmp(item, "version") == 0)
      setup.version = (int)strtol(value, NULL, 10);
    else if (strcmp(item, "shared") == 0)
      setup.shared = (int)strtol(value, NULL, 10);
    else if (strcmp(item, "dir") == 0)
      snprintf(setup.dir, sizeof setup.dir, "%s", value);
    else if (strcmp(item, "plan") == 0)
      read_step(value);
    else
      die("BS_NCCL_STANDIN: '%s' is unknown", item);
  }
}

/* The planned result of this call; NULL: it succeeds. Under the lock. */
static const step *planned(const char *function) {
  read_setup();
  for (int i = 0; i < setup.n; i++) {
    step *s = &setup.steps[i];
    if (strcmp(s->function, function) == 0 && ++s->calls == s->at) return s;
  }
  return NULL;
}

/* ---- communicators ---------------------------------------------------------------------------- */

typedef struct message {
  struct message *next;
  size_t bytes;
  char data[];
} message;

typedef struct clique {
  struct clique *next;
  uint64_t number;
  int ranks, here, left, duplicate;
  CUcontext contexts[RANKS];
  nccl_comm comms[RANKS]; /* what is never destroyed is still known: no leak of the stand-in's */
  message *first[RANKS][RANKS], *last[RANKS][RANKS]; /* from, to */
} clique;

struct ncclComm {
  clique *of;
  int rank, polls, error, hangs;
  uint64_t sent[RANKS], taken[RANKS]; /* files so far, by peer */
};

/* ---- ranks that are processes ----------------------------------------------------------------- */

static void file_name(char out[300], uint64_t clique_number, const char *what, int from, int to,
                      uint64_t number) {
  snprintf(out, 300, "%s/%llx.%s.%d.%d.%llu", setup.dir, (unsigned long long)clique_number, what, from, to,
           (unsigned long long)number);
}

/* Writes the file under another name and renames it, so that no rank reads a part of it. */
static void write_file(const char *name, const void *data, size_t bytes) {
  char half[310];
  snprintf(half, sizeof half, "%s.half", name);
  FILE *f = fopen(half, "wb");
  if (f == NULL || fwrite(data, 1, bytes, f) != bytes || fclose(f) != 0 || rename(half, name) != 0)
    die("cannot write %s", name);
}

static FILE *await_file(const char *name) {
  FILE *f;
  while ((f = fopen(name, "rb")) == NULL) usleep(100);
  return f;
}

static int all_here(uint64_t number, int ranks) {
  char name[300];
  for (int r = 0; r < ranks; r++) {
    file_name(name, number, "here", r, 0, 0);
    if (access(name, F_OK) != 0) return 0;
  }
  return 1;
}

static clique *cliques;
static uint64_t numbers;

NCCL_EXPORT int ncclGetVersion(int *out_version) {
  pthread_mutex_lock(&lock);
  read_setup();
  *out_version = setup.version;
  pthread_mutex_unlock(&lock);
  return NCCL_SUCCESS;
}

NCCL_EXPORT int ncclGetUniqueId(nccl_id *out_id) {
  pthread_mutex_lock(&lock);
  const step *s = planned("ncclGetUniqueId");
  const uint64_t id[2] = {ID_MAGIC, (uint64_t)getpid() << 16 | ++numbers};
  memset(out_id, 0x5a, sizeof *out_id);
  memcpy(out_id, id, sizeof id);
  pthread_mutex_unlock(&lock);
  return s != NULL ? s->code : NCCL_SUCCESS;
}

static clique *clique_of(uint64_t number, int ranks) {
  clique *c = cliques;
  while (c != NULL && c->number != number) c = c->next;
  if (c == NULL) {
    c = calloc(1, sizeof *c);
    if (c == NULL) die("no memory");
    c->number = number;
    c->ranks = ranks;
    c->next = cliques;
    cliques = c;
  }
  if (c->ranks != ranks) die("ncclCommInitRankConfig: %d ranks, others said %d", ranks, c->ranks);
  return c;
}

NCCL_EXPORT int ncclCommInitRankConfig(nccl_comm *out_comm, int ranks, nccl_id id, int rank,
                                       nccl_config *config) {
  uint64_t words[2];
  unsigned char rest = 0x5a;
  memcpy(words, id.bytes, sizeof words);
  memcpy(&rest, id.bytes + 127, 1);
  if (words[0] != ID_MAGIC || rest != 0x5a) die("ncclCommInitRankConfig: no id of ncclGetUniqueId");
  if (config->magic != NCCL_CONFIG_MAGIC || config->size < 48 || config->blocking != 0)
    die("ncclCommInitRankConfig: a wrong configuration");
  if (ranks < 1 || ranks > RANKS || rank < 0 || rank >= ranks) die("rank %d of %d", rank, ranks);
  pthread_mutex_lock(&lock);
  const step *s = planned("ncclCommInitRankConfig");
  clique *c = clique_of(words[1], ranks);
  nccl_comm comm = calloc(1, sizeof *comm);
  if (comm == NULL) die("no memory");
  if (c->contexts[rank] != NULL) die("ncclCommInitRankConfig: rank %d twice", rank);
  c->contexts[rank] = si_current();
  for (int r = 0; r < ranks; r++)
    if (r != rank && c->contexts[r] == c->contexts[rank] && !setup.shared) c->duplicate = 1;
  comm->of = c;
  comm->rank = rank;
  c->comms[rank] = comm;
  c->here++;
  if (setup.dir[0] != '\0') {
    char name[300];
    file_name(name, c->number, "here", rank, 0, 0);
    write_file(name, "", 0);
  }
  *out_comm = comm;
  int result = NCCL_IN_PROGRESS;
  if (s != NULL && s->code == HANG) comm->hangs = 1;
  if (s != NULL && s->late) comm->error = s->code;
  if (s != NULL && s->code != HANG && !s->late) result = s->code;
  pthread_mutex_unlock(&lock);
  return result;
}

/* Whatever was begun needs some looks until it is done. */
NCCL_EXPORT int ncclCommGetAsyncError(nccl_comm comm, int *out_result) {
  pthread_mutex_lock(&lock);
  const clique *c = comm->of;
  *out_result = NCCL_SUCCESS;
  if (comm->error != 0)
    *out_result = comm->error;
  else if (c->duplicate)
    *out_result = NCCL_INVALID_USAGE;
  else if (comm->hangs || (setup.dir[0] != '\0' ? !all_here(c->number, c->ranks) : c->here < c->ranks) ||
           comm->polls++ % SLOW_POLLS != SLOW_POLLS - 1)
    *out_result = NCCL_IN_PROGRESS;
  pthread_mutex_unlock(&lock);
  return NCCL_SUCCESS;
}

NCCL_EXPORT const char *ncclGetErrorString(int result) {
  static const char *const texts[] = {
      "no error",         "unhandled cuda error", "unhandled system error", "internal error",
      "invalid argument", "invalid usage",        "remote process exited",  "NCCL operation in progress"};
  return result >= 0 && result < 8 ? texts[result] : "unknown result code";
}

NCCL_EXPORT const char *ncclGetLastError(nccl_comm comm) {
  return comm != NULL && comm->of->duplicate ? "Duplicate GPU detected" : "";
}

NCCL_EXPORT int ncclCommDestroy(nccl_comm comm) {
  pthread_mutex_lock(&lock);
  clique *c = comm->of;
  for (int r = 0; r < c->ranks; r++)
    if (c->first[r][comm->rank] != NULL)
      die("ncclCommDestroy: rank %d has not received all from %d", comm->rank, r);
  c->comms[comm->rank] = NULL;
  if (++c->left == (setup.dir[0] != '\0' ? c->here : c->ranks)) {
    clique **at = &cliques;
    while (*at != c) at = &(*at)->next;
    *at = c->next;
    free(c);
  }
  free(comm);
  pthread_mutex_unlock(&lock);
  return NCCL_SUCCESS;
}

/* ---- groups ----------------------------------------------------------------------------------- */

typedef struct piece {
  CUdeviceptr at;
  size_t bytes;
  int peer, sends;
} piece;

/* The work that one call, or a group of calls, queues: all sends are done before anything is received. */
typedef struct batch {
  nccl_comm comm;
  CUstream stream;
  int n, hangs;
  piece pieces[OPS];
} batch;

static _Thread_local batch *open_batch;
static _Thread_local int depth;

static batch *batch_now(nccl_comm comm, CUstream stream) {
  if (open_batch == NULL && (open_batch = calloc(1, sizeof *open_batch)) == NULL) die("no memory");
  if (open_batch->n > 0 && (open_batch->comm != comm || open_batch->stream != stream))
    die("one communicator and one stream a group are what the plugin uses");
  open_batch->comm = comm;
  open_batch->stream = stream;
  return open_batch;
}

static void add(nccl_comm comm, CUstream stream, const void *at, size_t bytes, int type, int peer,
                int sends) {
  batch *b = batch_now(comm, stream);
  if (type != NCCL_INT8) die("type %d", type);
  if (peer < 0 || peer >= comm->of->ranks || peer == comm->rank) die("rank %d and peer %d", comm->rank, peer);
  if (!si_inside((CUdeviceptr)(uintptr_t)at, bytes)) die("%zu bytes at %p are in no allocation", bytes, at);
  if (b->n == OPS) die("too many calls in a group");
  b->pieces[b->n++] = (piece){(CUdeviceptr)(uintptr_t)at, bytes, peer, sends};
}

static void post(const batch *b, const piece *p) {
  clique *c = b->comm->of;
  if (setup.dir[0] != '\0') {
    char name[300];
    file_name(name, c->number, "data", b->comm->rank, p->peer, b->comm->sent[p->peer]++);
    write_file(name, si_host(p->at, p->bytes, "ncclSend"), p->bytes);
    return;
  }
  message *m = malloc(sizeof *m + p->bytes);
  if (m == NULL) die("no memory");
  *m = (message){NULL, p->bytes};
  memcpy(m->data, si_host(p->at, p->bytes, "ncclSend"), p->bytes);
  pthread_mutex_lock(&lock);
  message **last = &c->last[b->comm->rank][p->peer];
  if (*last != NULL)
    (*last)->next = m;
  else
    c->first[b->comm->rank][p->peer] = m;
  *last = m;
  pthread_cond_broadcast(&moved);
  pthread_mutex_unlock(&lock);
}

static void take_file(const batch *b, const piece *p) {
  char name[300], more;
  file_name(name, b->comm->of->number, "data", p->peer, b->comm->rank, b->comm->taken[p->peer]++);
  FILE *f = await_file(name);
  if (fread(si_host(p->at, p->bytes, "ncclRecv"), 1, p->bytes, f) != p->bytes || fread(&more, 1, 1, f) != 0)
    die("rank %d receives %zu bytes of rank %d, which sent other", b->comm->rank, p->bytes, p->peer);
  (void)fclose(f);
  (void)unlink(name);
}

static void take(const batch *b, const piece *p) {
  clique *c = b->comm->of;
  if (setup.dir[0] != '\0') {
    take_file(b, p);
    return;
  }
  pthread_mutex_lock(&lock);
  while (c->first[p->peer][b->comm->rank] == NULL) pthread_cond_wait(&moved, &lock);
  message *m = c->first[p->peer][b->comm->rank];
  c->first[p->peer][b->comm->rank] = m->next;
  if (m->next == NULL) c->last[p->peer][b->comm->rank] = NULL;
  pthread_mutex_unlock(&lock);
  if (m->bytes != p->bytes)
    die("rank %d receives %zu bytes of rank %d, which sent %zu", b->comm->rank, p->bytes, p->peer, m->bytes);
  memcpy(si_host(p->at, p->bytes, "ncclRecv"), m->data, m->bytes);
  free(m);
}

static void run(void *arg, int lost) {
  batch *b = arg;
  while (b->hangs) pause();
  for (int i = 0; i < b->n && !lost; i++)
    if (b->pieces[i].sends) post(b, &b->pieces[i]);
  for (int i = 0; i < b->n && !lost; i++)
    if (!b->pieces[i].sends) take(b, &b->pieces[i]);
  free(b);
}

static int flush(const char *function) {
  batch *b = open_batch;
  open_batch = NULL;
  pthread_mutex_lock(&lock);
  const step *s = planned(function);
  if (s != NULL && b != NULL && s->code == HANG) b->hangs = 1;
  if (s != NULL && b != NULL && s->late) {
    b->comm->error = s->code;
    b->hangs = 1; /* its kernel waits for what will not come */
  }
  pthread_mutex_unlock(&lock);
  if (s != NULL && s->code != HANG && !s->late) {
    free(b);
    return s->code;
  }
  if (b == NULL) return NCCL_SUCCESS;
  if (si_queue(function, b->stream, run, b) != CUDA_SUCCESS) {
    free(b);
    return 1; /* ncclUnhandledCudaError */
  }
  return NCCL_IN_PROGRESS;
}

NCCL_EXPORT int ncclGroupStart(void) {
  depth++;
  return NCCL_SUCCESS;
}

NCCL_EXPORT int ncclGroupEnd(void) {
  if (depth < 1) die("ncclGroupEnd without ncclGroupStart");
  return --depth == 0 ? flush("ncclGroupEnd") : NCCL_SUCCESS;
}

NCCL_EXPORT int ncclSend(const void *from, size_t count, int type, int peer, nccl_comm comm,
                         CUstream stream) {
  if (depth == 0) die("ncclSend outside a group");
  add(comm, stream, from, count, type, peer, 1);
  return NCCL_SUCCESS;
}

NCCL_EXPORT int ncclRecv(void *to, size_t count, int type, int peer, nccl_comm comm, CUstream stream) {
  if (depth == 0) die("ncclRecv outside a group");
  add(comm, stream, to, count, type, peer, 0);
  return NCCL_SUCCESS;
}

NCCL_EXPORT int ncclBroadcast(const void *from, void *to, size_t count, int type, int root, nccl_comm comm,
                              CUstream stream) {
  const int ranks = comm->of->ranks;
  if (depth != 0) die("ncclBroadcast in a group is not what the plugin uses");
  if (root == comm->rank && from != to) die("ncclBroadcast: in place is what the plugin uses");
  for (int r = 0; r < ranks; r++)
    if (root == comm->rank && r != root) add(comm, stream, from, count, type, r, 1);
  if (root != comm->rank) add(comm, stream, to, count, type, root, 0);
  return flush("ncclBroadcast");
}
