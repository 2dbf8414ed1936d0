/* SPDX-License-Identifier: MIT
 * constants.h - the machine's constants as a file: measured once by `bsrun doctor --measure`, read by phase 1
 * and `bsrun explain`. Keyed by processor, usable cores and library build, so that another machine or build
 * measures anew. The folder of the file is the caller's choice; nothing here reads the environment. */
#ifndef BS_LAB_MEASURE_CONSTANTS_H
#define BS_LAB_MEASURE_CONSTANTS_H
#include <jansson.h>

#include "lab/measure/load.h"
#include "lab/measure/predict.h"

#define BS_CONSTANTS_FORMAT 3
enum { BS_CONSTANTS_LISTS = 5 };
extern const char *const bs_constants_lists[BS_CONSTANTS_LISTS]; /* "arithmetic", "memory", ... */

/* {cpu, cores, library_build_id} of this process. NULL when out of memory. */
json_t *bs_constants_key(void);

/* 1 and a sentence: others take more than a quarter of the processors right now (looks for a quarter of a
 * second). */
int bs_load_is_high(char *out_text, size_t size);
/* The same of a record of bs_load_json, which was made around a measurement. */
int bs_load_was_high(const json_t *conditions, char *out_text, size_t size);
/* Why they should not be kept: a list of {list, row, keep, why}; list and row name the constant, or are null
 * where the whole machine was busy; keep: it may be kept all the same. Empty: nothing speaks against them. */
json_t *bs_constants_doubts(const json_t *constants);

/* Some seconds: multiply-add rates by dtype, read and copy bandwidth by footprint, per core and for all;
 * all-reduces by backend and world size, the host's part by backend; what each backend's own matmul reaches
 * by dtype and footprint, with the implementation that served. like: context, comm, bind, timeout. progress
 * may be NULL. The caller releases *out. */
int32_t bs_constants_measure(const bs_case *like, const char *const *backends, size_t n_backends,
                             bs_progress_fn progress, void *user, json_t **out, bs_error *err);

/* Write atomically (a temporary file beside it, fsync, rename), making the folders. BS_IO. */
int32_t bs_constants_store(const char *path, const json_t *constants, bs_error *err);
/* BS_OK; BS_NOT_FOUND: there is no file; BS_MISMATCH: of another machine or build, with the difference;
 * BS_CORRUPT, BS_IO: it cannot be read or used. *out is NULL unless BS_OK; the caller releases it. */
int32_t bs_constants_load(const char *path, json_t **out, bs_error *err);

/* Is a row of `kernels` of matmul24? Rows of before it was measured do not tell: they are of matmul. */
int bs_constants_of24(const json_t *row);
/* The rates of the implementation `who` (bs_kernel_identify) for like's backend and dtype: 1, or 0 when they
 * are of another one, another build of its plugin, or none (then measure). Byte rates are taken as parts of
 * the machine's read bandwidth, so that both follow the caches alike. */
int bs_constants_kernel(const json_t *constants, const bs_case *like, double footprint, const bs_kernel *who,
                        bs_kernel *out);

/* The machine of a run made of stored constants: 1, or 0 when they lack its dtype, backend, communicator or
 * world size (then measure). Bandwidths are interpolated between the stored footprints. */
int bs_constants_find(const json_t *constants, const bs_case *like, double footprint, bs_machine *out);
#endif
