/* SPDX-License-Identifier: MIT
 * explain.c - `bsrun explain OP|mask MASK|method M`: what would be chosen and why, without running anything.
 * The options are composed as a run's are, so that both see the same. */
#include "bsrun/explain.h"
#include "bsrun/opening.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "lab/config/experiment.h"
#include "lab/config/schema.h"

static const args_option explain_options[] = {
    {OPT_DTYPE, "mask: i8 and fp4 weights too", 0},
    {OPT_B, NULL, 0},
    {OPT_N, NULL, 0},
    {OPT_K, NULL, 0},
    {OPT_MASK, "the op's columns are those of a rank", 0},
    {OPT_WORLD_SIZE, "default: the method's own, 2 for a mask", 0},
    {OPT_RANK, "op: whose columns are meant; default: 0", 0},
    {OPT_WITH, "of an op", 0},
    {OPT_WITH_BIAS, NULL, 0},
    {OPT_WITH_RESIDUAL, NULL, 0},
    {OPT_WITH_GATHERED, NULL, 0},
    {OPT_WITH_DETERMINISTIC, NULL, 0},
    {OPT_WITH_TOKENWISE, NULL, 0},
    {OPT_WITH_TRAIN, NULL, 0},
    {OPT_WITH_WEIGHTS, NULL, 0},
    {OPT_WITH_Y, NULL, 0},
    {OPT_WITH_WORKSPACE, NULL, 0},
    {OPT_ACTIVATION, "of an op; default: model.activation", 0},
    {OPT_BACKEND, "default: cpu", 0},
    {OPT_COMM, "default: threads", 0},
    {OPT_WORKLOAD, "a file brings its own sizes", 0},
    {OPT_HARDWARE, NULL, 0},
    {OPT_THREADS, "default: cores / ranks", 0},
    {OPT_CACHE, NULL, 0},
    {OPT_TUNE_CACHE, NULL, 0},
    {OPT_PLUGIN, NULL, 0},
    {OPT_CONFIG, NULL, 0},
    {OPT_SET, NULL, 0},
    ARGS_TABLE,
    {OPT_VERBOSE, NULL, 0},
    {OPT_QUIET, NULL, 0},
    ARGS_HELP,
};

enum subject { OF_OP, OF_MASK, OF_METHOD };

/* The words: OP, or mask MASK, or method M. */
static int32_t read_words(const args *a, enum subject *out_of, const char **out_name, bs_error *err) {
  static const char *const op_only[] = {"rank",      "weights",    "y",        "activation",
                                        "bias",      "residual",   "gathered", "deterministic",
                                        "workspace", "tune-cache", "train",    "tokenwise"};
  char shown[64];
  const char *first = a->n_words > 0 ? a->words[0] : "";
  *out_of = strcmp(first, "mask") == 0 ? OF_MASK : strcmp(first, "method") == 0 ? OF_METHOD : OF_OP;
  const size_t wanted = *out_of == OF_OP ? 1 : 2;
  const int has_shape = *out_of == OF_OP && a->n_words == 2;
  if (a->n_words != wanted && !has_shape) {
    bs_error_set(err, BS_USAGE, "BS-USE-WORD",
                 "explain takes an op, a mask, a method, gates or words; %zu word%s given", a->n_words,
                 a->n_words == 1 ? " is" : "s are");
    bs_error_hint(
        err,
        "bsrun explain matmul, explain attention SHAPE, explain mask MASK, explain method M, explain "
        "gates, explain words");
    return BS_USAGE;
  }
  *out_name = a->words[wanted - 1];
  for (size_t i = 0; *out_of != OF_OP && i < sizeof op_only / sizeof op_only[0]; i++) {
    if (!args_has(a, op_only[i])) continue;
    bs_error_set(err, BS_USAGE, "BS-USE-OPTION", "%s is for an op, not for a %s",
                 args_shown(a, op_only[i], shown), first);
    return BS_USAGE;
  }
  if (*out_of == OF_MASK && args_has(a, "mask")) {
    bs_error_set(err, BS_USAGE, "BS-USE-OPTION", "the mask is given twice: %.60s and --mask", *out_name);
    return BS_USAGE;
  }
  return BS_OK;
}

/* A mask is asked for with weights that no model is of: --dtype is noted, and taken out of `options`, whose
 * list of given options must be a copy. The model is of f32 then, in which our kernels multiply bytes. */
static void take_weights(explained *x, args *options) {
  static const explained_weights known[] = {
      {"i8", BS_I8, 8}, {"int8", BS_I8, 8}, {"fp4", 0, 4}, {"f4", 0, 4}};
  for (size_t i = 0; i < options->n_given; i++) {
    if (strcmp(args_name(args_given(options, i)), "dtype") != 0) continue;
    for (size_t k = 0; k < sizeof known / sizeof known[0]; k++) {
      if (!bs_name_is(known[k].name, options->given[i].value)) continue;
      x->weights = known[k / 2 * 2]; /* by its first name */
      options->given[i].value = "f32";
      break;
    }
  }
}

static int32_t resolve(explained *x, enum subject of, const char *name, bs_error *err) {
  bsrun_request request;
  static const char *const none[] = {NULL};
  args options; /* the words are ours */
  int32_t rc = args_without(x->a, none, &options, err);
  if (rc != BS_OK) return rc;
  if (of == OF_MASK) take_weights(x, &options);
  rc = bsrun_request_make(&options, &request, err);
  bs_compose_request *q = &request.compose;
  if (of == OF_MASK) q->mask = name;
  if (of == OF_METHOD) q->method = name;
  if (q->method == NULL && q->mask != NULL) q->method = "blockshock"; /* the method that masks are of */
  if (rc == BS_OK)
    rc = bsrun_open_experiment(&request, args_has(x->a, "verbose") ? BS_LOG_DEBUG : BS_LOG_WARN,
                               args_has(x->a, "quiet"), &x->context, &x->e, err);
  bsrun_request_free(&request);
  free(options.given);
  return rc;
}

static int32_t explain(const args *a, bs_error *err) {
  explained x = {.a = a};
  enum subject of = OF_OP;
  const char *name = NULL;
  const char *first = a->words[0];
  if (strcmp(first, "gates") == 0 || strcmp(first, "words") == 0) return explain_words(a, err);
  int32_t rc = bsrun_format(a, &x.format, err);
  if (rc == BS_OK) rc = read_words(a, &of, &name, err);
  if (rc == BS_OK) rc = bsrun_cache_path(a, &x.cache, err);
  if (rc == BS_OK) rc = bsrun_tune_path(a, &x.tune, err);
  if (rc == BS_OK) rc = resolve(&x, of, name, err);
  if (rc == BS_OK) {
    rc = of == OF_OP     ? explain_op(&x, name, err)
         : of == OF_MASK ? explain_mask(&x, err)
                         : explain_method(&x, err);
  }
  bs_experiment_free(&x.e);
  fflush(stdout); /* a plugin that is closed may end the process */
  if (x.context != NULL) bs_context_close(x.context);
  free(x.cache);
  free(x.tune);
  return rc;
}

const bsrun_verb verb_explain = {
    .name = "explain",
    .summary = "which kernel serves an op, what a mask or a method does",
    .words =
        "OP [SHAPE] [options]\n"
        "mask MASK [options]\n"
        "method METHOD [options]\n"
        "gates|words [WORD] [options]",
    .about =
        "OP      the implementations for one call, best first, and the refused with their reasons. The "
        "order: measured or pinned (share/doc/blockshock/tuning.md), then native, emulated, unknown; then "
        "score, priority, name.\n"
        "        OP is one of the core, `bsrun completion words ops`; its arguments are those of a layer of "
        "--b tokens, --n by --k weights, or of SHAPE after it (attention, attention_dx, matmul24)\n"
        "mask    how it is multiplied (* in the table): a run of columns, a gather, 2:4 values or dense, and "
        "why; what each rank keeps; the 2:4 formats of hardware that it is legal in; bytes and times of each "
        "way\n"
        "        (--dtype i8: quantised weights; fp4: what they would take, no backend has them)\n"
        "method  what each rank proposes: split, FLOPs, bytes, collectives and their payload\n"
        "gates   what each gate checks; words: the other words of the screens, RIGHT, UNCLEAR, speedup, ...\n"
        "        With WORD, or a part of one: that word alone, a gate or another.\n"
        "\n"
        "Nothing is run. Times are predicted when `bsrun doctor --measure` has kept this machine's\n"
        "constants.\n",
    .examples =
        "  bsrun explain matmul --dtype bf16 --b 64 --n 4096 --k 4096 --backend cpu\n"
        "  bsrun explain matmul --mask complement_1010_0101 -P 2 --rank 1 --with bias -o json\n"
        "  bsrun explain attention b2h8s512d64:bf16:causal\n"
        "  bsrun explain mask random_2of4 --n 4096\n"
        "  bsrun explain mask magnitude --n 1024 -P 4 --dtype bf16 -o json\n"
        "  bsrun explain mask random_2of4 --n 4096 --dtype i8\n"
        "  bsrun explain method blockshock -P 2 --b 16\n"
        "  bsrun explain gates\n"
        "  bsrun explain words UNCLEAR\n",
    .exits =
        "0; 3 when no implementation serves the op, or the method refuses (the reason is printed); 2 "
        "usage.\n",
    .options = explain_options,
    .run = explain,
    .min_words = 1,
    .max_words = 2,
    .takes = "ops mask|method|gates|words",
};
