/* SPDX-License-Identifier: MIT
 * stub_worker.c - stands for `bsrun run --planned FILE`: commits a run of each phase of the point, beside a
 * "rank" in a session of its own that holds a segment of shared memory. When its rank is killed it commits
 * "failed", as rank 0 does, and ends. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/error.h"
#include "lab/store/store.h"

enum { RANK_FAILED = 7 };

static void become_rank(pid_t parent) {
  char name[64];
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  setsid();
  snprintf(name, sizeof name, "/vader_segment.stub.%d", (int)getpid());
  const int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
  if (fd < 0 || ftruncate(fd, 4096) != 0) _exit(1);
  if (mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED) _exit(1);
  for (;;) pause();
}

static void end_rank(pid_t rank) {
  char name[64];
  snprintf(name, sizeof name, "/vader_segment.stub.%d", (int)rank);
  kill(rank, SIGKILL);
  waitpid(rank, NULL, 0);
  shm_unlink(name);
}

/* A record of some size, so that a small limit of the size of files is a full disk to it. */
static json_t *make_record(const json_t *input, const char *phase, const char *key, int ok) {
  static char pad[50000];
  memset(pad, 'x', sizeof pad - 1);
  return json_pack("{s:s, s:s, s:O, s:O, s:s, s:b, s:[{s:s, s:s}], s:s, s:s}", "request_key", key, "phase",
                   phase, "sweep", json_object_get(input, "sweep"), "point", json_object_get(input, "point"),
                   "status", ok ? "ok" : "failed", "passed", ok, "gates", "name", "stub", "state",
                   ok ? "pass" : "none", "method", "stub", "pad", pad);
}

static int32_t commit(const char *root, const json_t *input, size_t k, int ok, bs_error *err) {
  bs_run *run = NULL;
  bs_node *config = bs_config_new_map();
  const char *phase = json_string_value(json_array_get(json_object_get(input, "phases"), k));
  const char *key = json_string_value(json_array_get(json_object_get(input, "keys"), k));
  const bs_run_request q = {.out_dir = root,
                            .group = json_string_value(json_object_get(input, "sweep")),
                            .phase = phase,
                            .method = "stub",
                            .key = key,
                            .config = config,
                            .env = "{}\n",
                            .seed = 1};
  json_t *record = make_record(input, phase, key, ok);
  int32_t rc = bs_store_begin(&q, &run, err);
  if (rc == BS_OK) rc = bs_store_append(run, record, err);
  if (rc != BS_OK) {
    bs_store_abandon(run);
  } else {
    rc = bs_store_commit(run, ok ? "ok" : "failed", err);
  }
  json_decref(record);
  bs_config_free(config);
  return rc;
}

/* stub_worker ROOT FILE */
int main(int argc, char **argv) {
  bs_error err = BS_ERROR_INIT;
  int32_t rc = BS_OK;
  json_t *input = argc == 3 ? json_load_file(argv[2], 0, NULL) : NULL;
  if (input == NULL) return 2;
  const char *fails = getenv("BS_STUB_FAILS"); /* with this id, and the exit code of a full disk */
  if (fails != NULL) {
    fprintf(stderr, "stub: error[%s] cannot\n", fails);
    fflush(NULL);
    _exit((int)bs_status_exit_code(BS_IO));
  }
  const pid_t self = getpid(), rank = fork();
  if (rank == 0) become_rank(self);
  const size_t n = json_array_size(json_object_get(input, "phases"));
  for (size_t k = 0; rc == BS_OK && k < n; k++) {
    const int ok = waitpid(rank, NULL, WNOHANG) != rank;
    rc = commit(argv[1], input, k, ok, &err);
    if (!ok) _exit(RANK_FAILED);
  }
  end_rank(rank);
  json_decref(input);
  if (rc != BS_OK) fprintf(stderr, "stub: error[%s] %s\n", err.id, err.message);
  fflush(NULL);
  /* LeakSanitizer looks from a child process at exit, and waits for ever when the test kills this child. */
  _exit((int)bs_status_exit_code(rc));
}
