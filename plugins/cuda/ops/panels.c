/* SPDX-License-Identifier: MIT
 * panels.c - see panels.h. In addition to the matrix on the device it uses two buffers of some rows on the
 * host and the scratch of members, but never a second copy. */
#include "panels.h"

enum { BUFFER_BYTES = 4 << 20 }; /* about; one row at least */

typedef struct pull {
  const cuda_panels *p;
  unsigned char *scratch; /* of all members */
  bs_error *errors;       /* one a member */
  uint32_t members;
  int64_t row, count; /* what is filled now */
  unsigned char *out;
  void *buffers[2];
  CUevent sent[2]; /* buffer i has been read by the device */
} pull;

static void fill_body(void *arg, uint32_t member, uint32_t width) {
  pull *job = arg;
  const cuda_panels *p = job->p;
  const int64_t members = width < job->members ? width : job->members;
  if (member >= members) return;
  const int64_t begin = job->count * member / members, end = job->count * (member + 1) / members;
  for (int64_t i = begin; i < end; i += p->most) {
    const int64_t n = end - i < p->most ? end - i : p->most;
    const int32_t rc = p->fill(p->ctx, job->row + i, n, job->out + (uint64_t)i * p->line,
                               job->scratch + member * p->scratch, &job->errors[member]);
    if (rc == BS_OK) continue;
    job->errors[member].code = rc;
    return;
  }
}

static int32_t fill(pull *job, bs_error *err) {
  const bs_exec *exec = job->p->exec;
  int32_t rc = exec->parallel_for(exec->ctx, fill_body, job);
  if (rc != BS_OK) return bs_fail(err, rc, "BS-CUDA-TEAM", "the rank's thread team failed");
  for (uint32_t i = 0; i < job->members && rc == BS_OK; i++) {
    rc = job->errors[i].code;
    if (rc != BS_OK && err != NULL) *err = job->errors[i];
  }
  return rc;
}

static int32_t upload(const pull *job, int turn, bs_error *err) {
  const cuda_panels *p = job->p;
  const cuda_device *d = p->device;
  const int32_t rc = cuda_upload(d, (unsigned char *)p->to + (uint64_t)job->row * p->line, job->out,
                                 (uint64_t)job->count * p->line, d->stream, err);
  if (rc != BS_OK) return rc;
  return cuda_check(d, d->driver->call.event_record(job->sent[turn], d->stream), "cuEventRecord", err);
}

static int32_t pull_all(pull *job, int64_t each, bs_error *err) {
  const cuda_panels *p = job->p;
  const cuda_functions *call = &p->device->driver->call;
  int32_t rc = BS_OK;
  for (int64_t i = 0; i * each < p->rows && rc == BS_OK; i++) {
    const int turn = (int)(i % 2);
    if (i >= 2)
      rc = cuda_check(p->device, call->event_synchronize(job->sent[turn]), "cuEventSynchronize", err);
    job->row = i * each;
    job->count = p->rows - job->row < each ? p->rows - job->row : each;
    job->out = job->buffers[turn];
    if (rc == BS_OK) rc = fill(job, err);
    if (rc == BS_OK) rc = upload(job, turn, err);
  }
  return rc;
}

static int32_t begin(pull *job, uint64_t bytes, bs_error *err) {
  const cuda_panels *p = job->p;
  const bs_host *host = p->host;
  const cuda_functions *call = &p->device->driver->call;
  job->scratch = host->alloc(host->ctx, p->scratch * job->members + 1, 64);
  job->errors = host->alloc(host->ctx, job->members * sizeof *job->errors, 64);
  if (job->scratch == NULL || job->errors == NULL)
    return bs_fail(err, BS_NO_MEMORY, "BS-CUDA-MEMORY", "no memory for %llu bytes a thread",
                   (unsigned long long)p->scratch);
  for (uint32_t i = 0; i < job->members; i++) {
    job->errors[i].struct_size = (uint32_t)sizeof *job->errors;
    job->errors[i].rank = -1;
  }
  int32_t rc = BS_OK;
  for (int i = 0; i < 2 && rc == BS_OK; i++) {
    rc = cuda_pinned_alloc(p->device, bytes, &job->buffers[i], err);
    if (rc != BS_OK) break;
    memset(job->buffers[i], 0, bytes);
    rc = cuda_check(p->device, call->event_create(&job->sent[i], CU_EVENT_DISABLE_TIMING), "cuEventCreate",
                    err);
  }
  return rc;
}

/* Copies still on their way read the buffers: they end before these do, whatever has failed. */
static int32_t finish(pull *job, int32_t rc, bs_error *err) {
  const cuda_panels *p = job->p;
  const int32_t waited = cuda_wait(p->device, p->device->stream, rc == BS_OK ? err : NULL);
  for (int i = 0; i < 2; i++) {
    if (job->sent[i] != NULL) p->device->driver->call.event_destroy(job->sent[i]);
    if (job->buffers[i] != NULL) cuda_pinned_free(p->device, job->buffers[i]);
  }
  if (job->scratch != NULL) p->host->free(p->host->ctx, job->scratch);
  if (job->errors != NULL) p->host->free(p->host->ctx, job->errors);
  return rc == BS_OK ? waited : rc;
}

int32_t cuda_panels_pull(const cuda_panels *p, bs_error *err) {
  if (p->rows == 0 || p->line == 0) return BS_OK;
  int32_t rc = cuda_enter(p->device, err);
  if (rc != BS_OK) return rc;
  pull job = {.p = p, .members = p->exec->width > 0 ? p->exec->width : 1};
  int64_t each = p->line < BUFFER_BYTES ? (int64_t)(BUFFER_BYTES / p->line) : 1;
  if (each > p->rows) each = p->rows;
  rc = begin(&job, (uint64_t)each * p->line, err);
  if (rc == BS_OK) rc = pull_all(&job, each, err);
  return finish(&job, rc, err);
}
