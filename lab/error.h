/* SPDX-License-Identifier: MIT
 * error.h - core's errors, and the words of all of lab/ for memory that is not there. */
#ifndef BS_LAB_ERROR_H
#define BS_LAB_ERROR_H
#include "core/base/error.h" /* IWYU pragma: export */

/* Fills err (may be NULL) with BS-MEM and "no memory for ...", from printf text; returns BS_NO_MEMORY. */
#define bs_no_memory(err, ...) bs_error_set((err), BS_NO_MEMORY, "BS-MEM", "no memory for " __VA_ARGS__)
#define bs_out_of_memory(err) bs_error_set((err), BS_NO_MEMORY, "BS-MEM", "out of memory")
#endif
