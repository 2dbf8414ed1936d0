/* SPDX-License-Identifier: MIT
 * import.h - from files to a source model (graph/model.h). The model keeps the files open and mapped:
 * constants are their bytes, and gmodel_unchanged tells when one was cut or written since. The caller checks
 * the model (gmodel_check) and frees it. Errors are BS_INPUT (exit 4); on failure there is no model. */
#ifndef BS_GRAPH_IMPORT_IMPORT_H
#define BS_GRAPH_IMPORT_IMPORT_H
#include "graph/model.h"

/* An ONNX file. Functions of the model are put in the place of their calls. A custom operator without a
 * function stays a node with its domain: the lowering names it. */
int32_t import_onnx(const char *path, gmodel **out_model, bs_error *err);
/* Imports a model from bytes in memory, which must outlive it. External data is refused. */
int32_t import_onnx_bytes(const void *bytes, uint64_t size, gmodel **out_model, bs_error *err);
/* A GGUF file; its weights stay in the map. */
int32_t import_gguf(const char *path, const bs_graph_options *options, gmodel **out_model, bs_error *err);
/* A folder with config.json and safetensors. */
int32_t import_folder(const char *path, const bs_graph_options *options, gmodel **out_model, bs_error *err);
#endif
