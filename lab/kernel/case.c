/* SPDX-License-Identifier: MIT
 * case.c - see case.h. */
#include "lab/kernel/case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "blockshock/plugin.h"
#include "core/base/clock.h"
#include "core/base/text.h"
#include "lab/error.h"
#include "lab/kernel/query.h"
#include "lab/measure/spacer.h"
#include "lab/stop.h"

enum { INPUTS = 6, OUTPUTS = 3, KEY = 600, NAME = 160 };

struct bs_kernel_arm {
  bs_kernel_problem p;
  bs_kernel_data *data, *own; /* own: made by the arm */
  bs_kernel_setup forward;    /* of the forward passes that gradients are of */
  char backend[NAME];
  bs_world *world;
  bs_rank *rank; /* of the newest bs_world_enter */
  bs_packed *packed;
  bs_plan *plan;
  bs_tensor tensor[BS_MAX_OP_ARGS];
  bs_kernel_query asked, weight; /* weight: by which it is packed */
  bs_tensor *args[BS_MAX_OP_ARGS];
  uint32_t n_in, n_out;
  uint32_t in[INPUTS], from[INPUTS]; /* arguments, and the inputs of the numbers that they are read from */
  uint32_t out[OUTPUTS];             /* arguments, in the order of the numbers */
  uint32_t tolerance, fallback, on_device;
  uint64_t workspace, before; /* before: the world's memory without weights and plan */
  void *spacer;               /* gives each opened arm another address */
  double queued;              /* as bs_kernel_arm_queued */
  uint64_t most;              /* of the world's memory while packing, preparing and running */
  char key[KEY], provider[NAME];
  bs_text choice; /* of the world: the provider, pinned, and its knobs */
  bs_text candidates;
};

/* ---- the query ---------------------------------------------------------------------------------- */

/* The arguments that are read from the numbers, and those that are judged. lse: attention gives its LSE too.
 */
static void describe(bs_kernel_arm *arm, int lse) {
  static const struct {
    uint32_t n_in, n_out, in[INPUTS], from[INPUTS], out[OUTPUTS];
  } of[BS_KERNEL_KINDS_] = {[BS_KERNEL_SDPA] = {3, 1, {0, 1, 2}, {0, 1, 2}, {6, 7}},
                            [BS_KERNEL_MATMUL] = {1, 1, {0}, {0}, {3}},
                            [BS_KERNEL_MATMUL24] = {1, 1, {0}, {0}, {3}},
                            [BS_KERNEL_SDPA_DX] = {6, 3, {0, 1, 2, 8, 6, 7}, {0, 1, 2, 3, 4, 5}, {9, 10, 11}},
                            [BS_KERNEL_MATMUL_DX] = {1, 1, {0}, {0}, {1}},
                            [BS_KERNEL_MATMUL_DW] = {2, 1, {0, 1}, {0, 1}, {2}},
                            [BS_KERNEL_MATMUL24_DX] = {1, 1, {0}, {0}, {1}},
                            [BS_KERNEL_MATMUL24_DW] = {2, 1, {0, 1}, {0, 1}, {2}}};
  const uint32_t kind = arm->p.kind;
  const bs_kept *kept = bs_kernel_data_kept(arm->data);
  const bs_partition *columns = bs_kernel_data_columns(arm->data);
  bs_kernel_query_make(&arm->p, kept, columns, lse, &arm->asked);
  if (bs_kernel_has_weight(&arm->p)) bs_kernel_query_of_weight(&arm->p, kept, columns, &arm->weight);
  arm->n_in = of[kind].n_in;
  arm->n_out = of[kind].n_out + (lse != 0);
  memcpy(arm->in, of[kind].in, sizeof arm->in);
  memcpy(arm->from, of[kind].from, sizeof arm->from);
  memcpy(arm->out, of[kind].out, sizeof arm->out);
  for (uint32_t i = 0; i < arm->asked.query.nargs; i++)
    if (arm->asked.args[i] != NULL) arm->args[i] = &arm->tensor[i];
}

/* The positions of a 2:4 weight, and the columns, are those of the newest numbers. */
static const bs_op_query *renewed(const bs_kernel_arm *arm, bs_kernel_query *of) {
  of->query.kept = bs_kernel_data_kept(arm->data);
  of->query.partition = bs_kernel_data_columns(arm->data);
  return &of->query;
}

/* The query by which the world chooses. For a backward product with a weight this is the query that packs the
 * weight: one implementation serves both. */
static const bs_op_query *chosen_by(bs_kernel_arm *arm) {
  return renewed(arm, bs_kernel_is_dx(&arm->p) ? &arm->weight : &arm->asked);
}

/* ---- the choice --------------------------------------------------------------------------------- */

typedef struct choosing {
  bs_kernel_arm *arm;
  const char *wanted; /* NULL: the best */
  bs_text names;      /* of all candidates, for an error */
  int found;
  char refused[NAME + 200]; /* why the wanted one does not serve */
} choosing;

/* "matmul@cpu/dnnl" of a plugin: "cpu:dnnl". */
static void full_name(const bs_op_candidate *c, char out[NAME]) {
  const char *slash = strchr(c->name, '/');
  snprintf(out, NAME, "%s:%s", c->plugin, slash != NULL ? slash + 1 : c->name);
}

static int matches(const char *wanted, const char *name) {
  const size_t n = strlen(wanted);
  if (strchr(wanted, ':') != NULL) return strcmp(wanted, name) == 0;
  return strncmp(wanted, name, n) == 0 && name[n] == ':';
}

static void consider(void *user, const bs_op_candidate *c) {
  choosing *ch = user;
  bs_kernel_arm *arm = ch->arm;
  char name[NAME];
  full_name(c, name);
  snprintf(arm->key, sizeof arm->key, "%s", c->key);
  bs_text_printf(&ch->names, "%s%s", ch->names.size > 0 ? ", " : "", name);
  const int serves = c->answer->level != BS_LEVEL_NO;
  if (ch->found || (ch->wanted != NULL && !matches(ch->wanted, name))) return;
  if (!serves) {
    if (ch->refused[0] == '\0')
      snprintf(ch->refused, sizeof ch->refused, "%s does not serve it: %s", name, c->answer->text);
    return;
  }
  ch->found = 1;
  arm->tolerance = c->answer->tolerance;
  arm->workspace = c->answer->workspace;
  snprintf(arm->provider, sizeof arm->provider, "%s", name);
}

/* Finds the name in "a, b, c" that is spelt most like `wanted`; 0: no name is close. */
static int nearest_name(const char *names, const char *wanted, char out[NAME]) {
  enum { MOST = 32 };
  char copy[MOST * NAME], *save = NULL;
  const char *known[MOST];
  size_t n = 0;
  snprintf(copy, sizeof copy, "%s", names);
  for (char *name = strtok_r(copy, ", ", &save); name != NULL && n < MOST; name = strtok_r(NULL, ", ", &save))
    known[n++] = name;
  const char *near = wanted != NULL ? bs_nearest(wanted, known, n) : NULL;
  snprintf(out, NAME, "%s", near != NULL ? near : "");
  return near != NULL;
}

static int32_t not_found(const choosing *ch, const char *wanted, bs_error *err) {
  const int refused = ch->refused[0] != '\0';
  bs_error_set(err, refused ? BS_UNSUPPORTED : BS_CONFIG,
               refused ? "BS-KERNEL-REFUSED" : "BS-KERNEL-PROVIDER",
               refused ? "%s" : "there is no provider '%s'", refused ? ch->refused : wanted);
  const char *names = ch->names.data != NULL && !ch->names.failed ? ch->names.data : "none";
  char near[NAME];
  if (refused)
    bs_error_hint(err, "asked: %s", names);
  else if (nearest_name(names, wanted, near))
    bs_error_hint(err, "did you mean '%s'? These were asked: %s", near, names);
  else
    bs_error_hint(err, "these were asked: %s", names);
  return refused ? BS_UNSUPPORTED : BS_CONFIG;
}

/* Takes the answer of a provider to the knobs that it is given. */
static void consider_knobs(void *user, const bs_op_candidate *c) {
  bs_kernel_arm *arm = user;
  if (c->place > 0 || !c->wanted) return;
  arm->tolerance = c->answer->tolerance;
  arm->workspace = c->answer->workspace;
}

/* Takes the answer of the chosen implementation for a backward product. */
static void consider_backward(void *user, const bs_op_candidate *c) {
  bs_kernel_arm *arm = user;
  char name[NAME];
  full_name(c, name);
  if (c->answer->level == BS_LEVEL_NO || strcmp(name, arm->provider) != 0) return;
  arm->tolerance = c->answer->tolerance;
  arm->workspace = c->answer->workspace;
}

static int32_t pin(bs_kernel_arm *arm, const bs_kernel_setup *s, bs_op_site site, bs_error *err) {
  const bs_op_query *q = chosen_by(arm);
  const int told = s->knobs != NULL && s->knobs[0] != '\0';
  bs_text_printf(&arm->choice, "%s -> %s", arm->key, arm->provider);
  if (told) bs_text_printf(&arm->choice, "{%s}", s->knobs);
  if (arm->choice.failed) return bs_no_memory(err, "a choice");
  const char *const choices[] = {arm->choice.data};
  site.choices = choices;
  site.n_choices = 1;
  return told ? bs_op_explain_at(s->context, s->backend != NULL ? s->backend : "cpu", &site, q,
                                 consider_knobs, arm, err)
              : BS_OK;
}

static int32_t choose(bs_kernel_arm *arm, const bs_kernel_setup *s, bs_error *err) {
  choosing ch = {.arm = arm, .wanted = s->provider};
  /* The reference serves only if its name was given. */
  arm->fallback =
      s->provider != NULL && (strcmp(s->provider, "ref") == 0 || strncmp(s->provider, "ref:", 4) == 0);
  const bs_op_site site = {.struct_size = sizeof site,
                           .threads = s->threads > 0 ? s->threads : 1,
                           .world_size = 1,
                           .fallback = arm->fallback};
  const bs_op_query *q = chosen_by(arm);
  int32_t rc =
      bs_op_explain_at(s->context, s->backend != NULL ? s->backend : "cpu", &site, q, consider, &ch, err);
  const int asked = ch.names.size > 0 && s->provider != NULL;
  if ((rc == BS_OK || (rc == BS_UNSUPPORTED && asked)) && !ch.found)
    rc = not_found(&ch, s->provider != NULL ? s->provider : "", err);
  bs_text_free(&ch.names);
  if (rc == BS_OK && bs_kernel_is_dx(&arm->p))
    rc = bs_op_explain_at(s->context, s->backend != NULL ? s->backend : "cpu", &site,
                          renewed(arm, &arm->asked), consider_backward, arm, err);
  return rc == BS_OK ? pin(arm, s, site, err) : rc;
}

/* ---- the world ---------------------------------------------------------------------------------- */

static int32_t enter(bs_kernel_arm *arm, bs_error *err) {
  return bs_world_enter(arm->world, &arm->rank, err);
}

/* Leaves; the first error counts. */
static int32_t leave(bs_kernel_arm *arm, int32_t rc, bs_error *err) {
  const int32_t left = bs_world_leave(arm->world, rc == BS_OK ? err : NULL);
  return rc != BS_OK ? rc : left;
}

static int32_t make_world(bs_kernel_arm *arm, const bs_kernel_setup *s, bs_error *err) {
  const bs_backend *backend = NULL;
  void *state = NULL;
  if (bs_find_backend(s->context, s->backend != NULL ? s->backend : "cpu", &backend, &state, NULL) == BS_OK)
    arm->on_device = (backend->flags & BS_BACKEND_HOST_MEMORY) == 0;
  const char *const choices[] = {arm->choice.data};
  const bs_world_options o = {.struct_size = sizeof o,
                              .world_size = 1,
                              .backend = s->backend,
                              .threads_per_rank = s->threads > 0 ? s->threads : 1,
                              .bind = s->bind,
                              .sync_mode = BS_SYNC_NONE,
                              .choices = choices,
                              .n_choices = 1,
                              .fallback = arm->fallback};
  return bs_world_create(s->context, &o, &arm->world, err);
}

static bs_tensor as_matrix(const bs_tensor *t, int64_t rows, int64_t cols) {
  bs_tensor m = *t;
  m.rank = 2;
  m.dims[0] = rows;
  m.dims[1] = m.strides[0] = cols;
  m.strides[1] = 1;
  return m;
}

static int32_t read_in(bs_kernel_arm *arm, uint32_t index, const void *from, uint32_t dtype, int64_t rows,
                       int64_t cols, bs_error *err) {
  bs_source source = {.struct_size = sizeof source};
  bs_tensor flat = as_matrix(&arm->tensor[index], rows, cols);
  int32_t rc = bs_source_from_memory(from, dtype, rows, cols, cols, &source, err);
  if (rc == BS_OK) rc = bs_rank_get_api()->tensor_read(arm->rank, &source, 0, NULL, &flat, err);
  bs_source_release(&source);
  return rc;
}

static int32_t read_all(bs_kernel_arm *arm, bs_error *err) {
  int64_t rows, cols;
  int32_t rc = BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < arm->n_in; i++) {
    const void *from = bs_kernel_data_input(arm->data, arm->from[i], &rows, &cols);
    rc = read_in(arm, arm->in[i], from, arm->asked.desc[arm->in[i]].dtype, rows, cols, err);
  }
  const float *descale = bs_kernel_data_descale(arm->data);
  return rc == BS_OK && descale != NULL ? read_in(arm, 5, descale, BS_F32, 1, 3, err) : rc;
}

static void drop_plan(bs_kernel_arm *arm) {
  if (arm->plan != NULL) bs_rank_get_api()->op_release(arm->plan);
  if (arm->packed != NULL) bs_rank_get_api()->packed_release(arm->packed);
  arm->plan = NULL;
  arm->packed = NULL;
}

static int32_t pack(bs_kernel_arm *arm, bs_error *err) {
  int64_t rows, cols;
  const bs_op_query *q = renewed(arm, &arm->weight);
  const void *w = bs_kernel_data_input(arm->data, 1, &rows, &cols);
  bs_source source = {.struct_size = sizeof source};
  int32_t rc = bs_source_from_memory(w, arm->p.dtype, rows, cols, cols, &source, err);
  if (rc == BS_OK) rc = bs_rank_get_api()->pack(arm->rank, q, &source, &arm->packed, err);
  bs_source_release(&source);
  return rc;
}

/* Excludes from the kernel's peak the memory for moving tensors. */
static void watch_memory(bs_kernel_arm *arm) {
  bs_world_memory_peak_reset(arm->world);
}
static void note_memory(bs_kernel_arm *arm) {
  const uint64_t peak = bs_world_memory_peak(arm->world);
  if (peak > arm->most) arm->most = peak;
}

static int32_t make_plan(bs_kernel_arm *arm, bs_error *err) {
  const bs_op_query *q = renewed(arm, &arm->asked);
  arm->before = bs_world_memory_now(arm->world);
  watch_memory(arm);
  int32_t rc = bs_kernel_has_weight(&arm->p) ? pack(arm, err) : BS_OK;
  if (rc == BS_OK) rc = bs_rank_get_api()->op_prepare(arm->rank, q, arm->packed, &arm->plan, err);
  note_memory(arm);
  return rc;
}

static int32_t take_tensors(bs_kernel_arm *arm, bs_error *err) {
  int32_t rc = BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < arm->asked.query.nargs; i++)
    if (arm->asked.args[i] != NULL)
      rc = bs_rank_get_api()->tensor_alloc(arm->rank, arm->asked.args[i], BS_LIFE_ACTIVATION, &arm->tensor[i],
                                           err);
  return rc;
}

/* Checks that the world took the chosen implementation: it only warns about a wish that it cannot fulfil. */
static int32_t check_taken(bs_kernel_arm *arm, bs_error *err) {
  bs_choice_info info = {.struct_size = sizeof info};
  for (uint32_t i = 0; i < bs_world_choice_count(arm->world); i++) {
    const int32_t rc = bs_world_choice_get(arm->world, i, &info, err);
    if (rc != BS_OK) return rc;
    if (strcmp(info.key, arm->key) != 0) continue;
    bs_text_printf(&arm->candidates, "%s", info.candidates);
    if (arm->candidates.failed) return bs_no_memory(err, "the candidates");
    if (strcmp(info.chosen, arm->provider) == 0) return BS_OK;
    return bs_error_set(err, BS_UNSUPPORTED, "BS-KERNEL-CHOICE", "%s was asked and %s taken: %s",
                        arm->provider, info.chosen, info.why);
  }
  return bs_error_set(err, BS_INTERNAL, "BS-KERNEL-CHOICE", "the world has not asked for '%s'", arm->key);
}

static int32_t build(bs_kernel_arm *arm, bs_error *err) {
  int32_t rc = enter(arm, err);
  if (rc != BS_OK) return rc;
  rc = take_tensors(arm, err);
  if (rc == BS_OK) rc = make_plan(arm, err);
  if (rc == BS_OK) rc = check_taken(arm, err);
  if (rc == BS_OK) rc = read_all(arm, err);
  return leave(arm, rc, err);
}

static int32_t open_arm(const bs_kernel_setup *s, bs_kernel_arm *arm, int lse, bs_error *err) {
  arm->spacer = bs_spacer_take();
  describe(arm, lse);
  int32_t rc = choose(arm, s, err);
  if (rc == BS_OK) rc = make_world(arm, s, err);
  return rc == BS_OK ? build(arm, err) : rc;
}

void bs_kernel_arm_close(bs_kernel_arm *arm) {
  if (arm == NULL) return;
  if (arm->world != NULL && enter(arm, NULL) == BS_OK) {
    drop_plan(arm);
    for (uint32_t i = 0; i < arm->asked.query.nargs; i++)
      bs_rank_get_api()->tensor_free(arm->rank, &arm->tensor[i]);
    bs_world_leave(arm->world, NULL);
  }
  bs_world_destroy(arm->world);
  bs_kernel_data_free(arm->own);
  free(arm->spacer);
  bs_text_free(&arm->candidates);
  bs_text_free(&arm->choice);
  free(arm);
}

/* ---- runs --------------------------------------------------------------------------------------- */

static int32_t run_calls(bs_kernel_arm *arm, uint64_t n, bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  const double began = arm->on_device ? bs_clock_s() : 0.0;
  int32_t rc = BS_OK;
  watch_memory(arm);
  for (uint64_t i = 0; rc == BS_OK && i < n; i++)
    rc = api->op_run(arm->plan, arm->args, arm->asked.query.nargs, NULL, err);
  if (arm->on_device && n > 0) arm->queued = (bs_clock_s() - began) / (double)n;
  if (rc == BS_OK) rc = bs_rank_sync(arm->rank, err);
  note_memory(arm);
  return rc;
}

static uint64_t nanoseconds(struct timeval t) {
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_usec * 1000u;
}

int32_t bs_kernel_arm_batch(void *opaque, uint64_t lead, uint64_t n, bs_sample *out, bs_error *err) {
  bs_kernel_arm *arm = opaque;
  struct rusage before = {0}, after = {0};
  int32_t rc = enter(arm, err);
  if (rc != BS_OK) return rc;
  rc = run_calls(arm, lead, err);
  getrusage(RUSAGE_SELF, &before);
  const double began = bs_clock_s();
  if (rc == BS_OK) rc = run_calls(arm, n, err);
  out->seconds = (bs_clock_s() - began) / (double)(n > 0 ? n : 1);
  getrusage(RUSAGE_SELF, &after);
  out->switches = (uint64_t)(after.ru_nivcsw - before.ru_nivcsw);
  out->cpu_ns = nanoseconds(after.ru_utime) + nanoseconds(after.ru_stime) - nanoseconds(before.ru_utime) -
                nanoseconds(before.ru_stime);
  return leave(arm, rc, err);
}

int32_t bs_kernel_arm_series(void *opaque, uint64_t warmup, uint64_t n, double *out_seconds, bs_error *err) {
  bs_kernel_arm *arm = opaque;
  int32_t rc = enter(arm, err);
  if (rc != BS_OK) return rc;
  rc = run_calls(arm, warmup, err);
  for (uint64_t i = 0; rc == BS_OK && i < n; i++) {
    const double began = bs_clock_s();
    rc = run_calls(arm, 1, err);
    out_seconds[i] = bs_clock_s() - began;
    if (rc == BS_OK) rc = bs_stop_check(err);
  }
  return leave(arm, rc, err);
}

static int64_t elements(const bs_tensor_desc *d) {
  int64_t n = 1;
  for (uint32_t i = 0; i < d->rank; i++) n *= d->dims[i];
  return n;
}

static size_t output_bytes(const bs_kernel_arm *arm) {
  size_t bytes = 0;
  for (uint32_t i = 0; i < arm->n_out; i++) {
    const bs_tensor_desc *d = &arm->asked.desc[arm->out[i]];
    bytes += (size_t)elements(d) * BS_DTYPE_BYTES(d->dtype);
  }
  return bytes;
}

static void fill_nan(uint32_t dtype, char *y, size_t bytes) {
  const float nan = NAN;
  bs_convert(dtype, y, BS_F32, &nan, 1);
  for (size_t have = BS_DTYPE_BYTES(dtype); have < bytes; have *= 2)
    memcpy(y + have, y, have < bytes - have ? have : bytes - have);
}

/* Each output from host memory (into = 1), or into it. */
static int32_t move_outputs(bs_kernel_arm *arm, char *y, int into, bs_error *err) {
  int32_t rc = BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < arm->n_out; i++) {
    const bs_tensor_desc *d = &arm->asked.desc[arm->out[i]];
    const int64_t n = elements(d);
    const size_t bytes = (size_t)n * BS_DTYPE_BYTES(d->dtype);
    const bs_tensor flat = as_matrix(&arm->tensor[arm->out[i]], 1, n);
    if (into) fill_nan(d->dtype, y, bytes);
    rc =
        into ? read_in(arm, arm->out[i], y, d->dtype, 1, n, err) : bs_rank_copy_out(arm->rank, &flat, y, err);
    y += bytes;
  }
  return rc;
}

/* All outputs of one run, over NaN. The caller frees. */
static int32_t run_fresh(bs_kernel_arm *arm, size_t bytes, void **out, bs_error *err) {
  char *y = malloc(bytes > 0 ? bytes : 1);
  *out = NULL;
  if (y == NULL) return bs_no_memory(err, "%zu bytes of outputs", bytes);
  int32_t rc = move_outputs(arm, y, 1, err);
  if (rc == BS_OK) rc = run_calls(arm, 1, err);
  if (rc == BS_OK) rc = move_outputs(arm, y, 0, err);
  if (rc == BS_OK)
    *out = y;
  else
    free(y);
  return rc;
}

int32_t bs_kernel_arm_outputs(bs_kernel_arm *arm, void **out, bs_error *err) {
  *out = NULL;
  const int32_t rc = enter(arm, err);
  return rc == BS_OK ? leave(arm, run_fresh(arm, output_bytes(arm), out, err), err) : rc;
}

int32_t bs_kernel_arm_judge(bs_kernel_arm *arm, bs_kernel_numbers *out, bs_error *err) {
  void *y = NULL;
  int32_t rc = bs_kernel_arm_outputs(arm, &y, err);
  if (rc == BS_OK) rc = bs_kernel_data_judge(arm->data, y, out, err);
  free(y);
  return rc;
}

int32_t bs_kernel_arm_repeat(bs_kernel_arm *arm, uint64_t *out_differing, bs_error *err) {
  const size_t bytes = output_bytes(arm);
  void *first = NULL, *second = NULL;
  *out_differing = 0;
  int32_t rc = enter(arm, err);
  if (rc != BS_OK) return rc;
  rc = run_fresh(arm, bytes, &first, err);
  if (rc == BS_OK) rc = run_fresh(arm, bytes, &second, err);
  rc = leave(arm, rc, err);
  for (size_t i = 0; rc == BS_OK && i < bytes; i++)
    *out_differing += ((const char *)first)[i] != ((const char *)second)[i];
  free(first);
  free(second);
  return rc;
}

/* ---- open --------------------------------------------------------------------------------------- */

/* Computes Y and LSE by attention of the same backend, or by ref if no other implementation serves. */
static int32_t run_forward(const bs_kernel_setup *setup, const char *provider, bs_kernel_data *data,
                           bs_error *err) {
  bs_kernel_problem p = *setup->problem;
  bs_kernel_setup s = *setup;
  void *y = NULL;
  p.kind = BS_KERNEL_SDPA;
  s.problem = &p;
  s.provider = provider;
  s.knobs = NULL;
  bs_kernel_arm *arm = calloc(1, sizeof *arm);
  if (arm == NULL) return bs_no_memory(err, "an arm");
  arm->p = p;
  arm->data = data;
  int32_t rc = open_arm(&s, arm, 1, err);
  if (rc == BS_OK) {
    rc = enter(arm, err);
    if (rc == BS_OK) rc = leave(arm, run_fresh(arm, output_bytes(arm), &y, err), err);
  }
  if (rc == BS_OK) {
    const size_t of_y = (size_t)elements(&arm->asked.desc[6]) * BS_DTYPE_BYTES(p.dtype);
    rc = bs_kernel_data_set_forward(data, y, (const char *)y + of_y, err);
  }
  free(y);
  bs_kernel_arm_close(arm);
  return rc;
}

static int32_t need_forward(const bs_kernel_setup *setup, bs_kernel_data *data, bs_error *err) {
  if (!bs_kernel_data_lacks_forward(data)) return BS_OK;
  const int32_t rc = run_forward(setup, NULL, data, err);
  return rc == BS_UNSUPPORTED ? run_forward(setup, "ref", data, err) : rc;
}

static int32_t fill_arm(bs_kernel_arm *arm, const bs_kernel_setup *s, bs_error *err) {
  const bs_kernel_problem *p = s->problem;
  int32_t rc = BS_OK;
  arm->p = *p;
  arm->data = s->data;
  arm->forward = *s;
  arm->forward.problem = &arm->p;
  snprintf(arm->backend, sizeof arm->backend, "%s", s->backend != NULL ? s->backend : "cpu");
  arm->forward.backend = arm->backend;
  if (p->kind == BS_KERNEL_SDPA_DX && BS_DTYPE_BYTES(p->dtype) == 1)
    return bs_error_set(err, BS_UNSUPPORTED, "BS-KERNEL-KIND",
                        "gradients have no factors: attention_dx of %s", bs_dtype_name(p->dtype));
  if (arm->data == NULL) {
    rc = bs_kernel_data_make(p, s->seed, &arm->own, err);
    arm->data = arm->own;
  }
  if (rc == BS_OK) rc = need_forward(s, arm->data, err);
  return rc == BS_OK ? open_arm(s, arm, 0, err) : rc;
}

int32_t bs_kernel_arm_open(const bs_kernel_setup *s, bs_kernel_arm **out, bs_error *err) {
  *out = NULL;
  bs_kernel_arm *arm = calloc(1, sizeof *arm);
  if (arm == NULL) return bs_no_memory(err, "an arm");
  const int32_t rc = fill_arm(arm, s, err);
  if (rc != BS_OK) {
    bs_kernel_arm_close(arm);
    return rc;
  }
  *out = arm;
  return BS_OK;
}

int32_t bs_kernel_arm_load(bs_kernel_arm *arm, bs_kernel_data *data, bs_error *err) {
  int32_t rc = need_forward(&arm->forward, data, err);
  if (rc == BS_OK) rc = enter(arm, err);
  if (rc != BS_OK) return rc;
  arm->data = data;
  if (bs_kernel_is_product(&arm->p)) { /* the weights are in the plan */
    drop_plan(arm);
    rc = make_plan(arm, err);
  }
  if (rc == BS_OK) rc = read_all(arm, err);
  return leave(arm, rc, err);
}

/* ---- what the arm runs -------------------------------------------------------------------------- */

const char *bs_kernel_arm_provider(const bs_kernel_arm *arm) {
  return arm->provider;
}

bs_kernel_data *bs_kernel_arm_data(const bs_kernel_arm *arm) {
  return arm->data;
}

const char *bs_kernel_arm_key(const bs_kernel_arm *arm) {
  return arm->key;
}

const char *bs_kernel_arm_candidates(const bs_kernel_arm *arm) {
  return arm->candidates.data != NULL ? arm->candidates.data : "";
}

const char *bs_kernel_arm_algorithm(const bs_kernel_arm *arm) {
  return bs_world_algorithms(arm->world);
}

void bs_kernel_arm_same(const bs_kernel_arm *arm, char out[BS_KERNEL_SAME]) {
  const bs_op_echo *echo = bs_kernel_arm_echo(arm);
  out[0] = '\0';
  if (echo != NULL)
    snprintf(out, BS_KERNEL_SAME, "%.160s{%s} %s", bs_kernel_arm_provider(arm), echo->knobs, echo->build);
}

const bs_op_echo *bs_kernel_arm_echo(const bs_kernel_arm *arm) {
  return bs_plan_echo(arm->plan);
}

int bs_kernel_arm_on_device(const bs_kernel_arm *arm) {
  return arm->on_device;
}

double bs_kernel_arm_queued(const bs_kernel_arm *arm) {
  return arm->queued;
}

uint32_t bs_kernel_arm_tolerance(const bs_kernel_arm *arm) {
  return arm->tolerance;
}

uint64_t bs_kernel_arm_workspace(const bs_kernel_arm *arm) {
  return arm->workspace;
}

uint64_t bs_kernel_arm_bytes(const bs_kernel_arm *arm) {
  return arm->most > arm->before ? arm->most - arm->before : 0;
}
