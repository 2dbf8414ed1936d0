/* SPDX-License-Identifier: MIT
 * echo.h - ranks without values (BS_BACKEND_PHANTOM) that follow one of them. All ranks of a model have the
 * same graph but for offsets, which nothing reads there. So one rank, the lead, has a session, and lowers and
 * plans the model. Each other rank has an echo: its own layers and its own plans for the graph of the lead.
 *
 * While the lead binds, it tells what every rank does together: which columns a method gives a rank, and each
 * layer that is built. The echoes do the same in step. Between two barriers they read what the lead has; then
 * both work; the third barrier ends it. All ranks of one process; functions are called from the rank's
 * thread.
 */
#ifndef BS_GRAPH_SPLIT_ECHO_H
#define BS_GRAPH_SPLIT_ECHO_H
#include "graph/run/session.h"
#include "graph/split/method.h"

/* The lead's newest message. Its pointers are the lead's, and live until glead_done. Alike layers of
 * other weights take the same time: a rank has one layer of each kind, and an echo one plan. */
typedef struct glead {
  bs_rank *rank; /* the lead's */
  uint32_t what;
  gmethod *method;
  const bs_layer_spec *spec;
  const char *arm;
  const bs_source *weights, *bias;
  uint32_t layer; /* its number among the lead's */
  uint32_t like;  /* an earlier one that serves as well; GNONE: the layer is built */
  uint64_t calls_bytes;
  uint32_t *likes;           /* of each step that is bound: the first one with such a plan */
  const bs_session *session; /* at the end; NULL: the lead has failed */
} glead;

/* The lead is going to ask for columns, or to build a layer. tell NULL: no rank follows; nothing is done. */
int32_t glead_columns(glead *tell, gmethod *method, const bs_layer_spec *spec, bs_error *err);
int32_t glead_layer(const gcore *core, const glayer *layer, const bs_source *weights, const bs_source *bias,
                    bs_error *err);
/* An earlier layer that serves this one as well, where ranks have no values and follow each other; else NULL.
 */
const glayer *glead_like(const gcore *core, const glayer *layer);
/* The lead has done what its message says, with rc. Returns rc, or an echo's error. */
int32_t glead_done(glead *tell, int32_t rc, bs_error *err);
/* The lead has bound its session, or failed. Echoes then have plans for what is bound. */
int32_t glead_end(glead *tell, const bs_session *session, bs_error *err);
void glead_free(glead *tell); /* what it holds, not itself */

typedef struct gecho gecho;
int32_t gecho_open(bs_context *context, bs_rank *rank, gecho **out_echo, bs_error *err);
/* Does what the lead tells, until its end. */
int32_t gecho_follow(gecho *echo, const glead *tell, bs_error *err);
/* One run of what the lead has bound. */
int32_t gecho_run(const gecho *echo, bs_error *err);
void gecho_close(gecho *echo);
#endif
