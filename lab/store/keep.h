/* SPDX-License-Identifier: MIT
 * keep.h - stores the results of a command as a run folder: <out_dir>/<phase>/<method>/<run_id>
 * (docs/runs.md). It is written at the end: a command that fails or is interrupted leaves no folder. */
#ifndef BS_LAB_STORE_KEEP_H
#define BS_LAB_STORE_KEEP_H
#include "lab/store/grade.h"
#include "lab/yaml/config.h"

typedef struct bs_keep_request {
  bs_context *context;
  const char *out_dir, *run_id; /* run_id NULL: made */
  const char *phase, *method;   /* names of folders (bs_store_check_name) */
  const char *command;          /* for env.json; NULL: none */
  bs_node *config;              /* the request, the caller's; run_id is written into it */
  const json_t *inputs;         /* files that were read, [{file, ...}]; NULL: none */
  const bs_grades *grades;
  const char *status;  /* of DONE: "ok", "not passed" */
  const void *samples; /* bytes of samples.bin; NULL: none */
  size_t samples_bytes;
  void (*opened)(int run_fd); /* all messages from now on go into its log.txt; NULL: not wanted */
  void (*closed)(void);       /* before DONE has the sum of log.txt */
} bs_keep_request;

/* records: an array, a line of metrics.jsonl each. Fields on the program, the command and the time are put
 * before the fields of each record, which has its own `status` or is "ok". The run's key is the sum of the
 * configuration, the plugins, the library's build and the inputs. *out_folder: malloc'd; NULL: nothing is
 * stored (out_dir "off"). */
int32_t bs_keep(const bs_keep_request *request, const json_t *records, char **out_folder, bs_error *err);
#endif
