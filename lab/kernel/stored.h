/* SPDX-License-Identifier: MIT
 * stored.h - a stored build of a plugin (lab/store/builds.h) as an arm: a bsrun process that loads the stored
 * file in place of the installed plugin. It makes its inputs from the problem and the seed. */
#ifndef BS_LAB_KERNEL_STORED_H
#define BS_LAB_KERNEL_STORED_H
#include "lab/kernel/peer.h"

typedef struct bs_kernel_stored {
  const char *name;    /* of the build, for rows and errors */
  const char *file;    /* its .so, an absolute path without links */
  const char *sha256;  /* of it */
  const char *plugin;  /* its id */
  const char *config;  /* the configuration of the other arms, as YAML */
  const char *program; /* bsrun, which calls bs_kernel_stored_serve with `words`; NULL at the end */
  const char *const *words;
} bs_kernel_stored;

/* A provider with the knobs that were asked for, "cpu:online{keys=64}"; and the values that its plan has. */
enum { BS_KERNEL_STORED_NAME = 420, BS_KERNEL_STORED_KNOBS = sizeof((bs_op_echo *)0)->knobs };

/* Starts the process. backend NULL: cpu. BS_UNAVAILABLE, id BS-KERNEL-STORED: its file cannot be used by this
 * bsrun, with the reason: the ABI versions of both, a missing library. */
int32_t bs_kernel_stored_start(const bs_kernel_stored *stored, const char *backend, uint32_t threads,
                               bs_kernel_peer **out, bs_error *err);
/* The provider that problems loaded from now on should have. */
int32_t bs_kernel_stored_choose(bs_kernel_peer *peer, const char *provider, const char *knobs, bs_error *err);
/* The provider of the loaded problem: the one that was chosen; without its knobs where the build does not
 * take them; else the first of the plugin that serves. */
int32_t bs_kernel_stored_provider(bs_kernel_peer *peer, char out[BS_KERNEL_STORED_NAME], bs_error *err);
/* The knobs of its plan, as the implementation reports them; "": it has none, or does not report them. */
int32_t bs_kernel_stored_knobs(bs_kernel_peer *peer, char out[BS_KERNEL_STORED_KNOBS], bs_error *err);

/* stored_child.c: the process. It reads requests from standard input, a socket, and answers there until the
 * socket ends. What plugins print goes to standard error. */
int32_t bs_kernel_stored_serve(bs_error *err);
#endif
