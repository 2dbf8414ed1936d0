/* SPDX-License-Identifier: MIT
 * pair.h - a float model that stays open, and others of its ports that run on its inputs, one after the
 * other.
 */
#ifndef BS_LAB_MODEL_PAIR_H
#define BS_LAB_MODEL_PAIR_H
#include "lab/model/model.h"

/* The difference between one output of a model and that of the float model, over all sets of inputs. */
typedef struct bs_differs {
  double changed, size; /* sums of squares: of the difference, of the float output */
  double kl;            /* of the softmax of the last dimension: a sum over kl_rows */
  uint64_t kl_rows;     /* rows that have one */
  uint64_t numbers;     /* that were compared: all but fills of both */
  uint64_t rows, same;  /* rows; those whose largest number is at the same place */
  uint64_t first;       /* the first that is at another place, counted over all sets; same < rows */
} bs_differs;

typedef void (*bs_pair_see)(void *user, const bs_node_trace *row);
typedef struct bs_pair {
  bs_context *context;
  const bs_model_request *request;
  bs_model floats;
  uint32_t n_inputs, n_outputs, sets; /* sets: 4 where inputs are made, else 1 */
  /* Traces of both models; NULL: they run without. `next` is called before each run of a pair. */
  void (*next)(void *user);
  bs_pair_see keep, compare;
  void *user;
} bs_pair;

/* Opens the float model: `request` with another path, and floats alone. pair->context and ->request are set,
 * and outlive it. The caller closes in every case. */
int32_t bs_pair_open(bs_pair *pair, const char *path, bs_error *err);
/* Another model, its weights rounded to a list of schemes (NULL: as they are), on all sets of inputs. Adds to
 * to[n_outputs]. BS_UNSUPPORTED, BS-QUANT-PORTS: it has other inputs or outputs. */
int32_t bs_pair_run(bs_pair *pair, const char *path, const char *weights, const char *activations,
                    bs_differs *to, bs_error *err);
void bs_pair_close(bs_pair *pair);

/* Neither is finite, and both are the same: the fill of a mask, or a NaN of both. Nothing is to be measured.
 */
int bs_differs_same_fill(double f, double v);
/* The difference relative to the float output; a mean over rows. Whole numbers (indices) count in `rows`
 * alone, each as a row. */
double bs_differs_relative(const bs_differs *differs);
double bs_differs_kl(const bs_differs *differs);
/* measured / predicted, where both are at least `least`, the round-off of sums; a NaN stays a NaN. */
double bs_differs_ratio(double measured, double predicted, double least);
#endif
