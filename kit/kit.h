/* SPDX-License-Identifier: MIT
 * kit.h - internals of the conformance kit: the host that a plugin sees (host.c), the registered things of
 * the plugin (plugin.c), the list of checks (list.c) and the code that runs and classes them (run.c). A check
 * is a function in a forked child: it returns (pass), calls kit_unsupported, or fails an assertion. */
#ifndef BS_KIT_KIT_H
#define BS_KIT_KIT_H
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "kit/conformance.h"
#include "tests/marks.h"
#include "tests/slow.h"

enum { KIT_MAX_THINGS = 64, KIT_MAX_PARAMS = 64, KIT_MAX_CASES = 1024, KIT_NAME = 256 };

/* The time limit of a check in seconds; ten times as much if the kit itself is built with a sanitizer. */
enum { KIT_LIMIT_S = 60 * (BS_SLOW ? 10 : 1), KIT_FULL_LIMIT_S = 10 * KIT_LIMIT_S };

/* In a process that is a rank of a check, stores the text for the check and exits (comm_rank.c). */
void kit_rank_fails(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
#define kit_fail(...)            \
  do {                           \
    kit_rank_fails(__VA_ARGS__); \
    ck_abort_msg(__VA_ARGS__);   \
  } while (0)
#define kit_assert(ok, ...)           \
  do {                                \
    if (!(ok)) kit_fail(__VA_ARGS__); \
  } while (0)

void kit_fence_watch(void); /* fence.c */

/* ---- the host (host.c) ---------------------------------------------------------------------- */

typedef struct kit_thing {
  uint32_t kind;
  void *vtable; /* the host's full-size copy */
  void *state;
} kit_thing;

typedef struct kit_param {
  char name[64];
  char text[256];
  bs_value value;
} kit_param;

typedef struct kit_host {
  struct {
    bs_host host;
    void *later[16]; /* slots that a later minor may append: not NULL, not callable */
  } table;
  uint32_t kinds; /* of the descriptor */
  kit_thing things[KIT_MAX_THINGS];
  uint32_t n_things;
  kit_param params[KIT_MAX_PARAMS];
  uint32_t n_params;
  const bs_kit_options *options;
  int64_t blocks;     /* of host memory not given back */
  int64_t calls;      /* of services that can fail, since kit_host_init */
  int64_t fail_at;    /* the n-th of them fails; 0: none */
  const char *failed; /* the service that was made to fail */
  int inside;         /* activate is running */
  bs_error refused;   /* the first call that this host refused */
} kit_host;

void kit_host_init(kit_host *host, const bs_kit_options *options, uint32_t kinds);
/* 1, and err filled, when this call of a service is the one that has to fail. */
int kit_host_fails(kit_host *host, const char *service, bs_error *err);
/* The partitions of every host, counted: made and not freed. */
int32_t kit_partition_make(const bs_mask *mask, int64_t total, uint32_t rank, uint32_t world_size,
                           const bs_partition **out, bs_error *err);
void kit_partition_free(const bs_partition *p);
int64_t kit_partitions(void);
/* Drops all registered and declared things. */
void kit_host_drop(kit_host *host);

/* ---- the plugin (plugin.c) ------------------------------------------------------------------ */

typedef struct kit_plugin {
  void *handle;
  bs_plugin_query_fn query;
  const bs_plugin_desc *desc;
  kit_host host;
  void *state;
  int active;
} kit_plugin;

int32_t kit_plugin_load(kit_plugin *p, const bs_kit_options *options, bs_error *err);
int32_t kit_plugin_activate(kit_plugin *p, bs_error *err);
void kit_plugin_deactivate(kit_plugin *p);
/* Both, or the check fails. */
void kit_plugin_open(kit_plugin *p);

/* Facts on the plugin that a child found before any check. */
typedef struct kit_found {
  uint32_t kind;
  char name[64]; /* of an op implementation: its algorithm */
  char op[64], backend[64];
  uint32_t launch; /* of a communicator */
  uint32_t again; /* 1: a communicator that is registered under an earlier name too: same slots, same state */
  uint32_t phantom; /* 1: a backend whose memory holds no values */
  uint32_t device;  /* 1: a backend whose memory is not the host's */
  uint32_t knobs;   /* of an op implementation */
} kit_found;
typedef struct kit_survey {
  int32_t complete, code;
  char why[640];
  char id[32], version[32];
  uint32_t kinds, n_things;
  kit_found things[KIT_MAX_THINGS];
} kit_survey;
/* Fills it (shared memory) from a child process. */
void kit_survey_make(const bs_kit_options *options, kit_survey *out_survey);
const char *kit_kind_word(uint32_t kind); /* as notes have it: "op", "backend", ... */
/* "matmul@cpu/packed", or the thing's name. */
const char *kit_found_name(const kit_found *f, char *out, size_t size);

/* ---- checks --------------------------------------------------------------------------------- */

typedef struct kit_case {
  const char *group;
  char name[KIT_NAME];
  void (*body)(const struct kit_case *c);
  uint32_t thing; /* index of the survey's and of the host's things */
  uint32_t arg;
  uint32_t least;  /* 1: may not be unsupported: the least that the kind must do */
  uint32_t chosen; /* 1: of the group and the part that are run */
} kit_case;

/* The run that this process belongs to. */
typedef struct kit_run {
  const bs_kit_options *options;
  kit_survey *survey;
  kit_case *cases;
  uint32_t n_cases;
  struct kit_note {
    uint32_t unsupported;
    uint32_t done; /* the body has returned: otherwise the plugin ended the process */
    char text[640];
  } * notes; /* shared memory, one a case */
  uint32_t current;
} kit_run;
extern kit_run kit;
/* Runs a process that mpirun has started for a check (comm_rank.c); returns only in other processes. */
int kit_rank_main(const char *path);

/* Marks the check as not applicable to the plugin, by the plugin's own statement: `why` is its text. Return
 * after it. */
void kit_unsupported(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static inline int kit_full(void) {
  return kit.options->full;
}
/* The list of checks that fit a survey; returns their number. */
uint32_t kit_list(const kit_survey *survey, kit_case *out_cases, uint32_t max);
extern const char *const kit_groups[];
extern const uint32_t kit_n_groups;

/* Calls all functions of a plugin once, at one small shape, for the checks of hygiene. */
void kit_exercise(kit_plugin *p);
/* A layer of the method in a world of its usual size (method.c). */
void kit_method_use(const bs_method *m);

/* The table and state of a communicator or backend; of a wrapper, those that it makes from the library's own.
 * Call kit_unwrap afterwards, before the plugin is deactivated. One at a time. */
const bs_comm *kit_comm_of(const kit_thing *t, void **out_state);
const bs_backend *kit_backend_of(const kit_thing *t, void **out_state);
void kit_unwrap(void);

/* Pseudo-random numbers by a seed; below n. */
uint64_t kit_next(uint64_t *seed);
int64_t kit_below(uint64_t *seed, int64_t n);

/* Bodies. */
void kit_abi_file(const kit_case *c);
void kit_abi_symbols(const kit_case *c);
void kit_abi_host(const kit_case *c);
void kit_abi_things(const kit_case *c);
void kit_abi_later(const kit_case *c);
void kit_life_query(const kit_case *c);
void kit_life_repeat(const kit_case *c);
void kit_life_failures(const kit_case *c);
void kit_life_two_hosts(const kit_case *c);
void kit_life_memory(const kit_case *c);
void kit_truth_supports(const kit_case *c);
void kit_truth_threads(const kit_case *c);
void kit_truth_huge(const kit_case *c);
void kit_num_values(const kit_case *c);
void kit_num_least(const kit_case *c);
void kit_num_special(const kit_case *c);
void kit_num_small(const kit_case *c);
void kit_num_packed(const kit_case *c);
void kit_num_device(const kit_case *c);
void kit_num_rows(const kit_case *c);
void kit_num_in_place(const kit_case *c);
void kit_num_outside(const kit_case *c);
void kit_num_knobs(const kit_case *c);
void kit_num_tokenwise(const kit_case *c);
void kit_method_exact(const kit_case *c);
void kit_method_real(const kit_case *c);
void kit_method_gradient(const kit_case *c);
void kit_method_repeats(const kit_case *c);
void kit_method_driven(const kit_case *c);
void kit_method_together(const kit_case *c);
void kit_comm_together(const kit_case *c);
void kit_op_together(const kit_case *c);
void kit_life_build(const kit_case *c);
void kit_life_open(const kit_case *c);
void kit_life_world(const kit_case *c);
void kit_life_device(const kit_case *c);
void kit_comm_collective(const kit_case *c);
void kit_comm_faults(const kit_case *c);
void kit_comm_processes(const kit_case *c);
void kit_comm_exchange(const kit_case *c);
void kit_comm_exchange_faults(const kit_case *c);
void kit_work_stream(const kit_case *c);
void kit_work_parts(const kit_case *c);
void kit_algorithm_level(const kit_case *c);
void kit_algorithm_formula(const kit_case *c);
void kit_clean_output(const kit_case *c);
void kit_clean_environment(const kit_case *c);
void kit_clean_signals(const kit_case *c);
void kit_clean_process(const kit_case *c);
void kit_clean_files(const kit_case *c);
void kit_clean_threads(const kit_case *c);
void kit_clean_exit(const kit_case *c);
void kit_clean_tls(const kit_case *c);
void kit_clean_globals(const kit_case *c);
#endif
