/* SPDX-License-Identifier: MIT
 * stream.c - streams: each has a worker thread, which runs its work in the order queued; events between them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "standin.h"

struct CUstream_st {
  CUcontext context;
  pthread_cond_t given;
  si_work *first, *last;
  uint64_t issued, done;
  int closing;
  pthread_t thread;
  CUstream next_closed;
};
/* One record of an event. Who waits for the event waits for the last one that was asked for by then, whatever
 * stream a later one is of. */
struct si_record {
  unsigned int flags; /* of the event */
  int done;
  int64_t ns;
  int refs; /* of queued work, and 1 as long as it is the event's last */
};
struct CUevent_st {
  CUcontext context;
  unsigned int flags;
  si_record *last; /* NULL: never recorded, which is done */
};

pthread_mutex_t si_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t progress = PTHREAD_COND_INITIALIZER; /* some work is done */
static CUstream closed;                                    /* streams whose worker ends, or has ended */
_Thread_local const char *si_running = "";

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- workers ---------------------------------------------------------------------------------- */

/* In the order that it was given; after an error of its context nothing runs any more. */
static void run_one(CUstream s, si_work *work) {
  const int lost = s->context->sticky != CUDA_SUCCESS;
  const int late = work->late != CUDA_SUCCESS;
  if (late && !lost) s->context->sticky = work->late;
  pthread_mutex_unlock(&si_lock);
  work->stream = lost || late ? NULL : s; /* NULL: only what others wait for is done */
  work->run(work);
  free(work);
  pthread_mutex_lock(&si_lock);
  s->done++;
  pthread_cond_broadcast(&progress);
}

static void *worker(void *arg) {
  CUstream s = arg;
  pthread_mutex_lock(&si_lock);
  for (;;) {
    while (s->first == NULL && !s->closing) pthread_cond_wait(&s->given, &si_lock);
    si_work *work = s->first;
    if (work == NULL) break;
    s->first = work->next;
    if (s->first == NULL) s->last = NULL;
    run_one(s, work);
  }
  pthread_mutex_unlock(&si_lock);
  return NULL;
}

void si_join_workers(void) {
  pthread_mutex_lock(&si_lock);
  CUstream s = closed;
  closed = NULL;
  pthread_mutex_unlock(&si_lock);
  while (s != NULL) {
    CUstream next = s->next_closed;
    pthread_join(s->thread, NULL);
    pthread_cond_destroy(&s->given);
    free(s);
    s = next;
  }
}

si_work *si_work_new(CUstream stream, CUresult *out_result) {
  si_work *work = NULL;
  if (!si_lives(SI_STREAM, stream) ||
      stream->context != si_current()) { /* the legacy stream is not one of ours */
    *out_result = CUDA_ERROR_INVALID_HANDLE;
    return NULL;
  }
  work = calloc(1, sizeof *work);
  if (work == NULL) si_die("no memory");
  work->stream = stream;
  work->late = si_take_late();
  *out_result = CUDA_SUCCESS;
  return work;
}

void si_submit(si_work *work) {
  CUstream s = work->stream;
  si_graph *graph = si_capture_of(s);
  if (graph != NULL) {
    si_capture_add(graph, work);
    return;
  }
  pthread_mutex_lock(&si_lock);
  if (s->last != NULL)
    s->last->next = work;
  else
    s->first = work;
  s->last = work;
  s->issued++;
  pthread_cond_signal(&s->given);
  pthread_mutex_unlock(&si_lock);
}

static void run_host(si_work *work) {
  si_running = "a library's kernel";
  work->u.host.call(work->u.host.arg, work->stream == NULL);
}

static void repeat_host(si_work *copy) {
  const void *arg = copy->u.host.arg;
  copy->u.host.arg = malloc(copy->u.host.bytes);
  if (copy->u.host.arg == NULL) si_die("no memory");
  memcpy(copy->u.host.arg, arg, copy->u.host.bytes);
}

CUresult si_queue(const char *function, CUstream stream, void (*call)(void *arg, int lost), void *arg) {
  return si_queue_copied(function, stream, call, arg, 0);
}

CUresult si_queue_copied(const char *function, CUstream stream, void (*call)(void *arg, int lost), void *arg,
                         size_t bytes) {
  CUresult rc = si_enter_context(function);
  if (rc != CUDA_SUCCESS) return rc;
  if (bytes == 0 && si_capture_spoilt()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  si_work *work = si_work_new(stream, &rc);
  if (work == NULL) return rc;
  work->u.host.call = call;
  work->u.host.arg = arg;
  work->u.host.bytes = bytes;
  work->repeat = repeat_host;
  work->run = run_host;
  si_submit(work);
  return CUDA_SUCCESS;
}

/* ---- streams ---------------------------------------------------------------------------------- */

CUresult cuStreamCreate(CUstream *out_stream, unsigned int flags) {
  const CUresult rc = si_enter_context("cuStreamCreate");
  if (rc != CUDA_SUCCESS) return rc;
  if (flags > CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  CUstream s = calloc(1, sizeof *s);
  if (s == NULL) si_die("no memory");
  s->context = si_current();
  pthread_cond_init(&s->given, NULL);
  if (pthread_create(&s->thread, NULL, worker, s) != 0) si_die("no more threads");
  si_live(SI_STREAM, s);
  *out_stream = s;
  return CUDA_SUCCESS;
}

/* Returns immediately. The worker ends after its work; the end of its context waits for it. */
CUresult cuStreamDestroy_v2(CUstream s) {
  const CUresult rc = si_enter("cuStreamDestroy_v2");
  if (rc != CUDA_SUCCESS) return rc;
  if (!si_lives(SI_STREAM, s)) return CUDA_ERROR_INVALID_HANDLE;
  si_end(SI_STREAM, s);
  pthread_mutex_lock(&si_lock);
  s->closing = 1;
  s->next_closed = closed;
  closed = s;
  pthread_cond_signal(&s->given);
  pthread_mutex_unlock(&si_lock);
  return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream s) {
  CUresult rc = si_enter_context("cuStreamSynchronize");
  if (rc != CUDA_SUCCESS) return rc;
  if (si_capture_spoilt()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (!si_lives(SI_STREAM, s) || s->context != si_current()) return CUDA_ERROR_INVALID_HANDLE;
  pthread_mutex_lock(&si_lock);
  const uint64_t until = s->issued;
  while (s->done < until) pthread_cond_wait(&progress, &si_lock);
  rc = s->context->sticky;
  pthread_mutex_unlock(&si_lock);
  return rc;
}

CUresult cuStreamQuery(CUstream s) {
  CUresult rc = si_enter_context("cuStreamQuery");
  if (rc != CUDA_SUCCESS) return rc;
  if (si_capture_spoilt()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (!si_lives(SI_STREAM, s) || s->context != si_current()) return CUDA_ERROR_INVALID_HANDLE;
  pthread_mutex_lock(&si_lock);
  if (s->done < s->issued) rc = CUDA_ERROR_NOT_READY;
  if (s->context->sticky != CUDA_SUCCESS) rc = s->context->sticky;
  pthread_mutex_unlock(&si_lock);
  return rc;
}

/* ---- events ----------------------------------------------------------------------------------- */

static void unref(si_record *r) { /* under the lock */
  if (r != NULL && --r->refs == 0) free(r);
}

static int is_done(const struct CUevent_st *e) { /* under the lock */
  return e->last == NULL || e->last->done;
}

CUresult cuEventCreate(CUevent *out_event, unsigned int flags) {
  const CUresult rc = si_enter_context("cuEventCreate");
  if (rc != CUDA_SUCCESS) return rc;
  if ((flags & ~(unsigned)(CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING)) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  CUevent e = calloc(1, sizeof *e);
  if (e == NULL) si_die("no memory");
  e->context = si_current();
  e->flags = flags;
  si_live(SI_EVENT, e);
  *out_event = e;
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent e) {
  const CUresult rc = si_enter("cuEventDestroy_v2");
  if (rc != CUDA_SUCCESS) return rc;
  if (!si_lives(SI_EVENT, e)) return CUDA_ERROR_INVALID_HANDLE;
  si_end(SI_EVENT, e);
  pthread_mutex_lock(&si_lock);
  unref(e->last);
  pthread_mutex_unlock(&si_lock);
  free(e);
  return CUDA_SUCCESS;
}

/* Under the lock. Events without a time do not move a clock that stands still. */
static int64_t event_time(unsigned int flags) {
  static int64_t still;
  const int64_t step = si_get_setup()->event_ns;
  if (step == 0) return now_ns();
  if ((flags & CU_EVENT_DISABLE_TIMING) == 0) still += step;
  return still;
}

static void run_record(si_work *work) {
  si_record *r = work->u.record;
  pthread_mutex_lock(&si_lock);
  r->ns = event_time(r->flags);
  r->done = 1;
  pthread_cond_broadcast(&progress);
  unref(r);
  pthread_mutex_unlock(&si_lock);
}

CUresult cuEventRecord(CUevent e, CUstream stream) {
  CUresult rc = si_enter_context("cuEventRecord");
  if (rc != CUDA_SUCCESS) return rc;
  if (si_capture_spoilt()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (!si_lives(SI_EVENT, e) || e->context != si_current()) return CUDA_ERROR_INVALID_HANDLE;
  si_work *work = si_work_new(stream, &rc);
  if (work == NULL) return rc;
  si_record *r = calloc(1, sizeof *r);
  if (r == NULL) si_die("no memory");
  r->flags = e->flags;
  r->refs = 2;
  pthread_mutex_lock(&si_lock);
  unref(e->last);
  e->last = r;
  pthread_mutex_unlock(&si_lock);
  work->u.record = r;
  work->run = run_record;
  si_submit(work);
  return CUDA_SUCCESS;
}

static void run_wait(si_work *work) {
  si_record *r = work->u.record;
  pthread_mutex_lock(&si_lock);
  while (r != NULL && !r->done) pthread_cond_wait(&progress, &si_lock);
  unref(r);
  pthread_mutex_unlock(&si_lock);
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent e, unsigned int flags) {
  CUresult rc = si_enter_context("cuStreamWaitEvent");
  if (rc != CUDA_SUCCESS) return rc;
  if (si_capture_spoilt()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (!si_lives(SI_EVENT, e)) return CUDA_ERROR_INVALID_HANDLE;
  si_work *work = si_work_new(stream, &rc);
  if (work == NULL) return rc;
  pthread_mutex_lock(&si_lock);
  work->u.record = e->last;
  if (e->last != NULL) e->last->refs++;
  pthread_mutex_unlock(&si_lock);
  work->run = run_wait;
  si_submit(work);
  return CUDA_SUCCESS;
}

CUresult cuEventQuery(CUevent e) {
  CUresult rc = si_enter_context("cuEventQuery");
  if (rc != CUDA_SUCCESS) return rc;
  if (si_capture_spoilt()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (!si_lives(SI_EVENT, e)) return CUDA_ERROR_INVALID_HANDLE;
  pthread_mutex_lock(&si_lock);
  if (!is_done(e)) rc = CUDA_ERROR_NOT_READY;
  if (e->context->sticky != CUDA_SUCCESS) rc = e->context->sticky;
  pthread_mutex_unlock(&si_lock);
  return rc;
}

CUresult cuEventSynchronize(CUevent e) {
  CUresult rc = si_enter_context("cuEventSynchronize");
  if (rc != CUDA_SUCCESS) return rc;
  if (si_capture_spoilt()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (!si_lives(SI_EVENT, e)) return CUDA_ERROR_INVALID_HANDLE;
  pthread_mutex_lock(&si_lock);
  si_record *r = e->last;
  if (r != NULL) r->refs++;
  while (r != NULL && !r->done) pthread_cond_wait(&progress, &si_lock);
  unref(r);
  rc = e->context->sticky;
  pthread_mutex_unlock(&si_lock);
  return rc;
}

#undef cuEventElapsedTime /* newer toolkits name a newer form of it */
CUresult cuEventElapsedTime(float *out_milliseconds, CUevent start, CUevent stop);
CUresult cuEventElapsedTime(float *out_milliseconds, CUevent start, CUevent stop) {
  CUresult rc = si_enter_context("cuEventElapsedTime");
  if (rc != CUDA_SUCCESS) return rc;
  if (!si_lives(SI_EVENT, start) || !si_lives(SI_EVENT, stop)) return CUDA_ERROR_INVALID_HANDLE;
  pthread_mutex_lock(&si_lock);
  if (start->last == NULL || stop->last == NULL || (start->flags | stop->flags) & CU_EVENT_DISABLE_TIMING)
    rc = CUDA_ERROR_INVALID_HANDLE;
  else if (!is_done(start) || !is_done(stop))
    rc = CUDA_ERROR_NOT_READY;
  else
    *out_milliseconds = (float)((double)(stop->last->ns - start->last->ns) * 1e-6);
  pthread_mutex_unlock(&si_lock);
  return rc;
}
