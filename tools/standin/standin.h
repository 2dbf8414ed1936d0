/* SPDX-License-Identifier: MIT
 * standin.h - inside of the stand-in of NVIDIA's driver library (libcuda.so.1): devices that are made up,
 * memory whose pointers are no host addresses, a worker thread a stream, launches that run the kernels' CPU
 * twins. It checks arguments as the driver does, and where a driver would be silent it is strict:
 * memory is read when a copy runs, not when it is queued, and an object used after its end stops the
 * process.
 *
 * BS_CUDA_STANDIN="devices=2;capability=90;memory=1073741824;name=Stand-in;version=13000;pools=1;plan=..."
 * sets the devices. event_ns=N: the clock that events record advances by N ns with each record of an event
 * that has a time, and not otherwise. plan: FUNCTION:N=CODE, several with ',': the N-th call of FUNCTION
 * returns CODE. CODE "hang": it never returns. "late719": it returns 0, and its queued work ends with 719;
 * every later call of the context then returns 719. */
#ifndef BS_STANDIN_STANDIN_H
#define BS_STANDIN_STANDIN_H
#include <cuda.h>
#include <pthread.h>
#include <stdint.h>

#include "control.h"

#define SI_TAG ((CUdeviceptr)1 << 62) /* on device pointers: no processor's address */
#define SI_DEVICES 16

/* ---- plan.c: what is there, and what is to go wrong ------------------------------------------ */

typedef struct si_setup {
  int devices, capability, version, pools;
  int local, registers; /* bytes and registers that loaded kernels have beyond what was built */
  int threads;          /* most threads a block; 0: as built */
  uint64_t memory;
  int64_t event_ns; /* 0: events have the time of the machine's clock */
  char name[64];
} si_setup;
const si_setup *si_get_setup(void);
/* Every function begins with one of these: 0, or what to return. si_enter: cuInit was called;
 * si_enter_context: and the thread has a context, without an error. */
CUresult si_plain(const char *function);
CUresult si_enter(const char *function);
CUresult si_enter_context(const char *function);
/* The planned result of the work that this thread's current call queues; 0: success. */
CUresult si_take_late(void);
void si_die(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
extern int si_initialised;

/* ---- contexts (device.c) --------------------------------------------------------------------- */

struct CUctx_st {
  int device;
  int retained;
  CUresult sticky;
};
CUcontext si_current(void);

/* ---- living things (device.c): counted, and known by their address --------------------------- */

void si_live(uint32_t kind, const void *thing);
void si_end(uint32_t kind, const void *thing);
int si_lives(uint32_t kind, const void *thing);

/* ---- streams (stream.c) ----------------------------------------------------------------------- */

extern pthread_mutex_t si_lock; /* over everything but what workers run */
typedef struct si_record si_record;
typedef struct si_work si_work;
struct si_work {
  si_work *next;
  void (*run)(si_work *work);    /* outside the lock; ends with the work, which is freed */
  void (*repeat)(si_work *copy); /* of a graph: what the copy of a work has for itself alone; NULL: all is */
  CUstream stream;
  CUresult late;
  union {
    struct {
      char *dst;
      const char *src;
      CUdeviceptr dst_device, src_device; /* 0: a host pointer */
      size_t bytes;
    } copy;
    si_record *record; /* of an event; NULL: none to wait for */
    struct {
      CUdeviceptr ptr;
    } memory;
    struct {
      const struct CUfunc_st *function;
      unsigned grid[3];
      unsigned threads, shared;
      void *args;
    } launch;
    struct {
      void (*call)(void *arg, int lost);
      void *arg;
      size_t bytes; /* of arg; 0: it cannot be repeated */
    } host;
  } u;
};
/* A zero-filled work for the stream, or NULL with *out_result. */
si_work *si_work_new(CUstream stream, CUresult *out_result);
void si_submit(si_work *work);
/* Wait for the workers of streams that were destroyed: no thread is ending any more when a process looks for
 * leaks at its exit, which its sanitizer does not survive. Not from a worker. */
void si_join_workers(void);
/* For stand-ins of libraries: call(arg, lost) on the stream's worker, in its order; lost: an error has come
 * before, and nothing may be done but ending `arg`. 0, or what the library's function is to fail with. */
CUresult si_queue(const char *function, CUstream stream, void (*call)(void *arg, int lost), void *arg);

/* Does the same with an arg from malloc: `call` frees it, and a graph may repeat the call with copies. */
CUresult si_queue_copied(const char *function, CUstream stream, void (*call)(void *arg, int lost), void *arg,
                         size_t bytes);

/* ---- graphs (graph.c): what a stream was given while it was captured --------------------------- */

typedef struct CUgraph_st si_graph;
/* The graph that this thread is capturing in the stream, NULL: no graph. */
si_graph *si_capture_of(CUstream stream);
/* For calls that a capture refuses: on this thread one is under way, and is invalid now. */
int si_capture_spoilt(void);
void si_capture_add(si_graph *graph, si_work *work);

/* ---- memory (memory.c) ------------------------------------------------------------------------ */

/* 1 when [ptr, ptr + bytes) lies in one allocation that was not freed. */
int si_inside(CUdeviceptr ptr, size_t bytes);
/* The host address of device memory that lives now, as streams see it; ends the process, naming `who`,
 * otherwise. */
char *si_host(CUdeviceptr ptr, size_t bytes, const char *who);
void si_memory_begins(CUdeviceptr ptr);
void si_memory_ends(CUdeviceptr ptr);

/* ---- code (image.c) --------------------------------------------------------------------------- */

typedef struct si_kernel {
  uint32_t registers, local, shared, args_bytes, max_threads;
} si_kernel;
/* Reads a kernel's description from a cubin, or from the first one of a fat binary. 0: no kernel has that
 * name; -1: not an image. */
int si_image_kernel(const void *image, const char *name, si_kernel *out);

struct CUmod_st {
  const void *image;
};
struct CUfunc_st {
  CUmodule module;
  const struct cuda_twin *twin;
  si_kernel kernel;
  uint32_t dynamic; /* bytes of shared memory that a launch may ask for; 0: as without asking */
};
extern _Thread_local const char *si_running; /* the twin that this worker runs; "a copy" */
#endif
