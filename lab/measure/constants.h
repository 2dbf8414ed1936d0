/* SPDX-License-Identifier: MIT
 * constants.h - the machine's constants as a file: measured once by `bsrun doctor --measure`, read by phase 1
 * and `bsrun explain`. The key is the processor, usable cores and library build, so another machine or build
 * measures again. The caller chooses the file's folder; this code does not read the environment. */
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

/* 1 and a sentence: other programs use more than a quarter of the processors now (it measures for a quarter
 * of a second). */
int bs_load_is_high(char *out_text, size_t size);
/* Tests the same for a record of bs_load_json, which was made around a measurement. */
int bs_load_was_high(const json_t *conditions, char *out_text, size_t size);
/* Reasons not to store them: a list of {list, row, keep, why}. list and row name the constant, or are null if
 * the whole machine was busy; keep: it may be stored despite the reason. Empty: no reasons. */
json_t *bs_constants_doubts(const json_t *constants);

/* Measures for some seconds: multiply-add rates by dtype, read and copy bandwidth by footprint, per core and
 * for all; all-reduces by backend and world size, the host's part by backend; the rates of each backend's own
 * matmul by dtype and footprint, with the implementation that served. like: context, comm, bind, timeout.
 * progress may be NULL. The caller releases *out. */
int32_t bs_constants_measure(const bs_case *like, const char *const *backends, size_t n_backends,
                             bs_progress_fn progress, void *user, json_t **out, bs_error *err);

/* Writes atomically (a temporary file in the same folder, fsync, rename) and creates the folders. BS_IO. */
int32_t bs_constants_store(const char *path, const json_t *constants, bs_error *err);
/* BS_OK; BS_NOT_FOUND: no file; BS_MISMATCH: of another machine or build, with the difference; BS_CORRUPT,
 * BS_IO: it cannot be read or used. *out is NULL unless BS_OK; the caller releases it. */
int32_t bs_constants_load(const char *path, json_t **out, bs_error *err);

/* Is a row of `kernels` for matmul24? Old rows have no such field: they are for matmul. */
int bs_constants_of24(const json_t *row);
/* The rates of the implementation `who` (bs_kernel_identify) for like's backend and dtype: 1; or 0 if the
 * stored ones are of another implementation, another build of its plugin, or missing (then measure). Byte
 * rates are converted to shares of the machine's read bandwidth, so that both change in the same way with the
 * caches. */
int bs_constants_kernel(const json_t *constants, const bs_case *like, double footprint, const bs_kernel *who,
                        bs_kernel *out);

/* Makes the machine of a run from stored constants: 1; or 0 if they lack its dtype, backend, communicator or
 * world size (then measure). Bandwidths are interpolated between the stored footprints. */
int bs_constants_find(const json_t *constants, const bs_case *like, double footprint, bs_machine *out);
#endif
