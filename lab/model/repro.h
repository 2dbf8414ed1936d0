/* SPDX-License-Identifier: MIT
 * repro.h - `model check --with repro=tokens`: runs a model in many ways whose bits must be equal, and says
 * what it saw as a certificate (docs/numbers.md). `model check --against` runs it again. */
#ifndef BS_LAB_MODEL_REPRO_H
#define BS_LAB_MODEL_REPRO_H
#include "lab/model/model.h"

typedef struct bs_repro_asked {
  /* Opens a context whose cpu plugin has the table `isa`; NULL: as the user asked. The caller closes it. */
  int32_t (*open)(void *user, const char *isa, bs_context **out_context, bs_error *err);
  void *user;
  uint32_t bits; /* enum bs_session_bits of the cells; RUNS shows what differs without a promise */
  /* The context in which this process has joined others as a rank, and how they were launched ("processes",
   * "mpi"): cells on these ranks come first. A process above rank 0 follows there, and has then done its part
   * (bs_model_done). NULL: all ranks are threads. */
  bs_context *joined;
  const char *launch;
} bs_repro_asked;

/* Runs the model of `request` once, and then again in every cell of a grid. Cells differ in threads and in
 * tables of the cpu plugin; for a model with a key-value cache also in the length of the sequence, its cut
 * into runs, and in other sequences of the same runs; for others in the entries of the batch that a run has.
 * Each number of an output is compared with the first run's, bit by bit; every NaN is equal. The control runs
 * without the promise and should differ. *out: {blockshock_bits, word, definition, model, asked, files,
 * made_constants, inputs, output: {numbers, sha256, rows: [8 digits of each]}, cells: [{table, threads, run,
 * compared, differ, first, equal, and over ranks: ranks, launch}], control: {the same}, not_compared: [text],
 * failed, build, machine} (certificate.h). A cell that differs is no error. BS_UNSUPPORTED: the session
 * cannot be opened so, or the model has no numbers. */
int32_t bs_model_repro(const bs_model_request *request, const bs_repro_asked *asked, json_t **out,
                       bs_error *err);

/* Runs the cells of a certificate (bs_certificate_read) that this machine has, and compares the digests of
 * their outputs with those of the certificate. Of `request` count path, inputs, constants, backend, progress
 * and note; the certificate has the rest. *out: {word, model, cells: [{table, threads, run, rows, differ,
 * first, equal}], not_compared, failed}; differ counts rows. A cell that differs is no error. BS_INPUT:
 * files, made constants or inputs are others, or the certificate contradicts itself; the message names what
 * differs. BS_UNAVAILABLE: no cell can run here. */
int32_t bs_model_repro_against(const bs_model_request *request, const bs_repro_asked *asked,
                               const json_t *certificate, json_t **out, bs_error *err);
#endif
