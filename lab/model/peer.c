/* SPDX-License-Identifier: MIT
 * peer.c - see peer.h. */
#include "lab/model/peer.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "formats/npy.h"
#include "lab/error.h"
#include "lab/measure/load.h"
#include "lab/process/child.h"
#include "lab/stop.h"

enum { MOST_PORTS = 24, WORDS = 8 + 2 * MOST_PORTS, LINE = 1024, ANSWER_MS = 600000, POLL_MS = 100 };

struct bs_model_peer {
  const char *name, *work;
  char version[200];
  char folder[200]; /* of the inputs' files and the outputs'; "": none */
  pid_t pid;
  int fd; /* its standard input and output */
  char line[LINE];
  size_t held; /* of line: bytes that were read and are not taken */
};

const char *bs_model_peer_version(const bs_model_peer *p) {
  return p->version;
}

void bs_model_peer_work(bs_model_peer *p, const char *work) {
  p->work = work;
}

/* ---- lines ----------------------------------------------------------------------------------- */

static int32_t peer_error(const bs_model_peer *p, bs_error *err, const char *what, const char *said) {
  return bs_error_set(err, BS_UNAVAILABLE, "BS-MODEL-PEER", "the peer %.60s %s%.300s", p->name, what, said);
}

static int32_t send_line(const bs_model_peer *p, const char *line, bs_error *err) {
  const size_t size = strlen(line);
  for (size_t at = 0; at < size;) {
    const ssize_t n = send(p->fd, line + at, size - at, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return peer_error(p, err, "has ended: ", strerror(errno));
    at += (size_t)n;
  }
  return BS_OK;
}

/* Takes the line that ends at `end` out of what was read. */
static void take_line(bs_model_peer *p, const char *end, char out[LINE]) {
  const size_t size = (size_t)(end - p->line);
  memcpy(out, p->line, size);
  out[size] = '\0';
  p->held -= size + 1;
  memmove(p->line, end + 1, p->held);
}

static int32_t read_line(bs_model_peer *p, char out[LINE], bs_error *err) {
  for (int waited = 0; waited < ANSWER_MS;) {
    const char *end = memchr(p->line, '\n', p->held);
    if (end != NULL) {
      take_line(p, end, out);
      return strncmp(out, "error ", 6) == 0 ? peer_error(p, err, "says: ", out + 6) : BS_OK;
    }
    if (p->held == sizeof p->line) return peer_error(p, err, "writes a line that is too long", "");
    struct pollfd wait = {.fd = p->fd, .events = POLLIN};
    const int ready = poll(&wait, 1, POLL_MS);
    if (ready <= 0) {
      waited += POLL_MS;
      const int32_t rc = bs_stop_check(err);
      if (rc != BS_OK) return rc;
      continue;
    }
    const ssize_t n = recv(p->fd, p->line + p->held, sizeof p->line - p->held, 0);
    if (n == 0) return peer_error(p, err, "has ended", "");
    if (n > 0) p->held += (size_t)n;
  }
  return peer_error(p, err, "does not answer", "");
}

/* Sends a line and reads the answer, whose first word must be `want`; *out_rest is what follows. */
static int32_t ask(bs_model_peer *p, const char *line, const char *want, char answer[LINE],
                   const char **out_rest, bs_error *err) {
  const size_t size = strlen(want);
  int32_t rc = line != NULL ? send_line(p, line, err) : BS_OK;
  if (rc == BS_OK) rc = read_line(p, answer, err);
  if (rc != BS_OK) return rc;
  if (strncmp(answer, want, size) != 0 || (answer[size] != ' ' && answer[size] != '\0'))
    return peer_error(p, err, "answers: ", answer);
  *out_rest = answer + size + (answer[size] == ' ');
  return BS_OK;
}

/* ---- files ----------------------------------------------------------------------------------- */

static int32_t make_folder(bs_model_peer *p, bs_error *err) {
  const char *in = getenv("TMPDIR");
  char path[sizeof p->folder];
  const int length =
      snprintf(path, sizeof path, "%s/bsrun-peer-XXXXXX", in != NULL && in[0] != '\0' ? in : "/tmp");
  if (length >= (int)sizeof path)
    return bs_error_set(err, BS_IO, "BS-MODEL-PEER", "TMPDIR has %d characters, which are too many", length);
  if (mkdtemp(path) == NULL)
    return bs_error_errno(err, BS_IO, "BS-MODEL-PEER", errno, "cannot make the folder %.200s", path);
  memcpy(p->folder, path, sizeof path);
  return BS_OK;
}

/* Ports have names of any characters: files have numbers. */
static void input_path(const bs_model_peer *p, uint32_t port, char out[256]) {
  snprintf(out, 256, "%s/%u.npy", p->folder, port);
}

/* In the name of an output each / is _. */
static void output_path(const bs_model_peer *p, const char *name, char *out, size_t size) {
  const int n = snprintf(out, size, "%s/", p->folder);
  snprintf(out + n, size - (size_t)n, "%.200s.npy", name);
  for (char *c = out + n; (c = strchr(c, '/')) != NULL;) *c = '_';
}

static int32_t write_inputs(const bs_model_peer *p, const bs_model *model, bs_error *err) {
  const uint32_t n = bs_graph_port_count(model->graph, 1);
  int32_t rc = BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < n; i++) {
    bs_tensor t = {.struct_size = sizeof t};
    char path[256];
    uint32_t dtype;
    uint64_t count;
    rc = bs_session_get(model->session, i, &t, err);
    void *dense = rc == BS_OK ? bs_model_dense(&t, &dtype, &count) : NULL;
    if (rc == BS_OK && dense == NULL) rc = bs_no_memory(err, "an input");
    input_path(p, i, path);
    if (rc == BS_OK) rc = bs_npy_write(path, dtype, t.rank, t.dims, dense, err);
    free(dense);
  }
  return rc;
}

/* With all that the peer wrote into it. */
static void remove_folder(const bs_model_peer *p) {
  const struct dirent *entry;
  DIR *folder = p->folder[0] != '\0' ? opendir(p->folder) : NULL;
  if (folder == NULL) return;
  while ((entry = readdir(folder)) != NULL) (void)unlinkat(dirfd(folder), entry->d_name, 0);
  closedir(folder);
  rmdir(p->folder);
}

/* ---- the program ----------------------------------------------------------------------------- */

/* In the child: as many cores as it has threads. */
static void pin(void *user) {
  const uint32_t threads = *(const uint32_t *)user;
  cpu_set_t all, some;
  if (sched_getaffinity(0, sizeof all, &all) != 0) return;
  CPU_ZERO(&some);
  uint32_t n = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE && n < threads; cpu++) {
    if (!CPU_ISSET(cpu, &all)) continue;
    CPU_SET(cpu, &some);
    n++;
  }
  if (n > 0) (void)sched_setaffinity(0, sizeof some, &some);
}

typedef struct command {
  char *words[WORDS];
  size_t n;
  char *texts[MOST_PORTS];
  size_t n_texts;
  char threads[16], tokens[24];
} command;

static void add(command *c, const char *word) {
  c->words[c->n++] = (char *)(uintptr_t)word;
}

/* "NAME=FILE" of each input. */
static int32_t add_inputs(command *c, const bs_model_peer *p, const bs_model *model, bs_error *err) {
  for (uint32_t i = 0; i < bs_graph_port_count(model->graph, 1); i++) {
    char path[256];
    const char *name = "";
    const int32_t rc = bs_session_port(model->session, i, &name, NULL, err);
    if (rc != BS_OK) return rc;
    input_path(p, i, path);
    const size_t size = strlen(name) + strlen(path) + 2;
    char *text = malloc(size);
    if (text == NULL) return bs_no_memory(err, "a peer's words");
    snprintf(text, size, "%s=%s", name, path);
    c->texts[c->n_texts++] = text;
    add(c, "--input");
    add(c, text);
  }
  return BS_OK;
}

static int32_t start(bs_model_peer *p, const bs_model_peer_how *how, command *c, uint32_t threads,
                     bs_error *err) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return bs_error_errno(err, BS_IO, "BS-MODEL-PEER", errno, "no socket for the peer");
  const bs_child child = {.program = how->program,
                          .words = c->words,
                          .run = pin,
                          .user = &threads,
                          .stdio = {ends[1], ends[1], BS_CHILD_KEEP},
                          .death = SIGKILL,
                          .group = 0};
  p->pid = bs_child_start(&child);
  close(ends[1]);
  p->fd = ends[0];
  return p->pid > 0 ? BS_OK : bs_error_errno(err, BS_UNAVAILABLE, "BS-MODEL-PEER", errno, "no process");
}

static int32_t run_program(bs_model_peer *p, const bs_model_peer_how *how, const bs_model *model,
                           const char *path, uint32_t threads, int64_t cache_tokens, bs_error *err) {
  command c = {.n = 0};
  char answer[LINE];
  const char *rest;
  snprintf(c.threads, sizeof c.threads, "%u", threads);
  snprintf(c.tokens, sizeof c.tokens, "%lld", (long long)cache_tokens);
  add(&c, how->program);
  add(&c, how->model != NULL ? how->model : path);
  add(&c, "--threads");
  add(&c, c.threads);
  add(&c, "--cache-tokens");
  add(&c, c.tokens);
  int32_t rc = add_inputs(&c, p, model, err);
  if (rc == BS_OK) rc = start(p, how, &c, threads, err);
  for (size_t i = 0; i < c.n_texts; i++) free(c.texts[i]);
  if (rc == BS_OK) rc = ask(p, NULL, "ready", answer, &rest, err);
  if (rc == BS_OK) snprintf(p->version, sizeof p->version, "%.199s", rest);
  return rc;
}

int32_t bs_model_peer_open(const bs_model_peer_how *how, const bs_model *model, const char *path,
                           uint32_t threads, int64_t cache_tokens, bs_model_peer **out, bs_error *err) {
  *out = NULL;
  if (bs_graph_port_count(model->graph, 1) > MOST_PORTS)
    return bs_error_set(err, BS_UNSUPPORTED, "BS-MODEL-PEER", "a peer takes at most %d inputs", MOST_PORTS);
  bs_model_peer *p = calloc(1, sizeof *p);
  if (p == NULL) return bs_no_memory(err, "a peer");
  p->name = how->name;
  p->work = "run";
  p->fd = -1;
  int32_t rc = make_folder(p, err);
  if (rc == BS_OK) rc = write_inputs(p, model, err);
  if (rc == BS_OK) rc = run_program(p, how, model, path, threads, cache_tokens, err);
  if (rc == BS_OK)
    *out = p;
  else
    bs_model_peer_close(p);
  return rc;
}

void bs_model_peer_close(bs_model_peer *p) {
  int status;
  if (p == NULL) return;
  if (p->fd >= 0) close(p->fd); /* the end of its input ends it */
  if (p->pid > 0 && bs_child_ended(p->pid, 5, &status) == 0) {
    bs_child_kill(p->pid);
    (void)bs_child_wait(p->pid);
  }
  remove_folder(p);
  free(p);
}

/* ---- outputs --------------------------------------------------------------------------------- */

static int same_shape(const bs_tensor *a, const bs_npy *b) {
  int same = a->rank == b->rank;
  for (uint32_t i = 0; same && i < a->rank; i++) same = a->dims[i] == b->dims[i];
  return same;
}

static int32_t other_shape(const bs_model_peer *p, const char *name, const bs_tensor *ours, const bs_npy *its,
                           bs_error *err) {
  char a[200] = "", b[200] = "";
  size_t at = 0;
  for (uint32_t i = 0; i < ours->rank && at < sizeof a - 24; i++)
    at += (size_t)snprintf(a + at, sizeof a - at, "%s%lld", i > 0 ? "," : "", (long long)ours->dims[i]);
  at = 0;
  for (uint32_t i = 0; i < its->rank && at < sizeof b - 24; i++)
    at += (size_t)snprintf(b + at, sizeof b - at, "%s%lld", i > 0 ? "," : "", (long long)its->dims[i]);
  bs_error_set(err, BS_MISMATCH, "BS-MODEL-PEER-DIFFERS",
               "output '%.60s' of the peer %.60s is [%s], ours is [%s]: nothing is timed", name, p->name, b,
               a);
  bs_error_hint(err, "is it the same model, on the same inputs?");
  return BS_MISMATCH;
}

/* The root of the squares of the differences over those of the wanted numbers. */
static double distance(uint32_t dtype, const void *got, const bs_npy *want) {
  double off = 0, all = 0;
  for (uint64_t i = 0; i < want->count; i++) {
    const double w = bs_load_f64(want->dtype, want->data, (int64_t)i),
                 d = bs_load_f64(dtype, got, (int64_t)i) - w;
    off += d * d;
    all += w * w;
  }
  return off == 0 ? 0 : isfinite(off) && all > 0 ? sqrt(off / all) : INFINITY;
}

static int32_t compare_one(const bs_model_peer *p, const bs_model *model, uint32_t port, double *io_apart,
                           bs_error *err) {
  bs_tensor t = {.struct_size = sizeof t};
  const char *name = "";
  char path[400];
  bs_npy want = {0};
  uint32_t dtype;
  uint64_t count;
  int32_t rc = bs_session_port(model->session, port, &name, NULL, err);
  if (rc == BS_OK) rc = bs_session_get(model->session, port, &t, err);
  output_path(p, name, path, sizeof path);
  if (rc == BS_OK && access(path, F_OK) != 0) return peer_error(p, err, "writes no output ", name);
  if (rc == BS_OK) rc = bs_npy_open(path, &want, err);
  if (rc != BS_OK) return rc;
  void *dense = bs_model_dense(&t, &dtype, &count);
  if (dense == NULL)
    rc = bs_no_memory(err, "an output");
  else if (!same_shape(&t, &want))
    rc = other_shape(p, name, &t, &want, err);
  else
    *io_apart = fmax(*io_apart, distance(dtype, dense, &want));
  free(dense);
  bs_npy_close(&want);
  unlink(path);
  return rc;
}

int32_t bs_model_peer_compare(bs_model_peer *p, const bs_model *model, double limit, double *out_apart,
                              bs_error *err) {
  char line[256], answer[LINE];
  const char *rest;
  const uint32_t first = bs_graph_port_count(model->graph, 1);
  *out_apart = 0;
  snprintf(line, sizeof line, "outputs %s\n", p->folder);
  int32_t rc = ask(p, line, "done", answer, &rest, err);
  for (uint32_t i = 0; rc == BS_OK && i < bs_graph_port_count(model->graph, 0); i++)
    rc = compare_one(p, model, first + i, out_apart, err);
  if (rc != BS_OK || *out_apart <= limit) return rc;
  bs_error_set(err, BS_MISMATCH, "BS-MODEL-PEER-DIFFERS",
               "the outputs differ from those of the peer %.60s by %.3g of their size, %g is allowed: "
               "nothing is timed",
               p->name, *out_apart, limit);
  bs_error_hint(err, "is it the same model, on the same inputs?");
  return BS_MISMATCH;
}

/* ---- times ----------------------------------------------------------------------------------- */

static int32_t take_sample(void *user, uint64_t lead, uint64_t n, bs_sample *out, bs_error *err) {
  bs_model_peer *p = user;
  char line[256], answer[LINE];
  const char *rest;
  char *end = NULL;
  snprintf(line, sizeof line, "time %s %llu %llu\n", p->work, (unsigned long long)lead,
           (unsigned long long)n);
  const int32_t rc = ask(p, line, "seconds", answer, &rest, err);
  if (rc != BS_OK) return rc;
  out->seconds = strtod(rest, &end);
  return end != rest && out->seconds > 0 ? BS_OK : peer_error(p, err, "gives no seconds: ", answer);
}

static void elsewhere(void *user, bs_process_use *out) {
  bs_process_use_read(((const bs_model_peer *)user)->pid, out);
}

bs_sampler_arm bs_model_peer_arm(bs_model_peer *p, uint32_t threads) {
  return (bs_sampler_arm){
      .name = p->name, .user = p, .batch = take_sample, .threads = threads, .elsewhere = elsewhere};
}
