/* SPDX-License-Identifier: MIT
 * checking.h - inside of `bsrun model check FOLDER`: vectors.c reads vectors.txt, check.c runs its cases. */
#ifndef BS_LAB_MODEL_CHECKING_H
#define BS_LAB_MODEL_CHECKING_H
#include "lab/model/compare.h"
#include "lab/model/model.h"
#include "lab/model/verify.h"

enum { BS_CHECK_PORTS = 64 };

/* A port of a case and its file. */
typedef struct bs_port_file {
  const char *name, *file;
  uint32_t line; /* of vectors.txt */
} bs_port_file;

typedef struct bs_checking {
  bs_context *context;
  const bs_model_request *request;
  const char *folder, *index; /* vectors.txt */
  uint32_t line;              /* that is read */
  int nodes;                  /* 1: node by node too */
  bs_model model;             /* opened with the first case */
  char *path;                 /* of the model */
  bs_model_limits limits;     /* for all cases until a case changes them */
  /* The case that is read. */
  const char *name; /* NULL: none */
  bs_model_limits case_limits;
  bs_dim dims[BS_CHECK_PORTS];
  bs_port_file inputs[BS_CHECK_PORTS], outputs[BS_CHECK_PORTS];
  uint32_t n_dims, n_inputs, n_outputs, n_prompts, case_line;
  /* Results. */
  json_t *rows, *node_rows;
  bs_model_verified verified; /* from the comparison with the graph as written */
  uint64_t cases, failed;
} bs_checking;

/* BS_INPUT at the current line of vectors.txt: "WHAT 'WORD'". */
int32_t bs_check_line_error(const bs_checking *checking, bs_error *err, const char *what, const char *word);
/* A file of the folder as a path, malloc'd; NULL: out of memory. */
char *bs_check_path(const bs_checking *checking, const char *file, bs_error *err);
/* Reads vectors.txt (`text`, which it cuts up) and runs its cases in their order. */
int32_t bs_check_read(bs_checking *checking, char *text, bs_error *err);
/* Runs the case that has been read, if there is one. BS_INPUT: the case is empty, or names missing things. */
int32_t bs_check_case(bs_checking *checking, bs_error *err);
/* "generate PROMPT TOKENS" and "logits PROMPT FILE", from one run. */
int32_t bs_check_prompt(bs_checking *checking, int generate, const char *prompt, const char *file,
                        bs_error *err);
#endif
