/* SPDX-License-Identifier: MIT
 * open.c - reads a model by what its path is: a file .onnx or .gguf, or a folder with config.json. */
#include <string.h>
#include <sys/stat.h>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "formats/guard.h"
#include "graph/api.h"
#include "graph/import/import.h"
#include "graph/run/args.h"

BS_API int32_t bs_graph_open(bs_context *context, const char *path, const bs_graph_options *options,
                             bs_graph **out_graph, bs_error *err) {
  struct stat at;
  if (context == NULL || path == NULL || out_graph == NULL)
    return gargs_null("bs_graph_open", "context, path and out_graph", err);
  if (options != NULL && gargs_size("bs_graph_open", "bs_graph_options", options->struct_size, err) != BS_OK)
    return BS_INVALID_ARGUMENT;
  gmodel *model = NULL;
  const double began = bs_clock_s();
  const int folder = stat(path, &at) == 0 && S_ISDIR(at.st_mode);
  const int gguf = strlen(path) > 5 && strcmp(path + strlen(path) - 5, ".gguf") == 0;
  int32_t rc = folder ? import_folder(path, options, &model, err)
               : gguf ? import_gguf(path, options, &model, err)
                      : import_onnx(path, &model, err);
  if (rc == BS_OK) rc = gmodel_check(model, err);
  if (rc == BS_OK) rc = gmodel_set_about(model, path, model->producer, err);
  if (rc != BS_OK) {
    bs_error_file(err, path);
    gmodel_free(model);
    return rc;
  }
  model->file_of = bs_guard_file;
  model->load_seconds = bs_clock_s() - began;
  rc = bs_graph_of(context, model, out_graph, err);
  if (rc == BS_OK) (*out_graph)->finished = 1;
  return rc;
}
