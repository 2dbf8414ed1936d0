/* SPDX-License-Identifier: MIT
 * run.c - a started model runs once on its inputs; its outputs are described and written. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/memory.h"
#include "core/base/text.h"
#include "lab/model/inputs.h"

/* ---- outputs --------------------------------------------------------------------------------- */

void *bs_model_dense(const bs_tensor *t, uint32_t *out_dtype, uint64_t *out_count) {
  const uint32_t dtype = t->dtype == BS_BF16 ? BS_F32 : t->dtype;
  uint64_t count = 1;
  for (uint32_t d = 0; d < t->rank; d++) count *= (uint64_t)t->dims[d];
  const uint64_t bytes = count * BS_DTYPE_BYTES(dtype);
  void *copy =
      bs_memory_fits(bytes, "BS-MODEL-MEMORY", "copies of tensors", NULL) == BS_OK ? malloc(bytes + 1) : NULL;
  if (copy != NULL) bs_read_dense(dtype, copy, t);
  *out_count = count;
  *out_dtype = dtype;
  return copy;
}

/* Describes an output: the range and the mean of its numbers. */
static json_t *describe(const bs_tensor *t, const char *name, uint32_t dtype, const void *data,
                        uint64_t count) {
  double low = INFINITY, high = -INFINITY, sum = 0;
  uint64_t nonfinite = 0;
  json_t *first = json_array(), *shape = json_array();
  for (uint32_t d = 0; d < t->rank; d++) json_array_append_new(shape, json_integer(t->dims[d]));
  for (uint64_t i = 0; i < count; i++) {
    const double v = bs_load_f64(dtype, data, (int64_t)i);
    if (i < 8) json_array_append_new(first, isfinite(v) ? json_real(v) : json_null());
    if (!isfinite(v)) {
      nonfinite++;
      continue;
    }
    low = v < low ? v : low;
    high = v > high ? v : high;
    sum += v;
  }
  const uint64_t n = count - nonfinite;
  json_t *row =
      json_pack("{s:o, s:s, s:o, s:I, s:o}", "name", bs_model_json_text(name), "dtype",
                bs_dtype_name(t->dtype), "shape", shape, "nonfinite", (json_int_t)nonfinite, "first", first);
  json_object_set_new(row, "min", n > 0 ? json_real(low) : json_null());
  json_object_set_new(row, "max", n > 0 ? json_real(high) : json_null());
  json_object_set_new(row, "mean", n > 0 ? json_real(sum / (double)n) : json_null());
  return row;
}

/* DIR/NAME.npy: bytes of the name other than letters, digits, '.', '-' and '_' become '_'. If another output
 * has the name already, the port's number is added. */
static char *output_path(const char *dir, const char *name, const json_t *before, uint32_t number) {
  static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
  bs_text path = {0};
  bs_text_printf(&path, "%s/", dir);
  const size_t begin = path.size;
  bs_text_printf(&path, "%.200s", name[0] != '\0' ? name : "output");
  for (size_t i = begin; i < path.size; i++)
    if (strchr(plain, path.data[i]) == NULL || (i == begin && path.data[i] == '.')) path.data[i] = '_';
  const size_t end = path.size;
  bs_text_printf(&path, ".npy");
  for (size_t i = 0; i < json_array_size(before) && !path.failed; i++) {
    const char *other = json_string_value(json_object_get(json_array_get(before, i), "file"));
    if (other == NULL || strcmp(other, path.data) != 0) continue;
    path.size = end;
    bs_text_printf(&path, ".%u.npy", number);
    break;
  }
  if (!path.failed) return path.data;
  bs_text_free(&path);
  return NULL;
}

static int32_t take_output(const bs_model *m, uint32_t port, const char *dir, json_t *rows, bs_error *err) {
  const char *name;
  uint64_t count = 0;
  bs_tensor_desc desc = {.struct_size = sizeof desc};
  bs_tensor t = {.struct_size = sizeof t};
  int32_t rc = bs_session_port(m->session, port, &name, &desc, err);
  if (rc == BS_OK) rc = bs_session_get(m->session, port, &t, err);
  if (rc != BS_OK) return rc;
  uint32_t dtype = 0;
  rc = bs_memory_fits(t.bytes, "BS-MODEL-MEMORY", "copies of the outputs", err);
  if (rc != BS_OK) return rc;
  void *data = bs_model_dense(&t, &dtype, &count);
  if (data == NULL)
    return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for output '%.100s'", name);
  json_t *row = describe(&t, name, dtype, data, count);
  char *path = dir != NULL ? output_path(dir, name, rows, port) : NULL;
  if (dir != NULL && path == NULL) rc = bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for a path");
  if (path != NULL) rc = bs_npy_write(path, dtype, t.rank, t.dims, data, err);
  if (path != NULL) json_object_set_new(row, "file", bs_model_json_text(path));
  json_array_append_new(rows, row);
  free(path);
  free(data);
  return rc;
}

/* ---- the run --------------------------------------------------------------------------------- */

/* Adds the backend that serves the first node which the session's own does not. */
static void put_fallback(const bs_session *session, json_t *io_stats) {
  for (uint32_t i = 0; i < bs_session_node_count(session); i++) {
    bs_node_info node = {.struct_size = sizeof node};
    if (bs_session_node(session, i, &node, NULL) != BS_OK || node.reason[0] == '\0') continue;
    json_object_set_new(io_stats, "fallback", json_stringn(node.serves, strcspn(node.serves, ":")));
    return;
  }
}

json_t *bs_model_stats(const bs_session *session) {
  bs_session_stats s = {.struct_size = sizeof s};
  if (bs_session_stats_get(session, &s, NULL) != BS_OK) return json_object();
  const struct {
    const char *name;
    uint64_t value;
  } counts[] = {{"runs", s.runs},
                {"plans_made", s.plans_made},
                {"plans_again", s.plans_again},
                {"plans_reused", s.plans_reused},
                {"host_waits", s.host_waits},
                {"copied_bytes", s.copied_bytes},
                {"fallback_nodes", s.fallback_nodes},
                {"arena_bytes", s.arena_bytes},
                {"bound_bytes", s.bound_bytes},
                {"naive_bytes", s.naive_bytes},
                {"scratch_bytes", s.scratch_bytes},
                {"packed_bytes", s.packed_bytes},
                {"constant_bytes", s.constant_bytes},
                {"state_bytes", s.state_bytes},
                {"ranks", s.ranks},
                {"layers", s.layers},
                {"layers_whole", s.layers_whole},
                {"layers_again", s.layers_again},
                {"collectives", s.collectives},
                {"payload_bytes", s.payload_bytes}};
  const struct {
    const char *name;
    double value;
  } seconds[] = {{"load_s", s.load_s},          {"lower_s", s.lower_s}, {"pass_s", s.pass_s},
                 {"plan_s", s.plan_s},          {"pack_s", s.pack_s},   {"prepare_s", s.prepare_s},
                 {"first_run_s", s.first_run_s}};
  json_t *out = json_object();
  for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
    json_object_set_new(out, counts[i].name, json_integer((json_int_t)counts[i].value));
  for (size_t i = 0; i < sizeof seconds / sizeof seconds[0]; i++)
    json_object_set_new(out, seconds[i].name, json_real(seconds[i].value));
  if (s.fallback_nodes > 0) put_fallback(session, out);
  return out;
}

int32_t bs_model_run(const bs_model_request *request, bs_model *model, int ran, const char *output_dir,
                     json_t **out, bs_error *err) {
  const uint32_t n_inputs = bs_graph_port_count(model->graph, 1);
  json_t *outputs = json_array();
  *out = NULL;
  int32_t rc = ran ? BS_OK : bs_model_set_inputs(request, model, err);
  if (rc == BS_OK && output_dir != NULL && mkdir(output_dir, 0777) != 0 && errno != EEXIST)
    rc = bs_error_errno(err, BS_IO, "BS-OUT-DIR", errno, "cannot make the folder %.200s", output_dir);
  if (rc == BS_OK && !ran)
    rc = bs_model_blame_input(request, model, bs_session_run(model->session, err), err);
  for (uint32_t port = n_inputs; rc == BS_OK && port < bs_session_port_count(model->session); port++)
    rc = take_output(model, port, output_dir, outputs, err);
  if (rc != BS_OK) {
    json_decref(outputs);
    return rc;
  }
  *out = json_pack("{s:o, s:s, s:I, s:o, s:b, s:I, s:o, s:o}", "model", bs_model_json_text(request->path),
                   "backend", request->backend != NULL ? request->backend : "cpu", "threads",
                   (json_int_t)request->threads, "dims", bs_model_dims(model), "made_inputs",
                   bs_model_makes_inputs(model), "nodes", (json_int_t)bs_session_node_count(model->session),
                   "outputs", outputs, "stats", bs_model_stats(model->session));
  return *out != NULL ? BS_OK
                      : bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for the outputs' rows");
}

json_t *bs_model_dims(const bs_model *model) {
  json_t *dims = json_object();
  for (size_t i = 0; i < model->n_dims; i++)
    json_object_set_new(dims, model->dims[i].name, json_integer(model->dims[i].size));
  return dims;
}

static void put_text(void *user, const char *text) {
  bs_text_append(user, text, strlen(text));
}

int32_t bs_model_text(const bs_model *model, uint32_t what, uint32_t json, char **out_text, bs_error *err) {
  bs_text text = {0};
  int32_t rc = bs_session_text(model->session, what, json, put_text, &text, err);
  if (rc == BS_OK) put_text(&text, "");
  if (rc == BS_OK && (text.failed || text.data == NULL))
    rc = bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for a report");
  if (rc == BS_OK) {
    *out_text = text.data;
  } else {
    bs_text_free(&text);
  }
  return rc;
}
