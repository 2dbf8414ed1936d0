/* SPDX-License-Identifier: MIT
 * error.h - filling bs_error inside our own code. Thread-safe: touches only the caller's record. */
#ifndef BS_CORE_BASE_ERROR_H
#define BS_CORE_BASE_ERROR_H
#include <stdarg.h>

#include "blockshock/blockshock.h"

/* Fill err (may be NULL) and return code. id e.g. "BS-CFG-KEY". */
BS_API int32_t bs_error_set(bs_error *err, int32_t code, const char *id, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Does what bs_error_set does, and appends errno's number and text. */
BS_API int32_t bs_error_errno(bs_error *err, int32_t code, const char *id, int saved_errno, const char *fmt,
                              ...) __attribute__((format(printf, 5, 6)));
BS_API void bs_error_where(bs_error *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Names the file in `message` too, for programs that print it alone: "PATH: message", and "PATH: where:
 * message" where `where` is a place inside of the file. `where` becomes that beginning; bs_error_format
 * prints it once. */
BS_API void bs_error_file(bs_error *err, const char *path);
BS_API void bs_error_hint(bs_error *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
BS_API void bs_error_clear(bs_error *err);

#if defined(__clang_analyzer__) && !defined(BS_ERROR_DEFINITIONS)
/* The static analyser sees one file at a time. These macros show it that the functions return `code`. */
#define bs_error_set(err, code, ...) ((void)bs_error_set(err, code, __VA_ARGS__), (int32_t)(code))
#define bs_error_errno(err, code, ...) ((void)bs_error_errno(err, code, __VA_ARGS__), (int32_t)(code))
#endif

#define BS_ERROR_INIT \
  { (uint32_t)sizeof(bs_error), 0, 0, -1, 0, "", "", "", "", "", "" }
#endif
