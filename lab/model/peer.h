/* SPDX-License-Identifier: MIT
 * peer.h - another runtime that `bsrun model bench` times: a program that runs the same model on the same
 * inputs, on command. Lines go to its standard input and come from its standard output
 * (docs/dev/benchmarks.md, "Peers of models"). Its outputs are compared before it is timed. */
#ifndef BS_LAB_MODEL_PEER_H
#define BS_LAB_MODEL_PEER_H
#include "lab/measure/sampler.h"
#include "lab/model/model.h"

typedef struct bs_model_peer bs_model_peer;

typedef struct bs_model_peer_how {
  const char *program; /* its path */
  const char *name;    /* for messages and rows */
  const char *model;   /* another model for it; NULL: ours */
} bs_model_peer_how;

/* Starts the program on the inputs that the model's session has, and waits until it is ready. BS_UNAVAILABLE,
 * BS-MODEL-PEER: it does not start, does not know the model, or ended; the error has what it said. */
int32_t bs_model_peer_open(const bs_model_peer_how *how, const bs_model *model, const char *path,
                           uint32_t threads, int64_t cache_tokens, bs_model_peer **out, bs_error *err);
void bs_model_peer_close(bs_model_peer *peer);
/* Its name and version, as it tells them. */
const char *bs_model_peer_version(const bs_model_peer *peer);
/* Compares the outputs of the last run with the peer's: *out_apart is the largest of all outputs of
 * the root of the squares of the differences over those of the peer's numbers. BS_MISMATCH,
 * BS-MODEL-PEER-DIFFERS: it is above `limit`, or a shape differs. */
int32_t bs_model_peer_compare(bs_model_peer *peer, const bs_model *model, double limit, double *out_apart,
                              bs_error *err);
/* The work of the next samples: "run", "prefill", "decode". */
void bs_model_peer_work(bs_model_peer *peer, const char *work);
/* The peer as an arm of a sampling. */
bs_sampler_arm bs_model_peer_arm(bs_model_peer *peer, uint32_t threads);
#endif
