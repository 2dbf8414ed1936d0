/* SPDX-License-Identifier: MIT
 * graph.c - records the work of a rank's default stream as a CUDA graph. The stream's capture records it, in
 * thread-local mode: other ranks of the process are not affected. Work that a graph cannot hold ends the
 * capture and is refused, with all later work. The caller runs it again without a graph, because a step must
 * not be taken twice. */
#include "inner.h"

struct bs_capture {
  CUgraphExec exec;
};

void cuda_graph_spoil(const cuda_device *device, const char *what) {
  cuda_inner *in = device->inner;
  CUgraph graph = NULL;
  if (in == NULL || in->graph != CUDA_GRAPH_OPEN) return;
  in->graph = CUDA_GRAPH_SPOILT;
  in->spoilt = what;
  if (device->driver->call.capture_end(device->stream, &graph) == CUDA_SUCCESS && graph != NULL)
    (void)device->driver->call.graph_destroy(graph);
}

int32_t cuda_graph_refuse(const cuda_device *device, bs_error *err) {
  return bs_fail(err, BS_UNSUPPORTED, "BS-CUDA-GRAPH", "%s cannot be kept in a graph", device->inner->spoilt);
}

int32_t cuda_graph_begin(void *opaque, bs_error *err) {
  const cuda_device *device = opaque;
  cuda_inner *in = device->inner;
  if (in->graph != CUDA_GRAPH_NONE) /* that one goes on */
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-CUDA-GRAPH", "a graph is begun already");
  int32_t rc = cuda_enter(device, err);
  if (rc == BS_OK)
    rc = cuda_check(device,
                    device->driver->call.capture_begin(device->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
                    "cuStreamBeginCapture", err);
  if (rc == BS_OK) in->graph = CUDA_GRAPH_OPEN;
  return rc;
}

static int32_t instantiate(const cuda_device *device, CUgraph graph, bs_capture **out, bs_error *err) {
  const bs_host *host = device->state->host;
  bs_capture *made = host->alloc(host->ctx, sizeof *made, 64);
  if (made == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CUDA-MEMORY", "no memory for a graph");
  const int32_t rc = cuda_check(device, device->driver->call.graph_instantiate(&made->exec, graph, 0),
                                "cuGraphInstantiateWithFlags", err);
  if (rc != BS_OK) {
    host->free(host->ctx, made);
    return rc;
  }
  *out = made;
  return BS_OK;
}

int32_t cuda_graph_end(void *opaque, bs_capture **out_graph, bs_error *err) {
  const cuda_device *device = opaque;
  const cuda_functions *call = &device->driver->call;
  cuda_inner *in = device->inner;
  CUgraph graph = NULL;
  *out_graph = NULL;
  const uint32_t was = in->graph;
  in->graph = CUDA_GRAPH_NONE;
  if (was == CUDA_GRAPH_SPOILT) return cuda_graph_refuse(device, err);
  if (was == CUDA_GRAPH_NONE)
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-CUDA-GRAPH", "the end of a graph that was not begun");
  int32_t rc = cuda_enter(device, err);
  if (rc == BS_OK)
    rc = cuda_check(device, call->capture_end(device->stream, &graph), "cuStreamEndCapture", err);
  if (rc == BS_OK && graph != NULL) rc = instantiate(device, graph, out_graph, err);
  if (graph != NULL) (void)call->graph_destroy(graph);
  return rc;
}

int32_t cuda_graph_run(void *opaque, bs_capture *graph, bs_error *err) {
  const cuda_device *device = opaque;
  const int32_t rc = cuda_enter(device, err);
  if (rc != BS_OK) return rc;
  return cuda_check(device, device->driver->call.graph_launch(graph->exec, device->stream), "cuGraphLaunch",
                    err);
}

void cuda_graph_free(void *opaque, bs_capture *graph) {
  const cuda_device *device = opaque;
  bs_error err = {.struct_size = (uint32_t)sizeof err};
  if (graph == NULL) return;
  int32_t rc = cuda_wait(device, device->stream, &err); /* it may be under way */
  if (rc == BS_OK)
    rc = cuda_check(device, device->driver->call.graph_exec_destroy(graph->exec), "cuGraphExecDestroy", &err);
  if (rc != BS_OK) {
    pthread_mutex_lock(&device->inner->lock);
    cuda_late(device, &err);
    pthread_mutex_unlock(&device->inner->lock);
  }
  device->state->host->free(device->state->host->ctx, graph);
}
