/* SPDX-License-Identifier: MIT
 * check.c - checks each planned point in a child process. The supervisor opens no plugin; if a plugin ends
 * the child, only its answers are lost (points.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "lab/case/arms.h"
#include "lab/clock.h"
#include "lab/config/experiment.h"
#include "lab/error.h"
#include "lab/measure/constants.h"
#include "lab/measure/kernel.h"
#include "lab/phase/simulated.h"
#include "lab/run/run.h"
#include "lab/store/request_key.h"
#include "lab/store/sha256.h"
#include "lab/store/store.h"
#include "lab/sweep/declared.h"
#include "lab/sweep/points.h"

enum { MAX_DEATHS = 16 }; /* of children that check: then the other points stay unchecked */

typedef struct check {
  bs_context *context;
  const char *quiet_dir;
  const json_t *constants;
  int refused_only; /* only the refused points are checked again */
} check;

/* The next point, from i on, that must be checked; the number of all points if there is none. */
static size_t next_asked(const check *c, const json_t *points, size_t i) {
  for (; i < json_array_size(points); i++) {
    const json_t *point = json_array_get(points, i);
    if (!json_is_null(json_object_get(point, "duplicate_of"))) continue;
    if (!c->refused_only || json_is_string(json_object_get(point, "refused"))) break;
  }
  return i;
}

/* ---- in the child ---------------------------------------------------------------------------- */

/* Adds the text of the tree without `paths`. */
static int32_t add_text(bs_sha256 *h, const bs_node *tree, const char *const *paths, size_t n,
                        bs_error *err) {
  bs_text text = {0};
  const int32_t rc = bs_request_text(tree, paths, n, &text, err);
  if (rc == BS_OK) bs_sha256_field(h, text.data != NULL ? text.data : "");
  bs_text_free(&text);
  return rc;
}

/* `same`: equal sums request the same run, also with other words. *out_layer: equal ones share their
 * choices. */
static int32_t identify(const bs_experiment *e, uint32_t world, bs_sha256 *same, char out_layer[65],
                        bs_error *err) {
  /* The mask is last in this list: a method without masks does not depend on it. */
  static const char *const labels[] = {"run_id", "config_paths", "logging", "sweep", "mask"};
  static const char *const beside[] = {"run_id", "config_paths", "logging",       "sweep",
                                       "phase",  "experiment",   "workload.seed", "mask"};
  const size_t less = e->mask_given || e->importance != NULL;
  bs_node *tree = NULL;
  bs_sha256 layer;
  bs_sha256_init(&layer);
  int32_t rc = bs_experiment_settle(e, world, &tree, err);
  if (rc == BS_OK) rc = add_text(same, tree, labels, 5 - less, err);
  if (rc == BS_OK) rc = add_text(&layer, tree, beside, 8 - less, err);
  bs_sha256_hex(&layer, out_layer);
  bs_config_free(tree);
  return rc;
}

/* Seconds of one forward; 0: not known. By the kernel's rates if they are stored, else by the bound. */
static double predict(const check *c, const bs_experiment *e) {
  bs_subject subject;
  bs_arm_case arms[BS_ARMS_MAX];
  bs_machine machine;
  bs_kernel kernel;
  bs_predicted p = {0};
  double footprint = 0.0, seconds = 0.0;
  bs_error err = BS_ERROR_INIT;
  if (c->constants == NULL || bs_subject_open(c->context, e, &subject, &err) != BS_OK) return 0.0;
  bs_arms_of(c->context, e, &subject, arms);
  const bs_case *of = &arms[0].c;
  if (bs_predict_footprint(of, &footprint, &err) == BS_OK &&
      bs_constants_find(c->constants, of, footprint, &machine)) {
    const int known = bs_kernel_identify(of, &kernel, &err) == BS_OK &&
                      bs_constants_kernel(c->constants, of, footprint, &kernel, &kernel);
    if (bs_predict_case(&machine, known ? &kernel : NULL, of, &p, &err) == BS_OK)
      seconds = p.has_kernel ? p.kernel.total : p.bound.total;
  }
  bs_subject_close(&subject);
  return seconds;
}

static int32_t look(const check *c, const bs_experiment *e, bs_sha256 *same, json_t *answer, bs_error *err) {
  char layer[65];
  uint32_t world = 1;
  int32_t rc = bs_simulated_check(c->context, e, err);
  if (rc == BS_OK) rc = lab_run_open_parts(c->context, e, &world, err);
  if (rc == BS_OK) rc = lab_run_check_memory(c->context, e, err);
  if (rc == BS_OK) rc = identify(e, world, same, layer, err);
  if (rc != BS_OK) return rc;
  const int is_virtual = bs_clock_is_virtual(c->context, e->comm);
  if (!is_virtual && e->phase != BS_PHASE_CORRECTNESS) json_object_set_new(answer, "alone", json_true());
  if (!is_virtual && e->phase == BS_PHASE_FORWARD && e->tune_measure)
    json_object_set_new(answer, "layer", json_string(layer));
  const double seconds = is_virtual ? 0.0 : predict(c, e);
  if (seconds > 0) json_object_set_new(answer, "predicted_s", json_real(seconds));
  return BS_OK;
}

/* One phase of a point. A phase 0 without values to judge is left out, as a run does. */
static int32_t look_at_phase(const check *c, const char *text, int first_of_two, bs_sha256 *same,
                             json_t *answer, bs_error *err) {
  bs_experiment e = {0};
  bs_node *config = NULL;
  int32_t rc = bs_config_parse("plan.jsonl", text, strlen(text), &config, err);
  if (rc != BS_OK) return rc;
  rc = bs_experiment_make(c->context, config, c->quiet_dir, NULL, &e, err);
  if (rc != BS_OK) return rc;
  if (first_of_two && bs_backend_is_phantom(c->context, e.backend))
    json_object_set_new(answer, "phantom", json_true());
  else
    rc = look(c, &e, same, answer, err);
  bs_experiment_free(&e);
  return rc;
}

static json_t *answer_of(const check *c, const json_t *point) {
  char hex[65];
  bs_error err = BS_ERROR_INIT;
  bs_sha256 same;
  int32_t rc = BS_OK;
  const json_t *configs = json_object_get(point, "configs");
  const size_t n = json_array_size(configs);
  json_t *answer = json_pack("{s:O}", "i", json_object_get(point, "i"));
  bs_sha256_init(&same);
  for (size_t k = 0; rc == BS_OK && k < n; k++)
    rc = look_at_phase(c, json_string_value(json_array_get(configs, k)), n == 2 && k == 0, &same, answer,
                       &err);
  bs_sha256_hex(&same, hex);
  if (rc == BS_OK) {
    json_object_set_new(answer, "same", json_string(hex));
    return answer;
  }
  char text[900];
  snprintf(text, sizeof text, "[%s] %s%s%s", err.id, err.message, err.hint[0] != '\0' ? "; hint: " : "",
           err.hint);
  json_t *why = json_string(text);
  json_object_set_new(answer, "refused", why != NULL ? why : json_string("(not UTF-8)"));
  return answer;
}

/* The request to one child: all points from `first` on. */
typedef struct asked {
  const check *c;
  const json_t *points;
  size_t first;
} asked;

static void answer_all(void *user, int fd) {
  const asked *a = user;
  const check *c = a->c;
  const json_t *points = a->points;
  const size_t n = json_array_size(points);
  for (size_t i = next_asked(c, points, a->first); i < n; i = next_asked(c, points, i + 1)) {
    json_t *answer = answer_of(c, json_array_get(points, i));
    char *line = answer == NULL ? NULL : json_dumps(answer, JSON_COMPACT);
    if (line == NULL) return;
    if (bs_store_write_all(fd, line, strlen(line)) != 0 || bs_store_write_all(fd, "\n", 1) != 0) return;
    free(line);
    json_decref(answer);
  }
}

/* ---- in the supervisor ----------------------------------------------------------------------- */

static void drop_first(json_t *point) {
  static const char *const lists[] = {"phases", "keys", "configs"};
  for (size_t i = 0; i < 3; i++) json_array_remove(json_object_get(point, lists[i]), 0);
  json_object_set(point, "request_key", json_array_get(json_object_get(point, "keys"), 0));
}

static void take(json_t *point, const json_t *answer, json_t *seen) {
  json_t *same = json_object_get(answer, "same"), *value;
  static const char *const told[] = {"refused", "layer", "predicted_s"};
  json_object_set_new(point, "refused", json_null());
  for (size_t k = 0; k < 3; k++)
    if ((value = json_object_get(answer, told[k])) != NULL) json_object_set(point, told[k], value);
  json_object_set_new(point, "alone", json_boolean(json_is_true(json_object_get(answer, "alone"))));
  if (json_is_true(json_object_get(answer, "phantom"))) drop_first(point);
  if (same == NULL) return;
  const json_t *first = json_object_get(seen, json_string_value(same));
  if (first == NULL)
    json_object_set(seen, json_string_value(same), json_object_get(point, "i"));
  else
    json_object_set(point, "duplicate_of", (json_t *)(uintptr_t)first);
}

/* Runs one child, which checks from *at on until it is done or dies. *at: the next point to be answered. */
static int32_t ask(const check *c, json_t *points, json_t *seen, size_t *at, bs_error *err) {
  asked a = {c, points, *at};
  bs_text text = {0};
  const int32_t rc = bs_sweep_hear(answer_all, &a, &text, err);
  for (char *line = text.data, *end; line != NULL && (end = strchr(line, '\n')) != NULL; line = end + 1) {
    json_t *answer = json_loadb(line, (size_t)(end - line), 0, NULL);
    json_t *point = json_array_get(points, *at);
    const json_t *i = json_object_get(answer, "i");
    if (point != NULL && json_is_integer(i) && json_integer_value(i) == (json_int_t)*at) {
      *at = next_asked(c, points, *at + 1);
      take(point, answer, seen);
    }
    json_decref(answer);
  }
  bs_text_free(&text);
  return rc;
}

/* If a child dies, its current point stays unchecked, and another child checks the points after it. */
static int32_t ask_all(const check *c, json_t *points, bs_error *err) {
  const size_t n = json_array_size(points);
  size_t at = next_asked(c, points, 0);
  json_t *seen = json_object();
  int32_t rc = seen == NULL ? bs_no_memory(err, "a sweep") : BS_OK;
  for (int deaths = 0; rc == BS_OK && at < n; deaths++) {
    if (deaths < MAX_DEATHS) rc = ask(c, points, seen, &at, err);
    if (rc != BS_OK || at >= n) break;
    json_object_set_new(json_array_get(points, at), "unchecked", json_true());
    at = next_asked(c, points, at + 1);
  }
  json_decref(seen);
  return rc;
}

int32_t bs_points_check(bs_context *context, const char *quiet_dir, const json_t *constants, json_t *points,
                        bs_error *err) {
  const check c = {context, quiet_dir, constants, 0};
  return ask_all(&c, points, err);
}

int32_t bs_points_check_refused(bs_context *context, const char *quiet_dir, const json_t *constants,
                                json_t *points, bs_error *err) {
  const check c = {context, quiet_dir, constants, 1};
  return ask_all(&c, points, err);
}

size_t bs_points_unchecked(const json_t *points) {
  size_t n = 0;
  for (size_t i = 0; i < json_array_size(points); i++)
    n += json_is_true(json_object_get(json_array_get(points, i), "unchecked"));
  return n;
}
