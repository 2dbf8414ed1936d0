/* SPDX-License-Identifier: MIT
 * model_subject.h - a model as the subject of a diagnosis: its requested session, inputs inside their
 * domains, and sessions with something changed. */
#ifndef BS_LAB_DIAGNOSE_MODEL_SUBJECT_H
#define BS_LAB_DIAGNOSE_MODEL_SUBJECT_H
#include "lab/diagnose/check.h"

typedef struct diag_model {
  bs_context *context;
  bs_model_request request; /* the request; threads and dims are known. Over ranks: threads of each */
  bs_model_ranks ranks;     /* request.ranks is NULL, or points here */
  bs_model *model;          /* its session is the requested one */
  uint32_t n_inputs;
  int cached;      /* it has a key-value cache: each run begins with an empty one */
  json_t *explain; /* of the requested session, before any other is open */
  double steady, first;
  bs_session_stats stats; /* after the first timing */
} diag_model;

/* The changes of a session compared with the requested one. Zero: no change. */
typedef struct diag_change {
  uint32_t threads;
  uint32_t profile;
  const char *backend;
  int all_passes; /* all passes are on */
  int no_choices;
  const char *choice;   /* this one too: "KEY -> NAME{KNOB=VALUE}" */
  const char *pass_off; /* this one too; "all" */
  const char *pass_on;  /* this one stays on; "all": all stay on */
  int one_rank;         /* of a model over ranks: one rank, with the threads of all */
  int share;            /* the packed weights of the requested session: same threads, backend and choices */
} diag_change;

/* A session with separate inputs. */
typedef struct diag_session {
  const diag_model *m;
  bs_session *session;
  bs_world *world;         /* of its own; NULL: that of the requested session, or none */
  uint32_t ranks, threads; /* threads: of each rank */
  void **memory;           /* of made inputs */
} diag_session;

/* Sets each input of a session from its file, if that fits the bound shapes, else to made numbers in its
 * domain. */
int32_t diag_inputs_set(diag_session *s, bs_error *err);

int32_t diag_session_open(const diag_model *m, const diag_change *change, diag_session *out, bs_error *err);
/* The requested session, with inputs. */
int32_t diag_session_asked(const diag_model *m, diag_session *out, bs_error *err);
void diag_session_close(diag_session *s);
int32_t diag_session_run(const diag_session *s, bs_error *err);
/* An arm of a sampler; the session outlives it. */
bs_sampler_arm diag_session_arm(diag_session *s, const char *name);
/* Ranks of the requested session: 1 where no method splits the model. */
uint32_t diag_model_ranks(const diag_model *m);
/* {nodes: [..]} of a report of a session. */
int32_t diag_session_report(const diag_session *s, uint32_t what, json_t **out, bs_error *err);
/* Runs a session with profile for about as long as a timing, and reports. */
int32_t diag_session_profile(const bs_diagnosis *d, const diag_session *s, json_t **out, bs_error *err);
/* Times the requested session and a changed one alternately. */
int32_t diag_model_pair(bs_diagnosis *d, const diag_model *m, const diag_change *change, bs_pair_times *out,
                        bs_session_stats *out_stats, uint32_t *out_nodes, bs_error *err);
#endif
