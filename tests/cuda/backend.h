/* SPDX-License-Identifier: MIT
 * backend.h - the cuda plugin's backend over the stand-in, found as a user's is: by a context. */
#ifndef BS_TESTS_CUDA_BACKEND_H
#define BS_TESTS_CUDA_BACKEND_H
#include <check.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "blockshock/blockshock.h"
#include "core/base/error.h"
#include "tools/standin/control.h"

typedef struct over {
  bs_context *context;
  const bs_backend *b;
  void *state;
} over;

static inline const char *standin_path(void) {
  const char *path = getenv("BS_TEST_CUDA_STANDIN");
  ck_assert_msg(path != NULL, "BS_TEST_CUDA_STANDIN is not set: run the test through ctest");
  return path;
}

/* `driver` NULL: the stand-in, as `setup` (BS_CUDA_STANDIN; may be NULL) makes it. more: a further parameter,
 * or NULL. */
static inline int32_t over_try(const char *driver, const char *setup, const char *more, over *out,
                               bs_error *err) {
  char param[1200];
  const char *dirs[] = {getenv("BS_TEST_PLUGIN_DIR")}, *params[] = {param, more};
  *out = (over){NULL, NULL, NULL};
  snprintf(param, sizeof param, "cuda.driver=%s", driver != NULL ? driver : standin_path());
  if (setup != NULL) setenv("BS_CUDA_STANDIN", setup, 1);
  const bs_context_options options = {.struct_size = sizeof options,
                                      .trust = BS_TRUST_ANY,
                                      .plugin_dirs = dirs,
                                      .n_plugin_dirs = 1,
                                      .params = params,
                                      .n_params = more != NULL ? 2 : 1};
  const int32_t rc = bs_context_open(&options, &out->context, err);
  return rc == BS_OK ? bs_find_backend(out->context, "cuda", &out->b, &out->state, err) : rc;
}
static inline over over_open_with(const char *driver, const char *setup, const char *more) {
  over o;
  bs_error err = BS_ERROR_INIT;
  const int32_t rc = over_try(driver, setup, more, &o, &err);
  ck_assert_msg(rc == BS_OK, "%s: %s", err.id, err.message);
  return o;
}
static inline over over_open(const char *driver, const char *setup) {
  return over_open_with(driver, setup, NULL);
}

/* What the stand-in says; it must have been opened by the plugin. */
static inline void *standin_symbol(const char *name) {
  void *library = dlopen(standin_path(), RTLD_NOW | RTLD_NOLOAD);
  ck_assert_msg(library != NULL, "%s", dlerror());
  void *at = dlsym(library, name);
  ck_assert_ptr_nonnull(at);
  return at;
}
static inline int64_t living(uint32_t kind) {
  void *at = standin_symbol(SI_COUNT_SYMBOL);
  si_count_fn count;
  memcpy(&count, &at, sizeof count);
  return count(kind);
}
static inline uint64_t calls_of(const char *function) {
  void *at = standin_symbol(SI_CALLS_SYMBOL);
  si_calls_fn calls;
  memcpy(&calls, &at, sizeof calls);
  return calls(function);
}
/* Primary contexts stay until the plugin ends. */
static inline void nothing_lives(void) {
  static const char *const names[SI_KIND_COUNT_] = {"contexts", "streams",       "events", "modules",
                                                    "memory",   "pinned memory", "pools"};
  for (uint32_t k = SI_CONTEXT + 1; k < SI_KIND_COUNT_; k++)
    ck_assert_msg(living(k) == 0, "%lld %s are left", (long long)living(k), names[k]);
}
/* Closes it: the plugin gives back the contexts that it kept. */
static inline void over_close(const over *o) {
  bs_context_close(o->context);
  ck_assert_int_eq(living(SI_CONTEXT), 0);
}
#endif
