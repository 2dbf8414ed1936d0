/* SPDX-License-Identifier: MIT
 * bench_named.c - lists the implementations of a named plugin that serve a problem, including those that are
 * never chosen by default; or the reason why there are none. */
#include <stdio.h>
#include <string.h>

#include "lab/error.h"
#include "lab/kernel/bench_point.h"
#include "lab/kernel/query.h"

typedef struct named {
  const char *plugin;
  bs_text serving; /* lines "NAME" */
  char why[300];   /* of one that does not serve */
} named;

static void look_at(void *user, const bs_op_candidate *c) {
  named *n = user;
  const char *slash = strchr(c->name, '/'), *name = slash != NULL ? slash + 1 : c->name;
  if (strcmp(c->plugin, n->plugin) != 0) return;
  if (c->answer->level != BS_LEVEL_NO)
    bs_text_printf(&n->serving, "%s:%s\n", c->plugin, name);
  else if (n->why[0] == '\0')
    snprintf(n->why, sizeof n->why, "%.60s does not serve it: %.200s", name, c->answer->text);
}

int32_t bs_kernel_named(const bs_point *point, const char *plugin, char **out_lines, char out_why[300],
                        bs_error *err) {
  const bs_kernel_bench *q = point->bench;
  const char *backend = q->backend != NULL ? q->backend : "cpu";
  named n = {.plugin = plugin};
  bs_kernel_query asked;
  const bs_op_site site = {.struct_size = sizeof site, .threads = q->threads, .world_size = 1, .fallback = 1};
  const bs_kept *kept = NULL;
  *out_lines = NULL;
  int32_t rc =
      bs_kernel_is_24(point->problem) ? bs_kernel_kept_make(point->problem, q->seed, &kept, err) : BS_OK;
  if (rc != BS_OK) return rc;
  bs_kernel_query_make(point->problem, kept, NULL, 0, &asked);
  rc = bs_op_explain_at(q->context, backend, &site, &asked.query, look_at, &n, err);
  if (kept != NULL) bs_kept_free(kept);
  if ((rc != BS_OK && rc != BS_UNSUPPORTED) || n.serving.failed) {
    bs_text_free(&n.serving);
    return rc != BS_OK && rc != BS_UNSUPPORTED ? rc : bs_no_memory(err, "providers");
  }
  snprintf(out_why, 300, "%s", n.why);
  if (n.why[0] == '\0')
    snprintf(out_why, 300, "it has no %s for the backend %.60s", bs_kernel_problem_op(point->problem->kind),
             backend);
  *out_lines = n.serving.data;
  return BS_OK;
}
