/* SPDX-License-Identifier: MIT
 *
 * abi.h - what every plugin and the host agree on: status codes, the error record, the plugin
 * descriptor, the ELF note that repeats it, typed parameters and the host table.
 *
 * Rules of this and all other SDK headers: only <stdint.h> and <stddef.h>; every struct that crosses
 * the boundary starts with `uint32_t struct_size`; fixed-width integers; no enum, bool or long fields;
 * fields are appended, never inserted (share/doc/blockshock/abi.md). While the ABI is 0.m, host and plugin
 * must have the same m.
 *
 * Units: a size is a number of bytes, and a count is a number of elements, unless the comment says
 * otherwise.
 * Ownership: the caller owns the structs that it passes, and they are valid during the call. Strings that a
 * plugin registers are static. What a function makes is freed by the function that its comment names.
 * Threads: the functions of bs_host may be called from any thread; those that are only for activate, from
 * the thread that runs activate.
 * Errors: a function that can fail returns an enum bs_status and fills the caller's bs_error, which may be
 * NULL. Out parameters are valid only after BS_OK.
 */
#ifndef BLOCKSHOCK_ABI_H
#define BLOCKSHOCK_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this ABI: major << 16 | minor (share/doc/blockshock/abi.md, "Versions"). */
#define BS_ABI_MAJOR 0u
#define BS_ABI_MINOR 15u
#define BS_ABI_VERSION ((BS_ABI_MAJOR << 16) | BS_ABI_MINOR)

/* Marks the one symbol that a plugin exports. */
#define BS_EXPORT __attribute__((visibility("default")))

/* Status codes: X(NAME, value, exit code of bsrun, text). Numbers are never reused; a code unknown to
 * one side is treated as INTERNAL. Every function that can fail returns one of these as int32_t. */
#define BS_STATUS_MAP(X)                                        \
  X(OK, 0, 0, "ok")                                             \
  X(USAGE, 1, 2, "wrong use of the command line")               \
  X(CONFIG, 2, 3, "configuration error")                        \
  X(INPUT, 3, 4, "input file error")                            \
  X(UNAVAILABLE, 4, 5, "plugin, device or library unavailable") \
  X(PLUGIN, 5, 5, "plugin error")                               \
  X(ABI, 6, 5, "plugin ABI mismatch")                           \
  X(UNSUPPORTED, 7, 3, "not supported by the selected parts")   \
  X(NUMERIC, 8, 6, "numbers wrong")                             \
  X(RANK_FAILED, 9, 7, "a rank, plugin or point died")          \
  X(DEADLINE, 10, 8, "deadline passed")                         \
  X(MISMATCH, 11, 9, "ranks disagree")                          \
  X(NO_MEMORY, 12, 10, "out of memory")                         \
  X(IO, 13, 10, "disk error")                                   \
  X(BUSY, 14, 11, "store busy")                                 \
  X(SOME_FAILED, 15, 12, "some points failed")                  \
  X(CORRUPT, 16, 13, "store corrupt")                           \
  X(PERF, 17, 14, "performance gate failed")                    \
  X(INCONCLUSIVE, 18, 15, "inconclusive")                       \
  X(INTERNAL, 19, 70, "internal error")                         \
  X(INVALID_ARGUMENT, 20, 70, "invalid argument")               \
  X(OVERFLOW, 21, 10, "size overflows")                         \
  X(NOT_FOUND, 22, 5, "not found")                              \
  X(ABORTED, 23, 7, "stopped because another rank failed")

#define BS_STATUS_ENUM_(name, value, exit_code, text) BS_##name = value,
enum bs_status { BS_STATUS_MAP(BS_STATUS_ENUM_) };
#undef BS_STATUS_ENUM_

/* An error report. The caller owns it, usually on the stack; there is nothing to free. The side that fails
 * fills it. Strings are NUL-terminated, and truncated when they are too long. `rank` is -1 when no rank is
 * meant. Fixed size for ever: each side fills it without looking at struct_size. */
typedef struct bs_error {
  uint32_t struct_size;
  int32_t code;        /* enum bs_status */
  int64_t native_code; /* errno, dnnl_status_t, cudaError_t, ... as `domain` says */
  int32_t rank;
  uint32_t reserved;
  char id[32];     /* stable id, e.g. "BS-PLG-ABI" */
  char domain[16]; /* "", "errno", "dnnl", "cuda", ... */
  char plugin[32]; /* id of the plugin that reported it, "" for the host */
  char where[160]; /* file:line:col, option, op, call site: the place */
  char message[512];
  char hint[256];
} bs_error;

/* The source line that registered a thing; `bsrun plugins inspect` prints it. Strings are static. The size
 * never changes. */
typedef struct bs_src_loc {
  const char *file;
  uint32_t line;
  uint32_t reserved;
} bs_src_loc;

/* The level of a log line (bs_host.log). bs_context_options.log_level is the highest one that is passed on.
 */
enum bs_log_level { BS_LOG_ERROR = 1, BS_LOG_WARN = 2, BS_LOG_INFO = 3, BS_LOG_DEBUG = 4 };

/* Kinds of things a plugin registers. `kinds` fields are bit sets of (1u << kind). */
enum bs_kind {
  BS_KIND_OP = 0,
  BS_KIND_BACKEND = 1,
  BS_KIND_COMM = 2,
  BS_KIND_METHOD = 3,
  BS_KIND_WORKLOAD = 4,
  BS_KIND_IMPORTER = 5,
  BS_KIND_ALGORITHM = 6,
  BS_KIND_TOPOLOGY = 7,
  BS_KIND_COUNT_ = 8
};

/* The sanitizer that a plugin or the host was compiled with. Both must have the same. */
enum bs_sanitizer { BS_SAN_NONE = 0, BS_SAN_ADDRESS = 1, BS_SAN_THREAD = 2 };

/* Typed plugin parameters: `BS_<PLUGIN>_<NAME>` in the environment, `plugins.<id>.<name>` in the
 * configuration (which wins). A plugin never reads the environment itself. These are a plugin's knobs: name,
 * type, range, default and doc are declared, and the host tells value and origin to whoever asks and in every
 * record. */
enum bs_param_type { BS_PARAM_INT = 1, BS_PARAM_FLOAT = 2, BS_PARAM_BOOL = 3, BS_PARAM_STRING = 4 };

/* The resolved value of a parameter: the member that `type` says. Fixed size for ever: what a later type
 * needs must fit into these. */
typedef struct bs_value {
  uint32_t struct_size;
  uint32_t type; /* enum bs_param_type */
  int64_t i;     /* INT, BOOL (0/1) */
  double f;      /* FLOAT */
  const char *s; /* STRING, owned by the host until the context closes */
} bs_value;

/* A parameter as it is declared. Strings are static. */
typedef struct bs_param_desc {
  uint32_t struct_size;
  uint32_t type;            /* enum bs_param_type */
  const char *name;         /* [a-z][A-Za-z0-9_]*, at most 63 letters */
  const char *default_text; /* parsed like a configured value */
  const char *choices;      /* "a|b|c" for STRING, "min..max" for INT and FLOAT, NULL: any */
  const char *unit;         /* "s", "bytes", NULL */
  const char *doc;          /* one line */
} bs_param_desc;

typedef struct bs_plugin_self bs_plugin_self; /* opaque handle of a plugin being or having been activated */

struct bs_mask;      /* tensor.h */
struct bs_partition; /* tensor.h */
struct bs_op_query;  /* op.h */
struct bs_op_rate;   /* op.h */

/* The host's services. The table outlives the plugin. All functions are thread-safe unless said. */
typedef struct bs_host {
  uint32_t struct_size;
  uint32_t abi;
  void *ctx;
  /* Registers one thing (kind: enum bs_kind, vtable: that kind's struct). Only inside `activate`; nothing
   * stays when activate fails. The vtable is copied: it may not be changed afterwards. `state` is
   * passed back to the vtable's functions. */
  int32_t (*register_thing)(void *ctx, bs_plugin_self *self, uint32_t kind, const void *vtable, void *state,
                            const bs_src_loc *at, bs_error *err);
  int32_t (*log_enabled)(void *ctx, const bs_plugin_self *self, int32_t level);
  /* `msg` is a finished text; the host adds plugin, rank and time. */
  void (*log)(void *ctx, const bs_plugin_self *self, int32_t level, const char *file, int32_t line,
              const char *msg);
  void *(*alloc)(void *ctx, uint64_t bytes, uint64_t align); /* zero-filled; NULL when out of memory */
  void (*free)(void *ctx, void *p);
  /* param_define declares a parameter, only inside activate. param_get reads its value at any time. */
  int32_t (*param_define)(void *ctx, bs_plugin_self *self, const bs_param_desc *desc, bs_error *err);
  int32_t (*param_get)(void *ctx, const bs_plugin_self *self, const char *name, bs_value *out_value,
                       bs_error *err);
  /* Counter-based random numbers (Philox4x32-10, share/doc/blockshock/numbers.md): element i of (seed,
   * stream) is the same float on every machine, ISA, rank and thread count. Fills out[0..count) with elements
   * first, first+1, ... */
  void (*rng_normal)(uint64_t seed, uint32_t stream, uint64_t first, uint64_t count, float *out);
  void (*rng_uniform)(uint64_t seed, uint32_t stream, uint64_t first, uint64_t count, float *out);
  void (*rng_bits)(uint64_t seed, uint32_t stream, uint64_t first, uint64_t count, uint32_t *out);
  /* Rounds `count` elements of src_dtype to dst_dtype (nearest even; share/doc/blockshock/numbers.md).
   * Returns BS_OK, or BS_UNSUPPORTED for an unknown dtype. src and dst must not overlap unless equal in size.
   */
  int32_t (*convert)(uint32_t dst_dtype, void *dst, uint32_t src_dtype, const void *src, uint64_t count);
  /* Do what the functions of that name in bs_rank_api do, without a rank. A method's propose uses them to be
   * exact. */
  int32_t (*partition_make)(const struct bs_mask *mask, int64_t total, uint32_t rank, uint32_t world_size,
                            const struct bs_partition **out_partition, bs_error *err);
  void (*partition_free)(const struct bs_partition *partition);
  /* Since 0.3: the rank that the calling thread runs; -1: none, or DRIVEN and not in device_open. */
  int32_t (*rank_of_thread)(void *ctx);
  /* Since 0.8: what a run of a core op costs by its schema (bs_op_rate of op.h; its struct_size is set by the
   * caller). `query` is one that prepare was given, or the same with dims of one run. BS_UNSUPPORTED for an
   * op that the core does not know: out_rate is then all 0. Pure. */
  int32_t (*op_cost)(const struct bs_op_query *query, struct bs_op_rate *out_rate, bs_error *err);
} bs_host;

/* 1 when the host has the slot: a host of an older minor may lack it. */
#define BS_HOST_HAS(h, slot) \
  ((h)->struct_size >= offsetof(bs_host, slot) + sizeof((h)->slot) && (h)->slot != NULL)

/* The plugin's description, which the query symbol returns: static data and two functions. */
typedef struct bs_plugin_desc {
  uint32_t struct_size;
  uint32_t abi;            /* BS_ABI_VERSION compiled against; 0 is refused */
  uint32_t min_host_minor; /* oldest host minor that serves */
  uint32_t flags;          /* 0 */
  uint32_t sanitizer;      /* enum bs_sanitizer */
  uint32_t kinds;          /* bit set */
  const char *id;          /* [a-z][a-z0-9_]{1,30}; the file must be bs_<id>.so */
  const char *version;     /* "1.2.3" */
  const char *license;
  const char *summary;
  int32_t (*activate)(const bs_host *host, bs_plugin_self *self, void **out_state, bs_error *err);
  int32_t (*deactivate)(void *state, bs_error *err); /* may be NULL */
} bs_plugin_desc;

/* The one exported symbol: `bs_plugin_query_<major>`. Pure: no allocation, environment, device, thread. */
#define BS_PLUGIN_QUERY_SYMBOL "bs_plugin_query_0"
typedef const bs_plugin_desc *(*bs_plugin_query_fn)(uint32_t host_abi, uint32_t reserved);

/* The note `.note.blockshock` (owner "Blockshock", type 1): read from the file without dlopen, so that
 * listing and choosing run no plugin code. Compared with the descriptor after dlopen. `things` is a
 * newline-separated list: "op:matmul@cpu", "backend:cpu", "method:blockshock",
 * "method:older_name=acme" (an alias), "comm:fault:" (a wrapper, which needs another comm after
 * the colon), ... "needs:libcuda.so.1=driver" is not a thing. It names a library that the plugin opens
 * itself; the optional parameter after `=` names another file for it. */
#define BS_NOTE_OWNER "Blockshock"
#define BS_NOTE_TYPE 1u
#define BS_NOTE_MAGIC 0x31305342u /* "BS01" little endian */

/* The content of the note: fixed size, strings NUL-terminated within their arrays. */
typedef struct bs_note {
  uint32_t struct_size;
  uint32_t magic;
  uint32_t abi;
  uint32_t min_host_minor;
  uint32_t sanitizer;
  uint32_t kinds;
  uint64_t ledger_hash; /* BS_ABI_LEDGER_HASH of the headers compiled against */
  char id[32];
  char version[32];
  char summary[128];
  char things[1280];
} bs_note;

/* FNV-1a of abi/ledger.txt (offsets, sizes and types of every ABI struct); checked by a test. */
#include "abi_ledger.h"

#ifdef __cplusplus
}
#endif
#endif
