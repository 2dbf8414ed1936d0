/* SPDX-License-Identifier: MIT
 *
 * blockshock.h - the embedding API of libblockshock: open a context (finds plugins), make a world of
 * ranks on a backend, build layers by a method, run them. examples/embed is a complete program.
 *
 * Units: shapes are counted in elements, memory in bytes. A name of a time ends in its unit: _s, _ms, _ns.
 * Ownership: the caller frees what it makes, in the opposite order: layers, worlds, then the context. Option
 * structs are copied, a bs_layer_spec is not. Strings that a call returns live as long as the context or the
 * world that was asked.
 * Errors: functions return an enum bs_status and fill a caller-owned bs_error (may be NULL).
 * Threads: a context may be used from several threads; a world runs one job at a time; a bs_rank may be used
 * from the rank's own thread only.
 * Structs: set struct_size to sizeof before a call that fills or reads one; zero in every other field is the
 * default.
 */
#ifndef BLOCKSHOCK_BLOCKSHOCK_H
#define BLOCKSHOCK_BLOCKSHOCK_H

#include "algorithm.h"
#include "backend.h"
#include "comm.h"
#include "importer.h"
#include "method.h"
#include "names.h"
#include "topology.h"
#include "workload.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Marks the functions that the library exports. */
#define BS_API __attribute__((visibility("default")))

BS_API const char *bs_version(void);              /* "0.1.0" */
BS_API const char *bs_build_id(void);             /* hex of the library's GNU build id, "" when it has none */
BS_API const char *bs_status_name(int32_t code);  /* "OK", "UNSUPPORTED", ... */
BS_API const char *bs_status_text(int32_t code);  /* "ok", "not supported by the selected parts", ... */
BS_API int32_t bs_status_exit_code(int32_t code); /* what bsrun exits with for this status */

/* ---- context -------------------------------------------------------------------------------- */

typedef struct bs_context bs_context;

/* The owners whose plugin files are opened (share/doc/blockshock/abi.md, "Trust"). */
enum bs_trust { BS_TRUST_OWNER = 0, BS_TRUST_GROUP = 1, BS_TRUST_ANY = 2 };

/* How a context is opened. bs_context_open copies it. */
typedef struct bs_context_options {
  uint32_t struct_size;
  uint32_t trust;             /* enum bs_trust */
  const char *const *plugins; /* ids or paths (a value with a slash), as --plugin */
  uint32_t n_plugins;
  uint32_t n_plugin_dirs;
  const char *const *plugin_dirs; /* searched after BS_PLUGIN_PATH, before the library's own folder */
  const char *const *params;      /* "id.name=value" strings: plugins.<id>.<name> of the config */
  uint32_t n_params;
  int32_t log_level; /* enum bs_log_level; 0: WARN */
  /* Receives every log line; NULL: stderr. Thread-safe. rank -1: no rank. */
  void (*log)(void *user, int32_t level, const char *plugin, int32_t rank, const char *message);
  void *log_user;
} bs_context_options;

/* Finds plugins: reads their notes, runs none of their code. options may be NULL: the defaults. A plugin that
 * options name and that cannot be used is an error that says why; other plugins that cannot be used are rows
 * of bs_plugin_count and bs_plugin_get. */
BS_API int32_t bs_context_open(const bs_context_options *options, bs_context **out_context, bs_error *err);
/* Closes the context, after its worlds are destroyed. NULL is allowed. Frees nothing when a rank is
 * still inside a call that did not return (bs_world_run). */
BS_API void bs_context_close(bs_context *context);

/* The state of a plugin file that was found. */
enum bs_plugin_state {
  BS_PLUGIN_FOUND = 0,
  BS_PLUGIN_ACTIVE = 1,
  BS_PLUGIN_SHADOWED = 2,
  BS_PLUGIN_REFUSED = 3,
  BS_PLUGIN_UNAVAILABLE = 4
};

/* A plugin that was found, as its note says, and what became of it. */
typedef struct bs_plugin_info {
  uint32_t struct_size;
  uint32_t state; /* enum bs_plugin_state */
  uint32_t abi;
  uint32_t kinds;
  uint32_t sanitizer;
  uint32_t builtin;    /* 1: linked in */
  const char *id;      /* strings live as long as the context */
  const char *version; /* "" when not known */
  const char *summary;
  const char *things; /* newline-separated, as in the note */
  const char *path;   /* "" for a built-in */
  const char *origin; /* "built in", "--plugin", "BS_PLUGIN_PATH[0]", "config[0]", "the library's folder" */
  const char *why;    /* reason of SHADOWED, REFUSED, UNAVAILABLE */
  const char *why_id; /* its id, "BS-PLG-ABI"; "" */
  const char *hint;   /* what to do about it; "" */
} bs_plugin_info;

/* The plugins that were found, in the order of the search, also those that were refused. An index beyond the
 * last is BS_INVALID_ARGUMENT. */
BS_API uint32_t bs_plugin_count(const bs_context *context);
BS_API int32_t bs_plugin_get(const bs_context *context, uint32_t index, bs_plugin_info *out_info,
                             bs_error *err);
/* A folder of the search, in order, whether or not it could be searched. Strings live as long as the context.
 */
typedef struct bs_place_info {
  uint32_t struct_size;
  uint32_t files;     /* bs_*.so in it */
  const char *origin; /* as in bs_plugin_info */
  const char *path;   /* as given */
  const char *why;    /* why it was not searched; "" */
  const char *why_id; /* its id; "" */
} bs_place_info;
BS_API uint32_t bs_place_count(const bs_context *context);
BS_API int32_t bs_place_get(const bs_context *context, uint32_t index, bs_place_info *out_info,
                            bs_error *err);

/* Opens and activates a plugin by id. The functions below do so by themselves for the plugins that they need.
 */
BS_API int32_t bs_plugin_activate(bs_context *context, const char *id, bs_error *err);

/* One registered thing; strings live as long as the context. */
typedef struct bs_thing_info {
  uint32_t struct_size;
  uint32_t kind;    /* enum bs_kind */
  const char *name; /* op implementations: "matmul@cpu/dnnl" */
  const char *plugin;
  const char *summary;
  const char *aliases;
  bs_src_loc at;
  uint32_t wrapper; /* 1: a comm or backend that needs another, "name:other" */
  uint32_t n_knobs; /* since 0.9: of op implementations and methods */
  const bs_knob *const *knobs;
} bs_thing_info;
BS_API uint32_t bs_thing_count(const bs_context *context, const char *plugin_id);
BS_API int32_t bs_thing_get(const bs_context *context, const char *plugin_id, uint32_t index,
                            bs_thing_info *out_info, bs_error *err);

/* A declared parameter with its value and where that comes from. Strings live as long as the context. */
typedef struct bs_param_info {
  uint32_t struct_size;
  uint32_t reserved;
  bs_param_desc desc;
  const char *value_text;
  const char *origin; /* "default", "environment", "config" */
} bs_param_info;
/* The parameters of a plugin that is active, in order of declaration. */
BS_API uint32_t bs_param_count(const bs_context *context, const char *plugin_id);
BS_API int32_t bs_param_info_get(const bs_context *context, const char *plugin_id, uint32_t index,
                                 bs_param_info *out_info, bs_error *err);

/* Looks a thing up by name or alias, and opens the plugin that offers it. A communicator or backend may also
 * be "wrapper:other", which may nest. The vtable is the host's full-size copy and lives as long as the
 * context. An unknown name is BS_NOT_FOUND, and the error names the nearest one. bs_plugin_get's `things` and
 * `bsrun plugins list` have all names; bs_method.option_docs and `bsrun plugins inspect ID` the options of a
 * method. */
BS_API int32_t bs_find_method(bs_context *context, const char *name, const bs_method **out_method,
                              void **out_state, bs_error *err);
BS_API int32_t bs_find_workload(bs_context *context, const char *name, const bs_workload **out_workload,
                                void **out_state, bs_error *err);
BS_API int32_t bs_find_backend(bs_context *context, const char *name, const bs_backend **out_backend,
                               void **out_state, bs_error *err);
BS_API int32_t bs_find_comm(bs_context *context, const char *name, const bs_comm **out_comm, void **out_state,
                            bs_error *err);
BS_API int32_t bs_find_importer(bs_context *context, const char *name, const bs_importer **out_importer,
                                void **out_state, bs_error *err);
BS_API int32_t bs_find_algorithm(bs_context *context, const char *name, const bs_algorithm **out_algorithm,
                                 void **out_state, bs_error *err);
BS_API int32_t bs_find_topology(bs_context *context, const char *name, const bs_topology **out_topology,
                                void **out_state, bs_error *err);

/* ---- choice of an implementation ------------------------------------------------------------- */

/* One implementation that was asked about a query, with its answer. Valid during the callback. */
typedef struct bs_op_candidate {
  uint32_t struct_size;
  /* 0: best. Order: wanted ones that can serve, then by level (NATIVE, EMULATED, UNKNOWN, NO); within a level
   * by score, priority, name. */
  uint32_t place;
  uint32_t chosen; /* 1: what pack and prepare take (an UNKNOWN one after trying it) */
  uint32_t priority;
  const char *name; /* "matmul@cpu/dnnl" */
  const char *plugin;
  const char *summary;
  const bs_op_answer *answer; /* level, score, reason and text; NO always has a text */
  const char *key;            /* of the query at its site, as in bs_op_site's choices */
  uint32_t wanted;            /* 1: a choice names it, so it comes first where it can serve */
  uint32_t n_knobs;           /* since 0.9 */
  const bs_knob *const *knobs;
  const char *given; /* what the choice tells it, "keys=128;exp=fast"; "" nothing */
} bs_op_candidate;

/* Asks every implementation of query->op on `backend`, opens the plugins that offer it, and calls `each` for
 * every one in order, also for those that refuse. Returns BS_UNSUPPORTED with all reasons when none serves
 * (after the calls). The query's rules are those of bs_rank_api's op_supports. Slow; thread-safe. */
BS_API int32_t bs_op_explain(bs_context *context, const char *backend, const bs_op_query *query,
                             void (*each)(void *user, const bs_op_candidate *candidate), void *user,
                             bs_error *err);
/* The site of a query: everything besides the query that a choice depends on. */
typedef struct bs_op_site {
  uint32_t struct_size;
  uint32_t threads;    /* of a rank; 0: 1 */
  uint32_t world_size; /* 0: 1 */
  uint32_t n_choices;  /* of choices, as in bs_world_options */
  const char *const *choices;
  uint32_t fallback; /* since 0.7; as in bs_world_options, whatever the backend's memory is */
  uint32_t reserved;
} bs_op_site;
/* Does the same at a site. NULL: one thread in a world of one rank, and no choices. */
BS_API int32_t bs_op_explain_at(bs_context *context, const char *backend, const bs_op_site *site,
                                const bs_op_query *query,
                                void (*each)(void *user, const bs_op_candidate *candidate), void *user,
                                bs_error *err);
BS_API const char *bs_reason_name(uint32_t reason); /* "dtype", "shape", ...; enum bs_reason */
BS_API const char *bs_level_name(uint32_t level);   /* "no", "emulated", "native", "unknown" */

/* ---- worlds --------------------------------------------------------------------------------- */

typedef struct bs_world bs_world;

/* How timer regions wait for devices: SYNC waits at a region's end, EVENTS records events that are read
 * later, NONE does not wait. No effect on a backend whose ops are done when they return. */
enum bs_sync_mode { BS_SYNC_SYNC = 0, BS_SYNC_EVENTS = 1, BS_SYNC_NONE = 2 };

/* The host calls these around each collective of each rank; for tests, dumps and injected faults. `before`
 * returns how often to run the collective (normally 1; 0 skips, 2 repeats); in and out are the call's own
 * memory. `after` is called once, when the last repetition is done. Collectives with
 * BS_COLL_CONTROL have no hook. */
typedef struct bs_collective_hook {
  void *user;
  uint32_t (*before)(void *user, uint32_t rank, const bs_coll_call *call);
  void (*after)(void *user, uint32_t rank, const bs_coll_call *call);
} bs_collective_hook;
/* For a call that a hook was given: the rank's place in the call's group (the index into counts) and the
 * group's size. Without a group they are the rank and size of the world. */
BS_API void bs_hook_place(const bs_coll_call *call, uint32_t *out_rank, uint32_t *out_ranks);

/* How a world is made. bs_world_create copies it, also the strings of choices; what a hook uses must outlive
 * the world. */
typedef struct bs_world_options {
  uint32_t struct_size;
  uint32_t world_size;
  const char *backend;       /* NULL: "cpu" */
  const char *comm;          /* NULL: "threads" */
  uint32_t threads_per_rank; /* 0: cores / ranks, at least 1 */
  uint32_t bind;             /* 1: pin rank threads to their cores */
  uint32_t sync_mode;        /* enum bs_sync_mode of the timer regions */
  uint32_t reserved;
  double timeout_s;               /* deadline of each wait; 0: 60 */
  const bs_collective_hook *hook; /* NULL: none */
  /* Choices of implementations, each "KEY -> PLUGIN:NAME" (keys: bs_world_choice_get): where the named one
   * can serve, it is taken before all others; where it cannot, a warning says why and the default is taken.
   * Since 0.9 also "KEY -> PLUGIN:NAME{keys=128;exp=fast}", with values of its knobs: a knob or value that it
   * does not have is BS_CONFIG BS-OP-KNOB, a plan that reports another value BS_PLUGIN BS-OP-KNOB-ECHO. */
  const char *const *choices;
  uint32_t n_choices;
  /* 1: implementations are chosen and reported, but nothing is packed or prepared. Layers then build in no
   * time and cannot run. */
  uint32_t rehearse;
  /* Since 0.5. Where ranks are processes: a hash of all that they must have in common. Ranks whose hashes
   * differ get BS_MISMATCH. 0: nothing to compare. */
  uint64_t config_hash;
  /* Since 0.7. 1: what no plugin of the backend serves, the reference backend does, where the backend's
   * memory is the host's and its ops are done when they return: the ref plugin's implementations are the last
   * candidates, BS_LEVEL_EMULATED with score 0, and named "ref:NAME" in choices, "OP@ref/NAME" in algorithms.
   * They are slow: nothing that is timed should use them. */
  uint32_t fallback;
  uint32_t reserved2;
  /* Since 0.8. Collectives of methods: NULL or "": the communicator's own, in rank order; "native": the
   * communicator may use its library's own, in any order (BS_COLL_ANY_ORDER); else "NAME" or
   * "NAME:key=value,...": the host runs the rounds of this algorithm, for the kinds that it serves.
   * BS_UNSUPPORTED where the communicator has no exchange, or the algorithm is a cost alone. */
  const char *algorithm;
  /* The topology between the ranks, "NAME" or "NAME:key=value,...", for communicators that use one. NULL or
   * "": no topology. */
  const char *topology;
} bs_world_options;

/* Which rank this process is, where `comm` (NULL: "threads") joins processes that something else started
 * (share/doc/blockshock/launch.md). Reads the process's environment once and keeps the answer. world_size 0:
 * the communicator starts its ranks itself. BS_UNAVAILABLE with a hint when no launcher started this process
 * as a rank. */
BS_API int32_t bs_context_attach(bs_context *context, const char *comm, bs_attachment *out_attachment,
                                 bs_error *err);
/* The rank that bs_context_attach found; 0 when it was not called. */
BS_API uint32_t bs_context_rank(const bs_context *context);

/* The highest class of reproducibility (enum bs_repro) that a layer keeps in this world which promises
 * `promised` where the communicator reduces in rank order. A named algorithm reduces in a different order.
 */
BS_API uint32_t bs_world_repro(const bs_world *world, uint32_t promised);

/* Makes a world of ranks on a backend, joined by a communicator: opens their plugins, starts no rank yet. The
 * caller destroys it before closing its context; destroying NULL is allowed. */
BS_API int32_t bs_world_create(bs_context *context, const bs_world_options *options, bs_world **out_world,
                               bs_error *err);
BS_API void bs_world_destroy(bs_world *world);
/* The rank of this process where ranks are processes: bs_world_run runs rank_main for it alone, and
 * bs_world_rank of the others is NULL. BS_WORLD_ALL_RANKS where all are threads of this process. */
#define BS_WORLD_ALL_RANKS UINT32_MAX
BS_API uint32_t bs_world_own_rank(const bs_world *world);
/* Runs rank_main on every rank and waits for all. The first run starts a thread for each rank of this
 * process; later runs take the same threads, whose thread-local data, cores and signal mask stay. They sleep
 * between runs and end with the world. After a fork the child's next run starts threads of its own. One run
 * at a time. Returns the error of the first rank that failed (its number is in err->rank); the other ranks
 * are woken. A failed world can be destroyed, not run again. A rank may not come back from a plugin's call
 * after a failure. bs_world_run stops waiting for it half a second after a deadline, or after the world's
 * timeout for another error, and logs a warning. Its thread goes on, the world and the context keep their
 * memory for it, and the program should end soon. Keep what `arg` points to until then. */
BS_API int32_t bs_world_run(bs_world *world, int32_t (*rank_main)(bs_rank *rank, void *arg, bs_error *err),
                            void *arg, bs_error *err);
/* 1: a rank of the world is still inside a call that did not return (bs_world_run). Do not touch what its
 * thread may still use. */
BS_API uint32_t bs_world_left_behind(const bs_world *world);
/* The rank of a world of one, or the own rank of a world whose ranks are processes, on the caller's thread,
 * which is member 0 of its team until bs_world_leave: no thread is started for it. With `bind` the caller is
 * pinned meanwhile, else it is left where it runs. The rank's functions are called from this thread only. A
 * world may be entered again, also from another thread, and run by bs_world_run in between; plans, tensors
 * and layers of the rank stay. Collectives wait fastest on the thread that was the rank first. Ranks of other
 * processes run or enter as they like: only the order of collectives is the same on all. BS_INVALID_ARGUMENT
 * BS-WORLD-ENTER: more ranks of the world are in this process, or it is simulated, is entered, or failed.
 * Errors of the rank's functions are the caller's alone: they do not fail the world. */
BS_API int32_t bs_world_enter(bs_world *world, bs_rank **out_rank, bs_error *err);
/* Ends bs_world_enter, on the thread that entered. Returns a misuse of the rank that no function could
 * report, or BS-COLL-UNWAITED where a started collective was not waited for. Such a world has failed: ranks
 * in other processes are woken, and it cannot be entered again. */
BS_API int32_t bs_world_leave(bs_world *world, bs_error *err);
BS_API uint32_t bs_world_size(const bs_world *world);
BS_API uint32_t bs_world_threads_per_rank(const bs_world *world);
BS_API uint32_t bs_world_shared_device(const bs_world *world); /* 1: ranks share one device */
/* Calls `each` for every number and text that the communicator has kept of the newest run (bs_comm.report).
 * Must not be called while the world runs. */
BS_API void bs_world_figures(const bs_world *world,
                             void (*each)(void *user, const char *name, double value, const char *unit,
                                          const char *text),
                             void *user);

/* The times of one timer region of one rank, in milliseconds. */
typedef struct bs_region_stats {
  uint32_t struct_size;
  uint32_t device_clock; /* 1: by the device's events; 0: by the host's clock */
  const char *name;      /* lives as long as the world */
  uint64_t count;
  double sum_ms, avg_ms, p50_ms, p95_ms; /* percentiles: of a sample of 4096, from there on */
  double min_ms, max_ms;
  /* By the device's events only. What the host took until all was queued, without its waits for the device
   * and its collectives; and the mean by the host's clock, where the regions wait for the device (else 0). */
  double enqueue_p50_ms, host_avg_ms;
} bs_region_stats;

/* Rank functions are called from the rank's thread or after a run, world functions after a run. */
BS_API const bs_rank_api *bs_rank_get_api(void);
BS_API uint32_t bs_rank_region_count(const bs_rank *rank);
BS_API int32_t bs_rank_region_stats(bs_rank *rank, uint32_t region, bs_region_stats *out_stats,
                                    bs_error *err);
/* Writes samples of a region in ms, at most `most`, and returns how many it wrote. They are in the order in
 * which they are kept; of many, each has had the same chance to be kept. */
BS_API uint64_t bs_rank_region_samples(bs_rank *rank, uint32_t region, double *out_ms, uint64_t most);
/* Forgets the samples taken so far, as after a warm-up; those of build, pack and compress stay. */
BS_API void bs_rank_regions_reset(bs_rank *rank);
BS_API uint64_t bs_rank_counter(const bs_rank *rank, uint32_t counter);
BS_API void bs_rank_counters_reset(bs_rank *rank);
BS_API int32_t bs_rank_barrier(bs_rank *rank, const char *site, bs_error *err);
/* Runs one collective on data in host memory, whatever the backend's memory is; ranks exchange results with
 * it. `what` has one row; in and out hold n_in and n_out elements (NULL where the kind or the rank has none)
 * and may be the same where the collective allows it. */
BS_API int32_t bs_rank_collective_host(bs_rank *rank, const bs_collective *what, const void *in,
                                       uint64_t n_in, void *out, uint64_t n_out, bs_error *err);
BS_API int32_t bs_rank_sync(bs_rank *rank, bs_error *err); /* wait for the rank's streams */
/* Copies a tensor to host memory, dense row-major, and waits for the rank's stream. For the other direction,
 * make a source of the host memory (bs_source_from_memory) and read it into the tensor by
 * bs_rank_get_api()->tensor_read, which serves every backend. Where the backend's memory is the host's
 * (BS_BACKEND_HOST_MEMORY: cpu, ref) tensor.data may also be written directly, between the rank's calls. */
BS_API int32_t bs_rank_copy_out(bs_rank *rank, const bs_tensor *tensor, void *out_host, bs_error *err);
BS_API uint64_t bs_rank_clock_ns(const bs_rank *rank);         /* the rank's clock; may be virtual */
BS_API bs_rank *bs_world_rank(bs_world *world, uint32_t rank); /* for reading results after a run */
/* A pointer of the caller's that the rank keeps under a key (the address of something of the caller's own);
 * value NULL removes it. The rank neither reads nor frees what it points to, and forgets it when its world is
 * destroyed. From the rank's thread or after a run. BS_NO_MEMORY is the only failure. */
BS_API int32_t bs_rank_set_data(bs_rank *rank, const void *key, void *value, bs_error *err);
BS_API void *bs_rank_data(const bs_rank *rank, const void *key); /* NULL: nothing is kept under the key */
/* The state of the rank's device. BS_UNSUPPORTED where its backend does not report it. */
BS_API int32_t bs_rank_device_state(bs_rank *rank, bs_device_state *out_state, bs_error *err);
/* Drives everything else out of the device's last-level cache: writes twice the cache's size and waits.
 * *out_bytes is what was written. BS_UNSUPPORTED where the device's memory is the host's, or the cache's size
 * is not known. The rank keeps the memory for it until it ends; bs_world_memory_now and bs_rank_device_state
 * do not count that memory. */
BS_API int32_t bs_rank_device_flush(bs_rank *rank, uint64_t *out_bytes, bs_error *err);
/* Tracked bytes (tensors, packed weights, scratch) of all ranks: now, and the most so far. */
BS_API uint64_t bs_world_memory_now(const bs_world *world);
BS_API uint64_t bs_world_memory_peak(const bs_world *world);
BS_API void bs_world_memory_peak_reset(bs_world *world);
/* The implementation that each prepared op of the world used: "matmul@cpu/dnnl (oneDNN 3.2)"; newline-
 * separated, each once, in order of first use. */
BS_API const char *bs_world_algorithms(const bs_world *world);

/* Which implementations a world asked for and took: one entry per key, in order of first use. Read after a
 * run.
 */
typedef struct bs_choice_info {
  uint32_t struct_size;
  uint32_t reserved;
  const char *key;        /* "matmul@cpu x=f32 w=f32 y=f32 N=4096 K=2048 columns=gather B=64 ..." */
  const char *chosen;     /* "cpu:packed"; "" when it was only asked about */
  const char *wanted;     /* what the options' choices name for it; "" none */
  const char *candidates; /* those that can serve, best first: "cpu:packed<tab>how" lines */
  const char *why;        /* why the wanted one was not taken; "" */
  /* Since 0.9. */
  const char *knobs;      /* what the options' choices tell it, "keys=128;exp=fast"; "" nothing */
  const bs_op_echo *echo; /* what the newest plan of the key says of itself; NULL: nothing */
} bs_choice_info;
BS_API uint32_t bs_world_choice_count(const bs_world *world);
BS_API int32_t bs_world_choice_get(const bs_world *world, uint32_t index, bs_choice_info *out_info,
                                   bs_error *err);

/* Returns what the plan reported about itself when it was prepared. NULL: its implementation reports nothing,
 * or the world only rehearses. The echo lives as long as the plan. */
BS_API const bs_op_echo *bs_plan_echo(const bs_plan *plan);

/* The legal values of a knob, in the order of its declaration: how many, and one of them as text. "auto" is
 * among them where it is declared. BS_INVALID_ARGUMENT for an index past the last. */
BS_API uint32_t bs_knob_count(const bs_knob *knob);
BS_API int32_t bs_knob_value(const bs_knob *knob, uint32_t index, char *out_text, size_t size, bs_error *err);
/* Are the settings ("keys=128;exp=fast") some of these knobs with legal values? BS_CONFIG BS-OP-KNOB tells
 * what is legal and what is nearest. `what` is how the message calls their owner. */
BS_API int32_t bs_knobs_check(const bs_knob *const *knobs, uint32_t n_knobs, const char *what,
                              const char *settings, bs_error *err);

/* ---- layers --------------------------------------------------------------------------------- */

typedef struct bs_layer bs_layer;

/* Builds a layer of one rank by a method. Every rank of the world calls these functions with the same
 * arguments, from its own thread, in the same order. `method` is "dense", "column_parallel", "row_parallel",
 * "masked_split", "blockshock", or a plugin's.
 *
 * The dtypes of `spec` are any mixture of f64 f32 f16 bf16 f8e4m3 f8e5m2 that the backend serves, else
 * BS-OP-NONE with the reasons (share/doc/blockshock/ops.md); ref serves all. Options are the keys method.KEY
 * of share/doc/blockshock/methods.md, as text. The mask, strings and arrays of `spec` must outlive the layer.
 *
 * build reads only the rank's part of `weights` and `bias`; both may be released after the call. x and y of a
 * forward are the caller's. x has spec.B tokens or fewer; all of them where tokens are split. forward writes
 * all of y. bs_layer_free(NULL) does nothing. */
BS_API int32_t bs_layer_build(bs_rank *rank, const char *method, const bs_layer_spec *spec,
                              const bs_source *weights, const bs_source *bias, bs_layer **out_layer,
                              bs_error *err);
/* Builds a layer over a group (bs_rank_api's group_open). The method sees the group as its world, and its
 * collectives run in the group. Every member calls it. The group must live as long as the layer. */
BS_API int32_t bs_layer_build_in(bs_group *group, const char *method, const bs_layer_spec *spec,
                                 const bs_source *weights, const bs_source *bias, bs_layer **out_layer,
                                 bs_error *err);
BS_API int32_t bs_layer_forward(bs_layer *layer, const bs_tensor *x, bs_tensor *y, bs_stream *stream,
                                bs_error *err);
/* The gradients of a loss, for a layer built with BS_LAYER_BACKWARD. x is what forward had, dy the gradient
 * of the loss by y, in y's placement. dx is placed as x, dw is [row_count,K_r] for the part that the rank
 * owns, db is [row_count]; all are written whole. NULL: not wanted (dx on all ranks or on none). dw and db
 * are f32, or f64 where x, W or y is. Every rank calls it. BS_UNSUPPORTED: the method has no backward pass,
 * or the layer was built for forward only. */
BS_API int32_t bs_layer_backward(bs_layer *layer, const bs_tensor *x, const bs_tensor *dy, bs_tensor *dx,
                                 bs_tensor *dw, bs_tensor *db, bs_stream *stream, bs_error *err);
/* One step of an optimiser on the rank's weights and bias, of a layer built with its flag (BS_LAYER_SGD,
 * MOMENTUM, ADAMW, with BACKWARD): share/doc/blockshock/methods.md has the formulas. Called by every rank. */
BS_API int32_t bs_layer_step(bs_layer *layer, const bs_step *step, bs_stream *stream, bs_error *err);
/* Which rows and columns of W the rank holds; the arrays live as long as the layer. */
BS_API int32_t bs_layer_owns(bs_layer *layer, bs_ownership *out_ownership, bs_error *err);
BS_API int32_t bs_layer_read_weights(bs_layer *layer, int64_t row, bs_tensor *out, bs_error *err);
/* Whether a pass (enum bs_pass) of a layer with BS_LAYER_CAPTURE is a graph of the device: "captured", or the
 * reason why not. NULL: the layer was built without the flag, or there is no such pass. The text lives until
 * the next call of this layer.
 * The first pass with given tensors (and numbers of a step) runs normally. The second one is captured as a
 * graph, where the backend has graphs and everything in the pass can be captured. From then on the same pass
 * is one call. Never captured: a pass with a collective between ranks, because ranks meet on the host; AdamW
 * steps, because they differ in t; a pass that is given a stream. A forward of another shape frees the
 * layer's graphs. */
enum bs_pass { BS_PASS_FORWARD, BS_PASS_BACKWARD, BS_PASS_STEP, BS_PASS_COUNT_ };
BS_API const char *bs_layer_capture(const bs_layer *layer, uint32_t pass);
BS_API void bs_layer_free(bs_layer *layer);
/* Reports what one forward of one rank would do. Builds nothing. */
BS_API int32_t bs_method_propose(bs_context *context, const char *method, const bs_layer_spec *spec,
                                 uint32_t rank, uint32_t world_size, bs_proposal *out_proposal,
                                 bs_error *err);

/* ---- small helpers -------------------------------------------------------------------------- */

BS_API const char *bs_dtype_name(uint32_t dtype); /* "f32"; "?" when unknown */
BS_API uint32_t bs_dtype_parse(const char *name); /* 0 when unknown; accepts aliases */
/* Converts as bs_host.convert does. */
BS_API int32_t bs_convert(uint32_t dst_dtype, void *dst, uint32_t src_dtype, const void *src, uint64_t count);
/* A source over the caller's memory: rows x cols of `dtype`, `stride` elements between rows. The memory must
 * stay as it is until the source is released. */
BS_API int32_t bs_source_from_memory(const void *data, uint32_t dtype, int64_t rows, int64_t cols,
                                     int64_t stride, bs_source *out_source, bs_error *err);
BS_API void bs_source_release(bs_source *source); /* of bs_source_from_memory only */
/* Parses "1100", "complement_1001_0110", "interleave", "contiguous", ... (share/doc/blockshock/methods.md).
 * Pattern_b defaults to the complement of a; a pattern must keep exactly two of four. What is filled in lives
 * for ever (name is static); shares, order and seed are left to the caller, whose arrays must outlive the
 * mask. */
BS_API int32_t bs_mask_parse(const char *name, const char *pattern_a, const char *pattern_b,
                             bs_mask *out_mask, bs_error *err);
BS_API int32_t bs_partition_make(const bs_mask *mask, int64_t total, uint32_t rank, uint32_t world_size,
                                 const bs_partition **out_partition, bs_error *err);
BS_API void bs_partition_free(const bs_partition *partition);
/* Do what kept_make and kept_free of bs_rank_api do, without a rank. Only COMPLEMENT, RANDOM_2OF4, MAGNITUDE
 * and TRANSPOSABLE have halves that keep two of each four. */
BS_API int32_t bs_kept_make(const bs_mask *mask, int64_t rows, int64_t cols, const bs_source *weights,
                            uint32_t half, const bs_kept **out_kept, bs_error *err);
BS_API void bs_kept_free(const bs_kept *kept);
/* Writes an error as one line, "PROGRAM: error[ID] message; hint: ...", cut to `size` bytes. */
BS_API void bs_error_format(const bs_error *err, const char *program, char *out_text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
