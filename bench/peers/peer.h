/* SPDX-License-Identifier: MIT
 * peer.h - what the plugins of this folder share. Each adds matmul of a foreign library to the backend cpu,
 * so that `bsrun bench matmul --plugin bs_NAME.so` judges it by the same gates and times it in the same pairs
 * as the plugin cpu. It is called as its user calls it: with its own threads, as many as the rank's team has,
 * which start when a plan is made and run on all cores of the process. It is chosen by its name alone. */
#ifndef BS_BENCH_PEER_H
#define BS_BENCH_PEER_H
#include <blockshock/plugin.h>

typedef struct peer peer;

/* Y [B,N] = X [B,K] W [N,K]^T, all dense. */
typedef struct peer_plan {
  const peer *of;
  const bs_exec *exec;
  const void *w; /* row after row */
  int64_t N, K, B;
  uint32_t dtype;
  const char *knobs; /* of the query; during make alone */
  char way[32];      /* the value of the library's knob that is in use */
  char build[72];    /* version, and kernel where it is known */
  void *own;         /* the library's */
} peer_plan;

/* A library. Slots return a status and fill err. */
typedef struct peer_library {
  const char *name;    /* of the implementation and of the error's id */
  const char *summary; /* one line */
  const char *file;    /* for dlopen, unless the parameter `library` names another */
  const bs_knob *knob;
  int f32_only;
  /* More bytes than X and Y that a plan takes; NULL: none. */
  uint64_t (*workspace)(const bs_op_query *query);
  /* Finds its functions: 0 where one is missing. */
  int (*open)(void *library, peer *of);
  /* Fills way, build and own; x and y may be written. Threads start in it. */
  int32_t (*make)(peer_plan *plan, void *x, void *y, bs_error *err);
  int32_t (*call)(const peer_plan *plan, void *x, void *y, bs_error *err);
  void (*drop)(peer_plan *plan); /* may follow a failed make */
} peer_library;

struct peer {
  const bs_host *host;
  const peer_library *library;
  void *functions[32]; /* the library's table */
};

/* Opens the library and registers the op; what `activate` of a plugin does. */
int32_t peer_activate(const peer_library *library, const bs_host *host, bs_plugin_self *self,
                      void **out_state, bs_error *err);
int32_t peer_deactivate(void *state, bs_error *err);
/* 1: the function `name` was found and is in *out. */
int peer_find(void *library, const char *name, void *out);
#endif
