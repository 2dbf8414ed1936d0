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
    {"dtype", 0, "T", 0,
     "dtype of the model (X, W, Y): bf16, f16, f32, f64, ...; mask: i8 and fp4 weights too"},
    {"b", 0, "N", 0, "tokens B"},
    {"n", 0, "N", 0, "output features N"},
    {"k", 0, "N", 0, "input features K; default: N"},
    {"shape", 0, "TEXT", 0, "attention, attention_dx, matmul24: the sizes, as in mission:bf16:causal"},
    {"mask", 0, "NAME", 0, "the op's columns are those of a rank: complement_1100_0011, interleave, ..."},
    {"world-size", 'P', "N", 0, "number of ranks; default: the method's own, 2 for a mask"},
    {"rank", 0, "R", 0, "op: the rank whose columns are meant; default: 0"},
    {"weight-dtype", 0, "T", 0, "op: storage of the packed weight; default: --dtype"},
    {"out-dtype", 0, "T", 0, "op: dtype of the output; default: --dtype"},
    {"activation", 0, "NAME", 0, "op: none, relu, gelu, gelu_tanh, silu; default: model.activation"},
    {"bias", 0, NULL, 0, "op: with a bias"},
    {"residual", 0, NULL, 0, "op: with a residual"},
    {"gathered", 0, NULL, 0, "op: X holds the rank's columns already; default: the kernel picks them"},
    {"deterministic", 0, NULL, 0, "op: the same bits on every call (a matmul always, as layers ask)"},
    {"tokenwise", 0, NULL, 0, "matmul: a token's bits do not depend on the others (repro=R2 asks for it)"},
    {"train", 0, NULL, 0, "matmul: as weights are packed that will be trained"},
    {"workspace", 0, "BYTES", 0, "op: most workspace that it may use; default: no limit"},
    {"backend", 0, "NAME", 0, "backend; default: cpu"},
    {"comm", 0, "NAME", 0, "communicator; default: threads"},
    {"workload", 0, "NAME", 0, "gaussian, file, ... (a file brings its own sizes)"},
    {"hardware", 0, "NAME", 0, "cpu, or a YAML file"},
    {"threads-per-rank", 0, "N", 0, "threads of one rank; default: cores / ranks"},
    {"cache", 0, "FILE|off", 0, "stored machine constants; default: the user's cache folder"},
    {"tune-cache", 0, "FILE|off", 0, "op: measured choices; default: the user's cache folder"},
    {"plugin", 0, "ID|PATH", 1, "use this plugin (its backend, if it has one)"},
    {"config", 0, "FILE", 1, "merge a YAML file over the base"},
    {"set", 0, "KEY=VALUE", 1, "set one key, after all files"},
    ARGS_TABLE,
    {"verbose", 'v', NULL, 1, "say more on stderr"},
    {"quiet", 'q', NULL, 0, "no notes on stderr"},
    ARGS_HELP,
};

enum subject { OF_OP, OF_MASK, OF_METHOD };

/* The words: OP, or mask MASK, or method M. */
static int32_t read_words(const args *a, enum subject *out_of, const char **out_name, bs_error *err) {
  static const char *const op_only[] = {
      "rank",          "weight-dtype", "out-dtype",  "activation", "bias",      "residual", "gathered",
      "deterministic", "workspace",    "tune-cache", "train",      "tokenwise", "shape"};
  const char *first = a->n_words > 0 ? a->words[0] : "";
  *out_of = strcmp(first, "mask") == 0 ? OF_MASK : strcmp(first, "method") == 0 ? OF_METHOD : OF_OP;
  const size_t wanted = *out_of == OF_OP ? 1 : 2;
  if (a->n_words != wanted) {
    bs_error_set(err, BS_USAGE, "BS-USE-WORD",
                 "explain takes an op, a mask, a method, gates or words; %zu word%s given", a->n_words,
                 a->n_words == 1 ? " is" : "s are");
    bs_error_hint(err,
                  "bsrun explain matmul, explain mask MASK, explain method M, explain gates, explain words");
    return BS_USAGE;
  }
  *out_name = a->words[wanted - 1];
  for (size_t i = 0; *out_of != OF_OP && i < sizeof op_only / sizeof op_only[0]; i++) {
    if (!args_has(a, op_only[i])) continue;
    bs_error_set(err, BS_USAGE, "BS-USE-OPTION", "--%s is for an op, not for a %s", op_only[i], first);
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
    if (strcmp(options->options[options->given[i].option].name, "dtype") != 0) continue;
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
  args options = *x->a; /* the words are ours */
  options.n_words = 0;
  options.given = malloc((options.n_given + 1) * sizeof *options.given);
  if (options.given == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  memcpy(options.given, x->a->given, options.n_given * sizeof *options.given);
  if (of == OF_MASK) take_weights(x, &options);
  int32_t rc = bsrun_request_make(&options, &request, err);
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
  const char *first = a->n_words == 1 ? a->words[0] : "";
  if (strcmp(first, "gates") == 0 || strcmp(first, "words") == 0)
    return explain_words(a, first[0] == 'g', err);
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
    .summary = "which implementation serves an op, what a mask or a method does",
    .usage =
        "usage: bsrun explain OP [options]\n"
        "       bsrun explain mask MASK [options]\n"
        "       bsrun explain method METHOD [options]\n"
        "       bsrun explain gates | words\n"
        "\n"
        "OP      the ladder of implementations for one call, best first, the refused with their reasons: "
        "native "
        "before\n"
        "        emulated before unknown, then score, priority, name; one that was measured or pinned before "
        "all\n"
        "        (share/doc/blockshock/tuning.md). OP is one of the core, `bsrun completion words ops`; its "
        "arguments are\n"
        "        those of a layer of --b tokens, --n by --k weights, or of --shape (attention, attention_dx, "
        "matmul24)\n"
        "mask    how it is multiplied (* in the table): a run of columns, a gather, 2:4 values or dense, and "
        "why; what\n"
        "        each rank keeps; the 2:4 formats of hardware that it is legal in; bytes and times of each "
        "way\n"
        "        (--dtype i8: quantised weights; fp4: what they would take, no backend has them)\n"
        "method  what each rank proposes: split, FLOPs, bytes, collectives and their payload\n"
        "gates   what each gate checks; words: the other words of the screens, RIGHT, UNCLEAR, speedup, ...\n"
        "\n"
        "Nothing is run. Times are predicted when `bsrun doctor --measure` has kept this machine's "
        "constants.\n"
        "\n",
    .after =
        "\n"
        "examples:\n"
        "  bsrun explain matmul --dtype bf16 --b 64 --n 4096 --k 4096 --backend cpu\n"
        "  bsrun explain matmul --mask complement_1010_0101 -P 2 --rank 1 --bias -o json\n"
        "  bsrun explain attention --shape b2h8s512d64:bf16:causal\n"
        "  bsrun explain mask random_2of4 --n 4096\n"
        "  bsrun explain mask magnitude --n 1024 -P 4 --dtype bf16 -o json\n"
        "  bsrun explain mask random_2of4 --n 4096 --dtype i8\n"
        "  bsrun explain method blockshock -P 2 --b 16\n"
        "  bsrun explain gates\n"
        "\n"
        "exit codes: 0; 3 when no implementation serves the op, or the method refuses (the reason is "
        "printed); "
        "2 "
        "usage.\n",
    .options = explain_options,
    .run = explain,
    .needs_words = 1,
};
