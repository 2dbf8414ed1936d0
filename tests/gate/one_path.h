/* SPDX-License-Identifier: MIT
 * one_path.h - the gates through one kernel path of the cpu plugin: contexts in which it alone may serve, and
 * proof that it did. A path is an instruction set of our own kernels, or "dnnl"; NULL: as chosen. "amx" and
 * "amx_model" are the matmul of bf16 by tiles. */
#ifndef TESTS_GATE_ONE_PATH_H
#define TESTS_GATE_ONE_PATH_H
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "blockshock/plugin.h"
#include "core/base/error.h"
#include "lab/lab.h"
#include "tests/marks.h"

static inline int path_is_dnnl(const char *path) {
  return path != NULL && strcmp(path, "dnnl") == 0;
}

static inline int path_is_tiles(const char *path) {
  return path != NULL && strncmp(path, "amx", 3) == 0;
}

/* Whether the path serves a dtype that our other kernels serve. */
static inline int path_has(const char *path, uint32_t dtype) {
  return !path_is_tiles(path) || dtype == BS_BF16;
}

static inline const char *path_matmul(const char *path) {
  return path_is_dnnl(path) ? "dnnl" : path_is_tiles(path) ? "amx" : "packed";
}

/* Without matmul=packed oneDNN would take the products that it does better, whatever isa says. */
static inline int32_t path_open(const char *path, bs_context **out, bs_error *err) {
  char isa[32] = "cpu.isa=auto", matmul[32];
  const char *const params[2] = {matmul, isa};
  snprintf(matmul, sizeof matmul, "cpu.matmul=%s", path_matmul(path));
  const bs_context_options options = {
      .struct_size = sizeof options, .params = params, .n_params = path != NULL ? 2 : 0};
  if (path != NULL && !path_is_dnnl(path)) snprintf(isa, sizeof isa, "cpu.isa=%s", path);
  return bs_context_open(&options, out, err);
}

/* What is chosen for a product, and what oneDNN's implementation answers. */
typedef struct path_answer {
  char name[64], algo[64];
  uint32_t dnnl_reason; /* BS_REASON_NOT_BUILT when it is not among the candidates */
} path_answer;

static inline void path_hear(void *user, const bs_op_candidate *c) {
  path_answer *a = user;
  if (strcmp(c->name, "matmul@cpu/dnnl") == 0) a->dnnl_reason = c->answer->reason;
  if (!c->chosen) return;
  snprintf(a->name, sizeof a->name, "%s", c->name);
  snprintf(a->algo, sizeof a->algo, "%s", c->answer->algo);
}

static inline int32_t path_ask(bs_context *host, uint32_t dtype, path_answer *out, bs_error *err) {
  const bs_tensor_desc x = bs_desc_2d(dtype, 64, 128), y = bs_desc_2d(dtype, 64, 96);
  const bs_tensor_desc *const args[4] = {&x, NULL, NULL, &y};
  const bs_op_query q = {
      .struct_size = sizeof q, .nargs = 4, .op = "matmul", .args = args, .weight_dtype = dtype};
  memset(out, 0, sizeof *out);
  out->dnnl_reason = BS_REASON_NOT_BUILT;
  return bs_op_explain(host, "cpu", &q, path_hear, out, err);
}

static inline int path_lacks(const char *path) {
  bs_error err = BS_ERROR_INIT;
  bs_context *host = NULL;
  const bs_backend *backend = NULL;
  void *state = NULL;
  path_answer a;
  int missing = 0;
  if (path_open(path, &host, &err) != BS_OK) return 0;
  const int32_t rc = bs_find_backend(host, "cpu", &backend, &state, &err);
  if (rc == BS_UNAVAILABLE) {
    missing = 1;
  } else if (rc == BS_OK && path_is_dnnl(path)) {
    missing = path_ask(host, BS_F32, &a, &err) == BS_UNSUPPORTED &&
              (a.dnnl_reason == BS_REASON_NOT_BUILT || a.dnnl_reason == BS_REASON_LIB_VERSION);
  }
  if (missing) printf("not run: %s\n", err.message);
  bs_context_close(host);
  return missing;
}

/* 1 and why on stdout: this processor, or this machine's oneDNN, lacks the path. Anything else is the tests'
 * to fail by. Asked in a process of its own: the tests fork, and oneDNN must not be open before. */
static inline int path_missing(const char *path) {
  int status = 0;
  fflush(stdout);
  const pid_t pid = fork();
  if (pid == 0) {
    const int missing = path_lacks(path);
    fflush(stdout);
    _exit(missing ? 77 : 0);
  }
  return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 77;
}

/* Our kernels say their instruction set: "packed-avx2", "tiles-amx". oneDNN may lack the 16-bit dtypes. */
static inline void path_must_be_chosen(const char *path, bs_context *host) {
  static const uint32_t dtypes[] = {BS_F32, BS_F16, BS_BF16};
  for (size_t i = 0; path != NULL && i < sizeof dtypes / sizeof dtypes[0]; ++i) {
    bs_error err = BS_ERROR_INIT;
    path_answer a;
    char wanted[64], name[64];
    if (!path_has(path, dtypes[i])) continue;
    const int32_t rc = path_ask(host, dtypes[i], &a, &err);
    if (path_is_dnnl(path) && i > 0 && rc == BS_UNSUPPORTED) continue;
    ck_assert_msg(rc == BS_OK, "%s: %s", err.id, err.message);
    snprintf(name, sizeof name, "matmul@cpu/%s", path_matmul(path));
    ck_assert_str_eq(a.name, name);
    if (path_is_dnnl(path)) continue;
    snprintf(wanted, sizeof wanted, "%s-%s", path_is_tiles(path) ? "tiles" : "packed", path);
    ck_assert_str_eq(a.algo, wanted);
  }
}

/* Opens the context before each test, by the path alone. */
static inline void path_setup(const char *path, bs_context **out_context) {
  bs_error err = BS_ERROR_INIT;
  const int32_t rc = path_open(path, out_context, &err);
  ck_assert_msg(rc == BS_OK, "%s", err.message);
  path_must_be_chosen(path, *out_context);
}

/* Every product of a run, by its list of algorithms, was the path's. */
static inline void path_must_have_run(const char *path, const char *algorithms) {
  if (path == NULL) return;
  char wanted[64];
  snprintf(wanted, sizeof wanted, "matmul@cpu/%s", path_matmul(path));
  const char *at = strstr(algorithms, "matmul@");
  ck_assert_msg(at != NULL, "no product in: %s", algorithms);
  for (; at != NULL; at = strstr(at + 1, "matmul@"))
    ck_assert_msg(strncmp(at, wanted, strlen(wanted)) == 0, "%s served, not %s", at, wanted);
}
#endif
