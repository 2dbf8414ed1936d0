/* SPDX-License-Identifier: MIT
 * torch.c - see torch.h. One socket carries commands and answers: a write to a process that has died is an
 * error and no signal. The end of the socket ends the process. */
#include "lab/kernel/torch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/text.h"
#include "lab/error.h"
#include "lab/process/child.h"

enum { DEADLINE_MS = 300000, SHARED_FD = 3, LINE = 256, GO_S = 5 };

extern char **environ;

struct bs_kernel_torch {
  pid_t child;
  int socket, shared;
  char version[LINE];
  bs_kernel_data *data;
  char *map; /* NULL: no problem is loaded */
  size_t bytes, y_at, seconds_at;
};

static int32_t broken(bs_error *err, const char *what) {
  return bs_error_set(err, BS_UNAVAILABLE, "BS-KERNEL-TORCH", "the process of PyTorch %s", what);
}

/* One line without its end. */
static int32_t read_line(const bs_kernel_torch *t, char *line, size_t size, bs_error *err) {
  size_t used = 0;
  for (;;) {
    struct pollfd wait = {.fd = t->socket, .events = POLLIN};
    char c;
    const int ready = poll(&wait, 1, DEADLINE_MS);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return broken(err, "does not answer");
    if (read(t->socket, &c, 1) != 1) return broken(err, "has ended");
    if (c == '\n') break;
    if (used + 1 < size) line[used++] = c;
  }
  line[used] = '\0';
  return BS_OK;
}

/* Sends a command ("": none) and copies the text after "ok" to answer. "no REASON" is BS_UNSUPPORTED. */
static int32_t ask(const bs_kernel_torch *t, const char *command, char *answer, size_t size, bs_error *err) {
  char line[LINE] = "";
  const size_t length = strlen(command);
  if (length > 0 && send(t->socket, command, length, MSG_NOSIGNAL) != (ssize_t)length)
    return broken(err, "has ended");
  const int32_t rc = read_line(t, line, sizeof line, err);
  if (rc != BS_OK) return rc;
  if (strncmp(line, "ok", 2) != 0)
    return bs_error_set(err, BS_UNSUPPORTED, "BS-KERNEL-TORCH", "PyTorch: %s",
                        strncmp(line, "no ", 3) == 0 ? line + 3 : line);
  snprintf(answer, size, "%s", line + 2 + (line[2] == ' '));
  return BS_OK;
}

/* ---- the process -------------------------------------------------------------------------------- */

static int spawn(bs_kernel_torch *t, const char *python, uint32_t threads, const char *device, int theirs) {
  bs_text script = {0};
  char count[16];
  posix_spawn_file_actions_t actions;
  bs_text_printf(&script, "%s%s", bs_kernel_torch_script[0], bs_kernel_torch_script[1]);
  snprintf(count, sizeof count, "%u", threads);
  if (script.failed || posix_spawn_file_actions_init(&actions) != 0) {
    bs_text_free(&script);
    return 0;
  }
  char *argv[] = {(char *)(uintptr_t)python, "-c", script.data, count, (char *)(uintptr_t)device, NULL};
  posix_spawn_file_actions_adddup2(&actions, theirs, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, theirs, STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, t->shared, SHARED_FD);
  const int failed = posix_spawnp(&t->child, python, &actions, NULL, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  bs_text_free(&script);
  if (failed) t->child = 0;
  return !failed;
}

int32_t bs_kernel_torch_start(const char *python, uint32_t threads, const char *device, bs_kernel_torch **out,
                              bs_error *err) {
  int ends[2] = {-1, -1};
  *out = NULL;
  bs_kernel_torch *t = calloc(1, sizeof *t);
  if (t == NULL) return bs_no_memory(err, "an arm");
  t->socket = -1;
  t->shared = memfd_create("bsrun_torch", MFD_CLOEXEC);
  const int ready = t->shared >= 0 && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0;
  t->socket = ends[0];
  int32_t rc = ready && spawn(t, python, threads > 0 ? threads : 1, device, ends[1])
                   ? BS_OK
                   : bs_error_set(err, BS_UNAVAILABLE, "BS-KERNEL-TORCH", "cannot start '%.200s': %s", python,
                                  strerror(errno));
  if (ends[1] >= 0) close(ends[1]);
  if (rc == BS_OK) rc = ask(t, "", t->version, sizeof t->version, err);
  if (rc != BS_OK) {
    bs_kernel_torch_close(t);
    if (err != NULL) err->code = BS_UNAVAILABLE;
    return BS_UNAVAILABLE;
  }
  *out = t;
  return BS_OK;
}

static void unmap(bs_kernel_torch *t) {
  if (t->map != NULL) munmap(t->map, t->bytes);
  t->map = NULL;
}

/* Waits for its end, which follows the end of the socket; kills a process that hangs after some seconds. */
static void wait_for(pid_t child) {
  int status;
  if (bs_child_ended(child, GO_S, &status) != 0) return;
  bs_child_kill(child);
  bs_child_wait(child);
}

void bs_kernel_torch_close(bs_kernel_torch *t) {
  if (t == NULL) return;
  unmap(t);
  if (t->socket >= 0) close(t->socket);
  if (t->shared >= 0) close(t->shared);
  if (t->child > 0) wait_for(t->child);
  free(t);
}

void bs_kernel_torch_used(const bs_kernel_torch *t, bs_process_use *out) {
  bs_process_use_read(t->child, out);
}

const char *bs_kernel_torch_version(const bs_kernel_torch *t) {
  return t->version;
}

/* ---- a problem ---------------------------------------------------------------------------------- */

typedef struct part {
  const void *from; /* NULL: none */
  size_t bytes;
} part;

/* Inputs side by side, room for y bytes of outputs, and from a whole cache line on for the seconds of a
 * series.
 */
static int32_t share(bs_kernel_torch *t, const part *parts, uint32_t n, size_t y, bs_error *err) {
  size_t at = 0;
  unmap(t);
  t->data = NULL;
  for (uint32_t i = 0; i < n; i++) at += parts[i].bytes;
  t->y_at = at;
  t->seconds_at = at + (y + 63) / 64 * 64;
  t->bytes = t->seconds_at + BS_KERNEL_TORCH_CALLS * sizeof(double);
  if (ftruncate(t->shared, (off_t)t->bytes) != 0) return bs_no_memory(err, "%zu bytes to share", t->bytes);
  void *map = mmap(NULL, t->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, t->shared, 0);
  if (map == MAP_FAILED) return bs_no_memory(err, "%zu bytes to share", t->bytes);
  t->map = map;
  at = 0;
  for (uint32_t i = 0; i < n; at += parts[i++].bytes)
    if (parts[i].from != NULL) memcpy(t->map + at, parts[i].from, parts[i].bytes);
  return BS_OK;
}

static int32_t refuse(const bs_kernel_problem *p, bs_error *err) {
  return bs_error_set(err, BS_UNSUPPORTED, "BS-KERNEL-TORCH", "PyTorch has no %s of %s",
                      bs_kernel_problem_op(p->kind), bs_dtype_name(p->dtype));
}

static int32_t load_linear(bs_kernel_torch *t, const bs_kernel_data *data, bs_error *err) {
  const bs_kernel_problem *p = bs_kernel_data_problem(data);
  const size_t size = BS_DTYPE_BYTES(p->dtype);
  int64_t rows, cols;
  const part parts[] = {{bs_kernel_data_input(data, 0, &rows, &cols), (size_t)(p->B * p->K) * size},
                        {bs_kernel_data_input(data, 1, &rows, &cols), (size_t)(p->N * p->K) * size}};
  char command[LINE], answer[LINE];
  const int32_t rc = share(t, parts, 2, (size_t)(p->B * p->N) * size, err);
  if (rc != BS_OK) return rc;
  snprintf(command, sizeof command, "linear %lld %lld %lld %zu %s\n", (long long)p->B, (long long)p->N,
           (long long)p->K, t->bytes, bs_dtype_name(p->dtype));
  return ask(t, command, answer, sizeof answer, err);
}

static int32_t load_attention(bs_kernel_torch *t, const bs_kernel_data *data, bs_error *err) {
  const bs_kernel_problem *p = bs_kernel_data_problem(data);
  const size_t size = BS_DTYPE_BYTES(p->dtype);
  part parts[BS_KERNEL_GIVEN];
  char command[LINE], answer[LINE];
  for (uint32_t i = 0; i < BS_KERNEL_GIVEN; i++) {
    int64_t rows, cols;
    parts[i].from = bs_kernel_data_input(data, i, &rows, &cols);
    parts[i].bytes = (size_t)(rows * cols) * size;
  }
  const int32_t rc = share(t, parts, BS_KERNEL_GIVEN, (size_t)bs_kernel_data_outputs(data) * size, err);
  if (rc != BS_OK) return rc;
  snprintf(command, sizeof command, "problem %lld %lld %lld %lld %lld %lld %lld %u %lld %lld %zu %s %s\n",
           (long long)p->B, (long long)p->H, (long long)p->G, (long long)p->S, (long long)p->T,
           (long long)p->D, (long long)p->E, p->causal, (long long)p->left, (long long)p->right, t->bytes,
           bs_dtype_name(p->dtype), p->kind == BS_KERNEL_SDPA_DX ? "backward" : "forward");
  return ask(t, command, answer, sizeof answer, err);
}

int32_t bs_kernel_torch_load(bs_kernel_torch *t, bs_kernel_data *data, bs_error *err) {
  const bs_kernel_problem *p = bs_kernel_data_problem(data);
  const int other = bs_kernel_is_product(p) && (p->kind != BS_KERNEL_MATMUL || p->columns != BS_COLUMNS_ALL);
  if (other || BS_DTYPE_BYTES(p->dtype) == 1) return refuse(p, err);
  const int32_t rc = bs_kernel_is_product(p) ? load_linear(t, data, err) : load_attention(t, data, err);
  t->data = data;
  return rc;
}

int32_t bs_kernel_torch_batch(void *torch, uint64_t lead, uint64_t n, bs_sample *out, bs_error *err) {
  char command[LINE], answer[LINE];
  snprintf(command, sizeof command, "batch %llu %llu\n", (unsigned long long)lead, (unsigned long long)n);
  const int32_t rc = ask(torch, command, answer, sizeof answer, err);
  if (rc == BS_OK) out->seconds = strtod(answer, NULL);
  return rc;
}

int32_t bs_kernel_torch_series(void *torch, uint64_t warmup, uint64_t n, double *out_seconds, bs_error *err) {
  bs_kernel_torch *t = torch;
  char command[LINE], answer[LINE];
  if (n > BS_KERNEL_TORCH_CALLS)
    return bs_error_set(err, BS_USAGE, "BS-KERNEL-TORCH", "%llu calls of a series: at most %d",
                        (unsigned long long)n, BS_KERNEL_TORCH_CALLS);
  snprintf(command, sizeof command, "series %llu %llu\n", (unsigned long long)warmup, (unsigned long long)n);
  const int32_t rc = ask(t, command, answer, sizeof answer, err);
  if (rc == BS_OK) memcpy(out_seconds, t->map + t->seconds_at, n * sizeof *out_seconds);
  return rc;
}

int32_t bs_kernel_torch_judge(bs_kernel_torch *t, bs_kernel_numbers *out, bs_error *err) {
  char answer[LINE];
  const int32_t rc = ask(t, "output\n", answer, sizeof answer, err);
  return rc == BS_OK ? bs_kernel_data_judge(t->data, t->map + t->y_at, out, err) : rc;
}
