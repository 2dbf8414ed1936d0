/* SPDX-License-Identifier: MIT
 * model_subject.c - see model_subject.h. */
#include "lab/diagnose/model_subject.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "core/base/clock.h"
#include "lab/cores.h"
#include "lab/error.h"
#include "lab/measure/arm.h"
#include "lab/measure/constants.h"
#include "lab/model/inputs.h"

/* ---- sessions -------------------------------------------------------------------------------- */

int32_t diag_inputs_set(diag_session *s, bs_error *err) {
  return bs_model_fill(s->m->model, s->session, 1, s->memory, err);
}

uint32_t diag_model_ranks(const diag_model *m) {
  return m->request.ranks != NULL ? m->ranks.n : 1;
}

static int32_t make_inputs(diag_session *s, bs_error *err) {
  s->memory = calloc(s->m->n_inputs + 1u, sizeof *s->memory);
  return s->memory != NULL ? diag_inputs_set(s, err) : bs_no_memory(err, "inputs");
}

int32_t diag_session_asked(const diag_model *m, diag_session *out, bs_error *err) {
  *out = (diag_session){
      .m = m, .session = m->model->session, .ranks = diag_model_ranks(m), .threads = m->request.threads};
  return make_inputs(out, err);
}

enum { MOST_OFF = 64 };

/* Adds a pass to those that are off, except the one that stays on: "all" without one is all others. */
static size_t leave_out(const char *pass, const char *on, const char **off, size_t n) {
  const char *name;
  if (on == NULL || (strcmp(pass, on) != 0 && strcmp(pass, "all") != 0 && strcmp(on, "all") != 0)) {
    if (n < MOST_OFF) off[n++] = pass;
  } else if (strcmp(pass, "all") == 0 && strcmp(on, "all") != 0) {
    for (uint32_t i = 0; (name = bs_graph_pass_name(i)) != NULL && n < MOST_OFF; i++)
      if (strcmp(name, on) != 0) off[n++] = name;
  }
  return n;
}

/* The ranks of the session, and whether its world is the requested one's. */
static void choose_world(const diag_model *m, const diag_change *change, bs_model_ranks *ranks,
                         bs_model_request *io_request, bs_model *io_view) {
  *ranks = m->ranks;
  ranks->threads = io_request->threads;
  if (io_request->ranks == NULL) return;
  io_request->ranks = change->one_rank ? NULL : ranks;
  if (change->one_rank) io_request->threads *= ranks->n;
  if (change->one_rank || ranks->threads != m->ranks.threads || change->backend != NULL ||
      change->no_choices || change->choice != NULL)
    io_view->world = NULL;
}

/* Opens a session in a view of the model: the same inputs and sizes. */
int32_t diag_session_open(const diag_model *m, const diag_change *change, diag_session *out, bs_error *err) {
  bs_model view = *m->model;
  bs_model_request r = m->request;
  bs_model_ranks ranks;
  const char *off[MOST_OFF + 1], *choices[65];
  size_t n = 0, n_choices = 0;
  *out = (diag_session){.m = m};
  if (change->threads > 0) r.threads = change->threads;
  if (change->backend != NULL) r.backend = change->backend;
  for (size_t i = 0; !change->no_choices && i < r.choices.n && n_choices < 64; i++)
    choices[n_choices++] = r.choices.words[i];
  if (change->choice != NULL) choices[n_choices++] = change->choice;
  r.choices = (bs_model_words){choices, n_choices};
  r.profile = change->profile;
  for (size_t i = 0; !change->all_passes && i < m->model->n_passes_off; i++)
    n = leave_out(m->model->passes_off[i], change->pass_on, off, n);
  if (change->pass_off != NULL) off[n++] = change->pass_off;
  view.session = NULL;
  view.passes_off = off;
  view.n_passes_off = n;
  choose_world(m, change, &ranks, &r, &view);
  int32_t rc = bs_model_start_beside(m->context, &r, &view, change->share ? m->model->session : NULL, err);
  out->session = view.session;
  out->world = view.world != m->model->world ? view.world : NULL;
  out->ranks = r.ranks != NULL ? ranks.n : 1;
  out->threads = r.threads;
  if (rc == BS_OK) rc = make_inputs(out, err);
  if (rc != BS_OK) diag_session_close(out);
  return rc;
}

void diag_session_close(diag_session *s) {
  if (s->m == NULL) return;
  if (s->session != s->m->model->session) bs_session_close(s->session);
  bs_world_destroy(s->world);
  for (uint32_t i = 0; s->memory != NULL && i < s->m->n_inputs; i++) free(s->memory[i]);
  free(s->memory);
  memset(s, 0, sizeof *s);
}

int32_t diag_session_run(const diag_session *s, bs_error *err) {
  const int32_t rc = s->m->cached ? bs_session_cache(s->session, 0, err) : BS_OK;
  return rc == BS_OK ? bs_session_run(s->session, err) : rc;
}

/* ---- times ----------------------------------------------------------------------------------- */

static uint64_t switches_now(void) {
  struct rusage used;
  return getrusage(RUSAGE_SELF, &used) == 0 ? (uint64_t)used.ru_nivcsw : 0;
}

static int32_t batch(void *user, uint64_t lead, uint64_t n, bs_sample *out, bs_error *err) {
  const diag_session *s = user;
  int32_t rc = BS_OK;
  for (uint64_t i = 0; rc == BS_OK && i < lead; i++) rc = diag_session_run(s, err);
  const uint64_t switches = switches_now();
  const double began = bs_clock_s();
  for (uint64_t i = 0; rc == BS_OK && i < n; i++) rc = diag_session_run(s, err);
  out->seconds = (bs_clock_s() - began) / (double)n;
  out->switches = switches_now() - switches;
  return rc;
}

bs_sampler_arm diag_session_arm(diag_session *s, const char *name) {
  const char *backend = s->m->request.backend != NULL ? s->m->request.backend : "cpu";
  return (bs_sampler_arm){.name = name,
                          .user = s,
                          .batch = batch,
                          .threads = bs_host_threads(s->m->context, backend, s->ranks, s->threads)};
}

int32_t diag_session_report(const diag_session *s, uint32_t what, json_t **out, bs_error *err) {
  bs_model view = *s->m->model;
  char *text = NULL;
  view.session = s->session;
  const int32_t rc = bs_model_text(&view, what, 1, &text, err);
  *out = text != NULL ? json_loads(text, 0, NULL) : NULL;
  free(text);
  if (rc == BS_OK && *out == NULL)
    return bs_error_set(err, BS_INTERNAL, "BS-MODEL-REPORT", "a report of the session is no JSON");
  return rc;
}

int32_t diag_session_profile(const bs_diagnosis *d, const diag_session *s, json_t **out, bs_error *err) {
  int32_t rc = BS_OK;
  const double end = bs_clock_s() + d->seconds;
  for (int i = 0; rc == BS_OK && (i < 4 || bs_clock_s() < end) && i < 1000; i++)
    rc = diag_session_run(s, err);
  return rc == BS_OK ? diag_session_report(s, BS_REPORT_PROFILE, out, err) : rc;
}

int32_t diag_model_pair(bs_diagnosis *d, const diag_model *m, const diag_change *change, bs_pair_times *out,
                        bs_session_stats *out_stats, uint32_t *out_nodes, bs_error *err) {
  diag_session asked = {0}, other = {0};
  int32_t rc = diag_session_asked(m, &asked, err);
  if (rc == BS_OK) rc = diag_session_open(m, change, &other, err);
  if (rc == BS_OK) {
    const bs_sampler_arm arms[2] = {diag_session_arm(&asked, "as it is"),
                                    diag_session_arm(&other, "changed")};
    rc = bs_pair_time(d, arms, out, err);
  }
  if (rc == BS_OK && out_stats != NULL) {
    *out_stats = (bs_session_stats){.struct_size = sizeof *out_stats};
    rc = bs_session_stats_get(other.session, out_stats, err);
  }
  if (rc == BS_OK && out_nodes != NULL) *out_nodes = bs_session_node_count(other.session);
  diag_session_close(&other);
  diag_session_close(&asked);
  return rc;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* Sizes of dimensions that nothing gives: of those called a batch, and of all others. */
static const int64_t batches[BS_PRESETS_] = {2, 2, 8}, tokens[BS_PRESETS_] = {32, 32, 128};

static int32_t open_subject(const bs_diagnosis *d, diag_model *m, bs_error *err) {
  bs_graph_info info = {.struct_size = sizeof info};
  int32_t rc = bs_graph_info_get(m->model->graph, &info, err);
  m->cached = rc == BS_OK && info.cache_tokens > 0;
  m->n_inputs = bs_graph_port_count(m->model->graph, 1);
  const uint32_t preset = d->asked->preset;
  if (rc == BS_OK) rc = bs_model_size_dims(&m->request, m->model, batches[preset], tokens[preset], err);
  if (rc == BS_OK) rc = bs_model_start(m->context, &m->request, m->model, err);
  if (rc == BS_OK) rc = bs_model_find_domains(&m->request, m->model, err);
  if (rc == BS_OK) rc = bs_model_check_domains(m->model, err);
  if (rc != BS_OK) return rc;
  const diag_session whole = {.m = m, .session = m->model->session};
  rc = diag_session_report(&whole, BS_REPORT_EXPLAIN, &m->explain, err);
  for (size_t i = 0; rc == BS_OK && i < m->request.choices.n; i++)
    rc = bs_choice_known(json_object_get(m->explain, "nodes"), "--choice", m->request.choices.words[i], err);
  return rc;
}

static int32_t measure(bs_diagnosis *d, diag_model *m, bs_error *err) {
  diag_session s = {0};
  bs_tell(d, "the model as it is", 0, 0);
  int32_t rc = diag_session_asked(m, &s, err);
  const bs_sampler_arm arm = diag_session_arm(&s, "as it is");
  if (rc == BS_OK) rc = bs_arm_time(d, &arm, &m->steady, &m->first, err);
  m->stats = (bs_session_stats){.struct_size = sizeof m->stats};
  if (rc == BS_OK) rc = bs_session_stats_get(m->model->session, &m->stats, err);
  d->pass_s = m->steady;
  diag_session_close(&s);
  return rc;
}

static json_t *subject_of(const diag_model *m) {
  json_t *subject =
      json_pack("{s:o, s:s, s:i, s:o, s:i}", "model", bs_model_json_text(m->request.path), "backend",
                m->request.backend != NULL ? m->request.backend : "cpu", "threads", (int)m->request.threads,
                "dims", bs_model_dims(m->model), "nodes", (int)bs_session_node_count(m->model->session));
  if (subject == NULL || m->request.ranks == NULL) return subject;
  json_object_set_new(subject, "method", json_string(m->ranks.method));
  json_object_set_new(subject, "world_size", json_integer(m->ranks.n));
  json_object_set_new(subject, "comm", json_string(m->ranks.comm != NULL ? m->ranks.comm : "threads"));
  return subject;
}

/* Threads of one rank, which the request leaves open. */
static void take_ranks(diag_model *m) {
  m->request.threads = bs_model_threads(&m->request);
  if (m->request.ranks == NULL) return;
  m->ranks = *m->request.ranks;
  m->ranks.threads = m->request.threads;
  m->request.ranks = &m->ranks;
}

int32_t bs_diagnose_model(bs_context *context, const bs_model_request *request, bs_model *model,
                          const bs_diagnose_request *asked, json_t **out, bs_error *err) {
  diag_model m = {.context = context, .request = *request, .model = model};
  bs_diagnosis d = {0};
  bs_load before, after;
  *out = NULL;
  bs_load_now(&before);
  take_ranks(&m);
  int32_t rc = bs_diagnose_words(asked, 1, err);
  if (rc == BS_OK) rc = bs_diagnosis_open(&d, asked, err);
  if (rc == BS_OK) rc = open_subject(&d, &m, err);
  if (rc == BS_OK) rc = measure(&d, &m, err);
  if (rc == BS_OK) rc = bs_diagnosis_run(&d, NULL, &m, err);
  bs_load_now(&after);
  if (rc == BS_OK)
    rc = bs_diagnosis_result(&d, "model", subject_of(&m), bs_load_json(&before, &after), out, err);
  json_decref(m.explain);
  bs_diagnosis_close(&d);
  return rc;
}
