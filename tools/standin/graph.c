/* SPDX-License-Identifier: MIT
 * graph.c - captures and graphs: works that a stream was given are kept, and given again by copies. Of a
 * capture in thread-local mode, the only one that is used here: what its own thread may not do meanwhile is
 * refused, and makes the capture invalid. */
#include <stdlib.h>
#include <string.h>

#include "standin.h"

struct CUgraph_st {
  CUstream stream;
  si_work *first, *last;
  int invalid;
};
struct CUgraphExec_st {
  si_work *first;
};

static _Thread_local si_graph *capture;

si_graph *si_capture_of(CUstream stream) {
  return capture != NULL && capture->stream == stream ? capture : NULL;
}

int si_capture_spoilt(void) {
  if (capture != NULL) capture->invalid = 1;
  return capture != NULL;
}

void si_capture_add(si_graph *graph, si_work *work) {
  if (graph->last != NULL)
    graph->last->next = work;
  else
    graph->first = work;
  graph->last = work;
}

static void end_works(si_work *work) {
  while (work != NULL) {
    si_work *next = work->next;
    work->stream = NULL; /* as after an error: only what it holds is ended */
    work->run(work);
    free(work);
    work = next;
  }
}

static si_work *repeated(const si_work *work) {
  si_work *copy = malloc(sizeof *copy);
  if (copy == NULL) si_die("no memory");
  *copy = *work;
  copy->next = NULL;
  if (copy->repeat != NULL) copy->repeat(copy);
  return copy;
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  const CUresult rc = si_enter_context("cuStreamBeginCapture_v2");
  if (rc != CUDA_SUCCESS) return rc;
  if (!si_lives(SI_STREAM, stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (mode != CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
    si_die("capture mode %d is not what the plugin uses", (int)mode);
  if (capture != NULL) return CUDA_ERROR_ILLEGAL_STATE;
  capture = calloc(1, sizeof *capture);
  if (capture == NULL) si_die("no memory");
  capture->stream = stream;
  return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *out_graph) {
  CUresult rc = si_enter_context("cuStreamEndCapture");
  *out_graph = NULL;
  if (rc == CUDA_SUCCESS && si_capture_of(stream) == NULL) return CUDA_ERROR_ILLEGAL_STATE;
  if (rc == CUDA_SUCCESS && capture->invalid) rc = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  si_graph *graph = capture;
  capture = NULL;
  if (rc != CUDA_SUCCESS) {
    if (graph != NULL) end_works(graph->first);
    free(graph);
    return rc;
  }
  si_live(SI_GRAPH, graph);
  *out_graph = graph;
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph) {
  const CUresult rc = si_enter("cuGraphDestroy");
  if (rc != CUDA_SUCCESS) return rc;
  if (!si_lives(SI_GRAPH, graph)) return CUDA_ERROR_INVALID_VALUE;
  si_end(SI_GRAPH, graph);
  end_works(graph->first);
  free(graph);
  return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *out_exec, CUgraph graph, unsigned long long flags) {
  const CUresult rc = si_enter_context("cuGraphInstantiateWithFlags");
  if (rc != CUDA_SUCCESS) return rc;
  if (!si_lives(SI_GRAPH, graph) || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  CUgraphExec exec = calloc(1, sizeof *exec);
  if (exec == NULL) si_die("no memory");
  si_work **last = &exec->first;
  for (const si_work *w = graph->first; w != NULL; w = w->next) {
    *last = repeated(w);
    last = &(*last)->next;
  }
  si_live(SI_GRAPH, exec);
  *out_exec = exec;
  return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  const CUresult rc = si_enter_context("cuGraphLaunch");
  if (rc != CUDA_SUCCESS) return rc;
  if (!si_lives(SI_GRAPH, exec) || !si_lives(SI_STREAM, stream)) return CUDA_ERROR_INVALID_VALUE;
  if (si_capture_of(stream) != NULL) si_die("a graph within a graph is not what the plugin uses");
  for (const si_work *w = exec->first; w != NULL; w = w->next) {
    si_work *copy = repeated(w);
    copy->stream = stream;
    si_submit(copy);
  }
  return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
  const CUresult rc = si_enter("cuGraphExecDestroy");
  if (rc != CUDA_SUCCESS) return rc;
  if (!si_lives(SI_GRAPH, exec)) return CUDA_ERROR_INVALID_VALUE;
  si_end(SI_GRAPH, exec);
  end_works(exec->first);
  free(exec);
  return CUDA_SUCCESS;
}
