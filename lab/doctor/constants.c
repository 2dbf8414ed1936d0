/* SPDX-License-Identifier: MIT
 * constants.c - the machine's constants as rows: measured and kept, or those that are kept. */
#include <stdio.h>
#include <string.h>

#include "lab/doctor/doctor.h"
#include "lab/error.h"
#include "lab/json.h"
#include "lab/measure/constants.h"

static const char *text_in(const json_t *row, const char *key) {
  const char *text = json_string_value(json_object_get(row, key));
  return text != NULL ? text : "?";
}

void bs_doctor_stored(bs_doctor *d, const char *cache) {
  bs_error why = BS_ERROR_INIT;
  json_t *constants = NULL;
  if (cache == NULL) {
    bs_doctor_add(d, "machine constants", BS_CHECK_OK, NULL, "not kept: every phase 1 measures them");
    return;
  }
  const int32_t rc = bs_constants_load(cache, &constants, &why);
  if (rc == BS_OK) {
    const json_t *c = json_object_get(constants, "conditions");
    const int forced = json_is_true(json_object_get(constants, "forced"));
    bs_doctor_add(d, "machine constants", forced ? BS_CHECK_WARN : BS_CHECK_OK,
                  "they were kept by --force: bsrun doctor --measure on a quiet machine",
                  "measured at %s (load %.1f before, others took %.0f %% of the processors' time), in %s",
                  json_string_value(json_object_get(constants, "measured_at")),
                  bs_get_number(c, "load_before"), 100.0 * bs_get_number(c, "others"), cache);
  } else if (rc == BS_NOT_FOUND) {
    bs_doctor_add(d, "machine constants", BS_CHECK_OK, NULL,
                  "none kept: every phase 1 measures them; bsrun doctor --measure does it once");
  } else {
    bs_doctor_add(d, "machine constants", BS_CHECK_WARN, why.hint, "[%s] %s", why.id, why.message);
  }
  json_decref(constants);
}

/* The text of one row of a list; for a product that no implementation serves, the reason. */
static void constant_text(const json_t *row, const char *list, char *out, size_t size) {
  const char *dtype = text_in(row, "dtype"), *on = text_in(row, "backend");
  if (strcmp(list, "arithmetic") == 0) {
    snprintf(out, size, "%s: %.1f G%s/s a core, %.1f all (%s)", dtype,
             1e-9 * bs_get_number(row, "flops_core"), strcmp(dtype, "i8") == 0 ? "OP" : "FLOP",
             1e-9 * bs_get_number(row, "flops_all"), text_in(row, "loop"));
  } else if (strcmp(list, "memory") == 0) {
    snprintf(
        out, size, "%.0f MiB: reads %.1f GB/s a core, %.1f all; copies %.1f a core, %.1f all",
        bs_get_number(row, "footprint_bytes") / 1048576.0, 1e-9 * bs_get_number(row, "read_bytes_per_s_core"),
        1e-9 * bs_get_number(row, "read_bytes_per_s_all"), 1e-9 * bs_get_number(row, "copy_bytes_per_s_core"),
        1e-9 * bs_get_number(row, "copy_bytes_per_s_all"));
  } else if (strcmp(list, "exchange") == 0) {
    snprintf(out, size,
             "%s, %s, %d ranks: %.2f us for 4 bytes, %.1f us for 64 KiB, %.2f GB/s for 1 MiB, %.2f for 4 MiB",
             on, text_in(row, "comm"), (int)bs_get_number(row, "world_size"),
             1e6 * bs_get_number(row, "all_reduce_4B_s"), 1e6 * bs_get_number(row, "all_reduce_64KiB_s"),
             1e-9 * 1048576.0 / bs_get_number(row, "all_reduce_1MiB_s"),
             1e-9 * 4194304.0 / bs_get_number(row, "all_reduce_4MiB_s"));
  } else if (strcmp(list, "host") == 0) {
    snprintf(out, size, "%s: %.2f us a forward", on, 1e6 * bs_get_number(row, "host_s"));
  } else if (json_object_get(row, "why") != NULL) {
    snprintf(out, size, "%s %s%s: not measured: %s", on, dtype, bs_constants_of24(row) ? " 2:4" : "",
             text_in(row, "why"));
  } else {
    snprintf(
        out, size,
        "%s %s%s, %.3g MiB: %.1f GFLOP/s a core, %.1f all; one token %.1f GB/s a core, %.1f all (%s: %s)", on,
        dtype, bs_constants_of24(row) ? " 2:4" : "", bs_get_number(row, "footprint_bytes") / 1048576.0,
        1e-9 * bs_get_number(row, "flops_core"), 1e-9 * bs_get_number(row, "flops_all"),
        1e-9 * bs_get_number(row, "bytes_per_s_core"), 1e-9 * bs_get_number(row, "bytes_per_s_all"),
        text_in(row, "name"), text_in(row, "how"));
  }
}

/* The reason to doubt a row, or NULL; list NULL: the reason to doubt all rows. */
static const char *doubt_of(const json_t *doubts, const char *list, size_t row) {
  for (size_t i = 0; i < json_array_size(doubts); i++) {
    const json_t *d = json_array_get(doubts, i);
    const char *of = json_string_value(json_object_get(d, "list"));
    if (list == NULL ? of == NULL
                     : of != NULL && strcmp(of, list) == 0 && bs_get_number(d, "row") == (double)row)
      return text_in(d, "why");
  }
  return NULL;
}

static void constant_rows(bs_doctor *d, const json_t *constants, const json_t *doubts) {
  static const char *const lists[][2] = {{"arithmetic", "multiply-adds"},
                                         {"memory", "memory bandwidth"},
                                         {"exchange", "all-reduce cost"},
                                         {"host", "host cost"},
                                         {"kernels", "products"}};
  for (size_t k = 0; k < sizeof lists / sizeof lists[0]; k++) {
    const json_t *row;
    size_t i;
    json_array_foreach(json_object_get(constants, lists[k][0]), i, row) {
      char text[512];
      const char *doubt = doubt_of(doubts, lists[k][0], i);
      constant_text(row, lists[k][0], text, sizeof text);
      bs_doctor_add(d, lists[k][1], doubt != NULL ? BS_CHECK_WARN : BS_CHECK_OK, doubt, "%s", text);
    }
  }
}

/* Constants of a busy machine make every later prediction wrong. */
static void refuse(bs_doctor *d, const char *done, const char *why) {
  bs_doctor_add(
      d, "machine constants", BS_CHECK_FAIL,
      "wait until the machine is quiet, then bsrun doctor --measure; --force measures and keeps them "
      "all the same",
      "%s: %s", done, why);
}

static int may_keep(bs_doctor *d, const bs_doctor_measuring *m, const json_t *doubts) {
  const char *whole = doubt_of(doubts, NULL, 0);
  const json_t *doubt;
  size_t i, n = 0;
  json_array_foreach(doubts, i, doubt) n += !json_is_true(json_object_get(doubt, "keep"));
  const size_t odd = n - (whole != NULL);
  char text[320], rows[64] = "";
  if (n == 0 || m->cache == NULL || m->force) return 1;
  if (odd > 0)
    snprintf(rows, sizeof rows, "%s%zu constant%s be", whole != NULL ? "; " : "", odd,
             odd == 1 ? " cannot" : "s cannot");
  snprintf(text, sizeof text, "%.200s%s", whole != NULL ? whole : "", rows);
  refuse(d, "measured, but not kept", text);
  return 0;
}

void bs_doctor_keep(bs_doctor *d, const char *cache, const json_t *constants) {
  bs_error err = BS_ERROR_INIT;
  if (cache == NULL || bs_constants_store(cache, constants, &err) == BS_OK)
    bs_doctor_stored(d, cache);
  else
    bs_doctor_add(d, "machine constants", BS_CHECK_FAIL, err.hint, "measured, but not kept: [%s] %s", err.id,
                  err.message);
}

void bs_doctor_measure(bs_doctor *d, const bs_doctor_measuring *m) {
  bs_error err = BS_ERROR_INIT;
  json_t *constants = NULL;
  const bs_case like = {
      .context = m->context, .comm = d->comm, .world_size = 1, .bind = 1, .timeout_s = d->timeout_s};
  char busy[256];
  if (!m->force && bs_load_is_high(busy, sizeof busy)) {
    refuse(d, "not measured", busy);
    return;
  }
  const int32_t rc =
      bs_constants_measure(&like, m->backends, m->n_backends, m->progress, m->user, &constants, &err);
  json_t *doubts = bs_constants_doubts(constants);
  if (rc == BS_OK) constant_rows(d, constants, doubts);
  const int keep = rc == BS_OK && may_keep(d, m, doubts);
  if (keep && m->force) json_object_set_new(constants, "forced", json_true());
  if (rc != BS_OK) bs_doctor_error(d, "machine constants", &err);
  if (keep) bs_doctor_keep(d, m->cache, constants);
  json_decref(doubts);
  json_decref(constants);
}
