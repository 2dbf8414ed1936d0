/* SPDX-License-Identifier: MIT
 * verify.h - compares a model's planned outputs with those of the graph as written (bs_session_verify), on
 * the given inputs and on made ones. */
#ifndef BS_LAB_MODEL_VERIFY_H
#define BS_LAB_MODEL_VERIFY_H
#include "lab/model/model.h"

/* The results: rows [{case, inputs, ok, compared, skipped, output, at, value, expected, limit, ratio, pass,
 * without, node, serves}], one for each set of inputs; notes [text]: parts that were not compared; error {id,
 * message, hint} of the first wrong row. */
typedef struct bs_model_verified {
  json_t *rows, *notes, *error;
  uint64_t failed;
  int ran;      /* 1: the session's outputs are those of the run that was compared last */
  double rate;  /* FLOP/s of the graph as written on this machine, of both of its runs; 0: not measured yet */
  double spent; /* seconds of all comparisons so far */
  double most;  /* time limit: a minute, unless it is changed after the init */
  double bytes; /* memory limit; 0: half of the available memory */
} bs_model_verified;

int32_t bs_model_verified_init(bs_model_verified *out, bs_error *err);
/* Adds "written", "written_not_compared" and "written_error" to a result of `bsrun model check` or `run`. */
void bs_model_verified_put(const bs_model_verified *verified, json_t *result);
void bs_model_verified_free(bs_model_verified *verified);

/* Which inputs are compared: those that are set; these and sets of made ones; sets of made ones alone, whose
 * integers are those that are set. Where an input is not set, there are made ones alone. */
enum { BS_VERIFY_GIVEN = 0, BS_VERIFY_ALL = 1, BS_VERIFY_MADE = 2 };

/* Compares a session on the inputs that `which` names. Wrong numbers are reported in the rows. A comparison
 * that would take more than a minute, by its FLOPs and the measured rate of `ref`, uses smaller sizes of
 * named dimensions, fewer layers of a folder and fewer sets of made inputs, with a note. So does one that
 * would need more memory than available; if one layer is too large, nothing is compared. Afterwards the
 * session is bound as before. */
int32_t bs_model_verify(const bs_model_request *request, bs_session *session, const char *name, int which,
                        bs_model_verified *io, bs_error *err);
#endif
