/* SPDX-License-Identifier: MIT
 * npy_header.h - the text part of a .npy file: a Python dict literal with the keys descr, fortran_order and
 * shape. Internal to formats/. */
#ifndef BS_FORMATS_NPY_HEADER_H
#define BS_FORMATS_NPY_HEADER_H
#include <stddef.h>

#include "formats/npy.h"

/* Parse text[0..size) into out->dtype, rank, dims. Errors as bs_npy_open, without the place. */
int32_t bs_npy_parse_header(const char *text, size_t size, bs_npy *out, bs_error *err);
#endif
